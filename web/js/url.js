// SPDX-License-Identifier: Apache-2.0
/** State <-> query string. Pure. Defaults are left out, order is fixed, unknown keys survive. */
import { parseFilter } from './filters.js';
import { toMs } from './time.js';

/** Key -> default. The order is the order in the URL. */
export const DEFAULTS = /** @type {const} */ ({
  q: 'cpu',
  from: 'now-1h',
  to: 'now',
  step: '',
  f: /** @type {string[]} */ ([]),
  view: 'flame',
  by: '',
  invert: '',
  agg: '',
  at: '',
  color: 'origin',
  names: 'short',
  z: '',
  sel: '',
  s: '',
  any: /** @type {string[]} */ ([]),
  key: 'fn',
  sort: 'self',
  fn: '',
  in: '',
  a_q: '',
  a_from: '',
  a_to: '',
  norm: '',
  order: 'b',
  lane: '',
  skip: '20',
  rank: '',
  more: '',
});

const ALLOWED = /** @type {Record<string, string[]>} */ ({
  view: ['flame', 'both', 'table', 'sandwich', 'compare'],
  color: ['origin', 'binary', 'self'],
  names: ['short', 'full'],
  sort: ['self', 'total', 'samples'],
  norm: ['', 'step', 'second', 'share', 'none'],
  key: ['fn', 'line', 'file', 'bin'],
  invert: ['', '1'],
  agg: ['', 'now'],
  more: ['', 'quality', 'steps', 'series', 'steptime'],
  order: ['a', 'b', 'delta'],
});
const HASH = /^[0-9a-f]{16}$/;
const LONGEST = 4096;
const MOST = 16; // values of a key that can stand several times

/** @typedef {'f'|'any'} Lists  keys that can stand several times */
/** @typedef {{[K in Exclude<keyof typeof DEFAULTS, Lists>]: string} & {[K in Lists]: string[]} & {unknown:[string,string][], notices:string[]}} State  notices: keys whose value was not understood */

/** Are two values of a key the same? @param {string|string[]} a @param {string|string[]} b */
export const same = (a, b) => a === b || (Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((x, i) => x === b[i]));

/** @param {string} k @param {string} v */
function valid(k, v) {
  const list = ALLOWED[k];
  if (list) return list.includes(v);
  if (k === 'z' || k === 'sel') return v === '' || HASH.test(v);
  if (k === 'any') return v.length <= LONGEST && v.trim() !== '';
  if (k === 'by') return v === '' || (v.length <= LONGEST && v.split(',').length <= 3 && v.split(',').every((x) => x !== ''));
  if (k === 'skip') return /^\d{1,6}$/.test(v);
  if (k === 'in') return v === '' || /^(bin|file)=./s.test(v);
  if ((k === 'a_from' || k === 'a_to' || k === 'at') && v === '') return true;
  if (k === 'f') return v.length <= LONGEST && parseFilter(v) !== null;
  if (['from', 'to', 'a_from', 'a_to', 'at'].includes(k)) return !Number.isNaN(toMs(v, 0));
  return v.length <= LONGEST;
}

/** @param {string} search @returns {State} */
export function decode(search) {
  /** @type {any} */ const s = { ...DEFAULTS, unknown: [], notices: [] };
  for (const [k, v] of new URLSearchParams(search)) {
    if (!Object.hasOwn(DEFAULTS, k)) {
      if (k !== 'v') s.unknown.push([k, v]);
    } else if (valid(k, v) && !(Array.isArray(s[k]) && s[k].length >= MOST)) s[k] = Array.isArray(s[k]) ? [...s[k], v] : v;
    else if (!s.notices.includes(k)) s.notices.push(k);
  }
  return s;
}

/** @param {State} s */
export function encode(s) {
  const p = new URLSearchParams([['v', '1']]);
  for (const [k, d] of Object.entries(DEFAULTS)) {
    const v = /** @type {any} */ (s)[k];
    if (Array.isArray(v)) for (const x of v) p.append(k, x);
    else if (v !== d) p.set(k, v);
  }
  for (const [k, v] of s.unknown) p.append(k, v);
  return `?${p}`;
}
