// SPDX-License-Identifier: Apache-2.0
/*
 * Weights. A task is one trie (all rows of the asked type in it); tries are dealt to workers, the
 * ones with the most rows first, and each is handed out as a whole by the worker that had it.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "storage/scan_private.h"

#define ROWS_PER_WORKER UINT64_C(200000) /* below that a thread costs more than it brings */

/* ---- one row ------------------------------------------------------------------------------- */

void scan_load(const struct head_chunk *c, uint32_t i, struct scan_row *ret, uint32_t *ret_cover)
{
    const uint64_t *count = atomic_load_explicit(&c->count, memory_order_acquire);
    const int64_t *value = atomic_load_explicit(&c->value, memory_order_acquire);
    const uint32_t *cpu = atomic_load_explicit(&c->cpu, memory_order_acquire);
    const uint32_t *cover = atomic_load_explicit(&c->cover, memory_order_acquire);
    const double *var = atomic_load_explicit(&c->var, memory_order_acquire);

    *ret = (struct scan_row){.series = c->series[i],
                             .thread = c->thread[i],
                             .cpu = cpu ? cpu[i] : 0,
                             .node = c->node[i],
                             .count = count ? count[i] : 1,
                             .var = var ? var[i] : (double)NAN};
    ret->value = value ? value[i] : (int64_t)ret->count * c->period;
    *ret_cover = cover ? cover[i] : 0;
}

static bool in_window(const struct scan_side *side, uint32_t target, int64_t ms)
{
    uint32_t lo = 0, hi = side->n_window;

    while (lo < hi) { /* the first that begins behind (target, ms) */
        uint32_t mid = lo + (hi - lo) / 2;
        const struct scan_window *w = &side->window[mid];

        if (w->target < target || (w->target == target && w->lo <= ms))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && side->window[lo - 1].target == target && ms < side->window[lo - 1].hi;
}

bool scan_takes(const struct scan_worker *w, const struct scan_side *side,
                const struct scan_row *row, int64_t ms)
{
    const struct attr_bits bit = selection_bits(&side->sel, w->source);
    const struct opened *o = &w->sc->o[w->source];

    if (!bit_get(side->sel.series, row->series) || !bit_get(bit.thread, row->thread) ||
        !bit_get(bit.cpu, row->cpu) || !bit_get(w->nodes, row->node))
        return false;
    return !side->n_window ||
           in_window(side,
                     o->target[TABLE(&o->local->thread, struct local_thread, row->thread)->target],
                     ms);
}

int scan_check(struct scan_worker *w)
{
    const struct store_query *q = w->sc->q;

    if (q->cancel && atomic_load_explicit(q->cancel, memory_order_relaxed))
        return err_set(&w->err, -ECANCELED, "cancelled");
    if (q->deadline.v && mono_now().v >= q->deadline.v)
        return err_set(&w->err, -ETIMEDOUT, "deadline passed");
    return atomic_load_explicit(&w->sc->result, memory_order_relaxed) ? -ECANCELED : 0;
}

static int add(struct scan_worker *w, uint32_t side, uint32_t bucket, int64_t den,
               const struct scan_row *row, unit_i128 value)
{
    uint32_t group;

    TRY(scan_group_of(w, row, &group));
    return scan_cell_add(w, side, group, bucket, den, row, value);
}

static int add_average(struct scan_worker *w, uint32_t s, const struct scan_row *row,
                       const struct local_cover *c)
{
    const struct scan *sc = w->sc;
    const struct scan_side *side = &sc->side[s];
    int64_t lo = ms_floor(c->t.t0), hi = ms_floor(c->t.t1);

    for (uint32_t b = 0; b < sc->n_bucket; b++) {
        int64_t from = scan_edge(sc, side, b), to = scan_edge(sc, side, b + 1);
        int64_t den = side->den[(size_t)row->series * sc->n_bucket + b];

        from = from < lo ? lo : from;
        to = to > hi ? hi : to;
        if (from >= hi)
            break;
        if (from >= to)
            continue;
        /* a row whose own labels its scope lacks is covered by its own reading at least */
        TRY(add(w, s, b, den > 0 ? den : to - from, row, (unit_i128)row->value * (to - from)));
    }
    return 0;
}

static int add_readings(struct scan_worker *w, uint32_t s, const struct scan_row *row,
                        uint32_t cover)
{
    const struct scan_side *side = &w->sc->side[s];
    uint32_t lo = 0, hi = side->n_reading;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct scan_reading *r = &side->reading[mid];

        if (r->source < w->source || (r->source == w->source && r->cover < cover))
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < side->n_reading && side->reading[lo].source == w->source &&
           side->reading[lo].cover == cover;
         lo++)
        TRY(add(w, s, side->reading[lo].bucket, 1, row, row->value));
    return 0;
}

