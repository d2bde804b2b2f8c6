// SPDX-License-Identifier: Apache-2.0
/*
 * Rows of one block. Slices outside the range are skipped, times are decoded in those at its edge
 * only, keys only where not all series are asked for. Two ways:
 *   counting  each row weighs V. All rows to one cell: ranks are counted in an array of the block,
 *             which is added by node at the end. Stacks not asked for: keys are counted in each
 *             stretch of a slice that lies in one bucket
 *   by row    what a row belongs to is decided once per key, and per bucket
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "storage/scan/scan_private.h"

#define NEVER INT64_MAX /* ms: no row is behind it */

#define COUNT_RATIO 4u /* counting pays where a stack in so many is met */

struct columns {
    struct scan_worker *w;
    const struct scan_block *x;
    const struct scan_side *side;
    const struct block *b;
    struct summary sum;
    struct attr_bits bit;
    uint32_t want; /* enum slice_want */
    bool level, keyed, by_cpu, vars;
    uint32_t from[BLOCK_SLICES], to[BLOCK_SLICES];
    uint64_t rows;
};

/* ---- what is needed ------------------------------------------------------------------------ */

static void plan(struct columns *p)
{
    const struct scan *sc = p->w->sc;
    const struct block_meta *m = &p->x->b->m;

    p->level = sc->q->level != STORE_SUM;
    p->vars = m->flags & BLOCK_VARIANCES;
    for (uint32_t k = 0; k < sc->q->n_by; k++)
        p->by_cpu |= sc->by[k].attr == ATTR_CPU;
    p->keyed = p->x->pick != SCAN_ALL || !p->x->one_group || p->bit.thread || p->side->n_window ||
               p->level;
    p->want = SLICE_COUNT;
    if (p->keyed)
        p->want |= SLICE_KEY;
    if (p->by_cpu || p->bit.cpu)
        p->want |= SLICE_CPU;
    if (!p->x->one_bucket || p->side->n_window || p->level)
        p->want |= SLICE_TIME;
    if (sc->q->want == STORE_STACKS || p->w->nodes)
        p->want |= SLICE_RANK;
    if (p->b->mode >= BLOCK_VALUES)
        p->want |= SLICE_RANK | SLICE_VALUE;
    if (p->vars)
        p->want |= SLICE_VAR;
    if (p->level)
        p->want |= SLICE_HELD | SLICE_ATTR;
}

static int find_ranges(struct columns *p)
{
    struct scan_worker *w = p->w;

    for (uint32_t k = 0; k < p->b->n_slice; k++) {
        p->from[k] = 0;
        p->to[k] = p->b->slice[k].n;
        if (!p->level) /* a reading that began before may reach into the range */
            TRY(slice_range(w->reader->rows->coder, p->b, k, p->side->lo, p->side->hi, &p->from[k],
                            &p->to[k], &w->err));
        p->rows += p->to[k] - p->from[k];
    }
    return 0;
}

static unit_i128 value_of(const struct columns *p, const struct slice_rows *r, uint32_t i)
{
    if (r->value)
        return r->value[i];
    if (r->wide)
        return r->wide[i];
    if (p->b->mode == BLOCK_CONST || !r->count)
        return p->b->v;
    return (unit_i128)p->b->v * r->count[i];
}

/* ---- counting ------------------------------------------------------------------------------ */

/* Each row weighs V, and what becomes of it depends on its key and bucket alone. */
static bool can_count(const struct columns *p)
{
    return !p->level && !p->by_cpu && !p->bit.cpu && !p->side->n_window && !p->vars &&
           p->b->mode <= BLOCK_PER_COUNT && !block_has_counts(p->b);
}

/* By rank: all rows to one cell. */
static bool can_count_ranks(const struct columns *p)
{
    return p->x->one_group && p->x->one_bucket &&
           (p->w->sc->q->want == STORE_TOTALS || p->rows >= p->sum.n / COUNT_RATIO);
}

