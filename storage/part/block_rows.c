// SPDX-License-Identifier: Apache-2.0
/* Whole blocks: all rows again, whether they are what meta and summary say, and their order. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "storage/part/coder_private.h"

/* ---- decoding ------------------------------------------------------------------------------ */

/* The column *p, made once a slice has it; rows before that hold `usual`. */
static bool have_u32(struct arena *a, uint32_t n, uint32_t **p)
{
    if (!*p)
        *p = arena_array(a, uint32_t, n);
    return *p != NULL;
}

static bool put_counts(struct arena *a, const struct slice_rows *s, uint32_t at, uint32_t n,
                       struct block_rows *r)
{
    if (!s->count && !r->count)
        return true;
    if (!r->count) {
        r->count = arena_array(a, uint64_t, n);
        for (uint32_t i = 0; r->count && i < at; i++)
            r->count[i] = 1;
    }
    for (uint32_t i = 0; r->count && i < s->n; i++)
        r->count[at + i] = s->count ? s->count[i] : 1;
    return r->count != NULL;
}

static bool put_variances(struct arena *a, const struct slice_rows *s, uint32_t at, uint32_t n,
                          struct block_rows *r)
{
    if (!s->var && !r->var)
        return true;
    if (!r->var) {
        r->var = arena_array(a, float, n);
        for (uint32_t i = 0; r->var && i < at; i++)
            r->var[i] = (float)NAN;
    }
    for (uint32_t i = 0; r->var && i < s->n; i++)
        r->var[at + i] = s->var ? s->var[i] : (float)NAN;
    return r->var != NULL;
}

static bool put_optional(struct arena *a, const struct slice_rows *s, uint32_t at, uint32_t n,
                         struct block_rows *r)
{
    if (s->cpu) {
        if (!have_u32(a, n, &r->cpu))
            return false;
        memcpy(r->cpu + at, s->cpu, s->n * sizeof *s->cpu);
    }
    if (s->attr) {
        if (!have_u32(a, n, &r->attr))
            return false;
        memcpy(r->attr + at, s->attr, s->n * sizeof *s->attr);
    }
    if (s->held) {
        assert(r->held); /* made with the rows of a level */
        memcpy(r->held + at, s->held, s->n * sizeof *s->held);
    }
    return put_counts(a, s, at, n, r) && put_variances(a, s, at, n, r);
}

static void put_rows(const struct block *b, const struct summary *sum, const struct slice_rows *s,
                     uint32_t at, struct block_rows *r)
{
    for (uint32_t i = 0; i < s->n; i++) {
        r->ms[at + i] = b->origin_ms + (int64_t)s->t[i] * b->quantum;
        r->series[at + i] = s->key_series[s->key[i]];
        r->thread[at + i] = s->key_thread[s->key[i]];
        r->node[at + i] = sum->node[s->rank[i]];
    }
    if (r->value)
        memcpy(r->value + at, s->value, s->n * sizeof *s->value);
    if (r->wide)
        memcpy(r->wide + at, s->wide, s->n * sizeof *s->wide);
}

static bool alloc_rows(struct arena *a, const struct block *b, struct block_rows *r)
{
    *r = (struct block_rows){.n = b->n,
                             .period = b->v,
                             .ms = arena_array(a, int64_t, b->n),
                             .series = arena_array(a, uint32_t, b->n),
                             .thread = arena_array(a, uint32_t, b->n),
                             .node = arena_array(a, uint32_t, b->n)};
    if (b->mode == BLOCK_VALUES)
        r->value = arena_array(a, int64_t, b->n);
    if (b->mode == BLOCK_WIDE)
        r->wide = arena_array(a, unit_i128, b->n);
    if (b->level)
        r->held = arena_array(a, uint32_t, b->n);
    return r->ms && r->series && r->thread && r->node && (b->mode != BLOCK_VALUES || r->value) &&
           (b->mode != BLOCK_WIDE || r->wide) && (!b->level || r->held);
}

