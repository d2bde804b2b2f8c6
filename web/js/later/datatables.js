// SPDX-License-Identifier: Apache-2.0
/** About the data what two places show: what was lost, how well stacks were read and named by binary, an event. */
import { html, nothing } from '../../vendor/lit-html/lit-html.js';
import * as api from '../api.js';
import { count, percent, total } from '../fmt.js';
import { show } from '../safe.js';
import { level } from '../shares.js';
import { eventWords } from './eventwords.js';
import { LOSS } from './losswords.js';

const BINARIES = 12;
const CUT_BINARIES = 2000;

/** @typedef {{bin:string, self:number, unnamed:number|null, cut:number|null}} Binary */

const pc = (/** @type {number|null} */ part, /** @type {number|null} */ whole) => (part === null || whole === null ? 'unknown' : whole > 0 ? percent(part, whole) : 'no data');

/** Weight by binary of the leaf: all, without a name, and under a stack that was cut short. @param {api.Params} q @param {AbortSignal} signal @returns {Promise<Binary[]>} */
export async function binaries(q, signal) {
  const ask = (/** @type {api.Params} */ more) => api.top({ ...q, sort: 'self', key: 'bin', ...more }, signal);
  const [all, cut] = await Promise.all([ask({ limit: BINARIES * 4 }), ask({ limit: CUT_BINARIES, f: ['keep:/^\\[truncated/'] })]);
  const short = new Map(cut.rows.map((r) => [r.name, r.self]));
  return all.rows
    .filter((r) => r.name && r.self > 0)
    .slice(0, BINARIES)
    /* one that is on none of the pages read was cut by nothing, unless there are more pages */
    .map((r) => ({ bin: r.name, self: r.self, unnamed: r.unsymbolised, cut: short.get(r.name) ?? (cut.next ? null : 0) }));
}

/** @param {Binary[]} bins @param {api.Type} type */
export function binaryTable(bins, type) {
  if (!bins.length) return html`<p class="hint">No frame here belongs to a binary.</p>`;
  const good = (/** @type {number|null} */ bad, /** @type {number} */ self) => {
    const p = bad === null ? null : ((self - bad) / self) * 100;
    return html`<td class="num fact ${level('unsymbolised', p === null ? null : 100 - p)}"><b>${p === null ? 'unknown' : percent(p, 100)}</b></td>`;
  };
  return html`<table class="facts" aria-label="Unwinding and names by binary">
    <thead><tr><th scope="col">binary of the leaf</th><th scope="col" class="num">self</th><th scope="col" class="num">unwound to the root</th><th scope="col" class="num">named</th></tr></thead>
    <tbody>${bins.map((b) => html`<tr><th scope="row"><bdi class="mono">${show(b.bin)}</bdi></th><td class="num">${total(b.self, type)}</td>${good(b.cut, b.self)}${good(b.unnamed, b.self)}</tr>`)}</tbody>
  </table>`;
}

/** An event in words; its code where the pointer rests. @param {api.Event} e */
export function eventLine(e) {
  const { code, sentence } = eventWords(e);
  return html`<bdi title=${code}>${sentence}</bdi>`;
}

/** @param {api.Quality} q @param {number} captured @param {api.Type} type */
export function lossTable(q, captured, type) {
  if (!q.lost.length) return html`<p class="hint">${q.sources === 0 ? 'Nobody says what was lost.' : 'No loss was reported.'}</p>`;
  const due = q.lost.every((l) => l.weight !== null) ? captured + q.lost.reduce((s, l) => s + (l.weight ?? 0), 0) : null;
  return html`<table class="facts" aria-label="Loss by reason">
    <thead><tr><th scope="col">reason</th><th scope="col" class="num">observations</th><th scope="col" class="num">${type.unit === 'nanoseconds' ? 'time' : 'weight'}</th><th scope="col" class="num">of captured + lost</th></tr></thead>
    <tbody>${q.lost.map((l) => html`<tr><th scope="row"><bdi class="mono">${show(l.why)}</bdi>${LOSS[l.why] ? html`<small> ${LOSS[l.why]}</small>` : nothing}</th><td class="num">${l.n === null ? 'unknown' : count(l.n)}</td><td class="num">${l.weight === null ? 'unknown' : total(l.weight, type)}</td><td class="num">${pc(l.weight, due)}</td></tr>`)}</tbody>
  </table>
    <p class="hint">Loss is told by source, whoever it was of. So its share is of what those sources lost and what this selection captured, together: the narrower the selection, the larger it looks.</p>`;
}
