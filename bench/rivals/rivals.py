#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One engine, loaded with a workload of gen_profile and asked what a profiler asks.

usage: rivals.py truth DATA OUT.json
       rivals.py serve NAME DATA FOLDER TRUTH.json MEMORY_BYTES

truth writes what every answer must be, computed by numpy from the plain columns. serve loads the
engine NAME (clickhouse, duckdb, parquet, sqlite) into FOLDER, says so in one line of JSON, then
answers each line "N" (number of a query) by its CPU and wall time; a wrong answer ends it with
status 1. bench_store.py starts one process per engine and keeps all of them alive, so that a round
runs each query in each engine.

CPU time is that of the engine's process, all its threads. Run by the environment of
requirements.txt, never by the product.
"""
import importlib
import json
import os
import resource
import shutil
import sys
import time
from pathlib import Path

from work import Truth, Work, digest

RIVALS = {"clickhouse": "ClickHouse", "duckdb": "DuckDb", "parquet": "Parquet",
          "sqlite": "SqliteRows"}


def now():
    return time.process_time(), time.perf_counter()


def spent(begin):
    return {"cpu_s": time.process_time() - begin[0], "wall_s": time.perf_counter() - begin[1]}


def write_truth(data, out):
    truth = Truth(Work(data))
    out.write_text(json.dumps({"digest": truth.digest, "floor": truth.floor}))


def load(rival):
    """Steps are timed; what comes behind a step named None is not."""
    times, begin, step = {}, None, None
    for following in rival.load():
        if step:
            times[step] = spent(begin)
        step, begin = following, now()
    if step:
        times[step] = spent(begin)
    return times


def serve(name, data, folder, truth, memory, out):
    work = Work(data)
    engine = getattr(importlib.import_module("engine_" + name), RIVALS[name])
    if work.samples > getattr(engine, "limit", work.samples):
        print(json.dumps({"skip": f"more than {engine.limit} samples take it too long"}), file=out,
              flush=True)
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rival = engine(work, folder, truth["floor"], memory)
    times = load(rival)
    queries = rival.queries()
    print(json.dumps({
        "version": rival.version, "load": times, "bytes": rival.bytes(),
        "load_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "queries": [(query, how) for query, how, _ in queries]}), file=out, flush=True)
    for line in sys.stdin:
        query, how, run = queries[int(line)]
        begin = now()
        answer = run()
        times = spent(begin)
        got = list(digest(answer[:-1], answer[-1]))
        if got != truth["digest"][query]:
            sys.exit(f"{name}, {query}, {how}: wrong answer, {got} instead of "
                     f"{truth['digest'][query]}")
        print(json.dumps(times), file=out, flush=True)


def main():
    if sys.argv[1] == "truth":
        write_truth(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    _, _, name, data, folder, truth, memory = sys.argv
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an engine says of its own accord is not an answer
    serve(name, Path(data), Path(folder), json.loads(Path(truth).read_text()), int(memory), out)


if __name__ == "__main__":
    main()
