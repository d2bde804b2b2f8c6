// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "tests/lib/fake_query.h"

/* Steps, events, coverage and label sets: whose they are, pages, gaps. */

#define S  NS_PER_S
#define MS NS_PER_MS

static struct query *ask_step(struct store *s, const char *q, const char *step, int expect)
{
    struct query_conf conf = {
        .store = s, .now = {10000 * S}, .mem_max = UINT64_C(1) << 28, .max_points = 11000};
    struct query_ask a = {.q = str_c(q),
                          .from = STR("0s"),
                          .to = STR("100s"),
                          .step = str_c(step),
                          .need_type = true};
    struct query *ret = NULL;
    int r;

    test_err = (struct query_err){};
    r = query_open(&conf, &a, &ret, &test_err);
    if (r != expect)
        fail_msg("%s step=%s: %d %s", q, step, r, test_err.msg);
    return ret;
}

static void step(struct store *s, uint64_t pid, const char *name, uint64_t number, int64_t t0,
                 int64_t t1)
{
    fake_store_step(
        s, &(struct fake_step){.pid = pid, .name = name, .number = number, .t0 = t0, .t1 = t1});
}

/* ---- step= -------------------------------------------------------------------------------------
 */

static void restricted(struct query *q, unit_i128 want)
{
    const struct query_flame_ask fa = {};
    const struct query_top_ask ta = {.limit = 10};
    struct query_flame f = {};
    struct query_top t = {};

    assert_ok(query_flame(q, &fa, &f, &test_err), &test_err);
    assert_true(f.sum.total == want);
    assert_ok(query_top(q, &ta, &t, &test_err), &test_err);
    assert_true(t.sum.total == want);
    for (int64_t b = 1300 * MS; b < 200 * S; b = b * 2 + 11) {
        const struct query_series_ask sa = {.bucket_ns = b};
        struct query_series r = {};
        unit_i128 sum = 0;

        assert_ok(query_series(q, &sa, &r, &test_err), &test_err);
        for (uint32_t i = 0; i < r.n; i++)
            sum += r.line[0].value[i] == QUERY_UNKNOWN ? 0 : r.line[0].value[i];
        assert_true(sum == want && r.sum.total == want && r.line[0].total == want);
    }
}

static void step_restricts(void **state)
{
    struct store *s = test_three();
    struct query *q;

    (void)state;
    for (uint64_t i = 0; i < 10; i++) { /* 3 s each, every 10 s; process 2 begins 1 s later */
        step(s, 1, "train", i, (int64_t)i * 10 * S, (int64_t)(i * 10 + 3) * S);
        step(s, 2, "train", i, (int64_t)(i * 10 + 1) * S, (int64_t)(i * 10 + 4) * S);
        step(s, 3, "train", i, (int64_t)i * 10 * S, (int64_t)(i * 10 + 1) * S);
    }
    step(s, 1, "eval", 0, 0, 50 * S);
    q = ask_step(s, "cpu{service=\"a\"}", "train", 0);
    assert_true(query_head(q)->step.n == 20 && query_head(q)->step.whole == 20);
    restricted(q, 30 * 10 + 30 * 100);
    query_free(q);
    q = ask_step(s, "cpu", "train", 0);
    restricted(q, 30 * 10 + 30 * 100 + 10 * 1000);
    query_free(q);
    q = ask_step(s, "cpu{pid=\"2\"}", "train:3-4", 0);
    assert_true(query_head(q)->step.n == 2 && query_head(q)->step.numbered);
    restricted(q, 600);
    query_free(q);
    q = ask_step(s, "cpu{service=\"a\"}", "train:9", 0);
    restricted(q, 330);
    query_free(q);
    q = ask_step(s, "cpu{service=\"a\"}", "eval", 0);
    restricted(q, 500);
    query_free(q);
    fake_store_free(s);
}

/* A step that began before the range or ends behind it counts with what lies inside. */
static void step_at_the_edges(void **state)
{
    struct store *s = test_three();
    struct query *q;

    (void)state;
    step(s, 1, "train", 1, -5 * S, 2 * S);
    step(s, 1, "train", 2, 98 * S, 120 * S);
    step(s, 1, "train", 3, 50 * S, 50 * S + 1);
    step(s, 1, "train", 4, 60 * S + 1, 61 * S); /* no row begins in it */
    q = ask_step(s, "cpu", "train", 0);
    assert_true(query_head(q)->step.n == 4 && query_head(q)->step.whole == 2);
    restricted(q, 50);
    query_free(q);
    fake_store_free(s);
}

