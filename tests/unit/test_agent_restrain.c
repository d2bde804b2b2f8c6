// SPDX-License-Identifier: Apache-2.0
/* Restraint on a model of an agent whose cost follows its rate: it comes under its budget, stays
 * there without going to and fro, and returns when there is room. */
#include "agent/collect/restrain.h"
#include "base/time.h"
#include "tests/lib/testing.h"

#define MS UINT64_C(1000000)

/* One window of a second: fixed + per tick. */
static bool window(struct restrain *r, uint64_t fixed, uint64_t per_tick, uint64_t ring, char *text)
{
    const struct restrain_seen s = {.window_ns = NS_PER_S,
                                    .cpu_ns = fixed + per_tick * (NS_PER_S / restrain_period(r)),
                                    .ring_full = ring,
                                    .memory = 1 << 20};

    return restrain_look(r, &s, text);
}

static struct restrain settled(uint64_t period, uint32_t cpus)
{
    const struct restrain_conf c = {.period_ns = period, .cpu_percent = 4, .cpus = cpus};
    char text[RESTRAIN_TEXT];
    struct restrain r;

    restrain_init(&r, &c);
    for (int i = 0; i < 10; i++) /* not judged: everything is read at the start */
        assert_false(window(&r, NS_PER_S, 0, 1, text));
    return r;
}

static void budget(void **state)
{
    (void)state;
    assert_int_equal(settled(10101010, 1).budget_ns, 40 * MS);
    assert_int_equal(settled(10101010, 16).budget_ns, 40 * MS);
    assert_int_equal(settled(10101010, 17).budget_ns, 80 * MS);
    assert_int_equal(settled(10101010, 224).budget_ns, 560 * MS);
    assert_int_equal(settled(10101010, 224).conf.memory, (120 << 20) + (672 << 20) / 10);
}

static void lowers_and_recovers(void **state)
{
    struct restrain r = settled(10101010, 8);
    char text[RESTRAIN_TEXT];

    (void)state;
    assert_false(window(&r, 50 * MS, 0, 0, text)); /* once is nothing */
    assert_false(window(&r, 30 * MS, 0, 0, text));
    assert_false(window(&r, 50 * MS, 0, 0, text));
    assert_true(window(&r, 50 * MS, 0, 0, text));
    assert_int_equal(restrain_period(&r), 20408163);
    assert_string_equal(text, "source=cpu cause=cpu cpu_ns_per_s=50000000 "
                              "budget_ns_per_s=40000000 ring_full=0 period_ns=20408163 "
                              "was_ns=10101010");
    assert_false(window(&r, 50 * MS, 0, 0, text));
    assert_true(window(&r, 50 * MS, 0, 0, text));
    assert_int_equal(restrain_period(&r), 52631578);
    for (int i = 0; i < 20; i++) /* lower it does not go */
        assert_false(window(&r, 50 * MS, 0, 0, text));
    for (int i = 0; i < 5; i++)
        assert_false(window(&r, 2 * MS, 0, 0, text));
    assert_true(window(&r, 2 * MS, 0, 0, text));
    assert_non_null(strstr(text, "cause=recovered"));
    assert_int_equal(restrain_period(&r), 20408163);
    for (int i = 0; i < 5; i++)
        assert_false(window(&r, 2 * MS, 0, 0, text));
    assert_true(window(&r, 2 * MS, 0, 0, text));
    assert_int_equal(restrain_period(&r), 10101010);
    for (int i = 0; i < 20; i++) /* nor higher than it was asked for */
        assert_false(window(&r, 2 * MS, 0, 0, text));
}

/* A cost between half the budget at the lower rate and too much at the higher one. */
static void does_not_flutter(void **state)
{
    (void)state;
    for (uint64_t per_tick = 100000; per_tick < 2000000; per_tick += 50000) {
        struct restrain r = settled(10101010, 8);
        char text[RESTRAIN_TEXT];
        uint32_t steps = 0;

        for (int i = 0; i < 600; i++)
            steps += window(&r, 5 * MS, per_tick, 0, text);
        assert_in_range(steps, 0, 2);
        if (r.at + 1 < r.n_period)
            assert_true(r.cpu_ns <= r.budget_ns);
    }
}

