#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""strata-agent dump, as an ordinary user sees it: every thread's stack, and nothing disturbed.

Stacks of blocked threads are compared with gdb's `bt` of the same process, function by function.
"""
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import agent_lib

AGENT = os.environ["STRATA_AGENT"]
CHAIN = ["work_leaf"] + ["work_inner"] * 4 + ["work_outer"]
STAND_MS = 50
NO_CPU = "did not get a CPU"


class Program:
    def __init__(self, *args, path=None):
        self.proc = subprocess.Popen([path or agent_lib.tool("threads"), *map(str, args)],
                                     stdout=subprocess.PIPE, text=True)
        assert self.proc.stdout.readline() == "ready\n"
        self.pid = self.proc.pid
        self.settle(args[-1])

    def settle(self, mode, seconds=60):
        """Until every thread is where it says: asleep, or in its chain by its CPU time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            tasks = [agent_lib.read(f"/proc/{self.pid}/task/{t}/stat").rsplit(")", 1)[-1].split()
                     for t in os.listdir(f"/proc/{self.pid}/task")]
            asleep = sum(t[0] == "S" for t in tasks)
            used = [int(t[11]) + int(t[12]) for t in tasks]
            if asleep == len(tasks) or (mode in ("spin", "sys") and asleep == 1 and
                                        sum(u > 0 for u in used) >= len(tasks) - 1):
                time.sleep(0.1)
                return
            time.sleep(0.02)
        raise AssertionError(f"the threads are not there after {seconds} s")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proc.kill()
        self.out = self.proc.communicate()[0]


def run(pid, *args, before=()):
    return subprocess.run([*before, AGENT, "dump", "-p", str(pid), *args], capture_output=True,
                          text=True, timeout=180)


def functions(thread):
    return [f["function"].split("@")[0] for f in thread["frames"]]


def has_chain(thread):
    f = functions(thread)
    return any(f[i:i + len(CHAIN)] == CHAIN for i in range(len(f)))


def gdb(pid):
    """tid -> functions, leaf first."""
    r = subprocess.run(["gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex",
                        "thread apply all bt", "-p", str(pid)], capture_output=True, text=True,
                       timeout=60, env={**os.environ, "LC_ALL": "C"})
    found, tid = {}, None
    for line in r.stdout.splitlines():
        m = re.match(r"Thread \d+ .*LWP (\d+)", line)
        if m:
            tid = int(m[1])
            found[tid] = []
        m = re.match(r"#\d+\s+(?:0x[0-9a-f]+ in )?(\S+) \(", line)
        if m and tid:
            found[tid].append((m[1], "0x" in line.split("(")[0]))
    return found


