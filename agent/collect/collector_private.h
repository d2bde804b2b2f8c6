// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/apart/apart.h"
#include "agent/collect/collector.h"
#include "agent/collect/restrain.h"
#include "agent/proc/facts.h"
#include "agent/python/py.h"
#include "agent/source/clock.h"
#include "agent/source/crosscheck.h"
#include "agent/source/source_cpu.h"
#include "agent/source/source_offcpu.h"
#include "agent/source/source_step.h"
#include "agent/source/stackagg.h"

/* Shared by collector.c (the loop) and collector_say.c (metrics, events, status). */
#define COLLECTOR_MAX_WINDOWS 64
#define COLLECTOR_MAX_EVENTS  32

struct collector_rights { /* of one of our processes, as the status tells them */
    pid_t pid;
    int64_t since, at; /* it was first seen; looked at. CLOCK_MONOTONIC */
    char text[APART_RIGHTS];
};

struct collector {
    struct collector_conf conf;
    struct perfmap *perfmap;
    struct proc_table *procs;
    struct source_cpu *cpu;
    struct source_step *steps; /* NULL: switched off, or refused */
    struct py *py;             /* NULL: switched off */
    struct facts *facts;       /* NULL: no reader apart */
    struct collector_off *off;
    struct stackagg *fold;
    struct source_sink sink;
    int epoll, quiet, signals; /* quiet: signals alone */
    bool left;                 /* records too young to be followed */
    int64_t followed;          /* CLOCK_MONOTONIC */
    /* collector_wait.c; times are CLOCK_MONOTONIC */
    bool wanted;                            /* a record of this drain lacks a mapping or table */
    int64_t deaf;                           /* since when such records do not wake; 0: they do */
    int64_t drained, next_short, next_turn; /* the last drain; the turns behind it */
    int64_t ring_due, short_until;
    uint64_t py_reads; /* py_reads() at the last drain */
    bool stopping, first_sent;
    int64_t now; /* CLOCK_MONOTONIC, of this drain */
    real_ns next_window;
    int64_t started, first_sample; /* CLOCK_MONOTONIC; first_sample 0: none yet */
    int64_t polled_cpus, swept;
    struct clock_watch clocks;
    bool stepped, cut_now; /* the batch ends with this window */
    /* collector_care.c */
    struct restrain restrain;
    struct crosscheck *cross;
    int64_t cared, crosschecked; /* CLOCK_MONOTONIC */
    uint64_t cpu_before, memory;
    int64_t interval_ns; /* of batches, now */
    enum batchfold_level fold_told;
    char told_spool[160];
    struct stackagg_window *window[COLLECTOR_MAX_WINDOWS];
    uint32_t n_window;
    uint64_t words; /* in them */
    struct batchmake_event event[COLLECTOR_MAX_EVENTS];
    uint32_t n_event;
    char told_kernel[96], told_upload[160];
    bool told_cgroupns;
    struct collector_rights rights[4];
    char step_news[SOURCE_STEP_NEWS];
    struct collector_stats stats;
};

/* What processes did, up to a millisecond ago, into the maps. */
void collector_follow(struct collector *c);

/* collector_wait.c. Open: first signals, then the kernel's records of processes, then the sources.
 * errors: errno of epoll */
[[nodiscard]] int collector_wait_open(struct collector *c, struct err *err);
[[nodiscard]] int collector_wait_processes(struct collector *c, struct err *err);
[[nodiscard]] int collector_wait_rings(struct collector *c, struct err *err);
void collector_wait_close(struct collector *c);
/* Until the next turn, or a signal (c->stopping); follows processes meanwhile. */
[[nodiscard]] int collector_wait(struct collector *c, struct err *err);
/* At the end of each drain. */
void collector_wait_drained(struct collector *c);
/* Of a record: does it lack what may be had? */
bool collector_wants(const struct sa_ev *ev);

/* Events of the next batch; text is logfmt. */
[[gnu::format(printf, 3, 4)]] void collector_event(struct collector *c, const char *kind,
                                                   const char *fmt, ...);

/* What the start found, as events. */
void collector_tell_check(struct collector *c);

/* Once, at the end of open; and once a window, directly after its account. */
void collector_care_open(struct collector *c);
void collector_care(struct collector *c, const struct source_account *a,
                    const struct stackagg_off_account *off);

/* collector_off.c: time off the CPU. Open: after the processes are published; without its programs
 * all else goes on. errors: the settings */
[[nodiscard]] int collector_off_open(struct collector *c, struct err *err);
void collector_off_close(struct collector *c);
struct source_offcpu *collector_off_source(struct collector *c); /* NULL: none */
/* As the restraint says. */
void collector_off_limit(struct collector *c);
[[nodiscard]] int collector_off_poll(struct collector *c, struct err *err);
/* Before the window is taken. last: no other will follow. */
void collector_off_window(struct collector *c, real_ns t1, bool last,
                          struct stackagg_off_account *ret);

struct collector_off_stats {
    struct source_offcpu_stats source;
    uint64_t tracked, map_bytes;
    int64_t unknown_wait_ns; /* of Pythons, blocked without a stack: perhaps for the lock */
};
void collector_off_get_stats(const struct collector *c, struct collector_off_stats *ret);

/* Metrics of the next batch: heap, for batcher_put(). */
struct batchmake_metric *collector_metrics(struct collector *c, real_ns t, uint32_t *ret_n);
