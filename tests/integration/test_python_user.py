#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Python frames without any privilege: strata dump, and strata record by stops.

A dump is compared with what faulthandler wrote of the same thread (workloads/pystop.py): the same
functions, files and lines in the same order, of a thread that runs and of one that is blocked.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_python import Program, interpreters

AGENT, STRATA = os.environ["STRATA_AGENT"], os.environ["STRATA"]
REFUSE = os.path.join(os.environ["STRATA_AGENT_TESTS"], "refuse")
GIL = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                   "demo/gil.py")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all",
          "--inh-caps=-all", "--no-new-privs"]
WORK = """
import time
def leaf(n):
    return sum(i for i in range(n))
def key(k):
    return leaf(20000)
def top():
    while time.process_time() < 2.5:
        max([3, 1, 2], key=key)
top()
"""


class Dump(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="strata-python-user-")
        self.addCleanup(self.folder.cleanup)

    def program(self, command, name, *arguments):
        p = Program(self.folder.name, command, name, 600, *arguments)

        def end():
            p.process.send_signal(signal.SIGKILL)
            p.process.wait()
        self.addCleanup(end)
        stop = time.monotonic() + 60
        while time.monotonic() < stop:
            with open(p.dump, encoding="utf-8") as f:
                if re.search(r" in <module>$|_bootstrap$", f.read(), re.M):
                    return p
            time.sleep(0.05)
        self.fail(f"{name} did not come to hold()")

    def dump(self, pid, *options):
        r = subprocess.run([AGENT, "dump", "--json", *options, "-p", str(pid)], capture_output=True,
                           text=True, timeout=120)
        self.assertEqual(r.returncode, 0, r.stderr)
        return json.loads(r.stdout)

    def thread_in_hold(self, d):
        for t in d["threads"]:
            py = [(f["function"].split(".")[-1], f["file"], f["line"]) for f in t["frames"]
                  if f["kind"] == "python"]
            names = [f[0] for f in py]
            if "hold" in names:
                return t, py[names.index("hold") + 1:]
        return None, None

    def equal(self, p, *options):
        """A dump may meet a moment in which frames are being linked: then it says so."""
        end = time.monotonic() + 60
        while True:
            d = self.dump(p.process.pid, *options)
            self.assertEqual(d["python"], "ok")
            t, below = self.thread_in_hold(d)
            if t or time.monotonic() > end:
                break
            time.sleep(0.2)
        self.assertIsNotNone(t, d)
        self.assertEqual(below, p.wanted(), p.service)
        print(f"{p.service} {' '.join(options)}: {len(below)} frames as faulthandler has them, "
              f"{t['state']}, lock {t['gil']}")
        return d, t

    def test_as_faulthandler(self):
        for version, command in interpreters():
            old = version == "3.10"
            for mode in ("take", "wait"):
                p = self.program(command, f"{version}-{mode}", mode, "thread")
                d, t = self.equal(p, *(["--stop"] if old and mode == "wait" else []))
                self.assertIn(t["gil"], ("held",) if mode == "take" else ("free", "other"))
                if mode == "wait":
                    self.assertEqual(t["state"], "waiting")
                    self.assertEqual(d["stopped"], 2 if old else 0)
                self.assertTrue(any(f["kind"] == "native" for f in t["frames"]))

    def test_old_blocked(self):
        """3.10's thread states do not say which thread they are of: what is missing is said."""
        for version, command in interpreters():
            if version == "3.10":
                p = self.program(command, "old", "wait")
                t = self.dump(p.process.pid)["threads"][0]
                self.assertIn("--stop", t["python_missing"])
                self.assertEqual([f for f in t["frames"] if f["kind"] == "python"], [])

    def test_waits_for_lock(self):
        """Who waits for the lock, and for whom."""
        p = subprocess.Popen(["/usr/bin/python3", GIL, "120000"], stdout=subprocess.DEVNULL)

        def end():
            p.kill()
            p.wait()
        self.addCleanup(end)
        until = time.monotonic() + 60
        seen = text = None
        while not (seen and text) and time.monotonic() < until:
            threads = {t["tid"]: t for t in self.dump(p.pid)["threads"]}
            for t in threads.values():
                if t["gil_waits"]:
                    self.assertIn(t["gil"], ("other", "free"))
                    self.assertEqual((t["state"], t["call"]), ("waiting", "futex"))
                    self.assertNotEqual(t["gil_holder"], t["tid"])
                    if t["gil"] == "other":
                        self.assertIn(t["gil_holder"], threads)
                        seen = t["name"], threads[t["gil_holder"]]["name"]
                elif t["gil"] != "other":
                    self.assertEqual(t["gil_holder"], 0)
            r = subprocess.run([AGENT, "dump", "-p", str(p.pid)], capture_output=True, text=True,
                               timeout=120)
            text = text or re.search(r"waiting in futex, waits for the GIL of (fight|tree|hash)\S*/\d+$",
                                     r.stdout, re.M)
        print("waits:", seen, text and text[0])
        self.assertTrue(seen and text)
        self.assertRegex(seen[0] + seen[1], "fight|tree")

    def test_only_python(self):
        p = self.program(["/usr/bin/python3"], "only", "wait")
        r = subprocess.run([AGENT, "dump", "--no-native", "-p", str(p.process.pid)],
                           capture_output=True, text=True, timeout=120)
        got = re.findall(r"^    (\S+)  (\S+):(\d+)$", r.stdout, re.M)
        names = [f[0] for f in got]
        below = [(n.split(".")[-1], file, int(line))
                 for n, file, line in got[names.index("hold") + 1:]]
        self.assertEqual(below, p.wanted())
        self.assertNotIn("libc", r.stdout)


