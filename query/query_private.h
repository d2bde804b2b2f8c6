// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "query/query.h"
#include "storage/store.h"

/*
 * What the files of query/ share. The way of a question:
 *
 *   select.c when.c regex.c   texts -> struct query
 *   gather.c                  store_scan -> sums by function node, one accumulator per trie and
 * group union.c                   those -> one tree over all tries, with totals tree.c that -> the
 * picture: view, trimming, order top.c series.c            that, or sums by bucket -> tables
 *   quality.c                 store_cover -> coverage, loss, why an answer is empty
 *   steps.c                   which steps, as windows of a scan; the list of them
 *   beside.c metrics.c coverage.c   what stands beside weights
 */

__extension__ typedef unsigned __int128 query_u128;

/* ---- regex.c: PCRE2 under limits, no JIT ---------------------------------------------------- */

#define QUERY_REGEX_MAX  1024 /* bytes of a pattern */
#define QUERY_REGEX_NEST 32   /* nested groups */

struct query_regex;

/* whole: the pattern must match the whole text (selectors); else it is searched for. */
[[nodiscard]] int query_regex_new(struct str pattern, bool whole, bool ignore_case,
                                  const char *param, struct query_regex **ret, struct query_err *e);
struct query_regex *query_regex_free(struct query_regex *re); /* NULL is a no-op */
/* 1 yes, 0 no, -E2BIG it took more than its limits allow. One thread at a time. */
int query_regex_match(struct query_regex *re, struct str text);

/* A search pattern: [scope=]text, [scope=]/regex/ or [scope=]/regex/i. */
enum query_scope {
    QUERY_IN_FN = 0,
    QUERY_IN_BIN,
    QUERY_IN_FILE,
};
struct query_pattern {
    enum query_scope scope;
    struct str text; /* lower case; regex NULL */
    struct query_regex *regex;
};
[[nodiscard]] int query_pattern_new(struct arena *a, struct str text, const char *param,
                                    struct query_pattern *ret, struct query_err *e);
void query_pattern_deinit(struct query_pattern *p);
/* 1, 0, -E2BIG */
int query_pattern_match(const struct query_pattern *p, const struct query_func *f);

/* ---- when.c: instants and durations ---------------------------------------------------------- */

[[nodiscard]] int query_when(struct str s, real_ns now, const char *param, real_ns *ret,
                             bool *ret_relative, struct query_err *e);
real_ns query_now(real_ns now);

/* ---- select.c -------------------------------------------------------------------------------- */

#define QUERY_MATCHERS_MAX 32

struct query_select {
    bool has_type;
    struct str name, unit, kind; /* empty: not said */
    uint32_t n;
    struct store_matcher *matcher;
    struct query_regex **regex; /* NULL where the operator needs none */
    struct str *text;           /* each condition as it was written */
};

/* Into a; deinit frees the regular expressions. matcher[].match and .ctx are the caller's to set.
 */
[[nodiscard]] int query_select_parse(struct arena *a, struct str text, struct query_select *ret,
                                     struct query_err *e);
void query_select_deinit(struct query_select *s);

/* The type that the selector means; fills q->head.type. */
[[nodiscard]] int query_select_type(struct query *q, struct query_err *e);

/* ---- the question ---------------------------------------------------------------------------- */

struct query {
    struct query_conf conf;
    struct query_head head;
    real_ns at;
    struct arena arena;
    struct query_select select;
    struct store_matcher *matcher;
    atomic_int match_failed; /* -E2BIG or -ETIMEDOUT of a matcher, in some worker */
    uint32_t n_by, groups;
    struct str by[QUERY_BY_MAX];
    uint32_t
        n_window; /* with a step asked for at least 1: nothing is taken by a window of nobody */
    const struct store_window *window;
    struct store_view *view;
    uint64_t lsn;                /* of the store before the view was taken */
    struct query_gather *gather; /* freed by query_free */
};

/* The selector of the question; type NONE if it names none. */
struct store_selector query_selector(const struct query *q);

/* Past the deadline or cancelled? 0, or an error. */
[[nodiscard]] int query_alive(const struct query *q, struct query_err *e);

/* Turn a negative result of the store into ours. */
[[nodiscard]] int query_store_failed(struct query *q, int r, const struct err *err,
                                     struct query_err *e);

/* The arena or another budget is used up. */
[[nodiscard]] int query_no_memory(const struct query *q, struct query_err *e);

