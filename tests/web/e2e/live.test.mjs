// SPDX-License-Identifier: Apache-2.0
/**
 * Explore against the real stratad: batches go in as an agent sends them, the browser shows them.
 * STRATAD names the program, UI the packed user interface.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import { gunzipSync } from 'node:zlib';
import { after, before, test } from 'node:test';
import { POLICY } from './server.mjs';
import { launch, open } from './browser.mjs';
import { place } from './harness.mjs';
import { FEED, startStratad } from './stratad.mjs';

let browser, daemon, url;
const python = (code) => daemon.python(code);

before(async () => {
  daemon = await startStratad(); // first, so that it is stopped where no browser starts
  ({ url } = daemon);
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});
async function explore(query, run, options = {}) {
  const p = await open(browser, options);
  try {
    await p.page.goto(`${url}/explore${query}`);
    await p.ready();
    await run(p.page);
  } catch (e) {
    await p.close().catch((x) => (e.message += `\n${x.message}`));
    throw e;
  }
  await p.close();
}
const text = async (page, sel) => (await page.locator(sel).first().innerText()).replaceAll('\u202f', ' ').replace(/\s+/g, ' ').trim();

test('the page comes with the policy, and nothing has arrived yet', async () => {
  const r = await fetch(`${url}/explore`);
  assert.equal(r.status, 200);
  assert.equal(r.headers.get('content-security-policy').replace(/\s*;\s*/g, '; ').trim(), POLICY);
  assert.equal(r.headers.get('x-content-type-options'), 'nosniff');
  await explore('', async (page) => {
    assert.equal(await page.locator('.state').getAttribute('data-why'), 'never_ingested');
    assert.match(await text(page, '.state'), /strata-agent/);
  });
});

let range;
test('what an agent sends is seen: shares, exact totals, loss', async () => {
  const [t0, t1] = python(FEED).trim().split(' ').map(BigInt);
  range = `from=${t0}ns&to=${t1}ns`;
  await explore(`?q=${encodeURIComponent('cpu{service="demo"}')}&${range}`, async (page) => {
    assert.match(await text(page, '#crumbs'), /^all 8\.00 core-s from 1 source$/);
    const q = await text(page, '.quality');
    for (const part of ['1 source', 'cpu, ns, sum @ 100 Hz', 'covered 100 %', 'lost up to 20.0 %', 'ring_full']) assert.ok(q.includes(part), `${part} in: ${q}`);
    assert.match(await text(page, '#inspector'), /8\.00 core-s total.*800 samples/);
    const names = await page.evaluate(() => {
      const t = window.strataGraph.tree;
      return Array.from(t.func, (f, i) => [t.funcs.name[f], t.total[i], t.samples[i]]).filter(([n]) => n);
    });
    const of = Object.fromEntries(names.slice(0, 3).map(([n, v, s]) => [n, [v, s]]));
    assert.deepEqual(of, { all: [8e9, 800], main: [8e9, 800], alpha: [4.8e9, 480] });
    assert.match(await text(page, '.chart-head'), /cpu cores per .* lost mean 0\.133 cores/);
    await page.keyboard.press('2');
    await page.waitForFunction(() => document.querySelectorAll('tr[data-row]').length === 6);
    assert.match(await text(page, 'tr[data-row="0"]'), /^spin demo\.c 6\.40 core-s 80\.0 % 6\.40 core-s 80\.0 %/);
    assert.equal(await page.evaluate(() => window.__pwn), undefined);
  });
});

test('the pointer rests on a frame: file, line and what was inlined', async () => {
  await explore(`?q=${encodeURIComponent('cpu{service="demo"}')}&${range}`, async (page) => {
    for (const [name, lines] of [['alpha', /demo\.c:12$/], ['spin', /demo\.c:30 inlined$/]]) {
      const at = await place(page, name);
      await page.mouse.move(at.x, at.y);
      await page.waitForFunction((name) => document.querySelector('.tip-line') && document.querySelector('.tip-name').textContent === name, name);
      assert.match(await text(page, '.tip-line'), lines);
    }
  });
});

