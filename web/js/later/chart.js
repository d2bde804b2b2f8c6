// SPDX-License-Identifier: Apache-2.0
/**
 * The time chart. uPlot draws axes, line and cursor; its hooks draw what it does not know: time that
 * was not covered, the loss ribbon, and the range with two handles. Dragging selects a range.
 */
import uPlot from '../../vendor/uplot/uPlot.esm.js';
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { mean, plotted, roundUp, runs, withSeconds } from '../chartmath.js';
import { percent, rate, rateUnit, sig3 } from '../fmt.js';
import { css } from '../paint.js';
import { show } from '../safe.js';
import { clock, dateTime, day, span } from '../time.js';
import { eventWords } from './eventwords.js';
import { blocks, eventAt, lanesOf, nameOf, stepAt } from './marks.js';

const RIBBON_PX = 4;
const NEAR_PX = 7;
const SMALLEST_DRAG_PX = 5;
const EDGE_PX = 16; // half a time's text,
const EDGE_SECONDS_PX = 24; // with seconds
const STEP = 0.01; // of the width, for the arrow keys
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3], [10, 4]]; // lines differ without colour too
const LANE_PX = 11; // a lane of steps
const EVENT_PX = 5; // to each side of an event
const LEAST_RANGE = 0.002; // of the width: what can be dragged

/* seconds between two times on the axis: uPlot's own know no 2 min, so that a narrow chart had one time */
const MIN = 60,
  HOUR = 3600,
  DAY = 86400;
const TICKS = [1, 2, 5, 10, 15, 30]
  .concat([1, 2, 5, 10, 15, 30].map((x) => x * MIN))
  .concat([1, 2, 3, 4, 6, 8, 12].map((x) => x * HOUR))
  .concat([1, 2, 3, 7, 14, 28, 60, 120, 240, 365].map((x) => x * DAY));

