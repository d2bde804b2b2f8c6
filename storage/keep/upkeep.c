// SPDX-License-Identifier: Apache-2.0
/* What a view is made of: its parts, the bytes of each column and kind, the rows of one block. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "storage/dict/dictfile_private.h"
#include "storage/keep/seal_private.h"
#include "storage/part/part_reader_private.h"

/* ---- parts --------------------------------------------------------------------------------- */

static int by_period(const void *a, const void *b)
{
    const struct part_info *x = &(*(struct part *const *)a)->info,
                           *y = &(*(struct part *const *)b)->info;

    if (x->tier != y->tier)
        return x->tier < y->tier ? -1 : 1;
    if (x->period.t0.v != y->period.t0.v)
        return x->period.t0.v < y->period.t0.v ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The parts of the view, malloced; NULL: memory is short. */
static struct part **parts_of(const struct store_view *v, uint32_t *ret_n)
{
    struct part **p =
        mem_fail_now() ? NULL : malloc(((size_t)v->n_source + 1) * sizeof(struct part *));
    uint32_t n = 0;

    for (uint32_t i = 0; p && i < v->n_source; i++)
        if (v->source[i].part)
            p[n++] = v->source[i].part;
    *ret_n = n;
    return p;
}

int store_list_parts(struct store_view *v, store_part_fn *fn, void *ctx, struct err *err)
{
    uint32_t n;
    struct part **p = parts_of(v, &n);
    int r = 0;

    if (!p)
        return no_memory(err);
    qsort(p, n, sizeof(struct part *), by_period);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        const struct part_info *x = &p[i]->info;
        const struct store_part out = {.id = x->id,
                                       .file = str_c(x->name),
                                       .tier = x->tier,
                                       .period = x->period,
                                       .data = x->data,
                                       .epoch = x->epoch,
                                       .generation = x->generation,
                                       .sealed = x->state == PART_SEALED,
                                       .dirty = x->dirty,
                                       .rows = x->rows,
                                       .blocks = x->blocks,
                                       .bytes = x->bytes};

        if (!fn(ctx, &out))
            r = cancelled(err);
    }
    free(p);
    return r;
}

/* ---- sizes --------------------------------------------------------------------------------- */

enum {
    COLUMNS = 32,
    SIZE_SUMMARY = COLUMNS,
    SIZE_HSUM,
    SIZE_BESIDE, /* cover, metric, step, event */
    SIZE_LOCAL,
    SIZE_FILES,
    SIZES
};

struct sizing {
    struct store_view *v;
    struct store_size size[SIZES], dict[DICTFILE_KINDS];
    struct block *block;
};

static const char *what_of(int i)
{
    static const char *const column[16] = {
        [1] = "column keys",       [2] = "column key",   [3] = "column key",
        [4] = "column time",       [5] = "column time",  [6] = "column time",
        [7] = "column stack",      [8] = "column stack", [9] = "column count",
        [10] = "column attribute", [11] = "column cpu",  [12] = "column variance",
        [13] = "column held"};
    static const char *const other[] = {"block summary", "period sum", "beside rows", "local names",
                                        "part files"};

    if (i >= COLUMNS)
        return other[i - COLUMNS];
    return i >= 16 ? "column value" : column[i] ? column[i] : "column other";
}

static void add(struct store_size *s, uint64_t n, uint64_t raw, uint64_t stored)
{
    s->n += n;
    s->raw += raw;
    s->stored += stored;
}

static int size_block(struct sizing *z, struct part_handle *h, const struct part_block *b,
                      struct err *err)
{
    struct str data;

    TRY(part_summary(h, b->id, &data, err));
    add(&z->size[SIZE_SUMMARY], 1, data.n, data.n);
    TRY(part_cols(h, b->id, &data, err));
    TRY(block_open(data, z->block, err));
    for (uint32_t i = 0; i < z->block->n_slice; i++) {
        const struct block_slice *s = &z->block->slice[i];

        for (uint32_t k = 0; k < s->n_cell; k++)
            add(&z->size[s->cell[k].id % COLUMNS], s->n, s->cell[k].raw, s->cell[k].stored);
    }
    return 0;
}

static int size_table(struct sizing *z, const struct db *db, int what, const char *sql,
                      struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r = db_prepare(db, sql, &st, err);

    while (r == 0 && (r = db_step(db, st, err)) == 1) {
        uint64_t n = (uint64_t)sqlite3_column_int64(st, 1);

        add(&z->size[what], (uint64_t)sqlite3_column_int64(st, 0), n, n);
        r = 0;
    }
    (void)sqlite3_finalize(st);
    return r;
}

