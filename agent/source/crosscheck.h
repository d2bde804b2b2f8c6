// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Per process and minute: the CPU time that its samples weigh against the kernel's own clock of it.
 * Both are cumulative. A sum of n samples errs like a binomial, so outside max(5 %, 5 / sqrt(n)) of
 * more than 200 samples is said; but not what ticks that were counted as lost explain.
 * Owner only.
 */
struct crosscheck;

struct crosscheck *crosscheck_new(void);
struct crosscheck *crosscheck_free(struct crosscheck *c); /* NULL is a no-op; returns NULL */

enum {
    CROSSCHECK_TEXT = 160
};

struct crosscheck_seen {
    uint64_t serial;     /* of the process */
    uint32_t pid;        /* for the text */
    int64_t clock_ns;    /* by the kernel */
    int64_t profiled_ns; /* by samples */
};

/* A new minute: what is not looked at in it is forgotten. lost_ns: cumulative, all processes.
 * period_ns: the longest of this minute. */
void crosscheck_begin(struct crosscheck *c, int64_t lost_ns, int64_t period_ns);

/* Once for each process. False: they do not agree, with both sides in text. */
bool crosscheck_look(struct crosscheck *c, const struct crosscheck_seen *s,
                     char text[static CROSSCHECK_TEXT]);
