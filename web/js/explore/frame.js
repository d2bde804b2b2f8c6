// SPDX-License-Identifier: Apache-2.0
/** What can be done with the selected frame: its menu, its filters, what is copied of it. */
import { label } from '../details.js';
import { filterOf } from '../filters.js';
import { createFrameMenu } from '../framemenu.js';
import { copy } from '../notify.js';
import { show } from '../safe.js';
import * as store from '../store.js';
import { folded, isLevel } from '../tree.js';

/**
 * @param {ReturnType<typeof import('../graph.js').createGraph>} graph
 * @param {ReturnType<typeof import('./picture.js').createPicture>} picture
 * @param {object} on
 * @param {() => void} on.left  the menu is gone, the focus goes back
 * @param {(f: string) => void} on.filter
 * @param {() => void} on.sandwich
 * @param {() => void} on.link
 * @param {(label: string, value: string) => void} on.only  the selection gets another condition
 */
export function createFrameActs(graph, picture, on) {
  const menu = createFrameMenu(on.left);
  /** Name of the selected frame's function, '' at the root and on a level. */
  function name() {
    const t = picture.tree();
    const f = t ? t.func[graph.selected] : 0;
    return t && f > 0 && !isLevel(t, f) ? (t.funcs.name[f] ?? '') : '';
  }
  /** @param {import('../filters.js').Verb} verb */
  const filter = (verb) => () => {
    const n = name();
    if (n) on.filter(filterOf(verb, n));
  };
  function copyName() {
    const t = picture.tree();
    if (t) copy(t.funcs.name[t.func[graph.selected]] ?? '', 'Name copied');
  }
  function copyStack() {
    const t = picture.tree();
    if (t) copy(folded(t, graph.selected, picture.flame?.view.path.map((p) => p.name) ?? []), 'Stack copied');
  }
  /** The lines of the function, where its frames carry them: in the table. */
  function lines() {
    const n = name();
    if (n) store.set({ view: 'table', key: 'line', s: n }, true);
  }
  /** What a level of `by` stands for, null: the selected frame is none, or one without a value. */
  function level() {
    const t = picture.tree(),
      f = t ? t.func[graph.selected] : 0;
    const m = t && f > 0 && isLevel(t, f) ? (t.funcs.name[f] ?? '').match(/^([\w.]+)=(.+)$/s) : null;
    return m && m[2] !== '(none)' ? { label: m[1] ?? '', value: m[2] ?? '' } : null;
  }
  /** @param {number} x @param {number} y client pixels */
  function open(x, y) {
    const t = picture.tree(),
      n = graph.selected;
    if (!t) return;
    const off = !name(),
      only = level();
    menu.open(label(picture.context(t), n), [
      ...(only ? [{ text: `Only ${show(only.label)} = ${show(only.value)}`, key: '', run: () => on.only(only.label, only.value) }] : []),
      { text: 'Zoom', key: 'Enter', off: n === graph.root, run: () => picture.zoom(n) },
      { text: 'Zoom out', key: '⌫', off: picture.outer() === null, run: picture.zoomOut },
      { text: 'Only stacks with it', key: 'k', off, line: true, run: filter('keep') },
      { text: 'Without stacks with it', key: 'd', off, run: filter('drop') },
      { text: 'Stacks from it on', key: 'f', off, run: filter('start') },
      { text: 'Fold its frames away', key: 'm', off, run: filter('merge') },
      { text: 'Collapse recursion', key: 'R', run: () => on.filter('collapse:recursion') },
      { text: 'Callers and callees', key: 's', off, run: on.sandwich, line: true },
      { text: 'Its lines', key: 'o', off, run: lines },
      { text: 'Copy name', key: 'c', off, run: copyName, line: true },
      { text: 'Copy stack, folded', key: 'C', off, run: copyStack },
      { text: 'Copy link', key: 'y', run: on.link },
    ], x, y);
  }
  return {
    name,
    filter,
    copyName,
    copyStack,
    lines,
    open,
    atSelected() {
      const [x, y] = graph.placeOf(graph.selected);
      open(x, y);
    },
  };
}
