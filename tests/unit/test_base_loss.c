// SPDX-License-Identifier: Apache-2.0
#include "base/loss.h"
#include "tests/lib/testing.h"

static void every_reason_is_legal_and_once(void **state)
{
    (void)state;
    for (enum loss_reason r = 0; r < LOSS_N; r++) {
        const struct loss_info *i = loss_info(r);

        assert_true(loss_name_ok(i->name));
        assert_true(i->text[0] && (i->kind == LOSS_KIND_LOST || i->kind == LOSS_KIND_KEPT));
        for (enum loss_reason s = 0; s < r; s++)
            assert_false(str_eq(i->name, loss_info(s)->name));
    }
}

static void names(void **state)
{
    (void)state;
    assert_true(loss_name_ok(STR("a_9")));
    assert_true(loss_name_ok(STR("abcdefghijklmnopqrstuvwxyz012345")));
    assert_false(loss_name_ok(STR("abcdefghijklmnopqrstuvwxyz0123456")));
    assert_false(loss_name_ok(STR("")));
    assert_false(loss_name_ok(STR("A")));
    assert_false(loss_name_ok(STR("a b")));
    assert_false(loss_name_ok(STR("a\0")));
}

static void counters_saturate(void **state)
{
    loss_counter c = {};

    (void)state;
    loss_count(&c, 3);
    loss_count(&c, 4);
    assert_int_equal(atomic_load(&c.n), 7);
    loss_count(&c, UINT64_MAX - 8);
    assert_int_equal(atomic_load(&c.n), UINT64_MAX - 1);
    loss_count(&c, 2);
    assert_int_equal(atomic_load(&c.n), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_is_legal_and_once),
        cmocka_unit_test(names),
        cmocka_unit_test(counters_saturate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
