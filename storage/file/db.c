// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "storage/file/db_private.h"

/* ---- errors -------------------------------------------------------------------------------- */

int db_errno(sqlite3 *sq, int code)
{
    int sys = sq ? sqlite3_system_errno(sq) : 0;

    switch (code & 0xff) {
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_READONLY:
        return -EROFS;
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return -EACCES;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_SCHEMA:
    case SQLITE_ERROR: /* a table or column that is not there */
    case SQLITE_MISMATCH:
        return -EBADMSG;
    case SQLITE_CANTOPEN:
        return sys == EACCES || sys == EROFS || sys == ENOSPC || sys == EMFILE || sys == ENFILE
                   ? -sys
                   : -EIO;
    default:
        return -EIO;
    }
}

int db_fail(const struct db *db, const char *what, struct err *err)
{
    int r = db->sq ? sqlite3_extended_errcode(db->sq) : SQLITE_NOMEM;

    return err_set(err, db_errno(db->sq, r), "%s: %.60s: %s", db->name, what,
                   db->sq ? sqlite3_errmsg(db->sq) : "memory is short");
}

int db_damaged(const struct db *db, struct err *err, const char *fmt, ...)
{
    char text[128];
    va_list ap;

    va_start(ap, fmt);
    if (vsnprintf(text, sizeof text, fmt, ap) < 0)
        text[0] = '\0';
    va_end(ap);
    return err_set(err, -EBADMSG, "%s: %s", db->name, text);
}

/* ---- files --------------------------------------------------------------------------------- */

struct path {
    char v[PATH_MAX];
};

static int path_of(struct path *ret, const char *dir, const char *name, const char *end,
                   struct err *err)
{
    int n = snprintf(ret->v, sizeof ret->v, "%s/%s%s", dir, name, end);

    return n > 0 && (size_t)n < sizeof ret->v ? 0
                                              : err_set(err, -ENAMETOOLONG, "%s: too long", name);
}

static void set_name(struct db *db, const char *name)
{
    *db = (struct db){};
    (void)snprintf(db->name, sizeof db->name, "%s", name);
}

/* O_NONBLOCK, here and wherever a name below the folder is opened: a FIFO of that name would be
 * waited for. What is no file cannot be synced either, and is found not to be a database. */
static int sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r;

    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    r = fsync(fd) == 0 || errno == EINVAL ? 0 : -errno;
    (void)close(fd);
    return r;
}

int db_sync_dir(const char *dir, const char *name, struct err *err)
{
    struct path p;
    char *slash;
    int r;

    TRY(path_of(&p, dir, name, "", err));
    slash = strrchr(p.v, '/');
    assert(slash);
    *slash = '\0';
    r = sync_path(p.v);
    return r == 0 ? 0
                  : err_set(err, r, "%s: fsync of its directory: %s", name, strerrordesc_np(-r));
}

int db_settle(const char *dir, const char *name, struct err *err)
{
    static const char *const end[] = {"", "-wal"};

    for (size_t i = 0; i < 2; i++) {
        struct path p;
        int r;

        TRY(path_of(&p, dir, name, end[i], err));
        r = sync_path(p.v);
        if (r != 0)
            return err_set(err, r, "%s%s: fsync: %s", name, end[i], strerrordesc_np(-r));
    }
    return db_sync_dir(dir, name, err);
}

void db_remove(const char *dir, const char *name)
{
    static const char *const end[] = {"", "-wal", "-shm", "-journal"};
    struct path p;

    for (size_t i = 0; i < sizeof end / sizeof *end; i++)
        if (path_of(&p, dir, name, end[i], NULL) == 0)
            (void)unlink(p.v);
}

int db_has_wal(const char *path)
{
    char *wal;
    int r;

    if (asprintf(&wal, "%s-wal", path) < 0)
        return -ENOMEM;
    r = access(wal, F_OK) == 0 ? 1 : errno == ENOENT ? 0 : -EIO;
    free(wal);
    return r;
}

