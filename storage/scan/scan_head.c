// SPDX-License-Identifier: Apache-2.0
/* Rows of heads, one by one. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "storage/scan/scan_private.h"

/* ---- one row ------------------------------------------------------------------------------- */

void scan_load(const struct head_rows *r, uint32_t i, struct scan_row *ret)
{
    *ret = (struct scan_row){.series = head_u32(r, HEAD_SERIES, i),
                             .thread = head_u32(r, HEAD_THREAD, i),
                             .cpu = head_u32(r, HEAD_CPU, i),
                             .node = head_u32(r, HEAD_NODE, i),
                             .count = head_number(r, HEAD_COUNT, i),
                             .value = head_value(r, i),
                             .var = head_var(r, i)};
}

bool scan_in_window(const struct scan_worker *w, const struct scan_side *side, uint32_t thread,
                    int64_t ms)
{
    const struct opened *o = &w->sc->o[w->source];
    uint32_t target = o->target[TABLE(&o->local->thread, struct local_thread, thread)->target];
    uint32_t lo = 0, hi = side->n_window;

    while (lo < hi) { /* the first that begins behind (target, ms) */
        uint32_t mid = lo + (hi - lo) / 2;
        const struct scan_window *x = &side->window[mid];

        if (x->target < target || (x->target == target && x->lo <= ms))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && side->window[lo - 1].target == target && ms < side->window[lo - 1].hi;
}

bool scan_takes(const struct scan_worker *w, const struct scan_side *side,
                const struct scan_row *row, int64_t ms)
{
    const struct attr_bits bit = selection_bits(&side->sel, w->source);

    if (!bit_get(side->sel.series, row->series) || !bit_get(bit.thread, row->thread) ||
        !bit_get(bit.cpu, row->cpu) || !bit_get(w->nodes, row->node))
        return false;
    return !side->n_window || scan_in_window(w, side, row->thread, ms);
}

int scan_add(struct scan_worker *w, uint32_t side, uint32_t bucket, int64_t den,
             const struct scan_row *row, unit_i128 value)
{
    uint32_t group;

    TRY(scan_group_of(w, row, &group));
    return scan_cell_add(w, side, group, bucket, den, row, value);
}

static int add_level(struct scan_worker *w, uint32_t s, const struct scan_row *row, uint32_t cover)
{
    const struct local_cover *c;

    if (cover == 0)
        return 0; /* of a sum type: cannot be here */
    c = VEC(&w->sc->o[w->source].local->cover, struct local_cover, cover - 1);
    return scan_level_add(w, s, row, cover - 1, ms_floor(c->t.t0), ms_floor(c->t.t1));
}

/* ---- chunks -------------------------------------------------------------------------------- */

static int scan_chunk(struct scan_worker *w, const struct head_chunk *c, uint32_t n, uint32_t s)
{
    const struct scan *sc = w->sc;
    const struct scan_side *side = &sc->side[s];
    bool level = sc->q->level != STORE_SUM;
    struct head_rows rows;

    if (!level && (atomic_load_explicit(&c->max_ms, memory_order_relaxed) < side->lo ||
                   atomic_load_explicit(&c->min_ms, memory_order_relaxed) >= side->hi))
        return 0;
    head_rows_of(c, &rows);
    for (uint32_t i = 0; i < n; i++) {
        struct scan_row row;
        int64_t ms;

        /* most rows are of series that nobody asks for: nothing else of them is read */
        if (!bit_get(side->sel.series, head_u32(&rows, HEAD_SERIES, i)))
            continue;
        ms = head_ms(&rows, i);
        if (!level && (ms < side->lo || ms >= side->hi))
            continue;
        scan_load(&rows, i, &row);
        if (!scan_takes(w, side, &row, ms))
            continue;
        if (level) {
            TRY(add_level(w, s, &row, head_u32(&rows, HEAD_COVER, i)));
            continue;
        }
        TRY(scan_add(w, s, scan_bucket(sc, side, ms), 1, &row, row.value));
    }
    return 0;
}

int scan_head(struct scan_worker *w, const struct scan_item *it)
{
    const struct head_group *g = it->g;
    uint64_t rows = it->rows;

    for (uint32_t ci = 0; rows > 0; ci++) {
        const struct head_chunk *c = *VEC(&g->chunk, struct head_chunk *, ci);
        uint32_t n = head_chunk_rows(c, rows);

        TRY(scan_check(w));
        for (uint32_t s = 0; s < w->sc->q->n_side; s++)
            TRY(scan_chunk(w, c, n, s));
        if (c->first + n >= rows)
            break;
    }
    return 0;
}
