// SPDX-License-Identifier: Apache-2.0
/**
 * Explore in Chromium against fixture answers, under the server's security policy. Any page error,
 * console error or policy violation fails the test it happens in.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { show } from '../../../web/js/safe.js';
import * as answers from '../fixtures/answers.mjs';
import { filterTree } from '../fixtures/filters.mjs';
import { sandwich } from '../fixtures/sandwich.mjs';
import { launch, open } from './browser.mjs';
import { serve } from './server.mjs';

let browser, server;
before(async () => {
  [browser, server] = await Promise.all([launch(), serve()]);
});
after(async () => {
  await browser?.close();
  await server?.close();
});
beforeEach(() => server.reset());

/** A page on Explore; closed, and its complaints thrown, at the end of `run`. */
async function explore(query, run, options = {}) {
  const p = await open(browser, options);
  try {
    await p.page.goto(`${server.url}/explore${query}`);
    if (options.wait !== false) await p.ready();
    await run(p.page, p);
  } catch (e) {
    await p.close().catch((x) => (e.message += `\n${x.message}`));
    throw e;
  }
  await p.close();
}
const settled = (page) => page.evaluate(() => new Promise((ok) => setTimeout(ok, 260)));
const params = (page) => page.evaluate(() => Object.fromEntries(new URLSearchParams(location.search)));
const text = async (page, sel) => (await page.locator(sel).first().innerText()).replaceAll('\u202f', ' ').replace(/\s+/g, ' ').trim();
const HASTE = 5; // of what repeats every few seconds
const until = async (page, done) => {
  for (let i = 0; i < 200 && !done(); i++) await page.waitForTimeout(50);
  assert.ok(done(), String(done));
};
const asked = (path) => server.state.log.filter((l) => l.path === path);

/** Where the node stands: the widest of that name, or an index. */
async function place(page, which) {
  return page.evaluate((which) => {
    const g = window.strataGraph,
      t = g.tree;
    let n = typeof which === 'number' ? which : -1;
    if (n < 0)
      for (let i = 1; i < t.n; i++)
        if (t.func[i] >= 0 && t.funcs.name[t.func[i]] === which && (n < 0 || t.total[i] > t.total[n])) n = i;
    const r = g.scroller.getBoundingClientRect(),
      k = g.scroller.clientWidth / t.total[g.root];
    return {
      n,
      x: r.left + (t.start[n] - t.start[g.root] + t.total[n] / 2) * k,
      y: r.top + (t.depth[n] - t.depth[g.root]) * 18 + 9 - g.scroller.scrollTop,
      total: t.total[n],
      name: t.funcs.name[t.func[n]],
    };
  }, which);
}
async function clickFrame(page, which) {
  const at = await place(page, which);
  await page.mouse.click(at.x, at.y);
  await settled(page);
  return at;
}

test('a cold start: one picture, few questions, quality said', async () => {
  await explore('', async (page) => {
    assert.ok(server.state.log.length <= 8, server.state.log.map((l) => l.path).join(' '));
    assert.ok(server.state.log.slice(0, 4).some((l) => l.path === '/flamegraph'), 'the picture does not wait for what stands beside it');
    const c = await page.evaluate(() => ({ ...window.strataCounters, dom: document.querySelectorAll('*').length }));
    assert.ok(c.nodes > 1000 && c.nodes <= 20_000 && c.rects > 500 && c.visited <= c.nodes);
    assert.ok(c.dom <= 4000, `${c.dom} elements`);
    const q = await text(page, '.quality');
    for (const part of ['Some loss', 'Last 1 h', '4 sources', 'cpu, ns, sum @ 99 Hz', 'covered 95.5 %', 'lost 1.4 %', 'ring_full', 'no stack 1.1 %', 'unsymbolised', 'hidden']) assert.ok(q.includes(part), `${part} in: ${q}`);
    assert.equal(await page.title(), 'cpu · Strata');
    assert.match(await text(page, '#crumbs'), /^all 3\.90 core-h from 4 sources/);
  });
});

test('idle for 5 s: nothing is drawn and nothing is asked', async () => {
  await explore('', async (page) => {
    await settled(page);
    const before = await page.evaluate(() => window.strataCounters.draws);
    const n = server.state.log.length;
    await page.waitForTimeout(5000);
    assert.equal(await page.evaluate(() => window.strataCounters.draws), before);
    assert.equal(server.state.log.length, n);
  });
});

test('zoom: the place is kept, details are asked for once, Back, Forward and reload give the same view', async () => {
  await explore('', async (page) => {
    const at = await clickFrame(page, 'train_step');
    const z = (await params(page)).z;
    assert.match(z, /^[0-9a-f]{16}$/);
    await page.waitForFunction(() => window.strataGraph.tree.rootHash !== 0n);
    const zooms = asked('/flamegraph').filter((l) => l.params.get('root'));
    assert.equal(zooms.length, 1);
    assert.equal(zooms[0].params.get('root'), z);
    assert.match(zooms[0].params.get('from'), /^\d+ns$/, 'the same samples, not a later now');
    const seen = await page.evaluate(() => ({ root: window.strataGraph.root, name: window.strataGraph.tree.funcs.name[window.strataGraph.tree.func[0]], total: window.strataGraph.tree.total[0] }));
    assert.deepEqual(seen, { root: 0, name: 'train_step', total: at.total });
    assert.match(await text(page, '#crumbs'), /all.*fit.*train_epoch.*train_step 1\.45 core-h · 37\.1 % of 3\.90 core-h/);
    assert.match(await text(page, '#inspector'), /train_step.*1\.45 core-h total ±.*of parent.*100 % of view 37\.1 % of total/);
    await page.goBack();
    await settled(page);
    assert.equal((await params(page)).z, undefined);
    assert.equal(await page.evaluate(() => window.strataGraph.tree.funcs.name[window.strataGraph.tree.func[window.strataGraph.root]]), 'all');
    const n = server.state.log.length;
    await page.goForward();
    await settled(page);
    assert.equal((await params(page)).z, z);
    assert.equal(server.state.log.length, n, 'going forward asks nothing that is known');
    assert.match(await text(page, '#crumbs'), /train_step 1\.45 core-h/);
    await page.reload();
    await page.waitForFunction(() => document.querySelector('.stat'));
    assert.match(await text(page, '#crumbs'), /all.*train_epoch.*train_step 1\.45 core-h/);
    await page.keyboard.press('Tab');
    await page.locator('.a11y-tree').focus();
    await page.keyboard.press('Backspace');
    await settled(page);
    await page.waitForFunction(() => !document.body.dataset.state);
    assert.match(await text(page, '#crumbs'), /train_epoch [\d.]+ core-h/);
  });
});

