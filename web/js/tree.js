// SPDX-License-Identifier: Apache-2.0
/**
 * Decode a flame-graph answer into typed arrays, with what layout needs beside it.
 * No DOM. One pass, explicit stack: a stack 20,000 frames deep is data, not an exception.
 */

/**
 * @typedef {object} Tree
 * @property {number} n
 * @property {Uint16Array} depth
 * @property {Int32Array} func      -1: what was cut below the parent
 * @property {Float64Array} self
 * @property {Float64Array} total
 * @property {Int32Array} end       first node after the subtree
 * @property {Int32Array} parent    -1 at the root
 * @property {Float64Array} start   where the node begins, in value, from the root's left
 * @property {Float64Array} frames  prefix sum of frames: [i, j) stands for frames[j] - frames[i]
 * @property {Int32Array} hidden
 * @property {boolean} sorted       siblings fall by value (all but the hidden one)
 * @property {number} maxDepth
 * @property {Float64Array} samples NaN: unknown
 * @property {bigint} rootHash      of node 0: the tree may be a part, asked for with root=
 * @property {Funcs} funcs
 *
 * @typedef {{name:string[],file:string[],bin:string[],kind:string[],key:string[],raw?:Uint8Array}} Funcs
 */

/** What the server said cannot be a tree; the screen shows *bad answer*. */
export class BadAnswer extends Error {}

const MAX_RELATIVE_ERROR = 1e-9;

/**
 * @param {{n:number,node:{depth:ArrayLike<number>,func:ArrayLike<number>,self:ArrayLike<number>,total:ArrayLike<number>,hidden?:ArrayLike<number>,samples?:ArrayLike<number|null>},func:Funcs}} a
 * @param {bigint} [rootHash] @returns {Tree}
 */
export function decode(a, rootHash = 0n) {
  const { n } = a;
  if (!a.node || !Number.isInteger(n) || n < 0) throw new BadAnswer('no columns');
  for (const k of /** @type {const} */ (['depth', 'func', 'self', 'total', 'hidden', 'samples'])) {
    const c = a.node[k];
    if (c === undefined && (k === 'hidden' || k === 'samples')) continue;
    if (!c || c.length !== n) throw new BadAnswer(`column ${k} has ${c?.length ?? 'no'} entries, n is ${n}`);
  }
  for (let i = 0; i < n; i++) {
    /* typed arrays would turn nonsense into numbers in silence */
    const d = a.node.depth[i],
      f = a.node.func[i];
    if (!Number.isInteger(d) || d < 0 || d > 65535) throw new BadAnswer(`depth of node ${i}`);
    if (!Number.isInteger(f)) throw new BadAnswer(`function of node ${i}`);
  }
  const depth = Uint16Array.from(a.node.depth),
    func = Int32Array.from(a.node.func);
  const self = Float64Array.from(a.node.self),
    total = Float64Array.from(a.node.total);
  const hidden = a.node.hidden ? Int32Array.from(a.node.hidden) : new Int32Array(n);
  const samples = Float64Array.from({ length: n }, (_, i) => a.node.samples?.[i] ?? NaN);
  if (n && depth[0] !== 0) throw new BadAnswer('depth[0] is not 0');

  const end = new Int32Array(n),
    parent = new Int32Array(n),
    start = new Float64Array(n);
  const frames = new Float64Array(n + 1);
  const open = /** @type {number[]} */ ([]); // path to node i
  const next = /** @type {number[]} */ ([0]); // where the next child of that depth begins
  const last = new Float64Array(n ? 65536 : 0); // total of the previous sibling, by depth
  let maxDepth = 0,
    sorted = true;
  for (let i = 0; i < n; i++) {
    const d = depth[i],
      t = total[i],
      s = self[i];
    if (i && (d === 0 || d > depth[i - 1] + 1)) throw new BadAnswer(`depth of node ${i}`);
    const f = func[i];
    if (f < -1 || f >= a.func.name.length) throw new BadAnswer(`function of node ${i}`);
    if (!(t >= 0 && s >= 0 && t < Infinity && s <= t)) throw new BadAnswer(`value of node ${i}`);
    while (open.length > d) close(i);
    const up = d ? open[d - 1] : -1;
    parent[i] = up;
    const x = next[d];
    start[i] = x;
    next[d] = x + t;
    next[d + 1] = x;
    if (up >= 0 && i !== up + 1 && f >= 0 && t > last[d]) sorted = false;
    last[d] = t;
    frames[i + 1] = frames[i] + (f < 0 ? hidden[i] : 1);
    open.push(i);
    if (d > maxDepth) maxDepth = d;
  }
  while (open.length) close(n);
  return {
    n,
    depth,
    func,
    self,
    total,
    end,
    parent,
    start,
    frames,
    hidden,
    sorted,
    maxDepth,
    samples,
    rootHash,
    funcs: a.func,
  };

  /** The top of the path is complete: check total = self + sum of children. @param {number} i */
  function close(i) {
    const k = /** @type {number} */ (open.pop());
    end[k] = i;
    const t = total[k];
    const children = i === k + 1 ? 0 : next[depth[k] + 1] - start[k];
    if (Math.abs(t - self[k] - children) > MAX_RELATIVE_ERROR * (t + total[0]))
      throw new BadAnswer(`sum at node ${k}`);
  }
}

