// SPDX-License-Identifier: Apache-2.0
/*
 * Parts, the cheapest way to each block, for each side of the question:
 *   totals of the block row   nothing is read: all of the block is asked for, as one number
 *   hsum                      all blocks of the (type, trie) are asked for whole
 *   summary                   all of the block
 *   columns                   the rest: scan_column.c
 * What cannot be read is damage of its interval in the answer; the rest answers.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/scan/scan_private.h"

/* ---- the reader ---------------------------------------------------------------------------- */

static struct scan_reader *reader_free(struct scan_reader *r)
{
    if (!r)
        return NULL;
    r->rows = part_rows_free(r->rows);
    free(r->count);
    free(r->takes);
    free(r->edge);
    free(r->key);
    free(r);
    return NULL;
}

static struct scan_reader *reader_new(void)
{
    struct scan_reader *r = mem_fail_now() ? NULL : calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->rows = part_rows_new();
    return r->rows ? r : reader_free(r);
}

int scan_reader_arrays(struct scan_worker *w)
{
    struct scan_reader *r = w->reader;

    if (r->key)
        return 0;
    free(r->count); /* of a try that failed */
    free(r->takes);
    free(r->edge);
    r->count = calloc(RANK_MAX + RANK_SLACK, sizeof *r->count);
    r->takes = calloc(BLOCK_ROWS, sizeof *r->takes);
    r->edge = calloc(BLOCK_ROWS + 1, sizeof *r->edge);
    r->key = r->count && r->takes && r->edge ? calloc(BLOCK_ROWS, sizeof *r->key) : NULL;
    return r->key ? 0 : no_memory(&w->err);
}

void scan_reader_free(struct scan_worker *w)
{
    w->reader = reader_free(w->reader);
}

int scan_reader_open(struct scan_worker *w, struct part *part)
{
    if (!w->reader)
        w->reader = reader_new();
    if (!w->reader)
        return no_memory(&w->err);
    return part_rows_enter(w->reader->rows, part, &w->err);
}

/* Memory and the question's own limits end the scan; anything else is damage. */
static bool is_damage(int r)
{
    return r < 0 && r != -ENOMEM && r != -ECANCELED && r != -ETIMEDOUT;
}

int scan_block_failed(struct scan_worker *w, const struct scan_item *it, const struct part_block *b,
                      int r)
{
    if (!is_damage(r))
        return r;
    w->capture_bad = true;
    atomic_fetch_add_explicit(&w->sc->v->s->damaged_blocks, 1, memory_order_relaxed);
    return scan_damaged(w->sc, it->source, (struct interval){{b->m.t0}, {b->m.t1}}, &w->err);
}

/* ---- what of a block is asked for ---------------------------------------------------------- */

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* False: nothing. */
static bool look_at(const struct scan *sc, struct scan_block *x)
{
    const struct scan_side *side = &sc->side[x->side];
    const struct block_meta *m = &x->b->m;
    int64_t t0 = m->t0 / NS_PER_MS, t1 = m->t1 / NS_PER_MS;

    if (!intervals_touch((struct interval){{m->t0}, {m->t1}}, side->data))
        return false;
    x->pick = scan_pick(sc, side, m->svc, m->smin, m->smax);
    x->lo = max64(t0, side->lo);
    x->hi = min64(t1, side->hi);
    if (x->pick == SCAN_NONE || (sc->q->level == STORE_SUM && x->lo >= x->hi))
        return false;
    x->inside = t0 >= side->lo && t1 <= side->hi;
    x->one_group = scan_group_one(sc, m->svc, m->smin, m->smax);
    x->one_bucket =
        sc->q->bucket_ns == 0 ||
        (x->lo < x->hi && scan_bucket(sc, side, x->lo) == scan_bucket(sc, side, x->hi - 1));
    return true;
}

/* Are its sums the answer? */
static bool is_whole(const struct scan *sc, const uint64_t *nodes, const struct scan_block *x)
{
    const struct scan_side *side = &sc->side[x->side];

    return sc->q->level == STORE_SUM && x->inside && x->pick == SCAN_ALL && x->one_group &&
           x->one_bucket && !side->sel.by_attr && !side->n_window &&
           !(nodes && (x->b->m.flags & BLOCK_UNKNOWN)); /* unknown for which nodes? */
}

/* ---- sums ---------------------------------------------------------------------------------- */

