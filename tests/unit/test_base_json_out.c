// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/json_out.h"
#include "tests/lib/testing.h"

static void structure(void **state)
{
    struct buf b;
    struct json_out j;

    (void)state;
    buf_init(&b, 1 << 20);
    json_init(&j, &b);
    json_object_begin(&j);
    json_key(&j, "a");
    json_array_begin(&j);
    json_array_end(&j);
    json_key(&j, "b");
    json_array_begin(&j);
    json_i64(&j, INT64_MIN);
    json_object_begin(&j);
    json_object_end(&j);
    json_u64(&j, UINT64_MAX);
    json_null_value(&j);
    json_bool(&j, true);
    json_bool(&j, false);
    json_array_end(&j);
    json_key_str(&j, STR("c\"d"));
    json_hex64(&j, 0xabc);
    json_key(&j, "e");
    json_dec_i64(&j, -5);
    json_key(&j, "f");
    json_dec_u64(&j, 5);
    json_key(&j, "g");
    json_dec_i128(&j, (unit_i128)INT64_MIN * 16);
    json_key(&j, "h");
    json_raw(&j, STR("[1,2]"));
    json_object_end(&j);
    assert_str(buf_view(&b),
               STR("{\"a\":[],\"b\":[-9223372036854775808,{},18446744073709551615,null,"
                   "true,false],\"c\\\"d\":\"0000000000000abc\",\"e\":\"-5\","
                   "\"f\":\"5\",\"g\":\"-147573952589676412928\",\"h\":[1,2]}"));
    buf_deinit(&b);
}

/* Members many at once are those written one by one: at every number of digits, across the stretch
 * that is written at once, and in a buffer that has no room to spare. */
static void many_at_once(void **state)
{
    enum {
        N = 1000
    };
    uint64_t v[N], power = 1;
    uint32_t narrow[N];
    int32_t whole[N];

    (void)state;
    for (unsigned i = 0; i < N; i++) {
        v[i] = power - (i % 3 == 0) + (i % 3 == 2);
        power = i % 3 < 2 ? power : power > UINT64_MAX / 10 ? 1 : power * 10;
        narrow[i] = (uint32_t)hash_mix(i) >> i % 32;
        whole[i] = i % 5 ? (int32_t)narrow[i] : -1;
    }
    v[10] = UINT64_MAX;
    whole[11] = INT32_MIN;
    for (size_t cap = 0; cap < 60000; cap = cap ? cap * 3 / 2 : 40) {
        struct buf one, many;
        struct json_out a, b;

        buf_init(&one, cap);
        buf_init(&many, cap);
        json_init(&a, &one);
        json_init(&b, &many);
        json_array_begin(&a);
        json_array_begin(&b);
        json_u32s(&b, narrow, 0);
        json_u64s(&b, v, N);
        json_u32s(&b, narrow, N);
        json_i32s(&b, whole, N);
        for (unsigned i = 0; i < N; i++)
            json_u64(&a, v[i]);
        for (unsigned i = 0; i < N; i++)
            json_u64(&a, narrow[i]);
        for (unsigned i = 0; i < N; i++)
            json_i64(&a, whole[i]);
        json_array_end(&a);
        json_array_end(&b);
        assert_int_equal(one.failed != 0, many.failed != 0);
        if (!one.failed)
            assert_str(buf_view(&many), buf_view(&one));
        buf_deinit(&one);
        buf_deinit(&many);
    }
}

/* What stands for itself is skipped eight at a time: each byte at each place among plain ones. */
static void every_byte_anywhere(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        for (unsigned at = 0; at < 19; at++) {
            char text[19];
            struct buf whole, parts;
            struct json_out a, b;

            memset(text, 'x', sizeof text);
            text[at] = (char)c;
            buf_init(&whole, 1 << 10);
            buf_init(&parts, 1 << 10);
            json_init(&a, &whole);
            json_str(&a, (struct str){text, sizeof text});
            json_init(&b, &parts); /* alone it is not among others */
            json_str(&b, (struct str){text + at, 1});
            assert_int_equal(a.repaired, b.repaired);
            assert_int_equal(whole.n, parts.n + sizeof text - 1);
            assert_memory_equal(whole.p + 1 + at, parts.p + 1, parts.n - 2);
            buf_deinit(&whole);
            buf_deinit(&parts);
        }
    }
}

static void deepest(void **state)
{
    struct buf b;
    struct json_out j;

    (void)state;
    buf_init(&b, 1 << 20);
    json_init(&j, &b);
    for (unsigned i = 0; i < 32; i++) {
        json_array_begin(&j);
        json_object_begin(&j);
        json_key(&j, "k");
    }
    json_cstr(&j, "x");
    for (unsigned i = 0; i < 32; i++) {
        json_object_end(&j);
        json_array_end(&j);
    }
    assert_int_equal(b.n, 32 * 8 + 3);
    buf_deinit(&b);
}

