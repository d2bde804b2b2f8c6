// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "agent/binary.h"
#include "agent/proc.h"
#include "base/err.h"

/*
 * Unwind tables in BPF maps: built from .eh_frame per binary on first touch, by a thread of its
 * own, shared by all processes that map it, bounded by a budget. Main thread calls all of these;
 * none blocks.
 */
struct tables;

struct tables_stats {
    uint64_t built, failed, evicted, bytes, queue_full, procs, mapents;
    uint64_t failed_why[8]; /* enum ehtab_fail */
};

/* Publish the mappings of p (all of them; ranges are immutable, a new one replaces the old) under
 * its gen. Coalesce: call once per drain for each process that changed. errors: -ENOSPC maps full */
[[nodiscard]] int tables_publish(struct tables *t, const struct proc *p, struct err *err);

/* The process is gone: its range may be reused 1 s later. */
void tables_unpublish(struct tables *t, uint32_t tgid);

/* A sample stopped at this binary for want of a table (or it is one that is always wanted). Queues
 * it once. Failures are remembered by build id. */
void tables_want(struct tables *t, struct binary *b);

/* Every drain: take finished tables in, republish the processes that map them, reuse what is due. */
void tables_tick(struct tables *t);

void tables_get_stats(const struct tables *t, struct tables_stats *ret);
