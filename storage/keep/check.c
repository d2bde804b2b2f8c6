// SPDX-License-Identifier: Apache-2.0
/*
 * store_check(): is what is on disk what was written? LOCK is taken so that nobody writes
 * meanwhile; where a server has it the catalog, dictionaries and journals are its own, and sealed
 * parts are checked by themselves. Nothing is changed, made or locked beyond that.
 *
 *   quick   catalog against files, sizes, meta of each
 *   full    every sum, every block and chunk decoded, every number computed again, every id
 * followed deep    hashes of files against the catalog, SQLite's own check of every page
 *
 * Parts are taken epoch by epoch, so that one dictionary is in memory at a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "storage/dict/dictfile_private.h"
#include "storage/dict/dictfile_tables_private.h"
#include "storage/keep/check_private.h"

static const struct interval unknown;

/* ---- findings ------------------------------------------------------------------------------ */

/* Errors of readers begin with the file's name, a finding has it in front already. */
static struct str without_file(const char *msg, const char *file)
{
    const size_t n = strlen(file);

    return str_c(n > 0 && strncmp(msg, file, n) == 0 && strncmp(msg + n, ": ", 2) == 0 ? msg + n + 2
                                                                                       : msg);
}

int check_note(struct check *c, const char *file, const char *table, int64_t id, struct interval t,
               const struct err *what, struct err *err)
{
    const struct store_finding f = {.file = str_c(file),
                                    .table = str_c(table),
                                    .id = id,
                                    .what = without_file(what->msg, file),
                                    .t = t};

    c->out.findings++;
    return c->conf->finding(c->conf->ctx, &f) ? 0 : err_set(err, -ECANCELED, "ended by the caller");
}

int check_result(struct check *c, const char *file, const char *table, int64_t id,
                 struct interval t, int r, const struct err *why, struct err *err)
{
    switch (r) {
    case 0:
        return 0;
    case -EBADMSG:
    case -EIO:
    case -ENOENT:
        return check_note(c, file, table, id, t, why, err);
    default:
        return err_set(err, r, "%s", why->msg);
    }
}

void check_progress(struct check *c, uint64_t bytes)
{
    c->out.bytes += bytes;
    if (c->out.bytes > c->all)
        c->all = c->out.bytes;
    if (c->conf->progress)
        c->conf->progress(c->conf->ctx, c->out.bytes, c->all);
}

int check_integrity(const struct db *db, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r = db_prepare(db, "PRAGMA integrity_check(1)", &st, err);

    if (r == 0)
        r = db_step(db, st, err);
    if (r == 1) {
        const char *text = (const char *)sqlite3_column_text(st, 0);

        r = text && strcmp(text, "ok") == 0 ? 0
                                            : db_damaged(db, err, "%s", text ? text : "unreadable");
    }
    (void)sqlite3_finalize(st);
    return r;
}

/* ---- the catalog --------------------------------------------------------------------------- */

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "check: memory is short");
}

/* Ids are dense, from `first` on. */
static int add_name(struct map *m, uint32_t id, uint32_t first, uint64_t hash, struct err *err)
{
    if (id != first + m->n)
        return err_set(err, -EBADMSG, "catalog.db: id %" PRIu32 " where %" PRIu32 " is due", id,
                       first + m->n);
    return map_put(m, id, hash) == MAP_FULL ? no_memory(err) : 0;
}

static int on_svc(void *ctx, const struct catalog_svc *x, struct err *err)
{
    return add_name(&((struct check *)ctx)->svc, x->id, 1, hash_str(x->name), err);
}

static int on_ptype(void *ctx, const struct catalog_ptype *x, struct err *err)
{
    return add_name(&((struct check *)ctx)->ptype, x->id, PTYPE_IMPORTED_FIRST,
                    name_hash_ptype(x->name, x->unit, x->kind), err);
}

static int on_labelset(void *ctx, const struct catalog_labelset *x, struct err *err)
{
    return add_name(&((struct check *)ctx)->labelset, x->id, 1, name_hash_labels(x->n, x->v), err);
}

