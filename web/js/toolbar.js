// SPDX-License-Identifier: Apache-2.0
/** Views, options, export and the legend: everything that stands around the picture. */
import * as api from './api.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { icon } from './icons.js';
import { createMenu } from './menu.js';
import { ORIGIN_TEXT, ORIGINS, originOf } from './origin.js';
import { binaries, binaryOf } from './paint.js';
import { lookup, safeUrl, show } from './safe.js';
import { dateTime, fromField, toMs } from './time.js';
import { selfOf } from './tree.js';

/** view, text, key */
export const VIEWS = /** @type {const} */ ([
  ['flame', 'Flame', '1'],
  ['both', 'Both', 'b'],
  ['table', 'Table', '2'],
  ['sandwich', 'Sandwich', '3'],
  ['compare', 'Compare', '5'],
]);
/** format, text */
const EXPORTS = /** @type {const} */ ([
  ['pprof', 'pprof'],
  ['speedscope', 'speedscope'],
  ['folded', 'Folded stacks'],
  ['svg', 'Whole graph (SVG)'],
  ['text', 'Report (text)'],
]);
const BINARIES = 8; // in the legend
const MOST_LABELS = 200; // more of them are grouped by in the link alone
const NO_WORDS = lookup({});
/** What a group stands for. */
const BY_WORDS = lookup({
  thread: 'Threads of this name, of all processes',
  pid: 'One process each, of its host',
  tid: 'One thread each, by its number',
});
const FIRST = ['thread', 'host', 'pid', 'cpu'];

/**
 * @param {{views: HTMLElement, options: HTMLElement, legend: HTMLElement}} at
 * @param {object} on
 * @param {() => import('./url.js').State} on.state
 * @param {(patch: Partial<import('./url.js').State>, push?: boolean) => void} on.set
 * @param {() => api.Params} on.question   what is shown, for exports
 * @param {() => number} on.width
 * @param {() => {name:string, attribute:boolean}[]} on.labels
 * @param {() => api.Type|null} on.type
 * @param {() => void} on.curl
 * @param {() => void} on.folded
 * @param {() => void} on.png
 * @param {() => void} on.svg
 * @param {() => boolean} on.utc
 * @param {() => string} on.instant  one inside the range, as the API takes it
 * @param {() => void} on.print
 * @param {() => void} on.recolour
 * @param {() => import('./tree.js').Tree|null} on.tree
 */