/* All equal though the counts are not: a column of V. */
static bool put_constant(struct arena *a, const struct block *b, struct block_rows *r)
{
    if (b->mode != BLOCK_CONST || !r->count)
        return true;
    r->value = arena_array(a, int64_t, b->n);
    for (uint32_t i = 0; r->value && i < b->n; i++)
        r->value[i] = b->v;
    return r->value != NULL;
}

static int decode(struct block_coder *c, const struct block *b, const struct summary *sum,
                  struct arena *a, struct block_rows *ret, struct err *err)
{
    uint32_t at = 0;

    if (!alloc_rows(a, b, ret))
        return coder_no_memory(err);
    for (uint32_t k = 0; k < b->n_slice; k++) {
        struct slice_rows s;

        TRY(slice_read(c, b, sum, k, SLICE_ALL, &s, err));
        put_rows(b, sum, &s, at, ret);
        if (!put_optional(a, &s, at, b->n, ret))
            return coder_no_memory(err);
        at += s.n;
    }
    return put_constant(a, b, ret) ? 0 : coder_no_memory(err);
}

int block_decode(struct block_coder *c, struct str summary, struct str cols, uint32_t n_node,
                 struct arena *arena, struct block_rows *ret, struct err *err)
{
    struct block *b = arena_new(arena, struct block);
    struct block_rows rows;
    struct summary sum;

    if (!b)
        return coder_no_memory(err);
    TRY(summary_open(c, summary, n_node, &sum, err));
    TRY(block_open(cols, b, err));
    TRY(decode(c, b, &sum, arena, &rows, err));
    *ret = rows;
    return 0;
}

/* ---- checking ------------------------------------------------------------------------------ */

static int differs(struct err *err, const char *what)
{
    return err_set(err, -EBADMSG, "block: %s is not that of its rows", what);
}

static int compare_meta(const struct block_meta *a, const struct block_meta *b, struct err *err)
{
    if (a->n != b->n || a->count != b->count)
        return differs(err, "count");
    if (a->t0 != b->t0 || a->t1 != b->t1)
        return differs(err, "interval");
    if (a->total != b->total)
        return differs(err, "total");
    if (a->vmin != b->vmin || a->vmax != b->vmax)
        return differs(err, "range of values");
    if (a->smin != b->smin || a->smax != b->smax)
        return differs(err, "range of series");
    return a->flags != b->flags ? differs(err, "flags") : 0;
}

static bool same_bits(const double *a, const double *b, uint32_t n)
{
    return (!a && !b) || (a && b && memcmp(a, b, n * sizeof *a) == 0);
}

/* A copy of what the coder's next summary_open overwrites. */
static bool keep(struct arena *a, const struct summary *s, struct summary *ret)
{
    const uint32_t n = s->n;
    uint32_t *node = arena_array(a, uint32_t, n), *freq = arena_array(a, uint32_t, n);
    uint64_t *count = arena_array(a, uint64_t, n);
    unit_i128 *wide = arena_array(a, unit_i128, n);
    double *var = s->var ? arena_array(a, double, n) : NULL;

    if (!node || !freq || !count || !wide || (s->var && !var))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        node[i] = s->node[i];
        freq[i] = s->freq[i];
        count[i] = s->count ? s->count[i] : s->freq[i];
        wide[i] = summary_sum(s, i);
        if (var)
            var[i] = s->var[i];
    }
    *ret = *s;
    ret->node = node;
    ret->freq = freq;
    ret->count = count;
    ret->sum = NULL;
    ret->wide = wide;
    ret->var = var;
    return true;
}

static int compare_summary(const struct summary *a, const struct summary *b, struct err *err)
{
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): filled where it is called
    if (a->n != b->n || a->many != b->many)
        return differs(err, "summary");
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->node[i] != b->node[i] || a->freq[i] != b->freq[i] || a->count[i] != b->count[i])
            return differs(err, "summary");
        if (a->wide[i] != b->wide[i])
            return differs(err, "summary");
    }
    return same_bits(a->var, b->var, a->n) ? 0 : differs(err, "summary");
}

