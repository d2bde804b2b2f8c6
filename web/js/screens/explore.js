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
import { createChart } from '../chart.js';
import { windowFor } from '../chartmath.js';
import { inspector, label, sentence, tip } from '../details.js';
import { count, percent, total } from '../fmt.js';
import { createGraph } from '../graph.js';
import { icon } from '../icons.js';
import { helpDialog, listen } from '../keys.js';
import { createMenu } from '../menu.js';
import { ORIGIN_TEXT, ORIGINS, originOf } from '../origin.js';
import { qualityLine } from '../quality.js';
import { createRangeMenu } from '../rangemenu.js';
import { safeUrl, show } from '../safe.js';
import { createSearchBox } from '../searchbox.js';
import { createSelectorBar } from '../selectorbar.js';
import { parseSelector, trySelector, writeMatcher, writeSelector } from '../selector.js';
import * as states from '../states.js';
import { createTable } from '../table.js';
import { dateTime, isRelative, moved, rangeText, span, toMs, toSpec } from '../time.js';
import { BadAnswer, findHash, hashOf, hiddenBelow, pathTo } from '../tree.js';
import { encode } from '../url.js';

const LATE_MS = 150;
const LIVE_MS = 5000;
const LIVE_MOST_MS = 60_000;
const SELECT_MS = 150; // holding an arrow key must not flood the history
const MAX_NODES = 20_000;
const MAX_WIDTH = 7680;
const ROWS = 200;
const MATCH_ROWS = 2000;
const POINTS = 600;
const WORTH_ASKING = 0.01; // of a frame's value hidden below it
const ANSWERS_KEPT = 8;

const VIEWS = /** @type {const} */ ([
  ['flame', 'Flame', '1'],
  ['both', 'Both', 'b'],
  ['table', 'Table', '2'],
]);

/** @param {string} id @returns {HTMLElement} */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
/** @param {string} text */
const announce = (text) => {
  $('live').textContent = text;
};
const frame = () => new Promise((ok) => requestAnimationFrame(ok));

