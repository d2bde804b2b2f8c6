// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/query_private.h"

/*
 * Metrics: numbers that sources read beside the profiles. A series (name, unit, labels, process) is
 * never added to another, so units cannot mix. A bucket without a reading holds no number; a gauge
 * holds what was read in it; a counter is answered as its growth per second.
 *
 * Growth is known between two readings, so it is spread evenly over the time between them, and a
 * bucket's rate is what falls into it over the time for which anything is known. Readings further
 * apart than NEAR_NS and than a bucket say nothing about the buckets between them. A counter that
 * fell began anew at a time that nobody knows: that stretch is a gap, never negative growth.
 */
#define NEAR_NS (300 * NS_PER_S)

const char *query_metric_agg_word(enum query_metric_agg agg)
{
    static const char *const words[] = {"auto", "avg", "min", "max", "last", "rate"};

    return words[agg];
}

const char *query_metric_status_word(uint8_t status)
{
    switch (status) {
    case METRIC_OK:
        return "ok";
    case METRIC_UNSUPPORTED:
        return "unsupported";
    case METRIC_DENIED:
        return "denied";
    case METRIC_DEVICE_LOST:
        return "device_lost";
    case METRIC_READ_ERROR:
        return "read_error";
    case QUERY_METRIC_RESET:
        return "reset";
    case QUERY_METRIC_OUT_OF_RANGE:
        return "out_of_range";
    case QUERY_METRIC_NO_DATA:
    default:
        return "no_data";
    }
}

/* ---- which series ------------------------------------------------------------------------------
 */

static uint64_t metric_id(const struct store_metric *m)
{
    uint64_t h = hash_mix(m->kind);

    h = hash_mix(h ^ hash_str(m->name));
    h = hash_mix(h ^ hash_str(m->unit));
    for (uint32_t i = 0; i < m->labels.n; i++) {
        h = hash_mix(h ^ hash_str(m->labels.v[i].name));
        h = hash_mix(h ^ hash_str(m->labels.v[i].value));
    }
    if (m->target)
        h = hash_mix(h ^ target_id(m->target));
    return hash_mix(h ^ (m->inum != NULL));
}

static int metric_copy(struct query *q, const struct store_metric *m, struct query_metric *ret,
                       struct query_err *e)
{
    ret->id = metric_id(m);
    ret->kind = m->kind;
    ret->owner = query_owner_of(m->target);
    TRY(query_copy(q, m->name, &ret->name, e));
    TRY(query_copy(q, m->unit, &ret->unit, e));
    return query_labels_copy(q, &m->labels, &ret->labels, e);
}

static int metric_cmp(const struct query_metric *a, const struct query_metric *b)
{
    int r = str_cmp(a->name, b->name);

    if (r == 0)
        r = str_cmp(a->unit, b->unit);
    return r ? r : (a->id > b->id) - (a->id < b->id);
}

static enum metric_status status_at(const struct store_metric *m, uint32_t i)
{
    return m->status ? (enum metric_status)m->status[i] : METRIC_OK;
}

/* ---- the list ----------------------------------------------------------------------------------
 */

struct list {
    struct query *q;
    struct query_err *e;
    const struct query_takes *takes;
    struct query_metric_row *v;
    uint32_t n, room;
    int r;
};

static void set_last(struct query_metric_row *row, const struct store_metric *m)
{
    row->status = status_at(m, m->n - 1);
    row->is_int = m->inum != NULL;
    if (m->inum)
        row->inum = m->inum[m->n - 1];
    else
        row->num = m->num[m->n - 1];
    row->seen.t1 = m->t[m->n - 1];
}

static int add_row(struct list *l, const struct store_metric *m)
{
    int yes = query_takes(l->takes, &m->labels, m->target, 0, l->e);
    struct query_metric_row *row;

    if (yes <= 0 || m->n == 0)
        return yes < 0 ? yes : 0;
    if (l->n && l->v[l->n - 1].metric.id == metric_id(m)) { /* the next piece of the series */
        l->v[l->n - 1].n += m->n;
        set_last(&l->v[l->n - 1], m);
        return 0;
    }
    row = query_grow(l->q, l->v, l->n, &l->room, sizeof *row, l->e);
    if (!row)
        return -ENOMEM;
    l->v = row;
    row = &l->v[l->n++];
    *row = (struct query_metric_row){.n = m->n, .seen = {m->t[0], m->t[0]}};
    set_last(row, m);
    TRY(metric_copy(l->q, m, &row->metric, l->e));
    return query_alive(l->q, l->e);
}

