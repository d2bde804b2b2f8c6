// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/lib/stacks.h"

/* Differences: both sides as measured, divided by their own denominators, in one scan. */

#define S NS_PER_S

struct sides {
    struct str q[2];
    int64_t from[2], to[2]; /* s */
};

static int open_diff(struct store *s, const struct sides *k, const struct stack_filters *f,
                     struct query **ret)
{
    struct query_conf conf = {
        .store = s, .now = {10000 * S}, .mem_max = UINT64_C(1) << 30, .max_points = 11000};
    struct query_ask a[2] = {};
    char t[4][32];
    uint32_t side = 0;

    for (int i = 0; i < 2; i++) {
        (void)snprintf(t[2 * i], sizeof t[0], "%" PRId64 "s", k->from[i]);
        (void)snprintf(t[2 * i + 1], sizeof t[0], "%" PRId64 "s", k->to[i]);
        a[i] = (struct query_ask){.q = k->q[i].n ? k->q[i] : STR("cpu"),
                                  .from = str_c(t[2 * i]),
                                  .to = str_c(t[2 * i + 1]),
                                  .need_type = true};
    }
    a[0].n_filter = f ? f->n : 0;
    for (uint32_t i = 0; i < a[0].n_filter; i++)
        a[0].filter[i] = str_c(f->text[i]);
    test_err = (struct query_err){};
    return query_open_diff(&conf, &a[0], &a[1], ret, &side, &test_err);
}

static struct query *ask(struct store *s, const struct sides *k, const struct stack_filters *f)
{
    struct query *q = NULL;

    assert_ok(open_diff(s, k, f, &q), &test_err);
    return q;
}

static void diff(struct query *q, const struct query_diff_ask *a, struct query_diff *ret)
{
    test_err = (struct query_err){};
    if (query_diff(q, a, ret, &test_err) != 0)
        fail_msg("diff: %s", test_err.msg);
}

/* ---- random pairs ------------------------------------------------------------------------------
 */

static void path_of_diff(const struct query_diff *d, struct path_sums *ret)
{
    struct query_flame f = {.n = d->n, .depth = d->depth, .node_func = d->node_func};

    for (uint32_t k = 0; k < 2; k++) {
        struct path_sums one = {};

        f.self = d->self[k];
        path_of_rows(&f, d->func, &one);
        for (uint32_t i = 0; i < one.n; i++)
            path_at(ret, one.v[i].path)->v[k] += one.v[i].v[0];
        path_free(&one);
    }
}

static void whole_of(const struct stacks *left, const struct sides *k, struct path_sums *want)
{
    for (uint32_t i = 0; i < left->n; i++) {
        const struct stack *x = &left->v[i];
        char path[PATH_SIZE] = "";

        for (uint32_t d = 0; d < x->n; d++)
            path_frame(path, x->f[d], false);
        for (int s = 0; s < 2; s++) {
            if (x->t >= k->from[s] * S && x->t < k->to[s] * S)
                path_at(want, path)->v[s] += x->value;
        }
    }
}

static void check_columns(const struct query_diff *d)
{
    double *below = xcalloc(d->n + 1, sizeof *below);
    uint32_t *open = xcalloc(d->n + 1, sizeof *open);
    double norm[2] = {d->side[0].norm, d->side[1].norm};

    for (uint32_t i = 0; i < d->n; i++) {
        const struct query_delta *r = &d->delta_row[i];
        bool a = d->samples[0][i], b = d->samples[1][i];

        open[d->depth[i]] = i;
        if (i)
            below[open[d->depth[i] - 1]] += r->churn;
        assert_int_equal(d->state[i], a == b ? QUERY_BOTH : a ? QUERY_ONLY_A : QUERY_ONLY_B);
        assert_true(r->total ==
                    (double)d->total[1][i] / norm[1] - (double)d->total[0][i] / norm[0]);
        assert_true(r->self == (double)d->self[1][i] / norm[1] - (double)d->self[0][i] / norm[0]);
        if (r->sig)
            assert_true(r->se >= 0 && fabs(r->total) >= 2 * r->se &&
                        (r->sig > 0) == (r->total > 0));
    }
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->node_func[i] >= 0) /* the width of the change: own and below */
            assert_true(fabs(below[i] + fabs(d->delta_row[i].self) - d->delta_row[i].churn) <=
                        1e-9 *
                            ((double)d->total[0][0] / norm[0] + (double)d->total[1][0] / norm[1]));
    }
    free(below);
    free(open);
}

