// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>

#include "storage/head_private.h"

struct head *head_new(const struct head_conf *conf)
{
    struct head *h = mem_fail_now() ? NULL : calloc(1, sizeof *h);

    if (!h)
        return NULL;
    atomic_store(&h->refs, 1);
    h->names = conf->names;
    h->epoch = conf->epoch;
    h->stats = conf->stats;
    h->oldest_ms = h->t0 = INT64_MAX;
    h->newest_ms = h->t1 = INT64_MIN;
    epoch_ref(h->epoch);
    pool_init(&h->pool);
    arena_init(&h->scratch, (size_t)1 << 30);
    vec_init(&h->group, sizeof(struct head_group *));
    vec_init(&h->touched, sizeof(uint32_t));
    map_init(&h->group_of, 0);
    if (!local_init(&h->local, &h->pool, conf->seed)) {
        head_unref(h);
        return NULL;
    }
    (void)head_publish(h, conf->lsn); /* nothing is touched yet: cannot fail */
    return h;
}

void head_ref(struct head *h)
{
    atomic_fetch_add(&h->refs, 1);
}

/* With the columns that every row has. */
static size_t chunk_bytes(uint32_t room)
{
    return sizeof(struct head_chunk) + 3 * sizeof(uint32_t) * (size_t)room;
}

static void free_chunk(struct head *h, struct head_chunk *c)
{
    size_t n = c->room;

    pool_free(&h->pool, atomic_load(&c->thread), 4 * n);
    pool_free(&h->pool, atomic_load(&c->value), 8 * n);
    pool_free(&h->pool, atomic_load(&c->count), 8 * n);
    pool_free(&h->pool, atomic_load(&c->cpu), 4 * n);
    pool_free(&h->pool, atomic_load(&c->cover), 4 * n);
    pool_free(&h->pool, atomic_load(&c->var), 8 * n);
    pool_free(&h->pool, c, chunk_bytes(c->room));
}

static void free_group(struct head *h, struct head_group *g)
{
    for (uint32_t i = 0; i < g->chunk.n; i++)
        free_chunk(h, *VEC(&g->chunk, struct head_chunk *, i));
    vec_deinit(&g->chunk, &h->pool);
    vec_deinit(&g->run, &h->pool);
    pool_free(&h->pool, g, sizeof *g);
}

void head_unref(struct head *h)
{
    if (!h || atomic_fetch_sub(&h->refs, 1) > 1)
        return;
    for (uint32_t i = 0; i < h->group.n; i++)
        free_group(h, head_group_at(h, i));
    vec_deinit(&h->group, &h->pool);
    vec_deinit(&h->touched, &h->pool);
    map_deinit(&h->group_of);
    local_deinit(&h->local);
    arena_deinit(&h->scratch);
    pool_deinit(&h->pool);
    epoch_unref(h->epoch);
    free(h);
}

/* ---- rows ---------------------------------------------------------------------------------- */

struct head_group *head_group_of(struct head *h, ptype_id type, struct dict_trie *trie)
{
    uint64_t key = (uint64_t)trie->at << 32 | type, found;
    struct head_group *g, **slot;

    if (map_get(&h->group_of, key, &found))
        return head_group_at(h, (uint32_t)found);
    g = pool_block(&h->pool, sizeof *g);
    if (!g)
        return NULL;
    g->type = type;
    g->trie = trie->id;
    g->of = trie;
    g->at = h->group.n;
    vec_init(&g->chunk, sizeof(struct head_chunk *));
    vec_init(&g->run, sizeof(struct head_run));
    slot = vec_push(&h->group, &h->pool);
    if (!slot) {
        free_group(h, g);
        return NULL;
    }
    *slot = g;
    return pool_map_put(&h->pool, &h->group_of, key, g->at) ? g : NULL;
}

static struct head_chunk *add_chunk(struct head *h, struct head_group *g, const struct head_row *r)
{
    uint32_t room = g->rows / 8 < HEAD_CHUNK_MAX ? (uint32_t)(g->rows / 8) : HEAD_CHUNK_MAX;
    struct head_chunk *c, **slot;

    room = room < HEAD_CHUNK_MIN ? HEAD_CHUNK_MIN : room & ~1u;
    c = pool_block(&h->pool, chunk_bytes(room));
    if (!c)
        return NULL;
    c->room = room;
    slot = vec_push(&g->chunk, &h->pool);
    if (!slot) {
        free_chunk(h, c);
        return NULL;
    }
    c->first = g->rows;
    c->one_thread = r->thread;
    c->period = r->period;
    c->base_ms = r->ms - INT64_C(0x80000000);
    atomic_store_explicit(&c->min_ms, INT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&c->max_ms, INT64_MIN, memory_order_relaxed);
    c->t = (uint32_t *)(c + 1);
    c->series = c->t + room;
    c->node = c->series + room;
    *slot = c;
    return c;
}

