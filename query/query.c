// SPDX-License-Identifier: Apache-2.0
#include "query/query.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "query/query_private.h"

#define DEFAULT_RANGE_NS (3600 * NS_PER_S)
#define DEFAULT_GROUPS   20

/* ---- errors -----------------------------------------------------------------------------------
 */

int query_fail(struct query_err *e, int err_no, enum query_code code, const char *param,
               const char *fmt, ...)
{
    assert(err_no < 0 && code != QUERY_OK);
    if (e && e->code == QUERY_OK) {
        va_list ap;

        e->code = code;
        e->param = param;
        va_start(ap, fmt);
        if (vsnprintf(e->msg, sizeof e->msg, fmt, ap) < 0)
            e->msg[0] = '\0';
        va_end(ap);
    }
    return err_no;
}

static const struct {
    int status;
    const char *word;
} codes[] = {[QUERY_OK] = {200, "ok"},
#define X(ID, status, word) [QUERY_##ID] = {status, word},
             QUERY_CODES(X)
#undef X
};

const char *query_code_word(enum query_code code)
{
    return codes[code].word;
}

int query_code_status(enum query_code code)
{
    return codes[code].status;
}

const char *query_kind_word(enum frame_kind kind)
{
    static const char *const words[] = {"", "kernel", "native", "python", "jit", "gpu", "other"};

    return (unsigned)kind < sizeof words / sizeof words[0] ? words[kind] : "other";
}

int query_no_memory(const struct query *q, struct query_err *e)
{
    int r = query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL,
                       "the query needs more than %llu bytes of memory: ask for less time, fewer "
                       "series or fewer groups",
                       (unsigned long long)q->conf.mem_max);

    e->setting = "query.memory";
    e->limit = q->conf.mem_max;
    e->actual = q->conf.mem_max + 1;
    return r;
}

static int timed_out(struct query_err *e)
{
    int r = query_fail(e, -ETIMEDOUT, QUERY_TOO_EXPENSIVE, NULL,
                       "the query ran past its deadline: ask for less time or fewer series");

    e->setting = "query.timeout";
    return r;
}

int query_alive(const struct query *q, struct query_err *e)
{
    if (q->conf.cancel && atomic_load_explicit(q->conf.cancel, memory_order_relaxed))
        return query_fail(e, -ECANCELED, QUERY_CANCELED, NULL, "the query was cancelled");
    if (q->conf.deadline.v && mono_ns_cmp(mono_now(), q->conf.deadline) >= 0)
        return timed_out(e);
    return 0;
}

int query_store_failed(struct query *q, int r, const struct err *err, struct query_err *e)
{
    int m = atomic_load(&q->match_failed);

    if (m == -E2BIG)
        return query_fail(e, m, QUERY_REGEX_TOO_EXPENSIVE, "q",
                          "a regular expression of the selector takes too much work on one value");
    if (m == -ETIMEDOUT || r == -ETIMEDOUT)
        return timed_out(e);
    switch (r) {
    case -ENOMEM:
        return query_no_memory(q, e);
    case -ECANCELED:
        return query_fail(e, r, QUERY_CANCELED, NULL, "the query was cancelled");
    case -ENOTSUP:
        return query_fail(e, r, QUERY_NOT_SUPPORTED, NULL, "%s", err->msg);
    default:
        return query_fail(e, r, QUERY_INTERNAL, NULL, "store: %s", err->msg);
    }
}

int query_copy(struct query *q, struct str s, struct str *ret, struct query_err *e)
{
    struct str c = {NULL, 0};

    if (s.n) {
        c = arena_str(&q->arena, s);
        if (!c.p)
            return query_no_memory(q, e);
    }
    *ret = c;
    return 0;
}

void *query_grow(struct query *q, void *rows, uint32_t n, uint32_t *room, size_t size,
                 struct query_err *e)
{
    uint32_t more = *room ? *room * 2 : 32;
    void *p;

    if (n < *room)
        return rows;
    p = more > n ? arena_calloc(&q->arena, more, size) : NULL;
    if (!p) {
        (void)query_no_memory(q, e);
        return NULL;
    }
    if (n)
        memcpy(p, rows, n * size);
    *room = more;
    return p;
}

/* ---- opening ----------------------------------------------------------------------------------
 */

/* A matcher's callback: its context is the question and which condition it is. */
struct match_ctx {
    struct query *q;
    struct query_regex *re;
};

