// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/query_private.h"
#include "tests/lib/fake_store.h"
#include "tests/lib/testing.h"

/* Flame graphs: conserved at every width, zoom and cut; functions merge by scope and name. */

#define S NS_PER_S

static struct query_err e;

static struct query *ask_by(struct store *s, const char *q, int64_t from, int64_t to,
                            const char *by)
{
    struct query_conf conf = {.store = s, .now = {10000 * S}, .mem_max = UINT64_C(1) << 30};
    char t0[32], t1[32];
    struct query_ask a = {.q = str_c(q), .need_type = true};
    struct query *ret = NULL;

    (void)snprintf(t0, sizeof t0, "%" PRId64 "ns", from);
    (void)snprintf(t1, sizeof t1, "%" PRId64 "ns", to);
    a.from = str_c(t0);
    a.to = str_c(t1);
    if (by)
        a.by[a.n_by++] = str_c(by);
    e = (struct query_err){};
    if (query_open(&conf, &a, &ret, &e) != 0)
        fail_msg("%s: %s", q, e.msg);
    return ret;
}

static struct query *ask(struct store *s, const char *q, int64_t from, int64_t to)
{
    return ask_by(s, q, from, to, NULL);
}

static void flame(struct query *q, const struct query_flame_ask *a, struct query_flame *ret)
{
    e = (struct query_err){};
    if (query_flame(q, a, ret, &e) != 0)
        fail_msg("flame: %s", e.msg);
}

static void cover(struct store *s, ptype_id type, int64_t t0, int64_t t1)
{
    fake_store_cover(s,
                     &(struct fake_cover){
                         .type = type, .t0 = t0, .t1 = t1, .basis = BASIS_PERIODIC, .period = 10});
}

static void row(struct store *s, const char *stack, int64_t value)
{
    fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                         .labels = "service=a",
                                         .t = S,
                                         .stack = stack,
                                         .count = (uint64_t)value / 10,
                                         .value = value});
}

/* ---- random stores -----------------------------------------------------------------------------
 */

static uint64_t seed;

static uint32_t rnd(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(seed >> 33) % n;
}

static void random_row(struct store *s, ptype_id type)
{
    static const char *const services[] = {"service=a,host=x", "service=b,host=x",
                                           "service=b,host=y"};
    struct fake_frame f[24];
    char name[24][16];
    uint32_t depth = rnd(24), funcs = 2 + rnd(12);

    for (uint32_t i = 0; i < depth; i++) {
        (void)snprintf(name[i], sizeof name[i], "f%u", rnd(funcs));
        f[i] = (struct fake_frame){
            .kind = rnd(2) ? FRAME_NATIVE : FRAME_PYTHON, .name = str_c(name[i]), .line = rnd(3)};
        if (f[i].kind == FRAME_NATIVE)
            f[i].bin = rnd(4) ? STR("/usr/lib/libx.so") : STR("/opt/libx.so");
        else
            f[i].file = rnd(2) ? STR("a.py") : STR("b.py");
    }
    fake_store_row(
        s, &(struct fake_row){.type = type,
                              .labels = services[rnd(3)],
                              .t = (int64_t)rnd(1000) * S,
                              .n_frame = depth,
                              .frame = f,
                              .count = 1 + rnd(5),
                              .value = rnd(20) ? 1 + rnd(1000) : (INT64_C(1) << 61) + rnd(1000),
                              .epoch = rnd(2),
                              .sub = rnd(2)});
}

static struct store *random_store(uint64_t n)
{
    struct store *s = fake_store_new();

    seed = n * 7919 + 1;
    for (uint32_t i = 0, rows = 1 + rnd(300); i < rows; i++)
        random_row(s, rnd(5) ? PTYPE_CPU : PTYPE_ALLOC);
    cover(s, PTYPE_CPU, 0, 1000 * S);
    return s;
}

/* ---- checks ------------------------------------------------------------------------------------
 */