test('a link to a frame that the trimmed tree hides, and to one that is gone', async () => {
  const t = server.treeOf('3k');
  const whole = answers.flamegraph(t, new URLSearchParams({ max_nodes: '0' }));
  /* the deepest node: far below a pixel */
  const { decode, hashOf } = await import('../../../web/js/tree.js');
  const tree = decode({ ...whole });
  let deep = 0;
  for (let i = 0; i < tree.n; i++) if (tree.depth[i] > tree.depth[deep]) deep = i;
  await explore(`?z=${hashOf(tree, deep)}`, async (page) => {
    assert.equal(await page.evaluate(() => window.strataGraph.tree.total[0]), tree.total[deep]);
    await page.locator('#crumbs button', { hasText: 'Out' }).click();
    await page.waitForFunction((v) => window.strataGraph.tree.total[window.strataGraph.root] === v, tree.total[tree.parent[deep]]);
  });
  await explore('?z=00000000000000ff', async (page) => {
    /* a notice stays some seconds: looked for at once, not when all else stands */
    assert.match(await text(page, '.toast'), /not here/);
    await page.waitForFunction(() => !new URLSearchParams(location.search).has('z'));
  }, { wait: false });
});

test('tooltip: name, place, shares, the exact value and samples', async () => {
  await explore('', async (page) => {
    const at = await place(page, 'train_step');
    await page.mouse.move(at.x, at.y);
    const tip = await text(page, '.tip');
    assert.match(tip, /^train_step Python · trainer\.py total 1\.45 core-h ±14\.5 core-s self 417 core-s of parent [\d.]+ % of total 37\.1 %/);
    assert.ok(tip.includes(`${at.total.toLocaleString('en-US')} ns · ${Math.round(at.total / 10_101_010).toLocaleString('en-US')} samples`), tip);
    await page.mouse.move(5, 5);
    assert.equal(await page.locator('.tip').isVisible(), false);
  });
});

test('search: exact share of the total, matches one after the other, cleared by Esc', async () => {
  const want = answers.top(server.treeOf('3k'), new URLSearchParams({ match: 'cuda', limit: '0' })).matched;
  await explore('', async (page) => {
    await page.keyboard.press('/');
    await page.keyboard.type('cuda');
    await page.waitForFunction((n) => / of total.*\b\d+ functions/s.test(document.querySelector('#search-result')?.textContent ?? ''));
    const share = ((Number(want.total) / server.treeOf('3k').total[0]) * 100).toFixed(1);
    assert.equal(await text(page, '#search-result'), `${share} % of total · ${want.functions} functions`);
    assert.equal((await params(page)).s, 'cuda');
    assert.equal(asked('/top').at(-1).params.get('match'), 'cuda');
    await page.keyboard.press('Enter');
    assert.match(await text(page, '.search-nav'), /^1 \/ \d+/);
    const first = await text(page, '.inspector-title');
    await page.keyboard.press('Enter');
    assert.match(await text(page, '.search-nav'), /^2 \/ \d+/);
    assert.match(first, /cuda/i);
    assert.match(await text(page, '#live'), /of total/);
    await clickFrame(page, 'train_step');
    assert.match(await text(page, '#search-result'), /≥? ?[\d.]+ % of view · [\d.]+ % of total/);
    await page.locator('#search-input').focus();
    await page.keyboard.press('Escape');
    await settled(page);
    assert.equal((await params(page)).s, undefined);
  });
});

const PERIOD = 10_101_010;
test('filters: from the menu and the keyboard, as chips in the URL, x % of y, removed by click and key, Back', async () => {
  const whole = server.treeOf('3k'),
    kept = filterTree(whole, ['keep:train_step'], PERIOD).tree.total[0];
  const share = (v) => `${((v / whole.total[0]) * 100).toFixed(1)} %`;
  const shownAs = async (page, v) => page.waitForFunction((want) => document.querySelector('.shown')?.textContent.replaceAll('\u202f', ' ').includes(want), `shown ${share(v)} of 3.90 core-h`);
  const urls = (page) => page.evaluate(() => new URLSearchParams(location.search).getAll('f'));
  await explore('', async (page) => {
    assert.equal(await page.locator('.chip.filter').count(), 0);
    const at = await place(page, 'train_step');
    await page.mouse.click(at.x, at.y, { button: 'right' });
    assert.match(await text(page, '.frame-menu'), /^train_step Zoom Enter Zoom out ⌫ Only stacks with it k/);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'ZoomEnter');
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('.frame-menu').isVisible(), false);
    await page.keyboard.press('.');
    await page.keyboard.press('ArrowDown');
    assert.match(await page.evaluate(() => document.activeElement.textContent), /^Only stacks/, 'zooming out is off at the root');
    await page.keyboard.press('Enter');
    await shownAs(page, kept);
    assert.deepEqual(await urls(page), ['keep:train_step']);
    assert.match(await text(page, '.chip.filter'), /only ?train_step/);
    assert.equal(await page.evaluate(() => window.strataGraph.tree.total[0]), kept);
    assert.deepEqual(asked('/flamegraph').at(-1).params.getAll('f'), ['keep:train_step']);
    assert.deepEqual(asked('/top').at(-1).params.getAll('f'), ['keep:train_step']);
    assert.match(await text(page, '#crumbs'), new RegExp(`· ${share(kept)} of 3\\.90 core-h`), 'shares are of everything');
    /* a second one by key: the selected frame is hidden */
    await page.evaluate(() => window.strataGraph.select(0));
    const inner = await place(page, 'gelu');
    await page.mouse.click(inner.x, inner.y, { button: 'right' });
    await page.keyboard.press('Escape');
    await page.keyboard.press('d');
    const both = filterTree(whole, ['keep:train_step', 'drop:gelu'], PERIOD).tree.total[0];
    assert.ok(both < kept);
    await shownAs(page, both);
    assert.deepEqual(await urls(page), ['keep:train_step', 'drop:gelu']);
    const link = page.url();
    await page.keyboard.press('R');
    await page.waitForFunction(() => document.querySelectorAll('.chip.filter').length === 3);
    assert.deepEqual(await urls(page), ['keep:train_step', 'drop:gelu', 'collapse:recursion']);
    await page.locator('.chip-x').nth(2).focus();
    await page.keyboard.press('Delete');
    await page.waitForFunction(() => document.querySelectorAll('.chip.filter').length === 2);
    assert.match(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), /^Remove the filter without gelu/);
    await page.locator('.chip.filter .chip-x').first().click();
    await page.waitForFunction(() => document.querySelectorAll('.chip.filter').length === 1);
    assert.deepEqual(await urls(page), ['drop:gelu']);
    await page.goBack();
    await page.goBack();
    await page.goBack();
    await shownAs(page, both);
    assert.equal(page.url(), link);
    await page.goForward();
    await page.waitForFunction(() => document.querySelectorAll('.chip.filter').length === 3);
    await page.goto(link);
    await page.waitForFunction(() => document.querySelector('.shown'));
    await shownAs(page, both);
    await page.locator('#filters button', { hasText: 'Clear' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.chip.filter').length === 0);
    assert.deepEqual(await urls(page), []);
  });
});

