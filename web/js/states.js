// SPDX-License-Identifier: Apache-2.0
/** Loading, empty, error: each says what is so and what to do next. No fake data, no spinner without words. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { icon } from './icons.js';
import { show } from './safe.js';
import { whyNone } from './typewords.js';

const SLOW_S = 10;

/** @param {number} seconds @param {() => void} cancel @param {boolean} blank no picture behind it */
export function loading(seconds, cancel, blank) {
  return html`<div class="state state-loading" role="status">
    ${blank ? html`<div class="skeleton" aria-hidden="true">${[0, 1, 2, 3, 4, 5, 6, 7].map((i) => html`<i class="sk${i}"></i>`)}</div>` : nothing}
    <div class="state-card">
      <p>Reading profiles… <b>${seconds} s</b></p>
      ${seconds >= SLOW_S ? html`<p class="hint">Slow. A shorter range, another label or a filter is less to read.</p>` : nothing}
      <button class="button" type="button" @click=${cancel}>Cancel</button>
    </div>
  </div>`;
}

/**
 * @typedef {object} EmptyView
 * @property {string} why
 * @property {string} matcher    the one that removes everything
 * @property {string} range      in words
 * @property {string} last       time of the newest sample in words, '' unknown
 * @property {string} covered    "60 s of 60 s"
 * @property {string} type
 * @property {string[]} known    values of the matcher's label, or types that exist
 * @property {{host:string, seen:string, trouble:string}[]} agents
 * @property {string} origin     this server's address
 *
 * @typedef {object} EmptyActs
 * @property {() => void} drop       remove the matcher
 * @property {(v: string) => void} use  take this value (or type)
 * @property {() => void} last       go to the newest data
 * @property {() => void} recent     the last hour
 * @property {() => void} retry
 * @property {() => void} clear     no filters
 * @property {() => void} dropStep  no step
 * @property {() => void} widen
 */

/** @param {EmptyView} e @param {EmptyActs} act */
export function empty(e, act) {
  const button = (/** @type {string} */ text, /** @type {() => void} */ run, primary = true) =>
    html`<button class="button ${primary ? 'primary' : ''}" type="button" @click=${run}>${text}</button>`;
  const chips = (/** @type {string[]} */ list) =>
    html`<div class="chips">
      ${list.map((v) => html`<button class="chip" type="button" @click=${() => act.use(v)}><bdi>${show(v)}</bdi></button>`)}
    </div>`;
  const code = (/** @type {string} */ s) => html`<code><bdi>${show(s)}</bdi></code>`;
  const agents = e.agents.length
    ? html`<ul class="agents">
        ${e.agents.map((a) => html`<li><bdi>${show(a.host)}</bdi> · ${a.seen}${a.trouble ? html` · <b><bdi>${show(a.trouble)}</bdi></b>` : nothing}</li>`)}
      </ul>`
    : nothing;
  const none = whyNone(e.type) ? html`<p>${whyNone(e.type)}</p>` : nothing;
  const lastSeen = e.last ? html`The newest sample is from <b>${e.last}</b>.` : nothing;

  /** @type {{head:string, text:unknown, more?:unknown, acts:unknown}} */ let s;
  switch (e.why) {
    case 'never_ingested':
      s = {
        head: 'Nothing has arrived yet',
        text: e.agents.length
          ? 'Agents are known to this server, but no profile of theirs has arrived:'
          : 'No agent has sent a profile to this server.',
        more: html`${agents}
          <p class="hint">Start an agent on the machine you want to see, as root:</p>
          <pre class="command" tabindex="0" aria-label="Command for root">strata-agent -o server.url=${e.origin}</pre>
          <p class="hint">Without rights, for one program of your own:</p>
          <pre class="command" tabindex="0" aria-label="Command without rights">strata record -- PROGRAM</pre>`,
        acts: button('Look again', act.retry),
      };
      break;
    case 'no_agent_in_range':
      s = {
        head: 'No agent was running then',
        text: html`Nothing was sampled in ${e.range}. ${lastSeen}`,
        more: agents,
        acts: html`${e.last ? button('Go to the newest data', act.last) : nothing}${button('Last 1 h', act.recent, !e.last)}`,
      };
      break;
    case 'no_match':
      s = {
        head: 'The selector matches nothing',
        text: e.matcher
          ? html`No series has ${code(e.matcher)} in ${e.range}.`
          : html`No series has these labels in ${e.range}.`,
        more: html`${none}${e.known.length ? html`<p class="hint">Values that exist:</p>${chips(e.known)}` : nothing}`,
        acts: e.matcher ? button('Remove this matcher', act.drop) : button('Last 1 h', act.recent),
      };
      break;
    case 'type_absent':
      s = {
        head: `${show(e.type)} is not collected here`,
        text: html`No series of type ${code(e.type)} in ${e.range}.`,
        more: html`${none}${e.known.length ? html`<p class="hint">What is collected:</p>${chips(e.known)}` : nothing}`,
        acts: button('Last 1 h', act.recent, false),
      };
      break;
    case 'no_steps':
      s = {
        head: 'No such step here',
        text: html`Nothing is known of these steps in ${e.range}, so nothing can be said of what they used.`,
        acts: button('Without the step', act.dropStep),
      };
      break;
    case 'filtered_out':
      s = {
        head: 'The filters removed everything',
        text: 'Samples exist here, and none of them passes.',
        acts: button('Clear the filters', act.clear),
      };
      break;
    case 'expired':
      s = {
        head: 'Older than what is kept',
        text: html`The range (${e.range}) lies before the oldest data of this server. ${lastSeen}`,
        acts: html`${e.last ? button('Go to the newest data', act.last) : nothing}${button('Last 1 h', act.recent, !e.last)}`,
      };
      break;
    case 'future':
      s = {
        head: 'This time has not come yet',
        text: html`The range (${e.range}) lies in the future of the server’s clock. ${lastSeen}`,
        acts: button('Last 1 h', act.recent),
      };
      break;
    case 'zero':
      s = {
        head: 'Sampled, and nothing ran',
        text: html`The time is covered (${e.covered}) and the value is 0: nothing that matches used any ${show(e.type)}.`,
        acts: button('Twice the time', act.widen),
      };
      break;
    default:
      s = {
        head: 'Nothing to show',
        text: html`The server gives the reason ${code(e.why || 'none')}.`,
        acts: button('Look again', act.retry),
      };
  }
  return html`<div class="state" role="status" data-why=${e.why}>
    <div class="state-card wide">
      <span class="state-icon">${icon(e.why === 'never_ingested' ? 'clock' : 'search')}</span>
      <h2>${s.head}</h2>
      <p>${s.text}</p>
      ${s.more ?? nothing}
      <div class="state-actions">${s.acts}</div>
    </div>
  </div>`;
}

