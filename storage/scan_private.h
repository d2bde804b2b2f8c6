// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/view_private.h"

#define SCAN_BUCKETS 1000000u

/* Stretches of one process that a side is restricted to: sorted, merged. */
struct scan_window {
    uint32_t target; /* number in the view */
    int64_t lo, hi;  /* ms, half-open */
};

/* A reading that answers for a bucket: STORE_NOW, STORE_AT. */
struct scan_reading {
    uint32_t source, cover, bucket;
};

struct scan_side {
    struct selection sel;
    struct interval range;
    int64_t lo, hi; /* first and last ms + 1 of rows */
    uint32_t n_window;
    const struct scan_window *window;
    /* levels */
    uint32_t n_reading;
    const struct scan_reading *reading; /* by source, cover, bucket */
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
    struct link link;
    uint32_t num[STORE_BY_MAX];
    uint32_t out; /* index in the answer, or STORE_REST */
};

/* Rows of the type in one trie, of one source. */
struct scan_item {
    uint32_t source;
    const struct head_group *g; /* of a head */
    uint64_t rows;
};

/* All rows of the type in one trie. */
struct scan_task {
    struct store_trie_id trie;
    uint64_t rows;
    uint32_t n_item;
    const struct scan_item *item; /* by source: oldest first */
};

struct scan {
    struct store_view *v;
    const struct store_query *q;
    const struct store_sink *sink;
    struct arena *tmp; /* during preparation only */
    struct pool pool;  /* of vecs and tables here */
    ptype_id type;
    enum ptype_kind kind;
    struct opened *o; /* by source: those that a side's range touches */
    uint32_t n_bucket;
    struct scan_side side[2];
    struct scan_by by[STORE_BY_MAX];

    uint32_t n_task, n_worker;
    struct scan_task *task; /* most rows first */
    _Atomic uint32_t next;
    _Atomic int result; /* the first failure */
    uint64_t mem_max;   /* of one worker */

    struct mutex mu; /* groups, err, q->arena during the scan */
    struct table group;
    struct vec out; /* struct store_group */
    struct err err;
};

/* Partial sums of one (side, group, bucket, den): by node, or for the single node 0. */
struct scan_cell {
    struct link link;
    uint32_t side, group, bucket;
    int64_t den;
    bool dense, count_unknown, var_missing;
    uint32_t n, room; /* dense: n = room */
    struct map at;    /* sparse: node -> place */
    uint32_t *node;   /* sparse */
    uint64_t *count;
    int64_t *sum;
    unit_i128 *wide; /* instead of sum, once a sum did not fit */
    double *var;
};

struct scan_cell_ref {
    struct link link;
    struct scan_cell *cell;
};

struct scan_worker {
    struct scan *sc;
    uint32_t no;
    struct arena mem;
    struct pool pool; /* of the two tables */
    struct store_trie_id trie;
    uint32_t n_node;
    const uint64_t *nodes;
    uint32_t source;        /* of the rows that are added */
    struct table cell;      /* struct scan_cell_ref */
    struct scan_cell *last; /* the one used before */
    struct table group;     /* cache of sc->group */
    struct err err;
};

struct scan_row {
    uint32_t series, thread, cpu, node; /* cpu: number + 1 */
    uint64_t count;
    int64_t value;
    double var;
};

/* scan_level.c: fill side->den or side->reading. */
[[nodiscard]] int scan_level_plan(struct scan *sc, struct scan_side *side, struct err *err);
/* Milliseconds at which bucket b of a side begins; b may be n_bucket: the end. */
int64_t scan_edge(const struct scan *sc, const struct scan_side *side, uint32_t b);

/* scan_cell.c */
[[nodiscard]] int scan_cell_add(struct scan_worker *w, uint32_t side, uint32_t group,
                                uint32_t bucket, int64_t den, const struct scan_row *row,
                                unit_i128 value);
/* Hand all cells of the trie to the sink. */
[[nodiscard]] int scan_cell_emit(struct scan_worker *w);
/* Forget them, and all of w->mem. */
void scan_cell_drop(struct scan_worker *w);

/* scan_group.c */
[[nodiscard]] int scan_group_plan(struct scan *sc, struct err *err);
void scan_group_free(struct scan *sc);
/* Group of a row: index or STORE_REST in *ret. */
[[nodiscard]] int scan_group_of(struct scan_worker *w, const struct scan_row *row, uint32_t *ret);

/* scan_rows.c: STORE_ROWS of one trie. */
[[nodiscard]] int scan_rows(struct scan_worker *w, const struct scan_task *t);

/* scan.c */
/* A row of the chunk. cover: its record + 1. */
void scan_load(const struct head_chunk *c, uint32_t i, struct scan_row *ret, uint32_t *ret_cover);
bool scan_takes(const struct scan_worker *w, const struct scan_side *side,
                const struct scan_row *row, int64_t ms);
/* Deadline, cancel, another worker's failure. */
[[nodiscard]] int scan_check(struct scan_worker *w);
