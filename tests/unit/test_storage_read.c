// SPDX-License-Identifier: Apache-2.0
/* Levels, coverage and loss, what stands beside profiles, and the listings: a few batches by hand,
 * each answer known. */
#include "tests/unit/test_storage_lib.h"

enum {
    S_NONE,
    S_SERVICE,
    S_API,
    S_WEB,
    S_HOST,
    S_H1,
    S_FN,
    S_RING,
    S_METRIC,
    S_WATT,
    S_STEP,
    S_IDLE,
    S_KIND,
    S_TEXT,
    S_EXE,
    S_EXE2,
    S_PAUSED,
    S_LOADER,
    N_S
};

static const struct str text[N_S] = {
    [S_SERVICE] = STR("service"), [S_API] = STR("api"),       [S_WEB] = STR("web"),
    [S_HOST] = STR("host"),       [S_H1] = STR("h1"),         [S_FN] = STR("main"),
    [S_RING] = STR("ring_full"),  [S_METRIC] = STR("power"),  [S_WATT] = STR("milliwatts"),
    [S_STEP] = STR("step"),       [S_IDLE] = STR("idle"),     [S_KIND] = STR("restart"),
    [S_TEXT] = STR("dur=1s"),     [S_EXE] = STR("/bin/one"),  [S_EXE2] = STR("/bin/two"),
    [S_PAUSED] = STR("budget"),   [S_LOADER] = STR("loader"),
};

static const uint32_t host_label[] = {S_HOST, S_H1}, api_label[] = {S_SERVICE, S_API},
                      web_label[] = {S_SERVICE, S_WEB};
static const struct batch_labels labels[] = {{}, {1, api_label}, {1, web_label}};
static const struct batch_bin bin[] = {{}};
static const struct batch_fn fn[] = {{}, {.name = S_FN}};
static const struct batch_frame frame[] = {{}, {.kind = FRAME_OTHER, .fn = 1}};
static struct batch_node node[] = {{}, {0, 1, 0}};
static struct batch_target target[] = {{},
                                       {.key = {.pid = 11, .start = {1}}, .exe = S_EXE},
                                       {.key = {.pid = 22, .start = {2}}, .exe = S_EXE}};

#define S (NS_PER_S)
#define AT(a, b)                                                                                   \
    {                                                                                              \
        {(a)*S},                                                                                   \
        {                                                                                          \
            (b) * S                                                                                \
        }                                                                                          \
    }

/* One stream, rows of node 1. */
static struct batch one(uint64_t seq, const struct batch_stream *st, uint32_t n)
{
    node[1].hash = node_hash(0, 12345);
    return (struct batch){.id = {.agent = {5}, .seq = seq, .content = seq},
                          .received = {1000 * S + (int64_t)seq},
                          .clock = {.sent = {999 * S}},
                          .label = {1, host_label},
                          .n_str = N_S,
                          .str = text,
                          .n_bin = 1,
                          .bin = bin,
                          .n_fn = 2,
                          .fn = fn,
                          .n_frame = 2,
                          .frame = frame,
                          .n_node = 2,
                          .node = node,
                          .n_target = 3,
                          .target = target,
                          .n_labels = 3,
                          .labels = labels,
                          .n_stream = n,
                          .stream = st};
}

static const struct batch *kept[32]; /* for decoding: by payload */

static int decode(void *ctx, const struct store_entry *e, struct arena *arena, struct batch *ret,
                  struct err *err)
{
    (void)ctx;
    (void)arena;
    (void)err;
    *ret = *kept[(unsigned char)e->payload.p[0]];
    return 0;
}

static void put(struct fixture *f, const struct batch *b)
{
    static uint8_t seq[32];
    struct err err = {};
    uint64_t lsn;

    seq[b->id.seq] = (uint8_t)b->id.seq;
    kept[b->id.seq] = b;
    assert_ok(batch_check(b, &err), &err);
    assert_ok(store_append_wait(f->s, b, (struct str){(char *)&seq[b->id.seq], 1}, &lsn, &err),
              &err);
}

