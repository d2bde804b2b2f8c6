// SPDX-License-Identifier: Apache-2.0
/**
 * What the quality line stands for, whole: who looked when, what was lost and why, how well stacks could
 * be read and named by binary, how often one looked, and what a number on this page does not contain.
 */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import * as api from '../api.js';
import { count, percent, period, sig3, total } from '../fmt.js';
import { icon } from '../icons.js';
import * as prefs from '../prefs.js';
import { lookup, show } from '../safe.js';
import { level, shares } from '../shares.js';
import { dateTime, span } from '../time.js';
import { binaries, binaryTable, lossTable } from './datatables.js';

const BYS = /** @type {const} */ ([['source', 'source'], ['host', 'host'], ['target', 'process']]);
const SOURCES = 50;
const RUNS = 120; // drawn of a source; the others are counted
const ALL_RUNS = 1200; // of all sources together: the page stays small
const GAPS = 8;
const STATES = lookup({ ok: 'looked', lost: 'looked, and the batch was given up', paused: 'paused', refused: 'refused', absent: 'absent' });

/**
 * @param {HTMLElement} el
 * @param {object} on
 * @param {() => api.Params} on.question
 * @param {() => api.Flame|null} on.flame
 * @param {() => boolean} on.utc
 * @param {() => void} on.close
 */
