// SPDX-License-Identifier: Apache-2.0
/*
 * Why a row that was committed survives a power cut:
 *   - the file, its -wal and their directory entries are made, checkpointed and fsynced before
 *     the first row (journal_create). Without the directory fsync the rollback journal of the
 * switch to WAL can come back and truncate the file: SQLite's FULL does not sync that unlink.
 *   - synchronous=FULL syncs the -wal in each commit, before journal_commit returns; what was
 *     gathered for it goes down before (gather.c).
 *   - nothing is checkpointed later, so no page is written twice and no second copy can be torn.
 * A file whose write or sync failed is not written again: after a failed fsync the kernel may have
 * dropped the dirty pages, and a second fsync would report success.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"
#include "storage/file/db_private.h"
#include "storage/journal/journal_private.h"

struct journal {
    sqlite3 *db;
    sqlite3_stmt *begin, *commit, *rollback, *insert, *first, *probe;
    uint64_t number, bytes, rows;
};

/* Append only: the order of docs/format-journal.md. */
// clang-format off
#define LIMITS(X)                                                                                  \
    X(age_ns) X(future_ns) X(samples) X(streams) X(entries) X(depth) X(name_bytes) X(labels)       \
    X(label_name_bytes) X(label_value_bytes) X(attributes) X(series_per_service) X(series)
// clang-format on

static int fail(struct err *err, sqlite3 *db, uint64_t number, const char *what)
{
    int r = db ? sqlite3_extended_errcode(db) : SQLITE_NOMEM;

    return err_set(err, db_errno(db, r), "journal/%" PRIu64 ".db: %s: %s", number, what,
                   db ? sqlite3_errmsg(db) : "memory is short");
}

uint64_t journal_sum(uint64_t number, const struct journal_row *row)
{
    unsigned char b[80];
    const uint64_t head[] = {htole64(number), htole64(row->lsn)};
    const uint64_t tail[] = {htole64(row->seq), htole64((uint64_t)row->received.v),
                             htole64(row->content), htole64(row->payload.n)};

    memcpy(b, head, 16);
    memcpy(b + 16, row->agent, 16);
    memcpy(b + 32, row->boot, 16);
    memcpy(b + 48, tail, 32);
    return hash_seed(row->payload.p, row->payload.n, hash_bytes(b, sizeof b));
}

static int read_int(sqlite3 *db, uint64_t number, const char *sql, int64_t *ret, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    r = r == SQLITE_OK ? sqlite3_step(st) : r;
    if (r == SQLITE_ROW)
        *ret = sqlite3_column_int64(st, 0);
    else
        r = fail(err, db, number, sql);
    (void)sqlite3_finalize(st);
    return r == SQLITE_ROW ? 0 : r;
}

/* ---- making and writing -------------------------------------------------------------------- */

static int exec(sqlite3 *db, uint64_t number, const char *sql, struct err *err)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(err, db, number, sql);
}

static int exec_all(sqlite3 *db, uint64_t number, const char *const *sql, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        TRY(exec(db, number, sql[i], err));
    return 0;
}

/* Of each connection that writes; synchronous before its first write. */
static int set_connection(sqlite3 *db, uint64_t number, struct err *err)
{
    static const char *const sql[] = {
        "PRAGMA page_size=4096",    "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA synchronous=FULL",
        "PRAGMA secure_delete=OFF", "PRAGMA wal_autocheckpoint=0",   "PRAGMA cell_size_check=ON",
    };

    return exec_all(db, number, sql, sizeof sql / sizeof *sql, err);
}

static int set_up(sqlite3 *db, uint64_t number, struct err *err)
{
    static const char *const sql[] = {
        "PRAGMA auto_vacuum=NONE",
        "PRAGMA application_id=1398035009",
        "PRAGMA user_version=1",
        "PRAGMA journal_mode=WAL",
        "BEGIN",
        "CREATE TABLE meta(k TEXT PRIMARY KEY, v ANY) STRICT",
        // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
        "CREATE TABLE batch(lsn INTEGER PRIMARY KEY, agent BLOB NOT NULL, boot BLOB NOT NULL, "
        "seq INTEGER NOT NULL, received INTEGER NOT NULL, content INTEGER NOT NULL, "
        "sum INTEGER NOT NULL, payload BLOB NOT NULL, UNIQUE(agent, boot, seq)) STRICT",
    };

    static_assert(DB_APPLICATION_ID == 1398035009, "the pragma above");
    TRY(set_connection(db, number, err));
    return exec_all(db, number, sql, sizeof sql / sizeof *sql, err);
}

