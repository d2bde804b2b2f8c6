// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/map.h"
#include "proto/wire.h"
#include "tests/lib/gen_batch.h"
#include "tests/lib/same_batch.h"
#include "tests/lib/testing.h"

#define BATCHES 400

static struct arena made, read_into;
static struct buf out;

static int setup(void **state)
{
    (void)state;
    arena_init(&made, (size_t)64 << 20);
    arena_init(&read_into, (size_t)128 << 20);
    buf_init(&out, (size_t)64 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_deinit(&made);
    arena_deinit(&read_into);
    buf_deinit(&out);
    return 0;
}

static void decode_ok(struct batch *ret, const struct batch *like)
{
    struct wire_limits limits;
    struct wire_rejects rejects;
    struct wire_fault fault;
    struct err err = {};

    wire_limits_default(&limits);
    assert_ok(wire_decode(buf_view(&out), &limits, like->received, &read_into, ret, &fault,
                          &rejects, &err),
              &err);
    assert_int_equal(rejects.n, 0);
    assert_int_equal(
        rejects.name_cut + rejects.stack_cut + rejects.label_cut + rejects.label_dropped, 0);
}

static void there_and_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= BATCHES; seed++) {
        struct gen g = {seed, &made};
        struct batch b, back;
        struct err err = {};
        uint64_t content = 0;
        const char *differs;

        arena_reset(&made);
        arena_reset(&read_into);
        buf_reset(&out);
        gen_batch(&g, &b);
        assert_ok(batch_check(&b, &err), &err);
        assert_ok(wire_encode(&b, &out, &content, &err), &err);
        assert_int_equal(content, hash_bytes(out.p, out.n - 10));
        decode_ok(&back, &b);
        b.id.content = content;
        differs = same_batch(&b, &back);
        if (differs)
            fail_msg("seed %" PRIu64 ": %s", seed, differs);

        /* what was read is written as the same bytes */
        {
            struct buf again;

            buf_init(&again, (size_t)64 << 20);
            assert_ok(wire_encode(&back, &again, NULL, &err), &err);
            assert_str(buf_view(&again), buf_view(&out));
            buf_deinit(&again);
        }
    }
}

/* ---- the short form ------------------------------------------------------------------------ */

static bool is_known(void *ctx, uint64_t hash)
{
    return hash_mix(hash + *(uint64_t *)ctx) % 3 != 0;
}

/* The same rows by hash; the definitions that are left mean the same. */
static void same_short(const struct batch *full, const struct batch *s, uint64_t seed)
{
    for (uint32_t i = 0; i < full->n_stream; i++) {
        const struct batch_rows *a = &full->stream[i].rows, *b = &s->stream[i].rows;

        assert_int_equal(a->n, b->n);
        for (uint32_t k = 0; k < a->n; k++)
            assert_int_equal(a->node ? full->node[a->node[k]].hash : 0,
                             b->node ? s->node[b->node[k]].hash : 0);
    }
    for (uint32_t i = 1; i < s->n_node; i++) {
        const struct batch_node *n = &s->node[i];

        assert_int_equal(i <= s->n_known, is_known(&seed, n->hash));
        if (i > s->n_known)
            assert_int_equal(n->hash,
                             node_hash(s->node[n->parent].hash, batch_frame_hash(s, n->frame)));
    }
}

static void short_form(void **state)
{
    size_t full_bytes = 0, short_bytes = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= BATCHES; seed++) {
        struct gen g = {seed, &made};
        struct batch b, s, back;
        struct err err = {};
        const char *differs;

        arena_reset(&made);
        arena_reset(&read_into);
        buf_reset(&out);
        gen_batch(&g, &b);
        assert_ok(wire_encode(&b, &out, &b.id.content, &err), &err);
        full_bytes += out.n;
        assert_ok(wire_shorten(&b, is_known, &seed, &made, &s, &err), &err);
        assert_ok(batch_check(&s, &err), &err);
        assert_int_equal(s.id.content, b.id.content);
        same_short(&b, &s, seed);
        buf_reset(&out);
        assert_ok(wire_encode(&s, &out, NULL, &err), &err);
        short_bytes += out.n;
        decode_ok(&back, &b);
        differs = same_batch(&s, &back);
        if (differs)
            fail_msg("seed %" PRIu64 ": %s", seed, differs);
        same_short(&b, &back, seed);
    }
    assert_true(short_bytes < full_bytes);
}

/* Whichever allocation of shortening and encoding fails: said, and nothing leaks. */
static void any_allocation_fails(void **state)
{
    struct gen g = {3, &made};
    struct err err = {};
    uint64_t n = 0, ctx = 3;
    struct batch b, s;
    int r;

    (void)state;
    gen_batch(&g, &b);
    do {
        struct arena a;
        struct buf bytes;

        arena_init(&a, 1 << 20);
        buf_init(&bytes, 1 << 20);
        err = (struct err){};
        mem_fail_nth(++n);
        r = wire_shorten(&b, is_known, &ctx, &a, &s, &err);
        if (r == 0)
            r = wire_encode(&s, &bytes, NULL, &err);
        mem_fail_nth(0);
        assert_int_equal(err.code, r);
        buf_deinit(&bytes);
        arena_deinit(&a);
    } while (r != 0 && n < 1000);
    assert_int_equal(r, 0);
    assert_in_range(n, 15, 200);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(there_and_back),
        TEST(short_form),
        TEST(any_allocation_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
