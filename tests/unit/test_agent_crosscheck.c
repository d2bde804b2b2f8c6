// SPDX-License-Identifier: Apache-2.0
/* The kernel's clock of a process beside its samples: what errs by chance or is counted as lost is
 * not said, what is wrong is. */
#include "agent/source/crosscheck.h"
#include "tests/lib/testing.h"

#define P INT64_C(10101010)

/* Two minutes of one process; the second one has these figures more. */
static bool agrees(int64_t clock, int64_t profiled, int64_t lost)
{
    struct crosscheck *c = crosscheck_new();
    struct crosscheck_seen s = {.serial = 5, .pid = 77, .clock_ns = 9 * P, .profiled_ns = 300 * P};
    char text[CROSSCHECK_TEXT] = "";
    bool ok;

    crosscheck_begin(c, 50, P);
    assert_true(crosscheck_look(c, &s, text)); /* what was before is not known */
    crosscheck_begin(c, 50 + lost, P);
    s.clock_ns += clock;
    s.profiled_ns += profiled;
    ok = crosscheck_look(c, &s, text);
    assert_true(ok == (text[0] == '\0'));
    if (!ok)
        assert_non_null(strstr(text, "pid=77 clock_ns="));
    crosscheck_free(c);
    return ok;
}

static void minutes(void **state)
{
    (void)state;
    assert_true(agrees(5000 * P, 5000 * P, 0));
    assert_true(agrees(5000 * P, 4700 * P, 0)); /* 5 / sqrt(5000) = 7 % */
    assert_false(agrees(5000 * P, 4600 * P, 0));
    assert_false(agrees(5000 * P, 5400 * P, 0));
    assert_true(agrees(5000 * P, 4000 * P, 1000 * P)); /* lost, and counted so */
    assert_false(agrees(5000 * P, 6000 * P, 1000 * P));
    assert_true(agrees(1000000 * P, 960000 * P, 0)); /* never less than 5 % */
    assert_false(agrees(1000000 * P, 940000 * P, 0));
    assert_true(agrees(150 * P, 10 * P, 0)); /* too few to tell */
    assert_false(agrees(0, 300 * P, 0));
    assert_false(agrees(300 * P, 0, 0));
}

/* Processes come and go; one that was away for a minute is new. */
static void many(void **state)
{
    struct crosscheck *c = crosscheck_new();
    char text[CROSSCHECK_TEXT];
    unsigned wrong = 0;

    (void)state;
    for (uint64_t minute = 0; minute < 20; minute++) {
        crosscheck_begin(c, 0, P);
        for (uint64_t serial = minute * 50; serial < minute * 50 + 200; serial++) {
            int64_t by = (int64_t)minute * 1000 * P;

            if (serial % 7 == 0 && minute % 2)
                continue;
            wrong += !crosscheck_look(
                c, &(struct crosscheck_seen){serial, 1, by, serial == 500 ? by / 2 : by}, text);
        }
    }
    assert_int_equal(wrong, 3); /* process 500 is there in minutes 7 to 10 */
    crosscheck_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(minutes), cmocka_unit_test(many)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