static bool put_meta(sqlite3_stmt *st, const char *k, int64_t v)
{
    return sqlite3_bind_text(st, 1, k, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_int64(st, 2, v) == SQLITE_OK && sqlite3_step(st) == SQLITE_DONE &&
           sqlite3_reset(st) == SQLITE_OK;
}

static int write_meta(sqlite3 *db, const struct journal_new *what, struct err *err)
{
    sqlite3_stmt *st = NULL;
    uint8_t uuid[16];
    bool ok = getrandom(uuid, sizeof uuid, 0) == (ssize_t)sizeof uuid;

    ok = ok &&
         sqlite3_prepare_v2(db, "INSERT INTO meta VALUES(?1, ?2)", -1, &st, NULL) == SQLITE_OK &&
         sqlite3_bind_text(st, 1, "uuid", -1, SQLITE_STATIC) == SQLITE_OK &&
         sqlite3_bind_blob(st, 2, uuid, sizeof uuid, SQLITE_STATIC) == SQLITE_OK &&
         sqlite3_step(st) == SQLITE_DONE && sqlite3_reset(st) == SQLITE_OK &&
         sqlite3_bind_text(st, 1, "kind", -1, SQLITE_STATIC) == SQLITE_OK &&
         sqlite3_bind_text(st, 2, "journal", -1, SQLITE_STATIC) == SQLITE_OK &&
         sqlite3_step(st) == SQLITE_DONE && sqlite3_reset(st) == SQLITE_OK &&
         put_meta(st, "compat", 0) && put_meta(st, "incompat", 0) &&
         put_meta(st, "number", (int64_t)what->number) &&
         put_meta(st, "store", (int64_t)what->store);
#define X(f) ok = ok && put_meta(st, "limit." #f, (int64_t)what->limits->f);
    LIMITS(X)
#undef X
    if (!ok) {
        int r = fail(err, db, what->number, "meta");

        (void)sqlite3_finalize(st);
        return r;
    }
    (void)sqlite3_finalize(st);
    return exec(db, what->number, "COMMIT", err);
}

static int prepare(struct journal *j, struct err *err)
{
    const struct {
        sqlite3_stmt **st;
        const char *sql;
    } all[] = {
        {&j->begin, "BEGIN IMMEDIATE"},
        {&j->commit, "COMMIT"},
        {&j->rollback, "ROLLBACK"},
        {&j->insert, "INSERT INTO batch VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"},
        {&j->first, "INSERT INTO meta VALUES('first_lsn', ?1), ('after_lsn', ?2)"},
        {&j->probe, "INSERT OR REPLACE INTO meta VALUES('probe', zeroblob(65536))"},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (sqlite3_prepare_v3(j->db, all[i].sql, -1, SQLITE_PREPARE_PERSISTENT, all[i].st, NULL) !=
            SQLITE_OK)
            return fail(err, j->db, j->number, all[i].sql);
    }
    return 0;
}

static int open_write(const char *path, uint64_t number, int more, const char *vfs, sqlite3 **ret,
                      struct err *err)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | more;

    if (sqlite3_open_v2(path, ret, flags, vfs ? vfs : journal_vfs()) != SQLITE_OK ||
        db_config(*ret) != 0)
        return fail(err, *ret, number, "open");
    return 0;
}

/* All that is the same in every file. It is whole and closed when this returns 0. */
static int make_new(const char *path, const struct journal_new *what, struct err *err)
{
    const uint64_t number = what->number;
    sqlite3 *db = NULL;
    int r = open_write(path, number, SQLITE_OPEN_CREATE, what->vfs, &db, err);

    if (r == 0)
        r = set_up(db, number, err);
    if (r == 0)
        r = write_meta(db, what, err);
    if (r == 0)
        r = exec(db, number, "PRAGMA wal_checkpoint(TRUNCATE)", err);
    if (sqlite3_close(db) != SQLITE_OK && r == 0)
        r = err_set(err, -EIO, "journal/%" PRIu64 ".new: cannot be closed", number);
    return r;
}

