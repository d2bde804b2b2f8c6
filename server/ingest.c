// SPDX-License-Identifier: Apache-2.0
/*
 * The way of one batch: inflate to a cap, decode into an arena, append, answer when the store calls
 * back. Nothing here waits for the store: what a request needs lives in struct job until then.
 * There are more event threads than CPUs, so decoding, which is all CPU and memory, waits for its
 * turn.
 *
 * Memory is taken from the pool of all requests before it is allocated. How much a body will need
 * is not known before it is decoded, so a first guess is taken, and GROWTH times as much, up to the
 * limit, for the few bodies that exceed it; what was too much goes back before the batch is queued.
 */
#include "server/ingest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json_out.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/http_parse.h"
#include "server/ingest_loss.h"
#include "server/ingest_private.h"
#include "server/ingest_rate.h"
#include "server/ingest_source.h"
#include "server/msg.h"
#include "server/pool.h"

enum {
    INFLATE_GUESS = 8, /* times the body as received */
    ARENA_GUESS = 8,   /* times the inflated body */
    GUESS_MIN = 256 << 10,
    GROWTH = 2,
    REPLY_MAX = 64 << 10, /* a client reads no more of an answer */
    STATE_AGE_MS = 200,   /* a refusal by state costs no look at the store */
};

#define NATIVE "native" /* as /metrics says it */

struct ingest {
    struct ingest_conf conf;
    struct rate *rate;
    struct loss_table *losses;
    struct source_table *sources;
    struct store *_Atomic store;
    _Atomic int state; /* enum store_state when last looked at */
    _Atomic int64_t state_at;
    struct mutex mu;
    struct ingest_stats stats;
    struct mutex turn_mu;
    struct cond turn;
    uint32_t decoding;
};

struct job {
    struct ingest *g;
    const struct msg_request *q;
    struct msg_reply *r;
    void (*done)(void *ctx);
    void *ctx;
    struct arena arena;
    struct buf payload; /* a body that came uncompressed, compressed */
    uint64_t charged;
    struct batch batch;
    struct wire_rejects rejects;
};

struct ingest *ingest_new(const struct ingest_conf *conf)
{
    struct ingest *g = xcalloc(1, sizeof *g);

    g->conf = *conf;
    g->rate = rate_new(conf->rate, conf->burst);
    g->losses = loss_table_new();
    g->sources = source_table_new();
    atomic_store(&g->state, STORE_OK);
    mutex_init(&g->mu);
    mutex_init(&g->turn_mu);
    cond_init(&g->turn);
    return g;
}

struct ingest *ingest_free(struct ingest *g)
{
    if (!g)
        return NULL;
    rate_free(g->rate);
    loss_table_free(g->losses);
    source_table_free(g->sources);
    mutex_deinit(&g->mu);
    mutex_deinit(&g->turn_mu);
    cond_deinit(&g->turn);
    free(g);
    return NULL;
}

void ingest_set_store(struct ingest *g, struct store *s)
{
    atomic_store(&g->store, s);
}

struct store *ingest_store(const struct ingest *g)
{
    return atomic_load(&g->store);
}

const struct ingest_conf *ingest_conf_of(const struct ingest *g)
{
    return &g->conf;
}

/* ---- counting ------------------------------------------------------------------------------ */

static void count_reason_locked(struct ingest *g, const char *proto, const char *name, uint64_t n)
    REQUIRES(&g->mu)
{
    struct ingest_stats *s = &g->stats;
    uint32_t i = 0;

    while (i < s->n_reason &&
           (strcmp(s->reason[i].name, name) != 0 || strcmp(s->reason[i].proto, proto) != 0))
        i++;
    if (i == INGEST_REASONS_MAX)
        i--; /* more reasons than there are in the code: a bug, but the count is kept */
    else if (i == s->n_reason)
        s->reason[s->n_reason++] = (struct ingest_count){.proto = proto, .name = name};
    s->reason[i].n += n;
}

