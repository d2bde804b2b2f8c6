// SPDX-License-Identifier: Apache-2.0
/** The time chart as a table: what is drawn, said in words, a page of buckets at a time. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { plotted, widthOf } from '../chartmath.js';
import { count, percent, rate, total } from '../fmt.js';
import { icon } from '../icons.js';
import { show } from '../safe.js';
import { dateTime, span } from '../time.js';

const PAGE = 60;

/**
 * @param {HTMLElement} el
 * @param {object} on
 * @param {() => import('../api.js').Series|null} on.series
 * @param {() => boolean} on.utc
 * @param {() => void} on.close
 */
export function createSeriesTable(el, on) {
  let first = 0;
  function draw() {
    const s = on.series(),
      n = s?.n ?? 0;
    first = Math.max(0, Math.min(first, n - 1));
    const { y, lost } = s ? plotted(s) : { y: [], lost: [] };
    const groups = s?.groups ?? [],
      lines = s ? groups.map((g) => plotted({ ...s, value: g.value }).y) : [];
    const go = (/** @type {number} */ to) => () => {
      first = to;
      draw();
      el.scrollTop = 0;
    };
    const row = (/** @type {number} */ i) => {
      if (!s) return nothing;
      const c = s.coveredNs[i] ?? null,
        wide = widthOf(s, i) * 1e6,
        v = y[i] ?? null;
      return html`<tr><th scope="row">${dateTime(s.from + i * s.bucket, on.utc())}</th><td class="num">${v === null ? 'not covered' : rate(v, s.type)}</td>${lines.map((l) => html`<td class="num">${l[i] === null || l[i] === undefined ? 'no data' : rate(l[i] ?? 0, s.type)}</td>`)}<td class="num">${s.value[i] === null || s.value[i] === undefined ? 'no data' : total(s.value[i] ?? 0, s.type)}</td><td class="num">${s.samples[i] === null || s.samples[i] === undefined ? 'unknown' : count(s.samples[i] ?? 0)}</td><td class="num">${c === null ? 'unknown' : percent(c, wide)}</td><td class="num">${(lost[i] ?? null) === null ? 'unknown' : (lost[i] ?? 0) > 0 ? percent(lost[i] ?? 0, 1) : 'none'}</td></tr>`;
    };
    render(
      html`<div class="behind-head"><h2>The chart as a table</h2>
          ${s ? html`<span class="behind-facts"><bdi>${show(s.type.name)}</bdi>, a row for ${span(s.bucket)}: ${count(Math.min(n, first + 1))} to ${count(Math.min(n, first + PAGE))} of ${count(n)}</span>
                <button class="button small" type="button" ?disabled=${first === 0} @click=${go(Math.max(0, first - PAGE))}>Earlier</button><button class="button small" type="button" ?disabled=${first + PAGE >= n} @click=${go(first + PAGE)}>Later</button>` : nothing}
          <button class="button square ghost" type="button" aria-label="Close" title="Close (Esc)" @click=${on.close}>${icon('close')}</button></div>
        ${n ? html`<table class="facts series-table" aria-label="Values over time"><thead><tr><th scope="col">from</th><th scope="col" class="num">rate</th>${groups.map((g) => html`<th scope="col" class="num"><bdi>${show(g.name)}</bdi></th>`)}<th scope="col" class="num">sum</th><th scope="col" class="num">samples</th><th scope="col" class="num">covered</th><th scope="col" class="num">lost</th></tr></thead><tbody>${Array.from({ length: Math.min(PAGE, n - first) }, (_, k) => row(first + k))}</tbody></table>` : html`<p class="hint">There is no data in this window.</p>`}`,
      el,
    );
  }
  return { show: draw };
}
