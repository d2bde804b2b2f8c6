// SPDX-License-Identifier: Apache-2.0
/**
 * Above the table: what a row is (function, line, file, binary), searches that are kept there with the
 * share of samples that hold each and at least one of them, and the table as CSV.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { count, percent, total } from './fmt.js';
import { icon } from './icons.js';
import { copy, toast } from './notify.js';
import { show } from './safe.js';

const KEYS = /** @type {const} */ ([['fn', 'functions'], ['line', 'lines'], ['file', 'files'], ['bin', 'binaries']]);

/**
 * @param {HTMLElement} within  stands first in it
 * @param {object} on
 * @param {() => string[]} on.any
 * @param {(any: string[]) => void} on.change
 * @param {(s: string) => void} on.search
 * @param {() => string} on.key
 * @param {(key: string) => void} on.setKey
 * @param {() => Promise<import('./api.js').Top>} on.rows  all of them
 * @param {() => import('./api.js').Top|null} on.shown
 * @param {() => number} on.all
 * @param {() => import('./api.js').Flame|null} on.name
 * @param {() => {from:string, to:string}|null} on.range
 */
export function createPins(within, on) {
  const el = document.createElement('div');
  el.className = 'pins';
  within.prepend(el);
  let typed = '',
    busy = false;

  /** @param {'copy'|'save'} how */
  async function table(how) {
    const flame = on.name();
    if (busy || !flame) return;
    busy = true;
    draw();
    try {
      const csv = await import('./later/csv.js'),
        text = csv.table(await on.rows(), flame, on.range());
      if (how === 'copy') copy(text, 'Table copied as CSV');
      else csv.saveText(text, `strata-${flame.type.name}-table.csv`, 'text/csv');
    } catch (e) {
      toast(`The table could not be exported: ${/** @type {Error} */ (e).message}`);
    } finally {
      busy = false;
      draw();
    }
  }
  /** @param {number} i */
  function remove(i) {
    on.change(on.any().filter((_, k) => k !== i));
    /** @type {HTMLElement|null} */ (el.querySelectorAll('.chip-x')[Math.max(0, i - 1)] ?? el.querySelector('input'))?.focus();
  }
  function draw() {
    const any = on.any(),
      a = on.shown(),
      sums = a?.any ?? null,
      all = on.all();
    const share = (/** @type {number|null|undefined} */ v) => (v === null || v === undefined ? 'unknown' : percent(v, all));
    const add = (/** @type {Event} */ e) => {
      e.preventDefault();
      const t = typed.trim();
      typed = '';
      if (t && !any.includes(t)) on.change([...any, t]);
      else draw();
    };
    render(
      html`<div class="pins-head">
          <label class="option">rows<select class="select" aria-label="What a row is" @change=${(/** @type {Event} */ e) => on.setKey(/** @type {HTMLSelectElement} */ (e.target).value)}>
              ${KEYS.map(([k, t]) => html`<option value=${k} .selected=${k === on.key()}>${t}</option>`)}
            </select></label>
          <form class="pin-form" @submit=${add}>
            <input class="field" aria-label="Pattern whose share is kept above the table" placeholder="+ share of a pattern" autocomplete="off" spellcheck="false" ?disabled=${any.length >= 16} .value=${typed} @input=${(/** @type {Event} */ e) => (typed = /** @type {HTMLInputElement} */ (e.target).value)} />
          </form>
          <span class="pins-count">${a ? `${count(a.count)} ${a.count === 1 ? 'row' : 'rows'}` : ''}</span>
          <button class="button small" type="button" ?disabled=${busy || !a} @click=${() => table('copy')}>Copy CSV</button
          ><button class="button small" type="button" ?disabled=${busy || !a} @click=${() => table('save')}>${icon('save')}CSV</button>
        </div>
        ${any.length
          ? html`<ul class="pin-list" aria-label="Shares of patterns">
              ${any.map((p, i) => {
                const x = sums?.each.find((y) => y.pattern === p);
                return html`<li><button class="pin" type="button" title="Search for it" @click=${() => on.search(p)}><bdi>${show(p)}</bdi></button
                  ><b>${x ? share(x.total) : '…'}</b><span>${x && a && x.total !== null ? `${total(x.total, a.type)} · ${count(x.functions)} ${x.functions === 1 ? 'function' : 'functions'}` : ''}</span
                  ><button class="chip-x" type="button" aria-label="Remove ${show(p)}" @click=${() => remove(i)}>${icon('close')}</button></li>`;
              })}
              ${any.length > 1 ? html`<li class="pin-union"><span>at least one</span><b>${sums ? share(sums.union.total) : '…'}</b><span>${sums && a && sums.union.total !== null ? `${total(sums.union.total, a.type)} · each sample once` : ''}</span></li>` : nothing}
            </ul>`
          : nothing}`,
      el,
    );
  }
  return { draw };
}
