// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/source/account.h"
#include "tests/lib/testing.h"

#define P UINT64_C(10101010)

/* An account as the program writes it: each tick adds exactly what the clock passed. */
static void tick(struct sa_acct *a, uint64_t passed, bool idle)
{
    a->counter += passed;
    a->ticks++;
    if (idle)
        a->idle_ns += P;
    else
        a->busy_ns += P;
    if (passed > P + P / 2) {
        a->missed_busy_ns += passed - P;
        a->missed_ticks += (passed - P + P / 2) / P;
    } else {
        a->jitter_ns += (int64_t)(passed - P);
    }
}

static void test_i1(void **state)
{
    struct sa_acct a0 = {.first = 7, .counter = 1000}, a1 = a0;
    char text[ACCOUNT_TEXT] = "";
    struct account_delta d;

    (void)state;
    srand(20261129);
    for (int i = 0; i < 10000; i++)
        tick(&a1, P - 50 + (uint64_t)(rand() % 100) + (rand() % 10 ? 0 : P * 3), rand() % 2);
    d = account_delta(&a0, &a1);
    assert_true(account_i1(0, &d, P, text));
    assert_int_equal(d.ticks, 10000);

    d.missed++; /* one nanosecond is too much */
    assert_false(account_i1(3, &d, P, text));
    assert_non_null(strstr(text, "cpu 3: busy + idle + jitter + missed = "));
    d.missed--;
    assert_false(account_i1(3, &d, P + 1, text));
    assert_non_null(strstr(text, "ticks * period"));
    assert_true(account_i1(3, &d, 0, text)); /* the period changed: nothing to compare with */
}

/* A CPU that was offline has a new event, whose clock starts at 0. */
static void test_new_event(void **state)
{
    struct sa_acct a0 = {.first = 5, .counter = 5 + 100 * P, .busy_ns = 100 * P, .ticks = 100},
                   a1 = a0;
    char text[ACCOUNT_TEXT];
    struct account_delta d;

    (void)state;
    a1.past = a1.counter - a1.first;
    a1.first = a1.counter = 3;
    d = account_delta(&a0, &a1);
    assert_int_equal(d.clock, 0);
    tick(&a1, P, false);
    d = account_delta(&a0, &a1);
    assert_int_equal(d.clock, P);
    assert_true(account_i1(0, &d, P, text));
}

static void test_i2_i3(void **state)
{
    struct account_delta d = {.busy = 10 * P, .lost_ns = 2 * P, .filtered = P};
    char text[ACCOUNT_TEXT];

    (void)state;
    assert_true(account_i2(0, &d, 7 * P, text));
    assert_false(account_i2(1, &d, 7 * P - 1, text));
    assert_non_null(strstr(text, "cpu 1: received + ring_full + filtered"));
    assert_true(account_i3(5, 5, text));
    assert_false(account_i3(5, 6, text));
}

enum {
    W = 1000000000, /* a window */
};

/* One window more; the part of its missed time that was idle. */
static uint64_t idle_of(struct account_carry *c, uint64_t missed, uint64_t idle_ticks,
                        uint64_t stat_idle, uint64_t open)
{
    const struct account_delta d = {.missed = missed, .idle = idle_ticks};
    const struct account_seen seen = {stat_idle, open, W, P};

    return account_missed_idle(&d, &seen, c);
}

static void test_missed_idle(void **state)
{
    struct account_delta d = {.missed = 900000000, .missed_idle_ends = 300000000};
    struct account_seen seen = {0, 0, W, P};
    struct account_carry c = {};

    (void)state;
    /* no tick in idle time at all: the kernel's count explains the gap */
    assert_int_equal(idle_of(&c, 900000000, 0, 940000000, 0), 900000000);
    assert_int_equal(c.unexplained, -40000000);
    /* a busy CPU: the gap is lost, but what lies between idle ticks */
    assert_int_equal(account_missed_idle(&d, &seen, &c), 300000000);
    assert_int_equal(c.unexplained, -40000000);
    /* never more than what is missing */
    assert_int_equal(idle_of(&c, 900000000, 0, UINT64_C(5000000000), 0), 900000000);
}

/* A CPU that is busy for 60 % and gets no idle tick: 40 % are missing, give or take the sampling's
 * error. Nothing of it is lost. */
static void test_missed_by_chance(void **state)
{
    struct account_carry c = {};
    uint64_t missed = 0, idle = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        uint64_t m = i % 4 < 2 ? 350000000 : 450000000;

        missed += m;
        idle += idle_of(&c, m, 0, 400000000, 0);
    }
    assert_int_equal(idle, missed);
}

/* A loss that goes on is counted, but for the bound. */
static void test_missed_lasting(void **state)
{
    const int64_t bound = 2 * (int64_t)sqrt((double)W * (double)P);
    struct account_carry c = {};
    uint64_t lost = 0;

    (void)state;
    for (int i = 0; i < 100; i++) {
        uint64_t m = i % 2 ? 350000000 : 550000000; /* 50 ms a window beyond what was idle */

        lost += m - idle_of(&c, m, 0, 400000000, 0);
    }
    assert_in_range(lost, 5000000000 - 2 * (uint64_t)bound, 5000000000);
    assert_in_range(c.unexplained, 0, (uint64_t)bound);
}

/* No tick for three windows, nor at the begin of the fourth: the whole gap comes with one tick. */
static void test_missed_open(void **state)
{
    struct account_carry c = {};

    (void)state;
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(idle_of(&c, 0, 0, W, i * W), 0);
    assert_int_equal(idle_of(&c, UINT64_C(3500000000), 0, 500000000, 0), 3500000000);
    /* the same with a busy CPU: all lost, although the last window was partly idle */
    c = (struct account_carry){};
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(idle_of(&c, 0, 0, 0, i * W), 0);
    assert_in_range(idle_of(&c, UINT64_C(3500000000), 0, 500000000, 0), 500000000, 750000000);
}

static void test_stat(void **state)
{
    static const char text[] = "cpu  1 2 3 4 5 6 7 8 9 10\n"
                               "cpu0 10 0 5 70 30 0 0 0 0 0\n"
                               "cpu2 1 1 1 2 3 0 0 9 0 0\n"
                               "cpu3 1 1 1\n"
                               "intr 1 2 3\n";
    char path[] = "/tmp/strata_test_stat_XXXXXX";
    uint64_t idle[3] = {0, 42, 0};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    (void)close(fd);
    assert_int_equal(account_read_stat(path, idle, 3), 0);
    assert_int_equal(idle[0], 1000000000);
    assert_int_equal(idle[1], 42);
    assert_int_equal(idle[2], 50000000);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(account_read_stat(path, idle, 3), -ENOENT);
    assert_int_equal(idle[0], 1000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_i1),
        cmocka_unit_test(test_new_event),
        cmocka_unit_test(test_i2_i3),
        cmocka_unit_test(test_missed_idle),
        cmocka_unit_test(test_missed_by_chance),
        cmocka_unit_test(test_missed_lasting),
        cmocka_unit_test(test_missed_open),
        cmocka_unit_test(test_stat),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
