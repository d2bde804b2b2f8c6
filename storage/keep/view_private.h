// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>

#include "base/err.h"
#include "storage/keep/store_private.h"

/*
 * A moment of the store: a counted list of sources (parts, then heads, oldest first) and what each
 * head had published. Nothing in it changes but what is looked up on demand, under mu; one view may
 * be read by several threads.
 *
 * Ids: series, services, types and label sets are the store's (names). Threads, targets, scopes and
 * records are of one source; view_target() and view_scope() number those that are equal in several
 * sources alike, for as long as the view.
 */
struct source {
    struct head *head;     /* current or frozen; NULL: a part */
    struct head_snap snap; /* of the head */
    struct head_reader reader;
    struct part *part;
    struct interval t; /* all that it holds lies in [t0, t1); t0 >= t1: nothing */
    uint32_t epoch;
    bool held; /* the part is referenced once more: its tables are in use. Under the view's mu */
};

/* One more use of the list is one reference; the items are held by it. */
struct source_item {
    struct head *head;
    struct part *part;
    struct interval t; /* of a part */
    uint32_t epoch;
};

struct source_list {
    _Atomic uint32_t refs;
    struct epoch *epoch; /* the current one */
    uint32_t n;
    struct source_item item[];
};

struct view_target {
    struct target_key key;
    uint64_t id;
};

struct view_scope {
    ptype_id type;
    uint32_t labels, target; /* label set; number of view_target */
};

struct store_view {
    struct store *s;
    struct source_list *list;
    const struct names *names;
    struct names_snap snap; /* of names */
    uint64_t lsn;           /* all up to it is in the view, nothing beyond */
    struct epoch *epoch;    /* the current one of the list */
    uint32_t n_source;
    struct source *source;

    struct mutex mu;
    struct arena mem;          /* tries' bits, selections */
    struct selected *selected; /* select.c: newest first */
    struct map trie;           /* trie id -> struct store_trie * */
    uint32_t n_epoch;
    struct epoch **old_epoch; /* looked up, counted */
    struct pool pool;         /* of the next two */
    struct table target;      /* struct view_target */
    struct table scope;       /* struct view_scope */
};

/* What a source has beside rows. Lives as long as the view.
 *   errors  -ENOMEM, -EIO, -EBADMSG: the part cannot be read */
[[nodiscard]] int source_local(struct store_view *v, const struct source *src,
                               const struct local **ret, struct local_snap *ret_snap,
                               struct err *err);

/*
 * The sources that hold something in one of n ranges, opened for one read. Entry i is source i of
 * the view; local NULL: not touched, or it could not be read (then `damaged` is set and the answer
 * is STORE_PARTIAL).
 */
struct opened {
    const struct local *local;
    struct local_snap n;
    uint32_t *target; /* local target -> number in the view; [0] = 0 */
    uint32_t *scope;  /* local scope -> number in the view; view_open_scopes() */
    bool damaged;
};
[[nodiscard]] int view_open(struct store_view *v, const struct interval *range, uint32_t n,
                            struct arena *arena, struct opened **ret, struct err *err);
[[nodiscard]] int view_open_scopes(struct store_view *v, struct opened *o, struct arena *arena,
                                   struct err *err);
/* Numbers from 1; UINT32_MAX: memory is short. Takes mu. */
uint32_t view_target(struct store_view *v, const struct target_key *key);
uint32_t view_scope(struct store_view *v, ptype_id type, uint32_t labels, uint32_t target);
uint32_t view_n_target(struct store_view *v); /* entry 0 included */
uint32_t view_n_scope(struct store_view *v);

/* Is the epoch (of the view's sources) at hand? NULL: no, err says why. Lives as long as the view.
 */
struct epoch *view_epoch(struct store_view *v, uint32_t id, struct err *err);

static inline bool intervals_touch(struct interval a, struct interval b)
{
    return a.t0.v < b.t1.v && b.t0.v < a.t1.v;
}

static inline bool bit_get(const uint64_t *v, uint32_t i)
{
    return !v || (v[i / 64] >> i % 64 & 1);
}

/* The first bit below n that is set, from i on; n: none. v is no NULL. */
static inline uint32_t bit_next(const uint64_t *v, uint32_t i, uint32_t n)
{
    while (i < n) {
        uint64_t word = v[i / 64] >> i % 64;

        if (word) {
            i += (uint32_t)__builtin_ctzll(word);
            break;
        }
        i = (i / 64 + 1) * 64;
    }
    return i < n ? i : n;
}

