// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#define XXH_STATIC_LINKING_ONLY
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

uint64_t hash_bytes(const void *p, size_t n)
{
    return XXH3_64bits(n > 0 ? p : "", n);
}

uint64_t hash_seed(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(n > 0 ? p : "", n, seed);
}

int hash_file128(int fd, uint8_t ret[static 16], uint64_t *ret_bytes)
{
    enum {
        ROOM = 1 << 18
    };
    XXH3_state_t h;
    XXH128_canonical_t c;
    char *buf = malloc(ROOM);
    uint64_t at = 0;
    ssize_t n = 0;

    if (!buf)
        return -ENOMEM;
    XXH3_INITSTATE(&h);
    XXH3_128bits_reset(&h);
    while ((n = pread(fd, buf, ROOM, (off_t)at)) > 0) {
        XXH3_128bits_update(&h, buf, (size_t)n);
        at += (uint64_t)n;
    }
    free(buf);
    if (n < 0)
        return -errno;
    XXH128_canonicalFromHash(&c, XXH3_128bits_digest(&h));
    for (int i = 0; i < 16; i++)
        ret[i] = c.digest[i];
    *ret_bytes = at;
    return 0;
}
