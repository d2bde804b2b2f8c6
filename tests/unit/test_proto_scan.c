// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/arena.h"
#include "base/pb.h"
#include "proto/scan.h"
#include "tests/lib/testing.h"

/* Malformed and oversized bodies: refused with reason, setting, limit and actual, before anything
 * is allocated (the arena is untouched). */
static struct buf body;
static struct wire_limits limits;
static struct wire_fault fault;

static int setup(void **state)
{
    (void)state;
    buf_init(&body, (size_t)64 << 20);
    wire_limits_default(&limits);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_deinit(&body);
    return 0;
}

/* Decode what stands in body: it must be refused, with this reason, at this place. */
static void refused(int code, const char *reason, const char *field)
{
    struct arena a;
    struct batch b;
    struct err err = {};
    int r;

    arena_init(&a, limits.arena);
    fault = (struct wire_fault){};
    r = wire_decode(buf_view(&body), &limits, (real_ns){0}, &a, &b, &fault, NULL, &err);
    if (r != code || !fault.reason || strcmp(fault.reason, reason) != 0 ||
        strcmp(fault.field, field) != 0)
        fail_msg("%d %s \"%s\", not %d %s \"%s\": %s", r, fault.reason, fault.field, code, reason,
                 field, err.msg);
    assert_int_equal(a.used, 0);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.msg, reason));
    arena_deinit(&a);
    buf_reset(&body);
}

static void bytes(const void *p, size_t n)
{
    buf_add(&body, p, n);
}
#define BYTES(lit) bytes(lit, sizeof(lit) - 1)

static void malformed(void **state)
{
    (void)state;
    BYTES("\x08");
    refused(-EINVAL, "bad_encoding", "");
    BYTES("\x00\x00");
    refused(-EINVAL, "bad_encoding", "");
    BYTES("\x0b\x0c"); /* a group */
    refused(-EINVAL, "bad_encoding", "");
    BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02");
    refused(-EINVAL, "bad_encoding", "");
    BYTES("\x3a\x7f");
    refused(-EINVAL, "bad_encoding", "");
    BYTES("\x38\x01"); /* str as a varint */
    refused(-EINVAL, "bad_encoding", "str");
    BYTES("\x0a\x00"); /* version as bytes */
    refused(-EINVAL, "bad_encoding", "version");
    BYTES("\x08\x81\x80\x80\x80\x10"); /* 2^32 + 1 as a uint32 */
    refused(-EINVAL, "bad_encoding", "version");
    BYTES("\x42\x02\x01\x80"); /* label: the last varint is not whole */
    refused(-EINVAL, "bad_encoding", "label");
    BYTES("\x42\x06\x80\x80\x80\x80\x80\x00"); /* six bytes for 32 bits */
    refused(-EINVAL, "bad_encoding", "label");
    BYTES("\x4a\x00\x4a\x00"); /* two dictionaries */
    refused(-EINVAL, "bad_encoding", "dict");
    BYTES("\x62\x00\x62\x03\xd2\x01\xff"); /* second stream, stack past the end */
    refused(-EINVAL, "bad_encoding", "stream[1]");
    BYTES("\x62\x05\xea\x01\x02\x00\x00"); /* var: two bytes are no double */
    refused(-EINVAL, "bad_encoding", "stream[0].var");
}

static void limit_hit(const char *setting, uint64_t limit, uint64_t actual, bool too_large)
{
    assert_string_equal(fault.setting, setting);
    assert_int_equal(fault.limit, limit);
    assert_int_equal(fault.actual, actual);
    assert_int_equal(fault.too_large, too_large);
}

static void each_limit(void **state)
{
    (void)state;
    limits.batch.streams = 3;
    for (int i = 0; i < 4; i++)
        BYTES("\x62\x00");
    refused(-E2BIG, "too_many_profiles", "stream");
    limit_hit("ingest.streams", 3, 4, true);

    limits.batch.samples = 4;
    BYTES("\x62\x06\xd2\x01\x03\x00\x00\x00"); /* three rows, then two */
    BYTES("\x62\x05\xd2\x01\x02\x00\x00");
    refused(-E2BIG, "too_many_samples", "stream[1].stack");
    limit_hit("ingest.samples", 4, 5, true);

    limits.batch.entries = 5;
    for (int i = 0; i < 6; i++)
        BYTES("\x3a\x00");
    refused(-E2BIG, "too_many_entries", "str");
    limit_hit("ingest.entries", 5, 6, true);
    BYTES("\x4a\x08\x22\x06\x00\x00\x00\x00\x00\x00");
    refused(-E2BIG, "too_many_entries", "dict[0].fn_name");

    limits.unknown_fields = 2;
    for (int i = 0; i < 3; i++)
        BYTES("\xa0\x06\x01"); /* field 100 */
    refused(-E2BIG, "too_many_unknown_fields", "");
    limit_hit("ingest.unknown_fields", 2, 3, false);

    limits.nesting = 1;
    BYTES("\x4a\x00");
    refused(-E2BIG, "nesting_too_deep", "dict");
    limit_hit("ingest.nesting", 1, 2, false);
}

