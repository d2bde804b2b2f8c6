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
 *   gather.c shares.c         store_scan -> sums by function node, one accumulator per trie, side
 *                             and group
 *   union.c                   those -> one tree over all tries, with totals
 *   layer.c                   the same by numbers of functions, without names: sums of layers
 *   shown.c                   of those what is large enough to be shown, named
 *   whole.c                   of those all nodes, of one question or of two sides
 *   inverted.c                of those what is shown of stacks with their leaves first
 *   thin.c                    of one trie what is shown, while it is scanned
 *   numbers.c                 names and searches of all nodes, for tables
 *   own.c                     whether frames of one function are apart until patterns are tried
 *   filter.c shape.c          that -> the tree that is shown: filters, names, leaves first
 *   view.c                    that -> rows: view, trimming, order
 *   tree.c sandwich.c diff.c compare.c   the answers made of them
 *   top.c series.c            the tree, or sums by bucket -> tables
 *   quality.c                 store_cover -> coverage, loss, why an answer is empty
 *   steps.c                   which steps, as windows of a scan; the list of them
 *   beside.c metrics.c coverage.c   what stands beside weights
 */

__extension__ typedef unsigned __int128 query_u128;

/* ---- regex.c: PCRE2 under limits, no JIT ---------------------------------------------------- */

#define QUERY_REGEX_MAX  1024 /* bytes of a pattern */
#define QUERY_REGEX_NEST 32   /* nested groups */
#define QUERY_EXACT_MAX  8192 /* bytes of a name that a filter is given whole */

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
    QUERY_IN_KIND, /* filters only */
};
struct query_pattern {
    enum query_scope scope;
    bool exact;      /* the whole text, as written (filters) */
    struct str text; /* else lower case; regex NULL */
    struct query_regex *regex;
    struct str source; /* of regex */
    bool fold;
};
[[nodiscard]] int query_pattern_new(struct arena *a, struct str text, const char *param,
                                    struct query_pattern *ret, struct query_err *e);
/* The pattern of a filter: [scope=]text, which is the whole name, or [scope=]/regex/. Borrows text.
 */
[[nodiscard]] int query_pattern_filter(struct str text, const char *param,
                                       struct query_pattern *ret, struct query_err *e);
/* One for another thread. Borrows what p borrows. */
[[nodiscard]] int query_pattern_clone(const struct query_pattern *p, const char *param,
                                      struct query_pattern *ret, struct query_err *e);
void query_pattern_deinit(struct query_pattern *p);
/* 1, 0, -E2BIG */
int query_pattern_match(const struct query_pattern *p, const struct query_func *f);
/* Does it see what frames of one function may differ in? */
static inline bool query_pattern_own(const struct query_pattern *p)
{
    return p->scope == QUERY_IN_FILE || p->scope == QUERY_IN_KIND;
}
/* The same of a search pattern as it is written. */
bool query_search_own(struct str text);

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

/* ---- filter.c -------------------------------------------------------------------------------- */

enum query_verb {
    QUERY_KEEP = 0,
    QUERY_DROP,
    QUERY_START,
    QUERY_MERGE,
    QUERY_COLLAPSE,
    QUERY_COLLAPSE_RECURSION, /* has no pattern */
};

struct query_filter {
    enum query_verb verb;
    struct query_pattern pattern;
    struct str text; /* as asked for */
};

struct query_filters {
    uint32_t n;
    bool drops; /* one of them takes samples out */
    bool own;   /* one of them sees a frame's own file, binary or kind */
    struct query_filter v[QUERY_FILTER_MAX];
};

/* Copies into a. deinit frees the regular expressions; a zeroed one is a no-op. */
[[nodiscard]] int query_filters_parse(struct arena *a, const struct str *text, uint32_t n,
                                      struct query_filters *ret, struct query_err *e);
[[nodiscard]] int query_filters_clone(const struct query_filters *f, struct query_filters *ret,
                                      struct query_err *e);
void query_filters_deinit(struct query_filters *f);

