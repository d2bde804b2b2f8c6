// SPDX-License-Identifier: Apache-2.0
/*
 * Writing a part. One transaction without a journal in build/, whose commit ends with an fsync of
 * the file; then the rename, then both directories. A part file with a name in shard/ is therefore
 * whole; whether it counts is the catalog's to say.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"
#include "storage/part/part_writer_private.h"

#define BLOB_MAX ((size_t)64 << 20)

static const char *const schema[] = {
    "CREATE TABLE block(id INTEGER PRIMARY KEY, type INTEGER, svc INTEGER, sub INTEGER, "
    "t0 INTEGER, t1 INTEGER, n INTEGER, count INTEGER, smin INTEGER, smax INTEGER, vmin INTEGER, "
    "vmax INTEGER, flags INTEGER, sum INTEGER, total BLOB) STRICT",
    "CREATE TABLE summary(id INTEGER PRIMARY KEY, sum INTEGER, data BLOB) STRICT",
    "CREATE TABLE cols(id INTEGER PRIMARY KEY, sum INTEGER, data BLOB) STRICT",
    "CREATE TABLE hsum(type INTEGER, svc INTEGER, sub INTEGER, span INTEGER, t0 INTEGER, "
    "n INTEGER, sum INTEGER, data BLOB, PRIMARY KEY(type, svc, sub, span, t0)) STRICT, WITHOUT "
    "ROWID",
    "CREATE TABLE cover(id INTEGER PRIMARY KEY, type INTEGER, labelset INTEGER, target INTEGER, "
    "n INTEGER, sum INTEGER, data BLOB) STRICT",
    "CREATE TABLE metric(id INTEGER PRIMARY KEY, series INTEGER, t0 INTEGER, t1 INTEGER, "
    "n INTEGER, sum INTEGER, data BLOB) STRICT",
    "CREATE TABLE step(id INTEGER PRIMARY KEY, name INTEGER, target INTEGER, t0 INTEGER, "
    "t1 INTEGER, n INTEGER, sum INTEGER, data BLOB) STRICT",
    "CREATE TABLE event(id INTEGER PRIMARY KEY, t INTEGER, kind INTEGER, target INTEGER, "
    "text INTEGER, sum INTEGER) STRICT",
    "CREATE TABLE local(kind INTEGER, first INTEGER, n INTEGER, sum INTEGER, data BLOB, "
    "PRIMARY KEY(kind, first)) STRICT, WITHOUT ROWID",
};

const char *const part_fold_key[PART_FOLDS] = {"fold_meta", "fold_local", "fold_names",
                                               "fold_blobs"};

const struct db_kind part_kind = {
    .kind = "part", .page = PART_PAGE, .n_table = sizeof schema / sizeof *schema, .schema = schema};

void part_name(char ret[static PART_NAME], enum store_tier tier, real_ns t0, uint32_t epoch,
               uint32_t generation)
{
    char text[40], at[16];

    /* 2026-11-29T13:00:00Z: without the hyphens, up to the hour or the day */
    (void)real_ns_format(t0, text);
    (void)snprintf(at, sizeof at, "%.4s%.2s%.*s", text, text + 5, tier == STORE_RAW ? 5 : 2,
                   text + 8);
    (void)snprintf(ret, PART_NAME, "shard/%s/%s-e%" PRIu32 "-g%" PRIu32 ".db",
                   tier == STORE_RAW ? "raw" : "minute", at, epoch, generation);
}

/* ---- beginning and ending ------------------------------------------------------------------ */

static int make_dir(const char *dir, const char *name, struct err *err)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);

    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, -ENAMETOOLONG, "%s: too long", name);
    if (mkdir(path, 0700) == 0)
        return db_sync_dir(dir, name, err);
    return errno == EEXIST ? 0 : err_set(err, -errno, "%s: %m", name);
}

