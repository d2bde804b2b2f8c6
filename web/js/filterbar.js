// SPDX-License-Identifier: Apache-2.0
/** Filters as chips: each can be removed by click, Delete or Backspace; what they leave is said beside. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { MOST, PRESETS, WORDS, added, parseFilter } from './filters.js';
import { count, percent, total } from './fmt.js';
import { icon } from './icons.js';
import { createMenu } from './menu.js';
import { show } from './safe.js';

/**
 * @param {HTMLElement} el
 * @param {{f: () => string[], change: (f: string[]) => void}} on
 */
export function createFilterBar(el, on) {
  /** @type {{left:number, all:number, type:import('./fmt.js').Type, each:import('./api.js').Filtered[]}|null} */ let sums = null;
  let typed = '',
    editing = -1; // index of the chip whose text is in the field
  const menu = createMenu(el, () => {
    if (!menu.open) editing = -1;
    draw();
  });
  /** @param {number} i */
  function edit(i) {
    menu.show();
    editing = i;
    typed = on.f()[i] ?? '';
    draw();
    const field = /** @type {HTMLInputElement|null} */ (el.querySelector('#filter-text'));
    field?.focus();
    field?.select();
  }

  /** @param {number} i */
  function remove(i) {
    const near = Math.min(i, on.f().length - 2);
    on.change(on.f().filter((_, k) => k !== i));
    /* the focus stays in the row */
    const next = el.querySelectorAll('.chip-x')[near] ?? el.querySelector('.chip.add');
    /** @type {HTMLElement|null} */ (next)?.focus();
  }
  /** @param {string} text @param {number} i */
  function chip(text, i) {
    const p = parseFilter(text);
    if (!p) return nothing;
    const did = sums?.each[i];
    const took = did && sums ? `${total(did.dropped, sums.type)} taken away, ${count(did.functions)} ${did.functions === 1 ? 'function matches' : 'functions match'}` : '';
    const key = (/** @type {KeyboardEvent} */ e) => {
      if (e.key !== 'Delete' && e.key !== 'Backspace') return;
      e.preventDefault();
      e.stopPropagation();
      remove(i);
    };
    return html`<span class="chip filter" title=${took || nothing}
      ><button class="chip-edit" type="button" title="Edit" @click=${() => edit(i)}><span class="chip-name">${WORDS[p.verb]}${p.scope ? ` ${p.scope}` : ''}</span><bdi class="chip-value">${show(p.pattern)}</bdi></button
      ><button class="chip-x" type="button" aria-label="Remove the filter ${WORDS[p.verb]} ${show(p.pattern)}${took ? `, ${took}` : ''}" @click=${() => remove(i)} @keydown=${key}>${icon('close')}</button></span
    >`;
  }
  /** @param {string} f */
  const add = (f) => {
    const at = editing;
    menu.close();
    typed = '';
    on.change(at >= 0 ? on.f().map((x, i) => (i === at ? f : x)).filter((x, i, l) => l.indexOf(x) === i) : added(on.f(), f));
  };
  function panel() {
    const submit = (/** @type {Event} */ e) => {
      e.preventDefault();
      if (parseFilter(typed)) add(typed);
      else draw();
    };
    const wrong = typed !== '' && !parseFilter(typed);
    return html`<div class="menu-panel picks">
      ${PRESETS.map(([text, f]) => html`<button class="pick" type="button" ?disabled=${on.f().includes(f)} @click=${() => add(f)}>${text}</button>`)}
      <form class="filter-form" @submit=${submit}>
        <label class="sr" for="filter-text">Filter: verb, colon, pattern</label>
        <input
          class="field mono ${wrong ? 'bad' : ''}"
          id="filter-text"
          placeholder="keep:bin=/torch/"
          autocomplete="off"
          spellcheck="false"
          aria-invalid=${wrong ? 'true' : nothing}
          .value=${typed}
          @input=${(/** @type {Event} */ e) => { typed = /** @type {HTMLInputElement} */ (e.target).value.trim(); draw(); }}
        />
        <button class="button" type="submit">${editing >= 0 ? 'Change' : 'Add'}</button>
      </form>
      <p class="hint">keep, drop, start, merge or collapse, then fn=, bin=, file= or kind=</p>
    </div>`;
  }
  function draw() {
    const f = on.f();
    el.classList.toggle('some', f.length > 0);
    render(
      html`${f.map(chip)}<span class="menu-anchor"
          ><button class="chip add" type="button" ?disabled=${f.length >= MOST} aria-expanded=${menu.open} @click=${menu.toggle}>${icon('plus')}filter</button>${menu.open ? panel() : nothing}</span
        >${
          f.length
            ? html`<button class="button small ghost" type="button" @click=${() => on.change([])}>Clear</button>${
                sums ? html`<span class="shown">shown <b>${percent(sums.left, sums.all)}</b> of ${total(sums.all, sums.type)}</span>` : nothing
              }`
            : nothing
        }`,
      el,
    );
  }
  return {
    draw,
    /** What the filters left, null: not known. @param {import('./api.js').Flame|null} a */
    setAnswer(a) {
      sums = a && a.total !== null ? { left: Number(a.total), all: a.unfiltered, type: a.type, each: a.filters } : null;
      draw();
    },
  };
}