static int read_all(const char *path)
{
    char b[2048];
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r;

    if (fd < 0)
        return errno == ENOENT ? 0 : -EIO;
    for (off_t at = 0; (n = pread(fd, b, sizeof b, at)) > 0; at += n)
        continue;
    r = n < 0 ? -EIO : 0;
    (void)close(fd);
    return r;
}

int db_look_again(const char *path, const char *name, struct err *err)
{
    char *wal;
    int r;

    if (asprintf(&wal, "%s-wal", path) < 0)
        return err_set(err, -ENOMEM, "%s: memory is short", name);
    r = read_all(path);
    if (r == 0)
        r = read_all(wal);
    free(wal);
    if (r == 0 && err)
        *err = (struct err){};
    return r == 0 ? 0 : err_set(err, r, "%s: cannot be read", name);
}

int db_check_magic(const char *path, const char *name, struct err *err)
{
    static const char magic[16] = "SQLite format 3";
    char b[sizeof magic] = {};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n;

    if (fd < 0)
        return err_set(err,
                       errno == EACCES || errno == ENOENT || errno == EMFILE || errno == ENFILE
                           ? -errno
                           : -EIO,
                       "%s: open: %m", name);
    n = pread(fd, b, sizeof b, 0);
    if (n < 0) {
        int r = err_set(err, -EIO, "%s: read: %m", name);

        (void)close(fd);
        return r;
    }
    (void)close(fd);
    if (n != (ssize_t)sizeof b || memcmp(b, magic, sizeof b) != 0)
        return err_set(err, -EBADMSG, "%s: file is not a database", name);
    return 0;
}

char *db_uri(const char *path, const char *query)
{
    struct buf b;
    char *uri;

    buf_init(&b, (size_t)4 * PATH_MAX);
    buf_cstr(&b, "file:");
    for (; *path; path++) {
        if (*path == '%' || *path == '?' || *path == '#')
            buf_printf(&b, "%%%02x", (unsigned)*path);
        else
            buf_chr(&b, *path);
    }
    buf_cstr(&b, query);
    buf_chr(&b, '\0');
    uri = b.failed ? NULL : strdup(b.p);
    buf_deinit(&b);
    return uri;
}

/* ---- connections --------------------------------------------------------------------------- */

int db_config(sqlite3 *sq)
{
    return sqlite3_db_config(sq, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL) == SQLITE_OK &&
                   sqlite3_db_config(sq, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL) == SQLITE_OK &&
                   sqlite3_db_config(sq, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) == SQLITE_OK
               ? 0
               : -ENOMEM;
}

static int open_path(struct db *db, const char *path, int flags, const char *vfs, struct err *err)
{
    flags |= SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    if (sqlite3_open_v2(path, &db->sq, flags, vfs) != SQLITE_OK || db_config(db->sq) != 0)
        return db_fail(db, "open", err);
    return 0;
}

static int exec_all(const struct db *db, const char *const *sql, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        TRY(db_exec(db, sql[i], err));
    return 0;
}

/* Of each connection that goes on writing; synchronous before its first write. */
static int set_live(const struct db *db, struct err *err)
{
    static const char *const sql[] = {
        "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA synchronous=FULL",  "PRAGMA secure_delete=OFF",
        "PRAGMA wal_autocheckpoint=0",   "PRAGMA temp_store=MEMORY", "PRAGMA cell_size_check=ON",
    };

    return exec_all(db, sql, sizeof sql / sizeof *sql, err);
}

/* Journal off, yet synchronous: the one commit ends with one fsync, through the VFS. */
static int set_built(const struct db *db, struct err *err)
{
    static const char *const sql[] = {
        "PRAGMA locking_mode=EXCLUSIVE",
        "PRAGMA journal_mode=OFF",
        "PRAGMA synchronous=FULL",
        "PRAGMA temp_store=MEMORY",
    };

    /* a database without a journal is what DEFENSIVE forbids */
    if (sqlite3_db_config(db->sq, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL) != SQLITE_OK)
        return db_fail(db, "DEFENSIVE", err);
    return exec_all(db, sql, sizeof sql / sizeof *sql, err);
}

