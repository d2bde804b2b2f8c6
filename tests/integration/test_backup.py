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
        os.chmod(os.path.join(self.dir, "one"), 0o700)
        with Server(dir=os.path.join(self.dir, "one")) as copy:
            self.assertEqual(totals(copy), before)
            self.assertEqual(sb.post(copy.url, one_batch())["status"], "stored")

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
        os.chmod(os.path.join(self.dir, "busy"), 0o700)
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