void ingest_count(struct ingest *g, const char *proto, int code, const char *reason)
{
    struct ingest_stats *s = &g->stats;
    uint32_t i = 0;

    mutex_lock(&g->mu);
    while (i < s->n_code && (s->code[i].code != code || strcmp(s->code[i].proto, proto) != 0))
        i++;
    if (i == s->n_code && i < INGEST_CODES_MAX) {
        s->code[i].proto = proto;
        s->code[s->n_code++].code = code;
    }
    if (i < INGEST_CODES_MAX)
        s->code[i].n++;
    if (reason)
        count_reason_locked(g, proto, reason, 1);
    mutex_unlock(&g->mu);
}

void ingest_count_refused(struct ingest *g, const char *proto, const char *reason, uint64_t n)
{
    mutex_lock(&g->mu);
    count_reason_locked(g, proto, reason, n);
    mutex_unlock(&g->mu);
}

static void count_stored(struct ingest *g, const struct job *j)
{
    mutex_lock(&g->mu);
    for (uint32_t i = 0; i < j->batch.n_stream; i++) {
        const struct batch_stream *st = &j->batch.stream[i];

        g->stats.samples[st->type < PTYPE_BUILTIN_END ? st->type : 0] += st->rows.n;
    }
    for (uint32_t i = 0; i < j->rejects.n; i++)
        count_reason_locked(g, NATIVE, j->rejects.v[i].reason, j->rejects.v[i].rows);
    g->stats.name_cut += j->rejects.name_cut;
    g->stats.stack_cut += j->rejects.stack_cut;
    g->stats.label_dropped += j->rejects.label_dropped;
    g->stats.label_cut += j->rejects.label_cut;
    mutex_unlock(&g->mu);
}

struct loss_table *ingest_losses(struct ingest *g)
{
    return g->losses;
}

struct source_table *ingest_sources(struct ingest *g)
{
    return g->sources;
}

void ingest_stats(struct ingest *g, struct ingest_stats *ret)
{
    mutex_lock(&g->mu);
    *ret = g->stats;
    mutex_unlock(&g->mu);
}

/* ---- answers ------------------------------------------------------------------------------- */

static bool wants_json(const struct msg_request *q)
{
    return http_list_has(q->accept, STR("application/json"));
}

void ingest_fail(struct ingest *g, const struct msg_request *q, struct msg_reply *r,
                 const struct msg_error *e)
{
    struct wire_error w = {.limit = e->setting ? e->limit : 0,
                           .actual = e->setting ? e->actual : 0,
                           .retry_after_ms = e->retry_after_s * 1000};

    ingest_count(g, NATIVE, e->status, e->code);
    if (wants_json(q)) {
        msg_fail(r, q, e);
        return;
    }
    (void)snprintf(w.reason, sizeof w.reason, "%s", e->code);
    (void)snprintf(w.message, sizeof w.message, "%s", e->message ? e->message : e->code);
    (void)snprintf(w.setting, sizeof w.setting, "%s", e->setting ? e->setting : "");
    msg_reply_deinit(r);
    r->status = e->status;
    r->content_type = WIRE_MEDIA_TYPE;
    r->retry_after_s = e->retry_after_s;
    buf_init(&r->body, REPLY_MAX);
    wire_error_encode(&w, &r->body);
}

static void reply_json(const struct job *j, bool duplicate, uint64_t lsn)
{
    struct json_out o;

    json_init(&o, &j->r->body);
    json_object_begin(&o);
    json_key(&o, "status");
    json_cstr(&o, duplicate ? "duplicate" : "stored");
    json_key(&o, "seq");
    json_dec_u64(&o, j->batch.id.seq);
    json_key(&o, "lsn");
    json_dec_u64(&o, lsn);
    json_key(&o, "rejected");
    json_array_begin(&o);
    for (uint32_t i = 0; i < j->rejects.n; i++) {
        const struct wire_reject *x = &j->rejects.v[i];

        json_object_begin(&o);
        json_key(&o, "reason");
        json_cstr(&o, x->reason);
        json_key(&o, "stream");
        json_u64(&o, x->stream);
        json_key(&o, "samples");
        json_dec_u64(&o, x->rows);
        json_key(&o, "value");
        json_dec_i128(&o, x->value);
        json_object_end(&o);
    }
    json_array_end(&o);
    json_key(&o, "server_ns");
    json_dec_i64(&o, real_now().v);
    json_key(&o, "max_bytes");
    json_u64(&o, j->g->conf.limits.body);
    json_object_end(&o);
}

