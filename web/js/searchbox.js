// SPDX-License-Identifier: Apache-2.0
/**
 * The search field and what it found: the share of the view is summed here over what is drawn, the
 * share of the total is the server's, exact and with everything that is not drawn.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { count, percent } from './fmt.js';
import { icon } from './icons.js';
import { show } from './safe.js';
import { matchedSum, matches, matchesOf, parsePattern } from './search.js';

const TYPING_MS = 120;

/** functionKeys: keys are of functions, not of files or lines. @typedef {{functions:number, total:number|null, functionKeys:boolean, keys:Set<string>}} Matched */

/**
 * @param {HTMLElement} el @param {HTMLElement} out
 * @param {{s: () => string, change: (s: string) => void, jump: (n: number) => void, leave: () => void, announce: (text: string) => void, filter: () => void, pin: () => void}} on
 */
export function createSearchBox(el, out, on) {
  /** @type {import('./tree.js').Tree|null} */ let tree = null;
  let root = 0,
    everything = 0,
    cut = false;
  /** @type {Uint8Array|null} */ let lit = null;
  let litFor = '';
  /** @type {{s:string, m:Matched}|null} */ let matched = null;
  let error = { s: '', text: '' };
  /** @type {number[]} */ let hits = [];
  let at = -1;
  let typing = 0;

  const input = () => /** @type {HTMLInputElement|null} */ (el.querySelector('input'));

  /** What is asked of the server; '' nothing. */
  function asks() {
    const p = parsePattern(on.s());
    return p.text.trim() ? on.s() : '';
  }
  function find() {
    const s = on.s();
    lit = null;
    hits = [];
    at = -1;
    litFor = s;
    if (!tree || !asks()) return;
    const said = matched?.s === s ? matchesOf(tree.funcs, matched.m.keys) : null;
    /* of a function of several files the server alone knows which */
    const own = parsePattern(s).scope === 'file' && matched?.m.functionKeys ? said : null;
    lit = own ?? matches(tree.funcs, s) ?? said;
    if (!lit) return;
    const { total } = tree;
    hits = matchedSum(tree, lit, root).nodes.sort((a, b) => total[b] - total[a]);
  }
  /** Result in words: parts of a line. */
  function words() {
    const s = asks();
    if (!s) return [];
    if (error.s === s && error.text) return [{ bad: error.text }];
    if (!tree || !lit) return [{ text: 'searching…' }];
    const m = matched?.s === s ? matched.m : null;
    const functions = m?.functions ?? lit.reduce((a, b) => a + b, 0);
    if (!functions) return [{ text: 'no function matches' }];
    const sum = matchedSum(tree, lit, root).sum,
      view = tree.total[root];
    const zoomed = root > 0 || tree.rootHash !== 0n;
    /* the trimmed tree hides frames: the view's share is a lower bound, and says so */
    const least = cut && sum < view * 0.9995 ? '≥\u202f' : '';
    const parts = [];
    if (zoomed || !m) parts.push({ strong: `${least}${percent(sum, view)}`, text: ' of view' });
    if (m) parts.push({ strong: m.total === null ? 'unknown' : percent(m.total, everything), text: ' of total' });
    parts.push({ text: `${count(functions)} ${functions === 1 ? 'function' : 'functions'}` });
    return parts;
  }
  function draw() {
    const s = on.s();
    if (litFor !== s) find();
    const active = Boolean(asks());
    const bad = error.s === s && error.text;
    el.classList.toggle('active', active);
    render(
      html`${icon('search')}<input
          id="search-input"
          type="search"
          autocomplete="off"
          spellcheck="false"
          placeholder="Search functions"
          aria-label="Search functions; bin= or file= for binaries and files, /…/ for a regular expression"
          aria-describedby="search-result"
          aria-invalid=${bad ? 'true' : nothing}
          @input=${() => {
            clearTimeout(typing);
            typing = setTimeout(() => on.change(input()?.value ?? ''), TYPING_MS);
          }}
          @keydown=${key}
        /><kbd aria-hidden="true">/</kbd
        ><span class="search-nav"
          ><span>${hits.length ? `${at < 0 ? '–' : count(at + 1)} / ${count(hits.length)}` : ''}</span
          ><button class="icon-button" type="button" aria-label="Previous match" ?disabled=${!hits.length} @click=${() => step(-1)}>${icon('left')}</button
          ><button class="icon-button" type="button" aria-label="Next match" ?disabled=${!hits.length} @click=${() => step(1)}>${icon('right')}</button
          ><button class="icon-button" type="button" aria-label="Clear search" @click=${clear}>${icon('close')}</button></span
        >`,
      el,
    );
    const field = input();
    if (field && field.value !== s && document.activeElement !== field) field.value = s;
    render(
      html`<span id="search-result" class="search-result ${bad ? 'bad' : ''}" role=${bad ? 'alert' : nothing}
        >${words().map(
          (p, i) =>
            html`${i ? html`<span class="sep"> · </span>` : nothing}${'bad' in p && p.bad ? html`${icon('warn')}<bdi>${show(p.bad)}</bdi>` : nothing}${
              'strong' in p && p.strong ? html`<b>${p.strong}</b>` : nothing
            }${'text' in p ? p.text : ''}`,
        )}</span
      >${active && lit && !bad ? html`<button class="button small" type="button" title="Keep only the stacks that match" @click=${on.filter}>Filter to matches</button><button class="button small" type="button" title="Keep its share above the table, beside others" @click=${on.pin}>${icon('plus')}Pin</button>` : nothing}`,
      out,
    );
  }
  function say() {
    const w = words();
    if (w.length) on.announce(w.map((p) => ('bad' in p ? p.bad : `${'strong' in p ? (p.strong ?? '') : ''}${p.text}`)).join(', '));
  }
  /** @param {KeyboardEvent} e */
  function key(e) {
    if (e.key === 'Enter') {
      e.preventDefault();
      clearTimeout(typing);
      on.change(input()?.value ?? '');
      step(e.shiftKey ? -1 : 1);
    } else if (e.key === 'Escape') {
      e.preventDefault();
      e.stopPropagation();
      clear();
      on.leave();
    }
  }
  function clear() {
    clearTimeout(typing);
    const field = input();
    if (field) field.value = '';
    on.change('');
    field?.focus();
  }
  /** @param {number} d */
  function step(d) {
    if (!hits.length) return;
    at = at < 0 && d < 0 ? hits.length - 1 : (at + d + hits.length) % hits.length;
    on.jump(hits[at] ?? -1);
    draw();
  }

  return {
    draw,
    asks,
    step,
    /** Functions that match, null: no search. */
    lit: () => lit,
    focus() {
      const field = input();
      field?.focus();
      field?.select();
    },
    /** @param {import('./tree.js').Tree} t */
    setTree(t) {
      tree = t;
      root = 0;
    },
    /** @param {import('./tree.js').Tree} t @param {number} r node at row 0 @param {number} all @param {boolean} trimmed */
    setView(t, r, all, trimmed) {
      tree = t;
      root = r;
      everything = all;
      cut = trimmed;
      find();
      draw();
    },
    /** The server's answer. @param {string} s @param {Matched} m */
    setMatched(s, m) {
      if (s !== on.s()) return;
      matched = { s, m };
      error = { s: '', text: '' };
      const had = at;
      find();
      at = hits.length ? had : -1;
      draw();
      say();
    },
    /** @param {string} s @param {string} text */
    setError(s, text) {
      error = { s, text };
      draw();
    },
  };
}
