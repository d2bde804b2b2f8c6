// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/lib/fake_query.h"

/* What stands beside a total: coverage, gaps, loss, how sure it is, and why there is nothing. */

#define S NS_PER_S

static struct query_sums sums(struct store *s, const char *q, int64_t from, int64_t to)
{
    const struct query_top_ask a = {};
    static struct query *last;
    struct query_top t = {};

    last = query_free(last);
    if (!s)
        return (struct query_sums){};
    last = test_ask(s, q, from, to, NULL);
    if (query_top(last, &a, &t, &test_err) != 0)
        fail_msg("top: %s", test_err.msg);
    return t.sum; /* lives until the next call */
}

static struct store *end(struct store *s)
{
    (void)sums(NULL, NULL, 0, 0);
    return fake_store_free(s);
}

static bool warned(const struct query_sums *s, const char *what)
{
    for (uint32_t i = 0; i < s->quality.n_warning; i++) {
        if (str_starts(s->quality.warning[i], str_c(what)))
            return true;
    }
    return false;
}

static void gaps(void **state)
{
    static const int64_t t[][2] = {{0, 10}, {8, 20}, {30, 40}, {40, 45}};
    struct store *s = fake_store_new();
    struct query_sums r;

    (void)state;
    for (int i = 0; i < 4; i++)
        fake_store_cover(
            s, &(struct fake_cover){
                   .type = PTYPE_CPU, .labels = "host=x", .t0 = t[i][0] * S, .t1 = t[i][1] * S});
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .labels = "host=x",
                                             .t0 = 47 * S,
                                             .t1 = 49 * S,
                                             .lost_why = "spool_drop",
                                             .lost_n = BATCH_UNKNOWN,
                                             .lost_weight = BATCH_NO_WEIGHT});
    r = sums(s, "cpu", 5 * S, 60 * S);
    assert_int_equal(r.coverage.asked_ns, 55 * S);
    assert_int_equal(r.coverage.covered_ns, 30 * S);
    assert_true(r.coverage.source_ns == 30 * S && r.coverage.source_asked_ns == 55 * S);
    assert_int_equal(r.coverage.n_gap, 4);
    assert_true(r.coverage.gap[0].t.t0.v == 20 * S && r.coverage.gap[0].t.t1.v == 30 * S);
    assert_true(r.coverage.gap[1].t.t0.v == 45 * S && r.coverage.gap[1].t.t1.v == 47 * S);
    assert_int_equal(r.coverage.gap[2].why, QUERY_LOST);
    assert_true(r.coverage.gap[2].t.t0.v == 47 * S && r.coverage.gap[2].t.t1.v == 49 * S);
    assert_int_equal(r.coverage.gap[3].why, QUERY_NOT_COVERED);
    assert_true(r.coverage.gap[3].t.t0.v == 49 * S && r.coverage.gap[3].t.t1.v == 60 * S);
    assert_true(r.quality.loss[0].n == BATCH_UNKNOWN);
    assert_true(r.quality.loss[0].weight == QUERY_UNKNOWN);
    assert_true(r.total == 0 && r.empty.why == QUERY_ZERO);
    s = end(s);
}

static void many_gaps(void **state)
{
    struct store *s = fake_store_new();
    struct query_sums r;

    (void)state;
    for (int i = 0; i < 150; i++)
        fake_store_cover(s, &(struct fake_cover){
                                .type = PTYPE_CPU, .t0 = (2 * i + 1) * S, .t1 = (2 * i + 2) * S});
    r = sums(s, "cpu", 0, 300 * S);
    assert_true(r.coverage.n_gap == QUERY_GAPS_MAX && r.coverage.gaps_more == 50);
    assert_int_equal(r.coverage.covered_ns, 150 * S);
    s = end(s);
}

/* A process that ended is not asked for afterwards. */
static void ended(void **state)
{
    struct store *s = fake_store_new();
    struct query_sums r;

    (void)state;
    fake_store_cover(s,
                     &(struct fake_cover){.type = PTYPE_CPU, .pid = 7, .t0 = 10 * S, .t1 = 20 * S});
    fake_store_cover(s,
                     &(struct fake_cover){
                         .type = PTYPE_CPU, .pid = 7, .t0 = 20 * S, .t1 = 25 * S, .ended = true});
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU, .pid = 8, .t0 = 0, .t1 = 100 * S});
    r = sums(s, "cpu", 0, 100 * S);
    assert_true(r.coverage.source_ns == 115 * S && r.coverage.source_asked_ns == 115 * S);
    assert_int_equal(r.coverage.sources, 2);
    s = end(s);
}

