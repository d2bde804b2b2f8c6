// SPDX-License-Identifier: Apache-2.0
#include "agent/python/pyline.h"

static uint32_t line(int64_t l)
{
    return l > 0 && l <= INT32_MAX ? (uint32_t)l : 0;
}

/* 3.10, pairs of bytes: how many bytes of code, signed change of the line before them; -128: they
 * have none. */
static uint32_t of_310(const uint8_t *t, uint32_t n, int64_t l, int32_t lasti)
{
    int64_t at = 0, want = (int64_t)lasti * 2;

    for (uint32_t i = 0; i + 1 < n; i += 2) {
        int8_t by = (int8_t)t[i + 1];

        if (by != -128)
            l += by;
        at += t[i];
        if (want < at)
            return by == -128 ? 0 : line(l);
    }
    return 0;
}

/* A signed number in groups of 6 bits, low first; bit 6: another follows; bit 0 of all: the sign.
 */
static int64_t number(const uint8_t *t, uint32_t n, uint32_t at)
{
    uint64_t v = 0;

    for (unsigned shift = 0; at < n && shift < 36; shift += 6) {
        v |= (uint64_t)(t[at] & 63) << shift;
        if (!(t[at++] & 64))
            break;
    }
    return v & 1 ? -(int64_t)(v >> 1) : (int64_t)(v >> 1);
}

/* 3.11 on: an entry begins with a byte of bit 7: kind in bits 3-6, units - 1 in bits 0-2. */
static uint32_t of_311(const uint8_t *t, uint32_t n, int64_t l, int32_t lasti)
{
    int64_t at = 0;

    for (uint32_t i = 0; i < n;) {
        unsigned kind = t[i] >> 3 & 15;

        at += (t[i++] & 7) + 1;
        if (kind == 13 || kind == 14)
            l += number(t, n, i);
        else if (kind >= 10 && kind <= 12)
            l += kind - 10;
        while (i < n && !(t[i] & 0x80))
            i++;
        if (lasti < at)
            return kind == 15 ? 0 : line(l);
    }
    return 0;
}

uint32_t pyline_of(uint16_t ver, const uint8_t *table, uint32_t n, int32_t first, int32_t lasti)
{
    if (lasti < 0)
        return line(first);
    return ver == 0x30a ? of_310(table, n, first, lasti) : of_311(table, n, first, lasti);
}