/** @param {{onRange: (a: number, b: number) => void, onOther: (a: number, b: number) => void, onClear: () => void, onStep: (name: string, number: string) => void, onTable?: () => void}} on milliseconds; other: a second range, A beside B */
export function createChart(on) {
  const el = document.createElement('figure');
  el.className = 'chart';
  const head = document.createElement('figcaption');
  head.className = 'chart-head';
  const plot = document.createElement('div');
  plot.className = 'chart-plot';
  const host = document.createElement('div');
  host.className = 'chart-canvas';
  host.setAttribute('aria-hidden', 'true');
  const keys = document.createElement('div');
  keys.className = 'chart-keys';
  keys.tabIndex = 0;
  for (const [k, v] of Object.entries({
    role: 'slider',
    'aria-label': 'Range on the time chart: arrow keys move it, Shift and arrows its end, Escape clears it',
    'aria-valuemin': '0',
    'aria-valuemax': '100',
    'aria-valuenow': '0',
    'aria-valuetext': 'no data',
  }))
    keys.setAttribute(k, v);
  /* the second range has handles and keys of its own */
  const keysA = document.createElement('div');
  keysA.className = 'chart-keys-a';
  keysA.tabIndex = 0;
  keysA.hidden = true;
  for (const [k, v] of Object.entries({ role: 'slider', 'aria-label': 'Range A on the time chart: arrow keys move it, Shift and arrows its end', 'aria-valuemin': '0', 'aria-valuemax': '100', 'aria-valuenow': '0' })) keysA.setAttribute(k, v);
  plot.append(host, keys, keysA);
  const legend = document.createElement('div');
  legend.className = 'chart-legend';
  el.append(head, plot, legend);

  /** @typedef {import('../api.js').Series & {title?: string}} Data  title: beside the type's own name */
  /** @type {Data|null} */ let data = null;
  /** @type {import('../paint.js').Colours|null} */ let col = null;
  /** @type {(number|null)[]} */ let y = [];
  /** @type {(number|null)[]} */ let lost = []; // of what was due; null: unknown
  /** @type {any} */ let u = null;
  let w0 = 0,
    w1 = 1,
    a = 0, // the range, fractions of the window
    b = 1,
    utc = true,
    cursor = -1,
    note = '';
  /** @type {{from:number, edge:''|'a'|'b'|'move'|'other'|'oa'|'ob'|'omove', a:number, b:number, o:[number, number]}|null} */ let drag = null;
  /** @type {import('../api.js').Steps|null} */ let steps = null;
  /** @type {import('../api.js').Event[]} */ let events = [];
  let picked = { name: '', first: '', last: '' },
    label = '';
  /** @type {import('./marks.js').Lane[]} */ let lanes = [];
  let others = 0,
    pointed = '', // what of steps and events the pointer is at
    code = ''; // of an event
  /** @type {[number, number]|null} */ let other = null; // fractions of the window
  let later = 0;
  const whole = () => a <= 0.0005 && b >= 0.9995;
  const msOf = (/** @type {number} */ f) => w0 + f * (w1 - w0);
  const unit = () => (data ? rateUnit(data.type) : { scale: 1, text: '' });

  const groups = () => data?.groups ?? [];
  /** Was there something, and nobody knows what was lost of it? @param {number} k */
  const unknown = (k) => lost[k] === null && y[k] !== null;

  /* ---- uPlot ---- */
  function build() {
    u?.destroy();
    u = null;
    if (!col || host.clientWidth < 80) return;
    const c = col,
      font = `10.5px ${getComputedStyle(el).getPropertyValue('--sans')}`;
    const axis = { stroke: css(c.muted), font, ticks: { show: false } };
    u = new /** @type {any} */ (uPlot)(
      {
        width: host.clientWidth,
        height: host.clientHeight,
        padding: [8 + lanes.length * LANE_PX, 8, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: false, y: false, setScale: false }, y: false, points: { size: 7, fill: css(c.series), stroke: css(c.panel), width: 0 } },
        select: { show: false },
        scales: {
          x: { time: true, range: () => [w0 / 1000, w1 / 1000] },
          y: { range: (/** @type {any} */ _, /** @type {any} */ _lo, /** @type {number} */ hi) => [0, roundUp((hi || 0) * 1.04)] },
        },
        tzDate: (/** @type {number} */ s) => (utc ? /** @type {any} */ (uPlot).tzDate(new Date(s * 1000), 'Etc/UTC') : new Date(s * 1000)),
        axes: [
          {
            ...axis,
            size: 23,
            gap: 8,
            space: 70,
            incrs: TICKS,
            grid: { show: false },
            values: (/** @type {any} */ p, /** @type {number[]} */ at) => {
              const seconds = withSeconds(at);
              return at.map((s) =>
                cutOff(p, s, seconds) ? '' : w1 - w0 >= 3 * 86400e3 ? day(s * 1000, utc).slice(5) : clock(s * 1000, utc, seconds),
              );
            },
          },
          {
            ...axis,
            size: 44,
            gap: 6,
            grid: { stroke: css(c.line), width: 1 },
            splits: (/** @type {any} */ _, /** @type {number} */ _i, /** @type {number} */ lo, /** @type {number} */ hi) => [lo, hi / 2, hi],
            values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((v, i) => (i === 1 ? '' : sig3(v).replace(/\.0+$/, ''))),
          },
        ],
        series: [
          {},
          { stroke: css(c.series), width: 1.5, fill: groups().length ? undefined : css(c.series, 0.14), spanGaps: false, points: { show: single } },
          ...groups().map((_, i) => ({ stroke: css(c.lines[i % c.lines.length] ?? c.series), width: 1.5, dash: DASHES[i % DASHES.length], spanGaps: false, points: { show: false } })),
        ],
        hooks: { drawClear: [behind], draw: [before] },
      },
      columns(),
      host,
    );
  }
  /** Would a time's text run out of the chart? @param {any} p @param {number} s @param {boolean} seconds */
  const cutOff = (p, s, seconds) => {
    const x = p.valToPos(s, 'x'),
      edge = seconds ? EDGE_SECONDS_PX : EDGE_PX;
    return x < edge - 30 || x > p.width - 52 - edge;
  };
  /** A bucket alone between two gaps has no line: it gets a point. @param {any} _ @param {number} _s @param {number} i0 @param {number} i1 */
  function single(_, _s, i0, i1) {
    for (let i = i0; i <= i1; i++) if (y[i] !== null && (y[i - 1] ?? null) === null && (y[i + 1] ?? null) === null) return true;
    return false;
  }
  function columns() {
    const d = data;
    if (!d) return [[], []];
    const k = unit().scale;
    const scaled = (/** @type {(number|null)[]} */ c) => c.map((v) => (v === null ? null : v * k));
    return [y.map((_, i) => (d.from + (i + 0.5) * d.bucket) / 1000), scaled(y), ...groups().map((g) => scaled(plotted({ ...d, value: g.value }).y))];
  }
  /** Device pixel of a fraction of the window. */
  const X = (/** @type {number} */ f) => u.bbox.left + f * u.bbox.width;
  const frac = (/** @type {number} */ ms) => Math.max(0, Math.min(1, (ms - w0) / (w1 - w0)));

  function behind() {
    if (!data || !col) return;
    const { ctx, bbox } = u,
      d = data;
    for (const [i, j] of runs(d.n, (k) => y[k] === null))
      hatch(ctx, X(frac(d.from + i * d.bucket)), bbox.top, X(frac(d.from + j * d.bucket)), bbox.height, css(col.border, 0.55));
    /* before the first and after the last bucket there is nothing to say either */
    const end = d.from + d.n * d.bucket;
    if (d.n && end < w1 - d.bucket) hatch(ctx, X(frac(end)), bbox.top, X(1), bbox.height, css(col.border, 0.55));
  }
  /** @param {CanvasRenderingContext2D} ctx @param {number} x @param {number} top @param {number} x2 @param {number} h @param {string} stroke */
  function hatch(ctx, x, top, x2, h, stroke) {
    const step = 6 * devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, top, x2 - x, h);
    ctx.clip();
    ctx.strokeStyle = stroke;
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    /* on one grid whatever the run, so that neighbours join */
    for (let k = Math.floor((x - h) / step) * step; k < x2; k += step) {
      ctx.moveTo(k, top + h);
      ctx.lineTo(k + h, top);
    }
    ctx.stroke();
    ctx.restore();
  }
  function before() {
    if (!col) return;
    const { ctx, bbox } = u,
      dpr = devicePixelRatio;
    const floor = bbox.top + bbox.height;
    if (data) {
      const d = data;
      ctx.fillStyle = css(col.warn);
      const ribbon = (/** @type {(k: number) => boolean} */ is, /** @type {number} */ tall) => {
        for (const [i, j] of runs(d.n, is)) {
          const x = X(frac(d.from + i * d.bucket));
          ctx.fillRect(x, floor + dpr, Math.max(2 * dpr, X(frac(d.from + j * d.bucket)) - x), tall * dpr);
        }
      };
      ribbon((k) => (lost[k] ?? 0) > 0, RIBBON_PX);
      ribbon(unknown, 1); // a thin line: nobody knows how much
    }
    marks(ctx);
    if (other) bands(ctx, other, [a, b]);
    if (whole() || other) return;
    ctx.save();
    ctx.fillStyle = css(col.panel, 0.72);
    const top = bbox.top - 2 * dpr,
      tall = bbox.height + (RIBBON_PX + 4) * dpr;
    ctx.fillRect(bbox.left, top, X(a) - bbox.left, tall);
    ctx.fillRect(X(b), top, bbox.left + bbox.width - X(b), tall);
    ctx.strokeStyle = ctx.fillStyle = css(col.accent);
    ctx.lineWidth = 1.5 * dpr;
    for (const f of [a, b]) {
      ctx.beginPath();
      ctx.moveTo(X(f), top);
      ctx.lineTo(X(f), top + tall);
      ctx.stroke();
      ctx.beginPath();
      ctx.roundRect(X(f) - 3 * dpr, bbox.top + bbox.height / 2 - 9 * dpr, 6 * dpr, 18 * dpr, 3 * dpr);
      ctx.fill();
    }
    ctx.restore();
  }
  /** Steps above the line, a lane each; events as marks through it. @param {CanvasRenderingContext2D} ctx */
  function marks(ctx) {
    const { bbox } = u,
      dpr = devicePixelRatio,
      c = /** @type {import('../paint.js').Colours} */ (col);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, 0, bbox.width, bbox.top);
    ctx.clip();
    const s = steps;
    if (s)
      lanes.forEach((lane, k) => {
        const y0 = (3 + k * LANE_PX) * dpr,
          tall = (LANE_PX - 3) * dpr;
        blocks(s, lane, (ms) => X((ms - w0) / (w1 - w0))).forEach((k2) => {
          const n = s.number[k2.i] ?? '';
          const on = picked.first !== '' && k2.n === 1 && BigInt(n) >= BigInt(picked.first) && BigInt(n) <= BigInt(picked.last);
          /* neighbours differ, so that a boundary is seen; many in a pixel are one shade */
          ctx.fillStyle = css(on ? c.accent : c.muted, on ? 1 : k2.n > 1 ? 0.3 : Number(n.slice(-1)) % 2 ? 0.2 : 0.36);
          ctx.fillRect(k2.a, y0, Math.max(dpr, k2.b - k2.a), tall);
          if (on) {
            /* a mark of its own: not by colour alone */
            ctx.fillRect(k2.a, y0 + tall, Math.max(dpr, k2.b - k2.a), 2 * dpr);
          }
          if (k2.n === 1 && k2.b - k2.a > (n.length * 5.5 + 5) * dpr && n.length <= 8) {
            ctx.fillStyle = css(on ? c.bg : c.text);
            ctx.font = `${8.5 * dpr}px ${getComputedStyle(el).getPropertyValue('--sans')}`;
            ctx.textBaseline = 'middle';
            ctx.textAlign = 'left';
            ctx.fillText(n, Math.max(k2.a, bbox.left) + 3 * dpr, y0 + tall / 2 + dpr * 0.5);
          }
        });
      });
    ctx.restore();
    ctx.save();
    if (label) {
      ctx.font = `${9.5 * dpr}px ${getComputedStyle(el).getPropertyValue('--sans')}`;
      ctx.textAlign = 'right';
      ctx.textBaseline = 'middle';
      ctx.fillStyle = css(c.muted);
      lanes.forEach((lane, k) => ctx.fillText(show(lane.name).slice(0, 7), bbox.left - 6 * dpr, (3 + k * LANE_PX + (LANE_PX - 3) / 2) * dpr));
    }
    ctx.fillStyle = css(c.text);
    for (const e of events) {
      if (e.at < w0 || e.at > w1) continue;
      const x = X(frac(e.at));
      ctx.globalAlpha = 0.5;
      ctx.fillRect(x - dpr / 2, bbox.top, dpr, bbox.height);
      ctx.globalAlpha = 1;
      ctx.beginPath();
      ctx.moveTo(x - 4 * dpr, bbox.top - dpr);
      ctx.lineTo(x + 4 * dpr, bbox.top - dpr);
      ctx.lineTo(x, bbox.top + 5 * dpr);
      ctx.fill();
    }
    ctx.restore();
  }
  /** What of steps and events lies under the pointer: words, and the step's index. @param {PointerEvent} e */
  function markAt(e) {
    const r = host.getBoundingClientRect(),
      ms = msOf(at(e)),
      lane = Math.floor((e.clientY - r.top - 3) / LANE_PX);
    const i = steps && lane >= 0 && lane < lanes.length ? stepAt(steps, lanes[lane], ms) : -1;
    if (steps && i >= 0) return { i, text: `step ${show(steps.names[steps.name[i] ?? 0]?.name ?? '')} ${steps.number[i]}${label ? ` · ${show(label)} ${show(lanes[lane]?.name ?? '')}` : ''} · ${took(steps.dur[i] ?? 0)}` };
    const ev = eventAt(events, ms, (EVENT_PX / Math.max(1, r.width)) * (w1 - w0));
    const said = ev && eventWords(ev);
    return { i: -1, text: ev && said ? `${clock(ev.at, utc, true)} · ${said.sentence}` : '', code: said?.code };
  }
  /** Two ranges that are compared, each with its letter. @param {CanvasRenderingContext2D} ctx @param {[number, number][]} both */
  function bands(ctx, ...both) {
    const { bbox } = u,
      dpr = devicePixelRatio;
    if (!col) return;
    ctx.save();
    ctx.font = `600 ${11 * dpr}px ${getComputedStyle(el).getPropertyValue('--sans')}`;
    ctx.textBaseline = 'top';
    ctx.textAlign = 'left';
    for (const [i, [from, to]] of both.entries()) {
      const c = i ? col.accent : col.muted;
      ctx.fillStyle = css(c, 0.16);
      ctx.fillRect(X(from), bbox.top, X(to) - X(from), bbox.height);
      ctx.fillStyle = css(c);
      for (const f of [from, to]) {
        ctx.fillRect(X(f) - dpr * 0.75, bbox.top, 1.5 * dpr, bbox.height);
        ctx.beginPath();
        ctx.roundRect(X(f) - 3 * dpr, bbox.top + bbox.height / 2 - 9 * dpr, 6 * dpr, 18 * dpr, 3 * dpr);
        ctx.fill();
      }
      /* where both begin alike the letters stand beside each other */
      const aside = i && Math.abs(X(from) - X(both[0]?.[0] ?? 0)) < 16 * dpr ? 14 * dpr : 0;
      ctx.fillText(i ? 'B' : 'A', X(from) + 5 * dpr + aside, bbox.top + 2 * dpr);
    }
    ctx.restore();
  }
  const took = (/** @type {number} */ ms) => (ms < 1000 ? `${sig3(ms)}\u202fms` : `${sig3(ms / 1000)}\u202fs`);
  const redraw = () => {
    u?.redraw(false, false);
    say();
  };

  /* ---- words ---- */
  function say() {
    const d = data;
    const at = cursor >= 0 && d ? cursor : -1;
    let readout = note || 'no data';
    if (pointed) readout = pointed;
    else if (d && at >= 0) {
      const v = y[at] ?? null;
      readout = `${clock(d.from + at * d.bucket, utc, true)} · ${v === null ? 'not covered' : rate(v, d.type)}${
        (lost[at] ?? 0) > 0 ? ` · lost ${percent(lost[at] ?? 0, 1)}` : unknown(at) ? ' · loss unknown' : ''
      }`;
    } else if (d) {
      const m = mean(d, msOf(a), msOf(b));
      readout = m === null ? note || 'not covered' : `mean ${rate(m, d.type)}`;
    }
    const gaps = d !== null && y.includes(null),
      losses = lost.some((x) => (x ?? 0) > 0),
      silent = lost.some((_, k) => unknown(k));
    render(
      html`<span class="chart-title"><bdi>${show(d?.title ?? d?.type.name ?? ' ')}</bdi></span><span class="chart-unit">${unit().text}</span>${
        d ? html`<span class="chart-unit">per ${span(d.bucket)}</span>` : nothing
      }${gaps ? html`<span class="chart-key">not covered</span>` : nothing}${
        losses ? html`<span class="chart-key lost">lost</span>` : nothing
      }${silent ? html`<span class="chart-key lost unknown">loss unknown</span>` : nothing}${lanes.length && steps ? html`<span class="chart-key steps">steps <bdi>${show(nameOf(steps, picked.name))}</bdi>${label ? html` by <bdi>${show(label)}</bdi>${others ? `, ${others} more` : ''}` : nothing}</span>` : nothing}${events.length ? html`<span class="chart-key event">${events.length === 1 ? 'event' : 'events'}</span>` : nothing}<span class="chart-readout" title=${code || nothing}>${readout}</span>${on.onTable ? html`<button class="button small ghost chart-table" type="button" title="The chart as a table" @click=${on.onTable}>as table</button>` : nothing}`,
      head,
    );
    render(
      groups().length
        ? html`<span class="line-key"><i class="line l-all" aria-hidden="true"></i>all</span>${groups().map((g, i) => html`<span class="line-key"><i class="line l-${i % 6}" aria-hidden="true"></i><bdi>${show(g.name)}</bdi></span>`)}`
        : nothing,
      legend,
    );
    keysA.hidden = !other;
    if (other) {
      keysA.setAttribute('aria-valuenow', String(Math.round(other[0] * 100)));
      keysA.setAttribute('aria-valuetext', `${dateTime(msOf(other[0]), utc)} to ${dateTime(msOf(other[1]), utc)}`);
    }
    keys.setAttribute('aria-valuenow', String(Math.round(a * 100)));
    keys.setAttribute(
      'aria-valuetext',
      d
        ? `${whole() ? 'whole window' : `${dateTime(msOf(a), utc)} to ${dateTime(msOf(b), utc)}`}, ${at >= 0 ? 'at ' : ''}${readout}`
        : readout,
    );
  }

  /* ---- pointer and keys ---- */
  const at = (/** @type {PointerEvent} */ e) => {
    const r = host.getBoundingClientRect(),
      dpr = devicePixelRatio;
    return Math.max(0, Math.min(1, (e.clientX - r.left - u.bbox.left / dpr) / (u.bbox.width / dpr)));
  };
  const px = (/** @type {number} */ f) => (f * (u?.bbox.width ?? 1)) / devicePixelRatio;
  const nearOther = (/** @type {number} */ f) =>
    !other ? '' : Math.abs(px(f - other[0])) < NEAR_PX ? 'oa' : Math.abs(px(f - other[1])) < NEAR_PX ? 'ob' : f > other[0] && f < other[1] ? 'omove' : '';
  const near = (/** @type {number} */ f) =>
    whole() ? '' : Math.abs(px(f - a)) < NEAR_PX ? 'a' : Math.abs(px(f - b)) < NEAR_PX ? 'b' : f > a && f < b ? 'move' : '';
  const least = () => Math.max(LEAST_RANGE, 1000 / (w1 - w0));
  const commit = () => (whole() ? on.onClear() : on.onRange(msOf(a), msOf(b)));

  keys.addEventListener('pointerdown', (e) => {
    if (!u || !data || e.button !== 0) return;
    const f = at(e);
    keys.setPointerCapture(e.pointerId);
    /* a handle wins over the inside of the other band */
    const mine = near(f),
      its = nearOther(f);
    const edge = mine === '' || (mine === 'move' && its !== '' && its !== 'omove') ? its || mine : mine;
    drag = { from: f, edge: e.shiftKey ? 'other' : /** @type {any} */ (edge), a, b, o: other ?? [0, 0] };
  });
  keys.addEventListener('pointermove', (e) => {
    if (!u || !data) return;
    const f = at(e);
    if (drag) {
      if (drag.edge === 'other') other = [Math.min(f, drag.from), Math.max(f, drag.from, Math.min(f, drag.from) + least())];
      else if (drag.edge === 'oa' && other) other = [Math.max(0, Math.min(f, other[1] - least())), other[1]];
      else if (drag.edge === 'ob' && other) other = [other[0], Math.min(1, Math.max(f, other[0] + least()))];
      else if (drag.edge === 'omove') {
        const d = Math.max(-drag.o[0], Math.min(1 - drag.o[1], f - drag.from));
        other = [drag.o[0] + d, drag.o[1] + d];
      } else if (drag.edge === 'a') a = Math.min(f, b - least());
      else if (drag.edge === 'b') b = Math.max(f, a + least());
      else if (drag.edge === 'move') {
        const d = Math.max(-drag.a, Math.min(1 - drag.b, f - drag.from));
        a = drag.a + d;
        b = drag.b + d;
      } else if (Math.abs(px(f - drag.from)) > SMALLEST_DRAG_PX) {
        a = Math.min(f, drag.from);
        b = Math.max(f, drag.from, a + least());
      }
      cursor = -1;
      redraw();
      return;
    }
    const i = Math.floor((msOf(f) - data.from) / data.bucket);
    cursor = i >= 0 && i < data.n ? i : -1;
    const mark = markAt(e);
    pointed = mark.text;
    code = mark.code ?? '';
    keys.dataset['edge'] = mark.i >= 0 ? 'step' : near(f) || { oa: 'a', ob: 'b', omove: 'move', '': '' }[nearOther(f)];
    const r = u.over.getBoundingClientRect();
    u.setCursor({ left: e.clientX - r.left, top: e.clientY - r.top });
    say();
  });
  const drop = (/** @type {PointerEvent} */ e) => {
    if (!drag) return;
    const still = drag.a === a && drag.b === b;
    const click = still && Math.abs(px(at(e) - drag.from)) <= SMALLEST_DRAG_PX;
    const mark = click ? markAt(e) : null;
    const outside = drag.edge === '',
      second = ['other', 'oa', 'ob', 'omove'].includes(drag.edge);
    const moved = other && (drag.o[0] !== other[0] || drag.o[1] !== other[1]);
    drag = null;
    if (mark && mark.i >= 0 && steps) {
      const name = steps.names[steps.name[mark.i] ?? 0]?.name ?? '',
        n = steps.number[mark.i] ?? '';
      return on.onStep(name, `${n}-${n}`);
    }
    if (second && other && moved) on.onOther(msOf(other[0]), msOf(other[1]));
    if (second) return redraw();
    if (click && outside && !whole()) {
      on.onClear();
    } else if (!still) commit();
    redraw();
  };
  keys.addEventListener('pointerup', drop);
  keys.addEventListener('pointercancel', () => {
    if (drag) ({ a, b } = drag);
    if (drag && other) other = drag.o;
    drag = null;
    redraw();
  });
  keys.addEventListener('pointerleave', () => {
    if (drag) return;
    cursor = -1;
    pointed = code = '';
    u?.setCursor({ left: -10, top: -10 });
    say();
  });
  keys.addEventListener('keydown', (e) => {
    if (!data || e.ctrlKey || e.metaKey || e.altKey) return;
    const d = { ArrowLeft: -STEP, ArrowRight: STEP }[e.key];
    if (e.key === 'Escape' && !whole()) {
      e.stopPropagation();
      e.preventDefault();
      on.onClear();
      return;
    }
    if (!d) return;
    e.preventDefault();
    if (whole()) {
      a = 0.45;
      b = 0.55;
    } else if (e.shiftKey) b = Math.max(a + STEP, Math.min(1, b + d));
    else {
      const m = Math.max(-a, Math.min(1 - b, d));
      a += m;
      b += m;
    }
    redraw();
    /* a key that repeats asks the server once, at its end */
    clearTimeout(later);
    later = setTimeout(commit, 350);
  });

  keysA.addEventListener('keydown', (e) => {
    const d = { ArrowLeft: -STEP, ArrowRight: STEP }[e.key];
    if (!d || !other || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    if (e.shiftKey) other = [other[0], Math.max(other[0] + STEP, Math.min(1, other[1] + d))];
    else {
      const m = Math.max(-other[0], Math.min(1 - other[1], d));
      other = [other[0] + m, other[1] + m];
    }
    redraw();
    const [from, to] = other;
    clearTimeout(later);
    later = setTimeout(() => on.onOther(msOf(from), msOf(to)), 350);
  });

  new ResizeObserver(() => {
    if (!u) build();
    else if (host.clientWidth >= 80 && (host.clientWidth !== u.width || host.clientHeight !== u.height))
      u.setSize({ width: host.clientWidth, height: host.clientHeight });
  }).observe(host);
  say();

  return {
    el,
    /** @param {Data|null} d @param {[number, number]} window ms @param {string} [why] no data: why */
    setData(d, window, why = '') {
      const had = groups().length;
      data = d;
      note = why;
      [w0, w1] = window;
      cursor = -1;
      ({ y, lost } = d ? plotted(d) : { y: [], lost: [] });
      if (!u || had !== groups().length) build();
      u?.setData(columns());
      say();
    },
    /** Steps and events on the axis: the lanes of the picked name, by a label. @param {import('../api.js').Steps|null} s @param {import('../api.js').Event[]} ev @param {{name:string, first:string, last:string}} pick @param {string} by */
    setMarks(s, ev, pick, by) {
      const had = lanes.length;
      steps = s && s.n ? s : null;
      events = ev;
      picked = pick;
      label = by;
      ({ lanes, others } = steps ? lanesOf(steps, nameOf(steps, pick.name), by) : { lanes: [], others: 0 });
      plot.style.setProperty('--lanes', `${lanes.length * LANE_PX}px`);
      if (had !== lanes.length) build();
      redraw();
    },
    /** @param {import('../paint.js').Colours} c */
    setColours(c) {
      col = c;
      build();
      say();
    },
    /** @param {boolean} x */
    setUtc(x) {
      utc = x;
      build();
      say();
    },
    /** The selected range, ms; the window itself means none. @param {number} from @param {number} to */
    setRange(from, to) {
      if (drag) return;
      a = frac(from);
      b = frac(to);
      if (b <= a) [a, b] = [0, 1];
      redraw();
    },
    /** The range A that B is compared with, ms; null: none. @param {[number, number]|null} r */
    setOther(r) {
      if (drag) return;
      other = r ? [frac(r[0]), frac(r[1])] : null;
      redraw();
    },
    get window() {
      return /** @type {[number, number]} */ ([w0, w1]);
    },
    get dragging() {
      return drag !== null;
    },
  };
}
