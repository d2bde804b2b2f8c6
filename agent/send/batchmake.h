// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "agent/name/jits.h"
#include "agent/name/lines.h"
#include "agent/name/names.h"
#include "agent/send/batchfold.h"
#include "agent/source/stackagg.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/loss.h"

/*
 * From folded windows to one complete encoded batch: names for addresses, tables, one stream per
 * run of windows with one period and width, metrics, events. Complete: every node is defined in it,
 * so it stands alone. Thread: owner only (the batch thread).
 */
struct batchmake;

struct batchmake_conf {
    uint8_t agent[16], boot[16];
    struct str hostname, version; /* copied */
    struct str labels;            /* of every batch, "k=v,k=v"; borrowed for ever */
    struct names_conf names;
    struct lines_conf lines;
    const char *source; /* label of every series; NULL: "agent" */
    /* Further labels of every series, which win over those of processes. Borrowed until the free.
     */
    const struct label *label;
    uint32_t n_label;
};

#define METRIC_PYTHON 16 /* room of a version: "3.11.7" */

struct batchmake_metric {
    const char *name, *unit; /* static */
    bool counter;            /* else a gauge */
    uint64_t serial;         /* of the process; 0: the host */
    real_ns t;
    int64_t v;
    const char *why;            /* static: its label "why"; NULL: none */
    char python[METRIC_PYTHON]; /* its label "python"; "": none */
};

struct batchmake_event {
    real_ns t;
    const char *kind; /* static */
    char text[192];   /* logfmt */
};

/* What was given up since the last batch: shown as loss where it happened. */
struct batchmake_dropped {
    enum loss_reason why; /* LOSS_SPOOL_DROP, LOSS_SEND_REJECTED */
    uint64_t first, last; /* seq */
    struct interval covers;
    uint64_t n;     /* observations */
    int64_t weight; /* in the type's unit, or BATCH_NO_WEIGHT */
    uint32_t width;
    uint32_t type; /* profile type */
};

/* Sums by profile type, in the order in which the types came. */
struct batchmake_sums {
    uint32_t n;
    struct batchmake_dropped v[PTYPE_BUILTIN_END];
};

/* d's interval, observations and weight into sum. A weight that is not known makes the sum's
 * unknown. */
void batchmake_add(struct batchmake_dropped *sum, const struct batchmake_dropped *d);
/* Into the sum of its type, a built-in one; an empty interval is nothing. */
void batchmake_sum(struct batchmake_sums *s, const struct batchmake_dropped *d);

struct batchmake_job {
    uint32_t n_window, n_metric, n_event, n_dropped;
    struct stackagg_window **window; /* contiguous; none: a batch without a stream */
    const struct batchmake_metric *metric;
    const struct batchmake_event *event;
    const struct batchmake_dropped *dropped;
    struct batch_clock clock;
    enum batchfold_level fold;
};

/* What stands in the batch, for counting and for what is said of it if it is given up. */
struct batchmake_info {
    uint64_t content;
    struct interval covers;
    struct batchmake_sums held; /* observations (idle ticks too) and weight of its streams */
    uint32_t rows, nodes, targets;
};

struct batchmake *batchmake_new(const struct batchmake_conf *c);
struct batchmake *batchmake_free(struct batchmake *m); /* NULL is a no-op; returns NULL */

/*
 * Append the encoding (not compressed) to out, under seq. The job stays the caller's.
 *   errors   -E2BIG out's cap: split the job; -ENOMEM; -EINVAL what was made does not pass
 *            batch_check(): a bug, nothing is appended
 */
[[nodiscard]] int batchmake_make(struct batchmake *m, const struct batchmake_job *job, uint64_t seq,
                                 struct buf *out, struct batchmake_info *ret, struct err *err);

/* Between batches, and for counters. */
struct names *batchmake_names(struct batchmake *m);
struct jits *batchmake_jits(struct batchmake *m);
struct lines *batchmake_lines(struct batchmake *m);
