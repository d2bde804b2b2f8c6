#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Time off the CPU, held against the kernel's own counters. Needs root and BPF, else 77.

Programs say of each of their threads how long it lived, ran and waited for a CPU by the kernel's
count (demo/blocked.c); what is left was blocked. A capture of them must say the same of every
thread, whatever else the machine does: the known figures are of that very run.
"""
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "integration"))
import agent_lib
import stratasink
import test_agent_run

AGENT, WORKLOAD = os.environ.get("STRATA_AGENT", ""), os.environ.get("STRATA_WORKLOAD", "")
GIL = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                   "demo/gil.py")
CPU, OFFCPU, RUNQ, GIL_HELD, GIL_WAIT = 1, 2, 3, 4, 5
MS = 1_000_000
SECONDS = float(os.environ.get("STRATA_SECONDS", "2"))
RATE = 499
# where each of them waits
WAITS = {"sleep": "nap", "futex": "wait_futex", "pipe": "read_pipe", "disk": "write_disk",
         "epoll": "wait_epoll", "lock-a": "fight", "lock-b": "fight"}


class Capture:
    """One capture of a command; rows by type: (tid, thread, t, value, count, stack)."""

    def __init__(self, *command, types=None, rate=RATE):
        with tempfile.TemporaryDirectory() as d:
            file = os.path.join(d, "a.strata")
            more = ["-t", types] if types else []
            r = subprocess.run([AGENT, "record", "-q", "-r", str(rate), "--capture", file, *more,
                                "--", *command], capture_output=True, text=True, timeout=200,
                               stdin=subprocess.DEVNULL)
            if r.returncode == 125 and "can sample" in r.stderr:
                print("skip: no BPF here\n" + r.stderr)
                sys.exit(agent_lib.SKIP)
            if r.returncode:
                raise AssertionError(f"{r.returncode}: {r.stderr}")
            self.out = r.stdout
            self.batches, _ = stratasink.read_capture(file)
        self.types = {s.one(1) for b in self.batches for s in b.streams + b.other_streams}

    def rows(self, kind, thread=None):
        for b in self.batches:
            for r in b.rows(kind):
                if thread is None or r["thread"] == thread:
                    yield {**r, "stack": b.stack(r["node"])}

    def sum(self, kind, thread=None):
        return sum(r["value"] for r in self.rows(kind, thread))

    def lost(self, kind):
        return sum(max(v - 1, 0) for b in self.batches for s in b.streams + b.other_streams
                   if s.one(1) == kind for v in s.column(stratasink.LOSS_WEIGHT))


def said(text):
    """{thread: {what: ns}} of NAME.WHAT=N."""
    out = {}
    for name, what, n in re.findall(r"([\w-]+)\.(\w+)=(-?\d+)", text):
        out.setdefault(name, {})[what] = int(n)
    return out


class Offcpu(unittest.TestCase):
    def test_known_waits(self):
        c = Capture(WORKLOAD, "blocked", str(int(SECONDS * 1000)))
        known = said(c.out)
        self.assertEqual(set(known), set(WAITS))
        lost = c.lost(OFFCPU) + c.lost(RUNQ)
        for name, k in known.items():
            if k["queued"] < 0:
                self.skipTest("this kernel does not count how long threads wait for a CPU")
            off, runq, cpu = (c.sum(t, name) for t in (OFFCPU, RUNQ, CPU))
            rows = list(c.rows(OFFCPU, name))
            where = sum(r["value"] for r in rows if WAITS[name] in r["stack"])
            none = sum(r["value"] for r in rows if r["stack"][0].startswith("[no stack"))
            print(f"{name}: blocked {k['blocked'] / MS:.1f} ms known, {off / MS:.1f} measured "
                  f"({100 * off / max(k['blocked'], 1) - 100:+.2f} %), queued "
                  f"{k['queued'] / MS:.1f} known, {runq / MS:.1f} measured; "
                  f"{100 * where / max(off, 1):.1f} % in {WAITS[name]}, "
                  f"{100 * none / max(off, 1):.1f} % without a stack; cpu {cpu / MS:.1f} of "
                  f"{k['cpu'] / MS:.1f} ms")
            self.assertLessEqual(off, k["blocked"] * 1.05 + 5 * MS)
            # interrupts and time that a hypervisor takes while it runs are in no counter of its own
            self.assertGreaterEqual(off + lost, k["blocked"] * 0.95 - 5 * MS - k["cpu"])
            # its life: what is blocked, queued and (by the kernel) run adds up to it
            self.assertLessEqual(off + runq + k["cpu"], k["most"] * 1.05 + 5 * MS)
            self.assertGreaterEqual(off + runq + lost + k["cpu"], k["wall"] * 0.95 - 5 * MS)
            self.assertGreater(where, 0)
            self.assertGreater(where + none, off / 2)
            self.assertTrue(all(r["stack"] for r in rows), "no time without a reason")

    def test_life_of_a_thread(self):
        """I5: cpu + offcpu + runq = wall, +- max(2 P, 4 P sqrt n)."""
        c = Capture(WORKLOAD, "blocked", str(int(SECONDS * 1000)))
        period, n_all, bad = 1e9 / RATE, 0, []
        by_tid = {}
        for kind in (CPU, OFFCPU, RUNQ):
            for r in c.rows(kind):
                if r["thread"] not in WAITS:  # it has its parent's before it gets its own
                    continue
                t = by_tid.setdefault(r["tid"], {"name": r["thread"], CPU: 0, OFFCPU: 0, RUNQ: 0,
                                                 "n": 0})
                t[kind] += r["value"]
                t["n"] += r["count"] if kind == CPU else 0
        known = said(c.out)
        for t in by_tid.values():
            n_all += 1
            wall, most = (known[t["name"]][k] for k in ("wall", "most"))
            have = t[CPU] + t[OFFCPU] + t[RUNQ]
            n = max(t["n"], known[t["name"]]["cpu"] / period)
            bound = max(2 * period, 4 * period * n ** 0.5) + 2 * MS
            print(f"I5 {t['name']}: {have / MS:.1f} of {wall / MS:.1f} ms, +-{bound / MS:.1f}; cpu "
                  f"{t[CPU] / MS:.1f} of {known[t['name']]['cpu'] / MS:.1f}")
            low = have + c.lost(OFFCPU) + c.lost(RUNQ) + c.lost(CPU)
            if have > most * 1.01 + bound or low < wall * 0.99 - bound:
                bad.append(t)
        self.assertEqual(n_all, len(WAITS))
        self.assertFalse(bad)

    def test_waits_that_do_not_end(self):
        """A thread that stays blocked is seen in each batch before it is back."""
        c = Capture("/usr/bin/python3", "-c",
                    "import os, threading, time\n"
                    "r, w = os.pipe()\n"
                    "t = threading.Thread(target=os.read, args=(r, 1)); t.start()\n"
                    "time.sleep(3.5); os.write(w, b'x'); t.join()")
        rows = [r for r in c.rows(OFFCPU) if r["stack"] and "vfs_read" in r["stack"]
                or r["stack"] and "ksys_read" in r["stack"]]
        tid = max({r["tid"] for r in rows}, key=lambda t: sum(r["value"] for r in rows
                                                              if r["tid"] == t))
        rows = [r for r in rows if r["tid"] == tid]
        total = sum(r["value"] for r in rows)
        print(f"a read of 3.5 s: {total / 1e9:.3f} s in {len(rows)} parts")
        self.assertGreater(total, 3.4e9)
        self.assertGreaterEqual(len(rows), 2, "not only when it ended")
        self.assertLess(max(r["value"] for r in rows), total)

    def test_gil(self):
        """Who waits for Python's lock, how long and for whom; who holds it, how long."""
        if not os.path.exists("/proc/self/schedstat"):
            self.skipTest("this kernel does not count how long threads wait for a CPU")
        c = Capture("/usr/bin/python3", GIL, str(int(2 * SECONDS * 1000)))
        known = said(c.out)
        tids = {t: {r["tid"] for r in c.rows(CPU, t)} for t in known}
        for name in ("fight-1", "fight-2", "tree"):
            k = known[name]
            wait, off = c.sum(GIL_WAIT, name), c.sum(OFFCPU, name)
            bare = sum(r["value"] for r in c.rows(OFFCPU, name)
                       if r["stack"][0].startswith("[no stack"))
            cut = sum(r["value"] for r in c.rows(OFFCPU, name)
                      if r["stack"][0].startswith("[truncated"))
            lost = c.lost(OFFCPU) + c.lost(CPU) + c.lost(GIL_HELD)
            named = sum(r["value"] for r in c.rows(GIL_WAIT, name)
                        if re.search(r"held by .*/\d+\]$", r["stack"][-1]))
            held, cpu = c.sum(GIL_HELD, name), c.sum(CPU, name)
            print(f"{name}: waited {k['blocked'] / MS:.1f} ms known, {wait / MS:.1f} measured "
                  f"({100 * wait / k['blocked'] - 100:+.1f} %), {bare / MS:.1f} without a stack, "
                  f"{cut / MS:.1f} cut; {100 * named / max(wait, 1):.1f} % of it for a thread with "
                  f"a name; held {k['cpu'] / MS:.1f} ms known, {held / MS:.1f} of {cpu / MS:.1f} "
                  "sampled")
            # slices of 5 ms that follow each other are one wait; all of what the lock is made of
            waits = sum(r["count"] for r in c.rows(GIL_WAIT, name))
            slices = sum(r["count"] for r in c.rows(OFFCPU, name)
                         if re.search("take_gil|drop_gil|pthread_(cond|mutex)", " ".join(r["stack"])))
            print(f"{name}: {waits} waits of {wait / MS / max(waits, 1):.1f} ms, {slices} intervals off the CPU")
            self.assertLess(waits, slices)
            self.assertLessEqual(wait, off)
            self.assertLessEqual(wait, k["blocked"] * 1.05 + 5 * MS)
            self.assertGreaterEqual(wait + bare + cut + lost,
                                    k["blocked"] * 0.95 - 5 * MS - k["cpu"] / 10)
            # the lock is read at the ticks of that very thread: all but takes and drops are its own
            self.assertLessEqual(held, cpu)
            self.assertGreaterEqual(held + lost, cpu * 0.9 - 10 / RATE * 1e9)
            for r in c.rows(GIL_WAIT, name):
                m = re.fullmatch(r"\[gil held by (.*)/(\d+)\]", r["stack"][-1])
                if m and m[1] in tids and tids[m[1]]:
                    self.assertIn(int(m[2]), tids[m[1]])
                    self.assertNotEqual(m[1], name, "nobody waits for itself")
        # what it holds the lock for is not the sums
        self.assertLess(c.sum(GIL_HELD, "hash"), c.sum(CPU, "hash") / 2 + 20 * MS)

    def test_lock_at_ticks(self):
        """Two that run nothing but Python, and one beside them: at a tick in their code the lock is
        theirs. Without it they are where it is taken and given up."""
        rate = 1999
        c = Capture("/usr/bin/python3", GIL, str(int(1.5 * SECONDS * 1000)), rate=rate)
        known, period = said(c.out), 1e9 / rate
        code = {"spin", "fight", "tree", "shares", "life"}
        n = without = 0
        for name in ("fight-1", "fight-2", "tree"):
            held = {(r["tid"], r["t"]) for r in c.rows(GIL_HELD, name)}
            ticks = [(r["stack"][-1], (r["tid"], r["t"]) in held) for r in c.rows(CPU, name)]
            taking = sum(not has and leaf not in code for leaf, has in ticks)
            n += sum(leaf in code for leaf, has in ticks)
            without += sum(leaf in code and not has for leaf, has in ticks)
            k = known[name]
            want = k["cpu"] * (1 - taking / max(len(ticks), 1))
            share = min(k["cpu"] / k["wall"], 1)
            chance = 4 * (k["wall"] * period * share * (1 - share)) ** 0.5
            got = c.sum(GIL_HELD, name)
            print(f"{name}: held {want / MS:.1f} ms known, {got / MS:.1f} sampled, {chance / MS:.1f} by "
                  f"chance; {taking} of {len(ticks)} ticks where the lock is taken or given up")
            self.assertLessEqual(got, want * 1.05 + chance + 2 * period)
            self.assertGreaterEqual(got + c.lost(CPU), want * 0.95 - chance - 2 * period)
        print(f"in their code: {without} of {n} ticks without the lock")
        self.assertGreater(n, 50)
        self.assertLessEqual(without, 0.02 * n + 4 * (0.02 * n) ** 0.5)

    def test_auto(self):
        """The agent, with its rights cut: Python with threads has these types, others no data."""
        with tempfile.TemporaryDirectory() as d:
            ingest = stratasink.Ingest()
            agent = test_agent_run.Agent(d, ingest.url, "batch.interval=1s")
            others = subprocess.Popen(["sleep", "120"])
            program = None
            try:
                agent.wait_running()
                program = subprocess.Popen(["/usr/bin/python3", GIL, "90000"],
                                           stdout=subprocess.DEVNULL)
                until = time.monotonic() + 80
                waits = 0
                while not waits and time.monotonic() < until:
                    time.sleep(0.2)
                    waits = sum(r["value"] for b in ingest.batches() for r in b.rows(GIL_WAIT)
                                if r["thread"] == "fight-1")
                self.assertGreater(waits, 0)
            finally:
                for p in (others, program):
                    if p:
                        p.kill()
                        p.wait()
                self.assertEqual(agent.stop(), 0)
                ingest.close()
            for b in ingest.batches():
                for s in b.other_streams:
                    if s.one(1) in (OFFCPU, RUNQ, GIL_WAIT):
                        self.assertTrue(s.one(5) or not s.column(26), "of a process, or no rows")
                for kind in (OFFCPU, RUNQ):
                    for r in b.rows(kind):
                        self.assertNotEqual(r["thread"], "sleep", "of one thread: no data")
            self.assertGreater(agent.status()["figures"]["agent_offcpu_stacks"], 0)

    def test_types(self):
        c = Capture(WORKLOAD, "blocked", "200", types="cpu")
        self.assertEqual(c.types, {CPU})
        c = Capture(WORKLOAD, "blocked", "200", types="offcpu,cpu")
        self.assertEqual(c.types, {CPU, OFFCPU})
        r = subprocess.run([AGENT, "record", "-t", "gil", "--", "true"], capture_output=True,
                           text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(r.returncode, 125)
        self.assertIn("gil_held, offcpu, runq, gil_wait", r.stderr)


if __name__ == "__main__":
    agent_lib.need_root()
    unittest.main(verbosity=2)
