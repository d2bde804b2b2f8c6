// SPDX-License-Identifier: Apache-2.0
/** What can stand at the caret of a selector that is being written, and the text that a choice makes. Pure. */
import { OPS, writeMatcher } from './selector.js';

/**
 * @typedef {object} Place
 * @property {'type'|'label'|'op'|'value'|'next'|''} want
 * @property {number} from   what a choice replaces: [from, to)
 * @property {number} to
 * @property {string} typed  what stands there, unquoted
 * @property {string} label  of a value
 * @property {string} op
 */

/** @param {string} text @param {number} caret @returns {Place} */
export function placeAt(text, caret) {
  const none = /** @type {Place} */ ({ want: '', from: caret, to: caret, typed: '', label: '', op: '' });
  const open = text.indexOf('{');
  if (open < 0 || caret <= open) {
    const to = open < 0 ? text.length : open;
    return { ...none, want: 'type', from: 0, to, typed: text.slice(0, Math.min(caret, to)).trim() };
  }
  /* from the brace on, one condition after the other, up to the caret */
  let i = open + 1;
  for (;;) {
    while (i < caret && /[\s,]/.test(text.charAt(i))) i++;
    const start = i;
    while (i < text.length && /[\w.]/.test(text.charAt(i))) i++;
    const name = text.slice(start, i);
    if (caret <= i) return { ...none, want: 'label', from: start, to: i, typed: text.slice(start, caret) };
    if (text.charAt(start) === '}' || (!name && !/["`]/.test(text.charAt(start)))) return none;
    while (i < text.length && /\s/.test(text.charAt(i))) i++;
    const at = i;
    while (i < text.length && /[=!~]/.test(text.charAt(i))) i++;
    const op = text.slice(at, i);
    if (caret < i || !OPS.includes(/** @type {any} */ (op))) return { ...none, want: 'op', from: at, to: i, typed: text.slice(at, caret), label: name };
    while (i < caret && /\s/.test(text.charAt(i))) i++;
    const q = text.charAt(i);
    if (q !== '"' && q !== '`') {
      const end = i + (text.slice(i).match(/^[^,}\s]*/)?.[0].length ?? 0);
      if (caret <= end || caret === i) return { ...none, want: 'value', from: i, to: end, typed: text.slice(i, Math.max(i, caret)), label: name, op };
      return none;
    }
    const first = i++;
    while (i < text.length && text.charAt(i) !== q) i += text.charAt(i) === '\\' && q === '"' ? 2 : 1;
    const closed = i < text.length;
    if (caret <= i) return { ...none, want: 'value', from: first, to: Math.min(text.length, i + (closed ? 1 : 0)), typed: text.slice(first + 1, caret), label: name, op };
    i++;
    if (caret === i) return { ...none, want: 'next' };
  }
}

/** The text after a choice, and where the caret stands then. @param {string} text @param {Place} p @param {string} choice */
export function accept(text, p, choice) {
  let put = choice;
  if (p.want === 'value') put = writeMatcher({ name: 'x', op: '=', value: choice }).slice(2);
  else if (p.want === 'label') put = writeMatcher({ name: choice, op: '=', value: '' }).slice(0, -3);
  let rest = text.slice(p.to);
  if (p.want === 'value' && rest.trim() === '') rest = '}';
  if (p.want === 'type' && rest === '' && choice) rest = '';
  const after = `${text.slice(0, p.from)}${put}`;
  return { text: after + rest, caret: after.length };
}

/** Those that begin like what is typed, then those that hold it. @param {string[]} list @param {string} typed */
export function ranked(list, typed) {
  const t = typed.toLowerCase();
  const begins = list.filter((x) => x.toLowerCase().startsWith(t)),
    holds = list.filter((x) => !x.toLowerCase().startsWith(t) && x.toLowerCase().includes(t));
  return [...begins, ...holds];
}
