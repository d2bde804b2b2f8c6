// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"
#include "base/hash.h"
#include "base/hindex.h"
#include "tests/lib/testing.h"

/* Every number is found under its hash, once, and none under another, whatever collides. */
static void finds_all_of_a_hash(void **state)
{
    enum {
        N = 50000
    };
    static uint32_t hash[N + 1];
    const uint32_t kinds[] = {1, 7, 1000, UINT32_MAX};

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const uint32_t n = kinds[k] == 1 ? 500 : N; /* one run of all is quadratic */
        struct hindex x;
        uint64_t found = 0, want = 0;

        hindex_init(&x);
        for (uint32_t at = 1, got; hindex_next(&x, 1, &at, &got);)
            fail_msg("an empty index has %u", got);
        for (uint32_t i = 1; i <= n; i++) {
            hash[i] = (uint32_t)hash_mix(i) % kinds[k] * 0x01000001u; /* runs of one place */
            assert_true(hindex_add(&x, hash[i], i));
        }
        assert_int_equal(x.n, n);
        for (uint32_t i = 1; i <= n; i += 1 + n / 1000) {
            bool there = false;

            for (uint32_t at = hash[i], got; hindex_next(&x, hash[i], &at, &got);) {
                assert_true(got >= 1 && got <= n && hash[got] == hash[i]);
                assert_false(got == i && there);
                there |= got == i;
                found++;
            }
            assert_true(there);
            for (uint32_t j = 1; j <= n; j++)
                want += hash[j] == hash[i];
        }
        assert_int_equal(found, want);
        assert_true(hindex_bytes(&x) >= 8 * (size_t)n);
        hindex_deinit(&x);
        assert_int_equal(hindex_bytes(&x), 0);
    }
}

static void is_unchanged_without_memory(void **state)
{
    struct hindex x;
    uint32_t n = 0, at;

    (void)state;
    hindex_init(&x);
    for (uint32_t i = 1; i <= 14; i++)
        assert_true(hindex_add(&x, (uint32_t)hash_mix(i), i));
    mem_fail_nth(1);
    assert_false(hindex_add(&x, 15, 15));
    mem_fail_nth(0);
    assert_int_equal(x.n, 14);
    for (uint32_t i = 1; i <= 14; i++) {
        at = (uint32_t)hash_mix(i);
        assert_true(hindex_next(&x, (uint32_t)hash_mix(i), &at, &n) && n == i);
    }
    at = 15;
    assert_false(hindex_next(&x, 15, &at, &n));
    hindex_deinit(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_all_of_a_hash),
        cmocka_unit_test(is_unchanged_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
