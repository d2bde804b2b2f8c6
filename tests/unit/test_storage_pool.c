// SPDX-License-Identifier: Apache-2.0
#include "storage/file/pool_private.h"
#include "tests/lib/testing.h"

/* An element keeps its value and its old address as long as a reader is inside. */
static void test_growth(void **state)
{
    struct pool p;
    struct vec v;
    const uint32_t *first;
    uint64_t with_old;

    (void)state;
    pool_init(&p);
    vec_init(&v, sizeof(uint32_t));
    *(uint32_t *)vec_push(&v, &p) = 7;
    first = VEC(&v, uint32_t, 0);
    p.readers = 1; /* as a view does, under p.mu */
    for (uint32_t i = 1; i < 10000; i++)
        *(uint32_t *)vec_push(&v, &p) = i;
    assert_int_equal(*first, 7);
    assert_ptr_not_equal(first, VEC(&v, uint32_t, 0));
    for (uint32_t i = 1; i < 10000; i++)
        assert_int_equal(*VEC(&v, uint32_t, i), i);
    with_old = atomic_load(&p.used);
    pool_leave(&p);
    assert_true(atomic_load(&p.used) < with_old);
    assert_int_equal(atomic_load(&p.used), (uint64_t)v.room * 4);
    vec_deinit(&v, &p);
    assert_int_equal(atomic_load(&p.used), 0);
    pool_deinit(&p);
}

/* Room that is asked for is filled without a copy; what is there stays, and less is no room taken
 * away. */
static void test_reserve(void **state)
{
    struct pool p;
    struct vec v;
    const uint32_t *at;

    (void)state;
    pool_init(&p);
    vec_init(&v, sizeof(uint32_t));
    *(uint32_t *)vec_push(&v, &p) = 7;
    vec_reserve(&v, &p, 5000);
    at = VEC(&v, uint32_t, 0);
    assert_int_equal(*at, 7);
    assert_int_equal(atomic_load(&p.used), 5000 * 4);
    while (v.n < 5000)
        *(uint32_t *)vec_push(&v, &p) = v.n;
    vec_reserve(&v, &p, 10);
    assert_ptr_equal(at, VEC(&v, uint32_t, 0));
    assert_int_equal(v.room, 5000);
    vec_deinit(&v, &p);
    pool_deinit(&p);
}

/* Elements stay where they are, in so many pages; what memory refuses leaves all as it was. */
static void test_paged(void **state)
{
    const size_t page = (size_t)4 << PAGED_BITS;
    struct pool p;
    struct paged x;
    const uint32_t *first;

    (void)state;
    pool_init(&p);
    paged_init(&x, sizeof(uint32_t));
    *(uint32_t *)paged_push(&x, &p) = 7;
    first = paged_at(&x, 0);
    for (uint32_t i = 1; i < 100u << PAGED_BITS; i++) {
        uint32_t *e = paged_push(&x, &p);

        assert_int_equal(*e, 0);
        *e = i;
    }
    assert_ptr_equal(first, paged_at(&x, 0));
    for (uint32_t i = 1; i < x.n; i++)
        assert_int_equal(*(uint32_t *)paged_at(&x, i), i);
    assert_int_equal(atomic_load(&p.used), 100 * page + (size_t)x.page.room * sizeof(char *));
    mem_fail_nth(1);
    assert_null(paged_push(&x, &p));
    mem_fail_nth(0);
    assert_int_equal(x.n, 100u << PAGED_BITS);
    assert_non_null(paged_push(&x, &p));
    paged_deinit(&x, &p);
    assert_int_equal(atomic_load(&p.used), 0);
    pool_deinit(&p);
}

struct word {
    uint32_t x;
};

static bool eq_word(const void *entry, const void *key)
{
    return ((const struct word *)entry)->x == *(const uint32_t *)key;
}

/* All entries share one hash: still told apart. */
static void test_table(void **state)
{
    struct pool p;
    struct table t;

    (void)state;
    pool_init(&p);
    assert_true(table_init(&t, &p, sizeof(struct word)));
    for (uint32_t x = 1; x <= 100; x++) {
        uint32_t i;

        assert_int_equal(table_find(&t, 42, &x, eq_word), 0);
        i = table_add(&t, &p, 42);
        assert_int_equal(i, x);
        TABLE(&t, struct word, i)->x = x;
    }
    for (uint32_t x = 1; x <= 100; x++)
        assert_int_equal(table_find(&t, 42, &x, eq_word), x);
    assert_int_equal(table_find(&t, 43, &(uint32_t){1}, eq_word), 0);
    table_deinit(&t, &p);
    pool_deinit(&p);
}

static void test_failure(void **state)
{
    struct pool p;
    struct table t;
    uint32_t n;

    (void)state;
    pool_init(&p);
    assert_true(table_init(&t, &p, sizeof(struct word)));
    for (uint64_t nth = 1; nth < 4; nth++) {
        n = t.v.n;
        mem_fail_nth(nth);
        while (table_add(&t, &p, n))
            n++;
        mem_fail_nth(0);
        assert_int_equal(t.v.n, n); /* as before the one that failed */
        assert_true(table_add(&t, &p, n) == n);
    }
    table_deinit(&t, &p);
    mem_fail_nth(1);
    assert_null(pool_block(&p, 8));
    mem_fail_nth(1);
    assert_null(pool_fixed(&p, 8));
    mem_fail_nth(0);
    pool_deinit(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth), cmocka_unit_test(test_reserve), cmocka_unit_test(test_paged),
        cmocka_unit_test(test_table),  cmocka_unit_test(test_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
