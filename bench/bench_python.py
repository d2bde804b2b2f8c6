#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Beside py-spy, and beside CPython 3.15's own profiling.sampling: who sees the same, who costs what?

bench_python.py --agent EXE --stratad EXE --data FOLDER [--install] [--root FOLDER]
                [--rounds N] [--seconds S] [--only cost|overlap] [--rival py_spy|sampling] [--smoke]

One Python program (py_target.py) runs for S seconds a round: alone, sampled by strata-agent, and by each rival
in two ways, all at 99 Hz, in a random order (seed fixed): py-spy with native frames (--native) and of the thread
that holds the lock (--gil); profiling.sampling of threads on a CPU (--mode cpu) and with the lock (--mode gil).
The program says how many rounds of work it did in a second of its own CPU time and of the clock; the medians of
ratios of neighbours are the slow-downs. Then the agent and a rival sample the same run in the same minute: how much of
one's self time by Python function is in the other's (overlap).

--install makes the environment of rivals/requirements-python.txt below --data. --root is a folder with Python 3.15:
debootstrap --variant=minbase --include=python3.15 sid FOLDER. What is not there is missing and said so.
Prints name,value,unit,n,p50,p99. Needs root and BPF, else 77.
"""
import argparse
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests/integration"))
from beside_agent import family_cpu_s
from bench_agent import SKIP, emit

HZ = 99
TARGET = os.path.join(HERE, "py_target.py")
SERVICE = "py-target"


class Target:
    """Of this machine's Python, or of the one below root."""

    def __init__(self, seconds, root=""):
        argv = ["/usr/bin/python3", TARGET]
        if root:
            shutil.copy(TARGET, root + "/tmp")
            argv = ["chroot", root, "/usr/bin/python3.15", "/tmp/" + os.path.basename(TARGET)]
        self.process = subprocess.Popen([*argv, str(seconds)], stdout=subprocess.PIPE, text=True, env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "STRATA_SERVICE": SERVICE})
        while self.process.poll() is None and "python" not in os.readlink(f"/proc/{self.process.pid}/exe"):
            time.sleep(0.01)

    def result(self):
        out = self.process.communicate(timeout=600)[0]
        return {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", out)}


class Agent:
    """strata-agent into a server of its own."""

    def __init__(self, o):
        self.folder = tempfile.TemporaryDirectory(prefix="strata-bench-")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{s.getsockname()[1]}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        self.server = subprocess.Popen([o.stratad, "--listen", self.url[7:], "--data",
                                        os.path.join(self.folder.name, "store")], **quiet)
        self.agent = subprocess.Popen([o.agent, "--state-dir", self.folder.name, "-o", f"server.url={self.url}",
                                       "-o", f"select.include={SERVICE}"], **quiet)
        until = time.monotonic() + 60
        while not os.path.exists(os.path.join(self.folder.name, "status")) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(o.settle)

    def used(self):
        return family_cpu_s(self.agent.pid)

    def bpf_s(self):
        """Its programs' time in the kernel, which passes on the account of whoever is interrupted."""
        with open(os.path.join(self.folder.name, "status"), encoding="utf-8") as f:
            text = f.read()
        return sum(int(n) for n in re.findall(r'"agent_(?:bpf_cpu|offcpu_bpf)": ?"?(\d+)', text)) / 1e9

    def functions(self):
        """Self samples by (function, file) of the innermost Python frame."""
        from test_export import Pprof
        q = urllib.parse.urlencode({"q": 'cpu{service="%s"}' % SERVICE, "format": "pprof", "from": "now-10m",
                                    "to": "now"})
        with urllib.request.urlopen(f"{self.url}/api/v1/export?{q}", timeout=60) as answer:
            p = Pprof(answer.read())
        out = {}
        for stack, values in p.samples:
            python = [(name.decode().split(".")[-1], os.path.basename(file)) for _, lines in stack
                      for name, file, _ in lines if file.endswith(".py")]
            if python:
                out[python[0]] = out.get(python[0], 0) + values[0]
        return out

    def stop(self):
        for p in (self.agent, self.server):
            p.terminate()
            p.wait()
        self.folder.cleanup()


class Rival:
    """A program that writes folded stacks; frame finds (function, file) of each Python frame in one."""

    def __init__(self, out, argv):
        self.out, self.last = out, 0.0
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def watch(self, target):
        """Its CPU time until the target ends."""
        while target.poll() is None:
            self.last = max(self.last, family_cpu_s(self.process.pid))
            time.sleep(0.1)

    def stop(self):
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()

    def functions(self):
        out = {}
        with open(self.out.name, encoding="utf-8", errors="replace") as f:
            for line in f:
                stack, _, n = line.rpartition(" ")
                python = self.frames(stack)
                if python:
                    out[python[-1]] = out.get(python[-1], 0) + int(n)
        return out

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def failed(self):
        """Readings of it that failed, in %; None: it does not say."""
        found = re.search(r"Error rate: ([\d.]+)", self.said())
        return float(found[1]) if found else None


class Spy(Rival):
    name, modes = "py_spy", ("native", "gil")

    def __init__(self, o, pid, mode):
        out = tempfile.NamedTemporaryFile(suffix=".folded")
        super().__init__(out, [o.spy, "record", "-r", str(HZ), "-f", "raw", "-o", out.name, "-p", str(pid),
                               "--" + mode])

    @staticmethod
    def frames(stack):
        return [(f.split(".")[-1], os.path.basename(file))
                for f, file in re.findall(r"(?:^|;)([^;]+) \(([^;()]*\.py):\d+\)", stack)]


class Sampling(Rival):
    """It reads /proc below the folder, and paths as they are in the target's mount namespace."""
    name, modes = "sampling", ("cpu", "gil")

    def __init__(self, o, pid, mode):
        out = tempfile.NamedTemporaryFile(suffix=".folded", dir=o.root + "/tmp")
        super().__init__(out, ["chroot", o.root, "/usr/bin/python3.15", "-m", "profiling.sampling", "attach", "-a",
                               "-r", str(HZ), "--mode", mode, "--collapsed", "-o",
                               "/tmp/" + os.path.basename(out.name), str(pid)])

    @staticmethod
    def frames(stack):
        return [(f.split(".")[-1], os.path.basename(file))
                for file, f in re.findall(r"(?:^|;)([^;:]*\.py):([^;]+):\d+", stack)]


def one(o, rival, how):
    """(work per CPU second, work per second, CPU share of the profiler in %) of one run."""
    agent = Agent(o) if how == "strata" else None
    target = Target(o.seconds, o.root if rival is Sampling else "")
    used = 0.0
    if agent:
        before, bpf = agent.used(), agent.bpf_s()
        r = target.result()
        used = agent.used() - before
        time.sleep(1.2)  # the last window's figures
        used += agent.bpf_s() - bpf
        agent.stop()
    elif how == "alone":
        r = target.result()
    else:
        time.sleep(0.3)  # a rival wants an interpreter that is there
        other = rival(o, target.process.pid, how)
        other.watch(target.process)
        r = target.result()
        used = other.last
        other.stop()
    return r["work"] / r["cpu"], r["work"] / r["wall"], 100 * used / r["wall"]


def costs(o, rival):
    ways = ["alone", "strata", *(rival.modes if rival else [])]
    rng, seen = random.Random(1), {w: [] for w in ways}
    for _ in range(o.rounds):
        rng.shuffle(ways)
        for w in ways:
            seen[w].append(one(o, rival, w))
    python = "python3.15" if rival is Sampling else "python3"
    for w in sorted(set(ways) - {"alone"}):
        name = f"strata_{python}" if w == "strata" else f"{rival.name}_{w}"
        for i, what in enumerate(("cpu", "wall")):
            slower = [100 * (a[i] / b[i] - 1) for a, b in zip(seen["alone"], seen[w])]
            emit(f"{name}_slow_down_{what}", slower, "%")
        emit(f"{name}_own_cpu", [s[2] for s in seen[w]], "% of one CPU")


def overlap(a, b):
    """What both have in common of the distribution of self samples."""
    sum_a, sum_b = sum(a.values()), sum(b.values())
    return 100 * sum(min(a.get(k, 0) / sum_a, b.get(k, 0) / sum_b) for k in set(a) | set(b))


def same_minute(o, rival):
    for mode in rival.modes:
        agent, target = Agent(o), Target(o.minute, o.root if rival is Sampling else "")
        time.sleep(0.3)
        other = rival(o, target.process.pid, mode)
        other.watch(target.process)
        target.result()
        other.stop()
        time.sleep(14)  # the batch of the last ten seconds
        ours, theirs = agent.functions(), other.functions()
        agent.stop()
        if not ours or not theirs:
            print(f"skip: nothing sampled ({len(ours)}, {len(theirs)}): {other.said()}", file=sys.stderr)
            continue
        name = f"{rival.name}_{mode}"
        top = [[k for k, _ in sorted(f.items(), key=lambda kv: -kv[1])[:5]] for f in (ours, theirs)]
        emit(f"{name}_overlap", [overlap(ours, theirs)], "% of self samples")
        emit(f"{name}_overlap_top5", [len(set(top[0]) & set(top[1]))], "of 5")
        emit(f"{name}_samples", [sum(theirs.values())], "samples")
        emit(f"{name}_samples_strata", [sum(ours.values())], "samples")
        if other.failed() is not None:
            emit(f"{name}_readings_failed", [other.failed()], "%")


def find_spy(o):
    """Of the environment below --data, made with --install; else on PATH; '': there is none."""
    venv = os.path.join(o.data, "python-venv")
    if o.install and not os.path.exists(venv + "/bin/py-spy"):
        os.makedirs(o.data, exist_ok=True)
        subprocess.run(["/usr/bin/python3", "-m", "venv", venv], check=True, stdout=sys.stderr)
        subprocess.run([venv + "/bin/pip", "install", "-q", "-r",
                        os.path.join(HERE, "rivals/requirements-python.txt")], check=True, stdout=sys.stderr)
    return venv + "/bin/py-spy" if os.path.exists(venv + "/bin/py-spy") else shutil.which("py-spy") or ""


def main():
    p = argparse.ArgumentParser()
    for name in ("agent", "stratad", "data"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--install", action="store_true")
    p.add_argument("--root", default="")
    p.add_argument("--mounted", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--smoke", action="store_true")
    p.add_argument("--only", choices=["cost", "overlap"])
    p.add_argument("--rival", choices=[Spy.name, Sampling.name])
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--seconds", type=float, default=10)
    o = p.parse_args()
    if os.geteuid() != 0:
        print("skip: needs root", file=sys.stderr)
        return SKIP
    if o.root and not o.mounted:  # once more, with a mount namespace of its own
        os.execvp("unshare", ["unshare", "-m", "sh", "-c", 'mount -t proc proc "$0/proc" && exec "$@" --mounted',
                              o.root, sys.executable, *sys.argv])
    o.settle, o.minute = 5, 45
    if o.smoke:
        o.rounds, o.seconds, o.settle, o.minute = 1, 1, 2, 3
    o.spy = find_spy(o)
    rivals = [Spy] if o.spy else []
    if not o.spy:
        print("skip: no py-spy (--install)", file=sys.stderr)
    if os.path.exists(o.root + "/usr/bin/python3.15"):
        rivals.append(Sampling)
    else:
        print("skip: no Python 3.15 (--root)", file=sys.stderr)
    if o.rival:
        rivals = [r for r in rivals if r.name == o.rival]
    for rival in rivals or [None]:
        if o.only != "overlap":
            costs(o, rival)
        if rival and not o.smoke and o.only != "cost":
            same_minute(o, rival)
    return 0


if __name__ == "__main__":
    sys.exit(main())