/* Stacks as a tree, parents first: a trie's function nodes, or the union of several. */
struct query_paths {
    uint32_t n, n_func;
    const uint32_t *parent, *func;
    const uint32_t *same; /* function -> number of what collapse:recursion takes it for; NULL:
                             itself */
    const uint8_t *level; /* not 0: no frame, but what stacks hang under; NULL: node 0 alone */
};

/* What the filters make of it. All that decides is a node's path, so every answer is per node. */
struct query_fate {
    uint8_t *present; /* its frame stays in the stacks that pass it */
    uint8_t
        *dead; /* samples that end at it: 0 stay, else number + 1 of the filter that took them */
};

/* hit[k][f] = 1: the pattern of filter k matches function f. Arrays of p->n, zeroed, are ret's. */
[[nodiscard]] int query_filters_apply(const struct query *q, const struct query_filters *f,
                                      const struct query_paths *p, uint8_t *const *hit,
                                      uint32_t *scratch, struct query_fate *ret,
                                      struct query_err *e);

/*
 * The nodes of a trie whose weight the filters let count: bits as in store_query.nodes, of malloc.
 *   ret_bytes  of it
 */
[[nodiscard]] int query_filters_nodes(struct query *q, const struct query_filters *f,
                                      struct store_trie_id trie, uint64_t **ret,
                                      uint64_t *ret_bytes, struct query_err *e);

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
    struct query_filters filters;
    bool short_names;         /* asked for; whether there are any: query_gather.shortens */
    enum query_detail detail; /* of the answer being made */
    bool own;                 /* patterns are tried that see what frames have themselves: own.c */
    struct store_view *view;
    uint64_t lsn;                /* of the store before the view was taken */
    struct query_gather *gather; /* freed by query_free */
    struct query *other;         /* side B of a difference, which borrows view and gather */
    uint32_t side;               /* which one of gather's this question is */
    bool borrows;
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

/* ---- own.c: what frames of one function may differ in ---------------------------------------- */

/* What functions of a tree are told apart by beside scope and name: bits. */
enum query_apart {
    QUERY_BY_FILE = 1,
    QUERY_BY_KIND = 2, /* and binary */
};

/* What the answer about to be made shows, and what it searches for beside the filters. Before it is
 * gathered. */
void query_ask_detail(struct query *q, enum query_detail detail, const struct str *pattern,
                      uint32_t n);
/* Are weights by nodes of the tries, or by function nodes? */
static inline bool query_by_frame(const struct query *q)
{
    return q->own || q->detail != QUERY_OF_FUNCTIONS;
}
/* Of the tree that is shown; of the tree that patterns are tried on. */
uint8_t query_shown_apart(const struct query *q);
uint8_t query_tried_apart(const struct query *q);

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

/* Weight of stacks in the way that quality tells of. */
struct query_stacks {
    unit_i128 no_stack, truncated, unsymbolised;
};

/* What a share holds of one node: all there is of it, where counts and sums are small. */
struct query_entry {
    uint32_t node; /* function node; without query_acc.fnode: node */
    uint32_t count;
    int64_t sum;
};

/* A node that reached the floor. */
struct query_pick {
    uint32_t func;   /* id of the epoch */
    uint32_t parent; /* place among the picks */
    uint32_t nodes;  /* that weigh something: itself and below */
    int64_t sum, self;
    uint64_t count, self_count;
};

/* What is left of a trie of which only those are kept. */
struct query_thin {
    struct query_stacks stacks;
    uint32_t n;               /* at least 1 */
    struct query_pick pick[]; /* parents first; 0: the root, whose nodes are those below it */
};

/* Sums of one trie, side and group by function node; of totals by bucket. */
struct query_acc {
    struct store_trie_id trie;
    uint32_t side, group;  /* group: index, or STORE_REST */
    uint32_t n;            /* function nodes, nodes, or buckets */
    const uint32_t *fnode; /* the trie's, node -> function node; NULL: sums are by node */
    unit_i128 *sum;        /* levels: fixed point */
    uint64_t *count;
    uint64_t *unknown; /* bits: counts are lower bounds */
    double *var;       /* variances of the sums; NULL: none was told */
    bool var_missing;  /* some shares did not tell */
    uint32_t n_entry;  /* query_gather.listed: instead of the columns above, in no order, nodes may
                          occur more than once */
    struct query_entry *entry;
    struct query_thin *thin; /* instead of entries; what the two below say of them holds */
    unit_i128 entry_sum;
    uint64_t entry_count;
    bool below_zero; /* one of them is */
};