static void no_such_step(void **state)
{
    const struct query_flame_ask fa = {};
    const struct query_series_ask sa = {.bucket_ns = 10 * S};
    struct store *s = test_three();
    struct query_series r = {};
    struct query_flame f = {};
    struct query *q;

    (void)state;
    step(s, 3, "train", 1, 0, 50 * S);
    step(s, 0, "train", 2, 0, 50 * S); /* names no process, and service a no more than b */
    q = ask_step(s, "cpu{service=\"a\"}", "train", 0);
    assert_ok(query_flame(q, &fa, &f, &test_err), &test_err);
    assert_true(f.sum.total == QUERY_UNKNOWN && f.n == 0);
    assert_int_equal(f.sum.empty.why, QUERY_NO_STEPS);
    assert_int_equal(f.sum.quality.n_warning, 0);
    assert_ok(query_series(q, &sa, &r, &test_err), &test_err);
    assert_true(r.line[0].value[0] == QUERY_UNKNOWN && r.sum.total == QUERY_UNKNOWN);
    query_free(q);
    fake_store_step(
        s, &(struct fake_step){.name = "train", .number = 3, .labels = "service=a", .t1 = 50 * S});
    q = ask_step(s, "cpu{service=\"a\"}", "train", 0);
    assert_ok(query_flame(q, &fa, &f, &test_err), &test_err);
    assert_int_equal(query_head(q)->step.homeless, 1);
    assert_int_equal(f.sum.quality.n_warning, 1);
    assert_true(str_starts(f.sum.quality.warning[0], STR("steps_without_process: 1 ")));
    query_free(q);
    fake_store_free(s);
}

static void bad_steps(void **state)
{
    struct store *s = test_three();

    (void)state;
    (void)ask_step(s, "cpu", "train:5-4", -EINVAL);
    assert_string_equal(test_err.param, "step");
    (void)ask_step(s, "cpu", ":5", -EINVAL);
    (void)ask_step(s, "live", "train", -ENOTSUP);
    assert_int_equal(test_err.code, QUERY_NOT_SUPPORTED);
    /* what is no number is part of the name */
    query_free(ask_step(s, "cpu", "a:b", 0));
    query_free(ask_step(s, "cpu", "train:99999999999999999999", 0));
    fake_store_free(s);
}

/* ---- the list of steps -------------------------------------------------------------------------
 */

static void list(struct query *q, const struct query_steps_ask *a, struct query_steps *ret)
{
    test_err = (struct query_err){};
    if (query_steps(q, a, ret, &test_err) != 0)
        fail_msg("steps: %s", test_err.msg);
}

static void steps_listed(void **state)
{
    struct query_steps_ask a = {.name = STR("train"), .limit = 100};
    struct query_steps r = {};
    struct store *s = test_three();
    struct query *q;

    (void)state;
    for (uint64_t i = 1; i <= 10; i++)
        fake_store_step(s, &(struct fake_step){.pid = 1,
                                               .name = "train",
                                               .number = i,
                                               .t0 = (int64_t)i * S,
                                               .t1 = (int64_t)i * S + (int64_t)i * MS,
                                               .tid = 7,
                                               .n_part = 2,
                                               .part = {"idle", "compute"},
                                               .part_ns = {-1, (int64_t)i * MS}});
    fake_store_step(s, &(struct fake_step){.pid = 3, .name = "eval", .t0 = S, .t1 = 9 * S});
    fake_store_step(s, &(struct fake_step){.name = "load",
                                           .labels = "service=a,rank=0",
                                           .number = UINT64_MAX,
                                           .t0 = 2 * S,
                                           .t1 = 3 * S,
                                           .inferred = true,
                                           .n_part = 1,
                                           .part = {"wait"},
                                           .part_ns = {5}});
    q = test_ask_any(s, "{service=\"a\"}", 0, 100 * S);
    list(q, &a, &r);
    assert_true(r.n == 10 && r.n_name == 1 && r.n_part == 2 && r.next.n == 0);
    assert_str(r.part[0], STR("compute"));
    assert_true(r.row[2].part_ns[0] == 3 * MS && r.row[2].part_ns[1] == -1);
    assert_true(r.row[2].number == 3 && r.row[2].tid == 7 && r.row[2].owner.known);
    assert_true(r.name[0].n == 10 && r.name[0].min_ns == MS && r.name[0].max_ns == 10 * MS);
    assert_true(r.name[0].p50_ns == 5 * MS && r.name[0].p90_ns == 9 * MS);
    assert_true(r.name[0].p99_ns == 10 * MS && r.name[0].mean_ns == 5500000);
    a = (struct query_steps_ask){.sort = QUERY_STEPS_BY_DURATION, .limit = 2};
    list(q, &a, &r);
    assert_true(r.n == 2 && r.n_name == 2 && r.next.n); /* eval is of b */
    assert_str(r.name[0].name, STR("load"));
    assert_true(r.row[0].name == 0 && r.row[0].inferred && !r.row[0].owner.known);
    assert_true(r.row[0].number == UINT64_MAX && r.row[0].labels.n == 2);
    assert_true(r.n_part == 3 && r.row[0].part_ns[2] == 5 && r.row[0].part_ns[0] == -1);
    assert_true(r.row[1].name == 1 && r.row[1].number == 10);
    query_free(q);
    q = test_ask_any(s, "{service=\"nobody\"}", 0, 100 * S);
    list(q, &a, &r);
    assert_true(r.n == 0 && r.n_name == 0 && r.next.n == 0);
    query_free(q);
    fake_store_free(s);
}

