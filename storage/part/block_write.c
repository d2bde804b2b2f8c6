// SPDX-License-Identifier: Apache-2.0
/*
 * Rows to cols and summary: the format is described in docs/format-shard.md, "one block".
 *
 * How values are written is decided by what they are, never by the form in which they came, so that
 * the same rows give the same bytes: all equal, count x V, 64 bits, 128 bits; the first that fits.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"
#include "storage/part/coder_private.h"

struct writer {
    struct block_coder *c;
    const struct block_rows *r;
    uint32_t quantum;
    enum block_mode mode;
    int64_t v;
    bool ones;      /* all counts are 1 */
    uint32_t *rank; /* of each row */
    uint32_t n_rank, many;
    uint32_t from, n; /* the slice */
    uint32_t *x;      /* numbers of a column, n */
    uint32_t *t;      /* of each row: quanta since the first */
    uint8_t *one, *two;
    uint32_t n_cell;
};

static unit_i128 value_at(const struct block_rows *r, uint32_t i)
{
    if (r->wide)
        return r->wide[i];
    return r->value ? r->value[i] : (unit_i128)r->period * (r->count ? r->count[i] : 1);
}

/* ---- what can be written ------------------------------------------------------------------- */

int block_compare(const struct block_rows *r, uint32_t a, uint32_t b)
{
    if (r->ms[a] != r->ms[b])
        return (r->ms[a] > r->ms[b]) - (r->ms[a] < r->ms[b]);
    if (r->series[a] != r->series[b])
        return (r->series[a] > r->series[b]) - (r->series[a] < r->series[b]);
    if (r->thread[a] != r->thread[b])
        return (r->thread[a] > r->thread[b]) - (r->thread[a] < r->thread[b]);
    return (r->node[a] > r->node[b]) - (r->node[a] < r->node[b]);
}

static int check(const struct block_rows *r, uint32_t quantum, struct err *err)
{
    int64_t last;

    if (r->n == 0 || r->n > BLOCK_ROWS)
        return err_set(err, -EINVAL, "block: %u rows, 1 to %u are possible", r->n, BLOCK_ROWS);
    for (uint32_t i = 0; i < r->n; i++) {
        if (i && block_compare(r, i - 1, i) > 0)
            return err_set(err, -EINVAL, "block: row %u is out of order", i);
        if (quantum > 1 && r->ms[i] % quantum)
            return err_set(err, -EINVAL, "block: row %u: %" PRId64 " ms, not a multiple of %u", i,
                           r->ms[i], quantum);
    }
    last = r->ms[r->n - 1];
    if (r->ms[0] < INT64_MIN / NS_PER_MS || last > INT64_MAX / NS_PER_MS - UINT32_MAX ||
        (last - r->ms[0]) / quantum > UINT32_MAX)
        return err_set(err, -EINVAL, "block: times from %" PRId64 " to %" PRId64 " ms", r->ms[0],
                       last);
    return 0;
}

/* V of count x V in every row, or false. */
static bool factor_of(const struct block_rows *r, int64_t *ret)
{
    unit_i128 v = 0;
    uint32_t i = 0;

    if (!r->value && !r->wide) {
        *ret = r->period;
        return true;
    }
    while (i < r->n && r->count && r->count[i] == 0)
        i++;
    if (i < r->n)
        v = value_at(r, i) / (r->count ? (unit_i128)r->count[i] : 1);
    if (v != (int64_t)v)
        return false;
    for (i = 0; i < r->n; i++)
        if (value_at(r, i) != v * (unit_i128)(r->count ? r->count[i] : 1))
            return false;
    *ret = (int64_t)v;
    return true;
}

static enum block_mode mode_of(const struct block_rows *r, bool ones, int64_t *ret_v)
{
    bool same = true, narrow = true;
    unit_i128 first = value_at(r, 0);

    if (factor_of(r, ret_v))
        return ones ? BLOCK_CONST : BLOCK_PER_COUNT;
    for (uint32_t i = 0; i < r->n; i++) {
        unit_i128 v = value_at(r, i);

        same &= v == first;
        narrow &= v == (int64_t)v;
    }
    *ret_v = same && narrow ? (int64_t)first : 0;
    return same && narrow ? BLOCK_CONST : narrow ? BLOCK_VALUES : BLOCK_WIDE;
}