static void check_rows(const struct query_flame *f, const struct query_flame_ask *a)
{
    uint32_t *open = xcalloc(f->n + 1, sizeof *open), top = 0;
    unit_i128 *left = xcalloc(f->n + 1, sizeof *left);
    int64_t *samples = xcalloc(f->n + 1, sizeof *samples);
    bool *closed = xcalloc(f->n + 1, sizeof *closed); /* its hidden child has come */

    assert_true(f->n >= 1 && f->depth[0] == 0);
    for (uint32_t i = 0; i < f->n; i++) {
        assert_true(f->node_func[i] >= -1 && f->node_func[i] < (int32_t)f->n_func);
        assert_true(f->self[i] >= 0 && f->total[i] >= f->self[i]);
        assert_true(f->depth[i] <= top);
        while (top > f->depth[i])
            assert_true(left[open[--top]] == 0);
        left[i] = f->total[i] - f->self[i];
        samples[i] = (int64_t)f->samples[i];
        if (i) {
            uint32_t p = open[top - 1];

            assert_true(f->node_func[p] >= 0 && !closed[p]);
            left[p] -= f->total[i];
            samples[p] -= (int64_t)f->samples[i];
            assert_true(samples[p] >= 0);
            closed[p] = f->node_func[i] < 0;
            if (f->node_func[i] >= 0)
                assert_true(f->hash[i] == hash_zoom(f->hash[p], f->func[f->node_func[i]].key));
            if (f->node_func[i] >= 0 && a->width)
                assert_true(f->total[i] * a->width >= f->view_total);
        }
        assert_true((f->hidden[i] > 0) == (f->node_func[i] < 0));
        open[top++] = i;
    }
    while (top)
        assert_true(left[open[--top]] == 0);
    free(open);
    free(left);
    free(samples);
    free(closed);
}

static uint64_t nodes_shown(const struct query_flame *f)
{
    uint64_t n = f->hidden_nodes;

    for (uint32_t i = 0; i < f->n; i++)
        n += f->node_func[i] >= 0;
    return n;
}

static void conserved(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 60; n++) {
        struct store *s = random_store(n);
        struct query *q = ask(s, "cpu", 0, 1000 * S);
        struct query_flame whole = {}, f = {};
        const struct query_flame_ask all = {};
        uint64_t nodes;

        flame(q, &all, &whole);
        check_rows(&whole, &all);
        nodes = nodes_shown(&whole);
        assert_true(whole.hidden_nodes == 0 && whole.floor == 0);
        assert_true(whole.sum.total == fake_store_sum(s, PTYPE_CPU, 0, 1000 * S));
        for (uint32_t i = 0; i < 40; i++) {
            const struct query_flame_ask a = {.width = rnd(3) ? 1 + rnd(2000) : 0,
                                              .max_nodes = rnd(3) ? 2 + rnd(300) : 0,
                                              .by_name = rnd(2)};

            flame(q, &a, &f);
            check_rows(&f, &a);
            assert_true(f.sum.total == whole.sum.total && f.total[0] == whole.sum.total);
            assert_int_equal(nodes_shown(&f), nodes);
            if (a.max_nodes)
                assert_true(f.n <= a.max_nodes);
        }
        query_free(q);
        fake_store_free(s);
    }
}

/* The largest nodes stay: what is hidden is never larger than what is shown, and no room is left.
 */
static void largest_stay(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 30; n++) {
        struct store *s = random_store(n);
        struct query *q = ask(s, "cpu", 0, 1000 * S);
        struct query_flame whole = {}, f = {};
        const struct query_flame_ask all = {}, a = {.max_nodes = 2 + rnd(200)};
        uint64_t larger = 0, shown = 0;

        flame(q, &all, &whole);
        flame(q, &a, &f);
        for (uint32_t i = 0; i < whole.n; i++)
            larger += whole.total[i] > f.floor;
        for (uint32_t i = 0; i < f.n; i++) {
            if (f.node_func[i] >= 0) {
                assert_true(f.total[i] >= f.floor);
                shown++;
            }
        }
        if (f.hidden_nodes)
            assert_true(shown >= larger);
        else
            assert_int_equal(f.n, whole.n);
        query_free(q);
        fake_store_free(s);
    }
}