/* By key: stacks are not asked for; a cell is looked up for each key of each bucket. */
static bool can_count_keys(const struct columns *p)
{
    const struct scan *sc = p->w->sc;
    uint64_t stretches = p->b->n_slice, keys = 1;

    if (sc->q->want != STORE_TOTALS || p->w->nodes)
        return false;
    if (sc->q->bucket_ns)
        stretches += (uint64_t)(p->x->hi - p->x->lo) * NS_PER_MS / (uint64_t)sc->q->bucket_ns + 1;
    for (uint32_t k = 0; p->keyed && k < p->b->n_slice; k++)
        keys = p->b->slice[k].keys > keys ? p->b->slice[k].keys : keys;
    return stretches * keys <= p->b->n;
}

static int add_one(struct scan_worker *w, struct scan_cell *c, uint32_t node, uint64_t count,
                   int64_t v)
{
    uint32_t at;

    if (!scan_cell_at(w, c, node, &at))
        return w->err.code;
    if (c->wide) {
        c->wide[at].count += count;
        c->wide[at].sum += (unit_i128)v * count;
    } else {
        c->sum[at].count += count;
        c->sum[at].sum += v * (int64_t)count;
    }
    return 0;
}

static int add_counts(struct columns *p, struct scan_cell *c, const uint32_t *count)
{
    struct scan_worker *w = p->w;
    const struct summary *s = &p->sum;
    const int64_t v = p->b->v;

    if (c->dense && w->sc->q->want == STORE_STACKS && !w->nodes && !c->wide) {
        for (uint32_t i = 0; i < s->n; i++) {
            c->sum[s->node[i]].count += count[i];
            c->sum[s->node[i]].sum += v * (int64_t)count[i];
        }
        return 0;
    }
    for (uint32_t i = 0; i < s->n; i++)
        if (count[i] && bit_get(w->nodes, s->node[i]))
            TRY(add_one(w, c, s->node[i], count[i], v));
    return 0;
}

/* Which keys of slice k are asked for; *ret: how many. */
static int choose_keys(struct columns *p, uint32_t k, struct slice_rows *keys, uint32_t *ret)
{
    struct scan_worker *w = p->w;
    uint8_t *takes = w->reader->takes;
    uint32_t n = 0;

    TRY(slice_keys(w->reader->rows->coder, p->b, k, keys, &w->err));
    for (uint32_t i = 0; i < keys->n_key; i++) {
        takes[i] = bit_get(p->side->sel.series, keys->key_series[i]) &&
                   bit_get(p->bit.thread, keys->key_thread[i]);
        n += takes[i];
    }
    *ret = n;
    return 0;
}

static int emit_counts(struct columns *p, const uint32_t *count)
{
    const struct scan_block *x = p->x;
    const struct scan_row row = {.series = x->b->m.smin};
    uint32_t group;

    TRY(scan_group_of(p->w, &row, &group));
    return scan_cell_emit_counts(p->w, &p->sum, count, p->b->v, group,
                                 scan_bucket(p->w->sc, p->side, x->lo));
}

/* Rows of slice k by rank. */
static int count_slice(struct columns *p, uint32_t k, uint32_t *count)
{
    struct scan_worker *w = p->w;
    const uint8_t *takes = NULL;
    struct slice_rows keys;

    if (p->keyed) {
        uint32_t n;

        TRY(choose_keys(p, k, &keys, &n));
        if (n == 0)
            return 0;
        takes = n < keys.n_key ? w->reader->takes : NULL;
    }
    return slice_count(w->reader->rows->coder, p->b, k, p->sum.n, p->from[k], p->to[k], takes,
                       count, &w->err);
}

static int count_slices(struct columns *p, uint32_t *count)
{
    const uint32_t n = p->sum.n;
    uint32_t beyond = 0;

    memset(count, 0, (n + (size_t)RANK_SLACK) * sizeof *count);
    for (uint32_t k = 0; k < p->b->n_slice; k++)
        if (p->from[k] < p->to[k])
            TRY(count_slice(p, k, count));
    for (uint32_t i = 0; i < RANK_SLACK; i++)
        beyond |= count[n + i];
    return beyond ? err_set(&p->w->err, -EBADMSG, "block damaged: stack") : 0;
}

