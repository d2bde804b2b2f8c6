// SPDX-License-Identifier: Apache-2.0
#include "base/str.h"

#include <math.h>
#include <stdlib.h>

#include "base/buf.h"

int str_cmp(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int r = n > 0 ? memcmp(a.p, b.p, n) : 0;

    return r != 0 ? r : (a.n > b.n) - (a.n < b.n);
}

bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && str_eq(str_to(s, prefix.n), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.n >= suffix.n && str_eq(str_from(s, s.n - suffix.n), suffix);
}

size_t str_find(struct str s, char c)
{
    const char *p = s.n > 0 ? memchr(s.p, c, s.n) : NULL;

    return p ? (size_t)(p - s.p) : SIZE_MAX;
}

size_t str_rfind(struct str s, char c)
{
    const char *p = s.n > 0 ? memrchr(s.p, c, s.n) : NULL;

    return p ? (size_t)(p - s.p) : SIZE_MAX;
}

struct str str_basename(struct str path)
{
    size_t at = str_rfind(path, '/');

    return at == SIZE_MAX ? path : str_from(path, at + 1);
}

/* ---- numbers ------------------------------------------------------------------------------- */

bool str_u64(struct str s, uint64_t *ret)
{
    uint64_t v = 0;

    if (s.n == 0)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        unsigned digit = (unsigned)((unsigned char)s.p[i] - '0');

        if (digit > 9 || __builtin_mul_overflow(v, UINT64_C(10), &v) ||
            __builtin_add_overflow(v, (uint64_t)digit, &v))
            return false;
    }
    *ret = v;
    return true;
}

bool str_i64(struct str s, int64_t *ret)
{
    bool negative = s.n > 0 && s.p[0] == '-';
    uint64_t v;

    if (!str_u64(negative ? str_from(s, 1) : s, &v) || v > (uint64_t)INT64_MAX + negative)
        return false;
    *ret = negative ? (int64_t)-v : (int64_t)v;
    return true;
}

bool str_hex64(struct str s, uint64_t *ret)
{
    uint64_t v = 0;

    if (s.n == 0 || s.n > 16)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        unsigned char low = c | 0x20;

        if (c >= '0' && c <= '9')
            v = v << 4 | (uint64_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            v = v << 4 | (uint64_t)(low - 'a' + 10);
        else
            return false;
    }
    *ret = v;
    return true;
}

/* The digits at the start of s: how many. */
static size_t digit_run(struct str s)
{
    size_t n = 0;

    while (n < s.n && s.p[n] >= '0' && s.p[n] <= '9')
        n++;
    return n;
}

bool str_double(struct str s, double *ret)
{
    char text[64];
    size_t at = s.n > 0 && s.p[0] == '-', n = digit_run(str_from(s, at));
    double v;

    if (s.n >= sizeof text || n == 0 || (n > 1 && s.p[at] == '0'))
        return false;
    at += n;
    if (at < s.n && s.p[at] == '.') {
        n = digit_run(str_from(s, at + 1));
        if (n == 0)
            return false;
        at += 1 + n;
    }
    if (at < s.n && (s.p[at] | 0x20) == 'e') {
        at++;
        at += at < s.n && (s.p[at] == '-' || s.p[at] == '+');
        n = digit_run(str_from(s, at));
        if (n == 0)
            return false;
        at += n;
    }
    if (at != s.n)
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    v = strtod(text, NULL);
    if (!isfinite(v))
        return false;
    *ret = v;
    return true;
}

/* ---- UTF-8 --------------------------------------------------------------------------------- */

size_t str_utf8_next(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    unsigned char low = 0x80, high = 0xbf; /* of the second byte: RFC 3629, section 4 */
    size_t n;

    if (s.n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    if (s.n < n || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    return n;
}

bool str_utf8_ok(struct str s)
{
    for (size_t at = 0; at < s.n;) {
        size_t n = str_utf8_next(str_from(s, at));

        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

size_t str_repair(struct buf *out, struct str s)
{
    static const char hex[] = "0123456789abcdef";
    size_t bad = 0, from = 0, at = 0;

    while (at < s.n) {
        size_t n = str_utf8_next(str_from(s, at));
        unsigned char c = (unsigned char)s.p[at];

        if (n > 0) {
            at += n;
            continue;
        }
        buf_add(out, s.p + from, at - from);
        buf_add(out, (char[]){'\\', 'x', hex[c >> 4], hex[c & 15]}, 4);
        bad++;
        from = ++at;
    }
    if (at > from)
        buf_add(out, s.p + from, at - from);
    return bad;
}
