#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# web.sh ROOT: what the page's own code may not contain. Names come from strangers and reach the
# document as text only; the policy blocks the rest in browsers that know it, this script in review.
set -eu
cd "$1/web"
bad=0
# deny WHY PATTERN FILE...: prints every hit
deny() {
    why=$1 pattern=$2
    shift 2
    if grep -nE "$pattern" "$@"; then
        echo "  ^ $why" >&2
        bad=1
    fi
}
# shellcheck disable=SC2046 # names are without blanks: pack.sh refuses others
set -- index.html $(find js -name '*.js' | sort)
[ $# -gt 10 ] || { echo "web.sh: found no modules below $PWD/js" >&2; exit 2; }
deny 'text becomes markup' 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|createContextualFragment' "$@"
deny 'text becomes a program' '(^|[^.A-Za-z])eval\(|new Function|setTimeout\(['"'"'"`]' "$@"
deny 'a directive that trusts text' 'unsafeHTML|unsafeSVG|unsafeStatic|unsafeMathML|/static\.js' "$@"
deny 'style= is blocked by the policy: a class, or .style=' '[^.]style=' "$@"
deny 'an address that did not pass safeUrl()' '(href|src)=\$\{([^s]|s[^a]|sa[^f])' "$@"
deny 'a script or handler in the page' '<script>|[ "'"'"']on[a-z]+=["'"'"'$]|javascript:' "$@"
# shellcheck disable=SC2046
deny 'something from elsewhere' 'https?://' $(find js css -name '*.js' -o -name '*.css')
# shellcheck disable=SC2046
deny 'fetch() outside api.js' '(^|[^.A-Za-z])fetch\(|XMLHttpRequest|EventSource|WebSocket|sendBeacon' $(find js -name '*.js' ! -name api.js)
# shellcheck disable=SC2046
deny 'a colour outside tokens.css' '#[0-9a-fA-F]{3,8}\b' $(find css js -name '*.css' ! -name tokens.css -o -name '*.js')
[ $bad -eq 0 ] && echo "$# files, nothing found"
exit $bad
