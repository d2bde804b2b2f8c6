// SPDX-License-Identifier: Apache-2.0
/*
 * Power cuts at random moments of appending, sealing, merging, restarting and resending, on a disk
 * that loses what was not synced (tests/lib/disk.h); kills likewise, and a power cut soon after
 * one. What was acknowledged before is there, and after everything was sent again each batch counts
 * once.
 *
 * Then the same with one guarantee taken away each time: it must lose, else these tests see
 * nothing.
 *
 * STRATA_ROUNDS cuts (30); STRATA_SEED.
 */
#include <sqlite3.h>
#include <stdatomic.h>

#include "storage/keep/compact_private.h"
#include "tests/lib/disk.h"
#include "tests/unit/test_storage_lib.h"

#define CHAIN   5u  /* ends in the life of one directory */
#define SEND    24u /* batches of a round */
#define BATCHES (CHAIN * SEND)
#define ROWS    12
#define FLIGHT  6u

static bool weaker_sqlite;
static uint32_t weakened;

int __real_sqlite3_exec(sqlite3 *db, const char *sql, int (*fn)(void *, int, char **, char **),
                        void *ctx, char **ret_msg);
int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, int (*fn)(void *, int, char **, char **),
                        void *ctx, char **ret_msg);

/* The storage library's calls come here (link option --wrap). */
int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, int (*fn)(void *, int, char **, char **),
                        void *ctx, char **ret_msg)
{
    if (weaker_sqlite && strstr(sql, "synchronous=FULL")) {
        weakened++;
        sql = "PRAGMA synchronous=NORMAL";
    }
    return __real_sqlite3_exec(db, sql, fn, ctx, ret_msg);
}

/* ---- a store on the disk ------------------------------------------------------------------- */

struct sent {
    struct power *p;
    struct batch b;
    uint64_t payload;
    unit_i128 value; /* of its CPU rows */
    _Atomic bool acked;
};

struct power {
    char top[64], dir[80];
    uint32_t image, sent;
    uint64_t clock; /* s */
    struct store_conf conf;
    struct store *s;
    struct arena a;
    struct sent v[BATCHES];
    struct mutex mu;
    struct cond cond;
    uint32_t flight;
    uint64_t lost, acked, cuts, kills, seals, merges;
};

static real_ns now_of(void *ctx)
{
    const struct power *p = ctx;

    return (real_ns){T_BASE + (int64_t)p->clock * NS_PER_S};
}

static void set_dir(struct power *p)
{
    (void)snprintf(p->dir, sizeof p->dir, "%s/%u/data", p->top, p->image);
    p->conf.dir = p->dir;
}

static void image_path(const struct power *p, char path[80])
{
    (void)snprintf(path, 80, "%s/%u", p->top, p->image);
}

static int decode_sent(void *ctx, const struct store_entry *e, struct arena *arena,
                       struct batch *ret, struct err *err)
{
    struct power *p = ctx;
    uint64_t i;

    (void)arena;
    if (e->payload.n != sizeof i)
        return err_set(err, -EINVAL, "payload of %zu bytes", e->payload.n);
    memcpy(&i, e->payload.p, sizeof i);
    *ret = p->v[i].b;
    ret->received = e->received;
    return 0;
}

static void power_init(struct power *p)
{
    char path[80];

    memset(p, 0, sizeof *p);
    p->clock = 660;
    (void)snprintf(p->top, sizeof p->top, "%s/strata_power_XXXXXX", test_fast_dir());
    assert_non_null(mkdtemp(p->top));
    image_path(p, path);
    assert_int_equal(mkdir(path, 0700), 0);
    disk_begin(path);
    arena_init(&p->a, (size_t)1 << 30);
    mutex_init(&p->mu);
    cond_init(&p->cond);
    p->conf = (struct store_conf){.decode = decode_sent,
                                  .decode_ctx = p,
                                  .min_free = 1,
                                  .reserve = 65536,
                                  .workers = 1,
                                  .now = now_of,
                                  .now_ctx = p};
    set_dir(p);
    for (uint64_t i = 0; i < BATCHES; i++) {
        struct oracle o = {};

        p->v[i].p = p;
        p->v[i].payload = i;
        gen_batch(i + 1, ROWS, &p->a, &o, &p->v[i].b);
        for (uint32_t k = 0; k < o.n; k++)
            p->v[i].value += o.v[k].type == PTYPE_CPU ? o.v[k].value : 0;
        free(o.v);
    }
}

static bool on_finding(void *ctx, const struct store_finding *f)
{
    (void)ctx;
    print_error("%.*s: %.*s row %lld: %.*s\n", STR_ARG(f->file), STR_ARG(f->table),
                (long long)f->id, STR_ARG(f->what));
    return true;
}

static void power_deinit(struct power *p, bool strict)
{
    struct store_checked checked;
    struct err err = {};

    p->s = store_close(p->s);
    if (strict)
        assert_ok(store_check(&(struct store_check_conf){.dir = p->dir,
                                                         .depth = STORE_CHECK_DEEP,
                                                         .finding = on_finding},
                              &checked, &err),
                  &err);
    disk_end();
    cond_deinit(&p->cond);
    mutex_deinit(&p->mu);
    arena_deinit(&p->a);
    assert_int_equal(test_remove_tree(p->top), 0);
}

