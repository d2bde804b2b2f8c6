// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/fake_query.h"

/* Tables: recursion counts once, pages join, patterns find each sample once. */

#define S NS_PER_S

static void top(struct query *q, const struct query_top_ask *a, struct query_top *ret)
{
    test_err = (struct query_err){};
    if (query_top(q, a, ret, &test_err) != 0)
        fail_msg("top: %s", test_err.msg);
}

static const struct query_row *row_of(const struct query_top *t, const char *name)
{
    for (uint32_t i = 0; i < t->n; i++) {
        if (str_eq(t->func[t->row[i].func].name, str_c(name)))
            return &t->row[i];
    }
    fail_msg("no row %s", name);
    return NULL;
}

static void expect(const struct query_top *t, const char *name, int64_t self, int64_t total,
                   uint64_t places)
{
    const struct query_row *r = row_of(t, name);

    if (r->self != self || r->total != total || r->places != places)
        fail_msg("%s: self %lld total %lld places %llu", name, (long long)r->self,
                 (long long)r->total, (unsigned long long)r->places);
    assert_true(r->samples == (uint64_t)total / 10);
}

static void recursion(void **state)
{
    struct store *s = fake_store_new();
    const struct query_top_ask a = {.limit = 100};
    struct query_top t = {};
    struct query *q;

    (void)state;
    test_row(s, "n:main#x;n:rec#x;n:rec#x;n:leaf#x", 100);
    test_row(s, "n:main#x;n:rec#x;n:mid#x;n:rec#x", 50);
    test_row(s, "n:main#x;n:leaf#x", 30);
    test_row(s, "n:rec#x", 20);
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    top(q, &a, &t);
    assert_true(t.sum.total == 200 && t.rows == 4);
    expect(&t, "main", 0, 180, 1);
    expect(&t, "rec", 70, 170, 2); /* below main, and at the top */
    expect(&t, "mid", 0, 50, 1);
    expect(&t, "leaf", 130, 130, 2);
    query_free(q);
    fake_store_free(s);
}

static void deep_recursion(void **state)
{
    struct store *s = fake_store_new();
    const struct query_top_ask a = {.limit = 100, .n_any = 1, .any = {STR("r")}};
    static struct fake_frame f[500];
    struct query_top t = {};
    struct query *q;

    (void)state;
    for (int i = 0; i < 500; i++)
        f[i] = (struct fake_frame){.kind = FRAME_NATIVE, .name = STR("r"), .bin = STR("x")};
    for (uint32_t i = 1; i <= 500; i++)
        fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = "service=a",
                                             .t = S,
                                             .frame = f,
                                             .n_frame = i,
                                             .count = 1,
                                             .value = 10});
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    top(q, &a, &t);
    expect(&t, "r", 5000, 5000, 1);
    assert_true(t.any[0].total == 5000 && t.any[0].functions == 1);
    query_free(q);
    fake_store_free(s);
}

static void keys(void **state)
{
    struct store *s = fake_store_new();
    struct query_top_ask a = {.limit = 100, .key = QUERY_KEY_BIN, .sort = QUERY_BY_TOTAL};
    struct query_top t = {};
    struct query *q;

    (void)state;
    test_row(s, "n:main#/bin/x;n:read#/lib/c.so;n:cb#/bin/x;n:write#/lib/c.so", 100);
    test_row(s, "n:main#/bin/x", 40);
    test_row(s, "p:f@a.py;p:g@b.py;p:h@a.py", 10);
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    top(q, &a, &t);
    expect(&t, "x", 40, 140, 1);
    expect(&t, "c.so", 100, 100, 1);
    expect(&t, "", 10, 10, 1); /* no binary */
    a.key = QUERY_KEY_FILE;
    top(q, &a, &t);
    expect(&t, "a.py", 10, 10, 1);
    expect(&t, "b.py", 0, 10, 1);
    expect(&t, "", 140, 140, 1);
    query_free(q);
    fake_store_free(s);
}

/* What of a binary has no name: of its own self, by the mark of functions and not by a pattern. */
static void unsymbolised(void **state)
{
    struct store *s = fake_store_new();
    struct query_top_ask a = {.limit = 100, .key = QUERY_KEY_BIN};
    struct query_top t = {};
    struct query *q;

    (void)state;
    test_row(s, "n:main#/bin/x;n:x+0x1f#/bin/x", 100);
    test_row(s, "n:main#/bin/x;n:0x7f00#/bin/x;n:read#/lib/c.so", 30);
    test_row(s, "n:main#/bin/x", 40);
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    top(q, &a, &t);
    assert_true(row_of(&t, "x")->self == 140 && row_of(&t, "x")->unsymbolised == 100);
    assert_true(row_of(&t, "c.so")->self == 30 && row_of(&t, "c.so")->unsymbolised == 0);
    a.key = QUERY_KEY_FN;
    top(q, &a, &t);
    assert_true(row_of(&t, "x+0x1f")->unsymbolised == 100 && row_of(&t, "main")->unsymbolised == 0);
    query_free(q);
    fake_store_free(s);
}