static bool on_row(void *ctx, const struct store_metric *m)
{
    struct list *l = ctx;

    l->r = add_row(l, m);
    return l->r == 0;
}

static int row_cmp(const void *a, const void *b)
{
    const struct query_metric_row *x = a, *y = b;

    return metric_cmp(&x->metric, &y->metric);
}

/* name {NULL, 0}: all */
static int list_named(struct list *l, struct str name)
{
    struct query *q = l->q;
    struct store_ask ask = {.range = q->head.range, .name = name};
    struct err err = {};
    int r = store_metrics(q->view, &ask, on_row, l, &err);

    if (l->r < 0)
        return l->r;
    if (r < 0)
        return query_store_failed(q, r, &err, l->e);
    q->head.partial |= r == STORE_PARTIAL;
    return 0;
}

int query_metrics(struct query *q, const struct str *name, uint32_t n_name, uint32_t limit,
                  uint64_t after, struct query_metrics *ret, struct query_err *e)
{
    struct query_takes takes;
    struct list l = {.q = q, .e = e, .takes = &takes};
    uint32_t from = 0;

    TRY(query_takes_init(q, &takes, e));
    if (n_name == 0)
        TRY(list_named(&l, (struct str){NULL, 0}));
    for (uint32_t i = 0; i < n_name; i++)
        TRY(list_named(&l, name[i]));
    if (l.n > 1)
        qsort(l.v, l.n, sizeof *l.v, row_cmp);
    while (after && from < l.n && l.v[from].metric.id != after)
        from++;
    if (after && from++ == l.n)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "after",
                          "after is no metric of this answer: begin again without it");
    *ret = (struct query_metrics){l.n - from, l.v ? l.v + from : NULL, false};
    if (ret->n > limit) {
        ret->n = limit;
        ret->truncated = true;
    }
    return 0;
}

/* ---- buckets -----------------------------------------------------------------------------------
 */

/* One line while it is being made. */
struct line {
    double *num, *sum;
    int64_t *inum;
    uint8_t *status;
    uint64_t *count;
    int64_t *known; /* counters: time for which something is known */
    bool any;       /* counters: there was a reading before, */
    real_ns t;      /* at this instant, with this number */
    double last;
    int64_t ilast;
};

struct filler {
    struct query *q;
    struct query_err *e;
    const struct query_metric_ask *ask;
    const struct query_takes *takes;
    int64_t bucket_ns, near_ns;
    uint32_t n_bucket;
    struct query_metric_line *v;
    uint32_t n, room;
    struct line l; /* of v[n - 1] */
    int r;
};

static bool bucket_of(const struct filler *f, real_ns t, uint32_t *ret)
{
    if (!interval_has(f->q->head.range, t))
        return false;
    *ret = (uint32_t)((t.v - f->q->head.range.t0.v) / f->bucket_ns);
    return true;
}

/* The number that reading i has for this aggregate: beyond raw retention minutes have three. */
static double number(const struct store_metric *m, uint32_t i, enum query_metric_agg agg)
{
    if (agg == QUERY_METRIC_AVG && m->mean)
        return m->mean[i];
    if (agg == QUERY_METRIC_MIN && m->min)
        return m->min[i];
    if (agg == QUERY_METRIC_MAX && m->max)
        return m->max[i];
    return m->num ? m->num[i] : (double)m->inum[i];
}

static void add_gauge(struct line *l, const struct store_metric *m, uint32_t i,
                      enum query_metric_agg agg, uint32_t b)
{
    uint64_t n = m->readings ? m->readings[i] : 1;
    double v = number(m, i, agg);
    bool first = l->count[b] == 0;

    if (agg == QUERY_METRIC_AVG)
        l->sum[b] += v * (double)n;
    else if (l->inum)
        l->inum[b] = m->inum[i];
    else if (first || agg == QUERY_METRIC_LAST ||
             (agg == QUERY_METRIC_MIN ? v < l->num[b] : v > l->num[b]))
        l->num[b] = v;
    l->count[b] += n;
    l->status[b] = METRIC_OK;
}