/** Path from the root to `i`, both included. @param {Tree} t @param {number} i */
export function pathTo(t, i) {
  const path = [];
  for (let k = i; k >= 0; k = t.parent[k]) path.push(k);
  return path.reverse();
}

/** @param {Tree} t @param {number} i @returns {number[]} */
export function children(t, i) {
  const list = [],
    stop = t.end[i];
  for (let c = i + 1; c < stop; c = t.end[c]) list.push(c);
  return list;
}

const U64 = (1n << 64n) - 1n;

/** Hash of a node from its parent's and its function's: mix(rotl(parent, 1) ^ key), mix = splitmix64's finaliser. @param {bigint} up @param {bigint} key */
export function nodeHash(up, key) {
  let z = (((up << 1n) | (up >> 63n)) & U64) ^ key;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & U64;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & U64;
  return z ^ (z >> 31n);
}

/** @param {bigint} h */
const hex = (h) => (h ? h.toString(16).padStart(16, '0') : '');

/** 16 hex digits for the URL, '' for the root of the whole. @param {Tree} t @param {number} i */
export function hashOf(t, i) {
  let h = t.rootHash;
  for (const k of pathTo(t, i).slice(1)) h = nodeHash(h, BigInt(`0x${t.funcs.key[t.func[k]] || '0'}`));
  return hex(h);
}

/** The node of a hash, or -1: not in this tree, or cut from it. @param {Tree} t @param {string} hash '' is the root of the whole */
export function findHash(t, hash) {
  const want = hash ? BigInt(`0x${hash}`) : 0n,
    h = [t.rootHash];
  if (want === t.rootHash) return 0;
  const keys = t.funcs.key.map((k) => BigInt(`0x${k || '0'}`));
  for (let i = 1; i < t.n; i++) {
    const f = t.func[i],
      d = t.depth[i];
    if (f < 0) continue;
    h[d] = nodeHash(h[d - 1], keys[f] ?? 0n);
    if (h[d] === want) return i;
  }
  return -1;
}

/** Of a node's value, what the server cut below it. @param {Tree} t @param {number} i */
export function hiddenBelow(t, i) {
  let sum = 0;
  for (let k = i + 1, stop = t.end[i]; k < stop; k++) if (t.func[k] < 0) sum += t.total[k];
  return sum;
}

const selfs = new WeakMap();
/** Self of each function over the whole tree, once a tree. @param {Tree} t @returns {Float64Array} */
export function selfOf(t) {
  let s = selfs.get(t);
  if (s) return s;
  s = new Float64Array(t.funcs.name.length);
  for (let i = 0; i < t.n; i++) if (t.func[i] >= 0) s[t.func[i]] += t.self[i];
  selfs.set(t, s);
  return s;
}

/** A level of `by` is structure, not code. @param {Tree} t @param {number} f */
export const isLevel = (t, f) => t.funcs.kind[f] === 'other' && /=|^\[other groups\]$/.test(t.funcs.name[f] ?? '');

/** A stack as a folded line, the callers of the view's root included; separators in names as the API writes them. @param {Tree} t @param {number} n @param {string[]} above names from the root to node 0 */
export function folded(t, n, above) {
  const names = [...above.slice(0, -1), ...pathTo(t, n).map((k) => t.funcs.name[t.func[k]] ?? '')].slice(1);
  const safe = (/** @type {string} */ s) => s.replace(/[\\;\n\r\0]/g, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
  return `${names.map(safe).join(';')} ${t.total[n]}`;
}
