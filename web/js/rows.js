// SPDX-License-Identifier: Apache-2.0
/** The rows of /top: asked page by page, remembered by function, shown in the table. */
import * as api from './api.js';

const ROWS = 200;
const MATCH_ROWS = 2000;
const MOST_ROWS = 100_000; // of an export

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
  const remember = (a) => {
    if (on.state().key === 'fn') a.rows.forEach((r) => everywhere.set(r.key, r));
  };
  const asks = () => ({ ...on.question(), key: on.state().key, sort: on.state().sort, match: on.match() || undefined });
  /** Two pages one behind the other. @param {api.Top} a @param {api.Top} b @returns {api.Top} */
  const joined = (a, b) => ({
    ...a,
    rows: [...a.rows, ...b.rows],
    groups: a.groups.map((g) => {
      const more = b.groups.find((x) => x.name === g.name);
      return more ? { ...g, self: [...g.self, ...more.self], all: [...g.all, ...more.all] } : g;
    }),
    next: b.next,
  });

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
      const { s, any } = on.state();
      const match = on.match();
      try {
        const a = await slots.first.run((signal) =>
          api.top({ ...asks(), any, limit: match ? MATCH_ROWS : ROWS }, signal),
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
    /** Every row, for an export: the pages one after the other. */
    async complete() {
      const { signal } = new AbortController();
      let a = await api.top({ ...asks(), limit: MATCH_ROWS }, signal);
      while (a.next && a.rows.length < MOST_ROWS) a = joined(a, await api.top({ ...asks(), limit: MATCH_ROWS, after: a.next }, signal));
      return a;
    },
    async more() {
      const had = top;
      if (!had?.next || busy) return;
      busy = true;
      try {
        const a = await slots.more.run((signal) =>
          api.top({ ...asks(), limit: ROWS, after: had.next }, signal),
        );
        if (top !== had) return;
        top = joined(had, a);
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