static int make_meta(struct db *db, const struct db_kind *kind, enum db_mode mode, struct err *err)
{
    if (getrandom(db->uuid, sizeof db->uuid, 0) != (ssize_t)sizeof db->uuid)
        return err_set(err, -EIO, "%s: no random numbers", db->name);
    db->seed = hash_bytes(db->uuid, sizeof db->uuid);
    TRY(db_exec(db, "CREATE TABLE meta(k TEXT PRIMARY KEY, v ANY) STRICT", err));
    TRY(db_meta_put_blob(db, "uuid", (struct str){(const char *)db->uuid, sizeof db->uuid}, err));
    TRY(db_meta_put_blob(db, "kind", str_c(kind->kind), err));
    TRY(db_meta_put(db, "compat", 0, err));
    TRY(db_meta_put(db, "incompat", 0, err));
    return mode == DB_LIVE ? db_meta_seal(db, err) : 0;
}

static int make_tables(struct db *db, const struct db_kind *kind, enum db_mode mode,
                       struct err *err)
{
    char page[32];

    static_assert(DB_APPLICATION_ID == 1398035009 && DB_FORMAT == 1, "the pragmas below");
    (void)snprintf(page, sizeof page, "PRAGMA page_size=%" PRIu32, kind->page);
    TRY(db_exec(db, page, err));
    TRY(db_exec(db, "PRAGMA auto_vacuum=NONE", err));
    TRY(mode == DB_LIVE ? set_live(db, err) : set_built(db, err));
    TRY(db_exec(db, "PRAGMA application_id=1398035009", err));
    TRY(db_exec(db, "PRAGMA user_version=1", err));
    if (mode == DB_LIVE)
        TRY(db_exec(db, "PRAGMA journal_mode=WAL", err));
    TRY(db_exec(db, "BEGIN", err));
    TRY(exec_all(db, kind->schema, kind->n_table, err));
    return make_meta(db, kind, mode, err);
}

/* A live file has its name only when it is whole. Out of line: its paths and the caller's do not
 * fit into one frame. */
[[gnu::noinline]] static int create_live(const char *dir, const char *name,
                                         const struct db_kind *kind, const char *vfs,
                                         struct db *ret, struct err *err)
{
    struct db db;
    struct path from, to, wal;
    char new_name[80];
    int r;

    (void)snprintf(new_name, sizeof new_name, "%s.new", name);
    set_name(&db, name);
    TRY(path_of(&from, dir, new_name, "", err));
    TRY(path_of(&to, dir, name, "", err));
    TRY(path_of(&wal, dir, new_name, "-wal", err));
    db_remove(dir, new_name);
    r = open_path(&db, from.v, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs, err);
    if (r == 0)
        r = make_tables(&db, kind, DB_LIVE, err);
    if (r == 0)
        r = db_exec(&db, "COMMIT", err);
    if (r == 0)
        r = db_exec(&db, "PRAGMA wal_checkpoint(TRUNCATE)", err);
    db_close(&db);
    (void)unlink(wal.v);
    if (r == 0 && rename(from.v, to.v) != 0)
        r = err_set(err, -errno, "%s: rename: %m", name);
    if (r == 0) /* before there is a -wal, which without its file looks like a loss */
        r = db_sync_dir(dir, name, err);
    if (r == 0)
        r = db_open_live(dir, name, kind, vfs, ret, err);
    if (r == 0)
        r = db_sync_dir(dir, name, err);
    if (r != 0)
        db_close(ret);
    return r;
}

