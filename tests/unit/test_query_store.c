// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "query/query.h"
#include "storage/store.h"
#include "tests/lib/testing.h"
#include "tests/lib/tmpdir.h"

/*
 * Queries over the real store: random batches, and every answer against sums made by plain loops
 * over the same rows.
 */

#define S       NS_PER_S
#define T0      (1764417600 * S)
#define N_BATCH 24
#define N_ROW   60
#define DEPTH   6
#define N_FUNC  9
#define SPAN    10 /* seconds that a batch covers */
#define PERIOD  1000

struct sample {
    int64_t t;
    uint32_t service, host, depth;
    uint32_t func[DEPTH]; /* root first */
    uint64_t count;
    uint32_t pid;
};

static struct sample all[N_BATCH * N_ROW];
static struct store *store;
static char dir[] = "/tmp/strata_query_XXXXXX";
static uint64_t seed = 42;
static struct query_err e;

static uint32_t rnd(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(seed >> 33) % n;
}

/* ---- filling the store -------------------------------------------------------------------------
 */

enum {
    S_NONE,
    S_SERVICE,
    S_A,
    S_B,
    S_HOST,
    S_X,
    S_Y,
    S_BIN,
    S_RING,
    S_F0
};
static struct str text[S_F0 + N_FUNC] = {
    [S_SERVICE] = STR("service"),   [S_A] = STR("a"),           [S_B] = STR("b"),
    [S_HOST] = STR("host"),         [S_X] = STR("x"),           [S_Y] = STR("y"),
    [S_BIN] = STR("/usr/bin/demo"), [S_RING] = STR("ring_full")};
static char func_text[N_FUNC][8];

static int decode(void *ctx, const struct store_entry *entry, struct arena *arena,
                  struct batch *ret, struct err *err)
{
    (void)ctx;
    (void)entry;
    (void)arena;
    (void)ret;
    return err_set(err, -EINVAL, "nothing is replayed here");
}

struct made {
    struct batch_node node[1 + N_ROW * DEPTH];
    uint32_t n_node, row_node[N_ROW], row_target[N_ROW];
    uint64_t count[N_ROW];
    real_ns t[N_ROW];
};

static uint32_t node_of(struct made *m, uint32_t parent, uint32_t frame)
{
    for (uint32_t i = 1; i < m->n_node; i++) {
        if (m->node[i].parent == parent && m->node[i].frame == frame)
            return i;
    }
    m->node[m->n_node] = (struct batch_node){.parent = parent, .frame = frame};
    return m->n_node++;
}