/* Tries that are alone under their group are thinned as they are scanned. Without by= that is the
 * one trie there is, once its share says so. */
struct query_thinning {
    uint32_t width;
    int64_t floor;       /* with by= */
    unit_i128 total;     /* of which the floor is a share */
    const uint8_t *lone; /* per group: it has one trie; the last: the rest has. NULL: without by= */
};

struct query_gather_worker;

struct query_gather {
    struct query *q;
    uint32_t n_bucket; /* 0: by function node */
    bool listed;       /* entries are enough, while they can hold it: see query_gather_columns() */
    bool tries_apart;  /* totals are by trie as well */
    const struct query_thinning *thinning; /* NULL: nothing is */
    atomic_bool torn; /* a trie came in pieces: what was thinned is no answer */
    bool shortens;    /* short names are asked for, and some name has a shorter one */
    uint32_t n_worker;
    struct query_gather_worker *worker;
    atomic_ullong used; /* bytes */
    struct store_answer answer;
    bool partial;
    uint32_t n_group; /* that acc.group indexes */
    const struct store_group *group;
    uint32_t n_acc; /* of all workers, by side, trie, then group */
    struct query_acc **acc;
};

/* What a scan read in all: unknown where any part is. */
struct query_amount {
    unit_i128 total; /* levels: fixed point, as in the accumulators */
    uint64_t samples;
};
struct query_amount query_gather_amount(const struct query_gather *g, uint32_t side);

/*
 * Scan. bucket_ns > 0: sums by bucket, else stacks. With by: the largest q->groups groups, the rest
 * under STORE_REST (a scan of totals before chooses them). Into q->gather; what was there is freed.
 */
[[nodiscard]] int query_gather(struct query *q, int64_t bucket_ns, struct query_err *e);
/* Stacks, as lists where that is possible: then q->gather->listed. */
[[nodiscard]] int query_gather_listed(struct query *q, struct query_err *e);
/* The same for a tree of what will be shown: groups may be thinned already. */
struct query_shown_ask;
[[nodiscard]] int query_gather_shown(struct query *q, const struct query_shown_ask *ask,
                                     struct query_err *e);
/* Lists into columns. Nothing is thinned. */
[[nodiscard]] int query_gather_columns(struct query_gather *g, struct query_err *e);
/* The whole range as one number, filters or not; takes the place of q->gather. */
[[nodiscard]] int query_gather_whole(struct query *q, bool filtered, struct query_amount *ret,
                                     struct query_err *e);
/* Stacks of one stretch of q's range alone, beside q->gather; the caller's to free. */
[[nodiscard]] int query_gather_part(struct query *q, struct interval range,
                                    struct query_gather **ret, struct query_err *e);
struct query_gather *query_gather_free(struct query_gather *g);

/* Memory of a worker. */
struct query_scratch {
    uint32_t room;
    uint64_t *low;
    int64_t *sum;
    uint32_t *at, *pick;
};
void query_scratch_deinit(struct query_scratch *w);
/* thin.c. Has some name of the trie a shorter one? */
bool query_trie_shortens(const struct store_trie *t);
/* What a node of the share must weigh to be shown; false: the share cannot be thinned. */
[[nodiscard]] bool query_thin_floor(const struct query_gather *g, const struct store_trie *t,
                                    const struct store_share *s, int64_t *ret);
/* floor: above 0. 1: *ret is of malloc; 0: not of these sums; -ENOMEM */
[[nodiscard]] int query_thin(struct query_scratch *w, const struct store_trie *t,
                             const struct store_share *s, int64_t floor, struct query_thin **ret);
/* Was something thinned? Then is that the answer: is what came what the floor was taken from? */
bool query_thin_any(const struct query_gather *g);
bool query_thin_answers(const struct query *q, const struct query_shown_ask *ask);

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

