// SPDX-License-Identifier: Apache-2.0
/** Frame kind and binary -> origin: what a frame's colour means. First match wins. */
import { lookup } from './safe.js';

export const ORIGINS = /** @type {const} */ ([
  'python',
  'native',
  'framework',
  'cuda',
  'comm',
  'kernel',
  'gpu',
  'other',
]);
export const ORIGIN_TEXT = [
  'Python',
  'Native',
  'Framework',
  'CUDA',
  'Comm',
  'OS kernel',
  'GPU kernel',
  'Other',
];
const OTHER = 7;

/** @type {[RegExp, number][]} */
const BINARIES = [
  [/^lib(torch|c10|aten)/, 2],
  [/^lib(nccl|mpi)/, 4],
  [/^lib(cuda|cublas|cudnn|nv)/, 3],
];
const KINDS = lookup({ python: 0, kernel: 5, gpu: 6 });

/** Index into ORIGINS. @param {string} kind @param {string} bin base name */
export function originOf(kind, bin) {
  if (kind === 'native') return BINARIES.find(([re]) => re.test(bin))?.[1] ?? 1;
  return KINDS[kind] ?? OTHER;
}

/** Pseudo-frames and unresolved frames are patterns, not colours. @returns {''|'nostack'|'unsym'} @param {string} name */
export function patternOf(name) {
  if (/^\[(no stack|truncated)/.test(name)) return 'nostack';
  return /\+0x[0-9a-f]+$/.test(name) ? 'unsym' : '';
}

/** FNV-1a of the bytes: picks a binary's second lightness and, by binary, its colour. @param {string} s */
export function hash32(s) {
  let h = 0x811c9dc5;
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c > 127) return bytes32(new TextEncoder().encode(s));
    h = Math.imul(h ^ c, 0x01000193);
  }
  return h >>> 0;
}
/** @param {Uint8Array} b */
const bytes32 = (b) => b.reduce((h, x) => Math.imul(h ^ x, 0x01000193), 0x811c9dc5 | 0) >>> 0;
