// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/keep/view_private.h"
#include "storage/part/part_rows_private.h"
#include "storage/part/scan_cache_private.h"

/*
 * store_scan. A task is one trie: all rows of the asked type in it, of all sources. Tries are dealt
 * to workers, the ones with the most rows first, and each is handed out as a whole by the worker
 * that had it. What is added up lies in cells, one for each (side, group, bucket, den).
 *
 *   scan.c         workers            scan_plan.c    what there is to read
 *   scan_gang.c    large tries        scan_cache.c   sums of parts that are asked for again
 *   scan_head.c    rows of heads      scan_part.c    parts: the cheapest way to each block
 *   scan_cell.c    sums by node       scan_column.c  rows of blocks
 *   scan_group.c   groups             scan_level.c   readings
 *   scan_rows.c    STORE_ROWS         scan_answer.c  etag, damage, the answer
 */
#define SCAN_BUCKETS 1000000u

/* Stretches of one process that a side is restricted to: sorted, merged. */
struct scan_window {
    uint32_t target; /* number in the view */
    int64_t lo, hi;  /* ms, half-open */
};

/* A reading that answers for a bucket: STORE_NOW, STORE_AT. A head's rows know their record, those
 * of a part its scope and when it holds. */
struct scan_reading {
    uint32_t source, id; /* record; of a part: scope */
    int64_t lo, hi;      /* ms, of a part; else 0 */
    uint32_t bucket;
};

struct scan_side {
    struct selection sel;
    struct interval range;
    struct interval data; /* what holds something for it: the range, or the instant of STORE_AT */
    int64_t lo, hi;       /* first and last ms + 1 of rows */
    uint32_t n_window;
    const struct scan_window *window;
    const uint32_t *before; /* by place in scan.by_svc: selected series before it */
    /* levels */
    uint32_t n_reading;
    const struct scan_reading *reading; /* sorted by all fields */
    const int64_t *den;                 /* average: [series * buckets + bucket], ms */
};

/* What rows are grouped by: a number per series, thread or cpu, and its text. */
struct scan_by {
    enum attr attr;         /* ATTR_NONE: a label */
    const uint32_t *series; /* label: by series id, texts of names */
    uint32_t **thread;      /* attributes but cpu: by source, then thread id */
    struct vec text;        /* struct str, of attributes but cpu: by number */
};

struct scan_group {
    uint32_t num[STORE_BY_MAX];
    uint32_t out; /* index in the answer, or STORE_REST */
};

/* Rows of the type in one trie, of one source. */
struct scan_item {
    uint32_t source;
    const struct head_group *g; /* of a head */
    struct part *part;          /* of a part */
    const struct part_block *block;
    uint32_t n_block;
    bool whole;    /* hsum or totals answer for all of it, on each side */
    uint64_t rows; /* of a part: what they cost to read, in rows */
};

/* All rows of the type in one trie. */
struct scan_task {
    struct store_trie_id trie;
    uint64_t rows;
    uint32_t n_item;
    const struct scan_item *item; /* by source: parts, then heads */
    struct scan_gang *gang;       /* all workers read it */
};

struct scan_gang; /* scan_gang.c */

struct scan_damage {
    struct interval t;
    uint32_t source;
    struct str what; /* in scan.q->arena */
};

struct scan {
    struct store_view *v;
    const struct store_query *q;
    const struct store_sink *sink;
    struct scan_cache *cache; /* NULL: none */
    struct arena *tmp;        /* during preparation only */
    struct pool pool;         /* of vecs and tables here */
    ptype_id type;
    enum ptype_kind kind;
    struct opened
        *o;        /* by source: those that a side's range touches, where the question needs it */
    bool *touched; /* by source */
    uint32_t n_bucket;
    struct scan_side side[2];
    struct scan_by by[STORE_BY_MAX];
    bool by_attr;           /* one of them is an attribute */
    const uint32_t *by_svc; /* series of the type, by service, then id */
    const uint32_t *svc_at; /* by service: its first place in by_svc; one more at the end */

    uint32_t n_task, n_gang; /* the first n_gang are read by all workers */
    bool one_share;          /* there is but one trie, and what comes of it is one cell */
    struct scan_task *task;  /* most rows first */
    _Atomic uint32_t next;   /* behind those */
    _Atomic int result;      /* the first failure */
    uint64_t mem_max;        /* of one worker */

    struct mutex mu; /* groups, damage, err, q->arena during the scan */
    struct table group;
    struct vec out;    /* struct store_group */
    struct vec damage; /* struct scan_damage */
    struct err err;
};

/* Partial sums of one (side, group, bucket, den): by node, or for the single node 0. */
struct scan_cell {
    uint32_t side, group, bucket;
    int64_t den;
    bool dense, count_unknown, var_missing;
    bool open;        /* bound is not known: rows were added one by one */
    uint32_t n, room; /* dense: n = room */
    struct map at;    /* sparse: node -> place */
    uint32_t *node;   /* sparse */
    struct sum_at *sum;
    struct sum_wide *wide; /* instead of sum, once a sum might not fit */
    double *var;
    unit_i128 bound;         /* no sum is further from 0 */
    const void *bounded_for; /* the block whose rows are in bound already */
};