static int power_open(struct power *p, bool strict)
{
    struct err err = {};
    int r = store_open(&p->conf, &p->s, &err);

    if (r < 0 || (strict && r != 0))
        fail_msg("store_open = %d: %s", r, err.msg);
    return r;
}

/* ---- sending ------------------------------------------------------------------------------- */

static void on_done(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    struct sent *b = ctx;
    struct power *p = b->p;

    (void)lsn;
    (void)err;
    if (r == 0 || r == STORE_DUPLICATE)
        disk_see(&b->acked);
    mutex_lock(&p->mu);
    p->flight--;
    cond_signal(&p->cond);
    mutex_unlock(&p->mu);
}

static void wait_below(struct power *p, uint32_t n)
{
    mutex_lock(&p->mu);
    while (p->flight >= n)
        cond_wait(&p->cond, &p->mu);
    mutex_unlock(&p->mu);
}

static void send_one(struct power *p, uint32_t i)
{
    struct sent *b = &p->v[i];

    mutex_lock(&p->mu);
    p->flight++;
    mutex_unlock(&p->mu);
    store_append(p->s, &b->b, (struct str){(const char *)&b->payload, sizeof b->payload}, on_done,
                 b);
}

/* What a running server sees: new batches, several under way, some again, a restart. */
static void work(struct power *p, struct rnd *r)
{
    for (uint32_t i = 0; i < SEND; i++) {
        wait_below(p, 1 + rnd_below(r, FLIGHT));
        send_one(p, p->sent++);
        if (rnd_below(r, 8) == 0)
            send_one(p, rnd_below(r, p->sent));
        if (rnd_below(r, 10) == 0)
            (void)store_seal(p->s, NULL);
        if (rnd_below(r, 14) == 0)
            (void)compact_all(p->s, NULL);
        if (rnd_below(r, 24) == 0) {
            wait_below(p, 1);
            p->s = store_close(p->s);
            (void)power_open(p, false);
        }
    }
    wait_below(p, 1);
}

/* ---- the end, and what is left ------------------------------------------------------------- */

static unit_i128 total(struct store *s)
{
    static struct sums sum;
    const struct store_sink sink = {.share = sums_share, .ctx = &sum};
    struct store_view *v = store_view_get(s);
    struct arena a;
    struct store_query q = {.n_side = 1,
                            .side = {{.sel = {.type = PTYPE_CPU}, .range = WHOLE}},
                            .want = STORE_TOTALS,
                            .arena = &a};
    struct store_answer answer;
    struct err err = {};
    int r;

    memset(&sum, 0, sizeof sum);
    arena_init(&a, 1 << 20);
    r = store_scan(v, &q, &sink, &answer, &err);
    if (r < 0)
        fail_msg("store_scan: %s", err.msg);
    arena_deinit(&a);
    v = store_view_put(v);
    return sum.value[0][0][0];
}

/* All is sent again: what was acknowledged is a duplicate, and in the end everything counts once.
 */
static void check(struct power *p, bool strict)
{
    unit_i128 want = 0;

    (void)power_open(p, strict);
    for (uint32_t i = 0; i < p->sent; i++) {
        struct sent *b = &p->v[i];
        struct err err = {};
        bool acked = atomic_load(&b->acked);
        int r =
            store_append_wait(p->s, &b->b, (struct str){(const char *)&b->payload, 8}, NULL, &err);

        if (r != 0 && r != STORE_DUPLICATE)
            fail_msg("batch %u: %d %s", i, r, err.msg);
        p->acked += acked;
        p->lost += acked && r == 0;
        want += b->value;
        disk_see(&b->acked);
    }
    if (!strict) /* a catalog that is older or newer than the rest: rows may be gone, or there twice
                  */
        return;
    assert_int_equal(p->lost, 0);
    assert_true(total(p->s) == want);
}

static void end(struct power *p, enum disk_keep keep, bool kill, uint64_t seed)
{
    char path[80];

    struct store_stats st;

    disk_stop();
    store_stats(p->s, &st);
    p->seals += st.seals;
    p->merges += st.compactions;
    p->s = store_close(p->s);
    p->image++;
    image_path(p, path);
    if (kill)
        disk_kill(path);
    else
        disk_cut(path, keep, seed);
    p->kills += kill;
    p->cuts += !kill;
    p->clock += 900;
    set_dir(p);
}

struct how {
    uint32_t weak;
    bool kill, normal; /* normal: synchronous=NORMAL */
    bool syncs;        /* the end comes just before a sync */
};

/* An end at a random moment, perhaps of the opening; after a kill perhaps a cut right behind the
 * resend. */