static void strings(void **state)
{
    static const struct {
        struct str in, out;
    } t[] = {
        {STR(""), STR("\"\"")},
        {STR("a<b>&c"), STR("\"a\\u003cb>&c\"")},
        {STR("\"\\\n\r\t\x01\x7f"), STR("\"\\\"\\\\\\n\\r\\t\\u0001\\u007f\"")},
        {STR("a\0b"), STR("\"a\\u0000b\"")},
        {STR("gr\xc3\xbc\xc3\x9f"), STR("\"gr\xc3\xbc\xc3\x9f\"")},
        {STR("\xf0\x9f\x98\x80"), STR("\"\xf0\x9f\x98\x80\"")},
        {STR("x\xffy\xc3"), STR("\"x\\\\xffy\\\\xc3\"")},
        {STR("\xed\xa0\x80"), STR("\"\\\\xed\\\\xa0\\\\x80\"")},
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct buf b;
        struct json_out j;

        buf_init(&b, 1000);
        json_init(&j, &b);
        json_str(&j, t[i].in);
        assert_str(buf_view(&b), t[i].out);
        assert_int_equal(j.repaired, i >= 6);
        buf_deinit(&b);
    }
}

static void double_is(double v, const char *text)
{
    struct buf b;
    struct json_out j;

    buf_init(&b, 1000);
    json_init(&j, &b);
    json_double(&j, v);
    assert_str(buf_view(&b), str_c(text));
    buf_deinit(&b);
}

static void doubles(void **state)
{
    (void)state;
    double_is(0, "0");
    double_is(-0.0, "-0");
    double_is(1, "1");
    double_is(-2.5, "-2.5");
    double_is(0.1, "0.1");
    double_is(0.3, "0.3");
    double_is(0.05, "0.05");
    double_is(100.25, "100.25");
    double_is(0.00000001, "1e-8");
    double_is(1e-9, "1e-9");
    double_is(1.25e-9, "1.25e-9");
    double_is(0.000001234567890123, "0.000001234567890123");
    double_is(12345678901234567168.0, "12345678901234567000");
    double_is(123456789012345680000.0, "1.2345678901234568e+20");
    double_is(1e19, "10000000000000000000");
    double_is(0x1p-64, "5.421010862427522e-20");
    double_is(0x1p63, "9223372036854776000");
    double_is(0x1p60, "1152921504606847000");
    double_is(0x1p-30, "9.313225746154785e-10");
    double_is(9007199254740993.0, "9007199254740992");
    double_is(2.5e-5, "0.000025");
    double_is(0.1 + 0.2, "0.30000000000000004");
    double_is(1.0 / 3, "0.3333333333333333");
    double_is(9007199254740990, "9007199254740990");
    double_is(1e22, "1e+22");
    double_is(5e-324, "5e-324");
    double_is(1.7976931348623157e308, "1.7976931348623157e+308");
}

/* Digits from the first that is not 0 to the last that is not. */
static size_t significant(struct str s)
{
    size_t n = 0, last = 0;

    for (size_t i = 0; i < s.n && s.p[i] != 'e'; i++) {
        bool digit = s.p[i] >= '0' && s.p[i] <= '9';

        n += digit && (n > 0 || s.p[i] != '0');
        if (digit && s.p[i] != '0')
            last = n;
    }
    return last;
}

/* One digit fewer, in the library's own rounding, does not read back. */
static void shortest(double v, struct str s)
{
    size_t n = significant(s);
    char text[64];
    double back;

    if (n < 2)
        return;
    (void)snprintf(text, sizeof text, "%.*e", (int)n - 2, v);
    assert_true(str_double(str_c(text), &back));
    if (back == v)
        fail_msg("%.*s: %s is shorter", STR_ARG(s), text);
}

/* Any bits, and sums of few decimals: read back equal, and never longer than %.17g cut down. */
static void doubles_read_back(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 1000);
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t bits = hash_mix(i);
        struct json_out j;
        double v, back;

        memcpy(&v, &bits, sizeof v);
        if (i & 1)
            v = (double)(int64_t)(bits >> 40) / 1000;
        if (i % 4 == 2) /* an exponent as answers have it */
            v = ldexp((double)(bits >> 11), -100 + (int)(i / 4 % 90));
        if (!isfinite(v))
            continue;
        buf_reset(&b);
        json_init(&j, &b);
        json_double(&j, v);
        assert_true(str_double(buf_view(&b), &back));
        assert_memory_equal(&back, &v, sizeof v);
        assert_true(significant(buf_view(&b)) <= 17);
        if (i % 4 == 2)
            shortest(v, buf_view(&b));
        if (i & 1)
            assert_true(significant(buf_view(&b)) <= 11);
    }
    buf_deinit(&b);
}

static void full_buffer_is_said(void **state)
{
    struct buf b;
    struct json_out j;

    (void)state;
    buf_init(&b, 10);
    json_init(&j, &b);
    json_array_begin(&j);
    json_cstr(&j, "more than ten bytes");
    json_array_end(&j);
    assert_true(b.failed);
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_at_once),      cmocka_unit_test(every_byte_anywhere),
        cmocka_unit_test(structure),         cmocka_unit_test(deepest),
        cmocka_unit_test(strings),           cmocka_unit_test(doubles),
        cmocka_unit_test(doubles_read_back), cmocka_unit_test(full_buffer_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