static void zooms(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 40; n++) {
        struct store *s = random_store(n);
        struct query *q = ask(s, "cpu", 0, 1000 * S);
        struct query_flame whole = {}, f = {};
        const struct query_flame_ask all = {};

        flame(q, &all, &whole);
        for (uint32_t i = 0; i < 30; i++) {
            uint32_t at = rnd(whole.n);
            const struct query_flame_ask a = {
                .root = whole.hash[at], .width = rnd(500), .max_nodes = rnd(2) ? 2 + rnd(50) : 0};
            uint64_t h = 0;

            flame(q, &a, &f);
            check_rows(&f, &a);
            assert_true(f.view_found && f.view_root == whole.hash[at]);
            assert_true(f.view_total == whole.total[at] && f.total[0] == whole.total[at]);
            assert_true(f.self[0] == whole.self[at] && f.samples[0] == whole.samples[at]);
            assert_true(f.sum.total == whole.sum.total);
            assert_int_equal(f.n_path, at ? whole.depth[at] + 1 : 0);
            for (uint32_t k = 1; k < f.n_path; k++) {
                h = hash_zoom(h, f.func[f.path[k].func].key);
                assert_true(f.path[k].hash == h);
            }
            assert_true(h == whole.hash[at]);
        }
        query_free(q);
        fake_store_free(s);
    }
}

/* Any cut of a range: parts add up, for the whole and for every function path that occurs. */
static void cuts(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 40; n++) {
        struct store *s = random_store(n);
        int64_t cut[4] = {0, (int64_t)rnd(1000) * S + rnd(1000), (int64_t)rnd(1000) * S, 1000 * S};
        const struct query_flame_ask all = {};
        unit_i128 sum = 0;

        if (cut[1] > cut[2]) {
            int64_t t = cut[1];

            cut[1] = cut[2];
            cut[2] = t;
        }
        for (int i = 0; i < 3; i++) {
            struct query *q;
            struct query_flame f = {};

            if (cut[i] == cut[i + 1])
                continue;
            q = ask(s, "cpu", cut[i], cut[i + 1]);
            flame(q, &all, &f);
            assert_true(f.sum.total == fake_store_sum(s, PTYPE_CPU, cut[i], cut[i + 1]));
            sum += f.sum.total;
            query_free(q);
        }
        assert_true(sum == fake_store_sum(s, PTYPE_CPU, 0, 1000 * S));
        fake_store_free(s);
    }
}

/* Leaves first: the same sum, and below the root stands what was self. */
static void inverted(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 30; n++) {
        struct store *s = random_store(n);
        struct query *q = ask(s, "cpu", 0, 1000 * S);
        struct query_flame whole = {}, f = {};
        const struct query_flame_ask all = {}, inv = {.invert = true};
        unit_i128 *self;

        flame(q, &all, &whole);
        flame(q, &inv, &f);
        check_rows(&f, &inv);
        assert_true(f.sum.total == whole.sum.total);
        assert_true(f.sum.quality.unsymbolised == whole.sum.quality.unsymbolised);
        self = xcalloc(f.n_func, sizeof *self);
        for (uint32_t i = 1; i < f.n; i++) {
            if (f.depth[i] == 1)
                self[f.node_func[i]] += f.total[i];
        }
        for (uint32_t i = 1; i < whole.n; i++) {
            for (uint32_t k = 1; k < f.n_func; k++) {
                if (f.func[k].key == whole.func[whole.node_func[i]].key)
                    self[k] -= whole.self[i];
            }
        }
        for (uint32_t k = 1; k < f.n_func; k++)
            assert_true(self[k] == 0);
        free(self);
        query_free(q);
        fake_store_free(s);
    }
}

static void groups(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 20; n++) {
        struct store *s = random_store(n);
        struct query *q = ask_by(s, "cpu", 0, 1000 * S, "service");
        struct query_flame f = {};
        const struct query_flame_ask all = {};

        flame(q, &all, &f);
        check_rows(&f, &all);
        assert_true(f.sum.total == fake_store_sum(s, PTYPE_CPU, 0, 1000 * S));
        assert_true(f.self[0] == 0);
        for (uint32_t i = 1; i < f.n; i++) {
            if (f.depth[i] == 1)
                assert_true(str_starts(f.func[f.node_func[i]].name, STR("service=")));
        }
        query_free(q);
        q = ask_by(s, "cpu", 0, 1000 * S, "nothing"); /* a label that none has */
        flame(q, &all, &f);
        assert_int_equal(f.depth[1], 1);
        assert_str(f.func[f.node_func[1]].name, STR("nothing="));
        query_free(q);
        fake_store_free(s);
    }
}