static int add_level(struct scan_worker *w, uint32_t s, const struct scan_row *row, uint32_t cover)
{
    if (cover == 0)
        return 0; /* of a sum type: cannot be here */
    if (w->sc->q->level == STORE_AVERAGE)
        return add_average(w, s, row,
                           VEC(&w->sc->o[w->source].local->cover, struct local_cover, cover - 1));
    return add_readings(w, s, row, cover - 1);
}

/* ---- one trie ------------------------------------------------------------------------------ */

static int scan_chunk(struct scan_worker *w, const struct head_chunk *c, uint32_t n, uint32_t s)
{
    const struct scan *sc = w->sc;
    const struct scan_side *side = &sc->side[s];
    bool level = sc->q->level != STORE_SUM;

    if (!level && (atomic_load_explicit(&c->max_ms, memory_order_relaxed) < side->lo ||
                   atomic_load_explicit(&c->min_ms, memory_order_relaxed) >= side->hi))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t ms = c->base_ms + c->t[i];
        uint32_t cover, bucket = 0;
        struct scan_row row;

        if (!level && (ms < side->lo || ms >= side->hi))
            continue;
        scan_load(c, i, &row, &cover);
        if (!scan_takes(w, side, &row, ms))
            continue;
        if (level) {
            TRY(add_level(w, s, &row, cover));
            continue;
        }
        if (sc->q->bucket_ns > 0)
            bucket = (uint32_t)((ms * NS_PER_MS - side->range.t0.v) / sc->q->bucket_ns);
        TRY(add(w, s, bucket, 1, &row, row.value));
    }
    return 0;
}

static int scan_group(struct scan_worker *w, const struct head_group *g, uint64_t rows)
{
    for (uint32_t ci = 0; rows > 0; ci++) {
        const struct head_chunk *c = *VEC(&g->chunk, struct head_chunk *, ci);
        uint32_t n = head_chunk_rows(c, rows);

        TRY(scan_check(w));
        for (uint32_t s = 0; s < w->sc->q->n_side; s++)
            TRY(scan_chunk(w, c, n, s));
        if (c->first + n >= rows)
            break;
    }
    return 0;
}

static int scan_sums(struct scan_worker *w, const struct scan_task *t)
{
    for (uint32_t i = 0; i < t->n_item; i++) {
        w->source = t->item[i].source;
        TRY(scan_group(w, t->item[i].g, t->item[i].rows));
    }
    return scan_cell_emit(w);
}

static int scan_one(struct scan_worker *w, const struct scan_task *t)
{
    struct scan *sc = w->sc;
    const struct epoch *e = view_epoch(sc->v, t->trie.epoch, &w->err);
    const struct dict_trie *trie = e ? epoch_find(e, t->trie.svc, t->trie.sub) : NULL;
    int r;

    if (!trie)
        return w->err.code ? w->err.code : err_set(&w->err, -ENOENT, "no such trie");
    w->trie = t->trie;
    w->n_node = atomic_load_explicit(&trie->n, memory_order_acquire);
    w->nodes = sc->q->nodes ? sc->q->nodes(sc->q->nodes_ctx, w->no, w->trie) : NULL;
    r = sc->q->want == STORE_ROWS ? scan_rows(w, t) : scan_sums(w, t);
    scan_cell_drop(w);
    return r;
}

static void failed(struct scan_worker *w, int r)
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
    while (r == 0) {
        uint32_t i = atomic_fetch_add(&sc->next, 1);

        if (i >= sc->n_task)
            break;
        r = scan_one(&w, &sc->task[i]);
    }
    if (r < 0)
        failed(&w, r);
    table_deinit(&w.cell, &w.pool);
    table_deinit(&w.group, &w.pool);
    pool_deinit(&w.pool);
    arena_deinit(&w.mem);
}

/* ---- preparation --------------------------------------------------------------------------- */

