// SPDX-License-Identifier: Apache-2.0
/** The tables of the Quality screen. Each says what there is, and in words what there is not. */
import { html, nothing } from '../../vendor/lit-html/lit-html.js';
import { count, percent, sig3, total } from '../fmt.js';
import { icon } from '../icons.js';
import { lookup, safeUrl, show } from '../safe.js';
import { level } from '../shares.js';
import { dateTime, span } from '../time.js';
import { eventLine } from './datatables.js';
import { LOSS } from './losswords.js';
import { daysLeft, overMemory, pythons, refusedTables, wholeStacks } from './qualitydata.js';

/** @typedef {import('./qualitydata.js').Host} Host */

export const ROWS = 50;
const EVENTS = 20;
const OLD_MS = 60_000; // agents send every few seconds
const RUNS = 24; // drawn of a source; the others are counted
const STATE_WORDS = lookup({ ok: 'ok', paused: 'paused', refused: 'refused', absent: 'absent', lost: 'batch given up', ended: 'ended', '': 'unknown' });
const BYTES = { id: '', name: '', unit: 'bytes', kind: 'level' };
const bytes = (/** @type {number|null} */ n) => (n === null ? 'unknown' : total(n, BYTES));
const n = (/** @type {number|null} */ x) => (x === null ? 'unknown' : count(x));
const word = (/** @type {''|'warn'|'error'} */ l) => (l ? html`<span class="sr">${l === 'warn' ? 'warning: ' : 'problem: '}</span>` : nothing);

/** @param {string} caption @param {unknown[]} head @param {unknown} body */
const table = (caption, head, body) => html`<table class="facts" aria-label=${caption}><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table>`;
const th = (/** @type {string} */ text, kind = '') => html`<th scope="col" class=${kind}>${text}</th>`;
/** @param {string} name */
const host = (name) => html`<th scope="row"><bdi class="host" title=${show(name)}>${show(name || 'unknown host')}</bdi></th>`;
const more = (/** @type {number} */ all) => (all > ROWS ? html`<p class="hint">${count(all - ROWS)} more are not listed: narrow the selector to a host.</p>` : nothing);

/** Who looked, now and in the range. @param {ReturnType<typeof import('./qualitydata.js').sources>} rows @param {{from:number, to:number, now:number, utc:boolean, explore: (q: {type:string, host:string}) => string}} view */
export function sourceTable(rows, view) {
  if (!rows.length) return html`<p class="hint">No agent speaks of this selection in this range.</p>`;
  const wide = Math.max(1, view.to - view.from);
  const at = (/** @type {number} */ ms) => Math.max(0, Math.min(100, ((ms - view.from) / wide) * 100));
  return html`${table(
    'Agents and their sources',
    [th('host'), th('type'), th('state'), th('seen', 'num extra'), th('of its own time', 'num'), th('when', 'wide extra'), th('lost', 'num')],
    rows.slice(0, ROWS).map((r) => {
      const bad = r.state === 'refused' || r.state === 'absent' ? 'error' : r.state === 'paused' || r.state === '' ? 'warn' : '';
      const age = view.now - r.lastMs,
        old = age > OLD_MS;
      const s = r.source,
        l = level('covered', r.covered);
      return html`<tr>
        <th scope="row"><a class="host" title=${show(r.host)} href=${safeUrl(view.explore({ type: r.type, host: r.host }))}><bdi>${show(r.host || 'unknown host')}</bdi></a></th>
        <td><bdi class="mono">${show(r.type)}</bdi>${s && s.scopes > 1 ? html`<small> ${count(s.scopes)} processes</small>` : nothing}</td>
        <td class="fact ${bad}">${bad ? icon('warn') : nothing}${word(bad)}<b>${STATE_WORDS[r.state] ?? html`<bdi>${show(r.state)}</bdi>`}</b>${r.why ? html`<small> <bdi>${show(r.why)}</bdi></small>` : nothing}${bad === 'error' ? html`<small> run <code>strata-agent check</code> there</small>` : nothing}</td>
        <td class="num extra fact ${old ? 'warn' : ''}">${Number.isFinite(age) ? html`${old ? word('warn') : nothing}<b>${span(Math.max(0, age))} ago</b>` : 'not now'}</td>
        <td class="num fact ${l}">${word(l)}<b>${r.covered === null ? 'unknown' : percent(r.covered, 100)}</b></td>
        <td class="wide extra">${s ? html`<div class="cover-strip" role="img" aria-label=${s.runs.slice(0, 4).map((x) => `${STATE_WORDS[x.state] ?? show(x.state)} ${span(x.to - x.from)}`).join(', ') || 'nothing is known'}>${s.runs.slice(0, RUNS).map((x) => html`<i class="run run-${['ok', 'lost', 'paused', 'refused', 'absent'].includes(x.state) ? x.state : 'absent'}" .style=${`left:${at(x.from).toFixed(3)}%;width:${Math.max(0.15, at(x.to) - at(x.from)).toFixed(3)}%`}></i>`)}</div>${s.runs.length > RUNS || s.runsMore ? html`<small>${count(s.runs.length - Math.min(RUNS, s.runs.length) + s.runsMore)} more stretches</small>` : nothing}` : nothing}</td>
        <td class="num">${!s ? 'unknown' : s.lost.length ? s.lost.slice(0, 2).map((x) => html`<span class="lost-why"><bdi>${show(x.why)}</bdi> ${x.weight === null ? (x.n === null ? 'unknown' : `${count(x.n)} times`) : total(x.weight, s.type)}</span>`) : 'none'}</td>
      </tr>`;
    }),
  )}${more(rows.length)}
  <p class="hint">Of its own time: what a source covered of the range since it began. The range itself is in the line above.</p>`;
}

