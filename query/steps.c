// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/query_private.h"

/*
 * Steps: units of work that a program marks. They restrict a question (step=NAME:FIRST-LAST: only
 * samples that a step's process has inside it), and they are listed.
 *
 * A step that names no process belongs to series that name none either. Which samples those are a
 * window of a process cannot say, so such steps are counted and said, and restrict nothing.
 */

/* ---- step= -------------------------------------------------------------------------------------
 */

/* NAME, NAME:NUMBER, NAME:FIRST-LAST. What is behind the last colon counts if it is numbers. */
static int step_parse(struct str text, struct query_step_use *ret, struct query_err *e)
{
    size_t colon = str_rfind(text, ':'), dash;
    struct str tail = colon == SIZE_MAX ? (struct str){NULL, 0} : str_from(text, colon + 1);

    ret->name = text;
    dash = str_find(tail, '-');
    if (tail.n && str_u64(str_to(tail, dash), &ret->first)) {
        ret->last = ret->first;
        ret->numbered = dash == SIZE_MAX || str_u64(str_from(tail, dash + 1), &ret->last);
    }
    if (ret->numbered)
        ret->name = str_to(text, colon);
    if (ret->name.n == 0)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "step",
                          "step=%.*s: NAME, NAME:NUMBER or NAME:FIRST-LAST",
                          STR_ARG(str_to(text, 80)));
    if (ret->numbered && ret->first > ret->last)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "step",
                          "step=%.*s: the first number is above the last",
                          STR_ARG(str_to(text, 80)));
    return 0;
}

struct windows {
    struct query *q;
    struct query_err *e;
    const struct query_takes *takes;
    struct query_step_use *use;
    struct store_window *v;
    uint32_t n, room;
    int r;
};

static bool wanted(const struct query_step_use *u, const struct store_step *s)
{
    return !u->numbered || (s->number >= u->first && s->number <= u->last);
}

static int add_window(struct windows *w, const struct store_step *s)
{
    struct interval range = w->q->head.range;
    struct store_window *v;

    if (!query_owner_of(&s->target).known) {
        int yes = query_takes(w->takes, &s->labels, NULL, s->tid, w->e);

        w->use->homeless += yes > 0;
        return yes < 0 ? yes : 0;
    }
    if (!w->takes->all && !query_takes_process(w->takes, &s->target))
        return 0;
    v = query_grow(w->q, w->v, w->n, &w->room, sizeof *v, w->e);
    if (!v)
        return -ENOMEM;
    w->v = v;
    w->v[w->n++] = (struct store_window){s->target, interval_cut(s->t, range)};
    w->use->n++;
    w->use->whole += s->t.t0.v >= range.t0.v && s->t.t1.v <= range.t1.v;
    return w->n % 1024 ? 0 : query_alive(w->q, w->e);
}

static bool on_window(void *ctx, const struct store_step *s)
{
    struct windows *w = ctx;

    w->r = wanted(w->use, s) ? add_window(w, s) : 0;
    return w->r == 0;
}

int query_step_open(struct query *q, struct str text, struct query_err *e)
{
    struct query_step_use *use = &q->head.step;
    struct query_takes takes;
    struct windows w = {.q = q, .e = e, .takes = &takes, .use = use};
    struct store_ask ask = {.range = q->head.range};
    struct err err = {};
    int r;

    if (text.n == 0)
        return 0;
    if (q->head.type.kind == KIND_LEVEL)
        return query_fail(e, -ENOTSUP, QUERY_NOT_SUPPORTED, "step",
                          "a level is a state at an instant: it cannot be restricted to steps");
    TRY(step_parse(text, use, e));
    TRY(query_copy(q, use->name, &use->name, e));
    TRY(query_takes_init(q, &takes, e));
    ask.name = use->name;
    r = store_steps(q->view, &ask, on_window, &w, &err);
    if (w.r < 0)
        return w.r;
    if (r < 0)
        return query_store_failed(q, r, &err, e);
    q->head.partial |= r == STORE_PARTIAL;
    if (w.n == 0) { /* no windows would mean no restriction */
        QUERY_NEW(q, &w.v, 1, e);
        memset(&w.v[0].target, 0xff, sizeof w.v[0].target);
        w.n = 1;
    }
    q->n_window = w.n;
    q->window = w.v;
    return 0;
}

/* ---- the list ----------------------------------------------------------------------------------
 */

struct step {
    struct query_step_row out;
    uint32_t order; /* as the store has them */
    uint32_t n_part;
    const struct str *part;
};

