#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL under load and under seals: every acknowledged batch is there, once. STRATA_ROUNDS rounds
(20); what is in the head is sealed five times a second.

Each sender keeps one batch in flight; what was in flight at a kill is sent again after it, as an
agent would, and may have been stored or not: its identity decides. The page cache survives a kill:
that the disk has it is shown by test_server_power.py and tests/unit/test_storage_power.c.
"""
import os
import random
import shutil
import tempfile
import time
import unittest

from senders import World, stored
from servertest import Server

ROUNDS = int(os.environ.get("STRATA_ROUNDS", "20"))
PER_STORE = 50  # kills of one directory: what is kept grows with each
SENDERS = 4
PAUSE_S = 0.05  # 20 batches a second each, at most
SETTINGS = {"ingest.age": "7d", "storage.seal_after": "200ms"}


class Kill(unittest.TestCase):
    def test_every_acknowledged_batch_once(self):
        seed = int(os.environ.get("STRATA_SEED", str(time.time_ns() % 10**6)))
        print(f"seed {seed}, {ROUNDS} kills", flush=True)
        random.seed(seed)
        done = acknowledged = 0
        while done < ROUNDS:
            n = min(PER_STORE, ROUNDS - done)
            acknowledged += self.kills_of_one(n)
            done += n
        print(f"{acknowledged} acknowledged before {ROUNDS} kills, 0 lost, 0 doubled", flush=True)
        self.assertGreater(acknowledged, ROUNDS)

    def kills_of_one(self, rounds):
        d = tempfile.mkdtemp(prefix="stratad-test-")
        self.addCleanup(shutil.rmtree, d, True)
        world = World(SENDERS)
        for i in range(rounds + 1):
            with Server(dir=d, settings=SETTINGS) as s:
                world.resend(s)
                self.assertEqual(stored(s), world.acknowledged(), f"after kill {i}")
                if i == rounds:
                    break
                # some senders wait between batches, some do not
                threads = world.start(s.url, random.choice((0, PAUSE_S)))
                time.sleep(random.uniform(0.02, 0.5))
                s.kill()
                for t in threads:
                    t.end()
                    self.assertEqual(t.unexpected, [])
        shutil.rmtree(d)
        return world.acknowledged()[1]


if __name__ == "__main__":
    unittest.main(verbosity=2)
