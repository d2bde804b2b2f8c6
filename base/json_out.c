// SPDX-License-Identifier: Apache-2.0
#include "base/json_out.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/shortest_private.h"

#define DEPTH_MAX 64

void json_init(struct json_out *j, struct buf *b)
{
    *j = (struct json_out){.b = b};
}

/* ---- structure ----------------------------------------------------------------------------- */

static uint64_t level_bit(const struct json_out *j)
{
    return UINT64_C(1) << (j->depth - 1);
}

/* Before a member of an array, a key, or the one value at the top. */
static void comma(struct json_out *j)
{
    if (j->depth == 0) {
        assert(!(j->has_member & 1)); /* one value at the top */
        return;
    }
    if (j->has_member & level_bit(j))
        buf_chr(j->b, ',');
    j->has_member |= level_bit(j);
}

static void before_value(struct json_out *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    assert(j->depth == 0 || !(j->is_object & level_bit(j))); /* a value in an object has a key */
    comma(j);
}

static void open_level(struct json_out *j, bool object)
{
    before_value(j);
    assert(j->depth < DEPTH_MAX);
    j->depth++;
    j->has_member &= ~level_bit(j);
    if (object)
        j->is_object |= level_bit(j);
    else
        j->is_object &= ~level_bit(j);
    buf_chr(j->b, object ? '{' : '[');
}

static void close_level(struct json_out *j, bool object)
{
    assert(j->depth > 0 && !j->after_key && !(j->is_object & level_bit(j)) == !object);
    j->depth--;
    buf_chr(j->b, object ? '}' : ']');
}

void json_object_begin(struct json_out *j)
{
    open_level(j, true);
}

void json_object_end(struct json_out *j)
{
    close_level(j, true);
}

void json_array_begin(struct json_out *j)
{
    open_level(j, false);
}

void json_array_end(struct json_out *j)
{
    close_level(j, false);
}

/* ---- strings ------------------------------------------------------------------------------- */

/* Bytes that stand for themselves: printable ASCII but '"', '\\', '<', and DEL left to escaping. */
static bool is_plain(unsigned char c)
{
    return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '<';
}

