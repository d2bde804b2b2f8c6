#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rules that a search over the tracked text can check. Exit status 1 names each place.

usage: tree.py ROOT
"""
import os
import re
import sys

from files import all_files

PRODUCT = ("base/", "proto/", "agent/", "storage/", "query/", "server/", "cli/", "demo/")
OURS = PRODUCT + ("bench/",)
# byte-exact data and what npm wrote or brought
DATA = ("tests/golden/", "tests/fuzz/corpus/", "web/vendor/")

# name, files it holds for, pattern, files that may, what to do instead
RULES = [
    ("banned call", lambda f: f.startswith(PRODUCT) and f.endswith((".c", ".h")),
     r"\b(strcpy|strcat|sprintf|vsprintf|strtok|strtok_r|gmtime|gmtime_r|localtime|localtime_r"
     r"|ctime|ctime_r|atoi|atol|atoll|atof|strto(?:l|ll|ul|ull|d|f|ld|imax|umax)|alloca|gets)\s*\(",
     ("base/str.c", "base/time.c"), "use the wrappers of base/str.h and base/time.h"),
    ("SQL built from input", lambda f: f.startswith(OURS) and f.endswith(".c"),
     r'"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ATTACH|PRAGMA)\b[^"]*%[^%"]*s',
     (), "bind parameters"),
    ("markup from text", lambda f: f.startswith("web/") and f.endswith((".js", ".mjs", ".html")),
     r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function\()",
     (), "use textContent and createElement"),
    ("inline script or style", lambda f: f.startswith("web/") and f.endswith(".html"),
     r"<script(?![^>]*\bsrc=)[^>]*>|\bon[a-z]+=\"|\bstyle=\"",
     (), "the content security policy forbids it"),
    ("machine path", lambda f: True,
     r"(?:^|[\s\"'`(=:,])/(?:work|root|farm|home/[a-z]+|mnt)/[A-Za-z0-9_.]",
     ("tests/lint/tree.py",), "name what is meant, not where it lay"),
    ("registry host", lambda f: True,
     r"\b(?:https?|git|ssh)://[^/\s\"']*(?:registry|npmjs|pypi|artifactory|nexus|mirror|proxy)",
     ("tests/lint/tree.py",), "package sources are the machine's setting, not ours"),
]

GENERATED = re.compile(r"\.pb-c\.[ch]$|\.skel\.h$|\.o$|\.so$|\.a$|(^|/)vmlinux\.h$|(^|/)node_modules/"
                       r"|\.pyc$|^build")
SPDX = (".c", ".h", ".py", ".sh", ".js", ".mjs", ".css", "meson.build", "meson_options.txt", ".proto")


def is_comment(line):
    text = line.lstrip()
    return text.startswith(("*", "//", "/*", "#!"))


def check_text(name, lines, say):
    for title, where, pattern, may, instead in RULES:
        if not where(name) or name in may:
            continue
        find = re.compile(pattern)
        code_only = title in ("banned call", "SQL built from input", "markup from text")
        for number, line in enumerate(lines, 1):
            if code_only and is_comment(line):
                continue
            hit = find.search(line)
            if hit:
                say(f"{name}:{number}: {title}: {hit.group(0).strip()} ({instead})")


def main():
    root = sys.argv[1]
    problems = []
    n = 0
    for name in all_files(root):
        if GENERATED.search(name):
            problems.append(f"{name}: generated or built file is committed")
            continue
        if name.startswith(DATA):
            continue
        try:
            with open(os.path.join(root, name), encoding="utf-8") as file:
                lines = file.read().split("\n")
        except UnicodeDecodeError:
            continue # pictures
        n += 1
        check_text(name, lines, problems.append)
        if name.endswith(SPDX) and not any("SPDX-License-Identifier:" in l for l in lines[:3]):
            problems.append(f"{name}:1: no SPDX-License-Identifier in the first lines")
    for problem in problems:
        print(problem)
    if n == 0:
        print("tree: nothing to check", file=sys.stderr)
        return 2
    print(f"tree: {n} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