class Dump(unittest.TestCase):
    def dump(self, pid, *args):
        r = run(pid, "--json", *args)
        self.assertEqual(r.returncode, 0, r.stderr)
        d = json.loads(r.stdout)
        return d

    def test_blocked_as_gdb(self):
        if not shutil.which("gdb"):
            self.skipTest("no gdb")
        for mode, call in (("pause", "futex"), ("read", "read"), ("epoll", "epoll_wait")):
            with Program(4, mode) as p:
                d = self.dump(p.pid)
                theirs = gdb(p.pid)
                self.assertEqual(d["stopped"], 0)
                self.assertEqual(len(d["threads"]), 5)
                for t in d["threads"]:
                    self.assertEqual(t["state"], "waiting")
                    self.assertEqual(t["incomplete"], "")
                    self.assertTrue(has_chain(t), (mode, t))
                    self.assertEqual(t["call"], "clock_nanosleep" if t["tid"] == p.pid else call)
                    # gdb shows inlined functions as frames (without an address), and aliases
                    want = [f for f, real in theirs[t["tid"]] if real or f == theirs[t["tid"]][0][0]]
                    want = want[[i for i, f in enumerate(want) if f == "work_leaf"][0]:]
                    got = functions(t)
                    got = got[got.index("work_leaf"):]
                    n = min(got.index("work_outer"), want.index("work_outer")) + 1
                    self.assertEqual(got[:n], want[:n])
                    self.assertLessEqual(abs(len(theirs[t["tid"]]) - len(t["frames"])), 3)
                print(f"{mode}: {len(d['threads'])} threads as gdb has them")

    def test_blocked_frame_pointers(self):
        """rbp of a blocked thread is not known: it is computed from the code of the first frame."""
        for mode in ("pause", "read", "epoll"):
            with Program(3, mode, path=agent_lib.tool("threads_fp")) as p:
                d = self.dump(p.pid)
                self.assertEqual(d["stopped"], 0)
                for t in d["threads"]:
                    self.assertEqual((t["incomplete"], has_chain(t)), ("", True), t)

    def test_64_threads_running(self):
        with Program(64, "spin") as p:
            stood, states = [], {}
            for _ in range(2):
                d = self.dump(p.pid)
                self.assertEqual(len(d["threads"]), 65)
                whole = [t for t in d["threads"] if has_chain(t) and not t["incomplete"]]
                rest = [t["incomplete"] for t in d["threads"] if t not in whole]
                self.assertLessEqual(set(rest), {NO_CPU}) # by 64 others and the machine
                self.assertGreater(len(whole), 1)
                stood.append(int(d["stood_max_ns"]) / 1e6)
                for t in d["threads"]:
                    states[t["state"]] = states.get(t["state"], 0) + 1
            self.assertEqual(states["waiting"], 2)
            self.assertEqual(states.get("running", 0) + states.get("runnable", 0), 128)
            self.assertGreater(states.get("runnable", 0), 0, "64 threads do not all run")
            # no bound here: among 64 others the reader waits for a CPU itself
            print("64 spinning threads: each stood at most "
                  f"{', '.join(f'{x:.2f}' for x in stood)} ms; {states}")

    def test_stands_shortly(self):
        """On a busy machine the reader may have to wait for a CPU: the best of many is ours."""
        with Program(1, "spin") as p:
            stood = []
            while len(stood) < 5 or (min(stood) > STAND_MS and len(stood) < 100):
                d = self.dump(p.pid)
                if NO_CPU not in [t["incomplete"] for t in d["threads"]]:
                    self.assertEqual(d["stopped"], 1)
                stood.append(int(d["stood_max_ns"]) / 1e6)
        print(f"one spinning thread stood for at most {', '.join(f'{x:.2f}' for x in stood)} ms")
        self.assertLessEqual(min(stood), STAND_MS)

    def test_in_system_calls(self):
        with Program(2, "sys") as p:
            for _ in range(3):
                for t in self.dump(p.pid)["threads"]:
                    if t["tid"] != p.pid and t["incomplete"] != NO_CPU:
                        self.assertTrue(has_chain(t), t)

    def test_no_eintr(self):
        with Program(4, "epoll") as p:
            for _ in range(8):
                self.dump(p.pid)
            time.sleep(0.5)
        self.assertNotIn("EINTR", p.out)

    def test_stop_says_so(self):
        """The same with --stop: whole registers, at the known price."""
        with Program(2, "read") as p:
            d = self.dump(p.pid, "--stop")
            self.assertEqual(d["stopped"], 3)
            for t in d["threads"]:
                self.assertEqual(t["state"], "waiting")
                self.assertTrue(has_chain(t), t)

    def test_stopped_process(self):
        with Program(2, "spin") as p:
            os.kill(p.pid, 19)
            while " T " not in agent_lib.read(f"/proc/{p.pid}/stat").rsplit(")", 1)[-1][:4]:
                time.sleep(0.05)
            time.sleep(0.5)  # its threads, too
            d = self.dump(p.pid)
            self.assertEqual({t["state"] for t in d["threads"]}, {"stopped"})
            self.assertTrue(all(has_chain(t) for t in d["threads"]))
            with open(f"/proc/{p.pid}/stat", encoding="ascii") as f:
                self.assertEqual(f.read().rsplit(")")[1].split()[0], "T", "it stays stopped")
            os.kill(p.pid, 18)

    def test_deleted_binary(self):
        with tempfile.TemporaryDirectory() as d:
            os.chmod(d, 0o755)
            path = shutil.copy(agent_lib.tool("threads"), os.path.join(d, "gone"))
            with Program(2, "pause", path=path) as p:
                os.unlink(path)
                t = self.dump(p.pid)["threads"]
                self.assertTrue(all(has_chain(x) for x in t), t)
                self.assertTrue(any(f["deleted"] for f in t[0]["frames"]))
                self.assertIn("(deleted)", run(p.pid).stdout)

    def test_ordinary_user(self):
        """Own processes, without any capability; the binary's name is gone."""
        if os.geteuid() != 0:
            self.skipTest("the others are run by an ordinary user already")
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                  "--bounding-set=-all", "--no-new-privs"]
        with tempfile.TemporaryDirectory() as d:
            os.chmod(d, 0o755)
            path = shutil.copy(agent_lib.tool("threads"), os.path.join(d, "gone"))
            proc = subprocess.Popen([*nobody, path, "2", "spin"], stdout=subprocess.PIPE, text=True)
            self.assertEqual(proc.stdout.readline(), "ready\n")
            os.unlink(path)
            for _ in range(20):
                r = run(proc.pid, "--json", before=nobody)
                self.assertEqual(r.returncode, 0, r.stderr)
                threads = json.loads(r.stdout)["threads"]
                self.assertEqual(len(threads), 3)
                whole = [t for t in threads if has_chain(t) and not t["incomplete"]]
                if len(whole) == 3:
                    break
                time.sleep(0.1)  # they are just on their way there
            proc.kill()
            proc.communicate()
            self.assertEqual(whole, threads)

    def test_dying_target(self):
        whole = ended = 0
        for i in range(8):
            p = subprocess.Popen([agent_lib.tool("threads"), "8", "die"], stdout=subprocess.PIPE)
            p.stdout.readline()
            time.sleep(i / 25)
            r = run(p.pid, "--json")
            p.wait()
            p.stdout.close()
            self.assertIn(r.returncode, (0, 125), r.stderr)
            whole += r.returncode == 0
            ended += r.returncode == 125
            if r.returncode:
                self.assertRegex(r.stderr, r"process \d+ (has )?ended|no process")
            else:
                json.loads(r.stdout)
        print(f"target dying under the dump: {whole} dumps, {ended} said that it ended")

    def test_refusals(self):
        r = run(4194303)
        self.assertEqual((r.returncode, r.stdout), (125, ""))
        self.assertIn("no process 4194303", r.stderr)
        kthreads = [p for p in os.listdir("/proc") if p.isdigit() and
                    agent_lib.read(f"/proc/{p}/stat").rsplit(")", 1)[-1].split()[1:2] == ["2"]]
        for pid in kthreads[:1]:
            self.assertIn("kernel thread", run(pid).stderr)
        with Program(1, "pause") as p:
            tid = [int(t) for t in os.listdir(f"/proc/{p.pid}/task") if int(t) != p.pid][0]
            self.assertIn(f"is a thread of process {p.pid}", run(tid).stderr)
        if os.geteuid() == 0:
            nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                      "--bounding-set=-all", "--no-new-privs"]
            r = run(os.getpid(), before=nobody)
            self.assertEqual(r.returncode, 125)
            self.assertRegex(r.stderr, "belongs to user 0, not to yours")
        r = subprocess.run([AGENT, "dump"], capture_output=True, text=True)
        self.assertEqual(r.returncode, 125)

    def test_strata_dump(self):
        """The command executes the agent's, found in the build tree, with all its options."""
        strata = os.environ.get("STRATA")
        if not strata:
            self.skipTest("STRATA is not set")
        with Program(1, "read") as p:
            r = subprocess.run([strata, "dump", "-p", str(p.pid), "--json"], capture_output=True,
                               text=True, timeout=60)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(len(json.loads(r.stdout)["threads"]), 2)
        self.assertEqual(subprocess.run([strata, "dump", "-p", "4194303"],
                                        capture_output=True).returncode, 125)

    def test_text(self):
        with Program(1, "read") as p:
            out = run(p.pid).stdout
            self.assertRegex(out, rf'Thread \d+ "threads": waiting in read\n')
            self.assertRegex(out, r"\n    work_leaf  threads  \S*threads\.c:\d+\n")
            self.assertIn("2 threads, none was stopped", out)
            self.assertNotIn("work_leaf", run(p.pid, "--no-native").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=0)
