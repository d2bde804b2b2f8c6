// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>

#include "query/query_private.h"

/*
 * Sums by bucket. Buckets start at the range's start, the last is cut at its end, so their sum is
 * the range's total whatever their length. A bucket that no source covered is unknown, not 0.
 *
 * Sources fold their samples over whole seconds and date them at the second's start. So a number of
 * points asked for becomes a bucket of whole seconds: else neighbours would hold, by turns, one
 * second more or less, and draw a wave that is not there.
 */

static int too_many(struct query *q, const char *param, uint64_t points, struct query_err *e)
{
    int r = query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, param, "%llu points, at most %u",
                       (unsigned long long)points, q->conf.max_points);

    e->setting = "query.max_points";
    e->limit = q->conf.max_points;
    e->actual = points;
    return r;
}

int query_bucket_length(struct query *q, const struct query_series_ask *ask, int64_t *ret,
                        struct query_err *e)
{
    int64_t len = 0, b;
    bool ok = interval_len(q->head.range, &len);

    assert(ok && len > 0);
    (void)ok;
    if (ask->points) {
        if (ask->points > q->conf.max_points)
            return too_many(q, "points", ask->points, e);
        b = (len - 1) / ask->points + 1;
        b = (b - 1) / NS_PER_S + 1; /* at most 2^34 s */
        *ret = b * NS_PER_S;
        return 0;
    }
    if (ask->bucket_ns < NS_PER_MS)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "bucket", "a bucket is at least 1ms");
    if ((uint64_t)((len - 1) / ask->bucket_ns + 1) > q->conf.max_points)
        return too_many(q, "bucket", (uint64_t)((len - 1) / ask->bucket_ns + 1), e);
    *ret = ask->bucket_ns;
    return 0;
}

/* The coarsest tier that was read. */
static int64_t resolution(const struct query *q)
{
    const struct store_answer *a = &q->gather->answer;
    int64_t r = 0;

    for (uint32_t i = 0; i < a->side[0].n_tier; i++) {
        if (a->side[0].tier[i].tier != STORE_RAW && a->side[0].tier[i].resolution_ns > r)
            r = a->side[0].tier[i].resolution_ns;
    }
    return r;
}

/* ---- which sources speak for a line ------------------------------------------------------------
 */

struct line_ctx {
    const struct query *q;
    bool all;       /* every source */
    uint32_t group; /* STORE_REST: all that no other group has */
};

static bool label_says(const struct query_cover *c, struct str name, struct str value)
{
    char text[20];

    for (uint32_t i = 0; i < c->labels.n; i++) {
        if (str_eq(c->labels.v[i].name, name))
            return str_eq(c->labels.v[i].value, value);
    }
    if (!c->has_target)
        return true;
    if (str_eq(name, STR("target")))
        (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)target_id(&c->target));
    else if (str_eq(name, STR("pid")))
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)c->target.pid);
    else
        return true; /* the source does not say: it covers every value */
    return str_eq(str_c(text), value);
}

static bool in_group(const struct query *q, const struct query_cover *c, uint32_t group)
{
    for (uint32_t i = 0; i < q->n_by; i++) {
        if (!label_says(c, q->by[i], q->gather->group[group].value[i]))
            return false;
    }
    return true;
}

static bool speaks(const struct line_ctx *l, const struct query_cover *c)
{
    const struct query *q = l->q;

    if (l->all)
        return true;
    if (l->group < q->gather->n_group)
        return in_group(q, c, l->group);
    for (uint32_t g = 0; g < q->gather->n_group; g++) {
        bool all = in_group(q, c, g);

        for (uint32_t i = 0; all && i < q->n_by; i++) {
            bool said = false;

            for (uint32_t k = 0; k < c->labels.n; k++)
                said |= str_eq(c->labels.v[k].name, q->by[i]);
            all = said;
        }
        if (all)
            return false; /* it names that group, so it is not of the rest */
    }
    return true;
}

static bool covers_line(const void *ctx, const struct query_cover *c)
{
    return c->covers && speaks(ctx, c);
}

/* ---- filling -----------------------------------------------------------------------------------
 */

struct line {
    struct query_line out;
    unit_i128 *value, *lost;
    uint64_t *samples;
    int64_t *covered;
};

struct interval query_bucket_at(const struct query *q, int64_t bucket_ns, uint32_t i)
{
    struct interval b = {q->head.range.t0, q->head.range.t1};
    int64_t end;

