#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""strata validate, the short form: every claim holds on this machine, in text and as JSON; without
privileges what cannot be had is skipped with a reason; where nothing can sample the status is 77;
a program that does something else than it says is found out.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

STRATA = os.environ["STRATA"]
AGENT = os.environ["STRATA_AGENT"]
WORKLOAD = os.environ["STRATA_WORKLOAD"]
TOOLS = os.environ["STRATA_AGENT_TESTS"]
NOBODY = 65534
BPF = {"cpu_19hz", "cpu_99hz", "cpu_499hz", "cpu_threads", "shares", "threads", "depth",
       "whole_stacks", "unwinding", "symbols", "kernel_stacks", "kernel_time", "short_lived", "steps",
       "identities", "lost", "blocked", "lock", "life", "gil_wait", "gil_held", "python_lines"}
USER = {"user_cpu", "user_shares", "user_stacks"}


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=280, **more)


class Validate(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="strata-validate-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)
        for name in ("bin", "libexec/strata"):
            os.makedirs(os.path.join(self.dir, name))
        self.strata = shutil.copy(STRATA, os.path.join(self.dir, "bin"))
        shutil.copy(AGENT, os.path.join(self.dir, "bin"))
        self.workload = shutil.copy(WORKLOAD, os.path.join(self.dir, "libexec/strata"))

    def claims(self, r):
        answer = json.loads(r.stdout)
        claims = {c["claim"]: c for c in answer["claims"]}
        for verdict in ("pass", "fail", "skip"):
            self.assertEqual(answer[verdict],
                             sum(c["verdict"] == verdict for c in claims.values()))
        for c in claims.values():
            self.assertTrue(c["means"])
            self.assertTrue(c["why"] if c["verdict"] == "skip" else c["known"] and c["allowed"], c)
        return claims

    def test_here(self):
        r = run(STRATA, "validate", "--quick", "--json")
        if r.returncode == 77 or "no BPF here" in r.stdout:
            self.skipTest("no BPF here")
        claims = self.claims(r)
        for c in claims.values():
            print(f"{c['verdict']} {c['claim']}: {c['known']} | {c['measured']} | {c['allowed']} "
                  f"{c['why']}")
        self.assertEqual(set(claims), BPF)
        self.assertEqual(r.returncode, 0, r.stderr)
        for c in claims.values():  # a busy machine may leave too little to judge, and says so
            if c["verdict"] == "skip":
                self.assertRegex(c["why"], "busy|samples|run over")
        self.assertEqual(claims["identities"]["verdict"], "pass", claims["identities"])

    def test_without_privileges(self):
        r = run("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", self.strata,
                "validate", "--quick", "--json")
        claims = self.claims(r)
        self.assertEqual(set(claims), BPF | USER)
        for name in BPF:
            self.assertEqual(claims[name]["verdict"], "skip")
            self.assertIn("no BPF here: ", claims[name]["why"])
        print(claims["user_cpu"])
        self.assertIn(r.returncode, (0, 77))
        self.assertNotIn("fail", {c["verdict"] for c in claims.values()})

    def test_nothing(self):
        r = run(os.path.join(TOOLS, "refuse"), "bpf", "perf_event_open", "ptrace", "--", STRATA,
                "validate", "--quick")
        self.assertEqual(r.returncode, 77, r.stdout + r.stderr)
        self.assertIn("seccomp", r.stdout)
        self.assertRegex(r.stdout, r"\n0 passed, 0 failed, [1-9]\d+ skipped\n\Z")

    def test_a_lie_is_found(self):
        """A photo server that says other shares than it burns."""
        real = os.path.join(self.dir, "real")
        os.rename(self.workload, real)
        with open(self.workload, "w", encoding="utf-8") as f:
            f.write("#!/bin/bash\necho cpu_ns=1 blur_image=100 compress_image=100 hash_tags=800 >&$2\n"
                    f"exec {real} \"$@\"\n")
        os.chmod(self.workload, 0o755)
        r = run("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", self.strata,
                "validate", "--quick", "--json")
        shares = self.claims(r)["user_shares"]
        print(shares)
        if shares["verdict"] == "skip":
            self.skipTest(shares["why"])
        self.assertEqual(shares["verdict"], "fail")
        self.assertEqual(r.returncode, 1)

    def test_usage(self):
        self.assertEqual(run(STRATA, "validate", "--nonsense").returncode, 125)
        r = run(STRATA, "validate", "--help")
        self.assertEqual(r.returncode, 0)
        self.assertIn("Exit status: 0", " ".join(r.stdout.split()))
        os.remove(self.workload)
        r = run(self.strata, "validate")
        self.assertEqual(r.returncode, 125)
        self.assertIn("strata-workload", r.stderr)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skip: needs root (BPF programs, ticks of every CPU)")
        sys.exit(77)
    unittest.main(verbosity=0)
