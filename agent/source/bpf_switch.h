// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/bpf/switch.h"
#include "agent/source/bpf_load.h"
#include "base/err.h"

/*
 * The programs of context switches (bpf/switch.bpf.c): loaded beside those of ticks, whose maps of
 * processes and unwind tables they read; attached and detached as often as wanted. One owner, one
 * thread. Closing takes all of it away.
 */
struct bpf_switch;

struct bpf_switch_opts {
    const struct bpf_load *cpu; /* outlives it */
    bool all;                   /* every process; else those with SA_P_SWITCHES, or watched ones */
    uint32_t ring_bytes;        /* power of two; 0: by CPUs, >= 1 MiB */
};

/* errors: -ENOTSUP a kernel without one of the tracepoints, task storage or iterators; else what
 * the load said */
[[nodiscard]] int bpf_switch_open(struct bpf_switch **ret, const struct bpf_switch_opts *opts,
                                  struct err *err);
struct bpf_switch *bpf_switch_close(struct bpf_switch *b); /* NULL is a no-op; returns NULL */

/* Does the kernel have what is needed? By its types, without a load. Any thread. */
bool bpf_switch_possible(void);

/* From now on, or no longer. What a thread that is off the CPU does is seen once it has run. */
[[nodiscard]] int bpf_switch_attach(struct bpf_switch *b, bool on, struct err *err);

/* Stacks for each CPU and second, and the shortest interval that is told by itself. */
void bpf_switch_limit(struct bpf_switch *b, uint32_t stacks_per_s, uint64_t min_block_ns);

/* As bpf_load_ring_fd(), bpf_load_wake(). */
int bpf_switch_ring_fd(const struct bpf_switch *b);
void bpf_switch_wake(struct bpf_switch *b, uint32_t stops);

struct bpf_switch_sink {
    void (*left)(void *ctx, const struct sa_ev *ev); /* its words are checked */
    void (*back)(void *ctx, const struct sa_back *back);
    void (*off)(void *ctx, const struct sa_off *off); /* of bpf_switch_threads() */
    void *ctx;
};

/* Records since the last call, in their order; borrowed during the call. How many, or negative
 * errno. */
int bpf_switch_drain(struct bpf_switch *b, const struct bpf_switch_sink *sink);

/* Every tracked thread that is off its CPU now, or has short waits that were not told. 0, or
 * negative errno. */
int bpf_switch_threads(struct bpf_switch *b, const struct bpf_switch_sink *sink);

/* The sum over CPUs. 0, or negative errno. */
int bpf_switch_acct(const struct bpf_switch *b, struct sa_swacct *ret);

/* Bytes of its maps, chunks of the ring included; the states of threads are not in it. */
uint64_t bpf_switch_map_bytes(const struct bpf_switch *b);