/* Lines and addresses of one function are rows of their own; recursion still counts once. */
static void lines(void **state)
{
    static const enum query_key key[] = {QUERY_KEY_LINE, QUERY_KEY_ADDR, QUERY_KEY_FN};
    static const uint32_t rows[] = {5, 5, 2};
    struct store *s = fake_store_new();
    struct query *q;

    (void)state;
    test_row(s, "n:main@m.c:1#x;n:f@f.c:7#x;n:f@f.c:7#x", 100);
    test_row(s, "n:main@m.c:1#x;n:f@f.c:8#x;n:f@f.c:7#x", 50);
    test_row(s, "n:main@m.c:2#x;n:f@f.c#x", 30); /* no line */
    test_row(s, "n:main@m.c:1#x", 20);
    for (size_t k = 0; k < 3; k++) {
        const struct query_top_ask a = {.limit = 100, .key = key[k], .sort = QUERY_BY_TOTAL};
        struct query_top t = {};
        unit_i128 self = 0;

        q = test_ask(s, "cpu", 0, 2 * S, NULL);
        top(q, &a, &t);
        assert_int_equal(t.rows, rows[k]);
        for (uint32_t i = 0; i < t.n; i++) {
            const struct query_func *f = &t.func[t.row[i].func];
            uint64_t at = key[k] == QUERY_KEY_LINE ? f->line : f->addr ? f->addr - 0x1000 : 0;
            int64_t want = key[k] == QUERY_KEY_FN         ? (i ? 180 : 200)
                           : str_eq(f->name, STR("main")) ? (at == 1 ? 170 : 30)
                           : at == 7                      ? 150
                           : at == 8                      ? 50
                                                          : 30;

            assert_true(t.row[i].total == want);
            self += t.row[i].self;
        }
        assert_true(self == 200);
        query_free(q);
    }
    fake_store_free(s);
}

/* collapse:recursion means functions, whatever is told apart. */
static void lines_filtered(void **state)
{
    struct store *s = fake_store_new();
    struct query_conf conf = {.store = s, .now = {100 * S}, .mem_max = 1 << 24};
    struct query_ask ask = {.q = STR("cpu"),
                            .from = STR("0s"),
                            .to = STR("9s"),
                            .n_filter = 1,
                            .filter = {STR("collapse:recursion")}};
    const struct query_top_ask a = {.limit = 9, .key = QUERY_KEY_LINE};
    struct query_top t = {};
    struct query *q = NULL;

    (void)state;
    test_row(s, "n:main@m.c:1#x;n:f@f.c:7#x;n:f@f.c:8#x;n:g@f.c:9#x", 100);
    assert_ok(query_open(&conf, &ask, &q, &test_err), &test_err);
    top(q, &a, &t);
    assert_true(t.rows == 3 && t.sum.filtered[0].dropped == 0);
    expect(&t, "f", 0, 100, 1);
    expect(&t, "g", 100, 100, 1);
    query_free(q);
    fake_store_free(s);
}

/* Of equal self time the larger total first, of equal totals by name: not by hash. */
static void equal_rows(void **state)
{
    static const char *const order[] = {"main", "outer", "a", "b", "c", "d"};
    struct store *s = fake_store_new();
    struct query_top_ask a = {.limit = 10};
    struct query_top t = {};
    struct query *q;

    (void)state;
    test_row(s, "n:main#x;n:d#x", 10);
    test_row(s, "n:main#x;n:b#x", 10);
    test_row(s, "n:main#x;n:outer#x;n:c#x", 10);
    test_row(s, "n:main#x;n:outer#x;n:a#x", 10);
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    a.sort = QUERY_BY_TOTAL;
    top(q, &a, &t);
    assert_int_equal(t.n, 6);
    for (uint32_t i = 0; i < 6; i++)
        assert_str(t.func[t.row[i].func].name, str_c(order[i]));
    a.sort = QUERY_BY_SELF; /* main and outer have none of their own */
    top(q, &a, &t);
    for (uint32_t i = 0; i < 6; i++)
        assert_str(t.func[t.row[i].func].name, str_c(order[(i + 2) % 6]));
    query_free(q);
    fake_store_free(s);
}

static void pages(void **state)
{
    static const enum query_sort sorts[] = {QUERY_BY_SELF, QUERY_BY_TOTAL, QUERY_BY_SAMPLES};
    struct store *s = fake_store_new();
    struct query *q;
    char stack[64];

    (void)state;
    for (int i = 0; i < 97; i++) { /* many equal values */
        (void)snprintf(stack, sizeof stack, "n:main#x;n:f%d#x", i);
        test_row(s, stack, 10 * (1 + i % 5));
    }
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    for (int k = 0; k < 3; k++) {
        struct query_top_ask a = {.limit = 98, .sort = sorts[k]};
        struct query_top whole = {}, t = {};
        uint32_t at = 0;

        top(q, &a, &whole);
        assert_true(whole.n == 98 && whole.next.n == 0 && whole.rows == 98);
        a.limit = 7;
        do {
            top(q, &a, &t);
            assert_int_equal(t.rows, 98);
            for (uint32_t i = 0; i < t.n; i++, at++)
                assert_str(t.func[t.row[i].func].name, whole.func[whole.row[at].func].name);
            a.after = t.next;
        } while (t.next.n);
        assert_int_equal(at, 98);
        a.after = (struct str){NULL, 0};
        a.limit = 0; /* sums alone */
        top(q, &a, &t);
        assert_true(t.n == 0 && t.next.n == 0 && t.sum.total == whole.sum.total);
    }
    query_free(q);
    fake_store_free(s);
}

