// SPDX-License-Identifier: Apache-2.0
/** Two ranges against each other: trees of every layout, shades, words; against the server's own answers. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { LOOK, change, divisor, look, looks, side, signed, treeOf, whyUnsure } from '../../../web/js/later/diff.js';
import { diff } from '../fixtures/diff.mjs';
import { makeTree } from '../fixtures/tree.mjs';

globalThis.location = { origin: 'http://h', href: 'http://h/explore' };
const api = await import('../../../web/js/api.js');
const asked = async (body) => {
  globalThis.fetch = async () => new Response(JSON.stringify(body));
  return api.diff({}, new AbortController().signal);
};
const golden = (name) => JSON.parse(readFileSync(new URL(`../../golden/api/${name}.json`, import.meta.url), 'utf8'));
const plain = (s) => s.replaceAll('\u202f', ' ');
const P = (o) => new URLSearchParams({ a_from: '2026-11-29T12:00:00Z', a_to: '2026-11-29T13:00:00Z', b_from: '2026-11-29T13:00:00Z', b_to: '2026-11-29T14:00:00Z', ...o });

test('the fixture has the keys of the server’s answers', () => {
  for (const [name, p] of [['diff', {}], ['diff_top', { view: 'top' }]]) {
    const mine = diff(makeTree('3k'), P(p)),
      want = golden(name);
    const keys = (x) => Object.keys(x).sort();
    assert.deepEqual(keys(mine), keys(want), name);
    assert.deepEqual(keys(mine.a), keys(want.a), name);
    const [m, w] = [mine.node ?? mine.row, want.node ?? want.row];
    for (const k of keys(w)) assert.ok(k in m, `${name}.${k}`);
  }
});

test('covered and zero against something: new, per second, both losses; no NaN', async () => {
  const d = await asked(golden('diff'));
  assert.equal(d.comparable, true);
  assert.deepEqual([d.a.total, d.b.total, divisor(d, 'a'), divisor(d, 'b')], ['0', '1000', 20, 20]);
  assert.ok(d.node.state.every((s, i) => s === 2 || d.node.func[i] < 0 || d.node.totalB[i] === 0));
  assert.doesNotMatch(JSON.stringify([...looks(d)].map((_, i) => change(d, d.node.totalA[i], d.node.totalB[i], d.node.dTotal?.[i] ?? NaN, d.node.se?.[i] ?? null, d.node.sig?.[i] ?? 0, d.node.state[i]))), /NaN|Infinity/);
  const t = treeOf(d, 'b');
  assert.deepEqual([...t.total], d.node.totalB);
  assert.equal(treeOf(d, 'a').total[0], 0);
});

test('not covered: no data, no colour, no percentage', async () => {
  const d = await asked(golden('diff_not_covered'));
  assert.equal(d.comparable, false);
  assert.ok([...looks(d)].every((l) => l === LOOK.grey));
  assert.equal(change(d, 1, 2, NaN, null, 0, 0), 'no data');
});

test('layouts: widths are those of the side, or of the churn; children fit into their parent', async () => {
  const d = await asked(diff(makeTree('3k'), P({})));
  for (const order of ['a', 'b', 'delta']) {
    const t = treeOf(d, order);
    const want = order === 'a' ? d.node.totalA : order === 'b' ? d.node.totalB : d.node.churn;
    assert.deepEqual([...t.total], want);
  }
  const at = (name) => d.node.func.findIndex((f) => d.funcs.name[f] === name);
  const l = looks(d);
  assert.equal(l[at('gelu')], 2, 'doubled: the darkest shade of more');
  assert.equal(l[at('__next__')], LOOK.gone);
  assert.equal(l[at('default_collate')], LOOK.isNew);
});

test('equal ranges: all zero and n.s.; swapped: signs flip, nothing else', async () => {
  const same = await asked(diff(makeTree('3k'), P({ a_from: '2026-11-29T13:00:00Z', a_to: '2026-11-29T14:00:00Z' })));
  assert.ok(same.node.dTotal.every((x) => x === 0) && [...looks(same)].every((x) => x === LOOK.grey));
  const d = await asked(diff(makeTree('3k'), P({}))),
    s = await asked(diff(makeTree('3k'), P({ a_from: '2026-11-29T13:00:00Z', a_to: '2026-11-29T14:00:00Z', b_from: '2026-11-29T12:00:00Z', b_to: '2026-11-29T13:00:00Z' })));
  assert.deepEqual(s.node.dTotal.map((x) => -x || 0), d.node.dTotal.map((x) => x || 0));
  const flip = [3, 4, 5, 0, 1, 2, 6, 8, 7];
  assert.deepEqual([...looks(s)].map((x) => flip[x]), [...looks(d)]);
});

test('shades begin at 2, 10 and 50 % of the larger side; not significant is grey; words', async () => {
  const d = await asked(diff(makeTree('3k'), P({ norm: 'none' })));
  const shade = (a, b) => look(d, a, b, b - a, 1, Math.sign(b - a), 0);
  assert.deepEqual([shade(100, 101), shade(100, 103), shade(100, 112), shade(100, 201)], [LOOK.grey, 0, 1, 2]);
  assert.deepEqual([shade(103, 100), shade(112, 100), shade(201, 100)], [3, 4, 5]);
  assert.equal(look(d, 100, 200, 100, 60, 0, 0), LOOK.grey);
  assert.deepEqual([look(d, 100, 200, 100, null, 0, 0), look(d, 100, 101, 1, null, 0, 0)], [LOOK.unsure, LOOK.grey]);
  assert.equal(whyUnsure(d), '');
  const unsure = { ...d, delta: { ...d.delta, se: null } },
    mixed = { ...unsure, a: { ...d.a, quality: { ...d.a.quality, basis: ['every'] } } };
  assert.match(whyUnsure(mixed), /sampled and measured/);
  assert.match(whyUnsure({ ...mixed, b: mixed.a }), /too many stacks/);
  assert.match(whyUnsure({ ...unsure, type: { ...d.type, kind: 'level' } }), /a level/);
  assert.deepEqual([
    change(d, 0, 5, 5, 1, 1, 2), change(d, 5, 0, -5, 1, -1, 1), change(d, 100, 150, 50, 1, 1, 0), change(d, 100, 50, -50, 1, -1, 0), change(d, 100, 101, 1, 5, 0, 0), change(d, 1, 2, 1, null, 0, 0),
  ].map(plain), ['new', 'removed, −100 %', '+50.0 %', '−50.0 %', 'n.s.', '± unknown']);
  assert.equal(plain(signed(d, 27.9e9)), '+27.9 core-s');
  assert.equal(plain(signed(d, -27.9e9)), '−27.9 core-s');
});
