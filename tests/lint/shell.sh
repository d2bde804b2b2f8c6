#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shell.sh ROOT -- shellcheck on every shell script of ours.
set -eu
cd "$1"
files=$(/usr/bin/python3 tests/lint/files.py . .sh)
# shellcheck disable=SC2086 # our names have no spaces
shellcheck -x dev .ci/run $files && echo 'shell: ok'
