// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Hash index: finds numbers by a hash; what they stand for lies with the caller, who compares it.
 * Open addressing, linear probing, at most 7/8 full (Knuth, TAOCP 3, 6.4, algorithm L). A slot is
 * the number and 32 bits of hash, from which its place follows too, so that growing asks nobody:
 * 8 bytes a slot where a map takes 16 and repeats the key.
 *
 * The hash must be mixed (hash_mix): its low bits are the place. Numbers are 1 and above; several
 * may have one hash. Ownership: the caller's struct, the index's table. Thread: owner only; readers
 * may share an index that nobody changes.
 */
struct hindex {
    struct hindex_slot *slot;
    uint32_t n, mask; /* entries; slots - 1 */
};

struct hindex_slot {
    uint32_t hash, number; /* number 0: free */
};

void hindex_init(struct hindex *x);
void hindex_deinit(struct hindex *x);
void hindex_clear(struct hindex *x); /* memory kept */

/* Numbers of a hash, one after the other:
 *     for (uint32_t at = hash, n; hindex_next(x, hash, &at, &n);)
 * False at the end. */
static inline bool hindex_next(const struct hindex *x, uint32_t hash, uint32_t *at, uint32_t *ret)
{
    if (!x->slot)
        return false;
    for (uint32_t i = *at & x->mask;; i = (i + 1) & x->mask) {
        if (x->slot[i].number == 0)
            return false;
        if (x->slot[i].hash == hash) {
            *at = i + 1;
            *ret = x->slot[i].number;
            return true;
        }
    }
}

/* One more, not looked for before. False: memory is short, and nothing has changed. */
[[nodiscard]] bool hindex_add(struct hindex *x, uint32_t hash, uint32_t number);

/* Bytes of the table, for memory pools. */
size_t hindex_bytes(const struct hindex *x);
