// SPDX-License-Identifier: Apache-2.0
/* STORE_ROWS: the rows of one trie, of all sources, thread by thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/scan/scan_private.h"

struct rec {
    int64_t ms, value;
    uint64_t count;
    uint32_t thread, node, cpu; /* thread: number in struct rows */
};

/* A thread, whatever sources it occurs in. */
struct row_thread {
    uint32_t target, tid; /* target: number in the view */
    struct str name;
    uint32_t source, thread; /* where it was met first */
};

struct rows {
    struct scan_worker *w;
    uint32_t side;
    uint32_t n, room;
    struct rec *v;
    struct pool pool; /* of thread */
    struct table thread;
    uint32_t *number; /* of the current source's threads; 0: not asked yet */
};

/* ---- threads ------------------------------------------------------------------------------- */

static bool eq_thread(const void *entry, const void *key)
{
    const struct row_thread *a = entry, *b = key;

    return a->target == b->target && a->tid == b->tid && str_eq(a->name, b->name);
}

static uint32_t number_of(struct rows *l, uint32_t thread)
{
    const struct opened *o = &l->w->sc->o[l->w->source];
    const struct local_thread *th = TABLE(&o->local->thread, struct local_thread, thread);
    const struct row_thread key = {.target = o->target[th->target],
                                   .tid = th->tid,
                                   .name = local_str(o->local, th->name),
                                   .source = l->w->source,
                                   .thread = thread};
    const uint64_t field[2] = {(uint64_t)key.target << 32 | key.tid, hash_str(key.name)};
    uint64_t hash = hash_bytes(field, sizeof field);
    uint32_t i = table_find(&l->thread, hash, &key, eq_thread);
    struct row_thread *e;

    if (i)
        return i;
    i = table_add(&l->thread, &l->pool, hash);
    if (!i)
        return 0;
    e = TABLE(&l->thread, struct row_thread, i);
    e->target = key.target;
    e->tid = key.tid;
    e->name = key.name;
    e->source = key.source;
    e->thread = key.thread;
    return i;
}

/* ---- collecting ---------------------------------------------------------------------------- */

static int push(struct rows *l, int64_t ms, const struct scan_row *row)
{
    struct scan_worker *w = l->w;
    uint32_t *number = &l->number[row->thread];

    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 1024;
        struct rec *v = arena_array(&w->mem, struct rec, room);

        if (!v)
            return no_memory(&w->err);
        if (l->n)
            memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->room = room;
    }
    if (!*number)
        *number = number_of(l, row->thread);
    if (!*number)
        return no_memory(&w->err);
    l->v[l->n++] = (struct rec){.ms = ms,
                                .value = row->value,
                                .count = row->count,
                                .thread = *number,
                                .node = row->node,
                                .cpu = row->cpu};
    return 0;
}

static int collect_head(struct rows *l, const struct scan_item *it)
{
    struct scan_worker *w = l->w;
    const struct scan_side *sd = &w->sc->side[l->side];
    const struct head_group *g = it->g;
    uint64_t rows = it->rows;

    for (uint32_t ci = 0; rows > 0; ci++) {
        const struct head_chunk *c = *VEC(&g->chunk, struct head_chunk *, ci);
        uint32_t n = head_chunk_rows(c, rows);
        struct head_rows r;

        TRY(scan_check(w));
        head_rows_of(c, &r);
        for (uint32_t i = 0; i < n; i++) {
            struct scan_row row;
            int64_t ms;

            if (!bit_get(sd->sel.series, head_u32(&r, HEAD_SERIES, i)))
                continue;
            ms = head_ms(&r, i);
            if (ms < sd->lo || ms >= sd->hi)
                continue;
            scan_load(&r, i, &row);
            if (scan_takes(w, sd, &row, ms))
                TRY(push(l, ms, &row));
        }
        if (c->first + n >= rows)
            break;
    }
    return 0;
}

static int collect_row(void *ctx, const struct part_row *r, struct err *err)
{
    struct rows *l = ctx;
    const struct scan_row row = {.series = r->series,
                                 .thread = r->thread,
                                 .cpu = r->cpu,
                                 .node = r->node,
                                 .count = r->count,
                                 .value = r->value};

    (void)err; /* that of the worker */
    return scan_takes(l->w, &l->w->sc->side[l->side], &row, r->ms) ? push(l, r->ms, &row) : 0;
}

