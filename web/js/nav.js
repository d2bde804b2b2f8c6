// SPDX-License-Identifier: Apache-2.0
/** From one screen to another: what is selected and when goes along. */
import { DEFAULTS, encode } from './url.js';

/** @typedef {'explore'|'quality'} Screen */

/** @param {Screen} screen @param {import('./url.js').State} s @param {Partial<import('./url.js').State>} [patch] */
export function screenUrl(screen, s, patch = {}) {
  const { q, from, to } = s;
  const here = location.pathname.replace(/[^/]*$/, '');
  return `${here}${screen}${encode({ ...DEFAULTS, unknown: [], notices: [], q, from, to, ...patch })}`;
}

/** The links of the header, as the state is now. @param {Screen} current @param {import('./url.js').State} s */
export function drawNav(current, s) {
  for (const a of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll('.nav-item'))) {
    const screen = /** @type {Screen} */ (a.dataset['screen']);
    a.href = screenUrl(screen, s);
    if (screen === current) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
}
