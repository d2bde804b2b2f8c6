// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * SHA-256 (FIPS 180-4) of up to a few KiB: file ids of binaries without a build id, host ids. Not
 * for secrets: no effort against side channels. Any thread, no allocation.
 */
struct sha256 {
    uint32_t h[8];
    uint64_t n; /* bytes taken in; the rest is private */
    uint8_t block[64];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_end(struct sha256 *s, uint8_t ret[static 32]);
