// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "storage/head/head_private.h"

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

/* put() writes eight bytes at once. */
static size_t column_bytes(uint32_t room, uint32_t width)
{
    return sizeof(struct head_column) + (size_t)room * width + sizeof(uint64_t);
}

static void free_chunk(struct head *h, struct head_chunk *c)
{
    for (int k = 0; k < HEAD_COLUMNS; k++) {
        struct head_column *v = atomic_load(&c->column[k]);

        pool_free(&h->pool, v, v ? column_bytes(c->room, v->width) : 0);
    }
    pool_free(&h->pool, c, sizeof *c);
}

static size_t runs_bytes(uint32_t room)
{
    return sizeof(struct head_runs) + room * sizeof(struct head_run);
}

static void free_group(struct head *h, struct head_group *g)
{
    struct head_runs *runs = atomic_load(&g->runs);

    for (uint32_t i = 0; i < g->chunk.n; i++)
        free_chunk(h, *VEC(&g->chunk, struct head_chunk *, i));
    vec_deinit(&g->chunk, &h->pool);
    if (runs)
        pool_free(&h->pool, runs, runs_bytes(runs->room));
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
    slot = vec_push(&h->group, &h->pool);
    if (!slot) {
        free_group(h, g);
        return NULL;
    }
    *slot = g;
    return pool_map_put(&h->pool, &h->group_of, key, g->at) ? g : NULL;
}

static struct head_chunk *add_chunk(struct head *h, struct head_group *g, int64_t ms,
                                    int64_t period)
{
    uint32_t room = g->rows / 8 < HEAD_CHUNK_MAX ? (uint32_t)(g->rows / 8) : HEAD_CHUNK_MAX;
    struct head_chunk *c = pool_block(&h->pool, sizeof *c), **slot;

    if (!c)
        return NULL;
    slot = vec_push(&g->chunk, &h->pool);
    if (!slot) {
        free_chunk(h, c);
        return NULL;
    }
    c->room = room < HEAD_CHUNK_MIN ? HEAD_CHUNK_MIN : room;
    c->first = g->rows;
    c->period = period;
    c->base_ms = ms;
    atomic_store_explicit(&c->min_ms, INT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&c->max_ms, INT64_MIN, memory_order_relaxed);
    *slot = c;
    return c;
}

static uint32_t width_of(uint64_t x)
{
    return x ? (71 - (uint32_t)__builtin_clzll(x)) / 8 : 1;
}

/* Numbers of rows from i on. They come in order: what is written behind the last one's bytes is of
 * rows that are still to come. */
static void put(struct head_column *v, uint32_t i, const uint64_t *x, uint32_t n)
{
    uint8_t *p = v->v + (size_t)i * v->width;

    if (v->width == 1) {
        for (uint32_t k = 0; k < n; k++)
            p[k] = (uint8_t)x[k];
        return;
    }
    for (uint32_t k = 0; k < n; k++, p += v->width) {
        uint64_t le = htole64(x[k]);

        memcpy(p, &le, sizeof le);
    }
}

static uint64_t held(const struct head_rows *r, enum head_what what, uint32_t i)
{
    return what == HEAD_VALUE ? (uint64_t)head_value(r, i) : head_number(r, what, i);
}

/* A column with so many bytes in every row: what it holds so far is copied, then it is shown. */
static struct head_column *widen(struct head *h, struct head_chunk *c, enum head_what what,
                                 uint32_t width)
{
    struct head_column *old = atomic_load_explicit(&c->column[what], memory_order_relaxed), *new;
    struct head_rows rows;

    head_rows_of(c, &rows);
    for (uint32_t i = 0; !old && i < c->n; i++)
        width = width_of(held(&rows, what, i)) > width ? width_of(held(&rows, what, i)) : width;
    new = pool_block(&h->pool, column_bytes(c->room, width));
    if (!new)
        return NULL;
    new->width = width;
    for (uint32_t i = 0; i < c->n; i++)
        put(new, i, &(uint64_t){held(&rows, what, i)}, 1);
    atomic_store_explicit(&c->column[what], new, memory_order_release);
    if (old)
        pool_retire(&h->pool, old, column_bytes(c->room, old->width));
    return new;
}

