// SPDX-License-Identifier: Apache-2.0
/** The layout against a naive one, over random trees of whole numbers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { drawList, hit, layout } from '../../../web/js/layout.js';
import { decode } from '../../../web/js/tree.js';
import * as answers from '../fixtures/answers.mjs';
import { makeTree } from '../fixtures/tree.mjs';

function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let x = Math.imul(a ^ (a >>> 15), 1 | a);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

/** A random tree; `sorted`: siblings fall by value, with the hidden child last. */
function randomTree(seed, sorted) {
  const rnd = random(seed);
  const node = { depth: [], func: [], self: [], total: [], hidden: [] };
  const funcs = 1 + Math.floor(rnd() * 30);
  function grow(depth, value, f, hidden) {
    node.depth.push(depth);
    node.func.push(f);
    node.total.push(value);
    node.hidden.push(hidden);
    const at = node.self.push(0) - 1;
    let left = value;
    if (f >= 0 && depth < 12 && node.depth.length < 400) {
      let parts = Array.from({ length: Math.floor(rnd() * 5) }, () => Math.floor(left * rnd() * 0.5)).filter((v) => {
        const fits = v > 0 && v <= left;
        if (fits) left -= v;
        return fits;
      });
      if (sorted) parts.sort((a, b) => b - a);
      const cut = rnd() < 0.2 && left > 1 ? Math.ceil(left * rnd() * 0.3) : 0;
      left -= cut;
      for (const v of parts) grow(depth + 1, v, 1 + Math.floor(rnd() * funcs), 0);
      if (cut) grow(depth + 1, cut, -1, 1 + Math.floor(rnd() * 50));
    }
    node.self[at] = left;
  }
  grow(0, 1 + Math.floor(rnd() * 1e6), 0, 0);
  const names = (x) => Array.from({ length: funcs + 1 }, () => x);
  return decode({ n: node.depth.length, node, func: { name: names('f'), file: names(''), bin: names(''), kind: names('native'), key: names('0000000000000001') } });
}

