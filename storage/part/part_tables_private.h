// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/file/cell_private.h"
#include "storage/file/db_private.h"
#include "storage/part/part_private.h"

/*
 * What part_write.c, part_read.c, part_local.c and check.c share: the tables of a part, and the
 * encodings of what stands beside rows (docs/format-shard.md).
 */
#define PART_PAGE 2048u

extern const struct db_kind part_kind;

/* Kinds of table local. On disk: append only. */
enum part_local_kind {
    PART_SERIES = 1,   /* of the catalog: id, type, service, label set */
    PART_LABELSET = 2, /* of the catalog: id, pairs */
    PART_TARGET = 3,
    PART_THREAD = 4,
    PART_TEXT = 6,
    PART_MSERIES = 7,
    PART_SVC = 8,   /* of the catalog: id, name */
    PART_PTYPE = 9, /* of the catalog: id, name, unit, kind */
};

#define PART_CHUNK 4096u /* entries of a row of local, steps or points of a row */

/* Integer columns of table block, in this order; total is its blob. */
enum {
    BLOCK_COLUMNS = 13
};
void block_columns(uint32_t id, const struct block_meta *m, int64_t ret[static BLOCK_COLUMNS]);
void block_total(unit_i128 total, uint8_t ret[static 16]);

#define BLOCK_SELECT                                                                               \
    "SELECT id, type, svc, sub, t0, t1, n, count, smin, smax, vmin, vmax, flags, total, sum "      \
    "FROM block ORDER BY id"
/* The row that st stands on. */
[[nodiscard]] int block_take(const struct db *db, sqlite3_stmt *st, struct part_block *ret,
                             struct err *err);

/* Meta holds the sum of the sums of all rows, by who reads them, so that a row that is lost with
 * its page is noticed. */
enum part_fold_of {
    FOLD_META = 0,  /* block, hsum: read with the part */
    FOLD_LOCAL = 1, /* cover, metric, step, event, local of its own */
    FOLD_NAMES = 2, /* local: what the catalog says too */
    FOLD_BLOBS = 3, /* summary, cols: each is missed when it is asked for */
    PART_FOLDS
};
extern const char *const part_fold_key[PART_FOLDS];

struct part_fold {
    uint64_t sum;
};
static inline void part_fold_add(struct part_fold *f, int64_t sum)
{
    f->sum += (uint64_t)sum;
}
/* What meta says; -EBADMSG if it is another. */
[[nodiscard]] int part_fold_check(const struct db *db, enum part_fold_of of,
                                  const struct part_fold *is, struct err *err);

/* Sorted pairs <-> bytes: varint n, then name and value as varint length and bytes. */
void labels_put(struct buf *b, uint32_t n, const struct store_label *v);
/* Calls back with each pair; false: damage. */
typedef bool labels_pair_fn(void *ctx, struct str name, struct str value);
[[nodiscard]] bool labels_get(struct cell_in *in, labels_pair_fn *fn, void *ctx);

/* First varint of a record of table cover: which optional fields follow. */
enum {
    COVER_ENDED = 1,
    COVER_AT = 2,
    COVER_SERIES = 4,
    COVER_LOSS = 8,
    COVER_SKEW = 16,
    COVER_JITTER = 32,
    COVER_ALL = 63,
};

/* First varint of a record of table step. */
enum {
    STEP_INFERRED = 1,
    STEP_SAME_PARTS = 2, /* names of the parts as in the record before */
    STEP_ALL = 3,
};

/* All tables of l. sums: do values of the type add over time (its records may merge)? */
struct local_writer {
    const struct db *db;
    struct cell_coder *coder;
    struct buf *tmp, *data;
    struct part_fold *fold;
    bool (*sums)(void *ctx, ptype_id type);
    void *ctx;
};
[[nodiscard]] int local_write(const struct local_writer *w, const struct local *l, struct err *err);

/* The opposite: l is fresh from local_init(). limits: catalog ids are below. */
[[nodiscard]] int local_read(const struct db *db, const struct names_snap *limits, struct local *l,
                             struct err *err);

/* One row of a chunked table: cell of records, with the row's integers. */
[[nodiscard]] int chunk_put(const struct local_writer *w, enum db_table table, sqlite3_stmt *st,
                            const int64_t *v, size_t n, enum cell_level level, struct err *err);