export function start() {
  /** What is drawn, and what else was answered for this selection, by root hash. */
  /** @type {api.Flame|null} */ let flame = null;
  /** @type {Map<string, api.Flame>} */ const answers = new Map();
  /** The range as the server resolved it: later questions about this picture are about the same samples. */
  /** @type {{from:string, to:string}|null} */ let fixed = null;
  /** @type {api.Series|null} */ let series = null;
  /** @type {api.Top|null} */ let top = null;
  /** @type {Map<string, api.TopRow>} */ const everywhere = new Map(); // by function key
  /** @type {{types: Awaited<ReturnType<typeof api.types>>, labels: Awaited<ReturnType<typeof api.labels>>, for: string}} */
  let lists = { types: [], labels: [], for: '' };
  let origin = -1; // lit by the legend, -1 none
  /** @type {{on:boolean, waiting:boolean, trouble:string, wait:number, timer:number}} */
  const live = { on: false, waiting: false, trouble: '', wait: LIVE_MS, timer: 0 };
  const slots = { flame: api.slot(), series: api.slot(), top: api.slot(), more: api.slot(), lists: api.slot(), empty: api.slot() };
  const tree = () => flame?.tree ?? null;
  const everything = () => flame?.unfiltered ?? 0;

  /* ---- questions ---- */
  const asked = () => {
    const s = store.get();
    return { q: s.q, from: s.from, to: s.to };
  };
  const same = () => ({ ...asked(), ...fixed });
  const width = () => Math.min(MAX_WIDTH, Math.max(320, Math.round($('panes').clientWidth * (devicePixelRatio || 1))));
  const flameParams = (/** @type {string} */ root, again = false) => ({
    ...(again ? same() : asked()),
    width: width(),
    max_nodes: MAX_NODES,
    root: root || undefined,
  });

  /* ---- parts ---- */
  const graph = createGraph({
    zoom: (n) => zoom(n),
    hover: () => {},
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
    more: moreRows,
  });
  const chart = createChart({
    onRange: (a, b) => store.set({ from: toSpec(a), to: toSpec(b), ...unzoomed }, true),
    onClear: () => {
      const [a, b] = chart.window;
      const rel = wide && isRelative(wide.from) && wide.to === 'now';
      store.set({ from: rel && wide ? wide.from : toSpec(a), to: rel ? 'now' : toSpec(b) }, true);
    },
  });
  /** the range that the chart's window came from, to go back to it */
  /** @type {{from:string, to:string}|null} */ let wide = null;
  const unzoomed = {};
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
    live: () => ({ ...live, can: store.get().to === 'now' }),
    toggleLive,
  });
  const search = createSearchBox($('search'), $('search-out'), {
    s: () => store.get().s,
    change: (s) => store.set({ s }),
    jump: (n) => select(n),
    leave: () => a11y.el.focus({ preventScroll: true }),
    announce,
  });
  $('charts').append(chart.el);
  const wrap = document.createElement('div');
  wrap.className = 'graph-wrap';
  wrap.append(a11y.el, graph.el);
  $('graph').append(wrap);
  $('table').append(table.el);
  const exportMenu = createMenu($('options'), options);

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
  let loadNumber = 0,
    retryTimer = 0;
  /**
   * @param {{again?: boolean, quiet?: boolean}} [how] again: the same samples, another root; quiet: live,
   *   no state is shown while it runs and the old picture stays when it fails
   */
  async function load({ again = false, quiet = false } = {}) {
    const mine = ++loadNumber;
    clearInterval(retryTimer);
    live.waiting = false;
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
        await showEmpty(a);
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
      if (!again) loadTop();
    } catch (e) {
      if (mine !== loadNumber) return;
      if (/** @type {Error} */ (e).name === 'AbortError') {
        if (document.body.dataset['state'] === 'loading') calm();
        return;
      }
      if (quiet) throw e;
      showError(/** @type {Error} */ (e));
    }
  }
  function calm() {
    delete document.body.dataset['state'];
    render(nothing, $('state'));
  }
  async function loadSeries() {
    const r = rangeMs();
    const before = wide && chart.window[1] > 1 ? chart.window : null;
    const win = windowFor(r, isRelative(store.get().from) || isRelative(store.get().to), before);
    const relative = win[0] === r[0] && win[1] === r[1];
    if (relative) wide = { from: store.get().from, to: store.get().to };
    else if (!wide || before !== win) wide = { from: toSpec(win[0]), to: toSpec(win[1]) };
    const range = relative ? asked() : { from: toSpec(win[0]), to: toSpec(Math.min(win[1], Math.max(r[1], Date.now()))) };
    try {
      series = await slots.series.run((signal) => api.timeseries({ q: store.get().q, ...range, points: POINTS }, signal));
      chart.setData(series.n ? series : null, relative && series.n && Number.isFinite(series.to) ? [series.from, series.to] : win, 'no data');
    } catch (e) {
      if (/** @type {Error} */ (e).name === 'AbortError') return;
      series = null;
      chart.setData(null, win, 'no data');
    }
    setChartRange();
  }
  /** The URL's range in milliseconds. */
  function rangeMs() {
    const s = store.get(),
      now = Date.now();
    return /** @type {[number, number]} */ ([toMs(s.from, now), toMs(s.to, now)]);
  }
  function setChartRange() {
    const s = store.get();
    if (isRelative(s.from) && s.to === 'now') chart.setRange(...chart.window);
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
  let topLater = 0;
  /** Rows of the table, and with a search the exact matched sum. */
  async function loadTop() {
    clearTimeout(topLater);
    const { s, sort } = store.get();
    const asks = search.asks();
    try {
      const a = await slots.top.run((signal) =>
        api.top({ ...same(), sort, limit: asks ? MATCH_ROWS : ROWS, match: asks || undefined }, signal),
      );
      top = a;
      for (const r of a.rows) everywhere.set(r.key, r);
      if (asks) search.setMatched(s, { functions: a.matched?.functions ?? a.rows.length, total: a.matched?.total ?? null, keys: new Set(a.rows.map((r) => r.key)) });
      recolour();
      showTable(false);
      drawInspector();
    } catch (e) {
      if (/** @type {Error} */ (e).name === 'AbortError') return;
      top = null;
      if (asks && e instanceof api.ApiError && e.status < 500 && e.status) search.setError(s, e.message);
      showTable(false, /** @type {Error} */ (e).message);
    }
  }
  async function moreRows() {
    const had = top;
    if (!had?.next || moreRows.busy) return;
    moreRows.busy = true;
    try {
      const a = await slots.more.run((signal) =>
        api.top({ ...same(), sort: store.get().sort, limit: ROWS, match: search.asks() || undefined, after: had.next }, signal),
      );
      if (top !== had) return;
      top = { ...had, rows: [...had.rows, ...a.rows], next: a.next };
      for (const r of a.rows) everywhere.set(r.key, r);
      showTable(true);
    } catch (e) {
      if (top === had && /** @type {Error} */ (e).name !== 'AbortError') {
        top = { ...had, next: '' };
        showTable(true, `More rows could not be loaded: ${/** @type {Error} */ (e).message}`);
      }
    } finally {
      moreRows.busy = false;
    }
  }
  moreRows.busy = false;

  /* ---- live ---- */
  function toggleLive() {
    live.on = !live.on && store.get().to === 'now';
    live.waiting = false;
    live.trouble = '';
    live.wait = LIVE_MS;
    rangeMenu.draw();
    announce(live.on ? 'Live: new data every 5 seconds' : 'Live is off');
    schedule();
  }
  function schedule() {
    clearTimeout(live.timer);
    if (live.on && !document.hidden) live.timer = setTimeout(tick, live.wait);
  }
  async function tick() {
    if (store.get().to !== 'now') {
      live.on = false;
      rangeMenu.draw();
      return;
    }
    try {
      /* the graph stays still under the pointer; the chart may go on */
      if (wrap.matches(':hover') || chart.dragging || document.body.dataset['state'] === 'loading') {
        if (!chart.dragging) await loadSeries();
        live.waiting = true;
      } else await load({ quiet: true });
      live.trouble = '';
      live.wait = LIVE_MS;
    } catch (e) {
      live.wait = Math.min(LIVE_MOST_MS, live.wait * 2);
      live.trouble = `${/** @type {Error} */ (e).message} Next try in ${span(live.wait)}.`;
    }
    rangeMenu.draw();
    schedule();
  }
  document.addEventListener('visibilitychange', schedule);

  /* ---- states ---- */
  /** @param {api.Flame} a */
  async function showEmpty(a) {
    const e = a.empty ?? { why: a.tree ? 'zero' : 'unknown', matcher: '', lastNs: null };
    graph.clear();
    a11y.clear();
    top = null;
    showTable(false);
    renderAll();
    document.body.dataset['state'] = 'empty';
    const s = trySelector(store.get().q);
    /** @type {import('../selector.js').Matcher|null} */ let m = null;
    try {
      m = e.matcher ? (parseSelector(`{${e.matcher}}`).matchers[0] ?? null) : null;
    } catch {
      /* said as text only */
    }
    const without = s && m ? { ...s, matchers: s.matchers.filter((x) => m === null || writeMatcher(x) !== writeMatcher(m)) } : null;
    const lastMs = e.lastNs ? e.lastNs / 1e6 : 0;
    /** @type {import('../states.js').EmptyView} */
    const view = {
      why: e.why,
      matcher: e.matcher,
      range: rangeText(store.get().from, store.get().to, Date.now(), prefs.get().utc).replace(/^Last/, 'the last'),
      last: lastMs ? dateTime(lastMs, prefs.get().utc) : '',
      covered: `${span((a.quality.coveredNs ?? 0) / 1e6)} of ${span((a.quality.askedNs ?? 0) / 1e6)}`,
      type: s?.type ?? '',
      known: [],
      agents: [],
      origin: location.origin,
    };
    /* what is so already is asked again: a button always does something */
    const set = (/** @type {Partial<import('../url.js').State>} */ patch) => {
      if (!store.set({ z: '', sel: '', ...patch }, true)) load();
    };
    const acts = {
      drop: () => set({ q: without ? writeSelector(without) : (s?.type ?? 'cpu') }),
      use: (/** @type {string} */ v) => {
        if (e.why === 'type_absent' && s) set({ q: writeSelector({ ...s, type: v }) });
        else if (without && m) set({ q: writeSelector({ ...without, matchers: [...without.matchers, { name: m.name, op: '=', value: v }] }) });
      },
      last: () => set({ from: toSpec(lastMs - 15 * 60e3), to: toSpec(lastMs + 1000) }),
      recent: () => set({ from: 'now-1h', to: 'now' }),
      retry: () => load(),
      widen: () => shift(0, 2),
    };
    const draw = () => render(states.empty(view, acts), $('state'));
    draw();
    /* what would help, asked only here */
    try {
      await slots.empty.run(async (signal) => {
        if (e.why === 'no_match' && without && m)
          view.known = await api.values(m.name, { ...asked(), q: writeSelector(without), limit: 12 }, signal);
        else if (e.why === 'type_absent')
          view.known = (await api.types({ from: store.get().from, to: store.get().to }, signal)).map((/** @type {{name:string}} */ t) => t.name);
        else if (e.why === 'never_ingested' || e.why === 'no_agent_in_range') {
          const st = await api.status(signal);
          view.agents = st.agents.slice(0, 6).map((g) => {
            const bad = g.sources.find((x) => x.state && x.state !== 'ok');
            return {
              host: g.host,
              seen: g.lastNs ? `last seen ${dateTime(g.lastNs / 1e6, prefs.get().utc)}` : 'never seen',
              trouble: bad ? `${bad.name}: ${bad.state}${bad.why ? ` (${bad.why})` : ''}` : '',
            };
          });
        }
      });
    } catch {
      return; // the state stands without it
    }
    if (document.body.dataset['state'] === 'empty') draw();
  }
  /** @param {Error} e */
  function showError(e) {
    const bad = e instanceof BadAnswer;
    const x =
      e instanceof api.ApiError
        ? e
        : { message: e.message, code: bad ? 'bad_answer' : 'client', requestId: '', status: bad ? 200 : 1, retryAfter: 0, param: '' };
    if (!(e instanceof api.ApiError) && !bad) console.error(e);
    document.body.dataset['state'] = 'error';
    if (x.param === 'q') selectorBar.setError(x.message);
    if (x.param === 'from' || x.param === 'to') rangeMenu.setError(x.message);
    let left = x.status === 503 ? Math.max(1, Math.ceil(x.retryAfter || 2)) : 0;
    const draw = () =>
      render(
        states.error(x, left, {
          retry: () => load(),
          curl: () => copy(api.curl('/flamegraph', flameParams(store.get().z)), 'curl command copied'),
        }),
        $('state'),
      );
    draw();
    selectorBar.draw();
    toolbar();
    if (left)
      retryTimer = setInterval(() => {
        if (--left > 0) draw();
        else {
          clearInterval(retryTimer);
          load();
        }
      }, 1000);
  }

  /* ---- panels ---- */
  function drawInspector() {
    const t = tree();
    const n = graph.selected;
    $('inspector').classList.toggle('at-root', n === graph.root);
    if (!t || !graph.tree) {
      render(nothing, $('inspector'));
      return;
    }
    const row = everywhere.get(t.funcs.key[t.func[n]] ?? '');
    render(
      inspector(context(t), n, t.func[n] > 0 ? row : undefined, {
        copy: (name) => copy(name, 'Name copied'),
        zoom: () => zoom(n),
      }),
      $('inspector'),
    );
  }
  function crumbs() {
    const t = tree();
    if (!t) {
      render(nothing, $('crumbs'));
      return;
    }
    const c = context(t);
    const steps = [
      ...(flame?.view.path.slice(0, -1) ?? []).map((p) => ({ name: p.name, hash: p.hash })),
      ...pathTo(t, graph.root).map((n) => ({ name: t.funcs.name[t.func[n]] ?? '', hash: hashOf(t, n) })),
    ];
    const shown = steps.length > 5 ? [steps[0], null, ...steps.slice(-3)] : steps;
    const value = t.total[graph.root],
      zoomed = steps.length > 1,
      all = everything();
    const q = flame?.quality;
    render(
      html`<ol>
          ${shown.map((p, i) =>
            !p
              ? html`<li>…</li>`
              : i === shown.length - 1
                ? html`<li aria-current="true"><bdi class=${zoomed ? 'mono' : ''}>${label1(p.name, c.short)}</bdi></li>`
                : html`<li>
                    <button class="crumb" type="button" @click=${() => store.set({ z: p.hash, sel: p.hash }, true)}><bdi>${label1(p.name, c.short)}</bdi></button>
                  </li>`,
          )}
        </ol>
        <span class="crumb-sum"
          ><b>${total(value, c.type)}</b>${
            zoomed ? html` · ${percent(value, all)} of ${total(all, c.type)}` : q?.sources ? html` from ${count(q.sources)} ${q.sources === 1 ? 'source' : 'sources'}` : nothing
          }</span
        >${zoomed ? html`<button class="button small" type="button" title="Zoom out (Backspace)" @click=${zoomOut}>${icon('up')}Out</button>` : nothing}`,
      $('crumbs'),
    );
  }
  /** @param {string} name @param {boolean} short */
  const label1 = (name, short) => label({ tree: /** @type {any} */ ({ funcs: { name: [name] }, func: [0] }), short, type: NONE, root: 0, everything: 0, parentOfRoot: NaN, periodic: false }, 0);
  const NONE = { id: '', name: '', unit: '', kind: '' };

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
  function toolbar() {
    const s = store.get();
    document.body.dataset['view'] = s.view;
    render(
      VIEWS.map(
        ([v, text, key]) =>
          html`<button class="tab" type="button" aria-pressed=${s.view === v} title="${text} (${key})" data-tab=${v} @click=${() => store.set({ view: v }, true)}>${text}</button>`,
      ),
      $('views'),
    );
    options();
    legend();
  }
  function options() {
    const s = store.get();
    const pick = (/** @type {'color'|'names'} */ key, /** @type {string} */ text, /** @type {string[]} */ list) =>
      html`<label class="option"
        >${text}<select class="select" @change=${(/** @type {Event} */ e) => store.set({ [key]: /** @type {HTMLSelectElement} */ (e.target).value })}>
          ${list.map((v) => html`<option value=${v} .selected=${v === s[key]}>${v}</option>`)}
        </select></label
      >`;
    const link = (/** @type {string} */ format, /** @type {string} */ text) =>
      html`<a class="pick" download href=${safeUrl(api.address('/export', { ...same(), format }))} @click=${() => exportMenu.close()}>${text}</a>`;
    render(
      html`${pick('color', 'colour', ['origin', 'binary'])}${pick('names', 'names', ['short', 'full'])}<span class="menu-anchor"
          ><button class="button" type="button" aria-expanded=${exportMenu.open} @click=${exportMenu.toggle}>${icon('save')}Export</button>${
            exportMenu.open
              ? html`<div class="menu-panel picks right">
                  ${link('folded', 'Folded stacks')}${link('svg', 'Picture (SVG)')}
                  <button class="pick" type="button" @click=${() => { exportMenu.close(); copy(api.curl('/flamegraph', { ...same(), max_nodes: 0 }), 'curl command copied'); }}>Copy as curl (JSON)</button>
                </div>`
              : nothing
          }</span
        >`,
      $('options'),
    );
  }
  function legend() {
    const t = tree(),
      s = store.get();
    $('legend').hidden = !t;
    if (!t) return;
    const origins = new Set(t.funcs.kind.map((k, i) => (i ? originOf(k, t.funcs.bin[i] ?? '') : -1)));
    const press = (/** @type {number} */ i) => {
      origin = origin === i ? -1 : i;
      recolour();
      legend();
    };
    const fixedItem = (/** @type {string} */ cls, /** @type {string} */ text) =>
      html`<span class="legend-item fixed"><i class="swatch ${cls}" aria-hidden="true"></i>${text}</span>`;
    render(
      html`${
        s.color === 'binary'
          ? html`<span class="legend-note">one colour a binary</span>`
          : ORIGIN_TEXT.map((text, i) =>
              origins.has(i) && i !== ORIGINS.length - 1
                ? html`<button class="legend-item" type="button" aria-pressed=${origin === i} title="Show only ${text}" @click=${() => press(i)}>
                    <i class="swatch o-${ORIGINS[i] ?? ''}" aria-hidden="true"></i>${text}
                  </button>`
                : nothing,
            )
      }${fixedItem('p-unsym', 'no symbol')}${fixedItem('p-nostack', 'no stack')}${fixedItem('p-hidden', 'small')}`,
      $('legend'),
    );
  }
  function recolour() {
    const t = tree();
    if (!t || !graph.tree) return;
    const lit =
      search.lit() ??
      (origin >= 0 ? Uint8Array.from(t.funcs.kind, (k, f) => (f && originOf(k, t.funcs.bin[f] ?? '') === origin ? 1 : 0)) : null);
    graph.setColours(store.get().color, lit);
  }
  /** @param {boolean} longer the same rows and more @param {string} [trouble] */
  function showTable(longer, trouble = '') {
    const a = top;
    table.set({
      rows: a?.rows ?? [],
      type: a?.type ?? NONE,
      all: everything(),
      sort: store.get().sort,
      more: Boolean(a?.next),
      note: trouble ? `The table could not be loaded: ${trouble}` : a && !a.rows.length ? 'No function matches.' : '',
      keep: longer,
    });
  }
  function renderAll() {
    selectorBar.draw();
    rangeMenu.draw();
    toolbar();
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
  /** navigator.clipboard is undefined on plain HTTP: textarea and execCommand. @param {string} text @param {string} said */
  async function copy(text, said) {
    let done = false;
    if (navigator.clipboard) done = await navigator.clipboard.writeText(text).then(() => true, () => false);
    if (!done) {
      const t = document.createElement('textarea');
      t.className = 'sr';
      t.value = text;
      document.body.append(t);
      t.select();
      done = document.execCommand('copy');
      t.remove();
    }
    if (done) toast(said);
    else prompt('Copy this:', text);
  }
  /** A link to what is seen: relative times become fixed ones, unless Alt is held. @param {boolean} asIs */
  function copyLink(asIs) {
    const s = store.get();
    const r = flame?.range;
    const freeze = !asIs && r && Number.isFinite(r.from) && (isRelative(s.from) || isRelative(s.to));
    copy(location.origin + location.pathname + encode(freeze ? { ...s, from: toSpec(r.from), to: toSpec(r.to) } : s), freeze ? 'Link copied, with fixed times' : 'Link copied');
  }
  /** @param {string} text */
  function toast(text) {
    const t = document.createElement('div');
    t.className = 'toast';
    t.setAttribute('role', 'status');
    t.textContent = text;
    document.body.append(t);
    setTimeout(() => t.remove(), 3000);
  }

  /* ---- header ---- */
  function header() {
    const p = prefs.get();
    const theme = `Theme: ${p.theme === 'auto' ? 'as the system' : p.theme}`;
    render(
      html`<button class="button ghost" type="button" aria-pressed=${p.utc} title="Times in UTC or local time" @click=${() => prefs.set({ utc: !p.utc })}>UTC</button
        ><button class="button square ghost" type="button" id="theme" aria-label=${theme} title=${theme} @click=${() => prefs.set({ theme: prefs.nextTheme() })}>
          ${icon(p.theme === 'auto' ? 'auto' : p.theme === 'light' ? 'sun' : 'moon')}</button
        ><button class="button square ghost" type="button" id="help" aria-label="Keyboard help" title="Keyboard help (?)" @click=${() => help.show()}>?</button
        ><button class="button" type="button" id="copy" title="Copy link with fixed times (y); Alt keeps relative ones" @click=${(/** @type {MouseEvent} */ e) => copyLink(e.altKey)}>Copy link</button>`,
      $('acts'),
    );
  }
  function themed() {
    header();
    graph.theme();
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
  const go = (/** @type {'up'|'down'|'left'|'right'} */ way) => () => {
    const n = graph.neighbour(way);
    if (n >= 0) select(n);
  };
  /** @type {import('../keys.js').Binding[]} */
  const bindings = [
    { keys: ['ArrowUp'], text: 'caller', run: go('up'), where: 'graph' },
    { keys: ['ArrowDown'], text: 'widest callee', run: go('down'), where: 'graph' },
    { keys: ['ArrowLeft', 'ArrowRight'], text: 'sibling', run: (e) => go(e.key === 'ArrowLeft' ? 'left' : 'right')(), where: 'graph' },
    { keys: ['Enter'], text: 'zoom to the frame', run: () => zoom(graph.selected), where: 'graph' },
    { keys: ['Backspace'], text: 'zoom out', run: zoomOut, where: 'graph' },
    { keys: ['Home'], text: 'whole view', run: () => store.set({ z: '', sel: '' }, true), where: 'graph' },
    { keys: ['c'], text: 'copy the name', run: () => { const t = tree(); if (t) copy(t.funcs.name[t.func[graph.selected]] ?? '', 'Name copied'); }, where: 'graph' },
    { keys: ['n', 'N'], text: 'next, previous match', run: (e) => search.step(e.key === 'n' ? 1 : -1) },
    { keys: ['/'], text: 'search', run: () => search.focus() },
    { keys: ['1'], text: 'flame graph', run: () => store.set({ view: 'flame' }, true) },
    { keys: ['b'], text: 'graph and table', run: () => store.set({ view: 'both' }, true) },
    { keys: ['2'], text: 'table', run: () => store.set({ view: 'table' }, true) },
    { keys: ['t'], text: 'time range', run: () => rangeMenu.open() },
    { keys: ['[', ']'], text: 'half a range back, forward', run: (e) => shift(e.key === '[' ? -0.5 : 0.5, 1) },
    { keys: ['-', '='], text: 'wider, narrower range', run: (e) => shift(0, e.key === '-' ? 2 : 0.5) },
    { keys: ['r'], text: 'refresh', run: () => load() },
    { keys: ['L'], text: 'live', run: toggleLive },
    { keys: ['y'], text: 'copy link', run: () => copyLink(false) },
    {
      keys: ['Escape'],
      text: 'back one level: lens, search, zoom',
      run: () => {
        if (graph.magnified) graph.unmagnify();
        else if (store.get().s) store.set({ s: '' });
        else zoomOut();
      },
    },
    { keys: ['?'], text: 'this help', run: () => help.show() },
  ];
  const help = helpDialog(bindings);
  listen(bindings);

  store.subscribe((s, changed) => {
    if (changed.has('q') || changed.has('from') || changed.has('to')) {
      selectorBar.setError('');
      rangeMenu.setError('');
      if (s.to !== 'now' && live.on) toggleLive();
      selectorBar.draw();
      rangeMenu.draw();
      setChartRange();
      everywhere.clear();
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
      if (flame?.tree) topLater = setTimeout(loadTop, 250);
    }
    if (changed.has('sort')) loadTop();
    if (changed.has('color')) {
      recolour();
      toolbar();
    }
    if (changed.has('names')) {
      graph.setNames(s.names === 'short');
      table.setNames(s.names === 'short');
      toolbar();
      crumbs();
      drawInspector();
    }
    if (changed.has('view')) {
      toolbar();
      showTable(true);
    }
  });

  chart.setUtc(prefs.get().utc);
  table.setNames(store.get().names === 'short');
  selectorBar.draw();
  rangeMenu.draw();
  search.draw();
  toolbar();
  themed();
  for (const n of store.get().notices) toast(n);
  load();
  /* For tests and measurements: what is deterministic about the work done. */
  Object.defineProperty(window, 'strataCounters', { value: graph.counters });
  Object.defineProperty(window, 'strataGraph', { value: graph });
}