static bool add_numbers(struct head *h, struct head_chunk *c, enum head_what what,
                        const uint64_t *x, uint32_t n)
{
    struct head_column *v = atomic_load_explicit(&c->column[what], memory_order_relaxed);
    uint64_t bits = 0;

    for (uint32_t i = 0; i < n; i++)
        bits |= x[i];
    if (!v || width_of(bits) > v->width)
        v = widen(h, c, what, width_of(bits));
    if (!v)
        return false;
    put(v, c->n, x, n);
    return true;
}

static bool all_same(const uint64_t *x, uint32_t n, uint64_t same)
{
    uint64_t bits = 0;

    for (uint32_t i = 0; i < n; i++)
        bits |= x[i] ^ same;
    return bits == 0;
}

static bool all_products(const struct head_batch *b, uint32_t from, uint32_t n, int64_t period)
{
    for (uint32_t i = from; i < from + n; i++) {
        int64_t v;

        if (__builtin_mul_overflow(b->v[HEAD_COUNT][i], period, &v) ||
            v != (int64_t)b->v[HEAD_VALUE][i])
            return false;
    }
    return true;
}

/* Rows [from, from + n) of b, for which the chunk has room. */
static bool add_columns(struct head *h, struct head_chunk *c, struct head_batch *b, uint32_t from,
                        uint32_t n)
{
    for (uint32_t i = from; i < from + n; i++) {
        int64_t ms = b->ms[i] - c->base_ms;

        b->v[HEAD_TIME][i] = (uint64_t)ms << 1 ^ (uint64_t)(ms >> 63);
    }
    for (int k = 0; k < HEAD_COLUMNS; k++) {
        const uint64_t *x = b->v[k] + from;

        if (c->n == 0)
            c->same[k] = x[0];
        if (!atomic_load_explicit(&c->column[k], memory_order_relaxed) &&
            (k == HEAD_VALUE ? all_products(b, from, n, c->period) : all_same(x, n, c->same[k])))
            continue;
        if (!add_numbers(h, c, (enum head_what)k, x, n))
            return false;
    }
    return true;
}

static void add_times(struct head *h, struct head_chunk *c, const int64_t *ms, uint32_t n)
{
    int64_t least = ms[0], most = ms[0];

    for (uint32_t i = 1; i < n; i++) {
        least = ms[i] < least ? ms[i] : least;
        most = ms[i] > most ? ms[i] : most;
    }
    if (least < atomic_load_explicit(&c->min_ms, memory_order_relaxed))
        atomic_store_explicit(&c->min_ms, least, memory_order_relaxed);
    if (most > atomic_load_explicit(&c->max_ms, memory_order_relaxed))
        atomic_store_explicit(&c->max_ms, most, memory_order_relaxed);
    h->oldest_ms = least < h->oldest_ms ? least : h->oldest_ms;
    h->newest_ms = most > h->newest_ms ? most : h->newest_ms;
}

static bool touch(struct head *h, struct head_group *g)
{
    uint32_t *e = g->dirty ? NULL : vec_push(&h->touched, &h->pool);

    if (e)
        *e = g->at;
    g->dirty = g->dirty || e;
    return g->dirty;
}

bool head_add_rows(struct head *h, struct head_group *g, struct head_batch *b)
{
    struct head_chunk *c = g->chunk.n ? *VEC(&g->chunk, struct head_chunk *, g->chunk.n - 1) : NULL;

    if (b->n > 0 && !touch(h, g))
        return false;
    for (uint32_t from = 0, n; from < b->n; from += n) {
        if (!c || c->n == c->room)
            c = add_chunk(h, g, b->ms[from], b->period);
        if (!c)
            return false;
        n = b->n - from < c->room - c->n ? b->n - from : c->room - c->n;
        if (!add_columns(h, c, b, from, n))
            return false;
        add_times(h, c, b->ms + from, n);
        c->n += n;
        g->rows += n;
        h->rows += n;
    }
    b->n = 0;
    return true;
}

