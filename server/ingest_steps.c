// SPDX-License-Identifier: Apache-2.0
/*
 * POST /api/v1/steps: step marks as JSON become a native batch, and from there on they are one: its
 * encoding is what the journal keeps, and is decoded once more here, so that limits cut exactly
 * what a replay will cut.
 *
 * Identity: Strata-Batch-Id. "NAME:N" with a number N from 1 is number N of a sender called NAME;
 * any other text is a sender of its own with this one batch. Without it the same body sent twice
 * counts twice.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/json_out.h"
#include "base/log.h"
#include "server/http_parse.h"
#include "server/ingest_private.h"
#include "server/ingest_steps_private.h"
#include "server/pool.h"

enum {
    CHARGE_FACTOR = 32, /* of the inflated body: its tree, tables and both forms of the batch */
    CHARGE_MIN = 256 << 10,
    ID_MAX = 128,
    REPLY_MAX = 16 << 10,
};

#define STEPS "steps" /* as /metrics says it */

struct job {
    struct ingest *g;
    const struct msg_request *q;
    struct msg_reply *r;
    void (*done)(void *ctx);
    void *ctx;
    struct arena arena;
    struct buf inflated, plain, payload;
    uint64_t charged;
    struct steps_parsed parsed;
    struct batch batch;
};

/* ---- answers ------------------------------------------------------------------------------- */

void ingest_steps_fail(struct ingest *g, const struct msg_request *q, struct msg_reply *r,
                       const struct msg_error *e)
{
    ingest_count(g, STEPS, e->status, e->code);
    msg_fail(r, q, e);
}

static void put_rejected(struct json_out *o, const char *reason, uint32_t n)
{
    if (n == 0)
        return;
    json_object_begin(o);
    json_key(o, "reason");
    json_cstr(o, reason);
    json_key(o, "steps");
    json_u64(o, n);
    json_object_end(o);
}

static void reply_ok(struct job *j, const char *status, uint64_t lsn)
{
    const struct steps_parsed *p = &j->parsed;
    struct json_out o;

    msg_reply_deinit(j->r);
    j->r->status = 200;
    j->r->content_type = "application/json";
    buf_init(&j->r->body, REPLY_MAX);
    json_init(&o, &j->r->body);
    json_object_begin(&o);
    json_key(&o, "status");
    json_cstr(&o, status);
    json_key(&o, "steps");
    json_u64(&o, p->steps);
    json_key(&o, "lsn");
    if (lsn)
        json_dec_u64(&o, lsn);
    else
        json_null_value(&o);
    json_key(&o, "rejected");
    json_array_begin(&o);
    put_rejected(&o, "bad_step", p->bad_step);
    put_rejected(&o, "too_old", p->too_old);
    put_rejected(&o, "in_future", p->in_future);
    json_array_end(&o);
    json_object_end(&o);
    ingest_count(j->g, STEPS, 200, NULL);
    if (p->bad_step)
        ingest_count_refused(j->g, STEPS, "bad_step", p->bad_step);
    if (p->too_old)
        ingest_count_refused(j->g, STEPS, "too_old", p->too_old);
    if (p->in_future)
        ingest_count_refused(j->g, STEPS, "in_future", p->in_future);
}

static void refuse(struct job *j, const struct msg_error *e)
{
    ingest_steps_fail(j->g, j->q, j->r, e);
}

static void job_done(struct job *j)
{
    void (*done)(void *) = j->done;
    void *ctx = j->ctx;

    arena_deinit(&j->arena);
    buf_deinit(&j->inflated);
    buf_deinit(&j->plain);
    buf_deinit(&j->payload);
    if (j->charged)
        pool_give(ingest_conf_of(j->g)->pool, j->charged);
    free(j);
    done(ctx);
}

/* ---- admission ----------------------------------------------------------------------------- */