/* What the nodes of a tree weigh, on one side. */
struct query_weigh {
    unit_i128 *self, *total;
    uint64_t *self_samples, *samples; /* samples: of the subtree */
    double *self_var, *var;           /* var_missing: NULL */
    bool var_missing;                 /* or there is none */
};

/* One tree over all tries. Node 0 is the root; parents come first. */
/* What functions (or frames) of an epoch are called in the tree; 0: not met yet. */
struct query_ids {
    struct query_ids *older;
    uint32_t epoch, n;
    uint32_t *func;
};

struct query_tree {
    bool inverted;    /* leaves first: self stands where the stack begins */
    bool short_names; /* functions by id come in under theirs */
    uint8_t apart;    /* enum query_apart */
    uint32_t n_side;
    uint32_t n, cap;
    uint32_t *parent, *func;
    struct query_weigh w[2];
    uint8_t *flag;
    uint32_t *group; /* with by=, of nodes below a group: its number; else NULL */
    uint64_t *hash;
    uint32_t *first, *next; /* newest child; the one made before it; 0: none */
    struct map child;       /* parent << 32 | func -> node, of parents with many children */
    uint32_t *cut; /* nodes below this one and outside the tree, but in its total: see shown.c;
                      NULL: the tree is whole */
    const struct query_stacks *stacks; /* of the whole tree, where it is cut; per side */

    uint32_t n_func, cap_func;
    struct query_func *fn; /* 0: the root */
    uint8_t *fn_flag;
    struct query_ids *ids; /* of the epochs that were met */
    struct map fn_by_key;  /* key, or a rehash of it -> func */
};

enum {
    QUERY_NODE_AGAIN = 1,    /* an ancestor has its function */
    QUERY_NODE_TOP = 2,      /* stacks begin below it: the root, or the last level of by= */
    QUERY_NODE_LEVEL = 4,    /* no frame: the root, or a level of by= */
    QUERY_NODE_UNKNOWN = 8,  /* samples of the subtree are a lower bound; << 1: side B */
    QUERY_SELF_UNKNOWN = 32, /* its own are; << 1: side B */
    QUERY_NODE_MANY = 128,   /* its children are in query_tree.child */
};

enum {                  /* beside enum func_mark */
    QUERY_FN_FRAME = 8, /* of some frame, not of levels alone */
};

/* Sets up what query_tree_deinit() frees, and the root. room: nodes to come, for the memory. */
[[nodiscard]] int query_tree_init(struct query *q, struct query_tree *t, uint32_t n_side,
                                  uint32_t room, struct query_err *e);
void query_tree_deinit(struct query_tree *t); /* its maps; the rest is in the arena */
/* Find or add. */
[[nodiscard]] int query_tree_func(struct query *q, struct query_tree *t, const struct query_func *f,
                                  uint32_t *ret, struct query_err *e);
[[nodiscard]] int query_tree_child(struct query *q, struct query_tree *t, uint32_t parent,
                                   uint32_t func, uint32_t *ret, struct query_err *e);
/* The weight of node i of from goes to node k of t. */
void query_tree_give(struct query_tree *t, uint32_t k, const struct query_tree *from, uint32_t i);
/* The key of a function, beside its scope and name by what detail tells apart. */
uint64_t query_func_key(const struct query *q, const struct query_func *f);
/* Sets QUERY_NODE_AGAIN. */
[[nodiscard]] int query_tree_mark_again(struct query *q, struct query_tree *t, struct query_err *e);
/* Totals, zoom hashes and samples of subtrees, once all nodes are there. */
[[nodiscard]] int query_tree_sum(struct query *q, struct query_tree *t, struct query_err *e);
/* again[i] = 1: a node above i has its key. key: per node, below n_key; UINT32_MAX: has none. */
[[nodiscard]] int query_again(struct query *q, uint32_t n, const uint32_t *parent,
                              const uint32_t *key, uint32_t n_key, uint8_t *again,
                              struct query_err *e);
/* The same of the frames of a tree. key_of: function -> key */
[[nodiscard]] int query_tree_again(struct query *q, const struct query_tree *t,
                                   const uint32_t *key_of, uint32_t n_key, uint8_t *again,
                                   struct query_err *e);

