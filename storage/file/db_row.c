// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "storage/file/db_private.h"

#define COLUMNS_MAX 24

/* ---- statements ---------------------------------------------------------------------------- */

int db_exec(const struct db *db, const char *sql, struct err *err)
{
    return sqlite3_exec(db->sq, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : db_fail(db, sql, err);
}

int db_prepare(const struct db *db, const char *sql, sqlite3_stmt **ret, struct err *err)
{
    return sqlite3_prepare_v3(db->sq, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL) == SQLITE_OK
               ? 0
               : db_fail(db, sql, err);
}

int db_step(const struct db *db, sqlite3_stmt *st, struct err *err)
{
    int r = sqlite3_step(st);

    return r == SQLITE_ROW ? 1 : r == SQLITE_DONE ? 0 : db_fail(db, sqlite3_sql(st), err);
}

int db_int(const struct db *db, const char *sql, int64_t *ret, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r = db_prepare(db, sql, &st, err);

    if (r == 0)
        r = db_step(db, st, err);
    if (r == 1)
        *ret = sqlite3_column_int64(st, 0);
    else if (r == 0)
        r = db_damaged(db, err, "%.60s: no row", sql);
    (void)sqlite3_finalize(st);
    return r < 0 ? r : 0;
}

/* ---- sums ---------------------------------------------------------------------------------- */

int64_t db_sum(const struct db *db, enum db_table table, const int64_t *v, size_t n,
               const struct str *blob, size_t n_blob)
{
    uint64_t head[1 + COLUMNS_MAX], h;
    size_t k = 0;

    assert(n + n_blob <= COLUMNS_MAX);
    head[k++] = htole64((uint64_t)table);
    for (size_t i = 0; i < n; i++)
        head[k++] = htole64((uint64_t)v[i]);
    for (size_t i = 0; i < n_blob; i++)
        head[k++] = htole64(blob[i].n);
    h = hash_seed(head, k * sizeof *head, db->seed);
    for (size_t i = 0; i < n_blob; i++)
        h = hash_seed(blob[i].p, blob[i].n, h);
    return (int64_t)h;
}

int db_put(const struct db *db, enum db_table table, sqlite3_stmt *st, const int64_t *v, size_t n,
           const struct str *blob, size_t n_blob, int64_t *ret_sum, struct err *err)
{
    int64_t sum = db_sum(db, table, v, n, blob, n_blob);
    bool ok = true;
    int at = 1;

    for (size_t i = 0; ok && i < n; i++)
        ok = sqlite3_bind_int64(st, at++, v[i]) == SQLITE_OK;
    for (size_t i = 0; ok && i < n_blob; i++)
        ok = sqlite3_bind_blob64(st, at++, blob[i].n ? blob[i].p : "", blob[i].n, SQLITE_STATIC) ==
             SQLITE_OK;
    ok = ok && sqlite3_bind_int64(st, at, sum) == SQLITE_OK && sqlite3_step(st) == SQLITE_DONE;
    if (sqlite3_reset(st) != SQLITE_OK || !ok)
        return db_fail(db, sqlite3_sql(st), err);
    if (ret_sum)
        *ret_sum = sum;
    return 0;
}

int db_take(const struct db *db, enum db_table table, sqlite3_stmt *st, int64_t *v, size_t n,
            struct str *blob, size_t n_blob, struct err *err)
{
    int at = 0;

    for (size_t i = 0; i < n; i++, at++) {
        sqlite3_value *x = sqlite3_column_value(st, at); /* found once, asked twice */

        if (sqlite3_value_type(x) != SQLITE_INTEGER)
            return db_damaged(db, err, "table %d: column %d is not an integer", (int)table, at);
        v[i] = sqlite3_value_int64(x);
    }
    for (size_t i = 0; i < n_blob; i++, at++) {
        const void *p;

        if (sqlite3_column_type(st, at) != SQLITE_BLOB)
            return db_damaged(db, err, "table %d: column %d is not a blob", (int)table, at);
        p = sqlite3_column_blob(st, at);
        blob[i] = (struct str){p, (size_t)sqlite3_column_bytes(st, at)};
        if (!p && blob[i].n > 0)
            return err_set(err, -ENOMEM, "%s: memory is short", db->name);
        if (!p && sqlite3_errcode(db->sq) == SQLITE_NOMEM)
            return err_set(err, -ENOMEM, "%s: memory is short", db->name);
        if (!p && db_errno(db->sq, sqlite3_errcode(db->sq)) == -EBADMSG)
            return db_fail(db, "blob", err);
    }
    if (sqlite3_column_type(st, at) != SQLITE_INTEGER ||
        sqlite3_column_int64(st, at) != db_sum(db, table, v, n, blob, n_blob))
        return db_damaged(db, err, "table %d, row %" PRId64 ": wrong checksum", (int)table,
                          n > 0 ? v[0] : 0);
    return 0;
}

/* ---- meta ---------------------------------------------------------------------------------- */

static int meta_statement(const struct db *db, const char *sql, const char *k, sqlite3_stmt **ret,
                          struct err *err)
{
    TRY(db_prepare(db, sql, ret, err));
    if (sqlite3_bind_text(*ret, 1, k, -1, SQLITE_STATIC) != SQLITE_OK) {
        int r = db_fail(db, "meta", err);

        (void)sqlite3_finalize(*ret);
        *ret = NULL;
        return r;
    }
    return 0;
}

static const char put_sql[] = "INSERT OR REPLACE INTO meta VALUES(?1, ?2)";
static const char get_sql[] = "SELECT v FROM meta WHERE k = ?1";

static int meta_run(const struct db *db, sqlite3_stmt *st, bool bound, struct err *err)
{
    int r = bound && sqlite3_step(st) == SQLITE_DONE ? 0 : db_fail(db, "meta", err);

    (void)sqlite3_finalize(st);
    return r;
}

int db_meta_put(const struct db *db, const char *k, int64_t v, struct err *err)
{
    sqlite3_stmt *st = NULL;

    TRY(meta_statement(db, put_sql, k, &st, err));
    return meta_run(db, st, sqlite3_bind_int64(st, 2, v) == SQLITE_OK, err);
}

int db_meta_put_blob(const struct db *db, const char *k, struct str v, struct err *err)
{
    sqlite3_stmt *st = NULL;

    TRY(meta_statement(db, put_sql, k, &st, err));
    return meta_run(
        db, st, sqlite3_bind_blob64(st, 2, v.n ? v.p : "", v.n, SQLITE_STATIC) == SQLITE_OK, err);
}

int db_meta_keep(struct db *db, struct err *err)
{
    return db->get ? 0 : db_prepare(db, get_sql, &db->get, err);
}

/* With the statement that is kept, where there is one: db->get must be reset, others finalized. */
static int get_begin(const struct db *db, const char *k, sqlite3_stmt **ret, struct err *err)
{
    if (!db->get)
        return meta_statement(db, get_sql, k, ret, err);
    *ret = db->get;
    return sqlite3_bind_text(db->get, 1, k, -1, SQLITE_STATIC) == SQLITE_OK
               ? 0
               : db_fail(db, "meta", err);
}

static void get_end(const struct db *db, sqlite3_stmt *st)
{
    if (st == db->get)
        (void)sqlite3_reset(st);
    else
        (void)sqlite3_finalize(st);
}

int db_meta_get(const struct db *db, const char *k, int64_t *ret, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r;

    TRY(get_begin(db, k, &st, err));
    r = db_step(db, st, err);
    if (r == 1 && sqlite3_column_type(st, 0) != SQLITE_INTEGER)
        r = db_damaged(db, err, "meta.%s is not an integer", k);
    if (r == 1)
        *ret = sqlite3_column_int64(st, 0);
    get_end(db, st);
    return r;
}

int db_meta_get_blob(const struct db *db, const char *k, void *ret, size_t room, size_t *ret_n,
                     struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r;

    TRY(get_begin(db, k, &st, err));
    r = db_step(db, st, err);
    if (r == 1 && sqlite3_column_type(st, 0) != SQLITE_BLOB)
        r = db_damaged(db, err, "meta.%s is not a blob", k);
    if (r == 1) {
        const void *p = sqlite3_column_blob(st, 0);
        size_t n = (size_t)sqlite3_column_bytes(st, 0);

        if (n > room || (n > 0 && !p)) {
            r = db_damaged(db, err, "meta.%s has %zu bytes", k, n);
        } else {
            if (n > 0)
                memcpy(ret, p, n);
            *ret_n = n;
        }
    }
    get_end(db, st);
    return r;
}

int db_meta_sum(const struct db *db, int64_t *ret, struct err *err)
{
    sqlite3_stmt *st = NULL;
    uint64_t h = db->seed;
    int r = db_prepare(db, "SELECT k, v FROM meta WHERE k <> 'sum' ORDER BY k", &st, err);

    while (r == 0 && (r = db_step(db, st, err)) == 1) {
        struct str part[2];
        int64_t v = 0;
        bool blob = sqlite3_column_type(st, 1) == SQLITE_BLOB;

        part[0] = (struct str){(const char *)sqlite3_column_text(st, 0),
                               (size_t)sqlite3_column_bytes(st, 0)};
        part[1] = (struct str){};
        if (blob)
            part[1] = (struct str){sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1)};
        else
            v = sqlite3_column_int64(st, 1);
        h = hash_mix(h ^ (uint64_t)db_sum(db, DB_META, &v, 1, part, 2));
        r = 0;
    }
    (void)sqlite3_finalize(st);
    if (r == 0)
        *ret = (int64_t)h;
    return r;
}

int db_meta_seal(const struct db *db, struct err *err)
{
    int64_t sum = 0;

    TRY(db_meta_sum(db, &sum, err));
    return db_meta_put(db, "sum", sum, err);
}
