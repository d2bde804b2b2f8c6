// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Hash index of many small numbers, 4 bytes a slot: a number in its low bits, above it as many bits
 * of the hash as are left, so that nearly all that is found is meant. The caller compares, and says
 * the hash of a number again when the table grows: half the memory of struct hindex, for tables of
 * millions whose entries hold what the hash is made of.
 *
 * Open addressing, linear probing, at most 7/8 full; a large table grows by half. The hash must be
 * mixed (hash_mix). Numbers are 1 to 2^31 - 1, best dense; several may have one hash. Ownership:
 * the caller's struct, the index's table. Thread: owner only; readers may share an index that
 * nobody changes.
 */
struct dindex {
    uint32_t *slot; /* 0: free */
    uint32_t n, slots, bits;
};

typedef uint32_t dindex_hash_fn(const void *ctx, uint32_t number);

void dindex_init(struct dindex *x);
void dindex_deinit(struct dindex *x);

static inline uint32_t dindex_place(const struct dindex *x, uint32_t hash)
{
    return (uint32_t)((uint64_t)hash * x->slots >> 32);
}

/* Where a walk over the numbers that may have this hash begins:
 *     for (uint32_t at = dindex_place(x, hash), n; dindex_next(x, hash, &at, &n);)
 * False at the end. */
static inline bool dindex_next(const struct dindex *x, uint32_t hash, uint32_t *at, uint32_t *ret)
{
    if (!x->slots)
        return false;
    for (uint32_t i = *at;; i++) {
        uint32_t s;

        i = i < x->slots ? i : 0;
        s = x->slot[i];
        if (s == 0)
            return false;
        if ((s ^ hash << x->bits) >> x->bits == 0) {
            *at = i + 1;
            *ret = s & ((UINT32_C(1) << x->bits) - 1);
            return true;
        }
    }
}

/* One more, not looked for before; hash_of tells the hash of one that is in it. False: memory is
 * short, and nothing has changed. */
[[nodiscard]] bool dindex_add(struct dindex *x, uint32_t hash, uint32_t number,
                              dindex_hash_fn *hash_of, const void *ctx);

/* Bytes of the table, for memory pools. */
size_t dindex_bytes(const struct dindex *x);
