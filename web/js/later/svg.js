// SPDX-License-Identifier: Apache-2.0
/**
 * The view as an SVG that stands alone: bars as they are drawn, above them type, unit, range and quality.
 * Built as elements and written by the browser, so that a name is text whatever it holds.
 */
import { exact } from '../fmt.js';
import { css, fit } from '../paint.js';
import { show } from '../safe.js';
import { saveBlob } from './savefile.js';
import { words } from './png.js';

const PAD = 12;
const LINE = 17;
const ADVANCE = 7.3; // of a monospace of 12 pixels, a little more than any has
const MOST_ROWS = 2000;

/** @param {ReturnType<typeof import('../graph.js').createGraph>} graph @param {import('../api.js').Flame} a @param {import('../tree.js').Tree} t @param {{range:string, q:string, f:string[]}} v */
export function svgOf(graph, a, t, v) {
  const drawn = graph.bars(MOST_ROWS),
    col = graph.colours;
  if (!col || !drawn) throw new Error('nothing is drawn');
  const NS = document.querySelector('svg')?.namespaceURI ?? null; // the page's own mark is one
  const doc = document.implementation.createDocument(NS, 'svg');
  /* XML has no place for these two */
  const plain = (/** @type {string} */ s) => s.replace(/[\ufffe\uffff]/g, '\ufffd');
  /** @param {Element} up @param {string} tag @param {Record<string, string|number>} attributes @param {string} [text] */
  const add = (up, tag, attributes, text) => {
    const e = doc.createElementNS(NS, tag);
    for (const [k, x] of Object.entries(attributes)) e.setAttribute(k, String(x));
    if (text !== undefined) e.textContent = plain(text);
    up.append(e);
    return e;
  };
  const zoomed = graph.root > 0 || t.rootHash ? show(t.funcs.name[t.func[graph.root]] ?? '') : '';
  const lines = words(a, v, zoomed),
    top = 2 * PAD + lines.length * LINE,
    tall = drawn.rows * drawn.row;
  const root = doc.documentElement,
    width = drawn.width + 2 * PAD,
    height = top + tall + PAD;
  for (const [k, x] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}`, role: 'img' })) root.setAttribute(k, String(x));
  add(root, 'title', {}, lines.join(', '));
  add(root, 'rect', { width, height, fill: css(col.bg) });
  const head = add(root, 'g', { 'font-family': 'sans-serif', 'font-size': 12, fill: css(col.muted) });
  lines.forEach((s, i) => add(head, 'text', { x: PAD, y: PAD + (i + 0.8) * LINE, ...(i === 0 && { 'font-weight': 600, 'font-size': 13, fill: css(col.text) }) }, s));
  const graphic = add(root, 'g', { 'font-family': 'monospace', 'font-size': 12, transform: `translate(${PAD} ${top})` });
  for (const b of drawn.bars) {
    const y = drawn.up ? tall - (b.row + 1) * drawn.row : b.row * drawn.row,
      wide = b.w >= 3 ? b.w - 1 : b.w;
    const g = add(graphic, 'g', {});
    add(g, 'title', {}, b.frames ? `${b.frames} frames too small to draw` : `${show(t.funcs.name[t.func[b.node]] ?? '')}: ${exact(t.total[b.node], a.type)}`);
    add(g, 'rect', { x: b.x, y, width: wide, height: drawn.row - 1, fill: b.fill });
    const text = wide < 24 ? '' : fit(b.frames ? `${b.frames} small` : b.label, Math.floor((wide - 10) / ADVANCE));
    if (text) add(g, 'text', { x: b.x + 5, y: y + 12.5, fill: b.ink }, text);
  }
  return new XMLSerializer().serializeToString(doc);
}

/** @param {Parameters<typeof svgOf>} args */
export function saveSvg(...args) {
  saveBlob(new Blob([svgOf(...args)], { type: 'image/svg+xml' }), `strata-${args[1].type.name}.svg`);
}
