// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "bench/bench_store.h"
#include "server/api.h"
#include "server/msg.h"
#include "storage/keep/store_private.h"

#define BUCKETS ((size_t)(DATA_SPAN_MS / DATA_BUCKET))

const char *const question_name[QUESTIONS] = {
    [Q_ONE] = "one",
    [Q_ALL] = "all",
    [Q_MERGED] = "merged",
    [Q_ONE_TEN] = "one_ten",
    [Q_TOP] = "top",
    [Q_DIFF] = "diff",
    [Q_ONE_SHORT] = "one_short",
    [Q_MERGED_SHORT] = "merged_short",
    [Q_TOP_SHORT] = "top_short",
    [Q_CALLERS] = "callers",
    [Q_CALLERS_SHORT] = "callers_short",
    [Q_CALLERS_MERGED] = "callers_merged",
    [Q_TOP_ALL] = "top_all",
    [Q_TOP_BIN] = "top_bin",
    [Q_TOP_BY] = "top_by",
    [Q_ONE_SUM] = "one_sum",
    [Q_ALL_SUM] = "all_sum",
    [Q_ALL_RAW] = "all_raw",
    [Q_CUT_ONE] = "cut_one",
    [Q_CUT] = "cut",
    [Q_SERIES] = "series",
};

/* ---- through the API ------------------------------------------------------------------------- */

void bench_get(struct bench *b, const char *path, const struct bench_param *p, uint32_t n,
               struct msg_reply *reply)
{
    struct msg_param param[8];
    struct msg_request q = {.method = STR("GET"),
                            .path = str_c(path),
                            .n_param = n,
                            .param = param,
                            .accept = STR("application/json"),
                            .now = {atomic_load(&b->now)}};

    for (uint32_t i = 0; i < n; i++)
        param[i] = (struct msg_param){str_c(p[i].name), str_c(p[i].value)};
    *reply = (struct msg_reply){};
    api_handle(b->api, &q, reply);
    if (reply->status != 200)
        data_die("%s: status %d: %.*s", path, reply->status, STR_ARG(buf_view(&reply->body)));
}

/* minutes of the hour as from and to */
static void range_of(const struct bench *b, int64_t from_ms, int64_t to_ms, char from[40],
                     char to[40])
{
    (void)real_ns_format((real_ns){b->hour.v + from_ms * NS_PER_MS}, from);
    (void)real_ns_format((real_ns){b->hour.v + to_ms * NS_PER_MS}, to);
}

/* What a question asks beside its range. */
struct asked {
    const char *path;
    bool all, by, flat;       /* of all services; each by itself; under short names */
    const char *name, *value; /* one more parameter; NULL: none */
};

static const struct asked asked[Q_API_LAST + 1] = {
    [Q_ONE] = {.path = "flamegraph"},
    [Q_ALL] = {.path = "flamegraph", .all = true, .by = true},
    [Q_MERGED] = {.path = "flamegraph", .all = true},
    [Q_ONE_TEN] = {.path = "flamegraph"},
    [Q_TOP] = {.path = "top"},
    [Q_DIFF] = {.path = "diff"},
    [Q_ONE_SHORT] = {.path = "flamegraph", .flat = true},
    [Q_MERGED_SHORT] = {.path = "flamegraph", .all = true, .flat = true},
    [Q_TOP_SHORT] = {.path = "top", .flat = true},
    [Q_CALLERS] = {.path = "flamegraph", .name = "invert", .value = "1"},
    [Q_CALLERS_SHORT] = {.path = "flamegraph", .flat = true, .name = "invert", .value = "1"},
    [Q_CALLERS_MERGED] = {.path = "flamegraph", .all = true, .name = "invert", .value = "1"},
    [Q_TOP_ALL] = {.path = "top", .all = true},
    [Q_TOP_BIN] = {.path = "top", .all = true, .name = "key", .value = "bin"},
    [Q_TOP_BY] = {.path = "top", .all = true, .by = true},
};

