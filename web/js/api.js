// SPDX-License-Identifier: Apache-2.0
/**
 * The only module that fetches, and the only one that knows the API's field names. Answers leave it
 * checked and in the client's own shapes; errors leave it as ApiError with what a person needs.
 */
import { lookup } from './safe.js';
import { BadAnswer, decode } from './tree.js';

/** /<base>/ui/<hash>/js/api.js: the page's own address says where the API and which UI this is. */
const OWN = new URL(import.meta.url);
const BASE = new URL('../../../', OWN).pathname.replace(/\/$/, '');
const HASH = OWN.pathname.split('/').at(-3) ?? '';

const AT_ONCE = 4; // requests running; the rest wait their turn
const LONGEST_GET = 7000; // bytes of query string; beyond it the same parameters go as a form

export class ApiError extends Error {
  /** @param {number} status @param {{code?:string, message?:string, param?:string, setting?:string, limit?:number, actual?:number, request_id?:string}} e @param {number} retryAfter seconds, 0 unknown */
  constructor(status, e, retryAfter = 0) {
    super(e.message || `The server answered ${status}.`);
    this.status = status;
    this.code = e.code ?? 'http';
    this.param = e.param ?? '';
    this.setting = e.setting ?? '';
    this.limit = e.limit;
    this.actual = e.actual;
    this.requestId = e.request_id ?? '';
    this.retryAfter = retryAfter;
  }
}

/** @typedef {Record<string, string|number|string[]|undefined>} Params  a list: the parameter several times */
/** @typedef {{id:string, name:string, unit:string, kind:string}} Type */

let running = 0;
/** @type {(() => void)[]} */ const waiting = [];
/** @type {() => void} */ let onUpdate = () => {};

/** Called once when the server's UI is another one than this page's. @param {() => void} fn */
export function whenUpdated(fn) {
  onUpdate = fn;
}

/** @param {string} path @param {Params} params */
export function address(path, params) {
  const p = new URLSearchParams();
  for (const [k, v] of Object.entries(params))
    for (const x of Array.isArray(v) ? v : [v]) if (x !== undefined && x !== '') p.append(k, String(x));
  return `${BASE}/api/v1${path}?${p}`;
}

/** The command that asks the same. @param {string} path @param {Params} params */
export function curl(path, params) {
  return `curl -sS --compressed '${location.origin}${address(path, params).replace(/'/g, '%27')}'`;
}

/** @param {string} path @param {Params} params @param {AbortSignal} signal @param {boolean} [plain] text, not JSON @returns {Promise<any>} */
async function get(path, params, signal, plain = false) {
  while (running >= AT_ONCE) await new Promise((/** @type {(x?: unknown) => void} */ ok) => waiting.push(() => ok()));
  signal.throwIfAborted();
  running++;
  try {
    const url = address(path, params),
      at = url.indexOf('?');
    const long = url.length > LONGEST_GET;
    const r = await fetch(
      long ? url.slice(0, at) : url,
      long ? { signal, method: 'POST', body: new URLSearchParams(url.slice(at + 1)) } : { signal },
    ).catch((e) => {
      if (e.name === 'AbortError' || signal.aborted) throw e;
      throw new ApiError(0, { code: 'unreachable', message: 'The server cannot be reached.' });
    });
    const ui = r.headers.get('Strata-UI');
    if (ui && ui !== HASH && HASH !== 'dev') {
      onUpdate();
      onUpdate = () => {};
    }
    const text = await r.text();
    if (plain && r.ok) return text;
    /** @type {any} */ let body = null;
    try {
      body = JSON.parse(text);
    } catch {
      if (r.ok) throw new BadAnswer(`${path} is not JSON`);
    }
    if (!r.ok)
      throw new ApiError(
        r.status,
        { request_id: r.headers.get('X-Request-Id') ?? '', ...(body?.error ?? {}) },
        Number(r.headers.get('Retry-After')) || 0,
      );
    return body;
  } finally {
    running--;
    waiting.shift()?.();
  }
}