/* n zeroed entries in the arena, or an error. */
#define QUERY_NEW(q, ret, n, e)                                                                    \
    do {                                                                                           \
        *(ret) = arena_calloc(&(q)->arena, (n), sizeof **(ret));                                   \
        if (!*(ret)) {                                                                             \
            (void)query_no_memory((q), (e));                                                       \
            return -ENOMEM;                                                                        \
        }                                                                                          \
    } while (0)

/* A copy in the arena, or an error. */
[[nodiscard]] int query_copy(struct query *q, struct str s, struct str *ret, struct query_err *e);

/* rows with room for one more behind n of them: an array in the arena that doubles. NULL: an error.
 */
[[nodiscard]] void *query_grow(struct query *q, void *rows, uint32_t n, uint32_t *room, size_t size,
                               struct query_err *e);

/* ---- beside.c -------------------------------------------------------------------------------- */

/* Which things beside profiles the selector takes: see query.h. */
struct query_takes {
    struct query *q;
    bool all;           /* there are no conditions */
    bool by_process;    /* there is one that names a process or thread */
    uint32_t n;         /* processes with selected data in range */
    const uint64_t *id; /* rising */
};
[[nodiscard]] int query_takes_init(struct query *q, struct query_takes *ret, struct query_err *e);
/* Is this one of the processes? */
bool query_takes_process(const struct query_takes *t, const struct target_key *key);
/* 1, 0, or an error. labels NULL: it has none of its own; key NULL: no process; tid 0: no thread.
 */
[[nodiscard]] int query_takes(const struct query_takes *t, const struct store_labels *labels,
                              const struct target_key *key, uint32_t tid, struct query_err *e);

[[nodiscard]] int query_labels_copy(struct query *q, const struct store_labels *l,
                                    struct query_labels *ret, struct query_err *e);
/* Every type that occurs, for answers that name them by id. */
[[nodiscard]] int query_types_all(struct query *q, struct query_types *ret, struct query_err *e);
/* NULL: it does not occur */
const struct query_type *query_type_of(const struct query_types *types, ptype_id id);
struct query_owner query_owner_of(const struct target_key *key);

/* ---- steps.c --------------------------------------------------------------------------------- */

/* A step was asked for, and none is known: what is inside it nobody can say. */
static inline bool query_no_steps(const struct query *q)
{
    return q->head.step.name.n && q->head.step.n == 0;
}

/* step= of the question: fills q->head.step and the windows. */
[[nodiscard]] int query_step_open(struct query *q, struct str text, struct query_err *e);

/* ---- series.c -------------------------------------------------------------------------------- */

/* How long a bucket is, within the limits. */
[[nodiscard]] int query_bucket_length(struct query *q, const struct query_series_ask *ask,
                                      int64_t *ret, struct query_err *e);
struct interval query_bucket_at(const struct query *q, int64_t bucket_ns, uint32_t i);

/* ---- gather.c -------------------------------------------------------------------------------- */

/* Levels are added as fixed point with so many bits behind the point, and rounded once. */
#define QUERY_FIX_BITS 16

static inline unit_i128 query_round(unit_i128 fixed)
{
    return (fixed + ((unit_i128)1 << (QUERY_FIX_BITS - 1))) >> QUERY_FIX_BITS;
}

/* Sums of one trie and group by function node; of totals by bucket. */
struct query_acc {
    struct store_trie_id trie;
    uint32_t group;        /* index, or STORE_REST */
    uint32_t n;            /* function nodes, or buckets */
    const uint32_t *fnode; /* the trie's, node -> function node */
    unit_i128 *sum;        /* levels: fixed point */
    uint64_t *count;
    uint64_t *unknown; /* bits: counts are lower bounds */
    double var;
    bool var_missing;
};

struct query_gather_worker;

struct query_gather {
    struct query *q;
    uint32_t n_bucket; /* 0: by function node */
    uint32_t n_worker;
    struct query_gather_worker *worker;
    atomic_ullong used; /* bytes */
    struct store_answer answer;
    bool partial;
    uint32_t n_group; /* that acc.group indexes */
    const struct store_group *group;
    uint32_t n_acc; /* of all workers, by trie, then group */
    struct query_acc **acc;
};

/*
 * Scan. bucket_ns > 0: sums by bucket, else stacks. With by: the largest q->groups groups, the rest
 * under STORE_REST (a scan of totals before chooses them). Into q->gather; what was there is freed.
 */
