// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"
#include "tests/lib/testing.h"

static struct buf b;

static void is(const char *want)
{
    assert_str(buf_view(&b), str_c(want));
    buf_reset(&b);
}

static void test_count(void **state)
{
    (void)state;
    text_count(&b, 0);
    is("0");
    text_count(&b, 999);
    is("999");
    text_count(&b, 1000);
    is("1,000");
    text_count(&b, 1234567);
    is("1,234,567");
    text_count(&b, UINT64_MAX);
    is("18,446,744,073,709,551,615");
}

static void test_value(void **state)
{
    (void)state;
    text_value(&b, STR("cpu"), STR("nanoseconds"), 2.8 * 3600e9);
    is("2.80 core-h");
    text_value(&b, STR("cpu"), STR("nanoseconds"), 31.2 * 60e9);
    is("31.2 core-min");
    text_value(&b, STR("offcpu"), STR("nanoseconds"), 412e6);
    is("412.0 ms");
    text_value(&b, STR("cpu"), STR("nanoseconds"), 0);
    is("0 core-s");
    text_value(&b, STR("offcpu"), STR("nanoseconds"), 0);
    is("0 s");
    text_value(&b, STR("live"), STR("bytes"), 0);
    is("0 B");
    text_value(&b, STR("cpu"), STR("nanoseconds"), 7);
    is("7 core-ns");
    text_value(&b, STR("live"), STR("bytes"), 1.5 * 1024 * 1024 * 1024);
    is("1.50 GiB");
    text_value(&b, STR("live"), STR("bytes"), 512);
    is("512 B");
    text_value(&b, STR("x"), STR("count"), 1234);
    is("1,234");
    text_value(&b, STR("x"), STR("widgets"), 5);
    is("5 widgets");
}

static void test_i128(void **state)
{
    const unit_i128 top = (unit_i128)1 << 126;

    (void)state;
    text_i128(&b, 0);
    is("0");
    text_i128(&b, -17);
    is("-17");
    text_i128(&b, top - 1 + top);
    is("170141183460469231731687303715884105727");
    text_i128(&b, -top - top);
    is("-170141183460469231731687303715884105728");
}

static void test_percent(void **state)
{
    (void)state;
    text_percent(&b, 1, 3);
    is("33.3 %");
    text_percent(&b, 0, 0);
    is("-");
}

static void test_range(void **state)
{
    real_ns a, c, d;

    (void)state;
    assert_true(real_ns_parse(STR("2026-11-29T13:00:00Z"), &a));
    assert_true(real_ns_parse(STR("2026-11-29T14:00:00.5Z"), &c));
    assert_true(real_ns_parse(STR("2026-11-30T00:00:00Z"), &d));
    text_range(&b, (struct interval){a, c});
    is("2026-11-29 13:00:00-14:00:00Z");
    text_range(&b, (struct interval){a, d});
    is("2026-11-29 13:00:00-2026-11-30 00:00:00Z");
}

static void test_name(void **state)
{
    (void)state;
    text_name(&b, STR("std::vector<int>"));
    is("std::vector<int>");
    text_name(&b, STR("a\x1b[31mred\n\0b"));
    is("a\\x1b[31mred\\x0a\\x00b");
    text_name(&b, STR("\xff\xfeq"));
    is("\\xff\\xfeq");
    text_name(&b, STR("a\xe2\x80\xae"
                      "b\xc2\x9b"
                      "c"));
    is("a\\u{202e}b\\u{9b}c");
    text_name(&b, STR("f\xc3\xbcr \xf0\x9f\x98\x80"));
    is("f\xc3\xbcr \xf0\x9f\x98\x80");
    assert_int_equal(text_width(STR("f\xc3\xbcr")), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count), cmocka_unit_test(test_value), cmocka_unit_test(test_percent),
        cmocka_unit_test(test_i128),  cmocka_unit_test(test_range), cmocka_unit_test(test_name),
    };
    int r;

    buf_init(&b, 4096);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    buf_deinit(&b);
    return r;
}
