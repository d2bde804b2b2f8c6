#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Stacks that are hard to unwind end properly: at least 99.5 % of each workload's are complete, or all
but two where samples are few.

test_stacks.py [noloop]: noloop as on a kernel without bpf_loop(). All workloads run at once under one
unwinder, without frame pointers. Those of corners.c have a known number of frames; what cannot be
unwound stops with the right reason, and is not guessed. A chain of 600 frames is cut at 512 and says
so. Prints one line per workload.
"""
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import agent_lib

NOLOOP = sys.argv[1:] == ["noloop"]
SHAPES = ("signal sigalt sigtimer vdso qsort alloca avx realigned deep fiber thread sys vfork malloc "
          "jit").split()
# frames below the one that spins: inner, hold, main, two of libc, _start
CORNERS = {"plt11": 7, "plt10": 7, "plt9": 7, "deref_rbp": 7, "deref_rsp": 7, "leaf_reg": 7,
           "ra_reg": 7, "bare_fp": 7, "far": 8, "noreturn": 10, "vsyscall": None}
REFUSED = {"reg_caller": "invalid", "bare_data": "noinfo", "bare_near": "noinfo",
           "jit_data": "badfp"}
PROGRAMS = ("plt_lazy", "plt_ibt", "plt_nofde", "bare")
SECONDS = float(os.environ.get("STRATA_SECONDS", "6"))
WARM = 1.5  # tables of what everybody maps are built on first touch


def without_sections(path, to):
    """A copy of the program whose section headers are gone."""
    with open(path, "rb") as f:
        data = bytearray(f.read())
    struct.pack_into("<Q", data, 40, 0)  # e_shoff
    struct.pack_into("<HHH", data, 58, 64, 0, 0)  # e_shentsize, e_shnum, e_shstrndx
    with open(to, "wb") as f:
        f.write(data)
    os.chmod(to, 0o755)
    return to


class Stacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        life = str(int(SECONDS + WARM + 80))
        with tempfile.TemporaryDirectory() as d:
            stripped = without_sections(agent_lib.tool("corners"), os.path.join(d, "corners"))
            commands = {n: [agent_lib.tool("traps"), n, life] for n in SHAPES + ["deep600"]}
            commands |= {n: [agent_lib.tool("corners"), n, life] for n in [*CORNERS, *REFUSED]}
            commands |= {n: [agent_lib.tool(n), life] for n in PROGRAMS}
            commands["exec_far"] = [agent_lib.tool("corners_exec"), "far", life]
            commands["nosections"] = [stripped, "noreturn", life]
            cls.procs = {n: subprocess.Popen(c) for n, c in commands.items()}
            nice = os.getpriority(os.PRIO_PROCESS, 0)
            for n, p in cls.procs.items():  # forty busy programs: the unwinder comes first
                # vfork waits for its children most of the time
                os.setpriority(os.PRIO_PROCESS, p.pid, nice - 5 if n == "vfork" else nice + 9)
            try:
                time.sleep(0.5)
                pids = [p.pid for p in cls.procs.values()]
                more = ["-l"] if NOLOOP else []
                cls.result = agent_lib.Stackstat(pids, "-p", 1000003, "-s", SECONDS, "-w", WARM,
                                                 *more).finish(timeout=150)
            finally:
                for p in cls.procs.values():
                    p.kill()
                    p.wait()

    def stat(self, name):
        return self.result.process[self.procs[name].pid]

    def skipped(self, name):
        if self.procs[name].returncode == agent_lib.SKIP:
            print(f"{name:10} skip: this machine cannot")
            return True
        return False

    def complete(self, name, frames=None):
        p = self.stat(name)
        bad = agent_lib.incomplete(p)
        mean = p["words"] / max(p["n"], 1)
        print(f"{name:10} n={p['n']} words={mean:.2f} {agent_lib.stop_text(p)}")
        self.assertGreater(p["n"], 5, "too few samples to say anything")
        self.assertTrue(agent_lib.nearly(p["n"] - bad, p["n"], 0.995), agent_lib.stop_text(p))
        if frames:  # a few are not in the function itself, two may be anywhere
            self.assertLess(abs(mean - frames), 0.3 + 2 * frames / p["n"],
                            "frames are missing, or too many")

    def test_complete(self):
        for name in SHAPES:
            with self.subTest(name):
                if not self.skipped(name):
                    self.complete(name)

    def test_corners(self):
        for name, frames in CORNERS.items():
            with self.subTest(name):
                if not self.skipped(name):
                    self.complete(name, frames)
        self.by_frame_pointer("bare_fp", 0.9)

    def by_frame_pointer(self, name, share):
        p = self.stat(name)
        self.assertTrue(agent_lib.nearly(p["fp_used"], p["n"], share), (p["fp_used"], p["n"]))

    def test_files(self):
        """At a fixed address and in two segments; without section headers; other PLTs; no .eh_frame"""
        self.complete("exec_far", 8)
        self.complete("nosections", 10)
        for name in PROGRAMS:
            with self.subTest(name):
                self.complete(name)
        self.by_frame_pointer("bare", 0.99)

    def test_refused(self):
        for name, why in REFUSED.items():
            with self.subTest(name):
                if self.skipped(name):
                    continue
                p = self.stat(name)
                print(f"{name:10} n={p['n']} {agent_lib.stop_text(p)}")
                self.assertGreater(p["n"], 5, "too few samples to say anything")
                self.assertTrue(agent_lib.nearly(p[why], p["n"], 0.97), agent_lib.stop_text(p))

    def test_depth(self):
        deep = self.stat("deep")
        self.assertGreaterEqual(deep["words"], 400 * (deep["n"] - 2))
        self.by_frame_pointer("jit", 0.9)
        p = self.stat("deep600")
        print(f"deep600    n={p['n']} {agent_lib.stop_text(p)}")
        self.assertTrue(agent_lib.nearly(p["trunc"], p["n"], 0.9), "600 frames are cut at 512")

    def test_identity(self):
        self.assertEqual(self.result.code, 0, self.result.text)
        self.assertEqual(self.result.total["identity"], "ok")
        self.assertGreater(len(self.result.windows), 1)


if __name__ == "__main__":
    agent_lib.need_root()
    sys.stdout.reconfigure(line_buffering=True)
    unittest.main(argv=sys.argv[:1], verbosity=0)