    b.t0.v += (int64_t)i * bucket_ns;
    if (!__builtin_add_overflow(b.t0.v, bucket_ns, &end) && end < b.t1.v)
        b.t1.v = end;
    return b;
}

/*
 * A loss belongs to the stretch that its record speaks of: spread evenly over it, in integers whose
 * sum is exact (each bucket gets what the running share has grown by).
 */
static void spread_loss(const struct query *q, int64_t bucket_ns, const struct query_cover *c,
                        unit_i128 weight, struct line *l, uint32_t n)
{
    int64_t len = c->t.t1.v - c->t.t0.v, from = c->t.t0.v - q->head.range.t0.v;
    unit_i128 given = 0;

    if (len <= 0) { /* an instant */
        uint32_t i = (uint32_t)(from / bucket_ns);

        if (from >= 0 && i < n && l->lost[i] != QUERY_UNKNOWN)
            l->lost[i] = weight == QUERY_UNKNOWN ? QUERY_UNKNOWN : l->lost[i] + weight;
        return;
    }
    for (int64_t i = from / bucket_ns; i < n; i++) {
        struct interval b = query_bucket_at(q, bucket_ns, (uint32_t)i);
        int64_t until = (b.t1.v < c->t.t1.v ? b.t1.v : c->t.t1.v) - c->t.t0.v;
        unit_i128 upto = weight / len * until + weight % len * until / len;

        if (l->lost[i] != QUERY_UNKNOWN)
            l->lost[i] = weight == QUERY_UNKNOWN ? QUERY_UNKNOWN : l->lost[i] + upto - given;
        given = upto;
        if (b.t1.v >= c->t.t1.v)
            break;
    }
}

static int cover_line(struct query *q, const struct query_evidence *ev, int64_t bucket_ns,
                      const struct line_ctx *ctx, struct line *l, uint32_t n, struct query_err *e)
{
    struct query_spans s = {};
    uint32_t at = 0;

    TRY(query_spans(q, ev, covers_line, ctx, &s, e));
    for (uint32_t i = 0; i < n; i++) {
        struct interval b = query_bucket_at(q, bucket_ns, i);

        while (at < s.n && s.v[at].t1.v <= b.t0.v)
            at++;
        for (uint32_t k = at; k < s.n && s.v[k].t0.v < b.t1.v; k++) {
            struct interval c = interval_cut(s.v[k], b);

            l->covered[i] += c.t1.v - c.t0.v;
        }
    }
    for (uint32_t i = 0; i < ev->n; i++) {
        const struct query_cover *c = &ev->cover[i];

        for (uint32_t k = 0; k < c->n_loss; k++) {
            if (speaks(ctx, c))
                spread_loss(q, bucket_ns, c, c->loss[k].weight, l, n);
        }
    }
    return 0;
}

static int new_line(struct query *q, struct line *l, uint32_t n, struct query_err *e)
{
    QUERY_NEW(q, &l->value, n, e);
    QUERY_NEW(q, &l->samples, n, e);
    QUERY_NEW(q, &l->covered, n, e);
    QUERY_NEW(q, &l->lost, n, e);
    return 0;
}

static void add_acc(struct line *l, const struct query_acc *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        l->value[i] += a->sum[i];
        if (query_bit(a->unknown, i) || l->samples[i] == BATCH_UNKNOWN)
            l->samples[i] = BATCH_UNKNOWN;
        else
            l->samples[i] += a->count[i];
    }
}

/* Fixed point to integers; what is neither covered nor there becomes unknown. */
static void finish_line(const struct query *q, struct line *l, uint32_t n)
{
    bool any = false;

    for (uint32_t i = 0; i < n; i++) {
        if (q->head.agg != QUERY_SUM)
            l->value[i] = query_round(l->value[i]);
        if ((l->covered[i] == 0 && l->samples[i] == 0 && l->value[i] == 0) || query_no_steps(q)) {
            l->value[i] = QUERY_UNKNOWN;
            continue;
        }
        any = true;
        l->out.total += l->value[i];
    }
    if (!any || q->head.agg != QUERY_SUM) /* a level is never added over time */
        l->out.total = QUERY_UNKNOWN;
    l->out.value = l->value;
    l->out.samples = l->samples;
    l->out.covered_ns = l->covered;
    l->out.lost = l->lost;
}

/* Coverage and loss of the whole. Without groups the one line has them. */
static int fill_whole(struct query *q, const struct query_evidence *ev, const struct line *line,
                      struct query_series *ret, struct query_err *e)
{
    struct line_ctx ctx = {.q = q, .all = true};
    struct line l = line[0];

