// SPDX-License-Identifier: Apache-2.0
/**
 * The flame graph as an element: canvases, scrolling, pointer, zoom with animation, tooltip.
 * It holds no state that the URL should hold: it reports (onZoom, onSelect) and is told.
 */
import { children, selfOf } from './tree.js';
import { drawList, hasBars, hit, layout } from './layout.js';
import { HIDDEN, colours, css, fillsOf, labelsOf, paint, palette } from './paint.js';
import { createTiles } from './tiles.js';
import { nothing, render } from '../vendor/lit-html/lit-html.js';

const ROW_PX = 18;
const ANIMATION_MS = 120;
const SLOW_DRAW_MS = 8; // after a draw this slow the zoom jumps instead of moving
const DRAG_PX = 4;
const REST_MS = 500; // the pointer stays: more is asked for
const MAX_MAGNIFY = 4096;

/**
 * @param {object} on
 * @param {boolean} [on.up]  row 0 at the bottom, callers above it
 * @param {boolean} [on.covered]  something lies over the lowest row of what is seen
 * @param {(node: number) => void} on.zoom
 * @param {(node: number, list: number) => void} on.hover  -1: nothing under the pointer
 * @param {(node: number, x: number, y: number) => void} [on.menu]  right click, client pixels
 * @param {(node: number, frames: number) => unknown} on.tip  a template; null: none
 * @param {(node: number) => Promise<boolean>} [on.rest]  the pointer stays there: does the tip say more now?
 */
