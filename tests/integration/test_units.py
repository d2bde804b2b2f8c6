#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The units of systemd, held against what the programs do. systemd itself is not started: the units
are verified and rated offline, the calls that the programs make are compared with the calls that the
units let pass, and the agent runs with the user, the capabilities and the read-only file system that
its unit gives it. 77 without systemd-analyze."""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stratasink as sink

AGENT = os.environ.get("STRATA_AGENT", "build/agent/strata-agent")
STRATAD = os.environ.get("STRATAD", "build/server/stratad")
CALLS = os.path.join(os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent"), "sandboxcalls")
UNITS = os.environ.get("STRATA_UNITS", "build/packaging")
NOBODY = 65534
EXPOSURE = {"strata-agent": 3.5, "stratad": 1.5}
RAISED = ("cap_bpf", "cap_perfmon", "cap_sys_ptrace", "cap_checkpoint_restore",
          "cap_dac_read_search", "cap_syslog")


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True,
                          check=False, env={**os.environ, "SYSTEMD_PAGER": "", "LC_ALL": "C"})


def directives(name):
    """Key -> list of values, in their order."""
    out = {}
    with open(os.path.join(UNITS, name + ".service"), encoding="ascii") as f:
        for line in f:
            if "=" in line and not line.startswith("#"):
                key, value = line.rstrip("\n").split("=", 1)
                out.setdefault(key, []).append(value)
    return out


def expand(names):
    """Groups into their calls."""
    out = set()
    for name in names:
        if not name.startswith("@"):
            out.add(name)
            continue
        shown = analyze("syscall-filter", name)
        if shown.returncode:
            raise RuntimeError(shown.stderr)
        out |= expand([l.strip() for l in shown.stdout.splitlines()[1:]
                       if l.strip() and not l.strip().startswith("#")])
    return out


def allowed(name):
    """Calls that the unit lets pass: a list that is allowed, then lists that are taken from it."""
    calls = set()
    for value in directives(name)["SystemCallFilter"]:
        if value.startswith("~"):
            calls -= expand(value[1:].split())
        else:
            calls |= expand(value.split())
    return calls


def traced(path, program):
    """The calls after the last execve of the program, and lines that make memory executable."""
    with open(path, encoding="utf-8", errors="replace") as f:
        lines = f.read().splitlines()
    start = max(i for i, l in enumerate(lines) if f'execve("{program}"' in l)
    calls, executable = set(), []
    for line in lines[start + 1:]:
        found = re.match(r"\d+ +(?:<\.\.\. )?(\w+)[( ]", line)
        if not found:
            continue
        calls.add(found.group(1))
        if re.search(r"\b(mprotect|mmap)\(.*(PROT_WRITE\|PROT_EXEC)", line):
            executable.append(line)
    return calls, executable


def can_sample():
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([AGENT, "check", "--state-dir", folder], capture_output=True,
                              check=False).returncode in (0, 1)


class Offline(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="strata-units-")
        self.addCleanup(shutil.rmtree, self.folder)

    def copy(self, name, program):
        """The unit with the program where it is now."""
        with open(os.path.join(UNITS, name + ".service"), encoding="ascii") as f:
            text = f.read()
        path = os.path.join(self.folder, name + ".service")
        with open(path, "w", encoding="ascii") as f:
            f.write(re.sub(r"ExecStart=\S+", "ExecStart=" + os.path.abspath(program), text))
        return path

    def test_verify(self):
        for name, program in (("strata-agent", AGENT), ("stratad", STRATAD)):
            done = analyze("verify", self.copy(name, program))
            said = [l for l in (done.stdout + done.stderr).splitlines() if name in l]
            self.assertEqual(said, [])
            with open(self.copy(name, program), "a", encoding="ascii") as f:
                f.write("\n[Service]\nNoSuchDirective=1\n")
            done = analyze("verify", f.name)  # it does look
            self.assertIn("NoSuchDirective", done.stdout + done.stderr)

    def test_exposure(self):
        for name, most in EXPOSURE.items():
            path = os.path.join(UNITS, name + ".service")
            done = analyze("security", "--offline=true", f"--threshold={int(most * 10)}", path)
            figure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
            self.assertTrue(figure, done.stdout + done.stderr)
            print(f"{name}: exposure {figure.group(1)}, at most {most}")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertNotEqual(analyze("security", "--offline=true", "--threshold=0",
                                        path).returncode, 0)

    def test_same_capabilities(self):
        """The unit's are those of the program's table."""
        d = directives("strata-agent")
        for key in ("AmbientCapabilities", "CapabilityBoundingSet"):
            self.assertEqual(sorted(d[key][0].lower().split()), sorted(RAISED))
        d = directives("stratad")
        self.assertEqual((d["AmbientCapabilities"], d["CapabilityBoundingSet"]), ([""], [""]))

    def test_own_filter_is_within(self):
        """What the agent allows itself is allowed by its unit; its unit allows what it forbids."""
        own = set(subprocess.run([CALLS], capture_output=True, text=True,
                                 check=True).stdout.split())
        unit = allowed("strata-agent")
        print(f"agent's filter: {len(own)} calls, its unit: {len(unit)}")
        self.assertEqual(own - unit, set())
        self.assertIn("execve", unit - own)
        for call in ("mount", "reboot", "init_module", "swapon", "clock_settime"):
            self.assertNotIn(call, unit)

    def test_memory_max(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                              "../../packaging/systemd/strata-agent-memory-max")
        for cpus, mib in ((1, 240.6), (64, 278.4), (224, 374.4)):
            text = subprocess.run(["sh", script, str(cpus)], capture_output=True, text=True,
                                  check=True).stdout
            self.assertRegex(text, r"\A\[Service\]\nMemoryMax=\d+K\n\Z")
            self.assertAlmostEqual(int(re.search(r"\d+", text).group()) / 1024, mib, delta=0.1)


@unittest.skipUnless(shutil.which("strace"), "no strace")
class Server(unittest.TestCase):
    def test_calls(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{s.getsockname()[1]}"
            s.close()
            trace, store = os.path.join(folder, "trace"), os.path.join(folder, "store")
            program = shutil.copy(STRATAD, os.path.join(folder, "stratad"))
            os.chmod(folder, 0o755)
            os.mkdir(store, 0o700)
            user = []
            if os.geteuid() == 0:  # for root SQLite keeps owners: another call
                os.chown(store, NOBODY, NOBODY)
                user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            p = subprocess.Popen(["strace", "-f", "-qq", "-o", trace, *user, program, "--listen",
                                  address, "--data", store],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            end = time.monotonic() + 120
            while True:
                try:
                    urllib.request.urlopen(f"http://{address}/readyz", timeout=5).close()
                    break
                except OSError:
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.1)
            for path in ("flamegraph?q=cpu&from=now-1h", "types", "status", "series?q=cpu"):
                try:
                    urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=30).close()
                except urllib.error.HTTPError:
                    pass
            # strace passes SIGTERM on to nobody
            subprocess.run(["pkill", "-TERM", "-P", str(p.pid)], check=True)
            self.assertEqual(p.wait(120), 0)
            calls, executable = traced(trace, program)
            missing = calls - allowed("stratad")
            print(f"stratad: {len(calls)} calls seen, {len(missing)} beyond its unit")
            self.assertEqual((missing, executable), (set(), []))
            self.assertGreater(len(calls), 30)


@unittest.skipUnless(can_sample(), "no BPF here")
class Agent(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="strata-units-")
        self.addCleanup(shutil.rmtree, self.folder)
        os.chmod(self.folder, 0o755)
        self.program = shutil.copy(AGENT, os.path.join(self.folder, "strata-agent"))
        self.state = os.path.join(self.folder, "state")
        os.mkdir(self.state, 0o700)
        os.chown(self.state, NOBODY, NOBODY)

    def as_unit(self):
        """A command line in front that gives what the unit gives: user, capabilities, file system."""
        d = directives("strata-agent")
        caps = ",".join("+" + c[4:].lower() for c in d["CapabilityBoundingSet"][0].split())
        self.assertEqual(d["ProtectSystem"], ["strict"])
        read_only = " && ".join(f"mount --bind {p} {p} && mount -o remount,bind,ro {p}"
                                for p in d["ReadOnlyPaths"][0].split())
        hidden = d["InaccessiblePaths"][0].lstrip("-")
        script = (f"mount --make-rslave / && mount --bind {self.state} {self.state} && "
                  f"mount -o remount,bind,ro / && {read_only} && "
                  f"{{ [ ! -e {hidden} ] || mount --bind /dev/null {hidden}; }} && "
                  f"ulimit -c 0 && exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "
                  f"--no-new-privs --inh-caps=-all,{caps} --ambient-caps=-all,{caps} "
                  f"--bounding-set=-all,{caps} \"$@\"")
        return ["unshare", "-m", "sh", "-c", script, "sh"]

    def wait_status(self, p):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            self.assertIsNone(p.poll(), "the agent ended")
            try:
                status = sink.read_status(os.path.join(self.state, "status"))
                if status["figures"]["agent_batches_sent"] > 1:
                    return status
            except (OSError, ValueError):
                pass
            time.sleep(0.1)
        return self.fail("no batch is sent")

    def test_as_its_unit(self):
        """User, capabilities and file system of the unit: all rows of check are ok, batches go."""
        server = sink.Ingest()
        self.addCleanup(server.close)
        done = subprocess.run([*self.as_unit(), self.program, "check", "--state-dir", self.state],
                              capture_output=True, text=True, timeout=60, check=False)
        rows = dict(l.split()[:2] for l in done.stdout.splitlines())
        self.assertEqual({n for n, s in rows.items() if s != "ok"}, set(), done.stdout + done.stderr)
        self.assertEqual(done.returncode, 0)
        p = subprocess.Popen([*self.as_unit(), self.program, "--state-dir", self.state, "-o",
                              f"server.url={server.url}"])
        self.addCleanup(p.kill)
        status = self.wait_status(p)
        with open(f"/proc/{p.pid}/mounts", encoding="ascii") as f:
            root = [l.split()[3] for l in f if l.split()[1] == "/"][-1]
        self.assertIn("ro", root.split(","))
        p.terminate()
        self.assertEqual(p.wait(120), 0)
        print(f"as its unit: {status['figures']['agent_samples']} samples, "
              f"{status['figures']['agent_batches_sent']} batches, degraded: "
              f"{status['degraded'] or 'nothing'}")
        self.assertEqual(status["degraded"], "")

    @unittest.skipUnless(shutil.which("strace"), "no strace")
    def test_calls(self):
        """Under strace: the calls of a run are among those of the unit, no memory is writable and
        executable, and the own filter has refused nothing; but the path that libdw wants to know of
        what the reader was handed."""
        server = sink.Ingest()
        self.addCleanup(server.close)
        trace = os.path.join(self.folder, "trace")
        caps = ",".join("+" + c[4:] for c in RAISED)
        p = subprocess.Popen(["strace", "-f", "-qq", "-o", trace, "setpriv", f"--reuid={NOBODY}",
                              f"--regid={NOBODY}", "--clear-groups", f"--inh-caps=-all,{caps}",
                              f"--ambient-caps=-all,{caps}", self.program, "--state-dir",
                              self.state, "-o", f"server.url={server.url}"],
                             stderr=subprocess.DEVNULL)
        self.addCleanup(p.kill)
        self.wait_status(p)
        subprocess.run(["pkill", "-TERM", "-P", str(p.pid)], check=True)
        self.assertEqual(p.wait(120), 0)
        calls, executable = traced(trace, self.program)
        missing = calls - allowed("strata-agent")
        print(f"strata-agent: {len(calls)} calls seen, {len(missing)} beyond its unit")
        self.assertEqual((missing, executable), (set(), []))
        self.assertGreater(len(calls), 30)
        with open(trace, encoding="utf-8", errors="replace") as f:
            text = f.read().split("seccomp(SECCOMP_SET_MODE_FILTER", 1)[1]
        self.assertEqual([l for l in text.splitlines() if l.endswith("EPERM (Operation not permitted)")
                          and not re.match(r"\d+ +(<\.\.\. )?readlink\b", l)], [])


if __name__ == "__main__":
    if not shutil.which("systemd-analyze"):
        print("skip: no systemd-analyze")
        sys.exit(77)
    unittest.main()
