// SPDX-License-Identifier: Apache-2.0
/**
 * Step times before and after: medians with a bootstrap interval, what the difference is made of, ranks.
 * The figures are those of `docs/steps.md`, "Two ranges of steps": same generator, same numbers anywhere.
 * Pure; milliseconds.
 */
import { quantile } from './marks.js';

export const RESAMPLES = 400;
export const MOST = 10_000; // of a side; more are thinned evenly
const LOW = 9,
  HIGH = 390; // of the sorted differences, counted from 0: the 10th and the 391st
const TWO32 = 2 ** 32;
const SLOW = 5; // times the median

/** @typedef {{number: string, from: number, dur: number, labels: Record<string, string>, parts: (number|null)[]}} Step */
/** @typedef {{parts: string[], steps: Step[]}} Side */

/** High 32 bits of a product of two 32-bit integers. @param {number} a @param {number} b */
function high(a, b) {
  const a1 = a >>> 16,
    a0 = a & 0xffff,
    b1 = b >>> 16,
    b0 = b & 0xffff;
  const u = a1 * b0 + ((a0 * b0) >>> 16),
    v = a0 * b1 + (u & 0xffff);
  return a1 * b1 + (u >>> 16) + (v >>> 16);
}

/** splitmix64 as indices: the high half of (number × n). Without BigInt, eight million of which take seconds. @param {number} seed below 2^32 */
export function generator(seed) {
  let hi = 0,
    lo = seed >>> 0;
  /** @param {number} n below 2^20 */
  return (n) => {
    const sum = lo + 0x7f4a7c15;
    hi = (hi + 0x9e3779b9 + (sum >= TWO32 ? 1 : 0)) >>> 0;
    lo = sum >>> 0;
    let h = hi ^ (hi >>> 30),
      l = lo ^ ((lo >>> 30) | (hi << 2));
    [h, l] = [(high(l >>> 0, 0x1ce4e5b9) + Math.imul(h, 0x1ce4e5b9) + Math.imul(l, 0xbf58476d)) | 0, Math.imul(l, 0x1ce4e5b9)];
    [h, l] = [h ^ (h >>> 27), l ^ ((l >>> 27) | (h << 5))];
    [h, l] = [(high(l >>> 0, 0x133111eb) + Math.imul(h, 0x133111eb) + Math.imul(l, 0x94d049bb)) | 0, Math.imul(l, 0x133111eb)];
    [h, l] = [(h ^ (h >>> 31)) >>> 0, (l ^ ((l >>> 31) | (h << 1))) >>> 0];
    return Math.floor((h * n + Math.floor((l * n) / TWO32)) / TWO32);
  };
}

/** At most MOST of them, evenly. @param {number[]} list */
export const thinned = (list) => (list.length <= MOST ? list : Array.from({ length: MOST }, (_, i) => /** @type {number} */ (list[Math.floor((i * list.length) / MOST)])));

/**
 * The 95 % interval of median(b) - median(a), a resample of both sides at a time so that it can be paused.
 * @param {number[]} a in the order of their numbers @param {number[]} b
 * @returns {Generator<undefined, [number, number]|null, undefined>} null: a side is empty
 */
export function* bootstrap(a, b) {
  if (!a.length || !b.length) return null;
  const draw = generator(1);
  const sides = [a, b].map((x) => {
    const list = thinned(x),
      sorted = Float64Array.from(list).sort();
    /* step -> its place by duration: a resample is then a count of each place */
    const order = Array.from(list, (_, i) => i).sort((i, j) => (list[i] ?? 0) - (list[j] ?? 0) || i - j),
      place = new Int32Array(list.length);
    order.forEach((i, k) => (place[i] = k));
    return { n: list.length, sorted, place, seen: new Int32Array(list.length) };
  });
  const median = (/** @type {typeof sides[number]} */ s) => {
    s.seen.fill(0);
    for (let k = 0; k < s.n; k++) s.seen[s.place[draw(s.n)]]++;
    let left = Math.ceil(s.n / 2),
      at = 0;
    while ((left -= s.seen[at]) > 0) at++;
    return s.sorted[at];
  };
  const deltas = new Float64Array(RESAMPLES);
  for (let r = 0; r < RESAMPLES; r++) {
    const before = median(/** @type {typeof sides[number]} */ (sides[0]));
    deltas[r] = median(/** @type {typeof sides[number]} */ (sides[1])) - before;
    yield;
  }
  deltas.sort();
  return [deltas[LOW], deltas[HIGH]];
}