/* How many of n runs have an LSN of at most `since`. */
static uint32_t runs_until(const struct head_runs *r, uint32_t n, uint64_t since)
{
    uint32_t lo = 0, hi = n;

    while (lo < hi) { /* the first run beyond */
        uint32_t mid = lo + (hi - lo) / 2;

        if (r->v[mid].lsn <= since)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint64_t head_group_rows(const struct head *h, const struct head_group *g, uint64_t lsn)
{
    const struct head_runs *r = atomic_load_explicit(&g->runs, memory_order_acquire);
    uint32_t n;

    if (!r || lsn <= h->lsn0)
        return 0;
    n = runs_until(r, atomic_load_explicit(&r->n, memory_order_acquire), lsn - h->lsn0);
    return n ? r->v[n - 1].rows : 0;
}

void head_widen(struct head *h, struct interval t)
{
    int64_t t1 = t.t1.v > t.t0.v ? t.t1.v : t.t0.v + 1; /* an instant */

    h->t0 = t.t0.v < h->t0 ? t.t0.v : h->t0;
    h->t1 = t1 > h->t1 ? t1 : h->t1;
}

/* ---- publishing ---------------------------------------------------------------------------- */

void head_enter(struct head *h, struct head_reader *r, struct head_snap *ret)
{
    mutex_lock(&h->pool.mu);
    h->pool.readers++;
    *ret = h->snap;
    *r = (struct head_reader){.before = h->last_reader, .lsn = h->snap.lsn};
    *(r->before ? &r->before->after : &h->first_reader) = r;
    h->last_reader = r;
    mutex_unlock(&h->pool.mu);
}

void head_leave(struct head *h, struct head_reader *r)
{
    mutex_lock(&h->pool.mu);
    *(r->before ? &r->before->after : &h->first_reader) = r->after;
    *(r->after ? &r->after->before : &h->last_reader) = r->before;
    mutex_unlock(&h->pool.mu);
    pool_leave(&h->pool);
}

/* The least LSN that somebody sees, now or later. */
static uint64_t least_seen(struct head *h)
{
    uint64_t lsn;

    mutex_lock(&h->pool.mu);
    lsn = h->first_reader ? h->first_reader->lsn : h->snap.lsn;
    mutex_unlock(&h->pool.mu);
    return lsn;
}

/* Room for one more: without what nobody asks for, or twice as much. */
static struct head_runs *more_runs(struct head *h, struct head_group *g, uint64_t seen)
{
    struct head_runs *old = atomic_load_explicit(&g->runs, memory_order_relaxed), *new;
    uint32_t n = old ? atomic_load_explicit(&old->n, memory_order_relaxed) : 0, from, room;

    if (old && n < old->room)
        return old;
    from = old && seen > h->lsn0 ? runs_until(old, n, seen - h->lsn0) : 0;
    from = from ? from - 1 : 0; /* the last one before is what is seen */
    room = n - from < 3 ? 4 : 2 * (n - from);
    new = pool_block(&h->pool, runs_bytes(room));
    if (!new)
        return NULL;
    new->room = room;
    if (old)
        memcpy(new->v, old->v + from, (n - from) * sizeof *new->v);
    atomic_store_explicit(&new->n, n - from, memory_order_relaxed);
    atomic_store_explicit(&g->runs, new, memory_order_release);
    if (old)
        pool_retire(&h->pool, old, runs_bytes(old->room));
    return new;
}

static bool end_runs(struct head *h, uint64_t lsn)
{
    uint64_t seen = least_seen(h);

    if (h->snap.rows == 0 && h->touched.n > 0)
        h->lsn0 = lsn - 1;
    for (uint32_t i = 0; i < h->touched.n; i++) {
        struct head_group *g = head_group_at(h, *VEC(&h->touched, uint32_t, i));
        struct head_runs *r = more_runs(h, g, seen);

        if (!r || lsn - h->lsn0 > UINT32_MAX || g->rows > UINT32_MAX)
            return false;
        r->v[atomic_load_explicit(&r->n, memory_order_relaxed)] =
            (struct head_run){(uint32_t)(lsn - h->lsn0), (uint32_t)g->rows};
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
        struct head_runs *r = atomic_load_explicit(&g->runs, memory_order_relaxed);

        dict_trie_publish(g->of);
        atomic_fetch_add_explicit(&r->n, 1, memory_order_release);
        g->dirty = false;
    }
    h->touched.n = 0;
    atomic_fetch_add_explicit(&h->stats->rows, s.rows - h->snap.rows, memory_order_relaxed);
    mutex_lock(&h->pool.mu);
    h->snap = s;
    mutex_unlock(&h->pool.mu);
    return true;
}
