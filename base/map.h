// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Flat hash map u64 -> u64, open addressing, linear probing, at most 7/8 full. Any key and value.
 * Keys that are not random already go through map_mix() by the map itself.
 * Ownership: the caller's struct, the map's table. Thread: owner only; readers may share a map
 * that nobody changes. Growth may be refused: MAP_FULL, and the map is unchanged.
 */
struct map {
    struct map_slot *slot;
    uint32_t n, mask; /* entries; slots - 1 */
    uint32_t max;     /* entries, 0: no limit but 2^31 */
};

enum map_result {
    MAP_FOUND = 0,
    MAP_ADDED = 1,
    MAP_FULL = -1, /* max reached or memory short */
};

void map_init(struct map *m, uint32_t max);
void map_deinit(struct map *m);
void map_clear(struct map *m); /* memory kept */
/* Room for n entries at once; false: no memory, and the map is as it was. */
bool map_reserve(struct map *m, uint32_t n);

/* Value of key into *ret; false if it is not there. */
bool map_get(const struct map *m, uint64_t key, uint64_t *ret);

/* Find or add: *ret points to the value until the next change of the map; a new one is 0. */
enum map_result map_at(struct map *m, uint64_t key, uint64_t **ret);

/* Set. MAP_FOUND (overwritten), MAP_ADDED or MAP_FULL. */
enum map_result map_put(struct map *m, uint64_t key, uint64_t value);

/* Remove; false if it was not there. */
bool map_del(struct map *m, uint64_t key);

/* Walk in any order: start with *pos = 0; false at the end. The map must not change meanwhile. */
bool map_next(const struct map *m, uint32_t *pos, uint64_t *ret_key, uint64_t *ret_value);

/* Bytes of the table, for memory pools. */
size_t map_bytes(const struct map *m);