/* ---- single cases ------------------------------------------------------------------------------
 */

static void types_never_meet(void **state)
{
    struct store *s = fake_store_new();
    struct query_flame f = {};
    const struct query_flame_ask all = {};
    struct query *q;

    (void)state;
    row(s, "n:main#demo;n:f#demo", 100);
    fake_store_row(s, &(struct fake_row){.type = PTYPE_OFFCPU,
                                         .labels = "service=a",
                                         .t = S,
                                         .stack = "n:main#demo;n:f#demo",
                                         .count = 1,
                                         .value = 7});
    q = ask(s, "cpu", 0, 2 * S);
    flame(q, &all, &f);
    assert_true(f.sum.total == 100);
    query_free(q);
    q = ask(s, "offcpu", 0, 2 * S);
    flame(q, &all, &f);
    assert_true(f.sum.total == 7);
    fake_store_lie(s, PTYPE_CPU); /* equal units do not help */
    e = (struct query_err){};
    assert_true(query_flame(q, &all, &f, &e) < 0);
    assert_int_equal(e.code, QUERY_INTERNAL);
    assert_non_null(strstr(e.msg, "profile type 1 in a query of type 2"));
    query_free(q);
    fake_store_free(s);
}

static void scopes(void **state)
{
    struct store *s = fake_store_new();
    const struct query_flame_ask all = {};
    struct query_flame f = {};
    struct query *q;

    (void)state;
    row(s, "n:main#/usr/bin/demo;p:forward@a.py:1", 30);
    row(s, "n:main#/opt/bin/demo;p:forward@b.py:1", 20); /* same base name: same function */
    row(s, "n:main#/usr/bin/demo;p:forward@a.py:9", 10); /* another line: same function */
    q = ask(s, "cpu", 0, 2 * S);
    flame(q, &all, &f);
    assert_int_equal(f.n, 4);
    assert_true(f.func[1].key == 0x48046b589efdba3f);
    assert_true(f.func[2].key == 0x7945efdb258ff2cc && f.total[2] == 40);
    assert_true(f.func[3].key == 0xab84f3a85bca27b7 && f.total[3] == 20);
    assert_str(f.func[2].name, STR("forward"));
    assert_str(f.func[3].file, STR("b.py"));
    assert_str(f.func[1].bin, STR("demo"));
    query_free(q);
    fake_store_free(s);
}

static void order(void **state)
{
    struct store *s = fake_store_new();
    const struct query_flame_ask value = {}, name = {.by_name = true};
    struct query_flame f = {};
    struct query *q;

    (void)state;
    row(s, "n:b#x", 10);
    row(s, "n:a#x", 20);
    row(s, "n:c#x", 30);
    row(s, "n:d#x", 20);
    q = ask(s, "cpu", 0, 2 * S);
    flame(q, &value, &f);
    assert_true(f.total[1] == 30 && f.total[2] == 20 && f.total[3] == 20 && f.total[4] == 10);
    assert_true(f.func[f.node_func[2]].key < f.func[f.node_func[3]].key);
    flame(q, &name, &f);
    for (uint32_t i = 1; i < 5; i++)
        assert_int_equal(f.func[f.node_func[i]].name.p[0], "?abcd"[i]);
    query_free(q);
    fake_store_free(s);
}

static void few_rows(void **state)
{
    struct store *s = fake_store_new();
    struct query_flame f = {};
    struct query *q;

    (void)state;
    for (int i = 0; i < 50; i++) {
        char stack[40];

        (void)snprintf(stack, sizeof stack, "n:f%d#x;n:g#x", i);
        row(s, stack, 10); /* all equal: no floor separates them */
    }
    q = ask(s, "cpu", 0, 2 * S);
    for (uint32_t max = 2; max < 110; max++) {
        const struct query_flame_ask a = {.max_nodes = max};

        flame(q, &a, &f);
        check_rows(&f, &a);
        assert_true(f.n <= max);
        assert_true(f.n + 2 >= max || f.n == 101); /* a pair of rows at most stays unused */
        assert_int_equal(nodes_shown(&f), 101);
    }
    e = (struct query_err){};
    assert_true(query_flame(q, &(struct query_flame_ask){.max_nodes = 1}, &f, &e) < 0);
    assert_int_equal(e.code, QUERY_BAD_PARAMETER);
    query_free(q);
    fake_store_free(s);
}

