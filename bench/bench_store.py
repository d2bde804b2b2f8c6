#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Is the store as small and as quick as it should be, against engines that people use instead?

bench_store.py --programs FOLDER --stratad EXE --data FOLDER [--workload r1,r1t,z,a,p,r2]
               [--samples N] [--rounds N] [--rivals NAMES|none] [--install] [--only PARTS] [--smoke]

Makes the workloads once below --data, loads each into a store of its own (bench_store) and, if their
environment is there (--install makes it, from PyPI), into the rivals; then every round asks each
question of each, in turn. bench_http, bench_journal and bench_live follow. Every answer is compared
with plain arrays before it counts; a wrong one ends the run. README.md explains each line.

Prints name,value,unit,n,p50,p99 (value: the minimum over the rounds), then gate,ratio,limit,result.
Exit status 1 for a wrong answer or a program that fails; a gate that is missed is printed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import store_gates

HERE = os.path.dirname(os.path.abspath(__file__))
RIVALS = ("clickhouse", "duckdb", "parquet", "sqlite")
PARTS = ("hour", "recorded", "http", "journal", "live")
QUICK = 0.5  # CPU s: a query up to this runs twice in a row in every round
SLOW = 5.0   # CPU s: a query above this runs in the first two rounds only


def emit(name, values, unit, n=None, best=min):
    values = sorted(values)
    p99 = values[min(len(values) - 1, int(0.99 * len(values)))]
    print(f"{name},{best(values):.6g},{unit},{len(values) if n is None else n},"
          f"{statistics.median(values):.6g},{p99:.6g}", flush=True)


def say(text):
    print(f"   {text}", file=sys.stderr, flush=True)


class Figures:
    """What gates are made of: {(workload, name): value}"""

    def __init__(self):
        self.value = {}

    def keep(self, workload, name, value):
        old = self.value.get((workload, name))
        self.value[workload, name] = value if old is None else min(old, value)