/**
 * One place on the screen that shows one answer at a time: a new question ends the old one, and a
 * late answer is dropped (its promise rejects with AbortError).
 */
export function slot() {
  let current = new AbortController();
  return {
    /** @template T @param {(signal: AbortSignal) => Promise<T>} ask @returns {Promise<T>} */
    async run(ask) {
      current.abort(new DOMException('superseded', 'AbortError'));
      const mine = (current = new AbortController());
      const answer = await ask(mine.signal);
      mine.signal.throwIfAborted();
      return answer;
    },
    cancel: () => current.abort(new DOMException('cancelled', 'AbortError')),
  };
}

/* ---- shapes ---- */

const num = (/** @type {any} */ x) => (x === null || x === undefined ? null : Number(x));
const list = (/** @type {any} */ x) => (Array.isArray(x) ? x : []);
const text = (/** @type {any} */ x) => (typeof x === 'string' ? x : '');

/** A node's hash as the URL holds it: 16 hex digits, '' for the root of the whole. @param {any} x */
function hash(x) {
  const s = text(x).replace(/^0+$/, '');
  if (s && !/^[0-9a-f]{16}$/.test(s)) throw new BadAnswer('a node hash is not 16 hex digits');
  return s;
}

/** @param {any} t @returns {Type} */
const typeOf = (t) => ({
  id: text(t?.id),
  name: text(t?.name) || 'value',
  unit: text(t?.unit) || 'count',
  kind: text(t?.kind) || 'sum',
});

/** @param {any} a */
function quality(a) {
  const c = a.coverage ?? {},
    q = a.quality ?? {};
  return {
    askedNs: num(c.asked_ns),
    coveredNs: num(c.covered_ns),
    sources: num(c.sources),
    unknownSources: num(c.unknown_sources) ?? 0,
    expected: num(q.expected),
    received: num(q.received),
    lost: list(q.lost).map((/** @type {any} */ l) => ({ why: text(l.why), n: num(l.n), weight: num(l.weight) })),
    rejected: list(q.rejected).map((/** @type {any} */ l) => ({ why: text(l.why), n: num(l.n) })),
    noStack: num(q.no_stack),
    truncated: num(q.truncated),
    unsymbolised: num(q.unsymbolised),
    periodic: list(q.basis).includes('periodic'),
    periods: list(q.periods).map(String),
    shards: q.shards ? { asked: num(q.shards.asked) ?? 0, read: num(q.shards.read) ?? 0 } : null,
    warnings: list(q.warnings).map(String),
    basis: list(q.basis).map(String),
    skewNs: num(q.clock_skew_ns),
    gaps: list(c.gaps).map((/** @type {any} */ g) => ({ from: msOf(g?.[0]), to: msOf(g?.[1]), why: text(g?.[2]) })),
    gapsMore: num(c.gaps_more) ?? 0,
    tiers: list(c.tiers).map((/** @type {any} */ t) => ({ name: text(t.tier), resolutionNs: num(t.resolution_ns) })),
  };
}
/** @typedef {ReturnType<typeof quality>} Quality */

/** @param {any} e */
const emptyOf = (e) => (e ? { why: text(e.why), matcher: text(e.matcher), lastNs: num(e.last_ns) } : null);
/** @typedef {NonNullable<ReturnType<typeof emptyOf>>} Empty */

/** strings + func of an answer -> names beside each other. @param {any} a @returns {import('./tree.js').Funcs} */
function funcs(a) {
  const strings = list(a.strings),
    f = a.func ?? {};
  const n = list(f.name).length;
  if (!Array.isArray(f.name)) throw new BadAnswer('func.name is no list');
  for (const k of ['file', 'bin', 'kind', 'key'])
    if (list(f[k]).length !== n) throw new BadAnswer(`func.${k} has ${list(f[k]).length} entries, func.name ${n}`);
  const of = (/** @type {any[]} */ column) =>
    column.map((i) => {
      const s = strings[i];
      if (typeof s !== 'string') throw new BadAnswer(`string ${i} of ${strings.length}`);
      return s;
    });
  const raw = Object(a.raw ?? {});
  return {
    name: of(f.name),
    file: of(f.file),
    bin: of(f.bin),
    kind: list(f.kind).map(String),
    key: list(f.key).map(String),
    raw: Uint8Array.from(f.name, (/** @type {any} */ i) => (String(i) in raw ? 1 : 0)),
  };
}

