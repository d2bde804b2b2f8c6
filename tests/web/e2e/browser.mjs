// SPDX-License-Identifier: Apache-2.0
/** Debian's Chromium through playwright-core, and pages on which any complaint fails the test. */
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../web/package.json', import.meta.url));

/** Why the browser cannot run, '' if it can. */
export function missing() {
  try {
    require.resolve('playwright-core');
    require.resolve('axe-core');
  } catch {
    return 'web/node_modules is missing: run npm ci --ignore-scripts in web/';
  }
  return chromium() ? '' : 'no chromium on PATH';
}
function chromium() {
  try {
    return execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim();
  } catch {
    return '';
  }
}
export const axeSource = () => require('axe-core').source;

export async function launch() {
  const { chromium: c } = require('playwright-core');
  return c.launch({
    executablePath: chromium(),
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--host-resolver-rules=MAP strata.test 127.0.0.1', // a host name over plain HTTP: no secure context
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}

/** Contexts that stay, by browser and pixel density: a page in one finds the modules compiled. */
const contexts = new WeakMap();
async function contextOf(browser, dpr) {
  if (!contexts.has(browser)) contexts.set(browser, new Map());
  const mine = contexts.get(browser);
  if (!mine.has(dpr)) {
    const c = await browser.newContext({ deviceScaleFactor: dpr, timezoneId: 'UTC', locale: 'en-US' });
    c.on('close', () => mine.delete(dpr));
    mine.set(dpr, c);
  }
  return mine.get(dpr);
}

/**
 * A page of its own: UTC, reduced motion unless asked otherwise, every error collected. `hasten`: timers of
 * a second and more end that many times sooner, for what repeats every few seconds.
 * @param {any} browser @param {object} [options]
 */
export async function open(browser, { scheme = 'light', width = 1440, height = 900, motion = 'reduce', dpr = 1, expect = [], hasten = 1 } = {}) {
  const page = await (await contextOf(browser, dpr)).newPage();
  page.setDefaultNavigationTimeout(90_000); // the largest fixture is made meanwhile
  await page.setViewportSize({ width, height });
  await page.emulateMedia({ colorScheme: scheme, reducedMotion: motion });
  const trouble = [];
  page.on('pageerror', (e) => trouble.push(`pageerror: ${e.message}`));
  page.on('console', (m) => {
    if (m.type() === 'error' && !expect.some((re) => re.test(m.text()))) trouble.push(`console: ${m.text()}`);
  });
  await page.addInitScript((hasten) => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.effectiveDirective} ${e.blockedURI} ${e.sample}`));
    const { setTimeout } = window;
    if (hasten > 1) window.setTimeout = (f, ms, ...rest) => setTimeout(f, ms >= 1000 ? ms / hasten : ms, ...rest);
  }, hasten);
  return {
    page,
    trouble,
    /** Wait until a picture or a state stands. */
    async ready() {
      await page.waitForFunction(
        () => {
          const { state, view, screen } = document.body.dataset;
          if (screen === 'quality') return document.querySelector('.cards .card') && !document.querySelector('main[aria-busy]');
          if (state === 'empty' || state === 'error') return true;
          return !state && document.querySelector('.stat') && document.querySelector('.chart-plot, .chart-place:not(:empty)') && (view === 'compare' ? document.querySelector('#compare .side, #compare .field-error') : view === 'sandwich' ? document.querySelector('#sandwich .panel-head:not([hidden]) b, #sandwich .panel-note:not(:empty)') : view === 'table' ? document.querySelector('tr[data-row]') : window.strataCounters?.draws > 0);
        },
        null,
        { timeout: 45_000, polling: 50 },
      ).catch(async (e) => {
        const seen = await page.evaluate(() => `${location.href} ${document.body.dataset.state} ${window.strataCounters?.draws} ${document.body.innerText.slice(0, 300)}`).catch(String);
        throw new Error(`${e.message} ${seen}`);
      });
      await page.evaluate(() => new Promise((ok) => setTimeout(ok, 40)));
    },
    /** Ends the page; whatever it complained about fails here. */
    async close() {
      const v = await page.evaluate(() => {
        localStorage.clear(); // what one page prefers is nothing to the next
        return window.violations;
      }).catch(() => []);
      await page.close();
      const all = [...trouble, ...v.map((x) => `csp: ${x}`)];
      if (all.length) throw new Error(all.join('\n'));
    },
  };
}
