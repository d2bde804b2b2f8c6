#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Backups of a running server: what a copy holds, and what is refused."""
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
import unittest

import stratabatch as sb
from servertest import Server, strata
from test_server_ingest import totals
from test_server_start import one_batch


S, MS, TICK = 10**9, 10**6, 10**7
T0 = (time.time_ns() // (60 * S) - 30) * 60 * S
ASKS = [("flamegraph", dict(q="cpu", max_nodes=0)), ("top", dict(q='cpu{service="b"}')),
        ("flamegraph", dict(q="cpu", step="train:2-5")), ("timeseries", dict(q="cpu", bucket="7s")),
        ("timeseries", dict(q="live", bucket="10s")), ("flamegraph", dict(q="odd", by="host")),
        ("timeseries", dict(q="cpu", step="train", bucket="1500ms", by="service")),
        ("steps", {}), ("steps", dict(q='{service="a"}', sort="duration", limit=3)),
        ("events", {}), ("events", dict(q='{pid="2"}')), ("metrics", {}),
        ("metrics/query", dict(name="process_cpu", bucket="5s")),
        ("metrics/query", dict(name="process_rss", agg="max", bucket="9s", q='{service="b"}')),
        ("coverage", dict(by="target")), ("coverage", dict(q="cpu")), ("series", {}), ("types", {}),
        ("labels", {}), ("labels/host/values", {}), ("targets", {})]


def everything(k):
    """A batch with something of all that there is, of a stretch of ten seconds."""
    t0 = T0 + k * 10 * S
    b = sb.Batch(labels={"host": f"h{k % 2}"})
    for pid, service in ((1, "a"), (2, "b")):
        t = b.target(pid=pid, comm=f"p{pid}", exe=f"/bin/p{pid}")
        b.stream("cpu", t0, t0 + 10 * S, period=TICK, labels={"service": service}, target=t,
                 expected=30, received=20, lost={"ring_full": (10, 10 * TICK)},
                 rows=[dict(stack=["main", f"f{i % 3}"], t=t0 + i * 500 * MS, count=1 + i % 2,
                            target=t, tid=pid, thread="loop") for i in range(20)])
        b.stream("live", t0, t0 + 10 * S, basis="every", kind=2, at=t0 + S, target=t,
                 labels={"service": service},
                 rows=[dict(stack=["main"], value=1000 * k + pid, count=1, target=t)])
        b.stream("odd", t0, t0 + 10 * S, unit="things", basis="every", target=t,
                 labels={"service": service}, rows=[dict(stack=["x"], value=3, count=2, target=t)])
        b.metric("process_rss", "bytes", t0, [(t0 + i * S, k * 10 + i) for i in range(10)], target=t)
        b.metric("process_cpu", "nanoseconds", t0,
                 [(t0 + i * S, (k * 10 + i) * MS) for i in range(10)], kind=2, target=t)
        b.steps("train", [dict(number=2 * k + i, t0=t0 + i * 4 * S, t1=t0 + i * 4 * S + 3 * S,
                               tid=pid, labels={"phase": str(i)}, part={"compute": 5})
                          for i in range(2)], target=t, parts=("compute",))
        b.event(t0 + 3 * S, "state", f"k={k}", target=t)
    b.event(t0, "clock_step", f"k={k}")
    return b


class Backup(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="strata-backup-")
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        self.dir = os.path.join(self.top, "copies")
        os.mkdir(self.dir, 0o700)

    def server(self, **more):
        s = Server(settings={"storage.backup_dir": self.dir, **more.pop("settings", {})},
                   dir=os.path.join(self.top, "store"), **more)
        s.start()
        self.addCleanup(s.__exit__)
        return s

    def post(self, s, query, headers=None):
        return s.request("POST", "/api/v1/backup" + query, headers=headers)

    def test_backup_is_what_was_acknowledged(self):
        s = self.server()
        for _ in range(5):
            self.assertEqual(sb.post(s.url, one_batch())["status"], "stored")
        before = totals(s)
        done = strata(s, "backup", "one")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"/copies/one: ", done.stdout)
        self.assertIn(b", all batches up to 5", done.stdout)
        self.assertEqual(sb.post(s.url, one_batch())["status"], "stored")  # goes on
        self.assertNotEqual(totals(s), before)
        a = json.loads(strata(s, "backup", "two", "--json").stdout)
        self.assertEqual((a["path"], a["lsn"]), (os.path.join(self.dir, "two"), "6"))
        self.assertGreater(int(a["bytes"]), 1000)
        with Server(dir=os.path.join(self.dir, "one")) as copy:
            self.assertEqual(totals(copy), before)
            self.assertEqual(sb.post(copy.url, one_batch())["status"], "stored")

    def answers(self, s):
        found = []
        for path, more in ASKS:
            a = s.get("/api/v1/" + path, **{"from": f"{T0}ns", "to": f"{T0 + 60 * S}ns"}, **more)
            self.assertEqual(a.status, 200, a.body)
            a = a.json()
            if "quality" in a:
                # how it lies on the disk is all that may differ, and when it was sent
                del a["quality"]["shards"], a["quality"]["clock_skew_ns"]
            found.append((path, more, a))
        return found

    def test_backup_seals_and_no_answer_changes(self):
        s = self.server()
        for k in range(4):
            self.assertEqual(sb.post(s.url, everything(k))["status"], "stored")
        before = self.answers(s)
        for path, more, a in before:
            self.assertGreater(len(json.dumps(a)), 240, (path, more))
        self.assertEqual(self.post(s, "?name=sealed").status, 200)
        for was, is_now in zip(before, self.answers(s)):
            self.assertEqual(was, is_now)
        s.kill()
        s.start()
        for was, is_now in zip(before, self.answers(s)):
            self.assertEqual(was, is_now)
        with Server(dir=os.path.join(self.dir, "sealed")) as copy:
            for was, is_now in zip(before, self.answers(copy)):
                self.assertEqual(was, is_now)
        self.assertEqual(sb.post(s.url, everything(4))["status"], "stored")  # head beside parts
        with Server() as head:
            for k in range(5):
                self.assertEqual(sb.post(head.url, everything(k))["status"], "stored")
            for was, is_now in zip(self.answers(head), self.answers(s)):
                self.assertEqual(was, is_now)
        self.assertEqual(self.post(s, "?name=later").status, 200)
        with Server(dir=os.path.join(self.dir, "later")) as copy:
            for was, is_now in zip(self.answers(s), self.answers(copy)):
                self.assertEqual(was, is_now)

    def test_backup_while_batches_arrive(self):
        s = self.server()
        sent, stop = [], threading.Event()

        def send():
            while not stop.is_set():
                sent.append(sb.post(s.url, one_batch())["lsn"])

        t = threading.Thread(target=send)
        t.start()
        time.sleep(0.2)
        a = self.post(s, "?name=busy").json()
        stop.set()
        t.join()
        n = sum(lsn <= int(a["lsn"]) for lsn in sent)
        with Server(dir=os.path.join(self.dir, "busy")) as copy:
            self.assertEqual(totals(copy)[1], 3 * n)

    def test_backup_refusals(self):
        s = self.server()
        self.assertEqual(self.post(s, "?name=x").status, 200)
        r = self.post(s, "?name=x")
        self.assertEqual((r.status, r.code), (409, "exists"))
        for name in ("", "..", ".x", "a/b", "%2e%2e%2fx", "a%00b", "a b", "x" * 65):
            r = self.post(s, "?name=" + name.replace(" ", "%20"))
            self.assertEqual((r.status, r.json()["error"]["param"]), (400, "name"), name)
        self.assertEqual(self.post(s, "").status, 400)
        r = self.post(s, "?name=y&dir=/tmp")
        self.assertEqual((r.status, r.code), (400, "unknown_parameter"))
        r = s.get("/api/v1/backup", name="y")
        self.assertEqual((r.status, r.headers["Allow"]), (405, "POST"))
        r = self.post(s, "?name=y", headers={"Origin": "http://evil.example"})
        self.assertEqual(r.status, 403)
        self.assertEqual(os.listdir(self.dir), ["x"])
        done = strata(s, "backup", "x")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"exists (409)", done.stderr)

    def test_backup_needs_a_directory(self):
        with Server() as s:
            r = self.post(s, "?name=x")
            self.assertEqual((r.status, r.code), (422, "no_backup_dir"))
        os.rmdir(self.dir)
        r = self.post(self.server(), "?name=x")
        self.assertEqual((r.status, r.code), (422, "no_backup_dir"))

    def test_backup_is_for_admins(self):
        tokens = os.path.join(self.top, "tokens")
        with open(tokens, "w", encoding="ascii") as f:
            for role in ("admin", "read", "ingest"):
                f.write(f"{role} {role} {hashlib.sha256(role.encode() * 8).hexdigest()}\n")
        os.chmod(tokens, 0o600)
        s = self.server(settings={"http.tokens": tokens})
        for role, status in ((None, 401), ("read", 403), ("ingest", 403), ("admin", 200)):
            headers = {"Authorization": "Bearer " + role * 8} if role else {}
            self.assertEqual(self.post(s, "?name=x", headers=headers).status, status, role)


if __name__ == "__main__":
    unittest.main()
