// SPDX-License-Identifier: Apache-2.0
/**
 * How long a profile of one million nodes takes from the request to the painted picture, how smoothly it
 * moves at 1920 x 1080 and at 3840 x 2160 (4k: one device pixel a pixel; 4k_dpr2: two, as such a screen is
 * mostly set), what memory the page holds then, and how long speedscope takes to open the same data, and holds.
 *
 *   npm ci --ignore-scripts            in web/: Chromium's driver
 *   npm ci --ignore-scripts            in bench/ui/: the rival, pinned; without it its lines are `skip`
 *   node bench/ui/explore.mjs [ROUNDS]
 *
 * Prints name,value,unit,n,p50,p99. Times are this machine's; the ratio and the counts carry over.
 */
import { createReadStream, existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as answers from '../../tests/web/fixtures/answers.mjs';
import { launch, open } from '../../tests/web/e2e/browser.mjs';
import { serve } from '../../tests/web/e2e/server.mjs';

const ROUNDS = Number(process.argv[2] ?? 7);
const RIVAL = fileURLToPath(new URL('node_modules/speedscope/dist/release', import.meta.url));
const SECONDS = 3;
const say = (name, value, unit, list = [value]) => {
  const s = [...list].sort((a, b) => a - b),
    at = (q) => s[Math.min(s.length - 1, Math.floor(q * s.length))];
  console.log([name, value.toFixed(1), unit, s.length, at(0.5).toFixed(1), at(0.99).toFixed(1)].join(','));
};
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
console.log('name,value,unit,n,p50,p99');

const server = await serve(),
  browser = await launch();
const tree = server.treeOf('1m');
console.error(`# ${tree.n} nodes, ${tree.funcs.length} functions`);
const body = JSON.stringify(answers.flamegraph(tree, new URLSearchParams({ width: '1920', max_nodes: '20000' })));
server.state.size = '1m';
server.state.say.set('/flamegraph', () => ({ status: 200, body }));
server.state.say.set('/top', () => cached.top ??= answers.top(tree, new URLSearchParams({ limit: '200' })));
const cached = {};

/* ---- request to paint, on a warm page ---- */
const p = await open(browser, { width: 1920, height: 1080, motion: 'no-preference' });
await p.page.goto(`${server.url}/explore`);
await p.ready();
await p.page.waitForTimeout(1500);
const cold = await p.page.evaluate(() => {
  const r = performance.getEntriesByType('resource').find((e) => e.name.includes('/flamegraph'));
  return { nodes: window.strataCounters.nodes, rects: window.strataCounters.rects, bytes: r.decodedBodySize };
});
say('nodes_answered', cold.nodes, 'nodes');
say('answer_bytes', cold.bytes, 'bytes');
say('bars', cold.rects, 'bars');
const times = [];
for (let i = 0; i < ROUNDS * 3; i++) {
  times.push(
    await p.page.evaluate(
      () =>
        new Promise((done) => {
          const c = window.strataCounters,
            had = c.draws,
            t0 = performance.now();
          document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'r', bubbles: true, cancelable: true }));
          requestAnimationFrame(function look() {
            /* the frame after the one that drew: what was drawn is on the screen */
            if (c.draws > had) requestAnimationFrame(() => done(performance.now() - t0));
            else requestAnimationFrame(look);
          });
        }),
    ),
  );
  await p.page.waitForTimeout(400);
}
say('request_to_paint_warm', median(times), 'ms', times);

/* ---- frames ---- */
await frames(p.page, '', ['trimmed', 'whole']);
await p.page.close();
for (const [size, options, which] of [
  ['4k_', { width: 3840, height: 2160 }, ['trimmed', 'whole']],
  ['4k_dpr2_', { width: 1920, height: 1080, dpr: 2 }, ['trimmed']],
]) {
  const big = await open(browser, { ...options, motion: 'no-preference' });
  await frames(big.page, size, which);
  await big.page.close();
}