/** Decimal nanoseconds -> milliseconds. @param {any} x */
const msOf = (x) => (/^-?\d+$/.test(String(x)) ? Number(BigInt(x) / 1_000_000n) : NaN);

/** @param {any} a */
function range(a) {
  const ns = msOf;
  const r = a.range ?? {};
  return { fromNs: text(r.from_ns), toNs: text(r.to_ns), from: ns(r.from_ns), to: ns(r.to_ns) };
}

/** What each filter did. @param {any} a */
const filtered = (a) =>
  list(a.filtered).map((/** @type {any} */ x) => ({ f: text(x.f), functions: num(x.functions) ?? 0, dropped: num(x.dropped) ?? 0 }));
/** @typedef {ReturnType<typeof filtered>[number]} Filtered */

/** The steps that an answer is restricted to. @param {any} a */
const stepIn = (a) => (a.step ? { name: text(a.step.name), n: num(a.step.n) ?? 0, whole: num(a.step.whole) ?? 0 } : null);

/** GET /flamegraph. @param {Params} params @param {AbortSignal} signal */
export async function flamegraph(params, signal) {
  const a = await get('/flamegraph', params, signal);
  if (a?.kind !== 'tree' || typeof a.n !== 'number') throw new BadAnswer('/flamegraph is no tree');
  const fs = funcs(a);
  const root = hash(a.view?.root);
  return {
    type: typeOf(a.type),
    agg: text(a.agg),
    range: range(a),
    total: a.total === null ? null : String(a.total),
    samples: num(a.samples),
    unfiltered: num(a.unfiltered?.total) ?? num(a.total) ?? 0,
    filters: filtered(a),
    se: num(a.se),
    step: stepIn(a),
    view: {
      root,
      found: a.view?.found !== false,
      total: num(a.view?.total),
      path: list(a.view?.path).map((/** @type {any} */ p) => ({
        name: fs.name[Number(p.func)] ?? '',
        hash: hash(p.node),
      })),
    },
    trim: { nodes: num(a.trim?.hidden_nodes) ?? 0, total: num(a.trim?.hidden_total) ?? 0 },
    quality: quality(a),
    empty: emptyOf(a.empty),
    tree: a.n > 0 ? decode({ n: a.n, node: a.node, func: fs }, root ? BigInt(`0x${root}`) : 0n) : null,
  };
}
/** @typedef {Awaited<ReturnType<typeof flamegraph>>} Flame */

/** GET /sandwich. @param {Params} params @param {AbortSignal} signal */
export async function sandwich(params, signal) {
  const a = await get('/sandwich', params, signal);
  if (a?.kind !== 'sandwich') throw new BadAnswer('/sandwich is none');
  const func = funcs(a);
  const side = (/** @type {any} */ x) => ({
    tree: decode({ n: Number(x?.n ?? 0), node: x?.node, func }),
    hidden: num(x?.trim?.hidden_nodes) ?? 0,
  });
  const f = a.function ?? {};
  return {
    type: typeOf(a.type),
    unfiltered: num(a.unfiltered?.total) ?? num(a.total) ?? 0,
    quality: quality(a),
    function: { functions: num(f.functions) ?? 0, self: num(f.self) ?? 0, total: num(f.total) ?? 0 },
    callers: side(a.callers),
    callees: side(a.callees),
  };
}
/** @typedef {Awaited<ReturnType<typeof sandwich>>} Sandwich */