/* Batch i: service and host by turns, rows in [i * SPAN, (i + 1) * SPAN). */
static void append(uint32_t i)
{
    static struct batch_frame frame[1 + N_FUNC];
    static struct batch_fn fn[1 + N_FUNC];
    static const struct batch_bin bin[] = {{}, {.path = S_BIN}};
    static const struct batch_labels no_labels[1];
    static const struct batch_loss lost = {.why = S_RING, .n = 3, .weight = 3 * PERIOD};
    static const struct batch_target target[] = {
        {}, {.key = {.pidns = 1, .pid = 100}}, {.key = {.pidns = 1, .pid = 200}}};
    const uint32_t label[] = {S_SERVICE, i % 2 ? S_A : S_B, S_HOST, i % 3 ? S_X : S_Y};
    struct made *m = xcalloc(1, sizeof *m);
    struct batch_stream st = {
        .type = PTYPE_CPU,
        .kind = KIND_SUM,
        .width = 1,
        .covers = {{T0 + (int64_t)i * SPAN * S}, {T0 + (int64_t)(i + 1) * SPAN * S}},
        .state = SOURCE_OK,
        .basis = BASIS_PERIODIC,
        .period = PERIOD,
        .expected = N_ROW + 3,
        .received = N_ROW,
        .n_lost = 1,
        .lost = &lost};
    struct batch b = {.id = {.seq = i + 1, .content = i + 1, .agent = {1}, .boot = {2}},
                      .received = {T0 + 1000 * S},
                      .label = {2, label},
                      .n_str = S_F0 + N_FUNC,
                      .str = text,
                      .n_bin = 2,
                      .bin = bin,
                      .n_fn = 1 + N_FUNC,
                      .fn = fn,
                      .n_frame = 1 + N_FUNC,
                      .frame = frame,
                      .n_target = 3,
                      .target = target,
                      .n_labels = 1,
                      .labels = no_labels,
                      .n_stream = 1,
                      .stream = &st};
    struct err err = {};
    uint64_t lsn;

    for (uint32_t f = 0; f < N_FUNC; f++) {
        fn[1 + f].name = S_F0 + f;
        frame[1 + f] =
            (struct batch_frame){.kind = FRAME_NATIVE, .fn = 1 + f, .bin = 1, .addr = 0x1000 + f};
    }
    m->n_node = 1;
    for (uint32_t r = 0; r < N_ROW; r++) {
        struct sample *x = &all[i * N_ROW + r];

        x->service = i % 2;
        x->host = i % 3 != 0;
        x->t = st.covers.t0.v + (int64_t)rnd(SPAN) * S;
        x->depth = 1 + rnd(DEPTH);
        x->count = 1 + rnd(4);
        x->pid = rnd(2) ? 100 : 200;
        for (uint32_t d = 0; d < x->depth; d++) {
            x->func[d] = d ? rnd(N_FUNC) : 0;
            m->row_node[r] = node_of(m, d ? m->row_node[r] : 0, 1 + x->func[d]);
        }
        m->t[r].v = x->t;
        m->count[r] = x->count;
        m->row_target[r] = x->pid / 100;
    }
    b.n_node = m->n_node;
    b.node = m->node;
    for (uint32_t k = 1; k < m->n_node; k++)
        m->node[k].hash =
            node_hash(m->node[m->node[k].parent].hash, batch_frame_hash(&b, m->node[k].frame));
    st.rows = (struct batch_rows){
        .n = N_ROW, .t = m->t, .node = m->row_node, .count = m->count, .target = m->row_target};
    assert_ok(batch_check(&b, &err), &err);
    assert_ok(store_append_wait(store, &b, STR("payload"), &lsn, &err), &err);
    free(m);
}

static int fill(void **state)
{
    struct store_conf conf = {.decode = decode, .min_free = 1, .workers = 2};
    struct err err = {};

    (void)state;
    for (uint32_t f = 0; f < N_FUNC; f++) {
        (void)snprintf(func_text[f], sizeof func_text[f], "f%u", f);
        text[S_F0 + f] = str_c(func_text[f]);
    }
    conf.dir = mkdtemp(dir);
    if (!conf.dir || store_open(&conf, &store, &err) != 0) {
        print_error("%s\n", err.msg);
        return -1;
    }
    for (uint32_t i = 0; i < N_BATCH; i++)
        append(i);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    store = store_close(store);
    return test_remove_tree(dir);
}

/* ---- asking ------------------------------------------------------------------------------------
 */

static struct query_conf conf_of(void)
{
    return (struct query_conf){.store = store,
                               .now = {T0 + 1000 * S},
                               .mem_max = UINT64_C(256) << 20,
                               .max_points = 11000};
}

static struct query *ask_filtered(const char *q, int64_t from, int64_t to, const char *by,
                                  const char *filter)
{
    struct query_conf conf = conf_of();
    struct query_ask a = {.q = str_c(q), .need_type = true};
    char t0[32], t1[32];
    struct query *ret = NULL;

    (void)snprintf(t0, sizeof t0, "%" PRId64 "ns", T0 + from);
    (void)snprintf(t1, sizeof t1, "%" PRId64 "ns", T0 + to);
    a.from = str_c(t0);
    a.to = str_c(t1);
    if (by)
        a.by[a.n_by++] = str_c(by);
    if (filter)
        a.filter[a.n_filter++] = str_c(filter);
    e = (struct query_err){};
    if (query_open(&conf, &a, &ret, &e) != 0)
        fail_msg("%s: %s", q, e.msg);
    return ret;
}

static struct query *ask(const char *q, int64_t from, int64_t to, const char *by)
{
    return ask_filtered(q, from, to, by, NULL);
}

typedef bool want_fn(const struct sample *x);

static bool any(const struct sample *x)
{
    (void)x;
    return true;
}
static bool service_a(const struct sample *x)
{
    return x->service == 1;
}
static bool host_y(const struct sample *x)
{
    return x->host == 0;
}
static bool pid_100(const struct sample *x)
{
    return x->pid == 100;
}
static bool a_and_x(const struct sample *x)
{
    return x->service == 1 && x->host == 1;
}