static void random_sides(struct sides *k)
{
    for (int i = 0; i < 2; i++) {
        k->from[i] = stack_rnd(990);
        k->to[i] = k->from[i] + 1 + stack_rnd((uint32_t)(1000 - k->from[i]));
    }
}

static void pairs(void **state)
{
    static struct stacks all, left;

    (void)state;
    for (uint64_t n = 0; n < stack_rounds(200); n++) {
        struct store *s = stacks_new(n, &all);
        const struct query_diff_ask whole = {}, cut = {.width = 60, .max_nodes = 40};
        struct path_sums have = {}, want = {};
        struct stack_filters f = {};
        uint32_t taken[STACKS_MAX];
        struct query_diff d = {}, e = {};
        unit_i128 sum[2] = {};
        struct sides k = {};
        struct query *q;

        random_sides(&k);
        stack_filters_random(&f, 2);
        stacks_filter(&all, &f, &left, taken);
        q = ask(s, &k, &f);
        diff(q, &whole, &d);
        path_of_diff(&d, &have);
        whole_of(&left, &k, &want);
        for (uint32_t i = 0; i < want.n; i++) {
            assert_true(path_at(&have, want.v[i].path)->v[0] == want.v[i].v[0]);
            assert_true(path_at(&have, want.v[i].path)->v[1] == want.v[i].v[1]);
            sum[0] += want.v[i].v[0];
            sum[1] += want.v[i].v[1];
        }
        assert_int_equal(d.norm, QUERY_NORM_SECOND);
        assert_true(d.comparable && d.side[0].sum.total == sum[0] && d.side[1].sum.total == sum[1]);
        assert_true(d.side[0].norm == (double)(k.to[0] - k.from[0]));
        check_columns(&d);
        diff(q, &cut, &e);
        assert_true(e.n <= 40 && e.total[0][0] == sum[0] && e.total[1][0] == sum[1]);
        check_columns(&e);
        path_free(&have);
        path_free(&want);
        query_free(q);
        fake_store_free(s);
    }
}

/* diff(A, A) is 0; diff(A, B) = -diff(B, A); both totals are those of two flame graphs. */
static void identities(void **state)
{
    static const enum query_norm norms[] = {QUERY_NORM_SECOND, QUERY_NORM_SHARE, QUERY_NORM_NONE};
    static struct stacks all;

    (void)state;
    for (uint64_t n = 0; n < stack_rounds(60); n++) {
        struct store *s = stacks_new(n, &all);
        const struct query_diff_ask a = {.norm = norms[n % 3], .order = QUERY_ORDER_NAME};
        struct query_diff same = {}, ab = {}, ba = {};
        struct sides k = {}, swapped, equal;
        struct query *q[3];
        double self = 0;

        random_sides(&k);
        swapped = (struct sides){.from = {k.from[1], k.from[0]}, .to = {k.to[1], k.to[0]}};
        equal = (struct sides){.from = {k.from[0], k.from[0]}, .to = {k.to[0], k.to[0]}};
        q[0] = ask(s, &equal, NULL);
        q[1] = ask(s, &k, NULL);
        q[2] = ask(s, &swapped, NULL);
        diff(q[0], &a, &same);
        diff(q[1], &a, &ab);
        diff(q[2], &a, &ba);
        for (uint32_t i = 0; same.comparable && i < same.n; i++)
            assert_true(same.delta_row[i].total == 0 && same.delta_row[i].sig == 0);
        assert_true(ab.n == ba.n && ab.comparable == ba.comparable);
        for (uint32_t i = 0; ab.comparable && i < ab.n; i++) {
            assert_true(ab.delta_row[i].total == -ba.delta_row[i].total);
            assert_true(ab.delta_row[i].self == -ba.delta_row[i].self);
            assert_true(ab.delta_row[i].se == ba.delta_row[i].se);
            assert_true(ab.delta_row[i].sig == -ba.delta_row[i].sig);
            self += ab.delta_row[i].self;
        }
        if (ab.comparable)
            assert_true(fabs(self - ab.delta) <= 1e-9 * ((double)ab.total[0][0] / ab.side[0].norm +
                                                         (double)ab.total[1][0] / ab.side[1].norm));
        for (int i = 0; i < 3; i++)
            query_free(q[i]);
        fake_store_free(s);
    }
}

