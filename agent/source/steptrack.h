// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/proc/labels.h"
#include "base/str.h"

/*
 * From calls (mark, begin, end) to steps. Pure bookkeeping: no clock, no files. Owner only.
 *
 * A mark ends the step that its thread opened by its last mark of that name and begins the next one
 * at the same instant. An end closes the open step of (target, name, number), whoever began it; the
 * thread that began it is the step's. Each thread counts for itself (STEPTRACK_NEXT), and from the
 * second thread of a name on its steps carry the attribute "thread".
 */
struct steptrack;

#define STEPTRACK_NEXT  UINT64_MAX
#define STEPTRACK_OPEN  64   /* of one target, open marks too */
#define STEPTRACK_NAMES 64   /* of one service; beyond them "other" */
#define STEPTRACK_SEQS  1024 /* (name, thread) of one target that are remembered */
#define STEPTRACK_ATTRS 8

enum steptrack_what {
    STEPTRACK_MARK = 0,
    STEPTRACK_BEGIN = 1,
    STEPTRACK_END = 2,
};

enum steptrack_drop {
    STEPTRACK_UNCLOSED = 0, /* begun twice (the first is closed there), or too many were open */
    STEPTRACK_UNOPENED,     /* end without a begin */
    STEPTRACK_OPEN_AT_EXIT, /* or at exec */
    STEPTRACK_RATE,
    STEPTRACK_RING_FULL,
    STEPTRACK_BAD_TEXT, /* name too long, unreadable, no UTF-8; or no such call */
    STEPTRACK_N_DROP
};
const char *steptrack_drop_name(enum steptrack_drop d); /* "unclosed", ... */

struct steptrack_call {
    uint64_t target;  /* one process life */
    uint64_t service; /* hash of its service's name */
    uint64_t program; /* a number that changes when the process runs another one */
    uint32_t tid;
    int64_t t;     /* ns, a clock that is never set */
    int64_t real;  /* the same instant on the wall clock */
    uint32_t what; /* enum steptrack_what */
    uint64_t number;
    struct str name; /* "": "step" */
    struct str attr; /* "k=v,k=v" */
    struct str comm; /* the thread's */
};

/* A finished step; texts are borrowed during the call. t1 > t0, wall clock: those of its two calls,
 * unless the clock was set between them; then t1 is t0 and what passed. */
struct steptrack_step {
    uint64_t target;
    uint32_t tid;
    struct str name;
    uint64_t number;
    int64_t t0, t1;
    uint32_t n_label;
    const struct label *label;
};

typedef void steptrack_fn(void *ctx, const struct steptrack_step *s);

struct steptrack *steptrack_new(steptrack_fn *fn, void *ctx);
struct steptrack *steptrack_free(struct steptrack *t); /* NULL is a no-op; returns NULL */

/* Returns whether this thread is the first that made a name be of several threads. */
bool steptrack_call(struct steptrack *t, const struct steptrack_call *c);

/* The process is gone: what is open is dropped. */
void steptrack_gone(struct steptrack *t, uint64_t target);

/* Calls that were lost before they came here. */
void steptrack_lost(struct steptrack *t, enum steptrack_drop why, uint64_t n);

/* Walks the targets; start with *pos 0. false at the end. */
bool steptrack_next(const struct steptrack *t, uint32_t *pos, uint64_t *ret_target);

struct steptrack_stats {
    uint64_t calls, steps, names_folded;
    uint64_t dropped[STEPTRACK_N_DROP];
    uint64_t open, targets; /* now */
    struct labels_counts labels;
};
void steptrack_get_stats(const struct steptrack *t, struct steptrack_stats *ret);
