// SPDX-License-Identifier: Apache-2.0
/* What a store is made of, a look at it without writing, and copies of it. */
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/thread.h"
#include "tests/unit/test_storage_lib.h"

/* ---- helpers --------------------------------------------------------------------------------- */

struct total {
    uint64_t rows, count;
    unit_i128 value;
    uint64_t parts, blocks, bytes;
};

static struct total oracle_total(const struct oracle *o)
{
    struct total t = {.rows = o->n};

    for (uint32_t i = 0; i < o->n; i++) {
        t.count += o->v[i].count;
        t.value += o->v[i].value;
    }
    return t;
}

static bool on_rows(void *ctx, const struct store_rows *rows)
{
    struct total *t = ctx;

    for (uint32_t i = 0; i < rows->n; i++) {
        t->rows++;
        t->count += rows->count[i];
        t->value += rows->value.wide ? rows->value.wide[i] : rows->value.v[i];
        assert_true(rows->t[i].v % NS_PER_MS == 0);
    }
    assert_true(rows->n > 0 && rows->trie.svc > 0);
    return true;
}

struct parts {
    struct store_part v[64];
    char file[64][80];
    uint32_t n;
};

static bool on_part(void *ctx, const struct store_part *p)
{
    struct parts *x = ctx;

    assert_true(x->n < 64);
    (void)snprintf(x->file[x->n], sizeof x->file[0], "%.*s", STR_ARG(p->file));
    x->v[x->n++] = *p;
    return true;
}

/* Every row of every block of every part. */
static struct total all_rows(struct store *s)
{
    struct store_view *v = store_view_get(s);
    struct parts p = {};
    struct total t = {};
    struct err err = {};

    assert_ok(store_list_parts(v, on_part, &p, &err), &err);
    for (uint32_t i = 0; i < p.n; i++) {
        uint64_t before = t.rows;

        for (uint64_t b = 1; b <= p.v[i].blocks; b++)
            assert_ok(store_cat(v, p.v[i].id, b, on_rows, &t, &err), &err);
        assert_int_equal(t.rows - before, p.v[i].rows);
        assert_int_equal(store_cat(v, p.v[i].id, p.v[i].blocks + 1, on_rows, &t, NULL), -ENOENT);
        t.blocks += p.v[i].blocks;
        t.bytes += p.v[i].bytes;
        assert_true(p.v[i].sealed && p.v[i].id > 0);
        assert_true(i == 0 || p.v[i - 1].period.t0.v <= p.v[i].period.t0.v);
    }
    t.parts = p.n;
    assert_int_equal(store_cat(v, 999999, 1, on_rows, &t, NULL), -ENOENT);
    (void)store_view_put(v);
    return t;
}

static void assert_total(const struct total *a, const struct total *b)
{
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->count, b->count);
    assert_true(a->value == b->value);
}

static struct store *open_read_only(const char *dir)
{
    const struct store_conf conf = {.dir = dir, .read_only = true, .workers = 1};
    struct store *s = NULL;
    struct err err = {};

    assert_ok(store_open(&conf, &s, &err), &err);
    return s;
}

static unit_i128 scan_total(struct store *s, ptype_id type)
{
    static struct sums sum;
    const struct store_sink sink = {.share = sums_share, .ctx = &sum};
    struct store_view *v = store_view_get(s);
    struct arena a;
    struct store_query q = {.n_side = 1,
                            .side = {{.sel = {.type = type}, .range = WHOLE}},
                            .want = STORE_TOTALS,
                            .arena = &a};
    struct store_answer answer;
    struct err err = {};

    memset(&sum, 0, sizeof sum);
    arena_init(&a, 1 << 20);
    assert_ok(store_scan(v, &q, &sink, &answer, &err), &err);
    arena_deinit(&a);
    (void)store_view_put(v);
    return sum.value[0][0][0];
}

/* Of the first n rows of the oracle. */
static unit_i128 oracle_of(const struct oracle *o, uint32_t n, ptype_id type)
{
    unit_i128 v = 0;

    for (uint32_t i = 0; i < n; i++)
        v += o->v[i].type == type ? o->v[i].value : 0;
    return v;
}

/* ---- listings -------------------------------------------------------------------------------- */

struct sizes {
    uint32_t n;
    uint64_t files, nodes, count_cells;
    struct str last;
    char text[64];
};