/* Pages of any size show every row once, equal ones too. */
static void steps_paged(void **state)
{
    struct store *s = test_three();
    struct query *q;

    (void)state;
    for (uint64_t i = 0; i < 24; i++) /* by threes equal in all that orders them */
        fake_store_step(s, &(struct fake_step){.pid = 1 + i % 2,
                                               .name = "train",
                                               .number = i / 6,
                                               .t0 = (int64_t)(i / 6) * S - S,
                                               .t1 = 10 * S,
                                               .tid = (uint32_t)i + 1});
    q = test_ask_any(s, "", 0, 100 * S);
    for (uint32_t sort = 0; sort < 2; sort++) {
        for (uint32_t limit = 1; limit < 26; limit++) {
            struct query_steps_ask a = {.sort = sort, .limit = limit};
            uint32_t seen = 0, n = 0, pages = 0;

            for (;;) {
                struct query_steps r = {};

                list(q, &a, &r);
                for (uint32_t i = 0; i < r.n; i++)
                    seen |= 1u << (r.row[i].tid - 1);
                n += r.n;
                assert_true(++pages < 30 && r.name[0].n == 24);
                if (r.next.n == 0)
                    break;
                a.after = r.next;
            }
            assert_true(n == 24 && seen == 0xffffff);
        }
    }
    test_err = (struct query_err){};
    {
        const struct query_steps_ask a = {.limit = 1, .after = STR("1.2.3.4")};
        struct query_steps r;

        assert_int_equal(query_steps(q, &a, &r, &test_err), -EINVAL);
        assert_string_equal(test_err.param, "after");
    }
    query_free(q);
    fake_store_free(s);
}

/* ---- events ------------------------------------------------------------------------------------
 */

static uint32_t all_events(struct query *q, uint32_t limit, char *ret_texts)
{
    struct str after = {NULL, 0};
    uint32_t n = 0;

    for (;;) {
        struct query_events v = {};

        if (query_events(q, limit, after, &v, &test_err) != 0)
            fail_msg("events: %s", test_err.msg);
        for (uint32_t i = 0; i < v.n; i++)
            ret_texts[n++] = v.row[i].text.p[0];
        ret_texts[n] = '\0';
        if (v.next.n == 0)
            return n;
        after = v.next;
        assert_true(n < 30);
    }
}

static void events(void **state)
{
    static const struct fake_event v[] = {
        {1 * S, "restart", "a", 1}, {2 * S, "oom", "b", 2},        {2 * S, "clock_step", "c", 0},
        {2 * S, "state", "d", 1},   {2 * S, "state", "e", 3},      {2 * S, "state", "f", 1},
        {5 * S, "state", "g", 2},   {200 * S, "state", "late", 1},
    };
    struct store *s = test_three();
    struct query_events bad;
    struct query *q;
    char texts[40];

    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        fake_store_event(s, &v[i]);
    q = test_ask_any(s, "", 0, 100 * S);
    for (uint32_t limit = 1; limit < 9; limit++) {
        assert_int_equal(all_events(q, limit, texts), 7);
        assert_string_equal(texts, "abcdefg");
    }
    assert_int_equal(query_events(q, 1, STR("x.1"), &bad, &test_err), -EINVAL);
    query_free(q);
    q = test_ask_any(s, "{service=\"a\"}", 0, 100 * S); /* and what happened to the machine */
    for (uint32_t limit = 1; limit < 9; limit++) {
        (void)all_events(q, limit, texts);
        assert_string_equal(texts, "abcdfg");
    }
    query_free(q);
    q = test_ask_any(s, "cpu{pid=\"3\"}", 0, 100 * S);
    (void)all_events(q, 10, texts);
    assert_string_equal(texts, "e");
    query_free(q);
    q = test_ask_any(s, "{service!~\"a|b\"}", 0, 100 * S);
    (void)all_events(q, 10, texts);
    assert_string_equal(texts, "abcdefg"); /* no event says that it is of a or b: it could be */
    query_free(q);
    fake_store_free(s);
}

