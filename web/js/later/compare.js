// SPDX-License-Identifier: Apache-2.0
/** Compare: the range A before, the range B after; a flame graph and a table of what changed. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { createA11yTree } from '../a11ytree.js';
import * as api from '../api.js';
import { bare, change, divisor, headUnit, look, looks, side, signed, treeOf, value, whyUnsure } from './diff.js';
import { count, exact, percent, total } from '../fmt.js';
import { createGraph } from '../graph.js';
import { icon } from '../icons.js';
import { DIFF, shorten } from '../paint.js';
import { show } from '../safe.js';
import { SelectorError, parseSelector, takesPart, trySelector, writeSelector } from '../selector.js';
import { shares } from '../shares.js';
import { rangeText } from '../time.js';
import { findHash, hashOf } from '../tree.js';

const MAX_NODES = 10_000;
const ROWS = 100;
const LOOKS = ['more1', 'more2', 'more3', 'less1', 'less2', 'less3', 'same', 'new', 'gone', 'unsure'];
const NORMS = /** @type {const} */ ([['', 'as usual'], ['step', 'per step'], ['second', 'per covered second'], ['share', 'share'], ['none', 'not divided']]);
const ORDERS = /** @type {const} */ ([['b', 'B'], ['a', 'A'], ['delta', 'Δ']]);
const BEFORE = /** @type {const} */ ([['', 'right before B'], ['3600', '1 h before B'], ['86400', '24 h before B'], ['604800', '7 d before B']]);

/**
 * @typedef {{a: [string, string], b: [string, string], norm: string, order: string, more: string, drawn: boolean, q: string, aq: string, z: string, steps: string[]}} View
 *   drawn: A's range stands in the URL; aq: A's selector, '' the same; steps: names that are known
 */

/**
 * @param {HTMLElement} el
 * @param {object} on
 * @param {() => api.Params} on.question   type, labels and filters; without a range
 * @param {() => View} on.view
 * @param {(patch: Partial<import('../url.js').State>) => void} on.set
 * @param {(seconds: number) => void} on.before  A is as long as B and begins so long before it; 0: right before
 * @param {() => boolean} on.halves  A and B are the halves of what B has data of; false: too little
 * @param {() => void} on.swap
 * @param {() => boolean} on.short
 * @param {() => boolean} on.utc
 * @param {(name: string) => void} on.copy
 * @param {(text: string) => void} on.announce
 */
