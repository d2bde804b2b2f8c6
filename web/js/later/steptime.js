// SPDX-License-Identifier: Apache-2.0
/** Step time of A and B: medians with their interval, where the mean went, which rank it is. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import * as api from '../api.js';
import { count, percent, sig3 } from '../fmt.js';
import { icon } from '../icons.js';
import { show } from '../safe.js';
import { trySelector, writeSelector } from '../selector.js';
import { dateTime } from '../time.js';
import { labelsOf, nameOf, quantile } from './marks.js';
import { accounting, bootstrap, histogram, matched, only, ranks, sideOf, summary } from './stepdiff.js';
import { askThreads, threadTable } from './stepthreads.js';

const LIMIT = 10_000; // steps of a side
const SLICE_MS = 8;
const BINS = 32;
const RANKS = 16;
const SLOW = 5;
const FEW = 30; // steps of a side: under it the interval says little

const LEAST_MS = 1e-6; // a nanosecond: what is under it is rounding
const time = (/** @type {number|null} */ ms) => (ms === null || !Number.isFinite(ms) ? 'no data' : Math.abs(ms) < LEAST_MS ? '0\u202fms' : Math.abs(ms) >= 1000 ? `${sig3(ms / 1000)}\u202fs` : `${sig3(ms)}\u202fms`);
const signed = (/** @type {number|null} */ ms) => (ms !== null && ms >= LEAST_MS ? `+${time(ms)}` : time(ms));

/**
 * @typedef {{q: string, aq: string, a: [number, number], b: [number, number], name: string, skip: number, rank: string, label: string}} View
 *   a, b: ranges, ms; aq: A's selector; rank: '' the largest change, '*' all steps, else a value of the label
 */

/**
 * @param {HTMLElement} el
 * @param {object} on
 * @param {() => View} on.view
 * @param {() => boolean} on.utc
 * @param {(patch: Partial<import('../url.js').State>) => void} on.set
 * @param {(text: string) => void} on.announce
 * @param {() => void} on.close
 */
