// SPDX-License-Identifier: Apache-2.0
#include "base/time.h"

#include <assert.h>
#include <stdio.h>
#include <time.h>

#define DAY_S 86400

static int64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    int r = clock_gettime(id, &ts);

    assert(r == 0);
    (void)r;
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

real_ns real_now(void)
{
    return (real_ns){clock_ns(CLOCK_REALTIME)};
}

mono_ns mono_now(void)
{
    return (mono_ns){clock_ns(CLOCK_MONOTONIC)};
}

int64_t boot_now_ns(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

int64_t thread_cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t process_cpu_ns(int pid)
{
    struct timespec ts;
    clockid_t id;

    if (clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &ts) < 0)
        return -1;
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

struct clock_pair clock_pair_take(unsigned n)
{
    struct clock_pair best = {.err_ns = INT64_MAX};

    for (unsigned i = 0; i < (n ? n : 1); i++) {
        int64_t before = mono_now().v;
        real_ns real = real_now();
        int64_t width = mono_now().v - before;

        if (width < best.err_ns)
            best = (struct clock_pair){{before + width / 2}, real, width};
    }
    return best;
}

/*
 * Days since 1970-01-01 <-> proleptic Gregorian date. Years are counted from March, so that the
 * leap day is the last of its year, in eras of 400 years (146,097 days).
 */
static int64_t days_from_date(int64_t y, int m, int d)
{
    int64_t year = m <= 2 ? y - 1 : y;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t yoe = year - era * 400;
    int64_t doy = (153 * (m > 2 ? m - 3 : m + 9) + 2) / 5 + d - 1;

    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static void date_from_days(int64_t days, int *ret_y, int *ret_m, int *ret_d)
{
    int64_t z = days + 719468;
    int64_t era = (z >= 0 ? z : z - 146096) / 146097;
    int64_t doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;

    *ret_d = (int)(doy - (153 * mp + 2) / 5 + 1);
    *ret_m = (int)(mp < 10 ? mp + 3 : mp - 9);
    *ret_y = (int)(yoe + era * 400 + (*ret_m <= 2));
}

const char *real_ns_format(real_ns t, char ret[static 40])
{
    int64_t s = t.v / NS_PER_S, ns = t.v % NS_PER_S, days, rest;
    int y, m, d, n;

    if (ns < 0) {
        ns += NS_PER_S;
        s--;
    }
    days = s / DAY_S;
    rest = s % DAY_S;
    if (rest < 0) {
        rest += DAY_S;
        days--;
    }
    date_from_days(days, &y, &m, &d);
    n = snprintf(ret, 40, "%04d-%02d-%02dT%02d:%02d:%02d", y, m, d, (int)(rest / 3600),
                 (int)(rest / 60 % 60), (int)(rest % 60));
    assert(n == 19); /* an int64 of nanoseconds ends in the year 2262 */
    if (ns != 0)
        n += snprintf(ret + n, 40 - (size_t)n, ".%09d", (int)ns);
    (void)snprintf(ret + n, 40 - (size_t)n, "Z");
    return ret;
}

/* n digits at s.p[at]; -1 if they are not all there. */
static int digits(struct str s, size_t at, size_t n)
{
    int v = 0;

    for (size_t i = at; i < at + n; i++) {
        if (i >= s.n || s.p[i] < '0' || s.p[i] > '9')
            return -1;
        v = v * 10 + (s.p[i] - '0');
    }
    return v;
}

static bool char_is(struct str s, size_t at, const char *set)
{
    return at < s.n && s.p[at] != '\0' && strchr(set, s.p[at]);
}

static int days_in_month(int y, int m)
{
    static const int n[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return n[m - 1] + (m == 2 && y % 4 == 0 && (y % 100 != 0 || y % 400 == 0));
}

/* "Z" or "+hh:mm" at the end of s; seconds east of Greenwich. */
static bool offset_parse(struct str s, size_t at, int *ret_s)
{
    int h, m;

    if (char_is(s, at, "Zz")) {
        *ret_s = 0;
        return at + 1 == s.n;
    }
    h = digits(s, at + 1, 2);
    m = digits(s, at + 4, 2);
    if (!char_is(s, at, "+-") || !char_is(s, at + 3, ":") || at + 6 != s.n || h < 0 || h > 23 ||
        m < 0 || m > 59)
        return false;
    *ret_s = (s.p[at] == '-' ? -1 : 1) * (h * 3600 + m * 60);
    return true;
}

bool real_ns_parse(struct str s, real_ns *ret)
{
    int y = digits(s, 0, 4), mo = digits(s, 5, 2), d = digits(s, 8, 2);
    int h = digits(s, 11, 2), mi = digits(s, 14, 2), se = digits(s, 17, 2), off;
    int64_t ns = 0, v;
    size_t at = 19;

    if (y < 1 || mo < 1 || mo > 12 || d < 1 || d > days_in_month(y, mo) || h < 0 || h > 23 ||
        mi < 0 || mi > 59 || se < 0 || se > 59 || !char_is(s, 4, "-") || !char_is(s, 7, "-") ||
        !char_is(s, 10, "Tt") || !char_is(s, 13, ":") || !char_is(s, 16, ":"))
        return false;
    if (char_is(s, at, ".")) {
        size_t first = ++at;

        for (int64_t scale = NS_PER_S / 10; digits(s, at, 1) >= 0; at++, scale /= 10) {
            if (scale == 0)
                return false;
            ns += digits(s, at, 1) * scale;
        }
        if (at == first)
            return false;
    }
    if (!offset_parse(s, at, &off))
        return false;
    v = days_from_date(y, mo, d) * DAY_S + (h * INT64_C(3600) + mi * INT64_C(60) + se - off);
    /* before the epoch the whole seconds alone may not fit where the sum does: 128 bits */
    __extension__ __int128 sum = (__int128)v * NS_PER_S + ns;
    if (sum > INT64_MAX || sum < INT64_MIN)
        return false;
    ret->v = (int64_t)sum;
    return true;
}
