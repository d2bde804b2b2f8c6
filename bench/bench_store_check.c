// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/hash.h"
#include "bench/bench_store.h"
#include "server/msg.h"

/*
 * Every answer against plain arrays, bit by bit. The store numbers nodes as it met them; a walk
 * down each of its tries by function names leads back to the workload's nodes. Which service a trie
 * belongs to is what a scan of that service alone says.
 */
struct bench_map {
    struct map function; /* hash of the name -> function */
    struct map child;    /* parent's row, function -> row of the node table */
    struct map service;  /* trie, by (epoch, sub, svc) -> service + 1 */
};

static uint64_t child_key(uint32_t parent, uint32_t function)
{
    return hash_mix((uint64_t)parent << 32 | function);
}

static uint64_t trie_key(struct store_trie_id id)
{
    return (uint64_t)id.epoch << 48 ^ (uint64_t)id.sub << 32 ^ id.svc;
}

static void put(struct map *m, uint64_t key, uint64_t value)
{
    if (map_put(m, key, value) != MAP_ADDED)
        data_die("check: out of memory, or two nodes with one name");
}

static struct bench_map *map_make(const struct data *d)
{
    struct bench_map *m = data_alloc(1, sizeof *m);

    map_init(&m->function, 0);
    map_init(&m->child, 0);
    map_init(&m->service, 0);
    for (uint32_t f = 1; f < d->functions; f++) {
        struct str name;

        name.p = data_name(d, f, &name.n);
        put(&m->function, hash_str(name), f);
    }
    for (size_t s = 0; s < d->services; s++)
        for (uint32_t i = d->first[s] + 1; i < d->first[s + 1]; i++)
            put(&m->child, child_key(d->first[s] + d->parent[i], d->function[i]), i);
    return m;
}

static void map_free(struct bench_map *m)
{
    map_deinit(&m->function);
    map_deinit(&m->child);
    map_deinit(&m->service);
    free(m);
}

/* The row of the child of this name, or 0. */
static uint32_t child(const struct bench_map *m, uint32_t parent, struct str name)
{
    uint64_t f, row;

    if (!map_get(&m->function, hash_str(name), &f) ||
        !map_get(&m->child, child_key(parent, (uint32_t)f), &row))
        return 0;
    return (uint32_t)row;
}

/* ---- sums by node ---------------------------------------------------------------------------- */

/* Add the sums of one trie to the arrays, by rows of the workload's node table. */
static void add_trie(struct bench *b, struct store_view *view, const struct acc_trie *t,
                     struct data_sums *out)
{
    struct store_trie trie = {};
    struct err err = {};
    uint64_t svc = 0;
    uint32_t *row;

    if (!map_get(&b->map->service, trie_key(t->id), &svc))
        data_die("check: sums of a trie that belongs to no service");
    if (store_trie(view, t->id, &trie, &err) < 0)
        bench_die("check: trie", &err);
    if (trie.n < t->n)
        data_die("check: a trie has shrunk");
    row = data_alloc(trie.n, sizeof *row);
    row[0] = b->d.first[svc - 1];
    for (uint32_t i = 1; i < t->n; i++) {
        struct store_frame f = {};

        if (store_frame(view, t->id.epoch, trie.frame[i], &f, &err) < 0)
            bench_die("check: frame", &err);
        row[i] = child(b->map, row[trie.parent[i]], f.name);
        if (!row[i])
            data_die("check: node %u of service %" PRIu64 " is not in the workload", i, svc - 1);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        out->value[row[i]] += t->sum[i];
        out->count[row[i]] += t->count[i];
    }
    free(row);
}

static void learn_services(struct bench *b)
{
    struct msg_reply none;

    for (uint32_t s = 0; s < b->d.services; s++) {
        struct acc a = {};

        bench_ask(b, Q_ONE_SUM, s, &a, &none);
        for (uint32_t i = 0; i < a.n; i++)
            put(&b->map->service, trie_key(a.trie[i].id), s + 1);
        acc_free(&a);
    }
}

