// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "storage/part/block_private.h"

/* Random sorted rows of every form that a block can hold, from a seed. In the arena. */
struct gen_block {
    uint64_t state;
    struct arena *arena;
};

static inline uint64_t gb_u64(struct gen_block *g)
{
    g->state += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(g->state);
}

static inline uint32_t gb_below(struct gen_block *g, uint64_t n)
{
    return (uint32_t)(gb_u64(g) % n);
}

struct gen_shape {
    uint32_t nodes, keys, gap; /* gap: mean ms between rows; 0: all at once */
    bool skewed;
};

enum gen_values {
    GEN_PERIOD,    /* no column: count x period */
    GEN_CONST,     /* a column, all equal */
    GEN_PER_COUNT, /* a column, count x V */
    GEN_VALUES,    /* `bytes` wide, of both signs */
    GEN_WIDE,
    GEN_N_VALUES,
};

struct gen_form {
    enum gen_values values;
    uint32_t bytes; /* 1 to 8; 9 to 15 of GEN_WIDE */
    uint32_t quantum;
    bool counts, unknown, cpu, attr, var, level;
};

#define GB_ARRAY(g, T, n) ((T *)gb_array((g), (n), sizeof(T)))

static inline void *gb_array(struct gen_block *g, size_t n, size_t size)
{
    void *p = arena_calloc(g->arena, n, size);

    assert(p);
    return p;
}

static inline struct gen_form gen_form(struct gen_block *g)
{
    struct gen_form f = {.values = gb_below(g, GEN_N_VALUES),
                         .bytes = 1 + gb_below(g, 8),
                         .quantum = gb_below(g, 4) ? BLOCK_RAW_MS : BLOCK_MINUTE_MS,
                         .counts = gb_below(g, 2),
                         .cpu = gb_below(g, 2),
                         .attr = gb_below(g, 3) == 0,
                         .var = gb_below(g, 3) == 0,
                         .level = gb_below(g, 4) == 0};

    f.unknown = f.counts && gb_below(g, 2);
    if (f.values == GEN_WIDE)
        f.bytes = 8 + gb_below(g, 4);
    return f;
}

static inline int64_t gb_value(struct gen_block *g, uint32_t bytes)
{
    int64_t v = (int64_t)(gb_u64(g) >> (65 - 8 * (bytes > 8 ? 8 : bytes)));

    return gb_below(g, 4) ? v : -v;
}

static inline void gb_values(struct gen_block *g, const struct gen_form *f, struct block_rows *r)
{
    r->period = gb_value(g, f->counts ? 4 : f->bytes);
    if (f->values == GEN_WIDE)
        r->wide = GB_ARRAY(g, unit_i128, r->n);
    else if (f->values != GEN_PERIOD)
        r->value = GB_ARRAY(g, int64_t, r->n);
    for (uint32_t i = 0; i < r->n; i++) {
        int64_t v = gb_value(g, f->bytes);

        if (r->wide)
            r->wide[i] = (unit_i128)v * (1 << (f->bytes > 8 ? 8 * (f->bytes - 8) - 1 : 0));
        else if (f->values == GEN_CONST)
            r->value[i] = r->period;
        else if (f->values == GEN_PER_COUNT)
            r->value[i] = r->period * (int64_t)(r->count ? r->count[i] : 1);
        else if (r->value)
            r->value[i] = v;
    }
}

static inline struct block_rows gen_rows(struct gen_block *g, uint32_t n,
                                         const struct gen_shape *sh, const struct gen_form *f)
{
    struct block_rows r = {.n = n,
                           .ms = GB_ARRAY(g, int64_t, n),
                           .series = GB_ARRAY(g, uint32_t, n),
                           .thread = GB_ARRAY(g, uint32_t, n),
                           .node = GB_ARRAY(g, uint32_t, n),
                           .count = f->counts ? GB_ARRAY(g, uint64_t, n) : NULL,
                           .cpu = f->cpu ? GB_ARRAY(g, uint32_t, n) : NULL,
                           .attr = f->attr ? GB_ARRAY(g, uint32_t, n) : NULL,
                           .var = f->var ? GB_ARRAY(g, float, n) : NULL,
                           .held = f->level ? GB_ARRAY(g, uint32_t, n) : NULL};
    int64_t t = (INT64_C(1796000000000) + gb_below(g, 1000)) / f->quantum;
    /* what a block can hold: so many quanta, and ends before the year 2262 */
    int64_t last = INT64_C(9000000000000) / f->quantum;
    struct arena tmp;
    struct err err = {};
    int k;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = gb_below(g, sh->nodes);

        if (sh->skewed)
            node = gb_below(g, node + 1) % (gb_below(g, sh->nodes) + 1);
        if (sh->gap)
            t += gb_below(g, 2 * sh->gap);
        t = t < last ? t : last;
        r.ms[i] = t * f->quantum;
        r.series[i] = gb_below(g, sh->keys) * 3 + 1;
        r.thread[i] = gb_below(g, sh->keys) / 2;
        r.node[i] = node;
        if (r.count)
            r.count[i] = gb_below(g, 8) ? 1 : gb_below(g, 1000) + !f->unknown;
        if (r.cpu && gb_below(g, 8))
            r.cpu[i] = gb_below(g, 300);
        if (r.attr)
            r.attr[i] = gb_below(g, 100) ? 0 : gb_below(g, 70000);
        if (r.var)
            r.var[i] = gb_below(g, 2) ? (float)NAN : (float)gb_below(g, 100) / 3;
        if (r.held)
            r.held[i] = gb_below(g, 9) ? 1000 : gb_below(g, 100000);
    }
    gb_values(g, f, &r);
    arena_init(&tmp, SIZE_MAX);
    k = block_sort(&r, &tmp, &err);
    assert(k == 0);
    (void)k;
    arena_deinit(&tmp);
    return r;
}

static inline unit_i128 gb_value_at(const struct block_rows *r, uint32_t i)
{
    if (r->wide)
        return r->wide[i];
    return r->value ? r->value[i] : (unit_i128)r->period * (r->count ? r->count[i] : 1);
}

/* The first row that differs, or UINT32_MAX. */
static inline uint32_t gb_differ(const struct block_rows *a, const struct block_rows *b)
{
    for (uint32_t i = 0; i < a->n && i < b->n; i++) {
        float va = a->var ? a->var[i] : (float)NAN, vb = b->var ? b->var[i] : (float)NAN;

        if (a->ms[i] != b->ms[i] || a->series[i] != b->series[i] || a->thread[i] != b->thread[i] ||
            a->node[i] != b->node[i] ||
            (a->count ? a->count[i] : 1) != (b->count ? b->count[i] : 1) ||
            gb_value_at(a, i) != gb_value_at(b, i) ||
            (a->cpu ? a->cpu[i] : 0) != (b->cpu ? b->cpu[i] : 0) ||
            (a->attr ? a->attr[i] : 0) != (b->attr ? b->attr[i] : 0) || !a->held != !b->held ||
            (a->held && a->held[i] != b->held[i]) || isnan(va) != isnan(vb) ||
            (!isnan(va) && memcmp(&va, &vb, sizeof va) != 0))
            return i;
    }
    return a->n == b->n ? UINT32_MAX : a->n < b->n ? a->n : b->n;
}