bool ingest_steps_admit(struct ingest *g, const struct msg_request *q, struct msg_reply *r)
{
    struct str coding = http_media_type(q->content_encoding);
    struct msg_error e = {};

    if (!http_str_eq(http_media_type(q->content_type), STR("application/json")))
        e = (struct msg_error){.status = 415,
                               .code = "unsupported_media_type",
                               .message = "this address takes application/json",
                               .param = "Content-Type"};
    else if (coding.n && !http_str_eq(coding, STR("gzip")) && !http_str_eq(coding, STR("identity")))
        e = (struct msg_error){.status = 415,
                               .code = "unsupported_coding",
                               .message = "the body may be gzip or identity",
                               .param = "Content-Encoding"};
    else if (q->batch_id.n > ID_MAX)
        e = (struct msg_error){.status = 400,
                               .code = "bad_value",
                               .message = "the identity of a batch is longer than its limit",
                               .param = "Strata-Batch-Id",
                               .setting = "bytes of Strata-Batch-Id",
                               .limit = ID_MAX,
                               .actual = q->batch_id.n};
    else if (ingest_state(g, &e))
        return true;
    ingest_steps_fail(g, q, r, &e);
    return false;
}

/* ---- the body ------------------------------------------------------------------------------ */

static bool charge(struct job *j, uint64_t n)
{
    const struct pool *pool = ingest_conf_of(j->g)->pool;

    if (!pool_take(ingest_conf_of(j->g)->pool, n)) {
        refuse(j, &(struct msg_error){.status = 503,
                                      .code = "overloaded",
                                      .message = "no memory for this body beside those in work",
                                      .setting = "ingest.memory",
                                      .limit = pool->max,
                                      .actual = pool_used(pool) + n,
                                      .retry_after_s = 1});
        return false;
    }
    j->charged += n;
    return true;
}

static void refuse_fault(struct job *j, const struct wire_fault *f, const struct err *err)
{
    refuse(j, &(struct msg_error){.status = f->too_large ? 413 : 400,
                                  .code = f->reason ? f->reason : "bad_encoding",
                                  .message = err->msg,
                                  .param = f->field[0] ? f->field : NULL,
                                  .setting = f->setting,
                                  .limit = f->limit,
                                  .actual = f->actual});
}

static bool body_too_large(struct job *j, uint64_t actual)
{
    refuse(j, &(struct msg_error){.status = 413,
                                  .code = "inflated_too_large",
                                  .message = "a body of steps is larger than its limit",
                                  .setting = "bytes of a body of steps",
                                  .limit = STEPS_BODY_MAX,
                                  .actual = actual});
    return false;
}

static bool inflate_body(struct job *j, struct str *ret)
{
    struct wire_limits l = ingest_conf_of(j->g)->limits;
    struct wire_fault fault = {};
    struct err err = {};
    int r;

    if (!http_str_eq(http_media_type(j->q->content_encoding), STR("gzip"))) {
        *ret = j->q->body;
        return ret->n <= STEPS_BODY_MAX || body_too_large(j, ret->n);
    }
    if (!charge(j, STEPS_BODY_MAX))
        return false;
    l.inflated = STEPS_BODY_MAX;
    buf_init(&j->inflated, l.inflated);
    r = wire_gunzip(j->q->body, &l, &j->inflated, &fault, &err);
    if (r == 0) {
        *ret = buf_view(&j->inflated);
        return true;
    }
    if (r == -E2BIG && fault.limit == STEPS_BODY_MAX)
        return body_too_large(j, fault.actual);
    refuse_fault(j, &fault, &err);
    return false;
}

/* ---- the batch ----------------------------------------------------------------------------- */

static void sixteen(struct str s, uint64_t seed, uint8_t ret[16])
{
    for (unsigned k = 0; k < 2; k++) {
        uint64_t h = hash_seed(s.p, s.n, seed + k);

        for (unsigned i = 0; i < 8; i++)
            ret[8 * k + i] = (uint8_t)(h >> (8 * i));
    }
    ret[0] |= 1; /* all zeros would mean none */
}

