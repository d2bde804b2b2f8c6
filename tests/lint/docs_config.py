#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""docs/config.md is what the programs print of their option tables.

usage: docs_config.py ROOT [--write] STRATAD STRATA_AGENT
"""
import difflib
import os
import subprocess
import sys

HEAD = """\
# Configuration

Written from the option tables of the programs (`stratad --markdown-config`,
`strata-agent --markdown-config`); a lint check compares this page with them.

A file has sections and keys (`--config FILE`); one setting is given as `-o section.key=value`.
Durations and sizes need a suffix (`10s`, `256MiB`), counts and percentages have none. An unknown
key, one that is there twice, a value out of range or a missing suffix stops the program at its start,
with file and line.
Sections `[rule NAME]` of `strata-agent` are in [labels.md](labels.md).
"""


def main():
    args = [a for a in sys.argv[1:] if a != "--write"]
    root, programs = args[0], args[1:]
    page = os.path.join(root, "docs", "config.md")
    want = HEAD
    for program in programs:
        out = subprocess.run([program, "--markdown-config"], check=True, capture_output=True,
                             text=True, stdin=subprocess.DEVNULL).stdout
        want += f"\n## {os.path.basename(program)}\n\n{out.strip()}\n"
    if "--write" in sys.argv:
        with open(page, "w", encoding="utf-8") as file:
            file.write(want)
        return 0
    have = ""
    if os.path.exists(page):
        with open(page, encoding="utf-8") as file:
            have = file.read()
    if have == want:
        return 0
    sys.stdout.writelines(difflib.unified_diff(have.splitlines(True), want.splitlines(True),
                                               "docs/config.md", "the programs"))
    print("docs/config.md differs: ./dev docs writes it")
    return 1


if __name__ == "__main__":
    sys.exit(main())
