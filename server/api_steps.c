// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "server/api_private.h"

/* What happened beside the samples: /steps, /events; and /series, the label sets that there are. */

#define LIMIT_DEFAULT 1000
#define LIMIT_MAX     10000

static void put_next(struct json_out *j, struct str next)
{
    json_key(j, "next");
    if (next.n)
        json_str(j, next);
    else
        json_null_value(j);
}

/* ---- steps -------------------------------------------------------------------------------------
 */

static void put_durations(struct json_out *j, const struct query_step_name *s)
{
    json_key(j, "n");
    json_u64(j, s->n);
    api_put_ns(j, "min", s->min_ns);
    api_put_ns(j, "p50", s->p50_ns);
    api_put_ns(j, "p90", s->p90_ns);
    api_put_ns(j, "p99", s->p99_ns);
    api_put_ns(j, "max", s->max_ns);
    api_put_ns(j, "mean", s->mean_ns);
}

/* Of one name: durations of different kinds of work have no common distribution. */
static void put_summaries(struct json_out *j, const struct query_steps *s)
{
    json_key(j, "summary");
    if (s->n_name == 1) {
        json_object_begin(j);
        put_durations(j, &s->name[0]);
        json_object_end(j);
    } else {
        json_null_value(j);
    }
    json_key(j, "names");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_name; i++) {
        json_object_begin(j);
        api_put_text(j, "name", s->name[i].name);
        put_durations(j, &s->name[i]);
        json_object_end(j);
    }
    json_array_end(j);
}

static void put_numbers(struct api_call *c, const struct query_steps *s, real_ns base)
{
    struct json_out *j = &c->json;

    json_key(j, "number"); /* they identify a step, and may be beyond 2^53 */
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++)
        json_dec_u64(j, s->row[i].number);
    json_array_end(j);
    json_key(j, "start");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++) { /* a step may begin before the range */
        int64_t at = s->row[i].t.t0.v - base.v;

        if (c->numbers_as_strings)
            json_dec_i64(j, at);
        else
            json_i64(j, at);
    }
    json_array_end(j);
    json_key(j, "dur");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++)
        api_put_number(c, s->row[i].t.t1.v - s->row[i].t.t0.v);
    json_array_end(j);
}

static void put_owners(struct json_out *j, const struct query_steps *s)
{
    json_key(j, "name");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++)
        json_u64(j, s->row[i].name);
    json_array_end(j);
    json_key(j, "target");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->row[i].owner.known)
            json_hex64(j, s->row[i].owner.id);
        else
            json_null_value(j);
    }
    json_array_end(j);
    json_key(j, "tid");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->row[i].tid)
            json_u64(j, s->row[i].tid);
        else
            json_null_value(j);
    }
    json_array_end(j);
    json_key(j, "inferred");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++)
        json_bool(j, s->row[i].inferred);
    json_array_end(j);
    json_key(j, "labels");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct query_labels *l = &s->row[i].labels;

        json_object_begin(j);
        for (uint32_t k = 0; k < l->n; k++) {
            json_key_str(j, l->v[k].name);
            json_str(j, l->v[k].value);
        }
        json_object_end(j);
    }
    json_array_end(j);
}

static void put_parts(struct api_call *c, const struct query_steps *s)
{
    struct json_out *j = &c->json;

    json_key(j, "part");
    json_object_begin(j);
    for (uint32_t p = 0; p < s->n_part; p++) {
        json_key_str(j, s->part[p]);
        json_array_begin(j);
        for (uint32_t i = 0; i < s->n; i++) {
            int64_t ns = s->row[i].part_ns ? s->row[i].part_ns[p] : -1;

            if (ns < 0)
                json_null_value(j);
            else
                api_put_number(c, ns);
        }
        json_array_end(j);
    }
    json_object_end(j);
}

