// SPDX-License-Identifier: Apache-2.0
/** What the tests of Explore in Chromium share: one browser, one server of fixtures, a page that complains. */
import { launch, open } from './browser.mjs';
import { serve } from './server.mjs';

export async function start() {
  const [browser, server] = await Promise.all([launch(), serve()]);
  async function on(path, run, options) {
    const p = await open(browser, options);
    try {
      await p.page.goto(`${server.url}${path}`);
      if (options.wait !== false) await p.ready();
      await run(p.page, p);
    } catch (e) {
      await p.close().catch((x) => (e.message += `\n${x.message}`));
      throw e;
    }
    await p.close();
  }
  return {
    browser,
    server,
    async stop() {
      await browser.close();
      await server.close();
    },
    /** A page on Explore; closed, and its complaints thrown, at the end of `run`. */
    explore: (query, run, options = {}) => on(`/explore${query}`, run, options),
    /** The same on Quality, when every card has its answer. */
    quality: (query, run, options = {}) => on(`/quality${query}`, run, options),
    asked: (path) => server.state.log.filter((l) => l.path === path),
  };
}
export const settled = (page) => page.evaluate(() => new Promise((ok) => setTimeout(ok, 260)));
export const params = (page) => page.evaluate(() => Object.fromEntries(new URLSearchParams(location.search)));
export const text = async (page, sel) => (await page.locator(sel).first().innerText()).replaceAll('\u202f', ' ').replace(/\s+/g, ' ').trim();
/** What is put on the clipboard from now on. */
export const clipboard = (page) =>
  page.evaluate(() => {
    window.copied = [];
    Object.defineProperty(navigator, 'clipboard', { configurable: true, value: { writeText: async (t) => void window.copied.push(t) } });
  });
/** Where the widest node of that name stands, client pixels. */
export const place = (page, name) =>
  page.evaluate((name) => {
    const g = window.strataGraph,
      t = g.tree;
    let n = -1;
    for (let i = 1; i < t.n; i++) if (t.func[i] >= 0 && t.funcs.name[t.func[i]] === name && (n < 0 || t.total[i] > t.total[n])) n = i;
    const r = g.scroller.getBoundingClientRect(),
      k = g.scroller.clientWidth / t.total[g.root];
    return { n, x: r.left + (t.start[n] - t.start[g.root] + t.total[n] / 2) * k, y: r.top + (t.depth[n] - t.depth[g.root]) * 18 + 9 - g.scroller.scrollTop };
  }, name);