static int count_ranks(struct columns *p)
{
    struct scan_worker *w = p->w;
    uint32_t *count = w->reader->count;
    struct scan_cell *c;

    TRY(count_slices(p, count));
    if (p->x->alone)
        return emit_counts(p, count);
    c = scan_block_cell(w, p->x);
    if (!c)
        return w->err.code;
    c->var_missing = true;
    return add_counts(p, c, count);
}

/* Where the stretches of slice k end that lie in one bucket each; *ret_first: its first bucket. */
static int find_edges(struct columns *p, uint32_t k, uint32_t *ret_first, uint32_t *ret_n)
{
    const struct scan *sc = p->w->sc;
    const struct block_slice *s = &p->b->slice[k];
    int64_t lo = slice_first_ms(p->b, s), hi = slice_last_ms(p->b, s);
    uint32_t *edge = p->w->reader->edge, first, n;

    lo = lo > p->x->lo ? lo : p->x->lo;
    hi = hi < p->x->hi ? hi : p->x->hi - 1;
    if (lo > hi)
        return err_set(&p->w->err, -EBADMSG, "block damaged: time");
    first = scan_bucket(sc, p->side, lo);
    n = scan_bucket(sc, p->side, hi) - first + 1;
    edge[0] = p->from[k];
    edge[n] = p->to[k];
    *ret_first = first;
    *ret_n = n;
    if (n == 1)
        return 0;
    return slice_edges(p->w->reader->rows->coder, p->b, k,
                       p->side->range.t0.v + (first + 1) * sc->q->bucket_ns, sc->q->bucket_ns,
                       n - 1, edge + 1, &p->w->err);
}

static int add_stretch(struct columns *p, const struct scan_row *row, uint32_t bucket, int64_t rows)
{
    struct scan_worker *w = p->w;
    struct scan_cell *c;
    uint32_t group;

    if (rows == 0)
        return 0;
    TRY(scan_group_of(w, row, &group));
    c = scan_cell_of(w, p->x->side, group, bucket);
    if (!c || scan_cell_bound(w, c, scan_block_bound(&p->x->b->m), p->x->b) < 0)
        return w->err.code;
    c->var_missing = true;
    return add_one(w, c, 0, (uint64_t)rows, p->b->v);
}

/* Rows of slice k by key and bucket. sign -1: they are taken back. */
static int add_keys(struct columns *p, uint32_t k, int sign)
{
    struct scan_reader *r = p->w->reader;
    struct slice_rows keys = {.n_key = 1};
    struct scan_row row = {.series = p->x->b->m.smin};
    uint32_t first = 0, n = 0, chosen;

    if (p->keyed) {
        TRY(choose_keys(p, k, &keys, &chosen));
        if (chosen == 0)
            return 0;
    }
    TRY(find_edges(p, k, &first, &n));
    for (uint32_t e = 0; !p->keyed && e < n; e++)
        TRY(add_stretch(p, &row, first + e, sign * (int64_t)(r->edge[e + 1] - r->edge[e])));
    if (!p->keyed)
        return 0;
    TRY(slice_count_keys(r->rows->coder, p->b, k, n + 1, r->edge, r->count, &p->w->err));
    for (uint32_t i = 0; i < keys.n_key; i++) {
        row.series = keys.key_series[i];
        row.thread = keys.key_thread[i];
        for (uint32_t e = 0; r->takes[i] && e < n; e++)
            TRY(add_stretch(p, &row, first + e, sign * (int64_t)r->count[e * keys.n_key + i]));
    }
    return 0;
}

/* ---- by row -------------------------------------------------------------------------------- */

/* The slice that is being read. */
struct stretch {
    const struct slice_rows *r;
    uint32_t stamp, bucket;
    int64_t edge; /* ms where the bucket ends */
    int sign;
};