static int make_empty(int dir_fd, const char *name, struct err *err)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_set(err, -errno, "journal/%s: %m", name);
    (void)close(fd);
    return 0;
}

struct names {
    char path[PATH_MAX], new_path[PATH_MAX];
    char db[32], wal[32], new[32], new_wal[32];
};

/*
 * A file has its name only when it is whole: whoever finds <n>.db may take it for what it says, and
 * <n>.new is the rest of a start that was killed. Its -wal exists before that and ever after, so
 * one that is missing was lost.
 */
static int make(struct journal *j, const struct names *n, int dir_fd,
                const struct journal_new *what, struct err *err)
{
    int64_t tables = 0;

    TRY(make_new(n->new_path, what, err));
    (void)unlinkat(dir_fd, n->new_wal, 0);
    TRY(make_empty(dir_fd, n->wal, err));
    if (renameat(dir_fd, n->new, dir_fd, n->db) != 0)
        return err_set(err, -errno, "journal/%s: %m", n->db);
    TRY(open_write(n->path, j->number, 0, what->vfs, &j->db, err));
    TRY(set_connection(j->db, j->number, err));
    TRY(read_int(j->db, j->number, "SELECT count(*) FROM sqlite_schema", &tables, err));
    TRY(prepare(j, err));
    if (fsync(dir_fd) != 0)
        return err_set(err, -errno, "journal: fsync of the directory: %m");
    return 0;
}

static bool set_names(struct names *n, const char *dir, uint64_t number)
{
    int len = snprintf(n->path, sizeof n->path, "%s/%" PRIu64 ".db", dir, number);
    int new_len = snprintf(n->new_path, sizeof n->new_path, "%s/%" PRIu64 ".new", dir, number);

    (void)snprintf(n->db, sizeof n->db, "%" PRIu64 ".db", number);
    (void)snprintf(n->wal, sizeof n->wal, "%" PRIu64 ".db-wal", number);
    (void)snprintf(n->new, sizeof n->new, "%" PRIu64 ".new", number);
    (void)snprintf(n->new_wal, sizeof n->new_wal, "%" PRIu64 ".new-wal", number);
    return len > 0 && (size_t)len < sizeof n->path && new_len > 0 &&
           (size_t)new_len < sizeof n->new_path;
}

int journal_create(const char *dir, int dir_fd, const struct journal_new *what,
                   struct journal **ret, struct err *err)
{
    const uint64_t number = what->number;
    struct journal *j = mem_fail_now() ? NULL : calloc(1, sizeof *j);
    struct names n;
    int r;

    if (!j)
        return err_set(err, -ENOMEM, "journal/%" PRIu64 ".db: memory is short", number);
    j->number = number;
    r = set_names(&n, dir, number) ? make(j, &n, dir_fd, what, err)
                                   : err_set(err, -ENAMETOOLONG, "%s: too long", dir);
    if (r != 0) {
        (void)journal_close(j);
        (void)unlinkat(dir_fd, n.new, 0);
        (void)unlinkat(dir_fd, n.new_wal, 0);
        (void)unlinkat(dir_fd, n.db, 0);
        (void)unlinkat(dir_fd, n.wal, 0);
        return r;
    }
    *ret = j;
    return 0;
}

static bool step(sqlite3_stmt *st)
{
    int r = sqlite3_step(st);

    /* the result of a failed step comes again from reset */
    return sqlite3_reset(st) == SQLITE_OK && (r == SQLITE_DONE || r == SQLITE_ROW);
}

