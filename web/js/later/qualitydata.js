
import { lookup } from '../safe.js';
// SPDX-License-Identifier: Apache-2.0
/** What the Quality screen computes from answers before it draws: rows by host, loss over time. Pure. */

/** @typedef {import('../api.js').Coverage} Coverage */
/** @typedef {import('../api.js').Status} Status */
/** @typedef {import('../api.js').Metrics['rows']} Rows */
/** @typedef {import('../api.js').MetricMeans} Means */

const LINES = 5; // reasons with a line of their own
const POINTS = 120;
const LEAST_CPU = 5e7; // ns a second,
const LEAST_READINGS = 6; // one each 10 s
const NO_NEW_TABLES = 3; // of agent_memory_level
const WORST = ['refused', 'absent', 'paused', 'lost', '', 'ok'];

/** What the screen asks of /metrics: figures of agents, see docs/agent.md and docs/python.md. */
export const FIGURES = [
  ...['python_versions', 'python_samples', 'python_with_frames', 'python_merged', 'python_short', 'python_unmerged', 'python_unnamed', 'pyerr'],
  ...['identity_violations', 'cpu_mismatches', 'clock_steps', 'suspends'],
  ...['rss', 'memory', 'memory_limit', 'map_bytes', 'cost', 'cost_budget', 'period', 'restraint_steps', 'memory_level', 'tables_refused'],
  ...['batches_spooled', 'spool_level', 'dropped', 'send_rejected', 'events_dropped', 'metrics_dropped'],
  ...['end', 'kthread', 'trunc', 'nomap', 'notable', 'noinfo', 'invalid', 'readfault', 'zeropc', 'badsp', 'badfp', 'noproc', 'exiting', 'compat32'].map((x) => `stop_${x}`),
].map((x) => `agent_${x}`);
const WHOLE_STOPS = ['agent_stop_end', 'agent_stop_kthread']; // the walk came to the root

/** Counters of which the growth per second says what an agent costs. */
export const COSTS = ['agent_cpu', 'agent_apart_cpu', 'agent_bpf_cpu', 'agent_offcpu_bpf'];

/**
 * A line for each host and type: the state as it is now, coverage and loss of the range. Those in trouble first.
 * @param {Status|null} status @param {Coverage|null} cover
 */
export function sources(status, cover) {
  /** @type {Map<string, {host:string, type:string, state:string, why:string, lastMs:number, covered:number|null, source:Coverage['sources'][number]|null}>} */
  const rows = new Map();
  for (const s of cover?.sources ?? []) {
    const last = s.runs.at(-1),
      since = (cover?.range.to ?? 0) - (s.runs[0]?.from ?? NaN);
    rows.set(`${s.host}\n${s.type.name}`, {
      host: s.host,
      type: s.type.name,
      state: s.ended ? 'ended' : (last?.state ?? ''),
      why: last?.why ?? '',
      lastMs: NaN,
      /* a source for each process: they come and go, so what any of them covered since the first of them */
      covered: s.scopes > 1 ? (since > 0 && s.coveredNs !== null ? Math.min(100, (s.coveredNs / 1e6 / since) * 100) : null) : s.askedNs && s.sourceNs !== null ? (s.sourceNs / s.askedNs) * 100 : null,
      source: s,
    });
  }
  const rank = (/** @type {string} */ s) => (WORST.indexOf(s) + WORST.length) % WORST.length;
  for (const a of status?.agents ?? []) {
    /* of one type there may be a source for each process: the worst state counts, and when the last of them spoke */
    /** @type {Map<string, Status['agents'][number]['sources'][number]>} */ const types = new Map();
    for (const x of a.sources) {
      const was = types.get(x.name);
      types.set(x.name, was ? { ...(rank(x.state) < rank(was.state) ? x : was), lastMs: Math.max(x.lastMs, was.lastMs) } : x);
    }
    for (const x of types.values()) {
      const key = `${a.host}\n${x.name}`,
        row = rows.get(key);
      /* of hosts that the selection does not have, nothing is said; of a type that is refused there is no coverage */
      if (!row && (cover?.sources.length ?? 0) > 0 && !cover?.sources.some((s) => s.host === a.host)) continue;
      rows.set(key, { ...(row ?? { host: a.host, type: x.name, covered: null, source: null }), state: x.state, why: x.why, lastMs: x.lastMs });
    }
  }
  return [...rows.values()].sort((a, b) => rank(a.state) - rank(b.state) || (a.host < b.host ? -1 : a.host > b.host ? 1 : 0) || (a.type < b.type ? -1 : 1));
}

