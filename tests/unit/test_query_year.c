// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "query/query.h"
#include "storage/keep/store_private.h"
#include "storage/store.h"
#include "tests/lib/testing.h"
#include "tests/lib/tmpdir.h"

/*
 * A year in a thousand parts, each with a label value of its own, and few descriptors: what asks
 * for all of it is answered, or refused by its deadline, in its memory, while batches come in.
 * And two functions of one name below one caller, in two files: two functions, wherever one looks.
 */

#define S        NS_PER_S
#define T0       (1764417600 * S)
#define PARTS    1000
#define PER_PART (31500 * S) /* so many of them make a year */
#define YEAR     (PARTS * PER_PART)
#define VALUE    10007 /* of one sample */

static struct query_err e;

static int decode(void *ctx, const struct store_entry *entry, struct arena *arena,
                  struct batch *ret, struct err *err)
{
    (void)ctx;
    (void)entry;
    (void)arena;
    (void)ret;
    return err_set(err, -EINVAL, "nothing is replayed here");
}

enum {
    S_NONE,
    S_SERVICE,
    S_TRAIN,
    S_SHARD,
    S_MAIN,
    S_STEP,
    S_FILE_A,
    S_FILE_B,
    S_VALUE, /* of the label shard */
    N_STR
};

/* main below the root; step() of a.py and step() of b.py below main. */
static struct batch_fn fn[] = {{},
                               {.name = S_MAIN, .file = S_FILE_A},
                               {.name = S_STEP, .file = S_FILE_A},
                               {.name = S_STEP, .file = S_FILE_B}};
static struct batch_frame frame[] = {{},
                                     {.kind = FRAME_PYTHON, .fn = 1, .line = 1},
                                     {.kind = FRAME_PYTHON, .fn = 2, .line = 2},
                                     {.kind = FRAME_PYTHON, .fn = 3, .line = 2}};

struct one {
    uint64_t seq;
    int64_t t;
    const char *shard;
    uint32_t node; /* where the sample is: 2 in a.py, 3 in b.py */
    int64_t value;
};

static int append(struct store *store, const struct one *x)
{
    static const struct batch_labels no_labels[1];
    static const struct batch_target target[1];
    static const uint32_t label[] = {S_SERVICE, S_TRAIN, S_SHARD, S_VALUE};
    const struct str text[N_STR] = {
        [S_SERVICE] = STR("service"), [S_TRAIN] = STR("train"),   [S_SHARD] = STR("shard"),
        [S_MAIN] = STR("main"),       [S_STEP] = STR("step"),     [S_FILE_A] = STR("a.py"),
        [S_FILE_B] = STR("b.py"),     [S_VALUE] = str_c(x->shard)};
    struct batch_node node[] = {
        {}, {.frame = 1}, {.parent = 1, .frame = 2}, {.parent = 1, .frame = 3}};
    const real_ns t = {x->t};
    const uint64_t count = 1;
    struct batch_stream st = {.type = PTYPE_CPU,
                              .kind = KIND_SUM,
                              .width = 1,
                              .covers = {t, {x->t + S}},
                              .state = SOURCE_OK,
                              .basis = BASIS_PERIODIC,
                              .period = x->value,
                              .expected = 1,
                              .received = 1,
                              .rows = {.n = 1, .t = &t, .node = &x->node, .count = &count}};
    struct batch b = {.id = {.seq = x->seq, .content = x->seq, .agent = {1}, .boot = {2}},
                      .received = {x->t + 10 * S},
                      .label = {2, label},
                      .n_str = N_STR,
                      .str = text,
                      .n_bin = 1,
                      .bin = (const struct batch_bin[1]){},
                      .n_fn = 4,
                      .fn = fn,
                      .n_frame = 4,
                      .frame = frame,
                      .n_node = 4,
                      .node = node,
                      .n_target = 1,
                      .target = target,
                      .n_labels = 1,
                      .labels = no_labels,
                      .n_stream = 1,
                      .stream = &st};
    struct err err = {};
    uint64_t lsn;

    for (uint32_t k = 1; k < 4; k++)
        node[k].hash = node_hash(node[node[k].parent].hash, batch_frame_hash(&b, node[k].frame));
    assert_ok(batch_check(&b, &err), &err);
    return store_append_wait(store, &b, STR("payload"), &lsn, &err);
}

static struct query *ask(struct store *store, const struct query_ask *a, int64_t seconds)
{
    struct query_conf conf = {.store = store,
                              .now = {T0 + YEAR},
                              .mem_max = UINT64_C(256) << 20,
                              .max_points = 11000,
                              .deadline = {seconds ? mono_now().v + seconds * S : 0}};
    struct query *q = NULL;

    e = (struct query_err){};
    if (query_open(&conf, a, &q, &e) != 0 && !seconds)
        fail_msg("%s", e.msg);
    return q;
}

