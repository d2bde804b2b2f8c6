// SPDX-License-Identifier: Apache-2.0
/** The layout against a naive one, over random trees of whole numbers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { drawList, hasBars, hit, layout } from '../../../web/js/layout.js';
import { decode } from '../../../web/js/tree.js';
import * as answers from '../fixtures/answers.mjs';
import { filterTree } from '../fixtures/filters.mjs';
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

test('rows without a bar are told apart, wherever the view begins', () => {
  for (let seed = 1; seed <= 60; seed++) {
    const t = randomTree(seed, seed % 2 === 0),
      list = drawList(),
      top = (seed % 7) * 18,
      up = seed % 3 === 0;
    layout(t, { root: 0, x0: t.start[0], x1: t.start[0] + t.total[0], width: 300, height: 400, row: 18, up, top }, new Uint8Array(t.funcs.name.length), 1, list);
    const rows = new Set(Array.from({ length: list.n }, (_, i) => list.row[i]));
    for (let first = 0; first < 30; first++)
      for (const deep of [0, 1, 13]) {
        const shown = [...rows].some((r) => r >= first && r <= first + deep);
        assert.equal(hasBars(list, first, first + deep), shown, `seed ${seed}, rows ${first} to ${first + deep}`);
      }
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

/* ---- conservation on screen ---- */

/** Value of each bar of a list, and that every bar's own children, hidden frames and self make it up, in whole numbers. */
function conserved(t, view, l) {
  const inRow = new Map();
  for (let b = 0; b < l.n; b++) inRow.set(l.row[b], [...(inRow.get(l.row[b]) ?? []), b]);
  let parents = 0;
  for (const [row, list] of inRow) {
    list.sort((a, b) => l.x[a] - l.x[b]);
    for (let k = 1; k < list.length; k++) assert.ok(l.x[list[k - 1]] + l.w[list[k - 1]] <= l.x[list[k]], 'bars overlap');
    const below = (inRow.get(row + 1) ?? []).filter((b) => l.count[b] === 0 || t.func[l.node[b]] < 0);
    for (const b of list) {
      const n = l.node[b];
      if (l.count[b] || t.func[n] < 0) continue;
      parents++;
      /* children that stand as bars of their own, and the rest of them, which a run of dots or nothing stands for */
      let drawn = 0,
        small = 0;
      const own = new Set(below.filter((c) => t.parent[l.node[c]] === n).map((c) => l.node[c]));
      for (let c = n + 1; c < t.end[n]; c = t.end[c]) {
        if (own.has(c)) drawn += t.total[c];
        else small += t.total[c];
      }
      assert.equal(drawn + small + t.self[n], t.total[n]);
      /* pixels: what children cover is never more than the parent, and the bare part is its self, to a pixel an edge */
      const runs = (inRow.get(row + 1) ?? []).filter((c) => l.x[c] >= l.x[b] && l.x[c] + l.w[c] <= l.x[b] + l.w[b]);
      const covered = runs.reduce((s, c) => s + l.w[c], 0);
      assert.ok(covered <= l.w[b], 'children are wider than their parent');
      const whole = t.start[n] >= view.x0 && t.start[n] + t.total[n] <= view.x1;
      const k = view.width / (view.x1 - view.x0);
      /* what is too narrow for a run is drawn nowhere: less than a pixel each, and counted in the run beside it or under one pixel */
      if (whole && (row + 2) * view.row <= view.height) assert.ok(Math.abs(covered + t.self[n] * k - l.w[b]) <= 2 + gaps(t, n, own, k), `row ${row}: ${covered} + self ${t.self[n] * k} of ${l.w[b]}`);
    }
  }
  return parents;
}
/** Pixels that runs under one pixel leave bare: one between each two bars. */
const gaps = (t, n, own) => own.size + 1;

