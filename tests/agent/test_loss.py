#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A ring that is far too small and a collector that sleeps: what is counted as lost is what is missing.

With a ring of 64 KiB the collector is stopped for 3 s. Then, in integers: weight received + weight
refused = busy time. And against a clock that knows nothing of ticks: busy + idle + missed + jitter
is the wall time of the CPUs.
"""
import os
import signal
import subprocess
import time
import unittest

import agent_lib

PERIOD = 2004008


class Loss(unittest.TestCase):
    def test_ring_full(self):
        burn = [subprocess.Popen([agent_lib.tool("burn"), "60"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL) for _ in range(2)]
        outer = time.monotonic()
        try:
            stat = agent_lib.Stackstat([p.pid for p in burn], "-p", PERIOD, "-r", 65536, "-s", 600)
            begin = time.monotonic()
            time.sleep(1)
            stat.proc.send_signal(signal.SIGSTOP)
            time.sleep(3)
            stat.proc.send_signal(signal.SIGCONT)
            time.sleep(1)
            wall = time.monotonic() - begin
            stat.proc.terminate()
            r = stat.finish()
            outer = time.monotonic() - outer
        finally:
            for p in burn:
                p.kill()
                p.wait()
        t = r.total
        print(f"lost {t['ring_full']} records, {t['ring_full_ns'] / 1e9:.3f} s of "
              f"{t['busy_ns'] / 1e9:.3f} s busy")
        self.assertEqual(t["identity"], "ok", r.text)
        self.assertEqual(r.code, 0)
        self.assertEqual(t["weight_ns"] + t["ring_full_ns"] + t["filtered_ns"], t["busy_ns"])
        self.assertEqual(t["ring_full_ns"], t["ring_full"] * PERIOD)
        self.assertGreater(t["ring_full"], 100, "the ring was not too small")
        seen = t["busy_ns"] + t["idle_ns"] + t["missed_ns"] + t["missed_idle_ns"] + t["jitter_ns"]
        # it samples a little before it says so, and until it comes to see the signal: a busy machine
        # takes its time for both
        self.assertGreater(seen / 1e9, 0.95 * wall * t["width"])
        self.assertLess(seen / 1e9, 1.05 * outer * t["width"])

    def test_excluded(self):
        burn = subprocess.Popen([agent_lib.tool("burn"), "60"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL)
        try:
            # records from before it was excluded may still lie in the ring: those do not count
            stat = agent_lib.Stackstat([burn.pid], "-p", PERIOD, "-x", "-s", 2, "-w", 0.1)
            before = agent_lib.cpu_clock_ns(burn.pid)
            r = stat.finish()
            used = agent_lib.cpu_clock_ns(burn.pid) - before
        finally:
            burn.kill()
            burn.wait()
        p = r.process[burn.pid]
        print(f"excluded: {r.total['filtered_ns'] / 1e9:.3f} s filtered of {used / 1e9:.3f} s, "
              f"{p['n']} records")
        self.assertEqual(r.code, 0, r.text)
        self.assertGreater(r.total["filtered_ns"], 0.2 * used)
        self.assertEqual(p["n"], 0)


if __name__ == "__main__":
    agent_lib.need_root()
    unittest.main(verbosity=0)
