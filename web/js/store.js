// SPDX-License-Identifier: Apache-2.0
/** One state object + subscribe. The state is what the URL says; nothing else is kept between views. */
import { decode, encode, same } from './url.js';

/** @type {import('./url.js').State} */ let state = decode(location.search);
/** @typedef {(s: import('./url.js').State, changed: Set<string>) => void} Listener */
/** @type {Listener[]} */ const listeners = [];

export const get = () => state;

/** @param {Listener} fn */
export const subscribe = (fn) => void listeners.push(fn);

/**
 * Change the URL's state. push: a step for the Back button (range, zoom, view); else replace (typing).
 * @param {Partial<import('./url.js').State>} patch
 * @returns {boolean} false: it was so already
 */
export function set(patch, push = false) {
  const changed = new Set(
    Object.keys(patch).filter((k) => !same(/** @type {any} */ (patch)[k], /** @type {any} */ (state)[k])),
  );
  if (!changed.size) return false;
  state = { ...state, ...patch, notices: [] };
  history[push ? 'pushState' : 'replaceState'](null, '', location.pathname + encode(state));
  for (const fn of listeners) fn(state, changed);
  return true;
}

addEventListener('popstate', () => {
  const old = state;
  state = decode(location.search);
  const changed = new Set(
    Object.keys(state).filter(
      (k) => k !== 'unknown' && k !== 'notices' && !same(/** @type {any} */ (state)[k], /** @type {any} */ (old)[k]),
    ),
  );
  for (const fn of listeners) fn(state, changed);
});