static void one_round(struct power *p, struct rnd *r, const struct how *how, bool strict)
{
    const uint32_t mask = DISK_SYNC | (how->syncs ? 0u : DISK_CHANGE);
    bool kill = how->kill || (strict && rnd_below(r, 3) == 0);
    enum disk_keep keep = strict ? rnd_below(r, DISK_KEEPS) : DISK_NONE;

    if (rnd_below(r, 5) == 0) { /* behind a clean stop, while it starts */
        p->s = store_close(p->s);
        disk_arm(mask, 1 + rnd_below(r, how->syncs ? 8 : 60));
    }
    if (!p->s)
        (void)power_open(p, strict);
    if (!disk_stopped())
        disk_arm(mask, 1 + rnd_below(r, how->syncs ? 24 : 400));
    work(p, r);
    end(p, keep, kill, rnd_next(r));
    check(p, strict);
    if (kill && (how->kill || rnd_below(r, 2))) {
        end(p, how->kill ? DISK_NONE : rnd_below(r, DISK_KEEPS), false, rnd_next(r));
        check(p, strict);
    }
}

/* Of the life of one directory: sealed often, at its stops or when asked; epochs of 30 min or one.
 */
static void tune(struct rnd *r)
{
    store_tuning = (struct store_tuning){
        .rotate_bytes = 8 * 7,
        .rotate_waits = true,
        .seal_asked = rnd_below(r, 3) == 0,
        .seal_bytes = rnd_below(r, 2) ? 0 : 20000,
        .epoch_ns = rnd_below(r, 2) ? 0 : 1800 * NS_PER_S,
        .compact_asked = rnd_below(r, 2),
        .compact_ns = 1,
        .compact_look_ns = 3 * NS_PER_MS,
    };
}

struct result {
    uint64_t cuts, kills, acked, lost, seals, merges;
};

/* Not strict: until something was lost. */
static struct result run(const char *what, uint32_t rounds, const struct how *how, bool strict)
{
    const char *text = getenv("STRATA_SEED"); // NOLINT(concurrency-mt-unsafe)
    uint64_t seed = 20261130;
    struct result sum = {};
    struct rnd r;

    if (text)
        assert_true(str_u64(str_c(text), &seed));
    r = (struct rnd){seed};
    weaker_sqlite = how->normal;
    for (uint32_t i = 0; i < rounds && (strict || sum.lost == 0);) {
        static struct power p;

        tune(&r);
        power_init(&p);
        disk_weaken(how->weak);
        for (uint32_t k = 0; k < CHAIN && i < rounds; k++, i++)
            one_round(&p, &r, how, strict);
        if (strict)
            assert_true(disk_compare());
        power_deinit(&p, strict);
        sum.cuts += p.cuts;
        sum.kills += p.kills;
        sum.acked += p.acked;
        sum.lost += p.lost;
        sum.seals += p.seals;
        sum.merges += p.merges;
    }
    print_message(
        "%s: seed %llu, %llu cuts, %llu kills, %llu seals, %llu merges, %llu acknowledged, "
        "%llu lost\n",
        what, (unsigned long long)seed, (unsigned long long)sum.cuts, (unsigned long long)sum.kills,
        (unsigned long long)sum.seals, (unsigned long long)sum.merges,
        (unsigned long long)sum.acked, (unsigned long long)sum.lost);
    weaker_sqlite = false;
    store_tuning = (struct store_tuning){};
    return sum;
}

static uint32_t rounds_or(uint32_t n)
{
    const char *text = getenv("STRATA_ROUNDS"); // NOLINT(concurrency-mt-unsafe)
    uint64_t v = n;

    if (text)
        assert_true(str_u64(str_c(text), &v) && v > 0 && v < 1000000);
    return (uint32_t)v;
}

static void test_power_cuts(void **state)
{
    struct result r;

    (void)state;
    r = run("as it is", rounds_or(30), &(struct how){}, true);
    assert_int_equal(r.lost, 0);
    assert_true(r.acked > 0 && r.cuts > 0 && r.kills > 0 && r.seals > 0 && r.merges > 0);
}

static void test_kill_then_cut(void **state)
{
    struct result r;

    (void)state;
    r = run("kill, resend, cut", rounds_or(30) / 2, &(struct how){.kill = true, .syncs = true},
            true);
    assert_int_equal(r.lost, 0);
}

/* ---- these must lose ----------------------------------------------------------------------- */

static void must_lose(const char *what, const struct how *how)
{
    struct result r = run(what, 100, how, false);

    if (r.lost == 0)
        fail_msg("%s: nothing was lost: the test is blind", what);
}

static void test_blind_normal(void **state)
{
    (void)state;
    weakened = 0;
    must_lose("synchronous=NORMAL", &(struct how){.normal = true});
    assert_true(weakened > 0);
}

static void test_blind_no_dir_sync(void **state)
{
    (void)state;
    must_lose("without fsync of folders", &(struct how){.weak = DISK_NO_DIR_SYNC});
}

static void test_blind_no_start_sync(void **state)
{
    (void)state;
    must_lose("without fsync at start",
              &(struct how){.weak = DISK_NO_OLD_SYNC, .kill = true, .syncs = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_cuts),          cmocka_unit_test(test_kill_then_cut),
        cmocka_unit_test(test_blind_normal),        cmocka_unit_test(test_blind_no_dir_sync),
        cmocka_unit_test(test_blind_no_start_sync),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
