// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/bpf/cpu.h"

/*
 * The identities of CPU time, in integers, per CPU and window. They hold whatever is late or lost;
 * a violation is a bug of ours or of the kernel, and is said with both sides. a0, a1: one CPU's
 * account at the window's ends. All pure; any thread. Nanoseconds.
 *
 *   I1  busy + idle + jitter + missed = what the event's clock passed; busy + idle = ticks * P
 *   I2  weight received + refused by the ring + filtered = busy
 *   I3  rows sent = weight received
 */
enum {
    ACCOUNT_TEXT = 160
};

/* What the window brought on this CPU. */
struct account_delta {
    uint64_t clock; /* passed on the event's clock, while it had one */
    uint64_t ticks, busy, idle, filtered, lost_n, lost_ns, missed_ticks;
    int64_t jitter;
    uint64_t missed, missed_idle_ends; /* missed_idle_ends: idle before and after */
    uint64_t bpf_ns;
};

struct account_delta account_delta(const struct sa_acct *a0, const struct sa_acct *a1);

/* False, with both sides in text, if the identity does not hold. period: 0 if it changed within the
 * window. */
bool account_i1(uint32_t cpu, const struct account_delta *d, uint64_t period,
                char text[static ACCOUNT_TEXT]);
bool account_i2(uint32_t cpu, const struct account_delta *d, uint64_t received,
                char text[static ACCOUNT_TEXT]);
bool account_i3(uint64_t rows, uint64_t received, char text[static ACCOUNT_TEXT]);

/* What a window shows of one CPU beside its ticks. */
struct account_seen {
    uint64_t stat_idle; /* idle by the kernel's own count */
    uint64_t open;      /* passed since the last tick: missed time that no tick has closed yet */
    uint64_t window, period;
};

/* Of one CPU, from window to window; zero at first. */
struct account_carry {
    int64_t unexplained;
    uint64_t open;
};

/*
 * The part of the missed time that was idle: an idle CPU may get no tick at all, then both ends of
 * the gap are busy. By the kernel's own count of idle time: idle as far as that exceeds the ticks'
 * idle time, and never less than what lies between two idle ticks.
 *
 * That compares a count with a sample: on a CPU that is busy for a share s of a window of T, the
 * ticks' time errs by sqrt(T P s (1 - s)), either way. Taken window by window its positive half
 * would be called lost, 2 % of the time at 99 Hz where nothing is. So what is unexplained is
 * carried on between the bounds +-4 sqrt(T P / 4), and only what exceeds them is lost. A loss that
 * goes on is counted in full once it has filled the bounds, 0.4 s at 99 Hz. A CPU that the kernel
 * did not see idle in this window needs no comparison: its missed time is lost at once.
 */
uint64_t account_missed_idle(const struct account_delta *d, const struct account_seen *seen,
                             struct account_carry *carry);

/* idle + iowait of every CPU, ns since boot, from a file in the form of /proc/stat; ret[n]. CPUs
 * that it does not list keep their value. Returns 0 or negative errno. */
[[nodiscard]] int account_read_stat(const char *path, uint64_t *ret, uint32_t n);
