// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "query/gather_private.h"

/*
 * The store deals its tries to workers and calls share() from them: calls with one worker number
 * never overlap. So each worker has accumulators of its own, without a lock; only the budget of
 * bytes is shared. After the scan they are put in one order (trie, then group), whatever worker
 * had them, so that the same data give the same answer byte for byte.
 */

enum store_level query_level(const struct query *q)
{
    switch (q->head.agg) {
    case QUERY_AVERAGE:
        return STORE_AVERAGE;
    case QUERY_NOW:
        return STORE_NOW;
    case QUERY_AT:
        return STORE_AT;
    case QUERY_SUM:
    default:
        return STORE_SUM;
    }
}

/* ---- which nodes count -------------------------------------------------------------------------
 */

/* The scan's question which nodes count. Without an answer all do: then w->r ends the scan. */
static const uint64_t *on_nodes(void *ctx, uint32_t worker, struct store_trie_id trie)
{
    struct query_gather *g = ctx;
    struct query_gather_worker *w = &g->worker[worker];
    struct worker_bits *b;
    uint64_t bytes = 0;

    if (w->r < 0)
        return NULL;
    b = calloc(1, sizeof *b);
    if (!b) {
        w->r = -ENOMEM;
        return NULL;
    }
    b->next = w->bits;
    w->bits = b;
    if (w->filters.n == 0)
        w->r = query_filters_clone(&g->q->filters, &w->filters, &w->filter_err);
    if (w->r == 0)
        w->r = query_filters_nodes(g->q, &w->filters, trie, &b->v, &bytes, &w->filter_err);
    if (w->r == 0 && !query_gather_budget(g, bytes))
        w->r = -ENOMEM;
    return w->r < 0 ? NULL : b->v;
}

static void bits_free(struct worker_bits *b)
{
    while (b) {
        struct worker_bits *next = b->next;

        free(b->v);
        free(b);
        b = next;
    }
}

/* ---- scanning ----------------------------------------------------------------------------------
 */

struct query_gather *query_gather_free(struct query_gather *g)
{
    if (g) {
        for (uint32_t i = 0; i < g->n_worker; i++) {
            for (uint32_t k = 0; k < g->worker[i].n; k++)
                (void)query_acc_free(g->worker[i].acc[k]);
            free(g->worker[i].acc);
            map_deinit(&g->worker[i].index);
            query_filters_deinit(&g->worker[i].filters);
            bits_free(g->worker[i].bits);
            query_scratch_deinit(&g->worker[i].scratch);
        }
        free(g->worker);
        free(g);
    }
    return NULL;
}

static struct query_gather *gather_new(struct query *q, uint32_t n_bucket)
{
    struct query_gather *g = xcalloc(1, sizeof *g);

    g->q = q;
    g->n_bucket = n_bucket;
    g->n_worker = store_workers(q->view);
    g->worker = xcalloc(g->n_worker, sizeof *g->worker);
    for (uint32_t i = 0; i < g->n_worker; i++)
        map_init(&g->worker[i].index, 0);
    return g;
}

static int acc_cmp(const void *va, const void *vb)
{
    const struct query_acc *a = *(struct query_acc *const *)va;
    const struct query_acc *b = *(struct query_acc *const *)vb;

    if (a->side != b->side)
        return a->side < b->side ? -1 : 1;
    if (a->trie.epoch != b->trie.epoch)
        return a->trie.epoch < b->trie.epoch ? -1 : 1;
    if (a->trie.svc != b->trie.svc)
        return a->trie.svc < b->trie.svc ? -1 : 1;
    if (a->trie.sub != b->trie.sub)
        return a->trie.sub < b->trie.sub ? -1 : 1;
    return (a->group > b->group) - (a->group < b->group);
}

static int gather_order(struct query_gather *g, struct query_err *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < g->n_worker; i++)
        n += g->worker[i].n;
    g->acc = arena_calloc(&g->q->arena, n, sizeof(void *));
    if (!g->acc)
        return query_no_memory(g->q, e);
    for (uint32_t i = 0; i < g->n_worker; i++) {
        for (uint32_t k = 0; k < g->worker[i].n; k++)
            g->acc[g->n_acc++] = g->worker[i].acc[k];
    }
    if (n > 1)
        qsort(g->acc, n, sizeof(void *), acc_cmp);
    return 0;
}

static int gather_scan(struct query_gather *g, struct store_query *sq, struct query_err *e)
{
    struct query *q = g->q;
    struct store_sink sink = {.share = query_gather_share, .ctx = g};
    struct err err = {};
    int r;

    TRY(query_alive(q, e));
    r = store_scan(q->view, sq, &sink, &g->answer, &err);
    for (uint32_t i = 0; i < g->n_worker; i++) {
        struct query_gather_worker *w = &g->worker[i];

        if (w->r < 0 && w->filter_err.code != QUERY_OK) {
            *e = w->filter_err;
            return w->r;
        }
        if (w->r < 0) /* why a callback ended the scan */
            return query_store_failed(q, w->r, &w->err, e);
    }
    if (r < 0)
        return query_store_failed(q, r, &err, e);
    g->partial = r == STORE_PARTIAL;
    g->n_group = g->answer.n_group;
    g->group = g->answer.group;
    return gather_order(g, e);
}

