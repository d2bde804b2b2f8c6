// SPDX-License-Identifier: Apache-2.0
/** The pure parts behind the panels of Explore: completion, CSV, lanes of steps, loss words, colours of binaries. */
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { cell, table } from '../../../web/js/later/csv.js';
import { EVENTS, eventWords } from '../../../web/js/later/eventwords.js';
import { LOSS } from '../../../web/js/later/losswords.js';
import { blocks, eventAt, labelsOf, lanesOf, nameOf, groupsOf, quantile, stepAt } from '../../../web/js/later/marks.js';
import { binaries } from '../../../web/js/paint.js';
import { parseSelector } from '../../../web/js/selector.js';
import { accept, placeAt, ranked } from '../../../web/js/selectorcomplete.js';
import { stepOf } from '../../../web/js/time.js';
import { decode, folded } from '../../../web/js/tree.js';

/** `|` is the caret. */
const at = (text) => placeAt(text.replace('|', ''), text.indexOf('|'));
test('completion knows what can stand at the caret', () => {
  for (const [text, want, typed, label] of [
    ['|', 'type', ''], ['cp|', 'type', 'cp'], ['cp|u{a="b"}', 'type', 'cp'],
    ['cpu{|', 'label', ''], ['cpu{ho|}', 'label', 'ho'], ['cpu{a="b", |}', 'label', ''], ['cpu{a="b",h|', 'label', 'h'],
    ['cpu{host|=~"x"}', 'label', 'host'], ['cpu{host |', 'op', '', 'host'], ['cpu{host!|', 'op', '!', 'host'],
    ['cpu{host=|', 'value', '', 'host'], ['cpu{host=gp|', 'value', 'gp', 'host'], ['cpu{host="gp|"}', 'value', 'gp', 'host'], ['cpu{host="g\\"p|', 'value', 'g\\"p', 'host'],
    ['cpu{host="x"|', 'next', ''], ['cpu{}|', '', ''], ['cpu{a="{", b="|', 'value', '', 'b'],
  ]) {
    const p = at(text);
    assert.equal(p.want, want, text);
    assert.equal(p.typed, typed, text);
    if (label) assert.equal(p.label, label, text);
  }
});
test('a choice makes a text that is understood, whatever the value holds', () => {
  const choose = (text, choice) => accept(text.replace('|', ''), at(text), choice);
  assert.deepEqual(choose('c|', 'cpu'), { text: 'cpu', caret: 3 });
  assert.deepEqual(choose('cpu{ho|}', 'host'), { text: 'cpu{host}', caret: 8 });
  for (const v of ['gpu-11', 'a"b', 'back\\slash', 'line\nbreak', '</script>', '{}', '日本', '']) {
    for (const start of ['cpu{host=|', 'cpu{host=|}', 'cpu{host="old|"}', 'cpu{host="ol|d", b="c"}']) {
      const r = choose(start, v);
      assert.equal(parseSelector(r.text).matchers[0].value, v, `${start} ${v}: ${r.text}`);
    }
  }
  assert.deepEqual(ranked(['host', 'pid', 'ghost'], 'ho'), ['host', 'ghost']);
  for (let i = 0; i < 3000; i++) {
    const text = Array.from({ length: (i * 7) % 14 }, (_, k) => 'a{}"=~!, \\`h'[(i * 31 + k * 17) % 12]).join('');
    const p = placeAt(text, i % (text.length + 1));
    assert.ok(p.from >= 0 && p.from <= p.to && p.to <= text.length, `${text} ${JSON.stringify(p)}`);
    accept(text, p, 'x');
  }
});

