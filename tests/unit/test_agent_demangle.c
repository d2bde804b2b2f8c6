// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "agent/file/demangle.h"
#include "base/arena.h"
#include "tests/lib/testing.h"

static void names(void **state)
{
    static const struct {
        const char *in, *out; /* out NULL: kept */
    } cases[] = {
        {"_ZN5torch8autograd6Engine17evaluate_functionEv",
         "torch::autograd::Engine::evaluate_function"},
        {"_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back"},
        {"_ZN3foo3barEi.constprop.0", "foo::bar"},
        {"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"},
        {"_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar"},
        {"main", NULL},
        {"_Z", NULL},
        {"_ZTHIS IS NOT ONE", NULL},
        {"", NULL},
        {"_start", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b;
        bool done;

        buf_init(&b, 1 << 20);
        buf_cstr(&b, "x");
        done = demangle(str_c(cases[i].in), &b);
        if (done != (cases[i].out != NULL))
            fail_msg("%s: %.*s", cases[i].in, STR_ARG(buf_view(&b)));
        if (done)
            assert_str(str_from(buf_view(&b), 1), str_c(cases[i].out));
        assert_int_equal(b.p[0], 'x');
        if (!done)
            assert_int_equal(b.n, 1);
        buf_deinit(&b);
    }
}

/* Each template argument doubles the one before: 2^60 bytes of text from some 400 of name. */
static void explosion(void **state)
{
    struct buf in, out;

    (void)state;
    buf_init(&in, 65536);
    buf_init(&out, 1 << 20);
    buf_cstr(&in, "_Z1fI1AIiiE");
    for (unsigned i = 0; i < 60; i++) {
        buf_cstr(&in, "S0_IS");
        buf_chr(&in, i < 35 ? '1' : '2');
        buf_cstr(&in, "_S1_E");
    }
    buf_cstr(&in, "EvT_");
    (void)demangle(buf_view(&in), &out);
    assert_true(out.n <= DEMANGLE_MAX_OUT + 4096);
    buf_deinit(&in);
    buf_deinit(&out);
}

static void hostile(void **state)
{
    char name[600];
    unsigned seed = 7;

    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        static const char alphabet[] = "_ZNSt0123456789EIJKLRPvilsaTfdCDhRnMXYc";
        struct buf out;
        size_t n;

        seed = seed * 1103515245 + 12345;
        n = 3 + seed / 65536 % (sizeof name - 3);
        memcpy(name, round % 3 ? "_Z" : "_R", 2);
        for (size_t i = 2; i < n; i++) {
            seed = seed * 1103515245 + 12345;
            name[i] = alphabet[seed / 65536 % (sizeof alphabet - 1)];
        }
        buf_init(&out, DEMANGLE_MAX_OUT * 2);
        (void)demangle((struct str){name, n}, &out);
        buf_deinit(&out);
    }
}

static void too_long(void **state)
{
    struct buf in, out;

    (void)state;
    buf_init(&in, 1 << 20);
    buf_init(&out, 1 << 20);
    buf_cstr(&in, "_Z70000");
    for (unsigned i = 0; i < 70000; i++)
        buf_chr(&in, 'a');
    buf_chr(&in, 'v');
    assert_false(demangle(buf_view(&in), &out));
    assert_int_equal(out.n, 0);
    buf_deinit(&in);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(explosion),
                                       cmocka_unit_test(hostile), cmocka_unit_test(too_long)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
