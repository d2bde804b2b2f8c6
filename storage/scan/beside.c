// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/keep/view_private.h"

/* One read over all sources that touch its range. */
struct beside {
    struct store_view *v;
    const struct store_ask *ask;
    struct opened *o;
    struct arena a, tmp; /* whole read; one record */
    void *ctx;
    struct err *err;
};

/* What stands beside profiles has labels and a target of its own, and is no series of them: the
 * conditions are asked of each. 1 yes, 0 no, negative. */
static int takes(const struct beside *b, const struct local *l, uint32_t labels, uint32_t target,
                 uint32_t tid)
{
    const struct store_selector *sel = &b->ask->sel;

    for (uint32_t i = 0; i < sel->n; i++) {
        const struct store_matcher *m = &sel->matcher[i];
        enum attr attr = attr_of(m->name);
        struct str value = {};
        char buf[24];
        bool yes;

        if (attr == ATTR_NONE)
            value = label_of(b->v->names, labels, m->name, NULL);
        else if (attr == ATTR_PID || attr == ATTR_TARGET)
            value = attr_text_target(l, attr, target, buf);
        else if (attr == ATTR_TID && tid)
            value = attr_number(buf, tid);
        if (m->op == STORE_EQ || m->op == STORE_NE) {
            yes = str_eq(m->value, value) == (m->op == STORE_EQ);
        } else {
            int r = m->match(m->ctx, value, b->err);

            if (r < 0)
                return r;
            yes = (r > 0) == (m->op == STORE_LIKE);
        }
        if (!yes)
            return 0;
    }
    return 1;
}

static bool named(const struct beside *b, const struct local *l, uint32_t name)
{
    return b->ask->name.n == 0 || str_eq(b->ask->name, local_str(l, name));
}

typedef int beside_fn(struct beside *b);

/* Open, read, close: 0, STORE_PARTIAL, negative. */
static int read_beside(struct store_view *v, const struct store_ask *ask, beside_fn *fn,
                       struct beside *b)
{
    bool damaged = false;
    int r;

    b->v = v;
    b->ask = ask;
    read_arena(v, &b->a);
    read_arena(v, &b->tmp);
    r = view_open(v, &ask->range, 1, &b->a, &b->o, b->err);
    if (r == 0)
        r = fn(b);
    for (uint32_t k = 0; r == 0 && k < v->n_source; k++)
        damaged |= b->o[k].damaged;
    arena_deinit(&b->tmp);
    arena_deinit(&b->a);
    return r == 0 && damaged ? STORE_PARTIAL : r;
}

static int told(const struct beside *b, int r)
{
    if (r == -ENOMEM)
        return no_memory(b->err);
    return r < 0 ? cancelled(b->err) : 0;
}

/* A list in b->a that doubles. */
struct rows {
    uint32_t n, room;
    char *v;
};

static void *push(struct beside *b, struct rows *l, size_t size)
{
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 64;
        char *v = arena_calloc(&b->a, room, size);

        if (!v)
            return NULL;
        if (l->n)
            memcpy(v, l->v, l->n * size);
        l->v = v;
        l->room = room;
    }
    return l->v + size * l->n++;
}

/* A record that the question takes, and where it lies. */
struct found {
    const struct local *l;
    const void *record;
    uint32_t target; /* number in the view */
    uint32_t order;  /* of arrival */
};

/* What decides whether record i of a source's list is taken. */
struct told_of {
    const void *record;
    bool there; /* in range, and of the name asked for */
    uint32_t labels, target, tid;
};
typedef uint32_t count_fn(const struct local_snap *n);
typedef struct told_of tell_fn(const struct beside *b, const struct local *l, uint32_t i);

