// SPDX-License-Identifier: Apache-2.0
/**
 * Draw list -> canvas: one fillStyle a fill, then rectangles, then text. Called from
 * requestAnimationFrame only. Knows colours and type, nothing of trees beyond names and counts.
 */
import { ORIGINS, hash32, originOf, patternOf } from './origin.js';
import { show } from './safe.js';
import { count } from './fmt.js';

/* Fill numbers: origin * 2 + lightness, then dimmed copies, then the patterns and the neutral one. */
const DIM = 16;
const UNSYM = 32,
  NOSTACK = 34; // + 1: dimmed
export const HIDDEN = 36;
const LEVEL = 37; // root and `by` levels: neutral, so that colour always means code; + 1 dimmed
/** Fills of a comparison, in the order of diff.js: more in B, less in B, three each; grey, new, gone, unsure. */
export const DIFF = 39;
const FILLS = 49;

const MIN_TEXT_PX = 24;
const PAD_PX = 5;
const LIGHTER = 0.16; // the second lightness
const DIMMED = 0.24; // how much of a dimmed fill is left over the background

/** Resolve tokens: custom properties are text, a colour only once an element uses it. @param {Element} el */
export function colours(el) {
  const probe = document.createElement('i');
  probe.style.setProperty('forced-color-adjust', 'none'); // colour means origin there too, and the canvas is not forced
  el.append(probe);
  const get = (/** @type {string} */ name) => {
    probe.style.setProperty('color', `var(--${name})`);
    return rgb(getComputedStyle(probe).color);
  };
  const c = {
    bg: get('bg'),
    panel: get('panel'),
    text: get('text'),
    muted: get('muted'),
    accent: get('accent'),
    line: get('line'),
    border: get('border'),
    warn: get('warn'),
    error: get('error'),
    hidden: get('hidden'),
    level: get('level'),
    match: get('match'),
    ink: get('frame-ink'),
    inkInv: get('frame-ink-inv'),
    series: get('series-cpu'),
    lines: [0, 1, 2, 3, 4, 5].map((i) => get(`line-${i}`)),
    diff: ['more', 'less'].flatMap((k) => [1, 2, 3].map((i) => get(`diff-${k}-${i}`))),
    origins: ORIGINS.map((o) => get(`origin-${o}`)),
  };
  probe.remove();
  return c;
}

/** @typedef {ReturnType<typeof colours>} Colours */
/** @typedef {[number, number, number]} RGB */

/** @param {string} s "rgb(1, 2, 3)" @returns {RGB} */
function rgb(s) {
  const m = s.match(/[\d.]+/g) ?? ['0', '0', '0'];
  return [Number(m[0]), Number(m[1]), Number(m[2])];
}
/** @param {RGB} a @param {RGB} b @param {number} t @returns {RGB} */
const mix = (a, b, t) => /** @type {RGB} */ (a.map((x, i) => x + (b[i] - x) * t));
/** @param {RGB} c */
export const css = (c, alpha = 1) => `rgb(${c.map(Math.round).join(' ')}${alpha < 1 ? ` / ${alpha}` : ''})`;

const TILE_PX = 8;
/** A pattern's tile. @param {CanvasRenderingContext2D} ctx @param {RGB} back @param {RGB} mark @param {'diagonal'|'back'|'cross'|'dots'} kind */
function tile(ctx, back, mark, kind) {
  const t = document.createElement('canvas');
  t.width = t.height = TILE_PX;
  const c = /** @type {CanvasRenderingContext2D} */ (t.getContext('2d'));
  c.fillStyle = css(back);
  c.fillRect(0, 0, TILE_PX, TILE_PX);
  c.strokeStyle = c.fillStyle = css(mark);
  c.lineWidth = 1.4;
  c.beginPath();
  if (kind === 'dots') {
    c.fillRect(1, 1, 2, 2);
    c.fillRect(5, 5, 2, 2);
  } else
    for (const x of [-TILE_PX, 0, TILE_PX]) {
      if (kind !== 'back') {
        c.moveTo(x, TILE_PX);
        c.lineTo(x + TILE_PX, 0);
      }
      if (kind === 'cross' || kind === 'back') {
        c.moveTo(x, 0);
        c.lineTo(x + TILE_PX, TILE_PX);
      }
    }
  c.stroke();
  return /** @type {CanvasPattern} */ (ctx.createPattern(t, 'repeat'));
}

