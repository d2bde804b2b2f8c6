#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The whole agent on this machine. Needs root and BPF, else 77.

What the kernel says of a burner, what the batches hold by a reader of their own, and what stratad
answers must agree; also after the agent was killed, stopped, or kept from its server.
"""
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stratasink as sink

AGENT = os.environ.get("STRATA_AGENT", "build/agent/strata-agent")
PROCESSES = os.environ.get("STRATA_AGENT_PROCESSES", "apart")  # every test here passes with `single`, too
STRATAD = os.environ.get("STRATAD", "build/server/stratad")
BURN = os.path.join(os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent"), "burn")
LONG = os.environ.get("STRATA_LONG") == "1"
SERVICE = f"burner-{os.getpid()}"  # another run may burn beside this one
PERIOD = 10101010
# a program that ends after a while, to be started again: each life brings new targets and stacks
CROWD = """
import json, re, threading, time
def deep(n):
    return deep(n - 1) if n else json.dumps([{'a': i} for i in range(99)]) + re.escape('a.b' * 99)
def work():
    end = time.monotonic() + 2
    n = 0
    while time.monotonic() < end:
        n += 7
        deep(n % 200)
for _ in range(4):
    threading.Thread(target=work).start()
"""


def wait_for(what, why, seconds=120):
    """Until what() holds; on a busy machine everything takes its time."""
    end = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{why}: not within {seconds} s")
        time.sleep(0.05)


class Agent:
    def __init__(self, folder, url, *settings, program=AGENT, **environment):
        self.status_file = os.path.join(folder, "status")
        # rates above 99 Hz are meant; what restraint does is test_agent_care.py's
        args = [program, "--state-dir", folder, "-o", f"server.url={url}",
                "-o", "limits.cpu_percent_per_16_cpus=1600",
                "-o", f"privileges.processes={PROCESSES}"]
        for s in settings:
            args += ["-o", s]
        self.log = open(os.path.join(folder, "log"), "ab")
        self.begin = time.monotonic()
        self.process = subprocess.Popen(args, stdout=self.log, stderr=self.log,
                                        env=dict(os.environ, **environment))

    def status(self):
        return sink.read_status(self.status_file)

    def running(self):
        """It has written its status: that of an older run does not count."""
        return os.path.exists(self.status_file) and self.status()["pid"] == self.process.pid

    def figure(self, name):
        return self.status()["figures"]["agent_" + name]

    def wait_running(self, seconds=120):
        while not self.running():
            if self.process.poll() is not None:
                with open(self.log.name, encoding="utf-8", errors="replace") as f:
                    raise RuntimeError("the agent ended: " + f.read())
            if time.monotonic() - self.begin > seconds:
                raise RuntimeError("the agent does not start")
            time.sleep(0.02)

    def stop(self):
        self.process.terminate()
        code = self.process.wait(timeout=120)
        self.log.close()
        return code

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


class Stratad:
    def __init__(self, folder):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(os.path.join(folder, "stratad.log"), "ab")
        ui = ["--ui", os.environ["STRATA_UI"]] if "STRATA_UI" in os.environ else []
        self.process = subprocess.Popen([STRATAD, "--listen", f"127.0.0.1:{port}", "--data",
                                         os.path.join(folder, "store"), *ui], stdout=self.log,
                                        stderr=self.log)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(self.url + "/readyz", timeout=5).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("stratad does not start")

    def get(self, path, **parameters):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?" +
                                    urllib.parse.urlencode(parameters), timeout=60) as answer:
            return json.load(answer)

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=120)
        self.log.close()


class Burner:
    """Uses CPU time from go() on, under a service name of its own."""

    def __init__(self, seconds=600, service=SERVICE, cpu=None):
        args = [BURN, str(seconds)] + ([str(cpu)] if cpu is not None else [])
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={"STRATA_SERVICE": service})
        self.pid = self.process.pid

    def go(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def clock_ns(self):
        return time.clock_gettime_ns((~self.pid << 3) | 2)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="strata-agent-")
        self.closing = []

    def tearDown(self):
        for c in reversed(self.closing):
            c()
        self.folder.cleanup()

    def sink(self, answer=None):
        s = sink.Ingest(answer)
        self.closing.append(s.close)
        return s

    def agent(self, url, *settings):
        a = Agent(self.folder.name, url, *settings)
        self.closing.append(lambda: a.process.poll() is None and a.kill())
        a.wait_running()
        return a

    def burner(self, **options):
        b = Burner(**options)
        self.closing.append(b.stop)
        return b

    def check_books(self, status, batches, told=0):
        """The sums that hold in integers, whatever happened."""
        f = status["figures"]
        self.assertEqual(f["agent_identity_violations"], 0)
        self.assertFalse([e for b in batches for e in b.events if e[0] == "identity"])
        self.assertEqual(f["agent_weight"] + f["agent_ring_full"] + f["agent_filtered"],
                         f["agent_busy"])
        dropped = sum(v for k, v in f.items() if k.startswith("agent_dropped_"))
        self.assertEqual(f["agent_batches_produced"] + f["agent_batches_inherited"],
                         f["agent_batches_sent"] + dropped + f["agent_batches_spooled"])
        self.assertEqual(f["agent_batches_failed"] + f["agent_windows_dropped"], 0)
        self.assertEqual(sum(b.weight() for b in batches) + told, f["agent_weight"])
        for b in batches:
            self.assertEqual(b.expected(), b.received() + b.lost()[0])

    def test_burner(self):
        """Name, share and time of a pinned burner; the batches' books balance."""
        server = self.sink()
        burner = self.burner()
        burner.go()
        agent = self.agent(server.url)
        while not server.batches():
            time.sleep(0.02)
        print(f"first batch {time.monotonic() - agent.begin:.2f} s after the start")
        used = burner.clock_ns()
        wait_for(lambda: burner.clock_ns() > used + 4 * 10**9, "4 s of CPU time")
        self.assertEqual(agent.stop(), 0)
        status, batches = agent.status(), server.batches()
        self.assertEqual(status["state"], "stopped")
        self.assertEqual([b.seq for b in batches], list(range(1, len(batches) + 1)))
        self.check_books(status, batches)
        for a, b in zip(batches, batches[1:]):  # without a gap, without an overlap
            self.assertEqual(a.covers()[-1][1], b.covers()[0][0])
        first, last = {}, {}
        ours = 0
        for b in batches:
            clock = b.metric("process_cpu")
            for r in b.rows():
                if r["labels"]["service"] != SERVICE:
                    continue
                ours += r["value"]
                self.assertEqual(b.targets[r["target"] - 1].one(3), burner.pid)
                if r["target"] in clock:
                    first.setdefault("clock", clock[r["target"]][0])
                    first.setdefault("profiled", b.metric("profiled_cpu")[r["target"]][0])
                    last = {"clock": clock[r["target"]][0],
                            "profiled": b.metric("profiled_cpu")[r["target"]][0]}
        used, seen = (last[k] - first[k] for k in ("clock", "profiled"))
        ticks = used / PERIOD
        width = max(s.one(10) for b in batches for s in b.streams)
        # binomial: one thread of a busy machine; 5 standard deviations and two ticks
        sigma = (ticks * max(1 - 1 / (2 * width), 0.05)) ** 0.5
        print(f"burner: clock {used / 1e9:.3f} s, profiled {seen / 1e9:.3f} s, "
              f"{(seen - used) / PERIOD / max(sigma, 1e-9):+.2f} sigma, {len(batches)} batches")
        self.assertGreater(ours, 0)
        self.assertLess(abs(seen - used), (5 * sigma + 2) * PERIOD)
        # nearly all of it in its one function, by name, in whole stacks
        leaf = whole = total = 0
        for b in batches[1:]:
            for r in b.rows():
                if r["labels"]["service"] != SERVICE:
                    continue
                stack = b.stack(r["node"])
                if stack is None:
                    continue
                total += r["value"]
                leaf += "leaf" in stack
                whole += r["value"] * (not stack[0].startswith("[truncated"))
        if total:
            print(f"burner: {100 * whole / total:.1f} % of new stacks whole")

    def test_stratad_agrees(self):
        """What stratad answers is what it acknowledged, in nanoseconds, also after kills of the agent
        in the midst of sending."""
        server = Stratad(self.folder.name)
        self.closing.append(server.stop)
        rng = random.Random(20261129)
        proxy = sink.Proxy(server.url, lambda b, n: "hang up after" if rng.random() < 0.2 else None)
        self.closing.append(proxy.close)
        burner = self.burner()
        burner.go()
        begin = time.time_ns()
        rounds = 20 if LONG else 5
        for n in range(rounds + 1):
            agent = self.agent(proxy.url, "batch.interval=1s")
            # one of its own: what the one before left behind goes first
            wait_for(lambda: len({b.boot for b in proxy.batches()}) > n, f"a batch of run {n + 1}")
            if n < rounds:
                time.sleep(rng.random() * 1.2)
                agent.kill()
        self.assertEqual(agent.stop(), 0)
        batches = proxy.batches()
        boots = {b.boot for b in batches}
        self.assertEqual(len({b.agent for b in batches}), 1)
        self.assertGreaterEqual(len(boots), rounds)
        for boot in boots:  # acknowledged in order, none skipped
            seqs = [b.seq for b in batches if b.boot == boot]
            self.assertEqual(seqs, list(range(1, len(seqs) + 1)))
        stored = sum(b.weight() for b in batches)
        span = {"from": f"{begin - 10**9}ns", "to": f"{time.time_ns() + 10**9}ns"}
        answer = server.get("flamegraph", q="cpu", **span)
        print(f"{rounds} kills, {len(batches)} batches acknowledged, {proxy.duplicates} sent twice; "
              f"sum {stored}, stratad says {answer['total']}")
        self.assertEqual(int(answer["total"]), stored)
        mine = sum(r["value"] for b in batches for r in b.rows()
                   if r["labels"]["service"] == SERVICE)
        answer = server.get("flamegraph", q='cpu{service="%s"}' % SERVICE, **span)
        self.assertEqual(int(answer["total"]), mine)
        self.assertGreater(mine, 0)

    def test_stopped(self):
        """Three seconds of SIGSTOP with a small ring: what is counted as lost is what is missing."""
        server = self.sink()
        for _ in range(2):
            self.burner().go()
        agent = self.agent(server.url, "cpu.period_ns=1000003ns", "cpu.ring=64KiB")
        for _ in range(10):
            agent.process.send_signal(signal.SIGSTOP)
            time.sleep(3)
            agent.process.send_signal(signal.SIGCONT)
            windows = agent.figure("windows")
            wait_for(lambda: agent.figure("windows") > windows + 1, "two windows")
            if agent.figure("ring_full_ticks") > 100:
                break
        self.assertEqual(agent.stop(), 0)
        status, batches = agent.status(), server.batches()
        self.check_books(status, batches)
        f = status["figures"]
        n, weight = (sum(x) for x in zip(*(b.lost("ring_full") for b in batches)))
        print(f"ring_full: {n} ticks, {weight / 1e9:.3f} s of {f['agent_busy'] / 1e9:.3f} s busy")
        self.assertGreater(n, 100)
        self.assertEqual((n, weight), (f["agent_ring_full_ticks"], f["agent_ring_full"]))
        # where the machine stood still longer, the rate went down: some ticks weigh more
        slow, rest = divmod(weight - n * 1000003, PERIOD - 1000003)
        self.assertEqual(rest, 0)
        self.assertLess(slow, n)
        for a, b in zip(batches, batches[1:]):
            self.assertEqual(a.covers()[-1][1], b.covers()[0][0])

    def test_full_spool(self):
        """The server is away until the spool is full: stored + told as dropped = profiled."""
        away = [True]
        server = self.sink(lambda b, n: (503, {"Retry-After": "1"}, sink.error("starting"))
                           if away[0] else None)
        self.burner().go()
        crowd = []
        self.closing.append(lambda: [(p.kill(), p.wait()) for p in crowd])
        agent = self.agent(server.url, "spool.max_bytes=64KiB", "cpu.period_ns=1000003ns",
                           "batch.interval=1s")

        def full():
            """Rows of many threads in deep and changing stacks fill it."""
            if agent.figure("dropped_spool_full") >= 2:
                return True
            crowd[:] = [p for p in crowd if p.poll() is None]
            while len(crowd) < 12:
                crowd.append(subprocess.Popen([sys.executable, "-c", CROWD],
                                              stdout=subprocess.DEVNULL))
            return False

        begun = time.monotonic()
        wait_for(full, "a full spool", 200)
        print(f"the spool was full after {time.monotonic() - begun:.1f} s")
        away[0] = False
        for p in crowd:
            p.kill()
        # what is spooled goes at twice the usual rate, and with it what is told
        n = agent.figure("dropped_spool_full")
        wait_for(lambda: sum(last - first + 1 for b in server.batches()
                             for first, last in b.dropped) >= n and
                 agent.figure("spool_untold") == agent.figure("batches_spooled") == 0,
                 "all is told", 200)
        self.assertEqual(agent.stop(), 0)
        status = agent.status()
        untold = status["figures"]["agent_spool_untold"]
        if untold:  # the last batch pushed out another one: the next run tells of that
            again = self.agent(server.url)
            wait_for(lambda: again.figure("spool_untold") == again.figure("batches_spooled") == 0,
                     "the next run tells the rest", 200)
            self.assertEqual(again.stop(), 0)
            more = again.status()["figures"]
            self.assertEqual(more["agent_spool_untold"], 0)
            status["figures"] = {k: v + more[k] for k, v in status["figures"].items() if k in more}
        batches = server.batches()
        told = sum(b.lost("spool_drop", 1)[1] for b in batches)
        n = status["figures"]["agent_dropped_spool_full"]
        print(f"{n} batches dropped, {told / 1e9:.3f} s told as lost; told by the next run: {untold}")
        self.assertGreaterEqual(n, 2)
        self.check_books(status, batches, told)
        numbers = sum(last - first + 1 for b in batches for first, last in b.dropped)
        self.assertLessEqual(numbers, n)  # those of an older run are told without
        if not untold:
            self.assertEqual(numbers, n)