/* The records of one kind, of all sources: struct found. */
static int collect(struct beside *b, count_fn *count, tell_fn *tell, struct rows *ret)
{
    for (uint32_t k = 0; k < b->v->n_source; k++) {
        const struct opened *src = &b->o[k];
        uint32_t n = src->local ? count(&src->n) : 0;

        for (uint32_t i = 0; i < n; i++) {
            const struct told_of x = tell(b, src->local, i);
            struct found *at;
            int take;

            if (!x.there)
                continue;
            TRY_OUTCOME(take, takes(b, src->local, x.labels, x.target, x.tid));
            if (take == 0)
                continue;
            at = push(b, ret, sizeof *at);
            if (!at)
                return no_memory(b->err);
            *at = (struct found){src->local, x.record, src->target[x.target], ret->n};
        }
    }
    return 0;
}

/* ---- metrics ------------------------------------------------------------------------------- */

struct point {
    real_ns t;
    double num;
    int64_t inum;
    uint32_t source, order; /* of arrival, among equal times */
    uint8_t status;
};

static int by_time(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    int r = real_ns_cmp(x->t, y->t);

    if (r == 0)
        r = (x->source > y->source) - (x->source < y->source);
    return r ? r : (x->order > y->order) - (x->order < y->order);
}

/* A metric series of a source; equal ones of several sources have one number. */
struct series_at {
    uint32_t number, source;
    uint32_t target; /* number in the view */
    const struct local *l;
    const struct local_mseries *s;
};

static bool eq_series(const void *entry, const void *key)
{
    const struct series_at *x = entry, *y = key;

    return x->target == y->target && x->s->labels == y->s->labels && x->s->kind == y->s->kind &&
           x->s->is_int == y->s->is_int &&
           str_eq(local_str(x->l, x->s->name), local_str(y->l, y->s->name)) &&
           str_eq(local_str(x->l, x->s->unit), local_str(y->l, y->s->unit));
}

static int by_number(const void *a, const void *b)
{
    const struct series_at *x = a, *y = b;

    if (x->number != y->number)
        return (x->number > y->number) - (x->number < y->number);
    return (x->source > y->source) - (x->source < y->source);
}

static const struct local_metric *metric_at(const struct opened *src, uint32_t i)
{
    while (i > src->n.metric)
        i = VEC(&src->local->metric, struct local_metric, i - 1)->prev;
    return i ? VEC(&src->local->metric, struct local_metric, i - 1) : NULL;
}

static uint32_t points(const struct beside *b, const struct series_at *at, struct point *out)
{
    const struct opened *src = &b->o[at->source];
    const struct local_metric *m =
        metric_at(src, atomic_load_explicit(&at->s->last, memory_order_acquire));
    uint32_t n = 0, order = UINT32_MAX;

    for (; m; m = metric_at(src, m->prev)) {
        for (uint32_t i = m->n; i-- > 0; order--) {
            if (!interval_has(b->ask->range, m->t[i]))
                continue;
            if (out)
                out[n] = (struct point){.t = m->t[i],
                                        .num = m->num ? m->num[i] : 0,
                                        .inum = m->inum ? m->inum[i] : 0,
                                        .source = at->source,
                                        .order = order,
                                        .status = m->status ? m->status[i] : METRIC_OK};
            n++;
        }
    }
    return n;
}

/* One series, of k sources. */
static int hand_metric(struct beside *b, const struct series_at *at, uint32_t k,
                       store_metric_fn *fn)
{
    const struct names_labels *l = names_labels(b->v->names, at->s->labels);
    uint32_t n = 0, done = 0;
    struct point *p;
    real_ns *t;
    double *num;
    int64_t *inum;
    uint8_t *status;
    struct store_metric out = {.name = local_str(at->l, at->s->name),
                               .unit = local_str(at->l, at->s->unit),
                               .kind = at->s->kind,
                               .labels = {l->n, l->v},
                               .target = target_of(at->l, at->s->target)};

    for (uint32_t i = 0; i < k; i++)
        n += points(b, &at[i], NULL);
    if (n == 0)
        return 0;
    p = arena_array(&b->tmp, struct point, n);
    t = arena_array(&b->tmp, real_ns, n);
    num = at->s->is_int ? NULL : arena_array(&b->tmp, double, n);
    inum = at->s->is_int ? arena_array(&b->tmp, int64_t, n) : NULL;
    status = arena_array(&b->tmp, uint8_t, n);
    if (!p || !t || (!num && !inum) || !status)
        return -ENOMEM;
    for (uint32_t i = 0; i < k; i++)
        done += points(b, &at[i], p + done);
    if (n > 1)
        qsort(p, n, sizeof *p, by_time);
    for (uint32_t i = 0; i < n; i++) {
        t[i] = p[i].t;
        status[i] = p[i].status;
        if (num)
            num[i] = p[i].num;
        else
            inum[i] = p[i].inum;
    }
    out.n = n;
    out.t = t;
    out.num = num;
    out.inum = inum;
    out.status = status;
    return fn(b->ctx, &out) ? 0 : -ECANCELED;
}

