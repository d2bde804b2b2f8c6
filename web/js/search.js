// SPDX-License-Identifier: Apache-2.0
/**
 * Search highlights, it never changes data. Plain text is matched here at once; a regular expression
 * only by the server, so that no pattern can hang the tab. Pure.
 */

/** `[scope=]text` or `[scope=]/regex/[i]`. @param {string} pattern */
export function parsePattern(pattern) {
  const m = pattern.match(/^(fn|bin|file)=(.*)$/s);
  const text = m?.[2] ?? pattern;
  return {
    scope: /** @type {'fn'|'bin'|'file'} */ (m?.[1] ?? 'fn'),
    text,
    regex: /^\/.*\/i?$/s.test(text) && text.length > 1,
  };
}

/**
 * Which functions match: null, nothing asked or a regular expression. A function that has frames of
 * several files is here by the one it is shown with; which of them match only the server says.
 * @param {import('./tree.js').Funcs} funcs @param {string} pattern @returns {Uint8Array|null}
 */
export function matches(funcs, pattern) {
  const p = parsePattern(pattern);
  if (!p.text.trim() || p.regex) return null;
  const column = p.scope === 'bin' ? funcs.bin : p.scope === 'file' ? funcs.file : funcs.name;
  const text = p.text.toLowerCase();
  return Uint8Array.from(column, (s, f) => (f > 0 && s.toLowerCase().includes(text) ? 1 : 0));
}

/** The functions that the server named, by key. @param {import('./tree.js').Funcs} funcs @param {Set<string>} keys */
export function matchesOf(funcs, keys) {
  return Uint8Array.from(funcs.key, (k, f) => (f > 0 && keys.has(k) ? 1 : 0));
}

/**
 * Matched sum in a subtree, each sample once: over *outermost* matches. Also those nodes, for n / N.
 * @param {import('./tree.js').Tree} t @param {Uint8Array} lit @param {number} root
 */
export function matchedSum(t, lit, root) {
  let sum = 0;
  const nodes = [],
    stop = t.end[root];
  for (let i = root; i < stop;) {
    const f = t.func[i];
    if (f >= 0 && lit[f]) {
      sum += t.total[i];
      nodes.push(i);
      i = t.end[i];
    } else i++;
  }
  return { sum, nodes };
}
