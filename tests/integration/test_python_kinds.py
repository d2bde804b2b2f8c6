#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every Python there is here: frames in their places while a program runs freely (workloads/pymix.py), by the
range of the eval function and by entry frames; a Python that comes late, or by exec; compiled code of its own
(-X perf, PYTHON_JIT); one that is not read is refused with its reason. Needs root and BPF, else 77.

STRATA_PYTHON_SID=FOLDER as in test_python.py. STRATA_LONG=1: 10 s of each instead of 1.5.
"""
import glob
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pyfake
import stratasink
import test_python as tp
from test_agent_run import LONG, main, wait_for

TOOLS = os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent")
MIX = os.path.join(os.path.dirname(tp.STOP), "pymix.py")
SECONDS = 10 if LONG else 1.5
ONLY = "select.include=warm*,mix-*,entry-*,late-*,pymix,old"  # figures are of these, whatever else runs here
PARTS = {"recursion", "wrapper", "generator", "delegating", "comprehensions", "value", "<lambda>", "callbacks",
         "coroutine", "run"}  # what any half second of the program must show


class Kinds(tp.Agented):
    def program(self, command, service, *arguments, script=MIX, **more):
        p = tp.Program(self.folder.name, command, service, *arguments, script=script, **more)
        p.wait()
        return p

    def measured(self, command, service, **more):
        """The figures of one program that runs freely: {figure: difference}. Once before, for the tables."""
        self.program(command, "warm", 0.5, **more)
        self.settle()
        before = self.figures()
        self.program(command, service, SECONDS, **more)
        self.settle()
        return {k: v - before.get(k, 0) for k, v in self.figures().items()}

    def settle(self):
        windows = self.agent.figure("windows")
        wait_for(lambda: self.agent.figure("windows") > windows + 1 and
                 self.agent.figure("tables_pending") == 0, "tables")

    def judge(self, service, f):
        samples, framed, merged = (f[f"agent_python_{k}"] for k in ("samples", "with_frames", "merged"))
        errors = sum(v for k, v in f.items() if k.startswith("agent_pyerr") and k != "agent_pyerr_no_state")
        print(f"{service}: {merged} of {framed} stacks with Python frames merged "
              f"({100 * merged / max(framed, 1):.2f} %), {samples} in all; short {f['agent_python_short']}, drained "
              f"{f['agent_python_drained']}, errors {errors}, unnamed",
              {k[22:]: v for k, v in f.items() if k.startswith("agent_python_unnamed") and v})
        self.assertGreater(samples, 100, service)
        # of 1.5 s: the bound, and three of its standard deviations
        self.assertGreater(merged, 0.99 * framed - (0 if LONG else 3 * (0.01 * framed) ** 0.5), service)
        self.assertLessEqual(errors, 0.005 * samples + 2, service)

    def names(self, service):
        p = tp.pprof(self.server, service)
        seen = {f[0].split(".")[-1] for stack, _ in p.samples for f in tp.frames(stack) if tp.is_python(f)}
        missing = PARTS - seen
        self.assertFalse(missing, f"{service}: {missing} not among {seen}")

    def test_merged(self):
        self.start("offcpu.enabled=off", ONLY)
        services = []
        for version, command in tp.interpreters():
            services.append(f"mix-{version}")
            self.judge(services[-1], self.measured(command, services[-1]))
            for name, options, env in (("perf", ["-X", "perf"], {}), ("jit", [], {"PYTHON_JIT": "1"})):
                minor = int(version.split("-")[0].split(".")[1])
                if minor < (12 if name == "perf" else 13):
                    continue
                if name == "jit" and "-sid" not in version:
                    continue  # only Debian's has one
                f = self.measured([*command, *options], f"mix-{version}-{name}", env=env)
                if name == "jit" and minor < 15:
                    self.assertLess(f["agent_python_short"], 0.01 * f["agent_python_samples"] + 2)
                    continue  # cut where its code begins: reported, not merged
                services.append(f"mix-{version}-{name}")
                self.judge(services[-1], f)
        self.stop()
        for s in services:
            self.names(s)

    def test_by_entry_frame(self):
        """Without knowing where the eval function is, 3.12 on."""
        self.start("offcpu.enabled=off", ONLY)
        services = []
        for version, command in tp.interpreters():
            library = pyfake.libpython(command[-1]) if len(command) == 1 else None
            if version < "3.12" or not library:
                continue
            folder = pyfake.without_eval(library, os.path.join(self.folder.name, version))
            env = {"LD_LIBRARY_PATH": folder}
            services.append(f"entry-{version}")
            self.warm_one(command, env)
            f = self.measured(command, services[-1], env=env)
            self.judge(services[-1], f)
        self.stop()
        for s in services:
            self.names(s)
        if not services:
            self.skipTest("no CPython from 3.12 on with a libpython here")

    def warm_one(self, command, env):
        """Once, so that the tables of its files are built; and it must be read by entry frames."""
        p = tp.Program(self.folder.name, command, "warm", 60, script=MIX, env=env)
        try:
            wait_for(lambda: self.figures().get("agent_python_by_entry_frame", 0) > 0, "by entry frames", 60)
            wait_for(lambda: self.agent.figure("tables_pending") == 0, "tables")
        finally:
            p.process.kill()
            p.process.wait()

    def test_late(self):
        """A C program that loads a libpython after a while, where there is one."""
        libraries = sorted(glob.glob("/usr/lib/x86_64-linux-gnu/libpython3.1*.so.1.0"))
        libraries += [lib for _, c in tp.interpreters() if len(c) == 1 and (lib := pyfake.libpython(c[0]))]
        chroots = [(tp.SID, lib[len(tp.SID):]) for lib in
                   sorted(glob.glob(tp.SID + "/usr/lib/x86_64-linux-gnu/libpython3.1*.so.1.0"))] if tp.SID else []
        if not libraries and not chroots:
            self.skipTest("no libpython here")
        self.start("offcpu.enabled=off", ONLY)
        services = {}
        for i, (root, lib) in enumerate([("", lib) for lib in libraries] + chroots):
            service = services[f"late-{i}"] = os.path.basename(lib) + (" of sid" if root else "")
            self.run_embedded(root, lib, f"late-{i}")
        self.stop()
        for service, name in services.items():
            p = tp.pprof(self.server, service)
            before = sum(v[0] for s, v in p.samples if not any(tp.is_python(f) for f in tp.frames(s)))
            python = p.total(0) - before
            print(f"{name}: {python} samples with Python frames, {before} before it was there")
            self.names(service)
            self.assertGreater(before, 50, "burns 300 ms as a plain program")
            self.assertGreater(python, 200)

    def run_embedded(self, root, lib, service):
        home = os.path.dirname(os.path.dirname(lib))
        env = {"PATH": "/usr/bin:/bin", "STRATA_SERVICE": service}
        if home.startswith(os.path.expanduser("~")):
            env["PYTHONHOME"] = home
        command = [os.path.join(TOOLS, "embed"), lib, "300", MIX]
        if root:
            for path in (command[0], MIX):
                subprocess.run(["cp", path, root + "/tmp/"], check=True)
            command = ["/usr/sbin/chroot", root, "/tmp/embed", lib, "300", "/tmp/pymix.py"]
        r = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(r.returncode, 0, (lib, r.stderr))

    def test_exec(self):
        """A shell that becomes a Python: name and frames follow."""
        self.start("offcpu.enabled=off", ONLY)
        self.warm([("exec", ["/usr/bin/python3"])])
        script = ("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; "
                  f"exec /usr/bin/python3 {MIX} {SECONDS}")
        subprocess.run(["sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, check=True, timeout=120)
        self.stop()
        self.names("pymix")
        p = tp.pprof(self.server, "pymix")
        python = sum(v[0] for s, v in p.samples if any(tp.is_python(f) for f in tp.frames(s)))
        print(f"after exec: {python} of {p.total(0)} samples with Python frames")
        self.assertGreater(python, 0.8 * p.total(0))

    def test_refused(self):
        """An older Python: native frames, and why there are no others."""
        old = sorted(p for v in ("3.6", "3.7", "3.8", "3.9")
                     for p in glob.glob(os.path.expanduser(f"~/.pyenv/versions/{v}.*/bin/python3")))
        if not old:
            self.skipTest("no CPython before 3.10 here")
        ingest = stratasink.Ingest()
        self.addCleanup(ingest.close)
        self.server.url = ingest.url
        self.start("offcpu.enabled=off", ONLY)
        p = tp.Program(self.folder.name, [old[-1]], "old", 60, "take")
        try:
            wait_for(lambda: self.figures().get("agent_python_processes_py_version", 0) > 0, "a refusal", 60)
            wait_for(lambda: any(e[0] == "state" and "py_version" in e[1] for b in ingest.batches()
                                 for e in b.events), "an event", 60)
        finally:
            p.process.kill()
            p.process.wait()
        print("refused:", [e[1] for b in ingest.batches() for e in b.events if "source=python" in e[1]])
        self.assertEqual(self.figures().get("agent_python_frames", 0), 0)


if __name__ == "__main__":
    sys.exit(main())
