// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/time.h"

/*
 * The one place where spool, sender and collector read clocks, so that a test can let hours pass,
 * set the wall clock or suspend the machine. Any thread, but for the watch.
 */
mono_ns clock_mono(void);
real_ns clock_real(void);
struct clock_pair clock_pair_now(void); /* the tightest of 9 */

/* For tests: from now on the clocks differ from the machine's by so much more. Time that passes is
 * {n, n, n}; a wall clock that is set {0, n, 0}; a suspend {0, n, n}. */
struct clock_shift {
    int64_t mono_ns, real_ns, boot_ns;
};
void clock_shift_add(struct clock_shift by);

/* What happened to the clocks since the last look. Owner only. */
struct clock_watch {
    int64_t real_minus_mono, boot_minus_mono;
};
struct clock_change {
    int64_t step_ns;      /* the wall clock was set by so much; 0: by less than 10 ms */
    int64_t suspended_ns; /* the machine slept so long; 0: less than 10 ms */
};
void clock_watch_begin(struct clock_watch *w);
struct clock_change clock_watch_look(struct clock_watch *w);
