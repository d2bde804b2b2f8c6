// SPDX-License-Identifier: Apache-2.0
/** Coverage and loss as shares, and from where on they are a warning. */
import * as prefs from './prefs.js';

/** @typedef {''|'warn'|'error'} Level */

/** @param {keyof typeof prefs.LIMITS} what @param {number|null} p @returns {Level} */
export function level(what, p) {
  if (p === null) return '';
  const [amber = 0, red = 0] = prefs.get().limits[what];
  const beyond = (/** @type {number} */ limit) => (what === 'covered' ? p < limit : p >= limit);
  return beyond(red) ? 'error' : beyond(amber) ? 'warn' : '';
}

/**
 * Shares in percent; null where the server does not know. Loss is a share of what was due: captured
 * plus lost. Where a reason has a count but no weight, the counts are compared instead.
 * @param {import('./api.js').Quality} q @param {number|null} captured value before filters
 */
export function shares(q, captured) {
  const of = (/** @type {number|null} */ part) =>
    part === null || captured === null ? null : captured > 0 ? (part / captured) * 100 : 0;
  /* where no source said anything, nobody knows what is missing */
  const silent = q.sources === 0 && !q.lost.length;
  const weight = !silent && q.lost.every((l) => l.weight !== null) ? q.lost.reduce((s, l) => s + (l.weight ?? 0), 0) : null;
  const n = !silent && q.lost.every((l) => l.n !== null) ? q.lost.reduce((s, l) => s + (l.n ?? 0), 0) : null;
  /** @param {number|null} part @param {number|null} rest */
  const ratio = (part, rest) =>
    part === null || rest === null ? null : part + rest > 0 ? (part / (part + rest)) * 100 : 0;
  const byWeight = ratio(weight, captured),
    lost = byWeight ?? ratio(n, q.received);
  /* of what was due; unknown where any part of it is */
  const [gone, got] = byWeight === null ? [n, q.received] : [weight, captured],
    due = gone === null || got === null ? 0 : gone + got;
  return {
    covered: q.askedNs && q.coveredNs !== null ? (q.coveredNs / q.askedNs) * 100 : null,
    lost,
    lostValue: weight,
    /* by observations, of all that they made */
    lostOfSources: ratio(n, q.received),
    lostWhy: q.lost
      .map((l) => ({ why: l.why, part: byWeight === null ? l.n : l.weight }))
      .map(({ why, part }) => ({ why, p: due > 0 && part !== null ? (part / due) * 100 : null }))
      .sort((a, b) => (b.p ?? 0) - (a.p ?? 0)),
    noStack: of(q.noStack),
    truncated: of(q.truncated),
    unsymbolised: of(q.unsymbolised),
  };
}
