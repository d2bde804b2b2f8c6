// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/fake_query.h"

/* Buckets: null where nothing was covered, sums that are the range's total, losses in their place.
 */

#define S NS_PER_S

static void series(struct query *q, const struct query_series_ask *a, struct query_series *ret)
{
    test_err = (struct query_err){};
    if (query_series(q, a, ret, &test_err) != 0)
        fail_msg("series: %s", test_err.msg);
}

static void at(struct store *s, int64_t t, const char *labels, int64_t value)
{
    fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                         .labels = labels,
                                         .t = t,
                                         .stack = "n:main#x",
                                         .count = (uint64_t)value / 10,
                                         .value = value});
}

static void cover(struct store *s, const char *labels, int64_t t0, int64_t t1)
{
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .labels = labels,
                                             .t0 = t0,
                                             .t1 = t1,
                                             .basis = BASIS_PERIODIC,
                                             .period = 10});
}

static void covered_and_not(void **state)
{
    struct store *s = fake_store_new();
    const struct query_series_ask a = {.bucket_ns = 10 * S};
    struct query_series r = {};
    struct query *q;

    (void)state;
    at(s, 1 * S, "service=a,host=x", 100);
    at(s, 25 * S, "service=a,host=y", 40);
    at(s, 55 * S, "service=a,host=z", 7); /* of a source that says nothing of what it covers */
    cover(s, "host=x", 0, 20 * S);
    cover(s, "host=y", 15 * S, 33 * S);
    q = test_ask(s, "cpu", 0, 58 * S, NULL);
    series(q, &a, &r);
    assert_int_equal(r.n, 6);
    assert_true(r.line[0].value[0] == 100 && r.line[0].value[1] == 0 && r.line[0].value[2] == 40);
    assert_true(r.line[0].value[3] == 0 && r.line[0].value[4] == QUERY_UNKNOWN);
    assert_true(r.line[0].value[5] == 7);
    assert_true(r.line[0].covered_ns[1] == 10 * S && r.line[0].covered_ns[3] == 3 * S);
    assert_true(r.line[0].covered_ns[5] == 0);
    assert_true(r.line[0].total == 147 && r.sum.total == 147);
    assert_int_equal(r.sum.coverage.covered_ns, 33 * S);
    assert_int_equal(r.sum.coverage.source_ns, 38 * S);
    assert_int_equal(r.sum.coverage.sources, 2);
    assert_int_equal(r.sum.coverage.unknown_sources, 1);
    query_free(q);
    fake_store_free(s);
}

static void any_bucket_adds_up(void **state)
{
    struct store *s = fake_store_new();
    uint64_t seed = 5;
    int64_t sum = 0;
    struct query *q;

    (void)state;
    for (int i = 0; i < 500; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1;
        at(s, (int64_t)(seed >> 33) % (1000 * S), "service=a", (int64_t)(seed >> 50));
        sum += (int64_t)(seed >> 50);
    }
    q = test_ask(s, "cpu", 0, 1000 * S, NULL);
    for (int64_t b = 100 * NS_PER_MS; b < 2000 * S; b = b * 3 + 7) {
        const struct query_series_ask a = {.bucket_ns = b};
        struct query_series r = {};
        unit_i128 total = 0;

        series(q, &a, &r);
        for (uint32_t i = 0; i < r.n; i++)
            total += r.line[0].value[i] == QUERY_UNKNOWN ? 0 : r.line[0].value[i];
        assert_true(total == sum && r.line[0].total == sum && r.sum.total == sum);
    }
    query_free(q);
    fake_store_free(s);
}

static struct query *ask_by(struct store *s, int64_t from, int64_t to, uint32_t groups)
{
    struct query_conf conf = {
        .store = s, .now = {10000 * S}, .mem_max = 1 << 28, .max_points = 11000};
    struct query_ask ask = {
        .q = STR("cpu"), .n_by = groups ? 1 : 0, .by = {STR("host")}, .groups = groups};
    struct query *q = NULL;
    char t0[32], t1[32];

    (void)snprintf(t0, sizeof t0, "%" PRId64 "ns", from);
    (void)snprintf(t1, sizeof t1, "%" PRId64 "ns", to);
    ask.from = str_c(t0);
    ask.to = str_c(t1);
    assert_ok(query_open(&conf, &ask, &q, &test_err), &test_err);
    return q;
}

/* Any range, any bucket from 1 ms, any number of groups: each bucket's lines and the rest add up to
 * the bucket without groups, and that to the rows in it. */
