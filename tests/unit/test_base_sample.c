// SPDX-License-Identifier: Apache-2.0
/* Hashes are on the wire, on disk and in links: golden values. */
#include <errno.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/sample.h"
#include "tests/lib/gen_batch.h"
#include "tests/lib/testing.h"

static void function_keys(void **state)
{
    uint64_t main_key = func_key(STR("demo"), STR("main"));

    (void)state;
    assert_int_equal(main_key, 0x48046b589efdba3f);
    assert_int_equal(func_key(STR("a.py"), STR("forward")), 0x7945efdb258ff2cc);
    assert_int_equal(func_key(STR("b.py"), STR("forward")), 0xab84f3a85bca27b7);
    /* the 0 byte between keeps ("ab", "c") and ("a", "bc") apart */
    assert_int_not_equal(func_key(STR("ab"), STR("c")), func_key(STR("a"), STR("bc")));
    assert_int_equal(func_key(STR(""), STR("")), hash_bytes("", 1));
}

static void scopes(void **state)
{
    const struct str bin = STR("/usr/bin/demo"), file = STR("a.py"), none = STR("");

    (void)state;
    assert_str(func_scope(FRAME_NATIVE, bin, file), STR("demo"));
    assert_str(func_scope(FRAME_KERNEL, STR("[kernel]"), none), STR("[kernel]"));
    assert_str(func_scope(FRAME_PYTHON, bin, file), file);
    assert_str(func_scope(FRAME_NATIVE, none, file), file);
    assert_str(func_scope(FRAME_OTHER, none, none), none);
}

static void node_hashes(void **state)
{
    static const struct str str[] = {STR(""), STR("/usr/bin/demo"), STR("main")};
    static const struct batch_bin bin[] = {{}, {.path = 1}};
    static const struct batch_fn fn[] = {{}, {.name = 2}};
    static const struct batch_frame frame[] = {
        {}, {.kind = FRAME_NATIVE, .fn = 1, .bin = 1, .addr = 0x1040}};
    const struct batch b = {.str = str, .bin = bin, .fn = fn, .frame = frame};
    struct target_key key = {.pidns = 4026531836, .pid = 42};

    (void)state;
    assert_int_equal(node_hash(0, batch_frame_hash(&b, 1)), 0x74472a45ec8e95c4);
    assert_int_not_equal(node_hash(1, 2), node_hash(2, 1));
    assert_int_equal(target_id(&key), 0xbd9b009b45d87573);
    key.host[15] = 1;
    assert_int_not_equal(target_id(&key), 0xbd9b009b45d87573);
}

static void random_batches_are_valid(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, (size_t)16 << 20);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct gen g = {seed, &a};
        struct err err = {};
        struct batch b;

        arena_reset(&a);
        gen_batch(&g, &b);
        assert_ok(batch_check(&b, &err), &err);
        /* one index past its table is found, wherever it is */
        b.n_str = 1;
        assert_int_equal(batch_check(&b, &err), -EINVAL);
    }
    arena_deinit(&a);
}

static void refusals_name_the_place(void **state)
{
    static const struct str str[] = {STR(""), STR("x")};
    static const struct batch_bin bin[1];
    static const struct batch_fn fn[1];
    static const struct batch_frame frame[1];
    static const struct batch_node node[1];
    static const struct batch_target target[1];
    static const struct batch_labels labels[1];
    static const uint64_t count[] = {1, 0};
    static const real_ns t[] = {{5}, {10}};
    struct batch_stream st = {.type = PTYPE_CPU,
                              .kind = KIND_SUM,
                              .covers = {{0}, {10}},
                              .state = SOURCE_OK,
                              .period = 7,
                              .rows = {.n = 2}};
    struct batch b = {.n_str = 2,
                      .str = str,
                      .n_bin = 1,
                      .bin = bin,
                      .n_fn = 1,
                      .fn = fn,
                      .n_frame = 1,
                      .frame = frame,
                      .n_node = 1,
                      .node = node,
                      .n_target = 1,
                      .target = target,
                      .n_labels = 1,
                      .labels = labels,
                      .n_stream = 1,
                      .stream = &st};
    struct err err = {};

    (void)state;
    assert_ok(batch_check(&b, &err), &err);
    st.rows.count = count;
    assert_int_equal(batch_check(&b, &err), -EINVAL);
    assert_string_equal(err.msg, "batch: stream 0: row: count x period");
    st.rows.count = NULL;
    st.rows.t = t;
    err = (struct err){};
    assert_int_equal(batch_check(&b, &err), -EINVAL);
    assert_string_equal(err.msg, "batch: stream 0: row: time outside the interval");
    st.rows.t = NULL;
    st.kind = KIND_LEVEL;
    err = (struct err){};
    assert_int_equal(batch_check(&b, &err), -EINVAL);
    assert_string_equal(err.msg, "batch: stream 0: type");
    b.n_node = 0;
    err = (struct err){};
    assert_int_equal(batch_check(&b, &err), -EINVAL);
    assert_string_equal(err.msg, "batch: a table lacks its entry 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(function_keys),
        cmocka_unit_test(scopes),
        cmocka_unit_test(node_hashes),
        cmocka_unit_test(random_batches_are_valid),
        cmocka_unit_test(refusals_name_the_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
