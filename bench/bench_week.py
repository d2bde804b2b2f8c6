#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Make the small hour once, then run bench_week with it. What ./dev bench week calls.

usage: bench_week.py --programs FOLDER --data FOLDER [--smoke] [ARGUMENT...]
Further arguments are bench_week's: --hours, --rounds, --dir, --keep.
"""
import argparse
import os
import subprocess
import sys
import tempfile

SAMPLES = 50000
SMOKE_SAMPLES = 2000


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--programs", required=True)
    p.add_argument("--data", required=True)
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
        return subprocess.run([os.path.join(o.programs, "bench_week"), "--data", folder, *rest],
                              check=False).returncode


sys.exit(main())
