// SPDX-License-Identifier: Apache-2.0
/** What stands around the picture of Explore, in Chromium: quality, steps, groups, shares, exports, completion, states. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, beforeEach, test } from 'node:test';
import * as answers from '../fixtures/answers.mjs';
import { diff } from '../fixtures/diff.mjs';
import * as marks from '../fixtures/marks.mjs';
import { clipboard, params, place, settled, start, text } from './harness.mjs';

let x, server, explore, asked;
before(async () => {
  x = await start();
  ({ server, explore, asked } = x);
});
after(() => x?.stop());
beforeEach(() => server.reset());

test('quality: who looked when, loss by reason, unwinding and names by binary, what a number does not contain', async () => {
  await explore('', async (page) => {
    await page.keyboard.press('q');
    await page.waitForFunction(() => document.querySelectorAll('#more .cover-strip').length === 4 && document.querySelectorAll('#more table').length === 5);
    assert.equal((await params(page)).more, 'quality');
    const all = await text(page, '#more');
    for (const part of ['sampled at 99 Hz', 'gpu-12 cpu service=rl-42 · ended', '66.7 %', 'not covered', 'ring_full a record refused by a full ring', 'spool_drop', 'binary of the leaf', 'vmlinux', 'Nothing is scaled up', 'not inside', 'too small to draw']) assert.ok(all.includes(part), `${part} in: ${all}`);
    assert.match(await page.locator('.cover-strip').nth(1).getAttribute('aria-label'), /looked 18 min, paused \(budget\) 2 min, refused \(no CAP_BPF\) 20 min/);
    assert.ok(!asked('/coverage')[0].params.has('f'), 'coverage is of the selection');
    await page.locator('#more select').selectOption('host');
    await page.waitForFunction(() => !/service=rl-42/.test(document.querySelector('#more table').textContent));
    assert.equal(asked('/coverage').at(-1).params.get('by'), 'host');
    await page.locator('#more [aria-label=Close]').click();
    assert.equal(await page.locator('#more').isVisible(), false);
    await page.goBack();
    assert.equal(await page.locator('#more').isVisible(), true);
  });
  /* by binary: 1,000 of 4,000 without a name, 400 under a stack that was cut */
  const row = (list, nameless) => ({ strings: ['', ...list.map((r) => r[0])], func: { name: list.map((_, i) => i + 1), file: list.map(() => 0), bin: list.map(() => 0), kind: list.map(() => 'native'), key: list.map((_, k) => `${k}`.padStart(16, '0')) }, row: { func: list.map((_, k) => k), self: list.map((r) => r[1]), total: list.map((r) => r[1]), unsymbolised: list.map(() => nameless), samples: list.map(() => 1), places: list.map(() => 1) }, n: list.length, rows: list.length, next: null });
  server.state.say.set('/top', (p) => {
    if (p.get('key') === 'bin') return { ...answers.top(server.treeOf('3k'), new URLSearchParams({ limit: '0' })), ...row([['libx.so', p.get('f') ? 400 : 4000]], p.get('f') ? 0 : 1000) };
    return null;
  });
  await explore('?more=quality', async (page) => {
    await page.waitForFunction(() => /libx/.test(document.querySelector('#more')?.textContent ?? ''));
    assert.match(await text(page, '[aria-label="Unwinding and names by binary"]'), /libx\.so \S+ \S+ 90\.0 % 75\.0 %/);
  });
  server.state.say.set('/coverage', () => server.error(422, { code: 'query_too_expensive', message: 'too much' }));
  await explore('?more=quality', async (page) => assert.match(await text(page, '#more .field-error'), /too much/), { expect: [/status of 422/] });
});

test('steps and events: on the axis and as tables, one selects what is shown, by a label in lanes', async () => {
  await explore('', async (page) => {
    assert.match(await text(page, '.chart-head'), /steps train events/);
    const box = await page.locator('.u-over').boundingBox(),
      host = await page.locator('.chart-canvas').boundingBox();
    const at = box.x + box.width * (30.4 / 40);
    await page.mouse.move(at, host.y + 6);
    assert.match(await text(page, '.chart-readout'), /^step train 430 · 8\d\.\d s$/);
    await page.mouse.move(box.x + box.width * 0.3, box.y + 20);
    assert.match(await text(page, '.chart-readout'), /^13:18:00 · The agent was stopped and began again; 120 s before that are not covered\.$/);
    assert.match(await page.locator('.chart-readout').getAttribute('title'), /^restart: version=0\.1\.0 .*before=stopped/, 'its code too');
    await page.mouse.click(at, host.y + 6);
    await page.waitForFunction(() => new URLSearchParams(location.search).has('step'));
    assert.equal((await params(page)).step, 'train:430-430');
    await settled(page);
    for (const path of ['/flamegraph', '/top']) assert.equal(asked(path).at(-1).params.get('step'), 'train:430-430');
    assert.match(await text(page, '.chip.step'), /^step ?train:430-430/);
    assert.match(await text(page, '.quality'), /160 train steps/);
    await page.keyboard.press('e');
    await page.waitForFunction(() => document.querySelector('#more table'));
    const all = await text(page, '#more');
    for (const part of ['train 160 81.2 s 84.4 s', 'eval 3 60.0 s', 'Slowest of train step began took compute idle host', '432 rank=3', '93.4 s', 'unknown', 'The agent was stopped and began again; 120 s before that are not covered.', 'The clock of the machine was set by −5.00 ms. whole machine']) assert.ok(all.includes(part), `${part} in: ${all}`);
    await page.locator('#more select').selectOption('rank');
    await page.waitForFunction(() => document.querySelector('[aria-label="Steps by rank"]'));
    assert.match(await text(page, '[aria-label="Steps by rank"]'), /^rank steps median longest 3 40 82\.0 s 93\.4 s 0 40/, 'the slowest value first');
    assert.match(await text(page, '.chart-head'), /steps train by rank/);
    await page.mouse.move(at, host.y + 6 + 33);
    assert.match(await text(page, '.chart-readout'), /^step train 430 · rank 3 · /);
    await page.locator('#more button', { hasText: 'Select' }).nth(1).click();
    await settled(page);
    assert.equal((await params(page)).step, 'eval');
    await page.locator('.chip.step .chip-x').click();
    await settled(page);
    assert.equal((await params(page)).step, undefined);
    assert.equal(asked('/flamegraph').at(-1).params.get('step'), null);
  });
  server.state.say.set('/steps', () => marks.noSteps());
  server.state.say.set('/events', () => ({ ...marks.events(), events: [] }));
  await explore('?more=steps', async (page) => {
    await page.waitForFunction(() => /No program marked/.test(document.querySelector('#more').textContent));
    assert.doesNotMatch(await text(page, '.chart-head'), /steps|events/);
  });
  server.state.say.set('/steps', () => server.error(503, { code: 'busy', message: 'busy now' }));
  await explore('?more=steps', async (page) => {
    await page.waitForFunction(() => /busy now/.test(document.querySelector('#more').textContent));
    assert.equal(await page.evaluate(() => document.body.dataset.state ?? ''), '', 'the picture stands without them');
  }, { expect: [/status of 503/] });
});

