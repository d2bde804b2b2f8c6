// SPDX-License-Identifier: Apache-2.0
/*
 * Weights from parts. Two stores take the same batches: one seals now and then, starts again, gets
 * late rows; the other keeps all in its head, whose answers test_storage_scan compares with plain
 * arrays. Whatever is asked, both say the same, bit for bit.
 * STRATA_ROUNDS: times as many questions.
 */
#include <dirent.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>

#include "storage/part/scan_cache_private.h"
#include "tests/unit/test_storage_lib.h"

#define BATCHES  80u
#define ROUNDS   250u
#define HOURS    3u
#define HOUR     (3600 * NS_PER_S)
#define READINGS 4u

/* ---- batches ------------------------------------------------------------------------------- */

/* The streams of gen_batch moved to one of three hours, one of them with variances or unknown
 * counts, and readings of a level. */
static void move(struct batch_stream *st, int64_t by)
{
    real_ns *t = (real_ns *)(uintptr_t)st->rows.t; /* ours: gen_batch made it */

    st->covers.t0.v += by;
    st->covers.t1.v += by;
    for (uint32_t i = 0; i < st->rows.n; i++)
        t[i].v += by;
}

static void vary(struct rnd *r, struct arena *a, struct batch_stream *st)
{
    uint64_t *count = (uint64_t *)(uintptr_t)st->rows.count;
    double *var;

    switch (rnd_below(r, 4)) {
    case 0: /* unknown counts */
        for (uint32_t i = 0; i < st->rows.n; i++)
            count[i] = rnd_below(r, 3) ? count[i] : 0;
        break;
    case 1:
        var = arena_array(a, double, st->rows.n);
        assert_non_null(var);
        for (uint32_t i = 0; i < st->rows.n; i++)
            var[i] = rnd_below(r, 50); /* whole numbers: sums are exact in any order */
        st->basis = BASIS_SCALED;
        st->rows.var = var;
        break;
    default:
        break;
    }
}

static void reading(struct rnd *r, struct arena *a, const struct batch *b, int64_t t0,
                    struct batch_stream *st)
{
    uint32_t n = 1 + rnd_below(r, 6), *node = arena_array(a, uint32_t, n);
    uint32_t *labels = arena_array(a, uint32_t, n);
    int64_t *value = arena_array(a, int64_t, n), len = (1 + rnd_below(r, 20000)) * MS;

    assert_true(node && labels && value);
    for (uint32_t i = 0; i < n; i++) {
        node[i] = rnd_below(r, b->n_node);
        value[i] = rnd_below(r, 100000);
        labels[i] = rnd_below(r, 4) ? 0 : rnd_below(r, b->n_labels);
    }
    t0 += rnd_below(r, MS);
    *st = (struct batch_stream){.type = PTYPE_LIVE,
                                .kind = KIND_LEVEL,
                                .target = rnd_below(r, N_PID + 1),
                                .labels = 1 + rnd_below(r, 3),
                                .width = 1,
                                .covers = {{t0}, {t0 + len}},
                                .at = {t0 + len / 2},
                                .state = SOURCE_OK,
                                .basis = BASIS_EVERY,
                                .expected = n,
                                .received = n,
                                .rows = {.n = n, .node = node, .labels = labels, .value = value}};
}

static void make(uint64_t seed, struct arena *a, struct batch *b)
{
    struct rnd r = {seed * 1000003 + 7};
    int64_t by = (int64_t)rnd_below(&r, HOURS) * HOUR;
    struct batch_stream *st = arena_array(a, struct batch_stream, 3 + READINGS);

    gen_batch(seed, GEN_ROWS, a, NULL, b);
    assert_non_null(st);
    memcpy(st, b->stream, 3 * sizeof *st);
    for (uint32_t i = 0; i < 3; i++)
        move(&st[i], by);
    vary(&r, a, &st[1]);
    vary(&r, a, &st[2]);
    for (uint32_t i = 0; i < READINGS; i++)
        reading(&r, a, b, T_BASE + by + (int64_t)rnd_below(&r, T_SPAN) * MS, &st[3 + i]);
    b->stream = st;
    b->n_stream = 3 + READINGS;
    b->received.v += HOURS * HOUR;
}