test('zoom and search ask the server, and the link holds them', async () => {
  const q = `?q=${encodeURIComponent('cpu{service="demo"}')}&${range}`;
  await explore(`${q}&s=beta`, async (page) => {
    await page.waitForFunction(() => / of total/.test(document.querySelector('#search-result')?.textContent ?? ''));
    /* 160 under beta itself, 80 where it is a leaf: each sample once */
    assert.equal(await text(page, '#search-result'), '30.0 % of total · 1 function');
    await page.evaluate(() => {
      const g = window.strataGraph,
        t = g.tree;
      for (let i = 1; i < t.n; i++) if (t.funcs.name[t.func[i]] === 'alpha') g.select(i);
    });
    await page.locator('.a11y-tree').focus();
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => new URLSearchParams(location.search).has('z'));
    const zoomed = page.url();
    assert.match(await text(page, '#crumbs'), /all › ?main › ?alpha 4\.80 core-s · 60\.0 % of 8\.00 core-s|alpha 4\.80 core-s · 60\.0 %/);
    await page.goto('about:blank');
    await page.goto(zoomed);
    await page.waitForFunction(() => document.querySelector('.stat'));
    assert.match(await text(page, '#crumbs'), /alpha 4\.80 core-s · 60\.0 %/);
    assert.equal(await page.evaluate(() => window.strataGraph.tree.total[0]), 4.8e9);
  });
});

test('pickers: types and labels that exist; a matcher that removes all is named, values are offered', async () => {
  const q = (s) => `?q=${encodeURIComponent(s)}&${range}`;
  await explore(q('cpu{service="demo", host="nowhere"}'), async (page) => {
    await page.waitForFunction(() => document.querySelector('.chips'));
    assert.equal(await page.locator('.state').getAttribute('data-why'), 'no_match');
    assert.match(await text(page, '.state'), /host="nowhere"/);
    assert.match(await text(page, '.chips'), /h1/);
    await page.locator('.chips button').first().click();
    await page.waitForFunction(() => !document.body.dataset.state);
    assert.match(await text(page, '#crumbs'), /8\.00 core-s/);
    await page.locator('#selector .chip.add').click();
    await page.waitForFunction(() => document.querySelectorAll('#label-names option').length >= 2);
    const names = await page.locator('#label-names option').evaluateAll((l) => l.map((o) => o.value));
    for (const n of ['host', 'service']) assert.ok(names.includes(n), `${n} in ${names}`);
  });
});