test('the chart: covered and zero, lost and not covered are three drawings; as a table it says the same', async () => {
  server.state.say.set('/timeseries', (p) => {
    const a = answers.timeseries(server.treeOf('3k'), new URLSearchParams([...p].filter(([k]) => k !== 'points')));
    const k = Math.floor(a.n / 4),
      part = (i) => Math.floor(i / k);
    const c = a.series[0];
    const at = (i, list) => list[Math.min(3, part(i))];
    c.value = c.value.map((_, i) => at(i, [0, 3e10, null, 6e10]));
    c.samples = c.value.map((v) => (v === null ? null : v / 1e7));
    c.covered = c.value.map((v) => (v === null ? 0 : a.bucket_ns - 0));
    c.lost = c.value.map((_, i) => at(i, [0, 3e10, 0, 0]));
    c.total = String(c.value.reduce((x, y) => x + (y ?? 0), 0));
    [a.covered, a.lost] = [c.covered, c.lost];
    return a;
  });
  await explore('', async (page) => {
    const looks = await page.evaluate(() => {
      const u = document.querySelector('.chart-canvas canvas'),
        over = document.querySelector('.u-over').getBoundingClientRect(),
        box = u.getBoundingClientRect(),
        g = u.getContext('2d'),
        k = u.width / box.width;
      /* a column of each quarter, its middle 30 px: how many colours, and whether there is a ribbon below */
      return [0, 1, 2, 3].map((q) => {
        const x = Math.round((over.left - box.left + over.width * (q / 4 + 0.125)) * k);
        const of = (y, h) => { const d = g.getImageData(x, y, 24, h).data, set = new Set(); for (let i = 0; i < d.length; i += 4) set.add(d.slice(i, i + 4).join()); return [...set].sort(); };
        return JSON.stringify([of(Math.round((over.top - box.top + 6) * k), Math.round((over.height - 10) * k)), of(Math.round((over.bottom - box.top + 1) * k), Math.round(4 * k))]);
      });
    });
    assert.equal(new Set(looks).size, 4, looks.join('\n'));
    await page.locator('.chart-table').click();
    await page.waitForFunction(() => document.querySelectorAll('.series-table tbody tr').length === 60);
    const rows = async () => (await page.locator('.series-table tbody tr').allInnerTexts()).map((t) => t.replaceAll('\u202f', ' ').replace(/\s+/g, ' '));
    assert.match((await rows())[0], /^2026-11-29 13:00:00 0\.?0* cores 0 core-s 0 100 % none$/);
    await page.locator('button', { hasText: 'Later' }).click();
    assert.match((await rows())[30], / cores .* 50\.0 %$/, 'half of what was due was lost');
    await page.locator('button', { hasText: 'Later' }).click();
    assert.match((await rows())[30], / not covered no data unknown 0 % none$/);
  });
});

test('one million nodes: what is asked, answered, visited and drawn stays small', async () => {
  server.state.size = '1m';
  await explore('', async (page) => {
    const c = await page.evaluate(() => ({ ...window.strataCounters, dom: document.querySelectorAll('*').length }));
    const rows = Math.ceil(1080 / 18);
    assert.ok(c.nodes > 5000 && c.nodes <= 20_000, `${c.nodes} nodes`);
    assert.ok(c.visited <= c.nodes && c.rects <= c.visited && c.rects <= 1920 * rows);
    assert.ok(c.fills <= 48, `${c.fills} fills`);
    assert.ok(c.dom <= 4000, `${c.dom} elements`);
    const bytes = await page.evaluate(() => performance.getEntriesByType('resource').find((e) => e.name.includes('/flamegraph')).decodedBodySize);
    assert.ok(bytes <= 0.8e6, `${bytes} bytes`);
    assert.ok(server.state.log.length <= 8, server.state.log.map((l) => l.path).join(' '));
    const n = server.state.log.length;
    const at = await place(page, 'train_step');
    await page.mouse.click(at.x, at.y);
    await page.waitForFunction(() => new URLSearchParams(location.search).has('z'));
    await settled(page);
    assert.ok(server.state.log.length - n <= 1, 'a zoom is one question');
    assert.equal(await page.evaluate(() => window.strataCounters.draws < 60), true);
  }, { width: 1920, height: 1080 });
});

test('filter, search and zoom in any order: the whole stays the whole', async () => {
  const all = server.treeOf('3k').total[0];
  const acts = {
    filter: async (page) => { await page.locator('#filters .chip.add').click(); await page.locator('#filter-text').fill('keep:train_epoch'); await page.keyboard.press('Enter'); await page.waitForFunction(() => document.querySelector('.shown')); },
    search: async (page) => { await page.locator('#search-input').fill('gelu'); await page.waitForFunction(() => / of total/.test(document.querySelector('#search-result')?.textContent ?? '')); },
    zoom: async (page) => { const at = await place(page, 'train_step'); await page.mouse.click(at.x, at.y); await page.waitForFunction(() => new URLSearchParams(location.search).has('z')); },
  };
  const ends = [];
  for (const order of [['filter', 'search', 'zoom'], ['zoom', 'filter', 'search'], ['search', 'zoom', 'filter']]) {
    await explore('', async (page) => {
      for (const a of order) {
        await acts[a](page);
        await settled(page);
        await page.waitForFunction(() => !document.body.dataset.state);
      }
      const exact = await page.evaluate(() => { const g = window.strataGraph; return g.tree.total[g.root]; });
      ends.push(`${exact} ${await text(page, '#search-result')} ${await text(page, '.shown')}`);
      assert.match(await text(page, '.shown'), /of 3\.90 core-h$/);
      assert.ok(exact < all);
    });
  }
  assert.equal(new Set(ends).size, 1, ends.join('\n'));
});

test('live: nothing is asked in a hidden tab; a server that goes and comes is said, the picture stays', async () => {
  await explore('', async (page) => {
    await page.mouse.move(5, 5);
    const hide = (hidden) => page.evaluate((h) => { Object.defineProperty(document, 'hidden', { configurable: true, value: h }); document.dispatchEvent(new Event('visibilitychange')); }, hidden);
    await page.locator('button', { hasText: 'Live' }).click();
    await page.mouse.move(5, 5);
    await hide(true);
    server.state.log.length = 0;
    await page.waitForTimeout(2000); // two of its turns
    assert.equal(server.state.log.length, 0);
    server.state.gone = true;
    await hide(false);
    await page.waitForFunction(() => document.querySelector('.live-trouble'), null, { timeout: 8000 });
    assert.match(await text(page, '.live-trouble'), /cannot be reached.*Next try in 10 s/);
    assert.match(await text(page, '#crumbs'), /3\.90 core-h/, 'the picture stays');
    assert.equal(await page.evaluate(() => document.body.dataset.state ?? ''), '');
    server.state.gone = false;
    await page.waitForFunction(() => !document.querySelector('.live-trouble'), null, { timeout: 14_000 });
    await page.locator('button', { hasText: 'Follow' }).click();
    assert.equal(await page.locator('button', { hasText: 'Follow' }).getAttribute('aria-pressed'), 'true');
  }, { expect: [/ERR_/], hasten: 5 });
});

