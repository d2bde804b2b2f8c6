#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""strata check on the data directory of a real server: sound, beside it, damaged."""
import json
import os
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

    def test_usage(self):
        for arguments in ([], ["/nonexistent"], ["/tmp", "/tmp"], ["--quick", "--deep", "/tmp"]):
            r = run("check", *arguments)
            self.assertEqual(r.returncode, 2, arguments)
            self.assertNotEqual(r.stderr, "")


if __name__ == "__main__":
    unittest.main()
