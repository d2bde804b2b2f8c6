// SPDX-License-Identifier: Apache-2.0
/**
 * api.js against the golden answers of the server's own tests, and the fixtures against them: what
 * the browser tests are fed has the keys that the server writes, no more and no fewer.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { beforeEach, test } from 'node:test';
import * as answers from '../fixtures/answers.mjs';
import * as figures from '../fixtures/figures.mjs';
import * as marks from '../fixtures/marks.mjs';
import { sandwich } from '../fixtures/sandwich.mjs';
import { makeTree } from '../fixtures/tree.mjs';

const golden = (name) => JSON.parse(readFileSync(new URL(`../../golden/api/${name}.json`, import.meta.url), 'utf8'));
globalThis.location = { origin: 'http://h', href: 'http://h/explore' };
const api = await import('../../../web/js/api.js');

/** @type {{url:string, init:any}[]} */ let calls = [];
let reply = () => ({ body: {} });
globalThis.fetch = async (url, init) => {
  calls.push({ url, init });
  const { body, status = 200, headers = {} } = reply(url);
  return new Response(typeof body === 'string' ? body : JSON.stringify(body), { status, headers });
};
beforeEach(() => {
  calls = [];
});
const signal = () => new AbortController().signal;
const given = (body) => {
  reply = () => ({ body });
};

/** Keys at every depth, lists by their first entry. */
function shape(x) {
  if (Array.isArray(x)) return x.length && typeof x[0] === 'object' && !Array.isArray(x[0]) ? [shape(x[0])] : 'list';
  if (x === null || typeof x !== 'object') return 'value';
  return Object.fromEntries(Object.keys(x).sort().map((k) => [k, shape(x[k])]));
}
/** Objects that may be null and lists that may be empty are compared only where both are there. */
function sameShape(a, b, at = '') {
  if (a === 'value' || b === 'value' || a === 'list' || b === 'list') return;
  assert.equal(Array.isArray(a), Array.isArray(b), at);
  if (Array.isArray(a)) return sameShape(a[0], b[0], `${at}[]`);
  const free = ['labels', 'raw'].some((k) => at.endsWith(`.${k}`) || at.endsWith(`.${k}[]`));
  if (!free) assert.deepEqual(Object.keys(a), Object.keys(b), `keys of ${at || 'the answer'}`);
  for (const k of Object.keys(a)) if (k in b) sameShape(a[k], b[k], `${at}.${k}`);
}
test('fixtures have the shapes of the server’s golden answers', () => {
  const t = makeTree('3k'),
    p = new URLSearchParams({ match: 'cuda' });
  for (const [name, a] of Object.entries({
    flamegraph: answers.flamegraph(t, p),
    not_covered: answers.empty('no_agent_in_range'),
    zero: answers.empty('zero'),
    top: answers.top(t, golden('top').matched ? p : new URLSearchParams()),
    timeseries: answers.timeseries(t, new URLSearchParams()),
    sandwich: sandwich(t, new URLSearchParams({ fn: 'train_step' })),
    types: answers.types(),
    labels: answers.labels(),
    values: answers.values('service'),
    status: answers.status(),
    steps: { ...marks.steps(), summary: golden('steps').summary },
    events: marks.events(),
    coverage: marks.coverage(new URLSearchParams()),
    metrics: figures.metrics(new URLSearchParams()),
    metrics_counter: figures.means(new URLSearchParams({ name: 'agent_cpu' })),
    top_by: { ...answers.top(t, new URLSearchParams({ by: 'host' })), filtered: golden('top_by').filtered },
    top_line: answers.top(t, new URLSearchParams({ key: 'line' })),
  })) {
    const want = golden(name);
    if (!('matched' in want)) delete a.matched;
    if (!('any' in a)) delete want.any;
    if (want.node) delete want.node.hash; // asked for with hash=1 there
    sameShape(shape(a), shape(want), name);
  }
});

