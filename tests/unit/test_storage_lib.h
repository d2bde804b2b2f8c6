// SPDX-License-Identifier: Apache-2.0
#pragma once

/*
 * Batches out of a number, and what they hold in plain arrays: the oracle of the store's tests. A
 * payload is eight bytes, the seed; decoding makes the same batch again, in any process. Included
 * by one test program each. One thread per struct oracle.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"
#include "storage/keep/store_private.h"
#include "storage/store.h"
#include "tests/lib/testing.h"
#include "tests/lib/tmpdir.h"

#define MS     NS_PER_MS
#define N_SVC  4
#define N_JOB  3
#define N_PID  3
#define N_FN   24
#define T_BASE (INT64_C(1764417600000) * MS)
#define T_SPAN INT64_C(600000) /* ms */

[[maybe_unused]] static const char *const svc_name[N_SVC] = {"api", "train", "web", "unknown"};
[[maybe_unused]] static const char *const job_name[N_JOB] = {"", "a", "b"};

/* ---- numbers ------------------------------------------------------------------------------- */

struct rnd {
    uint64_t s;
};

[[maybe_unused]] static uint64_t rnd_next(struct rnd *r)
{
    r->s += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(r->s);
}

[[maybe_unused]] static uint32_t rnd_below(struct rnd *r, uint32_t n)
{
    return (uint32_t)(rnd_next(r) % n);
}

/* ---- what a batch holds, row by row -------------------------------------------------------- */

struct orow {
    uint32_t type;                    /* 1 cpu, 2 offcpu, 1024 the imported one */
    uint32_t svc, job, pid, tid, cpu; /* cpu: number + 1 */
    int64_t ms;
    uint64_t stack; /* hash of the names from root to leaf */
    uint64_t count;
    int64_t value;
};

struct oracle {
    struct orow *v;
    uint32_t n, room;
};

[[maybe_unused]] static void oracle_add(struct oracle *o, const struct orow *r)
{
    if (o->n == o->room) {
        o->room = o->room ? 2 * o->room : 1024;
        o->v = xrealloc(o->v, o->room * sizeof *o->v);
    }
    o->v[o->n++] = *r;
}

[[maybe_unused]] static uint64_t stack_step(uint64_t stack, struct str name)
{
    return hash_mix(stack ^ hash_str(name));
}

/* ---- a batch ------------------------------------------------------------------------------- */

enum {
    T_NONE,
    T_SERVICE,
    T_JOB,
    T_UNIT,
    T_TYPE,
    T_FILE,
    T_BIN,
    T_THREAD,
    T_WHY,
    T_SVC0,
    T_JOB0 = T_SVC0 + N_SVC,
    T_FN0 = T_JOB0 + N_JOB,
    T_N = T_FN0 + N_FN
};

struct gen {
    struct rnd r;
    struct arena *a;
    struct batch *b;
    struct oracle *o;            /* NULL: no oracle */
    uint64_t *stack;             /* by node */
    uint32_t svc[256], job[256]; /* by label set */
};

[[maybe_unused]] static struct str gen_name(struct arena *a, uint32_t i)
{
    char buf[32];
    int n = snprintf(buf, sizeof buf, "f%u", i);

    return arena_str(a, (struct str){buf, (size_t)n});
}

static inline void gen_tables(struct gen *g)
{
    struct batch *b = g->b;
    struct str *str = arena_array(g->a, struct str, T_N);
    struct batch_bin *bin = arena_array(g->a, struct batch_bin, 2);
    struct batch_fn *fn = arena_array(g->a, struct batch_fn, N_FN + 1);
    struct batch_frame *fr = arena_array(g->a, struct batch_frame, N_FN + 1);

    str[T_SERVICE] = STR("service");
    str[T_JOB] = STR("job");
    str[T_UNIT] = STR("widgets");
    str[T_TYPE] = STR("custom");
    str[T_FILE] = STR("x.py");
    str[T_BIN] = STR("/usr/bin/demo");
    str[T_THREAD] = STR("worker");
    str[T_WHY] = STR("ring_full");
    for (uint32_t i = 0; i < N_SVC; i++)
        str[T_SVC0 + i] = str_c(svc_name[i]);
    for (uint32_t i = 0; i < N_JOB; i++)
        str[T_JOB0 + i] = str_c(job_name[i]);
    for (uint32_t i = 0; i < N_FN; i++) {
        str[T_FN0 + i] = gen_name(g->a, i);
        fn[i + 1] = (struct batch_fn){.name = T_FN0 + i, .file = i % 2 ? T_FILE : 0};
        fr[i + 1] = (struct batch_frame){.kind = i % 2 ? FRAME_PYTHON : FRAME_NATIVE,
                                         .fn = i + 1,
                                         .bin = i % 2 ? 0 : 1,
                                         .addr = i % 2 ? 0 : 0x1000 + i};
    }
    bin[1] = (struct batch_bin){.path = T_BIN};
    b->n_str = T_N;
    b->str = str;
    b->n_bin = 2;
    b->bin = bin;
    b->n_fn = b->n_frame = N_FN + 1;
    b->fn = fn;
    b->frame = fr;
}

