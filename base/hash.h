// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "base/str.h"

/* XXH3-64 (xxHash 0.8 specification), the one hash of formats and identities. Any thread. */
uint64_t hash_bytes(const void *p, size_t n);
uint64_t hash_seed(const void *p, size_t n, uint64_t seed);
/* XXH3-128 of all bytes of an open file, big-endian (canonical), read by pread. 0 or negative
 * errno.
 */
[[nodiscard]] int hash_file128(int fd, uint8_t ret[static 16], uint64_t *ret_bytes);
static inline uint64_t hash_str(struct str s)
{
    return hash_bytes(s.p, s.n);
}

/* splitmix64's finaliser: a bijection that spreads every bit. */
static inline uint64_t hash_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline uint64_t hash_rotl(uint64_t x, unsigned k)
{
    return x << k | x >> (64 - k);
}

/* The hash by which zooming finds a node again: root 0, then parent and func_key. */
static inline uint64_t hash_zoom(uint64_t parent, uint64_t key)
{
    return hash_mix(hash_rotl(parent, 1) ^ key);
}
