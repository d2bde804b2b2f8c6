// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "tests/unit/test_storage_lib.h"

struct here {
    char dir[64], path[96];
    int fd;
};

static void here_init(struct here *h, uint64_t number)
{
    *h = (struct here){};
    (void)snprintf(h->dir, sizeof h->dir, "%s/strata_journal_XXXXXX", test_fast_dir());
    assert_non_null(mkdtemp(h->dir));
    (void)snprintf(h->path, sizeof h->path, "%s/%" PRIu64 ".db", h->dir, number);
    h->fd = open(h->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(h->fd >= 0);
}

static void here_deinit(struct here *h)
{
    (void)close(h->fd);
    assert_int_equal(test_remove_tree(h->dir), 0);
}

static const struct batch_limits limits = {.age_ns = 1,
                                           .future_ns = 2,
                                           .samples = 3,
                                           .streams = 4,
                                           .entries = 5,
                                           .depth = 6,
                                           .name_bytes = 7,
                                           .labels = 8,
                                           .label_name_bytes = 9,
                                           .label_value_bytes = 10,
                                           .attributes = 11,
                                           .series_per_service = 12,
                                           .series = 13};
static const struct journal_new seven = {.number = 7, .store = 77, .limits = &limits};

static struct journal_row row_of(uint64_t lsn)
{
    return (struct journal_row){.lsn = lsn,
                                .agent = {1, 2, 3},
                                .boot = {4, 5, 6},
                                .seq = lsn * 10,
                                .content = UINT64_MAX - lsn,
                                .received = {-5},
                                .payload = STR("some bytes\0and more")};
}

struct seen {
    uint64_t n, bad, last;
    int stop;
};

static int on_row(void *ctx, const struct journal_row *row, bool ok, struct err *err)
{
    struct seen *s = ctx;
    struct journal_row want = row_of(row->lsn);

    (void)err;
    s->n++;
    s->bad += !ok;
    if (ok) {
        assert_memory_equal(row->agent, want.agent, 16);
        assert_memory_equal(row->boot, want.boot, 16);
        assert_int_equal(row->seq, want.seq);
        assert_int_equal(row->content, want.content);
        assert_int_equal(row->received.v, want.received.v);
        assert_str(row->payload, want.payload);
        assert_true(row->lsn > s->last);
    }
    s->last = row->lsn;
    return s->stop;
}

static void write_rows(struct journal *j, uint64_t first, uint64_t n, uint64_t after)
{
    struct err err = {};

    for (uint64_t i = 0; i < n; i += 2) {
        struct journal_row row[2] = {row_of(first + i), row_of(first + i + 1)};

        assert_ok(journal_commit(j, row, 2, after, &err), &err);
    }
}

/* Read while the writer has it open, as after a kill. */
static void test_round_trip(void **state)
{
    struct here h;
    struct journal *j = NULL;
    struct journal_info info;
    struct seen s = {};
    struct err err = {};
    struct stat before, after;

    (void)state;
    here_init(&h, 7);
    assert_ok(journal_create(h.dir, h.fd, &seven, &j, &err), &err);
    assert_ok(journal_info(h.path, 7, &info, &err), &err);
    assert_false(info.used);
    write_rows(j, 100, 10, 42);
    assert_int_equal(journal_rows(j), 10);
    assert_int_equal(journal_bytes(j), 10 * 19);
    j = journal_close(j);
    assert_int_equal(stat(h.path, &before), 0);
    assert_ok(journal_info(h.path, 7, &info, &err), &err);
    assert_true(info.used);
    assert_int_equal(info.number, 7);
    assert_int_equal(info.first_lsn, 100);
    assert_int_equal(info.after_lsn, 42);
    assert_memory_equal(&info.limits, &limits, sizeof limits);
    assert_int_equal(info.store, 77);
    assert_ok(journal_read(h.path, 7, on_row, &s, &err), &err);
    assert_int_equal(s.n, 10);
    assert_int_equal(s.bad, 0);
    s = (struct seen){.stop = -ECANCELED};
    assert_int_equal(journal_read(h.path, 7, on_row, &s, &err), -ECANCELED);
    assert_int_equal(s.n, 1);
    assert_int_equal(stat(h.path, &after), 0); /* reading writes nothing */
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim);
    assert_int_equal(before.st_size, after.st_size);
    here_deinit(&h);
}

