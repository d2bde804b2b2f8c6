// SPDX-License-Identifier: Apache-2.0
/**
 * The packed UI and fixture answers on 127.0.0.1, under the same headers as stratad sends: only what
 * the manifest names is served, everything under the policy. `say` replaces an answer for a test.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as answers from '../fixtures/answers.mjs';
import { diff } from '../fixtures/diff.mjs';
import * as figures from '../fixtures/figures.mjs';
import { coverage, events, noSteps, steps } from '../fixtures/marks.mjs';
import { sandwich } from '../fixtures/sandwich.mjs';
import { makeTree } from '../fixtures/tree.mjs';

const WEB = fileURLToPath(new URL('../../../web/', import.meta.url));
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
  "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html";

const trees = new Map();
const treeOf = (size) => {
  if (!trees.has(size)) trees.set(size, makeTree(size));
  return trees.get(size);
};

/** Parameters that each route knows: an unknown one is refused, as stratad refuses it. */
const COMMON = ['q', 'from', 'to', 'agg', 'at', 'timeout', 'f', 'step'];
const KNOWN = {
  '/flamegraph': [...COMMON, 'width', 'max_nodes', 'root', 'order', 'invert', 'by', 'groups', 'match', 'hash'],
  '/top': [...COMMON, 'sort', 'key', 'match', 'any', 'limit', 'after', 'by', 'groups'],
  '/sandwich': [...COMMON, 'fn', 'bin', 'file', 'width', 'max_nodes', 'order'],
  '/diff': ['a_q', 'a_from', 'a_to', 'a_step', 'b_q', 'b_from', 'b_to', 'b_step', 'norm', 'agg', 'f', 'width', 'max_nodes', 'order', 'root', 'limit', 'timeout', 'view'],
  '/timeseries': [...COMMON, 'points', 'bucket', 'by', 'groups', 'rate'],
  '/types': ['q', 'from', 'to', 'timeout'],
  '/labels': ['q', 'from', 'to', 'timeout'],
  '/steps': ['name', 'sort', 'limit', 'after', 'q', 'from', 'to', 'timeout'],
  '/events': ['limit', 'after', 'q', 'from', 'to', 'timeout'],
  '/coverage': ['by', 'limit', 'q', 'from', 'to', 'timeout'],
  '/export': [...COMMON, 'format', 'root', 'by', 'invert', 'width', 'color'],
  '/metrics': ['name', 'limit', 'after', 'q', 'from', 'to', 'timeout'],
  '/metrics/query': ['name', 'agg', 'bucket', 'points', 'limit', 'q', 'from', 'to', 'timeout'],
  '/status': [],
};

