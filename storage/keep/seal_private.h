// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/keep/view_private.h"
#include "storage/part/part_private.h"

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
 *   errors  -ESTALE one of them is not listed any more, -ESHUTDOWN, -ENOMEM; what a commit says.
 *           Nothing has changed. The file of out is the store's in every case: where it does not
 *           come it is unlinked, as soon as it is certain that it does not
 */
[[nodiscard]] int seal_swap(struct store *s, struct part *const *in, uint32_t n,
                            const struct part_info *out, struct err *err);

/* seal.c, writer thread (or the opening and closing thread, when it is alone). */
/* All that the current head holds; 0 also where that is nothing. */
[[nodiscard]] int seal(struct store *s, struct err *err);
/* Time, rows or journal say that it must. */
bool seal_due(struct store *s);

/* For the apply thread, under apply_mu: s->fresh becomes the current head. */
void seal_put_fresh(struct store *s);
/* A part found damaged: its interval is told from now on, its file goes to quarantine/ with the
 * next start. One transaction. */
[[nodiscard]] int seal_note_bad(struct store *s, const struct part_info *part, const char *what,
                                struct err *err);
/* Do that for parts of the list that readers found bad. */
void seal_look_at_parts(struct store *s);
/* A part that is gone: the next seal takes its row out of the catalog, if its file is unlinked by
 * then. False: memory is short. */
[[nodiscard]] bool seal_note_gone(struct store *s, const struct part_info *part);
/* The list as it is, without some parts and a head, with further parts. NULL: memory is short. */
struct source_list *seal_list(struct store *s, struct part *const *drop, uint32_t n_drop,
                              struct part *const *add, uint32_t n_add, const struct head *frozen);

/*
 * epochs.c. An epoch ends after 7 days, 16 M frames, or with half the memory of heads: the head
 * that is made at a freeze begins the next one (s->next_epoch, s->next_dict), the seal of the
 * frozen one writes that down.
 */
[[nodiscard]] int epoch_turn(struct store *s, struct err *err);
void epoch_turned(struct store *s);
/* After a seal: nobody names stacks of the epoch before the current one any more; files of epochs
 * that have no part left are removed, some time after the last. */
void epoch_settle(struct store *s);
/* An epoch of the catalog that is over. False: memory is short. */
[[nodiscard]] bool epoch_note_closed(struct store *s, const struct store_epoch *e);
/* What the catalog is to say of the dictionary that is current from this commit on. */
void epoch_mark(struct catalog_state *state, const struct dictfile *f);
/* Opening: the current epoch of the catalog; where there is none (id 0), or it is damaged, the new
 * one `next`. */
[[nodiscard]] int epoch_open(struct store *s, uint32_t id, real_ns t0, uint32_t next,
                             struct err *err);
void epochs_close(struct store *s);
uint64_t epochs_bytes(struct store *s); /* of older ones at hand */
/* One with all its maps, to take stacks over from. As epoch_get(), but not kept. Opening only. */
struct epoch *epoch_get_whole(struct store *s, uint32_t id, struct err *err);
/* An older epoch, loaded on demand: one reference, the caller's. NULL: err says why. Any thread. */
struct epoch *epoch_get(struct store *s, uint32_t id, struct err *err);

/* space.c */
void space_look(struct store *s); /* st-upkeep, now and then */
/* The state becomes FULL; the writer thread hears of it. Any thread, no lock held. */
void space_full(struct store *s, const char *why);
[[nodiscard]] int space_relieve(struct store *s, struct err *err); /* st-writer, while full */

/* seal_rows.c: the parts of a frozen head. */
struct seal_parts {
    uint32_t n, room;
    struct part_info *v; /* malloced */
};
/* On failure the files made are removed. */
[[nodiscard]] int seal_write(struct store *st, const struct head *h, struct seal_parts *ret,
                             struct err *err);
/* Unlink the files, free the list. */
void seal_discard(const struct store *s, struct seal_parts *p);
/* A commit that named them failed: the next start may find it done. They are unlinked when a later
 * one has succeeded. */
void seal_doubt(struct store *s, const struct part_info *part, uint32_t n);