static void sql(const char *path, const char *text)
{
    sqlite3 *db;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA locking_mode=EXCLUSIVE", NULL, NULL, NULL),
                     SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* What is in the file, by other means than ours: the table of the format document. */
static void test_format(void **state)
{
    struct here h;
    struct journal *j = NULL;
    struct err err = {};
    sqlite3 *db;
    sqlite3_stmt *st;

    (void)state;
    here_init(&h, 7);
    assert_ok(journal_create(h.dir, h.fd, &seven, &j, &err), &err);
    write_rows(j, 1, 2, 0);
    j = journal_close(j);
    assert_int_equal(sqlite3_open(h.path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT application_id, user_version, page_size, "
                                        "journal_mode, auto_vacuum FROM pragma_application_id, "
                                        "pragma_user_version, pragma_page_size, "
                                        "pragma_journal_mode, pragma_auto_vacuum",
                                        -1, &st, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(st, 0), 0x53545241);
    assert_int_equal(sqlite3_column_int(st, 1), 1);
    assert_int_equal(sqlite3_column_int(st, 2), 4096);
    assert_string_equal((const char *)sqlite3_column_text(st, 3), "wal");
    assert_int_equal(sqlite3_column_int(st, 4), 0);
    (void)sqlite3_finalize(st);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT sum FROM batch WHERE lsn = 1", -1, &st, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    /* computed from the bytes in docs/format-journal.md with libxxhash alone */
    assert_int_equal(sqlite3_column_int64(st, 0), (int64_t)UINT64_C(0xb66fcf4dd5e2eabd));
    (void)sqlite3_finalize(st);
    (void)sqlite3_close(db);
    here_deinit(&h);
}

static void test_bad_rows(void **state)
{
    static const char *const change[] = {
        "UPDATE batch SET payload = x'00' WHERE lsn = 3",
        "UPDATE batch SET seq = 1 WHERE lsn = 3",
        "UPDATE batch SET agent = zeroblob(16) WHERE lsn = 3",
        "UPDATE batch SET boot = zeroblob(3) WHERE lsn = 3",
        "UPDATE batch SET received = 0 WHERE lsn = 3",
        "UPDATE batch SET content = 0 WHERE lsn = 3",
        "UPDATE batch SET sum = 0 WHERE lsn = 3",
        "UPDATE batch SET lsn = 33 WHERE lsn = 3",
    };

    (void)state;
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        struct here h;
        struct journal *j = NULL;
        struct seen s = {};
        struct err err = {};

        here_init(&h, 7);
        assert_ok(journal_create(h.dir, h.fd, &seven, &j, &err), &err);
        write_rows(j, 1, 4, 0);
        j = journal_close(j);
        sql(h.path, change[i]);
        assert_ok(journal_read(h.path, 7, on_row, &s, &err), &err);
        assert_int_equal(s.n, 4);
        assert_int_equal(s.bad, 1);
        here_deinit(&h);
    }
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *change;
        int r;
        const char *word;
    } all[] = {
        {"PRAGMA user_version=2", -EPROTO, "format 2, this program reads format 1"},
        {"UPDATE meta SET v = 4 WHERE k = 'incompat'", -EPROTO, "0x4"},
        {"PRAGMA application_id=1", -EBADMSG, "not a file of this program"},
        {"UPDATE meta SET v = 8 WHERE k = 'number'", -EBADMSG, "number 8"},
        {"DELETE FROM meta WHERE k = 'uuid'", -EBADMSG, "meta is not complete"},
        {"DELETE FROM meta WHERE k = 'limit.series'", -EBADMSG, "meta is not complete"},
        {"UPDATE meta SET v = 'many' WHERE k = 'limit.depth'", -EBADMSG, "meta is not complete"},
        {"DELETE FROM meta WHERE k = 'after_lsn'", -EBADMSG, "meta is not complete"},
        {"DROP TABLE meta", -EBADMSG, "meta"},
        {"UPDATE meta SET v = 1 WHERE k = 'compat'", 0, NULL},
        {"INSERT INTO meta VALUES('later', 1)", 0, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct here h;
        struct journal *j = NULL;
        struct journal_info info;
        struct err err = {}, why = {};

        here_init(&h, 7);
        assert_ok(journal_create(h.dir, h.fd, &seven, &j, &err), &err);
        write_rows(j, 1, 4, 0);
        j = journal_close(j);
        sql(h.path, all[i].change);
        assert_int_equal(journal_info(h.path, 7, &info, &why), all[i].r);
        if (all[i].word && !strstr(why.msg, all[i].word))
            fail_msg("%s: \"%s\"", all[i].change, why.msg);
        here_deinit(&h);
    }
}

static bool copy(const char *from, const char *to)
{
    char buf[4096];
    FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
    bool ok = out != NULL;

    while (ok && !feof(in)) {
        size_t n = fread(buf, 1, sizeof buf, in);

        ok = fwrite(buf, 1, n, out) == n && !ferror(in);
    }
    if (in)
        (void)fclose(in);
    return out ? fclose(out) == 0 && ok : false;
}

/* A file that version 1 wrote is read by all later ones. UPDATE_GOLDEN=1 writes it anew. */
static void test_golden(void **state)
{
    const char *dir = getenv("STRATA_GOLDEN"), *update = getenv("UPDATE_GOLDEN"); // NOLINT
    char path[2][4096];
    struct here h;
    struct journal *j = NULL;
    struct journal_info info;
    struct seen s = {};
    struct err err = {};

    (void)state;
    if (!dir)
        skip();
    (void)snprintf(path[0], sizeof path[0], "%s/journal_v1.db", dir);
    (void)snprintf(path[1], sizeof path[1], "%s/journal_v1.db-wal", dir);
    here_init(&h, 7);
    if (update) {
        char wal[128];

        assert_ok(journal_create(h.dir, h.fd, &seven, &j, &err), &err);
        write_rows(j, 1, 4, 0);
        j = journal_close(j);
        (void)snprintf(wal, sizeof wal, "%s-wal", h.path);
        assert_true(copy(h.path, path[0]) && copy(wal, path[1]));
    }
    assert_ok(journal_info(path[0], 7, &info, &err), &err);
    assert_true(info.used);
    assert_int_equal(info.first_lsn, 1);
    assert_int_equal(info.after_lsn, 0);
    assert_memory_equal(&info.limits, &limits, sizeof limits);
    assert_ok(journal_read(path[0], 7, on_row, &s, &err), &err);
    assert_int_equal(s.n, 4);
    assert_int_equal(s.bad, 0);
    s = (struct seen){};
    assert_int_equal(journal_info(path[0], 8, &info, NULL), -EBADMSG);
    assert_ok(journal_read(path[0], 8, on_row, &s, &err), &err); /* taken for another: all wrong */
    assert_int_equal(s.bad, 4);
    here_deinit(&h);
}

static void test_nowhere(void **state)
{
    struct here h;
    struct journal *j = NULL;
    struct journal_info info;
    struct err err = {};

    (void)state;
    here_init(&h, 7);
    assert_int_equal(journal_info("/nonexistent/7.db", 7, &info, &err), -EIO);
    assert_true(journal_create("/nonexistent", h.fd, &seven, &j, NULL) < 0);
    assert_null(j);
    assert_null(journal_close(NULL));
    here_deinit(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_format),
        cmocka_unit_test(test_bad_rows),   cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_nowhere),    cmocka_unit_test(test_golden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
