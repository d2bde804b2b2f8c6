// SPDX-License-Identifier: Apache-2.0
/* Sealing: what a store answers is the same before and after a seal, a restart, late data and a
 * resend, whatever lies in heads and whatever in parts. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "storage/keep/compact_private.h"
#include "storage/keep/seal_private.h"
#include "tests/unit/test_storage_mixed.h"

/* ---- the tests ----------------------------------------------------------------------------- */

static void fill(struct fixture *f, uint64_t from, uint64_t n)
{
    for (uint64_t i = from; i < from + n; i++) {
        assert_int_equal(append(f, i), 0);
        assert_int_equal(append(f, MIXED + i), 0);
    }
}

static void test_same(void **state)
{
    struct fixture f;
    struct store_stats st;
    char *want;

    (void)state;
    begin(&f);
    fill(&f, 1, 40);
    want = dump_store(&f);
    seal_now(&f);
    assert_same(want, dump_store(&f), "after a seal");
    store_stats(f.s, &st);
    assert_int_equal(st.head_rows, 0);
    assert_int_equal(st.sealed_lsn, st.lsn);
    assert_int_equal(st.seals, 1);
    assert_true(st.parts >= 6); /* hours */
    assert_int_equal(st.journal_bytes, 0);
    fixture_reopen(&f, 0);
    assert_same(want, dump_store(&f), "after a restart");
    free(want);

    fill(&f, 41, 20); /* of the same hours: late */
    want = dump_store(&f);
    seal_now(&f);
    fill(&f, 61, 1);
    seal_now(&f);
    free(want);
    fill(&f, 62, 10);
    want = dump_store(&f);
    for (uint64_t i = 1; i < 72; i++) { /* parts and head alike */
        assert_int_equal(append(&f, i), STORE_DUPLICATE);
        assert_int_equal(append(&f, MIXED + i), STORE_DUPLICATE);
    }
    assert_same(want, dump_store(&f), "after a resend");
    fixture_reopen(&f, 0);
    assert_same(want, dump_store(&f), "after a resend and a restart");
    for (uint64_t i = 1; i < 72; i++)
        assert_int_equal(append(&f, i), STORE_DUPLICATE);
    assert_same(want, dump_store(&f), "after a restart and a resend");
    free(want);
    fixture_deinit(&f);
}

static uint64_t parts_of(struct fixture *f)
{
    struct store_stats st;

    store_stats(f->s, &st);
    return st.parts;
}

/* Small parts of every hour become one each; a view that was taken before goes on with the old. */
static void test_compaction(void **state)
{
    struct store_stats st;
    struct store_view *old;
    struct fixture f;
    struct err err = {};
    char *want;

    (void)state;
    store_tuning.compact_asked = true;
    begin(&f);
    for (uint64_t i = 0; i < 12; i++) {
        fill(&f, 1 + 4 * i, 4);
        seal_now(&f);
    }
    fill(&f, 49, 4); /* stays in the head */
    want = dump_store(&f);
    old = store_view_get(f.s);
    assert_true(parts_of(&f) > 20);
    if (compact_all(f.s, &err) != 0)
        fail_msg("compact_all: %s", err.msg);
    assert_true(parts_of(&f) <= 7); /* six hours, and that of the first kind of batches */
    assert_same(want, dump_store(&f), "after a compaction");
    assert_same(want, dump_view(old), "a view from before it");
    (void)store_view_put(old);
    fixture_reopen(&f, 0);
    assert_same(want, dump_store(&f), "after a restart");
    store_stats(f.s, &st);
    assert_int_equal(st.compaction_failures, 0);
    assert_int_equal(append(&f, 1), STORE_DUPLICATE);
    fill(&f, 60, 2); /* late */
    seal_now(&f);
    free(want);
    want = dump_store(&f);
    assert_int_equal(compact_all(f.s, &err), 0);
    assert_same(want, dump_store(&f), "late data, and once more");
    assert_int_equal(compact_all(f.s, &err), 0); /* nothing to do */
    free(want);
    fixture_deinit(&f);
    store_tuning.compact_asked = false;
}

/* A sum of one block of a part that has others of its hour beside it; the part's hour. */
static real_ns damage_one(struct fixture *f)
{
    struct store_view *v = store_view_get(f->s);
    struct part_info info = {};
    char path[160];
    sqlite3 *db;

    for (uint32_t i = 0; i < v->n_source; i++) {
        if (v->source[i].part && v->source[i].part->info.rows > 0 &&
            v->source[i].part->info.period.t0.v >= info.period.t0.v)
            info = v->source[i].part->info;
    }
    (void)store_view_put(v);
    (void)snprintf(path, sizeof path, "%s/%s", f->dir, info.name);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "UPDATE cols SET sum = sum + 1 WHERE id = (SELECT min(id) FROM cols)",
                     NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_changes(db), 1);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return info.period.t0;
}

