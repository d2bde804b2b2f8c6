// SPDX-License-Identifier: Apache-2.0
/** The table as CSV (RFC 4180): exact values in the type's own unit, and what they are of. */
export { saveText } from './savefile.js';

/** A cell. What a spreadsheet would take for a formula, or a control character at the start, gets an apostrophe. @param {string|number|null} v */
export function cell(v) {
  if (v === null) return '';
  const s = typeof v === 'number' ? String(v) : v;
  const safe = typeof v === 'string' && /^[=+\-@\u0000-\u001f\u007f]/.test(s) ? `'${s}` : s;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}
const line = (/** @type {(string|number|null)[]} */ cells) => `${cells.map(cell).join(',')}\r\n`;

/** @param {import('../api.js').Top} a @param {import('../api.js').Flame} flame @param {{from:string, to:string}|null} range */
export function table(a, flame, range) {
  const unit = a.type.unit,
    lines = a.rows.some((r) => r.line !== null);
  const of = flame.unfiltered;
  const head = ['function', 'file', 'binary', 'kind', ...(lines ? ['line'] : []), `self (${unit})`, `total (${unit})`, 'total share', 'samples', 'places'];
  const groups = a.groups.map((g) => `self of ${g.name} (${unit})`);
  const q = flame.quality;
  const lost = q.lost.map((l) => `${l.why} ${l.weight ?? l.n ?? 'unknown'}`).join('; ') || 'none';
  return [
    line(['# type', flame.type.id, 'from', range?.from ?? '', 'to', range?.to ?? '', `of (${unit})`, of, 'covered ns', q.coveredNs, 'asked ns', q.askedNs, 'lost', lost]),
    line([...head, ...groups]),
    ...a.rows.map((r, i) =>
      line([r.name, r.file, r.bin, r.kind, ...(lines ? [r.line] : []), r.self, r.total, of > 0 ? Number((r.total / of).toPrecision(9)) : null, r.samples, r.places, ...a.groups.map((g) => g.self[i] ?? null)]),
    ),
  ].join('');
}