/* Columns that a row needs and the chunk has not: filled, then shown. */
static bool need_u32(struct head *h, struct head_chunk *c, _Atomic(uint32_t *) *column, bool need)
{
    uint32_t *v = atomic_load_explicit(column, memory_order_relaxed);

    if (v || !need)
        return true;
    v = pool_block(&h->pool, 4 * (size_t)c->room);
    atomic_store_explicit(column, v, memory_order_release);
    return v != NULL;
}

static bool need_thread(struct head *h, struct head_chunk *c)
{
    uint32_t *v = pool_block(&h->pool, 4 * (size_t)c->room);

    for (uint32_t i = 0; v && i < c->n; i++)
        v[i] = c->one_thread;
    atomic_store_explicit(&c->thread, v, memory_order_release);
    return v != NULL;
}

static bool need_count(struct head *h, struct head_chunk *c)
{
    uint64_t *v = pool_block(&h->pool, 8 * (size_t)c->room);

    for (uint32_t i = 0; v && i < c->n; i++)
        v[i] = 1;
    atomic_store_explicit(&c->count, v, memory_order_release);
    return v != NULL;
}

static bool need_value(struct head *h, struct head_chunk *c)
{
    const uint64_t *count = atomic_load_explicit(&c->count, memory_order_relaxed);
    int64_t *v = pool_block(&h->pool, 8 * (size_t)c->room);

    for (uint32_t i = 0; v && i < c->n; i++)
        v[i] = (int64_t)(count ? count[i] : 1) * c->period;
    atomic_store_explicit(&c->value, v, memory_order_release);
    return v != NULL;
}

static bool need_var(struct head *h, struct head_chunk *c)
{
    double *v = pool_block(&h->pool, 8 * (size_t)c->room);

    for (uint32_t i = 0; v && i < c->room; i++)
        v[i] = (double)NAN;
    atomic_store_explicit(&c->var, v, memory_order_release);
    return v != NULL;
}

static bool is_product(const struct head_row *r, int64_t period)
{
    int64_t v;

    return !__builtin_mul_overflow(r->count, period, &v) && v == r->value;
}

static bool add_columns(struct head *h, struct head_chunk *c, const struct head_row *r)
{
    uint64_t *count = atomic_load_explicit(&c->count, memory_order_relaxed);
    int64_t *value = atomic_load_explicit(&c->value, memory_order_relaxed);
    double *var = atomic_load_explicit(&c->var, memory_order_relaxed);
    uint32_t *thread = atomic_load_explicit(&c->thread, memory_order_relaxed);

    if (!thread && r->thread != c->one_thread) {
        if (!need_thread(h, c))
            return false;
        thread = atomic_load_explicit(&c->thread, memory_order_relaxed);
    }
    if (!value && !is_product(r, c->period)) {
        if (!need_value(h, c))
            return false;
        value = atomic_load_explicit(&c->value, memory_order_relaxed);
    }
    if (!count && r->count != 1) {
        if (!need_count(h, c))
            return false;
        count = atomic_load_explicit(&c->count, memory_order_relaxed);
    }
    if (!var && !isnan(r->var)) {
        if (!need_var(h, c))
            return false;
        var = atomic_load_explicit(&c->var, memory_order_relaxed);
    }
    if (!need_u32(h, c, &c->cpu, r->cpu != 0) || !need_u32(h, c, &c->cover, r->cover != 0))
        return false;
    if (thread)
        thread[c->n] = r->thread;
    if (value)
        value[c->n] = r->value;
    if (count)
        count[c->n] = r->count;
    if (var)
        var[c->n] = r->var;
    if (atomic_load_explicit(&c->cpu, memory_order_relaxed))
        atomic_load_explicit(&c->cpu, memory_order_relaxed)[c->n] = r->cpu;
    if (atomic_load_explicit(&c->cover, memory_order_relaxed))
        atomic_load_explicit(&c->cover, memory_order_relaxed)[c->n] = r->cover;
    return true;
}

