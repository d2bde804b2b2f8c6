// SPDX-License-Identifier: Apache-2.0
/** Step times before and after: the generator, the interval, the accounting, ranks. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MOST, RESAMPLES, accounting, bootstrap, generator, histogram, matched, medianOf, only, ranks, sideOf, summary, thinned } from '../../../web/js/later/stepdiff.js';

const M = (1n << 64n) - 1n;
function* splitmix64(seed) {
  let s = BigInt(seed);
  for (;;) {
    s = (s + 0x9e3779b97f4a7c15n) & M;
    let z = ((s ^ (s >> 30n)) * 0xbf58476d1ce4e5b9n) & M;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & M;
    yield z ^ (z >> 31n);
  }
}
const run = (g) => {
  for (;;) {
    const r = g.next();
    if (r.done) return r.value;
  }
};
/** mulberry32 */
function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let x = Math.imul(a ^ (a >>> 15), 1 | a);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

test('indices are the high half of splitmix64 times n', () => {
  for (const seed of [0, 1, 7, 0xffffffff]) {
    const index = generator(seed),
      want = splitmix64(seed);
    for (let i = 0; i < 3000; i++) {
      const n = 1 + ((i * 7919) % 10_000);
      assert.equal(index(n), Number((want.next().value * BigInt(n)) >> 64n), `seed ${seed}, number ${i}`);
    }
  }
});

/** The interval said as plainly as possible. */
function plain(a, b) {
  const g = splitmix64(1);
  const median = (x) => medianOf(x.map(() => x[Number((g.next().value * BigInt(x.length)) >> 64n)]));
  const d = [];
  for (let r = 0; r < RESAMPLES; r++) {
    const m = median(a);
    d.push(median(b) - m);
  }
  d.sort((x, y) => x - y);
  return [d[9], d[390]];
}
test('the bootstrap is what docs/steps.md says, to the digit; the example of that page', () => {
  const rnd = random(3);
  const a = Array.from({ length: 61 }, () => 400 + Math.floor(rnd() * 40)),
    b = Array.from({ length: 48 }, () => 430 + Math.floor(rnd() * 40));
  assert.deepEqual(run(bootstrap(a, b)), plain(a, b));
  const x = Array.from({ length: 30 }, (_, i) => 100 + ((i * 7) % 30)),
    y = Array.from({ length: 30 }, (_, i) => 110 + ((i * 11) % 30));
  assert.deepEqual(run(bootstrap(x, y)), plain(x, y));
  assert.deepEqual([medianOf(x), medianOf(y), ...run(bootstrap(x, y))], [114, 124, 2, 17]);
  assert.equal(run(bootstrap([], b)), null);
  assert.deepEqual(run(bootstrap([5], [7])), [2, 2]);
});
test('the interval holds what was planted, and equal sides hold zero, about 95 times of 100', () => {
  let held = 0,
    zero = 0;
  for (let seed = 1; seed <= 100; seed++) {
    const rnd = random(seed),
      side = (at) => Array.from({ length: 80 }, () => at + (rnd() + rnd() + rnd()) * 10);
    const [lo, hi] = run(bootstrap(side(400), side(420)));
    held += lo <= 20 && hi >= 20 ? 1 : 0;
    const [l, h] = run(bootstrap(side(400), side(400)));
    zero += l <= 0 && h >= 0 ? 1 : 0;
  }
  assert.ok(held >= 88 && zero >= 88, `${held} ${zero}`);
});
test('more than 10,000 are thinned evenly', () => {
  const t = thinned(Array.from({ length: 25_000 }, (_, i) => i));
  assert.equal(t.length, MOST);
  assert.deepEqual(t.slice(0, 4), [0, 2, 5, 7]);
});