export function createCompare(el, on) {
  const slots = { tree: api.slot(), top: api.slot() };
  /** @type {api.Diff|null} */ let d = null;
  /** @type {api.Diff|null} */ let rows = null;
  let trouble = '',
    typed = /** @type {string|null} */ (null), // A's selector, being written
    wrong = '';
  const make = (/** @type {string} */ name) => {
    const e = document.createElement('div');
    e.className = name;
    return e;
  };
  const head = make('panel-head compare-head'),
    wrap = make('graph-wrap'),
    list = make('compare-list'),
    body = make('compare-body'),
    foot = make('panel-head compare-foot');
  const graph = createGraph({ zoom: (n) => zoom(n), hover: () => {}, tip: (n, frames) => (d ? (frames ? `${count(frames)} frames too small to draw` : html`<b class="tip-name"><bdi>${name(d, n)}</bdi></b><p>${words(d, n)}</p>`) : null) });
  const a11y = createA11yTree('diff');
  wrap.append(a11y.el, graph.el);
  wrap.addEventListener('keydown', key);
  list.tabIndex = 0;
  list.setAttribute('role', 'region');
  list.setAttribute('aria-label', 'Functions that changed, scrollable');
  body.append(wrap, list);
  el.replaceChildren(head, body, foot);

  const text = (/** @type {string} */ s) => show(on.short() ? shorten(s) : s);
  /** @param {api.Diff} x @param {number} n */
  const name = (x, n) => text(x.funcs.name[x.node.func[n] ?? 0] ?? '');
  /** What is said about a node. @param {api.Diff} x @param {number} n */
  function words(x, n) {
    const { totalA, totalB, dTotal, se, sig, state } = x.node;
    const a = totalA[n] ?? 0,
      b = totalB[n] ?? 0;
    const delta = dTotal?.[n] ?? NaN,
      e = se?.[n] ?? null;
    return `A ${side(x, 'a', a)} → B ${side(x, 'b', b)}${x.comparable ? `, Δ ${signed(x, delta)}${e === null ? '' : ` ±${value(x, 2 * e)}`}` : ''}, ${change(x, a, b, delta, e, sig?.[n] ?? 0, state[n] ?? 0) || 'no change'}`;
  }
  /** @param {number} n */
  function select(n) {
    const t = graph.tree,
      x = d;
    if (!t || !x || n < 0 || t.func[n] < 0) return;
    graph.select(n);
    a11y.update(t, graph.root, n, (k) => `${name(x, k)}, ${words(x, k)}`);
    render(html`<b class="mono"><bdi>${name(x, n)}</bdi></b><span>${words(x, n)}</span>`, foot);
  }
  /** The link says where one is zoomed, as in the other views; what it says is shown. @param {number} n */
  function zoom(n) {
    const t = graph.tree;
    if (!t || n < 0 || t.func[n] < 0) return;
    on.set({ z: hashOf(t, n), sel: '' });
    a11y.el.focus({ preventScroll: true });
  }
  /** One level out of what is drawn: the caller, or the whole where another answer holds it. */
  function zoomOut() {
    const t = graph.tree;
    if (t && graph.root > 0) zoom(t.parent[graph.root]);
    else if (t?.rootHash) on.set({ z: '', sel: '' });
  }
  /** Is the zoom of the link in this tree? @param {string} z */
  function zoomed(z, animate = true) {
    const t = graph.tree,
      n = t ? findHash(t, z) : -1;
    if (n < 0) return false;
    graph.zoomTo(n, animate);
    select(n);
    return true;
  }
  /** @param {KeyboardEvent} e */
  function key(e) {
    const t = graph.tree;
    if (!t || e.ctrlKey || e.metaKey || e.altKey) return;
    const way = /** @type {const} */ ({ ArrowUp: 'up', ArrowDown: 'down', ArrowLeft: 'left', ArrowRight: 'right' })[e.key];
    if (way) select(graph.neighbour(way));
    else if (e.key === 'Enter') zoom(graph.selected);
    else if (e.key === 'Home') on.set({ z: '', sel: '' });
    else if (e.key === 'Backspace' || (e.key === 'Escape' && (graph.root > 0 || t.rootHash))) zoomOut();
    else if (e.key === 'c') on.copy(d?.funcs.name[d.node.func[graph.selected] ?? 0] ?? '');
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  /** One side in words. @param {api.Diff} x @param {'a'|'b'} s @param {[string, string]} range */
  function sideLine(x, s, range) {
    const v = x[s],
      q = shares(v.quality, v.unfiltered);
    const pc = (/** @type {number|null} */ p) => (p === null ? 'unknown' : percent(p, 100));
    return html`<div class="side side-${s}">
      <span class="band band-${s}">${s.toUpperCase()}</span><span>${rangeText(...range, Date.now(), on.utc())}</span
      ><span title=${v.total === null ? nothing : exact(v.total, x.type)}><b>${v.total === null ? 'no data' : total(Number(v.total), x.type)}</b>${v.samples === null ? nothing : html` n=${count(v.samples)}`}</span
      ><span>${x.norm === 'none' || v.total === null ? nothing : html`<b>${side(x, s, Number(v.total))}</b>`}</span
      >${x.norm === 'step' ? html`<span>${v.steps === null ? 'steps unknown' : `${count(v.steps)} whole steps`}</span>` : nothing}<span>covered ${pc(q.covered)}</span><span>${q.lost && takesPart((s === 'a' && on.view().aq) || on.view().q) ? 'lost up to' : 'lost'} <b>${pc(q.lost)}</b></span>
    </div>`;
  }
  /** A's selector. @param {string} q */
  function setA(q) {
    wrong = '';
    try {
      parseSelector(q);
    } catch (e) {
      if (!(e instanceof SelectorError)) throw e;
      wrong = `At character ${e.at + 1}: ${e.message}`;
      return drawHead();
    }
    typed = null;
    on.set({ a_q: q.trim() === on.view().q ? '' : q.trim() });
  }
  /** @param {View} v */
  function selectors(v) {
    const s = trySelector(v.q);
    /* this against the rest: the same selection without one value */
    const rest = s?.matchers.filter((m) => m.op === '=').map((m) => ({ text: `${show(m.name)} ≠ ${show(m.value)}`, q: writeSelector({ ...s, matchers: s.matchers.map((o) => (o === m ? { ...m, op: '!=' } : o)) }) })) ?? [];
    return html`<form class="side compare-q" @submit=${(/** @type {Event} */ e) => { e.preventDefault(); setA(typed ?? (v.aq || v.q)); }}>
        <label class="option" for="compare-a">selector of A</label>
        <input class="field mono ${wrong ? 'bad' : ''}" id="compare-a" autocomplete="off" spellcheck="false" .value=${typed ?? (v.aq || v.q)} aria-invalid=${wrong ? 'true' : 'false'} aria-describedby=${wrong ? 'compare-a-error' : nothing} @input=${(/** @type {Event} */ e) => { typed = /** @type {HTMLInputElement} */ (e.target).value; drawHead(); }} />
        ${typed !== null && typed !== (v.aq || v.q) ? html`<button class="button small primary" type="submit">Apply</button>` : nothing}
        ${v.aq ? html`<button class="button small" type="button" @click=${() => { typed = null; on.set({ a_q: '' }); }}>Same as B</button>` : rest.map((r) => html`<button class="button small" type="button" title="A: all the others, in the same range" @click=${() => { typed = null; on.set({ a_q: r.q, a_from: '', a_to: '' }); }}><bdi>${r.text}</bdi></button>`)}
        ${wrong ? html`<span class="field-error" id="compare-a-error" role="alert">${icon('warn')}<bdi>${show(wrong)}</bdi></span>` : nothing}
      </form>`;
  }
  /** Another selector is compared in the same range, unless told otherwise. @param {View} v @returns {readonly (readonly [string, string])[]} */
  const before = (v) => (v.aq ? [['', 'the range of B'], ...BEFORE.slice(1)] : BEFORE);
  function drawHead() {
    const v = on.view(),
      x = d;
    const pick = (/** @type {string} */ what, /** @type {readonly (readonly [string, string])[]} */ options, /** @type {string} */ now, /** @type {(v: string) => void} */ change) =>
      html`<label class="option">${what}<select class="select" aria-label=${what} @change=${(/** @type {Event} */ e) => change(/** @type {HTMLSelectElement} */ (e.target).value)}>
          ${options.map(([k, t]) => html`<option value=${k} .selected=${k === now}>${t}</option>`)}
        </select></label>`;
    render(
      html`<div class="compare-acts">
          ${pick('A is', v.drawn ? [['drawn', 'as drawn'], ...before(v)] : before(v), v.drawn ? 'drawn' : '', (k) => { if (k !== 'drawn') on.before(Number(k)); })}
          <button class="button small" type="button" title="Swap A and B (w)" @click=${on.swap}>A ⇄ B</button>
          ${pick('divide', v.steps.length || v.norm === 'step' ? NORMS : NORMS.filter(([k]) => k !== 'step'), v.norm, (norm) => on.set({ norm }))}
          <span class="tabs" role="group" aria-label="Width of a frame">${ORDERS.map(([k, t]) => html`<button class="tab" type="button" aria-pressed=${v.order === k} title="Widths are those of ${t}" @click=${() => on.set({ order: k })}>${t}</button>`)}</span>
          ${v.steps.length ? html`<button class="button small" type="button" aria-expanded=${v.more === 'steptime'} aria-controls="more" title="Step time of A and B, what it consists of, which rank (e)" @click=${() => on.set({ more: v.more === 'steptime' ? '' : 'steptime' })}>Step time</button>` : nothing}
          <span class="panel-hint">Shift and drag on the time chart: A. Drag: B.</span>
        </div>
        ${selectors(v)}
        ${x
          ? html`${sideLine(x, 'a', v.a)}${sideLine(x, 'b', v.b)}
              <div class="side"><b>Δ ${x.comparable && x.delta.value !== null ? signed(x, x.delta.value) : 'no data'}</b>${
                x.comparable && x.delta.se !== null ? html`<span>±${value(x, 2 * x.delta.se)}</span>` : whyUnsure(x) ? html`<span>± unknown: ${whyUnsure(x)}</span>` : nothing
              }<span>${NORMS.find(([k]) => k === x.norm)?.[1] ?? `per ${x.norm}`}</span>${x.comparable ? nothing : html`<span class="fact warn">${icon('warn')}<b>cannot be compared: ${show(x.whyNot.replace(/^[ab]_/, (s) => s.toUpperCase()).replaceAll('_', ' '))}</b></span>${x.whyNot.startsWith('a_') && !v.aq ? html`<button class="button small" type="button" title="A: the first half of what B has data of; B: the second" @click=${() => { if (!on.halves()) on.announce('There is too little to compare'); }}>Compare its two halves</button>` : nothing}`}${x.warnings.map(
                (w) => html`<span class="fact warn" title=${show(w)}>${icon('warn')}<b>${show(w.replace(/^\w+: /, ''))}</b></span>`,
              )}</div>
              <div class="legend diff-legend">${[['more2', 'more in B'], ['less2', 'less in B'], ['same', 'n.s. or under 2 %'], ...(whyUnsure(x) ? [['unsure', '± unknown']] : []), ['new', 'new'], ['gone', 'removed']].map(
                ([c, t]) => html`<span class="legend-item"><i class="swatch d-${c}" aria-hidden="true"></i>${t}</span>`,
              )}</div>`
          : nothing}
        ${trouble ? html`<p class="field-error" role="alert">${icon('warn')}<bdi>${show(trouble)}</bdi></p>` : nothing}`,
      head,
    );
  }
  function drawRows() {
    const x = rows;
    if (!x) return render(nothing, list);
    const { func, selfA, selfB, dSelf, se, sig, state } = x.node;
    return render(
      html`<table class="functions" aria-label="Functions, by change of self">
        <thead><tr>${['Function', 'A', 'B', 'Δ', '±', 'Change'].map((t, i) => html`<th scope="col" class=${i ? 'num' : 'col-name'}><span class="sort">${t}${i === 1 && headUnit(x) ? html` <small>${headUnit(x)}</small>` : nothing}</span></th>`)}</tr></thead>
        <tbody>
          ${Array.from(func, (f, i) => {
            const a = selfA[i] ?? 0,
              b = selfB[i] ?? 0;
            const delta = dSelf?.[i] ?? NaN,
              e = se?.[i] ?? null,
              s = sig?.[i] ?? 0;
            const st = a === 0 && b > 0 ? (state[i] ?? 0) : a > 0 && b === 0 ? (state[i] ?? 0) : 0;
            const where = x.funcs.file[f] || x.funcs.bin[f] || '';
            return html`<tr data-row=${i}>
              <td class="fn"><i class="swatch d-${LOOKS[look(x, a, b, delta, e, s, st)] ?? 'same'}" aria-hidden="true"></i><bdi title=${show(x.funcs.name[f] ?? '')}>${text(x.funcs.name[f] ?? '')}</bdi><small><bdi>${where ? show(where) : ''}</bdi></small></td>
              <td class="num">${bare(x, a / divisor(x, 'a'))}</td><td class="num">${bare(x, b / divisor(x, 'b'))}</td>
              <td class="num">${x.comparable ? `${delta > 0 ? '+' : ''}${bare(x, delta)}` : 'no data'}</td><td class="num">${e === null ? 'unknown' : bare(x, 2 * e)}</td>
              <td class="num">${change(x, a, b, delta, e, s, st)}</td>
            </tr>`;
          })}
        </tbody>
      </table>`,
      list,
    );
  }
  function drawTree() {
    if (!d) return;
    const order = /** @type {import('./diff.js').Order} */ (on.view().order);
    graph.setTree(treeOf(d, order), on.short());
    graph.setFills(looks(d).map((l) => DIFF + l));
    if (!zoomed(on.view().z, false)) select(0);
  }

  return {
    /** The link says another zoom: in the tree at hand, or from there on asked for. */
    async zoom() {
      const v = on.view();
      if (d && !zoomed(v.z)) await this.show(v.z);
    },
    /** @param {string} [root] of the tree, where the zoom of the link is too small to be in the whole */
    async show(root = '') {
      const v = on.view();
      const ask = { ...on.question(), a_from: v.a[0], a_to: v.a[1], b_from: v.b[0], b_to: v.b[1], norm: v.norm };
      drawHead();
      try {
        const [tree, top] = await Promise.all([
          slots.tree.run((signal) => api.diff({ ...ask, order: v.order, max_nodes: MAX_NODES, root: root || undefined, width: Math.max(320, Math.round(el.clientWidth * devicePixelRatio)) }, signal)),
          slots.top.run((signal) => api.diff({ ...ask, view: 'top', limit: ROWS }, signal)),
        ]);
        [d, rows, trouble] = [tree, top, ''];
        drawTree();
        if (v.z && !root && tree.comparable && graph.root === 0 && on.view().z === v.z) return void this.show(v.z);
        on.announce(`Compared: ${tree.comparable && tree.delta.value !== null ? `change ${signed(tree, tree.delta.value)}` : 'no data'}`);
      } catch (e) {
        if (/** @type {Error} */ (e).name === 'AbortError') return;
        [d, rows, trouble] = [null, null, /** @type {Error} */ (e).message];
        graph.clear();
        a11y.clear();
        render(nothing, foot);
      }
      drawHead();
      drawRows();
    },
    redraw() {
      graph.setNames(on.short());
      drawHead();
      drawRows();
    },
    theme: () => graph.theme(),
  };
}
