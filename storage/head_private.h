// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/dict_private.h"

/*
 * The head: rows as columns in memory, and what stands beside them. The apply thread writes, in
 * order of LSN; views read what was published when they were taken (struct head_snap) without a
 * lock. Nothing that a view can see changes, but for pointers that lead to the newest version of
 * something (atomic; older versions are chained) and bounds of time that can only widen.
 *
 * Time of a row is the millisecond it falls into: the resolution of the raw tier. Selections
 * compare its start, so a cut of a range anywhere gives parts that add up.
 */
#define HEAD_CHUNK_MIN 64u
#define HEAD_CHUNK_MAX 16384u
#define HEAD_THREADS   1000000u
#define HEAD_CPUS      65535u

struct head_svc {
    struct link link;
    uint32_t name; /* text */
    uint32_t trie; /* index of it in head.trie */
    uint32_t n_series;
    uint32_t overflow; /* label set of its folded series, 0 before it is needed */
};

struct head_ptype {
    struct link link;
    ptype_id id;
    uint32_t name, unit; /* texts */
    enum ptype_kind kind;
};

struct head_series {
    struct link link;
    ptype_id type;
    uint32_t labels, svc;
    bool overflow;
};

struct head_thread {
    struct link link;
    uint32_t target, tid, name; /* name: text */
};

struct head_target {
    struct link link;
    struct target_key key;
    uint64_t id;
    _Atomic uint32_t info; /* newest version + 1 */
};

struct head_info {
    uint32_t prev; /* version + 1 */
    uint32_t exe, cmdline, comm, cgroup, container, env, flags;
};

struct head_scope {
    struct link link;
    ptype_id type;
    uint32_t labels, target;
    _Atomic uint32_t last; /* newest record + 1 */
};

struct head_loss {
    uint32_t why;
    uint64_t n;
    int64_t weight;
};

struct head_cover {
    uint32_t scope, prev; /* the record before it of the scope, + 1 */
    uint32_t series;      /* of a stream without rows: the series that is covered and zero; or 0 */
    struct interval t;
    real_ns at;
    uint32_t width, why, n_loss, loss; /* why: text; loss: index of the first */
    uint8_t state, basis;
    bool ended;
    int64_t period, jitter, skew_ns;
    uint64_t expected, received;
};

struct head_mseries {
    struct link link;
    uint32_t name, unit, labels, target;
    enum metric_kind kind;
    bool is_int;
    _Atomic uint32_t last; /* newest points + 1 */
};

struct head_metric {
    uint32_t series, prev; /* prev + 1 */
    uint32_t n;
    const real_ns *t;
    const double *num;
    const int64_t *inum;
    const uint8_t *status;
};

struct head_step {
    uint32_t target, name, labels, tid;
    bool inferred;
    uint64_t number;
    struct interval t;
    uint32_t n_part;
    const uint32_t *part; /* texts */
    const int64_t *part_ns;
};

struct head_event {
    real_ns t;
    uint32_t kind, text, target;
};

/*
 * Rows of one group. A column that is NULL holds its default in every row: count 1, value count x
 * period, variance unknown (NaN), cpu 0, cover 0. One that comes into being later is filled first.
 */
struct head_chunk {
    uint64_t first; /* number of its first row in the group */
    uint32_t n, room;
    int64_t base_ms, period;
    uint32_t *t, *series, *thread, *node; /* t: ms above base_ms */
    _Atomic(int64_t *) value;
    _Atomic(uint64_t *) count;
    _Atomic(uint32_t *) cpu;   /* index into head.cpu */
    _Atomic(uint32_t *) cover; /* levels: record that the reading is of */
    _Atomic(double *) var;
    _Atomic int64_t min_ms, max_ms; /* of t; both included */
    _Atomic uint32_t end; /* rows, where the next chunk began before it was full; else 0 */
};

/* How many rows the group had when the batch of that LSN was in. */
struct head_run {
    uint64_t lsn, rows;
};

/* All rows of one profile type in one trie. */
struct head_group {
    ptype_id type;
    uint32_t trie;
    struct vec chunk; /* struct head_chunk * */
    struct vec run;   /* struct head_run */
    _Atomic uint32_t n_run;
    uint64_t rows;
    bool dirty;
};

/* What a view sees: lengths, and the LSN by which runs are cut. */
struct head_snap {
    uint64_t lsn, rows;
    uint32_t svc, ptype, series, thread, target, info, scope, cover, loss, mseries, metric, step,
        event, cpu, group, labels, trie;
    int64_t oldest_ms, newest_ms; /* of rows; oldest > newest: none */
};