class Record(unittest.TestCase):
    def record(self, *before):
        with tempfile.TemporaryDirectory() as d:
            os.chmod(d, 0o777)
            script, path = os.path.join(d, "w.py"), os.path.join(d, "out.folded")
            with open(script, "w", encoding="utf-8") as f:
                f.write(WORK)
            r = subprocess.run([*before, *NOBODY, STRATA, "record", "--no-server", "-o", path, "--",
                                "/usr/bin/python3", script],
                               capture_output=True, text=True, timeout=180,
                               env={**os.environ, "HOME": d})
            self.assertEqual(r.returncode, 0, r.stderr)
            with open(path, encoding="utf-8") as f:
                return r.stderr, f.read()

    def judge(self, said, folded):
        """Python frames between the native ones; those first moments have none that came before the
        interpreter was known."""
        self.assertIn("stopped for a moment", said)
        chain = "<module>;top;.*;key;leaf"
        total = whole = 0
        for line in folded.splitlines():
            stack, weight = line.rsplit(" ", 1)
            total += int(weight)
            if ";top;" in stack + ";":
                self.assertIn("Py_RunMain;", stack)
            whole += int(weight) if re.search(chain, stack) else 0
        print(f"{whole / total:.1%} of {total / 1e9:.2f} s in {chain}")
        self.assertGreater(whole, 0.6 * total, folded + said)

    def test_stops(self):
        if not shutil.which("setpriv") or os.geteuid() != 0:
            self.skipTest("needs setpriv and root: an ordinary user without the rights of this one")
        self.judge(*self.record(REFUSE, "perf_event_open", "--"))

    def test_perf_then_stops(self):
        if not shutil.which("setpriv") or os.geteuid() != 0:
            self.skipTest("needs setpriv and root: an ordinary user without the rights of this one")
        with open("/proc/sys/kernel/perf_event_paranoid", encoding="ascii") as f:
            if int(f.read()) > 2:
                self.skipTest("perf_event_paranoid is above 2")
        said, folded = self.record()
        self.judge(said, folded)
        self.assertIn("a Python", said)


if __name__ == "__main__":
    unittest.main()
