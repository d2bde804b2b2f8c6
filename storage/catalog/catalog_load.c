// SPDX-License-Identifier: Apache-2.0
/*
 * Opening and reading catalog.db. All of it is read once, row by row, with its sums, before it is
 * believed; what cannot be read is set aside and made anew from the parts (catalog_rebuild.c).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/map.h"
#include "storage/catalog/catalog_tables_private.h"

#define LABELS_MAX 256u
#define NAME       "catalog.db"

struct loading {
    const struct db *db;
    const struct catalog_sink *sink;
    struct catalog_state state;
    uint64_t fold, want; /* want: state.fold */
    uint32_t keys;       /* bits of enum catalog_key */
    struct map dict;     /* closed epoch -> dict_id */
    sqlite3_stmt *seen;
    struct store_label label[LABELS_MAX];
    uint32_t n_label;
    struct catalog_seen number[CATALOG_SEEN_MAX + 1];
};

static int bad(const struct loading *l, const char *what, int64_t id, struct err *err)
{
    return db_damaged(l->db, err, "%s %" PRId64 ": impossible", what, id);
}

static bool is_u32(int64_t v)
{
    return v >= 0 && v <= UINT32_MAX;
}

static int take_dict(struct loading *l, const int64_t *v, struct err *err)
{
    if (map_put(&l->dict, (uint64_t)(v[0] - CATALOG_EPOCH_DICT), (uint64_t)v[1]) == MAP_FULL)
        return err_set(err, -ENOMEM, NAME ": memory is short");
    return 0;
}

static int take_state(struct loading *l, const int64_t *v, const struct str *s, struct err *err)
{
    const uint64_t x = (uint64_t)v[1];

    (void)s;
    switch (v[0]) {
    case CATALOG_SEALED_LSN:
        l->state.sealed_lsn = x;
        break;
    case CATALOG_NEXT_JOURNAL:
        l->state.next_journal = x;
        break;
    case CATALOG_NEXT_SEAL:
        l->state.next_seal = x;
        break;
    case CATALOG_NEXT_PART:
        l->state.next_part = x;
        break;
    case CATALOG_EXPIRY_REF:
        l->state.expiry_ref.v = v[1];
        break;
    case CATALOG_FOLD:
        l->want = x;
        break;
    case CATALOG_DICT_ID:
        l->state.dict_id = x;
        return 0;
    case CATALOG_DICT_N:
        l->state.dict_n = x;
        return 0;
    case CATALOG_STORE:
        l->state.store = x;
        return 0;
    default:
        return is_u32(v[0] - CATALOG_EPOCH_DICT) ? take_dict(l, v, err)
                                                 : bad(l, "state", v[0], err);
    }
    l->keys |= 1u << v[0];
    return 0;
}

static int take_svc(struct loading *l, const int64_t *v, const struct str *s, struct err *err)
{
    const struct catalog_svc x = {(uint32_t)v[0], s[0]};

    if (!is_u32(v[0]) || v[0] == 0)
        return bad(l, "svc", v[0], err);
    return l->sink->svc ? l->sink->svc(l->sink->ctx, &x, err) : 0;
}

static int take_ptype(struct loading *l, const int64_t *v, const struct str *s, struct err *err)
{
    const struct catalog_ptype x = {(ptype_id)v[0], s[0], s[1], (enum ptype_kind)v[1]};

    if (!is_u32(v[0]) || v[0] < PTYPE_IMPORTED_FIRST || (v[1] != KIND_SUM && v[1] != KIND_LEVEL))
        return bad(l, "ptype", v[0], err);
    return l->sink->ptype ? l->sink->ptype(l->sink->ctx, &x, err) : 0;
}

static bool on_pair(void *ctx, struct str name, struct str value)
{
    struct loading *l = ctx;

    if (l->n_label == LABELS_MAX)
        return false;
    l->label[l->n_label++] = (struct store_label){name, value};
    return true;
}