unit_i128 scan_block_bound(const struct block_meta *m)
{
    unit_i128 a = m->vmax, b = -(unit_i128)m->vmin;

    return (a > b ? a : b) * m->n;
}

struct scan_cell *scan_block_cell(struct scan_worker *w, const struct scan_block *x)
{
    const struct scan_row row = {.series = x->b->m.smin};
    struct scan_cell *c;
    uint32_t group;

    if (scan_group_of(w, &row, &group) < 0)
        return NULL;
    c = scan_cell_of(w, x->side, group, scan_bucket(w->sc, &w->sc->side[x->side], x->lo));
    return c && scan_cell_bound(w, c, scan_block_bound(&x->b->m), x->b) == 0 ? c : NULL;
}

static int add_total(struct scan_worker *w, const struct scan_block *x)
{
    const struct block_meta *m = &x->b->m;
    struct scan_cell *c = scan_block_cell(w, x);

    if (!c)
        return w->err.code;
    c->count_unknown |= (m->flags & BLOCK_UNKNOWN) != 0;
    c->var_missing = true;
    if (c->wide) {
        c->wide[0].count += m->count;
        c->wide[0].sum += m->total;
    } else {
        c->sum[0].count += m->count;
        c->sum[0].sum += (int64_t)m->total;
    }
    return 0;
}

/* One by one: a filter of nodes, one number of all, a table of nodes, variances. */
static int add_entries(struct scan_worker *w, struct scan_cell *c, const struct summary *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t count = s->count ? s->count[i] : s->freq[i];
        unit_i128 sum = summary_sum(s, i);
        uint32_t at;

        if (!bit_get(w->nodes, s->node[i]))
            continue;
        if (!scan_cell_at(w, c, s->node[i], &at) ||
            !scan_cell_var(w, c, at, s->var ? s->var[i] : (double)NAN))
            return w->err.code;
        if (c->wide) {
            c->wide[at].count += count;
            c->wide[at].sum += sum;
        } else {
            c->sum[at].count += count;
            c->sum[at].sum += (int64_t)sum;
        }
    }
    return 0;
}

static int add_summary(struct scan_worker *w, struct scan_cell *c, const struct summary *s,
                       uint32_t flags)
{
    c->count_unknown |= (flags & BLOCK_UNKNOWN) != 0;
    if (!c->dense || w->sc->q->want != STORE_STACKS || w->nodes || s->var)
        return add_entries(w, c, s);
    c->var_missing = true;
    if (c->wide)
        summary_add_wide(s, c->wide);
    else
        summary_add(s, c->sum);
    return 0;
}

static unit_i128 bound_of(const struct scan_item *it)
{
    unit_i128 sum = 0;

    for (uint32_t i = 0; i < it->n_block; i++)
        sum += scan_block_bound(&it->block[i].m);
    return sum;
}

/* Nothing but this item goes into the trie's one cell, as sums of 64 bits by stack. */
static bool is_alone(const struct scan_worker *w, const struct scan_item *it)
{
    const struct scan *sc = w->sc;

    return w->alone && !w->capture && sc->q->n_side == 1 && sc->q->want == STORE_STACKS &&
           !w->nodes && bound_of(it) <= INT64_MAX;
}

static int read_summary(struct scan_worker *w, const struct scan_block *x)
{
    struct part_rows *r;
    struct scan_cell *c;
    struct summary s;
    struct str bytes;

    TRY(scan_reader_open(w, x->it->part));
    r = w->reader->rows;
    TRY(part_summary(r->handle, x->b->id, &bytes, &w->err));
    TRY(summary_open(r->coder, bytes, w->n_node, &s, &w->err));
    if (x->alone && !s.var && !s.wide) {
        const struct scan_row row = {.series = x->b->m.smin};
        uint32_t group;

        TRY(scan_group_of(w, &row, &group));
        return scan_cell_emit_summary(
            w, &s, group, scan_bucket(w->sc, &w->sc->side[x->side], x->lo), x->b->m.flags);
    }
    c = scan_block_cell(w, x);
    return c ? add_summary(w, c, &s, x->b->m.flags) : w->err.code;
}

/* ---- one block ----------------------------------------------------------------------------- */