static int check_types(struct scan *sc, struct err *err)
{
    const struct store_query *q = sc->q;
    struct store_type t, u;

    if (q->n_side < 1 || q->n_side > 2)
        return err_set(err, -EINVAL, "sides: %u, 1 or 2 are possible", q->n_side);
    sc->type = q->side[0].sel.type;
    if (!names_type_info(sc->v->names, sc->v->snap.ptype, sc->type, &t))
        return err_set(err, -EINVAL, "no profile type %u", sc->type);
    if (q->n_side == 2 && q->side[1].sel.type != sc->type) {
        if (!names_type_info(sc->v->names, sc->v->snap.ptype, q->side[1].sel.type, &u))
            return err_set(err, -EINVAL, "no profile type %u", q->side[1].sel.type);
        return err_set(err, -EINVAL, "two types: %.*s (%.*s) and %.*s (%.*s)", STR_ARG(t.name),
                       STR_ARG(t.unit), STR_ARG(u.name), STR_ARG(u.unit));
    }
    sc->kind = t.kind;
    if (q->level == STORE_PEAK)
        return err_set(err, -ENOTSUP, "level: peak is not kept");
    if (q->want == STORE_ROWS)
        return 0;
    if (t.kind == KIND_LEVEL && q->level == STORE_SUM)
        return err_set(err, -EINVAL, "%.*s is a level: it cannot be added over time",
                       STR_ARG(t.name));
    if (t.kind == KIND_SUM && q->level != STORE_SUM)
        return err_set(err, -EINVAL, "%.*s is a sum: it has no average, now or at",
                       STR_ARG(t.name));
    return 0;
}

static int by_window(const void *a, const void *b)
{
    const struct scan_window *x = a, *y = b;

    if (x->target != y->target)
        return (x->target > y->target) - (x->target < y->target);
    return (x->lo > y->lo) - (x->lo < y->lo);
}

static int plan_windows(struct scan *sc, const struct store_side *ask, struct scan_side *side,
                        struct err *err)
{
    struct scan_window *w;
    uint32_t n = 0, k = 0;

    if (ask->n_window == 0)
        return 0;
    if (sc->q->level != STORE_SUM)
        return err_set(err, -ENOTSUP, "a level cannot be restricted to steps");
    w = arena_array(sc->tmp, struct scan_window, ask->n_window);
    if (!w)
        return no_memory(err);
    for (uint32_t i = 0; i < ask->n_window; i++) {
        uint32_t target = view_target(sc->v, &ask->window[i].target);

        if (target == UINT32_MAX)
            return no_memory(err);
        w[n++] = (struct scan_window){target, ms_ceil(ask->window[i].t.t0),
                                      ms_ceil(ask->window[i].t.t1)};
    }
    if (n > 1)
        qsort(w, n, sizeof *w, by_window);
    for (uint32_t i = 0; i < n; i++) { /* steps may overlap: a row counts once */
        if (k > 0 && w[k - 1].target == w[i].target && w[i].lo <= w[k - 1].hi)
            w[k - 1].hi = w[i].hi > w[k - 1].hi ? w[i].hi : w[k - 1].hi;
        else
            w[k++] = w[i];
    }
    side->window = w;
    side->n_window = k;
    return 0;
}

static int plan_side(struct scan *sc, uint32_t i, struct err *err)
{
    const struct store_side *ask = &sc->q->side[i];
    struct scan_side *side = &sc->side[i];
    int64_t len;

    if (!interval_len(ask->range, &len))
        return err_set(err, -EINVAL, "range: its end lies before its start");
    side->range = ask->range;
    side->lo = ms_ceil(ask->range.t0);
    side->hi = ms_ceil(ask->range.t1);
    if (sc->q->bucket_ns > 0) {
        int64_t n = len / sc->q->bucket_ns + (len % sc->q->bucket_ns > 0);

        if (n > SCAN_BUCKETS)
            return err_set(err, -EINVAL, "buckets: %" PRId64 ", limit %u", n, SCAN_BUCKETS);
        if (n > sc->n_bucket)
            sc->n_bucket = (uint32_t)n;
    }
    TRY(select_series(sc->v, &ask->sel, sc->o, sc->tmp, &side->sel, err));
    return plan_windows(sc, ask, side, err);
}

static int by_rows(const void *a, const void *b)
{
    const struct scan_task *x = a, *y = b;

    return (x->rows < y->rows) - (x->rows > y->rows);
}

struct found {
    struct store_trie_id trie;
    struct scan_item item;
};

static int by_trie(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    if (x->trie.epoch != y->trie.epoch)
        return (x->trie.epoch > y->trie.epoch) - (x->trie.epoch < y->trie.epoch);
    if (x->trie.svc != y->trie.svc)
        return (x->trie.svc > y->trie.svc) - (x->trie.svc < y->trie.svc);
    if (x->trie.sub != y->trie.sub)
        return (x->trie.sub > y->trie.sub) - (x->trie.sub < y->trie.sub);
    return (x->item.source > y->item.source) - (x->item.source < y->item.source);
}

