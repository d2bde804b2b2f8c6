// SPDX-License-Identifier: Apache-2.0
#pragma once

/*
 * Batches that hold a little of everything, over several hours, and all that a store answers as
 * sorted lines: two stores, or one at two times, hold the same if their lines are equal. Included
 * by one test program each.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/buf.h"
#include "tests/unit/test_storage_lib.h"

/* ---- batches with all kinds of things ------------------------------------------------------ */

#define MIXED (UINT64_C(1) << 32) /* seeds from here on */
#define HOUR  (3600 * NS_PER_S)

enum {
    M_NONE,
    M_SERVICE,
    M_SVC,
    M_JOB,
    M_J0,
    M_J1,
    M_EXE,
    M_METRIC,
    M_UNIT,
    M_STEP,
    M_PART,
    M_KIND,
    M_TEXT,
    M_FN,
    M_N
};

struct mixed {
    struct arena *a;
    struct rnd r;
    int64_t t0; /* of its hour */
};

static real_ns some_time(struct mixed *m)
{
    return (real_ns){m->t0 + (int64_t)rnd_below(&m->r, 3000) * NS_PER_S + rnd_below(&m->r, 1000)};
}

static void mixed_tables(struct mixed *m, struct batch *b)
{
    static const char *const text[M_N] = {"",      "service", "mix",   "job", "j0",
                                          "j1",    "/bin/x",  "temp",  "C",   "train",
                                          "phase", "note",    "hello", "fn"};
    struct str *str = arena_array(m->a, struct str, M_N);
    struct batch_fn *fn = arena_array(m->a, struct batch_fn, 2);
    struct batch_frame *fr = arena_array(m->a, struct batch_frame, 2);
    struct batch_node *node = arena_array(m->a, struct batch_node, 4);
    struct batch_labels *l = arena_array(m->a, struct batch_labels, 3);
    struct batch_target *t = arena_array(m->a, struct batch_target, 3);
    static const struct batch_bin bin[1];
    static const uint32_t service[] = {M_SERVICE, M_SVC}, j0[] = {M_JOB, M_J0},
                          j1[] = {M_JOB, M_J1};

    for (uint32_t i = 0; i < M_N; i++)
        str[i] = str_c(text[i]);
    fn[1].name = M_FN;
    fr[1] = (struct batch_frame){.kind = FRAME_OTHER, .fn = 1};
    b->n_str = M_N;
    b->str = str;
    b->n_bin = 1;
    b->bin = bin;
    b->n_fn = b->n_frame = 2;
    b->fn = fn;
    b->frame = fr;
    for (uint32_t i = 1; i < 4; i++)
        node[i] = (struct batch_node){.parent = i - 1,
                                      .frame = 1,
                                      .hash = node_hash(node[i - 1].hash, batch_frame_hash(b, 1))};
    b->n_node = 4;
    b->node = node;
    b->label = (struct batch_labels){1, service};
    l[1] = (struct batch_labels){1, j0};
    l[2] = (struct batch_labels){1, j1};
    b->n_labels = 3;
    b->labels = l;
    for (uint32_t i = 1; i < 3; i++)
        t[i] = (struct batch_target){.key = {.host = {2}, .pidns = 1, .pid = 500 + i, .start = {i}},
                                     .exe = M_EXE};
    b->n_target = 3;
    b->target = t;
}

static void mixed_stream(struct mixed *m, struct batch_stream *st, bool level)
{
    uint32_t n = rnd_below(&m->r, 5);
    uint32_t *node = arena_array(m->a, uint32_t, n), *labels = arena_array(m->a, uint32_t, n);
    int64_t *value = arena_array(m->a, int64_t, n);
    real_ns *t = arena_array(m->a, real_ns, n), t0 = some_time(m);
    struct batch_loss *lost = arena_array(m->a, struct batch_loss, 1);

    *lost = (struct batch_loss){M_KIND, 3, 7};
    for (uint32_t i = 0; i < n; i++) {
        node[i] = rnd_below(&m->r, 4);
        labels[i] = rnd_below(&m->r, 3);
        value[i] = rnd_below(&m->r, 1000);
        t[i] = (real_ns){t0.v + rnd_below(&m->r, 1000) * MS};
    }
    *st = (struct batch_stream){
        .type = level ? PTYPE_LIVE : PTYPE_OFFCPU,
        .kind = level ? KIND_LEVEL : KIND_SUM,
        .target = rnd_below(&m->r, 3),
        .width = 1,
        .covers = {t0, {t0.v + NS_PER_S}},
        .state = SOURCE_OK,
        .basis = BASIS_EVERY,
        .expected = n + 3,
        .received = n,
        .n_lost = 1,
        .lost = lost,
        .rows = {.n = n, .t = level ? NULL : t, .node = node, .labels = labels, .value = value}};
}

