// SPDX-License-Identifier: Apache-2.0
/** The Quality screen in Chromium: what each card says, states, keyboard, hostile names, axe, narrow and wide. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import * as answers from '../fixtures/answers.mjs';
import * as figures from '../fixtures/figures.mjs';
import * as marks from '../fixtures/marks.mjs';
import { axeSource } from './browser.mjs';
import { clipboard, params, start } from './harness.mjs';

let x, server, quality, asked;
before(async () => {
  x = await start();
  ({ server, quality, asked } = x);
});
after(() => x?.stop());
beforeEach(() => server.reset());

const HOUR = 'from=2026-11-29T13:00:00Z&to=2026-11-29T14:00:00Z';
const card = async (page, name) => (await page.locator(`.card[aria-label="${name}"]`).innerText()).replaceAll('\u202f', ' ').replace(/\s+/g, ' ').trim();
const rows = (page, label) => page.locator(`table[aria-label="${label}"] tbody tr`).evaluateAll((l) => l.map((r) => r.innerText.replaceAll('\u202f', ' ').replace(/\s+/g, ' ').trim()));

test('who looked, what was lost and cut, names by binary: figures of the answers, trouble first and in words', async () => {
  await quality(`?${HOUR}`, async (page) => {
    assert.deepEqual(await page.locator('.nav-item[aria-current]').allInnerTexts(), ['Quality']);
    const sources = await rows(page, 'Agents and their sources');
    assert.match(sources[0], /^gpu-12 cpu problem: refused no CAP_BPF run strata-agent check there warning: 4 min ago warning: 66\.7 %/);
    assert.match(sources[1], /^gpu-13 cpu batch given up not now 95\.0 % ring_full 12\.1 core-s spool_drop 3\.03 core-s$/);
    assert.match((await page.locator('#quality').innerText()).replaceAll('\u202f', ' ').replace(/\s+/g, ' '), /4 hosts .*1 of 4 sources not ok .*range covered 95\.5 % .*lost 1\.4 % no stack 1\.1 % truncated 0\.4 %/);
    assert.match((await rows(page, 'Loss by reason'))[0], /^ring_full a record refused by a full ring 15,790 159 core-s 1\.1 %$/);
    assert.match(await page.locator('.chart-legend').innerText(), /ring_full/);
    assert.match(await page.locator('.chart-head').innerText(), /cpu lost/);
    assert.match((await rows(page, 'Stacks cut short or missing, by reason'))[0], /^trunc cut short: stack deeper than the limit of frames 225 core-s 1\.6 %$/);
    assert.ok((await rows(page, 'Unwinding and names by binary')).some((r) => /^libcuda\.so\.1 .* 86\.0 %$/.test(r)));
    /* what is asked: only of the range, each of the agents' figures by name, and few */
    assert.ok(server.state.log.length <= 20, `${server.state.log.length} questions`);
    assert.ok(asked('/metrics').every((l) => l.params.getAll('name').length > 20));
    assert.ok((await page.evaluate(() => document.querySelectorAll('*').length)) <= 4000);
  });
});

test('Python, sums, cost, store: what agents say of themselves', async () => {
  server.state.say.set('/status', () => ({ ...answers.status(), disk: { bytes: String(30 * 2 ** 30), free: String(200 * 2 ** 30), limit: String(50 * 2 ** 30), bytes_per_day: String(10 * 2 ** 30), days_left: null } }));
  await quality(`?${HOUR}`, async (page) => {
    const py = await rows(page, 'Python versions and their state');
    assert.equal(py.length, 5);
    assert.match(py[0], /^gpu-11 3\.11\.7 read frames and lines stand in its stacks 9$/);
    assert.match(py[3], /^gpu-12 3\.13\.0 warning: refused without the interpreter lock \(py_free_threaded\); native frames stay 3$/);
    assert.match((await rows(page, 'Python frames, since each agent began'))[1], /^gpu-12 98,120 98\.0 % a frame: 2 × 17$/, 'a thread without Python is no error');
    const sums = await rows(page, 'Identities, since each agent began');
    assert.match(sums[0], /^gpu-11 exact 99\.5 % none 0 0 99\.8 %$/);
    assert.match(sums[1], /^gpu-12 problem: 2 violations 90\.0 % warning: 1 1 0 warning: 90\.0 %$/);
    await page.locator('summary').click();
    assert.match(await card(page, 'Sums that must hold'), /I5 of a thread, cpu \+ offcpu \+ runq = its life: an estimate, so no agent reports it/);
    const cost = await rows(page, 'What each agent costs');
    assert.match(cost[0], /^gpu-11 0\.3 % 0\.1 % 21\.9 % 84\.0 MiB 23\.4 % 99 Hz never 0 none$/);
    assert.match(cost[1], /^gpu-12 0\.9 % 0\.4 % 80\.2 % 131 MiB warning: 128\.3 % 49 Hz warning: 3 times 1,204 problem: 12 batches$/);
    assert.match(await card(page, 'What the agents cost'), /warning: gpu-12: memory 128\.3 % of its limit; no new unwind tables, stacks of other binaries are truncated \(notable\)/);
    assert.match((await page.locator('#quality').innerText()).replaceAll('\u202f', ' '), /gpu-12: memory 128\.3 % of its limit/);
    assert.match(await card(page, 'The store'), /on disk 30\.0 GiB of 50\.0 GiB; 200 GiB free grows 10\.0 GiB a day days left at this rate problem: 2\.00 days/);
    assert.match(await card(page, 'Refused by the server'), /40 rows of agents were refused/);
    assert.match(await card(page, 'Events of the agents'), /clock of the machine was set by −5\.00 ms\. .* The agent was stopped and began again/);
    assert.match(await page.locator('.missing').innerText(), /^Not shown: GPU busy .*; live memory .*; jitter of ticks/);
  });
});

