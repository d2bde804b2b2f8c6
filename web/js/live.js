// SPDX-License-Identifier: Apache-2.0
/** Live: asks again every few seconds while the page is seen; trouble slows it down and is said. */
import { announce } from './notify.js';
import { span } from './time.js';

export const EVERY_MS = 5000;
const MOST_MS = 60_000;

/**
 * @param {object} on
 * @param {() => boolean} on.can        does the range end now?
 * @param {() => boolean} on.busy       is somebody looking at this very picture?
 * @param {() => Promise<void>} on.chart  bring the chart up to date, not the picture
 * @param {() => Promise<void>} on.load
 * @param {() => void} on.draw          the state has changed
 * @param {number} [every] ms
 */
export function createLive(on, every = EVERY_MS) {
  const state = { on: false, waiting: false, trouble: '', follow: false };
  let wait = every,
    timer = 0;

  function schedule() {
    clearTimeout(timer);
    if (state.on && !document.hidden) timer = setTimeout(tick, wait);
  }
  async function tick() {
    if (!on.can()) {
      state.on = false;
      on.draw();
      return;
    }
    try {
      /* the graph stays still under the pointer; the chart may go on */
      if (on.busy() && !(state.follow && document.body.dataset['state'] !== 'loading')) {
        await on.chart();
        state.waiting = true;
      } else await on.load();
      state.trouble = '';
      wait = every;
    } catch (e) {
      wait = Math.min(MOST_MS, wait * 2);
      state.trouble = `${/** @type {Error} */ (e).message} Next try in ${span(wait)}.`;
    }
    on.draw();
    schedule();
  }
  document.addEventListener('visibilitychange', schedule);

  return {
    state,
    /** New data replace the picture even where somebody points at it. */
    follow() {
      state.follow = !state.follow;
      on.draw();
    },
    toggle() {
      state.on = !state.on && on.can();
      state.waiting = false;
      state.trouble = '';
      wait = every;
      on.draw();
      announce(state.on ? `Live: new data every ${every / 1000} seconds` : 'Live is off');
      schedule();
    },
  };
}
