// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/layer_private.h"

#define COUNT_MAX ((uint64_t)1 << (64 - QUERY_NODE_BITS))

/* ---- is it this question, are they these data? -------------------------------------------------
 */

static bool several_epochs(const struct query_gather *g)
{
    for (uint32_t i = 1; i < g->n_acc; i++) {
        if (g->acc[i]->trie.epoch != g->acc[0]->trie.epoch)
            return true;
    }
    return false;
}

bool query_whole_trees;

bool query_layers_asked(const struct query *q, bool searches, bool full)
{
    bool shortens = q->gather->shortens && !full;

    if (query_whole_trees)
        return false;
    /* filters see full names, and which of two functions gives a merged one its file depends on the
     * order they are met in */
    if ((shortens && (q->filters.n || searches)) ||
        (q->n_by &&
         (q->filters.n || query_by_frame(q) || q->gather->shortens || several_epochs(q->gather))))
        return false;
    return q->gather->listed && !q->other &&
           (q->detail == QUERY_OF_FUNCTIONS || q->detail == QUERY_OF_FILES) &&
           q->head.agg == QUERY_SUM;
}

bool query_layers_fit(const struct query_gather *g)
{
    uint64_t count = 0, nodes = 0;
    unit_i128 sum = 0;

    for (uint32_t i = 0; i < g->n_acc; i++) {
        const struct query_acc *a = g->acc[i];

        sum += a->entry_sum;
        nodes += a->n; /* a layer of several tries has no more */
        if (nodes >= QUERY_NODES_MAX || a->below_zero || sum > INT64_MAX ||
            a->entry_count >= COUNT_MAX - count)
            return false;
        count += a->entry_count;
    }
    return true;
}

bool query_layers_named(const struct query *q, bool full)
{
    return q->filters.n || query_by_frame(q) || (q->gather->shortens && !full) ||
           several_epochs(q->gather);
}

bool query_layers_sifts(const struct query *q)
{
    return q->filters.n || q->own;
}

int query_layer_trie(struct query_layers *s, const struct query_acc *a, struct store_trie *ret,
                     struct query_err *e)
{
    struct err err = {};
    int r = store_trie(s->q->view, a->trie, ret, &err);

    if (r < 0)
        return query_store_failed(s->q, r, &err, e);
    assert((query_by_frame(s->q) ? ret->n : ret->n_fnode) == a->n);
    return 0;
}

/* ---- sums --------------------------------------------------------------------------------------
 */

int query_layers_scratch(struct query_layers *s, uint32_t n, struct query_err *e)
{
    if (n <= s->room)
        return 0;
    QUERY_NEW(s->q, &s->sum, n, e);
    QUERY_NEW(s->q, &s->pick, n, e);
    s->room = n;
    s->clean = true;
    return 0;
}

/* Zeroes for n nodes. */
static void wipe(struct query_layers *s, uint32_t n)
{
    assert(s->sum && n <= s->room);
    if (!s->clean)
        memset(s->sum, 0, n * sizeof *s->sum);
    s->clean = false;
}

void query_slim_scatter(struct query_slim *v, const struct query_acc *a)
{
    for (uint32_t i = 0; i < a->n_entry; i++) {
        v[a->entry[i].node].sum += a->entry[i].sum;
        v[a->entry[i].node].low += (uint64_t)a->entry[i].count << QUERY_NODE_BITS;
    }
}

uint32_t query_slim_add_up(struct query_slim *v, const uint32_t *parent, uint32_t n, int64_t floor,
                           uint32_t *pick)
{
    uint32_t picked = 0;

    assert(parent && n > 0 && floor > 0);
    for (uint32_t i = n - 1; i > 0; i--) {
        struct query_slim one = v[i];

        one.low += (one.sum | (int64_t)one.low) != 0; /* no branch: which are 0 is noise */
        v[i].low = one.low;
        v[parent[i]].sum += one.sum;
        v[parent[i]].low += one.low;
        if (__builtin_expect(one.sum >= floor, 0))
            pick[picked++] = i;
    }
    return picked;
}

/* What functions say of the stacks, per trie: v holds own weights, then totals. */
static void marked_self(struct query_stacks *ret, const struct store_trie *t,
                        const struct query_slim *v)
{
    for (uint32_t i = 0; i < t->n_marked; i++) {
        if (t->marked[i].mark & FUNC_NO_STACK)
            ret->no_stack += v[t->marked[i].fnode].sum;
        if (t->marked[i].mark & FUNC_UNSYMBOLISED)
            ret->unsymbolised += v[t->marked[i].fnode].sum;
    }
}