/* The first node whose weight or count is not what the arrays say; the number of nodes: none. */
static size_t difference(struct bench *b, const struct acc *a, const struct data_sums *want,
                         bool one, struct data_sums *have)
{
    const size_t n = one ? b->d.first[1] : b->d.nodes;
    struct store_view *view = store_view_get(b->store);
    size_t at = 0;

    *have =
        (struct data_sums){.value = data_alloc(b->d.nodes, 8), .count = data_alloc(b->d.nodes, 8)};
    for (uint32_t i = 0; i < a->n; i++)
        add_trie(b, view, &a->trie[i], have);
    (void)store_view_put(view);
    while (at < n && have->value[at] == want->value[at] && have->count[at] == want->count[at])
        at++;
    if (at < n)
        return at;
    while (at < b->d.nodes && !have->value[at] && !have->count[at]) /* of other services: nothing */
        at++;
    return at;
}

static void compare(struct bench *b, enum question q, const struct acc *a,
                    const struct data_sums *want, bool one)
{
    struct data_sums have;
    size_t at = difference(b, a, want, one, &have);

    if (at < b->d.nodes)
        data_die(
            "check: %s: node %zu: %" PRId64 " of %" PRIu64 " instead of %" PRId64 " of %" PRIu64,
            question_name[q], at, have.value[at], have.count[at], want->value[at], want->count[at]);
    data_sums_free(&have);
    want->count[0]++; /* and one more is noticed */
    if (difference(b, a, want, one, &have) != 0)
        data_die("check: %s: a difference is not seen", question_name[q]);
    want->count[0]--;
    data_sums_free(&have);
}

/* ---- flame graphs ---------------------------------------------------------------------------- */

struct flame {
    json_t *root, *depth, *func, *self, *total, *hidden, *name, *strings;
    size_t n;
};

static json_t *column(json_t *o, const char *key, size_t n)
{
    json_t *v = json_object_get(o, key);

    if (!json_is_array(v) || (n && json_array_size(v) != n))
        data_die("check: answer without column %s", key);
    return v;
}

static struct flame parse(const struct msg_reply *reply)
{
    json_error_t why;
    struct flame f = {.root = json_loadb(reply->body.p, reply->body.n, 0, &why)};
    json_t *node = json_object_get(f.root, "node"), *func = json_object_get(f.root, "func");

    if (!f.root)
        data_die("check: the answer is not JSON: %s", why.text);
    f.n = (size_t)json_integer_value(json_object_get(f.root, "n"));
    f.depth = column(node, "depth", f.n);
    f.func = column(node, "func", f.n);
    f.self = column(node, "self", f.n);
    f.total = column(node, "total", f.n);
    f.hidden = column(node, "hidden", f.n);
    f.name = column(func, "name", 0);
    f.strings = column(f.root, "strings", 0);
    return f;
}

static int64_t at(const json_t *v, size_t i)
{
    const json_t *x = json_array_get(v, i);

    if (!json_is_integer(x))
        data_die("check: a weight that is no integer");
    return json_integer_value(x);
}

static struct str name_of(const struct flame *f, size_t i)
{
    const json_t *s = json_array_get(f->strings, (size_t)at(f->name, (size_t)at(f->func, i)));

    return (struct str){json_string_value(s), json_string_length(s)};
}

/* Every row against the arrays: self and total of its node; a hidden row is what the rows beside it
 * leave of their parent. Returns how many nodes of the workload are shown. */
static size_t check_rows(struct bench *b, enum question q, const struct flame *f,
                         const int64_t *self, const int64_t *total)
{
    uint32_t path[1024] = {};
    int64_t left[1024] = {};
    size_t shown = 0, deep = 0;
    const size_t base = q == Q_ALL ? 1 : 0; /* depth of a service's root */

    for (size_t i = 0; i < f->n; i++) {
        size_t d = (size_t)at(f->depth, i);
        int64_t t = at(f->total, i), s = at(f->self, i);
        bool node = at(f->func, i) >= 0 && d > base;

        if (d > deep + 1 || d >= 1024)
            data_die("check: %s: row %zu hangs in the air", question_name[q], i);
        for (; i && deep >= d; deep--)
            if (left[deep])
                data_die("check: %s: a node is not the sum of its children", question_name[q]);
        deep = d;
        left[d] = t - s;
        if (d)
            left[d - 1] -= t;
        if (at(f->func, i) < 0) {
            left[d] = 0; /* stands for many */
            continue;
        }
        if (d == base && q == Q_ALL) {
            struct str n = name_of(f, i);
            uint64_t svc;

            if (!str_starts(n, STR("service=svc")) || !str_u64(str_from(n, 11), &svc))
                data_die("check: %s: no service: %.*s", question_name[q], STR_ARG(n));
            path[d] = b->d.first[svc];
            node = true;
        } else if (d > base) {
            path[d] = child(b->map, path[d - 1], name_of(f, i));
            if (!path[d])
                data_die("check: %s: row %zu is not in the workload", question_name[q], i);
        }
        if (node && (total[path[d]] != t || self[path[d]] != s))
            data_die("check: %s: row %zu: %" PRId64 "/%" PRId64 " instead of %" PRId64 "/%" PRId64,
                     question_name[q], i, s, t, self[path[d]], total[path[d]]);
        shown += node;
    }
    return shown;
}