struct head {
    struct pool pool;
    struct dict dict;
    pthread_rwlock_t ids; /* maps of nodes: the apply thread writes, store_append looks */
    struct table svc, ptype, series, thread, target, scope, mseries;
    struct vec info, cover, loss, metric, step, event, cpu;
    struct vec trie;     /* struct dict_trie * */
    struct vec group;    /* struct head_group * */
    struct map group_of; /* trie << 32 | type -> group + 1 */
    struct map cpu_of;   /* number + 1 -> index */
    struct arena scratch;
    struct vec touched; /* uint32_t: groups with unpublished rows */
    uint32_t n_folded_series;
    int64_t oldest_ms, newest_ms;
    uint64_t rows;

    struct head_snap snap; /* under pool.mu: the newest */
    _Atomic uint64_t stack_folded, series_overflow, service_missing, attr_overflow, damaged_rows,
        hash_clashes;
};

struct head_conf {
    uint64_t seed;
    uint32_t trie_nodes;
};

[[nodiscard]] int head_init(struct head *h, const struct head_conf *conf, struct err *err);
void head_deinit(struct head *h);

/*
 * Add a batch and publish it as of lsn. On -ENOMEM nothing of it is visible, and the head must not
 * be written again: what was taken half stays behind the published lengths.
 */
[[nodiscard]] int head_apply(struct head *h, const struct batch *b, uint64_t lsn,
                             const struct batch_limits *limits, struct err *err);

/* An upper bound of what the batch will take, in bytes. */
uint64_t head_estimate(const struct batch *b);

/* Does the head hold every node that the batch only names? Any thread. */
bool head_knows(struct head *h, const struct batch *b);

/* head.c, for apply.c. Ids; UINT32_MAX when memory is short. */
struct head_row {
    int64_t ms;
    uint32_t series, thread, node, cpu, cover;
    uint64_t count;
    int64_t value, period;
    double var;
};

uint32_t head_service(struct head *h, uint32_t name);
uint32_t head_type(struct head *h, struct str name, struct str unit, enum ptype_kind kind);
uint32_t head_series_of(struct head *h, ptype_id type, uint32_t labels,
                        const struct batch_limits *limits);
uint32_t head_thread_of(struct head *h, uint32_t target, uint32_t tid, uint32_t name);
uint32_t head_target_of(struct head *h, const struct target_key *key);
uint32_t head_scope_of(struct head *h, ptype_id type, uint32_t labels, uint32_t target);
uint32_t head_cpu_of(struct head *h, uint32_t cpu);
struct head_group *head_group_of(struct head *h, ptype_id type, uint32_t trie);
[[nodiscard]] bool head_add_row(struct head *h, struct head_group *g, const struct head_row *r);
/* Show all that was added, as of lsn. False, nothing shown: memory is short. */
[[nodiscard]] bool head_publish(struct head *h, uint64_t lsn);

/* Text of a built-in or imported type; false if no such type below the snapshot. */
bool head_type_info(const struct head *h, uint32_t n_ptype, ptype_id id, struct store_type *ret);

/* Rows of g in a view of lsn. */
uint64_t head_group_rows(const struct head_group *g, uint64_t lsn);

/* Rows of a chunk among the first `rows` of its group. A chunk that rows go beyond has its end. */
static inline uint32_t head_chunk_rows(const struct head_chunk *c, uint64_t rows)
{
    uint32_t end = atomic_load_explicit(&c->end, memory_order_relaxed);
    uint32_t most = end ? end : c->room;

    return rows - c->first < most ? (uint32_t)(rows - c->first) : most;
}

static inline struct dict_trie *head_trie(const struct head *h, uint32_t i)
{
    return *VEC(&h->trie, struct dict_trie *, i);
}

static inline struct str head_str(const struct head *h, uint32_t text)
{
    return dict_str(&h->dict, text);
}

static inline const struct dict_labels *head_labels(const struct head *h, uint32_t set)
{
    return TABLE(&h->dict.labels, struct dict_labels, set);
}

/* Rounded down, also before 1970. */
static inline int64_t ms_floor(real_ns t)
{
    return t.v / NS_PER_MS - (t.v % NS_PER_MS < 0);
}

/* The first millisecond that starts at or after t. */
static inline int64_t ms_ceil(real_ns t)
{
    return t.v / NS_PER_MS + (t.v % NS_PER_MS > 0);
}
