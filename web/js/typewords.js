// SPDX-License-Identifier: Apache-2.0
/** What the types of agents measure, a line each; docs/units.md and docs/offcpu.md say more. */
import { lookup } from './safe.js';

/** @type {Readonly<Record<string, string>>} */
export const TYPE_WORDS = lookup({
  cpu: 'Time a thread ran on a CPU. Sampled: an estimate.',
  offcpu: 'Time a thread was blocked, until something woke it. Every interval is measured: exact. gil_wait lies inside it.',
  runq: 'Time a thread could run and had no CPU. Every interval is measured: exact. Beside offcpu, not inside it.',
  gil_held: 'CPU time while holding Python’s lock. Sampled: an estimate. Lies inside cpu.',
  gil_wait: 'Time blocked on Python’s lock. Lies inside offcpu. A lower bound: waits without a stack are not told apart.',
});

/** Why a program may have none of a type, '' where every program has it. @param {string} type */
export function whyNone(type) {
  if (type === 'gil_held') return 'Only Python programs have it.';
  if (type === 'gil_wait') return 'Only Python programs have it; offcpu.enabled = auto observes those with several threads.';
  return type === 'offcpu' || type === 'runq' ? 'offcpu.enabled = auto observes only Python programs with several threads: on, or the name of the service, takes others in.' : '';
}
