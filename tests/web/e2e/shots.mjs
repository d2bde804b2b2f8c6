// SPDX-License-Identifier: Apache-2.0
/**
 * Pictures for a person to look at: node tests/web/e2e/shots.mjs [OUT [NAMES]]   (default docs/img)
 * Those of the documentation and sheets of every state in both themes and three widths; with OUT given
 * each state in its full size.
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
async function complete(page) {
  await page.getByLabel('Edit the selector as text').click();
  await page.keyboard.type(', ho');
  await page.waitForTimeout(200);
  await page.keyboard.press('ArrowDown');
}
/** Two captures lie beside what agents saw. */
function captured() {
  const list = answers.labels();
  server.state.say.set('/labels', () => ({ ...list, labels: [{ name: 'capture', values: 2, attribute: false }, ...list.labels] }));
  server.state.say.set('/labels/capture/values', () => ({ values: ['train-20261129T133012', 'train-20261129T134501'], truncated: false, next: null }));
  return null;
}
async function types(page) {
  server.state.say.set('/types', () => ({ ...answers.types(), types: ['cpu', 'offcpu', 'runq', 'gil_held', 'gil_wait', 'contentions'].map((name) => ({ ...answers.TYPE, id: `${name}:nanoseconds:sum`, name, ...(name === 'contentions' && { unit: 'count' }) })) }));
  await page.reload();
  await page.waitForTimeout(900);
  await page.locator('.type .button').click();
}
async function slow(page) {
  server.state.delay = 20_000;
  await page.keyboard.press('r');
  await page.waitForTimeout(10_500);
  server.state.delay = 0;
}
const gone = () => null; // the connection ends without an answer
const few = (p) => {
  const a = answers.flamegraph(server.treeOf('3k'), p);
  return { ...a, samples: '24' };
};
const click = (sel) => (page) => page.locator(sel).first().click();
const noMatch = () => answers.empty('no_match', { matcher: 'host=~"gpu-0[1-4]"' });
const HOUR = '?from=2026-11-29T13:00:00Z&to=2026-11-29T14:00:00Z';
const RANGE = '&from=2026-11-29T13:20:00Z&to=2026-11-29T13:35:00Z';

/** name: [scheme, query, act, reply, size] */
const DOCS = {
  'explore-light': ['light', Q],
  'explore-dark': ['dark', Q],
  'explore-zoomed': ['dark', Q, zoomed],
  'explore-compare': ['light', `${Q}&view=compare&from=2026-11-29T13:30:00Z&to=2026-11-29T13:45:00Z`],
  'explore-sandwich': ['light', `${Q}&view=sandwich&fn=forward`],
  'explore-filters': ['dark', `${Q}&f=keep%3Atrain_step&f=merge%3Akind%3Dkernel`],
  'quality-light': ['light', `/quality${HOUR}`, null, null, [1280, 1650]],
  'quality-dark': ['dark', `/quality${HOUR}`, null, null, [1280, 1650]],
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
  'export-light': ['light', Q, click('#options .menu-anchor .button')],
  'selector-error': ['dark', '?q=cpu%7Bhost%3Dgpu%7D'],
  'empty-dark': ['dark', Q, null, noMatch],
  'never-dark': ['dark', '', null, () => answers.empty('never_ingested')],
  'never-light': ['light', '', null, () => answers.empty('never_ingested')],
  'agent-light': ['light', '', null, () => answers.empty('no_agent_in_range')],
  'zero-light': ['light', '', null, () => answers.empty('zero')],
  'help-light': ['light', '', (page) => page.keyboard.press('?')],
  'narrow-light': ['light', Q, null, null, [390, 844]],
  'narrow-dark': ['dark', `${Q}&view=table`, null, null, [390, 844]],
  'quality-light': ['light', `${Q}&more=quality`],
  'quality-dark': ['dark', `${Q}&more=quality`],
  'quality-narrow': ['light', `${Q}&more=quality`, null, null, [390, 844]],
  'steps-light': ['light', `${Q}&more=steps&lane=rank&step=train:430-430`],
  'steps-dark': ['dark', `${Q}&more=steps&lane=rank`],
  'steps-narrow': ['dark', `${Q}&more=steps&lane=rank`, null, null, [390, 844]],
  'by-light': ['light', `${Q}&by=thread`],
  'by-dark': ['dark', `${Q}&by=thread&view=table`],
  'pins-light': ['light', `${Q}&view=table&any=cuda&any=bin%3D%2Flibtorch%2F&any=gelu`],
  'pins-narrow': ['light', `${Q}&view=table&any=cuda&any=gelu`, null, null, [390, 844]],
  'lines-dark': ['dark', `${Q}&view=table&key=line`],
  'binary-light': ['light', `${Q}&color=binary`],
  'binary-dark': ['dark', `${Q}&color=binary`],
  'self-dark': ['dark', `${Q}&color=self`],
  'self-light': ['light', `${Q}&color=self&invert=1`],
  'complete-light': ['light', Q, complete],
  'complete-dark': ['dark', Q, complete],
  'tip-light': ['light', Q, point('train_step')],
  'tip-dark': ['dark', Q, point('train_step')],
  'rank-light': ['light', `${Q}&view=compare&norm=step&a_q=cpu%7Bservice%21%3D%22rl-42%22%7D`],
  'wide2560-light': ['light', `${Q}&view=both&more=quality`, null, null, [2560, 1440]],
  'wide2560-dark': ['dark', Q, null, null, [2560, 1440]],
  'slow-light': ['light', Q, slow],
  'gone-light': ['light', Q, null, gone],
  'few-dark': ['dark', Q, null, few],
  'filtered-dark': ['dark', `${Q}&f=keep%3Anothing`],
  'expired-light': ['light', '', null, () => answers.empty('expired')],
  'future-dark': ['dark', '', null, () => answers.empty('future')],
  'absent-light': ['light', '', null, () => answers.empty('type_absent')],
  'nosteps-dark': ['dark', `${Q}&step=x`, null, () => answers.empty('no_steps')],
  'wide-dark': ['dark', Q, null, null, [1920, 1080]],
  'types-light': ['light', Q, types],
  'types-dark': ['dark', Q, types],
  'types-narrow': ['light', Q, types, null, [390, 844]],
  'captures-light': ['light', Q, null, captured],
  'captures-narrow': ['dark', Q, null, captured, [390, 844]],
};

