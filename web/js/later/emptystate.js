// SPDX-License-Identifier: Apache-2.0
/** Nothing to show: what is known about why, looked up, and what each button does about it. */
import * as api from '../api.js';
import * as prefs from '../prefs.js';
import { render } from '../../vendor/lit-html/lit-html.js';
import { parseSelector, trySelector, writeMatcher, writeSelector } from '../selector.js';
import * as states from '../states.js';
import { dateTime, rangeText, span, toSpec } from '../time.js';

const slot = api.slot();
const AGENTS = 6;
const VALUES = 12; // asked for
const MOST = 40; // shown, whatever comes

/** The matcher that the server named, null: none, or not understood. @param {string} text */
function matcherOf(text) {
  try {
    return text ? (parseSelector(`{${text}}`).matchers[0] ?? null) : null;
  } catch {
    return null; // said as text only
  }
}

/**
 * @param {HTMLElement} el @param {Pick<api.Flame, 'empty'|'tree'|'quality'>} a
 * @param {object} on
 * @param {() => import('../url.js').State} on.state
 * @param {(patch: Partial<import('../url.js').State>) => boolean} on.set  false: it was so already
 * @param {() => void} on.load
 * @param {() => void} on.widen
 */
export async function showEmpty(el, a, on) {
  const e = a.empty ?? { why: a.tree ? 'zero' : 'unknown', matcher: '', lastNs: null };
  document.body.dataset['state'] = 'empty';
  const url = on.state(),
    s = trySelector(url.q),
    m = matcherOf(e.matcher);
  const without = s && m ? { ...s, matchers: s.matchers.filter((x) => writeMatcher(x) !== writeMatcher(m)) } : null;
  const lastMs = e.lastNs ? e.lastNs / 1e6 : 0;
  /** @type {import('../states.js').EmptyView} */
  const view = {
    why: e.why,
    matcher: e.matcher,
    range: rangeText(url.from, url.to, Date.now(), prefs.get().utc).replace(/^Last/, 'the last'),
    last: lastMs ? dateTime(lastMs, prefs.get().utc) : '',
    covered: `${span((a.quality.coveredNs ?? 0) / 1e6)} of ${span((a.quality.askedNs ?? 0) / 1e6)}`,
    type: s?.type ?? '',
    known: [],
    agents: [],
    origin: location.origin,
  };
  /* what is so already is asked again: a button always does something */
  const set = (/** @type {Partial<import('../url.js').State>} */ patch) => {
    if (!on.set({ z: '', sel: '', ...patch })) on.load();
  };
  const acts = {
    drop: () => set({ q: without ? writeSelector(without) : (s?.type ?? 'cpu') }),
    use: (/** @type {string} */ v) => {
      if (e.why === 'type_absent' && s) set({ q: writeSelector({ ...s, type: v }) });
      else if (without && m) set({ q: writeSelector({ ...without, matchers: [...without.matchers, { name: m.name, op: '=', value: v }] }) });
    },
    last: () => set({ from: toSpec(lastMs - 15 * 60e3), to: toSpec(lastMs + 1000) }),
    recent: () => set({ from: 'now-1h', to: 'now' }),
    retry: on.load,
    clear: () => set({ f: [] }),
    dropStep: () => set({ step: '' }),
    widen: on.widen,
  };
  const draw = () => render(states.empty(view, acts), el);
  draw();
  /* what would help, asked only here */
  try {
    await slot.run(async (signal) => {
      if (e.why === 'no_match' && without && m) view.known = (await api.values(m.name, { from: url.from, to: url.to, q: writeSelector(without), limit: VALUES }, signal)).slice(0, MOST);
      else if (e.why === 'type_absent') view.known = (await api.types({ from: url.from, to: url.to }, signal)).slice(0, MOST).map((/** @type {{name:string}} */ t) => t.name);
      else if (e.why === 'never_ingested' || e.why === 'no_agent_in_range') view.agents = (await api.status(signal)).agents.slice(0, AGENTS).map(agentLine);
    });
  } catch {
    return; // the state stands without it
  }
  if (document.body.dataset['state'] === 'empty') draw();
}

/** @param {api.Status['agents'][number]} g */
function agentLine(g) {
  const bad = g.sources.find((/** @type {{state:string}} */ x) => x.state && x.state !== 'ok');
  return {
    host: g.host,
    seen: g.lastNs ? `last seen ${dateTime(g.lastNs / 1e6, prefs.get().utc)}` : 'never seen',
    trouble: bad ? `${bad.name}: ${bad.state}${bad.why ? ` (${bad.why})` : ''}` : '',
  };
}
