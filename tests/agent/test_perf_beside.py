#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""perf beside us: its distribution of call chains, unwound by DWARF from copies of the stack, against
ours, from other ticks of the same running programs. Frames are functions: (file, begin of the FDE),
so that files without symbols count too.

Two samples of one distribution overlap the less the fewer they are: a program with as many chains as
samples overlaps itself by nothing. So the overlap is taken of equal numbers, and put beside that of two
halves of our own of the same number: the quotient, `corrected`, is 100 % for two samplers that see the
same, however few samples there are. 77 without root, BPF or perf."""
import bisect
import collections
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

import agent_lib

SECONDS = float(os.environ.get("STRATA_SECONDS", "8"))
HZ = 499
FROM_KERNEL = 4  # SA_F_FROM_KERNEL of agent/bpf/cpu.h
OVERLAP, SPLITS = 0.93, 20
LOOP = """
import json, re
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
while True:
    fib(12)
    sorted([(i * 7919) % 1000 for i in range(1000)], key=lambda x: -x)
    json.dumps([{"a": i} for i in range(200)])
"""
COMMANDS = {"CPython": ["/usr/bin/python3", "-c", LOOP]} | {
    shape: [agent_lib.tool("traps"), shape, "600"] for shape in ("qsort", "realigned", "alloca")}


class Functions:
    """Where the functions of files begin, by their unwind information."""

    def __init__(self):
        self.of, self.loads = {}, {}

    def at_offset(self, path, offset):
        """perf names a place by its offset in the file."""
        if path not in self.loads:
            heads = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True,
                                   check=False).stdout
            self.loads[path] = [tuple(int(x, 16) for x in m) for m in re.findall(
                r"LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)", heads)]
        for at, address, size in self.loads[path]:
            if at <= offset < at + size:
                return self.begin(path, offset - at + address)
        return 0

    def begin(self, path, address):
        if path not in self.of:
            out = subprocess.run(["readelf", "--debug-dump=frames", path], capture_output=True,
                                 text=True, check=False).stdout
            self.of[path] = sorted({int(a, 16) for a in re.findall(r" FDE .* pc=([0-9a-f]+)\.\.", out)})
        starts = self.of[path]
        i = bisect.bisect_right(starts, address) - 1
        return starts[i] if i >= 0 else 0


def files_of(pid):
    """Mapped files by their last name."""
    paths = {l.split(None, 5)[5] for l in agent_lib.read(f"/proc/{pid}/maps").splitlines()
             if len(l.split(None, 5)) == 6}
    return {os.path.basename(p): p for p in paths if p.startswith("/")}


def overlap(a, b):
    """Of two lists of equal length."""
    a, b = collections.Counter(a), collections.Counter(b)
    return sum(min(a[k], b[k]) for k in a.keys() & b.keys()) / max(a.total(), 1)


def overlaps(mine, theirs):
    """(number of samples compared, overlap of two halves of mine, of a half of mine with theirs): the
    mean of many ways to take them."""
    rng, n = random.Random(1), min(len(mine) // 2, len(theirs))
    own, other = [], []
    for _ in range(SPLITS):
        drawn = rng.sample(mine, 2 * n)
        own.append(overlap(drawn[:n], drawn[n:]))
        other.append(overlap(drawn[:n], rng.sample(theirs, n)))
    return n, statistics.fmean(own), statistics.fmean(other)


class Perf(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="strata-perf-")
        self.addCleanup(self.folder.cleanup)
        self.functions = Functions()

    def ours(self, text, files):
        """Chains of one process, leaf first, of ticks in user mode; in the order of time."""
        chains = []
        for line in text:
            words = line.split()
            given = dict(w.split("=", 1) for w in words if "=" in w)
            if given["stop"] not in ("end", "kthread") or int(given["flags"]) & FROM_KERNEL:
                continue
            frames = [w for w in words if "=" not in w]
            chain = []
            for f in frames:
                name, _, address = f.rpartition("+")
                path = files.get(name)
                chain.append((name, self.functions.begin(path, int(address, 16))) if path
                             else ("?", 0))
            chains.append(tuple(chain))
        return chains

    def perf(self, data, pid):
        out = subprocess.run(["perf", "script", "-i", data, "--no-inline", "-F", "pid,ip,sym,dso",
                              "--pid", str(pid)], capture_output=True, text=True, check=False).stdout
        chains = []
        for block in out.split("\n\n"):
            found = re.findall(r"^\s+([0-9a-f]+) .*\((.*)\)$", block, re.M)
            if found:
                chains.append(tuple(
                    (os.path.basename(path), self.functions.at_offset(path, int(at, 16)))
                    if path.startswith("/") else ("?", 0) for at, path in found))
        return chains

    def test_distributions(self):
        procs = {n: subprocess.Popen(c) for n, c in COMMANDS.items()}
        for p in procs.values():
            self.addCleanup(lambda p=p: (p.kill(), p.wait()))
        time.sleep(1)
        if any(p.poll() is not None for p in procs.values()):
            self.skipTest("a program does not run here")
        data = os.path.join(self.folder.name, "perf.data")
        pids = ",".join(str(p.pid) for p in procs.values())
        stat = agent_lib.Stackstat([p.pid for p in procs.values()], "-p", 10 ** 9 // HZ, "-s",
                                   SECONDS + 3, "-w", 1.5, "-n", 100000)
        time.sleep(1.5)
        perf = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock:u", "-F", str(HZ),
                                 "--call-graph", "dwarf,16384", "-p", pids, "-o", data],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(SECONDS)
        perf.send_signal(signal.SIGINT)
        perf.wait()
        files = {n: files_of(p.pid) for n, p in procs.items()}
        r = stat.finish(timeout=150)
        tid = {p.pid: n for n, p in procs.items()}  # each has one thread
        lines = collections.defaultdict(list)
        for s in r.stacks:
            lines[tid.get(int(re.search(r"tid=(\d+)", s).group(1)))].append(s)
        for name, p in procs.items():
            with self.subTest(name):
                mine = self.ours(lines[name], files[name])
                theirs = self.perf(data, p.pid)
                self.judge(name, mine, theirs)

    def judge(self, name, mine, theirs):
        a, b = collections.Counter(mine), collections.Counter(theirs)
        n, chance, share = overlaps(mine, theirs)
        corrected = share / max(chance, 1e-9)
        # what one has 2 % of the other has too, where a dozen of it were to be expected
        alone = [(who, c, n / x.total()) for who, x, y in (("we", a, b), ("perf", b, a))
                 for c, n in x.items()
                 if c not in y and n >= 0.02 * x.total() and n / x.total() * y.total() >= 12]
        print(f"{name}: {len(mine)} and {len(theirs)} samples, {len(a)} and {len(b)} chains; of {n} "
              f"each overlap {share:.1%}, two halves of our own {chance:.1%}, corrected {corrected:.1%}; of "
              f"one side alone {len(alone)}")
        self.assertGreater(min(len(mine), len(theirs)), 50, "too few samples to say anything")
        self.assertGreaterEqual(corrected, OVERLAP - 0.5 / n ** 0.5)  # chance of so few
        self.assertEqual(alone, [])


if __name__ == "__main__":
    agent_lib.need_root()
    if not shutil.which("perf") or not shutil.which("readelf"):
        print("skip: no perf here")
        sys.exit(agent_lib.SKIP)
    unittest.main()
