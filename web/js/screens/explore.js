// SPDX-License-Identifier: Apache-2.0
/**
 * Explore: one selection, seen as graph, table or both. This module asks the questions and hands the
 * answers to the panels; the rooms in explore/ hold the picture, the time, the frame's acts and what is
 * loaded later, and each panel knows how to draw itself.
 */
import * as api from '../api.js';
import * as prefs from '../prefs.js';
import * as store from '../store.js';
import { nothing, render } from '../../vendor/lit-html/lit-html.js';
import { createA11yTree } from '../a11ytree.js';
import { copyLink } from '../copylink.js';
import { crumbs as crumbLine } from '../crumbs.js';
import { inspector, tip } from '../details.js';
import { reached, showError, stopRetry } from '../errorstate.js';
import { createFrameActs } from '../explore/frame.js';
import { createPanels } from '../explore/panels.js';
import { createPicture } from '../explore/picture.js';
import { createTime } from '../explore/time.js';
import { exploreKeys } from '../explorekeys.js';
import { createFilterBar } from '../filterbar.js';
import { added, filterOfSearch, keepsPaths } from '../filters.js';
import { flameParams, flamegraph, limited, shaped, width } from '../first.js';
import { count, percent } from '../fmt.js';
import { createGraph } from '../graph.js';
import { header, tellUpdate } from '../header.js';
import { listen } from '../keys.js';
import { createLive } from '../live.js';
import { drawNav, screenUrl } from '../nav.js';
import { announce, copy, tellNotices, toast } from '../notify.js';
import { createPins } from '../pins.js';
import { qualityLine } from '../quality.js';
import { createRangeMenu } from '../rangemenu.js';
import { createRows } from '../rows.js';
import { show } from '../safe.js';
import { parsePattern } from '../search.js';
import { createSearchBox } from '../searchbox.js';
import { createSelectorBar } from '../selectorbar.js';
import { takesPart, trySelector, writeSelector } from '../selector.js';
import * as states from '../states.js';
import { createTable } from '../table.js';
import { rangeText, toSpec } from '../time.js';
import { createToolbar } from '../toolbar.js';
import { findHash, hashOf } from '../tree.js';

const LATE_MS = 150;

/** @param {string} id @returns {HTMLElement} */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