test('by: levels in the graph, lines of the chart, columns of the table; the rest has a name', async () => {
  await explore('?view=both', async (page) => {
    await page.locator('.option-by select').selectOption('thread');
    await page.waitForFunction(() => document.querySelector('.line-key'));
    await settled(page);
    const levels = await page.evaluate(() => { const t = window.strataGraph.tree; return Array.from(t.func, (f, i) => (t.depth[i] === 1 ? [t.funcs.name[f], t.total[i]] : null)).filter(Boolean); });
    assert.deepEqual(levels.map((l) => l[0]), ['thread=MainThread', 'thread=dataloader_0', 'thread=dataloader_1', 'thread=pin_memory']);
    assert.equal(levels.reduce((s, l) => s + l[1], 0) + (await page.evaluate(() => window.strataGraph.tree.self[0])), server.treeOf('3k').total[0], 'groups and self are everything');
    assert.equal(await text(page, '.chart-legend'), 'all thread=MainThread thread=dataloader_0 all others');
    for (const path of ['/flamegraph', '/top', '/timeseries']) assert.equal(asked(path).at(-1).params.get('by'), 'thread');
    await page.locator('.a11y-tree').focus();
    await page.keyboard.press('ArrowDown');
    assert.match(await text(page, '.inspector-title'), /thread=MainThread/);
    await page.keyboard.press('k');
    await settled(page);
    assert.deepEqual(await page.evaluate(() => new URLSearchParams(location.search).getAll('f')), [], 'a level is no frame');
    await page.keyboard.press('2');
    await settled(page);
    assert.match(await text(page, '.functions thead'), /Total MainThread dataloader_0/);
    const cells = await page.locator('tr[data-row="0"] .col-group').count();
    assert.equal(cells, 4);
    assert.match(await page.locator('.option-by select').getAttribute('title'), /of this name, of all processes/);
    const wide = (c) => page.locator(`.functions thead ${c}`).first().evaluate((e) => e.offsetWidth);
    await page.setViewportSize({ width: 1440, height: 900 });
    assert.ok((await wide('.col-name')) > (await wide('.col-self')) + (await wide('.col-total')), 'names have the room');
  });
});

test('by: the select says what the link says, wherever the choice stands among the options', async () => {
  const body = answers.labels();
  body.labels = ['thread', 'pid', 'target', 'tid'].map((name) => ({ name, values: 4, attribute: true }));
  server.state.say.set('/labels', () => body);
  await explore('', async (page) => {
    const select = page.locator('.option-by select');
    await select.locator('option[value=tid]').waitFor({ state: 'attached' });
    for (const by of ['thread', 'tid', 'pid', 'target', '', 'tid']) {
      await select.selectOption(by);
      await settled(page);
      assert.equal((await params(page)).by ?? '', by);
      assert.equal(await select.inputValue(), by);
      assert.equal(await select.evaluate((e) => e.selectedOptions[0].text), by || 'nothing');
    }
    await page.goBack();
    await settled(page);
    assert.equal(await select.inputValue(), '', 'and after a step back');
  });
});

test('shares of several patterns at once, and of at least one; CSV with the totals of the view', async () => {
  const t = server.treeOf('3k');
  const want = answers.top(t, new URLSearchParams([['any', 'cuda'], ['any', 'gelu'], ['limit', '0']])).any;
  const share = (v) => `${((Number(v) / t.total[0]) * 100).toFixed(1)} %`;
  await explore('?s=cuda', async (page) => {
    await page.waitForFunction(() => / of total/.test(document.querySelector('#search-result')?.textContent ?? ''));
    await page.locator('button', { hasText: 'Pin' }).click();
    await page.waitForFunction(() => document.querySelector('.pin-list b')?.textContent.includes('%'));
    assert.equal((await params(page)).view, 'table');
    await page.locator('.pin-form input').fill('gelu');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /at least one\s*[\d.]/.test(document.querySelector('.pin-union')?.textContent ?? ''));
    assert.deepEqual(asked('/top').at(-1).params.getAll('any'), ['cuda', 'gelu']);
    assert.match(await text(page, '.pin-list'), new RegExp(`^cuda ${share(want.each[0].total)} .*gelu ${share(want.each[1].total)} .*at least one ${share(want.union.total)}`));
    const [file] = await Promise.all([page.waitForEvent('download'), page.locator('button', { hasText: /^CSV$/ }).click()]);
    const rows = readFileSync(await file.path(), 'utf8').trimEnd().split('\r\n');
    assert.equal(rows.slice(2).reduce((s, r) => s + Number(r.split(',').at(-5)), 0) + t.self[0], t.total[0], 'self of all rows is the total');
    assert.match(rows[0], new RegExp(`of \\(nanoseconds\\),${t.total[0]},`));
    await clipboard(page);
    await page.locator('button', { hasText: 'Copy CSV' }).click();
    await page.waitForFunction(() => window.copied.length === 1);
    assert.equal((await page.evaluate(() => window.copied[0])).trimEnd().split('\r\n').length, rows.length);
    await page.locator('.pin-list .chip-x').first().click();
    await settled(page);
    assert.deepEqual(asked('/top').at(-1).params.getAll('any'), ['gelu']);
    assert.equal(await page.locator('.pin-union').count(), 0);
    await page.locator('.pins select').selectOption('line');
    await page.waitForFunction(() => /trainer\.py:\d+/.test(document.querySelector('.functions tbody').textContent));
  });
});

test('selector: types, labels, attributes, operators and values are completed, by keyboard alone', async () => {
  await explore('?q=cpu', async (page) => {
    await page.getByLabel('Edit the selector as text').focus();
    await page.keyboard.press('Enter');
    await page.keyboard.press('Control+A');
    await page.keyboard.type('of');
    await page.waitForFunction(() => document.querySelectorAll('[role=option]').length === 1);
    await page.keyboard.press('ArrowDown');
    assert.equal(await page.locator('#selector-input').getAttribute('aria-activedescendant'), 'selector-choice-0');
    await page.keyboard.press('Enter');
    assert.equal(await page.locator('#selector-input').inputValue(), 'offcpu');
    await page.keyboard.type('{th');
    await page.waitForFunction(() => /attribute of samples, 4 values/.test(document.querySelector('[role=listbox]')?.textContent ?? ''));
    await page.keyboard.press('Control+A');
    await page.keyboard.type('cpu{');
    await page.waitForFunction(() => document.querySelectorAll('[role=option]').length === 4);
    await page.keyboard.type('ho');
    await page.waitForFunction(() => document.querySelectorAll('[role=option]').length === 1);
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Tab');
    await page.keyboard.type('=');
    await page.waitForFunction(() => document.querySelectorAll('[role=option]').length === 4);
    await page.keyboard.type('"gpu-12');
    await page.waitForFunction(() => document.querySelectorAll('[role=option]').length === 1);
    assert.equal(asked('/labels/host/values').at(-1).params.get('prefix'), 'gpu-12');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    assert.equal(await page.locator('#selector-input').inputValue(), 'cpu{host="gpu-12"}');
    await page.keyboard.press('Enter');
    await settled(page);
    assert.equal((await params(page)).q, 'cpu{host="gpu-12"}');
    await page.getByLabel('Edit the selector as text').click();
    await page.keyboard.press('Escape');
    await settled(page);
    assert.equal(await page.locator('.chip.matcher').count(), 1, 'Esc leaves the text');
  });
});

