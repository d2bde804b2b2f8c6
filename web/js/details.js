// SPDX-License-Identifier: Apache-2.0
/** What is said about one frame: the footer, the tooltip, the sentence for a screen reader. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { count, exact, percent, plusMinus, total } from './fmt.js';
import { ORIGINS, ORIGIN_TEXT, originOf } from './origin.js';
import { shorten } from './paint.js';
import { show } from './safe.js';

/**
 * @typedef {object} Context
 * @property {import('./tree.js').Tree} tree
 * @property {import('./fmt.js').Type} type
 * @property {number} root        node at row 0
 * @property {number} everything  total before filters
 * @property {number} parentOfRoot  total of the caller of node 0, NaN unknown
 * @property {boolean} periodic   samples count ticks, so n has an error
 * @property {boolean} short
 * @property {string} [whole]  what function 0 is, where it is not the whole selection
 * @property {number} [selfOfRoot]  where row 0 stands for a function that also occurs below itself: all of its own
 */

const isLevelName = (/** @type {string} */ name) => /=|^\[other groups\]$/.test(name);

/** Drawn name. @param {Context} c @param {number} n */
export function label(c, n) {
  const name = c.tree.funcs.name[c.tree.func[n]] ?? '';
  return show(c.short ? shorten(name) : name);
}

/** @param {Context} c @param {number} n */
function where(c, n) {
  const f = c.tree.func[n];
  const file = c.tree.funcs.file[f] ?? '',
    bin = c.tree.funcs.bin[f] ?? '';
  return [bin, file].filter(Boolean).map(show).join(' · ') || (isLevelName(c.tree.funcs.name[f] ?? '') ? 'group' : 'pseudo-frame');
}

/** @param {Context} c @param {number} n */
function figures(c, n) {
  const t = c.tree,
    v = t.total[n],
    up = t.parent[n];
  const of = up >= 0 ? t.total[up] : c.parentOfRoot;
  return {
    v,
    self: n === 0 ? (c.selfOfRoot ?? t.self[0]) : t.self[n],
    samples: t.samples[n],
    parent: Number.isNaN(of) ? '' : percent(v, of),
    view: percent(v, t.total[c.root]),
    total: percent(v, c.everything),
  };
}

/** ± of a periodic sampler, where there are enough samples for one. @param {Context} c @param {ReturnType<typeof figures>} f */
function error(c, f) {
  const e = c.periodic && Number.isFinite(f.samples) ? plusMinus(f.v, f.samples, c.type) : '';
  return e ? ` ${e}` : '';
}

/** @param {Context} c @param {number} n */
export function sentence(c, n) {
  const f = figures(c, n);
  return `${label(c, n)}, ${total(f.v, c.type)}, self ${total(f.self, c.type)}, ${f.parent ? `${f.parent} of parent, ` : ''}${f.view} of view, ${f.total} of total`;
}

/** Origin of a function as [word, class]. @param {Context} c @param {number} f */
function originIn(c, f) {
  const o = originOf(c.tree.funcs.kind[f] ?? '', c.tree.funcs.bin[f] ?? '');
  return { text: ORIGIN_TEXT[o] ?? '', swatch: html`<i class="swatch o-${ORIGINS[o] ?? 'other'}" aria-hidden="true"></i>` };
}

/**
 * @param {Context} c @param {number} n
 * @param {{total:number, places:number|null}|undefined} everywhere  of the function, from /top
 * @param {{copy: (name: string) => void, zoom: () => void, menu: () => void}} act
 */