static int scan_block(struct scan_worker *w, const struct scan_block *x)
{
    if (!is_whole(w->sc, w->nodes, x))
        return scan_columns(w, x);
    if (w->sc->q->want == STORE_TOTALS && !w->nodes && !(x->b->m.flags & BLOCK_VARIANCES))
        return add_total(w, x);
    return read_summary(w, x);
}

/* ---- hsum ---------------------------------------------------------------------------------- */

/* Order of table hsum: type, svc, sub, span, t0. */
static int compare_hsum(const struct part_hsum *a, const struct part_hsum *b)
{
    if (a->type != b->type)
        return a->type < b->type ? -1 : 1;
    if (a->svc != b->svc)
        return a->svc < b->svc ? -1 : 1;
    if (a->sub != b->sub)
        return a->sub < b->sub ? -1 : 1;
    if (a->span != b->span)
        return a->span < b->span ? -1 : 1;
    return (a->t0.v > b->t0.v) - (a->t0.v < b->t0.v);
}

/* The one that spans the whole period; NULL: there is none. */
static const struct part_hsum *find_hsum(const struct scan_item *it)
{
    const struct part *p = it->part;
    const struct block_meta *m = &it->block->m;
    const struct part_hsum key = {
        .type = m->type,
        .svc = m->svc,
        .sub = m->sub,
        .span = (uint32_t)((p->info.period.t1.v - p->info.period.t0.v) / NS_PER_S),
        .t0 = p->info.period.t0};
    uint32_t lo = 0, hi = p->n_hsum;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (compare_hsum(&p->hsum[mid], &key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < p->n_hsum && compare_hsum(&p->hsum[lo], &key) == 0 ? &p->hsum[lo] : NULL;
}

/* Are all blocks asked for whole, in one cell? */
static bool all_whole(const struct scan *sc, const uint64_t *nodes, const struct scan_item *it,
                      uint32_t side, struct block_meta *ret)
{
    struct scan_block x = {.it = it, .side = side};
    uint32_t bucket = 0;

    *ret = it->block->m;
    ret->n = 0;
    for (uint32_t i = 0; i < it->n_block; i++) {
        const struct block_meta *m = &it->block[i].m;

        x.b = &it->block[i];
        if (!look_at(sc, &x) || !is_whole(sc, nodes, &x))
            return false;
        if (i > 0 && scan_bucket(sc, &sc->side[side], x.lo) != bucket)
            return false;
        bucket = scan_bucket(sc, &sc->side[side], x.lo);
        ret->smin = m->smin < ret->smin ? m->smin : ret->smin;
        ret->smax = m->smax > ret->smax ? m->smax : ret->smax;
        ret->flags |= m->flags;
    }
    return scan_group_one(sc, ret->svc, ret->smin, ret->smax);
}

/* True: added. False: there is none, or it cannot be read (w->err is cleared); or w->err says why
 * the scan ends. */
static bool use_hsum(struct scan_worker *w, const struct scan_item *it, uint32_t side)
{
    const struct part_hsum *h = find_hsum(it);
    const struct scan_row row = {.series = it->block->m.smin};
    struct block_meta m;
    struct scan_cell *c;
    struct summary s;
    struct str bytes;
    uint32_t group, bucket;

    if (!h || !all_whole(w->sc, w->nodes, it, side, &m))
        return false;
    if (scan_reader_open(w, it->part) < 0 ||
        part_hsum(w->reader->rows->handle, h, &bytes, &w->err) < 0 ||
        summary_open(w->reader->rows->coder, bytes, w->n_node, &s, &w->err) < 0) {
        if (is_damage(w->err.code))
            w->err = (struct err){};
        return false;
    }
    if (scan_group_of(w, &row, &group) < 0)
        return false;
    bucket = scan_bucket(w->sc, &w->sc->side[side],
                         max64(it->block->m.t0 / NS_PER_MS, w->sc->side[side].lo));
    if (is_alone(w, it) && !s.var && !s.wide)
        return scan_cell_emit_summary(w, &s, group, bucket, m.flags) == 0;
    c = scan_cell_of(w, side, group, bucket);
    return c && scan_cell_bound(w, c, bound_of(it), h) == 0 && add_summary(w, c, &s, m.flags) == 0;
}

/* ---- blocks -------------------------------------------------------------------------------- */

static bool wants_sums(const struct scan *sc, bool nodes, const struct scan_item *it)
{
    uint32_t flags = 0;

    for (uint32_t i = 0; i < it->n_block; i++)
        flags |= it->block[i].m.flags;
    return sc->q->want == STORE_STACKS || nodes || (flags & BLOCK_VARIANCES);
}

static int one_block(struct scan_worker *w, const struct scan_item *it, uint32_t block,
                     uint32_t side, bool alone)
{
    struct scan_block x = {.it = it, .b = &it->block[block], .side = side, .alone = alone};
    int r;

    if (!look_at(w->sc, &x))
        return 0;
    TRY(scan_check(w));
    r = scan_block(w, &x);
    return r < 0 ? scan_block_failed(w, it, x.b, r) : 0;
}

int scan_blocks(struct scan_worker *w, const struct scan_item *it, uint32_t from, uint32_t n)
{
    for (uint32_t s = 0; s < w->sc->q->n_side; s++)
        for (uint32_t i = from; i < from + n; i++)
            TRY(one_block(w, it, i, s, false));
    return 0;
}

/* Is one block all that is asked for? */
static bool only_one(const struct scan *sc, const struct scan_item *it, uint32_t side)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < it->n_block && n < 2; i++) {
        struct scan_block x = {.it = it, .b = &it->block[i], .side = side};

        n += look_at(sc, &x);
    }
    return n == 1;
}