bool head_add_row(struct head *h, struct head_group *g, const struct head_row *r)
{
    struct head_chunk *c = g->chunk.n ? *VEC(&g->chunk, struct head_chunk *, g->chunk.n - 1) : NULL;

    if (!g->dirty) {
        uint32_t *e = vec_push(&h->touched, &h->pool);

        if (!e)
            return false;
        *e = g->at;
        g->dirty = true;
    }
    if (!c || c->n == c->room || r->ms < c->base_ms || r->ms - c->base_ms > UINT32_MAX) {
        if (c && c->n < c->room)
            atomic_store_explicit(&c->end, c->n, memory_order_relaxed);
        c = add_chunk(h, g, r);
        if (!c)
            return false;
    }
    if (!add_columns(h, c, r))
        return false;
    c->t[c->n] = (uint32_t)(r->ms - c->base_ms);
    c->series[c->n] = r->series;
    c->node[c->n] = r->node;
    c->n++;
    if (r->ms < atomic_load_explicit(&c->min_ms, memory_order_relaxed))
        atomic_store_explicit(&c->min_ms, r->ms, memory_order_relaxed);
    if (r->ms > atomic_load_explicit(&c->max_ms, memory_order_relaxed))
        atomic_store_explicit(&c->max_ms, r->ms, memory_order_relaxed);
    if (r->ms < h->oldest_ms)
        h->oldest_ms = r->ms;
    if (r->ms > h->newest_ms)
        h->newest_ms = r->ms;
    g->rows++;
    h->rows++;
    return true;
}

uint64_t head_group_rows(const struct head *h, const struct head_group *g, uint64_t lsn)
{
    uint32_t lo = 0, hi = atomic_load_explicit(&g->n_run, memory_order_acquire);
    uint64_t since;

    if (hi == 0 || lsn <= h->lsn0)
        return 0;
    since = lsn - h->lsn0;
    while (lo < hi) { /* the first run beyond lsn */
        uint32_t mid = lo + (hi - lo) / 2;

        if (VEC(&g->run, struct head_run, mid)->lsn <= since)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? VEC(&g->run, struct head_run, lo - 1)->rows : 0;
}

void head_widen(struct head *h, struct interval t)
{
    int64_t t1 = t.t1.v > t.t0.v ? t.t1.v : t.t0.v + 1; /* an instant */

    h->t0 = t.t0.v < h->t0 ? t.t0.v : h->t0;
    h->t1 = t1 > h->t1 ? t1 : h->t1;
}

/* ---- publishing ---------------------------------------------------------------------------- */

static bool end_runs(struct head *h, uint64_t lsn)
{
    if (h->snap.rows == 0 && h->touched.n > 0)
        h->lsn0 = lsn - 1;
    for (uint32_t i = 0; i < h->touched.n; i++) {
        struct head_group *g = head_group_at(h, *VEC(&h->touched, uint32_t, i));
        struct head_run *run = vec_push(&g->run, &h->pool);

        if (!run || lsn - h->lsn0 > UINT32_MAX || g->rows > UINT32_MAX)
            return false;
        *run = (struct head_run){(uint32_t)(lsn - h->lsn0), (uint32_t)g->rows};
    }
    return true;
}

bool head_publish(struct head *h, uint64_t lsn)
{
    struct head_snap s = {.lsn = lsn,
                          .rows = h->rows,
                          .group = h->group.n,
                          .local = local_snap(&h->local),
                          .names = names_snap(h->names),
                          .oldest_ms = h->oldest_ms,
                          .newest_ms = h->newest_ms,
                          .t0 = h->t0,
                          .t1 = h->t1};

    if (s.oldest_ms <= s.newest_ms) {
        s.t0 = s.oldest_ms * NS_PER_MS < s.t0 ? s.oldest_ms * NS_PER_MS : s.t0;
        s.t1 = (s.newest_ms + 1) * NS_PER_MS > s.t1 ? (s.newest_ms + 1) * NS_PER_MS : s.t1;
    }
    if (!end_runs(h, lsn))
        return false;
    epoch_publish(h->epoch);
    for (uint32_t i = 0; i < h->touched.n; i++) {
        struct head_group *g = head_group_at(h, *VEC(&h->touched, uint32_t, i));

        dict_trie_publish(g->of);
        atomic_store_explicit(&g->n_run, g->run.n, memory_order_release);
        g->dirty = false;
    }
    h->touched.n = 0;
    atomic_fetch_add_explicit(&h->stats->rows, s.rows - h->snap.rows, memory_order_relaxed);
    mutex_lock(&h->pool.mu);
    h->snap = s;
    mutex_unlock(&h->pool.mu);
    return true;
}
