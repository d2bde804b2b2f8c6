// SPDX-License-Identifier: Apache-2.0
/* Random batches, random questions: every sum equals that of the plain arrays, and the parts of any
 * cut add up, before and after a replay. */
#include "tests/unit/test_storage_lib.h"

#define SEED    20261129u
#define BATCHES 150u
#define ROUNDS  300u

struct question {
    uint32_t type;
    struct interval range;
    uint32_t n;
    struct store_matcher m[3];
    char text[3][24];
};

static int like_prefix(void *ctx, struct str value, struct err *err)
{
    (void)err;
    return str_starts(value, *(struct str *)ctx);
}

static struct str value_text(const struct orow *r, struct str name, char buf[24])
{
    int n = 0;

    if (str_eq(name, STR("service")))
        return str_c(svc_name[r->svc]);
    if (str_eq(name, STR("job")))
        return str_c(job_name[r->job]);
    if (str_eq(name, STR("thread")))
        return r->tid > 2 ? STR("worker") : STR("");
    if (str_eq(name, STR("pid")))
        n = r->pid ? snprintf(buf, 24, "%u", r->pid) : 0;
    else if (str_eq(name, STR("tid")))
        n = r->tid ? snprintf(buf, 24, "%u", r->tid) : 0;
    else if (str_eq(name, STR("cpu")))
        n = r->cpu ? snprintf(buf, 24, "%u", r->cpu - 1) : 0;
    return (struct str){buf, (size_t)n};
}

static bool takes(const struct question *q, const struct orow *r)
{
    char buf[24];

    if (r->type != q->type || !interval_has(q->range, (real_ns){r->ms * MS}))
        return false;
    for (uint32_t i = 0; i < q->n; i++) {
        const struct store_matcher *m = &q->m[i];
        struct str v = value_text(r, m->name, buf);
        bool eq = m->op >= STORE_LIKE ? str_starts(v, m->value) : str_eq(v, m->value);

        if (eq != (m->op == STORE_EQ || m->op == STORE_LIKE))
            return false;
    }
    return true;
}

static void ask_matchers(struct rnd *r, struct question *q)
{
    static const struct str name[] = {STR("service"), STR("job"), STR("pid"),
                                      STR("tid"),     STR("cpu"), STR("thread")};
    static const char *const value[] = {"api", "train", "web", "unknown", "",  "a",
                                        "b",   "101",   "10",  "1",       "3", "worker"};

    q->n = rnd_below(r, 4);
    for (uint32_t i = 0; i < q->n; i++) {
        struct store_matcher *m = &q->m[i];

        *m = (struct store_matcher){.name = name[rnd_below(r, 6)],
                                    .op = (enum store_op)(1 + rnd_below(r, 4)),
                                    .value = str_c(value[rnd_below(r, 12)]),
                                    .match = like_prefix};
        m->ctx = &m->value;
    }
}

static void ask_random(struct rnd *r, struct question *q)
{
    static const uint32_t type[] = {PTYPE_CPU, PTYPE_OFFCPU, PTYPE_IMPORTED_FIRST};
    int64_t a = T_BASE + (int64_t)(rnd_next(r) % (uint64_t)(T_SPAN * MS));
    int64_t b = T_BASE + (int64_t)(rnd_next(r) % (uint64_t)(T_SPAN * MS));

    q->type = type[rnd_below(r, 3)];
    q->range = (struct interval){{a < b ? a : b}, {a < b ? b : a}};
    ask_matchers(r, q);
}

static void run(struct store_view *v, struct store_query *q, struct store_answer *answer,
                struct sums *s, struct arena *a)
{
    const struct store_sink sink = {.share = sums_share, .ctx = s};
    struct err err = {};

    arena_reset(a);
    *s = (struct sums){};
    q->arena = a;
    assert_ok(store_scan(v, q, &sink, answer, &err), &err);
}

static void expect(const struct oracle *o, const struct question *q, unit_i128 *value,
                   uint64_t *count)
{
    *value = 0;
    *count = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        if (!takes(q, &o->v[i]))
            continue;
        *value += o->v[i].value;
        *count += o->v[i].count;
    }
}

static struct store_query query_of(const struct question *q, enum store_want want)
{
    return (struct store_query){
        .n_side = 1,
        .side = {{.sel = {.type = q->type, .n = q->n, .matcher = q->m}, .range = q->range}},
        .want = want};
}

static void check_total(struct store_view *v, const struct oracle *o, const struct question *ask,
                        struct rnd *r, struct arena *a)
{
    static struct sums s;
    struct store_query q = query_of(ask, rnd_below(r, 2) ? STORE_TOTALS : STORE_STACKS);
    struct store_answer answer;
    unit_i128 value;
    uint64_t count;