test('compare: two selectors, per step, this against the rest; band A by mouse and by keyboard', async () => {
  const range = 'from=2026-11-29T13:30:00Z&to=2026-11-29T13:45:00Z';
  await explore(`?view=compare&${range}&q=${encodeURIComponent('cpu{service="rl-42"}')}`, async (page) => {
    await page.locator('#compare-a').fill('cpu{service=x}');
    await page.locator('.compare-q .primary').click();
    assert.match(await text(page, '#compare-a-error'), /At character 13/);
    await page.locator('#compare-a').fill('cpu{service="rl-43"}');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => new URLSearchParams(location.search).has('a_q'));
    await settled(page);
    let q = asked('/diff').at(-1).params;
    assert.deepEqual([q.get('a_q'), q.get('b_q')], ['cpu{service="rl-43"}', 'cpu{service="rl-42"}']);
    assert.deepEqual([q.get('a_from'), q.get('b_from')], [q.get('b_from'), q.get('b_from')], 'one range for both');
    await page.locator('button', { hasText: 'Same as B' }).click();
    await settled(page);
    await page.locator('.compare-q button', { hasText: 'service ≠ rl-42' }).click();
    await settled(page);
    q = asked('/diff').at(-1).params;
    assert.deepEqual([q.get('a_q'), q.get('b_q')], ['cpu{service!="rl-42"}', 'cpu{service="rl-42"}']);
    await page.locator('#compare select').nth(1).selectOption('step');
    await page.waitForFunction(() => /40 whole steps/.test(document.querySelector('#compare .side-a')?.textContent ?? ''));
    q = asked('/diff').at(-1).params;
    assert.deepEqual([q.get('norm'), q.get('a_step'), q.get('b_step')], ['step', 'train', 'train']);
    assert.match(await text(page, '#compare thead'), /A per step/);
    await page.keyboard.press('w');
    await settled(page);
    assert.deepEqual([(await params(page)).q, (await params(page)).a_q], ['cpu{service!="rl-42"}', 'cpu{service="rl-42"}']);
  });
  await explore(`?view=compare&${range}&a_from=2026-11-29T13:15:00Z&a_to=2026-11-29T13:25:00Z`, async (page) => {
    const box = await page.locator('.u-over').boundingBox();
    const win = await page.evaluate(() => new Promise((ok) => setTimeout(() => ok(null), 100)));
    assert.equal(win, null);
    const aria = async () => page.locator('.chart-keys-a').getAttribute('aria-valuetext');
    assert.match(await aria(), /13:15:00 to 2026-11-29 13:25:00/);
    await page.locator('.chart-keys-a').focus();
    await page.keyboard.press('Shift+ArrowRight');
    await page.waitForFunction(() => new URLSearchParams(location.search).get('a_to') !== '2026-11-29T13:25:00Z');
    const p = await params(page);
    assert.equal(p.a_from, '2026-11-29T13:15:00Z');
    assert.ok(Date.parse(p.a_to) > Date.parse('2026-11-29T13:25:00Z'));
    await settled(page);
    /* the left handle of A: its place comes from the words of the slider and the axis */
    const left = await page.evaluate(() => Number(document.querySelector('.chart-keys-a').getAttribute('aria-valuenow')) / 100);
    await page.mouse.move(box.x + box.width * left, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * (left - 0.05), box.y + 40, { steps: 4 });
    await page.mouse.up();
    await settled(page);
    const after = await params(page);
    assert.ok(Date.parse(after.a_from) < Date.parse('2026-11-29T13:15:00Z'), after.a_from);
    assert.equal(after.from, '2026-11-29T13:30:00Z', 'B stays');
    assert.equal(asked('/diff').at(-1).params.get('a_from'), after.a_from);
  });
});

test('states: the server is gone and comes back, slow, few samples, part of the shards, too expensive', async () => {
  server.state.gone = true;
  await explore('', async (page) => {
    assert.match(await text(page, '.state'), /cannot be reached Nothing answers.*Is stratad running.* next try in \d s/);
    server.state.gone = false;
    await page.waitForFunction(() => !document.body.dataset.state, null, { timeout: 8000 });
  }, { expect: [/ERR_/] });
  server.state.say.set('/flamegraph', (p) => ({ ...answers.flamegraph(server.treeOf('3k'), p), samples: '24' }));
  await explore('', async (page) => assert.match(await text(page, '.quality'), /24 samples too few for shares/));
  server.state.say.set('/flamegraph', (p) => { const a = answers.flamegraph(server.treeOf('3k'), p); return { ...a, quality: { ...a.quality, shards: { asked: 9, read: 7, unreadable: 2 }, warnings: ['unreadable: disk error'] } }; });
  await explore('', async (page) => assert.match(await text(page, '.quality'), /7 of 9 shards read warning: disk error/));
  server.state.say.set('/flamegraph', () => server.error(422, { code: 'query_too_expensive', setting: 'query.memory', message: 'too much' }));
  await explore('?from=now-24h', async (page) => {
    server.state.say.clear();
    await page.locator('.state .button', { hasText: 'A tenth of the time' }).click();
    await page.waitForFunction(() => !document.body.dataset.state);
    const p = await params(page);
    const hours = (Date.parse(p.to) - Date.parse(p.from)) / 3600e3;
    assert.ok(Math.abs(hours - 2.4) < 0.1, `${hours} h`);
  }, { expect: [/status of 422/] });
  server.state.say.set('/flamegraph', () => answers.empty('no_steps'));
  await explore('?step=gone', async (page) => {
    assert.match(await text(page, '.state'), /No such step here/);
    server.state.say.clear();
    await page.locator('.state .button', { hasText: 'Without the step' }).click();
    await page.waitForFunction(() => !document.body.dataset.state);
  });
});

test('captures of strata record that are added to the rest are said, and either is one press away', async () => {
  const NAMES = ['web-1', '<img src=x onerror="window.__pwn=1">'];
  let agents = true;
  server.state.say.set('/labels', () => ({ ...answers.labels(), labels: [{ name: 'capture', values: 2, attribute: false }, ...answers.labels().labels] }));
  server.state.say.set('/labels/capture/values', () => ({ values: NAMES, truncated: false, next: null }));
  server.state.say.set('/types', (p) => (/capture=""/.test(p.get('q') ?? '') && !agents ? { ...answers.types(), types: [] } : null));
  const said = (page) => page.waitForFunction(() => document.querySelector('.captures'));
  await explore('?q=cpu%7Bservice%3D%22rl-42%22%7D', async (page) => {
    await said(page);
    assert.match(await text(page, '.captures'), /^2 captures of strata record are added to what agents saw: .*counts twice\. Without captures Only web-1 Only <img src/);
    await page.locator('.captures button', { hasText: 'Only <img' }).click();
    await page.waitForFunction(() => !document.querySelector('.captures'));
    assert.equal((await params(page)).q, `cpu{service="rl-42", capture="${NAMES[1].replaceAll('"', '\\"')}"}`);
    await page.goBack();
    await said(page);
    await page.locator('.captures button', { hasText: 'Without captures' }).click();
    await page.waitForFunction(() => !document.querySelector('.captures'));
    assert.equal(asked('/flamegraph').at(-1).params.get('q'), 'cpu{service="rl-42", capture=""}');
    assert.equal(await page.evaluate(() => window.__pwn), undefined);
  });
  /* back before the lists of the other selection have come: they must not take the place of those that hold */
  server.state.say.set('/labels', async (p) => {
    const without = /capture=""/.test(p.get('q') ?? '');
    if (without) await new Promise((ok) => setTimeout(ok, 700));
    return { ...answers.labels(), labels: [...(without ? [] : [{ name: 'capture', values: 2, attribute: false }]), ...answers.labels().labels] };
  });
  await explore('?q=cpu%7Bservice%3D%22rl-42%22%7D', async (page) => {
    await said(page);
    await page.locator('.captures button', { hasText: 'Without captures' }).click();
    await settled(page);
    await page.goBack();
    await page.waitForTimeout(1200);
    assert.equal(await page.locator('.captures').count(), 1);
  });
  /* nothing but captures: two are still two, one is what was asked for */
  agents = false;
  await explore('', async (page) => {
    await said(page);
    assert.match(await text(page, '.captures'), /^2 captures of strata record are added up/);
    await page.locator('.captures button', { hasText: 'By capture' }).click();
    await settled(page);
    assert.equal(asked('/flamegraph').at(-1).params.get('by'), 'capture');
  });
  NAMES.pop();
  await explore('', async (page) => {
    await settled(page);
    assert.equal(await page.locator('.captures').count(), 0);
  });
});

