// SPDX-License-Identifier: Apache-2.0
/** What stands at the right of the header: time zone, theme, help, link. */
import { html, render } from '../vendor/lit-html/lit-html.js';
import * as api from './api.js';
import { icon } from './icons.js';
import * as prefs from './prefs.js';

/** @param {HTMLElement} el @param {{help: () => void, link: (asIs: boolean) => void}} on */
export function header(el, on) {
  const p = prefs.get();
  const theme = `Theme: ${p.theme === 'auto' ? 'as the system' : p.theme}`;
  render(
    html`<button class="button ghost" type="button" aria-pressed=${p.utc} title="Times in UTC or local time" @click=${() => prefs.set({ utc: !p.utc })}>UTC</button
      ><button class="button square ghost" type="button" id="theme" aria-label=${theme} title=${theme} @click=${() => prefs.set({ theme: prefs.nextTheme() })}>
        ${icon(p.theme === 'auto' ? 'auto' : p.theme === 'light' ? 'sun' : 'moon')}</button
      ><button class="button square ghost" type="button" id="help" aria-label="Keyboard help" title="Keyboard help (?)" @click=${on.help}>?</button
      ><button class="button" type="button" id="copy" title="Copy link with fixed times (y); Alt keeps relative ones" @click=${(/** @type {MouseEvent} */ e) => on.link(e.altKey)}>Copy link</button>`,
    el,
  );
}

/** The server has another page than this one: said once, above all. */
export function tellUpdate() {
  api.whenUpdated(() =>
    render(
      html`<div class="notice" role="status">Strata was updated. <button class="button small" type="button" @click=${() => location.reload()}>Reload</button></div>`,
      /** @type {HTMLElement} */ (document.getElementById('notice')),
    ),
  );
}