static void lines_and_the_rest_add_up(void **state)
{
    struct store *s = fake_store_new();
    uint64_t seed = 9;
    int64_t t[300], v[300];

    (void)state;
    for (int i = 0; i < 300; i++) {
        char labels[32];

        seed = seed * UINT64_C(6364136223846793005) + 1;
        t[i] = (int64_t)(seed >> 33) % (20 * S);
        v[i] = (int64_t)(seed >> 45);
        (void)snprintf(labels, sizeof labels, "service=a,host=h%d", (int)(seed >> 20 & 7));
        at(s, t[i], labels, v[i]);
    }
    for (int k = 0; k < 40; k++) {
        struct query_series_ask a = {.bucket_ns = NS_PER_MS + k * k * 1234567};
        struct query_series one = {}, by = {};
        int64_t from, to;
        struct query *q, *p;

        seed = seed * UINT64_C(6364136223846793005) + 1;
        from = (int64_t)(seed >> 33) % (10 * S);
        to = from + 1 + (int64_t)(seed >> 13) % (10 * S);
        q = ask_by(s, from, to, 0);
        p = ask_by(s, from, to, 1 + (uint32_t)k % 9);
        series(q, &a, &one);
        series(p, &a, &by);
        assert_true(one.n == by.n && by.n_line <= 2 + (uint32_t)k % 9);
        for (uint32_t b = 0; b < one.n; b++) {
            int64_t begin = from + (int64_t)b * a.bucket_ns, end = begin + a.bucket_ns;
            unit_i128 want = 0, sum = 0;

            end = end < to ? end : to;
            for (int i = 0; i < 300; i++)
                want += t[i] >= begin && t[i] < end ? v[i] : 0;
            for (uint32_t l = 0; l < by.n_line; l++)
                sum += by.line[l].value[b] == QUERY_UNKNOWN ? 0 : by.line[l].value[b];
            assert_true(sum == want);
            /* nobody says what these sources covered: no row is not zero */
            assert_true(one.line[0].value[b] == (want ? want : QUERY_UNKNOWN));
        }
        query_free(q);
        query_free(p);
    }
    fake_store_free(s);
}

static void whole_seconds(void **state)
{
    struct store *s = fake_store_new();
    const struct query_series_ask a = {.points = 600}, many = {.points = 20000};
    const struct query_series_ask fine = {.bucket_ns = 1000};
    struct query_series r = {};
    struct query *q = test_ask(s, "cpu", 0, 900 * S, NULL);

    (void)state;
    series(q, &a, &r);
    assert_true(r.bucket_ns == 2 * S && r.n == 450);
    query_free(q);
    q = test_ask(s, "cpu", 0, 60 * S, NULL);
    series(q, &a, &r);
    assert_true(r.bucket_ns == S && r.n == 60);
    test_err = (struct query_err){};
    assert_true(query_series(q, &many, &r, &test_err) < 0);
    assert_true(test_err.code == QUERY_BAD_PARAMETER && test_err.limit == 11000);
    test_err = (struct query_err){};
    assert_true(query_series(q, &fine, &r, &test_err) < 0);
    assert_int_equal(test_err.code, QUERY_BAD_PARAMETER);
    query_free(q);
    fake_store_free(s);
}

static void groups_and_rest(void **state)
{
    struct store *s = fake_store_new();
    struct query_conf conf = {.store = s, .now = {100 * S}, .mem_max = 1 << 24, .max_points = 100};
    struct query_ask ask = {.q = STR("cpu"),
                            .from = STR("0s"),
                            .to = STR("20s"),
                            .n_by = 1,
                            .by = {STR("host")},
                            .groups = 2,
                            .need_type = true};
    const struct query_series_ask a = {.bucket_ns = 10 * S};
    struct query_series r = {};
    struct query *q = NULL;

    (void)state;
    at(s, 1 * S, "service=a,host=x", 100);
    at(s, 2 * S, "service=a,host=y", 300);
    at(s, 3 * S, "service=a,host=z", 20);
    at(s, 4 * S, "service=a", 10);
    cover(s, "host=x", 0, 20 * S);
    cover(s, "host=y", 0, 10 * S);
    assert_ok(query_open(&conf, &ask, &q, &test_err), &test_err);
    series(q, &a, &r);
    assert_int_equal(r.n_line, 3);
    assert_str(r.line[0].label[0], STR("y"));
    assert_str(r.line[1].label[0], STR("x"));
    assert_true(r.line[0].value[0] == 300 && r.line[0].value[1] == QUERY_UNKNOWN);
    assert_true(r.line[1].value[0] == 100 && r.line[1].value[1] == 0);
    assert_true(r.line[2].rest && r.line[2].value[0] == 30);
    assert_true(r.line[2].value[1] == QUERY_UNKNOWN); /* x and y cover themselves alone */
    assert_true(r.sum.total == 430);
    query_free(q);
    fake_store_free(s);
}

