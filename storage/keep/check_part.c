// SPDX-License-Identifier: Apache-2.0
/*
 * One part: every sum, every block decoded and its numbers computed again, sums over the period
 * against those of the blocks, every id against what it points to.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "storage/keep/check_private.h"
#include "storage/part/part_reader_private.h"

#define CHECK_MEM ((size_t)1 << 30)

struct part_check {
    struct check *c;
    const struct part_info *info;
    struct part *p;
    struct part_handle *h;
    uint32_t n_thread, n_cpu; /* of its local tables; UINT32_MAX: those cannot be read */
    struct block *block;      /* working memory */
    struct sum_set set;
    struct buf data;
    struct arena tmp;
};

static struct interval block_time(const struct block_meta *m)
{
    return (struct interval){{m->t0}, {m->t1}};
}

static int damaged(const struct part_check *pc, struct err *err, const char *what)
{
    return err_set(err, -EBADMSG, "%s: %s", pc->info->name, what);
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Series of each key are those that the block says, threads and cpus those of the part. */
static int check_keys(struct part_check *pc, const struct part_block *b,
                      const struct slice_rows *rows, struct err *err)
{
    const struct check *c = pc->c;

    for (uint32_t i = 0; i < rows->n_key; i++) {
        uint32_t series = rows->key_series[i];

        if (series < b->m.smin || series > b->m.smax)
            return damaged(pc, err, "a series outside the bounds of its block");
        if (c->catalog && series >= c->limits.series)
            return damaged(pc, err, "a series that the catalog does not know");
        if (rows->key_thread[i] >= pc->n_thread)
            return damaged(pc, err, "a thread that the part does not know");
    }
    for (uint32_t i = 0; rows->cpu && i < rows->n; i++)
        if (rows->cpu[i] >= pc->n_cpu)
            return damaged(pc, err, "a cpu beyond those that the part says");
    return 0;
}

static int check_slices(struct part_check *pc, const struct part_block *b, struct str cols,
                        struct err *err)
{
    TRY(block_open(cols, pc->block, err));
    for (uint32_t k = 0; k < pc->block->n_slice; k++) {
        struct slice_rows rows;

        TRY(slice_read(pc->c->coder, pc->block, NULL, k, SLICE_KEY | SLICE_CPU, &rows, err));
        TRY(check_keys(pc, b, &rows, err));
    }
    return 0;
}

/* How many nodes the block's trie has; UINT32_MAX: the dictionary is not at hand. */
static int nodes_of(struct part_check *pc, const struct block_meta *m, uint32_t *ret,
                    struct err *err)
{
    const struct dict_trie *t;

    *ret = UINT32_MAX;
    if (!pc->c->dict)
        return 0;
    t = epoch_find(pc->c->dict, m->svc, m->sub);
    if (!t)
        return damaged(pc, err, "stacks that the dictionary does not have");
    *ret = atomic_load_explicit(&t->n, memory_order_acquire);
    return 0;
}

static int check_block(struct part_check *pc, const struct part_block *b, struct err *err)
{
    struct str summary, cols;
    uint32_t n_node;

    TRY(nodes_of(pc, &b->m, &n_node, err));
    TRY(part_summary(pc->h, b->id, &summary, err));
    TRY(part_cols(pc->h, b->id, &cols, err)); /* another statement: both stay */
    arena_reset(&pc->tmp);
    TRY(block_check(pc->c->coder, &b->m, summary, cols, n_node, &pc->tmp, err));
    if (b->m.t0 < pc->info->data.t0.v || b->m.t1 > pc->info->data.t1.v)
        return damaged(pc, err, "a block outside the bounds of its part");
    return check_slices(pc, b, cols, err);
}

static int check_blocks(struct part_check *pc, struct err *err)
{
    struct check *c = pc->c;

    for (uint32_t i = 0; i < pc->p->n_block; i++) {
        const struct part_block *b = &pc->p->block[i];
        struct err why = {};
        int r = check_block(pc, b, &why);

        TRY(check_result(c, pc->info->name, "block", b->id, block_time(&b->m), r, &why, err));
        c->out.blocks++;
        c->out.rows += b->m.n;
    }
    return 0;
}

/* ---- sums over a period -------------------------------------------------------------------- */

static bool is_of(const struct part_block *b, const struct part_hsum *s)
{
    int64_t t1 = s->t0.v + (int64_t)s->span * NS_PER_S;

    return b->m.type == s->type && b->m.svc == s->svc && b->m.sub == s->sub && b->m.t0 >= s->t0.v &&
           b->m.t0 < t1;
}

/* Made again from the blocks it has the same bytes. */
static int check_hsum(struct part_check *pc, const struct part_hsum *s, struct err *err)
{
    struct str data;
    uint32_t flags, n = 0;

    sum_set_reset(&pc->set);
    for (uint32_t i = 0; i < pc->p->n_block; i++) {
        struct summary sum;

        if (!is_of(&pc->p->block[i], s))
            continue;
        TRY(part_summary(pc->h, pc->p->block[i].id, &data, err));
        TRY(summary_open(pc->c->coder, data, UINT32_MAX, &sum, err));
        TRY(sum_set_add(&pc->set, &sum, err));
        n++;
    }
    if (n == 0)
        return damaged(pc, err, "a sum of no block");
    TRY(sum_set_merge(&pc->set, err));
    buf_reset(&pc->data);
    TRY(sum_set_encode(pc->c->coder, &pc->set, &pc->data, &flags, err));
    TRY(part_hsum(pc->h, s, &data, err));
    return pc->set.n == s->n && str_eq(data, buf_view(&pc->data))
               ? 0
               : damaged(pc, err, "is not the sum of its blocks");
}

static int check_hsums(struct part_check *pc, struct err *err)
{
    for (uint32_t i = 0; i < pc->p->n_hsum; i++) {
        const struct part_hsum *s = &pc->p->hsum[i];
        const struct interval t = {s->t0, {s->t0.v + (int64_t)s->span * NS_PER_S}};
        struct err why = {};
        int r = check_hsum(pc, s, &why);

        TRY(check_result(pc->c, pc->info->name, "hsum", i, t, r, &why, err));
    }
    return 0;
}

/* All rows of summary and cols, with or without a block of theirs. */
static int check_fold(struct part_check *pc, struct err *err)
{
    static const char *const sql[] = {"SELECT sum FROM summary", "SELECT sum FROM cols"};
    const struct db *db = &pc->h->db;
    struct part_fold fold = {};
    int r = 0;

    for (size_t i = 0; r == 0 && i < 2; i++) {
        sqlite3_stmt *st = NULL;

        r = db_prepare(db, sql[i], &st, err);
        while (r == 0 && (r = db_step(db, st, err)) == 1) {
            part_fold_add(&fold, sqlite3_column_int64(st, 0));
            r = 0;
        }
        (void)sqlite3_finalize(st);
    }
    return r == 0 ? part_fold_check(db, FOLD_BLOBS, &fold, err) : r;
}

/* ---- names --------------------------------------------------------------------------------- */

static int same(const struct map *m, uint32_t id, uint64_t hash, const char *what, struct err *err)
{
    uint64_t v;

    if (!map_get(m, id, &v))
        return err_set(err, -EBADMSG, "%s %" PRIu32 ": not in the catalog", what, id);
    return v == hash ? 0
                     : err_set(err, -EBADMSG, "%s %" PRIu32 ": another in the catalog", what, id);
}

static int on_svc(void *ctx, uint32_t id, struct str name, struct err *err)
{
    return same(&((struct check *)ctx)->svc, id, hash_str(name), "service", err);
}

static int on_ptype(void *ctx, ptype_id id, struct str name, struct str unit, enum ptype_kind kind,
                    struct err *err)
{
    const struct ptype *b = ptype_builtin(id);

    if (id >= PTYPE_IMPORTED_FIRST)
        return same(&((struct check *)ctx)->ptype, id, name_hash_ptype(name, unit, kind), "type",
                    err);
    return b && str_eq(str_c(b->name), name) && b->kind == kind
               ? 0
               : err_set(err, -EBADMSG, "type %" PRIu32 ": another here", id);
}

static int on_labelset(void *ctx, uint32_t id, uint32_t n, const struct store_label *v,
                       struct err *err)
{
    return same(&((struct check *)ctx)->labelset, id, name_hash_labels(n, v), "label set", err);
}

static int on_series(void *ctx, uint32_t id, ptype_id type, uint32_t svc, uint32_t labelset,
                     struct err *err)
{
    return same(&((struct check *)ctx)->series, id, name_hash_series(type, svc, labelset), "series",
                err);
}

static int check_names(struct part_check *pc, struct err *err)
{
    const struct part_names all = {.ctx = pc->c,
                                   .svc = on_svc,
                                   .ptype = on_ptype,
                                   .labelset = on_labelset,
                                   .series = on_series};
    const struct part_names none = {};

    return part_read_names(pc->c->dir, pc->info->name, NULL, pc->c->catalog ? &all : &none, err);
}

/* ---- a part -------------------------------------------------------------------------------- */

static int check_beside(struct part_check *pc, struct err *err)
{
    const struct local *l;
    struct local_snap snap;
    struct interval d = pc->info->data;

    pc->n_thread = pc->n_cpu = UINT32_MAX;
    TRY(part_local(pc->p, &l, &snap, err));
    pc->n_thread = snap.thread;
    pc->n_cpu = snap.cpu;
    for (uint32_t i = 0; i < snap.cover; i++) {
        const struct local_cover *c = VEC(&l->cover, struct local_cover, i);

        if (c->t.t0.v < d.t0.v || c->t.t1.v > d.t1.v)
            return damaged(pc, err, "coverage outside the bounds of its part");
    }
    return 0;
}

static int check_hash(struct part_check *pc, struct err *err)
{
    uint8_t hash[16];
    uint64_t bytes;

    TRY(part_hash_file(pc->c->dir, pc->info->name, hash, &bytes, err));
    if (memcmp(hash, pc->info->hash, sizeof hash) != 0)
        return damaged(pc, err, "its hash is not that of the catalog");
    return check_integrity(&pc->h->db, err);
}

/* What a full look adds to the metadata. */
static int check_full(struct part_check *pc, struct err *err)
{
    const struct {
        const char *table;
        int (*run)(struct part_check *pc, struct err *err);
    } all[] = {{"local", check_beside}, {"local", check_names}, {"cols", check_fold}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct err why = {};
        int r = all[i].run(pc, &why);

        TRY(check_result(pc->c, pc->info->name, all[i].table, -1, pc->info->data, r, &why, err));
    }
    TRY(check_blocks(pc, err));
    TRY(check_hsums(pc, err));
    if (pc->c->conf->depth >= STORE_CHECK_DEEP) {
        struct err why = {};
        int r = check_hash(pc, &why);

        TRY(check_result(pc->c, pc->info->name, "", -1, pc->info->data, r, &why, err));
    }
    return 0;
}

static int check_size(struct part_check *pc, struct err *err)
{
    char path[4096];
    struct stat st;

    (void)snprintf(path, sizeof path, "%s/%s", pc->c->dir, pc->info->name);
    if (stat(path, &st) != 0)
        return errno == ENOENT ? damaged(pc, err, "is gone")
                               : err_set(err, -errno, "%s: %m", pc->info->name);
    return (uint64_t)st.st_size == pc->info->bytes ? 0
                                                   : damaged(pc, err,
                                                             "has another size than the "
                                                             "catalog says");
}

/* A server merges: the file was replaced by another, which is looked at or was too new for us. */
static bool was_replaced(const struct part_check *pc)
{
    char path[4096];

    (void)snprintf(path, sizeof path, "%s/%s", pc->c->dir, pc->info->name);
    return pc->c->out.beside && access(path, F_OK) != 0 && errno == ENOENT;
}

static int check_open(struct part_check *pc, struct err *err)
{
    struct err why = {};
    int r = check_size(pc, &why);

    if (r == 0)
        r = part_load(pc->p, &why);
    if (r == 0)
        r = part_enter(pc->p, &pc->h, &why);
    if (r != 0 && was_replaced(pc))
        return 0;
    if (r != 0) /* what is not open has nothing else to check */
        return check_result(pc->c, pc->info->name, "meta", -1, pc->info->data, r, &why, err);
    return pc->c->conf->depth >= STORE_CHECK_FULL ? check_full(pc, err) : 0;
}

int check_part(struct check *c, const struct part_info *info, struct err *err)
{
    struct parts *ps = parts_new(c->dir, NULL, 2, true);
    struct part_check pc = {.c = c, .info = info};
    int r = -ENOMEM;

    pc.p = ps ? part_new(ps, info) : NULL;
    pc.block = malloc(sizeof *pc.block);
    arena_init(&pc.tmp, CHECK_MEM);
    buf_init(&pc.data, (size_t)64 << 20);
    sum_set_init(&pc.set);
    if (pc.p && pc.block) {
        if (c->catalog)
            parts_know(ps, &c->limits);
        r = check_open(&pc, err);
    }
    if (pc.h)
        part_leave(pc.h);
    (void)part_unref(pc.p);
    (void)parts_free(ps);
    free(pc.block);
    sum_set_deinit(&pc.set);
    buf_deinit(&pc.data);
    arena_deinit(&pc.tmp);
    c->out.parts++;
    check_progress(c, info->bytes);
    return r == -ENOMEM ? err_set(err, r, "%s: memory is short", info->name) : r;
}
