// SPDX-License-Identifier: Apache-2.0
/** A panel whose module is loaded when it is first wanted; where that fails, its place says so. */

/**
 * @template T @param {HTMLElement} el where it stands @param {() => Promise<T>} load
 */
export function lazyPanel(el, load) {
  /** @type {Promise<T>|null} */ let coming = null;
  /** @type {T|null} */ let here = null;
  return {
    /** The panel, if it was ever wanted. */
    get now() {
      return here;
    },
    /** @param {(panel: T) => void} use */
    async want(use) {
      coming ??= load();
      try {
        here = await coming;
      } catch (e) {
        coming = null; // the next wish tries again
        el.textContent = `This panel could not be loaded: ${/** @type {Error} */ (e).message}`;
        return;
      }
      use(here);
    },
  };
}
