#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A real file system is shut down under a running server, as a power cut does: ext4's own
FS_IOC_SHUTDOWN, with its log flushed or not. Mounted and started again, every batch that was
acknowledged before is there, once, after what was under way is sent again.

STRATA_ROUNDS cuts (20). Exit status 77 where nothing can be mounted.
"""
import os
import random
import sys
import time
import unittest

import faultfs
from senders import World, stored
from servertest import Server

ROUNDS = int(os.environ.get("STRATA_ROUNDS", "20"))
SENDERS = 4
PER_IMAGE = 20  # cuts of one file system: what is kept grows with each
SETTINGS = {"ingest.age": "7d", "storage.min_free": "1MiB"}


class Power(unittest.TestCase):
    def test_cuts(self):
        seed = int(os.environ.get("STRATA_SEED", str(time.time_ns() % 10**6)))
        print(f"seed {seed}, {ROUNDS} cuts", flush=True)
        random.seed(seed)
        acknowledged = done = 0
        while done < ROUNDS:
            n = min(PER_IMAGE, ROUNDS - done)
            acknowledged += self.cuts_of_one(n)
            done += n
        print(f"{acknowledged} acknowledged before {ROUNDS} cuts, 0 lost, 0 doubled", flush=True)
        self.assertGreater(acknowledged, ROUNDS)

    def cuts_of_one(self, rounds):
        world = World(SENDERS)
        with faultfs.Ext4(96 << 20) as fs:
            d = os.path.join(fs.path, "data")
            for i in range(rounds + 1):
                with Server(dir=d, settings=SETTINGS) as s:
                    world.resend(s)
                    self.assertEqual(stored(s), world.acknowledged(), f"after cut {i}")
                    if i == rounds:
                        break
                    self.cut_one(fs, s, world)
                fs.remount()
        return world.acknowledged()[1]

    def cut_one(self, fs, s, world):
        threads = world.start(s.url)
        time.sleep(random.uniform(0.02, 0.4))
        world.stop()  # a 200 that races with the cut may come from memory alone
        fs.cut(random.choice((fs.FLUSH, fs.LOG_FLUSH, fs.NO_FLUSH, fs.NO_FLUSH)))
        s.kill()
        for t in threads:
            t.end()
            self.assertEqual(t.unexpected, [])

    def test_says_so(self):
        """A server that goes on without its file system refuses, reads on, and ends cleanly."""
        world = World(2)
        with faultfs.Ext4(64 << 20) as fs:
            with Server(dir=os.path.join(fs.path, "data"), settings=SETTINGS) as s:
                threads = world.start(s.url)
                time.sleep(0.3)
                world.stop()
                fs.cut(fs.NO_FLUSH)
                for t in threads:
                    t.end()
                late = World(1)
                for t in late.start(s.url):
                    time.sleep(1)
                    t.end()
                    self.assertEqual(t.unexpected, [])
                    self.assertLessEqual(set(t.refused), {"read_only", "commit_failed",
                                                          "disk_full"}, t.refused)
                self.assertEqual(late.acknowledged(), (0, 0))
                self.assertGreaterEqual(stored(s)[0], world.acknowledged()[0])
                self.assertEqual(s.get("/readyz").status, 503)
                self.assertEqual(s.stop(), 0)
            fs.remount()
            with Server(dir=os.path.join(fs.path, "data"), settings=SETTINGS) as s:
                world.resend(s)
                late.resend(s)
                self.assertEqual(stored(s)[0], world.acknowledged()[0] + late.acknowledged()[0])


if __name__ == "__main__":
    why = faultfs.why_not("mkfs.ext4", "losetup")
    if why:
        print("skipped: no file system can be mounted:", why)
        sys.exit(77)
    unittest.main(verbosity=2)
