// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"
#include "tests/lib/testing.h"

static void zeroed_and_aligned(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, 64 << 20);
    for (unsigned round = 0; round < 3; round++) {
        for (size_t n = 0; n < 3000; n += 7) {
            unsigned char *p = arena_alloc(&a, n);

            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 16, 0);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(p[i], 0);
            if (n > 0)
                memset(p, 0xee, n);
        }
        arena_reset(&a);
        assert_int_equal(a.used, 0);
    }
    arena_deinit(&a);
    arena_deinit(&a);
}

static void cap_is_exact(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, 1000000);
    assert_non_null(arena_alloc(&a, 600000)); /* a chunk of its own */
    assert_non_null(arena_alloc(&a, 100));
    assert_null(arena_alloc(&a, 399889));
    assert_non_null(arena_alloc(&a, 399888 - 16));
    assert_true(a.used <= a.cap);
    assert_null(arena_alloc(&a, 32));
    assert_null(arena_calloc(&a, SIZE_MAX / 2, 4));
    assert_null(arena_alloc(&a, SIZE_MAX));
    arena_deinit(&a);
}

static void strings_end_with_nul(void **state)
{
    struct arena a;
    struct str s;

    (void)state;
    arena_init(&a, 100);
    s = arena_str(&a, STR("abc"));
    assert_str(s, STR("abc"));
    assert_int_equal(s.p[3], 0);
    s = arena_str(&a, (struct str){NULL, 0});
    assert_non_null(s.p);
    assert_int_equal(s.n, 0);
    s = arena_str(&a, (struct str){"x", 1000});
    assert_null(s.p);
    arena_deinit(&a);
}

static void nth_allocation_fails(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, 1000);
    mem_fail_nth(2);
    assert_non_null(arena_alloc(&a, 8));
    assert_null(arena_alloc(&a, 8));
    assert_non_null(arena_alloc(&a, 8));
    assert_int_equal(a.used, 32);
    mem_fail_nth(1);
    mem_fail_nth(0);
    assert_non_null(arena_alloc(&a, 8));
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroed_and_aligned),
        cmocka_unit_test(cap_is_exact),
        cmocka_unit_test(strings_end_with_nul),
        cmocka_unit_test(nth_allocation_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
