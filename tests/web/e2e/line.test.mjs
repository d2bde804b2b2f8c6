// SPDX-License-Identifier: Apache-2.0
/** What the quality line and the events say of a selection that is a part of its sources. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import * as answers from '../fixtures/answers.mjs';
import { params, settled, start, text } from './harness.mjs';

let x, server, explore, asked;
before(async () => {
  x = await start();
  ({ server, explore, asked } = x);
});
after(() => x?.stop());
beforeEach(() => server.reset());

const THREAD = `?q=${encodeURIComponent('cpu{service="rl-42", thread="main"}')}`;

test('events of the machine stand beside one thread of it; where a process is named, that is said', async () => {
  await explore(`${THREAD}&more=steps`, async (page) => {
    await page.waitForFunction(() => document.querySelector('#more .events'));
    assert.equal(asked('/events').at(-1).params.get('q'), 'cpu{service="rl-42"}');
    assert.equal(asked('/steps').at(-1).params.get('q'), 'cpu{service="rl-42", thread="main"}');
    assert.doesNotMatch(await text(page, '#more'), /names a process/);
    assert.match(await page.locator('#more .events bdi').last().getAttribute('title'), /^clock_step: by_ns=-5000000$/);
  });
  await explore(`?q=${encodeURIComponent('cpu{pid="42", tid="43"}')}&more=steps`, async (page) => {
    await page.waitForFunction(() => document.querySelector('#more .events'));
    assert.equal(asked('/events').at(-1).params.get('q'), 'cpu{pid="42"}');
    assert.match(await text(page, '#more'), /names a process: what happened to the machine as a whole is not among these/);
  });
});

test('loss of a part of a source is at most what the source lost, and says so', async () => {
  await explore('?q=cpu', async (page) => {
    const line = await text(page, '.quality');
    assert.match(line, /lost 1\.4 %/);
    assert.doesNotMatch(line, /up to/);
  });
  await explore(THREAD, async (page) => {
    assert.match(await text(page, '.quality'), /lost up to 1\.4 %/);
    assert.match(await page.locator('.quality .fact', { hasText: 'lost' }).getAttribute('title'), /lost beside .* captured: the share is of both together\. Sources say what, not whose, they lost: [\d.]+.% of what they observed\./);
    await page.keyboard.press('q');
    await page.waitForFunction(() => document.querySelector('[aria-label="Loss by reason"]'));
    assert.match(await text(page, '#more'), /of captured \+ lost .* the narrower the selection, the larger it looks/);
  });
});

test('a range that begins before the first data is no poor state; a warning is a sentence', async () => {
  server.state.say.set('/flamegraph', (p) => {
    const a = answers.flamegraph(server.treeOf('3k'), p),
      from = BigInt(a.range.from_ns),
      hour = 3_600_000_000_000n;
    const coverage = { ...a.coverage, asked_ns: String(hour), covered_ns: String(hour / 4n), gaps: [[String(from), String(from + (hour * 3n) / 4n), 'not_covered']], gaps_more: 0 };
    return { ...a, coverage, quality: { ...a.quality, warnings: ['periods_differ: samples of 2 periods are added'] } };
  });
  await explore('', async (page) => {
    assert.match(await text(page, '.quality'), /^Some loss .* warning: covered 25\.0 % since /);
    const warning = page.locator('.quality .fact', { hasText: 'samples of 2 periods' });
    assert.deepEqual([await warning.innerText().then((x) => x.includes('periods_differ')), await warning.getAttribute('title')], [false, 'periods_differ: samples of 2 periods are added']);
  });
});

test('Enter behind the name of a label goes on to its value', async () => {
  await explore('?q=cpu', async (page) => {
    await page.locator('#selector .chip.add').click();
    await page.keyboard.type('thread');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute('list')), 'label-values');
    assert.equal((await params(page)).q, 'cpu');
    await page.keyboard.type('main');
    await page.keyboard.press('Enter');
    await settled(page);
    assert.equal((await params(page)).q, 'cpu{thread="main"}');
  });
});

test('facts of the quality line: a dot between two, none at the ends of its lines', async () => {
  for (const width of [2560, 1280, 800, 390])
    await explore('', async (page) => {
      await settled(page);
      const lines = await page.evaluate(() => {
        const box = document.querySelector('.quality-facts'),
          cut = box.getBoundingClientRect().left + 18; // the clip
        let top = NaN;
        return [...box.querySelectorAll('.fact')].map((f) => {
          const r = f.getBoundingClientRect(),
            dot = r.left + parseFloat(getComputedStyle(f, '::before').width) / 2,
            first = !(Math.abs(r.top - top) < 8);
          top = r.top;
          return { first, seen: dot > cut + 1, after: getComputedStyle(f, '::after').content };
        });
      });
      assert.ok(lines.length > 6);
      for (const l of lines) assert.deepEqual(l, { first: l.first, seen: !l.first, after: 'none' }, `${width}: ${JSON.stringify(lines)}`);
      assert.equal(lines.filter((l) => l.first).length > 1, width < 1000, `${width}: as many lines as were meant`);
    }, { width, height: 900 });
});
