// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/bench_data.h"

/*
 * What the hardware allows: nothing is located, checked or locked, and nothing of storage/ is used.
 *
 *   count   cpu rows of one service after another, stacks as 15-bit ranks by frequency, vertically
 *           bit-packed (8 lanes of u32, 32 values per lane and block): unpack and count into an
 *           array. No engine reads raw samples faster
 *   tree    per service: zero, put count x weight on the leaves, add each node to its parent
 *   answer  a whole flame graph from a roll-up in memory: (id, count) of each stack as varints,
 *           tree, nodes of at least 1/10,000 of the whole, printed as JSON with the names of their
 *           functions. No floor in the strict sense, but what a store without any ballast would do
 *   columns the same of nodes of at least 1/1,920, as GET /flamegraph answers them: largest
 * siblings first, columns of depth, function, self, total, samples and hidden nodes with a row for
 *           what a node hides, functions once each with name and key, names escaped. Without what
 *           stands beside a tree there: coverage, loss, quality
 *
 * Each for the first n services (0 is the largest). One thread.
 */
struct lean;

/* NULL where a service has more stacks than 15 bits can say. d stays mapped. */
struct lean *lean_new(const struct data *d);
struct lean *lean_free(struct lean *l);

/* Returns rows counted. */
uint64_t lean_count(struct lean *l, size_t services);
/* Returns the sum of the roots. Counts are those of the roll-up. */
int64_t lean_tree(struct lean *l, size_t services);
/* Returns the sum of the roots; *ret_bytes of JSON. */
int64_t lean_answer(struct lean *l, size_t services, size_t *ret_bytes);
int64_t lean_columns(struct lean *l, size_t services, size_t *ret_bytes);