static bool all_ones(const struct block_rows *r)
{
    for (uint32_t i = 0; r->count && i < r->n; i++)
        if (r->count[i] != 1)
            return false;
    return true;
}

/* ---- sums by node -------------------------------------------------------------------------- */

/* Rows by node: node << 16 | row. */
static uint64_t *rows_by_node(struct block_coder *c, const struct block_rows *r)
{
    uint64_t *a = CODER_ARRAY(c, ARRAY_WRITE_PAIR, uint64_t, r->n);
    uint64_t *b = CODER_ARRAY(c, ARRAY_WRITE_PAIR2, uint64_t, r->n);

    if (!a || !b)
        return NULL;
    for (uint32_t i = 0; i < r->n; i++)
        a[i] = (uint64_t)r->node[i] << 16 | i;
    return sort_u64(a, b, r->n, 16);
}

static void add_row(struct sum_entry *e, const struct block_rows *r, uint32_t i)
{
    e->freq++;
    e->count += r->count ? r->count[i] : 1;
    if (r->value || r->wide || r->held)
        e->sum += value_at(r, i) * (r->held ? (unit_i128)r->held[i] : 1);
    e->var += r->var ? (double)r->var[i] : (double)NAN;
}

static int write_summary(struct writer *w, struct buf *out, uint32_t *ret_flags, struct err *err)
{
    struct block_coder *c = w->c;
    const struct block_rows *r = w->r;
    const uint64_t *order = rows_by_node(c, r);
    struct sum_entry *v = CODER_ARRAY(c, ARRAY_WRITE_ENTRY, struct sum_entry, r->n);
    uint32_t *of = CODER_ARRAY(c, ARRAY_WRITE_ENTRY_OF, uint32_t, r->n);
    uint32_t *rank = CODER_ARRAY(c, ARRAY_WRITE_RANK, uint32_t, r->n), n = 0;

    if (!order || !v || !of || !rank)
        return coder_no_memory(err);
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t node = (uint32_t)(order[i] >> 16), row = order[i] & 0xffff;

        if (n == 0 || v[n - 1].node != node)
            v[n++] = (struct sum_entry){.node = node};
        add_row(&v[n - 1], r, row);
        of[row] = n - 1;
    }
    for (uint32_t i = 0; !r->value && !r->wide && !r->held && i < n; i++)
        v[i].sum = (unit_i128)r->period * v[i].count;
    TRY(sum_write(c, v, n, out, rank, ret_flags, &w->many, err));
    w->n_rank = n;
    w->rank = of;
    for (uint32_t i = 0; i < r->n; i++)
        of[i] = rank[of[i]];
    return 0;
}

static int64_t narrowed(unit_i128 v)
{
    return v > INT64_MAX ? INT64_MAX : v < INT64_MIN ? INT64_MIN : (int64_t)v;
}

/* Total and range of the values. */
static void add_values(const struct block_rows *r, struct block_meta *m)
{
    uint64_t few = UINT64_MAX, many = 0;

    if (r->value || r->wide || r->held) {
        for (uint32_t i = 0; i < r->n; i++) {
            unit_i128 v = value_at(r, i);
            int64_t cut = narrowed(v);

            m->total += v * (r->held ? (unit_i128)r->held[i] : 1);
            m->vmin = cut < m->vmin ? cut : m->vmin;
            m->vmax = cut > m->vmax ? cut : m->vmax;
        }
        return;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        uint64_t n = r->count ? r->count[i] : 1;

        few = n < few ? n : few;
        many = n > many ? n : many;
    }
    m->total = (unit_i128)r->period * m->count;
    m->vmin = narrowed((unit_i128)r->period * (r->period < 0 ? many : few));
    m->vmax = narrowed((unit_i128)r->period * (r->period < 0 ? few : many));
}

static void make_meta(const struct block_rows *r, uint32_t quantum, struct block_meta *m)
{
    int64_t end = r->ms[r->n - 1] + quantum;

    *m = (struct block_meta){.n = r->n, .smin = UINT32_MAX, .vmin = INT64_MAX, .vmax = INT64_MIN};
    for (uint32_t i = 0; i < r->n; i++) {
        m->count += r->count ? r->count[i] : 1;
        m->smin = r->series[i] < m->smin ? r->series[i] : m->smin;
        m->smax = r->series[i] > m->smax ? r->series[i] : m->smax;
        if (r->held && r->ms[i] + r->held[i] > end)
            end = r->ms[i] + r->held[i];
        if (r->count && r->count[i] == 0)
            m->flags |= BLOCK_UNKNOWN;
        if (r->var && !isnan(r->var[i]))
            m->flags |= BLOCK_VARIANCES;
    }
    add_values(r, m);
    m->t0 = r->ms[0] * NS_PER_MS;
    m->t1 = end * NS_PER_MS;
}