static void check_flame(struct bench *b, enum question q, const struct data_sums *hour)
{
    const size_t n = q == Q_ONE ? b->d.first[1] : b->d.nodes;
    int64_t *total = data_alloc(b->d.nodes, 8), sum = 0, floor;
    struct msg_reply reply;
    struct flame f;
    size_t want = 0, shown;

    memcpy(total, hour->value, b->d.nodes * sizeof *total);
    data_totals(&b->d, total);
    bench_ask(b, q, 0, NULL, &reply);
    f = parse(&reply);
    for (size_t s = 0; s < (q == Q_ONE ? 1 : b->d.services); s++)
        sum += total[b->d.first[s]];
    if (f.n == 0 || at(f.total, 0) != sum)
        data_die("check: %s: the root is not %" PRId64, question_name[q], sum);
    floor = (sum + 1919) / 1920;
    for (size_t i = 0; i < n; i++)
        want += total[i] >= floor;
    if (q != Q_MERGED) {
        shown = check_rows(b, q, &f, hour->value, total) + (q == Q_ONE);
        if (f.n < 19000 && shown != want)
            data_die("check: %s: %zu nodes shown instead of %zu", question_name[q], shown, want);
    }
    json_decref(f.root);
    msg_reply_deinit(&reply);
    free(total);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void check_series(struct bench *b)
{
    const size_t buckets = DATA_SPAN_MS / DATA_BUCKET;
    int64_t *want = data_series(&b->d);
    struct acc a = {};
    struct msg_reply none;

    bench_ask(b, Q_SERIES, 0, &a, &none);
    for (size_t i = 0; i < DATA_SERIES * buckets; i++)
        if (a.series[i] != want[i])
            data_die("check: series: host %zu, bucket %zu: %" PRId64 " instead of %" PRId64,
                     i / buckets, i % buckets, a.series[i], want[i]);
    acc_free(&a);
    free(want);
}

uint32_t bench_check(struct bench *b)
{
    struct data_sums hour = data_sum(&b->d, 0, DATA_SPAN_MS, UINT32_MAX);
    struct data_sums cut = data_sum(&b->d, DATA_CUT0, DATA_CUT1, UINT32_MAX);
    struct data_sums nine = data_sum(&b->d, 0, DATA_SPAN_MS, BENCH_HOSTS - 1);
    const struct {
        enum question q;
        const struct data_sums *want;
        bool one;
    } scans[] = {{Q_ONE_SUM, &hour, true},
                 {Q_ALL_SUM, &hour, false},
                 {Q_ALL_RAW, &nine, false},
                 {Q_CUT_ONE, &cut, true},
                 {Q_CUT, &cut, false}};
    const size_t n = sizeof scans / sizeof scans[0];
    struct msg_reply none;

    b->map = map_make(&b->d);
    learn_services(b);
    for (size_t i = 0; i < n; i++) {
        struct acc a = {};

        bench_ask(b, scans[i].q, 0, &a, &none);
        compare(b, scans[i].q, &a, scans[i].want, scans[i].one);
        acc_free(&a);
    }
    check_series(b);
    for (enum question q = Q_ONE; q <= Q_MERGED; q++)
        check_flame(b, q, &hour);
    map_free(b->map);
    b->map = NULL;
    data_sums_free(&hour);
    data_sums_free(&cut);
    data_sums_free(&nine);
    return (uint32_t)n + 4;
}