static bool same_trie(struct store_trie_id a, struct store_trie_id b)
{
    return a.epoch == b.epoch && a.svc == b.svc && a.sub == b.sub;
}

/* What there is of the type, in all sources; v NULL: how much. */
static uint32_t find_items(const struct scan *sc, struct found *v)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < sc->v->n_source; k++) {
        const struct source *src = &sc->v->source[k];

        for (uint32_t i = 0; sc->o[k].local && src->head && i < src->snap.group; i++) {
            const struct head_group *g = head_group_at(src->head, i);

            if (g->type != sc->type)
                continue;
            if (v)
                v[n] = (struct found){g->trie, {k, g, head_group_rows(g, src->snap.lsn)}};
            n++;
        }
    }
    return n;
}

static int plan_tasks(struct scan *sc, uint64_t *ret_rows, struct err *err)
{
    uint32_t n = find_items(sc, NULL);
    struct found *f = arena_array(sc->tmp, struct found, n);
    struct scan_item *item = arena_array(sc->tmp, struct scan_item, n);

    *ret_rows = 0;
    sc->task = arena_array(sc->tmp, struct scan_task, n);
    if (!f || !item || !sc->task)
        return no_memory(err);
    (void)find_items(sc, f);
    if (n > 1)
        qsort(f, n, sizeof *f, by_trie);
    for (uint32_t i = 0; i < n; i++) {
        struct scan_task *t = sc->n_task ? &sc->task[sc->n_task - 1] : NULL;

        if (!t || !same_trie(t->trie, f[i].trie)) {
            t = &sc->task[sc->n_task++];
            *t = (struct scan_task){.trie = f[i].trie, .item = item + i};
        }
        item[i] = f[i].item;
        t->n_item++;
        t->rows += f[i].item.rows;
        *ret_rows += f[i].item.rows;
    }
    if (sc->n_task > 1)
        qsort(sc->task, sc->n_task, sizeof *sc->task, by_rows);
    return 0;
}

static int open_sources(struct scan *sc, struct err *err)
{
    struct interval range[2];

    for (uint32_t i = 0; i < sc->q->n_side; i++)
        range[i] = sc->q->side[i].range;
    TRY(view_open(sc->v, range, sc->q->n_side, sc->tmp, &sc->o, err));
    return sc->q->level == STORE_SUM ? 0 : view_open_scopes(sc->v, sc->o, sc->tmp, err);
}

