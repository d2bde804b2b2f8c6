// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include "agent/file/ehtab.h"
#include "agent/unwind/tables.h"
#include "base/thread.h"

/* ---- ranges of an index space [1, n): first fit, neighbours joined -------------------------- */

struct ranges {
    struct range {
        uint32_t at, n;
    } * free; /* sorted */
    uint32_t n_free, cap, used;
};

void ranges_init(struct ranges *r, uint32_t n);
void ranges_deinit(struct ranges *r);
/* First index of n > 0 free ones; 0: there are none in a row. */
uint32_t ranges_take(struct ranges *r, uint32_t n);
void ranges_give(struct ranges *r, uint32_t at, uint32_t n);

/* ---- one table ------------------------------------------------------------------------------ */

enum table_state {
    TABLE_NONE = 0, /* not asked for, or evicted */
    TABLE_QUEUED,
    TABLE_READY,
    TABLE_FAILED,
};

struct table {
    uint64_t key; /* of the content: build id, or the binary's number */
    enum table_state state;
    enum ehtab_fail why;
    bool urgent;    /* while queued: a sample waits for it */
    bool changed;   /* since the processes that map it were told */
    bool gone;      /* while tables are being forgotten */
    uint32_t users; /* mappings of processes */
    uint32_t pg_base, n_pages, first_page;
    int64_t seen_ns; /* last touch by a sample, CLOCK_MONOTONIC */
    uint32_t *chunk; /* n_chunk of the builder's, each held once */
    uint32_t n_chunk;
};

/* ---- the builder: a thread that makes tables ------------------------------------------------ */

/* What it made of one binary. */
struct built {
    struct table *table;
    enum ehtab_fail why;
    uint32_t first_page, n_pages, n_chunk;
    struct sa_pg *pg;
    uint32_t *chunk;
};

struct builder;

int builder_open(struct builder **ret, const struct tables_io *io, uint32_t max_chunks,
                 struct err *err);
struct builder *builder_close(struct builder *b);

/* Queue; takes a reference of bin. urgent: a sample waits for it. false: the queue is full. Main
 * thread. */
bool builder_put(struct builder *b, struct table *t, struct binary *bin, bool urgent);
/* A queued one has become urgent. Main thread. */
void builder_hurry(struct builder *b, const struct table *t);
/* A finished one; false: none. The caller takes pg and chunk over. Main thread. */
bool builder_take(struct builder *b, struct built *ret);
/* Chunks that it waits for beyond those free; 0: it does not wait. */
uint32_t builder_wants(struct builder *b);
/* Give the job that waits up: nothing can be evicted for it. */
void builder_deny(struct builder *b);
/* One user of each less; a chunk without users is free. Returns how many became free. */
uint32_t builder_unuse(struct builder *b, const uint32_t *chunk, uint32_t n);
/* Users of a chunk now. */
uint32_t builder_users(struct builder *b, uint32_t chunk);
/* May it ask for new chunks? Else it waits for one that is given back. */
void builder_grow(struct builder *b, bool may);
uint32_t builder_pending(struct builder *b);
void builder_stats(struct builder *b, struct tables_stats *ret);
