// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "agent/file/binary.h"
#include "agent/file/debugfile.h"
#include "agent/name/ksym.h"
#include "base/buf.h"
#include "base/str.h"

/*
 * From addresses to names for people: symbol tables of binaries (opened on first use, the least
 * recently used leave at the cap), demangled names, kernel symbols. Off the drain path.
 * Thread: owner only (the batch thread).
 */
struct names;

struct names_conf {
    uint64_t cache;         /* bytes of symbol tables and names, kernel symbols apart */
    const char *debug_dirs; /* of debug files, separated by ':'; "": none (debugfile.h) */
    const char *proc, *sys;
};

struct names_stats {
    uint64_t tables, opened, evicted, failed; /* symbol tables: held now, ever */
    uint64_t bytes;
    uint64_t resolved, unresolved; /* addresses asked for */
    uint64_t debug_files, mini;    /* tables with names from a debug file, from mini debug info */
    uint64_t mini_failed;
    uint64_t debug_found[DEBUGFILE_N]; /* files looked at, by what was found */
};

struct names *names_new(const struct names_conf *c);
struct names *names_free(struct names *n); /* NULL is a no-op; returns NULL */

/* Appends the function at an ELF address of b, demangled; where no symbol covers it
 * "binary+0xoffset", and returns false. */
bool names_native(struct names *n, struct binary *b, uint64_t addr, struct buf *out);

/* Of kernel addresses; see ksym.h. */
struct ksym *names_kernel(struct names *n);

/* Between batches: kernel symbols may be read again. now: CLOCK_MONOTONIC. */
void names_tick(struct names *n, int64_t now_ns);

/* From now on; what is beyond it leaves, the least recently used first. */
void names_set_cache(struct names *n, uint64_t bytes);

void names_get_stats(const struct names *n, struct names_stats *ret);
