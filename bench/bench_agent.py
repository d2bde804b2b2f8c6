#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What does sampling cost, and whom?

bench_agent.py --stackstat EXE --loop EXE --agent EXE [--smoke] [--rounds N]

Three questions. How long is one tick in BPF, whole and without the user stack; how much slower is a
pinned loop, 18 calls deep, at 99 and 999 Hz than without ticks; what do the agent and its maps use.
States are interleaved in one run, in a random order per round (seed fixed), and compared as ratios:
single runs on a small machine differ by more than the effect. Prints name,value,unit,n,p50,p99.
77 without the rights for BPF.
"""
import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SKIP = 77
PERIOD = {99: 10101010, 999: 1001001}


def emit(name, values, unit):
    """One line: the mean, and the quantiles of its parts"""
    values = sorted(values)
    p50 = statistics.median(values)
    p99 = values[min(len(values) - 1, int(0.99 * len(values)))]
    print(f"{name},{statistics.fmean(values):.6g},{unit},{len(values)},{p50:.6g},{p99:.6g}",
          flush=True)


def pairs(line):
    return {k: int(v) if v.lstrip("-").isdigit() else v
            for k, v in (w.split("=", 1) for w in line.split() if "=" in w)}


class Stat:
    """stackstat on the first CPU, sampling; stop() gives its totals and its tables"""

    def __init__(self, exe, cpu, period, *more):
        self.proc = subprocess.Popen([exe, "-s", "3600", "-p", str(period), *more],
                                     stdout=subprocess.PIPE, text=True,
                                     preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        if self.proc.stdout.readline() != "ready\n":
            self.proc.wait()
            if self.proc.returncode == SKIP:
                print("skip: no BPF here", file=sys.stderr)
                sys.exit(SKIP)
            sys.exit("stackstat does not start")

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        out = self.proc.communicate()[0].splitlines()
        return (next(pairs(l) for l in out if l.startswith("total ")),
                next(pairs(l) for l in out if l.startswith("tables ")))


def loop(o, runs):
    """(wall, cpu) ns of each run, on the last CPU"""
    out = subprocess.run([o.loop, str(o.cpus[-1]), str(o.turns), str(runs)], capture_output=True,
                         text=True, check=True).stdout
    return [tuple(map(int, line.split())) for line in out.splitlines()]


def slow_down(o):
    rng = random.Random(1)
    seen = {0: [], 99: [], 999: []}
    cost = {"full": [], "no_user": []}
    for _ in range(o.rounds):
        states = [(0, ()), (99, ()), (999, ()), (999, ("-k",))]
        rng.shuffle(states)
        this = {}
        for hz, more in states:
            stat = Stat(o.stackstat, o.cpus[0], PERIOD[hz], *more) if hz else None
            if hz:
                time.sleep(0.3)  # first touches are over
            runs = loop(o, o.runs)
            if hz == 999:
                total, _tables = stat.stop()
                records = max(1, total["weight_ns"] // PERIOD[999])
                cost["no_user" if more else "full"].append(total["bpf_ns"] / records)
            elif stat:
                stat.stop()
            if not more:
                this[hz] = statistics.median(cpu for _, cpu in runs)
        for hz, t in this.items():
            seen[hz].append(t / this[0])
    emit("tick_full", cost["full"], "ns")
    emit("tick_without_user_stack", cost["no_user"], "ns")
    emit("tick_ratio", [a / b for a, b in zip(cost["full"], cost["no_user"])], "ratio")
    for hz in (99, 999):
        change = [100 * (r - 1) for r in seen[hz]]
        emit(f"slow_down_{hz}hz", change, "%")
        if len(change) > 1:
            half = 1.96 * statistics.stdev(change) / len(change) ** 0.5
            emit(f"slow_down_{hz}hz_upper95", [statistics.fmean(change) + half], "%")


def cpu_s(pid):
    """CPU seconds of a process, dead threads too"""
    return time.clock_gettime((~pid << 3) | 2)


def rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return next(int(l.split()[1]) for l in f if l.startswith("VmRSS:"))


def agent_use(o, hz):
    """The real agent beside two busy loops, its server out of reach: batches stay in its spool."""
    with tempfile.TemporaryDirectory() as d:
        agent = subprocess.Popen([o.agent, "--state-dir", d, "-o", "server.url=http://127.0.0.1:9",
                                  "-o", f"cpu.period_ns={PERIOD[hz]}ns"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        busy = [subprocess.Popen([o.loop, str(c), "1000000", "1"], stdout=subprocess.DEVNULL)
                for c in o.cpus]
        try:
            time.sleep(o.settle)
            used = []
            for _ in range(o.seconds):
                before, wall = cpu_s(agent.pid), time.monotonic()
                time.sleep(1)
                used.append(100 * (cpu_s(agent.pid) - before) / (time.monotonic() - wall))
            emit(f"agent_cpu_{hz}hz", used, "% of one CPU")
            emit(f"agent_rss_{hz}hz", [rss_kib(agent.pid) / 1024], "MiB")
        finally:
            for p in (agent, *busy):
                p.kill()
                p.wait()


def map_memory(o):
    stat = Stat(o.stackstat, o.cpus[0], PERIOD[99])
    time.sleep(o.settle)
    _total, tables = stat.stop()
    emit("map_memory", [tables["map_bytes"] / 2 ** 20], "MiB")
    emit("unwind_tables", [tables["bytes"] / 2 ** 20], "MiB")
    emit("unwind_tables_built", [tables["built"]], "tables")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--stackstat", required=True)
    p.add_argument("--loop", required=True)
    p.add_argument("--agent", required=True)
    p.add_argument("--smoke", action="store_true")
    p.add_argument("--rounds", type=int, default=16)
    o = p.parse_args()
    if os.geteuid() != 0:
        print("skip: needs root", file=sys.stderr)
        return SKIP
    o.cpus = sorted(os.sched_getaffinity(0))
    o.turns, o.runs, o.settle, o.seconds = 100, 5, 4, 10
    if o.smoke:
        o.rounds, o.turns, o.runs, o.settle, o.seconds = 1, 20, 2, 1, 2
    slow_down(o)
    for hz in (99, 999):
        agent_use(o, hz)
    map_memory(o)
    return 0


if __name__ == "__main__":
    sys.exit(main())