/* Where t has the function nodes of a that weigh something: found, or added. node: a->n zeroes. */
[[nodiscard]] int query_tree_place(struct query *q, struct query_tree *t, const struct query_acc *a,
                                   uint32_t *node, struct query_err *e);
/* All that was gathered. */
[[nodiscard]] int query_tree_union(struct query *q, struct query_tree *ret, struct query_err *e);
struct query_stacks query_tree_stacks(const struct query_tree *t, uint32_t side);

/* For layer.c: a group's node; the numbers of functions by their ids in an epoch, remembered in ids
 * or several at once; room for nodes, for n more functions; a child that is known to be new. */
[[nodiscard]] int query_tree_group(struct query *q, struct query_tree *t, uint32_t group,
                                   uint32_t *ret, struct query_err *e);
[[nodiscard]] int query_tree_ids(struct query *q, struct query_tree *t, uint32_t epoch, uint32_t n,
                                 struct query_ids **ret, struct query_err *e);
[[nodiscard]] int query_tree_func_by_id(struct query *q, struct query_tree *t,
                                        struct query_ids *ids, uint32_t id, uint32_t *ret,
                                        struct query_err *e);
#define QUERY_FUNCS_MAX 64U
[[nodiscard]] int query_tree_funcs(struct query *q, struct query_tree *t, uint32_t epoch,
                                   uint32_t n, const uint32_t *id, uint32_t *ret,
                                   struct query_err *e);
[[nodiscard]] int query_tree_room(struct query *q, struct query_tree *t, uint32_t cap,
                                  struct query_err *e);
[[nodiscard]] int query_tree_func_room(struct query *q, struct query_tree *t, uint32_t n,
                                       struct query_err *e);
[[nodiscard]] int query_tree_add(struct query *q, struct query_tree *t, uint32_t parent,
                                 uint32_t func, uint32_t *ret, struct query_err *e);

/* ---- shown.c: the tree of what will be shown, names last ------------------------------------- */

struct query_shown_ask {
    uint32_t width; /* above 0 */
    uint64_t root;
    struct str match; /* what is searched for: query_shape.seen; {NULL, 0}: nothing */
};

struct query_shape;

/*
 * What query_shape() makes, without the nodes that are too small to be shown: their number is in
 * cut[], their weight in their ancestors' totals. Of a tree before filters there are the sums
 * alone. ret_done  false: not for this question or these data; nothing was done, the gather is
 * whole
 */
[[nodiscard]] int query_tree_shown(struct query *q, const struct query_shown_ask *ask,
                                   struct query_shape *ret, bool *ret_done, struct query_err *e);
/* Is this a question, and are these data, for it? */
bool query_tree_shown_fits(const struct query *q, const struct query_shown_ask *ask);
/* The smallest sum that is shown in a view. */
int64_t query_floor(unit_i128 view, uint32_t width);

/* A node and all below it, in 16 bytes: one line of cache holds a node, its parent and two more. */
#define QUERY_NODE_BITS 28 /* of low */
struct query_slim {
    int64_t sum;  /* not negative; of what is shown -1 - its number in the tree */
    uint64_t low; /* observations << QUERY_NODE_BITS | nodes, itself included; 0: weighs nothing */
};

/* ---- whole.c ----------------------------------------------------------------------------------
 */

/*
 * All tries as one, without by=, by numbers of functions: what tables are made of. Parents come
 * first; 0 is the root.
 */
struct query_numbers {
    uint32_t n; /* 0: nothing was gathered */
    const uint32_t *parent, *func;
    bool named; /* func: of the tree; else ids of the epoch */
    uint32_t epoch;
    const struct query_slim *sum; /* of subtrees */
    const uint64_t *again;        /* bits: the function is above the node as well */
    uint32_t n_acc;
    struct query_acc *const *acc; /* their entries name nodes: weights of their own */
    const uint32_t *name; /* id of the epoch -> function of the tree, of nodes that weigh something;
                             NULL: func is that already, or query_numbers_name() was not called */
    struct query_tree merged;
};