static bool on_size(void *ctx, const struct store_size *x)
{
    struct sizes *s = ctx;

    assert_true(x->n > 0);
    assert_true(s->n == 0 || str_cmp(s->last, x->what) < 0); /* by what, none twice */
    (void)snprintf(s->text, sizeof s->text, "%.*s", STR_ARG(x->what));
    s->last = str_c(s->text);
    s->n++;
    if (str_eq(x->what, STR("part files")))
        s->files = x->stored;
    if (str_eq(x->what, STR("dict node")))
        s->nodes = x->n;
    return true;
}

static void check_sizes(struct store *s, const struct total *t, uint64_t nodes)
{
    struct store_view *v = store_view_get(s);
    struct sizes x = {};
    struct err err = {};

    assert_ok(store_list_sizes(v, on_size, &x, &err), &err);
    (void)store_view_put(v);
    assert_int_equal(x.files, t->bytes);
    assert_int_equal(x.nodes, nodes);
    assert_true(x.n > 12);
}

static void test_listings(void **state)
{
    struct fixture f;
    struct store *beside;
    struct total want, is;
    struct store_stats stats;
    struct err err = {};
    uint64_t lsn;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    is = all_rows(f.s);
    assert_int_equal(is.parts, 0);
    for (uint64_t i = 1; i <= 30; i++) {
        assert_ok(fixture_append(&f, i, true, &err), &err);
        if (i % 10 == 0)
            assert_ok(store_seal(f.s, &err), &err);
    }
    want = oracle_total(&f.o);
    is = all_rows(f.s);
    assert_total(&is, &want);
    assert_true(is.parts >= 3);
    store_stats(f.s, &stats);
    check_sizes(f.s, &is, stats.nodes - 4); /* without the roots of four services */
    beside = open_read_only(f.dir);
    is = all_rows(beside);
    assert_total(&is, &want);
    check_sizes(beside, &is, stats.nodes - 4);
    assert_true(scan_total(beside, PTYPE_CPU) == oracle_of(&f.o, f.o.n, PTYPE_CPU));
    assert_int_equal(store_append_wait(beside, &(struct batch){}, STR("x"), &lsn, NULL), -EROFS);
    assert_true(store_seal(beside, NULL) < 0);
    assert_ok(fixture_append(&f, 31, true, &err), &err); /* the server goes on */
    (void)store_close(beside);
    f.s = store_close(f.s);
    beside = open_read_only(f.dir);
    is = all_rows(beside);
    assert_total(&is, &want); /* what is not sealed is not seen */
    (void)store_close(beside);
    fixture_open(&f, 0);
    fixture_deinit(&f);
}

static int folder_count(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    assert_non_null(d);
    while (readdir(d)) // NOLINT(concurrency-mt-unsafe): a stream of our own
        n++;
    (void)closedir(d);
    return n - 2;
}

static void test_read_only_nowhere(void **state)
{
    struct store_conf conf = {.dir = "/nonexistent", .read_only = true};
    struct store *s = NULL;
    struct err err = {};
    char dir[64];

    (void)state;
    assert_int_equal(store_open(&conf, &s, &err), -ENOENT);
    (void)snprintf(dir, sizeof dir, "%s/strata_test_XXXXXX", test_fast_dir());
    assert_non_null(mkdtemp(dir));
    conf.dir = dir;
    err = (struct err){};
    assert_int_equal(store_open(&conf, &s, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "no store"));
    assert_int_equal(folder_count(dir), 0); /* nothing was made */
    assert_int_equal(test_remove_tree(dir), 0);
}

struct feeder {
    struct fixture *f;
    _Atomic uint64_t seed; /* of the last batch that was answered */
    _Atomic bool stop;
    _Atomic uint32_t rows[2000]; /* of the oracle behind each batch */
};

static void *feed(void *arg)
{
    struct feeder *x = arg;
    struct err err = {};

    for (uint64_t i = x->seed + 1; i < 2000 && !atomic_load(&x->stop); i++) {
        if (fixture_append(x->f, i, true, &err) != 0)
            break;
        atomic_store(&x->rows[i], x->f->o.n);
        atomic_store(&x->seed, i);
    }
    return NULL;
}

static void *seal_often(void *arg)
{
    struct feeder *x = arg;

    for (int i = 0; i < 6 && !atomic_load(&x->stop); i++) {
        if (store_seal(x->f->s, NULL) != 0)
            break;
        (void)usleep(30000);
    }
    return NULL;
}