static struct query_ask whole_year(const char *q)
{
    static char t0[32], t1[32];

    (void)snprintf(t0, sizeof t0, "%" PRId64 "ns", T0);
    (void)snprintf(t1, sizeof t1, "%" PRId64 "ns", T0 + YEAR);
    return (struct query_ask){.q = str_c(q), .from = str_c(t0), .to = str_c(t1), .need_type = true};
}

/* ---- a thousand parts --------------------------------------------------------------------------
 */

struct year {
    char dir[32];
    struct store *store;
    struct rlimit was;
    atomic_bool stop;
    uint32_t appended, refused; /* beside questions */
};

static void *append_beside(void *arg)
{
    struct year *y = arg;
    struct one x = {.seq = PARTS + 1, .t = T0 + YEAR + S, .shard = "beside", .node = 2, .value = 1};

    while (!atomic_load(&y->stop)) {
        if (append(y->store, &x) == 0)
            y->appended++;
        else
            y->refused++;
        x.seq++;
        x.t += S;
        (void)usleep(2000);
    }
    return NULL;
}

static void year_make(struct year *y)
{
    const struct rlimit few = {256, 256};
    struct store_conf conf = {.decode = decode, .min_free = 1, .workers = 2};
    struct err err = {};
    char shard[16];

    *y = (struct year){.dir = "/tmp/strata_year_XXXXXX"};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &y->was), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){few.rlim_cur, y->was.rlim_max}), 0);
    store_tuning.compact_asked = true;
    store_tuning.seal_asked = true;
    conf.dir = mkdtemp(y->dir);
    assert_ok(store_open(&conf, &y->store, &err), &err);
    for (uint32_t i = 0; i < PARTS; i++) {
        (void)snprintf(shard, sizeof shard, "s%u", i);
        assert_int_equal(append(y->store, &(struct one){.seq = i + 1,
                                                        .t = T0 + i * PER_PART,
                                                        .shard = shard,
                                                        .node = 2 + i % 2,
                                                        .value = VALUE + i}),
                         0);
    }
    assert_ok(store_seal(y->store, &err), &err);
}

static void year_drop(struct year *y)
{
    y->store = store_close(y->store);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &y->was), 0);
    store_tuning = (struct store_tuning){};
    assert_int_equal(test_remove_tree(y->dir), 0);
}

static uint32_t parts_of(const struct year *y)
{
    struct store_stats st;

    store_stats(y->store, &st);
    return (uint32_t)st.parts;
}

/* All of it in one tree, and one line per label value. */
static void all_is_there(struct year *y)
{
    const struct query_flame_ask flame = {.width = 1000};
    const struct query_top_ask table = {.limit = 10};
    const int64_t want = (int64_t)PARTS * VALUE + (int64_t)PARTS * (PARTS - 1) / 2;
    struct query_ask a = whole_year("cpu");
    struct query_flame f = {};
    struct query_top t = {};
    struct query *q = ask(y->store, &a, 0);

    assert_ok(query_flame(q, &flame, &f, &e), &e);
    assert_true(f.sum.total == want);
    assert_int_equal(f.sum.quality.parts_unreadable, 0);
    (void)query_free(q);
    a.by[a.n_by++] = STR("shard");
    a.groups = 200;
    q = ask(y->store, &a, 0);
    assert_ok(query_top(q, &table, &t, &e), &e);
    assert_true(t.sum.total == want);
    assert_int_equal(t.n_group, 201);
    (void)query_free(q);
}

/* A pattern that takes for ever on the right text, asked of every name and every label. */
static uint32_t hostile(struct year *y, int64_t seconds)
{
    const struct query_top_ask table = {
        .limit = 1000, .match = STR("/(a+)+$/"), .n_any = 1, .any = {STR("/(s*t*e*p*)*!/")}};
    const struct query_flame_ask flame = {.match = STR("/(.*.*.*)*x/")};
    static const char *const q_of[] = {"cpu{shard=~\"(s+)+(1*)*x\"}", "cpu{shard!~\"(a+)+$\"}",
                                       "cpu{service=~\".*.*.*.*=.*\"}"};
    uint32_t refused = 0;

    for (uint32_t i = 0; i < 6; i++) {
        struct query_ask a = whole_year(q_of[i % 3]);
        mono_ns begin = mono_now();
        struct query_flame f = {};
        struct query_top t = {};
        struct query *q;
        int r = -1;

        a.by[a.n_by++] = STR("shard");
        a.groups = 200;
        q = ask(y->store, &a, seconds);
        if (q)
            r = i < 3 ? query_top(q, &table, &t, &e) : query_flame(q, &flame, &f, &e);
        assert_true(r == 0 || e.code == QUERY_TOO_EXPENSIVE || e.code == QUERY_REGEX_TOO_EXPENSIVE);
        assert_true(mono_now().v - begin.v < (seconds + 2) * S);
        refused += r != 0;
        (void)query_free(q);
    }
    return refused;
}

