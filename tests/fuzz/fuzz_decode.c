// SPDX-License-Identifier: Apache-2.0
/*
 * wire_decode() on any bytes: an error with a reason, or a valid batch that survives being written
 * and read again. Under failing allocations too: the first byte of the input says which one.
 */
#include "base/arena.h"
#include "proto/wire.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/same_batch.h"

#define RECEIVED INT64_C(1796000000000000000)

static const struct wire_limits *small_limits(void)
{
    static struct wire_limits l;

    wire_limits_default(&l);
    l.arena = (size_t)4 << 20;
    l.batch.age_ns = INT64_MAX;
    l.batch.future_ns = INT64_MAX;
    l.batch.samples = 10000;
    l.batch.entries = 10000;
    l.batch.depth = 40;
    l.batch.name_bytes = 100;
    l.batch.labels = 4;
    l.batch.label_name_bytes = 16;
    l.batch.label_value_bytes = 32;
    return &l;
}

static struct wire_rejects rejects;

static int decode(struct str in, struct arena *a, struct batch *ret)
{
    struct wire_fault fault = {};
    struct err err = {};
    int r;

    arena_init(a, (size_t)4 << 20);
    r = wire_decode(in, small_limits(), (real_ns){RECEIVED}, a, ret, &fault, &rejects, &err);
    FUZZ_CHECK(r == 0 || (fault.reason && err.code == r && err.msg[0]));
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str in = {(const char *)data, n};
    struct arena a, again;
    struct batch b, back;
    struct err err = {};
    struct buf out;

    if (n > 0) {
        mem_fail_nth(data[n - 1]);
        (void)decode(in, &a, &b);
        mem_fail_nth(0);
        arena_deinit(&a);
    }
    if (decode(in, &a, &b) == 0) {
        /* the hashes of nodes are those of names before they are cut */
        bool cut = rejects.name_cut > 0;

        FUZZ_CHECK(batch_check(&b, &err) == 0);
        buf_init(&out, (size_t)16 << 20);
        FUZZ_CHECK(wire_encode(&b, &out, NULL, &err) == 0);
        if (decode(buf_view(&out), &again, &back) == 0 && !cut)
            FUZZ_CHECK(same_batch(&b, &back) == NULL);
        arena_deinit(&again);
        buf_deinit(&out);
    }
    arena_deinit(&a);
    return 0;
}
