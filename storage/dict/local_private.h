// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/sample.h"
#include "storage/dict/names_private.h"

/*
 * What one source (a head, or a part) has of its own beside rows: its ids mean nothing elsewhere.
 * Label sets, services, types and series are ids of struct names; texts are of the local's own
 * table unless said otherwise. Ids begin at 1, 0 is none; records of coverage, infos and points are
 * numbered from 0 and referred to as number + 1.
 *
 * Writer: the apply thread (a head), whoever reads the file (a part, then nobody). Readers: below
 * the lengths of a local_snap, without a lock; nothing that they can see changes but the pointers
 * marked atomic, which lead to the newest of a chain.
 */
#define LOCAL_THREADS 1000000u
#define LOCAL_CPUS    65536u /* cpu columns hold number + 1, below this */

struct local_thread {
    uint32_t target, tid, name; /* name: text */
};

struct local_target {
    struct target_key key;
    uint64_t id;
    _Atomic uint32_t info; /* newest version + 1 */
};

struct local_info {
    uint32_t prev;                                  /* version + 1 */
    uint32_t exe, cmdline, comm, cgroup, container; /* texts */
    uint32_t env;                                   /* label set of names */
    uint32_t flags;
};

struct local_scope {
    ptype_id type;
    uint32_t labels, target; /* label set of names */
    _Atomic uint32_t last;   /* newest record + 1 */
};

struct local_loss {
    uint32_t why; /* text */
    uint64_t n;
    int64_t weight;
};

struct local_cover {
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

struct local_mseries {
    uint32_t name, unit;     /* texts */
    uint32_t labels, target; /* label set of names */
    enum metric_kind kind;
    bool is_int;
    _Atomic uint32_t last; /* newest points + 1 */
};

struct local_metric {
    uint32_t series, prev; /* prev + 1 */
    uint32_t n;
    const real_ns *t;
    const double *num;
    const int64_t *inum;
    const uint8_t *status; /* NULL: OK */
};

struct local_step {
    uint32_t target, name, tid; /* name: text */
    uint32_t labels;            /* label set of names */
    bool inferred;
    uint64_t number;
    struct interval t;
    uint32_t n_part;
    const uint32_t *part; /* texts */
    const int64_t *part_ns;
};

struct local_event {
    real_ns t;
    uint32_t kind, text, target; /* kind, text: texts */
};

/* Lengths, entry 0 of the tables included; cpu: all cpu columns are below it. */
struct local_snap {
    uint32_t thread, target, info, scope, cover, loss, mseries, metric, step, event, cpu;
};

struct local {
    struct pool *pool; /* of all memory here; the owner's */
    uint64_t seed;
    struct texts text;
    struct table thread, target, scope, mseries;
    struct vec info, cover, loss, metric, step, event;
    uint32_t cpu;
};

[[nodiscard]] bool local_init(struct local *l, struct pool *p, uint64_t seed);
void local_deinit(struct local *l);                  /* not the pool */
struct local_snap local_snap(const struct local *l); /* writer */

/* Ids, found or added; UINT32_MAX when memory is short. A thread that finds no room is 0. */
uint32_t local_target_of(struct local *l, const struct target_key *key);
uint32_t local_thread_of(struct local *l, uint32_t target, uint32_t tid, uint32_t name);
uint32_t local_scope_of(struct local *l, ptype_id type, uint32_t labels, uint32_t target);
uint32_t local_mseries_of(struct local *l, const struct local_mseries *key);
/* number + 1 of a cpu, as a column holds it: 0 where the number is too large to be kept. */
uint32_t local_cpu_of(struct local *l, uint32_t cpu);

/* Append; the chains (prev, last, info) are linked here. Pointers are to memory of l->pool. False:
 * memory is short. A version equal to the newest is not added. */
[[nodiscard]] bool local_add_info(struct local *l, uint32_t target, const struct local_info *info);
/* c->scope is set; c->prev is not looked at. */
[[nodiscard]] bool local_add_cover(struct local *l, const struct local_cover *c);
[[nodiscard]] bool local_add_loss(struct local *l, const struct local_loss *loss);
[[nodiscard]] bool local_add_metric(struct local *l, const struct local_metric *m);
[[nodiscard]] bool local_add_step(struct local *l, const struct local_step *s);
[[nodiscard]] bool local_add_event(struct local *l, const struct local_event *e);
/* A copy of n bytes for the pointers of the above; NULL: memory is short, or n is 0. */
const void *local_keep(struct local *l, const void *p, size_t n);

static inline struct str local_str(const struct local *l, uint32_t text)
{
    return text_of(&l->text, text);
}

/* Records of one scope below the snapshot, newest first in the order of arrival; *ret_i: number. */
static inline const struct local_cover *
local_cover_prev(const struct local *l, const struct local_cover *c, uint32_t *ret_i)
{
    if (c->prev == 0)
        return NULL;
    *ret_i = c->prev - 1;
    return VEC(&l->cover, struct local_cover, *ret_i);
}

static inline const struct local_cover *local_cover_last(const struct local *l, uint32_t n_cover,
                                                         const struct local_scope *sc,
                                                         uint32_t *ret_i)
{
    uint32_t i = atomic_load_explicit(&sc->last, memory_order_acquire);

    while (i > n_cover)
        i = VEC(&l->cover, struct local_cover, i - 1)->prev;
    if (i == 0)
        return NULL;
    *ret_i = i - 1;
    return VEC(&l->cover, struct local_cover, i - 1);
}