    run(v, &q, &answer, &s, a);
    expect(o, ask, &value, &count);
    assert_true(s.value[0][0][0] == value);
    assert_int_equal(s.count[0][0][0], count);
    if (answer.side[0].series == 0)
        assert_true(value == 0);
}

/* A cut anywhere: two sides of one scan add up to the whole, and so do buckets. */
static void check_cut(struct store_view *v, const struct oracle *o, const struct question *ask,
                      struct rnd *r, struct arena *a)
{
    static struct sums s;
    struct store_query q = query_of(ask, STORE_STACKS);
    int64_t len = ask->range.t1.v - ask->range.t0.v;
    real_ns cut = {ask->range.t0.v + (int64_t)(rnd_next(r) % (uint64_t)(len + 1))};
    struct store_answer answer;
    unit_i128 value, sum = 0;
    uint64_t count;

    expect(o, ask, &value, &count);
    q.n_side = 2;
    q.side[1] = q.side[0];
    q.side[0].range.t1 = cut;
    q.side[1].range.t0 = cut;
    run(v, &q, &answer, &s, a);
    assert_true(s.value[0][0][0] + s.value[1][0][0] == value);
    assert_int_equal(s.count[0][0][0] + s.count[1][0][0], count);
    q = query_of(ask, STORE_TOTALS);
    q.bucket_ns = len / 20 + 1;
    run(v, &q, &answer, &s, a);
    for (uint32_t b = 0; b < 32; b++) {
        struct question part = *ask;
        unit_i128 want;

        part.range.t0.v = ask->range.t0.v + b * q.bucket_ns;
        part.range.t1.v = part.range.t0.v + q.bucket_ns;
        part.range = interval_cut(part.range, ask->range);
        expect(o, &part, &want, &count);
        assert_true(s.value[0][0][b] == want);
        sum += s.value[0][0][b];
    }
    assert_true(sum == value);
}

static void check_groups(struct store_view *v, const struct oracle *o, const struct question *ask,
                         struct rnd *r, struct arena *a)
{
    static const struct str by[] = {STR("service"), STR("pid"), STR("cpu"), STR("job"),
                                    STR("thread")};
    static struct sums s;
    struct store_query q = query_of(ask, STORE_TOTALS);
    struct store_answer answer;
    unit_i128 all, left;
    uint64_t count;

    q.n_by = 1 + rnd_below(r, 2);
    q.by[0] = by[rnd_below(r, 5)];
    q.by[1] = by[rnd_below(r, 5)];
    run(v, &q, &answer, &s, a);
    expect(o, ask, &all, &count);
    left = all;
    for (uint32_t g = 0; g < answer.n_group; g++) {
        unit_i128 want = 0;
        char buf[24];

        for (uint32_t i = 0; i < o->n; i++) {
            if (takes(ask, &o->v[i]) &&
                str_eq(value_text(&o->v[i], q.by[0], buf), answer.group[g].value[0]) &&
                (q.n_by < 2 ||
                 str_eq(value_text(&o->v[i], q.by[1], buf), answer.group[g].value[1])))
                want += o->v[i].value;
        }
        assert_true(s.value[0][g][0] == want);
        left -= want;
    }
    assert_true(left == 0);
    if (answer.n_group > 1) { /* the second one alone: the rest is told as such */
        struct store_group one = answer.group[1];
        unit_i128 want = s.value[0][1][0];
        struct arena b;

        arena_init(&b, 1 << 20);
        q.n_group = 1;
        q.group = &one;
        run(v, &q, &answer, &s, &b);
        arena_deinit(&b);
        assert_true(s.value[0][0][0] == want);
        assert_true(s.value[0][SUM_GROUPS - 1][0] == all - want);
    }
}

static void check_random(struct fixture *f, uint32_t rounds)
{
    struct store_view *v = store_view_get(f->s);
    struct rnd r = {SEED};
    struct arena a;

    arena_init(&a, 1 << 24);
    for (uint32_t i = 0; i < rounds; i++) {
        struct question q;

        ask_random(&r, &q);
        check_total(v, &f->o, &q, &r, &a);
        check_cut(v, &f->o, &q, &r, &a);
        check_groups(v, &f->o, &q, &r, &a);
    }
    arena_deinit(&a);
    assert_null(store_view_put(v));
}

