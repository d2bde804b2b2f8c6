#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Pack the UI for stratad: what git holds is what is served, only the names change.
#
#   pack.sh WEB OUT
#
# Writes below OUT (replaced as a whole):
#   <hash>/{css,js,vendor}/...  copies; <hash> = first 16 hex digits of SHA-256 over the sorted sums
#   <hash>/....gz               the same, gzip -9n
#   index.html                  hash filled in and one modulepreload a module; @BASE@ is left to the
#                               server, which knows its base path, so there is no index.html.gz
#   manifest.tsv                one line a file: URL path, media type, file, size, gz size (- = none)
# Two runs over the same files give the same bytes: no times, no order of the file system, one locale.
set -eu
LC_ALL=C
export LC_ALL
if [ $# -ne 2 ] || [ ! -f "$1/index.html" ]; then
  echo "usage: pack.sh WEB OUT   (WEB holds index.html, css, js, vendor)" >&2
  exit 2
fi
web=$1
out=$2
tmp=$out.tmp.$$
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
rm -rf "$tmp"
mkdir -p "$tmp"

media() {
  case $1 in
    *.js) echo text/javascript ;;
    *.css) echo text/css ;;
    *.svg) echo image/svg+xml ;;
    */LICENSE) echo text/plain ;;
    *) echo "pack.sh: $1: no media type for this kind of file" >&2; return 1 ;;
  esac
}
link() { printf '<link rel="modulepreload" href="@BASE@/ui/@HASH@/%s">' "$1"; }
size() { wc -c <"$1" | tr -d ' '; }

# type declarations and sums are for development, the page never asks for them
files=$(cd "$web" && find css js vendor -type f ! -name '*.d.ts' ! -name MANIFEST.sha256 | sort)
case $files in
  *[[:space:]]*[!a-zA-Z0-9._/[:space:]-]*) echo "pack.sh: a file name holds more than a-zA-Z0-9._/-" >&2; exit 1 ;;
esac
# index.html counts too: a page with other preloads is another page
hash=$(cd "$web" && for f in $files index.html; do sha256sum "$f"; done | sha256sum | cut -c1-16)

preload=
first=
for f in $files; do
  mkdir -p "$tmp/$hash/$(dirname "$f")"
  cp "$web/$f" "$tmp/$hash/$f"
  chmod 644 "$tmp/$hash/$f"
  gzip -9nc "$web/$f" >"$tmp/$hash/$f.gz"
  type=$(media "$f")
  printf '/ui/%s/%s\t%s\t%s/%s\t%s\t%s\n' "$hash" "$f" "$type" "$hash" "$f" \
    "$(size "$tmp/$hash/$f")" "$(size "$tmp/$hash/$f.gz")" >>"$tmp/manifest.tsv"
  case $f in
    # main.js is the page's own script; js/later/ is imported when it is wanted, uPlot by it, and so is
    # every screen but the first
    js/main.js | js/later/* | js/screens/quality.js | vendor/uplot/*) ;;
    # what js/first.js needs comes before all else: it asks for the picture
    js/api.js | js/filters.js | js/first.js | js/safe.js | js/store.js | js/time.js | js/tree.js | js/url.js)
      first="$first$(link "$f")
" ;;
    *.js) preload="$preload$(link "$f")
" ;;
  esac
done

awk -v preload="$preload" -v first="$first" '/<!-- modulepreload: first -->/ { printf "%s", first; next }
  /<!-- modulepreload -->/ { printf "%s", preload; next } { print }' \
  "$web/index.html" | sed "s/@HASH@/$hash/g" >"$tmp/index.html"
for page in / /explore /quality; do
  printf '%s\ttext/html; charset=utf-8\tindex.html\t%s\t-\n' "$page" "$(size "$tmp/index.html")" >>"$tmp/manifest.tsv"
done

rm -rf "$out"
mv "$tmp" "$out"
