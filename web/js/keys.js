// SPDX-License-Identifier: Apache-2.0
/** Keyboard: one table, so that help and behaviour cannot differ. Letters are dead in fields. `g c`: one key after the other. */
import * as prefs from './prefs.js';

/** @typedef {{keys:string[], text:string, run:(e: KeyboardEvent) => void, where?:'graph'}} Binding */

/** @param {Binding[]} bindings */
export function listen(bindings) {
  let first = ''; // of two keys
  addEventListener('keydown', (e) => {
    const target = /** @type {Element} */ (e.target);
    const field = target.closest('input, select, textarea, dialog');
    if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || (field && (e.key !== 'Escape' || target.closest('dialog')))) return;
    if (e.key.length === 1 && !prefs.get().letters && e.key !== '?') return;
    if (e.key === 'Shift') return;
    const key = first + e.key,
      begun = first !== '';
    first = '';
    if (!begun && bindings.some((b) => b.keys.some((k) => k.startsWith(`${key} `)))) {
      first = `${key} `;
      e.preventDefault();
      return;
    }
    for (const b of bindings) {
      if (!b.keys.includes(key)) continue;
      if (b.where === 'graph' && !target.closest('#graph')) continue;
      e.preventDefault();
      b.run(e);
      return;
    }
  });
}