test('filters: to the matches of a search, a preset, a typed one; nothing left says so', async () => {
  const whole = server.treeOf('3k');
  await explore('?s=cuda', async (page) => {
    await page.waitForFunction(() => / of total/.test(document.querySelector('#search-result')?.textContent ?? ''));
    const share = (await text(page, '#search-result')).match(/([\d.]+ %) of total/)[1];
    await page.locator('button', { hasText: 'Filter to matches' }).click();
    await page.waitForFunction(() => document.querySelector('.shown'));
    assert.ok((await text(page, '.shown')).startsWith(`shown ${share} of`), 'search and filter select the same samples');
    await page.locator('#filters .chip.add').click();
    await page.locator('.pick', { hasText: 'interpreter' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.chip.filter').length === 2);
    await page.locator('#filters .chip.add').click();
    await page.locator('#filter-text').fill('nonsense');
    assert.equal(await page.locator('#filter-text').getAttribute('aria-invalid'), 'true');
    await page.locator('#filter-text').fill('keep:no such function');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.body.dataset.state === 'empty');
    assert.match(await text(page, '.state h2'), /filters removed everything/);
    await page.locator('.state .button', { hasText: 'Clear the filters' }).click();
    await page.waitForFunction(() => !document.body.dataset.state);
    assert.equal(await page.evaluate(() => window.strataGraph.tree.total[0]), whole.total[0]);
  });
});

test('sandwich: callers above, callees below, one scale; by key, click and link; Back', async () => {
  const t = server.treeOf('3k');
  const want = sandwich(t, new URLSearchParams({ fn: 'forward' })).function;
  await explore('', async (page) => {
    await clickFrame(page, 'train_step');
    await page.keyboard.press('s');
    await page.waitForFunction(() => document.querySelector('#sandwich .panel-head b'));
    assert.deepEqual([(await params(page)).view, (await params(page)).fn, (await params(page)).in], ['sandwich', 'train_step', 'file=trainer.py']);
    assert.match(await text(page, '#sandwich .panel-head'), /^train_step trainer\.py 1\.45 core-h · 37\.1 % of total self 417 core-s/);
    const said = (side) => page.evaluate((s) => { const e = document.querySelector(`#sandwich .${s} .a11y-tree`); return document.getElementById(e.getAttribute('aria-activedescendant'))?.textContent.replaceAll('\u202f', ' ') ?? e.querySelector('[aria-selected=true]')?.textContent; }, side);
    await page.locator('#sandwich .callers .a11y-tree').focus();
    await page.keyboard.press('ArrowUp');
    assert.match(await said('callers'), /^train_epoch, 1\.45 core-h/);
    assert.match(await text(page, '.inspector-title'), /train_epoch/);
    await page.keyboard.press('ArrowDown');
    assert.match(await said('callees'), /^train_step, 1\.45 core-h/, 'the function itself is there once');
    await page.keyboard.press('ArrowDown');
    assert.match(await said('callees'), /^forward, .* of parent/, 'below the function its callees begin');
    const [over, under] = await Promise.all(['.callers', '.callees'].map((s) => page.locator(`#sandwich ${s}`).boundingBox()));
    assert.ok(Math.abs(over.y + over.height - under.y - 18) <= 2, 'row 0 of the callers lies under that of the callees');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('ArrowUp');
    assert.match(await said('callers'), /^train_epoch/, 'above it the callers begin');
    await page.keyboard.press('Home');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('#sandwich .panel-head b')?.textContent === 'forward');
    /* it calls itself: what is its own is what the table says, in the head and in the footer */
    const own = (await text(page, '#sandwich .panel-head')).match(/self ([\d.]+ core-s)/)[1];
    await page.locator('#sandwich .callees .a11y-tree').focus();
    await page.keyboard.press('Home');
    assert.ok((await text(page, '#inspector')).includes(`${own} self`), `${own} in ${await text(page, '#inspector')}`);
    assert.equal((await params(page)).fn, 'forward');
    assert.ok(Number(want.total) > 0);
    /* a click on the widest caller puts it in the middle: its bar stands one row above the bottom */
    const box = await page.locator('#sandwich .callers .graph-scroll').boundingBox();
    await page.mouse.click(box.x + 20, box.y + box.height - 18 - 9);
    await page.waitForFunction(() => document.querySelector('#sandwich .panel-head b')?.textContent !== 'forward');
    assert.notEqual((await params(page)).fn, 'forward');
    await page.goBack();
    await page.waitForFunction(() => document.querySelector('#sandwich .panel-head b')?.textContent === 'forward');
    await page.goBack();
    await page.goBack();
    await settled(page);
    assert.equal((await params(page)).view, undefined);
    assert.match(await text(page, '.inspector-title'), /train_step/);
  });
  await explore('?view=sandwich&fn=gelu&f=keep%3Atrain_step', async (page) => {
    assert.match(await text(page, '#sandwich .panel-head'), /^gelu/);
    assert.match(await text(page, '.inspector-title'), /gelu/);
    assert.deepEqual(asked('/sandwich').at(-1).params.getAll('f'), ['keep:train_step']);
  });
  await explore('?view=sandwich&fn=no+such', async (page) => assert.match(await text(page, '#sandwich .panel-note'), /no such is in no sample/));
  await explore('?view=sandwich', async (page) => assert.match(await text(page, '#sandwich .panel-note'), /Select a function/));
});