struct scan_cell_ref {
    struct scan_cell *cell;
};

struct scan_reader;

/* Columns of the share that is handed out. */
enum scan_out {
    SCAN_OUT_NODE,
    SCAN_OUT_COUNT,
    SCAN_OUT_SUM,
    SCAN_OUT_VAR,
    SCAN_OUTS,
};

struct scan_worker {
    struct scan *sc;
    uint32_t no;
    struct arena mem;
    struct pool pool; /* of the two tables */
    struct store_trie_id trie;
    uint32_t n_node;
    uint64_t rows; /* of the task */
    bool alone;    /* the task is one item, and no other worker has it */
    const uint64_t *nodes;
    uint32_t source; /* of the rows that are added */
    struct buf out[SCAN_OUTS];
    struct table cell;          /* struct scan_cell_ref */
    struct scan_cell *last;     /* the one used before */
    struct table group;         /* cache of sc->group */
    struct scan_reader *reader; /* scan_part.c: made with the first part */
    struct scan_cell *capture;  /* takes all that is added, for the cache; else NULL */
    struct scan_cell *spare;    /* the task's, for the next capture: empty */
    bool capture_bad;           /* something of it could not be read */
    struct err err;
};

struct scan_row {
    uint32_t series, thread, cpu, node; /* cpu: number + 1 */
    uint64_t count;
    int64_t value;
    double var;
};

/* ---- scan_plan.c, scan_answer.c ---- */

[[nodiscard]] int scan_plan(struct scan *sc, uint64_t *ret_rows, struct err *err);
[[nodiscard]] int scan_answer(const struct scan *sc, struct store_answer *ret, struct err *err);
/* Something of a source could not be read; err is cleared. -ENOMEM. */
[[nodiscard]] int scan_damaged(struct scan *sc, uint32_t source, struct interval t,
                               struct err *err);

/* How many of the series [smin, smax] of a service are selected. */
enum scan_pick {
    SCAN_NONE,
    SCAN_SOME,
    SCAN_ALL,
};
/* First place in by_svc of that service whose series is id or above. */
uint32_t scan_series_from(const struct scan *sc, uint32_t svc, uint32_t id);
enum scan_pick scan_pick(const struct scan *sc, const struct scan_side *side, uint32_t svc,
                         uint32_t smin, uint32_t smax);
/* Bucket of a row's time; in range. */
static inline uint32_t scan_bucket(const struct scan *sc, const struct scan_side *side, int64_t ms)
{
    if (sc->q->bucket_ns == 0)
        return 0;
    return (uint32_t)((ms * NS_PER_MS - side->range.t0.v) / sc->q->bucket_ns);
}

/* ---- scan_level.c ---- */

/* Fill side->den or side->reading. */
[[nodiscard]] int scan_level_plan(struct scan *sc, struct scan_side *side, struct err *err);
/* A row whose reading holds over [lo, hi) ms. id: its record, or scope of a part. */
[[nodiscard]] int scan_level_add(struct scan_worker *w, uint32_t side, const struct scan_row *row,
                                 uint32_t id, int64_t lo, int64_t hi);

/* ---- scan_cell.c ---- */

[[nodiscard]] int scan_cell_add(struct scan_worker *w, uint32_t side, uint32_t group,
                                uint32_t bucket, int64_t den, const struct scan_row *row,
                                unit_i128 value);
/* For many rows at once. NULL: w->err is set. */
struct scan_cell *scan_cell_of(struct scan_worker *w, uint32_t side, uint32_t group,
                               uint32_t bucket);
/* All that is added from now on goes to a cell of its own; false: w->err is set. */
[[nodiscard]] bool scan_cell_capture(struct scan_worker *w);
/* What was captured, NULL where it cannot be kept; afterwards nothing is captured. */
struct scan_cached *scan_cell_captured(struct scan_worker *w);
[[nodiscard]] int scan_cell_add_cached(struct scan_worker *w, struct scan_cell *c,
                                       const struct scan_cached *e);
/* Up to sum will be added: wide sums where 64 bits might not do. key: once for
 * each; NULL: each time. */
[[nodiscard]] int scan_cell_bound(struct scan_worker *w, struct scan_cell *c, unit_i128 sum,
                                  const void *key);
/* Place of a node in sum or wide; false: w->err is set. */
[[nodiscard]] bool scan_cell_place(struct scan_worker *w, struct scan_cell *c, uint32_t node,
                                   uint32_t *ret);
static inline bool scan_cell_at(struct scan_worker *w, struct scan_cell *c, uint32_t node,
                                uint32_t *ret)
{
    if (!c->dense)
        return scan_cell_place(w, c, node, ret);
    *ret = c->n == 1 ? 0 : node; /* one number of all, or a trie without stacks */
    return true;
}
/* NaN: not known. */
[[nodiscard]] bool scan_cell_var(struct scan_worker *w, struct scan_cell *c, uint32_t at,
                                 double var);
