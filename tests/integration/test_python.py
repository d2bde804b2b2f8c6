#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Python frames of the whole agent, as stratad answers them. Needs root and BPF, else 77.

A program (workloads/pystop.py) has its stack written down by faulthandler and stays in it: every
stack of it that was sampled must have the same functions, files and lines, in the same order,
between its native frames. Interpreters: Debian's, those of pyenv, and with STRATA_PYTHON_SID=FOLDER
those of a Debian tree, run by chroot; one that is not there is named. STRATA_LONG=1: all of them in
all modes.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_agent_run import LONG, Agent, Stratad, main, wait_for
from test_export import Pprof

HERE = os.path.dirname(os.path.abspath(__file__))
STOP = os.path.join(os.path.dirname(HERE), "agent/workloads/pystop.py")
SID = os.environ.get("STRATA_PYTHON_SID", "")
MODES = ("take", "give", "loop")
SECONDS = 0.4
PERIOD = 2_000_000


def interpreters():
    """[(version, command)]: one for each minor version that is here, Debian's own first."""
    found = {}
    for path in ["/usr/bin/python3", *sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")))]:
        if os.path.exists(path):
            v = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                               capture_output=True, text=True, check=True).stdout.strip()
            found.setdefault(v, (v, [path]))
    for v in ("3.13", "3.14", "3.15"):
        if SID and os.path.exists(f"{SID}/usr/bin/python{v}"):
            found[v + "-sid"] = (v + "-sid", ["/usr/sbin/chroot", SID, f"/usr/bin/python{v}"])
    known = [f for f in found.values() if 10 <= int(f[0].split("-")[0].split(".")[1]) <= 15]
    for minor in range(10, 16):
        if not any(f[0].startswith(f"3.{minor}") for f in known):
            print(f"skip: no CPython 3.{minor} here")
    return known