test('colours: by binary with a legend that lights, by self; forced colours keep them apart; paper is light', async () => {
  const hues = (page) => page.evaluate(() => {
    const c = document.querySelector('.graph-base'),
      g = c.getContext('2d'),
      seen = new Set();
    for (let y = 27; y < Math.min(c.height, 400); y += 18) for (let i = 5; i < c.width; i += 7) seen.add([...g.getImageData(i, y, 1, 1).data].join());
    return seen.size;
  });
  await explore('?color=binary', async (page) => {
    const items = await page.locator('#legend button').allInnerTexts();
    assert.ok(items.length === 8 && items.some((t) => t.trim() === 'vmlinux'), items.join());
    const free = await hues(page);
    await page.locator('#legend button', { hasText: 'vmlinux' }).click();
    await settled(page);
    assert.equal(await page.locator('#legend button[aria-pressed=true]').count(), 1);
    assert.notEqual(await hues(page), free);
    await page.locator('.option-color select').selectOption('self');
    await settled(page);
    assert.match(await text(page, '#legend'), /self under 2 % of the largest 2 % 10 % 50 %/);
  });
  await explore('', async (page) => {
    await page.emulateMedia({ forcedColors: 'active' });
    await settled(page);
    assert.ok((await hues(page)) > 8, 'origins are still told apart');
    await page.emulateMedia({ forcedColors: 'none', colorScheme: 'dark' });
    await settled(page);
    const corner = () => page.evaluate(() => { const c = document.querySelector('.graph-base'); return [...c.getContext('2d').getImageData(c.width - 2, c.height - 2, 1, 1).data].slice(0, 3); });
    assert.ok((await corner())[0] < 60);
    await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
    assert.ok((await corner())[0] > 240, 'white on paper');
    await page.emulateMedia({ media: 'print' });
    assert.equal(await page.locator('.options').isVisible(), false);
    assert.equal(await page.locator('.quality').isVisible(), true);
    await page.emulateMedia({ media: 'screen' });
    await page.evaluate(() => dispatchEvent(new Event('afterprint')));
    await settled(page);
    assert.ok((await corner())[0] < 60);
  });
});

test('step time of A and B: interval, parts with a residual, ranks; one against the others; all of it in the link', async () => {
  const Q = '?view=compare&q=cpu%7Bservice%3D%22rl-42%22%7D&from=2026-11-29T13:30:00Z&to=2026-11-29T14:00:00Z&a_from=2026-11-29T13:00:00Z&a_to=2026-11-29T13:30:00Z&norm=step';
  await explore(Q, async (page) => {
    await page.waitForFunction(() => [...document.querySelectorAll('#compare button')].some((b) => b.textContent === 'Step time'));
    await page.keyboard.press('e');
    await page.waitForFunction(() => /all of them are among the first 20/.test(document.querySelector('#more')?.textContent ?? ''));
    await page.locator('#more button', { hasText: 'Skip none' }).click();
    await page.waitForFunction(() => /95 % between/.test(document.querySelector('.step-delta')?.textContent ?? ''));
    assert.deepEqual([(await params(page)).skip, (await params(page)).more], ['0', 'steptime']);
    assert.match(await text(page, '.step-delta'), /^Δ median \+[\d.]+ s 95 % between [+−]?[\d.]+ m?s and \+[\d.]+ s/);
    assert.match(await text(page, '#more .behind-facts'), /^of rank 3$/, 'the one that became slowest');
    const parts = await text(page, '[aria-label="Where the mean went"]');
    for (const p of [/compute 7\d\.\d s 7\d\.\d s 90\.0 % \+\d\.\d+ s/, /idle host/, /residual: in no part 0 ms 0 ms/, /step 8\d/]) assert.match(parts, p);
    assert.match(await text(page, '#more'), /Left out, for a part of theirs is unknown: \d steps of A, \d of B/);
    await page.locator('#more select[aria-label="Which steps"]').selectOption('*');
    await page.waitForFunction(() => /80$/.test(document.querySelector('.step-sides tbody tr')?.textContent.trim() ?? ''));
    await page.goBack();
    await page.waitForFunction(() => /20$/.test(document.querySelector('.step-sides tbody tr')?.textContent.trim() ?? ''));
    await page.locator('[aria-label="Against the others: rank 3"]').click();
    await page.waitForFunction(() => /Step by step, B less the median of A/.test(document.querySelector('#more')?.textContent ?? ''));
    const p = await params(page);
    assert.deepEqual([p.q, p.a_q, p.norm, p.a_from], ['cpu{service="rl-42", rank="3"}', 'cpu{service="rl-42", rank!="3"}', 'step', undefined]);
    assert.ok(asked('/steps').some((l) => l.params.get('q') === p.a_q));
  });
  server.state.say.set('/steps', (q) => (q.get('limit') === '10000' ? server.error(422, { code: 'query_too_expensive', message: 'too much' }) : null));
  await explore(`${Q}&more=steptime`, async (page) => assert.match(await text(page, '#more .field-error'), /too much/), { expect: [/status of 422/] });
});

