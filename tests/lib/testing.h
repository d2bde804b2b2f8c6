// SPDX-License-Identifier: Apache-2.0
#pragma once

/* cmocka wants these four before itself, in this order: a formatter that sorts would break it. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

/* 0, or fail with the text of err. */
#define assert_ok(expr, err)                                                                       \
    do {                                                                                           \
        int r_ = (expr);                                                                           \
        if (r_ != 0)                                                                               \
            fail_msg("%s = %d: %s", #expr, r_, (err)->msg);                                        \
    } while (0)

#define assert_str(a, b)                                                                           \
    do {                                                                                           \
        struct str a_ = (a), b_ = (b);                                                             \
        if (!str_eq(a_, b_))                                                                       \
            fail_msg("%s is \"%.*s\", not \"%.*s\"", #a, STR_ARG(a_), STR_ARG(b_));                \
    } while (0)
