// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "storage/keep/store_private.h"
#include "tests/lib/stacks.h"
#include "tests/lib/tmpdir.h"

/*
 * One pattern, one answer: what a filter or a search finds is the same for trees, tables, series,
 * differences and exports, and what plain loops over the stacks find, in every part of the data.
 * The functions have one name in several files and kinds; the store has an epoch for each seal, and
 * a head.
 */

#define S       NS_PER_S
#define T0      (1764417600 * S)
#define PERIOD  1000
#define N_BATCH 10
#define N_ROW   28 /* of a batch; N_BATCH of them are at most STACKS_MAX */
#define SPAN    10 /* seconds of a batch */
#define N_FRAME N_OF(stack_frames)

_Static_assert(N_BATCH *N_ROW <= STACKS_MAX, "all stacks have room");

static struct store *store;
static struct stacks all;
static char dir[] = "/tmp/strata_own_XXXXXX";
static int64_t clock_s = 5000;

static real_ns now(void *ctx)
{
    (void)ctx;
    return (real_ns){T0 + clock_s * S};
}

static int decode(void *ctx, const struct store_entry *entry, struct arena *arena,
                  struct batch *ret, struct err *err)
{
    (void)ctx;
    (void)entry;
    (void)arena;
    (void)ret;
    return err_set(err, -EINVAL, "nothing is replayed here");
}

/* ---- filling the store -------------------------------------------------------------------------
 */

enum {
    S_SERVICE = 1,
    S_A,
    S_B,
    S_FRAMES,
};

struct tables {
    struct str str[S_FRAMES + 3 * N_FRAME];
    struct batch_fn fn[1 + N_FRAME];
    struct batch_bin bin[1 + N_FRAME];
    struct batch_frame frame[1 + N_FRAME];
    struct batch_node node[1 + N_ROW * STACK_MAX];
    uint32_t n_node, row[N_ROW];
    real_ns t[N_ROW];
    uint64_t count[N_ROW];
};

static void name_frames(struct tables *m)
{
    m->str[S_SERVICE] = STR("service");
    m->str[S_A] = STR("a");
    m->str[S_B] = STR("b");
    for (uint32_t i = 0; i < N_FRAME; i++) {
        const struct fake_frame *f = &stack_frames[i].f;
        uint32_t s = S_FRAMES + 3 * i;

        m->str[s] = f->name;
        m->str[s + 1] = f->file;
        m->str[s + 2] = f->bin;
        m->fn[1 + i] = (struct batch_fn){.name = s, .file = f->file.n ? s + 1 : 0};
        m->bin[1 + i] = (struct batch_bin){.path = s + 2};
        m->frame[1 + i] = (struct batch_frame){
            .kind = f->kind, .fn = 1 + i, .bin = f->bin.n ? 1 + i : 0, .line = f->line};
    }
}

static uint32_t node_of(struct tables *m, uint32_t parent, uint32_t frame)
{
    for (uint32_t i = 1; i < m->n_node; i++) {
        if (m->node[i].parent == parent && m->node[i].frame == frame)
            return i;
    }
    m->node[m->n_node] = (struct batch_node){.parent = parent, .frame = frame};
    return m->n_node++;
}

/* Which frames a batch has first differs from batch to batch, and so from epoch to epoch. */
static void random_stack(struct tables *m, uint32_t batch, uint32_t row)
{
    struct stack *k = &all.v[all.n++];

    *k = (struct stack){.n = 1 + stack_rnd(8),
                        .label = batch % 2,
                        .t = ((int64_t)batch * SPAN + stack_rnd(SPAN)) * S,
                        .count = 1 + stack_rnd(5)};
    k->value = (int64_t)k->count * PERIOD;
    for (uint32_t d = 0; d < k->n; d++) {
        k->f[d] = (uint8_t)((stack_rnd(7) + (stack_rnd(3) ? batch : 0)) % N_FRAME);
        m->row[row] = node_of(m, d ? m->row[row] : 0, 1 + k->f[d]);
    }
    m->t[row].v = T0 + k->t;
    m->count[row] = k->count;
}

