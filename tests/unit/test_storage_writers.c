// SPDX-License-Identifier: Apache-2.0
/*
 * One writing connection per file, while everything goes on at once: appends at full rate, seals
 * (each ends with a checkpoint of its files), compaction, backups, a reader.
 *
 * What is open is read from /proc/self/fd: a file of the store that is open for writing twice would
 * be one that two connections may checkpoint, which SQLite 3.40 answers with damage (wal.c, the
 * WAL-reset bug mended in 3.51.3); one that is sealed is open for reading alone and has neither
 * -wal nor -shm. Afterwards every file passes SQLite's own check.
 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "storage/keep/compact_private.h"
#include "tests/unit/test_storage_mixed.h"

#define PATHS 512
#define MOST  15000 /* batches at full rate; beyond them a few: a reader keeps all it reads */

struct busy {
    struct fixture *f;
    atomic_bool stop;
    _Atomic uint64_t appended, seals, merges, backups, reads;
};

/* ---- what goes on -------------------------------------------------------------------------- */

static void *append_on(void *arg)
{
    struct busy *b = arg;

    for (uint64_t i = 1; !atomic_load(&b->stop); i++) {
        assert_int_equal(append(b->f, i), 0);
        if (atomic_fetch_add(&b->appended, 1) > MOST)
            (void)usleep(20000);
    }
    return NULL;
}

static void *seal_on(void *arg)
{
    struct busy *b = arg;
    struct err err = {};

    while (!atomic_load(&b->stop)) {
        seal_now(b->f);
        atomic_fetch_add(&b->seals, 1);
        if (atomic_load(&b->seals) % 8 == 0 && compact_all(b->f->s, &err) == 0)
            atomic_fetch_add(&b->merges, 1);
        (void)usleep(5000);
    }
    return NULL;
}

static void *back_up_on(void *arg)
{
    struct busy *b = arg;
    uint32_t bad = 0;

    for (uint32_t i = 0; !atomic_load(&b->stop); i++) {
        char dir[96];
        uint64_t lsn;
        struct err err = {};

        (void)snprintf(dir, sizeof dir, "%s.backup%u", b->f->dir, i % 2);
        if (store_backup(b->f->s, dir, &lsn, &err) != 0)
            FAIL_LOUD("store_backup: %s", err.msg);
        bad += test_remove_tree(dir) != 0;
        atomic_fetch_add(&b->backups, 1);
        (void)usleep(20000);
    }
    assert_int_equal(bad, 0);
    return NULL;
}

static void *read_on(void *arg)
{
    struct busy *b = arg;

    while (!atomic_load(&b->stop)) {
        free(dump_store(b->f));
        atomic_fetch_add(&b->reads, 1);
    }
    return NULL;
}

/* ---- what is open -------------------------------------------------------------------------- */

struct open_files {
    uint32_t n, writable, sealed;
    char path[PATHS][192]; /* open for writing */
};

static bool is_writable(int fd)
{
    int flags = fcntl(fd, F_GETFL); /* -1: closed meanwhile */

    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

static bool ends_with(const char *s, const char *end)
{
    return str_ends(str_c(s), str_c(end));
}

static void look(const struct fixture *f, struct open_files *o)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;

    assert_non_null(d);
    o->n = 0;
    while ((e = readdir(d))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        char path[192];
        bool writable;
        ssize_t n;

        n = readlinkat(dirfd(d), e->d_name, path, sizeof path - 1);
        if (n <= 0)
            continue;
        path[n] = '\0';
        if (strncmp(path, f->dir, strlen(f->dir)) != 0 || path[strlen(f->dir)] != '/')
            continue;
        writable = is_writable(atoi(e->d_name)); // NOLINT(cert-err34-c): digits
        if (strstr(path, "/shard/")) {
            o->sealed++;
            assert_false(ends_with(path, "-wal") || ends_with(path, "-shm"));
            if (writable)
                fail_msg("%s: sealed, and open for writing", path);
        }
        if (!writable || !(ends_with(path, ".db") || ends_with(path, "-wal")))
            continue;
        for (uint32_t i = 0; i < o->n; i++) {
            if (strcmp(o->path[i], path) == 0)
                fail_msg("%s: open for writing twice", path);
        }
        assert_true(o->n < PATHS);
        (void)snprintf(o->path[o->n++], sizeof o->path[0], "%s", path);
        o->writable++;
    }
    (void)closedir(d);
}

/* ---- afterwards ---------------------------------------------------------------------------- */

static uint32_t checked; /* nftw has no context */

static int check_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    sqlite3_stmt *q = NULL;
    sqlite3 *db = NULL;

    (void)st, (void)ftw;
    if (type != FTW_F || !ends_with(path, ".db"))
        return 0;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &q, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    if (strcmp((const char *)sqlite3_column_text(q, 0), "ok") != 0)
        fail_msg("%s: %s", path, (const char *)sqlite3_column_text(q, 0));
    assert_int_equal(sqlite3_finalize(q), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    checked++;
    return 0;
}

static void one_writer(void **state)
{
    const uint32_t seconds = getenv("STRATA_LONG") ? 600 : 3; // NOLINT(concurrency-mt-unsafe)
    static struct open_files o;
    void *(*const work[])(void *) = {append_on, seal_on, back_up_on, read_on};
    pthread_t thread[4];
    struct fixture f;
    struct busy b = {.f = &f};
    struct err err = {};
    uint32_t looks = 0;

    (void)state;
    store_tuning.compact_asked = true;
    begin(&f);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work[i], &b), 0);
    for (uint32_t i = 0; i < seconds * 100 || !atomic_load(&b.merges) || !atomic_load(&b.backups) ||
                         !atomic_load(&b.reads);
         i++) {
        look(&f, &o);
        looks++;
        (void)usleep(10000);
    }
    atomic_store(&b.stop, true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_true(o.writable > 0 && o.sealed > 0); /* both kinds were seen */
    print_message("%u looks; %" PRIu64 " batches, %" PRIu64 " seals, %" PRIu64
                  " compactions, %" PRIu64 " backups, %" PRIu64 " reads\n",
                  looks, atomic_load(&b.appended), atomic_load(&b.seals), atomic_load(&b.merges),
                  atomic_load(&b.backups), atomic_load(&b.reads));
    if (compact_all(f.s, &err) != 0)
        fail_msg("compact_all: %s", err.msg);
    f.s = store_close(f.s);
    assert_int_equal(nftw(f.dir, check_file, 16, FTW_PHYS), 0);
    assert_true(checked >= 3); /* catalog, dictionary, a part */
    fixture_deinit(&f);
    store_tuning.compact_asked = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_writer)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