/** GET /diff, as a tree or with view=top as rows. @param {Params} params @param {AbortSignal} signal */
export async function diff(params, signal) {
  const a = await get('/diff', params, signal);
  const c = a?.node ?? a?.row;
  if ((a?.kind !== 'diff' && a?.kind !== 'diff_top') || !c) throw new BadAnswer('/diff is none');
  const n = list(c.func).length;
  const column = (/** @type {string} */ k) => {
    const x = list(c[k]);
    if (x.length !== n) throw new BadAnswer(`/diff ${k} has ${x.length} entries, func ${n}`);
    return x;
  };
  /* where the sides cannot be compared there are no differences */
  const maybe = (/** @type {string} */ k) => (c[k] ? /** @type {(number|null)[]} */ (column(k).map(num)) : null);
  const sure = (/** @type {string} */ k) => /** @type {number[]} */ (column(k).map((x) => num(x) ?? 0));
  const sideOf = (/** @type {any} */ x) => ({
    total: x?.total === null || x?.total === undefined ? null : String(x.total),
    samples: num(x?.samples),
    unfiltered: num(x?.unfiltered?.total),
    seconds: num(x?.denominators?.second),
    share: num(x?.denominators?.share),
    steps: num(x?.denominators?.step),
    quality: quality(x ?? {}),
  });
  return {
    type: typeOf(a.type),
    norm: text(a.norm),
    comparable: a.comparable === true,
    whyNot: text(a.why_not),
    view: { root: hash(a.view?.root), found: a.view?.found !== false },
    delta: { value: num(a.delta?.value), se: num(a.delta?.se) },
    warnings: list(a.warnings).map(String),
    a: sideOf(a.a),
    b: sideOf(a.b),
    funcs: funcs(a),
    n,
    node: {
      func: sure('func'),
      depth: a.node ? sure('depth') : [],
      hidden: a.node ? sure('hidden') : [],
      totalA: sure('total_a'),
      totalB: sure('total_b'),
      selfA: sure('self_a'),
      selfB: sure('self_b'),
      state: sure('state'),
      dSelf: maybe('d_self'),
      dTotal: maybe('d_total'),
      se: maybe('se'),
      sig: maybe('sig'),
      churn: c['churn'] ? sure('churn') : null,
    },
  };
}
/** @typedef {Awaited<ReturnType<typeof diff>>} Diff */

/** More lines than these nobody tells apart; the server sends as many as were asked for. */
const MOST_GROUPS = 24;

/** What a group of `by` is called. @param {any} g */
const groupName = (g) =>
  g.rest
    ? 'all others'
    : Object.entries(g.labels ?? {})
        .map(([k, v]) => `${k}=${v === '' ? '(none)' : v}`)
        .join(', ');

