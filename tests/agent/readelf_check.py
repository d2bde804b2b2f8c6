#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The unwind rules of libraries against readelf's interpretation of the same .eh_frame.

readelf_check.py EHDUMP FILE...: at up to three addresses of every FDE the rule of our table must say
what readelf says of CFA, rbp and return address. What readelf does not spell out (expressions) must
be one of our special forms there, or INVALID, which a table cannot express; both are counted.
STRATA_LONG=1: every ELF file below /usr/lib, /usr/bin and /usr/sbin as well, at other addresses each
time. 77 without readelf.
"""
import collections
import os
import random
import re
import shutil
import subprocess
import sys

SPECIAL = {"INVALID", "SIG", "PLT9", "PLT10", "PLT11", "DEREF_RBP", "DEREF_RSP"}
DWARF = "rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15".split()
FOLDERS = ("/usr/lib", "/usr/bin", "/usr/sbin")
PC = re.compile(r"FDE cie=.* pc=([0-9a-f]+)\.\.([0-9a-f]+)")


def frames(path):
    """(lo, hi, [(address, {column: text})]) of every FDE"""
    text = subprocess.run(["readelf", "--debug-dump=frames-interp", "-W", path],
                          capture_output=True, text=True, errors="replace").stdout
    # only .eh_frame: .debug_frame is another section of the same output
    at = text.find("Contents of the .eh_frame section")
    end = text.find("Contents of the .debug_frame section")
    lines = text[at:end if end > at else len(text)].splitlines()
    out, cols, rows, span = [], [], [], None
    for line in lines:
        m = PC.search(line)
        if m or " CIE " in line:
            if span and rows:
                out.append((*span, rows))
            rows, cols = [], []
            span = (int(m[1], 16), int(m[2], 16)) if m else None
            continue
        words = re.sub(r"(r\d+) \((\w+)\)", r"\1(\2)", line).split()
        if words[:2] == ["LOC", "CFA"]:
            cols = words[1:]
        elif cols and span and words and re.fullmatch(r"[0-9a-f]{16}", words[0]):
            rows.append((int(words[0], 16), dict(zip(cols, words[1:]))))
    if span and rows:
        out.append((*span, rows))
    return out


def wanted(row):
    """What the rule must be: [kind, off, register]; None: readelf does not spell it out"""
    cfa, ra = row.get("CFA", ""), row.get("ra", "u")
    if ra == "u" and "ra" in row:
        return ["END", 0, 0]
    m = re.fullmatch(r"(r\w+)([+-]\d+)", cfa)
    in_reg = re.fullmatch(r"r(\d+)\(\w+\)", ra)
    if m and m[1] == "rsp" and in_reg:
        return ["RAREG", int(m[2]), int(in_reg[1])]
    if not m or ra != "c-8":
        return None
    if m[1] in ("rsp", "rbp"):
        return [m[1].upper(), int(m[2]), 0]
    return ["REG", int(m[2]), DWARF.index(m[1])]


def rbp_of(row):
    v = row.get("rbp", "u")
    if v in ("u", "s"):  # readelf says u where nothing is said: unchanged
        return ("same", 0)
    m = re.fullmatch(r"c([+-]\d+)", v)
    return ("cfa", int(m[1])) if m else None


def check(ehdump, path, rng):
    want = []
    for lo, hi, rows in frames(path):
        rows = [r for r in rows if lo <= r[0] < hi]
        for _ in range(min(3, len(rows))):
            i = rng.randrange(len(rows))
            end = rows[i + 1][0] if i + 1 < len(rows) else hi
            if end > rows[i][0]:
                want.append((rng.randrange(rows[i][0], end), rows[i][1]))
    got = []
    for i in range(0, len(want), 5000):
        out = subprocess.run([ehdump, path] + ["%x" % pc for pc, _ in want[i:i + 5000]],
                             capture_output=True, text=True)
        if out.returncode:
            print(f"{path}: {out.stderr.strip()}")
            return 0, collections.Counter(), "no table:" not in out.stderr
        got += [line.split() for line in out.stdout.splitlines()]
    bad = 0
    other = collections.Counter()
    for (pc, row), g in zip(want, got):
        w = wanted(row)
        if w is None:
            same = g[1] in SPECIAL
            other[g[1]] += 1
        else:
            same = [g[1], int(g[2]), int(g[5])] == w
        rbp = rbp_of(row)
        if same and w and g[1] != "END" and rbp and (g[3], int(g[4])) != rbp:
            same = False
        if not same:
            bad += 1
            if bad < 6:
                print(f"{path}: {pc:x}: readelf {row}, table {g[1:]}")
    return len(want), other, bad


def installed():
    """Every ELF file of the distribution, each content once."""
    seen = set()
    for folder in FOLDERS:
        for at, _, names in os.walk(folder):
            for name in sorted(names):
                path = os.path.join(at, name)
                try:
                    st = os.stat(path)
                    if (st.st_dev, st.st_ino) in seen or st.st_size < 64:
                        continue
                    seen.add((st.st_dev, st.st_ino))
                    with open(path, "rb") as f:
                        head = f.read(20)
                except OSError:
                    continue
                # 64 bits, little-endian, executable or shared
                if head[:6] == b"\x7fELF\2\1" and head[16:20] in (b"\2\0>\0", b"\3\0>\0"):
                    yield path


def main():
    if not shutil.which("readelf"):
        print("skip: no readelf (binutils)")
        return 77
    long = os.environ.get("STRATA_LONG") == "1"
    seed = random.randrange(1 << 31) if long else 20261129
    rng, total, failed, files, sums = random.Random(seed), 0, 0, 0, collections.Counter()
    for path in [*sys.argv[2:], *(installed() if long else ())]:
        n, other, bad = check(sys.argv[1], path, rng)
        if bad or not long:
            print(f"{path}: {n} addresses, {bad} differ,", *(f"{k} {v}" for k, v in other.items()))
        total += n
        failed += bad
        files += n > 0
        sums += other
    print(f"seed {seed}: {files} files, {total} addresses, {failed} differ; not spelt out:",
          *(f"{k} {v}" for k, v in sorted(sums.items())))
    if not total:
        print("nothing was compared")
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
