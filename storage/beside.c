// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/view_private.h"

/* What stands beside profiles has labels and a target of its own, and is no series of them: the
 * conditions are asked of each. 1 yes, 0 no, negative. */
static int takes(const struct store_view *v, const struct store_selector *sel, uint32_t labels,
                 uint32_t target, uint32_t tid, struct err *err)
{
    for (uint32_t i = 0; i < sel->n; i++) {
        const struct store_matcher *m = &sel->matcher[i];
        enum attr attr = attr_of(m->name);
        struct str value = {};
        char buf[24];
        bool yes;

        if (attr == ATTR_NONE)
            value = label_of(v, labels, m->name, NULL);
        else if (attr == ATTR_PID || attr == ATTR_TARGET)
            value = attr_text_target(v, attr, target, buf);
        else if (attr == ATTR_TID && tid)
            value = attr_number(buf, tid);
        if (m->op == STORE_EQ || m->op == STORE_NE) {
            yes = str_eq(m->value, value) == (m->op == STORE_EQ);
        } else {
            int r = m->match(m->ctx, value, err);

            if (r < 0)
                return r;
            yes = (r > 0) == (m->op == STORE_LIKE);
        }
        if (!yes)
            return 0;
    }
    return 1;
}

static bool named(const struct store_view *v, const struct store_ask *ask, uint32_t name)
{
    return ask->name.n == 0 || str_eq(ask->name, head_str(v->h, name));
}

/* ---- metrics ------------------------------------------------------------------------------- */

struct point {
    real_ns t;
    double num;
    int64_t inum;
    uint32_t order; /* of arrival, among equal times */
    uint8_t status;
};

static int by_time(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    int r = real_ns_cmp(x->t, y->t);

    return r ? r : (x->order > y->order) - (x->order < y->order);
}

static const struct head_metric *metric_from(const struct store_view *v, uint32_t i)
{
    while (i > v->snap.metric)
        i = VEC(&v->h->metric, struct head_metric, i - 1)->prev;
    return i ? VEC(&v->h->metric, struct head_metric, i - 1) : NULL;
}

static const struct head_metric *metric_prev(const struct store_view *v,
                                             const struct head_metric *m)
{
    return m->prev ? VEC(&v->h->metric, struct head_metric, m->prev - 1) : NULL;
}

static uint32_t points(const struct store_view *v, const struct head_mseries *s,
                       struct interval range, struct point *out)
{
    const struct head_metric *m =
        metric_from(v, atomic_load_explicit(&s->last, memory_order_acquire));
    uint32_t n = 0, order = UINT32_MAX;

    for (; m; m = metric_prev(v, m)) {
        for (uint32_t i = m->n; i-- > 0; order--) {
            if (!interval_has(range, m->t[i]))
                continue;
            if (out)
                out[n] = (struct point){.t = m->t[i],
                                        .num = m->num ? m->num[i] : 0,
                                        .inum = m->inum ? m->inum[i] : 0,
                                        .order = order,
                                        .status = m->status ? m->status[i] : METRIC_OK};
            n++;
        }
    }
    if (out && n > 1)
        qsort(out, n, sizeof *out, by_time);
    return n;
}

static int hand_metric(const struct store_view *v, const struct head_mseries *s,
                       const struct store_ask *ask, struct arena *a, store_metric_fn *fn, void *ctx)
{
    const struct dict_labels *l = head_labels(v->h, s->labels);
    uint32_t n = points(v, s, ask->range, NULL);
    struct point *p = arena_array(a, struct point, n);
    real_ns *t = arena_array(a, real_ns, n);
    double *num = s->is_int ? NULL : arena_array(a, double, n);
    int64_t *inum = s->is_int ? arena_array(a, int64_t, n) : NULL;
    uint8_t *status = arena_array(a, uint8_t, n);
    struct store_metric out = {.name = head_str(v->h, s->name),
                               .unit = head_str(v->h, s->unit),
                               .kind = s->kind,
                               .labels = {l->n, l->v},
                               .target = target_of(v, s->target),
                               .n = n,
                               .t = t,
                               .num = num,
                               .inum = inum,
                               .status = status};

    if (!p || !t || (!num && !inum) || !status)
        return -ENOMEM;
    if (n == 0)
        return 0;
    (void)points(v, s, ask->range, p);
    for (uint32_t i = 0; i < n; i++) {
        t[i] = p[i].t;
        status[i] = p[i].status;
        if (num)
            num[i] = p[i].num;
        else
            inum[i] = p[i].inum;
    }
    return fn(ctx, &out) ? 0 : -ECANCELED;
}

int store_metrics(struct store_view *v, const struct store_ask *ask, store_metric_fn *fn, void *ctx,
                  struct err *err)
{
    struct arena a;
    int r = 0;