/* ---- cells --------------------------------------------------------------------------------- */

static void put_cell(struct writer *w, uint32_t id, const void *raw, size_t n,
                     enum cell_level level)
{
    struct block_coder *c = w->c;
    enum cell_codec codec;
    size_t stored;

    cell_write(&c->cell, &c->cells, raw, n, level, &codec, &stored);
    cell_varint(&c->entries, id);
    cell_varint(&c->entries, codec);
    cell_varint(&c->entries, n);
    cell_varint(&c->entries, stored);
    w->n_cell++;
}

/* A cell of zeros only is left out. */
static void put_unless_zero(struct writer *w, uint32_t id, const uint8_t *p, size_t n,
                            enum cell_level level)
{
    uint8_t any = 0;

    for (size_t i = 0; i < n; i++)
        any |= p[i];
    if (any)
        put_cell(w, id, p, n, level);
}

/* Numbers w->x below d: two planes. */
static void put_ranks(struct writer *w, uint32_t id, uint32_t d, enum cell_level level)
{
    uint32_t m = rank_split(w->x, w->n, d, w->one, w->two);

    put_unless_zero(w, id, w->one, w->n, level);
    if (m > 0)
        put_cell(w, id + 1, w->two, m, level);
}

/* A column of varints; left out if every one is `usual`. */
static void put_varints(struct writer *w, uint32_t id, const uint32_t *v32, const uint64_t *v64,
                        uint64_t usual)
{
    struct buf *b = &w->c->bytes;
    uint8_t *p, *start;
    bool any = false;

    buf_reset(b);
    p = start = (uint8_t *)buf_reserve(b, (size_t)w->n * CELL_VARINT_MAX);
    for (uint32_t i = w->from; p && i < w->from + w->n; i++) {
        uint64_t v = v32 ? v32[i] : v64[i];

        p = cell_varint_to(p, v);
        any |= v != usual;
    }
    if (p)
        buf_commit(b, (size_t)(p - start));
    if (any)
        put_cell(w, id, b->p, b->n, CELL_FAST);
}

/* ---- keys ---------------------------------------------------------------------------------- */

struct key_set {
    uint64_t *key, *slot_key;
    uint32_t *slot; /* place in key + 1 */
    uint32_t n, mask;
};

static uint32_t key_slot(const struct key_set *s, uint64_t key)
{
    uint32_t h = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 40) & s->mask;

    while (s->slot[h] && s->slot_key[h] != key)
        h = (h + 1) & s->mask;
    return h;
}

static uint64_t key_of(const struct block_rows *r, uint32_t i)
{
    return (uint64_t)r->series[i] << 32 | r->thread[i];
}

/* Distinct keys of the slice, in order of first use; w->x: each row's slot. */
static bool collect_keys(struct writer *w, struct key_set *s)
{
    struct block_coder *c = w->c;

    *s = (struct key_set){.mask = 255};
    while (s->mask < 2 * w->n)
        s->mask = s->mask * 2 + 1;
    s->key = CODER_ARRAY(c, ARRAY_WRITE_PAIR, uint64_t, w->n);
    s->slot_key = CODER_ARRAY(c, ARRAY_WRITE_KEYS, uint64_t, s->mask + 1);
    s->slot = CODER_ARRAY(c, ARRAY_WRITE_SLOT, uint32_t, s->mask + 1);
    if (!s->key || !s->slot_key || !s->slot)
        return false;
    memset(s->slot, 0, (s->mask + (size_t)1) * sizeof *s->slot);
    for (uint32_t i = 0; i < w->n; i++) {
        uint64_t key = key_of(w->r, w->from + i);
        uint32_t h = key_slot(s, key);

        if (!s->slot[h]) {
            s->key[s->n++] = key;
            s->slot[h] = s->n;
            s->slot_key[h] = key;
        }
        w->x[i] = h;
    }
    return true;
}