struct query_search;
/*
 * ret_done: as above. ret_s->t: the root, its sums; functions as they are met. stacks: they alone
 * are asked for: functions have full names, again is NULL. search: where frames are apart each is
 * done here; else query_numbers_find() does it.
 */
[[nodiscard]] int query_tree_numbers(struct query *q, bool stacks, uint32_t n_search,
                                     struct query_search *search, struct query_shape *ret_s,
                                     struct query_numbers *ret, bool *ret_done,
                                     struct query_err *e);
void query_numbers_deinit(struct query_numbers *u);

/* The same with by=: fn is called with each level's, which last until it returns. t: levels, with
 * their sums, and functions; group: as in query_tree.group. 0, or an error. */
typedef int query_numbers_fn(void *ctx, struct query_tree *t, struct query_numbers *u,
                             uint32_t group, struct query_err *e);
[[nodiscard]] int query_tree_numbers_by(struct query *q, query_numbers_fn *fn, void *ctx,
                                        struct query_shape *ret, bool *ret_done,
                                        struct query_err *e);

/* The tries of two sides as one, by numbers. Each node weighs something on one of them. */
struct query_both {
    uint32_t n;
    const uint32_t *parent, *func;
    bool named; /* func: of the tree; else ids of the epoch */
    uint32_t epoch;
    const uint64_t *again;
    struct query_slim *own[2], *sum[2]; /* per side: of nodes, of subtrees */
    struct query_tree merged;
};

/* ret_s->t: the root of two sides, its sums */
[[nodiscard]] int query_tree_both(struct query *q, struct query_shape *ret_s,
                                  struct query_both *ret, bool *ret_done, struct query_err *e);
void query_both_deinit(struct query_both *p);

/* ---- inverted.c ------------------------------------------------------------------------------ */

/* query_tree_shown() of stacks that are turned round. The gather is done if *ret_done. */
[[nodiscard]] int query_tree_inverted(struct query *q, const struct query_shown_ask *ask,
                                      struct query_shape *ret, bool *ret_done, struct query_err *e);

/* ---- numbers.c ------------------------------------------------------------------------------- */

/* The functions that occur get their names, in t: each once, however many nodes it has. */
[[nodiscard]] int query_numbers_name(struct query *q, struct query_tree *t, struct query_numbers *u,
                                     struct query_err *e);
/* The function, in the tree, of a node that weighs something. */
static inline uint32_t query_numbers_func(const struct query_numbers *u, uint32_t i)
{
    return u->name ? u->name[u->func[i]] : u->func[i];
}
static inline bool query_numbers_weighs(const struct query_numbers *u, uint32_t i)
{
    return u->sum[i].low != 0;
}

struct query_seen;
/* query_shape_find() of named numbers under full names; t has the functions. All is in view. */
[[nodiscard]] int query_numbers_find(struct query *q, const struct query_tree *t,
                                     const struct query_numbers *u, const struct str *pattern,
                                     uint32_t n, const char *param, uint32_t *bit,
                                     struct query_seen *each, struct query_seen *any,
                                     struct query_err *e);

static inline uint64_t query_samples(const struct query_tree *t, uint32_t side, uint32_t i)
{
    return t->flag[i] & (QUERY_NODE_UNKNOWN << side) ? BATCH_UNKNOWN : t->w[side].samples[i];
}

/* ret[f] = 1 if function f of a frame matches. */
[[nodiscard]] int query_tree_match(struct query *q, const struct query_tree *t,
                                   const struct query_pattern *p, const char *param, uint8_t *ret,
                                   struct query_err *e);
/* Bit k of ret[f]: pattern k matches function f of a frame. */
[[nodiscard]] int query_tree_match_all(struct query *q, const struct query_tree *t,
                                       const struct str *pattern, uint32_t n, const char *param,
                                       uint32_t *ret, struct query_err *e);

/* For tests: every question is answered from the whole tree. */
extern bool query_whole_trees;

/* ---- shape.c: the tree that is shown --------------------------------------------------------- */

