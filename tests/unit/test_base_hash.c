// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"
#include "tests/lib/testing.h"

/* Of empty input, as the xxHash reference implementation's own tests have it. */
static void known_values(void **state)
{
    (void)state;
    assert_int_equal(hash_bytes(NULL, 0), 0x2d06800538d394c2);
    assert_int_equal(hash_str(STR("")), 0x2d06800538d394c2);
    assert_int_equal(hash_seed("", 0, 0), hash_bytes("", 0));
    assert_int_not_equal(hash_seed("a", 1, 1), hash_bytes("a", 1));
}

/* A bijection: as many different results as inputs; and the zoom hash depends on the order. */
static void mixing(void **state)
{
    uint64_t seen = 0;

    (void)state;
    for (uint64_t i = 0; i < 64; i++)
        seen |= UINT64_C(1) << (hash_mix(UINT64_C(1) << i) & 63);
    assert_true(__builtin_popcountll(seen) > 30);
    assert_int_equal(hash_mix(0), 0);
    assert_int_not_equal(hash_zoom(hash_zoom(0, 1), 2), hash_zoom(hash_zoom(0, 2), 1));
    assert_int_equal(hash_rotl(UINT64_C(1) << 63, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(mixing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
