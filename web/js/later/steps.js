// SPDX-License-Identifier: Apache-2.0
/** Steps as a table by name and by label, the slowest of them, and what happened beside them. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { count, sig3 } from '../fmt.js';
import { icon } from '../icons.js';
import { show } from '../safe.js';
import { dateTime } from '../time.js';
import { eventLine } from './datatables.js';
import { groupsOf, labelsOf, lanesOf, nameOf, quantile } from './marks.js';

const SLOWEST = 10;
const EVENTS = 30;
const VALUES = 16;

/** @param {number|null|undefined} ns */
const ms = (ns) => {
  if (ns === null || ns === undefined) return 'unknown';
  const x = ns / 1e6;
  return x >= 1000 ? `${sig3(x / 1000)}\u202fs` : `${sig3(x)}\u202fms`;
};

/**
 * @param {HTMLElement} el
 * @param {object} on
 * @param {() => import('../explore/time.js').Marks} on.marks
 * @param {() => boolean} on.utc
 * @param {() => string} on.step
 * @param {() => string} on.lane
 * @param {(patch: Partial<import('../url.js').State>) => void} on.set
 * @param {() => void} on.close
 */
export function createSteps(el, on) {
  /** Picks steps, or lets them go: pressed says which; its words stay. @param {string} step @param {string} what */
  const select = (step, what) => {
    const now = on.step() === step;
    return html`<button class="button small toggle" type="button" aria-pressed=${now} aria-label="Select ${what}" @click=${() => on.set({ step: now ? '' : step, z: '', sel: '' })}>Select</button>`;
  };
  /** @param {import('../api.js').Steps} s */
  function names(s) {
    return html`<table class="facts" aria-label="Steps by name">
      <thead><tr><th scope="col">name</th><th scope="col" class="num">steps</th><th scope="col" class="num">median</th><th scope="col" class="num">p90</th><th scope="col" class="num">p99</th><th scope="col" class="num">longest</th><th scope="col"><span class="sr">select</span></th></tr></thead>
      <tbody>${s.names.map((x) => html`<tr><th scope="row"><bdi class="mono">${show(x.name)}</bdi></th><td class="num">${x.took ? count(x.took.n) : 'unknown'}</td><td class="num">${ms(x.took?.p50)}</td><td class="num">${ms(x.took?.p90)}</td><td class="num">${ms(x.took?.p99)}</td><td class="num">${ms(x.took?.max)}</td>
        <td>${select(x.name, `all steps ${show(x.name)}`)}</td></tr>`)}</tbody>
    </table>`;
  }
  /** Of the steps at hand, by the value of a label. @param {import('../api.js').Steps} s @param {string} name */
  function byLabel(s, name) {
    const labels = labelsOf(s),
      lane = on.lane();
    if (!labels.length) return html`<p class="hint">These steps carry no labels.</p>`;
    const { lanes } = lanesOf(s, name, lane);
    const all = lane ? groupsOf(s, name, lane) : [];
    return html`<label class="option">lanes by<select class="select" aria-label="Steps by label" @change=${(/** @type {Event} */ e) => on.set({ lane: /** @type {HTMLSelectElement} */ (e.target).value })}>
          <option value="" .selected=${lane === ''}>nothing</option>
          ${labels.map((l) => html`<option value=${l.name} .selected=${l.name === lane}>${show(l.name)} (${count(l.values)})</option>`)}
        </select></label>
      ${lane
        ? html`<table class="facts" aria-label="Steps by ${show(lane)}">
            <thead><tr><th scope="col"><bdi>${show(lane)}</bdi></th><th scope="col" class="num">steps</th><th scope="col" class="num">median</th><th scope="col" class="num">longest</th></tr></thead>
            <tbody>${all.slice(0, VALUES).map((g) => html`<tr><th scope="row"><bdi class="mono">${g.name === '' ? '(none)' : show(g.name)}</bdi>${lanes.some((l) => l.name === g.name) ? nothing : html` <small>no lane</small>`}</th><td class="num">${count(g.dur.length)}</td><td class="num">${ms(quantile(g.dur, 0.5) * 1e6)}</td><td class="num">${ms((g.dur.at(-1) ?? NaN) * 1e6)}</td></tr>`)}</tbody>
          </table>${all.length > VALUES ? html`<p class="hint">${count(all.length - VALUES)} more values</p>` : nothing}`
        : nothing}`;
  }
  /** @param {import('../api.js').Steps} s @param {string} name */
  function slowest(s, name) {
    const list = Array.from({ length: s.n }, (_, i) => i)
      .filter((i) => s.names[s.name[i] ?? -1]?.name === name)
      .sort((a, b) => (s.dur[b] ?? 0) - (s.dur[a] ?? 0))
      .slice(0, SLOWEST);
    const parts = s.parts.slice(0, 4);
    return html`<table class="facts" aria-label="Slowest steps">
      <thead><tr><th scope="col">step</th><th scope="col">began</th><th scope="col" class="num">took</th>${parts.map((p) => html`<th scope="col" class="num"><bdi>${show(p.name.replaceAll('_', ' '))}</bdi></th>`)}<th scope="col"><span class="sr">select</span></th></tr></thead>
      <tbody>${list.map((i) => {
        const step = `${name}:${s.number[i]}-${s.number[i]}`;
        return html`<tr><th scope="row"><span class="mono">${s.number[i]}</span>${s.inferred[i] ? html` <small>inferred</small>` : nothing} <small><bdi>${Object.entries(s.labels[i] ?? {}).map(([k, v]) => `${show(k)}=${show(v)}`).join(' ')}</bdi></small></th><td>${dateTime(s.from[i] ?? 0, on.utc())}</td><td class="num"><b>${ms((s.dur[i] ?? 0) * 1e6)}</b></td>${parts.map((p) => html`<td class="num">${ms(p.ns[i])}</td>`)}
          <td>${select(step, `step ${s.number[i]}`)}</td></tr>`;
      })}</tbody>
    </table>`;
  }
  function show_() {
    const { steps: s, events, ofProcess, trouble } = on.marks();
    const name = s ? nameOf(s, on.step().replace(/:\d+(-\d+)?$/, '')) : '';
    render(
      html`<div class="behind-head"><h2>Steps and events</h2><span class="behind-facts">${s?.more ? `the first ${count(s.n)} steps of this window` : ''}${s?.partial ? ' · something could not be read' : ''}</span>
          <button class="button square ghost" type="button" aria-label="Close" title="Close (Esc)" @click=${on.close}>${icon('close')}</button></div>
        ${trouble ? html`<p class="field-error" role="alert">${icon('warn')}<bdi>${show(trouble)}</bdi></p>` : nothing}
        <div class="behind-body">
          ${s && s.n
            ? html`<section><h3>By name</h3>${names(s)}<h3>By label</h3>${byLabel(s, name)}</section>
                <section><h3>Slowest of <bdi>${show(name)}</bdi></h3>${slowest(s, name)}</section>`
            : trouble ? nothing : html`<section><h3>Steps</h3><p class="hint">No program marked a step in this window. A step is a unit of work that a program names, see <code>sdk/python/strata.py</code>; then values can be given per step.</p></section>`}
          <section class="behind-wide"><h3>Events</h3>${
            events.length
              ? html`<ul class="events">${events.slice(0, EVENTS).map((e) => html`<li><span>${dateTime(e.at, on.utc())}</span> ${eventLine(e)}${e.target ? html` <small>process <bdi class="mono">${show(e.target.slice(0, 8))}</bdi></small>` : html` <small>whole machine</small>`}</li>`)}${events.length > EVENTS ? html`<li>${count(events.length - EVENTS)} more</li>` : nothing}</ul>`
              : html`<p class="hint">${trouble ? 'unknown' : 'No restart, clock step or change of state in this window.'}</p>`
          }${ofProcess ? html`<p class="hint">The selection names a process: what happened to the machine as a whole is not among these.</p>` : nothing}</section>
        </div>`,
      el,
    );
  }
  return { show: show_ };
}