static int decode(void *ctx, const struct store_entry *e, struct arena *arena, struct batch *ret,
                  struct err *err)
{
    uint64_t seed;

    (void)ctx;
    memcpy(&seed, e->payload.p, sizeof seed);
    make(seed, arena, ret);
    ret->received = e->received;
    return batch_check(ret, err);
}

static void append(struct fixture *f, uint64_t seed)
{
    struct err err = {};
    struct batch b;
    uint64_t lsn;

    make(seed, &f->a, &b);
    assert_ok(
        store_append_wait(f->s, &b, (struct str){(const char *)&seed, sizeof seed}, &lsn, &err),
        &err);
    arena_reset(&f->a);
}

/* ---- answers ------------------------------------------------------------------------------- */

struct line {
    uint32_t svc, sub, side, bucket, node;
    char group[48];
    int64_t den, t; /* t: of rows */
    unit_i128 sum;
    uint64_t count;
    double var; /* -1: not known */
    bool unknown;
};

struct lines {
    struct line *v;
    uint32_t n, room;
    struct mutex mu;
    uint32_t *group; /* of each line: index in the answer */
};

static struct line *new_line(struct lines *l)
{
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 4096;
        l->v = xrealloc(l->v, l->room * sizeof *l->v);
        l->group = xrealloc(l->group, l->room * sizeof *l->group);
    }
    l->v[l->n] = (struct line){};
    return &l->v[l->n++];
}

static bool on_share(void *ctx, uint32_t worker, const struct store_share *sh)
{
    struct lines *l = ctx;

    (void)worker;
    mutex_lock(&l->mu);
    for (uint32_t i = 0; i < sh->n; i++) {
        struct line *x = new_line(l);

        x->svc = sh->trie.svc;
        x->sub = sh->trie.sub;
        x->side = sh->side;
        x->bucket = sh->bucket;
        x->node = sh->node[i];
        x->den = sh->den_ms;
        x->sum = sh->sum.v ? sh->sum.v[i] : sh->sum.wide[i];
        x->count = sh->count[i];
        x->var = sh->var ? sh->var[i] : -1;
        x->unknown = sh->count_unknown;
        l->group[l->n - 1] = sh->group;
    }
    mutex_unlock(&l->mu);
    return true;
}

static bool on_rows(void *ctx, uint32_t worker, const struct store_rows *r)
{
    struct lines *l = ctx;

    (void)worker;
    mutex_lock(&l->mu);
    for (uint32_t i = 0; i < r->n; i++) {
        struct line *x = new_line(l);

        assert_true(i == 0 || r->t[i - 1].v <= r->t[i].v);
        x->svc = r->trie.svc;
        x->side = r->side;
        x->node = r->node[i];
        x->t = r->t[i].v;
        x->bucket = r->cpu[i];
        x->sum = r->value.v[i];
        x->count = r->count[i];
        (void)snprintf(x->group, sizeof x->group, "%" PRIu64 " %u %.*s",
                       r->target ? r->target->pid : 0, r->tid, STR_ARG(r->thread));
        l->group[l->n - 1] = UINT32_MAX;
    }
    mutex_unlock(&l->mu);
    return true;
}

static int by_line(const void *a, const void *b)
{
    const struct line *x = a, *y = b;

#define CMP(field)                                                                                 \
    if (x->field != y->field)                                                                      \
    return x->field < y->field ? -1 : 1
    CMP(svc);
    CMP(sub);
    CMP(side);
    CMP(bucket);
    CMP(den);
    CMP(node);
    CMP(t);
    if (strcmp(x->group, y->group) != 0)
        return strcmp(x->group, y->group);
    CMP(sum);
    CMP(count);
    return 0;
}

static int ask(struct fixture *f, struct store_query *q, struct lines *l,
               struct store_answer *answer)
{
    struct store_view *v = store_view_get(f->s);
    const struct store_sink sink = {.share = on_share, .rows = on_rows, .ctx = l};
    struct err err = {};
    int r;

