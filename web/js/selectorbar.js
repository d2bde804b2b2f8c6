// SPDX-License-Identifier: Apache-2.0
/**
 * Type and selector: chips to click, a text field to write. What is wrong with the text stands under
 * it, whether this page or the server found it.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { icon } from './icons.js';
import { createMenu } from './menu.js';
import { meant, show } from './safe.js';
import { accept as taken, placeAt, ranked } from './selectorcomplete.js';
import { createTypeMenu } from './typemenu.js';
import { TYPE_WORDS } from './typewords.js';
import { OPS, SelectorError, parseSelector, trySelector, writeSelector } from './selector.js';

const MOST_CHOICES = 40,
  MOST_OFFERED = 200; // labels, of those that hold what is typed

/**
 * @param {HTMLElement} el
 * @param {object} on
 * @param {() => string} on.q
 * @param {(q: string) => void} on.change
 * @param {() => string} on.step  the steps that are selected, '' all time
 * @param {() => void} on.dropStep
 * @param {(name: string, prefix: string) => Promise<string[]>} on.values  values of a label that exist
 */
export function createSelectorBar(el, on) {
  /** @typedef {{id:string, name:string, unit?:string, kind?:string}} Known */
  /** @type {Map<string, Known>} */ let byName = new Map(); // as they are written: where two share a name, their ids
  /** @type {{name:string, values:number|null, attribute:boolean}[]} */ let labels = [];
  let error = '', // the server's
    writing = false,
    typed = '',
    local = ''; // this page's, about `typed`
  let name = '',
    op = '=',
    value = '';
  /** @type {string[]} */ let known = [];
  /** completion: what can stand at the caret */
  /** @type {{text:string, more:string}[]} */ let choices = [];
  /** @type {import('./selectorcomplete.js').Place|null} */ let place = null;
  let chosen = -1,
    looking = 0,
    wrongAt = 0; // where the text stops making sense
  const adder = createMenu(el, draw, '.chip.add');
  const typeMenu = createTypeMenu({
    opened: () => adder.close(false),
    pick(type) {
      const sel = trySelector(on.q());
      if (sel) on.change(writeSelector({ ...sel, type }));
    },
  });

  const typeNames = () => [...byName.keys()];

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
    typeMenu.set(sel.type, names.map((name) => ({ ...byName.get(name), name })), wrong ? 'selector-error' : '');
    return html`${typeMenu.el}${sel.matchers.map(
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
      )}${
        on.step()
          ? html`<span class="chip matcher step"
              ><span class="chip-name">step</span><bdi class="chip-value">${show(on.step())}</bdi
              ><button class="chip-x" type="button" aria-label="All time, not only step ${show(on.step())}" @click=${on.dropStep}>${icon('close')}</button></span
            >`
          : nothing
      }<span class="menu-anchor"
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
      const field = /** @type {HTMLInputElement|null} */ (el.querySelector('[list=label-values]'));
      if (!value && document.activeElement === el.querySelector('[list=label-names]')) return field?.focus();
      const m = { name: labelMeant(), op, value: meant(value, known) };
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
          @input=${(/** @type {Event} */ e) => { name = /** @type {HTMLInputElement} */ (e.target).value; if (labels.length > MOST_OFFERED) draw(); }}
          @change=${ask}
      /></label>
      <datalist id="label-names">${(labels.length > MOST_OFFERED ? labels.filter((l) => show(l.name).includes(name)).slice(0, MOST_OFFERED) : labels).map((l) => html`<option value=${show(l.name)}>${about(l)}</option>`)}</datalist>
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
      <datalist id="label-values">${known.map((v) => html`<option value=${show(v)}></option>`)}</datalist>
      <button class="button primary" type="submit">Add</button>
    </form>`;
  }
  const labelMeant = () => meant(name, labels.map((l) => l.name));
  let asked = '';
  async function ask() {
    if (!name || name === asked) return;
    asked = name;
    known = await on.values(labelMeant(), '').catch(() => []);
    if (asked === name) {
      asked = '';
      draw();
    }
  }

  /** @param {{values:number|null, attribute:boolean}} l */
  const about = (l) => `${l.attribute ? 'attribute of samples' : 'label'}${l.values === null ? '' : `, ${l.values} ${l.values === 1 ? 'value' : 'values'}`}`;
  const stop = () => {
    writing = false;
    local = '';
    hush();
    draw();
  };
  function hush() {
    looking++;
    choices = [];
    chosen = -1;
  }
  /** What can stand at the caret: types and labels are known, values are asked for. */
  async function look() {
    const input = /** @type {HTMLInputElement|null} */ (el.querySelector('#selector-input'));
    const mine = ++looking;
    chosen = -1;
    place = placeAt(typed, input?.selectionStart ?? typed.length);
    const p = place;
    if (p.want === 'type') choices = ranked(typeNames(), p.typed).map((text) => ({ text, more: TYPE_WORDS[text] ?? byName.get(text)?.id ?? '' }));
    else if (p.want === 'label') choices = ranked(labels.map((l) => l.name), p.typed).map((text) => ({ text, more: about(labels.find((l) => l.name === text) ?? { values: null, attribute: false }) }));
    else if (p.want === 'op') choices = OPS.filter((o) => o.startsWith(p.typed)).map((text) => ({ text, more: { '=': 'is', '!=': 'is not', '=~': 'matches', '!~': 'does not match' }[text] }));
    else if (p.want === 'value' && p.op.length < 2) {
      choices = [];
      const list = await on.values(p.label, p.typed).catch(() => []);
      if (mine !== looking) return;
      choices = list.map((text) => ({ text, more: '' }));
    } else choices = [];
    choices = choices.slice(0, MOST_CHOICES);
    draw();
  }
  /** @param {number} i */
  function choose(i) {
    const c = choices[i],
      input = /** @type {HTMLInputElement|null} */ (el.querySelector('#selector-input'));
    if (!c || !place || !input) return;
    const r = taken(typed, place, c.text);
    typed = r.text;
    writing = true;
    if (local) local = explain(typed);
    hush();
    draw();
    input.focus();
    input.setSelectionRange(r.caret, r.caret);
    if (place.want !== 'value') look();
  }
  /** @param {KeyboardEvent} e */
  function keyed(e) {
    const d = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (d && choices.length) {
      e.preventDefault();
      chosen = (chosen + d + (chosen < 0 && d < 0 ? 1 : 0) + choices.length) % choices.length;
      draw();
      el.querySelector('[role=option][aria-selected=true]')?.scrollIntoView({ block: 'nearest' });
    } else if (e.key === 'ArrowDown' || (e.key === ' ' && e.ctrlKey)) {
      e.preventDefault();
      look();
    } else if ((e.key === 'Enter' || e.key === 'Tab') && chosen >= 0) {
      e.preventDefault();
      choose(chosen);
    } else if (e.key === 'Escape') {
      e.stopPropagation();
      if (choices.length) {
        hush();
        draw();
      } else stop();
    }
  }
  /** @param {string} q @param {string} wrong */
  function field(q, wrong) {
    const open = choices.length > 0;
    return html`<form class="selector-text" @submit=${(/** @type {Event} */ e) => { e.preventDefault(); accept(); }}>
      <label class="sr" for="selector-input">Selector</label>
      <span class="menu-anchor complete"><input
        id="selector-input"
        class="field mono ${wrong ? 'bad' : ''}"
        role="combobox"
        aria-autocomplete="list"
        aria-expanded=${open}
        aria-controls="selector-choices"
        aria-activedescendant=${chosen >= 0 ? `selector-choice-${chosen}` : nothing}
        autocomplete="off"
        spellcheck="false"
        .value=${writing ? typed : q}
        aria-invalid=${wrong ? 'true' : 'false'}
        aria-describedby=${wrong ? 'selector-error' : nothing}
        @input=${(/** @type {Event} */ e) => {
          writing = true;
          typed = /** @type {HTMLInputElement} */ (e.target).value;
          if (local) local = explain(typed);
          look();
        }}
        @keydown=${keyed}
        @blur=${() => { hush(); setTimeout(draw); /* not inside the drawing that may have caused it */ }}
      /><ul class="menu-panel choices" id="selector-choices" role="listbox" aria-label="What can stand here" ?hidden=${!open}>
        ${choices.map((c, i) => html`<li role="option" id="selector-choice-${i}" aria-selected=${i === chosen} class="pick" @pointerdown=${(/** @type {Event} */ e) => { e.preventDefault(); choose(i); }}><bdi class="mono">${show(c.text)}</bdi>${c.more && c.more !== c.text ? html`<small><bdi>${show(c.more)}</bdi></small>` : nothing}</li>`)}
      </ul></span><button class="button primary" type="submit">Apply</button>
      <button class="button" type="button" @click=${stop}>Cancel</button>
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
    /* before a closing brace: where another condition goes */
    const at = typed.endsWith('}') ? typed.length - 1 : typed.length;
    input?.setSelectionRange(at, at);
  }
  /** What is wrong with a text, '' nothing. @param {string} q */
  function explain(q) {
    try {
      parseSelector(q);
      return '';
    } catch (e) {
      if (!(e instanceof SelectorError)) throw e;
      wrongAt = e.at;
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
    if (local) {
      const input = /** @type {HTMLInputElement|null} */ (el.querySelector('#selector-input'));
      writing = true;
      input?.focus();
      input?.setSelectionRange(wrongAt, wrongAt);
      return;
    }
    writing = false;
    hush();
    draw();
    on.change(typed.trim());
  }

  return {
    draw,
    /** @param {Known[]} t @param {{name:string, values:number|null, attribute:boolean}[]} l */
    setLists(t, l) {
      const n = new Map();
      for (const { name } of t) n.set(name, (n.get(name) ?? 0) + 1);
      byName = new Map(t.map((x) => [n.get(x.name) > 1 ? x.id : x.name, x]));
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
