// SPDX-License-Identifier: Apache-2.0
/* Steps of the wall clock and suspends are told apart, and from time that merely passes. */
#include "agent/source/clock.h"
#include "tests/lib/testing.h"

#define HOUR (3600 * NS_PER_S)

static void near(int64_t got, int64_t want)
{
    assert_true(got > want - 5 * NS_PER_MS && got < want + 5 * NS_PER_MS);
}

static void changes(void **state)
{
    static const struct {
        struct clock_shift by;
        int64_t step_ns, suspended_ns;
    } cases[] = {
        {{2 * HOUR, 2 * HOUR, 2 * HOUR}, 0, 0}, /* time */
        {{0, 30 * NS_PER_S, 0}, 30 * NS_PER_S, 0},
        {{0, -30 * NS_PER_S, 0}, -30 * NS_PER_S, 0},
        {{0, 20 * NS_PER_MS, 0}, 20 * NS_PER_MS, 0},
        {{0, 2 * NS_PER_MS, 0}, 0, 0},                /* slewed */
        {{0, HOUR, HOUR}, 0, HOUR},                   /* slept */
        {{0, HOUR + NS_PER_S, HOUR}, NS_PER_S, HOUR}, /* slept, and set on waking */
        {{0, 0, HOUR}, -HOUR, HOUR},
    };
    struct clock_watch w;

    (void)state;
    clock_watch_begin(&w);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct clock_change c;

        clock_shift_add(cases[i].by);
        c = clock_watch_look(&w);
        near(c.step_ns, cases[i].step_ns);
        near(c.suspended_ns, cases[i].suspended_ns);
        c = clock_watch_look(&w); /* said once */
        assert_int_equal(c.step_ns, 0);
        assert_int_equal(c.suspended_ns, 0);
    }
    assert_true(clock_mono().v - mono_now().v >= 2 * HOUR - NS_PER_S);
    near(clock_pair_now().real.v - clock_real().v, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(changes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
