// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>

#include "base/err.h"
#include "storage/store_private.h"

/* A moment of the head, and what was looked up in it. snap and s do not change; the rest is under
 * mu: one view may be read by several threads. */
struct store_view {
    struct store *s;
    const struct head *h;
    struct head_snap snap;
    struct mutex mu;
    struct arena mem; /* tries' bits */
    struct map trie;  /* index in head.trie -> struct store_trie * */
};

/*
 * What a selector picks in a view. Bitmaps; NULL: all.
 *   series   by series id; bit 0 is never set
 *   thread   by thread id: pid, tid, thread, target
 *   target   by target id, the same conditions as far as they are about targets (for evidence)
 *   cpu      by index in head.cpu
 */
struct selection {
    uint64_t *series, *thread, *target, *cpu;
    uint64_t n_series, n_overflow;
    int32_t none_by;
};

static inline bool bit_get(const uint64_t *v, uint32_t i)
{
    return !v || (v[i / 64] >> i % 64 & 1);
}

static inline void bit_set(uint64_t *v, uint32_t i)
{
    v[i / 64] |= UINT64_C(1) << i % 64;
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
/* Text of an attribute; buf holds at least 24 bytes and is what it may point to. */
struct str attr_text(const struct store_view *v, enum attr attr, uint32_t thread, uint32_t cpu,
                     char buf[static 24]);
/* pid and target alone; a number. */
struct str attr_text_target(const struct store_view *v, enum attr attr, uint32_t target,
                            char buf[static 24]);
struct str attr_number(char buf[static 24], uint64_t v);
/* Value of a label, {NULL, 0} if the set lacks it. */
struct str label_of(const struct store_view *v, uint32_t set, struct str name, uint32_t *ret_text);

/* NULL: the host. */
const struct target_key *target_of(const struct store_view *v, uint32_t target);

/* arena: temporary, the caller's. errors: -ENOMEM, and what a matcher said. */
[[nodiscard]] int select_series(const struct store_view *v, const struct store_selector *sel,
                                struct arena *arena, struct selection *ret, struct err *err);

/* Walk rows of the view that a selection takes, in range, group by group, in stored order.
 * Columns of c may be NULL (head_chunk). */
struct row_at {
    const struct head_group *g;
    const struct head_chunk *c;
    uint32_t i;
    int64_t ms;
};
typedef bool row_fn(void *ctx, const struct row_at *row);

/* type PTYPE_NONE: all. False: fn ended it. */
bool each_row(const struct store_view *v, ptype_id type, const struct selection *sel,
              struct interval range, row_fn *fn, void *ctx);

/* Records of one scope that lie in the view, newest first in the order of arrival. */
const struct head_cover *cover_last(const struct store_view *v, const struct head_scope *sc,
                                    uint32_t *ret_i);
const struct head_cover *cover_prev(const struct store_view *v, const struct head_cover *c,
                                    uint32_t *ret_i);

/* Does the scope cover a selected series? */
bool scope_selected(const struct store_view *v, const struct head_scope *sc,
                    const struct selection *sel);

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