test('conservation: visible widths + hidden = total, in integers, for 1,000 random trees, zooms and filters', () => {
  let parents = 0;
  for (let seed = 1; seed <= 1000; seed++) {
    const rnd = random(seed * 7919),
      t = randomTree(seed, seed % 2 === 0);
    let root = 0;
    for (let hops = Math.floor(rnd() * 3); hops > 0; hops--) {
      const inner = Array.from({ length: t.end[root] - root }, (_, i) => root + i).filter((i) => t.func[i] >= 0 && t.total[i] > 0);
      root = inner[Math.floor(rnd() * inner.length)];
    }
    const width = 64 + Math.floor(rnd() * 2000),
      lens = rnd() < 0.3 ? t.total[root] * (0.1 + rnd() * 0.6) : t.total[root];
    const x0 = t.start[root] + Math.floor((t.total[root] - lens) * rnd());
    const { view, list } = draw(t, { root, width, x0, x1: x0 + lens });
    parents += conserved(t, view, list);
    /* row 0 is the zoomed frame: its width is the view's, its value what the link says */
    const top = Array.from({ length: list.n }, (_, b) => b).filter((b) => list.row[b] === 0);
    assert.equal(top.reduce((s, b) => s + list.w[b], 0), width);
    /* self over the whole view, with what is hidden, is the view's total */
    let sum = 0;
    for (let i = root; i < t.end[root]; i++) sum += t.self[i];
    assert.equal(sum, t.total[root]);
  }
  assert.ok(parents > 5000, `${parents} bars`);
});
/* A chain of what people do to a view: filters, and what the menu calls focus (start below a zoom) and hide. */
const VERBS = ['keep', 'drop', 'start', 'merge', 'collapse'];
/** @param {() => number} rnd @param {number} funcs */
function randomChain(rnd, funcs) {
  const name = () => (rnd() < 0.6 ? `g${1 + Math.floor(rnd() * funcs)}` : `/^g[${Math.floor(rnd() * 5)}-9]$/`);
  return Array.from({ length: 1 + Math.floor(rnd() * 4) }, () => {
    const verb = VERBS[Math.floor(rnd() * VERBS.length)];
    if (verb === 'collapse' && rnd() < 0.5) return 'collapse:recursion';
    return rnd() < 0.15 ? `${verb === 'collapse' ? 'merge' : verb}:bin=lib${Math.floor(rnd() * 3)}` : `${verb}:${name()}`;
  });
}
/** A random tree as the store holds it: every function by its name, children merged, no cut. */
function whole(seed) {
  const t = randomTree(seed, true),
    funcs = Array.from({ length: t.funcs.name.length }, (_, f) => ({ name: f ? `g${f}` : 'all', file: '', bin: f ? `lib${f % 3}` : '', kind: f ? 'native' : '' }));
  return { n: t.n, funcs, depth: t.depth, func: t.func.map((f) => (f < 0 ? 1 : f)), self: t.self, total: t.total };
}
test('conservation: random chains of filters over 1,000 random trees, zooms and cuts, in integers', () => {
  let bars = 0,
    chains = 0,
    left = 0;
  const used = new Set();
  for (let seed = 1; seed <= 1000; seed++) {
    const rnd = random(seed * 104729),
      store = whole(seed),
      f = randomChain(rnd, store.funcs.length - 1);
    for (const x of f) used.add(x.split(':')[0]);
    /* what the filters leave and what each took are the whole */
    const { tree, filtered } = filterTree(store, f, 1),
      all = BigInt(store.total[0]);
    assert.equal(BigInt(tree.total[0]) + filtered.reduce((s, x) => s + BigInt(x.dropped), 0n), all, `seed ${seed}: ${f.join(' ')}`);
    chains++;
    if (!tree.total[0]) continue;
    left++;
    /* a zoom, as the server answers it: trimmed to a width; what it cut is hidden, and counted */
    const width = 64 + Math.floor(rnd() * 1500),
      p = new URLSearchParams([...f.map((x) => ['f', x]), ['width', String(width)]]);
    const answer = answers.flamegraph(store, p),
      name = (k) => answer.func[k].map((i) => answer.strings[i]);
    const t = decode({ n: answer.n, node: answer.node, func: { ...answer.func, name: name('name'), file: name('file'), bin: name('bin') } });
    let shown = 0n,
      hidden = 0n;
    for (let i = 0; i < t.n; i++) t.func[i] < 0 ? (hidden += BigInt(t.total[i])) : (shown += BigInt(t.self[i]));
    assert.equal(shown + hidden, BigInt(answer.total), 'what is shown and what is hidden');
    assert.equal(hidden, BigInt(answer.trim.hidden_total));
    let root = 0;
    for (let hops = Math.floor(rnd() * 3); hops > 0; hops--) {
      const inner = Array.from({ length: t.end[root] - root }, (_, i) => root + i).filter((i) => t.func[i] >= 0);
      root = inner[Math.floor(rnd() * inner.length)];
    }
    const { view, list } = draw(t, { root, width });
    bars += conserved(t, view, list);
    const row0 = Array.from({ length: list.n }, (_, b) => b).filter((b) => list.row[b] === 0);
    assert.equal(row0.reduce((s, b) => s + list.w[b], 0), width);
  }
  assert.deepEqual([...used].sort(), [...VERBS].sort());
  assert.ok(chains === 1000 && left > 300 && bars > 3000, `${chains} chains, ${left} with something left, ${bars} bars`);
});

test('conservation: filters of the fixture leave what they say, and the rest is what they took', () => {
  const whole = makeTree('3k');
  for (const f of [['keep:train_step'], ['drop:gelu'], ['merge:kind=kernel'], ['collapse:recursion'], ['keep:forward', 'merge:bin=/libtorch/', 'start:_call_impl']]) {
    const p = new URLSearchParams([...f.map((x) => ['f', x]), ['width', '1280']]);
    const a = answers.flamegraph(whole, p);
    const t = decode({ n: a.n, node: a.node, func: { ...a.func, name: a.func.name.map((i) => a.strings[i]), file: a.func.file.map(String), bin: a.func.bin.map(String) } });
    assert.equal(BigInt(a.total) + a.filtered.reduce((s, x) => s + BigInt(x.dropped), 0n), BigInt(a.unfiltered.total), f.join());
    assert.equal(BigInt(t.total[0]), BigInt(a.total));
    let shown = 0n;
    for (let i = 0; i < t.n; i++) shown += BigInt(t.self[i]); // a hidden node's self is all of it
    assert.equal(shown, BigInt(a.total), 'self of what is shown and what is hidden');
    const { view, list } = draw(t, { width: 1280 });
    conserved(t, view, list);
  }
});
