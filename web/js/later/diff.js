// SPDX-License-Identifier: Apache-2.0
/**
 * Two ranges against each other: a tree to draw, a fill for every node, words for numbers. The numbers
 * are the server's; only their share of the larger side, which picks the shade, is made here. Pure.
 */
import { percent, rate, rateUnit, sig3, total } from '../fmt.js';
import { decode } from '../tree.js';

/** Shades begin at these parts of the larger side. */
const SHADES = [0.02, 0.1, 0.5];
/** What a node is drawn as: 0-2 more in B, 3-5 less, then these. */
export const LOOK = { grey: 6, isNew: 7, gone: 8, unsure: 9 };
const MINUS = '\u2212';

/** @typedef {import('../api.js').Diff} Diff */
/** @typedef {'a'|'b'|'delta'} Order */

/** Width of a node in a layout. @param {Diff} d @param {Order} order */
const widths = (d, order) => (order === 'a' ? d.node.totalA : order === 'delta' && d.node.churn ? d.node.churn : d.node.totalB);

/** The tree of a layout. Each node is a function of its own, so that each has its own fill. @param {Diff} d @param {Order} order */
export function treeOf(d, order) {
  const w = widths(d, order),
    { depth, func } = d.node,
    n = d.n;
  const self = Float64Array.from(w),
    path = /** @type {number[]} */ ([]);
  for (let i = 0; i < n; i++) {
    path.length = depth[i] ?? 0;
    const up = path.at(-1);
    if (up !== undefined) self[up] = Math.max(0, (self[up] ?? 0) - (w[i] ?? 0));
    path.push(i);
  }
  const of = (/** @type {string[]} */ column) => func.map((f) => (f < 0 ? '' : (column[f] ?? '')));
  const { funcs } = d;
  return decode({
    n,
    node: { depth, func: func.map((f, i) => (f < 0 ? -1 : i)), self, total: w, hidden: d.node.hidden },
    func: { name: of(funcs.name), file: of(funcs.file), bin: of(funcs.bin), kind: of(funcs.kind), key: of(funcs.key) },
  }, d.view.root ? BigInt(`0x${d.view.root}`) : 0n);
}

/** Divisor of a side, 1 where nothing is known. @param {Diff} d @param {'a'|'b'} side */
export function divisor(d, side) {
  if (d.norm === 'none') return 1;
  const x = d.norm === 'share' ? d[side].share : d.norm === 'step' ? d[side].steps : d[side].seconds;
  return x && x > 0 ? x : NaN;
}

/** How a value changed. @param {Diff} d @param {number} a @param {number} b as measured @param {number} delta @param {number|null} se @param {number} sig @param {number} state */
export function look(d, a, b, delta, se, sig, state) {
  if (!d.comparable) return LOOK.grey;
  if (state === 2) return LOOK.isNew;
  if (state === 1) return LOOK.gone;
  const most = Math.max(a / divisor(d, 'a'), b / divisor(d, 'b'));
  const part = most > 0 ? Math.abs(delta) / most : 0;
  const shade = SHADES.filter((s) => part >= s).length;
  if (se === null && shade > 0) return LOOK.unsure;
  return sig === 0 || shade === 0 ? LOOK.grey : (delta > 0 ? 0 : 3) + shade - 1;
}

/** Looks of all nodes. @param {Diff} d */
export const looks = (d) => Uint8Array.from(d.node.totalA, (a, i) => look(d, a, d.node.totalB[i] ?? 0, d.node.dTotal?.[i] ?? 0, d.node.se?.[i] ?? null, d.node.sig?.[i] ?? 0, d.node.state[i] ?? 0));

/** Why no difference has an error, '' where differences have one. @param {Diff} d */
export function whyUnsure(d) {
  if (!d.comparable || d.delta.se !== null || !(d.a.total || d.b.total)) return '';
  if (d.type.kind === 'level') return 'a level is read, not sampled';
  const basis = new Set([...d.a.quality.basis, ...d.b.quality.basis]);
  if (basis.size > 1) return 'sampled and measured values are added';
  return basis.has('every') ? 'there are too many stacks to compare stretches of a range' : 'it is not known how these values were sampled';
}

/** A value divided as the norm says. @param {Diff} d @param {number} v */
export function value(d, v) {
  if (!Number.isFinite(v)) return 'no data';
  if (d.norm === 'share') return v < 0 ? MINUS + percent(-v, 1) : percent(v, 1);
  return d.norm === 'second' ? rate(v, d.type) : `${total(v, d.type)}${d.norm === 'step' ? '/step' : ''}`;
}
/** With its sign. @param {Diff} d @param {number} v */
export const signed = (d, v) => (v > 0 ? `+${value(d, v)}` : value(d, v));

/** The unit that a table's head says once, '' where every value says its own. @param {Diff} d */
export const headUnit = (d) => (d.norm === 'step' ? 'per step' : d.norm === 'second' && d.type.kind !== 'level' ? rateUnit(d.type).text : '');
/** A value for a table with that head. @param {Diff} d @param {number} v */
export const bare = (d, v) => (!headUnit(d) || !Number.isFinite(v) ? value(d, v) : d.norm === 'step' ? total(v, d.type) : sig3(v * rateUnit(d.type).scale));

/** A side's value as measured, divided. @param {Diff} d @param {'a'|'b'} side @param {number} v */
export const side = (d, side, v) => value(d, v / divisor(d, side));

/** The change in words. @param {Diff} d @param {number} a @param {number} b as measured @param {number} delta @param {number|null} se @param {number} sig @param {number} state */
export function change(d, a, b, delta, se, sig, state) {
  if (!d.comparable) return 'no data';
  if (state === 2) return 'new';
  if (state === 1) return `removed, ${MINUS}100\u202f%`;
  if (a === 0 && b === 0) return '';
  if (se === null) return '± unknown';
  if (sig === 0) return 'n.s.';
  const before = a / divisor(d, 'a');
  if (!(before > 0)) return '';
  const p = percent(Math.abs(delta), before);
  return `${delta > 0 ? '+' : MINUS}${p}`;
}
