// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/binary.h"
#include "base/sample.h"

/*
 * Processes and their executable mappings, kept by perf records (perfmap.c) and /proc scans.
 * Owner: the collector's main thread; nothing here is locked. A struct proc stays valid 60 s after
 * its last thread died, so that late records find it.
 */
struct proc_map {
    uint64_t start, end, offset; /* offset in the file, bytes */
    uint64_t bias;               /* start - ELF address at start */
    struct binary *bin;          /* NULL: anonymous or not openable; a reference is held */
    const char *why;             /* bin NULL: static text, "anonymous", "open: Permission denied", ... */
};

struct proc {
    uint32_t tgid; /* in the initial pid namespace */
    struct target_key key;
    struct str exe, cmdline, comm, cgroup, container;
    struct str service; /* STRATA_SERVICE, unit, or exe name: agent-cpu.md 8 */
    uint32_t flags;     /* enum target_flag */
    uint32_t n_map;
    const struct proc_map *map; /* sorted by start */
    uint32_t gen;       /* rises at each change that must be published */
    bool dead;
};

struct proc_table;

/* By pid of the initial namespace; NULL if unknown. Borrowed. */
struct proc *proc_find(struct proc_table *t, uint32_t tgid);
