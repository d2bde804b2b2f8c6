// SPDX-License-Identifier: Apache-2.0
/* Rows of all sources, one by one: what listings are made of. */
#include <errno.h>
#include <stdlib.h>

#include "storage/keep/view_private.h"

struct walk {
    struct store_view *v;
    const struct selection *sel;
    uint32_t source;
    ptype_id type;
    int64_t lo, hi; /* ms */
    const struct row_walk *to;
    struct err *err;
};

static bool takes(const struct walk *w, const struct row_at *row)
{
    const struct attr_bits bit = selection_bits(w->sel, w->source);

    return row->ms >= w->lo && row->ms < w->hi && bit_get(w->sel->series, row->series) &&
           bit_get(bit.thread, row->thread) && bit_get(bit.cpu, row->cpu);
}

static bool walk_group(const struct walk *w, const struct head_group *g, uint64_t rows)
{
    for (uint32_t ci = 0; rows > 0; ci++) {
        const struct head_chunk *c = *VEC(&g->chunk, struct head_chunk *, ci);
        uint32_t n = head_chunk_rows(c, rows);
        struct head_rows r;

        head_rows_of(c, &r);
        for (uint32_t i = 0; i < n; i++) {
            const struct row_at row = {.source = w->source,
                                       .type = g->type,
                                       .series = head_u32(&r, HEAD_SERIES, i),
                                       .thread = head_u32(&r, HEAD_THREAD, i),
                                       .cpu = head_u32(&r, HEAD_CPU, i),
                                       .ms = head_ms(&r, i)};

            if (takes(w, &row) && !w->to->fn(w->to->ctx, &row))
                return false;
        }
        if (c->first + n >= rows)
            break;
    }
    return true;
}

static int walk_head(const struct walk *w, const struct source *src)
{
    for (uint32_t k = 0; k < src->snap.group; k++) {
        const struct head_group *g = head_group_at(src->head, k);

        if ((w->type == PTYPE_NONE || g->type == w->type) &&
            !walk_group(w, g, head_group_rows(src->head, g, src->snap.lsn)))
            return cancelled(w->err);
    }
    return 0;
}

/* ---- parts --------------------------------------------------------------------------------- */

/* What reading blocks needs. */
struct reader {
    struct block_coder *coder;
    struct block *block; /* large */
    struct part_handle *handle;
};

/* Would every row of the slice tell what is known already? Its keys say so, where no time of it is
 * outside. */
static bool is_known(const struct walk *w, const struct part_block *b, const struct slice_rows *r,
                     int64_t first, int64_t last)
{
    if (first < w->lo || last >= w->hi || selection_bits(w->sel, w->source).cpu)
        return false;
    for (uint32_t i = 0; i < r->n_key; i++) {
        struct row_at row = {.source = w->source,
                             .type = b->m.type,
                             .series = r->key_series[i],
                             .thread = r->key_thread[i],
                             .ms = first};

        if (takes(w, &row) && !w->to->known(w->to->ctx, &row, last))
            return false;
    }
    return true;
}

static int walk_slice(const struct walk *w, const struct reader *rd, const struct part_block *pb,
                      uint32_t k)
{
    const struct block *b = rd->block;
    const struct block_slice *s = &b->slice[k];
    int64_t first = slice_first_ms(b, s), last = slice_last_ms(b, s);
    struct slice_rows r;

    if (last < w->lo || first >= w->hi)
        return 0;
    TRY(slice_read(rd->coder, b, NULL, k, SLICE_KEY, &r, w->err));
    if (is_known(w, pb, &r, first, last))
        return 0;
    TRY(slice_read(rd->coder, b, NULL, k, SLICE_KEY | SLICE_TIME | SLICE_CPU, &r, w->err));
    for (uint32_t i = 0; i < r.n; i++) {
        const struct row_at row = {.source = w->source,
                                   .type = pb->m.type,
                                   .series = r.key_series[r.key[i]],
                                   .thread = r.key_thread[r.key[i]],
                                   .cpu = r.cpu ? r.cpu[i] : 0,
                                   .ms = b->origin_ms + (int64_t)r.t[i] * b->quantum};

        if (takes(w, &row) && !w->to->fn(w->to->ctx, &row))
            return cancelled(w->err);
    }
    return 0;
}

