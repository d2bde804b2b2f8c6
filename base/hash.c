// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <xxhash.h>

uint64_t hash_bytes(const void *p, size_t n)
{
    return XXH3_64bits(n > 0 ? p : "", n);
}

uint64_t hash_seed(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(n > 0 ? p : "", n, seed);
}