const byNumber = (/** @type {string} */ a, /** @type {string} */ b) => a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);

/**
 * The steps of a name that lie wholly in a range, by number, without those of the lowest `skip` numbers.
 * @param {import('../api.js').Steps} s @param {string} name @param {[number, number]} range ms @param {number} skip
 * @returns {Side}
 */
export function sideOf(s, name, [from, to], skip) {
  const steps = Array.from({ length: s.n }, (_, i) => i)
    .filter((i) => s.names[s.name[i] ?? -1]?.name === name && (s.from[i] ?? 0) >= from && (s.from[i] ?? 0) + (s.dur[i] ?? 0) <= to)
    .map((i) => ({ number: s.number[i] ?? '', from: s.from[i] ?? 0, dur: s.dur[i] ?? 0, labels: s.labels[i] ?? {}, parts: s.parts.map((p) => { const ns = p.ns[i] ?? null; return ns === null ? null : ns / 1e6; }) }))
    .sort((x, y) => byNumber(x.number, y.number) || x.from - y.from);
  const numbers = [...new Set(steps.map((x) => x.number))],
    left = new Set(numbers.slice(skip));
  return { parts: s.parts.map((p) => p.name), steps: steps.filter((x) => left.has(x.number)) };
}

const meanOf = (/** @type {number[]} */ x) => x.reduce((s, v) => s + v, 0) / x.length;
/** Median by nearest rank, as the server's p50. @param {number[]} x */
export const medianOf = (x) => quantile([...x].sort((p, q) => p - q), 0.5);
const durs = (/** @type {Side} */ s) => s.steps.map((x) => x.dur);

/** Half of the 95 % interval of a difference of means. @param {number[]} a @param {number[]} b NaN: a side has fewer than two */
function margin(a, b) {
  const part = (/** @type {number[]} */ x) => {
    const m = meanOf(x);
    return x.length < 2 ? NaN : x.reduce((s, v) => s + (v - m) ** 2, 0) / (x.length - 1) / x.length;
  };
  return 1.96 * Math.sqrt(part(a) + part(b));
}

/**
 * Where the mean went: the parts that both sides know, and what they leave. Means, for medians do not add.
 * @param {Side} a @param {Side} b
 */
export function accounting(a, b) {
  const has = (/** @type {Side} */ s, /** @type {string} */ p) => s.steps.some((x) => (x.parts[s.parts.indexOf(p)] ?? null) !== null);
  const names = a.parts.filter((p) => has(a, p) && has(b, p));
  const of = (/** @type {Side} */ s) => {
    const at = names.map((p) => s.parts.indexOf(p)),
      whole = s.steps.filter((x) => at.every((k) => (x.parts[k] ?? null) !== null));
    return { whole, without: s.steps.length - whole.length, parts: at.map((k) => whole.map((x) => /** @type {number} */ (x.parts[k]))), dur: whole.map((x) => x.dur) };
  };
  const x = of(a),
    y = of(b);
  if (!names.length || !x.whole.length || !y.whole.length) return null;
  const row = (/** @type {string} */ name, /** @type {number[]} */ p, /** @type {number[]} */ q) => ({ name, a: meanOf(p), b: meanOf(q), delta: meanOf(q) - meanOf(p), margin: margin(p, q) });
  const rows = names.map((name, k) => row(name, x.parts[k] ?? [], y.parts[k] ?? []));
  const total = row('', x.dur, y.dur),
    rest = (/** @type {'a'|'b'|'delta'} */ k) => total[k] - rows.reduce((s, r) => s + r[k], 0);
  return { rows, residual: { a: rest('a'), b: rest('b'), delta: rest('delta') }, total, n: [x.whole.length, y.whole.length], without: [x.without, y.without] };
}