/* The summary of the rows, read back from what block_encode makes of them. */
static int encode_again(struct block_coder *c, const struct block_rows *r, uint32_t quantum,
                        uint32_t n_node, struct arena *tmp, struct block_meta *ret_meta,
                        struct summary *ret, struct err *err)
{
    struct buf summary, cols;
    struct summary s;
    int k;

    buf_init(&summary, SIZE_MAX);
    buf_init(&cols, SIZE_MAX);
    k = block_encode(c, r, quantum, ret_meta, &summary, &cols, err);
    if (k == 0)
        k = summary_open(c, buf_view(&summary), n_node, &s, err);
    if (k == 0 && !keep(tmp, &s, ret))
        k = coder_no_memory(err);
    buf_deinit(&summary);
    buf_deinit(&cols);
    return k;
}

int block_check(struct block_coder *c, const struct block_meta *meta, struct str summary,
                struct str cols, uint32_t n_node, struct arena *tmp, struct err *err)
{
    struct block *b = arena_new(tmp, struct block);
    struct summary was, is, stored;
    struct block_rows rows;
    struct block_meta m = {};
    int r;

    if (!b)
        return coder_no_memory(err);
    TRY(summary_open(c, summary, n_node, &stored, err));
    if (!keep(tmp, &stored, &was))
        return coder_no_memory(err);
    TRY(block_open(cols, b, err));
    TRY(decode(c, b, &stored, tmp, &rows, err));
    r = encode_again(c, &rows, b->quantum, n_node, tmp, &m, &is, err);
    if (r == -EINVAL && err)
        *err = (struct err){};
    if (r == -EINVAL) /* block_encode would not have taken them */
        return differs(err, "order or range");
    TRY(r);
    TRY(compare_meta(meta, &m, err));
    return compare_summary(&was, &is, err);
}

/* ---- order --------------------------------------------------------------------------------- */

#define DIGIT_BITS 11u
#define DIGITS     (1u << DIGIT_BITS)

struct order {
    uint32_t n;
    uint32_t *at, *tmp; /* row at each place */
    char *to;           /* room for the widest column */
};

/* One digit of a column; stable. least: the column's smallest, taken off. */
static void sort_digit(struct order *o, const int64_t *wide, const uint32_t *narrow, int64_t least,
                       uint32_t shift)
{
    uint32_t place[DIGITS] = {}, sum = 0, *swap = o->at;

    for (uint32_t i = 0; i < o->n; i++)
        place[((uint64_t)(wide ? wide[i] : narrow[i]) - (uint64_t)least) >> shift & (DIGITS - 1)]++;
    for (uint32_t d = 0; d < DIGITS; d++) {
        uint32_t k = place[d];

        place[d] = sum;
        sum += k;
    }
    for (uint32_t i = 0; i < o->n; i++) {
        uint32_t row = o->at[i];
        uint64_t v = (uint64_t)(wide ? wide[row] : narrow[row]) - (uint64_t)least;

        o->tmp[place[v >> shift & (DIGITS - 1)]++] = row;
    }
    o->at = o->tmp;
    o->tmp = swap;
}