static void states(void **state)
{
    struct store *s = fake_store_new();
    struct query_sums r;

    (void)state;
    test_row(s, "n:f#x", 100);
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .labels = "host=x",
                                             .t0 = 0,
                                             .t1 = 10 * S,
                                             .basis = BASIS_PERIODIC,
                                             .period = 10,
                                             .expected = 12,
                                             .received = 10,
                                             .lost_why = "ring_full",
                                             .lost_n = 2,
                                             .lost_weight = 20,
                                             .skew_ns = 5 * S});
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .labels = "host=x",
                                             .t0 = 10 * S,
                                             .t1 = 20 * S,
                                             .basis = BASIS_PERIODIC,
                                             .period = 20,
                                             .expected = BATCH_UNKNOWN,
                                             .received = 3,
                                             .lost_why = "ring_full",
                                             .lost_n = 4,
                                             .lost_weight = 80,
                                             .skew_ns = -6 * S});
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .labels = "host=y",
                                             .t0 = 0,
                                             .t1 = 20 * S,
                                             .state = SOURCE_REFUSED,
                                             .why = "no CAP_PERFMON"});
    r = sums(s, "cpu", 0, 20 * S);
    assert_int_equal(r.coverage.covered_ns, 20 * S);
    assert_true(r.coverage.source_ns == 20 * S && r.coverage.source_asked_ns == 40 * S);
    assert_true(r.quality.expected == BATCH_UNKNOWN && r.quality.received == 13);
    assert_true(r.quality.n_loss == 1 && r.quality.loss[0].n == 6);
    assert_true(r.quality.loss[0].weight == 100);
    assert_true(r.quality.n_period == 2 && r.quality.period[0] == 10);
    assert_int_equal(r.quality.skew_ns, -6 * S);
    assert_true(warned(&r, "source_refused: no CAP_PERFMON"));
    assert_true(warned(&r, "periods_differ"));
    assert_true(warned(&r, "clock_skew"));
    assert_true(fabs(r.se - 10 * sqrt(10)) <
                1e-9); /* two periods, by the weights: all were of 10 */
    r = sums(s, "cpu", 0, 10 * S);
    assert_true(fabs(r.se - 10 * sqrt(10)) < 1e-9); /* period x sqrt(n) */
    assert_int_equal(r.quality.expected, 12);
    s = end(s);
}

/* A stretch of one period and what was seen in it. */
static void at_period(struct store *s, int64_t t0, int64_t period, uint64_t count)
{
    fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                         .labels = "host=x",
                                         .t = t0 + S,
                                         .stack = "n:f#x",
                                         .count = count,
                                         .value = period * (int64_t)count});
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .labels = "host=x",
                                             .t0 = t0,
                                             .t1 = t0 + 10 * S,
                                             .basis = BASIS_PERIODIC,
                                             .period = period});
}

static void rates(void **state)
{
    struct store *s = fake_store_new();
    struct query_sums r;

    (void)state;
    at_period(s, 0, 10, 10);
    at_period(s, 10 * S, 20, 3);
    r = sums(s, "cpu", 0, 20 * S);
    assert_true(fabs(r.se - sqrt(10 * 100 + 3 * 400)) < 1e-9); /* exact for two periods */
    at_period(s, 20 * S, 15, 4);
    r = sums(s, "cpu", 0, 30 * S);
    assert_true(r.se > sqrt(10 * 100 + 3 * 400 + 4 * 225)); /* a bound for three */
    assert_true(r.se < sqrt(17 * 400));
    s = end(s);
}

static void scaled(void **state)
{
    struct store *s = fake_store_new();
    struct query_sums r;

    (void)state;
    for (int i = 0; i < 4; i++)
        fake_store_row(s, &(struct fake_row){.type = PTYPE_ALLOC,
                                             .labels = "service=a",
                                             .t = S,
                                             .stack = "n:f#x",
                                             .count = 1,
                                             .value = 100,
                                             .var = 400});
    fake_store_cover(
        s, &(struct fake_cover){.type = PTYPE_ALLOC, .t0 = 0, .t1 = 10 * S, .basis = BASIS_SCALED});
    r = sums(s, "alloc", 0, 10 * S);
    assert_true(fabs(r.se - 40) < 1e-9);
    fake_store_row(s, &(struct fake_row){.type = PTYPE_ALLOC,
                                         .labels = "service=a",
                                         .t = S,
                                         .stack = "n:g#x",
                                         .count = 1,
                                         .value = 100,
                                         .var = -1});
    r = sums(s, "alloc", 0, 10 * S);
    assert_true(r.se < 0);
    s = end(s);
}