const B = 'from=2026-11-29T13:30:00Z&to=2026-11-29T13:45:00Z';
test('compare: two ranges, both totals per second with loss and coverage, graph and table, swap, layouts, link, Back', async () => {
  await explore(`?${B}`, async (page) => {
    await page.keyboard.press('5');
    await page.waitForFunction(() => document.querySelector('#compare tr[data-row]'));
    const q = asked('/diff')[0].params;
    assert.deepEqual([q.get('a_from'), q.get('a_to'), q.get('b_from'), q.get('b_to')], ['2026-11-29T13:15:00Z', '2026-11-29T13:30:00Z', '2026-11-29T13:30:00Z', '2026-11-29T13:45:00Z'], 'A is right before B');
    const sides = (await page.locator('#compare .side:not(.compare-q)').allInnerTexts()).map((t) => t.replaceAll('\u202f', ' ').replace(/\s+/g, ' '));
    assert.match(sides[0], /^A 2026-11-29 13:15:00 – 13:30:00 [\d.]+ core-h n=[\d,]+ [\d.]+ cores covered 95\.\d % lost 1\.4 %/);
    assert.match(sides[1], /^B 2026-11-29 13:30:00 – 13:45:00 [\d.]+ core-h n=[\d,]+ [\d.]+ cores covered/);
    assert.match(sides[2], /^Δ −[\d.]+ cores ±[\d.]+ cores per covered second/);
    const rows = await page.locator('#compare tr[data-row]').count();
    assert.ok(rows > 10 && rows <= 100, `${rows} rows`);
    assert.match(await text(page, '#compare .compare-list tbody'), /removed, −100 %/);
    assert.match(await text(page, '#compare .diff-legend'), /more in B less in B n\.s\. or under 2 % new removed/);
    /* keyboard and what a screen reader hears */
    await page.locator('#compare .a11y-tree').focus();
    await page.keyboard.press('ArrowDown');
    assert.match(await text(page, '.compare-foot'), /^\S+ A [\d.]+ cores → B [\d.]+ cores, Δ [+−][\d.]+ cores ±/);
    assert.match(await page.evaluate(() => document.getElementById(document.querySelector('#compare .a11y-tree').getAttribute('aria-activedescendant')).textContent), /→ B/);
    await page.keyboard.press('w');
    await page.waitForFunction(() => document.querySelector('#compare .side:nth-of-type(4), #compare')?.textContent.includes('+'));
    await settled(page);
    let p = await params(page);
    assert.deepEqual([p.a_from, p.a_to, p.from, p.to], ['2026-11-29T13:30:00Z', '2026-11-29T13:45:00Z', '2026-11-29T13:15:00Z', '2026-11-29T13:30:00Z']);
    assert.match((await page.locator('#compare .side:not(.compare-q)').nth(2).innerText()).replaceAll('\u202f', ' '), /Δ \+[\d.]+ cores/, 'signs flip');
    await page.goBack();
    await settled(page);
    await page.locator('#compare .tab', { hasText: 'A' }).click();
    await page.locator('#compare select').nth(1).selectOption('share');
    await settled(page);
    p = await params(page);
    assert.deepEqual([p.order, p.norm], ['a', 'share']);
    assert.deepEqual([asked('/diff').at(-1).params.get('norm'), p.view], ['share', 'compare']);
    /* A by hand on the chart */
    const box = await page.locator('.u-over').boundingBox();
    await page.keyboard.down('Shift');
    await page.mouse.move(box.x + box.width * 0.1, box.y + 30);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.2, box.y + 30, { steps: 5 });
    await page.mouse.up();
    await page.keyboard.up('Shift');
    await settled(page);
    p = await params(page);
    assert.ok(p.a_from && Date.parse(p.a_to) > Date.parse(p.a_from) && p.from === '2026-11-29T13:30:00Z', JSON.stringify(p));
    assert.ok(asked('/diff').some((l) => l.params.get('a_from') === p.a_from));
    const link = page.url();
    await page.goto(link);
    await page.waitForFunction(() => document.querySelector('#compare tr[data-row]'));
    assert.equal(asked('/diff').at(-1).params.get('a_from'), p.a_from);
  });
  server.state.say.set('/diff', () => server.error(422, { code: 'types_differ', message: 'a_q and b_q are of two types' }));
  await explore(`?view=compare&${B}`, async (page) => assert.match(await text(page, '#compare .field-error'), /of two types/), { expect: [/status of 422/] });
});

test('search by regular expression is the server’s; its refusal stands at the field', async () => {
  await explore('?s=%2F%5Ecuda%2F', async (page) => {
    await page.waitForFunction(() => /functions/.test(document.querySelector('#search-result')?.textContent ?? ''));
    assert.match(await text(page, '.search-nav'), /– \/ [1-9]/);
    await page.locator('#search-input').fill('/(/');
    await page.waitForFunction(() => document.querySelector('#search-input')?.getAttribute('aria-invalid') === 'true');
    assert.match(await text(page, '#search-result'), /^match: /);
    assert.equal(await page.evaluate(() => document.body.dataset.state ?? ''), '');
  }, { expect: [/status of 400/] });
});

