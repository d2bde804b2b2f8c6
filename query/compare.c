// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "query/diff_private.h"

/*
 * Two sides: what each is divided by, what a difference between them is worth, and what has to be
 * said beside it.
 */

#define MIN_SAMPLES  30
#define LOSS_APART   0.005
#define WARNINGS_MAX 8

/* ---- denominators ------------------------------------------------------------------------------
 */

int query_diff_check(const struct query *q, const struct query_diff_ask *ask, struct query_err *e)
{
    const struct query_type *t = &q->head.type;

    TRY(query_max_nodes(ask->max_nodes, e));
    if (q->head.agg != QUERY_SUM &&
        (ask->norm == QUERY_NORM_SECOND || ask->norm == QUERY_NORM_STEP))
        return query_fail(e, -EINVAL, QUERY_NORM_NOT_FOR_LEVEL, "norm",
                          "%.*s is a level: norm is none or share", STR_ARG(str_to(t->name, 60)));
    if (str_eq(t->name, STR("samples")) && str_eq(t->unit, STR("count")))
        return query_fail(e, -EINVAL, QUERY_PERIOD_UNKNOWN, "norm",
                          "samples:count are observations of unknown period: how many there are "
                          "depends on how often one looked");
    return 0;
}

int query_diff_side_sums(struct query_differ *d, uint32_t k, struct query_err *e)
{
    struct query_diff_side *s = &d->ret->side[k];
    const struct query_coverage *c;

    TRY(query_shape_sums(d->q[k], &d->s, &s->sum, e));
    s->head = d->q[k]->head;
    c = &s->sum.coverage;
    s->seconds = c->sources && c->source_ns > 0 ? (double)c->source_ns / 1e9 : -1;
    s->steps = s->head.step.name.n ? s->head.step.whole : BATCH_UNKNOWN;
    s->share = s->sum.whole.total;
    s->view = s->sum.total == QUERY_UNKNOWN ? QUERY_UNKNOWN : d->s.t->w[k].total[d->root];
    return 0;
}

/* Why side k cannot be divided; NULL: it can. */
static const char *divide(const struct query_differ *d, struct query_diff_side *s, uint32_t k)
{
    static const char *const why[][2] = {{"a_not_covered", "b_not_covered"},
                                         {"a_coverage_unknown", "b_coverage_unknown"},
                                         {"a_zero_total", "b_zero_total"},
                                         {"a_no_steps", "b_no_steps"}};

    if (d->ret->norm == QUERY_NORM_STEP && (s->steps == 0 || s->steps == BATCH_UNKNOWN))
        return why[3][k];
    if (s->sum.whole.total == QUERY_UNKNOWN)
        return why[0][k];
    switch (d->ret->norm) {
    case QUERY_NORM_STEP:
        s->norm = (double)s->steps;
        return NULL;
    case QUERY_NORM_SECOND:
        if (s->seconds <= 0)
            return why[1][k];
        s->norm = s->seconds;
        return NULL;
    case QUERY_NORM_SHARE:
        if (s->share <= 0)
            return why[2][k];
        s->norm = (double)s->share;
        return NULL;
    case QUERY_NORM_DEFAULT:
    case QUERY_NORM_NONE:
    default:
        s->norm = 1;
        return NULL;
    }
}

void query_diff_compare(struct query_differ *d)
{
    struct query_diff *r = d->ret;

    r->norm = d->ask->norm;
    if (r->norm == QUERY_NORM_DEFAULT) {
        bool steps = r->side[0].steps != BATCH_UNKNOWN && r->side[1].steps != BATCH_UNKNOWN;

        r->norm = d->q[0]->head.agg != QUERY_SUM ? QUERY_NORM_NONE
                  : steps                        ? QUERY_NORM_STEP
                                                 : QUERY_NORM_SECOND;
    }
    for (uint32_t k = 2; k-- > 0;) { /* what B lacks is said first: A is the older one */
        const char *why = divide(d, &r->side[k], k);

        if (!r->why_not)
            r->why_not = why;
    }
    r->comparable = !r->why_not;
}

/* ---- what a difference is worth ----------------------------------------------------------------
 */

double query_diff_value(const struct query_differ *d, uint32_t k, unit_i128 v)
{
    return (double)v / d->ret->side[k].norm;
}

/* The variance of a sum on one side, divided twice; negative: unknown. */
static double side_var(const struct query_differ *d, uint32_t k, unit_i128 value, uint64_t samples,
                       double var)
{
    const struct query_diff_side *s = &d->ret->side[k];
    double v =
        d->q[k]->head.agg == QUERY_SUM ? query_variance(&s->sum.quality, value, samples, var) : -1;

    return v < 0 ? -1 : v / s->norm / s->norm;
}