static void reply_ok(struct job *j, bool duplicate, uint64_t lsn)
{
    struct wire_reply w = {.seq = j->batch.id.seq,
                           .status = duplicate ? WIRE_DUPLICATE : WIRE_STORED,
                           .lsn = lsn,
                           .rejects = &j->rejects,
                           .server = real_now(),
                           .max_bytes = j->g->conf.limits.body};
    bool json = wants_json(j->q);

    msg_reply_deinit(j->r);
    j->r->status = 200;
    j->r->content_type = json ? "application/json" : WIRE_MEDIA_TYPE;
    buf_init(&j->r->body, REPLY_MAX);
    if (json)
        reply_json(j, duplicate, lsn);
    else
        wire_reply_encode(&w, &j->r->body);
    if (!duplicate) {
        count_stored(j->g, j);
        loss_table_add(j->g->losses, &j->batch);
        source_table_set(j->g->sources, &j->batch);
    }
    ingest_count(j->g, NATIVE, 200, duplicate ? "duplicate" : NULL);
}

/* What the store's results mean to a sender. */
static const struct append_error {
    int r, status;
    const char *code, *message, *setting;
    uint32_t retry_after_s;
} append_errors[] = {
    {STORE_SEQ_CONFLICT, 409, "seq_conflict",
     "another batch with this agent, boot and seq is stored", NULL, 0},
    {STORE_SEQ_TOO_OLD, 409, "seq_too_old",
     "more than 1024 behind the sender's highest seq: whether it is stored cannot be told", NULL,
     0},
    {STORE_DICT_MISS, 409, "dict_miss",
     "a known hash is not held here: send the same seq with all definitions", NULL, 0},
    {-E2BIG, 413, "body_too_large", NULL, NULL, 0},
    {-EAGAIN, 503, "overloaded", "the queue of the journal is full", NULL, 1},
    {-ENOMEM, 503, "overloaded", NULL, NULL, 1},
    {-ENOBUFS, 429, "head_full", NULL, NULL, 5},
    {-ENOSPC, 503, "disk_full", NULL, NULL, 5},
    {-EROFS, 503, "read_only", NULL, NULL, 60},
    {-ESHUTDOWN, 503, "stopping", "the server is stopping", NULL, 5},
    {-EIO, 503, "commit_failed", NULL, NULL, 5},
};

void ingest_append_error(int r, const struct err *err, struct msg_error *ret)
{
    struct msg_error e = {.status = 500, .code = "internal", .retry_after_s = 5};

    for (size_t i = 0; i < sizeof append_errors / sizeof append_errors[0]; i++) {
        const struct append_error *a = &append_errors[i];

        if (a->r == r)
            e = (struct msg_error){.status = a->status,
                                   .code = a->code,
                                   .message = a->message,
                                   .setting = a->setting,
                                   .retry_after_s = a->retry_after_s};
    }
    if (r == -ENOBUFS) /* of the two limits the store's words begin with the one it met */
        e.setting = err && str_starts(str_c(err->msg), STR("storage.max_unsealed"))
                        ? "storage.max_unsealed"
                        : "limits.memory";
    if (!e.message && err && err->msg[0])
        e.message = err->msg;
    if (e.status == 500)
        log_event(LOG_ERROR, "append_failed", LOG_I("result", r),
                  LOG_C("error", err ? err->msg : ""));
    *ret = e;
}

static void reply_append(struct job *j, int r, uint64_t lsn, const struct err *err)
{
    struct msg_error e;

    if (r == 0 || r == STORE_DUPLICATE) {
        reply_ok(j, r == STORE_DUPLICATE, lsn);
        return;
    }
    ingest_append_error(r, err, &e);
    ingest_fail(j->g, j->q, j->r, &e);
}

