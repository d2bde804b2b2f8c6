// SPDX-License-Identifier: Apache-2.0
/**
 * Captures of `strata record` that lie in the selection beside what agents saw, or beside each other: they
 * are added up, as all series are, which is said, with the ways to see either alone.
 */
import * as api from '../api.js';
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { icon } from '../icons.js';
import { show } from '../safe.js';
import { writeSelector } from '../selector.js';

const NAMED = 3, // a button each; more are chosen by the label
  MOST = 100;
const slot = api.slot();

/**
 * @param {HTMLElement} el
 * @param {import('../selector.js').Selector} sel  without a condition on captures
 * @param {{from:string, to:string}} range
 * @param {(patch: Partial<import('../url.js').State>) => void} set
 * @param {() => boolean} still  is that still the selection?
 */
export async function tellCaptures(el, sel, range, set, still) {
  /** @param {string} value */
  const that = (value) => writeSelector({ ...sel, matchers: [...sel.matchers, { name: 'capture', op: '=', value }] });
  try {
    await slot.run(async (signal) => {
      const q = writeSelector(sel);
      const [names, besides] = await Promise.all([api.values('capture', { q, ...range, limit: MOST }, signal), api.types({ q: that(''), ...range }, signal)]);
      if (still()) render(names.length + Number(besides.length > 0) > 1 ? note(names, besides.length > 0) : nothing, el);
    });
  } catch (e) {
    if (/** @type {Error} */ (e).name !== 'AbortError') render(nothing, el);
  }

  /** @param {string[]} names @param {boolean} agents */
  function note(names, agents) {
    const n = names.length;
    const what = `${n >= MOST ? `${MOST} or more` : n} ${n === 1 ? 'capture' : 'captures'} of strata record`;
    /** @param {string} text @param {Partial<import('../url.js').State>} patch @param {string} [name] */
    const act = (text, patch, name = '') =>
      html`<button class="button small" type="button" @click=${() => set({ z: '', sel: '', ...patch })}>${text}${name ? html`<bdi class="mono">${show(name)}</bdi>` : nothing}</button>`;
    return html`<div class="captures" role="group" aria-label="Captures in the selection">
      <span>${icon('warn')}${
        agents ? `${what} ${n === 1 ? 'is' : 'are'} added to what agents saw: what both watched counts twice.` : `${what} are added up: what two watched at one time counts twice.`
      }</span>${agents ? act('Without captures', { q: that('') }) : nothing}${
        n <= NAMED ? names.map((c) => act('Only ', { q: that(c) }, c)) : nothing
      }${act('By capture', { by: 'capture' })}
    </div>`;
  }
}
