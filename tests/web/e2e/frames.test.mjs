// SPDX-License-Identifier: Apache-2.0
/** Frames per second of a large tree, drawn whole. Alone on the machine, or it says nothing. */
import assert from 'node:assert/strict';
import { cpus, loadavg } from 'node:os';
import { after, before, beforeEach, test } from 'node:test';
import { start } from './harness.mjs';

let x, server, explore;
before(async () => {
  x = await start();
  ({ server, explore } = x);
});
after(() => x?.stop());
beforeEach(() => server.reset());

test('200,000 nodes: zoom and pan at 50 frames a second or more', async (t) => {
  server.state.size = '200k';
  server.state.whole = true;
  await explore('', async (page) => {
    const nodes = await page.evaluate(() => window.strataCounters.nodes);
    assert.ok(nodes > 150_000, `${nodes} nodes`);
    for (const motion of ['pan', 'zoom', 'scroll']) {
      /* best of five: another process may take the machine for a moment */
      let best = { fps: 0 };
      for (let i = 0; i < 5 && best.fps < 50; i++) {
        const r = await page.evaluate(measure, [motion, 2]);
        if (r.fps > best.fps) best = r;
      }
      console.log(`# ${nodes} nodes, ${motion}: ${best.fps.toFixed(1)} frames/s, median ${best.p50.toFixed(1)} ms, 95 % ${best.p95.toFixed(1)} ms, ${best.rects} bars, layout ${best.layout.toFixed(2)} ms, paint ${best.paint.toFixed(2)} ms`);
      assert.ok(best.rects > 2000, `${best.rects} bars are too few to measure`);
      /* frames that others take from this machine say nothing about the page: said, and not passed */
      if (best.fps < 50 && loadavg()[0] > 2 * cpus().length) return t.skip(`busy: load ${loadavg()[0].toFixed(1)} on ${cpus().length} CPUs, ${motion} at ${best.fps.toFixed(1)} frames/s`);
      /* what comes into sight is painted, a tile of 14 rows at a time, whatever the machine does besides */
      if (motion === 'scroll') assert.ok(best.tiles <= (best.pixels / (14 * 18)) * 1.5 + 4, `${best.tiles} tiles painted for ${best.pixels} pixels scrolled`);
      /* a software rasteriser moves every pixel of the page: timed only where nothing else runs */
      if (motion !== 'scroll' || loadavg()[0] < cpus().length) assert.ok(best.fps >= 50, `${motion}: ${best.fps.toFixed(1)} frames/s`);
    }
  }, { width: 1920, height: 1080, motion: 'no-preference' });
});

/** Runs in the page: move for some seconds, one step a frame; the distance between frames is the measure. */
function measure([motion, seconds]) {
  const g = window.strataGraph,
    c = window.strataCounters;
  const deltas = [],
    layouts = [],
    paints = [];
  let k = 0,
    last = 0,
    rects = 0,
    pixels = 0;
  const tiles = c.tiles;
  g.zoomTo(0, false);
  g.unmagnify();
  if (motion === 'pan') g.magnify(8, 400);
  return new Promise((done) => {
    const t0 = performance.now();
    requestAnimationFrame(function step(t) {
      if (last) {
        deltas.push(t - last);
        layouts.push(c.layoutMs);
        paints.push(c.paintMs);
        rects = Math.max(rects, c.rects);
      }
      last = t;
      if (t - t0 > seconds * 1000) {
        const at = (a, q) => a.sort((x, y) => x - y)[Math.floor(q * (a.length - 1))];
        const mean = deltas.reduce((a, b) => a + b, 0) / deltas.length;
        g.unmagnify();
        done({ fps: 1000 / mean, p50: at(deltas, 0.5), p95: at(deltas, 0.95), layout: at(layouts, 0.5), paint: at(paints, 0.5), rects, tiles: c.tiles - tiles, pixels });
        return;
      }
      k++;
      if (motion === 'pan') g.pan(k % 400 < 200 ? 24 : -24);
      else if (motion === 'zoom') g.magnify(k % 240 < 120 ? 1.03 : 1 / 1.03, 700);
      else {
        const was = g.scroller.scrollTop;
        g.scroller.scrollTop = (k % 200 < 100 ? k % 100 : 100 - (k % 100)) * 8;
        pixels += Math.abs(g.scroller.scrollTop - was);
      }
      requestAnimationFrame(step);
    });
  });
}