test('chart: gap and loss are said, dragging selects a range, a click outside lets it go, keys too', async () => {
  await explore('', async (page) => {
    assert.match(await text(page, '.chart-head'), /^cpu cores per 15 s not covered lost steps train events mean 3[\d.]+ cores as table$/);
    const box = await page.locator('.u-over').boundingBox();
    const at = (f) => box.x + box.width * f;
    await page.mouse.move(at(0.32), box.y + 30);
    assert.match(await text(page, '.chart-readout'), /13:19:\d\d · not covered/);
    await page.mouse.move(at(0.83), box.y + 30);
    assert.match(await text(page, '.chart-readout'), /cores · lost [\d.]+ %/);
    await page.mouse.move(at(0.5), box.y + 30);
    await page.mouse.down();
    await page.mouse.move(at(0.6), box.y + 30, { steps: 5 });
    await page.mouse.move(at(0.75), box.y + 30, { steps: 5 });
    assert.equal((await params(page)).from, undefined, 'asked when the drag ends');
    await page.mouse.up();
    await settled(page);
    const { from, to } = await params(page);
    assert.ok(Math.abs(Date.parse(from) - Date.UTC(2026, 10, 29, 13, 30)) < 20e3, from);
    assert.ok(Math.abs(Date.parse(to) - Date.UTC(2026, 10, 29, 13, 45)) < 20e3, to);
    assert.equal(asked('/flamegraph').at(-1).params.get('from'), from);
    assert.match(await text(page, '#range-button'), /13:30:\d\d – 13:45:\d\d|13:29/);
    assert.match(await page.locator('.chart-keys').getAttribute('aria-valuetext'), /13:[23]\d:\d\d to .*13:4\d/);
    await page.mouse.click(at(0.1), box.y + 30);
    await settled(page);
    assert.equal((await params(page)).from, undefined);
    await page.locator('.chart-keys').focus();
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction(() => new URLSearchParams(location.search).has('from'));
    await page.goBack();
    await settled(page);
    assert.match(await text(page, '#range-button'), /Last 1 h/);
  });
});

test('time range: picks, a typed range, and what is wrong with it under its field', async () => {
  await explore('', async (page) => {
    await page.keyboard.press('t');
    await page.locator('.pick', { hasText: 'Last 15 min' }).click();
    await settled(page);
    assert.equal((await params(page)).from, 'now-15m');
    await page.locator('#range-button').click();
    const [from, to] = [page.locator('.range-form input').nth(0), page.locator('.range-form input').nth(1)];
    await from.fill('yesterday');
    await page.locator('.range-form button').click();
    assert.match(await text(page, '#range-from-error'), /^Not a time/);
    assert.equal(await from.getAttribute('aria-invalid'), 'true');
    await from.fill('2026-11-29 13:30');
    await to.fill('2026-11-29 13:20');
    await page.locator('.range-form button').click();
    assert.match(await text(page, '#range-to-error'), /not after the start/);
    await to.fill('2026-11-29 13:40');
    await to.press('Enter');
    await settled(page);
    const p = await params(page);
    /* the page shows local time, which is UTC here */
    assert.deepEqual([p.from, p.to], ['2026-11-29T13:30:00Z', '2026-11-29T13:40:00Z']);
    await page.keyboard.press('[');
    await settled(page);
    assert.deepEqual([(await params(page)).from, (await params(page)).to], ['2026-11-29T13:25:00Z', '2026-11-29T13:35:00Z']);
    assert.equal(await page.locator('button', { hasText: 'Live' }).isDisabled(), true);
  });
});

test('selector: type, chips, a label added, text with the error at the place, the server’s refusal too', async () => {
  await explore('?q=cpu%7Bservice%3D%22rl-42%22%7D', async (page) => {
    assert.match(await text(page, '.chip.matcher'), /service ?= ?rl-42/);
    await page.locator('#selector .chip.add').click();
    await page.locator('.add-label input').nth(0).fill('host');
    await page.locator('.add-label input').nth(1).click();
    await page.waitForFunction(() => document.querySelectorAll('#label-values option').length === 4);
    await page.locator('.add-label select').selectOption('!=');
    await page.locator('.add-label input').nth(1).fill('gpu-"11"');
    await page.locator('.add-label input').nth(1).press('Enter');
    await settled(page);
    assert.equal((await params(page)).q, 'cpu{service="rl-42", host!="gpu-\\"11\\""}');
    await page.locator('.chip-x').first().click();
    await settled(page);
    assert.equal((await params(page)).q, 'cpu{host!="gpu-\\"11\\""}');
    await page.locator('.type .button').click();
    await page.locator('.type .pick', { hasText: 'offcpu' }).click();
    await settled(page);
    assert.match((await params(page)).q, /^offcpu\{/);
    await page.getByLabel('Edit the selector as text').click();
    await page.locator('#selector-input').fill('cpu{service=rl}');
    await page.keyboard.press('Enter');
    assert.match(await text(page, '#selector-error'), /At character 13 \(“rl}”\): expected a value in quotes/);
    server.state.say.set('/flamegraph', () => server.error(400, { code: 'bad_selector', param: 'q', message: 'q: label "rank" is not known, at 4' }));
    await page.locator('#selector-input').fill('cpu{rank=~"x"}');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.body.dataset.state === 'error');
    assert.match(await text(page, '#selector-error'), /label "rank" is not known/);
    assert.match(await text(page, '.state h2'), /was refused/);
    server.state.say.clear();
    await page.locator('.chip-x').first().click();
    await settled(page);
    assert.equal(await page.locator('#selector-error').count(), 0);
    assert.equal(await page.evaluate(() => document.body.dataset.state ?? ''), '');
  }, { expect: [/status of 400/] });
});

