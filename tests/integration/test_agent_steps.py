#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Steps from programs in C and Python, through the probe, the agent and stratad. Needs root and
BPF, else 77.

A program says what it did and when; /steps must answer the same: numbers and threads exactly,
instants between the clock readings around the call, give or take 20 us.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_agent_run import PERIOD, Agent, Stratad, main

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOOLS = os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent")
STEPS = os.path.abspath(os.path.join(TOOLS, "steps"))
STEPS_PY = os.path.join(ROOT, "tests/agent/workloads/steps.py")
SDK = os.path.join(ROOT, "sdk/python")
TOLERANCE_NS = 20_000


class Program:
    """A marking program: ready(), go(), then truth: [(name, number, tid, begin, end)]."""

    def __init__(self, *command, service, **env):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "STRATA_SERVICE": service, "STRATA_SDK": SDK, **env})
        self.pid = self.process.pid
        self.truth, self.counts, self.other = [], None, []
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise RuntimeError(f"{command}: {line!r}")

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def read(self):
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "done":
                return self
            if words[0] == "counts":
                self.counts = dict(zip(("probe", "sent", "dropped", "errors"), map(int, words[1:])))
            elif len(words) == 7:
                n = list(map(int, words[1:]))
                self.truth.append((words[0], n[0], n[1], (n[2], n[3]), (n[4], n[5])))
            else:
                self.other.append(line.strip())
        raise RuntimeError("the program ended early")

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(timeout=120)
        self.process.stdout.close()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Steps(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="strata-steps-")
        self.begin = time.time_ns()
        self.server = Stratad(self.folder.name)
        self.agent = None
        self.start_agent()
        self.programs = []

    def tearDown(self):
        for p in self.programs:
            p.kill()
            p.process.stdout.close()
        if self.agent.process.poll() is None:
            self.agent.kill()
        self.server.stop()
        self.folder.cleanup()

    def start_agent(self, *settings):
        self.agent = Agent(self.folder.name, self.server.url, *settings)
        self.agent.wait_running()

    def figure(self, name):
        return self.agent.status()["figures"]["agent_" + name]

    def wait(self, what, seconds=120):
        end = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), end, "it does not come")
            time.sleep(0.05)

    def program(self, *command, service, **env):
        before = self.figure("step_probes")
        p = Program(*command, service=service, **env)
        self.programs.append(p)
        self.wait(lambda: self.figure("step_probes") > before)
        return p

    def answered(self, service, n):
        """Rows of /steps when there are n: (name, number, tid, t0, t1, labels, target)."""
        rows = []

        def ask():
            span = {"from": f"{self.begin - 10**9}ns", "to": f"{time.time_ns() + 10**9}ns"}
            a = self.server.get("steps", q='cpu{service="%s"}' % service, limit=10000,
                                numbers="string", **span)
            row, base, scale = a["row"], int(a["base_ns"]), int(a["scale_ns"])
            rows[:] = [(a["names"][row["name"][i]]["name"], int(row["number"][i]), row["tid"][i],
                        base + int(row["start"][i]) * scale,
                        base + int(row["start"][i]) * scale + int(row["dur"][i]) * scale,
                        row["labels"][i], row["target"][i]) for i in range(a["n"])]
            return len(rows) >= n
        self.wait(ask)
        return rows

    def compare(self, what, truth, rows, threads=True):
        """Each step once, as it was; the worst distance from the bracket is printed."""
        if not threads:
            truth = self.as_outside(truth, rows)
        self.assertEqual(sorted(t[:3] for t in truth), sorted(r[:3] for r in rows))
        found = {(*r[:3], k): r for r, k in self.nth(rows)}
        off = sorted(d for t, k in self.nth(truth) for d in self.outside(t, found[(*t[:3], k)]))
        print(f"{what}: {len(rows)} steps, worst {off[-1] / 1000:.1f} us outside its bracket")
        self.assertLessEqual(off[len(off) * 99 // 100], TOLERANCE_NS)
        # between two readings of the clocks a thread may wait for its CPU, or the machine stand still
        self.assertLessEqual(off[-1], 100_000_000)

    @staticmethod
    def outside(t, r):
        """How far begin and end of a row lie outside the brackets of what was marked."""
        return [max(before - at, at - after, 0) for at, (before, after) in ((r[3], t[3]), (r[4], t[4]))]

    def as_outside(self, truth, rows):
        """What was marked, with thread ids as they are outside the pid namespace: a thread there is the one that
        marked the same steps closest to the same times. Threads mark steps of one name and number within
        microseconds of each other, so that single steps cannot be told apart by their order."""
        def by_thread(items):
            threads = {}
            for i, k in self.nth(items):
                threads.setdefault(i[2], {})[(i[0], i[1], k)] = i
            return threads
        inside, seen = by_thread(truth), by_thread(rows)

        def distance(tid, other):
            return sum(sum(self.outside(t, seen[other][key])) for key, t in inside[tid].items())
        tids = {tid: min((o for o in seen if seen[o].keys() == inside[tid].keys()),
                         key=lambda o, tid=tid: distance(tid, o), default=0) for tid in inside}
        self.assertEqual(len(set(tids.values())), len(seen), f"threads {tids} of {sorted(seen)}")
        return [(*t[:2], tids[t[2]], *t[3:]) for t in truth]

    @staticmethod
    def nth(items):
        seen = {}
        for i in sorted(items, key=lambda x: x[3][0] if isinstance(x[3], tuple) else x[3]):
            seen[i[:3]] = seen.get(i[:3], 0) + 1
            yield i, seen[i[:3]]

    def check_all(self, what, p, service, threads=True):
        p.go()
        p.read()
        self.assertEqual(len(p.truth), 20 + 2 * 20 + 8 * 30 + 1)
        rows = self.answered(service, len(p.truth))
        self.compare(what, p.truth, rows, threads)
        self.assertEqual(len({r[6] for r in rows}), 1)
        epoch = next(r for r in rows if r[0] == "epoch")
        self.assertEqual({k: epoch[5].get(k) for k in ("phase", "kind")},
                         {"phase": "warm", "kind": "x"})
        several = {r[5].get("thread") for r in rows if r[0] == "threaded"}
        self.assertEqual(len(several), 8)  # None for the first thread
        self.assertEqual({r[5].get("thread") for r in rows if r[0] == "mark"}, {None})
        return rows

    def no_drops(self, p):
        p.end()
        windows = self.figure("windows")
        self.wait(lambda: self.figure("windows") > windows + 1)
        f = self.agent.status()["figures"]
        self.assertEqual({k: v for k, v in f.items() if k.startswith("agent_steps_dropped_") and v},
                         {})

    def test_c(self):
        """Marks, begin and end, nested, 8 threads."""
        p = self.program(STEPS, "all", service="steps-c")
        self.check_all("C", p, "steps-c")
        self.assertEqual(p.counts["dropped"] + p.counts["errors"] + p.counts["sent"], 0)
        self.no_drops(p)

    def test_python(self):
        """The same from a library in memory."""
        p = self.program(sys.executable, STEPS_PY, service="steps-py")
        with open(f"/proc/{p.pid}/maps", encoding="utf-8") as maps:
            self.assertIn("memfd:strata_step", maps.read())
        self.check_all("Python, memfd", p, "steps-py")
        self.assertEqual(p.counts["errors"], 0)
        self.no_drops(p)

    def test_container(self):
        """In mount and pid namespaces of its own, from a file that no path outside reaches."""
        place = os.path.join(self.folder.name, "inside")
        os.mkdir(place)
        shutil.copy(STEPS, os.path.join(self.folder.name, "program"))
        script = (f"mount -t tmpfs none {place} && cp {self.folder.name}/program {place}/steps && "
                  f"exec {place}/steps all")
        p = self.program("unshare", "--mount", "--pid", "--fork", "--kill-child",
                         "--mount-proc", "sh", "-c", script,
                         service="steps-ns")
        self.assertFalse(os.path.exists(os.path.join(place, "steps")))
        rows = self.check_all("mount and pid namespace", p, "steps-ns", threads=False)
        inside = {t[2] for t in p.truth if t[0] == "mark"}
        self.assertEqual(inside, {1})  # as the program sees itself
        outside = next(r[2] for r in rows if r[0] == "mark")  # as the host does
        with open(f"/proc/{outside}/status", encoding="utf-8") as status:
            nspid = next(line.split() for line in status if line.startswith("NSpid:"))
        self.assertEqual(nspid[1:], [str(outside), "1"])
        p.end()

    def test_restart(self):
        """The agent is killed and comes again: every step is what it was, those in between lack."""
        p = self.program(STEPS, "run", service="steps-run")
        lines = []  # read all the time: a pipe that is full stops the program
        reading = threading.Thread(target=lambda: lines.extend(p.process.stdout))
        reading.start()
        p.go()
        self.answered("steps-run", 1)
        time.sleep(1)
        self.agent.kill()
        down = time.time_ns()
        time.sleep(0.5)
        self.start_agent()
        self.wait(lambda: self.figure("step_probes") > 0)
        up = time.time_ns()
        for _ in range(3):  # a figure may be as old as the last status
            calls = self.figure("step_calls")
            self.wait(lambda: self.figure("step_calls") > calls + 100)
        p.process.stdin.close()
        p.process.wait()
        reading.join()
        for line in lines:
            n = line.split()
            if len(n) == 7:
                v = list(map(int, n[1:]))
                p.truth.append((n[0], v[0], v[1], (v[2], v[3]), (v[4], v[5])))
        p.process.stdout.close()
        late = [t for t in p.truth if t[3][0] > up]
        self.assertGreater(len(late), 20)
        last = max(t[1] for t in late)
        rows = []

        def whole():
            rows[:] = self.answered("steps-run", len(late))
            return last in {r[1] for r in rows}
        self.wait(whole)
        by_number = {t[1]: t for t in p.truth}
        self.compare("agent restart", [by_number[r[1]] for r in rows], rows)
        numbers = {r[1] for r in rows}
        self.assertTrue({t[1] for t in late} <= numbers)
        self.assertEqual(len({r[6] for r in rows}), 1)  # one process life, whoever saw it
        missing = [t for t in p.truth if t[1] not in numbers]
        # the killed agent took with it what was in no batch yet, that is all since the last one seen
        seen = max(t[3][0] for t in p.truth if t[1] in numbers and t[3][0] < down)
        self.assertTrue(all(seen < t[3][0] < up for t in missing))
        print(f"agent restart: {len(p.truth)} marked, {len(rows)} seen, "
              f"{len(missing)} while nobody listened or in the killed agent")

    def test_dropped(self):
        """What is no step is counted, by reason."""
        p = self.program(STEPS, "bad", service="steps-bad")
        p.go()
        p.read()
        p.end()
        self.wait(lambda: self.figure("steps_dropped_open_at_exit") > 0)
        f = self.agent.status()["figures"]
        got = {k: f["agent_steps_dropped_" + k] for k in ("unclosed", "unopened", "open_at_exit",
                                                         "rate", "ring_full", "bad_text")}
        print("dropped:", got)
        self.assertEqual(got, {"unclosed": 1, "unopened": 1, "open_at_exit": 2, "rate": 0,
                               "ring_full": 0, "bad_text": 4})
        rows = self.answered("steps-bad", 2)
        self.assertEqual([(r[0], r[1]) for r in rows], [("twice", 1)] * 2)
        points = self.server.get("metrics", name="agent_steps_dropped")
        self.assertEqual({m["labels"]["why"] for m in points["metrics"]}, set(got))

    def test_exec(self):
        """Programs of one process, a hundred in a row: steps are of the program that began them,
        however soon after exec it does."""
        p = self.program(STEPS, "exec", "99", service="steps-exec")
        p.go()
        p.read()
        rows = self.answered("steps-exec", 100)
        self.compare("exec", p.truth, rows)
        p.end()
        self.wait(lambda: self.figure("steps_dropped_open_at_exit") == 100)
        self.assertEqual(self.figure("steps_dropped_unopened"), 100)

    def test_rate(self):
        """5,000 calls at once: a thousand in each second; the others are counted, none is lost."""
        p = self.program(STEPS, "burst", "5000", service="steps-burst")
        begin = time.monotonic()
        p.go()
        p.read()
        took = time.monotonic() - begin
        self.assertEqual(p.counts["probe"], 5000)
        self.wait(lambda: self.figure("step_calls") + self.figure("steps_dropped_rate") == 5000)
        calls = self.figure("step_calls")
        print(f"burst: {calls} of 5000 taken, {self.figure('steps_dropped_rate')} over the rate")
        self.assertTrue(1000 <= calls <= min(5000, 1000 * (took + 2)), f"in {took:.1f} s")
        self.assertEqual(self.figure("steps_dropped_ring_full"), 0)
        p.end()

    def test_selects(self):
        """step= restricts a flame graph to what ran inside."""
        p = self.program(STEPS, "hot", service="steps-hot")
        p.go()
        p.read()
        self.answered("steps-hot", 6)
        windows = self.figure("windows")
        self.wait(lambda: self.figure("windows") > windows + 2)
        produced = self.figure("batches_produced")
        self.wait(lambda: self.figure("batches_produced") > produced and
                  self.figure("batches_spooled") == 0)
        span = {"from": f"{self.begin}ns", "to": f"{time.time_ns() + 10**9}ns"}
        q = 'cpu{service="steps-hot"}'
        whole = {f["name"]: int(f["self"]) for f in self.top(q, span)}
        inside = {f["name"]: int(f["self"]) for f in self.top(q, {**span, "step": "hot"})}
        one = {f["name"]: int(f["self"]) for f in self.top(q, {**span, "step": "hot:2-2"})}
        print(f"whole: spin_inside {whole['spin_inside'] / 1e9:.2f} s, spin_outside "
              f"{whole['spin_outside'] / 1e9:.2f} s; step=hot: {inside['spin_inside'] / 1e9:.2f} s, "
              f"{inside.get('spin_outside', 0) / 1e9:.2f} s; hot:2-2: {one['spin_inside'] / 1e9:.2f} s")
        self.assertGreater(whole["spin_outside"], 0)
        # rows are cut at the calls: one tick at most may be on the other side
        self.assertLessEqual(abs(inside["spin_inside"] - whole["spin_inside"]), PERIOD)
        self.assertLessEqual(inside.get("spin_outside", 0), PERIOD)
        self.assertLess(one["spin_inside"], 0.5 * inside["spin_inside"])

    def top(self, q, parameters):
        a = self.server.get("top", q=q, limit=100, **parameters)
        return [{"name": a["strings"][a["func"]["name"][i]], "self": a["row"]["self"][i]}
                for i in range(a["n"])]

    def test_no_listener(self):
        """Nobody listens, no server: nothing happens, and the word in memory is 0 again."""
        self.agent.stop()
        for command in ((STEPS, "all"), (sys.executable, STEPS_PY)):
            p = Program(*command, service="steps-none")
            self.programs.append(p)
            p.go()
            p.read()
            if p.counts["probe"]:
                self.skipTest("another agent listens on this machine")
            self.assertEqual(set(p.counts.values()), {0})
            p.end()
        self.start_agent()


if __name__ == "__main__":
    sys.exit(main())