static int on_series(void *ctx, const struct catalog_series *x, struct err *err)
{
    struct check *c = ctx;
    uint64_t v;
    bool type = x->type < PTYPE_IMPORTED_FIRST ? ptype_builtin(x->type) != NULL
                                               : map_get(&c->ptype, x->type, &v);

    if (!type || !map_get(&c->svc, x->svc, &v) || !map_get(&c->labelset, x->labelset, &v))
        return err_set(err, -EBADMSG,
                       "catalog.db: series %" PRIu32 ": no such type, service or label set", x->id);
    return add_name(&c->series, x->id, 1, name_hash_series(x->type, x->svc, x->labelset), err);
}

static int on_epoch(void *ctx, const struct catalog_epoch *x, struct err *err)
{
    struct check *c = ctx;
    struct catalog_epoch *v;

    if (x->state == CATALOG_EPOCH_GONE)
        return 0;
    v = realloc(c->epoch, (c->n_epoch + 1) * sizeof *v);
    if (!v)
        return no_memory(err);
    c->epoch = v;
    if (x->state == CATALOG_EPOCH_CURRENT)
        c->current = x->id;
    v[c->n_epoch++] = *x;
    return 0;
}

static int add_part(struct check *c, const struct part_info *x, struct err *err)
{
    if (c->n_part == c->room_part) {
        uint32_t room = c->room_part ? 2 * c->room_part : 64;
        struct part_info *v = realloc(c->part, room * sizeof *v);

        if (!v)
            return no_memory(err);
        c->part = v;
        c->room_part = room;
    }
    c->part[c->n_part++] = *x;
    c->all += x->bytes;
    return 0;
}

static int on_part(void *ctx, const struct part_info *x, struct err *err)
{
    struct check *c = ctx;
    void *v;

    if (x->state == PART_SEALED)
        return add_part(c, x, err);
    v = realloc(c->gone.v, ((size_t)c->gone.n + 1) * sizeof *c->gone.v);
    if (!v)
        return no_memory(err);
    c->gone.v = v;
    memcpy(c->gone.v[c->gone.n++], x->name, sizeof x->name);
    return 0;
}

static int load_catalog(struct check *c, struct err *err)
{
    const struct catalog_sink sink = {.ctx = c,
                                      .svc = on_svc,
                                      .ptype = on_ptype,
                                      .labelset = on_labelset,
                                      .series = on_series,
                                      .epoch = on_epoch,
                                      .part = on_part};
    struct catalog *cat = NULL;
    int r;

    TRY(catalog_open_read(c->dir, NULL, &cat, err));
    r = catalog_load(cat, &sink, &c->state, err);
    if (r == 0 && c->conf->depth >= STORE_CHECK_DEEP)
        r = check_integrity(catalog_db(cat), err);
    (void)catalog_close(cat);
    if (r == 0) {
        c->catalog = true;
        c->limits = (struct names_snap){.labels = c->labelset.n + 1,
                                        .svc = c->svc.n + 1,
                                        .ptype = c->ptype.n + 1,
                                        .series = c->series.n + 1};
    }
    return r;
}

static int check_catalog(struct check *c, const struct file_list *files, struct err *err)
{
    struct err why = {};
    int r = load_catalog(c, &why);

    if (r == -ENOENT && files->n == 0)
        return 0; /* nothing was sealed yet */
    return check_result(c, "catalog.db", "", -1, unknown, r, &why, err);
}

/* ---- parts against the catalog ------------------------------------------------------------- */

static bool has_row(const struct check *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_part; i++)
        if (strcmp(c->part[i].name, name) == 0)
            return true;
    for (uint32_t i = 0; i < c->gone.n; i++)
        if (strcmp(c->gone.v[i], name) == 0)
            return true;
    return false;
}

static bool is_listed_part(const struct check *c, const uint8_t uuid[16])
{
    for (uint32_t i = 0; i < c->n_part; i++)
        if (memcmp(c->part[i].uuid, uuid, 16) == 0)
            return true;
    return false;
}

