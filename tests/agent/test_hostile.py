#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a program may do to whoever watches it (workloads/hostile.c): a process with very many
mappings, damaged files, births without end, a file replaced while it runs, a crowd with as many
mappings as may be held.

The collector lives, its account stays exact, its memory and CPU time keep their bounds, what it cannot
know is counted by reason, and a decent program beside has whole stacks. Prints the figures.
STRATA_LONG=1: a million mappings, 800 processes with 300 each, 60 s.
"""
import os
import random
import shutil
import subprocess
import tempfile
import time
import unittest

import agent_lib

LONG = os.environ.get("STRATA_LONG") == "1"
PERIOD = 2004008
MAX_MAPS = "/proc/sys/vm/max_map_count"


def memory_row(cpus):
    """MiB that the agent may use, maps included, on a machine with so many CPUs."""
    return 120 + 0.3 * cpus


def anon_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return next(int(l.split()[1]) for l in f if l.startswith("RssAnon:")) / 1024


class Hostile(unittest.TestCase):
    def start(self, *command):
        p = subprocess.Popen([agent_lib.tool(command[0]), *map(str, command[1:])], text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

        def end():
            p.kill()
            p.communicate()

        self.addCleanup(end)
        return p

    def watch(self, pids, seconds, *more, rows=1):
        """stackstat on these; its result, the growth of its memory in the second half, its CPU %. It
        must stay below so many rows of memory at any time."""
        stat = agent_lib.Stackstat(pids, "-p", PERIOD, "-s", 3600, *(more or ("-w", 2)))
        self.addCleanup(stat.proc.kill)
        begin, used = time.monotonic(), []
        while time.monotonic() < begin + seconds + 2:
            time.sleep(0.25)
            used.append(anon_mib(stat.proc.pid))
        stat.proc.terminate()
        r = stat.finish()
        wall = time.monotonic() - begin
        r.anon, r.settled = max(used), used[-1]
        r.growth = used[-1] - used[len(used) // 2]
        r.cpu = 100 * r.tables["cpu_ns"] / 1e9 / wall
        print(f"memory {r.anon:.1f} MiB and maps {r.tables['map_bytes'] / 2 ** 20:.1f} MiB, row "
              f"{memory_row(os.cpu_count()):.1f} MiB; CPU {r.cpu:.1f} % of one, building tables too")
        self.assertEqual(r.code, 0, r.text)
        self.assertEqual(r.total["identity"], "ok", r.text)
        self.assertLess(r.anon + r.tables["map_bytes"] / 2 ** 20, rows * memory_row(os.cpu_count()))
        return r

    def decent(self, p):
        """The program beside: all stacks whole."""
        print(f"beside: n={p['n']} {agent_lib.stop_text(p)}")
        self.assertGreater(p["n"], 5)
        self.assertTrue(agent_lib.nearly(p["n"] - agent_lib.incomplete(p), p["n"], 0.99))

    def test_mappings(self):
        n = 1_000_000 if LONG else 100_000
        with open(MAX_MAPS, encoding="ascii") as f:
            before = f.read()

        def set_max(text):
            with open(MAX_MAPS, "w", encoding="ascii") as f:
                f.write(text)

        set_max(str(max(int(before), n + 1000)))
        self.addCleanup(set_max, before)
        beside = self.start("traps", "qsort", 600)
        bad = self.start("hostile", "maps", n, 600)
        if LONG:  # watched while it makes them, too
            r = self.watch([beside.pid, bad.pid], 30)
        print(bad.stdout.readline().strip())
        with open(f"/proc/{bad.pid}/maps", "rb") as f:
            print("lines of its maps:", sum(1 for _ in f))
        r = self.watch([beside.pid, bad.pid], 30 if LONG else 6)
        p = r.process[bad.pid]
        print(f"the one with the mappings: n={p['n']} {agent_lib.stop_text(p)}")
        self.assertGreater(p["n"], 5)
        self.decent(r.process[beside.pid])
        self.assertLess(r.cpu, 40)
        self.assertEqual(r.tables["no_room"], 0)

    def test_damaged_files(self):
        seed = random.randrange(1 << 31) if LONG else 20261130
        bad = self.start("hostile", "elf", agent_lib.tool("victim.so"), 500, seed, 600)
        print(bad.stdout.readline().strip(), "seed", seed)
        beside = self.start("traps", "qsort", 600)
        for seconds in (20,) if LONG else (8, 30, 60):
            r = self.watch([bad.pid, beside.pid], seconds, "-w", 0)
            if r.tables["failed"]:
                break  # on a busy machine few are read in 8 s
        p = r.process[bad.pid]
        print(f"damaged: n={p['n']} {agent_lib.stop_text(p)}; tables built {r.tables['built']}, failed "
              f"{r.tables['failed']}:", *(l for l in r.text.splitlines() if l.startswith("failed ")))
        self.assertGreater(p["n"], 5)
        self.assertGreater(r.tables["failed"], 0)
        self.assertGreater(p["end"], 0, "some are damaged where it does not matter")
        # it maps and unmaps all the time: the busier the machine, the more ticks come before we hear
        self.assertTrue(agent_lib.nearly(p["n"] - p["nomap"] - p["noproc"], p["n"], 0.5))
        b = r.process[beside.pid]  # from the first tick on: the C library's table comes first
        print(f"beside: n={b['n']} {agent_lib.stop_text(b)}")
        self.assertGreater(b["end"], 0.5 * b["n"])

    def test_crowd(self):
        """Many processes with 300 mapped files each: all are followed, in the memory of the row."""
        n, files = 800 if LONG else 100, []
        for folder, _, names in os.walk("/usr/lib/x86_64-linux-gnu"):
            files += [os.path.join(folder, f) for f in names if ".so" in f]
        files = sorted({os.path.realpath(f) for f in files if os.path.isfile(f)})[:300]
        if len(files) < 300:
            self.skipTest("too few libraries here")
        crowd = self.start("hostile", "crowd", n, 600, *files)
        beside = self.start("traps", "qsort", 600)
        print(crowd.stdout.readline().strip())
        # all are read twice at the start; a service manager's limit is two rows
        r = self.watch([beside.pid, crowd.pid], 30 if LONG else 8, rows=2)
        settled = r.settled + r.tables["map_bytes"] / 2 ** 20
        print(f"{n} x {len(files)} mappings: {r.tables['procs']} processes and {r.tables['mapents']} "
              f"mappings followed, tables {r.tables['bytes'] / 2 ** 20:.1f} MiB of {r.tables['built']} "
              f"files, no room {r.tables['no_room']}; memory settles at {settled:.1f} MiB")
        self.assertLess(settled, memory_row(os.cpu_count()))
        self.assertGreater(r.tables["procs"], n)
        self.assertGreater(r.tables["mapents"], 290 * n)
        self.assertEqual(r.tables["no_room"], 0)
        self.decent(r.process[beside.pid])

    def births(self, seconds):
        """Two that make processes, watched; the growth of the watcher's memory in the second half"""
        beside = self.start("traps", "qsort", 600)
        makers = [self.start("hostile", "births", seconds + 1) for _ in range(2)]
        r = self.watch([beside.pid], seconds)
        born = [m.stdout.readline().split() for m in makers]
        beside.kill()
        print("born per second:", sum(int(b[3]) for b in born), "published at the end:",
              r.tables["procs"], f"growth of the second half {r.growth:.1f} MiB")
        self.decent(r.process[beside.pid])
        print("without a place in the table of processes:", r.tables["no_room"])
        return r.growth

    def test_births(self):
        # a leak shows each time; what is still being read of the machine's other programs, which
        # others may start, once: in the half that it falls into, and as a peak
        agent_lib.not_by_chance(lambda: self.assertLess(self.births(60 if LONG else 8), 12), 6)

    def test_replaced(self):
        """Another file takes the name of the one that runs: stacks are of the one that runs."""
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "a\n\x01;b\udcff")
            shutil.copy(agent_lib.tool("corners"), path)
            p = subprocess.Popen([path, "noreturn", "600"])
            try:
                time.sleep(0.3)
                shutil.copy(agent_lib.tool("traps"), path + ".new")
                os.rename(path + ".new", path)
                r = agent_lib.Stackstat([p.pid], "-p", PERIOD, "-s", 2, "-w", 1).finish()
            finally:
                p.kill()
                p.wait()
        p = r.process[p.pid]
        print(f"replaced: n={p['n']} words={p['words'] / max(p['n'], 1):.2f} {agent_lib.stop_text(p)}")
        self.assertGreater(p["n"], 5)
        self.assertTrue(agent_lib.nearly(p["end"], p["n"], 0.995))
        self.assertLess(abs(p["words"] / p["n"] - 10), 0.3 + 20 / p["n"])

    def test_sizes(self):
        """Maps as on larger machines, beside the row of the agent's memory for them."""
        for cpus in (16, 64, 224):
            r = agent_lib.Stackstat([], "-p", 10101010, "-s", 0.2, "-N", cpus).finish()
            maps = r.tables["map_bytes"] - r.tables["bytes"]
            print(f"{cpus} CPUs: maps {maps / 2 ** 20:.1f} MiB + tables up to 64 MiB; row "
                  f"{memory_row(cpus):.1f} MiB")
            self.assertLess(maps / 2 ** 20 + 64, memory_row(cpus))


if __name__ == "__main__":
    agent_lib.need_root()
    unittest.main(verbosity=0)
