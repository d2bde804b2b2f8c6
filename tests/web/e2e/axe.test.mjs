// SPDX-License-Identifier: Apache-2.0
/** Accessibility of every state of Explore, as axe sees it, in both themes. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import * as answers from '../fixtures/answers.mjs';
import { axeSource } from './browser.mjs';
import { place, settled, start } from './harness.mjs';

let x, server, explore;
before(async () => {
  x = await start();
  ({ server, explore } = x);
});
after(() => x?.stop());
beforeEach(() => server.reset());

const B = 'from=2026-11-29T13:30:00Z&to=2026-11-29T13:45:00Z';
test('axe finds nothing, in every state and both themes', async () => {
  const states = {
    flame: ['', null],
    zoomed: ['', (page) => place(page, 'train_step').then((at) => page.mouse.click(at.x, at.y)).then(() => settled(page))],
    search: ['?s=cuda', null],
    both: ['?view=both', null],
    table: ['?view=table', null],
    range: ['', (page) => page.locator('#range-button').click()],
    label: ['', (page) => page.locator('#selector .chip.add').click()],
    export: ['', (page) => page.locator('button', { hasText: 'Export' }).click()],
    help: ['', async (page) => { await page.keyboard.press('?'); await page.locator('dialog.help').waitFor(); }],
    filters: ['?f=keep%3Atrain_step&f=collapse%3Arecursion', (page) => page.locator('#filters .chip.add').click()],
    menu: ['', async (page) => { await page.locator('.a11y-tree').focus(); await page.keyboard.press('ArrowDown'); await page.keyboard.press('.'); }],
    sandwich: ['?view=sandwich&fn=gelu', null],
    compare: [`?view=compare&${B}`, null],
    quality: ['?more=quality', (page) => page.waitForFunction(() => document.querySelectorAll('#more table').length === 5)],
    steps: ['?more=steps&lane=rank&step=train:430-430', (page) => page.waitForFunction(() => document.querySelectorAll('#more table').length >= 3)],
    'step time': [`?view=compare&norm=step&skip=0&more=steptime&${B}`, (page) => page.waitForFunction(() => document.querySelectorAll('#more table').length === 3)],
    series: ['?more=series&by=thread', (page) => page.waitForFunction(() => document.querySelector('.series-table'))],
    by: ['?by=thread&view=both', null],
    binaries: ['?color=binary&invert=1', null],
    self: ['?color=self&view=both', null],
    pins: ['?view=table&any=cuda&any=gelu&key=line', (page) => page.waitForFunction(() => document.querySelector('.pin-union'))],
    types: ['', (page) => page.locator('.type .button').click()],
    captures: ['', (page) => page.waitForFunction(() => document.querySelector('.captures')), 'captures'],
    completion: ['', async (page) => { await page.getByLabel('Edit the selector as text').click(); await page.keyboard.type('{'); await page.keyboard.press('ArrowDown'); await page.waitForFunction(() => document.querySelector('[role=option]')); }],
    'compare selectors': [`?view=compare&norm=step&a_q=offcpu%7Bx%3D%22y%22%7D&${B}`, null],
    gone: ['', null, 'gone'],
    'quality narrow': ['?more=quality', (page) => page.waitForFunction(() => document.querySelector('.cover-strip')), null, { width: 390, height: 844 }],
    'selector error': ['?q=cpu%7B', null],
    empty: ['', null, () => answers.empty('no_match', { matcher: 'host="x"' })],
    never: ['', null, () => answers.empty('never_ingested')],
    error: ['', null, () => server.error(422, { code: 'query_too_expensive', message: 'too much' })],
    loading: ['', async (page) => { server.state.delay = 5000; await page.keyboard.press('r'); await page.waitForFunction(() => document.body.dataset.state === 'loading'); }],
    narrow: ['', null, null, { width: 390, height: 844 }],
  };
  const source = axeSource();
  for (const [name, [query, act, reply, size]] of Object.entries(states)) {
    server.reset();
    if (reply === 'gone') server.state.gone = true;
    else if (reply === 'captures') {
      server.state.say.set('/labels', () => ({ ...answers.labels(), labels: [{ name: 'capture', values: 2, attribute: false }] }));
      server.state.say.set('/labels/capture/values', () => ({ values: ['web-1', 'web-2'], truncated: false, next: null }));
    }
    else if (reply) server.state.say.set('/flamegraph', reply);
    await explore(query, async (page) => {
      await act?.(page);
      await page.evaluate(source);
      /* a theme changes colours and nothing else: what is judged by them is judged again */
      for (const [colorScheme, only] of [['light', null], ['dark', ['color-contrast', 'link-in-text-block']]]) {
        await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        await page.evaluate(() => new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(ok))));
        const r = await page.evaluate((only) => window.axe.run(document, { resultTypes: ['violations'], ...(only && { runOnly: only }) }), only);
        if (!only) assert.ok(r.passes.length >= 10, `${name}: ${r.passes.length} rules were tried`);
        assert.deepEqual(
          r.violations.map((v) => `${colorScheme} ${name}: ${v.id} ${v.nodes.slice(0, 3).map((x) => `${x.target} ${x.any[0]?.message ?? ''}`).join(' | ')}`),
          [],
        );
      }
    }, { expect: [/status of \d+/, /ERR_/], ...size });
  }
});
