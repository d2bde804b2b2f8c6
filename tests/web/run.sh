#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh WHAT: one of the web tests, as meson calls them. 77 with a reason where a tool is missing.
#   types   tsc over the modules            unit    pure modules under node
#   e2e     Chromium, fixture answers       live    Chromium against the stratad in $STRATAD
set -eu
here=$(cd "$(dirname "$0")" && pwd)
web=$(cd "$here/../../web" && pwd)
skip() { echo "skipped: $1"; exit 77; }
command -v node >/dev/null || skip "node is not installed"
need() { [ -d "$web/node_modules/$1" ] || skip "web/node_modules/$1 is missing: npm ci --ignore-scripts in web/"; }
browser() {
  need playwright-core
  need axe-core
  command -v chromium >/dev/null || skip "chromium is not installed"
}
case ${1-} in
  types) need typescript; exec node "$web/node_modules/typescript/bin/tsc" -p "$web" ;;
  unit) exec node --test "$here"/unit/*.test.mjs ;;
  e2e)
    # two at a time, the largest first; what measures frames runs when the others are done
    browser
    bad=0
    (ok=0; for t in explore attack; do node --test "$here/e2e/$t.test.mjs" || ok=1; done; exit $ok) & one=$!
    (ok=0; for t in panels quality line axe; do node --test "$here/e2e/$t.test.mjs" || ok=1; done; exit $ok) & two=$!
    wait $one || bad=1
    wait $two || bad=1
    node --test "$here/e2e/frames.test.mjs" || bad=1
    exit $bad
    ;;
  live)
    browser
    [ -x "${STRATAD-}" ] || { echo "STRATAD names no program: ${STRATAD-}" >&2; exit 2; }
    exec node --test "$here/e2e/live.test.mjs"
    ;;
  *) echo "usage: run.sh types|unit|e2e|live" >&2; exit 2 ;;
esac
