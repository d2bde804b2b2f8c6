// SPDX-License-Identifier: Apache-2.0
/** Hostile text made visible. Everything shown that came from a profile goes through show(). Pure. */

const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const LONGEST = 512;

/** @param {string} name @returns {string} */
export function show(name) {
  if (name === '') return '(empty)';
  const cut = name.length > LONGEST ? `${name.slice(0, LONGEST)}…` : name;
  return cut.replace(INVISIBLE, (c) => `<U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}>`);
}

/**
 * A table that is looked up by text from outside: it has its own entries and no others, "constructor" is none.
 * @template T @param {Record<string, T>} entries @returns {Readonly<Record<string, T>>}
 */
export const lookup = (entries) => Object.freeze(Object.assign(Object.create(null), entries));

/** An address for href: http and https pass, anything else is ''. @param {string} url @param {string} [base] */
export function safeUrl(url, base = globalThis.location?.href) {
  try {
    return ['http:', 'https:'].includes(new URL(url, base).protocol) ? url : '';
  } catch {
    return '';
  }
}

/** Of a list that was offered as show() writes it: which one is meant by what was picked or typed. @param {string} text @param {readonly string[]} list */
export const meant = (text, list) => (list.includes(text) ? text : (list.find((x) => show(x) === text) ?? text));
