// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/hash.h"
#include "base/pb.h"
#include "tests/lib/testing.h"

static void there_and_back(void **state)
{
    struct pb_field f;
    struct err err = {};
    struct buf b;
    struct pb p;

    (void)state;
    buf_init(&b, 10000);
    for (unsigned k = 0; k < 64; k++) {
        uint64_t v = (UINT64_C(1) << k) | (hash_mix(k + 1) & ((UINT64_C(1) << k) - 1));

        pb_put_varint(&b, k + 1, v);
        pb_put_sint(&b, k + 1, (int64_t)v);
        pb_put_sint(&b, k + 1, -(int64_t)(v >> 1) - 1);
        pb_put_fixed64(&b, k + 1, v);
        pb_put_bytes(&b, (1u << 29) - 1, (struct str){"0123456789", k % 11});
    }
    pb_put_varint(&b, 1, 0); /* left out */
    pb_put_sint(&b, 1, 0);
    pb_put_fixed64(&b, 1, 0);
    pb_init(&p, buf_view(&b));
    for (unsigned k = 0; k < 64; k++) {
        uint64_t v = (UINT64_C(1) << k) | (hash_mix(k + 1) & ((UINT64_C(1) << k) - 1));

        assert_ok(pb_next(&p, &f, &err), &err);
        assert_true(f.number == k + 1 && f.wire == PB_VARINT && f.v == v);
        assert_ok(pb_next(&p, &f, &err), &err);
        assert_int_equal(pb_zigzag(f.v), (int64_t)v);
        assert_ok(pb_next(&p, &f, &err), &err);
        assert_int_equal(pb_zigzag(f.v), -(int64_t)(v >> 1) - 1);
        assert_ok(pb_next(&p, &f, &err), &err);
        assert_true(f.wire == PB_I64 && f.v == v);
        assert_ok(pb_next(&p, &f, &err), &err);
        assert_true(f.wire == PB_LEN && f.number == (1u << 29) - 1);
        assert_str(f.s, ((struct str){"0123456789", k % 11}));
    }
    assert_int_equal(pb_next(&p, &f, &err), 1);
    assert_int_equal(pb_next(&p, &f, &err), 1);
    buf_deinit(&b);
}

static void extremes(void **state)
{
    (void)state;
    assert_int_equal(pb_zigzag(pb_zag(INT64_MIN)), INT64_MIN);
    assert_int_equal(pb_zigzag(pb_zag(INT64_MAX)), INT64_MAX);
    assert_int_equal(pb_zag(-1), 1);
    assert_int_equal(pb_zag(INT64_MIN), UINT64_MAX);
}

static void refused(void **state)
{
    static const struct {
        struct str s;
        const char *says;
    } t[] = {
        {STR("\x08"), "varint past the end at byte 1 of 1"},
        {STR("\x08\x80"), "varint past the end at byte 1 of 2"},
        {STR("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"), "longer than 64 bits at byte 1"},
        {STR("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), "longer than 64 bits"},
        {STR("\x00\x01"), "field number out of range at byte 0"},
        {STR("\x80\x80\x80\x80\x10\x00"), "field number out of range"},
        {STR("\x0b"), "wire type that is not used"},
        {STR("\x0c"), "wire type that is not used"},
        {STR("\x0e"), "wire type that is not used"},
        {STR("\x09\x00\x00\x00\x00\x00\x00\x00"), "fixed number past the end at byte 1 of 8"},
        {STR("\x0d\x00\x00\x00"), "fixed number past the end"},
        {STR("\x0a\x02x"), "length past the end at byte 0 of 3"},
        {STR("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "length past the end"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct pb_field f = {.number = 77};
        struct err err = {};
        struct pb p;

        pb_init(&p, t[i].s);
        assert_int_equal(pb_next(&p, &f, &err), -EINVAL);
        if (!strstr(err.msg, t[i].says))
            fail_msg("case %zu: %s", i, err.msg);
        assert_int_equal(f.number, 77);
    }
}

static void packed_run(void **state)
{
    uint64_t v = 0;
    struct err err = {};
    struct pb p;

    (void)state;
    pb_init(&p, STR("\x01\xac\x02\x80"));
    assert_ok(pb_packed(&p, &v, &err), &err);
    assert_int_equal(v, 1);
    assert_ok(pb_packed(&p, &v, &err), &err);
    assert_int_equal(v, 300);
    assert_int_equal(pb_packed(&p, &v, &err), -EINVAL);
    pb_init(&p, (struct str){NULL, 0});
    assert_int_equal(pb_packed(&p, &v, NULL), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(extremes),
        cmocka_unit_test(refused),
        cmocka_unit_test(packed_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
