// SPDX-License-Identifier: Apache-2.0
/** Lines of a function, asked for when the pointer rests on a frame of it; kept for as long as the question stays. */
import * as api from '../api.js';
import { html } from '../../vendor/lit-html/lit-html.js';
import { percent } from '../fmt.js';
import { escape } from '../filters.js';
import { show } from '../safe.js';

const SHOWN = 3;

/** @type {Map<string, api.TopRow[]>} */ const known = new Map();
const slot = api.slot();
let about = '';

/** The lines of one function among rows that have its name. @param {api.TopRow[]} rows @param {import('../tree.js').Funcs} funcs @param {number} f */
export const linesOf = (rows, funcs, f) =>
  rows.filter((r) => r.line !== null && r.name === funcs.name[f] && r.bin === funcs.bin[f] && (r.bin || r.file === funcs.file[f]));

/** Is more known now than before? @param {import('../tree.js').Funcs} funcs @param {number} f @param {api.Params} question */
export async function learn(funcs, f, question) {
  const key = funcs.key[f] ?? '',
    now = JSON.stringify(question);
  if (about !== now) known.clear();
  about = now;
  if (f <= 0 || known.has(key)) return false;
  try {
    const a = await slot.run((signal) => api.top({ ...question, key: 'line', sort: 'total', match: `/^${escape(funcs.name[f] ?? '')}$/` }, signal));
    const mine = linesOf(a.rows, funcs, f);
    if (about === now) known.set(key, mine);
    return mine.length > 0;
  } catch {
    return false; // the tooltip stands without them
  }
}

/** For the tooltip. @param {import('../tree.js').Funcs} funcs @param {number} f */
export function linesText(funcs, f) {
  const mine = known.get(funcs.key[f] ?? '') ?? [];
  const all = mine.reduce((s, l) => s + l.total, 0);
  return mine.slice(0, SHOWN + 1).map(
    (l, i) => html`<div class="tip-line">${i < SHOWN ? html`<bdi>${l.file ? `${show(l.file)}:` : 'line '}${l.line}</bdi> ${mine.length > 1 ? percent(l.total, all) : ''}${l.inlined ? ' inlined' : ''}` : `${mine.length - SHOWN} more: o`}</div>`,
  );
}