class Program:
    def __init__(self, folder, command, service, *arguments, script=STOP, env=None):
        self.service, self.dump = service, os.path.join(folder, service + ".dump")
        if command[0].endswith("chroot"):
            inside = tempfile.mkdtemp(dir=command[1] + "/tmp")
            shutil.copy(script, inside)
            self.inside = inside
            script = "/" + os.path.relpath(os.path.join(inside, os.path.basename(script)), command[1])
        else:
            self.inside = None
        with open(self.dump, "w", encoding="utf-8") as f:
            self.process = subprocess.Popen(
                [*command, script, *map(str, arguments)], stderr=f, stdout=subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin", "STRATA_SERVICE": service, **(env or {})})

    def wait(self):
        code = self.process.wait(timeout=120)
        if self.inside:
            shutil.rmtree(self.inside)
        if code:
            with open(self.dump, encoding="utf-8") as f:
                raise AssertionError(f"{self.service}: status {code}: {f.read()}")

    def wanted(self):
        """[(function, file, line)] below hold(), innermost first."""
        with open(self.dump, encoding="utf-8") as f:
            found = re.findall(r'File "([^"]+)", line (\d+) in (.*)', f.read())
        assert found and found[0][2] == "hold", found
        return [(name.split(".")[-1], file, int(line)) for file, line, name in found[1:]]


def pprof(server, service, type="cpu"):
    q = urllib.parse.urlencode({"q": '%s{service="%s"}' % (type, service), "format": "pprof",
                                "from": "now-10m", "to": "now"})
    with urllib.request.urlopen(f"{server.url}/api/v1/export?{q}", timeout=60) as answer:
        return Pprof(answer.read())


def frames(stack):
    """[(function, file, line)] of a pprof stack, innermost first; binary frames have no line."""
    return [(name.decode(), file, line) for _, lines in stack for name, file, line in lines]


def is_python(frame):
    return frame[1].endswith(".py") or frame[1] == "<string>"


class Agented(unittest.TestCase):
    """A server, and an agent that samples into it."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="strata-python-")
        self.addCleanup(self.folder.cleanup)
        self.server = Stratad(self.folder.name)
        self.addCleanup(self.server.stop)

    def start(self, *settings):
        self.agent = Agent(self.folder.name, self.server.url, f"cpu.period_ns={PERIOD}ns",
                           "batch.interval=1s", *settings)
        self.addCleanup(lambda: self.agent.process.poll() is None and self.agent.kill())
        self.agent.wait_running()

    def stop(self):
        """All that was sampled is sent before: a stop sends for 5 s, which a busy machine may need."""
        windows = self.agent.figure("windows")
        wait_for(lambda: self.agent.figure("windows") > windows + 1, "two windows")
        produced = self.agent.figure("batches_produced")
        wait_for(lambda: self.agent.figure("batches_produced") > produced and
                 self.agent.figure("batches_spooled") == 0, "an empty spool")
        self.assertEqual(self.agent.stop(), 0)

    def figures(self):
        return {k: int(v) for k, v in self.agent.status()["figures"].items()}

    def warm(self, found):
        """Each interpreter once, so that the unwind tables are built which a busy machine may take
        a second for. Returns the figures then."""
        for version, command in found:
            Program(self.folder.name, command, f"warm-{version}", SECONDS, "give", "thread").wait()
        windows = self.agent.figure("windows")
        wait_for(lambda: self.agent.figure("windows") > windows + 1 and
                 self.agent.figure("tables_pending") == 0, "tables")
        return self.figures()


class Python(Agented):
    def compare(self, program):
        """Stacks that reached hold(): all equal to the dump? (stacks, samples, with frames)"""
        want, p = program.wanted(), pprof(self.server, program.service)
        stacks = held = python = native = 0
        for stack, value in p.samples:
            got = frames(stack)
            py = [f for f in got if is_python(f)]
            python += value[0] if py else 0
            names = [f[0].split(".")[-1] for f in py]
            if "hold" not in names:
                continue
            below = [(f[0].split(".")[-1], f[1], f[2]) for f in py[names.index("hold") + 1:]]
            self.assertEqual(below, want, program.service)
            stacks += 1
            held += value[0]
            last = max(i for i, f in enumerate(got) if is_python(f))
            native += any(not is_python(f) for f in got[got.index(py[names.index("hold")]):last])
        total = p.total(0)
        print(f"{program.service}: {stacks} stacks, {held} samples in hold(), all equal to "
              f"faulthandler's ({len(want)} frames); {python} of {total} samples with Python frames")
        self.assertGreater(held, 5, program.service)
        self.assertGreater(native, 0, "no native frame among them")
        return total, python

    def test_stacks(self):
        self.start()
        found = interpreters() if LONG else interpreters()[:1] + interpreters()[-1:]
        before = self.warm(found)
        programs = []
        for version, command in found:
            for mode in MODES if LONG else MODES[:2]:
                more = ["thread"] if mode == "give" else []
                p = Program(self.folder.name, command, f"py-{version}-{mode}", SECONDS, mode, *more)
                p.wait()
                programs.append(p)
        self.stop()
        for p in programs:
            self.compare(p)
        f = {k: v - before.get(k, 0) for k, v in self.figures().items()}
        merged, with_frames = f["agent_python_merged"], f["agent_python_with_frames"]
        print(f"merged {merged} of {with_frames} stacks with Python frames, short "
              f"{f['agent_python_short']}, drained {f['agent_python_drained']}, errors",
              {k: v for k, v in f.items() if k.startswith("agent_pyerr") and v},
              {k: v for k, v in f.items() if k.startswith("agent_python_unnamed") and v})
        errors = sum(v for k, v in f.items()
                     if k.startswith("agent_pyerr") and k != "agent_pyerr_no_state")
        self.assertGreater(f["agent_python_samples"], 20)
        self.assertLess(f["agent_python_short"], 0.05 * f["agent_python_samples"] + 5)
        self.assertLess(errors, 0.05 * f["agent_python_samples"] + 5)
        self.assertGreater(merged, 0.9 * with_frames - 5)

    def test_gil(self):
        """The lock is held in a multiplication, and not while C hashes."""
        self.start()
        command = ["/usr/bin/python3"]
        self.warm([("gil", command)])
        for mode in ("take", "give"):
            Program(self.folder.name, command, "gil-" + mode, 1, mode).wait()
        self.stop()
        share = {}
        for mode in ("take", "give"):
            cpu, held = (sum(v[-1] for s, v in pprof(self.server, "gil-" + mode, t).samples
                             if any(f[0] == "hold" for f in frames(s)))
                         for t in ("cpu", "gil_held"))
            share[mode] = held / cpu
            print(f"{mode}: {cpu / 1e9:.3f} s of CPU time in hold(), {held / 1e9:.3f} s with the "
                  "lock")
        self.assertGreater(share["take"], 0.95)
        self.assertLess(share["give"], 0.15)

    def test_off(self):
        self.start("python.enabled=off")
        p = Program(self.folder.name, ["/usr/bin/python3"], "py-off", SECONDS, "take")
        p.wait()
        self.stop()
        got = pprof(self.server, "py-off")
        self.assertGreater(got.total(0), 10)
        self.assertEqual([f for s, _ in got.samples for f in frames(s) if is_python(f)], [])
        self.assertNotIn("agent_python_samples", self.figures())


if __name__ == "__main__":
    sys.exit(main())
