// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "server/api_private.h"

/* /timeseries: sums by bucket, one line or one per group. */

#define POINTS_DEFAULT 600

int api_bucket_ask(const struct api_call *c, struct query_series_ask *ask, struct query_err *e)
{
    struct str bucket = api_param(c, "bucket");

    if (bucket.n == 0) {
        ask->points = POINTS_DEFAULT;
        return api_param_u32(c, "points", 1, UINT32_MAX, &ask->points, e);
    }
    if (api_param(c, "points").n)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "bucket",
                          "points and bucket exclude each other");
    if (!query_duration_parse(bucket, &ask->bucket_ns))
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "bucket",
                          "bucket=%.*s: a duration such as 15s or 250ms",
                          STR_ARG(str_to(bucket, 80)));
    return 0;
}

static int series_ask(struct api_call *c, struct query_series_ask *ask, bool *rate,
                      struct query_err *e)
{
    TRY(api_param_flag(c, "rate", rate, e));
    if (*rate && query_head(c->query)->agg != QUERY_SUM)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "rate",
                          "a level has no rate: its mean is answered");
    return api_bucket_ask(c, ask, e);
}

static void put_labels(struct json_out *j, const struct query_series *s, const struct query_line *l)
{
    json_key(j, "labels");
    json_object_begin(j);
    for (uint32_t i = 0; i < s->n_by && !l->rest; i++) {
        json_key_str(j, s->by[i]);
        json_str(j, l->label[i]);
    }
    json_object_end(j);
    json_key(j, "rest");
    json_bool(j, l->rest);
}

/* Per covered second; a bucket whose coverage nobody knows has no rate. */
static void put_rate(struct json_out *j, unit_i128 v, int64_t covered_ns)
{
    if (v == QUERY_UNKNOWN || covered_ns <= 0)
        json_null_value(j);
    else
        json_double(j, (double)v / ((double)covered_ns / 1e9));
}

static void put_covered(struct json_out *j, const int64_t *ns, uint32_t n)
{
    json_key(j, "covered");
    json_array_begin(j);
    for (uint32_t i = 0; i < n; i++)
        json_i64(j, ns[i]);
    json_array_end(j);
}

static void put_lost(struct api_call *c, const unit_i128 *lost, uint32_t n)
{
    json_key(&c->json, "lost");
    json_array_begin(&c->json);
    for (uint32_t i = 0; i < n; i++)
        api_put_number(c, lost[i]);
    json_array_end(&c->json);
}

static void put_line(struct api_call *c, const struct query_series *s, const struct query_line *l,
                     bool rate)
{
    struct json_out *j = &c->json;

    json_object_begin(j);
    put_labels(j, s, l);
    json_key(j, "total");
    api_put_weight(j, l->total);
    json_key(j, "value");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++) {
        if (rate)
            put_rate(j, l->value[i], l->covered_ns[i]);
        else
            api_put_number(c, l->value[i]);
    }
    json_array_end(j);
    json_key(j, "samples");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++) {
        if (l->value[i] == QUERY_UNKNOWN)
            json_null_value(j);
        else
            api_put_samples(c, l->samples[i]);
    }
    json_array_end(j);
    put_covered(j, l->covered_ns, s->n);
    put_lost(c, l->lost, s->n);
    json_object_end(j);
}

int api_timeseries(struct api_call *c, struct query_err *e)
{
    struct query_series_ask ask = {};
    struct query_series s = {};
    struct json_out *j = &c->json;
    bool rate = false;

    TRY(api_open(c, true, e));
    TRY(series_ask(c, &ask, &rate, e));
    TRY(query_series(c->query, &ask, &s, e));
    json_object_begin(j);
    api_put_head(c, "series");
    json_key(j, "unit");
    if (rate) {
        struct buf unit;

        buf_init(&unit, 1 << 20);
        buf_str(&unit, query_head(c->query)->type.unit);
        buf_cstr(&unit, "/s");
        json_str(j, buf_view(&unit));
        buf_deinit(&unit);
    } else {
        json_str(j, query_head(c->query)->type.unit);
    }
    api_put_sums(c, &s.sum);
    json_key(j, "base_ns");
    api_put_instant(j, s.base);
    json_key(j, "scale_ns"); /* of durations in columns */
    json_i64(j, 1);
    json_key(j, "bucket_ns");
    json_dec_i64(j, s.bucket_ns);
    json_key(j, "raised");
    json_bool(j, s.raised);
    json_key(j, "n");
    json_u64(j, s.n);
    put_covered(j, s.covered_ns, s.n);
    put_lost(c, s.lost, s.n);
    json_key(j, "series");
    json_array_begin(j);
    for (uint32_t i = 0; i < s.n_line; i++)
        put_line(c, &s, &s.line[i], rate);
    json_array_end(j);
    json_object_end(j);
    return 0;
}