static void thousand_parts(void **state)
{
    struct rusage before, after;
    struct year y;
    pthread_t thread;
    uint32_t refused;

    (void)state;
    year_make(&y);
    assert_true(parts_of(&y) >= PARTS);
    assert_int_equal(pthread_create(&thread, NULL, append_beside, &y), 0);
    all_is_there(&y);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    refused = hostile(&y, 10);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    atomic_store(&y.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    print_message("%u parts, 256 descriptors: %u appends beside, %u refused; 6 hostile questions, "
                  "%u refused, %ld KiB more at most\n",
                  parts_of(&y), y.appended, y.refused, refused, after.ru_maxrss - before.ru_maxrss);
    assert_true(y.appended > 0 && y.refused == 0);
    assert_true(after.ru_maxrss - before.ru_maxrss < INT64_C(256) * 1024);
    year_drop(&y);
}

/* ---- one name in two files ---------------------------------------------------------------------
 */

#define DAY (86400 * S)

static const struct query_func *func_of(const struct query_flame *f, const char *file, int64_t *ret)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const struct query_func *x = f->node_func[i] < 0 ? NULL : &f->func[f->node_func[i]];

        if (x && str_eq(x->name, STR("step")) && str_eq(x->file, str_c(file))) {
            *ret = (int64_t)f->total[i];
            return x;
        }
    }
    fail_msg("there is no step of %s", file);
    return NULL;
}

static void two_in_a_tree(struct store *store, bool invert, int64_t want_a, int64_t want_b)
{
    const struct query_flame_ask flame = {.width = 1000, .invert = invert};
    const struct query_ask a = whole_year("cpu");
    struct query *q = ask(store, &a, 0);
    const struct query_func *x, *y;
    struct query_flame f = {};
    int64_t va = 0, vb = 0;

    assert_ok(query_flame(q, &flame, &f, &e), &e);
    x = func_of(&f, "a.py", &va);
    y = func_of(&f, "b.py", &vb);
    assert_true(x != y && x->key != y->key);
    assert_true(va == want_a && vb == want_b);
    (void)query_free(q);
}

/* Before: a.py and b.py alike. After: more of b.py. */
static void two_in_a_diff(struct store *store)
{
    struct query_ask a = whole_year("cpu"), b = a;
    const struct query_diff_ask ask_diff = {.width = 1000};
    struct query_diff d = {};
    struct query_conf conf = {
        .store = store, .now = {T0 + YEAR}, .mem_max = UINT64_C(256) << 20, .max_points = 11000};
    struct query *q = NULL;
    char until[32];
    uint32_t seen = 0, side = 0;

    (void)snprintf(until, sizeof until, "%" PRId64 "ns", T0 + DAY / 2);
    a.to = str_c(until);
    b.from = str_c(until);
    assert_ok(query_open_diff(&conf, &a, &b, &q, &side, &e), &e);
    assert_ok(query_diff(q, &ask_diff, &d, &e), &e);
    for (uint32_t i = 0; i < d.n; i++) {
        const struct query_func *f = d.node_func[i] < 0 ? NULL : &d.func[d.node_func[i]];
        bool of_b;

        if (!f || !str_eq(f->name, STR("step")))
            continue;
        of_b = str_eq(f->file, STR("b.py"));
        seen |= of_b ? 2 : 1;
        assert_true(d.total[0][i] == 100);
        assert_true(d.total[1][i] == (of_b ? 300 : 100));
    }
    assert_int_equal(seen, 3);
    (void)query_free(q);
}

static void two_files(void **state)
{
    struct store_conf conf = {.decode = decode, .min_free = 1, .workers = 2};
    char dir[] = "/tmp/strata_year_XXXXXX";
    struct store *store = NULL;
    struct err err = {};

    (void)state;
    store_tuning.seal_asked = true;
    store_tuning.compact_asked = true;
    store_tuning.epoch_ns = 1; /* each seal begins one */
    conf.dir = mkdtemp(dir);
    assert_ok(store_open(&conf, &store, &err), &err);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(append(store, &(struct one){.seq = i + 1,
                                                     .t = T0 + (int64_t)(i / 2) * DAY,
                                                     .shard = "x",
                                                     .node = 2 + i % 2,
                                                     .value = i == 3 ? 300 : 100}),
                         0);
        if (i == 1) {
            two_in_a_tree(store, false, 100, 100);
            assert_ok(store_seal(store, &err), &err);
            two_in_a_tree(store, true, 100, 100);
        }
    }
    assert_ok(store_seal(store, &err), &err);
    two_in_a_tree(store, false, 200, 400);
    two_in_a_tree(store, true, 200, 400);
    two_in_a_diff(store);
    store = store_close(store);
    store_tuning = (struct store_tuning){};
    assert_int_equal(test_remove_tree(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(thousand_parts),
                                       cmocka_unit_test(two_files)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