static void identity(struct str id, struct batch_id *ret)
{
    size_t colon = str_rfind(id, ':');
    uint64_t n = 0, seed = 1; /* one kind is never the other */

    if (id.n == 0)
        return;
    ret->seq = 1;
    if (colon != SIZE_MAX && colon > 0 && str_u64(str_from(id, colon + 1), &n) && n > 0) {
        ret->seq = n;
        id = str_to(id, colon);
        seed = 5;
    }
    sixteen(id, seed, ret->agent);
    sixteen(id, seed + 2, ret->boot);
}

static bool parse(struct job *j, struct str body)
{
    const struct batch_limits *limits = &ingest_conf_of(j->g)->limits.batch;
    struct steps_fault f = {};
    uint64_t cap = CHARGE_FACTOR * (uint64_t)body.n;
    char text[240];

    if (cap < CHARGE_MIN)
        cap = CHARGE_MIN;
    if (!charge(j, cap))
        return false;
    arena_init(&j->arena, cap);
    if (steps_parse(body, limits, j->q->now, &j->arena, &j->parsed, &f) == 0) {
        identity(j->q->batch_id, &j->parsed.batch.id);
        return true;
    }
    (void)snprintf(text, sizeof text, "%s%s%s", f.field, f.field[0] ? ": " : "", f.text);
    refuse(j, &(struct msg_error){.status = f.status,
                                  .code = f.code,
                                  .message = text,
                                  .param = f.field[0] ? f.field : NULL,
                                  .setting = f.setting,
                                  .limit = f.limit,
                                  .actual = f.actual});
    return false;
}

/* Encoding, and what will be read back from it. */
static bool encode(struct job *j)
{
    const struct wire_limits *l = &ingest_conf_of(j->g)->limits;
    struct wire_fault fault = {};
    struct err err = {};
    int r;

    buf_init(&j->plain, l->inflated);
    r = wire_encode(&j->parsed.batch, &j->plain, NULL, &err);
    if (r == 0) {
        buf_init(&j->payload, j->plain.n + j->plain.n / 128 + 1024); /* zstd's bound is below it */
        r = wire_compress(buf_view(&j->plain), &j->payload, &err);
    }
    if (r < 0) {
        log_event(LOG_ERROR, "steps_not_encoded", LOG_ERR(&err));
        refuse(j, &(struct msg_error){.status = 500, .code = "internal", .message = err.msg});
        return false;
    }
    r = wire_decode(buf_view(&j->plain), l, j->q->now, &j->arena, &j->batch, &fault, NULL, &err);
    if (r == 0)
        return true;
    refuse_fault(j, &fault, &err);
    return false;
}

static bool prepare(struct job *j)
{
    struct msg_error e;
    struct str body;

    if (!inflate_body(j, &body) || !parse(j, body))
        return false;
    if (j->parsed.steps == 0) { /* all refused alone, or none sent: nothing to store */
        reply_ok(j, "stored", 0);
        return false;
    }
    if (!ingest_rate(j->g, j->parsed.batch.id.agent, body.n, &e)) {
        refuse(j, &e);
        return false;
    }
    return encode(j);
}

static void on_append(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    struct job *j = ctx;
    struct msg_error e;

    if (r == 0 || r == STORE_DUPLICATE) {
        reply_ok(j, r == 0 ? "stored" : "duplicate", lsn);
    } else {
        ingest_append_error(r, err, &e);
        refuse(j, &e);
    }
    job_done(j);
}

void ingest_steps(struct ingest *g, const struct msg_request *q, struct msg_reply *r,
                  void (*done)(void *ctx), void *ctx)
{
    struct job *j = xcalloc(1, sizeof *j);

    *j = (struct job){.g = g, .q = q, .r = r, .done = done, .ctx = ctx};
    if (prepare(j))
        store_append(ingest_store(g), &j->batch, buf_view(&j->payload), on_append, j);
    else
        job_done(j);
}