struct list {
    struct query *q;
    struct query_err *e;
    const struct query_steps_ask *ask;
    const struct query_takes *takes;
    struct step *v;
    uint32_t n, room;
    struct query_step_name *name;
    uint32_t n_name, room_name;
    int r;
};

static int name_of(struct list *l, struct str name, uint32_t *ret)
{
    struct query_step_name *v;

    if (l->n && str_eq(l->name[l->v[l->n - 1].out.name].name, name)) {
        *ret = l->v[l->n - 1].out.name; /* they come by process and name */
        return 0;
    }
    for (uint32_t i = 0; i < l->n_name; i++) {
        if (str_eq(l->name[i].name, name)) {
            *ret = i;
            return 0;
        }
    }
    v = query_grow(l->q, l->name, l->n_name, &l->room_name, sizeof *v, l->e);
    if (!v)
        return -ENOMEM;
    l->name = v;
    *ret = l->n_name;
    return query_copy(l->q, name, &l->name[l->n_name++].name, l->e);
}

static bool same_labels(const struct query_labels *a, const struct store_labels *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        if (!str_eq(a->v[i].name, b->v[i].name) || !str_eq(a->v[i].value, b->v[i].value))
            return false;
    }
    return true;
}

static bool same_parts(const struct step *a, const struct store_step *s)
{
    if (a->n_part != s->n_part)
        return false;
    for (uint32_t i = 0; i < a->n_part; i++) {
        if (!str_eq(a->part[i], s->part[i]))
            return false;
    }
    return true;
}

/* Names of parts and labels repeat from step to step: then the copies are shared. */
static int copy_parts(struct list *l, const struct store_step *s, struct step *to)
{
    const struct step *before = l->n ? &l->v[l->n - 1] : NULL;
    struct str *part;
    int64_t *ns;

    if (before && same_labels(&before->out.labels, &s->labels))
        to->out.labels = before->out.labels;
    else
        TRY(query_labels_copy(l->q, &s->labels, &to->out.labels, l->e));
    if (s->n_part == 0)
        return 0;
    QUERY_NEW(l->q, &ns, s->n_part, l->e);
    memcpy(ns, s->part_ns, s->n_part * sizeof *ns);
    to->out.part_ns = ns;
    to->n_part = s->n_part;
    if (before && same_parts(before, s)) {
        to->part = before->part;
        return 0;
    }
    QUERY_NEW(l->q, &part, s->n_part, l->e);
    for (uint32_t i = 0; i < s->n_part; i++)
        TRY(query_copy(l->q, s->part[i], &part[i], l->e));
    to->part = part;
    return 0;
}

static int add_step(struct list *l, const struct store_step *s)
{
    struct step to = {.order = l->n,
                      .out = {.owner = query_owner_of(&s->target),
                              .number = s->number,
                              .t = s->t,
                              .tid = s->tid,
                              .inferred = s->inferred}};
    const struct target_key *key = to.out.owner.known ? &s->target : NULL;
    struct step *v;
    int yes = query_takes(l->takes, &s->labels, key, s->tid, l->e);

    if (yes <= 0)
        return yes;
    TRY(name_of(l, s->name, &to.out.name));
    TRY(copy_parts(l, s, &to));
    v = query_grow(l->q, l->v, l->n, &l->room, sizeof *v, l->e);
    if (!v)
        return -ENOMEM;
    l->v = v;
    l->v[l->n++] = to;
    return l->n % 1024 ? 0 : query_alive(l->q, l->e);
}

static bool on_step(void *ctx, const struct store_step *s)
{
    struct list *l = ctx;

    l->r = add_step(l, s);
    return l->r == 0;
}

/* ---- durations ---------------------------------------------------------------------------------
 */

static int64_t dur(const struct query_step_row *r)
{
    return r->t.t1.v - r->t.t0.v;
}

static int ns_cmp(const void *va, const void *vb)
{
    int64_t a = *(const int64_t *)va, b = *(const int64_t *)vb;

    return (a > b) - (a < b);
}

/* The smallest duration that at least percent of them do not exceed. */
static int64_t quantile(const int64_t *sorted, uint32_t n, uint32_t percent)
{
    return sorted[((uint64_t)n * percent + 99) / 100 - 1];
}

