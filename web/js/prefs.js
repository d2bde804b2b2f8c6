// SPDX-License-Identifier: Apache-2.0
/** What a person prefers, in one validated entry of localStorage. It never changes what a link shows. */

const KEY = 'strata.prefs';
const THEMES = /** @type {const} */ (['auto', 'light', 'dark']);
/** @typedef {{theme: typeof THEMES[number], utc: boolean, letters: boolean}} Prefs */

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
  current = { ...current, ...patch };
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