/** GET /timeseries: the sum of all groups, and with `by` each group beside it. @param {Params} params @param {AbortSignal} signal */
export async function timeseries(params, signal) {
  const a = await get('/timeseries', params, signal);
  const n = Number(a?.n ?? 0),
    all = list(a?.series);
  const scale = Number(a?.scale_ns ?? 1),
    bucketNs = Number(a?.bucket_ns ?? 0);
  /** @param {any} s @param {string} k @returns {(number|null)[]} */
  const columnOf = (s, k) => {
    const c = list(s[k]);
    if (c.length !== 0 && c.length !== n) throw new BadAnswer(`/timeseries ${k} has ${c.length} entries, n is ${n}`);
    return c.length ? c.map(num) : new Array(n).fill(null);
  };
  /* Over groups: values and samples add; coverage and losses do not (groups share sources), so the answer has them
     once for all. A group without a value was not watched there; one whose samples are not known makes the sum
     unknown. */
  const add = (/** @type {(number|null)[]} */ x) => (x.includes(null) ? null : x.reduce((/** @type {number} */ s, v) => s + (v ?? 0), 0));
  const values = all.map((s) => columnOf(s, 'value'));
  /** @param {string} k @param {(at: (number|null)[], i: number) => number|null} merge */
  const column = (k, merge) => {
    const each = all.map((s) => columnOf(s, k));
    return Array.from({ length: n }, (_, i) => (each.length ? merge(each.map((c) => c[i] ?? null), i) : null));
  };
  const known = (/** @type {(number|null)[]} */ x) => /** @type {number[]} */ (x.filter((v) => v !== null));
  const watched = (/** @type {(number|null)[]} */ x, /** @type {number} */ i) => x.filter((_, g) => (values[g]?.[i] ?? null) !== null);
  if (n && !(bucketNs > 0)) throw new BadAnswer('/timeseries without a bucket');
  return {
    type: typeOf(a?.type),
    from: Number(BigInt(text(a?.base_ns) || '0') / 1_000_000n),
    to: range(a ?? {}).to,
    bucket: bucketNs / 1e6,
    n,
    total: num(a?.total) ?? num(all[0]?.total),
    value: column('value', (x) => (known(x).length ? add(known(x)) : null)),
    samples: column('samples', (x, i) => (watched(x, i).length ? add(watched(x, i)) : null)),
    coveredNs: columnOf(a ?? {}, 'covered').map((v) => (v === null ? null : v * scale)),
    lost: columnOf(a ?? {}, 'lost'),
    groups: all.length && (all.length > 1 || Object.keys(all[0]?.labels ?? {}).length) && params['by'] ? all.slice(0, MOST_GROUPS).map((s) => ({ name: groupName(s), rest: s.rest === true, value: columnOf(s, 'value') })) : [],
    empty: emptyOf(a?.empty),
  };
}
/** @typedef {Awaited<ReturnType<typeof timeseries>>} Series */

/** GET /top. @param {Params} params @param {AbortSignal} signal */
export async function top(params, signal) {
  const a = await get('/top', params, signal);
  const fs = funcs(a),
    rows = a.row ?? a.node ?? {},
    n = list(rows.func).length;
  const column = (/** @type {string} */ k) => {
    const c = list(rows[k]);
    if (c.length !== n) throw new BadAnswer(`/top ${k} has ${c.length} entries, func ${n}`);
    return c;
  };
  return {
    type: typeOf(a.type),
    total: num(a.total),
    unfiltered: num(a.unfiltered?.total) ?? num(a.total) ?? 0,
    matched: a.matched ? { functions: num(a.matched.functions) ?? 0, total: num(a.matched.total) } : null,
    range: range(a),
    quality: quality(a),
    empty: emptyOf(a.empty),
    any: a.any
      ? {
          each: list(a.any.each).map((/** @type {any} */ x) => ({ pattern: text(x.pattern), functions: num(x.functions) ?? 0, total: num(x.total) })),
          union: { functions: num(a.any.union?.functions) ?? 0, total: num(a.any.union?.total) },
        }
      : null,
    groups: list(a.groups).map((/** @type {any} */ g) => ({
      name: groupName(g),
      rest: g.rest === true,
      total: num(g.total),
      self: list(g.row?.self).map(num),
      all: list(g.row?.total).map(num),
    })),
    count: num(a.rows) ?? n,
    next: a.next === undefined || a.next === null ? '' : String(a.next),
    rows: column('func').map((/** @type {number} */ f, /** @type {number} */ i) => ({
      name: fs.name[f] ?? '',
      file: fs.file[f] ?? '',
      bin: fs.bin[f] ?? '',
      kind: fs.kind[f] ?? '',
      key: fs.key[f] ?? '',
      raw: fs.raw?.[f] === 1,
      line: num(a.func?.line?.[f]),
      inlined: a.func?.inlined?.[f] === true,
      self: num(column('self')[i]) ?? 0,
      total: num(column('total')[i]) ?? 0,
      samples: num(column('samples')[i]),
      unsymbolised: rows.unsymbolised ? num(column('unsymbolised')[i]) : null,
      places: num(column('places')[i]),
    })),
  };
}
/** @typedef {Awaited<ReturnType<typeof top>>} Top */
/** @typedef {Top['rows'][number]} TopRow */

