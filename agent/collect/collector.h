// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/collect/check.h"
#include "agent/collect/conf_table.h"
#include "agent/proc/ids.h"
#include "agent/proc/proc.h"
#include "agent/send/batcher.h"
#include "agent/send/spool.h"
#include "agent/send/upload.h"
#include "agent/source/bpf_load.h"
#include "base/err.h"

/*
 * The collector: drains the kernel's rings, follows processes, folds stacks, closes a
 * window every second and hands a batch on every interval. Thread: one, the main one.
 */
struct collector;

struct collector_conf {
    const struct agent_conf *conf;
    const struct ids *ids;
    const char *state_dir;
    const char *status_file; /* NULL: none */
    struct batcher *batcher;
    struct spool *spool;
    struct upload *upload;
    int64_t interval_ns; /* of batches */
    bool loopback;       /* the server is on this machine: no phase */
    bool no_bpf_loop;    /* for tests */
    /* What was found at the start: rows that are not ok become events and stand in the status.
     * Borrowed for the collector's life; NULL: none. */
    const struct check *check;
    /* One capture, of some processes (record.c); NULL: the whole machine, until a signal. spool and
     * upload may then be NULL. */
    const struct collector_capture *capture;
};

struct collector_capture {
    enum bpf_load_watch watch;
    /* Every turn, at most 50 ms apart; false ends the run. Signals are the caller's. */
    bool (*turn)(void *ctx);
    void *ctx;
    uint32_t types; /* 1 << PTYPE_...: beside cpu of gil_held, offcpu, runq, gil_wait */
};

/* Rings, /proc, BPF, in this order. errors: as perfmap_open() and source_cpu_open() */
[[nodiscard]] int collector_open(struct collector **ret, const struct collector_conf *conf,
                                 struct err *err);
struct collector *collector_close(struct collector *c); /* NULL is a no-op; returns NULL */

/* Until SIGINT or SIGTERM, which must be blocked; then a last drain, whose batch is handed on.
 * errors: what the rings say, when they can be read no more */
[[nodiscard]] int collector_run(struct collector *c, struct err *err);

/* Of a capture: build the unwind tables that a program will need at once, so that its first stacks
 * are whole: its own, the loader's, libc's. Waits for them, at most 0.3 s. exe: its file, or NULL
 */
void collector_prepare(struct collector *c, const char *exe);

/* Of a capture: watch a process, or no longer. errors: as bpf_load_watch() */
[[nodiscard]] int collector_watch(struct collector *c, uint32_t tgid, bool on, struct err *err);
/* Children that found no room to be watched. */
uint64_t collector_watch_full(const struct collector *c);

/* Of a capture: another rate from now on. The window so far is closed, and its batch handed on:
 * both have one rate. From within turn(), or before the run. errors: as source_cpu_set_period() */
[[nodiscard]] int collector_set_period(struct collector *c, uint64_t period_ns, struct err *err);

/* The processes. Borrowed; main thread. */
struct proc_table *collector_procs(struct collector *c);

/* What the collector counts; everything of it is in the status file and in the metrics agent_*. */
struct collector_stats {
    uint64_t windows, batches, samples, identity_violations, clock_steps, suspends, cpu_mismatches,
        events_dropped;
    uint64_t sampled; /* processes with a sample */
    int64_t hidden;   /* of a source without rights: CPU time in kernel mode */
    int64_t paused;   /* the same: how long threads stood still for it */
    uint64_t stop[16];
    uint64_t kstack_err, fp_used, table_full;
    int64_t weight, busy, idle, jitter;
    struct {
        uint64_t n;
        int64_t weight;
    } missed, missed_idle, ring_full;
    uint64_t received, filtered;
    uint64_t bpf_ns;
};
void collector_get_stats(const struct collector *c, struct collector_stats *ret);

/* The status file, if one is asked for. state: "running", "stopped". */
void collector_write_status(struct collector *c, const char *state);
