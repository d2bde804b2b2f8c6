// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/time.h"

struct sa_ev;

/*
 * A source of observations. The collector's main thread opens it, polls it every turn and closes
 * it. What it sees goes to the sink; what it lost, and the interval it covers, it says when asked
 * at the end of each window.
 */
struct source_sink {
    /* One BPF record; borrowed during the call. t is the record's time on the wall clock. false: it
     * is of a process that rules leave out, so its weight is filtered. */
    bool (*sample)(void *ctx, const struct sa_ev *ev, real_ns t);
    void *ctx;
};

/*
 * What one source says about one window: goes into its batch_stream. Nanoseconds for cpu. A window
 * is what happened between two accounts: every sample that the sink got between them belongs to it,
 * and no other, so weight_ns is the sum of their weights.
 */
struct source_account {
    struct interval covers;
    uint32_t width; /* CPUs */
    int64_t period;
    uint64_t received; /* ticks that ran and were not lost, idle ones too */
    int64_t jitter;
    uint64_t busy_ns, idle_ns, filtered_ns; /* totals of the window, over CPUs */
    uint64_t weight_ns;                     /* given to the sink */
    struct {
        uint64_t n;
        int64_t weight;
    } missed, missed_idle, ring_full;
    /* source_user.h: CPU time that its ticks cannot see, and how long the targets were stopped */
    uint64_t kernel_hidden, counter_ns, pause_ns;
    const char *source; /* label source of its series; static, NULL: as the batch says */
    const char *why;    /* what this source cannot see, for people; static, NULL: nothing to say */
    bool scaled;        /* weights are measured, not ticks times the period */
    bool identity_ok;   /* I1 and I2 of account.h exact on every CPU */
    char identity_text[160]; /* both sides, where it is not */
    uint64_t stop[16];       /* records by enum sa_stop */
    uint64_t bpf_ns;
};