static struct store_side side_of(const struct query *q)
{
    return (struct store_side){.sel = query_selector(q),
                               .range = q->head.range,
                               .n_window = q->n_window,
                               .window = q->window};
}

static void store_question(struct query *q, enum store_want want, struct store_query *ret)
{
    *ret = (struct store_query){
        .n_side = q->other ? 2 : 1,
        .side[0] = side_of(q),
        .want = want,
        .level = query_level(q),
        .at = q->at,
        .n_by = q->n_by,
        .mem_max = q->conf.mem_max,
        .deadline = q->conf.deadline,
        .cancel = q->conf.cancel,
        .arena = &q->arena,
    };
    if (q->other)
        ret->side[1] = side_of(q->other);
    for (uint32_t i = 0; i < q->n_by; i++)
        ret->by[i] = q->by[i];
}

/* Totals know nothing of stacks: the scan leaves out what the filters take. */
static void filter_totals(struct query_gather *g, struct store_query *sq)
{
    if (!g->q->filters.drops)
        return;
    sq->nodes = on_nodes;
    sq->nodes_ctx = g;
}

struct query_amount query_gather_amount(const struct query_gather *g, uint32_t side)
{
    struct query_amount a = {};

    for (uint32_t i = 0; i < g->n_acc; i++) {
        const struct query_acc *c = g->acc[i];

        for (uint32_t k = 0; k < c->n && c->side == side; k++) {
            a.total += c->sum[k];
            if (query_bit(c->unknown, k) || a.samples == BATCH_UNKNOWN)
                a.samples = BATCH_UNKNOWN;
            else
                a.samples += c->count[k];
        }
    }
    return a;
}

int query_gather_whole(struct query *q, bool filtered, struct query_amount *ret,
                       struct query_err *e)
{
    struct store_query sq;

    (void)query_gather_free(q->gather);
    q->gather = gather_new(q, 1);
    store_question(q, STORE_TOTALS, &sq);
    sq.n_by = 0;
    if (filtered)
        filter_totals(q->gather, &sq);
    TRY(gather_scan(q->gather, &sq, e));
    *ret = query_gather_amount(q->gather, 0);
    return 0;
}

int query_gather_part(struct query *q, struct interval range, struct query_gather **ret,
                      struct query_err *e)
{
    struct query_gather *g = gather_new(q, 0);
    struct store_query sq;
    int r;

