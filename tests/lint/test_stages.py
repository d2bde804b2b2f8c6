#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The stage machinery (.ci/stages.sh) under what can go wrong: a broken build, a hanging test, a
missing log, no time left, a signal, a script that dies. Each run must end with the summary line.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = sys.argv.pop(1) if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]) else os.getcwd()
LAST = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")

PROJECT = """
project('stages', meson_version: '>=1.0.1')
sh = find_program('sh')
test('good', sh, args: ['-c', 'true'], suite: 'good')
test('absent', sh, args: ['-c', 'exit 77'], suite: 'good')
test('bad', sh, args: ['-c', 'echo reason; exit 1'], suite: 'bad')
test('once', sh, args: ['-c', 'test -e once || { : >once; exit 1; }'], suite: 'once', workdir: meson.current_build_dir())
test('finding', sh, args: ['-c', 'test -e seen || { : >seen; echo x.c:1: runtime error: overflow; exit 1; }'],
  suite: 'finding', workdir: meson.current_build_dir())
test('hang', sh, args: ['-c', 'sleep 300'], suite: 'hang', timeout: 400)
test('no_input', sh, args: ['-c', 'read x && exit 1 || exit 0'], suite: 'input')
"""


class Stages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.dir = cls.tmp.name
        with open(os.path.join(cls.dir, "meson.build"), "w", encoding="utf-8") as file:
            file.write(PROJECT)
        subprocess.run(["meson", "setup", "b", "."], cwd=cls.dir, check=True, capture_output=True,
                       stdin=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def start(self, stages, deadline):
        build = os.path.join(self.dir, "b")
        script = (f"set -euo pipefail; cd '{ROOT}'; B='{build}'; . .ci/stages.sh; "
                  f"stages_begin {deadline}\n{stages}")
        return subprocess.Popen(["bash", "-c", script], stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run_stages(self, stages, deadline=60):
        process = self.start(stages, deadline)
        out, _ = process.communicate(timeout=50)
        return self.summary(out), process.returncode, out

    def summary(self, out):
        last = LAST.fullmatch(out.rstrip("\n").split("\n")[-1])
        self.assertTrue(last, f"no summary at the end of:\n{out}")
        return tuple(int(n) for n in last.groups())

    def test_all_good(self):
        counts, status, out = self.run_stages(
            'step build 10 true\ntests good 20 "$B" --suite good\nstages_end')
        self.assertEqual((counts, status), ((1, 0, 1), 0), out)

    def test_nothing_passed_is_no_success(self):
        counts, status, out = self.run_stages("step build 10 true\nstages_end")
        self.assertEqual((counts, status), ((0, 0, 0), 1), out)

    def test_broken_build_goes_on(self):
        counts, status, out = self.run_stages(
            'step build 10 false\ntests good 20 "$B" --suite good\nstages_end')
        self.assertEqual((counts, status), ((1, 1, 1), 1), out)
        self.assertIn("failed: build (step)", out)

    def test_failed_test_is_counted_once(self):
        counts, status, out = self.run_stages(
            'tests bad 20 "$B" --suite bad\ntests good 20 "$B" --suite good\nstages_end')
        self.assertEqual((counts, status), ((1, 1, 1), 1), out)
        self.assertIn("failed: bad: stages:bad / bad (FAIL)", out)

    def test_second_try(self):
        counts, status, out = self.run_stages('tests once 20 "$B" --suite once\nstages_end')
        self.assertEqual((counts, status), ((1, 0, 0), 0), out)
        self.assertIn("unsteady: once: stages:once / once (FAIL, then OK alone)", out)

    def test_no_second_try_for_a_sanitizer(self):
        counts, status, out = self.run_stages('tests finding 20 "$B" --suite finding\nstages_end')
        self.assertEqual((counts, status), ((0, 1, 0), 1), out)

    def test_hanging_test_is_cut(self):
        counts, status, out = self.run_stages(
            'tests hang 2 "$B" --suite hang\ntests good 20 "$B" --suite good\nstages_end')
        self.assertEqual(status, 1, out)
        self.assertEqual((counts[0], counts[2]), (1, 1), out)
        self.assertGreaterEqual(counts[1], 1)
        self.assertIn("hang: out of time", out)

    def test_missing_log_is_a_failure(self):
        counts, status, out = self.run_stages(
            'tests none 20 "$B/nowhere" --suite good\ntests good 20 "$B" --suite good\nstages_end')
        self.assertEqual((counts, status), ((1, 1, 1), 1), out)
        self.assertIn("failed: none:", out)

    def test_deadline(self):
        counts, status, out = self.run_stages(
            'tests good 20 "$B" --suite good\nstep slow 20 sleep 30\n'
            'step late 20 true\ntests later 20 "$B" --suite good\nstages_end', deadline=4)
        self.assertEqual((counts, status), ((1, 3, 1), 1), out)
        for name in ("slow", "late", "later"):
            self.assertIn(f"failed: {name}: out of time", out)

    def test_script_that_dies(self):
        counts, status, out = self.run_stages(
            'tests good 20 "$B" --suite good\nnot_a_command\nstages_end')
        self.assertEqual((counts, status), ((1, 1, 1), 1), out)
        self.assertIn("stopped early with status 127", out)

    def test_no_input(self):
        counts, status, out = self.run_stages('tests input 20 "$B" --suite input\nstages_end')
        self.assertEqual((counts, status), ((1, 0, 0), 0), out)

    def test_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.start(
                'tests good 20 "$B" --suite good\necho now\nstep long 200 sleep 100\nstages_end', 300)
            out = ""
            while "== long" not in out:
                out += process.stdout.readline()
            time.sleep(0.2)
            begun = time.monotonic()
            process.send_signal(number)
            out += process.communicate(timeout=20)[0]
            self.assertLess(time.monotonic() - begun, 10)
            self.assertEqual((self.summary(out), process.returncode), ((1, 1, 1), 1), out)
            self.assertIn("stopped by SIG", out)


if __name__ == "__main__":
    unittest.main()