static int size_part(struct sizing *z, struct part *p, struct part_handle *h, struct err *err)
{
    TRY(part_load(p, err));
    for (uint32_t i = 0; i < p->n_block; i++)
        TRY(size_block(z, h, &p->block[i], err));
    for (uint32_t i = 0; i < p->n_hsum; i++) {
        struct str data;

        TRY(part_hsum(h, &p->hsum[i], &data, err));
        add(&z->size[SIZE_HSUM], 1, data.n, data.n);
    }
    TRY(size_table(z, &h->db, SIZE_BESIDE,
                   "SELECT n, length(data) FROM cover UNION ALL SELECT n, length(data) FROM metric "
                   "UNION ALL SELECT n, length(data) FROM step UNION ALL SELECT 1, 24 FROM event",
                   err));
    TRY(size_table(z, &h->db, SIZE_LOCAL, "SELECT n, length(data) FROM local", err));
    add(&z->size[SIZE_FILES], 1, p->info.bytes, p->info.bytes);
    return 0;
}

static int size_parts(struct sizing *z, bool *ret_partial, struct err *err)
{
    for (uint32_t i = 0; i < z->v->n_source; i++) {
        struct part *p = z->v->source[i].part;
        struct part_handle *h;
        int r;

        if (!p)
            continue;
        r = part_enter(p, &h, err);
        if (r == 0) {
            r = size_part(z, p, h, err);
            part_leave(h);
        }
        if (r == -ENOMEM)
            return r;
        *ret_partial |= r != 0;
    }
    return 0;
}

/* The dictionary that is being written is its thread's to read. */
static int own_dict(struct store *s, void *ctx, struct err *err)
{
    struct sizing *z = ctx;

    return s->dict ? dictfile_own_sizes(s->dict, z->dict, err) : 0;
}

static int size_dicts(struct sizing *z, bool *ret_partial, struct err *err)
{
    struct store *s = z->v->s;
    uint32_t last = 0;

    if (!s->conf.read_only)
        TRY(writer_call(s, own_dict, z, err));
    for (uint32_t i = 0; i < z->v->n_source; i++) { /* by period: epochs one after another */
        const struct source *src = &z->v->source[i];
        int r;

        if (!src->part || src->epoch == last ||
            (!s->conf.read_only && src->epoch == z->v->epoch->id))
            continue;
        last = src->epoch;
        r = dictfile_sizes(s->dir, last, store_tuning.vfs, z->dict, err);
        if (r == -ENOMEM)
            return r;
        *ret_partial |= r != 0;
    }
    return 0;
}

static int by_what(const void *a, const void *b)
{
    return str_cmp(((const struct store_size *)a)->what, ((const struct store_size *)b)->what);
}

/* Planes of one column are one line. */
static int hand_out(struct sizing *z, store_size_fn *fn, void *ctx, struct err *err)
{
    struct store_size all[SIZES + DICTFILE_KINDS];
    uint32_t n = 0;

    for (int i = 0; i < SIZES; i++) {
        struct str what = str_c(what_of(i));

        if (z->size[i].n == 0)
            continue;
        if (n > 0 && str_eq(all[n - 1].what, what)) {
            all[n - 1].raw += z->size[i].raw;
            all[n - 1].stored += z->size[i].stored;
            continue;
        }
        all[n] = z->size[i];
        all[n++].what = what;
    }
    for (int i = 0; i < DICTFILE_KINDS; i++)
        if (z->dict[i].n > 0)
            all[n++] = z->dict[i];
    qsort(all, n, sizeof *all, by_what);
    for (uint32_t i = 0; i < n; i++)
        if (!fn(ctx, &all[i]))
            return cancelled(err);
    return 0;
}

int store_list_sizes(struct store_view *v, store_size_fn *fn, void *ctx, struct err *err)
{
    struct sizing z = {.v = v};
    struct err why = {};
    bool partial = false;
    int r;

    z.block = mem_fail_now() ? NULL : malloc(sizeof *z.block);
    if (!z.block)
        return no_memory(err);
    r = size_parts(&z, &partial, &why);
    if (r == 0)
        r = size_dicts(&z, &partial, &why);
    if (r == 0)
        r = hand_out(&z, fn, ctx, err);
    free(z.block);
    if (r < 0 || partial)
        (void)err_set(err, r < 0 ? r : -EBADMSG, "%s", why.msg);
    return r == 0 && partial ? STORE_PARTIAL : r;
}

/* ---- rows of a block ----------------------------------------------------------------------- */