/* Spread over the buckets that t touches. */
static void spread(const struct filler *f, struct interval t, double grown)
{
    struct interval c = interval_cut(t, f->q->head.range);
    const struct line *l = &f->l;

    if (c.t0.v >= c.t1.v)
        return;
    for (int64_t b = (c.t0.v - f->q->head.range.t0.v) / f->bucket_ns; b < f->n_bucket; b++) {
        struct interval in = interval_cut(query_bucket_at(f->q, f->bucket_ns, (uint32_t)b), c);

        if (in.t0.v >= in.t1.v)
            break;
        l->sum[b] += grown * ((double)(in.t1.v - in.t0.v) / (double)(t.t1.v - t.t0.v));
        l->known[b] += in.t1.v - in.t0.v;
    }
}

/* Buckets that hold nothing else say why: the ends of the stretch are enough to see it. */
static void mark_reset(const struct filler *f, struct interval t)
{
    const real_ns end[] = {t.t0, {t.t1.v - 1}};

    for (int i = 0; i < 2; i++) {
        uint32_t b;

        if (bucket_of(f, end[i], &b) && f->l.status[b] == QUERY_METRIC_NO_DATA)
            f->l.status[b] = QUERY_METRIC_RESET;
    }
}

static void add_counter(struct filler *f, const struct store_metric *m, uint32_t i)
{
    struct query_metric_line *out = &f->v[f->n - 1];
    struct line *l = &f->l;
    struct interval t = {l->t, m->t[i]};
    int64_t len;

    if (l->any && interval_len(t, &len) && len > 0 && len <= f->near_ns) {
        double grown = m->num ? m->num[i] - l->last : (double)((unit_i128)m->inum[i] - l->ilast);

        if (grown >= 0) {
            spread(f, t, grown);
        } else {
            out->resets += interval_has(f->q->head.range, t.t1);
            mark_reset(f, t);
        }
    }
    l->any = true;
    l->t = m->t[i];
    l->last = m->num ? m->num[i] : 0;
    l->ilast = m->inum ? m->inum[i] : 0;
}

/* Readings come in order of time. A failed one says why its bucket is empty, if it is. */
static void add_readings(struct filler *f, const struct store_metric *m)
{
    struct query_metric_line *out = &f->v[f->n - 1];

    for (uint32_t i = 0; i < m->n; i++) {
        enum metric_status status = status_at(m, i);
        uint32_t b = 0;
        bool inside = bucket_of(f, m->t[i], &b);

        if (status != METRIC_OK) {
            if (inside && f->l.count[b] == 0)
                f->l.status[b] = (uint8_t)status;
            continue;
        }
        out->readings += inside;
        if (out->agg == QUERY_METRIC_RATE)
            add_counter(f, m, i);
        else if (inside)
            add_gauge(&f->l, m, i, out->agg, b);
    }
}

static void finish_number(struct line *l, enum query_metric_agg agg, uint32_t b)
{
    if (agg == QUERY_METRIC_RATE && l->known[b]) {
        l->num[b] = l->sum[b] / (double)l->known[b] * 1e9;
        l->status[b] = METRIC_OK;
    } else if (agg == QUERY_METRIC_AVG && l->count[b]) {
        l->num[b] = l->sum[b] / (double)l->count[b];
    }
    if (l->status[b] == METRIC_OK && !isfinite(l->num[b]))
        l->status[b] = QUERY_METRIC_OUT_OF_RANGE;
}

static void finish_line(struct filler *f)
{
    struct query_metric_line *out;
    struct line *l = &f->l;
    bool any = false;

    if (f->n == 0)
        return;
    out = &f->v[f->n - 1];
    for (uint32_t b = 0; b < f->n_bucket; b++) {
        if (l->num)
            finish_number(l, out->agg, b);
        any |= l->status[b] != QUERY_METRIC_NO_DATA;
    }
    if (!any) { /* all of it lies beside the range */
        f->n--;
        return;
    }
    out->num = l->num;
    out->inum = l->inum;
    out->status = l->status;
}

static int choose_agg(const struct filler *f, const struct store_metric *m,
                      enum query_metric_agg *ret, struct query_err *e)
{
    *ret = f->ask->agg;
    if (*ret == QUERY_METRIC_AUTO)
        *ret = m->kind == METRIC_COUNTER ? QUERY_METRIC_RATE : QUERY_METRIC_AVG;
    if (*ret == QUERY_METRIC_RATE && m->kind != METRIC_COUNTER)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "agg",
                          "agg=rate is for counters, and %.*s is a gauge",
                          STR_ARG(str_to(m->name, 80)));
    return 0;
}

