// SPDX-License-Identifier: Apache-2.0
/**
 * What the canvas shows, for a screen reader: a flat role=tree with the focused frame, its
 * ancestors, siblings and children, at most 200 items. Keys are handled in keys.js.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { children, pathTo } from './tree.js';

const MOST = 200;
const MOST_KIDS = 80;

/** @param {string} [prefix] of ids: each tree of a page has its own */
export function createA11yTree(prefix = 'frame') {
  const el = document.createElement('div');
  el.className = 'a11y-tree';
  el.setAttribute('role', 'tree');
  el.tabIndex = 0;
  el.setAttribute('aria-label', 'Flame graph: arrow keys move, Enter zooms, Backspace zooms out');
  return {
    el,
    clear() {
      render(nothing, el);
      el.removeAttribute('aria-activedescendant');
    },
    /**
     * @param {import('./tree.js').Tree} t @param {number} root @param {number} focus
     * @param {(n: number) => string} sentence the footer's sentence for a node
     */
    update(t, root, focus, sentence) {
      const path = pathTo(t, focus).filter((n) => n >= root);
      const up = path.length > 1 ? (path[path.length - 2] ?? -1) : -1;
      const named = (/** @type {number} */ n) => t.func[n] >= 0;
      const siblings = up < 0 ? [focus] : children(t, up).filter(named);
      const kids = children(t, focus).filter(named);
      const near = siblings.indexOf(focus),
        room = Math.max(10, MOST - path.length - Math.min(kids.length, MOST_KIDS));
      const shownSiblings = siblings.slice(Math.max(0, near - (room >> 1)), near + (room >> 1) + 1);
      /** @param {number} n @param {number} pos @param {number} size */
      const item = (n, pos, size) =>
        html`<div
          role="treeitem"
          id="${prefix}-${n}"
          aria-level=${t.depth[n] - t.depth[root] + 1}
          aria-posinset=${pos}
          aria-setsize=${size}
          aria-selected=${n === focus}
          aria-expanded=${t.end[n] > n + 1 ? String(path.includes(n)) : nothing}
        >${sentence(n)}</div>`;
      render(
        [
          ...path.slice(Math.max(0, path.length - 1 - 60), -1).map((n) => item(n, 1, 1)),
          ...shownSiblings.flatMap((n) => [
            item(n, siblings.indexOf(n) + 1, siblings.length),
            ...(n === focus ? kids.slice(0, MOST_KIDS).map((k, i) => item(k, i + 1, kids.length)) : []),
          ]),
        ],
        el,
      );
      el.setAttribute('aria-activedescendant', `${prefix}-${focus}`);
    },
  };
}
