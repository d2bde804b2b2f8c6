// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "agent/send/batchmake.h"
#include "agent/send/spool.h"
#include "base/err.h"

/*
 * The second thread: windows in, batches into the spool. Resolving names reads files, which must
 * not hold up the drain. Windows wait in a queue of BATCHER_MAX_WINDOWS; beyond it the oldest are
 * given up, and told as loss like batches of a full spool.
 */
struct batcher;

#define BATCHER_MAX_WINDOWS 120
#define BATCHER_MAX_EVENTS  64

struct batcher_job {
    uint32_t n_window, n_metric, n_event;
    struct stackagg_window **window; /* heap, with its windows: taken over */
    struct batchmake_metric *metric; /* heap: taken over */
    struct batchmake_event *event;   /* heap: taken over */
    struct batch_clock clock;
    int64_t not_before; /* of sending, CLOCK_MONOTONIC */
};

struct batcher_stats {
    uint64_t batches, rows, splits, failed;
    uint64_t windows_dropped, steps_dropped, metrics_dropped, events_dropped; /* in no batch */
    uint64_t busy_ns;
    enum batchfold_level fold; /* of the last batch */
    struct names_stats names;
    struct jits_stats jits;
    struct lines_stats lines;
    uint32_t kernel_symbols;
    char kernel_state[96];
    uint64_t last_bytes, last_plain; /* of the last batch, compressed and before */
};

/* Each batch as it is made, in its order; in the batcher's thread. */
struct batcher_tap {
    void (*batch)(void *ctx, struct str body, const struct batchmake_info *info);
    void *ctx;
};

/* Texts of c are borrowed until the free. spool NULL: batches go to the tap alone. */
[[nodiscard]] int batcher_start(const struct batchmake_conf *c, struct spool *spool,
                                struct batcher **ret, struct err *err);

/* Before the first batcher_put(). */
void batcher_set_tap(struct batcher *b, struct batcher_tap tap);

/* Make what is queued, then end the thread; counters stay. */
void batcher_stop(struct batcher *b);
struct batcher *batcher_free(struct batcher *b); /* after the stop; NULL is a no-op; returns NULL */

/* Main thread. The job's parts are taken over whatever happens. */
void batcher_put(struct batcher *b, const struct batcher_job *job);

/* Code in anonymous memory was seen in this process: its perf map is read now, while it lives. Main
 * thread. */
void batcher_see_jit(struct batcher *b, const struct jits_target *t);

/* As the server said; 0: unknown. Any thread. */
void batcher_set_max_bytes(struct batcher *b, uint64_t max_bytes);

/* Bytes for symbol tables and names from the next batch on. Any thread. */
void batcher_set_names_cache(struct batcher *b, uint64_t bytes);

void batcher_get_stats(struct batcher *b, struct batcher_stats *ret);
