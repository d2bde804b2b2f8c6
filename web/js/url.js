// SPDX-License-Identifier: Apache-2.0
/** State <-> query string. Pure. Defaults are left out, order is fixed, unknown keys survive. */
import { toMs } from './time.js';

/** Key -> default. The order is the order in the URL. */
export const DEFAULTS = /** @type {const} */ ({
  q: 'cpu',
  from: 'now-1h',
  to: 'now',
  view: 'flame',
  color: 'origin',
  names: 'short',
  z: '',
  sel: '',
  s: '',
  sort: 'self',
});

const ALLOWED = /** @type {Record<string, string[]>} */ ({
  view: ['flame', 'both', 'table'],
  color: ['origin', 'binary'],
  names: ['short', 'full'],
  sort: ['self', 'total', 'samples'],
});
const HASH = /^[0-9a-f]{16}$/;
const LONGEST = 4096;

/** @typedef {{[K in keyof typeof DEFAULTS]: string} & {unknown:[string,string][], notices:string[]}} State */

/** @param {string} k @param {string} v */
function valid(k, v) {
  const list = ALLOWED[k];
  if (list) return list.includes(v);
  if (k === 'z' || k === 'sel') return v === '' || HASH.test(v);
  if (k === 'from' || k === 'to') return !Number.isNaN(toMs(v, 0));
  return v.length <= LONGEST;
}

/** @param {string} search @returns {State} */
export function decode(search) {
  /** @type {any} */ const s = { ...DEFAULTS, unknown: [], notices: [] };
  for (const [k, v] of new URLSearchParams(search)) {
    if (!Object.hasOwn(DEFAULTS, k)) {
      if (k !== 'v') s.unknown.push([k, v]);
    } else if (valid(k, v)) s[k] = v;
    else s.notices.push(`“${k}” in the link is not understood: default used`);
  }
  return s;
}

/** @param {State} s */
export function encode(s) {
  const p = new URLSearchParams([['v', '1']]);
  for (const [k, d] of Object.entries(DEFAULTS)) {
    const v = /** @type {any} */ (s)[k];
    if (v !== d) p.set(k, v);
  }
  for (const [k, v] of s.unknown) p.append(k, v);
  return `?${p}`;
}