static void summary(const int64_t *sorted, uint32_t n, struct query_step_name *ret)
{
    unit_i128 sum = 0;

    assert(n > 0);
    for (uint32_t i = 0; i < n; i++)
        sum += sorted[i];
    ret->n = n;
    ret->min_ns = sorted[0];
    ret->p50_ns = quantile(sorted, n, 50);
    ret->p90_ns = quantile(sorted, n, 90);
    ret->p99_ns = quantile(sorted, n, 99);
    ret->max_ns = sorted[n - 1];
    ret->mean_ns = (int64_t)((sum + n / 2) / n);
}

static int summaries(struct list *l, struct query_err *e)
{
    uint32_t *begin, *fill;
    int64_t *d;

    QUERY_NEW(l->q, &d, l->n, e);
    QUERY_NEW(l->q, &begin, (size_t)l->n_name + 1, e);
    QUERY_NEW(l->q, &fill, l->n_name, e);
    for (uint32_t i = 0; i < l->n; i++)
        begin[l->v[i].out.name + 1]++;
    for (uint32_t i = 0; i < l->n_name; i++) {
        begin[i + 1] += begin[i];
        fill[i] = begin[i];
    }
    for (uint32_t i = 0; i < l->n; i++)
        d[fill[l->v[i].out.name]++] = dur(&l->v[i].out);
    for (uint32_t i = 0; i < l->n_name; i++) {
        uint32_t n = begin[i + 1] - begin[i];

        if (n > 1)
            qsort(d + begin[i], n, sizeof *d, ns_cmp);
        summary(d + begin[i], n, &l->name[i]);
    }
    return 0;
}

/* ---- order and pages ---------------------------------------------------------------------------
 */

/*
 * Rows are in order of (first, start, process, number) where first is the start, or the duration
 * turned round; then as the store has them. A page ends behind a place in this order and the number
 * of rows that were given at it.
 */
struct place {
    uint64_t first, start, process, number;
};

static struct place place_of(const struct query_step_row *r, enum query_step_sort sort)
{
    /* the sign bit turned: negative instants come before positive ones */
    uint64_t start = (uint64_t)r->t.t0.v ^ (UINT64_C(1) << 63);

    return (struct place){sort == QUERY_STEPS_BY_DURATION ? ~(uint64_t)dur(r) : start, start,
                          r->owner.id, r->number};
}

static int place_cmp(const struct place *a, const struct place *b)
{
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->process != b->process)
        return a->process < b->process ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static int step_cmp(const struct step *a, const struct step *b, enum query_step_sort sort)
{
    struct place pa = place_of(&a->out, sort), pb = place_of(&b->out, sort);
    int r = place_cmp(&pa, &pb);

    return r ? r : (a->order > b->order) - (a->order < b->order);
}

static int by_time(const void *a, const void *b)
{
    return step_cmp(a, b, QUERY_STEPS_BY_TIME);
}

static int by_duration(const void *a, const void *b)
{
    return step_cmp(a, b, QUERY_STEPS_BY_DURATION);
}

static int after_parse(struct str s, struct place *ret, uint64_t *ret_same, struct query_err *e)
{
    uint64_t *field[] = {&ret->first, &ret->start, &ret->process, &ret->number, ret_same};

    for (size_t i = 0; i < 5; i++) {
        size_t dot = str_find(s, '.');

        if (!str_hex64(str_to(s, dot), field[i]) || (dot == SIZE_MAX) != (i == 4))
            return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "after",
                              "after is the next of a page before");
        s = dot == SIZE_MAX ? s : str_from(s, dot + 1);
    }
    return 0;
}

static int next_make(struct list *l, uint32_t end, struct str *ret, struct query_err *e)
{
    struct place last = place_of(&l->v[end - 1].out, l->ask->sort), p = last;
    uint64_t same = 0;
    char text[100];

    for (uint32_t i = end; i > 0 && place_cmp(&p, &last) == 0; i--) {
        p = place_of(&l->v[i - 1].out, l->ask->sort);
        same += place_cmp(&p, &last) == 0;
    }
    (void)snprintf(text, sizeof text, "%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64,
                   last.first, last.start, last.process, last.number, same);
    return query_copy(l->q, str_c(text), ret, e);
}

/* [*ret_begin, *ret_end) of the ordered rows. */
static int page(struct list *l, uint32_t *ret_begin, uint32_t *ret_end, struct query_err *e)
{
    struct place after;
    uint64_t same = 0;
    uint32_t from = 0;

    if (l->ask->after.n) {
        TRY(after_parse(l->ask->after, &after, &same, e));
        for (; from < l->n; from++) {
            struct place p = place_of(&l->v[from].out, l->ask->sort);
            int r = place_cmp(&p, &after);

            if (r > 0 || (r == 0 && same-- == 0))
                break;
        }
    }
    *ret_begin = from;
    *ret_end = l->n - from < l->ask->limit ? l->n : from + l->ask->limit;
    return 0;
}