static void append(uint32_t i)
{
    static const struct batch_target target[1];
    static const struct batch_labels labels[1];
    struct tables *m = xcalloc(1, sizeof *m);
    const uint32_t label[] = {S_SERVICE, i % 2 ? S_A : S_B};
    struct batch_stream st = {
        .type = PTYPE_CPU,
        .kind = KIND_SUM,
        .width = 1,
        .covers = {{T0 + (int64_t)i * SPAN * S}, {T0 + (int64_t)(i + 1) * SPAN * S}},
        .state = SOURCE_OK,
        .basis = BASIS_PERIODIC,
        .period = PERIOD,
        .expected = N_ROW,
        .received = N_ROW};
    struct batch b = {.id = {.seq = i + 1, .content = i + 1, .agent = {1}, .boot = {2}},
                      .received = {T0 + 1000 * S},
                      .label = {1, label},
                      .n_str = N_OF(m->str),
                      .str = m->str,
                      .n_bin = 1 + N_FRAME,
                      .bin = m->bin,
                      .n_fn = 1 + N_FRAME,
                      .fn = m->fn,
                      .n_frame = 1 + N_FRAME,
                      .frame = m->frame,
                      .n_target = 1,
                      .target = target,
                      .n_labels = 1,
                      .labels = labels,
                      .n_stream = 1,
                      .stream = &st};
    struct err err = {};
    uint64_t lsn;

    name_frames(m);
    m->n_node = 1;
    for (uint32_t r = 0; r < N_ROW; r++)
        random_stack(m, i, r);
    b.n_node = m->n_node;
    b.node = m->node;
    for (uint32_t k = 1; k < m->n_node; k++)
        m->node[k].hash =
            node_hash(m->node[m->node[k].parent].hash, batch_frame_hash(&b, m->node[k].frame));
    st.rows = (struct batch_rows){.n = N_ROW, .t = m->t, .node = m->row, .count = m->count};
    assert_ok(batch_check(&b, &err), &err);
    assert_ok(store_append_wait(store, &b, STR("payload"), &lsn, &err), &err);
    free(m);
}

/* An epoch ends with each seal; the last two batches stay in the head. */
static int fill(void **state)
{
    struct store_conf conf = {.decode = decode, .min_free = 1, .workers = 2, .now = now};
    struct err err = {};

    (void)state;
    store_tuning.epoch_ns = 1;
    stack_seed = 20;
    conf.dir = mkdtemp(dir);
    if (!conf.dir || store_open(&conf, &store, &err) != 0) {
        print_error("%s\n", err.msg);
        return -1;
    }
    for (uint32_t i = 0; i < N_BATCH; i++) {
        append(i);
        clock_s++;
        if ((i == 1 || i == 4 || i == 7) && store_seal(store, &err) != 0)
            return -1;
    }
    return 0;
}

static int drop(void **state)
{
    (void)state;
    store = store_close(store);
    store_tuning.epoch_ns = 0;
    return test_remove_tree(dir);
}

/* ---- asking ------------------------------------------------------------------------------------
 */

struct stretch {
    int64_t from, to; /* s */
    const char *q;
    uint32_t label; /* 2: all */
};

static const struct stretch parts[] = {{0, N_BATCH *SPAN, "cpu", 2},
                                       {0, N_BATCH *SPAN, "cpu{service=\"a\"}", 1},
                                       {0, 37, "cpu", 2},
                                       {37, N_BATCH *SPAN, "cpu", 2},
                                       {20, 50, "cpu{service=\"b\"}", 0},
                                       {80, N_BATCH *SPAN, "cpu", 2}}; /* the head */

static void question(const struct stretch *p, const struct stack_filters *f, char when[2][32],
                     struct query_ask *ret)
{
    *ret = (struct query_ask){.q = str_c(p->q), .need_type = true, .n_filter = f->n};
    (void)snprintf(when[0], sizeof when[0], "%" PRId64 "ns", T0 + p->from * S);
    (void)snprintf(when[1], sizeof when[1], "%" PRId64 "ns", T0 + p->to * S);
    ret->from = str_c(when[0]);
    ret->to = str_c(when[1]);
    for (uint32_t i = 0; i < f->n; i++)
        ret->filter[i] = str_c(f->text[i]);
}

static struct query *ask(const struct stretch *p, const struct stack_filters *f, bool pair)
{
    const struct query_conf conf = {.store = store,
                                    .now = {T0 + 10000 * S},
                                    .mem_max = UINT64_C(256) << 20,
                                    .max_points = 11000};
    struct query *q = NULL;
    struct query_ask a;
    char when[2][32];
    uint32_t side;

    question(p, f, when, &a);
    test_err = (struct query_err){};
    if ((pair ? query_open_diff(&conf, &a, &a, &q, &side, &test_err)
              : query_open(&conf, &a, &q, &test_err)) != 0)
        fail_msg("%s", test_err.msg);
    return q;
}

