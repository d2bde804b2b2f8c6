#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A text file as a C string, so that the server answers with exactly what is in docs/.

usage: embed.py NAME IN OUT    defines const char NAME[] and const unsigned long NAME_n
"""
import sys


def main():
    name, source, target = sys.argv[1:]
    with open(source, "rb") as f:
        text = f.read()
    escapes = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}
    with open(target, "w", encoding="ascii") as f:
        f.write(f"extern const char {name}[];\nextern const unsigned long {name}_n;\n"
                f"const char {name}[] =\n")
        for line in text.splitlines(keepends=True):
            f.write('    "' + "".join(escapes.get(c) or (chr(c) if 32 <= c < 127 else f"\\{c:03o}")
                                      for c in line) + '"\n')
        f.write(f"    ;\nconst unsigned long {name}_n = {len(text)};\n")


if __name__ == "__main__":
    main()
