// SPDX-License-Identifier: Apache-2.0
/* Weights: the workers of store_scan. See scan_private.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/scan/scan_private.h"

#define ROWS_PER_WORKER UINT64_C(200000) /* below that a thread costs more than it brings */

int scan_check(struct scan_worker *w)
{
    const struct store_query *q = w->sc->q;

    if (q->cancel && atomic_load_explicit(q->cancel, memory_order_relaxed))
        return err_set(&w->err, -ECANCELED, "cancelled");
    if (q->deadline.v && mono_now().v >= q->deadline.v)
        return err_set(&w->err, -ETIMEDOUT, "deadline passed");
    return atomic_load_explicit(&w->sc->result, memory_order_relaxed) ? -ECANCELED : 0;
}

static int scan_sums(struct scan_worker *w, const struct scan_task *t)
{
    for (uint32_t i = 0; i < t->n_item; i++) {
        const struct scan_item *it = &t->item[i];

        w->source = it->source;
        TRY(it->g ? scan_head(w, it) : scan_part(w, it));
    }
    return scan_cell_emit(w);
}

/* Stacks that nobody can name any more: rows without meaning. */
static int no_trie(struct scan_worker *w, const struct scan_task *t)
{
    if (w->err.code == -ENOMEM)
        return w->err.code;
    if (t->gang && w->no != 0) { /* worker 0 says it */
        w->err = (struct err){};
        return 0;
    }
    if (w->err.code == 0)
        (void)!err_set(&w->err, -ENOENT, "no trie %u/%u/%u", t->trie.epoch, t->trie.svc,
                       t->trie.sub);
    for (uint32_t i = 0; i < t->n_item; i++) {
        struct err err = w->err;
        uint32_t k = t->item[i].source;

        TRY(scan_damaged(w->sc, k, w->sc->v->source[k].t, &err));
    }
    w->err = (struct err){};
    return 0;
}

static int scan_one(struct scan_worker *w, const struct scan_task *t)
{
    struct scan *sc = w->sc;
    const struct epoch *e = view_epoch(sc->v, t->trie.epoch, &w->err);
    const struct dict_trie *trie = e ? epoch_find(e, t->trie.svc, t->trie.sub) : NULL;
    int r;

    if (!trie)
        return no_trie(w, t);
    w->trie = t->trie;
    w->rows = t->rows;
    w->alone = t->n_item == 1 && !t->gang;
    w->n_node = atomic_load_explicit(&trie->n, memory_order_acquire);
    w->nodes = NULL;
    if (sc->q->nodes && (!t->gang || w->no == 0)) /* once per trie */
        w->nodes = sc->q->nodes(sc->q->nodes_ctx, w->no, w->trie);
    if (t->gang)
        r = scan_gang_run(w, t->gang);
    else
        r = sc->q->want == STORE_ROWS ? scan_rows(w, t) : scan_sums(w, t);
    scan_cell_drop(w);
    return r;
}

void scan_failed(struct scan_worker *w, int r)
{
    struct scan *sc = w->sc;
    int none = 0;

    mutex_lock(&sc->mu);
    if (atomic_compare_exchange_strong(&sc->result, &none, r))
        sc->err = w->err;
    mutex_unlock(&sc->mu);
}

static void work(struct scan *sc, uint32_t no)
{
    struct scan_worker w = {.sc = sc, .no = no};
    int r = 0;

    arena_init(&w.mem, sc->mem_max);
    pool_init(&w.pool);
    if (!table_init(&w.cell, &w.pool, sizeof(struct scan_cell_ref)) ||
        !table_init(&w.group, &w.pool, sizeof(struct scan_group)))
        r = no_memory(&w.err);
    for (uint32_t i = 0; r == 0 && i < sc->n_gang; i++)
        r = scan_one(&w, &sc->task[i]);
    while (r == 0) {
        uint32_t i = sc->n_gang + atomic_fetch_add(&sc->next, 1);

        if (i >= sc->n_task)
            break;
        r = scan_one(&w, &sc->task[i]);
    }
    if (r < 0)
        scan_failed(&w, r);
    for (uint32_t i = 0; no == 0 && i < sc->n_gang; i++)
        scan_gang_end(sc, sc->task[i].gang);
    scan_reader_free(&w);
    for (uint32_t i = 0; i < SCAN_OUTS; i++)
        buf_deinit(&w.out[i]);
    table_deinit(&w.cell, &w.pool);
    table_deinit(&w.group, &w.pool);
    pool_deinit(&w.pool);
    arena_deinit(&w.mem);
}