    if (q->n_by) {
        TRY(new_line(q, &l, ret->n, e));
        TRY(cover_line(q, ev, ret->bucket_ns, &ctx, &l, ret->n, e));
    }
    ret->covered_ns = l.covered;
    ret->lost = l.lost;
    return 0;
}

static int fill(struct query *q, const struct query_evidence *ev, struct query_series *ret,
                struct query_err *e)
{
    const struct query_gather *g = q->gather;
    uint32_t n_line = q->n_by ? g->n_group + 1 : 1, n_out = 0;
    struct query_line *out;
    struct line *line;
    bool rest = false;

    QUERY_NEW(q, &line, n_line, e);
    QUERY_NEW(q, &out, n_line, e);
    for (uint32_t i = 0; i < n_line; i++)
        TRY(new_line(q, &line[i], ret->n, e));
    for (uint32_t i = 0; i < g->n_acc; i++) {
        uint32_t at = !q->n_by ? 0 : g->acc[i]->group < g->n_group ? g->acc[i]->group : g->n_group;

        rest |= q->n_by && at == g->n_group;
        add_acc(&line[at], g->acc[i]);
    }
    for (uint32_t i = 0; i < n_line; i++) {
        struct line_ctx ctx = {.q = q, .all = !q->n_by, .group = i < g->n_group ? i : STORE_REST};

        if (q->n_by && i == g->n_group && !rest)
            break;
        TRY(query_alive(q, e));
        TRY(cover_line(q, ev, ret->bucket_ns, &ctx, &line[i], ret->n, e));
        line[i].out.rest = q->n_by && i == g->n_group;
        for (uint32_t k = 0; k < q->n_by && !line[i].out.rest; k++)
            line[i].out.label[k] = g->group[i].value[k];
        finish_line(q, &line[i], ret->n);
        out[n_out++] = line[i].out;
    }
    ret->n_line = n_out;
    ret->line = out;
    return fill_whole(q, ev, line, ret, e);
}

static unit_i128 amount(const struct query *q, const struct query_amount *a)
{
    return q->head.agg == QUERY_SUM ? a->total : query_round(a->total);
}

/*
 * The whole range as one number: of sums what the buckets add up to, of levels a scan of its own.
 * Filters need one more, of what there was before them.
 */
static int whole(struct query *q, struct query_totals *ret, struct query_err *e)
{
    struct query_amount shown, all;
    double var = 0;

    if (q->head.agg != QUERY_SUM)
        TRY(query_gather_whole(q, true, &shown, e));
    else
        shown = query_gather_amount(q->gather, 0);
    for (uint32_t i = 0; i < q->gather->n_acc; i++) {
        const struct query_acc *a = q->gather->acc[i];

        for (uint32_t k = 0; k < a->n && var >= 0; k++)
            var = a->var && !a->var_missing ? var + a->var[k] : -1;
    }
    all = shown;
    if (q->filters.drops)
        TRY(query_gather_whole(q, false, &all, e));
    *ret = (struct query_totals){.total = amount(q, &shown),
                                 .samples = shown.samples,
                                 .whole = amount(q, &all),
                                 .whole_samples = all.samples,
                                 .var = q->gather->n_acc ? var : -1};
    return 0;
}

int query_series(struct query *q, const struct query_series_ask *ask, struct query_series *ret,
                 struct query_err *e)
{
    struct query_series s = {.base = q->head.range.t0, .n_by = q->n_by};
    struct query_evidence ev = {};
    struct query_totals totals = {};
    int64_t len = 0;
    bool ok = interval_len(q->head.range, &len);

    assert(ok);
    (void)ok;
    memcpy(s.by, q->by, sizeof s.by);
    TRY(query_bucket_length(q, ask, &s.bucket_ns, e));
    TRY(query_gather(q, s.bucket_ns, e));
    if (resolution(q) > s.bucket_ns) {
        s.bucket_ns = resolution(q);
        s.raised = true;
        TRY(query_gather(q, s.bucket_ns, e));
    }
    assert(s.bucket_ns > 0);
    s.n = (uint32_t)((len - 1) / s.bucket_ns + 1);
    TRY(query_evidence(q, &ev, e));
    TRY(fill(q, &ev, &s, e));
    TRY(whole(q, &totals, e));
    TRY(query_sums(q, &ev, &totals, &s.sum, e));
    *ret = s;
    return 0;
}