struct query_delta query_diff_delta(const struct query_differ *d, const unit_i128 self[2],
                                    const unit_i128 total[2], const uint64_t samples[2],
                                    const double var[2])
{
    double v[2] = {side_var(d, 0, total[0], samples[0], var[0]),
                   side_var(d, 1, total[1], samples[1], var[1])};
    struct query_delta r = {
        .self = query_diff_value(d, 1, self[1]) - query_diff_value(d, 0, self[0]),
        .total = query_diff_value(d, 1, total[1]) - query_diff_value(d, 0, total[0]),
        .se = v[0] < 0 || v[1] < 0 ? -1 : sqrt(v[0] + v[1])};

    if (r.se >= 0 && samples[0] != BATCH_UNKNOWN && samples[1] != BATCH_UNKNOWN &&
        samples[0] + samples[1] >= MIN_SAMPLES && fabs(r.total) >= 2 * r.se)
        r.sig = (r.total > 0) - (r.total < 0);
    return r;
}

enum query_state query_diff_state(const unit_i128 total[2], const uint64_t samples[2])
{
    bool a = total[0] || samples[0], b = total[1] || samples[1];

    return a == b ? QUERY_BOTH : a ? QUERY_ONLY_A : QUERY_ONLY_B;
}

/* The stretch of a range in which anyone looked at all: an end without data is no variation. */
static struct interval watched(const struct query_diff_side *s)
{
    const struct query_coverage *c = &s->sum.coverage;
    struct interval t = s->head.range;

    if (c->n_gap && c->gap[0].t.t0.v == t.t0.v)
        t.t0 = c->gap[0].t.t1;
    if (c->n_gap && !c->gaps_more && c->gap[c->n_gap - 1].t.t1.v == t.t1.v)
        t.t1 = c->gap[c->n_gap - 1].t.t0;
    return t;
}

bool query_diff_wants_spread(const struct query_differ *d, uint32_t k)
{
    return d->ret->comparable && d->q[k]->head.agg == QUERY_SUM &&
           d->ret->side[k].sum.quality.basis == 1u << BASIS_EVERY;
}

int query_diff_spreads(struct query_differ *d, struct query_err *e)
{
    for (uint32_t k = 0; k < 2; k++) {
        const struct query_diff_side *s = &d->ret->side[k];

        if (query_diff_wants_spread(d, k))
            TRY(query_spread(d->q[k], &d->s, watched(s), d->ask->table, &d->spread[k], e));
    }
    return 0;
}

double query_diff_var(const struct query_differ *d, uint32_t k, uint32_t i)
{
    if (d->spread[k])
        return d->spread[k][i];
    return d->s.t->w[k].var ? d->s.t->w[k].var[i] : -1;
}

/* ---- warnings ----------------------------------------------------------------------------------
 */

struct warnings {
    struct query *q;
    struct str v[WARNINGS_MAX];
    uint32_t n;
};

[[gnu::format(printf, 3, 4)]] static int warn(struct warnings *w, struct query_err *e,
                                              const char *fmt, ...)
{
    char text[200];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    assert(w->n < WARNINGS_MAX);
    return n < 0 ? 0 : query_copy(w->q, str_c(text), &w->v[w->n++], e);
}

/* Lost, of what was lost and what came; negative: unknown. */
static double loss_of(const struct query_sums *s)
{
    double lost = 0, all;

    if (s->whole.total == QUERY_UNKNOWN || s->coverage.sources == 0)
        return -1;
    for (uint32_t i = 0; i < s->quality.n_loss; i++) {
        if (s->quality.loss[i].weight == QUERY_UNKNOWN)
            return -1;
        lost += (double)s->quality.loss[i].weight;
    }
    all = lost + (double)s->whole.total;
    return all > 0 ? lost / all : 0;
}

static bool other_periods(const struct query_quality *a, const struct query_quality *b)
{
    if (a->n_period == 0 || b->n_period == 0) /* said by its coverage */
        return false;
    return a->n_period != b->n_period ||
           memcmp(a->period, b->period, a->n_period * sizeof *a->period) != 0;
}

static bool minutes(const struct query_coverage *c)
{
    for (uint32_t i = 0; i < c->n_tier; i++) {
        if (strcmp(c->tier[i].tier, "raw") != 0)
            return true;
    }
    return false;
}

int query_diff_warnings(struct query_differ *d, struct query_err *e)
{
    const struct query_sums *a = &d->ret->side[0].sum, *b = &d->ret->side[1].sum;
    double la = loss_of(a), lb = loss_of(b);
    struct warnings w = {.q = d->q[0]};
    struct str *v;

    if (la >= 0 && lb >= 0 && fabs(la - lb) > LOSS_APART)
        TRY(warn(&w, e, "loss_differs: A lost %.1f %%, B lost %.1f %%", 100 * la, 100 * lb));
    else if (d->ret->comparable && (la < 0) != (lb < 0))
        TRY(warn(&w, e, "loss_unknown: what %s lost is not known", la < 0 ? "A" : "B"));
    if (other_periods(&a->quality, &b->quality))
        TRY(warn(&w, e, "periods_differ: A and B were sampled at different periods"));
    if (minutes(&a->coverage) || minutes(&b->coverage))
        TRY(warn(&w, e, "coarse: %s read from data kept by the minute",
                 minutes(&a->coverage) && minutes(&b->coverage) ? "both sides are"
                 : minutes(&a->coverage)                        ? "A is"
                                                                : "B is"));
    QUERY_NEW(d->q[0], &v, w.n, e);
    if (w.n)
        memcpy(v, w.v, w.n * sizeof *v);
    d->ret->warning = v;
    d->ret->n_warning = w.n;
    return 0;
}
