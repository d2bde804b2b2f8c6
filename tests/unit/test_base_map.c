// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"
#include "tests/lib/testing.h"

/* Against a plain array: a small key range, so that runs collide and deletions move entries. */
static void same_as_array(void **state)
{
    enum {
        KEYS = 200,
        STEPS = 200000
    };
    static uint64_t want[KEYS];
    static bool there[KEYS];
    uint64_t x = 1;
    uint32_t n = 0;
    struct map m;

    (void)state;
    map_init(&m, 0);
    for (uint32_t i = 0; i < STEPS; i++) {
        uint64_t key = hash_mix(++x) % KEYS, value = hash_mix(x + 7), got = 0;

        switch (hash_mix(x * 3) % 3) {
        case 0:
            assert_int_equal(map_put(&m, key, value), there[key] ? MAP_FOUND : MAP_ADDED);
            n += !there[key];
            there[key] = true;
            want[key] = value;
            break;
        case 1:
            assert_int_equal(map_del(&m, key), there[key]);
            n -= there[key];
            there[key] = false;
            break;
        default:
            assert_int_equal(map_get(&m, key, &got), there[key]);
            if (there[key])
                assert_int_equal(got, want[key]);
        }
        assert_int_equal(m.n, n);
    }
    map_deinit(&m);
}

static void walk_visits_each_once(void **state)
{
    bool seen[100] = {};
    uint64_t key, value;
    uint32_t pos = 0, n = 0;
    struct map m;

    (void)state;
    map_init(&m, 0);
    for (uint64_t k = 0; k < 100; k++)
        assert_int_equal(map_put(&m, k, k + 1), MAP_ADDED);
    while (map_next(&m, &pos, &key, &value)) {
        assert_true(key < 100 && !seen[key]);
        assert_int_equal(value, key + 1);
        seen[key] = true;
        n++;
    }
    assert_int_equal(n, 100);
    map_clear(&m);
    assert_int_equal(m.n, 0);
    assert_false(map_get(&m, 0, &value));
    map_deinit(&m);
}

static void full_leaves_it_alone(void **state)
{
    uint64_t *at, value = 0;
    struct map m;

    (void)state;
    map_init(&m, 2);
    assert_int_equal(map_put(&m, 0, 5), MAP_ADDED);
    assert_int_equal(map_put(&m, UINT64_MAX, 6), MAP_ADDED);
    assert_int_equal(map_put(&m, 3, 7), MAP_FULL);
    assert_int_equal(map_at(&m, UINT64_MAX, &at), MAP_FOUND);
    assert_int_equal(*at, 6);
    assert_true(map_get(&m, 0, &value));
    assert_int_equal(value, 5);
    map_deinit(&m);

    map_init(&m, 0);
    mem_fail_nth(1);
    assert_int_equal(map_put(&m, 1, 1), MAP_FULL);
    assert_int_equal(map_put(&m, 1, 1), MAP_ADDED);
    for (uint64_t k = 2; k <= 14; k++)
        assert_int_equal(map_put(&m, k, k), MAP_ADDED);
    mem_fail_nth(1);
    assert_int_equal(map_put(&m, 99, 1), MAP_FULL); /* the growth at 7/8 of 16 */
    mem_fail_nth(0);
    assert_int_equal(m.n, 14);
    for (uint64_t k = 1; k <= 14; k++) {
        assert_true(map_get(&m, k, &value));
        assert_int_equal(value, k);
    }
    map_deinit(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_array),
        cmocka_unit_test(walk_visits_each_once),
        cmocka_unit_test(full_leaves_it_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
