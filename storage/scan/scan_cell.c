// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/scan/scan_private.h"

/* Up to so many cells at once may be an array over all nodes each; beyond, a table of those met. */
#define DENSE_CELLS 4u
#define DENSE_NODES 65536u /* always */
#define DENSE_RATIO 16u    /* nodes per row, at most */

static bool eq_cell(const void *entry, const void *key)
{
    const struct scan_cell *a = ((const struct scan_cell_ref *)entry)->cell, *b = key;

    return a->side == b->side && a->group == b->group && a->bucket == b->bucket && a->den == b->den;
}

static int short_of(struct scan_worker *w)
{
    return err_set(&w->err, -ENOMEM, "query: mem_max of %" PRIu64 " bytes reached",
                   w->sc->q->mem_max ? w->sc->q->mem_max : w->sc->v->s->conf.mem_query);
}

static bool arrays(struct scan_worker *w, struct scan_cell *c, uint32_t room)
{
    struct scan_cell old = *c;

    c->sum = old.wide ? NULL : arena_array(&w->mem, struct sum_at, room);
    c->wide = old.wide ? arena_array(&w->mem, struct sum_wide, room) : NULL;
    c->node = c->dense ? NULL : arena_array(&w->mem, uint32_t, room);
    c->var = old.var ? arena_array(&w->mem, double, room) : NULL;
    if ((!c->sum && !c->wide) || (!c->dense && !c->node) || (old.var && !c->var))
        return false;
    if (old.n > 0 && !c->dense) {
        memcpy(c->node, old.node, old.n * sizeof *c->node);
        if (old.wide)
            memcpy(c->wide, old.wide, old.n * sizeof *c->wide);
        else
            memcpy(c->sum, old.sum, old.n * sizeof *c->sum);
        if (old.var)
            memcpy(c->var, old.var, old.n * sizeof *c->var);
    }
    c->room = room;
    return true;
}

/* An array over all nodes: where the rows are so many that most of them will be used. */
static bool is_dense(const struct scan_worker *w)
{
    return w->sc->q->want == STORE_TOTALS ||
           (w->cell.v.n <= DENSE_CELLS + 1 &&
            (w->n_node <= DENSE_NODES || w->n_node / DENSE_RATIO <= w->rows));
}

static struct scan_cell *make_cell(struct scan_worker *w, const struct scan_cell *key)
{
    struct scan_cell *c = arena_new(&w->mem, struct scan_cell);
    bool totals = w->sc->q->want == STORE_TOTALS;

    if (!c)
        return NULL;
    *c = (struct scan_cell){
        .side = key->side, .group = key->group, .bucket = key->bucket, .den = key->den};
    c->dense = is_dense(w);
    map_init(&c->at, 0);
    if (!arrays(w, c, !c->dense ? 16 : totals ? 1 : w->n_node))
        return NULL;
    c->n = c->dense ? c->room : 0;
    return c;
}

static struct scan_cell *new_cell(struct scan_worker *w, const struct scan_cell *key, uint64_t hash)
{
    uint32_t i = table_add(&w->cell, &w->pool, hash);
    struct scan_cell *c = i ? make_cell(w, key) : NULL;

    if (i)
        TABLE(&w->cell, struct scan_cell_ref, i)->cell = c;
    return c;
}

static struct scan_cell *cell_of(struct scan_worker *w, const struct scan_cell *key)
{
    const uint64_t field[4] = {(uint64_t)key->side << 32 | key->group, key->bucket,
                               (uint64_t)key->den, 0};
    uint64_t hash;
    uint32_t i;

    if (w->last && w->last->side == key->side && w->last->group == key->group &&
        w->last->bucket == key->bucket && w->last->den == key->den)
        return w->last;
    hash = hash_bytes(field, sizeof field);
    i = table_find(&w->cell, hash, key, eq_cell);
    w->last = i ? TABLE(&w->cell, struct scan_cell_ref, i)->cell : new_cell(w, key, hash);
    return w->last;
}

struct scan_cell *scan_cell_of(struct scan_worker *w, uint32_t side, uint32_t group,
                               uint32_t bucket)
{
    const struct scan_cell key = {.side = side, .group = group, .bucket = bucket, .den = 1};
    struct scan_cell *c = w->capture ? w->capture : cell_of(w, &key);

    if (!c)
        (void)!short_of(w);
    return c;
}

static bool place_of(struct scan_worker *w, struct scan_cell *c, uint32_t node, uint32_t *ret)
{
    uint64_t *at;

    if (c->dense) {
        *ret = w->sc->q->want == STORE_TOTALS ? 0 : node;
        return true;
    }
    switch (map_at(&c->at, node, &at)) {
    case MAP_FOUND:
        *ret = (uint32_t)*at;
        return true;
    case MAP_FULL:
        return false;
    case MAP_ADDED:
        break;
    }
    /* its table is memory of the query as well */
    if (map_bytes(&c->at) > w->sc->mem_max || (c->n == c->room && !arrays(w, c, 2 * c->room)))
        return false;
    assert(c->node);
    *at = c->n;
    c->node[c->n] = node;
    *ret = c->n++;
    return true;
}

