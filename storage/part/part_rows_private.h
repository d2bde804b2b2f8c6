// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/part/part_private.h"

/* Rows of blocks, one by one, in stored order. One thread at a time. */
struct part_rows {
    struct block_coder *coder;
    struct block *block;
    struct part *part; /* that handle is of */
    struct part_handle *handle;
};

struct part_rows *part_rows_new(void); /* NULL: memory is short */
struct part_rows *part_rows_free(struct part_rows *r);
/* What follows is about that part, which the caller holds. */
[[nodiscard]] int part_rows_enter(struct part_rows *r, struct part *part, struct err *err);

struct part_row {
    int64_t ms, value;
    uint32_t series, thread, cpu, node; /* cpu: number + 1 */
    uint64_t count;
    double var;
    uint32_t attr, held; /* of levels: scope of the reading, ms that it holds */
};

struct part_rows_ask {
    int64_t lo, hi;  /* lo <= ms < hi */
    uint32_t n_node; /* ids of the trie are below it; UINT32_MAX: any */
    bool keys_only;  /* ms, series, thread, cpu; the rest is 0 */
};

/* Negative ends it. */
typedef int part_row_fn(void *ctx, const struct part_row *row, struct err *err);

/* errors: -EBADMSG damage, some rows may have been handed out; what fn said */
[[nodiscard]] int part_rows_each(struct part_rows *r, uint32_t block,
                                 const struct part_rows_ask *ask, part_row_fn *fn, void *ctx,
                                 struct err *err);