/* How many bytes from at on are plain, eight at a time; the rest is for the caller to see. */
static size_t plain_run(struct str s, size_t at)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7;
    size_t from = at;

    for (; s.n - at >= 8; at += 8) {
        uint64_t x, quote, slash, less;

        memcpy(&x, s.p + at, 8);
        quote = x ^ ones * '"';
        slash = x ^ ones * '\\';
        less = x ^ ones * '<';
        /* a byte that is 0, or below ' ', borrows; one of 0x7f or more has its high bit then */
        if ((((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((less - ones) & ~less) |
             (x - ones * ' ') | (x + ones) | x) &
            high)
            break;
    }
    return at - from;
}

static void put_special(struct json_out *j, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    const char *two = NULL;

    switch (c) {
    case '"':
        two = "\\\"";
        break;
    case '\\':
        two = "\\\\";
        break;
    case '\n':
        two = "\\n";
        break;
    case '\r':
        two = "\\r";
        break;
    case '\t':
        two = "\\t";
        break;
    default:
        buf_add(j->b, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
        return;
    }
    buf_add(j->b, two, 2);
}

/* A byte that is no part of UTF-8 is shown as the four characters \xHH, as str_repair() does. */
static void put_invalid(struct json_out *j, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";

    buf_add(j->b, (char[]){'\\', '\\', 'x', hex[c >> 4], hex[c & 15]}, 5);
}

/* Most strings stand for themselves: all of one at once, where the buffer has room for it. */
static bool put_plain(struct buf *b, struct str s)
{
    size_t at = plain_run(s, 0);
    char *p;

    while (at < s.n && is_plain((unsigned char)s.p[at]))
        at++;
    if (at < s.n || b->failed || b->room - b->n < 2 || s.n > b->room - b->n - 2)
        return false;
    p = b->p + b->n;
    *p++ = '"';
    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = '"';
    b->n += s.n + 2;
    return true;
}

static void put_string(struct json_out *j, struct str s)
{
    size_t from = 0, at = 0;
    bool repaired = false;

    if (s.n && put_plain(j->b, s))
        return;
    buf_chr(j->b, '"');
    while (at < s.n) {
        unsigned char c = (unsigned char)s.p[at];
        size_t n;

        if (is_plain(c)) {
            n = plain_run(s, at);
            at += n ? n : 1;
            continue;
        }
        n = str_utf8_next(str_from(s, at));
        if (n > 1) {
            at += n;
            continue;
        }
        buf_add(j->b, s.p + from, at - from);
        if (n == 1) {
            put_special(j, c);
        } else {
            put_invalid(j, c);
            repaired = true;
        }
        from = ++at;
    }
    if (at > from)
        buf_add(j->b, s.p + from, at - from);
    buf_chr(j->b, '"');
    j->repaired += repaired;
}

void json_key_str(struct json_out *j, struct str key)
{
    assert(j->depth > 0 && j->is_object & level_bit(j) && !j->after_key);
    comma(j);
    put_string(j, key);
    buf_chr(j->b, ':');
    j->after_key = true;
}

void json_key(struct json_out *j, const char *key)
{
    json_key_str(j, str_c(key));
}

void json_str(struct json_out *j, struct str s)
{
    before_value(j);
    put_string(j, s);
}

void json_cstr(struct json_out *j, const char *s)
{
    json_str(j, str_c(s));
}

/* ---- other values -------------------------------------------------------------------------- */

/*
 * Most of an answer is columns of numbers. Where the buffer has room for a comma and QUICK bytes
 * more, a value is written in place: buf_commit() with what was written. NULL: not so.
 */
#define QUICK 24u

static char *quick(struct json_out *j)
{
    struct buf *b = j->b;
    char *p;

    if (b->failed || b->room - b->n < QUICK + 1 || j->depth == 0)
        return NULL;
    p = b->p + b->n;
    if (j->after_key) {
        j->after_key = false;
        return p;
    }
    assert(!(j->is_object & level_bit(j)));
    if (j->has_member & level_bit(j)) {
        *p++ = ',';
        b->n++;
    }
    j->has_member |= level_bit(j);
    return p;
}

void json_null_value(struct json_out *j)
{
    before_value(j);
    buf_add(j->b, "null", 4);
}

void json_bool(struct json_out *j, bool v)
{
    before_value(j);
    buf_cstr(j->b, v ? "true" : "false");
}

void json_i64(struct json_out *j, int64_t v)
{
    if (v >= 0) {
        json_u64(j, (uint64_t)v);
        return;
    }
    before_value(j);
    buf_i64(j->b, v);
}

void json_u64(struct json_out *j, uint64_t v)
{
    char *p = quick(j);

    if (p) {
        j->b->n += buf_digits(p, v);
        return;
    }
    before_value(j);
    buf_u64(j->b, v);
}

/*
 * Members of an array, many at once: room for a comma, a sign and the digits of each, then no
 * question more. False where the buffer may hold the numbers, but not so much room.
 */
#define AT_ONCE 256u
#define NUMBER  (BUF_DIGITS + 2u)

static char *members(struct json_out *j)
{
    struct buf *b = j->b;

    assert(j->depth > 0 && !j->after_key && !(j->is_object & level_bit(j)));
    if (b->failed || b->cap - b->n < (size_t)AT_ONCE * NUMBER)
        return NULL;
    return buf_reserve(b, (size_t)AT_ONCE * NUMBER);
}

static char *member(char *p, uint64_t v, bool negative)
{
    *p++ = ',';
    *p = '-';
    p += negative;
    return p + buf_digits(p, v);
}

/* The comma before the first of all is not written: the text moves up by one. */
static void put_members(struct json_out *j, char *start, size_t n)
{
    if (!(j->has_member & level_bit(j)))
        memmove(start, start + 1, --n);
    j->has_member |= level_bit(j);
    buf_commit(j->b, n);
}

#define MEMBERS(j, v, n, value, negative, one)                                                     \
    for (size_t from = 0; from < (n); from += AT_ONCE) {                                           \
        size_t end = (n)-from < AT_ONCE ? (n) : from + AT_ONCE;                                    \
        char *start = members(j), *p = start;                                                      \
                                                                                                   \
        for (size_t i = from; p && i < end; i++)                                                   \
            p = member(p, value, negative);                                                        \
        for (size_t i = from; !p && i < end; i++)                                                  \
            one(j, (v)[i]);                                                                        \
        if (p)                                                                                     \
            put_members(j, start, (size_t)(p - start));                                            \
    }

void json_u32s(struct json_out *j, const uint32_t *v, size_t n)
{
    MEMBERS(j, v, n, v[i], false, json_u64)
}

void json_u64s(struct json_out *j, const uint64_t *v, size_t n)
{
    MEMBERS(j, v, n, v[i], false, json_u64)
}

void json_i32s(struct json_out *j, const int32_t *v, size_t n)
{
    MEMBERS(j, v, n, v[i] < 0 ? -(uint64_t)v[i] : (uint64_t)v[i], v[i] < 0, json_i64)
}

/*
 * Most numbers of an answer have few digits: v = m / 10^k with m < 2^53 and k <= 22 is read back
 * exactly, because m, 10^k and one rounded division are what a reader of decimals computes; the
 * smallest such k is the shortest form.
 */
static bool put_short(struct buf *b, double v)
{
    static const uint64_t pow10[] = {1, 10, 100, 1000, 10000};

    for (unsigned k = 0; k < sizeof pow10 / sizeof pow10[0]; k++) {
        double scale = (double)pow10[k];
        uint64_t whole;

        if (v * scale >= 0x1p53 - 1)
            return false;
        whole = (uint64_t)(v * scale + 0.5);
        if ((double)whole / scale != v)
            continue;
        buf_u64(b, whole / pow10[k]);
        if (k > 0)
            buf_chr(b, '.');
        for (unsigned i = k; i > 0; i--)
            buf_chr(b, (char)('0' + whole / pow10[i - 1] % 10));
        return true;
    }
    return false;
}

/* m x 10^e: plain from 1e-6 up to 1e21, as JavaScript writes it, else with an exponent. */
static void put_decimal(struct buf *b, uint64_t m, int e)
{
    char digits[20];
    int n = 0, point;

    while (m % 10 == 0) {
        m /= 10;
        e++;
    }
    for (; m > 0; m /= 10)
        digits[sizeof digits - (size_t)++n] = (char)('0' + m % 10);
    point = n + e; /* digits before it */
    if (point > 0 && point <= 21) {
        int whole = point < n ? point : n;

        buf_add(b, digits + sizeof digits - (size_t)n, (size_t)whole);
        for (int i = n; i < point; i++)
            buf_chr(b, '0');
        if (n > whole)
            buf_chr(b, '.');
        buf_add(b, digits + sizeof digits - (size_t)(n - whole), (size_t)(n - whole));
    } else if (point <= 0 && point > -6) {
        buf_add(b, "0.00000", (size_t)(2 - point));
        buf_add(b, digits + sizeof digits - (size_t)n, (size_t)n);
    } else {
        buf_chr(b, digits[sizeof digits - (size_t)n]);
        if (n > 1)
            buf_chr(b, '.');
        buf_add(b, digits + sizeof digits - (size_t)(n - 1), (size_t)(n - 1));
        buf_chr(b, 'e');
        buf_i64(b, point - 1);
    }
}

/* Very large and very small: any 15 digits survive the way to a double and back, but a subnormal
 * number may need fewer. */
static void put_extreme(struct buf *b, double v)
{
    char text[32];
    double back;

    for (int digits = v < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, v);
        if (str_double(str_c(text), &back) && back == v)
            break;
    }
    buf_cstr(b, text);
}

void json_double(struct json_out *j, double v)
{
    uint64_t m;
    int e;

    assert(isfinite(v));
    before_value(j);
    if (signbit(v))
        buf_chr(j->b, '-');
    v = fabs(v);
    if (put_short(j->b, v))
        return;
    if (shortest_decimal(v, &m, &e))
        put_decimal(j->b, m, e);
    else
        put_extreme(j->b, v);
}

void json_hex64(struct json_out *j, uint64_t v)
{
    static const char hex[] = "0123456789abcdef";
    char *p = quick(j);

    if (p) {
        p[0] = p[17] = '"';
        for (unsigned i = 0; i < 16; i++)
            p[1 + i] = hex[v >> (60 - 4 * i) & 15];
        j->b->n += 18;
        return;
    }
    before_value(j);
    buf_chr(j->b, '"');
    buf_hex64(j->b, v);
    buf_chr(j->b, '"');
}

void json_dec_i64(struct json_out *j, int64_t v)
{
    before_value(j);
    buf_chr(j->b, '"');
    buf_i64(j->b, v);
    buf_chr(j->b, '"');
}

void json_dec_u64(struct json_out *j, uint64_t v)
{
    before_value(j);
    buf_chr(j->b, '"');
    buf_u64(j->b, v);
    buf_chr(j->b, '"');
}

void json_dec_i128(struct json_out *j, unit_i128 v)
{
    __extension__ unsigned __int128 u = (unsigned __int128)v;
    char digits[40];
    size_t at = sizeof digits;

    before_value(j);
    if (v < 0)
        u = -u;
    do {
        digits[--at] = (char)('0' + (unsigned)(u % 10));
        u /= 10;
    } while (u > 0);
    buf_cstr(j->b, v < 0 ? "\"-" : "\"");
    buf_add(j->b, digits + at, sizeof digits - at);
    buf_chr(j->b, '"');
}

void json_raw(struct json_out *j, struct str already_json)
{
    before_value(j);
    buf_str(j->b, already_json);
}
