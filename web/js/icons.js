// SPDX-License-Identifier: Apache-2.0
/** Icons: 16 x 16, drawn with the text's colour. */
import { html, svg } from '../vendor/lit-html/lit-html.js';

const PATHS = {
  search: 'M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.4 10.4 14 14',
  close: 'M4 4l8 8M12 4l-8 8',
  down: 'M4 6l4 4 4-4',
  left: 'M10 3 5 8l5 5',
  right: 'M6 3l5 5-5 5',
  up: 'M4 10l4-4 4 4',
  refresh: 'M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3',
  plus: 'M8 3v10M3 8h10',
  edit: 'M3 13l.6-2.8L10.800 3l2.200 2.200-7.200 7.200ZM9.300 4.500l2.200 2.200',
  warn: 'M8 2 14.5 13.500h-13ZM8 6.500v3.200M8 11.700v.3',
  ok: 'M3 8.500 6.500 12 13 4.500',
  clock: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2ZM8 4.800V8l2.300 1.600',
  save: 'M8 2.500v7M5 7l3 3 3-3M3 13h10',
  sun: 'M8 5.200a2.800 2.800 0 1 0 0 5.600 2.800 2.800 0 0 0 0-5.600ZM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
  moon: 'M13 9.500A5.500 5.500 0 0 1 6.500 3 5.500 5.500 0 1 0 13 9.500Z',
  auto: 'M8 2a6 6 0 1 0 0 12ZM8 2a6 6 0 0 1 0 12',
  live: 'M5 3l8 5-8 5Z',
};
/** @typedef {keyof typeof PATHS} IconName */

/** @param {IconName} name */
export const icon = (name) =>
  html`<svg class="icon icon-${name}" viewBox="0 0 16 16" aria-hidden="true">${svg`<path d=${PATHS[name]}></path>`}</svg>`;