static void ask_api(struct bench *b, enum question q, uint32_t service, struct msg_reply *reply)
{
    const struct asked *a = &asked[q];
    const bool ten = q == Q_ONE_TEN || q == Q_DIFF;
    char from[40], to[40], from_a[40], to_a[40], selector[64], path[40];
    struct bench_param p[8] = {{"q", selector}, {"from", from}, {"to", to}};
    uint32_t n = 3;

    range_of(b, ten ? DATA_CUT0 : 0, ten ? DATA_CUT1 : DATA_SPAN_MS, from, to);
    range_of(b, DATA_CUT0 - (DATA_CUT1 - DATA_CUT0), DATA_CUT0, from_a, to_a);
    (void)snprintf(path, sizeof path, "/api/v1/%s", a->path);
    if (a->all)
        (void)snprintf(selector, sizeof selector, "cpu");
    else
        (void)snprintf(selector, sizeof selector, "cpu{service=\"svc%03u\"}", service);
    if (a->by) {
        p[n++] = (struct bench_param){"by", "service"};
        p[n++] = (struct bench_param){"groups", "200"};
    }
    if (a->flat)
        p[n++] = (struct bench_param){"names", "short"};
    if (a->name)
        p[n++] = (struct bench_param){a->name, a->value};
    if (q == Q_DIFF) {
        p[0].name = "a_q";
        p[1].name = "b_from";
        p[2].name = "b_to";
        p[n++] = (struct bench_param){"a_from", from_a};
        p[n++] = (struct bench_param){"a_to", to_a};
    }
    bench_get(b, path, p, n, reply);
}

/* Each answer is made, not remembered. What a part has beside its rows, names and records, stays
 * decoded as in a server. */
void bench_forget_sums(void)
{
    store_tuning.cache_rows = UINT64_MAX;
}

/* ---- through the store ----------------------------------------------------------------------- */

void acc_free(struct acc *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        free(a->trie[i].sum);
        free(a->trie[i].count);
    }
    free(a->trie);
    free(a->series);
    map_deinit(&a->index);
    *a = (struct acc){};
}

struct scan {
    struct acc *a;
    struct store_view *view;
};

static bool same(struct store_trie_id a, struct store_trie_id b)
{
    return a.epoch == b.epoch && a.svc == b.svc && a.sub == b.sub;
}

static uint32_t nodes_of(struct scan *s, struct store_trie_id id)
{
    struct store_trie trie = {};
    struct err err = {};

    if (store_trie(s->view, id, &trie, &err) < 0)
        bench_die("trie", &err);
    return trie.n;
}

/* One array for each trie in turn: no trie comes again after another. Sums alone, as the rivals
 * answer. */
static struct acc_trie *acc_in_turn(struct scan *s, struct store_trie_id id)
{
    struct acc *a = s->a;
    struct acc_trie *t = a->trie;

    if (a->n && same(t->id, id))
        return t;
    if (!t)
        t = a->trie = data_alloc(1, sizeof *t);
    t->id = id;
    t->n = nodes_of(s, id);
    a->n = 1;
    if (t->n > a->room) {
        free(t->sum);
        a->room = t->n;
        t->sum = data_alloc(a->room, sizeof *t->sum);
        return t;
    }
    memset(t->sum, 0, t->n * sizeof *t->sum);
    return t;
}

static struct acc_trie *acc_at(struct scan *s, struct store_trie_id id)
{
    struct acc *a = s->a;
    struct acc_trie *t = a->n ? &a->trie[a->last] : NULL;
    uint64_t *slot, key = hash_mix((uint64_t)id.epoch << 48 ^ (uint64_t)id.sub << 32 ^ id.svc);
    uint32_t n;

    if (a->in_turn)
        return acc_in_turn(s, id);
    if (t && same(t->id, id))
        return t;
    for (;; key++) {
        if (map_at(&a->index, key, &slot) == MAP_FULL)
            data_die("out of memory");
        if (*slot == 0)
            break;
        a->last = (uint32_t)*slot - 1;
        if (same(a->trie[a->last].id, id))
            return &a->trie[a->last];
    }
    if (a->n == a->room) {
        a->room = a->room ? 2 * a->room : 256;
        a->trie = realloc(a->trie, a->room * sizeof *a->trie);
        if (!a->trie)
            data_die("out of memory");
    }
    n = nodes_of(s, id);
    t = &a->trie[a->n];
    *t = (struct acc_trie){id, n, data_alloc(n, 8), data_alloc(n, 8)};
    a->last = a->n++;
    *slot = a->n;
    return t;
}

