// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "query/query_private.h"

/*
 * What sources say about a range, made into numbers.
 *
 *   covered      union over sources of the stretches in which one looked: state ok, and the batch
 *                was not lost on its way
 *   source time  the same added over sources; asked of each from its first record to its end, if
 *                it ended, else to the end of the range
 *   gaps         what the union leaves of the range
 *
 * A stretch in which a source looked and saw nothing is covered and zero. One whose whole batch was
 * given up (spool_drop, ...) is asked, not covered, and its loss stands beside the total.
 */

#define SKEW_WARN_NS   NS_PER_S
#define UNKNOWN_WORK   4000000 /* series x scopes that are compared at most */
#define UNKNOWN_SERIES 20000
#define WARNINGS_MAX   32
#define PERIODS_MAX    32

static bool lost_whole(const struct query_cover *c)
{
    static const struct str whole[] = {STR("spool_drop"), STR("send_rejected"),
                                       STR("replay_failed"), STR("sender_gave_up")};

    if (c->n_loss == 0 || (c->received != 0 && c->received != BATCH_UNKNOWN))
        return false;
    for (uint32_t i = 0; i < c->n_loss; i++) {
        for (size_t k = 0; k < sizeof whole / sizeof whole[0]; k++) {
            if (str_eq(c->loss[i].why, whole[k]))
                return true;
        }
    }
    return false;
}

/* ---- reading the records -----------------------------------------------------------------------
 */

struct reader {
    struct query *q;
    struct query_evidence *ev;
    uint32_t room;
    int r;
    struct query_err *e;
    struct map text; /* hash of a text -> where its copy is + 1: reasons repeat in every record */
};

static int copy_losses(struct reader *rd, const struct store_cover *c, struct query_cover *to)
{
    if (c->n_loss == 0)
        return 0;
    QUERY_NEW(rd->q, &to->loss, c->n_loss, rd->e);
    for (uint32_t i = 0; i < c->n_loss; i++) {
        TRY(query_copy(rd->q, c->loss[i].why, &to->loss[i].why, rd->e));
        to->loss[i].n = c->loss[i].n;
        to->loss[i].weight =
            c->loss[i].weight == BATCH_NO_WEIGHT ? QUERY_UNKNOWN : c->loss[i].weight;
    }
    to->n_loss = c->n_loss;
    return 0;
}

static int copy_labels(struct reader *rd, const struct store_cover *c, struct query_cover *to)
{
    const struct query_evidence *ev = rd->ev;
    struct store_label *v;

    if (ev->n && ev->cover[ev->n - 1].scope == c->scope) { /* records come by scope */
        to->labels = ev->cover[ev->n - 1].labels;
        return 0;
    }
    if (c->labels.n == 0)
        return 0;
    QUERY_NEW(rd->q, &v, c->labels.n, rd->e);
    for (uint32_t i = 0; i < c->labels.n; i++) {
        TRY(query_copy(rd->q, c->labels.v[i].name, &v[i].name, rd->e));
        TRY(query_copy(rd->q, c->labels.v[i].value, &v[i].value, rd->e));
    }
    to->labels = (struct store_labels){c->labels.n, v};
    return 0;
}

static int grow(struct reader *rd)
{
    struct query_evidence *ev = rd->ev;
    uint32_t room = rd->room ? rd->room * 2 : 64;
    struct query_cover *v;

    if (ev->n < rd->room)
        return 0;
    QUERY_NEW(rd->q, &v, room, rd->e);
    if (ev->n)
        memcpy(v, ev->cover, ev->n * sizeof *v);
    ev->cover = v;
    rd->room = room;
    return 0;
}

