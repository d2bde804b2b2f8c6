#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The source without privileges: as an ordinary user, empty bounding set, no new privileges.

The account is exact (weights + what is hidden or lost = the kernel's counter), the time in user mode
is right within what a fair sampler can know, both ways see threads and children, and every refusal
says what refuses. No bpf(2) is called.
"""
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import agent_lib

SECONDS = float(os.environ.get("STRATA_SECONDS", "1"))
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all",
          "--no-new-privs"] if os.geteuid() == 0 else []
PERIOD = 10101010


def paranoid():
    with open("/proc/sys/kernel/perf_event_paranoid", encoding="ascii") as f:
        return int(f.read())


class Run:
    def __init__(self, args, before=(), first=NOBODY):
        r = subprocess.run([*before, *first, agent_lib.tool("userstat"), *map(str, args)],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=90,
                           stdin=subprocess.DEVNULL)
        self.code, self.out, self.err = r.returncode, r.stdout, r.stderr
        self.leaf, self.total, self.rusage = {}, {}, {}
        for line in r.stdout.splitlines():
            word, _, rest = line.partition(" ")
            if word == "leaf":
                name, _, ns = rest.rpartition(" ")
                self.leaf[name] = self.leaf.get(name, 0) + int(ns)
            elif word in ("total", "rusage"):
                v = dict(w.split("=", 1) for w in rest.split())
                setattr(self, word, {k: int(x) if x.lstrip("-").isdigit() else x
                                     for k, x in v.items()})


class User(unittest.TestCase):
    def run_on(self, kind, *command):
        r = Run(["-k", kind, "--", *command])
        self.assertEqual(r.code, 0, r.out + r.err)
        t = r.total
        self.assertEqual(t["kind"], kind)
        self.assertEqual(t["weight_ns"] + t["lost_ns"] + t["hidden_ns"] + t["missed_ns"],
                         t["counter_ns"], "exact, in integers")
        self.assertGreater(t["samples"], 10)
        return r

    def perf(self, name, *command):
        if paranoid() > 2:
            self.skipTest(f"perf_event_paranoid is {paranoid()}")
        r = self.run_on("perf", *command)
        t, user, system = r.total, r.rusage["user_ns"], r.rusage["system_ns"]
        share = min(max(user / (user + system), 0.0), 1.0)
        # the kernel divides getrusage by its own ticks, another sample: its error comes to ours
        n = (user + system) / PERIOD
        bound = 4 * math.sqrt(2 * n * share * (1 - share)) * PERIOD + 0.02 * user + \
            2 * PERIOD * (t["tids"] + t["pids"])
        print(f"{name}: ticks {t['weight_ns'] / 1e6:.1f} ms + hidden {t['hidden_ns'] / 1e6:.1f} + "
              f"lost {t['lost_ns'] / 1e6:.1f} = counter {t['counter_ns'] / 1e6:.1f} ms; getrusage "
              f"{user / 1e6:.1f} user, {system / 1e6:.1f} system; bound {bound / 1e6:.1f}; "
              f"whole {t['end']} of {t['samples']}")
        self.assertLess(abs(t["weight_ns"] + t["lost_ns"] - user), bound)
        self.assertLess(abs(t["counter_ns"] - user - system), 0.02 * (user + system) + 20e6)
        self.assertTrue(agent_lib.nearly(t["end"], t["samples"], 0.98))
        return r

    def test_perf_user(self):
        r = self.perf("burner", agent_lib.tool("mixed"), SECONDS, 0, 0, 0)
        self.assertGreater(r.leaf["user_part"], 0.9 * r.total["weight_ns"])

    def test_same_sample_two_unwinders(self):
        """Our chain and libdw's of the same registers and copied stack; by cause where they differ."""
        if paranoid() > 2:
            self.skipTest(f"perf_event_paranoid is {paranoid()}")
        loop = ("import json\nfor i in range(10**9): json.dumps([{'a': i}] * 300); "
                "sorted(range(3000), key=lambda x: -x)")
        for name, command in (("mixed", [agent_lib.tool("mixed"), "9", "1", "0", "0"]),
                              ("CPython", ["/usr/bin/python3", "-c", loop])):
            for seconds in (2 * SECONDS, 8 * SECONDS, 24 * SECONDS):  # on a busy machine they are few
                r = Run(["-k", "perf", "-r", "400", "-b", "65024", "-L", "-s", seconds, "--", *command])
                self.assertEqual(r.code, 0, r.err)
                line = [x for x in r.out.splitlines() if x.startswith("libdw ")][0]
                v = {k: int(n) for k, n in (w.split("=") for w in line.split()[1:])}
                n = sum(v.values()) - v["dump"]
                if n > 30:
                    break
            print(f"{name}: {v['same'] / max(n, 1):.2%} of {n} chains as libdw's; {v}")
            self.assertGreater(n, 30)
            self.assertTrue(agent_lib.nearly(v["same"], n, 0.99))

    def test_perf_syscalls(self):
        r = self.perf("system calls", agent_lib.tool("mixed"), SECONDS, 300, 0, 0)
        self.assertGreater(r.total["hidden_ns"], 0.15 * r.total["counter_ns"])

    def test_perf_threads_and_children(self):
        r = self.perf("threads and children", agent_lib.tool("mixed"), SECONDS / 4, 10, 3, 2)
        self.assertEqual((r.total["pids"], r.total["tids"]), (3, 6))

    def test_perf_of_running(self):
        """-p: threads that exist, and those that come later."""
        if paranoid() > 2:
            self.skipTest(f"perf_event_paranoid is {paranoid()}")
        for seconds in (SECONDS, 5 * SECONDS, 15 * SECONDS):  # until each thread had a CPU for a while
            p = subprocess.Popen([*NOBODY, agent_lib.tool("mixed"), str(seconds + 9), "5", "3", "1"])
            while len(os.listdir(f"/proc/{p.pid}/task")) < 4:
                time.sleep(0.02)
            r = Run(["-k", "perf", "-s", seconds, "-p", p.pid])
            p.kill()
            p.wait()
            t = r.total
            self.assertEqual(r.code, 0, r.err)
            self.assertEqual(t["weight_ns"] + t["lost_ns"] + t["hidden_ns"], t["counter_ns"])
            if t["tids"] == 4:
                break
        self.assertEqual((t["pids"], t["tids"]), (1, 4))

    def stops(self, name, *command):
        r = self.run_on("stops", *command)
        t = r.total
        cpu = r.rusage["user_ns"] + r.rusage["system_ns"]
        share = t["pause_ns"] / max(t["counter_ns"], 1)
        print(f"{name}: {t['stops']} stops of {t['pause_ns'] / max(t['stops'], 1) / 1e3:.0f} us, "
              f"at most {t['pause_max_ns'] / 1e6:.2f} ms, {share:.2%} of CPU time, rate halved "
              f"{t['halved']} times; weights {t['weight_ns'] / 1e6:.1f} + missed "
              f"{t['missed_ns'] / 1e6:.1f} of {cpu / 1e6:.1f} ms")
        self.assertLess(abs(t["counter_ns"] - cpu), 0.03 * cpu + 30e6)
        # of the time between two stops, CPU time or not: with a CPU to spare 0.3 %; where the tracer
        # has to wait for one, the rate goes down
        stands = t["pause_ns"] / max(t["stops"] * 20e6, 1)
        self.assertTrue(stands <= 0.01 or t["halved"] > 0 or t["stops"] < 50, stands)
        return r

    def test_stops_user(self):
        agent_lib.not_by_chance(self.stops_user)

    def stops_user(self):
        r = self.stops("stops, burner", agent_lib.tool("mixed"), SECONDS, 0, 0, 0)
        # its weight: samples are few on a packed machine, and the first ones have much of it
        self.assertGreater(r.leaf.get("user_part", 0), 0.3 * r.total["weight_ns"])

    def test_stops_threads_and_children(self):
        r = self.stops("stops, threads and children", agent_lib.tool("mixed"), SECONDS / 4, 10, 3, 2)
        # a thread may end unread where the rate went down: its time is in missed
        self.assertEqual(r.total["pids"], 3)
        self.assertIn(r.total["tids"], (4, 5, 6))

    def test_stops_do_not_disturb(self):
        """Blocked threads are not touched: no EINTR; signals and the exit status are as ever."""
        out = subprocess.run([*NOBODY, agent_lib.tool("userstat"), "-k", "stops", "-s", "1", "--",
                              agent_lib.tool("threads"), "3", "epoll"], capture_output=True,
                             text=True, timeout=60)
        self.assertNotIn("EINTR", out.stdout)

    def test_refused(self):
        refuse = agent_lib.tool("refuse")
        mixed = ["--", agent_lib.tool("mixed"), "0.5", "0", "0", "0"]
        r = Run(mixed, before=[refuse, "perf_event_open", "--"])
        self.assertEqual(r.code, 0, r.err)
        self.assertRegex(r.out, r"(?m)^perf: perf_event_open: .*seccomp")
        self.assertEqual(r.total["kind"], "stops")
        self.assertGreater(r.total["end"], 0)
        r = Run(mixed, before=[refuse, "perf_event_open", "ptrace", "--"])
        self.assertEqual(r.code, 125)
        self.assertRegex(r.out, r"(?m)^perf: perf_event_open: .*seccomp")
        self.assertRegex(r.out, r"(?m)^ptrace: ptrace: .*seccomp")
        # each thread ends between the list and the call: no failure, but nothing is left to sample
        r = Run(["-k", "perf", *mixed], before=[refuse, "perf_event_open:gone", "--"])
        self.assertEqual(r.code, 2, r.err)
        self.assertRegex(r.err, r"process \d+ ended")
        r = Run(["-k", "choose", "-p", "4194303"])
        self.assertEqual(r.code, 2)
        self.assertIn("no process 4194303", r.err)
        if NOBODY:
            r = Run(["-s", "1", "-p", os.getpid()])
            self.assertEqual(r.code, 125)
            self.assertIn("belongs to user 0", r.err)

    def record(self, *refused):
        """strata record, as the same user; its folded stacks."""
        with tempfile.TemporaryDirectory() as d:
            os.chmod(d, 0o777)
            path = os.path.join(d, "out.folded")
            before = [agent_lib.tool("refuse"), *refused, "--"] if refused else []
            r = subprocess.run([*before, *NOBODY, os.environ["STRATA"], "record", "--no-server", "-o",
                                path, "--", agent_lib.tool("mixed"), "0.5", "10", "0", "0"],
                               capture_output=True, text=True, timeout=90, env={**os.environ, "HOME": d})
            return r, agent_lib.read(path)

    def recorded(self, refused, says):
        r, folded = self.record(*refused)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertRegex(r.stderr, f"source +user: .*{says}")
        total = sum(int(x.rsplit(" ", 1)[1]) for x in folded.splitlines())
        # whole chains, of which function is chance: on a busy machine samples are few, and the
        # first one has much of the weight
        chain = sum(int(x.rsplit(" ", 1)[1]) for x in folded.splitlines()
                    if re.search(r"main;rounds;(user_part|system_part|now)", x))
        self.assertGreater(chain, 0.6 * total, folded)

    def test_strata_record(self):
        if "STRATA" not in os.environ:
            self.skipTest("STRATA is not set")
        if not NOBODY:
            self.skipTest("needs setpriv: an ordinary user without the rights of this one")
        perf = ["perf_event_open"]
        for refused, says in (([], "kernel_hidden"), (perf, "stopped for a moment")):
            if not refused and paranoid() > 2:
                continue
            agent_lib.not_by_chance(lambda: self.recorded(refused, says))
        r, folded = self.record("perf_event_open", "ptrace")
        self.assertEqual((r.returncode, folded), (125, ""))
        for row in ("cap_bpf +impossible", "user: perf +impossible", "user: ptrace +impossible"):
            self.assertRegex(r.stderr, row)

    def test_short_children(self):
        """Stops miss programs that come and go between two of them: their time is told as lost."""
        if "STRATA" not in os.environ or not NOBODY:
            self.skipTest("STRATA is not set, or no setpriv")
        with tempfile.TemporaryDirectory() as d:
            os.chmod(d, 0o777)
            work = "i=0; while [ $i -lt 60 ]; do head -c 300000 /dev/zero | gzip; i=$((i+1)); done >/dev/null"
            path = os.path.join(d, "out.strata")
            r = subprocess.run([agent_lib.tool("refuse"), "perf_event_open", "--", *NOBODY,
                                os.environ["STRATA"], "record", "--no-server", "-o", path, "--", "/bin/sh", "-c",
                                work], capture_output=True, text=True, timeout=90,
                               env={**os.environ, "HOME": d})
            self.assertEqual(r.returncode, 0, r.stderr)
            found = agent_lib.read(path)  # its last record is JSON
        value = {k: int(re.findall(rf'"{k}":"?(\d+)', found)[-1])
                 for k in ("measured_ns", "profiled_ns", "lost_ns")}
        print(f"short children: {value}")
        self.assertGreater(value["measured_ns"], 50e6)
        self.assertGreaterEqual(value["profiled_ns"] + value["lost_ns"], value["measured_ns"])
        self.assertLess(value["profiled_ns"] + value["lost_ns"], 1.1 * value["measured_ns"] + 20e6)

    def test_no_bpf(self):
        if not shutil.which("strace"):
            self.skipTest("no strace")
        with tempfile.NamedTemporaryFile() as log:
            os.chmod(log.name, 0o666)
            r = Run(["-k", "choose", "--", agent_lib.tool("mixed"), "0.3", "0", "0", "0"],
                    before=["strace", "-f", "-e", "trace=bpf,perf_event_open", "-o", log.name])
            self.assertEqual(r.code, 0, r.err)
            text = log.read().decode()
        self.assertNotIn("bpf(", text)
        self.assertTrue(paranoid() > 2 or "perf_event_open(" in text, text)


if __name__ == "__main__":
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        print("skip: no setpriv")
        sys.exit(agent_lib.SKIP)
    unittest.main(verbosity=0)
