// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "base/err.h"

/*
 * What the process may use, and how that is cut into pools so that it adds up. Bytes. Start-up.
 */
struct memory_plan {
    uint64_t total;  /* M */
    uint64_t ingest; /* bodies, arenas, the queue before the journal: lesser of 384 MiB and M/4 */
    uint64_t head;   /* M/4 */
    uint64_t query;  /* M/4, all queries together */
    uint64_t dict;   /* M/8: dictionaries and tries */
    uint64_t cache;  /* lesser of 256 MiB and M/16 */
    /* the rest: connections, SQLite, static files, code */
};

/*
 * wanted   limits.memory; 0: 80 % of the cgroup's limit where there is one, else half of the RAM
 * errors   -ENOMEM less than 256 MiB, naming the figure and the setting
 */
[[nodiscard]] int memory_plan_make(uint64_t wanted, struct memory_plan *ret, struct err *err);

/* The lowest memory.max from the cgroup of /proc/self/cgroup (its text) up to root; 0: none.
 * sysfs is where cgroup2 is mounted. For tests: any directory. */
uint64_t memory_cgroup_limit(const char *sysfs, const char *proc_self_cgroup);
