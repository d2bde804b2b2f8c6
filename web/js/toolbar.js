// SPDX-License-Identifier: Apache-2.0
/** Views, options, export and the legend: everything that stands around the picture. */
import * as api from './api.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { icon } from './icons.js';
import { createMenu } from './menu.js';
import { ORIGIN_TEXT, ORIGINS, originOf } from './origin.js';
import { safeUrl } from './safe.js';

/** view, text, key */
export const VIEWS = /** @type {const} */ ([
  ['flame', 'Flame', '1'],
  ['both', 'Both', 'b'],
  ['table', 'Table', '2'],
  ['sandwich', 'Sandwich', '3'],
  ['compare', 'Compare', '5'],
]);
/** format, text */
const EXPORTS = /** @type {const} */ ([
  ['pprof', 'pprof'],
  ['speedscope', 'speedscope'],
  ['folded', 'Folded stacks'],
  ['svg', 'Picture (SVG)'],
]);

/**
 * @param {{views: HTMLElement, options: HTMLElement, legend: HTMLElement}} at
 * @param {object} on
 * @param {() => import('./url.js').State} on.state
 * @param {(patch: Partial<import('./url.js').State>, push?: boolean) => void} on.set
 * @param {() => api.Params} on.question   what is shown, for exports
 * @param {() => void} on.curl
 * @param {() => void} on.recolour
 * @param {() => import('./tree.js').Tree|null} on.tree
 */
export function createToolbar(at, on) {
  let origin = -1; // lit by the legend, -1 none
  const menu = createMenu(at.options, options);

  function views() {
    const s = on.state();
    document.body.dataset['view'] = s.view;
    render(
      VIEWS.map(
        ([v, text, key]) =>
          html`<button class="tab" type="button" aria-pressed=${s.view === v} title="${text} (${key})" data-tab=${v} @click=${() => on.set({ view: v }, true)}>${text}</button>`,
      ),
      at.views,
    );
  }
  function options() {
    const s = on.state();
    const pick = (/** @type {'color'|'names'} */ key, /** @type {string} */ text, /** @type {string[]} */ list) =>
      html`<label class="option"
        >${text}<select class="select" @change=${(/** @type {Event} */ e) => on.set({ [key]: /** @type {HTMLSelectElement} */ (e.target).value })}>
          ${list.map((v) => html`<option value=${v} .selected=${v === s[key]}>${v}</option>`)}
        </select></label
      >`;
    const link = (/** @type {string} */ format, /** @type {string} */ text) =>
      html`<a class="pick" download href=${safeUrl(api.address('/export', { ...on.question(), format }))} @click=${() => menu.close()}>${text}</a>`;
    render(
      html`${pick('color', 'colour', ['origin', 'binary'])}${pick('names', 'names', ['short', 'full'])}<span class="menu-anchor"
          ><button class="button" type="button" aria-expanded=${menu.open} @click=${menu.toggle}>${icon('save')}Export</button>${
            menu.open
              ? html`<div class="menu-panel picks right">
                  ${EXPORTS.map(([format, text]) => link(format, text))}
                  <button class="pick" type="button" @click=${() => { menu.close(); on.curl(); }}>Copy as curl (JSON)</button>
                </div>`
              : nothing
          }</span
        >`,
      at.options,
    );
  }
  function legend() {
    const t = on.tree();
    at.legend.hidden = !t;
    if (!t) return;
    const origins = new Set(t.funcs.kind.map((k, i) => (i ? originOf(k, t.funcs.bin[i] ?? '') : -1)));
    const press = (/** @type {number} */ i) => {
      origin = origin === i ? -1 : i;
      on.recolour();
      legend();
    };
    const fixed = (/** @type {string} */ cls, /** @type {string} */ text) =>
      html`<span class="legend-item fixed"><i class="swatch ${cls}" aria-hidden="true"></i>${text}</span>`;
    render(
      html`${
        on.state().color === 'binary'
          ? html`<span class="legend-note">one colour a binary</span>`
          : ORIGIN_TEXT.map((text, i) =>
              origins.has(i) && i !== ORIGINS.length - 1
                ? html`<button class="legend-item" type="button" aria-pressed=${origin === i} title="Show only ${text}" @click=${() => press(i)}>
                    <i class="swatch o-${ORIGINS[i] ?? ''}" aria-hidden="true"></i>${text}
                  </button>`
                : nothing,
            )
      }${fixed('p-unsym', 'no symbol')}${fixed('p-nostack', 'no stack')}${fixed('p-hidden', 'small')}`,
      at.legend,
    );
  }
  return {
    draw() {
      views();
      options();
      legend();
    },
    /** Functions of the origin that the legend lights, null: all. @param {import('./tree.js').Funcs} funcs */
    lit: (funcs) => (origin < 0 ? null : Uint8Array.from(funcs.kind, (k, f) => (f && originOf(k, funcs.bin[f] ?? '') === origin ? 1 : 0))),
  };
}
