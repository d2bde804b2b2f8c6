// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sqlite3.h>

#include "base/err.h"
#include "base/str.h"

/*
 * How every SQLite file of a store is opened, checked, and what its errors mean. A file is
 *   live      written by one connection of one thread, read by nobody else: WAL, FULL, EXCLUSIVE
 *             (no -shm); journals, catalog, the current epoch's dictionary
 *   built     written once in build/ without journal and sync, then fsynced and renamed: parts
 *   at rest   never written again: opened immutable
 * All hold meta(k, v) with uuid, kind, and words of compatible and incompatible features.
 *
 * Rows carry a column sum (db_sum), seeded with the file's uuid and checked at every read: a flip
 * anywhere is an error, never another number.
 *
 * Errors of all functions: -ENOSPC, -ENOMEM, -EROFS, -EACCES, -EIO; -EBADMSG damaged, or not a file
 * of that kind; -EPROTO a newer or unknown format, both versions named, nothing changed.
 * Thread: a connection belongs to one thread at a time.
 */
#define DB_APPLICATION_ID 0x53545241 /* "STRA" */
#define DB_FORMAT         1

/* Tables by number: part of every sum. On disk: append only. */
enum db_table {
    DB_BLOCK = 1,
    DB_SUMMARY = 2,
    DB_COLS = 3,
    DB_HSUM = 4,
    DB_COVER = 5,
    DB_METRIC = 6,
    DB_STEP = 7,
    DB_EVENT = 8,
    DB_LOCAL = 9,
    DB_CHUNK = 10,
    DB_STATE = 16,
    DB_PART = 17,
    DB_SVC = 18,
    DB_PTYPE = 19,
    DB_LABELSET = 20,
    DB_SERIES = 21,
    DB_EPOCH = 22,
    DB_SENDER = 23,
    DB_SEEN = 24,
    DB_DAMAGE = 25,
    DB_META = 31,
};

struct db {
    sqlite3 *sq;
    sqlite3_stmt *get; /* meta by its key: a part is asked for a dozen */
    char name[80];     /* the file below the store's directory, as errors name it */
    uint8_t uuid[16];
    uint64_t seed; /* of sums: from uuid */
};

struct db_kind {
    const char *kind;          /* in meta: "part", "catalog", "dict" */
    uint32_t page;             /* bytes */
    uint32_t n_table;          /* statements that make the tables */
    const char *const *schema; /* meta is made beside them */
};

enum db_mode {
    DB_LIVE = 1,
    DB_BUILT = 2,
};

/*
 * Make a file that does not exist. Live: it is in WAL mode, checkpointed, its directory entries
 * fsynced, and stays open. Built: journal and sync are off, one transaction is begun.
 *   dir   the store's; name is below it
 *   vfs   NULL: SQLite's own
 *   On failure nothing is left.
 */
[[nodiscard]] int db_create(const char *dir, const char *name, const struct db_kind *kind,
                            enum db_mode mode, const char *vfs, struct db *ret, struct err *err);

/* Open a live file to go on writing: checked as db_open_read() does, before anything is changed. */
[[nodiscard]] int db_open_live(const char *dir, const char *name, const struct db_kind *kind,
                               const char *vfs, struct db *ret, struct err *err);

enum db_read {
    DB_AT_REST = 0,      /* nobody writes it: immutable */
    DB_COPY_OF_LIVE = 1, /* read-only and without locks, together with its -wal, where LOCK keeps
                            writers away */
};

/* mmap: bytes to map, 0: none. Path checked for SQLite's header first. */
[[nodiscard]] int db_open_read(const char *dir, const char *name, const struct db_kind *kind,
                               enum db_read how, int64_t mmap, const char *vfs, struct db *ret,
                               struct err *err);

/* fsync file and -wal as they lie on disk, before they are opened: a killed process may have left
 * commits in the page cache alone. A file that is not there is no error. */
[[nodiscard]] int db_settle(const char *dir, const char *name, struct err *err);

/* Closed or zeroed: a no-op. Live files keep their -wal. */
void db_close(struct db *db);

/* A whole copy at the new path, which is synced; its directory entry is not. -EEXIST: it is there.
 */
[[nodiscard]] int db_copy(const struct db *db, const char *path, struct err *err);