static uint32_t parts_from(struct fixture *f, real_ns t0)
{
    struct store_view *v = store_view_get(f->s);
    uint32_t n = 0;

    for (uint32_t i = 0; i < v->n_source; i++)
        n += v->source[i].part && v->source[i].part->info.period.t0.v == t0.v;
    (void)store_view_put(v);
    return n;
}

/* A damaged part does not keep the others of its hour from being merged. */
static void test_compaction_beside_damage(void **state)
{
    struct store_stats st;
    struct fixture f;
    struct err err = {};
    real_ns hour;

    (void)state;
    store_tuning.compact_asked = true;
    begin(&f);
    for (uint64_t i = 0; i < 6; i++) {
        fill(&f, 1 + 4 * i, 4);
        seal_now(&f);
    }
    hour = damage_one(&f);
    assert_true(parts_from(&f, hour) > 2);
    assert_int_equal(compact_all(f.s, &err), -EBADMSG); /* here it is noticed */
    store_stats(f.s, &st);
    assert_int_equal(st.compaction_failures, 1);
    if (compact_all(f.s, &err) != 0)
        fail_msg("compact_all: %s", err.msg);
    assert_int_equal(parts_from(&f, hour), 2); /* it, and the rest */
    store_stats(f.s, &st);
    assert_int_equal(st.compaction_failures, 1);
    fixture_deinit(&f);
    store_tuning.compact_asked = false;
}

/* The thread does it by itself, while seals go on. */
static void test_compactor(void **state)
{
    struct store_stats st = {};
    struct fixture f;
    char *want;

    (void)state;
    store_tuning.compact_ns = 1;
    store_tuning.compact_look_ns = 20 * NS_PER_MS;
    begin(&f);
    for (uint64_t i = 0; i < 10; i++) {
        fill(&f, 1 + 3 * i, 3);
        seal_now(&f);
    }
    want = dump_store(&f);
    for (int i = 0; i < 1000 && (st.compactions == 0 || st.parts > 7); i++) {
        (void)usleep(20000);
        store_stats(f.s, &st);
    }
    assert_true(st.compactions > 0);
    assert_int_equal(st.compaction_failures, 0);
    assert_true(st.parts <= 7);
    assert_same(want, dump_store(&f), "after the compactor");
    fixture_reopen(&f, 0);
    assert_same(want, dump_store(&f), "after a restart");
    free(want);
    fixture_deinit(&f);
    store_tuning.compact_ns = store_tuning.compact_look_ns = 0;
}

/* ---- readers beside seals ------------------------------------------------------------------ */

struct reader {
    struct store *s;
    atomic_bool stop;
    uint64_t reads, last;
    pthread_t thread;
};

static bool on_total(void *ctx, uint32_t worker, const struct store_share *sh)
{
    uint64_t *sum = ctx;

    (void)worker;
    sum[0] += sh->count[0];
    sum[1] += (uint64_t)(sh->sum.v ? sh->sum.v[0] : (int64_t)sh->sum.wide[0]);
    return true;
}

/* Batch i weighs i, so a sum says whether it is that of the first n. */
static void read_once(struct reader *r)
{
    uint64_t sum[2] = {};
    const struct store_sink sink = {.share = on_total, .ctx = sum};
    struct store_view *v = store_view_get(r->s);
    struct store_answer answer;
    struct arena a;
    const struct store_query q = {
        .n_side = 1,
        .side = {{.sel = {.type = PTYPE_OFFCPU}, .range = {{T_BASE}, {T_BASE + HOUR}}}},
        .want = STORE_TOTALS,
        .arena = &a};
    struct err err = {};
    int res;

    arena_init(&a, 1 << 22);
    res = store_scan(v, &q, &sink, &answer, &err);
    if (res != 0)
        fail_msg("store_scan = %d: %s", res, err.msg);
    arena_deinit(&a);
    (void)store_view_put(v);
    if (sum[1] != sum[0] * (sum[0] + 1) / 2 || sum[0] < r->last)
        fail_msg("%" PRIu64 " batches weigh %" PRIu64 ", before there were %" PRIu64, sum[0],
                 sum[1], r->last);
    r->last = sum[0];
    r->reads++;
}

static void *read_on(void *arg)
{
    struct reader *r = arg;

    while (!atomic_load(&r->stop))
        read_once(r);
    return NULL;
}

