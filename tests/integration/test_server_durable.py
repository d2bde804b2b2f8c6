#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every 200 means durable: strace sees a fdatasync (or fsync) that ends after the batch was read and
before its 200 is written. Exit status 77 where strace cannot run."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import stratabatch as sb
from servertest import Server
from test_server_start import one_batch

CALLS = "trace=fdatasync,fsync,recvfrom,recvmsg,read,sendto,sendmsg,write,writev"


def strace_runs():
    if not shutil.which("strace"):
        return "strace is not installed"
    done = subprocess.run(["strace", "-f", "-o", "/dev/null", "true"], capture_output=True,
                          text=True, check=False, stdin=subprocess.DEVNULL)
    return "" if done.returncode == 0 else "strace cannot trace here: " + done.stderr.strip()


def end_of(line):
    """Time at which the call of a line ended: its start plus its duration."""
    t = float(line.split()[1])
    took = re.search(r"<([0-9.]+)>$", line)
    if "resumed>" in line or not took:
        return t  # printed when it ended
    return t + float(took.group(1))


class Durable(unittest.TestCase):
    def test_sync_before_200(self):
        d = tempfile.mkdtemp(prefix="stratad-test-")
        self.addCleanup(shutil.rmtree, d, True)
        log = os.path.join(d, "strace")
        n = 5
        with Server(dir=os.path.join(d, "data"),
                    # the leak checker of a sanitizer build cannot work under a tracer
                    prefix=["env", "ASAN_OPTIONS=detect_leaks=0", "strace", "-D", "-f", "-ttt", "-T",
                            "-s", "64", "-e", CALLS, "-o", log]) as s:
            for _ in range(n):
                self.assertEqual(sb.post(s.url, one_batch())["http"], 200)
                time.sleep(0.05)
            self.assertEqual(s.stop(), 0)
        with open(log, encoding="utf-8", errors="replace") as f:
            lines = f.readlines()
        arrived = [end_of(l) for l in lines if "POST /api/v1/batch" in l]
        answered = [float(l.split()[1]) for l in lines if '"HTTP/1.1 200' in l]
        syncs = [end_of(l) for l in lines
                 if re.search(r"(fdatasync|fsync)(\(| resumed>)", l) and "= 0" in l]
        self.assertEqual((len(arrived), len(answered)), (n, n))
        for a, b in zip(arrived, answered):
            self.assertTrue(any(a < t <= b for t in syncs),
                            f"no sync between arrival {a} and answer {b}")


if __name__ == "__main__":
    why = strace_runs()
    if why:
        print("skipped:", why)
        sys.exit(77)
    unittest.main(verbosity=2)
