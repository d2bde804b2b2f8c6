#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Same sample, two unwinders: our chains against libdw's for the same registers and stack.

CPython running a pure Python loop, and one large C++ program (clang) compiling: at least 99 % of the
chains are identical; the others are listed by cause. Samples that cannot be compared are named, too:
libdw had too little of the stack copied, or no record of ours matches by thread and time.
"""
import os
import shutil
import subprocess
import tempfile
import unittest

import agent_lib

SECONDS = float(os.environ.get("STRATA_SECONDS", "4"))
LOOP = """
import json
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
while True:
    fib(15)
    sorted([(i * 7919) % 1000 for i in range(1000)], key=lambda x: -x)
    json.dumps([{"a": i} for i in range(200)])
"""


def source(functions):
    return "".join(f"int f{i}(int *p, int n) {{ int s = 0; for (int k = 0; k < n; k++) {{ if (p[k] "
                   f"% {i + 2} == 0) s += p[k] * {i}; else s ^= p[k] << (k & 7); }} return s + n / "
                   f"{i + 1}; }}\n" for i in range(functions))


class Oracle(unittest.TestCase):
    def compare(self, name, command, warm, least=50):
        r = subprocess.run([agent_lib.tool("oracle"), "-v", "5", "-s", str(SECONDS), "-w", str(warm),
                            "--", *command], capture_output=True, text=True, timeout=80)
        if r.returncode == agent_lib.SKIP:
            self.skipTest("no BPF here: " + r.stderr)
        self.assertEqual(r.returncode, 0, r.stderr)
        line = r.stdout.splitlines()[-1]
        v = {k: int(x) for k, x in (w.split("=") for w in line.split()[1:])}
        apart = v["dump"] + v["unmatched"]
        n = v["samples"] - apart
        print(f"{name}: {v['same'] / max(n, 1):.2%} of {n} identical; {line}")
        self.assertGreater(n, least, r.stdout)
        self.assertLess(apart, 0.1 * v["samples"], "too many samples that say nothing")
        self.assertGreaterEqual(v["same"], 0.99 * n, r.stdout)

    def test_python(self):
        self.compare("CPython", ["/usr/bin/python3", "-c", LOOP], 1)

    def test_cxx(self):
        where = "/usr/bin:/usr/local/bin"  # itself, not a wrapper that runs it as a child
        clang = shutil.which("clang-14", path=where) or shutil.which("clang", path=where)
        if not clang:
            self.skipTest("no clang")
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "big.c")
            with open(path, "w", encoding="ascii") as f:
                f.write(source(20000))
            self.compare("clang", [clang, "-O2", "-S", "-o", os.devnull, path], 2)

    def test_signal(self):
        self.compare("signal handlers", [agent_lib.tool("traps"), "signal", "60"], 1)


if __name__ == "__main__":
    agent_lib.need_root()
    unittest.main(verbosity=0)
