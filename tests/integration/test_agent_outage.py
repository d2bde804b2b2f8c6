#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The server is away for two hours of a clock that the test moves: memory stays bounded, what is given
up arrives as loss, to the nanosecond, the rest arrives once and in order, and not in a flood."""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stratasink as sink

DRIVER = os.path.join(os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent"), "outage_driver")
LONG = os.environ.get("STRATA_LONG") == "1"
SECOND = 10**9
TWO_HOURS = 7200
MIB = 1 << 20


class Outage(unittest.TestCase):
    def run_outage(self, seconds, away, **options):
        """The first batch is taken, then the server is away for so long."""
        first = []

        def answer(batch, n):
            if not first:
                first.append(batch.sent)
                return None
            if batch.sent - first[0] < away * SECOND:
                refused.append(batch.sent)
                return 503, {}, sink.error("starting")
            taken.append((batch.sent, batch.boot, batch.seq))
            return None
        taken, refused = [], []
        server = sink.Ingest(answer)
        try:
            done = subprocess.run([DRIVER, server.url, str(seconds)] +
                                  [f"{k}={v}" for k, v in options.items()], capture_output=True,
                                  text=True, timeout=600, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            server.close()
        return json.loads(done.stdout), server, taken, refused

    def judge(self, got, server, taken, inherited=0):
        batches = server.batches()
        self.assertEqual(got["produced"] + got["inherited"],
                         got["sent"] + sum(got["dropped"].values()) + got["spooled"])
        self.assertEqual((got["spooled"], got["untold"], got["inherited"]), (0, 0, inherited))
        weight = sum(b.weight() for b in batches)
        lost = [b.lost("spool_drop") for b in batches]
        dropped = sum(got["dropped"].values())
        print(f"made {got['produced']} batches, {dropped} dropped, {got['sent']} sent; "
              f"{weight / 1e9:.1f} s arrived, {sum(w for _, w in lost) / 1e9:.1f} s told as lost, of "
              f"{got['made_weight'] / 1e9:.1f} s; memory + "
              f"{(got['rss_most'] - got['rss_base']) / MIB:.1f} MiB")
        self.assertEqual(weight + sum(w for _, w in lost), got["made_weight"])
        self.assertEqual(sum(b.received() for b in batches) + sum(n for n, _ in lost),
                         got["made_n"])
        self.assertEqual(server.duplicates, 0)
        seqs = [seq for _, _, seq in taken]
        self.assertEqual(seqs, sorted(seqs), "out of order")
        ranges = {s for b in batches for first, last in b.dropped for s in range(first, last + 1)}
        self.assertEqual(len(ranges), dropped)
        self.assertFalse(ranges & {b.seq for b in batches})
        # between them nothing is missing: what is not covered by rows is covered by loss
        spans = sorted(c for b in batches for c in b.covers())
        end = spans[0][0]
        for t0, t1 in spans:
            self.assertLessEqual(t0, end, "a hole that nobody tells of")
            end = max(end, t1)
        if got["rss_counts"]:
            self.assertLessEqual(got["rss_most"] - got["rss_base"], 64 * MIB)
        return batches

    def rate(self, taken):
        """Requests in any ten intervals, against two in each."""
        times = [t for t, _, _ in taken]
        most = 0
        for i, t in enumerate(times):
            n = sum(1 for x in times[i:] if x < t + 100 * SECOND)
            most = max(most, n)
        self.assertLessEqual(most, 21)
        return most / 10

    def test_two_hours(self):
        with tempfile.TemporaryDirectory(prefix="strata-spool-") as folder:
            got, server, taken, refused = self.run_outage(
                TWO_HOURS, TWO_HOURS, dir=folder, cap=(4 * MIB if LONG else MIB // 2),
                stacks=200 if LONG else 100)
        batches = self.judge(got, server, taken)
        self.assertGreater(got["dropped"]["spool_full"], 20)
        self.assertGreater(len(taken), 50)
        gaps = sorted(b - a for a, b in zip(refused, refused[1:]))
        print(f"drained at {self.rate(taken):.1f} batches per interval; "
              f"{len(refused)} tries in 2 h, the median {gaps[len(gaps) // 2] / SECOND:.0f} s apart")
        self.assertGreater(gaps[len(gaps) // 2], 8 * SECOND)
        folded = [b for b in batches if len({r["t"] for r in b.rows()}) <= 2]
        threads = [b for b in batches if {r["tid"] for r in b.rows()} == {0}]
        print(f"{len(folded)} batches in rows of 10 s, {len(threads)} without threads")
        self.assertGreater(len(folded), len(threads))
        self.assertGreater(len(threads), 10)

    def test_in_memory(self):
        """No directory: 32 MiB (here 256 KiB), then the same."""
        got, server, taken, _ = self.run_outage(
            TWO_HOURS // 2, TWO_HOURS // 2, memory_cap=MIB // 4, stacks=100)
        self.judge(got, server, taken)
        self.assertGreater(got["dropped"]["spool_full"], 20)
        self.rate(taken)

    def test_large_in_memory(self):
        """The full 32 MiB in memory stay within 64 MiB."""
        if not LONG:
            self.skipTest("long")
        got, server, taken, _ = self.run_outage(TWO_HOURS, TWO_HOURS, stacks=2000)
        self.judge(got, server, taken)
        self.assertGreater(got["dropped"]["spool_full"], 0)


if __name__ == "__main__":
    unittest.main()
