// SPDX-License-Identifier: Apache-2.0
/**
 * The picture's question, asked before the rest of the page is here: the server has its work while the
 * browser loads and starts what draws the answer. The page's script of its own, loaded before all others.
 */
import * as api from './api.js';
import * as store from './store.js';

const MAX_NODES = 20_000;
const MAX_WIDTH = 7680;

/** Device pixels of the window: what is narrower than one of them is not sent. It is known before there is a layout. */
export const width = () => Math.min(MAX_WIDTH, Math.max(320, Math.round(innerWidth * devicePixelRatio)));
/** What a selection of weights is asked with beside it. */
export function limited() {
  const s = store.get();
  return { step: s.step || undefined, agg: s.at ? undefined : s.agg || undefined, at: s.at || undefined };
}
/** How the tree is put together. */
export const shaped = () => ({ by: store.get().by || undefined, invert: store.get().invert || undefined });

/** @param {string} root @param {{from:string, to:string}|null} [range] instead of the URL's */
export function flameParams(root, range) {
  const s = store.get();
  return { q: s.q, from: s.from, to: s.to, ...limited(), f: s.f, ...range, ...shaped(), width: width(), max_nodes: MAX_NODES, root: root || undefined };
}

const ended = new AbortController();
/** @type {{url: string, answer: Promise<api.Flame>}|null} */ let first = null;
if (!/\/quality$/.test(location.pathname)) {
  const params = flameParams(store.get().z);
  first = { url: api.address('/flamegraph', params), answer: api.flamegraph(params, ended.signal) };
  first.answer.catch(() => {}); // whoever takes it is told
}

/** GET /flamegraph, once with the answer that is on its way. @param {api.Params} params @param {AbortSignal} signal @returns {Promise<api.Flame>} */
export function flamegraph(params, signal) {
  const early = first;
  first = null;
  if (early?.url === api.address('/flamegraph', params)) {
    signal.addEventListener('abort', () => ended.abort(signal.reason));
    return early.answer;
  }
  ended.abort();
  return api.flamegraph(params, signal);
}