    arena_reset(&f->a);
    l->n = 0;
    q->arena = &f->a;
    r = store_scan(v, q, &sink, answer, &err);
    if (r != 0 && r != STORE_PARTIAL)
        fail_msg("store_scan = %d: %s", r, err.msg);
    for (uint32_t i = 0; i < l->n; i++) {
        uint32_t g = l->group[i];

        if (g == STORE_REST)
            continue;
        assert_true(g < answer->n_group);
        for (uint32_t k = 0; k < q->n_by; k++) {
            size_t n = strlen(l->v[i].group);
            (void)snprintf(l->v[i].group + n, sizeof l->v[i].group - n, "%.*s|",
                           STR_ARG(answer->group[g].value[k]));
        }
    }
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, by_line);
    (void)store_view_put(v);
    return r;
}

/* ---- questions ----------------------------------------------------------------------------- */

static int like_prefix(void *ctx, struct str value, struct err *err)
{
    (void)err;
    return str_starts(value, *(struct str *)ctx);
}

static const uint64_t *odd_nodes(void *ctx, uint32_t worker, struct store_trie_id trie)
{
    (void)worker;
    (void)trie;
    return ctx;
}

struct question {
    struct store_query q;
    struct store_matcher m[2][3];
    struct store_window w[2][4];
    struct store_group group[2];
    char text[400];
};

static const char *const names[] = {"service", "job", "pid", "tid", "cpu", "thread"};

static void ask_matchers(struct rnd *r, struct question *x, uint32_t side)
{
    static const char *const value[] = {"api", "train", "web", "unknown", "",  "a",
                                        "b",   "101",   "10",  "1",       "3", "worker"};
    bool labels = rnd_below(r, 2);
    struct store_selector *sel = &x->q.side[side].sel;

    sel->n = rnd_below(r, 3) ? rnd_below(r, 4) : 0;
    sel->matcher = x->m[side];
    for (uint32_t i = 0; i < sel->n; i++) {
        struct store_matcher *m = &x->m[side][i];

        *m = (struct store_matcher){.name = str_c(names[rnd_below(r, labels ? 2 : 6)]),
                                    .op = (enum store_op)(1 + rnd_below(r, 4)),
                                    .value = str_c(value[rnd_below(r, 12)]),
                                    .match = like_prefix};
        m->ctx = &m->value;
    }
}

static int64_t some_time(struct rnd *r)
{
    int64_t t = T_BASE + (int64_t)rnd_below(r, HOURS) * HOUR;

    switch (rnd_below(r, 4)) {
    case 0:
        return t + (rnd_below(r, 2) ? HOUR : 0);
    case 1:
        return t + (int64_t)rnd_below(r, T_SPAN / 1000) * NS_PER_S;
    default:
        return t + (int64_t)(rnd_next(r) % (uint64_t)(T_SPAN * MS));
    }
}

static struct interval some_range(struct rnd *r)
{
    int64_t a = some_time(r), b = some_time(r);

    if (rnd_below(r, 5) == 0)
        return (struct interval){{T_BASE}, {T_BASE + HOURS * HOUR}};
    return (struct interval){{a < b ? a : b}, {a < b ? b : a}};
}

static void ask_side(struct rnd *r, struct question *x, uint32_t side, uint32_t type)
{
    struct store_side *s = &x->q.side[side];

    *s = (struct store_side){.range = some_range(r)};
    ask_matchers(r, x, side);
    s->sel.type = type;
    if (x->q.level != STORE_SUM || rnd_below(r, 5))
        return;
    s->n_window = 1 + rnd_below(r, 4);
    s->window = x->w[side];
    for (uint32_t i = 0; i < s->n_window; i++) {
        uint32_t pid = 1 + rnd_below(r, N_PID);

        x->w[side][i] = (struct store_window){
            .target = {.host = {1}, .pidns = 7, .pid = 100 + pid, .start = {pid}},
            .t = some_range(r)};
    }
}

