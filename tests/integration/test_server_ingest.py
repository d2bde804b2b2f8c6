#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Batches over HTTP: what is stored is what is answered, what is refused names its reason."""
import json
import os
import re
import time
import unittest

import stratabatch as sb
from servertest import Server
from test_server_start import one_batch

S = 10**9


def totals(s, **more):
    """(value, observations) of all cpu samples of the last hour, as /top says."""
    r = s.get("/api/v1/top", q="cpu", limit=0, **{"from": "now-1h", "to": "now", **more})
    if r.status != 200:
        raise AssertionError(f"/top: {r.status} {r.body}")
    a = r.json()
    return int(a["total"] or 0), int(a["samples"] or 0)


class Batches(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.server.start()
        self.addCleanup(self.server.__exit__)

    def post(self, batch, **more):
        return sb.post(self.server.url, batch, **more)

    def test_stored_and_answered(self):
        now = time.time_ns() // S * S
        b = sb.Batch(labels={"host": "h1"})
        b.stream("cpu", now - 10 * S, now, period=10**7, labels={"service": "demo"},
                 expected=12, received=10, lost={"ring_full": (2, 2 * 10**7)},
                 rows=[dict(stack=["main", "work"], count=6), dict(stack=["main"], count=4)])
        r = self.post(b)
        self.assertEqual((r["http"], r["status"], r["seq"]), (200, "stored", b.seq))
        self.assertGreater(r["lsn"], 0)
        self.assertEqual(r["max_bytes"], 16 << 20)
        top = self.server.get("/api/v1/top", q='cpu{service="demo"}', **{"from": "now-5m"}).json()
        self.assertEqual((top["total"], top["samples"]), (str(10 * 10**7), "10"))
        self.assertEqual(top["quality"]["lost"], [dict(why="ring_full", n="2", weight=str(2 * 10**7))])
        m = self.server.metrics()
        self.assertEqual(m['strata_ingest_samples_total{type="cpu"}'], 2)
        lost = f'strata_agent_lost_total{{agent="{b.agent.hex()}",type="cpu",reason="ring_full"}}'
        self.assertEqual(m[lost], 2)
        source = f'strata_source_ok{{agent="{b.agent.hex()}",source="cpu"}}'
        self.assertEqual(m[source], 1)
        self.assertGreaterEqual(m["strata_journal_commit_seconds_count"], 1)
        self.assertEqual(m["strata_journal_commit_seconds_count"],
                         m['strata_store_total{event="commits"}'])
        self.assertEqual(m["strata_journal_commit_seconds_count"],
                         m['strata_journal_commit_seconds_bucket{le="+Inf"}'])
        # the newest word counts
        b = sb.Batch(agent=b.agent, boot=b.boot, seq=b.seq + 1)
        b.stream("cpu", now, now + 10 * S, period=10**7, state="refused", why="no rights",
                 labels={"service": "demo"})
        self.assertEqual(self.post(b)["status"], "stored")
        self.assertEqual(self.server.metrics()[source], 0)

    def test_duplicate_and_conflict(self):
        b = one_batch()
        self.assertEqual(self.post(b)["status"], "stored")
        self.assertEqual(self.post(b)["status"], "duplicate")
        other = one_batch(seq=b.seq, agent_version="other")
        r = self.post(other)
        self.assertEqual((r["http"], r["reason"]), (409, "seq_conflict"))
        self.assertEqual(totals(self.server), (3 * 10**7, 3))
        m = self.server.metrics()
        self.assertEqual(m['strata_rejected_total{proto="native",reason="seq_conflict"}'], 1)
        self.assertEqual(m['strata_ingest_requests_total{proto="native",code="200"}'], 2)

    def test_dict_miss(self):
        b = one_batch()
        now = time.time_ns() // S * S
        b.known = [0x1234567890ABCDEF]
        b.stream("cpu", now - 10 * S, now, period=10**7, labels={"service": "demo"},
                 rows=[dict(stack=sb.Known(0), count=1)])
        b.content = 77
        r = self.post(b)
        self.assertEqual((r["http"], r["reason"]), (409, "dict_miss"))
        self.assertEqual(totals(self.server), (0, 0))
        again = one_batch(seq=b.seq, content=77)
        self.assertEqual(self.post(again)["status"], "stored")
        self.assertEqual(totals(self.server), (3 * 10**7, 3))

    def test_malformed_names_the_field(self):
        now = time.time_ns() // S * S

        def bad(**columns):
            b = sb.Batch()
            b.stream("cpu", now - 10 * S, now, period=10**7,
                     rows=[dict(stack=["main"]), dict(stack=["work"])], **columns)
            return b

        for columns, reason, field in [
                (dict(stack=[1, 99]), "bad_index", "stack"),
                (dict(s_target=[1, 7]), "bad_index", "target"),
                (dict(tid=[1, 2, 3]), "column_length", "tid"),
                (dict(count=[1]), "column_length", "count")]:
            r = self.post(bad(**columns))
            self.assertEqual((r["http"], r["reason"]), (400, reason), r)
            self.assertIn("stream[0]", r["message"])
            self.assertIn(field, r["message"])
        r = self.post(b"\xff" * 100)
        self.assertEqual((r["http"], r["reason"]), (400, "bad_encoding"))
        r = self.post(sb.Batch(version=99))
        self.assertEqual((r["http"], r["reason"]), (400, "unsupported_version"))
        r = self.post(bad(stack=[1, 99]), headers={"Accept": "application/json"})
        self.assertEqual(json.loads(r["message"])["error"]["code"], "bad_index")
        # nothing else is lost
        self.assertEqual(self.post(one_batch())["status"], "stored")
        self.assertEqual(totals(self.server), (3 * 10**7, 3))

    def test_single_rows_refused(self):
        now = time.time_ns() // S * S
        b = sb.Batch()
        b.stream("cpu", now - 10 * S, now, period=10**7, basis="every", labels={"service": "demo"},
                 rows=[dict(stack=["main"], value=5), dict(stack=["main"], value=-3),
                       dict(stack=["main"], value=7, t=now + S)])
        b.stream("cpu", now - 9 * 86400 * S, now - 9 * 86400 * S + S, period=10**7,
                 rows=[dict(stack=["main"])])
        r = self.post(b)
        self.assertEqual((r["http"], r["status"]), (200, "stored"))
        self.assertEqual({x["reason"]: x["samples"] for x in r["rejected"]},
                         {"negative_value": 1, "outside_interval": 1, "too_old": 1})
        m = self.server.metrics()
        for reason in ("negative_value", "outside_interval", "too_old"):
            self.assertEqual(m[f'strata_rejected_total{{proto="native",reason="{reason}"}}'], 1)
        self.assertEqual(totals(self.server)[0], 5)

    def test_media_types(self):
        for headers, status, reason in [
                ({"Content-Type": "application/json"}, 415, "unsupported_media_type"),
                ({"Content-Encoding": "br"}, 415, "unsupported_coding"),
                ({"Content-Encoding": "zstd"}, 400, "bad_encoding")]:
            r = self.post(one_batch(), headers=headers)
            self.assertEqual((r["http"], r["reason"]), (status, reason))

    def test_chunked(self):
        body = one_batch().encode()
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 50]), body[i:i + 50])
                          for i in range(0, len(body), 50))
        c = self.server.connect()
        c.sendall(b"POST /api/v1/batch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                  b"Content-Type: " + sb.MEDIA_TYPE.encode() + b"\r\n\r\n" + chunks + b"0\r\n\r\n")
        self.assertIn(b"HTTP/1.1 200 ", c.recv(4096))
        c.close()
        self.assertEqual(totals(self.server), (3 * 10**7, 3))


class Limits(unittest.TestCase):
    def test_body(self):
        with Server(settings={"ingest.body": "64KiB", "ingest.samples": 100}) as s:
            r = sb.post(s.url, b"\0" * 70000)
            self.assertEqual((r["http"], r["reason"], r["setting"], r["limit"], r["actual"]),
                             (413, "body_too_large", "ingest.body", 65536, 70000))
            now = time.time_ns() // S * S
            b = sb.Batch()
            b.stream("cpu", now - 10 * S, now, period=1, rows=[dict(stack=["main"])] * 101)
            r = sb.post(s.url, b)
            self.assertEqual((r["http"], r["reason"], r["setting"], r["limit"], r["actual"]),
                             (413, "too_many_samples", "ingest.samples", 100, 101))
            # the answer arrives although the client goes on sending
            c = s.connect()
            c.sendall(b"POST /api/v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n"
                      b"Content-Type: " + sb.MEDIA_TYPE.encode() + b"\r\n\r\n")
            for _ in range(20):
                c.sendall(b"\0" * 10000)
            self.assertIn(b"HTTP/1.1 413 ", c.recv(4096))
            c.close()
            self.assertEqual(sb.post(s.url, one_batch())["status"], "stored")

    def test_rate(self):
        with Server(settings={"ingest.rate": "64KiB", "ingest.burst": "64KiB"}) as s:
            loud = None
            for _ in range(100):
                b = one_batch(agent=b"loud agent......")
                b.event(time.time_ns(), "state", "x" * 4000)
                loud = sb.post(s.url, b)
                if loud["http"] != 200:
                    break
            self.assertEqual((loud["http"], loud["reason"], loud["setting"], loud["limit"]),
                             (429, "rate_limited", "ingest.burst", 65536))
            self.assertGreater(loud["retry_after_ms"], 0)
            self.assertEqual(sb.post(s.url, one_batch())["http"], 200)  # others are not refused
            time.sleep(loud["retry_after_ms"] / 1000)
            self.assertEqual(sb.post(s.url, b)["http"], 200)

    def test_unsealed_journal(self):
        """Beyond max_unsealed new batches are refused, and what was acknowledged stays readable."""
        with Server(settings={"storage.max_unsealed": "1MiB"}) as s:
            stored, refused = 0, None
            for _ in range(400):
                now = time.time_ns() // S * S
                b = sb.Batch()
                b.stream("cpu", now - 10 * S, now, period=10**7, labels={"service": "demo"},
                         rows=[dict(stack=[os.urandom(100).hex()]) for k in range(50)])
                r = sb.post(s.url, b)
                if r["http"] != 200:
                    refused = r
                    break
                stored += 50
            self.assertIsNotNone(refused)
            self.assertEqual((refused["http"], refused["reason"], refused["setting"]),
                             (429, "head_full", "storage.max_unsealed"))
            self.assertGreater(refused["retry_after_ms"], 0)
            self.assertEqual(totals(s), (stored * 10**7, stored))

    def test_head_memory(self):
        """The same where memory is the limit. Batches that need many times their bytes to decode
        fit into a small pool too: 503 would be said to the same bytes for ever."""
        with Server(settings={"limits.memory": "256MiB", "ingest.rate": "0B"}) as s:
            stored, refused, boot = 0, None, os.urandom(16)
            for seq in range(1, 400):
                now = time.time_ns() // S * S
                b = sb.Batch(boot=boot, seq=seq)
                b.stream("cpu", now - 10 * S, now, period=1, basis="every",
                         labels={"service": f"s{seq % 4}"},
                         rows=[dict(stack=["main", f"x{seq}", f"f{seq}_{i}"], value=1)
                               for i in range(6000)])
                r = sb.post(s.url, b)
                if r["http"] != 200:
                    refused = r
                    break
                stored += 6000
            self.assertIsNotNone(refused)
            self.assertEqual((refused["http"], refused["reason"], refused["setting"]),
                             (429, "head_full", "limits.memory"))
            self.assertGreater(stored, 100_000)
            a = s.get("/api/v1/timeseries", q="cpu", **{"from": "now-1h"})
            self.assertEqual(a.json()["total"], str(stored), a.body[:500])

    def test_never_fits(self):
        """What no waiting can make room for is refused for good."""
        with Server(settings={"ingest.memory": "4MiB"}) as s:
            now = time.time_ns() // S * S
            b = sb.Batch()
            b.stream("cpu", now - 10 * S, now, period=1, basis="every",
                     rows=[dict(stack=["main", f"f{i}"], value=1) for i in range(60000)])
            r = sb.post(s.url, b)
            self.assertEqual((r["http"], r["reason"], r["setting"], r["limit"]),
                             (413, "decode_budget", "ingest.memory", 4 << 20))
            self.assertGreater(r["actual"], 4 << 20)


class Together(unittest.TestCase):
    """Many connections at once: their batches share commits, and each has one answer."""
    CONNECTIONS, ROUNDS = 256, 8

    def bodies(self, now, turn):
        """One per connection, encoded before the clock runs."""
        for i in range(self.CONNECTIONS):
            b = sb.Batch(agent=b"together-%07d" % i, boot=b"together-boot-01", seq=turn + 1,
                         sent_ns=now, content=turn + 1)
            b.stream("cpu", now - 10 * S, now, period=1, basis="every",
                     labels={"service": f"s{i % 8}"},
                     rows=[dict(stack=["main", f"f{i % 16}"], value=1009 + turn)])
            body = b.encode()
            yield (b"POST /api/v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                   + sb.MEDIA_TYPE.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def answers(self, connections):
        """The status of the one answer of each; more bytes than that are an error."""
        statuses = []
        for c in connections:
            head, data = b"", b""
            while b"\r\n\r\n" not in head:
                piece = c.recv(65536)
                self.assertTrue(piece, "an answer is missing")
                head += piece
            head, data = head.split(b"\r\n\r\n", 1)
            length = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
            while len(data) < length:
                data += c.recv(65536)
            self.assertEqual(len(data), length)
            statuses.append(int(head.split()[1]))
        return statuses

    def test_groups(self):
        settings = {"ingest.connections_per_address": "512", "ingest.age": "7d"}
        now = time.time_ns() // S * S
        with Server(settings=settings) as s:
            turns = [list(self.bodies(now, i)) for i in range(self.ROUNDS)]
            connections = [s.connect() for _ in range(self.CONNECTIONS)]
            before = s.metrics()
            for turn in turns:
                for c, request in zip(connections, turn):
                    c.sendall(request)
                self.assertEqual(set(self.answers(connections)), {200})
            after = s.metrics()
            commits, seconds = (after[name] - before[name] for name in (
                "strata_journal_commit_seconds_count", "strata_journal_commit_seconds_sum"))
            for c in connections:
                c.close()
            sent = self.CONNECTIONS * self.ROUNDS
            print(f"{sent} batches of {self.CONNECTIONS} connections in {commits:.0f} commits: "
                  f"{sent / commits:.1f} each, of {1000 * seconds / commits:.2f} ms", flush=True)
            # as many come together as arrive while one is synced: where the disk answers at once
            # those are few
            self.assertGreater(sent / commits, 16 if seconds / commits > 0.008 else 1)
            want = sum((1009 + i) * self.CONNECTIONS for i in range(self.ROUNDS))
            self.assertEqual(totals(s), (want, sent))


class Queries(unittest.TestCase):
    def test_client_leaves(self):
        """A query whose client has gone ends, and its worker serves the next."""
        with Server(settings={"query.running": 1, "query.waiting": 1}) as s:
            self.assertEqual(sb.post(s.url, one_batch())["http"], 200)
            for _ in range(20):
                c = s.connect()
                c.sendall(b"GET /api/v1/flamegraph?q=cpu HTTP/1.1\r\nHost: localhost\r\n\r\n")
                c.close()
            end = time.monotonic() + 20  # until the last of them has come and gone
            while (s.get("/api/v1/top", q="cpu").status == 503 or
                   s.metrics()["strata_queries_running"]) and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(totals(s), (3 * 10**7, 3))


if __name__ == "__main__":
    unittest.main(verbosity=2)
