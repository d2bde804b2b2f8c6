// SPDX-License-Identifier: Apache-2.0
#include "storage/head/identity_private.h"
#include "tests/lib/testing.h"

static struct batch_id id_of(uint8_t agent, uint64_t seq, uint64_t content)
{
    return (struct batch_id){.agent = {agent}, .boot = {1}, .seq = seq, .content = content};
}

static struct append *const flight = (struct append *)(uintptr_t)64; // NOLINT
static struct append *const other = (struct append *)(uintptr_t)128; // NOLINT

static int claim(struct identity *id, struct batch_id b)
{
    struct append *f = NULL;
    int r = identity_claim(id, &b, (real_ns){(int64_t)b.seq}, flight, &f);

    if (r == IDENTITY_IN_FLIGHT)
        assert_ptr_equal(f, flight);
    return r;
}

static void settle(struct identity *id, struct batch_id b, bool stored)
{
    identity_settle(id, &b, flight, stored);
}

static int store(struct identity *id, struct batch_id b)
{
    int r = claim(id, b);

    if (r == IDENTITY_NEW)
        settle(id, b, true);
    return r;
}

static void test_once(void **state)
{
    struct identity id;

    (void)state;
    identity_init(&id, 5);
    assert_int_equal(claim(&id, id_of(1, 1, 7)), IDENTITY_NEW);
    assert_int_equal(claim(&id, id_of(1, 1, 7)), IDENTITY_IN_FLIGHT);
    assert_int_equal(claim(&id, id_of(1, 1, 8)), IDENTITY_IN_FLIGHT);
    assert_int_equal(claim(&id, id_of(2, 1, 7)), IDENTITY_NEW);
    settle(&id, id_of(1, 1, 7), true);
    assert_int_equal(claim(&id, id_of(1, 1, 7)), IDENTITY_DUPLICATE);
    assert_int_equal(claim(&id, id_of(1, 1, 8)), IDENTITY_CONFLICT);
    settle(&id, id_of(2, 1, 7), false);
    assert_int_equal(claim(&id, id_of(2, 1, 9)), IDENTITY_NEW); /* the failure freed it */
    identity_deinit(&id);
}

static void test_window(void **state)
{
    struct identity id;

    (void)state;
    identity_init(&id, 5);
    for (uint64_t seq = 1; seq <= 3000; seq++)
        assert_int_equal(store(&id, id_of(1, seq, seq)), IDENTITY_NEW);
    assert_int_equal(store(&id, id_of(1, 3000 - 1023, 3000 - 1023)), IDENTITY_DUPLICATE);
    assert_int_equal(store(&id, id_of(1, 3000 - 1023, 1)), IDENTITY_CONFLICT);
    assert_int_equal(store(&id, id_of(1, 3000 - 1024, 3000 - 1024)), IDENTITY_TOO_OLD);
    /* a number left out may come as long as it is inside */
    assert_int_equal(store(&id, id_of(1, 3500, 0)), IDENTITY_NEW);
    assert_int_equal(store(&id, id_of(1, 3400, 0)), IDENTITY_NEW);
    assert_int_equal(store(&id, id_of(1, 3400, 0)), IDENTITY_DUPLICATE);
    assert_int_equal(store(&id, id_of(1, 3500 - 1024, 0)), IDENTITY_TOO_OLD);
    identity_deinit(&id);
}

/* Numbers far apart share places of a small ring: none may hide another. */
static void test_collisions(void **state)
{
    struct identity id;

    (void)state;
    identity_init(&id, 5);
    for (uint64_t k = 0; k < 8; k++)
        assert_int_equal(store(&id, id_of(1, 1 + k * 128, k)), IDENTITY_NEW);
    for (uint64_t k = 0; k < 8; k++)
        assert_int_equal(store(&id, id_of(1, 1 + k * 128, k)), IDENTITY_DUPLICATE);
    identity_deinit(&id);
}

/* A failed number that was the highest does not make others too old. */
static void test_failed_highest(void **state)
{
    struct identity id;

    (void)state;
    identity_init(&id, 5);
    assert_int_equal(store(&id, id_of(1, 5, 1)), IDENTITY_NEW);
    assert_int_equal(claim(&id, id_of(1, 1000000, 1)), IDENTITY_NEW);
    settle(&id, id_of(1, 1000000, 1), false);
    assert_int_equal(store(&id, id_of(1, 6, 1)), IDENTITY_NEW);
    assert_int_equal(identity_at(&id, 0).seq, 6);
    identity_deinit(&id);
}

static void test_forget(void **state)
{
    struct identity id;
    struct batch_id b = id_of(3, 1, 1);

    (void)state;
    identity_init(&id, 5);
    assert_int_equal(store(&id, id_of(1, 10, 1)), IDENTITY_NEW);
    assert_int_equal(store(&id, id_of(2, 20, 1)), IDENTITY_NEW);
    assert_int_equal(identity_claim(&id, &b, (real_ns){1}, other, &(struct append *){NULL}),
                     IDENTITY_NEW);
    identity_forget(&id, (real_ns){15});
    assert_int_equal(id.n, 2); /* the silent one went, the one in flight stayed */
    assert_int_equal(store(&id, id_of(2, 20, 1)), IDENTITY_DUPLICATE);
    assert_int_equal(store(&id, id_of(1, 10, 1)), IDENTITY_NEW);
    identity_deinit(&id);
}

static void test_none(void **state)
{
    const uint8_t zero[16] = {}, one[16] = {[15] = 1};

    (void)state;
    assert_true(identity_none(zero));
    assert_false(identity_none(one));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once),       cmocka_unit_test(test_window),
        cmocka_unit_test(test_collisions), cmocka_unit_test(test_failed_highest),
        cmocka_unit_test(test_forget),     cmocka_unit_test(test_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