test('stacks cut for want of an unwind table: where none is built any more, and which setting ends that', async () => {
  server.state.say.set('/top', (p) => {
    if (!p.get('match')) return null;
    const a = answers.top(server.treeOf('3k'), p);
    return { ...a, strings: a.strings.map((s) => (s === '[truncated: trunc]' ? '[truncated: notable]' : s)) };
  });
  await quality(`?${HOUR}`, async (page) => {
    assert.match((await rows(page, 'Stacks cut short or missing, by reason'))[0], /^notable cut short: unwind table not built yet, failed or evicted refused for lack of memory on gpu-12: raise limits\.memory 225 core-s/);
  });
});

test('nothing is zero that is not known: no figures, no Python, no loss', async () => {
  server.state.say.set('/metrics', () => ({ ...figures.metrics(new URLSearchParams()), metrics: [] }));
  server.state.say.set('/metrics/query', () => ({ ...figures.means(new URLSearchParams({ name: 'x' })), series: [] }));
  server.state.say.set('/coverage', (p) => ({ ...marks.coverage(p), sources: [] }));
  server.state.say.set('/status', () => ({ ...answers.status(), agents: [] }));
  server.state.say.set('/events', () => ({ ...marks.events(), events: [] }));
  await quality(`?${HOUR}`, async (page) => {
    for (const [name, words] of [
      ['Agents and their sources', /No agent speaks of this selection/],
      ['Python', /No agent says anything of Python here: python\.enabled = off/],
      ['Sums that must hold', /No agent tells of its sums/],
      ['What the agents cost', /No agent tells of itself/],
      ['Events of the agents', /No agent began, ended/],
      ['The store', /grows not known yet.* days left at this rate unknown/],
    ]) assert.match(await card(page, name), words, name);
    assert.doesNotMatch(await page.locator('main').innerText(), /NaN|undefined|Infinity|null/);
  });
});

test('states: never ingested, no match, a card in trouble, the server gone and back', async () => {
  server.state.say.set('/top', () => ({ ...answers.empty('never_ingested'), kind: 'top', row: { func: [], self: [], total: [], samples: [], places: [] }, func: { name: [], file: [], bin: [], kind: [], key: [] } }));
  await quality(`?${HOUR}`, async (page) => {
    await page.locator('.state').waitFor();
    assert.equal(await page.locator('.state').getAttribute('data-why'), 'never_ingested');
    assert.match(await card(page, 'The store'), /state ok/, 'what is known of the store stands there all the same');
  });
  server.reset();
  server.state.say.set('/metrics', () => server.error(503, { code: 'busy', message: 'too many queries are running' }));
  await quality(`?${HOUR}`, async (page) => {
    assert.match(await card(page, 'Python'), /too many queries are running/);
    assert.match(await card(page, 'Loss by reason, over time'), /ring_full/, 'the others stand');
  }, { expect: [/status of 503/] });
  server.reset();
  await quality('', async (page) => {
    server.state.gone = true;
    await page.waitForFunction(() => document.querySelector('.screen-state .error'), null, { timeout: 20_000 });
    assert.match(await page.locator('.screen-state').innerText(), /cannot be reached.*what it said last/s);
    assert.match(await card(page, 'Python'), /3\.11\.7/, 'the old tables stay');
    server.state.gone = false;
    await page.waitForFunction(() => !document.querySelector('.screen-state .error'), null, { timeout: 20_000 });
  }, { expect: [/ERR_/], hasten: 10 });
});

