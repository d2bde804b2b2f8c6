// SPDX-License-Identifier: Apache-2.0
/** What the Quality screen computes: loss over time keeps its sum, what is old is not shown, unknown is not zero. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { byHost, cpuRatio, daysLeft, FIGURES, lossSeries, pythons, sources, wholeStacks } from '../../../web/js/later/qualitydata.js';

const TYPE = { id: 'cpu:nanoseconds:sum', name: 'cpu', unit: 'nanoseconds', kind: 'sum' };
const source = (o) => ({ type: TYPE, host: 'a', target: '', labels: {}, coveredNs: null, askedNs: 600e9, sourceNs: 300e9, scopes: 1, ended: false, runs: [], runsMore: 0, lost: [], lossRuns: [], lossRunsMore: 0, ...o });
const cover = (list, to = 600_000) => ({ range: { fromNs: '0', toNs: String(to * 1e6), from: 0, to }, partial: false, more: 0, sources: list });

test('loss over time: every reason keeps its sum, however it lies; where nobody looked there is no line', () => {
  let seed = 5;
  const rnd = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
  for (let round = 0; round < 200; round++) {
    const to = 1000 + Math.floor(rnd() * 3_600_000);
    const runs = Array.from({ length: 1 + Math.floor(rnd() * 30) }, () => {
      const from = Math.floor(rnd() * to);
      return { from, to: Math.min(to, from + Math.floor(rnd() * to * 0.3)), why: `r${Math.floor(rnd() * 8)}`, weight: 1 + Math.floor(rnd() * 1e9) };
    });
    const half = runs.length >> 1;
    const s = lossSeries(cover([source({ lossRuns: runs.slice(0, half) }), source({ host: 'b', lossRuns: runs.slice(half) })], to), 'cpu');
    const want = runs.reduce((x, r) => x + r.weight, 0),
      sum = (c) => c.reduce((x, v) => x + (v ?? 0), 0);
    assert.ok(Math.abs(s.total - want) < want * 1e-9, `${s.total} ${want}`);
    assert.ok(Math.abs(s.groups.reduce((x, g) => x + sum(g.value), 0) - want) < want * 1e-9, 'lines and the rest add up');
    assert.ok(s.groups.length <= 6 && s.n <= 121);
    assert.ok(s.value.every((v) => v === null || v > 0), 'no run: nobody looked, and 0 would be a claim');
  }
  const s = lossSeries(cover([source({ runs: [{ from: 0, to: 300_000, state: 'ok', why: '' }], lossRuns: [{ from: 0, to: 5000, why: 'x', weight: 7 }] })]), 'cpu');
  assert.deepEqual([s.value[0], s.value[1], s.value.at(-1)], [7, 0, null]);
  assert.equal(lossSeries(cover([source({ lossRuns: [{ from: 0, to: 5000, why: 'x', weight: null }] })]), 'cpu'), null, 'a loss of unknown weight has no height');
  assert.equal(lossSeries(cover([source({ lossRuns: [{ from: 0, to: 5000, why: 'x', weight: 7 }] })]), 'offcpu'), null);
});

test('sources: the state is that of now, trouble comes first; a type without coverage is there too', () => {
  const status = { agents: [{ host: 'a', lastNs: null, sources: [{ name: 'cpu', lastMs: 5, state: 'ok', why: '' }, { name: 'gpu_kernel', lastMs: 5, state: 'refused', why: 'other subscriber' }] }, { host: 'z', lastNs: null, sources: [{ name: 'cpu', lastMs: 5, state: 'ok', why: '' }] }] };
  const rows = sources(status, cover([source({ runs: [{ from: 0, to: 1, state: 'paused', why: 'budget' }] }), source({ host: 'b' })]));
  assert.deepEqual(rows.map((r) => [r.host, r.type, r.state, r.why, r.covered]), [['a', 'gpu_kernel', 'refused', 'other subscriber', null], ['b', 'cpu', '', '', 50], ['a', 'cpu', 'ok', '', 50]]);
  assert.equal(sources(status, cover([])).length, 3, 'nothing selected has coverage: all that is known');
  assert.deepEqual(sources(null, null), []);
  /* a source for each process: some ended, one is refused, another spoke just now */
  const each = { agents: [{ host: 'a', lastNs: null, sources: [{ name: 'offcpu', lastMs: 9, state: 'ok', why: '' }, { name: 'offcpu', lastMs: 3, state: 'refused', why: 'x' }, { name: 'offcpu', lastMs: 4, state: 'ok', why: '' }] }] };
  const run = (from, to) => ({ from, to, state: 'ok', why: '' });
  const [one, ...no] = sources(each, cover([source({ type: { ...TYPE, name: 'offcpu' }, scopes: 3, coveredNs: 150e9, sourceNs: 1, runs: [run(400_000, 500_000), run(550_000, 600_000)] })]));
  assert.deepEqual([one.state, one.why, one.lastMs, one.covered, no.length], ['refused', 'x', 9, 75, 0]);
});

const row = (name, last, labels = {}, at = 100_000, host = 'a') => ({ name: `agent_${name}`, unit: 'count', labels: { host, ...labels }, host, target: '', status: 'ok', last, at });
test('figures by host: the newest counts, a version that is gone is gone, stops are shares', () => {
  const hosts = byHost([
    row('python_versions', 3, { python: '3.11.7', why: 'ok' }),
    row('python_versions', 2, { python: '3.9.18', why: 'py_version' }, 40_000),
    row('python_versions', 0, { python: '3.12.1', why: 'ok' }),
    row('rss', 5, {}, 90_000),
    row('rss', 7),
    row('stop_end', 80),
    row('stop_kthread', 10),
    row('stop_notable', 10),
    row('rss', null, {}, 100_000, 'b'),
  ]);
  assert.deepEqual(pythons(hosts).map((p) => [p.version, p.word, p.processes]), [['3.11.7', 'read', 3]]);
  assert.equal(hosts[0].one('rss'), 7);
  assert.equal(hosts[0].one('none'), null);
  assert.equal(hosts[1].one('rss'), null, 'unknown is not zero');
  assert.equal(wholeStacks(hosts[0]), 90);
  assert.equal(wholeStacks(hosts[1]), null);
  assert.ok(FIGURES.length <= 64, 'as many names as one question takes');
});

test('CPU against the kernel: only processes that both know', () => {
  const m = (host, target, value, readings = 6) => ({ name: '', unit: '', labels: {}, host, target, status: '', value: value === null ? null : value * 1e6, readings });
  const r = cpuRatio([m('a', '1', 90), m('a', '2', 10), m('a', '3', 50), m('b', '1', null)], [m('a', '1', 100), m('a', '2', 100), m('b', '1', 100)]);
  assert.deepEqual([...r], [['a', 50]]);
  const few = cpuRatio([m('a', '1', 90), m('a', '2', 500), m('a', '3', 500)], [m('a', '1', 100), m('a', '2', 49), m('a', '3', 100, 5)]);
  assert.deepEqual([...few], [['a', 90]], 'what was hardly seen says nothing');
});

test('days left: the server says, else the room over the rate; unknown stays unknown', () => {
  const d = { bytes: 10, free: 100, limit: 30, perDay: 5, daysLeft: null, heldBy: '' };
  assert.equal(daysLeft(d), 4);
  assert.equal(daysLeft({ ...d, limit: null }), 20);
  assert.equal(daysLeft({ ...d, daysLeft: 9 }), 9);
  assert.equal(daysLeft({ ...d, perDay: null }), null);
  assert.equal(daysLeft({ ...d, bytes: 40 }), 0, 'over its limit already');
});
