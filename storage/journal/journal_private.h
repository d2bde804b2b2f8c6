// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/err.h"
#include "base/sample.h"

/*
 * One journal file: a SQLite database of accepted batches (docs/format-journal.md). It is written
 * by one connection of one thread, from its making to its end, and never again after a restart:
 * what is read later is read without a write, a lock or a checkpoint.
 */
#define JOURNAL_FORMAT 1

struct journal;

struct journal_row {
    uint64_t lsn;
    uint8_t agent[16], boot[16];
    uint64_t seq, content;
    real_ns received;
    struct str payload;
};

struct journal_info {
    uint64_t number;
    uint64_t store; /* whose file it is; 0: made before files said so */
    uint8_t uuid[16];
    struct batch_limits limits;
    bool used;          /* a group was committed: the next two are set */
    uint64_t first_lsn; /* of the file */
    uint64_t after_lsn; /* the last one acknowledged before it, whatever file it is in */
};

struct journal_new {
    uint64_t number, store; /* store: as in journal_info */
    const struct batch_limits *limits;
    const char *vfs; /* NULL: journal_vfs() */
};

/*
 * Make a file below dir (whose descriptor is dir_fd), ready for its first row: when this returns 0
 * the file, its tables and its directory entry are on disk.
 *   errors  -ENOSPC, -EROFS, -EACCES, -EIO, -ENOMEM; nothing usable is left
 */
[[nodiscard]] int journal_create(const char *dir, int dir_fd, const struct journal_new *what,
                                 struct journal **ret, struct err *err);

/*
 * One transaction, on disk when it returns 0. after_lsn is written with the first group.
 *   errors  -ENOSPC: rolled back, the file can go on; -EIO, -ENOMEM: rolled back, the file must not
 *           be written again
 */
[[nodiscard]] int journal_commit(struct journal *j, const struct journal_row *row, size_t n,
                                 uint64_t after_lsn, struct err *err);

/* The commit of a file without rows: lsn is the next that will be given, as journal_commit(). Files
 * before it can then be seen to be whole. No row may follow. */
[[nodiscard]] int journal_mark(struct journal *j, uint64_t lsn, uint64_t after_lsn,
                               struct err *err);

/* A commit that changes nothing that is read: is there room again? As journal_commit(). */
[[nodiscard]] int journal_probe(struct journal *j, struct err *err);

/* Bytes of payload in it. */
uint64_t journal_bytes(const struct journal *j);
uint64_t journal_rows(const struct journal *j);
uint64_t journal_number(const struct journal *j);

/* Its files still have their names: what is committed will be found. dir_fd: of the directory. */
bool journal_there(const struct journal *j, int dir_fd);

/* NULL is a no-op. Returns NULL. The file stays as it is. */
struct journal *journal_close(struct journal *j);

/*
 * Read meta.
 *   errors  -EPROTO a newer or unknown format, both versions named; -EBADMSG not a journal of that
 *           number, or damaged; -EIO, -EACCES, -ENOMEM
 */
[[nodiscard]] int journal_info(const char *path, uint64_t number, struct journal_info *ret,
                               struct err *err);

/* ok: the row's sum is right. Negative ends the read with it. */
typedef int journal_row_fn(void *ctx, const struct journal_row *row, bool ok, struct err *err);

/* All rows, by LSN. As journal_info(); -EBADMSG may come after some rows. */
[[nodiscard]] int journal_read(const char *path, uint64_t number, journal_row_fn *fn, void *ctx,
                               struct err *err);

/*
 * Damage inside a -wal that SQLite passes over in silence: how many transactions end behind its
 * first bad frame, and where that one is. Each but the last was synced before the next began; the
 * last may be what a power cut tore. 0 for a sound or an unreadable file.
 */
uint32_t journal_behind(int dir_fd, const char *wal, uint64_t *ret_at);

/*
 * journal/acked (acked.c): a lower bound of what must be there at a start.
 *   acked_open   at lsn, on disk, before the first journal of a run is made: a descriptor for
 *                writing, or -1: only less is noticed then
 *   acked_write  behind a commit; fd -1 is a no-op; not synced
 *   acked_read   false: it says nothing, *ret is 0
 */
int acked_open(int dir_fd, uint64_t lsn);
void acked_write(int fd, uint64_t lsn);
bool acked_read(int dir_fd, uint64_t *ret);

/*
 * SQLite's own VFS, but that what is written to a log is gathered until its sync (gather.c). NULL:
 * it could not be registered, use SQLite's own. Thread: any; a file belongs to one at a time.
 */
const char *journal_vfs(void);

/* What column sum holds. */
uint64_t journal_sum(uint64_t number, const struct journal_row *row);
