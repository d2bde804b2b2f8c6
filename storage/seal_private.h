// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/part_private.h"
#include "storage/view_private.h"

/*
 * Sealing: what is in the head goes into parts. The writer thread (st-writer) alone writes catalog,
 * dictionary and the list of sources; it works while the journal thread goes on committing.
 *
 * A seal, each step on disk before the next:
 *   1. the apply thread puts a fresh head in place between two batches: the old one is frozen, all
 *      of it up to one LSN
 *   2. dictionary: texts, frames, stacks that are new
 *   3. parts: one new file per hour that the frozen head holds something of
 *   4. catalog, one transaction: parts, sealed_lsn, names that are new, senders
 *   5. the list without the frozen head, with the parts: one pointer swap
 *   6. journals whose last row is sealed are unlinked (st-upkeep)
 * If a step fails the files of the attempt are removed, the frozen head stays readable and in the
 * journal, and the same seal is tried again; nothing else is frozen meanwhile.
 */

/* writer.c */
[[nodiscard]] int writer_start(struct store *s, struct err *err);
/* The last seal is made when last; the apply thread has ended. */
void writer_stop(struct store *s, bool last);

/*
 * Run fn in the writer thread and wait for it: whatever reads or changes catalog, dictionary file
 * or list. Not from that thread, not with a lock held.
 */
typedef int writer_fn(struct store *s, void *ctx, struct err *err);
[[nodiscard]] int writer_call(struct store *s, writer_fn *fn, void *ctx, struct err *err);

/* The id of a part to be made, never given twice: also its generation. Any thread. */
uint64_t seal_part_id(struct store *s);

/*
 * Replace parts by one that was made of them, or by nothing (expiry): one catalog transaction, then
 * the next view has it. Any other thread; waits.
 *   in      n parts, referenced by the caller; marked gone when it returns 0
 *   out     from part_finish(), its id from seal_part_id(); NULL: nothing comes in their place
 *   errors  -ESTALE one of them is not listed any more: nothing has changed; what a commit says.
 *           The file of out is then the caller's to unlink
 */
[[nodiscard]] int seal_swap(struct store *s, struct part *const *in, uint32_t n,
                            const struct part_info *out, struct err *err);

/* seal.c, writer thread (or the opening and closing thread, when it is alone). */
/* All that the current head holds; 0 also where that is nothing. */
[[nodiscard]] int seal(struct store *s, struct err *err);
/* Time, rows or journal say that it must. */
bool seal_due(struct store *s);

/* seal_rows.c: the parts of a frozen head. */
struct seal_parts {
    uint32_t n, room;
    struct part_info *v; /* malloced */
};
/* On failure the files made are removed. */
[[nodiscard]] int seal_write(struct store *s, const struct head *h, struct seal_parts *ret,
                             struct err *err);
/* Unlink the files, free the list. */
void seal_discard(const struct store *s, struct seal_parts *p);
