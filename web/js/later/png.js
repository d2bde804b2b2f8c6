// SPDX-License-Identifier: Apache-2.0
/** The view as a PNG that stands alone: the graph as it is drawn, above it type, unit, range and quality. */
import { count, percent, total, unitName } from '../fmt.js';
import { css } from '../paint.js';
import { show } from '../safe.js';
import { saveBlob } from './savefile.js';
import { shares } from '../shares.js';

const PAD = 12;
const LINE = 17;
const MOST_PX = 8192; // of height: what browsers make a picture of

/** What stands above the picture, a line each. @param {import('../api.js').Flame} a @param {{range:string, q:string, f:string[]}} v @param {string} zoomed '' the whole */
export function words(a, v, zoomed) {
  const q = shares(a.quality, a.unfiltered),
    t = a.type;
  const pc = (/** @type {number|null} */ p) => (p === null ? 'unknown' : percent(p, 100));
  return [
    show(v.q),
    `${v.range} · ${t.name}, ${unitName(t) || 'count'}, ${t.kind} · ${a.total === null ? 'no data' : total(Number(a.total), t)}${a.samples === null ? '' : ` in ${count(a.samples)} samples`}${a.quality.sources === null ? '' : ` · ${count(a.quality.sources)} ${a.quality.sources === 1 ? 'source' : 'sources'}`}`,
    `covered ${pc(q.covered)} · lost ${pc(q.lost)}${q.lostWhy.length ? ` (${q.lostWhy.slice(0, 2).map((l) => show(l.why)).join(', ')})` : ''} · no stack ${pc(q.noStack)} · unsymbolised ${pc(q.unsymbolised)} · hidden ${a.trim.nodes ? percent(a.trim.total, a.view.total ?? 0) : '0 %'}`,
    ...(v.f.length ? [`filters: ${v.f.map(show).join('  ')}`] : []),
    ...(zoomed ? [`zoomed to ${zoomed}`] : []),
  ];
}

/**
 * @param {ReturnType<typeof import('../graph.js').createGraph>} graph
 * @param {import('../api.js').Flame} a @param {import('../tree.js').Tree} t @param {{range:string, q:string, f:string[]}} v
 */
export async function savePng(graph, a, t, v) {
  const drawn = graph.picture(MOST_PX),
    col = graph.colours;
  if (!col || !drawn) throw new Error('nothing is drawn');
  const { canvas, dpr } = drawn;
  const zoomed = graph.root > 0 || t.rootHash ? show(t.funcs.name[t.func[graph.root]] ?? '') : '';
  const lines = words(a, v, zoomed);
  const top = (PAD * 2 + lines.length * LINE) * dpr,
    tall = canvas.height;
  const out = document.createElement('canvas');
  out.width = canvas.width + 2 * PAD * dpr;
  out.height = top + tall + PAD * dpr;
  const ctx = /** @type {CanvasRenderingContext2D} */ (out.getContext('2d', { alpha: false }));
  ctx.fillStyle = css(col.bg);
  ctx.fillRect(0, 0, out.width, out.height);
  ctx.textBaseline = 'top';
  lines.forEach((s, i) => {
    ctx.font = `${i === 0 ? '600 13' : '12'}px ${getComputedStyle(document.body).fontFamily}`.replace(/(\d+)px/, (_, n) => `${Number(n) * dpr}px`);
    ctx.fillStyle = css(i === 0 ? col.text : col.muted);
    ctx.fillText(s, PAD * dpr, (PAD + i * LINE) * dpr, canvas.width);
  });
  ctx.drawImage(canvas, 0, 0, canvas.width, tall, PAD * dpr, top, canvas.width, tall);
  const blob = await new Promise((/** @type {(b: Blob|null) => void} */ ok) => out.toBlob(ok, 'image/png'));
  if (!blob) throw new Error('the browser made no picture');
  saveBlob(blob, `strata-${a.type.name}.png`);
}