struct cat {
    struct store_view *v;
    struct part *p;
    const struct part_block *b;
    const struct local *local;
    struct arena mem;
    struct block_rows rows;
    real_ns *t;
    uint64_t *count;
    unit_i128 *value;
};

static struct part *find_part(const struct store_view *v, uint64_t id)
{
    for (uint32_t i = 0; i < v->n_source; i++)
        if (v->source[i].part && v->source[i].part->info.id == id)
            return v->source[i].part;
    return NULL;
}

static int decode(struct cat *c, struct part_handle *h, struct err *err)
{
    struct block_coder *coder = block_coder_new();
    struct str summary, cols;
    int r = coder ? 0 : no_memory(err);

    if (r == 0)
        r = part_summary(h, c->b->id, &summary, err);
    if (r == 0)
        r = part_cols(h, c->b->id, &cols, err);
    if (r == 0)
        r = block_decode(coder, summary, cols, UINT32_MAX, &c->mem, &c->rows, err);
    (void)block_coder_free(coder);
    return r;
}

static int columns(struct cat *c, struct err *err)
{
    const struct block_rows *x = &c->rows;

    c->t = arena_array(&c->mem, real_ns, x->n);
    c->count = arena_array(&c->mem, uint64_t, x->n);
    c->value = arena_array(&c->mem, unit_i128, x->n);
    if (!c->t || !c->count || !c->value)
        return no_memory(err);
    for (uint32_t i = 0; i < x->n; i++) {
        c->t[i] = (real_ns){x->ms[i] * NS_PER_MS};
        c->count[i] = x->count ? x->count[i] : 1;
        c->value[i] = x->wide    ? x->wide[i]
                      : x->value ? (unit_i128)x->value[i]
                                 : (unit_i128)x->period * c->count[i];
    }
    return 0;
}

/* Runs of rows of one thread, in stored order. */
static int emit(struct cat *c, store_rows_fn *fn, void *ctx, struct err *err)
{
    const struct block_rows *x = &c->rows;
    const struct local *l = c->local;

    for (uint32_t i = 0, n; i < x->n; i += n) {
        const struct local_thread *t;
        struct store_rows out = {.trie = {c->p->info.epoch, c->b->m.svc, c->b->m.sub}};

        for (n = 1; i + n < x->n && x->thread[i + n] == x->thread[i]; n++)
            ;
        if (x->thread[i] >= l->thread.v.n)
            return err_set(err, -EBADMSG, "%s: a thread that the part does not know",
                           c->p->info.name);
        t = TABLE(&l->thread, struct local_thread, x->thread[i]);
        if (t->target)
            out.target = &TABLE(&l->target, struct local_target, t->target)->key;
        out.tid = t->tid;
        out.thread = local_str(l, t->name);
        out.n = n;
        out.t = c->t + i;
        out.node = x->node + i;
        out.cpu = x->cpu ? x->cpu + i : NULL;
        out.count = c->count + i;
        out.value = (struct weights){.type = c->b->m.type, .n = n, .wide = c->value + i};
        if (!fn(ctx, &out))
            return cancelled(err);
    }
    return 0;
}

static int cat(struct cat *c, uint64_t block, store_rows_fn *fn, void *ctx, struct err *err)
{
    struct local_snap snap;
    struct part_handle *h;
    int r;

    TRY(part_load(c->p, err));
    for (uint32_t i = 0; i < c->p->n_block; i++)
        if (c->p->block[i].id == block)
            c->b = &c->p->block[i];
    if (!c->b)
        return err_set(err, -ENOENT, "%s: no block %" PRIu64 ", it has %" PRIu32, c->p->info.name,
                       block, c->p->n_block);
    for (uint32_t i = 0; i < c->v->n_source; i++)
        if (c->v->source[i].part == c->p)
            TRY(source_local(c->v, &c->v->source[i], &c->local, &snap, err));
    TRY(part_enter(c->p, &h, err));
    r = decode(c, h, err);
    part_leave(h);
    if (r == 0)
        r = columns(c, err);
    return r == 0 ? emit(c, fn, ctx, err) : r;
}

int store_cat(struct store_view *v, uint64_t part, uint64_t block, store_rows_fn *fn, void *ctx,
              struct err *err)
{
    struct cat c = {.v = v, .p = find_part(v, part)};
    int r;

    if (!c.p)
        return err_set(err, -ENOENT, "no part %" PRIu64, part);
    read_arena(v, &c.mem);
    r = cat(&c, block, fn, ctx, err);
    arena_deinit(&c.mem);
    return r;
}