/* Empty sub-messages: 2 bytes each on the wire, 200 in memory. */
static void budget(void **state)
{
    (void)state;
    for (int i = 0; i < 900000; i++)
        BYTES("\x52\x00");
    refused(-ENOMEM, "decode_budget", "");
    assert_string_equal(fault.setting, "ingest.arena");
    assert_int_equal(fault.limit, 128 << 20);
    assert_true(fault.actual > fault.limit && fault.too_large);
}

static const struct wire_scan_msg self;
static const struct wire_scan_field self_f[] = {
    {"self", &self, 1, WIRE_SCAN_MSG, true, WIRE_SCAN_FREE, 8}};
static const struct wire_scan_msg self = {self_f, 1, 0, 32};

/* A message that contains itself, as foreign formats have them: refused by depth, not by the end
 * of the stack, 2 bytes a level. */
static void nesting(void **state)
{
    struct buf other;
    struct err err = {};
    size_t deep[] = {31, 32, 14000};

    (void)state;
    buf_init(&other, 1 << 20);
    for (size_t k = 0; k < 3; k++) {
        buf_reset(&body);
        for (size_t i = 0; i < deep[k]; i++) {
            buf_reset(&other);
            pb_put_bytes(&other, 1, buf_view(&body));
            buf_reset(&body);
            buf_str(&body, buf_view(&other));
        }
        err = (struct err){};
        if (deep[k] < 32) {
            assert_ok(wire_scan(buf_view(&body), &self, &limits, 1 << 20, &fault, &err), &err);
            continue;
        }
        assert_int_equal(wire_scan(buf_view(&body), &self, &limits, 1 << 20, &fault, &err), -E2BIG);
        assert_string_equal(fault.reason, "nesting_too_deep");
        limit_hit("ingest.nesting", 32, 33, false);
    }
    buf_deinit(&other);
}

static const struct wire_scan_field run_f[] = {
    {"u32", NULL, 1, WIRE_SCAN_U32, true, WIRE_SCAN_ENTRIES, 4},
    {"u64", NULL, 2, WIRE_SCAN_U64, true, WIRE_SCAN_ENTRIES, 8},
};
static const struct wire_scan_msg run_msg = {run_f, 2, 0, 32};

/* What the run in `other` is, byte by byte. -1: malformed. */
static int64_t slow_count(struct str run, uint32_t number)
{
    size_t most = number == 1 ? 5 : 10, len = 0;
    unsigned char last = number == 1 ? 0x0f : 1;
    int64_t n = 0;

    for (size_t i = 0; i < run.n; i++) {
        unsigned char c = (unsigned char)run.p[i];

        if (++len > most || (len == most && c > last))
            return -1;
        n += c < 0x80;
        len = c < 0x80 ? 0 : len;
    }
    return len ? -1 : n;
}

/* Packed runs of any lengths of varints, also too long and cut off: counted to the last one. */
static void packed_runs(void **state)
{
    uint64_t seed = 1, malformed_n = 0;
    struct err err;
    struct buf run;

    (void)state;
    buf_init(&run, 4096);
    for (uint32_t turn = 0; turn < 20000; turn++) {
        uint32_t number = 1 + turn % 2, n = turn % 97, most = 1 + turn / 2 % 11;
        int64_t want;

        buf_reset(&run);
        for (uint32_t i = 0; i < n; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            for (uint32_t k = (uint32_t)(seed >> 33) % most; k > 0; k--)
                buf_add(&run, "\x81", 1);
            buf_add(&run, (seed >> 60) + turn % 200 > 0 ? "\x01" : "\x81", 1);
        }
        buf_reset(&body);
        pb_put_bytes(&body, number, buf_view(&run));
        want = slow_count(buf_view(&run), number);
        malformed_n += want < 0;
        err = (struct err){};
        limits.batch.entries = want > 0 ? (uint32_t)want : 1;
        if (want < 0)
            assert_int_equal(wire_scan(buf_view(&body), &run_msg, &limits, 1 << 20, &fault, &err),
                             -EINVAL);
        else
            assert_ok(wire_scan(buf_view(&body), &run_msg, &limits, 1 << 20, &fault, &err), &err);
        if (want > 1) {
            limits.batch.entries--;
            assert_int_equal(wire_scan(buf_view(&body), &run_msg, &limits, 1 << 20, &fault, &err),
                             -E2BIG);
            assert_int_equal(fault.actual, want);
        }
    }
    assert_in_range(malformed_n, 1000, 19000);
    buf_reset(&body);
    buf_deinit(&run);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(malformed), TEST(each_limit), TEST(budget), TEST(nesting), TEST(packed_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