bool scan_cell_place(struct scan_worker *w, struct scan_cell *c, uint32_t node, uint32_t *ret)
{
    return place_of(w, c, node, ret) || short_of(w) == 0;
}

static bool widen(struct scan_worker *w, struct scan_cell *c)
{
    c->wide = arena_array(&w->mem, struct sum_wide, c->room);
    for (uint32_t i = 0; c->wide && i < c->n; i++)
        c->wide[i] = (struct sum_wide){c->sum[i].sum, c->sum[i].count};
    return c->wide != NULL;
}

int scan_cell_bound(struct scan_worker *w, struct scan_cell *c, unit_i128 sum, const void *key)
{
    if (key && c->bounded_for == key)
        return 0;
    c->bounded_for = key;
    c->bound += sum;
    if (c->wide || (!c->open && c->bound <= INT64_MAX))
        return 0;
    return widen(w, c) ? 0 : short_of(w);
}

bool scan_cell_var(struct scan_worker *w, struct scan_cell *c, uint32_t at, double var)
{
    if (isnan(var)) {
        c->var_missing = true;
        return true;
    }
    if (!c->var)
        c->var = arena_array(&w->mem, double, c->room);
    if (!c->var)
        return short_of(w) == 0;
    c->var[at] += var;
    return true;
}

static bool add_at(struct scan_worker *w, struct scan_cell *c, uint32_t at, uint64_t count,
                   unit_i128 sum)
{
    int64_t narrow;

    if (!c->wide) {
        if (sum == (int64_t)sum && !__builtin_add_overflow(c->sum[at].sum, (int64_t)sum, &narrow)) {
            c->sum[at].sum = narrow;
            c->sum[at].count += count;
            return true;
        }
        if (!widen(w, c))
            return false;
    }
    c->wide[at].sum += sum;
    c->wide[at].count += count;
    return true;
}

int scan_cell_add(struct scan_worker *w, uint32_t side, uint32_t group, uint32_t bucket,
                  int64_t den, const struct scan_row *row, unit_i128 value)
{
    const struct scan_cell key = {.side = side, .group = group, .bucket = bucket, .den = den};
    struct scan_cell *c = cell_of(w, &key);
    uint32_t at;

    if (!c || !place_of(w, c, row->node, &at))
        return short_of(w);
    if (!scan_cell_var(w, c, at, row->var))
        return w->err.code;
    c->count_unknown |= row->count == 0;
    c->open = true;
    return add_at(w, c, at, row->count, value) ? 0 : short_of(w);
}

static bool is_zero(const struct scan_cell *c, uint32_t i)
{
    return c->wide ? c->wide[i].count == 0 && c->wide[i].sum == 0
                   : c->sum[i].count == 0 && c->sum[i].sum == 0;
}

/* ---- the cache ----------------------------------------------------------------------------- */

/* How many hold something. */
static uint32_t count_used(const struct scan_cell *c)
{
    uint32_t n = 0;

    for (uint32_t i = 0; c->wide && i < c->n; i++)
        n += !is_zero(c, i);
    for (uint32_t i = 0; !c->wide && i < c->n; i++) /* no branch: which do is noise */
        n += (c->sum[i].count | (uint64_t)c->sum[i].sum) != 0;
    return n;
}

bool scan_cell_capture(struct scan_worker *w)
{
    static const struct scan_cell key;

    w->capture = w->spare ? w->spare : make_cell(w, &key);
    w->spare = NULL;
    w->capture_bad = false;
    return w->capture || short_of(w) == 0;
}

/* Empty again, for the next one. */
static void clear(struct scan_cell *c)
{
    memset(c->sum, 0, c->n * sizeof *c->sum);
    map_clear(&c->at);
    c->n = c->dense ? c->room : 0;
    c->count_unknown = c->var_missing = c->open = false;
    c->bound = 0;
    c->bounded_for = NULL;
}

struct scan_cached *scan_cell_captured(struct scan_worker *w)
{
    struct scan_cell *c = w->capture;
    struct scan_cached *e = NULL;
    uint32_t n = 0, k = 0;

    w->capture = NULL;
    if (c->wide || c->var) { /* rare, and not kept */
        map_deinit(&c->at);
        return NULL;
    }
    n = count_used(c);
    e = scan_cached_new(n);
    for (uint32_t i = 0; e && i < c->n; i++) {
        if (is_zero(c, i))
            continue;
        e->node[k] = c->dense ? i : c->node[i];
        e->sum[k++] = c->sum[i];
    }
    if (e) {
        e->count_unknown = c->count_unknown;
        e->bound = (int64_t)c->bound;
    }
    clear(c);
    w->spare = c;
    return e;
}

