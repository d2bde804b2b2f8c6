#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Make the small hour once, run bench_week with it, then open the page on the same store in Chromium
(bench/ui/week.mjs; `skip` where there is none). What ./dev bench week calls.

usage: bench_week.py --programs FOLDER --data FOLDER [--stratad EXE --ui FOLDER] [--smoke] [ARGUMENT...]
Further arguments are bench_week's: --hours, --rounds, --dir.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = 50000
SMOKE_SAMPLES = 2000


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--programs", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--stratad")
    p.add_argument("--ui")
    p.add_argument("--smoke", action="store_true")
    o, rest = p.parse_known_args()
    with tempfile.TemporaryDirectory() as scratch:
        if o.smoke:
            folder = os.path.join(scratch, "r1")
            rest += ["--smoke", "--dir", scratch]
        else:
            folder = os.path.join(o.data, f"r1-{SAMPLES}")
        if not os.path.exists(os.path.join(folder, "meta.txt")):
            os.makedirs(folder, exist_ok=True)
            subprocess.run([os.path.join(o.programs, "gen_profile"), "--samples",
                            str(SMOKE_SAMPLES if o.smoke else SAMPLES), "r1", folder], check=True)
        print("name,value,unit,n,p50,p99", flush=True)
        browse = o.stratad and not o.smoke
        run = subprocess.run([os.path.join(o.programs, "bench_week"), "--data", folder, *rest,
                              *(["--keep"] if browse else [])], text=True, check=False,
                             stderr=subprocess.PIPE if browse else None)
        if browse:
            return browse_store(o, run) or run.returncode
        return run.returncode


def browse_store(o, run):
    """The page on the store that the run has left. 0, or what failed."""
    kept = [l.split(": ", 1)[1] for l in run.stderr.splitlines() if l.startswith("kept: ")]
    if run.returncode != 0 or not kept:
        sys.stderr.write(run.stderr)
        return run.returncode or 1
    try:
        status = subprocess.run(["node", os.path.join(HERE, "ui", "week.mjs"), o.stratad, o.ui,
                                 kept[0]], check=False).returncode
    except OSError:
        status = 77
    finally:
        shutil.rmtree(kept[0])
    if status == 77:
        print("week_page,skip,no Chromium or no driver,,,", flush=True)
    return 0 if status == 77 else status


sys.exit(main())
