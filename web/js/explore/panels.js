// SPDX-License-Identifier: Apache-2.0
/** The panels of Explore that are loaded when they are first wanted: sandwich, comparison, quality, steps. */
import { lazyPanel } from '../lazypanel.js';
import { announce, copy } from '../notify.js';
import * as prefs from '../prefs.js';
import * as store from '../store.js';
import { stepOf, toSpec } from '../time.js';

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
        return { a: spec(a), b: spec(b), more: s.more, norm: s.norm, order: s.order, drawn: s.a_from !== '', q: s.q, aq: s.a_q, z: s.z, steps: on.time.marks.steps?.names.map((x) => x.name) ?? [] };
      },
      set: (patch) => store.set(patch, true),
      before(seconds) {
        const [from, to] = on.time.rangeMs();
        store.set(seconds ? { a_from: toSpec(from - seconds * 1000), a_to: toSpec(to - seconds * 1000) } : { a_from: '', a_to: '' }, true);
      },
      halves,
      swap,
      short,
      utc: () => prefs.get().utc,
      copy: copyName,
      announce,
    }),
  );
  /** Where A has no data: what B has of them, cut in two. False: there are too few to cut. */
  function halves() {
    const s = on.time.series,
      [, b] = on.time.rangesMs();
    const seen = s ? s.value.flatMap((v, i) => (v !== null && s.from + i * s.bucket < b[1] && s.from + (i + 1) * s.bucket > b[0] ? [s.from + i * s.bucket] : [])) : [];
    const from = Math.max(b[0], seen[0] ?? NaN),
      to = Math.min(b[1], (seen.at(-1) ?? NaN) + (s?.bucket ?? 0));
    if (!s || !(to - from >= 2000)) return false;
    const mid = Math.round((from + to) / 2000) * 1000;
    store.set({ a_from: toSpec(from), a_to: toSpec(mid), from: toSpec(mid), to: toSpec(to) }, true);
    return true;
  }
  function swap() {
    if (store.get().view !== 'compare') return;
    const [a, b] = on.time.rangesMs(),
      { q, a_q } = store.get();
    store.set({ from: toSpec(a[0]), to: toSpec(a[1]), a_from: toSpec(b[0]), a_to: toSpec(b[1]), ...(a_q && { q: a_q, a_q: q }) }, true);
    announce('A and B are swapped');
  }

  const close = () => store.set({ more: '' }, true);
  const utc = () => prefs.get().utc;
  const set = (/** @type {Partial<import('../url.js').State>} */ patch) => void store.set(patch, true);
  /* what stands between chart and picture: one place, each loaded when it is first opened */
  const behind = {
    quality: lazyPanel($('more'), async () => (await import('../later/coverage.js')).createCoverage($('more'), { question: on.selection, flame: on.flame, utc, close })),
    steps: lazyPanel($('more'), async () => (await import('../later/steps.js')).createSteps($('more'), { marks: () => on.time.marks, utc, step: () => store.get().step, lane: () => store.get().lane, set, close })),
    series: lazyPanel($('more'), async () => (await import('../later/seriestable.js')).createSeriesTable($('more'), { series: () => on.time.series, utc, close })),
    steptime: lazyPanel($('more'), async () =>
      (await import('../later/steptime.js')).createStepTime($('more'), {
        view() {
          const s = store.get(),
            [a, b] = on.time.rangesMs();
          return { q: s.q, aq: s.a_q, a, b, name: stepOf(s.step).name, skip: Number(s.skip), rank: s.rank, label: s.lane };
        },
        utc,
        set,
        announce,
        close,
      }),
    ),
  };

  return {
    sandwich,
    compare,
    swap,
    /** What stands between chart and picture, or nothing. */
    showMore() {
      const { more: which } = store.get();
      $('more').hidden = which === '';
      const panel = behind[/** @type {keyof typeof behind} */ (which)];
      panel?.want((p) => {
        if (store.get().more === which) p.show();
      });
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
    /** @param {boolean} [again] false: what is compared is what it was, only what stands around it may change */
    showCompare(again = true) {
      const s = store.get().view === 'compare';
      on.time.setRange();
      if (s) compare.want((p) => (again ? p.show() : p.redraw()));
    },
    zoomCompare() {
      compare.want((p) => void p.zoom());
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