struct metric_read {
    struct beside b;
    store_metric_fn *fn;
    struct pool pool;
    struct table known; /* struct series_at: the first of each number */
};

static int number_series(struct metric_read *m, struct series_at *at)
{
    const struct local *l = at->l;
    const uint64_t field[3] = {hash_str(local_str(l, at->s->name)),
                               (uint64_t)at->s->labels << 32 | at->target, at->s->kind};
    uint64_t hash = hash_bytes(field, sizeof field);

    at->number = table_find(&m->known, hash, at, eq_series);
    if (at->number)
        return 0;
    at->number = table_add(&m->known, &m->pool, hash);
    if (!at->number)
        return no_memory(m->b.err);
    *TABLE(&m->known, struct series_at, at->number) = *at;
    return 0;
}

static int collect_metrics(struct metric_read *m, struct rows *ret)
{
    struct beside *b = &m->b;

    for (uint32_t k = 0; k < b->v->n_source; k++) {
        const struct opened *src = &b->o[k];

        for (uint32_t i = 1; src->local && i < src->n.mseries; i++) {
            const struct local_mseries *s = TABLE(&src->local->mseries, struct local_mseries, i);
            struct series_at *at;
            int take = 0;

            if (named(b, src->local, s->name))
                TRY_OUTCOME(take, takes(b, src->local, s->labels, s->target, 0));
            if (take == 0)
                continue;
            at = push(b, ret, sizeof *at);
            if (!at)
                return no_memory(b->err);
            *at = (struct series_at){
                .source = k, .target = src->target[s->target], .l = src->local, .s = s};
            TRY(number_series(m, at));
        }
    }
    return 0;
}

static int metrics(struct beside *b)
{
    struct metric_read *m = (struct metric_read *)b; /* its first member */
    struct series_at *at;
    struct rows l = {};

    TRY(collect_metrics(m, &l));
    at = (struct series_at *)(void *)l.v;
    if (l.n > 1)
        qsort(at, l.n, sizeof *at, by_number);
    for (uint32_t i = 0, k; i < l.n; i = k) {
        for (k = i + 1; k < l.n && at[k].number == at[i].number; k++)
            ;
        TRY(told(b, hand_metric(b, at + i, k - i, m->fn)));
        arena_reset(&b->tmp);
    }
    return 0;
}

int store_metrics(struct store_view *v, const struct store_ask *ask, store_metric_fn *fn, void *ctx,
                  struct err *err)
{
    struct metric_read m = {.b = {.ctx = ctx, .err = err}, .fn = fn};
    int r;

    pool_init(&m.pool);
    r = table_init(&m.known, &m.pool, sizeof(struct series_at)) ? read_beside(v, ask, metrics, &m.b)
                                                                : no_memory(err);
    table_deinit(&m.known, &m.pool);
    pool_deinit(&m.pool);
    return r;
}

/* ---- steps --------------------------------------------------------------------------------- */

static int by_owner(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    const struct local_step *p = x->record, *q = y->record;
    int r;

    if (x->target != y->target)
        return (x->target > y->target) - (x->target < y->target);
    r = str_cmp(local_str(x->l, p->name), local_str(y->l, q->name));
    if (r == 0)
        r = real_ns_cmp(p->t.t0, q->t.t0);
    return r ? r : (p->number > q->number) - (p->number < q->number);
}