const EMPTY = {
  never_ingested: [/Nothing has arrived yet/, /strata-agent -o server\.url=http/, 'Look again'],
  no_agent_in_range: [/No agent was running then/, /newest sample is from 2026-11-29 12:00:00/, 'Go to the newest data'],
  no_match: [/The selector matches nothing/, /host=~"gpu-0\[1-4\]".*gpu-11.*gpu-14/, 'Remove this matcher'],
  type_absent: [/cpu is not collected here/, /cpu.*offcpu/, 'Last 1 h'],
  filtered_out: [/filters removed everything/, /none of them passes/, 'Clear the filters'],
  expired: [/Older than what is kept/, /before the oldest data/, 'Go to the newest data'],
  future: [/has not come yet/, /in the future/, 'Last 1 h'],
  zero: [/Sampled, and nothing ran/, /1 min of 1 min/, 'Twice the time'],
};
test('each reason of an empty answer says why and what to do, and only that', async () => {
  for (const [why, [head, body, button]] of Object.entries(EMPTY)) {
    server.state.say.set('/flamegraph', () => answers.empty(why, { matcher: why === 'no_match' ? 'host=~"gpu-0[1-4]"' : null }));
    await explore('?q=cpu%7Bservice%3D%22rl-42%22%2Chost%3D~%22gpu-0%5B1-4%5D%22%7D', async (page) => {
      await settled(page);
      assert.equal(await page.locator('.state').getAttribute('data-why'), why);
      assert.match(await text(page, '.state h2'), head);
      assert.match(await text(page, '.state'), body);
      for (const [other, [otherHead]] of Object.entries(EMPTY)) if (other !== why) assert.doesNotMatch(await text(page, '.state h2'), otherHead);
      server.state.say.clear();
      await page.locator('.state .button', { hasText: button }).click();
      await page.waitForFunction(() => !document.body.dataset.state);
      if (why === 'no_match') assert.equal((await params(page)).q, 'cpu{service="rl-42"}');
      if (why === 'no_agent_in_range') assert.equal((await params(page)).to, '2026-11-29T12:00:01Z');
    });
  }
});

test('a type says what it measures where it is chosen, and why a program may have none of it', async () => {
  server.state.say.set('/flamegraph', () => answers.empty('no_match', { matcher: 'service="demo"' }));
  for (const [type, words, none] of [['offcpu', /exact.*gil_wait lies inside/, /offcpu\.enabled = auto observes only Python programs with several threads/], ['cpu', /an estimate/, null]])
    await explore(`?q=${type}%7Bservice%3D%22demo%22%7D`, async (page) => {
      await settled(page);
      /* by keyboard: each is read where it is chosen, without pointing at it */
      await page.locator('.type .button').focus();
      await page.keyboard.press('Enter');
      assert.match(await text(page, '.type .pick[aria-pressed=true]'), new RegExp(`^${type} nanoseconds, sum .*${words.source}`));
      await page.keyboard.press('ArrowDown');
      assert.match(await page.evaluate(() => document.activeElement.textContent), /^offcpu.*Every interval is measured/s);
      await page.keyboard.press('Escape');
      assert.equal(await page.evaluate(() => document.activeElement === document.querySelector('.type .button') && !document.querySelector('.types')), true);
      if (none) assert.match(await text(page, '.state'), none);
      else assert.doesNotMatch(await text(page, '.state'), /offcpu\.enabled/);
    });
});

test('stacks that were cut lead to the screen that says why', async () => {
  server.state.say.set('/flamegraph', (p) => { const a = answers.flamegraph(server.treeOf('3k'), p); return { ...a, quality: { ...a.quality, truncated: String(BigInt(a.total) / 4n) } }; });
  await explore('?q=cpu%7Bservice%3D%22rl-42%22%7D', async (page) => {
    assert.match(await text(page, '.quality'), /truncated 25\.0 %/);
    assert.match(await page.locator('.quality a').getAttribute('href'), /\/quality\?.*q=cpu.*rl-42/);
  });
});

test('errors: what, why, request id, what to do; a busy server is asked again by itself', async () => {
  const one = async (reply, checks, options = {}) => {
    server.state.say.set('/flamegraph', reply);
    await explore('', async (page) => {
      const t = await text(page, '.state');
      for (const c of checks) assert.match(t, c);
      if (options.recovers) {
        server.state.say.clear();
        await page.waitForFunction(() => !document.body.dataset.state, null, { timeout: 5000 });
      } else {
        server.state.say.clear();
        await page.locator('.state .button', { hasText: 'Retry' }).click();
        await page.waitForFunction(() => !document.body.dataset.state);
      }
    }, { expect: [/status of \d+/, /ERR_/] });
  };
  await one(() => server.error(422, { code: 'query_too_expensive', setting: 'query.memory', limit: 268435456, actual: 402653184, message: 'the query needs more than 256 MiB' }), [/too large/, /256 MiB/, /Narrow the selector/, /query\.memory 268435456, asked 402653184/, /4f2a9c1e/]);
  await one(() => server.error(503, { code: 'busy', message: '64 queries are waiting' }, 1), [/busy/, /next try in 1 s/], { recovers: true });
  await one(() => server.error(500, { code: 'internal', message: 'scan failed' }), [/The server failed/, /scan failed/]);
  await one(() => ({ status: 200, body: '<!doctype html>' }), [/makes no sense/, /not JSON/]);
  await one(() => {
    const a = answers.flamegraph(server.treeOf('3k'), new URLSearchParams());
    a.node.total[1] += 10_101_010;
    return a;
  }, [/makes no sense/, /sum at node/]);
});

test('loading says so, can be cancelled, and the old picture stays', async () => {
  await explore('', async (page) => {
    server.state.delay = 3000;
    await page.keyboard.press('r');
    await page.waitForFunction(() => document.body.dataset.state === 'loading');
    assert.match(await text(page, '.state'), /Reading profiles… \d s Cancel/);
    assert.equal(await page.locator('.skeleton').count(), 0);
    await page.locator('.state .button').click();
    await page.waitForFunction(() => !document.body.dataset.state);
    assert.match(await text(page, '#crumbs'), /3\.90 core-h/);
  });
});