/* As a table: what /top says of each side. */
static void tables(void **state)
{
    static struct stacks all;
    const struct stack_filters none = {};

    (void)state;
    for (uint64_t n = 0; n < stack_rounds(60); n++) {
        struct store *s = stacks_new(n, &all);
        const struct query_diff_ask a = {.table = true, .order = QUERY_ORDER_DELTA, .limit = 1000};
        const struct query_top_ask ta = {.limit = 1000};
        struct sides k = {.to = {1000, 1000}};
        struct query *q, *p = stacks_ask(s, &none, false, NULL);
        struct query_diff d = {};
        struct query_top t = {};

        k.from[0] = 300;
        q = ask(s, &k, NULL);
        diff(q, &a, &d);
        assert_ok(query_top(p, &ta, &t, &test_err), &test_err);
        assert_true(d.n == t.n && d.rows == t.rows && !d.depth);
        for (uint32_t i = 0; i < d.n; i++) {
            const struct query_func *f = &d.func[d.node_func[i]];
            uint32_t j = 0;

            while (t.func[t.row[j].func].key != f->key)
                j++;
            assert_true(d.self[1][i] == t.row[j].self && d.total[1][i] == t.row[j].total);
            assert_true(d.samples[1][i] == t.row[j].samples);
            if (i)
                assert_true(fabs(d.delta_row[i - 1].self) >= fabs(d.delta_row[i].self));
        }
        query_free(q);
        query_free(p);
        fake_store_free(s);
    }
}

/* ---- single cases ------------------------------------------------------------------------------
 */

static void at(struct store *s, int64_t t, const char *stack, uint64_t count, int64_t period)
{
    fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                         .labels = "service=a",
                                         .t = t * S,
                                         .stack = stack,
                                         .count = count,
                                         .value = (int64_t)count * period});
}

static void covers(struct store *s, int64_t t0, int64_t t1, int64_t period)
{
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .t0 = t0 * S,
                                             .t1 = t1 * S,
                                             .basis = BASIS_PERIODIC,
                                             .period = period});
}

static const struct query_delta *row(const struct query_diff *d, const char *name)
{
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->node_func[i] >= 0 && str_eq(d->func[d->node_func[i]].name, str_c(name)))
            return &d->delta_row[i];
    }
    fail_msg("no row %s", name);
    return NULL;
}

/* The same program at two periods weighs the same; noise is no change, and a real change is one. */
static void significance(void **state)
{
    struct store *s = fake_store_new();
    struct sides k = {.from = {0, 100}, .to = {10, 110}};
    const struct query_diff_ask a = {};
    struct query_diff d = {};
    struct query *q;

    (void)state;
    at(s, 1, "n:main#x;n:same#x", 6000, 1000000);
    at(s, 1, "n:main#x;n:more#x", 1000, 1000000);
    at(s, 1, "n:main#x;n:few#x", 10, 1000000);
    covers(s, 0, 10, 1000000);
    at(s, 101, "n:main#x;n:same#x", 600, 10000000);
    at(s, 101, "n:main#x;n:more#x", 200, 10000000);
    at(s, 101, "n:main#x;n:noise#x", 3, 10000000);
    covers(s, 100, 110, 10000000);
    q = ask(s, &k, NULL);
    diff(q, &a, &d);
    assert_true(row(&d, "same")->total == 0 && row(&d, "same")->sig == 0);
    assert_true(row(&d, "more")->total == 1e8 && row(&d, "more")->sig == 1);
    assert_true(row(&d, "few")->sig == 0 && row(&d, "noise")->sig == 0); /* too few samples */
    /* 1,000 of 1 ms and 200 of 10 ms, per 10 s */
    assert_true(fabs(row(&d, "more")->se - sqrt(1000e12 + 200e14) / 10) < 1);
    assert_int_equal(d.n_warning, 1);
    assert_true(str_starts(d.warning[0], STR("periods_differ")));
    query_free(q);
    fake_store_free(s);
}

