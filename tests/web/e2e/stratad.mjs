// SPDX-License-Identifier: Apache-2.0
/** A real stratad with a data directory of its own, and batches into it as an agent sends them. STRATAD, UI: program and packed page. */
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const { STRATAD, UI } = process.env;
const INTEGRATION = fileURLToPath(new URL('../../integration', import.meta.url));

async function listens(child) {
  let text = '';
  return new Promise((ok, no) => {
    const look = (chunk) => {
      text += chunk;
      const m = text.match(/https?:\/\/127\.0\.0\.1:\d+|(?:listen|address|addr)=\S*?127\.0\.0\.1:(\d+)|127\.0\.0\.1:([1-9]\d+)/);
      if (m) ok(m[0].startsWith('http') ? m[0] : `http://127.0.0.1:${m[1] ?? m[2]}`);
    };
    child.stdout.on('data', look);
    child.stderr.on('data', look);
    child.on('exit', (c) => no(new Error(`stratad ended with ${c}: ${text}`)));
    setTimeout(() => no(new Error(`stratad did not say where it listens: ${text}`)), 20_000).unref();
  });
}

export async function startStratad() {
  const dir = mkdtempSync(join(tmpdir(), 'strata-live-'));
  const run = (port) => spawn(STRATAD, [`--listen=127.0.0.1:${port}`, `--data=${dir}/data`, `--ui=${UI}`, '-o', 'storage.min_free=0B', '-o', 'http.hosts=strata.test'], { stdio: ['ignore', 'pipe', 'pipe'] });
  let child = run(0);
  const url = await listens(child).catch((e) => {
    child.kill('SIGKILL');
    throw e;
  });
  const gone = async (signal) => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await new Promise((ok) => child.on('exit', ok));
  };
  return {
    url,
    dir,
    get pid() {
      return child.pid;
    },
    kill: () => gone('SIGKILL'),
    /** Again, at the same address with the same data; answers when it is ready. */
    async again() {
      child = run(new URL(url).port);
      await listens(child);
      while (!(await fetch(`${url}/readyz`).catch(() => null))?.ok) await new Promise((ok) => setTimeout(ok, 100));
    },
    async stop() {
      await gone('SIGTERM');
      rmSync(dir, { recursive: true, force: true });
    },
    /** Run Python that has stratabatch as sb and the server as URL; what it prints. */
    python: (code) => execFileSync('/usr/bin/python3', ['-c', `import sys, time\nsys.path.insert(0, ${JSON.stringify(INTEGRATION)})\nimport stratabatch as sb\nURL = ${JSON.stringify(url)}\n${code}`], { encoding: 'utf8' }),
  };
}

/* 60 % alpha, 30 % beta (by two callers), 10 % gamma; 200 lost beside 800; one minute that ended a minute ago */
export const FEED = `
now = time.time_ns()
t0 = (now - 120_000_000_000) // 1_000_000_000 * 1_000_000_000
t1 = t0 + 60_000_000_000
P = 10_000_000
b = sb.Batch(labels={"host": "h1"})
t = b.target(pid=42, comm="demo")
F = lambda n, line=0, inlined=False: dict(kind="native", name=n, file="demo.c" if line else "", line=line, bin="/opt/demo", inlined=inlined)
b.stream("cpu", t0, t1, period=P, labels={"service": "demo"}, target=t, expected=1000, received=800, lost={"ring_full": (200, 200 * P)}, rows=[
    dict(stack=[F("main"), F("alpha", 12), F("spin", 30, True)], count=480, value=480 * P, t=t0 + 1_000_000, tid=42),
    dict(stack=[F("main"), F("beta"), F("spin")], count=160, value=160 * P, t=t0 + 2_000_000, tid=42),
    dict(stack=[F("main"), F("</script><script>window.__pwn=1</script>"), F("beta")], count=80, value=80 * P, t=t0 + 30_000_000_000, tid=43),
    dict(stack=[F("main"), F("gamma<int, char>")], count=80, value=80 * P, t=t0 + 59_000_000_000, tid=43)])
r = sb.post(URL, b)
assert r["http"] == 200 and r["status"] == "stored", r
print(t0, t1)
`;
