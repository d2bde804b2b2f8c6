// SPDX-License-Identifier: Apache-2.0
/* The log's file by SQLite's own calls, against an array that is written at once. */
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "tests/unit/test_storage_lib.h"

#define SIZE (1u << 20)

struct log {
    char dir[64], path[96];
    sqlite3_vfs *vfs;
    sqlite3_file *f;
};

/* With an empty database, whose mode SQLite gives to its log. */
static void log_init(struct log *l)
{
    int fd;

    *l = (struct log){};
    (void)snprintf(l->dir, sizeof l->dir, "%s/strata_gather_XXXXXX", test_fast_dir());
    assert_non_null(mkdtemp(l->dir));
    (void)snprintf(l->path, sizeof l->path, "%s/1.db", l->dir);
    fd = open(l->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    (void)snprintf(l->path, sizeof l->path, "%s/1.db-wal", l->dir);
    assert_non_null(journal_vfs());
    l->vfs = sqlite3_vfs_find(journal_vfs());
    assert_non_null(l->vfs);
    l->f = calloc(1, (size_t)l->vfs->szOsFile);
    assert_non_null(l->f);
}

static void log_open(struct log *l, int flags)
{
    assert_int_equal(l->vfs->xOpen(l->vfs, l->path, l->f, flags | SQLITE_OPEN_WAL, NULL),
                     SQLITE_OK);
}

static void log_deinit(struct log *l)
{
    free(l->f);
    assert_int_equal(test_remove_tree(l->dir), 0);
}

static int64_t on_disk(const struct log *l)
{
    struct stat st;

    assert_int_equal(stat(l->path, &st), 0);
    return st.st_size;
}

static bool same_file(const struct log *l, const uint8_t *want, int64_t n)
{
    int fd = open(l->path, O_RDONLY | O_CLOEXEC);
    uint8_t *got = malloc(SIZE);
    bool same;

    assert_true(fd >= 0 && got);
    same = pread(fd, got, SIZE, 0) == n && memcmp(got, want, (size_t)n) == 0;
    (void)close(fd);
    free(got);
    return same;
}

/* Headers and pages of a transaction stay together until the sync. */
static void gathers_until_the_sync(void **state)
{
    static uint8_t page[4096], want[25 * 4120];
    struct log l;

    (void)state;
    log_init(&l);
    log_open(&l, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    for (unsigned i = 0; i < 25; i++) {
        memset(page, (int)i + 1, sizeof page);
        memcpy(want + (size_t)i * 4120, page, 24);
        memcpy(want + (size_t)i * 4120 + 24, page, sizeof page);
        assert_int_equal(l.f->pMethods->xWrite(l.f, page, 24, (sqlite3_int64)i * 4120), SQLITE_OK);
        assert_int_equal(
            l.f->pMethods->xWrite(l.f, page, sizeof page, (sqlite3_int64)i * 4120 + 24), SQLITE_OK);
    }
    assert_int_equal(on_disk(&l), 0);
    assert_int_equal(l.f->pMethods->xSync(l.f, SQLITE_SYNC_FULL), SQLITE_OK);
    assert_true(same_file(&l, want, sizeof want));
    assert_int_equal(l.f->pMethods->xClose(l.f), SQLITE_OK);
    log_deinit(&l);
}

/* Whatever is asked between, the file is what it would have been. */
static void any_order_of_calls(void **state)
{
    static uint8_t want[SIZE], bytes[65537], got[SIZE];
    sqlite3_int64 size = 0, end = 0, length = 0;
    uint64_t mix = 7;
    struct log l;

    (void)state;
    log_init(&l);
    log_open(&l, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t what, n, at;

        mix = mix * UINT64_C(6364136223846793005) + 1442695040888963407u;
        what = mix >> 60;
        n = i % 97 == 0 ? (mix >> 30) % sizeof bytes : (mix >> 30) % 5000 + 1;
        at = what < 10 ? (uint64_t)end : (mix >> 10) % (uint64_t)(size + 1);
        if (what < 12) { /* mostly behind the last write, as a log is written */
            at = at + n > SIZE ? 0 : at;
            memset(bytes, (int)(mix >> 50), n);
            memcpy(want + at, bytes, n);
            end = (int64_t)(at + n);
            size = end > size ? end : size;
            assert_int_equal(l.f->pMethods->xWrite(l.f, bytes, (int)n, (int64_t)at), SQLITE_OK);
        } else if (what == 12 && at + n <= (uint64_t)size) {
            assert_int_equal(l.f->pMethods->xRead(l.f, got, (int)n, (int64_t)at), SQLITE_OK);
            assert_memory_equal(got, want + at, n);
        } else if (what == 13) {
            assert_int_equal(l.f->pMethods->xFileSize(l.f, &length), SQLITE_OK);
            assert_int_equal(length, size);
        } else if (what == 14) {
            assert_int_equal(l.f->pMethods->xSync(l.f, SQLITE_SYNC_NORMAL), SQLITE_OK);
            assert_true(i % 50 || same_file(&l, want, size));
        } else if (what == 15 && i % 20 == 0) {
            assert_int_equal(l.f->pMethods->xTruncate(l.f, (int64_t)at), SQLITE_OK);
            memset(want + at, 0, SIZE - at);
            size = (int64_t)at;
            end = size;
        }
    }
    assert_int_equal(l.f->pMethods->xClose(l.f), SQLITE_OK);
    assert_true(same_file(&l, want, size));
    log_deinit(&l);
}

/* A write that the file would refuse is refused by the sync, once: what was gathered is gone. */
static void a_failed_write_fails_the_sync(void **state)
{
    struct log l;
    int fd;

    (void)state;
    log_init(&l);
    fd = open(l.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, "before", 6) == 6);
    (void)close(fd);
    log_open(&l, SQLITE_OPEN_READONLY);
    assert_int_equal(l.f->pMethods->xWrite(l.f, "after", 5, 0), SQLITE_OK);
    assert_int_not_equal(l.f->pMethods->xSync(l.f, SQLITE_SYNC_FULL), SQLITE_OK);
    assert_int_equal(l.f->pMethods->xSync(l.f, SQLITE_SYNC_FULL), SQLITE_OK);
    assert_int_equal(l.f->pMethods->xWrite(l.f, "after", 5, 0), SQLITE_OK);
    assert_int_not_equal(l.f->pMethods->xClose(l.f), SQLITE_OK);
    assert_true(same_file(&l, (const uint8_t *)"before", 6));
    log_deinit(&l);
}

/* A file that cannot be opened leaves nothing behind; others than logs are not gathered. */
static void other_opens(void **state)
{
    struct log l;

    (void)state;
    log_init(&l);
    assert_int_not_equal(
        l.vfs->xOpen(l.vfs, l.path, l.f, SQLITE_OPEN_READWRITE | SQLITE_OPEN_WAL, NULL), SQLITE_OK);
    assert_null(l.f->pMethods);
    assert_int_equal(l.vfs->xOpen(l.vfs, l.path, l.f,
                                  SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MAIN_DB,
                                  NULL),
                     SQLITE_OK);
    assert_int_equal(l.f->pMethods->xWrite(l.f, "at once", 7, 0), SQLITE_OK);
    assert_int_equal(on_disk(&l), 7);
    assert_int_equal(l.f->pMethods->xClose(l.f), SQLITE_OK);
    log_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers_until_the_sync),
        cmocka_unit_test(any_order_of_calls),
        cmocka_unit_test(a_failed_write_fails_the_sync),
        cmocka_unit_test(other_opens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