static bool insert(struct journal *j, const struct journal_row *row)
{
    sqlite3_stmt *st = j->insert;
    const char *p = row->payload.p ? row->payload.p : "";

    return sqlite3_bind_int64(st, 1, (int64_t)row->lsn) == SQLITE_OK &&
           sqlite3_bind_blob(st, 2, row->agent, 16, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_blob(st, 3, row->boot, 16, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_int64(st, 4, (int64_t)row->seq) == SQLITE_OK &&
           sqlite3_bind_int64(st, 5, row->received.v) == SQLITE_OK &&
           sqlite3_bind_int64(st, 6, (int64_t)row->content) == SQLITE_OK &&
           sqlite3_bind_int64(st, 7, (int64_t)journal_sum(j->number, row)) == SQLITE_OK &&
           sqlite3_bind_blob64(st, 8, p, row->payload.n, SQLITE_STATIC) == SQLITE_OK && step(st);
}

static int undo(struct journal *j, struct err *err)
{
    int r = fail(err, j->db, j->number, "commit");

    if (!sqlite3_get_autocommit(j->db))
        (void)step(j->rollback);
    return r == -ENOSPC || r == -ENOMEM ? r : -EIO;
}

static bool put_first(struct journal *j, uint64_t lsn, uint64_t after_lsn)
{
    return sqlite3_bind_int64(j->first, 1, (int64_t)lsn) == SQLITE_OK &&
           sqlite3_bind_int64(j->first, 2, (int64_t)after_lsn) == SQLITE_OK && step(j->first);
}

int journal_commit(struct journal *j, const struct journal_row *row, size_t n, uint64_t after_lsn,
                   struct err *err)
{
    uint64_t bytes = 0;
    bool ok = step(j->begin);

    if (ok && j->rows == 0)
        ok = put_first(j, row[0].lsn, after_lsn);
    for (size_t i = 0; ok && i < n; i++) {
        ok = insert(j, &row[i]);
        bytes += row[i].payload.n;
    }
    if (!ok || !step(j->commit))
        return undo(j, err);
    j->rows += n;
    j->bytes += bytes;
    return 0;
}

int journal_mark(struct journal *j, uint64_t lsn, uint64_t after_lsn, struct err *err)
{
    assert(j->rows == 0);
    if (!step(j->begin) || !put_first(j, lsn, after_lsn) || !step(j->commit))
        return undo(j, err);
    return 0;
}

int journal_probe(struct journal *j, struct err *err)
{
    if (!step(j->begin) || !step(j->probe) || !step(j->commit))
        return undo(j, err);
    return 0;
}

uint64_t journal_bytes(const struct journal *j)
{
    return j->bytes;
}

uint64_t journal_rows(const struct journal *j)
{
    return j->rows;
}

uint64_t journal_number(const struct journal *j)
{
    return j->number;
}

bool journal_there(const struct journal *j, int dir_fd)
{
    char db[32], wal[32];

    (void)snprintf(db, sizeof db, "%" PRIu64 ".db", j->number);
    (void)snprintf(wal, sizeof wal, "%" PRIu64 ".db-wal", j->number);
    return faccessat(dir_fd, db, F_OK, 0) == 0 && faccessat(dir_fd, wal, F_OK, 0) == 0;
}

struct journal *journal_close(struct journal *j)
{
    enum {
        N = 6
    };
    sqlite3_stmt *st[N];

    if (!j)
        return NULL;
    memcpy(st, (sqlite3_stmt *[]){j->begin, j->commit, j->rollback, j->insert, j->first, j->probe},
           sizeof st);
    for (size_t i = 0; i < N; i++)
        (void)sqlite3_finalize(st[i]);
    (void)sqlite3_close(j->db);
    free(j);
    return NULL;
}

/* ---- reading ------------------------------------------------------------------------------- */

/*
 * Read-only and without locks (LOCK keeps others away), so that a file is read as it is, also in a
 * directory that cannot be written: the VFS "unix-none" lets a WAL be read through memory of our
 * own. Where the -wal is gone SQLite would make an empty one: then the file is opened as one that
 * nobody changes.
 */
static int open_read(const char *path, uint64_t number, sqlite3 **ret, struct err *err)
{
    const int flags =
        SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_URI;
    sqlite3 *db = NULL;
    char name[48], *uri;
    int r;

    (void)snprintf(name, sizeof name, "journal/%" PRIu64 ".db", number);
    r = db_check_magic(path, name, err);
    if (r != 0)
        return r == -ENOENT ? -EIO : r;
    r = db_has_wal(path);
    if (r < 0)
        return err_set(err, r, "%s-wal: cannot be looked for", name);
    uri = db_uri(path, r ? "?vfs=unix-none" : "?immutable=1");
    if (!uri)
        return err_set(err, -ENOMEM, "journal/%" PRIu64 ".db: memory is short", number);
    r = sqlite3_open_v2(uri, &db, flags, NULL);
    free(uri);
    if (r == SQLITE_OK && db_config(db) == 0) {
        r = exec(db, number, "PRAGMA locking_mode=EXCLUSIVE", err);
        if (r == 0)
            r = exec(db, number, "PRAGMA cell_size_check=ON", err);
    } else {
        r = fail(err, db, number, "open");
    }
    if (r == 0)
        *ret = db;
    else
        (void)sqlite3_close(db);
    return r;
}

static int check_format(sqlite3 *db, uint64_t number, struct err *err)
{
    int64_t app = 0, version = 0;

    TRY(read_int(db, number, "PRAGMA application_id", &app, err));
    TRY(read_int(db, number, "PRAGMA user_version", &version, err));
    if (app != DB_APPLICATION_ID)
        return err_set(err, -EBADMSG, "journal/%" PRIu64 ".db: not a file of this program", number);
    if (version != JOURNAL_FORMAT)
        return err_set(err, -EPROTO,
                       "journal/%" PRIu64 ".db has format %" PRId64
                       ", this program reads format %d: start a newer one",
                       number, version, JOURNAL_FORMAT);
    return 0;
}

/* Keys that must be there, as bits. */
enum {
    HAS_UUID = 1,
    HAS_NUMBER = 2,
    HAS_FIRST = 4,
    HAS_AFTER = 8,
    HAS_INCOMPAT = 16,
    HAS_LIMIT = 32, /* and one bit for each further limit */
};

static uint32_t take_limit(struct batch_limits *l, const char *k, int64_t v)
{
    uint32_t bit = HAS_LIMIT;

#define X(f)                                                                                       \
    if (strcmp(k, "limit." #f) == 0) {                                                             \
        l->f = (typeof(l->f))v;                                                                    \
        return bit;                                                                                \
    }                                                                                              \
    bit <<= 1;
    LIMITS(X)
#undef X
    return 0;
}

static uint32_t all_limits(void)
{
    uint32_t all = 0, bit = HAS_LIMIT;

#define X(f)                                                                                       \
    all |= bit;                                                                                    \
    bit <<= 1;
    LIMITS(X)
#undef X
    return all;
}

static uint32_t take_meta(sqlite3_stmt *st, struct journal_info *info, int64_t *incompat)
{
    const char *k = (const char *)sqlite3_column_text(st, 0);
    int64_t v = sqlite3_column_int64(st, 1);

    if (!k)
        return 0;
    if (strcmp(k, "uuid") == 0 && sqlite3_column_type(st, 1) == SQLITE_BLOB &&
        sqlite3_column_bytes(st, 1) == 16) {
        memcpy(info->uuid, sqlite3_column_blob(st, 1), 16);
        return HAS_UUID;
    }
    if (sqlite3_column_type(st, 1) != SQLITE_INTEGER)
        return 0;
    if (strcmp(k, "number") == 0) {
        info->number = (uint64_t)v;
        return HAS_NUMBER;
    }
    if (strcmp(k, "store") == 0) {
        info->store = (uint64_t)v;
        return 0;
    }
    if (strcmp(k, "first_lsn") == 0) {
        info->first_lsn = (uint64_t)v;
        return HAS_FIRST;
    }
    if (strcmp(k, "after_lsn") == 0) {
        info->after_lsn = (uint64_t)v;
        return HAS_AFTER;
    }
    if (strcmp(k, "incompat") == 0) {
        *incompat = v;
        return HAS_INCOMPAT;
    }
    return take_limit(&info->limits, k, v);
}

static int read_meta(sqlite3 *db, uint64_t number, struct journal_info *ret, struct err *err)
{
    const uint32_t must = HAS_UUID | HAS_NUMBER | HAS_INCOMPAT | all_limits();
    struct journal_info info = {};
    int64_t incompat = 0;
    uint32_t has = 0;
    sqlite3_stmt *st = NULL;
    int r = sqlite3_prepare_v2(db, "SELECT k, v FROM meta", -1, &st, NULL);

    while (r == SQLITE_OK || r == SQLITE_ROW) {
        r = sqlite3_step(st);
        if (r == SQLITE_ROW)
            has |= take_meta(st, &info, &incompat);
    }
    if (r != SQLITE_DONE) {
        r = fail(err, db, number, "meta");
        (void)sqlite3_finalize(st);
        return r;
    }
    (void)sqlite3_finalize(st);
    if (incompat != 0)
        return err_set(err, -EPROTO,
                       "journal/%" PRIu64 ".db needs features %#" PRIx64
                       " beyond format %d of this program: start a newer one",
                       number, (uint64_t)incompat, JOURNAL_FORMAT);
    if ((has & must) != must || !(has & HAS_FIRST) != !(has & HAS_AFTER))
        return err_set(err, -EBADMSG, "journal/%" PRIu64 ".db: meta is not complete", number);
    if (info.number != number)
        return err_set(err, -EBADMSG, "journal/%" PRIu64 ".db says that it is number %" PRIu64,
                       number, info.number);
    info.used = has & HAS_FIRST;
    *ret = info;
    return 0;
}

/* After -EBADMSG: 0 to try once more. */
static int look_again(const char *path, uint64_t number, struct err *err)
{
    char name[48];

    (void)snprintf(name, sizeof name, "journal/%" PRIu64 ".db", number);
    return db_look_again(path, name, err);
}

static int info_once(const char *path, uint64_t number, struct journal_info *ret, struct err *err)
{
    sqlite3 *db = NULL;
    int r;

    TRY(open_read(path, number, &db, err));
    r = check_format(db, number, err);
    if (r == 0)
        r = read_meta(db, number, ret, err);
    (void)sqlite3_close(db);
    return r;
}

int journal_info(const char *path, uint64_t number, struct journal_info *ret, struct err *err)
{
    int r = info_once(path, number, ret, err);

    if (r != -EBADMSG)
        return r;
    TRY(look_again(path, number, err));
    return info_once(path, number, ret, err);
}

static bool take_row(sqlite3_stmt *st, struct journal_row *row, uint64_t *ret_sum)
{
    const void *agent = sqlite3_column_blob(st, 1), *boot = sqlite3_column_blob(st, 2);
    const void *payload = sqlite3_column_blob(st, 7);

    *row = (struct journal_row){.lsn = (uint64_t)sqlite3_column_int64(st, 0),
                                .seq = (uint64_t)sqlite3_column_int64(st, 3),
                                .received = {sqlite3_column_int64(st, 4)},
                                .content = (uint64_t)sqlite3_column_int64(st, 5),
                                .payload = {payload, (size_t)sqlite3_column_bytes(st, 7)}};
    *ret_sum = (uint64_t)sqlite3_column_int64(st, 6);
    if (!agent || sqlite3_column_bytes(st, 1) != 16 || !boot || sqlite3_column_bytes(st, 2) != 16)
        return false;
    memcpy(row->agent, agent, 16);
    memcpy(row->boot, boot, 16);
    return true;
}

/* Where a read stands: a second one goes on behind the last row that was handed out. */
struct reading {
    journal_row_fn *fn;
    void *ctx;
    uint64_t after;
    bool ended; /* by fn */
};

static int read_rows(sqlite3 *db, uint64_t number, struct reading *rd, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r = sqlite3_prepare_v2(db,
                               "SELECT lsn, agent, boot, seq, received, content, sum, payload "
                               "FROM batch WHERE lsn > ?1 ORDER BY lsn",
                               -1, &st, NULL);
    int out = 0;

    if (r == SQLITE_OK)
        r = sqlite3_bind_int64(st, 1, (int64_t)rd->after);
    while (out == 0 && (r == SQLITE_OK || r == SQLITE_ROW)) {
        r = sqlite3_step(st);
        if (r == SQLITE_ROW) {
            struct journal_row row;
            uint64_t sum;
            bool ok = take_row(st, &row, &sum) && sum == journal_sum(number, &row);

            rd->after = row.lsn;
            out = rd->fn(rd->ctx, &row, ok, err);
            rd->ended = out != 0;
        }
    }
    if (out == 0 && r != SQLITE_DONE)
        out = fail(err, db, number, "rows");
    (void)sqlite3_finalize(st);
    return out;
}

static int read_once(const char *path, uint64_t number, struct reading *rd, struct err *err)
{
    sqlite3 *db = NULL;
    int r;

    TRY(open_read(path, number, &db, err));
    r = read_rows(db, number, rd, err);
    (void)sqlite3_close(db);
    return r;
}

int journal_read(const char *path, uint64_t number, journal_row_fn *fn, void *ctx, struct err *err)
{
    struct reading rd = {.fn = fn, .ctx = ctx, .after = (uint64_t)INT64_MIN};
    int r = read_once(path, number, &rd, err);

    if (r != -EBADMSG || rd.ended)
        return r;
    TRY(look_again(path, number, err));
    return read_once(path, number, &rd, err);
}