/** Fill styles and text colours of a theme. @param {CanvasRenderingContext2D} ctx @param {Colours} c */
export function palette(ctx, c) {
  /** @type {(string|CanvasPattern)[]} */ const fill = new Array(FILLS);
  /** @type {string[]} */ const ink = new Array(FILLS);
  /** @type {string[]} */ const flat = []; // of a pattern its ground: for pictures without patterns
  c.origins.forEach((base, o) => {
    const inverse = ORIGINS[o] === 'other';
    [base, mix(base, inverse ? c.ink : c.inkInv, LIGHTER)].forEach((f, l) => {
      fill[o * 2 + l] = css(f);
      ink[o * 2 + l] = css(inverse ? c.inkInv : c.ink);
      fill[DIM + o * 2 + l] = css(mix(c.bg, f, DIMMED));
      ink[DIM + o * 2 + l] = css(mix(c.muted, c.text, 0.35));
    });
  });
  const native = c.origins[1];
  for (const [at, back, mark, kind] of /** @type {const} */ ([
    [UNSYM, mix(native, c.inkInv, 0.35), mix(native, c.ink, 0.18), 'diagonal'],
    [NOSTACK, c.hidden, mix(c.hidden, c.muted, 0.45), 'cross'],
  ])) {
    fill[at] = tile(ctx, back, mark, kind);
    fill[at + 1] = tile(ctx, mix(c.bg, back, DIMMED), mix(c.bg, mark, DIMMED), kind);
    flat[at] = css(back);
    flat[at + 1] = css(mix(c.bg, back, DIMMED));
    ink[at] = at === UNSYM ? css(c.ink) : css(c.text);
    ink[at + 1] = css(c.muted);
  }
  fill[HIDDEN] = tile(ctx, c.hidden, mix(c.hidden, c.muted, 0.5), 'dots');
  fill[LEVEL] = css(c.level);
  fill[LEVEL + 1] = css(mix(c.bg, c.level, 0.6));
  ink[HIDDEN] = css(c.text);
  flat[HIDDEN] = css(c.hidden);
  ink[LEVEL] = css(c.text);
  ink[LEVEL + 1] = css(c.muted);
  const light = (/** @type {RGB} */ x) => 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2];
  const on = (/** @type {RGB} */ x) => css(light(x) > 120 ? c.ink : c.inkInv);
  c.diff.forEach((x, i) => {
    fill[DIFF + i] = css(x);
    ink[DIFF + i] = on(x);
  });
  fill[DIFF + 6] = css(c.hidden);
  ink[DIFF + 6] = css(c.text);
  [c.diff[1], c.diff[4]].forEach((x, i) => {
    fill[DIFF + 7 + i] = tile(ctx, x, mix(x, light(x) > 120 ? c.inkInv : c.ink, 0.3), i ? 'back' : 'diagonal');
    ink[DIFF + 7 + i] = on(x);
  });
  fill[DIFF + 9] = tile(ctx, c.hidden, mix(c.hidden, c.muted, 0.35), 'diagonal');
  ink[DIFF + 9] = css(c.text);
  return { fill, ink, flat: fill.map((f, i) => flat[i] ?? (typeof f === 'string' ? f : css(c.hidden))), back: css(c.bg) };
}

/** What `binary` colours by: code without a binary is its kind. @param {import('./tree.js').Funcs} funcs @param {number} f */
export const binaryOf = (funcs, f) => funcs.bin[f] || (patternOf(funcs.name[f] ?? '') ? '' : `(${funcs.kind[f] || 'other'})`);