int api_steps(struct api_call *c, struct query_err *e)
{
    static const char *const sorts[] = {"time", "duration", NULL};
    struct query_steps_ask ask = {
        .name = api_param(c, "name"), .limit = LIMIT_DEFAULT, .after = api_param(c, "after")};
    struct json_out *j = &c->json;
    struct query_steps s = {};
    uint32_t sort = 0;

    TRY(api_open(c, false, e));
    TRY(api_param_word(c, "sort", sorts, &sort, e));
    TRY(api_param_u32(c, "limit", 1, LIMIT_MAX, &ask.limit, e));
    ask.sort = (enum query_step_sort)sort;
    TRY(query_steps(c->query, &ask, &s, e));
    json_object_begin(j);
    api_put_head(c, "steps");
    json_key(j, "partial");
    json_bool(j, query_head(c->query)->partial);
    put_summaries(j, &s);
    json_key(j, "base_ns");
    api_put_instant(j, query_head(c->query)->range.t0);
    json_key(j, "scale_ns");
    json_i64(j, 1);
    json_key(j, "n");
    json_u64(j, s.n);
    json_key(j, "row");
    json_object_begin(j);
    put_owners(j, &s);
    put_numbers(c, &s, query_head(c->query)->range.t0);
    json_object_end(j);
    put_parts(c, &s);
    put_next(j, s.next);
    json_object_end(j);
    return 0;
}

/* ---- events ------------------------------------------------------------------------------------
 */

int api_events(struct api_call *c, struct query_err *e)
{
    struct json_out *j = &c->json;
    struct query_events v = {};
    uint32_t limit = LIMIT_DEFAULT;

    TRY(api_open(c, false, e));
    TRY(api_param_u32(c, "limit", 1, LIMIT_MAX, &limit, e));
    TRY(query_events(c->query, limit, api_param(c, "after"), &v, e));
    json_object_begin(j);
    api_put_head(c, "events");
    json_key(j, "partial");
    json_bool(j, query_head(c->query)->partial);
    json_key(j, "events");
    json_array_begin(j);
    for (uint32_t i = 0; i < v.n; i++) {
        json_object_begin(j);
        api_put_ns(j, "t_ns", v.row[i].t.v);
        api_put_text(j, "kind", v.row[i].kind);
        api_put_text(j, "text", v.row[i].text);
        api_put_owner(j, &v.row[i].owner);
        json_object_end(j);
    }
    json_array_end(j);
    put_next(j, v.next);
    json_object_end(j);
    return 0;
}

/* ---- label sets --------------------------------------------------------------------------------
 */

int api_sets(struct api_call *c, struct query_err *e)
{
    struct str after = api_param(c, "after");
    struct json_out *j = &c->json;
    uint32_t limit = LIMIT_DEFAULT;
    struct query_sets s = {};
    uint64_t id = 0;

    TRY(api_open(c, false, e));
    TRY(api_param_u32(c, "limit", 1, LIMIT_MAX, &limit, e));
    if (after.n && !str_hex64(after, &id))
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "after",
                          "after is the next of a page before");
    TRY(query_sets(c->query, limit, id, &s, e));
    json_object_begin(j);
    api_put_head(c, "label_sets");
    json_key(j, "partial");
    json_bool(j, query_head(c->query)->partial);
    json_key(j, "series");
    json_array_begin(j);
    for (uint32_t i = 0; i < s.n; i++) {
        json_object_begin(j);
        json_key(j, "type");
        json_object_begin(j);
        api_put_type(j, &s.row[i].type);
        json_object_end(j);
        api_put_labels(j, &s.row[i].labels);
        api_put_ns(j, "first_ns", s.row[i].seen.t0.v);
        api_put_ns(j, "last_ns", s.row[i].seen.t1.v);
        json_object_end(j);
    }
    json_array_end(j);
    json_key(j, "next");
    if (s.truncated && s.n)
        json_hex64(j, s.row[s.n - 1].id);
    else
        json_null_value(j);
    json_object_end(j);
    return 0;
}
