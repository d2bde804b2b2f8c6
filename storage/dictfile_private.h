// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/dict_private.h"

/*
 * dict/<epoch>.db: texts, binaries, functions, frames and stacks of one epoch, in chunks of 4,096
 * entries (docs/format-shard.md). Append-only: what was written keeps its id and its bytes; only
 * the last chunk of a kind is written anew. Ids are those of struct dict.
 */
#define DICTFILE_CHUNK 4096u

struct dictfile;

/* "dict/12.db" */
void dictfile_name(char ret[static 32], uint32_t epoch);

/* Make dir/dict/<epoch>.db, open for writing by the calling thread. */
[[nodiscard]] int dictfile_create(const char *dir, uint32_t epoch, const char *vfs,
                                  struct dictfile **ret, struct err *err);
/* NULL is a no-op. Returns NULL. Moves the -wal into the file: afterwards it is at rest. */
struct dictfile *dictfile_close(struct dictfile *f);

/*
 * Write what is new in d and in its tries since the last call: one FULL transaction. Everything
 * published in tries and frames at the time of the call, at least, is in the file afterwards.
 * Thread: the owner of f; d may grow meanwhile, the caller has entered its pool.
 *   errors   -ENOSPC, -EIO ...: rolled back, the next call writes it all
 */
[[nodiscard]] int dictfile_append(struct dictfile *f, const struct dict *d,
                                  struct dict_trie *const *trie, uint32_t n_trie, struct err *err);
void dictfile_checkpoint(struct dictfile *f);
[[nodiscard]] int dictfile_copy(struct dictfile *f, const char *path, struct err *err);

enum dictfile_how {
    DICTFILE_READ = 0,   /* at rest, for queries: texts, frames, functions, tries; no maps */
    DICTFILE_APPEND = 1, /* the current epoch: with the maps that applying batches needs; the file
                            stays open for dictfile_append() */
};

/* Where a loaded trie goes: made by dict_trie_new() for (svc, sub), filled by the load. */
typedef struct dict_trie *dictfile_trie_fn(void *ctx, uint32_t svc, uint32_t sub);

/*
 * Load dir/dict/<epoch>.db into d, fresh from dict_init().
 *   ret_file   with DICTFILE_APPEND: the open file; else NULL
 *   outcomes   STORE_PARTIAL: chunks are damaged (err says which first). Their nodes are
 *              [no stack: damaged] below the root, and so is what hangs below them; their frames
 *              are marked damaged. Such a file must not be appended to: begin a new epoch
 *   errors     -ENOENT, -EPROTO (untouched), -EBADMSG nothing of it can be read, -ENOMEM, -EIO
 */
[[nodiscard]] int dictfile_load(const char *dir, uint32_t epoch, const char *vfs,
                                enum dictfile_how how, struct dict *d, dictfile_trie_fn *trie,
                                void *ctx, struct dictfile **ret_file, struct err *err);

/* Bytes per kind of entry, for store_list_sizes. */
[[nodiscard]] int dictfile_sizes(const char *dir, uint32_t epoch, const char *vfs,
                                 store_size_fn *fn, void *ctx, struct err *err);
