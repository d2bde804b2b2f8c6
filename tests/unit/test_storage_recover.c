// SPDX-License-Identifier: Apache-2.0
/* Directories that were left in a bad state: what can be read is shown, what is lost is said. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "tests/unit/test_storage_lib.h"

#define SEED  4711u
#define FLIPS 24u

/* ---- helpers ------------------------------------------------------------------------------- */

static void path_of(const struct fixture *f, const char *name, char path[128])
{
    int n = snprintf(path, 128, "%s/%s", f->dir, name);

    assert_true(n > 0 && n < 128);
}

static uint32_t files_in(const struct fixture *f, const char *sub, const char *has)
{
    char path[128];
    const struct dirent *e;
    uint32_t n = 0;
    DIR *d;

    path_of(f, sub, path);
    d = opendir(path);
    while (d && (e = readdir(d))) // NOLINT(concurrency-mt-unsafe)
        n += strstr(e->d_name, has) != NULL;
    if (d)
        (void)closedir(d);
    return n;
}

static void sql(const struct fixture *f, const char *name, const char *text)
{
    char path[128];
    sqlite3 *db;

    path_of(f, name, path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA locking_mode=EXCLUSIVE", NULL, NULL, NULL),
                     SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static unit_i128 total(struct store *s, ptype_id type, struct store_answer *ret)
{
    static struct sums sum;
    const struct store_sink sink = {.share = sums_share, .ctx = &sum};
    struct store_view *v = store_view_get(s);
    struct arena a;
    struct store_query q = {.n_side = 1,
                            .side = {{.sel = {.type = type}, .range = WHOLE}},
                            .want = STORE_TOTALS,
                            .arena = &a};
    struct err err = {};
    int r;

    sum = (struct sums){};
    arena_init(&a, 1 << 20);
    r = store_scan(v, &q, &sink, ret, &err);
    if (r < 0)
        fail_msg("store_scan: %s", err.msg);
    assert_int_equal(r, ret->n_damage ? STORE_PARTIAL : 0);
    arena_deinit(&a);
    v = store_view_put(v);
    return sum.value[0][0][0];
}

static unit_i128 want(const struct oracle *o, uint32_t type)
{
    unit_i128 v = 0;

    for (uint32_t i = 0; i < o->n; i++)
        v += o->v[i].type == type ? o->v[i].value : 0;
    return v;
}

static void check_equal(struct fixture *f)
{
    struct store_answer a;

    assert_true(total(f->s, PTYPE_CPU, &a) == want(&f->o, PTYPE_CPU));
    assert_true(total(f->s, PTYPE_OFFCPU, &a) == want(&f->o, PTYPE_OFFCPU));
}

/* A store of n batches in files of a few each, closed. */
static void fill(struct fixture *f, uint64_t n, uint64_t per_file)
{
    struct err err = {};

    store_tuning.rotate_bytes = per_file * 8;
    store_tuning.rotate_waits = true;
    fixture_init(f);
    fixture_open(f, 0);
    for (uint64_t i = 1; i <= n; i++)
        assert_ok(fixture_append(f, i, true, &err), &err);
    for (int i = 0; i < 1000 && files_in(f, "journal", ".db-wal") < 2; i++)
        (void)usleep(5000); /* the next file is made beside */
    f->s = store_close(f->s);
}

static uint64_t lost(struct fixture *f)
{
    struct store_stats st;

    store_stats(f->s, &st);
    return st.replay_failed;
}

/* Send all again: what is there is a duplicate, what is not is stored. Then nothing is missing. */
static uint64_t resend(struct fixture *f, uint64_t n)
{
    uint64_t stored = 0;

    for (uint64_t i = 1; i <= n; i++) {
        int r = fixture_append(f, i, false, NULL);

        assert_true(r == 0 || r == STORE_DUPLICATE);
        stored += r == 0;
    }
    check_equal(f);
    return stored;
}

/* ---- tests --------------------------------------------------------------------------------- */

static void test_many_files(void **state)
{
    struct fixture f;

    (void)state;
    fill(&f, 60, 5);
    assert_true(files_in(&f, "journal", ".db") > 8);
    fixture_open(&f, 0);
    check_equal(&f);
    assert_int_equal(resend(&f, 60), 0);
    assert_int_equal(lost(&f), 0);
    for (int i = 0; i < 4; i++) { /* files without rows do not pile up */
        fixture_reopen(&f, 0);
        check_equal(&f);
    }
    assert_true(files_in(&f, "journal", ".db") < 60);
    fixture_deinit(&f);
}

static void test_newer_format(void **state)
{
    struct fixture f;
    struct err err = {};
    uint32_t before;

    (void)state;
    fill(&f, 20, 5);
    sql(&f, "journal/3.db", "PRAGMA user_version=2");
    before = files_in(&f, "journal", "");
    assert_int_equal(store_open(&f.conf, &f.s, &err), -EPROTO);
    assert_non_null(strstr(err.msg, "journal/3.db has format 2"));
    assert_non_null(strstr(err.msg, "reads format 1"));
    assert_int_equal(files_in(&f, "journal", ""), before);
    assert_int_equal(files_in(&f, "quarantine", ""), 0);
    sql(&f, "journal/3.db", "PRAGMA user_version=1");
    fixture_open(&f, 0);
    check_equal(&f);
    fixture_deinit(&f);
}

static void test_bad_row(void **state)
{
    struct fixture f;
    struct store_answer a;
    struct err err = {};

    (void)state;
    fill(&f, 20, 50);
    sql(&f, "journal/1.db", "UPDATE batch SET payload = x'0102030405060708' WHERE lsn = 7");
    assert_int_equal(store_open(&f.conf, &f.s, &err), STORE_PARTIAL);
    assert_non_null(strstr(err.msg, "lsn 7: wrong checksum"));
    assert_int_equal(lost(&f), 1);
    assert_true(total(f.s, PTYPE_CPU, &a) < want(&f.o, PTYPE_CPU));
    assert_int_equal(a.n_damage, 1);
    assert_int_equal(files_in(&f, "quarantine", "lsn-7.batch"), 1);
    assert_int_equal(resend(&f, 20), 1);
    fixture_reopen(&f, STORE_PARTIAL); /* the row is still bad, its resend is there */
    assert_int_equal(resend(&f, 20), 0);
    assert_int_equal(files_in(&f, "quarantine", ".batch"), 1);
    fixture_deinit(&f);
}

static void test_no_decode(void **state)
{
    struct fixture f;
    struct batch b;
    struct err err = {};
    uint64_t lsn;

    (void)state;
    fill(&f, 5, 50);
    fixture_open(&f, 0);
    gen_batch(6, 10, &f.a, NULL, &b);
    assert_ok(store_append_wait(f.s, &b, STR("no batch at all"), &lsn, &err), &err);
    assert_ok(fixture_append(&f, 7, true, &err), &err);
    f.s = store_close(f.s);
    assert_int_equal(store_open(&f.conf, &f.s, &err), STORE_PARTIAL);
    assert_non_null(strstr(err.msg, "payload of"));
    assert_int_equal(lost(&f), 1);
    check_equal(&f); /* all but that one */
    fixture_deinit(&f);
}

static void overwrite(const struct fixture *f, const char *name, int64_t size)
{
    char path[128];
    int fd;

    path_of(f, name, path);
    fd = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    if (size > 0)
        assert_int_equal(pwrite(fd, "garbage", 7, size), 7);
    (void)close(fd);
}

static void test_garbage_file(void **state)
{
    struct fixture f;
    struct err err = {};

    (void)state;
    fill(&f, 30, 5);
    overwrite(&f, "journal/2.db", 9000);
    assert_int_equal(store_open(&f.conf, &f.s, &err), STORE_PARTIAL);
    assert_non_null(strstr(err.msg, "journal/2.db"));
    assert_int_equal(files_in(&f, "quarantine", "journal-2.db"), 2); /* with its -wal */
    assert_int_equal(files_in(&f, "journal", "2.db"), 0);
    assert_true(lost(&f) >= 2);
    assert_true(resend(&f, 30) >= 2);
    fixture_reopen(&f, STORE_PARTIAL); /* the gap stays known */
    check_equal(&f);
    fixture_deinit(&f);
}

static void test_deleted_wal(void **state)
{
    struct fixture f;
    struct err err = {};
    char path[128];

    (void)state;
    fill(&f, 30, 5);
    path_of(&f, "journal/2.db-wal", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(store_open(&f.conf, &f.s, &err), STORE_PARTIAL);
    assert_non_null(strstr(err.msg, "are gone"));
    assert_true(lost(&f) >= 2);
    assert_int_equal(resend(&f, 30), lost(&f));
    fixture_deinit(&f);
}

/* Pages of a commit that failed may have reached the disk: what the next file does not acknowledge
 * is not shown, and is no damage. */
static void test_not_acknowledged(void **state)
{
    struct fixture f;

    (void)state;
    fill(&f, 30, 5);
    sql(&f, "journal/2.db", "UPDATE meta SET v = v - 1 WHERE k = 'after_lsn'");
    fixture_open(&f, 0);
    assert_int_equal(lost(&f), 0);
    assert_int_equal(resend(&f, 30), 1);
    fixture_deinit(&f);
}

/* A -wal of another journal: SQLite takes it, the sums do not. */
static void test_swapped_wal(void **state)
{
    struct fixture f;
    char two[128], three[128], tmp[128];
    uint64_t stored;

    (void)state;
    fill(&f, 30, 5);
    path_of(&f, "journal/2.db-wal", two);
    path_of(&f, "journal/3.db-wal", three);
    path_of(&f, "tmp", tmp);
    assert_int_equal(rename(two, tmp), 0);
    assert_int_equal(rename(three, two), 0);
    assert_int_equal(rename(tmp, three), 0);
    fixture_open(&f, STORE_PARTIAL);
    stored = resend(&f, 30);
    assert_true(stored >= 4);
    assert_true(lost(&f) >= stored);
    fixture_deinit(&f);
}

static void take_file(const struct fixture *from, const struct fixture *to, const char *name)
{
    char a[128], b[128];

    path_of(from, name, a);
    path_of(to, name, b);
    assert_int_equal(rename(a, b), 0);
}

struct found {
    const char *file;
    uint32_t n;
};

static bool on_finding(void *ctx, const struct store_finding *x)
{
    struct found *s = ctx;

    s->n += str_eq(x->file, str_c(s->file));
    return true;
}

/* What `strata check` finds in that file. */
static uint32_t damage_of(const struct fixture *f, const char *file)
{
    struct found s = {.file = file};
    const struct store_check_conf conf = {
        .dir = f->dir, .depth = STORE_CHECK_FULL, .finding = on_finding, .ctx = &s};
    struct store_checked out;
    struct err err = {};

    if (store_check(&conf, &out, &err) < 0)
        fail_msg("store_check: %s", err.msg);
    return s.n;
}

/* A journal of another store, put into the folder: whole, and nothing of ours. It is set aside, not
 * replayed, by the catalog's word or, where that is new, by that of most files; `strata check`
 * names it before. Nothing counts as lost. */
static void test_foreign_journal(void **state)
{
    for (int without_catalog = 0; without_catalog < 2; without_catalog++) {
        struct fixture f, other;
        struct err err = {};
        char path[128];

        (void)state;
        fill(&f, 20, 5);
        store_tuning.rotate_bytes = 40;
        fixture_init(&other);
        fixture_open(&other, 0);
        for (uint64_t i = 1001; i <= 1060; i++)
            assert_ok(fixture_append(&other, i, false, &err), &err);
        other.s = store_close(other.s);
        take_file(&other, &f, "journal/9.db");
        take_file(&other, &f, "journal/9.db-wal");
        fixture_deinit(&other);
        assert_int_equal(damage_of(&f, "journal/9.db"), 1);
        for (size_t i = 0; without_catalog && i < 2; i++) {
            path_of(&f, i ? "catalog.db-wal" : "catalog.db", path);
            assert_true(unlink(path) == 0 || (i == 1 && errno == ENOENT));
        }
        fixture_open(&f, STORE_PARTIAL);
        assert_int_equal(lost(&f), 0);
        check_equal(&f);
        assert_int_equal(files_in(&f, "quarantine", "journal-9.db."), 1);
        assert_int_equal(files_in(&f, "quarantine", "journal-9.db-wal."), 1);
        assert_int_equal(resend(&f, 20), 0);
        fixture_reopen(&f, 0);
        check_equal(&f);
        fixture_deinit(&f);
    }
}

/* A byte anywhere: healthy or told, never another number, and a resend mends it. */
static void test_flips(void **state)
{
    struct rnd r = {SEED};

    (void)state;
    print_message("seed %u\n", SEED);
    for (uint32_t i = 0; i < FLIPS; i++) {
        static const char *const name[] = {"journal/1.db", "journal/1.db-wal", "journal/2.db",
                                           "journal/2.db-wal"};
        struct fixture f;
        char path[128];
        struct stat st;
        struct err err = {};
        unsigned char byte;
        off_t at;
        int fd, o;

        fill(&f, 8, 3);
        path_of(&f, name[i % 4], path);
        fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &st), 0);
        at = (off_t)(rnd_next(&r) % (uint64_t)st.st_size);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (unsigned char)(1u << rnd_below(&r, 8));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        (void)close(fd);
        o = store_open(&f.conf, &f.s, &err);
        if (o == -EPROTO) { /* it happened to hit the version */
            fixture_deinit(&f);
            continue;
        }
        if (o < 0)
            fail_msg("%s byte %ld: %s", name[i % 4], (long)at, err.msg);
        assert_int_equal(o == STORE_PARTIAL, lost(&f) > 0);
        (void)resend(&f, 8);
        fixture_deinit(&f);
    }
}

static void flip(const struct fixture *f, const char *name, off_t at)
{
    unsigned char byte;
    char path[128];
    int fd;

    path_of(f, name, path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
}

/* Damage in the last file, where no row of a later one shows the gap: SQLite reads up to it and
 * says nothing. After a clean stop the mark tells, after a kill the transactions behind the place.
 */
static void test_end_of_last_file(void **state)
{
    static const off_t at[] = {3, 17, 30 + 24 + 100, 32 + 4120 * 5 + 50};

    (void)state;
    for (uint32_t clean = 0; clean < 2; clean++) {
        for (uint32_t i = 0; i < sizeof at / sizeof *at; i++) {
            struct fixture f;

            fill(&f, 20, 1000);
            assert_int_equal(files_in(&f, "journal", ".db-wal"), 2);
            if (!clean) { /* a kill leaves no mark */
                char path[128];

                path_of(&f, "journal/2.db", path);
                assert_int_equal(unlink(path), 0);
                path_of(&f, "journal/2.db-wal", path);
                assert_int_equal(unlink(path), 0);
            }
            flip(&f, "journal/1.db-wal", at[i]);
            fixture_open(&f, STORE_PARTIAL);
            assert_true(lost(&f) >= 10);
            assert_true(resend(&f, 20) >= 10);
            fixture_reopen(&f, STORE_PARTIAL); /* and stays told */
            check_equal(&f);
            fixture_deinit(&f);
        }
    }
}

/* After a kill: the last -wal cut off between two transactions looks like one that was never
 * longer, and is told by journal/acked; without that nothing can be. */
static void test_cut_off_wal(void **state)
{
    (void)state;
    for (uint32_t told = 0; told < 2; told++) {
        struct fixture f;
        struct err err = {};
        char path[128];

        fill(&f, 20, 1000);
        path_of(&f, "journal/2.db", path);
        assert_int_equal(unlink(path), 0);
        path_of(&f, "journal/2.db-wal", path);
        assert_int_equal(unlink(path), 0);
        path_of(&f, "journal/1.db-wal", path);
        assert_int_equal(truncate(path, 32 + 4120 * 9), 0);
        if (!told) {
            path_of(&f, "journal/acked", path);
            assert_int_equal(truncate(path, 20), 0);
        }
        assert_int_equal(store_open(&f.conf, &f.s, &err), told ? STORE_PARTIAL : 0);
        if (told) {
            assert_non_null(strstr(err.msg, "to 20 are gone"));
            assert_true(lost(&f) > 0 && lost(&f) < 20);
            fixture_reopen(&f, STORE_PARTIAL); /* nothing was written: still told */
            assert_int_equal(resend(&f, 20), lost(&f));
        }
        assert_true(resend(&f, 20) > 0 || told);
        fixture_reopen(&f, told ? STORE_PARTIAL : 0);
        check_equal(&f);
        fixture_deinit(&f);
    }
}

/* SQLite deletes the -wal of an empty database, and with it the rows. */
static void test_empty_database(void **state)
{
    struct fixture f;
    char path[128];
    struct stat before, after;

    (void)state;
    fill(&f, 8, 3);
    path_of(&f, "journal/1.db-wal", path);
    assert_int_equal(stat(path, &before), 0);
    path_of(&f, "journal/1.db", path);
    assert_int_equal(truncate(path, 0), 0);
    fixture_open(&f, STORE_PARTIAL);
    assert_int_equal(files_in(&f, "quarantine", "journal-1.db-wal"), 1);
    path_of(&f, "quarantine", path);
    {
        DIR *d = opendir(path);
        const struct dirent *e;

        assert_non_null(d);
        while ((e = readdir(d))) { // NOLINT(concurrency-mt-unsafe)
            if (strstr(e->d_name, "db-wal")) {
                assert_int_equal(fstatat(dirfd(d), e->d_name, &after, 0), 0);
                assert_int_equal(before.st_size, after.st_size);
            }
        }
        (void)closedir(d);
    }
    assert_true(resend(&f, 8) >= 3);
    fixture_deinit(&f);
}

/* Files removed under a running server: what goes into them is not acknowledged. */
static void test_removed_while_open(void **state)
{
    struct fixture f;
    struct store_stats st;
    char path[128];

    (void)state;
    fill(&f, 1, 1000);
    fixture_open(&f, 0);
    assert_int_equal(fixture_append(&f, 2, true, NULL), 0);
    path_of(&f, "journal", path);
    assert_int_equal(test_remove_tree(path), 0);
    assert_true(fixture_append(&f, 3, false, NULL) < 0);
    assert_true(fixture_append(&f, 3, false, NULL) < 0);
    store_stats(f.s, &st);
    assert_int_equal(st.state, STORE_READ_ONLY);
    check_equal(&f); /* what was acknowledged stays readable */
    fixture_deinit(&f);
}

/* ---- a definition that was lost ------------------------------------------------------------ */

struct pair {
    struct batch b[3]; /* b[1] names nodes of b[0]; b[2] defines them again */
};

static int decode_pair(void *ctx, const struct store_entry *e, struct arena *arena,
                       struct batch *ret, struct err *err)
{
    const struct pair *p = ctx;

    (void)arena;
    if (e->payload.n != 1)
        return err_set(err, -EINVAL, "payload");
    *ret = p->b[e->payload.p[0] - '0'];
    ret->received = e->received;
    return 0;
}

static void test_lost_definition(void **state)
{
    struct fixture f;
    struct pair p;
    struct batch_node node[2] = {};
    const uint32_t row_node[] = {1, 1, 0};
    struct batch_stream st;
    struct store_view *v;
    struct store_trie t;
    struct store_answer a;
    struct store_frame fr;
    struct err err = {};
    unit_i128 before;
    bool found = false;
    uint64_t lsn;

    (void)state;
    store_tuning.rotate_bytes = 0;
    fixture_init(&f);
    gen_batch(1, 10, &f.a, NULL, &p.b[0]);
    p.b[1] = p.b[0];
    p.b[1].id.seq = 2;
    p.b[1].n_known = 1;
    p.b[1].n_node = 2;
    p.b[1].node = node;
    node[1].hash = p.b[0].node[1].hash;
    st = p.b[0].stream[0];
    st.rows = (struct batch_rows){.n = 3, .node = row_node};
    p.b[1].n_stream = 1;
    p.b[1].stream = &st;
    p.b[2] = p.b[0];
    p.b[2].id.seq = 3;
    f.conf.decode = decode_pair;
    f.conf.decode_ctx = &p;
    fixture_open(&f, 0);
    assert_ok(store_append_wait(f.s, &p.b[0], STR("0"), &lsn, &err), &err);
    before = total(f.s, PTYPE_CPU, &a);
    assert_ok(store_append_wait(f.s, &p.b[1], STR("1"), &lsn, &err), &err);
    assert_true(total(f.s, PTYPE_CPU, &a) == before + 3 * 10 * MS);
    f.s = store_close(f.s);
    sql(&f, "journal/1.db", "UPDATE batch SET sum = 1 WHERE lsn = 1");
    fixture_open(&f, STORE_PARTIAL);
    assert_true(total(f.s, PTYPE_CPU, &a) == 3 * 10 * MS); /* weight kept */
    v = store_view_get(f.s);
    assert_ok(store_trie(v, (struct store_trie_id){1, 1, 0}, &t, &err), &err);
    for (uint32_t i = 1; i < t.n; i++) {
        assert_ok(store_frame(v, 1, t.frame[i], &fr, &err), &err);
        found |= str_eq(fr.name, STR("[no stack: damaged]"));
    }
    assert_true(found);
    v = store_view_put(v);
    p.b[1].id.seq = 5; /* the next one that names it brings the definition */
    assert_int_equal(store_append_wait(f.s, &p.b[1], STR("1"), &lsn, NULL), STORE_DICT_MISS);
    assert_ok(store_append_wait(f.s, &p.b[2], STR("2"), &lsn, &err), &err);
    assert_ok(store_append_wait(f.s, &p.b[1], STR("1"), &lsn, &err), &err);
    fixture_deinit(&f);
}

/* ---- limits of the day --------------------------------------------------------------------- */

struct limits_seen {
    uint32_t n;
    uint32_t depth[64];
};

static int decode_limits(void *ctx, const struct store_entry *e, struct arena *arena,
                         struct batch *ret, struct err *err)
{
    struct limits_seen *l = ctx;

    l->depth[l->n++] = e->limits->depth;
    return gen_decode(NULL, e, arena, ret, err);
}

static void test_limits_of_the_day(void **state)
{
    struct fixture f;
    struct limits_seen l = {};
    struct err err = {};

    (void)state;
    fixture_init(&f);
    f.conf.limits.depth = 11;
    fixture_open(&f, 0);
    assert_ok(fixture_append(&f, 1, true, &err), &err);
    f.s = store_close(f.s);
    f.conf.limits.depth = 22;
    fixture_open(&f, 0);
    assert_ok(fixture_append(&f, 2, true, &err), &err);
    f.s = store_close(f.s);
    f.conf.limits.depth = 33;
    f.conf.decode = decode_limits;
    f.conf.decode_ctx = &l;
    fixture_open(&f, 0);
    assert_int_equal(l.n, 2);
    assert_int_equal(l.depth[0], 11);
    assert_int_equal(l.depth[1], 22);
    check_equal(&f);
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_files),       cmocka_unit_test(test_newer_format),
        cmocka_unit_test(test_bad_row),          cmocka_unit_test(test_no_decode),
        cmocka_unit_test(test_garbage_file),     cmocka_unit_test(test_deleted_wal),
        cmocka_unit_test(test_swapped_wal),      cmocka_unit_test(test_foreign_journal),
        cmocka_unit_test(test_not_acknowledged), cmocka_unit_test(test_flips),
        cmocka_unit_test(test_end_of_last_file), cmocka_unit_test(test_cut_off_wal),
        cmocka_unit_test(test_empty_database),   cmocka_unit_test(test_removed_while_open),
        cmocka_unit_test(test_lost_definition),  cmocka_unit_test(test_limits_of_the_day),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
