// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <inttypes.h>

void text_count(struct buf *b, uint64_t n)
{
    char digits[24];
    size_t i = 0;

    do
        digits[i++] = (char)('0' + n % 10);
    while (n /= 10);
    while (i--) {
        buf_chr(b, digits[i]);
        if (i && i % 3 == 0)
            buf_chr(b, ',');
    }
}

struct scale {
    double from; /* values of at least this */
    double one;  /* are divided by that */
    const char *unit;
};

static const struct scale cpu_time[] = {
    {3600e9, 3600e9, "core-h"}, {60e9, 60e9, "core-min"}, {1e9, 1e9, "core-s"},
    {1e6, 1e6, "core-ms"},      {1e3, 1e3, "core-us"},    {0, 1, "core-ns"},
};
static const struct scale time_unit[] = {
    {3600e9, 3600e9, "h"}, {60e9, 60e9, "min"}, {1e9, 1e9, "s"},
    {1e6, 1e6, "ms"},      {1e3, 1e3, "us"},    {0, 1, "ns"},
};
static const struct scale bytes[] = {
    {0x1p40, 0x1p40, "TiB"},
    {0x1p30, 0x1p30, "GiB"},
    {0x1p20, 0x1p20, "MiB"},
    {0x1p10, 0x1p10, "KiB"},
    {0, 1, "B"},
};

static void put_scaled(struct buf *b, const struct scale *s, double v)
{
    double x;

    if (v == 0) { /* of what it counts, not of its smallest unit */
        while (s->one > 1 && s->one != 1e9)
            s++;
        buf_printf(b, "0 %s", s->unit);
        return;
    }
    while (v < s->from)
        s++;
    x = v / s->one;
    /* three digits that count */
    buf_printf(b, "%.*f %s",
               s->one <= 1 || x >= 100 ? (s->one <= 1 ? 0 : 1)
               : x >= 10               ? 1
                                       : 2,
               x, s->unit);
}

void text_value(struct buf *b, struct str type, struct str unit, double value)
{
    if (str_eq(unit, STR("nanoseconds"))) {
        put_scaled(b, str_eq(type, STR("cpu")) ? cpu_time : time_unit, value);
    } else if (str_eq(unit, STR("bytes"))) {
        put_scaled(b, bytes, value);
    } else {
        text_count(b, (uint64_t)value);
        if (!str_eq(unit, STR("count"))) {
            buf_chr(b, ' ');
            text_name(b, unit);
        }
    }
}

void text_things(struct buf *b, uint64_t n, const char *one, const char *many)
{
    text_count(b, n);
    buf_chr(b, ' ');
    buf_cstr(b, n == 1 ? one : many);
}

void text_percent(struct buf *b, double part, double whole)
{
    if (whole > 0)
        buf_printf(b, "%.1f %%", 100 * part / whole);
    else
        buf_chr(b, '-');
}

void text_range(struct buf *b, struct interval t)
{
    char from[40], to[40];
    struct str f = str_c(real_ns_format(t.t0, from)), g = str_c(real_ns_format(t.t1, to));

    if (f.n < 19 || g.n < 19) { /* out of the range of years */
        buf_printf(b, "%s-%s", from, to);
        return;
    }
    buf_printf(b, "%.10s %.8s-", f.p, f.p + 11);
    if (!str_eq(str_to(f, 10), str_to(g, 10)))
        buf_printf(b, "%.10s ", g.p);
    buf_printf(b, "%.8sZ", g.p + 11);
}

/* One character of well-formed UTF-8; its length in bytes. */
static size_t decode(struct str s, uint32_t *ret)
{
    unsigned char c = (unsigned char)s.p[0];
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint32_t v = n == 1 ? c : c & (0xffu >> (n + 1));

    for (size_t i = 1; i < n; i++)
        v = v << 6 | ((unsigned char)s.p[i] & 0x3f);
    *ret = v;
    return n;
}

/* Control characters, and what turns or breaks the line around it (Unicode, Bidi_Control). */
static bool is_hostile(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void text_name(struct buf *b, struct str name)
{
    struct buf clean;
    struct str s;

    buf_init(&clean, 4 * name.n + 1);
    (void)str_repair(&clean, name);
    s = buf_view(&clean);
    while (s.n) {
        uint32_t c;
        size_t n = decode(s, &c);

        if (!is_hostile(c))
            buf_str(b, str_to(s, n));
        else if (c < 0x80)
            buf_printf(b, "\\x%02" PRIx32, c);
        else
            buf_printf(b, "\\u{%" PRIx32 "}", c);
        s = str_from(s, n);
    }
    buf_deinit(&clean);
}

size_t text_width(struct str s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
    return n;
}

void text_i128(struct buf *b, unit_i128 v)
{
    __extension__ unsigned __int128 u =
        v < 0 ? -(unsigned __int128)v : (unsigned __int128)v; /* the lowest has no positive */
    char digits[48];
    size_t i = 0;

    if (v < 0)
        buf_chr(b, '-');
    do
        digits[i++] = (char)('0' + (int)(u % 10));
    while (u /= 10);
    while (i--)
        buf_chr(b, digits[i]);
}
