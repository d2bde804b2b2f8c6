// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "server/api_private.h"

/* What there is: /types, /labels, /labels/{name}/values, /targets, /status, /openapi.json. */

#define VALUES_DEFAULT 1000
#define VALUES_MAX     10000

static void begin(struct api_call *c, const char *kind, const char *list)
{
    json_object_begin(&c->json);
    api_put_head(c, kind);
    json_key(&c->json, list);
    json_array_begin(&c->json);
}

int api_types(struct api_call *c, struct query_err *e)
{
    struct json_out *j = &c->json;
    struct query_types t = {};

    TRY(api_open(c, false, e));
    TRY(query_types(c->query, &t, e));
    begin(c, "types", "types");
    for (uint32_t i = 0; i < t.n; i++) {
        json_object_begin(j);
        api_put_type(j, &t.row[i].type);
        json_key(j, "kind_from");
        if (t.row[i].builtin)
            json_cstr(j, "table");
        else
            json_null_value(j);
        json_key(j, "sources");
        json_u64(j, t.row[i].sources);
        api_put_ns(j, "first_ns", t.row[i].seen.t0.v);
        api_put_ns(j, "last_ns", t.row[i].seen.t1.v);
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
    return 0;
}

int api_labels(struct api_call *c, struct query_err *e)
{
    struct json_out *j = &c->json;
    struct query_names n = {};

    TRY(api_open(c, false, e));
    TRY(query_names(c->query, &n, e));
    begin(c, "labels", "labels");
    for (uint32_t i = 0; i < n.n; i++) {
        json_object_begin(j);
        json_key(j, "name");
        json_str(j, n.row[i].name);
        json_key(j, "values");
        json_u64(j, n.row[i].values);
        json_key(j, "attribute");
        json_bool(j, n.row[i].attribute);
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
    return 0;
}

int api_label_values(struct api_call *c, struct query_err *e)
{
    struct query_values_ask ask = {.name = c->path_name,
                                   .prefix = api_param(c, "prefix"),
                                   .after = api_param(c, "after"),
                                   .limit = VALUES_DEFAULT};
    struct json_out *j = &c->json;
    struct query_values v = {};

    TRY(api_open(c, false, e));
    TRY(api_param_u32(c, "limit", 1, VALUES_MAX, &ask.limit, e));
    TRY(query_values(c->query, &ask, &v, e));
    begin(c, "values", "values");
    for (uint32_t i = 0; i < v.n; i++)
        json_str(j, v.value[i]);
    json_array_end(j);
    json_key(j, "truncated");
    json_bool(j, v.truncated);
    json_key(j, "next");
    if (v.truncated && v.n)
        json_str(j, v.value[v.n - 1]);
    else
        json_null_value(j);
    json_object_end(j);
    return 0;
}

/* ---- targets -----------------------------------------------------------------------------------
 */

static void put_hex(struct json_out *j, const char *key, const uint8_t v[16])
{
    char text[33];

    for (size_t i = 0; i < 16; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", v[i]);
    json_key(j, key);
    json_cstr(j, text);
}

static void put_target(struct json_out *j, const struct query_target_row *t)
{
    json_object_begin(j);
    json_key(j, "id");
    json_hex64(j, t->id);
    put_hex(j, "host", t->key.host);
    json_key(j, "pidns");
    json_dec_u64(j, t->key.pidns);
    json_key(j, "pid");
    json_u64(j, t->key.pid);
    api_put_ns(j, "start_ns", t->key.start.v);
    api_put_text(j, "exe", t->exe);
    api_put_text(j, "cmdline", t->cmdline);
    api_put_text(j, "comm", t->comm);
    api_put_text(j, "cgroup", t->cgroup);
    api_put_text(j, "container", t->container);
    json_key(j, "exited");
    json_bool(j, t->flags & TARGET_EXITED);
    json_key(j, "types");
    json_array_begin(j);
    for (uint32_t i = 0; i < t->n_type; i++)
        json_str(j, t->type[i].name);
    json_array_end(j);
    api_put_ns(j, "first_ns", t->seen.t0.v);
    api_put_ns(j, "last_ns", t->seen.t1.v);
    json_object_end(j);
}

int api_targets(struct api_call *c, struct query_err *e)
{
    uint32_t limit = VALUES_DEFAULT;
    struct str after = api_param(c, "after");
    struct json_out *j = &c->json;
    struct query_targets t = {};
    uint64_t id = 0;

    TRY(api_open(c, false, e));
    TRY(api_param_u32(c, "limit", 1, VALUES_MAX, &limit, e));
    if (after.n && !str_hex64(after, &id))
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "after",
                          "after is the next of a page before");
    TRY(query_targets(c->query, limit, id, &t, e));
    begin(c, "targets", "targets");
    for (uint32_t i = 0; i < t.n; i++)
        put_target(j, &t.row[i]);
    json_array_end(j);
    json_key(j, "next");
    if (t.truncated && t.n)
        json_hex64(j, t.row[t.n - 1].id);
    else
        json_null_value(j);
    json_object_end(j);
    return 0;
}

/* ---- status ------------------------------------------------------------------------------------
 */

#define SOURCES_BACK "now-10m" /* how far back a source counts as known */

static void put_source(struct json_out *j, const struct query_source_row *s)
{
    static const char *const states[] = {"", "ok", "paused", "refused", "absent"};

    json_object_begin(j);
    api_put_text(j, "type", s->type.name);
    api_put_text(j, "unit", s->type.unit);
    json_key(j, "state");
    json_cstr(j, (unsigned)s->state < 5 ? states[s->state] : "");
    api_put_text(j, "why", s->why);
    api_put_ns(j, "last_ns", s->last.v);
    json_object_end(j);
}

/* Sources by the host that they name: what people call an agent. */
static void put_agents(struct json_out *j, const struct query_status *s)
{
    json_key(j, "agents");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_source; i++) {
        struct str host = s->source[i].host;
        real_ns last = s->source[i].last;
        bool seen = false;

        for (uint32_t k = 0; k < i; k++)
            seen |= str_eq(s->source[k].host, host);
        if (seen)
            continue;
        for (uint32_t k = i; k < s->n_source; k++) {
            if (str_eq(s->source[k].host, host) && s->source[k].last.v > last.v)
                last = s->source[k].last;
        }
        json_object_begin(j);
        api_put_text(j, "host", host);
        api_put_ns(j, "last_ns", last.v);
        json_key(j, "sources");
        json_array_begin(j);
        for (uint32_t k = i; k < s->n_source; k++) {
            if (str_eq(s->source[k].host, host))
                put_source(j, &s->source[k]);
        }
        json_array_end(j);
        json_object_end(j);
    }
    json_array_end(j);
    json_key(j, "sources_more");
    json_u64(j, s->sources_more);
}

static void put_senders(struct json_out *j, const struct query_status *s)
{
    json_key(j, "senders");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_sender; i++) {
        json_object_begin(j);
        put_hex(j, "agent", s->sender[i].agent);
        put_hex(j, "boot", s->sender[i].boot);
        json_key(j, "seq");
        json_dec_u64(j, s->sender[i].seq);
        api_put_ns(j, "last_ns", s->sender[i].last.v);
        json_object_end(j);
    }
    json_array_end(j);
    json_key(j, "senders_more");
    json_u64(j, s->senders_more);
}