int db_create(const char *dir, const char *name, const struct db_kind *kind, enum db_mode mode,
              const char *vfs, struct db *ret, struct err *err)
{
    struct path p;
    char new_name[80];
    int r;

    set_name(ret, name);
    TRY(path_of(&p, dir, name, "", err));
    if (access(p.v, F_OK) == 0)
        return err_set(err, -EEXIST, "%s: is there already", name);
    if (mode == DB_LIVE) {
        r = create_live(dir, name, kind, vfs, ret, err);
    } else {
        r = open_path(ret, p.v, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs, err);
        if (r == 0)
            r = make_tables(ret, kind, DB_BUILT, err);
    }
    if (r != 0) {
        db_close(ret);
        (void)snprintf(new_name, sizeof new_name, "%s.new", name);
        db_remove(dir, new_name);
        db_remove(dir, name);
    }
    return r;
}

static int check_format(const struct db *db, struct err *err)
{
    int64_t app = 0, version = 0;

    TRY(db_int(db, "PRAGMA application_id", &app, err));
    TRY(db_int(db, "PRAGMA user_version", &version, err));
    if (app != DB_APPLICATION_ID)
        return err_set(err, -EBADMSG, "%s: not a file of this program", db->name);
    if (version != DB_FORMAT)
        return err_set(err, -EPROTO,
                       "%s has format %" PRId64 ", this program reads format %d: start a newer one",
                       db->name, version, DB_FORMAT);
    return 0;
}

static int check_meta(struct db *db, const struct db_kind *kind, struct err *err)
{
    char text[16];
    int64_t incompat = 0, want = 0, sum = 0;
    size_t n = 0;
    int has;

    TRY(db_meta_keep(db, err));
    TRY_OUTCOME(has, db_meta_get_blob(db, "uuid", db->uuid, sizeof db->uuid, &n, err));
    if (!has || n != sizeof db->uuid)
        return db_damaged(db, err, "meta has no uuid");
    db->seed = hash_bytes(db->uuid, sizeof db->uuid);
    TRY_OUTCOME(has, db_meta_get_blob(db, "kind", text, sizeof text, &n, err));
    if (!has || !str_eq((struct str){text, n}, str_c(kind->kind)))
        return db_damaged(db, err, "is not a %s", kind->kind);
    TRY_OUTCOME(has, db_meta_get(db, "sum", &want, err));
    TRY(db_meta_sum(db, &sum, err));
    if (!has || sum != want)
        return db_damaged(db, err, "meta: wrong checksum");
    TRY_OUTCOME(has, db_meta_get(db, "incompat", &incompat, err));
    if (!has)
        return db_damaged(db, err, "meta has no incompat");
    if (incompat != 0)
        return err_set(err, -EPROTO,
                       "%s needs features %#" PRIx64
                       " beyond format %d of this program: start a newer one",
                       db->name, (uint64_t)incompat, DB_FORMAT);
    return 0;
}

/* A copy has none yet. The switch is made with a rollback journal, whose end is not on disk before
 * the directory is: it would come back and truncate the file. */
static int make_wal(const struct db *db, const char *dir, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r = db_prepare(db, "PRAGMA journal_mode", &st, err);
    bool is = false;

    if (r == 0)
        r = db_step(db, st, err);
    if (r == 1)
        is = str_eq(str_c((const char *)sqlite3_column_text(st, 0)), STR("wal"));
    (void)sqlite3_finalize(st);
    if (r < 0 || is)
        return r < 0 ? r : 0;
    TRY(db_exec(db, "PRAGMA journal_mode=WAL", err));
    return db_sync_dir(dir, db->name, err);
}

static int open_live(const char *dir, const char *name, const struct db_kind *kind, const char *vfs,
                     struct db *ret, struct err *err)
{
    struct path p;
    int r;

    set_name(ret, name);
    TRY(path_of(&p, dir, name, "", err));
    TRY(db_check_magic(p.v, name, err));
    r = open_path(ret, p.v, SQLITE_OPEN_READWRITE, vfs, err);
    if (r == 0)
        r = set_live(ret, err);
    if (r == 0)
        r = check_format(ret, err);
    if (r == 0)
        r = check_meta(ret, kind, err);
    if (r == 0)
        r = make_wal(ret, dir, err);
    if (r != 0)
        db_close(ret);
    return r;
}

