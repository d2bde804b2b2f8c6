// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"

void buf_init(struct buf *b, size_t cap)
{
    *b = (struct buf){.cap = cap};
}

void buf_deinit(struct buf *b)
{
    free(b->p);
    *b = (struct buf){.cap = b->cap};
}

void buf_reset(struct buf *b)
{
    b->n = 0;
    b->failed = 0;
}

int buf_check(const struct buf *b, const char *what, struct err *err)
{
    if (b->failed == 0)
        return 0;
    return b->failed == -E2BIG ? err_set(err, -E2BIG, "%s: larger than %zu bytes", what, b->cap)
                               : err_set(err, -ENOMEM, "%s: memory is short", what);
}

static bool grow_more(struct buf *b, size_t n)
{
    size_t room = b->room;
    char *p;

    if (b->n > b->cap || n > b->cap - b->n || mem_fail_now()) {
        b->failed = b->n > b->cap || n > b->cap - b->n ? -E2BIG : -ENOMEM;
        return false;
    }
    if (room < 64)
        room = 64;
    while (room < b->n + n)
        room = room > b->cap / 2 ? b->cap : room * 2;
    if (room > b->cap)
        room = b->cap;
    p = realloc(b->p, room);
    if (!p) {
        b->failed = -ENOMEM;
        return false;
    }
    b->p = p;
    b->room = room;
    return true;
}

/* Make room for n more; false marks the buffer as failed. */
static inline bool grow(struct buf *b, size_t n)
{
    if (b->failed)
        return false;
    return n <= b->room - b->n || grow_more(b, n);
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    if (n == 0 || !grow(b, n))
        return;
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void buf_str(struct buf *b, struct str s)
{
    buf_add(b, s.p, s.n);
}

void buf_cstr(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_chr(struct buf *b, char c)
{
    if (grow(b, 1))
        b->p[b->n++] = c;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    char small[256];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->failed = -E2BIG; /* longer than an int */
        return;
    }
    if ((size_t)n < sizeof small) {
        buf_add(b, small, (size_t)n);
        return;
    }
    if (!grow(b, (size_t)n + 1))
        return;
    va_start(ap, fmt);
    n = vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
}

/*
 * Eight digits at once: a number below 10^8 is split into halves, those into pairs, the pairs into
 * digits, all in the lanes of one word. x * 10486 >> 20 is x / 100 below 10^4, x * 103 >> 10 is
 * x / 10 below 100. The first digit comes out lowest, thus first in memory.
 */
static uint64_t eight_digits(uint32_t v)
{
    uint64_t halves = v / 10000 | (uint64_t)(v % 10000) << 32;
    uint64_t hundreds = (halves * 10486 >> 20) & UINT64_C(0x0000007f0000007f);
    uint64_t pairs = hundreds | (halves - 100 * hundreds) << 16;
    uint64_t tens = (pairs * 103 >> 10) & UINT64_C(0x000f000f000f000f);

    return tens | (pairs - 10 * tens) << 8;
}

static void put_eight(char *p, uint64_t digits)
{
    uint64_t le = htole64(digits | UINT64_C(0x3030303030303030));

    memcpy(p, &le, sizeof le);
}

/* v is below 10^8. No branch asks how long it is: lengths are noise to a predictor. */
static size_t put_first(char *p, uint32_t v)
{
    uint64_t digits = eight_digits(v);
    unsigned zeros = (unsigned)__builtin_ctzll(digits | UINT64_C(1) << 56) / 8;

    put_eight(p, digits >> 8 * zeros);
    return 8 - zeros;
}

size_t buf_digits(char *p, uint64_t v)
{
    const uint32_t e8 = 100000000;
    size_t n;

    if (v < 10) { /* most are */
        *p = (char)('0' + v);
        return 1;
    }
    if (v < e8)
        return put_first(p, (uint32_t)v);
    if (v / e8 < e8) {
        n = put_first(p, (uint32_t)(v / e8));
    } else {
        n = put_first(p, (uint32_t)(v / e8 / e8));
        put_eight(p + n, eight_digits((uint32_t)(v / e8 % e8)));
        n += 8;
    }
    put_eight(p + n, eight_digits((uint32_t)(v % e8)));
    return n + 8;
}

void buf_u64(struct buf *b, uint64_t v)
{
    char digits[BUF_DIGITS];

    buf_add(b, digits, buf_digits(digits, v));
}

void buf_i64(struct buf *b, int64_t v)
{
    if (v < 0)
        buf_chr(b, '-');
    buf_u64(b, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

void buf_hex64(struct buf *b, uint64_t v)
{
    static const char hex[] = "0123456789abcdef";
    char digits[16];

    for (unsigned i = 0; i < 16; i++)
        digits[i] = hex[v >> (60 - 4 * i) & 15];
    buf_add(b, digits, sizeof digits);
}

void buf_le16(struct buf *b, uint16_t v)
{
    uint16_t le = htole16(v);

    buf_add(b, &le, sizeof le);
}

void buf_le32(struct buf *b, uint32_t v)
{
    uint32_t le = htole32(v);

    buf_add(b, &le, sizeof le);
}

void buf_le64(struct buf *b, uint64_t v)
{
    uint64_t le = htole64(v);

    buf_add(b, &le, sizeof le);
}

char *buf_reserve(struct buf *b, size_t n)
{
    return grow(b, n) ? b->p + b->n : NULL;
}

void buf_commit(struct buf *b, size_t n)
{
    b->n += n;
}