static void left_of(const struct stretch *p, const struct stack_filters *f, struct stacks *ret)
{
    static struct stacks in;
    static uint32_t taken[STACKS_MAX];

    in.n = 0;
    for (uint32_t i = 0; i < all.n; i++) {
        if (all.v[i].t >= p->from * S && all.v[i].t < p->to * S &&
            (p->label == 2 || all.v[i].label == p->label))
            in.v[in.n++] = all.v[i];
    }
    stacks_filter(&in, f, ret, taken);
}

static unit_i128 total(const struct stacks *s, const char *pattern)
{
    unit_i128 v = 0;

    for (uint32_t i = 0; i < s->n; i++)
        v += !pattern || stack_matches(&s->v[i], pattern) ? s->v[i].value : 0;
    return v;
}

/* ---- every answer ------------------------------------------------------------------------------
 */

static void check(const char *what, const struct stretch *p, const struct stack_filters *f,
                  unit_i128 have, unit_i128 want)
{
    if (have != want)
        fail_msg("%s of %s, %lld to %lld s, %s: %lld, not %lld", what, p->q, (long long)p->from,
                 (long long)p->to, f->n ? f->text[0] : "no filter", (long long)have,
                 (long long)want);
}

/* As /flamegraph asks, leaves first, and as exports do: all of it, and by frame. */
static void trees(const struct stretch *p, const struct stack_filters *f, struct query *q,
                  const struct stacks *left)
{
    static const struct {
        const char *what;
        struct query_flame_ask a;
    } kinds[] = {{"flame graph", {.width = 1000}},
                 {"leaves first", {.width = 1000, .invert = true}},
                 {"export", {}},
                 {"pprof", {.detail = QUERY_OF_FRAMES}}};

    for (size_t i = 0; i < N_OF(kinds); i++) {
        struct query_flame t = {};
        unit_i128 self = 0;

        assert_ok(query_flame(q, &kinds[i].a, &t, &test_err), &test_err);
        for (uint32_t k = 0; k < t.n; k++)
            self += t.self[k];
        check(kinds[i].what, p, f, t.sum.total, total(left, NULL));
        check(kinds[i].what, p, f, self, total(left, NULL));
    }
}

static void table(const struct stretch *p, const struct stack_filters *f, struct query *q,
                  const struct stacks *left)
{
    static const enum query_key keys[] = {QUERY_KEY_FN, QUERY_KEY_FILE, QUERY_KEY_LINE};

    for (size_t i = 0; i < N_OF(keys); i++) {
        const struct query_top_ask a = {.key = keys[i], .limit = 2000};
        struct query_top t = {};
        unit_i128 self = 0;

        assert_ok(query_top(q, &a, &t, &test_err), &test_err);
        check("table", p, f, t.sum.total, total(left, NULL));
        for (uint32_t k = 0; k < t.n; k++)
            self += t.row[k].self;
        for (uint32_t k = 0; k < left->n; k++)
            self += left->v[k].n ? 0 : left->v[k].value; /* no frame is left: the root's own */
        check("rows", p, f, self, total(left, NULL));
    }
}

static void series(const struct stretch *p, const struct stack_filters *f, struct query *q,
                   const struct stacks *left)
{
    const struct query_series_ask a = {.bucket_ns = 7 * S};
    struct query_series t = {};
    unit_i128 sum = 0;

    assert_ok(query_series(q, &a, &t, &test_err), &test_err);
    for (uint32_t k = 0; k < t.n; k++)
        sum += t.line[0].value[k] == QUERY_UNKNOWN ? 0 : t.line[0].value[k];
    check("series", p, f, t.sum.total, total(left, NULL));
    check("buckets", p, f, sum, total(left, NULL));
}

static void difference(const struct stretch *p, const struct stack_filters *f,
                       const struct stacks *left)
{
    const struct query_diff_ask a = {.width = 1000};
    struct query *q = ask(p, f, true);
    struct query_diff t = {};

    assert_ok(query_diff(q, &a, &t, &test_err), &test_err);
    check("side A", p, f, t.side[0].sum.total, total(left, NULL));
    check("side B", p, f, t.side[1].sum.total, total(left, NULL));
    query_free(q);
}

static void sandwich(const struct stretch *p, const struct stack_filters *f, struct query *q,
                     const struct stacks *left)
{
    const struct query_sandwich_ask a = {.fn = STR("f1"), .bin = STR("libx.so"), .width = 100};
    struct query_sandwich t = {};
    unit_i128 want = 0;

    for (uint32_t i = 0; i < left->n; i++) {
        bool in = false;

        for (uint32_t d = 0; d < left->v[i].n; d++)
            in |= str_eq(stack_scope(left->v[i].f[d]), STR("libx.so")) &&
                  str_eq(stack_frames[left->v[i].f[d]].f.name, STR("f1"));
        want += in ? left->v[i].value : 0;
    }
    assert_ok(query_sandwich(q, &a, &t, &test_err), &test_err);
    check("callers and callees", p, f, t.total, want);
}