/* Looked at while it is written: each look is what one seal left, whole. */
static void test_beside_writer(void **state)
{
    static struct feeder x;
    struct fixture f;
    pthread_t thread[2];
    uint64_t last = 0;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    x = (struct feeder){.f = &f};
    assert_int_equal(thread_start(&thread[0], "feed", 0, feed, &x), 0);
    assert_int_equal(thread_start(&thread[1], "seal", 0, seal_often, &x), 0);
    for (int i = 0; i < 15; i++) {
        struct store *s = open_read_only(f.dir);
        struct store_stats stats;
        struct total t = all_rows(s);

        store_stats(s, &stats);
        assert_true(stats.sealed_lsn >= last && stats.sealed_lsn <= 2000);
        last = stats.sealed_lsn;
        while (atomic_load(&x.seed) < last) /* sealed before its sender heard of it */
            (void)usleep(100);
        assert_int_equal(t.rows, last ? atomic_load(&x.rows[last]) : 0);
        (void)store_close(s);
    }
    atomic_store(&x.stop, true);
    (void)pthread_join(thread[0], NULL);
    (void)pthread_join(thread[1], NULL);
    fixture_deinit(&f);
}

/* ---- check ----------------------------------------------------------------------------------- */

static bool on_any(void *ctx, const struct store_finding *f)
{
    (void)snprintf(ctx, 160, "%.*s %.*s: %.*s", STR_ARG(f->file), STR_ARG(f->table),
                   STR_ARG(f->what));
    return true;
}

// NOLINTNEXTLINE(readability-non-const-parameter): filled by on_any
static int check_dir(const char *dir, char text[static 160], struct store_checked *ret)
{
    const struct store_check_conf conf = {
        .dir = dir, .depth = STORE_CHECK_FULL, .finding = on_any, .ctx = text};
    struct err err = {};
    int r = store_check(&conf, ret, &err);

    assert_true(r >= 0);
    return r;
}

/* The journal that holds batches: its -wal. */
static void find_wal(const char *dir, char path[static 160])
{
    struct stat st;

    for (int i = 1; i < 100; i++) {
        (void)snprintf(path, 160, "%s/journal/%d.db-wal", dir, i);
        if (stat(path, &st) == 0 && st.st_size > 20000)
            return;
    }
    fail();
}

static void test_check_journals(void **state)
{
    struct fixture f;
    struct store_checked c;
    struct err err = {};
    char text[160], path[160];
    FILE *file;
    long size;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    for (uint64_t i = 1; i <= 12; i++) {
        assert_ok(fixture_append(&f, i, true, &err), &err);
        if (i == 5)
            assert_ok(store_seal(f.s, &err), &err);
    }
    f.s = store_close(f.s);
    assert_int_equal(check_dir(f.dir, text, &c), 0);
    assert_true(c.batches >= 7 && c.journals >= 1 && c.parts >= 1);
    find_wal(f.dir, path);
    file = fopen(path, "r+e");
    assert_non_null(file);
    (void)fseek(file, 0, SEEK_END);
    size = ftell(file);
    (void)fseek(file, size / 2, SEEK_SET);
    (void)fputc('x', file);
    (void)fclose(file);
    assert_int_equal(check_dir(f.dir, text, &c), STORE_PARTIAL);
    assert_non_null(strstr(text, "journal/"));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(check_dir(f.dir, text, &c), STORE_PARTIAL);
    assert_non_null(strstr(text, "are gone"));
    fixture_open(&f, STORE_PARTIAL);
    fixture_deinit(&f);
}

/* ---- backup ---------------------------------------------------------------------------------- */

static bool on_finding(void *ctx, const struct store_finding *f)
{
    (void)ctx;
    fail_msg("%.*s: %.*s", STR_ARG(f->file), STR_ARG(f->what));
    return false;
}

static void check_sound(const char *dir, uint64_t parts)
{
    const struct store_check_conf conf = {
        .dir = dir, .depth = STORE_CHECK_DEEP, .finding = on_finding};
    struct store_checked c;
    struct err err = {};

    assert_ok(store_check(&conf, &c, &err), &err);
    assert_int_equal(c.parts, parts);
}

