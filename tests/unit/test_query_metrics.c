// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "tests/lib/fake_query.h"

/* Metrics: buckets, gaps, counters that fall, minutes; the list of them. */

#define S NS_PER_S

static void lines(struct query *q, const struct query_metric_ask *a, struct query_metric_lines *ret)
{
    test_err = (struct query_err){};
    if (query_metric_lines(q, a, ret, &test_err) != 0)
        fail_msg("metrics: %s", test_err.msg);
}

static void gauges(void **state)
{
    struct query_metric_ask a = {.name = STR("temp"), .limit = 10, .bucket = {.bucket_ns = 10 * S}};
    struct query_metric_lines r = {};
    struct store *s = test_three();
    struct query *q;

    (void)state;
    fake_store_metric(s, &(struct fake_metric){.name = "temp",
                                               .unit = "celsius",
                                               .pid = 1,
                                               .n = 6,
                                               .p = {{1 * S, 10, METRIC_OK},
                                                     {9 * S, 21, METRIC_OK},
                                                     {15 * S, 0, METRIC_DENIED},
                                                     {25 * S, -3, METRIC_OK},
                                                     {29 * S, 0, METRIC_READ_ERROR},
                                                     {44 * S, 0, METRIC_UNSUPPORTED}}});
    fake_store_metric(s, &(struct fake_metric){.name = "temp",
                                               .unit = "kelvin", /* another unit: another line */
                                               .pid = 1,
                                               .is_int = true,
                                               .n = 2,
                                               .p = {{1 * S, 300, METRIC_OK}, {2 * S, 280, 0}}});
    q = test_ask_any(s, "{service=\"a\"}", 0, 45 * S);
    lines(q, &a, &r);
    assert_true(r.n == 5 && r.n_line == 2);
    assert_str(r.line[0].metric.unit, STR("celsius"));
    assert_true(r.line[0].agg == QUERY_METRIC_AVG && r.line[0].readings == 3);
    assert_true(r.line[0].num[0] == 15.5 && r.line[0].status[0] == METRIC_OK);
    assert_int_equal(r.line[0].status[1], METRIC_DENIED);
    assert_true(r.line[0].num[2] == -3 && r.line[0].status[2] == METRIC_OK);
    assert_int_equal(r.line[0].status[3], QUERY_METRIC_NO_DATA);
    assert_int_equal(r.line[0].status[4], METRIC_UNSUPPORTED);
    assert_true(r.line[1].num[0] == 290);
    a.agg = QUERY_METRIC_MIN;
    lines(q, &a, &r);
    assert_true(r.line[0].num[0] == 10 && r.line[1].num[0] == 280);
    a.agg = QUERY_METRIC_MAX;
    lines(q, &a, &r);
    assert_true(r.line[0].num[0] == 21 && r.line[1].num[0] == 300);
    a.agg = QUERY_METRIC_LAST;
    lines(q, &a, &r);
    assert_true(r.line[0].num[0] == 21 && r.line[1].inum[0] == 280 && !r.line[1].num);
    a.agg = QUERY_METRIC_RATE;
    assert_int_equal(query_metric_lines(q, &a, &r, &test_err), -EINVAL);
    assert_string_equal(test_err.param, "agg");
    a = (struct query_metric_ask){.name = STR("temp"), .limit = 1, .bucket = {.points = 5}};
    test_err = (struct query_err){};
    assert_int_equal(query_metric_lines(q, &a, &r, &test_err), -E2BIG);
    assert_true(test_err.code == QUERY_TOO_MANY_SERIES && test_err.limit == 1);
    query_free(q);
    fake_store_free(s);
}