    store_question(q, STORE_STACKS, &sq);
    sq.n_side = 1;
    sq.n_by = 0;
    sq.side[0].range = range;
    r = gather_scan(g, &sq, e);
    if (r < 0) {
        (void)query_gather_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

/* ---- the largest groups ------------------------------------------------------------------------
 */

struct ranked {
    uint32_t group;
    unit_i128 sum;
    const struct store_group *value;
    uint32_t n_by;
};

static int ranked_cmp(const void *va, const void *vb)
{
    const struct ranked *a = va, *b = vb;
    int r = 0;

    if (a->sum != b->sum)
        return a->sum > b->sum ? -1 : 1;
    for (uint32_t i = 0; r == 0 && i < a->n_by; i++)
        r = str_cmp(a->value->value[i], b->value->value[i]);
    return r;
}

/* Groups that are asked for, largest first. */
struct chosen {
    uint32_t n;
    struct store_group *group;
    uint8_t *lone; /* per group, and of the rest at q->groups: it has one trie */
    unit_i128 total;
};

/* A scan of totals by group and trie; the largest groups, into the arena. */
static int choose_groups(struct query *q, struct chosen *ret, struct query_err *e)
{
    struct query_gather *g = gather_new(q, 1);
    struct store_query sq;
    struct ranked *rank;
    uint32_t *tries, rest = 0;
    int r;

    (void)query_gather_free(q->gather);
    q->gather = g; /* freed with the query, whatever happens here */
    g->tries_apart = true;
    store_question(q, STORE_TOTALS, &sq);
    filter_totals(g, &sq);
    r = gather_scan(g, &sq, e);
    if (r < 0)
        return r;
    QUERY_NEW(q, &rank, g->n_group, e);
    QUERY_NEW(q, &tries, g->n_group, e);
    QUERY_NEW(q, &ret->lone, (size_t)q->groups + 1, e);
    for (uint32_t i = 0; i < g->n_group; i++)
        rank[i] = (struct ranked){.group = i, .value = &g->group[i], .n_by = q->n_by};
    for (uint32_t i = 0; i < g->n_acc; i++) {
        uint32_t group = g->acc[i]->group;

        ret->total += g->acc[i]->sum[0];
        if (group < g->n_group) {
            rank[group].sum += g->acc[i]->sum[0];
            tries[group]++;
        }
    }
    if (g->n_group > 1)
        qsort(rank, g->n_group, sizeof *rank, ranked_cmp);
    ret->n = g->n_group < q->groups ? g->n_group : q->groups;
    QUERY_NEW(q, &ret->group, ret->n, e);
    for (uint32_t i = 0; i < g->n_group; i++) {
        if (i >= ret->n) {
            rest += tries[rank[i].group];
            continue;
        }
        ret->group[i] = *rank[i].value;
        ret->lone[i] = tries[rank[i].group] == 1;
    }
    ret->lone[q->groups] = rest == 1;
    return 0;
}

/* May groups be thinned? */
static int thinning(struct query *q, const struct query_shown_ask *ask, const struct chosen *c,
                    const struct query_thinning **ret, struct query_err *e)
{
    struct query_thinning *t;

    if (!ask || ask->root || c->total > INT64_MAX)
        return 0;
    QUERY_NEW(q, &t, 1, e);
    t->width = ask->width;
    if (q->n_by) {
        t->floor = query_floor(c->total, ask->width);
        t->total = c->total;
        t->lone = c->lone;
    }
    *ret = t;
    return 0;
}

/* shown: what the tree will be made for, if groups may be thinned; else NULL. */
static int gather(struct query *q, int64_t bucket_ns, bool listed,
                  const struct query_shown_ask *shown, struct query_err *e)
{
    struct chosen chosen = {};
    struct store_query sq;
    uint32_t n_bucket = 0;
    int64_t len = 0;

    if (q->n_by)
        TRY(choose_groups(q, &chosen, e));
    if (bucket_ns > 0) {
        bool ok = interval_len(q->head.range, &len);

        assert(ok);
        (void)ok;
        n_bucket = (uint32_t)((len - 1) / bucket_ns + 1);
    }
    (void)query_gather_free(q->gather);
    q->gather = gather_new(q, n_bucket);
    q->gather->listed = listed;
    TRY(thinning(q, shown, &chosen, &q->gather->thinning, e));
    store_question(q, bucket_ns > 0 ? STORE_TOTALS : STORE_STACKS, &sq);
    if (bucket_ns > 0)
        filter_totals(q->gather, &sq);
    sq.bucket_ns = bucket_ns > 0 ? bucket_ns : 0;
    sq.n_group = chosen.n;
    sq.group = chosen.group;
    if (q->n_by && chosen.n == 0)
        sq.n_by = 0; /* nothing there to group */
    TRY(gather_scan(q->gather, &sq, e));
    if (q->n_by) { /* in the order in which they were chosen */
        q->gather->n_group = chosen.n;
        q->gather->group = chosen.group;
    }
    q->head.effective = q->gather->answer.side[0].effective;
    q->head.etag = q->gather->answer.etag;
    if (q->other) {
        q->other->gather = q->gather; /* borrowed */
        q->other->head.effective = q->gather->answer.side[1].effective;
    }
    return 0;
}

/* Does a name that occurs have a shorter one? */
static int any_template(struct query *q, bool *ret, struct query_err *e)
{
    const struct query_gather *g = q->gather;

    for (uint32_t i = 0; i < g->n_acc; i++) {
        struct store_trie t = {};
        struct err err = {};
        int r = store_trie(q->view, g->acc[i]->trie, &t, &err);

        if (r < 0)
            return query_store_failed(q, r, &err, e);
        if (query_trie_shortens(&t)) {
            *ret = true;
            return 0;
        }
    }
    *ret = false;
    return 0;
}

static int gather_stacks(struct query *q, bool listed, const struct query_shown_ask *shown,
                         struct query_err *e)
{
    TRY(gather(q, 0, listed, shown, e));
    return q->short_names ? any_template(q, &q->gather->shortens, e) : 0;
}

int query_gather(struct query *q, int64_t bucket_ns, struct query_err *e)
{
    return bucket_ns > 0 ? gather(q, bucket_ns, false, NULL, e) : gather_stacks(q, false, NULL, e);
}

/* Columns for all, where some are not listed. */
static int listed_or_columns(struct query_gather *g, struct query_err *e)
{
    uint32_t listed = 0;

    for (uint32_t i = 0; i < g->n_acc; i++)
        listed += !g->acc[i]->sum;
    return listed == g->n_acc ? 0 : query_gather_columns(g, e);
}

int query_gather_listed(struct query *q, struct query_err *e)
{
    /* levels are divided by their time: that takes columns */
    TRY(gather_stacks(q, q->head.agg == QUERY_SUM, NULL, e));
    return listed_or_columns(q->gather, e);
}

int query_gather_shown(struct query *q, const struct query_shown_ask *ask, struct query_err *e)
{
    bool may = q->head.agg == QUERY_SUM && !q->filters.n && !ask->match.n;

    if (!may)
        return query_gather_listed(q, e);
    TRY(gather_stacks(q, true, ask, e));
    if (!query_thin_any(q->gather))
        return listed_or_columns(q->gather, e);
    return query_thin_answers(q, ask) ? 0 : query_gather_listed(q, e);
}
