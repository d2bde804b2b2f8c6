// SPDX-License-Identifier: Apache-2.0
/**
 * Type and selector: chips to click, a text field to write. What is wrong with the text stands under
 * it, whether this page or the server found it.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { icon } from './icons.js';
import { createMenu } from './menu.js';
import { show } from './safe.js';
import { OPS, SelectorError, parseSelector, trySelector, writeSelector } from './selector.js';

/**
 * @param {HTMLElement} el
 * @param {object} on
 * @param {() => string} on.q
 * @param {(q: string) => void} on.change
 * @param {(name: string) => Promise<string[]>} on.values  values of a label that exist
 */
export function createSelectorBar(el, on) {
  /** @type {{id:string, name:string}[]} */ let types = [];
  /** @type {{name:string, values:number|null}[]} */ let labels = [];
  let error = '', // the server's
    writing = false,
    typed = '',
    local = ''; // this page's, about `typed`
  let name = '',
    op = '=',
    value = '';
  /** @type {string[]} */ let known = [];
  const adder = createMenu(el, draw);

  /** Names of types; where two share one, their ids. */
  function typeNames() {
    const n = types.map((t) => (types.filter((x) => x.name === t.name).length > 1 ? t.id : t.name));
    return [...new Set(n)];
  }

  function draw() {
    const q = on.q(),
      sel = trySelector(q);
    const text = writing || !sel;
    const wrong = text ? (writing ? local : explain(q)) || error : error;
    render(html`${text ? field(q, wrong) : chips(/** @type {NonNullable<typeof sel>} */ (sel), wrong)}
      ${wrong ? html`<p class="field-error" id="selector-error" role="alert">${icon('warn')}<bdi>${show(wrong)}</bdi></p>` : nothing}`, el);
  }

  /** @param {import('./selector.js').Selector} sel @param {string} wrong */
  function chips(sel, wrong) {
    const change = (/** @type {typeof sel} */ s) => on.change(writeSelector(s));
    const names = typeNames();
    if (sel.type && !names.includes(sel.type)) names.unshift(sel.type);
    return html`<label class="type"
        ><span class="sr">Profile type</span>
        <select
          class="select"
          aria-invalid=${wrong ? 'true' : nothing}
          aria-describedby=${wrong ? 'selector-error' : nothing}
          @change=${(/** @type {Event} */ e) => change({ ...sel, type: /** @type {HTMLSelectElement} */ (e.target).value })}
        >
          ${sel.type ? nothing : html`<option value="" selected>choose a type</option>`}
          ${names.map((t) => html`<option value=${t} .selected=${t === sel.type}>${show(t)}</option>`)}
        </select></label
      >${sel.matchers.map(
        (m, i) =>
          html`<span class="chip matcher"
            ><span class="chip-name"><bdi>${show(m.name)}</bdi></span><span class="chip-op">${m.op}</span
            ><bdi class="chip-value" title=${show(m.value)}>${show(m.value)}</bdi
            ><button
              class="chip-x"
              type="button"
              aria-label="Remove ${show(m.name)} ${m.op} ${show(m.value)}"
              @click=${() => change({ ...sel, matchers: sel.matchers.filter((_, k) => k !== i) })}
            >${icon('close')}</button></span
          >`,
      )}<span class="menu-anchor"
        ><button class="chip add" type="button" aria-expanded=${adder.open} @click=${adder.toggle}>${icon('plus')}label</button>${
          adder.open ? addPanel(sel) : nothing
        }</span
      ><button class="button square ghost" type="button" aria-label="Edit the selector as text" title="Edit as text" @click=${edit}>${icon('edit')}</button>`;
  }

  /** @param {import('./selector.js').Selector} sel */
  function addPanel(sel) {
    const add = (/** @type {Event} */ e) => {
      e.preventDefault();
      if (!name) return;
      const m = { name, op, value };
      name = value = '';
      known = [];
      adder.close();
      on.change(writeSelector({ ...sel, matchers: [...sel.matchers, m] }));
    };
    return html`<form class="menu-panel add-label" aria-label="Add a label" @submit=${add}>
      <label>Label<input
          class="field"
          list="label-names"
          autofocus
          autocomplete="off"
          spellcheck="false"
          .value=${name}
          @input=${(/** @type {Event} */ e) => (name = /** @type {HTMLInputElement} */ (e.target).value)}
          @change=${ask}
      /></label>
      <datalist id="label-names">${labels.map((l) => html`<option value=${l.name}></option>`)}</datalist>
      <label>is<select class="select" @change=${(/** @type {Event} */ e) => (op = /** @type {HTMLSelectElement} */ (e.target).value)}>
          ${OPS.map((o) => html`<option .selected=${o === op}>${o}</option>`)}
        </select></label>
      <label>Value<input
          class="field"
          list="label-values"
          autocomplete="off"
          spellcheck="false"
          .value=${value}
          @focus=${ask}
          @input=${(/** @type {Event} */ e) => (value = /** @type {HTMLInputElement} */ (e.target).value)}
      /></label>
      <datalist id="label-values">${known.map((v) => html`<option value=${v}></option>`)}</datalist>
      <button class="button primary" type="submit">Add</button>
    </form>`;
  }
  let asked = '';
  async function ask() {
    if (!name || name === asked) return;
    asked = name;
    known = await on.values(name).catch(() => []);
    if (asked === name) {
      asked = '';
      draw();
    }
  }

  /** @param {string} q @param {string} wrong */
  function field(q, wrong) {
    return html`<form class="selector-text" @submit=${(/** @type {Event} */ e) => { e.preventDefault(); accept(); }}>
      <label class="sr" for="selector-input">Selector</label>
      <input
        id="selector-input"
        class="field mono ${wrong ? 'bad' : ''}"
        autocomplete="off"
        spellcheck="false"
        .value=${writing ? typed : q}
        aria-invalid=${wrong ? 'true' : 'false'}
        aria-describedby=${wrong ? 'selector-error' : nothing}
        @input=${(/** @type {Event} */ e) => {
          writing = true;
          typed = /** @type {HTMLInputElement} */ (e.target).value;
          if (local) check();
        }}
        @keydown=${(/** @type {KeyboardEvent} */ e) => {
          if (e.key !== 'Escape') return;
          e.stopPropagation();
          writing = false;
          local = '';
          draw();
        }}
      /><button class="button primary" type="submit">Apply</button>
      <button class="button" type="button" @click=${() => { writing = false; local = ''; draw(); }}>Cancel</button>
    </form>`;
  }
  function edit() {
    writing = true;
    typed = on.q();
    local = '';
    adder.close(false);
    draw();
    const input = /** @type {HTMLInputElement|null} */ (el.querySelector('#selector-input'));
    input?.focus();
    input?.setSelectionRange(typed.length, typed.length);
  }
  /** What is wrong with a text, '' nothing. @param {string} q */
  function explain(q) {
    try {
      parseSelector(q);
      return '';
    } catch (e) {
      if (!(e instanceof SelectorError)) throw e;
      const near = q.slice(e.at, e.at + 12);
      return `At character ${e.at + 1}${near ? ` (“${near}”)` : ''}: ${e.message}`;
    }
  }
  function check() {
    local = explain(typed);
    draw();
  }
  function accept() {
    if (!writing) typed = on.q();
    check();
    if (local) return;
    writing = false;
    draw();
    on.change(typed.trim());
  }

  return {
    draw,
    /** @param {{id:string, name:string}[]} t @param {{name:string, values:number|null}[]} l */
    setLists(t, l) {
      types = t;
      labels = l;
      draw();
    },
    /** What the server says about the selector; '' takes it away. @param {string} message */
    setError(message) {
      if (message === error) return;
      error = message;
      draw();
    },
  };
}