/*
 * A file without a row. Whole, and made by a seal or a merge that did not come to its transaction:
 * what is in it is in the journal, or in the parts that it was made of.
 */
static int check_orphan(struct check *c, const char *name, struct err *err)
{
    struct part_info info = {};
    struct err why = {};
    uint8_t(*input)[16] = NULL;
    uint32_t n_input = 0;
    int r = part_read_info(c->dir, name, NULL, &info, &input, &n_input, &why);
    bool left = r == 0 && info.sealed_lsn > c->state.sealed_lsn;

    for (uint32_t i = 0; r == 0 && i < n_input; i++)
        left |= is_listed_part(c, input[i]);
    free(input);
    if (left)
        return 0;
    if (r == 0)
        r = err_set(&why, -EBADMSG, "%s: the catalog does not have it", name);
    return check_result(c, name, "", -1, info.data, r, &why, err);
}

/* With a catalog a file has a row; without one files speak for themselves. */
static int check_file(struct check *c, const char *name, struct err *err)
{
    struct part_info info;
    struct err why = {};
    int r;

    if (c->catalog)
        return has_row(c, name) ? 0 : check_orphan(c, name, err);
    r = part_read_info(c->dir, name, NULL, &info, NULL, NULL, &why);
    if (r == -ENOENT && c->out.beside)
        return 0; /* replaced meanwhile */
    if (r == 0)
        return add_part(c, &info, err);
    return check_result(c, name, "meta", -1, unknown, r, &why, err);
}

static int by_epoch(const void *a, const void *b)
{
    const struct part_info *x = a, *y = b;

    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* ---- dictionaries -------------------------------------------------------------------------- */

/* The dictionary of an epoch into c->dict; damage is reported, and what is left is used. */
static int load_dict(struct check *c, uint32_t epoch, struct err *err)
{
    char name[DICTFILE_NAME];
    struct err why = {};
    int r;

    epoch_unref(c->dict);
    c->dict = epoch_new(epoch, 0, 1u << 22);
    if (!c->dict)
        return no_memory(err);
    dictfile_name(name, epoch);
    r = dictfile_load(c->dir, NULL, DICTFILE_READ, c->dict, NULL, &why);
    if (r == 0)
        return 0;
    epoch_unref(c->dict); /* what it would say of blocks is not theirs */
    c->dict = NULL;
    return check_result(c, name, "chunk", -1, unknown, r == STORE_PARTIAL ? -EBADMSG : r, &why,
                        err);
}

static int check_dict_pages(struct check *c, const struct catalog_epoch *e, struct err *err)
{
    const uint64_t dict_id = e->id == c->current ? c->state.dict_id : e->dict_id;
    char name[DICTFILE_NAME];
    struct err why = {};
    struct db db = {};
    int r;

    dictfile_name(name, e->id);
    r = db_open_read(c->dir, name, &dict_kind, DB_COPY_OF_LIVE, 0, NULL, &db, &why);
    if (r == 0 && dict_id != 0 && dict_id != db.seed)
        r = err_set(&why, -EBADMSG, "%s: is another file than the catalog says", name);
    if (r == 0 && c->conf->depth >= STORE_CHECK_DEEP)
        r = check_integrity(&db, &why);
    db_close(&db);
    return check_result(c, name, "", -1, unknown, r, &why, err);
}

/* Beside a server the current one is being written: parts are checked without. */
static int check_dicts(struct check *c, struct err *err)
{
    for (uint32_t i = 0; i < c->n_epoch; i++) {
        struct stat st;
        char path[4096], name[DICTFILE_NAME];

        dictfile_name(name, c->epoch[i].id);
        (void)snprintf(path, sizeof path, "%s/%s", c->dir, name);
        TRY(check_dict_pages(c, &c->epoch[i], err));
        if (stat(path, &st) == 0)
            check_progress(c, (uint64_t)st.st_size);
    }
    return 0;
}

static bool is_listed(const struct check *c, uint32_t epoch)
{
    for (uint32_t i = 0; i < c->n_epoch; i++)
        if (c->epoch[i].id == epoch)
            return true;
    return false;
}

static int check_parts(struct check *c, struct err *err)
{
    uint32_t epoch = 0;
    const bool dicts = c->catalog && c->conf->depth >= STORE_CHECK_FULL;

    if (c->n_part > 1)
        qsort(c->part, c->n_part, sizeof *c->part, by_epoch);
    for (uint32_t i = 0; i < c->n_part; i++) {
        const struct part_info *p = &c->part[i];
        struct err why = {};

        if (dicts && p->epoch != epoch) {
            epoch = p->epoch;
            TRY(load_dict(c, epoch, err));
        }
        if (c->catalog && !is_listed(c, p->epoch)) {
            (void)err_set(&why, -EBADMSG, "%s: the catalog does not have its epoch", p->name);
            TRY(check_note(c, p->name, "", -1, p->data, &why, err));
        }
        TRY(check_part(c, p, err));
    }
    /* epochs without a part: the newest one before its first seal */
    for (uint32_t i = 0; dicts && i < c->n_epoch; i++) {
        bool used = false;

        for (uint32_t k = 0; k < c->n_part; k++)
            used |= c->part[k].epoch == c->epoch[i].id;
        if (!used)
            TRY(load_dict(c, c->epoch[i].id, err));
    }
    return 0;
}

/* ---- all of it ----------------------------------------------------------------------------- */

/* LOCK, if there is one: a copy has none. *ret_fd -1: nobody has it, or it is not there. */
static int take_lock(struct check *c, int *ret_fd, struct err *err)
{
    char path[4096];

    (void)snprintf(path, sizeof path, "%s/LOCK", c->dir);
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*ret_fd < 0)
        return errno == ENOENT ? 0 : err_set(err, -errno, "%s: %m", path);
    if (flock(*ret_fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno != EWOULDBLOCK)
        return err_set(err, -errno, "%s: %m", path);
    c->out.beside = true;
    return 0;
}

static int look_for_store(const struct check *c, struct err *err)
{
    static const char *const any[] = {"LOCK", "catalog.db", "journal", "shard"};

    for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
        char path[4096];

        (void)snprintf(path, sizeof path, "%s/%s", c->dir, any[i]);
        if (access(path, F_OK) == 0)
            return 0;
    }
    return err_set(err, -ENOENT, "%s: there is no store", c->dir);
}

