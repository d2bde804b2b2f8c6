// SPDX-License-Identifier: Apache-2.0
/**
 * Steps that do not say what they consist of: what the threads of their programs did meanwhile, per step. On the
 * CPU, blocked and waiting for a CPU stand beside each other: a step's time is that of one thread, these are of all.
 */
import { html, nothing } from '../../vendor/lit-html/lit-html.js';
import * as api from '../api.js';
import { sig3 } from '../fmt.js';
import { show } from '../safe.js';
import { trySelector, writeSelector } from '../selector.js';

const TYPES = /** @type {const} */ ([['cpu', 'on the CPU'], ['offcpu', 'blocked'], ['runq', 'waiting for a CPU']]);
const THREADS = 8;
const SHOWN_MS = 0.001; // a step: less is not worth a row

/** @typedef {{q:string, range:[number, number], step:string, n:number}} Side  n: steps that step names */
/** @typedef {{name:string, ms:Record<string, [number|null, number|null]>}} Thread  per step, A and B; null: nobody looked */

/** @param {Side} side @param {string} type @param {AbortSignal} signal */
async function perStep(side, type, signal) {
  const s = trySelector(side.q),
    /** @type {Map<string, number>} */ by = new Map();
  if (!s || !side.n) return null;
  const a = await api.timeseries({ q: writeSelector({ ...s, type }), from: `${Math.round(side.range[0])}ms`, to: `${Math.round(side.range[1])}ms`, step: side.step, by: 'thread', groups: THREADS, points: 1 }, signal);
  if (a.empty && a.empty.why !== 'zero') return null;
  for (const g of a.groups) by.set(g.rest ? '' : g.name.replace(/^thread=/, ''), (g.value[0] ?? 0) / side.n / 1e6);
  return by;
}

/** @param {Side} a @param {Side} b @param {AbortSignal} signal @returns {Promise<{threads: Thread[], types: string[]}>} */
export async function askThreads(a, b, signal) {
  const all = await Promise.all(TYPES.map(async ([type]) => ({ type, sides: await Promise.all([perStep(a, type, signal), perStep(b, type, signal)]) })));
  const known = all.filter((x) => x.sides[0] ?? x.sides[1]);
  const names = [...new Set(known.flatMap((x) => x.sides.flatMap((m) => [...(m?.keys() ?? [])])))];
  const threads = names.map((name) => ({ name, ms: Object.fromEntries(known.map((x) => [x.type, /** @type {[number|null, number|null]} */ (x.sides.map((m) => (m ? (m.get(name) ?? 0) : null)))])) }));
  const most = (/** @type {Thread} */ t) => Math.max(...Object.values(t.ms).flat().map((v) => v ?? 0));
  return {
    types: known.map((x) => x.type),
    /* the rest has no place among the named ones */
    threads: threads.filter((t) => most(t) >= SHOWN_MS).sort((x, y) => Number(x.name === '') - Number(y.name === '') || most(y) - most(x)),
  };
}

const ms = (/** @type {number|null|undefined} */ x) => (x === null || x === undefined ? 'no data' : x === 0 ? '0' : `${sig3(x)}\u202fms`);

/** @param {{threads: Thread[], types: string[]}} found */
export function threadTable(found) {
  if (!found.threads.length) return html`<p class="hint">No thread of theirs was sampled on either side.</p>`;
  const words = new Map(TYPES.map(([t, w]) => [/** @type {string} */ (t), w]));
  return html`<table class="facts" aria-label="What the threads did, per step">
      <thead><tr><th scope="col">thread</th>${found.types.map((t) => html`<th scope="col" class="num">${words.get(t)} A</th><th scope="col" class="num">B</th>`)}</tr></thead>
      <tbody>${found.threads.map((t) => html`<tr><th scope="row"><bdi class="mono">${t.name === '' ? 'all others' : show(t.name)}</bdi></th>${found.types.map((type) => html`<td class="num">${ms(t.ms[type]?.[0])}</td><td class="num"><b>${ms(t.ms[type]?.[1])}</b></td>`)}</tr>`)}</tbody>
    </table>
    <p class="hint">Means per step, of the threads of these programs while their steps ran; not to be added: threads run at the same time.${found.types.length < TYPES.length ? html` Not collected here: ${TYPES.filter(([t]) => !found.types.includes(t)).map(([t]) => t).join(', ')}.` : nothing}</p>`;
}
