// SPDX-License-Identifier: Apache-2.0
/** Short words to the person: said to a screen reader, shown for a moment, or put on the clipboard. */

const SHOWN_MS = 3000;

/** @param {string} text */
export function announce(text) {
  const el = document.getElementById('live');
  if (el) el.textContent = text;
}

/** @param {string} text */
export function toast(text) {
  const t = document.createElement('div');
  t.className = 'toast';
  t.setAttribute('role', 'status');
  t.textContent = text;
  document.body.append(t);
  setTimeout(() => t.remove(), SHOWN_MS);
}

const NAMED = 4;
/** @param {string[]} keys  of the link, whose values were not understood */
export function tellNotices(keys) {
  const more = keys.length - NAMED;
  const which = keys.slice(0, NAMED).map((k) => `“${k}”`).join(', ');
  if (keys.length === 1) toast(`${which} in the link is not understood: default used`);
  else if (keys.length) toast(`${which}${more > 0 ? ` and ${more} more` : ''} in the link are not understood: defaults used`);
}

/** navigator.clipboard is undefined on plain HTTP: textarea and execCommand. @param {string} text @param {string} said */
export async function copy(text, said) {
  let done = false;
  if (navigator.clipboard) done = await navigator.clipboard.writeText(text).then(() => true, () => false);
  if (!done) {
    const t = document.createElement('textarea');
    t.className = 'sr';
    t.value = text;
    document.body.append(t);
    t.select();
    done = document.execCommand('copy');
    t.remove();
  }
  if (done) toast(said);
  else prompt('Copy this:', text);
}
