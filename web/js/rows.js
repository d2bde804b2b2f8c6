// SPDX-License-Identifier: Apache-2.0
/** The rows of /top: asked page by page, remembered by function, shown in the table. */
import * as api from './api.js';

const ROWS = 200;
const MATCH_ROWS = 2000;

/**
 * @param {object} on
 * @param {() => api.Params} on.question
 * @param {() => string} on.match        search, '' none
 * @param {() => import('./url.js').State} on.state
 * @param {(trouble: string, longer: boolean) => void} on.show  rows have changed
 * @param {(pattern: string, a: api.Top) => void} on.matched
 * @param {(pattern: string, message: string) => void} on.refused  the search was refused
 */
export function createRows(on) {
  const slots = { first: api.slot(), more: api.slot() };
  /** @type {api.Top|null} */ let top = null;
  /** @type {Map<string, api.TopRow>} */ const everywhere = new Map(); // by function key
  let busy = false;
  /** @param {api.Top} a */
  const remember = (a) => a.rows.forEach((r) => everywhere.set(r.key, r));

  return {
    get top() {
      return top;
    },
    everywhere,
    /** Nothing to show. */
    clear() {
      top = null;
      on.show('', false);
    },
    /** Rows of the table, and with a search the exact matched sum. */
    async load() {
      const { s, sort } = on.state();
      const match = on.match();
      try {
        const a = await slots.first.run((signal) =>
          api.top({ ...on.question(), sort, limit: match ? MATCH_ROWS : ROWS, match: match || undefined }, signal),
        );
        top = a;
        remember(a);
        if (match) on.matched(s, a);
        on.show('', false);
      } catch (e) {
        if (/** @type {Error} */ (e).name === 'AbortError') return;
        top = null;
        if (match && e instanceof api.ApiError && e.status < 500 && e.status) on.refused(s, e.message);
        on.show(`The table could not be loaded: ${/** @type {Error} */ (e).message}`, false);
      }
    },
    async more() {
      const had = top;
      if (!had?.next || busy) return;
      busy = true;
      try {
        const a = await slots.more.run((signal) =>
          api.top({ ...on.question(), sort: on.state().sort, limit: ROWS, match: on.match() || undefined, after: had.next }, signal),
        );
        if (top !== had) return;
        top = { ...had, rows: [...had.rows, ...a.rows], next: a.next };
        remember(a);
        on.show('', true);
      } catch (e) {
        if (top === had && /** @type {Error} */ (e).name !== 'AbortError') {
          top = { ...had, next: '' };
          on.show(`More rows could not be loaded: ${/** @type {Error} */ (e).message}`, true);
        }
      } finally {
        busy = false;
      }
    },
  };
}
