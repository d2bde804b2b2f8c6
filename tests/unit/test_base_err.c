// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/err.h"
#include "tests/lib/testing.h"

static int fails(int code, struct err *err)
{
    return code < 0 ? err_set(err, code, "first %d", code) : code;
}

static int forwards(int code, struct err *err)
{
    TRY(fails(code, err));
    return 0;
}

static int keeps_outcome(int code, struct err *err)
{
    int r;

    TRY_OUTCOME(r, fails(code, err));
    return r + 100;
}

static void first_message_wins(void **state)
{
    struct err err = {};

    (void)state;
    assert_int_equal(forwards(0, &err), 0);
    assert_int_equal(err.code, 0);
    assert_int_equal(forwards(-EIO, &err), -EIO);
    assert_int_equal(err_set(&err, -EPERM, "second"), -EPERM);
    assert_string_equal(err.msg, "first -5");
    assert_int_equal(err.code, -EIO);
    assert_int_equal(err_set(NULL, -EPERM, "nobody reads"), -EPERM);
}

static void outcomes(void **state)
{
    struct err err = {};

    (void)state;
    assert_int_equal(keeps_outcome(3, &err), 103);
    assert_int_equal(keeps_outcome(0, &err), 100);
    assert_int_equal(keeps_outcome(-ENOMEM, &err), -ENOMEM);
}

static void long_text_is_cut(void **state)
{
    struct err err = {};

    (void)state;
    assert_int_equal(err_set(&err, -EINVAL, "%0300d", 7), -EINVAL);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_message_wins),
        cmocka_unit_test(outcomes),
        cmocka_unit_test(long_text_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