test('the flame graph of ten nodes', async () => {
  given(golden('flamegraph'));
  const a = await api.flamegraph({ q: 'cpu' }, signal());
  assert.equal(calls[0].url.replace(/^.*\/api/, '/api'), '/api/v1/flamegraph?q=cpu');
  assert.equal(a.tree.n, 10);
  assert.deepEqual(a.tree.funcs.name, ['all', 'main', 'train', 'forward', 'forward', 'read', '[truncated]', 'memcpy']);
  assert.equal(a.tree.funcs.file[3], 'a.py');
  assert.equal(a.tree.funcs.bin[5], 'libc.so.6');
  assert.equal(a.total, '1000');
  assert.equal(a.view.root, '');
  assert.deepEqual(a.trim, { nodes: 4, total: 150 });
  assert.deepEqual(a.quality.lost, [{ why: 'ring_full', n: 2, weight: 20 }]);
  assert.equal(a.quality.coveredNs, 60e9);
  assert.equal(a.quality.periodic, true);
  assert.equal(a.empty, null);
});

test('a zoomed one: root, path, hashes', async () => {
  given(golden('flamegraph_zoomed'));
  const a = await api.flamegraph({ root: '639f4652fa8cc9fe' }, signal());
  assert.equal(a.view.root, '639f4652fa8cc9fe');
  assert.deepEqual(a.view.path.map((p) => [p.name, p.hash]), [['all', ''], ['main', '5787e0e66f178936'], ['train', '639f4652fa8cc9fe']]);
  const { hashOf } = await import('../../../web/js/tree.js');
  assert.equal(hashOf(a.tree, 0), '639f4652fa8cc9fe');
  assert.equal(hashOf(a.tree, 1), '143184d9ecd195e9');
  assert.equal(a.tree.total[0], 500);
});

test('a sandwich: both trees have the function in row 0, with its total', async () => {
  given(golden('sandwich'));
  const a = await api.sandwich({ fn: 'main' }, signal());
  assert.deepEqual(a.function, { functions: 1, self: 0, total: 900 });
  for (const side of [a.callers, a.callees]) {
    assert.equal(side.tree.total[0], 900);
    assert.equal(side.tree.funcs.name[side.tree.func[0]], 'main');
  }
  given({ kind: 'tree' });
  await assert.rejects(api.sandwich({}, signal()), /sandwich/);
});

test('not covered, and covered and zero', async () => {
  given(golden('not_covered'));
  let a = await api.flamegraph({}, signal());
  assert.equal(a.tree, null);
  assert.equal(a.total, null);
  assert.equal(a.empty.why, 'no_agent_in_range');
  assert.equal(a.empty.lastNs, 1764417610000000000);
  given(golden('zero'));
  a = await api.flamegraph({}, signal());
  assert.equal(a.tree.n, 1);
  assert.equal(a.empty.why, 'zero');
});

test('time series, table, lists', async () => {
  given(golden('timeseries'));
  const s = await api.timeseries({}, signal());
  assert.equal(s.from, 1764417600000);
  assert.equal(s.bucket, 20_000);
  assert.deepEqual(s.value, [1000, 0, 0, null, null, null]);
  assert.deepEqual(s.coveredNs, [20e9, 20e9, 20e9, 0, 0, 0]);
  assert.deepEqual(s.lost, [6, 7, 7, 0, 0, 0]);
  given(golden('top'));
  const g = golden('top'),
    t = await api.top({}, signal());
  assert.equal(t.rows.length, g.n);
  assert.equal(t.rows[0].name, g.strings[g.func.name[g.row.func[0]]]);
  assert.equal(t.rows[0].self, g.row.self[0]);
  given(golden('types'));
  assert.equal((await api.types({}, signal()))[0].name, 'cpu');
  given(golden('labels'));
  assert.deepEqual((await api.labels({}, signal())).map((l) => l.name), ['host', 'service']);
  given(golden('values'));
  assert.deepEqual(await api.values('a/b', {}, signal()), ['demo']);
  assert.match(calls.at(-1).url, /labels\/a%2Fb\/values/);
  given(golden('status'));
  const st = await api.status(signal());
  assert.deepEqual(st.agents[0].sources, [{ name: 'cpu', lastMs: 1764417660000, state: 'ok', why: '' }]);
});

