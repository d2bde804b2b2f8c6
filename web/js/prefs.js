// SPDX-License-Identifier: Apache-2.0
/** What a person prefers, in one validated entry of localStorage. It never changes what a link shows. */

const KEY = 'strata.prefs';
const THEMES = /** @type {const} */ (['auto', 'light', 'dark']);
/** Percent: from which value on amber, from which red; of what is covered below which. */
export const LIMITS = Object.freeze({ covered: [95, 50], lost: [1, 5], noStack: [5, 20], unsymbolised: [5, 20] });
/** @typedef {Record<keyof typeof LIMITS, readonly number[]>} Limits */
/** @typedef {{theme: typeof THEMES[number], utc: boolean, letters: boolean, limits: Limits}} Prefs */

/** Thresholds that make sense, each by itself. @param {any} l @returns {Limits} */
function limits(l) {
  const good = (/** @type {string} */ k, /** @type {any} */ x) => Array.isArray(x) && x.length === 2 && x.every((v) => typeof v === 'number' && v >= 0 && v <= 100) && (k === 'covered' ? x[0] >= x[1] : x[0] <= x[1]);
  return /** @type {any} */ (Object.fromEntries(Object.entries(LIMITS).map(([k, d]) => [k, good(k, l?.[k]) ? [...l[k]] : d])));
}

/** @param {string|null} text @returns {Prefs} anything that is not understood is the default */
export function parse(text) {
  /** @type {any} */ let p = null;
  try {
    p = JSON.parse(text ?? 'null');
  } catch {
    /* the default */
  }
  return {
    theme: THEMES.find((t) => t === p?.theme) ?? 'auto',
    utc: p?.utc === true,
    letters: p?.letters !== false,
    limits: limits(p?.limits),
  };
}

/** Storage may be switched off: then preferences live as long as the page. */
function read() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
let current = parse(typeof localStorage === 'undefined' ? null : read());
/** @type {(() => void)[]} */ const listeners = [];

export const get = () => current;

/** @param {Partial<Prefs>} patch */
export function set(patch) {
  current = parse(JSON.stringify({ ...current, ...patch }));
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    /* see read() */
  }
  for (const fn of listeners) fn();
}
/** @param {() => void} fn */
export const subscribe = (fn) => void listeners.push(fn);

export const nextTheme = () => THEMES[(THEMES.indexOf(current.theme) + 1) % THEMES.length] ?? 'auto';
