#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""strata record, view, import, export on this machine. Needs root and BPF, else 77.

Every status that can come out, every format read back by a reader of its own with the total that
the summary names, and what is left when it is interrupted. Figures are printed, not judged, where
they are times.
"""
import datetime
import glob
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
import xml.dom.minidom

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from servertest import STRATA, STRATAD, Server
from test_export import Pprof

AGENT = os.environ.get("STRATA_AGENT", "build/agent/strata-agent")
BURN = os.path.join(os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent"), "burn")
S = 10**9
PERIOD = S // 999
NOBODY = 65534


def burn(seconds):
    return ["sh", "-c", f"echo | {BURN} {seconds}"]


def hour():
    """The last hour, and what is in the second that has not ended: "now" is a whole one."""
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=1)
    return {"from": "now-1h", "to": end.strftime("%Y-%m-%dT%H:%M:%SZ")}


def cpu_clock_ns(pid):
    return time.clock_gettime_ns((~pid << 3) | 2)


def wait_for(what, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def samples_of(text):
    """The number of samples of a summary."""
    m = re.search(r"^samples +([\d,]+) at", text, re.M)
    assert m, text
    return int(m.group(1).replace(",", ""))


class Record(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="strata-record-test-")
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("STRATA_SERVER", "STRATA_TOKEN", "SUDO_"))}
        self.env["TMPDIR"] = os.path.join(self.dir, "tmp")
        os.mkdir(self.env["TMPDIR"], 0o1777)
        os.chmod(self.env["TMPDIR"], 0o1777)

    def tearDown(self):
        self.assertEqual(os.listdir(self.env["TMPDIR"]), [], "left in the temporary folder")

    def path(self, name):
        return os.path.join(self.dir, name)

    def start(self, *arguments, **more):
        more.setdefault("env", self.env)
        return subprocess.Popen([STRATA, *arguments], stdin=subprocess.DEVNULL, cwd=self.dir,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def end(self, p, status=0):
        out, err = p.communicate(timeout=150)
        self.assertEqual(p.returncode, status, out + err)
        return out, err

    def run_it(self, *arguments, status=0, **more):
        return self.end(self.start(*arguments, **more), status)

    def record(self, *arguments, status=0, **more):
        return self.run_it("record", *arguments, status=status, **more)

    # ---- what comes out ---------------------------------------------------------------------
    def test_too_short(self):
        _, err = self.record("-r", "1", "--no-server", "--", "true")
        self.assertRegex(err, r"^0 samples in \d+ ms of CPU; try -r 9999\n"
                              r"wall time   [\d.]+ m?s\n"
                              r"((offcpu|runq) .*\n)*( +each by itself: .*\n)?$")
        _, err = self.record("-q", "-r", "1", "-o", self.path("a.folded"), "--", "true")
        self.assertIn("0 samples in", err)  # never an empty success, however quiet

    def test_too_little_to_rank(self):
        _, err = self.record("-r", "49", "--no-server", "--", sys.executable, "-c", "pass")
        if not err.startswith("0 samples"):
            self.assertRegex(err, r"(?m)^functions   too little to rank them: none has more than [12] "
                                  r"samples? of its own; record longer, or with -r 9999$")
            self.assertNotIn("self  ", err)
        _, err = self.record("--no-server", "--", sys.executable, "-c",
                             "import time\nwhile time.process_time() < 0.5: pass")
        self.assertRegex(err, r"(?m)^ +self +total +samples  function$")
        self.assertNotIn("too little", err)

    def test_status(self):
        for command, status, text in (
                (["missing-command"], 127, "missing-command: not found"),
                (["/etc/passwd"], 126, "/etc/passwd: Permission denied"),
                (["sh", "-c", "exit 3"], 3, ""),
                (["sh", "-c", "kill -9 $$"], 137, ""),
                (["sh", "-c", "kill -15 $$"], 143, ""),
                (["sh", "-c", "exit 125"], 125, "")):
            _, err = self.record("--no-server", "--", *command, status=status)
            self.assertIn(text, err)
        self.record("-o", self.path("x.svg"), "--", "missing-command", status=127)
        self.assertEqual(os.listdir(self.dir), ["tmp"])

    def test_refused_before_anything_starts(self):
        ran = self.path("ran")
        touch = ["--", "touch", ran]
        for arguments, text in (
                (["-p", "4194303"], "-p 4194303: no such process"),
                (["-o", "x.png", *touch], "say -f FORMAT"),
                (["-o", "-", *touch], "needs -f"),
                (["-o", "no/such/dir/x.svg", *touch], "No such file or directory"),
                (["-o", self.dir, "-f", "svg", *touch], "is a directory"),
                (["-f", "png", "-o", "x", *touch], 'not "png"'),
                (["-r", "10000", *touch], "1 to 9999"),
                (["-t", "gil", *touch], 'type "gil" is not built yet; built: cpu'),
                (["-l", "x", *touch], "NAME=VALUE"),
                (["-l", "1x=y", *touch], 'strata record: "1x" is no name of a label'),
                (["-d", "0", *touch], "strata record: -d 0: must be longer than nothing"),
                (["-p", "1", *touch], "exclude each other"),
                (["--server", "http://127.0.0.1:1", *touch], "no server at http://127.0.0.1:1"),
                ([], "nothing to record")):
            _, err = self.record(*arguments, status=125)
            self.assertIn(text, err)
        env = {**self.env, "STRATA_SERVER": "http://127.0.0.1:1"}
        _, err = self.record(*touch, status=125, env=env)
        self.assertIn("no server at http://127.0.0.1:1", err)
        self.assertFalse(os.path.exists(ran))
        self.assertEqual(os.listdir(self.dir), ["tmp"])

    def as_nobody(self, *arguments):
        if not shutil.which("setpriv"):
            self.skipTest("no setpriv")
        home = self.path("home")  # programs where that user can read them
        for folder, program in (("cli", STRATA), ("agent", AGENT), ("server", STRATAD)):
            os.makedirs(os.path.join(home, folder), exist_ok=True)
            if not os.path.exists(os.path.join(home, folder, os.path.basename(program))):
                shutil.copy(program, os.path.join(home, folder))
        shutil.copy(BURN, home)
        os.makedirs(os.path.join(home, "w"), exist_ok=True)
        os.chmod(os.path.join(home, "w"), 0o777)
        return subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                               "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
                               os.path.join(home, "cli/strata"), "record", *arguments],
                              cwd=os.path.join(home, "w"), env={**self.env, "HOME": home},
                              capture_output=True, text=True, timeout=60)

    def test_without_rights(self):
        """Own processes without any capability; others are refused, with the table of why."""
        done = self.as_nobody("--no-server", "-p", "1", "-d", "1")
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("nothing can sample here", done.stderr)
        for row in ("cap_bpf", "cap_perfmon", "user: perf", "user: ptrace"):
            self.assertRegex(done.stderr, rf"(?m)^{row} +impossible +\S")
        done = self.as_nobody("--no-server", "-r", "499", "--", "sh", "-c",
                              "echo | ../burn 0.5; exit 4")
        if "nothing can sample here" in done.stderr:
            self.assertEqual(done.returncode, 125)
            self.skipTest("neither perf nor ptrace for users here")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertRegex(done.stderr, r"(?m)^source +user: no kernel stacks")
        self.assertRegex(done.stderr, r"(?m) leaf +\[burn\]$")
        done = self.as_nobody("-t", "offcpu", "-o", "a.svg", "--", "../burn", "0.2")
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("offcpu was not recorded, so a.svg is not written", done.stderr)
        done = self.as_nobody("--no-server", "--", "missing-command")
        self.assertEqual((done.returncode, done.stderr),
                         (127, "strata: missing-command: not found\n"))

    # ---- the command is left alone ----------------------------------------------------------
    def test_streams_environment_and_user(self):
        p = subprocess.run([STRATA, "record", "-q", "--no-server", "-l", "a=b", "--", "sh", "-c",
                            "cat; env | grep -c STRATA_; ulimit -n; echo to-stderr >&2"],
                           input="from stdin\n", capture_output=True, text=True, cwd=self.dir,
                           timeout=60, env={k: v for k, v in self.env.items()
                                            if not k.startswith("STRATA")})
        limit = subprocess.run(["sh", "-c", "ulimit -n"], capture_output=True, text=True).stdout
        self.assertEqual(p.stdout, "from stdin\n0\n" + limit)
        self.assertIn("to-stderr\n", p.stderr)

    def test_sudo(self):
        os.chown(self.dir, NOBODY, NOBODY)
        env = {**self.env, "SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
        for name in ("a.strata", "a.folded"):
            out, _ = self.record("-o", self.path(name), "--", "sh", "-c",
                                 f"id -u; id -g; {' '.join(burn(0.1)[2:])}", env=env)
            self.assertEqual(out.splitlines()[:2], [str(NOBODY), str(NOBODY)])
            self.assertEqual(os.stat(self.path(name)).st_uid, NOBODY)

    # ---- formats ----------------------------------------------------------------------------
    def test_formats(self):
        def folded(path):
            with open(path, encoding="utf-8") as f:
                return sum(int(line.rsplit(" ", 1)[1]) for line in f)

        def pprof(path):
            with open(path, "rb") as f:
                p = Pprof(f.read())
            self.assertEqual(p.period, PERIOD)
            return p.total([t[0] for t in p.types].index("cpu"))

        def speedscope(path):
            with open(path, encoding="utf-8") as f:
                j = json.load(f)
            self.assertEqual(j["$schema"], "https://www.speedscope.app/file-format-schema.json")
            (p,) = j["profiles"]
            self.assertEqual((p["type"], p["unit"], p["startValue"]), ("sampled", "nanoseconds", 0))
            self.assertEqual(len(p["samples"]), len(p["weights"]))
            n = len(j["shared"]["frames"])
            self.assertTrue(all(0 <= i < n for s in p["samples"] for i in s))
            self.assertTrue(all(f["name"] for f in j["shared"]["frames"]))
            self.assertEqual(sum(p["weights"]), p["endValue"])
            return p["endValue"]

        def tree(path):
            with open(path, encoding="utf-8") as f:
                return int(json.load(f)["node"]["total"][0])

        for name, read in (("a.folded", folded), ("a.collapsed", folded), ("a.txt", folded),
                           ("a.pb.gz", pprof), ("a.pprof", pprof),
                           ("a.speedscope.json", speedscope), ("a.json", tree)):
            path = self.path(name)
            _, err = self.record("-o", path, "--", *burn(0.25))
            self.assertIn(f"file        {path}", err)
            self.assertEqual(read(path), samples_of(err) * PERIOD, name)
            self.assertFalse(os.path.exists(path + ".partial"))
        _, err = self.record("-o", self.path("a.svg"), "--", *burn(0.25))
        svg = xml.dom.minidom.parse(self.path("a.svg"))
        titles = [t.firstChild.data for t in svg.getElementsByTagName("title")]
        text = " ".join(t.firstChild.data for t in svg.getElementsByTagName("text"))
        self.assertTrue(any(t.startswith("leaf: ") for t in titles), titles)
        self.assertIn(f"{samples_of(err):,}", text)
        _, err = self.record("-o", self.path("report"), "-f", "text", "--", *burn(0.25))
        with open(self.path("report"), encoding="utf-8") as f:
            report = f.read()
        self.assertIn("leaf", report)
        self.assertNotIn("[[", report)
        self.assertIn(f"{samples_of(err):,}", report)

    def test_type_of_the_file(self):
        def folded(*arguments):
            path = self.path("a.folded")
            _, err = self.record("-o", path, *arguments)
            with open(path, encoding="utf-8") as f:
                lines = f.read().splitlines()
            return lines, sum(int(line.rsplit(" ", 1)[1]) for line in lines), err

        sleep = ["--", "sleep", "1.2"]
        lines, total, err = folded("-t", "offcpu", *sleep)
        self.assertGreaterEqual(total, 1.15e9, lines)
        self.assertIn("holds       offcpu alone; recorded besides: cpu (-o FILE.strata", err)
        wall, off = (float(re.search(rf"^{name} +([\d.]+) s", err, re.M).group(1))
                     for name in ("wall time", "offcpu"))
        self.assertGreaterEqual(wall, 1.2)
        self.assertAlmostEqual(off, total / 1e9, delta=0.006)
        self.assertRegex(err, r"(?m)^functions +by offcpu\n +self .*\n +1\.\d+ s ")
        _, total, err = folded("-t", "runq,offcpu", *sleep)
        self.assertIn("holds       runq alone; recorded besides: cpu, offcpu (", err)
        self.assertRegex(err, r"(?m)^offcpu +1\.\d+ s of threads off the CPU$")
        for types in ((), ("-t", "cpu"), ("-t", "cpu,offcpu")):
            _, total, err = folded(*types, "--", *burn(0.25))
            self.assertEqual(total, samples_of(err) * PERIOD)
            self.assertIn("holds       cpu alone", err)

    def test_the_way_to_the_other_types(self):
        path = self.path("a.strata")
        _, err = self.record("-o", path, "--", "sleep", "1.2")
        self.assertIn(f"each by itself: strata view {path}, and its type\n", err)
        self.assertNotIn("holds ", err)
        with Server() as s:
            _, err = self.record("--server", s.url, "--", "sleep", "1.2")
            command = re.search(r"each by itself: strata (.*)", err).group(1)
            out, _ = self.run_it(*shlex.split(command.replace("TYPE", "offcpu")))
            self.assertRegex(out, r"^offcpu nanoseconds.* 1\.\d+ s, n = ")

    def test_standard_output(self):
        out, err = self.record("-q", "-o", "-", "-f", "folded", "--", *burn(0.2))
        self.assertEqual(err, "")
        # the burner prints its clock first: its standard output is untouched
        lines = [line for line in out.splitlines() if not line.startswith("burned")]
        self.assertTrue(any(";leaf " in line for line in lines), out)
        p = subprocess.run([STRATA, "record", "-q", "-o", "-", "-f", "strata", "--", "true"],
                           capture_output=True, cwd=self.dir, env=self.env, timeout=60)
        self.assertEqual(p.stdout[:6], b"\x93STRA\r")

    def test_time_agrees(self):
        _, err = self.record("--no-server", "--", *burn(1.0))
        m = re.search(r"([\d.]+) s measured, .* profiled \(([\d.]+) %\)", err)
        self.assertTrue(m, err)
        print(f"measured {m.group(1)} s, profiled {m.group(2)} %")
        self.assertGreater(float(m.group(1)), 0.9)
        # sampling error: sqrt(T * P) of 1 s at 999 Hz is 3 %; ten of them
        self.assertLess(abs(float(m.group(2)) - 100), 30, err)

    # ---- children, processes ----------------------------------------------------------------
    def test_children(self):
        both = ["sh", "-c", f"{burn(0.2)[2]} & {burn(0.2)[2]} & wait"]
        _, err = self.record("--no-server", "--", *both)
        self.assertGreaterEqual(int(re.search(r"Hz, (\d+) process", err).group(1)), 2)
        n = samples_of(err)
        out, err = self.record("--no-server", "--no-children", "--", *both)
        self.assertTrue("0 samples" in err or samples_of(err) < n / 4, err)

    def test_pid(self):
        p, other = (subprocess.Popen([BURN, "600"], stdin=subprocess.PIPE,
                                     stdout=subprocess.DEVNULL) for _ in range(2))
        try:
            for x in (p, other):
                x.stdin.write(b"\n")
                x.stdin.close()
            _, err = self.record("--no-server", "-p", str(p.pid), "-d", "1s")
            self.assertIn(" 1 process", err)
            self.assertRegex(err, r"(?m) leaf +\[burn\]$")
            self.assertGreater(samples_of(err), 0)
            r = self.start("record", "-o", self.path("b.folded"), "-p", str(p.pid), "-p",
                           str(other.pid))
            self.wait_recording("b.folded", p.pid, other.pid)
            r.send_signal(signal.SIGINT)
            _, err = self.end(r)
            self.assertIn(" 2 processes", err)
            self.assertIsNone(p.poll())
            r = self.start("record", "-o", self.path("c.folded"), "-p", str(p.pid))
            self.wait_recording("c.folded", p.pid)
            p.kill()
            p.wait()
            self.end(r)  # ends with the process
        finally:
            for x in (p, other):
                x.kill()
                x.wait()

    def wait_recording(self, name, *pids):
        """Until it records, and each of these has used CPU time since: 0.5 s are 500 ticks."""
        wait_for(lambda: os.path.exists(self.path(name + ".partial")))
        used = [cpu_clock_ns(pid) for pid in pids]
        wait_for(lambda: all(cpu_clock_ns(pid) - u > S // 2 for pid, u in zip(pids, used)))

    # ---- the end ----------------------------------------------------------------------------
    def test_duration(self):
        begin, go_on = time.monotonic(), self.path("go-on")
        r = self.start("record", "-d", "500ms", "-o", self.path("a.folded"), "--", "sh", "-c",
                       f"{burn(0.3)[2]}; until [ -e {go_on} ]; do sleep 0.1; done; exit 5")
        wait_for(lambda: os.path.exists(self.path("a.folded")) and
                 os.path.getsize(self.path("a.folded")))
        print(f"-d 500ms: file after {time.monotonic() - begin:.1f} s")
        self.assertIsNone(r.poll(), "the command still runs")
        with open(go_on, "w", encoding="ascii"):
            pass
        _, err = self.end(r, 5)
        self.assertRegex(err, r"CPU time +\d+.* measured, ", "though the command went on")
        self.assertNotIn("unknown", err)

    def test_interrupt(self):
        mark = self.path("mark")
        r = self.start("record", "-o", self.path("a.folded"), "--", "sh", "-c",
                       f"trap 'exit 7' INT; echo $$ >{mark}; while :; do :; done")
        wait_for(lambda: os.path.exists(mark) and os.path.getsize(mark))
        with open(mark, encoding="ascii") as f:
            self.wait_recording("a.folded", int(f.read()))
        r.send_signal(signal.SIGINT)  # to strata alone: it hands it on
        _, err = self.end(r, 7)
        self.assertGreater(samples_of(err), 0)
        with open(self.path("a.folded"), encoding="utf-8") as f:
            self.assertEqual(sum(int(x.rsplit(" ", 1)[1]) for x in f), samples_of(err) * PERIOD)
        self.assertFalse(os.path.exists(self.path("a.folded.partial")))

    def test_interrupt_twice(self):
        mark = self.path("mark")
        r = self.start("record", "-o", self.path("a.svg"), "--", "sh", "-c",
                       f"trap '' INT; touch {mark}; while [ -e {mark} ]; do :; done; exit 9")
        wait_for(lambda: os.path.exists(self.path("a.svg.partial")) and
                 os.path.getsize(self.path("a.svg.partial")) > 2000)
        for _ in range(2):
            r.send_signal(signal.SIGINT)
            time.sleep(1)  # two that come at once are one
        os.unlink(mark)
        _, err = self.end(r, 125)
        self.assertIn("interrupted twice", err)
        self.assertFalse(os.path.exists(self.path("a.svg")))
        self.look(self.path("a.svg.partial"), part=True)

    def test_killed(self):
        """Whatever ends us, what was taken can be looked at."""
        r = self.start("record", "-o", self.path("a.pb.gz"), "--", *burn(60))
        wait_for(lambda: os.path.exists(self.path("a.pb.gz.partial")) and
                 os.path.getsize(self.path("a.pb.gz.partial")) > 2000)
        agent = subprocess.run(["ps", "--ppid", str(r.pid), "-o", "pid="], capture_output=True,
                               text=True).stdout.split()
        children = subprocess.run(["ps", "--ppid", agent[0], "-o", "pid="], capture_output=True,
                                  text=True).stdout.split()
        burners = subprocess.run(["ps", "--ppid", children[0], "-o", "pid="], capture_output=True,
                                 text=True).stdout.split()
        os.kill(int(agent[0]), signal.SIGKILL)
        for pid in children + burners:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        _, err = r.communicate(timeout=120)
        self.assertEqual(r.returncode, 125)
        self.assertIn("ended by signal 9", err)
        self.look(self.path("a.pb.gz.partial"), part=True)

    # ---- a terminal -------------------------------------------------------------------------
    def terminal(self, *arguments):
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.dir)
            os.execve(STRATA, [STRATA, *arguments], self.env)
        return pid, fd

    def read_until(self, fd, pattern, text="", seconds=60):
        end = time.monotonic() + seconds
        while not re.search(pattern, text):
            self.assertLess(time.monotonic(), end, text)
            if select.select([fd], [], [], 0.2)[0]:
                try:
                    text += os.read(fd, 65536).decode(errors="replace")
                except OSError:
                    break
        self.assertRegex(text, pattern)
        return text

    def test_terminal(self):
        """The line a second, Ctrl-C from the keyboard, a server of its own until the next one."""
        with socket.socket() as s:  # nothing answers at the default address, or it is used
            if s.connect_ex(("127.0.0.1", 4040)) == 0:
                self.skipTest("a server answers at the default address")
        self.env["XDG_STATE_HOME"] = self.path("state")
        begin = time.monotonic()
        pid, fd = self.terminal("record", "--", "sh", "-c",
                                "trap 'exit 6' INT; while :; do :; done")
        text = self.read_until(fd, r"live at (http://127\.0\.0\.1:\d+/[0-9a-f]{32})/")
        url = re.search(r"live at (http://\S+?)/\?", text).group(1)

        def seen():
            with urllib.request.urlopen(f"{url}/api/v1/top?q=cpu&from=now-1m") as a:
                total = json.load(a)["total"]
            return total and int(total) > 0

        wait_for(seen)
        print(f"first picture after {time.monotonic() - begin:.1f} s")
        text = self.read_until(fd, r"[1-9]\d* s · [\d,]+ samples · lost [\d.]+ % · 1 process", text)
        os.write(fd, b"\x03")
        text = self.read_until(fd, r"Ctrl-C ends\.", text)
        self.assertIn("samples  ", text)
        link = re.search(r"link +(\S+)", text).group(1)
        self.assertTrue(link.startswith(url + "/?v=1&q=cpu%7Bcapture%3D%22sh-"), link)
        with urllib.request.urlopen(link) as page:
            self.assertIn(b"<html", page.read().lower())
        os.write(fd, b"\x03")
        _, status = os.waitpid(pid, 0)
        os.close(fd)
        self.assertEqual(os.waitstatus_to_exitcode(status), 6)
        (kept,) = glob.glob(self.path("state/strata/sh-*.strata"))
        self.look(kept)

    def test_no_terminal(self):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", 4040)) == 0:
                self.skipTest("a server answers at the default address")
        _, err = self.record("--", *burn(0.2))
        self.assertNotIn("link", err)
        self.assertNotIn("\x1b", err)
        (kept,) = glob.glob(self.path("strata-sh-*.strata"))
        self.look(kept)
        os.unlink(kept)
        _, err = self.record("--no-server", "--", *burn(0.2))
        self.assertGreater(samples_of(err), 0)
        self.assertEqual(os.listdir(self.dir), ["tmp"])

    # ---- capture files, servers -------------------------------------------------------------
    def look(self, file, part=False):
        """strata view: the total of the picture."""
        v = self.start("view", "--no-open", file)
        try:
            link = v.stdout.readline().strip()
            self.assertTrue(link.startswith("http://127.0.0.1:"), link)
            at = urllib.parse.urlsplit(link)
            base = f"{at.scheme}://{at.netloc}{at.path}"
            q = dict(urllib.parse.parse_qsl(at.query))
            ask = urllib.parse.urlencode({k: q[k] for k in ("q", "from", "to")})
            with urllib.request.urlopen(f"{base}api/v1/flamegraph?{ask}") as a:
                answer = json.load(a)
            total = int(answer["total"])
            seen = answer["coverage"]
            if not part:  # the link is just as long as what was watched
                self.assertGreater(int(seen["covered_ns"]), 0.98 * int(seen["asked_ns"]), seen)
            with urllib.request.urlopen(link) as page:
                self.assertIn(b"<html", page.read().lower())
            for path in ("/", "/api/v1/status"):  # without the secret there is nothing
                with self.assertRaises(urllib.error.HTTPError) as e:
                    urllib.request.urlopen(f"{at.scheme}://{at.netloc}{path}")
                self.assertEqual(e.exception.code, 404)
                e.exception.close()
        finally:
            v.send_signal(signal.SIGINT)
            _, err = self.end(v)
        self.assertGreater(total, 0)
        self.assertEqual("a part only" in err, part, err)
        return total

    def test_view_and_import(self):
        file = self.path("a.strata")
        _, err = self.record("-o", file, "-l", "version=abc", "--service", "svc", "--",
                             *burn(0.3))
        n = samples_of(err)
        self.assertEqual(self.look(file), n * PERIOD)
        with Server() as s:
            env = {**self.env, "STRATA_SERVER": s.url}

            def total():
                return int(s.get("/api/v1/top", q='cpu{version="abc",service="svc"}',
                                 **hour()).json()["total"])

            out, _ = self.run_it("import", file, env=env)
            self.assertRegex(out, r"[1-9]\d* batches stored, 0 there already")
            self.assertEqual(total(), n * PERIOD)
            out, _ = self.run_it("import", "--server", s.url, file)
            self.assertRegex(out, r" 0 batches stored, [1-9]\d* there already")
            self.assertEqual(total(), n * PERIOD)
            span = ("--from", "now-1h", "--to", hour()["to"])
            out, _ = self.run_it("export", "--service", "svc", *span, "--format", "folded",
                                 env=env)
            self.assertEqual(sum(int(x.rsplit(" ", 1)[1]) for x in out.splitlines()), n * PERIOD)
            self.run_it("export", "--type", "cpu", "--service", "svc", *span,
                        "-o", self.path("x.pb.gz"), env=env)
            with open(self.path("x.pb.gz"), "rb") as f:
                p = Pprof(f.read())
            self.assertEqual(p.total([t[0] for t in p.types].index("cpu")), n * PERIOD)
            self.run_it("export", "--service", "svc", "-o", self.path("x"), env=env, status=2)

    def test_cut_and_damaged(self):
        file = self.path("a.strata")
        self.record("-q", "-o", file, "--", *burn(2.5))
        with open(file, "rb") as f:
            whole = f.read()
        with Server() as s:
            for name, data, status, text in (
                    ("cut", whole[:-10], 0, "the file ends inside a record"),
                    ("cut2", whole[:40], 0, "the file ends inside a record"),
                    ("bent", whole[:-1] + bytes([whole[-1] ^ 1]), 2, "a record is damaged"),
                    ("head", whole[:40] + b"\xff" + whole[41:], 2, "a record is damaged"),
                    ("other", b"x" * 100, 2, "is no capture file"),
                    ("empty", b"", 2, "is no capture file"),
                    ("later", whole[:8] + b"\x02" + whole[9:], 2, "version 2")):
                with open(self.path(name), "wb") as f:
                    f.write(data)
                out, err = self.run_it("import", "--server", s.url, self.path(name), status=status)
                self.assertIn(text, out + err, name)
        self.run_it("import", "--server", "http://127.0.0.1:1", self.path("other"), status=2)
        for name, text in (("other", "is no capture file"), ("cut2", "holds no samples"),
                           ("nothing", "nothing: No such file or directory"),
                           ("tmp", "tmp is a directory")):
            out, err = self.run_it("view", "--no-open", self.path(name), status=2)
            self.assertEqual(out, "")
            self.assertIn(text, err)

    def test_link_of_a_part(self):
        """Where the end is not known, the link ends when the file was last written."""
        file = self.path("a.strata")
        self.record("-q", "-o", file, "--", *burn(2.5))
        with open(file, "rb") as f:
            whole = f.read()
        with open(file, "wb") as f:
            f.write(whole[:-10])
        with Server() as s:
            out, _ = self.run_it("import", "--server", s.url, file)
            link = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(out.split()[-1]).query))
            begin, end = (datetime.datetime.fromisoformat(link[x][:19]) for x in ("from", "to"))
            self.assertLess((end - begin).total_seconds(), 60)
            top = s.get("/api/v1/top", q=link["q"], **{"from": link["from"], "to": link["to"]})
            # "now" is a whole second: what was sampled within the last one comes with the next
            later = (end + datetime.timedelta(minutes=1)).isoformat() + "Z"
            every = s.get("/api/v1/top", q=link["q"], **{"from": link["from"], "to": later})
            self.assertGreater(int(top.json()["total"]), 0)
            self.assertEqual(top.json()["total"], every.json()["total"])
            begin = (begin - datetime.timedelta(hours=1)).isoformat() + "Z"
            every = s.get("/api/v1/top", q=link["q"], **{"from": begin, "to": later})
            self.assertEqual(top.json()["total"], every.json()["total"])

    def test_server(self):
        """To a shared server, as it is taken; the file of it, imported there, changes nothing."""
        with Server() as s:
            file = self.path("a.strata")
            begin = time.monotonic()
            r = self.start("record", "--server", s.url, "-o", file, "-l", "run=one", "--",
                           *burn(5))

            def total():
                return int(s.get("/api/v1/top", q='cpu{run="one",source="record"}',
                                 **hour()).json()["total"] or 0)

            wait_for(total)
            print(f"first picture on a server after {time.monotonic() - begin:.1f} s")
            self.assertIsNone(r.poll())
            _, err = self.end(r)
            n = samples_of(err)
            self.assertEqual(total(), n * PERIOD)
            self.assertIn(f"link        {s.url}/?v=1&q=cpu%7Bcapture%3D", err)
            self.assertNotIn("not sent", err)
            self.run_it("import", "--server", s.url, file)
            self.assertEqual(total(), n * PERIOD)
            # without -o it needs no name: STRATA_SERVER
            env = {**self.env, "STRATA_SERVER": s.url}
            _, err = self.record("-l", "run=two", "--", *burn(0.2), env=env)
            self.assertIn("link        " + s.url, err)
            self.assertEqual(sorted(os.listdir(self.dir)), ["a.strata", "tmp"])


def main():
    if os.geteuid() != 0:
        print("skip: needs root (BPF programs, ticks of every CPU)")
        return 77
    check = subprocess.run([AGENT, "check"], capture_output=True, text=True)
    if check.returncode in (2, 77):
        print("skip: " + check.stdout.splitlines()[-1])
        return 77
    unittest.main(verbosity=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
