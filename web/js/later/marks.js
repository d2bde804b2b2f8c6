// SPDX-License-Identifier: Apache-2.0
/** Steps as lanes, by the value of a label or all in one, and what of them lies at a time. Pure. */

const LANES = 4; // by label; the rest is named, not drawn

/** @typedef {{name:string, at:number[]}} Lane  indices of steps, by time */

/** Labels of the steps that have more than one value, with how many. @param {import('../api.js').Steps} s */
export function labelsOf(s) {
  /** @type {Map<string, Set<string>>} */ const values = new Map();
  for (const l of s.labels)
    for (const [k, v] of Object.entries(l)) {
      const set = values.get(k) ?? new Set();
      values.set(k, set.add(v));
    }
  return [...values].map(([name, v]) => ({ name, values: v.size })).sort((a, b) => a.values - b.values || (a.name < b.name ? -1 : 1));
}

/** The name that is drawn: the chosen one, else the one with most steps. @param {import('../api.js').Steps} s @param {string} name */
export function nameOf(s, name) {
  if (s.names.some((x) => x.name === name)) return name;
  return s.names.reduce((best, x) => ((x.took?.n ?? 0) > best.n ? { n: x.took?.n ?? 0, name: x.name } : best), { n: -1, name: '' }).name;
}

/**
 * @param {import('../api.js').Steps} s @param {string} name @param {string} label '' all in one lane
 * @returns {{lanes: Lane[], others: number}}
 */
export function lanesOf(s, name, label) {
  /** @type {Map<string, number[]>} */ const by = new Map();
  for (let i = 0; i < s.n; i++) {
    if (s.names[s.name[i] ?? -1]?.name !== name) continue;
    const v = label ? (s.labels[i]?.[label] ?? '') : '';
    const list = by.get(v) ?? [];
    list.push(i);
    by.set(v, list);
  }
  const all = [...by].map(([v, at]) => ({ name: v, at })).sort((a, b) => compare(a.name, b.name));
  return { lanes: all.slice(0, LANES), others: Math.max(0, all.length - LANES) };
}
/** Numbers as numbers. @param {string} a @param {string} b */
const compare = (a, b) => (/^\d+$/.test(a) && /^\d+$/.test(b) ? Number(a) - Number(b) : a < b ? -1 : a > b ? 1 : 0);

/** Steps as the API knows them, not drawn narrower than half a pixel: what is closer becomes one block. @param {import('../api.js').Steps} s @param {Lane} lane @param {(ms: number) => number} x device pixel */
export function blocks(s, lane, x) {
  /** @type {{a:number, b:number, n:number, i:number}[]} */ const out = [];
  for (const i of lane.at) {
    const a = x(s.from[i] ?? 0),
      b = Math.max(x((s.from[i] ?? 0) + (s.dur[i] ?? 0)), a + 1);
    const last = out.at(-1);
    /* the same step of another thread or process */
    if (last && last.n === 1 && a < last.b - 1 && s.number[last.i] === s.number[i]) last.b = Math.max(last.b, b);
    else if (last && (b - a < 3 || last.n > 1) && a - last.b < 1.5) {
      last.b = Math.max(last.b, b);
      last.n++;
    } else out.push({ a, b, n: 1, i });
  }
  return out;
}

/** Step of a lane at a time, -1 none. @param {import('../api.js').Steps} s @param {Lane|undefined} lane @param {number} ms */
export function stepAt(s, lane, ms) {
  let found = -1;
  for (const i of lane?.at ?? []) if (ms >= (s.from[i] ?? 0) && ms < (s.from[i] ?? 0) + (s.dur[i] ?? 0)) found = i;
  return found;
}

/** Event next to a time, null none within `near` ms. @param {import('../api.js').Event[]} events @param {number} ms @param {number} near */
export function eventAt(events, ms, near) {
  /** @type {import('../api.js').Event|null} */ let best = null;
  for (const e of events) if (Math.abs(e.at - ms) <= near && (!best || Math.abs(e.at - ms) < Math.abs(best.at - ms))) best = e;
  return best;
}

/** Nearest rank. @param {number[]} sorted @param {number} q */
export const quantile = (sorted, q) => sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? NaN;

/** Durations by the value of a label, ascending; the group with the largest median first. @param {import('../api.js').Steps} s @param {string} name @param {string} label */
export function groupsOf(s, name, label) {
  /** @type {Map<string, number[]>} */ const by = new Map();
  for (let i = 0; i < s.n; i++) {
    if (s.names[s.name[i] ?? -1]?.name !== name) continue;
    const v = s.labels[i]?.[label] ?? '';
    by.set(v, [...(by.get(v) ?? []), s.dur[i] ?? 0]);
  }
  return [...by]
    .map(([v, dur]) => ({ name: v, dur: dur.sort((a, b) => a - b) }))
    .sort((a, b) => quantile(b.dur, 0.5) - quantile(a.dur, 0.5) || (a.name < b.name ? -1 : 1));
}
