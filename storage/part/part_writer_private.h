// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/part/part_tables_private.h"

/* A part being made: shared by part_write.c (file, blocks) and part_source.c (what stands beside).
 */
/* Ids met, by number. */
struct marks {
    bool *v;
    uint32_t n;
};

struct part_writer {
    struct part_conf conf;
    struct db db;
    char build[PART_NAME];
    sqlite3_stmt *block, *summary, *cols, *hsum, *local_st;
    struct block_coder *coder;
    struct cell_coder cell;
    struct buf sum_buf, col_buf, tmp, data;
    struct part_fold fold[PART_FOLDS];
    struct part_info info;

    /* hsum of the (type, svc, sub) that is being written */
    struct sum_set set;
    struct block_meta group; /* its last block */
    uint32_t group_blocks, n_hsum;
    struct buf first; /* summary of its first block */

    struct pool pool;
    struct local out; /* the part's own tables */
    const struct local *src;
    struct local_snap snap;
    uint32_t *map_text, *map_target, *map_thread; /* source -> out; NONE: not met */
    struct marks series, labels, svc, ptype;
};

/* part_source.c */
bool marks_set(struct marks *m, uint32_t i);
static inline bool marks_has(const struct marks *m, uint32_t i)
{
    return i < m->n && m->v[i];
}
void part_free_maps(struct part_writer *w);
void part_widen(struct part_writer *w, int64_t t0, int64_t t1);
int part_no_memory(const struct part_writer *w, struct err *err);
/* Definitions of the catalog ids that were met. */
[[nodiscard]] int part_put_names(struct part_writer *w, const struct local_writer *lw,
                                 struct err *err);