static void nothing_and_zero(void **state)
{
    struct store *s = fake_store_new();
    const struct query_flame_ask all = {.width = 100, .max_nodes = 10};
    struct query_flame f = {};
    struct query *q = ask(s, "cpu", 0, 10 * S);

    (void)state;
    flame(q, &all, &f);
    assert_int_equal(f.n, 0);
    assert_true(f.sum.total == QUERY_UNKNOWN && f.view_total == QUERY_UNKNOWN);
    query_free(q);
    cover(s, PTYPE_CPU, 0, 5 * S);
    q = ask(s, "cpu", 0, 10 * S);
    flame(q, &all, &f);
    assert_int_equal(f.n, 1);
    assert_true(f.sum.total == 0 && f.total[0] == 0 && f.sum.empty.why == QUERY_ZERO);
    query_free(q);
    fake_store_free(s);
}

static void zoom_to_what_is_gone(void **state)
{
    struct store *s = fake_store_new();
    const struct query_flame_ask all = {};
    struct query_flame_ask a = {};
    struct query_flame f = {};
    struct query *q;

    (void)state;
    row(s, "n:main#x;n:f#x;n:g#x", 10);
    fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                         .labels = "service=a",
                                         .t = 5 * S,
                                         .stack = "n:main#x;n:h#x",
                                         .count = 1,
                                         .value = 10});
    q = ask(s, "cpu", 0, 2 * S);
    flame(q, &all, &f);
    a.root = f.hash[3]; /* main, f, g */
    query_free(q);
    q = ask(s, "cpu", 4 * S, 6 * S); /* no f and no g here: main is nearest */
    flame(q, &a, &f);
    assert_false(f.view_found);
    assert_true(f.view_asked == a.root && f.view_root == f.path[1].hash);
    assert_str(f.func[f.node_func[0]].name, STR("main"));
    a.root = 12345; /* never was anywhere */
    flame(q, &a, &f);
    assert_false(f.view_found);
    assert_true(f.view_root == 0 && f.n_path == 0 && f.total[0] == 10);
    query_free(q);
    fake_store_free(s);
}

static void searching(void **state)
{
    struct store *s = fake_store_new();
    const struct query_flame_ask a = {.match = STR("rec"), .width = 3};
    struct query_flame_ask zoom = {.match = STR("main")};
    struct query_flame f = {};
    struct query *q;

    (void)state;
    row(s, "n:main#x;n:rec#x;n:rec#x;n:rec#x", 50); /* once, however often */
    row(s, "n:main#x;n:other#x", 30);
    row(s, "n:main#x;n:small#x;n:record#x", 5); /* hidden, counted all the same */
    q = ask(s, "cpu", 0, 2 * S);
    flame(q, &a, &f);
    assert_true(f.has_match && f.matched.functions == 2);
    assert_true(f.matched.total == 55 && f.matched.view == 55);
    assert_int_equal(f.matched.samples, 5); /* 5 / 10 is 0 */
    assert_int_equal(f.matched.n_func, 1);
    assert_str(f.func[f.matched.func[0]].name, STR("rec"));
    zoom.root = f.hash[2]; /* main, rec: what matches stands above the view's root */
    flame(q, &zoom, &f);
    assert_true(f.matched.total == 85 && f.matched.view == 50);
    query_free(q);
    fake_store_free(s);
}

static void stack_quality(void **state)
{
    struct store *s = fake_store_new();
    const struct query_flame_ask all = {};
    struct query_flame f = {};
    struct query *q;

    (void)state;
    row(s, "o:[no stack: noproc]", 10);
    row(s, "o:[truncated: trunc];n:f#x", 20);
    row(s, "n:main#x;n:x+0x1f#x", 40);
    row(s, "n:main#x;n:0xffff#x;n:known#x", 80); /* unsymbolised: the leaf decides */
    q = ask(s, "cpu", 0, 2 * S);
    flame(q, &all, &f);
    assert_true(f.sum.quality.no_stack == 10);
    assert_true(f.sum.quality.truncated == 20);
    assert_true(f.sum.quality.unsymbolised == 40);
    query_free(q);
    fake_store_free(s);
}

