#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A disk that fills up, tmpfs and ext4: 503 from the first failure on, nothing acknowledged is lost,
queries go on, room makes it write again, and a start on a full disk reads. Exit status 77 where
nothing can be mounted.
"""
import os
import sys
import time
import unittest

import faultfs
import stratabatch as sb
from senders import World
from servertest import Server

SETTINGS = {"ingest.age": "7d", "storage.min_free": "256KiB"}
BALLAST = 2 << 20
WAIT_S = 30  # 5 are promised; a busy machine may take longer


class Full:
    """For each file system."""

    def fs(self):
        raise NotImplementedError

    def ballast(self, fs, i):
        path = os.path.join(fs.path, f"ballast{i}")
        with open(path, "wb") as f:
            f.write(os.urandom(BALLAST))
            os.fsync(f.fileno())
        return path

    def total(self, s):
        a = s.get("/api/v1/top", q="cpu", limit=0, **{"from": "now-1h"})
        self.assertEqual(a.status, 200)
        return int(a.json()["total"] or 0)

    def fill(self, s, world):
        """Send until it refuses; then it refuses with 503 for one reason, and goes on reading."""
        st = world.states[0]
        for _ in range(2000):
            r = sb.post(s.url, st.next())
            if r["http"] != 200:
                break
            st.settle()
        self.assertEqual((r["http"], r["reason"]), (503, "disk_full"), r)
        self.assertGreater(r["retry_after_ms"], 0)
        for _ in range(20):
            r = sb.post(s.url, st.next())
            if r["http"] == 200:  # a little room was left
                st.settle()
            else:
                self.assertEqual((r["http"], r["reason"]), (503, "disk_full"), r)
        self.assertEqual(self.total(s), world.acknowledged()[0])

    def until_written(self, s, world):
        begun = time.monotonic()
        while time.monotonic() - begun < WAIT_S:
            r = sb.post(s.url, world.states[0].next())
            if r["http"] == 200:
                world.states[0].settle()
                took = time.monotonic() - begun
                print(f"written again after {took:.1f} s", flush=True)
                return
            self.assertEqual((r["http"], r["reason"]), (503, "disk_full"), r)
            time.sleep(0.1)
        self.fail(f"still refused after {WAIT_S} s: {r}")

    def test_full(self):
        world = World(1, bulk=48 << 10)
        with self.fs() as fs:
            d = os.path.join(fs.path, "data")
            ballast = [self.ballast(fs, i) for i in range(2)]
            with Server(dir=d, settings=SETTINGS) as s:
                for _ in range(5):
                    self.assertEqual(sb.post(s.url, world.states[0].next())["http"], 200)
                    world.states[0].settle()
                self.assertEqual(s.stop(), 0)  # sealed: some of it is in parts
            self.assertTrue(os.listdir(os.path.join(d, "shard", "raw")))
            with Server(dir=d, settings=SETTINGS) as s:
                self.fill(s, world)
                self.assertEqual(s.get("/readyz").code, "disk_full")
                os.unlink(ballast[0])
                self.until_written(s, world)
                self.fill(s, world)
                s.kill()
            with open(os.path.join(fs.path, "rest"), "wb") as f:  # not a byte is left
                try:
                    while True:
                        f.write(bytes(4096))
                        f.flush()
                except OSError:
                    pass
                try:
                    f.close()
                except OSError:
                    pass
            with Server(dir=d, settings=SETTINGS) as s:  # on the full disk
                self.assertEqual(self.total(s), world.acknowledged()[0])
                r = sb.post(s.url, world.states[0].next())
                if r["http"] == 200:  # journals whose rows are in parts have made room
                    world.states[0].settle()
                else:
                    self.assertEqual((r["http"], r["reason"]), (503, "disk_full"), r)
                os.unlink(os.path.join(fs.path, "rest"))
                os.unlink(ballast[1])
                self.until_written(s, world)
                self.assertEqual(self.total(s), world.acknowledged()[0])
                self.assertEqual(s.stop(), 0)
            with Server(dir=d, settings=SETTINGS) as s:
                self.assertEqual(self.total(s), world.acknowledged()[0])


class FullTmpfs(Full, unittest.TestCase):
    def fs(self):
        return faultfs.Tmpfs(8 << 20)


class FullExt4(Full, unittest.TestCase):
    def fs(self):
        return faultfs.Ext4(24 << 20)


if __name__ == "__main__":
    why = faultfs.why_not("mkfs.ext4", "losetup")
    if why:
        print("skipped: no file system can be mounted:", why)
        sys.exit(77)
    unittest.main(verbosity=2)