/* ---- a request ----------------------------------------------------------------------------- */

bool ingest_state(struct ingest *g, struct msg_error *e)
{
    struct store *s = atomic_load(&g->store);
    int64_t now = mono_now().v;

    if (s && now - atomic_load(&g->state_at) > STATE_AGE_MS * NS_PER_MS) {
        struct store_stats stats;

        atomic_store(&g->state_at, now);
        store_stats(s, &stats);
        atomic_store(&g->state, stats.state);
    }
    if (!s)
        *e = (struct msg_error){.status = 503,
                                .code = "starting",
                                .message = "the server is reading its journal",
                                .retry_after_s = 1};
    else if (atomic_load(&g->state) == STORE_READ_ONLY)
        *e = (struct msg_error){.status = 503,
                                .code = "read_only",
                                .message = "the store is read-only until the server is restarted",
                                .retry_after_s = 60};
    else if (atomic_load(&g->state) == STORE_FULL)
        *e = (struct msg_error){.status = 503,
                                .code = "disk_full",
                                .message = "the disk of the store is full",
                                .retry_after_s = 5};
    else
        return true;
    return false;
}

bool ingest_admit(struct ingest *g, const struct msg_request *q, struct msg_reply *r)
{
    struct str type = http_media_type(q->content_type);
    struct str coding = http_media_type(q->content_encoding);
    struct msg_error e = {};

    if (!http_str_eq(type, STR(WIRE_MEDIA_TYPE)))
        e = (struct msg_error){.status = 415,
                               .code = "unsupported_media_type",
                               .message = "this address takes " WIRE_MEDIA_TYPE,
                               .param = "Content-Type"};
    else if (coding.n && !http_str_eq(coding, STR("zstd")) && !http_str_eq(coding, STR("identity")))
        e = (struct msg_error){.status = 415,
                               .code = "unsupported_coding",
                               .message = "the body may be zstd or identity",
                               .param = "Content-Encoding"};
    else if (ingest_state(g, &e))
        return true;
    ingest_fail(g, q, r, &e);
    return false;
}

static void job_free(struct job *j)
{
    arena_deinit(&j->arena);
    buf_deinit(&j->payload);
    if (j->charged)
        pool_give(j->g->conf.pool, j->charged);
    free(j);
}

static void job_done(struct job *j)
{
    void (*done)(void *) = j->done;
    void *ctx = j->ctx;

    job_free(j);
    done(ctx);
}

static void job_refuse(struct job *j, const struct wire_fault *f, const struct err *err)
{
    char text[256];
    struct msg_error e = {.status = f->too_large ? 413 : 400,
                          .code = f->reason ? f->reason : "bad_encoding",
                          .message = text,
                          .param = f->field[0] ? f->field : NULL,
                          .setting = f->setting,
                          .limit = f->limit,
                          .actual = f->actual};

    if (f->field[0] && !strstr(err->msg, f->field))
        (void)snprintf(text, sizeof text, "%s: %s", f->field, err->msg);
    else
        (void)snprintf(text, sizeof text, "%s", err->msg);
    ingest_fail(j->g, j->q, j->r, &e);
}

static void job_overloaded(struct job *j, uint64_t want)
{
    const struct pool *p = j->g->conf.pool;
    const struct msg_error e = {.status = 503,
                                .code = "overloaded",
                                .message = "no memory for this batch beside those in work",
                                .setting = "ingest.memory",
                                .limit = p->max,
                                .actual = pool_used(p) + want,
                                .retry_after_s = 1};

    ingest_fail(j->g, j->q, j->r, &e);
}

/* More than all requests together may have: waiting would not help. */
static void job_never_fits(struct job *j, uint64_t want)
{
    const struct msg_error e = {.status = 413,
                                .code = "decode_budget",
                                .message = "this batch alone needs more memory than all may have",
                                .setting = "ingest.memory",
                                .limit = j->g->conf.pool->max,
                                .actual = want};

    ingest_fail(j->g, j->q, j->r, &e);
}

