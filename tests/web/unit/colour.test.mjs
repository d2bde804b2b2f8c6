// SPDX-License-Identifier: Apache-2.0
/** Contrast of text and distance of colours that are told apart, of every token, in both themes and for four kinds of eyes. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const css = readFileSync(new URL('../../../web/css/tokens.css', import.meta.url), 'utf8').split('@media')[0];
/** name -> [light, dark], each linear RGB 0..1 */
const TOKENS = Object.fromEntries(
  [...css.matchAll(/--([\w-]+):\s*(?:light-dark\((#[0-9a-f]{6}),\s*(#[0-9a-f]{6})\)|(#[0-9a-f]{6}))/g)].map((m) => [m[1], [m[2] ?? m[4], m[3] ?? m[4]].map(linear)]),
);
function linear(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
}
const luminance = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};
/* Machado, Oliveira, Fernandes 2009, severity 1; on linear RGB */
const EYES = {
  normal: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  protan: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  deutan: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  tritan: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};
const seen = (c, m) => [0, 3, 6].map((r) => Math.min(1, Math.max(0, m[r] * c[0] + m[r + 1] * c[1] + m[r + 2] * c[2])));
function oklab([r, g, b]) {
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b),
    m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b),
    s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s, 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
}
const distance = (a, b) => 100 * Math.hypot(...oklab(a).map((x, i) => x - oklab(b)[i]));
const THEMES = ['light', 'dark'];

test('text is read on every surface: 4.5 to 1', () => {
  for (const [i, theme] of THEMES.entries())
    for (const surface of ['bg', 'panel', 'raised', 'sunken'])
      for (const text of ['text', 'muted', 'accent', 'warn', 'error', 'ok']) {
        const c = contrast(TOKENS[text][i], TOKENS[surface][i]);
        /* what is only ever a word of state stands on bg, panel and raised */
        if (surface === 'sunken' && ['ok', 'accent', 'warn', 'error'].includes(text)) continue;
        assert.ok(c >= 4.5, `${theme}: ${text} on ${surface} ${c.toFixed(2)}`);
      }
  for (const [i, theme] of THEMES.entries()) {
    for (const [text, on] of [['accent', 'accent-bg'], ['warn', 'warn-bg'], ['error', 'error-bg'], ['on-accent', 'accent'], ['text', 'level'], ['text', 'hidden']]) assert.ok(contrast(TOKENS[text][i], TOKENS[on][i]) >= 4.5, `${theme}: ${text} on ${on} ${contrast(TOKENS[text][i], TOKENS[on][i]).toFixed(2)}`);
    for (const line of ['border', 'series-cpu', ...[0, 1, 2, 3, 4, 5].map((k) => `line-${k}`)]) assert.ok(contrast(TOKENS[line][i], TOKENS.bg[i]) >= 3, `${theme}: ${line} ${contrast(TOKENS[line][i], TOKENS.bg[i]).toFixed(2)}`);
  }
});
test('names are read on every frame: 4.5 to 1, the second lightness too', () => {
  for (const o of ['python', 'native', 'framework', 'cuda', 'comm', 'kernel', 'gpu', 'other']) {
    const ink = TOKENS[o === 'other' ? 'frame-ink-inv' : 'frame-ink'][0];
    assert.ok(contrast(TOKENS[`origin-${o}`][0], ink) >= 4.5, `${o} ${contrast(TOKENS[`origin-${o}`][0], ink).toFixed(2)}`);
  }
  for (const [i, theme] of THEMES.entries())
    for (const k of ['more', 'less'])
      for (const n of [1, 2, 3]) {
        const best = Math.max(...['frame-ink', 'frame-ink-inv'].map((t) => contrast(TOKENS[`diff-${k}-${n}`][i], TOKENS[t][i])));
        assert.ok(best >= 4.5, `${theme}: diff ${k} ${n} ${best.toFixed(2)}`);
      }
});
test('origins are 11 apart, the groups of a comparison 7, for normal, protan, deutan and tritan eyes', () => {
  const origins = Object.keys(TOKENS).filter((t) => t.startsWith('origin-'));
  assert.equal(origins.length, 8);
  for (const [eye, m] of Object.entries(EYES)) {
    for (const a of origins) for (const b of origins) if (a < b) {
      const d = distance(seen(TOKENS[a][0], m), seen(TOKENS[b][0], m));
      assert.ok(d >= 11, `${eye}: ${a} ${b} ${d.toFixed(1)}`);
    }
    for (const [i, theme] of THEMES.entries())
      for (const n of [1, 2, 3]) {
        const [more, less, grey] = [`diff-more-${n}`, `diff-less-${n}`, 'hidden'].map((t) => seen(TOKENS[t][i], m));
        for (const [what, d] of [['more, less', distance(more, less)], ['more, grey', distance(more, grey)], ['less, grey', distance(less, grey)]]) assert.ok(d >= 7, `${eye} ${theme} ${n}: ${what} ${d.toFixed(1)}`);
      }
  }
});
