#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Same sample, two unwinders: our chains against libdw's for the same registers and stack.

test_oracle.py [noloop]: noloop as on a kernel without bpf_loop(). CPython running a pure Python loop,
one large C++ program (clang) compiling, stratad answering, Node.js, PyTorch where they are installed:
at least 99 % of the chains are identical; the others are listed by cause. Samples that cannot be
compared are named, too: libdw had too little of the stack copied, or no record of ours matches by
thread and time.
"""
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import agent_lib

SECONDS = float(os.environ.get("STRATA_SECONDS", "4"))
NOLOOP = sys.argv[1:] == ["noloop"]
NODE = """
const zlib = require('zlib');
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
function turn() {
  fib(22);
  const a = Array.from({length: 2000}, (_, i) => ({a: i, b: `x${i % 7}`}));
  a.sort((x, y) => (x.b < y.b ? -1 : 1));
  zlib.deflateSync(JSON.stringify(a));
  setImmediate(turn);
}
turn();
"""
TORCH = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(200, 400), torch.nn.ReLU(), torch.nn.Linear(400, 10))
best = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    x, y = torch.randn(64, 200), torch.randint(0, 10, (64,))
    best.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    best.step()
"""
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
        more = ["-l"] if NOLOOP else []
        for seconds in (SECONDS, 3 * SECONDS, 6 * SECONDS):  # on a busy machine samples are few
            r = subprocess.run([agent_lib.tool("oracle"), *more, "-v", "5", "-s", str(seconds), "-w",
                                str(warm), "--", *command], capture_output=True, text=True, timeout=150)
            if r.returncode == agent_lib.SKIP:
                self.skipTest("no BPF here: " + r.stderr)
            self.assertEqual(r.returncode, 0, r.stderr)
            line = r.stdout.splitlines()[-1]
            v = {k: int(x) for k, x in (w.split("=") for w in line.split()[1:])}
            apart = v["dump"] + v["unmatched"]
            n = v["samples"] - apart
            if n > least:
                break
        print(f"{name}: {v['same'] / max(n, 1):.2%} of {n} identical; {line}")
        self.assertGreater(n, least, r.stdout)
        self.assertTrue(agent_lib.nearly(n, v["samples"], 0.9), "too many samples that say nothing")
        # the first touch of a file costs a stack, named so; here of those that the warm-up missed
        first = v.get("ours_notable", 0)
        self.assertTrue(agent_lib.nearly(n - first, n, 0.9), r.stdout)
        self.assertTrue(agent_lib.nearly(v["same"], n - first, 0.99), r.stdout)

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

    def test_node(self):
        if not shutil.which("node"):
            self.skipTest("no Node.js")
        self.compare("Node.js", ["node", "-e", NODE], 3)

    def test_torch(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode:
            self.skipTest("no python3-torch")
        self.compare("PyTorch", ["/usr/bin/python3", "-c", TORCH], 6)

    def test_stratad(self):
        exe = os.path.join(agent_lib.build_dir(), "../../server/stratad")
        if not os.path.exists(exe):
            self.skipTest("no stratad")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        done = threading.Event()

        def ask():
            while not done.is_set():
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                try:
                    for path in ("types", "openapi.json", "meta", "services") * 50:
                        c.request("GET", "/api/v1/" + path, headers={"Accept-Encoding": "gzip"})
                        c.getresponse().read()
                except OSError:
                    done.wait(0.05)
                c.close()

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for t in threads:
            t.start()
        try:
            with tempfile.TemporaryDirectory() as d:
                self.compare("stratad", [exe, "--listen", f"127.0.0.1:{port}", "--data", d], 3)
        finally:
            done.set()
            for t in threads:
                t.join()

    def test_signal(self):
        self.compare("signal handlers", [agent_lib.tool("traps"), "signal", "60"], 1)


if __name__ == "__main__":
    agent_lib.need_root()
    unittest.main(argv=sys.argv[:1] if NOLOOP else None, verbosity=0)
