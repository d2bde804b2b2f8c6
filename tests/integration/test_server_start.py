#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How stratad starts, refuses to start, and stops: each refusal names the thing and the remedy."""
import glob
import hashlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
import unittest

import stratabatch as sb
from servertest import STRATAD, Server, run_to_end


class Refusals(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="stratad-test-")
        self.addCleanup(shutil.rmtree, self.dir, True)

    def refused(self, *arguments, names):
        status, text = run_to_end(*arguments)
        self.assertEqual(status, 1, text)
        for name in names:
            self.assertIn(name, text)

    def start(self, *options):
        return ["--listen", "127.0.0.1:0", "--data", self.dir, *options]

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            self.refused("--listen", f"127.0.0.1:{port}", "--data", self.dir,
                         names=[f"127.0.0.1:{port} is in use", "--listen"])

    def test_bad_address(self):
        self.refused("--listen", "127.0.0.1", "--data", self.dir, names=["is not HOST:PORT"])
        self.refused("--listen", "127.0.0.1:99999", "--data", self.dir, names=["is not HOST:PORT"])
        self.refused("--listen", "192.0.2.1:4040", "--data", self.dir, names=["http.tokens"])

    def test_other_machines_need_tokens(self):
        self.refused("--listen", "0.0.0.0:0", "--data", self.dir,
                     names=["0.0.0.0:0", "http.tokens", "127.0.0.1"])

    def test_token_file(self):
        path = os.path.join(self.dir, "tokens")
        with open(path, "w", encoding="utf-8") as f:
            f.write("a read " + hashlib.sha256(b"x").hexdigest() + "\n")
        os.chmod(path, 0o644)
        self.refused(*self.start("-o", f"http.tokens={path}"), names=[path, "0644", "0600"])
        self.refused(*self.start("-o", "http.tokens=/nonexistent"), names=["/nonexistent"])

    def test_settings(self):
        ini = os.path.join(self.dir, "s.ini")
        for text, names in [("[http]\nlisten_on = x\n", ["s.ini:2", "listen_on"]),
                            ("[ingest]\nbody = 16\n", ["s.ini:2", "body"]),
                            ("[ingest]\n\nsamples = -1\n", ["s.ini:3", "samples"]),
                            ("[nothing]\na = 1\n", ["s.ini:2", "nothing"])]:
            with open(ini, "w", encoding="utf-8") as f:
                f.write(text)
            self.refused(*self.start("--config", ini), names=names)
        self.refused(*self.start("--config", "/nonexistent.ini"), names=["/nonexistent.ini"])
        self.refused(*self.start("-o", "ingest.age=7"), names=["ingest.age"])

    def test_memory(self):
        self.refused(*self.start("-o", "limits.memory=100MiB"), names=["limits.memory", "256 MiB"])

    def test_locked(self):
        with Server(dir=self.dir):
            self.refused(*self.start(), names=[self.dir, "in use by another", "--data"])

    def test_not_a_directory(self):
        path = os.path.join(self.dir, "file")
        with open(path, "w", encoding="utf-8"):
            pass
        self.refused("--listen", "127.0.0.1:0", "--data", path, names=[path])
        self.refused("--listen", "127.0.0.1:0", "--data", os.path.join(path, "x"), names=[path])

    def test_others_may_write(self):
        os.chmod(self.dir, 0o777)
        self.refused(*self.start(), names=[self.dir, "0777", "chmod 0700"])

    def test_unwritable(self):
        # as root every directory is writable: an ordinary user tries, in a user's own directory
        if os.geteuid() != 0:
            os.chmod(self.dir, 0o500)
            self.refused(*self.start(), names=[self.dir, "not writable"])
            return
        user = 65534
        os.chmod(self.dir, 0o700)
        os.chown(self.dir, user, user)
        status, text = run_to_end(*self.start())
        self.assertEqual(status, 1)
        self.assertIn(f"owner {user}", text)
        os.chmod(self.dir, 0o500)
        done = subprocess.run([STRATAD, *self.start()], capture_output=True, text=True, timeout=30,
                              stdin=subprocess.DEVNULL, user=user, group=user, extra_groups=[])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("not writable", done.stderr)

    def test_newer_journal(self):
        with Server(dir=self.dir) as s:
            self.assertEqual(sb.post(s.url, one_batch())["http"], 200)
            self.assertEqual(s.stop(), 0)
        files = [f for f in glob.glob(self.dir + "/**", recursive=True)
                 if os.path.isfile(f) and content(f)[:15] == b"SQLite format 3"]
        self.assertTrue(files)
        for f in files:
            db = sqlite3.connect(f)
            if db.execute("PRAGMA user_version").fetchone()[0]:
                db.execute("PRAGMA user_version = 2000000000")
            db.commit()
            db.close()
        before = {f: content(f) for f in files}
        self.refused(*self.start(), names=[self.dir, "2000000000"])
        self.assertEqual(before, {f: content(f) for f in files})


def content(path):
    with open(path, "rb") as f:
        return f.read()


def one_batch(seq=None, **more):
    now = time.time_ns() // 10**9 * 10**9
    b = sb.Batch(seq=seq, **more)
    b.stream("cpu", now - 10 * 10**9, now, period=10**7, labels={"service": "demo"},
             rows=[dict(stack=["main", "work"], count=3)])
    return b


class Stop(unittest.TestCase):
    def test_signals(self):
        for sig in (signal.SIGTERM, signal.SIGINT):
            with Server() as s:
                self.assertEqual(sb.post(s.url, one_batch())["http"], 200)
                idle = s.connect()  # an open connection does not hold it
                begun = time.monotonic()
                self.assertEqual(s.kill(sig), 0, s.text())
                self.assertLess(time.monotonic() - begun, 10)
                idle.close()

    def test_data_survive(self):
        d = tempfile.mkdtemp(prefix="stratad-test-")
        self.addCleanup(shutil.rmtree, d, True)
        b = one_batch()
        for again in (False, True):
            with Server(dir=d) as s:
                r = sb.post(s.url, b)
                self.assertEqual((r["http"], r["status"]),
                                 (200, "duplicate" if again else "stored"))
                self.assertEqual(s.stop(), 0)

    def test_directory_removed_while_running(self):
        with Server() as s:
            acked = one_batch()
            self.assertEqual(sb.post(s.url, acked)["http"], 200)
            while os.path.exists(s.dir):  # a file that the server makes meanwhile is in the way
                shutil.rmtree(s.dir, ignore_errors=True)
            r = sb.post(s.url, one_batch())
            self.assertEqual(r["http"], 503, r)
            self.assertEqual(s.get("/readyz").code, "read_only")
            a = s.get("/api/v1/top", q="cpu", limit=0, **{"from": "now-1h"}).json()
            self.assertEqual(a["samples"], "3")
            self.assertEqual(s.stop(), 0)

    def test_data_directory_is_made(self):
        d = tempfile.mkdtemp(prefix="stratad-test-")
        self.addCleanup(shutil.rmtree, d, True)
        with Server(dir=os.path.join(d, "new")) as s:
            self.assertEqual(os.stat(s.dir).st_mode & 0o777, 0o700)
            self.assertEqual(s.get("/readyz").status, 200)


if __name__ == "__main__":
    unittest.main(verbosity=2)