test('live from the start; a source that is refused is shown within one poll, a hidden tab asks nothing', async () => {
  await quality('', async (page) => {
    assert.equal(await page.locator('button', { hasText: 'Live' }).getAttribute('aria-pressed'), 'true');
    const refused = { ...answers.status(), agents: [{ host: 'gpu-11', last_ns: null, sources: [{ type: 'cpu', unit: 'nanoseconds', state: 'refused', why: 'no perf events', last_ns: answers.status().server_ns }] }] };
    server.state.say.set('/status', () => refused);
    await page.waitForFunction(() => /no perf events/.test(document.querySelector('.cards').textContent), null, { timeout: 10_000 });
    await page.evaluate(() => { Object.defineProperty(document, 'hidden', { configurable: true, value: true }); document.dispatchEvent(new Event('visibilitychange')); });
    await page.waitForTimeout(400); // what was on its way
    server.state.log.length = 0;
    await page.waitForTimeout(3200); // two of its turns
    assert.equal(server.state.log.length, 0);
  }, { hasten: 10 });
});

test('by keyboard alone: into the tables, the range, the selector, help, the link, and back to the graph', async () => {
  await quality(`?${HOUR}`, async (page) => {
    await clipboard(page);
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the tables');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'cards');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'gpu-12');
    assert.ok(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle !== 'none'), 'a ring');
    await page.keyboard.press('t');
    await page.waitForFunction(() => document.activeElement.closest('.range-panel'));
    await page.keyboard.press('Escape');
    await page.keyboard.press('[');
    assert.equal((await params(page)).from, '2026-11-29T12:30:00Z');
    await page.keyboard.press('?');
    assert.match(await page.locator('dialog.help').innerText(), /go to the flame graph/);
    await page.keyboard.press('Escape');
    await page.keyboard.press('y');
    await page.waitForFunction(() => window.copied.length === 1);
    assert.match(await page.evaluate(() => window.copied[0]), /\/quality\?v=1&from=2026-11-29T12%3A30%3A00Z&to=2026-11-29T13%3A30%3A00Z$/);
    await page.getByLabel('Edit the selector as text').focus();
    await page.keyboard.press('Enter');
    await page.keyboard.type('{host="gpu-12"');
    await page.keyboard.type('}');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => new URLSearchParams(location.search).get('q') === 'cpu{host="gpu-12"}');
    /* of agents only their host can be selected */
    await page.waitForFunction(() => !document.querySelector('main[aria-busy]'));
    assert.equal(asked('/metrics').at(-1).params.get('q'), '{host="gpu-12"}');
    await page.keyboard.press('g');
    await page.keyboard.press('e');
    await page.waitForURL(/\/explore\?/);
    await page.waitForFunction(() => document.querySelector('.stat'));
    assert.equal((await params(page)).q, 'cpu{host="gpu-12"}', 'the selection goes along');
    await page.keyboard.press('g');
    await page.keyboard.press('q');
    await page.waitForURL(/\/quality\?/);
    await page.goBack();
    await page.waitForFunction(() => document.querySelector('.stat'));
  });
});