static void filters(void **state)
{
    static const char *const verbs[] = {"keep", "drop", "start", "merge", "collapse"};

    (void)state;
    for (size_t v = 0; v < N_OF(verbs); v++) {
        for (size_t k = 0; k < N_OF(stack_patterns); k++) {
            const struct stretch *p = &parts[(v + k) % N_OF(parts)];
            struct stack_filters f = {.n = 1 + (uint32_t)k % 2};
            static struct stacks left;
            struct query *q;

            (void)snprintf(f.text[0], sizeof f.text[0], "%s:%s", verbs[v], stack_patterns[k]);
            /* frames that are gone or one already are seen by what follows */
            (void)snprintf(f.text[1], sizeof f.text[1], "%s",
                           k % 4 == 1 ? "collapse:recursion" : "keep:file=/o/");
            left_of(p, &f, &left);
            q = ask(p, &f, false);
            trees(p, &f, q, &left);
            table(p, &f, q, &left);
            series(p, &f, q, &left);
            sandwich(p, &f, q, &left);
            query_free(q);
            difference(p, &f, &left);
        }
    }
}

/* Parts of a range add up, whichever epochs they are of. */
static void ranges(void **state)
{
    static const char *const text[] = {"keep:file=one.c", "drop:file=two.c", "start:kind=jit"};

    (void)state;
    for (size_t k = 0; k < N_OF(text); k++) {
        struct stack_filters f = {.n = 1};
        static struct stacks left;

        (void)snprintf(f.text[0], sizeof f.text[0], "%s", text[k]);
        for (int64_t cut = 0; cut <= N_BATCH * SPAN; cut += 9) {
            unit_i128 sum = 0;

            for (int half = 0; half < 2; half++) {
                const struct stretch p = {half ? cut : 0, half ? N_BATCH * SPAN : cut, "cpu", 2};
                const struct query_flame_ask a = {.width = 1000};
                struct query_flame t = {};
                struct query *q;

                if (p.from == p.to)
                    continue;
                q = ask(&p, &f, false);
                assert_ok(query_flame(q, &a, &t, &test_err), &test_err);
                sum += t.sum.total == QUERY_UNKNOWN ? 0 : t.sum.total;
                query_free(q);
            }
            left_of(&parts[0], &f, &left);
            check("two parts", &parts[0], &f, sum, total(&left, NULL));
        }
    }
}

static void searches(void **state)
{
    /* written so that finding is matching */
    static const char *const text[] = {"file=/^one.c$/", "file=/o/", "file=/py$/", "/^f[0-2]$/",
                                       "bin=/^lib/"};
    static const char *const same[] = {"file=one.c", "file=/o/", "file=/py$/", "/^f[0-2]$/",
                                       "bin=/^lib/"};
    const struct stack_filters none = {};

    (void)state;
    for (size_t i = 0; i < N_OF(parts); i++) {
        for (size_t k = 0; k < N_OF(text); k++) {
            const struct query_flame_ask fa = {.width = 1000, .match = str_c(text[k])};
            const struct query_flame_ask ia = {
                .width = 1000, .match = str_c(text[k]), .invert = true};
            const struct query_top_ask ta = {
                .limit = 2000, .match = str_c(text[k]), .n_any = 1, .any = {str_c(text[k])}};
            struct query_flame f = {}, g = {};
            struct query_top t = {};
            static struct stacks left;
            struct query *q = ask(&parts[i], &none, false);

            left_of(&parts[i], &none, &left);
            assert_ok(query_flame(q, &fa, &f, &test_err), &test_err);
            assert_ok(query_flame(q, &ia, &g, &test_err), &test_err);
            assert_ok(query_top(q, &ta, &t, &test_err), &test_err);
            check(text[k], &parts[i], &none, f.matched.total, total(&left, same[k]));
            check(text[k], &parts[i], &none, g.matched.total, total(&left, same[k]));
            check(text[k], &parts[i], &none, t.matched.total, total(&left, same[k]));
            check(text[k], &parts[i], &none, t.any[0].total, total(&left, same[k]));
            assert_true(f.matched.functions == t.matched.functions &&
                        g.matched.functions == t.matched.functions &&
                        t.matched.functions == t.rows);
            query_free(q);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters),
        cmocka_unit_test(ranges),
        cmocka_unit_test(searches),
    };

    return cmocka_run_group_tests(tests, fill, drop);
}