/* ---- speedscope, the same data ---- */
if (!existsSync(RIVAL)) console.log('speedscope_open,skip,ms,0,,\nspeedscope_ratio,skip,times,0,,');
else {
  const dir = mkdtempSync(join(tmpdir(), 'strata-bench-ui-')),
    file = join(dir, 'tree.speedscope.json');
  writeFileSync(file, evented(tree));
  console.error(`# speedscope file: ${(statSync(file).size / 2 ** 20).toFixed(0)} MiB`);
  const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json', '.wasm': 'application/wasm' };
  const rival = http.createServer((req, res) => {
    const path = new URL(req.url, 'http://x').pathname;
    const at = path === '/tree.json' ? file : join(RIVAL, normalize(path));
    if (!existsSync(at) || !statSync(at).isFile()) return void res.writeHead(404).end();
    res.writeHead(200, { 'Content-Type': types[extname(at)] ?? 'application/octet-stream' });
    createReadStream(at).pipe(res);
  });
  await new Promise((ok) => rival.listen(0, '127.0.0.1', ok));
  const base = `http://127.0.0.1:${rival.address().port}`;
  const opened = [],
    held = [];
  for (let i = 0; i < Math.max(1, ROUNDS >> 2); i++) {
    const context = await browser.newContext({ viewport: { width: 1920, height: 1080 } });
    const page = await context.newPage();
    const t0 = performance.now();
    try {
      await page.goto(`${base}/index.html#profileURL=${encodeURIComponent(`${base}/tree.json`)}`);
      await page.waitForFunction(() => document.title.startsWith('tree') && document.querySelectorAll('canvas').length >= 3, null, { timeout: 180_000, polling: 20 });
      await page.evaluate(() => new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(ok))));
      opened.push(performance.now() - t0);
      held.push(await memory(page));
    } catch (e) {
      console.error(`# speedscope did not open it: ${e.message.split('\n')[0]}`);
    }
    await context.close();
  }
  if (opened.length) {
    say('speedscope_open', median(opened), 'ms', opened);
    say('speedscope_memory', median(held), 'MiB', held);
    /* ours from nothing: a page that was never open, scripts and all */
    server.state.whole = false;
    server.state.say.set('/flamegraph', () => ({ status: 200, body }));
    const ours = [];
    for (let i = 0; i < ROUNDS; i++) {
      const q = await open(browser, { width: 1920, height: 1080 });
      const t0 = performance.now();
      await q.page.goto(`${server.url}/explore`);
      await q.page.waitForFunction(() => window.strataCounters?.draws > 0, null, { polling: 20 });
      await q.page.evaluate(() => new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(ok))));
      ours.push(performance.now() - t0);
      await q.page.close();
    }
    say('explore_open_cold', median(ours), 'ms', ours);
    say('speedscope_ratio', median(opened) / median(ours), 'times');
  } else console.log('speedscope_open,skip,ms,0,,\nspeedscope_ratio,skip,times,0,,');
  rival.closeAllConnections();
  rival.close();
  rmSync(dir, { recursive: true });
}
await browser.close();
await server.close();

/** Frames per second of each motion, of the trimmed tree and of the whole one. */
async function frames(page, size, which) {
  for (const what of which) {
    server.state.whole = what === 'whole';
    if (server.state.whole) server.state.say.delete('/flamegraph');
    else server.state.say.set('/flamegraph', () => ({ status: 200, body }));
    await page.goto(`${server.url}/explore`);
    await page.waitForFunction((least) => window.strataCounters?.nodes > least, server.state.whole ? 500_000 : 5000, { timeout: 120_000 });
    await page.waitForTimeout(1500);
    for (const motion of ['pan', 'zoom', 'scroll']) {
      const runs = [];
      for (let i = 0; i < Math.max(3, ROUNDS >> 1); i++) runs.push(await page.evaluate(move, [motion, SECONDS]));
      say(`frames_${size}${what}_${motion}`, median(runs), 'frames/s', runs);
    }
    say(`memory_${size}${what}`, await memory(page), 'MiB');
  }
}

/** MiB that a page's scripts and documents hold, arrays outside the heap too; pixels are not in it. */
async function memory(page) {
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  const m = await session.send('Runtime.getHeapUsage');
  await session.detach();
  return (m.usedSize + (m.embedderHeapUsedSize ?? 0) + (m.backingStorageSize ?? 0)) / 2 ** 20;
}

/** Runs in the page: one step a frame for some seconds; frames per second. */
function move([motion, seconds]) {
  const g = window.strataGraph;
  g.zoomTo(0, false);
  g.unmagnify();
  if (motion === 'pan') g.magnify(8, 400);
  return new Promise((done) => {
    const t0 = performance.now();
    let k = 0;
    requestAnimationFrame(function step(t) {
      if (t - t0 > seconds * 1000) {
        g.unmagnify();
        done((k / (t - t0)) * 1000);
        return;
      }
      k++;
      if (motion === 'pan') g.pan(k % 400 < 200 ? 24 : -24);
      else if (motion === 'zoom') g.magnify(k % 240 < 120 ? 1.03 : 1 / 1.03, 700);
      else g.scroller.scrollTop = (k % 200 < 100 ? k % 100 : 100 - (k % 100)) * 8;
      requestAnimationFrame(step);
    });
  });
}

/** The tree as speedscope's evented profile: each node opens and closes once, in value. */
function evented(t) {
  const frames = t.funcs.map((f) => ({ name: f.name, file: f.file || f.bin || undefined }));
  const events = [],
    path = [];
  const next = [0];
  const close = () => {
    const n = path.pop();
    events.push(`{"type":"C","frame":${t.func[n.i]},"at":${n.end}}`);
  };
  for (let i = 0; i < t.n; i++) {
    const d = t.depth[i];
    while (path.length > d) close();
    const at = next[d] ?? 0;
    events.push(`{"type":"O","frame":${t.func[i]},"at":${at}}`);
    path.push({ i, end: at + t.total[i] });
    next[d] = at + t.total[i];
    next[d + 1] = at;
  }
  while (path.length) close();
  return `{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":${JSON.stringify(frames)}},"profiles":[{"type":"evented","name":"tree","unit":"nanoseconds","startValue":0,"endValue":${t.total[0]},"events":[${events.join(',')}]}]}`;
}