static void denominators(void **state)
{
    struct store *s = fake_store_new();
    struct sides k = {.from = {0, 1000}, .to = {200, 1600}};
    struct query_diff_ask a = {};
    struct query_diff d = {};
    struct query *q;

    (void)state;
    at(s, 1, "n:main#x;n:cart#x", 30, S);
    at(s, 1, "n:main#x;n:other#x", 70, S);
    covers(s, 0, 200, S);
    at(s, 1001, "n:main#x;n:cart#x", 360, S);
    at(s, 1001, "n:main#x;n:other#x", 240, S);
    covers(s, 1000, 1600, S);
    q = ask(s, &k, NULL);
    diff(q, &a, &d);
    assert_true(d.side[0].seconds == 200 && d.side[1].seconds == 600);
    assert_true(d.side[0].share == 100 * S && d.side[1].share == 600 * S);
    assert_true(fabs(row(&d, "cart")->total - (0.60 - 0.15) * 1e9) < 1);
    a.norm = QUERY_NORM_SHARE;
    diff(q, &a, &d);
    assert_true(fabs(row(&d, "cart")->total - 0.30) < 1e-12);
    assert_true(fabs(row(&d, "other")->total + 0.30) < 1e-12);
    a.norm = QUERY_NORM_NONE;
    diff(q, &a, &d);
    assert_true(row(&d, "cart")->total == 330e9);
    query_free(q);
    fake_store_free(s);
}

/* Covered and zero compares; not covered, or of unknown coverage, does not, and says whose. */
static void one_side_empty(void **state)
{
    struct store *s = fake_store_new();
    struct sides k = {.from = {0, 120}, .to = {60, 180}};
    struct query_diff_ask a = {};
    struct query_diff d = {};
    struct query *q;

    (void)state;
    at(s, 1, "n:main#x;n:f#x", 1000, 10000000);
    covers(s, 0, 60, 10000000);
    covers(s, 120, 180, 10000000);
    q = ask(s, &k, NULL);
    diff(q, &a, &d);
    assert_true(d.comparable && d.side[1].sum.total == 0 && row(&d, "f")->total < 0);
    a.norm = QUERY_NORM_SHARE;
    diff(q, &a, &d);
    assert_false(d.comparable);
    assert_string_equal(d.why_not, "b_zero_total");
    query_free(q);
    k.from[1] = 1200;
    k.to[1] = 1260;
    q = ask(s, &k, NULL);
    a.norm = QUERY_NORM_NONE;
    diff(q, &a, &d);
    assert_string_equal(d.why_not, "b_not_covered");
    assert_true(d.side[1].sum.total == QUERY_UNKNOWN && d.side[1].view == QUERY_UNKNOWN);
    query_free(q);
    at(s, 1201, "n:main#x;n:f#x", 1000, 10000000); /* of a source that says nothing */
    q = ask(s, &k, NULL);
    a.norm = QUERY_NORM_SECOND;
    diff(q, &a, &d);
    assert_string_equal(d.why_not, "b_coverage_unknown");
    query_free(q);
    fake_store_free(s);
}

static void by_selector(void **state)
{
    struct store *s = fake_store_new();
    struct sides k = {.q = {STR("cpu{version=\"1\"}"), STR("cpu{version=\"2\"}")}, .to = {9, 9}};
    const struct query_diff_ask a = {};
    struct query_diff d = {};
    struct query *q;

    (void)state;
    for (int v = 1; v <= 2; v++) {
        char stack[40], labels[40];

        (void)snprintf(labels, sizeof labels, "service=a,version=%d", v);
        (void)snprintf(stack, sizeof stack, "p:main@m.py;p:forward@%s.py", v == 1 ? "a" : "b");
        fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = labels,
                                             .t = S,
                                             .stack = stack,
                                             .count = 40,
                                             .value = 40});
        fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                                 .labels = labels,
                                                 .t1 = 9 * S,
                                                 .basis = BASIS_PERIODIC,
                                                 .period = 1,
                                                 .lost_why = v == 2 ? "ring_full" : NULL,
                                                 .lost_n = 10,
                                                 .lost_weight = 10});
    }
    q = ask(s, &k, NULL);
    diff(q, &a, &d);
    assert_int_equal(d.n, 4); /* all, main, two functions of one name */
    assert_true(d.state[1] == QUERY_BOTH && d.state[2] + d.state[3] == 3);
    assert_int_equal(d.n_warning, 1);
    assert_str(d.warning[0], STR("loss_differs: A lost 0.0 %, B lost 20.0 %"));
    query_free(q);
    fake_store_free(s);
}

/* Sources that see every event: what a function holds in 20 stretches of its range says how sure.
 */