static inline void bit_set(uint64_t *v, uint32_t i)
{
    v[i / 64] |= UINT64_C(1) << i % 64;
}

/*
 * What a selector picks in a view. Bitmaps; NULL: all.
 *   series   by series id; bit 0 is never set
 * and, per source, only where a matcher named an attribute:
 *   thread   by thread id: pid, tid, thread, target
 *   target   by target id, the same conditions as far as they are about targets (for evidence)
 *   cpu      by number + 1
 */
struct attr_bits {
    uint64_t *thread, *target, *cpu;
};

struct selection {
    uint64_t *series;
    uint64_t n_series, n_overflow;
    int32_t none_by;
    struct attr_bits *source; /* by index of the source; NULL: all of each */
    uint64_t *cpu;            /* that of all sources */
    bool by_attr;             /* an attribute was named */
};

static inline struct attr_bits selection_bits(const struct selection *sel, uint32_t source)
{
    return sel->source ? sel->source[source] : (struct attr_bits){};
}

enum attr {
    ATTR_NONE = 0, /* a label */
    ATTR_PID,
    ATTR_TID,
    ATTR_THREAD,
    ATTR_CPU,
    ATTR_TARGET,
};

enum attr attr_of(struct str name);
/* Text of an attribute of a row; cpu: number + 1. buf is what it may point to. */
struct str attr_text(const struct local *l, enum attr attr, uint32_t thread, uint32_t cpu,
                     char buf[static 24]);
/* pid and target alone; a number. */
struct str attr_text_target(const struct local *l, enum attr attr, uint32_t target,
                            char buf[static 24]);
struct str attr_number(char buf[static 24], uint64_t v);
/* Value of a label, {NULL, 0} if the set lacks it. *ret_text: text of names. */
struct str label_of(const struct names *n, uint32_t set, struct str name, uint32_t *ret_text);

/* NULL: the host. */
static inline const struct target_key *target_of(const struct local *l, uint32_t target)
{
    return target ? &TABLE(&l->target, struct local_target, target)->key : NULL;
}

/*
 * o: from view_open(), for the range that is asked for. arena: temporary, the caller's.
 *   errors: -ENOMEM, and what a matcher said
 */
[[nodiscard]] int select_series(struct store_view *v, const struct store_selector *sel,
                                const struct opened *o, struct arena *arena, struct selection *ret,
                                struct err *err);

/* Walk rows of the view that a selection takes, in range, source by source, in stored order.
 * Thread is of the source; cpu is number + 1. */
struct row_at {
    uint32_t source;
    ptype_id type;
    uint32_t series, thread, cpu;
    int64_t ms;
};
struct row_walk {
    void *ctx;
    /* false ends the walk */
    bool (*fn)(void *ctx, const struct row_at *row);
    /* Would rows with the series and thread of row, of times from row->ms to last, tell nothing
     * new? Then they may be left out. */
    bool (*known)(void *ctx, const struct row_at *row, int64_t last);
    /* Would no row of a block of this source? Then it is not even read. */
    bool (*dull)(void *ctx, uint32_t source, const struct block_meta *m);
};

/* Newest source, oldest, then those between, so that most of them tell nothing new.
 * type PTYPE_NONE: all. 0, -ECANCELED where fn ended it, STORE_PARTIAL, -ENOMEM. */
[[nodiscard]] int each_row(struct store_view *v, ptype_id type, const struct selection *sel,
                           struct interval range, const struct row_walk *to, struct err *err);

/* Does the scope cover a selected series? memo: of the caller, for one selection; begins empty. */
bool scope_selected(const struct store_view *v, const struct local_scope *sc, uint32_t source,
                    const struct selection *sel, struct map *memo);

/* Temporary memory of a read: the pool of queries. */
void read_arena(const struct store_view *v, struct arena *a);
static inline int no_memory(struct err *err)
{
    (void)err_set(err, -ENOMEM, "query: memory limit reached");
    return -ENOMEM;
}
static inline int cancelled(struct err *err)
{
    (void)err_set(err, -ECANCELED, "ended by the caller");
    return -ECANCELED;
}