/**
 * Loss by reason over time as a chart takes it: what was lost per bucket, the largest reasons as lines.
 * A loss belongs to the stretch that it was reported for and is spread evenly over it.
 * @param {Coverage} cover @param {string} type its name
 * @returns {import('../api.js').Series & {title: string} | null} null: nothing of this type has a weight that was lost
 */
export function lossSeries(cover, type) {
  const mine = cover.sources.filter((s) => s.type.name === type),
    one = mine[0];
  const { from, to } = cover.range;
  if (!one || !(to > from)) return null;
  const bucket = Math.max(1000, Math.ceil((to - from) / POINTS / 1000) * 1000),
    n = Math.ceil((to - from) / bucket);
  const none = () => new Array(n).fill(0);
  /** @type {Map<string, number[]>} */ const by = new Map();
  for (const s of mine)
    for (const r of s.lossRuns) {
      if (!(r.weight !== null && r.weight > 0)) continue;
      const column = by.get(r.why) ?? none();
      by.set(r.why, column);
      for (let i = Math.max(0, Math.floor((r.from - from) / bucket)); i < n && from + i * bucket < Math.max(r.to, r.from + 1); i++) {
        const a = Math.max(r.from, from + i * bucket),
          b = Math.min(r.to, from + (i + 1) * bucket);
        column[i] += r.to > r.from ? (r.weight * (b - a)) / (r.to - r.from) : r.weight;
      }
    }
  if (!by.size) return null;
  /* nobody looked: no line */
  const seen = none();
  for (const s of mine)
    for (const r of s.runs) {
      if (r.state !== 'ok' && r.state !== 'lost') continue;
      for (let i = Math.max(0, Math.floor((r.from - from) / bucket)); i < n && from + i * bucket < r.to; i++) seen[i] = 1;
    }
  const cut = (/** @type {number[]} */ c) => c.map((v, i) => (v > 0 || seen[i] ? v : null));
  const sum = (/** @type {number[]} */ c) => c.reduce((a, b) => a + b, 0);
  const order = [...by].sort((a, b) => sum(b[1]) - sum(a[1])),
    rest = order.slice(LINES);
  const all = none().map((_, i) => order.reduce((s, [, c]) => s + (c[i] ?? 0), 0));
  return {
    title: `${type} lost`,
    type: one.type,
    from,
    to,
    bucket,
    n,
    total: sum(all),
    value: cut(all),
    samples: new Array(n).fill(null),
    coveredNs: none().map((_, i) => Math.min(bucket, to - from - i * bucket) * 1e6),
    lost: none(),
    groups: [
      ...order.slice(0, LINES).map(([name, c]) => ({ name, rest: false, value: cut(c) })),
      ...(rest.length ? [{ name: 'all others', rest: true, value: cut(none().map((_, i) => rest.reduce((s, [, c]) => s + (c[i] ?? 0), 0))) }] : []),
    ],
    empty: null,
  };
}

/** Figures by host: one number of a name, or by a label. @param {Rows} rows */
export function byHost(rows) {
  /** @type {Map<string, Rows>} */ const hosts = new Map();
  for (const r of rows) hosts.set(r.host, [...(hosts.get(r.host) ?? []), r]);
  return [...hosts]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([host, list]) => {
      const of = (/** @type {string} */ name) => list.filter((r) => r.name === `agent_${name}`);
      return {
        host,
        at: Math.max(...list.map((r) => r.at)),
        of,
        /** The newest of that name, null: none. @param {string} name */
        one: (name) => of(name).reduce((/** @type {Rows[number]|null} */ best, r) => (!best || r.at > best.at ? r : best), null)?.last ?? null,
        /** @param {string} name */
        sum: (name) => (of(name).length ? of(name).reduce((s, r) => s + (r.last ?? 0), 0) : null),
      };
    });
}
/** @typedef {ReturnType<typeof byHost>[number]} Host */