test('40 ways to write a path out of the folder: refused, and no file is opened', async (t) => {
  const up = ['..', '%2e%2e', '.%2e', '%2e.', '..%2f', '..%5c', '%2e%2e%2f', '%252e%252e', '..%00', '%00', '..;', '%c0%ae%c0%ae', '....//', '..\\', '%5c..%5c', '..%252f', '%e0%80%ae%e0%80%ae', '..%c0%af', '.%00./', '%2e%2e/%2e%2e'];
  const paths = up.flatMap((u) => [`/ui/${u}/${u}/${u}/etc/passwd`, `/ui/0123456789abcdef/js/${u}/main.js`]);
  assert.equal(paths.length, 40);
  const trace = spawn('strace', ['-f', '-qq', '-e', 'trace=open,openat,openat2', '-p', String(daemon.pid)], { stdio: ['ignore', 'ignore', 'pipe'] });
  let opened = '',
    ended = false;
  trace.stderr.on('data', (x) => (opened += x));
  trace.on('error', () => (ended = true));
  trace.on('exit', () => (ended = true));
  await new Promise((ok) => setTimeout(ok, 800));
  if (ended) t.diagnostic(`without strace: ${opened}`);
  const { port } = new URL(url);
  const answer = (path) => new Promise((ok, no) => {
    const s = connect(port, '127.0.0.1', () => s.write(`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n\r\n`));
    let text = '';
    s.on('data', (x) => (text += x)).on('end', () => ok(text)).on('error', no);
  });
  for (const path of paths) assert.match(await answer(path), /^HTTP\/1\.1 40[04] /, path);
  assert.match(await answer('/explore'), /^HTTP\/1\.1 200 /);
  const watched = !ended;
  trace.kill('SIGINT');
  await new Promise((ok) => (trace.exitCode !== null || ended ? ok() : trace.on('exit', ok)));
  /* the store writes while we ask: only its own folder may be opened */
  if (watched) assert.deepEqual(opened.split('\n').filter((l) => /open(at2?)?\(/.test(l) && !l.includes(daemon.dir)), []);
});

test('a host name over plain HTTP: no secure context, and all works: both screens, the link is copied', async () => {
  const there = url.replace('127.0.0.1', 'strata.test');
  const p = await open(browser);
  await p.page.goto(`${there}/explore?q=${encodeURIComponent('cpu{service="demo"}')}&${range}`);
  await p.ready();
  assert.equal(await p.page.evaluate(() => [isSecureContext, navigator.clipboard === undefined].join()), 'false,true');
  await p.page.locator('#copy').click();
  await p.page.waitForFunction(() => /Link copied/.test(document.querySelector('.toast')?.textContent ?? ''));
  await p.page.locator('.nav-item', { hasText: 'Quality' }).click();
  await p.page.waitForFunction(() => document.querySelector('.cards .card') && !document.querySelector('main[aria-busy]'), null, { timeout: 45_000 });
  assert.match(p.page.url(), /strata\.test:\d+\/quality\?/);
  await p.close(); // with whatever the policy was broken by
});

test('the link that is copied shows the same in another browser: selection, zoom, filter, search, and times that stay', async () => {
  const q = `?q=${encodeURIComponent('cpu{service="demo"}')}&from=now-30m&f=keep%3Amain&s=spin&color=binary`;
  let link = '',
    seen = '';
  const seenOn = (page) => page.evaluate(() => [document.querySelector('#crumbs').textContent, document.querySelector('.shown').textContent, document.querySelector('#search-result').textContent, window.strataGraph.tree.total[window.strataGraph.root]].join(' | ').replace(/\s+/g, ' '));
  const searched = (page) => page.waitForFunction(() => / of total/.test(document.querySelector('#search-result')?.textContent ?? '') && document.querySelector('.shown'));
  await explore(q, async (page) => {
    await searched(page);
    const at = await place(page, 'alpha');
    await page.mouse.click(at.x, at.y);
    await page.waitForFunction(() => new URLSearchParams(location.search).has('z') && / core-s of /.test(document.querySelector('#crumbs').textContent.replaceAll('\u202f', ' ')) || /60/.test(document.querySelector('#crumbs').textContent));
    await page.evaluate(() => { window.copied = []; Object.defineProperty(navigator, 'clipboard', { configurable: true, value: { writeText: async (t) => void window.copied.push(t) } }); });
    await page.locator('#copy').click();
    await page.waitForFunction(() => window.copied.length);
    link = await page.evaluate(() => window.copied[0]);
    seen = await seenOn(page);
  });
  assert.match(link, /^http:\/\/127\.0\.0\.1:\d+\/explore\?v=1&q=cpu/);
  assert.match(link, /&from=20\d\d-[^&]*Z&to=20\d\d-[^&]*Z&/, 'no word that means another time tomorrow');
  assert.ok(link.length < 1024, `${link.length} bytes`);
  const other = await launch();
  try {
    const p = await open(other, { scheme: 'dark', width: 1000, height: 700 });
    await p.page.goto(link);
    await p.ready();
    await searched(p.page);
    assert.equal(await seenOn(p.page), seen);
    await p.close();
  } finally {
    await other.close();
  }
});

test('quality: figures of an agent, versions of Python, a broken sum and what was lost, from the real server', async () => {
  python(`
now = time.time_ns()
b = sb.Batch(labels={"host": "h1"})
t = b.target(pid=42, comm="demo")
F = dict(kind="native", name="main", bin="/opt/demo")
t0 = (now - 60_000_000_000) // 1_000_000_000 * 1_000_000_000
b.stream("cpu", t0, t0 + 50_000_000_000, period=10_000_000, labels={"service": "demo"}, target=t, expected=110, received=100, lost={"ring_full": (10, 100_000_000)}, rows=[dict(stack=[F], count=100, value=1_000_000_000, t=t0, tid=42)])
COUNTER, GAUGE = 2, 1
for name, unit, kind, a, z, labels in (
    ("agent_python_versions", "count", GAUGE, 3, 3, {"python": "3.11.7", "why": "ok"}),
    ("agent_python_versions", "count", GAUGE, 1, 1, {"python": "3.9.18", "why": "py_version"}),
    ("agent_python_samples", "count", COUNTER, 0, 1000, {}),
    ("agent_identity_violations", "count", COUNTER, 0, 2, {}),
    ("agent_rss", "bytes", GAUGE, 1, 64 << 20, {}),
    ("agent_cpu", "nanoseconds", COUNTER, 0, 500_000_000, {}),
    ("agent_period", "nanoseconds", GAUGE, 10_000_000, 10_000_000, {})):
    b.metric(name, unit, t0, [(t0, a), (t0 + 50_000_000_000, z)], kind=kind, labels=labels)
for name, v in (("process_cpu", 4_000_000_000), ("profiled_cpu", 3_000_000_000)):
    b.metric(name, "nanoseconds", t0, [(t0 + i * 10_000_000_000, v * i // 5) for i in range(6)], kind=COUNTER, target=t)
b.event(t0 + 1, "identity", "I2: samples 10 + refused 0 != busy 11")
r = sb.post(URL, b)
assert r["http"] == 200 and r["status"] == "stored", r
`);
  const p = await open(browser);
  await p.page.goto(`${url}/quality?q=${encodeURIComponent('cpu{service="demo"}')}&from=now-15m`);
  await p.page.waitForFunction(() => document.querySelector('.cards .card') && !document.querySelector('main[aria-busy]'), null, { timeout: 45_000 });
  const all = await text(p.page, 'main');
  for (const part of ['h1 3.11.7 read', 'h1 3.9.18 warning: refused a version whose layout is not known', 'h1 problem: 2 violations 75.0 %', 'A sum that must hold does not: a bug of Strata, please report it. I2: samples 10 + refused 0 != busy 11', 'h1 1.0 %', '64.0 MiB', '100 Hz', 'ring_full', '/opt/demo'.slice(5), 'state ok']) assert.ok(all.includes(part), `${part} in: ${all}`);
  assert.equal(await p.page.locator('.nav-item[aria-current]').innerText(), 'Quality');
  assert.doesNotMatch(all, /NaN|undefined/);
  await p.close();
});

test('what the server refuses stands at its place', async () => {
  await explore(`?q=${encodeURIComponent('cpu{service=~"("}')}&${range}`, async (page) => {
    assert.equal(await page.evaluate(() => document.body.dataset.state), 'error');
    assert.ok((await text(page, '#selector-error')).length > 10);
  }, { expect: [/status of 4\d\d/] });
});

/** Sums of the values of a pprof profile, a column each: field 2 of the profile is a sample, field 2 of it its values. @param {Buffer} bytes */
function pprofSums(bytes) {
  const varint = (b, at) => {
    let v = 0n;
    for (let shift = 0n; ; shift += 7n) {
      v |= BigInt(b[at] & 127) << shift;
      if (b[at++] < 128) return [Number(v), at];
    }
  };
  function* fields(b) {
    let tag, n, at = 0;
    while (at < b.length) {
      [tag, at] = varint(b, at);
      [n, at] = varint(b, at);
      assert.ok([0, 2].includes(tag & 7), 'a wire type that pprof has');
      yield [tag >> 3, (tag & 7) === 0 ? n : b.subarray(at, (at += n))];
    }
  }
  const sums = [];
  for (const [n, sample] of fields(bytes)) {
    if (n !== 2) continue;
    let k = 0;
    for (const [m, v] of fields(sample)) {
      if (m !== 2) continue;
      const list = typeof v === 'number' ? [v] : [];
      for (let at = 0, x; at < (v.length ?? 0);) {
        [x, at] = varint(v, at);
        list.push(x);
      }
      for (const x of list) {
        sums[k] = (sums[k] ?? 0) + x;
        k++;
      }
    }
  }
  return sums;
}

test('exports carry the same total', async () => {
  const q = new URLSearchParams({ q: 'cpu{service="demo"}' });
  const folded = await (await fetch(`${url}/api/v1/export?${q}&${range}&format=folded`)).text();
  assert.equal(folded.trim().split('\n').reduce((s, l) => s + Number(l.slice(l.lastIndexOf(' ') + 1)), 0), 8e9);
  await explore(`?${q}&${range}`, async (page) => {
    await page.locator('#options .menu-anchor .button').click();
    const of = (name) => page.locator('.menu-panel a', { hasText: name }).getAttribute('href');
    assert.equal(await (await fetch(url + (await of('Folded')))).text(), folded);
    const scope = await (await fetch(url + (await of('speedscope')))).json();
    assert.equal(scope.profiles[0].weights.reduce((s, w) => s + w, 0) * { nanoseconds: 1, milliseconds: 1e6, seconds: 1e9 }[scope.profiles[0].unit], 8e9);
    const screen = await page.evaluate(() => window.strataGraph.tree.total[0]);
    assert.equal(screen, 8e9);
    const pprof = gunzipSync(Buffer.from(await (await fetch(url + (await of('pprof')))).arrayBuffer()));
    assert.deepEqual(pprofSums(pprof), [800, screen], 'samples and weight');
    const [svg, report, json] = await Promise.all([of('SVG'), of('text'), of('SVG').then((h) => h.replace('format=svg', 'format=json'))].map(async (h) => (await fetch(url + (await h))).text()));
    for (const [what, file] of Object.entries({ svg, report })) for (const part of [/^(<text.*>)?cpu nanoseconds, sum(<|$)/m, /range: 20\d\d-\S+Z to /, /covered: 60\.000 s of 60\.000 s/, /lost: ring_full, 2\.000 s, n = 200/, /total: 8\.000 s, n = 800/]) assert.match(file, part, what);
    assert.match(svg, /<title>all: 8\.000 s, 100\.0 %/);
    const tree = JSON.parse(json);
    assert.equal(tree.total, String(screen));
    assert.equal(tree.node.self.reduce((s, v) => s + v, 0), screen);
    assert.match(await text(page, '#crumbs'), /^all 8\.00 core-s/);
  });
});

test('the server’s SVG has the colours of the page, by origin and by binary', async () => {
  python(`
now = time.time_ns() // 1_000_000_000 * 1_000_000_000 - 60_000_000_000
P = 10_000_000
b = sb.Batch(labels={"host": "h1"})
F = lambda kind, name, bin="": dict(kind=kind, name=name, bin="/opt/" + bin if bin else "", file="", line=0, inlined=False)
rows = [F("native", f"f{i}", bin) for i, bin in enumerate(["libtorch_cpu.so", "libc10.so", "libcudart.so", "libcublas.so", "libnccl.so.2", "libmpi.so", "libc.so.6", "d\u00e9mo\u2603", "app"] + [f"lib{c}.so" for c in "abcdefghi"])]
rows += [F("python", "train"), F("kernel", "do_sys", "[kernel]"), F("gpu", "gemm"), F("jit", "jitted"), F("native", "no_binary"), F("other", "rank=3"), F("native", "app+0x1f", "app"), F("other", "[no stack: nomap]"), F("other", "imported")]
t = b.target(pid=42, comm="demo")
b.stream("cpu", now, now + 10_000_000_000, period=P, labels={"service": "paint"}, target=t, expected=9000, received=9000, rows=[dict(stack=[F("native", "main", "app"), f], count=100 + 7 * i, value=(100 + 7 * i) * P, t=now, tid=42) for i, f in enumerate(rows)])
r = sb.post(URL, b)
assert r["http"] == 200 and r["status"] == "stored", r`);
  for (const color of ['origin', 'binary'])
    await explore(`?q=${encodeURIComponent('cpu{service="paint"}')}&from=now-5m&color=${color}`, async (page) => {
      const drawn = await page.evaluate(() => {
        const g = window.strataGraph;
        return g.bars(100).bars.map((b) => [g.tree.funcs.name[g.tree.func[b.node]], b.fill]);
      });
      await page.locator('#options .menu-anchor .button').click();
      const svg = await (await fetch(url + (await page.locator('.menu-panel a', { hasText: 'SVG' }).getAttribute('href')))).text();
      const rgb = (hex) => `rgb(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(' ')})`;
      const sent = [...svg.matchAll(/<title>(.*?): [^:]*<\/title><rect [^>]*fill="(#[0-9a-f]{6})"/g)].map((m) => [m[1], rgb(m[2])]);
      assert.ok(drawn.length > 25 && new Set(drawn.map((d) => d[1])).size > 10, `${drawn.length}`);
      assert.deepEqual(Object.fromEntries(sent), Object.fromEntries(drawn));
    });
});

test('filters: what the server keeps and takes away stands at the chips', async () => {
  const q = new URLSearchParams({ q: 'cpu{service="demo"}', f: 'keep:beta' });
  await explore(`?${q}&${range}`, async (page) => {
    /* 160 under beta itself, 80 where it is a leaf */
    assert.equal(await text(page, '.shown'), 'shown 30.0 % of 8.00 core-s');
    assert.equal(await page.locator('.chip.filter').getAttribute('title').then((t) => t.replaceAll('\u202f', ' ')), '5.60 core-s taken away, 1 function matches');
    await page.evaluate(() => window.strataGraph.select(0));
    await page.locator('.a11y-tree').focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('m');
    await page.waitForFunction(() => document.querySelectorAll('.chip.filter').length === 2);
    await page.waitForFunction(() => !document.body.dataset.state && document.querySelector('.shown'));
    const top = await page.evaluate(() => window.strataGraph.tree.funcs.name);
    assert.ok(!top.includes('main') && top.includes('beta'), top.join());
    await page.locator('.chip.filter .chip-x').first().click();
    await page.waitForFunction(() => document.querySelector('.shown')?.textContent.includes('100'));
    assert.equal(await text(page, '.shown'), 'shown 100 % of 8.00 core-s');
  });
});

test('Python frames alone, native frames alone: one press each, and no weight is lost', async () => {
  python(`
now = time.time_ns()
b = sb.Batch(labels={"host": "h1"})
t = b.target(pid=7, comm="py")
t0 = (now - 60_000_000_000) // 1_000_000_000 * 1_000_000_000
N = lambda n: dict(kind="native", name=n, bin="/usr/bin/python3")
P = lambda n: dict(kind="python", name=n, file="job.py")
b.stream("cpu", t0, t0 + 50_000_000_000, period=10_000_000, labels={"service": "py"}, target=t, expected=100, received=100, rows=[dict(stack=[N("main"), P("train"), N("_PyEval"), P("step"), N("matmul")], count=100, value=1_000_000_000, t=t0, tid=7)])
r = sb.post(URL, b)
assert r["http"] == 200 and r["status"] == "stored", r
`);
  await explore(`?q=${encodeURIComponent('cpu{service="py"}')}&from=now-15m`, async (page) => {
    const names = () => page.evaluate(() => { const t = window.strataGraph.tree; return [...Array.from(t.func, (f) => t.funcs.name[f]), t.total[0]].join(' '); });
    assert.equal(await names(), 'all main train _PyEval step matmul 1000000000');
    for (const [preset, want] of [['Python frames alone', 'all train step 1000000000'], ['Native frames alone', 'all main _PyEval matmul 1000000000']]) {
      await page.locator('#filters .chip.add').click();
      await page.locator('#filters .pick', { hasText: preset }).click();
      await page.waitForFunction((n) => window.strataGraph.tree?.n === n, want.split(' ').length - 1);
      assert.equal(await names(), want);
      await page.locator('.chip.filter .chip-x').click();
      await page.waitForFunction(() => window.strataGraph.tree?.n === 6);
    }
  });
});

test('sandwich and compare ask the real server, and show what it says', async () => {
  const q = `q=${encodeURIComponent('cpu{service="demo"}')}&${range}`;
  await explore(`?${q}&view=sandwich&fn=spin`, async (page) => {
    assert.match(await text(page, '#sandwich .panel-head'), /^spin 6\.40 core-s · 80\.0 % of total self 6\.40 core-s/);
  });
  await explore(`?${q}&view=compare`, async (page) => {
    /* nobody looked before: no data, and no percentage */
    const sides = (await page.locator('#compare .side:not(.compare-q)').allInnerTexts()).map((t) => t.replaceAll('\u202f', ' ').replace(/\s+/g, ' '));
    assert.match(sides[0], /^A .* no data/);
    assert.match(sides[1], /^B .* 8\.00 core-s n=800 0\.133 cores covered 100 % lost up to 20\.0 %/);
    assert.match(sides[2], /^Δ no data .*cannot be compared: A not covered/);
  });
  const [t0] = range.match(/\d+/).map(BigInt),
    half = (k) => new Date(Number((t0 + BigInt(k) * 1_000_000_000n) / 1_000_000n)).toISOString();
  await explore(`?q=${encodeURIComponent('cpu{service="demo"}')}&from=${half(20)}&to=${half(40)}&a_from=${half(0)}&a_to=${half(20)}&view=compare&norm=none`, async (page) => {
    assert.match((await page.locator('#compare .side:not(.compare-q)').nth(2).innerText()).replaceAll('\u202f', ' '), /^Δ −5\.60 core-s/);
    assert.match(await text(page, '#compare .compare-list tbody'), /removed, −100 %/);
  });
});

test('quality, steps, groups and shares of the real server', async () => {
  const [t0] = range.match(/\d+/).map(BigInt);
  const steps = [0, 1, 2].map((n) => ({ name: 'train', number: n, t0_ns: String(t0 + BigInt(n * 20) * 1_000_000_000n), t1_ns: String(t0 + BigInt(n * 20 + 18) * 1_000_000_000n), attributes: { rank: String(n % 2) } }));
  const r = await fetch(`${url}/api/v1/steps`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ service: 'demo', host: 'h1', steps }) });
  assert.equal(r.status, 200, await r.text());
  const q = new URLSearchParams({ q: 'cpu{service="demo"}' });
  await explore(`?${q}&${range}&more=quality&view=table&any=beta&any=gamma`, async (page) => {
    await page.waitForFunction(() => document.querySelector('#more .cover-strip') && document.querySelector('.pin-union'));
    const all = await text(page, '#more');
    for (const part of ['h1 cpu service=demo', '100 %', 'ring_full', '2.00 core-s', '20.0 %', 'demo', 'sampled at 100 Hz']) assert.ok(all.includes(part), `${part} in: ${all}`);
    await page.waitForFunction(() => /at least one\s*40\.0/.test(document.querySelector('.pin-union').textContent));
    assert.match(await text(page, '.pin-list'), /^beta 30\.0 % 2\.40 core-s · 1 function gamma 10\.0 % 800 ms · 1 function at least one 40\.0 % 3\.20 core-s/);
  });
  await explore(`?${q}&${range}&by=tid&more=steps&view=both`, async (page) => {
    await page.waitForFunction(() => document.querySelector('#more table') && document.querySelector('.line-key'));
    const levels = await page.evaluate(() => { const t = window.strataGraph.tree; return Array.from(t.func, (f, i) => (t.depth[i] === 1 ? [t.funcs.name[f], t.total[i]] : null)).filter(Boolean); });
    assert.deepEqual(levels, [['tid=42', 6.4e9], ['tid=43', 1.6e9]]);
    assert.match(await text(page, '.chart-legend'), /^all tid=42 tid=43$/);
    assert.match(await text(page, '#more'), /train 3 18\.0 s/);
    assert.match(await text(page, '.chart-head'), /steps train/);
    await page.locator('#more select').selectOption('rank');
    await page.waitForFunction(() => document.querySelector('[aria-label="Steps by rank"]'));
  });
  await explore(`?${q}&${range}&view=table&key=line&invert=1`, async (page) => {
    await page.waitForFunction(() => document.querySelector('tr[data-row]'));
    assert.match(await text(page, 'tr[data-row="0"]'), /^spin demo/);
  });
});

