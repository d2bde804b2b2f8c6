#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The files of the repository: what git tracks or would take; without git, what lies in the tree.

usage: files.py ROOT [SUFFIX]...    prints those with one of the suffixes, one a line
"""
import os
import subprocess
import sys

SKIPPED = {".git", "build", "node_modules", "__pycache__", "out"}


def all_files(root):
    """Sorted paths below root that exist, relative to it."""
    # safe.directory: a clone of another user (a container's volume) is ours to read, not to trust
    git = ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z",
           "--cached", "--others", "--exclude-standard"]
    try:
        out = subprocess.run(git, check=True, capture_output=True).stdout
        found = [name for name in out.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = []
        for folder, dirs, names in os.walk(root):
            dirs[:] = [d for d in dirs if d not in SKIPPED and not d.startswith("build")]
            found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(f for f in found if os.path.isfile(os.path.join(root, f)))


if __name__ == "__main__":
    suffixes = tuple(sys.argv[2:])
    for name in all_files(sys.argv[1]):
        if not suffixes or name.endswith(suffixes):
            print(name)