static void skew_cover(struct store *s, const char *labels, int64_t second, int64_t skew_ns)
{
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .labels = labels,
                                             .t0 = second * S,
                                             .t1 = (second + 1) * S,
                                             .skew_ns = skew_ns});
}

/* A batch that came late is no clock that is off; of several senders the worst counts. */
static void skew(void **state)
{
    struct store *s = fake_store_new();
    struct query_sums r;

    (void)state;
    test_row(s, "n:f#x", 100);
    skew_cover(s, "host=x", 0, 0); /* not said */
    r = sums(s, "cpu", 0, 20 * S);
    assert_false(r.quality.skew_known);
    skew_cover(s, "host=x", 1, 4 * S);
    skew_cover(s, "host=x", 2, 1000);
    skew_cover(s, "host=x", 3, 7 * S);
    r = sums(s, "cpu", 0, 20 * S);
    assert_true(r.quality.skew_known);
    assert_int_equal(r.quality.skew_ns, 1000);
    assert_false(warned(&r, "clock_skew"));
    skew_cover(s, "host=c,capture=a", 1, 86400 * S); /* read from its file */
    skew_cover(s, "host=y", 1, 4 * S);
    skew_cover(s, "host=y", 2, 3 * S);
    skew_cover(s, "host=z", 1, -2 * S);
    r = sums(s, "cpu", 0, 20 * S);
    assert_int_equal(r.quality.skew_ns, 3 * S);
    assert_true(warned(&r, "clock_skew"));
    s = end(s);
}

static void damage(void **state)
{
    struct store *s = fake_store_new();
    struct query_sums r;

    (void)state;
    test_row(s, "n:f#x", 100);
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU, .t0 = 0, .t1 = 20 * S});
    fake_store_damage(s, 5 * S, 8 * S, "journal-3: row 17: checksum");
    r = sums(s, "cpu", 0, 20 * S);
    assert_int_equal(r.coverage.covered_ns, 17 * S);
    assert_true(r.coverage.n_gap == 1 && r.coverage.gap[0].t.t0.v == 5 * S);
    assert_true(warned(&r, "damaged: journal-3"));
    s = end(s);
}

static void why_nothing(void **state)
{
    struct store *s = fake_store_new();
    struct query_sums r = sums(s, "cpu", 0, 10 * S);

    (void)state;
    assert_int_equal(r.empty.why, QUERY_NEVER_INGESTED);
    assert_false(r.empty.last_known);
    test_row(s, "n:f#x", 10);
    r = sums(s, "cpu", 0, 10 * S);
    assert_int_equal(r.empty.why, QUERY_NOT_EMPTY);
    r = sums(s, "cpu{service=\"a\",host=\"q\"}", 0, 10 * S);
    assert_int_equal(r.empty.why, QUERY_NO_MATCH);
    assert_str(r.empty.matcher, STR("host=\"q\""));
    assert_true(r.total == QUERY_UNKNOWN);
    r = sums(s, "offcpu", 0, 10 * S);
    assert_int_equal(r.empty.why, QUERY_TYPE_ABSENT);
    r = sums(s, "cpu", 50 * S, 60 * S);
    assert_int_equal(r.empty.why, QUERY_NO_AGENT_IN_RANGE);
    assert_true(r.empty.last_known && r.empty.last.v == S);
    r = sums(s, "cpu", 20000 * S, 20001 * S);
    assert_int_equal(r.empty.why, QUERY_FUTURE);
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU, .t0 = 50 * S, .t1 = 55 * S});
    r = sums(s, "cpu", 50 * S, 60 * S);
    assert_int_equal(r.empty.why, QUERY_ZERO);
    assert_true(r.total == 0 && r.samples == 0 && r.quality.no_stack == 0);
    for (int w = QUERY_NOT_EMPTY; w <= QUERY_ZERO; w++)
        assert_non_null(query_why_empty_word((enum query_why_empty)w));
    s = end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps),   cmocka_unit_test(many_gaps), cmocka_unit_test(ended),
        cmocka_unit_test(states), cmocka_unit_test(rates),     cmocka_unit_test(scaled),
        cmocka_unit_test(skew),   cmocka_unit_test(damage),    cmocka_unit_test(why_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
