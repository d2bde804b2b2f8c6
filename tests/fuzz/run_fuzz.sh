#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_fuzz.sh TARGET CORPUS -- fuzzes for STRATA_FUZZ_SECONDS (10), starting from CORPUS, which is
# left as it is. What breaks the target is printed as base64, ready to become a file of the corpus.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/new"
status=0
"$1" -max_total_time="${STRATA_FUZZ_SECONDS:-10}" -timeout=10 -rss_limit_mb=2048 -seed=1 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$tmp/found-" "$tmp/new" "$2" || status=$?
for found in "$tmp"/found-*; do
    [ -e "$found" ] || continue
    echo "$(basename "$found"):"
    base64 "$found" | head -c 100000
done
exit "$status"
