// SPDX-License-Identifier: Apache-2.0
/**
 * The canvases of a graph, a few rows each, in what scrolls: the browser moves them, and only one that
 * comes into sight is painted. There are as many as cover the view, whatever the tree's depth.
 */

/** Rows of a canvas. */
const ROWS = 14;

/** @typedef {{canvas: HTMLCanvasElement, ctx: CanvasRenderingContext2D, at: number, drawn: number, blank: boolean}} Tile  at: its number, counted from row 0; drawn: the picture it shows, 0 none; blank: nothing but the background */

/** @param {HTMLElement} host as high as all rows @param {boolean} up counted from the bottom */
export function createTiles(host, up) {
  /** @type {Tile[]} */ let all = [];
  let tall = 1,
    dpr = 1;
  return {
    /** Device pixels of one. */
    get tall() {
      return tall;
    },
    /** @param {number} width device pixels @param {number} height of the view @param {number} row @param {number} d */
    resize(width, height, row, d) {
      dpr = d;
      tall = ROWS * row;
      const n = Math.ceil(height / tall) + 1;
      all = Array.from({ length: n }, () => {
        const canvas = document.createElement('canvas');
        canvas.className = 'graph-base';
        canvas.setAttribute('aria-hidden', 'true');
        canvas.setAttribute('role', 'presentation'); // the tree beside it is what is read and walked
        canvas.width = width;
        canvas.height = tall;
        canvas.style.setProperty('width', `${width / d}px`);
        canvas.style.setProperty('height', `${tall / d}px`);
        canvas.hidden = true;
        return { canvas, ctx: /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { alpha: false })), at: -1, drawn: 0, blank: false };
      });
      host.replaceChildren(...all.map((t) => t.canvas));
    },
    /** Those that stand in [from, to) device pixels from row 0, in their place. @param {number} from @param {number} to @returns {Tile[]} */
    within(from, to) {
      const first = Math.max(0, Math.floor(from / tall)),
        last = Math.max(first, Math.floor((to - 1) / tall));
      return Array.from({ length: Math.min(all.length, last - first + 1) }, (_, k) => {
        const at = first + k,
          t = /** @type {Tile} */ (all[at % all.length]);
        if (t.at !== at) {
          t.at = at;
          t.drawn = 0;
          t.canvas.style.setProperty(up ? 'bottom' : 'top', `${(at * tall) / dpr}px`);
        }
        t.canvas.hidden = false;
        return t;
      });
    },
    /** The background is another one: what is blank is painted too. */
    repaint() {
      for (const t of all) t.blank = false;
    },
    hide() {
      for (const t of all) t.canvas.hidden = true;
    },
  };
}