static void unknown_counts(void **state)
{
    struct store *s = fake_store_new();
    const struct query_flame_ask all = {};
    struct query_flame f = {};
    struct query *q;

    (void)state;
    row(s, "n:main#x;n:f#x", 10);
    fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                         .labels = "service=a",
                                         .t = S,
                                         .stack = "n:main#x;n:g#x",
                                         .count_unknown = true,
                                         .value = 5});
    q = ask(s, "cpu", 0, 2 * S);
    flame(q, &all, &f);
    assert_true(f.samples[0] == BATCH_UNKNOWN && f.samples[1] == BATCH_UNKNOWN);
    assert_true(f.samples[2] == 1 && f.samples[3] == BATCH_UNKNOWN);
    assert_true(f.sum.samples == BATCH_UNKNOWN && f.sum.total == 15);
    query_free(q);
    fake_store_free(s);
}

/* Two hosts, readings of unequal length, one missing: the mean over covered time of each, summed.
 */
static void levels(void **state)
{
    static const struct {
        const char *labels, *stack;
        int64_t t, until, value;
    } r[] = {{"service=a,host=x", "n:main#x;n:f#x", 0, 4, 100},
             {"service=a,host=x", "n:main#x;n:f#x", 4, 10, 200},
             {"service=a,host=y", "n:main#x;n:f#x", 0, 2, 50}, /* covered for 2 s of 10 */
             {"service=a,host=y", "n:main#x;n:g#x", 0, 2, 7}};
    struct store *s = fake_store_new();
    const struct query_flame_ask all = {}, wide = {.width = 1000};
    struct query_flame f = {};
    struct query *q;

    (void)state;
    for (size_t i = 0; i < sizeof r / sizeof r[0]; i++)
        fake_store_row(s, &(struct fake_row){.type = PTYPE_LIVE,
                                             .labels = r[i].labels,
                                             .stack = r[i].stack,
                                             .t = r[i].t * S,
                                             .until = r[i].until * S,
                                             .count = 1,
                                             .var = -1,
                                             .value = r[i].value});
    q = ask(s, "live", 0, 10 * S);
    assert_int_equal(query_head(q)->agg, QUERY_AVERAGE);
    flame(q, &all, &f);
    assert_true(f.sum.total == 160 + 50 + 7); /* (4 x 100 + 6 x 200) / 10, 50, 7 */
    assert_true(f.total[2] == 210 && f.total[3] == 7);
    flame(q, &wide, &f); /* no node is too small for it */
    assert_true(f.sum.total == 160 + 50 + 7 && f.view_total == 217 && f.floor == 1);
    assert_true(f.n == 4 && f.total[2] == 210 && f.total[3] == 7);
    query_free(q);
    q = ask(s, "live", 0, 5 * S); /* (4 x 100 + 1 x 200) / 5 */
    flame(q, &all, &f);
    assert_true(f.sum.total == 120 + 57);
    query_free(q);
    q = ask(s, "live", 0, 3 * S); /* thirds are rounded once, at the leaf */
    flame(q, &all, &f);
    assert_true(f.sum.total == 100 + 57);
    query_free(q);
    fake_store_free(s);
}

static void level_now_and_at(void **state)
{
    struct store *s = fake_store_new();
    struct query_conf conf = {.store = s, .now = {100 * S}, .mem_max = 1 << 24};
    struct query_ask a = {.q = STR("live"), .from = STR("0s"), .to = STR("10s"), .need_type = true};
    const struct query_flame_ask all = {};
    struct query_flame f = {};
    struct query *q = NULL;

    (void)state;
    for (int i = 0; i < 10; i++)
        fake_store_row(s, &(struct fake_row){.type = PTYPE_LIVE,
                                             .labels = "service=a",
                                             .stack = "n:main#x",
                                             .t = i * S,
                                             .until = (i + 1) * S,
                                             .count = 1,
                                             .value = 100 + i});
    a.agg = STR("now");
    assert_ok(query_open(&conf, &a, &q, &e), &e);
    flame(q, &all, &f);
    assert_true(f.sum.total == 109);
    query_free(q);
    a.agg = (struct str){NULL, 0};
    a.at = STR("3500ms");
    assert_ok(query_open(&conf, &a, &q, &e), &e);
    flame(q, &all, &f);
    assert_true(f.sum.total == 103);
    query_free(q);
    a.agg = STR("peak");
    a.at = (struct str){NULL, 0};
    e = (struct query_err){};
    assert_true(query_open(&conf, &a, &q, &e) < 0);
    assert_int_equal(e.code, QUERY_NOT_SUPPORTED);
    a.q = STR("cpu");
    a.agg = STR("now");
    e = (struct query_err){};
    assert_true(query_open(&conf, &a, &q, &e) < 0);
    assert_int_equal(e.code, QUERY_BAD_PARAMETER);
    fake_store_free(s);
}