static void counters(void **state)
{
    struct query_metric_ask a = {
        .name = STR("bytes"), .limit = 10, .bucket = {.bucket_ns = 10 * S}};
    struct query_metric_lines r = {};
    struct store *s = test_three();
    struct query *q;
    double sum = 0;

    (void)state;
    fake_store_metric(s, &(struct fake_metric){.name = "bytes",
                                               .unit = "bytes",
                                               .kind = METRIC_COUNTER,
                                               .is_int = true,
                                               .pid = 1,
                                               .n = 8,
                                               .p = {{-5 * S, 1000, METRIC_OK},
                                                     {5 * S, 2000, METRIC_OK},
                                                     {15 * S, 2000, METRIC_OK},
                                                     {25 * S, 0, METRIC_READ_ERROR},
                                                     {35 * S, 4000, METRIC_OK},
                                                     {55 * S, 700, METRIC_OK}, /* began anew */
                                                     {65 * S, 1700, METRIC_OK},
                                                     {75 * S, 1700, METRIC_OK}}});
    q = test_ask_any(s, "", 0, 100 * S);
    lines(q, &a, &r);
    assert_true(r.n == 10 && r.n_line == 1 && r.line[0].agg == QUERY_METRIC_RATE);
    assert_true(r.line[0].resets == 1 && r.line[0].readings == 6);
    assert_true(r.line[0].num[0] == 50);  /* 500 of the first stretch, then nothing, in 10 s */
    assert_true(r.line[0].num[1] == 50);  /* 0 in 5 s, 500 in 5 s */
    assert_true(r.line[0].num[2] == 100); /* the failed reading between does not matter */
    assert_true(r.line[0].num[3] == 100); /* known for 5 s of it */
    assert_int_equal(r.line[0].status[4], QUERY_METRIC_NO_DATA); /* inside the fall */
    assert_true(r.line[0].num[5] == 100);
    assert_true(r.line[0].num[7] == 0 && r.line[0].status[7] == METRIC_OK);
    assert_int_equal(r.line[0].status[8], QUERY_METRIC_NO_DATA);
    for (uint32_t i = 0; i < r.n; i++)
        assert_true(r.line[0].num[i] >= 0);
    a.bucket.bucket_ns = 7 * S; /* any buckets hold the same growth in all */
    lines(q, &a, &r);
    a.bucket.bucket_ns = 20 * S;
    lines(q, &a, &r);
    assert_int_equal(r.line[0].status[2], METRIC_OK);
    sum = r.line[0].num[0] * 20 + r.line[0].num[1] * 15;
    assert_true(sum > 2499.99 && sum < 2500.01);
    query_free(q);
    fake_store_free(s);
}

/* A long silence says nothing about the buckets inside it. */
static void counter_gap(void **state)
{
    struct query_metric_ask a = {.name = STR("c"), .limit = 10, .bucket = {.bucket_ns = 100 * S}};
    struct query_metric_lines r = {};
    struct store *s = test_three();
    struct query *q;

    (void)state;
    fake_store_metric(
        s, &(struct fake_metric){
               .name = "c",
               .unit = "count",
               .kind = METRIC_COUNTER,
               .n = 4,
               .p = {{0, 0, 0}, {100 * S, 100, 0}, {500 * S, 900, 0}, {600 * S, 1e3, 0}}});
    q = test_ask_any(s, "", 0, 700 * S);
    lines(q, &a, &r);
    assert_true(r.line[0].num[0] == 1 && r.line[0].num[5] == 1);
    for (uint32_t i = 1; i < 5; i++)
        assert_int_equal(r.line[0].status[i], QUERY_METRIC_NO_DATA);
    a.bucket.bucket_ns = 700 * S; /* but a bucket that holds it whole knows all of it */
    lines(q, &a, &r);
    assert_true(r.n == 1 && r.line[0].num[0] > 1.66 && r.line[0].num[0] < 1.67);
    query_free(q);
    fake_store_free(s);
}