/* Samples that hold a match, each once. */
struct query_seen {
    unit_i128 total, view;
    uint64_t samples, functions;
    bool unknown;
};
static inline void query_seen_add(struct query_seen *s, const struct query_entry *x)
{
    s->total += x->sum;
    s->view += x->sum;
    s->samples += x->count;
}

struct query_shape {
    struct query_tree all;  /* the union: full names, unfiltered */
    struct query_tree own;  /* filtered, under the names asked for, inverted: if any is asked */
    struct query_tree *t;   /* the one of the two that is shown */
    struct query_fate fate; /* of the nodes of all; NULLs: without filters */
    const uint32_t *node;   /* node of all -> node of t that has its weight; NULL: the same */
    const uint32_t *func;   /* function of all -> of t, 0: not shown; NULL: the same */
    uint32_t n_filtered;
    const struct query_filtered *filtered[2]; /* per side */
    const struct query_seen *seen; /* of a search that is done already; NULL: it is not */
    const uint32_t
        *hit; /* with seen: functions of t that it finds; NULL: those whose name it does */
};

/* The function under its short name; *ret may be f. */
[[nodiscard]] int query_short_func(struct query *q, const struct query_func *f,
                                   struct query_func *ret, struct query_err *e);

[[nodiscard]] int query_shape(struct query *q, bool invert, struct query_shape *ret,
                              struct query_err *e);
void query_shape_deinit(struct query_shape *s);

/* A search that is done while frames are apart. */
struct query_search {
    const struct str *pattern;
    uint32_t n;
    const char *param;
    bool done;                    /* the following is set */
    uint32_t *bit;                /* per function that is shown: bit k: pattern k finds it */
    struct query_seen *each, any; /* each: n; all is in view */
};

struct query_sift {
    struct query_tree *tried;     /* has the functions that patterns are tried on */
    struct query_tree *shown;     /* has those that are shown; may be the same */
    const struct query_tree *all; /* the tree: parent and func (of tried) */
    uint32_t n_acc;
    struct query_acc *const *acc; /* whose entries weigh its nodes; of those that stay they name
                                     nodes of to from now on */
    struct query_tree *to;        /* initialised; func: of shown */
    uint32_t n_search;
    struct query_search *search;
};

/* What the filters leave of a tree by numbers, for layer.c. ret: one per filter */
[[nodiscard]] int query_shape_sift(struct query *q, const struct query_sift *s,
                                   const struct query_filtered **ret, struct query_err *e);

/*
 * What n patterns find in what is shown, tried on full names. Bit k of bit[f]: pattern k matches a
 * function that is shown as function f of s->t.
 *   in_view  nodes of s->t that count for seen.view; NULL: all
 *   any      those that at least one finds
 */
[[nodiscard]] int query_shape_find(struct query *q, const struct query_shape *s,
                                   const struct str *pattern, uint32_t n, const char *param,
                                   const uint8_t *in_view, uint32_t *bit, struct query_seen *each,
                                   struct query_seen *any, struct query_err *e);

/* query_sums() of a tree; side as in q->side. */
[[nodiscard]] int query_shape_sums(struct query *q, const struct query_shape *s,
                                   struct query_sums *ret, struct query_err *e);

/* ---- spread.c -------------------------------------------------------------------------------- */

/*
 * How much sums vary by themselves: the range in 20 equal stretches, the variance of what they
 * hold, times 20. For sources that see every event, where nothing else says it. by_func  of
 * functions, as a table counts them, else of subtrees ret      per function or node of s->t; NULL:
 * too many nodes to try
 */
[[nodiscard]] int query_spread(struct query *q, struct query_shape *s, struct interval range,
                               bool by_func, const double **ret, struct query_err *e);

/* ---- view.c: what of a tree is answered ------------------------------------------------------ */

enum query_sort_by {
    QUERY_SORT_VALUE = 0, /* sort_value falling, then key */
    QUERY_SORT_NAME,
};

struct query_view_ask {
    uint32_t width, max_nodes;
    enum query_sort_by order;
    const unit_i128 *size;       /* per node, a child's never above its parent's: what stays */
    const unit_i128 *sort_value; /* per node; NULL: size */
};