/** GET /types. @param {Params} params @param {AbortSignal} signal */
export async function types(params, signal) {
  const a = await get('/types', params, signal);
  return list(a?.types).map((/** @type {any} */ t) => ({ ...typeOf(t), sources: num(t.sources), lastNs: num(t.last_ns) }));
}

/** Labels by name, whatever the names are. @param {any} x */
const labelsOf = (x) => lookup(Object.fromEntries(Object.entries(x ?? {}).map(([k, v]) => [k, String(v)])));

/** GET /labels: names that can be asked for. @param {Params} params @param {AbortSignal} signal */
export async function labels(params, signal) {
  const a = await get('/labels', params, signal);
  return list(a?.labels).map((/** @type {any} */ l) => ({ name: text(l.name), values: num(l.values), attribute: l.attribute === true }));
}

/** GET /steps, by time. @param {Params} params @param {AbortSignal} signal */
export async function steps(params, signal) {
  const a = await get('/steps', params, signal);
  const r = a?.row ?? {},
    n = list(r.start).length;
  for (const k of ['name', 'number', 'dur', 'labels'])
    if (list(r[k]).length !== n) throw new BadAnswer(`/steps ${k} has ${list(r[k]).length} entries, start ${n}`);
  if (!list(r.number).every((/** @type {any} */ x) => /^\d{1,20}$/.test(String(x)))) throw new BadAnswer('/steps: a number is none');
  const base = msOf(a?.base_ns),
    scale = Number(a?.scale_ns ?? 1) / 1e6;
  const took = (/** @type {any} */ x) =>
    x ? { n: num(x.n) ?? 0, min: num(x.min), p50: num(x.p50), p90: num(x.p90), p99: num(x.p99), max: num(x.max), mean: num(x.mean) } : null;
  const names = list(a?.names).map((/** @type {any} */ x) => ({ name: text(x.name), took: took(x) }));
  return {
    names,
    n,
    name: list(r.name).map(Number),
    number: list(r.number).map(String),
    from: list(r.start).map((/** @type {any} */ x) => base + Number(x) * scale),
    dur: list(r.dur).map((/** @type {any} */ x) => Number(x) * scale),
    labels: list(r.labels).map(labelsOf),
    inferred: list(r.inferred).map((/** @type {any} */ x) => x === true),
    parts: Object.entries(a?.part ?? {}).map(([name, column]) => ({ name, ns: list(column).map(num) })),
    more: a?.next !== null && a?.next !== undefined,
    partial: a?.partial === true,
  };
}
/** @typedef {Awaited<ReturnType<typeof steps>>} Steps */

/** GET /events. @param {Params} params @param {AbortSignal} signal */
export async function events(params, signal) {
  const a = await get('/events', params, signal);
  return list(a?.events).map((/** @type {any} */ e) => ({ at: msOf(e.t_ns), kind: text(e.kind), text: text(e.text), target: text(e.target) }));
}
/** @typedef {Awaited<ReturnType<typeof events>>[number]} Event */

/** GET /coverage. @param {Params} params @param {AbortSignal} signal */
export async function coverage(params, signal) {
  const a = await get('/coverage', params, signal);
  const base = msOf(a?.base_ns),
    scale = Number(a?.scale_ns ?? 1) / 1e6;
  const at = (/** @type {any} */ x) => base + Number(x) * scale;
  return {
    range: range(a ?? {}),
    partial: a?.partial === true,
    more: num(a?.sources_more) ?? 0,
    sources: list(a?.sources).map((/** @type {any} */ s) => ({
      type: typeOf(s.type),
      host: text(s.host),
      target: text(s.target),
      labels: labelsOf(s.labels),
      coveredNs: num(s.covered_ns),
      askedNs: num(s.source_asked_ns),
      sourceNs: num(s.source_ns),
      scopes: num(s.scopes) ?? 1,
      ended: s.ended === true,
      runs: list(s.runs?.t).map((/** @type {any} */ t, /** @type {number} */ i) => ({
        from: at(t),
        to: at(Number(t) + Number(s.runs.dur?.[i] ?? 0)),
        state: text(s.runs.state?.[i]),
        why: text(s.runs.why?.[i]),
      })),
      runsMore: num(s.runs_more) ?? 0,
      lost: list(s.lost).map((/** @type {any} */ l) => ({ why: text(l.why), n: num(l.n), weight: num(l.weight) })),
      lossRuns: list(s.loss_runs?.t).map((/** @type {any} */ t, /** @type {number} */ i) => ({
        from: at(t),
        to: at(Number(t) + Number(s.loss_runs.dur?.[i] ?? 0)),
        why: text(s.loss_runs.why?.[i]),
        weight: num(s.loss_runs.weight?.[i]),
      })),
      lossRunsMore: num(s.loss_runs_more) ?? 0,
    })),
  };
}
/** @typedef {Awaited<ReturnType<typeof coverage>>} Coverage */

