#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The agent and itself: it lowers its rate and says so, with sums that stay exact; killed, it leaves
nothing in the kernel, its spool is sent by the next run, and what is gone is said. Needs root and
BPF, else 77."""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stratasink as sink
import test_agent_run as run

LONG = os.environ.get("STRATA_LONG") == "1"
HOOKED = os.path.join(os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent"), "agent_hooked")


def events(batches, kind):
    return [dict(w.split("=", 1) for w in text.split() if "=" in w)
            for b in batches for k, text in b.events if k == kind]


def held(pid):
    """BPF objects that a process holds: kind -> ids."""
    out = {"prog": set(), "map": set(), "link": set()}
    for name in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as f:
                text = f.read()
        except OSError:
            continue
        for kind, ids in out.items():
            found = re.search(rf"^{kind}_id:\s+(\d+)", text, re.M)
            if found:
                ids.add(int(found.group(1)))
    return out


def left(objects):
    """Those that the kernel still has."""
    out = []
    for kind, ids in objects.items():
        done = subprocess.run(["bpftool", "-j", kind, "show"], capture_output=True, text=True,
                              check=True)
        out += [(kind, o["id"]) for o in json.loads(done.stdout or "[]") if o["id"] in ids]
    return out


class Care(run.Run):
    """Not the tests of that class again, only what they stand on."""

    def start(self, url, *settings, **more):
        a = run.Agent(self.folder.name, url, *settings, **more)
        self.closing.append(lambda: a.process.poll() is None and a.kill())
        a.wait_running()
        return a

    @staticmethod
    def prefer(agent):
        """Before whatever else runs: a drain that comes late is not what is asked about."""
        for tid in os.listdir(f"/proc/{agent.process.pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(tid), -19)

    def periods(self, batches):
        return {run.sink.signed(s.one(14)) for b in batches for s in b.streams if s.one(14)}

    def test_rate_falls_and_returns(self):
        """A ring that is too small for 999 Hz: 99 Hz is enough for it. Every change is said with its
        figure, streams have their own period, and all sums hold through the changes. Two burners have
        two CPUs at least: 100 records of 140 bytes between two drains, and ten of them."""
        server = self.sink()
        for _ in range(2):
            self.burner().go()
        agent = self.start(server.url, "cpu.period_ns=1001001ns", "cpu.ring=8KiB",
                           "limits.memory=1GiB")
        self.prefer(agent)

        def returned():
            said = [(e["cause"], e["period_ns"]) for e in events(server.batches(), "restraint")
                    if e["source"] == "cpu"]
            return ("recovered", "1001001") in said and {c for c, _ in said} >= {"ring_full"}

        run.wait_for(returned, "down and up again", 300)
        run.wait_for(lambda: {1001001, 10101010} <= self.periods(server.batches()), "both periods")
        self.assertEqual(agent.stop(), 0)
        status, batches = agent.status(), server.batches()
        self.check_books(status, batches)
        said = events(batches, "restraint")
        for e in said:
            print("restraint", *(f"{k}={v}" for k, v in e.items()))
        self.assertEqual(status["figures"]["agent_restraint_steps"], len(said))
        said = [e for e in said if e["source"] == "cpu"]
        down = [e for e in said if e["cause"] == "ring_full"]
        back = [e for e in said if e["cause"] == "recovered"]
        self.assertGreaterEqual(len(down), 1)
        self.assertGreaterEqual(len(back), 1)
        for before, after in zip(said, said[1:]):
            self.assertEqual(before["period_ns"], after["was_ns"])
        self.assertEqual(down[0]["period_ns"], "10101010")
        self.assertIn("1001001", [e["period_ns"] for e in back])
        # of one rate each: a stream's rows weigh its period, but for the ticks of the change itself
        for a, b in zip(batches, batches[1:]):
            self.assertEqual(a.covers()[-1][1], b.covers()[0][0])

    def test_limits(self):
        """A budget of 1 % of a CPU and 24 MiB are below what it needs here, where all stacks are deep. The
        rate falls, step by step; caches shrink, then no table is added, then none is built; the agent
        goes on."""
        server = self.sink()
        for _ in range(2):
            deep = subprocess.Popen([os.path.join(os.path.dirname(run.BURN), "traps"), "deep", "900"])
            self.closing.append(lambda p=deep: (p.kill(), p.wait()))
        agent = self.start(server.url, "cpu.period_ns=1001001ns", "limits.memory=24MiB",
                           "limits.cpu_percent_per_16_cpus=1", "cpu.ring=64MiB")

        def restrained():
            said = events(server.batches(), "restraint")
            return [e for e in said if e["source"] == "cpu"] and \
                [e for e in said if e.get("now") == "tables_refused"]

        run.wait_for(restrained, "both limits felt", 200)
        self.assertEqual(agent.stop(), 0)
        status, batches = agent.status(), server.batches()
        self.check_books(status, batches)
        said = events(batches, "restraint")
        for e in said:
            print("restraint", *(f"{k}={v}" for k, v in e.items()))
        rate = [e for e in said if e["source"] == "cpu"]
        memory = [e for e in said if e["source"] == "memory"]
        self.assertGreaterEqual(len(rate), 1)
        self.assertEqual((rate[0]["cause"], rate[0]["was_ns"]), ("cpu", "1001001"))
        self.assertGreater(int(rate[0]["cpu_ns_per_s"]), int(rate[0]["budget_ns_per_s"]))
        self.assertEqual(rate[0]["budget_ns_per_s"],
                         str(10_000_000 * -(-os.sysconf("SC_NPROCESSORS_ONLN") // 16)))
        self.assertLessEqual(self.periods(batches), {1001001, 10101010, 20408163, 52631578})
        self.assertEqual([e["now"] for e in memory],
                         ["symbols_shrink", "tables_evicted", "tables_refused"])

    def test_kills(self):
        """SIGKILL at a random moment: no program, map or link stays, the profiled program runs on, the
        next run sends what was spooled and says what is not covered."""
        if not any(os.access(os.path.join(p, "bpftool"), os.X_OK)
                   for p in os.environ["PATH"].split(":") + ["/usr/sbin"]):
            self.skipTest("no bpftool")
        os.environ["PATH"] += ":/usr/sbin"
        rng = random.Random(20261130)
        away = [False]
        server = self.sink(lambda b, n: (503, {}, sink.error("starting")) if away[0] else None)
        burner = self.burner()
        burner.go()
        rounds = 100 if LONG else 10
        n = {"prog": 0, "map": 0, "link": 0}
        for i in range(rounds):
            away[0] = i % 3 == 0
            used = burner.clock_ns()
            agent = self.start(server.url)
            time.sleep(rng.random() * 3)
            objects = held(agent.process.pid)
            agent.kill()
            run.wait_for(lambda: left(objects) == [], "an empty kernel")
            for kind, ids in objects.items():
                n[kind] += len(ids)
            self.assertIsNone(burner.process.poll())
            run.wait_for(lambda: burner.clock_ns() > used, "the burner's time")
        away[0] = False
        agent = self.start(server.url)
        # one of its own: all that it found is sent before
        run.wait_for(lambda: agent.figure("batches_inherited") + 1 <= agent.figure("batches_sent"),
                     "what older runs left")
        f = agent.status()["figures"]
        self.assertEqual(agent.stop(), 0)
        batches = server.batches()
        runs = {}
        for b in batches:
            runs.setdefault(b.boot, []).append(b)
        gaps = [e for e in events(batches, "restart") if "not_covered_ns" in e]
        killed = [e for e in events(batches, "restart") if e["before"] == "killed"]
        print(f"{rounds} kills: {n['prog']} programs, {n['map']} maps, {n['link']} links held, none "
              f"left; {f['agent_batches_inherited']} batches of older runs found by the last one; "
              f"{len(runs)} runs arrived, {len(gaps)} say what is not covered, "
              f"{sum(int(e['not_covered_ns']) for e in gaps) / 1e9:.1f} s")
        self.assertGreater(min(n["prog"], n["map"]), 0)
        for seqs in ([b.seq for b in bs] for bs in runs.values()):
            self.assertEqual(sorted(seqs), list(range(1, len(seqs) + 1)))
        self.assertGreaterEqual(len(killed), min(len(runs) - 1, rounds // 2))
        # the coverage has these gaps: no stream covers the time between two runs
        spans = sorted((bs[0].covers()[0][0], max(b.covers()[-1][1] for b in bs))
                       for bs in runs.values())
        for (_, t1), (t0, _) in zip(spans, spans[1:]):
            self.assertGreater(t0, t1)
        ends = {t1 for _, t1 in spans}
        self.assertGreaterEqual(sum(int(e["not_covered_from_ns"]) in ends for e in gaps),
                                len(gaps) // 2)
        self.assertEqual(sum(b.lost("spool_drop")[0] for b in batches), 0)

    def test_clocks(self):
        """The wall clock is set forth and back by 30 s and by 5 ms, the machine sleeps for an hour: each
        ends a batch and is said, no time is covered that was not there, all sums hold."""
        server = self.sink()
        self.burner().go()
        begun = time.time_ns()
        agent = self.start(server.url, program=HOOKED, STRATA_TEST_CLOCK="5000:set:30000000000 "
                           "3000:sleep:3600000000000 3000:set:5000000 2000:set:-30000000000")
        run.wait_for(lambda: len(events(server.batches(), "clock_step")) >= 2, "both steps")
        self.assertEqual(agent.stop(), 0)
        took = time.monotonic() - agent.begin
        status, batches = agent.status(), server.batches()
        self.check_books(status, batches)
        steps = [int(e["by_ns"]) for e in events(batches, "clock_step")]
        slept = [int(e["dur_ns"]) for e in events(batches, "suspend")]
        print(f"steps {steps}, slept {slept}")
        self.assertEqual([round(s / 1e9) for s in steps], [30, -30])
        self.assertEqual([round(s / 1e9) for s in slept], [3600])
        spans = [c for b in batches for c in b.covers()]
        for t0, t1 in spans:
            self.assertLess(t0, t1)
        covered = sum(t1 - t0 for t0, t1 in spans)
        wall = spans[-1][1] - spans[0][0]
        # where starting took longer than the first step waits, nothing before it is covered
        first = [30] if spans[0][0] < begun + 30 * 10**9 else []
        self.assertGreater(wall - covered, (3560 + sum(first)) * 10**9)  # the hour is a gap
        self.assertLess(covered, (took + 1) * 10**9)
        jumps = [round((b[0] - a[1]) / 1e9) for a, b in zip(spans, spans[1:])]
        self.assertEqual([j for j in jumps if j], [*first, 3600, -30])
        for b in batches:
            for s in b.streams:
                t0, t1 = sink.signed(s.one(7)), sink.signed(s.one(8))
                self.assertLessEqual(t1 - t0, 15 * 10**9)

    def test_clean_restart(self):
        """Stopped while the server is away: nothing is lost, the next run sends it."""
        agent = self.start("http://127.0.0.1:9")
        run.wait_for(lambda: agent.figure("batches_spooled") >= 2, "two batches")
        self.assertEqual(agent.stop(), 0)
        f = agent.status()["figures"]
        self.assertGreaterEqual(f["agent_batches_spooled"], 3)
        server = self.sink()
        again = self.start(server.url)
        run.wait_for(lambda: len(events(server.batches(), "restart")) >= 2, "both runs")
        self.assertEqual(again.stop(), 0)
        batches = server.batches()
        first = [b for b in batches if b.boot == min(batches, key=lambda b: b.covers()[0][0]).boot]
        self.assertEqual(sum(b.weight() for b in first), f["agent_weight"])
        self.assertEqual(sorted(e["before"] for e in events(batches, "restart")),
                         ["first", "stopped"])
        done = subprocess.run([run.AGENT, "--state-dir", self.folder.name, "status"],
                              capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("state              stopped", "identities         I1 to I4 exact",
                      "rate               99.0 Hz", "agent_answer_200"):
            self.assertIn(words, done.stdout)


# the tests of the class it stands on run elsewhere
for name in [n for n in dir(run.Run) if n.startswith("test_")]:
    setattr(Care, name, None)
del run.Run


def main():
    if os.geteuid() != 0:
        print("skip: needs root (BPF programs, ticks of every CPU)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([run.AGENT, "check", "--state-dir", folder], capture_output=True,
                              text=True, timeout=60, check=False)
    if done.returncode in (2, 77):
        print("skip:", done.stdout.strip().splitlines()[-1])
        return 77
    unittest.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
