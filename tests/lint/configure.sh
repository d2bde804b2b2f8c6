#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# configure.sh ROOT: the tree can be configured with the agent left out and all else in.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if ! meson setup "$dir/build" "$1" -Dagent=disabled >"$dir/log" 2>&1; then
    echo 'meson setup -Dagent=disabled fails:'
    grep -E 'ERROR' "$dir/log" || tail -5 "$dir/log"
    exit 1
fi