const answer = (list, parts = []) => ({
  names: [{ name: 'train', took: null }, { name: 'eval', took: null }],
  n: list.length,
  name: list.map((s) => (s.eval ? 1 : 0)),
  number: list.map((s) => String(s.number)),
  from: list.map((s) => s.from),
  dur: list.map((s) => s.dur),
  labels: list.map((s) => (s.rank === undefined ? {} : { rank: s.rank })),
  inferred: list.map(() => false),
  parts: parts.map((name, k) => ({ name, ns: list.map((s) => (s.parts?.[k] === null || s.parts?.[k] === undefined ? null : s.parts[k] * 1e6)) })),
  more: false,
  partial: false,
});
test('a side: steps of the name, wholly inside, without the lowest numbers; numbers are numbers', () => {
  const list = [9, 10, 100, 11, 8].map((number, i) => ({ number, from: 1000 + i * 100, dur: 50 }));
  const s = answer([...list, { number: 1, from: 990, dur: 20 }, { number: 2, from: 1490, dur: 20 }, { number: 3, from: 1100, dur: 1, eval: true }]);
  assert.deepEqual(sideOf(s, 'train', [1000, 1500], 0).steps.map((x) => x.number), ['8', '9', '10', '11', '100']);
  assert.deepEqual(sideOf(s, 'train', [1000, 1500], 2).steps.map((x) => x.number), ['10', '11', '100']);
  assert.deepEqual(sideOf(s, 'train', [1000, 1500], 20).steps, []);
});

const side = (durs, o = () => ({})) => sideOf(answer(durs.map((dur, i) => ({ number: i, from: i * 1000, dur, ...o(i, dur) })), ['compute', 'idle_host', 'never']), 'train', [0, 1e9], 0);
test('the accounting: parts and residual make up the difference of the means; steps with an unknown part are left out and counted', () => {
  const parts = (extra) => (i, dur) => ({ parts: [dur * 0.7, i % 5 ? dur * 0.2 + extra : null, null] });
  const a = side(Array.from({ length: 50 }, (_, i) => 400 + (i % 7)), parts(0)),
    b = side(Array.from({ length: 40 }, (_, i) => 430 + (i % 9)), parts(20));
  const r = accounting(a, b);
  assert.deepEqual(r.rows.map((x) => x.name), ['compute', 'idle_host'], 'a part that nobody knows is none');
  assert.deepEqual(r.without, [10, 8]);
  assert.deepEqual(r.n, [40, 32]);
  const sum = r.rows.reduce((s, x) => s + x.delta, 0) + r.residual.delta;
  assert.ok(Math.abs(sum - r.total.delta) < 1e-9);
  for (const k of ['a', 'b']) assert.ok(Math.abs(r.rows.reduce((s, x) => s + x[k], 0) + r.residual[k] - r.total[k]) < 1e-9);
  assert.ok(r.rows[1].delta > 20 && r.rows[1].margin > 0 && r.rows[1].margin < 5);
  assert.equal(accounting(side([1, 2]), side([1, 2])), null, 'no parts: nothing is said');
});
test('planted 20 ms in one rank of 8: it is first; against the others, step by step', () => {
  const of = (slow) => {
    const list = [];
    for (let rank = 0; rank < 8; rank++) for (let i = 0; i < 40; i++) list.push({ number: 400 + i, from: i * 1000, dur: 400 + ((i * 7 + rank) % 5) + (slow && rank === 5 ? 20 : 0), rank: String(rank) });
    return sideOf(answer(list), 'train', [0, 1e9], 20);
  };
  const a = of(false),
    b = of(true);
  assert.equal(a.steps.length, 160);
  const list = ranks(a, b, 'rank');
  assert.deepEqual([list[0].value, list[0].delta, list[0].n], ['5', 20, [20, 20]]);
  assert.ok(list.slice(1).every((r) => r.delta === 0));
  const mine = only(b, 'rank', '5'),
    others = { ...b, steps: b.steps.filter((s) => s.labels.rank !== '5') };
  const d = matched(others, mine);
  assert.equal(d.length, 20);
  assert.ok(d[0] >= 15 && d.at(-1) <= 25);
  assert.deepEqual(ranks(a, only(b, 'rank', '1'), 'rank').at(-1).delta, null, 'a rank on one side alone has no difference');
});
test('few slow steps: the mean says another thing than the median, and they are listed', () => {
  const a = side(Array.from({ length: 50 }, (_, i) => 400 + (i % 7))),
    b = side(Array.from({ length: 50 }, (_, i) => (i % 25 ? 400 + (i % 7) : 4000)));
  const s = summary(a, b);
  assert.equal(s.median, 0);
  assert.ok(s.few && s.slow.length === 2 && s.slow[0].dur === 4000);
  assert.equal(summary(a, a).few, false);
  assert.deepEqual([summary(a, { parts: [], steps: [] }).median, summary(a, { parts: [], steps: [] }).b.p50], [null, null]);
  const h = histogram(a, b, 24);
  assert.equal(h.a.reduce((x, y) => x + y, 0) + h.b.reduce((x, y) => x + y, 0), 100);
});