/* The copy holds what was stored up to its LSN, and nothing beyond; both go on from there. */
static void check_copy(struct fixture *f, const struct feeder *x, const char *dir, uint64_t lsn)
{
    struct store_conf conf = f->conf;
    struct store *s = NULL;
    struct batch b;
    struct arena a;
    struct err err = {};
    uint64_t seed = 5000, got;
    uint32_t n = x->rows[lsn]; /* one sender, one batch after another: LSN = seed */
    struct total t;

    conf.dir = dir;
    assert_ok(store_open(&conf, &s, &err), &err);
    assert_true(scan_total(s, PTYPE_CPU) == oracle_of(&f->o, n, PTYPE_CPU));
    assert_true(scan_total(s, PTYPE_OFFCPU) == oracle_of(&f->o, n, PTYPE_OFFCPU));
    t = all_rows(s);
    assert_int_equal(t.rows, n);
    arena_init(&a, (size_t)1 << 30);
    gen_batch(lsn, GEN_ROWS, &a, NULL, &b); /* who sent what is known there too */
    assert_int_equal(
        store_append_wait(s, &b, (struct str){(const char *)&lsn, sizeof lsn}, &got, &err),
        STORE_DUPLICATE);
    gen_batch(seed, GEN_ROWS, &a, NULL, &b);
    assert_ok(store_append_wait(s, &b, (struct str){(const char *)&seed, sizeof seed}, &got, &err),
              &err);
    assert_true(got > lsn);
    arena_deinit(&a);
    s = store_close(s);
}

static void test_backup(void **state)
{
    static struct feeder x;
    struct fixture f;
    pthread_t thread;
    struct err err = {};
    char dir[3][96];
    uint64_t lsn[3];

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    x = (struct feeder){.f = &f};
    assert_int_equal(thread_start(&thread, "feed", 0, feed, &x), 0);
    for (int i = 0; i < 3; i++) {
        while (atomic_load(&x.seed) < 20 * (uint64_t)(i + 1))
            (void)usleep(1000);
        (void)snprintf(dir[i], sizeof dir[i], "%s.copy%d", f.dir, i);
        assert_ok(store_backup(f.s, dir[i], &lsn[i], &err), &err);
        assert_true(lsn[i] >= 20 * (uint64_t)(i + 1));
    }
    atomic_store(&x.stop, true);
    (void)pthread_join(thread, NULL);
    assert_int_equal(store_backup(f.s, dir[0], &lsn[0], NULL), -EEXIST);
    for (int i = 0; i < 3; i++) {
        struct store *s = open_read_only(dir[i]);
        struct total t = all_rows(s);

        (void)store_close(s);
        check_sound(dir[i], t.parts);
        check_copy(&f, &x, dir[i], lsn[i]);
        assert_int_equal(test_remove_tree(dir[i]), 0);
    }
    assert_true(scan_total(f.s, PTYPE_CPU) == oracle_of(&f.o, f.o.n, PTYPE_CPU));
    fixture_deinit(&f);
}

/* What cannot be copied leaves nothing behind. */
static void test_backup_fails(void **state)
{
    struct fixture f;
    struct stat here, there;
    struct err err = {};
    char dir[96];
    uint64_t lsn;
    int n;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    assert_ok(fixture_append(&f, 1, true, &err), &err);
    assert_int_equal(store_backup(f.s, "/nonexistent/x", &lsn, NULL), -ENOENT);
    (void)snprintf(dir, sizeof dir, "/tmp/strata_copy_%d", (int)getpid());
    if (stat(f.dir, &here) == 0 && stat("/tmp", &there) == 0 && here.st_dev != there.st_dev) {
        assert_int_equal(store_backup(f.s, dir, &lsn, &err), -EXDEV);
        assert_non_null(strstr(err.msg, "another file system"));
        assert_true(access(dir, F_OK) != 0);
    }
    (void)snprintf(dir, sizeof dir, "%s/copies", f.dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    (void)snprintf(dir, sizeof dir, "%s/copies/x", f.dir);
    assert_ok(store_seal(f.s, &err), &err);
    {
        char from[160], to[160];
        struct parts p = {};
        struct store_view *v = store_view_get(f.s);

        assert_ok(store_list_parts(v, on_part, &p, &err), &err);
        (void)store_view_put(v);
        (void)snprintf(from, sizeof from, "%s/%s", f.dir, p.file[0]);
        (void)snprintf(to, sizeof to, "%s/away", f.dir);
        assert_int_equal(rename(from, to), 0); /* a part that is not there any more */
        err = (struct err){};
        assert_int_equal(store_backup(f.s, dir, &lsn, &err), -ENOENT);
        assert_int_equal(rename(to, from), 0);
    }
    (void)snprintf(dir, sizeof dir, "%s/copies", f.dir);
    n = folder_count(dir);
    assert_int_equal(n, 0);
    (void)snprintf(dir, sizeof dir, "%s/copies/x", f.dir);
    assert_ok(store_backup(f.s, dir, &lsn, &err), &err);
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listings),      cmocka_unit_test(test_read_only_nowhere),
        cmocka_unit_test(test_beside_writer), cmocka_unit_test(test_check_journals),
        cmocka_unit_test(test_backup),        cmocka_unit_test(test_backup_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
