#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers.sh ROOT [CC...] -- every header compiles alone, in each compiler. Default: gcc clang-14.
# Left out: what only BPF programs read, and what is generated.
set -eu
root=$1
shift
[ $# -gt 0 ] || set -- gcc clang-14
cd "$root"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0
fails=0
for header in $(/usr/bin/python3 tests/lint/files.py . .h); do
    case $header in
    *.bpf.h | */vmlinux*.h | *.skel.h | *_skel.h | *.pb-c.h) continue ;;
    agent/bpf/*) before='#include <stdint.h>' ;; # says so: the program side brings its own types
    *) before= ;;
    esac
    # over generated code: the build compiles it
    if grep -qE '^#include "[^"]*\.(pb-c|skel)\.h"' "$header"; then continue; fi
    n=$((n + 1))
    printf '%s\n#include "%s"\n' "$before" "$header" >"$tmp/alone.c"
    for cc in "$@"; do
        if ! "$cc" -std=gnu2x -D_GNU_SOURCE -Wall -Wextra -Werror -I. -fsyntax-only "$tmp/alone.c"; then
            echo "FAIL: $header does not stand alone in $cc"
            fails=$((fails + 1))
        fi
    done
done
echo "headers: $n headers, $fails failed"
[ "$n" -gt 0 ] && [ "$fails" -eq 0 ]
