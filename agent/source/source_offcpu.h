// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/source/bpf_switch.h"
#include "base/err.h"
#include "base/time.h"

/*
 * Time off the CPU: blocked, or waiting for a CPU, with the stack that the thread left with. An
 * interval is given in parts: what of it lies in a window when that ends, so that a thread that
 * does not come back is seen all the same; the rest when it is back. The parts of an interval add
 * up to it, in integers. One thread: the collector's main thread. Times ns.
 *
 *     every turn    source_offcpu_poll()
 *     every window  source_offcpu_window(), directly after a poll
 */
struct source_offcpu;

/* Reasons beyond those of the programs. */
enum {
    SOURCE_OFFCPU_FULL = SA_L_N, /* no room to keep the stack until the thread is back */
    SOURCE_OFFCPU_WHYS,
};

struct source_offcpu_part {
    const struct sa_ev *ev; /* who (tgid, tid, comm); with SA_L_STACK also the stack. Borrowed */
    uint8_t why;            /* enum sa_left, SOURCE_OFFCPU_FULL */
    real_ns t;              /* where the part begins */
    int64_t blocked, queued;
    uint64_t n; /* intervals: 1, or so many short ones */
    /* The thread ran for less than SOURCE_OFFCPU_JOIN_NS since it last left with the same stack:
     * where that waits for Python's lock, in slices of 5 ms, it is one wait. */
    bool again;
};

#define SOURCE_OFFCPU_JOIN_NS NS_PER_MS

struct source_offcpu_sink {
    /* A stack has come: what it points to in the process can be read now. Borrowed. Returns what
     * its parts have as gil_holder: the number of the thread that it meant; 0: unknown */
    uint64_t (*left)(void *ctx, const struct sa_ev *ev);
    void (*part)(void *ctx, const struct source_offcpu_part *p);
    void *ctx;
};

/* What a window brought, beside its parts. */
struct source_offcpu_account {
    uint64_t lost; /* intervals that the ring refused */
    int64_t lost_blocked, lost_queued;
    uint64_t bpf_ns;
};

struct source_offcpu_stats {
    struct sa_swacct acct;
    uint64_t open, open_bytes;   /* intervals that are kept now */
    uint64_t parts, full, swept; /* swept: kept for threads that are gone */
    int64_t blocked, queued;     /* given */
    bool on;
};

struct source_offcpu_opts {
    const struct bpf_load *cpu; /* outlives it */
    bool all;
    uint32_t ring_bytes;
};

/* Loaded, not attached. errors: as bpf_switch_open() */
[[nodiscard]] int source_offcpu_open(struct source_offcpu **ret,
                                     const struct source_offcpu_opts *opts, struct err *err);
struct source_offcpu *source_offcpu_close(struct source_offcpu *s); /* NULL: no-op; returns NULL */

/* NULL s: no-op, as in what follows. */
[[nodiscard]] int source_offcpu_switch(struct source_offcpu *s, bool on, struct err *err);
bool source_offcpu_is_on(const struct source_offcpu *s);
void source_offcpu_limit(struct source_offcpu *s, uint32_t stacks_per_s, uint64_t min_block_ns);

/* As bpf_load_ring_fd(), -1 for NULL; bpf_load_wake(). */
int source_offcpu_ring_fd(const struct source_offcpu *s);
void source_offcpu_wake(struct source_offcpu *s, uint32_t stops);

[[nodiscard]] int source_offcpu_poll(struct source_offcpu *s, const struct source_offcpu_sink *sink,
                                     int64_t real_minus_mono, struct err *err);

/* What is off its CPU until t1 (wall clock) is given; last: short waits that were not told, too. */
[[nodiscard]] int source_offcpu_window(struct source_offcpu *s,
                                       const struct source_offcpu_sink *sink, real_ns t1,
                                       int64_t real_minus_mono, bool last,
                                       struct source_offcpu_account *ret, struct err *err);

void source_offcpu_get_stats(const struct source_offcpu *s, struct source_offcpu_stats *ret);
uint64_t source_offcpu_map_bytes(const struct source_offcpu *s);

/* ---- intervals in parts; pure, for the source and its tests --------------------------------- */

struct offparts;

struct offparts *offparts_new(uint64_t max_bytes);
struct offparts *offparts_free(struct offparts *o); /* NULL is a no-op; returns NULL */
/* All that is open is forgotten. */
void offparts_clear(struct offparts *o);

void offparts_left(struct offparts *o, const struct sa_ev *ev, uint64_t gil_holder);
void offparts_back(struct offparts *o, const struct sa_back *b,
                   const struct source_offcpu_sink *sink, int64_t real_minus_mono);
/* One of the threads that are off now, of a pass over all of them. edge: CLOCK_MONOTONIC. */
void offparts_off(struct offparts *o, const struct sa_off *off, uint64_t edge, bool last,
                  const struct source_offcpu_sink *sink, int64_t real_minus_mono);
/* The pass is over: intervals of threads that it did not meet twice are none any more. */
void offparts_pass(struct offparts *o);
void offparts_get_stats(const struct offparts *o, struct source_offcpu_stats *ret);
