#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The unwind rules of libraries against readelf's interpretation of the same .eh_frame.

readelf_check.py EHDUMP FILE...: at up to three addresses of every FDE the rule of our table must say
what readelf says of CFA, rbp and return address. Rules that a table cannot express (INVALID) are
counted, not compared. 77 without readelf.
"""
import random
import re
import shutil
import subprocess
import sys

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
    """What the rule must be: a set of acceptable (kind, off); None: not comparable"""
    cfa, ra = row.get("CFA", ""), row.get("ra", "u")
    if ra == "u" and "ra" in row:
        return {("END", None)}
    m = re.fullmatch(r"(r\w+)([+-]\d+)", cfa)
    if not m or ra != "c-8":
        return None
    kind = {"rsp": "RSP", "rbp": "RBP"}.get(m[1], "REG")
    return {(kind, int(m[2]))}


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
            return 0, 0, 1
        got += [line.split() for line in out.stdout.splitlines()]
    bad = unexpressed = 0
    for (pc, row), g in zip(want, got):
        w = wanted(row)
        if w is None or g[1] in ("INVALID", "SIG", "PLT10", "PLT11", "DEREF_RBP", "DEREF_RSP", "RAREG"):
            unexpressed += 1
            continue
        same = (g[1], int(g[2])) in w or (g[1], None) in w
        rbp = rbp_of(row)
        if same and g[1] not in ("END",) and rbp and (g[3], int(g[4])) != rbp:
            same = False
        if not same:
            bad += 1
            if bad < 6:
                print(f"{path}: {pc:x}: readelf {row}, table {g[1:]}")
    return len(want), unexpressed, bad


def main():
    if not shutil.which("readelf"):
        print("skip: no readelf (binutils)")
        return 77
    rng, total, failed = random.Random(20261129), 0, 0
    for path in sys.argv[2:]:
        n, unexpressed, bad = check(sys.argv[1], path, rng)
        print(f"{path}: {n} addresses, {unexpressed} of special form, {bad} differ")
        total += n
        failed += bad
    if not total:
        print("nothing was compared")
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