static void put_store(struct json_out *j, const struct api_conf *conf, const struct query_status *s)
{
    json_key(j, "store");
    json_object_begin(j);
    json_key(j, "state");
    json_cstr(j, s->state);
    api_put_text(j, "why", s->state_why);
    json_key(j, "lsn");
    json_dec_u64(j, s->lsn);
    json_key(j, "batches");
    json_dec_u64(j, s->batches);
    json_key(j, "rows");
    json_dec_u64(j, s->rows);
    json_key(j, "series");
    json_u64(j, s->series);
    json_key(j, "nodes");
    json_u64(j, s->nodes);
    json_key(j, "head_rows");
    json_u64(j, s->head_rows);
    json_key(j, "journal_bytes");
    json_dec_u64(j, s->journal_bytes);
    json_object_end(j);
    json_key(j, "disk");
    json_object_begin(j);
    json_key(j, "bytes");
    json_dec_u64(j, s->disk_used);
    json_key(j, "free");
    json_dec_u64(j, s->disk_free);
    json_key(j, "limit");
    if (conf->disk_limit)
        json_dec_u64(j, conf->disk_limit);
    else
        json_null_value(j);
    json_key(j, "bytes_per_day"); /* of sealed data: none yet is not zero a day */
    if (s->bytes_per_day)
        json_dec_u64(j, s->bytes_per_day);
    else
        json_null_value(j);
    json_key(j, "days_left");
    json_null_value(j);
    json_object_end(j);
}

static void put_edge(struct json_out *j, const char *key, real_ns t)
{
    json_key(j, key);
    if (t.v)
        api_put_instant(j, t);
    else
        json_null_value(j);
}

static void put_tiers(struct json_out *j, const struct api_conf *conf, const struct query_status *s)
{
    json_key(j, "tiers");
    json_array_begin(j);
    json_object_begin(j);
    json_key(j, "tier");
    json_cstr(j, "raw");
    put_edge(j, "from_ns", s->raw_from.v ? s->raw_from : s->oldest);
    put_edge(j, "to_ns", s->newest);
    json_key(j, "keep_ns");
    if (conf->keep_raw_ns)
        json_dec_i64(j, conf->keep_raw_ns);
    else
        json_null_value(j);
    json_object_end(j);
    json_array_end(j);
}

int api_status(struct api_call *c, struct query_err *e)
{
    const struct api_conf *conf = &c->api->conf;
    struct query_conf qc = {.store = conf->store,
                            .now = c->req->now,
                            .deadline = c->req->deadline,
                            .cancel = c->req->cancel,
                            .mem_max = conf->mem_max};
    struct query_ask ask = {.from = STR(SOURCES_BACK), .to = STR("now+10m")};
    struct json_out *j = &c->json;
    struct query_status s = {};

    TRY(query_open(&qc, &ask, &c->query, e));
    TRY(query_status(c->query, &s, e));
    json_object_begin(j);
    json_key(j, "v");
    json_i64(j, 1);
    json_key(j, "version");
    json_cstr(j, conf->version);
    json_key(j, "ui");
    json_cstr(j, conf->ui_hash);
    api_put_ns(j, "server_ns", c->req->now.v);
    api_put_ns(j, "ingest_age_ns", conf->age_ns);
    put_edge(j, "oldest_ns", s.oldest);
    put_edge(j, "newest_ns", s.newest);
    put_tiers(j, conf, &s);
    put_agents(j, &s);
    put_senders(j, &s);
    put_store(j, conf, &s);
    json_key(j, "queries_running");
    json_u64(j, api_running(c->api));
    json_object_end(j);
    return 0;
}

/* ---- the page that describes all this ----------------------------------------------------------
 */

/* docs/openapi.json, put there by the build (embed.py) */
extern const char api_openapi_json[];
extern const unsigned long api_openapi_json_n;

int api_openapi(struct api_call *c, struct query_err *e)
{
    (void)e;
    c->reply->fixed = (struct str){api_openapi_json, api_openapi_json_n};
    return 0;
}