/* After damage, or what SQLite takes for it: 0 to try once more. */
static int once_more(const char *dir, const char *name, struct err *err)
{
    struct path p;

    TRY(path_of(&p, dir, name, "", err));
    return db_look_again(p.v, name, err);
}

int db_open_live(const char *dir, const char *name, const struct db_kind *kind, const char *vfs,
                 struct db *ret, struct err *err)
{
    int r = open_live(dir, name, kind, vfs, ret, err);

    if (r != -EBADMSG)
        return r;
    TRY(once_more(dir, name, err));
    return open_live(dir, name, kind, vfs, ret, err);
}

static int open_read(const char *dir, const char *name, const struct db_kind *kind,
                     enum db_read how, int64_t mmap, const char *vfs, struct db *ret,
                     struct err *err)
{
    int wal;
    struct path p;
    char pragma[48], *uri;
    int r;

    set_name(ret, name);
    TRY(path_of(&p, dir, name, "", err));
    TRY(db_check_magic(p.v, name, err));
    /* "unix-none" lets a -wal be read through memory of our own, also where nothing can be written;
     * where there is none SQLite would make one */
    wal = how == DB_COPY_OF_LIVE ? db_has_wal(p.v) : 0;
    if (wal < 0)
        return err_set(err, wal, "%s-wal: cannot be looked for", name);
    uri = db_uri(p.v, wal ? "?vfs=unix-none" : "?immutable=1");
    if (!uri)
        return err_set(err, -ENOMEM, "%s: memory is short", name);
    r = open_path(ret, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, wal ? NULL : vfs, err);
    free(uri);
    if (r == 0 && wal)
        r = db_exec(ret, "PRAGMA locking_mode=EXCLUSIVE", err);
    if (r == 0)
        r = db_exec(ret, "PRAGMA cell_size_check=ON", err);
    (void)snprintf(pragma, sizeof pragma, "PRAGMA mmap_size=%" PRId64, mmap);
    if (r == 0)
        r = db_exec(ret, pragma, err);
    if (r == 0)
        r = check_format(ret, err);
    if (r == 0)
        r = check_meta(ret, kind, err);
    if (r != 0)
        db_close(ret);
    return r;
}

int db_open_read(const char *dir, const char *name, const struct db_kind *kind, enum db_read how,
                 int64_t mmap, const char *vfs, struct db *ret, struct err *err)
{
    int r = open_read(dir, name, kind, how, mmap, vfs, ret, err);

    if (r != -EBADMSG)
        return r;
    TRY(once_more(dir, name, err));
    return open_read(dir, name, kind, how, mmap, vfs, ret, err);
}

void db_close(struct db *db)
{
    (void)sqlite3_finalize(db->get);
    db->get = NULL;
    if (!db->sq)
        return;
    (void)sqlite3_close(db->sq);
    db->sq = NULL;
}

int db_copy(const struct db *db, const char *path, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r;

    if (access(path, F_OK) == 0)
        return err_set(err, -EEXIST, "%s: is there already", path);
    TRY(db_prepare(db, "VACUUM INTO ?1", &st, err));
    r = sqlite3_bind_text(st, 1, path, -1, SQLITE_STATIC) == SQLITE_OK ? db_step(db, st, err)
                                                                       : db_fail(db, "copy", err);
    (void)sqlite3_finalize(st);
    if (r == 0)
        r = sync_path(path);
    if (r != 0)
        (void)unlink(path);
    return r == 0 || (err && err->code) ? r : err_set(err, r, "%s: fsync failed", path);
}

void db_log_version(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    int v = sqlite3_libversion_number();

    if (atomic_flag_test_and_set(&said))
        return;
    log_event(LOG_INFO, "sqlite", LOG_C("version", sqlite3_libversion()));
    if (v >= 3007000 && v <= 3051002)
        log_event(LOG_INFO, "sqlite_wal_reset",
                  LOG_C("note", "this version can damage a file that two connections checkpoint; "
                                "each file of a store has one"));
}
