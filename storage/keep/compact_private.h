// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdatomic.h>

#include "storage/part/part_private.h"

/*
 * Compaction: several parts of one period and epoch become one, with full blocks in time order, one
 * set of local tables, merged coverage and an hsum. No sample is dropped, changed or added: what
 * was written is read back and compared with what went in before it may replace it.
 *
 * Memory: one decoded block of each input and one being filled, whatever the number of rows.
 */
struct compact_job {
    const char *dir;
    const char *vfs;
    struct parts *parts; /* to read the result back with */
    const struct names *names;
    uint32_t generation; /* of the result */
    uint32_t n_in;
    struct part *const
        *in; /* of one tier, period and epoch; the caller holds a reference to each */
    const atomic_bool *stop; /* asked at each block: -ECANCELED. NULL: none */
};

/*
 * Write and verify the merged part; it is in its place under its name, and the catalog does not
 * know it yet.
 *   errors  -EBADMSG an input cannot be read whole, or what was written is not what was read (err
 *           says which): the inputs stay. -ECANCELED, -ENOSPC, -EIO, -ENOMEM. Nothing is left
 * behind
 */
[[nodiscard]] int compact_merge(const struct compact_job *job, struct part_info *ret,
                                struct err *err);

/* Most nodes that the summary of a block of an input may name. */
#define COMPACT_NODES UINT32_MAX

/* ---- compactor.c ---- */

struct store;
struct compactor;

/* The thread that looks for what is to be merged. stop waits for it; without a start a no-op. */
[[nodiscard]] int compactor_start(struct store *s, struct err *err);
void compactor_stop(struct store *s);

/* Merge the parts of every hour that has several, now, in the calling thread: tests, benches.
 * Beside the compactor one of the two finds its inputs gone, which is no error. */
[[nodiscard]] int compact_all(struct store *s, struct err *err);

/* ---- merge.c ---- */

/* All rows of all inputs into w, block by block; then their local tables. */
[[nodiscard]] int merge_parts(const struct compact_job *job, struct part_writer *w,
                              struct err *err);