/* ---- the answer --------------------------------------------------------------------------------
 */

static int text_cmp(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

/* Names of all parts on the page, and each row's values in that order. */
static int align_parts(struct list *l, uint32_t begin, uint32_t end, struct query_steps *ret,
                       struct query_err *e)
{
    const struct str *seen = NULL;
    struct str *part = NULL;
    uint32_t n = 0, room = 0, k = 0;

    for (uint32_t i = begin; i < end; i++) {
        if (l->v[i].part == seen)
            continue;
        seen = l->v[i].part;
        for (uint32_t p = 0; p < l->v[i].n_part; p++) {
            part = query_grow(l->q, part, n, &room, sizeof *part, e);
            if (!part)
                return -ENOMEM;
            part[n++] = seen[p];
        }
    }
    if (n > 1)
        qsort(part, n, sizeof *part, text_cmp);
    for (uint32_t i = 0; i < n; i++) {
        if (k == 0 || !str_eq(part[k - 1], part[i]))
            part[k++] = part[i];
    }
    ret->n_part = k;
    ret->part = part;
    for (uint32_t i = begin; i < end; i++) {
        struct step *s = &l->v[i];
        int64_t *ns;

        if (s->n_part == 0)
            continue;
        QUERY_NEW(l->q, &ns, k, e);
        for (uint32_t p = 0; p < k; p++) {
            ns[p] = -1;
            for (uint32_t j = 0; j < s->n_part; j++) {
                if (str_eq(s->part[j], part[p]))
                    ns[p] = s->out.part_ns[j];
            }
        }
        s->out.part_ns = ns;
    }
    return 0;
}

static int name_cmp(const void *va, const void *vb)
{
    const struct query_step_name *a = va, *b = vb;

    return str_cmp(a->name, b->name);
}

/* Names in order of their bytes; rows point to them by their place in it. */
static int sort_names(struct list *l, struct query_step_row *row, uint32_t n, struct query_err *e)
{
    struct query_step_name *sorted;

    QUERY_NEW(l->q, &sorted, l->n_name, e);
    if (l->n_name)
        memcpy(sorted, l->name, l->n_name * sizeof *sorted);
    if (l->n_name > 1)
        qsort(sorted, l->n_name, sizeof *sorted, name_cmp);
    for (uint32_t i = 0; i < n; i++) {
        const struct query_step_name *at =
            bsearch(&l->name[row[i].name], sorted, l->n_name, sizeof *sorted, name_cmp);

        row[i].name = (uint32_t)(at - sorted);
    }
    l->name = sorted;
    return 0;
}

static int read_steps(struct list *l, struct query_err *e)
{
    struct store_ask ask = {.range = l->q->head.range, .name = l->ask->name};
    struct err err = {};
    int r = store_steps(l->q->view, &ask, on_step, l, &err);

    if (l->r < 0)
        return l->r;
    if (r < 0)
        return query_store_failed(l->q, r, &err, e);
    l->q->head.partial |= r == STORE_PARTIAL;
    return 0;
}

int query_steps(struct query *q, const struct query_steps_ask *ask, struct query_steps *ret,
                struct query_err *e)
{
    struct query_takes takes;
    struct list l = {.q = q, .e = e, .ask = ask, .takes = &takes};
    struct query_steps s = {};
    struct query_step_row *row;
    uint32_t begin, end;

    assert(ask->limit > 0);
    TRY(query_takes_init(q, &takes, e));
    TRY(read_steps(&l, e));
    TRY(summaries(&l, e));
    if (l.n > 1)
        qsort(l.v, l.n, sizeof *l.v, ask->sort == QUERY_STEPS_BY_DURATION ? by_duration : by_time);
    TRY(page(&l, &begin, &end, e));
    TRY(align_parts(&l, begin, end, &s, e));
    QUERY_NEW(q, &row, end - begin, e);
    for (uint32_t i = begin; i < end; i++)
        row[i - begin] = l.v[i].out;
    TRY(sort_names(&l, row, end - begin, e));
    s.n = end - begin;
    s.row = row;
    s.n_name = l.n_name;
    s.name = l.name;
    if (end < l.n)
        TRY(next_make(&l, end, &s.next, e));
    *ret = s;
    return 0;
}
