// SPDX-License-Identifier: Apache-2.0
/**
 * Explore: one selection, seen as graph, table or both. This module asks the questions and hands the
 * answers to the panels; each panel knows how to draw itself.
 */
import * as api from '../api.js';
import * as prefs from '../prefs.js';
import * as store from '../store.js';
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { createA11yTree } from '../a11ytree.js';
import { windowFor } from '../chartmath.js';
import { crumbs as crumbLine } from '../crumbs.js';
import { inspector, label, sentence, tip } from '../details.js';
import { showEmpty } from '../emptystate.js';
import { showError, stopRetry } from '../errorstate.js';
import { exploreKeys } from '../explorekeys.js';
import { createFilterBar } from '../filterbar.js';
import { added, filterOf, filterOfSearch, keepsPaths } from '../filters.js';
import { count, percent } from '../fmt.js';
import { createFrameMenu } from '../framemenu.js';
import { createGraph } from '../graph.js';
import { header } from '../header.js';
import { helpDialog, listen } from '../keys.js';
import { lazyPanel } from '../lazypanel.js';
import { createLazyChart } from '../lazychart.js';
import { createLive } from '../live.js';
import { announce, copy, toast } from '../notify.js';
import { qualityLine } from '../quality.js';
import { createRangeMenu } from '../rangemenu.js';
import { createRows } from '../rows.js';
import { show } from '../safe.js';
import { parsePattern } from '../search.js';
import { createSearchBox } from '../searchbox.js';
import { createSelectorBar } from '../selectorbar.js';
import { trySelector, writeSelector } from '../selector.js';
import * as states from '../states.js';
import { createTable } from '../table.js';
import { isRelative, moved, rangeText, toMs, toSpec } from '../time.js';
import { createToolbar } from '../toolbar.js';
import { findHash, hashOf, hiddenBelow } from '../tree.js';
import { encode } from '../url.js';

const LATE_MS = 150;
const SELECT_MS = 150; // holding an arrow key must not flood the history
const MAX_NODES = 20_000;
const MAX_WIDTH = 7680;
const POINTS = 600;
const WORTH_ASKING = 0.01; // of a frame's value hidden below it
const ANSWERS_KEPT = 8;

/** @param {string} id @returns {HTMLElement} */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const frame = () => new Promise((ok) => requestAnimationFrame(ok));

