# SPDX-License-Identifier: Apache-2.0
"""Senders that behave as an agent does: one batch under way each, the same again until it is
answered. What they count as acknowledged can be compared with what the server holds.

Values are no powers of two: each batch weighs a number of its own, so that one lost and another
counted twice do not cancel.
"""
import http.client
import os
import random
import threading
import time
import urllib.error

import stratabatch as sb

S = 10**9


class World:
    """What all senders share. stopped: a 200 that comes later is not taken for one, since what
    gave it may already be gone."""

    def __init__(self, n, bulk=0):
        self.lock, self.stopped = threading.Lock(), False
        self.states = [State(i, bulk) for i in range(n)]

    def stop(self):
        with self.lock:
            self.stopped = True

    def start(self, url, pause=0.0):
        self.stopped = False
        threads = [Sender(self, st, url, pause) for st in self.states]
        for t in threads:
            t.start()
        return threads

    def acknowledged(self):
        return (sum(st.weight for st in self.states), sum(st.n for st in self.states))

    def resend(self, server, allow=(200,)):
        """What was under way is settled by sending it again: stored, or known already."""
        for st in self.states:
            if st.pending is None:
                continue
            r = sb.post(server.url, st.pending[1])
            if r["http"] not in allow:
                raise AssertionError(f"a resend is answered {r}; {server.text()[-2000:]}")
            if r["http"] == 200:
                st.settle()


class State:
    """One sender, over all its connections."""

    def __init__(self, number, bulk):
        self.number, self.bulk, self.boot = number, bulk, os.urandom(16)
        self.seq = self.weight = self.n = 0
        self.pending = None

    def next(self):
        if self.pending is None:
            self.seq += 1
            now = time.time_ns() // S * S
            weight = self.number * 1_000_003 + self.seq * 7919 + random.randrange(1000)
            b = sb.Batch(agent=b"test-sender-%04d" % self.number, boot=self.boot, seq=self.seq)
            rows = [dict(stack=["main", f"f{self.seq % 50}"], value=weight)]
            # names that do not compress make a batch as large as wanted
            rows += [dict(stack=["main", os.urandom(1024).hex()], value=0)
                     for _ in range(self.bulk // 1100)]
            b.stream("cpu", now - 10 * S, now, period=1, basis="every",
                     labels={"service": f"s{self.number % 3}"}, rows=rows)
            self.pending = weight, b
        return self.pending[1]

    def settle(self):
        self.weight += self.pending[0]
        self.n += 1
        self.pending = None


class Sender(threading.Thread):
    def __init__(self, world, state, url, pause):
        super().__init__(daemon=True)
        self.world, self.state, self.url, self.pause = world, state, url, pause
        self.halt = threading.Event()
        self.refused = {}     # reason: how often
        self.unexpected = []

    def run(self):
        while not self.halt.is_set() and not self.world.stopped:
            batch = self.state.next()
            try:
                r = sb.post(self.url, batch, timeout=20)
            except (OSError, http.client.HTTPException, urllib.error.URLError):
                return  # the server is gone: it stays pending
            if r["http"] == 200:
                with self.world.lock:
                    if self.world.stopped:
                        return
                    self.state.settle()
            elif r["http"] in (429, 503):
                self.refused[r["reason"]] = self.refused.get(r["reason"], 0) + 1
                self.halt.wait(0.05)
            else:
                self.unexpected.append(r)
                return
            self.halt.wait(self.pause)

    def end(self):
        self.halt.set()
        self.join(30)


def stored(server):
    """(weight, batches) that a query finds. A bulk row weighs nothing and counts as sample."""
    a = server.get("/api/v1/top", q="cpu", limit=0, **{"from": "now-1h"}).json()
    return int(a["total"] or 0), int(a["samples"] or 0)
