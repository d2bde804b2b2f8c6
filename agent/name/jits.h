// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Perf maps (jitmap.h) of the processes in whose anonymous memory code was seen. Each is read when
 * such a process is first seen, for it may be gone at the end of the interval, and again when an
 * address misses and the file grew: once a second at most, and for a twentieth of the time at most.
 * Thread: owner only (the batch thread).
 */
struct jits;

struct jits_target {
    uint64_t serial; /* of struct proc */
    uint32_t host_pid;
    uint64_t pid; /* in its namespace */
};

enum jits_why { /* why a process has no map */
    JITS_NONE,
    JITS_LINK,
    JITS_NO_FILE, /* no regular file */
    JITS_OWNER,
    JITS_FAILED,
    JITS_N,
};
const char *jits_why_name(enum jits_why w); /* "none", "link", ... Static */

struct jits_stats {
    uint64_t maps, entries, bytes; /* held now */
    uint64_t reads, bad_lines, cut;
    uint64_t resolved, unresolved;
    uint64_t refused[JITS_N]; /* each look */
};

struct jits *jits_new(const char *proc, bool drop_python);
struct jits *jits_free(struct jits *j); /* NULL is a no-op; returns NULL */

void jits_see(struct jits *j, const struct jits_target *s, int64_t now);

/* The function at an address of the process; part of the map until the next call. */
bool jits_find(struct jits *j, uint64_t serial, uint64_t addr, int64_t now, struct str *ret);

/* Maps that were not asked for a minute go. now: CLOCK_MONOTONIC. */
void jits_tick(struct jits *j, int64_t now);

void jits_get_stats(const struct jits *j, struct jits_stats *ret);
