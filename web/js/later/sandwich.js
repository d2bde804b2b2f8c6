// SPDX-License-Identifier: Apache-2.0
/**
 * Sandwich: callers above, callees below the selected function, on one scale. Row 0 of both trees is the
 * function itself, shown once: that of the callers, which grow upwards, lies under that of the callees.
 */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { createA11yTree } from '../a11ytree.js';
import * as api from '../api.js';
import { label, sentence, tip } from '../details.js';
import { count, percent, total } from '../fmt.js';
import { createGraph } from '../graph.js';
import { shorten } from '../paint.js';
import { show } from '../safe.js';

const SIDES = /** @type {const} */ (['callers', 'callees']);
const MAX_NODES = 10_000;

/** @typedef {{name:string, scope:string}} Fn  scope: 'bin=…', 'file=…' or '' */

/**
 * @param {HTMLElement} el
 * @param {object} on
 * @param {() => api.Params} on.question
 * @param {() => boolean} on.short
 * @param {() => string} on.colour
 * @param {(fn: Fn) => void} on.pick      another function in the middle
 * @param {(c: import('../details.js').Context, n: number) => void} on.inspect
 * @param {(name: string) => void} on.copy
 * @param {(text: string) => void} on.announce
 */
export function createSandwich(el, on) {
  const slot = api.slot();
  /** @type {api.Sandwich|null} */ let answer = null;
  /** @type {Fn} */ let fn = { name: '', scope: '' };
  const head = document.createElement('div');
  head.className = 'panel-head';
  const note = document.createElement('div');
  note.className = 'panel-note';
  const sides = SIDES.map((side) => {
    const graph = createGraph({
      up: side === 'callers',
      covered: side === 'callers',
      zoom: (n) => pick(side, n),
      hover: () => {},
      tip: (n, frames) => (answer ? tip(context(answer, side), n, frames, true) : null),
    });
    const a11y = createA11yTree(side);
    a11y.el.setAttribute('aria-label', side === 'callers' ? 'Callers: arrow up goes to the largest caller, Enter puts it in the middle' : 'Callees: arrow down goes to the largest callee, Enter puts it in the middle');
    const wrap = document.createElement('div');
    wrap.className = `graph-wrap ${side}`;
    wrap.append(a11y.el, graph.el);
    wrap.addEventListener('keydown', (e) => key(e, side));
    return { side, graph, a11y, wrap };
  });
  el.replaceChildren(head, ...sides.map((s) => s.wrap), note);

  /** @param {api.Sandwich} a @param {typeof SIDES[number]} side @returns {import('../details.js').Context} */
  function context(a, side) {
    return { tree: a[side].tree, type: a.type, root: 0, everything: a.unfiltered, parentOfRoot: NaN, periodic: a.quality.periodic, short: on.short(), whole: 'all functions of this name', selfOfRoot: a.function.self };
  }
  const of = (/** @type {typeof SIDES[number]} */ side) => /** @type {typeof sides[number]} */ (sides.find((s) => s.side === side));
  /** @param {typeof SIDES[number]} side @param {number} n */
  function select(side, n) {
    if (!answer || n < 0) return;
    const s = of(side),
      c = context(answer, side);
    s.graph.select(n);
    s.a11y.update(c.tree, 0, n, (k) => sentence(c, k));
    on.inspect(c, n);
  }
  /** @param {typeof SIDES[number]} side @param {number} n */
  function pick(side, n) {
    const t = answer?.[side].tree;
    if (!t || t.func[n] < 0) return;
    const f = t.func[n];
    if (n === 0 || f === 0) select(side, n);
    else on.pick(fnOf(t.funcs, f));
  }
  /** To the other side's first row that is shown. @param {typeof SIDES[number]} side */
  function cross(side) {
    const { graph, a11y } = of(side);
    graph.select(0);
    const first = side === 'callers' ? graph.neighbour('down') : 0;
    a11y.el.focus({ preventScroll: true });
    select(side, Math.max(0, first));
  }
  /** @param {KeyboardEvent} e @param {typeof SIDES[number]} side */
  function key(e, side) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const { graph } = of(side),
      flip = side === 'callers';
    const way = /** @type {const} */ ({ ArrowUp: flip ? 'down' : 'up', ArrowDown: flip ? 'up' : 'down', ArrowLeft: 'left', ArrowRight: 'right' })[e.key];
    if (way) {
      const n = graph.neighbour(way);
      /* the function itself is the callees'; above it the callers begin */
      if (way === 'up' && (n < 0 ? !flip : flip && n === 0)) cross(flip ? 'callees' : 'callers');
      else select(side, n);
    } else if (e.key === 'Enter') pick(side, graph.selected);
    else if (e.key === 'Home') cross('callees');
    else if (e.key === 'c') on.copy(graph.tree?.funcs.name[graph.tree.func[graph.selected]] ?? '');
    else return;
    e.preventDefault();
    e.stopPropagation();
  }
  function words() {
    const a = answer;
    if (!a) return;
    const f = a.function,
      all = a.unfiltered;
    const name = on.short() ? shorten(fn.name) : fn.name;
    render(
      html`<b class="mono"><bdi>${show(name)}</bdi></b>${fn.scope ? html`<span><bdi>${show(fn.scope.slice(fn.scope.indexOf('=') + 1))}</bdi></span>` : nothing}
        <span><b>${total(f.total, a.type)}</b> · ${percent(f.total, all)} of total</span><span>self <b>${total(f.self, a.type)}</b></span>${
          f.functions > 1 ? html`<span>${count(f.functions)} functions of this name are taken together</span>` : nothing
        }<span class="panel-hint">${a.callers.tree.n === 1 ? 'no callers: stacks begin with it' : 'callers above'}, ${a.callees.tree.n === 1 ? 'no callees' : 'callees below'}; each sample once, at the outermost occurrence</span>`,
      head,
    );
  }
  /** @param {string} text */
  function say(text) {
    note.hidden = !text;
    note.textContent = text;
    for (const s of sides) s.wrap.hidden = text !== '';
    head.hidden = text !== '';
  }

  return {
    /** @param {Fn} f */
    async show(f) {
      fn = f;
      if (!f.name) return say('Select a function in the graph or the table, then press s: its callers and callees stand here.');
      const at = f.scope.indexOf('=');
      try {
        const a = await slot.run((signal) =>
          api.sandwich({ ...on.question(), fn: f.name, ...(at > 0 && { [f.scope.slice(0, at)]: f.scope.slice(at + 1) }), max_nodes: MAX_NODES }, signal),
        );
        answer = a;
        if (a.function.functions > 1) a.callers.tree.funcs.name[0] = f.name; // both trees share them
        if (!(a.function.total > 0)) return say(`${show(f.name)} is in no sample of this selection.`);
        say('');
        words();
        for (const s of sides) {
          s.graph.setTree(a[s.side].tree, on.short());
          s.graph.setColours(on.colour(), null);
        }
        select('callers', 0);
        select('callees', 0);
        on.announce(`${label(context(a, 'callees'), 0)}: ${total(a.function.total, a.type)}, ${percent(a.function.total, a.unfiltered)} of total`);
      } catch (e) {
        if (/** @type {Error} */ (e).name !== 'AbortError') say(`Callers and callees could not be loaded: ${/** @type {Error} */ (e).message}`);
      }
    },
    redraw() {
      for (const s of sides) {
        s.graph.setNames(on.short());
        s.graph.setColours(on.colour(), null);
      }
      words();
    },
    theme: () => sides.forEach((s) => s.graph.theme()),
    focus: () => of('callees').a11y.el.focus({ preventScroll: true }),
  };
}

/** What names a function beyond doubt: its scope is its file in Python or without a binary, else its binary. @param {import('../tree.js').Funcs} funcs @param {number} f @returns {Fn} */
export function fnOf(funcs, f) {
  const bin = funcs.bin[f] ?? '',
    file = funcs.file[f] ?? '';
  const byFile = (funcs.kind[f] === 'python' || !bin) && file;
  return { name: funcs.name[f] ?? '', scope: byFile ? `file=${file}` : bin ? `bin=${bin}` : '' };
}