/* ---- coverage ----------------------------------------------------------------------------------
 */

static void says(struct store *s, const char *labels, uint64_t pid, int64_t t0, int64_t t1,
                 enum source_state state, const char *why)
{
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .labels = labels,
                                             .pid = pid,
                                             .t0 = t0,
                                             .t1 = t1,
                                             .state = state,
                                             .why = why,
                                             .basis = BASIS_PERIODIC,
                                             .period = 10,
                                             .received = 1});
}

static void coverage(void **state)
{
    struct query_cover_answer a = {};
    struct store *s = fake_store_new();
    struct query *q;

    (void)state;
    test_row_of(s, 1, "a", S, 10);
    says(s, "host=x", 0, 0, 10 * S, SOURCE_OK, NULL);
    says(s, "host=x", 0, 10 * S, 20 * S, SOURCE_OK, NULL);
    says(s, "host=x", 0, 20 * S, 30 * S, SOURCE_PAUSED, "budget");
    says(s, "host=x", 7, 25 * S, 40 * S, SOURCE_OK, NULL);
    says(s, "host=y", 0, 5 * S, 15 * S, SOURCE_REFUSED, "rights");
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .labels = "host=y",
                                             .t0 = 50 * S,
                                             .t1 = 60 * S,
                                             .lost_why = "spool_drop",
                                             .lost_n = BATCH_UNKNOWN,
                                             .lost_weight = 70});
    q = test_ask_any(s, "cpu", 0, 100 * S);
    assert_ok(query_coverage(q, QUERY_COVER_BY_SOURCE, 100, &a, &test_err), &test_err);
    assert_true(a.n == 3 && a.more == 0);
    assert_true(a.source[0].n_run == 2 && a.source[0].covered_ns == 20 * S);
    assert_true(a.source[0].run[0].t.t1.v == 20 * S);
    assert_int_equal(a.source[0].run[1].state, QUERY_RUN_PAUSED);
    assert_str(a.source[0].run[1].why, STR("budget"));
    assert_true(a.source[0].labels.n == 1 && a.source[0].asked_ns == (unit_i128)100 * S);
    assert_ok(query_coverage(q, QUERY_COVER_BY_HOST, 100, &a, &test_err), &test_err);
    assert_int_equal(a.n, 2);
    assert_str(a.source[0].host, STR("x"));
    assert_true(a.source[0].scopes == 2 && a.source[0].covered_ns == 35 * S);
    assert_true(a.source[0].n_run == 3); /* ok, paused until the process looked, ok */
    assert_true(a.source[0].run[1].t.t0.v == 20 * S && a.source[0].run[1].t.t1.v == 25 * S);
    assert_true(a.source[0].source_ns == (unit_i128)35 * S &&
                a.source[0].asked_ns == (unit_i128)175 * S);
    assert_str(a.source[1].host, STR("y"));
    assert_true(a.source[1].n_run == 2 && a.source[1].covered_ns == 0);
    assert_int_equal(a.source[1].run[0].state, QUERY_RUN_REFUSED);
    assert_int_equal(a.source[1].run[1].state, QUERY_RUN_LOST);
    assert_true(a.source[1].n_lost == 1 && a.source[1].lost[0].n == BATCH_UNKNOWN);
    assert_true(a.source[1].lost[0].weight == 70 && a.source[1].n_loss_run == 1);
    assert_true(a.source[1].loss_run[0].t.t0.v == 50 * S);
    assert_ok(query_coverage(q, QUERY_COVER_BY_TARGET, 100, &a, &test_err), &test_err);
    assert_true(a.n == 2 && !a.source[0].owner.known && a.source[1].owner.known);
    assert_ok(query_coverage(q, QUERY_COVER_BY_HOST, 1, &a, &test_err), &test_err);
    assert_true(a.n == 1 && a.more == 1);
    query_free(q);
    q = test_ask_any(s, "", 0, 100 * S); /* all types: the same here */
    assert_ok(query_coverage(q, QUERY_COVER_BY_HOST, 100, &a, &test_err), &test_err);
    assert_true(a.n == 2 && a.source[0].type.id == PTYPE_CPU);
    query_free(q);
    fake_store_free(s);
}