const HOSTILE = ['<img src=x onerror="window.__pwn=1">', '</script><script>window.__pwn=1</script>', '\u202egnp.exe', 'a\u0000b', 'x'.repeat(10_000), '{{window.__pwn=1}}', '"><svg onload=window.__pwn=1>'];
test('hostile names in hosts, reasons, versions, events, binaries and warnings are text', async () => {
  const h = (i) => HOSTILE[i % HOSTILE.length];
  server.state.say.set('/status', () => ({ ...answers.status(), version: h(6), agents: HOSTILE.map((host, i) => ({ host, last_ns: null, sources: [{ type: h(i + 1), unit: 'count', state: h(i + 2), why: h(i + 3), last_ns: '1' }] })), store: { ...answers.status().store, state: h(0), why: h(1) }, tiers: [{ ...answers.status().tiers[0], tier: h(2) }] }));
  server.state.say.set('/coverage', (p) => { const s = marks.coverage(p); return { ...s, sources: s.sources.map((v, i) => ({ ...v, host: h(i), type: { ...v.type, name: 'cpu' }, lost: [{ why: h(i + 1), n: '1', weight: '5' }], loss_runs: { ...v.loss_runs, why: [h(i + 2)] }, runs: { ...v.runs, state: v.runs.state.map(() => h(3)), why: v.runs.why.map(() => h(4)) } })) }; });
  server.state.say.set('/metrics', (p) => { const m = figures.metrics(p); return { ...m, metrics: m.metrics.map((r, i) => ({ ...r, labels: { host: r.labels.host === 'gpu-11' ? h(0) : h(4), ...(r.labels.python && { python: h(i + 1), why: h(i) }), ...(r.name === 'agent_pyerr' && { why: h(i) }) } })) }; });
  server.state.say.set('/events', () => ({ ...marks.events(), events: HOSTILE.map((t, i) => ({ t_ns: String(BigInt(answers.FROM_MS + i * 60e3) * 1_000_000n), kind: i % 2 ? 'identity' : 'state', text: t, target: null })) }));
  server.state.say.set('/types', () => ({ types: HOSTILE.map((t) => ({ id: t, name: t, unit: t, kind: 'sum' })) }));
  server.state.say.set('/top', (p) => {
    const a = answers.top(server.treeOf('3k'), p);
    const q = { ...a.quality, lost: HOSTILE.map((why) => ({ why, n: '1', weight: '5' })), rejected: HOSTILE.map((why) => ({ why, n: '2' })), warnings: HOSTILE };
    if (p.get('limit') === '0') return { ...a, quality: q };
    const n = HOSTILE.length;
    const column = (f) => HOSTILE.map((_, i) => f(i));
    return { ...a, quality: q, strings: ['', ...HOSTILE], raw: {}, n, func: { name: column((i) => i + 1), file: column(() => 0), bin: column((i) => i + 1), kind: column(() => 'native'), key: column((i) => String(i).padStart(16, '0')) }, row: { func: column((i) => i), self: column(() => 5), total: column(() => 5), samples: column(() => 1), places: column(() => 1), unsymbolised: column(() => 1) } };
  });
  for (const width of [390, 1280])
    await quality(`?${HOUR}`, async (page) => {
      assert.equal(await page.evaluate(() => window.__pwn), undefined);
      assert.equal(await page.evaluate(() => document.querySelectorAll('main img, main script, main svg[onload]').length), 0);
      const text = await page.locator('main').innerText();
      for (const part of ['<img src=x', '<U+202E>gnp.exe', 'a<U+0000>b', '{{window.__pwn=1}}']) assert.ok(text.includes(part), part);
      assert.ok(!text.includes('\u202e'));
      const w = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(w[0] <= w[1], `no name makes the page wider: ${w}`);
    }, { width, height: 900 });
});

test('axe finds nothing, in both themes, in each state and at 390, 1280 and 2560 pixels', async () => {
  const source = axeSource();
  const states = {
    whole: [`?${HOUR}`, null, 1280],
    narrow: [`?${HOUR}`, null, 390],
    wide: [`?${HOUR}`, null, 2560],
    meanings: [`?${HOUR}`, (page) => page.locator('summary').click(), 1280],
    help: [`?${HOUR}`, async (page) => { await page.keyboard.press('?'); await page.locator('dialog.help').waitFor(); }, 1280],
    empty: [`?${HOUR}`, () => {}, 1280, () => ({ ...answers.empty('no_match', { matcher: 'host="x"' }), kind: 'top', row: { func: [], self: [], total: [], samples: [], places: [] }, func: { name: [], file: [], bin: [], kind: [], key: [] } })],
    trouble: [`?${HOUR}`, null, 1280, () => server.error(503, { code: 'busy', message: 'too many queries are running' })],
  };
  for (const [name, [query, act, width, top]] of Object.entries(states)) {
    server.reset();
    if (top) server.state.say.set('/top', top);
    await quality(query, async (page) => {
      await act?.(page);
      await page.evaluate(source);
      for (const [colorScheme, only] of [['light', null], ['dark', ['color-contrast', 'link-in-text-block']]]) {
        await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        await page.evaluate(() => new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(ok))));
        const r = await page.evaluate((only) => window.axe.run(document, { resultTypes: ['violations'], ...(only && { runOnly: only }) }), only);
        if (!only) assert.ok(r.passes.length >= 10, `${name}: ${r.passes.length} rules were tried`);
        assert.deepEqual(r.violations.map((v) => `${colorScheme} ${name}: ${v.id} ${v.nodes.slice(0, 3).map((y) => `${y.target} ${y.any[0]?.message ?? ''}`).join(' | ')}`), []);
        const w = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
        assert.ok(w[0] <= w[1], `${name}: ${w}`);
        /* names of a usual length are whole, and nothing is cut off at a card's edge */
        assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll('.card table')].filter((t) => t.offsetWidth > t.parentElement.clientWidth).map((t) => t.getAttribute('aria-label'))), [], `${name} ${width}`);
        assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll('.card .facts bdi')].filter((b) => b.scrollWidth > b.clientWidth + 1 && getComputedStyle(b).display !== 'inline').map((b) => b.textContent)), [], `${name} ${width}`);
      }
    }, { width, height: 900, expect: [/status of 503/] });
  }
});
