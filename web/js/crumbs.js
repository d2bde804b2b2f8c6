// SPDX-License-Identifier: Apache-2.0
/** The way from the root to what is zoomed, with its value; and how much of everything filters leave. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { count, percent, total } from './fmt.js';
import { icon } from './icons.js';
import { shorten } from './paint.js';
import { show } from './safe.js';
import { hashOf, pathTo } from './tree.js';

const MOST = 5;

/**
 * @param {import('./api.js').Flame} flame @param {import('./tree.js').Tree} t @param {number} root node at row 0
 * @param {boolean} short @param {{zoom: (hash: string) => void, out: () => void}} act
 */
export function crumbs(flame, t, root, short, act) {
  const steps = [
    ...flame.view.path.slice(0, -1).map((p) => ({ name: p.name, hash: () => p.hash })),
    ...pathTo(t, root).map((n) => ({ name: t.funcs.name[t.func[n]] ?? '', hash: () => hashOf(t, n) })), // of the one that is pressed
  ];
  const shown = steps.length > MOST ? [steps[0], null, ...steps.slice(2 - MOST)] : steps;
  const text = (/** @type {string} */ name) => show(short ? shorten(name) : name);
  const { sources } = flame.quality,
    zoomed = steps.length > 1,
    filtered = flame.filters.length > 0;
  const of = zoomed || filtered ? html` · ${percent(t.total[root], flame.unfiltered)} of ${total(flame.unfiltered, flame.type)}` : nothing;
  const from = sources ? html` from ${count(sources)} ${sources === 1 ? 'source' : 'sources'}` : nothing;
  return html`<ol>
      ${shown.map((p, i) =>
        !p
          ? html`<li>…</li>`
          : i === shown.length - 1
            ? html`<li aria-current="true"><bdi class=${zoomed ? 'mono' : ''}>${text(p.name)}</bdi></li>`
            : html`<li>
                <button class="crumb" type="button" @click=${() => act.zoom(p.hash())}><bdi>${text(p.name)}</bdi></button>
              </li>`,
      )}
    </ol>
    <span class="crumb-sum"><b>${total(t.total[root], flame.type)}</b>${zoomed || filtered ? of : from}</span>${
      zoomed ? html`<button class="button small" type="button" title="Zoom out (Backspace)" @click=${act.out}>${icon('up')}Out</button>` : nothing
    }`;
}