static void many_runs(void **state)
{
    struct query_cover_answer a = {};
    struct store *s = fake_store_new();
    struct query *q;

    (void)state;
    test_row_of(s, 1, "a", S, 10);
    for (int64_t i = 0; i < QUERY_RUNS_MAX + 5; i++)
        says(s, "host=x", 0, 2 * i * MS, (2 * i + 1) * MS, SOURCE_OK, NULL);
    q = test_ask_any(s, "cpu", 0, 100 * S);
    assert_ok(query_coverage(q, QUERY_COVER_BY_SOURCE, 100, &a, &test_err), &test_err);
    assert_true(a.source[0].n_run == QUERY_RUNS_MAX && a.source[0].runs_more == 5);
    assert_true(a.source[0].covered_ns == (QUERY_RUNS_MAX + 5) * MS); /* the cut ones too */
    query_free(q);
    fake_store_free(s);
}

/* ---- label sets --------------------------------------------------------------------------------
 */

static void label_sets(void **state)
{
    struct store *s = test_three();
    struct query_sets r = {};
    struct query *q = test_ask_any(s, "{host=\"h\"}", 0, 100 * S);
    uint64_t after;

    (void)state;
    assert_ok(query_sets(q, 10, 0, &r, &test_err), &test_err);
    assert_true(r.n == 2 && !r.truncated && r.row[0].labels.n == 2);
    assert_str(r.row[0].labels.v[1].value, STR("a"));
    assert_str(r.row[0].type.name, STR("cpu"));
    assert_ok(query_sets(q, 1, 0, &r, &test_err), &test_err);
    assert_true(r.n == 1 && r.truncated);
    after = r.row[0].id;
    assert_ok(query_sets(q, 1, after, &r, &test_err), &test_err);
    assert_true(r.n == 1 && !r.truncated);
    assert_str(r.row[0].labels.v[1].value, STR("b"));
    assert_int_equal(query_sets(q, 1, 99, &r, &test_err), -EINVAL);
    query_free(q);
    fake_store_free(s);
}

/* ---- limits and damage -------------------------------------------------------------------------
 */

static void memory_and_cancel(void **state)
{
    static atomic_bool cancel;
    struct query_conf conf = {.now = {10000 * S}, .mem_max = 1 << 16, .max_points = 11000};
    const struct query_ask ask = {.from = STR("0s"), .to = STR("100s")};
    const struct query_steps_ask a = {.limit = 10};
    struct store *s = test_three();
    struct query_steps r;
    struct query *q = NULL;

    (void)state;
    conf.store = s;
    for (uint64_t i = 0; i < 5000; i++)
        step(s, 1, "train", i, 0, S);
    assert_ok(query_open(&conf, &ask, &q, &test_err), &test_err);
    test_err = (struct query_err){};
    assert_int_equal(query_steps(q, &a, &r, &test_err), -ENOMEM);
    assert_int_equal(test_err.code, QUERY_TOO_EXPENSIVE);
    assert_string_equal(test_err.setting, "query.memory");
    query_free(q);
    conf.mem_max = 1 << 24;
    conf.cancel = &cancel;
    assert_ok(query_open(&conf, &ask, &q, &test_err), &test_err);
    atomic_store(&cancel, true);
    test_err = (struct query_err){};
    assert_int_equal(query_steps(q, &a, &r, &test_err), -ECANCELED);
    assert_int_equal(test_err.code, QUERY_CANCELED);
    query_free(q);
    conf.cancel = NULL;
    conf.deadline = (mono_ns){1};
    assert_ok(query_open(&conf, &ask, &q, &test_err), &test_err);
    test_err = (struct query_err){};
    assert_int_equal(query_steps(q, &a, &r, &test_err), -ETIMEDOUT);
    assert_string_equal(test_err.setting, "query.timeout");
    query_free(q);
    fake_store_free(s);
}

static void damage_is_said(void **state)
{
    const struct query_steps_ask a = {.limit = 10};
    struct store *s = test_three();
    struct query_steps r;
    struct query *q;

    (void)state;
    step(s, 1, "train", 1, 0, S);
    fake_store_damage(s, 0, S, "a block");
    q = test_ask_any(s, "", 0, 100 * S);
    list(q, &a, &r);
    assert_true(r.n == 1 && query_head(q)->partial);
    query_free(q);
    fake_store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_restricts),
        cmocka_unit_test(step_at_the_edges),
        cmocka_unit_test(no_such_step),
        cmocka_unit_test(bad_steps),
        cmocka_unit_test(steps_listed),
        cmocka_unit_test(steps_paged),
        cmocka_unit_test(events),
        cmocka_unit_test(coverage),
        cmocka_unit_test(many_runs),
        cmocka_unit_test(label_sets),
        cmocka_unit_test(memory_and_cancel),
        cmocka_unit_test(damage_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
