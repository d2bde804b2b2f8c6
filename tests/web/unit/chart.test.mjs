// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hourly, mean, plotted, roundUp, runs, widthOf, windowFor, withSeconds } from '../../../web/js/chartmath.js';
import { shares } from '../../../web/js/shares.js';

const cpu = { id: '', name: 'cpu', unit: 'nanoseconds', kind: 'sum' };
const series = (o) => ({ type: cpu, from: 0, to: 4000, bucket: 1000, n: 4, total: null, samples: [], value: [], coveredNs: [], lost: [], empty: null, ...o });

test('rates divide by what was covered; not covered is no number, zero is zero', () => {
  const s = series({ value: [2e9, null, 0, 1e9], coveredNs: [1e9, 0, 1e9, 0.5e9], lost: [0, null, 0, 1e9] });
  const p = plotted(s);
  assert.deepEqual(p.y, [2e9, null, 0, 2e9]);
  assert.deepEqual(p.lost, [0, null, 0, 0.5], 'unknown loss is not none');
});

test('levels are means already', () => {
  const s = series({ type: { ...cpu, name: 'live', unit: 'bytes', kind: 'level' }, value: [5, null, 0, 7], coveredNs: [1e9, 0, 1e9, 1e9], lost: [] });
  assert.deepEqual(plotted(s).y, [5, null, 0, 7]);
});

test('the last bucket may be cut', () => {
  const s = series({ to: 3500, value: [1e9, 1e9, 1e9, 0.5e9], coveredNs: [null, null, null, null], lost: [] });
  assert.equal(widthOf(s, 3), 500);
  assert.deepEqual(plotted(s).y, [1e9, 1e9, 1e9, 1e9]);
  assert.equal(mean(s, 0, 3500), 1e9);
});

test('the mean over a part; nothing covered: no mean', () => {
  const s = series({ value: [1e9, null, 3e9, 3e9], coveredNs: [1e9, 0, 1e9, 1e9], lost: [] });
  assert.equal(mean(s, 0, 1000), 1e9);
  assert.equal(mean(s, 0, 4000), 7e9 / 3);
  assert.equal(mean(s, 1000, 2000), null);
});

test('runs and round numbers', () => {
  assert.deepEqual(runs(6, (i) => [0, 1, 4].includes(i)), [[0, 2], [4, 5]]);
  assert.deepEqual(runs(0, () => true), []);
  for (const [x, want] of [[0, 1], [0.9, 1], [1, 1], [1.01, 2], [2.1, 2.5], [38, 50], [51, 100], [0.013, 0.02]]) assert.ok(Math.abs(roundUp(x) - want) < 1e-9, `${x}`);
});

test('the window of the chart', () => {
  assert.deepEqual(windowFor([0, 100], true, [0, 900], 9999), [0, 100]);
  assert.deepEqual(windowFor([20, 40], false, [0, 100], 9999), [0, 100]);
  assert.deepEqual(windowFor([200, 300], false, [0, 100], 9999), [100, 400]);
  assert.deepEqual(windowFor([0, 1], false, [0, 1000], 9999), [-1, 2]);
  assert.deepEqual(windowFor([100, 200], false, null, 9999), [0, 300]);
  assert.deepEqual(windowFor([100, 200], false, null, 230), [0, 230], 'not into the time to come');
  assert.deepEqual(windowFor([100, 200], false, null, 150), [0, 200], 'what was asked for is shown');
});

test('a chart of days is asked in whole hours, from a whole hour on', () => {
  const h = 3600e3;
  assert.equal(hourly([0.5 * h, 72 * h], 600), null);
  assert.deepEqual(hourly([0.5 * h, 72.5 * h], 600), { from: 0, bucket: '1h' });
  assert.deepEqual(hourly([1000.2 * h, 1600 * h], 600), { from: 1000 * h, bucket: '1h' });
  assert.deepEqual(hourly([1000.2 * h, 1600.1 * h], 600), { from: 1000 * h, bucket: '2h' });
  assert.deepEqual(hourly([0, 8760 * h], 600), { from: 0, bucket: '15h' });
});

const quality = (o) => ({ askedNs: 60e9, coveredNs: 60e9, sources: 1, unknownSources: 0, expected: null, received: null, lost: [], rejected: [], noStack: null, truncated: null, unsymbolised: null, periods: [], shards: null, warnings: [], ...o });

test('800 samples and 200 lost at 10 ms: 20 % lost', () => {
  const s = shares(quality({ lost: [{ why: 'ring_full', n: 200, weight: 2e9 }] }), 8e9);
  assert.equal(s.lost, 20);
  assert.equal(s.lostValue, 2e9);
  assert.equal(s.covered, 100);
});

test('unknown loss is not zero', () => {
  const one = shares(quality({ received: 800, lost: [{ why: 'a', n: 200, weight: null }, { why: 'b', n: null, weight: 2e9 }] }), 8e9);
  assert.deepEqual([one.lost, one.lostValue, one.lostWhy.map((l) => l.p)], [null, null, [null, null]]);
  assert.equal(shares(quality({ lost: [] }), 8e9).lost, 0);
  assert.equal(shares(quality({ lost: [{ why: 'sender_gave_up', n: null, weight: null }] }), 8e9).lost, null);
  assert.equal(shares(quality({ received: 300, lost: [{ why: 'ring_full', n: 100, weight: null }] }), 8e9).lost, 25);
  assert.equal(shares(quality({ sources: 0 }), 0).lost, null);
  assert.equal(shares(quality({ coveredNs: null }), 8e9).covered, null);
  assert.equal(shares(quality({}), 8e9).unsymbolised, null);
});

test('times on the axis: seconds where ticks are closer than a minute', () => {
  assert.equal(withSeconds([0, 30, 60, 90]), true);
  assert.equal(withSeconds([15]), true);
  assert.equal(withSeconds([60, 120, 180]), false);
  assert.equal(withSeconds([]), false);
});