test('table: sorted and paged by the server, rows and frames know each other', async () => {
  await explore('?view=both', async (page) => {
    assert.match(await text(page, '.functions thead'), /Function Self Total/);
    assert.equal(await page.locator('th.col-self').getAttribute('aria-sort'), 'descending');
    await page.locator('th.col-total button').click();
    await settled(page);
    assert.equal((await params(page)).sort, 'total');
    assert.equal(asked('/top').at(-1).params.get('sort'), 'total');
    assert.match(await text(page, '.functions tbody tr[data-row="0"]'), /2\.15 core-h ?55\.0 %/);
    await page.locator('.functions tbody tr[data-row="3"]').click();
    const name = await text(page, '.functions tr.selected bdi');
    assert.equal(await text(page, '.inspector-title bdi'), name);
    await page.locator('.table-scroll').focus();
    await page.keyboard.press('ArrowDown');
    assert.notEqual(await text(page, '.inspector-title bdi'), name);
    const live = await page.locator('.functions tbody tr[data-row]').count();
    assert.ok(live <= 100, `${live} rows`);
    await page.keyboard.press('2');
    const all = answers.top(server.treeOf('3k'), new URLSearchParams({ limit: '2000' })).n;
    server.state.log.length = 0;
    assert.equal(Number(await page.locator('.functions').getAttribute('aria-rowcount')), all > 200 ? -1 : all + 1);
  });
  server.state.size = '200k';
  await explore('?view=table', async (page) => {
    assert.equal(await page.locator('.functions').getAttribute('aria-rowcount'), '-1');
    await page.evaluate(() => document.querySelector('.table-scroll').scrollTo(0, 1e6));
    await page.waitForFunction(() => Number(document.querySelector('.functions tbody tr[data-row]').dataset.row) > 100);
    await settled(page);
    assert.equal(asked('/top').at(-1).params.get('after'), '200');
  });
});

test('keyboard: every drawn frame is reached, and said', async () => {
  await explore('', async (page) => {
    await page.locator('.a11y-tree').focus();
    const said = [];
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowRight', 'ArrowUp', 'End']) {
      await page.keyboard.press(key);
      said.push(await page.evaluate(() => document.getElementById(document.querySelector('.a11y-tree').getAttribute('aria-activedescendant'))?.textContent.replaceAll('\u202f', ' ')));
    }
    assert.match(said[0], /^_start, 2\.\d+ core-h, self .*, [\d.]+ % of parent, [\d.]+ % of view, [\d.]+ % of total$/);
    assert.ok(said.every(Boolean));
    /* walk the whole tree by the four arrows alone, depth first */
    const missed = await page.evaluate(() => {
      const g = window.strataGraph,
        t = g.tree,
        seen = new Set();
      const press = (key) => document.querySelector('.a11y-tree').dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
      g.select(0);
      (function walk() {
        seen.add(g.selected);
        const at = g.selected;
        press('ArrowDown');
        if (g.selected === at) return;
        for (;;) {
          const child = g.selected;
          walk();
          press('ArrowRight');
          if (g.selected === child) break;
        }
        press('ArrowUp');
      })();
      const drawn = [];
      for (let i = 0; i < t.n; i++) if (t.func[i] >= 0 && g.drawn(i)) drawn.push(i);
      return { drawn: drawn.length, missed: drawn.filter((i) => !seen.has(i)).length };
    });
    assert.ok(missed.drawn > 300, `${missed.drawn} drawn`);
    assert.equal(missed.missed, 0);
    await page.keyboard.press('?');
    await page.locator('dialog.help').waitFor();
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('dialog.help').isVisible(), false);
    await page.keyboard.press('b');
    assert.equal((await params(page)).view, 'both');
    await page.locator('#search-input').focus();
    await page.keyboard.type('1b2');
    await settled(page);
    assert.equal((await params(page)).view, 'both', 'letters are dead in fields');
  });
});

const HOSTILE = [
  '<img src=x onerror="window.__pwn=1">',
  '<script>window.__pwn=1</script>',
  '"><svg onload=window.__pwn=1>',
  "' onmouseover='window.__pwn=1",
  'javascript:window.__pwn=1',
  '{{constructor.constructor("window.__pwn=1")()}}',
  '${window.__pwn=1}',
  '&lt;b&gt;&amp;',
  '\u202egnp.exe',
  'a\u0000b',
  'line\nbreak',
  'tab\there',
  '\u200b\u200d',
  '<!--',
  ']]>',
  '</style><script>window.__pwn=1</script>',
  '__proto__',
  'constructor',
  'x'.repeat(10_000),
  '日本語の関数',
  '🤖🔥',
  '%00%3Cscript%3E',
  '../../etc/passwd',
  "'; DROP TABLE x;--",
  '=HYPERLINK("http://x")',
  'std::vector<std::pair<int, char>, std::allocator<int>>::push_back',
  '<lambda(auto:1)>',
  'operator<',
  '\ufeffbom',
  '\\u003cscript\\u003e',
];
test('30 hostile names in every field do nothing and are shown as text', async () => {
  assert.equal(HOSTILE.length, 30);
  const n = HOSTILE.length;
  const tree = (p) => {
    const a = answers.flamegraph(server.treeOf('3k'), p);
    const strings = ['', 'all', ...HOSTILE];
    const id = (i) => i + 2;
    const key = (i) => (i + 1).toString(16).padStart(16, '0');
    return {
      ...a,
      total: String(n * 100),
      unfiltered: { total: String(n * 100), samples: String(n) },
      view: { root: '0', asked: '0', found: true, path: [], total: String(n * 100) },
      trim: { floor: '0', hidden_nodes: 0, hidden_total: '0' },
      quality: { ...a.quality, lost: [{ why: HOSTILE[0], n: 1, weight: '100' }], warnings: [HOSTILE[1]] },
      strings,
      raw: { 9: 'YQA=' },
      func: {
        name: [1, ...HOSTILE.map((_, i) => id(i))],
        file: [0, ...HOSTILE.map((_, i) => id((i + 7) % n))],
        bin: [0, ...HOSTILE.map((_, i) => id((i + 3) % n))],
        kind: ['', ...HOSTILE.map((_, i) => (i % 2 ? 'native' : HOSTILE[i]))],
        key: ['0000000000000000', ...HOSTILE.map((_, i) => key(i))],
      },
      n: n + 1,
      node: { depth: [0, ...HOSTILE.map(() => 1)], func: [0, ...HOSTILE.map((_, i) => i + 1)], self: [0, ...HOSTILE.map(() => 100)], total: [n * 100, ...HOSTILE.map(() => 100)], samples: [n, ...HOSTILE.map(() => 1)], hidden: [0, ...HOSTILE.map(() => 0)] },
    };
  };
  server.state.say.set('/flamegraph', tree);
  server.state.say.set('/top', (p) => {
    const t = tree(p);
    return { ...t, kind: 'top', n, next: null, row: { func: HOSTILE.map((_, i) => i + 1), self: HOSTILE.map(() => 100), total: HOSTILE.map(() => 100), samples: HOSTILE.map(() => 1), places: HOSTILE.map(() => 1) } };
  });
  server.state.say.set('/types', () => ({ types: HOSTILE.map((x) => ({ id: x, name: x, unit: x, kind: 'sum' })) }));
  server.state.say.set('/labels', () => ({ labels: HOSTILE.map((x) => ({ name: x, values: 1, attribute: false })) }));
  const q = `cpu{service="${HOSTILE[0].replaceAll('"', '\\"')}"}`;
  await explore(`?view=both&q=${encodeURIComponent(q)}&s=${encodeURIComponent(HOSTILE[1])}`, async (page) => {
    await page.locator('#search-input').fill('');
    await settled(page);
    await settled(page);
    const names = await page.locator('.functions td.fn > bdi').evaluateAll((list) => list.map((e) => e.title));
    assert.deepEqual(names, HOSTILE.map(show));
    await page.locator('.a11y-tree').focus();
    for (let i = 0; i < n; i++) {
      await page.evaluate((k) => window.strataGraph.select(k), i + 1);
      const at = await place(page, i + 1);
      await page.mouse.move(at.x, at.y);
      assert.equal(await page.locator('.tip-name').evaluate((e) => e.textContent), show(HOSTILE[i]));
    }
    await clickFrame(page, 1);
    await page.locator('#selector .chip.add').click();
    await settled(page);
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => window.__pwn), undefined);
    assert.equal(await page.evaluate(() => document.querySelectorAll('main img, main script, main svg[onload]').length), 0);
  });
  server.state.say.set('/flamegraph', () => answers.empty('no_match', { matcher: `a="${HOSTILE[1]}"` }));
  server.state.say.set('/labels/a/values', () => ({ values: HOSTILE }));
  await explore(`?q=${encodeURIComponent(`cpu{a="${HOSTILE[1]}"}`)}`, async (page) => {
    await settled(page);
    assert.deepEqual(await page.locator('.chips bdi').allTextContents(), HOSTILE.map(show));
    assert.equal(await page.evaluate(() => window.__pwn), undefined);
  });
  server.state.say.set('/flamegraph', () => server.error(400, { code: HOSTILE[0], message: HOSTILE[1], param: HOSTILE[2] }));
  await explore('', async (page) => {
    assert.match(await text(page, '.state'), /<script>window\.__pwn=1<\/script>/);
    assert.equal(await page.evaluate(() => window.__pwn), undefined);
  }, { expect: [/status of 400/] });
});

