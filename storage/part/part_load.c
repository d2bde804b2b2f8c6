// SPDX-License-Identifier: Apache-2.0
/* The metadata of a part: meta, and the rows of block and hsum without their blobs. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "storage/part/part_reader_private.h"

#define BLOCKS_MAX (1u << 24)

void block_columns(uint32_t id, const struct block_meta *m, int64_t ret[static BLOCK_COLUMNS])
{
    const int64_t v[BLOCK_COLUMNS] = {
        id,      m->type, m->svc,  m->sub,  m->t0,   m->t1, m->n, (int64_t)m->count,
        m->smin, m->smax, m->vmin, m->vmax, m->flags};

    memcpy(ret, v, sizeof v);
}

void block_total(unit_i128 total, uint8_t ret[static 16])
{
    __extension__ unsigned __int128 v = (unsigned __int128)total;

    for (int i = 0; i < 16; i++)
        ret[i] = (uint8_t)(v >> 8 * i);
}

static unit_i128 total_of(const char *p)
{
    __extension__ unsigned __int128 v = 0;

    for (int i = 15; i >= 0; i--)
        v = v << 8 | (uint8_t)p[i];
    return (unit_i128)v;
}

static bool all_u32(const int64_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v[i] < 0 || v[i] > UINT32_MAX)
            return false;
    return true;
}

int block_take(const struct db *db, sqlite3_stmt *st, struct part_block *ret, struct err *err)
{
    struct str total;
    int64_t v[BLOCK_COLUMNS];

    TRY(db_take(db, DB_BLOCK, st, v, BLOCK_COLUMNS, &total, 1, err));
    if (!all_u32(v, 4) || v[6] < 1 || v[6] > BLOCK_ROWS || !all_u32(v + 8, 2) ||
        !all_u32(v + 12, 1) || total.n != 16 || v[4] > v[5] || v[8] > v[9])
        return db_damaged(db, err, "block %" PRId64 ": impossible", v[0]);
    *ret = (struct part_block){.id = (uint32_t)v[0],
                               .m = {.type = (ptype_id)v[1],
                                     .svc = (uint32_t)v[2],
                                     .sub = (uint32_t)v[3],
                                     .t0 = v[4],
                                     .t1 = v[5],
                                     .n = (uint32_t)v[6],
                                     .count = (uint64_t)v[7],
                                     .smin = (uint32_t)v[8],
                                     .smax = (uint32_t)v[9],
                                     .vmin = v[10],
                                     .vmax = v[11],
                                     .flags = (uint32_t)v[12],
                                     .total = total_of(total.p)}};
    return 0;
}

struct loading {
    struct part *p;
    const struct db *db;
    struct names_snap limits;
    struct part_fold fold;
    uint64_t rows;
};

static bool known(const struct loading *l, const struct block_meta *m)
{
    bool type = m->type < PTYPE_IMPORTED_FIRST
                    ? ptype_builtin(m->type) != NULL
                    : m->type - PTYPE_IMPORTED_FIRST + 1 < l->limits.ptype;

    return type && m->svc < l->limits.svc && m->smax < l->limits.series;
}

static int cmp_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_block(const void *a, const void *b)
{
    const struct block_meta *x = &((const struct part_block *)a)->m,
                            *y = &((const struct part_block *)b)->m;
    int r = cmp_u64(x->type, y->type);

    r = r ? r : cmp_u64(x->svc, y->svc);
    r = r ? r : cmp_u64(x->sub, y->sub);
    return r ? r : (x->t0 > y->t0) - (x->t0 < y->t0);
}

static int load_blocks(struct loading *l, uint32_t n, struct err *err)
{
    sqlite3_stmt *st = NULL;
    struct part_block *v = mem_fail_now() ? NULL : calloc(n ? n : 1, sizeof *v);
    uint32_t i = 0;
    int r = 0;

    if (!v)
        return err_set(err, -ENOMEM, "%s: memory is short", l->p->info.name);
    r = db_prepare(l->db, BLOCK_SELECT, &st, err);
    while (r == 0 && (r = db_step(l->db, st, err)) == 1) {
        r = i < n ? block_take(l->db, st, &v[i], err)
                  : db_damaged(l->db, err, "more blocks than %" PRIu32, n);
        if (r == 0 && !known(l, &v[i].m))
            r = db_damaged(l->db, err, "block %" PRIu32 ": no such type, service or series",
                           v[i].id);
        if (r == 0) {
            l->rows += v[i++].m.n;
            part_fold_add(&l->fold, sqlite3_column_int64(st, BLOCK_COLUMNS + 1));
        }
    }
    (void)sqlite3_finalize(st);
    if (r == 0 && i != n)
        r = db_damaged(l->db, err, "%" PRIu32 " blocks of %" PRIu32, i, n);
    if (r != 0) {
        free(v);
        return r;
    }
    qsort(v, n, sizeof *v, by_block);
    l->p->block = v;
    l->p->n_block = n;
    return 0;
}

static int load_hsums(struct loading *l, uint32_t n, struct err *err)
{
    sqlite3_stmt *st = NULL;
    struct part_hsum *v = mem_fail_now() ? NULL : calloc(n ? n : 1, sizeof *v);
    uint32_t i = 0;
    int r;

    if (!v)
        return err_set(err, -ENOMEM, "%s: memory is short", l->p->info.name);
    r = db_prepare(l->db,
                   "SELECT type, svc, sub, span, t0, n, sum FROM hsum ORDER BY type, svc, sub, "
                   "span, t0",
                   &st, err);
    while (r == 0 && (r = db_step(l->db, st, err)) == 1) {
        int64_t x[6];

        for (int k = 0; k < 6; k++)
            x[k] = sqlite3_column_int64(st, k);
        r = i < n && all_u32(x, 4) && all_u32(x + 5, 1)
                ? 0
                : db_damaged(l->db, err, "hsum %" PRIu32 ": impossible", i);
        if (r == 0) {
            v[i++] = (struct part_hsum){.type = (ptype_id)x[0],
                                        .svc = (uint32_t)x[1],
                                        .sub = (uint32_t)x[2],
                                        .span = (uint32_t)x[3],
                                        .t0 = {x[4]},
                                        .n = (uint32_t)x[5]};
            part_fold_add(&l->fold, sqlite3_column_int64(st, 6));
        }
    }
    (void)sqlite3_finalize(st);
    if (r == 0 && i != n)
        r = db_damaged(l->db, err, "%" PRIu32 " hsums of %" PRIu32, i, n);
    if (r != 0) {
        free(v);
        return r;
    }
    l->p->hsum = v;
    l->p->n_hsum = n;
    return 0;
}

static int meta_u64(const struct db *db, const char *k, uint64_t *ret, struct err *err)
{
    int64_t v = 0;
    int has;

    TRY_OUTCOME(has, db_meta_get(db, k, &v, err));
    if (!has)
        return db_damaged(db, err, "meta has no %s", k);
    *ret = (uint64_t)v;
    return 0;
}

int part_fold_check(const struct db *db, enum part_fold_of of, const struct part_fold *is,
                    struct err *err)
{
    uint64_t want = 0;

    TRY(meta_u64(db, part_fold_key[of], &want, err));
    return want == is->sum
               ? 0
               : db_damaged(db, err, "rows are missing: %s is another", part_fold_key[of]);
}

int part_read_meta(const struct db *db, struct part_info *ret, uint64_t *ret_hsums, struct err *err)
{
    uint64_t tier = 0, epoch = 0, generation = 0, hsums = 0, t[4] = {};

    TRY(meta_u64(db, "tier", &tier, err));
    TRY(meta_u64(db, "epoch", &epoch, err));
    TRY(meta_u64(db, "generation", &generation, err));
    TRY(meta_u64(db, "t0", &t[0], err));
    TRY(meta_u64(db, "t1", &t[1], err));
    TRY(meta_u64(db, "d0", &t[2], err));
    TRY(meta_u64(db, "d1", &t[3], err));
    TRY(meta_u64(db, "sealed_lsn", &ret->sealed_lsn, err));
    TRY(meta_u64(db, "rows", &ret->rows, err));
    TRY(meta_u64(db, "blocks", &ret->blocks, err));
    TRY(meta_u64(db, "hsums", &hsums, err));
    if ((tier != STORE_RAW && tier != STORE_MINUTE) || epoch > UINT32_MAX ||
        generation > UINT32_MAX || ret->blocks > BLOCKS_MAX || hsums > BLOCKS_MAX)
        return db_damaged(db, err, "meta: impossible");
    ret->tier = (enum store_tier)tier;
    ret->epoch = (uint32_t)epoch;
    ret->generation = (uint32_t)generation;
    ret->period = (struct interval){{(int64_t)t[0]}, {(int64_t)t[1]}};
    ret->data = (struct interval){{(int64_t)t[2]}, {(int64_t)t[3]}};
    memcpy(ret->uuid, db->uuid, sizeof ret->uuid);
    *ret_hsums = hsums;
    return 0;
}

static int load(struct part *p, const struct db *db, struct err *err)
{
    const struct part_info *want = &p->info;
    struct part_info is = {};
    struct loading l = {.p = p, .db = db};
    uint64_t hsums = 0;

    mutex_lock(&p->parts->mu);
    l.limits = p->parts->limits;
    mutex_unlock(&p->parts->mu);
    TRY(part_read_meta(db, &is, &hsums, err));
    if (is.tier != want->tier || is.epoch != want->epoch || is.generation != want->generation ||
        is.period.t0.v != want->period.t0.v || is.period.t1.v != want->period.t1.v ||
        is.data.t0.v != want->data.t0.v || is.data.t1.v != want->data.t1.v ||
        is.rows != want->rows || is.blocks != want->blocks || is.sealed_lsn != want->sealed_lsn)
        return db_damaged(db, err, "is another part than the catalog says");
    TRY(load_blocks(&l, (uint32_t)is.blocks, err));
    TRY(load_hsums(&l, (uint32_t)hsums, err));
    if (l.rows != is.rows)
        return db_damaged(db, err, "blocks are not those that meta says");
    return part_fold_check(db, FOLD_META, &l.fold, err);
}

int part_load(struct part *p, struct err *err)
{
    struct part_handle *h = NULL;
    struct err why = {};
    int r = 0;

    if (atomic_load_explicit(&p->loaded, memory_order_acquire) == 1)
        return 0;
    mutex_lock(&p->mu);
    if (atomic_load(&p->loaded) == 0) {
        r = part_enter(p, &h, &why);
        if (r == 0)
            r = load(p, &h->db, &why);
        if (r != 0) {
            free(p->block);
            free(p->hsum);
            p->block = NULL;
            p->hsum = NULL;
            p->n_block = p->n_hsum = 0;
        }
        if (r == -EBADMSG || r == -EPROTO) {
            p->err = why;
            p->err.code = r;
            atomic_fetch_add(&p->bad, 1);
        }
        if (h)
            part_leave(h);
        if (r == 0 || r == -EBADMSG || r == -EPROTO)
            atomic_store_explicit(&p->loaded, r == 0 ? 1 : 2, memory_order_release);
    } else if (atomic_load(&p->loaded) == 2) {
        why = p->err;
        r = why.code;
    }
    mutex_unlock(&p->mu);
    return r == 0 ? 0 : err_set(err, r, "%s", why.msg);
}

/* First block not before (type, svc, sub), with `all` above the last of them. */
static uint32_t lower(const struct part *p, uint64_t type, uint64_t svc, uint64_t sub)
{
    uint32_t lo = 0, hi = p->n_block;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct block_meta *m = &p->block[mid].m;
        int r = cmp_u64(m->type, type);

        r = r ? r : cmp_u64(m->svc, svc);
        r = r ? r : cmp_u64(m->sub, sub);
        if (r < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint32_t part_blocks(const struct part *p, ptype_id type, uint32_t svc, uint32_t sub,
                     const struct part_block **ret)
{
    uint32_t from = 0, to = p->n_block;

    if (type != PTYPE_NONE && svc == UINT32_MAX) {
        from = lower(p, type, 0, 0);
        to = lower(p, (uint64_t)type + 1, 0, 0);
    } else if (type != PTYPE_NONE) {
        from = lower(p, type, svc, sub);
        to = lower(p, type, svc, (uint64_t)sub + 1);
    }
    *ret = p->block + from;
    return to - from;
}