static void ask_random(struct rnd *r, struct question *x, uint64_t *odd)
{
    static const uint32_t type[] = {PTYPE_CPU, PTYPE_OFFCPU, PTYPE_IMPORTED_FIRST, PTYPE_LIVE};
    uint32_t t = type[rnd_below(r, 4)];
    int64_t len;

    *x = (struct question){};
    x->q.n_side = rnd_below(r, 3) ? 1 : 2;
    x->q.want = rnd_below(r, 3) ? STORE_STACKS : STORE_TOTALS;
    if (t == PTYPE_LIVE)
        x->q.level = (enum store_level)(STORE_AVERAGE + rnd_below(r, 3));
    else if (rnd_below(r, 8) == 0)
        x->q.want = STORE_ROWS;
    for (uint32_t i = 0; i < x->q.n_side; i++)
        ask_side(r, x, i, t);
    x->q.at.v = some_time(r);
    len = x->q.side[0].range.t1.v - x->q.side[0].range.t0.v;
    if (x->q.n_side == 2) {
        int64_t other = x->q.side[1].range.t1.v - x->q.side[1].range.t0.v;

        len = other > len ? other : len;
    }
    if (rnd_below(r, 2) && len > 0 && x->q.want != STORE_ROWS)
        x->q.bucket_ns = len / (1 + rnd_below(r, 20)) + 1;
    if (x->q.want == STORE_ROWS)
        return;
    x->q.n_by = rnd_below(r, 2) ? rnd_below(r, 3) : 0;
    for (uint32_t k = 0; k < x->q.n_by; k++)
        x->q.by[k] = str_c(names[rnd_below(r, rnd_below(r, 2) ? 2 : 6)]);
    if (x->q.n_by && rnd_below(r, 3) == 0) {
        x->q.n_group = 2;
        x->q.group = x->group;
        for (uint32_t k = 0; k < x->q.n_by; k++) {
            x->group[0].value[k] = STR("api");
            x->group[1].value[k] = STR("");
        }
    }
    if (rnd_below(r, 4) == 0) {
        x->q.nodes = odd_nodes;
        x->q.nodes_ctx = odd;
    }
}

static const char *tell(struct question *x)
{
    const struct store_query *q = &x->q;
    int n = snprintf(x->text, sizeof x->text, "type %u want %d level %d bucket %" PRId64,
                     q->side[0].sel.type, (int)q->want, (int)q->level, q->bucket_ns);

    for (uint32_t k = 0; k < q->n_by; k++)
        n += snprintf(x->text + n, sizeof x->text - (size_t)n, " by %.*s", STR_ARG(q->by[k]));
    for (uint32_t i = 0; i < q->n_side; i++) {
        n += snprintf(x->text + n, sizeof x->text - (size_t)n, "; [%" PRId64 ",%" PRId64 ") w%u",
                      (q->side[i].range.t0.v - T_BASE) / MS, (q->side[i].range.t1.v - T_BASE) / MS,
                      q->side[i].n_window);
        for (uint32_t k = 0; k < q->side[i].sel.n; k++)
            n += snprintf(x->text + n, sizeof x->text - (size_t)n, " %.*s %d '%.*s'",
                          STR_ARG(x->m[i][k].name), (int)x->m[i][k].op, STR_ARG(x->m[i][k].value));
    }
    return x->text;
}

/* ---- the test ------------------------------------------------------------------------------ */

static void compare(struct question *x, const struct lines *want, const struct lines *got)
{
    for (uint32_t i = 0; i < want->n && i < got->n; i++) {
        const struct line *a = &want->v[i], *b = &got->v[i];

        if (by_line(a, b) != 0 || a->unknown != b->unknown || a->var != b->var)
            fail_msg("line %u of %u, %u: svc %u/%u side %u/%u bucket %u/%u node %u/%u den %" PRId64
                     "/%" PRId64 " group '%s'/'%s' sum %" PRId64 "/%" PRId64 " count %" PRIu64
                     "/%" PRIu64 " unknown %d/%d var %g/%g\n%s",
                     i, want->n, got->n, a->svc, b->svc, a->side, b->side, a->bucket, b->bucket,
                     a->node, b->node, a->den, b->den, a->group, b->group, (int64_t)a->sum,
                     (int64_t)b->sum, a->count, b->count, a->unknown, b->unknown, a->var, b->var,
                     tell(x));
    }
    if (want->n != got->n)
        fail_msg("%u lines, not %u\n%s", got->n, want->n, tell(x));
}

static uint32_t times(void)
{
    const char *s = getenv("STRATA_ROUNDS");
    uint64_t n;

    return s && str_u64(str_c(s), &n) && n > 0 && n < 100000 ? (uint32_t)n : 1;
}