static int all_blocks(struct scan_worker *w, const struct scan_item *it, uint32_t side)
{
    bool alone = is_alone(w, it) && only_one(w->sc, it, side);

    for (uint32_t i = 0; i < it->n_block; i++)
        TRY(one_block(w, it, i, side, alone));
    return 0;
}

/* ---- the cache ----------------------------------------------------------------------------- */

#define CACHE_ROWS 4096u /* less is read again as quickly */

/* Whole blocks, of some series, that come to one cell? *ret_bucket: which. */
static bool can_cache(const struct scan_worker *w, const struct scan_item *it, uint32_t side,
                      uint32_t *ret_bucket)
{
    const struct scan *sc = w->sc;
    const struct scan_side *s = &sc->side[side];
    struct scan_block x = {.it = it, .side = side};
    uint32_t smin = UINT32_MAX, smax = 0, bucket = UINT32_MAX;
    uint64_t rows = 0, least;

    if (sc->q->level != STORE_SUM || w->nodes || s->n_window || s->sel.by_attr)
        return false;
    for (uint32_t i = 0; i < it->n_block; i++) {
        const struct block_meta *m = &it->block[i].m;

        x.b = &it->block[i];
        x.pick = SCAN_ALL;
        if (!look_at(sc, &x)) {
            if (x.pick != SCAN_NONE)
                return false; /* not in range: the sum would not be that of the part */
            continue;
        }
        if (!x.inside || !x.one_bucket || (m->flags & BLOCK_VARIANCES) ||
            (bucket != UINT32_MAX && scan_bucket(sc, s, x.lo) != bucket))
            return false;
        bucket = scan_bucket(sc, s, x.lo);
        smin = m->smin < smin ? m->smin : smin;
        smax = m->smax > smax ? m->smax : smax;
        rows += x.pick == SCAN_SOME ? m->n : 0;
    }
    *ret_bucket = bucket;
    least = w->n_node > CACHE_ROWS ? w->n_node : CACHE_ROWS; /* what is captured costs by node */
    least = store_tuning.cache_rows ? store_tuning.cache_rows : least;
    return rows >= least && scan_group_one(sc, it->block->m.svc, smin, smax);
}

/* What was asked of the part: which of its series, by stack or in all. */
static bool cache_key(const struct scan_worker *w, const struct scan_item *it, uint32_t side,
                      uint64_t ret[2])
{
    const struct scan *sc = w->sc;
    const struct block_meta *m = &it->block->m;
    uint32_t smin = UINT32_MAX, smax = 0;
    struct buf b;

    for (uint32_t i = 0; i < it->n_block; i++) {
        smin = it->block[i].m.smin < smin ? it->block[i].m.smin : smin;
        smax = it->block[i].m.smax > smax ? it->block[i].m.smax : smax;
    }
    buf_init(&b, (size_t)1 << 20);
    buf_add(&b, it->part->info.uuid, sizeof it->part->info.uuid);
    buf_le32(&b, m->type);
    buf_le32(&b, m->svc);
    buf_le32(&b, m->sub);
    buf_le32(&b, sc->q->want);
    for (uint32_t k = scan_series_from(sc, m->svc, smin);
         k < sc->svc_at[m->svc + 1] && sc->by_svc[k] <= smax; k++)
        if (bit_get(sc->side[side].sel.series, sc->by_svc[k]))
            buf_le32(&b, sc->by_svc[k]);
    ret[0] = hash_bytes(b.p, b.n);
    ret[1] = hash_seed(b.p, b.n, ret[0]);
    buf_deinit(&b);
    return !b.failed;
}

