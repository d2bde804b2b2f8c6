// SPDX-License-Identifier: Apache-2.0
/** Keyboard: one table, so that help and behaviour cannot differ. Letters are dead in fields. */
import { html, render } from '../vendor/lit-html/lit-html.js';
import * as prefs from './prefs.js';

/** @typedef {{keys:string[], text:string, run:(e: KeyboardEvent) => void, where?:'graph'}} Binding */

/** @param {Binding[]} bindings */
export function listen(bindings) {
  addEventListener('keydown', (e) => {
    const target = /** @type {Element} */ (e.target);
    const field = target.closest('input, select, textarea, dialog');
    if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || (field && (e.key !== 'Escape' || target.closest('dialog')))) return;
    if (e.key.length === 1 && !prefs.get().letters && e.key !== '?') return;
    for (const b of bindings) {
      if (!b.keys.includes(e.key)) continue;
      if (b.where === 'graph' && !target.closest('#graph')) continue;
      e.preventDefault();
      b.run(e);
      return;
    }
  });
}

const NAMES = /** @type {Record<string, string>} */ ({
  ArrowUp: '↑',
  ArrowDown: '↓',
  ArrowLeft: '←',
  ArrowRight: '→',
  Escape: 'Esc',
  ContextMenu: 'Menu',
});

/** @param {Binding[]} bindings */
export function helpDialog(bindings) {
  const dialog = document.createElement('dialog');
  dialog.className = 'help';
  dialog.setAttribute('aria-labelledby', 'help-title');
  document.body.append(dialog);
  const row = (/** @type {Binding} */ b) =>
    html`<div class="help-row"><dt>${b.keys.map((k) => html`<kbd>${NAMES[k] ?? k}</kbd>`)}</dt><dd>${b.text}</dd></div>`;
  function draw() {
    render(
      html`<h2 id="help-title">Keyboard</h2>
        <div class="help-columns">
          <section><h3>In the graph</h3><dl>${bindings.filter((b) => b.where === 'graph').map(row)}</dl></section>
          <section><h3>Everywhere</h3><dl>${bindings.filter((b) => b.where !== 'graph').map(row)}</dl></section>
        </div>
        <p class="hint">Ctrl + wheel magnifies the graph, dragging moves it. Shift freezes the tooltip.</p>
        <form method="dialog">
          <label class="check"
            ><input
              type="checkbox"
              .checked=${prefs.get().letters}
              @change=${(/** @type {Event} */ e) => prefs.set({ letters: /** @type {HTMLInputElement} */ (e.target).checked })}
            />
            keys of one letter are on</label
          >
          <button class="button primary" type="button" @click=${() => dialog.close()}>Close</button>
        </form>`,
      dialog,
    );
  }
  return {
    show() {
      draw();
      dialog.showModal();
    },
  };
}
