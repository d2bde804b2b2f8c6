// SPDX-License-Identifier: Apache-2.0
/** Something that opens below a button and goes away by Escape, a click elsewhere or its own end. */

/**
 * @param {HTMLElement} within  button and panel are inside
 * @param {() => void} redraw   draw again: open has changed
 * @param {string} [opener]     the button, where `within` holds more of them
 */
export function createMenu(within, redraw, opener = '[aria-expanded]') {
  let open = false;
  /** @param {boolean} to */
  function set(to, focus = false) {
    if (open === to) return;
    open = to;
    redraw();
    if (open) /** @type {HTMLElement|null} */ (within.querySelector('.menu-panel [autofocus], .menu-panel button, .menu-panel a, .menu-panel input'))?.focus();
    else if (focus) /** @type {HTMLElement|null} */ (within.querySelector(opener))?.focus();
  }
  document.addEventListener('pointerdown', (e) => {
    if (open && !within.contains(/** @type {Node} */ (e.target))) set(false);
  });
  within.addEventListener('keydown', (e) => {
    if (e.key === 'Escape' && open) {
      e.stopPropagation();
      e.preventDefault();
      set(false, true);
    }
  });
  within.addEventListener('focusout', (e) => {
    const to = /** @type {Node|null} */ (e.relatedTarget);
    if (open && to && !within.contains(to)) set(false);
  });
  return {
    get open() {
      return open;
    },
    toggle: () => set(!open, true),
    close: (focus = true) => set(false, focus),
    show: () => set(true),
  };
}
