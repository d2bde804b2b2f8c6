// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/gather_private.h"

/*
 * What a scan hands out, into the accumulators of the worker that it comes to: columns, or lists
 * where most of a column would be empty, or of a trie alone what will be shown.
 */

/* ---- accumulators ------------------------------------------------------------------------------
 */

bool query_gather_budget(struct query_gather *g, uint64_t n)
{
    return atomic_fetch_add_explicit(&g->used, n, memory_order_relaxed) + n <= g->q->conf.mem_max;
}

struct query_acc *query_acc_free(struct query_acc *a)
{
    if (a) {
        free(a->sum);
        free(a->count);
        free(a->unknown);
        free(a->var);
        free(a->entry);
        free(a->thin);
        free(a);
    }
    return NULL;
}

struct acc_key {
    struct store_trie_id trie;
    uint32_t side, group;
};

static uint64_t acc_hash(struct acc_key k)
{
    uint64_t h = hash_mix((uint64_t)k.trie.epoch << 32 | k.trie.svc);

    return hash_mix(h ^ ((uint64_t)k.trie.sub << 32 | k.group)) ^ k.side;
}

static bool is_at(const struct query_acc *a, struct acc_key k)
{
    return a->trie.epoch == k.trie.epoch && a->trie.svc == k.trie.svc &&
           a->trie.sub == k.trie.sub && a->side == k.side && a->group == k.group;
}

static bool acc_columns(struct query_gather *g, struct query_acc *a)
{
    uint32_t n = a->n;

    if (!query_gather_budget(g, (uint64_t)n * (sizeof(unit_i128) + sizeof(uint64_t)) + n / 8))
        return false;
    a->sum = calloc(n, sizeof *a->sum);
    a->count = calloc(n, sizeof *a->count);
    a->unknown = calloc((n + 63) / 64, sizeof *a->unknown);
    return a->sum && a->count && a->unknown;
}

static struct query_acc *acc_new(struct query_gather *g, struct query_gather_worker *w,
                                 struct acc_key k)
{
    struct query_acc *a;
    struct store_trie t = {};
    uint32_t n = g->n_bucket;

    if (n == 0) {
        w->r = store_trie(g->q->view, k.trie, &t, &w->err);
        if (w->r < 0)
            return NULL;
        n = query_by_frame(g->q) ? t.n : t.n_fnode;
        if (query_by_frame(g->q))
            t.fnode = NULL;
    }
    w->r = -ENOMEM;
    a = query_gather_budget(g, sizeof *a) ? calloc(1, sizeof *a) : NULL;
    if (!a)
        return NULL;
    *a = (struct query_acc){
        .trie = k.trie, .side = k.side, .group = k.group, .n = n, .fnode = t.fnode};
    if (!g->listed && !acc_columns(g, a))
        return query_acc_free(a);
    w->r = 0;
    return a;
}

static bool acc_keep(struct query_gather_worker *w, struct query_acc *a)
{
    if (w->n == w->room) {
        uint32_t room = w->room ? w->room * 2 : 16;
        struct query_acc **p = realloc(w->acc, room * sizeof(void *));

        if (!p)
            return false;
        w->acc = p;
        w->room = room;
    }
    w->acc[w->n++] = a;
    return true;
}

/* The accumulator of this key; NULL, with w->r set, if there can be none. */
static struct query_acc *acc_at(struct query_gather *g, struct query_gather_worker *w,
                                struct acc_key k)
{
    uint64_t *slot, key = acc_hash(k);
    struct query_acc *a = w->last;

    if (a && is_at(a, k))
        return a;
    for (;; key++) {
        if (map_at(&w->index, key, &slot) == MAP_FULL) {
            w->r = -ENOMEM;
            return NULL;
        }
        if (*slot == 0)
            break;
        a = w->acc[*slot - 1];
        if (is_at(a, k))
            return w->last = a;
    }
    a = acc_new(g, w, k);
    if (!a)
        return NULL;
    if (!acc_keep(w, a)) {
        w->r = -ENOMEM;
        (void)query_acc_free(a);
        return NULL;
    }
    *slot = w->n;
    return w->last = a;
}

/* ---- shares ------------------------------------------------------------------------------------
 */

/* sum / den in fixed point, rounded to nearest. sum may be near 2^126: shift the remainder only. */
static unit_i128 fixed_quotient(unit_i128 sum, int64_t den)
{
    unit_i128 whole = sum / den, rest = sum % den;

    return (whole << QUERY_FIX_BITS) + ((rest << QUERY_FIX_BITS) + den / 2) / den;
}

static unit_i128 share_value(const struct query *q, const struct store_share *s, uint32_t i)
{
    unit_i128 v = s->sum.v ? s->sum.v[i] : s->sum.wide[i];

    return q->head.agg == QUERY_SUM ? v : fixed_quotient(v, s->den_ms);
}

/* Variances are rarely told: their column comes with the first share that has some. */
static bool acc_var(struct query_gather *g, struct query_acc *a)
{
    if (!a->var && query_gather_budget(g, (uint64_t)a->n * sizeof *a->var))
        a->var = calloc(a->n, sizeof *a->var);
    return a->var != NULL;
}

static void share_add(const struct query_gather *g, struct query_acc *a,
                      const struct store_share *s)
{
    if (!s->var)
        a->var_missing = true;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t at = g->n_bucket ? s->bucket : a->fnode ? a->fnode[s->node[i]] : s->node[i];

        a->sum[at] += share_value(g->q, s, i);
        a->count[at] += s->count[i];
        if (s->count_unknown)
            query_bit_set(a->unknown, at);
        if (s->var)
            a->var[at] += s->var[i];
    }
}

