// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/batchmake.h"
#include "base/err.h"
#include "base/str.h"

/*
 * Batches that wait to be acknowledged, in memory, bounded, in the order of their seq. Each is
 * complete and compressed. At the cap (the newest one may be larger), or past their age, the oldest
 * are given up; what they held is remembered and shown as loss in the next batch. Always, and
 * counted so:
 *
 *     produced = sent + dropped (by reason) + spooled
 *
 * Any thread; one of them puts (the batch thread), one of them sends (the upload thread).
 */
struct spool;

/* Why a batch was given up. Names are counters' labels: append only. */
enum spool_drop {
    SPOOL_DROP_FULL = 0,  /* spool_full */
    SPOOL_DROP_AGE,       /* too_old */
    SPOOL_DROP_BAD,       /* bad_request: the server does not understand it */
    SPOOL_DROP_TOO_LARGE, /* too_large */
    SPOOL_DROP_CONFLICT,  /* seq_conflict */
    SPOOL_DROP_SEQ_OLD,   /* seq_too_old */
    SPOOL_DROP_INTERNAL,  /* internal: the server failed on it three times */
    SPOOL_DROP_N,
};
const char *spool_drop_name(enum spool_drop d);

/* One waiting batch. Between spool_front() and spool_done() or spool_retry() it is the sender's. */
struct spool_batch {
    uint64_t seq;
    struct str body; /* complete form, zstd */
    struct batchmake_info info;
    int64_t made, not_before; /* CLOCK_MONOTONIC */
    uint32_t tries;
};

struct spool_stats {
    uint64_t produced, sent, duplicate, dropped[SPOOL_DROP_N];
    uint64_t spooled, bytes, cap; /* now */
    uint64_t retries;             /* sends that must be repeated */
};

/* cap, in bytes of bodies; max_age in ns */
struct spool *spool_new(uint64_t cap, int64_t max_age);
struct spool *spool_free(struct spool *s); /* NULL is a no-op; returns NULL */

/* What spool_put() takes in; all is copied. */
struct spool_new_batch {
    uint64_t seq; /* the last one + 1 */
    struct str body;
    const struct batchmake_info *info;
    const struct batchmake_dropped *told; /* what it tells of: told again if it is given up */
    uint32_t n_told;
    int64_t not_before; /* CLOCK_MONOTONIC */
};
void spool_put(struct spool *s, const struct spool_new_batch *n);

/* The oldest batch, once it is due; waits for it at most wait_ns. NULL: nothing is due. */
const struct spool_batch *spool_front(struct spool *s, int64_t wait_ns);

/* It was acknowledged. */
void spool_done(struct spool *s, const struct spool_batch *b, bool duplicate);
/* It will never be. */
void spool_drop(struct spool *s, const struct spool_batch *b, enum spool_drop why);
/* Again, but not before that time. */
void spool_retry(struct spool *s, const struct spool_batch *b, int64_t not_before);

/* What was given up since the last call, oldest first; neighbours with one reason are one entry.
 * Returns how many of at most max. */
uint32_t spool_take_dropped(struct spool *s, struct batchmake_dropped *ret, uint32_t max);

/* Wake a waiting spool_front(): all delays are over, everything is due. */
void spool_hurry(struct spool *s);

void spool_get_stats(struct spool *s, struct spool_stats *ret);
