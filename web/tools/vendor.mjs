// SPDX-License-Identifier: Apache-2.0
/**
 * Copy the two run-time libraries out of node_modules into web/vendor, with their licences, and
 * write MANIFEST.sha256. Run after `npm ci --ignore-scripts`; the result is committed.
 *
 * Usage: node tools/vendor.mjs [OUT]     (default: vendor beside this folder)
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const out = process.argv[2] ?? join(web, 'vendor');

/** [package, file in it, file in vendor]. uPlot's types must be named after its module, else tsc misses them. */
const FILES = [
  ['uplot', 'dist/uPlot.esm.js', 'uplot/uPlot.esm.js'],
  ['uplot', 'dist/uPlot.min.css', 'uplot/uPlot.min.css'],
  ['uplot', 'dist/uPlot.d.ts', 'uplot/uPlot.esm.d.ts'],
  ['uplot', 'LICENSE', 'uplot/LICENSE'],
  ['lit-html', 'lit-html.js', 'lit-html/lit-html.js'],
  ['lit-html', 'lit-html.d.ts', 'lit-html/lit-html.d.ts'],
  ['lit-html', 'directive.d.ts', 'lit-html/directive.d.ts'], // types only
  ['lit-html', 'LICENSE', 'lit-html/LICENSE'],
];

rmSync(out, { recursive: true, force: true });
const sums = FILES.map(([pkg, from, to]) => {
  const raw = readFileSync(join(web, 'node_modules', pkg, from));
  /* source maps are not shipped, so nothing may ask for them */
  const body = /\.(js|ts|css)$/.test(to)
    ? `${raw.toString('utf8').replace(/^\/\/# sourceMappingURL=.*$/gm, '').trimEnd()}\n`
    : raw;
  mkdirSync(dirname(join(out, to)), { recursive: true });
  writeFileSync(join(out, to), body);
  return `${createHash('sha256').update(body).digest('hex')}  ${to}`;
});
const version = (pkg) => JSON.parse(readFileSync(join(web, 'node_modules', pkg, 'package.json'), 'utf8'));
const head = ['uplot', 'lit-html'].map((p) => `# ${p} ${version(p).version} ${version(p).license}`);
writeFileSync(join(out, 'MANIFEST.sha256'), `${[...head, ...sums.sort()].join('\n')}\n`);
console.log(`${sums.length} files in ${out}`);