export function inspector(c, n, everywhere, act) {
  const f = figures(c, n),
    fn = c.tree.func[n],
    o = originIn(c, fn),
    isAll = fn === 0;
  const stat = (/** @type {string} */ value, /** @type {string} */ what, extra = '', title = '') =>
    html`<div class="stat" title=${title || nothing}><b>${value}</b><span>${what}${extra ? html`<i> ${extra}</i>` : nothing}</span></div>`;
  const known = Number.isFinite(f.samples);
  return html`<div class="inspector-name">
      <div class="inspector-title">${isAll ? nothing : o.swatch}<bdi class="mono" title=${show(c.tree.funcs.name[fn] ?? '')}>${label(c, n)}</bdi>${
        c.tree.funcs.raw?.[fn] ? html`<small title="The recorded name is not valid text: what is shown was repaired">repaired</small>` : nothing
      }</div>
      <div class="inspector-where">${isAll ? (c.whole ?? 'the whole selection') : html`<span>${o.text}</span><bdi>${where(c, n)}</bdi>`}</div>
    </div>
    <div class="stats">
      ${stat(total(f.v, c.type), 'total', c.periodic && known ? plusMinus(f.v, f.samples, c.type) : '', exact(f.v, c.type))}
      ${stat(total(f.self, c.type), 'self', '', exact(f.self, c.type))}
      ${f.parent && !isAll ? stat(f.parent, 'of parent') : nothing}
      ${stat(f.view, 'of view')}${stat(f.total, 'of total')}
      ${everywhere && !isAll
        ? stat(
            total(everywhere.total, c.type),
            everywhere.places === null ? 'everywhere' : `in ${count(everywhere.places)} ${everywhere.places === 1 ? 'place' : 'places'}`,
          )
        : nothing}
      ${stat(known ? count(f.samples) : 'unknown', 'samples')}
    </div>
    <div class="inspector-acts">
      <button class="button" type="button" ?disabled=${isAll || n === c.root} @click=${act.zoom}>Zoom</button>
      <button class="button" type="button" ?disabled=${isAll} @click=${() => act.copy(c.tree.funcs.name[fn] ?? '')}>Copy name</button>
      <button class="button more" type="button" aria-haspopup="menu" title="Menu of the frame (.)" @click=${act.menu}>Menu</button>
    </div>`;
}

/**
 * @param {Context} c @param {number} n @param {number} frames not 0: a run of frames too small to draw
 * @param {boolean} deepest zooming cannot show them @param {unknown} [lines] of the function
 */
export function tip(c, n, frames, deepest, lines = nothing) {
  const t = c.tree;
  if (frames) {
    const cut = t.func[n] < 0;
    return html`<b class="tip-name">${count(frames)} ${frames === 1 ? 'frame' : 'frames'} too small to draw</b>
      <p>${
        cut
          ? `${total(t.total[n], c.type)} together. ${deepest ? 'Each is under a pixel even here: search finds them.' : 'Not sent, each is under a pixel. Click to load them.'}`
          : 'Each is narrower than a pixel. Click to zoom in.'
      }</p>`;
  }
  const f = figures(c, n),
    fn = t.func[n],
    o = originIn(c, fn);
  const share = (/** @type {string} */ what, /** @type {number} */ whole, /** @type {string} */ text) =>
    html`<div class="tip-share"><span>${what}</span><i class="meter"><i .style=${`width:${whole > 0 ? Math.min(100, (f.v / whole) * 100) : 0}%`}></i></i><b>${text}</b></div>`;
  const up = t.parent[n];
  return html`<b class="tip-name"><bdi>${show(t.funcs.name[fn] ?? '')}</bdi></b>
    <div class="tip-where">${fn === 0 ? (c.whole ?? 'the whole selection') : html`${o.swatch}${o.text} · <bdi>${where(c, n)}</bdi>`}</div>
    ${lines}
    <div class="tip-values"><span>total <b>${total(f.v, c.type)}</b>${error(c, f)}</span><span>self <b>${total(f.self, c.type)}</b></span></div>
    ${f.parent && n !== 0 ? share('of parent', up >= 0 ? t.total[up] : c.parentOfRoot, f.parent) : nothing}
    ${c.root || t.rootHash ? share('of view', t.total[c.root], f.view) : nothing}${share('of total', c.everything, f.total)}
    <p class="tip-exact">${exact(f.v, c.type)} · ${Number.isFinite(f.samples) ? `${count(f.samples)} samples` : 'samples unknown'}</p>`;
}
