#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The agent's rights: after its start it has the six capabilities of docs/privileges.md at most, the
thread that sends has none, nothing new can be got and the filters are loaded; each of the six taken
away is named, by check and by the running agent, and the rest works. Needs root and BPF, else 77."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_agent_run as run

CAPS = {"cap_dac_read_search": 2, "cap_sys_ptrace": 19, "cap_syslog": 34, "cap_perfmon": 38,
        "cap_bpf": 39, "cap_checkpoint_restore": 40}
TABLE = sum(1 << bit for bit in CAPS.values())
NEEDED = ("cap_bpf", "cap_perfmon")
NOBODY = 65534


def status_of(pid):
    """A dictionary of /proc/PID/task/TID/status for each thread."""
    out = []
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with open(path, encoding="ascii", errors="replace") as f:
            out.append(dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line))
    return out


def without(cap):
    """A command line in front: cap is in no set. CAP_SYS_ADMIN would stand in for some."""
    return ["setpriv", f"--bounding-set=-{cap[4:]},-sys_admin", "--inh-caps=-all"]


def as_nobody(caps):
    """As a service manager starts it: an ordinary user, ambient capabilities, no others."""
    plus = ",".join("+" + c[4:] for c in caps)
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
            f"--inh-caps=-all,{plus}", f"--ambient-caps=-all,{plus}",
            f"--bounding-set=-all,{plus}"]


