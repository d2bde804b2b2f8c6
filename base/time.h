// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Clocks are types, as units are: an instant of one clock cannot be passed for that of another.
 * Durations are plain int64_t nanoseconds whose names end in _ns. Any thread.
 */
typedef struct real_ns {
    int64_t v; /* since the epoch, UTC, as the wall clock had it */
} real_ns;

typedef struct mono_ns {
    int64_t v; /* CLOCK_MONOTONIC */
} mono_ns;

/* Half-open [t0, t1), t0 <= t1. Splitting one anywhere gives parts that add up to the whole. */
struct interval {
    real_ns t0, t1;
};

#define NS_PER_S  INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_US INT64_C(1000)

static inline int real_ns_cmp(real_ns a, real_ns b)
{
    return (a.v > b.v) - (a.v < b.v);
}

static inline int mono_ns_cmp(mono_ns a, mono_ns b)
{
    return (a.v > b.v) - (a.v < b.v);
}

static inline bool interval_has(struct interval i, real_ns t)
{
    return i.t0.v <= t.v && t.v < i.t1.v;
}

/* The common part; empty (t0 == t1) where there is none. */
static inline struct interval interval_cut(struct interval a, struct interval b)
{
    struct interval r = {.t0 = a.t0.v > b.t0.v ? a.t0 : b.t0, .t1 = a.t1.v < b.t1.v ? a.t1 : b.t1};

    if (r.t1.v < r.t0.v)
        r.t1 = r.t0;
    return r;
}

/* *ret = length; false, with *ret untouched, if t0 > t1 or the length does not fit. */
[[nodiscard]] static inline bool interval_len(struct interval i, int64_t *ret_ns)
{
    int64_t d;

    if (i.t0.v > i.t1.v || __builtin_sub_overflow(i.t1.v, i.t0.v, &d))
        return false;
    *ret_ns = d;
    return true;
}

/* Never fail: Linux has these clocks. */
real_ns real_now(void);
mono_ns mono_now(void);
int64_t boot_now_ns(void); /* CLOCK_BOOTTIME: runs on during suspend */

/* CPU time of the calling thread; of a process (0: our own) with its threads, dead ones too, -1
 * where there is none of that number. */
int64_t thread_cpu_ns(void);
int64_t process_cpu_ns(int pid);

/* One instant on two clocks: real was read between two readings of mono, err_ns apart; of n tries
 * the tightest is kept. */
struct clock_pair {
    mono_ns mono;
    real_ns real;
    int64_t err_ns;
};
struct clock_pair clock_pair_take(unsigned n);

/* RFC 3339, UTC, "2026-11-29T13:00:00.123456789Z"; fraction left out where it is 0. ret holds at
 * least 40 bytes; returns ret. Every int64 has a text (years 1677 to 2262). */
const char *real_ns_format(real_ns t, char ret[static 40]);

/* RFC 3339 with Z or an offset and up to 9 decimals; false if it is anything else or does not fit.
 * A leap second (":60") is refused. */
[[nodiscard]] bool real_ns_parse(struct str s, real_ns *ret);