static void minutes_and_pieces(void **state)
{
    struct query_metric_ask a = {.name = STR("m"), .limit = 1, .bucket = {.bucket_ns = 120 * S}};
    struct query_metric_lines r = {};
    struct query_metrics l = {};
    struct store *s = test_three();
    struct query *q;

    (void)state;
    fake_store_metric(s, &(struct fake_metric){.name = "m",
                                               .unit = "count",
                                               .n = 2,
                                               .minutes = true,
                                               .p = {{0, 10, METRIC_OK}, {60 * S, 20, METRIC_OK}}});
    fake_store_metric(s, &(struct fake_metric){
                             .name = "m", .unit = "count", .n = 1, .p = {{119 * S, 8, METRIC_OK}}});
    q = test_ask_any(s, "", 0, 120 * S);
    lines(q, &a, &r);
    assert_true(r.n_line == 1 && r.line[0].readings == 3);
    assert_true(r.line[0].num[0] == (11.0 * 4 + 21.0 * 4 + 8) / 9);
    a.agg = QUERY_METRIC_MIN;
    lines(q, &a, &r);
    assert_true(r.line[0].num[0] == 8);
    a.agg = QUERY_METRIC_MAX;
    lines(q, &a, &r);
    assert_true(r.line[0].num[0] == 23);
    a.agg = QUERY_METRIC_LAST;
    lines(q, &a, &r);
    assert_true(r.line[0].num[0] == 8);
    assert_ok(query_metrics(q, &(struct str){"m", 1}, 1, 10, 0, &l, &test_err), &test_err);
    assert_true(l.n == 1 && l.row[0].n == 3 && l.row[0].seen.t1.v == 119 * S);
    assert_true(l.row[0].is_int ? l.row[0].inum == 8 : l.row[0].num == 8); /* that of the end */
    query_free(q);
    fake_store_free(s);
}

static void metric_numbers_beyond(void **state)
{
    const struct query_metric_ask a = {.name = STR("x"), .limit = 1, .bucket = {.bucket_ns = S}};
    struct query_metric_lines r = {};
    struct store *s = test_three();
    struct query *q;

    (void)state;
    fake_store_metric(s, &(struct fake_metric){.name = "x",
                                               .unit = "count",
                                               .n = 2,
                                               .p = {{0, 1.7e308, METRIC_OK}, {1, 1.7e308, 0}}});
    q = test_ask_any(s, "", 0, S);
    lines(q, &a, &r);
    assert_int_equal(r.line[0].status[0], QUERY_METRIC_OUT_OF_RANGE);
    query_free(q);
    fake_store_free(s);
}

static void metrics_listed(void **state)
{
    const struct str ab[] = {STR("b"), STR("a")};
    struct query_metrics l = {};
    struct store *s = test_three();
    struct query *q;
    uint64_t after = 0;
    uint32_t n = 0;

    (void)state;
    for (uint64_t i = 0; i < 5; i++)
        fake_store_metric(s, &(struct fake_metric){.name = i % 2 ? "b" : "a",
                                                   .unit = "count",
                                                   .pid = 1 + i,
                                                   .n = 1,
                                                   .p = {{S, 1, METRIC_OK}}});
    q = test_ask_any(s, "{service=\"a\"}", 0, 100 * S); /* processes 1 and 2 */
    assert_ok(query_metrics(q, NULL, 0, 10, 0, &l, &test_err), &test_err);
    assert_true(l.n == 2 && !l.truncated);
    query_free(q);
    q = test_ask_any(s, "", 0, 100 * S);
    do {
        assert_ok(query_metrics(q, NULL, 0, 2, after, &l, &test_err), &test_err);
        n += l.n;
        after = l.row[l.n - 1].metric.id;
    } while (l.truncated);
    assert_int_equal(n, 5);
    assert_int_equal(query_metrics(q, ab, 1, 2, 12345, &l, &test_err), -EINVAL);
    assert_ok(query_metrics(q, ab, 2, 10, 0, &l, &test_err), &test_err);
    assert_int_equal(l.n, 5);
    assert_str(l.row[2].metric.name, STR("a"));
    assert_str(l.row[3].metric.name, STR("b"));
    query_free(q);
    fake_store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gauges),
        cmocka_unit_test(counters),
        cmocka_unit_test(counter_gap),
        cmocka_unit_test(minutes_and_pieces),
        cmocka_unit_test(metric_numbers_beyond),
        cmocka_unit_test(metrics_listed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