static void test_random(void **state)
{
    struct fixture f;
    struct err err = {};

    (void)state;
    print_message("seed %u\n", SEED);
    fixture_init(&f);
    fixture_open(&f, 0);
    for (uint64_t i = 1; i <= BATCHES; i++)
        assert_ok(fixture_append(&f, i, true, &err), &err);
    check_random(&f, ROUNDS);
    fixture_reopen(&f, 0);
    check_random(&f, ROUNDS / 3);
    fixture_deinit(&f);
}

/* ---- per stack ----------------------------------------------------------------------------- */

struct by_stack {
    struct store_view *v;
    struct map sum; /* stack -> value, wrapping: compared with the same */
    bool filter;
    uint64_t *bits[64];
};

static uint64_t stack_of(const struct store_trie *t, struct store_view *v, uint32_t epoch,
                         uint32_t node)
{
    struct err err = {};
    struct store_frame fr;

    if (node == 0)
        return 0;
    assert_true(t->parent[node] < node);
    assert_ok(store_frame(v, epoch, t->frame[node], &fr, &err), &err);
    return stack_step(stack_of(t, v, epoch, t->parent[node]), fr.name);
}

static bool stacks_share(void *ctx, uint32_t worker, const struct store_share *sh)
{
    static struct mutex mu = MUTEX_INIT;
    struct by_stack *s = ctx;
    struct store_trie t;
    struct err err = {};
    uint64_t *at;

    (void)worker;
    assert_ok(store_trie(s->v, sh->trie, &t, &err), &err);
    mutex_lock(&mu);
    for (uint32_t i = 0; i < sh->n; i++) {
        assert_true(sh->node[i] < t.n);
        assert_true(map_at(&s->sum, stack_of(&t, s->v, sh->trie.epoch, sh->node[i]), &at) !=
                    MAP_FULL);
        *at += sh->sum.v ? (uint64_t)sh->sum.v[i] : (uint64_t)sh->sum.wide[i];
    }
    mutex_unlock(&mu);
    return true;
}

static void check_stacks(struct fixture *f, uint32_t type)
{
    struct by_stack s = {.v = store_view_get(f->s)};
    const struct store_sink sink = {.share = stacks_share, .ctx = &s};
    struct arena a;
    struct store_query q = {.n_side = 1,
                            .side = {{.sel = {.type = type}, .range = WHOLE}},
                            .want = STORE_STACKS,
                            .arena = &a};
    struct store_answer answer;
    struct err err = {};
    uint64_t key, value;
    uint32_t pos = 0;

    arena_init(&a, 1 << 20);
    map_init(&s.sum, 0);
    assert_ok(store_scan(s.v, &q, &sink, &answer, &err), &err);
    for (uint32_t i = 0; i < f->o.n; i++) {
        const struct orow *r = &f->o.v[i];
        uint64_t *at;

        if (r->type != type)
            continue;
        assert_int_equal(map_at(&s.sum, r->stack, &at), MAP_FOUND);
        *at -= (uint64_t)r->value;
    }
    while (map_next(&s.sum, &pos, &key, &value))
        assert_int_equal(value, 0);
    map_deinit(&s.sum);
    arena_deinit(&a);
    s.v = store_view_put(s.v);
}

static void test_stacks(void **state)
{
    struct fixture f;
    struct err err = {};

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    for (uint64_t i = 1; i <= 40; i++)
        assert_ok(fixture_append(&f, i, true, &err), &err);
    check_stacks(&f, PTYPE_CPU);
    check_stacks(&f, PTYPE_OFFCPU);
    check_stacks(&f, PTYPE_IMPORTED_FIRST);
    fixture_deinit(&f);
}

/* Equal functions of one path are one function node; a second one below itself is marked. */
static void test_function_trie(void **state)
{
    struct fixture f;
    struct err err = {};
    struct store_view *v;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    for (uint64_t i = 1; i <= 30; i++)
        assert_ok(fixture_append(&f, i, false, &err), &err);
    v = store_view_get(f.s);
    for (uint32_t svc = 1; svc <= N_SVC; svc++) {
        struct store_trie t;

        assert_ok(store_trie(v, (struct store_trie_id){1, svc, 0}, &t, &err), &err);
        for (uint32_t i = 1; i < t.n; i++) {
            struct store_frame fr;
            struct store_func fn;

            assert_ok(store_frame(v, 1, t.frame[i], &fr, &err), &err);
            assert_int_equal(fr.func, t.func[t.fnode[i]]);
            assert_int_equal(t.fparent[t.fnode[i]], t.fnode[t.parent[i]]);
            assert_ok(store_func(v, 1, fr.func, &fn, &err), &err);
            assert_str(fn.name, fr.name);
            assert_int_equal(fn.key, func_key(fn.scope, fn.name));
        }
        for (uint32_t i = 1; i < t.n_fnode; i++) {
            bool again = false;

            assert_true(t.fparent[i] < i);
            for (uint32_t k = t.fparent[i]; k != 0; k = t.fparent[k])
                again |= t.func[k] == t.func[i];
            assert_int_equal(again, t.again[i / 64] >> i % 64 & 1);
            for (uint32_t k = i + 1; k < t.n_fnode; k++)
                assert_false(t.fparent[k] == t.fparent[i] && t.func[k] == t.func[i]);
        }
    }
    assert_int_equal(store_trie(v, (struct store_trie_id){1, 99, 0}, &(struct store_trie){}, NULL),
                     -ENOENT);
    assert_null(store_view_put(v));
    fixture_deinit(&f);
}