test('step time without parts: what the threads did per step, A and B, in the steps that are compared', async () => {
  server.state.say.set('/steps', () => ({ ...marks.steps(), part: {} }));
  server.state.say.set('/timeseries', (q) => {
    if (q.get('points') !== '1') return null;
    const type = q.get('q').match(/^\w+/)[0];
    const a = answers.timeseries(server.treeOf('3k'), q);
    if (type === 'runq') return { ...a, total: null, n: 0, covered: [], lost: [], series: [], empty: { why: 'type_absent', matcher: null, last_ns: null } };
    const line = (labels, ns, rest = false) => ({ labels, rest, total: String(ns), value: [ns], samples: [1], covered: [1], lost: [0] });
    const k = type === 'cpu' ? 1e6 : 3e6;
    return { ...a, n: 1, covered: [1], lost: [0], series: [line({ thread: '<b>main</b>' }, 100 * k), line({ thread: 'dl-0' }, 20 * k), line({}, 40 * k, true)] };
  });
  const Q = '?view=compare&q=cpu%7Bservice%3D%22rl-42%22%7D&from=2026-11-29T13:30:00Z&to=2026-11-29T14:00:00Z&a_from=2026-11-29T13:00:00Z&a_to=2026-11-29T13:30:00Z&norm=step&more=steptime&skip=5';
  await explore(Q, async (page) => {
    await page.waitForFunction(() => document.querySelector('[aria-label="What the threads did, per step"]'));
    const rows = (await page.locator('[aria-label="What the threads did, per step"] tbody tr').allInnerTexts()).map((t) => t.replaceAll('\u202f', ' ').replace(/\s+/g, ' '));
    /* A: ranks 0 to 3, their steps 400 to 419 without the first five numbers; B as many */
    const asks = asked('/timeseries').filter((l) => l.params.get('by') === 'thread');
    assert.equal(asks.length, 6, 'three types, two sides');
    assert.deepEqual([...new Set(asks.map((l) => l.params.get('step')))].sort(), ['train:405-419', 'train:425-439']);
    const n = 4 * 15;
    assert.equal(rows[0].replaceAll(' ', ''), `<b>main</b>${(100 / n).toFixed(2)} ms${(100 / n).toFixed(2)} ms${(300 / n).toFixed(2)} ms${(300 / n).toFixed(2)} ms`.replaceAll(' ', ''));
    assert.match(rows[2], /^all others/, 'the rest is last');
    assert.match(await text(page, '#more'), /not to be added.*Not collected here: runq/);
    assert.match(await text(page, '#more'), /Below: all ranks/);
  });
});

test('compare: the zoom is in the link, Back leaves it, the graph takes it over; g and a letter go there', async () => {
  const Q = '?from=2026-11-29T13:30:00Z&to=2026-11-29T14:00:00Z';
  await explore(Q, async (page) => {
    await page.keyboard.press('g');
    await page.keyboard.press('c');
    await page.waitForFunction(() => document.querySelector('#compare .side'));
    assert.equal((await params(page)).view, 'compare');
    await page.locator('#compare .a11y-tree').focus();
    const foot = () => text(page, '.compare-foot');
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
    await page.waitForFunction(() => new URLSearchParams(location.search).get('z'));
    const { z } = await params(page),
      name = (await foot()).split(' ')[0];
    assert.match(z, /^[0-9a-f]{16}$/);
    await page.keyboard.press('g');
    await page.keyboard.press('e');
    await page.waitForFunction(() => window.strataGraph.root > 0 || window.strataGraph.tree.rootHash !== 0n);
    await page.waitForFunction((n) => document.querySelector('#inspector').textContent.trim().startsWith(n), name); // the same frame
    await page.goBack();
    await page.goBack();
    await page.waitForFunction(() => !new URLSearchParams(location.search).get('z'));
    await page.waitForFunction(() => document.querySelector('.compare-foot').textContent.startsWith('all'));
    await page.goForward();
    await page.waitForFunction((n) => document.querySelector('.compare-foot').textContent.startsWith(n), name);
    await page.keyboard.press('g');
    await page.keyboard.press('Escape');
    await page.keyboard.press('b');
    assert.equal((await params(page)).view, 'both', 'Escape ends what g began');
  });
});

test('one group alone, from its level; what cannot be compared offers the halves of what there is', async () => {
  await explore('?by=thread', async (page) => {
    const at = await place(page, 'thread=MainThread');
    await page.mouse.click(at.x, at.y, { button: 'right' });
    await page.locator('[role=menuitem]', { hasText: 'Only thread = MainThread' }).click();
    await page.waitForFunction(() => new URLSearchParams(location.search).get('q')?.includes('thread'));
    assert.deepEqual([(await params(page)).q, (await params(page)).by], ['cpu{thread="MainThread"}', undefined]);
  });
  let first = true;
  server.state.say.set('/diff', (p) => (first ? { ...diff(server.treeOf('3k'), p), comparable: false, why_not: 'a_not_covered' } : null));
  await explore('?view=compare&from=2026-11-29T13:30:00Z&to=2026-11-29T14:00:00Z', async (page) => {
    first = false;
    await page.locator('#compare button', { hasText: 'Compare its two halves' }).click();
    await page.waitForFunction(() => new URLSearchParams(location.search).get('a_from'));
    const p = await params(page);
    assert.deepEqual([p.a_from, p.a_to, p.from, p.to], ['2026-11-29T13:30:00Z', '2026-11-29T13:45:00Z', '2026-11-29T13:45:00Z', '2026-11-29T14:00:00Z']);
  });
});

test('thresholds are a preference; a level is asked at an instant; the view as SVG holds unit, range and quality', async () => {
  await explore('?more=quality', async (page) => {
    await page.waitForFunction(() => document.querySelector('.limits'));
    assert.equal(await page.locator('.quality .fact.warn', { hasText: 'lost' }).count(), 1);
    await page.locator('.limits summary').click();
    await page.getByLabel('lost, from red, percent').fill('50');
    await page.getByLabel('lost, from amber, percent').fill('40');
    await page.keyboard.press('Tab');
    await page.waitForFunction(() => ![...document.querySelectorAll('.quality .fact.warn')].some((f) => f.textContent.includes('lost')));
    await page.reload();
    await page.waitForFunction(() => document.querySelector('.limits'));
    assert.equal(await page.locator('.quality .fact.warn', { hasText: 'lost' }).count(), 0, 'it lasts');
    await page.locator('.limits summary').click();
    await page.locator('.limits button').click();
    await page.waitForFunction(() => [...document.querySelectorAll('.quality .fact.warn')].some((f) => f.textContent.includes('lost')));
  });
  const live = { id: 'live:bytes:level', name: 'live', unit: 'bytes', kind: 'level' };
  server.state.say.set('/flamegraph', (p) => ({ ...answers.flamegraph(server.treeOf('3k'), p), type: live, agg: p.get('at') ? 'at' : 'average' }));
  await explore('?q=live', async (page) => {
    await page.locator('.option-agg select').selectOption('at');
    const flame = async (is) => {
      for (let i = 0; i < 1500 && !is(asked('/flamegraph').at(-1).params); i++) await new Promise((ok) => setTimeout(ok, 20));
      const p = asked('/flamegraph').at(-1).params;
      return [p.get('at'), p.get('agg')];
    };
    assert.deepEqual(await flame((p) => p.has('at')), ['2026-11-29T14:00:00Z', null]);
    await page.waitForFunction(() => !document.body.dataset.state);
    await page.locator('.instant').fill('yesterday');
    await page.keyboard.press('Tab');
    assert.equal(await page.locator('.instant').getAttribute('aria-invalid'), 'true');
    await page.locator('.instant').fill('2026-11-29T13:10:00Z');
    await page.keyboard.press('Tab');
    assert.deepEqual(await flame((p) => p.get('at') === '2026-11-29T13:10:00Z'), ['2026-11-29T13:10:00Z', null]);
    await page.locator('.option-agg select').selectOption('now');
    assert.deepEqual(await flame((p) => p.has('agg')), [null, 'now']);
    assert.equal((await params(page)).at, undefined);
  });
  server.state.say.clear();
  const evil = '</text><script>window.__pwn=1</script>\u202e\ufffe';
  server.state.say.set('/flamegraph', (p) => { const a = answers.flamegraph(server.treeOf('3k'), p); a.strings[a.strings.indexOf('train_step')] = evil; return a; });
  await explore('', async (page) => {
    await page.locator('button', { hasText: 'Export' }).click();
    const [file] = await Promise.all([page.waitForEvent('download'), page.locator('.pick', { hasText: 'This view (SVG)' }).click()]);
    assert.equal(file.suggestedFilename(), 'strata-cpu.svg');
    const svg = readFileSync(await file.path(), 'utf8');
    for (const part of ['cpu, ns, sum', '2026-11-29 13:00:00', 'covered 95.5', 'lost 1.4', 'train_epoch']) assert.ok(svg.replaceAll('\u202f', ' ').includes(part), part);
    assert.ok(!svg.includes('<script') && !svg.includes('\u202e') && svg.includes('&lt;script&gt;'));
    const blank = await x.browser.newPage(); // no policy stands there
    const parsed = await blank.evaluate((t) => { const d = new DOMParser().parseFromString(t, 'image/svg+xml'); return { bad: d.querySelector('parsererror') !== null, bars: d.querySelectorAll('g > g > rect').length, scripts: d.querySelectorAll('script').length }; }, svg);
    await blank.close();
    assert.equal(parsed.bad, false);
    assert.ok(parsed.scripts === 0 && parsed.bars > 300, JSON.stringify(parsed));
  });
});