const server = await serve(),
  browser = await launch();
const error = () => server.error(422, { code: 'query_too_expensive', setting: 'query.memory', limit: 268435456, actual: 402653184, message: 'The query needs more than 256 MiB: 41,207 series match.' });

/** One picture. @returns {Promise<Buffer>} */
async function shoot([scheme, query, act, reply, [width, height] = [1440, 900]], options = {}) {
  server.reset();
  if (reply === gone) server.state.gone = true;
  else if (reply === captured) captured();
  else if (reply) server.state.say.set('/flamegraph', reply);
  const p = await open(browser, { scheme, width, height, expect: [/status of/, /ERR_/] });
  await p.page.goto(`${server.url}${query.startsWith('/') ? '' : '/explore'}${query}`);
  await p.ready();
  await p.page.waitForTimeout(700);
  await act?.(p.page);
  await p.page.waitForTimeout(300);
  const png = await p.page.screenshot(options);
  await p.close();
  return png;
}

/** Every state once: what stands on the sheets. name: [query, act, reply] */
const STATES = {
  'flame graph': [Q], 'zoomed, pointed at': [Q, zoomed], 'search': [`${Q}&s=cuda`], 'filters': [`${Q}&f=keep%3Atrain_step&f=merge%3Akind%3Dkernel`],
  'graph and table': [`${Q}&view=both`], 'table, shares of patterns': [`${Q}&view=table&any=cuda&any=bin%3D%2Flibtorch%2F&any=gelu`], 'lines': [`${Q}&view=table&key=line`], 'by thread': [`${Q}&by=thread&view=both`],
  'sandwich': [`${Q}&view=sandwich&fn=forward`], 'compare': [`${Q}&view=compare${RANGE}`], 'compare selectors, per step': [`${Q}&view=compare&norm=step&a_q=cpu%7Bservice%21%3D%22rl-42%22%7D${RANGE}`], 'coverage and loss': [`${Q}&more=quality`],
  'steps and events': [`${Q}&more=steps&lane=rank&step=train:430-430`], 'step time, A and B': [`${Q}&view=compare&norm=step&more=steptime&skip=0&from=2026-11-29T13:30:00Z&to=2026-11-29T14:00:00Z&a_from=2026-11-29T13:00:00Z&a_to=2026-11-29T13:30:00Z`], 'chart as table': [`${Q}&more=series`], 'colours by binary': [`${Q}&color=binary`], 'colours by self, inverted': [`${Q}&color=self&invert=1`],
  'types': [Q, types], 'captures': [Q, null, captured], 'completion': [Q, complete], 'selector error': ['?q=cpu%7Bhost%3Dgpu%7D'], 'range': [Q + RANGE, click('#range-button')], 'menu of a frame': [Q, async (page) => page.mouse.click(...(await at(page, 'train_step')), { button: 'right' })],
  'export': [Q, click('#options .menu-anchor .button')], 'help': [Q, (page) => page.keyboard.press('?')], 'slow': [Q, slow], 'few samples': [Q, null, few],
  'never ingested': ['', null, () => answers.empty('never_ingested')], 'no agent then': ['', null, () => answers.empty('no_agent_in_range')], 'no match': [Q.replace('1%5B', '0%5B'), null, noMatch], 'type absent': ['', null, () => answers.empty('type_absent')],
  'filtered out': [`${Q}&f=keep%3Anothing`], 'expired': ['', null, () => answers.empty('expired')], 'future': ['', null, () => answers.empty('future')], 'covered and zero': ['', null, () => answers.empty('zero')],
  'quality': [`/quality${HOUR}`],
  'no such step': [`${Q}&step=x`, null, () => answers.empty('no_steps')], 'server gone': [Q, null, gone], 'too expensive': [Q, null, error], 'part of the shards': [Q, null, (p) => { const a = answers.flamegraph(server.treeOf('3k'), p); return { ...a, quality: { ...a.quality, shards: { asked: 9, read: 7, unreadable: 2 }, warnings: ['unreadable: two shards of gpu-12'] } }; }],
};
const NARROW = ['flame graph', 'search', 'filters', 'table, shares of patterns', 'sandwich', 'compare', 'coverage and loss', 'steps and events', 'step time, A and B', 'quality', 'types', 'captures', 'completion', 'never ingested', 'too expensive', 'help'];
const WIDE = ['flame graph', 'graph and table', 'coverage and loss', 'step time, A and B', 'quality'];