static int keep(struct reader *rd, const struct store_cover *c)
{
    struct query_cover to = {.scope = c->scope,
                             .t = interval_cut(c->t, rd->q->head.range),
                             .ended = c->ended,
                             .state = c->state,
                             .basis = c->basis,
                             .period = c->period,
                             .skew_ns = c->skew_ns,
                             .expected = c->expected,
                             .received = c->received,
                             .has_target = c->target != NULL};

    if (c->target)
        to.target = *c->target;
    TRY(grow(rd));
    TRY(query_copy(rd->q, c->why, &to.why, rd->e));
    TRY(copy_losses(rd, c, &to));
    TRY(copy_labels(rd, c, &to));
    to.covers = c->state == SOURCE_OK && !lost_whole(&to);
    rd->ev->cover[rd->ev->n++] = to;
    if (rd->ev->n % 1024 == 0)
        TRY(query_alive(rd->q, rd->e));
    return 0;
}

static bool on_cover(void *ctx, const struct store_cover *c)
{
    struct reader *rd = ctx;

    rd->r = keep(rd, c);
    return rd->r == 0;
}

/* ---- spans -------------------------------------------------------------------------------------
 */

static int span_cmp(const void *va, const void *vb)
{
    const struct interval *a = va, *b = vb;

    return real_ns_cmp(a->t0, b->t0);
}

static void merge(struct query_spans *s)
{
    uint32_t n = 0;

    if (s->n > 1)
        qsort(s->v, s->n, sizeof *s->v, span_cmp);
    for (uint32_t i = 0; i < s->n; i++) {
        if (n && s->v[i].t0.v <= s->v[n - 1].t1.v) {
            if (s->v[i].t1.v > s->v[n - 1].t1.v)
                s->v[n - 1].t1 = s->v[i].t1;
        } else {
            s->v[n++] = s->v[i];
        }
    }
    s->n = n;
}

int query_spans(struct query *q, const struct query_evidence *ev,
                bool (*want)(const void *ctx, const struct query_cover *c), const void *ctx,
                struct query_spans *ret, struct query_err *e)
{
    struct query_spans s = {};

    QUERY_NEW(q, &s.v, ev->n, e);
    for (uint32_t i = 0; i < ev->n; i++) {
        if (ev->cover[i].t.t0.v < ev->cover[i].t.t1.v && want(ctx, &ev->cover[i]))
            s.v[s.n++] = ev->cover[i].t;
    }
    merge(&s);
    *ret = s;
    return 0;
}

int64_t query_spans_len(const struct query_spans *s, struct interval cut)
{
    int64_t len = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        struct interval c = interval_cut(s->v[i], cut);

        len += c.t1.v - c.t0.v;
    }
    return len;
}

static bool any_covers(const void *ctx, const struct query_cover *c)
{
    (void)ctx;
    return c->covers;
}

/* One scope's records, by time: union of what it covered, and how long it was asked. */
void query_source_time(struct query_cover *const *c, uint32_t n, struct interval range,
                       unit_i128 *asked, unit_i128 *covered)
{
    real_ns end = range.t1, upto = {INT64_MIN};

    for (uint32_t i = 0; i < n; i++) {
        if (c[i]->ended && c[i]->t.t1.v < end.v)
            end = c[i]->t.t1;
        if (!c[i]->covers || c[i]->t.t1.v <= upto.v)
            continue;
        *covered += c[i]->t.t1.v - (c[i]->t.t0.v > upto.v ? c[i]->t.t0.v : upto.v);
        upto = c[i]->t.t1;
    }
    if (end.v > c[0]->t.t0.v)
        *asked += end.v - c[0]->t.t0.v;
}

int query_records(struct query *q, const struct query_evidence *ev, struct query_cover ***ret,
                  struct query_err *e)
{
    *ret = arena_calloc(&q->arena, ev->n, sizeof(void *));
    if (!*ret)
        return query_no_memory(q, e);
    for (uint32_t i = 0; i < ev->n; i++)
        (*ret)[i] = &ev->cover[i];
    return 0;
}