test('a capture beside an agent is not mixed in silently: said, and either alone has its own total', async () => {
  python(FEED.replace('{"host": "h1"}', '{"host": "h1", "source": "record", "capture": "web-1"}').replaceAll('"demo"', '"both"'));
  python(FEED.replaceAll('"demo"', '"both"'));
  await explore(`?q=${encodeURIComponent('cpu{service="both"}')}`, async (page) => {
    assert.match(await text(page, '#crumbs'), /^all 16\.0 core-s/);
    await page.waitForFunction(() => document.querySelector('.captures'));
    assert.match(await text(page, '.captures'), /^1 capture of strata record is added to what agents saw/);
    await page.locator('.captures button', { hasText: 'Without captures' }).click();
    await page.waitForFunction(() => /8\.00/.test(document.querySelector('#crumbs').textContent));
    await page.goBack();
    await page.waitForFunction(() => document.querySelector('.captures'));
    await page.locator('.captures button', { hasText: 'Only web-1' }).click();
    await page.waitForFunction(() => /8\.00/.test(document.querySelector('#crumbs').textContent));
  });
});

test('a restart of the server is lived through: live says so, the picture stays, new data come', async () => {
  const q = `?q=${encodeURIComponent('cpu{service="demo"}')}&from=now-30m`;
  await explore(q, async (page) => {
    await page.locator('button', { hasText: 'Live' }).click();
    await page.mouse.move(5, 5);
    const before = await text(page, '#crumbs');
    await daemon.kill();
    await page.waitForFunction(() => document.querySelector('.live-trouble'), null, { timeout: 20_000 });
    assert.equal(await text(page, '#crumbs'), before, 'the picture stays');
    await daemon.again();
    python(FEED);
    await page.waitForFunction((was) => !document.querySelector('.live-trouble') && document.querySelector('#crumbs').textContent.replaceAll('\u202f', ' ').replace(/\s+/g, ' ').trim() !== was, before, { timeout: 30_000 });
  }, { expect: [/ERR_/], hasten: 5 });
});
