#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sdk.sh ROOT [CC...] -- sdk/c/strata_step.h, which users compile with their own switches, raises no
# warning in C and C++. Default: gcc g++ clang-14.
set -eu
root=$1
shift
[ $# -gt 0 ] || set -- gcc g++ clang-14
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fails=0
cat >"$tmp/use.c" <<'C'
#define STRATA_STEP_IMPL
#include "strata_step.h"
int main(void)
{
    strata_step_begin("a", STRATA_STEP_NEXT, "k=v");
    strata_step_end("a", STRATA_STEP_NEXT);
    strata_step_mark(NULL, 1);
    return 0;
}
C
for cc in "$@"; do
    case $cc in
    *++*) standards="c++11 c++20" language=c++ ;;
    *) standards="gnu99 gnu2x" language=c ;;
    esac
    for std in $standards; do
        if ! "$cc" -x "$language" "-std=$std" -O2 -Wall -Wextra -Wpedantic -Wshadow -Werror "-I$root/sdk/c" -c \
            "$tmp/use.c" -o "$tmp/use.o"; then
            echo "FAIL: $cc -std=$std"
            fails=$((fails + 1))
        fi
    done
done
echo "sdk: $fails failed"
[ "$fails" -eq 0 ]