/* ---- workers ------------------------------------------------------------------------------- */

struct extra {
    struct scan *sc;
    uint32_t no;
    pthread_t thread;
};

static void *extra_main(void *arg)
{
    struct extra *e = arg;

    work(e->sc, e->no);
    return NULL;
}

/* Tries that are more than a worker's share are read by all. Those with most rows come first. */
static void make_gangs(struct scan *sc, uint64_t rows, uint32_t workers)
{
    while (workers > 1 && sc->q->want != STORE_ROWS && sc->n_gang < sc->n_task) {
        struct scan_task *t = &sc->task[sc->n_gang];

        if (t->rows <= rows / workers + rows / 8 || !scan_gang_new(sc, t, workers))
            break;
        sc->n_gang++;
    }
}

/* The calling thread is worker 0; others help as far as the store's number of them allows. */
static void run(struct scan *sc, uint64_t rows)
{
    struct store *s = sc->v->s;
    uint64_t want = rows / (store_tuning.scan_rows ? store_tuning.scan_rows : ROWS_PER_WORKER) + 1;
    struct extra *e = NULL;
    uint32_t n = 0;

    want = want > s->conf.workers ? s->conf.workers : want;
    make_gangs(sc, rows, (uint32_t)want);
    want = sc->n_gang == 0 && want > sc->n_task ? sc->n_task : want;
    if (want > 1)
        e = arena_calloc(sc->tmp, want, sizeof *e);
    sc->mem_max /= want ? want : 1;
    for (uint32_t no = 1; e && no < want; no++) {
        char name[16];

        if (atomic_fetch_add(&s->scan_threads, 1) >= s->conf.workers) {
            atomic_fetch_sub(&s->scan_threads, 1);
            break;
        }
        (void)snprintf(name, sizeof name, "st-scan-%u", no & 0xffff);
        e[n] = (struct extra){.sc = sc, .no = no};
        if (thread_start(&e[n].thread, name, 0, extra_main, &e[n]) != 0) {
            atomic_fetch_sub(&s->scan_threads, 1);
            break;
        }
        n++;
    }
    work(sc, 0);
    for (uint32_t i = 0; i < n; i++) {
        int r = pthread_join(e[i].thread, NULL);

        assert(r == 0);
        atomic_fetch_sub(&s->scan_threads, 1);
    }
}

/* Made with the first scan; without memory there is none. */
static struct scan_cache *cache_of(struct store *s)
{
    struct scan_cache *c = atomic_load(&s->scan_cache), *none = NULL;

    if (c)
        return c;
    c = scan_cache_new(s->conf.mem_cache / 2);
    if (c && !atomic_compare_exchange_strong(&s->scan_cache, &none, c)) {
        (void)scan_cache_free(c);
        c = none;
    }
    return c;
}

int store_scan(struct store_view *v, const struct store_query *q, const struct store_sink *sink,
               struct store_answer *ret, struct err *err)
{
    struct scan sc = {.v = v, .q = q, .sink = sink, .cache = cache_of(v->s)};
    struct arena tmp;
    uint64_t rows;
    int r;

    assert(q->arena);
    sc.mem_max = q->mem_max ? q->mem_max : v->s->conf.mem_query;
    arena_init(&tmp, sc.mem_max);
    sc.tmp = &tmp;
    pool_init(&sc.pool);
    vec_init(&sc.damage, sizeof(struct scan_damage));
    mutex_init(&sc.mu);
    r = scan_plan(&sc, &rows, err);
    if (r == 0) {
        run(&sc, rows);
        r = atomic_load(&sc.result);
        if (r < 0 && err && err->code == 0)
            *err = sc.err;
    }
    if (r == 0)
        r = scan_answer(&sc, ret, err);
    for (uint32_t i = 0; i < sc.n_gang; i++)
        scan_gang_free(&sc.task[i]);
    scan_group_free(&sc);
    vec_deinit(&sc.damage, &sc.pool);
    mutex_deinit(&sc.mu);
    pool_deinit(&sc.pool);
    arena_deinit(&tmp);
    return r;
}
