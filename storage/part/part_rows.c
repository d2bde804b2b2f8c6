// SPDX-License-Identifier: Apache-2.0
/* Rows of one block of a part, one by one: for listings, rows as they are, `store cat`. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "storage/part/part_rows_private.h"

struct part_rows *part_rows_free(struct part_rows *r)
{
    if (!r)
        return NULL;
    if (r->handle)
        part_leave(r->handle);
    r->coder = block_coder_free(r->coder);
    free(r->block);
    free(r);
    return NULL;
}

struct part_rows *part_rows_new(void)
{
    struct part_rows *r = mem_fail_now() ? NULL : calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->coder = block_coder_new();
    r->block = calloc(1, sizeof *r->block);
    return r->coder && r->block ? r : part_rows_free(r);
}

int part_rows_enter(struct part_rows *r, struct part *part, struct err *err)
{
    if (r->handle && r->part == part)
        return 0;
    if (r->handle)
        part_leave(r->handle);
    r->handle = NULL;
    TRY(part_enter(part, &r->handle, err));
    r->part = part;
    return 0;
}

static int64_t value_of(const struct block *b, const struct slice_rows *s, uint32_t i)
{
    if (s->value)
        return s->value[i];
    if (s->wide)
        return (int64_t)s->wide[i];
    if (b->mode == BLOCK_CONST || !s->count)
        return b->v;
    return (int64_t)((uint64_t)b->v * s->count[i]);
}

static struct part_row row_at(const struct block *b, const struct summary *sum,
                              const struct slice_rows *s, uint32_t i)
{
    return (struct part_row){.ms = b->origin_ms + (int64_t)s->t[i] * b->quantum,
                             .series = s->key_series[s->key[i]],
                             .thread = s->key_thread[s->key[i]],
                             .cpu = s->cpu ? s->cpu[i] : 0,
                             .node = s->rank ? sum->node[s->rank[i]] : 0,
                             .count = s->count ? s->count[i] : 1,
                             .value = value_of(b, s, i),
                             .var = s->var ? (double)s->var[i] : (double)NAN,
                             .attr = s->attr ? s->attr[i] : 0,
                             .held = s->held ? s->held[i] : 0};
}

int part_rows_each(struct part_rows *r, uint32_t block, const struct part_rows_ask *ask,
                   part_row_fn *fn, void *ctx, struct err *err)
{
    const uint32_t keys = SLICE_KEY | SLICE_TIME | SLICE_CPU;
    struct block *b = r->block;
    struct summary sum = {};
    struct str bytes;

    if (!ask->keys_only) {
        TRY(part_summary(r->handle, block, &bytes, err));
        TRY(summary_open(r->coder, bytes, ask->n_node, &sum, err));
    }
    TRY(part_cols(r->handle, block, &bytes, err));
    TRY(block_open(bytes, b, err));
    for (uint32_t k = 0; k < b->n_slice; k++) {
        uint32_t from, to;
        struct slice_rows s;

        TRY(slice_range(r->coder, b, k, ask->lo, ask->hi, &from, &to, err));
        if (from >= to)
            continue;
        TRY(slice_read(r->coder, b, &sum, k, ask->keys_only ? keys : SLICE_ALL, &s, err));
        for (uint32_t i = from; i < to; i++) {
            struct part_row row = row_at(b, &sum, &s, i);
            int x = fn(ctx, &row, err);

            if (x < 0)
                return x;
        }
    }
    return 0;
}