static int plan(struct scan *sc, uint64_t *ret_rows, struct err *err)
{
    TRY(check_types(sc, err));
    TRY(open_sources(sc, err));
    sc->n_bucket = 1;
    for (uint32_t i = 0; i < sc->q->n_side; i++)
        TRY(plan_side(sc, i, err));
    for (uint32_t i = 0; sc->q->want != STORE_ROWS && i < sc->q->n_side; i++)
        TRY(scan_level_plan(sc, &sc->side[i], err));
    TRY(scan_group_plan(sc, err));
    return plan_tasks(sc, ret_rows, err);
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

/* The calling thread is worker 0; others help as far as the store's number of them allows. */
static void run(struct scan *sc, uint64_t rows)
{
    struct store *s = sc->v->s;
    uint64_t want = rows / (store_tuning.scan_rows ? store_tuning.scan_rows : ROWS_PER_WORKER) + 1;
    struct extra *e = NULL;
    uint32_t n = 0;

    want = want > sc->n_task ? sc->n_task : want;
    want = want > s->conf.workers ? s->conf.workers : want;
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

/* ---- the answer ---------------------------------------------------------------------------- */

static void tag_str(struct buf *b, struct str s)
{
    buf_le64(b, s.n);
    buf_str(b, s);
}

static uint64_t etag_of(const struct scan *sc)
{
    const struct store_query *q = sc->q;
    struct buf b;
    uint64_t h;

    buf_init(&b, (size_t)64 << 20);
    buf_le64(&b, sc->v->s->seed);
    buf_le64(&b, sc->v->lsn);
    buf_le32(&b, q->want);
    buf_le32(&b, q->level);
    buf_le64(&b, (uint64_t)q->at.v);
    buf_le64(&b, (uint64_t)q->bucket_ns);
    for (uint32_t i = 0; i < q->n_side; i++) {
        const struct store_side *s = &q->side[i];

        buf_le32(&b, s->sel.type);
        buf_le64(&b, (uint64_t)s->range.t0.v);
        buf_le64(&b, (uint64_t)s->range.t1.v);
        buf_le32(&b, s->sel.n);
        for (uint32_t k = 0; k < s->sel.n; k++) {
            tag_str(&b, s->sel.matcher[k].name);
            buf_le32(&b, s->sel.matcher[k].op);
            tag_str(&b, s->sel.matcher[k].value);
        }
        buf_le32(&b, s->n_window);
        for (uint32_t k = 0; k < s->n_window; k++) {
            buf_le64(&b, target_id(&s->window[k].target));
            buf_le64(&b, (uint64_t)s->window[k].t.t0.v);
            buf_le64(&b, (uint64_t)s->window[k].t.t1.v);
        }
    }
    buf_le32(&b, q->n_by);
    for (uint32_t k = 0; k < q->n_by; k++)
        tag_str(&b, q->by[k]);
    buf_le32(&b, q->n_group);
    for (uint32_t i = 0; i < q->n_group; i++) {
        for (uint32_t k = 0; k < q->n_by; k++)
            tag_str(&b, q->group[i].value[k]);
    }
    h = hash_str(buf_view(&b));
    buf_deinit(&b);
    return h;
}

static bool overlaps(struct interval a, struct interval b)
{
    return a.t0.v < b.t1.v && b.t0.v < a.t1.v;
}

static int answer_damage(const struct scan *sc, struct store_answer *ret, struct err *err)
{
    const struct store *s = sc->v->s;
    struct store_damage *d = arena_array(sc->q->arena, struct store_damage, s->n_lost);

    if (!d)
        return no_memory(err);
    for (uint32_t i = 0; i < s->n_lost; i++) {
        bool touches = false;

        for (uint32_t k = 0; k < sc->q->n_side; k++)
            touches |= overlaps(s->lost[i].t, sc->side[k].range);
        if (!touches)
            continue;
        d[ret->n_damage] = (struct store_damage){.t = s->lost[i].t,
                                                 .what = arena_str(sc->q->arena, s->lost[i].what)};
        ret->n_damage++;
    }
    ret->damage = d;
    ret->parts_unreadable = ret->n_damage;
    return 0;
}

static int answer(const struct scan *sc, struct store_answer *ret, struct err *err)
{
    struct arena *a = sc->q->arena;
    struct store_answer r = {.parts_asked = 1, .parts_read = 1, .etag = etag_of(sc)};
    struct store_group *g;

    for (uint32_t i = 0; i < sc->q->n_side; i++) {
        const struct selection *sel = &sc->side[i].sel;
        struct store_tier_span *t = arena_new(a, struct store_tier_span);

        if (!t)
            return no_memory(err);
        *t = (struct store_tier_span){STORE_RAW, NS_PER_MS, sc->side[i].range};
        r.side[i].effective = sc->side[i].range;
        r.side[i].n_tier = 1;
        r.side[i].tier = t;
        r.side[i].series = sel->n_series;
        r.side[i].overflow_series = sel->n_overflow;
        r.side[i].none_by = sel->none_by;
    }
    r.group = sc->q->group;
    r.n_group = sc->q->n_group;
    if (sc->q->n_group == 0) {
        /* without "by" there is the one group that has no values */
        r.n_group = sc->q->n_by ? sc->out.n : 1;
        g = arena_array(a, struct store_group, r.n_group);
        if (!g)
            return no_memory(err);
        for (uint32_t i = 0; sc->q->n_by && i < r.n_group; i++)
            g[i] = *VEC(&sc->out, struct store_group, i);
        r.group = g;
    }
    TRY(answer_damage(sc, &r, err));
    *ret = r;
    return r.n_damage ? STORE_PARTIAL : 0;
}

int store_scan(struct store_view *v, const struct store_query *q, const struct store_sink *sink,
               struct store_answer *ret, struct err *err)
{
    struct scan sc = {.v = v, .q = q, .sink = sink};
    struct arena tmp;
    uint64_t rows;
    int r;

    assert(q->arena);
    sc.mem_max = q->mem_max ? q->mem_max : v->s->conf.mem_query;
    arena_init(&tmp, sc.mem_max);
    sc.tmp = &tmp;
    pool_init(&sc.pool);
    mutex_init(&sc.mu);
    r = plan(&sc, &rows, err);
    if (r == 0) {
        run(&sc, rows);
        r = atomic_load(&sc.result);
        if (r < 0 && err && err->code == 0)
            *err = sc.err;
    }
    if (r == 0)
        r = answer(&sc, ret, err);
    scan_group_free(&sc);
    mutex_deinit(&sc.mu);
    pool_deinit(&sc.pool);
    arena_deinit(&tmp);
    return r;
}
