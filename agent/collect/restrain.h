// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * The agent restrains itself. Once a window it looks at what it cost, and says which period the
 * ticks should have: that of the settings, or one of 99, 49, 19 Hz below it. Two windows above the
 * budget, or two in a row whose ring refused records: one step down. Six windows below half of it,
 * where the faster rate would still fit: one step back; twice as many each time that a step back
 * did not last a minute. Where context switches cost a third of it or more, and where their ring
 * refuses records, they give way first, and come back last: four steps halve the stacks of time off
 * the CPU, further ones double the shortest interval. Memory goes the same way in levels.
 * Pure; owner only.
 */
enum {
    RESTRAIN_STEPS = 4,
    RESTRAIN_OFF = 10,
    RESTRAIN_TEXT = 160
};

struct restrain_conf {
    uint64_t period_ns;      /* as asked for */
    uint64_t cpu_percent;    /* of one CPU, for each 16 CPUs or part of them */
    uint32_t cpus;           /* of the machine */
    uint64_t memory;         /* bytes; 0: 120 MiB + 0.3 MiB for each CPU */
    uint32_t settle_windows; /* not judged at the start: everything is read then; 0: 10 */
};

struct restrain_seen {
    int64_t window_ns;         /* passed since the last look */
    uint64_t cpu_ns;           /* process and BPF, in it */
    uint64_t ring_full;        /* records refused in it */
    uint64_t off_ns, off_lost; /* of cpu_ns, the programs of context switches; refused of theirs */
    uint64_t memory;           /* bytes, now */
};

enum restrain_memory {
    RESTRAIN_MEMORY_OK = 0,
    RESTRAIN_MEMORY_NAMES,  /* symbol caches shrink */
    RESTRAIN_MEMORY_TABLES, /* and unwind tables are evicted */
    RESTRAIN_MEMORY_REFUSE, /* and no new table is built */
};

struct restrain {
    struct restrain_conf conf;
    uint64_t period[RESTRAIN_STEPS];
    uint32_t n_period, at;
    uint32_t off_level; /* steps taken with time off the CPU, up to RESTRAIN_OFF */
    uint32_t settle, over, under, ring, off_ring, memory_over, memory_under;
    uint32_t patience, since_back; /* windows */
    enum restrain_memory memory;
    uint64_t budget_ns; /* a second */
    uint64_t cpu_ns;    /* a second, in the last window */
    uint64_t steps;     /* taken, either way */
};

void restrain_init(struct restrain *r, const struct restrain_conf *c);

/* True if something changed, with the figure that caused it as logfmt. */
bool restrain_look(struct restrain *r, const struct restrain_seen *s,
                   char text[static RESTRAIN_TEXT]);

static inline uint64_t restrain_period(const struct restrain *r)
{
    return r->period[r->at];
}