/* fsync of the directory that name is in. */
[[nodiscard]] int db_sync_dir(const char *dir, const char *name, struct err *err);
/* Unlink the file and what SQLite keeps beside it. */
void db_remove(const char *dir, const char *name);

/* What the journal's own opening shares. db_uri: a path as an URI, malloced, NULL: memory. */
int db_config(sqlite3 *sq);
/* 1, 0, or -ENOMEM, -EIO: not known. */
[[nodiscard]] int db_has_wal(const char *path);
/*
 * After -EBADMSG: is it damage, or a disk that does not give the bytes? SQLite says "malformed" for
 * both: EIO on read is SQLITE_IOERR_CORRUPTFS, and that becomes SQLITE_CORRUPT. 0: file and -wal
 * can be read, err is empty again; try once more. -EIO, -ENOMEM: no damage.
 */
[[nodiscard]] int db_look_again(const char *path, const char *name, struct err *err);
[[nodiscard]] int db_check_magic(const char *path, const char *name, struct err *err);
char *db_uri(const char *path, const char *query);

/* ---- statements ---------------------------------------------------------------------------- */

/* The negative errno of an SQLite result code; sq NULL: memory is short. */
int db_errno(sqlite3 *sq, int code);
/* Fill err with "NAME: WHAT: what SQLite says"; returns the code. */
[[nodiscard]] int db_fail(const struct db *db, const char *what, struct err *err);
/* The same for damage found by us. */
[[nodiscard, gnu::format(printf, 3, 4)]] int db_damaged(const struct db *db, struct err *err,
                                                        const char *fmt, ...);

[[nodiscard]] int db_exec(const struct db *db, const char *sql, struct err *err);
[[nodiscard]] int db_prepare(const struct db *db, const char *sql, sqlite3_stmt **ret,
                             struct err *err);
[[nodiscard]] int db_int(const struct db *db, const char *sql, int64_t *ret, struct err *err);

/* The sum of a row: its integer columns in order, then its blobs or texts in order. */
int64_t db_sum(const struct db *db, enum db_table table, const int64_t *v, size_t n,
               const struct str *blob, size_t n_blob);

/*
 * Bind integers, then blobs, then the sum, to ?1, ?2 ... in that order, and run. The statement is
 * ready again afterwards. *ret_sum may be NULL.
 */
[[nodiscard]] int db_put(const struct db *db, enum db_table table, sqlite3_stmt *st,
                         const int64_t *v, size_t n, const struct str *blob, size_t n_blob,
                         int64_t *ret_sum, struct err *err);

/*
 * Take the row that st stands on: n integers, n_blob blobs or texts, sum, in this order of columns;
 * checks types and the sum. Blobs are valid until st moves.
 */
[[nodiscard]] int db_take(const struct db *db, enum db_table table, sqlite3_stmt *st, int64_t *v,
                          size_t n, struct str *blob, size_t n_blob, struct err *err);

/* sqlite3_step: 1 a row, 0 the end. */
[[nodiscard]] int db_step(const struct db *db, sqlite3_stmt *st, struct err *err);

/* ---- meta ---------------------------------------------------------------------------------- */

/* Integers and blobs of meta beyond what db_create() writes. */
[[nodiscard]] int db_meta_put(const struct db *db, const char *k, int64_t v, struct err *err);
[[nodiscard]] int db_meta_put_blob(const struct db *db, const char *k, struct str v,
                                   struct err *err);
/* The statement of the next two is kept from here on, until db_close. */
[[nodiscard]] int db_meta_keep(struct db *db, struct err *err);
/* 1: it is there, 0: it is not. */
[[nodiscard]] int db_meta_get(const struct db *db, const char *k, int64_t *ret, struct err *err);
/* At most room bytes. */
[[nodiscard]] int db_meta_get_blob(const struct db *db, const char *k, void *ret, size_t room,
                                   size_t *ret_n, struct err *err);
/* Sum over all keys but "sum", in order of k. */
[[nodiscard]] int db_meta_sum(const struct db *db, int64_t *ret, struct err *err);
/* Store it under "sum": the last write to meta. Live files are sealed when they are made. */
[[nodiscard]] int db_meta_seal(const struct db *db, struct err *err);

/* Log the library's version; warn where two connections that checkpoint one file may damage it
 * (3.7.0 to 3.51.2), which no file of ours has. Once per process. */
void db_log_version(void);
