// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/proc/proc.h"

/*
 * The executable mappings of one process (procmaps.c), for proc.c. Sorted, without overlaps; each
 * holds its reference to the binary. Main thread.
 */
struct procmaps_source { /* of a line in /proc/PID/maps, beside proc_map */
    uint64_t ino, path_hash;
};

struct procmaps {
    struct proc_map *map;
    struct procmaps_source *source;
    uint32_t n, room;
    struct proc_stats *stats; /* where they are counted; NULL: none were entered yet */
    /* so that a process that maps without end costs no more than its share */
    int64_t pause_ns; /* after the last reading: so that it takes 2 % of the time at most */
    int64_t second;   /* in which n_event were entered */
    uint32_t n_event;
    bool behind; /* further ones were passed over: it must be read */
};

/* Whose they are, and where it is counted. */
struct procmaps_of {
    const char *proc; /* "/proc" */
    uint32_t pid;
    struct proc_stats *stats;
};

/* /proc/PID/maps, as it is now; what is the same mapping keeps its binary. true: it changed. */
bool procmaps_read(struct procmaps *s, const struct procmaps_of *of);

/* One mapping that a record tells of; what it overlaps is cut. false: none of ours, or s->behind:
 * too many of this process in this second. */
bool procmaps_enter(struct procmaps *s, const struct procmaps_of *of,
                    const struct perfmap_event *ev);

/* Those of the parent, into an empty set. */
void procmaps_copy(struct procmaps *s, const struct procmaps *from, struct proc_stats *st);

void procmaps_clear(struct procmaps *s); /* memory kept */
void procmaps_free(struct procmaps *s);

/* What is known of p, as if it had been read now; its texts are borrowed. */
struct procread_facts proc_facts_of(const struct proc *p);