static void marked_total(struct query_stacks *ret, const struct store_trie *t,
                         const struct query_slim *v)
{
    for (uint32_t i = 0; i < t->n_marked; i++) {
        if ((t->marked[i].mark & FUNC_TRUNCATED) && !query_bit(t->again, t->marked[i].fnode))
            ret->truncated += v[t->marked[i].fnode].sum;
    }
}

/* ---- layers ------------------------------------------------------------------------------------
 */

/* The number under which functions of several tries are compared. */
static int number(struct query_layers *s, struct query_ids *ids, uint32_t id, uint32_t *ret,
                  struct query_err *e)
{
    if (s->named)
        return query_tree_func_by_id(s->q, s->names, ids, id, ret, e);
    *ret = id;
    return 0;
}

static int copy_acc(struct query_layers *s, const struct query_acc *a, struct query_acc **ret,
                    struct query_err *e)
{
    struct query_acc *c;

    QUERY_NEW(s->q, &c, 1, e);
    *c = *a;
    QUERY_NEW(s->q, &c->entry, a->n_entry, e);
    memcpy(c->entry, a->entry, a->n_entry * sizeof *c->entry);
    *ret = c;
    return 0;
}

/* What functions say of the stacks of a trie whose weights are by node. */
static int marked_frames(struct query_layers *s, const struct query_acc *a,
                         const struct store_trie *t, struct query_err *e)
{
    if (t->n_marked == 0)
        return 0;
    TRY(query_layers_scratch(s, t->n_fnode, e));
    wipe(s, t->n_fnode);
    for (uint32_t i = 0; i < a->n_entry; i++)
        s->sum[t->fnode[a->entry[i].node]].sum += a->entry[i].sum;
    marked_self(&s->stacks[a->side], t, s->sum);
    (void)query_slim_add_up(s->sum, t->fparent, t->n_fnode, INT64_MAX, s->pick);
    marked_total(&s->stacks[a->side], t, s->sum);
    return 0;
}

/* Totals of a trie, into s->sum. */
static int sum_trie(struct query_layers *s, const struct query_acc *a, const struct store_trie *t,
                    const uint32_t *parent, struct query_err *e)
{
    bool by_frame = query_by_frame(s->q);

    if (by_frame)
        TRY(marked_frames(s, a, t, e));
    wipe(s, a->n);
    query_slim_scatter(s->sum, a);
    if (!by_frame)
        marked_self(&s->stacks[a->side], t, s->sum);
    (void)query_slim_add_up(s->sum, parent, a->n, INT64_MAX, s->pick);
    if (!by_frame)
        marked_total(&s->stacks[a->side], t, s->sum);
    return 0;
}

/* One more trie into the layer's; its entries name nodes of that from now on. */
static int merge_acc(struct query_layers *s, struct query_tree *merged, struct query_acc **acc,
                     struct query_err *e)
{
    struct query_acc *a = *acc;
    bool by_frame = query_by_frame(s->q);
    /* functions occur once below a function node, but two may have one short name */
    uint32_t fresh = s->t->short_names || by_frame ? UINT32_MAX : merged->n;
    uint32_t last = 0, func = 0, *map;
    const uint32_t *parent, *id;
    struct query_ids *ids = NULL;
    struct store_trie t = {};

    TRY(query_layer_trie(s, a, &t, e));
    parent = by_frame ? t.parent : t.fparent;
    id = by_frame ? t.frame : t.func;
    TRY(query_layers_scratch(s, a->n, e));
    TRY(query_alive(s->q, e));
    TRY(sum_trie(s, a, &t, parent, e));
    for (uint32_t i = 1; s->named && i < a->n; i++)
        last = s->sum[i].low && id[i] > last ? id[i] : last;
    if (s->named)
        TRY(query_tree_ids(s->q, s->names, a->trie.epoch, last + 1, &ids, e));
    map = s->pick;
    map[0] = 0;
    for (uint32_t i = 1; i < a->n; i++) {
        uint32_t p;

        map[i] = 0; /* entries that weigh nothing and count nothing go to the root */
        if (!s->sum[i].low)
            continue;
        p = map[parent[i]];
        TRY(number(s, ids, id[i], &func, e));
        if (p >= fresh)
            TRY(query_tree_add(s->q, merged, p, func, &map[i], e));
        else
            TRY(query_tree_child(s->q, merged, p, func, &map[i], e));
        if (s->again && query_bit(t.again, by_frame ? t.fnode[i] : i))
            merged->flag[map[i]] |= QUERY_NODE_AGAIN;
    }
    if (s->keep) { /* the root may be nowhere, and the gather needed again */
        TRY(copy_acc(s, a, acc, e));
        a = *acc;
    }
    for (uint32_t i = 0; i < a->n_entry; i++)
        a->entry[i].node = map[a->entry[i].node];
    return 0;
}

