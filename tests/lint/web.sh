#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# web.sh types|unit|e2e ROOT -- the checks of the page. 77 where npm's packages or the browser are
# missing: ./dev test --suite web installs them.
set -eu
cd "$2"
if [ ! -d web/node_modules ]; then
    echo 'web/node_modules is missing: npm ci has not run'
    exit 77
fi
case $1 in
types) exec web/node_modules/.bin/tsc -p web ;;
unit) exec node --test tests/web/unit/*.test.mjs ;;
e2e)
    command -v chromium >/dev/null || { echo 'no chromium'; exit 77; }
    exec node --test tests/web/e2e/*.test.mjs
    ;;
*) echo "usage: web.sh types|unit|e2e ROOT" >&2; exit 2 ;;
esac