/* Add the cells of another worker, which had the same trie. */
[[nodiscard]] int scan_cell_merge(struct scan_worker *w, const struct scan_worker *from);
/* Hand all cells of the trie to the sink. */
[[nodiscard]] int scan_cell_emit(struct scan_worker *w);
/* Hand out a summary in place of a cell: 64 bits are enough, and it has no variances. */
[[nodiscard]] int scan_cell_emit_summary(struct scan_worker *w, const struct summary *s,
                                         uint32_t group, uint32_t bucket, uint32_t flags);
/* The same of rows that weigh v each: count by rank in the summary. */
[[nodiscard]] int scan_cell_emit_counts(struct scan_worker *w, const struct summary *s,
                                        const uint32_t *count, int64_t v, uint32_t group,
                                        uint32_t bucket);
/* Forget them, and all of w->mem. */
void scan_cell_drop(struct scan_worker *w);

/* ---- scan_group.c ---- */

[[nodiscard]] int scan_group_plan(struct scan *sc, struct err *err);
void scan_group_free(struct scan *sc);
/* Group of a row: index or STORE_REST in *ret. */
[[nodiscard]] int scan_group_of(struct scan_worker *w, const struct scan_row *row, uint32_t *ret);
/* Are all of these series of a service in one group? */
bool scan_group_one(const struct scan *sc, uint32_t svc, uint32_t smin, uint32_t smax);

/* ---- scan_rows.c: STORE_ROWS of one trie ---- */

[[nodiscard]] int scan_rows(struct scan_worker *w, const struct scan_task *t);

/* ---- scan_head.c ---- */

[[nodiscard]] int scan_head(struct scan_worker *w, const struct scan_item *it);
void scan_load(const struct head_rows *r, uint32_t i, struct scan_row *ret);
bool scan_takes(const struct scan_worker *w, const struct scan_side *side,
                const struct scan_row *row, int64_t ms);
bool scan_in_window(const struct scan_worker *w, const struct scan_side *side, uint32_t thread,
                    int64_t ms);
[[nodiscard]] int scan_add(struct scan_worker *w, uint32_t side, uint32_t bucket, int64_t den,
                           const struct scan_row *row, unit_i128 value);

/* ---- scan_part.c, scan_column.c ---- */

/* Of one (series, thread) of a slice. */
struct scan_key {
    struct scan_cell *cell;
    uint32_t stamp; /* of the bucket that cell is of */
    bool known, takes;
};

/* What a worker needs to read parts. */
struct scan_reader {
    struct part_rows *rows; /* its handle, coder, block */
    uint32_t *count;        /* by rank; the first columns that are read make these: a megabyte */
    uint8_t *takes;         /* by key of a slice */
    uint32_t *edge;         /* of stretches of a slice */
    struct scan_key *key;   /* by key of a slice */
};

/* One block, for one side. */
struct scan_block {
    const struct scan_item *it;
    const struct part_block *b;
    uint32_t side;
    enum scan_pick pick;
    int64_t lo, hi;             /* ms: what of it lies in range, or may */
    bool inside;                /* all of it */
    bool one_group, one_bucket; /* all its rows in range are in one */
    bool alone; /* nothing else goes into the trie's one cell: its sums may be handed out as such */
};

/* The cell of a block that lies in one, ready for all its rows. NULL: w->err is set. */
struct scan_cell *scan_block_cell(struct scan_worker *w, const struct scan_block *x);
/* An upper bound of what its rows can come to. */
unit_i128 scan_block_bound(const struct block_meta *m);

[[nodiscard]] int scan_part(struct scan_worker *w, const struct scan_item *it);
/* n of its blocks, one by one. */
[[nodiscard]] int scan_blocks(struct scan_worker *w, const struct scan_item *it, uint32_t from,
                              uint32_t n);
/* Fill it->whole, it->rows. */
void scan_part_cost(const struct scan *sc, struct scan_item *it);
/* w->err says why a block failed with r: damage in the answer, 0; else r. */
[[nodiscard]] int scan_block_failed(struct scan_worker *w, const struct scan_item *it,
                                    const struct part_block *b, int r);
/* The worker's reader, its handle open for the part. */
[[nodiscard]] int scan_reader_open(struct scan_worker *w, struct part *part);
/* And its arrays, for columns. */
[[nodiscard]] int scan_reader_arrays(struct scan_worker *w);
void scan_reader_free(struct scan_worker *w);
[[nodiscard]] int scan_columns(struct scan_worker *w, const struct scan_block *x);

/* ---- scan.c ---- */

/* A gang of all workers for the trie; false: no use, or no memory. */
bool scan_gang_new(struct scan *sc, struct scan_task *t, uint32_t workers);
void scan_gang_free(struct scan_task *t);
/* By each worker, with w->trie set. */
[[nodiscard]] int scan_gang_run(struct scan_worker *w, struct scan_gang *g);
void scan_gang_end(struct scan *sc, struct scan_gang *g);

/* The scan ends with r and w->err, unless another worker was first. */
void scan_failed(struct scan_worker *w, int r);
/* Deadline, cancel, another worker's failure. */
[[nodiscard]] int scan_check(struct scan_worker *w);
