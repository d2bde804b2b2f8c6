// SPDX-License-Identifier: Apache-2.0
/**
 * Pictures for a person to look at: node tests/web/e2e/shots.mjs [OUT [NAMES]]   (default docs/img)
 * Those of the documentation, and with OUT given every other state in both themes beside them.
 */
import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as answers from '../fixtures/answers.mjs';
import { launch, open } from './browser.mjs';
import { serve } from './server.mjs';

const all = process.argv[2] !== undefined,
  only = process.argv[3] ? new RegExp(process.argv[3]) : /./; // names of pictures
const out = process.argv[2] ?? fileURLToPath(new URL('../../../docs/img', import.meta.url));
mkdirSync(out, { recursive: true });
const Q = '?q=cpu%7Bservice%3D%22rl-42%22%2C%20host%3D~%22gpu-1%5B1-4%5D%22%7D';

async function at(page, name) {
  return page.evaluate((name) => {
    const g = window.strataGraph,
      t = g.tree,
      r = g.scroller.getBoundingClientRect();
    let n = -1;
    for (let i = 1; i < t.n; i++) if (t.func[i] >= 0 && t.funcs.name[t.func[i]] === name && (n < 0 || t.total[i] > t.total[n])) n = i;
    const k = g.scroller.clientWidth / t.total[g.root];
    return [r.left + (t.start[n] - t.start[g.root] + t.total[n] * 0.4) * k, r.top + (t.depth[n] - t.depth[g.root]) * 18 + 9];
  }, name);
}
const point = (name) => async (page) => page.mouse.move(...(await at(page, name)));
async function zoomed(page) {
  await page.mouse.click(...(await at(page, 'train_step')));
  await page.waitForFunction(() => window.strataGraph.tree.rootHash !== 0n);
  await page.waitForTimeout(300);
  await point('gelu')(page);
}
const click = (sel) => (page) => page.locator(sel).first().click();
const noMatch = () => answers.empty('no_match', { matcher: 'host=~"gpu-0[1-4]"' });
const RANGE = '&from=2026-11-29T13:20:00Z&to=2026-11-29T13:35:00Z';

/** name: [scheme, query, act, reply, size] */
const DOCS = {
  'explore-light': ['light', Q],
  'explore-dark': ['dark', Q],
  'explore-zoomed': ['dark', Q, zoomed],
  'explore-compare': ['light', `${Q}&view=compare&from=2026-11-29T13:30:00Z&to=2026-11-29T13:45:00Z`],
  'explore-sandwich': ['light', `${Q}&view=sandwich&fn=forward`],
  'explore-filters': ['dark', `${Q}&f=keep%3Atrain_step&f=merge%3Akind%3Dkernel`],
  'explore-empty': ['light', Q.replace('1%5B', '0%5B'), null, noMatch],
};
const MORE = {
  'zoomed-light': ['light', Q, zoomed],
  'both-dark': ['dark', `${Q}&view=both`],
  'menu-light': ['light', Q, async (page) => page.mouse.click(...(await at(page, 'train_step')), { button: 'right' })],
  'narrow-filters': ['light', `${Q}&f=keep%3Atrain_step&f=merge%3Akind%3Dkernel`, null, null, [390, 844]],
  'sandwich-dark': ['dark', `${Q}&view=sandwich&fn=gelu`],
  'sandwich-narrow': ['light', `${Q}&view=sandwich&fn=forward`, null, null, [390, 844]],
  'compare-dark': ['dark', `${Q}&view=compare&order=delta&from=2026-11-29T13:30:00Z&to=2026-11-29T13:45:00Z`],
  'compare-narrow': ['light', `${Q}&view=compare&from=2026-11-29T13:30:00Z&to=2026-11-29T13:45:00Z`, null, null, [390, 844]],
  'search-light': ['light', `${Q}&s=cuda`],
  'table-light': ['light', `${Q}&view=table&s=cuda`],
  'range-dark': ['dark', Q + RANGE, click('#range-button')],
  'range-light': ['light', Q + RANGE],
  'label-light': ['light', Q, click('#selector .chip.add')],
  'export-light': ['light', Q, click('#options .button')],
  'selector-error': ['dark', '?q=cpu%7Bhost%3Dgpu%7D'],
  'empty-dark': ['dark', Q, null, noMatch],
  'never-dark': ['dark', '', null, () => answers.empty('never_ingested')],
  'never-light': ['light', '', null, () => answers.empty('never_ingested')],
  'agent-light': ['light', '', null, () => answers.empty('no_agent_in_range')],
  'zero-light': ['light', '', null, () => answers.empty('zero')],
  'help-light': ['light', '', (page) => page.keyboard.press('?')],
  'narrow-light': ['light', Q, null, null, [390, 844]],
  'narrow-dark': ['dark', `${Q}&view=table`, null, null, [390, 844]],
  'wide-dark': ['dark', Q, null, null, [1920, 1080]],
};

const server = await serve(),
  browser = await launch();
const error = () => server.error(422, { code: 'query_too_expensive', setting: 'query.memory', limit: 268435456, actual: 402653184, message: 'The query needs more than 256 MiB: 41,207 series match.' });
const shots = all ? { ...DOCS, ...MORE, 'error-light': ['light', Q, null, error], 'error-dark': ['dark', Q, null, error] } : DOCS;
for (const [name, [scheme, query, act, reply, [width, height] = [1440, 900]]] of Object.entries(shots).filter(([n]) => only.test(n))) {
  server.reset();
  if (reply) server.state.say.set('/flamegraph', reply);
  const p = await open(browser, { scheme, width, height, expect: [/status of/] });
  await p.page.goto(`${server.url}/explore${query}`);
  await p.ready();
  await p.page.waitForTimeout(700);
  await act?.(p.page);
  await p.page.waitForTimeout(200);
  await p.page.screenshot({ path: `${out}/${name}.png` });
  await p.close();
}
await browser.close();
await server.close();