const HIDDEN_FILL = 36;
function draw(t, { root = 0, width = 1000, x0 = t.start[root], x1 = x0 + t.total[root], top = 0, height = 4000 } = {}) {
  const view = { root, x0, x1, width, height, row: 18, top };
  return { view, list: layout(t, view, new Uint8Array(t.funcs.name.length).fill(3), HIDDEN_FILL, drawList()) };
}
const bars = (l) => Array.from({ length: l.n }, (_, b) => [l.row[b], l.x[b], l.w[b], l.count[b], l.node[b]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);

/** What must be drawn, said as plainly as possible: recursion, sibling by sibling. */
function naive(t, { root = 0, width = 1000 } = {}) {
  const k = width / t.total[root],
    out = [];
  function walk(i) {
    const row = t.depth[i] - t.depth[root];
    const left = (t.start[i] - t.start[root]) * k;
    const a = Math.round(left),
      b = Math.min(width, Math.round(left + t.total[i] * k));
    if (b > a) out.push([row, a, b - a, t.func[i] < 0 ? t.hidden[i] : 0, i]);
    let run = null;
    const close = () => {
      if (!run) return;
      const ra = Math.round(run.from),
        rb = Math.min(width, Math.round(run.to));
      if (rb > ra) out.push([row + 1, ra, rb - ra, run.frames, run.node]);
      run = null;
    };
    for (let c = i + 1; c < t.end[i]; c = t.end[c]) {
      const x = (t.start[c] - t.start[root]) * k,
        w = t.total[c] * k;
      /* where siblings fall by value, nothing after the first small one is large, but for what the server cut */
      const rest = run && t.sorted && t.func[run.node] >= 0;
      if (w >= 1 && !rest) {
        close();
        walk(c);
        continue;
      }
      run ??= { from: x, to: x, frames: 0, node: c };
      run.to = x + w;
      for (let j = c; j < t.end[c]; j++) run.frames += t.func[j] < 0 ? t.hidden[j] : 1;
    }
    close();
  }
  walk(root);
  return out.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}

for (const sorted of [true, false])
  test(`1,000 random trees, siblings ${sorted ? 'falling' : 'in any order'}: the same bars as the naive layout`, () => {
    for (let seed = 1; seed <= 1000; seed++) {
      const t = randomTree(seed * 7 + (sorted ? 1 : 0), sorted);
      const width = 200 + (seed % 7) * 400;
      assert.deepEqual(bars(draw(t, { width }).list), naive(t, { width }), `seed ${seed}`);
      if (t.n > 3) assert.deepEqual(bars(draw(t, { width, root: 1 }).list), naive(t, { width, root: 1 }), `seed ${seed}, zoomed`);
    }
  });

test('sums are kept: bars of a row and the bare self cover the parent to a pixel', () => {
  for (let seed = 1; seed <= 300; seed++) {
    const t = randomTree(seed, true),
      width = 1500,
      k = width / t.total[0];
    const { list } = draw(t, { width });
    const at = new Map();
    for (let b = 0; b < list.n; b++) if (!list.count[b]) at.set(list.node[b], b);
    const covered = new Map();
    for (let b = 0; b < list.n; b++) {
      const up = t.parent[list.node[b]];
      if (up >= 0) covered.set(up, (covered.get(up) ?? 0) + list.w[b]);
    }
    for (const [up, wide] of covered) {
      assert.ok(at.has(up));
      const parent = at.get(up);
      const self = t.self[up] * k;
      /* a run under half a pixel is not drawn: at most that much is missing at each of two edges */
      assert.ok(Math.abs(wide + self - list.w[parent]) <= 2, `seed ${seed} node ${up}: ${wide} + ${self} of ${list.w[parent]}`);
    }
  }
});

for (const size of ['3k', '200k'])
  for (const maxNodes of [0, 20_000])
    test(`${size}, max_nodes ${maxNodes}: no overlap, inside the parent, found by the pointer, work bounded`, () => {
      const tree = decode(answers.flamegraph(makeTree(size), new URLSearchParams({ max_nodes: String(maxNodes), width: '1920' })));
      for (const root of [0, 1, 5, 40]) {
        const { list, view } = draw(tree, { root, width: 1920 });
        const at = new Map();
        for (let b = 0; b < list.n; b++) if (!list.count[b]) at.set(list.node[b], b);
        for (let r = 0; r < list.rows; r++) {
          let edge = 0;
          for (let k = list.rowAt[r]; k < list.rowAt[r + 1]; k++) {
            const b = list.byRow[k];
            assert.ok(list.x[b] >= edge && list.w[b] >= 1);
            edge = list.x[b] + list.w[b];
            assert.equal(hit(list, view, list.x[b], list.row[b] * 18 + 4), b);
            const up = at.get(tree.parent[list.node[b]]);
            if (up !== undefined) assert.ok(list.x[b] >= list.x[up] - 1 && edge <= list.x[up] + list.w[up] + 1);
          }
        }
        assert.ok(list.visited <= tree.n && list.n <= list.visited + 1);
        assert.ok(list.n <= 1920 * list.rows);
      }
    });

test('upside down the pointer finds the same bars, counted from the bottom', () => {
  const f = { name: ['all', 'a', 'b'], file: ['', '', ''], bin: ['', '', ''], kind: ['', 'native', 'native'], key: ['0', '1', '2'] };
  const t = decode({ n: 3, node: { depth: [0, 1, 2], func: [0, 1, 2], self: [50, 25, 25], total: [100, 50, 25] }, func: f });
  const v = { root: 0, x0: 0, x1: 100, width: 100, height: 90, row: 18, up: true, top: 0 };
  const l = layout(t, v, new Uint8Array(3), 0, drawList());
  const at = (x, y) => l.node[hit(l, v, x, y)];
  assert.deepEqual([at(10, 89), at(10, 72), at(10, 71), at(10, 53)], [0, 0, 1, 2]);
  assert.equal(hit(l, v, 40, 53), -1);
  assert.equal(hit(l, v, 10, 20), -1);
});

test('a window of the view: only what lies in it, at the same scale', () => {
  const t = decode(answers.flamegraph(makeTree('3k'), new URLSearchParams({ max_nodes: '0' })));
  const all = t.total[0];
  const { list } = draw(t, { width: 1000, x0: all * 0.25, x1: all * 0.5 });
  const full = draw(t, { width: 4000 }).list;
  const inside = bars(full).filter(([, x, w]) => x + w > 1000 && x < 2000);
  assert.equal(list.n, inside.length);
  for (let b = 0; b < list.n; b++) assert.ok(list.x[b] >= 0 && list.x[b] + list.w[b] <= 1000);
});
