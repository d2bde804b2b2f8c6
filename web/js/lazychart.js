// SPDX-License-Identifier: Apache-2.0
/**
 * The time chart before its module is here: uPlot is most of the page's weight, and the picture below
 * does not wait for it. The place is kept, what was said meanwhile is said again to the chart.
 */

/** @typedef {ReturnType<typeof import('./later/chart.js').createChart>} Chart */

/** @param {Parameters<typeof import('./later/chart.js').createChart>[0]} on */
export function createLazyChart(on) {
  const el = document.createElement('div');
  const place = document.createElement('div');
  place.className = 'chart chart-place';
  el.append(place);
  /** @type {Chart|null} */ let chart = null;
  /** @type {Map<string, (c: Chart) => void>} */ const said = new Map(); // the last of each kind
  /** @param {string} kind @param {(c: Chart) => void} fn */
  function say(kind, fn) {
    if (chart) fn(chart);
    else {
      said.delete(kind);
      said.set(kind, fn);
    }
  }
  /** @type {[number, number]} */ let window = [0, 1];
  import('./later/chart.js').then(
    (m) => {
      const c = (chart = m.createChart(on));
      place.replaceWith(c.el);
      for (const fn of said.values()) fn(c);
      said.clear();
    },
    () => {
      place.textContent = 'The time chart could not be loaded.';
    },
  );
  return {
    el,
    /** @type {Chart['setData']} */
    setData(d, w, why) {
      window = w;
      say('data', (c) => c.setData(d, w, why));
    },
    /** @type {Chart['setMarks']} */
    setMarks: (s, e, p, l) => say('marks', (c) => c.setMarks(s, e, p, l)),
    /** @type {Chart['setColours']} */
    setColours: (x) => say('colours', (c) => c.setColours(x)),
    /** @type {Chart['setUtc']} */
    setUtc: (x) => say('utc', (c) => c.setUtc(x)),
    /** @type {Chart['setRange']} */
    setRange: (a, b) => say('range', (c) => c.setRange(a, b)),
    /** @type {Chart['setOther']} */
    setOther: (r) => say('other', (c) => c.setOther(r)),
    /** Milliseconds: what the chart shows. @returns {[number, number]} */
    get window() {
      return chart ? chart.window : window;
    },
    get dragging() {
      return chart?.dragging ?? false;
    },
  };
}
