// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/file/binary.h"
#include "agent/file/perfmap.h"
#include "agent/proc/procread.h"
#include "agent/proc/rules.h"
#include "base/sample.h"

/*
 * Processes and their executable mappings, kept by perf records (perfmap.c) and /proc scans.
 * Owner: the collector's main thread; nothing here is locked. A struct proc stays valid 60 s after
 * its last thread died (2 s where thousands die), so that late records find it. Times are
 * CLOCK_MONOTONIC nanoseconds.
 */
struct proc_map {
    uint64_t start, end, offset; /* offset in the file, bytes */
    uint64_t bias;               /* start - ELF address at start */
    struct binary *bin;          /* NULL: anonymous or not openable; a reference is held */
    const char *why; /* bin NULL: static text, "anonymous", "open: Permission denied", ... */
};

struct proc {
    uint32_t tgid; /* in the initial pid namespace */
    struct target_key key;
    struct str exe, cmdline, comm, cgroup, container, pod;
    struct str service; /* rule, STRATA_SERVICE, unit, script or exe name; at most max_services */
    uint32_t flags;     /* enum target_flag */
    uint32_t n_map;
    const struct proc_map *map; /* sorted by start */
    uint32_t gen;               /* rises at each change that must be published */
    bool dead;
    bool kthread;
    uint32_t execs;  /* programs that it ran beside the first that we saw */
    uint64_t serial; /* one number per process life in this run, from 1 */
    uint32_t facts;  /* rises when a text above, the environment or flags change */
    uint32_t n_env, n_label;
    const struct environ_var *env; /* of the allow-list */
    struct label *label;           /* service first; see who.h */
    bool admitted;                 /* private */
    bool dropped;       /* by a rule or [select]: its time is filtered, nothing is sent */
    uint64_t cgroup_id; /* of its last record; 0: none yet */
    struct str masked, own_service; /* command line for rules; service before them */
    int64_t profiled_ns;            /* for its user: weight seen so far */
    int64_t unknown_wait_ns;        /* for its user: of a Python, blocked without a stack */
    int64_t jit_told; /* for its user: when the batch thread was told of its anonymous code */
};

struct proc_table;

struct proc_conf {
    const char *proc; /* "/proc" */
    uint8_t host[16]; /* of every target_key */
    real_ns boot;     /* procread_boot_time() */
    int64_t tick_ns;  /* of start times in stat: 10 ms with the usual CLK_TCK of 100 */
    enum procread_cmdline cmdline;
    uint32_t max_services;           /* 0: 500; further ones become "other" */
    const struct rules *rules;       /* NULL: none */
    const struct environ_want *want; /* NULL: what environ_init() names */
};

struct proc_stats {
    uint64_t processes, maps;       /* alive now */
    uint64_t maps_held;             /* of the dead, too */
    uint64_t lost, rescans, unseen; /* perf records lost; /proc/PID/maps read again; gone before */
    uint64_t maps_truncated, services_folded, open_failed, table_full;
    uint64_t cgroup_changes, foreign_cgroups; /* paths of another cgroup namespace: "/../..." */
    struct labels_counts labels;
};

#define PROC_MAX       16384
#define PROC_MAX_MAPS  4096   /* executable ones, of one process */
#define PROC_ALL_MAPS  262144 /* of all, of the dead that linger too */
#define PROC_LINGER_NS (INT64_C(60) * 1000000000)

struct proc_table *proc_new(const struct proc_conf *c);
struct proc_table *proc_free(struct proc_table *t); /* NULL is a no-op; returns NULL */

/* All of /proc, after the rings were opened and before their records are applied. */
void proc_scan(struct proc_table *t, int64_t now);

/* One record of the kernel; in the order of time. */
void proc_event(struct proc_table *t, const struct perfmap_event *ev);

/* Every drain: what records asked for is read, rescans that are due, deaths, forgetting. */
void proc_tick(struct proc_table *t, int64_t now);

/* When proc_tick() has something to do next; INT64_MIN: a process waits to be published. */
int64_t proc_due(const struct proc_table *t);

/* By pid of the initial namespace; NULL if unknown. Borrowed. */
struct proc *proc_find(struct proc_table *t, uint32_t tgid);

/* Whose pid it was at that time; reads /proc if nobody's yet; NULL if it cannot be told. */
struct proc *proc_find_at(struct proc_table *t, uint32_t tgid, int64_t when, int64_t now);

/* A stack stopped for want of a mapping: its maps are read again, with back-off. */
void proc_missed(struct proc_table *t, struct proc *p, int64_t now);

/*
 * Before an observation of p is booked. Its service is admitted or becomes "other" (only services
 * that something is seen of count). cgroup_id: where the record says that it runs (cgroup v2; 0
 * unknown): when that is another one than in the record before, its path is read again.
 */
void proc_seen(struct proc_table *t, struct proc *p, uint64_t cgroup_id);

/* Where no record tells of it: it has called exec, so everything is read again, at once. */
void proc_reread(struct proc_table *t, struct proc *p, int64_t now);

/* The mapping that holds an address, or NULL. */
const struct proc_map *proc_map_find(const struct proc *p, uint64_t addr);

/* Processes whose mappings changed since they were last returned; NULL when there is none left. */
struct proc *proc_next_changed(struct proc_table *t);

/* Processes that died, once each, 1 s after: time to unpublish. false when none is left. */
bool proc_next_gone(struct proc_table *t, uint32_t *ret_tgid);

/* Start with *pos NULL; walks the living ones. */
struct proc *proc_next(struct proc_table *t, struct proc *pos);

void proc_get_stats(const struct proc_table *t, struct proc_stats *ret);