static void mixed_beside(struct mixed *m, struct batch *b)
{
    struct batch_metric *me = arena_array(m->a, struct batch_metric, 1);
    struct batch_steps *st = arena_array(m->a, struct batch_steps, 1);
    struct batch_event *ev = arena_array(m->a, struct batch_event, 1);
    real_ns *t = arena_array(m->a, real_ns, 2), *start = arena_array(m->a, real_ns, 1);
    double *num = arena_array(m->a, double, 2);
    uint64_t *number = arena_array(m->a, uint64_t, 1);
    int64_t *dur = arena_array(m->a, int64_t, 1), *ns = arena_array(m->a, int64_t, 1);
    static const uint32_t part[] = {M_PART};

    t[0] = some_time(m);
    t[1] = (real_ns){t[0].v + 2000 * NS_PER_S}; /* often in the next hour */
    num[0] = rnd_below(&m->r, 100);
    num[1] = rnd_below(&m->r, 100);
    *me = (struct batch_metric){.name = M_METRIC,
                                .unit = M_UNIT,
                                .kind = METRIC_GAUGE,
                                .target = rnd_below(&m->r, 3),
                                .n = 2,
                                .t = t,
                                .num = num};
    *start = some_time(m);
    *number = rnd_below(&m->r, 1000000);
    *dur = *ns = NS_PER_S;
    *st = (struct batch_steps){.target = 1 + rnd_below(&m->r, 2),
                               .name = M_STEP,
                               .n = 1,
                               .number = number,
                               .start = start,
                               .dur_ns = dur,
                               .n_part = 1,
                               .part = part,
                               .part_ns = ns};
    *ev = (struct batch_event){
        .t = some_time(m), .kind = M_KIND, .text = M_TEXT, .target = rnd_below(&m->r, 3)};
    b->n_metric = b->n_steps = b->n_event = 1;
    b->metric = me;
    b->steps = st;
    b->event = ev;
}

/* Over six hours. */
static void gen_mixed(uint64_t seed, struct arena *a, struct batch *ret)
{
    struct mixed m = {.a = a, .r = {seed * 131 + 7}};
    struct batch_stream *st = arena_array(a, struct batch_stream, 2);

    m.t0 = T_BASE + (int64_t)(seed % 6) * HOUR;
    *ret =
        (struct batch){.id = {.agent = {9}, .boot = {4}, .seq = seed - MIXED + 1, .content = seed},
                       .received = {T_BASE + 8 * HOUR + (int64_t)(seed - MIXED) * MS}};
    mixed_tables(&m, ret);
    mixed_stream(&m, &st[0], false);
    mixed_stream(&m, &st[1], true);
    ret->n_stream = 2;
    ret->stream = st;
    mixed_beside(&m, ret);
}

#define COUNTED (UINT64_C(2) << 32) /* seeds from here on: one row of that weight */
static void gen_counted(uint64_t seed, struct arena *a, struct batch *ret)
{
    struct mixed m = {.a = a, .t0 = T_BASE};
    struct batch_stream *st = arena_array(a, struct batch_stream, 1);
    int64_t *value = arena_array(a, int64_t, 1);
    real_ns *t = arena_array(a, real_ns, 1);

    *value = (int64_t)(seed - COUNTED);
    t->v = T_BASE + *value * MS;
    *ret = (struct batch){.id = {.agent = {9}, .boot = {5}, .seq = seed - COUNTED, .content = seed},
                          .received = {T_BASE + HOUR}};
    mixed_tables(&m, ret);
    *st = (struct batch_stream){.type = PTYPE_OFFCPU,
                                .kind = KIND_SUM,
                                .width = 1,
                                .covers = {{T_BASE}, {T_BASE + HOUR}},
                                .state = SOURCE_OK,
                                .basis = BASIS_EVERY,
                                .expected = 1,
                                .received = 1,
                                .rows = {.n = 1, .t = t, .value = value}};
    ret->n_stream = 1;
    ret->stream = st;
}

