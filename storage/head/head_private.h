// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <endian.h>
#include <string.h>

#include "storage/dict/dict_private.h"
#include "storage/dict/local_private.h"

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

/* What a row has; each is a number. */
enum head_what {
    HEAD_TIME, /* ms above the chunk's base, zigzag */
    HEAD_SERIES,
    HEAD_NODE,
    HEAD_THREAD,
    HEAD_COUNT,
    HEAD_VALUE,
    HEAD_CPU,   /* number + 1, below LOCAL_CPUS */
    HEAD_COVER, /* levels: record that the reading is of, + 1 */
    HEAD_VAR,   /* bits of the double */
    HEAD_COLUMNS
};

/* One number per row of a chunk, little-endian, each in as many bytes as the largest has needed so
 * far: a larger one makes a wider copy. */
struct head_column {
    uint32_t width; /* 1 to 8 */
    uint8_t v[];
};

/*
 * Rows of one group. A column that is NULL holds in every row what stands in `same`; that of values
 * count x period. A chunk has room for an eighth of what its group has already, so that what is not
 * used stays small beside what is.
 */
struct head_chunk {
    uint64_t first; /* number of its first row in the group */
    uint32_t n, room;
    int64_t base_ms, period; /* of the first row */
    uint64_t same[HEAD_COLUMNS];
    _Atomic(struct head_column *) column[HEAD_COLUMNS];
    _Atomic int64_t min_ms, max_ms; /* of times; both included */
};

/* How many rows the group had when the batch of that LSN was in; lsn: above head.lsn0. */
struct head_run {
    uint32_t lsn, rows;
};

/* Runs of a group, rising: as far back as there is a reader who may ask. */
struct head_runs {
    uint32_t room;
    _Atomic uint32_t n; /* published */
    struct head_run v[];
};

/* All rows of one profile type in one trie. */
struct head_group {
    ptype_id type;
    struct store_trie_id trie;
    struct dict_trie *of;
    struct vec chunk;                 /* struct head_chunk * */
    _Atomic(struct head_runs *) runs; /* NULL: none yet */
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

/* A view of the head, in order of coming: what it can see is kept. */
struct head_reader {
    struct head_reader *before, *after;
    uint64_t lsn;
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

    struct head_snap snap;                          /* under pool.mu: the newest */
    struct head_reader *first_reader, *last_reader; /* under pool.mu */
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

/* A reader comes, of what is published now; nothing of it is freed until it goes. Any thread. */
void head_enter(struct head *h, struct head_reader *r, struct head_snap *ret);
void head_leave(struct head *h, struct head_reader *r);

/* An upper bound of what the batch will take, in bytes. */
uint64_t head_estimate(const struct batch *b);

/* head.c, for apply.c. */
struct head_row {
    int64_t ms;
    uint32_t series, thread, node, cpu, cover;
    uint64_t count;
    int64_t value;
    double var;
};

/* Rows to come of one group and one period, by column: they go in together. */
#define HEAD_BATCH 128u

struct head_batch {
    uint32_t n;
    int64_t period;
    int64_t ms[HEAD_BATCH];
    uint64_t v[HEAD_COLUMNS][HEAD_BATCH]; /* that of times: made of ms */
};

static inline void head_batch_put(struct head_batch *b, const struct head_row *r)
{
    uint32_t i = b->n++;

    b->ms[i] = r->ms;
    b->v[HEAD_SERIES][i] = r->series;
    b->v[HEAD_NODE][i] = r->node;
    b->v[HEAD_THREAD][i] = r->thread;
    b->v[HEAD_COUNT][i] = r->count;
    b->v[HEAD_VALUE][i] = (uint64_t)r->value;
    b->v[HEAD_CPU][i] = r->cpu;
    b->v[HEAD_COVER][i] = r->cover;
    memcpy(&b->v[HEAD_VAR][i], &r->var, sizeof r->var);
}

struct head_group *head_group_of(struct head *h, ptype_id type, struct dict_trie *trie);
/* All of b, which is empty then. False: memory is short. */
[[nodiscard]] bool head_add_rows(struct head *h, struct head_group *g, struct head_batch *b);
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

/* Rows of a chunk among the first `rows` of its group. */
static inline uint32_t head_chunk_rows(const struct head_chunk *c, uint64_t rows)
{
    return rows - c->first < c->room ? (uint32_t)(rows - c->first) : c->room;
}

/* ---- reading rows -------------------------------------------------------------------------- */

/* A chunk's columns, to read rows by that were published before. */
struct head_rows {
    const struct head_chunk *c;
    const struct head_column *column[HEAD_COLUMNS];
};

static inline void head_rows_of(const struct head_chunk *c, struct head_rows *ret)
{
    ret->c = c;
    for (int k = 0; k < HEAD_COLUMNS; k++)
        ret->column[k] = atomic_load_explicit(&c->column[k], memory_order_acquire);
}

/* Never a byte beyond the number: the next one may be in the making. */
static inline uint64_t head_column_at(const struct head_column *v, uint32_t i)
{
    const uint8_t *p = v->v + (size_t)i * v->width;
    uint64_t x = 0;

    switch (v->width) {
    case 1:
        return *p;
    case 2:
        memcpy(&x, p, 2);
        break;
    case 3:
        memcpy(&x, p, 3);
        break;
    case 4:
        memcpy(&x, p, 4);
        break;
    default:
        memcpy(&x, p, v->width);
        break;
    }
    return le64toh(x);
}

static inline uint64_t head_number(const struct head_rows *r, enum head_what what, uint32_t i)
{
    return r->column[what] ? head_column_at(r->column[what], i) : r->c->same[what];
}

/* Of n rows from i on. Of a frozen head alone: eight bytes are read at once. */
static inline void head_numbers(const struct head_rows *r, enum head_what what, uint32_t i,
                                uint32_t n, uint64_t *ret)
{
    const struct head_column *v = r->column[what];
    const uint64_t mask = v ? UINT64_MAX >> (64 - 8 * v->width) : 0;

    for (uint32_t k = 0; !v && k < n; k++)
        ret[k] = r->c->same[what];
    for (uint32_t k = 0; v && k < n; k++) {
        memcpy(&ret[k], v->v + (size_t)(i + k) * v->width, sizeof ret[k]);
        ret[k] = le64toh(ret[k]) & mask;
    }
}

static inline uint32_t head_u32(const struct head_rows *r, enum head_what what, uint32_t i)
{
    return (uint32_t)head_number(r, what, i);
}

static inline int64_t head_ms_of(const struct head_rows *r, uint64_t x)
{
    return r->c->base_ms + (int64_t)(x >> 1 ^ (0 - (x & 1)));
}

static inline int64_t head_ms(const struct head_rows *r, uint32_t i)
{
    return head_ms_of(r, head_number(r, HEAD_TIME, i));
}

static inline int64_t head_value(const struct head_rows *r, uint32_t i)
{
    const struct head_column *v = r->column[HEAD_VALUE];

    return v ? (int64_t)head_column_at(v, i)
             : (int64_t)head_number(r, HEAD_COUNT, i) * r->c->period;
}

static inline double head_var(const struct head_rows *r, uint32_t i)
{
    uint64_t bits = head_number(r, HEAD_VAR, i);
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Does any row hold another number than that? */
static inline bool head_differs(const struct head_rows *r, enum head_what what, uint64_t x)
{
    return r->column[what] || r->c->same[what] != x;
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
