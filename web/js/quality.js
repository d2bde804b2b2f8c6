// SPDX-License-Identifier: Apache-2.0
/** The quality line: one sentence of facts; what is beyond a threshold is a word and an icon too. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { count, percent, period, total, unitName } from './fmt.js';
import { icon } from './icons.js';
import { screenUrl } from './nav.js';
import * as prefs from './prefs.js';
import { safeUrl, show } from './safe.js';
import { level, shares } from './shares.js';
import * as store from './store.js';
import { clock, span } from './time.js';

const STALE_MS = 60_000; // agents send every few seconds
const FEW = [30, 100]; // samples: under the first only values and n mean anything, under the second it is said

/** Too little to tell apart what differs. @param {import('./api.js').Flame} a */
function few(a) {
  const n = a.samples;
  if (n === null || a.empty || a.quality.basis.includes('every') || n >= (FEW[1] ?? 0)) return nothing;
  return html`<span class="fact warn">${icon('warn')}<span class="sr">warning: </span><b>${count(n)} samples</b><span class="fact-label">${n < (FEW[0] ?? 0) ? 'too few for shares' : 'few: shares are rough'}</span></span>`;
}

/** Nobody looked before some time, and since then without a gap: from when on. @param {import('./api.js').Flame} a */
function since(a) {
  const [gap, more] = a.quality.gaps;
  return gap && !more && !a.quality.gapsMore && gap.from <= a.range.from + 1000 && gap.to < a.range.to - 1000 ? `since ${clock(gap.to, prefs.get().utc, true)}` : '';
}

const pc = (/** @type {number|null} */ p) => (p === null ? 'unknown' : percent(p, 100));

/**
 * @param {import('./api.js').Flame} a
 * newest: milliseconds from the newest sample to the end of a range that ends now; narrow: of each source a part
 * @param {{range:string, narrow:boolean, hidden:string, newest:number, more:string, open:(which: 'quality'|'steps') => void}} view
 */
export function qualityLine(a, view) {
  const q = a.quality,
    t = a.type;
  const captured = a.unfiltered;
  const s = shares(q, captured);
  /** @param {string} label @param {unknown} value @param {import('./shares.js').Level} [state] @param {string} [why] @param {string} [title] */
  const fact = (label, value, state = '', why = '', title = '') =>
    html`<span class="fact ${state}" title=${title || nothing}
      >${state ? html`${icon('warn')}<span class="sr">${state === 'warn' ? 'warning: ' : 'problem: '}</span>` : nothing}${
        label ? html`<span class="fact-label">${label}</span>` : nothing
      }<b>${value}</b>${why ? html`<span class="fact-why">${why}</span>` : nothing}</span
    >`;
  const partial = q.shards && q.shards.read < q.shards.asked;
  const ofSources = view.narrow && captured === 0 && s.lostOfSources !== null,
    atMost = view.narrow && !ofSources && Boolean(s.lost);
  const lostLevel = level('lost', view.narrow && s.lostOfSources !== null && s.lost !== null ? Math.min(s.lost, s.lostOfSources) : s.lost);
  /* nobody looked yet: a warning */
  const coverLevel = since(a) && level('covered', s.covered) ? 'warn' : level('covered', s.covered);
  const worst = [
    coverLevel,
    lostLevel,
    level('noStack', s.noStack),
    level('unsymbolised', s.unsymbolised),
    partial ? 'warn' : '',
  ];
  /* where there is nothing, nothing is poor: the state below says why */
  const none = a.empty !== null && a.empty.why !== 'zero';
  const state = none ? 'unknown' : worst.includes('error') ? 'error' : worst.includes('warn') ? 'warn' : s.lost === null ? 'unknown' : 'ok';
  const periods = q.periods.map((p) => period(p, t)).filter(Boolean);
  const lostWhy = s.lostWhy
    .slice(0, 2)
    .map((l) => `${show(l.why)}${s.lostWhy.length > 1 && l.p !== null ? ` ${percent(l.p, 100)}` : ''}`)
    .join(', ');
  return html`<div class="quality" role="group" aria-label="Data quality">
    <span class="quality-state ${state}"
      >${icon(state === 'ok' ? 'ok' : 'warn')}${
        state === 'ok'
          ? 'Complete'
          : none
            ? 'No data'
            : state === 'unknown'
            ? 'Loss unknown'
            : state === 'error'
              ? 'Poor'
              : lostLevel
                ? 'Some loss'
                : 'Incomplete'
      }</span
    ><span class="quality-facts">${fact('', view.range)}${
      q.sources === null ? nothing : fact('', `${count(q.sources)} ${q.sources === 1 ? 'source' : 'sources'}`)
    }${fact('', `${t.name}, ${unitName(t) || 'count'}, ${t.kind === 'level' ? a.agg || 'level' : t.kind}${periods.length ? ` @ ${periods.join(', ')}` : ''}`)}${fact(
      'covered',
      pc(s.covered),
      none ? '' : coverLevel,
      since(a),
      q.unknownSources ? `${q.unknownSources} sources of unknown coverage` : '',
    )}${fact(
      atMost ? 'lost up to' : ofSources ? 'lost of its sources' : 'lost',
      pc(ofSources ? s.lostOfSources : s.lost),
      lostLevel,
      lostWhy,
      s.lostValue
        ? `${total(s.lostValue, t)} lost beside ${total(captured, t)} captured: the share is of both together.${view.narrow ? ` Sources say what, not whose, they lost${s.lostOfSources === null ? '' : `: ${pc(s.lostOfSources)} of what they observed`}.` : ''}`
        : '',
    )}${fact('no stack', pc(s.noStack), level('noStack', s.noStack))}${
      s.truncated && level('noStack', s.truncated) ? fact('truncated', html`<a href=${safeUrl(screenUrl('quality', store.get()))}>${pc(s.truncated)}</a>`, level('noStack', s.truncated), '', 'Why, and by what: on the screen Quality') : nothing
    }${fact('unsymbolised', pc(s.unsymbolised), level('unsymbolised', s.unsymbolised))}${
      view.hidden ? fact('hidden', view.hidden, '', '', 'Frames under a pixel, not sent; zooming in loads them') : nothing
    }${partial && q.shards ? fact('', `${q.shards.read} of ${q.shards.asked} shards read`, 'warn') : nothing}${q.warnings.map((w) =>
      fact('', show(w.replace(/^\w+: /, '')), 'warn', '', show(w)),
    )}${few(a)}${view.newest > STALE_MS && !none ? fact('newest sample', `${span(view.newest)} old`, 'warn', '', 'Nothing has come since: is the source still running?') : nothing}${a.step ? fact('', `${count(a.step.n)} ${show(a.step.name)} steps`, '', '', `${count(a.step.whole)} of them lie wholly inside the range`) : nothing}</span
    ><span class="quality-more"
      ><button class="button small ghost" type="button" aria-expanded=${view.more === 'quality'} aria-controls="more" title="Coverage, loss and symbols (q)" @click=${() => view.open('quality')}>Coverage</button
      ><button class="button small ghost" type="button" aria-expanded=${view.more === 'steps'} aria-controls="more" title="Steps and events (e)" @click=${() => view.open('steps')}>Steps</button></span
    >
  </div>`;
}