struct both {
    struct fixture plain, sealed;
    struct lines want, got;
    struct rnd r;
};

static void open_both(struct both *b, uint64_t seed)
{
    *b = (struct both){.r = {seed}, .want.mu = MUTEX_INIT, .got.mu = MUTEX_INIT};
    fixture_init(&b->plain);
    fixture_init(&b->sealed);
    b->plain.conf.decode = b->sealed.conf.decode = decode;
    b->sealed.conf.workers = 3;
    fixture_open(&b->plain, 0);
    fixture_open(&b->sealed, 0);
}

static void close_both(struct both *b)
{
    fixture_deinit(&b->plain);
    fixture_deinit(&b->sealed);
    free(b->want.v);
    free(b->want.group);
    free(b->got.v);
    free(b->got.group);
}

static void fill(struct both *b, uint32_t n)
{
    for (uint64_t seed = 1; seed <= n; seed++) {
        struct err err = {};

        append(&b->plain, seed);
        append(&b->sealed, seed);
        if (rnd_below(&b->r, 6) == 0)
            assert_ok(store_seal(b->sealed.s, &err), &err);
        if (rnd_below(&b->r, 25) == 0)
            fixture_reopen(&b->sealed, 0);
    }
}

static bool by_attribute(const struct question *x, uint32_t side)
{
    bool yes = false;

    for (uint32_t i = 0; i < x->q.side[side].sel.n; i++)
        yes |=
            !str_eq(x->m[side][i].name, STR("service")) && !str_eq(x->m[side][i].name, STR("job"));
    return yes;
}

static void ask_both(struct both *b, uint64_t *odd, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        struct store_answer plain, sealed;
        struct question x;

        ask_random(&b->r, &x, odd);
        assert_int_equal(ask(&b->plain, &x.q, &b->want, &plain), 0);
        assert_int_equal(ask(&b->sealed, &x.q, &b->got, &sealed), 0);
        compare(&x, &b->want, &b->got);
        for (uint32_t k = 0; k < x.q.n_side; k++) {
            if (by_attribute(&x, k)) /* what no source of the range has leaves nothing */
                continue;
            assert_int_equal(plain.side[k].series, sealed.side[k].series);
            assert_int_equal(plain.side[k].none_by, sealed.side[k].none_by);
        }
    }
}

static void test_equal(void **state)
{
    static uint64_t odd[4096];
    struct both b;

    (void)state;
    memset(odd, 0xaa, sizeof odd);
    open_both(&b, 20261130);
    fill(&b, BATCHES);
    ask_both(&b, odd, ROUNDS * times());
    close_both(&b);
}

/* All in parts, none in a head. */
static void test_all_sealed(void **state)
{
    static uint64_t odd[4096];
    struct both b;
    struct err err = {};

    (void)state;
    memset(odd, 0xaa, sizeof odd);
    open_both(&b, 7);
    fill(&b, BATCHES / 2);
    assert_ok(store_seal(b.sealed.s, &err), &err);
    ask_both(&b, odd, ROUNDS * times() / 2);
    fixture_reopen(&b.sealed, 0);
    ask_both(&b, odd, ROUNDS * times() / 4);
    close_both(&b);
}

/* Some series of whole parts, asked twice: the second time from what was kept. */
static void test_kept(void **state)
{
    static const uint32_t type[] = {PTYPE_CPU, PTYPE_OFFCPU, PTYPE_IMPORTED_FIRST};
    struct err err = {};
    struct both b;

    (void)state;
    open_both(&b, 9);
    fill(&b, BATCHES / 2);
    assert_ok(store_seal(b.sealed.s, &err), &err);
    for (uint32_t i = 0; i < 36; i++) {
        struct store_answer plain, sealed;
        struct question x = {.q = {.n_side = 1, .want = i % 2 ? STORE_STACKS : STORE_TOTALS}};
        uint64_t bytes;

        x.m[0][0] = (struct store_matcher){
            .name = STR("job"), .op = STORE_EQ, .value = str_c(job_name[i / 2 % 3])};
        x.q.side[0] = (struct store_side){.sel = {type[i / 6 % 3], 1, x.m[0]}, .range = WHOLE};
        (void)ask(&b.plain, &x.q, &b.want, &plain);
        (void)ask(&b.sealed, &x.q, &b.got, &sealed);
        compare(&x, &b.want, &b.got);
        bytes = scan_cache_bytes(atomic_load(&b.sealed.s->scan_cache));
        assert_true(bytes > 0);
        (void)ask(&b.sealed, &x.q, &b.got, &sealed);
        compare(&x, &b.want, &b.got);
        assert_int_equal(scan_cache_bytes(atomic_load(&b.sealed.s->scan_cache)), bytes);
    }
    close_both(&b);
}