static inline void gen_nodes(struct gen *g, uint32_t n)
{
    struct batch *b = g->b;
    struct batch_node *node = arena_array(g->a, struct batch_node, n);

    g->stack = arena_array(g->a, uint64_t, n);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t parent = rnd_below(&g->r, i), f = 1 + rnd_below(&g->r, N_FN);

        node[i] = (struct batch_node){.parent = parent,
                                      .frame = f,
                                      .hash = node_hash(node[parent].hash, batch_frame_hash(b, f))};
        g->stack[i] = stack_step(g->stack[parent], b->str[b->fn[b->frame[f].fn].name]);
    }
    b->n_node = n;
    b->node = node;
}

static inline void gen_labels(struct gen *g)
{
    const uint32_t n = 1 + N_SVC * N_JOB;
    struct batch_labels *l = arena_array(g->a, struct batch_labels, n);
    struct batch_target *t = arena_array(g->a, struct batch_target, N_PID + 1);

    g->svc[0] = N_SVC - 1; /* unknown */
    for (uint32_t i = 1; i < n; i++) {
        uint32_t *p = arena_array(g->a, uint32_t, 4), k = 0;

        g->svc[i] = (i - 1) / N_JOB;
        g->job[i] = (i - 1) % N_JOB;
        if (g->svc[i] != N_SVC - 1) {
            p[k++] = T_SERVICE;
            p[k++] = T_SVC0 + g->svc[i];
        }
        if (g->job[i]) {
            p[k++] = T_JOB;
            p[k++] = T_JOB0 + g->job[i];
        }
        l[i] = (struct batch_labels){k / 2, p};
    }
    for (uint32_t i = 1; i <= N_PID; i++)
        t[i].key = (struct target_key){.host = {1}, .pidns = 7, .pid = 100 + i, .start = {i}};
    g->b->n_labels = n;
    g->b->labels = l;
    g->b->n_target = N_PID + 1;
    g->b->target = t;
}

static inline void gen_stream(struct gen *g, struct batch_stream *st, uint32_t type, uint32_t rows)
{
    uint32_t *node = arena_array(g->a, uint32_t, rows), *target = arena_array(g->a, uint32_t, rows),
             *tid = arena_array(g->a, uint32_t, rows), *labels = arena_array(g->a, uint32_t, rows),
             *cpu = arena_array(g->a, uint32_t, rows), *thread = arena_array(g->a, uint32_t, rows);
    uint64_t *count = arena_array(g->a, uint64_t, rows);
    int64_t *value = type == PTYPE_CPU ? NULL : arena_array(g->a, int64_t, rows);
    real_ns *t = arena_array(g->a, real_ns, rows);
    int64_t t0 = rnd_below(&g->r, T_SPAN - 10000);

    *st = (struct batch_stream){.type = type >= PTYPE_IMPORTED_FIRST ? PTYPE_NONE : type,
                                .name = type >= PTYPE_IMPORTED_FIRST ? T_TYPE : 0,
                                .unit = type >= PTYPE_IMPORTED_FIRST ? T_UNIT : 0,
                                .kind = KIND_SUM,
                                .width = 1,
                                .covers = {{T_BASE + t0 * MS}, {T_BASE + (t0 + 10000) * MS}},
                                .state = SOURCE_OK,
                                .basis = value ? BASIS_EVERY : BASIS_PERIODIC,
                                .period = value ? 0 : 10 * MS,
                                .expected = rows,
                                .received = rows,
                                .rows = {.n = rows,
                                         .t = t,
                                         .node = node,
                                         .target = target,
                                         .tid = tid,
                                         .thread = thread,
                                         .cpu = rnd_below(&g->r, 2) ? cpu : NULL,
                                         .labels = labels,
                                         .count = count,
                                         .value = value}};
    for (uint32_t i = 0; i < rows; i++) {
        int64_t ms = t0 + rnd_below(&g->r, 10000);

        t[i] = (real_ns){T_BASE + ms * MS + rnd_below(&g->r, MS)};
        node[i] = rnd_below(&g->r, g->b->n_node);
        target[i] = rnd_below(&g->r, N_PID + 1);
        tid[i] = target[i] ? 1 + rnd_below(&g->r, 4) : 0;
        thread[i] = tid[i] > 2 ? T_THREAD : 0;
        labels[i] = rnd_below(&g->r, g->b->n_labels);
        cpu[i] = 1 + rnd_below(&g->r, 8);
        count[i] = rnd_below(&g->r, 4) ? 1 : 1 + rnd_below(&g->r, 5);
        if (value) /* some near the limit: sums beyond 64 bits */
            value[i] = rnd_below(&g->r, 8) ? rnd_below(&g->r, 1000000)
                                           : (INT64_C(1) << 62) - rnd_below(&g->r, 100);
        if (g->o)
            oracle_add(g->o,
                       &(struct orow){.type = type,
                                      .svc = g->svc[labels[i]],
                                      .job = g->job[labels[i]],
                                      .pid = target[i] ? 100 + target[i] : 0,
                                      .tid = tid[i],
                                      .cpu = st->rows.cpu ? cpu[i] : 0,
                                      .ms = T_BASE / MS + ms,
                                      .stack = g->stack[node[i]],
                                      .count = count[i],
                                      .value = value ? value[i] : (int64_t)count[i] * 10 * MS});
    }
}

