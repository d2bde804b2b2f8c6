// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/part/block_private.h"

/* What block_write.c, block_read.c and summary.c share. Column ids of cols (docs/format-shard.md).
 */
enum block_column {
    COL_KEYS = 1,
    COL_KEY = 2, /* and 3 */
    COL_TIME = 4,
    COL_TIME_ESCAPE = 6,
    COL_STACK = 7, /* and 8 */
    COL_COUNT = 9,
    COL_ATTR = 10,
    COL_CPU = 11,
    COL_VAR = 12,
    COL_HELD = 13,
    COL_VALUE = 16, /* to 31 */
    COL_END = 32,
};

#define BLOCK_VERSION    1u
#define BLOCK_LEVEL      1u     /* flag of cols: has held, and the value of each row */
#define RANK_ESCAPE      65535u /* a difference or gap so large stands in a cell of its own */
#define VAR_UNKNOWN      UINT32_C(0x7fc00000) /* what variances are stored against: 0 is unknown */
#define VAR_UNKNOWN_WIDE UINT64_C(0x7ff8000000000000)

/* Buffers of slice_read by column, and of summary_open. */
enum coder_array {
    ARRAY_KEY,
    ARRAY_KEY_SERIES,
    ARRAY_KEY_THREAD,
    ARRAY_CHOICE,
    ARRAY_TIME,
    ARRAY_RANK,
    ARRAY_COUNT,
    ARRAY_VALUE,
    ARRAY_CPU,
    ARRAY_ATTR,
    ARRAY_HELD,
    ARRAY_VAR,
    ARRAY_SUM_NODE,
    ARRAY_SUM_FREQ,
    ARRAY_SUM_COUNT,
    ARRAY_SUM_SUM,
    ARRAY_SUM_VAR,
    ARRAY_WRITE_PAIR, /* block_encode and sum_write */
    ARRAY_WRITE_PAIR2,
    ARRAY_WRITE_ENTRY,
    ARRAY_WRITE_ENTRY_OF,
    ARRAY_WRITE_RANK,
    ARRAY_WRITE_TIME,
    ARRAY_WRITE_NUMBER,
    ARRAY_WRITE_PLANES,
    ARRAY_WRITE_KEYS,
    ARRAY_WRITE_SLOT,
    N_ARRAY,
};

struct block_coder {
    struct cell_coder cell;
    struct buf scratch[4]; /* raw bytes of cells */
    struct buf array[N_ARRAY];
    struct buf cells, directory, entries, bytes; /* of the block that is written */
};

/* Room for n elements, what was in it before is lost; NULL: memory is short. */
void *coder_room(struct buf *b, size_t n, size_t size);
/* The same of the coder's; remembers in c->cell.no_memory. */
void *coder_array(struct block_coder *c, enum coder_array which, size_t n, size_t size);
#define CODER_ARRAY(c, which, T, n) ((T *)coder_array((c), (which), (n), sizeof(T)))

/* Order of rows a and b: negative, 0, positive. */
int block_compare(const struct block_rows *r, uint32_t a, uint32_t b);

int coder_no_memory(struct err *err);
/* A cell could not be read: damage of `what`, or memory. */
int coder_damage(struct block_coder *c, struct err *err, const char *what);

/* Pairs of low and high half <-> signed, in place: v becomes n unit_i128. */
void unzigzag_wide(uint64_t *v, uint32_t n);
static inline void zigzag_wide(unit_i128 v, uint64_t ret[2])
{
    ret[0] = (uint64_t)v << 1 ^ (uint64_t)(v >> 127);
    ret[1] = (uint64_t)(v >> 63) ^ (uint64_t)(v >> 127);
}

/* Sort by bits [shift, 64), stable; v or tmp is returned, whichever holds the result. */
uint64_t *sort_u64(uint64_t *v, uint64_t *tmp, size_t n, uint32_t shift);

/*
 * Bytes of a summary. v: by rising node, none twice.
 *   rank  of each entry, or NULL
 */
[[nodiscard]] int sum_write(struct block_coder *c, const struct sum_entry *v, uint32_t n,
                            struct buf *out, uint32_t *rank, uint32_t *ret_flags,
                            uint32_t *ret_many, struct err *err);
