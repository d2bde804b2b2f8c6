// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/part/block_private.h"

/* Sums by node of what was asked of a part. Any thread. */
struct scan_cache;

struct scan_cached {
    uint32_t n;
    uint32_t *node; /* in any order, none twice */
    struct sum_at *sum;
    int64_t bound; /* no sum is further from 0 */
    bool count_unknown;
};

struct scan_cache *scan_cache_new(uint64_t max);          /* bytes. NULL: 0, or memory is short */
struct scan_cache *scan_cache_free(struct scan_cache *c); /* nobody holds an entry */

/* An entry, held until scan_cache_put(); NULL: there is none. */
const struct scan_cached *scan_cache_get(struct scan_cache *c, const uint64_t key[2]);
void scan_cache_put(struct scan_cache *c, const struct scan_cached *p);

/* One to be filled; NULL: memory is short. scan_cache_add takes it. */
struct scan_cached *scan_cached_new(uint32_t n);
void scan_cache_add(struct scan_cache *c, const uint64_t key[2], struct scan_cached *p);
uint64_t scan_cache_bytes(struct scan_cache *c); /* NULL: 0 */
