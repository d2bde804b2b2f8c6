// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/source/source_user.h"
#include "agent/unwind/threads.h"
#include "agent/unwind/unwind_native.h"

/* Shared by source_user.c (what both do) and its two ways to take samples. */
struct user_perf;
struct user_stops;

struct held; /* a sample that waits for a table */

struct source_user {
    enum source_user_kind kind;
    uint64_t period_ns;   /* in force */
    uint64_t want_period; /* from the next window on; 0: the same */
    bool finished;
    struct proc_table *procs;
    struct unwind_native *unwind;
    struct py *py;
    uint32_t stack_bytes;
    struct user_perf *perf;
    struct user_stops *stops;
    const struct source_sink *sink; /* during a poll */
    void (*tap)(void *ctx, const struct user_sample *u, const struct sa_ev *ev);
    void *tap_ctx;
    int64_t real_minus_mono;
    int64_t now; /* CLOCK_MONOTONIC, of this poll */
    struct held *held, *last_held;
    uint32_t n_held;
    /* of the window */
    real_ns t0;
    uint64_t got_n, got_ns, filtered_ns, lost_n, turns_missed, pause_ns;
    uint64_t stop[16];
    /* of the run */
    struct source_user_stats stats;
    uint64_t ticks_ns, told_hidden, told_counter;
    uint64_t used_ns; /* by the whole command, once it has ended */
};

struct user_sample {
    uint32_t pid, tid, cpu;
    int64_t t; /* CLOCK_MONOTONIC */
    uint64_t weight;
    char comm[16];
    bool is_32; /* in 32-bit mode: it has no chain here */
    struct unwind_regs regs;
    struct stack_copy stack; /* of the caller: read during the call, copied if it is held */
};

/* Its chain, borrowed until the next one. */
struct sa_ev *user_unwind(struct source_user *s, const struct user_sample *u);

/* Gives it to the sink, now or when the table is built that its chain ends for. */
void user_sample(struct source_user *s, const struct user_sample *u, struct sa_ev *ev);

/* Mappings that changed up to now, into the tables. */
void user_publish(struct source_user *s);

/* ---- perf (source_user_perf.c) -------------------------------------------------------------- */

[[nodiscard]] int user_perf_open(struct source_user *s, const struct source_user_opts *o,
                                 struct err *err);
void user_perf_close(struct user_perf *p); /* NULL is a no-op */
void user_perf_end(struct user_perf *p);   /* no more ticks, counters stand */
[[nodiscard]] int user_perf_drain(struct source_user *s, struct err *err);
uint64_t user_perf_counter(const struct user_perf *p); /* ns of all events so far */
uint32_t user_perf_width(const struct user_perf *p);

/* ---- stops (source_user_stops.c) ------------------------------------------------------------- */

[[nodiscard]] int user_stops_open(struct source_user *s, const struct source_user_opts *o,
                                  struct err *err);
void user_stops_end(struct user_stops *p); /* whoever was asked to stop goes on; NULL is a no-op */
void user_stops_close(struct user_stops *p); /* NULL is a no-op */
void user_stops_turn(struct source_user *s);
void user_stops_clocks(struct source_user *s);
