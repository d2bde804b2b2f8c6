// SPDX-License-Identifier: Apache-2.0
/**
 * The time of Explore: the chart, what it is asked, its window, the range that is shown and the one it
 * is compared with, the steps and events that stand on the axis.
 */
import * as api from '../api.js';
import { hourly, windowFor } from '../chartmath.js';
import { createLazyChart } from '../lazychart.js';
import { show as visible } from '../safe.js';
import * as store from '../store.js';
import { trySelector, writeSelector } from '../selector.js';
import { isRelative, moved, stepOf, toMs, toSpec } from '../time.js';

const POINTS = 600;
const MARKS = 2000;
const EVENTS = 200;
const LINES = 5; // groups of a chart, all others together beside them

const NOT_OF_EVENTS = ['thread', 'tid', 'cpu']; // events have none: what happened to the machine happened to each thread

/** ofProcess: the selection names one, so there are none of the machine. @typedef {{steps: api.Steps|null, events: api.Event[], ofProcess: boolean, trouble: string}} Marks */

/** The selector that events are asked with. @param {string} q */
function eventsOf(q) {
  const s = trySelector(q);
  if (!s) return { q, ofProcess: false };
  const matchers = s.matchers.filter((m) => !NOT_OF_EVENTS.includes(m.name));
  return { q: writeSelector({ ...s, matchers }), ofProcess: matchers.some((m) => m.name === 'pid' || m.name === 'target') };
}

/**
 * @param {object} on
 * @param {() => {from:string, to:string}|null} on.fixed  the range as the server resolved it
 * @param {(m: Marks) => void} on.marks  steps and events have come
 * @param {() => void} on.series  the chart has other data
 * @param {(name: string, number: string) => void} on.step  a step was picked on the axis
 */
export function createTime(on) {
  const slots = { series: api.slot(), marks: api.slot() };
  /** @type {api.Series|null} */ let series = null;
  /** @type {Marks} */ let marks = { steps: null, events: [], ofProcess: false, trouble: '' };
  /** the range that the chart's window came from, to go back to it */
  /** @type {{from:string, to:string}|null} */ let wide = null;

  const chart = createLazyChart({
    onRange: (a, b) => store.set({ from: toSpec(a), to: toSpec(b) }, true),
    onOther: (a, b) => store.set({ view: 'compare', a_from: toSpec(a), a_to: toSpec(b) }, true),
    onClear: () => {
      if (store.get().view === 'compare') return;
      const [a, b] = chart.window;
      const rel = wide && isRelative(wide.from) && wide.to === 'now';
      store.set({ from: rel && wide ? wide.from : toSpec(a), to: rel ? 'now' : toSpec(b) }, true);
    },
    onStep: on.step,
    onTable: () => store.set({ more: store.get().more === 'series' ? '' : 'series' }, true),
  });

  /** The URL's range in milliseconds. @returns {[number, number]} */
  function rangeMs() {
    const now = Date.now();
    return [toMs(store.get().from, now), toMs(store.get().to, now)];
  }
  /** A and B, milliseconds; without A in the URL it is as long as B and right before it. @returns {[[number, number], [number, number]]} */
  function rangesMs() {
    const s = store.get(),
      fixed = on.fixed(),
      b = fixed ? /** @type {[number, number]} */ ([toMs(fixed.from, 0), toMs(fixed.to, 0)]) : rangeMs();
    const now = Date.now();
    /* two selectors are compared in one range, unless A has one of its own */
    return [s.a_from && s.a_to ? [toMs(s.a_from, now), toMs(s.a_to, now)] : s.a_q ? b : [2 * b[0] - b[1], b[0]], b];
  }
  function setRange() {
    const s = store.get();
    if (s.view === 'compare') {
      const [a, b] = rangesMs();
      chart.setRange(...b);
      chart.setOther(a);
    } else {
      chart.setOther(null);
      if (isRelative(s.from) && s.to === 'now') chart.setRange(...chart.window);
      else chart.setRange(...rangeMs());
    }
  }
  async function load() {
    const s = store.get();
    const both = s.view === 'compare' ? rangesMs().flat() : [];
    const r = both.length ? /** @type {[number, number]} */ ([Math.min(...both), Math.max(...both)]) : rangeMs();
    const before = wide && chart.window[1] > 1 ? chart.window : null;
    const win = windowFor(r, !both.length && (isRelative(s.from) || isRelative(s.to)), before, Date.now());
    const relative = win[0] === r[0] && win[1] === r[1];
    if (relative) wide = { from: s.from, to: s.to };
    else if (!wide || before !== win) wide = { from: toSpec(win[0]), to: toSpec(win[1]) };
    const range = relative ? { from: s.from, to: s.to } : { from: toSpec(win[0]), to: toSpec(Math.min(win[1], Math.max(r[1], Date.now()))) };
    const hours = hourly(win, POINTS);
    const cut = hours ? { from: toSpec(hours.from), to: range.to, bucket: hours.bucket } : { ...range, points: POINTS };
    const asking = slots.series.run((signal) =>
      api.timeseries({ q: s.q, f: s.f, ...cut, ...(s.by && { by: s.by, groups: LINES }) }, signal),
    );
    loadMarks(range);
    try {
      series = await asking;
      chart.setData(series.n ? series : null, relative && series.n && Number.isFinite(series.to) ? [series.from, series.to] : win, 'no data');
    } catch (e) {
      if (/** @type {Error} */ (e).name === 'AbortError') return;
      series = null;
      chart.setData(null, win, `could not be read: ${visible(/** @type {Error} */ (e).message)}`);
    }
    setRange();
    on.series();
  }
  /** @param {{from:string, to:string}} range */
  async function loadMarks(range) {
    const { q } = store.get(),
      of = eventsOf(q),
      { ofProcess } = of;
    try {
      const [steps, events] = await slots.marks.run((signal) =>
        Promise.all([api.steps({ q, ...range, limit: MARKS }, signal), api.events({ ...range, q: of.q, limit: EVENTS }, signal)]),
      );
      marks = { steps, events, ofProcess, trouble: '' };
    } catch (e) {
      if (/** @type {Error} */ (e).name === 'AbortError') return;
      /* the axis stands without them; the panel of steps says why */
      marks = { steps: null, events: [], ofProcess, trouble: /** @type {Error} */ (e).message };
    }
    show();
    on.marks(marks);
  }
  /** The steps of the name and by the label that the URL says. */
  function show() {
    chart.setMarks(marks.steps, marks.events, stepOf(store.get().step), store.get().lane);
  }

  return {
    chart,
    load,
    setRange,
    rangeMs,
    rangesMs,
    show,
    get series() {
      return series;
    },
    get marks() {
      return marks;
    },
    /** Move or scale the range. @param {number} by @param {number} scale */
    shift(by, scale) {
      const [a, b] = moved(...rangeMs(), by, scale, Date.now());
      store.set({ from: toSpec(a), to: toSpec(b) }, true);
    },
  };
}