/** Pictures beside each other, each with its name, made small. @param {[string, Buffer][]} list */
async function sheet(file, list, columns, wide, scheme) {
  const context = await browser.newContext({ viewport: { width: columns * (wide + 12) + 12, height: 600 }, colorScheme: scheme });
  const page = await context.newPage();
  await page.setContent(`<style>body{margin:12px;background:${scheme === 'dark' ? '#000' : '#ccc'};color:${scheme === 'dark' ? '#ddd' : '#222'};font:12px sans-serif;display:grid;grid-template-columns:repeat(${columns},${wide}px);gap:12px}figure{margin:0}img{width:${wide}px;display:block}figcaption{padding:0 0 3px}</style>${list.map(([n, b]) => `<figure><figcaption>${n}</figcaption><img src="data:image/png;base64,${b.toString('base64')}"></figure>`).join('')}`);
  await page.waitForTimeout(500);
  await page.screenshot({ path: `${out}/${file}.png`, fullPage: true });
  await context.close();
}

const shots = all ? { ...DOCS, ...MORE, 'error-light': ['light', Q, null, error], 'error-dark': ['dark', Q, null, error] } : DOCS;
for (const [name, shot] of Object.entries(shots).filter(([n]) => only.test(n))) await shoot(shot, { path: `${out}/${name}.png` });
for (const scheme of ['light', 'dark']) {
  for (const [file, names, size, columns, wide] of [
    [`states-${scheme}`, Object.keys(STATES), [1280, 800], 4, 360],
    [`states-390-${scheme}`, NARROW, [390, 844], 6, 220],
    [`states-2560-${scheme}`, WIDE, [2560, 1440], 2, 720],
  ]) {
    if (all && !only.test(file)) continue;
    /** @type {[string, Buffer][]} */ const list = [];
    for (const n of names) {
      const [query, act, reply] = STATES[n];
      list.push([n, await shoot([scheme, query, act ?? null, reply ?? null, size])]);
    }
    await sheet(file, list, columns, wide, scheme);
  }
}
await browser.close();
await server.close();