test('the policy holds: innerHTML and other ways in are blocked', async () => {
  const p = await open(browser, { expect: [/TrustedHTML/, /Trusted Types/, /Content Security Policy/] });
  await p.page.goto(`${server.url}/explore`);
  await p.ready();
  assert.deepEqual(await p.page.evaluate(() => window.violations), []);
  const blocked = await p.page.evaluate(() => {
    const tries = {
      innerHTML: () => (document.createElement('p').innerHTML = '<b>x</b>'),
      policy: () => window.trustedTypes.createPolicy('mine', { createHTML: (x) => x }),
      write: () => document.write('x'),
    };
    return Object.entries(tries).filter(([, f]) => {
      try {
        f();
        return false;
      } catch {
        return true;
      }
    }).map(([k]) => k);
  });
  assert.deepEqual(blocked, ['innerHTML', 'policy', 'write']);
  assert.ok((await p.page.evaluate(() => window.violations)).length >= 2);
  await p.page.close();
});

test('live: new data while nobody points at the graph, a notice while somebody does', async () => {
  await explore('', async (page) => {
    const graphs = () => asked('/flamegraph').length,
      series = () => asked('/timeseries').length;
    await page.mouse.move(5, 5);
    await page.locator('button', { hasText: 'Live' }).click();
    server.state.log.length = 0;
    await page.mouse.move(5, 5);
    await until(page, () => graphs() === 1);
    const at = await place(page, 'train_step');
    await page.mouse.move(at.x, at.y);
    await settled(page);
    const n = [graphs(), series()];
    await until(page, () => series() >= n[1] + 2);
    assert.equal(graphs(), n[0], 'still under the pointer');
    await page.waitForFunction(() => [...document.querySelectorAll('button')].some((b) => /New data/.test(b.textContent)));
    await page.locator('button', { hasText: 'Live' }).click();
    await settled(page);
    server.state.log.length = 0;
    await page.waitForTimeout((5000 / HASTE) * 1.5);
    assert.equal(server.state.log.length, 0);
  }, { hasten: HASTE });
});

test('another UI on the server is said; below a base path everything works; narrow pages do not scroll sideways', async () => {
  server.state.ui = 'ffffffffffffffff';
  await explore('', async (page) => {
    assert.match(await text(page, '.notice'), /Strata was updated/);
  });
  server.reset();
  const below = await serve({ base: '/deep/strata' });
  const p = await open(browser);
  await p.page.goto(`${below.url}/explore?view=both`);
  await p.ready();
  assert.equal(below.state.log.filter((l) => l.path === '/flamegraph').length, 1);
  await p.close();
  await below.close();
  for (const width of [320, 390, 720, 1000])
    await explore('?view=both&s=cuda', async (page) => {
      const w = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(w[0] <= w[1], `${w[0]} > ${w[1]}`);
    }, { width, height: 844 });
});

test('a slow look-up beside an empty answer does not bring “loading” back', async () => {
  server.state.say.set('/flamegraph', () => answers.empty('never_ingested'));
  server.state.say.set('/status', () => new Promise((ok) => setTimeout(() => ok(answers.status()), 600)));
  await explore('', async (page) => {
    await page.waitForTimeout(900);
    assert.equal(await page.evaluate(() => document.body.dataset.state), 'empty');
    assert.match(await text(page, '.state'), /gpu-12/);
  });
});
