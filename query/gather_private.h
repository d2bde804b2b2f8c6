// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "query/query_private.h"

/* gather.c: for shares.c. */

/* Which nodes of a trie count: the scan reads them until it has ended. */
struct worker_bits {
    struct worker_bits *next;
    uint64_t *v;
};

struct query_gather_worker {
    struct map index; /* hash of (trie, group) -> number in acc + 1; collisions are walked */
    uint32_t n, room;
    struct query_acc **acc;
    struct query_acc *last;
    struct query_filters filters; /* this worker's own: patterns are not shared by threads */
    struct query_err filter_err;
    struct worker_bits *bits;
    struct query_scratch scratch;
    int r;
    struct err err;
    char pad[64]; /* no two workers in one cache line */
};

/* So many bytes more; false: the question has no more. Any thread. */
bool query_gather_budget(struct query_gather *g, uint64_t n);
struct query_acc *query_acc_free(struct query_acc *a); /* NULL is a no-op; returns NULL */
/* The scan's sink. ctx: the gather. False: the worker's r says why the scan ends. */
bool query_gather_share(void *ctx, uint32_t worker, const struct store_share *s);
