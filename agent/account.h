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

/*
 * The part of the missed time that was idle: an idle CPU may get no tick at all, then both ends of
 * the gap are busy. By the kernel's own count of idle time, which is exact to one jiffy at each
 * end: idle as far as stat_idle_ns exceeds the ticks' idle time, and never less than what lies
 * between two idle ticks. jiffy_ns: of that count.
 */
uint64_t account_missed_idle(const struct account_delta *d, uint64_t stat_idle_ns,
                             uint64_t jiffy_ns);

/* idle + iowait of every CPU, ns since boot, from a file in the form of /proc/stat; ret[n]. CPUs
 * that it does not list keep their value. Returns 0 or negative errno. */
[[nodiscard]] int account_read_stat(const char *path, uint64_t *ret, uint32_t n);