/* A block of which a slice is damaged gives none of its rows. */
static int collect_part(struct rows *l, const struct scan_item *it)
{
    struct scan_worker *w = l->w;
    const struct scan_side *sd = &w->sc->side[l->side];
    const struct part_rows_ask ask = {sd->lo, sd->hi, w->n_node, false};

    for (uint32_t i = 0; i < it->n_block; i++) {
        const struct block_meta *m = &it->block[i].m;
        uint32_t was = l->n;
        int r;

        if (m->t0 >= sd->range.t1.v || m->t1 <= sd->range.t0.v ||
            scan_pick(w->sc, sd, m->svc, m->smin, m->smax) == SCAN_NONE)
            continue;
        TRY(scan_check(w));
        r = scan_reader_open(w, it->part);
        if (r == 0)
            r = part_rows_each(w->reader->rows, it->block[i].id, &ask, collect_row, l, &w->err);
        if (r < 0) {
            l->n = was;
            TRY(scan_block_failed(w, it, &it->block[i], r));
        }
    }
    return 0;
}

/* ---- handing out --------------------------------------------------------------------------- */

static int by_thread_time(const void *a, const void *b)
{
    const struct rec *x = a, *y = b;

    if (x->thread != y->thread)
        return (x->thread > y->thread) - (x->thread < y->thread);
    if (x->ms != y->ms)
        return (x->ms > y->ms) - (x->ms < y->ms);
    return (x->node > y->node) - (x->node < y->node);
}

static int emit(struct rows *l, const struct rec *r, uint32_t n)
{
    struct scan_worker *w = l->w;
    const struct row_thread *th = TABLE(&l->thread, struct row_thread, r->thread);
    const struct local *local = w->sc->o[th->source].local;
    real_ns *t = arena_array(&w->mem, real_ns, n);
    uint32_t *node = arena_array(&w->mem, uint32_t, n), *cpu = arena_array(&w->mem, uint32_t, n);
    uint64_t *count = arena_array(&w->mem, uint64_t, n);
    int64_t *value = arena_array(&w->mem, int64_t, n);
    struct store_rows out = {
        .trie = w->trie,
        .side = l->side,
        .target = target_of(local, TABLE(&local->thread, struct local_thread, th->thread)->target),
        .tid = th->tid,
        .thread = th->name,
        .n = n,
        .t = t,
        .node = node,
        .cpu = cpu,
        .count = count,
        .value = {.type = w->sc->type, .n = n, .v = value}};

    if (!t || !node || !cpu || !count || !value)
        return no_memory(&w->err);
    for (uint32_t i = 0; i < n; i++) {
        t[i] = (real_ns){r[i].ms * NS_PER_MS};
        node[i] = r[i].node;
        cpu[i] = r[i].cpu;
        count[i] = r[i].count;
        value[i] = r[i].value;
    }
    return w->sc->sink->rows(w->sc->sink->ctx, w->no, &out) ? 0 : cancelled(&w->err);
}

static int rows_of(struct rows *l, const struct scan_task *t)
{
    struct scan_worker *w = l->w;

    for (uint32_t i = 0; i < t->n_item; i++) {
        const struct scan_item *it = &t->item[i];

        w->source = it->source;
        l->number = arena_array(&w->mem, uint32_t, w->sc->o[it->source].n.thread);
        if (!l->number)
            return no_memory(&w->err);
        TRY(it->g ? collect_head(l, it) : collect_part(l, it));
    }
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, by_thread_time);
    for (uint32_t i = 0, k; i < l->n; i = k) {
        for (k = i + 1; k < l->n && l->v[k].thread == l->v[i].thread; k++)
            ;
        TRY(emit(l, l->v + i, k - i));
    }
    return 0;
}

int scan_rows(struct scan_worker *w, const struct scan_task *t)
{
    for (uint32_t side = 0; side < w->sc->q->n_side; side++) {
        struct rows l = {.w = w, .side = side};
        int r;

        pool_init(&l.pool);
        r = table_init(&l.thread, &l.pool, sizeof(struct row_thread)) ? rows_of(&l, t)
                                                                      : no_memory(&w->err);
        table_deinit(&l.thread, &l.pool);
        pool_deinit(&l.pool);
        arena_reset(&w->mem);
        if (r < 0)
            return r;
    }
    return 0;
}
