// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Reasons. Every sample that is dropped, and every stack that is cut or missing, has one. The
 * names are on the wire, on disk and on screen: append only. The set is open for imports
 * ([a-z0-9_], at most 32 bytes), so elsewhere a reason is a text; these are the ones we say.
 *
 * LOST: the weight is missing from the values. KEPT: the weight is there, under the frame
 * [no stack: REASON] or [truncated: REASON].
 */
// clang-format off
#define LOSS_TABLE(X)                                                                              \
    X(TICKS_MISSED,      LOST, "ticks_missed",      "ticks that never fired while the CPU was busy") \
    X(TICKS_MISSED_IDLE, LOST, "ticks_missed_idle", "ticks that never fired in idle time")         \
    X(RING_FULL,         LOST, "ring_full",         "a record refused by a full ring")             \
    X(SPOOL_DROP,        LOST, "spool_drop",        "batches given up by a full spool")            \
    X(SEND_REJECTED,     LOST, "send_rejected",     "batches or rows refused by the server")       \
    X(REPLAY_FAILED,     LOST, "replay_failed",     "an acknowledged batch that no longer decodes") \
    X(TRUNC,             KEPT, "trunc",             "stack deeper than the limit of frames")       \
    X(NOMAP,             KEPT, "nomap",             "no mapping known at an address of the stack") \
    X(NOTABLE,           KEPT, "notable",           "unwind table not built yet, failed or evicted") \
    X(NOINFO,            KEPT, "noinfo",            "no unwind information at an address")         \
    X(INVALID,           KEPT, "invalid",           "unwind rule that cannot be expressed")        \
    X(READFAULT,         KEPT, "readfault",         "stack memory not readable at that moment")    \
    X(ZEROPC,            KEPT, "zeropc",            "return address 0 in the middle of a stack")   \
    X(BADSP,             KEPT, "badsp",             "stack pointer did not grow")                  \
    X(BADFP,             KEPT, "badfp",             "implausible frame pointer")                   \
    X(NOPROC,            KEPT, "noproc",            "process not known yet")                       \
    X(EXITING,           KEPT, "exiting",           "thread was exiting, its memory gone")         \
    X(COMPAT32,          KEPT, "compat32",          "32-bit process")                              \
    X(TABLE_FULL,        KEPT, "table_full",        "fold table of the window full")               \
    X(RECURSION,         KEPT, "recursion",         "a probe inside a probe")                      \
    X(DAMAGED,           KEPT, "damaged",           "dictionary entry that cannot be read")        \
    X(KERNEL_HIDDEN,     LOST, "kernel_hidden",     "CPU time in kernel mode, hidden from users")   \
    X(GIL_UNREADABLE,    LOST, "gil_unreadable",    "Python's lock could not be read at that tick") \
    X(SHORT,             KEPT, "short",             "off the CPU for less than min_block")         \
    X(THROTTLED,         KEPT, "throttled",         "no stack: more switches than stacks_per_s")   \
    X(NOT_RUN,           KEPT, "not_run",           "a new thread that has not run yet")           \
    X(RING_REFUSED,      KEPT, "ring_refused",      "a stack refused by a full ring")
// clang-format on

enum loss_reason {
#define X(ID, kind, name, text) LOSS_##ID,
    LOSS_TABLE(X)
#undef X
    LOSS_N
};

enum loss_kind {
    LOSS_KIND_LOST = 1,
    LOSS_KIND_KEPT = 2,
};

struct loss_info {
    enum loss_kind kind;
    struct str name;
    const char *text;
};

/* Static, any thread. */
const struct loss_info *loss_info(enum loss_reason r);

/* Is s a legal reason text: 1 to 32 of [a-z0-9_]? */
bool loss_name_ok(struct str s);

/* Counters that saturate instead of wrapping. Any thread. */
typedef struct loss_counter {
    _Atomic uint64_t n;
} loss_counter;

static inline void loss_count(loss_counter *c, uint64_t n)
{
    uint64_t old = atomic_load_explicit(&c->n, memory_order_relaxed);
    uint64_t new;

    do {
        if (__builtin_add_overflow(old, n, &new))
            new = UINT64_MAX;
    } while (!atomic_compare_exchange_weak_explicit(&c->n, &old, new, memory_order_relaxed,
                                                    memory_order_relaxed));
}
