#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a Python may do to whoever reads its frames (workloads/pyhostile.py): frames that are overwritten while
they are read, a recursion of 10,000, code that is freed under the reader, a wrong version number.

The agent lives and its account is exact; no function is named that did not run; what cannot be read is counted.
Needs root and BPF, else 77. STRATA_LONG=1: longer, all interpreters.
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pyfake
import test_python as tp
from test_agent_run import LONG, main, wait_for

HOSTILE = os.path.join(os.path.dirname(tp.STOP), "pyhostile.py")
LIAR = os.path.join(os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent"), "pyliar.so")
SECONDS = 20 if LONG else 2
ONLY = "select.include=warm*,lie-*,deep-*,recycle-*,liar-*"  # figures are of these, whatever else runs here
OWN = {"lie", "<module>"}


class Hostile(tp.Agented):
    def known(self):
        """One of each minor version whose frames the program can find."""
        found = [f for f in tp.interpreters() if f[0] in ("3.10", "3.11", "3.12", "3.13")]
        return found if LONG else [found[0], found[-1]]

    def hostile(self, command, service, *arguments, **more):
        before = self.figures()
        p = tp.Program(self.folder.name, command, service, SECONDS, *arguments, script=HOSTILE, **more)
        p.wait()
        windows = self.agent.figure("windows")
        wait_for(lambda: self.agent.figure("windows") > windows + 1, "two windows")
        f = {k: v - before.get(k, 0) for k, v in self.figures().items()}
        self.assertEqual(f["agent_identity_violations"], 0)
        f["errors"] = sum(v for k, v in f.items() if k.startswith("agent_pyerr") and k != "agent_pyerr_no_state")
        f["unnamed"] = sum(v for k, v in f.items() if k.startswith("agent_python_unnamed"))
        return f

    def python_frames(self, service, native=""):
        """[[(function, file, line)]] of each stack with that native function, innermost first; with frames
        without a name."""
        p = tp.pprof(self.server, service)
        stacks = [tp.frames(stack) for stack, _ in p.samples]
        return [[f for f in s if tp.is_python(f) or f[0].startswith("[python 0x") or f[1].startswith("<made")]
                for s in stacks if not native or any(f[0] == native for f in s)]

    def test_overwritten(self):
        self.start("offcpu.enabled=off", ONLY)
        found = self.known()
        self.warm(found)
        services = []
        for version, command in found:
            f = self.hostile(command, f"lie-{version}", "lie", LIAR)
            services.append(f"lie-{version}")
            print(f"overwritten, {version}: {f['agent_python_samples']} samples, {f['errors']} with an error",
                  {k[12:]: v for k, v in f.items() if k.startswith("agent_pyerr") and v},
                  f"{f['unnamed']} frames without a name")
            self.assertGreater(f["agent_python_samples"], 50)
            self.assertGreater(f["errors"] + f["unnamed"], 10, "it was not overwritten")
        self.stop()
        for s in services:
            names = {f[0] for stack in self.python_frames(s, "pyliar_lie") for f in stack}
            self.assertTrue(names, s)
            wrong = {n for n in names if n not in OWN and not n.startswith("[python 0x")}
            print(f"{s}: named", sorted(n for n in names if not n.startswith("[python")))
            self.assertFalse(wrong, s)

    def test_deep(self):
        self.start("offcpu.enabled=off", ONLY)
        found = self.known()
        self.warm(found)
        for version, command in found:
            f = self.hostile(command, f"deep-{version}", "deep")
            print(f"10,000 deep, {version}: {f['agent_pyerr_deep']} of {f['agent_python_samples']} samples cut")
            self.assertGreater(f["agent_pyerr_deep"], 0.7 * f["agent_python_samples"])
        self.stop()
        for version, _ in found:
            stacks = self.python_frames(f"deep-{version}")
            self.assertLessEqual(max(map(len, stacks)), 128)
            self.assertEqual({f[0] for s in stacks if len(s) == 128 for f in s}, {"deep", "spin"})

    def test_freed(self):
        self.start("offcpu.enabled=off", ONLY)
        found = self.known()
        self.warm(found)
        for version, command in found:
            f = self.hostile(command, f"recycle-{version}", "recycle")
            print(f"freed, {version}: {f['agent_python_frames']} frames, {f['unnamed']} without a name",
                  {k[21:]: v for k, v in f.items() if k.startswith("agent_python_unnamed") and v})
        self.stop()
        for version, _ in found:
            made = [f for s in self.python_frames(f"recycle-{version}") for f in s if f[0].startswith("made_")]
            numbers = {f[0] for f in made}
            wrong = [f for f in made if f[1] != f"<made {f[0][5:]}>"]
            print(f"recycle-{version}: {len(made)} frames of {len(numbers)} functions, "
                  f"{len(wrong)} with another's file")
            self.assertGreater(len(numbers), 20)
            self.assertFalse(wrong[:5])

    def test_other_version(self):
        """A libpython that says another version: refused, or at least nothing wrong is named."""
        self.start("offcpu.enabled=off", ONLY)
        cases = []
        for version, command in tp.interpreters():
            library = pyfake.libpython(command[-1]) if len(command) == 1 else None
            if library and version > "3.10":
                cases += [(version, command, library, number) for number in
                          ((3, 9), (3, 10), (3, 11), (3, 12), (3, 13), (3, 14), (3, 15), (3, 16), (4, 0))
                          if "%d.%d" % number != version]
        if not cases:
            self.skipTest("no CPython with a libpython here")
        services = {}
        for i, (version, command, library, number) in enumerate(cases if LONG else cases[1::4]):
            service = services[f"liar-{i}"] = f"{version} says %d.%d" % number
            folder = pyfake.says_version(library, os.path.join(self.folder.name, str(i)), number)
            p = tp.Program(self.folder.name, command, f"liar-{i}", 1, "take", env={"LD_LIBRARY_PATH": folder})
            p.wait()
        windows = self.agent.figure("windows")
        wait_for(lambda: self.agent.figure("windows") > windows + 1, "two windows")
        self.stop()
        self.assertEqual(self.figures()["agent_identity_violations"], 0)
        for service, what in services.items():
            frames = [f for s in self.python_frames(service) for f in s]
            named = {f[0] for f in frames if not f[0].startswith("[python")}
            print(f"{what}: {len(frames)} Python frames, named: {sorted(named)}")
            self.assertFalse(named, what)


if __name__ == "__main__":
    sys.exit(main())