test('CSV: no cell is a formula, quotes and line breaks stay one cell, values are exact', () => {
  for (const [v, want] of [['=1+1', "'=1+1"], ['+x', "'+x"], ['-x', "'-x"], ['@x', "'@x"], ['\tx', "'\tx"], ['a,b', '"a,b"'], ['a"b', '"a""b"'], ['a\nb', '"a\nb"'], [-5, '-5'], [null, ''], ['plain', 'plain']]) assert.equal(cell(v), want);
  const row = (name, self) => ({ name, file: '', bin: 'x', kind: 'native', key: '1', raw: false, line: null, self, total: self, samples: 1, places: 1 });
  const flame = { type: { id: 'cpu:nanoseconds:sum', unit: 'nanoseconds', name: 'cpu', kind: 'sum' }, unfiltered: 9007199254740991, quality: { lost: [{ why: 'ring_full', n: 2, weight: 20 }], coveredNs: 5, askedNs: 10 } };
  const text = table({ type: flame.type, rows: [row('=HYPERLINK("http://x")', 9007199254740991)], groups: [{ name: 'host=a', self: [7] }] }, flame, { from: '1ns', to: '2ns' });
  const lines = text.split('\r\n');
  assert.match(lines[0], /^# type,cpu:nanoseconds:sum,from,1ns,to,2ns,of \(nanoseconds\),9007199254740991,covered ns,5,asked ns,10,lost,ring_full 20$/);
  assert.equal(lines[2], `"'=HYPERLINK(""http://x"")",,x,native,9007199254740991,9007199254740991,1,1,1,7`);
});

const steps = (list) => ({
  names: [...new Set(list.map((s) => s.name))].map((name) => ({ name, took: { n: list.filter((s) => s.name === name).length } })),
  n: list.length,
  name: list.map((s) => [...new Set(list.map((x) => x.name))].indexOf(s.name)),
  number: list.map((s) => String(s.number)),
  from: list.map((s) => s.from),
  dur: list.map((s) => s.dur),
  labels: list.map((s) => s.labels ?? {}),
});
test('steps: lanes by label, the same step of two ranks is one block, many in a pixel are one, a time finds its step', () => {
  const s = steps([0, 1].flatMap((rank) => [0, 1, 2].map((n) => ({ name: 'train', number: n, from: n * 100, dur: 90, labels: { rank: String(rank * 10) } }))).sort((a, b) => a.from - b.from));
  assert.equal(nameOf(s, ''), 'train');
  assert.equal(nameOf(s, 'none'), 'train');
  assert.deepEqual(labelsOf(s), [{ name: 'rank', values: 2 }]);
  assert.deepEqual(lanesOf(s, 'train', 'rank').lanes.map((l) => [l.name, l.at.length]), [['0', 3], ['10', 3]]);
  const [all] = lanesOf(s, 'train', '').lanes;
  assert.equal(all.at.length, 6);
  assert.deepEqual(blocks(s, all, (ms) => ms).map((b) => [b.a, b.b, b.n]), [[0, 90, 1], [100, 190, 1], [200, 290, 1]]);
  assert.equal(blocks(s, all, (ms) => ms / 1000).length, 1);
  assert.equal(blocks(s, all, (ms) => ms / 1000)[0].n > 1, true);
  assert.equal(s.number[stepAt(s, all, 150)], '1');
  assert.equal(stepAt(s, all, 95), -1);
  const many = steps(Array.from({ length: 9 }, (_, i) => ({ name: 'x', number: 0, from: 0, dur: 1, labels: { rank: String(i) } })));
  assert.deepEqual([lanesOf(many, 'x', 'rank').lanes.length, lanesOf(many, 'x', 'rank').others], [4, 5]);
  assert.deepEqual(groupsOf(steps([1, 5, 9].map((d) => ({ name: 'x', number: d, from: 0, dur: d, labels: { r: d > 4 ? 'b' : 'a' } }))), 'x', 'r').map((g) => [g.name, g.dur]), [['b', [5, 9]], ['a', [1]]]);
  assert.deepEqual([quantile([1, 2, 3, 4], 0.5), quantile([1, 2, 3, 4], 0.9), Number.isNaN(quantile([], 0.5))], [2, 4, true]);
  assert.equal(eventAt([{ at: 10 }, { at: 14 }], 13, 3).at, 14);
  assert.equal(eventAt([{ at: 10 }], 20, 3), null);
  assert.deepEqual(stepOf('train:4-9'), { name: 'train', first: '4', last: '9' });
  assert.deepEqual(stepOf('train:4'), { name: 'train', first: '4', last: '4' });
  assert.deepEqual(stepOf('a:b'), { name: 'a:b', first: '', last: '' });
});

test('words for reasons of loss are those of the table', () => {
  const c = readFileSync(new URL('../../../base/loss.h', import.meta.url), 'utf8');
  const table = Object.fromEntries([...c.matchAll(/X\([A-Z0-9_]+,\s*(?:LOST|KEPT),\s*"([a-z0-9_]+)",\s*"([^"]+)"\)/g)].map((m) => [m[1], m[2]]));
  assert.ok(Object.keys(table).length > 10);
  for (const [name, words] of Object.entries(LOSS)) assert.equal(words, table[name], name);
  for (const name of ['ring_full', 'spool_drop', 'ticks_missed']) assert.ok(LOSS[name], name);
});

test('words for events are those of docs/events.md; fields are said with their units, a kind without words by its code', () => {
  const doc = readFileSync(new URL('../../../docs/events.md', import.meta.url), 'utf8');
  const rows = [...doc.matchAll(/^\| `(\w+)` \| (.*?) ?\| (.*) \|$/gm)].map((m) => [m[1], [...m[2].matchAll(/`([^`]*)`/g)].map((x) => x[1]).join(' '), m[3]]);
  assert.ok(rows.length > 20);
  assert.deepEqual(EVENTS.map((e) => [...e]), rows);
  /* every kind that the agent sends has words */
  const agent = new URL('../../../agent/', import.meta.url);
  const sent = readdirSync(agent, { recursive: true }).filter((f) => f.endsWith('.c')).flatMap((f) => [...readFileSync(new URL(f, agent), 'utf8').matchAll(/(?:collector_event\(c|own_event\(k, [^"]*|say\(y), "(\w+)"/g)].map((m) => m[1]));
  assert.ok(sent.length > 20);
  for (const kind of sent) assert.ok(rows.some((r) => r[0] === kind), kind);
  const say = (kind, text) => eventWords({ kind, text }).sentence.replaceAll('\u202f', ' ');
  assert.equal(say('restart', 'version=0.1.0 period_ns=10101010 before=killed not_covered_from_ns=5 not_covered_ns=2500000000'), 'The agent was killed and began again; 2.50 s before that are not covered.');
  assert.equal(say('restart', 'version=0.1.0 period_ns=10101010 before=first'), 'The agent began, for the first time here.');
  assert.equal(say('restraint', 'source=cpu cause=cpu cpu_ns_per_s=9 budget_ns_per_s=5 ring_full=0 period_ns=20408163 was_ns=10101010'), 'The agent cost more than it may: it samples at 49 Hz, before at 99 Hz.');
  assert.equal(say('restraint', 'source=memory cause=memory memory_bytes=209715200 limit_bytes=104857600 now=tables_refused was=tables_evicted'), 'The agent holds 200 MiB, it may 100 MiB: no new unwind tables, so stacks of new programs are cut.');
  assert.equal(say('state', 'source=offcpu state=refused why="no sched_switch here"'), 'Time off the CPU is not seen: no sched_switch here.');
  assert.equal(say('clock_step', 'by_ns=-5000000'), 'The clock of the machine was set by −5.00 ms.');
  assert.equal(say('xid', 'code=79'), 'xid: code=79');
  assert.equal(eventWords({ kind: 'suspend', text: 'dur_ns=1\u202e' }).code, 'suspend: dur_ns=1<U+202E>');
  assert.doesNotMatch(eventWords({ kind: 'suspend', text: 'dur_ns=\u202e7' }).sentence, /\u202e/);
});

test('binaries: the largest have fills of their own, a later tree changes none', () => {
  const funcs = (bins) => ({ name: bins.map((b) => `f ${b}`), file: bins.map(() => ''), bin: bins, kind: bins.map(() => 'native'), key: bins.map(() => '1') });
  const bins = Array.from({ length: 30 }, (_, i) => `lib${i}.so`);
  const first = binaries(funcs(['', ...bins]), [0, ...bins.map((_, i) => 100 - i)]);
  assert.equal(new Set(first.slice(0, 14).map((b) => b.fill)).size, 14);
  assert.ok(first.every((b) => b.fill >= 0 && b.fill < 14));
  const again = binaries(funcs(['', ...bins.toReversed?.() ?? [...bins].reverse()]), [0, ...bins.map((_, i) => 100 - i)]);
  for (const b of again) assert.equal(b.fill, first.find((x) => x.bin === b.bin).fill);
});

test('a copied stack is a folded line, callers of the zoomed frame included, separators escaped', () => {
  const t = decode({ n: 2, node: { depth: [0, 1], func: [0, 1], self: [0, 5], total: [5, 5] }, func: { name: ['c', 'd;e\n'], file: ['', ''], bin: ['', ''], kind: ['', ''], key: ['1', '2'] } });
  assert.equal(folded(t, 1, []), 'd\\x3be\\x0a 5');
  assert.equal(folded(t, 1, ['all', 'a', 'c']), 'a;c;d\\x3be\\x0a 5');
});
