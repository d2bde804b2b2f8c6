// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "base/sample.h"
#include "proto/wire.h"
#include "storage/store.h"

/*
 * POST /api/v1/batch: bytes from a sender become a batch in the store. Every 200 means durable.
 *
 *   admission   what headers and the store's state decide, before the body is read
 *   batch       inflate, decode, append; the answer comes when the store calls back
 *   replay      the same decoding for the journal, with the limits of the day of the 200
 *
 * Answers are BatchReply and Error of docs/format-wire.md, or JSON where Accept asks for it.
 * Thread: any; ingest_new and ingest_free: owner. No request may be open at ingest_free().
 */
struct ingest;
struct msg_error;
struct msg_reply;
struct msg_request;
struct pool;

struct ingest_conf {
    struct wire_limits limits;
    uint64_t rate, burst; /* inflated bytes of one sender, per second and at once; rate 0: none */
    struct pool *pool;    /* memory of inflated bodies and arenas of all requests; borrowed */
    uint32_t decoders;    /* batches decoded at once, others wait their turn; 0: no limit */
};

struct ingest *ingest_new(const struct ingest_conf *conf);
struct ingest *ingest_free(struct ingest *g);

/* Where batches go; before it every batch is 503 starting. Once. */
void ingest_set_store(struct ingest *g, struct store *s);

/* store_conf.decode; ctx is the struct ingest. */
int ingest_replay(void *ctx, const struct store_entry *e, struct arena *arena, struct batch *ret,
                  struct err *err);

/* Media type, coding, state of the store: true, or false with the reply filled. */
bool ingest_admit(struct ingest *g, const struct msg_request *q, struct msg_reply *r);

/* q->body is the body as received. q and r are borrowed until done, which is called exactly once,
 * by the calling thread or one of the store's. */
void ingest_batch(struct ingest *g, const struct msg_request *q, struct msg_reply *r,
                  void (*done)(void *ctx), void *ctx);

/* An error in the form that this route answers in; counted. */
void ingest_fail(struct ingest *g, const struct msg_request *q, struct msg_reply *r,
                 const struct msg_error *e);

/* POST /api/v1/steps: step marks as JSON, likewise. */
bool ingest_steps_admit(struct ingest *g, const struct msg_request *q, struct msg_reply *r);
void ingest_steps(struct ingest *g, const struct msg_request *q, struct msg_reply *r,
                  void (*done)(void *ctx), void *ctx);
void ingest_steps_fail(struct ingest *g, const struct msg_request *q, struct msg_reply *r,
                       const struct msg_error *e);

/* ---- for /metrics -------------------------------------------------------------------------- */

#define INGEST_REASONS_MAX 96
#define INGEST_CODES_MAX   32

struct ingest_count {
    const char *proto; /* static: what it came as, "native" or "steps" */
    const char *name;  /* static: a reason */
    uint64_t n;
};

struct ingest_stats {
    uint64_t samples[PTYPE_BUILTIN_END]; /* rows stored by type id; 0: imported types */
    uint64_t name_cut, stack_cut, label_dropped, label_cut; /* kept with their weight */
    uint32_t n_code, n_reason;
    struct {
        const char *proto;
        int code;
        uint64_t n;
    } code[INGEST_CODES_MAX];
    struct ingest_count reason[INGEST_REASONS_MAX]; /* requests, or rows refused alone */
};

void ingest_stats(struct ingest *g, struct ingest_stats *ret);

struct loss_table;
/* What agents said they lost; lives as long as g. */
struct loss_table *ingest_losses(struct ingest *g);

struct source_table;
/* What agents last said of their sources; lives as long as g. */
struct source_table *ingest_sources(struct ingest *g);
