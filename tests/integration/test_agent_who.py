#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Who a sample belongs to: one target per process life, names that follow, rules, containers.
Needs root and BPF, else 77."""
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_agent_run
from test_agent_run import BURN, LONG, Burner, Stratad, main, wait_for

CHURN = os.path.join(os.path.dirname(BURN), "churn")
ME = os.getpid()  # another run may be beside this one
UNSEEN, EXEC, EXITED = 8, 2, 4
# CPU seconds: the machine may be busy
SPIN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"


class Who(test_agent_run.Run):
    """The run's own tests are not ours."""

    def start(self, *settings):
        server = self.sink()
        return server, self.agent(server.url, *settings)

    def end(self, server, agent):
        windows = agent.figure("windows")
        wait_for(lambda: agent.figure("windows") > windows + 1, "two windows")
        self.assertEqual(agent.stop(), 0)
        batches = server.batches()
        self.check_books(agent.status(), batches)
        return agent.status()["figures"], batches

    @staticmethod
    def lives(batches, match):
        """key -> weight, services, threads, flags, host pid; of rows whose labels match."""
        out = {}
        for b in batches:
            for r in b.rows():
                if not match(r["labels"].get("service", "")) or not r["target"]:
                    continue
                t = b.targets[r["target"] - 1]
                key = (t.one(1), t.one(2), t.one(4))
                life = out.setdefault(key, {"weight": 0, "services": {}, "threads": set(),
                                            "tids": set(), "flags": 0, "pid": t.one(3),
                                            "comm": "", "container": set(), "labels": []})
                life["weight"] += r["value"]
                s = r["labels"]["service"]
                life["services"][s] = life["services"].get(s, 0) + r["value"]
                life["threads"].add(r["thread"])
                life["tids"].add(r["tid"])
                life["flags"] |= t.one(11)
                life["comm"] = b.str[t.one(7)]
                life["container"].add(r["labels"].get("container", ""))
                life["labels"].append(r["labels"])
        return out

    def python(self, code, service, *before, **env):
        return subprocess.Popen([*before, sys.executable, "-c", code],
                                env={**os.environ, "STRATA_SERVICE": service, **env},
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def test_leader_exits(self):
        """The first thread ends, another works on: one life, until the last thread is gone."""
        server, agent = self.start()
        code = ("import ctypes, threading, time, os\n"
                "def work():\n"
                "    end = time.process_time() + 1.5\n"
                "    while time.process_time() < end: pass\n"
                "    os._exit(0)\n"
                "threading.Thread(target=work).start()\n"
                "time.sleep(0.2)\n"
                "ctypes.CDLL(None).syscall(60, 0)\n")
        p = self.python(code, f"leader-{ME}")
        stat = ""
        while ") Z " not in stat:  # dead by the leader
            self.assertIsNone(p.poll())
            with open(f"/proc/{p.pid}/stat", encoding="utf-8") as f:
                stat = f.read()
            time.sleep(0.02)
        time.sleep(0.5)
        middle = len(server.batches())
        p.wait()
        p.stdin.close(), p.stdout.close()
        _, batches = self.end(server, agent)
        lives = self.lives(batches, lambda s: s == f"leader-{ME}")
        self.assertEqual(len(lives), 1)
        life = next(iter(lives.values()))
        worker = [t for t in life["tids"] if t != p.pid]
        self.assertEqual((life["pid"], len(worker)), (p.pid, 1))
        early = self.lives(batches[:middle], lambda s: s == f"leader-{ME}")
        self.assertFalse(any(v["flags"] & EXITED for v in early.values()))
        print(f"leader exits: 1 target, {life['weight'] / 1e9:.2f} s, "
              f"worker's after the leader's death too")
        self.assertGreater(life["weight"], 5e8)

    def test_pid_again(self):
        """Two processes one after the other with one pid: two targets, nothing merged."""
        server, agent = self.start()
        pids = []
        for k in range(60):
            first = Burner(0.4, f"first-{ME}")
            first.go()
            first.process.wait()
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as f:
                f.write(str(first.pid - 1))
            second = Burner(0.4, f"second-{ME}")
            second.go()
            second.process.wait()
            first.stop(), second.stop()
            if first.pid == second.pid:
                pids.append(first.pid)
                break
        if not pids:
            agent.stop()
            self.skipTest("the machine is too busy to have one pid twice")
        _, batches = self.end(server, agent)
        both = {k: v for k, v in self.lives(batches, lambda s: s.endswith(f"-{ME}")).items()
                if v["pid"] == pids[0]}
        print(f"pid {pids[0]} twice (round {k + 1}):",
              [(v["services"], key[2]) for key, v in both.items()])
        self.assertEqual(sorted(tuple(v["services"]) for v in both.values()),
                         [(f"first-{ME}",), (f"second-{ME}",)])
        for v in both.values():  # one life has 0.4 s, two have 0.8; which ticks meet it is chance
            self.assertLess(abs(v["weight"] - 4e8), 3.9e8)

    def test_fork_exec(self):
        """A child without exec is a target of its own; an exec keeps the target and changes the name."""
        server, agent = self.start()
        code = ("import os, sys, time\n"
                "pid = os.fork()\n" + SPIN.format(0.4) +
                "if pid: os.waitpid(pid, 0)\n"
                f"else: os._exit(0)\n"
                f"os.environ['STRATA_SERVICE'] = 'after-{ME}'\n"
                "os.execv(sys.executable, [sys.executable, '-c', " + repr(SPIN.format(0.4)) + "])\n")
        p = self.python(code, f"before-{ME}")
        p.wait()
        p.stdin.close(), p.stdout.close()
        _, batches = self.end(server, agent)
        lives = self.lives(batches, lambda s: s in (f"before-{ME}", f"after-{ME}"))
        self.assertEqual(len(lives), 2, lives)
        parent = next(v for v in lives.values() if v["pid"] == p.pid)
        child = next(v for v in lives.values() if v["pid"] != p.pid)
        print("fork and exec:", parent["services"], child["services"])
        self.assertEqual(set(parent["services"]), {f"before-{ME}", f"after-{ME}"})
        self.assertTrue(parent["flags"] & EXEC)
        self.assertEqual(set(child["services"]), {f"before-{ME}"})
        for v in (*parent["services"].values(), *child["services"].values()):
            self.assertGreater(v, 0)

    def test_names(self):
        """Threads are called as they call themselves, also later; the first one names the process."""
        server, agent = self.start()
        code = ("import threading, time\n"
                "def name(n): open('/proc/thread-self/comm', 'w').write(n)\n"
                "def spin(s):\n"
                "    end = time.thread_time() + s\n"
                "    while time.thread_time() < end: pass\n"
                "def work():\n"
                "    name('worker;1'); spin(0.4); name('worker\\xe9 2'); spin(0.4)\n"
                "t = threading.Thread(target=work); t.start()\n"
                "time.sleep(0.5); name('boss'); t.join(); spin(0.5)\n")
        p = self.python(code, f"names-{ME}")
        p.wait()
        p.stdin.close(), p.stdout.close()
        _, batches = self.end(server, agent)
        lives = self.lives(batches, lambda s: s == f"names-{ME}")
        self.assertEqual(len(lives), 1)
        life = next(iter(lives.values()))
        print("threads:", sorted(life["threads"]), "process:", life["comm"])
        self.assertTrue({"worker;1", "worker\xe9 2", "boss"} <= life["threads"])
        self.assertEqual(life["comm"], "boss")

    def test_restart_and_time_namespace(self):
        """The same life for the next agent; and in a time namespace the same as outside."""
        b = self.burner(service=f"stays-{ME}")
        b.go()
        shifted = subprocess.Popen(["unshare", "--time", "--boottime", "1000000", "--monotonic",
                                    "1000000", "--fork", "--kill-child", sys.executable, "-c",
                                    SPIN.format(600)], stderr=subprocess.PIPE,
                                   env={**os.environ, "STRATA_SERVICE": f"shifted-{ME}"})
        begun = time.time_ns()
        server = self.sink()
        for _ in range(2):
            before = {x.boot for x in server.batches()}
            agent = self.agent(server.url)
            names = [f"stays-{ME}"] + [f"shifted-{ME}"] * (shifted.poll() is None)
            wait_for(lambda: all(self.lives([x for x in server.batches() if x.boot not in before],
                                            lambda s: s == name) for name in names), "samples of both")
            self.assertEqual(agent.stop(), 0)
        namespaces = shifted.poll() is None
        shifted.kill()
        shifted.stderr.close()
        shifted.wait()
        batches = server.batches()
        self.assertEqual(len({x.boot for x in batches}), 2)
        keys = [set(self.lives([x for x in batches if x.boot == boot],
                               lambda s: s == f"stays-{ME}")) for boot in {x.boot for x in batches}]
        self.assertEqual(len(keys[0]), 1)
        self.assertEqual(keys[0], keys[1])
        if not namespaces:
            print("no time namespaces here")
            return
        lives = self.lives(batches, lambda s: s == f"shifted-{ME}")
        start = max(lives, key=lambda k: lives[k]["weight"])[2]  # the spinning one
        print(f"restart: one target; time namespace: start {(start - begun) / 1e9:+.2f} s")
        self.assertLess(abs(start - begun), 120e9)  # not a million seconds

    def test_rules(self):
        """What a rule drops is counted to the nanosecond and leaves nothing else behind."""
        ini = os.path.join(self.folder.name, "agent.ini")
        with open(ini, "w", encoding="utf-8") as f:
            f.write(f"[labels]\nenv = RANK,GPU_POOL\nstatic = site=lab\n"
                    f"[rule secret]\nmatch.service = secret-{ME}\naction = drop\n"
                    f"[rule job]\nenv.JOB_ID = *-{ME}\nservice = job-$1\nlabel.owner = $1\n"
                    f"[rule all]\nmatch.service = job-*\nlabel.kind = $1?\nlabel.owner = late\n")
        server = self.sink()
        args = test_agent_run.AGENT
        dropped = self.burner(service=f"secret-{ME}")
        dropped.go()
        kept = subprocess.Popen([BURN, "600"], stdin=subprocess.PIPE,
                                env={"JOB_ID": f"x-{ME}", "GPU_POOL": "a;b\n", "RANK": "5",
                                     "STRATA_LABELS": "team=y"})
        kept.stdin.write(b"\n")
        kept.stdin.flush()
        a = test_agent_run.Agent.__new__(test_agent_run.Agent)
        a.status_file = os.path.join(self.folder.name, "status")
        a.log = open(os.path.join(self.folder.name, "log"), "ab")
        a.begin = time.monotonic()
        a.process = subprocess.Popen([args, "-c", ini, "--state-dir", self.folder.name, "-o",
                                      f"server.url={server.url}"], stdout=a.log, stderr=a.log)
        self.closing.append(lambda: a.process.poll() is None and a.kill())
        a.wait_running()
        clock = dropped.clock_ns()
        wait_for(lambda: dropped.clock_ns() > clock + 2 * 10**9, "2 s of CPU time")
        late = self.burner(service=f"secret-{ME}")  # one that begins meanwhile
        late.go()
        wait_for(lambda: late.clock_ns() > 10**8, "a little CPU time")
        wait_for(lambda: self.lives(server.batches(), lambda s: s == "job-x"), "the other's samples")
        clock = dropped.clock_ns() - clock
        shown = subprocess.run([args, "-c", ini, "check", "--pid", str(kept.pid)],
                               capture_output=True, text=True, check=True).stdout
        gone = subprocess.run([args, "-c", ini, "check", "--pid", str(dropped.pid)],
                              capture_output=True, text=True, check=True).stdout
        kept.kill()
        kept.wait()
        kept.stdin.close()
        figures, batches = self.end(server, a)
        print(f"filtered {figures['agent_filtered'] / 1e9:.2f} s; the dropped one used "
              f"{clock / 1e9:.2f} s meanwhile; busy = weight + ring + filtered, exactly")
        self.assertGreater(figures["agent_filtered"], 0.3 * clock)
        for b in batches:
            self.assertFalse([s for s in b.str if f"secret-{ME}" in s])
            self.assertNotIn(dropped.pid, [t.one(3) for t in b.targets])
            self.assertEqual(b.label.get("site"), "lab")
        lives = self.lives(batches, lambda s: s == "job-x")
        self.assertEqual(len(lives), 1)
        labels = next(iter(lives.values()))["labels"][-1]
        want = {"service": "job-x", "owner": "x", "kind": "x?", "rank": "5", "team": "y",
                "gpu_pool": "a;b\\x0a"}
        self.assertEqual({k: labels.get(k) for k in want}, want)
        self.assertGreaterEqual(figures["agent_labels_cleaned"], 1)
        self.assertIn("label owner      x    by job", shown)
        self.assertIn("rule matches     job\n", shown)
        self.assertRegex(gone, "profiled +no, its time is filtered, by secret")

    def test_bad_rules(self):
        """Exit 1 with file and line, nothing started."""
        for text, says in (("[rule a]\nexe = *\nservice = $2\n", ":3: [rule a]: $2"),
                           ("[rule a]\nexe = *\n", ":2: [rule a]: no effect"),
                           ("[rule a]\ncolour = x\n", ":2: [rule a] colour: unknown key"),
                           ("[rule a]\nexe=*\naction = perhaps\n", ":3: [rule a] action:"),
                           ("[labels]\nenv = A-B\n", "labels.env"),
                           ("[labels]\nstatic = 1x=y\n", "labels.static"),
                           ("[select]\ninclude = comm=x\n", "select.include")):
            ini = os.path.join(self.folder.name, "bad.ini")
            with open(ini, "w", encoding="utf-8") as f:
                f.write(text)
            done = subprocess.run([test_agent_run.AGENT, "-c", ini, "--state-dir",
                                   self.folder.name + "/none"], capture_output=True, text=True,
                                  timeout=20, check=False)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn(says, done.stderr)
            self.assertFalse(os.path.exists(self.folder.name + "/none"))

    def test_container(self):
        """The id of a container's cgroup, its name from the environment, and a move to another."""
        place = os.path.join(self.folder.name, "cgroup")
        os.mkdir(place)
        if subprocess.run(["mount", "-t", "cgroup2", "none", place], check=False).returncode:
            self.skipTest("no cgroup v2 here")
        ids = ["%064x" % (ME << 8 | k) for k in (1, 2)]
        groups = [f"{place}/docker-{i}.scope" for i in ids]
        p = None
        try:
            for g in groups:
                os.mkdir(g)
            server, agent = self.start()
            p = self.python(SPIN.format(300), f"inside-{ME}", HOSTNAME="db-1")

            def move(k):
                with open(groups[k] + "/cgroup.procs", "w", encoding="ascii") as f:
                    f.write(str(p.pid))
            for k in (0, 1):
                move(k)
                wait_for(lambda: any(ids[k] in v["container"] for v in self.lives(
                    server.batches(), lambda s: s == f"inside-{ME}").values()), "the container")
            figures, batches = self.end(server, agent)
        finally:
            if p:
                p.kill()
                p.wait()
                p.stdin.close(), p.stdout.close()
            for g in groups:
                os.path.isdir(g) and os.rmdir(g)
            subprocess.run(["umount", place], check=True)
        life = next(iter(self.lives(batches, lambda s: s == f"inside-{ME}").values()))
        print("containers:", sorted(c[:6] + ".." + c[-4:] for c in life["container"] if c),
              "changes:", figures["agent_cgroup_changes"])
        self.assertTrue(set(ids) <= life["container"])
        names = {x.get("container_name") for x in life["labels"] if x.get("container") in ids}
        self.assertEqual(names, {"db-1"})
        self.assertGreaterEqual(figures["agent_cgroup_changes"], 1)

    def test_churn(self):
        """64 busy threads and 1,000 short processes a second: books exact, no stack under a wrong
        target. Ten minutes in the long form; STRATA_SECONDS says another length."""
        seconds = int(os.environ.get("STRATA_SECONDS", 600 if LONG else 6))
        server = Stratad(self.folder.name)
        self.closing.append(server.stop)
        agent = self.agent(server.url)
        short = os.path.join(self.folder.name, "shorty")
        shutil.copy(CHURN, short)
        begin = time.time_ns()
        threads = subprocess.Popen([CHURN, "threads", "64", str(seconds)],
                                   env={"STRATA_SERVICE": f"churn-{ME}-threads"})
        spawn = [subprocess.Popen([CHURN, "spawn", "125", str(seconds), short],
                                  stdout=subprocess.PIPE, text=True,
                                  preexec_fn=lambda: os.nice(-15),
                                  env={"STRATA_SERVICE": f"churn-{ME}"}) for _ in range(8)]
        rss, stop = [], threading.Event()

        def watch():
            while not stop.wait(1):
                rss.append(agent.status()["figures"]["agent_rss"])
        watcher = threading.Thread(target=watch)
        watcher.start()
        ran = sum(int(s.communicate()[0]) for s in spawn)
        threads.wait()
        stop.set()
        watcher.join()
        time.sleep(2.5)
        self.assertEqual(agent.stop(), 0)
        f = agent.status()["figures"]
        self.assertEqual(f["agent_identity_violations"], 0)
        self.assertEqual(f["agent_weight"] + f["agent_ring_full"] + f["agent_filtered"],
                         f["agent_busy"])
        span = {"from": f"{begin}ns", "to": f"{time.time_ns() + 10**9}ns"}
        where = {}
        for service in (f"churn-{ME}-threads", f"churn-{ME}", f"churn-{ME}-short", "shorty"):
            a = server.get("top", q='cpu{service="%s"}' % service, limit=1000, **span)
            if a.get("n"):
                names = [a["strings"][i] for i in a["func"]["name"]]
                for name, total in zip(names, a["row"]["total"]):
                    where.setdefault(name, {})[service] = int(total)
        print(f"churn: {ran} processes in {seconds} s ({ran / seconds:.0f}/s), "
              f"{f['agent_unseen']} unseen, agent {f['agent_cpu'] / 1e9:.2f} s CPU + "
              f"{f['agent_bpf_cpu'] / 1e9:.2f} s in BPF, RSS {max(rss) / 2**20:.0f} MiB")
        for name in ("thread_work", "short_work", "spawn_work"):
            print(f"  {name}: " + ", ".join(f"{k.replace(str(ME), 'N')} {v / 1e9:.2f} s"
                                            for k, v in where.get(name, {}).items()))
        self.assertEqual(set(where["thread_work"]), {f"churn-{ME}-threads"})
        self.assertLessEqual(set(where.get("short_work", {})), {f"churn-{ME}-short", "shorty"})
        self.assertNotIn(f"churn-{ME}-threads", where.get("spawn_work", {}))
        self.assertGreater(where["thread_work"][f"churn-{ME}-threads"], 0)
        self.assertLess(max(rss), (120 + 0.3 * os.cpu_count()) * 2**20)
        if seconds >= 300:  # the dead are kept for a minute: it is flat from then on
            self.assertLess(max(rss[-60:]), 1.2 * max(rss[60:120]))


for inherited in dir(test_agent_run.Run):
    if re.match("test_", inherited) and inherited not in Who.__dict__:
        setattr(Who, inherited, None)

if __name__ == "__main__":
    sys.exit(main())
