// SPDX-License-Identifier: Apache-2.0
/**
 * Live, for as long as somebody leaves it on: the long form of what live.test.mjs and panels.test.mjs hold in seconds.
 *
 *   STRATAD=... UI=... node tests/web/e2e/live.long.mjs [MINUTES]      (10)
 *
 * A real stratad gets a batch every 5 s. Under the pointer the graph must not be drawn again nor asked for, while the
 * chart goes on; a hidden tab asks nothing; a server that was killed and comes back is lived through; memory of the page
 * is told. Prints name,value,unit and ends with 1 where one of these does not hold.
 */
import { open, launch } from './browser.mjs';
import { place } from './harness.mjs';
import { FEED, startStratad } from './stratad.mjs';

const MINUTES = Number(process.argv[2] ?? 10);
const wait = (ms) => new Promise((ok) => setTimeout(ok, ms));
const daemon = await startStratad(),
  browser = await launch();
let bad = 0;
const say = (name, value, unit, good = true) => {
  console.log(`${name},${value},${unit}${good ? '' : ',FAILED'}`);
  if (!good) bad = 1;
};
const feed = setInterval(() => {
  try {
    daemon.python(FEED);
  } catch {
    /* the server is away: part of what is tried */
  }
}, 5000);
daemon.python(FEED);
const p = await open(browser, { expect: [/ERR_/] });
const asked = [];
p.page.on('request', (r) => {
  const path = new URL(r.url()).pathname;
  if (path.includes('/api/v1/')) asked.push({ path: path.split('/api/v1')[1], at: Date.now() });
});
const count = (path) => asked.filter((a) => a.path === path).length;
const heap = () => p.page.evaluate(() => Math.round((performance.memory?.usedJSHeapSize ?? NaN) / 2 ** 20));
await p.page.goto(`${daemon.url}/explore?q=${encodeURIComponent('cpu{service="demo"}')}&from=now-15m`);
await p.ready();
await p.page.locator('button', { hasText: 'Live' }).click();
const at = await place(p.page, 'alpha');
await p.page.mouse.move(at.x, at.y);
await wait(1500); // what the pointer itself causes
const before = { draws: await p.page.evaluate(() => window.strataCounters.draws), graphs: count('/flamegraph'), series: count('/timeseries') };
say('heap_at_start', await heap(), 'MiB');
await wait(MINUTES * 60_000 * 0.7);
const draws = (await p.page.evaluate(() => window.strataCounters.draws)) - before.draws;
say('draws_under_the_pointer', draws, 'draws', draws === 0);
say('graphs_asked_under_the_pointer', count('/flamegraph') - before.graphs, 'questions', count('/flamegraph') === before.graphs);
const polls = count('/timeseries') - before.series;
say('chart_polls', polls, 'questions', polls > MINUTES * 60 * 0.7 / 5 / 2);
say('heap_after_live', await heap(), 'MiB');

await p.page.mouse.move(5, 5);
await wait(7000);
say('new_picture_when_the_pointer_left', count('/flamegraph') - before.graphs, 'questions', count('/flamegraph') > before.graphs);
const hide = (hidden) => p.page.evaluate((h) => { Object.defineProperty(document, 'hidden', { configurable: true, value: h }); document.dispatchEvent(new Event('visibilitychange')); }, hidden);
await hide(true);
await wait(1000);
const hidden = asked.length;
await wait(Math.max(15_000, MINUTES * 60_000 * 0.15));
say('polls_in_a_hidden_tab', asked.length - hidden, 'questions', asked.length === hidden);
await hide(false);
await daemon.kill();
await p.page.waitForFunction(() => document.querySelector('.live-trouble'), null, { timeout: 60_000 });
const picture = await p.page.evaluate(() => document.querySelector('#crumbs').textContent);
say('picture_while_the_server_is_away', picture.length, 'characters', picture.length > 0);
await daemon.again();
const t0 = Date.now();
await p.page.waitForFunction(() => !document.querySelector('.live-trouble'), null, { timeout: 90_000 });
say('recovered_after', ((Date.now() - t0) / 1000).toFixed(1), 's');
clearInterval(feed);
say('heap_at_end', await heap(), 'MiB');
await p.close();
await browser.close();
await daemon.stop();
process.exit(bad);