test('scrolling paints what comes into sight and nothing twice; it is what painting all at once gives', async () => {
  await explore('', async (page) => {
    const seen = () => page.evaluate(() => {
      const { tiles, draws } = window.strataCounters;
      const of = (c) => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].reduce((h, v) => (Math.imul(h, 31) + v) | 0, 7);
      return { tiles, draws, pictures: [...document.querySelectorAll('#graph .graph-base:not([hidden])')].map((c) => [c.style.top, of(c)]).sort().join(' ') };
    });
    /* by the third frame from here what scrolled into sight is painted, however long frames take */
    const scroll = (to) => page.evaluate((to) => new Promise((ok) => { window.strataGraph.scroller.scrollTop = to; requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(ok))); }), to);
    const before = await seen();
    await scroll(60);
    const near = await seen();
    assert.ok(near.tiles - before.tiles <= 2, `${near.tiles - before.tiles} canvases for 60 pixels`);
    await scroll(500);
    const far = await seen();
    assert.ok(far.tiles > near.tiles && far.tiles - near.tiles <= 4, `${far.tiles - near.tiles} canvases`);
    await scroll(505);
    assert.ok((await seen()).tiles - far.tiles <= 1);
    const here = await seen();
    await page.evaluate(() => window.strataGraph.drawNow());
    const whole = await seen();
    assert.ok(whole.tiles > here.tiles);
    assert.equal(whole.pictures, here.pictures);
  }, { height: 620 });
});

test('moving paints where there are bars, and not the empty rows below them', async () => {
  await explore('', async (page) => {
    const r = await page.evaluate(async () => {
      const g = window.strataGraph,
        c = window.strataCounters,
        deep = g.tree.maxDepth + 1,
        frames = () => new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(ok)));
      await frames();
      const before = c.tiles;
      g.magnify(1.05, 400);
      await frames();
      const painted = c.tiles - before;
      /* what was full and is empty now is painted once more: nothing of it may stay */
      g.zoomTo(Array.from(g.tree.depth).indexOf(1), false);
      await frames();
      return { deep, painted, rows: Math.floor(g.scroller.clientHeight / 18) };
    });
    assert.ok(r.rows > r.deep + 28, `a view of ${r.rows} rows is higher than ${r.deep} rows of bars`);
    assert.ok(r.painted >= 1 && r.painted <= Math.ceil(r.deep / 14) + 1, JSON.stringify(r));
  }, { width: 1440, height: 2400 });
});

test('exports: the view as PNG, folded stacks copied, name, stack and link copied; sums are those of the view', async () => {
  await explore('', async (page) => {
    await page.locator('button', { hasText: 'Export' }).click();
    const hrefs = await page.locator('#options a.pick').evaluateAll((list) => list.map((a) => new URL(a.href).searchParams.get('format')));
    assert.deepEqual(hrefs, ['pprof', 'speedscope', 'folded', 'svg', 'text']);
    const [file] = await Promise.all([page.waitForEvent('download'), page.locator('.pick', { hasText: 'This view (PNG)' }).click()]);
    assert.equal(file.suggestedFilename(), 'strata-cpu.png');
    const png = readFileSync(await file.path());
    assert.equal(png.subarray(1, 4).toString(), 'PNG');
    assert.ok(png.readUInt32BE(16) > 1000 && png.readUInt32BE(20) > 300 && png.length > 10_000);
    await clipboard(page);
    await page.locator('button', { hasText: 'Export' }).click();
    await page.locator('.pick', { hasText: 'Copy folded stacks' }).click();
    await page.waitForFunction(() => window.copied.length === 1);
    const sum = (await page.evaluate(() => window.copied[0])).trimEnd().split('\n').reduce((s, l) => s + Number(l.slice(l.lastIndexOf(' ') + 1)), 0);
    assert.equal(sum, server.treeOf('3k').total[0]);
    const at = await place(page, 'train_step');
    await page.mouse.click(at.x, at.y);
    await page.waitForFunction(() => window.strataGraph.tree.rootHash !== 0n);
    await page.locator('.a11y-tree').focus();
    for (const key of ['c', 'C', 'y']) await page.keyboard.press(key);
    await page.waitForFunction(() => window.copied.length === 4);
    const [, name, stack, link] = await page.evaluate(() => window.copied);
    assert.equal(name, 'train_step');
    assert.match(stack, /^_start;.*;train_epoch;train_step \d+$/);
    assert.match(link, /from=2026-11-29T13%3A00%3A00Z/);
  });
});

test('pointing shows the function everywhere: graph to table, table to graph; inverted', async () => {
  await explore('?view=both&sort=total', async (page) => {
    const at = await place(page, 'train_step');
    await page.mouse.move(at.x, at.y);
    await page.waitForFunction(() => document.querySelector('tr.marked'));
    assert.match(await text(page, 'tr.marked .fn'), /train_step/);
    await page.mouse.move(5, 5);
    await page.waitForFunction(() => !document.querySelector('tr.marked'));
    await page.locator('.a11y-tree').focus();
    await page.keyboard.press('i');
    await settled(page);
    assert.equal(asked('/flamegraph').at(-1).params.get('invert'), '1');
    assert.equal((await params(page)).invert, '1');
    /* leaves below the root: what they weigh there is what is their own, and together they are everything */
    const sums = await page.evaluate(() => { const t = window.strataGraph.tree; let first = 0; for (let i = 1; i < t.n; i++) if (t.depth[i] === 1) first += t.total[i]; return [first + t.self[0], t.total[0]]; });
    assert.equal(sums[0], sums[1]);
    assert.equal(sums[1], server.treeOf('3k').total[0]);
    assert.equal(await page.locator('button', { hasText: 'Invert' }).getAttribute('aria-pressed'), 'true');
  });
});