/* ---- damage -------------------------------------------------------------------------------- */

/* Change the part of the first hour; returns [t0, t1) of block 1, which is of PTYPE_CPU. */
static struct interval spoil(struct fixture *f, const char *sql)
{
    struct interval t = {};
    sqlite3_stmt *st;
    char path[512];
    sqlite3 *db;
    DIR *d;

    (void)snprintf(path, sizeof path, "%s/shard/raw", f->dir);
    d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (e->d_name[0] != '.')
            (void)snprintf(path, sizeof path, "%s/shard/raw/%s", f->dir, e->d_name);
    assert_int_equal(closedir(d), 0);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_changes(db), 1);
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT t0, t1, type FROM block WHERE id = 1", -1, &st, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    t = (struct interval){{sqlite3_column_int64(st, 0)}, {sqlite3_column_int64(st, 1)}};
    assert_int_equal(sqlite3_column_int(st, 2), PTYPE_CPU);
    assert_int_equal(sqlite3_finalize(st), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return t;
}

static void check_damage(const char *sql, enum store_want want, bool by_attr)
{
    struct both b;
    struct store_answer plain, sealed;
    struct question x = {.q = {.n_side = 1, .want = want}};
    struct store_stats stats;
    struct err err = {};
    struct interval t;

    open_both(&b, 10);
    fill(&b, 20);
    assert_ok(store_seal(b.sealed.s, &err), &err);
    b.sealed.s = store_close(b.sealed.s);
    t = spoil(&b.sealed, sql);
    fixture_open(&b.sealed, 0);
    x.m[0][0] = (struct store_matcher){.name = STR("cpu"), .op = STORE_NE, .value = STR("x")};
    x.q.side[0] = (struct store_side){.sel = {PTYPE_CPU, by_attr, x.m[0]}, .range = WHOLE};
    assert_int_equal(ask(&b.sealed, &x.q, &b.got, &sealed), STORE_PARTIAL);
    assert_int_equal(sealed.n_damage, 1);
    assert_int_equal(sealed.parts_unreadable, 1);
    assert_true(sealed.damage[0].t.t0.v == t.t0.v && sealed.damage[0].t.t1.v == t.t1.v);
    assert_true(sealed.damage[0].what.n > 0);
    store_stats(b.sealed.s, &stats);
    assert_int_equal(stats.damaged_blocks, 1);
    assert_true(b.got.n > 0);
    x.q.side[0].range = (struct interval){t.t1, WHOLE.t1}; /* beside it all is there */
    assert_int_equal(ask(&b.sealed, &x.q, &b.got, &sealed), 0);
    (void)ask(&b.plain, &x.q, &b.want, &plain);
    compare(&x, &b.want, &b.got);
    close_both(&b);
}

static void test_damage(void **state)
{
    (void)state;
    check_damage("UPDATE cols SET data = zeroblob(length(data)) WHERE id = 1", STORE_STACKS, true);
    check_damage("UPDATE cols SET sum = sum + 1 WHERE id = 1", STORE_TOTALS, true);
    check_damage("UPDATE summary SET data = zeroblob(length(data)) WHERE id = 1", STORE_STACKS,
                 false);
    check_damage("DELETE FROM summary WHERE id = 1", STORE_STACKS, false);
}

/* Where a summary says all that is asked it is what is read: the block's columns are gone, and
 * nobody notices. Without it they are, and what they held is named. */
