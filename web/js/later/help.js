// SPDX-License-Identifier: Apache-2.0
/** The list of keys, from the table that makes them work. */
import { html, render } from '../../vendor/lit-html/lit-html.js';
import * as prefs from '../prefs.js';

const NAMES = /** @type {Record<string, string>} */ ({
  ArrowUp: '↑',
  ArrowDown: '↓',
  ArrowLeft: '←',
  ArrowRight: '→',
  Escape: 'Esc',
  ContextMenu: 'Menu',
});

/** @param {import('../keys.js').Binding[]} bindings */
export function helpDialog(bindings) {
  const dialog = document.createElement('dialog');
  dialog.className = 'help';
  dialog.setAttribute('aria-labelledby', 'help-title');
  document.body.append(dialog);
  const row = (/** @type {import('../keys.js').Binding} */ b) =>
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