static bool block_selected(const struct walk *w, const struct block_meta *m)
{
    if (ms_ceil((real_ns){m->t1}) <= w->lo || ms_floor((real_ns){m->t0}) >= w->hi)
        return false;
    for (uint32_t i = m->smin; i <= m->smax && i < w->v->snap.series; i++) {
        if (bit_get(w->sel->series, i))
            return true;
    }
    return false;
}

/* Made with the first block that is read: of most parts none is. */
static int open_reader(const struct walk *w, struct part *p, struct reader *rd)
{
    if (rd->handle)
        return 0;
    rd->coder = block_coder_new();
    rd->block = malloc(sizeof *rd->block);
    return rd->coder && rd->block ? part_enter(p, &rd->handle, w->err) : no_memory(w->err);
}

static int walk_block(const struct walk *w, struct part *p, struct reader *rd,
                      const struct part_block *pb)
{
    struct str cols;

    if (!block_selected(w, &pb->m) || w->to->dull(w->to->ctx, w->source, &pb->m))
        return 0;
    TRY(open_reader(w, p, rd));
    TRY(part_cols(rd->handle, pb->id, &cols, w->err));
    TRY(block_open(cols, rd->block, w->err));
    for (uint32_t k = 0; k < rd->block->n_slice; k++)
        TRY(walk_slice(w, rd, pb, k));
    return 0;
}

/* The first and the last block before those between: what they tell is most of it. */
static int walk_blocks(const struct walk *w, struct reader *rd, struct part *p)
{
    const struct part_block *b;
    uint32_t n = part_blocks(p, w->type, UINT32_MAX, 0, &b);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i == 0 ? 0 : i == 1 ? n - 1 : i - 1;

        TRY(walk_block(w, p, rd, &b[at]));
    }
    return 0;
}

static int walk_part(const struct walk *w, const struct source *src)
{
    struct reader rd = {};
    int r = part_load(src->part, w->err);

    if (r == 0)
        r = walk_blocks(w, &rd, src->part);
    if (rd.handle)
        part_leave(rd.handle);
    (void)block_coder_free(rd.coder);
    free(rd.block);
    return r;
}

/* The newest two first (a head may hold little), then the oldest, then down: series that live long
 * are known from then on. */
static uint32_t in_turn(uint32_t i, uint32_t n)
{
    return i < 2 ? n - 1 - i : i == 2 ? 0 : n - i;
}

static int walk_source(const struct walk *w)
{
    const struct source *src = &w->v->source[w->source];

    return src->head ? walk_head(w, src) : walk_part(w, src);
}

int each_row(struct store_view *v, ptype_id type, const struct selection *sel,
             struct interval range, const struct row_walk *to, struct err *err)
{
    struct walk w = {.v = v,
                     .sel = sel,
                     .type = type,
                     .lo = ms_ceil(range.t0),
                     .hi = ms_ceil(range.t1),
                     .to = to,
                     .err = err};
    uint32_t *touched = calloc(v->n_source, sizeof *touched), n = 0;
    bool partial = false;
    int r = touched ? 0 : no_memory(err);

    for (uint32_t i = 0; touched && i < v->n_source; i++) {
        if (intervals_touch(v->source[i].t, range))
            touched[n++] = i;
    }
    for (uint32_t i = 0; i < n && r != -ENOMEM && r != -ECANCELED; i++) {
        w.source = touched[in_turn(i, n)];
        r = walk_source(&w);
        partial |= r != 0; /* damaged: the rest is answered */
    }
    free(touched);
    if (r == -ENOMEM || r == -ECANCELED)
        return r;
    return partial ? STORE_PARTIAL : 0;
}