static bool put_keys(struct writer *w, uint32_t *ret_keys)
{
    struct block_coder *c = w->c;
    uint64_t *tmp, *sorted;
    uint32_t series = 0, thread = 0;
    struct key_set s;

    if (!collect_keys(w, &s))
        return false;
    tmp = CODER_ARRAY(c, ARRAY_WRITE_PAIR2, uint64_t, s.n);
    if (!tmp)
        return false;
    sorted = sort_u64(s.key, tmp, s.n, 0);
    buf_reset(&c->bytes);
    for (uint32_t k = 0; k < s.n; k++) {
        uint32_t to_series = (uint32_t)(sorted[k] >> 32), to_thread = (uint32_t)sorted[k];

        s.slot[key_slot(&s, sorted[k])] = k + 1;
        cell_varint(&c->bytes, cell_zigzag((int64_t)to_series - series));
        cell_varint(&c->bytes, cell_zigzag((int64_t)to_thread - thread));
        series = to_series;
        thread = to_thread;
    }
    put_cell(w, COL_KEYS, c->bytes.p, c->bytes.n, CELL_FAST);
    for (uint32_t i = 0; i < w->n; i++)
        w->x[i] = s.slot[w->x[i]] - 1;
    put_ranks(w, COL_KEY, s.n, CELL_FAST);
    *ret_keys = s.n;
    return true;
}

/* ---- the other columns --------------------------------------------------------------------- */

static bool make_times(struct writer *w)
{
    const struct block_rows *r = w->r;

    w->t = CODER_ARRAY(w->c, ARRAY_WRITE_TIME, uint32_t, r->n);
    for (uint32_t i = 0; w->t && i < r->n; i++)
        w->t[i] = w->quantum == 1 ? (uint32_t)(r->ms[i] - r->ms[0])
                                  : (uint32_t)((uint64_t)(r->ms[i] - r->ms[0]) / w->quantum);
    return w->t != NULL;
}

static uint32_t put_times(struct writer *w)
{
    struct buf *escapes = &w->c->bytes;
    uint32_t gap = 0, last = w->t[w->from];

    buf_reset(escapes);
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t t = w->t[w->from + i], d = t - last;

        last = t;
        if (d >= RANK_ESCAPE) {
            buf_le32(escapes, d);
            d = RANK_ESCAPE;
        }
        w->x[i] = d;
        gap = d > gap ? d : gap;
    }
    put_ranks(w, COL_TIME, gap + 1, CELL_FAST);
    if (escapes->n)
        put_cell(w, COL_TIME_ESCAPE, escapes->p, escapes->n, CELL_FAST);
    return gap;
}

static void put_stacks(struct writer *w)
{
    memcpy(w->x, w->rank + w->from, w->n * sizeof *w->x);
    put_ranks(w, COL_STACK, w->n_rank, w->quantum == BLOCK_RAW_MS ? CELL_STORE : CELL_FAST);
}

static void put_variances(struct writer *w)
{
    uint8_t *p = coder_room(&w->c->bytes, w->n, sizeof(uint32_t));

    for (uint32_t i = 0; p && i < w->n; i++) {
        float v = w->r->var[w->from + i];
        uint32_t bits;

        memcpy(&bits, &v, sizeof bits);
        bits = isnan(v) ? 0 : bits ^ VAR_UNKNOWN;
        for (uint32_t k = 0; k < 4; k++)
            p[k * w->n + i] = (uint8_t)(bits >> (8 * k));
    }
    if (p)
        put_unless_zero(w, COL_VAR, p, (size_t)w->n * 4, CELL_FAST);
    w->c->bytes.failed |= !p;
}

/* A single row's value stands in the summary already, unless that holds value x held. */
static bool put_values(struct writer *w)
{
    uint64_t(*v)[2] = coder_room(&w->c->array[ARRAY_WRITE_PLANES], w->n, sizeof *v);
    uint32_t m = 0, bytes = w->mode == BLOCK_WIDE ? 16 : 8;

    if (!v)
        return false;
    for (uint32_t i = w->from; i < w->from + w->n; i++) {
        if (!w->r->held && w->rank[i] >= w->many)
            continue;
        zigzag_wide(value_at(w->r, i), v[m++]);
    }
    for (uint32_t k = 0; k < bytes; k++) {
        for (uint32_t i = 0; i < m; i++)
            w->one[i] = (uint8_t)(v[i][k / 8] >> (k % 8 * 8));
        put_unless_zero(w, COL_VALUE + k, w->one, m, CELL_FAST);
    }
    return true;
}

