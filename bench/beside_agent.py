# SPDX-License-Identifier: Apache-2.0
"""For bench_agent.py: the agent, and perf beside it, on a machine whose CPUs are all busy; and how
long a new user waits for the first picture.

What counts as cost. Of the agent: the CPU time of all its processes and that of its programs in the
kernel, which it says itself. Of perf: the CPU time of its process; what its ticks cost inside the
kernel cannot be had from outside, nor is the time in it that `perf report` takes later to unwind and
to find names, which the agent has done. So perf is shown at its best. All three watch the same loops,
18 calls deep without frame pointers, one after the other: the agent, which lives on, for rounds of a
batch's interval, then perf in both its ways in turn.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

PERF = {"perf_g": ["-g"], "perf_dwarf": ["--call-graph", "dwarf"]}


def cpu_s(pid):
    """CPU seconds of a process, dead threads too; 0: it is gone"""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def family(pid):
    """A process and its descendants."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as f:
                parents[int(entry)] = int(f.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {pid}
    while True:
        more = {p for p, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def family_cpu_s(pid):
    return sum(map(cpu_s, family(pid)))


def figures(state):
    with open(os.path.join(state, "status"), encoding="utf-8") as f:
        return {k: int(v) for k, v in json.load(f)["figures"].items()}


class Busy:
    """A loop on each CPU, alone there."""

    def __init__(self, o):
        self.loops = [subprocess.Popen([o.loop, str(c), "1000000"], stdin=subprocess.PIPE,
                                       stdout=subprocess.DEVNULL) for c in o.cpus]
        for p in self.loops:
            p.stdin.write(b"\n")
            p.stdin.flush()

    def stop(self):
        for p in self.loops:
            p.kill()
            p.wait()


class Agent:
    """The agent as a service has it, its server out of reach: batches stay in its spool. Its address
    is of the network for documents: with one on loopback a batch is made each 2 s, not each 10."""

    def __init__(self, o, period, *settings):
        self.state = tempfile.mkdtemp(prefix="strata-bench-")
        self.process = subprocess.Popen(
            [o.agent, "--state-dir", self.state, "-o", "server.url=http://192.0.2.1:9",
             "-o", f"cpu.period_ns={period}ns", *settings], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not os.path.exists(os.path.join(self.state, "status")):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the agent does not start")
            time.sleep(0.05)

    def used(self):
        """(seconds of its processes, of its programs in the kernel), so far"""
        return family_cpu_s(self.process.pid), figures(self.state)["agent_bpf_cpu"] / 1e9

    def memory_kib(self):
        """What its processes hold, pages that they share counted once."""
        kib = 0
        for pid in family(self.process.pid):
            with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as f:
                kib += next((int(l.split()[1]) for l in f if l.startswith("Pss:")), 0)
        return kib

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.state, ignore_errors=True)


def perf_round(options, seconds):
    """(CPU seconds, bytes written, wall seconds) of perf record over the whole machine"""
    with tempfile.TemporaryDirectory(prefix="strata-bench-") as folder:
        out = os.path.join(folder, "perf.data")
        p = subprocess.Popen(["perf", "record", "-q", "-a", "-F", "99", *options, "-o", out],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        time.sleep(1)  # it has read /proc
        used, wall = family_cpu_s(p.pid), time.monotonic()
        time.sleep(seconds)
        used, wall = family_cpu_s(p.pid) - used, time.monotonic() - wall
        p.send_signal(signal.SIGINT)
        p.wait()
        size = os.path.getsize(out) if os.path.exists(out) else 0
    return used, size, wall


def beside(o, emit):
    """Lines, and the mean cost of the agent in % of one CPU for each busy CPU"""
    busy, agent = Busy(o), Agent(o, 10101010)
    cost, parts, perf, size = [], [], {n: [] for n in PERF}, {n: [] for n in PERF}
    try:
        time.sleep(o.settle + o.first)  # tables, symbols; the first batch reads the kernel's
        for _ in range(o.beside):
            mine, bpf = agent.used()
            wall = time.monotonic()
            time.sleep(o.batch)
            mine2, bpf2 = agent.used()
            each = 100 / (time.monotonic() - wall) / len(o.cpus)
            cost.append((mine2 - mine + bpf2 - bpf) * each)
            parts.append(((mine2 - mine) * each, (bpf2 - bpf) * each))
        emit("agent_memory_settled", [agent.memory_kib() / 1024], "MiB")
        agent.stop()
        for _ in range(o.beside if shutil.which("perf") else 0):
            for name, options in PERF.items():
                used, written, wall = perf_round(options, o.perf_seconds)
                perf[name].append(100 * used / wall / len(o.cpus))
                size[name].append(written / wall / 2 ** 20)
    finally:
        if agent.process.poll() is None:
            agent.stop()
        busy.stop()
    unit = "% of one CPU per busy CPU"
    emit("agent_cost_99hz", cost, unit)
    emit("agent_cost_99hz_processes", [p for p, _ in parts], unit)
    emit("agent_cost_99hz_in_kernel", [b for _, b in parts], unit)
    for name, values in perf.items():
        if values:
            emit(f"{name}_cpu_99hz", values, unit)
            emit(f"{name}_written_99hz", size[name], "MiB/s")
    return sum(cost) / len(cost)


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def first_picture(o, emit):
    """From `strata record` until its server answers with samples: the worst of a few."""
    took = []
    with tempfile.TemporaryDirectory(prefix="strata-bench-") as folder:
        server = subprocess.Popen([o.stratad, "--listen", "127.0.0.1:0", "--data",
                                   os.path.join(folder, "store")], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        try:
            url = re.search(r"ready: (\S+)", server.stdout.readline()).group(1).rstrip("/")
            for n in range(o.pictures):
                begin = time.monotonic()
                r = subprocess.Popen([o.strata, "record", "--server", url, "-q", "-l", f"run=r{n}",
                                      "--", o.loop, str(o.cpus[-1]), "1000000"],
                                     stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
                r.stdin.write(b"\n")
                r.stdin.flush()
                while not int(get(f'{url}/api/v1/top?q=cpu%7Brun%3D%22r{n}%22%7D&from=now-1h')
                              ["total"] or 0):
                    if r.poll() is not None or time.monotonic() - begin > 60:
                        raise RuntimeError("strata record gives no picture")
                    time.sleep(0.02)
                took.append(time.monotonic() - begin)
                r.stdin.close()
                for pid in family(r.pid):  # the loop does not end by itself; record ends with it
                    if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == os.path.basename(o.loop):
                        os.kill(pid, signal.SIGKILL)
                r.wait()
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
    emit("first_picture", took, "s")
    return max(took)