/* As fail_msg, also from a thread of the test's own: there cmocka ends the program and keeps to
 * itself what was wrong. */
#define FAIL_LOUD(fmt, ...)                                                                        \
    do {                                                                                           \
        (void)fprintf(stderr, fmt "\n", ##__VA_ARGS__);                                            \
        fail_msg(fmt, ##__VA_ARGS__);                                                              \
    } while (0)

static void make(uint64_t seed, struct arena *a, struct batch *ret)
{
    if (seed >= COUNTED)
        gen_counted(seed, a, ret);
    else if (seed >= MIXED)
        gen_mixed(seed, a, ret);
    else
        gen_batch(seed, GEN_ROWS, a, NULL, ret);
}

static int decode(void *ctx, const struct store_entry *e, struct arena *arena, struct batch *ret,
                  struct err *err)
{
    uint64_t seed;

    (void)ctx;
    if (e->payload.n != sizeof seed)
        return err_set(err, -EINVAL, "payload of %zu bytes", e->payload.n);
    memcpy(&seed, e->payload.p, sizeof seed);
    make(seed, arena, ret);
    ret->received = e->received;
    return batch_check(ret, err);
}

[[maybe_unused]] static int append(struct fixture *f, uint64_t seed)
{
    struct err err = {};
    struct arena a;
    struct batch b;
    uint64_t lsn;
    int r;

    arena_init(&a, 1 << 24);
    make(seed, &a, &b);
    r = batch_check(&b, &err);
    if (r == 0)
        r = store_append_wait(f->s, &b, (struct str){(const char *)&seed, sizeof seed}, &lsn, &err);
    if (r < 0)
        FAIL_LOUD("append %" PRIu64 ": %s", seed, err.msg);
    arena_deinit(&a);
    return r;
}

[[maybe_unused]] static void seal_now(struct fixture *f)
{
    struct err err = {};

    if (store_seal(f->s, &err) != 0)
        FAIL_LOUD("store_seal: %s", err.msg);
}

[[maybe_unused]] static void begin(struct fixture *f)
{
    fixture_init(f);
    f->conf.decode = decode;
    fixture_open(f, 0);
}

/* ---- all that a store answers, as sorted lines --------------------------------------------- */

struct dump {
    struct store_view *v;
    struct buf b;
    uint32_t n;
    char *line[1 << 17];
    ptype_id type;
    const struct store_answer *answer;
    struct mutex mu;
    unit_i128 sum;
    uint64_t count;
};

__attribute__((format(printf, 2, 3))) static void say(struct dump *d, const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0 || d->n == sizeof d->line / sizeof *d->line)
        FAIL_LOUD("dump: %u lines", d->n);
    d->line[d->n++] = s;
}

static const char *labels_text(const struct store_labels *l)
{
    static char buf[512];
    int at = 0;

    buf[0] = '\0';
    for (uint32_t i = 0; i < l->n; i++)
        at += snprintf(buf + at, sizeof buf - (size_t)at, "%.*s=%.*s,", STR_ARG(l->v[i].name),
                       STR_ARG(l->v[i].value));
    return buf;
}

static uint64_t pid_of(const struct target_key *k)
{
    return k ? k->pid : 0;
}

static bool on_type(void *ctx, const struct store_type *t)
{
    say(ctx, "type %.*s %" PRId64 " %" PRId64, STR_ARG(t->name), t->seen.t0.v, t->seen.t1.v);
    return true;
}

static bool on_series(void *ctx, const struct store_series *s)
{
    say(ctx, "series %u %s %" PRId64 " %" PRId64, s->type, labels_text(&s->labels), s->seen.t0.v,
        s->seen.t1.v);
    return true;
}

static bool on_target(void *ctx, const struct store_target *t)
{
    say(ctx, "target %" PRIu64 " %.*s %u %" PRId64 " %" PRId64, t->key.pid, STR_ARG(t->exe),
        t->n_type, t->seen.t0.v, t->seen.t1.v);
    return true;
}

static bool on_name(void *ctx, const struct store_name *n)
{
    say(ctx, "name %.*s %" PRIu64, STR_ARG(n->name), n->values);
    return true;
}

static bool on_cover(void *ctx, const struct store_cover *c)
{
    say(ctx, "cover %u %s %" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu64 " %" PRIu64 " %u %.*s",
        c->type, labels_text(&c->labels), pid_of(c->target), c->t.t0.v, c->t.t1.v, c->expected,
        c->received, c->n_loss, STR_ARG(c->n_loss ? c->loss[0].why : (struct str){}));
    return true;
}

static bool on_metric(void *ctx, const struct store_metric *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        say(ctx, "metric %.*s %s %" PRIu64 " %" PRId64 " %g", STR_ARG(m->name),
            labels_text(&m->labels), pid_of(m->target), m->t[i].v, m->num[i]);
    for (uint32_t i = 1; i < m->n; i++)
        assert_true(m->t[i - 1].v <= m->t[i].v);
    say(ctx, "metric %.*s %" PRIu64 " n=%u", STR_ARG(m->name), pid_of(m->target), m->n);
    return true;
}

static bool on_step(void *ctx, const struct store_step *s)
{
    say(ctx, "step %.*s %s %" PRIu64 " %" PRIu64 " %" PRId64 " %.*s %" PRId64, STR_ARG(s->name),
        labels_text(&s->labels), s->target.pid, s->number, s->t.t0.v, STR_ARG(s->part[0]),
        s->part_ns[0]);
    return true;
}

static bool on_event(void *ctx, const struct store_event *e)
{
    say(ctx, "event %" PRId64 " %.*s %.*s %" PRIu64, e->t.v, STR_ARG(e->kind), STR_ARG(e->text),
        pid_of(e->target));
    return true;
}

static uint64_t stack_hash(struct dump *d, struct store_trie_id id, const struct store_trie *t,
                           uint32_t node)
{
    struct store_frame fr;

    if (node == 0)
        return 0;
    assert_int_equal(store_frame(d->v, id.epoch, t->frame[node], &fr, NULL), 0);
    return stack_step(stack_hash(d, id, t, t->parent[node]), fr.name);
}

/* Commutative: parts of one sum may come apart. */
static bool on_share(void *ctx, uint32_t worker, const struct store_share *sh)
{
    struct dump *d = ctx;
    struct store_trie t;

    (void)worker;
    assert_int_equal(store_trie(d->v, sh->trie, &t, NULL), 0);
    mutex_lock(&d->mu);
    for (uint32_t i = 0; i < sh->n; i++) {
        uint64_t h = hash_mix(stack_hash(d, sh->trie, &t, sh->node[i]) + sh->bucket * 31 +
                              (uint64_t)sh->den_ms * 7 + sh->side);

        d->sum += (sh->sum.v ? sh->sum.v[i] : sh->sum.wide[i]) * (unit_i128)(h % 1000003);
        d->count += sh->count[i] * (h % 1000003);
    }
    mutex_unlock(&d->mu);
    return true;
}

static void dump_scan(struct dump *d, ptype_id type, enum store_level level, struct interval range,
                      const char *label, const char *value)
{
    const struct store_matcher m = {.name = str_c(label), .op = STORE_EQ, .value = str_c(value)};
    const struct store_sink sink = {.share = on_share, .ctx = d};
    struct store_answer answer;
    struct arena a;
    struct err err = {};
    const struct store_query q = {
        .n_side = 1,
        .side = {{.sel = {.type = type, .n = *label ? 1 : 0, .matcher = &m}, .range = range}},
        .want = STORE_STACKS,
        .level = level,
        .at = {T_BASE + 1000 * NS_PER_S},
        .bucket_ns = 600 * NS_PER_S,
        .arena = &a};
    int r;

    arena_init(&a, 1 << 24);
    d->sum = 0;
    d->count = 0;
    r = store_scan(d->v, &q, &sink, &answer, &err);
    if (r != 0)
        FAIL_LOUD("store_scan = %d: %s", r, err.msg);
    say(d, "scan %u level %d %s=%s: %016" PRIx64 "%016" PRIx64 " %" PRIu64, type, level, label,
        value, (uint64_t)((__uint128_t)d->sum >> 64), (uint64_t)d->sum, d->count);
    arena_deinit(&a);
}

static void dump_scans(struct dump *d)
{
    const struct interval all = {{T_BASE}, {T_BASE + 7 * HOUR}};
    const struct interval some = {{T_BASE + 100 * NS_PER_S + 1}, {T_BASE + HOUR + 77 * NS_PER_S}};
    static const char *const by[][2] = {{"", ""},     {"service", "api"}, {"job", "a"},
                                        {"tid", "2"}, {"cpu", "3"},       {"pid", "101"}};

    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        dump_scan(d, PTYPE_CPU, STORE_SUM, all, by[i][0], by[i][1]);
        dump_scan(d, PTYPE_OFFCPU, STORE_SUM, all, by[i][0], by[i][1]);
        dump_scan(d, PTYPE_OFFCPU, STORE_SUM, some, by[i][0], by[i][1]);
    }
    for (int level = STORE_AVERAGE; level <= STORE_AT; level++) {
        dump_scan(d, PTYPE_LIVE, (enum store_level)level, all, "", "");
        dump_scan(d, PTYPE_LIVE, (enum store_level)level, some, "job", "j0");
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* malloced */
static char *dump_view(struct store_view *v)
{
    static struct dump d;
    struct store_ask ask = {.range = {{T_BASE}, {T_BASE + 7 * HOUR}}};
    struct err err = {};
    char *text;

    memset(&d, 0, sizeof d);
    d.v = v;
    mutex_init(&d.mu);
    buf_init(&d.b, (size_t)1 << 26);
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(store_list_types(v, &ask, on_type, &d, &err), 0);
        assert_int_equal(store_list_names(v, &ask, on_name, &d, &err), 0);
        assert_int_equal(store_list_series(v, &ask, on_series, &d, &err), 0);
        assert_int_equal(store_list_targets(v, &ask, on_target, &d, &err), 0);
        assert_int_equal(store_cover(v, &ask, on_cover, &d, &err), 0);
        assert_int_equal(store_metrics(v, &ask, on_metric, &d, &err), 0);
        assert_int_equal(store_steps(v, &ask, on_step, &d, &err), 0);
        assert_int_equal(store_events(v, &ask, on_event, &d, &err), 0);
        ask.range = (struct interval){{T_BASE + 500 * NS_PER_S}, {T_BASE + HOUR + NS_PER_S}};
    }
    dump_scans(&d);
    qsort(d.line, d.n, sizeof *d.line, by_text);
    for (uint32_t i = 0; i < d.n; i++) {
        buf_cstr(&d.b, d.line[i]);
        buf_chr(&d.b, '\n');
        free(d.line[i]);
    }
    buf_chr(&d.b, '\0');
    assert_false(d.b.failed);
    text = strdup(d.b.p);
    buf_deinit(&d.b);
    mutex_deinit(&d.mu);
    return text;
}

[[maybe_unused]] static char *dump_store(struct fixture *f)
{
    struct store_view *v = store_view_get(f->s);
    char *text = dump_view(v);

    (void)store_view_put(v);
    return text;
}

/* Frees got. */
[[maybe_unused]] static void assert_same(const char *want, char *got, const char *when)
{
    if (strcmp(want, got) != 0) {
        const char *a = want, *b = got;

        while (*a && *a == *b) {
            a++;
            b++;
        }
        while (a > want && a[-1] != '\n') {
            a--;
            b--;
        }
        fail_msg("%s: wanted\n  %.200s\ngot\n  %.200s", when, a, b);
    }
    free(got);
}