static void patterns(void **state)
{
    struct store *s = fake_store_new();
    const struct query_top_ask a = {
        .limit = 100,
        .n_any = 4,
        .match = STR("/^al/"),
        .any = {STR("alpha"), STR("bin=libB"), STR("/a$/"), STR("nothing")}};
    struct query_top t = {};
    struct query *q;

    (void)state;
    test_row(s, "n:main#x;n:alpha#/lib/libB.so;n:beta#x", 100);
    test_row(s, "n:main#x;n:ALPHA#x", 40);
    test_row(s, "n:main#x;n:gamma#/lib/libB.so", 20);
    test_row(s, "n:main#x;n:other#x", 10);
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    top(q, &a, &t);
    assert_true(t.any[0].total == 140 && t.any[0].functions == 2 && t.any[0].samples == 14);
    assert_true(t.any[1].total == 120 && t.any[1].functions == 2);
    assert_true(t.any[2].total == 120 && t.any[2].functions == 3);
    assert_true(t.any[3].total == 0 && t.any[3].functions == 0);
    assert_true(t.any_union.total == 160 && t.any_union.functions == 4);
    assert_str(t.any[2].pattern, STR("/a$/"));
    assert_true(t.rows == 1 && t.matched.functions == 1 && t.matched.total == 100);
    expect(&t, "alpha", 0, 100, 1);
    query_free(q);
    fake_store_free(s);
}

static void same_name_two_files(void **state)
{
    struct store *s = fake_store_new();
    const struct query_top_ask a = {.limit = 100};
    struct query_top t = {};
    struct query *q;

    (void)state;
    test_row(s, "p:forward@a.py", 10);
    test_row(s, "p:forward@b.py", 20);
    q = test_ask(s, "cpu", 0, 2 * S, NULL);
    top(q, &a, &t);
    assert_int_equal(t.n, 2);
    assert_str(t.func[t.row[0].func].file, STR("b.py"));
    query_free(q);
    fake_store_free(s);
}

/* Each row cut into the groups of by=; what they hang under is no row. */
static void groups(void **state)
{
    static const char *const host[] = {"x", "y", "z"};
    struct store *s = fake_store_new();
    struct query_conf conf = {.store = s, .now = {100 * S}, .mem_max = 1 << 24};
    struct query_ask ask = {.q = STR("cpu"),
                            .from = STR("0s"),
                            .to = STR("9s"),
                            .n_by = 1,
                            .by = {STR("host")},
                            .groups = 2};
    const struct query_top_ask a = {.limit = 2, .sort = QUERY_BY_TOTAL, .match = STR("host=")};
    struct query_top_ask b = {.limit = 2, .sort = QUERY_BY_TOTAL};
    struct query_top t = {};
    struct query *q = NULL;

    (void)state;
    for (int i = 0; i < 3; i++) {
        char labels[32];

        (void)snprintf(labels, sizeof labels, "service=a,host=%s", host[i]);
        fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = labels,
                                             .t = S,
                                             .stack = i ? "n:main#x;n:f#x" : "n:main#x;n:main#x",
                                             .count = 1,
                                             .value = 100 >> i});
    }
    assert_ok(query_open(&conf, &ask, &q, &test_err), &test_err);
    top(q, &b, &t);
    assert_true(t.rows == 2 && t.n_group == 3 && t.n_by == 1);
    assert_str(t.group[0].label[0], STR("x"));
    assert_str(t.group[1].label[0], STR("y"));
    assert_true(t.group[2].rest && t.group[2].total == 25 && t.group[2].samples == 1);
    assert_true(t.row[0].total == 175 && t.group[0].sums[0] == 100 && t.group[1].sums[0] == 50);
    assert_true(t.group[0].self[0] == 100 && t.group[2].self[0] == 0 && t.group[2].sums[1] == 25);
    top(q, &a, &t);
    assert_true(t.rows == 0 && t.matched.total == 0);
    query_free(q);
    fake_store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recursion),      cmocka_unit_test(deep_recursion),
        cmocka_unit_test(keys),           cmocka_unit_test(unsymbolised),
        cmocka_unit_test(equal_rows),     cmocka_unit_test(pages),
        cmocka_unit_test(patterns),       cmocka_unit_test(same_name_two_files),
        cmocka_unit_test(groups),         cmocka_unit_test(lines),
        cmocka_unit_test(lines_filtered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
