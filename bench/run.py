#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Run benchmark programs and print their CSV. What ./dev bench calls.

usage: run.py --build BUILD_FOLDER [--save] [NAME [ARGUMENT...]]

Without NAME: all. --save writes bench/results/<date>-<name>.csv, headed by machine, compiler and
commit; a claim of speed points to such a file. Exit status 1 if one failed, 77 if none could run.
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEAD = "name,value,unit,n,p50,p99"


def output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False,
                              stdin=subprocess.DEVNULL)
    except OSError:
        return ""
    return done.stdout.strip()


def machine():
    """Lines that say what the figures belong to; no host name, no path."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [l.split(":", 1)[1].strip() for l in file if l.startswith("model name")]
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory = int(file.readline().split()[1]) // 1024
    virtual = output("systemd-detect-virt") or "unknown"
    git = ("git", "-c", "safe.directory=*")
    commit = output(*git, "rev-parse", "--short=12", "HEAD") or "unknown"
    changed = " with changes" if output(*git, "status", "--porcelain", "-uno") else ""
    return [
        f"date: {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
        f"machine: {os.cpu_count()} x {models[0] if models else platform.machine()}, "
        f"{memory} MiB, virtualisation {virtual}",
        f"kernel: {platform.release()}",
        f"compiler: {output('gcc', '--version').splitlines()[0]}, build type release",
        f"commit: {commit}{changed}",
    ]


def benchmarks(build):
    found = json.loads(output("meson", "introspect", "--benchmarks", build) or "[]")
    return {b["name"]: b for b in found}


def run(name, bench, arguments, save):
    print(f"== {name}", file=sys.stderr, flush=True)
    begun = time.monotonic()
    env = {**os.environ, **bench["env"]}
    process = subprocess.Popen([*bench["cmd"], *arguments], stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, cwd=bench["workdir"] or ROOT, env=env)
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    status = process.wait()
    print(f"   {name}: {time.monotonic() - begun:.0f} s, status {status}", file=sys.stderr, flush=True)
    if save and status == 0:
        folder = os.path.join(ROOT, "bench", "results")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{time.strftime('%Y%m%d', time.gmtime())}-{name}.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"# {line}\n" for line in machine())
            if not lines or lines[0].strip() != HEAD:
                file.write(HEAD + "\n")
            file.writelines(lines)
        print(f"   saved: {os.path.relpath(path, ROOT)}", file=sys.stderr)
    return status


def main():
    parser = argparse.ArgumentParser(description="run benchmark programs")
    parser.add_argument("--build", required=True)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("name", nargs="?")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    known = benchmarks(os.path.abspath(options.build))
    if options.name and options.name not in known:
        print(f"bench: no benchmark '{options.name}': there are {', '.join(sorted(known)) or 'none'}",
              file=sys.stderr)
        return 2
    names = [options.name] if options.name else sorted(known)
    statuses = [run(n, known[n], options.arguments, options.save) for n in names]
    if any(s not in (0, 77) for s in statuses):
        return 1
    return 0 if 0 in statuses else 77


if __name__ == "__main__":
    sys.exit(main())
