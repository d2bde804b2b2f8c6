#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Senders that die between sending a batch and reading its answer, and send it again: known by its
identity, whatever form the bytes have by then, over restarts and twice at once. STRATA_ROUNDS
senders (100)."""
import os
import random
import shutil
import tempfile
import threading
import time
import unittest

import stratabatch as sb
from servertest import Server

ROUNDS = int(os.environ.get("STRATA_ROUNDS", "100"))
S = 10**9


START = time.time_ns() // S * S


def batch(i, content=0, version="test"):
    b = sb.Batch(agent=b"resend-agent-001", boot=b"resend-boot-0001", seq=i, sent_ns=START,
                 content=content or i, agent_version=version)
    b.stream("cpu", START - 10 * S, START, period=1, basis="every", labels={"service": "demo"},
             rows=[dict(stack=["main"], value=1000 + i)])
    return b


class Resend(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="stratad-test-")
        self.addCleanup(shutil.rmtree, self.dir, True)

    def total(self, s):
        return int(s.get("/api/v1/top", q="cpu", limit=0, **{"from": "now-1h"}).json()["total"] or 0)

    def send_and_die(self, s, b, wait):
        """The whole request, then the connection is gone, sooner or later."""
        body = b.encode()
        c = s.connect()
        c.sendall(b"POST /api/v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                  + sb.MEDIA_TYPE.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(wait)
        c.close()

    def test_killed_before_the_answer(self):
        seed = int(os.environ.get("STRATA_SEED", str(time.time_ns() % 10**6)))
        print(f"seed {seed}", flush=True)
        random.seed(seed)
        statuses = {}
        with Server(dir=self.dir, settings={"ingest.age": "7d"}) as s:
            for i in range(1, ROUNDS + 1):
                self.send_and_die(s, batch(i), random.choice((0, 0, 0.001, 0.01)))
                if i % 25 == 0:
                    s.kill() if i % 50 else s.stop()
                    s.start()
                r = sb.post(s.url, batch(i))
                self.assertEqual(r["http"], 200, r)
                statuses[r["status"]] = statuses.get(r["status"], 0) + 1
                self.assertEqual(sb.post(s.url, batch(i))["status"], "duplicate")
            self.assertEqual(self.total(s), sum(1000 + i for i in range(1, ROUNDS + 1)))
        print(statuses, flush=True)
        self.assertGreater(statuses.get("duplicate", 0), 0)

    def test_other_form(self):
        """Other bytes of the same content, as after a short form whose answer was lost: the sender
        says by content that it is the same."""
        with Server(dir=self.dir) as s:
            self.assertEqual(sb.post(s.url, batch(1, content=77))["status"], "stored")
            for _ in range(2):
                other = batch(1, content=77, version="another")
                self.assertNotEqual(other.encode(), batch(1, content=77).encode())
                self.assertEqual(sb.post(s.url, other)["status"], "duplicate")
                r = sb.post(s.url, batch(1, content=99))
                self.assertEqual((r["http"], r["reason"]), (409, "seq_conflict"))
                s.stop()
                s.start()
            self.assertEqual(self.total(s), 1001)

    def test_twice_at_once(self):
        with Server(dir=self.dir) as s:
            answers = []

            def post(i):
                answers.append((i, sb.post(s.url, batch(i))))

            for i in range(1, 21):
                threads = [threading.Thread(target=post, args=(i,)) for _ in range(4)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join(30)
            for i in range(1, 21):
                got = sorted(r["status"] for k, r in answers if k == i)
                self.assertEqual(got, ["duplicate"] * 3 + ["stored"])
            self.assertEqual(self.total(s), sum(1000 + i for i in range(1, 21)))

    def test_window(self):
        """1,023 behind is still told apart, 1,024 behind is not; over a restart."""
        with Server(dir=self.dir) as s:
            for i in (1, 2, 3, 1025):
                self.assertEqual(sb.post(s.url, batch(i))["status"], "stored")
            for _ in range(2):
                r = sb.post(s.url, batch(1))
                self.assertEqual((r["http"], r["reason"]), (409, "seq_too_old"))
                self.assertEqual(sb.post(s.url, batch(2))["status"], "duplicate")
                self.assertEqual(sb.post(s.url, batch(3, content=5))["reason"], "seq_conflict")
                self.assertEqual(s.stop(), 0)
                s.start()
            self.assertEqual(sb.post(s.url, batch(4))["status"], "stored")
            self.assertEqual(self.total(s), sum(1000 + i for i in (1, 2, 3, 4, 1025)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
