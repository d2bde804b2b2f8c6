// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/store.h"

/*
 * dict/<epoch>.db: texts, binaries, functions, frames and stacks of one epoch, in chunks of 4,096
 * entries (docs/format-catalog.md). Append-only: what was written keeps its id and its meaning;
 * only the last chunk of a kind is written anew. Ids are those of struct dict.
 */
#define DICTFILE_CHUNK 4096u
#define DICTFILE_NAME  32

struct epoch;
struct dictfile;

/* "dict/12.db" */
void dictfile_name(char ret[static DICTFILE_NAME], uint32_t epoch);

/* Make dir/dict/<epoch>.db, open for writing by the calling thread. */
[[nodiscard]] int dictfile_create(const char *dir, uint32_t epoch, const char *vfs,
                                  struct dictfile **ret, struct err *err);
/* NULL is a no-op. Returns NULL. Moves the -wal into the file: afterwards it is at rest. */
struct dictfile *dictfile_close(struct dictfile *f);

/*
 * Write what is new in the epoch since the last call: one FULL transaction. Everything published at
 * the time of the call, at least, is in the file afterwards.
 * Thread: the owner of f; e may grow meanwhile, the caller holds its pool open (a reader in it).
 *   errors   -ENOSPC, -EIO ...: rolled back, the next call writes it all
 */
[[nodiscard]] int dictfile_append(struct dictfile *f, const struct epoch *e, struct err *err);
/* Which file it is, and how many texts, frames and nodes it has: only ever more. By the owner
 * of f. */
struct dictfile_mark {
    uint64_t id, n;
};
struct dictfile_mark dictfile_mark(const struct dictfile *f);
/* Failure is harmless: the next one does it. */
void dictfile_checkpoint(struct dictfile *f);
/* A whole copy at the new path. By the owner of f. */
[[nodiscard]] int dictfile_copy(struct dictfile *f, const char *path, struct err *err);

enum dictfile_how {
    DICTFILE_READ = 0,   /* for queries: no maps of nodes */
    DICTFILE_APPEND = 1, /* the current epoch, with what applying batches needs; settled (fsync)
                            before it is opened */
};

/*
 * Load dir/dict/<e->id>.db into e, fresh from epoch_new(); published when it returns.
 *   ret_file   with DICTFILE_APPEND and result 0: the file, open for dictfile_append(); else NULL
 *   outcomes   STORE_PARTIAL: chunks are damaged (err says which first). Their nodes, and those
 *              that hang below them, are [no stack: damaged]; their frames are marked damaged.
 *              Nothing may be added to such an epoch: begin a new one
 *   errors     -ENOENT, -EPROTO (untouched), -EBADMSG nothing of it can be read, -ENOMEM, -EIO
 */
[[nodiscard]] int dictfile_load(const char *dir, const char *vfs, enum dictfile_how how,
                                struct epoch *e, struct dictfile **ret_file, struct err *err);

/* Bytes per kind of entry, added to ret[kind]; of a file at rest, or of the open one (its owner).
 */
#define DICTFILE_KINDS 7
[[nodiscard]] int dictfile_sizes(const char *dir, uint32_t epoch, const char *vfs,
                                 struct store_size ret[static DICTFILE_KINDS], struct err *err);
[[nodiscard]] int dictfile_own_sizes(struct dictfile *f,
                                     struct store_size ret[static DICTFILE_KINDS], struct err *err);