class Check(unittest.TestCase):
    def self_test(self, *before):
        """Of the stacks of a known spin: how many are right, how many there are."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*before, AGENT, "check", "--state-dir", folder],
                                  capture_output=True, text=True, timeout=60, check=False)
        self.assertIn(done.returncode, (0, 1), done.stdout)
        found = re.search(r"self_test +ok +(\d+) of (\d+) stacks", done.stdout)
        self.assertTrue(found, done.stdout)
        right, of = map(int, found.groups())
        print(f"self test: {right} of {of}")
        self.assertGreater(of, 10)
        self.assertGreaterEqual(right, 0.9 * of)
        return done.stdout

    def test_self_test(self):
        self.self_test()

    def test_without_one_right(self):
        """What is not needed for whole stacks of ordinary files, taken away one by one."""
        for caps in (("checkpoint_restore", "sys_admin"), ("dac_read_search",), ("syslog",),
                     ("sys_ptrace",)):
            with self.subTest(without=caps[0]):
                out = self.self_test("setpriv", "--bounding-set=-" + ",-".join(caps),
                                     "--inh-caps=-all")
                self.assertRegex(out, f"cap_{caps[0]} +degraded")


class NoRights(unittest.TestCase):
    def test_named(self):
        """Without rights: 77, by name, with what to do; a wrong setting: 1, named."""
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                               AGENT], capture_output=True, text=True, timeout=30, check=False)
        if "setpriv" in done.stderr or "denied" in done.stderr and done.returncode in (126, 127):
            self.skipTest("the program cannot be run by another user here")
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertRegex(done.stderr, r"no BPF here: cap_bpf: .*CAP_BPF.*; .*root")

    def test_status_of_a_dead_agent(self):
        """What a killed agent left behind is shown, and said to be old."""
        def status(state, t_ns):
            with open(os.path.join(folder, "status"), "w", encoding="ascii") as f:
                f.write(f'{{"pid":1,"state":"{state}","t_ns":"{t_ns}","figures":{{}}}}\n')
            return subprocess.run([AGENT, "--state-dir", folder, "status", "--json"],
                                  capture_output=True, text=True, timeout=30, check=False)

        with tempfile.TemporaryDirectory() as folder:
            now = time.time_ns()
            done = status("running", now - 3600 * 10**9)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"no word since 36\d\d s: the agent does not run")
            self.assertIn('"running"', done.stdout)
            for state, t in (("running", now), ("stopped", now - 3600 * 10**9)):
                done = status(state, t)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
            os.unlink(os.path.join(folder, "status"))
            done = subprocess.run([AGENT, "--state-dir", folder, "status"], capture_output=True,
                                  text=True, timeout=30, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("no status", done.stderr)

    def test_without_proc(self):
        done = subprocess.run(["unshare", "-m", "sh", "-c", f"mount -t tmpfs tmpfs /proc && "
                               f"exec {os.path.abspath(AGENT)} check"], capture_output=True,
                              text=True, timeout=30, check=False)
        if "unshare" in done.stderr or "mount" in done.stderr:
            self.skipTest("no mount namespaces here")
        self.assertEqual(done.returncode, 77, done.stdout)
        self.assertIn("no BPF here: proc: /proc/self/status cannot be read", done.stdout)

    def test_settings(self):
        for setting, words in (("cpu.nosuch=1", "nosuch"), ("batch.interval=10", "suffix"),
                               ("cpu.ring=5000B", "power of two"), ("labels.cmdline=all", "masked"),
                               ("server.url=ftp://x", "http")):
            with self.subTest(setting=setting):
                done = subprocess.run([AGENT, "-o", setting, "--state-dir", "/tmp"],
                                      capture_output=True, text=True, timeout=30, check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(words, done.stderr)


def main():
    if os.geteuid() != 0:
        print("skip: needs root (BPF programs, ticks of every CPU)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([AGENT, "check", "--state-dir", folder], capture_output=True,
                              text=True, timeout=60, check=False)
    if done.returncode in (2, 77):
        print("skip:", done.stdout.strip().splitlines()[-1])
        return 77
    print(done.stdout)
    unittest.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