static void losses(void **state)
{
    struct store *s = fake_store_new();
    const struct query_series_ask a = {.bucket_ns = 7 * S};
    struct query_series r = {};
    unit_i128 sum = 0;
    struct query *q;

    (void)state;
    at(s, 1 * S, "service=a", 100);
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .t0 = 3 * S,
                                             .t1 = 18 * S,
                                             .received = 5,
                                             .lost_why = "ring_full",
                                             .lost_n = 3,
                                             .lost_weight = 1000});
    q = test_ask(s, "cpu", 0, 28 * S, NULL);
    series(q, &a, &r);
    for (uint32_t i = 0; i < r.n; i++)
        sum += r.line[0].lost[i];
    assert_true(sum == 1000);
    assert_true(r.line[0].lost[0] == 266 && r.line[0].lost[1] == 467 && r.line[0].lost[2] == 267);
    assert_true(r.line[0].lost[3] == 0);
    query_free(q);
    fake_store_free(s);
}

/* Two hosts lose for themselves; what a source loses that names no service both services share. */
static void losses_of_groups(void **state)
{
    static const char *const labels[] = {"host=x", "host=y"};
    static const char *const by[] = {"host", "service"};
    const struct query_series_ask a = {.bucket_ns = 10 * S};
    struct store *s = fake_store_new();
    struct query_conf conf = {.store = s, .now = {100 * S}, .mem_max = 1 << 24, .max_points = 100};

    (void)state;
    for (int i = 0; i < 2; i++) {
        at(s, 1 * S, i ? "service=a,host=x" : "service=b,host=y", 100);
        fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                                 .labels = labels[i],
                                                 .t0 = i * 10 * S,
                                                 .t1 = 20 * S,
                                                 .received = 5,
                                                 .lost_why = "ring_full",
                                                 .lost_n = 3,
                                                 .lost_weight = 40 + 100 * i});
    }
    for (int k = 0; k < 2; k++) {
        struct query_ask ask = {.q = STR("cpu"),
                                .from = STR("0s"),
                                .to = STR("30s"),
                                .n_by = 1,
                                .by = {str_c(by[k])},
                                .groups = 5,
                                .need_type = true};
        struct query_series r = {};
        struct query *q = NULL;

        assert_ok(query_open(&conf, &ask, &q, &test_err), &test_err);
        series(q, &a, &r);
        assert_int_equal(r.n_line, 2);
        assert_true(r.lost[0] == 20 && r.lost[1] == 20 + 140 && r.lost[2] == 0);
        assert_true(r.covered_ns[0] == 10 * S && r.covered_ns[1] == 10 * S && !r.covered_ns[2]);
        for (uint32_t i = 0; k == 1 && i < 2; i++) /* shared: whole in each */
            assert_true(r.line[i].lost[1] == 160);
        assert_true(k == 1 || r.line[0].lost[1] + r.line[1].lost[1] == 160);
        query_free(q);
    }
    fake_store_free(s);
}

static void levels(void **state)
{
    struct store *s = fake_store_new();
    const struct query_series_ask a = {.bucket_ns = 10 * S};
    struct query_series r = {};
    struct query *q;

    (void)state;
    fake_store_row(s, &(struct fake_row){.type = PTYPE_LIVE,
                                         .labels = "service=a,host=x",
                                         .t = 0,
                                         .until = 15 * S,
                                         .stack = "n:f#x",
                                         .count = 1,
                                         .value = 100});
    fake_store_row(s, &(struct fake_row){.type = PTYPE_LIVE,
                                         .labels = "service=a,host=x",
                                         .t = 15 * S,
                                         .until = 20 * S,
                                         .stack = "n:f#x",
                                         .count = 1,
                                         .value = 200});
    q = test_ask(s, "live", 0, 30 * S, NULL);
    series(q, &a, &r);
    assert_true(r.line[0].value[0] == 100 && r.line[0].value[1] == 150);
    assert_true(r.line[0].value[2] == QUERY_UNKNOWN);
    assert_true(r.line[0].total == QUERY_UNKNOWN); /* never added over time */
    assert_true(r.sum.total == 125);
    query_free(q);
    fake_store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covered_and_not),           cmocka_unit_test(any_bucket_adds_up),
        cmocka_unit_test(lines_and_the_rest_add_up), cmocka_unit_test(whole_seconds),
        cmocka_unit_test(groups_and_rest),           cmocka_unit_test(losses),
        cmocka_unit_test(losses_of_groups),          cmocka_unit_test(levels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
