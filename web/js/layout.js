// SPDX-License-Identifier: Apache-2.0
/**
 * Tree + view -> draw list. Pure: no DOM, no state but the reused buffers.
 *
 * Work is bounded by what is drawn, not by the tree: a bar under a pixel ends its subtree, and where
 * siblings fall by value it ends its siblings too (one prefix-sum look-up says how many frames the
 * run stands for). One million nodes cost as much as ten thousand.
 */

/** Bars of a run of frames too small to draw have this function. */
export const RUN = -2;

/**
 * @typedef {object} View
 * @property {number} root    node at row 0
 * @property {number} x0      left edge, in value from the tree's left
 * @property {number} x1      right edge
 * @property {number} width   device pixels
 * @property {number} height  device pixels
 * @property {number} row     height of a row, device pixels
 * @property {boolean} [up]  row 0 at the bottom
 * @property {number} top     scroll offset, device pixels (negative while an animation moves rows down)
 *
 * @typedef {object} DrawList
 * @property {number} n
 * @property {Int32Array} node   the node; of a run its first node
 * @property {Int32Array} x
 * @property {Int32Array} w
 * @property {Int32Array} row
 * @property {Uint8Array} fill   index into paint.js's fills
 * @property {Int32Array} count  frames a run stands for, else 0
 * @property {Int32Array} order  bars by fill
 * @property {Int32Array} fillAt order[fillAt[f] .. fillAt[f + 1]) have fill f
 * @property {Int32Array} byRow  bars by row, left to right
 * @property {Int32Array} rowAt  byRow[rowAt[r] .. rowAt[r + 1]) are in row firstRow + r
 * @property {number} firstRow
 * @property {number} rows
 * @property {number} visited
 */

const MAX_FILLS = 64;

/** Buffers for one canvas, grown when needed and kept. @returns {DrawList} */
export function drawList() {
  const list = /** @type {any} */ ({
    n: 0,
    visited: 0,
    firstRow: 0,
    rows: 0,
    fillAt: new Int32Array(MAX_FILLS + 1),
    rowAt: new Int32Array(0),
  });
  grow(list, 1 << 14);
  return list;
}

/** @param {any} list @param {number} size */
function grow(list, size) {
  for (const k of ['node', 'x', 'w', 'row', 'count', 'order', 'byRow']) {
    const bigger = new Int32Array(size);
    if (list[k]) bigger.set(list[k]);
    list[k] = bigger;
  }
  const fill = new Uint8Array(size);
  if (list.fill) fill.set(list.fill);
  list.fill = fill;
}

/**
 * @param {import('./tree.js').Tree} t
 * @param {View} v
 * @param {Uint8Array} fillOf  function -> fill
 * @param {number} hiddenFill
 * @param {DrawList} out
 */