class Rival:
    """One engine in a process of its own"""

    def __init__(self, o, name, data, truth):
        self.name, self.timings = name, {}
        env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS")}
        self.proc = subprocess.Popen(
            [o.python, os.path.join(HERE, "rivals", "rivals.py"), "serve", name, data,
             os.path.join(o.engines, name), truth, str(o.memory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, env=env)
        self.about = self.read()
        self.skip = self.about.get("skip")

    def read(self):
        line = self.proc.stdout.readline()
        if not line:
            sys.exit(f"bench_store: {self.name} ended with status {self.proc.wait()}")
        return json.loads(line)

    def round(self, number):
        for i, (query, how) in enumerate(self.about["queries"]):
            seen = self.timings.setdefault((query, how), [])
            if number > 1 and min(t["cpu_s"] for t in seen) > SLOW:
                continue
            for _ in range(2):  # the second time as warm as it gets
                self.proc.stdin.write(f"{i}\n")
                self.proc.stdin.flush()
                seen.append(self.read())
                if seen[-1]["cpu_s"] > QUICK:
                    break

    def stop(self):
        self.proc.stdin.close()
        self.proc.wait()


class Store:
    """bench_store, loaded; round() adds to its timings"""

    def __init__(self, o, figures, workload, data):
        self.workload, self.figures, self.timings, self.values = workload, figures, {}, {}
        command = [os.path.join(o.programs, "bench_store"), "--data", data, "--dir", o.dir,
                   "--seal", str(o.seal), "--wait", str(o.wait)]
        self.proc = subprocess.Popen(command + (["--smoke"] if o.smoke else []), text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.until("ready")

    def until(self, last):
        for line in self.proc.stdout:
            if line == last + "\n":
                return
            take(line, self.values, self.timings)
            if line.startswith("value,"):  # at once: what an interrupted run has found
                name = line.split(",")[1]
                values, unit, n = self.values[name]
                emit(f"{self.workload} {name}", values, unit, n)
        sys.exit(f"bench_store: the store's side ended with status {self.proc.wait()}")

    def round(self):
        self.proc.stdin.write("round\n")
        self.proc.stdin.flush()
        self.until("end")

    def stop(self):
        self.proc.stdin.close()
        self.proc.stdout.read()
        if self.proc.wait() != 0:
            sys.exit(f"bench_store: the store's side ended with status {self.proc.returncode}")

    def report(self):
        w, keep = self.workload, self.figures.keep
        for name, (values, _unit, _n) in self.values.items():
            keep(w, name, min(values))
        sealed = self.values.get("bytes_sealed_all")
        if sealed:
            keep(w, "bytes", sealed[0][0])
        for name, seen in self.timings.items():
            cpu = [t[0] / 1e6 for t in seen]
            emit(f"{w} {name}", cpu, "CPU ms")
            emit(f"{w} {name} wall", [t[1] / 1e6 for t in seen], "ms")
            keep(w, name, min(cpu))
            if name in ("cut", "floor", "all_raw") and seen[0][2]:
                per_row = [1e6 * c / seen[0][2] for c in cpu]
                emit(f"{w} {name} per row", per_row, "ns")
                keep(w, name + "_per_row", min(per_row))


def take(line, values, timings):
    """A line of one of our programs, into the tables."""
    kind, name, *rest = line.rstrip("\n").split(",")
    if kind == "value":
        values.setdefault(name, ([], rest[1], rest[2]))[0].append(float(rest[0]))
    elif kind == "time":
        timings.setdefault(name, []).append(tuple(float(x) for x in rest))
    elif kind == "quantiles":
        timings.setdefault(name, []).append(tuple(float(x) for x in rest))
    else:
        sys.exit(f"bench_store: a line that is not known: {line}")


# ---- rivals ----------------------------------------------------------------------------------


def environment(o):
    """The Python of the rivals' environment, or None. --install makes it below the data folder."""
    folder = os.path.join(o.data, "rivals-venv")
    python, ready = os.path.join(folder, "bin", "python"), os.path.join(folder, "ready")
    wanted = os.path.join(HERE, "rivals", "requirements.txt")
    if o.install and not os.path.exists(ready):
        say("installing the rivals' environment")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "-r", wanted], check=True, stdout=sys.stderr)
        with open(ready, "w", encoding="utf-8") as file:
            file.write("installed\n")
    return python if os.path.exists(ready) else None


def start_rivals(o, workload, data):
    if workload not in ("r1", "r2") or not o.rivals:
        return []
    if not o.python:
        for name in o.rivals:
            print(f"{workload} {name},skip,not installed (--install makes the environment),,,",
                  flush=True)
        return []
    truth = os.path.join(data, "truth.json")
    if not os.path.exists(truth):
        subprocess.run([o.python, os.path.join(HERE, "rivals", "rivals.py"), "truth", data, truth],
                       check=True)
    started = []
    for name in o.rivals:
        rival = Rival(o, name, data, truth)
        if rival.skip:
            print(f"{workload} {name},skip,{rival.skip},,,", flush=True)
            rival.stop()
            continue
        say(f"{name}: loaded")
        started.append(rival)
    return started


def rival_bytes(figures, workload, rival, samples):
    parts = {k: v / samples for k, v in rival.about["bytes"].items()}
    for part, size in parts.items():
        emit(f"{workload} {rival.name} bytes {part}", [size], "B per sample", samples)
    need = sum(parts.get(p, 0) for p in ("sample", "trie", "names"))
    for name, more in (("", ()), ("_rollup", ("rollup",)), ("_paths", ("rollup", "path"))):
        if all(p in parts for p in more):
            figures.keep(workload, f"{rival.name}_bytes{name}", need + sum(parts[p] for p in more))


def report_rivals(figures, workload, rivals, samples):
    for r in rivals:
        print(f"{workload} {r.name} version,,{r.about['version']},,,")
        rival_bytes(figures, workload, r, samples)
        load = 0
        for step, t in r.about["load"].items():
            emit(f"{workload} {r.name} load: {step.replace(',', ';')}", [t["cpu_s"] / samples * 1e9],
                 "ns per sample", samples)
            load += t["cpu_s"] / samples * 1e9
        figures.keep(workload, f"{r.name}_load", load)
        for (query, how), seen in r.timings.items():
            cpu = [1e3 * t["cpu_s"] for t in seen]
            emit(f"{workload} {r.name} {query} {how.replace(',', ';')}", cpu, "CPU ms")
            key = f"{r.name}_{query}"
            if query in ("b", "c"):
                if how.startswith("client: roll-up"):
                    figures.keep(workload, f"client_{query}", min(cpu))
                key += "_sql" if how.startswith("SQL") else "_client"
            elif query == "a2":
                key += "_raw" if how == "raw" else "_rollup"
            figures.keep(workload, key, min(cpu))


# ---- the parts -------------------------------------------------------------------------------


def generate(o, workload):
    samples = o.samples if workload not in ("r2", "p") or o.smoke else None
    if workload == "r2" and samples is None:
        samples = store_gates.FULL["r2"]
    if workload == "p" and samples is None:
        samples = min(o.samples, 1_000_000)
    folder = os.path.join(o.data, f"{workload}-{samples}")
    os.makedirs(o.data, exist_ok=True)
    subprocess.run([os.path.join(o.programs, "gen_profile"), "--samples", str(samples), "--fold",
                    os.path.join(HERE, "agent_fold.txt"), workload, folder], check=True)
    with open(os.path.join(folder, "meta.txt"), encoding="utf-8") as file:
        meta = dict(line.split() for line in file)
    print(f"{workload} generator seed,{meta['seed']},,{meta['samples']},,")
    return folder, int(meta["samples"]), samples


def hour(o, figures, sizes):
    for workload in o.workload:
        data, samples, drawn = generate(o, workload)
        sizes[workload] = drawn
        rivals = start_rivals(o, workload, data)
        store = Store(o, figures, workload, data)
        for number in range(o.rounds):
            store.round()
            for rival in rivals:
                rival.round(number)
            say(f"{workload}: round {number + 1} of {o.rounds}")
        store.stop()
        for rival in rivals:
            rival.stop()
        store.report()
        report_rivals(figures, workload, rivals, samples)


def program(o, figures, name, *more):
    """Runs one of the other programs and takes its lines."""
    values, timings = {}, {}
    command = [os.path.join(o.programs, name), "--dir", o.dir, *more]
    proc = subprocess.Popen(command + (["--smoke"] if o.smoke else []), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    for line in proc.stdout:
        take(line, values, timings)
    if proc.wait() != 0:
        sys.exit(f"bench_store: {name} ended with status {proc.returncode}")
    for key, (seen, unit, n) in values.items():
        emit(key, seen, unit, n)
        figures.keep("", key, min(seen))
    for key, seen in timings.items():
        p50, p99 = (statistics.median(t[i] for t in seen) / 1e6 for i in (0, 1))
        print(f"{key},{p50:.6g},ms,{int(sum(t[2] for t in seen))},{p50:.6g},{p99:.6g}", flush=True)
        figures.keep("", key + "_p50", p50)
        figures.keep("", key + "_p99", p99)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--programs", required=True, help="where gen_profile and bench_* lie")
    p.add_argument("--stratad", required=True)
    p.add_argument("--data", required=True, help="workloads, rivals and their environment")
    p.add_argument("--dir", help="where stores are made, on a disk; default: --data")
    p.add_argument("--workload", type=lambda s: s.split(","), default=["r1"])
    p.add_argument("--samples", type=int, default=1_000_000)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--rivals", type=lambda s: [] if s == "none" else s.split(","),
                   default=list(RIVALS))
    p.add_argument("--install", action="store_true", help="make the rivals' environment")
    p.add_argument("--memory", type=int, default=5 << 30, help="bytes that a rival may use")
    p.add_argument("--only", type=lambda s: s.split(","), default=list(PARTS), help=",".join(PARTS))
    p.add_argument("--seal", type=int, default=60, help="seconds of the hour per seal; 0: at its end")
    p.add_argument("--wait", type=int, default=300, help="seconds for compaction")
    p.add_argument("--smoke", action="store_true", help="correctness only: one round, no rivals")
    o = p.parse_args()
    if o.smoke:
        o.rounds, o.rivals, o.wait = 1, [], 30
        o.samples = min(o.samples, 200_000)
    unknown = set(o.only) - set(PARTS) | set(o.rivals) - set(RIVALS)
    if unknown:
        p.error(f"unknown: {', '.join(sorted(unknown))}")
    o.dir = o.dir or o.data
    return o


def main():
    o = arguments()
    figures, sizes = Figures(), {}
    print("name,value,unit,n,p50,p99")
    o.python = environment(o) if o.rivals and "hour" in o.only else None
    if "hour" in o.only:
        os.makedirs(o.data, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="engines-", dir=o.data) as o.engines:
            hour(o, figures, sizes)
    recorded = os.path.join(o.data, "recorded")
    if "recorded" in o.only and os.path.isdir(recorded):
        program(o, figures, "bench_recorded", recorded)
    elif "recorded" in o.only:
        print("recorded,skip,no batches of a real agent (record_agent.py keeps some),,,")
    if "http" in o.only:
        program(o, figures, "bench_http", "--stratad", o.stratad)
    if "journal" in o.only:
        program(o, figures, "bench_journal")
    if "live" in o.only:
        program(o, figures, "bench_live", "--data", generate(o, "r1")[0])
    print("gate,ratio,limit,result")
    for line in store_gates.gates(figures.value, sizes, o.smoke):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