class Privileges(run.Run):
    def setUp(self):
        super().setUp()
        os.chmod(self.folder.name, 0o755)
        self.state = os.path.join(self.folder.name, "state")
        # where another user can execute it
        self.program = shutil.copy(run.AGENT, os.path.join(self.folder.name, "strata-agent"))

    def start(self, before=(), *options, url="http://127.0.0.1:1"):
        log = open(os.path.join(self.folder.name, "log"), "ab")
        p = subprocess.Popen([*before, self.program, "--state-dir", self.state, "-o",
                              f"server.url={url}", *options], stdout=log, stderr=log)
        log.close()
        self.closing.append(lambda: p.poll() is None and (p.kill(), p.wait()))
        end = time.monotonic() + 120
        while time.monotonic() < end and p.poll() is None:
            try:
                if run.sink.read_status(os.path.join(self.state, "status"))["pid"] == p.pid:
                    return p
            except (OSError, ValueError):
                pass
            time.sleep(0.05)
        with open(log.name, encoding="utf-8", errors="replace") as f:
            self.fail(f"the agent does not run: {p.poll()}\n{f.read()}")

    def end(self, p):
        p.terminate()
        self.assertEqual(p.wait(120), 0)

    def check_sets(self, p, table=TABLE, uid=0):
        """Of every thread; returns the smallest and the largest effective set."""
        threads = status_of(p.pid)
        sets = set()
        for t in threads:
            eff = int(t["CapEff"], 16)
            sets.add(eff)
            self.assertEqual(eff & ~table, 0, t)
            self.assertEqual(int(t["CapPrm"], 16), eff)
            self.assertEqual(int(t["CapInh"], 16) | int(t["CapAmb"], 16), 0)
            self.assertEqual(int(t["CapBnd"], 16) & ~TABLE, 0)
            self.assertEqual((t["NoNewPrivs"], t["Seccomp"]), ("1", "2"), t)
            self.assertEqual(t["Uid"].split(), [str(uid)] * 4)
            self.assertEqual(eff == 0, t["Name"] == "upload", t)
        print(f"{len(threads)} threads, uid {uid}, NoNewPrivs 1, Seccomp 2, "
              f"CapEff {sorted(hex(s) for s in sets)} of {TABLE:#x}")
        self.assertEqual(sets, {0, table})
        return threads

    def test_sets(self):
        """Root without a user of its own."""
        p = self.start((), "--user", "root")
        self.check_sets(p)
        done = subprocess.run(["setpriv", f"--reuid={NOBODY}", "--clear-groups", "cat",
                               f"/proc/{p.pid}/environ"], capture_output=True, check=False)
        self.assertNotEqual(done.returncode, 0)  # not dumpable: nobody may look into it
        self.end(p)

    def test_user(self):
        """Root hands its state directory over, with what an older run as root left in it, and the
        agent of the user goes on with it: same identity, batches sent, whole stacks of others."""
        p = self.start((), "--user", "root")
        self.end(p)
        names = os.listdir(os.path.join(self.state, "spool"))
        self.assertTrue([n for n in names if n.endswith(".batch")], names)
        with open(os.path.join(self.state, "agent-id"), "rb") as f:
            before = f.read()
        server = self.sink()
        burner = self.burner()
        burner.go()
        p = self.start((), "--user", "nobody", url=server.url)
        self.check_sets(p, uid=NOBODY)


        def whole():
            stacks = [b.stack(r["node"]) for b in server.batches() for r in b.rows()
                      if r["labels"]["service"] == run.SERVICE]
            return [s for s in stacks if s and "leaf" in s and "main" in s]

        def spooled():
            return run.sink.read_status(os.path.join(self.state, "status"))["figures"][
                "agent_batches_spooled"]

        run.wait_for(whole, "the burner's stacks")
        run.wait_for(lambda: spooled() == 0, "what was spooled before")
        self.end(p)
        for folder, _, files in os.walk(self.state):
            for path in [folder] + [os.path.join(folder, f) for f in files]:
                self.assertEqual(os.stat(path).st_uid, NOBODY, path)
        with open(os.path.join(self.state, "agent-id"), "rb") as f:
            self.assertEqual(f.read(), before)
        self.assertEqual([n for n in os.listdir(os.path.join(self.state, "spool"))
                          if n.endswith(".batch")], [])
        status = run.sink.read_status(os.path.join(self.state, "status"))
        self.assertEqual(status["runs_as"], "user nobody")
        self.assertEqual(status["degraded"], "")
        self.assertGreater(status["figures"]["agent_batches_inherited"], 0)

    def test_not_handed_over(self):
        """A directory that is not an agent's stays whose it is."""
        os.mkdir(self.state, 0o755)
        with open(os.path.join(self.state, "passwd"), "w", encoding="ascii") as f:
            f.write("x")
        done = subprocess.run([self.program, "check", "--user", "nobody", "--state-dir",
                               self.state], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertRegex(done.stdout, r"state_dir +degraded .*owner 0, mode 0755")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(os.stat(self.state).st_uid, 0)
        self.assertEqual(os.stat(os.path.join(self.state, "passwd")).st_uid, 0)

    def test_check_hands_nothing_over(self):
        """A look changes no owner, and makes no directory."""
        def check():
            done = subprocess.run([self.program, "check", "--user", "nobody", "--state-dir",
                                   self.state], capture_output=True, text=True, timeout=120,
                                  check=False)
            self.assertRegex(done.stdout, r"state_dir +ok +root's: a run hands it over")

        check()
        self.assertFalse(os.path.exists(self.state))
        self.end(self.start((), "--user", "root"))
        check()
        for folder, _, files in os.walk(self.state):
            for path in [folder] + [os.path.join(folder, f) for f in files]:
                self.assertEqual(os.stat(path).st_uid, 0, path)

    def test_no_such_user(self):
        done = subprocess.run([self.program, "--user", "nosuchuser", "--state-dir", self.state],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("privileges.user = nosuchuser: no such user", done.stderr)

    def check_without(self, cap, before):
        """What check says without this one."""
        done = subprocess.run([*before, self.program, "check", "--user", "root", "--state-dir",
                               self.state], capture_output=True, text=True, timeout=60,
                              check=False)
        bad = re.findall(r"^(cap_\S+) +(?:degraded|impossible)", done.stdout, re.M)
        self.assertEqual(bad, [cap], done.stdout)
        row = re.search(rf"^{cap} .*$", done.stdout, re.M).group()
        if cap in NEEDED:
            self.assertRegex(row, "impossible .*" + cap.upper() + ".* -- .*root")
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertRegex(done.stdout, f"no BPF here: {cap}: ")
        else:
            self.assertRegex(row, "degraded .*" + cap.upper() + ".* -- .*grant")
            self.assertRegex(done.stdout, r"self_test +ok +\d+ of \d+ stacks")
            self.assertEqual(done.returncode, 1, done.stdout)
        return row

    def test_each_removed(self):
        """From root, and from an ordinary user with the other five."""
        for cap in CAPS:
            with self.subTest(without=cap):
                shutil.rmtree(self.state, ignore_errors=True)
                print(self.check_without(cap, without(cap)))
                shutil.rmtree(self.state, ignore_errors=True)
                os.mkdir(self.state, 0o700)
                os.chown(self.state, NOBODY, NOBODY)
                self.check_without(cap, as_nobody([c for c in CAPS if c != cap]))

    def test_running_without(self):
        """An ordinary user with five of the six: named in status and batches, and the rest works."""
        for cap in ("cap_sys_ptrace", "cap_checkpoint_restore", "cap_dac_read_search",
                    "cap_syslog"):
            with self.subTest(without=cap):
                shutil.rmtree(self.state, ignore_errors=True)
                os.mkdir(self.state, 0o700)
                os.chown(self.state, NOBODY, NOBODY)
                server = self.sink()
                p = self.start(as_nobody([c for c in CAPS if c != cap]), url=server.url)
                self.check_sets(p, table=TABLE & ~(1 << CAPS[cap]), uid=NOBODY)
                run.wait_for(lambda: [b for b in server.batches() if b.weight()], "samples")
                self.end(p)
                status = run.sink.read_status(os.path.join(self.state, "status"))
                self.assertIn(cap, status["degraded"].split(", "))
                said = [text for b in server.batches() for kind, text in b.events
                        if kind == "state" and f"check={cap} " in text]
                self.assertEqual(len(said), 1)
                self.check_books(status, server.batches())
                self.assertGreater(status["figures"]["agent_samples"], 0)


for name in [n for n in vars(run.Run) if n.startswith("test_")]:
    delattr(run.Run, name)  # not these tests again, only what they stand on
del run.Check, run.NoRights


if __name__ == "__main__":
    sys.exit(run.main())
