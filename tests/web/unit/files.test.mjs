// SPDX-License-Identifier: Apache-2.0
/** What is committed and packed: vendored copies, preloads, two equal packs, and the lint that guards names. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, normalize } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const WEB = join(ROOT, 'web');
const tmp = mkdtempSync(join(tmpdir(), 'strata-web-'));
after(() => rmSync(tmp, { recursive: true }));

function files(dir, base = dir) {
  return readdirSync(dir, { withFileTypes: true })
    .flatMap((e) => (e.isDirectory() ? files(join(dir, e.name), base) : [join(dir, e.name).slice(base.length + 1)]))
    .sort();
}
/** Modules that `from` imports, itself included. */
function imports(from, seen = new Set()) {
  if (seen.has(from)) return seen;
  seen.add(from);
  const text = readFileSync(join(WEB, from), 'utf8').replace(/\/\*[\s\S]*?\*\//g, '');
  for (const m of text.matchAll(/(?:^|[;}\s])(?:import|export)[^'"();]*?from\s*['"](\.[^'"]+)['"]|import['"](\.[^'"]+)['"]/g)) imports(normalize(join(dirname(from), m[1] ?? m[2])), seen);
  return seen;
}
const pack = (out) => execFileSync('sh', [join(WEB, 'tools/pack.sh'), WEB, out]);

test('the sums of the vendored files are those of MANIFEST.sha256', () => {
  execFileSync('sh', ['-c', 'grep -v "^#" MANIFEST.sha256 | sha256sum --quiet -c -'], { cwd: join(WEB, 'vendor') });
  const listed = readFileSync(join(WEB, 'vendor/MANIFEST.sha256'), 'utf8').split('\n').filter((l) => l && !l.startsWith('#')).map((l) => l.split('  ')[1]).sort();
  assert.deepEqual(listed, files(join(WEB, 'vendor')).filter((f) => f !== 'MANIFEST.sha256'));
});

test('vendoring again gives the same', { skip: existsSync(join(WEB, 'node_modules/uplot')) ? false : 'web/node_modules is missing' }, () => {
  const out = join(tmp, 'vendor');
  execFileSync('node', [join(WEB, 'tools/vendor.mjs'), out]);
  assert.deepEqual(files(out), files(join(WEB, 'vendor')));
  for (const f of files(out)) assert.deepEqual(readFileSync(join(out, f)), readFileSync(join(WEB, 'vendor', f)), f);
});

test('no host of a registry is committed, and versions are exact', () => {
  for (const f of ['package.json', 'package-lock.json', ...files(join(WEB, 'vendor')).map((f) => `vendor/${f}`)]) assert.doesNotMatch(readFileSync(join(WEB, f), 'utf8'), /"resolved"|registry\.|sourceMappingURL/, f);
  for (const v of Object.values(JSON.parse(readFileSync(join(WEB, 'package.json'), 'utf8')).devDependencies)) assert.match(v, /^\d+\.\d+\.\d+$/);
});

test('two packs are equal to the bit; sizes, media types and compressed forms are right', () => {
  const [a, b] = ['a', 'b'].map((x) => join(tmp, x));
  pack(a);
  pack(b);
  assert.deepEqual(files(a), files(b));
  for (const f of files(a)) assert.deepEqual(readFileSync(join(a, f)), readFileSync(join(b, f)), f);
  const lines = readFileSync(join(a, 'manifest.tsv'), 'utf8').trimEnd().split('\n').map((l) => l.split('\t'));
  const named = new Set(['manifest.tsv']);
  for (const [url, type, file, size, gz] of lines) {
    assert.match(url, /^\/(explore|quality|ui\/[0-9a-f]{16}\/[\w./-]+)?$/);
    assert.match(type, /^(text\/(javascript|css|plain|html; charset=utf-8)|image\/svg\+xml)$/);
    assert.equal(statSync(join(a, file)).size, Number(size));
    named.add(file);
    if (gz === '-') continue;
    assert.equal(statSync(join(a, `${file}.gz`)).size, Number(gz));
    assert.deepEqual(execFileSync('gzip', ['-dc', join(a, `${file}.gz`)]), readFileSync(join(a, file)));
    named.add(`${file}.gz`);
  }
  assert.deepEqual([...named].sort(), files(a));
});

test('the page preloads exactly the modules that it imports; 120 KiB to the first picture, 180 KiB with the chart; each panel costs what it is', () => {
  const out = join(tmp, 'c');
  pack(out);
  const page = readFileSync(join(out, 'index.html'), 'utf8');
  const hash = readdirSync(out).find((f) => /^[0-9a-f]{16}$/.test(f));
  const loaded = [...page.matchAll(/<link rel="modulepreload" href="@BASE@\/ui\/([0-9a-f]{16})\/([^"]+)">/g)].map((m) => (assert.equal(m[1], hash), m[2]));
  const wanted = [...imports('js/main.js')];
  assert.deepEqual(['js/main.js', ...loaded].sort(), wanted.sort());
  assert.doesNotMatch(page, /@HASH@|<!-- modulepreload/);
  /* what asks for the picture is loaded before all else */
  const first = [...imports('js/first.js')];
  assert.deepEqual(loaded.slice(0, first.length).sort(), first.sort());
  const styles = [...page.matchAll(/rel="(?:stylesheet|icon)" href="@BASE@\/ui\/[0-9a-f]+\/([^"]+)"/g)].map((m) => m[1]);
  assert.equal(styles.length, 4);
  const bytes = [...wanted, ...styles].reduce((s, f) => s + statSync(join(out, hash, `${f}.gz`)).size, 0) + execFileSync('gzip', ['-9nc', join(out, 'index.html')]).length;
  console.log(`# first load: ${bytes} bytes after gzip`);
  assert.ok(bytes <= 120 * 1024, `${bytes} bytes`);
  /* every visit loads the chart too, after the picture */
  const cost = (from, known) => {
    const more = [...imports(from)].filter((f) => !known.has(f));
    return { more, bytes: more.reduce((s, f) => s + statSync(join(out, hash, `${f}.gz`)).size, 0) };
  };
  const chart = cost('js/later/chart.js', new Set(wanted));
  assert.ok(chart.more.includes('vendor/uplot/uPlot.esm.js'));
  console.log(`# a visit, with the time chart: ${bytes + chart.bytes} bytes`);
  assert.ok(bytes + chart.bytes <= 180 * 1024, `${bytes + chart.bytes} bytes`);
  /* a panel is loaded when it is first opened, with what it brings along */
  const known = new Set([...wanted, ...chart.more]);
  for (const f of ['screens/quality.js', ...files(join(WEB, 'js/later')).map((x) => `later/${x}`)]) {
    const { bytes: own } = cost(`js/${f}`, known);
    if (own > 4096) console.log(`# opening ${f}: ${own} bytes`);
    assert.ok(own <= 20 * 1024, `${f}: ${own} bytes`);
  }
  /* nothing of the first load is imported from what comes later */
  assert.ok(wanted.every((f) => !f.startsWith('js/later/') && f !== 'js/screens/quality.js'));
});

test('another byte is another hash; an unknown kind of file is refused', () => {
  const web = join(tmp, 'web'),
    out = join(tmp, 'd');
  for (const d of ['css', 'js', 'vendor', 'index.html']) cpSync(join(WEB, d), join(web, d), { recursive: true });
  const hashOf = () => {
    execFileSync('sh', [join(WEB, 'tools/pack.sh'), web, out]);
    return readdirSync(out).find((f) => /^[0-9a-f]{16}$/.test(f));
  };
  const first = hashOf();
  writeFileSync(join(web, 'js/main.js'), `${readFileSync(join(web, 'js/main.js'))}\n`);
  assert.notEqual(hashOf(), first);
  writeFileSync(join(web, 'js/data.bin'), 'x');
  const r = spawnSync('sh', [join(WEB, 'tools/pack.sh'), web, out], { encoding: 'utf8' });
  assert.notEqual(r.status, 0);
  assert.match(r.stderr, /data\.bin: no media type/);
  assert.ok(existsSync(join(out, 'manifest.tsv')), 'what was packed before stays');
});

test('imports have no cycle, screens do not import each other', () => {
  const edges = (f) => [...readFileSync(join(WEB, f), 'utf8').matchAll(/^(?:import|export)[^'"]*from '(\.[^']+)'/gm)].map((m) => normalize(join(dirname(f), m[1])));
  const done = new Set();
  function walk(f, path) {
    assert.ok(!path.includes(f), `cycle: ${[...path, f].join(' > ')}`);
    if (done.has(f)) return;
    for (const e of edges(f)) {
      assert.ok(!(f.includes('/screens/') && e.includes('/screens/')), `${f} imports ${e}`);
      if (!e.startsWith('vendor')) walk(e, [...path, f]);
    }
    done.add(f);
  }
  walk('js/main.js', []);
  walk('js/screens/quality.js', []);
  for (const f of files(join(WEB, 'js/later'))) walk(`js/later/${f}`, []);
  assert.ok(done.size > 20);
});

const BAD = {
  markup: "el.innerHTML = name;",
  adjacent: "el.insertAdjacentHTML('beforeend', name);",
  program: "eval(name);",
  timer: "setTimeout('x()', 1);",
  trust: "import { unsafeHTML } from '../vendor/x.js';",
  style: 'html`<i style="width:${w}"></i>`;',
  address: 'html`<a href=${url}></a>`;',
  image: 'html`<img src=${url}>`;',
  handler: 'html`<b onclick="x()"></b>`;',
  elsewhere: "import 'https://example.org/x.js';",
  fetch: "fetch('/x');",
  colour: "const c = '#ff0000';",
};
test('the lint finds what it is there for', () => {
  const root = join(tmp, 'lint');
  for (const d of ['js', 'css', 'index.html']) cpSync(join(WEB, d), join(root, 'web', d), { recursive: true });
  const lint = () => spawnSync('sh', [join(ROOT, 'tests/lint/web.sh'), root], { encoding: 'utf8' });
  const clean = lint();
  assert.equal(clean.status, 0, clean.stdout + clean.stderr);
  for (const [what, line] of Object.entries(BAD)) {
    writeFileSync(join(root, 'web/js/bad.js'), `${line}\n`);
    const r = lint();
    assert.equal(r.status, 1, `${what}: ${line} passed`);
    assert.match(r.stdout, /js\/bad\.js:1:/);
  }
});
