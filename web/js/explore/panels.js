// SPDX-License-Identifier: Apache-2.0
/** The panels of Explore that are loaded when they are first wanted: sandwich, comparison, quality, steps. */
import { lazyPanel } from '../lazypanel.js';
import { announce, copy } from '../notify.js';
import * as prefs from '../prefs.js';
import * as store from '../store.js';
import { toSpec } from '../time.js';

/** @param {string} id @returns {HTMLElement} */
const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/**
 * @param {object} on
 * @param {() => import('../api.js').Params} on.question  with the filters, about the range as it was resolved
 * @param {() => import('../api.js').Params} on.selection  without filters
 * @param {() => number} on.width
 * @param {() => import('../api.js').Flame|null} on.flame
 * @param {ReturnType<typeof import('./time.js').createTime>} on.time
 * @param {ReturnType<typeof import('./picture.js').createPicture>} on.picture
 * @param {ReturnType<typeof import('../graph.js').createGraph>} on.graph
 * @param {(c: import('../details.js').Context, n: number) => void} on.inspect
 * @param {() => import('../api.js').Type[]} on.types
 */
export function createPanels(on) {
  const short = () => store.get().names === 'short';
  const copyName = (/** @type {string} */ name) => copy(name, 'Name copied');

  const sandwich = lazyPanel($('sandwich'), async () => {
    const m = await import('../later/sandwich.js');
    const panel = m.createSandwich($('sandwich'), {
      question: () => ({ ...on.question(), width: on.width() }),
      short,
      colour: () => store.get().color,
      pick: (fn) => store.set({ fn: fn.name, in: fn.scope }, true),
      inspect: on.inspect,
      copy: copyName,
      announce,
    });
    return { ...panel, fnOf: m.fnOf };
  });

  const compare = lazyPanel($('compare'), async () =>
    (await import('../later/compare.js')).createCompare($('compare'), {
      question() {
        const s = store.get(),
          name = s.step.replace(/:\d+(-\d+)?$/, '');
        const step = name || (s.norm === 'step' ? (on.time.marks.steps?.names[0]?.name ?? '') : '');
        /* B may be some steps of the name; A is measured by all of its own */
        return { a_q: s.a_q || s.q, ...(s.a_q && { b_q: s.q }), f: s.f, ...(step && { a_step: step, b_step: s.step || step }) };
      },
      view() {
        const s = store.get(),
          [a, b] = on.time.rangesMs();
        const spec = (/** @type {[number, number]} */ r) => /** @type {[string, string]} */ (r.map(toSpec));
        return { a: spec(a), b: spec(b), norm: s.norm, order: s.order, drawn: s.a_from !== '', q: s.q, aq: s.a_q, steps: on.time.marks.steps?.names.map((x) => x.name) ?? [] };
      },
      set: (patch) => store.set(patch, true),
      before(seconds) {
        const [from, to] = on.time.rangeMs();
        store.set(seconds ? { a_from: toSpec(from - seconds * 1000), a_to: toSpec(to - seconds * 1000) } : { a_from: '', a_to: '' }, true);
      },
      swap,
      short,
      utc: () => prefs.get().utc,
      copy: copyName,
      announce,
    }),
  );
  function swap() {
    if (store.get().view !== 'compare') return;
    const [a, b] = on.time.rangesMs(),
      { q, a_q } = store.get();
    store.set({ from: toSpec(a[0]), to: toSpec(a[1]), a_from: toSpec(b[0]), a_to: toSpec(b[1]), ...(a_q && { q: a_q, a_q: q }) }, true);
    announce('A and B are swapped');
  }

  const more = lazyPanel($('more'), async () => {
    const [q, s, t] = await Promise.all([import('../later/coverage.js'), import('../later/steps.js'), import('../later/seriestable.js')]);
    const close = () => store.set({ more: '' }, true);
    return {
      series: t.createSeriesTable($('more'), { series: () => on.time.series, utc: () => prefs.get().utc, close }),
      quality: q.createCoverage($('more'), { question: on.selection, flame: on.flame, utc: () => prefs.get().utc, close }),
      steps: s.createSteps($('more'), {
        marks: () => on.time.marks,
        utc: () => prefs.get().utc,
        step: () => store.get().step,
        lane: () => store.get().lane,
        set: (patch) => store.set(patch, true),
        close,
      }),
    };
  });

  return {
    sandwich,
    compare,
    swap,
    /** What stands between chart and picture: quality, steps or nothing. */
    showMore() {
      const { more: which } = store.get();
      $('more').hidden = which === '';
      if (which === 'quality') more.want((p) => p.quality.show());
      else if (which) more.want((p) => p[which === 'steps' ? 'steps' : 'series'].show());
    },
    showSandwich() {
      const s = store.get();
      if (s.view === 'sandwich') sandwich.want((p) => p.show({ name: s.fn, scope: s.in }));
    },
    /** The selected frame's function in the middle. */
    sandwichSelected() {
      const t = on.picture.tree(),
        f = t ? t.func[on.graph.selected] : 0;
      if (!t || f <= 0) return void store.set({ view: 'sandwich' }, true);
      return sandwich.want((p) => {
        const { name, scope } = p.fnOf(t.funcs, f);
        store.set({ view: 'sandwich', fn: name, in: scope }, true);
        p.focus();
      });
    },
    showCompare() {
      const s = store.get().view === 'compare';
      on.time.setRange();
      if (s) compare.want((p) => p.show());
    },
    redraw() {
      sandwich.now?.redraw();
      compare.now?.redraw();
    },
    theme() {
      sandwich.now?.theme();
      compare.now?.theme();
    },
  };
}