static int on_match(void *ctx, struct str value, struct err *err)
{
    struct match_ctx *m = ctx;
    struct query_err late = {};
    int r = query_regex_match(m->re, value);

    if (r >= 0 && query_alive(m->q, &late) == 0)
        return r;
    r = r < 0 ? r : -ETIMEDOUT;
    atomic_store(&m->q->match_failed, r);
    return err_set(err, r, "a regular expression gave up");
}

static int open_selector(struct query *q, struct str text, bool need_type, struct query_err *e)
{
    struct match_ctx *ctx;

    TRY(query_select_parse(&q->arena, text, &q->select, e));
    if (q->select.n) {
        QUERY_NEW(q, &ctx, q->select.n, e);
        for (uint32_t i = 0; i < q->select.n; i++) {
            ctx[i] = (struct match_ctx){q, q->select.regex[i]};
            q->select.matcher[i].match = ctx[i].re ? on_match : NULL;
            q->select.matcher[i].ctx = &ctx[i];
        }
    }
    if (q->select.has_type)
        return query_select_type(q, e);
    if (need_type)
        return query_fail(e, -EINVAL, QUERY_TYPE_REQUIRED, "q",
                          "the selector names no profile type: write for example cpu or "
                          "cpu{service=\"x\"}");
    return 0;
}

static int open_range(struct query *q, const struct query_ask *ask, struct query_err *e)
{
    struct interval *range = &q->head.range;
    bool from_moves = true, to_moves = true;
    struct store_stats stats = {};
    struct interval kept;
    int64_t len;

    range->t1 = query_now(q->conf.now);
    if (ask->to.n)
        TRY(query_when(ask->to, q->conf.now, "to", &range->t1, &to_moves, e));
    if (__builtin_sub_overflow(range->t1.v, DEFAULT_RANGE_NS, &range->t0.v))
        return query_fail(e, -EINVAL, QUERY_BAD_RANGE, "to", "to is too far in the past");
    if (ask->from.n)
        TRY(query_when(ask->from, q->conf.now, "from", &range->t0, &from_moves, e));
    else
        from_moves = to_moves;
    q->head.relative = from_moves || to_moves;
    /* now is the last whole second: a range that begins in the one that runs ends with it */
    if (to_moves && !from_moves && range->t0.v >= range->t1.v &&
        query_now(range->t0).v == range->t1.v && range->t0.v < q->conf.now.v)
        range->t1.v += NS_PER_S;
    if (range->t0.v >= range->t1.v || !interval_len(*range, &len))
        return query_fail(e, -EINVAL, QUERY_BAD_RANGE, "from",
                          "from (%lld ns) is not before to (%lld ns)", (long long)range->t0.v,
                          (long long)range->t1.v);
    q->head.effective = *range;
    /* clients ask for years around now: only what is stored counts */
    store_stats(q->conf.store, &stats);
    kept = interval_cut(*range, (struct interval){stats.oldest, stats.newest});
    if (interval_len(kept, &len) && q->conf.max_range_ns > 0 && len > q->conf.max_range_ns) {
        int r =
            query_fail(e, -EINVAL, QUERY_TOO_EXPENSIVE, "from",
                       "the range holds %lld s of data, at most %lld s are allowed",
                       (long long)(len / NS_PER_S), (long long)(q->conf.max_range_ns / NS_PER_S));

        e->setting = "query.max_range";
        e->limit = (uint64_t)q->conf.max_range_ns;
        e->actual = (uint64_t)len;
        return r;
    }
    return 0;
}

static int open_agg(struct query *q, const struct query_ask *ask, struct query_err *e)
{
    bool moves = false;

    if (q->head.type.kind != KIND_LEVEL) {
        q->head.agg = QUERY_SUM;
        if (ask->agg.n || ask->at.n)
            return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, ask->agg.n ? "agg" : "at",
                              "%s is for levels only, and the type asked for is none",
                              ask->agg.n ? "agg" : "at");
        return 0;
    }
    q->head.agg = QUERY_AVERAGE;
    if (ask->at.n) {
        if (ask->agg.n)
            return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "at",
                              "agg and at exclude each other");
        q->head.agg = QUERY_AT;
        TRY(query_when(ask->at, q->conf.now, "at", &q->at, &moves, e));
        q->head.relative |= moves;
        return 0;
    }
    if (ask->agg.n == 0 || str_eq(ask->agg, STR("average")))
        return 0;
    if (str_eq(ask->agg, STR("now"))) {
        q->head.agg = QUERY_NOW;
        return 0;
    }
    if (str_eq(ask->agg, STR("peak")))
        return query_fail(e, -ENOTSUP, QUERY_NOT_SUPPORTED, "agg", "agg=peak is not supported");
    return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "agg", "agg is average or now");
}