static int add_cached(struct scan_worker *w, const struct scan_item *it, uint32_t side,
                      uint32_t bucket, const struct scan_cached *e)
{
    const struct scan_row row = {.series = it->block->m.smin};
    struct scan_cell *c;
    uint32_t group;

    TRY(scan_group_of(w, &row, &group));
    c = scan_cell_of(w, side, group, bucket);
    return c ? scan_cell_add_cached(w, c, e) : w->err.code;
}

/* Through the cache. */
static int cached_blocks(struct scan_worker *w, const struct scan_item *it, uint32_t side,
                         uint32_t bucket)
{
    struct scan_cache *cache = w->sc->cache;
    const struct scan_cached *e;
    struct scan_cached *new;
    uint64_t key[2];
    int r;

    if (!cache_key(w, it, side, key))
        return all_blocks(w, it, side);
    e = scan_cache_get(cache, key);
    if (e) {
        r = add_cached(w, it, side, bucket, e);
        scan_cache_put(cache, e);
        return r;
    }
    if (!scan_cell_capture(w))
        return w->err.code;
    TRY(all_blocks(w, it, side));
    new = scan_cell_captured(w);
    if (!new)
        return all_blocks(w, it, side);
    r = add_cached(w, it, side, bucket, new);
    if (r < 0 || w->capture_bad)
        scan_cache_put(cache, new);
    else
        scan_cache_add(cache, key, new);
    return r;
}

/* ---- one part ------------------------------------------------------------------------------ */

static int scan_part_side(struct scan_worker *w, const struct scan_item *it, uint32_t side)
{
    uint32_t bucket;

    if (it->n_block > 1 && wants_sums(w->sc, w->nodes != NULL, it)) {
        if (use_hsum(w, it, side))
            return 0;
        if (w->err.code)
            return w->err.code;
    }
    if (w->sc->cache && can_cache(w, it, side, &bucket))
        return cached_blocks(w, it, side, bucket);
    return all_blocks(w, it, side);
}

int scan_part(struct scan_worker *w, const struct scan_item *it)
{
    for (uint32_t s = 0; s < w->sc->q->n_side; s++)
        TRY(scan_part_side(w, it, s));
    return 0;
}

/* ---- what it costs ------------------------------------------------------------------------- */

#define SUMMARY_RATIO 4u /* rows per entry of a summary, and an entry is cheaper than a row */

static uint64_t cost_of_block(const struct scan *sc, const struct scan_block *x)
{
    const struct block_meta *m = &x->b->m;
    int64_t len = (m->t1 - m->t0) / NS_PER_MS;

    if (is_whole(sc, NULL, x))
        return sc->q->want == STORE_TOTALS ? 1 : m->n / SUMMARY_RATIO + 1;
    if (x->lo >= x->hi || len <= 0 || x->inside)
        return m->n;
    return m->n / SUMMARY_RATIO +
           (uint64_t)((double)m->n * ((double)(x->hi - x->lo) / (double)len)) + 1;
}

void scan_part_cost(const struct scan *sc, struct scan_item *it)
{
    const struct part_hsum *h = it->n_block > 1 ? find_hsum(it) : NULL;
    struct block_meta m;

    it->rows = 0;
    it->whole = true;
    for (uint32_t s = 0; s < sc->q->n_side; s++) {
        bool sums = wants_sums(sc, sc->q->nodes != NULL, it);

        if (h && sums && all_whole(sc, NULL, it, s, &m)) {
            it->rows += h->n;
            continue;
        }
        for (uint32_t i = 0; i < it->n_block; i++) {
            struct scan_block x = {.it = it, .b = &it->block[i], .side = s};

            if (!look_at(sc, &x))
                continue;
            it->rows += cost_of_block(sc, &x);
            it->whole &= !sums && is_whole(sc, NULL, &x);
        }
    }
}
