// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/dict_private.h"
#include "storage/local_private.h"

/*
 * A head: rows as columns in memory, and what stands beside them, between two seals. The apply
 * thread writes, in order of LSN; views read what was published when they were taken (struct
 * head_snap) without a lock. Nothing that a view can see changes, but for pointers that lead to the
 * newest version of something (atomic; older versions are chained) and bounds of time that can only
 * widen. A frozen head is not written again: all of it may be read.
 *
 * Time of a row is the millisecond it falls into: the resolution of the raw tier. Selections
 * compare its start, so a cut of a range anywhere gives parts that add up.
 */
#define HEAD_CHUNK_MIN 64u
#define HEAD_CHUNK_MAX 16384u

/*
 * Rows of one group. A column that is NULL holds its default in every row: thread and period of the
 * first one, count 1, value count x period, variance unknown (NaN), cpu 0, cover 0. One that comes
 * into being later is filled first. A chunk has room for an eighth of what its group has already,
 * so that what is not used stays small beside what is.
 */
struct head_chunk {
    uint64_t first; /* number of its first row in the group */
    uint32_t n, room, one_thread;
    int64_t base_ms, period;
    uint32_t *t, *series, *node; /* t: ms above base_ms; of the chunk's own block */
    _Atomic(uint32_t *) thread;
    _Atomic(int64_t *) value;
    _Atomic(uint64_t *) count;
    _Atomic(uint32_t *) cpu;   /* number + 1, below LOCAL_CPUS */
    _Atomic(uint32_t *) cover; /* levels: record that the reading is of, + 1 */
    _Atomic(double *) var;
    _Atomic int64_t min_ms, max_ms; /* of t; both included */
    _Atomic uint32_t end; /* rows, where the next chunk began before it was full; else 0 */
};

/* How many rows the group had when the batch of that LSN was in: one per batch and group, which is
 * much where a batch has a few rows of many services. lsn: above head.lsn0. */
struct head_run {
    uint32_t lsn, rows;
};

/* All rows of one profile type in one trie. */
struct head_group {
    ptype_id type;
    struct store_trie_id trie;
    struct dict_trie *of;
    struct vec chunk; /* struct head_chunk * */
    struct vec run;   /* struct head_run */
    _Atomic uint32_t n_run;
    uint64_t rows;
    uint32_t at; /* index in head.group */
    bool dirty;
};

/* What a view sees: lengths, and the LSN by which runs are cut. */
struct head_snap {
    uint64_t lsn, rows;
    uint32_t group;
    struct local_snap local;
    struct names_snap names;
    int64_t oldest_ms, newest_ms; /* of rows; oldest > newest: none */
    int64_t t0, t1;               /* ns, of all it holds: [t0, t1); t0 >= t1: nothing */
};

/* Counted over all heads. */
struct head_stats {
    _Atomic uint64_t rows, stack_folded, series_overflow, service_missing, attr_overflow,
        damaged_rows, hash_clashes;
};

struct head {
    _Atomic uint32_t refs;
    struct names *names; /* the store's */
    struct epoch *epoch; /* counted */
    struct head_stats *stats;
    struct pool pool;
    struct local local;
    struct vec group;    /* struct head_group * */
    struct map group_of; /* sub << 48 | svc << 16 | type's small number -> group + 1 */
    struct arena scratch;
    struct vec touched; /* uint32_t: groups with unpublished rows */
    int64_t oldest_ms, newest_ms, t0, t1;
    uint64_t rows, payload; /* payload: bytes of journal in it */
    uint64_t lsn0;          /* the LSN before that of the first rows; fixed from then on */

    struct head_snap snap; /* under pool.mu: the newest */
};

struct head_conf {
    struct names *names;
    struct epoch *epoch;
    struct head_stats *stats;
    uint64_t seed, lsn; /* lsn: all up to it is elsewhere */
};

/* One reference, the caller's. NULL: memory is short. */
struct head *head_new(const struct head_conf *conf);
void head_ref(struct head *h);
void head_unref(struct head *h); /* the last one frees; NULL is a no-op */

/*
 * Add a batch and publish it as of lsn. On -ENOMEM nothing of it is visible, and neither the head
 * nor its names and epoch must be written again: what was taken half stays behind the published
 * lengths.
 */
[[nodiscard]] int head_apply(struct head *h, const struct batch *b, uint64_t lsn,
                             const struct batch_limits *limits, struct err *err);

/* An upper bound of what the batch will take, in bytes. */
uint64_t head_estimate(const struct batch *b);

/* head.c, for apply.c. */
struct head_row {
    int64_t ms;
    uint32_t series, thread, node, cpu, cover;
    uint64_t count;
    int64_t value, period;
    double var;
};

struct head_group *head_group_of(struct head *h, ptype_id type, struct dict_trie *trie);
[[nodiscard]] bool head_add_row(struct head *h, struct head_group *g, const struct head_row *r);
/* The head holds something in [t0, t1) beside rows. */
void head_widen(struct head *h, struct interval t);
/* Show all that was added, as of lsn. False, nothing shown: memory is short. */
[[nodiscard]] bool head_publish(struct head *h, uint64_t lsn);

/* Rows of g in a view of lsn. */
uint64_t head_group_rows(const struct head *h, const struct head_group *g, uint64_t lsn);

static inline struct head_group *head_group_at(const struct head *h, uint32_t i)
{
    return *VEC(&h->group, struct head_group *, i);
}

/* Rows of a chunk among the first `rows` of its group. A chunk that rows go beyond has its end. */
static inline uint32_t head_chunk_rows(const struct head_chunk *c, uint64_t rows)
{
    uint32_t end = atomic_load_explicit(&c->end, memory_order_relaxed);
    uint32_t most = end ? end : c->room;

    return rows - c->first < most ? (uint32_t)(rows - c->first) : most;
}

static inline uint32_t head_thread(const struct head_chunk *c, const uint32_t *thread, uint32_t i)
{
    return thread ? thread[i] : c->one_thread;
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
