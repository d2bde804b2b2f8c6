#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Stacks that are hard to unwind end properly: at least 99.5 % of each workload's are complete.

All workloads run at once under one unwinder, without frame pointers. A chain of 600 frames is cut at
512 and says so. Prints one line per workload.
"""
import os
import subprocess
import sys
import time
import unittest

import agent_lib

SHAPES = ("signal sigalt sigtimer vdso qsort alloca avx realigned deep fiber thread sys vfork malloc "
          "jit").split()
SECONDS = float(os.environ.get("STRATA_SECONDS", "6"))
WARM = 1.5  # tables of what everybody maps are built on first touch


class Stacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        names = SHAPES + ["deep600"]
        life = str(SECONDS + WARM + 80)
        cls.procs = {n: subprocess.Popen([agent_lib.tool("traps"), n, life]) for n in names}
        try:
            time.sleep(0.5)
            pids = [p.pid for p in cls.procs.values()]
            cls.result = agent_lib.Stackstat(pids, "-p", 2004008, "-s", SECONDS, "-w", WARM).finish()
        finally:
            for p in cls.procs.values():
                p.kill()
                p.wait()

    def stat(self, name):
        return self.result.process[self.procs[name].pid]

    def test_complete(self):
        for name in SHAPES:
            with self.subTest(name):
                if self.procs[name].returncode == agent_lib.SKIP:
                    print(f"{name:10} skip: this CPU cannot")
                    continue
                p = self.stat(name)
                bad = agent_lib.incomplete(p)
                print(f"{name:10} n={p['n']} words={p['words'] / max(p['n'], 1):.1f} "
                      f"{agent_lib.stop_text(p)}")
                self.assertGreater(p["n"], 5, "too few samples to say anything")
                self.assertGreaterEqual(p["n"] - bad, 0.995 * p["n"], agent_lib.stop_text(p))

    def test_depth(self):
        self.assertGreaterEqual(self.stat("deep")["words"] / self.stat("deep")["end"], 400)
        self.assertGreater(self.stat("jit")["fp_used"], 0.9 * self.stat("jit")["n"])
        p = self.stat("deep600")
        print(f"deep600    n={p['n']} {agent_lib.stop_text(p)}")
        self.assertGreaterEqual(p["trunc"], 0.9 * p["n"], "600 frames are cut at 512")

    def test_identity(self):
        self.assertEqual(self.result.code, 0, self.result.text)
        self.assertEqual(self.result.total["identity"], "ok")
        self.assertGreater(len(self.result.windows), 2)


if __name__ == "__main__":
    agent_lib.need_root()
    sys.stdout.reconfigure(line_buffering=True)
    unittest.main(verbosity=0)
