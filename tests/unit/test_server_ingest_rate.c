// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "server/ingest_rate.h"
#include "tests/lib/testing.h"

static const uint8_t one[16] = {1}, two[16] = {2};

static mono_ns at(double seconds)
{
    return (mono_ns){(int64_t)(seconds * 1e9)};
}

static void test_share(void **state)
{
    struct rate *r = rate_new(100, 1000);

    (void)state;
    assert_int_equal(rate_take(r, one, 900, at(0)), 0);
    assert_int_equal(rate_take(r, one, 600, at(0)), 0); /* owes 500 */
    assert_int_equal(rate_take(r, one, 1, at(0)), 501);
    assert_int_equal(rate_take(r, one, 1, at(4)), 101);
    assert_int_equal(rate_take(r, two, 900, at(4)), 0);      /* others are not touched */
    assert_int_equal(rate_take(r, one, 100000, at(5.5)), 0); /* larger than a burst, once */
    assert_in_range(rate_take(r, one, 1, at(6)), 99000, 100000);
    rate_free(r);
}

/* Over a minute a sender gets its rate, whatever it asks for. */
static void test_long_run(void **state)
{
    struct rate *r = rate_new(1000, 5000);
    uint64_t got = 0;

    (void)state;
    for (int ms = 0; ms < 60000; ms += 10)
        if (rate_take(r, one, 400, at(ms / 1000.0)) == 0)
            got += 400;
    assert_in_range(got, 60000 + 5000 - 800, 60000 + 5000 + 800);
    rate_free(r);
}

/* More senders than are remembered: the loud one stays known. */
static void test_many(void **state)
{
    struct rate *r = rate_new(1, 100);
    uint8_t agent[16] = {};

    (void)state;
    assert_int_equal(rate_take(r, one, 100000, at(0)), 0);
    for (uint32_t i = 0; i < 3 * RATE_SENDERS; i++) {
        memcpy(agent + 8, &i, sizeof i);
        assert_int_equal(rate_take(r, agent, 1, at(1)), 0);
    }
    assert_true(rate_take(r, one, 1, at(2)) > 90000);
    rate_free(r);
}

static void test_off(void **state)
{
    struct rate *r = rate_new(0, 0);

    (void)state;
    for (int i = 0; i < 10; i++)
        assert_int_equal(rate_take(r, one, UINT64_C(1) << 40, at(0)), 0);
    rate_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_long_run),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
