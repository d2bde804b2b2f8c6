#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# format.sh ROOT -- every C file is as clang-format writes it.
set -eu
cd "$1"
files=$(/usr/bin/python3 tests/lint/files.py . .c .h)
[ -n "$files" ] || { echo 'format: no C file found' >&2; exit 2; }
# shellcheck disable=SC2086 # our names have no spaces
clang-format-14 --dry-run -Werror $files && echo "format: $(echo "$files" | wc -l) files ok"