int query_evidence(struct query *q, struct query_evidence *ret, struct query_err *e)
{
    struct store_ask ask = {.sel = query_selector(q), .range = q->head.range};
    struct query_evidence ev = {};
    struct reader rd = {.q = q, .ev = &ev, .e = e};
    struct query_cover **all;
    struct err err = {};
    int r = store_cover(q->view, &ask, on_cover, &rd, &err);

    if (rd.r < 0)
        return rd.r;
    if (r < 0)
        return query_store_failed(q, r, &err, e);
    ev.partial = r == STORE_PARTIAL;
    TRY(query_records(q, &ev, &all, e));
    for (uint32_t i = 0, n; i < ev.n; i += n) {
        for (n = 1; i + n < ev.n && ev.cover[i + n].scope == ev.cover[i].scope; n++)
            ;
        ev.sources++;
        query_source_time(all + i, n, q->head.range, &ev.source_asked_ns, &ev.source_ns);
    }
    TRY(query_spans(q, &ev, any_covers, NULL, &ev.covered, e));
    *ret = ev;
    return 0;
}

/* ---- coverage ----------------------------------------------------------------------------------
 */

struct unknown {
    const struct query_evidence *ev;
    const struct query_cover **scope; /* one of each */
    uint32_t n_scope, n_series;
    uint64_t n;
    bool gave_up;
    bool any; /* stop at the first */
};

static bool speaks_for(const struct query_cover *c, const struct store_series *s)
{
    uint32_t k = 0;

    for (uint32_t i = 0; i < c->labels.n; i++) {
        while (k < s->labels.n && str_cmp(s->labels.v[k].name, c->labels.v[i].name) < 0)
            k++;
        if (k == s->labels.n || !str_eq(s->labels.v[k].name, c->labels.v[i].name) ||
            !str_eq(s->labels.v[k].value, c->labels.v[i].value))
            return false;
    }
    return true;
}

static bool on_series(void *ctx, const struct store_series *s)
{
    struct unknown *u = ctx;

    if (++u->n_series > UNKNOWN_SERIES || (uint64_t)u->n_series * u->n_scope > UNKNOWN_WORK) {
        u->gave_up = true;
        return false;
    }
    for (uint32_t i = 0; i < u->n_scope; i++) {
        if (speaks_for(u->scope[i], s))
            return true;
    }
    u->n++;
    return !u->any;
}

/* Series for which no source says anything: nobody knows what of them is missing. */
static int unknown_sources(struct query *q, const struct query_evidence *ev, uint64_t *ret,
                           struct query_err *e)
{
    struct store_ask ask = {.sel = query_selector(q), .range = q->head.range};
    struct unknown u = {.ev = ev};
    struct err err = {};
    int r;

    u.scope = arena_calloc(&q->arena, ev->sources, sizeof(void *));
    if (!u.scope)
        return query_no_memory(q, e);
    for (uint32_t i = 0; i < ev->n; i++) {
        if (i == 0 || ev->cover[i].scope != ev->cover[i - 1].scope)
            u.scope[u.n_scope++] = &ev->cover[i];
    }
    /* mostly sources speak for all series there ever were: then which ones occur is no matter */
    u.any = true;
    r = store_known_series(q->view, &ask, on_series, &u, &err);
    if (r == 0) {
        *ret = 0;
        return 0;
    }
    if (r < 0 && r != -ECANCELED)
        return query_store_failed(q, r, &err, e);
    err = (struct err){};
    u.any = u.gave_up = false;
    u.n_series = 0;
    u.n = 0;
    r = store_list_series(q->view, &ask, on_series, &u, &err);
    if (u.gave_up) {
        *ret = BATCH_UNKNOWN;
        return 0;
    }
    if (r < 0)
        return query_store_failed(q, r, &err, e);
    *ret = u.n;
    return 0;
}

static bool is_lost(const void *ctx, const struct query_cover *c)
{
    (void)ctx;
    return !c->covers && lost_whole(c);
}

struct gaps {
    struct query_gap *v;
    uint32_t n, more;
};

static void gap(struct gaps *g, int64_t t0, int64_t t1, enum query_gap_why why)
{
    if (t0 >= t1)
        return;
    if (g->n == QUERY_GAPS_MAX)
        g->more++;
    else
        g->v[g->n++] = (struct query_gap){{{t0}, {t1}}, why};
}

