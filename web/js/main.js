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
start();