static void begin(struct fixture *f)
{
    fixture_init(f);
    f->conf.decode = decode;
    fixture_open(f, 0);
}

/* ---- levels -------------------------------------------------------------------------------- */

struct level {
    unit_i128 sum[8];
    int64_t den[8];
    uint32_t n;
};

static bool on_level(void *ctx, uint32_t worker, const struct store_share *sh)
{
    struct level *l = ctx;

    (void)worker;
    assert_int_equal(sh->n, 1);
    assert_true(sh->bucket < 8);
    l->sum[sh->bucket] += sh->sum.v ? sh->sum.v[0] : sh->sum.wide[0];
    assert_true(l->den[sh->bucket] == 0 || l->den[sh->bucket] == sh->den_ms);
    l->den[sh->bucket] = sh->den_ms;
    l->n++;
    return true;
}

static struct level ask_level(struct fixture *f, enum store_level level, struct interval range,
                              int64_t at, int64_t bucket_ns)
{
    struct store_view *v = store_view_get(f->s);
    struct level l = {};
    const struct store_sink sink = {.share = on_level, .ctx = &l};
    struct store_query q = {.n_side = 1,
                            .side = {{.sel = {.type = PTYPE_LIVE}, .range = range}},
                            .want = STORE_TOTALS,
                            .level = level,
                            .at = {at},
                            .bucket_ns = bucket_ns,
                            .arena = &f->a};
    struct store_answer answer;
    struct err err = {};

    assert_ok(store_scan(v, &q, &sink, &answer, &err), &err);
    v = store_view_put(v);
    return l;
}

static const uint32_t leaf[] = {1};

/* Readings of two processes of one service, 10 s each, 5 s apart; the second reading of process 22
 * is empty: it freed everything. */
static void test_levels(void **state)
{
    static const int64_t v100[] = {100}, v300[] = {300}, v50[] = {50};
#define READING(p, a, b, rows_)                                                                    \
    {                                                                                              \
        .type = PTYPE_LIVE, .kind = KIND_LEVEL, .target = (p), .labels = 1, .width = 1,            \
        .covers = AT(a, b), .at = {(a)*S}, .state = SOURCE_OK, .basis = BASIS_EVERY, .rows = rows_ \
    }
#define ROW(x)                                                                                     \
    {                                                                                              \
        .n = 1, .node = leaf, .value = (x)                                                         \
    }
    static const struct batch_stream st[] = {
        READING(1, 0, 10, ROW(v100)),
        READING(1, 10, 20, ROW(v300)),
        READING(2, 5, 15, ROW(v50)),
        READING(2, 15, 25, {}),
    };
    struct fixture f;
    struct batch b = one(1, st, 4);
    struct level l;

    (void)state;
    begin(&f);
    put(&f, &b);
    for (int again = 0; again < 2; again++) {
        l = ask_level(&f, STORE_AVERAGE, (struct interval)AT(0, 20), 0, 0);
        assert_int_equal(l.den[0], 20000);
        assert_true(l.sum[0] == 100 * 10000 + 300 * 10000 + 50 * 10000);
        l = ask_level(&f, STORE_AVERAGE, (struct interval)AT(8, 12), 0, 0);
        assert_int_equal(l.den[0], 4000);
        assert_true(l.sum[0] == 100 * 2000 + 300 * 2000 + 50 * 4000);
        l = ask_level(&f, STORE_AVERAGE, (struct interval)AT(0, 20), 0, 5 * S);
        assert_true(l.sum[0] == 100 * 5000 && l.den[0] == 5000);
        assert_true(l.sum[1] == 100 * 5000 + 50 * 5000);
        assert_true(l.sum[2] == 300 * 5000 + 50 * 5000);
        assert_true(l.sum[3] == 300 * 5000 && l.den[3] == 5000);
        l = ask_level(&f, STORE_NOW, (struct interval)AT(0, 12), 0, 0);
        assert_true(l.sum[0] == 300 + 50 && l.den[0] == 1);
        l = ask_level(&f, STORE_NOW, (struct interval)AT(0, 100), 0, 0);
        assert_true(l.sum[0] == 300); /* not the 50 before it was freed */
        l = ask_level(&f, STORE_NOW, (struct interval)AT(0, 20), 0, 10 * S);
        assert_true(l.sum[0] == 100 + 50 && l.sum[1] == 300);
        l = ask_level(&f, STORE_AT, (struct interval)AT(0, 100), 7 * S, 0);
        assert_true(l.sum[0] == 150);
        l = ask_level(&f, STORE_AT, (struct interval)AT(0, 100), 20 * S, 0);
        assert_int_equal(l.n, 0); /* only the empty one holds */
        fixture_reopen(&f, 0);
    }
    fixture_deinit(&f);
}

