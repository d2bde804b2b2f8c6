// SPDX-License-Identifier: Apache-2.0
/** The menu of a frame: by right click, by `.`, by the button in the footer. Arrow keys move in it. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { show } from './safe.js';

/** @typedef {{text:string, key?:string, run:() => void, off?:boolean, line?:boolean}} Entry */

/** @param {() => void} left  the menu is gone, the focus goes back */
export function createFrameMenu(left) {
  const el = document.createElement('div');
  el.className = 'frame-menu';
  el.hidden = true;
  (document.querySelector('main') ?? document.body).append(el);
  const items = () => /** @type {HTMLElement[]} */ ([...el.querySelectorAll('[role=menuitem]:not([disabled])')]);

  function close(focus = true) {
    if (el.hidden) return;
    el.hidden = true;
    render(nothing, el);
    if (focus) left();
  }
  document.addEventListener('pointerdown', (e) => {
    if (!el.contains(/** @type {Node} */ (e.target))) close(false);
  });
  addEventListener('resize', () => close(false));
  el.addEventListener('focusout', (e) => {
    if (e.relatedTarget && !el.contains(/** @type {Node} */ (e.relatedTarget))) close(false);
  });
  el.addEventListener('keydown', (e) => {
    const list = items(),
      at = list.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: list.length - 1 }[e.key];
    e.stopPropagation();
    if (e.key === 'Escape' || e.key === 'Tab') {
      e.preventDefault();
      close();
    } else if (to !== undefined) {
      e.preventDefault();
      list[(to + list.length) % list.length]?.focus();
    }
  });

  return {
    /** @param {string} name of the frame @param {Entry[]} entries @param {number} x client pixels @param {number} y */
    open(name, entries, x, y) {
      render(
        html`<p class="frame-menu-head"><bdi>${show(name)}</bdi></p>
          <div role="menu" aria-label=${show(name)}>
            ${entries.map(
              (e) => html`${e.line ? html`<hr />` : nothing}<button
                  class="pick"
                  type="button"
                  role="menuitem"
                  tabindex="-1"
                  ?disabled=${e.off === true}
                  @click=${() => { close(); e.run(); }}
                ><span>${e.text}</span>${e.key ? html`<kbd aria-hidden="true">${e.key}</kbd>` : nothing}</button>`,
            )}
          </div>`,
        el,
      );
      el.hidden = false;
      const px = (/** @type {number} */ v, /** @type {number} */ size, /** @type {number} */ room) => `${Math.round(Math.max(8, Math.min(v, room - size - 8)))}px`;
      el.style.setProperty('left', px(x, el.offsetWidth, innerWidth));
      el.style.setProperty('top', px(y, el.offsetHeight, innerHeight));
      items()[0]?.focus();
    },
  };
}
