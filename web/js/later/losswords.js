// SPDX-License-Identifier: Apache-2.0
/** What the reasons of base/loss.h mean, in a line each; a test compares the words. A newer reason has its name alone. */
import { lookup } from '../safe.js';

/** @type {Readonly<Record<string, string>>} */
export const LOSS = lookup({
  ticks_missed: 'ticks that never fired while the CPU was busy',
  ticks_missed_idle: 'ticks that never fired in idle time',
  ring_full: 'a record refused by a full ring',
  spool_drop: 'batches given up by a full spool',
  send_rejected: 'batches or rows refused by the server',
  replay_failed: 'an acknowledged batch that no longer decodes',
  trunc: 'stack deeper than the limit of frames',
  nomap: 'no mapping known at an address of the stack',
  notable: 'unwind table not built yet, failed or evicted',
  noinfo: 'no unwind information at an address',
  invalid: 'unwind rule that cannot be expressed',
  readfault: 'stack memory not readable at that moment',
  zeropc: 'return address 0 in the middle of a stack',
  badsp: 'stack pointer did not grow',
  badfp: 'implausible frame pointer',
  noproc: 'process not known yet',
  exiting: 'thread was exiting, its memory gone',
  compat32: '32-bit process',
  table_full: 'fold table of the window full',
  recursion: 'a probe inside a probe',
  damaged: 'dictionary entry that cannot be read',
  kernel_hidden: 'CPU time in kernel mode, hidden from users',
  gil_unreadable: "Python's lock could not be read at that tick",
  short: 'off the CPU for less than min_block',
  throttled: 'no stack: more switches than stacks_per_s',
  not_run: 'a new thread that has not run yet',
  ring_refused: 'a stack refused by a full ring',
});
