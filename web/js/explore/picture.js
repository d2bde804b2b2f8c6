// SPDX-License-Identifier: Apache-2.0
/**
 * The picture of Explore: which answer is drawn, where it is zoomed and what is selected in it. Answers
 * of one selection are kept by their root, so that Back asks nothing that is known.
 */
import * as api from '../api.js';
import { label, sentence } from '../details.js';
import { percent } from '../fmt.js';
import { announce, toast } from '../notify.js';
import * as store from '../store.js';
import { findHash, hashOf, hiddenBelow } from '../tree.js';

const SELECT_MS = 150; // holding an arrow key must not flood the history
const WORTH_ASKING = 0.01; // of a frame's value hidden below it
const ANSWERS_KEPT = 8;
const frame = () => new Promise((ok) => requestAnimationFrame(ok));

/**
 * @param {ReturnType<typeof import('../graph.js').createGraph>} graph
 * @param {ReturnType<typeof import('../a11ytree.js').createA11yTree>} a11y
 * @param {object} on
 * @param {(root: string) => api.Params} on.ask  the question about these very samples from another root
 * @param {() => Promise<void>} on.load  the same samples, the URL's root
 * @param {() => void} on.zoomed   another frame stands in row 0
 * @param {(key: string) => void} on.selected  key of the selected function
 */
export function createPicture(graph, a11y, on) {
  /** @type {api.Flame|null} */ let flame = null;
  /** @type {Map<string, api.Flame>} */ const answers = new Map();
  const slot = api.slot();
  const tree = () => flame?.tree ?? null;
  let selectLater = 0;

  /** @param {import('../tree.js').Tree} t @returns {import('../details.js').Context} */
  function context(t) {
    return {
      tree: t,
      type: flame?.type ?? { id: '', name: '', unit: 'count', kind: 'sum' },
      root: graph.root,
      everything: flame?.unfiltered ?? 0,
      parentOfRoot: parentTotal(),
      periodic: flame?.quality.periodic ?? false,
      short: store.get().names === 'short',
    };
  }
  /** Total of the caller of node 0, where another answer holds it. */
  function parentTotal() {
    const up = flame?.view.path.at(-2);
    const t = up && answers.get('')?.tree;
    if (!t) return NaN;
    const n = findHash(t, up.hash);
    return n < 0 ? NaN : t.total[n];
  }
  /** @param {number} n */
  function select(n, quiet = false) {
    const t = tree();
    if (!t || n < 0 || t.func[n] < 0) return;
    graph.select(n);
    a11y.update(t, graph.root, n, (k) => sentence(context(t), k));
    on.selected(t.funcs.key[t.func[n]] ?? '');
    clearTimeout(selectLater);
    if (!quiet)
      selectLater = setTimeout(() => {
        if (tree() === t && graph.selected === n) store.set({ sel: n === 0 && !t.rootHash ? '' : hashOf(t, n) });
      }, SELECT_MS);
  }
  /** @param {number} n */
  function zoom(n) {
    const t = tree();
    if (!t || n < 0 || t.func[n] < 0) return;
    const h = hashOf(t, n);
    clearTimeout(selectLater);
    if (h === store.get().z) select(n);
    else store.set({ z: h, sel: h }, true);
    a11y.el.focus({ preventScroll: true });
  }
  /** The caller of what is zoomed: its hash, null at the root. */
  function outer() {
    const t = tree();
    if (!t) return null;
    if (graph.root > 0) return hashOf(t, t.parent[graph.root]);
    const up = flame?.view.path.at(-2);
    return up ? up.hash : null;
  }
  /** Draw another answer, node `at` in row 0. @param {api.Flame} a @param {number} at @param {number} scroll */
  function adopt(a, at, scroll = 0) {
    flame = a;
    const t = a.tree;
    if (!t) return;
    graph.setTree(t, store.get().names === 'short', at, scroll);
    graph.counters.nodes = t.n;
    const { sel } = store.get();
    const n = sel ? findHash(t, sel) : at;
    on.zoomed();
    select(n >= at && n < t.end[at] ? n : at, true);
  }
  /** Node `n` is shown with what the answer at hand holds; where that hides too much, ask for more. @param {string} z @param {number} n */
  async function refine(z, n) {
    const t = tree();
    if (!t || n === 0 || hiddenBelow(t, n) <= WORTH_ASKING * t.total[n]) return;
    try {
      const a = await slot.run((signal) => api.flamegraph(on.ask(z), signal));
      while (graph.isMoving()) await frame();
      if (store.get().z !== z || !a.tree || !a.view.found) return;
      keep(a);
      adopt(a, 0, graph.scroller.scrollTop);
    } catch (e) {
      if (/** @type {Error} */ (e).name === 'AbortError') return;
      toast(`Details could not be loaded: ${/** @type {Error} */ (e).message}`);
    }
  }
  /** @param {api.Flame} a */
  function keep(a) {
    answers.set(a.view.root, a);
    for (const k of answers.keys()) if (answers.size > ANSWERS_KEPT && k !== '' && k !== a.view.root) answers.delete(k);
  }

  return {
    slot,
    answers,
    tree,
    context,
    select,
    zoom,
    outer,
    adopt,
    keep,
    get flame() {
      return flame;
    },
    set flame(a) {
      flame = a;
    },
    zoomOut() {
      const h = outer();
      if (h !== null) store.set({ z: h, sel: store.get().z }, true);
    },
    /** Index of a function in the tree by its key, -1 if it is not drawn. @param {string} key */
    functionOf: (key) => (key ? (tree()?.funcs.key.indexOf(key) ?? -1) : -1),
    /** Largest node of a function in the view. @param {number} f */
    largest(f) {
      const t = tree();
      if (!t || f < 0) return -1;
      let best = -1;
      for (let i = graph.root; i < t.end[graph.root]; i++) if (t.func[i] === f && (best < 0 || t.total[i] > t.total[best])) best = i;
      return best;
    },
    /** The URL says another zoom. @param {string} z */
    async show(z) {
      slot.cancel();
      const here = tree();
      if (!here) return;
      const n = findHash(here, z);
      const kept = answers.get(z);
      if (n >= 0) {
        graph.zoomTo(n);
        on.zoomed();
        const sel = store.get().sel ? findHash(here, store.get().sel) : n;
        select(sel >= n && sel < here.end[n] ? sel : n, true);
        announce(`Zoomed to ${label(context(here), n)}, ${percent(here.total[n], flame?.unfiltered ?? 0)} of total`);
      }
      if (kept && kept !== flame) {
        while (graph.isMoving()) await frame();
        if (store.get().z === z) adopt(kept, 0, n >= 0 ? graph.scroller.scrollTop : 0);
        return;
      }
      if (n < 0) {
        for (const a of answers.values()) {
          const at = a.tree ? findHash(a.tree, z) : -1;
          if (at < 0) continue;
          adopt(a, at);
          return refine(z, at);
        }
        await on.load();
        return;
      }
      await refine(z, n);
    },
  };
}
