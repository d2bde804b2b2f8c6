// SPDX-License-Identifier: Apache-2.0
/** The time range: picks, two fields for anything else, with what is wrong under the field it is about. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { icon } from './icons.js';
import { EVERY_MS } from './live.js';
import { createMenu } from './menu.js';
import * as prefs from './prefs.js';
import { show } from './safe.js';
import { dateTime, fromField, isRelative, rangeText, toMs } from './time.js';

const PICKS = /** @type {const} */ ([
  ['now-5m', 'Last 5 min'],
  ['now-15m', 'Last 15 min'],
  ['now-1h', 'Last 1 h'],
  ['now-6h', 'Last 6 h'],
  ['now-24h', 'Last 24 h'],
  ['now-7d', 'Last 7 d'],
]);

/**
 * @param {HTMLElement} el
 * @param {object} on
 * @param {() => {from:string, to:string}} on.range
 * @param {(from: string, to: string) => void} on.change
 * @param {() => void} on.refresh
 * @param {() => {on: boolean, can: boolean, waiting: boolean, trouble: string, follow: boolean}} on.live
 * @param {() => void} on.toggleLive
 * @param {() => void} [on.follow]
 * @param {number} [on.every]  ms
 */
export function createRangeMenu(el, on) {
  const menu = createMenu(el, () => {
    if (menu.open) {
      from = to = null;
      wrong = { from: '', to: '' };
    }
    draw();
  });
  /** @type {string|null} */ let from = null;
  /** @type {string|null} */ let to = null;
  let wrong = { from: '', to: '' };
  let error = '';

  /** @param {string} spec */
  const fieldText = (spec) =>
    isRelative(spec) ? spec : dateTime(toMs(spec, Date.now()), prefs.get().utc);

  function draw() {
    const r = on.range(),
      live = on.live(),
      utc = prefs.get().utc;
    render(
      html`<span class="menu-anchor"
          ><button class="button menu" type="button" id="range-button" title="Time range (t)" aria-expanded=${menu.open} aria-describedby=${error ? 'range-error' : nothing} @click=${menu.toggle}>
            ${icon('clock')}<span>${rangeText(r.from, r.to, Date.now(), utc)}</span>${icon('down')}
          </button>${menu.open ? panel(r, utc) : nothing}</span
        ><button class="button square" type="button" aria-label="Refresh" title="Refresh (r)" @click=${on.refresh}>${icon('refresh')}</button
        ><button
          class="button ${live.trouble ? 'troubled' : ''}"
          type="button"
          title=${live.trouble || (live.can ? `New data every ${(on.every ?? EVERY_MS) / 1000} s (L)` : 'Only ranges that end now can be live')}
          aria-pressed=${live.on}
          ?disabled=${!live.can}
          @click=${on.toggleLive}
        >${icon('live')}Live</button
        >${live.on && on.follow
          ? html`<button class="button ghost toggle" type="button" aria-pressed=${live.follow} title="New data replace the picture even under the pointer" @click=${on.follow}>Follow</button>`
          : nothing}${live.waiting ? html`<button class="button small" type="button" @click=${on.refresh}>New data (r)</button>` : nothing}${
          error ? html`<p class="field-error" id="range-error" role="alert">${icon('warn')}<bdi>${show(error)}</bdi></p>` : nothing
        }${live.on && live.trouble ? html`<p class="field-error live-trouble" role="status">${icon('warn')}<bdi>${show(live.trouble)}</bdi></p>` : nothing}`,
      el,
    );
  }
  /** @param {{from:string, to:string}} r @param {boolean} utc */
  function panel(r, utc) {
    const field = (/** @type {'from'|'to'} */ which, /** @type {string} */ label) =>
      html`<label
        >${label}<input
          class="field ${wrong[which] ? 'bad' : ''}"
          autocomplete="off"
          spellcheck="false"
          .value=${(which === 'from' ? from : to) ?? fieldText(r[which])}
          aria-invalid=${wrong[which] ? 'true' : 'false'}
          aria-describedby=${wrong[which] ? `range-${which}-error` : nothing}
          @input=${(/** @type {Event} */ e) => {
            const v = /** @type {HTMLInputElement} */ (e.target).value;
            if (which === 'from') from = v;
            else to = v;
          }}
        />${wrong[which] ? html`<span class="field-error" id="range-${which}-error">${wrong[which]}</span>` : nothing}</label
      >`;
    return html`<div class="menu-panel range-panel">
      <div class="picks">
        ${PICKS.map(
          ([spec, text]) =>
            html`<button class="pick" type="button" aria-pressed=${r.from === spec && r.to === 'now'} @click=${() => take(spec, 'now')}>${text}</button>`,
        )}
      </div>
      <form class="range-form" @submit=${apply}>
        ${field('from', 'From')}${field('to', 'To')}
        <p class="hint">${utc ? 'UTC' : 'Local time'}: 2026-11-29 14:02:10, or now-90m</p>
        <button class="button primary" type="submit">Apply</button>
      </form>
    </div>`;
  }
  /** @param {string} f @param {string} t */
  function take(f, t) {
    menu.close();
    on.change(f, t);
  }
  /** @param {Event} e */
  function apply(e) {
    e.preventDefault();
    const r = on.range(),
      utc = prefs.get().utc,
      now = Date.now();
    const f = from === null ? r.from : fromField(from, utc),
      t = to === null ? r.to : fromField(to, utc);
    const no = 'Not a time. Like 2026-11-29 14:02:10, or now-90m';
    wrong = { from: f ? '' : no, to: t ? '' : no };
    if (f && t && toMs(f, now) >= toMs(t, now)) wrong.to = 'The end is not after the start';
    if (wrong.from || wrong.to) {
      draw();
      /** @type {HTMLElement|null} */ (el.querySelector('.field.bad'))?.focus();
      return;
    }
    take(f, t);
  }
  return {
    draw,
    open: menu.show,
    /** What the server says about the range; '' takes it away. @param {string} message */
    setError(message) {
      if (message === error) return;
      error = message;
      draw();
    },
  };
}