static int open_by(struct query *q, const struct query_ask *ask, struct query_err *e)
{
    q->n_by = ask->n_by;
    q->groups = ask->groups ? ask->groups : DEFAULT_GROUPS;
    if (q->groups > QUERY_GROUPS_MAX)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "groups", "groups=%u, at most %d",
                          q->groups, QUERY_GROUPS_MAX);
    for (uint32_t i = 0; i < q->n_by; i++) {
        if (ask->by[i].n == 0)
            return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "by", "by holds an empty name");
        TRY(query_copy(q, ask->by[i], &q->by[i], e));
        for (uint32_t k = 0; k < i; k++) {
            if (str_eq(q->by[k], q->by[i]))
                return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "by", "by names %.*s twice",
                                  STR_ARG(str_to(q->by[i], 64)));
        }
    }
    return 0;
}

static int open_all(struct query *q, const struct query_ask *ask, struct query_err *e)
{
    struct store_stats stats = {};

    store_stats(q->conf.store, &stats);
    q->lsn = stats.lsn;
    if (!q->view)
        q->view = store_view_get(q->conf.store);
    TRY(open_range(q, ask, e));
    TRY(open_selector(q, ask->q, ask->need_type, e));
    TRY(open_agg(q, ask, e));
    TRY(query_filters_parse(&q->arena, ask->filter, ask->n_filter, &q->filters, e));
    q->short_names = ask->short_names;
    q->head.until = q->head.range.t1;
    TRY(open_by(q, ask, e));
    return query_step_open(q, ask->step, e);
}

int query_open(const struct query_conf *conf, const struct query_ask *ask, struct query **ret,
               struct query_err *e)
{
    struct query *q = xcalloc(1, sizeof *q);
    int r;

    q->conf = *conf;
    arena_init(&q->arena, conf->mem_max);
    r = open_all(q, ask, e);
    if (r < 0) {
        (void)query_free(q);
        return r;
    }
    *ret = q;
    return 0;
}

/* Two questions to one moment: B reads A's view, and has its half of A's scan. */
int query_open_diff(const struct query_conf *conf, const struct query_ask *a,
                    const struct query_ask *b, struct query **ret, uint32_t *ret_side,
                    struct query_err *e)
{
    struct query *q = NULL, *other;
    int r;

    *ret_side = 0;
    TRY(query_open(conf, a, &q, e));
    *ret_side = 1;
    other = xcalloc(1, sizeof *other);
    other->conf = *conf;
    other->side = 1;
    other->borrows = true;
    other->view = q->view;
    arena_init(&other->arena, conf->mem_max);
    q->other = other;
    r = open_all(other, b, e);
    if (r == 0 && q->head.type.id != other->head.type.id)
        r = query_fail(
            e, -EINVAL, QUERY_TYPES_DIFFER, "q",
            "side A is %.*s:%.*s, side B is %.*s:%.*s: two types are never compared",
            STR_ARG(str_to(q->head.type.name, 60)), STR_ARG(str_to(q->head.type.unit, 60)),
            STR_ARG(str_to(other->head.type.name, 60)), STR_ARG(str_to(other->head.type.unit, 60)));
    if (r < 0) {
        (void)query_free(q);
        return r;
    }
    q->head.relative |= other->head.relative;
    if (other->head.until.v > q->head.until.v)
        q->head.until = other->head.until;
    *ret = q;
    return 0;
}

struct query *query_free(struct query *q)
{
    if (q) {
        (void)query_free(q->other);
        if (!q->borrows)
            (void)query_gather_free(q->gather);
        if (q->view && !q->borrows)
            (void)store_view_put(q->view);
        query_filters_deinit(&q->filters);
        query_select_deinit(&q->select);
        arena_deinit(&q->arena);
        free(q);
    }
    return NULL;
}

const struct query_head *query_head(const struct query *q)
{
    return &q->head;
}

struct str query_label(const struct query *q, struct str name)
{
    for (uint32_t i = 0; i < q->select.n; i++) {
        if (q->select.matcher[i].op == STORE_EQ && str_eq(q->select.matcher[i].name, name))
            return q->select.matcher[i].value;
    }
    return (struct str){NULL, 0};
}

struct store_selector query_selector(const struct query *q)
{
    return (struct store_selector){
        .type = q->head.type.id, .n = q->select.n, .matcher = q->select.matcher};
}