int scan_cell_add_cached(struct scan_worker *w, struct scan_cell *c, const struct scan_cached *e)
{
    TRY(scan_cell_bound(w, c, e->bound, NULL));
    c->count_unknown |= e->count_unknown;
    c->var_missing |= e->n > 0;
    for (uint32_t i = 0; i < e->n; i++) {
        uint32_t at;

        if (!place_of(w, c, e->node[i], &at))
            return short_of(w);
        if (c->wide) {
            c->wide[at].count += e->sum[i].count;
            c->wide[at].sum += e->sum[i].sum;
        } else {
            c->sum[at].count += e->sum[i].count;
            c->sum[at].sum += e->sum[i].sum;
        }
    }
    return 0;
}

/* ---- merging ------------------------------------------------------------------------------- */

static int merge_cell(struct scan_worker *w, const struct scan_cell *from)
{
    struct scan_cell *c = cell_of(w, from);

    if (!c)
        return short_of(w);
    c->count_unknown |= from->count_unknown;
    c->var_missing |= from->var_missing;
    c->open = true;
    for (uint32_t i = 0; i < from->n; i++) {
        uint64_t count = from->wide ? from->wide[i].count : from->sum[i].count;
        unit_i128 sum = from->wide ? from->wide[i].sum : from->sum[i].sum;
        uint32_t at;

        if (count == 0 && sum == 0)
            continue;
        if (!place_of(w, c, from->dense ? i : from->node[i], &at) || !add_at(w, c, at, count, sum))
            return short_of(w);
        if (from->var && !scan_cell_var(w, c, at, from->var[i]))
            return w->err.code;
    }
    return 0;
}

int scan_cell_merge(struct scan_worker *w, const struct scan_worker *from)
{
    for (uint32_t i = 1; i < from->cell.v.n; i++)
        TRY(merge_cell(w, TABLE(&from->cell, struct scan_cell_ref, i)->cell));
    return 0;
}

/* ---- handing out --------------------------------------------------------------------------- */

static int by_node(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Columns of a share, in memory of the worker that is used again: not cleared, one more of each. */
struct columns {
    uint32_t n;
    uint32_t *node;
    uint64_t *count;
    int64_t *sum;
    unit_i128 *wide;
    double *var;
};

static void *room(struct scan_worker *w, enum scan_out which, size_t n, size_t size)
{
    struct buf *b = &w->out[which];

    buf_reset(b);
    if (b->cap == 0)
        buf_init(b, w->sc->mem_max);
    return w->mem.used + n * size > w->sc->mem_max ? NULL : buf_reserve(b, (n + 1) * size);
}

static bool columns_new(struct scan_worker *w, const struct scan_cell *c, struct columns *ret)
{
    const uint32_t n = ret->n;

    ret->node = room(w, SCAN_OUT_NODE, n, sizeof *ret->node);
    ret->count = room(w, SCAN_OUT_COUNT, n, sizeof *ret->count);
    if (c->wide)
        ret->wide = room(w, SCAN_OUT_SUM, n, sizeof *ret->wide);
    else
        ret->sum = room(w, SCAN_OUT_SUM, n, sizeof *ret->sum);
    if (c->var && !c->var_missing)
        ret->var = room(w, SCAN_OUT_VAR, n, sizeof *ret->var);
    return ret->node && ret->count && (ret->wide || ret->sum) &&
           (ret->var || !c->var || c->var_missing);
}

static void take_dense(const struct scan_cell *c, struct columns *o)
{
    uint32_t k = 0;

    for (uint32_t i = 0; i < c->n; i++) { /* one that is 0 is written over */
        o->node[k] = i;
        o->count[k] = c->sum[i].count;
        o->sum[k] = c->sum[i].sum;
        k += (c->sum[i].count | (uint64_t)c->sum[i].sum) != 0;
    }
}

static void take(const struct scan_cell *c, uint32_t i, struct columns *o, uint32_t k)
{
    o->node[k] = c->dense ? i : c->node[i];
    o->count[k] = c->wide ? c->wide[i].count : c->sum[i].count;
    if (o->wide)
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): where o is wide c is
        o->wide[k] = c->wide[i].sum;
    else
        o->sum[k] = c->sum[i].sum;
    if (o->var)
        o->var[k] = c->var[i];
}