/* Entries in place of columns that are mostly empty. 1, 0: it needs columns, or -ENOMEM. */
static int share_list(struct query_gather *g, struct query_acc *a, const struct store_share *s)
{
    uint64_t most = 0, count = 0;
    const uint32_t *fnode, *node;
    struct query_entry *p;
    unit_i128 sum = 0;
    int64_t signs = 0;

    if (s->n == 0)
        return 1;
    if (!s->sum.v || s->var || s->count_unknown || s->n > UINT32_MAX - a->n_entry)
        return 0;
    for (uint32_t i = 0; i < s->n; i++)
        most |= s->count[i];
    if (most > UINT32_MAX)
        return 0;
    p = query_gather_budget(g, (uint64_t)s->n * sizeof *p)
            ? realloc(a->entry, ((size_t)a->n_entry + s->n) * sizeof *p)
            : NULL;
    if (!p)
        return -ENOMEM;
    a->entry = p;
    a->var_missing = true;
    p += a->n_entry;
    fnode = a->fnode;
    node = s->node;
    for (uint32_t i = 0; i < s->n; i++) {
        p[i] = (struct query_entry){fnode ? fnode[node[i]] : node[i], (uint32_t)s->count[i],
                                    s->sum.v[i]};
        sum += p[i].sum;
        count += p[i].count;
        signs |= p[i].sum;
    }
    a->entry_sum += sum;
    a->entry_count += count;
    a->below_zero |= signs < 0;
    a->n_entry += s->n;
    return 1;
}

/* What was listed, as columns. */
static bool unlist(struct query_gather *g, struct query_acc *a)
{
    assert(!a->thin);
    if (a->sum)
        return true;
    if (!acc_columns(g, a))
        return false;
    for (uint32_t i = 0; i < a->n_entry; i++) {
        a->sum[a->entry[i].node] += a->entry[i].sum;
        a->count[a->entry[i].node] += a->entry[i].count;
    }
    free(a->entry);
    a->entry = NULL;
    a->n_entry = 0;
    return true;
}

int query_gather_columns(struct query_gather *g, struct query_err *e)
{
    for (uint32_t i = 0; i < g->n_acc; i++) {
        if (!unlist(g, g->acc[i]))
            return query_no_memory(g->q, e);
    }
    g->listed = false;
    return 0;
}

/* 1: only what will be shown was kept; 0: the share is to be added up as a whole; -ENOMEM */
static int share_thin(struct query_gather *g, struct query_gather_worker *w, struct query_acc *a,
                      const struct store_share *s)
{
    struct query_thin *thin = NULL;
    struct store_trie trie = {};
    int64_t floor = 0;
    int r;

    if (a->thin) { /* the sum of both may reach the floor where neither does */
        atomic_store_explicit(&g->torn, true, memory_order_relaxed);
        return 1;
    }
    if (a->sum || a->n_entry)
        return 0;
    r = store_trie(g->q->view, s->trie, &trie, &w->err);
    if (r == 0 && trie.n_fnode == a->n && query_thin_floor(g, &trie, s, &floor))
        r = query_thin(&w->scratch, &trie, s, floor, &thin);
    if (r <= 0)
        return r;
    assert(thin);
    a->thin = thin;
    a->var_missing = true;
    a->entry_sum = thin->pick[0].sum;
    a->entry_count = thin->pick[0].count;
    return query_gather_budget(g, sizeof *thin + thin->n * sizeof thin->pick[0]) ? 1 : -ENOMEM;
}

bool query_gather_share(void *ctx, uint32_t worker, const struct store_share *s)
{
    struct query_gather *g = ctx;
    struct query_gather_worker *w = &g->worker[worker];
    struct query_acc *a;

    if (w->r < 0) /* a filter gave up */
        return false;
    if (s->sum.type != g->q->head.type.id) {
        w->r = err_set(&w->err, -EINVAL, "a share of profile type %u in a query of type %u",
                       s->sum.type, g->q->head.type.id);
        return false;
    }
    if (g->q->head.agg != QUERY_SUM && s->den_ms <= 0) {
        w->r = err_set(&w->err, -EINVAL, "a level without covered time");
        return false;
    }
    /* totals come under every trie; by bucket they all go into one row of sums */
    a = acc_at(g, w,
               (struct acc_key){g->n_bucket && !g->tries_apart ? (struct store_trie_id){} : s->trie,
                                s->side, s->group});
    if (!a)
        return false;
    if (g->thinning) {
        int r = share_thin(g, w, a, s);

        if (r)
            w->r = r < 0 ? r : 0;
        if (r)
            return r > 0;
    }
    if (g->listed && !a->sum) {
        int r = share_list(g, a, s);

        if (r == 0 && !unlist(g, a))
            r = -ENOMEM;
        if (r)
            w->r = r < 0 ? r : 0;
        if (r)
            return r > 0;
    }
    if (s->var && !acc_var(g, a)) {
        w->r = -ENOMEM;
        return false;
    }
    if (g->n_bucket && s->bucket >= g->n_bucket) {
        w->r = err_set(&w->err, -EINVAL, "bucket %u of %u", s->bucket, g->n_bucket);
        return false;
    }
    share_add(g, a, s);
    return true;
}
