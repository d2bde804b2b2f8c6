// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "storage/dict/dictfile_private.h"
#include "storage/file/cell_private.h"

/*
 * Chunks of a dictionary file as bytes: pure functions, both ways (docs/format-catalog.md). n is at
 * most DICTFILE_CHUNK. Decoders return false for damage, or with c->coder.no_memory set.
 */

/* Kinds of table chunk. On disk: append only. */
enum dict_kind {
    DICT_TOTAL = 0, /* one row: how many others, and the sum of their sums */
    DICT_TEXT = 1,
    DICT_BIN = 2,
    DICT_FUNCTION = 3, /* what frames of one place in the source share */
    DICT_FRAME = 4,
    DICT_NODE = 5, /* of a trie */
    DICT_LIST = 6, /* frames of a trie, in order of first use there */
    DICT_KINDS
};

struct dict_bin {
    uint32_t path, id; /* texts */
    uint32_t id_kind;
};

struct dict_function {
    uint32_t name, file, line; /* texts; line where it begins */
    uint32_t kind;
};

struct dict_place {                      /* an entry of kind frame */
    uint32_t function, bin, line, flags; /* function, bin: numbers from 1, 0 none */
    uint64_t addr;
};
#define DICT_PLACE_DAMAGED 128u /* in flags */

/* Working memory of one thread. */
struct dict_coder {
    struct cell_coder coder;
    struct buf scratch, scratch2;
    uint64_t a[DICTFILE_CHUNK], b[DICTFILE_CHUNK];
    uint32_t u[DICTFILE_CHUNK], v[DICTFILE_CHUNK];
    uint8_t one[DICTFILE_CHUNK + 1], two[DICTFILE_CHUNK + 1];
};

struct dict_coder *dict_coder_new(void); /* NULL: memory is short */
struct dict_coder *dict_coder_free(struct dict_coder *c);

void dict_put_texts(struct dict_coder *c, struct buf *b, const struct str *v, uint32_t n);
/* ret points into the coder's memory, until its next use. */
[[nodiscard]] bool dict_get_texts(struct dict_coder *c, struct str data, struct str *ret,
                                  uint32_t n);

void dict_put_bins(struct dict_coder *c, struct buf *b, const struct dict_bin *v, uint32_t n);
[[nodiscard]] bool dict_get_bins(struct dict_coder *c, struct str data, struct dict_bin *ret,
                                 uint32_t n);

void dict_put_functions(struct dict_coder *c, struct buf *b, const struct dict_function *v,
                        uint32_t n);
[[nodiscard]] bool dict_get_functions(struct dict_coder *c, struct str data,
                                      struct dict_function *ret, uint32_t n);

void dict_put_frames(struct dict_coder *c, struct buf *b, const struct dict_place *v, uint32_t n);
[[nodiscard]] bool dict_get_frames(struct dict_coder *c, struct str data, struct dict_place *ret,
                                   uint32_t n);

/* Numbers of the epoch's frames. */
void dict_put_list(struct dict_coder *c, struct buf *b, const uint32_t *v, uint32_t n);
[[nodiscard]] bool dict_get_list(struct dict_coder *c, struct str data, uint32_t *ret, uint32_t n);

/*
 * Nodes [first, first + n), first >= 1. parent: of all nodes from 0 on; frame: places in the list,
 * of these nodes, below d.
 *   damaged  by node; a node whose parent leads through a damaged one is damaged itself
 */
void dict_put_nodes(struct dict_coder *c, struct buf *b, const uint32_t *parent,
                    const uint32_t *frame, uint32_t first, uint32_t n, uint32_t d);
[[nodiscard]] bool dict_get_nodes(struct dict_coder *c, struct str data, uint32_t *parent,
                                  bool *damaged, uint32_t *ret_frame, uint32_t first, uint32_t n);