static bool job_charge(struct job *j, uint64_t n)
{
    uint64_t all = j->q->body.n + j->charged + n;

    if (all > j->g->conf.pool->max) {
        job_never_fits(j, all);
        return false;
    }
    if (!pool_take(j->g->conf.pool, n)) {
        job_overloaded(j, n);
        return false;
    }
    j->charged += n;
    return true;
}

static void job_uncharge(struct job *j, uint64_t n)
{
    pool_give(j->g->conf.pool, n);
    j->charged -= n;
}

/* n or what is left beside this request's own share: the most that it can ever have. */
static uint64_t at_most(const struct job *j, uint64_t n)
{
    uint64_t own = j->q->body.n + j->charged, max = j->g->conf.pool->max;
    uint64_t room = max > own ? max - own : 0;

    return n < room ? n : room;
}

static uint64_t guess(uint64_t n, uint64_t factor, uint64_t max)
{
    uint64_t g = n > max / factor ? max : n * factor;

    if (g < GUESS_MIN)
        g = GUESS_MIN;
    return g < max ? g : max;
}

/* out is charged with *ret_charged. false: refused, the reply is filled. */
static bool job_inflate(struct job *j, struct buf *out, uint64_t *ret_charged)
{
    struct wire_limits l = j->g->conf.limits;
    uint64_t max = l.inflated;

    l.inflated = guess(j->q->body.n, INFLATE_GUESS, max);
    for (;;) {
        struct wire_fault fault = {};
        struct err err = {};
        int r;

        if (!job_charge(j, l.inflated))
            return false;
        buf_init(out, l.inflated);
        r = wire_inflate(j->q->body, &l, out, &fault, &err);
        if (r == 0) {
            *ret_charged = l.inflated;
            return true;
        }
        buf_deinit(out);
        job_uncharge(j, l.inflated);
        if (r != -E2BIG || l.inflated == max || !fault.too_large) {
            job_refuse(j, &fault, &err);
            return false;
        }
        l.inflated = l.inflated < max / GROWTH ? l.inflated * GROWTH : max;
    }
}

static bool job_decode(struct job *j, struct str body)
{
    const struct wire_limits *l = &j->g->conf.limits;
    uint64_t cap = at_most(j, guess(body.n, ARENA_GUESS, l->arena));

    for (;;) {
        struct wire_fault fault = {};
        struct err err = {};
        int r;

        if (!job_charge(j, cap))
            return false;
        arena_init(&j->arena, cap);
        j->rejects = (struct wire_rejects){};
        r = wire_decode(body, l, j->q->now, &j->arena, &j->batch, &fault, &j->rejects, &err);
        if (r == 0) {
            job_uncharge(j, cap - j->arena.used);
            return true;
        }
        arena_deinit(&j->arena);
        job_uncharge(j, cap);
        if (r != -ENOMEM || cap == l->arena) {
            if (r == -ENOMEM && !fault.reason)
                fault = (struct wire_fault){.reason = "decode_budget",
                                            .setting = "ingest.arena",
                                            .limit = l->arena,
                                            .actual = l->arena + 1,
                                            .too_large = true};
            job_refuse(j, &fault, &err);
            return false;
        }
        if (cap == at_most(j, cap + 1)) {
            job_never_fits(j, j->q->body.n + j->charged + cap + 1);
            return false;
        }
        cap = at_most(j, cap < l->arena / GROWTH ? cap * GROWTH : l->arena);
    }
}

bool ingest_rate(struct ingest *g, const uint8_t agent[16], uint64_t n, struct msg_error *e)
{
    const struct ingest_conf *c = &g->conf;
    uint64_t owed = rate_take(g->rate, agent, n, mono_now());

    if (!owed)
        return true;
    *e = (struct msg_error){.status = 429,
                            .code = "rate_limited",
                            .message = "this agent sends more than its share",
                            .setting = "ingest.burst",
                            .limit = c->burst,
                            .actual = c->burst + owed,
                            .retry_after_s = c->rate ? (uint32_t)(1 + owed / c->rate) : 0};
    return false;
}