static void every_event(void **state)
{
    struct store *s = fake_store_new();
    struct sides k = {.q = {STR("offcpu"), STR("offcpu")}, .from = {0, 1000}, .to = {20, 1060}};
    struct query_diff_ask a = {};
    struct query_diff d = {};
    double swings = 20 * (20 * 25.0 / 19); /* by turns 0 and 10 */
    struct query *q;

    (void)state;
    for (int64_t i = 0; i < 20; i++) {
        static const char *const stack[] = {"n:main#x;n:f#x", "n:main#x;n:main#x;n:g#x",
                                            "n:main#x;n:gone#x"};

        for (int n = 0; n < 3; n++)
            fake_store_row(s, &(struct fake_row){.type = PTYPE_OFFCPU,
                                                 .labels = "service=a",
                                                 .t = i * S,
                                                 .stack = stack[n],
                                                 .count = 2,
                                                 .value = n ? 7 : 10 * (i % 2)});
        fake_store_row(s, &(struct fake_row){.type = PTYPE_OFFCPU,
                                             .labels = "service=a",
                                             .t = (1020 + i) * S,
                                             .stack = stack[0],
                                             .count = 2,
                                             .value = 40});
    }
    fake_store_cover(
        s, &(struct fake_cover){.type = PTYPE_OFFCPU, .t1 = 20 * S, .basis = BASIS_EVERY});
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_OFFCPU,
                                             .t0 = 1020 * S,
                                             .t1 = 1040 * S, /* a third of what was asked */
                                             .basis = BASIS_EVERY});
    q = ask(s, &k, NULL);
    for (int table = 0; table < 2; table++) {
        a.table = table;
        a.limit = 10;
        diff(q, &a, &d);
        assert_true(fabs(row(&d, "f")->se - sqrt(swings) / 20) < 1e-9);
        assert_true(row(&d, "f")->total == 40 - 5 && row(&d, "f")->sig == 1);
        assert_true(row(&d, "g")->se < 1e-6 && row(&d, "gone")->se < 1e-6);
        assert_true(fabs(row(&d, "main")->se - sqrt(swings) / 20) < 1e-9);
        assert_true(fabs(d.delta_se - sqrt(swings) / 20) < 1e-9);
    }
    query_free(q);
    fake_store_free(s);
}

/* Per step of each side: steps that lie wholly inside the range; without any it does not compare.
 */
static void per_step(void **state)
{
    struct store *s = fake_store_new();
    struct query_conf conf = {
        .store = s, .now = {10000 * S}, .mem_max = 1 << 24, .max_points = 11000};
    struct query_ask a = {
        .q = STR("cpu"), .from = STR("0s"), .to = STR("100s"), .step = STR("train")};
    struct query_ask b = {
        .q = STR("cpu"), .from = STR("100s"), .to = STR("195s"), .step = STR("train")};
    struct query_diff_ask da = {};
    struct query_diff d = {};
    struct query *q = NULL;
    uint32_t side = 0;

    (void)state;
    covers(s, 0, 200, 10);
    for (int64_t i = 0; i < 20; i++) { /* 5 s of 10 s; the last one ends behind B's range */
        fake_store_step(s, &(struct fake_step){.pid = 7,
                                               .name = "train",
                                               .number = (uint64_t)i,
                                               .t0 = i * 10 * S,
                                               .t1 = (i * 10 + (i == 19 ? 6 : 5)) * S});
        for (int inside = 0; inside < 2; inside++)
            fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                                 .labels = "service=a",
                                                 .t = (i * 10 + (inside ? 1 : 6)) * S,
                                                 .stack = inside ? "n:main#x;n:in#x" : "n:main#x",
                                                 .count = 10,
                                                 .value = i < 10 ? 100 : 140,
                                                 .pid = 7});
    }
    assert_ok(query_open_diff(&conf, &a, &b, &q, &side, &test_err), &test_err);
    diff(q, &da, &d);
    assert_int_equal(d.norm, QUERY_NORM_STEP);
    assert_true(d.comparable && d.side[0].steps == 10 && d.side[1].steps == 9);
    assert_true(d.side[0].sum.total == 1000 && d.side[1].sum.total == 1400);
    assert_true(fabs(row(&d, "in")->total - (1400.0 / 9 - 100)) < 1e-9);
    assert_int_equal(d.n, 3); /* all, main, in: nothing of between the steps */
    query_free(q);
    b.step = (struct str){NULL, 0};
    assert_ok(query_open_diff(&conf, &a, &b, &q, &side, &test_err), &test_err);
    diff(q, &da, &d);
    assert_true(d.norm == QUERY_NORM_SECOND && d.side[1].steps == BATCH_UNKNOWN);
    da.norm = QUERY_NORM_STEP;
    diff(q, &da, &d);
    assert_string_equal(d.why_not, "b_no_steps");
    query_free(q);
    fake_store_free(s);
}

