// SPDX-License-Identifier: Apache-2.0
/**
 * Times as the API takes them: `now`, `now-15m`, RFC 3339, an integer with a unit, or 16 digits and
 * more of nanoseconds. Pure; milliseconds in doubles, because a screen has no finer pixel.
 */

const UNIT_MS = /** @type {Record<string, number>} */ ({
  ns: 1e-6,
  us: 1e-3,
  ms: 1,
  s: 1e3,
  m: 60e3,
  h: 3600e3,
  d: 86400e3,
  w: 604800e3,
});
const RELATIVE = /^now(?:-(\d{1,9})(ns|us|ms|s|m|h|d|w))?$/;
const INTEGER = /^(\d{1,19})(s|ms|us|ns)$/;
const RFC3339 = /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(:\d\d)?(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)?$/;

/** Is it relative to now? @param {string} text */
export const isRelative = (text) => RELATIVE.test(text);

/**
 * Milliseconds since 1970, NaN if it is no time.
 * @param {string} text @param {number} now milliseconds
 */
export function toMs(text, now) {
  const rel = text.match(RELATIVE);
  if (rel) return rel[1] ? now - Number(rel[1]) * /** @type {number} */ (UNIT_MS[rel[2] ?? 's']) : now;
  const int = text.match(INTEGER);
  if (int) return Number(int[1]) * /** @type {number} */ (UNIT_MS[int[2] ?? 's']);
  if (/^\d{16,19}$/.test(text)) return Number(text) / 1e6;
  const m = text.match(RFC3339);
  if (!m || !m[5]) return NaN;
  return Date.parse(`${m[1]}T${m[2]}${m[3] ?? ':00'}${(m[4] ?? '').slice(0, 4)}${m[5].toUpperCase()}`);
}

/** Milliseconds -> what the URL and the API take, to the millisecond. @param {number} ms */
export function toSpec(ms) {
  const s = new Date(Math.round(ms)).toISOString();
  return s.endsWith('.000Z') ? `${s.slice(0, 19)}Z` : s;
}

/**
 * What a person typed into a time field -> API text, '' if it is no time. A date without a zone is
 * in the zone that the screen shows.
 * @param {string} text @param {boolean} utc
 */
export function fromField(text, utc) {
  const t = text.trim();
  if (isRelative(t) || INTEGER.test(t) || /^\d{16,19}$/.test(t)) return t;
  const m = t.match(RFC3339);
  if (!m) return '';
  const iso = `${m[1]}T${m[2]}${m[3] ?? ':00'}${(m[4] ?? '').slice(0, 4)}`;
  const ms = Date.parse(m[5] ? `${iso}${m[5].toUpperCase()}` : utc ? `${iso}Z` : iso);
  return Number.isNaN(ms) ? '' : toSpec(ms);
}

const pad = (/** @type {number} */ n) => String(n).padStart(2, '0');

/** @param {number} ms @param {boolean} utc */
function parts(ms, utc) {
  const d = new Date(ms);
  return utc
    ? { y: d.getUTCFullYear(), mo: d.getUTCMonth() + 1, d: d.getUTCDate(), h: d.getUTCHours(), mi: d.getUTCMinutes(), s: d.getUTCSeconds() }
    : { y: d.getFullYear(), mo: d.getMonth() + 1, d: d.getDate(), h: d.getHours(), mi: d.getMinutes(), s: d.getSeconds() };
}

/** 14:02 or 14:02:10. @param {number} ms @param {boolean} utc */
export function clock(ms, utc, seconds = false) {
  const p = parts(ms, utc);
  return `${pad(p.h)}:${pad(p.mi)}${seconds ? `:${pad(p.s)}` : ''}`;
}
/** 2026-11-29. @param {number} ms @param {boolean} utc */
export function day(ms, utc) {
  const p = parts(ms, utc);
  return `${p.y}-${pad(p.mo)}-${pad(p.d)}`;
}
/** 2026-11-29 14:02:10. @param {number} ms @param {boolean} utc */
export const dateTime = (ms, utc) => `${day(ms, utc)} ${clock(ms, utc, true)}`;

const WORDS = /** @type {Record<string, string>} */ ({ s: 's', m: 'min', h: 'h', d: 'd', w: 'weeks', ms: 'ms', us: 'µs', ns: 'ns' });

/** The range in words. @param {string} from @param {string} to @param {number} now @param {boolean} utc */
export function rangeText(from, to, now, utc) {
  const rel = from.match(RELATIVE);
  if (rel && rel[1] && to === 'now') return `Last ${rel[1]} ${WORDS[rel[2] ?? 's']}`;
  const a = toMs(from, now),
    b = toMs(to, now);
  if (Number.isNaN(a) || Number.isNaN(b)) return `${from} – ${to}`;
  const zone = utc ? ' UTC' : '';
  return day(a, utc) === day(b, utc)
    ? `${day(a, utc)} ${clock(a, utc, true)} – ${clock(b, utc, true)}${zone}`
    : `${dateTime(a, utc)} – ${dateTime(b, utc)}${zone}`;
}

/** 90 s -> "1 min 30 s". @param {number} ms */
export function span(ms) {
  const s = Math.round(ms / 1000);
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 ? ` ${s % 60} s` : ''}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${Math.floor((s % 3600) / 60) ? ` ${Math.floor((s % 3600) / 60)} min` : ''}`;
  return `${Math.floor(s / 86400)} d${Math.floor((s % 86400) / 3600) ? ` ${Math.floor((s % 86400) / 3600)} h` : ''}`;
}

const SMALLEST_MS = 1000;

/**
 * Move or scale a range: `by` in its own widths, `scale` 2 is twice as wide around its middle. Never
 * past now when it was not past it before.
 * @param {number} a @param {number} b @param {number} by @param {number} scale @param {number} now
 * @returns {[number, number]}
 */
export function moved(a, b, by, scale, now) {
  const wide = Math.max(SMALLEST_MS, (b - a) * scale),
    mid = (a + b) / 2 + (b - a) * by;
  let from = mid - wide / 2,
    to = mid + wide / 2;
  if (to > now && b <= now + SMALLEST_MS) {
    from -= to - now;
    to = now;
  }
  return [from, to];
}

/** Parts of `step=NAME[:FIRST[-LAST]]`. @param {string} text */
export function stepOf(text) {
  const m = text.match(/^(.*?)(?::(\d{1,20})(?:-(\d{1,20}))?)?$/s);
  return { name: m?.[1] ?? '', first: m?.[2] ?? '', last: m?.[3] ?? m?.[2] ?? '' };
}