test('over groups: what one of them does not know, the sum does not know; what they share is said once', async () => {
  const g = golden('timeseries'),
    one = g.series[0],
    group = (k, o) => ({ ...one, labels: { host: k }, ...o });
  given({ ...g, n: 4, covered: [9, 5, 9, 0], lost: [7, null, 6, null], series: [
    group('a', { value: [10, 20, null, null], samples: [1, null, null, null], covered: [5, 5, 0, 0], lost: [3, null, 0, null] }),
    group('b', { value: [1, 2, 3, null], samples: [1, 2, 3, null], covered: [9, 4, 9, 0], lost: [4, 5, 6, 0] }),
  ] });
  const s = await api.timeseries({ by: 'host' }, signal());
  assert.deepEqual(s.value, [11, 22, 3, null]);
  assert.deepEqual(s.samples, [2, null, 3, null], 'a group that was not watched adds nothing; one that did not count makes it unknown');
  assert.deepEqual(s.lost, [7, null, 6, null], 'lines may share a loss or not: the answer says what they lost together');
  assert.deepEqual(s.coveredNs, [9, 5, 9, 0].map((x) => x * g.scale_ns));
});

test('steps, events, coverage, groups, lines', async () => {
  given(golden('steps'));
  const s = await api.steps({}, signal());
  assert.deepEqual([s.n, s.names[0].name, s.names[0].took.p90], [4, 'train', 20e9]);
  assert.deepEqual([s.from[0], s.dur[0], s.number[3]], [1764417598000, 12000, '3']);
  assert.deepEqual({ ...s.labels[1] }, { phase: 'warm' });
  assert.deepEqual(s.parts.map((p) => [p.name, p.ns[3]]), [['compute', null], ['idle_host', null]], 'unknown is not zero');
  given({ ...golden('steps'), row: { ...golden('steps').row, dur: [1] } });
  await assert.rejects(api.steps({}, signal()), /dur has 1 entries/);
  given({ ...golden('steps'), row: { ...golden('steps').row, number: ['1', '2', 'x', '3'] } });
  await assert.rejects(api.steps({}, signal()), /a number is none/);
  given(golden('events'));
  assert.deepEqual((await api.events({}, signal()))[1], { at: 1764417602000, kind: 'clock_step', text: 'by=-5ms', target: '' });
  given(golden('coverage'));
  const c = await api.coverage({}, signal());
  assert.deepEqual(c.sources[0].runs[1], { from: 1764417660000, to: 1764417690000, state: 'paused', why: 'budget' });
  assert.deepEqual([c.sources[0].sourceNs, c.sources[0].askedNs, c.sources[0].lost], [60e9, 120e9, [{ why: 'ring_full', n: 2, weight: 20 }]]);
  assert.deepEqual(c.sources[0].lossRuns[0], { from: 1764417600000, to: 1764417660000, why: 'ring_full', weight: 20 });
  given(golden('metrics_named'));
  const m = await api.metrics({}, signal());
  assert.deepEqual(m.rows.map((r) => [r.name, r.host, r.last, r.status, r.at]), [['process_cpu', 'h1', 31e9, 'ok', 1764417690000], ['process_rss', 'h1', null, 'denied', 1764417660000]], 'a reading that failed is no number');
  given(golden('metrics_counter'));
  assert.deepEqual((await api.metricMeans({ name: 'process_cpu' }, signal())).map((x) => [x.host, x.value]), [['h1', 5e8]]);
  assert.match(calls.at(-1).url, /points=1$/);
  given(golden('top_by'));
  const g = await api.top({}, signal());
  assert.deepEqual([g.groups[0].name, g.groups[0].self, g.groups[0].total], ['host=h1', [300, 300], 960]);
  given(golden('top_line'));
  assert.deepEqual((await api.top({}, signal())).rows.map((r) => r.line), golden('top_line').func.line);
  given(golden('top'));
  assert.deepEqual((await api.top({}, signal())).any?.each.map((x) => x.pattern), golden('top').any?.each.map((x) => x.pattern));
  const two = golden('timeseries');
  given({ ...two, lost: [12, null, 9, 0, 0, 0], series: [two.series[0], { ...two.series[0], labels: {}, rest: true, value: [5, null, 0, null, null, null], lost: [6, null, 9, 0, 0, 0] }] });
  const t = await api.timeseries({ by: 'host' }, signal());
  assert.deepEqual(t.value, [1005, 0, 0, null, null, null], 'the sum of the groups; nothing stays nothing');
  assert.deepEqual(t.lost, [12, null, 9, 0, 0, 0], 'as the answer says for all groups; unknown stays unknown');
  assert.deepEqual(t.groups.map((x) => x.name), ['host=h1', 'all others']);
});

