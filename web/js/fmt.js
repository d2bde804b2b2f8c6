// SPDX-License-Identifier: Apache-2.0
/** Numbers: three significant digits, never a false 0 or a false 100 %, the unit always printed. Pure. */
import { lookup } from './safe.js';

const THIN = '\u202f';
const MINUS = '\u2212';

/** @typedef {{id:string, name:string, unit:string, kind:string}} Type */

/** @type {Intl.NumberFormat[]} */ const made = [];
/** @type {Intl.NumberFormat|null} */ let grouped = null;
/* made once: toLocaleString() would make one for each number; the first costs much, and not before the page asks the server */
/** @param {number} digits after the point */
const format = (digits) => (made[digits] ??= new Intl.NumberFormat('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits }));

/** Three significant digits, grouped. @param {number} x */
export function sig3(x) {
  if (!Number.isFinite(x)) return 'unknown';
  const a = Math.abs(x);
  const digits = a >= 99.95 || a === 0 ? 0 : a >= 9.995 ? 1 : a >= 0.9995 ? 2 : a >= 0.1 ? 3 : a >= 0.01 ? 4 : 5;
  const s = a !== 0 && a < 1e-3 ? a.toPrecision(3) : format(digits).format(a);
  return x < 0 ? MINUS + s : s;
}

/** Integers, grouped. @param {number|bigint} n */
export const count = (n) => (grouped ??= new Intl.NumberFormat('en-US')).format(n);

/** 1,234 · 12.3 k · 4.56 M. @param {number} n */
export function short(n) {
  const a = Math.abs(n);
  if (a < 10_000) return Number.isInteger(n) ? count(n) : sig3(n);
  for (const [f, s] of /** @type {const} */ ([
    [1e12, 'T'],
    [1e9, 'G'],
    [1e6, 'M'],
    [1e3, 'k'],
  ]))
    if (a >= f * 0.9995) return `${sig3(n / f)}${THIN}${s}`;
  return count(n);
}

const CORES = new Set(['cpu', 'gil_held']);
const THREADS = new Set(['offcpu', 'runq', 'gil_wait']);

/** What a second of this type is a second of: 'core', 'thread', 'GPU' or ''. @param {Type} t */
export function secondOf(t) {
  if (t.unit !== 'nanoseconds') return '';
  if (CORES.has(t.name)) return 'core';
  if (THREADS.has(t.name)) return 'thread';
  return t.name.startsWith('gpu_') ? 'GPU' : '';
}

/** @param {number} ns @param {string} of */
function time(ns, of) {
  const s = ns / 1e9,
    a = Math.abs(s),
    dash = of ? `${of}-` : '';
  if (a === 0) return `0${THIN}${dash}s`;
  if (a >= 999.5) return `${sig3(s / 3600)}${THIN}${dash}h`;
  if (a >= 0.9995) return `${sig3(s)}${THIN}${dash}s`;
  if (a >= 0.9995e-3) return `${sig3(s * 1e3)}${THIN}ms`;
  if (a >= 0.9995e-6) return `${sig3(s * 1e6)}${THIN}µs`;
  return `${sig3(ns)}${THIN}ns`;
}

/** @param {number} b */
function bytes(b) {
  const a = Math.abs(b);
  for (const [f, s] of /** @type {const} */ ([
    [2 ** 40, 'TiB'],
    [2 ** 30, 'GiB'],
    [2 ** 20, 'MiB'],
    [2 ** 10, 'KiB'],
  ]))
    if (a >= f * 0.9995) return `${sig3(b / f)}${THIN}${s}`;
  return `${Number.isInteger(b) ? count(b) : sig3(b)}${THIN}B`;
}

/** A value of a type. @param {number} v @param {Type} t */
export function total(v, t) {
  if (!Number.isFinite(v)) return 'unknown';
  if (t.unit === 'nanoseconds') return time(v, secondOf(t));
  if (t.unit === 'bytes') return bytes(v);
  if (t.unit === 'count') return short(v);
  return `${short(v)}${THIN}${t.unit}`;
}

/** Where a chart's numbers are read from: per second, divided so that the word fits. @param {Type} t */
export function rateUnit(t) {
  if (t.kind === 'level') return { scale: 1, text: t.unit === 'bytes' ? 'bytes, mean' : `${t.unit}, mean` };
  if (t.unit === 'nanoseconds') {
    const of = secondOf(t);
    if (of === 'core') return { scale: 1e-9, text: 'cores' };
    if (of === 'thread') return { scale: 1e-9, text: 'threads' };
    if (of === 'GPU')
      return { scale: 1e-7, text: t.name === 'gpu_idle' ? '% of device' : '% of device, sum over streams' };
    return { scale: 1e-9, text: 's/s' };
  }
  if (t.unit === 'bytes') return { scale: 2 ** -20, text: 'MiB/s' };
  return { scale: 1, text: t.unit === 'count' ? '/s' : `${t.unit}/s` };
}

/** A rate (or a level's mean) with its unit. @param {number} perSecond in the type's unit @param {Type} t */
export function rate(perSecond, t) {
  if (t.kind === 'level') return total(perSecond, t);
  const u = rateUnit(t);
  return `${sig3(perSecond * u.scale)}${u.text.startsWith('/') ? '' : THIN}${u.text}`;
}

const SHORT_UNIT = lookup({ nanoseconds: 'ns', bytes: 'B', count: '' });

/** @param {Type} t */
export const unitName = (t) => SHORT_UNIT[t.unit] ?? t.unit;

/**
 * Every digit. A headline comes as a string and stays exact beyond 2^53; a column is a double and is
 * an integer up to there.
 * @param {string|number} v @param {Type} t
 */
export function exact(v, t) {
  const unit = SHORT_UNIT[t.unit] ?? t.unit;
  const n = typeof v === 'string' ? (/^-?\d+$/.test(v) ? count(BigInt(v)) : v) : Number.isInteger(v) ? count(v) : sig3(v);
  return unit ? `${n}${THIN}${unit}` : n;
}

/** Share in percent. @param {number} part @param {number} whole */
export function percent(part, whole) {
  if (!(whole > 0) || !Number.isFinite(part)) return 'no data';
  const p = (part / whole) * 100;
  if (p === 0) return `0${THIN}%`;
  if (p > 0 && p < 0.1) return `<${THIN}0.1${THIN}%`;
  if (p < 100 && p > 99.9) return `>${THIN}99.9${THIN}%`;
  return `${p === 100 ? '100' : p.toFixed(1)}${THIN}%`;
}

/**
 * ±2·value/√n of a periodic sampler; '' under 10 samples, where only n means anything.
 * @param {number} value @param {number} n @param {Type} t
 */
export function plusMinus(value, n, t) {
  return n < 10 ? '' : `±${total((2 * value) / Math.sqrt(n), t)}`;
}

/** Period of a source: 99 Hz for time, else the value. @param {string} period @param {Type} t */
export function period(period, t) {
  const p = Number(period);
  if (!(p > 0)) return '';
  return t.unit === 'nanoseconds' ? `${sig3(1e9 / p).replace(/\.0+$/, '')}${THIN}Hz` : `every ${total(p, t)}`;
}