static void limits(void **state)
{
    struct store *s = random_store(3);
    struct query_conf conf = {.store = s, .now = {100 * S}, .mem_max = 20000};
    struct query_ask a = {
        .q = STR("cpu"), .from = STR("0s"), .to = STR("1000s"), .need_type = true};
    const struct query_flame_ask all = {};
    struct query_flame f = {};
    struct query *q = NULL;
    atomic_bool cancel = true;

    (void)state;
    assert_ok(query_open(&conf, &a, &q, &e), &e);
    e = (struct query_err){};
    assert_true(query_flame(q, &all, &f, &e) < 0);
    assert_int_equal(e.code, QUERY_TOO_EXPENSIVE);
    assert_string_equal(e.setting, "query.memory");
    query_free(q);
    conf.mem_max = 1 << 24;
    conf.deadline.v = 1;
    assert_ok(query_open(&conf, &a, &q, &e), &e);
    e = (struct query_err){};
    assert_true(query_flame(q, &all, &f, &e) < 0);
    assert_int_equal(e.code, QUERY_TOO_EXPENSIVE);
    query_free(q);
    conf.deadline.v = 0;
    conf.cancel = &cancel;
    assert_ok(query_open(&conf, &a, &q, &e), &e);
    e = (struct query_err){};
    assert_true(query_flame(q, &all, &f, &e) < 0);
    assert_int_equal(e.code, QUERY_CANCELED);
    query_free(q);
    fake_store_free(s);
}

/* Every allocation fails once: an error or an answer, nothing leaks or crashes. */
static void no_memory(void **state)
{
    struct store *s = random_store(5);
    const struct query_flame_ask all = {.match = STR("f"), .width = 100, .max_nodes = 50};
    bool done = false;

    (void)state;
    for (uint64_t n = 1; !done; n++) {
        struct query_conf conf = {.store = s, .now = {100 * S}, .mem_max = 1 << 24};
        struct query_ask a = {.q = STR("cpu{service=~\"a|b\"}"),
                              .from = STR("0s"),
                              .to = STR("1000s"),
                              .need_type = true};
        struct query_flame f = {};
        struct query *q = NULL;
        int r;

        e = (struct query_err){};
        mem_fail_nth(n);
        r = query_open(&conf, &a, &q, &e);
        if (r == 0)
            r = query_flame(q, &all, &f, &e);
        mem_fail_nth(0);
        assert_true(r == 0 || e.code != QUERY_OK);
        done = r == 0 && f.sum.total == fake_store_sum(s, PTYPE_CPU, 0, 1000 * S);
        query_free(q);
        assert_true(n < 10000);
    }
    fake_store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conserved),
        cmocka_unit_test(largest_stay),
        cmocka_unit_test(zooms),
        cmocka_unit_test(cuts),
        cmocka_unit_test(inverted),
        cmocka_unit_test(groups),
        cmocka_unit_test(types_never_meet),
        cmocka_unit_test(scopes),
        cmocka_unit_test(order),
        cmocka_unit_test(few_rows),
        cmocka_unit_test(nothing_and_zero),
        cmocka_unit_test(zoom_to_what_is_gone),
        cmocka_unit_test(searching),
        cmocka_unit_test(stack_quality),
        cmocka_unit_test(unknown_counts),
        cmocka_unit_test(levels),
        cmocka_unit_test(level_now_and_at),
        cmocka_unit_test(limits),
        cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
