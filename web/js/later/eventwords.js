// SPDX-License-Identifier: Apache-2.0
/** What events say, in a sentence each: the table of docs/events.md, a test compares them. Pure. */
import { total } from '../fmt.js';
import { show } from '../safe.js';

const FIELD = /(\w+)=("[^"]*"|\S+)/g;
const RATES = ['period_ns', 'was_ns'];

/** Kind, the fields it must have, sentence; the first that fits. @type {readonly (readonly [string, string, string])[]} */
export const EVENTS = [
  ['restart', 'before=killed not_covered_ns', 'The agent was killed and began again; {not_covered_ns} before that are not covered.'],
  ['restart', 'before=stopped not_covered_ns', 'The agent was stopped and began again; {not_covered_ns} before that are not covered.'],
  ['restart', 'before=killed', 'The agent was killed and began again.'],
  ['restart', 'before=stopped', 'The agent was stopped and began again.'],
  ['restart', 'before=first', 'The agent began, for the first time here.'],
  ['restart', '', 'The agent began again.'],
  ['capture', 'period_ns', 'A capture of strata record began, at {period_ns}.'],
  ['clock_step', 'by_ns', 'The clock of the machine was set by {by_ns}.'],
  ['suspend', 'dur_ns', 'The machine slept for {dur_ns}; that time is not covered.'],
  ['restraint', 'source=cpu cause=cpu', 'The agent cost more than it may: it samples at {period_ns}, before at {was_ns}.'],
  ['restraint', 'source=cpu cause=ring_full', 'Samples came faster than they were read: the agent samples at {period_ns}, before at {was_ns}.'],
  ['restraint', 'source=cpu cause=recovered', 'The agent has room again: it samples at {period_ns}, before at {was_ns}.'],
  ['restraint', 'source=offcpu cause=cpu', 'Time off the CPU cost more than it may: fewer waits get a stack.'],
  ['restraint', 'source=offcpu cause=ring_full', 'Waits came faster than they were read: fewer of them get a stack.'],
  ['restraint', 'source=offcpu cause=recovered', 'The agent has room again: more waits get a stack.'],
  ['restraint', 'source=memory cause=recovered', 'The agent holds {memory_bytes}, less than it may: it keeps more symbols and unwind tables again.'],
  ['restraint', 'source=memory now=tables_refused', 'The agent holds {memory_bytes}, it may {limit_bytes}: no new unwind tables, so stacks of new programs are cut.'],
  ['restraint', 'source=memory now=tables_evicted', 'The agent holds {memory_bytes}, it may {limit_bytes}: new unwind tables replace old ones.'],
  ['restraint', 'source=memory', 'The agent holds {memory_bytes}, it may {limit_bytes}: it keeps fewer symbols.'],
  ['restraint', 'source=spool fold=none', 'What waits for the server is little again: rows of a second.'],
  ['restraint', 'source=spool fold=rows_10s', 'Much waits for the server: rows of 10 s instead of a second.'],
  ['restraint', 'source=spool', 'Very much waits for the server: rows of 10 s, and the threads of a process as one.'],
  ['state', 'source=cpu state=ok', 'The agent samples.'],
  ['state', 'source=offcpu state=refused', 'Time off the CPU is not seen: {why}.'],
  ['state', 'source=steps state=refused', 'Steps that programs mark are not seen: {why}.'],
  ['state', 'source=steps pid', 'Process {pid}, steps: {why}.'],
  ['state', 'source=steps file why', 'Steps that {file} marks are not seen: {why}.'],
  ['state', 'source=steps file', 'Steps that {file} marks are not seen.'],
  ['state', 'source=python why', 'The Python of process {pid} is not read ({why}): its stacks are native alone.'],
  ['state', 'source=reader', 'The part of the agent that reads files ended ({before}) and began again.'],
  ['state', 'source=spool damaged', 'Damaged files in the spool were set aside: {damaged}.'],
  ['state', 'source=spool state=ok', 'Batches are kept on disk again.'],
  ['state', 'source=spool', 'Batches are not kept on disk: {state}.'],
  ['state', 'source=kernel_symbols', 'Names of the kernel: {state}.'],
  ['state', 'check', 'This machine lacks {check}: {why}.'],
  ['cgroupns', '', 'Containers have no names: the agent does not run in the host’s cgroup namespace.'],
  ['cpu_mismatch', 'pid', 'Process {pid}: samples say {profiled_ns} of CPU, the kernel {clock_ns}; further apart than chance.'],
  ['identity', '', 'A sum that must hold does not: a bug of Strata, please report it.'],
  ['py_doubtful', 'pid', 'Process {pid}: {errors} of {samples} Python stacks could not be read.'],
];

/** Fields of a text. @param {string} text @returns {Map<string, string>} */
const fieldsOf = (text) => new Map([...text.matchAll(FIELD)].map((m) => [m[1] ?? '', (m[2] ?? '').replace(/^"|"$/g, '')]));

/** A field as a person reads it. @param {string} name @param {string} value */
function word(name, value) {
  const n = Number(value);
  if (value === '' || !Number.isFinite(n)) return show(value);
  if (RATES.includes(name) && n > 0) return `${Math.round(1e9 / n)}\u202fHz`;
  const unit = name.endsWith('_ns') ? 'nanoseconds' : name.endsWith('_bytes') ? 'bytes' : '';
  return unit ? total(n, { id: '', name: '', unit, kind: 'sum' }) : show(value);
}

/** What is said of an event, and its code. @param {{kind:string, text:string}} e */
export function eventWords(e) {
  const fields = fieldsOf(e.text),
    code = `${show(e.kind)}${e.text ? `: ${show(e.text)}` : ''}`;
  const has = (/** @type {string} */ need) =>
    need.split(' ').every((x) => {
      const [name = '', value] = x.split('=');
      return x === '' || (value === undefined ? fields.has(name) : fields.get(name) === value);
    });
  const row = EVENTS.find(([kind, need]) => kind === e.kind && has(need));
  return { code, sentence: row ? row[2].replace(/\{(\w+)\}/g, (_, name) => (fields.has(name) ? word(name, fields.get(name) ?? '') : 'unknown')) : `${show(e.kind.replaceAll('_', ' '))}${e.text ? `: ${show(e.text)}` : ''}` };
}