export async function serve({ base = '' } = {}) {
  const out = join(mkdtempSync(join(tmpdir(), 'strata-ui-')), 'ui');
  execFileSync('sh', [join(WEB, 'tools/pack.sh'), WEB, out]);
  const files = new Map();
  let hash = '';
  for (const line of readFileSync(join(out, 'manifest.tsv'), 'utf8').trim().split('\n')) {
    const [url, type, file] = line.split('\t');
    let body = readFileSync(join(out, file));
    if (file === 'index.html') body = Buffer.from(body.toString().replaceAll('@BASE@', base));
    else hash = url.split('/')[2];
    files.set(base + url, { type, body });
  }
  rmSync(join(out, '..'), { recursive: true });

  const state = {
    size: '3k',
    whole: false, // do not trim
    /** @type {Map<string, (p: URLSearchParams) => any>} */ say: new Map(),
    delay: 0,
    gone: false, // no answer, the connection ends
    ui: hash,
    log: [],
  };
  const error = (status, e, retry = 0) => ({ status, retry, body: { error: { request_id: '4f2a9c1e', ...e } } });

  async function answer(path, p) {
    const said = await state.say.get(path)?.(p);
    if (said !== undefined && said !== null) return said.body ? said : { status: 200, body: said };
    const known = KNOWN[path] ?? (path.startsWith('/labels/') ? ['q', 'from', 'to', 'prefix', 'limit', 'after', 'timeout'] : null);
    if (!known) return error(404, { code: 'unknown_route', message: `no route ${path}` });
    for (const k of p.keys())
      if (!known.includes(k)) return error(400, { code: 'unknown_parameter', param: k, message: `parameter ${k} is not known here` });
    const t = treeOf(state.size);
    if (path === '/flamegraph') {
      if (state.whole) p.set('max_nodes', '0');
      return { status: 200, body: answers.flamegraph(t, p) };
    }
    if (path === '/top') {
      try {
        return { status: 200, body: answers.top(t, p) };
      } catch (e) {
        return error(400, { code: 'bad_pattern', param: 'match', message: `match: ${e.message}` });
      }
    }
    if (path === '/sandwich') return { status: 200, body: sandwich(t, p) };
    if (path === '/diff') return { status: 200, body: diff(t, p) };
    if (path === '/timeseries') {
      const nothing = state.say.get('/flamegraph')?.(p)?.empty;
      return { status: 200, body: nothing ? answers.emptySeries(t, p) : answers.timeseries(t, p) };
    }
    if (path === '/types') return { status: 200, body: answers.types() };
    if (path === '/labels') return { status: 200, body: answers.labels() };
    if (path === '/status') return { status: 200, body: answers.status() };
    const nothing = /^(never_ingested|no_agent_in_range|expired|future)$/.test(state.say.get('/flamegraph')?.(p)?.empty?.why ?? '');
    if (path === '/steps') return { status: 200, body: nothing ? noSteps() : steps() };
    if (path === '/events') return { status: 200, body: nothing ? { ...events(), events: [] } : events() };
    if (path === '/metrics') return { status: 200, body: figures.metrics(p) };
    if (path === '/metrics/query') return { status: 200, body: figures.means(p) };
    if (path === '/coverage') return { status: 200, body: coverage(p) };
    if (path === '/export') return { status: 200, body: answers.folded(t, p) };
    return { status: 200, body: answers.values(decodeURIComponent(path.split('/')[2]), p.get('prefix') ?? '') };
  }

  const server = http.createServer(async (req, res) => {
    const url = new URL(req.url, 'http://x');
    res.setHeader('X-Content-Type-Options', 'nosniff');
    res.setHeader('Referrer-Policy', 'no-referrer');
    res.setHeader('Cross-Origin-Resource-Policy', 'same-origin');
    res.setHeader('Cache-Control', url.pathname.startsWith(`${base}/ui/`) ? 'public, max-age=31536000, immutable' : 'no-store');
    if (url.pathname.startsWith(`${base}/api/v1/`)) {
      let params = url.searchParams;
      if (req.method === 'POST') {
        const chunks = [];
        for await (const c of req) chunks.push(c);
        params = new URLSearchParams(Buffer.concat(chunks).toString());
      }
      const path = url.pathname.slice(base.length + 7);
      state.log.push({ path, method: req.method, params: new URLSearchParams(params) });
      if (state.gone) return void res.destroy();
      if (state.delay) await new Promise((ok) => setTimeout(ok, state.delay));
      const a = await answer(path, params);
      if (a.retry) res.setHeader('Retry-After', String(a.retry));
      res.setHeader('Strata-UI', state.ui);
      res.setHeader('X-Request-Id', '4f2a9c1e');
      res.writeHead(a.status, { 'Content-Type': 'application/json' });
      res.end(typeof a.body === 'string' ? a.body : JSON.stringify(a.body));
      return;
    }
    const f = files.get(url.pathname);
    if (!f) {
      res.writeHead(404, { 'Content-Type': 'text/plain' }).end('not found\n');
      return;
    }
    res.setHeader('Content-Security-Policy', POLICY);
    res.writeHead(200, { 'Content-Type': f.type }).end(f.body);
  });
  await new Promise((ok) => server.listen(0, '127.0.0.1', ok));
  return {
    state,
    error,
    treeOf,
    url: `http://127.0.0.1:${server.address().port}${base}`,
    reset() {
      Object.assign(state, { size: '3k', whole: false, delay: 0, gone: false, ui: hash, log: [] });
      state.say.clear();
    },
    close: () => new Promise((ok) => { server.closeAllConnections(); server.close(ok); }),
  };
}

/* node server.mjs [PORT]: to look at by hand */
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const s = await serve();
  console.log(`${s.url}/explore`);
}
