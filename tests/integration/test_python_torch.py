#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A real job: PyTorch trains a small transformer with data workers (demo/train.py) while the agent samples it
into a server. Needs root, BPF and a Python that has torch: Debian's python3-torch for /usr/bin/python3, or
STRATA_TORCH_PYTHON=INTERPRETER with PyPI's; without one, and without STRATA_LONG=1, 77.

Stacks whole, Python frames in the main thread's, threads by their names, few unwind tables; and where the job
stands still for a moment, in a backward pass called from C++ and in a data worker, names, files and lines are
those of sys._current_frames(). STRATA_SHOT=FILE: a picture of Explore on it, by Chromium.
"""
import glob
import json
import os
import re
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_python as tp
from test_agent_run import LONG, main, wait_for
from test_export import Pprof

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRAIN, SHOTS = os.path.join(ROOT, "demo/train.py"), os.path.join(ROOT, "tests/web/e2e/torch-shot.mjs")
PYTHON = os.environ.get("STRATA_TORCH_PYTHON", "/usr/bin/python3")
DEBIAN = PYTHON == "/usr/bin/python3"
SECONDS, WORKERS = float(os.environ.get("STRATA_SECONDS", "60")), 4


def torch_version():
    r = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                       check=False)
    return r.stdout.strip() if r.returncode == 0 else ""


class Torch(tp.Agented):
    def pprof(self, **select):
        q = ",".join(f'{k}="{v}"' for k, v in {"service": "train", **select}.items())
        q = urllib.parse.urlencode({"q": "cpu{%s}" % q, "format": "pprof", "from": self.times[0], "to": self.times[1]})
        with urllib.request.urlopen(f"{self.server.url}/api/v1/export?{q}", timeout=60) as answer:
            return Pprof(answer.read())

    def run_job(self):
        env = {"PATH": "/usr/bin:/bin", "STRATA_SERVICE": "train", "TRAIN_HOLD": "0.4",
               "TRAIN_DUMP": os.path.join(self.folder.name, "held")}
        p = subprocess.Popen([PYTHON, TRAIN, str(SECONDS), str(WORKERS)], env=env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: p.poll() is None and p.kill())
        wait_for(lambda: len(glob.glob(env["TRAIN_DUMP"] + "-*")) > WORKERS, "held stacks", 600)
        with open(f"/proc/{p.pid}/maps", encoding="utf-8") as f:
            mapped = {line.split()[5] for line in f if line.split()[1][2] == "x" and len(line.split()) > 5}
        out = p.communicate(timeout=600)[0]
        self.assertEqual(p.returncode, 0)
        print(out.strip())
        # of the training, in whole seconds: imports are before it, and a while of freeing behind
        begin, end = map(int, re.search(r"from=(\d+)ns to=(\d+)ns", out).groups())
        self.times = f"{(begin // 10**9 + 1) * 10**9}ns", f"{(end // 10**9 - 1) * 10**9}ns"
        return p.pid, mapped

    def test_job(self):
        self.start("select.include=train", "cpu.period_ns=10101010ns")
        before = self.figures()
        pid, mapped = self.run_job()
        windows = self.agent.figure("windows")
        wait_for(lambda: self.agent.figure("windows") > windows + 1, "two windows")
        f = {k: v - before.get(k, 0) for k, v in self.figures().items()}
        if os.environ.get("STRATA_SHOT"):
            subprocess.run(["node", SHOTS, self.server.url, os.environ["STRATA_SHOT"]], check=True, timeout=120)
        self.stop()
        # those of other programs on this machine are built, too
        touched = {os.path.basename(m) for m in self.pprof().mappings.values() if not m.startswith("[")}
        print(f"{len(mapped)} files mapped for execution, tables of them built for {len(touched)}; "
              f"{f['agent_python_merged']} of {f['agent_python_with_frames']} stacks with Python frames merged "
              f"({f['agent_python_drained']} before their tables were built), "
              f"memory {self.figures()['agent_memory'] / 2**20:.1f} MiB")
        print("unnamed frames", {k[21:]: v for k, v in f.items() if k.startswith("agent_python_unnamed") and v}, "of",
              f["agent_python_frames"], "errors", {k[12:]: v for k, v in f.items() if k.startswith("agent_pyerr_") and v},
              "restraint", f["agent_restraint_steps"])
        self.whole()
        self.main_thread(pid)
        self.held(pid)
        self.assertLess(len(touched), 30)
        self.assertGreater(len(mapped), 2 * len(touched))

    def whole(self):
        """Stacks that reach their end, by the root frame of those that do not."""
        p = self.pprof()
        all_of, cut = 0, {}
        for stack, values in p.samples:
            root = tp.frames(stack)[-1][0]
            all_of += values[0]
            if root.startswith(("[truncated", "[no stack")):
                cut[root] = cut.get(root, 0) + values[0]
        print(f"{all_of - sum(cut.values())} of {all_of} stacks whole "
              f"({100 - 100 * sum(cut.values()) / all_of:.2f} %), the others: {cut}")
        # a table that is not built yet costs some stacks, once in the agent's life
        lasting = sum(n for why, n in cut.items() if "notable" not in why)
        self.assertGreater(all_of, 200)
        self.assertLess(lasting, (0.01 if DEBIAN else 0.04) * all_of)
        if not DEBIAN:
            self.assertLess(lasting - cut.get("[truncated: noinfo]", 0), 0.01 * all_of)

    def main_thread(self, pid):
        p = self.pprof(tid=pid)
        python = sum(v[0] for s, v in p.samples if any(tp.is_python(f) for f in tp.frames(s)))
        for stack, values in p.samples:  # what there is beside
            f = tp.frames(stack)
            if not any(map(tp.is_python, f)):
                print(f"    {values[0]}: {f[-1][0]} ... {f[min(3, len(f) - 1)][0]} {f[0][0]}")
        own = sum(v[0] for s, v in p.samples if any(f[1] == TRAIN for f in tp.frames(s)))
        print(f"main thread: {python} of {p.total(0)} samples with Python frames, {own} with those of train.py")
        self.assertGreater(p.total(0), 100)
        self.assertGreaterEqual(python, 0.99 * p.total(0) - 3)
        for i in range(WORKERS):
            self.assertGreater(self.pprof(thread=f"data-{i}").total(0), 0, f"data-{i}")

    def held(self, pid):
        """Where it stood still: as sys._current_frames() said."""
        seen = {}
        for path in glob.glob(os.path.join(self.folder.name, "held-*")):
            who = int(path.rsplit("-", 1)[1])
            with open(path, encoding="utf-8") as f:
                want = [tuple(x) for x in json.load(f)][1:]
            for stack, values in self.pprof(pid=who).samples:
                py = [(f[0].split(".")[-1], *f[1:]) for f in tp.frames(stack) if tp.is_python(f)]
                names = [f[0] for f in py]
                if "hold" in names:
                    self.assertEqual(py[names.index("hold") + 1:], want)
                    seen[who] = seen.get(who, 0) + values[0]
        print("held, equal to sys._current_frames():", {("main" if k == pid else k): v for k, v in seen.items()})
        self.assertIn(pid, seen)
        self.assertGreater(len(seen), 2, "and the workers")


if __name__ == "__main__":
    if not LONG:
        print("skip: takes minutes (STRATA_LONG=1)")
        sys.exit(77)
    if not torch_version():
        print(f"skip: no torch for {PYTHON} (Debian: python3-torch; or STRATA_TORCH_PYTHON)")
        sys.exit(77)
    print("torch", torch_version())
    sys.exit(main())
