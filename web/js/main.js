// SPDX-License-Identifier: Apache-2.0
/** Start: theme, then the screen. */
import * as prefs from './prefs.js';
import { start } from './screens/explore.js';

function theme() {
  const { theme: t } = prefs.get();
  if (t === 'auto') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = t;
}
prefs.subscribe(theme);
theme();
if (/\/quality$/.test(location.pathname)) {
  const main = /** @type {HTMLElement} */ (document.querySelector('main'));
  document.body.dataset['screen'] = 'quality';
  main.replaceChildren(); // what stands in the page is Explore's
  import('./screens/quality.js').then(
    (m) => m.start(main),
    (e) => (main.textContent = `This screen could not be loaded: ${e.message}`),
  );
} else start();
