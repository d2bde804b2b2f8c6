// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/sample.h"

/*
 * Senders of a steady stream: one service each, 300 stacks 24 deep, 16 threads. The first batch
 * defines every node, the others name them by hash, as an agent does. Errors end the program.
 * Thread: one per stream at a time.
 */
enum {
    STREAM_STACKS = 300,
};

struct stream {
    struct arena arena;
    uint32_t sender, rows;
    uint64_t seq;
    struct batch batch, complete; /* batch: the one to send */
    struct batch_stream *st;
    struct batch_node *known; /* the short form's table */
    uint32_t *full_node, *short_node;
    real_ns *t;
    struct buf plain, payload;
};

void stream_init(struct stream *s, uint32_t sender, uint32_t rows);
void stream_deinit(struct stream *s);

/*
 * The next batch: covers [t0, t0 + len_ns), its rows spread over it. batch is valid until the next
 * call. encode: payload too; without it the payload of the last encoding is left as it is.
 */
void stream_next(struct stream *s, real_ns t0, int64_t len_ns, bool encode);
