// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/stacks.h"

/* Callers and callees: each sample once in both, at its outermost occurrence. */

#define S NS_PER_S

static void sandwich(struct query *q, const struct query_sandwich_ask *a,
                     struct query_sandwich *ret)
{
    test_err = (struct query_err){};
    if (query_sandwich(q, a, ret, &test_err) != 0)
        fail_msg("sandwich: %s", test_err.msg);
}

static bool is_it(uint8_t f, struct str fn, struct str bin, struct str file, bool plain)
{
    const struct stack_frame *x = &stack_frames[f];

    return str_eq(plain ? str_c(x->plain) : x->f.name, fn) &&
           (!bin.n || str_eq(str_basename(x->f.bin), bin)) && (!file.n || str_eq(x->f.file, file));
}

/* Random stores, filters and functions against splitting each list at its first occurrence. */
static void splits(void **state)
{
    static struct stacks all, left;

    (void)state;
    for (uint64_t n = 0; n < stack_rounds(300); n++) {
        struct store *s = stacks_new(n, &all);
        const struct stack_frame *fn = &stack_frames[stack_rnd(N_OF(stack_frames))];
        bool plain = stack_rnd(3) == 0;
        const struct query_sandwich_ask a = {
            .fn = plain ? str_c(fn->plain) : fn->f.name,
            .bin = stack_rnd(2) ? str_basename(fn->f.bin) : (struct str){NULL, 0},
            /* of functions, what they are shown with: of others than Python's one of several */
            .file =
                stack_rnd(2) && fn->f.kind == FRAME_PYTHON ? fn->f.file : (struct str){NULL, 0}};
        struct path_sums up = {}, down = {}, want_up = {}, want_down = {};
        uint32_t taken[STACKS_MAX];
        struct stack_filters f = {};
        struct query_sandwich r = {};
        unit_i128 total = 0, self = 0;
        struct query *q;

        stack_filters_random(&f, 3);
        stacks_filter(&all, &f, &left, taken);
        q = stacks_ask(s, &f, plain, NULL);
        sandwich(q, &a, &r);
        for (uint32_t i = 0; i < left.n; i++) {
            const struct stack *k = &left.v[i];
            char path[PATH_SIZE] = "";
            uint32_t at = 0;

            while (at < k->n && !is_it(k->f[at], a.fn, a.bin, a.file, plain))
                at++;
            if (at == k->n)
                continue;
            for (uint32_t d = at; d > 0; d--)
                path_frame(path, k->f[d - 1], plain);
            path_at(&want_up, path)->v[0] += k->value;
            path[0] = '\0';
            for (uint32_t d = at + 1; d < k->n; d++)
                path_frame(path, k->f[d], plain);
            path_at(&want_down, path)->v[0] += k->value;
            total += k->value;
            if (is_it(k->f[k->n - 1], a.fn, a.bin, a.file, plain))
                self += k->value;
        }
        assert_true(r.total == total && r.self == self);
        assert_true(r.callers.total[0] == total && r.callees.total[0] == total);
        assert_true(r.callers.view_total == total);
        path_of_rows(&r.callers, r.func, &up);
        path_of_rows(&r.callees, r.func, &down);
        path_same(&up, &want_up, "callers");
        path_same(&down, &want_down, "callees");
        assert_true(r.n_hit == 1 ? r.callers.node_func[0] == (int32_t)r.hit[0]
                                 : r.callers.node_func[0] == 0);
        path_free(&up);
        path_free(&down);
        path_free(&want_up);
        path_free(&want_down);
        query_free(q);
        fake_store_free(s);
    }
}

static void recursion(void **state)
{
    struct store *s = fake_store_new();
    const struct query_sandwich_ask a = {.fn = STR("A")};
    struct query_sandwich r = {};
    struct query *q;

    (void)state;
    test_row(s, "n:main#x;n:A#x;n:B#x;n:A#x;n:D#x", 500);
    test_row(s, "n:main#x;n:A#x", 500);
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    sandwich(q, &a, &r);
    assert_true(r.total == 1000 && r.self == 500 && r.samples == 100 && r.n_hit == 1);
    assert_int_equal(r.callers.n, 2); /* A, main */
    assert_true(r.callers.total[1] == 1000 && r.callers.self[1] == 1000);
    assert_int_equal(r.callees.n, 4); /* A, B, A, D */
    assert_true(r.callees.self[0] == 500 && r.callees.total[3] == 500);
    query_free(q);
    fake_store_free(s);
}