/* ---- slices -------------------------------------------------------------------------------- */

static bool put_slice(struct writer *w)
{
    struct block_coder *c = w->c;
    const struct block_rows *r = w->r;
    uint32_t first = w->t[w->from], keys, gap;

    buf_reset(&c->entries);
    w->n_cell = 0;
    if (!put_keys(w, &keys))
        return false;
    gap = put_times(w);
    put_stacks(w);
    if (!w->ones)
        put_varints(w, COL_COUNT, NULL, r->count, 1);
    if (r->attr)
        put_varints(w, COL_ATTR, r->attr, NULL, 0);
    if (r->cpu)
        put_varints(w, COL_CPU, r->cpu, NULL, 0);
    if (r->var)
        put_variances(w);
    if (r->held)
        put_varints(w, COL_HELD, r->held, NULL, 0);
    if (w->mode >= BLOCK_VALUES && !put_values(w))
        return false;
    cell_varint(&c->directory, first);
    cell_varint(&c->directory, w->t[w->from + w->n - 1] - first);
    cell_varint(&c->directory, w->n);
    cell_varint(&c->directory, keys);
    cell_varint(&c->directory, gap);
    cell_varint(&c->directory, w->n_cell);
    buf_add(&c->directory, c->entries.p, c->entries.n);
    buf_fail(&c->directory, c->entries.failed);
    buf_fail(&c->directory, c->bytes.failed);
    return true;
}

/* Evenly, never inside one quantum: a cut of the time takes whole slices but for two. */
static int put_slices(struct writer *w, uint32_t *ret_n, struct err *err)
{
    const struct block_rows *r = w->r;
    uint32_t want = (r->n + BLOCK_SLICE - 1) / BLOCK_SLICE, made = 0;

    buf_reset(&w->c->directory);
    buf_reset(&w->c->cells);
    w->x = CODER_ARRAY(w->c, ARRAY_WRITE_NUMBER, uint32_t, r->n);
    w->one = coder_room(&w->c->scratch[0], r->n, 1);
    w->two = coder_room(&w->c->scratch[1], r->n, 1);
    if (!w->x || !w->one || !w->two || !make_times(w))
        return coder_no_memory(err);
    for (uint32_t k = 0, to = 0; k < want && to < r->n; k++) {
        w->from = to;
        to = (uint32_t)((uint64_t)r->n * (k + 1) / want);
        while (to < r->n && (to <= w->from || r->ms[to] == r->ms[to - 1]))
            to++;
        w->n = to - w->from;
        if (!put_slice(w))
            return coder_no_memory(err);
        made++;
    }
    *ret_n = made;
    return w->c->directory.failed || w->c->cells.failed ? coder_no_memory(err) : 0;
}

int block_encode(struct block_coder *c, const struct block_rows *r, uint32_t quantum,
                 struct block_meta *ret, struct buf *summary, struct buf *cols, struct err *err)
{
    struct writer w = {.c = c, .r = r, .quantum = quantum};
    uint32_t flags = 0, slices = 0;
    struct block_meta m;

    TRY(check(r, quantum, err));
    w.ones = all_ones(r);
    w.mode = mode_of(r, w.ones, &w.v);
    TRY(write_summary(&w, summary, &flags, err));
    TRY(put_slices(&w, &slices, err));
    make_meta(r, quantum, &m);
    m.flags |= flags;
    buf_chr(cols, BLOCK_VERSION);
    buf_chr(cols, (char)w.mode);
    buf_chr(cols, r->held ? BLOCK_LEVEL : 0);
    buf_chr(cols, (char)slices);
    buf_le32(cols, r->n);
    buf_le32(cols, (uint32_t)c->directory.n);
    buf_le32(cols, quantum);
    buf_le64(cols, (uint64_t)m.t0);
    buf_le64(cols, (uint64_t)w.v);
    buf_add(cols, c->directory.p, c->directory.n);
    buf_add(cols, c->cells.p, c->cells.n);
    TRY(buf_check(cols, "block: columns", err));
    m.type = ret->type;
    m.svc = ret->svc;
    m.sub = ret->sub;
    *ret = m;
    return 0;
}
