// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/send/batchmake.h"
#include "base/err.h"
#include "base/str.h"

/*
 * Batches that wait to be acknowledged, bounded, in the order of their runs and numbers. Each is
 * complete and compressed. They lie in a directory, where the next run finds them; while that
 * cannot be written (disk full, no directory), in memory. At a cap (the newest one may be larger),
 * or past their age, the oldest are given up; what they held is remembered and shown as loss in the
 * next batch. Always, and counted so:
 *
 *     produced + inherited = sent + dropped (by reason) + spooled
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
    SPOOL_DROP_DAMAGED,   /* damaged: its file is not what was written */
    SPOOL_DROP_N,
};
const char *spool_drop_name(enum spool_drop d);

/* One waiting batch. Between spool_front() and spool_done(), spool_drop() or spool_retry() it is
 * the sender's. */
struct spool_batch {
    uint8_t boot[16];
    uint64_t seq;
    uint64_t bytes;           /* of its body */
    struct interval covers;   /* of its own streams */
    int64_t made, not_before; /* clock_mono() */
    uint32_t tries, unread;   /* reads that failed */
    bool whole;               /* the server asked for the complete form */
};

enum {
    SPOOL_IN_FLIGHT = 2 /* batches that the sender may hold at once */
};

struct spool_stats {
    uint64_t produced, inherited, sent, duplicate, dropped[SPOOL_DROP_N];
    uint64_t spooled, bytes; /* now, on disk and in memory */
    uint64_t memory_batches, memory_bytes;
    uint64_t cap, memory_cap;
    uint64_t in_flight;          /* now at the sender */
    uint64_t retries;            /* sends that must be repeated */
    uint64_t damaged, foreign;   /* files: set aside; not ours, left alone */
    uint64_t unreadable;         /* files of batches: left for the next run */
    uint64_t write_failed;       /* batches kept in memory since */
    uint64_t untold;             /* entries of loss that no batch carries yet */
    struct interval inherited_t; /* what the batches of older runs cover */
    real_ns covered_to;          /* end of what batches put so far cover */
    char state[160];             /* "ok", or why batches are kept in memory */
};

struct spool_conf {
    const char *dir;     /* "": in memory only */
    const char *no_dir;  /* why there is none; NULL: as it was asked for */
    uint64_t cap;        /* bytes of files, damaged ones too (at most an eighth), of bodies where
                          * there is no directory */
    uint64_t memory_cap; /* bytes of bodies that could not be written; 0: 32 MiB */
    int64_t max_age;     /* ns */
    uint8_t boot[16];
};

/* Takes in what older runs left. Never fails: without its directory it works in memory, and the
 * stats say why. */
struct spool *spool_new(const struct spool_conf *c);
struct spool *spool_free(struct spool *s); /* NULL is a no-op; returns NULL; files stay */

/* What spool_put() takes in; all is copied. */
struct spool_new_batch {
    uint64_t seq; /* the last one + 1 */
    struct str body;
    const struct batchmake_info *info;
    const struct batchmake_dropped *told; /* what it tells of: told again if it is given up */
    uint32_t n_told;
    int64_t not_before; /* clock_mono() */
};
void spool_put(struct spool *s, const struct spool_new_batch *n);

/* The oldest batch that is not in flight, once it is due; waits for it at most wait_ns. In order:
 * behind one that is not due nothing is. NULL: nothing is due. */
const struct spool_batch *spool_front(struct spool *s, int64_t wait_ns);

/* Appends its body. errors: of the disk; -EBADMSG, -ENOENT it is damaged, or gone: drop it */
[[nodiscard]] int spool_read(struct spool *s, const struct spool_batch *b, struct buf *out,
                             struct err *err);

/* It was acknowledged. */
void spool_done(struct spool *s, const struct spool_batch *b, bool duplicate);
/* It will never be. */
void spool_drop(struct spool *s, const struct spool_batch *b, enum spool_drop why);
/* Again, but not before that time; whole: in its complete form. */
void spool_retry(struct spool *s, const struct spool_batch *b, int64_t not_before, bool whole);

/* What was given up and is in no batch yet; neighbours with one reason are one entry.
 * Returns how many of at most max. It counts as told with the spool_put() that carries it. */
uint32_t spool_take_dropped(struct spool *s, struct batchmake_dropped *ret, uint32_t max);

/* How full, 0 to 100: the larger of disk and memory. */
unsigned spool_level(struct spool *s);

/* Wake a waiting spool_front() or spool_wait(): with hurry all delays are over, all is due. */
void spool_wake(struct spool *s, bool hurry);
/* Until something is put, or a wake-up, at most wait_ns. */
void spool_wait(struct spool *s, int64_t wait_ns);

void spool_get_stats(struct spool *s, struct spool_stats *ret);