/* seed: also the identity's number. rows: about so many. */
[[maybe_unused]] static void gen_batch(uint64_t seed, uint32_t rows, struct arena *a,
                                       struct oracle *o, struct batch *ret)
{
    struct gen g = {.r = {seed * 77 + 5}, .a = a, .b = ret, .o = o};
    struct batch_stream *st = arena_array(a, struct batch_stream, 3);

    *ret = (struct batch){.id = {.agent = {9}, .boot = {3}, .seq = seed, .content = seed + 1},
                          .received = {T_BASE + (T_SPAN + (int64_t)seed) * MS}};
    gen_tables(&g);
    gen_nodes(&g, 2 + rnd_below(&g.r, 30));
    gen_labels(&g);
    gen_stream(&g, &st[0], PTYPE_CPU, 1 + rnd_below(&g.r, rows));
    gen_stream(&g, &st[1], PTYPE_OFFCPU, rnd_below(&g.r, rows));
    gen_stream(&g, &st[2], PTYPE_IMPORTED_FIRST, rnd_below(&g.r, rows / 2 + 1));
    ret->n_stream = 3;
    ret->stream = st;
}

#define GEN_ROWS 60

[[maybe_unused]] static int gen_decode(void *ctx, const struct store_entry *e, struct arena *arena,
                                       struct batch *ret, struct err *err)
{
    uint64_t seed;

    (void)ctx;
    if (e->payload.n != sizeof seed)
        return err_set(err, -EINVAL, "payload of %zu bytes", e->payload.n);
    memcpy(&seed, e->payload.p, sizeof seed);
    gen_batch(seed, GEN_ROWS, arena, NULL, ret);
    ret->received = e->received;
    return batch_check(ret, err);
}

/* ---- a store in a folder of its own -------------------------------------------------------- */

struct fixture {
    char dir[64];
    struct store_conf conf;
    struct store *s;
    struct arena a;
    struct oracle o;
};

[[maybe_unused]] static void fixture_open(struct fixture *f, int expect)
{
    struct err err = {};
    int r = store_open(&f->conf, &f->s, &err);

    if (r != expect)
        fail_msg("store_open = %d: %s", r, err.msg);
}

[[maybe_unused]] static void fixture_init(struct fixture *f)
{
    *f = (struct fixture){};
    store_tuning.seal_asked = true; /* what is in the journal is the test's to say */
    (void)snprintf(f->dir, sizeof f->dir, "%s/strata_test_XXXXXX", test_fast_dir());
    assert_non_null(mkdtemp(f->dir));
    arena_init(&f->a, (size_t)1 << 30);
    f->conf = (struct store_conf){
        .dir = f->dir, .decode = gen_decode, .min_free = 1, .reserve = 1, .workers = 2};
}

[[maybe_unused]] static void fixture_deinit(struct fixture *f)
{
    f->s = store_close(f->s);
    free(f->o.v);
    arena_deinit(&f->a);
    assert_int_equal(test_remove_tree(f->dir), 0);
}

[[maybe_unused]] static void fixture_reopen(struct fixture *f, int expect)
{
    f->s = store_close(f->s);
    fixture_open(f, expect);
}

/* Append batch number seed and wait. */
[[maybe_unused]] static int fixture_append(struct fixture *f, uint64_t seed, bool oracle,
                                           struct err *err)
{
    struct batch b;
    uint64_t lsn;

    gen_batch(seed, GEN_ROWS, &f->a, oracle ? &f->o : NULL, &b);
    return store_append_wait(f->s, &b, (struct str){(const char *)&seed, sizeof seed}, &lsn, err);
}

/* ---- sums ---------------------------------------------------------------------------------- */

#define SUM_GROUPS 64
struct sums {
    unit_i128 value[2][SUM_GROUPS][32]; /* side, group, bucket */
    uint64_t count[2][SUM_GROUPS][32];
    uint64_t shares;
};

[[maybe_unused]] static bool sums_share(void *ctx, uint32_t worker, const struct store_share *sh)
{
    static struct mutex mu = MUTEX_INIT; /* tests add all workers up in one place */
    struct sums *s = ctx;
    uint32_t group = sh->group == STORE_REST ? SUM_GROUPS - 1 : sh->group;

    (void)worker;
    assert_true(group < SUM_GROUPS && sh->bucket < 32 && sh->side < 2);
    mutex_lock(&mu);
    s->shares++;
    for (uint32_t i = 0; i < sh->n; i++) {
        assert_true(i == 0 || sh->node[i - 1] < sh->node[i]);
        s->value[sh->side][group][sh->bucket] += sh->sum.v ? sh->sum.v[i] : sh->sum.wide[i];
        s->count[sh->side][group][sh->bucket] += sh->count[i];
    }
    mutex_unlock(&mu);
    return true;
}

#define WHOLE ((struct interval){{INT64_MIN / 2}, {INT64_MAX / 2}})
