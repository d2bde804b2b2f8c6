// SPDX-License-Identifier: Apache-2.0
/** An answer that is an error: said in the graph's place; a busy server is asked again by itself. */
import { ApiError } from './api.js';
import { render } from '../vendor/lit-html/lit-html.js';
import * as states from './states.js';
import { BadAnswer } from './tree.js';

let timer = 0;
let gone = 0; // seconds between two tries of a server that cannot be reached

/** Nothing is tried again by itself any more. */
export const stopRetry = () => clearInterval(timer);
/** An answer came: the next trouble is a new one. */
export const reached = () => (gone = 0);

/**
 * @param {HTMLElement} el @param {Error} e
 * @param {{retry: () => void, curl: () => void, wrong: (param: string, message: string) => void, narrower?: () => {text:string, run:() => void}|null}} on
 */
export function showError(el, e, on) {
  const bad = e instanceof BadAnswer;
  const x =
    e instanceof ApiError ? e : { message: e.message, code: bad ? 'bad_answer' : 'client', requestId: '', status: bad ? 200 : 1, retryAfter: 0, param: '' };
  if (!(e instanceof ApiError) && !bad) console.error(e);
  document.body.dataset['state'] = 'error';
  on.wrong(x.param, x.message);
  /* a server that is gone comes back: asked again, each time later */
  if (x.status === 0) gone = Math.min(60, gone ? gone * 2 : 2);
  else gone = 0;
  let left = x.status === 503 ? Math.max(1, Math.ceil(x.retryAfter || 2)) : gone;
  const draw = () => render(states.error(x, left, on), el);
  draw();
  stopRetry();
  if (left)
    timer = setInterval(() => {
      if (--left > 0) draw();
      else {
        stopRetry();
        on.retry();
      }
    }, 1000);
}