/** @param {any} m */
const metricOf = (m) => {
  const labels = labelsOf(m.labels);
  return { name: text(m.name), unit: text(m.unit), labels, host: labels['host'] ?? '', target: text(m.target), status: text(m.status) };
};

/** GET /metrics: the last number of each. @param {Params} params @param {AbortSignal} signal */
export async function metrics(params, signal) {
  const a = await get('/metrics', params, signal);
  return {
    more: a?.next !== null && a?.next !== undefined,
    rows: list(a?.metrics).map((/** @type {any} */ m) => ({ ...metricOf(m), last: num(m.last), at: msOf(m.last_ns) })),
  };
}
/** @typedef {Awaited<ReturnType<typeof metrics>>} Metrics */

/** GET /metrics/query in one bucket: of each line one number for the range. @param {Params} params @param {AbortSignal} signal */
export async function metricMeans(params, signal) {
  const a = await get('/metrics/query', { ...params, points: 1 }, signal);
  return list(a?.series).map((/** @type {any} */ s) => ({ ...metricOf(s), readings: num(s.readings) ?? 0, value: num(list(s.value)[0]) }));
}
/** @typedef {Awaited<ReturnType<typeof metricMeans>>} MetricMeans */

/** GET /export as text, for the clipboard. @param {Params} params @param {AbortSignal} signal */
export const exported = (params, signal) => get('/export', params, signal, true);

/** GET /labels/{name}/values. @param {string} name @param {Params} params @param {AbortSignal} signal @returns {Promise<string[]>} */
export async function values(name, params, signal) {
  const a = await get(`/labels/${encodeURIComponent(name)}/values`, params, signal);
  return list(a?.values).map(String);
}

/** GET /status. @param {AbortSignal} signal */
export async function status(signal) {
  const a = await get('/status', {}, signal);
  const { disk = {}, store = {} } = a ?? {};
  return {
    version: text(a?.version),
    serverMs: msOf(a?.server_ns),
    oldestMs: msOf(a?.oldest_ns),
    newestMs: msOf(a?.newest_ns),
    store: { state: text(store.state), why: text(store.why), batches: num(store.batches), rows: num(store.rows), series: num(store.series) },
    disk: { bytes: num(disk.bytes), free: num(disk.free), limit: num(disk.limit), perDay: num(disk.bytes_per_day), daysLeft: num(disk.days_left), heldBy: text(disk.held_by) },
    tiers: list(a?.tiers).map((/** @type {any} */ t) => ({ name: text(t.tier), from: msOf(t.from_ns), to: msOf(t.to_ns), keepNs: num(t.keep_ns) })),
    queries: num(a?.queries_running),
    agents: list(a?.agents).map((/** @type {any} */ g) => ({
      host: text(g.host) || text(g.id),
      lastNs: num(g.last_ns) ?? num(g.last_seen_ns),
      sources: list(g.sources).map((/** @type {any} */ s) => ({
        name: text(s.name) || text(s.type),
        lastMs: msOf(s.last_ns),
        state: text(s.state),
        why: text(s.why) || text(s.state_why),
      })),
    })),
  };
}
/** @typedef {Awaited<ReturnType<typeof status>>} Status */
