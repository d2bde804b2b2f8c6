// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BadAnswer, children, decode, findHash, hashOf, hiddenBelow, nodeHash, pathTo } from '../../../web/js/tree.js';
import * as answers from '../fixtures/answers.mjs';
import { makeTree } from '../fixtures/tree.mjs';

/** The ten nodes of the API's example, keys computed with XXH3-64 elsewhere. */
const TEN = {
  n: 10,
  func: {
    name: ['all', 'main', 'train', 'forward', 'forward', 'read', '[truncated]', 'memcpy'],
    file: ['', '', 'train.py', 'a.py', 'b.py', '', '', ''],
    bin: ['', 'demo', '', '', '', 'libc.so.6', '', 'libc.so.6'],
    kind: ['', 'native', 'python', 'python', 'python', 'native', 'other', 'native'],
    key: ['0000000000000000', '48046b589efdba3f', '0e0c6c68ea670ee4', '7945efdb258ff2cc', 'ab84f3a85bca27b7', 'b85400f7a3bbf68d', '0f8cedfe789e490c', '387a3e92c11fd04d'],
  },
  node: {
    depth: [0, 1, 2, 3, 3, 3, 2, 2, 1, 2],
    func: [0, 1, 2, 3, 4, -1, 5, -1, 6, 7],
    self: [0, 0, 0, 300, 150, 50, 300, 100, 0, 100],
    total: [1000, 900, 500, 300, 150, 50, 300, 100, 100, 100],
    samples: [100, 90, 50, 30, 15, 5, 30, 10, 10, 10],
    hidden: [0, 0, 0, 0, 0, 1, 0, 3, 0, 0],
  },
};

test('hashes of the ten nodes', () => {
  const t = decode(TEN);
  assert.equal(hashOf(t, 0), '');
  assert.equal(hashOf(t, 1), '5787e0e66f178936');
  assert.equal(hashOf(t, 2), '639f4652fa8cc9fe');
  assert.equal(hashOf(t, 3), '143184d9ecd195e9');
  assert.equal(hashOf(t, 6), '24b39400f5f3ca05');
  assert.equal(nodeHash(0n, 1n).toString(16), '5692161d100b05e5');
  assert.equal(nodeHash(nodeHash(0n, 1n), 2n).toString(16), 'a1b6937b60dc0b54');
});

test('two functions of one name are two nodes', () => {
  const t = decode(TEN);
  assert.notEqual(hashOf(t, 3), hashOf(t, 4));
  assert.equal(findHash(t, hashOf(t, 4)), 4);
});

test('structure: ends, parents, starts, what is hidden', () => {
  const t = decode(TEN);
  assert.deepEqual([...t.end], [10, 8, 6, 4, 5, 6, 7, 8, 10, 10]);
  assert.deepEqual([...t.parent], [-1, 0, 1, 2, 2, 2, 1, 1, 0, 8]);
  assert.deepEqual([...t.start], [0, 0, 0, 0, 300, 450, 500, 800, 900, 900]);
  assert.deepEqual(children(t, 1), [2, 6, 7]);
  assert.deepEqual(pathTo(t, 4), [0, 1, 2, 4]);
  assert.equal(hiddenBelow(t, 0), 150);
  assert.equal(hiddenBelow(t, 2), 50);
  assert.equal(t.frames[10] - t.frames[0], 8 + 1 + 3);
});

test('every named node of a tree is found by its hash, also from a zoomed answer', () => {
  const whole = makeTree('3k');
  const t = decode(answers.flamegraph(whole, new URLSearchParams({ max_nodes: '0' })));
  for (let i = 1; i < t.n; i += 5) assert.equal(findHash(t, hashOf(t, i)), i);
  const z = hashOf(t, 9);
  const a = answers.flamegraph(whole, new URLSearchParams({ max_nodes: '0', root: z }));
  const part = decode({ ...a, func: a.func }, BigInt(`0x${z}`));
  assert.equal(part.total[0], t.total[9]);
  assert.equal(hashOf(part, 0), z);
  for (let i = 1; i < part.n; i += 3) assert.equal(hashOf(part, i), hashOf(t, 9 + i));
  assert.equal(findHash(part, '0123456789abcdef'), -1);
});

test('samples: unknown is not zero', () => {
  const t = decode({ ...TEN, node: { ...TEN.node, samples: TEN.node.samples.map((s, i) => (i === 3 ? null : s)) } });
  assert.ok(Number.isNaN(t.samples[3]));
  assert.equal(t.samples[4], 15);
});

test('a stack of 20,000 frames', () => {
  const n = 20_000,
    column = (f) => Array.from({ length: n }, (_, i) => f(i));
  const func = { name: ['all', 'f'], file: ['', ''], bin: ['', ''], kind: ['', 'native'], key: ['0000000000000000', '0000000000000001'] };
  const node = { depth: column((i) => i), func: column((i) => (i ? 1 : 0)), self: column((i) => (i === n - 1 ? 5 : 0)), total: column(() => 5) };
  const t = decode({ n, node, func });
  assert.equal(t.maxDepth, n - 1);
  assert.equal(t.end[0], n);
});

const BAD = {
  'unequal columns': (a) => a.node.self.pop(),
  'a column missing': (a) => delete a.node.total,
  'no columns': (a) => delete a.node,
  'n too large': (a) => (a.n = 11),
  'n negative': (a) => (a.n = -1),
  'n not an integer': (a) => (a.n = 9.5),
  'depth starts at 1': (a) => (a.node.depth[0] = 1),
  'depth jumps': (a) => (a.node.depth[3] = 5),
  'a second root': (a) => (a.node.depth[4] = 0),
  'depth negative': (a) => (a.node.depth[4] = -1),
  'depth fractional': (a) => (a.node.depth[4] = 2.5),
  'depth beyond 65,535': (a) => (a.node.depth[4] = 65_536),
  'depth text': (a) => (a.node.depth[4] = 'x'),
  'depth null': (a) => (a.node.depth[4] = null),
  'function beyond the list': (a) => (a.node.func[4] = 8),
  'function -2': (a) => (a.node.func[4] = -2),
  'function null': (a) => (a.node.func[4] = null),
  'value negative': (a) => (a.node.self[4] = -150),
  'value NaN': (a) => (a.node.total[4] = NaN),
  'value infinite': (a) => (a.node.total[4] = Infinity),
  'value text': (a) => (a.node.total[4] = 'many'),
  'value null': (a) => (a.node.total[4] = null),
  'self above total': (a) => (a.node.self[4] = 151),
  'children above parent': (a) => (a.node.total[1] = 899),
  'sum too small': (a) => (a.node.self[9] = 99),
  'self of a leaf 0': (a) => (a.node.self[3] = 0),
};
for (const [what, spoil] of Object.entries(BAD))
  test(`bad answer: ${what}`, () => {
    const a = structuredClone(TEN);
    spoil(a);
    assert.throws(() => decode(a), BadAnswer);
  });
