// SPDX-License-Identifier: Apache-2.0
/**
 * Functions as a real <table>: rows of /top as the server sorts and pages them, never of the trimmed
 * tree. Only the visible rows exist (window + 20); aria-rowcount says how many there are.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { count, percent, total } from './fmt.js';
import { icon } from './icons.js';
import { ORIGINS, originOf } from './origin.js';
import { shorten } from './paint.js';
import { show } from './safe.js';

const ROW_PX = 24;
const OVERSCAN = 20;
const COLUMNS = /** @type {const} */ ([
  ['name', 'Function', false],
  ['self', 'Self', true],
  ['total', 'Total', true],
  ['samples', 'Samples', true],
  ['places', 'Places', false],
]);

/** @typedef {import('./api.js').TopRow} Row */
/** @typedef {import('./api.js').Top['groups']} Groups */

/** The value alone, where one label says what it is of: the head's title has it all. @param {string} name */
const groupHead = (name) => (name.includes(', ') ? name : name.replace(/^[\w.]+=/, ''));

/** @param {{sort:(key:string)=>void, hover:(key:string)=>void, pick:(row:Row)=>void, more:()=>void}} on */
export function createTable(on) {
  const el = document.createElement('div');
  el.className = 'table-scroll';
  el.tabIndex = 0;
  el.setAttribute('role', 'region');
  el.setAttribute('aria-label', 'Table of functions, scrollable; arrow keys move the selection');
  /** @type {Row[]} */ let rows = [];
  /** @type {import('./fmt.js').Type} */ let type = { id: '', name: '', unit: 'count', kind: 'sum' };
  let all = 1,
    sort = 'self',
    more = false,
    short = true,
    note = '',
    selected = '',
    marked = '',
    first = 0,
    widest = { self: 1, total: 1 };
  /** @type {Groups} */ let groups = [];
  /** names that stand for several functions get their scope even where it is hidden */
  /** @type {Set<string>} */ let twice = new Set();

  function draw() {
    first = Math.max(0, Math.floor(el.scrollTop / ROW_PX) - (OVERSCAN >> 1));
    const list = rows.slice(first, first + Math.ceil((el.clientHeight || 400) / ROW_PX) + OVERSCAN);
    const below = Math.max(0, rows.length - first - list.length) * ROW_PX;
    render(
      html`<table class="functions" aria-label="Functions" aria-rowcount=${more ? -1 : rows.length + 1}>
        <thead>
          <tr>
            ${COLUMNS.map(
              ([key, text, can]) =>
                html`<th scope="col" class="col-${key}" aria-sort=${key === sort ? 'descending' : nothing}>
                  ${can
                    ? html`<button class="sort" type="button" @click=${() => on.sort(key)}>${text}${icon('down')}</button>`
                    : html`<span class="sort">${text}</span>`}
                </th>${
                  key === 'total'
                    ? groups.map((g) => html`<th scope="col" class="col-group" title="Self in ${show(g.name)}: ${g.total === null ? 'unknown' : total(g.total, type)} of everything"><span class="sort"><bdi>${show(groupHead(g.name))}</bdi></span></th>`)
                    : nothing
                }`,
            )}
          </tr>
        </thead>
        <tbody @pointerover=${over} @pointerleave=${() => on.hover('')} @click=${click}>
          <tr class="pad" aria-hidden="true"><td .style=${`height:${first * ROW_PX}px`}></td></tr>
          ${list.map((r, i) => row(r, first + i))}
          <tr class="pad" aria-hidden="true"><td .style=${`height:${below}px`}></td></tr>
        </tbody>
      </table>
      ${note ? html`<p class="table-note">${note}</p>` : nothing}`,
      el,
    );
    if (more && first + list.length >= rows.length - OVERSCAN) on.more();
  }
  /** @param {Row} r @param {number} i */
  function row(r, i) {
    const where = (r.file ? `${r.file}${r.line === null ? '' : `:${r.line}`}` : r.bin) + (r.inlined ? ' · inlined' : '');
    const mine = groups.reduce((most, g) => Math.max(most, g.self[i] ?? 0), 0);
    /* a bar is as long as its value among the column's; the share of the total is the number beside it */
    const value = (/** @type {number} */ v, /** @type {number} */ most, /** @type {string} */ col) =>
      html`<td class="num col-${col}">
        <i class="cell-bar" .style=${`width:calc(${(v / most).toFixed(4)} * (100% - 12px))`}></i><span>${total(v, type)}</span>
        <small>${percent(v, all)}</small>
      </td>`;
    return html`<tr class=${r.key === selected ? 'selected' : r.key === marked ? 'marked' : nothing} data-row=${i} aria-rowindex=${i + 2}>
      <td class="fn">
        <i class="swatch o-${ORIGINS[originOf(r.kind, r.bin)] ?? 'other'}" aria-hidden="true"></i
        ><bdi title=${show(r.name)}>${show(short ? shorten(r.name) : r.name)}</bdi
        ><small class=${twice.has(r.name) ? 'twice' : ''}><bdi>${where ? show(where) : 'pseudo-frame'}</bdi></small>
      </td>
      ${value(r.self, widest.self, 'self')}${value(r.total, widest.total, 'total')}${groups.map((g) => {
        const v = g.self[i] ?? null;
        return html`<td class="num col-group">${v ? html`<i class="cell-bar" .style=${`width:calc(${(v / (mine || 1)).toFixed(4)} * (100% - 12px))`}></i>` : nothing}<span>${v === null ? 'unknown' : v ? total(v, type) : '0'}</span></td>`;
      })}
      <td class="num col-samples">${r.samples === null ? 'unknown' : count(r.samples)}</td>
      <td class="num col-places">${r.places === null ? 'unknown' : count(r.places)}</td>
    </tr>`;
  }
  const rowAt = (/** @type {Event} */ e) => {
    const tr = /** @type {HTMLElement|null} */ (/** @type {Element} */ (e.target).closest('tr[data-row]'));
    return tr ? rows[Number(tr.dataset['row'])] : undefined;
  };
  const over = (/** @type {Event} */ e) => on.hover(rowAt(e)?.key ?? '');
  const click = (/** @type {Event} */ e) => {
    const r = rowAt(e);
    if (r) on.pick(r);
  };
  el.addEventListener('scroll', draw, { passive: true });
  el.addEventListener('keydown', (e) => {
    const d = { ArrowUp: -1, ArrowDown: 1 }[e.key];
    if (!d || e.ctrlKey || e.metaKey || e.altKey || !rows.length) return;
    e.preventDefault();
    e.stopPropagation();
    const at = rows.findIndex((r) => r.key === selected);
    const i = Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + d));
    const r = rows[i];
    if (!r) return;
    const y = i * ROW_PX,
      seen = el.clientHeight - 28;
    if (y < el.scrollTop) el.scrollTop = y;
    else if (y + ROW_PX > el.scrollTop + seen) el.scrollTop = y + ROW_PX - seen;
    on.pick(r);
  });
  new ResizeObserver(draw).observe(el);

  return {
    el,
    /**
     * @param {{rows: Row[], groups: Groups, type: import('./fmt.js').Type, all: number, sort: string, more: boolean, note: string, keep: boolean}} t
     * all: the total that shares are of; keep: the same table, longer
     */
    set(t) {
      ({ rows, groups, type, all, sort, more, note } = t);
      el.classList.toggle('grouped', groups.length > 0);
      widest = { self: 1, total: 1 };
      /** @type {Map<string, number>} */ const names = new Map();
      for (const r of rows) {
        widest.self = Math.max(widest.self, r.self);
        widest.total = Math.max(widest.total, r.total);
        names.set(r.name, (names.get(r.name) ?? 0) + 1);
      }
      twice = new Set([...names].filter(([, n]) => n > 1).map(([n]) => n));
      if (!t.keep) el.scrollTop = 0;
      draw();
    },
    /** @param {string} key */
    select(key) {
      if (key !== selected) {
        selected = key;
        draw();
      }
    },
    /** The row of a function that is pointed at elsewhere, '' none. @param {string} key */
    mark(key) {
      if (key === marked) return;
      marked = key;
      if (el.offsetParent) draw();
    },
    /** @param {boolean} s */
    setNames(s) {
      if (s !== short) {
        short = s;
        draw();
      }
    },
  };
}
