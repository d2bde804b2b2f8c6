#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The agent's processes apart (docs/privileges.md): what each may do, as the kernel says it; the
reader killed, stopped, brought down by a file, and sampling goes on, the loss is counted, the names
come back; the sender killed, and no batch is lost or doubled; the agent or the starter killed, and
nothing is left. STRATA_LONG: 100 kills of each; the sender stopped for good. Needs root and BPF, else 77."""
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_agent_run as run
from test_agent_privs import TABLE, status_of

LONG = os.environ.get("STRATA_LONG") == "1"
WAIT = 120  # s: until what must come has come, however busy the machine is
NOTE = struct.pack("<III", 4, 20, 3) + b"GNU\0"
NAMES = ("strata-starter", "strata-reader", "strata-sender")


def descendants(pid):
    """Of a process: name -> id, those that are ending left out."""
    parents, names = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as f:
                head, _, rest = f.read().rpartition(")")
        except OSError:
            continue
        if rest.split()[0] == "Z":
            continue
        parents[int(entry)], names[int(entry)] = int(rest.split()[1]), head.partition("(")[2]
    found = {}
    for p, name in names.items():
        at = p
        while at in parents and at != pid:
            at = parents[at]
        if at == pid and p != pid:
            found[name] = p
    return found


def nices(pid):
    """Of its threads, sorted."""
    found = []
    for t in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{t}/stat", encoding="ascii", errors="replace") as f:
            found.append(int(f.read().rpartition(")")[2].split()[16]))
    return sorted(found)


def alive(pid):
    """Not ended, nor ending."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Apart(run.Run):
    def setUp(self):
        super().setUp()
        self.copies = 0

    def until(self, what, so):
        end = time.monotonic() + WAIT
        while not so():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def start(self, url, *settings, **environment):
        a = run.Agent(self.folder.name, url, "privileges.processes=apart", *settings,
                      **environment)
        self.closing.append(lambda: a.process.poll() is None and a.kill())
        a.wait_running()
        return a

    def figures(self, agent):
        return agent.status()["figures"]

    def stranger(self):
        """A burner that nobody has seen: its path, and its build id, which no other copy has."""
        self.copies += 1
        with open(run.BURN, "rb") as f:
            text = bytearray(f.read())
        at = text.index(NOTE) + len(NOTE)
        text[at:at + 20] = random.randbytes(20)
        path = os.path.join(self.folder.name, f"burn{self.copies}")
        with open(path, "wb") as f:
            f.write(text)
        shutil.copymode(run.BURN, path)
        return path, text[at:at + 20].hex()

    def burn(self, path):
        """Its service's name."""
        service = f"stranger-{os.getpid()}-{self.copies}-{time.monotonic_ns()}"
        p = subprocess.Popen([path, "600"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                             env={"STRATA_SERVICE": service})
        self.closing.append(lambda: (p.kill(), p.wait(), p.stdin.close()))
        p.stdin.write(b"\n")
        p.stdin.flush()
        return service

    def sockets(self, pid):
        n = 0
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                n += os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:")
            except OSError:  # of a file that it was handed: closed meanwhile
                pass
        return n

    def internet(self, pid):
        """Sockets of TCP over IPv4 that a process holds: their numbers are in the kernel's table."""
        with open("/proc/net/tcp", encoding="ascii") as f:
            inodes = {line.split()[9] for line in f.readlines()[1:]}
        n = 0
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                n += os.readlink(f"/proc/{pid}/fd/{fd}").strip("socket:[]") in inodes
            except OSError:
                pass
        return n

    def stacks(self, server, service):
        return [s for b in server.batches() for r in b.rows()
                if r["labels"]["service"] == service for s in [b.stack(r["node"])] if s]

    def named(self, server, service):
        """Its functions have names, in a whole stack."""
        return any("leaf" in s and "main" in s for s in self.stacks(server, service))

    def check_whole(self, agent, server):
        """Every window is there, and the sums are exact."""
        self.assertEqual(agent.stop(), 0)
        batches = server.batches()
        self.assertEqual([b.seq for b in batches], list(range(1, len(batches) + 1)))
        self.check_books(agent.status(), batches)
        for a, b in zip(batches, batches[1:]):
            self.assertEqual(a.covers()[-1][1], b.covers()[0][0])
        return batches

    def test_rights(self):
        """The table of docs/privileges.md."""
        server = self.sink()
        agent = self.start(server.url, "privileges.user=root")
        self.until("all three", lambda: set(descendants(agent.process.pid)) >= set(NAMES))
        self.until("a batch", server.batches)
        found = descendants(agent.process.pid)
        for name in NAMES:
            for t in status_of(found[name]):
                for key in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
                    self.assertEqual(int(t[key], 16), 0, (name, t))
                self.assertEqual((t["NoNewPrivs"], t["Seccomp"]), ("1", "2"), (name, t))
                # the starter's filter, and in those that it starts their own
                self.assertEqual(t["Seccomp_filters"], "1" if name == "strata-starter" else "2")
        sets = {t["Name"]: int(t["CapEff"], 16) for t in status_of(agent.process.pid)}
        self.assertEqual(sets["strata-agent"], TABLE)
        for name, sockets in (("strata-reader", 4), ("strata-starter", 1)):  # to the agent
            self.assertEqual(self.sockets(found[name]), sockets, name)
        self.assertEqual(self.internet(agent.process.pid), 0)
        shown = subprocess.run([run.AGENT, "status", "--state-dir", self.folder.name],
                               capture_output=True, text=True, check=False, timeout=60).stdout
        for role, name in (("starter", NAMES[0]), ("reader", NAMES[1]), ("sender", NAMES[2])):
            self.assertRegex(shown, rf"(?m)^process {role} +pid {found[name]}: no capabilities, "
                             "calls filtered")
        self.assertRegex(shown, rf"(?m)^process sampler +pid {agent.process.pid}: cap_\S+")
        self.check_whole(agent, server)

    def test_priorities(self):
        """Who waits for a table waits no longer than the agent; nobody waits for lines."""
        agent = self.start(self.sink().url)
        self.until("the reader", lambda: NAMES[1] in descendants(agent.process.pid))
        own = nices(agent.process.pid)[0]
        reader = descendants(agent.process.pid)[NAMES[1]]
        want = [own] * 3 + [max(own, 10)]
        self.until(f"nice {want}", lambda: nices(reader) == want)

    def test_reader_killed(self):
        """In the midst of all: what was sampled is there, and names of new programs come."""
        server = self.sink()
        agent = self.start(server.url)
        kills = 100 if LONG else 3
        for n in range(kills):
            path, _ = self.stranger()
            service = self.burn(path)
            os.kill(descendants(agent.process.pid)["strata-reader"], signal.SIGKILL)
            self.until(f"names after kill {n + 1}", lambda s=service: self.named(server, s))
            self.closing.pop()()  # the burner
        # figures are as old as the last status
        self.until("all deaths", lambda: self.figures(agent)["agent_reader_died"] >= kills)
        f = self.figures(agent)
        self.assertGreaterEqual(f["agent_reader_starts"], kills)
        batches = self.check_whole(agent, server)
        told = [t for b in batches for k, t in b.events if k == "state" and "source=reader" in t]
        self.assertTrue(told and "state=restarted" in told[0], told)
        print(f"{kills} kills: {f['agent_reader_starts']} starts, {f['agent_reader_failed']} questions "
              f"failed, {f['agent_reader_absent']} without a reader; told {told[0]}")

    def test_reader_hangs(self):
        """SIGSTOP: nothing waits for it but what it was asked, and then it is another one."""
        server = self.sink()
        agent = self.start(server.url)
        self.until("a batch", server.batches)
        stopped = descendants(agent.process.pid)["strata-reader"]
        os.kill(stopped, signal.SIGSTOP)
        path, _ = self.stranger()
        service = self.burn(path)
        before = self.figures(agent)["agent_samples"]
        self.until("samples meanwhile", lambda: self.figures(agent)["agent_samples"] > before + 20)
        self.assertTrue(alive(stopped))
        self.until("names again", lambda: self.named(server, service))
        self.assertFalse(alive(stopped))
        self.until("it is counted", lambda: self.figures(agent)["agent_reader_hung"] >= 1)
        self.check_whole(agent, server)

    def test_hostile_file(self):
        """A file that brings the reader down whenever its table is asked for costs its own table."""
        server = self.sink()
        evil, build_id = self.stranger()
        agent = self.start(server.url, STRATA_TEST_READER_ABORT=build_id)
        service = self.burn(evil)
        self.until("given up", lambda: self.figures(agent)["agent_reader_failed"] >= 1)
        self.until("two deaths", lambda: self.figures(agent)["agent_reader_died"] >= 2)
        good, _ = self.stranger()
        other = self.burn(good)
        self.until("names of the other", lambda: self.named(server, other))
        self.until("it is sampled, without names", lambda: any(
            r["labels"]["service"] == service for b in server.batches() for r in b.rows()))
        self.assertFalse(self.named(server, service))
        self.until("it is counted", lambda: self.figures(agent)["agent_tables_failed"] >= 1)
        self.check_whole(agent, server)

    def test_sender_killed(self):
        """At any moment: each batch is stored once, in order."""
        server = self.sink(lambda b, n: time.sleep(0.2))
        agent = self.start(server.url, "batch.interval=1s")
        rng = random.Random(20261130)
        for _ in range(100 if LONG else 4):
            have = len(server.batches())
            time.sleep(rng.random())
            pid = descendants(agent.process.pid).get("strata-sender")
            if pid:
                os.kill(pid, signal.SIGKILL)
            self.until("a batch after it", lambda n=have: len(server.batches()) > n + 1)
        self.until("all are sent", lambda: self.figures(agent)["agent_batches_spooled"] == 0)
        requests = len(server.requests)
        self.assertEqual(agent.stop(), 0)
        batches, f = server.batches(), agent.status()["figures"]
        self.assertEqual([b.seq for b in batches], list(range(1, len(batches) + 1)))
        # a stop leaves in the spool what it cannot send: none is anywhere else
        self.assertGreaterEqual(len(batches), f["agent_batches_sent"])
        self.assertLessEqual(len(batches), f["agent_batches_sent"] + f["agent_batches_spooled"])
        self.assertEqual(f["agent_batches_produced"],
                         f["agent_batches_sent"] + f["agent_batches_spooled"])
        self.assertEqual((f["agent_dropped"], f["agent_identity_violations"]), (0, 0))
        if f["agent_batches_spooled"] == 0:
            self.check_books(agent.status(), batches)
        print(f"{len(batches)} batches by {requests} requests, {server.duplicates} came twice")

    @unittest.skipUnless(LONG, "70 s: STRATA_LONG")
    def test_sender_hangs(self):
        """SIGSTOP with a batch under way: sampling goes on, batches wait in the spool, after 70 s
        another sender sends them, and each is stored once."""
        server = self.sink(lambda b, n: time.sleep(0.2))
        agent = self.start(server.url, "batch.interval=1s")
        self.until("batches", lambda: len(server.batches()) > 2)
        stopped = descendants(agent.process.pid)["strata-sender"]
        os.kill(stopped, signal.SIGSTOP)
        begin, have = time.monotonic(), len(server.batches())
        self.until("they wait", lambda: self.figures(agent)["agent_batches_spooled"] > 10)
        samples = self.figures(agent)["agent_samples"]
        self.until("samples meanwhile", lambda: self.figures(agent)["agent_samples"] > samples)
        self.until("another one sends", lambda: len(server.batches()) > have + 2)
        took = time.monotonic() - begin
        self.assertFalse(alive(stopped))
        self.until("all are sent", lambda: self.figures(agent)["agent_batches_spooled"] < 3)
        self.assertEqual(agent.stop(), 0)
        seqs = [b.seq for b in server.batches()]
        self.assertEqual(seqs, list(range(1, len(seqs) + 1)))
        self.assertEqual(agent.status()["figures"]["agent_dropped"], 0)
        print(f"a sender that hangs: another one sends after {took:.0f} s, {len(seqs)} batches")

    def test_nothing_left(self):
        """However the agent ends, the others do."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            agent = self.start("http://127.0.0.1:1")
            self.until("all three", lambda a=agent: set(descendants(a.process.pid)) >= set(NAMES))
            pids = descendants(agent.process.pid).values()
            agent.process.send_signal(how)
            agent.process.wait(60)
            self.until(f"gone after {how.name}", lambda p=pids: not any(map(alive, p)))
            agent.log.close()

    def test_starter_killed(self):
        """Nothing could be started again: the agent ends, and says why."""
        agent = self.start("http://127.0.0.1:1")
        self.until("it is there", lambda: "strata-starter" in descendants(agent.process.pid))
        os.kill(descendants(agent.process.pid)["strata-starter"], signal.SIGKILL)
        self.assertEqual(agent.process.wait(60), 1)
        agent.log.close()
        with open(agent.log.name, encoding="utf-8") as f:
            self.assertIn("the process that starts the others is gone", f.read())

    def test_single(self):
        """--single: no other process, all else the same."""
        server = self.sink()
        agent = self.start(server.url, "privileges.processes=single")
        service = self.burn(self.stranger()[0])
        self.until("names", lambda: self.named(server, service))
        self.assertEqual(descendants(agent.process.pid), {})
        self.assertNotIn("agent_reader_starts", self.figures(agent))
        self.check_whole(agent, server)


if __name__ == "__main__":
    sys.exit(run.main())
