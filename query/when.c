// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "query/query_private.h"

/* A bare integer is nanoseconds, but only if it cannot be meant as seconds or milliseconds. */
#define BARE_DIGITS 16

struct unit {
    struct str word;
    int64_t ns;
};

static const struct unit units[] = {
    {STR("ns"), 1},
    {STR("us"), NS_PER_US},
    {STR("ms"), NS_PER_MS},
    {STR("s"), NS_PER_S},
    {STR("m"), 60 * NS_PER_S},
    {STR("h"), 3600 * NS_PER_S},
    {STR("d"), 86400 * NS_PER_S},
    {STR("w"), INT64_C(7) * 86400 * NS_PER_S},
};

/* Digits and a unit among the first n units; false: anything else, or too large. */
static bool number_with_unit(struct str s, size_t n, int64_t *ret_ns)
{
    size_t digits = 0;
    int64_t v;

    while (digits < s.n && s.p[digits] >= '0' && s.p[digits] <= '9')
        digits++;
    if (digits == 0 || !str_i64(str_to(s, digits), &v))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (str_eq(str_from(s, digits), units[i].word))
            return !__builtin_mul_overflow(v, units[i].ns, ret_ns);
    }
    return false;
}

bool query_duration_parse(struct str s, int64_t *ret_ns)
{
    return number_with_unit(s, sizeof units / sizeof units[0], ret_ns);
}

static int bad_time(struct query_err *e, const char *param, struct str s, const char *why)
{
    return query_fail(e, -EINVAL, QUERY_BAD_TIME, param, "%s=%.*s: %s", param,
                      STR_ARG(str_to(s, 64)), why);
}

static bool all_digits(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    }
    return s.n > 0;
}

/*
 * "now" is the last whole second: sources date what they fold at the start of a second, so a range
 * that begins or ends inside one would hold its samples and only a part of its time, or the
 * reverse.
 */
real_ns query_now(real_ns now)
{
    int64_t part = now.v % NS_PER_S;

    return (real_ns){now.v - (part < 0 ? part + NS_PER_S : part)};
}

static int relative(struct str s, real_ns now, const char *param, real_ns *ret, struct query_err *e)
{
    int64_t d = 0;
    struct str rest = str_from(s, 3);

    now = query_now(now);
    if (rest.n == 0) {
        *ret = now;
        return 0;
    }
    if ((rest.p[0] != '-' && rest.p[0] != '+') || !query_duration_parse(str_from(rest, 1), &d))
        return bad_time(e, param, s, "after \"now\" comes nothing or a duration such as -15m");
    if (rest.p[0] == '-')
        d = -d;
    if (__builtin_add_overflow(now.v, d, &ret->v))
        return bad_time(e, param, s, "beyond the range of 64-bit nanoseconds");
    return 0;
}

int query_when(struct str s, real_ns now, const char *param, real_ns *ret, bool *ret_relative,
               struct query_err *e)
{
    real_ns t = {0};

    if (str_starts(s, STR("now"))) {
        TRY(relative(s, now, param, &t, e));
        *ret = t;
        *ret_relative = true;
        return 0;
    }
    *ret_relative = false;
    if (all_digits(s)) {
        if (s.n < BARE_DIGITS)
            return bad_time(e, param, s, "a number needs a unit: s, ms, us or ns");
        if (!str_i64(s, &t.v))
            return bad_time(e, param, s, "beyond the range of 64-bit nanoseconds");
        *ret = t;
        return 0;
    }
    if (number_with_unit(s, 4, &t.v) || real_ns_parse(s, &t)) {
        *ret = t;
        return 0;
    }
    return bad_time(e, param, s,
                    "neither RFC 3339, nor an integer with s, ms, us or ns, nor now[-DURATION]");
}
