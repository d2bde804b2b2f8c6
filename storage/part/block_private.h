// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/unit.h"
#include "storage/file/cell_private.h"

/*
 * A block: at most 65,536 rows of one profile type and one trie, as columns (docs/format-shard.md).
 * It is two byte strings: cols, the rows; summary, their sums by node, which is also what node
 * numbers in cols refer to. Pure functions from arrays to bytes and back; no file, no SQLite.
 *
 *   Units    times in ms since 1970 (block_rows) or ns (block_meta); values in the type's unit
 *   Threads  a block_coder is working memory of one thread; what a reader returns lies in it, until
 *            the next call of the same function, or in the bytes that were opened
 *   Errors   -EBADMSG damage, err says which column; -EINVAL rows that no block can hold; -ENOMEM.
 *            Damaged bytes never read or write outside, whatever they are: the checksum of the row
 *            they came from says whether they are what was written
 */
#define BLOCK_ROWS   65536u
#define BLOCK_SLICES 64u
#define BLOCK_SLICE  4096u /* rows of a slice, about */

#define BLOCK_RAW_MS    1u     /* quantum of the raw tier */
#define BLOCK_MINUTE_MS 60000u /* of the minute tier */

/*
 * Rows, sorted by (ms, series, thread, node). A row of a level is a reading: ms is the millisecond
 * in which its record of coverage begins, held reaches to the one in which that ends, attr is the
 * part's scope of the record (part_scope), so that row and record find each other.
 */
struct block_rows {
    uint32_t n;
    int64_t *ms;                      /* start of the row; a multiple of the quantum */
    uint32_t *series, *thread, *node; /* thread: id of the part's local table */
    uint64_t *count;                  /* NULL: all 1; an entry 0: unknown */
    int64_t *value;                   /* NULL: count x period in every row */
    unit_i128 *wide;                  /* instead of value where one does not fit */
    int64_t period;                   /* V */
    uint32_t *cpu;                    /* NULL: none; number + 1, 0 not kept */
    uint32_t *attr;                   /* NULL: none; attribute set, 0 none */
    float *var;                       /* NULL: none; NaN unknown */
    uint32_t *held;                   /* levels, always: ms that the reading holds; NULL for sums */
};

enum block_flag {
    BLOCK_COUNTS = 1,    /* counts stored in the summary; else count = row frequency */
    BLOCK_SUMS = 2,      /* sums stored; else sum = count x V */
    BLOCK_VARIANCES = 4, /* some rows have one */
    BLOCK_UNKNOWN = 8,   /* some counts unknown: sums of counts are lower bounds */
};

/* Columns of table block. Which type and trie it is of is the caller's to say. */
struct block_meta {
    ptype_id type;
    uint32_t svc, sub;
    int64_t t0, t1; /* ns, half-open; of levels t1 is the latest end of a reading */
    uint32_t n;
    uint64_t count;
    uint32_t smin, smax;
    int64_t vmin, vmax; /* of the rows, cut to 64 bits: n x the larger bounds any partial sum */
    unit_i128 total;    /* levels: sum of value x held ms */
    uint32_t flags;     /* enum block_flag */
};

/* ---- working memory ---- */

struct block_coder;

struct block_coder *
block_coder_new(void); /* NULL: memory is short. About 4 MiB once all was used */
struct block_coder *block_coder_free(struct block_coder *c);

/* ---- writing ---- */

/*
 * Rows to bytes, appended to summary and cols; *ret but for type, svc, sub. The same rows always
 * give the same bytes, and so does what block_decode makes of them.
 *   quantum  BLOCK_RAW_MS or BLOCK_MINUTE_MS
 *   errors   -EINVAL not sorted, n of 0 or above the limit, a time off the quantum; a buf that is
 *            full is -E2BIG
 */
[[nodiscard]] int block_encode(struct block_coder *c, const struct block_rows *r, uint32_t quantum,
                               struct block_meta *ret, struct buf *summary, struct buf *cols,
                               struct err *err);