/* ---- rows, node filter, windows, refusals --------------------------------------------------- */

struct rows_seen {
    uint64_t n;
    unit_i128 value;
};

static bool on_rows(void *ctx, uint32_t worker, const struct store_rows *rows)
{
    static struct mutex mu = MUTEX_INIT;
    struct rows_seen *s = ctx;

    (void)worker;
    mutex_lock(&mu);
    for (uint32_t i = 0; i < rows->n; i++) {
        assert_true(i == 0 || rows->t[i - 1].v <= rows->t[i].v);
        s->value += rows->value.v[i];
        s->n++;
    }
    mutex_unlock(&mu);
    return true;
}

static void test_rows(void **state)
{
    struct fixture f;
    struct rows_seen seen = {};
    struct err err = {};
    struct store_answer answer;
    struct question ask = {.type = PTYPE_CPU, .range = WHOLE};
    const struct store_sink sink = {.rows = on_rows, .ctx = &seen};
    struct store_query q = query_of(&ask, STORE_ROWS);
    struct store_view *v;
    uint64_t n = 0, count;
    unit_i128 want;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    for (uint64_t i = 1; i <= 20; i++)
        assert_ok(fixture_append(&f, i, true, &err), &err);
    for (uint32_t i = 0; i < f.o.n; i++)
        n += f.o.v[i].type == PTYPE_CPU;
    v = store_view_get(f.s);
    q.arena = &f.a;
    assert_ok(store_scan(v, &q, &sink, &answer, &err), &err);
    expect(&f.o, &ask, &want, &count);
    assert_int_equal(seen.n, n);
    assert_true(seen.value == want);
    assert_null(store_view_put(v));
    fixture_deinit(&f);
}

static const uint64_t *root_only(void *ctx, uint32_t worker, struct store_trie_id trie)
{
    static uint64_t bits[1024] = {1};

    (void)ctx;
    (void)worker;
    (void)trie;
    return bits;
}

static void test_filter_and_windows(void **state)
{
    static struct sums s;
    struct fixture f;
    struct err err = {};
    struct store_answer answer;
    struct question ask = {.type = PTYPE_CPU, .range = WHOLE};
    struct store_query q;
    struct store_view *v;
    struct store_window w[2];
    unit_i128 want = 0;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    for (uint64_t i = 1; i <= 40; i++)
        assert_ok(fixture_append(&f, i, true, &err), &err);
    v = store_view_get(f.s);
    q = query_of(&ask, STORE_TOTALS);
    q.nodes = root_only;
    run(v, &q, &answer, &s, &f.a);
    for (uint32_t i = 0; i < f.o.n; i++)
        want += f.o.v[i].type == PTYPE_CPU && f.o.v[i].stack == 0 ? f.o.v[i].value : 0;
    assert_true(want > 0 && s.value[0][0][0] == want);

    /* two overlapping steps of process 102: a row in both counts once */
    for (int i = 0; i < 2; i++)
        w[i] = (struct store_window){
            .target = {.host = {1}, .pidns = 7, .pid = 102, .start = {2}},
            .t = {{T_BASE + (100000 + 50000 * i) * MS}, {T_BASE + (250000 + 50000 * i) * MS}}};
    q = query_of(&ask, STORE_TOTALS);
    q.side[0].n_window = 2;
    q.side[0].window = w;
    run(v, &q, &answer, &s, &f.a);
    want = 0;
    for (uint32_t i = 0; i < f.o.n; i++) {
        const struct orow *r = &f.o.v[i];
        int64_t ms = r->ms - T_BASE / MS;

        if (r->type == PTYPE_CPU && r->pid == 102 && ms >= 100000 && ms < 300000)
            want += r->value;
    }
    assert_true(want > 0 && s.value[0][0][0] == want);
    w[0].target.pid = w[1].target.pid = 4711; /* nobody */
    run(v, &q, &answer, &s, &f.a);
    assert_int_equal(s.shares, 0);
    assert_null(store_view_put(v));
    fixture_deinit(&f);
}