export function start() {
  /** What is drawn, and what else was answered for this selection, by root hash. */
  /** @type {api.Flame|null} */ let flame = null;
  /** @type {Map<string, api.Flame>} */ const answers = new Map();
  /** The range as the server resolved it: later questions about this picture are about the same samples. */
  /** @type {{from:string, to:string}|null} */ let fixed = null;
  /** @type {api.Series|null} */ let series = null;
  /** @type {{types: Awaited<ReturnType<typeof api.types>>, labels: Awaited<ReturnType<typeof api.labels>>, for: string}} */
  let lists = { types: [], labels: [], for: '' };
  const slots = { flame: api.slot(), series: api.slot(), lists: api.slot() };
  const tree = () => flame?.tree ?? null;
  const everything = () => flame?.unfiltered ?? 0;

  /* ---- questions ---- */
  const asked = () => {
    const s = store.get();
    return { q: s.q, from: s.from, to: s.to };
  };
  /** The question about weights: with the filters. */
  const shown = () => ({ ...asked(), f: store.get().f });
  const same = () => ({ ...asked(), ...fixed });
  const sameShown = () => ({ ...shown(), ...fixed });
  const width = () => Math.min(MAX_WIDTH, Math.max(320, Math.round($('panes').clientWidth * (devicePixelRatio || 1))));
  const flameParams = (/** @type {string} */ root, again = false) => ({
    ...(again ? sameShown() : shown()),
    width: width(),
    max_nodes: MAX_NODES,
    root: root || undefined,
  });

  /* ---- parts ---- */
  const graph = createGraph({
    zoom: (n) => zoom(n),
    hover: () => {},
    menu(n, x, y) {
      select(n);
      openMenu(x, y);
    },
    tip: (n, frames) => {
      const t = tree();
      if (!t) return null;
      const deepest = frames > 0 && t.func[n] < 0 && t.parent[n] === graph.root && graph.root === 0;
      return tip(context(t), n, frames, deepest);
    },
  });
  const a11y = createA11yTree();
  const table = createTable({
    sort: (k) => store.set({ sort: k }, true),
    hover: (key) => graph.outline(functionOf(key)),
    pick: (row) => {
      const n = largest(functionOf(row.key));
      table.select(row.key);
      if (n >= 0) select(n);
      else announce(`${show(row.name)} is too small to be in the graph`);
    },
    more: () => rows.more(),
  });
  const chart = createLazyChart({
    onRange: (a, b) => store.set({ from: toSpec(a), to: toSpec(b) }, true),
    onOther: (a, b) => store.set({ view: 'compare', a_from: toSpec(a), a_to: toSpec(b) }, true),
    onClear: () => {
      if (store.get().view === 'compare') return;
      const [a, b] = chart.window;
      const rel = wide && isRelative(wide.from) && wide.to === 'now';
      store.set({ from: rel && wide ? wide.from : toSpec(a), to: rel ? 'now' : toSpec(b) }, true);
    },
  });
  /** the range that the chart's window came from, to go back to it */
  /** @type {{from:string, to:string}|null} */ let wide = null;
  const selectorBar = createSelectorBar($('selector'), {
    q: () => store.get().q,
    change: (q) => store.set({ q, z: '', sel: '' }, true),
    values: (name) => {
      const s = trySelector(store.get().q);
      const q = s ? writeSelector({ ...s, matchers: s.matchers.filter((m) => m.name !== name) }) : '';
      return api.values(name, { ...same(), q, limit: 100 }, new AbortController().signal);
    },
  });
  const rangeMenu = createRangeMenu($('range'), {
    range: asked,
    change: (from, to) => store.set({ from, to }, true),
    refresh: () => load(),
    live: () => ({ ...live.state, can: store.get().to === 'now' }),
    toggleLive: () => live.toggle(),
  });
  const search = createSearchBox($('search'), $('search-out'), {
    s: () => store.get().s,
    change: (s) => store.set({ s }),
    jump: (n) => select(n),
    leave: () => a11y.el.focus({ preventScroll: true }),
    announce,
    filter: () => addFilter(filterOfSearch(parsePattern(store.get().s))),
  });
  const filterBar = createFilterBar($('filters'), { f: () => store.get().f, change: setFilters });
  const frameMenu = createFrameMenu(() => a11y.el.focus({ preventScroll: true }));
  const toolbar = createToolbar(
    { views: $('views'), options: $('options'), legend: $('legend') },
    {
      state: store.get,
      set: store.set,
      question: sameShown,
      curl: () => copy(api.curl('/flamegraph', { ...sameShown(), max_nodes: 0 }), 'curl command copied'),
      recolour,
      tree,
    },
  );
  const rows = createRows({
    question: sameShown,
    match: () => search.asks(),
    state: store.get,
    show(trouble, longer) {
      recolour();
      showTable(longer, trouble);
      if (!longer) drawInspector();
    },
    matched: (s, a) => search.setMatched(s, { functions: a.matched?.functions ?? a.rows.length, total: a.matched?.total ?? null, keys: new Set(a.rows.map((r) => r.key)) }),
    refused: (s, message) => search.setError(s, message),
  });
  const live = createLive({
    can: () => store.get().to === 'now',
    busy: () => wrap.matches(':hover') || chart.dragging || document.body.dataset['state'] === 'loading',
    chart: async () => {
      if (!chart.dragging) await loadSeries();
    },
    load: () => load({ quiet: true }),
    draw: () => rangeMenu.draw(),
  });
  $('charts').append(chart.el);
  const wrap = document.createElement('div');
  wrap.className = 'graph-wrap';
  wrap.append(a11y.el, graph.el);
  $('graph').append(wrap);
  $('table').append(table.el);

  /** Index of a function in the tree by its key, -1 if it is not drawn. @param {string} key */
  const functionOf = (key) => (key ? (tree()?.funcs.key.indexOf(key) ?? -1) : -1);
  /** Largest node of a function in the view. @param {number} f */
  function largest(f) {
    const t = tree();
    if (!t || f < 0) return -1;
    let best = -1;
    for (let i = graph.root; i < t.end[graph.root]; i++)
      if (t.func[i] === f && (best < 0 || t.total[i] > t.total[best])) best = i;
    return best;
  }
  /** @param {import('../tree.js').Tree} t @returns {import('../details.js').Context} */
  function context(t) {
    return {
      tree: t,
      type: flame?.type ?? { id: '', name: '', unit: 'count', kind: 'sum' },
      root: graph.root,
      everything: everything(),
      parentOfRoot: parentTotal(),
      periodic: flame?.quality.periodic ?? false,
      short: store.get().names === 'short',
    };
  }
  /** Total of the caller of node 0, where another answer holds it. */
  function parentTotal() {
    const up = flame?.view.path.at(-2);
    const t = up && answers.get('')?.tree;
    if (!t) return NaN;
    const n = findHash(t, up.hash);
    return n < 0 ? NaN : t.total[n];
  }

  /* ---- filters ---- */
  /** @param {string[]} f */
  function setFilters(f) {
    const had = store.get().f;
    const moves = [...f, ...had].some((x) => f.includes(x) !== had.includes(x) && !keepsPaths(x));
    store.set(moves ? { f, z: '', sel: '' } : { f }, true);
    announce(f.length ? `${f.length} ${f.length === 1 ? 'filter' : 'filters'}` : 'No filters');
  }
  const addFilter = (/** @type {string} */ f) => setFilters(added(store.get().f, f));
  /** Name of the selected frame's function, '' at the root. */
  const selectedName = () => {
    const t = tree();
    return t && t.func[graph.selected] > 0 ? (t.funcs.name[t.func[graph.selected]] ?? '') : '';
  };
  /** @param {import('../filters.js').Verb} verb */
  const filterSelected = (verb) => () => {
    const name = selectedName();
    if (name) addFilter(filterOf(verb, name));
  };
  /** @param {number} x @param {number} y client pixels */
  function openMenu(x, y) {
    const t = tree(),
      n = graph.selected;
    if (!t) return;
    const off = !selectedName();
    frameMenu.open(label(context(t), n), [
      { text: 'Zoom', key: 'Enter', off: n === graph.root, run: () => zoom(n) },
      { text: 'Zoom out', key: '⌫', off: outer() === null, run: zoomOut },
      { text: 'Only stacks with it', key: 'k', off, line: true, run: filterSelected('keep') },
      { text: 'Without stacks with it', key: 'd', off, run: filterSelected('drop') },
      { text: 'Stacks from it on', key: 'f', off, run: filterSelected('start') },
      { text: 'Fold its frames away', key: 'm', off, run: filterSelected('merge') },
      { text: 'Collapse recursion', key: 'R', run: () => addFilter('collapse:recursion') },
      { text: 'Callers and callees', key: 's', off, run: sandwichSelected, line: true },
      { text: 'Copy name', key: 'c', off, run: copyName },
    ], x, y);
  }
  function menuAtSelected() {
    const [x, y] = graph.placeOf(graph.selected);
    openMenu(x, y);
  }
  function copyName() {
    const t = tree();
    if (t) copy(t.funcs.name[t.func[graph.selected]] ?? '', 'Name copied');
  }

  /* ---- sandwich ---- */
  const sandwich = lazyPanel($('sandwich'), async () => {
    const m = await import('../later/sandwich.js');
    const panel = m.createSandwich($('sandwich'), {
      question: () => ({ ...sameShown(), width: width() }),
      short: () => store.get().names === 'short',
      colour: () => store.get().color,
      pick: (fn) => store.set({ fn: fn.name, in: fn.scope }, true),
      inspect: (c, n) => drawInspector(c, n),
      copy: (name) => copy(name, 'Name copied'),
      announce,
    });
    return { ...panel, fnOf: m.fnOf };
  });
  function showSandwich() {
    const s = store.get();
    if (s.view === 'sandwich') sandwich.want((p) => p.show({ name: s.fn, scope: s.in }));
  }
  /** The selected frame's function in the middle. */
  function sandwichSelected() {
    const t = tree(),
      f = t ? t.func[graph.selected] : 0;
    if (!t || f <= 0) return store.set({ view: 'sandwich' }, true);
    return sandwich.want((p) => {
      const { name, scope } = p.fnOf(t.funcs, f);
      store.set({ view: 'sandwich', fn: name, in: scope }, true);
      p.focus();
    });
  }

  /* ---- compare ---- */
  const compare = lazyPanel($('compare'), async () =>
    (await import('../later/compare.js')).createCompare($('compare'), {
      question: () => ({ a_q: store.get().q, f: store.get().f }),
      view() {
        const s = store.get(),
          [a, b] = rangesMs();
        const spec = (/** @type {[number, number]} */ r) => /** @type {[string, string]} */ (r.map(toSpec));
        return { a: spec(a), b: spec(b), norm: s.norm, order: s.order, drawn: s.a_from !== '' };
      },
      set: (patch) => store.set(patch, true),
      before(seconds) {
        const [from, to] = rangeMs();
        store.set(seconds ? { a_from: toSpec(from - seconds * 1000), a_to: toSpec(to - seconds * 1000) } : { a_from: '', a_to: '' }, true);
      },
      swap,
      short: () => store.get().names === 'short',
      utc: () => prefs.get().utc,
      copy: (name) => copy(name, 'Name copied'),
      announce,
    }),
  );
  /** A and B, milliseconds; without A in the URL it is as long as B and right before it. @returns {[[number, number], [number, number]]} */
  function rangesMs() {
    const s = store.get(),
      b = fixed ? /** @type {[number, number]} */ ([toMs(fixed.from, 0), toMs(fixed.to, 0)]) : rangeMs();
    const now = Date.now();
    return [s.a_from && s.a_to ? [toMs(s.a_from, now), toMs(s.a_to, now)] : [2 * b[0] - b[1], b[0]], b];
  }
  function showCompare() {
    const on = store.get().view === 'compare';
    chart.setOther(on ? rangesMs()[0] : null);
    if (on) compare.want((p) => p.show());
  }
  function swap() {
    if (store.get().view !== 'compare') return;
    const [a, b] = rangesMs();
    store.set({ from: toSpec(a[0]), to: toSpec(a[1]), a_from: toSpec(b[0]), a_to: toSpec(b[1]) }, true);
    announce('A and B are swapped');
  }

  /* ---- selection and zoom ---- */
  let selectLater = 0;
  /** @param {number} n */
  function select(n, quiet = false) {
    const t = tree();
    if (!t || n < 0 || t.func[n] < 0) return;
    graph.select(n);
    table.select(t.funcs.key[t.func[n]] ?? '');
    a11y.update(t, graph.root, n, (k) => sentence(context(t), k));
    drawInspector();
    clearTimeout(selectLater);
    if (!quiet)
      selectLater = setTimeout(() => {
        if (tree() === t && graph.selected === n) store.set({ sel: n === 0 && !t.rootHash ? '' : hashOf(t, n) });
      }, SELECT_MS);
  }
  /** @param {number} n */
  function zoom(n) {
    const t = tree();
    if (!t || n < 0 || t.func[n] < 0) return;
    const h = hashOf(t, n);
    clearTimeout(selectLater);
    if (h === store.get().z) select(n);
    else store.set({ z: h, sel: h }, true);
    a11y.el.focus({ preventScroll: true });
  }
  /** The caller of what is zoomed: its hash, null at the root. */
  function outer() {
    const t = tree();
    if (!t) return null;
    if (graph.root > 0) return hashOf(t, t.parent[graph.root]);
    const up = flame?.view.path.at(-2);
    return up ? up.hash : null;
  }
  function zoomOut() {
    const h = outer();
    if (h !== null) store.set({ z: h, sel: store.get().z }, true);
  }

  /** Draw another answer, node `at` in row 0. @param {api.Flame} a @param {number} at @param {number} scroll */
  function adopt(a, at, scroll = 0) {
    flame = a;
    const t = a.tree;
    if (!t) return;
    graph.setTree(t, store.get().names === 'short', at, scroll);
    graph.counters.nodes = t.n;
    const { sel } = store.get();
    const n = sel ? findHash(t, sel) : at;
    search.setTree(t);
    afterZoom();
    select(n >= at && n < t.end[at] ? n : at, true);
  }
  function afterZoom() {
    const t = tree();
    if (!t) return;
    search.setView(t, graph.root, everything(), (flame?.trim.nodes ?? 0) > 0);
    recolour();
    crumbs();
  }
  /** The URL says another zoom. @param {string} z */
  async function showZoom(z) {
    slots.flame.cancel();
    const here = tree();
    if (!here) return;
    const n = findHash(here, z);
    const kept = answers.get(z);
    if (n >= 0) {
      graph.zoomTo(n);
      afterZoom();
      const sel = store.get().sel ? findHash(here, store.get().sel) : n;
      select(sel >= n && sel < here.end[n] ? sel : n, true);
      announce(`Zoomed to ${label(context(here), n)}, ${percent(here.total[n], everything())} of total`);
    }
    if (kept && kept !== flame) {
      while (graph.isMoving()) await frame();
      if (store.get().z === z) adopt(kept, 0, n >= 0 ? graph.scroller.scrollTop : 0);
      return;
    }
    if (n < 0) {
      for (const a of answers.values()) {
        const at = a.tree ? findHash(a.tree, z) : -1;
        if (at < 0) continue;
        adopt(a, at);
        return refine(z, at);
      }
      await load({ again: true });
      return;
    }
    await refine(z, n);
  }
  /** Node `n` is shown with what the answer at hand holds; where that hides too much, ask for more. @param {string} z @param {number} n */
  async function refine(z, n) {
    const t = tree();
    if (!t || n === 0 || hiddenBelow(t, n) <= WORTH_ASKING * t.total[n]) return;
    try {
      const a = await slots.flame.run((signal) => api.flamegraph(flameParams(z, true), signal));
      while (graph.isMoving()) await frame();
      if (store.get().z !== z || !a.tree || !a.view.found) return;
      keep(a);
      adopt(a, 0, graph.scroller.scrollTop);
    } catch (e) {
      if (/** @type {Error} */ (e).name === 'AbortError') return;
      toast(`Details could not be loaded: ${/** @type {Error} */ (e).message}`);
    }
  }
  /** @param {api.Flame} a */
  function keep(a) {
    answers.set(a.view.root, a);
    for (const k of answers.keys()) if (answers.size > ANSWERS_KEPT && k !== '' && k !== a.view.root) answers.delete(k);
  }

  /* ---- loading ---- */
  let loadNumber = 0;
  /**
   * @param {{again?: boolean, quiet?: boolean}} [how] again: the same samples, another root; quiet: live,
   *   no state is shown while it runs and the old picture stays when it fails
   */
  async function load({ again = false, quiet = false } = {}) {
    const mine = ++loadNumber;
    stopRetry();
    live.state.waiting = false;
    const s = store.get();
    const t0 = performance.now();
    let ticking = 0;
    const late = quiet
      ? 0
      : setTimeout(() => {
          const draw = () =>
            render(
              states.loading(Math.floor((performance.now() - t0) / 1000), () => slots.flame.cancel(), !tree()),
              $('state'),
            );
          document.body.dataset['state'] = 'loading';
          draw();
          ticking = setInterval(draw, 500);
        }, LATE_MS);
    if (!again) {
      loadSeries();
      loadLists();
    }
    /* at once with the answer: what follows may wait for more, and must not be covered by "loading" */
    const answered = () => {
      clearTimeout(late);
      clearInterval(ticking);
    };
    try {
      const a = await slots.flame.run((signal) => api.flamegraph(flameParams(s.z, again), signal)).finally(answered);
      if (mine !== loadNumber) return;
      if (!again) answers.clear();
      fixed = a.range.fromNs && a.range.toNs ? { from: `${a.range.fromNs}ns`, to: `${a.range.toNs}ns` } : null;
      selectorBar.setError('');
      rangeMenu.setError('');
      if (a.empty || !a.tree || a.tree.total[0] === 0) {
        flame = a;
        graph.clear();
        a11y.clear();
        rows.clear();
        renderAll();
        await showEmpty($('state'), a, { state: store.get, set: (patch) => store.set(patch, true), load: () => load(), widen: () => shift(0, 2) });
        return;
      }
      keep(a);
      calm();
      if (!a.view.found) {
        toast('The frame of this link is not here: its nearest caller is shown');
        flame = a; // so that the change below finds itself done
        store.set({ z: a.view.root });
      }
      const at = quiet && flame && flame.view.root === a.view.root && graph.root === 0 ? graph.scroller.scrollTop : 0;
      adopt(a, 0, at);
      renderAll();
      if (!again) {
        rows.load();
        showSandwich();
        showCompare();
      }
    } catch (e) {
      if (mine !== loadNumber) return;
      if (/** @type {Error} */ (e).name === 'AbortError') {
        if (document.body.dataset['state'] === 'loading') calm();
        return;
      }
      if (quiet) throw e;
      failed(/** @type {Error} */ (e));
    }
  }
  function calm() {
    delete document.body.dataset['state'];
    render(nothing, $('state'));
  }
  async function loadSeries() {
    const both = store.get().view === 'compare' ? rangesMs().flat() : [];
    const r = both.length ? /** @type {[number, number]} */ ([Math.min(...both), Math.max(...both)]) : rangeMs();
    const before = wide && chart.window[1] > 1 ? chart.window : null;
    const win = windowFor(r, !both.length && (isRelative(store.get().from) || isRelative(store.get().to)), before);
    const relative = win[0] === r[0] && win[1] === r[1];
    if (relative) wide = { from: store.get().from, to: store.get().to };
    else if (!wide || before !== win) wide = { from: toSpec(win[0]), to: toSpec(win[1]) };
    const range = relative ? asked() : { from: toSpec(win[0]), to: toSpec(Math.min(win[1], Math.max(r[1], Date.now()))) };
    try {
      series = await slots.series.run((signal) => api.timeseries({ q: store.get().q, f: store.get().f, ...range, points: POINTS }, signal));
      chart.setData(series.n ? series : null, relative && series.n && Number.isFinite(series.to) ? [series.from, series.to] : win, 'no data');
    } catch (e) {
      if (/** @type {Error} */ (e).name === 'AbortError') return;
      series = null;
      chart.setData(null, win, 'no data');
    }
    setChartRange();
  }
  /** The URL's range in milliseconds. @returns {[number, number]} */
  function rangeMs() {
    const now = Date.now();
    return [toMs(store.get().from, now), toMs(store.get().to, now)];
  }
  function setChartRange() {
    const s = store.get();
    if (s.view === 'compare') {
      const [a, b] = rangesMs();
      chart.setRange(...b);
      chart.setOther(a);
    } else if (isRelative(s.from) && s.to === 'now') chart.setRange(...chart.window);
    else chart.setRange(...rangeMs());
  }
  async function loadLists() {
    const { q, from, to } = asked();
    const key = `${q} ${from} ${to}`;
    if (lists.for === key) return;
    try {
      await slots.lists.run(async (signal) => {
        const [types, labels] = await Promise.all([api.types({ from, to }, signal), api.labels({ q, from, to }, signal)]);
        lists = { types, labels, for: key };
        selectorBar.setLists(types, labels);
      });
    } catch (e) {
      /* pickers without suggestions still pick; the graph's own error says what is wrong */
      if (/** @type {Error} */ (e).name !== 'AbortError') lists.for = '';
    }
  }
  /** @param {Error} e */
  function failed(e) {
    showError($('state'), e, {
      retry: () => load(),
      curl: () => copy(api.curl('/flamegraph', flameParams(store.get().z)), 'curl command copied'),
      wrong(param, message) {
        if (param === 'q') selectorBar.setError(message);
        if (param === 'from' || param === 'to') rangeMenu.setError(message);
      },
    });
    selectorBar.draw();
    toolbar.draw();
  }

  /* ---- panels ---- */
  /** @param {import('../details.js').Context} [of] a frame of another picture @param {number} [at] */
  function drawInspector(of, at) {
    const t = of ? of.tree : tree();
    const n = at ?? graph.selected;
    $('inspector').classList.toggle('at-root', !of && n === graph.root);
    if (!t || !graph.tree) {
      render(nothing, $('inspector'));
      return;
    }
    const row = rows.everywhere.get(t.funcs.key[t.func[n]] ?? '');
    render(
      inspector(of ?? context(t), n, t.func[n] > 0 ? row : undefined, {
        copy: (name) => copy(name, 'Name copied'),
        zoom: () => zoom(n),
        menu: menuAtSelected,
      }),
      $('inspector'),
    );
  }
  function crumbs() {
    const t = tree();
    render(
      flame && t
        ? crumbLine(flame, t, graph.root, store.get().names === 'short', { zoom: (hash) => store.set({ z: hash, sel: hash }, true), out: zoomOut })
        : nothing,
      $('crumbs'),
    );
  }
  function quality() {
    if (!flame) {
      render(nothing, $('quality'));
      return;
    }
    const { trim } = flame;
    render(
      qualityLine(flame, {
        range: rangeText(store.get().from, store.get().to, Date.now(), prefs.get().utc),
        hidden: trim.nodes ? `${percent(trim.total, flame.view.total ?? 0)} in ${count(trim.nodes)} ${trim.nodes === 1 ? 'frame' : 'frames'}` : '',
      }),
      $('quality'),
    );
  }
  function recolour() {
    const t = tree();
    if (!t || !graph.tree) return;
    const lit = search.lit() ?? toolbar.lit(t.funcs);
    graph.setColours(store.get().color, lit);
  }
  /** @param {boolean} longer the same rows and more @param {string} [trouble] */
  function showTable(longer, trouble = '') {
    const a = rows.top;
    table.set({
      rows: a?.rows ?? [],
      type: a?.type ?? { id: '', name: '', unit: '', kind: '' },
      all: everything(),
      sort: store.get().sort,
      more: Boolean(a?.next),
      note: trouble || (a && !a.rows.length ? 'No function matches.' : ''),
      keep: longer,
    });
  }
  function renderAll() {
    filterBar.setAnswer(flame);
    selectorBar.draw();
    rangeMenu.draw();
    toolbar.draw();
    crumbs();
    quality();
    drawInspector();
    const s = trySelector(store.get().q);
    const name = s?.matchers.find((m) => m.name === 'service' && m.op === '=')?.value ?? s?.matchers[0]?.value;
    document.title = `${name ? `${show(name)} · ` : ''}${s?.type || 'profiles'} · Strata`;
  }

  /* ---- range ---- */
  /** @param {number} by @param {number} scale */
  function shift(by, scale) {
    const [a, b] = moved(...rangeMs(), by, scale, Date.now());
    store.set({ from: toSpec(a), to: toSpec(b) }, true);
  }

  /* ---- links ---- */
  /** A link to what is seen: relative times become fixed ones, unless Alt is held. @param {boolean} asIs */
  function copyLink(asIs) {
    const s = store.get();
    const r = flame?.range;
    const freeze = !asIs && r && Number.isFinite(r.from) && (isRelative(s.from) || isRelative(s.to));
    copy(location.origin + location.pathname + encode(freeze ? { ...s, from: toSpec(r.from), to: toSpec(r.to) } : s), freeze ? 'Link copied, with fixed times' : 'Link copied');
  }
  /* ---- header ---- */
  function themed() {
    header($('acts'), { help: () => help.show(), link: copyLink });
    graph.theme();
    sandwich.now?.theme();
    compare.now?.theme();
    const c = graph.colours;
    if (c) chart.setColours(c);
  }
  prefs.subscribe(() => {
    chart.setUtc(prefs.get().utc);
    themed();
    renderAll();
  });
  for (const q of ['(prefers-color-scheme: dark)', '(prefers-contrast: more)']) matchMedia(q).addEventListener('change', themed);
  api.whenUpdated(() =>
    render(
      html`<div class="notice" role="status">Strata was updated. <button class="button small" type="button" @click=${() => location.reload()}>Reload</button></div>`,
      $('notice'),
    ),
  );

  /* ---- keys ---- */
  const bindings = exploreKeys({
    set: (patch) => void store.set(patch, true),
    go(way) {
      const n = graph.neighbour(way);
      if (n >= 0) select(n);
    },
    zoom: () => zoom(graph.selected),
    zoomOut,
    filter: (verb) => filterSelected(verb)(),
    collapse: () => addFilter('collapse:recursion'),
    menu: menuAtSelected,
    sandwich: sandwichSelected,
    copyName,
    match: (step) => search.step(step),
    search: () => search.focus(),
    swap,
    range: () => rangeMenu.open(),
    shift,
    refresh: () => load(),
    live: () => live.toggle(),
    link: () => copyLink(false),
    back() {
      if (graph.magnified) graph.unmagnify();
      else if (store.get().s) store.set({ s: '' });
      else zoomOut();
    },
    help: () => help.show(),
  });
  const help = helpDialog(bindings);
  listen(bindings);

  let topLater = 0;
  store.subscribe((s, changed) => {
    if (['q', 'f', 'from', 'to'].some((k) => changed.has(k))) {
      selectorBar.setError('');
      rangeMenu.setError('');
      if (s.to !== 'now' && live.state.on) live.toggle();
      selectorBar.draw();
      rangeMenu.draw();
      filterBar.setAnswer(null);
      setChartRange();
      rows.everywhere.clear();
      load();
    } else if (changed.has('z') && flame?.tree) {
      if (!(flame.view.root === s.z && graph.root === 0 && graph.tree === flame.tree)) showZoom(s.z);
    } else if (changed.has('sel') && tree()) {
      const t = tree(),
        n = t && s.sel ? findHash(t, s.sel) : graph.root;
      if (t && n >= graph.root && n < t.end[graph.root] && n !== graph.selected) select(n, true);
    }
    if (changed.has('s')) {
      search.draw();
      recolour();
      clearTimeout(topLater);
      if (flame?.tree) topLater = setTimeout(rows.load, 250);
    }
    if (changed.has('sort')) rows.load();
    if (changed.has('color')) {
      recolour();
      toolbar.draw();
    }
    if (changed.has('names')) {
      graph.setNames(s.names === 'short');
      table.setNames(s.names === 'short');
      toolbar.draw();
      crumbs();
      drawInspector();
    }
    if (['view', 'fn', 'in'].some((k) => changed.has(k))) showSandwich();
    if (['view', 'a_from', 'a_to', 'norm', 'order'].some((k) => changed.has(k)) && !changed.has('from')) {
      loadSeries();
      showCompare();
    }
    if (changed.has('color') || changed.has('names')) {
      sandwich.now?.redraw();
      compare.now?.redraw();
    }
    if (changed.has('view')) {
      toolbar.draw();
      if (s.view !== 'sandwich') drawInspector();
      showTable(true);
    }
  });

  chart.setUtc(prefs.get().utc);
  table.setNames(store.get().names === 'short');
  selectorBar.draw();
  rangeMenu.draw();
  search.draw();
  filterBar.draw();
  toolbar.draw();
  themed();
  for (const n of store.get().notices) toast(n);
  load();
  /* For tests and measurements: what is deterministic about the work done. */
  Object.defineProperty(window, 'strataCounters', { value: graph.counters });
  Object.defineProperty(window, 'strataGraph', { value: graph });
}
