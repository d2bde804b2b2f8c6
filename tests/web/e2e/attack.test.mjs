// SPDX-License-Identifier: Apache-2.0
/**
 * What nobody means to send: garbage in every key of the link, answers cut short and of other shapes, names
 * that are words of the language, ten thousand of everything, stacks ten thousand deep, values beyond all use.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { DEFAULTS } from '../../../web/js/url.js';
import * as answers from '../fixtures/answers.mjs';
import { steps } from '../fixtures/marks.mjs';
import { params, settled, start, text } from './harness.mjs';

let x, server, explore, asked;
before(async () => {
  x = await start();
  ({ server, explore, asked } = x);
});
after(() => x?.stop());
beforeEach(() => server.reset());

const KEYS = Object.keys(DEFAULTS);
const many = (n, f) => Array.from({ length: n }, (_, i) => f(i));
/** Nothing that is no number, no markup from text, nothing wider than the window. */
async function sound(page) {
  const r = await page.evaluate(() => ({ no: /\bNaN\b|Infinity|Invalid Date|\bundefined\b|\[object/.exec(document.body.innerText)?.[0] ?? '', pwn: window.__pwn, wide: document.documentElement.scrollWidth - innerWidth, dom: document.querySelectorAll('*').length }));
  assert.deepEqual([r.no, r.pwn], ['', undefined]);
  assert.ok(r.wide <= 0, `${r.wide} pixels too wide`);
  assert.ok(r.dom <= 4000, `${r.dom} elements`);
}
/** GET /flamegraph with these nodes and functions. */
const tree = (node, names, more = {}) => (p) => {
  const total = String(node.total[0]),
    n = node.depth.length;
  return {
    ...answers.flamegraph(server.treeOf('3k'), p),
    ...{ total, unfiltered: { total, samples: '9' }, view: { root: '0', asked: '0', found: true, path: [], total }, trim: { floor: '0', hidden_nodes: 0, hidden_total: '0' }, strings: names, n },
    func: { name: names.map((_, i) => i), file: names.map(() => 0), bin: names.map(() => 0), kind: names.map((_, i) => (i ? 'native' : '')), key: names.map((_, i) => i.toString(16).padStart(16, '0')) },
    node: { samples: node.total.map(() => 9), hidden: node.total.map(() => 0), ...node },
    ...more,
  };
};

test('every key of the link: empty, bytes that are no text, markup, words of the language, huge, many times over', async () => {
  const huge = 'x'.repeat(2500);
  const links = {
    ...Object.fromEntries(['', '%FF%FE%00', encodeURIComponent('<img src=x onerror=window.__pwn=1>'), '__proto__', '-1e999'].map((v) => [v, KEYS.map((k) => `${k}=${v}`).join('&')])),
    twice: KEYS.map((k) => `${k}=a&${k}=%00&${k}=now`).join('&'),
    filters: many(300, (i) => `f=keep:x${i}`).join('&'),
    ...Object.fromEntries([['by'], ['lane'], ['step'], ['s'], ['fn', '&view=sandwich'], ['any', '&view=table']].map(([k, rest = '']) => [`huge ${k}`, `${k}=${huge}${rest}`])),
    'huge selector': `q=${encodeURIComponent(`cpu{a="${huge}"}`)}&f=keep:${huge}`,
    backwards: 'from=now&to=now-1h',
    'a nanosecond': 'from=now-1ns&to=now',
    'years ahead': 'from=now%2B5y&to=now%2B6y&view=compare',
  };
  for (const [what, link] of Object.entries(links))
    await explore(`?${link}`, async (page) => {
      await settled(page);
      await sound(page).catch((e) => assert.fail(`${what}: ${e.message}`));
    }, { wait: false, expect: [/status of/] });
  await explore('', async (page) => {
    /* a notice goes by itself: whatever stood for a moment is kept */
    await page.addInitScript(() => {
      const seen = (window.toasts = []);
      new MutationObserver((list) => list.forEach((m) => m.addedNodes.forEach((n) => n.className === 'toast' && seen.push(n.textContent)))).observe(document, { childList: true, subtree: true });
    });
    await page.goto(`${server.url}/explore?from=yesterday&from=then&z=xyz&view=pie&color=9&sort=name&more=x`);
    await page.waitForFunction(() => window.toasts.length);
    assert.deepEqual(await page.evaluate(() => window.toasts), ['“from”, “z”, “view”, “color” and 2 more in the link are not understood: defaults used']);
  });
});

test('labels and types that are words of the language have no meaning of their own', async () => {
  const marks = steps();
  marks.row.labels = marks.row.labels.map(() => JSON.parse('{"constructor":"1","__proto__":"2"}'));
  server.state.say.set('/steps', () => marks);
  server.state.say.set('/types', () => ({ ...answers.types(), types: ['constructor', '__proto__', 'toString', 'cpu'].map((name) => ({ ...answers.types().types[0], id: `${name}:valueOf:sum`, name, unit: 'valueOf' })) }));
  server.state.say.set('/labels', () => ({ ...answers.labels(), labels: ['__proto__', 'hasOwnProperty'].map((name) => ({ name, values: 1, attribute: false })) }));
  for (const lane of ['__proto__', 'constructor', 'toString'])
    await explore(`?q=${lane}&more=steps&lane=${lane}&by=${lane}`, async (page) => {
      await page.waitForFunction(() => document.querySelector('#more table'));
      await page.locator('.type .button').click();
      assert.equal(await page.locator('.types .pick').count(), 4);
      assert.equal(await page.locator('.types .type-words').count(), 1, 'that of cpu');
      await sound(page);
    });
});

test('answers cut short, of another shape, nested without end: said where they belong, the rest stands', async () => {
  for (const body of ['{"v":1,"kind":"tree","no', '<html>busy</html>', 'null', '[]', '['.repeat(50_000)]) {
    server.reset();
    for (const path of ['/timeseries', '/types', '/labels', '/top', '/steps', '/events']) server.state.say.set(path, () => ({ status: 200, body }));
    await explore('?view=both', async (page) => {
      assert.match(await text(page, '#crumbs'), /3\.90 core-h/, 'the picture stands');
      await page.waitForFunction(() => document.querySelector('#table')?.innerText.length > 20);
      if (/^[{<]/.test(body)) assert.match(await text(page, '.chart-readout'), /could not be read/, 'trouble is not “no data”');
      await sound(page);
    });
    server.state.say.set('/flamegraph', () => ({ status: 200, body }));
    await explore('', async (page) => {
      assert.equal(await page.evaluate(() => document.body.dataset.state), 'error');
      await page.locator('.state .button', { hasText: 'Retry' }).waitFor();
      await sound(page);
    });
  }
});

test('ten thousand types, labels, values, series: found by a part of the name, drawn few', async () => {
  const list = answers.types();
  server.state.say.set('/types', () => ({ ...list, types: many(10_000, (i) => ({ ...list.types[0], id: `t${i}:nanoseconds:sum`, name: `t${i}` })) }));
  server.state.say.set('/labels', () => ({ ...answers.labels(), labels: many(10_000, (i) => ({ name: `l${i}`, values: 10_000, attribute: false })) }));
  server.state.say.set('/labels/l9999/values', () => ({ values: many(10_000, String), truncated: true, next: 'x' }));
  server.state.say.set('/timeseries', () => {
    const a = answers.timeseries(server.treeOf('3k'), new URLSearchParams({ by: 'host' }));
    return { ...a, series: many(1000, (i) => ({ ...a.series[i % 2], labels: { host: `h${i}` } })) };
  });
  await explore('?by=host', async (page) => {
    await page.locator('.type .button').click();
    await page.keyboard.type('t9998');
    await sound(page);
    await page.keyboard.press('Enter');
    await settled(page);
    assert.equal((await params(page)).q, 't9998');
    await page.locator('#selector .chip.add').click();
    await page.keyboard.type('l9999');
    assert.ok((await page.locator('#label-names option').count()) <= 200);
    assert.equal(await page.locator('#label-names option[value=l9999]').count(), 1);
    await page.keyboard.press('Escape');
    assert.ok((await page.locator('.option-by option').count()) <= 210);
    await sound(page);
  });
  server.state.say.set('/flamegraph', () => answers.empty('no_match', { matcher: 'l9999="x"' }));
  await explore(`?q=${encodeURIComponent('t1{l9999="x"}')}`, async (page) => {
    await settled(page);
    await sound(page);
  });
});

test('a stack of 10,000: drawn, walked, zoomed into and left in less than a breath', async () => {
  const n = 10_000;
  server.state.say.set('/flamegraph', tree({ depth: many(n, (i) => i), func: many(n, (i) => (i ? 1 + (i % 3) : 0)), self: many(n, (i) => (i === n - 1 ? 5 : 0)), total: many(n, () => 5) }, ['all', 'a', 'b', 'c']));
  await explore('', async (page) => {
    await page.locator('.a11y-tree').focus();
    for (const k of ['ArrowDown', 'ArrowDown', 'End', 'Home']) await page.keyboard.press(k);
    const took = await page.evaluate(async () => {
      const g = window.strataGraph,
        t0 = performance.now();
      g.select(9000);
      document.querySelector('.a11y-tree').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
      await new Promise((ok) => requestAnimationFrame(() => setTimeout(ok)));
      return performance.now() - t0;
    });
    assert.ok(took < 5000, `${Math.round(took)} ms`); // a hash for each of its callers took a minute
    await page.waitForFunction(() => new URLSearchParams(location.search).has('z'));
    assert.match(await text(page, '#crumbs'), /^all … /);
    await page.keyboard.press('Backspace');
    await settled(page);
    await sound(page);
  });
});

test('one frame, a frame of nothing, and values at the end of 64 bits', async () => {
  const keys = ['ArrowDown', 'ArrowRight', 'Enter', 'k', 'i', 's', '5', '2', 'b', '1', 'End', '.', 'Escape', 'Home'];
  server.state.say.set('/flamegraph', tree({ depth: [0], func: [0], self: [7], total: [7] }, ['all']));
  await explore('', async (page) => {
    await page.locator('.a11y-tree').focus();
    for (const k of keys) {
      await page.keyboard.press(k);
      await page.waitForTimeout(40);
    }
    await sound(page);
  }, { expect: [/status of/] });
  server.state.say.set('/flamegraph', tree({ depth: [0, 1, 1], func: [0, 1, 2], self: [0, 0, 5], total: [5, 0, 5] }, ['all', 'nothing', 'b']));
  await explore('?color=self', sound);
  const most = '9223372036854775807';
  server.state.say.set('/flamegraph', tree({ depth: [0, 1], func: [0, 1], self: [0, Number(most)], total: [Number(most), Number(most)] }, ['all', 'a'], { total: most, samples: most, unfiltered: { total: most, samples: most } }));
  await explore('?view=both', async (page) => {
    assert.match(await text(page, '#crumbs'), /^all 2,562,048 core-h/);
    await sound(page);
  });
  assert.ok(asked('/flamegraph').length > 0);
});
