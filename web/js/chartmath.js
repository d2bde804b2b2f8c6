// SPDX-License-Identifier: Apache-2.0
/** What a time chart computes before it draws. Pure. */

/**
 * Buckets -> what is plotted: a rate per covered second (levels: the mean itself), null where nothing
 * was covered. A covered bucket without samples is 0, not a hole; a lost one stays at its value and
 * is marked, for loss is not idleness.
 * @param {import('./api.js').Series} s
 */
export function plotted(s) {
  const level = s.type.kind === 'level';
  const y = s.value.map((v, i) => {
    const c = s.coveredNs[i] ?? null;
    if (v === null || c === 0) return null;
    if (level) return v;
    return c === null ? v / (widthOf(s, i) / 1000) : v / (c / 1e9);
  });
  /* of what was due in the bucket, how much was lost; null: lost, and nobody knows how much */
  const lost = s.value.map((v, i) => {
    const l = s.lost[i] ?? null;
    return l === null ? null : l > 0 ? l / (l + (v ?? 0)) : 0;
  });
  return { y, lost };
}

/** Milliseconds of a bucket; the last one may be cut by the end of the range. @param {import('./api.js').Series} s @param {number} i */
export function widthOf(s, i) {
  const from = s.from + i * s.bucket;
  return Number.isFinite(s.to) && s.to > from ? Math.min(s.bucket, s.to - from) : s.bucket;
}

/** Runs of buckets for which `is` holds: [from, to) pairs. @param {number} n @param {(i: number) => boolean} is */
export function runs(n, is) {
  /** @type {[number, number][]} */ const out = [];
  for (let i = 0; i < n; i++) {
    if (!is(i)) continue;
    let j = i + 1;
    while (j < n && is(j)) j++;
    out.push([i, j]);
    i = j;
  }
  return out;
}

/** Mean over the covered part of [a, b), null if none is. @param {import('./api.js').Series} s @param {number} a ms @param {number} b ms */
export function mean(s, a, b) {
  let sum = 0,
    weight = 0;
  const { y } = plotted(s);
  for (let i = 0; i < s.n; i++) {
    const mid = s.from + i * s.bucket + widthOf(s, i) / 2,
      v = y[i];
    if (mid < a || mid >= b || v === null || v === undefined) continue;
    const w = s.coveredNs[i] ?? widthOf(s, i) * 1e6;
    sum += v * w;
    weight += w;
  }
  return weight > 0 ? sum / weight : null;
}

/** The next round number (1, 2, 2.5, 5 x 10^k) that is at least x. @param {number} x */
export function roundUp(x) {
  if (!(x > 0)) return 1;
  const p = 10 ** Math.floor(Math.log10(x));
  for (const f of [1, 2, 2.5, 5]) if (x <= f * p * (1 + 1e-12)) return f * p;
  return 10 * p;
}

/** Do the times on an axis need seconds, so that no two of them read alike? @param {number[]} at seconds */
export const withSeconds = (at) => at.some((s) => s % 60 !== 0);

/**
 * Window of the chart for a range: a relative range is its own window; an absolute one stands in the
 * window shown before if that holds it and is not too wide, else in one three times as wide, which ends
 * now at the latest: there is nothing to see in the time to come.
 * @param {[number, number]} range ms @param {boolean} relative @param {[number, number]|null} before
 * @param {number} now ms
 * @returns {[number, number]}
 */
export function windowFor(range, relative, before, now) {
  const [a, b] = range;
  if (relative) return [a, b];
  if (before && before[0] <= a && before[1] >= b && (b - a) * 200 >= before[1] - before[0]) return before;
  return [a - (b - a), Math.max(b, Math.min(b + (b - a), now))];
}

const HOUR_MS = 3600e3;
/** From so long a window on the chart is made of whole hours. */
const HOURLY_MS = 72 * HOUR_MS;

/**
 * How a chart of a long window is asked: from a whole hour on, in buckets of whole hours, since the store
 * has sums of hours, and else reads every row. null: the window is short.
 * @param {[number, number]} window ms @param {number} points at most
 * @returns {{from: number, bucket: string}|null} from: ms
 */
export function hourly([a, b], points) {
  if (b - a < HOURLY_MS) return null;
  const from = Math.floor(a / HOUR_MS) * HOUR_MS;
  return { from, bucket: `${Math.ceil((b - from) / HOUR_MS / points)}h` };
}
