# SPDX-License-Identifier: Apache-2.0
"""What the tests of names and lines share: run symdump and the tools it is compared with."""
import os
import random
import re
import shutil
import subprocess

from agent_lib import tool


def run(*args, stdin=None):
    p = subprocess.run(args, input=stdin, capture_output=True, text=True, errors="replace")
    return p.stdout


def must(*args):
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL)


def text_of(addresses):
    return "".join("%x\n" % a for a in addresses)


class Symbols:
    """name: {address: shown}; frames: {address: [(function, file, line, inlined)]}, innermost
    first; stat: {key: value}"""

    def __init__(self, path, addresses, *options):
        self.name, self.frames, self.stat = {}, {}, {}
        at = None
        out = run(tool("symdump"), *options, path, stdin=text_of(addresses))
        for line in out.splitlines():
            if line.startswith("  "):
                m = re.fullmatch(r"  (.*) (\S+):(\d+)( inlined)?", line)
                self.frames[at].append((m[1], m[2], int(m[3]), bool(m[4])))
            elif line.startswith("stat "):
                _, key, value = line.split(" ", 2)
                self.stat[key] = int(value) if value.isdigit() else value
            else:
                word, self.name[int(line.split(" ", 1)[0], 16)] = line.split(" ", 1)
                at = int(word, 16)
                self.frames[at] = []


def text_section(path):
    for line in run("readelf", "-SW", path).splitlines():
        m = re.match(r"\s*\[\s*\d+\]\s+\.text\s+PROGBITS\s+(\S+)\s+\S+\s+(\S+)", line)
        if m:
            return int(m[1], 16), int(m[2], 16)
    raise AssertionError(f"{path}: no .text")


def in_functions(path):
    """Each address of .text that a function covers by its size."""
    start, size = text_section(path)
    found = set()
    for line in run("nm", "-S", "--defined-only", path).splitlines():
        m = re.match(r"([0-9a-f]{16}) ([0-9a-f]{16}) [TtWw] ", line)
        if m and start <= int(m[1], 16) < start + size:
            found.update(range(int(m[1], 16), int(m[1], 16) + int(m[2], 16)))
    return sorted(found)


def random_addresses(path, n, seed=9):
    start, size = text_section(path)
    rnd = random.Random(seed)
    return sorted({start + rnd.randrange(size) for _ in range(n)})


def addr2line(path, addresses):
    """{address: [(function, file, line)]}, innermost first"""
    found, at, fn = {}, None, None
    for line in run("addr2line", "-f", "-i", "-a", "-e", path, stdin=text_of(addresses)).splitlines():
        if line.startswith("0x") and " " not in line and fn is None:
            at = int(line, 16)
            found[at] = []
        elif fn is None:
            fn = line
        else:
            file, _, number = re.sub(r" \(discriminator.*", "", line).rpartition(":")
            found[at].append((fn, file, 0 if number == "?" else int(number)))
            fn = None
    return found


def gdb(path, commands):
    args = ["gdb", "-nx", "-batch"]
    for c in commands:
        args += ["-ex", c]
    return run(*args, path).splitlines()


def gdb_starts(path, addresses):
    """{address: where the function of gdb's `info symbol` begins, or None}"""
    lines = [x for x in gdb(path, ["info symbol 0x%x" % a for a in addresses])
             if " in section " in x or x.startswith("No symbol")]
    assert len(lines) == len(addresses), (len(lines), len(addresses))
    found = {}
    for a, line in zip(addresses, lines):
        m = re.match(r"(.*?)(?: \+ (\d+))? in section", line)
        found[a] = a - int(m[2] or 0) if m else None
    return found


def symbolizer():
    return shutil.which("llvm-symbolizer") or shutil.which("llvm-symbolizer-14")


def llvm_lines(path, addresses):
    """As addr2line(), by LLVM's reader of DWARF: a second opinion."""
    out = run(symbolizer(), "--obj=" + path, "-i", "-f=linkage",
              stdin="".join("0x%x\n" % a for a in addresses))
    found = {}
    for a, block in zip(addresses, out.split("\n\n")):
        lines = block.splitlines()
        frames = []
        for fn, place in zip(lines[::2], lines[1::2]):
            file, number, _ = place.rsplit(":", 2)
            frames.append((fn, file, int(number)))
        found[a] = frames
    return found


def aliases(paths):
    """{address: names that nm has for it, without parameters}"""
    found = {}
    for path in paths:
        for options in ([], ["-D"]):
            out = run("nm", "--defined-only", "--without-symbol-versions", *options, path)
            for line in run("c++filt", "-p", "-i", stdin=out).splitlines():
                m = re.match(r"([0-9a-f]{16}) [TtWwiuVvD] (.*)", line)
                if m:
                    found.setdefault(int(m[1], 16), set()).add(m[2])
    return found


def shown(names):
    """Mangled names as people see them."""
    return run("c++filt", "-p", "-i", stdin="".join(n + "\n" for n in names)).splitlines()


def build_id(path):
    m = re.search(r"Build ID: ([0-9a-f]+)", run("readelf", "-n", path))
    return m[1] if m else None


def debug_file(path):
    id_ = build_id(path)
    at = f"/usr/lib/debug/.build-id/{id_[:2]}/{id_[2:]}.debug" if id_ else ""
    return at if os.path.exists(at) else None