export function createStepTime(el, on) {
  const slots = { a: api.slot(), b: api.slot(), threads: api.slot() };
  /** @type {{a: api.Steps, b: api.Steps}|null} */ let steps = null;
  /** @type {[number, number]|null} */ let interval = null;
  /** @type {Awaited<ReturnType<typeof askThreads>>|null} */ let threads = null;
  let trouble = '',
    threadsTrouble = '',
    threadsAsked = '',
    asked = '',
    working = 0; // the run of the bootstrap that counts

  /** What is compared, of the steps at hand. */
  function sides() {
    const v = on.view();
    if (!steps) return null;
    const name = nameOf(steps.b.n ? steps.b : steps.a, v.name);
    const a = sideOf(steps.a, name, v.a, v.skip),
      b = sideOf(steps.b, name, v.b, v.skip);
    const known = [...new Set([steps.a, steps.b].flatMap((s) => labelsOf(s).map((l) => l.name)))],
      label = known.includes(v.label) ? v.label : known.includes('rank') ? 'rank' : '';
    const list = label ? ranks(a, b, label) : [];
    const value = v.rank === '*' || !list.length ? '' : list.some((r) => r.value === v.rank) ? v.rank : (list.find((r) => r.delta !== null)?.value ?? '');
    const one = (/** @type {typeof a} */ s) => (value ? only(s, label, value) : s);
    return { v, name, known, label, list, value, all: { a, b }, a: one(a), b: one(b) };
  }

  async function show_() {
    const v = on.view(),
      ask = { a: { q: v.aq || v.q, from: `${Math.round(v.a[0])}ms`, to: `${Math.round(v.a[1])}ms` }, b: { q: v.q, from: `${Math.round(v.b[0])}ms`, to: `${Math.round(v.b[1])}ms` } };
    const key = JSON.stringify([ask, v.name]);
    if (key !== asked) {
      asked = key;
      steps = null;
      interval = null;
      draw();
      try {
        const of = (/** @type {'a'|'b'} */ s) => slots[s].run((signal) => api.steps({ ...ask[s], name: v.name || undefined, limit: LIMIT }, signal));
        const [a, b] = await Promise.all([of('a'), of('b')]);
        [steps, trouble] = [{ a, b }, ''];
      } catch (e) {
        if (/** @type {Error} */ (e).name === 'AbortError') return;
        [trouble, asked] = [/** @type {Error} */ (e).message, ''];
      }
    }
    await Promise.all([judge(), together()]);
  }
  /** Steps without parts: what the threads did in those that are compared. */
  async function together() {
    const s = sides();
    if (!s || accounting(s.a, s.b)) return;
    const side = (/** @type {typeof s.a} */ x, /** @type {string} */ q, /** @type {[number, number]} */ range) => ({ q, range, n: x.steps.length, step: `${s.name}:${x.steps[0]?.number}-${x.steps.at(-1)?.number}` });
    const ask = { a: side(s.all.a, s.v.aq || s.v.q, s.v.a), b: side(s.all.b, s.v.q, s.v.b) };
    const key = JSON.stringify(ask);
    if (key === threadsAsked) return;
    threadsAsked = key;
    threads = null;
    try {
      threads = await slots.threads.run((signal) => askThreads(ask.a, ask.b, signal));
      threadsTrouble = '';
    } catch (e) {
      if (/** @type {Error} */ (e).name === 'AbortError') return;
      [threadsTrouble, threadsAsked] = [/** @type {Error} */ (e).message, ''];
    }
    draw();
  }
  /** The interval, in slices that leave the page its frames. */
  async function judge() {
    const mine = ++working,
      s = sides();
    interval = null;
    draw();
    if (!s) return;
    const work = bootstrap(s.a.steps.map((x) => x.dur), s.b.steps.map((x) => x.dur));
    for (;;) {
      const until = performance.now() + SLICE_MS;
      let r = work.next();
      while (!r.done && performance.now() < until) r = work.next();
      if (mine !== working) return;
      if (r.done) {
        interval = r.value;
        break;
      }
      await new Promise((ok) => setTimeout(ok));
    }
    draw();
    if (interval) on.announce(`Step time changed by ${signed(summary(s.a, s.b).median)}, between ${signed(interval[0])} and ${signed(interval[1])}`);
  }

  /** @param {NonNullable<ReturnType<typeof sides>>} s */
  function head(s) {
    const x = summary(s.a, s.b),
      h = histogram(s.a, s.b, BINS);
    const most = h ? Math.max(1, ...h.a, ...h.b) : 1;
    const bars = (/** @type {'a'|'b'} */ k) =>
      html`<span class="bins bins-${k}" role="img" aria-label="Distribution of ${k.toUpperCase()}: ${h ? `${time(h.lo)} to ${time(h.hi)} and more` : 'no steps'}">${(h?.[k] ?? []).map((n) => html`<i .style=${`height:${n ? Math.max(8, (n / most) * 100) : 0}%`}></i>`)}</span>`;
    const line = (/** @type {'a'|'b'} */ k) =>
      html`<tr><th scope="row"><span class="band band-${k}">${k.toUpperCase()}</span></th><td>${bars(k)}</td><td class="num"><b>${time(x[k].p50)}</b></td><td class="num">${time(x[k].mean)}</td><td class="num">${count(x[k].n)}</td></tr>`;
    const sure = interval && interval[0] * interval[1] > 0;
    return html`<table class="facts step-sides" aria-label="Step time before and after">
        <thead><tr><th scope="col"><span class="sr">side</span></th><th scope="col">${h ? `${time(h.lo)} … ${time(h.hi)}` : ''}</th><th scope="col" class="num">median</th><th scope="col" class="num">mean</th><th scope="col" class="num">steps</th></tr></thead>
        <tbody>${line('a')}${line('b')}</tbody>
      </table>
      <p class="step-delta"><b>Δ median ${signed(x.median)}</b> ${
        x.median === null ? '' : interval ? html`<span title="400 resamples of each side">95 % between ${signed(interval[0])} and ${signed(interval[1])}${sure ? '' : ', so it may be chance'}</span>` : html`<span>interval: counting…</span>`
      }</p>
      <p class="hint">Δ mean ${signed(x.mean)}${Number.isFinite(x.margin) ? ` ±${time(x.margin)}` : ''}${x.few ? html` · <b>few slow steps dominate the mean</b>` : nothing}${Math.min(x.a.n, x.b.n) < FEW ? ` · under ${FEW} steps on a side: the interval says little` : ''}</p>
      ${x.slow.length
        ? html`<details class="slow"><summary>${count(x.slow.length)} ${x.slow.length === 1 ? 'step' : 'steps'} over ${SLOW} × the median in B</summary><ul class="events">${x.slow.slice(0, 10).map((t) => html`<li><button class="button small" type="button" @click=${() => on.set({ step: `${s.name}:${t.number}-${t.number}`, view: 'flame', more: '', z: '', sel: '' })}>${t.number}</button> ${dateTime(t.from, on.utc())} <b>${time(t.dur)}</b></li>`)}</ul></details>`
        : nothing}`;
  }
  /** @param {NonNullable<ReturnType<typeof sides>>} s */
  function parts(s) {
    const r = accounting(s.a, s.b);
    if (!r)
      return html`<p class="hint">These steps do not say what they consist of, on both sides. A sender gives parts with its steps.${s.value ? ' Below: all ranks.' : ''}</p>
        ${threadsTrouble ? html`<p class="field-error" role="alert">${icon('warn')}<bdi>${show(threadsTrouble)}</bdi></p>` : threads ? threadTable(threads) : html`<p class="hint">reading…</p>`}`;
    const widest = Math.max(...r.rows.map((x) => Math.abs(x.delta)), Math.abs(r.residual.delta), 1e-9);
    const ns = (/** @type {{delta: number, margin: number}} */ x) => Number.isFinite(x.margin) && Math.abs(x.delta) < x.margin;
    const row = (/** @type {unknown} */ name, /** @type {{a: number, b: number, delta: number}} */ x, /** @type {unknown} */ note, /** @type {number} */ of) =>
      html`<tr><th scope="row">${name}</th><td class="num">${time(x.a)}</td><td class="num">${time(x.b)}</td><td class="num">${percent(x.b, of)}</td><td class="num"><b>${signed(x.delta)}</b></td><td class="num">${note}</td><td class="meter-cell"><i class="meter ${x.delta < 0 ? 'less' : 'more'}"><i .style=${`width:${(Math.abs(x.delta) / widest) * 100}%`}></i></i></td></tr>`;
    return html`<table class="facts" aria-label="Where the mean went">
        <thead><tr><th scope="col">part of a step, mean</th><th scope="col" class="num">A</th><th scope="col" class="num">B</th><th scope="col" class="num">of B</th><th scope="col" class="num">Δ</th><th scope="col" class="num">±</th><th scope="col"><span class="sr">size</span></th></tr></thead>
        <tbody>${[...r.rows].sort((x, y) => Math.abs(y.delta) - Math.abs(x.delta)).map((x) => row(html`<bdi>${show(x.name.replaceAll('_', ' '))}</bdi>`, x, ns(x) ? 'n.s.' : Number.isFinite(x.margin) ? time(x.margin) : 'unknown', r.total.b))}
          ${row('residual: in no part', r.residual, '', r.total.b)}
          ${row(html`<b>step</b>`, r.total, Number.isFinite(r.total.margin) ? time(r.total.margin) : 'unknown', r.total.b)}</tbody>
      </table>
      <p class="hint">Means, for medians do not add: the parts and the residual make up the difference.${r.without[0] || r.without[1] ? ` Left out, for a part of theirs is unknown: ${count(r.without[0] ?? 0)} steps of A, ${count(r.without[1] ?? 0)} of B.` : ''}</p>`;
  }
  /** @param {NonNullable<ReturnType<typeof sides>>} s */
  function byRank(s) {
    if (!s.list.length) return html`<p class="hint">These steps carry no label by which they differ.</p>`;
    const sel = trySelector(s.v.q);
    const against = (/** @type {string} */ value) => {
      if (!sel) return;
      const rest = sel.matchers.filter((m) => m.name !== s.label);
      const of = (/** @type {string} */ op) => writeSelector({ ...sel, matchers: [...rest, { name: s.label, op: /** @type {any} */ (op), value }] });
      on.set({ q: of('='), a_q: of('!='), a_from: '', a_to: '', norm: 'step', rank: '', z: '', sel: '' });
    };
    return html`<table class="facts" aria-label="Step time by ${show(s.label)}">
        <thead><tr><th scope="col"><bdi>${show(s.label)}</bdi></th><th scope="col" class="num">median A</th><th scope="col" class="num">B</th><th scope="col" class="num">Δ</th><th scope="col" class="num">steps</th><th scope="col"><span class="sr">acts</span></th></tr></thead>
        <tbody>${s.list.slice(0, RANKS).map(
          (r) => html`<tr class=${r.value === s.value ? 'selected' : nothing}><th scope="row"><bdi class="mono">${show(r.value)}</bdi></th><td class="num">${time(r.a)}</td><td class="num">${time(r.b)}</td><td class="num"><b>${signed(r.delta)}</b></td><td class="num">${count(r.n[0] ?? 0)} → ${count(r.n[1] ?? 0)}</td>
            <td class="num"><button class="button small" type="button" aria-pressed=${r.value === s.value} aria-label="Show ${show(s.label)} ${show(r.value)}" @click=${() => on.set({ rank: r.value === s.value && s.v.rank !== '*' ? '*' : r.value })}>Show</button> <button class="button small" type="button" aria-label="Against the others: ${show(s.label)} ${show(r.value)}" title="B: this one, A: all the others, in the range of B" @click=${() => against(r.value)}>⇄ others</button></td></tr>`,
        )}</tbody>
      </table>${s.list.length > RANKS ? html`<p class="hint">${count(s.list.length - RANKS)} more, that changed less</p>` : nothing}`;
  }
  /** One against the others in one range: steps of one number belong together. @param {NonNullable<ReturnType<typeof sides>>} s */
  function pairs(s) {
    if (!s.v.aq || s.v.a[0] !== s.v.b[0] || s.v.a[1] !== s.v.b[1]) return nothing;
    const d = matched(s.all.a, s.all.b);
    return html`<p class="hint">${d.length ? `Step by step, B less the median of A: half of ${count(d.length)} steps over ${signed(quantile(d, 0.5))}, one in ten under ${signed(quantile(d, 0.1))}, one in ten over ${signed(quantile(d, 0.9))}; slower in ${percent(d.filter((x) => x > 0).length, d.length)}.` : 'No step has the same number on both sides.'}</p>`;
  }
  function draw() {
    const s = sides(),
      v = on.view();
    render(
      html`<div class="behind-head"><h2>Step time, A and B${s ? html` · <bdi>${show(s.name)}</bdi>` : nothing}</h2>
          <label class="option">skip first<input class="field small" type="number" min="0" max="100000" aria-label="Steps left out at the begin of each side" .value=${String(v.skip)} @change=${(/** @type {Event} */ e) => on.set({ skip: String(Math.max(0, Math.round(Number(/** @type {HTMLInputElement} */ (e.target).value) || 0))) })} /></label>
          ${s && s.known.length ? html`<label class="option">by<select class="select" aria-label="Step time by label" @change=${(/** @type {Event} */ e) => on.set({ lane: /** @type {HTMLSelectElement} */ (e.target).value, rank: '' })}>${s.known.map((l) => html`<option value=${l} .selected=${l === s.label}>${show(l)}</option>`)}</select></label>
            <label class="option">steps of<select class="select" aria-label="Which steps" @change=${(/** @type {Event} */ e) => on.set({ rank: /** @type {HTMLSelectElement} */ (e.target).value })}><option value="" .selected=${v.rank === ''}>largest Δ</option><option value="*" .selected=${v.rank === '*'}>all</option>${s.list.slice(0, RANKS).map((r) => html`<option value=${r.value} .selected=${r.value === v.rank}>${show(r.value)}</option>`)}</select></label>` : nothing}
          <span class="behind-facts">${s?.value ? html`of <bdi>${show(s.label)} ${show(s.value)}</bdi>` : ''}${steps && (steps.a.more || steps.b.more) ? ` · the first ${count(LIMIT)} steps of a side` : ''}</span>
          <button class="button square ghost" type="button" aria-label="Close" title="Close (Esc)" @click=${on.close}>${icon('close')}</button></div>
        ${trouble ? html`<p class="field-error" role="alert">${icon('warn')}<bdi>${show(trouble)}</bdi></p>` : nothing}
        ${s
          ? s.all.a.steps.length || s.all.b.steps.length
            ? html`<div class="behind-body"><section><h3>Step time</h3>${head(s)}${pairs(s)}</section><section><h3>What a step consists of</h3>${parts(s)}</section><section class="behind-wide"><h3>${s.label ? html`By <bdi>${show(s.label)}</bdi>` : 'By rank'}</h3>${byRank(s)}</section></div>`
            : html`<p class="hint">No step lies wholly inside either range${v.skip ? html`, or all of them are among the first ${count(v.skip)}: <button class="button small" type="button" @click=${() => on.set({ skip: '0' })}>Skip none</button>` : '.'}</p>`
          : trouble ? nothing : html`<p class="hint">reading…</p>`}`,
      el,
    );
  }
  return { show: show_, draw };
}
