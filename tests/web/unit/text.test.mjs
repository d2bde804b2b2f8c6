// SPDX-License-Identifier: Apache-2.0
/** Numbers, times, URL, selector, hostile text: what turns data into words and back. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fmt from '../../../web/js/fmt.js';
import { parse as parsePrefs } from '../../../web/js/prefs.js';
import { MOST, added, filterOf, filterOfSearch, keepsPaths, parseFilter } from '../../../web/js/filters.js';
import { parsePattern } from '../../../web/js/search.js';
import { meant, safeUrl, show } from '../../../web/js/safe.js';
import { SelectorError, parseSelector, writeSelector } from '../../../web/js/selector.js';
import { fromField, moved, rangeText, span, toMs, toSpec } from '../../../web/js/time.js';
import { DEFAULTS, decode, encode } from '../../../web/js/url.js';

const cpu = { id: 'cpu:nanoseconds:sum', name: 'cpu', unit: 'nanoseconds', kind: 'sum' };
const live = { id: 'live:bytes:level', name: 'live', unit: 'bytes', kind: 'level' };
const plain = (s) => s.replaceAll('\u202f', ' ');

test('values', () => {
  const cases = [
    [0, cpu, '0 core-s'],
    [950, cpu, '950 ns'],
    [1500, cpu, '1.50 µs'],
    [12_300_000, cpu, '12.3 ms'],
    [1_010_000_000, cpu, '1.01 core-s'],
    [399e9, cpu, '399 core-s'],
    [999.4e9, cpu, '999 core-s'],
    [1000e9, cpu, '0.278 core-h'],
    [-27.9e9, cpu, '−27.9 core-s'],
    [5e9, { ...cpu, name: 'offcpu' }, '5.00 thread-s'],
    [131e9, { ...cpu, name: 'gpu_idle' }, '131 GPU-s'],
    [7e9, { ...cpu, name: 'wall' }, '7.00 s'],
    [0, live, '0 B'],
    [1023, live, '1,023 B'],
    [1536, live, '1.50 KiB'],
    [61.2 * 2 ** 30, live, '61.2 GiB'],
    [1234, { name: 'alloc_objects', unit: 'count', kind: 'sum' }, '1,234'],
    [12_345, { name: 'alloc_objects', unit: 'count', kind: 'sum' }, '12.3 k'],
    [4_560_000, { name: 'alloc_objects', unit: 'count', kind: 'sum' }, '4.56 M'],
    [41, { name: 'noop', unit: 'total', kind: 'sum' }, '41 total'],
    [NaN, cpu, 'unknown'],
    [Infinity, cpu, 'unknown'],
  ];
  for (const [v, t, want] of cases) assert.equal(plain(fmt.total(v, t)), want);
});

test('exact values, beyond 2^53 too', () => {
  assert.equal(plain(fmt.exact('9007199254740993', cpu)), '9,007,199,254,740,993 ns');
  assert.equal(plain(fmt.exact(1_010_000_000, cpu)), '1,010,000,000 ns');
  assert.equal(fmt.exact(12, { name: 'x', unit: 'count', kind: 'sum' }), '12');
});

test('rates', () => {
  assert.equal(plain(fmt.rate(48.1e9, cpu)), '48.1 cores');
  assert.equal(plain(fmt.rate(0.714e9, { ...cpu, name: 'gpu_busy' })), '71.4 % of device, sum over streams');
  assert.equal(plain(fmt.rate(2 ** 20 * 3, { ...live, kind: 'sum' })), '3.00 MiB/s');
  assert.equal(plain(fmt.rate(2 ** 30, live)), '1.00 GiB');
  assert.equal(plain(fmt.rate(12, { name: 'x', unit: 'count', kind: 'sum' })), '12.0/s');
});

test('shares: never a false 0 or 100 %', () => {
  const cases = [
    [0, 10, '0 %'],
    [1, 100_000, '< 0.1 %'],
    [99_999, 100_000, '> 99.9 %'],
    [10, 10, '100 %'],
    [314, 1000, '31.4 %'],
    [1, 0, 'no data'],
    [NaN, 10, 'no data'],
  ];
  for (const [a, b, want] of cases) assert.equal(plain(fmt.percent(a, b)), want);
});

test('uncertainty needs ten samples; periods', () => {
  assert.equal(fmt.plusMinus(1e9, 9, cpu), '');
  assert.equal(plain(fmt.plusMinus(1e9, 100, cpu)), '±200 ms');
  assert.equal(plain(fmt.period('10101010', cpu)), '99 Hz');
  assert.equal(plain(fmt.period('524288', live)), 'every 512 KiB');
  assert.equal(fmt.period('0', cpu), '');
});

test('no number of any size prints NaN, Infinity or undefined', () => {
  for (let e = -12; e < 22; e++)
    for (const m of [1, 2.5, 9.995, 9.9999])
      for (const t of [cpu, live, { name: 'x', unit: 'count', kind: 'sum' }, { name: 'y', unit: 'widgets', kind: 'sum' }])
        for (const s of [fmt.total(m * 10 ** e, t), fmt.rate(m * 10 ** e, t), fmt.percent(m, 10 ** e)]) {
          assert.doesNotMatch(s, /NaN|Infinity|undefined/);
          assert.doesNotMatch(s.replace(/^−/, ''), /^0(\.0+)?(?![\d.])/, `${m}e${e} prints ${s}`);
        }
});

test('times of the API', () => {
  const now = Date.UTC(2026, 10, 29, 14);
  assert.equal(toMs('now', now), now);
  assert.equal(toMs('now-15m', now), now - 900e3);
  assert.equal(toMs('now-7d', now), now - 7 * 86400e3);
  assert.equal(toMs('2026-11-29T13:00:00Z', now), now - 3600e3);
  assert.equal(toMs('2026-11-29T13:00:00.123456789Z', now), now - 3600e3 + 123);
  assert.equal(toMs('2026-11-29T14:00:00+01:00', now), now - 3600e3);
  assert.equal(toMs('1795960800s', now), 1795960800e3);
  assert.equal(toMs('1795960800000000000', now), 1795960800e3);
  for (const bad of ['', 'yesterday', '12345', '2026-11-29', '2026-11-29T13:00:00', 'now+1h', 'now-1', '1.5s', 'now-1h; drop'])
    assert.ok(Number.isNaN(toMs(bad, now)), bad);
  assert.equal(toSpec(now), '2026-11-29T14:00:00Z');
  assert.equal(toMs(toSpec(now + 7), 0), now + 7);
});

test('times of a person', () => {
  assert.equal(fromField(' 2026-11-29 14:02 ', true), '2026-11-29T14:02:00Z');
  assert.equal(fromField('2026-11-29 14:02:10', true), '2026-11-29T14:02:10Z');
  assert.equal(fromField('now-90m', true), 'now-90m');
  for (const bad of ['', '14:02', '29.11.2026', '2026-13-01 10:00', 'soon']) assert.equal(fromField(bad, true), '', bad);
});

test('ranges in words and moved', () => {
  const now = Date.UTC(2026, 10, 29, 14);
  assert.equal(rangeText('now-15m', 'now', now, true), 'Last 15 min');
  assert.equal(rangeText('2026-11-29T13:00:00Z', '2026-11-29T13:05:00Z', now, true), '2026-11-29 13:00:00 – 13:05:00 UTC');
  assert.deepEqual(moved(now - 100e3, now, -0.5, 1, now), [now - 150e3, now - 50e3]);
  assert.deepEqual(moved(now - 100e3, now, 0.5, 1, now), [now - 100e3, now]);
  assert.deepEqual(moved(now - 100e3, now, 0, 2, now), [now - 200e3, now]);
  assert.equal(span(90e3), '1 min 30 s');
  assert.equal(span(15e3), '15 s');
});

test('10,000 random states: decode(encode(s)) = s', () => {
  let seed = 11;
  const rnd = (n) => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) % n;
  const pick = (...list) => list[rnd(list.length)];
  const text = () => Array.from({ length: rnd(12) }, () => pick('a', 'Z', '"', '&', '=', '+', '%', ' ', 'ü', '\u202e', '/', '#', '😀', '\n', '{')).join('');
  const hash = () => pick('', Array.from({ length: 16 }, () => '0123456789abcdef'[rnd(16)]).join(''));
  for (let i = 0; i < 10_000; i++) {
    const s = {
      q: text(),
      from: pick('now-1h', 'now-5m', '2026-11-29T13:00:00Z', '1795960800s'),
      to: pick('now', '2026-11-29T13:30:00Z'),
      step: pick('', 'train', 'train:4', 'train:4-9', text()),
      f: Array.from({ length: rnd(4) }, () => `${pick('keep', 'drop', 'merge', 'collapse', 'start')}:${pick('', 'fn=', 'bin=')}a${text()}`),
      view: pick('flame', 'both', 'table', 'sandwich', 'compare'),
      by: pick('', 'thread', 'host,rank'),
      invert: pick('', '1'),
      agg: pick('', 'now'),
      at: pick('', '2026-11-29T13:05:00Z'),
      color: pick('origin', 'binary', 'self'),
      names: pick('short', 'full'),
      z: hash(),
      sel: hash(),
      s: text(),
      any: Array.from({ length: rnd(3) }, () => `a${text()}`),
      key: pick('fn', 'line', 'file', 'bin'),
      sort: pick('self', 'total', 'samples'),
      fn: text(),
      in: pick('', `bin=a${text()}`, `file=a${text()}`),
      a_q: text(),
      a_from: pick('', 'now-2h', '2026-11-29T12:00:00Z'),
      a_to: pick('', '2026-11-29T12:30:00Z'),
      norm: pick('', 'step', 'second', 'share', 'none'),
      order: pick('a', 'b', 'delta'),
      lane: text(),
      skip: pick('20', '0', '4000'),
      rank: pick('', '*', '5', text()),
      more: pick('', 'quality', 'steps', 'series'),
      unknown: rnd(4) ? [] : [['at', text()], ['at', text()]],
      notices: [],
    };
    assert.deepEqual(decode(encode(s)), s);
  }
});

test('garbage URLs become the default, with a notice naming the key', () => {
  for (const [k, v] of [['view', 'pie'], ['f', 'keep'], ['norm', 'minute'], ['order', 'c'], ['a_from', 'then'], ['in', 'kind=x'], ['f', 'delete:x'], ['z', 'xyz'], ['sel', '12'], ['from', 'yesterday'], ['to', ''], ['sort', 'name'], ['color', '1'], ['by', 'a,,b'], ['by', 'a,b,c,d'], ['any', ' '], ['key', 'addr'], ['invert', '0'], ['agg', 'peak'], ['more', 'x']]) {
    const s = decode(`?${new URLSearchParams([[k, v]])}`);
    assert.deepEqual(s[k], DEFAULTS[k]);
    assert.deepEqual(s.notices, [k]);
  }
  for (const bad of ['?%', '?%ff%fe', '?=&&&=', '?q', `?q=${'x'.repeat(9000)}`, '?__proto__=1&constructor=2']) assert.ok(decode(bad).q !== undefined);
  assert.equal(decode('?__proto__=1').unknown.length, 1);
  assert.equal(encode(decode('')), '?v=1');
});

test('filters: text and parts, of a frame, of a search', () => {
  assert.deepEqual(parseFilter('merge:bin=/^libcuda/'), { verb: 'merge', scope: 'bin', pattern: '/^libcuda/' });
  assert.deepEqual(parseFilter('keep:a:b=c\n'), { verb: 'keep', scope: '', pattern: 'a:b=c\n' });
  for (const bad of ['', 'keep:', 'keep', 'only:x', 'Keep:x', 'keep:fn=']) assert.equal(parseFilter(bad)?.pattern ?? null, bad === 'keep:fn=' ? 'fn=' : null, bad);
  const cases = [
    ['keep', 'train_step', 'keep:train_step'],
    ['drop', 'bin=x', 'drop:fn=bin=x'],
    ['collapse', 'recursion', 'collapse:fn=recursion'],
    ['keep', 'recursion', 'keep:recursion'],
    ['start', '/etc/', 'start:fn=/^\\/etc\\/$/'],
    ['merge', 'std::vector<int>::push_back', 'merge:std::vector<int>::push_back'],
  ];
  for (const [verb, name, want] of cases) {
    assert.equal(filterOf(verb, name), want);
    const { scope, pattern } = parseFilter(want);
    const re = pattern.match(/^\/(.*)\/$/s);
    assert.ok(re ? new RegExp(re[1]).test(name) : pattern === name && scope !== 'bin', want);
  }
  assert.equal(filterOfSearch(parsePattern('a.b(')), 'keep:/a\\.b\\(/i');
  assert.equal(filterOfSearch(parsePattern('bin=libc')), 'keep:bin=/libc/i');
  assert.equal(filterOfSearch(parsePattern('/^cuda/i')), 'keep:/^cuda/i');
  assert.deepEqual(added(['keep:a'], 'keep:a'), ['keep:a']);
  assert.equal(added(Array.from({ length: MOST }, (_, i) => `keep:${i}`), 'drop:x').length, MOST);
  assert.deepEqual(['keep:a', 'drop:a', 'start:a', 'merge:a', 'collapse:recursion'].map(keepsPaths), [true, true, false, false, false]);
  const many = decode(`?${new URLSearchParams(Array.from({ length: 20 }, (_, i) => ['f', `keep:${i}`]))}`);
  assert.equal(many.f.length, 16);
  assert.deepEqual(many.notices, ['f'], 'said once');
});

test('selectors: text and parts', () => {
  const s = parseSelector(' cpu { service = "rl-42", host=~"gpu-0[1-4]" , "odd name"!=`a"b` } ');
  assert.deepEqual(s, {
    type: 'cpu',
    matchers: [
      { name: 'service', op: '=', value: 'rl-42' },
      { name: 'host', op: '=~', value: 'gpu-0[1-4]' },
      { name: 'odd name', op: '!=', value: 'a"b' },
    ],
  });
  assert.equal(writeSelector(s), 'cpu{service="rl-42", host=~"gpu-0[1-4]", "odd name"!="a\\"b"}');
  assert.equal(parseSelector('cpu:nanoseconds:sum').type, 'cpu:nanoseconds:sum');
  assert.deepEqual(parseSelector('{}'), { type: '', matchers: [] });
  for (const v of ['', '"', '\\', '\n', '\u202e', 'a\tb', '日本', "'; DROP TABLE x;--", '\u0000']) {
    const back = parseSelector(writeSelector({ type: 'cpu', matchers: [{ name: 'x', op: '=', value: v }] }));
    assert.equal(back.matchers[0].value, v);
  }
  for (const [text, at] of [['cpu{', 4], ['cpu{a}', 5], ['cpu{a="x}', 9], ['cpu{a=x}', 6], ['cpu{a="x" b="y"}', 10], ['cpu}', 3], ['cpu{a="x"}y', 10], ['cpu{a="\\q"}', 8]])
    assert.throws(() => parseSelector(text), (e) => e instanceof SelectorError && e.at === at, text);
});

test('hostile text', () => {
  assert.equal(show(''), '(empty)');
  assert.equal(show('a\u202eb'), 'a<U+202E>b');
  assert.equal(show('a\u0000\u200bb'), 'a<U+0000><U+200B>b');
  assert.equal(show('x'.repeat(600)).length, 513);
  assert.equal(show('<img src=x onerror=alert(1)>'), '<img src=x onerror=alert(1)>');
  assert.equal(safeUrl('/api/v1/export', 'http://h/'), '/api/v1/export');
  for (const bad of ['javascript:alert(1)', 'data:text/html,x', ' java\nscript:alert(1)', 'blob:x', 'vbscript:x']) assert.equal(safeUrl(bad, 'http://h/'), '', bad);
});

test('preferences: anything not understood is the default', () => {
  const limits = { covered: [95, 50], lost: [1, 5], noStack: [5, 20], unsymbolised: [5, 20] },
    d = { theme: 'auto', utc: false, letters: true, limits };
  for (const bad of [null, '', '{', '[]', '7', '{"theme":"pink","utc":"yes","letters":0}']) assert.deepEqual(parsePrefs(bad), d);
  assert.deepEqual(parsePrefs('{"theme":"dark","utc":true,"letters":false}'), { theme: 'dark', utc: true, letters: false, limits });
  const own = (l) => parsePrefs(JSON.stringify({ limits: l })).limits;
  assert.deepEqual(own({ lost: [0.1, 2], covered: [99, 90] }), { ...limits, lost: [0.1, 2], covered: [99, 90] });
  for (const bad of [[5, 1], [1], [-1, 5], [1, 101], ['1', 5], null]) assert.deepEqual(own({ lost: bad }), limits, JSON.stringify(bad));
  assert.deepEqual(own({ covered: [50, 95] }), limits, 'covered falls');
});

test('what is offered is what show() writes; what was meant is found again', () => {
  const list = ['a', 'b\u202ec', ''];
  assert.deepEqual(list.map(show), ['a', 'b<U+202E>c', '(empty)']);
  for (const x of list) assert.equal(meant(show(x), list), x);
  assert.equal(meant('other', list), 'other');
  assert.equal(meant('b<U+202E>c', [...list, 'b<U+202E>c']), 'b<U+202E>c', 'one that is written so is itself');
});
