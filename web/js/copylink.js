// SPDX-License-Identifier: Apache-2.0
/** The link to what is seen, for somebody else: relative times become fixed ones. */
import { count } from './fmt.js';
import { copy, toast } from './notify.js';
import { isRelative, toSpec } from './time.js';
import { encode } from './url.js';

const LONGEST_LINK = 8000; // bytes; what is longer is cut on its way

/** @param {import('./url.js').State} s @param {{from:number, to:number}|undefined} r the range as the server resolved it, ms @param {boolean} asIs relative times stay */
export function copyLink(s, r, asIs) {
  const freeze = !asIs && r && Number.isFinite(r.from) && (isRelative(s.from) || isRelative(s.to));
  const link = location.origin + location.pathname + encode(freeze ? { ...s, from: toSpec(r.from), to: toSpec(r.to) } : s);
  if (link.length > LONGEST_LINK) toast(`The link would have ${count(link.length)} bytes, more than ${count(LONGEST_LINK)}: use fewer or shorter filters`);
  else copy(link, freeze ? 'Link copied, with fixed times' : 'Link copied');
}