    read_arena(v, &a);
    for (uint32_t i = 1; r == 0 && i < v->snap.mseries; i++) {
        const struct head_mseries *s = TABLE(&v->h->mseries, struct head_mseries, i);
        int take = named(v, ask, s->name) ? takes(v, &ask->sel, s->labels, s->target, 0, err) : 0;

        if (take < 0)
            r = take;
        if (take <= 0)
            continue;
        r = hand_metric(v, s, ask, &a, fn, ctx);
        if (r == -ENOMEM)
            r = no_memory(err);
        else if (r < 0)
            r = cancelled(err);
        arena_reset(&a);
    }
    arena_deinit(&a);
    return r;
}

/* ---- steps --------------------------------------------------------------------------------- */

static int by_owner(const void *a, const void *b)
{
    const struct head_step *x = *(const struct head_step *const *)a,
                           *y = *(const struct head_step *const *)b;

    if (x->target != y->target)
        return (x->target > y->target) - (x->target < y->target);
    if (x->name != y->name)
        return (x->name > y->name) - (x->name < y->name);
    if (x->t.t0.v != y->t.t0.v)
        return real_ns_cmp(x->t.t0, y->t.t0);
    return (x->number > y->number) - (x->number < y->number);
}

static int hand_step(const struct store_view *v, const struct head_step *s, struct arena *a,
                     store_step_fn *fn, void *ctx)
{
    const struct dict_labels *l = head_labels(v->h, s->labels);
    struct str *part = arena_array(a, struct str, s->n_part);
    struct store_step out = {.target = TABLE(&v->h->target, struct head_target, s->target)->key,
                             .name = head_str(v->h, s->name),
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
        part[i] = head_str(v->h, s->part[i]);
    return fn(ctx, &out) ? 0 : -ECANCELED;
}

int store_steps(struct store_view *v, const struct store_ask *ask, store_step_fn *fn, void *ctx,
                struct err *err)
{
    struct arena a, tmp;
    const struct head_step **row;
    uint32_t n = 0;
    int r = 0;

    read_arena(v, &a);
    read_arena(v, &tmp);
    row = arena_calloc(&a, v->snap.step, sizeof(const struct head_step *)); // NOLINT
    if (!row)
        r = no_memory(err);
    for (uint32_t i = 0; r == 0 && i < v->snap.step; i++) {
        const struct head_step *s = VEC(&v->h->step, struct head_step, i);

        if (s->t.t0.v >= ask->range.t1.v || s->t.t1.v <= ask->range.t0.v || !named(v, ask, s->name))
            continue;
        r = takes(v, &ask->sel, s->labels, s->target, s->tid, err);
        if (r > 0) {
            row[n++] = s;
            r = 0;
        }
    }
    if (n > 1)
        qsort(row, n, sizeof *row, by_owner); // NOLINT(bugprone-sizeof-expression)
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        r = hand_step(v, row[i], &tmp, fn, ctx);
        if (r == -ENOMEM)
            r = no_memory(err);
        else if (r < 0)
            r = cancelled(err);
        arena_reset(&tmp);
    }
    arena_deinit(&tmp);
    arena_deinit(&a);
    return r;
}

/* ---- events -------------------------------------------------------------------------------- */

static int by_instant(const void *a, const void *b)
{
    const struct head_event *x = *(const struct head_event *const *)a,
                            *y = *(const struct head_event *const *)b;
    int r = real_ns_cmp(x->t, y->t);

    return r ? r : (x > y) - (x < y);
}

int store_events(struct store_view *v, const struct store_ask *ask, store_event_fn *fn, void *ctx,
                 struct err *err)
{
    struct arena a;
    const struct head_event **row;
    uint32_t n = 0;
    int r = 0;

    read_arena(v, &a);
    row = arena_calloc(&a, v->snap.event, sizeof(const struct head_event *)); // NOLINT
    if (!row)
        r = no_memory(err);
    for (uint32_t i = 0; r == 0 && i < v->snap.event; i++) {
        const struct head_event *e = VEC(&v->h->event, struct head_event, i);

        if (!interval_has(ask->range, e->t))
            continue;
        r = takes(v, &ask->sel, 0, e->target, 0, err);
        if (r > 0) {
            row[n++] = e;
            r = 0;
        }
    }
    if (n > 1)
        qsort(row, n, sizeof *row, by_instant); // NOLINT(bugprone-sizeof-expression)
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        struct store_event out = {.t = row[i]->t,
                                  .kind = head_str(v->h, row[i]->kind),
                                  .text = head_str(v->h, row[i]->text),
                                  .target = target_of(v, row[i]->target)};

        if (!fn(ctx, &out))
            r = cancelled(err);
    }
    arena_deinit(&a);
    return r;
}
