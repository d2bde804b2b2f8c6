// SPDX-License-Identifier: Apache-2.0
/* The disk of the power-cut tests loses what it says, and nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/disk.h"
#include "tests/lib/testing.h"
#include "tests/lib/tmpdir.h"

struct here {
    char top[64], dir[80];
    int fd;
    uint32_t image;
};

static void open_dir(struct here *h)
{
    h->fd = open(h->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(h->fd >= 0);
}

static void here_init(struct here *h)
{
    *h = (struct here){};
    (void)snprintf(h->top, sizeof h->top, "%s/strata_disk_XXXXXX", test_fast_dir());
    assert_non_null(mkdtemp(h->top));
    (void)snprintf(h->dir, sizeof h->dir, "%s/0", h->top);
    assert_int_equal(mkdir(h->dir, 0700), 0);
    disk_begin(h->dir);
    open_dir(h);
}

static void here_deinit(struct here *h)
{
    (void)close(h->fd);
    disk_end();
    assert_int_equal(test_remove_tree(h->top), 0);
}

static void next_image(struct here *h, bool cut, enum disk_keep keep, uint64_t seed)
{
    (void)close(h->fd);
    (void)snprintf(h->dir, sizeof h->dir, "%s/%u", h->top, ++h->image);
    if (cut)
        disk_cut(h->dir, keep, seed);
    else
        disk_kill(h->dir);
    assert_true(disk_compare());
    open_dir(h);
}

static void put(const struct here *h, const char *name, const char *text, bool sync)
{
    int fd = openat(h->fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    if (sync)
        assert_int_equal(fsync(fd), 0);
    assert_int_equal(close(fd), 0);
}

/* Its content, or NULL: it is not there. */
static const char *get(const struct here *h, const char *name)
{
    static char b[256];
    int fd = openat(h->fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return NULL;
    n = read(fd, b, sizeof b - 1);
    (void)close(fd);
    assert_true(n >= 0);
    b[n] = '\0';
    return b;
}

static void test_names_and_content(void **state)
{
    struct here h;

    (void)state;
    here_init(&h);
    put(&h, "both", "x", true);
    assert_int_equal(fsync(h.fd), 0);
    put(&h, "name", "x", false);
    put(&h, "gone", "x", false);
    assert_int_equal(fsync(h.fd), 0);
    put(&h, "content", "x", true); /* its name was not synced */
    assert_int_equal(unlinkat(h.fd, "gone", 0), 0);
    put(&h, "both", "yy", false);
    next_image(&h, true, DISK_NONE, 1);
    assert_string_equal(get(&h, "both"), "x");
    assert_string_equal(get(&h, "name"), "");
    assert_string_equal(get(&h, "gone"), ""); /* the unlink was undone */
    assert_null(get(&h, "content"));
    put(&h, "both", "yy", false);
    next_image(&h, true, DISK_ALL, 1);
    assert_string_equal(get(&h, "both"), "yy");
    here_deinit(&h);
}

static void test_rename(void **state)
{
    struct here h;

    (void)state;
    here_init(&h);
    put(&h, "new", "2", true);
    put(&h, "old", "1", true);
    assert_int_equal(mkdirat(h.fd, "sub", 0700), 0);
    assert_int_equal(fsync(h.fd), 0);
    assert_int_equal(renameat(h.fd, "new", h.fd, "old"), 0);
    next_image(&h, true, DISK_NONE, 1);
    assert_string_equal(get(&h, "old"), "1");
    assert_string_equal(get(&h, "new"), "2");
    assert_int_equal(renameat(h.fd, "new", h.fd, "old"), 0);
    assert_int_equal(fsync(h.fd), 0);
    assert_int_equal(renameat(h.fd, "old", h.fd, "sub/old"), 0);
    assert_int_equal(fsync(h.fd), 0); /* out of here, but not yet into there */
    next_image(&h, true, DISK_NONE, 1);
    assert_null(get(&h, "new"));
    assert_null(get(&h, "old"));
    assert_null(get(&h, "sub/old"));
    here_deinit(&h);
}

/* Each choice of what to keep gives what could be, and over many seeds all of it. */
static void test_choices(void **state)
{
    uint32_t seen[8] = {}, torn = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        static char big[2048];
        struct here h;
        struct stat st;
        uint32_t bits = 0;
        int fd;

        here_init(&h);
        put(&h, "big", "", true);
        assert_int_equal(fsync(h.fd), 0);
        for (uint32_t i = 0; i < 3; i++)
            put(&h, (const char *[]){"a", "b", "c"}[i], "", false);
        fd = openat(h.fd, "big", O_WRONLY | O_CLOEXEC);
        memset(big, 'x', sizeof big);
        assert_int_equal(pwrite(fd, big, sizeof big, 0), sizeof big);
        (void)close(fd);
        next_image(&h, true, seed % 2 ? DISK_SUBSET : DISK_PREFIX, seed);
        for (uint32_t i = 0; i < 3; i++)
            bits |= get(&h, (const char *[]){"a", "b", "c"}[i]) ? 1u << i : 0;
        if (seed % 2 == 0)
            assert_true(bits == 0 || bits == 1 || bits == 3 || bits == 7);
        seen[bits]++;
        assert_int_equal(fstatat(h.fd, "big", &st, 0), 0);
        torn += st.st_size > 0 && st.st_size < (off_t)sizeof big;
        here_deinit(&h);
    }
    for (uint32_t i = 0; i < 8; i++)
        assert_true(seen[i] > 0);
    assert_true(torn > 0);
}

