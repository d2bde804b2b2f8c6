#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every relative link and every path of ours named in README, CONTRIBUTING and docs/ exists.

usage: links.py ROOT

A path is `code` that starts with a folder of the repository and has no placeholder in it, such as
`base/unit.h`; `server/ingest*` must match something. Anchors (#title) must be a heading of the
file that they point into.
"""
import glob
import os
import re
import sys

from files import all_files

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"`([^`\n]+)`")
TOP = ("base", "proto", "agent", "storage", "query", "server", "cli", "web", "sdk", "demo", "tests",
       "bench", "docs", "packaging", ".ci")
PATH = re.compile(r"(?:%s)/[A-Za-z0-9_./*-]*" % "|".join(re.escape(t) for t in TOP))
SPOKEN = re.compile(r"[<>{}$…]|NNNN|NAME|DIR")


def anchor(heading):
    """The anchor that GitHub and GitLab give a heading."""
    text = re.sub(r"[`*]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(path):
    with open(path, encoding="utf-8") as file:
        return {anchor(l.lstrip("#")) for l in file if l.startswith("#")}


def check(root, name, say):
    folder = os.path.dirname(name)
    fenced = False
    with open(os.path.join(root, name), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.startswith("```"):
                fenced = not fenced
            if fenced:
                continue
            for target in LINK.findall(line):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, tag = target.partition("#")
                full = os.path.join(root, folder, path) if path else os.path.join(root, name)
                if not os.path.exists(full):
                    say(f"{name}:{number}: link to {target}: no such file")
                elif tag and tag not in headings(full):
                    say(f"{name}:{number}: link to {target}: no such heading")
            for code in CODE.findall(line):
                if not PATH.fullmatch(code) or SPOKEN.search(code):
                    continue
                if not glob.glob(os.path.join(root, code)):
                    say(f"{name}:{number}: `{code}`: no such path")


def main():
    root = sys.argv[1]
    problems = []
    pages = [f for f in all_files(root)
             if f.endswith(".md") and (f.startswith("docs/") or "/" not in f)]
    if "README.md" not in pages:
        print("links: no README.md", file=sys.stderr)
        return 2
    for page in pages:
        check(root, page, problems.append)
    for problem in problems:
        print(problem)
    print(f"links: {len(pages)} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