/* [t0, t1) is not covered: which parts of it were lost? */
static void split_gap(struct gaps *g, int64_t t0, int64_t t1, const struct query_spans *lost)
{
    for (uint32_t i = 0; i < lost->n && t0 < t1; i++) {
        struct interval c = interval_cut(lost->v[i], (struct interval){{t0}, {t1}});

        if (c.t0.v >= c.t1.v)
            continue;
        gap(g, t0, c.t0.v, QUERY_NOT_COVERED);
        gap(g, c.t0.v, c.t1.v, QUERY_LOST);
        t0 = c.t1.v;
    }
    gap(g, t0, t1, QUERY_NOT_COVERED);
}

/* Stretches that could not be read are not covered, whatever the records say. */
static int subtract_damage(struct query *q, struct query_spans *covered, struct query_err *e)
{
    const struct store_answer *a = QUERY_ANSWER(q);
    struct query_spans s = {};

    if (!a || a->n_damage == 0)
        return 0;
    for (uint32_t d = 0; d < a->n_damage; d++) {
        struct interval bad = a->damage[d].t;

        QUERY_NEW(q, &s.v, (size_t)covered->n + 1, e);
        s.n = 0;
        for (uint32_t i = 0; i < covered->n; i++) {
            struct interval c = covered->v[i];

            if (bad.t1.v <= c.t0.v || bad.t0.v >= c.t1.v) {
                s.v[s.n++] = c;
                continue;
            }
            if (c.t0.v < bad.t0.v)
                s.v[s.n++] = (struct interval){c.t0, bad.t0};
            if (bad.t1.v < c.t1.v) {
                c.t0 = bad.t1;
                s.v[s.n++] = c;
            }
        }
        *covered = s;
    }
    return 0;
}

static int coverage(struct query *q, const struct query_evidence *ev, struct query_coverage *ret,
                    struct query_err *e)
{
    struct query_spans covered = ev->covered, lost = {};
    struct interval range = q->head.range;
    const struct store_answer *a = QUERY_ANSWER(q);
    struct query_tier *tier;
    struct gaps g = {};
    int64_t at = range.t0.v;

    TRY(subtract_damage(q, &covered, e));
    TRY(query_spans(q, ev, is_lost, NULL, &lost, e));
    QUERY_NEW(q, &g.v, QUERY_GAPS_MAX, e);
    ret->asked_ns = range.t1.v - range.t0.v;
    ret->covered_ns = query_spans_len(&covered, range);
    ret->source_asked_ns = ev->source_asked_ns;
    ret->source_ns = ev->source_ns;
    ret->sources = ev->sources;
    TRY(unknown_sources(q, ev, &ret->unknown_sources, e));
    for (uint32_t i = 0; i < covered.n; i++) {
        split_gap(&g, at, covered.v[i].t0.v, &lost);
        at = covered.v[i].t1.v;
    }
    split_gap(&g, at, range.t1.v, &lost);
    ret->n_gap = g.n;
    ret->gaps_more = g.more;
    ret->gap = g.v;
    if (!a)
        return 0;
    QUERY_NEW(q, &tier, a->side[q->side].n_tier, e);
    for (uint32_t i = 0; i < a->side[q->side].n_tier; i++) {
        const struct store_tier_span *t = &a->side[q->side].tier[i];

        tier[i] =
            (struct query_tier){t->tier == STORE_MINUTE ? "minute" : "raw", t->resolution_ns, t->t};
    }
    ret->n_tier = a->side[q->side].n_tier;
    ret->tier = tier;
    return 0;
}

/* ---- loss and the rest -------------------------------------------------------------------------
 */

static int loss_cmp(const void *va, const void *vb)
{
    const struct query_loss *a = va, *b = vb;

    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    if (a->n != b->n)
        return a->n > b->n ? -1 : 1;
    return str_cmp(a->why, b->why);
}

static void add_count(uint64_t *to, uint64_t n)
{
    if (*to == BATCH_UNKNOWN || n == BATCH_UNKNOWN || __builtin_add_overflow(*to, n, to))
        *to = BATCH_UNKNOWN;
}