static int too_many(const struct filler *f)
{
    int r = query_fail(f->e, -E2BIG, QUERY_TOO_MANY_SERIES, "q",
                       "more than %u series have this name: narrow the selector or raise limit",
                       f->ask->limit);

    f->e->setting = "limit";
    f->e->limit = f->ask->limit;
    f->e->actual = (uint64_t)f->ask->limit + 1;
    return r;
}

static int new_line(struct filler *f, const struct store_metric *m, struct query_err *e)
{
    struct query_metric_line *out;
    struct line l = {};

    if (f->n == f->ask->limit)
        return too_many(f);
    out = query_grow(f->q, f->v, f->n, &f->room, sizeof *out, e);
    if (!out)
        return -ENOMEM;
    f->v = out;
    out = &f->v[f->n];
    *out = (struct query_metric_line){};
    TRY(metric_copy(f->q, m, &out->metric, e));
    TRY(choose_agg(f, m, &out->agg, e));
    if (m->inum && out->agg == QUERY_METRIC_LAST)
        QUERY_NEW(f->q, &l.inum, f->n_bucket, e);
    else
        QUERY_NEW(f->q, &l.num, f->n_bucket, e);
    QUERY_NEW(f->q, &l.status, f->n_bucket, e);
    QUERY_NEW(f->q, &l.count, f->n_bucket, e);
    QUERY_NEW(f->q, &l.sum, f->n_bucket, e);
    QUERY_NEW(f->q, &l.known, f->n_bucket, e);
    memset(l.status, QUERY_METRIC_NO_DATA, f->n_bucket);
    f->l = l;
    f->n++;
    return 0;
}

/* A series may come in several pieces, one behind the other: from minutes, then raw. */
static int add_piece(struct filler *f, const struct store_metric *m)
{
    int yes = query_takes(f->takes, &m->labels, m->target, 0, f->e);

    if (yes <= 0)
        return yes;
    if (f->n == 0 || f->v[f->n - 1].metric.id != metric_id(m)) {
        finish_line(f);
        TRY(new_line(f, m, f->e));
    }
    add_readings(f, m);
    return query_alive(f->q, f->e);
}

static bool on_piece(void *ctx, const struct store_metric *m)
{
    struct filler *f = ctx;

    f->r = add_piece(f, m);
    return f->r == 0;
}

static int line_cmp(const void *a, const void *b)
{
    const struct query_metric_line *x = a, *y = b;

    return metric_cmp(&x->metric, &y->metric);
}

/* Counters need the readings on both sides of the range. */
static struct interval widened(struct interval t, int64_t by)
{
    if (__builtin_sub_overflow(t.t0.v, by, &t.t0.v))
        t.t0.v = INT64_MIN;
    if (__builtin_add_overflow(t.t1.v, by, &t.t1.v))
        t.t1.v = INT64_MAX;
    return t;
}

int query_metric_lines(struct query *q, const struct query_metric_ask *ask,
                       struct query_metric_lines *ret, struct query_err *e)
{
    struct query_takes takes;
    struct filler f = {.q = q, .e = e, .ask = ask, .takes = &takes};
    struct store_ask sa = {.name = ask->name};
    struct err err = {};
    int64_t len = 0;
    bool ok = interval_len(q->head.range, &len);
    int r;

    assert(ok && len > 0 && ask->name.n > 0);
    (void)ok;
    TRY(query_bucket_length(q, &ask->bucket, &f.bucket_ns, e));
    f.near_ns = f.bucket_ns > NEAR_NS ? f.bucket_ns : NEAR_NS;
    f.n_bucket = (uint32_t)((len - 1) / f.bucket_ns + 1);
    sa.range = widened(q->head.range, f.near_ns);
    TRY(query_takes_init(q, &takes, e));
    r = store_metrics(q->view, &sa, on_piece, &f, &err);
    if (f.r < 0)
        return f.r;
    if (r < 0)
        return query_store_failed(q, r, &err, e);
    q->head.partial |= r == STORE_PARTIAL;
    finish_line(&f);
    if (f.n > 1)
        qsort(f.v, f.n, sizeof *f.v, line_cmp);
    *ret = (struct query_metric_lines){.base = q->head.range.t0,
                                       .bucket_ns = f.bucket_ns,
                                       .n = f.n_bucket,
                                       .n_line = f.n,
                                       .line = f.v};
    return 0;
}
