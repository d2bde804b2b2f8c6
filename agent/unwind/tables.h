// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/bpf/cpu.h"
#include "agent/file/binary.h"
#include "agent/proc/proc.h"
#include "base/err.h"

/*
 * Unwind tables in BPF maps: built from .eh_frame per binary on first touch, by a thread of its
 * own, shared by all processes that map it, bounded by a budget. Main thread calls all of these;
 * none blocks. Order of writes: rows, page index, mappings, process; a replaced range, an evicted
 * table's pages and rows are used again 1 s later at the earliest, because a program may still be
 * reading them.
 */
struct tables;

/* The maps. Arrays are memory-mapped; the two hashes and new chunks go through calls, so that tests
 * need no kernel. Each call returns 0 or a negative errno. */
struct tables_io {
    struct sa_mapent *mapents; /* n_mapents, n_pgidx, n_rules entries; entry 0 is not used */
    struct sa_pg *pgidx;
    struct sa_rule *rules;
    uint32_t n_mapents, n_pgidx, n_rules, n_chunks;
    void *ctx;
    int (*proc_set)(void *ctx, const struct sa_proc *p);
    int (*proc_del)(void *ctx, uint32_t tgid);
    /* New row arrays first .. first + n - 1, readable by the programs on return; waits for RCU.
     * Called by the building thread only. */
    int (*chunk_new)(void *ctx, uint32_t first, uint32_t n, struct sa_row **ret);
};

struct tables_opts {
    uint64_t budget;  /* bytes of rows, 256 KiB each chunk; 0: 64 MiB */
    int64_t reuse_ns; /* how long a replaced range rests; 0: 1 s. Tests set it shorter */
};

struct tables_stats {
    uint64_t built, failed, evicted, refused, bytes, queue_full, procs, mapents;
    uint64_t no_room;          /* times that a process's mappings found none: it is noproc */
    uint64_t known, forgotten; /* tables, whatever their state; those that nobody maps any more */
    uint64_t failed_why[8];    /* enum ehtab_fail */
    uint64_t build_ns;         /* spent by the building thread, all tables */
    uint64_t rules, pages;     /* in use */
};

/* Starts the building thread. errors: -ENOMEM, -EAGAIN */
[[nodiscard]] int tables_open(struct tables **ret, const struct tables_io *io,
                              const struct tables_opts *opts, struct err *err);
struct tables *tables_close(struct tables *t); /* NULL is a no-op; returns NULL */

/* Publish the mappings of p (all of them: a new range replaces the old). Coalesce: call once per
 * drain for each process that changed. Mappings beyond SA_PROC_MAPS are left out. One with many may
 * be published up to 0.2 s later. errors: -ENOSPC maps full: p has no entry, its samples are
 * noproc, and each tables_tick() tries again */
[[nodiscard]] int tables_publish(struct tables *t, const struct proc *p, struct err *err);

/* The process is gone: its range may be reused 1 s later. */
void tables_unpublish(struct tables *t, uint32_t tgid);

/* Time of this process is counted as filtered, without records (or no longer); kept until it is
 * unpublished. */
[[nodiscard]] int tables_exclude(struct tables *t, uint32_t tgid, bool excluded, struct err *err);

/* Its time off the CPU is profiled (or no longer), if it is published; kept until it is
 * unpublished. errors: as tables_publish() */
[[nodiscard]] int tables_switches(struct tables *t, uint32_t tgid, bool on, struct err *err);

/* Where its Python frames are (ver 0: none), of a process that is published; kept until it is
 * unpublished. errors: as tables_publish() */
[[nodiscard]] int tables_python(struct tables *t, uint32_t tgid, const struct sa_py *py,
                                struct err *err);

/* A sample stopped at this binary for want of a table: queues it once, before those that
 * tables_publish() asks for by itself because they are always needed (main executable, dynamic
 * loader, libc, vDSO). Failures are remembered by build id. */
void tables_want(struct tables *t, struct binary *b);

/* A sample touched this binary: eviction takes the one whose last touch is oldest. */
void tables_seen(struct tables *t, uint32_t bin);

/* Every drain: take finished tables in, tell the processes that map them, reuse what is due. */
void tables_tick(struct tables *t);

/* Jobs queued or being built: 0 when nothing is under way. */
uint32_t tables_pending(const struct tables *t);

/* A process is not published as it is; each tick tries. */
bool tables_again(const struct tables *t);

/* The agent is short of memory: nothing is added to the rows' memory, a new table takes the place
 * of an old one; or no table is built that is not there. */
enum tables_room {
    TABLES_ALL = 0,
    TABLES_NO_GROWTH,
    TABLES_REFUSE,
};
void tables_restrain(struct tables *t, enum tables_room room);

void tables_get_stats(const struct tables *t, struct tables_stats *ret);
