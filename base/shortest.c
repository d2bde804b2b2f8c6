// SPDX-License-Identifier: Apache-2.0
/*
 * Schubfach (Raffaello Giulietti, "The Schubfach way to render doubles", 2020), for the exponents
 * that answers have. v = c x 2^q lies between two neighbours; the decimals that round to v are
 * those within half the way to each. k is such that at least one multiple of 10^k lies there and at
 * most one of 10^(k+1): so two candidates of each are looked at, in units of 10^k / 4, on 128-bit
 * approximations of powers of ten whose error the "round to odd" below makes harmless.
 */
#include <assert.h>
#include <string.h>

#include "base/shortest_private.h"

#define K_MIN (-36) /* of 2^-64 */
#define K_MAX 3     /* of the largest below 2^64 */

__extension__ typedef unsigned __int128 u128;

/* 10^i for i from -K_MAX, times the power of two that gives 128 bits, rounded up. */
static const struct {
    uint64_t high, low;
} ten[K_MAX - K_MIN + 1] = {
    {UINT64_C(0x83126e978d4fdf3b), UINT64_C(0x645a1cac083126ea)}, /* 10^-3 */
    {UINT64_C(0xa3d70a3d70a3d70a), UINT64_C(0x3d70a3d70a3d70a4)}, /* 10^-2 */
    {UINT64_C(0xcccccccccccccccc), UINT64_C(0xcccccccccccccccd)}, /* 10^-1 */
    {UINT64_C(0x8000000000000000), UINT64_C(0x0000000000000000)}, /* 10^0 */
    {UINT64_C(0xa000000000000000), UINT64_C(0x0000000000000000)}, /* 10^1 */
    {UINT64_C(0xc800000000000000), UINT64_C(0x0000000000000000)}, /* 10^2 */
    {UINT64_C(0xfa00000000000000), UINT64_C(0x0000000000000000)}, /* 10^3 */
    {UINT64_C(0x9c40000000000000), UINT64_C(0x0000000000000000)}, /* 10^4 */
    {UINT64_C(0xc350000000000000), UINT64_C(0x0000000000000000)}, /* 10^5 */
    {UINT64_C(0xf424000000000000), UINT64_C(0x0000000000000000)}, /* 10^6 */
    {UINT64_C(0x9896800000000000), UINT64_C(0x0000000000000000)}, /* 10^7 */
    {UINT64_C(0xbebc200000000000), UINT64_C(0x0000000000000000)}, /* 10^8 */
    {UINT64_C(0xee6b280000000000), UINT64_C(0x0000000000000000)}, /* 10^9 */
    {UINT64_C(0x9502f90000000000), UINT64_C(0x0000000000000000)}, /* 10^10 */
    {UINT64_C(0xba43b74000000000), UINT64_C(0x0000000000000000)}, /* 10^11 */
    {UINT64_C(0xe8d4a51000000000), UINT64_C(0x0000000000000000)}, /* 10^12 */
    {UINT64_C(0x9184e72a00000000), UINT64_C(0x0000000000000000)}, /* 10^13 */
    {UINT64_C(0xb5e620f480000000), UINT64_C(0x0000000000000000)}, /* 10^14 */
    {UINT64_C(0xe35fa931a0000000), UINT64_C(0x0000000000000000)}, /* 10^15 */
    {UINT64_C(0x8e1bc9bf04000000), UINT64_C(0x0000000000000000)}, /* 10^16 */
    {UINT64_C(0xb1a2bc2ec5000000), UINT64_C(0x0000000000000000)}, /* 10^17 */
    {UINT64_C(0xde0b6b3a76400000), UINT64_C(0x0000000000000000)}, /* 10^18 */
    {UINT64_C(0x8ac7230489e80000), UINT64_C(0x0000000000000000)}, /* 10^19 */
    {UINT64_C(0xad78ebc5ac620000), UINT64_C(0x0000000000000000)}, /* 10^20 */
    {UINT64_C(0xd8d726b7177a8000), UINT64_C(0x0000000000000000)}, /* 10^21 */
    {UINT64_C(0x878678326eac9000), UINT64_C(0x0000000000000000)}, /* 10^22 */
    {UINT64_C(0xa968163f0a57b400), UINT64_C(0x0000000000000000)}, /* 10^23 */
    {UINT64_C(0xd3c21bcecceda100), UINT64_C(0x0000000000000000)}, /* 10^24 */
    {UINT64_C(0x84595161401484a0), UINT64_C(0x0000000000000000)}, /* 10^25 */
    {UINT64_C(0xa56fa5b99019a5c8), UINT64_C(0x0000000000000000)}, /* 10^26 */
    {UINT64_C(0xcecb8f27f4200f3a), UINT64_C(0x0000000000000000)}, /* 10^27 */
    {UINT64_C(0x813f3978f8940984), UINT64_C(0x4000000000000000)}, /* 10^28 */
    {UINT64_C(0xa18f07d736b90be5), UINT64_C(0x5000000000000000)}, /* 10^29 */
    {UINT64_C(0xc9f2c9cd04674ede), UINT64_C(0xa400000000000000)}, /* 10^30 */
    {UINT64_C(0xfc6f7c4045812296), UINT64_C(0x4d00000000000000)}, /* 10^31 */
    {UINT64_C(0x9dc5ada82b70b59d), UINT64_C(0xf020000000000000)}, /* 10^32 */
    {UINT64_C(0xc5371912364ce305), UINT64_C(0x6c28000000000000)}, /* 10^33 */
    {UINT64_C(0xf684df56c3e01bc6), UINT64_C(0xc732000000000000)}, /* 10^34 */
    {UINT64_C(0x9a130b963a6c115c), UINT64_C(0x3c7f400000000000)}, /* 10^35 */
    {UINT64_C(0xc097ce7bc90715b3), UINT64_C(0x4b9f100000000000)}, /* 10^36 */
};