export function layout(t, v, fillOf, hiddenFill, out) {
  const { depth, total, self, end, parent, start, func, frames, hidden, sorted } = t;
  const k = v.width / (v.x1 - v.x0),
    base = depth[v.root],
    stop = end[v.root];
  const firstRow = Math.max(0, Math.floor(v.top / v.row));
  const lastRow = Math.floor((v.top + v.height - 1) / v.row);
  let n = 0,
    visited = 0;

  /* One open run of sub-pixel siblings; it closes at a drawable sibling or where its parent ends. */
  let runNode = -1,
    runParent = -1,
    runFrom = 0,
    runTo = 0,
    runFrames = 0,
    runRow = 0;

  /** @param {number} node @param {number} a @param {number} b @param {number} row @param {number} fill @param {number} count */
  function emit(node, a, b, row, fill, count) {
    if (n === out.node.length) grow(out, n * 2);
    out.node[n] = node;
    out.x[n] = a;
    out.w[n] = b - a;
    out.row[n] = row;
    out.fill[n] = fill;
    out.count[n] = count;
    n++;
  }
  function closeRun() {
    if (runNode < 0) return;
    const a = Math.max(0, Math.round(runFrom)),
      b = Math.min(v.width, Math.round(runTo));
    if (b > a && runRow >= firstRow) emit(runNode, a, b, runRow, hiddenFill, runFrames);
    runNode = -1;
  }

  let i = v.root;
  while (i < stop) {
    visited++;
    const row = depth[i] - base;
    const up = parent[i];
    if (runNode >= 0 && up !== runParent) closeRun();
    const left = (start[i] - v.x0) * k;
    const wide = total[i] * k;
    if (left >= v.width && i !== v.root) {
      // this sibling and all after it are right of the view
      closeRun();
      i = end[up];
      continue;
    }
    if (left + wide <= 0) {
      // left of the view
      i = end[i];
      continue;
    }
    if (wide < 1) {
      const cut = func[i] < 0;
      /* Falling siblings: all that follow are as small, so the run reaches to the parent's self. */
      const to = sorted && !cut && up >= v.root ? end[up] : end[i];
      const right = to === end[i] ? left + wide : (start[up] + total[up] - self[up] - v.x0) * k;
      if (runNode < 0) {
        runNode = i;
        runParent = up;
        runFrom = left;
        runFrames = 0;
        runRow = row;
      }
      runTo = right;
      runFrames += frames[to] - frames[i];
      i = to;
      continue;
    }
    closeRun();
    const f = func[i];
    if (row >= firstRow) {
      const a = Math.max(0, Math.round(left)),
        b = Math.min(v.width, Math.round(left + wide));
      if (b > a) emit(i, a, b, row, f < 0 ? hiddenFill : fillOf[f], f < 0 ? hidden[i] : 0);
    }
    i = row >= lastRow ? end[i] : i + 1;
  }
  closeRun();
  out.n = n;
  out.visited = visited;
  index(out, firstRow, Math.max(0, lastRow - firstRow + 1));
  return out;
}

/** Two counting sorts: by fill for painting, by row for the pointer. @param {DrawList} l @param {number} firstRow @param {number} rows */
function index(l, firstRow, rows) {
  const { n, fill, row, fillAt, order, byRow } = l;
  if (l.rowAt.length < rows + 2) l.rowAt = new Int32Array(rows + 2);
  const { rowAt } = l;
  fillAt.fill(0);
  rowAt.fill(0);
  for (let i = 0; i < n; i++) {
    fillAt[fill[i] + 1]++;
    rowAt[row[i] - firstRow + 1]++;
  }
  for (let f = 0; f < MAX_FILLS; f++) fillAt[f + 1] += fillAt[f];
  for (let r = 0; r <= rows; r++) rowAt[r + 1] += rowAt[r];
  const f = fillAt.slice(),
    r = rowAt.slice();
  for (let i = 0; i < n; i++) {
    order[f[fill[i]]++] = i;
    byRow[r[row[i] - firstRow]++] = i;
  }
  l.firstRow = firstRow;
  l.rows = rows;
}

/** Is there a bar in these rows? @param {DrawList} l @param {number} first @param {number} last */
export function hasBars(l, first, last) {
  const a = Math.max(0, first - l.firstRow),
    b = Math.min(l.rows - 1, last - l.firstRow);
  return b >= a && (l.rowAt[b + 1] ?? 0) > (l.rowAt[a] ?? 0);
}

/** Bar under (x, y) in device pixels, -1 if none; bars of one or two pixels get one more on each side. @param {DrawList} l @param {View} v @param {number} x @param {number} y */
export function hit(l, v, x, y) {
  const r = Math.floor(((v.up ? v.height - 1 - y : y) + v.top) / v.row) - l.firstRow;
  if (r < 0 || r >= l.rows) return -1;
  let lo = l.rowAt[r],
    hi = l.rowAt[r + 1] - 1;
  const first = lo;
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (l.x[l.byRow[mid]] <= x) lo = mid;
    else hi = mid - 1;
  }
  for (const c of [lo, lo + 1, lo - 1]) {
    if (c < first || c >= l.rowAt[r + 1]) continue;
    const b = l.byRow[c],
      w = l.w[b],
      reach = w <= 2 ? 1 : 0;
    const d = x - l.x[b];
    if (d >= -reach && d < w + reach) return b;
  }
  return -1;
}