/** Stacks that lost their root end, or are none: the weight is kept. @param {import('../api.js').Top} top @param {Host[]} hosts */
export function cutTable(top, hosts) {
  const rows = top.rows.filter((r) => r.total > 0);
  if (!rows.length) return html`<p class="hint">${top.quality.truncated === null ? 'Nothing is known of this.' : 'Every stack reached its root.'}</p>`;
  const refused = refusedTables(hosts);
  return table(
    'Stacks cut short or missing, by reason',
    [th('reason'), th('weight', 'num'), th('of what was captured', 'num')],
    rows.slice(0, 16).map((r) => {
      const [, kind = '', why = ''] = r.name.match(/^\[(truncated|no stack)(?:: (\w+))?/) ?? [];
      return html`<tr><th scope="row"><bdi class="mono" title=${show(r.name)}>${show(why || r.name)}</bdi><small> ${kind === 'no stack' ? 'no stack: ' : kind ? 'cut short: ' : ''}${LOSS[why] ?? ''}</small>${why === 'notable' && refused.length ? html`<small class="reason"> refused for lack of memory on <bdi>${show(refused.slice(0, 3).join(', '))}</bdi>${refused.length > 3 ? ` and ${count(refused.length - 3)} more` : ''}: raise <code>limits.memory</code></small>` : nothing}</th><td class="num">${total(r.total, top.type)}</td><td class="num">${percent(r.total, top.unfiltered)}</td></tr>`;
    }),
  );
}

/** What could not be read of a Python thread, by `agent_pyerr`. */
const PY_PARTS = /** @type {Readonly<Record<string, string>>} */ ({
  key: 'number of the thread’s key',
  bad_key: 'a key that is none',
  slot: 'the thread’s slot',
  newest: 'newest frame',
  cframe: 'frame of the C stack',
  frame: 'a frame',
  code: 'a code object',
  deep: 'too many frames',
});
/** @param {Host[]} hosts */
export function pythonTable(hosts) {
  const known = hosts.filter((h) => h.of('python_samples').length);
  if (!known.length) return html`<p class="hint">No agent says anything of Python here: <code>python.enabled = off</code>, an agent without it, or none in this range.</p>`;
  const rows = pythons(hosts);
  const rate = known.map((h) => {
    const [frames, merged] = [h.one('python_with_frames') ?? 0, h.one('python_merged') ?? 0];
    const errors = h.of('pyerr').filter((r) => r.labels['why'] !== 'no_state' && (r.last ?? 0) > 0).sort((a, b) => (b.last ?? 0) - (a.last ?? 0)),
      unnamed = h.sum('python_unnamed') ?? 0;
    return html`<tr>${host(h.host)}<td class="num">${n(h.one('python_samples'))}</td><td class="num">${frames ? percent(merged, frames) : 'no data'}</td><td class="num extra">${errors.length ? errors.slice(0, 2).map((r) => html`<span class="lost-why"><bdi>${PY_PARTS[r.labels['why'] ?? ''] ?? show(r.labels['why'] ?? '')}</bdi>: ${n(r.last)}\u202f×</span>`) : 'none'}</td><td class="num extra">${unnamed ? count(unnamed) : 'none'}</td></tr>`;
  });
  return html`${rows.length
    ? table(
        'Python versions and their state',
        [th('host'), th('Python'), th('state'), th('processes', 'num')],
        rows.slice(0, ROWS).map((r) => html`<tr>${host(r.host)}<td><bdi class="mono">${show(r.version)}</bdi></td><td class="fact ${r.word === 'refused' ? 'warn' : ''}">${r.word === 'refused' ? html`${icon('warn')}${word('warn')}` : nothing}<b>${show(r.word)}</b><small> ${r.text}${r.word === 'refused' ? html` (<bdi class="mono">${show(r.why)}</bdi>); native frames stay` : ''}</small></td><td class="num">${count(r.processes)}</td></tr>`),
      )
    : html`<p class="hint">No Python runs there now.</p>`}${more(rows.length)}
  ${table('Python frames, since each agent began', [th('host'), th('stacks of Pythons', 'num'), th('merged with native frames', 'num'), th('could not be read', 'num extra'), th('frames without a name', 'num extra')], rate.slice(0, ROWS))}`;
}

/**
 * @param {Host[]} hosts @param {Map<string, number>|null} ratio
 * @param {import('../api.js').Event[]} events
 * @param {boolean} utc
 */
export function identityTable(hosts, ratio, events, utc) {
  const known = hosts.filter((h) => h.of('identity_violations').length);
  const broken = events.filter((e) => e.kind === 'identity' || e.kind === 'cpu_mismatch').slice(-EVENTS);
  return html`${known.length
    ? table(
        'Identities, since each agent began',
        [th('host'), th('I1 to I4'), th('CPU against the kernel', 'num'), th('doubts', 'num'), th('clock set', 'num extra'), th('slept', 'num extra'), th('stacks to the root', 'num')],
        known.slice(0, ROWS).map((h) => {
          const bad = h.one('identity_violations') ?? 0,
            r = ratio?.get(h.host) ?? null,
            doubts = h.one('cpu_mismatches') ?? 0,
            whole = wholeStacks(h),
            l = whole === null ? '' : level('noStack', 100 - whole);
          return html`<tr>${host(h.host)}<td class="fact ${bad ? 'error' : ''}">${bad ? icon('warn') : nothing}${word(bad ? 'error' : '')}<b>${bad ? `${count(bad)} violations` : 'exact'}</b></td><td class="num">${r === null ? 'unknown' : `${sig3(r)}\u202f%`}</td><td class="num fact ${doubts ? 'warn' : ''}">${word(doubts ? 'warn' : '')}<b>${doubts ? count(doubts) : 'none'}</b></td><td class="num extra">${n(h.one('clock_steps'))}</td><td class="num extra">${n(h.one('suspends'))}</td><td class="num fact ${l}">${word(l)}<b>${whole === null ? 'unknown' : percent(whole, 100)}</b></td></tr>`;
        }),
      )
    : html`<p class="hint">No agent tells of its sums in this range.</p>`}
    ${broken.length ? html`<ul class="events">${broken.map((e) => html`<li><span>${dateTime(e.at, utc)}</span> ${eventLine(e)} <small><bdi>${show(e.text)}</bdi></small></li>`)}</ul>` : nothing}
    <details class="limits"><summary>What these are</summary><dl class="meanings">
      <dt>I1</dt><dd>busy + idle + jitter + missed = what the clock of each CPU passed</dd>
      <dt>I2</dt><dd>weight of samples + refused by the ring + filtered = busy</dd>
      <dt>I3</dt><dd>rows sent = weight of samples</dd>
      <dt>I4</dt><dd>batches produced + found at the start = sent + dropped + waiting</dd>
      <dt>I5</dt><dd>of a thread, cpu + offcpu + runq = its life: an estimate, so no agent reports it; <code>strata validate</code> checks it with programs of known times</dd>
      <dt>CPU against the kernel</dt><dd>CPU time of the samples over what the kernel counted of the same processes; a doubt is a minute in which they differed by more than chance</dd>
    </dl></details>`;
}

/** What each agent costs. @param {Host[]} hosts @param {Map<string, Map<string, number>>|null} rates name -> host -> ns per second */
export function costTable(hosts, rates) {
  const known = hosts.filter((h) => h.of('rss').length);
  if (!known.length) return html`<p class="hint">No agent tells of itself in this range.</p>`;
  const share = (/** @type {string} */ name, /** @type {string} */ host) => rates?.get(name)?.get(host) ?? null;
  const cpu = (/** @type {number|null} */ ns) => (ns === null ? 'unknown' : percent(ns, 1e9));
  /** Of what it may: all of it is a warning. @param {number|null|undefined} x @param {number|null|undefined} of */
  const part = (x, of) => {
    const full = (x ?? 0) >= (of ?? Infinity);
    return html`<td class="num extra fact ${full ? 'warn' : ''}">${word(full ? 'warn' : '')}<b>${x !== null && x !== undefined && of ? percent(x, of) : 'unknown'}</b></td>`;
  };
  const sum = (/** @type {(number|null)[]} */ x) => (x.every((v) => v === null) ? null : x.reduce((/** @type {number} */ s, v) => s + (v ?? 0), 0));
  return html`${table(
    'What each agent costs',
    [th('host'), th('CPU, of one', 'num'), th('in BPF', 'num extra'), th('budget used', 'num extra'), th('memory', 'num'), th('of its limit', 'num extra'), th('rate', 'num extra'), th('held back', 'num'), th('waiting to send', 'num extra'), th('given up', 'num')],
    known.slice(0, ROWS).map((h) => {
      const own = sum([share('agent_cpu', h.host), share('agent_apart_cpu', h.host)]),
        bpf = sum([share('agent_bpf_cpu', h.host), share('agent_offcpu_bpf', h.host)]);
      const [cost, budget, memory, limit, period] = ['cost', 'cost_budget', 'memory', 'memory_limit', 'period'].map((x) => h.one(x));
      const held = h.one('restraint_steps') ?? 0,
        given = h.one('dropped') ?? 0;
      return html`<tr>${host(h.host)}<td class="num">${cpu(own)}</td><td class="num extra">${cpu(bpf)}</td>${part(cost, budget)}<td class="num">${bytes(h.one('rss'))}</td>${part(memory, limit)}<td class="num extra">${period ? `${sig3(1e9 / period).replace(/\.0+$/, '')}\u202fHz` : 'unknown'}</td><td class="num fact ${held ? 'warn' : ''}">${word(held ? 'warn' : '')}<b>${held ? `${count(held)} times` : 'never'}</b></td><td class="num extra">${n(h.one('batches_spooled'))}</td><td class="num fact ${given ? 'error' : ''}">${word(given ? 'error' : '')}<b>${given ? `${count(given)} batches` : 'none'}</b></td></tr>`;
    }),
  )}${more(known.length)}${overMemory(known).slice(0, 4).map((h) => html`<p><span class="fact warn">${icon('warn')}${word('warn')}<b><bdi>${show(h.host)}</bdi>: memory ${percent(h.part, 1)} of its limit${h.full ? '; no new unwind tables, stacks of other binaries are truncated (notable)' : ''}</b></span></p>`)}
  <p class="hint">CPU is that of the agent and its other processes, the mean of the range. Time in BPF is spent in the programs that are profiled. The rest is the last reading; held back and given up count since the agent began.</p>`;
}

/** What came and was not taken. @param {import('../api.js').Quality} q @param {Host[]} hosts */
export function rejectTable(q, hosts) {
  const sent = hosts.reduce((s, h) => s + (h.one('send_rejected') ?? 0), 0);
  return html`${q.rejected.length
    ? table('Refused by the server, by reason', [th('reason'), th('how many', 'num')], q.rejected.slice(0, 16).map((r) => html`<tr><th scope="row"><bdi class="mono">${show(r.why)}</bdi>${LOSS[r.why] ? html`<small> ${LOSS[r.why]}</small>` : nothing}</th><td class="num">${n(r.n)}</td></tr>`))
    : html`<p class="hint">The server refused nothing of this selection.</p>`}
    ${sent ? html`<p><span class="fact warn">${icon('warn')}${word('warn')}<b>${count(sent)} rows of agents were refused since these began</b></span></p>` : nothing}
    ${q.shards ? html`<p class="hint">${count(q.shards.read)} of ${count(q.shards.asked)} parts of the store were read.</p>` : nothing}`;
}

/** @param {import('../api.js').Status} s @param {boolean} utc */
export function storeTable(s, utc) {
  const d = s.disk,
    left = daysLeft(d);
  const when = (/** @type {number} */ ms) => (Number.isFinite(ms) ? dateTime(ms, utc) : 'no data');
  const bad = s.store.state === 'ok' ? '' : s.store.state === 'tight' ? 'warn' : 'error';
  /** @param {string} what @param {unknown} value @param {''|'warn'|'error'} [l] */
  const row = (what, value, l = '') => html`<tr><th scope="row">${what}</th><td class="fact ${l}">${l ? icon('warn') : nothing}${word(l)}<b>${value}</b></td></tr>`;
  return html`<table class="facts" aria-label="The store"><tbody>
    ${row('state', html`${show(s.store.state || 'unknown')}${s.store.why ? html` <bdi>${show(s.store.why)}</bdi>` : nothing}`, bad)}
    ${row('on disk', `${bytes(d.bytes)}${d.limit === null ? ', no limit set' : ` of ${bytes(d.limit)}`}; ${bytes(d.free)} free`)}
    ${row('grows', d.perDay === null ? 'not known yet: under an hour of sealed data' : `${bytes(d.perDay)} a day`)}
    ${row('days left at this rate', d.heldBy ? `held by ${d.heldBy}` : left === null ? 'unknown' : left > 3650 ? 'more than ten years' : left < 1 ? `${sig3(left * 24)}\u202fhours` : `${sig3(left)}\u202fdays`, left !== null && left < 3 && !d.heldBy ? 'error' : '')}
    ${s.tiers.map((t) => row(`${show(t.name)} data`, `${when(t.from)} to ${when(t.to)}${t.keepNs ? `, kept for ${span(t.keepNs / 1e6)}` : ''}`))}
    ${row('taken in', `${n(s.store.batches)} batches, ${n(s.store.rows)} rows, ${n(s.store.series)} series`)}
    ${row('server', html`<bdi>${show(s.version)}</bdi>, ${n(s.queries)} ${s.queries === 1 ? 'question' : 'questions'} running`)}
  </tbody></table>`;
}

const TOLD = ['state', 'restraint', 'restart', 'clock_step', 'suspend', 'py_doubtful', 'gil_doubtful', 'cgroupns', 'oom', 'sender_gave_up'];

/** @param {import('../api.js').Event[]} events @param {boolean} utc */
export function eventList(events, utc) {
  const mine = events.filter((e) => TOLD.includes(e.kind));
  if (!mine.length) return html`<p class="hint">No agent began, ended, changed its state or held back in this range.</p>`;
  return html`<ul class="events">${mine
    .slice(-EVENTS)
    .reverse()
    .map((e) => html`<li><span>${dateTime(e.at, utc)}</span> ${eventLine(e)}</li>`)}${mine.length > EVENTS ? html`<li>${count(mine.length - EVENTS)} earlier</li>` : nothing}</ul>`;
}
