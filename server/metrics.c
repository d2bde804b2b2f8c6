// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <inttypes.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/map.h"
#include "server/http.h"
#include "server/ingest.h"
#include "server/ingest_loss.h"
#include "server/ingest_source.h"
#include "server/msg.h"
#include "server/pool.h"
#include "server/work.h"
#include "storage/store.h"

enum {
    METRICS_MAX = 4 << 20,
    AGENTS_MAX = 1000, /* then "other": a scrape stays small whatever sends */
};

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct buf *b, const char *name, const char *type, const char *help, uint64_t v)
{
    head(b, name, type, help);
    buf_printf(b, "%s %" PRIu64 "\n", name, v);
}

static void put_http(const struct metrics *m, struct buf *b)
{
    struct http_stats s;

    http_stats(m->http, &s);
    one(b, "strata_http_connections", "gauge", "open connections", s.connections);
    one(b, "strata_http_requests_total", "counter", "requests begun", s.requests);
    head(b, "strata_http_refused_total", "counter",
         "requests and connections refused before a handler saw them");
#define X(name)                                                                                    \
    buf_printf(b, "strata_http_refused_total{reason=\"" #name "\"} %" PRIu64 "\n", s.name);
    HTTP_REFUSALS(X)
#undef X
}

static void put_latency(const struct metrics *m, struct buf *b)
{
    head(b, "strata_http_request_seconds", "histogram",
         "from the first byte of a request to the last of its answer");
    for (uint32_t i = 0; i < m->n_route; i++) {
        const char *path = m->route[i].path;
        struct http_route_stats s;
        uint64_t sum = 0;

        http_route_stats(m->http, i, &s);
        for (uint32_t k = 0; k <= HTTP_BUCKETS; k++) {
            sum += s.bucket[k];
            buf_printf(b, "strata_http_request_seconds_bucket{route=\"%s\",le=\"", path);
            if (k < HTTP_BUCKETS)
                buf_printf(b, "%g\"} %" PRIu64 "\n", http_bucket_s[k], sum);
            else
                buf_printf(b, "+Inf\"} %" PRIu64 "\n", sum);
        }
        buf_printf(b, "strata_http_request_seconds_sum{route=\"%s\"} %.9f\n", path,
                   (double)s.sum_ns / 1e9);
        buf_printf(b, "strata_http_request_seconds_count{route=\"%s\"} %" PRIu64 "\n", path, s.n);
    }
}

static void put_loss(void *ctx, const uint8_t *agent, const char *type, const char *reason,
                     uint64_t n)
{
    struct buf *b = ctx;

    buf_cstr(b, "strata_agent_lost_total{agent=\"");
    if (!agent)
        buf_cstr(b, "other");
    for (size_t i = 0; agent && i < 16; i++)
        buf_printf(b, "%02x", agent[i]);
    buf_printf(b, "\",type=\"%s\",reason=\"%s\"} %" PRIu64 "\n", type, reason, n);
}

static void put_source(void *ctx, const uint8_t agent[16], const char *type, bool ok)
{
    struct buf *b = ctx;

    buf_cstr(b, "strata_source_ok{agent=\"");
    for (size_t i = 0; i < 16; i++)
        buf_printf(b, "%02x", agent[i]);
    buf_printf(b, "\",source=\"%s\"} %d\n", type, ok);
}

static void put_ingest(const struct metrics *m, struct buf *b)
{
    struct ingest_stats s;

    ingest_stats(m->ingest, &s);
    head(b, "strata_ingest_requests_total", "counter", "ingest requests by HTTP status");
    for (uint32_t i = 0; i < s.n_code; i++)
        buf_printf(b, "strata_ingest_requests_total{proto=\"%s\",code=\"%d\"} %" PRIu64 "\n",
                   s.code[i].proto, s.code[i].code, s.code[i].n);
    head(b, "strata_ingest_samples_total", "counter", "samples stored by profile type");
    for (uint32_t i = 0; i < PTYPE_BUILTIN_END; i++) {
        const struct ptype *t = i ? ptype_builtin((ptype_id)i) : NULL;

        if (i && !t)
            continue;
        buf_printf(b, "strata_ingest_samples_total{type=\"%s\"} %" PRIu64 "\n",
                   t ? t->name : "imported", s.samples[i]);
    }
    head(b, "strata_rejected_total", "counter",
         "requests refused, and samples refused alone, by reason");
    for (uint32_t i = 0; i < s.n_reason; i++)
        buf_printf(b, "strata_rejected_total{proto=\"%s\",reason=\"%s\"} %" PRIu64 "\n",
                   s.reason[i].proto, s.reason[i].name, s.reason[i].n);
    head(b, "strata_agent_lost_total", "counter", "observations that agents said they lost");
    loss_table_each(ingest_losses(m->ingest), put_loss, b);
    head(b, "strata_source_ok", "gauge", "1 where an agent last said that this source delivers");
    source_table_each(ingest_sources(m->ingest), put_source, b);
}

/* What of a sample was cut or folded, its weight kept: names and labels at the door, stacks and
 * series in the store. */
static void put_quality(const struct metrics *m, const struct store_stats *s, struct buf *b)
{
    struct ingest_stats g;

    ingest_stats(m->ingest, &g);
    head(b, "strata_quality_total", "counter", "cuts and folds that kept the weight, by reason");
#define PUT(name, v) buf_printf(b, "strata_quality_total{reason=\"" name "\"} %" PRIu64 "\n", (v))
    PUT("name_cut", g.name_cut);
    PUT("stack_cut", g.stack_cut);
    PUT("label_dropped", g.label_dropped);
    PUT("label_cut", g.label_cut);
    if (!s)
        return;
    PUT("stack_folded", s->stack_folded);
    PUT("series_overflow", s->series_overflow);
    PUT("service_missing", s->service_missing);
    PUT("attr_overflow", s->attr_overflow);
#undef PUT
}

static void put_commits(const struct store_stats *s, struct buf *b)
{
    uint64_t sum = 0;

    head(b, "strata_journal_commit_seconds", "histogram", "time of a group commit, to the disk");
    for (uint32_t k = 0; k <= STORE_COMMIT_BUCKETS; k++) {
        sum += s->commit_bucket[k];
        buf_cstr(b, "strata_journal_commit_seconds_bucket{le=\"");
        if (k < STORE_COMMIT_BUCKETS)
            buf_printf(b, "%g\"} %" PRIu64 "\n", store_commit_bucket_s[k], sum);
        else
            buf_printf(b, "+Inf\"} %" PRIu64 "\n", sum);
    }
    buf_printf(b, "strata_journal_commit_seconds_sum %.9f\n", (double)s->commit_ns / 1e9);
    buf_printf(b, "strata_journal_commit_seconds_count %" PRIu64 "\n", sum);
}

static void put_store(const struct store_stats *s, struct buf *b)
{
    static const struct {
        enum store_state state;
        const char *word;
    } state[] = {{STORE_OK, "ok"},
                 {STORE_TIGHT, "tight"},
                 {STORE_FULL, "disk_full"},
                 {STORE_READ_ONLY, "read_only"}};

    head(b, "strata_store_state", "gauge", "1 for the state that the store is in");
    for (size_t i = 0; i < sizeof state / sizeof state[0]; i++)
        buf_printf(b, "strata_store_state{state=\"%s\"} %d\n", state[i].word,
                   s->state == state[i].state);
    one(b, "strata_head_samples", "gauge", "rows in the head", s->head_rows);
    one(b, "strata_series", "gauge", "series known", s->series);
    one(b, "strata_stack_nodes", "gauge", "stack nodes known", s->nodes);
    one(b, "strata_journal_bytes", "gauge", "journal not yet sealed", s->journal_bytes);
    one(b, "strata_disk_bytes", "gauge", "bytes that the store occupies", s->disk_used);
    one(b, "strata_disk_free_bytes", "gauge", "free bytes of its file system", s->disk_free);
    head(b, "strata_store_total", "counter", "what the store counted since its start");
#define X(name, text)                                                                              \
    buf_printf(b, "strata_store_total{event=\"" #name "\"} %" PRIu64 "\n", s->name);
    STORE_COUNTERS(X)
#undef X
}

static void put_memory(const struct metrics *m, const struct store_stats *s, struct buf *b)
{
    head(b, "strata_memory_bytes", "gauge", "bytes taken from each pool");
    buf_printf(b, "strata_memory_bytes{pool=\"ingest\"} %" PRIu64 "\n", pool_used(m->ingest_pool));
    if (!s)
        return;
    buf_printf(b, "strata_memory_bytes{pool=\"head\"} %" PRIu64 "\n", s->head_bytes);
    buf_printf(b, "strata_memory_bytes{pool=\"dictionaries\"} %" PRIu64 "\n", s->dict_bytes);
    buf_printf(b, "strata_memory_bytes{pool=\"cache\"} %" PRIu64 "\n", s->cache_bytes);
}

struct agents {
    struct buf *b;
    struct map seen;
    real_ns now, other; /* the newest of those that are not named */
};

/* Newest first: the first sender of an installation is its last word. */
static bool put_agent(void *ctx, const struct store_sender *s)
{
    struct agents *a = ctx;
    uint64_t *seen;

    switch (map_at(&a->seen, hash_bytes(s->agent, sizeof s->agent), &seen)) {
    case MAP_FOUND:
        return true;
    case MAP_FULL:
        a->other = s->last;
        return false;
    case MAP_ADDED:
        break;
    }
    buf_cstr(a->b, "strata_agent_last_seen_seconds{agent=\"");
    for (size_t i = 0; i < sizeof s->agent; i++)
        buf_printf(a->b, "%02x", s->agent[i]);
    buf_printf(a->b, "\"} %.3f\n", (double)(a->now.v - s->last.v) / 1e9);
    return true;
}

static void put_agents(struct store *store, struct buf *b)
{
    struct agents a = {.b = b, .now = real_now()};
    struct err err = {};

    map_init(&a.seen, AGENTS_MAX);
    head(b, "strata_agent_last_seen_seconds", "gauge", "age of the last batch of each sender");
    if (store_list_senders(store, put_agent, &a, &err) < 0 && a.other.v)
        buf_printf(b, "strata_agent_last_seen_seconds{agent=\"other\"} %.3f\n",
                   (double)(a.now.v - a.other.v) / 1e9);
    map_deinit(&a.seen);
}

void metrics_handle(const struct metrics *m, struct msg_reply *r)
{
    struct store_stats stats;
    struct buf *b = &r->body;
    uint32_t running = 0, waiting = 0;

    r->status = 200;
    r->content_type = "text/plain; version=0.0.4; charset=utf-8";
    buf_init(b, METRICS_MAX);
    head(b, "strata_build_info", "gauge", "1, with the version as labels");
    buf_printf(b, "strata_build_info{version=\"%s\",ui=\"%s\"} 1\n", m->version, m->ui_hash);
    one(b, "strata_ready", "gauge", "1 when the journal was read and batches are taken",
        http_is_ready(m->http));
    put_http(m, b);
    work_load(m->work, &running, &waiting);
    one(b, "strata_queries_running", "gauge", "queries at work", running);
    one(b, "strata_queries_waiting", "gauge", "queries in the queue", waiting);
    put_ingest(m, b);
    if (m->store) {
        store_stats(m->store, &stats);
        put_store(&stats, b);
        put_commits(&stats, b);
        put_agents(m->store, b);
    }
    put_quality(m, m->store ? &stats : NULL, b);
    put_memory(m, m->store ? &stats : NULL, b);
    put_latency(m, b);
}