int query_losses(struct query *q, struct query_cover *const *c, uint32_t n_cover, uint32_t *ret_n,
                 const struct query_loss **ret, struct query_err *e)
{
    struct query_loss *v;
    uint32_t n = 0, room = 0;

    for (uint32_t i = 0; i < n_cover; i++)
        room += c[i]->n_loss;
    QUERY_NEW(q, &v, room, e);
    for (uint32_t i = 0; i < n_cover; i++) {
        for (uint32_t k = 0; k < c[i]->n_loss; k++) {
            const struct query_loss *l = &c[i]->loss[k];
            uint32_t at = 0;

            while (at < n && !str_eq(v[at].why, l->why))
                at++;
            if (at == n) {
                v[n++] = *l;
                continue;
            }
            add_count(&v[at].n, l->n);
            if (v[at].weight == QUERY_UNKNOWN || l->weight == QUERY_UNKNOWN)
                v[at].weight = QUERY_UNKNOWN;
            else
                v[at].weight += l->weight;
        }
    }
    if (n > 1)
        qsort(v, n, sizeof *v, loss_cmp);
    *ret_n = n;
    *ret = v;
    return 0;
}

static int period_cmp(const void *va, const void *vb)
{
    int64_t a = *(const int64_t *)va, b = *(const int64_t *)vb;

    return (a > b) - (a < b);
}

static int periods(struct query *q, const struct query_evidence *ev, struct query_quality *ret,
                   struct query_err *e)
{
    int64_t *v;

    QUERY_NEW(q, &v, PERIODS_MAX, e);
    for (uint32_t i = 0; i < ev->n && ret->n_period < PERIODS_MAX; i++) {
        uint32_t k = 0;

        if (ev->cover[i].period <= 0)
            continue;
        while (k < ret->n_period && v[k] != ev->cover[i].period)
            k++;
        if (k == ret->n_period)
            v[ret->n_period++] = ev->cover[i].period;
    }
    if (ret->n_period > 1)
        qsort(v, ret->n_period, sizeof *v, period_cmp);
    ret->period = v;
    return 0;
}

struct warnings {
    struct query *q;
    struct str *v;
    uint32_t n;
};

[[gnu::format(printf, 3, 4)]] static int warn(struct warnings *w, struct query_err *e,
                                              const char *fmt, ...)
{
    char text[320];
    struct str s;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return 0;
    s = str_c(text);
    for (uint32_t i = 0; i < w->n; i++) {
        if (str_eq(w->v[i], s))
            return 0;
    }
    if (w->n == WARNINGS_MAX)
        return 0;
    return query_copy(w->q, s, &w->v[w->n++], e);
}

static int warn_all(struct warnings *w, const struct query_evidence *ev,
                    const struct query_quality *ql, struct query_err *e)
{
    static const char *const words[] = {[SOURCE_PAUSED] = "source_paused",
                                        [SOURCE_REFUSED] = "source_refused",
                                        [SOURCE_ABSENT] = "source_absent"};
    const struct store_answer *a = QUERY_ANSWER(w->q);

    for (uint32_t i = 0; i < ev->n; i++) {
        const struct query_cover *c = &ev->cover[i];

        if (c->state > SOURCE_OK && c->state <= SOURCE_ABSENT)
            TRY(warn(w, e, "%s: %.*s", words[c->state],
                     STR_ARG(c->why.n ? str_to(c->why, 128) : STR("no reason was given"))));
    }
    if (ql->n_period > 1)
        TRY(warn(w, e, "periods_differ: samples of %u periods are added, each by its own weight",
                 ql->n_period));
    if (ql->basis >> BASIS_RAW & 1)
        TRY(warn(w, e, "lower_bound: some values were sampled and not scaled up"));
    if (ql->skew_known && (ql->skew_ns > SKEW_WARN_NS || ql->skew_ns < -SKEW_WARN_NS))
        TRY(warn(w, e, "clock_skew: a sender's clock is off by %" PRId64 " ms",
                 ql->skew_ns / NS_PER_MS));
    if (ql->overflow_series)
        TRY(warn(w, e, "series_overflow: %" PRIu64 " series are folded into __overflow__",
                 ql->overflow_series));
    if (w->q->head.step.homeless)
        TRY(warn(w, e,
                 "steps_without_process: %" PRIu64 " steps name no process: no sample is counted "
                 "as theirs",
                 w->q->head.step.homeless));
    for (uint32_t i = 0; a && i < a->n_damage; i++)
        TRY(warn(w, e, "damaged: %.*s", STR_ARG(str_to(a->damage[i].what, 200))));
    if (ev->partial)
        TRY(warn(w, e, "damaged: some records of coverage could not be read"));
    return 0;
}