/* Each view is a prefix of the order of LSNs, whatever is being sealed. */
static void test_readers(void **state)
{
    const uint64_t seals = getenv("STRATA_LONG") ? 1000 : 100; // NOLINT(concurrency-mt-unsafe)
    struct reader r = {};
    struct fixture f;

    (void)state;
    begin(&f);
    r.s = f.s;
    assert_int_equal(pthread_create(&r.thread, NULL, read_on, &r), 0);
    for (uint64_t i = 0; i < seals; i++) {
        for (uint64_t k = 1; k <= 3; k++)
            assert_int_equal(append(&f, COUNTED + 3 * i + k), 0);
        seal_now(&f);
    }
    atomic_store(&r.stop, true);
    assert_int_equal(pthread_join(r.thread, NULL), 0);
    read_once(&r);
    assert_int_equal(r.last, 3 * seals);
    print_message("%" PRIu64 " reads beside %" PRIu64 " seals\n", r.reads, seals);
    fixture_deinit(&f);
}

/* ---- epochs -------------------------------------------------------------------------------- */

/* The hashes alone, of stacks that the store knows from before. */
static int append_known(struct fixture *f, uint64_t seed)
{
    struct batch_node *node;
    struct arena a;
    struct batch b;
    uint64_t lsn;
    int r;

    arena_init(&a, 1 << 22);
    make(seed, &a, &b);
    node = arena_array(&a, struct batch_node, b.n_node);
    for (uint32_t i = 1; i < b.n_node; i++)
        node[i].hash = b.node[i].hash;
    b.node = node;
    b.n_known = b.n_node - 1;
    r = store_append_wait(f->s, &b, (struct str){(const char *)&seed, sizeof seed}, &lsn, NULL);
    arena_deinit(&a);
    return r;
}

/* A new epoch with every seal: stacks of all of them are found, and those of the one before are
 * taken over when a sender only names them. */
static void test_epochs(void **state)
{
    struct fixture f;
    struct store_stats st;
    char *want;

    (void)state;
    begin(&f);
    fill(&f, 1, 6);
    store_tuning.epoch_ns = 1;
    seal_now(&f);
    assert_int_equal(append_known(&f, MIXED + 7), 0);
    fill(&f, 8, 6);
    seal_now(&f);
    fill(&f, 14, 6);
    want = dump_store(&f);
    fixture_reopen(&f, 0);
    assert_same(want, dump_store(&f), "after a restart");
    seal_now(&f);
    assert_same(want, dump_store(&f), "after a seal");
    store_tuning.epoch_ns = 0;
    fixture_reopen(&f, 0);
    assert_same(want, dump_store(&f), "after a restart");
    store_stats(f.s, &st);
    assert_int_equal(st.hash_clashes, 0);
    free(want);
    fixture_deinit(&f);
}

static bool has_dict(const struct fixture *f, uint32_t epoch)
{
    char path[96];

    (void)snprintf(path, sizeof path, "%s/dict/%u.db", f->dir, epoch);
    return access(path, F_OK) == 0;
}

/* All parts of the epoch go; their number. */
static uint32_t expire(struct fixture *f, uint32_t epoch)
{
    struct store_view *v = store_view_get(f->s);
    struct err err = {};
    uint32_t n = 0;

    for (uint32_t i = 0; i < v->n_source; i++) {
        struct part *p = v->source[i].part;

        if (!p || p->info.epoch != epoch)
            continue;
        if (seal_swap(f->s, &p, 1, NULL, &err) != 0)
            fail_msg("seal_swap: %s", err.msg);
        n++;
    }
    (void)store_view_put(v);
    return n;
}

static void *get_first(void *ctx)
{
    struct err err = {};
    struct epoch *e = epoch_get(ctx, 1, &err);

    assert_non_null(e);
    return e;
}

/* Several workers ask for one that is not at hand: it is loaded once, for all of them. */
static void test_load_once(void **state)
{
    enum {
        N = 8
    };
    struct fixture f;
    pthread_t t[N];
    void *e[N];

    (void)state;
    store_tuning.epoch_ns = 1;
    begin(&f);
    fill(&f, 1, 6);
    seal_now(&f);
    fill(&f, 7, 6);
    seal_now(&f);
    fixture_reopen(&f, 0);
    assert_int_equal(atomic_load(&f.s->epoch_loads), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&t[i], NULL, get_first, f.s), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_join(t[i], &e[i]), 0);
    for (int i = 0; i < N; i++) {
        assert_ptr_equal(e[i], e[0]);
        epoch_unref(e[i]);
    }
    assert_int_equal(atomic_load(&f.s->epoch_loads), 1);
    store_tuning.epoch_ns = 0;
    fixture_deinit(&f);
}

