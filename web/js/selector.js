// SPDX-License-Identifier: Apache-2.0
/**
 * The selector `type{name op "value", …}`: text <-> parts. The server decides what is valid; this
 * module says where a text stops making sense, so that the error can stand at the place. Pure.
 */

/** @typedef {{name:string, op:string, value:string}} Matcher */
/** @typedef {{type:string, matchers:Matcher[]}} Selector */

export class SelectorError extends Error {
  /** @param {string} message @param {number} at index into the text */
  constructor(message, at) {
    super(message);
    this.at = at;
  }
}

export const OPS = /** @type {const} */ (['=', '!=', '=~', '!~']);
const PLAIN_NAME = /^[A-Za-z_][A-Za-z0-9_.]*/;
const TYPE = /^[A-Za-z_][A-Za-z0-9_.]*(:[A-Za-z0-9_./%-]+){0,2}/;

/** @param {string} text @returns {Selector} @throws {SelectorError} */
export function parseSelector(text) {
  let i = 0;
  const space = () => {
    while (i < text.length && /\s/.test(text.charAt(i))) i++;
  };
  const fail = (/** @type {string} */ message) => {
    throw new SelectorError(message, i);
  };
  space();
  const type = text.slice(i).match(TYPE)?.[0] ?? '';
  i += type.length;
  space();
  /** @type {Matcher[]} */ const matchers = [];
  if (i === text.length) return { type, matchers };
  if (text[i] !== '{') fail('expected “{” or the end');
  i++;
  for (;;) {
    space();
    if (text[i] === '}') break;
    const plain = text.slice(i).match(PLAIN_NAME)?.[0] ?? '';
    const name = plain || (text[i] === '"' || text[i] === '`' ? quoted() : '');
    if (!name) fail('expected a label name');
    i += plain.length;
    space();
    const op = ['=~', '!~', '!=', '='].find((o) => text.startsWith(o, i)) ?? '';
    if (!op) fail('expected = != =~ or !~');
    i += op.length;
    space();
    if (text[i] !== '"' && text[i] !== '`') fail('expected a value in quotes');
    matchers.push({ name, op, value: quoted() });
    space();
    if (text[i] === ',') i++;
    else if (text[i] !== '}') fail('expected “,” or “}”');
  }
  i++;
  space();
  if (i < text.length) fail('text after “}”');
  return { type, matchers };

  function quoted() {
    const q = text[i++];
    let out = '';
    for (; i < text.length; i++) {
      const c = text.charAt(i);
      if (c === q) {
        i++;
        return out;
      }
      if (c !== '\\' || q === '`') {
        out += c;
        continue;
      }
      const e = text.charAt(++i);
      const hex = e === 'x' ? text.substr(i + 1, 2) : e === 'u' ? text.substr(i + 1, 4) : '';
      if (e === '\\' || e === '"') out += e;
      else if (e === 'n') out += '\n';
      else if (hex.length === (e === 'x' ? 2 : 4) && /^[0-9a-fA-F]+$/.test(hex)) {
        out += String.fromCharCode(parseInt(hex, 16));
        i += hex.length;
      } else fail(`unknown escape \\${e}`);
    }
    return fail('no closing quote') ?? '';
  }
}

/** @param {string} s */
function quote(s) {
  let out = '"';
  for (const c of s) {
    const n = c.charCodeAt(0);
    if (c === '"' || c === '\\') out += `\\${c}`;
    else if (c === '\n') out += '\\n';
    else if (n < 32 || n === 127) out += `\\u${n.toString(16).padStart(4, '0')}`;
    else out += c;
  }
  return `${out}"`;
}

/** @param {Matcher} m */
export function writeMatcher(m) {
  const name = m.name.match(PLAIN_NAME)?.[0] === m.name ? m.name : quote(m.name);
  return `${name}${m.op}${quote(m.value)}`;
}

/** @param {Selector} s */
export function writeSelector(s) {
  return s.type + (s.matchers.length ? `{${s.matchers.map(writeMatcher).join(', ')}}` : '');
}

const WHOLE_SOURCE = ['host', 'capture', 'source'];
/** Does it take a part of a source, so that what the source lost need not be its own? @param {string} text */
export const takesPart = (text) => trySelector(text)?.matchers.some((m) => !WHOLE_SOURCE.includes(m.name)) ?? false;

/** The parts, or null where the text is none: for panels that must draw whatever the URL says. @param {string} text */
export function trySelector(text) {
  try {
    return parseSelector(text);
  } catch {
    return null;
  }
}
