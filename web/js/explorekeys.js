// SPDX-License-Identifier: Apache-2.0
/** The keys of Explore: what help lists is what they do. */

/**
 * @param {object} act
 * @param {(patch: Partial<import('./url.js').State>) => void} act.set
 * @param {(way: 'up'|'down'|'left'|'right') => void} act.go
 * @param {() => void} act.zoom
 * @param {() => void} act.zoomOut
 * @param {(verb: import('./filters.js').Verb) => void} act.filter
 * @param {() => void} act.collapse
 * @param {() => void} act.menu
 * @param {() => void} act.sandwich
 * @param {() => void} act.copyName
 * @param {() => void} act.copyStack
 * @param {() => void} act.lines
 * @param {() => void} act.invert
 * @param {() => void} act.quality
 * @param {() => void} act.toQuality
 * @param {() => void} act.steps
 * @param {(step: number) => void} act.match
 * @param {() => void} act.search
 * @param {() => void} act.swap
 * @param {() => void} act.range
 * @param {(by: number, scale: number) => void} act.shift
 * @param {() => void} act.refresh
 * @param {() => void} act.live
 * @param {() => void} act.link
 * @param {() => void} act.back
 * @param {() => void} act.help
 * @returns {import('./keys.js').Binding[]}
 */
export function exploreKeys(act) {
  return [
    { keys: ['ArrowUp'], text: 'caller', run: () => act.go('up'), where: 'graph' },
    { keys: ['ArrowDown'], text: 'widest callee', run: () => act.go('down'), where: 'graph' },
    { keys: ['ArrowLeft', 'ArrowRight'], text: 'sibling', run: (e) => act.go(e.key === 'ArrowLeft' ? 'left' : 'right'), where: 'graph' },
    { keys: ['Enter'], text: 'zoom to the frame', run: act.zoom, where: 'graph' },
    { keys: ['Backspace'], text: 'zoom out', run: act.zoomOut, where: 'graph' },
    { keys: ['Home'], text: 'whole view', run: () => act.set({ z: '', sel: '' }), where: 'graph' },
    { keys: ['k'], text: 'only stacks with it', run: () => act.filter('keep'), where: 'graph' },
    { keys: ['d'], text: 'without stacks with it', run: () => act.filter('drop'), where: 'graph' },
    { keys: ['f'], text: 'stacks from it on', run: () => act.filter('start'), where: 'graph' },
    { keys: ['m'], text: 'fold its frames away', run: () => act.filter('merge'), where: 'graph' },
    { keys: ['R'], text: 'collapse recursion', run: act.collapse, where: 'graph' },
    { keys: ['.', 'ContextMenu'], text: 'menu of the frame', run: act.menu, where: 'graph' },
    { keys: ['s'], text: 'callers and callees', run: act.sandwich, where: 'graph' },
    { keys: ['c'], text: 'copy the name', run: act.copyName, where: 'graph' },
    { keys: ['C'], text: 'copy the stack, folded', run: act.copyStack, where: 'graph' },
    { keys: ['o'], text: 'its lines', run: act.lines, where: 'graph' },
    { keys: ['i'], text: 'leaves on top, callers below', run: act.invert, where: 'graph' },
    { keys: ['n', 'N'], text: 'next, previous match', run: (e) => act.match(e.key === 'n' ? 1 : -1) },
    { keys: ['/'], text: 'search', run: act.search },
    { keys: ['1'], text: 'flame graph', run: () => act.set({ view: 'flame' }) },
    { keys: ['b'], text: 'graph and table', run: () => act.set({ view: 'both' }) },
    { keys: ['2'], text: 'table', run: () => act.set({ view: 'table' }) },
    { keys: ['3'], text: 'sandwich', run: act.sandwich },
    { keys: ['5'], text: 'compare', run: () => act.set({ view: 'compare' }) },
    { keys: ['w'], text: 'compare: swap A and B', run: act.swap },
    { keys: ['q'], text: 'coverage and loss', run: act.quality },
    { keys: ['e'], text: 'steps and events; in compare: step time', run: act.steps },
    { keys: ['g e'], text: 'go to the flame graph', run: () => act.set({ view: 'flame', more: '' }) },
    { keys: ['g c'], text: 'go to compare', run: () => act.set({ view: 'compare', more: '' }) },
    { keys: ['g q'], text: 'go to the screen of quality', run: act.toQuality },
    { keys: ['t'], text: 'time range', run: act.range },
    { keys: ['[', ']'], text: 'half a range back, forward', run: (e) => act.shift(e.key === '[' ? -0.5 : 0.5, 1) },
    { keys: ['-', '='], text: 'wider, narrower range', run: (e) => act.shift(0, e.key === '-' ? 2 : 0.5) },
    { keys: ['r'], text: 'refresh', run: act.refresh },
    { keys: ['L'], text: 'live', run: act.live },
    { keys: ['y'], text: 'copy link', run: act.link },
    {
      keys: ['Escape'],
      text: 'back one level: lens, search, zoom',
      run: act.back,
    },
    { keys: ['?'], text: 'this help', run: act.help },
  ];
}
