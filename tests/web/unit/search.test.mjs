// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { matchedSum, matches, matchesOf, parsePattern } from '../../../web/js/search.js';
import { decode } from '../../../web/js/tree.js';
import * as answers from '../fixtures/answers.mjs';
import { makeTree } from '../fixtures/tree.mjs';

const whole = makeTree('3k');
const tree = decode(rebuild(answers.flamegraph(whole, new URLSearchParams({ max_nodes: '0' }))));
/** strings -> names, as api.js does */
function rebuild(a) {
  const of = (c) => c.map((i) => a.strings[i]);
  return { ...a, func: { ...a.func, name: of(a.func.name), file: of(a.func.file), bin: of(a.func.bin) } };
}

test('patterns', () => {
  assert.deepEqual(parsePattern('cublas'), { scope: 'fn', text: 'cublas', regex: false });
  assert.deepEqual(parsePattern('bin=libc'), { scope: 'bin', text: 'libc', regex: false });
  assert.deepEqual(parsePattern('file=/\\.py$/i'), { scope: 'file', text: '/\\.py$/i', regex: true });
  assert.equal(parsePattern('/').regex, false);
  assert.equal(parsePattern('a/b').regex, false);
});

/** For every sample (self of a node): does its stack hold a match? */
function bruteForce(lit, root) {
  let sum = 0;
  for (let i = root; i < tree.end[root]; i++) {
    let hit = false;
    for (let k = i; k >= root; k = tree.parent[k]) if (tree.func[k] >= 0 && lit[tree.func[k]]) hit = true;
    if (hit) sum += tree.self[i];
  }
  return sum;
}

test('the matched sum counts each sample once, under nesting and zoom', () => {
  for (const s of ['forward', 'cuda', 'bin=libc', 'file=.py', 'e', 'no such name', '[no stack'])
    for (const root of [0, 4, 9, 30]) {
      const lit = matches(tree.funcs, s);
      assert.equal(matchedSum(tree, lit, root).sum, bruteForce(lit, root), `${s} at ${root}`);
    }
});

test('the same as the server says, for the whole', () => {
  for (const s of ['forward', 'cuda', 'bin=libtorch', 'e']) {
    const a = answers.top(whole, new URLSearchParams({ match: s, limit: '2000' }));
    const lit = matches(tree.funcs, s);
    assert.equal(String(matchedSum(tree, lit, 0).sum), a.matched.total);
    assert.equal(lit.reduce((x, y) => x + y, 0), a.matched.functions);
    assert.deepEqual([...matchesOf(tree.funcs, new Set(a.func.key.slice(1)))], [...lit]);
  }
});

test('on a trimmed tree: view <= truth <= view + hidden', () => {
  const a = rebuild(answers.flamegraph(whole, new URLSearchParams({ width: '200' })));
  const cut = decode(a);
  for (const s of ['forward', 'cuda', 'malloc', 'schedule']) {
    const truth = matchedSum(tree, matches(tree.funcs, s), 0).sum,
      seen = matchedSum(cut, matches(cut.funcs, s), 0).sum;
    assert.ok(seen <= truth && truth <= seen + Number(a.trim.hidden_total), s);
  }
});

test('nothing asked, or a regular expression: nothing matched here', () => {
  assert.equal(matches(tree.funcs, ''), null);
  assert.equal(matches(tree.funcs, '  '), null);
  assert.equal(matches(tree.funcs, 'bin='), null);
  assert.equal(matches(tree.funcs, '/(a+)+$/'), null);
});
