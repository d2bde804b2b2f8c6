#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The demo burns what it says, stops when asked, and refuses nonsense.

usage: test_demo.py DEMO
"""
import signal
import subprocess
import sys
import unittest

DEMO = sys.argv.pop(1)
SHARES = {"blur_image": 0.60, "compress_image": 0.30, "hash_tags": 0.10}


def report(text):
    last = text.strip().split("\n")[-1]
    return {k: int(v) for k, v in (pair.split("=") for pair in last.split())}


class Demo(unittest.TestCase):
    def test_shares_by_its_own_clock(self):
        for arguments in (["-s", "2"], ["-s", "2", "-t", "5", "-l", "100"]):
            out = subprocess.run([DEMO, *arguments], check=True, capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, timeout=60).stdout
            burned = report(out)
            inside = sum(burned[name] for name in SHARES)
            self.assertGreater(inside, 0.95 * burned["cpu_ns"], out)
            for name, share in SHARES.items():
                self.assertAlmostEqual(burned[name] / inside, share, delta=0.01, msg=out)

    def test_stops_on_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            demo = subprocess.Popen([DEMO], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            self.assertIn("2 threads", demo.stdout.readline())
            demo.send_signal(number)
            out, _ = demo.communicate(timeout=10)
            self.assertEqual(demo.returncode, 0)
            self.assertEqual(set(report(out)), {"cpu_ns", *SHARES})

    def test_refuses_nonsense(self):
        for arguments in (["-t", "0"], ["-t", "65"], ["-l", "101"], ["-l", "x"], ["-s", ""],
                          ["-s", "99999999999999999999"], ["extra"], ["-z"]):
            done = subprocess.run([DEMO, *arguments], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=10, check=False)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("usage: demo", done.stderr)


if __name__ == "__main__":
    unittest.main()
