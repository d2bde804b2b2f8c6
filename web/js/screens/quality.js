// SPDX-License-Identifier: Apache-2.0
/**
 * Quality: can the numbers be believed? Who looked when, what was lost and why, how well stacks were read and
 * named, the agents' own sums and cost, the store. One selection and range, as in Explore; each card asks for itself.
 */
import * as api from '../api.js';
import * as prefs from '../prefs.js';
import * as store from '../store.js';
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { copyLink } from '../copylink.js';
import { showEmpty } from '../later/emptystate.js';
import { count, percent, sig3 } from '../fmt.js';
import { header, tellUpdate } from '../header.js';
import { icon } from '../icons.js';
import { listen } from '../keys.js';
import { binaries, binaryTable, lossTable } from '../later/datatables.js';
import * as data from '../later/qualitydata.js';
import * as parts from '../later/qualityparts.js';
import { createLazyChart } from '../lazychart.js';
import { createLive } from '../live.js';
import { drawNav, screenUrl } from '../nav.js';
import { tellNotices, toast } from '../notify.js';
import { colours } from '../paint.js';
import { createRangeMenu } from '../rangemenu.js';
import { show } from '../safe.js';
import { createSelectorBar } from '../selectorbar.js';
import { trySelector, writeSelector } from '../selector.js';
import { level, shares } from '../shares.js';
import { moved, toMs, toSpec } from '../time.js';

const EVERY_MS = 15_000;
const EVENTS = 1000;
const LATE_MS = 150;
const exactTime = (/** @type {number} */ ns) => (ns < 1e6 ? `${sig3(ns / 1e3)}\u202fµs` : `${sig3(ns / 1e6)}\u202fms`);
const BEYOND = '/^\\[(truncated|no stack)/';