static int take_labelset(struct loading *l, const int64_t *v, const struct str *s, struct err *err)
{
    struct cell_in in = cell_in(s[0].p, s[0].n);
    struct catalog_labelset x = {.id = (uint32_t)v[0], .v = l->label};

    l->n_label = 0;
    if (!is_u32(v[0]) || v[0] == 0 || !labels_get(&in, on_pair, l) || !cell_at_end(&in))
        return bad(l, "labelset", v[0], err);
    x.n = l->n_label;
    return l->sink->labelset ? l->sink->labelset(l->sink->ctx, &x, err) : 0;
}

static int take_series(struct loading *l, const int64_t *v, const struct str *s, struct err *err)
{
    const struct catalog_series x = {.id = (uint32_t)v[0],
                                     .type = (ptype_id)v[1],
                                     .svc = (uint32_t)v[2],
                                     .labelset = (uint32_t)v[3]};

    (void)s;
    for (int i = 0; i < 4; i++)
        if (!is_u32(v[i]) || v[i] == 0)
            return bad(l, "series", v[0], err);
    return l->sink->series ? l->sink->series(l->sink->ctx, &x, err) : 0;
}

static int take_epoch(struct loading *l, const int64_t *v, const struct str *s, struct err *err)
{
    struct catalog_epoch x = {.id = (uint32_t)v[0], .t0 = {v[1]}, .state = (uint32_t)v[2]};

    (void)s;
    if (!is_u32(v[0]) || v[0] == 0 || !is_u32(v[2]))
        return bad(l, "epoch", v[0], err);
    (void)map_get(&l->dict, x.id, &x.dict_id);
    return l->sink->epoch ? l->sink->epoch(l->sink->ctx, &x, err) : 0;
}

static int take_part(struct loading *l, const int64_t *v, const struct str *s, struct err *err)
{
    struct part_info x = {.id = (uint64_t)v[0],
                          .tier = (enum store_tier)v[1],
                          .state = (enum part_state)v[2],
                          .dirty = v[3],
                          .epoch = (uint32_t)v[4],
                          .generation = (uint32_t)v[5],
                          .period = {{v[6]}, {v[7]}},
                          .data = {{v[8]}, {v[9]}},
                          .rows = (uint64_t)v[10],
                          .blocks = (uint64_t)v[11],
                          .bytes = (uint64_t)v[12],
                          .sealed_lsn = (uint64_t)v[13]};

    if (v[0] < 1 || (v[1] != STORE_RAW && v[1] != STORE_MINUTE) || v[2] < PART_SEALED ||
        v[2] > PART_QUARANTINED || !is_u32(v[4]) || !is_u32(v[5]) || s[0].n != 16 || s[1].n != 16 ||
        s[2].n == 0 || s[2].n >= sizeof x.name)
        return bad(l, "part", v[0], err);
    memcpy(x.uuid, s[0].p, 16);
    memcpy(x.hash, s[1].p, 16);
    memcpy(x.name, s[2].p, s[2].n);
    return l->sink->part ? l->sink->part(l->sink->ctx, &x, err) : 0;
}

/* The numbers of one sender, rising. */
static int take_seen(struct loading *l, int64_t sender, uint32_t *ret_n, struct err *err)
{
    uint32_t n = 0;
    int r;

    if (sqlite3_bind_int64(l->seen, 1, sender) != SQLITE_OK)
        return db_fail(l->db, "seen", err);
    while ((r = db_step(l->db, l->seen, err)) == 1) {
        int64_t v[3];

        r = db_take(l->db, DB_SEEN, l->seen, v, 3, NULL, 0, err);
        if (r == 0 && n > CATALOG_SEEN_MAX)
            r = bad(l, "seen", sender, err);
        if (r != 0)
            break;
        l->fold += (uint64_t)sqlite3_column_int64(l->seen, 3);
        l->number[n++] = (struct catalog_seen){(uint64_t)v[1], (uint64_t)v[2]};
    }
    (void)sqlite3_reset(l->seen);
    *ret_n = n;
    return r;
}