/**
 * @param {{message:string, code:string, requestId:string, status:number, setting?:string, limit?:number, actual?:number, param?:string}} e
 * @param {number} retryIn seconds until it is tried again by itself, 0: it is not
 * @param {{retry: () => void, curl: () => void, narrower?: () => {text:string, run:() => void}|null}} act
 */
export function error(e, retryIn, act) {
  const head =
    e.status === 0
      ? 'The server cannot be reached'
      : e.status === 503
        ? 'The server is busy'
        : e.status === 422
          ? 'This question is too large'
          : e.status === 401 || e.status === 403
            ? 'Not allowed'
            : e.status >= 500
              ? 'The server failed'
              : e.code === 'bad_answer'
                ? 'The answer makes no sense'
                : 'This question was refused';
  const todo =
    e.status === 422 && !/narrow/i.test(e.message)
      ? 'Narrow the selector (another label) or the time range.'
      : e.status === 401 || e.status === 403
        ? 'This server wants a token with the role “read”.'
        : e.status === 0
          ? 'Nothing answers at this address. Is stratad running, and is the network there? It is asked again by itself.'
          : e.status >= 500 && e.status !== 503
            ? 'Its log holds more under the number of the request.'
            : '';
  const less = e.status === 422 ? (act.narrower?.() ?? null) : null;
  return html`<div class="state" role="alert">
    <div class="state-card wide error">
      <span class="state-icon">${icon('warn')}</span>
      <h2>${head}</h2>
      ${e.status === 0 ? nothing : html`<p><bdi>${show(e.message)}</bdi></p>`}
      ${todo ? html`<p>${todo}</p>` : nothing}
      <p class="hint">
        <code>${show(e.code)}</code>${e.param ? html` · parameter <code>${show(e.param)}</code>` : nothing}${
          e.setting ? html` · <code>${show(e.setting)}</code> ${e.limit ?? ''}, asked ${e.actual ?? ''}` : nothing
        }${e.requestId ? html` · request <code>${show(e.requestId)}</code>` : nothing}${
          retryIn ? html` · next try in ${retryIn} s` : nothing
        }
      </p>
      <div class="state-actions">
        ${less ? html`<button class="button primary" type="button" @click=${less.run}>${less.text}</button>` : nothing}<button class="button ${less ? '' : 'primary'}" type="button" @click=${act.retry}>Retry</button>
        <button class="button" type="button" @click=${act.curl}>Copy as curl</button>
      </div>
    </div>
  </div>`;
}
