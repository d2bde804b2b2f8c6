// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "server/api_private.h"

/* /metrics, /metrics/query: numbers of the profiled programs and their machines. (The server's own
 * are at /metrics outside /api/v1.) */

#define LIMIT_DEFAULT  1000
#define LIMIT_MAX      10000
#define NAMES_MAX      64
#define LINES_DEFAULT  100
#define LINES_MAX      1000
#define POINTS_DEFAULT 600
#define EXACT_MAX      (INT64_C(1) << 53)

static void put_metric(struct json_out *j, const struct query_metric *m)
{
    api_put_text(j, "name", m->name);
    api_put_text(j, "unit", m->unit);
    json_key(j, "kind");
    json_cstr(j, m->kind == METRIC_COUNTER ? "counter" : "gauge");
    api_put_labels(j, &m->labels);
    api_put_owner(j, &m->owner);
}

static void put_int(struct api_call *c, int64_t v)
{
    if (c->numbers_as_strings)
        json_dec_i64(&c->json, v);
    else if (v > -EXACT_MAX && v < EXACT_MAX)
        json_i64(&c->json, v);
    else
        json_double(&c->json, (double)v);
}

static void put_last(struct api_call *c, const struct query_metric_row *row)
{
    json_key(&c->json, "last");
    if (row->status != METRIC_OK || (!row->is_int && !isfinite(row->num)))
        json_null_value(&c->json);
    else if (row->is_int)
        put_int(c, row->inum);
    else
        json_double(&c->json, row->num);
}

/* Each once. */
static int names_ask(const struct api_call *c, struct str name[static NAMES_MAX], uint32_t *ret_n,
                     struct query_err *e)
{
    uint32_t n = 0, k;

    for (uint32_t i = 0; i < c->req->n_param; i++) {
        struct str v = c->req->param[i].value;

        if (!str_eq(c->req->param[i].name, STR("name")) || v.n == 0)
            continue;
        for (k = 0; k < n && !str_eq(name[k], v);)
            k++;
        if (k < n)
            continue;
        if (n == NAMES_MAX)
            return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "name", "more than %d names",
                              NAMES_MAX);
        name[n++] = v;
    }
    *ret_n = n;
    return 0;
}

int api_metrics(struct api_call *c, struct query_err *e)
{
    struct str after = api_param(c, "after");
    struct json_out *j = &c->json;
    uint32_t limit = LIMIT_DEFAULT, n_name = 0;
    struct str name[NAMES_MAX];
    struct query_metrics m = {};
    uint64_t id = 0;

    TRY(api_open(c, false, e));
    TRY(api_param_u32(c, "limit", 1, LIMIT_MAX, &limit, e));
    if (after.n && !str_hex64(after, &id))
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "after",
                          "after is the next of a page before");
    TRY(names_ask(c, name, &n_name, e));
    TRY(query_metrics(c->query, name, n_name, limit, id, &m, e));
    json_object_begin(j);
    api_put_head(c, "metrics");
    json_key(j, "partial");
    json_bool(j, query_head(c->query)->partial);
    json_key(j, "metrics");
    json_array_begin(j);
    for (uint32_t i = 0; i < m.n; i++) {
        json_object_begin(j);
        put_metric(j, &m.row[i].metric);
        json_key(j, "readings");
        json_u64(j, m.row[i].n);
        json_key(j, "status");
        json_cstr(j, query_metric_status_word((uint8_t)m.row[i].status));
        put_last(c, &m.row[i]);
        api_put_ns(j, "first_ns", m.row[i].seen.t0.v);
        api_put_ns(j, "last_ns", m.row[i].seen.t1.v);
        json_object_end(j);
    }
    json_array_end(j);
    json_key(j, "next");
    if (m.truncated && m.n)
        json_hex64(j, m.row[m.n - 1].metric.id);
    else
        json_null_value(j);
    json_object_end(j);
    return 0;
}

/* ---- numbers by bucket -------------------------------------------------------------------------
 */

static void put_values(struct api_call *c, const struct query_metric_lines *s,
                       const struct query_metric_line *l)
{
    struct json_out *j = &c->json;

    json_key(j, "value");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++) {
        if (l->status[i] != METRIC_OK)
            json_null_value(j);
        else if (l->inum)
            put_int(c, l->inum[i]);
        else
            json_double(j, l->num[i]);
    }
    json_array_end(j);
    json_key(j, "status"); /* why there is no number */
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++) {
        if (l->status[i] == METRIC_OK)
            json_null_value(j);
        else
            json_cstr(j, query_metric_status_word(l->status[i]));
    }
    json_array_end(j);
}

static void put_line(struct api_call *c, const struct query_metric_lines *s,
                     const struct query_metric_line *l)
{
    struct json_out *j = &c->json;
    struct buf unit;

    json_object_begin(j);
    put_metric(j, &l->metric);
    json_key(j, "agg");
    json_cstr(j, query_metric_agg_word(l->agg));
    buf_init(&unit, 1 << 20);
    buf_str(&unit, l->metric.unit);
    if (l->agg == QUERY_METRIC_RATE)
        buf_cstr(&unit, "/s");
    api_put_text(j, "value_unit", buf_view(&unit));
    buf_deinit(&unit);
    json_key(j, "readings");
    json_u64(j, l->readings);
    json_key(j, "resets");
    if (l->agg == QUERY_METRIC_RATE)
        json_u64(j, l->resets);
    else
        json_null_value(j);
    put_values(c, s, l);
    json_object_end(j);
}

static int line_ask(struct api_call *c, struct query_metric_ask *ask, struct query_err *e)
{
    static const char *const aggs[] = {"auto", "avg", "min", "max", "last", "rate", NULL};
    uint32_t agg = 0;

    *ask = (struct query_metric_ask){.name = api_param(c, "name"), .limit = LINES_DEFAULT};
    if (ask->name.n == 0)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "name",
                          "name is missing: /metrics lists those that there are");
    TRY(api_param_word(c, "agg", aggs, &agg, e));
    TRY(api_param_u32(c, "limit", 1, LINES_MAX, &ask->limit, e));
    ask->agg = (enum query_metric_agg)agg;
    return api_bucket_ask(c, &ask->bucket, e);
}

int api_metrics_query(struct api_call *c, struct query_err *e)
{
    struct json_out *j = &c->json;
    struct query_metric_lines s = {};
    struct query_metric_ask ask;

    TRY(line_ask(c, &ask, e));
    TRY(api_open_plain(c, e));
    TRY(query_metric_lines(c->query, &ask, &s, e));
    json_object_begin(j);
    api_put_head(c, "metric_series");
    json_key(j, "partial");
    json_bool(j, query_head(c->query)->partial);
    json_key(j, "base_ns");
    api_put_instant(j, s.base);
    json_key(j, "bucket_ns");
    json_dec_i64(j, s.bucket_ns);
    json_key(j, "n");
    json_u64(j, s.n);
    json_key(j, "series");
    json_array_begin(j);
    for (uint32_t i = 0; i < s.n_line; i++)
        put_line(c, &s, &s.line[i]);
    json_array_end(j);
    json_object_end(j);
    return 0;
}
