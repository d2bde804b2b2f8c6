#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What does sampling cost, and whom?

bench_agent.py --stackstat EXE --loop EXE --agent EXE --strata EXE --stratad EXE [--smoke] [--rounds N]
    [--only beside|python]

Six questions. How long is one tick in BPF, whole, without the user stack, and as on a kernel without
bpf_loop(); how much slower is a
pinned loop, 18 calls deep, at 99 and 999 Hz than without ticks (and at 999 Hz with stacks of the
kernel alone: nearly all of that is the timer's interrupt); what do the agent and its maps use; what
does perf use for the same; when is the first picture there (both in beside_agent.py); and what
does the agent use beside Python, and hold beside PyTorch (python_agent.py).

A core of a shared machine changes its speed by half from one second to the next, a hundred times
the effect that is asked for. So everything is started and warm before the first slice, a slice is
about 0.1 s of the loop's own CPU time, and the states follow each other slice by slice, in a random
order (seed fixed): only neighbours are compared, and the median of a round's ratios leaves out those
between which the speed changed. "Without ticks" is one tick a second, the longest period.
Prints name,value,unit,n,p50,p99: the mean of the rounds, and their quantiles; then the gates, as
gate NAME,value,limit,result. 77 without the rights for BPF.
"""
import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import time

import beside_agent
import python_agent
from beside_agent import Agent, Busy

SKIP = 77
PERIOD = {99: 10101010, 999: 1001001}
NO_TICKS = 10 ** 9


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
    """stackstat on the first CPU, sampling with the period of the last call of period()"""

    def __init__(self, exe, cpu, *more):
        self.proc = subprocess.Popen([exe, "-i", "-s", "36000", "-p", str(NO_TICKS), *more],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        self.bpf_ns = self.busy_ns = 0  # since the last period()
        if self.proc.stdout.readline() != "ready\n":
            self.proc.wait()
            if self.proc.returncode == SKIP:
                print("skip: no BPF here", file=sys.stderr)
                sys.exit(SKIP)
            sys.exit("stackstat does not start")

    def period(self, ns):
        self.proc.stdin.write(f"{ns}\n")
        self.proc.stdin.flush()
        self.bpf_ns = self.busy_ns = 0
        for line in self.proc.stdout:
            if line.startswith("period "):
                return
            if line.startswith("window "):
                p = pairs(line)
                self.bpf_ns += p["bpf_ns"]
                self.busy_ns += p["busy_ns"]
        sys.exit("stackstat ended")

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        out = self.proc.communicate()[0].splitlines()
        return next(pairs(l) for l in out if l.startswith("tables "))


class Loop:
    """spin_loop on the last CPU; each call runs it once and returns the CPU ns that it took"""

    def __init__(self, o, turns):
        self.proc = subprocess.Popen([o.loop, str(o.cpus[-1]), str(turns)], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)

    def __call__(self):
        self.proc.stdin.write("\n")
        self.proc.stdin.flush()
        return int(self.proc.stdout.readline())

    def stop(self):
        self.proc.communicate()


def slice_of(stat, period, loop, rng):
    """(CPU ns of the loop, ns in BPF per tick that hit something)"""
    if stat:
        stat.period(period)
    time.sleep(rng.random() * 0.0101)  # ticks begin anywhere in the slice
    used = loop()
    if not stat:
        return used, 0
    stat.period(NO_TICKS)
    return used, stat.bpf_ns / max(1, stat.busy_ns // period)


def slow_down(o):
    rng = random.Random(1)
    whole, bare, counted = (Stat(o.stackstat, o.cpus[0], *more) for more in ((), ("-k",), ("-l",)))
    loop = Loop(o, o.turns)
    states = [("none", None, 0), ("99", whole, PERIOD[99]), ("999", whole, PERIOD[999]),
              ("bare", bare, PERIOD[999]), ("counted", counted, PERIOD[999])]
    seen = {"99": [], "999": [], "bare": []}
    cost = {"999": [], "bare": [], "counted": []}
    time.sleep(o.settle)  # unwind tables are built
    for _ in range(o.rounds):
        ratios = {name: [] for name in seen}
        for _ in range(o.slices):
            rng.shuffle(states)
            this = {name: slice_of(stat, period, loop, rng) for name, stat, period in states}
            for name, r in ratios.items():
                r.append(this[name][0] / this["none"][0])
            for name, c in cost.items():
                c.append(this[name][1])
        for name, r in ratios.items():
            seen[name].append(100 * (statistics.median(r) - 1))
    loop.stop()
    for stat in (whole, bare, counted):
        stat.stop()
    emit("tick_full", cost["999"], "ns")
    emit("tick_without_user_stack", cost["bare"], "ns")
    emit("tick_without_bpf_loop", cost["counted"], "ns")
    emit("tick_ratio", [a / b for a, b in zip(cost["999"], cost["bare"])], "ratio")
    emit("tick_ratio_without_bpf_loop",
         [a / b for a, b in zip(cost["counted"], cost["999"])], "ratio")
    for state, change in seen.items():
        name = {"bare": "slow_down_999hz_without_user_stack"}.get(state, f"slow_down_{state}hz")
        emit(name, change, "%")
        if len(change) > 1:
            half = 1.96 * statistics.stdev(change) / len(change) ** 0.5
            emit(name + "_low95", [statistics.fmean(change) - half], "%")
            emit(name + "_high95", [statistics.fmean(change) + half], "%")


def agent_use(o, hz):
    """The real agent, all its processes, beside busy loops."""
    busy, agent = Busy(o), Agent(o, PERIOD[hz])
    try:
        time.sleep(o.settle + o.first)  # the first batch reads the kernel's symbols
        used = []
        for _ in range(o.seconds):
            before, wall = agent.used()[0], time.monotonic()
            time.sleep(1)
            used.append(100 * (agent.used()[0] - before) / (time.monotonic() - wall))
        emit(f"agent_cpu_{hz}hz", used, "% of one CPU")
        emit(f"agent_memory_{hz}hz", [agent.memory_kib() / 1024], "MiB")
    finally:
        agent.stop()
        busy.stop()


def map_memory(o):
    stat = Stat(o.stackstat, o.cpus[0])
    stat.period(PERIOD[99])
    time.sleep(o.settle)
    tables = stat.stop()
    emit("map_memory", [tables["map_bytes"] / 2 ** 20], "MiB")
    emit("unwind_tables", [tables["bytes"] / 2 ** 20], "MiB")
    emit("unwind_tables_built", [tables["built"]], "tables")


def gates(o):
    """One line each; what a smoke run measures is judged by nobody."""
    found = []
    if o.only != "beside":
        found += [("python_cost_99hz", python_agent.cost(o, emit), 0.2),
                  ("torch_memory_mib", python_agent.torch_memory(o, emit), 120.0)]
    if o.only != "python":
        found += [("agent_cost_99hz", beside_agent.beside(o, emit), 0.2),
                  ("first_picture", beside_agent.first_picture(o, emit), 3.0)]
    print("gate,value,limit,result")
    for name, value, limit in found:
        if value is None:
            print(f"gate {name},,<= {limit:g},skip", flush=True)
            continue
        result = "shown" if o.smoke else "pass" if value <= limit else "fail"
        print(f"gate {name},{value:.3g},<= {limit:g},{result}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--stackstat", required=True)
    p.add_argument("--loop", required=True)
    p.add_argument("--agent", required=True)
    p.add_argument("--strata", required=True)
    p.add_argument("--stratad", required=True)
    p.add_argument("--only", choices=["beside", "python"])
    p.add_argument("--smoke", action="store_true")
    p.add_argument("--rounds", type=int, default=16)
    o = p.parse_args()
    if os.geteuid() != 0:
        print("skip: needs root", file=sys.stderr)
        return SKIP
    o.cpus = sorted(os.sched_getaffinity(0))
    o.turns, o.slices, o.settle, o.first, o.seconds = 100, 60, 4, 10, 20
    o.beside, o.batch, o.perf_seconds, o.pictures = 3, 10, 6, 5
    if o.smoke:
        o.rounds, o.turns, o.slices, o.settle, o.first, o.seconds = 1, 20, 2, 1, 0, 2
        o.beside, o.batch, o.perf_seconds, o.pictures = 1, 2, 2, 1
    if not o.only:
        slow_down(o)
        for hz in (99, 999):
            agent_use(o, hz)
        map_memory(o)
    gates(o)
    return 0


if __name__ == "__main__":
    sys.exit(main())
