// SPDX-License-Identifier: Apache-2.0
/**
 * Filters `verb:[scope=]pattern` as the API takes them: text <-> parts, and the ones that a frame, a
 * search or a preset makes. Filters change data; the server applies them in the order given. Pure.
 */

export const VERBS = /** @type {const} */ (['keep', 'drop', 'start', 'merge', 'collapse']);
export const MOST = 16;
const FILTER = /^(keep|drop|start|merge|collapse):(?:(fn|bin|file|kind)=)?(.+)$/s;
const LOOKS_REGEX = /^\/.*\/i?$/s;

/** @typedef {typeof VERBS[number]} Verb */

/** What a chip says for a verb. @type {Record<Verb, string>} */
export const WORDS = { keep: 'only', drop: 'without', start: 'from', merge: 'fold away', collapse: 'collapse' };

/** Ordinary filters that many want; they become chips like any other. */
export const PRESETS = /** @type {const} */ ([
  ['Collapse recursion', 'collapse:recursion'],
  ['Python frames alone', 'merge:kind=/^(native|kernel|jit)$/'],
  ['Native frames alone', 'merge:kind=python'],
  ['Fold CUDA internals away', 'merge:bin=/^lib(cuda|cudart|cublas|cudnn)/'],
  ['Fold the interpreter away', 'merge:bin=/^(python3|libpython)/'],
  ['Without the OS kernel', 'merge:kind=kernel'],
]);

/** Parts of a filter, null if it is none. @param {string} text */
export function parseFilter(text) {
  const m = text.match(FILTER);
  return m ? { verb: /** @type {Verb} */ (m[1]), scope: m[2] ?? '', pattern: m[3] ?? '' } : null;
}

/** Text as an expression that matches it. */
export const escape = (/** @type {string} */ s) => s.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');

/** The filter about exactly this function. @param {Verb} verb @param {string} name as recorded */
export function filterOf(verb, name) {
  if (LOOKS_REGEX.test(name)) return `${verb}:fn=/^${escape(name)}$/`;
  const plain = !/^(fn|bin|file|kind)=/.test(name) && !(verb === 'collapse' && name === 'recursion');
  return `${verb}:${plain ? '' : 'fn='}${name}`;
}

/**
 * The filter that keeps the samples which a search matches: a search is a substring without regard to
 * case, so it becomes an escaped expression.
 * @param {ReturnType<typeof import('./search.js').parsePattern>} p
 */
export const filterOfSearch = (p) => `keep:${p.scope === 'fn' ? '' : `${p.scope}=`}${p.regex ? p.text : `/${escape(p.text)}/i`}`;

/** One more at the end, unless it is there or there are too many. @param {string[]} list @param {string} f */
export const added = (list, f) => (list.includes(f) || list.length >= MOST ? list : [...list, f]);

/** Do the paths of frames stay, so that a zoom can stay? @param {string} f */
export const keepsPaths = (f) => /^(keep|drop):/.test(f);