static bool stop_share(void *ctx, uint32_t worker, const struct store_share *sh)
{
    (void)ctx;
    (void)worker;
    (void)sh;
    return false;
}

static int give_up(void *ctx, struct str value, struct err *err)
{
    (void)ctx;
    return err_set(err, -E2BIG, "gave up at %.*s", STR_ARG(value));
}

static void test_refusals(void **state)
{
    static struct sums s;
    struct fixture f;
    struct err err = {};
    struct store_answer answer;
    struct question ask = {.type = PTYPE_CPU, .range = WHOLE};
    struct store_query q = query_of(&ask, STORE_STACKS);
    const struct store_sink sink = {.share = sums_share, .ctx = &s}, stop = {.share = stop_share};
    const atomic_bool yes = true;
    struct store_view *v;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    assert_ok(fixture_append(&f, 1, false, &err), &err);
    v = store_view_get(f.s);
    q.arena = &f.a;
    assert_int_equal(store_scan(v, &q, &stop, &answer, NULL), -ECANCELED);
    q.cancel = &yes;
    assert_int_equal(store_scan(v, &q, &sink, &answer, NULL), -ECANCELED);
    q.cancel = NULL;
    q.deadline = (mono_ns){1};
    assert_int_equal(store_scan(v, &q, &sink, &answer, NULL), -ETIMEDOUT);
    q.deadline = (mono_ns){};
    q.mem_max = 100;
    assert_int_equal(store_scan(v, &q, &sink, &answer, NULL), -ENOMEM);
    q.mem_max = 0;
    q.level = STORE_AVERAGE;
    assert_int_equal(store_scan(v, &q, &sink, &answer, NULL), -EINVAL);
    q.level = STORE_PEAK;
    assert_int_equal(store_scan(v, &q, &sink, &answer, NULL), -ENOTSUP);
    q.level = STORE_SUM;
    q.n_side = 2;
    q.side[1] = q.side[0];
    q.side[1].sel.type = PTYPE_OFFCPU;
    assert_int_equal(store_scan(v, &q, &sink, &answer, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "cpu"));
    assert_non_null(strstr(err.msg, "offcpu"));
    q.n_side = 1;
    q.side[0].sel.type = PTYPE_LIVE;
    assert_int_equal(store_scan(v, &q, &sink, &answer, NULL), -EINVAL);
    q.side[0].sel.type = 999;
    assert_int_equal(store_scan(v, &q, &sink, &answer, NULL), -EINVAL);
    q.side[0].sel.type = PTYPE_CPU;
    q.side[0].sel.n = 1;
    q.side[0].sel.matcher = &(struct store_matcher){
        .name = STR("service"), .op = STORE_LIKE, .value = STR("x"), .match = give_up};
    assert_int_equal(store_scan(v, &q, &sink, &answer, NULL), -E2BIG);
    assert_null(store_view_put(v));
    fixture_deinit(&f);
}

/* Which condition left nothing, and equal questions to equal data. */
static void test_none_by_and_etag(void **state)
{
    static struct sums s;
    struct fixture f;
    struct err err = {};
    struct store_answer answer;
    struct question ask = {.type = PTYPE_CPU,
                           .range = WHOLE,
                           .n = 2,
                           .m = {{.name = STR("service"), .op = STORE_EQ, .value = STR("api")},
                                 {.name = STR("job"), .op = STORE_EQ, .value = STR("nope")}}};
    struct store_query q = query_of(&ask, STORE_STACKS);
    struct store_view *v;
    uint64_t etag;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    for (uint64_t i = 1; i <= 5; i++)
        assert_ok(fixture_append(&f, i, false, &err), &err);
    v = store_view_get(f.s);
    run(v, &q, &answer, &s, &f.a);
    assert_int_equal(answer.side[0].none_by, 1);
    assert_int_equal(answer.side[0].series, 0);
    ask.n = 1;
    q = query_of(&ask, STORE_STACKS);
    run(v, &q, &answer, &s, &f.a);
    assert_int_equal(answer.side[0].none_by, -1);
    assert_true(answer.side[0].series > 0);
    etag = answer.etag;
    run(v, &q, &answer, &s, &f.a);
    assert_true(etag == answer.etag);
    assert_null(store_view_put(v));
    assert_ok(fixture_append(&f, 6, false, &err), &err);
    v = store_view_get(f.s);
    run(v, &q, &answer, &s, &f.a);
    assert_true(etag != answer.etag);
    assert_null(store_view_put(v));
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_function_trie),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_filter_and_windows),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_none_by_and_etag),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
