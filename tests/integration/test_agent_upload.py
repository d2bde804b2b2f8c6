#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The sender against a server that gives every answer of docs/api.md's table: what it does, and that
produced = sent + dropped + spooled, nothing twice, nothing missing."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stratasink as sink

DRIVER = os.path.join(os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent"), "upload_driver")


def drive(url, batches, token=None, **options):
    env = dict(os.environ)
    if token:
        env["STRATA_TEST_TOKEN"] = token
    done = subprocess.run([DRIVER, url, str(batches)] + [f"{k}={v}" for k, v in options.items()],
                          capture_output=True, text=True, timeout=60, env=env, check=False)
    if done.returncode:
        return done.returncode, done.stderr
    return json.loads(done.stdout), done.stderr


class Upload(unittest.TestCase):
    def setUp(self):
        self.server = None

    def tearDown(self):
        if self.server:
            self.server.close()

    def run_with(self, answer, batches, **options):
        self.server = sink.Ingest(answer)
        got, _ = drive(self.server.url, batches, **options)
        self.assertEqual(got["produced"], batches + options.get("tail", 0))
        self.books(got)
        # libcurl itself repeats a request whose kept connection was closed
        self.assertLessEqual(got["requests"], len(self.server.requests))
        return got

    def books(self, got):
        """Identity I4."""
        self.assertEqual(got["produced"] + got["inherited"],
                         got["sent"] + sum(got["dropped"].values()) + got["spooled"])

    def seqs(self):
        return [b.seq for b in self.server.batches()]

    def sent_seqs(self):
        return [b.seq for _, b in self.server.requests]

    def test_200(self):
        got = self.run_with(None, 10)
        self.assertEqual(self.seqs(), list(range(1, 11)))
        self.assertEqual((got["sent"], got["retries"], got["state"]), (10, 0, "ok"))
        headers, first = self.server.requests[0]
        self.assertEqual(headers["Content-Type"], sink.BATCH_TYPE)
        self.assertEqual(headers["Content-Encoding"], "zstd")
        self.assertNotIn("Authorization", headers)
        self.assertEqual(first.weight(), 20 * 10101010)
        self.assertTrue(first.content)

    def test_short_form(self):
        """After a 200 nodes travel as hashes; the content is that of the complete form."""
        got = self.run_with(None, 5, grow=1)
        batches = self.server.batches()
        self.assertEqual(batches[0].known, [])
        for before, b in zip(batches, batches[1:]):
            self.assertGreater(len(b.known), 0)
            self.assertLess(len(b.parent), len(batches[0].parent))
            self.assertEqual(b.weight(), 21 * 10101010)
            self.assertNotEqual(before.content, b.content)
        self.assertLess(got["short_bytes"], got["full_bytes"])

    def test_token(self):
        self.server = sink.Ingest()
        drive(self.server.url, 1, token="abc")
        self.assertEqual(self.server.requests[0][0]["Authorization"], "Bearer abc")

    def test_token_over_plain_http(self):
        code, text = drive("http://198.51.100.7:1", 1, token="abc")
        self.assertEqual(code, 1)
        self.assertIn("https", text)

    def test_dict_miss(self):
        """Nothing was stored; the same seq comes complete, at once."""
        def answer(batch, n):
            return (409, {}, sink.error("dict_miss")) if batch.seq == 3 and batch.known else None
        got = self.run_with(answer, 5)
        self.assertEqual(self.seqs(), [1, 2, 3, 4, 5])
        sent = self.sent_seqs()
        self.assertEqual(sorted(sent), [1, 2, 3, 3, 4, 5])
        third, again = (b for _, b in self.server.requests if b.seq == 3)
        self.assertGreater(len(third.known), 0)
        self.assertEqual(again.known, [])
        self.assertEqual(third.content, again.content)
        self.assertEqual((got["dict_miss"], got["sent"]), (1, 5))

    def test_dropped_at_once(self):
        for status, reason, counter in ((400, "bad_index", "bad_request"),
                                        (413, "body_too_large", "too_large"),
                                        (414, "uri_too_long", "too_large"),
                                        (431, "headers_too_large", "too_large"),
                                        (409, "seq_conflict", "seq_conflict"),
                                        (409, "seq_too_old", "seq_too_old")):
            with self.subTest(status=status, reason=reason):
                def answer(batch, n):
                    return (status, {}, sink.error(reason)) if batch.seq == 2 else None
                # one by one, so that the third tells of the second
                got = self.run_with(answer, 4, lockstep=1)
                self.assertEqual(got["dropped"][counter], 1)
                self.assertEqual(got["sent"], 3)
                self.assertEqual(self.seqs(), [1, 3, 4])
                self.assertEqual(self.sent_seqs().count(2), 1)
                lost = [b.lost("send_rejected") for b in self.server.batches()]
                self.assertEqual(sum(n for n, _ in lost), 20)
                self.assertEqual(sum(w for _, w in lost), 20 * 10101010)
                self.assertEqual([d for b in self.server.batches() for d in b.dropped], [(2, 2)])
                self.server.close()

    def test_kept_and_tried_again(self):
        """A wrong token or URL: the batch stays, tried every minute (50 ms here)."""
        for status in (401, 403, 404, 405, 415, 421, 302, 204):
            with self.subTest(status=status):
                def answer(batch, n):
                    return (status, {}, sink.error("x")) if n < 3 else None
                got = self.run_with(answer, 2)
                self.assertEqual((got["sent"], got["retries"]), (2, 2))
                self.assertEqual(self.sent_seqs(), [1, 1, 1, 2])
                self.server.close()

    def test_busy(self):
        for status, reason in ((429, "rate_limited"), (429, "head_full"), (503, "overloaded"),
                               (503, "starting"), (503, "disk_full"), (503, "read_only")):
            with self.subTest(status=status, reason=reason):
                def answer(batch, n):
                    return (status, {}, sink.error(reason)) if n < 4 else None
                got = self.run_with(answer, 2)
                self.assertEqual((got["sent"], got["retries"]), (2, 3))
                self.assertEqual(self.seqs(), [1, 2])
                self.server.close()

    def test_retry_after(self):
        """Waits [RA, 1.2 RA]; the body's milliseconds where there is no header."""
        for headers, body, least, most in (({"Retry-After": "1"}, sink.error("head_full"), 1, 4),
                                           ({}, sink.error("head_full", "", 300), 0.3, 3)):
            times = []

            def answer(batch, n):
                times.append(time.monotonic())
                return (429, headers, body) if n == 1 else None
            self.run_with(answer, 1)
            self.assertGreaterEqual(times[1] - times[0], least)
            self.assertLess(times[1] - times[0], most)
            self.server.close()

    def test_waiting_is_no_clock_skew(self):
        """A batch that waited says when it was sent, not when it was made; it is the same batch."""
        def answer(batch, n):
            return (429, {"Retry-After": "1"}, sink.error("head_full")) if n == 1 else None
        self.run_with(answer, 1)
        (_, first), (_, second) = self.server.requests
        self.assertGreaterEqual(second.sent - first.sent, 10**9)
        self.assertLess(abs(time.time_ns() - second.sent), 30 * 10**9)
        self.assertEqual(first.content, second.content)
        self.assertNotEqual(first.content, 0)

    def test_internal(self):
        """Three tries, then given up; the next batch goes on."""
        def answer(batch, n):
            return (500, {}, sink.error("internal")) if batch.seq == 1 else None
        got = self.run_with(answer, 2)
        self.assertEqual(self.sent_seqs(), [1, 1, 1, 2])
        self.assertEqual(got["dropped"]["internal"], 1)

    def test_no_answer(self):
        """A proxy without an answer, a hang-up before and after storing: sent until acknowledged,
        stored once."""
        for bad in ((502, {}, b""), (504, {}, b""), (408, {}, b""), "hang up", "hang up after"):
            with self.subTest(bad=bad):
                seen = set()

                def answer(batch, n):  # the first time of each, whatever is between
                    first = batch.seq not in seen
                    seen.add(batch.seq)
                    return bad if first else None
                got = self.run_with(answer, 3)
                self.assertEqual(self.seqs(), [1, 2, 3])
                self.assertEqual(got["sent"], 3)
                self.assertEqual(got["duplicate"], 3 if bad == "hang up after" else 0)
                self.server.close()

    def test_refused_rows(self):
        """A 200 that refuses some rows is never sent again."""
        def answer(batch, n):
            return 200, {}, sink.reply(batch.seq, rejects=[("too_old", 7)])
        got = self.run_with(answer, 2)
        self.assertEqual((got["sent"], got["rejected_rows"], got["requests"]), (2, 14, 2))

    def test_not_a_strata_server(self):
        """Whatever says 200 to anything has stored nothing."""
        def answer(batch, n):
            if n < 3:
                return 200, {}, b"<html>welcome" if n == 1 else sink.reply(batch.seq + 1)
            return None
        got = self.run_with(answer, 1)
        self.assertEqual((got["sent"], got["retries"]), (1, 2))

    def test_endless_answer(self):
        """More than 64 KiB of an answer is not read."""
        def answer(batch, n):
            return (429, {}, b"x" * (4 << 20)) if n == 1 else None
        got = self.run_with(answer, 1)
        self.assertEqual(got["sent"], 1)

    def test_min_interval(self):
        times = []

        def answer(batch, n):
            times.append(time.monotonic())
            return 200, {}, sink.reply(batch.seq, min_interval_ms=150, max_bytes=12345)
        got = self.run_with(answer, 4)
        self.assertEqual(got["max_bytes"], 12345)
        for a, b in zip(times, times[1:]):
            self.assertGreaterEqual(b - a, 0.145)

    def test_full_spool(self):
        """The server is away, the spool too small: the oldest are dropped, told as loss, and the sum
        of what arrives and what is told is what was made."""
        def answer(batch, n):
            return (503, {}, sink.error("starting")) if time.monotonic() < back else None
        back = time.monotonic() + 1.0
        got = self.run_with(answer, 60, cap=4000, gap_ms=30, tail=1)
        self.assertGreater(got["dropped"]["spool_full"], 5)
        batches = self.server.batches()
        told = [b.lost("spool_drop") for b in batches]
        weight = sum(b.weight() for b in batches)
        self.assertEqual(sum(n for n, _ in told), 20 * got["dropped"]["spool_full"])
        self.assertEqual(weight + sum(w for _, w in told), 61 * 20 * 10101010)
        dropped = {s for b in batches for first, last in b.dropped for s in range(first, last + 1)}
        self.assertEqual(sorted(dropped | set(self.seqs())), list(range(1, 62)))
        self.assertFalse(dropped & set(self.seqs()))

    def test_two_in_flight(self):
        """Two at once, not three, while all is well; one at a time behind a batch that must be
        repeated."""
        lock, flying, most = threading.Lock(), set(), []

        def answer(batch, n):
            with lock:
                flying.add(batch.seq)
                most.append((n, len(flying)))
            time.sleep(0.05)
            with lock:
                flying.remove(batch.seq)
            return (503, {}, sink.error("starting")) if 9 <= n < 12 else None
        got = self.run_with(answer, 20)
        self.assertEqual(got["sent"], 20)
        self.assertEqual(max(k for _, k in most), 2)
        self.assertEqual([k for n, k in most if 10 < n <= 12], [1, 1])
        sent = self.sent_seqs()
        first = [sent.index(i) for i in range(1, 21)]
        for a, b in zip(first, first[2:]):  # those that fly together may arrive the other way round
            self.assertLess(a, b)

    def test_kill_before_the_answer(self):
        """The sender is killed when its batch has arrived and nothing was answered, again and again:
        the next run sends what is left, older runs first; nothing is stored twice, nothing is
        missing, and no batch is refused as another under its number."""
        rounds = 100 if os.environ.get("STRATA_LONG") == "1" else 25
        state = {}

        def answer(batch, n):
            status, headers, out = self.server.store(batch)
            if status == 409:
                conflicts.append(batch.seq)
            if "victim" in state and state["kill"] == n:
                state.pop("victim").kill()
                return "hang up"
            return status, headers, out
        conflicts, made = [], 0
        self.server = sink.Ingest(answer)
        with tempfile.TemporaryDirectory(prefix="strata-spool-") as folder:
            for i in range(rounds):
                # in the first, second or third answer of this run
                state["kill"] = len(self.server.requests) + 1 + i % 3
                state["victim"] = subprocess.Popen([DRIVER, self.server.url, "3", f"dir={folder}",
                                                    "grow=1"], stdout=subprocess.DEVNULL)
                victim = state["victim"]
                self.assertEqual(victim.wait(timeout=60), -9)
                made += 3
            got, _ = drive(self.server.url, 3, dir=folder)
            self.books(got)
            self.assertEqual(got["spooled"], 0)
            self.assertFalse([f for f in os.listdir(folder) if f != "lock"])
        print(f"{rounds} kills, {len(self.server.requests)} requests, "
              f"{self.server.duplicates} sent again, {len(self.server.stored)} stored")
        self.assertEqual(conflicts, [])
        runs = {}
        for boot, seq in self.server.stored:  # in the order in which they were stored
            runs.setdefault(boot, []).append(seq)
        for seqs in runs.values():
            self.assertEqual(sorted(seqs), list(range(1, len(seqs) + 1)))
        self.assertGreaterEqual(self.server.duplicates, rounds)
        self.assertEqual(sum(b.lost()[0] for b in self.server.batches()), 0)
        boots = [boot for boot, _ in self.server.stored]
        order = list(dict.fromkeys(boots))
        at = [order.index(b) for b in boots]
        self.assertTrue(all(a <= b + 1 for a, b in zip(at, at[1:])), "a younger run went first")

    def test_restart(self):
        """Nobody there, then a server, by another run: all arrive, in order, with their own ids."""
        with tempfile.TemporaryDirectory(prefix="strata-spool-") as folder:
            for _ in range(2):
                got, _ = drive("http://127.0.0.1:9", 5, dir=folder, wait_ms=200)
            self.assertEqual((got["spooled"], got["inherited"]), (10, 5))
            self.assertEqual(sorted(oct(os.stat(os.path.join(folder, f)).st_mode & 0o777)
                                    for f in os.listdir(folder)), ["0o600"] * 11)
            got = self.run_with(None, 2, dir=folder)
        self.assertEqual((got["sent"], got["inherited"], got["duplicate"]), (12, 10, 0))
        self.assertEqual(len({b.boot for b in self.server.batches()}), 3)
        self.assertEqual(self.sent_seqs(), [1, 2, 3, 4, 5] * 2 + [1, 2])

    def test_full_disk(self):
        """A file system of 256 KiB: what does not fit waits in memory; nothing is lost while that
        has room, and files are written again once there is space."""
        folder = tempfile.mkdtemp(prefix="strata-spool-")
        try:
            if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", folder],
                              capture_output=True, check=False).returncode:
                self.skipTest("no tmpfs can be mounted here")
            try:
                with open(os.path.join(folder, "ballast"), "wb") as f:
                    f.write(bytes(128 << 10))

                def answer(batch, n):
                    return (503, {}, sink.error("starting")) if time.monotonic() < back else None
                back = time.monotonic() + 2
                got = self.run_with(answer, 120, dir=folder, gap_ms=10, tail=1)
                self.assertGreater(got["write_failed"], 20)
                self.assertLess(got["write_failed"], 100)
                self.assertEqual((got["sent"], got["spooled"], got["foreign"]), (121, 0, 1))
                self.assertEqual(self.seqs(), list(range(1, 122)))
                self.assertEqual(sum(b.weight() for b in self.server.batches()),
                                 121 * 20 * 10101010)
                print(f"{got['write_failed']} of 121 batches waited in memory")
            finally:
                subprocess.run(["umount", folder], check=True)
        finally:
            os.rmdir(folder)

    def test_unreadable(self):
        """A file that the disk does not give is asked for again, some times; then it is told of."""
        away, got = [True], []

        def answer(batch, n):  # the first may be under way when its file is taken
            return (503, {}, sink.error("starting")) if away[0] or batch.seq == 1 else None

        with tempfile.TemporaryDirectory(prefix="strata-spool-") as folder:
            t = threading.Thread(target=lambda: got.append(self.run_with(answer, 3, dir=folder,
                                                                         wait_ms=50000)))
            t.start()
            files = []
            while len(files) < 3:
                files = sorted(f for f in os.listdir(folder) if f.endswith(".batch"))
            first = os.path.join(folder, files[0])
            os.symlink("/nowhere", first + ".link")
            os.rename(first + ".link", first)  # open() fails, with neither of the two that mean gone
            away[0] = False
            t.join()
        self.assertEqual((got[0]["sent"], got[0]["spooled"]), (2, 0))
        self.assertEqual(got[0]["dropped"]["damaged"], 1)
        self.assertGreaterEqual(got[0]["retries"], 9)
        self.assertEqual(self.seqs(), [2, 3])

    def test_nobody_there(self):
        server = sink.Ingest()
        url = server.url
        server.close()
        got, _ = drive(url, 3, wait_ms=400)
        self.assertEqual((got["sent"], got["spooled"]), (0, 3))
        self.assertIn("no answer", got["state"])


if __name__ == "__main__":
    unittest.main()
