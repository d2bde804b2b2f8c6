// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/map.h"
#include "storage/dict/dict_private.h"
#include "storage/dict/dictchunk_private.h"
#include "storage/file/db_private.h"

/* What dictfile.c (writing) and dictfile_load.c share. */
#define DICTFILE_PAGE 1024u

extern const struct db_kind dict_kind;

/* Entries that are made here, of fields of frames: each once, numbered from 1. */
struct dict_once {
    uint32_t n, room, written; /* n: entry 0, none, included; written: likewise */
    union {
        struct dict_bin *bin;
        struct dict_function *function;
    };
    struct map map; /* hash -> number of the first with it */
};

/* What is in the file of one trie. */
struct dict_written {
    uint32_t svc, sub;
    uint32_t n; /* nodes, the root included */
    uint32_t n_list, room, list_written;
    uint32_t *list;   /* place -> frame of the epoch */
    struct map place; /* frame -> place */
};

struct dictfile {
    struct db db;
    sqlite3_stmt *put, *sum;
    struct dict_coder *coder;
    struct buf data;
    uint64_t fold, chunks;    /* of the last commit */
    uint32_t n_text, n_frame; /* entry 0 included */
    struct dict_once bin, function;
    struct dict_written *trie;
    uint32_t n_trie, room;
    struct map trie_of; /* svc << 32 | sub -> index */
};

[[nodiscard]] struct dictfile *dictfile_new(void); /* NULL: memory is short */
/* After db was opened for writing. */
[[nodiscard]] int dictfile_begin(struct dictfile *f, struct err *err);
void dictfile_free(struct dictfile *f);

/* Numbers, found or added; 0 for one of all zeros; UINT32_MAX: memory is short. */
uint32_t dict_bin_of(struct dict_once *o, const struct dict_bin *x);
uint32_t dict_function_of(struct dict_once *o, const struct dict_function *x);
/* NULL: memory is short. Valid until the next call. */
struct dict_written *dict_written_of(struct dictfile *f, uint32_t svc, uint32_t sub);
/* Place of a frame in the list, added if it is new; UINT32_MAX: memory is short. */
uint32_t dict_place_of(struct dict_written *t, uint32_t frame);