/* A process that went long ago is not there "now". */
static void test_level_gone(void **state)
{
    static const int64_t v7[] = {7}, v9[] = {9};
    static const struct batch_stream st[] = {READING(1, 0, 10, ROW(v7)),
                                             READING(2, 100, 110, ROW(v9))};
    struct fixture f;
    struct batch b = one(1, st, 2);

    (void)state;
    begin(&f);
    put(&f, &b);
    assert_true(ask_level(&f, STORE_NOW, (struct interval)AT(0, 200), 0, 0).sum[0] == 9);
    assert_true(ask_level(&f, STORE_NOW, (struct interval)AT(0, 50), 0, 0).sum[0] == 7);
    fixture_deinit(&f);
}

/* ---- coverage ------------------------------------------------------------------------------ */

struct covers {
    uint32_t n, states;
    int64_t len;
    uint64_t expected, received, lost;
    int64_t weight;
    uint64_t scope;
    bool ended;
};

static bool on_cover(void *ctx, const struct store_cover *c)
{
    struct covers *l = ctx;

    l->len += c->t.t1.v - c->t.t0.v;
    l->states |= 1u << c->state;
    if (c->state == SOURCE_OK) {
        l->expected += c->expected;
        l->received += c->received;
        for (uint32_t i = 0; i < c->n_loss; i++) {
            assert_str(c->loss[i].why, STR("ring_full"));
            l->lost += c->loss[i].n;
            l->weight += c->loss[i].weight;
        }
        assert_int_equal(c->skew_ns, S + 1);
        assert_int_equal(c->labels.n, 2);
        assert_str(c->labels.v[0].name, STR("host"));
        assert_str(c->labels.v[1].value, STR("api"));
        assert_int_equal(c->target->pid, 11);
    } else {
        assert_str(c->why, STR("budget"));
        assert_int_equal(c->expected, BATCH_UNKNOWN);
    }
    l->ended |= c->ended;
    l->scope = c->scope;
    l->n++;
    return true;
}

static struct covers ask_cover(struct fixture *f, struct interval range, struct str name,
                               struct str value)
{
    const struct store_matcher m = {.name = name, .op = STORE_EQ, .value = value};
    struct store_ask ask = {.sel = {.type = PTYPE_CPU, .n = name.n > 0, .matcher = &m},
                            .range = range};
    struct store_view *v = store_view_get(f->s);
    struct covers l = {};
    struct err err = {};

    assert_ok(store_cover(v, &ask, on_cover, &l, &err), &err);
    v = store_view_put(v);
    return l;
}