/* Memory, time and a client that left end a difference too. */
static void limits(void **state)
{
    static struct stacks all;
    struct store *s = stacks_new(5, &all);
    struct query_conf conf = {.store = s, .now = {10000 * S}, .mem_max = 60000};
    struct query_ask a = {.q = STR("cpu"), .from = STR("0s"), .to = STR("1000s")};
    const struct query_diff_ask da = {};
    atomic_bool cancel = true;
    struct query_diff d = {};
    struct query *q = NULL;
    uint32_t side = 0;

    (void)state;
    for (int k = 0; k < 3; k++) {
        test_err = (struct query_err){};
        conf.mem_max = k ? 1 << 24 : 60000;
        conf.deadline.v = k == 1;
        conf.cancel = k == 2 ? &cancel : NULL;
        assert_ok(query_open_diff(&conf, &a, &a, &q, &side, &test_err), &test_err);
        assert_true(query_diff(q, &da, &d, &test_err) < 0);
        assert_int_equal(test_err.code, k == 2 ? QUERY_CANCELED : QUERY_TOO_EXPENSIVE);
        query_free(q);
    }
    fake_store_free(s);
}

static void refusals(void **state)
{
    struct store *s = fake_store_new();
    struct sides k = {.q = {STR("cpu"), STR("offcpu")}, .to = {9, 9}};
    struct query_diff_ask a = {.norm = QUERY_NORM_SECOND};
    struct query_diff d = {};
    struct query *q = NULL;

    (void)state;
    (void)fake_store_type(s, "samples", "count", KIND_SUM);
    assert_true(open_diff(s, &k, NULL, &q) < 0);
    assert_int_equal(test_err.code, QUERY_TYPES_DIFFER);
    assert_non_null(strstr(test_err.msg, "cpu:nanoseconds"));
    assert_non_null(strstr(test_err.msg, "offcpu:nanoseconds"));
    k.q[0] = k.q[1] = STR("live");
    q = ask(s, &k, NULL);
    assert_true(query_diff(q, &a, &d, &test_err) < 0);
    assert_int_equal(test_err.code, QUERY_NORM_NOT_FOR_LEVEL);
    query_free(q);
    fake_store_row(s, &(struct fake_row){.type = PTYPE_IMPORTED_FIRST,
                                         .labels = "service=a",
                                         .t = S,
                                         .stack = "n:main#x",
                                         .count = 5,
                                         .value = 5});
    k.q[0] = k.q[1] = STR("samples");
    q = ask(s, &k, NULL);
    test_err = (struct query_err){};
    assert_true(query_diff(q, &a, &d, &test_err) < 0);
    assert_int_equal(test_err.code, QUERY_PERIOD_UNKNOWN);
    query_free(q);
    fake_store_free(s);
}

/* Every allocation fails once. */
static void no_memory(void **state)
{
    static struct stacks all;
    struct store *s = stacks_new(5, &all);
    struct sides k = {.from = {0, 300}, .to = {600, 1000}};
    const struct query_diff_ask a = {.order = QUERY_ORDER_DELTA, .width = 100, .max_nodes = 50};
    const struct query_diff_ask b = {.order = QUERY_ORDER_DELTA, .table = true, .limit = 5};
    bool ended = false;

    (void)state;
    for (uint64_t n = 1; !ended; n++) {
        struct query_diff d = {};
        struct query *q = NULL;
        int r;

        test_err = (struct query_err){};
        mem_fail_nth(n);
        r = open_diff(s, &k, NULL, &q);
        r = r ? r : query_diff(q, n % 2 ? &a : &b, &d, &test_err);
        mem_fail_nth(0);
        assert_true(r == 0 || test_err.code != QUERY_OK);
        ended = r == 0;
        query_free(r && !q ? NULL : q);
        assert_true(n < 20000);
    }
    fake_store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs),        cmocka_unit_test(identities),
        cmocka_unit_test(tables),       cmocka_unit_test(significance),
        cmocka_unit_test(denominators), cmocka_unit_test(one_side_empty),
        cmocka_unit_test(by_selector),  cmocka_unit_test(every_event),
        cmocka_unit_test(per_step),     cmocka_unit_test(limits),
        cmocka_unit_test(refusals),     cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
