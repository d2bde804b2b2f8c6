// SPDX-License-Identifier: Apache-2.0
/** A picture of Explore on a training job: node tests/web/e2e/torch-shot.mjs URL OUT.png (test_python_torch.py) */
import { launch, open } from './browser.mjs';

const [url, out] = process.argv.slice(2);
const browser = await launch();
const p = await open(browser, { width: 1600, height: 1000 });
await p.page.goto(`${url}/?q=${encodeURIComponent('cpu{service="train"}')}&from=now-1m&to=now&by=thread`);
await p.ready();
await p.page.waitForTimeout(1500);
await p.page.screenshot({ path: out });
await p.close();
await browser.close();
