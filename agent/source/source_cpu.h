// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/source/bpf_load.h"
#include "agent/source/source.h"
#include "agent/unwind/tables.h"

/*
 * CPU time of the whole machine: a tick per CPU and period, unwound in BPF. Owns the programs and
 * the unwind tables. One thread: the collector's main thread.
 *
 *     every turn    source_cpu_poll(s, &sink, &err);  then tables_publish() for what changed
 *     every window  source_cpu_account(s, t1, &account);  directly after a poll
 */
struct source_cpu;

struct source_cpu_opts {
    uint64_t period_ns;    /* 100 us to 1 s; 10,101,010 is 99 Hz */
    uint64_t table_budget; /* bytes of unwind rows; 0: 64 MiB */
    bool no_fallback_fp;   /* as in bpf_load_opts */
    bool no_bpf_loop;
    enum bpf_load_watch watch;
    /* For tests; 0: as the machine has it. */
    uint32_t ring_bytes;
    const char *online_path, *stat_path;
    bool no_user;
    uint32_t fake_cpus;
};

/* errors: as bpf_load_open() */
[[nodiscard]] int source_cpu_open(struct source_cpu **ret, const struct source_cpu_opts *opts,
                                  struct err *err);
struct source_cpu *source_cpu_close(struct source_cpu *s); /* NULL is a no-op; returns NULL */

/* For publishing processes. Borrowed. */
struct tables *source_cpu_tables(struct source_cpu *s);

/*
 * Hand every record of ticks up to now to the sink, oldest first per CPU, and take finished unwind
 * tables in. A record that stopped for want of a table asks for it. Once a second events follow the
 * CPUs that went or came. errors: negative errno of the ring or the maps; what was read was given.
 */
[[nodiscard]] int source_cpu_poll(struct source_cpu *s, const struct source_sink *sink,
                                  struct err *err);

/*
 * Close the window: what the polls since the last call gave and counted, up to the wall time t1.
 * Records of the next window never have a time before t1. Missed time is split by the kernel's idle
 * count.
 */
void source_cpu_account(struct source_cpu *s, real_ns t1, struct source_account *ret);

/* From the next tick on. Call directly after an account: a window has one period. */
[[nodiscard]] int source_cpu_set_period(struct source_cpu *s, uint64_t period_ns, struct err *err);

/* Of a record that another source took: unwind tables that its stack touched are in use, one that
 * it stopped for is wanted. */
void source_cpu_touch(struct source_cpu *s, const struct sa_ev *ev);

/* For programs beside those of ticks. Borrowed. */
const struct bpf_load *source_cpu_bpf(const struct source_cpu *s);

/* As bpf_load_ring_fd(), bpf_load_wake(). */
int source_cpu_ring_fd(const struct source_cpu *s);
void source_cpu_wake(struct source_cpu *s, uint32_t stops);

/* As bpf_load_watch(), bpf_load_watches(), bpf_load_watch_full(). */
[[nodiscard]] int source_cpu_watch(struct source_cpu *s, uint32_t tgid, bool on, struct err *err);
bool source_cpu_watches(const struct source_cpu *s, uint32_t tgid);
uint64_t source_cpu_watch_full(const struct source_cpu *s);

/* Bytes of all maps and tables, as the kernel counts them. */
uint64_t source_cpu_map_bytes(const struct source_cpu *s);