/** Medians by the value of a label, those that became slowest first. @param {Side} a @param {Side} b @param {string} label */
export function ranks(a, b, label) {
  const group = (/** @type {Side} */ s) => {
    /** @type {Map<string, number[]>} */ const m = new Map();
    for (const x of s.steps) {
      const v = x.labels[label];
      if (v !== undefined) m.set(v, [...(m.get(v) ?? []), x.dur]);
    }
    return m;
  };
  const [p, q] = [group(a), group(b)];
  return [...new Set([...p.keys(), ...q.keys()])]
    .map((value) => {
      const x = p.get(value),
        y = q.get(value);
      const [m, n] = [x ? medianOf(x) : null, y ? medianOf(y) : null];
      return { value, a: m, b: n, delta: m === null || n === null ? null : n - m, n: [x?.length ?? 0, y?.length ?? 0] };
    })
    .sort((x, y) => (y.delta ?? -Infinity) - (x.delta ?? -Infinity) || (y.b ?? 0) - (x.b ?? 0) || byNumber(x.value, y.value));
}

/** A side without the steps of other values. @param {Side} s @param {string} label @param {string} value @returns {Side} */
export const only = (s, label, value) => ({ ...s, steps: s.steps.filter((x) => x.labels[label] === value) });

/** Of steps with one number: this side's median less the other's, ascending. @param {Side} a @param {Side} b */
export function matched(a, b) {
  const by = (/** @type {Side} */ s) => {
    /** @type {Map<string, number[]>} */ const m = new Map();
    for (const x of s.steps) m.set(x.number, [...(m.get(x.number) ?? []), x.dur]);
    return m;
  };
  const others = by(a);
  return [...by(b)].flatMap(([n, mine]) => {
    const o = others.get(n);
    return o ? [medianOf(mine) - medianOf(o)] : [];
  }).sort((x, y) => x - y);
}

/** What two sides are, before the interval is known. @param {Side} a @param {Side} b */
export function summary(a, b) {
  const x = durs(a),
    y = durs(b);
  const of = (/** @type {number[]} */ d) => ({ n: d.length, p50: d.length ? medianOf(d) : null, mean: d.length ? meanOf(d) : null });
  const [p, q] = [of(x), of(y)];
  const median = p.p50 === null || q.p50 === null ? null : q.p50 - p.p50,
    mean = p.mean === null || q.mean === null ? null : q.mean - p.mean;
  const m = q.p50 ?? Infinity;
  return {
    a: p,
    b: q,
    median,
    mean,
    margin: x.length && y.length ? margin(x, y) : NaN,
    /* a mean that tells another story than the median is made by few steps */
    few: median !== null && mean !== null && Math.abs(mean - median) > 0.2 * Math.max(Math.abs(mean), Math.abs(median)) && Math.abs(mean - median) > 1e-3,
    slow: b.steps.filter((s) => s.dur > SLOW * m).sort((s, t) => t.dur - s.dur),
  };
}

/** Both sides on one axis: how many steps fall into each of `bins`. @param {Side} a @param {Side} b @param {number} bins */
export function histogram(a, b, bins) {
  const all = [...durs(a), ...durs(b)].sort((x, y) => x - y);
  if (!all.length) return null;
  const lo = all[0] ?? 0,
    hi = Math.max(quantile(all, 0.99), lo + 1e-9);
  const of = (/** @type {Side} */ s) => {
    const out = new Array(bins).fill(0);
    for (const d of durs(s)) out[Math.min(bins - 1, Math.floor(((d - lo) / (hi - lo)) * bins))]++;
    return /** @type {number[]} */ (out);
  };
  return { lo, hi, a: of(a), b: of(b) };
}