static int take_sender(struct loading *l, const int64_t *v, const struct str *s, struct err *err)
{
    struct catalog_sender x = {.hi = (uint64_t)v[1], .last = {v[2]}, .seen = l->number};

    if (s[0].n != 16 || s[1].n != 16)
        return bad(l, "sender", v[0], err);
    memcpy(x.agent, s[0].p, 16);
    memcpy(x.boot, s[1].p, 16);
    TRY(take_seen(l, v[0], &x.n_seen, err));
    return l->sink->sender ? l->sink->sender(l->sink->ctx, &x, err) : 0;
}

static int take_damage(struct loading *l, const int64_t *v, const struct str *s, struct err *err)
{
    const struct catalog_damage x = {.at = {v[1]},
                                     .part = (uint64_t)v[2],
                                     .type = (ptype_id)v[3],
                                     .svc = (uint32_t)v[4],
                                     .t = {{v[5]}, {v[6]}},
                                     .n = (uint64_t)v[7],
                                     .what = s[0]};

    return l->sink->damage ? l->sink->damage(l->sink->ctx, &x, err) : 0;
}

struct table_load {
    enum db_table table;
    uint32_t n, n_blob;
    int (*take)(struct loading *l, const int64_t *v, const struct str *s, struct err *err);
    const char *sql;
};

static int load_table(struct loading *l, const struct table_load *t, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r = db_prepare(l->db, t->sql, &st, err);

    while (r == 0 && (r = db_step(l->db, st, err)) == 1) {
        int64_t v[16];
        struct str s[3];

        r = db_take(l->db, t->table, st, v, t->n, s, t->n_blob, err);
        if (r == 0 && t->table != DB_STATE)
            l->fold += (uint64_t)sqlite3_column_int64(st, (int)(t->n + t->n_blob));
        if (r == 0)
            r = t->take(l, v, s, err);
    }
    (void)sqlite3_finalize(st);
    return r;
}