/* floor(log2(10^e)), |e| < 1,000 */
static int log2_of_ten(int e)
{
    return (e * 1741647) >> 19;
}

/* floor(g x cp / 2^128); its last bit is also set where anything was cut off. */
static uint64_t round_to_odd(unsigned i, uint64_t cp)
{
    u128 x = (u128)ten[i].low * cp;
    u128 y = (u128)ten[i].high * cp + (uint64_t)(x >> 64);

    return (uint64_t)(y >> 64) | ((uint64_t)y > 1);
}

bool shortest_decimal(double v, uint64_t *ret_m, int *ret_e)
{
    uint64_t bits, c, low, mid, high, s, tens;
    bool odd, near, under, over;
    int q, k, h;
    unsigned i;

    if (!(v >= 0x1p-64 && v < 0x1p64))
        return false;
    memcpy(&bits, &v, sizeof bits);
    c = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    q = (int)(bits >> 52) - 1075;
    odd = c & 1;
    near = c == UINT64_C(1) << 52; /* a power of two: the neighbour below is half as far */
    k = (q * 1262611 - (near ? 524031 : 0)) >> 22;
    assert(k >= K_MIN && k <= K_MAX);
    i = (unsigned)(K_MAX - k);
    h = q + log2_of_ten(-k) + 1;
    assert(h >= 1 && h <= 4);
    low = round_to_odd(i, (4 * c - 2 + near) << h) + odd;
    mid = round_to_odd(i, (4 * c) << h);
    high = round_to_odd(i, (4 * c + 2) << h) - odd;
    s = mid / 4;
    tens = s / 10;
    under = low <= 40 * tens;
    over = 40 * tens + 40 <= high;
    if (s >= 10 && under != over) {
        *ret_m = tens + over;
        *ret_e = k + 1;
        return true;
    }
    under = low <= 4 * s;
    over = 4 * s + 4 <= high;
    if (under == over) /* both or none: the nearer, of two equally near the even one */
        over = mid > 4 * s + 2 || (mid == 4 * s + 2 && (s & 1));
    *ret_m = s + over;
    *ret_e = k;
    return true;
}