static void test_summary_is_enough(void **state)
{
    static const enum store_want want[] = {STORE_STACKS, STORE_TOTALS};

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct question x = {.q = {.n_side = 1, .want = want[i]}};
        struct store_answer answer;
        struct interval t;
        struct err err = {};
        struct both b;

        open_both(&b, 10);
        fill(&b, 20);
        assert_ok(store_seal(b.sealed.s, &err), &err);
        b.sealed.s = store_close(b.sealed.s);
        t = spoil(&b.sealed, "UPDATE cols SET data = zeroblob(length(data)) WHERE id = 1");
        fixture_open(&b.sealed, 0);
        x.q.side[0] = (struct store_side){.sel = {.type = PTYPE_CPU}, .range = WHOLE};
        assert_int_equal(ask(&b.sealed, &x.q, &b.got, &answer), 0);
        (void)ask(&b.plain, &x.q, &b.want, &answer);
        compare(&x, &b.want, &b.got);
        x.q.side[0].range.t0.v = t.t0.v + MS; /* a cut needs the rows */
        assert_int_equal(ask(&b.sealed, &x.q, &b.got, &answer), STORE_PARTIAL);
        assert_int_equal(answer.n_damage, 1);
        close_both(&b);
    }
}

/* A scan over parts ends as it is told to. */
static void test_ends(void **state)
{
    struct both b;
    struct store_view *v;
    struct store_query q = {
        .n_side = 1,
        .side = {{.sel = {.type = PTYPE_CPU}, .range = {{T_BASE + MS}, {T_BASE + HOURS * HOUR}}}},
        .want = STORE_STACKS};
    atomic_bool cancel = true;
    struct store_answer answer;
    struct store_sink sink = {.share = on_share, .ctx = &b.got};
    struct err err = {};

    (void)state;
    open_both(&b, 8);
    fill(&b, 20);
    assert_ok(store_seal(b.sealed.s, &err), &err);
    v = store_view_get(b.sealed.s);
    q.arena = &b.sealed.a;
    q.cancel = &cancel;
    assert_int_equal(store_scan(v, &q, &sink, &answer, &err), -ECANCELED);
    q.cancel = NULL;
    q.deadline = (mono_ns){1};
    err = (struct err){};
    assert_int_equal(store_scan(v, &q, &sink, &answer, &err), -ETIMEDOUT);
    q.deadline = (mono_ns){};
    q.mem_max = 4096;
    err = (struct err){};
    assert_int_equal(store_scan(v, &q, &sink, &answer, &err), -ENOMEM);
    (void)store_view_put(v);
    close_both(&b);
}

/* Whichever allocation fails: an error, or the whole answer. */
static void test_memory(void **state)
{
    struct both b;
    struct question x = {.q = {.n_side = 1, .want = STORE_STACKS, .n_by = 1}};
    struct store_answer answer;
    struct err err = {};
    uint32_t passed = 0, failed = 0;

    (void)state;
    open_both(&b, 11);
    fill(&b, 20);
    assert_ok(store_seal(b.sealed.s, &err), &err);
    x.m[0][0] = (struct store_matcher){.name = STR("pid"), .op = STORE_NE, .value = STR("102")};
    x.q.side[0] = (struct store_side){.sel = {PTYPE_CPU, 1, x.m[0]}, .range = WHOLE};
    x.q.by[0] = STR("job");
    assert_int_equal(ask(&b.plain, &x.q, &b.want, &answer), 0);
    for (uint64_t n = 1; passed < 50; n++) { /* some failures do no harm */
        int r;
        struct store_view *v = store_view_get(b.sealed.s);
        const struct store_sink sink = {.share = on_share, .ctx = &b.got};

        arena_reset(&b.sealed.a);
        b.got.n = 0;
        x.q.arena = &b.sealed.a;
        err = (struct err){};
        mem_fail_nth(n);
        r = store_scan(v, &x.q, &sink, &answer, &err);
        mem_fail_nth(0);
        assert_true(r == 0 || (r == -ENOMEM && err.code == r));
        passed = r == 0 ? passed + 1 : 0;
        failed += r != 0;
        (void)store_view_put(v);
    }
    assert_true(failed > 20);
    assert_int_equal(ask(&b.sealed, &x.q, &b.got, &answer), 0);
    compare(&x, &b.want, &b.got);
    close_both(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_all_sealed),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_summary_is_enough),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_memory),
    };

    store_tuning.scan_rows = 50; /* several workers */
    store_tuning.cache_rows = 1;
    store_tuning.seal_asked = true; /* not by time */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
