// SPDX-License-Identifier: Apache-2.0
/*
 * catalog.db: its tables, and changes to them. Each change is one transaction; the sum of all rows'
 * sums (state.fold) moves with it, so that a row that is lost with its page is noticed. For that a
 * row that is replaced or removed is looked up first: its sum leaves the fold.
 *
 * catalog_load.c reads it, catalog_rebuild.c makes one from parts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "storage/catalog/catalog_tables_private.h"

static const char *const schema[] = {
    "CREATE TABLE state(k INTEGER PRIMARY KEY, v INTEGER, sum INTEGER) STRICT",
    "CREATE TABLE svc(id INTEGER PRIMARY KEY, sum INTEGER, name BLOB) STRICT",
    "CREATE TABLE ptype(id INTEGER PRIMARY KEY, kind INTEGER, sum INTEGER, name BLOB, unit BLOB) "
    "STRICT",
    "CREATE TABLE labelset(id INTEGER PRIMARY KEY, sum INTEGER, data BLOB) STRICT",
    "CREATE TABLE series(id INTEGER PRIMARY KEY, type INTEGER, svc INTEGER, labelset INTEGER, "
    "sum INTEGER) STRICT",
    "CREATE TABLE epoch(id INTEGER PRIMARY KEY, t0 INTEGER, state INTEGER, sum INTEGER) STRICT",
    "CREATE TABLE part(id INTEGER PRIMARY KEY, tier INTEGER, state INTEGER, dirty INTEGER, "
    "epoch INTEGER, gen INTEGER, t0 INTEGER, t1 INTEGER, d0 INTEGER, d1 INTEGER, rows INTEGER, "
    "blocks INTEGER, bytes INTEGER, sealed_lsn INTEGER, sum INTEGER, uuid BLOB, hash BLOB, "
    "path BLOB) STRICT",
    "CREATE TABLE sender(id INTEGER PRIMARY KEY, hi INTEGER, last INTEGER, sum INTEGER, "
    "agent BLOB, boot BLOB, UNIQUE(agent, boot)) STRICT",
    "CREATE TABLE seen(sender INTEGER, seq INTEGER, content INTEGER, sum INTEGER, "
    "PRIMARY KEY(sender, seq)) STRICT, WITHOUT ROWID",
    "CREATE TABLE damage(id INTEGER PRIMARY KEY, at INTEGER, part INTEGER, type INTEGER, "
    "svc INTEGER, t0 INTEGER, t1 INTEGER, n INTEGER, sum INTEGER, what BLOB) STRICT",
};

const struct db_kind catalog_kind = {.kind = "catalog",
                                     .page = CATALOG_PAGE,
                                     .n_table = sizeof schema / sizeof *schema,
                                     .schema = schema};

/* Statements by table: the sum that a key has, and the row anew. */
static const struct {
    const char *sum, *put, *del;
} sql[CATALOG_TABLES] = {
    [CATALOG_STATE] = {"SELECT sum FROM state WHERE k = ?1",
                       "INSERT OR REPLACE INTO state(k, v, sum) VALUES(?1, ?2, ?3)", NULL},
    [CATALOG_SVC] = {"SELECT sum FROM svc WHERE id = ?1",
                     "INSERT OR REPLACE INTO svc(id, name, sum) VALUES(?1, ?2, ?3)", NULL},
    [CATALOG_PTYPE] = {"SELECT sum FROM ptype WHERE id = ?1",
                       "INSERT OR REPLACE INTO ptype(id, kind, name, unit, sum) "
                       "VALUES(?1, ?2, ?3, ?4, ?5)",
                       NULL},
    [CATALOG_LABELSET] = {"SELECT sum FROM labelset WHERE id = ?1",
                          "INSERT OR REPLACE INTO labelset(id, data, sum) VALUES(?1, ?2, ?3)",
                          NULL},
    [CATALOG_SERIES] = {"SELECT sum FROM series WHERE id = ?1",
                        "INSERT OR REPLACE INTO series(id, type, svc, labelset, sum) "
                        "VALUES(?1, ?2, ?3, ?4, ?5)",
                        NULL},
    [CATALOG_EPOCH] = {"SELECT sum FROM epoch WHERE id = ?1",
                       "INSERT OR REPLACE INTO epoch(id, t0, state, sum) VALUES(?1, ?2, ?3, ?4)",
                       NULL},
    [CATALOG_PART] = {"SELECT sum FROM part WHERE id = ?1",
                      "INSERT OR REPLACE INTO part(id, tier, state, dirty, epoch, gen, t0, t1, d0, "
                      "d1, rows, blocks, bytes, sealed_lsn, uuid, hash, path, sum) VALUES(?1, ?2, "
                      "?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
                      "DELETE FROM part WHERE id = ?1"},
    [CATALOG_SENDER] = {"SELECT sum FROM sender WHERE id = ?1",
                        "INSERT OR REPLACE INTO sender(id, hi, last, agent, boot, sum) "
                        "VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
                        "DELETE FROM sender WHERE id = ?1"},
    [CATALOG_SEEN] = {"SELECT sum FROM seen WHERE sender = ?1 AND seq = ?2",
                      "INSERT OR REPLACE INTO seen(sender, seq, content, sum) "
                      "VALUES(?1, ?2, ?3, ?4)",
                      NULL},
    [CATALOG_DAMAGE] = {"SELECT sum FROM damage WHERE id = ?1",
                        "INSERT OR REPLACE INTO damage(id, at, part, type, svc, t0, t1, n, what, "
                        "sum) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                        NULL},
};

static const char sender_sql[] = "SELECT id FROM sender WHERE agent = ?1 AND boot = ?2";
static const char old_sql[] = "SELECT sum FROM seen WHERE sender = ?1 AND seq <= ?2";
static const char forget_sql[] = "DELETE FROM seen WHERE sender = ?1 AND seq <= ?2";

struct catalog {
    struct db db;
    sqlite3_stmt *sum[CATALOG_TABLES], *put[CATALOG_TABLES], *del[CATALOG_TABLES];
    sqlite3_stmt *sender, *old, *forget;
    uint64_t fold; /* of the last commit */
    int64_t next_sender, next_damage;
    bool read_only;
};

/* ---- opening ------------------------------------------------------------------------------- */

static int prepare(struct catalog *c, struct err *err)
{
    for (int t = 1; t < CATALOG_TABLES; t++) {
        TRY(db_prepare(&c->db, sql[t].sum, &c->sum[t], err));
        TRY(db_prepare(&c->db, sql[t].put, &c->put[t], err));
        if (sql[t].del)
            TRY(db_prepare(&c->db, sql[t].del, &c->del[t], err));
    }
    TRY(db_prepare(&c->db, sender_sql, &c->sender, err));
    TRY(db_prepare(&c->db, old_sql, &c->old, err));
    TRY(db_prepare(&c->db, forget_sql, &c->forget, err));
    TRY(db_int(&c->db, "SELECT coalesce(max(id), 0) + 1 FROM sender", &c->next_sender, err));
    return db_int(&c->db, "SELECT coalesce(max(id), 0) + 1 FROM damage", &c->next_damage, err);
}

struct catalog *catalog_new(void)
{
    return mem_fail_now() ? NULL : calloc(1, sizeof(struct catalog));
}

struct db *catalog_db(struct catalog *c)
{
    return &c->db;
}

int catalog_begin(struct catalog *c, struct err *err)
{
    return prepare(c, err);
}

void catalog_set_fold(struct catalog *c, uint64_t fold)
{
    c->fold = fold;
}

struct catalog *catalog_close(struct catalog *c)
{
    if (!c)
        return NULL;
    for (int t = 1; t < CATALOG_TABLES; t++) {
        (void)sqlite3_finalize(c->sum[t]);
        (void)sqlite3_finalize(c->put[t]);
        (void)sqlite3_finalize(c->del[t]);
    }
    (void)sqlite3_finalize(c->sender);
    (void)sqlite3_finalize(c->old);
    (void)sqlite3_finalize(c->forget);
    db_close(&c->db);
    free(c);
    return NULL;
}

/* ---- rows ---------------------------------------------------------------------------------- */

struct change {
    struct catalog *c;
    uint64_t fold;
    struct buf labels;
};

/* Number of a table in sums. */
static enum db_table number_of(enum catalog_table t)
{
    static const enum db_table n[CATALOG_TABLES] = {
        [CATALOG_STATE] = DB_STATE,       [CATALOG_SVC] = DB_SVC,       [CATALOG_PTYPE] = DB_PTYPE,
        [CATALOG_LABELSET] = DB_LABELSET, [CATALOG_SERIES] = DB_SERIES, [CATALOG_EPOCH] = DB_EPOCH,
        [CATALOG_PART] = DB_PART,         [CATALOG_SENDER] = DB_SENDER, [CATALOG_SEEN] = DB_SEEN,
        [CATALOG_DAMAGE] = DB_DAMAGE,
    };

    return n[t];
}

static int bind(const struct db *db, sqlite3_stmt *st, const int64_t *v, int n, struct err *err)
{
    for (int i = 0; i < n; i++)
        if (sqlite3_bind_int64(st, i + 1, v[i]) != SQLITE_OK)
            return db_fail(db, "bind", err);
    return 0;
}

/* The sum that the row has leaves the fold. */
static int take_out(struct change *ch, enum catalog_table t, const int64_t *key, struct err *err)
{
    const struct db *db = &ch->c->db;
    sqlite3_stmt *st = ch->c->sum[t];
    int r;

    TRY(bind(db, st, key, t == CATALOG_SEEN ? 2 : 1, err));
    r = db_step(db, st, err);
    if (r == 1)
        ch->fold -= (uint64_t)sqlite3_column_int64(st, 0);
    (void)sqlite3_reset(st);
    return r < 0 ? r : 0;
}

/* CATALOG_STATE is not in the fold, which is one of its rows. */
static int put(struct change *ch, enum catalog_table t, const int64_t *v, size_t n,
               const struct str *blob, size_t n_blob, struct err *err)
{
    int64_t sum;

    if (t != CATALOG_STATE)
        TRY(take_out(ch, t, v, err));
    TRY(db_put(&ch->c->db, number_of(t), ch->c->put[t], v, n, blob, n_blob, &sum, err));
    if (t != CATALOG_STATE)
        ch->fold += (uint64_t)sum;
    return 0;
}

static int run(const struct db *db, sqlite3_stmt *st, struct err *err)
{
    int r = db_step(db, st, err);

    (void)sqlite3_reset(st);
    return r < 0 ? r : 0;
}

static int del(struct change *ch, enum catalog_table t, int64_t id, struct err *err)
{
    TRY(take_out(ch, t, &id, err));
    TRY(bind(&ch->c->db, ch->c->del[t], &id, 1, err));
    return run(&ch->c->db, ch->c->del[t], err);
}

static int put_state(struct change *ch, int64_t k, uint64_t v, struct err *err)
{
    return put(ch, CATALOG_STATE, (int64_t[]){k, (int64_t)v}, 2, NULL, 0, err);
}

/* ---- a change ------------------------------------------------------------------------------ */

static int put_names(struct change *ch, const struct catalog_change *x, struct err *err)
{
    for (uint32_t i = 0; i < x->n_svc; i++)
        TRY(put(ch, CATALOG_SVC, (int64_t[]){x->svc[i].id}, 1, &x->svc[i].name, 1, err));
    for (uint32_t i = 0; i < x->n_ptype; i++) {
        const struct catalog_ptype *t = &x->ptype[i];
        const struct str s[2] = {t->name, t->unit};

        TRY(put(ch, CATALOG_PTYPE, (int64_t[]){t->id, (int64_t)t->kind}, 2, s, 2, err));
    }
    for (uint32_t i = 0; i < x->n_labelset; i++) {
        const struct catalog_labelset *l = &x->labelset[i];
        struct str data;

        buf_reset(&ch->labels);
        labels_put(&ch->labels, l->n, l->v);
        if (ch->labels.failed)
            return err_set(err, -ENOMEM, "%s: memory is short", ch->c->db.name);
        data = buf_view(&ch->labels);
        TRY(put(ch, CATALOG_LABELSET, (int64_t[]){l->id}, 1, &data, 1, err));
    }
    for (uint32_t i = 0; i < x->n_series; i++) {
        const struct catalog_series *s = &x->series[i];

        TRY(put(ch, CATALOG_SERIES, (int64_t[]){s->id, s->type, s->svc, s->labelset}, 4, NULL, 0,
                err));
    }
    return 0;
}

static int put_part(struct change *ch, const struct part_info *p, struct err *err)
{
    const int64_t v[] = {
        (int64_t)p->id,    (int64_t)p->tier,      (int64_t)p->state, p->dirty,
        p->epoch,          p->generation,         p->period.t0.v,    p->period.t1.v,
        p->data.t0.v,      p->data.t1.v,          (int64_t)p->rows,  (int64_t)p->blocks,
        (int64_t)p->bytes, (int64_t)p->sealed_lsn};
    const struct str s[] = {{(const char *)p->uuid, sizeof p->uuid},
                            {(const char *)p->hash, sizeof p->hash},
                            str_c(p->name)};

    assert(p->id > 0);
    return put(ch, CATALOG_PART, v, CATALOG_PART_INTS, s, 3, err);
}

static int find_sender(struct catalog *c, const struct catalog_sender *s, int64_t *ret,
                       struct err *err)
{
    int r;

    if (sqlite3_bind_blob(c->sender, 1, s->agent, 16, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_bind_blob(c->sender, 2, s->boot, 16, SQLITE_STATIC) != SQLITE_OK)
        return db_fail(&c->db, "sender", err);
    r = db_step(&c->db, c->sender, err);
    if (r == 1)
        *ret = sqlite3_column_int64(c->sender, 0);
    (void)sqlite3_reset(c->sender);
    return r;
}

/* Numbers of a sender up to seq leave. */
static int forget_seen(struct change *ch, int64_t id, int64_t seq, struct err *err)
{
    struct catalog *c = ch->c;
    int r;

    TRY(bind(&c->db, c->old, (int64_t[]){id, seq}, 2, err));
    while ((r = db_step(&c->db, c->old, err)) == 1)
        ch->fold -= (uint64_t)sqlite3_column_int64(c->old, 0);
    (void)sqlite3_reset(c->old);
    TRY(r);
    TRY(bind(&c->db, c->forget, (int64_t[]){id, seq}, 2, err));
    return run(&c->db, c->forget, err);
}

static int put_sender(struct change *ch, const struct catalog_sender *s, struct err *err)
{
    const struct str name[2] = {{(const char *)s->agent, 16}, {(const char *)s->boot, 16}};
    int64_t id = 0;
    int has;

    TRY_OUTCOME(has, find_sender(ch->c, s, &id, err));
    if (!has)
        id = ch->c->next_sender++;
    TRY(put(ch, CATALOG_SENDER, (int64_t[]){id, (int64_t)s->hi, s->last.v}, 3, name, 2, err));
    for (uint32_t i = 0; i < s->n_seen; i++)
        TRY(put(ch, CATALOG_SEEN,
                (int64_t[]){id, (int64_t)s->seen[i].seq, (int64_t)s->seen[i].content}, 3, NULL, 0,
                err));
    return s->hi >= CATALOG_SEEN_MAX ? forget_seen(ch, id, (int64_t)(s->hi - CATALOG_SEEN_MAX), err)
                                     : 0;
}

static int forget_sender(struct change *ch, const struct catalog_sender *s, struct err *err)
{
    int64_t id = 0;
    int has;

    TRY_OUTCOME(has, find_sender(ch->c, s, &id, err));
    if (!has)
        return 0;
    TRY(forget_seen(ch, id, INT64_MAX, err));
    return del(ch, CATALOG_SENDER, id, err);
}

static int put_damage(struct change *ch, const struct catalog_damage *d, struct err *err)
{
    const int64_t v[] = {
        ch->c->next_damage++, d->at.v, (int64_t)d->part, d->type, d->svc, d->t.t0.v, d->t.t1.v,
        (int64_t)d->n};

    return put(ch, CATALOG_DAMAGE, v, CATALOG_DAMAGE_INTS, &d->what, 1, err);
}

static int put_all(struct change *ch, const struct catalog_change *x, struct err *err)
{
    TRY(put_names(ch, x, err));
    for (uint32_t i = 0; i < x->n_epoch; i++) {
        const struct catalog_epoch *e = &x->epoch[i];

        TRY(put(ch, CATALOG_EPOCH, (int64_t[]){e->id, e->t0.v, e->state}, 3, NULL, 0, err));
        if (e->dict_id)
            TRY(put_state(ch, CATALOG_EPOCH_DICT + e->id, e->dict_id, err));
    }
    for (uint32_t i = 0; i < x->n_part; i++)
        TRY(put_part(ch, &x->part[i], err));
    for (uint32_t i = 0; i < x->n_gone; i++)
        TRY(del(ch, CATALOG_PART, (int64_t)x->gone[i], err));
    for (uint32_t i = 0; i < x->n_sender; i++)
        TRY(put_sender(ch, &x->sender[i], err));
    for (uint32_t i = 0; i < x->n_forget; i++)
        TRY(forget_sender(ch, &x->forget[i], err));
    for (uint32_t i = 0; i < x->n_damage; i++)
        TRY(put_damage(ch, &x->damage[i], err));
    if (x->state) {
        TRY(put_state(ch, CATALOG_SEALED_LSN, x->state->sealed_lsn, err));
        TRY(put_state(ch, CATALOG_NEXT_JOURNAL, x->state->next_journal, err));
        TRY(put_state(ch, CATALOG_NEXT_SEAL, x->state->next_seal, err));
        TRY(put_state(ch, CATALOG_NEXT_PART, x->state->next_part, err));
        TRY(put_state(ch, CATALOG_EXPIRY_REF, (uint64_t)x->state->expiry_ref.v, err));
        TRY(put_state(ch, CATALOG_DICT_ID, x->state->dict_id, err));
        TRY(put_state(ch, CATALOG_DICT_N, x->state->dict_n, err));
        TRY(put_state(ch, CATALOG_STORE, x->state->store, err));
    }
    return put_state(ch, CATALOG_FOLD, ch->fold, err);
}

int catalog_commit(struct catalog *c, const struct catalog_change *change, struct err *err)
{
    struct change ch = {.c = c, .fold = c->fold};
    const int64_t next_sender = c->next_sender, next_damage = c->next_damage;
    int r = db_exec(&c->db, "BEGIN IMMEDIATE", err);

    assert(!c->read_only);
    buf_init(&ch.labels, (size_t)1 << 20);
    if (r == 0)
        r = put_all(&ch, change, err);
    if (r == 0)
        r = db_exec(&c->db, "COMMIT", err);
    if (r == 0) {
        c->fold = ch.fold;
    } else {
        if (!sqlite3_get_autocommit(c->db.sq))
            (void)db_exec(&c->db, "ROLLBACK", NULL);
        c->next_sender = next_sender;
        c->next_damage = next_damage;
    }
    buf_deinit(&ch.labels);
    return r;
}

void catalog_checkpoint(struct catalog *c)
{
    (void)db_exec(&c->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL);
}

int catalog_copy(struct catalog *c, const char *path, struct err *err)
{
    return db_copy(&c->db, path, err);
}