static bool on_share(void *ctx, uint32_t worker, const struct store_share *s)
{
    struct scan *scan = ctx;
    struct acc_trie *t = acc_at(scan, s->trie);

    (void)worker;
    if (!s->sum.v)
        data_die("sums of 128 bits where 64 are enough");
    for (uint32_t i = 0; i < s->n; i++) {
        t->sum[s->node[i]] += s->sum.v[i];
        scan->a->observations += s->count[i];
    }
    for (uint32_t i = 0; t->count && i < s->n; i++)
        t->count[s->node[i]] += s->count[i];
    return true;
}

static bool on_bucket(void *ctx, uint32_t worker, const struct store_share *s)
{
    struct acc *a = ((struct scan *)ctx)->a;

    (void)worker;
    for (uint32_t i = 0; i < s->n; i++) {
        a->series[s->group * BUCKETS + s->bucket] += s->sum.v[i];
        a->observations += s->count[i];
    }
    return true;
}

static void scan_reset(struct acc *a, bool series)
{
    assert(a->in_turn || a->n == 0); /* who keeps sums asks once */
    if (a->n)
        a->trie->id.svc = UINT32_MAX; /* none: the next one starts from 0 */
    if (series && !a->series)
        a->series = data_alloc((DATA_SERIES + 1) * BUCKETS, sizeof *a->series);
    if (series)
        memset(a->series, 0, (DATA_SERIES + 1) * BUCKETS * sizeof *a->series);
    a->observations = 0;
}

/* The hosts as groups, so that the series come in the workload's order. */
static void ask_series(struct store_query *q, struct store_group *group, char text[][8])
{
    for (uint32_t h = 0; h < BENCH_HOSTS; h++) {
        (void)snprintf(text[h], sizeof text[h], "host-%u", h);
        group[h].value[0] = str_c(text[h]);
    }
    q->want = STORE_TOTALS;
    q->bucket_ns = DATA_BUCKET * NS_PER_MS;
    q->n_by = 1;
    q->by[0] = STR("host");
    q->n_group = BENCH_HOSTS;
    q->group = group;
}

static void scan(struct bench *b, enum question q, uint32_t service, struct acc *a)
{
    const bool one = q == Q_ONE_SUM || q == Q_CUT_ONE || q == Q_SERIES;
    char text[16], host[BENCH_HOSTS][8];
    struct store_group group[BENCH_HOSTS] = {};
    struct store_matcher m = {.name = STR("service"), .op = STORE_EQ};
    struct scan s = {.a = a, .view = store_view_get(b->store)};
    struct store_sink sink = {.share = q == Q_SERIES ? on_bucket : on_share, .ctx = &s};
    struct store_query sq = {.n_side = 1,
                             .side[0] = {.sel = {.type = PTYPE_CPU, .n = one, .matcher = &m},
                                         .range = {b->hour, b->hour}},
                             .want = STORE_STACKS,
                             .mem_max = UINT64_C(4) << 30};
    struct store_answer answer = {};
    struct arena arena;
    struct err err = {};
    int r;

    sq.side[0].range.t1.v += DATA_SPAN_MS * NS_PER_MS;
    if (q == Q_CUT || q == Q_CUT_ONE) {
        sq.side[0].range.t1.v = b->hour.v + DATA_CUT1 * NS_PER_MS;
        sq.side[0].range.t0.v = b->hour.v + DATA_CUT0 * NS_PER_MS;
    }
    (void)snprintf(text, sizeof text, "svc%03u", service);
    m.value = str_c(text);
    if (q == Q_ALL_RAW) {
        m = (struct store_matcher){.name = STR("host"), .op = STORE_NE, .value = STR("host-9")};
        sq.side[0].sel.n = 1;
    }
    if (q == Q_SERIES)
        ask_series(&sq, group, host);
    arena_init(&arena, 64 << 20);
    sq.arena = &arena;
    scan_reset(a, q == Q_SERIES);
    r = store_scan(s.view, &sq, &sink, &answer, &err);
    if (r < 0)
        bench_die("scan", &err);
    if (r > 0)
        data_die("scan: outcome %d, something could not be read", r);
    arena_deinit(&arena);
    (void)store_view_put(s.view);
}

void bench_ask(struct bench *b, enum question q, uint32_t service, struct acc *a,
               struct msg_reply *reply)
{
    if (q <= Q_API_LAST)
        ask_api(b, q, service, reply);
    else
        scan(b, q, service, a);
}