export function createCoverage(el, on) {
  const slots = { cover: api.slot(), bins: api.slot() };
  let by = 'source',
    trouble = '',
    binTrouble = '';
  /** @type {api.Coverage|null} */ let cover = null;
  /** @type {import('./datatables.js').Binary[]|null} */ let bins = null;

  async function ask() {
    const q = on.question();
    draw();
    await Promise.all([
      slots.cover
        .run((signal) => api.coverage({ ...q, by, limit: SOURCES }, signal))
        .then((a) => { [cover, trouble] = [a, '']; })
        .catch(failed((m) => { [cover, trouble] = [null, m]; })),
      slots.bins
        .run((signal) => binaries(q, signal))
        .then((b) => { [bins, binTrouble] = [b, '']; })
        .catch(failed((m) => { [bins, binTrouble] = [null, m]; })),
    ]);
    draw();
  }
  const failed = (/** @type {(m: string) => void} */ say) => (/** @type {Error} */ e) => {
    if (e.name !== 'AbortError') say(e.message);
  };
  const most = () => Math.max(4, Math.min(RUNS, Math.floor(ALL_RUNS / Math.max(1, cover?.sources.length ?? 1))));
  /** One source's time as bars: what was looked at is solid, everything else has a pattern and a word. @param {api.Coverage['sources'][number]} s @param {number} from @param {number} to */
  function strip(s, from, to) {
    const wide = Math.max(1, to - from);
    const at = (/** @type {number} */ ms) => Math.max(0, Math.min(100, ((ms - from) / wide) * 100));
    const runs = s.runs.slice(0, most());
    return html`<div class="cover-strip" role="img" aria-label=${runs.length ? runs.slice(0, 6).map((r) => `${STATES[r.state] ?? show(r.state)}${r.why ? ` (${show(r.why)})` : ''} ${span(r.to - r.from)}`).join(', ') : 'nothing is known'}>
      ${runs.map((r) => html`<i class="run run-${['ok', 'lost', 'paused', 'refused', 'absent'].includes(r.state) ? r.state : 'absent'}" title="${STATES[r.state] ?? show(r.state)}${r.why ? `: ${show(r.why)}` : ''}, ${dateTime(r.from, on.utc())}, ${span(r.to - r.from)}" .style=${`left:${at(r.from).toFixed(3)}%;width:${Math.max(0.15, at(r.to) - at(r.from)).toFixed(3)}%`}></i>`)}
    </div>`;
  }
  function sources() {
    const c = cover;
    if (trouble) return html`<p class="field-error" role="alert">${icon('warn')}<bdi>${show(trouble)}</bdi></p>`;
    if (!c) return html`<p class="hint">reading…</p>`;
    if (!c.sources.length) return html`<p class="hint">No source says anything about this selection in this range.</p>`;
    return html`<table class="facts" aria-label="Coverage by ${by}">
        <thead><tr><th scope="col">${BYS.find(([k]) => k === by)?.[1]}</th><th scope="col" class="num">covered</th><th scope="col" class="wide">when</th><th scope="col" class="num">lost</th></tr></thead>
        <tbody>
          ${c.sources.map((s) => {
            const covered = s.askedNs && s.sourceNs !== null ? (s.sourceNs / s.askedNs) * 100 : null;
            const labels = Object.entries(s.labels).filter(([k]) => k !== 'host').map(([k, v]) => `${k}=${v}`).join(' ');
            return html`<tr>
              <th scope="row"><bdi>${show(s.host || 'unknown host')}</bdi> <small>${s.type.name ? html`<bdi>${show(s.type.name)}</bdi>` : nothing} <bdi>${labels ? show(labels) : ''}</bdi>${s.target ? html` process <bdi class="mono">${show(s.target.slice(0, 8))}</bdi>` : nothing}${s.scopes > 1 ? ` ${count(s.scopes)} together` : ''}${s.ended ? ' · ended' : ''}</small></th>
              <td class="num fact ${level('covered', covered)}"><b>${covered === null ? 'unknown' : percent(covered, 100)}</b></td>
              <td class="wide">${strip(s, c.range.from, c.range.to)}${s.runs.length > most() || s.runsMore ? html`<small>${count(Math.max(0, s.runs.length - most()) + s.runsMore)} more stretches</small>` : nothing}</td>
              <td class="num">${s.lost.length ? s.lost.slice(0, 2).map((l) => html`<span class="lost-why"><bdi>${show(l.why)}</bdi> ${l.weight === null ? (l.n === null ? 'unknown' : count(l.n)) : total(l.weight, s.type)}</span>`) : 'none'}</td>
            </tr>`;
          })}
        </tbody>
      </table>
      <p class="cover-key"><i class="run run-ok"></i>looked <i class="run run-paused"></i>paused <i class="run run-refused"></i>refused <i class="run run-lost"></i>batch given up <i class="run run-none"></i>nobody spoke</p>
      ${c.more ? html`<p class="hint">${count(c.more)} more are not listed: narrow the selector.</p>` : nothing}${c.partial ? html`<p class="fact warn">${icon('warn')}<b>Something the store has could not be read.</b></p>` : nothing}`;
  }
  /** @param {api.Flame} f */
  function names(f) {
    if (binTrouble) return html`<p class="field-error" role="alert">${icon('warn')}<bdi>${show(binTrouble)}</bdi></p>`;
    return bins ? binaryTable(bins, f.type) : html`<p class="hint">reading…</p>`;
  }
  /** What is in the numbers and what is not, with sizes. @param {api.Flame} f */
  function contains(f) {
    const q = f.quality,
      s = shares(q, f.unfiltered),
      t = f.type;
    /** @param {boolean} inside @param {string} what @param {unknown} size @param {string} why */
    const row = (inside, what, size, why) => html`<tr><th scope="row">${what}</th><td class="num">${size}</td><td>${inside ? 'inside' : html`<b>not inside</b>`}</td><td class="wide">${why}</td></tr>`;
    const lost = s.lostValue === null ? 'unknown' : total(s.lostValue, t);
    const uncovered = q.askedNs !== null && q.coveredNs !== null ? span((q.askedNs - q.coveredNs) / 1e6) : 'unknown';
    const dropped = f.filters.reduce((x, y) => x + y.dropped, 0);
    return html`<table class="facts" aria-label="What a number contains">
      <thead><tr><th scope="col">what</th><th scope="col" class="num">how much</th><th scope="col">in the totals</th><th scope="col" class="wide">therefore</th></tr></thead>
      <tbody>
        ${row(false, 'lost', lost, 'Nothing is scaled up for it: totals are what was captured.')}
        ${row(false, 'time that was not covered', uncovered, 'Nobody looked. A rate divides by covered time, so it is not lowered by it; a total is.')}
        ${q.unknownSources ? row(false, 'sources that say nothing', count(q.unknownSources), 'Their coverage and loss are unknown.') : nothing}
        ${f.filters.length ? row(false, 'taken by filters', total(dropped, t), 'Shares stay shares of everything.') : nothing}
        ${f.step ? row(false, 'outside the steps', 'the rest of the range', 'Coverage and loss are still those of the whole range.') : nothing}
        ${row(true, 'without a stack', q.noStack === null ? 'unknown' : total(q.noStack, t), 'Counted, under [no stack: …]; who called is unknown.')}
        ${row(true, 'stacks cut short', q.truncated === null ? 'unknown' : total(q.truncated, t), 'Counted, under [truncated]; callers above are unknown.')}
        ${row(true, 'leaf without a name', q.unsymbolised === null ? 'unknown' : total(q.unsymbolised, t), 'Counted, under binary+0x…; which function is unknown.')}
        ${row(true, 'too small to draw', total(f.trim.total, t), `Counted, drawn as dots: ${count(f.trim.nodes)} frames in this view.`)}
        ${row(true, 'chance', q.periodic && f.se !== null ? `± ${total(2 * f.se, t)}` : 'unknown', q.periodic ? 'Two standard errors of the total. A frame of n samples has ± 2 ∕ √n of its value.' : q.basis.includes('every') ? 'Every event was counted.' : 'How these values were sampled is not known.')}
      </tbody>
    </table>`;
  }
  /** From where on the page warns: a preference of this browser. */
  function limits() {
    const now = prefs.get().limits;
    const rows = /** @type {const} */ ([['covered', 'covered, under'], ['lost', 'lost, from'], ['noStack', 'no stack, truncated, from'], ['unsymbolised', 'unsymbolised, from']]);
    /** @param {keyof typeof prefs.LIMITS} k @param {0|1} i @param {string} text */
    const field = (k, i, text) =>
      html`<input class="field small" type="number" min="0" max="100" step="any" aria-label="${text} ${i ? 'red' : 'amber'}, percent" .value=${String(now[k][i])} @change=${(/** @type {Event} */ e) => {
        const x = [...now[k]];
        x[i] = Number(/** @type {HTMLInputElement} */ (e.target).value);
        prefs.set({ limits: { ...now, [k]: x } });
        draw(); // what makes no sense is the default again
      }} />`;
    return html`<details class="limits"><summary>When to warn</summary><table class="facts" aria-label="When to warn"><thead><tr><th scope="col">percent</th><th scope="col" class="num">amber</th><th scope="col" class="num">red</th></tr></thead>
      <tbody>${rows.map(([k, text]) => html`<tr><th scope="row">${text}</th><td class="num">${field(k, 0, text)}</td><td class="num">${field(k, 1, text)}</td></tr>`)}</tbody></table>
      <button class="button small" type="button" @click=${() => { prefs.set({ limits: prefs.LIMITS }); draw(); }}>As delivered</button></details>`;
  }
  function draw() {
    const f = on.flame();
    if (!f) return;
    const q = f.quality,
      periods = q.periods.map((p) => period(p, f.type)).filter(Boolean);
    const coarse = q.tiers.map((t) => t.resolutionNs).filter((x) => x !== null);
    render(
      html`<div class="behind-head"><h2>Coverage and loss</h2>
          <label class="option">by<select class="select" aria-label="Coverage by" @change=${(/** @type {Event} */ e) => { by = /** @type {HTMLSelectElement} */ (e.target).value; ask(); }}>${BYS.map(([k, t]) => html`<option value=${k} .selected=${k === by}>${t}</option>`)}</select></label>
          <span class="behind-facts">${periods.length ? `sampled at ${periods.join(', ')}` : 'period unknown'}${coarse.length ? ` · stored by ${[...new Set(coarse)].map((ns) => span(Number(ns) / 1e6)).join(', ')}` : ''}${q.skewNs === null ? '' : ` · clocks within ${sig3(Math.abs(q.skewNs) / 1000)}\u202fµs`}</span>
          <button class="button square ghost" type="button" aria-label="Close" title="Close (Esc)" @click=${on.close}>${icon('close')}</button></div>
        <div class="behind-body">
          <section class="behind-wide"><h3>Who looked when</h3>${sources()}
            ${q.gaps.length ? html`<ul class="gaps">${q.gaps.slice(0, GAPS).map((g) => html`<li>${dateTime(g.from, on.utc())}, ${span(g.to - g.from)}: ${show(g.why.replaceAll('_', ' '))}</li>`)}${q.gaps.length + q.gapsMore > GAPS ? html`<li>${count(q.gaps.length + q.gapsMore - GAPS)} more gaps</li>` : nothing}</ul>` : nothing}</section>
          <section><h3>Lost, by reason</h3>${lossTable(q, f.unfiltered, f.type)}</section>
          <section><h3>Unwinding and names, by binary</h3>${names(f)}</section>
          <section class="behind-wide"><h3>What a number here does not contain</h3>${contains(f)}${limits()}</section>
        </div>`,
      el,
    );
  }
  return { show: ask };
}
