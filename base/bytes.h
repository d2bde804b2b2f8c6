// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

/* Little-endian numbers at any address; buf_le32() and its like write them. Any thread. */
static inline uint16_t bytes_u16(const void *at)
{
    const uint8_t *p = at;

    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t bytes_u32(const void *at)
{
    const uint8_t *p = at;

    return (uint32_t)bytes_u16(p) | (uint32_t)bytes_u16(p + 2) << 16;
}

static inline uint64_t bytes_u64(const void *at)
{
    const uint8_t *p = at;

    return bytes_u32(p) | (uint64_t)bytes_u32(p + 4) << 32;
}
