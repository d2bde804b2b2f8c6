// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/send/batchmake.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

/*
 * The files of the spool: BOOT-SEQ.batch, each a batch that stands alone with what must be told if
 * it is given up (docs/format-spool.md), and `untold`: what was given up and is in no batch yet.
 * Written aside and renamed, so whole or not there, but never flushed: a power cut may tear a file,
 * and then its hashes do not fit. Directory 0700, files 0600, ours alone: one agent at a time.
 * Thread: open and scan before all others; write by the thread that puts batches; the rest any.
 */
struct spool_disk;

/* What stands before the body. Interval, count and weight are in lost[0 .. n_own). */
struct spool_disk_head {
    uint8_t boot[16];
    uint64_t seq, content;
    real_ns made;
    uint64_t body_bytes, body_hash, file_bytes;
    uint32_t rows;
    uint32_t n_own, n_lost;         /* own sums by type, then what the batch tells of others */
    struct batchmake_dropped *lost; /* heap; first > last: no number of this run */
};

/* Makes the directory, takes its lock, removes what a killed writer left. Of damaged files at most
 * keep_bad bytes are kept.
 *   errors -EACCES not ours alone; -EBUSY another agent has it; of mkdir, open */
[[nodiscard]] int spool_disk_open(struct spool_disk **ret, const char *dir, uint64_t keep_bad,
                                  struct err *err);
struct spool_disk *spool_disk_close(struct spool_disk *d); /* NULL is a no-op; returns NULL */

struct spool_disk_found {
    uint64_t damaged;    /* set aside as NAME.bad; 16 of them are kept */
    uint64_t foreign;    /* not ours, left alone */
    uint64_t unreadable; /* batches that could not be read now; they stay for the next run */
};

/* Hands over every batch that is there, in any order; with whole false its body was cut: it has
 * been set aside, head tells what is lost. fn takes over head->lost. */
void spool_disk_scan(struct spool_disk *d,
                     void (*fn)(void *ctx, struct spool_disk_head *head, bool whole), void *ctx,
                     struct spool_disk_found *ret);

/* Fills in body_bytes, body_hash, file_bytes. errors: of the file system; nothing is left behind */
[[nodiscard]] int spool_disk_write(struct spool_disk *d, struct spool_disk_head *head,
                                   struct str body, struct err *err);

/* Appends the body. errors: of the file system; -EBADMSG it is not the body that was written */
[[nodiscard]] int spool_disk_read(struct spool_disk *d, const struct spool_disk_head *head,
                                  struct buf *out, struct err *err);

void spool_disk_remove(struct spool_disk *d, const struct spool_disk_head *head);
void spool_disk_set_aside(struct spool_disk *d, const struct spool_disk_head *head);
uint64_t spool_disk_bad_bytes(const struct spool_disk *d); /* of the files set aside */

/* errors: of the file system; -EBADMSG damaged, -ENOENT none */
[[nodiscard]] int spool_disk_write_untold(struct spool_disk *d, const struct batchmake_dropped *v,
                                          uint32_t n, struct err *err);
[[nodiscard]] int spool_disk_read_untold(struct spool_disk *d, struct batchmake_dropped *ret,
                                         uint32_t max, uint32_t *ret_n, struct err *err);