static const struct {
    const char *q;
    want_fn *want;
} selectors[] = {
    {"cpu", any},
    {"cpu{service=\"a\"}", service_a},
    {"cpu{service!=\"b\"}", service_a},
    {"cpu{host=~\"y|z\"}", host_y},
    {"cpu{host!~\"x.*\"}", host_y},
    {"cpu{pid=\"100\"}", pid_100},
    {"cpu{service=~\"[a]\",host=\"x\",other=\"\"}", a_and_x},
};
#define N_SELECTORS (sizeof selectors / sizeof selectors[0])

static int64_t sum(want_fn *want, int64_t from, int64_t to)
{
    int64_t s = 0;

    for (uint32_t i = 0; i < N_BATCH * N_ROW; i++) {
        if (want(&all[i]) && all[i].t >= T0 + from && all[i].t < T0 + to)
            s += (int64_t)all[i].count * PERIOD;
    }
    return s;
}

static bool holds(const struct sample *x, uint32_t f)
{
    for (uint32_t d = 0; d < x->depth; d++) {
        if (x->func[d] == f)
            return true;
    }
    return false;
}

static void tables(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_SELECTORS; k++) {
        struct query *q = ask(selectors[k].q, 0, N_BATCH * SPAN * S, NULL);
        const struct query_top_ask a = {/* each function has one address */
                                        .limit = 100,
                                        .sort = QUERY_BY_TOTAL,
                                        .key = k % 2 ? QUERY_KEY_ADDR : QUERY_KEY_FN,
                                        .n_any = 2,
                                        .any = {STR("f1"), STR("/^f[23]$/")}};
        struct query_top t = {};
        int64_t self_sum = 0, f1 = 0, f23 = 0, either = 0;

        assert_ok(query_top(q, &a, &t, &e), &e);
        assert_int_equal(t.sum.total, sum(selectors[k].want, 0, N_BATCH * SPAN * S));
        for (uint32_t r = 0; r < t.n; r++) {
            uint32_t f = (uint32_t)(t.func[t.row[r].func].name.p[1] - '0');
            int64_t self = 0, total = 0;
            uint64_t samples = 0;

            for (uint32_t i = 0; i < N_BATCH * N_ROW; i++) {
                if (!selectors[k].want(&all[i]) || !holds(&all[i], f))
                    continue;
                total += (int64_t)all[i].count * PERIOD;
                samples += all[i].count;
                if (all[i].func[all[i].depth - 1] == f)
                    self += (int64_t)all[i].count * PERIOD;
            }
            assert_int_equal(t.func[t.row[r].func].addr, k % 2 ? 0x1000 + f : 0);
            assert_int_equal(t.row[r].self, self);
            assert_int_equal(t.row[r].total, total);
            assert_int_equal(t.row[r].samples, samples);
            self_sum += self;
        }
        assert_int_equal(self_sum, t.sum.total);
        for (uint32_t i = 0; i < N_BATCH * N_ROW; i++) {
            int64_t v = selectors[k].want(&all[i]) ? (int64_t)all[i].count * PERIOD : 0;
            bool one = holds(&all[i], 1), two = holds(&all[i], 2) || holds(&all[i], 3);

            f1 += one ? v : 0;
            f23 += two ? v : 0;
            either += one || two ? v : 0;
        }
        assert_int_equal(t.any[0].total, f1);
        assert_int_equal(t.any[1].total, f23);
        assert_int_equal(t.any_union.total, either);
        query_free(q);
    }
}

static void trees(void **state)
{
    const struct query_flame_ask whole = {}, small = {.width = 100, .max_nodes = 30};

    (void)state;
    for (size_t k = 0; k < N_SELECTORS; k++) {
        int64_t cut = (int64_t)rnd(N_BATCH * SPAN) * S + rnd(1000);
        int64_t edge[3] = {0, cut, N_BATCH * SPAN * S};

        for (int part = 0; part < 2; part++) {
            struct query *q;
            struct query_flame f = {};
            int64_t want = sum(selectors[k].want, edge[part], edge[part + 1]);

            if (edge[part] == edge[part + 1])
                continue;
            q = ask(selectors[k].q, edge[part], edge[part + 1], NULL);
            assert_ok(query_flame(q, &whole, &f, &e), &e);
            assert_true(f.sum.total == want || (want == 0 && f.sum.total == QUERY_UNKNOWN));
            assert_ok(query_flame(q, &small, &f, &e), &e);
            assert_true(f.n <= 30);
            assert_true(f.sum.total == want || (want == 0 && f.sum.total == QUERY_UNKNOWN));
            query_free(q);
        }
    }
}