static int check(struct check *c, struct err *err)
{
    struct file_list files = {};
    int r;

    c->coder = block_coder_new();
    if (!c->coder)
        return no_memory(err);
    TRY(part_files(c->dir, &files, err));
    r = c->out.beside ? 0 : check_catalog(c, &files, err);
    for (uint32_t i = 0; r == 0 && i < files.n; i++)
        r = check_file(c, files.v[i], err);
    free(files.v);
    if (r == 0)
        r = check_dicts(c, err);
    if (r == 0)
        r = check_parts(c, err);
    return r == 0 && !c->out.beside ? check_journals(c, err) : r;
}

int store_check(const struct store_check_conf *conf, struct store_checked *ret, struct err *err)
{
    struct check c = {.conf = conf, .dir = conf->dir};
    int lock = -1, r;

    map_init(&c.svc, 0);
    map_init(&c.ptype, 0);
    map_init(&c.labelset, 0);
    map_init(&c.series, 0);
    r = look_for_store(&c, err);
    if (r == 0)
        r = take_lock(&c, &lock, err);
    if (r == 0)
        r = check(&c, err);
    if (lock >= 0)
        (void)close(lock);
    epoch_unref(c.dict);
    (void)block_coder_free(c.coder);
    map_deinit(&c.svc);
    map_deinit(&c.ptype);
    map_deinit(&c.labelset);
    map_deinit(&c.series);
    free(c.part);
    free(c.gone.v);
    free(c.epoch);
    if (r != 0)
        return r;
    *ret = c.out;
    return c.out.findings ? STORE_PARTIAL : 0;
}
