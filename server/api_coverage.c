// SPDX-License-Identifier: Apache-2.0
#include "server/api_private.h"

/* /coverage: who looked when, and what was lost. */

#define LIMIT_DEFAULT 200
#define LIMIT_MAX     2000

static void put_offset(struct api_call *c, real_ns t)
{
    api_put_number(c, t.v - query_head(c->query)->range.t0.v); /* records are cut to the range */
}

static void put_runs(struct api_call *c, const struct query_source *s)
{
    struct json_out *j = &c->json;

    json_key(j, "runs");
    json_object_begin(j);
    json_key(j, "t");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_run; i++)
        put_offset(c, s->run[i].t.t0);
    json_array_end(j);
    json_key(j, "dur");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_run; i++)
        api_put_number(c, s->run[i].t.t1.v - s->run[i].t.t0.v);
    json_array_end(j);
    json_key(j, "state");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_run; i++)
        json_cstr(j, query_run_word(s->run[i].state));
    json_array_end(j);
    json_key(j, "why");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_run; i++)
        json_str(j, s->run[i].why);
    json_array_end(j);
    json_object_end(j);
    json_key(j, "runs_more");
    json_u64(j, s->runs_more);
}

static void put_loss_runs(struct api_call *c, const struct query_source *s)
{
    struct json_out *j = &c->json;

    json_key(j, "loss_runs");
    json_object_begin(j);
    json_key(j, "t");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_loss_run; i++)
        put_offset(c, s->loss_run[i].t.t0);
    json_array_end(j);
    json_key(j, "dur");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_loss_run; i++)
        api_put_number(c, s->loss_run[i].t.t1.v - s->loss_run[i].t.t0.v);
    json_array_end(j);
    json_key(j, "why");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_loss_run; i++)
        json_str(j, s->loss_run[i].loss.why);
    json_array_end(j);
    json_key(j, "n");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_loss_run; i++)
        api_put_samples(c, s->loss_run[i].loss.n);
    json_array_end(j);
    json_key(j, "weight");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_loss_run; i++)
        api_put_number(c, s->loss_run[i].loss.weight);
    json_array_end(j);
    json_object_end(j);
    json_key(j, "loss_runs_more");
    json_u64(j, s->loss_runs_more);
}

static void put_source(struct api_call *c, const struct query_source *s)
{
    struct json_out *j = &c->json;

    json_object_begin(j);
    json_key(j, "type");
    json_object_begin(j);
    api_put_type(j, &s->type);
    json_object_end(j);
    api_put_text(j, "host", s->host);
    api_put_owner(j, &s->owner);
    api_put_labels(j, &s->labels);
    json_key(j, "scopes");
    json_u64(j, s->scopes);
    api_put_ns(j, "covered_ns", s->covered_ns);
    json_key(j, "source_ns");
    json_dec_i128(j, s->source_ns);
    json_key(j, "source_asked_ns");
    json_dec_i128(j, s->asked_ns);
    json_key(j, "ended");
    json_bool(j, s->ended);
    put_runs(c, s);
    api_put_lost(j, s->lost, s->n_lost);
    put_loss_runs(c, s);
    json_object_end(j);
}

int api_coverage(struct api_call *c, struct query_err *e)
{
    static const char *const bys[] = {"source", "host", "target", NULL};
    struct json_out *j = &c->json;
    struct query_cover_answer a = {};
    uint32_t limit = LIMIT_DEFAULT, by = 0;

    TRY(api_param_word(c, "by", bys, &by, e));
    TRY(api_open_plain(c, e));
    TRY(api_param_u32(c, "limit", 1, LIMIT_MAX, &limit, e));
    TRY(query_coverage(c->query, (enum query_cover_by)by, limit, &a, e));
    json_object_begin(j);
    api_put_head(c, "coverage");
    json_key(j, "partial");
    json_bool(j, query_head(c->query)->partial);
    json_key(j, "base_ns");
    api_put_instant(j, query_head(c->query)->range.t0);
    json_key(j, "scale_ns");
    json_i64(j, 1);
    json_key(j, "by");
    json_cstr(j, bys[by]);
    json_key(j, "sources");
    json_array_begin(j);
    for (uint32_t i = 0; i < a.n; i++)
        put_source(c, &a.source[i]);
    json_array_end(j);
    json_key(j, "sources_more");
    json_u64(j, a.more);
    json_object_end(j);
    return 0;
}