export function start() {
  /** The range as the server resolved it: later questions about this picture are about the same samples. */
  /** @type {{from:string, to:string}|null} */ let fixed = null;
  /** @type {{types: Awaited<ReturnType<typeof api.types>>, labels: Awaited<ReturnType<typeof api.labels>>, for: string}} */
  let lists = { types: [], labels: [], for: '' };
  const slots = { lists: api.slot() };
  const tree = () => picture.tree();
  const everything = () => picture.flame?.unfiltered ?? 0;
  let tableTrouble = ''; // why the table has no rows

  /* ---- questions ---- */
  const asked = () => {
    const s = store.get();
    return { q: s.q, from: s.from, to: s.to };
  };
  /** The question about weights: with the filters. */
  const shown = () => ({ ...asked(), ...limited(), f: store.get().f });
  const same = () => ({ ...asked(), ...fixed });
  const sameShown = () => ({ ...shown(), ...fixed });

  /* ---- parts ---- */
  /** A function is pointed at, in the graph or in the table: both show where it is. @param {number} f @param {'graph'|'table'} from */
  function point(f, from) {
    const t = tree();
    graph.outline(f);
    if (from === 'graph') table.mark(t && f > 0 ? (t.funcs.key[f] ?? '') : '');
  }
  /** @type {typeof import('../later/lines.js')|null} */ let lines = null;
  const graph = createGraph({
    zoom: (n) => picture.zoom(n),
    hover: (n) => point(tree()?.func[n] ?? -1, 'graph'),
    menu(n, x, y) {
      picture.select(n);
      acts.open(x, y);
    },
    tip: (n, frames) => {
      const t = tree();
      if (!t) return null;
      const deepest = frames > 0 && t.func[n] < 0 && t.parent[n] === graph.root && graph.root === 0;
      return tip(picture.context(t), n, frames, deepest, frames ? '' : lines?.linesText(t.funcs, t.func[n]));
    },
    async rest(n) {
      const t = tree();
      if (!t) return false;
      lines ??= await import('../later/lines.js');
      return lines.learn(t.funcs, t.func[n], sameShown());
    },
  });
  const a11y = createA11yTree();
  const picture = createPicture(graph, a11y, {
    ask: (root) => flameParams(root, fixed),
    load: () => load({ again: true }),
    zoomed: afterZoom,
    selected(key) {
      table.select(key);
      drawInspector();
    },
  });
  const toGraph = () => a11y.el.focus({ preventScroll: true });
  const table = createTable({
    sort: (k) => store.set({ sort: k }, true),
    hover: (key) => point(picture.functionOf(key), 'table'),
    pick: (row) => {
      const n = picture.largest(picture.functionOf(row.key));
      table.select(row.key);
      if (n >= 0) picture.select(n);
      else announce(`${show(row.name)} is too small to be in the graph`);
    },
    more: () => rows.more(),
  });
  const time = createTime({
    fixed: () => fixed,
    marks() {
      if (store.get().more === 'steps') panels.showMore();
      if (store.get().view === 'compare') panels.showCompare(store.get().norm === 'step');
    },
    series() {
      if (store.get().more === 'series') panels.showMore();
    },
    step: (name, number) => store.set({ step: `${name}:${number}`, z: '', sel: '' }, true),
  });
  const { chart } = time;
  const selectorBar = createSelectorBar($('selector'), {
    q: () => store.get().q,
    step: () => store.get().step,
    dropStep: () => store.set({ step: '' }, true),
    change: (q) => store.set({ q, z: '', sel: '' }, true),
    values: (name, prefix) => {
      const s = trySelector(store.get().q);
      const q = s ? writeSelector({ ...s, matchers: s.matchers.filter((m) => m.name !== name) }) : '';
      return api.values(name, { ...same(), q, prefix: prefix || undefined, limit: 100 }, new AbortController().signal);
    },
  });
  const rangeMenu = createRangeMenu($('range'), {
    range: asked,
    change: (from, to) => store.set({ from, to }, true),
    refresh: () => load(),
    live: () => ({ ...live.state, can: store.get().to === 'now' }),
    toggleLive: () => live.toggle(),
    follow: () => live.follow(),
  });
  const search = createSearchBox($('search'), $('search-out'), {
    s: () => store.get().s,
    change: (s) => store.set({ s }),
    jump: (n) => picture.select(n),
    leave: toGraph,
    announce,
    filter: () => addFilter(filterOfSearch(parsePattern(store.get().s))),
    pin: () => store.set({ any: added(store.get().any, store.get().s), s: '', view: ['table', 'both'].includes(store.get().view) ? store.get().view : 'table' }, true),
  });
  const pins = createPins($('table'), {
    any: () => store.get().any,
    change: (any) => store.set({ any }, true),
    search: (s) => store.set({ s }),
    key: () => store.get().key,
    setKey: (key) => store.set({ key }, true),
    rows: () => rows.complete(),
    shown: () => rows.top,
    all: everything,
    name: () => picture.flame,
    range: () => fixed,
  });
  const filterBar = createFilterBar($('filters'), { f: () => store.get().f, change: setFilters });
  const acts = createFrameActs(graph, picture, { left: toGraph, filter: addFilter, sandwich: () => void panels.sandwichSelected(), link: () => link(false), only });
  const toolbar = createToolbar(
    { views: $('views'), options: $('options'), legend: $('legend') },
    {
      state: store.get,
      set: store.set,
      question: sameShown,
      width,
      labels: () => lists.labels,
      type: () => picture.flame?.type ?? null,
      curl: () => copy(api.curl('/flamegraph', { ...sameShown(), ...shaped(), max_nodes: 0 }), 'curl command copied'),
      folded: copyFolded,
      png: () => void savePicture('png'),
      svg: () => void savePicture('svg'),
      utc: () => prefs.get().utc,
      /* an instant to begin with: the end of what is shown */
      instant: () => toSpec(picture.flame?.range.to ?? Date.now()),
      print: () => window.print(),
      recolour,
      tree,
    },
  );
  const rows = createRows({
    question: () => ({ ...sameShown(), by: store.get().by || undefined, groups: store.get().by ? 4 : undefined }),
    match: () => search.asks(),
    state: store.get,
    show(trouble, longer) {
      recolour();
      tableTrouble = trouble;
      showTable(longer);
      pins.draw();
      if (!longer) drawInspector();
    },
    matched: (s, a) => search.setMatched(s, { functions: a.matched?.functions ?? a.rows.length, total: a.matched?.total ?? null, functionKeys: store.get().key === 'fn', keys: new Set(a.rows.map((r) => r.key)) }),
    refused: (s, message) => search.setError(s, message),
  });
  const live = createLive({
    can: () => store.get().to === 'now',
    busy: () => wrap.matches(':hover') || chart.dragging || document.body.dataset['state'] === 'loading',
    chart: async () => {
      if (!chart.dragging) await time.load();
    },
    load: () => load({ quiet: true }),
    draw: () => rangeMenu.draw(),
  });
  const panels = createPanels({
    question: sameShown,
    selection: same,
    width,
    flame: () => picture.flame,
    time,
    picture,
    graph,
    inspect: (c, n) => drawInspector(c, n),
    types: () => lists.types,
  });
  $('charts').append(chart.el);
  const wrap = document.createElement('div');
  wrap.className = 'graph-wrap';
  wrap.append(a11y.el, graph.el);
  $('graph').append(wrap);
  $('table').append(table.el);

  /* ---- filters ---- */
  /** @param {string[]} f */
  function setFilters(f) {
    const had = store.get().f;
    const moves = [...f, ...had].some((x) => f.includes(x) !== had.includes(x) && !keepsPaths(x));
    store.set(moves ? { f, z: '', sel: '' } : { f }, true);
    announce(f.length ? `${f.length} ${f.length === 1 ? 'filter' : 'filters'}` : 'No filters');
  }
  /** One group and no other: what it was grouped by is said by the selector from then on. @param {string} name @param {string} value */
  function only(name, value) {
    const sel = trySelector(store.get().q);
    if (sel) store.set({ q: writeSelector({ ...sel, matchers: [...sel.matchers, { name, op: '=', value }] }), by: '', z: '', sel: '' }, true);
  }
  /** @param {string} f */
  function addFilter(f) {
    setFilters(added(store.get().f, f));
  }
  function afterZoom() {
    const t = tree();
    if (!t) return;
    search.setView(t, graph.root, everything(), (picture.flame?.trim.nodes ?? 0) > 0);
    recolour();
    crumbs();
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
              states.loading(Math.floor((performance.now() - t0) / 1000), () => picture.slot.cancel(), !tree()),
              $('state'),
            );
          document.body.dataset['state'] = 'loading';
          draw();
          ticking = setInterval(draw, 500);
        }, LATE_MS);
    /* the picture's question goes first: few run at once */
    const asking = picture.slot.run((signal) => flamegraph(flameParams(s.z, again ? fixed : null), signal));
    if (!again) {
      time.load();
      loadLists();
    }
    /* at once with the answer: what follows may wait for more, and must not be covered by "loading" */
    const answered = () => {
      clearTimeout(late);
      clearInterval(ticking);
    };
    try {
      const a = await asking.finally(answered);
      if (mine !== loadNumber) return;
      reached();
      if (!again) picture.answers.clear();
      fixed = a.range.fromNs && a.range.toNs ? { from: `${a.range.fromNs}ns`, to: `${a.range.toNs}ns` } : null;
      selectorBar.setError('');
      rangeMenu.setError('');
      if (a.empty || !a.tree || a.tree.total[0] === 0) {
        picture.flame = a;
        graph.clear();
        a11y.clear();
        rows.clear();
        renderAll();
        panels.showMore();
        const { showEmpty } = await import('../later/emptystate.js');
        if (mine !== loadNumber) return;
        await showEmpty($('state'), a, { state: store.get, set: (patch) => store.set(patch, true), load: () => load(), widen: () => time.shift(0, 2) });
        return;
      }
      picture.keep(a);
      calm();
      if (!a.view.found && s.view !== 'compare') {
        toast('The frame of this link is not here: its nearest caller is shown');
        picture.flame = a; // so that the change below finds itself done
        store.set({ z: a.view.root });
      }
      const at = quiet && picture.flame && picture.flame.view.root === a.view.root && graph.root === 0 ? graph.scroller.scrollTop : 0;
      picture.adopt(a, 0, at);
      renderAll();
      if (!again) {
        rows.load();
        panels.showSandwich();
        panels.showCompare();
        panels.showMore();
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
  async function loadLists() {
    const { q, from, to } = asked();
    const key = `${q} ${from} ${to}`;
    if (lists.for === key) {
      slots.lists.cancel(); // those of what was left again must not come late in their place
      void captures();
      return;
    }
    try {
      await slots.lists.run(async (signal) => {
        const [types, labels] = await Promise.all([api.types({ from, to }, signal), api.labels({ q, from, to }, signal)]);
        lists = { types, labels, for: key };
        selectorBar.setLists(types, labels);
        toolbar.draw();
        quality();
        captures();
      });
    } catch (e) {
      /* pickers without suggestions still pick; the graph's own error says what is wrong */
      if (/** @type {Error} */ (e).name !== 'AbortError') lists.for = '';
    }
  }
  /** Captures that the selection does not speak of are added to all else: said, never silent. */
  async function captures() {
    const s = store.get(),
      sel = trySelector(s.q);
    const spoken = !sel || sel.matchers.some((m) => m.name === 'capture' || m.name === 'source');
    if (spoken || !lists.labels.some((l) => l.name === 'capture' && !l.attribute)) render(nothing, $('captures'));
    else (await import('../later/captures.js')).tellCaptures($('captures'), sel, { from: s.from, to: s.to }, (patch) => void store.set(patch, true), () => store.get().q === s.q);
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
      /* what can be narrowed by one press, where a question was too large */
      narrower: () => {
        const [a, b] = time.rangeMs();
        return b - a > 120e3 ? { text: 'A tenth of the time', run: () => time.shift(0.45, 0.1) } : null;
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
      inspector(of ?? picture.context(t), n, t.func[n] > 0 ? row : undefined, {
        copy: (name) => copy(name, 'Name copied'),
        zoom: () => picture.zoom(n),
        menu: acts.atSelected,
      }),
      $('inspector'),
    );
  }
  function crumbs() {
    const t = tree(),
      { flame } = picture;
    render(
      flame && t
        ? crumbLine(flame, t, graph.root, store.get().names === 'short', { zoom: (hash) => store.set({ z: hash, sel: hash }, true), out: picture.zoomOut })
        : nothing,
      $('crumbs'),
    );
  }
  function quality() {
    const { flame } = picture;
    if (!flame) {
      render(nothing, $('quality'));
      return;
    }
    const { trim } = flame,
      { more } = store.get();
    render(
      qualityLine(flame, {
        range: rangeText(store.get().from, store.get().to, Date.now(), prefs.get().utc),
        hidden: trim.nodes ? `${percent(trim.total, flame.view.total ?? 0)} in ${count(trim.nodes)} ${trim.nodes === 1 ? 'frame' : 'frames'}` : '',
        newest: newest(),
        narrow: takesPart(store.get().q),
        more,
        open: (which) => store.set({ more: more === which ? '' : which }, true),
      }),
      $('quality'),
    );
  }
  /** How long ago the newest sample of the type is, where the range ends now; NaN unknown. */
  function newest() {
    const ns = lists.types.find((t) => t.id === picture.flame?.type.id)?.lastNs ?? null;
    const end = picture.flame?.range.to ?? NaN;
    return store.get().to !== 'now' || ns === null ? NaN : end - ns / 1e6;
  }
  function recolour() {
    const t = tree();
    if (!t || !graph.tree) return;
    graph.setColours(store.get().color, search.lit() ?? toolbar.lit(t.funcs));
  }
  /** Where it is seen; as it is shown again where it comes into sight. @param {boolean} longer the same rows and more */
  function showTable(longer) {
    if (!['table', 'both'].includes(store.get().view)) return;
    const a = rows.top;
    table.set({
      rows: a?.rows ?? [],
      groups: a?.groups ?? [],
      type: a?.type ?? { id: '', name: '', unit: '', kind: '' },
      all: everything(),
      sort: store.get().sort,
      more: Boolean(a?.next),
      note: tableTrouble || (a && !a.rows.length ? 'No function matches.' : ''),
      keep: longer,
    });
  }
  function renderAll() {
    drawNav('explore', store.get());
    filterBar.setAnswer(picture.flame);
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

  /* ---- links and files ---- */
  /** @param {boolean} asIs */
  const link = (asIs) => copyLink(store.get(), picture.flame?.range, asIs);
  async function copyFolded() {
    const s = store.get();
    try {
      copy(await api.exported({ ...sameShown(), ...shaped(), root: s.z || undefined, format: 'folded' }, new AbortController().signal), 'Stacks copied, folded');
    } catch (e) {
      toast(`The stacks could not be copied: ${/** @type {Error} */ (e).message}`);
    }
  }
  /** @param {'png'|'svg'} kind */
  async function savePicture(kind) {
    const { flame } = picture,
      t = tree();
    if (!flame || !t) return;
    try {
      /* it stands alone: no word that means another time tomorrow */
      const about = { range: rangeText(toSpec(flame.range.from), toSpec(flame.range.to), 0, true), q: store.get().q, f: store.get().f };
      if (kind === 'png') await (await import('../later/png.js')).savePng(graph, flame, t, about);
      else (await import('../later/svg.js')).saveSvg(graph, flame, t, about);
    } catch (e) {
      toast(`The picture could not be made: ${/** @type {Error} */ (e).message}`);
    }
  }
  /* ---- header ---- */
  function themed() {
    header($('acts'), { help: showHelp, link });
    graph.theme();
    panels.theme();
    const c = graph.colours;
    if (c) chart.setColours(c);
  }
  prefs.subscribe(() => {
    chart.setUtc(prefs.get().utc);
    themed();
    renderAll();
    panels.showMore();
  });
  for (const q of ['(prefers-color-scheme: dark)', '(prefers-contrast: more)', '(forced-colors: active)']) matchMedia(q).addEventListener('change', themed);
  /* paper is white: what is drawn by canvas has to be drawn for it */
  for (const [when, theme] of /** @type {const} */ ([['beforeprint', 'light'], ['afterprint', '']]))
    addEventListener(when, () => {
      const { dataset } = document.documentElement,
        { theme: mine } = prefs.get();
      if (theme || mine !== 'auto') dataset['theme'] = theme || mine;
      else delete dataset['theme'];
      themed();
      graph.drawNow();
    });
  tellUpdate();

  /* ---- keys ---- */
  /** @type {{show: () => void}|null} */ let help = null;
  async function showHelp() {
    try {
      help ??= (await import('../later/help.js')).helpDialog(bindings);
      help.show();
    } catch (e) {
      toast(`The list of keys could not be loaded: ${/** @type {Error} */ (e).message}`);
    }
  }
  const bindings = exploreKeys({
    set: (patch) => void store.set(patch, true),
    go(way) {
      const n = graph.neighbour(way);
      if (n >= 0) picture.select(n);
    },
    zoom: () => picture.zoom(graph.selected),
    zoomOut: picture.zoomOut,
    filter: (verb) => acts.filter(verb)(),
    collapse: () => addFilter('collapse:recursion'),
    menu: acts.atSelected,
    sandwich: () => void panels.sandwichSelected(),
    copyName: acts.copyName,
    copyStack: acts.copyStack,
    lines: acts.lines,
    invert: () => store.set({ invert: store.get().invert ? '' : '1', z: '', sel: '' }, true),
    quality: () => store.set({ more: store.get().more === 'quality' ? '' : 'quality' }, true),
    toQuality: () => location.assign(screenUrl('quality', store.get())),
    steps() {
      const which = store.get().view === 'compare' ? 'steptime' : 'steps';
      store.set({ more: store.get().more === which ? '' : which }, true);
    },
    match: (step) => search.step(step),
    search: () => search.focus(),
    swap: panels.swap,
    range: () => rangeMenu.open(),
    shift: time.shift,
    refresh: () => load(),
    live: () => live.toggle(),
    link: () => link(false),
    back() {
      if (graph.magnified) graph.unmagnify();
      else if (store.get().s) store.set({ s: '' });
      else if (store.get().more) store.set({ more: '' }, true);
      else picture.zoomOut();
    },
    help: showHelp,
  });
  listen(bindings);

  let topLater = 0;
  store.subscribe((s, changed) => {
    const any = (/** @type {string[]} */ ...keys) => keys.some((k) => changed.has(k));
    if (any('q', 'f', 'from', 'to', 'by', 'step', 'invert', 'agg', 'at')) {
      selectorBar.setError('');
      rangeMenu.setError('');
      if (s.to !== 'now' && live.state.on) live.toggle();
      selectorBar.draw();
      rangeMenu.draw();
      filterBar.setAnswer(null);
      toolbar.draw();
      time.setRange();
      if (any('step')) time.show();
      rows.everywhere.clear();
      load();
    } else if (changed.has('z') && s.view === 'compare') panels.zoomCompare();
    else if (picture.flame?.tree && (changed.has('z') || (changed.has('view') && s.view !== 'compare' && hashOf(picture.flame.tree, graph.root) !== s.z))) {
      if (!(picture.flame.view.root === s.z && graph.root === 0 && graph.tree === picture.flame.tree)) picture.show(s.z);
    } else if (changed.has('sel') && tree()) {
      const t = tree(),
        n = t && s.sel ? findHash(t, s.sel) : graph.root;
      if (t && n >= graph.root && n < t.end[graph.root] && n !== graph.selected) picture.select(n, true);
    }
    if (changed.has('s')) {
      search.draw();
      recolour();
      clearTimeout(topLater);
      if (picture.flame?.tree) topLater = setTimeout(rows.load, 250);
    }
    if (any('sort', 'any', 'key')) {
      pins.draw();
      rows.load();
    }
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
    if (any('view', 'fn', 'in')) panels.showSandwich();
    if (any('view', 'a_q', 'a_from', 'a_to', 'norm', 'order') && !changed.has('from')) {
      if (any('view', 'a_from', 'a_to')) time.load();
      panels.showCompare();
      if (s.more === 'steptime') panels.showMore();
    }
    if (changed.has('lane')) time.show();
    if (any('more', 'lane', 'skip', 'rank')) {
      panels.showMore();
      if (s.view === 'compare') panels.showCompare(false);
      quality();
    }
    if (any('color', 'names')) panels.redraw();
    if (changed.has('view')) {
      toolbar.draw();
      if (s.view !== 'sandwich') drawInspector();
      showTable(true);
    }
  });

  chart.setUtc(prefs.get().utc);
  table.setNames(store.get().names === 'short');
  load(); // the server has its work while the rest is drawn
  selectorBar.draw();
  rangeMenu.draw();
  search.draw();
  filterBar.draw();
  toolbar.draw();
  pins.draw();
  themed();
  tellNotices(store.get().notices);
  /* For tests and measurements: what is deterministic about the work done. */
  Object.defineProperty(window, 'strataCounters', { value: graph.counters });
  Object.defineProperty(window, 'strataGraph', { value: graph });
}