struct query_columns {
    uint32_t n;
    uint32_t *depth, *node; /* node: of the tree; of a hidden row its parent's */
    int32_t *func;          /* -1: a hidden row */
    unit_i128 *self[2], *total[2];
    uint64_t *samples[2], *hidden, *hash;
};

/* Functions of an answer, by first appearance; several trees may share them. */
struct query_fn_table {
    uint32_t n, *at; /* function of the tree -> of the answer, 0: not there */
};
[[nodiscard]] int query_fn_table(struct query *q, const struct query_tree *t,
                                 struct query_fn_table *ret, struct query_err *e);
[[nodiscard]] int query_fn_list(struct query *q, const struct query_tree *t,
                                const struct query_fn_table *tb, const struct query_func **ret,
                                struct query_err *e);

/*
 * The rows of the subtree at root.
 *   ret_floor    size of the smallest node that is shown, or what the width demands
 *   ret_in_view  lowest bit: below root; per node
 */
[[nodiscard]] int query_view(struct query *q, const struct query_tree *t, uint32_t root,
                             const struct query_view_ask *ask, struct query_fn_table *fns,
                             struct query_columns *ret, unit_i128 *ret_floor,
                             const uint8_t **ret_in_view, struct query_err *e);

/* From the tree's root down to node; names functions in fns. */
[[nodiscard]] int query_path(struct query *q, const struct query_tree *t, uint32_t node,
                             struct query_fn_table *fns, uint32_t *ret_n,
                             const struct query_step **ret, struct query_err *e);

/* The node of this zoom hash; *ret_found false: 0. */
uint32_t query_zoom(const struct query_tree *t, uint64_t want, bool *ret_found);

/* ---- tree.c ---------------------------------------------------------------------------------- */

/* Columns, trim and view_total of a flame graph with one side. */
[[nodiscard]] int query_flame_rows(struct query *q, const struct query_tree *t, uint32_t root,
                                   const struct query_view_ask *ask, struct query_fn_table *fns,
                                   struct query_flame *ret, const uint8_t **ret_in_view,
                                   struct query_err *e);
[[nodiscard]] int query_max_nodes(uint32_t max_nodes, struct query_err *e);

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
/* ret->skew_ns, skew_known. */
[[nodiscard]] int query_clock_skew(struct query *q, const struct query_evidence *ev,
                                   struct query_quality *ret, struct query_err *e);
/* One scope's records, by time: how long it was asked, and the union of what it covered; added. */
void query_source_time(struct query_cover *const *c, uint32_t n, struct interval range,
                       unit_i128 *asked, unit_i128 *covered);
/* Pointers to all records, in their order. */
[[nodiscard]] int query_records(struct query *q, const struct query_evidence *ev,
                                struct query_cover ***ret, struct query_err *e);
/* Losses of these records by reason, largest weight first. */
[[nodiscard]] int query_losses(struct query *q, struct query_cover *const *c, uint32_t n_cover,
                               uint32_t *ret_n, const struct query_loss **ret, struct query_err *e);
int64_t query_spans_len(const struct query_spans *s, struct interval cut);

struct query_totals {
    unit_i128 total; /* after filters */
    uint64_t samples;
    unit_i128 whole; /* before them */
    uint64_t whole_samples;
    double var;                        /* of total; negative: unknown */
    const struct query_stacks *stacks; /* NULL: no stacks were read */
    uint32_t n_filtered;
    const struct query_filtered *filtered;
};

/* Everything that stands beside a total. Sets ret->total to QUERY_UNKNOWN where nothing was
 * covered. */
[[nodiscard]] int query_sums(struct query *q, const struct query_evidence *ev,
                             const struct query_totals *t, struct query_sums *ret,
                             struct query_err *e);

/* The variance of a sum, value, by what its sources say of themselves; negative: unknown. Of three
 * sampling periods or more it is an upper bound. var: what the values themselves told, or negative.
 */
double query_variance(const struct query_quality *ql, unit_i128 value, uint64_t samples,
                      double var);

/* What the scan said of this question's side; NULL before it. */
#define QUERY_ANSWER(q) ((q)->gather ? &(q)->gather->answer : NULL)