static int quality(struct query *q, const struct query_evidence *ev,
                   const struct query_stacks *stacks, struct query_quality *ret,
                   struct query_err *e)
{
    const struct store_answer *a = QUERY_ANSWER(q);
    struct warnings w = {.q = q};
    struct query_cover **all;

    if (ev->n == 0)
        ret->expected = ret->received = BATCH_UNKNOWN;
    for (uint32_t i = 0; i < ev->n; i++) {
        const struct query_cover *c = &ev->cover[i];

        if (c->state == SOURCE_OK) {
            add_count(&ret->expected, c->expected);
            add_count(&ret->received, c->received);
            ret->basis |= 1u << c->basis;
        }
    }
    TRY(query_clock_skew(q, ev, ret, e));
    ret->no_stack = stacks ? stacks->no_stack : QUERY_UNKNOWN;
    ret->truncated = stacks ? stacks->truncated : QUERY_UNKNOWN;
    ret->unsymbolised = stacks ? stacks->unsymbolised : QUERY_UNKNOWN;
    TRY(query_records(q, ev, &all, e));
    TRY(query_losses(q, all, ev->n, &ret->n_loss, &ret->loss, e));
    TRY(periods(q, ev, ret, e));
    if (a) {
        ret->overflow_series = a->side[q->side].overflow_series;
        ret->parts_asked = a->parts_asked;
        ret->parts_read = a->parts_read;
        ret->parts_unreadable = a->parts_unreadable;
    }
    QUERY_NEW(q, &w.v, WARNINGS_MAX, e);
    TRY(warn_all(&w, ev, ret, e));
    ret->warning = w.v;
    ret->n_warning = w.n;
    return 0;
}

/* ---- why there is nothing ----------------------------------------------------------------------
 */

const char *query_why_empty_word(enum query_why_empty why)
{
    static const char *const words[] = {
        [QUERY_NOT_EMPTY] = "",
        [QUERY_NEVER_INGESTED] = "never_ingested",
        [QUERY_NO_AGENT_IN_RANGE] = "no_agent_in_range",
        [QUERY_NO_MATCH] = "no_match",
        [QUERY_TYPE_ABSENT] = "type_absent",
        [QUERY_EXPIRED] = "expired",
        [QUERY_FUTURE] = "future",
        [QUERY_NO_STEPS] = "no_steps",
        [QUERY_ZERO] = "zero",
        [QUERY_FILTERED_OUT] = "filtered_out",
    };

    return words[why];
}

struct types_seen {
    ptype_id want;
    bool any, wanted;
    real_ns last, last_wanted;
};

static bool on_type(void *ctx, const struct store_type *t)
{
    struct types_seen *s = ctx;

    s->any = true;
    if (t->seen.t1.v > s->last.v)
        s->last = t->seen.t1;
    if (t->id == s->want) {
        s->wanted = true;
        s->last_wanted = t->seen.t1;
    }
    return true;
}

static int types_seen(struct query *q, struct interval range, struct types_seen *ret,
                      struct query_err *e)
{
    struct store_ask ask = {.range = range};
    struct err err = {};
    int r;

    *ret = (struct types_seen){.want = q->head.type.id, .last = {INT64_MIN}};
    r = store_list_types(q->view, &ask, on_type, ret, &err);
    return r < 0 ? query_store_failed(q, r, &err, e) : 0;
}

static int why_empty(struct query *q, const struct query_evidence *ev, struct query_empty *ret,
                     struct query_err *e)
{
    struct types_seen ever, now;
    struct store_stats stats = {};
    int32_t none_by = q->gather ? q->gather->answer.side[q->side].none_by : -1;