static void test_cover(void **state)
{
    static const struct batch_loss lost[] = {{.why = S_RING, .n = 3, .weight = 30}};
    static const uint64_t count[] = {5};
    static const struct batch_stream st[] = {
        {.type = PTYPE_CPU,
         .kind = KIND_SUM,
         .target = 1,
         .labels = 1,
         .width = 1,
         .covers = AT(10, 20),
         .state = SOURCE_OK,
         .basis = BASIS_PERIODIC,
         .period = 10,
         .expected = 8,
         .received = 5,
         .n_lost = 1,
         .lost = lost,
         .rows = {.n = 1, .node = leaf, .count = count}},
        {.type = PTYPE_CPU,
         .kind = KIND_SUM,
         .target = 1,
         .labels = 1,
         .width = 1,
         .covers = AT(20, 30),
         .state = SOURCE_PAUSED,
         .state_why = S_PAUSED,
         .expected = BATCH_UNKNOWN},
    };
    struct fixture f;
    struct batch b = one(1, st, 2);
    struct covers all, part, sum = {};

    (void)state;
    begin(&f);
    target[1].flags = TARGET_EXITED;
    put(&f, &b);
    all = ask_cover(&f, (struct interval)AT(0, 100), STR(""), STR(""));
    assert_int_equal(all.n, 2);
    assert_int_equal(all.len, 20 * S);
    assert_int_equal(all.states, 1u << SOURCE_OK | 1u << SOURCE_PAUSED);
    assert_int_equal(all.expected, 8);
    assert_int_equal(all.received, 5);
    assert_int_equal(all.lost, 3);
    assert_int_equal(all.weight, 30);
    assert_true(all.ended);
    for (int64_t t = 9; t < 32; t++) { /* cut anywhere: the parts add up */
        part = ask_cover(&f, (struct interval)AT(t, t + 1), STR("pid"), STR("11"));
        if (t < 20) /* and each is what was received and what was lost */
            assert_int_equal(part.expected, part.received + part.lost);
        sum.len += part.len;
        sum.expected += part.expected;
        sum.received += part.received;
        sum.lost += part.lost;
        sum.weight += part.weight;
    }
    assert_int_equal(sum.len, 20 * S);
    assert_int_equal(sum.expected, 8);
    assert_int_equal(sum.received, 5);
    assert_int_equal(sum.lost, 3);
    assert_int_equal(sum.weight, 30);
    assert_int_equal(ask_cover(&f, (struct interval)AT(0, 100), STR("pid"), STR("22")).n, 0);
    assert_int_equal(ask_cover(&f, (struct interval)AT(0, 100), STR("service"), STR("web")).n, 0);
    assert_int_equal(ask_cover(&f, (struct interval)AT(0, 10), STR(""), STR("")).n, 0);
    target[1].flags = 0;
    fixture_deinit(&f);
}

/* ---- listings ------------------------------------------------------------------------------ */

struct listed {
    char text[512];
    uint32_t n;
};

static void say(struct listed *l, struct str s)
{
    size_t at = strlen(l->text);

    (void)snprintf(l->text + at, sizeof l->text - at, "%s%.*s", at ? " " : "", STR_ARG(s));
    l->n++;
}

static bool on_type(void *ctx, const struct store_type *t)
{
    say(ctx, t->name);
    return true;
}

static bool on_name(void *ctx, const struct store_name *n)
{
    char buf[64];
    int len = snprintf(buf, sizeof buf, "%.*s%s=%d", STR_ARG(n->name), n->attribute ? "*" : "",
                       (int)n->values);

    say(ctx, (struct str){buf, (size_t)len});
    return true;
}

static bool on_value(void *ctx, struct str value)
{
    say(ctx, value);
    return true;
}

static bool on_series(void *ctx, const struct store_series *s)
{
    char buf[64];
    int len = snprintf(buf, sizeof buf, "%u:%.*s[%d,%d)", s->type, STR_ARG(s->labels.v[1].value),
                       (int)(s->seen.t0.v / S), (int)(s->seen.t1.v / S));

    assert_int_equal(s->labels.n, 2);
    say(ctx, (struct str){buf, (size_t)len});
    return true;
}

static bool on_target(void *ctx, const struct store_target *t)
{
    char buf[96];
    int len = snprintf(buf, sizeof buf, "%d:%.*s:%u", (int)t->key.pid, STR_ARG(t->exe), t->n_type);

    say(ctx, (struct str){buf, (size_t)len});
    return true;
}