/* Room for all nodes at once, where that is no more than an eighth of what the question may take:
 * what grows leaves its old arrays behind. */
int query_layer_merge(struct query_layers *s, struct query_layer *l, struct query_tree *merged,
                      struct query_err *e)
{
    uint64_t room = 1;

    for (uint32_t i = 0; i < l->n_acc; i++)
        room += l->acc[i]->n;
    if (room > s->q->conf.mem_max / 8 / 32) /* bytes of a node without sides */
        room = 0;
    TRY(query_tree_init(s->q, merged, 0, (uint32_t)room, e));
    for (uint32_t i = 0; i < l->n_acc; i++)
        TRY(merge_acc(s, merged, &l->acc[i], e));
    assert(merged->n < QUERY_NODES_MAX);
    l->n = merged->n;
    l->parent = merged->parent;
    l->func = merged->func;
    l->named = s->named;
    return 0;
}

int query_layer_sum(struct query_layers *s, struct query_layer *l, int64_t floor,
                    struct query_tree *merged, uint32_t *ret_picked, struct query_err *e)
{
    bool many = s->named || l->n_acc > 1;
    struct store_trie t = {};

    if (l->made) {
        assert(many); /* what is said of stacks is known */
    } else if (many) {
        TRY(query_layer_merge(s, l, merged, e));
    } else {
        TRY(query_layer_trie(s, l->acc[0], &t, e));
        l->n = t.n_fnode;
        l->parent = t.fparent;
        l->func = t.func;
    }
    TRY(query_alive(s->q, e));
    TRY(query_layers_scratch(s, l->n, e));
    wipe(s, l->n);
    for (uint32_t i = 0; i < l->n_acc; i++)
        query_slim_scatter(s->sum, l->acc[i]);
    if (!many)
        marked_self(s->stacks, &t, s->sum);
    *ret_picked = query_slim_add_up(s->sum, l->parent, l->n, floor, s->pick);
    if (!many)
        marked_total(s->stacks, &t, s->sum);
    return 0;
}

int query_layers_sift(struct query_layers *s, struct query_layer *l, uint32_t n,
                      struct query_shape *ret, struct query_err *e)
{
    struct query_layer none = {.acc = NULL}, *one = n ? l : &none;
    struct query_tree all = {}, to = {}, names = {.stacks = s->stacks};
    struct query_sift sift = {.tried = s->t,
                              .shown = s->t,
                              .all = &all,
                              .to = &to,
                              .n_search = s->n_search,
                              .search = s->search};
    int r = 0;

    assert(n <= 1 && s->named && s->total && s->samples); /* there is no by= */
    QUERY_NEW(s->q, &ret->all.w[0].total, 1, e);
    QUERY_NEW(s->q, &ret->all.w[0].samples, 1, e);
    QUERY_NEW(s->q, &ret->all.flag, 1, e);
    ret->all.w[0].total[0] = s->total[0];
    ret->all.w[0].samples[0] = s->samples[0];
    ret->all.stacks = s->stacks;
    if (query_tried_apart(s->q) != query_shown_apart(s->q)) {
        names.apart = query_tried_apart(s->q);
        r = query_tree_init(s->q, &names, 0, 0, e);
        sift.tried = s->names = &names;
    }
    if (r == 0)
        r = query_layer_merge(s, one, &all, e);
    if (r == 0)
        r = query_tree_init(s->q, &to, 0, 0, e);
    sift.n_acc = one->n_acc;
    sift.acc = one->acc;
    if (r == 0)
        r = query_shape_sift(s->q, &sift, &ret->filtered[0], e);
    s->names = s->t;
    query_tree_deinit(&all);
    query_tree_deinit(&to);
    query_tree_deinit(&names);
    if (r < 0)
        return r;
    one->n = to.n;
    one->parent = to.parent;
    one->func = to.func;
    one->made = true;
    s->total[0] = s->samples[0] = 0;
    for (uint32_t i = 0; i < one->n_acc; i++) {
        s->total[0] += one->acc[i]->entry_sum;
        s->samples[0] += one->acc[i]->entry_count;
    }
    ret->n_filtered = s->q->filters.n;
    s->left = to;
    s->left.child = s->left.fn_by_key = (struct map){};
    return 0;
}