static void series(void **state)
{
    static const int64_t bucket[] = {S, 3 * S, 7 * S + 1, 60 * S, 1000 * S};

    (void)state;
    for (size_t k = 0; k < N_SELECTORS; k++) {
        for (size_t b = 0; b < 5; b++) {
            const struct query_series_ask a = {.bucket_ns = bucket[b]};
            struct query *q = ask(selectors[k].q, 0, N_BATCH * SPAN * S, NULL);
            struct query_series s = {};

            assert_ok(query_series(q, &a, &s, &e), &e);
            assert_int_equal(s.n_line, 1);
            for (uint32_t i = 0; i < s.n; i++) {
                int64_t from = (int64_t)i * bucket[b], to = from + bucket[b];
                int64_t want = sum(selectors[k].want, from, to);
                unit_i128 v = s.line[0].value[i];

                assert_true(v == want || (v == QUERY_UNKNOWN && want == 0));
            }
            assert_int_equal(s.line[0].total, sum(selectors[k].want, 0, N_BATCH * SPAN * S));
            assert_int_equal(s.sum.total, s.line[0].total);
            query_free(q);
        }
    }
}

static void by_groups(void **state)
{
    const struct query_series_ask a = {.points = 100};
    struct query *q = ask("cpu", 0, N_BATCH * SPAN * S, "service");
    struct query_series s = {};
    int64_t total = 0;

    (void)state;
    assert_ok(query_series(q, &a, &s, &e), &e);
    assert_int_equal(s.n_line, 2);
    for (uint32_t i = 0; i < 2; i++) {
        bool is_a = str_eq(s.line[i].label[0], STR("a"));

        assert_int_equal(s.line[i].total, is_a ? sum(service_a, 0, N_BATCH * SPAN * S)
                                               : sum(any, 0, N_BATCH * SPAN * S) -
                                                     sum(service_a, 0, N_BATCH * SPAN * S));
        total += (int64_t)s.line[i].total;
    }
    assert_int_equal(total, sum(any, 0, N_BATCH * SPAN * S));
    query_free(q);
}

/* The store leaves out what filters take, by node: each bucket and group against a plain loop. */
static void filtered(void **state)
{
    static const struct {
        const char *filter;
        bool with, f1, f23;
    } filters[] = {{"keep:f1", true, true, false},
                   {"drop:f1", false, true, false},
                   {"start:/^f[23]$/", true, false, true},
                   {"keep:bin=other", true, false, false},
                   {"merge:/./", false, false, false}};

    (void)state;
    for (size_t k = 0; k < sizeof filters / sizeof filters[0]; k++) {
        const struct query_series_ask a = {.bucket_ns = 7 * S};
        struct query *q = ask_filtered("cpu{host=\"x\"}", 0, N_BATCH * SPAN * S,
                                       k % 2 ? "service" : "pid", filters[k].filter);
        const struct query_flame_ask whole = {};
        struct query_flame f = {};
        struct query_series s = {};
        int64_t bucket[64] = {}, all_of_it = 0, total = 0;

        for (uint32_t i = 0; i < N_BATCH * N_ROW; i++) {
            const struct sample *x = &all[i];
            bool hit =
                (filters[k].f1 && holds(x, 1)) || (filters[k].f23 && (holds(x, 2) || holds(x, 3)));
            int64_t v = host_y(x) ? 0 : (int64_t)x->count * PERIOD;

            all_of_it += v;
            total += hit == filters[k].with ? v : 0;
            bucket[(x->t - T0) / (7 * S)] += hit == filters[k].with ? v : 0;
        }
        assert_ok(query_flame(q, &whole, &f, &e), &e);
        assert_true(f.sum.total == total && f.sum.whole.total == all_of_it);
        assert_true(f.sum.total + f.sum.filtered[0].dropped == all_of_it);
        assert_ok(query_series(q, &a, &s, &e), &e);
        assert_true(s.sum.total == total && s.sum.whole.total == all_of_it);
        for (uint32_t i = 0; i < s.n; i++) {
            int64_t v = 0;

            for (uint32_t l = 0; l < s.n_line; l++)
                v += s.line[l].value[i] == QUERY_UNKNOWN ? 0 : (int64_t)s.line[l].value[i];
            assert_int_equal(v, bucket[i]);
        }
        query_free(q);
    }
}