#define CPU_STREAM(p, l, a, b, ...)                                                                \
    {                                                                                              \
        .type = PTYPE_CPU, .kind = KIND_SUM, .target = (p), .labels = (l), .width = 1,             \
        .covers = AT(a, b), .state = SOURCE_OK, .basis = BASIS_PERIODIC, .period = 10, .rows = {   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static void test_lists(void **state)
{
    static const uint32_t thread[] = {S_LOADER}, tid[] = {7}, cpu[] = {3};
    static const struct batch_stream st[] = {
        CPU_STREAM(1, 1, 0, 10, .n = 1, .node = leaf, .thread = thread, .tid = tid, .cpu = cpu),
        CPU_STREAM(2, 2, 20, 30, .n = 0), /* covered and zero */
        {.type = PTYPE_OFFCPU,
         .kind = KIND_SUM,
         .target = 2,
         .labels = 2,
         .width = 1,
         .covers = AT(40, 50),
         .state = SOURCE_OK,
         .period = 5,
         .rows = {.n = 1, .node = leaf}},
    };
    struct fixture f;
    struct batch b = one(1, st, 3), c;
    struct store_view *v;
    struct err err = {};
    struct store_ask all = {.range = AT(0, 100)}, ask = all;
    struct listed l = {};

    (void)state;
    begin(&f);
    put(&f, &b);
    v = store_view_get(f.s);
#define LIST(kind, asked, want)                                                                    \
    do {                                                                                           \
        l = (struct listed){};                                                                     \
        assert_ok(store_list_##kind##s(v, &(asked), on_##kind, &l, &err), &err);                   \
        assert_string_equal(l.text, want);                                                         \
    } while (0)
#define store_list_seriess store_list_series
    LIST(type, all, "cpu offcpu");
    LIST(name, all, "cpu*=1 host=1 pid*=2 service=2 target*=2 thread*=1 tid*=1");
    LIST(series, all, "1:api[0,0) 1:web[20,30) 2:web[40,40)");
    LIST(target, all, "22:/bin/one:2 11:/bin/one:1");
    ask.name = STR("service");
    LIST(value, ask, "api web");
    ask.after = STR("api");
    LIST(value, ask, "web");
    ask = all;
    ask.name = STR("pid");
    LIST(value, ask, "11 22");
    ask.range = (struct interval)AT(0, 15);
    LIST(value, ask, "11");
    ask.sel = (struct store_selector){.n = 1,
                                      .matcher = &(struct store_matcher){
                                          .name = STR("thread"), .op = STORE_NE, .value = STR("")}};
    LIST(value, ask, "11");
    ask = all;
    ask.sel.type = PTYPE_OFFCPU;
    LIST(series, ask, "2:web[40,40)");

    /* exec: a new name in new views, the old one in that of before */
    target[2].exe = S_EXE2;
    c = one(2, st, 3);
    put(&f, &c);
    LIST(target, all, "22:/bin/one:2 11:/bin/one:1");
    v = store_view_put(v);
    v = store_view_get(f.s);
    LIST(target, all, "22:/bin/two:2 11:/bin/one:1");
    v = store_view_put(v);
    target[2].exe = S_EXE;
    fixture_deinit(&f);
}

/* ---- beside profiles ----------------------------------------------------------------------- */

static bool on_metric(void *ctx, const struct store_metric *m)
{
    uint32_t *n = ctx;

    assert_str(m->name, STR("power"));
    assert_str(m->unit, STR("milliwatts"));
    assert_int_equal(m->target->pid, 11);
    for (uint32_t i = 1; i < m->n; i++)
        assert_true(m->t[i - 1].v < m->t[i].v);
    for (uint32_t i = 0; i < m->n; i++)
        assert_true(m->num[i] == (double)(m->t[i].v / S) * 2.0);
    *n += m->n;
    return true;
}

static bool on_step(void *ctx, const struct store_step *s)
{
    struct listed *l = ctx;
    char buf[64];
    int len = snprintf(buf, sizeof buf, "%d:%d+%d:%d", (int)s->target.pid, (int)s->number,
                       (int)((s->t.t1.v - s->t.t0.v) / S), (int)s->part_ns[0]);

    assert_str(s->part[0], STR("idle"));
    say(l, (struct str){buf, (size_t)len});
    return true;
}

static bool on_event(void *ctx, const struct store_event *e)
{
    char buf[96];
    int len = snprintf(buf, sizeof buf, "%d:%.*s:%.*s", (int)(e->t.v / S), STR_ARG(e->kind),
                       STR_ARG(e->text));

    say(ctx, (struct str){buf, (size_t)len});
    return true;
}

static void test_beside(void **state)
{
    static const real_ns t[] = {{30 * S}, {10 * S}, {20 * S}};
    static const double num[] = {60, 20, 40};
    static const struct batch_metric metric[] = {{.name = S_METRIC,
                                                  .unit = S_WATT,
                                                  .kind = METRIC_GAUGE,
                                                  .target = 1,
                                                  .n = 3,
                                                  .t = t,
                                                  .num = num}};
    static const uint64_t number[] = {2, 1};
    static const real_ns start[] = {{20 * S}, {10 * S}};
    static const int64_t dur[] = {3 * S, 4 * S}, part_ns[] = {5, -1};
    static const uint32_t part[] = {S_IDLE};
    static const struct batch_steps steps[] = {{.target = 2,
                                                .name = S_STEP,
                                                .n = 2,
                                                .number = number,
                                                .start = start,
                                                .dur_ns = dur,
                                                .n_part = 1,
                                                .part = part,
                                                .part_ns = part_ns}};
    static const struct batch_event event[] = {{.t = {50 * S}, .kind = S_KIND, .text = S_TEXT},
                                               {.t = {40 * S}, .kind = S_KIND, .text = S_TEXT}};
    static const struct seq_range dropped[] = {{3, 7}};
    struct fixture f;
    struct batch b = one(1, NULL, 0);
    struct store_view *v;
    struct err err = {};
    struct store_ask all = {.range = AT(0, 2000)}, ask = all;
    struct listed l = {};
    uint32_t n = 0;

    (void)state;
    begin(&f);
    b.n_metric = b.n_steps = b.n_dropped = 1;
    b.metric = metric;
    b.steps = steps;
    b.n_event = 2;
    b.event = event;
    b.dropped = dropped;
    put(&f, &b);
    v = store_view_get(f.s);
    assert_ok(store_metrics(v, &all, on_metric, &n, &err), &err);
    assert_int_equal(n, 3);
    ask.range = (struct interval)AT(10, 30);
    assert_ok(store_metrics(v, &ask, on_metric, &n, &err), &err);
    assert_int_equal(n, 5);
    ask.name = STR("other");
    assert_ok(store_metrics(v, &ask, on_metric, &n, &err), &err);
    assert_int_equal(n, 5);
    assert_ok(store_steps(v, &all, on_step, &l, &err), &err);
    assert_string_equal(l.text, "22:1+4:-1 22:2+3:5");
    l = (struct listed){};
    ask = all;
    ask.range = (struct interval)AT(13, 14);
    assert_ok(store_steps(v, &ask, on_step, &l, &err), &err);
    assert_string_equal(l.text, "22:1+4:-1");
    l = (struct listed){};
    assert_ok(store_events(v, &all, on_event, &l, &err), &err);
    assert_string_equal(l.text,
                        "40:restart:dur=1s 50:restart:dur=1s 1000:spool_drop:first=3 last=7");
    ask.sel = (struct store_selector){
        .n = 1,
        .matcher = &(struct store_matcher){.name = STR("pid"), .op = STORE_EQ, .value = STR("22")}};
    l = (struct listed){};
    assert_ok(store_steps(v, &ask, on_step, &l, &err), &err);
    assert_int_equal(l.n, 1);
    assert_ok(store_metrics(v, &ask, on_metric, &n, &err), &err);
    assert_int_equal(n, 5);
    v = store_view_put(v);
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels), cmocka_unit_test(test_level_gone),
        cmocka_unit_test(test_cover),  cmocka_unit_test(test_lists),
        cmocka_unit_test(test_beside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