export function createGraph(on) {
  /** @param {string} tag @param {string} name @param {...Node} kids */
  const make = (tag, name, ...kids) => {
    const e = document.createElement(tag);
    e.className = name;
    e.append(...kids);
    return e;
  };
  const over = /** @type {HTMLCanvasElement} */ (make('canvas', 'graph-over'));
  over.setAttribute('aria-hidden', 'true');
  const pin = make('div', 'graph-pin', over);
  const spacer = make('div', 'graph-spacer');
  const scroller = make('div', 'graph-scroll', pin, spacer);
  scroller.tabIndex = -1;
  const tip = make('div', 'tip');
  tip.hidden = true;
  tip.setAttribute('role', 'presentation');
  const el = make('div', 'graph', scroller, tip);
  const tiles = createTiles(spacer, on.up === true);
  const octx = /** @type {CanvasRenderingContext2D} */ (over.getContext('2d'));

  /** @type {import('./tree.js').Tree|null} */ let tree = null;
  /** @type {string[]} */ let labels = [];
  let fills = new Uint8Array(1),
    mode = 'origin',
    short = true;
  /** @type {Uint8Array|null} */ let lit = null;
  /** @type {ArrayLike<number>} */ let selfs = [];
  let root = 0,
    x0 = 0,
    x1 = 1,
    selected = 0,
    hovered = -1,
    outlined = -1;
  let dpr = 1,
    W = 0,
    H = 0,
    lastDraw = 0,
    dirty = false,
    fresh = false, // what stands around it is drawn with a new tree: the place may be another one
    picture = 1, // number of what is painted: another one and all of it is painted again
    frozen = false,
    marked = false,
    rest = 0;
  /** @type {ReturnType<typeof colours>|null} */ let col = null;
  /** @type {ReturnType<typeof palette>|null} */ let pal = null;
  const type = { font: '', advance: 7, dpr: 1 };
  const list = drawList();
  /** @type {import('./layout.js').View} */ const view = {
    root: 0,
    x0: 0,
    x1: 1,
    width: 1,
    height: 1,
    row: ROW_PX,
    up: on.up === true,
    top: 0,
  };
  /** @type {null | {t0:number, base:number, from:number[], to:number[]}} */ let move = null;
  const reduced = matchMedia('(prefers-reduced-motion: reduce)');
  const counters = { nodes: 0, decodeMs: 0, draws: 0, tiles: 0, rects: 0, fills: 0, visited: 0, layoutMs: 0, paintMs: 0 };

  const end = () => scroller.scrollHeight - scroller.clientHeight;
  /** How far row 0 is scrolled away, CSS pixels; upside down it is counted from the bottom. */
  const scrolled = () => (view.up ? Math.max(0, end() - scroller.scrollTop) : scroller.scrollTop);
  /** @param {number} px */
  const scrollTo = (px) => {
    scroller.scrollTop = view.up ? end() - px : px;
  };
  const rowPx = () => Math.round(ROW_PX * dpr);

  function theme() {
    col = colours(el);
    pal = palette(octx, col);
    const mono = getComputedStyle(el).getPropertyValue('--mono');
    type.font = `${12 * dpr}px ${mono}`;
    octx.font = type.font;
    type.advance = octx.measureText('0').width; // monospace: one measurement, the rest is arithmetic
    type.dpr = dpr;
    tiles.repaint();
    invalidate();
  }

  function resize() {
    const r = scroller.getBoundingClientRect();
    const d = devicePixelRatio || 1;
    const w = Math.floor(scroller.clientWidth * d),
      hgt = Math.floor(r.height * d);
    if (w === W && hgt === H && d === dpr) return;
    W = w;
    H = hgt;
    over.width = W;
    over.height = H; // clears and resets the context
    over.style.setProperty('width', `${W / d}px`);
    over.style.setProperty('height', `${H / d}px`);
    dpr = d;
    tiles.resize(W, H, rowPx(), d);
    theme();
    size();
  }
  /** Row of the deepest frame below the root. */
  function deepest() {
    if (!tree || root === 0) return tree?.maxDepth ?? 0;
    let deep = 0;
    for (let i = root; i < tree.end[root]; i++) deep = Math.max(deep, tree.depth[i] - tree.depth[root]);
    return deep;
  }
  function size() {
    if (tree) spacer.style.setProperty('height', `${(deepest() + 2) * ROW_PX}px`);
  }

  /** What is painted is not what is to be seen. */
  function invalidate() {
    picture++;
    soon();
  }
  function soon() {
    if (dirty) return;
    dirty = true;
    requestAnimationFrame(frame);
  }

  function frame(/** @type {number} */ now) {
    if (fresh) resize();
    fresh = dirty = false;
    if (!tree || !W || !pal || !tree.total[0]) return;
    const t0 = performance.now(),
      at0 = Math.round(scrolled() * dpr);
    let top = at0;
    view.root = root;
    view.x0 = x0;
    view.x1 = x1;
    if (move) {
      const p = Math.min(1, (now - move.t0) / ANIMATION_MS),
        e = 1 - (1 - p) ** 3;
      const at = move.from.map((a, i) => a + /** @type {number} */ (/** @type {any} */ (move).to[i] - a) * e);
      if (p < 1) {
        view.root = move.base;
        view.x0 = at[0] ?? 0;
        view.x1 = at[1] ?? 1;
        top = Math.round((at[2] ?? 0) * rowPx());
        invalidate();
      } else move = null;
    }
    view.width = W;
    view.height = H;
    view.row = rowPx();
    view.top = top;
    const seen = tiles.within(at0, at0 + H);
    if (seen.some((x) => x.drawn !== picture)) draw(tree, seen, top - at0, t0);
    overlay();
  }
  /** Paint the tiles that show something else. @param {import('./tree.js').Tree} t @param {import('./tiles.js').Tile[]} seen @param {number} moved rows are that far from their place @param {number} t0 */
  function draw(t, seen, moved, t0) {
    const tall = tiles.tall,
      part = { ...view, top: seen[0].at * tall + moved, height: seen.length * tall };
    layout(t, part, fills, HIDDEN, list);
    const t1 = performance.now();
    for (const x of seen) {
      if (x.drawn === picture) continue;
      x.drawn = picture;
      /* below the deepest bar, mostly: a canvas that is touched is moved whole, which costs more than what is drawn */
      const blank = !hasBars(list, Math.floor((x.at * tall + moved) / view.row), Math.floor(((x.at + 1) * tall + moved - 1) / view.row));
      if (blank && x.blank) continue;
      x.blank = blank;
      counters.fills = paint(x.ctx, list, { ...part, top: x.at * tall + moved, height: tall }, t, labels, /** @type {ReturnType<typeof palette>} */ (pal), type);
      counters.tiles++;
    }
    const t2 = performance.now();
    lastDraw = t2 - t0;
    counters.draws++;
    counters.rects = list.n;
    counters.visited = list.visited;
    counters.layoutMs = t1 - t0;
    counters.paintMs = t2 - t1;
  }

  /** Selection, pointer and table outlines: a canvas of their own, so that moving the mouse repaints no bar. */
  function overlay() {
    /* touching a canvas costs its whole upload: an empty one is left alone */
    if (marked) octx.clearRect(0, 0, W, H);
    marked = false;
    if (!tree || !col) return;
    const line = Math.max(1, Math.round(dpr)),
      tall = view.row - line;
    for (let b = 0; b < list.n; b++) {
      const n = list.node[b],
        isRun = list.count[b] > 0;
      const sel = n === selected && !isRun && n !== root,
        hov = b === hovered;
      if (!sel && !hov && !(outlined >= 0 && !isRun && tree.func[n] === outlined)) continue;
      const r = list.row[b],
        y = view.up ? H - (r + 1) * view.row + view.top : r * view.row - view.top;
      const x = list.x[b],
        w = Math.max(3 * line, list.w[b] - line);
      marked = true;
      octx.strokeStyle = css(col.text);
      octx.lineWidth = (sel ? 2 : 1.5) * line;
      const i = octx.lineWidth / 2;
      octx.strokeRect(x + i, y + i, w - 2 * i, tall - 2 * i);
      if (hov) {
        octx.fillStyle = css(col.inkInv, 0.14);
        octx.fillRect(x, y, w, tall);
      }
    }
  }

  /** @param {number} node */
  function zoomTo(node, animate = true) {
    if (!tree) return;
    const from = root;
    const a = tree.start[node],
      b = a + tree.total[node];
    if (node === root && x0 === a && x1 === b) return;
    let c = from; // common ancestor: what stays on screen while it moves
    while (c > 0 && !(node >= c && node < tree.end[c])) c = tree.parent[c];
    if (animate && W && !reduced.matches && lastDraw < SLOW_DRAW_MS && !document.hidden) {
      const d = tree.depth[c];
      move = {
        t0: performance.now(),
        base: c,
        from: [x0, x1, tree.depth[from] - d + scroller.scrollTop / ROW_PX],
        to: [a, b, tree.depth[node] - d],
      };
    } else move = null;
    root = node;
    x0 = a;
    x1 = b;
    size();
    scroller.scrollTop = 0;
    leave();
    invalidate();
  }

  /** Widen or narrow what is seen, around a point; a lens only: shares keep their denominators. */
  function magnify(/** @type {number} */ factor, /** @type {number} */ atPx) {
    if (!tree) return;
    move = null;
    const lo = tree.start[root],
      hi = lo + tree.total[root];
    const at = x0 + (x1 - x0) * (atPx / W);
    const span = Math.min(hi - lo, Math.max((hi - lo) / MAX_MAGNIFY, (x1 - x0) / factor));
    x0 = at - (span * atPx) / W;
    pan(0, span);
  }
  function pan(/** @type {number} */ px, span = x1 - x0) {
    if (!tree) return;
    const lo = tree.start[root],
      hi = lo + tree.total[root];
    x0 = Math.max(lo, Math.min(hi - span, x0 + (px / W) * span));
    x1 = x0 + span;
    el.classList.toggle('magnified', span < (hi - lo) * 0.999);
    invalidate();
  }

  function at(/** @type {MouseEvent} */ e) {
    const r = over.getBoundingClientRect();
    const y = (e.clientY - r.top) * dpr;
    return tree
      ? hit(list, view, (e.clientX - r.left) * dpr, y)
      : -1;
  }
  function leave() {
    if (frozen || (hovered < 0 && tip.hidden)) return;
    clearTimeout(rest);
    hovered = -1;
    tip.hidden = true;
    on.hover(-1, -1);
  }
  function point(/** @type {PointerEvent} */ e) {
    if (move) return;
    frozen = e.shiftKey && !tip.hidden;
    if (frozen) return;
    const b = at(e);
    if (b !== hovered) {
      hovered = b;
      overlay();
      const n = b < 0 ? -1 : list.node[b];
      const content = b < 0 ? null : on.tip(n, list.count[b]);
      tip.hidden = !content;
      render(content ?? nothing, tip);
      clearTimeout(rest);
      if (content && on.rest && !list.count[b])
        rest = setTimeout(async () => {
          if ((await on.rest?.(n)) && hovered === b && !tip.hidden) render(on.tip(n, 0), tip);
        }, REST_MS);
      on.hover(n, b);
      el.classList.toggle('pointing', b >= 0);
    }
    if (tip.hidden) return;
    const tw = tip.offsetWidth,
      th = tip.offsetHeight;
    let x = e.clientX + 14,
      y = e.clientY + 18;
    if (x + tw > innerWidth - 8) x = Math.max(8, e.clientX - tw - 14);
    if (y + th > innerHeight - 8) y = Math.max(8, e.clientY - th - 12);
    tip.style.setProperty('transform', `translate(${Math.round(x)}px, ${Math.round(y)}px)`);
  }

  /** @type {null | {x:number, y:number, top:number, moved:boolean}} */ let drag = null;
  over.addEventListener('pointermove', (e) => {
    if (!drag || !(e.buttons & 1) || e.pointerType === 'touch') {
      drag = null;
      point(e);
      return;
    }
    if (!drag.moved && Math.hypot(e.clientX - drag.x, e.clientY - drag.y) < DRAG_PX) return;
    drag.moved = true;
    el.classList.add('dragging');
    leave();
    pan((drag.x - e.clientX) * dpr);
    drag.x = e.clientX;
    scroller.scrollTop = drag.top + drag.y - e.clientY;
  });
  over.addEventListener('pointerdown', (e) => {
    if (e.button !== 0) return;
    drag = { x: e.clientX, y: e.clientY, top: scroller.scrollTop, moved: false };
  });
  over.addEventListener('click', (e) => {
    el.classList.remove('dragging');
    if (drag?.moved) {
      drag = null;
      return;
    }
    drag = null;
    const b = at(e);
    if (b < 0 || !tree) return;
    const n = list.node[b],
      run = list.count[b] > 0;
    const target = run ? tree.parent[n] : n; // a run of small frames opens its parent
    on.zoom(target);
  });
  over.addEventListener('contextmenu', (e) => {
    const b = at(e);
    if (b < 0 || !tree || !on.menu) return;
    e.preventDefault();
    leave();
    on.menu(list.count[b] > 0 ? tree.parent[list.node[b]] : list.node[b], e.clientX, e.clientY);
  });
  over.addEventListener('pointerleave', leave);
  el.addEventListener(
    'wheel',
    (e) => {
      if (e.ctrlKey || e.metaKey) {
        e.preventDefault();
        leave();
        const r = over.getBoundingClientRect();
        magnify(Math.exp(-e.deltaY * 0.006), (e.clientX - r.left) * dpr);
      } else if (
        x1 - x0 < (tree?.total[root] ?? 1) * 0.999 &&
        (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY))
      ) {
        e.preventDefault();
        pan((e.deltaX || e.deltaY) * dpr);
      }
    },
    { passive: false },
  );
  scroller.addEventListener(
    'scroll',
    () => {
      leave();
      soon();
    },
    { passive: true },
  );
  new ResizeObserver(resize).observe(scroller);
  const refill = () => {
    if (tree) fills = fillsOf(tree.funcs, mode, lit, selfs);
    invalidate();
  };

  return {
    el,
    scroller,
    counters,
    theme,
    zoomTo,
    magnify,
    pan,
    /** At once, where no frame will come: before the page is printed. */
    drawNow() {
      move = null;
      picture++;
      frame(performance.now());
    },
    /** The view from row 0 to its last row, `most` device pixels at most, drawn on a canvas of its own; null: nothing is drawn. @param {number} most */
    picture(most) {
      if (!tree || !W || !pal) return null;
      const canvas = document.createElement('canvas'),
        whole = drawList();
      canvas.width = W;
      canvas.height = Math.max(rowPx(), Math.min(most, (deepest() + 1) * rowPx()));
      const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { alpha: false }));
      const all = { ...view, root, x0, x1, top: 0, height: canvas.height };
      layout(tree, all, fills, HIDDEN, whole);
      paint(ctx, whole, all, tree, labels, pal, type);
      return { canvas, dpr };
    },
    /** The same as bars and words, CSS pixels. @param {number} most rows */
    bars(most) {
      if (!tree || !W || !pal) return null;
      const t = tree,
        p = pal,
        whole = drawList(),
        rows = Math.min(most, deepest() + 1);
      layout(t, { ...view, root, x0, x1, top: 0, height: rows * view.row }, fills, HIDDEN, whole);
      return {
        width: W / dpr,
        rows,
        row: ROW_PX,
        up: view.up === true,
        bars: Array.from({ length: whole.n }, (_, b) => ({ node: whole.node[b], x: whole.x[b] / dpr, w: whole.w[b] / dpr, row: whole.row[b], frames: whole.count[b], fill: p.flat[whole.fill[b]] ?? '', ink: p.ink[whole.fill[b]] ?? '', label: labels[t.func[whole.node[b]]] ?? '' })),
      };
    },
    get tree() {
      return tree;
    },
    get root() {
      return root;
    },
    get selected() {
      return selected;
    },
    get colours() {
      return col;
    },
    isMoving: () => move !== null,
    /** Is the lens on? */
    get magnified() {
      return tree !== null && x1 - x0 < tree.total[root] * 0.999;
    },
    /** Lens off: the whole of the zoomed frame again. */
    unmagnify() {
      if (tree) pan(0, tree.total[root]);
    },
    /**
     * Another tree. `at` is its node at row 0; `scroll` keeps the place where the same node was there before.
     * @param {import('./tree.js').Tree} t @param {boolean} shortNames
     */
    setTree(t, shortNames, at = 0, scroll = 0) {
      tree = t;
      short = shortNames;
      root = at;
      x0 = t.start[at];
      x1 = x0 + (t.total[at] || 1);
      selected = at;
      hovered = -1;
      move = null;
      labels = labelsOf(t.funcs, short);
      fills = fillsOf(t.funcs, mode, (lit = null), (selfs = selfOf(t)));
      el.classList.remove('magnified');
      size();
      resize();
      scrollTo(scroll);
      leave();
      fresh = true;
      invalidate();
    },
    /** Nothing to draw. */
    clear() {
      tree = null;
      hovered = -1;
      leave();
      tiles.hide();
      if (W) octx.clearRect(0, 0, W, H);
    },
    /** @param {boolean} s */
    setNames(s) {
      if (tree && s !== short) {
        short = s;
        labels = labelsOf(tree.funcs, s);
        invalidate();
      }
    },
    /** @param {string} m @param {Uint8Array|null} functions */
    setColours(m, functions) {
      if (m === mode && functions === lit) return;
      mode = m;
      lit = functions;
      refill();
    },
    /** A fill for each function, until the next tree. @param {Uint8Array<ArrayBuffer>} f */
    setFills(f) {
      fills = f;
      invalidate();
    },
    /** @param {number} f function outlined from the table, -1 none */
    outline(f) {
      if (f !== outlined) {
        outlined = f;
        overlay();
      }
    },
    /** Select and bring into view. @param {number} n */
    select(n) {
      selected = n;
      if (tree) {
        const y = (tree.depth[n] - tree.depth[root]) * ROW_PX,
          at = scrolled(),
          low = on.covered ? ROW_PX : 0;
        if (y < at + low) scrollTo(Math.max(0, y - ROW_PX - low));
        else if (y + ROW_PX > at + scroller.clientHeight) scrollTo(y - scroller.clientHeight + 3 * ROW_PX);
      }
      overlay();
    },
    /** Is the frame as wide as a pixel in this view? @param {number} n */
    drawn(n) {
      return tree !== null && (tree.total[n] / (x1 - x0)) * W >= 1;
    },
    /** Where a frame's lower left corner is, client pixels, inside what is seen. @param {number} n @returns {[number, number]} */
    placeOf(n) {
      const r = scroller.getBoundingClientRect();
      if (!tree) return [r.left, r.top];
      const x = ((tree.start[n] - x0) / (x1 - x0)) * scroller.clientWidth;
      const y = (tree.depth[n] - tree.depth[root] + 1) * ROW_PX - scroller.scrollTop;
      return [r.left + Math.max(0, Math.min(scroller.clientWidth, x)), r.top + Math.max(0, Math.min(r.height, y))];
    },
    /** Neighbour of the selected frame. @param {'up'|'down'|'left'|'right'} way */
    neighbour(way) {
      if (!tree) return -1;
      const t = tree,
        n = selected;
      if (way === 'up') return n === root ? -1 : t.parent[n];
      if (way === 'down') return children(t, n).find((c) => t.func[c] >= 0 && this.drawn(c)) ?? -1;
      const up = t.parent[n];
      if (up < 0 || n === root) return -1;
      const row = children(t, up).filter((c) => t.func[c] >= 0 && this.drawn(c));
      return row[row.indexOf(n) + (way === 'left' ? -1 : 1)] ?? -1;
    },
  };
}