/* Two sides of one scan: by range, by selector, by both; each is what it is alone. */
static void differences(void **state)
{
    const struct query_diff_ask a = {.table = true, .limit = 100};
    const struct query_top_ask ta = {.limit = 100};

    (void)state;
    for (size_t k = 0; k < N_SELECTORS; k++) {
        struct query_conf conf = conf_of();
        int64_t to = (1 + (int64_t)rnd(N_BATCH * SPAN)) * S;
        char end[32];
        struct query_ask side[2] = {
            {.q = STR("cpu"), .from = STR("1764417600s")},
            {.q = str_c(selectors[k].q), .from = STR("1764417600s"), .to = STR("1764417840s")}};
        want_fn *want[2] = {any, selectors[k].want};
        struct query *q = NULL, *alone[2];
        struct query_diff d = {};
        uint32_t wrong = 0;

        (void)snprintf(end, sizeof end, "%" PRId64 "ns", T0 + to);
        side[0].to = str_c(end);
        e = (struct query_err){};
        assert_ok(query_open_diff(&conf, &side[0], &side[1], &q, &wrong, &e), &e);
        assert_ok(query_diff(q, &a, &d, &e), &e);
        assert_true(d.comparable && d.norm == QUERY_NORM_SECOND);
        for (uint32_t i = 0; i < 2; i++) {
            struct query_top t = {};

            alone[i] = ask(i ? selectors[k].q : "cpu", 0, i ? N_BATCH * SPAN * S : to, NULL);
            assert_ok(query_top(alone[i], &ta, &t, &e), &e);
            assert_true(d.side[i].sum.total == t.sum.total);
            assert_int_equal(t.sum.total, sum(want[i], 0, i ? N_BATCH * SPAN * S : to));
            assert_int_equal(d.side[i].sum.coverage.source_ns, t.sum.coverage.source_ns);
            for (uint32_t r = 0; r < d.n; r++) {
                const struct query_func *f = &d.func[d.node_func[r]];
                unit_i128 self = 0, total = 0;

                for (uint32_t j = 0; j < t.n; j++) {
                    if (t.func[t.row[j].func].key == f->key) {
                        self = t.row[j].self;
                        total = t.row[j].total;
                    }
                }
                assert_true(d.self[i][r] == self && d.total[i][r] == total);
            }
            query_free(alone[i]);
        }
        query_free(q);
    }
}

