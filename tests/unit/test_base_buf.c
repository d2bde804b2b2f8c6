// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "tests/lib/testing.h"

static void appends(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 10000);
    buf_cstr(&b, "a");
    buf_chr(&b, '\0');
    buf_str(&b, STR("bc"));
    buf_str(&b, (struct str){NULL, 0});
    buf_u64(&b, 0);
    buf_u64(&b, UINT64_MAX);
    buf_i64(&b, INT64_MIN);
    buf_i64(&b, 7);
    buf_hex64(&b, 0xdeadbeef);
    buf_printf(&b, "%d-%s", 5, "x");
    assert_str(buf_view(&b),
               STR("a\0bc018446744073709551615-9223372036854775808700000000deadbeef5-x"));
    buf_reset(&b);
    buf_printf(&b, "%0500d", 1); /* longer than the array on the stack */
    assert_int_equal(b.n, 500);
    assert_int_equal(b.p[499], '1');
    buf_reset(&b);
    buf_le16(&b, 0x0102);
    buf_le32(&b, 0x03040506);
    buf_le64(&b, UINT64_C(0x0708090a0b0c0d0e));
    assert_str(buf_view(&b), STR("\x02\x01\x06\x05\x04\x03\x0e\x0d\x0c\x0b\x0a\x09\x08\x07"));
    buf_deinit(&b);
}

/* Around each power of ten and of two, where lengths change, and what printf() says of them. */
static void digits_of(uint64_t v)
{
    char text[BUF_DIGITS + 4], own[BUF_DIGITS];

    (void)snprintf(text, sizeof text, "%" PRIu64, v);
    assert_str(((struct str){own, buf_digits(own, v)}), str_c(text));
}

static void numbers_of_each_length(void **state)
{
    uint64_t ten = 1, mix = 1;

    (void)state;
    for (uint32_t v = 0; v < 100000; v++) {
        digits_of(v);
        digits_of(UINT64_C(99999) * 100000 + v); /* each last half */
        digits_of(UINT64_C(100000000) * v + v);
    }
    for (unsigned k = 0; k < 20; k++, ten *= 10) {
        for (uint64_t d = 1; d < 10; d++) {
            digits_of(ten * d - 1);
            digits_of(ten * d);
            digits_of(ten * d + 1);
        }
    }
    for (unsigned k = 0; k < 64; k++) {
        digits_of((UINT64_C(1) << k) - 1);
        digits_of(UINT64_C(1) << k);
        digits_of(UINT64_MAX - (UINT64_C(1) << k));
    }
    for (unsigned i = 0; i < 200000; i++) {
        mix = mix * UINT64_C(6364136223846793005) + 1442695040888963407u;
        digits_of(mix >> i % 64);
    }
}

static void cap_is_exact(void **state)
{
    struct buf b;
    char *p;

    (void)state;
    buf_init(&b, 100);
    for (int i = 0; i < 100; i++)
        buf_chr(&b, 'x');
    assert_false(b.failed);
    assert_int_equal(b.n, 100);
    buf_chr(&b, 'y');
    assert_true(b.failed);
    buf_cstr(&b, ""); /* and stays so */
    assert_true(b.failed && b.n == 100);
    buf_reset(&b);
    assert_false(b.failed);
    p = buf_reserve(&b, 60);
    assert_non_null(p);
    memset(p, 'z', 60);
    buf_commit(&b, 59);
    assert_int_equal(b.n, 59);
    assert_null(buf_reserve(&b, 42));
    assert_true(b.failed);
    buf_deinit(&b);
    buf_deinit(&b);
}

static void memory_short(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 1000);
    buf_cstr(&b, "there");
    mem_fail_nth(1);
    buf_printf(&b, "%0200d", 1);
    mem_fail_nth(0);
    assert_true(b.failed);
    assert_str(buf_view(&b), STR("there"));
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends),
        cmocka_unit_test(numbers_of_each_length),
        cmocka_unit_test(cap_is_exact),
        cmocka_unit_test(memory_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