/*
 * Bring rows into the order that block_encode wants; rows that are equal in all four keep theirs.
 * Any n; temporary memory in tmp: 32 bytes a row, 40 with wide.
 */
[[nodiscard]] int block_sort(struct block_rows *r, struct arena *tmp, struct err *err);

/* ---- summaries: a block's or an hsum's sums by node ---- */

/* Nodes by falling row frequency, ties by rising node: the position is the rank. */
struct summary {
    uint32_t n, many; /* many: those with more than one row come first */
    uint32_t flags;   /* BLOCK_COUNTS, _SUMS, _VARIANCES */
    int64_t v;
    const uint32_t *node, *freq;
    const uint64_t *count; /* NULL: freq */
    const int64_t *sum;    /* NULL: count x v, or wide */
    const unit_i128 *wide; /* where a sum needs more than 64 bits */
    const double *var;     /* NULL: none; NaN: some row of the node did not say */
};

/* n_node: ids of the trie are below it, which bounds memory; a node beyond is damage. */
[[nodiscard]] int summary_open(struct block_coder *c, struct str bytes, uint32_t n_node,
                               struct summary *ret, struct err *err);

/* Dense accumulators, by node. */
struct sum_at {
    uint64_t count;
    int64_t sum;
};
struct sum_wide {
    unit_i128 sum;
    uint64_t count;
};

/* The caller knows that no partial sum leaves 64 bits (block_meta.vmin, vmax). */
void summary_add(const struct summary *s, struct sum_at *at);
void summary_add_wide(const struct summary *s, struct sum_wide *at);
/* Sum of one entry. */
static inline unit_i128 summary_sum(const struct summary *s, uint32_t i)
{
    if (s->sum)
        return s->sum[i];
    return s->wide ? s->wide[i] : (unit_i128)s->v * (s->count ? s->count[i] : s->freq[i]);
}

/* Collects summaries of blocks for an hsum. */
struct sum_entry {
    uint32_t node, freq;
    uint64_t count;
    unit_i128 sum;
    double var; /* NaN: unknown */
};

struct sum_set {
    uint32_t n, room;
    struct sum_entry *v;
};

void sum_set_init(struct sum_set *s);
void sum_set_deinit(struct sum_set *s);
void sum_set_reset(struct sum_set *s); /* empty, memory kept */
[[nodiscard]] int sum_set_add(struct sum_set *s, const struct summary *block, struct err *err);
/* Equal nodes become one; afterwards v is by rising node, none twice. */
[[nodiscard]] int sum_set_merge(struct sum_set *s, struct err *err);
/* After sum_set_merge: appends the bytes. flags: what they hold. */
[[nodiscard]] int sum_set_encode(struct block_coder *c, const struct sum_set *s, struct buf *out,
                                 uint32_t *ret_flags, struct err *err);

/* ---- reading ---- */

enum block_mode {
    BLOCK_CONST = 0,     /* every value is V */
    BLOCK_PER_COUNT = 1, /* count x V */
    BLOCK_VALUES = 2,
    BLOCK_WIDE = 3, /* 128 bits */
};

struct block_cell {
    uint8_t id, codec;
    uint32_t raw, stored;
    const uint8_t *p;
};

struct block_slice {
    uint32_t first, span; /* quanta since the block's origin: of its first row; to its last row */
    uint32_t n, keys, gap, n_cell;
    struct block_cell cell[32]; /* by rising id */
};

struct block {
    enum block_mode mode;
    bool level; /* has held, and the value of each row */
    uint32_t n, n_slice, quantum;
    int64_t origin_ms, v;
    const uint8_t *end; /* of its bytes */
    struct block_slice slice[BLOCK_SLICES];
};

/* The directory of cols. bytes must outlive *ret, which is large (50 KiB): not for the stack. */
[[nodiscard]] int block_open(struct str bytes, struct block *ret, struct err *err);

/* Some row's count is not 1. */
bool block_has_counts(const struct block *b);

