#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""strata check on the data directory of a real server: sound, beside it, damaged."""
import json
import os
import re
import signal
import subprocess
import time
import unittest

import stratabatch as sb
from servertest import STRATA, Server

S = 10**9


def run(*arguments):
    return subprocess.run([STRATA, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120)


def all_files(folder):
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as file:
                yield os.path.relpath(path, folder), file.read()


class StoreFiles(unittest.TestCase):
    def fill(self, s, batches):
        now = time.time_ns() // S * S
        for i in range(batches):
            b = sb.Batch()
            b.stream("cpu", now - 60 * S, now, period=10**7, labels={"service": f"s{i % 3}"},
                     expected=200, received=200,
                     rows=[dict(stack=[f"main {i % 5}", f"leaf {k}"], count=2) for k in range(50)])
            r = sb.post(s.url, b)
            self.assertEqual(r["http"], 200, r)

    def test_check(self):
        with Server() as s:
            self.fill(s, 20)
            r = run("check", s.dir)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
            self.assertIn("A server has it open", r.stdout)
            s.stop()
            before = dict(all_files(s.dir))
            for depth in ([], ["--quick"], ["--deep"]):
                r = run("check", s.dir, *depth)
                self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
                self.assertIn("0 findings", r.stdout)
            r = run("check", "--json", s.dir)
            out = json.loads(r.stdout)
            self.assertTrue(out["sound"])
            self.assertFalse(out["beside_server"])
            self.assertEqual(out["findings"], [])
            self.assertEqual(dict(all_files(s.dir)), before)
            self.damage(s, before)

    def damage(self, s, files):
        """A flip in the middle of the largest file with data: found, and said where."""
        name = max((n for n in files if n.startswith(("journal/", "shard/"))),
                   key=lambda n: len(files[n].rstrip(b"\0")))
        data = bytearray(files[name])
        data[len(data) // 2] ^= 4
        with open(os.path.join(s.dir, name), "wb") as file:
            file.write(data)
        r = run("check", "--json", "--deep", s.dir)
        self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
        out = json.loads(r.stdout)
        self.assertFalse(out["sound"])
        self.assertTrue(any(name.startswith(f["file"]) or f["file"].startswith("journal/")
                            for f in out["findings"]), out)
        r = run("check", "--deep", s.dir)
        self.assertEqual(r.returncode, 1)
        self.assertIn(out["findings"][0]["what"], r.stdout)

    def test_killed(self):
        """Killed at any moment, also while it seals at its end: nothing of that is damage."""
        rounds = int(os.environ.get("STRATA_ROUNDS", "6"))
        with Server() as s:
            for i in range(rounds):
                self.fill(s, 10)
                s.process.send_signal(signal.SIGTERM)
                time.sleep(i * 0.012 % 0.1)
                s.kill()
                r = run("check", "--deep", s.dir)
                self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
                s.start()
            s.stop()
            parts = json.loads(run("store", "ls", "--json", s.dir).stdout)
            self.assertEqual(sum(p["rows"] for p in parts), rounds * 10 * 50)
            self.assertEqual(run("check", "--deep", s.dir).returncode, 0)

    def rows(self, folder):
        """Lines of all blocks of all parts."""
        lines = []
        for part in json.loads(run("store", "ls", "--json", folder).stdout):
            for block in range(1, part["blocks"] + 1):
                r = run("store", "cat", folder, str(part["id"]), str(block))
                self.assertEqual(r.returncode, 0, r.stderr)
                lines += [line.split("\t") for line in r.stdout.splitlines()[1:]]
        return lines

    def test_store(self):
        with Server() as s:
            self.fill(s, 20)
            r = run("store", "ls", s.dir)  # nothing is sealed yet
            self.assertEqual(r.returncode, 0, r.stderr)
            s.stop()
            parts = json.loads(run("store", "ls", "--json", s.dir).stdout)
            self.assertEqual(sum(p["rows"] for p in parts), 20 * 50)
            r = run("store", "ls", s.dir)
            self.assertIn("1,000 rows", r.stdout)
            self.assertIn(parts[0]["file"], r.stdout)
            lines = self.rows(s.dir)
            self.assertEqual(len(lines), 1000)
            self.assertEqual(sum(int(x[6]) for x in lines), 20 * 50 * 2 * 10**7)
            self.assertEqual(len({x[7] for x in lines}), 5 * 50)
            self.assertIn("main 3;leaf 17", {x[7] for x in lines})
            sizes = {x["what"]: x for x in json.loads(run("store", "stats", "--json",
                                                          s.dir).stdout)}
            self.assertEqual(sizes["part files"]["stored"], sum(p["bytes"] for p in parts))
            self.assertEqual(sizes["dict node"]["n"], 3 * (5 + 5 * 50))
            table = run("store", "stats", s.dir).stdout.splitlines()
            self.assertEqual({len(x) for x in table}, {len(table[0])}, table)  # columns stay apart
            self.assertTrue(all(re.search(r"\d +\d+\.\d{3}$", x) for x in table[1:]), table)
            r = run("store", "cat", s.dir, "1", "999")
            self.assertEqual(r.returncode, 2)
            self.assertIn("no block 999", r.stderr)

    def fill_hour(self, s, name, value):
        t0 = time.time_ns() // (3600 * S) * 3600 * S - 3600 * S
        b = sb.Batch()
        b.stream("alloc", t0, t0 + 10 * S, basis="every", labels={"service": "s"},
                 rows=[dict(stack=["main", f"{name} {i}"], value=value) for i in range(30)])
        self.assertEqual(sb.post(s.url, b)["http"], 200)

    def by_name(self, s):
        """Weight of the leaves of each name."""
        sums = {}
        a = s.get("/api/v1/export", q="alloc", format="folded", **{"from": "now-3h"})
        self.assertEqual(a.status, 200, a.body)
        for line in a.body.decode().splitlines():
            stack, value = line.rsplit(" ", 1)
            name = stack.split(";")[-1].split(" ")[0]
            sums[name] = sums.get(name, 0) + int(value)
        return sums

    def test_dictionary_of_earlier(self):
        """One as it was a seal ago: no stack is given the weight of another."""
        with Server() as s:
            path = os.path.join(s.dir, "dict/1.db")
            self.fill_hour(s, "a", 1)
            s.stop()
            with open(path, "rb") as file:
                earlier = file.read()
            s.start()
            self.fill_hour(s, "b", 1000)
            s.stop()
            with open(path, "wb") as file:
                file.write(earlier)
            s.start()
            for _ in range(2):
                self.fill_hour(s, "c", 10**6)
                sums = self.by_name(s)
                self.assertEqual(sums["a"], 30)
                self.assertEqual(sums["c"] % (30 * 10**6), 0)
                self.assertIn(sums.get("b", 0), (0, 30 * 1000))
                a = s.get("/api/v1/top", q="alloc", limit=0, **{"from": "now-3h"}).json()
                self.assertGreater(a["quality"]["shards"]["unreadable"], 0)
                s.stop()
                s.start()
            self.assertEqual(self.by_name(s)["c"], 60 * 10**6)

    def test_counts_of_unreadable(self):
        """Each part that is lost or damaged is asked for and unreadable, once, and named once."""
        with Server() as s:
            for i in range(3):
                self.fill_hour(s, "a", 1 + i)
                s.stop()
                s.start()
            s.stop()
            folder = os.path.join(s.dir, "shard/raw")
            names = sorted(os.listdir(folder))
            os.unlink(os.path.join(folder, names[0]))
            with open(os.path.join(folder, names[1]), "r+b") as file:
                file.write(b"none")
            s.start()
            for path in ("top", "flamegraph"):
                quality = s.get("/api/v1/" + path, q="alloc", **{"from": "now-3h"}).json()["quality"]
                self.assertEqual(quality["shards"], dict(asked=len(names) + 1, read=len(names) - 1,
                                                         unreadable=2))
                for name in names[:2]:
                    self.assertEqual(sum(w.count(name) for w in quality["warnings"]), 1, quality)

    def test_dictionary_of_another(self):
        with Server() as s, Server() as other:
            for name, server in (("a", s), ("x", other)):
                self.fill_hour(server, name, 1)
                server.stop()
            path = os.path.join(s.dir, "dict/1.db")
            with open(os.path.join(other.dir, "dict/1.db"), "rb") as file:
                foreign = file.read()
            with open(path, "wb") as file:
                file.write(foreign)
            r = run("check", "--quick", s.dir)
            self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
            self.assertIn("dict/1.db: is another file than the catalog says", r.stdout)
            s.start()
            self.fill_hour(s, "c", 1)  # taken when the store is open
            self.assertIn("is another file than the catalog says", s.text())
            self.assertEqual(self.by_name(s), {"c": 30})
            (aside,) = os.listdir(os.path.join(s.dir, "quarantine"))
            self.assertTrue(aside.startswith("dict-1.db."), aside)

    def test_usage(self):
        for arguments in ([], ["ls"], ["ls", "/nonexistent"], ["rm", "/tmp"], ["cat", "/tmp", "1"],
                          ["stats", "/tmp", "1"]):
            r = run("store", *arguments)
            self.assertEqual(r.returncode, 2, arguments)
            self.assertNotEqual(r.stderr, "")
        for arguments in ([], ["/nonexistent"], ["/tmp", "/tmp"], ["--quick", "--deep", "/tmp"]):
            r = run("check", *arguments)
            self.assertEqual(r.returncode, 2, arguments)
            self.assertNotEqual(r.stderr, "")


if __name__ == "__main__":
    unittest.main()
