// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/file/dwarfline.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

/*
 * Source lines and inlined functions for addresses that are worth it (dwarfline.h). A thread of its
 * own reads DWARF, at the lowest priority and at most LINES_SHARE of a CPU; what it found is kept
 * under (binary, address). Until then, and where there is no DWARF, an address has none: the same
 * function, without a line.
 *
 * hot: an address that stood on at least LINES_HOT of a target's samples of the running minute, and
 * on LINES_LEAST of them. all: every address.
 *
 * lines_count() and lines_tick() are the batch thread's; the others any thread's.
 */
struct lines;

#define LINES_SHARE_PERCENT 5
#define LINES_BURST_NS      (INT64_C(500) * 1000000) /* spent at once after a quiet time */
#define LINES_HOT_PERMILLE  1
#define LINES_LEAST         4

enum lines_mode {
    LINES_OFF,
    LINES_HOT,
    LINES_ALL,
};

/* "off", "hot", "all"; false: none of them. */
bool lines_mode_of(const char *s, enum lines_mode *ret);

struct lines_conf {
    enum lines_mode mode;
    const char *debug_dirs; /* as names_conf; copied */
    uint64_t cache;         /* bytes of what was found */
    bool no_budget;         /* of CPU time: for a command that ends */
};

/* Texts and frames live in the arena that was given. */
struct lines_frame {
    struct str name; /* demangled; empty: the symbol's */
    struct str file;
    uint32_t line, start_line;
    bool inlined;
};

struct lines_stats {
    uint64_t asked, found, jobs;     /* addresses, addresses with frames, files read */
    uint64_t inlined;                /* frames */
    uint64_t waiting, bytes;         /* now */
    uint64_t dropped;                /* for want of room: asked again when they are seen again */
    uint64_t cpu_ns;                 /* of the thread */
    uint64_t fail[DWARFLINE_FAIL_N]; /* jobs, by how they ended */
};

/* errors: as thread_start(). LINES_OFF: no thread, and nothing is ever found */
[[nodiscard]] int lines_start(const struct lines_conf *c, struct lines **ret, struct err *err);
struct lines *lines_stop(struct lines *l); /* NULL is a no-op; returns NULL */

/* n samples of a target (serial of struct proc) had this stack; words that are no native address
 * are passed over, and each address counts once. */
void lines_count(struct lines *l, uint64_t serial, const uint64_t *words, uint32_t n_word,
                 uint64_t n);

/* After a batch: what is hot by now is asked for. now: CLOCK_MONOTONIC. */
void lines_tick(struct lines *l, int64_t now);

/* What is known of an address (its word, bpf/cpu.h), outermost first; the number of frames, 0:
 * nothing. */
uint32_t lines_get(struct lines *l, uint64_t word, struct arena *a, struct lines_frame **ret);

/* Until nothing is waiting, or so long: for tests and for the last batch of a recording. */
bool lines_wait(struct lines *l, int64_t wait_ns);

void lines_get_stats(struct lines *l, struct lines_stats *ret);
