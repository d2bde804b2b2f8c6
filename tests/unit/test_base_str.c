// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "base/buf.h"
#include "base/str.h"
#include "tests/lib/testing.h"

static void compare_and_find(void **state)
{
    const struct str none = {NULL, 0};

    (void)state;
    assert_true(str_cmp(STR("a"), STR("b")) < 0);
    assert_true(str_cmp(STR("ab"), STR("a")) > 0);
    assert_true(str_cmp(STR("\xff"), STR("a")) > 0); /* bytes are unsigned */
    assert_int_equal(str_cmp(none, STR("")), 0);
    assert_true(str_eq(none, STR("")));
    assert_true(str_starts(STR("abc"), STR("ab")) && str_starts(STR("abc"), none));
    assert_false(str_starts(STR("a"), STR("ab")));
    assert_true(str_ends(STR("abc"), STR("bc")) && str_ends(none, none));
    assert_false(str_ends(STR("bc"), STR("abc")));
    assert_int_equal(str_find(STR("abcb"), 'b'), 1);
    assert_int_equal(str_rfind(STR("abcb"), 'b'), 3);
    assert_true(str_find(none, 'b') == SIZE_MAX && str_rfind(STR("a"), 'b') == SIZE_MAX);
    assert_str(str_basename(STR("/usr/bin/x")), STR("x"));
    assert_str(str_basename(STR("x")), STR("x"));
    assert_str(str_basename(STR("a/")), STR(""));
    assert_str(str_from(STR("abc"), 1), STR("bc"));
    assert_str(str_from(STR("abc"), 5), none);
    assert_str(str_to(STR("abc"), 2), STR("ab"));
    assert_str(str_to(STR("abc"), 9), STR("abc"));
}

static void integers(void **state)
{
    static const char *const bad[] = {
        "", "-", "+1", " 1", "1 ", "0x1", "1.0", "99999999999999999999", "18446744073709551616"};
    uint64_t u = 5;
    int64_t i = 5;

    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        assert_false(str_u64(str_c(bad[k]), &u));
        assert_false(str_i64(str_c(bad[k]), &i));
    }
    assert_false(str_u64(STR("-1"), &u));
    assert_false(str_i64(STR("9223372036854775808"), &i));
    assert_false(str_i64(STR("-9223372036854775809"), &i));
    assert_false(str_u64(STR("1\0"), &u));
    assert_true(u == 5 && i == 5);
    assert_true(str_u64(STR("18446744073709551615"), &u) && u == UINT64_MAX);
    assert_true(str_i64(STR("9223372036854775807"), &i) && i == INT64_MAX);
    assert_true(str_i64(STR("-9223372036854775808"), &i) && i == INT64_MIN);
    assert_true(str_i64(STR("-0"), &i) && i == 0);
    assert_true(str_hex64(STR("Ff"), &u) && u == 255);
    assert_true(str_hex64(STR("ffffffffffffffff"), &u) && u == UINT64_MAX);
    assert_false(str_hex64(STR("0ffffffffffffffff"), &u));
    assert_false(str_hex64(STR(""), &u) || str_hex64(STR("g"), &u) || str_hex64(STR("0x1"), &u));
}

static void decimals(void **state)
{
    static const char *const bad[] = {"",    "-",  ".5", "5.", "1e",  "1e+",   "inf",   "nan",
                                      "0x1", "+1", " 1", "01", "1_0", "1e999", "1.0.0", "1d"};
    double v = 7;

    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        if (str_double(str_c(bad[k]), &v))
            fail_msg("taken: %s", bad[k]);
    }
    assert_true(v == 7);
    assert_true(str_double(STR("-0.5e2"), &v) && v == -50);
    assert_true(str_double(STR("0"), &v) && v == 0);
    assert_true(str_double(STR("1E-3"), &v) && v == 0.001);
    assert_true(str_double((struct str){"12345", 3}, &v) && v == 123);
    assert_false(
        str_double(STR("1111111111111111111111111111111111111111111111111111111111111111"), &v));
}

/* RFC 3629: the table of section 4, its edges on both sides. */
static void utf8(void **state)
{
    static const struct {
        struct str s;
        bool ok;
    } t[] = {
        {STR(""), true},
        {STR("\0"), true},
        {STR("\x7f"), true},
        {STR("\x80"), false},
        {STR("\xc1\xbf"), false},
        {STR("\xc2\x80"), true},
        {STR("\xc2\x7f"), false},
        {STR("\xdf\xbf"), true},
        {STR("\xe0\x9f\xbf"), false},
        {STR("\xe0\xa0\x80"), true},
        {STR("\xed\x9f\xbf"), true},
        {STR("\xed\xa0\x80"), false},
        {STR("\xee\x80\x80"), true},
        {STR("\xef\xbf\xbf"), true},
        {STR("\xf0\x8f\xbf\xbf"), false},
        {STR("\xf0\x90\x80\x80"), true},
        {STR("\xf4\x8f\xbf\xbf"), true},
        {STR("\xf4\x90\x80\x80"), false},
        {STR("\xf5\x80\x80\x80"), false},
        {STR("\xe2\x82"), false},
        {STR("\xf0\x9f\x98"), false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        if (str_utf8_ok(t[i].s) != t[i].ok)
            fail_msg("case %zu", i);
        assert_int_equal(str_utf8_next(t[i].s), t[i].ok ? t[i].s.n : 0);
    }
}

static void repair(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 1000);
    assert_int_equal(str_repair(&b, STR("a\xff\xc3\xa9\xe2\x82z\xc3")), 4);
    assert_str(buf_view(&b), STR("a\\xff\xc3\xa9\\xe2\\x82z\\xc3"));
    assert_true(str_utf8_ok(buf_view(&b)));
    buf_reset(&b);
    assert_int_equal(str_repair(&b, STR("fine\n")), 0);
    assert_str(buf_view(&b), STR("fine\n"));
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compare_and_find), cmocka_unit_test(integers),
        cmocka_unit_test(decimals),         cmocka_unit_test(utf8),
        cmocka_unit_test(repair),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