    TRY(types_seen(q, (struct interval){{INT64_MIN}, {INT64_MAX}}, &ever, e));
    TRY(types_seen(q, q->head.range, &now, e));
    store_stats(q->conf.store, &stats);
    ret->last_known = ever.any;
    ret->last = ever.wanted ? ever.last_wanted : ever.any ? ever.last : (real_ns){0};
    if (!ever.any && ev->n == 0 && stats.batches == 0 && stats.lsn == 0)
        ret->why = QUERY_NEVER_INGESTED;
    else if (q->head.range.t0.v > q->conf.now.v)
        ret->why = QUERY_FUTURE;
    else if (now.wanted && none_by >= 0 && (uint32_t)none_by < q->select.n)
        ret->why = QUERY_NO_MATCH;
    else if (query_no_steps(q))
        ret->why = QUERY_NO_STEPS;
    else if (ev->covered.n)
        ret->why = QUERY_ZERO;
    else if (stats.parts_expired && q->head.range.t1.v <= stats.oldest.v)
        ret->why = QUERY_EXPIRED;
    else if (now.any && !now.wanted)
        ret->why = QUERY_TYPE_ABSENT;
    else
        ret->why = QUERY_NO_AGENT_IN_RANGE;
    if (ret->why == QUERY_NO_MATCH)
        ret->matcher = q->select.text[none_by];
    return 0;
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

/*
 * The sum of period^2 over n samples that weigh v together. Of each period p of lo..hi
 * (p - lo)(p - hi) <= 0, so p^2 <= (lo + hi) p - lo hi: equal if there are no more periods than
 * these.
 */
static double sum_of_squares(double lo, double hi, double v, double n)
{
    return (lo + hi) * fmin(fmax(v, lo * n), hi * n) - lo * hi * n;
}

double query_variance(const struct query_quality *ql, unit_i128 value, uint64_t samples, double var)
{
    if (ql->basis == 1u << BASIS_PERIODIC && ql->n_period && ql->n_period < PERIODS_MAX &&
        samples != BATCH_UNKNOWN)
        return sum_of_squares((double)ql->period[0], (double)ql->period[ql->n_period - 1],
                              (double)value, (double)samples);
    return ql->basis == 1u << BASIS_SCALED || ql->basis == 1u << BASIS_EVERY ? var : -1;
}

/* Known for clocks (each observation weighs its period), and where the source said how sure each
 * value is. */
static double standard_error(const struct query *q, const struct query_totals *t,
                             const struct query_quality *ql)
{
    double v = q->head.agg == QUERY_SUM ? query_variance(ql, t->total, t->samples, t->var) : -1;

    return v >= 0 ? sqrt(v) : -1;
}

static int empty(struct query *q, const struct query_evidence *ev, const struct query_totals *t,
                 struct query_sums *s, struct query_err *e)
{
    TRY(why_empty(q, ev, &s->empty, e));
    if (t->whole != 0 || (t->whole_samples != 0 && t->samples == 0)) {
        s->empty.why = QUERY_FILTERED_OUT;
        s->empty.matcher = (struct str){NULL, 0};
        return 0;
    }
    if ((s->coverage.covered_ns == 0 && t->whole_samples == 0) || query_no_steps(q)) {
        s->total = s->whole.total = QUERY_UNKNOWN;
        s->samples = s->whole.samples = BATCH_UNKNOWN;
        s->se = -1;
        s->quality.no_stack = s->quality.truncated = s->quality.unsymbolised = QUERY_UNKNOWN;
    }
    return 0;
}

int query_sums(struct query *q, const struct query_evidence *ev, const struct query_totals *t,
               struct query_sums *ret, struct query_err *e)
{
    struct query_sums s = {.total = t->total,
                           .samples = t->samples,
                           .whole = {t->whole, t->whole_samples},
                           .n_filtered = t->n_filtered,
                           .filtered = t->filtered};

    TRY(coverage(q, ev, &s.coverage, e));
    TRY(quality(q, ev, t->stacks, &s.quality, e));
    s.se = standard_error(q, t, &s.quality);
    if (t->total == 0)
        TRY(empty(q, ev, t, &s, e));
    *ret = s;
    return 0;
}