/* Fills of binaries stay for as long as the page does: the largest choose first, each takes its own where
 * one is left, and what comes later shares by hash. So a zoom changes no colour. */
/** @type {Map<string, number>} */ const binaryFill = new Map();
const BINARY_FILLS = 14; // origins without `other`, two shades each

/** The binaries of a tree, largest self first, each with its fill. @param {import('./tree.js').Funcs} funcs @param {ArrayLike<number>} self */
export function binaries(funcs, self) {
  /** @type {Map<string, number>} */ const sum = new Map();
  for (let f = 1; f < funcs.name.length; f++) sum.set(binaryOf(funcs, f), (sum.get(binaryOf(funcs, f)) ?? 0) + (self[f] ?? 0));
  sum.delete(''); // patterns say what they are
  const list = [...sum].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const taken = new Set(binaryFill.values());
  /* hues first, their second shades when those are used up */
  const free = Array.from({ length: BINARY_FILLS }, (_, i) => (i * 2) % BINARY_FILLS + (i * 2 >= BINARY_FILLS ? 1 : 0)).filter((x) => !taken.has(x));
  for (const [bin] of list) if (!binaryFill.has(bin)) binaryFill.set(bin, free.shift() ?? hash32(bin) % BINARY_FILLS);
  return list.map(([bin, value]) => ({ bin, value, fill: binaryFill.get(bin) ?? 0 }));
}

/** Shades of `self`: how much of the largest self a function has. @type {readonly number[]} */
export const SELF_STEPS = [0.02, 0.1, 0.5];

/**
 * Function -> fill. `lit` says which functions keep their colour (search, legend); null: all.
 * @param {import('./tree.js').Funcs} funcs @param {string} mode @param {Uint8Array|null} lit @param {ArrayLike<number>} [self] of each function
 */
export function fillsOf(funcs, mode, lit, self = []) {
  if (mode === 'binary') binaries(funcs, self);
  let most = 0;
  if (mode === 'self') for (let f = 1; f < funcs.name.length; f++) most = Math.max(most, self[f] ?? 0);
  const out = new Uint8Array(funcs.name.length);
  for (let f = 0; f < out.length; f++) {
    const name = funcs.name[f] ?? '',
      bin = funcs.bin[f] ?? '',
      kind = funcs.kind[f] ?? '';
    const off = lit && !lit[f];
    const p = patternOf(name);
    if (p) out[f] = (p === 'unsym' ? UNSYM : NOSTACK) + (off ? 1 : 0);
    else if (f === 0 || (kind === 'other' && /=|^\[other groups\]$/.test(name))) out[f] = LEVEL + (off ? 1 : 0);
    else {
      const h = hash32(bin || kind);
      if (mode === 'self') {
        const shade = SELF_STEPS.filter((x) => (self[f] ?? 0) >= x * most && most > 0).length;
        out[f] = off ? LEVEL + 1 : shade ? DIFF + shade - 1 : DIFF + 6;
      } else out[f] = (mode === 'binary' ? (binaryFill.get(binaryOf(funcs, f)) ?? h % BINARY_FILLS) : originOf(kind, bin) * 2 + (h & 1)) + (off ? DIM : 0);
    }
  }
  return out;
}

/** Names as the graph writes them, made once a tree. @param {import('./tree.js').Funcs} funcs @param {boolean} short */
export function labelsOf(funcs, short) {
  return funcs.name.map((name) => show(short ? shorten(name) : name));
}

/** Template arguments away; <module> and friends stay. @param {string} name */
export function shorten(name) {
  if (name.startsWith('<')) return name;
  let out = '',
    deep = 0;
  for (const c of name) {
    if (c === '<') deep++;
    else if (c === '>' && deep) deep--;
    else if (!deep) out += c;
  }
  return out || name;
}