static void evidence(void **state)
{
    const struct query_flame_ask whole = {};
    struct query *q = ask("cpu", -20 * S, N_BATCH * SPAN * S, NULL);
    struct query_flame f = {};

    (void)state;
    assert_ok(query_flame(q, &whole, &f, &e), &e);
    assert_int_equal(f.sum.coverage.asked_ns, (N_BATCH * SPAN + 20) * S);
    assert_int_equal(f.sum.coverage.covered_ns, N_BATCH * SPAN * S);
    assert_int_equal(f.sum.coverage.n_gap, 1);
    assert_int_equal(f.sum.coverage.unknown_sources, 0);
    assert_int_equal(f.sum.quality.received, N_BATCH * N_ROW);
    assert_int_equal(f.sum.quality.expected, N_BATCH * (N_ROW + 3));
    assert_int_equal(f.sum.quality.n_loss, 1);
    assert_str(f.sum.quality.loss[0].why, STR("ring_full"));
    assert_int_equal(f.sum.quality.loss[0].n, 3 * N_BATCH);
    assert_int_equal(f.sum.quality.loss[0].weight, 3 * N_BATCH * PERIOD);
    assert_int_equal(f.sum.quality.n_period, 1);
    assert_true(f.sum.se > 0);
    query_free(q);
    q = ask("cpu{service=\"c\"}", 0, 100 * S, NULL);
    assert_ok(query_flame(q, &whole, &f, &e), &e);
    assert_int_equal(f.sum.empty.why, QUERY_NO_MATCH);
    assert_str(f.sum.empty.matcher, STR("service=\"c\""));
    query_free(q);
    q = ask("offcpu", 0, 100 * S, NULL);
    assert_ok(query_flame(q, &whole, &f, &e), &e);
    assert_int_equal(f.sum.empty.why, QUERY_TYPE_ABSENT);
    assert_true(f.sum.total == QUERY_UNKNOWN && f.n == 0);
    query_free(q);
    q = ask("cpu", -1000 * S, -900 * S, NULL);
    assert_ok(query_flame(q, &whole, &f, &e), &e);
    assert_int_equal(f.sum.empty.why, QUERY_NO_AGENT_IN_RANGE);
    assert_true(f.sum.empty.last_known);
    query_free(q);
    q = ask("cpu", 2000 * S, 3000 * S, NULL);
    assert_ok(query_flame(q, &whole, &f, &e), &e);
    assert_int_equal(f.sum.empty.why, QUERY_FUTURE);
    query_free(q);
}

static void listings(void **state)
{
    struct query *q = ask("cpu", 0, N_BATCH * SPAN * S, NULL);
    struct query_types types = {};
    struct query_names names = {};
    struct query_values values = {};
    struct query_targets targets = {};
    struct query_status status = {};
    const struct query_values_ask va = {.name = STR("host"), .limit = 1};
    uint32_t labels = 0;

    (void)state;
    assert_ok(query_types(q, &types, &e), &e);
    assert_int_equal(types.n, 1);
    assert_str(types.row[0].type.name, STR("cpu"));
    assert_true(types.row[0].builtin && types.row[0].sources >= 1);
    assert_ok(query_names(q, &names, &e), &e);
    for (uint32_t i = 0; i < names.n; i++)
        labels += !names.row[i].attribute;
    assert_int_equal(labels, 2);
    assert_ok(query_values(q, &va, &values, &e), &e);
    assert_int_equal(values.n, 1);
    assert_true(values.truncated);
    assert_str(values.value[0], STR("x"));
    assert_ok(query_targets(q, 1, 0, &targets, &e), &e);
    assert_true(targets.n == 1 && targets.truncated && targets.row[0].n_type == 1);
    assert_ok(query_targets(q, 10, targets.row[0].id, &targets, &e), &e);
    assert_true(targets.n >= 1 && !targets.truncated);
    assert_ok(query_status(q, &status, &e), &e);
    assert_int_equal(status.batches, N_BATCH);
    assert_int_equal(status.n_sender, 1);
    assert_int_equal(status.sender[0].seq, N_BATCH);
    assert_true(status.n_source >= 1 && status.source[0].state == SOURCE_OK);
    query_free(q);
}

static void nothing_ever(void **state)
{
    char empty[] = "/tmp/strata_query_XXXXXX";
    struct store_conf conf = {.decode = decode, .min_free = 1, .workers = 1};
    const struct query_flame_ask whole = {};
    struct query_flame f = {};
    struct store *keep = store;
    struct query_status status = {};
    struct err err = {};
    struct query *q;

    (void)state;
    conf.dir = mkdtemp(empty);
    assert_ok(store_open(&conf, &store, &err), &err);
    q = ask("cpu", 0, S, NULL);
    assert_ok(query_flame(q, &whole, &f, &e), &e);
    assert_int_equal(f.sum.empty.why, QUERY_NEVER_INGESTED);
    assert_ok(query_status(q, &status, &e), &e);
    assert_int_equal(status.n_source, 0);
    query_free(q);
    store = store_close(store);
    store = keep;
    assert_int_equal(test_remove_tree(empty), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),       cmocka_unit_test(trees),    cmocka_unit_test(series),
        cmocka_unit_test(by_groups),    cmocka_unit_test(evidence), cmocka_unit_test(listings),
        cmocka_unit_test(nothing_ever), cmocka_unit_test(filtered), cmocka_unit_test(differences),
    };

    return cmocka_run_group_tests(tests, fill, drop);
}