/** @param {HTMLElement} main empty; what is drawn stands in it */
export function start(main) {
  const make = (/** @type {string} */ tag, /** @type {string} */ name, /** @type {Record<string, string>} */ attributes = {}) => {
    const e = document.createElement(tag);
    e.className = name;
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    return e;
  };
  const title = make('h1', 'sr');
  title.textContent = 'Quality';
  const selectorEl = make('div', 'selector', { id: 'selector', role: 'group', 'aria-label': 'Selector' });
  const rangeEl = make('div', 'range', { id: 'range', role: 'group', 'aria-label': 'Time range' });
  const bar = make('div', 'bar');
  bar.append(selectorEl, rangeEl);
  const line = make('div', '', { id: 'quality' });
  const state = make('div', 'screen-state', { id: 'state' });
  const cards = make('div', 'cards', { id: 'cards', tabindex: '-1' });
  main.append(title, bar, line, state, cards);
  const skip = /** @type {HTMLAnchorElement} */ (document.querySelector('.skip'));
  skip.href = '#cards';
  skip.textContent = 'Skip to the tables';

  /* ---- what is asked ---- */
  const asked = () => {
    const { q, from, to } = store.get();
    return { q, from, to };
  };
  /** All types of the selected hosts: what agents say of themselves has no type. */
  const anyType = () => {
    const s = trySelector(store.get().q);
    return { ...asked(), q: s ? writeSelector({ ...s, type: '' }) : store.get().q };
  };
  /** Of agents only their host can be selected. */
  const agents = () => {
    const s = trySelector(store.get().q);
    return { ...asked(), q: s ? writeSelector({ type: '', matchers: s.matchers.filter((m) => m.name === 'host') }) : '' };
  };
  /** The last answer stays until a newer one is here, or trouble is said in its place. @template T @param {(signal: AbortSignal) => Promise<T>} ask */
  function piece(ask) {
    const slot = api.slot();
    const p = {
      value: /** @type {T|null} */ (null),
      trouble: /** @type {Error|null} */ (null),
      async load() {
        try {
          p.value = await slot.run(ask);
          p.trouble = null;
        } catch (e) {
          if (/** @type {Error} */ (e).name === 'AbortError') return;
          p.trouble = /** @type {Error} */ (e);
        }
        draw();
      },
    };
    return p;
  }
  const rateOf = async (/** @type {string} */ name, /** @type {AbortSignal} */ signal) => {
    const lines = await api.metricMeans({ ...agents(), name, agg: 'rate' }, signal);
    return /** @type {[string, Map<string, number>]} */ ([name, new Map(lines.flatMap((/** @type {{host:string, value:number|null}} */ m) => (m.value === null ? [] : [[m.host, m.value]])))]);
  };
  const ask = {
    status: piece((s) => api.status(s)),
    /* all of the selection's weights and what is said of them, without a row */
    sums: piece((s) => api.top({ ...asked(), limit: 0 }, s)),
    cover: piece((s) => api.coverage({ ...anyType(), by: 'host', limit: 500 }, s)),
    cut: piece((s) => api.top({ ...asked(), sort: 'total', match: BEYOND, limit: 50 }, s)),
    bins: piece((s) => binaries(asked(), s)),
    figures: piece((s) => api.metrics({ ...agents(), name: data.FIGURES, limit: 10_000 }, s)),
    rates: piece(async (s) => new Map(await Promise.all(data.COSTS.map((name) => rateOf(name, s))))),
    cpu: piece(async (s) => {
      const [profiled, kernel] = await Promise.all(['profiled_cpu', 'process_cpu'].map((name) => api.metricMeans({ ...agents(), name, agg: 'rate', limit: 1000 }, s)));
      return data.cpuRatio(profiled ?? [], kernel ?? []);
    }),
    events: piece((s) => api.events({ ...agents(), limit: EVENTS }, s)),
    lists: piece(async (s) => {
      const { q, from, to } = asked();
      const [types, labels] = await Promise.all([api.types({ from, to }, s), api.labels({ q, from, to }, s)]);
      selectorBar.setLists(types, labels);
      return types;
    }),
  };

  /* ---- parts ---- */
  const selectorBar = createSelectorBar(selectorEl, {
    q: () => store.get().q,
    step: () => '',
    dropStep() {},
    change: (q) => store.set({ q }, true),
    values: (name, prefix) => {
      const s = trySelector(store.get().q);
      const q = s ? writeSelector({ ...s, matchers: s.matchers.filter((m) => m.name !== name) }) : '';
      return api.values(name, { ...asked(), q, prefix: prefix || undefined, limit: 100 }, new AbortController().signal);
    },
  });
  const rangeMs = () => /** @type {[number, number]} */ ([toMs(store.get().from, Date.now()), toMs(store.get().to, Date.now())]);
  const shift = (/** @type {number} */ by, /** @type {number} */ scale) => {
    const [a, b] = moved(...rangeMs(), by, scale, Date.now());
    store.set({ from: toSpec(a), to: toSpec(b) }, true);
  };
  const live = createLive({ can: () => store.get().to === 'now', busy: () => chart.dragging, chart: async () => {}, load: () => load(true), draw: () => rangeMenu.draw() }, EVERY_MS);
  const rangeMenu = createRangeMenu(rangeEl, {
    range: asked,
    change: (from, to) => store.set({ from, to }, true),
    refresh: () => void load(),
    live: () => ({ ...live.state, can: store.get().to === 'now' }),
    toggleLive: () => live.toggle(),
    every: EVERY_MS,
  });
  const chart = createLazyChart({
    onRange: (a, b) => store.set({ from: toSpec(a), to: toSpec(b) }, true),
    onOther() {},
    onClear() {},
    onStep() {},
  });

  /* ---- loading ---- */
  let round = 0;
  /** @param {boolean} [quiet] live: trouble is thrown, so that it is said there and tried later */
  async function load(quiet = false) {
    const mine = ++round;
    const late = quiet ? 0 : setTimeout(() => main.setAttribute('aria-busy', 'true'), LATE_MS);
    if (!quiet) main.setAttribute('aria-busy', 'true');
    await Promise.all(Object.values(ask).map((p) => p.load()));
    clearTimeout(late);
    if (mine !== round) return;
    main.removeAttribute('aria-busy');
    drawChart();
    draw();
    if (quiet && ask.status.trouble) throw ask.status.trouble;
  }
  function drawChart() {
    const c = ask.cover.value,
      type = ask.sums.value?.type.name ?? '';
    const s = c ? data.lossSeries(c, type) : null;
    const window = /** @type {[number, number]} */ (c ? [c.range.from, c.range.to] : rangeMs());
    chart.el.hidden = s === null;
    chart.setData(s, window, 'nothing lost');
    chart.setRange(...window);
  }

  /* ---- drawing ---- */
  /** @param {string} head @param {unknown} body @param {{value:unknown, trouble:Error|null}} of @param {string} [kind] */
  const card = (head, body, of, kind = '') =>
    html`<section class="card ${kind}" aria-label=${head}><h2>${head}</h2>${of.trouble && !gone() ? html`<p class="field-error" role="alert">${icon('warn')}<bdi>${show(of.trouble.message)}</bdi></p>` : of.value === null ? html`<p class="hint">reading…</p>` : body}</section>`;
  const gone = () => ask.status.trouble instanceof api.ApiError && ask.status.trouble.status === 0;

  function summary() {
    const s = ask.sums.value,
      rows = data.sources(ask.status.value, ask.cover.value);
    if (!s) return nothing;
    const q = s.quality,
      x = shares(q, s.unfiltered),
      bad = rows.filter((r) => r.state !== 'ok' && r.state !== 'ended' && r.state !== 'lost').length;
    const hosts = new Set(rows.map((r) => r.host)).size,
      [over, ...others] = data.overMemory(data.byHost(ask.figures.value?.rows ?? []));
    /** @param {string} label @param {string} value @param {''|'warn'|'error'} [l] */
    const fact = (label, value, l = '') => html`<span class="fact ${l}">${l ? html`${icon('warn')}<span class="sr">${l === 'warn' ? 'warning: ' : 'problem: '}</span>` : nothing}<span class="fact-label">${label}</span><b>${value}</b></span>`;
    const pc = (/** @type {number|null} */ p) => (p === null ? 'unknown' : percent(p, 100));
    return html`<div class="quality" role="group" aria-label="Data quality"><span class="quality-facts">${fact('', `${count(hosts)} ${hosts === 1 ? 'host' : 'hosts'}`)}${fact('', bad ? `${count(bad)} of ${count(rows.length)} sources not ok` : `${count(rows.length)} sources ok`, bad ? 'error' : '')}${fact(s.type.name, '')}${over ? fact('', `${show(over.host)}: memory ${percent(over.part, 1)} of its limit${others.length ? `, and ${count(others.length)} more` : ''}`, 'warn') : nothing}${fact('range covered', pc(x.covered), level('covered', x.covered))}${fact('lost', pc(x.lost), level('lost', x.lost))}${fact('no stack', pc(x.noStack), level('noStack', x.noStack))}${fact('truncated', pc(x.truncated), level('noStack', x.truncated))}${fact('unsymbolised', pc(x.unsymbolised), level('unsymbolised', x.unsymbolised))}${q.skewNs === null ? nothing : fact('clocks within', exactTime(Math.abs(q.skewNs)))}${q.warnings.map((w) => fact('', show(w), 'warn'))}</span></div>`;
  }
  /** What no source says, so that no card can. */
  function missing() {
    const names = new Set((ask.lists.value ?? []).map((t) => t.name));
    const list = [
      ...([...names].some((t) => t.startsWith('gpu_')) ? [] : ['GPU busy beside the device’s own counter: no source of a GPU reports here']),
      ...(names.has('live') ? [] : ['live memory beside the process’s: nothing samples allocations here']),
      'jitter of ticks: agents count it in I1, and send it with each batch, but no answer of the server has it yet',
    ];
    return html`<p class="hint missing">Not shown: ${list.join('; ')}.</p>`;
  }
  function draw() {
    const utc = prefs.get().utc;
    render(summary(), line);
    drawState();
    const [from, to] = rangeMs(),
      hosts = data.byHost(ask.figures.value?.rows ?? []);
    const sums = ask.sums.value;
    render(
      html`${card('Agents and their sources', parts.sourceTable(data.sources(ask.status.value, ask.cover.value), {
          from: ask.cover.value?.range.from ?? from,
          to: ask.cover.value?.range.to ?? to,
          now: ask.status.value?.serverMs ?? Date.now(),
          utc,
          explore: ({ type, host }) => screenUrl('explore', store.get(), { q: writeSelector({ type, matchers: host ? [{ name: 'host', op: '=', value: host }] : [] }) }),
        }), ask.cover, 'wide')}
        ${card('Loss by reason, over time', html`<div class="chart-of">${chart.el}</div>${sums ? lossTable(sums.quality, sums.unfiltered, sums.type) : nothing}${(ask.cover.value?.sources ?? []).some((s) => s.lossRunsMore) ? html`<p class="hint">Of some sources only the first 1,000 losses are drawn.</p>` : nothing}`, ask.sums)}
        ${card('Stacks cut short or missing, by reason', ask.cut.value ? parts.cutTable(ask.cut.value, hosts) : nothing, ask.cut)}
        ${card('Unwinding and names, by binary', ask.bins.value && sums ? binaryTable(ask.bins.value, sums.type) : nothing, ask.bins)}
        ${card('Python', parts.pythonTable(hosts), ask.figures)}
        ${card('Sums that must hold', parts.identityTable(hosts, ask.cpu.value, ask.events.value ?? [], utc), ask.figures)}
        ${card('Refused by the server', sums ? parts.rejectTable(sums.quality, hosts) : nothing, ask.sums)}
        ${card('Events of the agents', parts.eventList(ask.events.value ?? [], utc), ask.events)}
        ${card('The store', ask.status.value ? parts.storeTable(ask.status.value, utc) : nothing, ask.status)}
        ${card('What the agents cost', parts.costTable(hosts, ask.rates.value), ask.figures, 'wide')}
        ${missing()}`,
      cards,
    );
    drawNav('quality', store.get());
  }
  let said = ''; // which state stands, so that it is not looked up again each time
  function drawState() {
    const e = ask.sums.value?.empty ?? null;
    if (gone()) {
      said = 'gone';
      render(html`<div class="state" role="alert"><div class="state-card wide error"><span class="state-icon">${icon('warn')}</span><h2>The server cannot be reached</h2><p>What stands below is what it said last. ${live.state.on ? 'It is asked again by itself.' : ''}</p><div class="state-actions"><button class="button primary" type="button" @click=${() => load()}>Retry</button></div></div></div>`, state);
    } else if (ask.sums.trouble) {
      said = 'error';
      render(nothing, state);
      if (ask.sums.trouble instanceof api.ApiError && ask.sums.trouble.param === 'q') selectorBar.setError(ask.sums.trouble.message);
    } else if (e && ask.sums.value) {
      const key = `${e.why} ${e.matcher} ${store.get().q} ${store.get().from} ${store.get().to}`;
      if (said === key) return;
      said = key;
      void showEmpty(state, { ...ask.sums.value, tree: null }, { state: store.get, set: (patch) => store.set(patch, true), load: () => load(), widen: () => shift(0, 2) });
    } else if (said) {
      said = '';
      delete document.body.dataset['state'];
      render(nothing, state);
    }
  }

  /* ---- header, keys, changes ---- */
  const link = (/** @type {boolean} */ asIs) => copyLink(store.get(), ask.sums.value?.range, asIs);
  /** @type {{show: () => void}|null} */ let help = null;
  async function showHelp() {
    try {
      help ??= (await import('../later/help.js')).helpDialog(bindings);
      help.show();
    } catch (e) {
      toast(`The list of keys could not be loaded: ${/** @type {Error} */ (e).message}`);
    }
  }
  const go = (/** @type {Partial<import('../url.js').State>} */ patch) => () => location.assign(screenUrl('explore', store.get(), patch));
  /** @type {import('../keys.js').Binding[]} */
  const bindings = [
    { keys: ['t'], text: 'time range', run: () => rangeMenu.open() },
    { keys: ['[', ']'], text: 'half a range back, forward', run: (e) => shift(e.key === '[' ? -0.5 : 0.5, 1) },
    { keys: ['-', '='], text: 'wider, narrower range', run: (e) => shift(0, e.key === '-' ? 2 : 0.5) },
    { keys: ['r'], text: 'refresh', run: () => void load() },
    { keys: ['L'], text: 'live', run: () => live.toggle() },
    { keys: ['y'], text: 'copy link', run: () => link(false) },
    { keys: ['g e'], text: 'go to the flame graph', run: go({}) },
    { keys: ['g c'], text: 'go to compare', run: go({ view: 'compare' }) },
    { keys: ['?'], text: 'this help', run: showHelp },
  ];
  listen(bindings);
  function themed() {
    header(/** @type {HTMLElement} */ (document.getElementById('acts')), { help: showHelp, link });
    chart.setColours(colours(main));
    chart.setUtc(prefs.get().utc);
  }
  prefs.subscribe(() => {
    themed();
    rangeMenu.draw();
    draw();
  });
  for (const q of ['(prefers-color-scheme: dark)', '(prefers-contrast: more)', '(forced-colors: active)']) matchMedia(q).addEventListener('change', themed);
  tellUpdate();
  store.subscribe((s, changed) => {
    if (!['q', 'from', 'to'].some((k) => changed.has(k))) return;
    selectorBar.setError('');
    if (s.to !== 'now' && live.state.on) live.toggle();
    selectorBar.draw();
    rangeMenu.draw();
    for (const p of Object.values(ask)) if (p !== ask.status && p !== ask.lists) p.value = null;
    void load();
  });
  document.title = 'Quality · Strata';
  tellNotices(store.get().notices);
  selectorBar.draw();
  rangeMenu.draw();
  themed();
  draw();
  void load();
  if (store.get().to === 'now') live.toggle();
}