/* By node. False: memory is short. */
static bool take_all(struct scan_worker *w, const struct scan_cell *c, struct columns *o)
{
    uint32_t k = 0;
    uint64_t *v;

    if (c->dense && !c->wide && !o->var) {
        take_dense(c, o);
        return true;
    }
    if (c->dense) {
        for (uint32_t i = 0; i < c->n; i++)
            if (!is_zero(c, i))
                take(c, i, o, k++);
        return true;
    }
    v = arena_array(&w->mem, uint64_t, o->n);
    for (uint32_t i = 0; v && i < c->n; i++)
        if (!is_zero(c, i))
            v[k++] = (uint64_t)c->node[i] << 32 | i;
    if (v && o->n > 1)
        qsort(v, o->n, sizeof *v, by_node);
    for (uint32_t i = 0; v && i < o->n; i++)
        take(c, (uint32_t)v[i], o, i);
    return v != NULL;
}

static int hand_out(struct scan_worker *w, struct store_share *sh, const struct columns *o)
{
    sh->trie = w->trie;
    sh->n = o->n;
    sh->node = o->node;
    sh->count = o->count;
    sh->sum = (struct weights){.type = w->sc->type, .n = o->n, .v = o->sum, .wide = o->wide};
    sh->var = o->var;
    sh->only = w->sc->one_share;
    return w->sc->sink->share(w->sc->sink->ctx, w->no, sh) ? 0 : cancelled(&w->err);
}

static int emit(struct scan_worker *w, struct scan_cell *c)
{
    struct columns o = {.n = count_used(c)};
    struct store_share sh = {.side = c->side,
                             .group = c->group,
                             .bucket = c->bucket,
                             .count_unknown = c->count_unknown,
                             .den_ms = c->den};

    if (o.n == 0)
        return 0;
    if (!columns_new(w, c, &o) || !take_all(w, c, &o))
        return short_of(w);
    return hand_out(w, &sh, &o);
}

int scan_cell_emit_summary(struct scan_worker *w, const struct summary *s, uint32_t group,
                           uint32_t bucket, uint32_t flags)
{
    uint64_t *count = room(w, SCAN_OUT_COUNT, s->n, sizeof *count);
    int64_t *sum = room(w, SCAN_OUT_SUM, s->n, sizeof *sum);
    struct store_share sh = {.trie = w->trie,
                             .group = group,
                             .bucket = bucket,
                             .n = s->n,
                             .node = s->node,
                             .count = count,
                             .sum = {.type = w->sc->type, .n = s->n, .v = sum},
                             .count_unknown = (flags & BLOCK_UNKNOWN) != 0,
                             .den_ms = 1,
                             .only = w->sc->one_share};

    if (!count || !sum)
        return short_of(w);
    for (uint32_t i = 0; i < s->n; i++) {
        count[i] = s->count ? s->count[i] : s->freq[i];
        sum[i] = (int64_t)summary_sum(s, i);
    }
    return w->sc->sink->share(w->sc->sink->ctx, w->no, &sh) ? 0 : cancelled(&w->err);
}

int scan_cell_emit_counts(struct scan_worker *w, const struct summary *s, const uint32_t *count,
                          int64_t v, uint32_t group, uint32_t bucket)
{
    struct columns o = {.node = room(w, SCAN_OUT_NODE, s->n, sizeof *o.node),
                        .count = room(w, SCAN_OUT_COUNT, s->n, sizeof *o.count),
                        .sum = room(w, SCAN_OUT_SUM, s->n, sizeof *o.sum)};

    if (!o.node || !o.count || !o.sum)
        return short_of(w);
    for (uint32_t i = 0; i < s->n; i++) { /* one that is 0 is written over */
        o.node[o.n] = s->node[i];
        o.count[o.n] = count[i];
        o.n += count[i] != 0;
    }
    for (uint32_t i = 0; i < o.n; i++)
        o.sum[i] = v * (int64_t)o.count[i];
    return o.n == 0
               ? 0
               : hand_out(w, &(struct store_share){.group = group, .bucket = bucket, .den_ms = 1},
                          &o);
}

int scan_cell_emit(struct scan_worker *w)
{
    for (uint32_t i = 1; i < w->cell.v.n; i++) {
        struct scan_cell *c = TABLE(&w->cell, struct scan_cell_ref, i)->cell;

        TRY(emit(w, c));
    }
    return 0;
}

void scan_cell_drop(struct scan_worker *w)
{
    for (uint32_t i = 1; i < w->cell.v.n; i++) {
        struct scan_cell_ref *ref = TABLE(&w->cell, struct scan_cell_ref, i);

        if (ref->cell)
            map_deinit(&ref->cell->at);
        *ref = (struct scan_cell_ref){};
    }
    if (w->spare)
        map_deinit(&w->spare->at);
    if (w->capture)
        map_deinit(&w->capture->at);
    w->spare = w->capture = NULL;
    if (w->cell.v.n > 1)
        w->cell.v.n = 1;
    hindex_clear(&w->cell.by_hash);
    w->last = NULL;
    arena_reset(&w->mem);
}