/* Two functions of one name: both, unless the file says which. */
static void one_name_two_files(void **state)
{
    struct store *s = fake_store_new();
    struct query_sandwich_ask a = {.fn = STR("forward")};
    struct query_sandwich r = {};
    struct query *q;

    (void)state;
    test_row(s, "p:main@m.py;p:forward@a.py;p:forward@b.py", 50);
    test_row(s, "p:main@m.py;p:forward@b.py", 150);
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    sandwich(q, &a, &r);
    assert_true(r.n_hit == 2 && r.total == 200 && r.callees.node_func[0] == 0);
    assert_true(r.callers.total[1] == 200);
    a.file = STR("b.py");
    sandwich(q, &a, &r);
    assert_true(r.n_hit == 1 && r.total == 200 && r.callers.n == 4);
    a.file = STR("a.py");
    sandwich(q, &a, &r);
    assert_true(r.n_hit == 1 && r.total == 50 && r.self == 0 && r.callees.total[1] == 50);
    query_free(q);
    fake_store_free(s);
}

/* Trees are cut one by one, and stay whole in sum. */
static void cut(void **state)
{
    struct store *s = fake_store_new();
    const struct query_sandwich_ask a = {.fn = STR("f"), .max_nodes = 5, .width = 10};
    struct query_sandwich r = {};
    char stack[80];
    struct query *q;

    (void)state;
    for (int i = 0; i < 50; i++) {
        (void)snprintf(stack, sizeof stack, "n:main#x;n:c%d#x;n:f#x;n:d%d#x", i, i);
        test_row(s, stack, 10 * (1 + i));
    }
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    sandwich(q, &a, &r);
    assert_true(r.total == 12750);
    assert_true(r.callers.n <= 5 && r.callees.n <= 5);
    assert_true(r.callers.total[0] == 12750 && r.callees.total[0] == 12750);
    assert_true(r.callers.hidden_nodes > 40 && r.callees.hidden_nodes > 40);
    query_free(q);
    fake_store_free(s);
}

static void nothing_and_refused(void **state)
{
    struct store *s = fake_store_new();
    struct query_sandwich_ask a = {.fn = STR("nobody")};
    struct query_sandwich r = {};
    struct query *q;

    (void)state;
    test_row(s, "n:main#x", 10);
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    sandwich(q, &a, &r);
    assert_true(r.n_hit == 0 && r.total == 0 && r.sum.total == 10);
    assert_true(r.callers.n == 1 && r.callees.n == 1);
    a.fn = (struct str){NULL, 0};
    test_err = (struct query_err){};
    assert_true(query_sandwich(q, &a, &r, &test_err) < 0);
    assert_string_equal(test_err.param, "fn");
    query_free(q);
    fake_store_free(s);
}

/* Memory, time and a client that left end this question too. */
static void limits(void **state)
{
    static struct stacks all;
    struct store *s = stacks_new(5, &all);
    struct query_conf conf = {.store = s, .now = {10000 * S}};
    struct query_ask ask = {.q = STR("cpu"), .from = STR("0s"), .to = STR("1000s")};
    const struct query_sandwich_ask a = {.fn = STR("f0")};
    atomic_bool cancel = true;
    struct query_sandwich r = {};
    struct query *q = NULL;

    (void)state;
    for (int k = 0; k < 3; k++) {
        test_err = (struct query_err){};
        conf.mem_max = k ? 1 << 24 : 60000;
        conf.deadline.v = k == 1;
        conf.cancel = k == 2 ? &cancel : NULL;
        assert_ok(query_open(&conf, &ask, &q, &test_err), &test_err);
        assert_true(query_sandwich(q, &a, &r, &test_err) < 0);
        assert_int_equal(test_err.code, k == 2 ? QUERY_CANCELED : QUERY_TOO_EXPENSIVE);
        query_free(q);
    }
    fake_store_free(s);
}

/* Every allocation fails once. */
static void no_memory(void **state)
{
    static struct stacks all;
    struct store *s = stacks_new(5, &all);
    const struct query_sandwich_ask a = {.fn = STR("f0"), .max_nodes = 20};
    const struct stack_filters none = {};
    bool ended = false;

    (void)state;
    for (uint64_t n = 1; !ended; n++) {
        struct query *q = stacks_ask(s, &none, false, NULL);
        struct query_sandwich r = {};

        mem_fail_nth(n);
        ended = query_sandwich(q, &a, &r, &test_err) == 0;
        mem_fail_nth(0);
        assert_true(ended || test_err.code == QUERY_TOO_EXPENSIVE);
        query_free(q);
        assert_true(n < 20000);
    }
    fake_store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits),    cmocka_unit_test(recursion),
        cmocka_unit_test(cut),       cmocka_unit_test(one_name_two_files),
        cmocka_unit_test(no_memory), cmocka_unit_test(nothing_and_refused),
        cmocka_unit_test(limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