static int64_t ms_at(const struct columns *p, const struct slice_rows *r, uint32_t i)
{
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): asked for where there is an edge
    return p->b->origin_ms + (int64_t)r->t[i] * p->b->quantum;
}

static int64_t bucket_end(const struct columns *p, uint32_t bucket)
{
    int64_t end;

    if (__builtin_mul_overflow(p->w->sc->q->bucket_ns, (int64_t)bucket + 1, &end) ||
        __builtin_add_overflow(end, p->side->range.t0.v, &end))
        return NEVER;
    return ms_ceil((real_ns){end});
}

static bool takes_key(const struct columns *p, const struct slice_rows *r, uint32_t k)
{
    struct scan_key *key = &p->w->reader->key[k];

    if (!key->known) {
        key->known = true;
        key->takes = bit_get(p->side->sel.series, r->key_series[k]) &&
                     bit_get(p->bit.thread, r->key_thread[k]);
    }
    return key->takes;
}

static bool takes(const struct columns *p, const struct slice_rows *r, uint32_t i)
{
    const struct scan_worker *w = p->w;

    if (r->key && !takes_key(p, r, r->key[i]))
        return false;
    if (p->bit.cpu && !bit_get(p->bit.cpu, r->cpu ? r->cpu[i] : 0))
        return false;
    if (w->nodes && !bit_get(w->nodes, p->sum.node[r->rank[i]]))
        return false;
    if (!p->side->n_window)
        return true;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): windows ask for keys
    return scan_in_window(w, p->side, r->key_thread[r->key[i]], ms_at(p, r, i));
}

static struct scan_row row_at(const struct columns *p, const struct slice_rows *r, uint32_t i)
{
    return (struct scan_row){.series = r->key ? r->key_series[r->key[i]] : p->x->b->m.smin,
                             .thread = r->key ? r->key_thread[r->key[i]] : 0,
                             .cpu = r->cpu ? r->cpu[i] : 0,
                             .node = r->rank ? p->sum.node[r->rank[i]] : 0,
                             .count = r->count ? r->count[i] : 1,
                             .var = r->var ? (double)r->var[i] : (double)NAN};
}

static struct scan_cell *find_cell(struct columns *p, const struct stretch *st, uint32_t i)
{
    const struct scan_row row = row_at(p, st->r, i);
    struct scan_worker *w = p->w;
    struct scan_cell *c;
    uint32_t group;

    if (scan_group_of(w, &row, &group) < 0)
        return NULL;
    c = scan_cell_of(w, p->x->side, group, st->bucket);
    if (!c || scan_cell_bound(w, c, scan_block_bound(&p->x->b->m), p->x->b) < 0)
        return NULL;
    c->var_missing |= !p->vars;
    return c;
}

static struct scan_cell *cell_of_row(struct columns *p, struct stretch *st, uint32_t i)
{
    struct scan_key *key = &p->w->reader->key[st->r->key ? st->r->key[i] : 0];

    if (st->r->t && ms_at(p, st->r, i) >= st->edge) {
        st->bucket = scan_bucket(p->w->sc, p->side, ms_at(p, st->r, i));
        st->edge = bucket_end(p, st->bucket);
        st->stamp++;
    }
    if (key->stamp == st->stamp && !p->by_cpu)
        return key->cell;
    key->cell = find_cell(p, st, i);
    key->stamp = st->stamp;
    return key->cell;
}

static int add_row(struct columns *p, struct stretch *st, uint32_t i)
{
    const struct slice_rows *r = st->r;
    struct scan_cell *c = cell_of_row(p, st, i);
    uint64_t count = r->count ? r->count[i] : 1;
    unit_i128 value = value_of(p, r, i);
    uint32_t at;

    if (!c || !scan_cell_at(p->w, c, r->rank ? p->sum.node[r->rank[i]] : 0, &at))
        return p->w->err.code;
    c->count_unknown |= count == 0;
    if (p->vars &&
        !scan_cell_var(p->w, c, at, r->var ? (double)(r->var[i] * (float)st->sign) : (double)NAN))
        return p->w->err.code;
    if (st->sign < 0) { /* taken back */
        count = -count;
        value = -value;
    }
    if (c->wide) {
        c->wide[at].count += count;
        c->wide[at].sum += value;
    } else {
        c->sum[at].count += count;
        c->sum[at].sum += (int64_t)value;
    }
    return 0;
}

