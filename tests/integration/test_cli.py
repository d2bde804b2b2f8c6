#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""strata top and strata flame against a running server."""
import gzip
import json
import os
import tempfile
import time
import unittest
import xml.dom.minidom

import stratabatch as sb
from servertest import Server, strata

S = 10**9


class Cli(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = Server()
        cls.s.start()
        now = time.time_ns() // S * S
        b = sb.Batch()
        b.stream("cpu", now - 60 * S, now, period=10**7, labels={"service": "demo"},
                 expected=100, received=90, lost={"ring_full": (10, 10**8)},
                 rows=[dict(stack=[("native", "main", "", 0, "/usr/bin/demo"), "hot"], count=60),
                       dict(stack=[("native", "main", "", 0, "/usr/bin/demo"), "warm"], count=30),
                       dict(stack=["evil\x1b[31m;\u202e", b"\xff\xfe"], count=0 + 1)])
        r = sb.post(cls.s.url, b)
        assert r["http"] == 200, r

    @classmethod
    def tearDownClass(cls):
        cls.s.__exit__()

    def run_ok(self, *arguments, **more):
        r = strata(self.s, *arguments, **more)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def test_top(self):
        out = self.run_ok("top", "--from", "now-5m").decode()
        lines = out.splitlines()
        self.assertIn("cpu nanoseconds, sum", lines[0])
        self.assertIn("1 source", lines[0])
        self.assertIn("n = 91", lines[0])
        self.assertIn("lost 9.9 %", lines[0])
        self.assertIn("self", lines[1])
        self.assertRegex(lines[2], r"600\.0 core-ms +65\.9 % +600\.0 core-ms +65\.9 % +60 +hot$")
        self.assertRegex(lines[3], r"300\.0 core-ms .* 30 +warm$")
        self.assertRegex(out, r"0 core-s +0\.0 % +900\.0 core-ms +98\.9 % +90 +main +\[demo\]")

    def test_captures_beside_agents(self):
        """What `strata record` saw is added to what agents saw: said, with the ways to see either."""
        t = time.time_ns() // S * S - 10800 * S
        for labels in ({}, {"source": "record", "capture": 'sh"1'}, {"source": "record", "capture": "b"}):
            b = sb.Batch(agent=os.urandom(16))
            b.stream("cpu", t, t + 10 * S, period=10**7, labels={"service": "twice", **labels},
                     expected=50, received=50, rows=[dict(stack=["hot"], count=50, t=t)])
            self.assertEqual(sb.post(self.s.url, b)["http"], 200)
        at = ("--from", "now-190m", "--to", "now-170m")
        q = 'cpu{service="twice"}'
        for verb in (("top",), ("top", "--json"), ("flame",), ("diff",)):
            r = strata(self.s, *verb, "-q", q, *at)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn(b"2 captures of strata record are added to what agents saw", r.stderr)
            self.assertIn(b"""-q 'cpu{service="twice", capture=""}'""", r.stderr)
        self.assertEqual(r.stderr.count(b"A: 2 captures"), 1, r.stderr)
        self.assertEqual(r.stderr.count(b"B: 2 captures"), 1, r.stderr)
        for more, text in (('capture=""', "50"), ('capture="b"', "50"), ('source="record"', "100"),
                           ('capture="sh\\"1"', "50")):
            r = strata(self.s, "top", "-q", q[:-1] + ", " + more + "}", *at)
            self.assertEqual((r.returncode, r.stderr), (0, b""))
            self.assertIn(f"n = {text}", r.stdout.decode())
        r = strata(self.s, "top", "-q", 'cpu{service="demo"}', "--from", "now-5m")
        self.assertEqual(r.stderr, b"", "there are none beside these")

    def test_names_cannot_steer_the_terminal(self):
        out = self.run_ok("top", "--from", "now-5m", "--sort", "total")
        self.assertNotIn(b"\x1b", out)
        self.assertNotIn("\u202e".encode(), out)
        self.assertIn(rb"evil\x1b[31m;\u{202e}", out)
        out.decode()

    def test_any_and_rows(self):
        out = self.run_ok("top", "--from", "now-5m", "--any", "hot", "--any", "warm", "-n", "0")
        lines = out.decode().splitlines()
        self.assertRegex(lines[2], r"65\.9 % +60 +1 +hot$")
        self.assertRegex(lines[4], r"98\.9 % +90 +2 +at least one$")
        self.assertEqual(len(lines), 5)

    def test_filters_and_names(self):
        out = self.run_ok("top", "--from", "now-5m", "-f", "keep:hot", "-f", "merge:main").decode()
        lines = out.splitlines()
        self.assertIn("600.0 core-ms, n = 60 · filters left 65.9 %", lines[0])
        self.assertRegex(lines[2], r"600\.0 core-ms +100\.0 %.* hot$")
        self.assertEqual(len(lines), 3)
        out = self.run_ok("flame", "--from", "now-5m", "-f", "drop:/evil/", "-f", "merge:main")
        self.assertEqual(out, b"hot 600000000\nwarm 300000000\n")
        r = strata(self.s, "top", "-f", "hide:x")
        self.assertEqual(r.returncode, 2)
        self.assertIn(b"a filter is keep:", r.stderr)
        r = strata(self.s, "top", *["-f", "keep:x"] * 17)
        self.assertEqual(r.returncode, 2)

    def test_files_for_other_tools(self):
        with tempfile.TemporaryDirectory() as d:
            for name in ("x.pb.gz", "x.speedscope.json"):
                self.run_ok("flame", "--from", "now-5m", "-o", os.path.join(d, name))
            with open(os.path.join(d, "x.pb.gz"), "rb") as f:
                self.assertIn(b"hot", gzip.decompress(f.read()))
            with open(os.path.join(d, "x.speedscope.json"), encoding="utf-8") as f:
                self.assertEqual(sum(json.load(f)["profiles"][0]["weights"]), 910000000)
            r = strata(self.s, "flame", "-o", os.path.join(d, "x.unknown"))
            self.assertEqual(r.returncode, 2)
            self.assertIn(b"say --format", r.stderr)

    def test_diff(self):
        b = sb.Batch()
        for run, hot, t0 in (("1", 400, 1240), ("2", 700, 1180)):
            now = time.time_ns() // S * S
            b.stream("cpu", now - t0 * S, now - (t0 - 20) * S, period=10**7,
                     labels={"service": "diff", "run": run}, expected=1000, received=1000,
                     rows=[dict(stack=["main", "hot"], count=hot),
                           dict(stack=["main", "same"], count=300),
                           dict(stack=["main", "old" if run == "1" else "young\x1b"], count=40)])
        self.assertEqual(sb.post(self.s.url, b)["http"], 200)
        ask = ("diff", "--from", "now-30m", "--a", '{service="diff",run="1"}',
               "--b", '{service="diff",run="2"}')
        out = self.run_ok(*ask)
        self.assertNotIn(b"\x1b", out)
        lines = out.decode().splitlines()
        self.assertTrue(lines[0].startswith("A ") and "7.40 core-s, n = 740" in lines[0], lines[0])
        self.assertTrue(lines[1].startswith("B ") and "10.4 core-s, n = 1,040" in lines[1], lines[1])
        self.assertRegex(lines[2], r"^cpu nanoseconds, change of the total \+150\.0 core-ms/s ± ")
        self.assertRegex(lines[4], r"200\.0 core-ms/s +350\.0 core-ms/s +\+150\.0 core-ms/s "
                                   r"+\+150\.0 core-ms/s  yes   hot$")
        self.assertIn("gone old", out.decode())
        self.assertIn("new young", out.decode())
        out = self.run_ok(*ask, "--norm", "share", "-n", "1").decode().splitlines()
        self.assertEqual(len(out), 5)
        self.assertRegex(out[4], r"54\.05 % +67\.31 % +\+13\.25 % ")
        out = self.run_ok(*ask[:5], "--b", '{service="nobody"}').decode().splitlines()
        self.assertEqual(out[2:], ["cpu nanoseconds: cannot be compared, b_not_covered"])
        a = json.loads(self.run_ok(*ask, "--json"))
        self.assertEqual((a["kind"], a["b"]["total"]), ("diff_top", "10400000000"))
        r = strata(self.s, "diff", "--b", "offcpu")
        self.assertEqual(r.returncode, 2)
        self.assertIn(b"two types are never compared", r.stderr)

    def test_json(self):
        a = json.loads(self.run_ok("top", "--from", "now-5m", "--json", "-q", '{service="demo"}'))
        self.assertEqual(a["samples"], "91")

    def test_folded(self):
        out = self.run_ok("flame", "--from", "now-5m")
        self.assertIn(b"main;hot 600000000\n", out)
        self.assertIn(b"\xff\xfe 10000000\n", out)  # names keep their bytes in a file
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "x.folded")
            self.run_ok("flame", "--from", "now-5m", "-o", path)
            with open(path, "rb") as f:
                self.assertEqual(f.read(), out)

    def test_svg(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "x.svg")
            self.run_ok("flame", "--from", "now-5m", "-o", path)
            doc = xml.dom.minidom.parse(path)
            self.assertEqual(doc.documentElement.tagName, "svg")
            with open(path, encoding="utf-8") as f:
                self.assertIn("hot", f.read())
            r = strata(self.s, "flame", "-o", os.path.join(d, "x.png"))
            self.assertEqual(r.returncode, 2)
            self.assertIn(b"--format", r.stderr)

    def test_trouble(self):
        for arguments, text in [
                (["top", "-q", "cpu{"], b"bad_selector"),
                (["top", "--sort", "size"], b"sort"),
                (["top", "--from", "yesterday"], b"from"),
                (["top", "extra"], b"extra"),
                (["top", "-n", "x"], b"-n"),
                (["top", "--server", "http://127.0.0.1:1"], b"no server at http://127.0.0.1:1"),
                (["flame", "--token-file", "/nonexistent"], b"/nonexistent"),
                (["flame", "--token-file", "/dev/null", "--server", "http://192.0.2.1"],
                 b"in the clear"),
                (["tap"], b'no verb "tap"'),
                ([], b"Usage")]:
            r = strata(self.s, *arguments)
            self.assertEqual(r.returncode, 2, (arguments, r.stdout))
            self.assertIn(text, r.stderr, arguments)

    def test_loss_beside_steps_is_that_of_the_range(self):
        t0 = time.time_ns() // S * S - 14400 * S    # an hour no other test writes to
        b = sb.Batch(labels={"host": "other"})
        t = b.target(pid=7, comm="train")
        b.stream("cpu", t0, t0 + 60 * S, period=10**7, labels={"service": "stepped"}, target=t,
                 expected=100, received=90, lost={"ring_full": (10, 10**8)},
                 rows=[dict(stack=["main"], t=t0 + i * S, count=10, target=t) for i in range(9)])
        b.steps("train", [dict(number=0, t0=t0, t1=t0 + 3 * S, tid=7)], target=t)
        self.assertEqual(sb.post(self.s.url, b)["http"], 200)
        at = ["--from", f"{t0 // S}s", "--to", f"{t0 // S + 60}s"]
        line = self.run_ok("top", *at).decode().splitlines()[0]
        self.assertIn("lost 10.0 % · 900.0 core-ms", line)
        line = self.run_ok("top", "--step", "train", *at).decode().splitlines()[0]
        self.assertIn("lost 100.0 core-ms of the range · 300.0 core-ms", line)
        side = self.run_ok("diff", "--step", "train", *at).decode().splitlines()[0]
        self.assertIn("lost 100.0 core-ms of the range", side)

    def test_nothing_to_show(self):
        for q, words in (("cpu{service=\"nobody\"}", "nothing matches the selector, by service="),
                         ("live", "there is nothing of this profile type")):
            out = self.run_ok("top", "-q", q, "--from", "now-5m").decode()
            self.assertIn("nothing to show: " + words, out)
            self.assertNotIn("_", out.split("nothing to show")[1])

    def test_help(self):
        for arguments in (["--help"], ["help"], ["--version"],
                          *([verb, "--help"] for verb in (
                              "top", "flame", "diff", "export", "import", "record", "view", "backup",
                              "check", "store", "agent"))):
            out = self.run_ok(*arguments).decode()
            self.assertTrue(out)
            self.assertNotRegex(out, r" \n", "blanks at the end of a line: the text fills it")


if __name__ == "__main__":
    unittest.main(verbosity=2)