/* Ms of the slice's first and last row. */
static inline int64_t slice_first_ms(const struct block *b, const struct block_slice *s)
{
    return b->origin_ms + (int64_t)s->first * b->quantum;
}
static inline int64_t slice_last_ms(const struct block *b, const struct block_slice *s)
{
    return b->origin_ms + ((int64_t)s->first + s->span) * b->quantum;
}

/* Rows [*ret_from, *ret_to) of slice k: those with lo <= ms < hi. Decodes times only at an edge. */
[[nodiscard]] int slice_range(struct block_coder *c, const struct block *b, uint32_t k, int64_t lo,
                              int64_t hi, uint32_t *ret_from, uint32_t *ret_to, struct err *err);

/* edge[i]: the first row at or after first_ns + i x step_ns, n of them. */
[[nodiscard]] int slice_edges(struct block_coder *c, const struct block *b, uint32_t k,
                              int64_t first_ns, int64_t step_ns, uint32_t n, uint32_t *edge,
                              struct err *err);

/*
 * Add rows [from, to) of slice k to count[rank]; count has room for n + RANK_SLACK, n that of the
 * summary. The caller checks once at the end that count[n] and beyond are still 0: else damage.
 *   takes  by key of the slice: 1 its rows count, 0 they do not. NULL: all do
 */
[[nodiscard]] int slice_count(struct block_coder *c, const struct block *b, uint32_t k, uint32_t n,
                              uint32_t from, uint32_t to, const uint8_t *takes, uint32_t *count,
                              struct err *err);

/* Rows by key of the slice in each stretch [edge[e], edge[e + 1]): count[e * keys + key]. */
[[nodiscard]] int slice_count_keys(struct block_coder *c, const struct block *b, uint32_t k,
                                   uint32_t n_edge, const uint32_t *edge, uint32_t *count,
                                   struct err *err);

enum slice_want {
    SLICE_KEY = 1,
    SLICE_TIME = 2,
    SLICE_RANK = 4,
    SLICE_COUNT = 8,
    SLICE_VALUE = 16, /* of modes 2 and 3; needs rank too */
    SLICE_CPU = 32,
    SLICE_ATTR = 64,
    SLICE_VAR = 128,
    SLICE_HELD = 256,
    SLICE_ALL = 511,
};

/* Columns of one slice, by row. What was not wanted is NULL. */
struct slice_rows {
    uint32_t n, n_key;
    const uint32_t *key; /* index into the next two */
    const uint32_t *key_series, *key_thread;
    const uint32_t *t;                 /* quanta since the block's origin */
    const uint32_t *rank;              /* below n of the summary */
    const uint64_t *count;             /* NULL too: all 1 */
    const int64_t *value;              /* NULL too: modes 0 and 1, and 3 */
    const unit_i128 *wide;             /* mode 3 */
    const uint32_t *cpu, *attr, *held; /* NULL too: all 0 */
    const float *var;                  /* NULL too: unknown in all */
};

/* The keys of a slice alone: n, n_key, key_series, key_thread. They last until the next slice_keys
 * or slice_read. */
[[nodiscard]] int slice_keys(struct block_coder *c, const struct block *b, uint32_t k,
                             struct slice_rows *ret, struct err *err);

/* s: the block's summary. What is returned lasts until the next slice_read of the coder. */
[[nodiscard]] int slice_read(struct block_coder *c, const struct block *b, const struct summary *s,
                             uint32_t k, uint32_t want, struct slice_rows *ret, struct err *err);

/*
 * All rows exactly as they were, in arena. count NULL where all were 1, value NULL where all were
 * count x period, whatever form block_encode was given.
 */
[[nodiscard]] int block_decode(struct block_coder *c, struct str summary, struct str cols,
                               uint32_t n_node, struct arena *arena, struct block_rows *ret,
                               struct err *err);

/*
 * Decode all, compute meta and summary again from the rows and compare: for `strata check`, and for
 * whoever has just written. -EBADMSG names what differs. tmp: what is decoded lies in it.
 */
[[nodiscard]] int block_check(struct block_coder *c, const struct block_meta *meta,
                              struct str summary, struct str cols, uint32_t n_node,
                              struct arena *tmp, struct err *err);
