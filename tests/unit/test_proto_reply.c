// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/pb.h"
#include "proto/wire.h"
#include "tests/lib/testing.h"

static void reply(void **state)
{
    static const struct wire_rejects rejects = {
        .n = 2, .v = {{"too_old", 3, 5, -12}, {"negative_value", 0, 7, (unit_i128)INT64_MIN * 4}}};
    struct wire_reply r = {.seq = 9,
                           .status = WIRE_DUPLICATE,
                           .lsn = 77,
                           .rejects = &rejects,
                           .server = {123},
                           .max_bytes = 1 << 20,
                           .min_interval_ms = 500};
    struct wire_reply back;
    struct err err = {};
    struct buf b;

    (void)state;
    buf_init(&b, 1000);
    wire_reply_encode(&r, &b);
    assert_false(b.failed);
    assert_ok(wire_reply_decode(buf_view(&b), &back, &err), &err);
    assert_int_equal(back.seq, 9);
    assert_int_equal(back.status, WIRE_DUPLICATE);
    assert_int_equal(back.lsn, 77);
    assert_int_equal(back.rejected_rows, 12);
    assert_int_equal(back.server.v, 123);
    assert_int_equal(back.max_bytes, 1 << 20);
    assert_int_equal(back.min_interval_ms, 500);
    assert_null(back.rejects);
    assert_non_null(memmem(b.p, b.n, "-36893488147419103232", 21));
    buf_deinit(&b);
}

static void error(void **state)
{
    struct wire_error e = {.reason = "too_many_samples",
                           .message = "stream[1].stack",
                           .setting = "ingest.samples",
                           .limit = 10,
                           .actual = 11,
                           .retry_after_ms = 3};
    struct wire_error back;
    struct err err = {};
    struct buf b;

    (void)state;
    buf_init(&b, 1000);
    wire_error_encode(&e, &b);
    assert_ok(wire_error_decode(buf_view(&b), &back, &err), &err);
    assert_memory_equal(&back, &e, sizeof e);
    /* longer texts than there is room for are cut */
    buf_reset(&b);
    for (unsigned i = 0; i < 100; i++)
        buf_cstr(&b, "abc");
    {
        struct buf c;

        buf_init(&c, 1000);
        pb_put_bytes(&c, 1, buf_view(&b));
        assert_ok(wire_error_decode(buf_view(&c), &back, &err), &err);
        assert_int_equal(strlen(back.reason), 32);
        buf_deinit(&c);
    }
    buf_deinit(&b);
}

static void refused(void **state)
{
    static const struct str bad[] = {
        STR(""),         STR("\x08\x01"),         STR("\x10\x03"), STR("\x10\x01\x22\x02\x18"),
        STR("\x12\x00"), STR("\x10\x01\x20\x01"),
    };
    static char long_one[70000];
    struct wire_reply r = {.lsn = 5};
    struct wire_error e;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {};

        assert_int_equal(wire_reply_decode(bad[i], &r, &err), -EINVAL);
        assert_true(err.msg[0]);
    }
    assert_int_equal(wire_reply_decode((struct str){long_one, sizeof long_one}, &r, NULL), -EINVAL);
    assert_int_equal(wire_error_decode((struct str){long_one, sizeof long_one}, &e, NULL), -EINVAL);
    assert_int_equal(wire_error_decode(STR("\x20\x05"), &e, NULL), -EINVAL);
    assert_int_equal(wire_error_decode(STR("\x08\x05"), &e, NULL), -EINVAL);
    assert_int_equal(r.lsn, 5);
    /* fields of a newer server are no error */
    assert_int_equal(wire_reply_decode(STR("\x10\x01\x42\x02\x10\x01\xa0\x06\x01"), &r, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reply),
        cmocka_unit_test(error),
        cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
