#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a real agent reports of this machine, as numbers for workload a of gen_profile.

usage: record_agent.py AGENT_PROGRAM SECONDS OUT [BATCH_FOLDER]

Runs the agent against a server of the tests' own while programs work beside it (a compiler, Python,
compression, hashing), and writes numbers only: no names, no paths.
  count N             observations in one folded row of type cpu, drawn evenly over the recording
  wait N NS           voluntary switches and time off the CPU of one thread in one second, from
                      /proc (until the agent has a source for it)
  stream JITTER LOST  of one cpu stream: what its ticks came late in all, ns; observations lost
BATCH_FOLDER, if given, gets the bodies as they came, one file each: they hold names and command
lines of this machine, so they stay where they are. Needs the rights for BPF; 77 without.
"""
import os
import random
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "integration"))
import stratasink as sink

ROWS, WAITS = 2000, 2000
PYTHON = """
import json, re, time
end = time.time() + {s}
while time.time() < end:
    d = json.loads(json.dumps([{{"a": i, "b": str(i) * 3}} for i in range(2000)]))
    re.findall(r"(\\d+)1", " ".join(x["b"] for x in d))
    time.sleep(0.003)
"""


def programs(seconds):
    """Command lines that work, and wait, in different ways for about so long."""
    source = os.path.join(os.path.dirname(HERE), "storage", "scan.c")
    root = os.path.dirname(HERE)
    return [
        [sys.executable, "-c", PYTHON.format(s=seconds)],
        ["sh", "-c", f"end=$(($(date +%s)+{seconds})); while [ $(date +%s) -lt $end ]; do "
         f"gcc -std=gnu2x -D_GNU_SOURCE -O2 -I {root} -c {source} -o /dev/null; sleep 0.1; done"],
        ["sh", "-c", f"end=$(($(date +%s)+{seconds})); while [ $(date +%s) -lt $end ]; do "
         "head -c 20000000 /dev/zero | gzip | sha256sum >/dev/null; done"],
    ]


def threads():
    """(pid, tid) -> voluntary switches, ns on CPU, ns waiting for one"""
    out = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for tid in os.listdir(f"/proc/{pid}/task"):
                base = f"/proc/{pid}/task/{tid}/"
                with open(base + "schedstat", encoding="ascii") as file:
                    run, wait, _ = map(int, file.read().split())
                with open(base + "status", encoding="ascii", errors="replace") as file:
                    n = next(int(l.split()[1]) for l in file if l.startswith("voluntary_ctxt"))
                out[pid, tid] = n, run, wait
        except (OSError, StopIteration):
            continue  # it has ended
    return out


def waits(seconds):
    found, before, at = [], threads(), time.monotonic_ns()
    for _ in range(seconds):
        time.sleep(1)
        now, then = threads(), time.monotonic_ns()
        for key, (n, run, wait) in now.items():
            if key in before and n > before[key][0]:
                off = then - at - (run - before[key][1]) - (wait - before[key][2])
                if off > 0:
                    found.append((n - before[key][0], off))
        before, at = now, then
    return found


def main():
    agent, seconds, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    server = sink.Ingest()
    with tempfile.TemporaryDirectory() as state:
        proc = subprocess.Popen([agent, "--state-dir", state, "-o", f"server.url={server.url}"],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        busy = [subprocess.Popen(p, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 start_new_session=True) for p in programs(seconds)]
        try:
            seen = waits(seconds)
        finally:
            for p in busy:
                os.killpg(p.pid, 9)
                p.wait()
            proc.terminate()
            proc.wait(timeout=30)
    batches = server.batches()
    server.close()
    if not batches:
        print("record_agent: no batch came: no rights for BPF?", file=sys.stderr)
        return 77
    rng = random.Random(1)
    counts = [r["count"] for b in batches for r in b.rows()]
    cpu = [s for b in batches for s in b.streams if s.one(1) == 1]
    rng.shuffle(counts)
    rng.shuffle(seen)
    with open(out, "w", encoding="ascii") as file:
        file.write("# numbers that a real agent and /proc reported; made by record_agent.py\n")
        file.write(f"# {seconds} s, {len(batches)} batches, {len(counts)} rows, {len(cpu)} streams,"
                   f" {len(seen)} thread-seconds\n")
        file.writelines(f"count {n}\n" for n in sorted(counts[:ROWS]))
        file.writelines(f"wait {n} {ns}\n" for n, ns in sorted(seen[:WAITS]))
        for s in cpu[:500]:
            lost = sum(max(n - 1, 0) for n in s.column(sink.LOSS_N))
            file.write(f"stream {sink.zigzag(s.one(30))} {lost}\n")
    if len(sys.argv) > 4:
        os.makedirs(sys.argv[4], exist_ok=True)
        for i, b in enumerate(batches):
            with open(os.path.join(sys.argv[4], f"{i:05}.batch"), "wb") as file:
                file.write(b.body)
    print(f"record_agent: {len(batches)} batches, {sum(len(b.body) for b in batches)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
