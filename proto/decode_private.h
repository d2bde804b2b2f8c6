// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "proto/fault_private.h"
#include "proto/ingest.pb-c.h"
#include "proto/wire.h"

/* What the parts of decoding share: one call of wire_decode(). Thread: the caller's. */
struct wire_decoding {
    const Strata__V1__Batch *m; /* its columns lie in arena and are ours to change */
    const struct wire_limits *limits;
    struct arena *arena;
    struct batch *b;   /* being filled */
    struct str *str;   /* b->str */
    uint32_t str_room; /* entries that it has memory for */
    struct batch_stream *stream;
    struct wire_fault *fault;
    struct wire_rejects *rejects; /* may be NULL */
    struct err *err;
};

/* The arena's end: -ENOMEM, decode_budget. */
[[nodiscard]] int wire_no_room(struct wire_decoding *d);

/* Every index in v below end? Else bad_index, place = "WHAT[k]" with WHAT printf-made. */
[[nodiscard, gnu::format(printf, 5, 6)]] int wire_indices(struct wire_decoding *d,
                                                          const uint32_t *v, size_t n, size_t end,
                                                          const char *what, ...);

/* A set of labels: an even number of indices of texts. */
[[nodiscard]] int wire_labels(struct wire_decoding *d, const uint32_t *v, size_t n,
                              const char *what, size_t i, struct batch_labels *ret);

/* One more text at the end of the table: its number, 0 where the arena is full. Only once all
 * indices are checked, for it makes one more of them good. */
uint32_t wire_add_text(struct wire_decoding *d, struct str s);

/* Streams with their rows; needs the tables of d->b. Single rows and streams are refused here. */
[[nodiscard]] int wire_streams(struct wire_decoding *d);

/* Absolute times from deltas, in place; false if one does not fit. */
[[nodiscard]] bool wire_undelta(int64_t *v, size_t n, int64_t from);

/* Cuts to limits->batch, after validation and hashing: names, label sets, deep stacks. */
[[nodiscard]] int wire_cut(struct wire_decoding *d);