static void sort_column(struct order *o, const int64_t *wide, const uint32_t *narrow)
{
    int64_t least = INT64_MAX, most = INT64_MIN;

    for (uint32_t i = 0; i < o->n; i++) {
        int64_t v = wide ? wide[i] : narrow[i];

        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    for (uint32_t shift = 0; shift < 64 && ((uint64_t)most - (uint64_t)least) >> shift;
         shift += DIGIT_BITS)
        sort_digit(o, wide, narrow, least, shift);
}

static bool sorted(const struct block_rows *r)
{
    for (uint32_t i = 1; i < r->n; i++)
        if (block_compare(r, i - 1, i) > 0)
            return false;
    return true;
}

/* v[i] = old v[at[i]], elements of `size` bytes; NULL stays. */
static void gather(const struct order *o, void *v, size_t size)
{
    char *to = o->to;
    const char *from = v;

    if (!v)
        return;
    switch (size) { /* a known size is a move */
    case 4:
        for (uint32_t i = 0; i < o->n; i++)
            memcpy(to + (size_t)i * 4, from + (size_t)o->at[i] * 4, 4);
        break;
    case 8:
        for (uint32_t i = 0; i < o->n; i++)
            memcpy(to + (size_t)i * 8, from + (size_t)o->at[i] * 8, 8);
        break;
    default:
        for (uint32_t i = 0; i < o->n; i++)
            memcpy(to + (size_t)i * size, from + (size_t)o->at[i] * size, size);
    }
    memcpy(v, to, o->n * size);
}

/* Rows of one instant that still have to be put in order: at most so many. */
#define RUN_MAX 64u

static void sort_run(const struct block_rows *r, uint32_t *at, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t row = at[i], k = i;

        for (; k > 0 && block_compare(r, at[k - 1], row) > 0; k--)
            at[k] = at[k - 1];
        at[k] = row;
    }
}

/* By time alone, then the few rows of each instant. False: there are too many of one, or the times
 * lie too far apart; or memory, then the slow way will say so. */
static bool sort_by_time(const struct block_rows *r, struct order *o, struct arena *tmp)
{
    int64_t least = INT64_MAX, most = INT64_MIN;
    uint64_t *a, *sorted;

    for (uint32_t i = 0; i < r->n; i++) {
        least = r->ms[i] < least ? r->ms[i] : least;
        most = r->ms[i] > most ? r->ms[i] : most;
    }
    a = (uint64_t)most - (uint64_t)least <= UINT32_MAX ? arena_calloc(tmp, r->n, 2 * sizeof *a)
                                                       : NULL;
    if (!a)
        return false;
    for (uint32_t i = 0; i < r->n; i++)
        a[i] = (uint64_t)(r->ms[i] - least) << 32 | i;
    sorted = sort_u64(a, a + r->n, r->n, 32);
    for (uint32_t i = 0, end; i < r->n; i = end) {
        for (end = i; end < r->n && sorted[end] >> 32 == sorted[i] >> 32; end++)
            o->at[end] = (uint32_t)sorted[end];
        if (end - i > RUN_MAX)
            return false;
        sort_run(r, o->at + i, end - i);
    }
    return true;
}

static void sort_slowly(const struct block_rows *r, struct order *o)
{
    for (uint32_t i = 0; i < r->n; i++)
        o->at[i] = i;
    sort_column(o, NULL, r->node);
    sort_column(o, NULL, r->thread);
    sort_column(o, NULL, r->series);
    sort_column(o, r->ms, NULL);
}

int block_sort(struct block_rows *r, struct arena *tmp, struct err *err)
{
    struct order o = {.n = r->n};

    if (sorted(r))
        return 0;
    o.at = arena_array(tmp, uint32_t, r->n);
    o.tmp = arena_array(tmp, uint32_t, r->n);
    o.to = arena_calloc(tmp, r->n, r->wide ? sizeof *r->wide : sizeof *r->ms);
    if (!o.at || !o.tmp || !o.to)
        return coder_no_memory(err);
    if (!sort_by_time(r, &o, tmp))
        sort_slowly(r, &o);
    gather(&o, r->ms, sizeof *r->ms);
    gather(&o, r->series, sizeof *r->series);
    gather(&o, r->thread, sizeof *r->thread);
    gather(&o, r->node, sizeof *r->node);
    gather(&o, r->count, sizeof *r->count);
    gather(&o, r->value, sizeof *r->value);
    gather(&o, r->wide, sizeof *r->wide);
    gather(&o, r->cpu, sizeof *r->cpu);
    gather(&o, r->attr, sizeof *r->attr);
    gather(&o, r->var, sizeof *r->var);
    gather(&o, r->held, sizeof *r->held);
    return 0;
}