static int prepare(struct part_writer *w, struct err *err)
{
    const struct {
        sqlite3_stmt **st;
        const char *sql;
    } all[] = {
        {&w->block,
         "INSERT INTO block(id, type, svc, sub, t0, t1, n, count, smin, smax, vmin, vmax, flags, "
         "total, sum) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"},
        {&w->summary, "INSERT INTO summary(id, data, sum) VALUES(?1, ?2, ?3)"},
        {&w->cols, "INSERT INTO cols(id, data, sum) VALUES(?1, ?2, ?3)"},
        {&w->hsum, "INSERT INTO hsum(type, svc, sub, span, t0, n, data, sum) "
                   "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"},
        {&w->local_st, "INSERT INTO local(kind, first, n, data, sum) VALUES(?1, ?2, ?3, ?4, ?5)"},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        TRY(db_prepare(&w->db, all[i].sql, all[i].st, err));
    return 0;
}

static int begin(struct part_writer *w, struct err *err)
{
    const struct part_conf *c = &w->conf;
    struct part_info *info = &w->info;

    *info = (struct part_info){.tier = c->tier,
                               .state = PART_SEALED,
                               .epoch = c->epoch,
                               .generation = c->generation,
                               .period = c->period,
                               .data = {{INT64_MAX}, {INT64_MIN}},
                               .sealed_lsn = c->sealed_lsn};
    part_name(info->name, c->tier, c->period.t0, c->epoch, c->generation);
    (void)snprintf(w->build, sizeof w->build, "build/%s", strrchr(info->name, '/') + 1);
    pool_init(&w->pool);
    cell_coder_init(&w->cell);
    buf_init(&w->sum_buf, BLOB_MAX);
    buf_init(&w->col_buf, BLOB_MAX);
    buf_init(&w->tmp, BLOB_MAX);
    buf_init(&w->data, BLOB_MAX);
    buf_init(&w->first, BLOB_MAX);
    sum_set_init(&w->set);
    w->coder = block_coder_new();
    if (!w->coder || !local_init(&w->out, &w->pool, 0))
        return part_no_memory(w, err);
    TRY(make_dir(c->dir, "build", err));
    TRY(make_dir(c->dir, "shard", err));
    TRY(make_dir(c->dir, c->tier == STORE_RAW ? "shard/raw" : "shard/minute", err));
    db_remove(c->dir, w->build); /* left by a process that was killed */
    TRY(db_create(c->dir, w->build, &part_kind, DB_BUILT, c->vfs, &w->db, err));
    memcpy(info->uuid, w->db.uuid, sizeof info->uuid);
    return prepare(w, err);
}

int part_create(const struct part_conf *conf, struct part_writer **ret, struct err *err)
{
    struct part_writer *w = mem_fail_now() ? NULL : calloc(1, sizeof *w);
    int r;

    if (!w)
        return err_set(err, -ENOMEM, "part: memory is short");
    w->conf = *conf;
    r = begin(w, err);
    if (r != 0) {
        (void)part_abort(w);
        return r;
    }
    *ret = w;
    return 0;
}

static void close_file(struct part_writer *w)
{
    enum {
        N = 5
    };
    sqlite3_stmt *st[N] = {w->block, w->summary, w->cols, w->hsum, w->local_st};

    for (size_t i = 0; i < N; i++)
        (void)sqlite3_finalize(st[i]);
    w->block = w->summary = w->cols = w->hsum = w->local_st = NULL;
    db_close(&w->db);
}

struct part_writer *part_abort(struct part_writer *w)
{
    if (!w)
        return NULL;
    close_file(w);
    db_remove(w->conf.dir, w->build);
    part_free_maps(w);
    (void)block_coder_free(w->coder);
    cell_coder_deinit(&w->cell);
    buf_deinit(&w->sum_buf);
    buf_deinit(&w->col_buf);
    buf_deinit(&w->tmp);
    buf_deinit(&w->data);
    buf_deinit(&w->first);
    sum_set_deinit(&w->set);
    local_deinit(&w->out);
    pool_deinit(&w->pool);
    free(w->series.v);
    free(w->labels.v);
    free(w->svc.v);
    free(w->ptype.v);
    free(w);
    return NULL;
}

bool part_empty(const struct part_writer *w)
{
    return w->info.data.t0.v > w->info.data.t1.v;
}

/* ---- blocks -------------------------------------------------------------------------------- */

static int add_to_set(struct part_writer *w, const struct buf *summary, struct err *err)
{
    struct summary s;

    TRY(summary_open(w->coder, buf_view(summary), UINT32_MAX, &s, err));
    return sum_set_add(&w->set, &s, err);
}

/* The sum over the whole period, where more than one block has it. */
static int end_group(struct part_writer *w, struct err *err)
{
    const struct block_meta *g = &w->group;
    const struct interval *p = &w->conf.period;
    int64_t v[6] = {g->type, g->svc, g->sub, (p->t1.v - p->t0.v) / NS_PER_S, p->t0.v, 0}, sum;
    uint32_t flags;
    struct str data;

    if (w->group_blocks > 1) {
        TRY(sum_set_merge(&w->set, err));
        buf_reset(&w->data);
        TRY(sum_set_encode(w->coder, &w->set, &w->data, &flags, err));
        if (w->data.failed)
            return part_no_memory(w, err);
        v[5] = w->set.n;
        data = buf_view(&w->data);
        TRY(db_put(&w->db, DB_HSUM, w->hsum, v, 6, &data, 1, &sum, err));
        part_fold_add(&w->fold[FOLD_META], sum);
        w->n_hsum++;
    }
    w->group_blocks = 0;
    sum_set_reset(&w->set);
    return 0;
}

static int add_to_group(struct part_writer *w, const struct block_meta *m, struct err *err)
{
    const struct block_meta *g = &w->group;

    if (w->group_blocks > 0 && (g->type != m->type || g->svc != m->svc || g->sub != m->sub))
        TRY(end_group(w, err));
    if (w->group_blocks == 0) {
        buf_reset(&w->first);
        buf_str(&w->first, buf_view(&w->sum_buf));
        if (w->first.failed)
            return part_no_memory(w, err);
    } else {
        if (w->group_blocks == 1)
            TRY(add_to_set(w, &w->first, err));
        TRY(add_to_set(w, &w->sum_buf, err));
    }
    w->group = *m;
    w->group_blocks++;
    return 0;
}

static int put_block(struct part_writer *w, const struct block_meta *m, struct err *err)
{
    uint32_t id = (uint32_t)w->info.blocks + 1;
    int64_t v[BLOCK_COLUMNS], key = id, sum;
    uint8_t total[16];
    struct str blob = {(const char *)total, sizeof total}, summary = buf_view(&w->sum_buf),
               cols = buf_view(&w->col_buf);

    block_columns(id, m, v);
    block_total(m->total, total);
    TRY(db_put(&w->db, DB_BLOCK, w->block, v, BLOCK_COLUMNS, &blob, 1, &sum, err));
    part_fold_add(&w->fold[FOLD_META], sum);
    TRY(db_put(&w->db, DB_SUMMARY, w->summary, &key, 1, &summary, 1, &sum, err));
    part_fold_add(&w->fold[FOLD_BLOBS], sum);
    TRY(db_put(&w->db, DB_COLS, w->cols, &key, 1, &cols, 1, &sum, err));
    part_fold_add(&w->fold[FOLD_BLOBS], sum);
    return 0;
}

int part_put_block(struct part_writer *w, const struct block_rows *rows, ptype_id type,
                   uint32_t svc, uint32_t sub, struct err *err)
{
    struct block_meta m = {};

    buf_reset(&w->sum_buf);
    buf_reset(&w->col_buf);
    TRY(block_encode(w->coder, rows, w->conf.tier == STORE_RAW ? BLOCK_RAW_MS : BLOCK_MINUTE_MS, &m,
                     &w->sum_buf, &w->col_buf, err));
    m.type = type;
    m.svc = svc;
    m.sub = sub;
    TRY(put_block(w, &m, err));
    TRY(add_to_group(w, &m, err));
    if (!marks_set(&w->ptype, type) || !marks_set(&w->svc, svc))
        return part_no_memory(w, err);
    for (uint32_t i = 0; rows->cpu && i < rows->n; i++)
        (void)local_cpu_of(&w->out, rows->cpu[i]);
    for (uint32_t i = 0; i < rows->n; i++)
        if (!marks_has(&w->series, rows->series[i]) && !marks_set(&w->series, rows->series[i]))
            return part_no_memory(w, err);
    part_widen(w, m.t0, m.t1);
    w->info.rows += m.n;
    w->info.blocks++;
    return 0;
}

/* ---- the end ------------------------------------------------------------------------------- */

static bool type_sums(void *ctx, ptype_id type)
{
    const struct part_writer *w = ctx;
    struct store_type info;

    return names_type_info(w->conf.names, UINT32_MAX, type, &info) && info.kind == KIND_SUM;
}

static int put_meta(const struct part_writer *w, struct err *err)
{
    const struct part_info *i = &w->info;
    const struct {
        const char *k;
        uint64_t v;
    } all[] = {
        {"tier", i->tier},
        {"t0", (uint64_t)i->period.t0.v},
        {"t1", (uint64_t)i->period.t1.v},
        {"d0", (uint64_t)i->data.t0.v},
        {"d1", (uint64_t)i->data.t1.v},
        {"epoch", i->epoch},
        {"generation", i->generation},
        {"sealed_lsn", i->sealed_lsn},
        {"rows", i->rows},
        {"blocks", i->blocks},
        {"hsums", w->n_hsum},
        {"cpus", w->out.cpu},
    };

    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        TRY(db_meta_put(&w->db, all[k].k, (int64_t)all[k].v, err));
    for (int k = 0; k < PART_FOLDS; k++)
        TRY(db_meta_put(&w->db, part_fold_key[k], (int64_t)w->fold[k].sum, err));
    TRY(db_meta_put_blob(&w->db, "inputs",
                         (struct str){(const char *)w->conf.input, 16 * (size_t)w->conf.n_input},
                         err));
    return db_meta_seal(&w->db, err);
}

static int move(struct part_writer *w, struct err *err)
{
    char from[4096], to[4096];
    int n = snprintf(from, sizeof from, "%s/%s", w->conf.dir, w->build);
    int k = snprintf(to, sizeof to, "%s/%s", w->conf.dir, w->info.name);

    if (n < 0 || (size_t)n >= sizeof from || k < 0 || (size_t)k >= sizeof to)
        return err_set(err, -ENAMETOOLONG, "%s: too long", w->conf.dir);
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) != 0)
        return err_set(err, -errno, "%s: rename: %m", w->info.name);
    n = db_sync_dir(w->conf.dir, w->info.name, err);
    if (n == 0)
        n = db_sync_dir(w->conf.dir, w->build, err);
    if (n != 0)
        (void)unlink(to);
    return n;
}

static int finish(struct part_writer *w, struct err *err)
{
    struct local_writer lw = {.db = &w->db,
                              .coder = &w->cell,
                              .tmp = &w->tmp,
                              .data = &w->data,
                              .fold = &w->fold[FOLD_LOCAL],
                              .sums = type_sums,
                              .ctx = w};

    if (part_empty(w))
        w->info.data = (struct interval){w->conf.period.t0, w->conf.period.t0};
    TRY(end_group(w, err));
    TRY(local_write(&lw, &w->out, err));
    lw.fold = &w->fold[FOLD_NAMES];
    TRY(part_put_names(w, &lw, err));
    TRY(put_meta(w, err));
    TRY(db_exec(&w->db, "COMMIT", err));
    close_file(w);
    TRY(part_hash_file(w->conf.dir, w->build, w->info.hash, &w->info.bytes, err));
    return move(w, err);
}

int part_finish(struct part_writer *w, struct part_info *ret, struct err *err)
{
    int r = finish(w, err);

    if (r == 0)
        *ret = w->info;
    (void)part_abort(w);
    return r;
}