struct step_read {
    struct beside b;
    store_step_fn *fn;
};

static int hand_step(struct step_read *m, const struct found *at)
{
    const struct local_step *s = at->record;
    const struct names_labels *l = names_labels(m->b.v->names, s->labels);
    struct str *part = arena_array(&m->b.tmp, struct str, s->n_part);
    struct store_step out = {.target = TABLE(&at->l->target, struct local_target, s->target)->key,
                             .name = local_str(at->l, s->name),
                             .labels = {l->n, l->v},
                             .number = s->number,
                             .t = s->t,
                             .tid = s->tid,
                             .inferred = s->inferred,
                             .n_part = s->n_part,
                             .part = part,
                             .part_ns = s->part_ns};

    if (!part)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->n_part; i++)
        part[i] = local_str(at->l, s->part[i]);
    return m->fn(m->b.ctx, &out) ? 0 : -ECANCELED;
}

static uint32_t count_steps(const struct local_snap *n)
{
    return n->step;
}

static struct told_of tell_step(const struct beside *b, const struct local *l, uint32_t i)
{
    const struct local_step *s = VEC(&l->step, struct local_step, i);
    bool there = s->t.t0.v < b->ask->range.t1.v && s->t.t1.v > b->ask->range.t0.v;

    return (struct told_of){s, there && named(b, l, s->name), s->labels, s->target, s->tid};
}

static int steps(struct beside *b)
{
    struct step_read *m = (struct step_read *)b; /* its first member */
    struct found *at;
    struct rows l = {};

    TRY(collect(b, count_steps, tell_step, &l));
    at = (struct found *)(void *)l.v;
    if (l.n > 1)
        qsort(at, l.n, sizeof *at, by_owner);
    for (uint32_t i = 0; i < l.n; i++) {
        TRY(told(b, hand_step(m, &at[i])));
        arena_reset(&b->tmp);
    }
    return 0;
}

int store_steps(struct store_view *v, const struct store_ask *ask, store_step_fn *fn, void *ctx,
                struct err *err)
{
    struct step_read m = {.b = {.ctx = ctx, .err = err}, .fn = fn};

    return read_beside(v, ask, steps, &m.b);
}

/* ---- events -------------------------------------------------------------------------------- */

static int by_instant(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    const struct local_event *p = x->record, *q = y->record;
    int r = real_ns_cmp(p->t, q->t);

    return r ? r : (x->order > y->order) - (x->order < y->order);
}

struct event_read {
    struct beside b;
    store_event_fn *fn;
};

static uint32_t count_events(const struct local_snap *n)
{
    return n->event;
}

static struct told_of tell_event(const struct beside *b, const struct local *l, uint32_t i)
{
    const struct local_event *e = VEC(&l->event, struct local_event, i);

    return (struct told_of){e, interval_has(b->ask->range, e->t), 0, e->target, 0};
}

static int events(struct beside *b)
{
    struct event_read *m = (struct event_read *)b; /* its first member */
    struct found *at;
    struct rows l = {};

    TRY(collect(b, count_events, tell_event, &l));
    at = (struct found *)(void *)l.v;
    if (l.n > 1)
        qsort(at, l.n, sizeof *at, by_instant);
    for (uint32_t i = 0; i < l.n; i++) {
        const struct local_event *e = at[i].record;
        const struct store_event out = {.t = e->t,
                                        .kind = local_str(at[i].l, e->kind),
                                        .text = local_str(at[i].l, e->text),
                                        .target = target_of(at[i].l, e->target)};

        if (!m->fn(b->ctx, &out))
            return cancelled(b->err);
    }
    return 0;
}

int store_events(struct store_view *v, const struct store_ask *ask, store_event_fn *fn, void *ctx,
                 struct err *err)
{
    struct event_read m = {.b = {.ctx = ctx, .err = err}, .fn = fn};

    return read_beside(v, ask, events, &m.b);
}
