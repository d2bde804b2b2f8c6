// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/scan_private.h"

struct rec {
    int64_t ms, value;
    uint64_t count;
    uint32_t thread, node, cpu;
};

struct recs {
    uint32_t n, room;
    struct rec *v;
};

static bool push(struct scan_worker *w, struct recs *l, const struct rec *r)
{
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 1024;
        struct rec *v = arena_array(&w->mem, struct rec, room);

        if (!v)
            return false;
        if (l->n)
            memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->room = room;
    }
    l->v[l->n++] = *r;
    return true;
}

static int by_thread_time(const void *a, const void *b)
{
    const struct rec *x = a, *y = b;

    if (x->thread != y->thread)
        return (x->thread > y->thread) - (x->thread < y->thread);
    if (x->ms != y->ms)
        return (x->ms > y->ms) - (x->ms < y->ms);
    return (x->node > y->node) - (x->node < y->node);
}

static int emit(struct scan_worker *w, uint32_t side, const struct rec *r, uint32_t n)
{
    const struct local *l = w->sc->o[w->source].local;
    const struct local_thread *th = TABLE(&l->thread, struct local_thread, r->thread);
    real_ns *t = arena_array(&w->mem, real_ns, n);
    uint32_t *node = arena_array(&w->mem, uint32_t, n), *cpu = arena_array(&w->mem, uint32_t, n);
    uint64_t *count = arena_array(&w->mem, uint64_t, n);
    int64_t *value = arena_array(&w->mem, int64_t, n);
    struct store_rows out = {.trie = w->trie,
                             .side = side,
                             .target = target_of(l, th->target),
                             .tid = th->tid,
                             .thread = local_str(l, th->name),
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

static int collect(struct scan_worker *w, const struct scan_item *it, uint32_t side,
                   struct recs *ret)
{
    const struct scan_side *sd = &w->sc->side[side];
    const struct head_group *g = it->g;
    uint64_t rows = it->rows;

    for (uint32_t ci = 0; rows > 0; ci++) {
        const struct head_chunk *c = *VEC(&g->chunk, struct head_chunk *, ci);
        uint32_t n = head_chunk_rows(c, rows), cover;

        TRY(scan_check(w));
        for (uint32_t i = 0; i < n; i++) {
            int64_t ms = c->base_ms + c->t[i];
            struct scan_row row;

            if (ms < sd->lo || ms >= sd->hi)
                continue;
            scan_load(c, i, &row, &cover);
            if (!scan_takes(w, sd, &row, ms))
                continue;
            if (!push(w, ret,
                      &(struct rec){.ms = ms,
                                    .value = row.value,
                                    .count = row.count,
                                    .thread = row.thread,
                                    .node = row.node,
                                    .cpu = row.cpu}))
                return no_memory(&w->err);
        }
        if (c->first + n >= rows)
            break;
    }
    return 0;
}

static int rows_of(struct scan_worker *w, const struct scan_item *it, uint32_t side)
{
    struct recs l = {};

    TRY(collect(w, it, side, &l));
    if (l.n)
        qsort(l.v, l.n, sizeof *l.v, by_thread_time);
    for (uint32_t i = 0, k; i < l.n; i = k) {
        for (k = i + 1; k < l.n && l.v[k].thread == l.v[i].thread; k++)
            ;
        TRY(emit(w, side, l.v + i, k - i));
    }
    arena_reset(&w->mem);
    return 0;
}

int scan_rows(struct scan_worker *w, const struct scan_task *t)
{
    for (uint32_t side = 0; side < w->sc->q->n_side; side++) {
        for (uint32_t i = 0; i < t->n_item; i++) {
            w->source = t->item[i].source;
            TRY(rows_of(w, &t->item[i], side));
        }
    }
    return 0;
}