/* ---- levels ------------------------------------------------------------------------------------
 */

int query_layers_room(struct query_layers *s, uint32_t n, struct query_err *e)
{
    uint32_t want = s->t->n + n, have = s->t->n;
    unit_i128 *total;
    uint64_t *samples;
    uint32_t *cut;

    TRY(query_tree_room(s->q, s->t, want, e));
    if (want <= s->cap)
        return 0;
    if (want < 2 * s->cap)
        want = 2 * s->cap;
    QUERY_NEW(s->q, &total, want, e);
    QUERY_NEW(s->q, &samples, want, e);
    QUERY_NEW(s->q, &cut, want, e);
    if (s->cap) {
        memcpy(total, s->total, have * sizeof *total);
        memcpy(samples, s->samples, have * sizeof *samples);
        memcpy(cut, s->cut, have * sizeof *cut);
    }
    s->total = total;
    s->samples = samples;
    s->cut = cut;
    s->cap = want;
    return 0;
}

static int by_top(const void *va, const void *vb, void *ctx)
{
    const uint32_t *top = ctx, a = *(const uint32_t *)va, b = *(const uint32_t *)vb;

    if (top[a] != top[b])
        return top[a] < top[b] ? -1 : 1;
    return (a > b) - (a < b);
}

static int list_layers(struct query_layers *s, struct query_layer **ret, uint32_t *ret_n,
                       struct query_err *e)
{
    const struct query_gather *g = s->q->gather;
    uint32_t *top, *order, n = 0;
    struct query_acc **acc;
    struct query_layer *l;

    QUERY_NEW(s->q, &top, g->n_acc, e);
    QUERY_NEW(s->q, &order, g->n_acc, e);
    QUERY_NEW(s->q, &l, g->n_acc, e);
    acc = arena_calloc(&s->q->arena, g->n_acc, sizeof(void *));
    if (!acc)
        return query_no_memory(s->q, e);
    for (uint32_t i = 0; i < g->n_acc; i++) {
        uint32_t group = g->acc[i]->group;

        TRY(query_tree_group(s->q, s->t, group, &top[i], e));
        s->t->flag[top[i]] |= QUERY_NODE_TOP;
        if (s->t->group)
            s->t->group[top[i]] = group < g->n_group ? group : g->n_group;
        order[i] = i;
    }
    if (g->n_acc > 1)
        qsort_r(order, g->n_acc, sizeof *order, by_top, top);
    for (uint32_t i = 0; i < g->n_acc; i++) {
        acc[i] = g->acc[order[i]];
        if (i == 0 || top[order[i]] != top[order[i - 1]])
            l[n++] = (struct query_layer){.top = top[order[i]], .acc = &acc[i]};
        l[n - 1].n_acc++;
    }
    TRY(query_layers_room(s, 0, e));
    assert(s->total && s->samples); /* there is the root */
    for (uint32_t i = 0; i < g->n_acc; i++) {
        s->total[top[i]] += g->acc[i]->entry_sum;
        s->samples[top[i]] += g->acc[i]->entry_count;
    }
    for (uint32_t i = s->t->n - 1; i > 0; i--) {
        s->total[s->t->parent[i]] += s->total[i];
        s->samples[s->t->parent[i]] += s->samples[i];
    }
    *ret = l;
    *ret_n = n;
    return 0;
}

int query_layers_start(struct query_layers *s, struct query_layer **ret, uint32_t *ret_n,
                       struct query_err *e)
{
    s->t->short_names = s->q->gather->shortens && !s->full;
    s->t->apart = query_shown_apart(s->q);
    s->names = s->t;
    for (uint32_t i = 0; i < 2; i++)
        s->t->w[i].var_missing = true;
    QUERY_NEW(s->q, &s->stacks, 1, e);
    s->t->stacks = s->stacks;
    TRY(query_tree_init(s->q, s->t, 1, 0, e));
    return list_layers(s, ret, ret_n, e);
}

void query_layers_hand_over(const struct query_layers *s, struct query_shape *made,
                            struct query_shape *ret)
{
    *ret = *made;
    ret->t = query_layers_sifts(s->q) ? &ret->own : &ret->all;
    *ret->t = *s->t;
}