const WIDE = /[^\u0000-\u024f]/;
/** A name that the monospace advance does not measure: cut as if each of its characters took two places. @param {string} s @param {number} room */
function fitWide(s, room) {
  let out = '',
    used = 0;
  for (const c of s) {
    used += WIDE.test(c) ? 2 : 1;
    if (used > room - 1) return out ? `${out}…` : '';
    out += c;
  }
  return out;
}

/** Cut to `room` characters: leading qualifiers go first. @param {string} s @param {number} room */
export function fit(s, room) {
  if (WIDE.test(s)) return fitWide(s, room);
  if (s.length <= room) return s;
  const at = s.lastIndexOf('::');
  if (at > 0 && s.length - at + 1 <= room) return `…${s.slice(at)}`;
  const tail = at > 0 ? s.slice(at + 2) : s;
  if (tail.length <= room) return tail;
  return room < 3 ? '' : `${tail.slice(0, room - 1)}…`;
}

/**
 * The rows of a draw list that reach into a view; the list may hold more.
 * @param {CanvasRenderingContext2D} ctx
 * @param {import('./layout.js').DrawList} list @param {import('./layout.js').View} v
 * @param {import('./tree.js').Tree} t @param {string[]} labels
 * @param {ReturnType<typeof palette>} pal @param {{font:string, advance:number, dpr:number}} type
 * @returns {number} how often the fill of bars changed
 */
export function paint(ctx, list, v, t, labels, pal, type) {
  const { x, w, row, order, fillAt, node, count: runs } = list;
  const { dpr, advance } = type,
    line = v.row - Math.max(1, Math.round(dpr));
  const yOf = (/** @type {number} */ r) => (v.up ? v.height - (r + 1) * v.row + v.top : r * v.row - v.top);
  ctx.fillStyle = pal.back; // the canvas is opaque: cheaper to compose than alpha
  ctx.fillRect(0, 0, v.width, v.height);
  const first = Math.floor(v.top / v.row),
    last = Math.floor((v.top + v.height - 1) / v.row);
  /* patterns stay with the bars they fill, wherever a view begins */
  const phase = { f: (v.up ? v.height + v.top : -v.top) % TILE_PX };
  let filled = 1;
  for (let f = 0; f < FILLS; f++) {
    const from = fillAt[f] ?? 0,
      to = fillAt[f + 1] ?? 0;
    if (from === to) continue;
    const style = pal.fill[f];
    if (typeof style === 'object') style.setTransform(phase);
    ctx.fillStyle = style;
    filled++;
    for (let k = from; k < to; k++) {
      const b = order[k],
        wide = w[b];
      if (row[b] < first || row[b] > last) continue;
      ctx.fillRect(x[b], yOf(row[b]), wide >= 3 ? wide - 1 : wide, line);
    }
  }
  ctx.font = type.font;
  ctx.textBaseline = 'middle';
  const min = MIN_TEXT_PX * dpr,
    pad = PAD_PX * dpr,
    mid = line / 2 + dpr * 0.5;
  for (let f = 0; f < FILLS; f++) {
    const from = fillAt[f] ?? 0,
      to = fillAt[f + 1] ?? 0;
    let set = false;
    for (let k = from; k < to; k++) {
      const b = order[k],
        wide = w[b];
      if (wide < min || row[b] < first || row[b] > last) continue;
      const n = node[b],
        c = runs[b];
      const name = c ? `${count(c)} small` : (labels[t.func[n]] ?? ''),
        room = Math.floor((wide - 2 * pad) / advance);
      /* of a level the value is what differs: `by` says its name */
      const level = !c && name.length > room && (f === LEVEL || f === LEVEL + 1);
      const s = fit(level ? name.slice(name.indexOf('=') + 1) : name, room);
      if (!s) continue;
      if (!set) {
        ctx.fillStyle = pal.ink[f];
        set = true;
      }
      ctx.fillText(s, x[b] + pad, yOf(row[b]) + mid, wide - pad);
    }
  }
  return filled;
}
