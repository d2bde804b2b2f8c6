// SPDX-License-Identifier: Apache-2.0
#include "agent/source/clock.h"

#include <stdatomic.h>

#define STEP_NS (10 * NS_PER_MS)
#define TRIES   9

static _Atomic int64_t mono_shift, real_shift, boot_shift; /* 0 but in tests */

mono_ns clock_mono(void)
{
    return (mono_ns){mono_now().v + atomic_load_explicit(&mono_shift, memory_order_relaxed)};
}

real_ns clock_real(void)
{
    return (real_ns){real_now().v + atomic_load_explicit(&real_shift, memory_order_relaxed)};
}

struct clock_pair clock_pair_now(void)
{
    struct clock_pair p = clock_pair_take(TRIES);

    p.mono.v += atomic_load_explicit(&mono_shift, memory_order_relaxed);
    p.real.v += atomic_load_explicit(&real_shift, memory_order_relaxed);
    return p;
}

void clock_shift_add(struct clock_shift by)
{
    atomic_fetch_add(&mono_shift, by.mono_ns);
    atomic_fetch_add(&real_shift, by.real_ns);
    atomic_fetch_add(&boot_shift, by.boot_ns);
}

/* As the pair of wall clock and monotonic: the tightest of some brackets, for a thread may be
 * preempted between two readings. */
static int64_t boot_minus_mono(void)
{
    int64_t best = INT64_MAX, ret = 0;

    for (int i = 0; i < TRIES; i++) {
        int64_t before = mono_now().v, boot = boot_now_ns(), after = mono_now().v;

        if (after - before < best) {
            best = after - before;
            ret = boot - before - best / 2;
        }
    }
    return ret + atomic_load(&boot_shift) - atomic_load(&mono_shift);
}

void clock_watch_begin(struct clock_watch *w)
{
    struct clock_pair p = clock_pair_now();

    w->real_minus_mono = p.real.v - p.mono.v;
    w->boot_minus_mono = boot_minus_mono();
}

static int64_t if_large(int64_t ns)
{
    return ns > -STEP_NS && ns < STEP_NS ? 0 : ns;
}

struct clock_change clock_watch_look(struct clock_watch *w)
{
    struct clock_watch now;
    int64_t slept;

    clock_watch_begin(&now);
    slept = if_large(now.boot_minus_mono - w->boot_minus_mono);
    struct clock_change c = {
        .step_ns = if_large(now.real_minus_mono - w->real_minus_mono - slept),
        .suspended_ns = slept,
    };
    *w = now;
    return c;
}