static void faster_rates(void **state)
{
    struct restrain r = settled(1001001, 2);
    char text[RESTRAIN_TEXT];

    (void)state;
    assert_int_equal(r.n_period, 4);
    for (int i = 0; i < 2; i++)
        (void)window(&r, 0, 100000, 0, text); /* 100 ms a second at 999 Hz */
    assert_int_equal(restrain_period(&r), 10101010);
    for (int i = 0; i < 50; i++)
        assert_false(window(&r, 0, 100000, 0, text));
    r = settled(100000000, 2); /* 10 Hz: nothing is slower */
    for (int i = 0; i < 20; i++)
        assert_false(window(&r, NS_PER_S, 0, 7, text));
}

/* A ring that is too small for the rate: it is tried again more and more seldom. */
static void ring(void **state)
{
    struct restrain r = settled(1001001, 2);
    char text[RESTRAIN_TEXT];
    int fast = 0;

    (void)state;
    assert_false(window(&r, 0, 0, 3, text));
    assert_false(window(&r, 0, 0, 0, text)); /* not in a row */
    assert_false(window(&r, 0, 0, 3, text));
    assert_true(window(&r, 0, 0, 3, text));
    assert_non_null(strstr(text, "cause=ring_full"));
    for (int i = 0; i < 1000; i++) {
        bool is_fast = restrain_period(&r) == 1001001;

        fast += is_fast;
        (void)window(&r, 0, 0, is_fast ? 3 : 0, text);
    }
    assert_in_range(fast, 4, 20);
}

static void memory(void **state)
{
    struct restrain r = settled(10101010, 2);
    struct restrain_seen s = {.window_ns = NS_PER_S, .memory = UINT64_C(200) << 20};
    char text[RESTRAIN_TEXT];
    unsigned steps = 0;

    (void)state;
    for (int i = 0; i < 20; i++)
        steps += restrain_look(&r, &s, text);
    assert_int_equal(steps, 3);
    assert_int_equal(r.memory, RESTRAIN_MEMORY_REFUSE);
    assert_non_null(strstr(text, "now=tables_refused was=tables_evicted"));
    s.memory = UINT64_C(115) << 20; /* below the limit, not by an eighth */
    for (int i = 0; i < 20; i++)
        assert_false(restrain_look(&r, &s, text));
    s.memory = UINT64_C(90) << 20;
    for (int i = 0; i < 20; i++)
        steps += restrain_look(&r, &s, text);
    assert_int_equal(steps, 6);
    assert_int_equal(r.memory, RESTRAIN_MEMORY_OK);
}

static bool off_window(struct restrain *r, uint64_t off_ns, uint64_t lost, char *text)
{
    const struct restrain_seen s = {.window_ns = NS_PER_S,
                                    .cpu_ns = 2 * off_ns + 5 * MS,
                                    .off_ns = off_ns,
                                    .off_lost = lost,
                                    .memory = 1 << 20};

    return restrain_look(r, &s, text);
}

/* What context switches cost is taken back there, and the rate of ticks stays. */
static void switches_give_way_first(void **state)
{
    struct restrain r = settled(10101010, 8);
    uint64_t cost = 160 * MS;
    char text[RESTRAIN_TEXT];
    int windows = 0;

    (void)state;
    while (windows < 40 && r.off_level < 4) {
        if (off_window(&r, cost >> r.off_level, 0, text))
            assert_ptr_equal(strstr(text, "source=offcpu cause=cpu "), text);
        windows++;
    }
    assert_int_equal(r.off_level, 4); /* 2 x 10 + 5 ms are below 40 */
    assert_int_equal(windows, 8);
    assert_int_equal(restrain_period(&r), 10101010);
    for (int i = 0; i < 50; i++) /* 25 ms are not below half of it */
        assert_false(off_window(&r, cost >> 4, 0, text));
    for (int i = 0; i < 2; i++)
        (void)off_window(&r, 0, 1, text);
    assert_int_equal(r.off_level, 5);
    assert_non_null(strstr(text, "cause=ring_full"));
    for (int i = 0; i < 1000 && r.off_level; i++)
        (void)off_window(&r, 0, 0, text);
    assert_int_equal(r.off_level, 0);
    assert_non_null(strstr(text, "cause=recovered"));
    for (int i = 0; i < 40; i++) /* further than to the end it does not go */
        (void)off_window(&r, NS_PER_S, 1, text);
    assert_int_equal(r.off_level, RESTRAIN_OFF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(budget),
                                       cmocka_unit_test(lowers_and_recovers),
                                       cmocka_unit_test(switches_give_way_first),
                                       cmocka_unit_test(does_not_flutter),
                                       cmocka_unit_test(faster_rates),
                                       cmocka_unit_test(ring),
                                       cmocka_unit_test(memory)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
