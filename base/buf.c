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

/* Make room for n more; false marks the buffer as failed. */
static bool grow(struct buf *b, size_t n)
{
    size_t room = b->room;
    char *p;

    if (b->failed)
        return false;
    if (n <= b->room - b->n)
        return true;
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

size_t buf_digits(char *p, uint64_t v)
{
    static const char pair[] = "00010203040506070809101112131415161718192021222324"
                               "25262728293031323334353637383940414243444546474849"
                               "50515253545556575859606162636465666768697071727374"
                               "75767778798081828384858687888990919293949596979899";
    static const uint64_t pow10[] = {0,
                                     10,
                                     100,
                                     1000,
                                     10000,
                                     100000,
                                     1000000,
                                     10000000,
                                     100000000,
                                     1000000000,
                                     10000000000,
                                     100000000000,
                                     1000000000000,
                                     10000000000000,
                                     100000000000000,
                                     1000000000000000,
                                     10000000000000000,
                                     100000000000000000,
                                     1000000000000000000,
                                     10000000000000000000u};
    size_t n, at;

    if (v < 10) { /* most are */
        *p = (char)('0' + v);
        return 1;
    }
    n = (64 - (size_t)__builtin_clzll(v)) * 1233 >> 12; /* log10(2) is 1233 / 4096 or so */
    n += v >= pow10[n];
    for (at = n; v >= 100; v /= 100)
        memcpy(p + (at -= 2), pair + 2 * (v % 100), 2);
    if (v >= 10)
        memcpy(p, pair + 2 * v, 2);
    else
        *p = (char)('0' + v);
    return n;
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
