// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"
#include "base/dindex.h"
#include "base/hash.h"
#include "tests/lib/testing.h"

enum {
    N = 200000 /* beyond the size from which a table grows by half */
};

static uint32_t hash_of(const void *ctx, uint32_t number)
{
    return ((const uint32_t *)ctx)[number];
}

/* Every number is found under its hash, once, and what else is found there can be told apart. */
static void finds_all_of_a_hash(void **state)
{
    static uint32_t hash[N + 1];
    const uint32_t kinds[] = {1, 7, 20000, UINT32_MAX};

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const uint32_t n = kinds[k] < 1000 ? 500 : N; /* one run of all is quadratic */
        struct dindex x;
        uint64_t found = 0, want = 0;

        dindex_init(&x);
        for (uint32_t at = 0, got; dindex_next(&x, 1, &at, &got);)
            fail_msg("an empty index has %u", got);
        for (uint32_t i = 1; i <= n; i++) {
            hash[i] = (uint32_t)hash_mix(i) % kinds[k];
            hash[i] = (uint32_t)hash_mix(hash[i]); /* runs of one place */
            assert_true(dindex_add(&x, hash[i], i, hash_of, hash));
        }
        assert_int_equal(x.n, n);
        for (uint32_t i = 1; i <= n; i += 1 + n / 1000) {
            bool there = false;

            for (uint32_t at = dindex_place(&x, hash[i]), got;
                 dindex_next(&x, hash[i], &at, &got);) {
                assert_true(got >= 1 && got <= n);
                assert_false(got == i && there);
                there |= got == i;
                found += hash[got] == hash[i];
            }
            assert_true(there);
            for (uint32_t j = 1; j <= n; j++)
                want += hash[j] == hash[i];
        }
        assert_int_equal(found, want);
        assert_true(dindex_bytes(&x) >= 4 * (size_t)n);
        assert_true(n < N || dindex_bytes(&x) < 7 * (size_t)n);
        dindex_deinit(&x);
        assert_int_equal(dindex_bytes(&x), 0);
    }
}

/* Numbers far apart take bits from the hash, not entries from the table. */
static void takes_any_number(void **state)
{
    static uint32_t hash[1 << 20];
    const uint32_t number[] = {1, 15, 16, 17, 4000, 5, (1 << 20) - 1, 2};
    struct dindex x;

    (void)state;
    dindex_init(&x);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        hash[number[i]] = (uint32_t)hash_mix(number[i]);
        assert_true(dindex_add(&x, hash[number[i]], number[i], hash_of, hash));
    }
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        uint32_t at = dindex_place(&x, hash[number[i]]), got = 0;

        while (got != number[i])
            assert_true(dindex_next(&x, hash[number[i]], &at, &got));
    }
    dindex_deinit(&x);
}

static void is_unchanged_without_memory(void **state)
{
    uint32_t hash[16], n = 0, at;
    struct dindex x;

    (void)state;
    dindex_init(&x);
    for (uint32_t i = 1; i <= 15; i++)
        hash[i] = (uint32_t)hash_mix(i);
    for (uint32_t i = 1; i <= 14; i++)
        assert_true(dindex_add(&x, hash[i], i, hash_of, hash));
    mem_fail_nth(1);
    assert_false(dindex_add(&x, hash[15], 15, hash_of, hash));
    mem_fail_nth(0);
    assert_int_equal(x.n, 14);
    for (uint32_t i = 1; i <= 14; i++) {
        at = dindex_place(&x, hash[i]);
        do {
            assert_true(dindex_next(&x, hash[i], &at, &n));
        } while (n != i);
    }
    for (at = dindex_place(&x, hash[15]); dindex_next(&x, hash[15], &at, &n);)
        assert_int_not_equal(n, 15);
    dindex_deinit(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_all_of_a_hash),
        cmocka_unit_test(takes_any_number),
        cmocka_unit_test(is_unchanged_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
