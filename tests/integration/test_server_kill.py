#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL under load: every acknowledged batch is there, once. STRATA_ROUNDS rounds (10).

Each sender keeps one batch in flight; what was in flight at a kill is sent again after it, as an
agent would, and may have been stored or not: its identity decides. Values are powers of no two, so
that a batch lost and another counted twice do not cancel: each batch weighs its own number.
"""
import http.client
import os
import random
import shutil
import tempfile
import threading
import time
import unittest
import urllib.error

import stratabatch as sb
from servertest import Server

ROUNDS = int(os.environ.get("STRATA_ROUNDS", "10"))
SENDERS = 6
S = 10**9


class Sender(threading.Thread):
    """Sends numbered batches until stopped; acked: the weights that got a 200."""

    def __init__(self, number, url, state):
        super().__init__(daemon=True)
        self.number, self.url, self.state = number, url, state
        self.halt = threading.Event()
        self.unexpected = []

    def run(self):
        st = self.state
        while not self.halt.is_set():
            if st["pending"] is None:
                st["seq"] += 1
                st["pending"] = make(self.number, st["seq"], st["boot"])
            weight, batch = st["pending"]
            try:
                r = sb.post(self.url, batch, timeout=10)
            except (OSError, http.client.HTTPException, urllib.error.URLError):
                return  # the server is gone: pending goes into the next round
            if r["http"] == 200:
                st["acked"].append(weight)
                st["pending"] = None
            elif r["http"] in (429, 503):
                time.sleep(0.05)
            else:
                self.unexpected.append(r)
                return


def make(number, seq, boot):
    now = time.time_ns() // S * S
    weight = number * 1_000_003 + seq * 7919 + random.randrange(1000)
    b = sb.Batch(agent=b"kill-agent-%05d" % number, boot=boot, seq=seq)
    b.stream("cpu", now - 10 * S, now, period=1, basis="every",
             labels={"service": f"s{number % 3}"},
             rows=[dict(stack=["main", f"f{seq % 50}"], value=weight)])
    return weight, b


class Kill(unittest.TestCase):
    def test_every_acknowledged_batch_once(self):
        seed = int(os.environ.get("STRATA_SEED", str(time.time_ns() % 10**6)))
        print(f"seed {seed}, {ROUNDS} rounds", flush=True)
        random.seed(seed)
        d = tempfile.mkdtemp(prefix="stratad-test-")
        self.addCleanup(shutil.rmtree, d, True)
        states = [dict(seq=0, pending=None, acked=[], boot=os.urandom(16)) for _ in range(SENDERS)]
        for i in range(ROUNDS + 1):
            with Server(dir=d, settings={"ingest.age": "7d"}) as s:
                self.compare(s, states, i)
                if i == ROUNDS:
                    break
                senders = [Sender(n, s.url, st) for n, st in enumerate(states)]
                for t in senders:
                    t.start()
                time.sleep(random.uniform(0.05, 0.6))
                s.kill()
                for t in senders:
                    t.halt.set()
                    t.join(15)
                    self.assertEqual(t.unexpected, [])
        self.assertGreater(sum(len(st["acked"]) for st in states), ROUNDS)

    def compare(self, s, states, i):
        """What was in flight is settled first, by sending it again: stored or duplicate."""
        for st in states:
            if st["pending"] is not None:
                r = sb.post(s.url, st["pending"][1])
                self.assertEqual(r["http"], 200, r)
                st["acked"].append(st["pending"][0])
                st["pending"] = None
        want, n = sum(sum(st["acked"]) for st in states), sum(len(st["acked"]) for st in states)
        a = s.get("/api/v1/top", q="cpu", limit=0, **{"from": "now-1h"}).json()
        self.assertEqual((int(a["total"] or 0), int(a["samples"] or 0)), (want, n),
                         f"round {i}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
