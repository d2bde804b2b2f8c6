// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/sample.h"

/*
 * The rows of a stream in the making, and how they are folded coarser while the server is away, so
 * that the same spool holds a longer time. Sums stay as they are, nothing is lost but detail.
 * Pure; any thread.
 */
struct batchfold_columns {
    real_ns *t;
    uint32_t *node, *target, *tid, *thread, *labels;
    uint64_t *count;
    int64_t *value;
    uint32_t n;
    bool by_period; /* every value is count x period: no column */
};

enum batchfold_level {
    BATCHFOLD_NONE = 0,
    BATCHFOLD_TIME,    /* rows of 10 s of the clock become one */
    BATCHFOLD_THREADS, /* and the threads of a process too: tid 0, no thread name */
};

#define BATCHFOLD_TIME_AT    50 /* percent of the spool that are full */
#define BATCHFOLD_THREADS_AT 90
#define BATCHFOLD_NS         INT64_C(10000000000)

enum batchfold_level batchfold_level(unsigned spool_percent);

/* Rows that became equal are one; in the order of their first. t0: of the stream, no row is before
 * it. */
void batchfold(struct batchfold_columns *c, real_ns t0, enum batchfold_level level);