[[nodiscard]] int query_gather(struct query *q, int64_t bucket_ns, struct query_err *e);
struct query_gather *query_gather_free(struct query_gather *g);

/* The scan's store_query, for tests of levels. */
enum store_level query_level(const struct query *q);

static inline bool query_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i >> 6] >> (i & 63) & 1;
}

static inline void query_bit_set(uint64_t *bits, uint32_t i)
{
    bits[i >> 6] |= UINT64_C(1) << (i & 63);
}

/* ---- union.c --------------------------------------------------------------------------------- */

/* Weight of stacks in the way that quality tells of. */
struct query_stacks {
    unit_i128 no_stack, truncated, unsymbolised;
};

/* One tree over all tries. Node 0 is the root; parents come first. */
struct query_tree {
    bool inverted; /* leaves first: self stands where the stack begins */
    uint32_t n, cap;
    uint32_t *parent, *func;
    unit_i128 *self, *total;
    uint64_t *samples;      /* of the subtree */
    uint64_t *self_samples; /* its own */
    uint8_t *flag;
    uint64_t *hash;
    struct map child; /* parent << 32 | func -> node */

    uint32_t n_func, cap_func;
    struct query_func *fn; /* 0: the root */
    uint8_t *fn_flag;
    struct map fn_by_id;  /* epoch << 32 | function -> func */
    struct map fn_by_key; /* key, or a rehash of it -> func */
};

enum {
    QUERY_NODE_AGAIN = 1,   /* an ancestor has its function */
    QUERY_NODE_UNKNOWN = 2, /* samples of the subtree are a lower bound */
    QUERY_NODE_TOP = 4,     /* stacks begin below it: the root, or a level of by= */
};

enum {
    QUERY_FN_NO_STACK = 1,
    QUERY_FN_TRUNCATED = 2,
    QUERY_FN_UNSYMBOLISED = 4,
};

[[nodiscard]] int query_tree_build(struct query *q, bool invert, struct query_tree *ret,
                                   struct query_err *e);
void query_tree_deinit(struct query_tree *t); /* its maps; the rest is in the arena */
struct query_stacks query_tree_stacks(const struct query_tree *t);

/* ret[f] = 1 if function f matches. */
[[nodiscard]] int query_tree_match(struct query *q, const struct query_tree *t,
                                   const struct query_pattern *p, const char *param, uint8_t *ret,
                                   struct query_err *e);

/* ---- quality.c ------------------------------------------------------------------------------- */

/* Merged, rising, apart. */
struct query_spans {
    uint32_t n;
    struct interval *v;
};

/* One record of a source, copied. */
struct query_cover {
    uint64_t scope;
    struct interval t;
    bool covers, ended;
    enum source_state state;
    struct str why;
    enum basis basis;
    int64_t period, skew_ns;
    uint64_t expected, received;
    uint32_t n_loss;
    struct query_loss *loss;
    struct store_labels labels;
    bool has_target;
    struct target_key target;
};

struct query_evidence {
    uint32_t n;
    struct query_cover *cover; /* by scope, then time */
    struct query_spans covered;
    unit_i128 source_asked_ns, source_ns;
    uint32_t sources;
    bool partial;
};

[[nodiscard]] int query_evidence(struct query *q, struct query_evidence *ret, struct query_err *e);

/* What the evidence says where want(ctx, cover) is true: spans, merged. */
[[nodiscard]] int query_spans(struct query *q, const struct query_evidence *ev,
                              bool (*want)(const void *ctx, const struct query_cover *c),
                              const void *ctx, struct query_spans *ret, struct query_err *e);
/* One scope's records, by time: how long it was asked, and the union of what it covered; added. */
void query_source_time(struct query_cover *const *c, uint32_t n, struct interval range,
                       unit_i128 *asked, unit_i128 *covered);
/* Losses of these records by reason, largest weight first. */
[[nodiscard]] int query_losses(struct query *q, struct query_cover *const *c, uint32_t n_cover,
                               uint32_t *ret_n, const struct query_loss **ret, struct query_err *e);
int64_t query_spans_len(const struct query_spans *s, struct interval cut);

/*
 * Everything that stands beside a total. total and samples are what the scan added up; stacks NULL:
 * no stacks were read. Sets ret->total to QUERY_UNKNOWN where nothing was covered.
 */
[[nodiscard]] int query_sums(struct query *q, const struct query_evidence *ev, unit_i128 total,
                             uint64_t samples, const struct query_stacks *stacks,
                             struct query_sums *ret, struct query_err *e);