/** Of all walks of user and kernel stacks, how many came to the root, percent; null: none known. @param {Host} h */
export function wholeStacks(h) {
  const stops = FIGURES.filter((f) => f.startsWith('agent_stop_')).map((f) => ({ f, n: h.sum(f.slice(6)) ?? 0 }));
  const all = stops.reduce((s, x) => s + x.n, 0);
  return all ? (stops.filter((x) => WHOLE_STOPS.includes(x.f)).reduce((s, x) => s + x.n, 0) / all) * 100 : null;
}

/** Agents that hold more than they may, the worst first; full: these build no new unwind tables now. @param {Host[]} hosts */
export function overMemory(hosts) {
  return hosts
    .map((h) => ({ host: h.host, part: (h.one('memory') ?? 0) / (h.one('memory_limit') || Infinity), full: (h.one('memory_level') ?? 0) >= NO_NEW_TABLES }))
    .filter((h) => h.part > 1 || h.full)
    .sort((a, b) => b.part - a.part);
}
/** Hosts whose agents refused to build unwind tables: stacks end there as `notable`. @param {Host[]} hosts */
export const refusedTables = (hosts) => hosts.filter((h) => (h.one('tables_refused') ?? 0) > 0).map((h) => h.host);

const PY_STATES = lookup(/** @type {Record<string, [string, string]>} */ ({
  ok: ['read', 'frames and lines stand in its stacks'],
  py_wait: ['starting', 'not initialised yet; asked again'],
  py_version: ['refused', 'a version whose layout is not known: 3.10 to 3.15 are'],
  py_layout: ['refused', 'its layout is not that of its version: a debug build'],
  py_free_threaded: ['refused', 'without the interpreter lock'],
  py_tls: ['refused', 'its thread states are not where they must be'],
  py_gone: ['gone', 'its memory can no longer be read'],
}));

/** Pythons: host, version, state in words; only those that are there. @param {Host[]} hosts */
export function pythons(hosts) {
  return hosts.flatMap((h) =>
    h
      .of('python_versions')
      /* a pair that is gone is not told of any more: its last reading is older than the newest of its agent */
      .filter((r) => (r.last ?? 0) > 0 && h.at - r.at < 30_000)
      .map((r) => {
        const why = r.labels['why'] ?? '',
          [word, text] = PY_STATES[why] ?? [why, ''];
        return { host: h.host, version: r.labels['python'] ?? 'unknown', why, word, text, processes: r.last ?? 0 };
      })
      .sort((a, b) => b.processes - a.processes || (a.version < b.version ? -1 : 1)),
  );
}

/**
 * CPU time as samples say it beside what the kernel counts, percent. Only of processes that have both for a minute
 * and use a twentieth of a CPU: of those that were hit once or twice, only those that were hit are told of.
 * @param {Means} profiled @param {Means} kernel @returns {Map<string, number>} by host
 */
export function cpuRatio(profiled, kernel) {
  /** @type {Map<string, [number, number]>} */ const sums = new Map();
  const key = (/** @type {Means[number]} */ m) => `${m.host}\n${m.target}`;
  const known = new Map(kernel.filter((m) => (m.value ?? 0) >= LEAST_CPU && m.readings >= LEAST_READINGS).map((m) => [key(m), m.value ?? 0]));
  for (const p of profiled) {
    const k = known.get(key(p));
    if (p.value === null || k === undefined) continue;
    const [a, b] = sums.get(p.host) ?? [0, 0];
    sums.set(p.host, [a + p.value, b + k]);
  }
  return new Map([...sums].filter(([, [, b]]) => b > 0).map(([host, [a, b]]) => [host, (a / b) * 100]));
}

/** Days until the disk is as full as it may be, at this rate; null: not known. @param {Status['disk']} d */
export function daysLeft(d) {
  if (d.daysLeft !== null) return d.daysLeft;
  if (!d.perDay || d.free === null) return null;
  const room = d.limit !== null && d.bytes !== null ? Math.min(d.free, Math.max(0, d.limit - d.bytes)) : d.free;
  return room / d.perDay;
}
