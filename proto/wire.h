// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/sample.h"

struct arena;

/*
 * The native batch (docs/format-wire.md): struct batch <-> protobuf bytes, compressed with zstd on
 * the way. Bytes in, struct out, no I/O, no globals. Thread: any. Memory: the caller's arena, whose
 * cap is the limit "arena"; what is decoded lives in it.
 */
#define WIRE_MEDIA_TYPE "application/vnd.strata.batch+protobuf"
#define WIRE_VERSION    1

/* All are set; the rows of the limit table in docs/format-wire.md. Bytes or counts. */
struct wire_limits {
    size_t body;     /* as received */
    size_t inflated; /* after decompression */
    size_t arena;    /* of decoding */
    uint32_t nesting, unknown_fields, members;
    struct batch_limits batch;
};

void wire_limits_default(struct wire_limits *ret);

/*
 * Why a body was refused: what an error answer names. reason and setting are static texts; setting
 * NULL where no limit was hit. field names the place ("stream[3].stack[17]"), "" if unknown.
 */
struct wire_fault {
    const char *reason; /* bad_encoding bad_index column_length nesting_too_deep too_many_... */
    const char *setting;
    uint64_t limit, actual;
    bool too_large; /* 413, else 400 */
    char field[64];
};

/* Rows or streams that were refused alone, the rest stored (negative_value, too_old, ...). */
struct wire_reject {
    const char *reason;
    uint32_t stream;
    uint64_t rows;
    unit_i128 value;
};

#define WIRE_REJECTS 64
struct wire_rejects {
    uint32_t n; /* distinct (reason, stream) pairs kept; more are added to the last */
    struct wire_reject v[WIRE_REJECTS];
    /* cut to a limit, the weight kept: names, stacks, label sets that lost a label, label values */
    uint64_t name_cut, stack_cut, label_dropped, label_cut;
};

/*
 * Decode one inflated message: pre-scan against limits before anything is allocated, unpack into
 * arena, validate (batch_check), refuse single rows and streams by limits->batch and received.
 *   ret       set on 0; lives in arena; id.content is the sender's, or hash_bytes(body) where 0;
 *             ret->received = received; ids, hashes of new nodes computed
 *   fault     set on any negative result; NULL allowed
 *   rejects   what was refused alone; NULL allowed (replay)
 *   errors    -EINVAL malformed, -E2BIG a limit, -ENOMEM the arena's cap (413 decode_budget)
 * Names, stacks and labels beyond their limits are cut and counted, the weight kept. The hash of a
 * node is that of what the sender said, before any name is cut, so that both sides agree on it.
 */
[[nodiscard]] int wire_decode(struct str body, const struct wire_limits *limits, real_ns received,
                              struct arena *arena, struct batch *ret, struct wire_fault *fault,
                              struct wire_rejects *rejects, struct err *err);

/*
 * Encode, appending to out (whose cap is the limit). b passed batch_check(). A batch whose
 * id.content is 0 and n_known is 0 gets its content digest: written to *ret_content (NULL allowed).
 *   errors   -E2BIG out is full
 */
[[nodiscard]] int wire_encode(const struct batch *b, struct buf *out, uint64_t *ret_content,
                              struct err *err);

/*
 * The short form of a complete batch: nodes for which known(ctx, hash) says yes, and the tables
 * that only they need, are replaced by their hashes. Identity and content stay. ret lives in arena
 * and borrows from b.
 */
[[nodiscard]] int wire_shorten(const struct batch *b, bool (*known)(void *ctx, uint64_t hash),
                               void *ctx, struct arena *arena, struct batch *ret, struct err *err);

/* zstd frames with an output cap, window at most 2^23 (RFC 8878). identity is the caller's. */
[[nodiscard]] int wire_compress(struct str in, struct buf *out, struct err *err);
[[nodiscard]] int wire_inflate(struct str in, const struct wire_limits *limits, struct buf *out,
                               struct wire_fault *fault, struct err *err);

/* gzip members (RFC 1952), likewise: for bodies that are not native batches. */
[[nodiscard]] int wire_gunzip(struct str in, const struct wire_limits *limits, struct buf *out,
                              struct wire_fault *fault, struct err *err);

/* ---- the answer (BatchReply, Error of docs/format-wire.md) -------------------------------- */

enum wire_status {
    WIRE_STORED = 1,
    WIRE_DUPLICATE = 2,
};

struct wire_reply {
    uint64_t seq;
    enum wire_status status;
    uint64_t lsn;
    const struct wire_rejects *rejects; /* NULL: none. Decoding fills none */
    uint64_t rejected_rows;             /* decoding: sum over rejects */
    real_ns server;
    uint64_t max_bytes;
    uint32_t min_interval_ms;
};

struct wire_error {
    char reason[33];
    char message[160];
    char setting[48];
    uint64_t limit, actual;
    uint32_t retry_after_ms;
};

void wire_reply_encode(const struct wire_reply *r, struct buf *out);
[[nodiscard]] int wire_reply_decode(struct str in, struct wire_reply *ret, struct err *err);
void wire_error_encode(const struct wire_error *e, struct buf *out);
[[nodiscard]] int wire_error_decode(struct str in, struct wire_error *ret, struct err *err);