static int add_reading(struct columns *p, const struct slice_rows *r, uint32_t i)
{
    struct scan_row row = row_at(p, r, i);
    int64_t lo = ms_at(p, r, i);

    row.value = (int64_t)value_of(p, r, i);
    return scan_level_add(p->w, p->x->side, &row, r->attr ? r->attr[i] : 0, lo,
                          lo + (r->held ? r->held[i] : 0));
}

static int add_slice(struct columns *p, uint32_t k, int sign)
{
    struct scan_worker *w = p->w;
    struct slice_rows r;
    struct stretch st = {.r = &r, .stamp = 1, .edge = INT64_MIN, .sign = sign};

    TRY(slice_read(w->reader->rows->coder, p->b, &p->sum, k, p->want, &r, &w->err));
    memset(w->reader->key, 0, (r.n_key ? r.n_key : 1) * sizeof *w->reader->key);
    if (!r.t || w->sc->q->bucket_ns == 0) {
        st.bucket = scan_bucket(w->sc, p->side, p->x->lo);
        st.edge = NEVER;
    }
    for (uint32_t i = p->from[k]; i < p->to[k]; i++)
        if (takes(p, &r, i))
            TRY(p->level ? add_reading(p, &r, i) : add_row(p, &st, i));
    return 0;
}

static bool is_damage(int r)
{
    return r == -EBADMSG;
}

/* Slice by slice. What was added of a block is taken back where one is damaged. */
static int each_slice(struct columns *p, int (*add)(struct columns *p, uint32_t k, int sign))
{
    struct scan_worker *w = p->w;

    for (uint32_t k = 0; k < p->b->n_slice; k++) {
        int k_r = p->from[k] < p->to[k] ? add(p, k, 1) : 0;

        if (is_damage(k_r)) {
            struct err err = w->err;

            w->err = (struct err){};
            while (k-- > 0)
                if (p->from[k] < p->to[k])
                    TRY(add(p, k, -1));
            w->err = err;
        }
        if (k_r < 0)
            return k_r;
    }
    return 0;
}

static int by_row(struct columns *p)
{
    struct scan_worker *w = p->w;
    struct slice_rows r;

    for (uint32_t k = 0; p->level && k < p->b->n_slice; k++) /* before the first is added */
        TRY(slice_read(w->reader->rows->coder, p->b, &p->sum, k, p->want, &r, &w->err));
    return each_slice(p, add_slice);
}

int scan_columns(struct scan_worker *w, const struct scan_block *x)
{
    struct columns p = {.w = w, .x = x, .side = &w->sc->side[x->side]};
    struct part_rows *r;
    struct str bytes;

    TRY(scan_reader_open(w, x->it->part));
    TRY(scan_reader_arrays(w));
    r = w->reader->rows;
    TRY(part_cols(r->handle, x->b->id, &bytes, &w->err));
    TRY(block_open(bytes, r->block, &w->err));
    p.b = r->block;
    p.bit = selection_bits(&p.side->sel, w->source);
    plan(&p);
    TRY(find_ranges(&p));
    if (p.rows == 0)
        return 0;
    if (can_count(&p) && can_count_keys(&p))
        return each_slice(&p, add_keys);
    TRY(part_summary(r->handle, x->b->id, &bytes, &w->err));
    TRY(summary_open(r->coder, bytes, w->n_node, &p.sum, &w->err));
    return can_count(&p) && can_count_ranks(&p) ? count_ranks(&p) : by_row(&p);
}
