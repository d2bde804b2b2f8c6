// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "proto/wire.h"
#include "tests/lib/testing.h"

static struct buf packed, out;
static struct wire_limits limits;
static struct wire_fault fault;

static int setup(void **state)
{
    (void)state;
    buf_init(&packed, (size_t)4 << 20);
    buf_init(&out, (size_t)64 << 20);
    wire_limits_default(&limits);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_deinit(&packed);
    buf_deinit(&out);
    return 0;
}

static void pack(struct str s)
{
    struct err err = {};

    assert_ok(wire_compress(s, &packed, &err), &err);
}

static void refused(int code, const char *reason, const char *setting)
{
    struct err err = {};

    buf_reset(&out);
    buf_cstr(&out, "kept");
    fault = (struct wire_fault){};
    assert_int_equal(wire_inflate(buf_view(&packed), &limits, &out, &fault, &err), code);
    assert_string_equal(fault.reason, reason);
    if (setting)
        assert_string_equal(fault.setting, setting);
    else
        assert_null(fault.setting);
    assert_str(buf_view(&out), STR("kept"));
    assert_non_null(strstr(err.msg, reason));
}

static void there_and_back(void **state)
{
    char *text = malloc(300000);
    struct err err = {};

    (void)state;
    for (size_t i = 0; i < 300000; i++)
        text[i] = (char)(i * i >> 7);
    pack((struct str){text, 300000});
    pack((struct str){NULL, 0});
    pack(STR("more"));
    assert_ok(wire_inflate(buf_view(&packed), &limits, &out, &fault, &err), &err);
    assert_int_equal(out.n, 300004);
    assert_memory_equal(out.p, text, 300000);
    assert_memory_equal(out.p + 300000, "more", 4);
    free(text);
}

static void broken(void **state)
{
    size_t n;

    (void)state;
    refused(-EINVAL, "bad_encoding", NULL); /* nothing at all */
    pack(STR("some text that is long enough to be cut off"));
    n = packed.n;
    while (packed.n > 1) {
        packed.n--;
        refused(-EINVAL, "bad_encoding", NULL);
    }
    buf_reset(&packed);
    pack(STR("some text that is long enough to be cut off"));
    assert_int_equal(packed.n, n);
    buf_cstr(&packed, "xx"); /* behind the last frame */
    refused(-EINVAL, "bad_encoding", NULL);
    buf_reset(&packed);
    buf_cstr(&packed, "{\"json\": true}");
    refused(-EINVAL, "bad_encoding", NULL);
}

/* 64 MiB and a byte of zeros in 2 kB, and exactly the cap, which is let in. */
static void bomb(void **state)
{
    size_t n = 64 << 20;
    char *zeros = calloc(1, n + 1);
    struct err err = {};

    (void)state;
    pack((struct str){zeros, n});
    assert_true(packed.n < 10000);
    assert_ok(wire_inflate(buf_view(&packed), &limits, &out, &fault, &err), &err);
    assert_int_equal(out.n, n);
    pack(STR("x")); /* one cap over all frames */
    buf_deinit(&out);
    buf_init(&out, ((size_t)64 << 20) + 4);
    refused(-E2BIG, "inflated_too_large", "ingest.inflated");
    assert_int_equal(fault.limit, n);
    assert_int_equal(fault.actual, n + 1);
    assert_true(fault.too_large);
    buf_reset(&packed);
    pack((struct str){zeros, n + 1});
    refused(-E2BIG, "inflated_too_large", "ingest.inflated");
    free(zeros);
}

static void too_many_members(void **state)
{
    struct err err = {};

    (void)state;
    for (int i = 0; i < 1024; i++)
        pack(STR("a"));
    assert_ok(wire_inflate(buf_view(&packed), &limits, &out, &fault, &err), &err);
    assert_int_equal(out.n, 1024);
    pack(STR("a"));
    refused(-E2BIG, "too_many_members", "ingest.members");
    assert_int_equal(fault.actual, 1025);
    assert_false(fault.too_large);
}

static void too_long_a_body(void **state)
{
    (void)state;
    pack(STR("some text"));
    limits.body = packed.n - 1;
    refused(-E2BIG, "body_too_large", "ingest.body");
    assert_int_equal(fault.actual, packed.n);
}

/* A window of 2^24 bytes, one bit more than is given memory. RFC 8878, 3.1.1.1.2. */
static void wide_window(void **state)
{
    static const char frame[] = "\x28\xb5\x2f\xfd\x00\x70\x01\x00\x00";

    (void)state;
    buf_add(&packed, frame, sizeof frame - 1);
    refused(-EINVAL, "bad_encoding", NULL);
    packed.p[5] = 0x68; /* 2^23 */
    {
        struct err err = {};

        buf_reset(&out);
        assert_ok(wire_inflate(buf_view(&packed), &limits, &out, &fault, &err), &err);
        assert_int_equal(out.n, 0);
    }
}

static void no_room_to_compress(void **state)
{
    struct err err = {};
    struct buf small;

    (void)state;
    buf_init(&small, 5);
    assert_int_equal(wire_compress(STR("more than five bytes"), &small, &err), -E2BIG);
    buf_deinit(&small);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(there_and_back),      TEST(broken),          TEST(bomb),
        TEST(too_many_members),    TEST(too_long_a_body), TEST(wide_window),
        TEST(no_room_to_compress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
