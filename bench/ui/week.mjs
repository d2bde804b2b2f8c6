// SPDX-License-Identifier: Apache-2.0
/**
 * How long does somebody wait who opens seven days in Explore, of a server that has just started?
 *
 *   npm ci --ignore-scripts            in web/: Chromium's driver
 *   node bench/ui/week.mjs STRATAD UI_FOLDER STORE [ROUNDS]
 *
 * Each round starts stratad on the store, waits until it says that it is ready, and opens a page that
 * was never open: from the navigation until the frame after the flame graph was drawn, and until the
 * chart has its curve. The files are in the page cache, the browser is running. bench_week.py makes the
 * store and calls this.
 *
 * Prints name,value,unit,n,p50,p99 (value: the least). Exit status 77: no Chromium here.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { launch, missing } from '../../tests/web/e2e/browser.mjs';

const [stratad, ui, store, rounds = '5'] = process.argv.slice(2);
if (missing()) {
  console.error(`# ${missing()}`);
  process.exit(77);
}
const say = (name, list) => {
  const s = [...list].sort((a, b) => a - b);
  console.log([`week_page_${name}`, s[0].toFixed(0), 'ms', s.length, s[s.length >> 1].toFixed(0), s[s.length - 1].toFixed(0)].join(','));
};

/** A server on the store, ready. @returns {Promise<{url: string, stop: () => Promise<void>}>} */
async function serve() {
  const child = spawn(stratad, ['--listen', '127.0.0.1:0', '--data', store, '--ui', ui, '-o', 'ingest.age=30d'], { stdio: ['ignore', 'pipe', 'ignore'] });
  const ended = new Promise((ok) => child.once('exit', ok));
  const url = await new Promise((ok, no) => {
    createInterface(child.stdout).on('line', (line) => {
      const at = /^ready: (\S+)$/.exec(line);
      if (at) ok(at[1].replace(/\/$/, ''));
    });
    child.once('exit', (code) => no(new Error(`stratad ended with status ${code}`)));
  });
  return {
    url,
    stop: async () => {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

const browser = await launch();
const graph = [],
  chart = [],
  first = [];
for (let i = 0; i < Number(rounds); i++) {
  const server = await serve(),
    context = await browser.newContext({ viewport: { width: 1920, height: 1080 }, timezoneId: 'UTC', locale: 'en-US', reducedMotion: 'reduce' }),
    page = await context.newPage();
  await page.addInitScript(watch);
  await page.goto(`${server.url}/explore?${new URLSearchParams({ q: 'cpu', from: 'now-7d', to: 'now' })}`);
  await page.waitForFunction(() => window.painted?.graph && window.painted?.chart, null, { timeout: 120_000, polling: 50 });
  const seen = await page.evaluate(() => window.painted);
  graph.push(seen.graph);
  chart.push(seen.chart);
  first.push(seen.ready);
  await context.close();
  await server.stop();
}
await browser.close();
say('ready', first);
say('graph', graph);
say('chart', chart);

/** Runs in the page: notes, in ms since the navigation began, the frame after something was drawn. */
function watch() {
  const seen = { ready: 0, graph: 0, chart: 0 };
  window.painted = seen;
  const stands = {
    ready: () => document.readyState === 'complete',
    graph: () => window.strataCounters?.draws > 0 && window.strataCounters.nodes > 1,
    chart: () => [...document.querySelectorAll('.chart-unit')].some((e) => e.textContent.startsWith('per ')),
  };
  requestAnimationFrame(function look() {
    for (const [what, is] of Object.entries(stands))
      if (!seen[what] && is()) {
        seen[what] = -1;
        requestAnimationFrame(() => (seen[what] = performance.now()));
      }
    requestAnimationFrame(look);
  });
}