/* The sender's share, once it is known who it is. */
static bool job_rate(struct job *j, size_t inflated)
{
    struct msg_error e;

    if (ingest_rate(j->g, j->batch.id.agent, inflated, &e))
        return true;
    ingest_fail(j->g, j->q, j->r, &e);
    return false;
}

/* The journal keeps a batch compressed, however it came. */
static bool job_compress(struct job *j)
{
    struct err err = {};
    uint64_t cap = j->q->body.n + j->q->body.n / 128 + 1024; /* zstd's bound is below it */

    if (!job_charge(j, cap))
        return false;
    buf_init(&j->payload, cap);
    if (wire_compress(j->q->body, &j->payload, &err) == 0)
        return true;
    log_event(LOG_ERROR, "compress_failed", LOG_ERR(&err));
    ingest_fail(j->g, j->q, j->r,
                &(struct msg_error){.status = 500, .code = "internal", .message = err.msg});
    return false;
}

/* Fill batch and payload; false: refused. */
static bool job_prepare(struct job *j, struct str *ret_payload)
{
    struct str coding = http_media_type(j->q->content_encoding);
    struct buf inflated = {};
    uint64_t charged = 0;
    bool ok;

    if (!http_str_eq(coding, STR("zstd"))) {
        if (!job_decode(j, j->q->body) || !job_rate(j, j->q->body.n) || !job_compress(j))
            return false;
        *ret_payload = buf_view(&j->payload);
        return true;
    }
    if (!job_inflate(j, &inflated, &charged))
        return false;
    ok = job_decode(j, buf_view(&inflated)) && job_rate(j, inflated.n);
    buf_deinit(&inflated);
    job_uncharge(j, charged);
    *ret_payload = j->q->body;
    return ok;
}

static bool job_prepare_in_turn(struct job *j, struct str *ret_payload)
{
    struct ingest *g = j->g;
    bool ok;

    mutex_lock(&g->turn_mu);
    while (g->conf.decoders && g->decoding == g->conf.decoders)
        cond_wait(&g->turn, &g->turn_mu);
    g->decoding++;
    mutex_unlock(&g->turn_mu);
    ok = job_prepare(j, ret_payload);
    mutex_lock(&g->turn_mu);
    g->decoding--;
    cond_signal(&g->turn);
    mutex_unlock(&g->turn_mu);
    return ok;
}

static void on_append(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    struct job *j = ctx;

    reply_append(j, r, lsn, err);
    job_done(j);
}

void ingest_batch(struct ingest *g, const struct msg_request *q, struct msg_reply *r,
                  void (*done)(void *ctx), void *ctx)
{
    struct job *j = xcalloc(1, sizeof *j);
    struct str payload = {NULL, 0};

    *j = (struct job){.g = g, .q = q, .r = r, .done = done, .ctx = ctx};
    if (job_prepare_in_turn(j, &payload))
        store_append(atomic_load(&g->store), &j->batch, payload, on_append, j);
    else
        job_done(j);
}

int ingest_replay(void *ctx, const struct store_entry *e, struct arena *arena, struct batch *ret,
                  struct err *err)
{
    struct ingest *g = ctx;
    struct wire_limits l = g->conf.limits;
    struct buf inflated;
    int r;

    /* it was acknowledged: today's sizes do not matter, only what decides which rows are stored */
    l.body = l.inflated = l.arena = SIZE_MAX / 4;
    l.unknown_fields = l.members = UINT32_MAX;
    l.batch = *e->limits;
    buf_init(&inflated, l.inflated);
    r = wire_inflate(e->payload, &l, &inflated, NULL, err);
    if (r == 0)
        r = wire_decode(buf_view(&inflated), &l, e->received, arena, ret, NULL, NULL, err);
    buf_deinit(&inflated);
    return r;
}
