// SPDX-License-Identifier: Apache-2.0
/** The profile type and, where one is chosen, what each of them measures. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { icon } from './icons.js';
import { createMenu } from './menu.js';
import { show } from './safe.js';
import { ranked } from './selectorcomplete.js';
import { TYPE_WORDS } from './typewords.js';

/** @typedef {{id?:string, name:string, unit?:string, kind?:string}} Type  those of the server and, alone, a name that it does not know */

/** From so many on there is a field to narrow them; more than MOST are not drawn. */
const FIELD_FROM = 9,
  MOST = 40;

/**
 * @param {object} on
 * @param {() => void} on.opened
 * @param {(name: string) => void} on.pick
 */
export function createTypeMenu(on) {
  const el = document.createElement('span');
  el.className = 'menu-anchor type';
  let type = '',
    error = '', // id of what says what is wrong
    typed = '';
  /** @type {Type[]} */ let types = [];
  const menu = createMenu(el, () => {
    typed = '';
    if (menu.open) on.opened();
    draw();
  });
  const picks = () => /** @type {HTMLElement[]} */ ([...el.querySelectorAll('.pick')]);

  /** @param {KeyboardEvent} e */
  function keyed(e) {
    const list = picks(),
      at = list.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    if (e.key === 'Enter' && at < 0) {
      e.preventDefault();
      list[0]?.click();
    }
    const to = { ArrowDown: at + 1, ArrowUp: at < 0 ? -1 : at - 1 }[e.key];
    if (to === undefined || !list.length) return;
    e.preventDefault();
    list[(to + list.length) % list.length]?.focus();
  }
  /** @param {Type} t */
  function pick(t) {
    const about = [t.unit, t.kind].filter(Boolean).join(', ');
    return html`<button class="pick" type="button" aria-pressed=${t.name === type} @click=${() => { menu.close(); on.pick(t.name); }}
      ><span class="type-name"><bdi class="mono">${show(t.name)}</bdi>${about ? html`<small><bdi>${show(about)}</bdi></small>` : nothing}</span
      >${TYPE_WORDS[t.name] ? html`<span class="type-words">${TYPE_WORDS[t.name]}</span>` : nothing}</button>`;
  }
  function panel() {
    const fit = ranked(types.map((t) => t.name), typed.trim());
    const list = fit.slice(0, MOST).map((n) => /** @type {Type} */ (types.find((t) => t.name === n)));
    return html`<div class="menu-panel types" role="group" aria-label="Profile types" @keydown=${keyed}>
      ${types.length >= FIELD_FROM
        ? html`<input class="field" autofocus autocomplete="off" spellcheck="false" aria-label="Narrow the types" placeholder="narrow ${types.length.toLocaleString('en-US')} types" .value=${typed}
            @input=${(/** @type {Event} */ e) => { typed = /** @type {HTMLInputElement} */ (e.target).value; draw(); }} />`
        : nothing}
      ${list.map(pick)}
      ${list.length === 0 ? html`<p class="hint">No type is called so</p>` : fit.length > list.length ? html`<p class="hint">${(fit.length - list.length).toLocaleString('en-US')} more: write a part of the name</p>` : nothing}
    </div>`;
  }
  function draw() {
    render(
      html`<button class="button menu mono ${error ? 'bad' : ''}" type="button" aria-expanded=${menu.open} aria-describedby=${error || nothing} title=${TYPE_WORDS[type] ?? 'Profile type'} @click=${menu.toggle}
          ><span class="sr">Profile type </span><bdi class="type-now">${type ? show(type) : 'choose a type'}</bdi>${icon('down')}</button
        >${menu.open ? panel() : nothing}`,
      el,
    );
  }
  return {
    el,
    /** @param {string} now @param {Type[]} list @param {string} wrong  id of the element that says what is wrong with it */
    set(now, list, wrong) {
      [type, types, error] = [now, list, wrong];
      draw();
    },
  };
}
