#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The probe of steps has one form: agent/inject/step_probe.S, the assembly in sdk/c/strata_step.h
and the library packed in sdk/python/strata.py say the same.

usage: step_probe.py ROOT LIBSTRATA_STEP_SO [--write]     --write: pack this library anew
"""
import base64
import os
import re
import struct
import sys
import zlib


def sections(elf):
    """name -> (address, bytes, type); and the symbols: name -> (address, size)."""
    shoff, = struct.unpack_from("<Q", elf, 40)
    entsize, count, names = struct.unpack_from("<HHH", elf, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", elf, shoff + i * entsize) for i in range(count)]

    def text(at, table):
        return elf[rows[table][4] + at:].split(b"\0", 1)[0].decode()
    out, symbols = {}, {}
    for r in rows:
        data = b"" if r[1] == 8 else elf[r[4]:r[4] + r[5]]
        out[text(r[0], names)] = (r[3], data, r[1])
        if r[1] == 11:  # SHT_DYNSYM
            for at in range(0, r[5], 24):
                name, _, _, _, value, size = struct.unpack_from("<IBBHQQ", data, at)
                symbols[text(name, r[6])] = (value, size)
    return out, symbols


def form(elf):
    """What makes the probe: code, note without its addresses, the word's size, where they meet."""
    parts, symbols = sections(elf)
    start, size = symbols["strata_step_probe"]
    base, text, _ = parts[".text"]
    word, width = symbols["strata_step_semaphore"]
    note = parts[".note.stapsdt"][1]
    sizes = struct.unpack_from("<III", note)
    pc, stap, semaphore = struct.unpack_from("<QQQ", note, 20)
    return {"code": text[start - base:start - base + size], "owner": note[12:20], "sizes": sizes,
            "texts": note[44:20 + sizes[1]], "at the code": pc == start,
            "at the word": semaphore == word, "base": stap == parts[".stapsdt.base"][0],
            "word": width, "in .probes": parts[".probes"][0] == word}


def packed(module):
    block = re.search(r"_LIBRARY = \((.*?)\n\)", module, re.S)
    return block, "".join(re.findall(r'"([^"]*)"', block.group(1)))


def instructions(text):
    """Assembly without comments, blanks, sections' switches and what only linkage is."""
    out = []
    for line in text.splitlines():
        line = " ".join(re.sub(r"/\*.*?\*/|//.*", "", line).split())
        line = re.sub(r"^\.(push)?section ", ".section ", line)
        if re.match(r"\.popsection$|\.text$|\.section (\.text|\.note\.GNU)|\.hidden strata_|$", line):
            continue
        out.append(line)
    return out


def main():
    args = [a for a in sys.argv[1:] if a != "--write"]
    root, library = args
    with open(library, "rb") as file:
        built = file.read()
    path = os.path.join(root, "sdk/python/strata.py")
    with open(path, encoding="utf-8") as file:
        module = file.read()
    block, text = packed(module)
    if "--write" in sys.argv:
        text = base64.b85encode(zlib.compress(built, 9)).decode()
        lines = "".join(f'    "{text[i:i + 92]}"\n' for i in range(0, len(text), 92))
        with open(path, "w", encoding="utf-8") as file:
            file.write(module[:block.start(1)] + "\n" + lines.rstrip("\n") + module[block.end(1):])
        return 0
    bad = 0
    ours, theirs = form(built), form(zlib.decompress(base64.b85decode(text)))
    for key, value in ours.items():
        if value != theirs[key]:
            print(f"sdk/python/strata.py: {key} is {theirs[key]!r}, step_probe.S says {value!r}")
            bad += 1
    for key in ("at the code", "at the word", "base", "in .probes"):
        if ours[key] is not True:
            print(f"step_probe.S: not {key}")
            bad += 1
    with open(os.path.join(root, "agent/inject/step_probe.S"), encoding="utf-8") as file:
        source = instructions(re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S))
    with open(os.path.join(root, "sdk/c/strata_step.h"), encoding="utf-8") as file:
        header = re.search(r"__asm__\((.*?)\);\n", file.read(), re.S).group(1)
    quoted = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', header))
    quoted = quoted.replace("\\n", "\n").replace('\\"', '"')
    if instructions(quoted) != source:
        for ours_line, theirs_line in zip(source, instructions(quoted)):
            if ours_line != theirs_line:
                print(f"sdk/c/strata_step.h: {theirs_line!r}, step_probe.S: {ours_line!r}")
                break
        bad += 1
    print(f"step_probe: {len(built)} bytes, packed {len(text)}, {len(source)} lines, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