test('the pointer rests: the lines of the function, what was inlined is said; once for a question', async () => {
  await explore('?f=keep%3Atrain_epoch', async (page) => {
    const at = await place(page, 'train_step');
    await page.mouse.move(at.x, at.y);
    await page.waitForFunction(() => document.querySelector('.tip-line'));
    assert.match(await text(page, '.tip-line'), /^trainer\.py:11 inlined$/);
    const lines = () => asked('/top').filter((l) => l.params.get('key') === 'line');
    assert.equal(lines()[0].params.get('match'), '/^train_step$/');
    assert.deepEqual(lines()[0].params.getAll('f'), ['keep:train_epoch'], 'of the same samples');
    await page.mouse.move(5, 5);
    await page.mouse.move(at.x, at.y);
    assert.match(await text(page, '.tip'), /trainer\.py:11/, 'known, so at once');
    await settled(page);
    await settled(page);
    assert.equal(lines().length, 1);
  });
  await explore('?view=table&key=line&s=train_step', async (page) => {
    await page.waitForFunction(() => document.querySelector('tr[data-row]'));
    await settled(page);
    assert.match(await text(page, 'tr[data-row="0"]'), /^train_step trainer\.py:11 · inlined/);
  });
});

test('390 px: the sandwich shows both graphs and the footer at once', async () => {
  await explore('?view=sandwich&fn=forward', async (page) => {
    await page.evaluate(() => document.querySelector('#panes').scrollIntoView());
    const [callers, callees, foot] = await Promise.all(['.callers', '.callees', '.inspector'].map((s) => page.locator(s).first().boundingBox()));
    assert.ok(callers.height > 150 && callees.height > 250, `${callers.height} ${callees.height}`);
    assert.ok(foot.y + foot.height <= 845 && foot.y > callees.y + 200, JSON.stringify({ foot, callees }));
    assert.match(await text(page, '.inspector'), /^forward .* core-h total/);
    await page.locator('#sandwich .callees .a11y-tree').focus();
    await page.keyboard.press('ArrowDown');
    assert.doesNotMatch(await text(page, '.inspector'), /^forward/);
  }, { width: 390, height: 844 });
});

test('a whole visit by keyboard alone', async () => {
  await explore('', async (page) => {
    /* from the address to the graph: skip link first */
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
    const reached = new Set();
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press('Tab');
      const seen = await page.evaluate(() => {
        const e = document.activeElement,
          r = e.getBoundingClientRect(),
          s = getComputedStyle(e);
        return { what: e === document.body ? '' : e.id || e.getAttribute('aria-label') || e.textContent.trim().slice(0, 20) || e.className, ring: s.outlineStyle !== 'none' || s.boxShadow !== 'none' || e.closest('.graph-wrap, .search') !== null, seen: r.width > 0 };
      });
      if (seen.what === 'Skip to the graph') break; // once around
      if (seen.what === '' || reached.has(seen.what)) continue;
      reached.add(seen.what);
      assert.ok(seen.ring && seen.seen, `no focus ring on ${seen.what}`);
    }
    for (const what of ['range-button', 'search-input', 'Coverage', 'Steps', 'Flame', 'Compare', 'Export', 'Invert']) assert.ok(reached.has(what), `${what} in ${[...reached].join(' | ')}`);
    /* search, next match, zoom, table, sort, filter, range, compare, back, help, quality */
    await page.keyboard.press('/');
    await page.keyboard.type('forward');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /1 \//.test(document.querySelector('.search-nav')?.textContent ?? ''));
    await page.keyboard.press('Escape');
    await settled(page);
    assert.equal(await page.evaluate(() => document.activeElement.className), 'a11y-tree', 'from the search to the graph');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => new URLSearchParams(location.search).has('z'));
    await page.keyboard.press('s');
    await page.waitForFunction(() => document.querySelector('#sandwich .panel-head b')?.textContent === 'forward');
    await page.keyboard.press('1');
    await page.locator('.a11y-tree').first().focus();
    await page.keyboard.press('Backspace');
    await page.keyboard.press('k');
    await settled(page);
    await page.keyboard.press('2');
    await page.waitForFunction(() => document.querySelector('tr[data-row]'));
    await page.keyboard.press('5');
    await page.waitForFunction(() => document.querySelector('#compare .side-a'));
    await page.keyboard.press('1');
    await page.keyboard.press('t');
    await page.waitForFunction(() => document.activeElement.closest('.range-panel'));
    await page.keyboard.press('Escape');
    await page.keyboard.press('q');
    await page.waitForFunction(() => document.querySelector('#more .cover-strip'));
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.querySelector('#more').hidden);
    await page.keyboard.press('?');
    assert.match(await text(page, 'dialog.help'), /coverage and loss/);
    await page.keyboard.press('Escape');
  });
});

const HOSTILE = ['<img src=x onerror="window.__pwn=1">', '</script><script>window.__pwn=1</script>', '\u202egnp.exe', 'a\u0000b', 'x'.repeat(10_000), '{{window.__pwn=1}}', '"><svg onload=window.__pwn=1>'];
test('hostile names in steps, labels, events, sources, reasons, groups and patterns are text', async () => {
  const [a, b, c, d, e, f, g] = HOSTILE;
  server.state.say.set('/steps', () => { const s = marks.steps(); return { ...s, names: s.names.map((n, i) => ({ ...n, name: HOSTILE[i] })), row: { ...s.row, labels: s.row.labels.map((l, i) => ({ [c]: i % 2 ? d : e })) }, part: { [g]: s.part.compute } }; });
  server.state.say.set('/events', () => ({ ...marks.events(), events: HOSTILE.map((h, i) => ({ t_ns: String(BigInt(answers.FROM_MS + i * 60e3) * 1_000_000n), kind: h, text: HOSTILE[6 - i], target: h })) }));
  server.state.say.set('/coverage', (p) => { const s = marks.coverage(p); return { ...s, sources: s.sources.map((x, i) => ({ ...x, host: HOSTILE[i], labels: { [b]: f }, lost: [{ why: g, n: '1', weight: '5' }], runs: { ...x.runs, why: x.runs.why.map(() => a) } })) }; });
  server.state.say.set('/timeseries', (p) => { const s = answers.timeseries(server.treeOf('3k'), p); return p.get('by') ? { ...s, series: s.series.map((x, i) => ({ ...x, labels: x.rest ? {} : { [a]: HOSTILE[i] } })) } : null; });
  const q = new URLSearchParams([['by', 'thread'], ['view', 'table'], ['more', 'steps'], ['lane', c], ...HOSTILE.slice(0, 4).map((h) => ['any', h]), ['step', `${a}:430-430`]]);
  await explore(`?${q}`, async (page) => {
    await page.waitForFunction(() => document.querySelectorAll('#more table').length >= 2);
    await page.locator('.quality-more button').first().click();
    await page.waitForFunction(() => document.querySelectorAll('#more .cover-strip').length === 4);
    assert.equal(await page.evaluate(() => window.__pwn), undefined);
    assert.equal(await page.evaluate(() => document.querySelectorAll('main img, main script, main svg[onload]').length), 0);
    const w = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(w[0] <= w[1], 'no name makes the page wider');
  });
});