static uint32_t not_loaded(struct store *s)
{
    struct store_view *v = store_view_get(s);
    uint32_t n = 0;

    for (uint32_t i = 0; i < v->n_source; i++)
        n += v->source[i].part && atomic_load(&v->source[i].part->loaded) == 0;
    (void)store_view_put(v);
    return n;
}

/* A server that has just started makes parts and the dictionary before the current one ready, asked
 * or not; one that ends at once waits for none of it. */
static void test_warm(void **state)
{
    struct fixture f;
    char *want;

    (void)state;
    store_tuning.epoch_ns = 1;
    begin(&f);
    fill(&f, 1, 12);
    seal_now(&f);
    fill(&f, 13, 12);
    seal_now(&f);
    want = dump_store(&f);
    fixture_reopen(&f, 0);
    assert_true(not_loaded(f.s) > 6);
    f.conf.warm = true;
    for (int i = 0; i < 20; i++)
        fixture_reopen(&f, 0);
    for (int i = 0; not_loaded(f.s) || !atomic_load(&f.s->epoch_loads); i++) {
        assert_true(i < 30000);
        (void)usleep(1000);
    }
    assert_same(want, dump_store(&f), "ready");
    fixture_reopen(&f, 0);
    assert_same(want, dump_store(&f), "while it is made ready");
    assert_int_equal(atomic_load(&f.s->epoch_loads), 2); /* two that are over, once each */
    store_tuning.epoch_ns = 0;
    free(want);
    fixture_deinit(&f);
}

/* The dictionary of a closed epoch is the file that the catalog says: that of another store, put in
 * its place, would give other names to what the parts hold. It is refused, and named by a check. */
static void test_swapped_dict(void **state)
{
    struct fixture f, other;
    struct err err = {};
    struct epoch *e;
    char own[128], kept[128], theirs[128], *want;

    (void)state;
    store_tuning.epoch_ns = 1;
    begin(&other);
    fill(&other, 100, 3);
    seal_now(&other);
    fill(&other, 103, 3);
    seal_now(&other);
    other.s = store_close(other.s);
    begin(&f);
    fill(&f, 1, 6);
    seal_now(&f);
    fill(&f, 7, 6);
    seal_now(&f);
    want = dump_store(&f);
    f.s = store_close(f.s);
    (void)snprintf(own, sizeof own, "%s/dict/1.db", f.dir);
    (void)snprintf(kept, sizeof kept, "%s/dict/kept", f.dir);
    (void)snprintf(theirs, sizeof theirs, "%s/dict/1.db", other.dir);
    assert_true(rename(own, kept) == 0 && rename(theirs, own) == 0);
    fixture_open(&f, 0);
    assert_null(epoch_get(f.s, 1, &err));
    assert_int_equal(err.code, -ESTALE);
    assert_int_equal(rename(kept, own), 0);
    fixture_reopen(&f, 0);
    e = epoch_get(f.s, 1, &err);
    assert_non_null(e);
    epoch_unref(e);
    assert_same(want, dump_store(&f), "with its own again");
    free(want);
    store_tuning.epoch_ns = 0;
    fixture_deinit(&f);
    fixture_deinit(&other);
}

/* The file of an epoch goes after its last part. */
static void test_old_epochs(void **state)
{
    struct fixture f;
    char *want;

    (void)state;
    begin(&f);
    store_tuning.epoch_ns = store_tuning.epoch_keep_ns = 1;
    for (uint64_t i = 1; i <= 3; i++) {
        fill(&f, 6 * i, 6);
        seal_now(&f);
    }
    assert_true(has_dict(&f, 1) && has_dict(&f, 2));
    assert_true(expire(&f, 1) > 0);
    assert_true(parts_of(&f) > 0);
    fill(&f, 30, 1);
    seal_now(&f); /* it is noticed */
    assert_true(has_dict(&f, 1));
    fill(&f, 31, 1);
    seal_now(&f);
    assert_true(!has_dict(&f, 1) && has_dict(&f, 2));
    want = dump_store(&f);
    fixture_reopen(&f, 0);
    assert_same(want, dump_store(&f), "after a restart");
    free(want);
    fixture_deinit(&f);
    store_tuning.epoch_ns = store_tuning.epoch_keep_ns = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_compaction),
        cmocka_unit_test(test_compaction_beside_damage),
        cmocka_unit_test(test_compactor),
        cmocka_unit_test(test_readers),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_load_once),
        cmocka_unit_test(test_warm),
        cmocka_unit_test(test_swapped_dict),
        cmocka_unit_test(test_old_epochs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
