// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"
#include "base/time.h"
#include "tests/lib/testing.h"

static void known_instants(void **state)
{
    static const struct {
        int64_t v;
        const char *text;
    } t[] = {
        {0, "1970-01-01T00:00:00Z"},
        {-1, "1969-12-31T23:59:59.999999999Z"},
        {951782400 * NS_PER_S, "2000-02-29T00:00:00Z"},
        {1795957200 * NS_PER_S + 123456789, "2026-11-29T13:00:00.123456789Z"},
        {4107542399 * NS_PER_S, "2100-02-28T23:59:59Z"},
        {INT64_MAX, "2262-04-11T23:47:16.854775807Z"},
        {INT64_MIN, "1677-09-21T00:12:43.145224192Z"},
    };
    char text[40];

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        real_ns back = {1};

        assert_string_equal(real_ns_format((real_ns){t[i].v}, text), t[i].text);
        assert_true(real_ns_parse(str_c(text), &back));
        assert_int_equal(back.v, t[i].v);
    }
}

static void format_and_parse_agree(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        real_ns t = {(int64_t)hash_mix(i)}, back = {0};
        char text[40];

        assert_true(real_ns_parse(str_c(real_ns_format(t, text)), &back));
        assert_int_equal(back.v, t.v);
    }
}

static void offsets_and_refusals(void **state)
{
    static const char *const bad[] = {
        "",
        "2026-11-29",
        "2026-11-29T13:00:00",
        "2026-11-29T13:00:00ZZ",
        "2026-11-29T13:00:00.Z",
        "2026-11-29T13:00:00.1234567890Z",
        "2026-02-29T13:00:00Z",
        "2026-13-01T13:00:00Z",
        "2026-11-29T24:00:00Z",
        "2026-11-29T13:00:00+01",
        "2026-11-29T13:00:00+0100",
        "2026-11-29T13:00:00+24:00",
        "0000-11-29T13:00:00Z",
        "9999-11-29T13:00:00Z",
        "2262-04-11T23:47:16.854775808Z",
        "x026-11-29T13:00:00Z",
    };
    real_ns t = {7};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (real_ns_parse(str_c(bad[i]), &t))
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(t.v, 7);
    }
    assert_true(real_ns_parse(STR("1970-01-01t01:30:00.5+01:30"), &t));
    assert_int_equal(t.v, NS_PER_S / 2);
    assert_true(real_ns_parse(STR("1969-12-31T18:00:00-06:00"), &t));
    assert_int_equal(t.v, 0);
}

static void intervals(void **state)
{
    struct interval a = {{0}, {10}}, b = {{10}, {20}}, c = {{5}, {15}};
    int64_t n = 3;

    (void)state;
    assert_true(interval_has(a, (real_ns){0}));
    assert_false(interval_has(a, (real_ns){10}));
    assert_true(interval_len(interval_cut(a, b), &n));
    assert_int_equal(n, 0);
    assert_true(interval_len(interval_cut(a, c), &n));
    assert_int_equal(n, 5);
    assert_false(interval_len((struct interval){{1}, {0}}, &n));
    assert_false(interval_len((struct interval){{INT64_MIN}, {INT64_MAX}}, &n));
    assert_int_equal(n, 5);
}

static void clocks_run(void **state)
{
    struct clock_pair p = clock_pair_take(16);
    mono_ns m = mono_now();

    (void)state;
    assert_true(p.err_ns >= 0 && p.err_ns < NS_PER_S);
    assert_true(mono_ns_cmp(p.mono, m) <= 0);
    assert_true(boot_now_ns() > 0);
    assert_true(real_ns_cmp(p.real, (real_ns){1700000000 * NS_PER_S}) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_instants),       cmocka_unit_test(format_and_parse_agree),
        cmocka_unit_test(offsets_and_refusals), cmocka_unit_test(intervals),
        cmocka_unit_test(clocks_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
