#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs_units.sh ROOT PRINT_UNITS -- the table of docs/units.md has the rows of base/unit.h, in order.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$2" >"$tmp/code"
grep -E '^\| [0-9]+ \|' "$1/docs/units.md" | cut -d'|' -f1-5 | sed 's/ *$/ |/' >"$tmp/page"
[ -s "$tmp/code" ] || { echo 'docs_units: no type printed' >&2; exit 2; }
diff -u "$tmp/page" "$tmp/code" && echo "docs_units: $(wc -l <"$tmp/code") rows ok"