test('errors carry code, parameter, request id and when to try again', async () => {
  reply = () => ({ status: 503, headers: { 'Retry-After': '3', 'X-Request-Id': 'abc' }, body: { error: { code: 'busy', message: 'later' } } });
  await assert.rejects(api.flamegraph({}, signal()), (e) => e instanceof api.ApiError && e.status === 503 && e.code === 'busy' && e.retryAfter === 3 && e.requestId === 'abc');
  reply = () => ({ status: 502, body: '<html>' });
  await assert.rejects(api.flamegraph({}, signal()), (e) => e.status === 502 && /502/.test(e.message));
  reply = () => {
    throw new TypeError('Failed to fetch');
  };
  await assert.rejects(api.flamegraph({}, signal()), (e) => e.status === 0 && e.code === 'unreachable');
});

test('answers that make no sense are refused', async () => {
  for (const spoil of [
    (a) => delete a.strings,
    (a) => (a.func.name[2] = 99),
    (a) => a.func.key.pop(),
    (a) => (a.kind = 'list'),
    (a) => (a.n = 'ten'),
    (a) => (a.node.total[1] = 1),
    (a) => (a.view.root = 'zz'),
    (a) => (a.node.depth[0] = 1),
    (a) => (a.node.depth[2] = 9),
    (a) => (a.node.func[1] = 1e9),
    (a) => (a.node.func[1] = -2),
    (a) => (a.node.self[1] = -1),
    (a) => (a.node.total[2] = null),
    (a) => a.node.depth.pop(),
    (a) => a.node.self.push(5),
    (a) => delete a.node.total,
    (a) => delete a.node,
    (a) => (a.strings[2] = 7),
    (a) => (a.func.file[1] = -1),
    (a) => delete a.kind,
  ]) {
    const a = golden('flamegraph');
    spoil(a);
    given(a);
    await assert.rejects(api.flamegraph({}, signal()), { name: 'Error', constructor: (await import('../../../web/js/tree.js')).BadAnswer });
  }
  given('nonsense');
  await assert.rejects(api.flamegraph({}, signal()), /not JSON/);
  /* whatever else is missing or of another kind: an answer, or "makes no sense", never an exception of another kind */
  const { BadAnswer } = await import('../../../web/js/tree.js');
  for (const key of Object.keys(golden('flamegraph')))
    for (const other of [undefined, null, 7, 'x', [], {}]) {
      given({ ...golden('flamegraph'), [key]: other });
      await api.flamegraph({}, signal()).catch((e) => assert.ok(e instanceof BadAnswer, `${key}: ${JSON.stringify(other)}: ${e.stack}`));
    }
});

test('a late answer is dropped, the newest stands', async () => {
  const slot = api.slot();
  let release;
  const first = slot.run(() => new Promise((ok) => (release = ok)));
  const second = slot.run(async () => 'new');
  release('old');
  await assert.rejects(first, { name: 'AbortError' });
  assert.equal(await second, 'new');
});

test('four requests at once, the others wait', async () => {
  let open = 0,
    most = 0;
  globalThis.fetch = async () => {
    most = Math.max(most, ++open);
    await new Promise((ok) => setTimeout(ok, 5));
    open--;
    return new Response(JSON.stringify(golden('values')));
  };
  await Promise.all(Array.from({ length: 12 }, () => api.values('x', {}, signal())));
  assert.equal(most, 4);
});

test('a long question goes as a form', async () => {
  globalThis.fetch = async (url, init) => {
    calls.push({ url, init });
    return new Response(JSON.stringify(golden('values')));
  };
  await api.values('x', { q: `cpu{a="${'y'.repeat(8000)}"}` }, signal());
  assert.equal(calls[0].init.method, 'POST');
  assert.ok(!calls[0].url.includes('?'));
  assert.equal(calls[0].init.body.get('q').length, 8009);
});