/* A kill loses nothing, and what was pending stays so. */
static void test_kill(void **state)
{
    struct here h;
    int fd;

    (void)state;
    here_init(&h);
    put(&h, "a", "1", true);
    assert_int_equal(fsync(h.fd), 0);
    put(&h, "a", "2", false);
    next_image(&h, false, DISK_NONE, 0);
    assert_string_equal(get(&h, "a"), "2");
    disk_weaken(DISK_NO_OLD_SYNC);
    fd = openat(h.fd, "a", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fsync(fd), 0);
    (void)close(fd);
    next_image(&h, true, DISK_NONE, 0);
    assert_string_equal(get(&h, "a"), "1");
    disk_weaken(0);
    put(&h, "a", "3", false);
    next_image(&h, false, DISK_NONE, 0);
    fd = openat(h.fd, "a", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fsync(fd), 0);
    (void)close(fd);
    next_image(&h, true, DISK_NONE, 0);
    assert_string_equal(get(&h, "a"), "3");
    here_deinit(&h);
}

static void test_the_end(void **state)
{
    struct here h;
    _Atomic bool before = false, after = false;

    (void)state;
    here_init(&h);
    disk_arm(DISK_SYNC, 2);
    put(&h, "a", "1", true);
    disk_see(&before);
    assert_int_equal(fsync(h.fd), 0); /* the program does not notice */
    assert_true(disk_stopped());
    disk_see(&after);
    put(&h, "b", "1", true);
    next_image(&h, true, DISK_ALL, 1);
    assert_true(before);
    assert_false(after);
    assert_string_equal(get(&h, "a"), "1");
    assert_null(get(&h, "b"));
    here_deinit(&h);
}

static void test_failures(void **state)
{
    struct here h;
    int fd;

    (void)state;
    here_init(&h);
    put(&h, "a", "", true);
    assert_int_equal(fsync(h.fd), 0);
    fd = openat(h.fd, "a", O_RDWR | O_CLOEXEC);
    disk_fail(DISK_CHANGE, 2, 1, ENOSPC);
    assert_int_equal(pwrite(fd, "1234", 4, 0), 4);
    assert_int_equal(pwrite(fd, "5678", 4, 4), -1);
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(lseek(fd, 0, SEEK_END), 6);
    assert_int_equal(disk_failures(), 1);
    disk_fail(DISK_SYNC, 1, 1, EIO);
    assert_int_equal(fsync(fd), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(fsync(fd), 0); /* says so, and means nothing */
    disk_fail(DISK_OPEN | DISK_READ, 1, 2, EIO);
    assert_int_equal(openat(h.fd, "a", O_RDONLY | O_CLOEXEC), -1);
    assert_int_equal(read(fd, &(char){0}, 1), -1);
    assert_int_equal(renameat(h.fd, "a", h.fd, "b"), 0);
    disk_fail(DISK_CHANGE, 1, 1, EIO);
    assert_int_equal(renameat(h.fd, "b", h.fd, "a"), -1);
    (void)close(fd);
    next_image(&h, true, DISK_NONE, 1);
    assert_string_equal(get(&h, "a"), "");
    here_deinit(&h);
}

/* Everything that SQLite does goes through it, in each journal mode. */
static void test_sqlite(void **state)
{
    static const char *const mode[] = {"PRAGMA journal_mode=DELETE", "PRAGMA journal_mode=WAL"};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct here h;
        char path[128];
        sqlite3 *db;

        here_init(&h);
        (void)snprintf(path, sizeof path, "%s/x.db", h.dir);
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, mode[i], NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db,
                                      "CREATE TABLE t(x); INSERT INTO t VALUES(randomblob(9000))",
                                      NULL, NULL, NULL),
                         SQLITE_OK);
        assert_true(disk_calls() > 4);
        assert_true(disk_compare());
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
        assert_true(disk_compare());
        disk_fail(DISK_CHANGE, 1, 1, ENOSPC);
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_not_equal(sqlite3_exec(db, "DELETE FROM t", NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(disk_failures(), 1);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
        here_deinit(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_content),
        cmocka_unit_test(test_rename),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_the_end),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_sqlite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