export function createToolbar(at, on) {
  let origin = -1; // lit by the legend, -1 none
  let binary = ''; // the same, '' none
  const menu = createMenu(at.options, options);

  function views() {
    const s = on.state();
    document.body.dataset['view'] = s.view;
    render(
      VIEWS.map(
        ([v, text, key]) =>
          html`<button class="tab" type="button" aria-pressed=${s.view === v} title="${text} (${key})" data-tab=${v} @click=${() => on.set({ view: v }, true)}>${text}</button>`,
      ),
      at.views,
    );
  }
  /** What can be grouped by: attributes first, then the labels that exist. */
  function groupings() {
    const names = on.labels().map((l) => l.name);
    const first = FIRST.filter((n) => n === 'thread' || names.includes(n));
    const now = on.state().by;
    return ['', ...new Set([...(now ? [now] : []), ...first, ...names.slice(0, MOST_LABELS)])];
  }
  function options() {
    const s = on.state(),
      level = on.type()?.kind === 'level';
    /** @param {'color'|'names'|'by'} key @param {string} text @param {readonly string[]} list @param {Record<string, string>} [words] @param {Readonly<Record<string, string>>} [titles] */
    const pick = (key, text, list, words = NO_WORDS, push = false, titles = NO_WORDS) =>
      html`<label class="option option-${key}"
        >${text}<select class="select" title=${titles[s[key]] ?? nothing} @change=${(/** @type {Event} */ e) => on.set({ [key]: /** @type {HTMLSelectElement} */ (e.target).value, ...(push && { z: '', sel: '' }) }, push)}>
          ${list.map((v) => html`<option value=${v} title=${titles[v] ?? nothing}>${words[v] ?? show(v)}</option>`)}
        </select></label
      >`;
    /* of a level: its mean, its last reading, or what it was at an instant */
    const value = () => {
      const set = (/** @type {Partial<import('./url.js').State>} */ patch) => on.set({ ...patch, z: '', sel: '' }, true);
      return html`<label class="option option-agg"
          >value<select class="select" @change=${(/** @type {Event} */ e) => { const v = /** @type {HTMLSelectElement} */ (e.target).value; set(v === 'at' ? { at: on.instant(), agg: '' } : { agg: v, at: '' }); }}>
            ${[['', 'average'], ['now', 'now'], ['at', 'at an instant']].map(([k, text]) => html`<option value=${k} .selected=${k === (s.at ? 'at' : s.agg)}>${text}</option>`)}
          </select></label
        >${s.at
          ? html`<input class="field instant" aria-label="Instant" autocomplete="off" spellcheck="false" .value=${dateTime(toMs(s.at, Date.now()), on.utc())} @change=${(/** @type {Event} */ e) => { const field = /** @type {HTMLInputElement} */ (e.target), t = fromField(field.value, on.utc()); field.classList.toggle('bad', !t); field.setAttribute('aria-invalid', String(!t)); if (t) set({ at: t }); }} />`
          : nothing}`;
    };
    const link = (/** @type {string} */ format, /** @type {string} */ text) =>
      html`<a class="pick" download href=${safeUrl(api.address('/export', { ...on.question(), ...(format !== 'pprof' && { root: s.z || undefined, by: s.by || undefined, invert: s.invert || undefined }), format, ...(format === 'svg' && { width: 1200, color: s.color === 'binary' ? 'binary' : undefined }) }))} @click=${() => menu.close()}>${text}</a>`;
    const act = (/** @type {string} */ text, /** @type {() => void} */ run) => html`<button class="pick" type="button" @click=${() => { menu.close(); run(); }}>${text}</button>`;
    render(
      html`${pick('by', 'by', groupings(), lookup({ '': 'nothing' }), true, BY_WORDS)}${level ? value() : nothing}${pick('color', 'colour', ['origin', 'binary', 'self'])}${pick('names', 'names', ['short', 'full'])}<button
          class="button toggle"
          type="button"
          aria-pressed=${s.invert === '1'}
          title="Leaves on top, callers below (i)"
          @click=${() => on.set({ invert: s.invert ? '' : '1', z: '', sel: '' }, true)}
        >Invert</button
        ><span class="menu-anchor"
          ><button class="button" type="button" aria-expanded=${menu.open} @click=${menu.toggle}>${icon('save')}Export</button>${
            menu.open
              ? html`<div class="menu-panel picks right">
                  ${EXPORTS.map(([format, text]) => link(format, text))}${act('This view (PNG)', on.png)}${act('This view (SVG)', on.svg)}${act('Print', on.print)}
                  <hr />${act('Copy folded stacks', on.folded)}${act('Copy as curl (JSON)', on.curl)}
                </div>`
              : nothing
          }</span
        >`,
      at.options,
    );
    /* lit compares with what it wrote last, not with what was picked since; and what can be grouped by moves */
    for (const key of /** @type {const} */ (['by', 'color', 'names'])) {
      const select = /** @type {HTMLSelectElement} */ (at.options.querySelector(`.option-${key} select`));
      if (select.value !== s[key]) select.value = s[key];
    }
  }
  function legend() {
    const t = on.tree();
    at.legend.hidden = !t;
    if (!t) return;
    const { color } = on.state();
    const fixed = (/** @type {string} */ cls, /** @type {string} */ text) =>
      html`<span class="legend-item fixed"><i class="swatch ${cls}" aria-hidden="true"></i>${text}</span>`;
    const light = () => {
      on.recolour();
      legend();
    };
    /** @param {boolean} pressed @param {string} cls @param {string} text @param {() => void} run */
    const item = (pressed, cls, text, run) =>
      html`<button class="legend-item" type="button" aria-pressed=${pressed} title="Show only ${text}" @click=${run}>
        <i class="swatch ${cls}" aria-hidden="true"></i><bdi>${text}</bdi>
      </button>`;
    const origins = () => {
      const seen = new Set(t.funcs.kind.map((k, i) => (i ? originOf(k, t.funcs.bin[i] ?? '') : -1)));
      return ORIGIN_TEXT.map((text, i) =>
        seen.has(i) && i !== ORIGINS.length - 1 ? item(origin === i, `o-${ORIGINS[i] ?? ''}`, text, () => { origin = origin === i ? -1 : i; light(); }) : nothing,
      );
    };
    const bins = () => {
      const list = binaries(t.funcs, selfOf(t)).filter((b) => b.value > 0);
      return html`${list.slice(0, BINARIES).map((b) =>
        item(binary === b.bin, `o-${ORIGINS[b.fill >> 1] ?? ''} ${b.fill & 1 ? 'lighter' : ''}`, show(b.bin), () => { binary = binary === b.bin ? '' : b.bin; light(); }),
      )}${list.length > BINARIES ? html`<span class="legend-note">${list.length - BINARIES} more</span>` : nothing}`;
    };
    render(
      html`${color === 'binary'
        ? bins()
        : color === 'self'
          ? html`${fixed('d-same', 'self under 2 % of the largest')}${fixed('d-more1', '2 %')}${fixed('d-more2', '10 %')}${fixed('d-more3', '50 %')}`
          : origins()}${fixed('p-unsym', 'no symbol')}${fixed('p-nostack', 'no stack')}${fixed('p-hidden', 'small')}`,
      at.legend,
    );
  }
  return {
    draw() {
      views();
      options();
      legend();
    },
    /** Functions of what the legend lights, null: all. @param {import('./tree.js').Funcs} funcs */
    lit(funcs) {
      const { color } = on.state();
      if (color === 'binary') return binary ? Uint8Array.from(funcs.kind, (_, f) => (f && binaryOf(funcs, f) === binary ? 1 : 0)) : null;
      return color !== 'origin' || origin < 0 ? null : Uint8Array.from(funcs.kind, (k, f) => (f && originOf(k, funcs.bin[f] ?? '') === origin ? 1 : 0));
    },
  };
}