static int load(struct loading *l, struct err *err)
{
    static const struct table_load all[] = {
        {DB_STATE, 2, 0, take_state, "SELECT k, v, sum FROM state ORDER BY k"},
        {DB_SVC, 1, 1, take_svc, "SELECT id, name, sum FROM svc ORDER BY id"},
        {DB_PTYPE, 2, 2, take_ptype, "SELECT id, kind, name, unit, sum FROM ptype ORDER BY id"},
        {DB_LABELSET, 1, 1, take_labelset, "SELECT id, data, sum FROM labelset ORDER BY id"},
        {DB_SERIES, 4, 0, take_series,
         "SELECT id, type, svc, labelset, sum FROM series ORDER BY id"},
        {DB_EPOCH, 3, 0, take_epoch, "SELECT id, t0, state, sum FROM epoch ORDER BY id"},
        {DB_PART, CATALOG_PART_INTS, 3, take_part,
         "SELECT id, tier, state, dirty, epoch, gen, t0, t1, d0, d1, rows, blocks, bytes, "
         "sealed_lsn, uuid, hash, path, sum FROM part ORDER BY id"},
        {DB_SENDER, 3, 2, take_sender,
         "SELECT id, hi, last, agent, boot, sum FROM sender ORDER BY id"},
        {DB_DAMAGE, CATALOG_DAMAGE_INTS, 1, take_damage,
         "SELECT id, at, part, type, svc, t0, t1, n, what, sum FROM damage ORDER BY id"},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        TRY(load_table(l, &all[i], err));
    if (l->keys != 0 && l->keys != (1u << CATALOG_KEYS) - 2 && l->keys != 1u << CATALOG_FOLD)
        return db_damaged(l->db, err, "state is not whole");
    if (l->fold != l->want)
        return db_damaged(l->db, err, "rows are missing, or older than the rest");
    return 0;
}

int catalog_load(struct catalog *c, const struct catalog_sink *sink, struct catalog_state *ret,
                 struct err *err)
{
    struct loading *l = mem_fail_now() ? NULL : calloc(1, sizeof *l);
    int r;

    if (!l)
        return err_set(err, -ENOMEM, NAME ": memory is short");
    l->db = catalog_db(c);
    l->sink = sink;
    r = db_prepare(l->db,
                   "SELECT sender, seq, content, sum FROM seen WHERE sender = ?1 ORDER BY seq",
                   &l->seen, err);
    if (r == 0)
        r = load(l, err);
    (void)sqlite3_finalize(l->seen);
    if (r == 0) {
        catalog_set_fold(c, l->fold);
        *ret = l->state;
    }
    map_deinit(&l->dict);
    free(l);
    return r;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* quick_check tells a page that could not be read just now as it tells damage. */
static bool is_damage(const struct db *db, const char *text)
{
    const char *at = text ? strstr(text, "error code=") : NULL;
    struct str s = at ? str_from(str_c(at), strlen("error code=")) : (struct str){};
    uint64_t code;

    return !str_u64(str_to(s, str_find(s, '\n')), &code) || db_errno(db->sq, (int)code) == -EBADMSG;
}

/* Pages by SQLite's own rules, then every row by ours. */
static int check(struct catalog *c, struct err *err)
{
    const struct catalog_sink none = {};
    const struct db *db = catalog_db(c);
    struct catalog_state state;
    sqlite3_stmt *st = NULL;
    int r = db_prepare(db, "PRAGMA quick_check(1)", &st, err);

    if (r == 0)
        r = db_step(db, st, err);
    if (r == 1) {
        const char *text = (const char *)sqlite3_column_text(st, 0);

        if (text && strcmp(text, "ok") == 0)
            r = 0;
        else if (is_damage(db, text))
            r = db_damaged(db, err, "%s", text ? text : "unreadable");
        else
            r = err_set(err, -EIO, NAME ": %s", text);
    }
    (void)sqlite3_finalize(st);
    return r == 0 ? catalog_load(c, &none, &state, err) : r;
}

static int open_live(struct catalog *c, const char *dir, const char *vfs, struct err *err)
{
    int r;

    TRY(db_open_live(dir, NAME, &catalog_kind, vfs, catalog_db(c), err));
    TRY(check(c, err));
    /* A commit whose sync failed may be seen, although no later sync makes it last: what is seen is
     * written anew, before anything is done because of it. A full disk says so at the next write.
     */
    r = db_exec(catalog_db(c), "PRAGMA wal_checkpoint(TRUNCATE)", err);
    return r == 0 || r == -ENOSPC ? catalog_begin(c, err) : r;
}

static int create(struct catalog *c, const char *dir, const char *vfs, struct err *err)
{
    TRY(db_create(dir, NAME, &catalog_kind, DB_LIVE, vfs, catalog_db(c), err));
    return catalog_begin(c, err);
}

/* catalog.db and its -wal become quarantine/catalog.db.SECONDS. */
static int set_aside(const char *dir, real_ns now, struct err *err)
{
    static const char *const end[] = {"", "-wal"};
    char from[4096], to[4096];

    (void)snprintf(to, sizeof to, "%s/quarantine", dir);
    if (mkdir(to, 0700) != 0 && errno != EEXIST)
        return err_set(err, -errno, "quarantine: %m");
    for (int i = 0; i < 2; i++) {
        (void)snprintf(from, sizeof from, "%s/" NAME "%s", dir, end[i]);
        (void)snprintf(to, sizeof to, "%s/quarantine/" NAME ".%" PRId64 "%s", dir, now.v / NS_PER_S,
                       end[i]);
        if (rename(from, to) != 0 && errno != ENOENT)
            return err_set(err, -errno, NAME "%s: %m", end[i]);
    }
    TRY(db_sync_dir(dir, "quarantine/" NAME, err));
    return db_sync_dir(dir, NAME, err);
}

/* The file was removed, its -wal was not: SQLite would take that for the new one's. */
static bool has_wal(const char *dir)
{
    char path[4096];

    (void)snprintf(path, sizeof path, "%s/" NAME, dir);
    return db_has_wal(path);
}

/* Is there anything in journal/? If not, and no part either, the making of the store was cut off.
 */
static bool has_journal(const char *dir)
{
    char path[4096];
    struct dirent *e;
    bool any = false;
    DIR *d;

    (void)snprintf(path, sizeof path, "%s/journal", dir);
    d = opendir(path);
    if (!d)
        return errno != ENOENT;
    while (!any && (e = readdir(d))) // NOLINT(concurrency-mt-unsafe)
        any = e->d_name[0] != '.';
    (void)closedir(d);
    return any;
}

static int make_new(struct catalog **c, const char *dir, const char *vfs, real_ns now,
                    const struct file_list *files, struct err *err)
{
    *c = catalog_close(*c);
    *c = catalog_new();
    if (!*c)
        return err_set(err, -ENOMEM, NAME ": memory is short");
    TRY(create(*c, dir, vfs, err));
    return files->n > 0 ? catalog_rebuild(*c, dir, vfs, now, files, err) : 0;
}

int catalog_open(const char *dir, const char *vfs, real_ns now, struct catalog **ret,
                 struct err *err)
{
    struct catalog *c = catalog_new();
    struct file_list files = {};
    struct err why = {};
    int r;

    if (!c)
        return err_set(err, -ENOMEM, NAME ": memory is short");
    r = db_settle(dir, NAME, &why);
    if (r == 0)
        r = open_live(c, dir, vfs, &why);
    if (r == -EBADMSG || r == -ENOENT) {
        const bool wal = has_wal(dir), there = r == -EBADMSG || (wal && has_journal(dir));

        r = there || wal ? set_aside(dir, now, err) : 0;
        if (r == 0)
            r = part_files(dir, &files, err);
        if (r == 0)
            r = make_new(&c, dir, vfs, now, &files, err);
        if (r == 0)
            r = there || files.n > 0 ? CATALOG_REBUILT : CATALOG_NEW;
        free(files.v);
    }
    if (r < 0 || r == CATALOG_REBUILT)
        (void)err_set(err, r < 0 ? r : -EBADMSG, "%s", why.msg);
    if (r < 0)
        (void)catalog_close(c);
    else
        *ret = c;
    return r;
}

/*
 * The file as it is now, in memory: what was checked is what is read later, also where a server
 * goes on writing. The header of a copy says that it has no -wal: what was in that is in the copy.
 */
static int take_copy(struct db *db, struct err *err)
{
    enum {
        WRITE_VERSION = 18, /* bytes of the header: 2 with a -wal, 1 without */
        READ_VERSION = 19
    };
    sqlite3_int64 n = 0;
    unsigned char *p = sqlite3_serialize(db->sq, "main", &n, 0);
    sqlite3 *copy = NULL;

    if (!p || n <= READ_VERSION) {
        sqlite3_free(p);
        return db_damaged(db, err, "cannot be copied");
    }
    p[WRITE_VERSION] = p[READ_VERSION] = 1;
    if (sqlite3_open_v2(":memory:", &copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
            SQLITE_OK ||
        sqlite3_deserialize(copy, "main", p, n, n,
                            SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY) !=
            SQLITE_OK) {
        (void)sqlite3_close(copy);
        return err_set(err, -ENOMEM, NAME ": memory is short");
    }
    db_close(db);
    db->sq = copy;
    return db_config(copy) == 0 ? 0 : err_set(err, -ENOMEM, NAME ": memory is short");
}

int catalog_open_read(const char *dir, const char *vfs, struct catalog **ret, struct err *err)
{
    struct catalog *c = catalog_new();
    int r;

    if (!c)
        return err_set(err, -ENOMEM, NAME ": memory is short");
    r = db_open_read(dir, NAME, &catalog_kind, DB_COPY_OF_LIVE, 0, vfs, catalog_db(c), err);
    if (r == 0)
        r = take_copy(catalog_db(c), err);
    if (r == 0)
        r = check(c, err);
    if (r != 0)
        (void)catalog_close(c);
    else
        *ret = c;
    return r;
}
