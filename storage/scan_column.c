// SPDX-License-Identifier: Apache-2.0
/*
 * Rows of one block. Slices outside the range are skipped, times are decoded in those at its edge
 * only, keys only where not all series are asked for. Two ways:
 *   counting  all rows of a slice's stretch go to one cell and each weighs V: ranks are counted in
 *             an array of the block, which is added by node at the end
 *   by row    what a row belongs to is decided once per key, and per bucket
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "storage/scan_private.h"

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
    bool by_series; /* keys are read to see the series alone */
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
    p->by_series = p->keyed && p->x->one_group && !p->bit.thread && !p->side->n_window && !p->level;
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

static bool can_count(const struct columns *p)
{
    return (!p->keyed || p->by_series) && !p->by_cpu && !p->bit.cpu && p->x->one_bucket &&
           !p->vars && p->b->mode <= BLOCK_PER_COUNT && !block_has_counts(p->b);
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

/* Rows of slice k whose series is asked for, by rank, or all of them at rank 0. */
static int count_selected(struct columns *p, uint32_t k, bool one, uint32_t *count)
{
    struct scan_worker *w = p->w;
    uint8_t *takes = w->reader->takes;
    struct slice_rows r;

    TRY(slice_read(w->reader->rows->coder, p->b, &p->sum, k, SLICE_KEY | (one ? 0 : SLICE_RANK), &r,
                   &w->err));
    for (uint32_t i = 0; i < r.n_key; i++)
        takes[i] = bit_get(p->side->sel.series, r.key_series[i]);
    if (one) {
        uint32_t n = 0;

        for (uint32_t i = p->from[k]; i < p->to[k]; i++)
            n += takes[r.key[i]];
        count[0] += n;
        return 0;
    }
    for (uint32_t i = p->from[k]; i < p->to[k]; i++)
        count[r.rank[i]] += takes[r.key[i]];
    return 0;
}

static int count_slices(struct columns *p, bool one, uint32_t *count)
{
    struct scan_worker *w = p->w;
    const uint32_t n = p->sum.n;
    uint32_t beyond = 0;

    memset(count, 0, (n + (size_t)RANK_SLACK) * sizeof *count);
    for (uint32_t k = 0; k < p->b->n_slice; k++) {
        if (p->from[k] >= p->to[k])
            continue;
        if (p->keyed)
            TRY(count_selected(p, k, one, count));
        else
            TRY(slice_count(w->reader->rows->coder, p->b, k, n, p->from[k], p->to[k], count,
                            &w->err));
    }
    for (uint32_t i = 0; i < RANK_SLACK; i++)
        beyond |= count[n + i];
    return beyond ? err_set(&w->err, -EBADMSG, "block damaged: stack") : 0;
}

static int count_rows(struct columns *p)
{
    struct scan_worker *w = p->w;
    bool one = w->sc->q->want == STORE_TOTALS && !w->nodes;
    uint32_t *count = w->reader->count;
    struct scan_cell *c = scan_block_cell(w, p->x);

    if (!c)
        return w->err.code;
    c->var_missing = true;
    if (one && !p->keyed)
        return add_one(w, c, 0, p->rows, p->b->v);
    TRY(count_slices(p, one, count));
    return one ? add_one(w, c, 0, count[0], p->b->v) : add_counts(p, c, count);
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

static int by_row(struct columns *p)
{
    struct scan_worker *w = p->w;
    struct slice_rows r;

    for (uint32_t k = 0; p->level && k < p->b->n_slice; k++) /* before the first is added */
        TRY(slice_read(w->reader->rows->coder, p->b, &p->sum, k, p->want, &r, &w->err));
    for (uint32_t k = 0; k < p->b->n_slice; k++) {
        int k_r = p->from[k] < p->to[k] ? add_slice(p, k, 1) : 0;

        if (is_damage(k_r)) { /* what was added of it is taken back */
            struct err err = w->err;

            w->err = (struct err){};
            while (k-- > 0)
                if (p->from[k] < p->to[k])
                    TRY(add_slice(p, k, -1));
            w->err = err;
        }
        if (k_r < 0)
            return k_r;
    }
    return 0;
}

int scan_columns(struct scan_worker *w, const struct scan_block *x)
{
    struct columns p = {.w = w, .x = x, .side = &w->sc->side[x->side]};
    struct part_rows *r;
    struct str bytes;

    TRY(scan_reader_open(w, x->it->part));
    TRY(scan_reader_arrays(w));
    r = w->reader->rows;
    TRY(part_summary(r->handle, x->b->id, &bytes, &w->err));
    TRY(summary_open(r->coder, bytes, w->n_node, &p.sum, &w->err));
    TRY(part_cols(r->handle, x->b->id, &bytes, &w->err));
    TRY(block_open(bytes, r->block, &w->err));
    p.b = r->block;
    p.bit = selection_bits(&p.side->sel, w->source);
    plan(&p);
    TRY(find_ranges(&p));
    if (p.rows == 0)
        return 0;
    if (can_count(&p) && (w->sc->q->want == STORE_TOTALS || p.rows >= p.sum.n / COUNT_RATIO))
        return count_rows(&p);
    return by_row(&p);
}
