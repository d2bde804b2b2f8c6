// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/query_private.h"

/*
 * The tree of a flame graph without what nobody will see. A view of so many pixels shows no node
 * below its floor, and most nodes are: so weights are added up by numbers alone, what reaches the
 * floor is found, and only that is given a name and a place. The rest stays as what it is to an
 * answer: how many nodes, how much weight.
 *
 * Layers: all that hangs under one level of by=, or under the root. A layer of one trie is that
 * trie as it lies in the dictionary. One of several is first made into a trie by numbers: of
 * functions of the epoch, which its services share; over several epochs, or under short names, by
 * names, each looked up once. Small nodes are in that as well, since a node that is small in each
 * trie may reach the floor in the sum, and since hidden nodes are counted as the union has them.
 */

#define NODE_BITS QUERY_NODE_BITS
#define NODES_MAX ((uint32_t)1 << NODE_BITS)
#define COUNT_MAX ((uint64_t)1 << (64 - NODE_BITS))

struct layer {
    uint32_t top; /* the level above it */
    uint32_t n_acc;
    struct query_acc **acc;
    uint32_t n;
    const uint32_t *parent, *func;
    bool named; /* func: of the tree; else of the epoch */
    bool made;  /* n, parent and func are set: what filters left */
};

/* What a pattern finds, and what it was asked already. */
struct search {
    struct query_pattern pattern;
    uint8_t *said; /* per function, as layers number them: enum said */
    struct query_seen seen;
};

enum said {
    NOT_ASKED = 0,
    NO_MATCH,
    MATCH,
};

struct shown {
    struct query *q;
    const struct query_shown_ask *ask;
    struct query_tree *t;
    bool named;
    bool again; /* whether a function is above itself is asked as well */
    int64_t floor;
    struct query_stacks *stacks; /* per side */
    struct query_tree left;      /* what filters left, if there are any; its maps are gone */

    struct query_slim *sum; /* of one layer or trie at a time */
    uint32_t *pick;         /* what is shown of a layer, falling */
    uint32_t room;
    bool clean; /* sum is all 0 */

    struct search *search; /* NULL: nothing is searched for */
    struct map func;       /* epoch << 32 | id -> function of the tree */
    unit_i128 *total;
    uint64_t *samples;
    uint32_t *cut;
    uint32_t n_level, cap; /* of total, samples, cut */
};

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

static bool asks_for_it(const struct query *q, const struct query_shown_ask *ask)
{
    if (query_whole_trees)
        return false;
    /* filters see full names, and which of two functions gives a merged one its file depends on the
     * order they are met in */
    if ((q->gather->shortens && (q->filters.n || ask->match.n)) || (q->filters.n && q->n_by) ||
        (q->n_by && (q->gather->shortens || several_epochs(q->gather))))
        return false;
    return ask->width > 0 && q->gather->listed && !q->other && q->detail == QUERY_OF_FUNCTIONS &&
           q->head.agg == QUERY_SUM;
}

/* Sums, counts and nodes that fit, and no weight below 0: then what is below the floor has only
 * such below it. */
static bool data_fit(const struct query_gather *g)
{
    uint64_t count = 0, nodes = 0;
    unit_i128 sum = 0;

    for (uint32_t i = 0; i < g->n_acc; i++) {
        const struct query_acc *a = g->acc[i];

        sum += a->entry_sum;
        nodes += a->n; /* a layer of several tries has no more */
        if (nodes >= NODES_MAX || a->below_zero || sum > INT64_MAX ||
            a->entry_count >= COUNT_MAX - count)
            return false;
        count += a->entry_count;
    }
    return true;
}

bool query_tree_shown_fits(const struct query *q, const struct query_shown_ask *ask)
{
    return asks_for_it(q, ask) && data_fit(q->gather);
}

static int trie_of(struct shown *s, const struct query_acc *a, struct store_trie *ret,
                   struct query_err *e)
{
    struct err err = {};
    int r = store_trie(s->q->view, a->trie, ret, &err);

    if (r < 0)
        return query_store_failed(s->q, r, &err, e);
    assert(ret->n_fnode == a->n);
    return 0;
}

/* ---- sums --------------------------------------------------------------------------------------
 */

static int scratch(struct shown *s, uint32_t n, struct query_err *e)
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
static void wipe(struct shown *s, uint32_t n)
{
    assert(s->sum && n <= s->room);
    if (!s->clean)
        memset(s->sum, 0, n * sizeof *s->sum);
    s->clean = false;
}

static void scatter(struct query_slim *v, const struct query_acc *a)
{
    for (uint32_t i = 0; i < a->n_entry; i++) {
        v[a->entry[i].node].sum += a->entry[i].sum;
        v[a->entry[i].node].low += (uint64_t)a->entry[i].count << NODE_BITS;
    }
}

/* Own weights -> totals, parents first as they are. Returns how many reach the floor. */
static uint32_t add_up(struct query_slim *v, const uint32_t *parent, uint32_t n, int64_t floor,
                       uint32_t *pick)
{
    uint32_t picked = 0;

    assert(parent && n > 0);
    for (uint32_t i = n - 1; i > 0; i--) {
        struct query_slim one = v[i];

        if ((one.sum | (int64_t)one.low) == 0)
            continue;
        v[i].low = ++one.low;
        v[parent[i]].sum += one.sum;
        v[parent[i]].low += one.low;
        if (one.sum >= floor)
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
static int number(struct shown *s, struct query_ids *ids, uint32_t id, uint32_t *ret,
                  struct query_err *e)
{
    if (s->named)
        return query_tree_func_by_id(s->q, s->t, ids, id, ret, e);
    *ret = id;
    return 0;
}

static int copy_acc(struct shown *s, const struct query_acc *a, struct query_acc **ret,
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

/* One more trie into the layer's; its entries name nodes of that from now on. */
static int merge_acc(struct shown *s, struct query_tree *sk, struct query_acc **acc,
                     struct query_err *e)
{
    struct query_acc *a = *acc;
    /* functions occur once below a function node, but two may have one short name */
    uint32_t fresh = s->t->short_names ? UINT32_MAX : sk->n, last = 0, func = 0, *map;
    struct query_ids *ids = NULL;
    struct store_trie t = {};

    TRY(trie_of(s, a, &t, e));
    TRY(scratch(s, a->n, e));
    TRY(query_alive(s->q, e));
    wipe(s, a->n);
    scatter(s->sum, a);
    marked_self(&s->stacks[a->side], &t, s->sum);
    (void)add_up(s->sum, t.fparent, a->n, INT64_MAX, s->pick);
    marked_total(&s->stacks[a->side], &t, s->sum);
    for (uint32_t i = 1; s->named && i < a->n; i++)
        last = s->sum[i].low && t.func[i] > last ? t.func[i] : last;
    if (s->named)
        TRY(query_tree_ids(s->q, s->t, a->trie.epoch, last + 1, &ids, e));
    map = s->pick;
    map[0] = 0;
    for (uint32_t i = 1; i < a->n; i++) {
        uint32_t p;

        map[i] = 0; /* entries that weigh nothing and count nothing go to the root */
        if (!s->sum[i].low)
            continue;
        p = map[t.fparent[i]];
        TRY(number(s, ids, t.func[i], &func, e));
        if (p >= fresh)
            TRY(query_tree_add(s->q, sk, p, func, &map[i], e));
        else
            TRY(query_tree_child(s->q, sk, p, func, &map[i], e));
        if (s->again && query_bit(t.again, i))
            sk->flag[map[i]] |= QUERY_NODE_AGAIN;
    }
    if (s->ask->root) { /* the root may be nowhere, and the gather needed again */
        TRY(copy_acc(s, a, acc, e));
        a = *acc;
    }
    for (uint32_t i = 0; i < a->n_entry; i++)
        a->entry[i].node = map[a->entry[i].node];
    return 0;
}

/* Several tries as one. Room for all their nodes at once, where that is no more than an eighth of
 * what the question may take: what grows leaves its old arrays behind. */
static int merge_layer(struct shown *s, struct layer *l, struct query_tree *sk, struct query_err *e)
{
    uint64_t room = 1;

    for (uint32_t i = 0; i < l->n_acc; i++)
        room += l->acc[i]->n;
    if (room > s->q->conf.mem_max / 8 / 32) /* bytes of a node without sides */
        room = 0;
    TRY(query_tree_init(s->q, sk, 0, (uint32_t)room, e));
    for (uint32_t i = 0; i < l->n_acc; i++)
        TRY(merge_acc(s, sk, &l->acc[i], e));
    assert(sk->n < NODES_MAX);
    l->n = sk->n;
    l->parent = sk->parent;
    l->func = sk->func;
    l->named = s->named;
    return 0;
}

/* Sums of the layer into s->sum; picks by s->floor. */
static int sum_layer(struct shown *s, struct layer *l, struct query_tree *sk, uint32_t *ret_picked,
                     struct query_err *e)
{
    bool merged = s->named || l->n_acc > 1;
    struct store_trie t = {};

    if (l->made) {
        assert(merged); /* what is said of stacks is known */
    } else if (merged) {
        TRY(merge_layer(s, l, sk, e));
    } else {
        TRY(trie_of(s, l->acc[0], &t, e));
        l->n = t.n_fnode;
        l->parent = t.fparent;
        l->func = t.func;
    }
    TRY(query_alive(s->q, e));
    TRY(scratch(s, l->n, e));
    wipe(s, l->n);
    for (uint32_t i = 0; i < l->n_acc; i++)
        scatter(s->sum, l->acc[i]);
    if (!merged)
        marked_self(s->stacks, &t, s->sum);
    *ret_picked = add_up(s->sum, l->parent, l->n, s->floor, s->pick);
    if (!merged)
        marked_total(s->stacks, &t, s->sum);
    return 0;
}

/* ---- into the tree -----------------------------------------------------------------------------
 */

/* Room for n more nodes. */
static int room_for(struct shown *s, uint32_t n, struct query_err *e)
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

#define PENDING (UINT64_C(1) << 32) /* | place in the batch: a function that is being named */

/* The functions of n picked nodes, the last first, as they are placed: func[] of each. */
static int name_picked(struct shown *s, const struct layer *l, const uint32_t *pick, uint32_t n,
                       uint32_t *func, struct query_err *e)
{
    uint32_t epoch = l->acc[0]->trie.epoch, id[QUERY_FUNCS_MAX], new[QUERY_FUNCS_MAX], n_new = 0;
    uint64_t *slot, *slots[QUERY_FUNCS_MAX], known[QUERY_FUNCS_MAX];

    assert(n <= QUERY_FUNCS_MAX);
    if (!map_reserve(&s->func, s->func.n + n)) /* slots stay where they are */
        return query_no_memory(s->q, e);
    for (uint32_t k = n; k-- > 0;) {
        switch (map_at(&s->func, (uint64_t)epoch << 32 | l->func[pick[k]], &slot)) {
        case MAP_FULL:
            return query_no_memory(s->q, e);
        case MAP_ADDED:
            *slot = PENDING | n_new;
            slots[n_new] = slot;
            id[n_new++] = l->func[pick[k]];
            break;
        case MAP_FOUND:
            break;
        }
        known[k] = *slot;
    }
    if (n_new)
        TRY(query_tree_funcs(s->q, s->t, epoch, n_new, id, new, e));
    for (uint32_t i = 0; i < n_new; i++)
        *slots[i] = new[i];
    for (uint32_t k = 0; k < n; k++)
        func[k] = known[k] & PENDING ? new[(uint32_t)known[k]] : (uint32_t)known[k];
    return 0;
}

static void set_place(struct query_slim *v, uint32_t k)
{
    v->sum = -1 - (int64_t)k;
}

/* Of what is shown. */
static uint32_t place_of(const struct query_slim *v)
{
    return (uint32_t)(-1 - v->sum);
}

static int place_one(struct shown *s, const struct layer *l, uint32_t i, uint32_t func,
                     struct query_err *e)
{
    uint32_t p = place_of(&s->sum[l->parent[i]]), k = 0;
    uint32_t nodes = (uint32_t)s->sum[i].low & (NODES_MAX - 1);

    TRY(query_tree_add(s->q, s->t, p, func, &k, e));
    s->t->fn_flag[func] |= QUERY_FN_FRAME;
    if (s->t->group)
        s->t->group[k] = s->t->group[l->top];
    s->total[k] = s->sum[i].sum;
    s->samples[k] = s->sum[i].low >> NODE_BITS;
    s->cut[k] = nodes - 1;
    s->cut[p] -= nodes;
    set_place(&s->sum[i], k);
    return 0;
}

static int place_picked(struct shown *s, const struct layer *l, uint32_t picked,
                        struct query_err *e)
{
    uint32_t func[QUERY_FUNCS_MAX];

    while (picked > 0) {
        uint32_t n = picked < QUERY_FUNCS_MAX ? picked : QUERY_FUNCS_MAX;
        const uint32_t *pick = s->pick + picked - n;

        if (!l->named)
            TRY(name_picked(s, l, pick, n, func, e));
        for (uint32_t k = n; k-- > 0;)
            TRY(place_one(s, l, pick[k], l->named ? l->func[pick[k]] : func[k], e));
        picked -= n;
    }
    return 0;
}

/* The picked nodes of a layer, and what they and the level above weigh by themselves. */
static int place_layer(struct shown *s, const struct layer *l, uint32_t picked, struct query_err *e)
{
    struct query_weigh *w = &s->t->w[0];

    TRY(room_for(s, picked, e));
    if (!l->named) /* a function is called from two places, if not more */
        TRY(query_tree_func_room(s->q, s->t, picked / 2, e));
    s->cut[l->top] += (uint32_t)s->sum[0].low & (NODES_MAX - 1);
    set_place(&s->sum[0], l->top);
    TRY(place_picked(s, l, picked, e));
    for (uint32_t i = 0; i < l->n_acc; i++) {
        const struct query_acc *a = l->acc[i];

        for (uint32_t k = 0; k < a->n_entry; k++) {
            const struct query_slim *v = &s->sum[a->entry[k].node];

            if (v->sum >= 0)
                continue;
            w->self[place_of(v)] += a->entry[k].sum;
            w->self_samples[place_of(v)] += a->entry[k].count;
        }
    }
    return 0;
}

/* The functions of n picks. */
static int name_thin(struct shown *s, const struct layer *l, const struct query_pick *pick,
                     uint32_t n, uint32_t *func, struct query_err *e)
{
    uint32_t id[QUERY_FUNCS_MAX], at[QUERY_FUNCS_MAX];
    const struct layer named = {.acc = l->acc, .func = id};

    for (uint32_t k = 0; k < n; k++) {
        id[k] = pick[k].func;
        at[k] = k;
    }
    return name_picked(s, &named, at, n, func, e);
}

/* A layer of which only what is shown was kept. */
static int place_thin(struct shown *s, const struct layer *l, struct query_err *e)
{
    const struct query_thin *t = l->acc[0]->thin;
    struct query_weigh *w = &s->t->w[0];
    uint32_t func[QUERY_FUNCS_MAX], *place;

    assert(l->n_acc == 1 && !s->named);
    TRY(room_for(s, t->n, e));
    TRY(query_tree_func_room(s->q, s->t, t->n / 2, e));
    QUERY_NEW(s->q, &place, t->n, e);
    place[0] = l->top;
    s->cut[l->top] += t->pick[0].nodes;
    w->self[l->top] += t->pick[0].self;
    w->self_samples[l->top] += t->pick[0].self_count;
    for (uint32_t k = 1; k < t->n; k++) {
        const struct query_pick *x = &t->pick[k];
        uint32_t batch = (k - 1) % QUERY_FUNCS_MAX, left = t->n - k;
        uint32_t i = 0;

        if (batch == 0)
            TRY(name_thin(s, l, x, left < QUERY_FUNCS_MAX ? left : QUERY_FUNCS_MAX, func, e));
        TRY(query_tree_add(s->q, s->t, place[x->parent], func[batch], &i, e));
        s->t->fn_flag[func[batch]] |= QUERY_FN_FRAME;
        s->t->group[i] = s->t->group[l->top];
        s->total[i] = x->sum;
        s->samples[i] = x->count;
        s->cut[i] = x->nodes - 1;
        s->cut[place[x->parent]] -= x->nodes;
        w->self[i] = x->self;
        w->self_samples[i] = x->self_count;
        place[k] = i;
    }
    s->stacks->no_stack += t->stacks.no_stack;
    s->stacks->truncated += t->stacks.truncated;
    s->stacks->unsymbolised += t->stacks.unsymbolised;
    return 0;
}

/* ---- the view's root ---------------------------------------------------------------------------
 */

int64_t query_floor(unit_i128 view, uint32_t width)
{
    int64_t floor = (int64_t)((view + width - 1) / width);

    return floor > 0 ? floor : 1;
}

static void set_floor(struct shown *s, unit_i128 view)
{
    s->floor = query_floor(view, s->ask->width);
}

/* Zoom hashes of levels; the one that is asked for, or UINT32_MAX. */
static uint32_t hash_levels(struct shown *s, uint64_t *hash)
{
    const struct query_tree *t = s->t;
    uint32_t found = s->ask->root ? UINT32_MAX : 0;

    for (uint32_t i = 1; i < t->n; i++) {
        hash[i] = hash_zoom(hash[t->parent[i]], t->fn[t->func[i]].key);
        if (hash[i] == s->ask->root && found == UINT32_MAX)
            found = i;
    }
    return found;
}

static int key_of(struct shown *s, const struct layer *l, uint32_t i, struct map *keys,
                  uint64_t *ret, struct query_err *e)
{
    struct store_func f = {};
    struct err err = {};
    uint64_t *slot;
    int r;

    if (l->named) {
        *ret = s->t->fn[l->func[i]].key;
        return 0;
    }
    r = map_at(keys, l->func[i], &slot);
    if (r == MAP_FULL)
        return query_no_memory(s->q, e);
    if (r == MAP_ADDED) {
        r = store_func(s->q->view, l->acc[0]->trie.epoch, l->func[i], &f, &err);
        if (r < 0)
            return query_store_failed(s->q, r, &err, e);
        *slot = f.key;
    }
    *ret = *slot;
    return 0;
}

/* The node of a layer that is asked for, or 0; v: totals. */
static int find_root(struct shown *s, const struct layer *l, uint64_t top, uint32_t *ret,
                     struct query_err *e)
{
    uint64_t *hash, key = 0;
    struct map keys;
    int r = 0;

    QUERY_NEW(s->q, &hash, l->n, e);
    map_init(&keys, 0);
    hash[0] = top;
    *ret = 0;
    for (uint32_t i = 1; r == 0 && i < l->n; i++) {
        if (!s->sum[i].low)
            continue;
        r = key_of(s, l, i, &keys, &key, e);
        hash[i] = hash_zoom(hash[l->parent[i]], key);
        if (r == 0 && hash[i] == s->ask->root) {
            *ret = i;
            break;
        }
    }
    map_deinit(&keys);
    return r;
}

/* Down to root and what of the floor is below it: picks, falling. */
static int pick_below(struct shown *s, const struct layer *l, uint32_t root, uint32_t *ret,
                      struct query_err *e)
{
    uint32_t n = 0, k = 0, depth = 0;
    uint64_t *in;

    QUERY_NEW(s->q, &in, l->n / 64 + 1, e);
    query_bit_set(in, root);
    for (uint32_t i = root; i; i = l->parent[i])
        depth++;
    for (uint32_t i = root; i; i = l->parent[i]) /* rising, from its end */
        s->pick[depth - ++n] = i;
    for (uint32_t i = root + 1; i < l->n; i++) {
        if (!query_bit(in, l->parent[i]))
            continue;
        query_bit_set(in, i);
        if (s->sum[i].sum >= s->floor)
            s->pick[n++] = i;
    }
    for (uint32_t end = n; k + 1 < end; k++) {
        uint32_t swap = s->pick[k];

        s->pick[k] = s->pick[--end];
        s->pick[end] = swap;
    }
    *ret = n;
    return 0;
}

/* ---- searching ---------------------------------------------------------------------------------
 */

static int ask_one(struct shown *s, struct search *h, uint32_t f, const struct query_func *fn,
                   struct query_err *e)
{
    int r = query_pattern_match(&h->pattern, fn);

    if (r < 0)
        return query_fail(e, r, QUERY_REGEX_TOO_EXPENSIVE, "match",
                          "the regular expression takes too much work on one name of %zu bytes",
                          fn->name.n);
    h->said[f] = r ? MATCH : NO_MATCH;
    h->seen.functions += r > 0;
    return h->seen.functions % 256 == 0 ? query_alive(s->q, e) : 0;
}

/* Ids of the epoch are looked up many at once. */
static int ask_some(struct shown *s, struct search *h, const struct layer *l, const uint32_t *id,
                    uint32_t n, struct query_err *e)
{
    struct store_func f[QUERY_FUNCS_MAX];
    struct err err = {};
    int r = store_funcs(s->q->view, l->acc[0]->trie.epoch, n, id, f, &err);

    if (r < 0)
        return query_store_failed(s->q, r, &err, e);
    for (uint32_t i = 0; i < n; i++) {
        const struct query_func fn = {
            .name = f[i].name, .file = f[i].file, .bin = str_basename(f[i].bin), .kind = f[i].kind};

        TRY(ask_one(s, h, id[i], &fn, e));
    }
    return 0;
}

/* Each function of the layer's stacks is asked once. */
static int ask_layer(struct shown *s, struct search *h, const struct layer *l, struct query_err *e)
{
    uint32_t id[QUERY_FUNCS_MAX], n = 0;

    for (uint32_t i = 1; i < l->n; i++) {
        uint32_t f = l->func[i];

        if (!s->sum[i].low || h->said[f] != NOT_ASKED)
            continue;
        if (l->named) {
            TRY(ask_one(s, h, f, &s->t->fn[f], e));
            continue;
        }
        h->said[f] = NO_MATCH; /* until it is */
        id[n++] = f;
        if (n == QUERY_FUNCS_MAX) {
            TRY(ask_some(s, h, l, id, n, e));
            n = 0;
        }
    }
    return n ? ask_some(s, h, l, id, n, e) : 0;
}

static int said_room(struct shown *s, struct search *h, const struct layer *l, uint32_t n,
                     struct query_err *e)
{
    uint32_t last = 0;

    if (h->said)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < l[i].n_acc && !s->named; k++) {
            struct store_trie t = {};

            TRY(trie_of(s, l[i].acc[k], &t, e));
            for (uint32_t j = 1; j < t.n_fnode; j++)
                last = t.func[j] > last ? t.func[j] : last;
        }
    }
    QUERY_NEW(s->q, &h->said, s->named ? s->t->n_func : last + 1, e);
    return 0;
}

/* Stacks of a layer that hold a match. root: of the view, in it; in_view: it is, or the layer. */
static int search_layer(struct shown *s, const struct layer *l, uint32_t root, bool in_view,
                        struct query_err *e)
{
    struct search *h = s->search;
    uint8_t *in; /* 1: a match is at or above it; 2: in view */

    TRY(ask_layer(s, h, l, e));
    QUERY_NEW(s->q, &in, l->n, e);
    in[root] = in_view ? 2 : 0;
    for (uint32_t i = 1; i < l->n; i++) {
        if (s->sum[i].low)
            in[i] |= in[l->parent[i]] | (h->said[l->func[i]] == MATCH);
    }
    for (uint32_t k = 0; k < l->n_acc; k++) {
        for (uint32_t i = 0; i < l->acc[k]->n_entry; i++) {
            const struct query_entry *x = &l->acc[k]->entry[i];

            if (!(in[x->node] & 1))
                continue;
            h->seen.total += x->sum;
            h->seen.samples += x->count;
            if (in[x->node] & 2)
                h->seen.view += x->sum;
        }
    }
    return 0;
}

/* ---- all ---------------------------------------------------------------------------------------
 */

static int by_top(const void *va, const void *vb, void *ctx)
{
    const uint32_t *top = ctx, a = *(const uint32_t *)va, b = *(const uint32_t *)vb;

    if (top[a] != top[b])
        return top[a] < top[b] ? -1 : 1;
    return (a > b) - (a < b);
}

/* Levels into the tree, with their totals; layers by level. */
static int layers(struct shown *s, struct layer **ret, uint32_t *ret_n, struct query_err *e)
{
    const struct query_gather *g = s->q->gather;
    uint32_t *top, *order, n = 0;
    struct query_acc **acc;
    struct layer *l;

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
            l[n++] = (struct layer){.top = top[order[i]], .acc = &acc[i]};
        l[n - 1].n_acc++;
    }
    s->n_level = s->t->n;
    TRY(room_for(s, 0, e));
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

/* Is level i, or a level above it, the one? */
static bool is_below(const struct query_tree *t, uint32_t i, uint32_t level)
{
    while (i > level)
        i = t->parent[i];
    return i == level;
}

/* root: of the view, a level, or UINT32_MAX: it is looked for in the layers. *ret_found */
static int place_all(struct shown *s, struct layer *l, uint32_t n, const uint64_t *hash,
                     uint32_t root, bool *ret_found, struct query_err *e)
{
    bool look = root == UINT32_MAX;

    *ret_found = !look;
    if (look)
        s->floor = INT64_MAX;
    else
        set_floor(s, s->total[root]);
    for (uint32_t i = 0; i < n; i++) {
        struct query_tree sk = {};
        uint32_t picked = 0, at = 0;
        int r;

        if (l[i].acc[0]->thin) {
            TRY(place_thin(s, &l[i], e));
            continue;
        }
        r = sum_layer(s, &l[i], &sk, &picked, e);

        if (r == 0 && look && !*ret_found)
            r = find_root(s, &l[i], hash[l[i].top], &at, e);
        if (at) {
            *ret_found = true;
            set_floor(s, s->sum[at].sum);
            r = pick_below(s, &l[i], at, &picked, e);
        } else if (look || !is_below(s->t, l[i].top, root)) {
            picked = 0;
        }
        if (r == 0 && s->search)
            r = said_room(s, s->search, l, n, e);
        if (r == 0 && s->search)
            r = search_layer(s, &l[i], at, at || (!look && is_below(s->t, l[i].top, root)), e);
        s->floor = look ? INT64_MAX : s->floor;
        if (r == 0)
            r = place_layer(s, &l[i], picked, e);
        query_tree_deinit(&sk);
        if (r < 0)
            return r;
    }
    return 0;
}

/*
 * Filters, before anything is summed: all tries as one, under names, since patterns are tried on
 * them; then what is left of it is the only layer. ret->all keeps what there was before.
 */
static int sift(struct shown *s, struct layer *l, uint32_t n, struct query_shape *ret,
                struct query_err *e)
{
    struct layer none = {.acc = NULL}, *one = n ? l : &none;
    struct query_tree all = {}, to = {};
    int r;

    assert(n <= 1 && s->named && s->total && s->samples); /* there is no by= */
    QUERY_NEW(s->q, &ret->all.w[0].total, 1, e);
    QUERY_NEW(s->q, &ret->all.w[0].samples, 1, e);
    QUERY_NEW(s->q, &ret->all.flag, 1, e);
    ret->all.w[0].total[0] = s->total[0];
    ret->all.w[0].samples[0] = s->samples[0];
    ret->all.stacks = s->stacks;
    r = merge_layer(s, one, &all, e);
    if (r == 0)
        r = query_tree_init(s->q, &to, 0, 0, e);
    if (r == 0)
        r = query_shape_sift(s->q, s->t, &all, one->n_acc, one->acc, &to, &ret->filtered[0], e);
    query_tree_deinit(&all);
    query_tree_deinit(&to);
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

static int finish(struct shown *s, struct query_err *e)
{
    struct query_tree *t = s->t;

    t->w[0].total = s->total;
    t->w[0].samples = s->samples;
    t->cut = s->cut;
    QUERY_NEW(s->q, &t->hash, t->n, e);
    for (uint32_t i = 1; i < t->n; i++)
        t->hash[i] = hash_zoom(t->hash[t->parent[i]], t->fn[t->func[i]].key);
    return query_alive(s->q, e);
}

/* A tree of levels alone, and what hangs under them. */
static int start(struct shown *s, struct layer **ret, uint32_t *ret_n, struct query_err *e)
{
    s->t->short_names = s->q->gather->shortens;
    for (uint32_t i = 0; i < 2; i++)
        s->t->w[i].var_missing = true;
    QUERY_NEW(s->q, &s->stacks, 1, e);
    s->t->stacks = s->stacks;
    TRY(query_tree_init(s->q, s->t, 1, 0, e));
    return layers(s, ret, ret_n, e);
}

static int shown(struct shown *s, struct query_shape *ret, bool *ret_done, struct query_err *e)
{
    struct layer *l = NULL;
    uint64_t *hash;
    uint32_t n = 0;

    TRY(start(s, &l, &n, e));
    if (s->q->filters.n)
        TRY(sift(s, l, n, ret, e));
    QUERY_NEW(s->q, &hash, s->t->n, e);
    TRY(place_all(s, l, n, hash, hash_levels(s, hash), ret_done, e));
    return *ret_done ? finish(s, e) : 0;
}

/* The tree that is shown: the only one, or that behind the filters. */
static void hand_over(const struct shown *s, struct query_shape *made, struct query_shape *ret)
{
    *ret = *made;
    *(s->q->filters.n ? &ret->own : &ret->all) = *s->t;
    ret->t = s->q->filters.n ? &ret->own : &ret->all;
}

static bool by_names(const struct query *q)
{
    return q->filters.n || q->gather->shortens || several_epochs(q->gather);
}

int query_tree_shown(struct query *q, const struct query_shown_ask *ask, struct query_shape *ret,
                     bool *ret_done, struct query_err *e)
{
    struct query_shape made = {};
    struct query_tree t = {};
    struct shown s = {.q = q, .ask = ask, .t = &t};
    int r = 0;

    *ret_done = false;
    if (!query_tree_shown_fits(q, ask))
        return 0;
    s.named = by_names(q);
    if (ask->match.n) {
        QUERY_NEW(q, &s.search, 1, e);
        r = query_pattern_new(&q->arena, ask->match, "match", &s.search->pattern, e);
        made.seen = &s.search->seen;
    }
    map_init(&s.func, 0);
    if (r == 0)
        r = shown(&s, &made, ret_done, e);
    map_deinit(&s.func);
    if (s.search)
        query_pattern_deinit(&s.search->pattern);
    if (r == 0 && *ret_done) {
        hand_over(&s, &made, ret);
    } else {
        query_tree_deinit(&t);
    }
    return r;
}

/* ---- all nodes, by numbers ---------------------------------------------------------------------
 */

/* Names that were shortened may have made one function of two. */
static int again_of_names(struct shown *s, struct query_numbers *u, struct query_err *e)
{
    uint32_t *key_of;
    uint8_t *again;

    QUERY_NEW(s->q, &key_of, s->t->n_func, e);
    QUERY_NEW(s->q, &again, u->n, e);
    for (uint32_t f = 0; f < s->t->n_func; f++)
        key_of[f] = f;
    TRY(query_tree_again(s->q, &u->merged, key_of, s->t->n_func, again, e));
    for (uint32_t i = 1; i < u->n; i++) {
        u->merged.flag[i] &= (uint8_t)~QUERY_NODE_AGAIN;
        if (again[i])
            u->merged.flag[i] |= QUERY_NODE_AGAIN;
    }
    return 0;
}

static int again_bits(struct shown *s, const struct layer *l, struct query_numbers *u,
                      struct query_err *e)
{
    struct store_trie t = {};
    uint64_t *bits;

    if (u->merged.n == 0) {
        TRY(trie_of(s, l->acc[0], &t, e));
        u->again = t.again;
        return 0;
    }
    if (s->t->short_names || l->made)
        TRY(again_of_names(s, u, e));
    QUERY_NEW(s->q, &bits, u->n / 64 + 1, e);
    for (uint32_t i = 1; i < u->n; i++) {
        if (u->merged.flag[i] & QUERY_NODE_AGAIN)
            query_bit_set(bits, i);
    }
    u->again = bits;
    return 0;
}

static int numbers(struct shown *s, struct query_shape *made, struct query_numbers *ret,
                   struct query_err *e)
{
    struct layer *l = NULL;
    uint32_t n = 0, picked = 0;

    TRY(start(s, &l, &n, e));
    if (s->q->filters.n)
        TRY(sift(s, l, n, made, e));
    s->t->w[0].total = s->total;
    s->t->w[0].samples = s->samples;
    assert(n <= 1); /* there are no levels but the root */
    if (n == 0)
        return 0;
    TRY(sum_layer(s, l, &ret->merged, &picked, e));
    if (l->made)
        ret->merged = s->left;
    ret->n = l->n;
    ret->parent = l->parent;
    ret->func = l->func;
    ret->named = l->named;
    ret->epoch = l->acc[0]->trie.epoch;
    ret->sum = s->sum;
    ret->n_acc = l->n_acc;
    ret->acc = l->acc;
    TRY(again_bits(s, l, ret, e));
    return query_alive(s->q, e);
}

int query_tree_numbers(struct query *q, struct query_shape *ret_s, struct query_numbers *ret,
                       bool *ret_done, struct query_err *e)
{
    static const struct query_shown_ask whole = {.width = 1};
    struct query_shape made = {};
    struct query_tree t = {};
    struct shown s = {.q = q, .ask = &whole, .t = &t, .again = true, .floor = INT64_MAX};
    int r;

    *ret_done = asks_for_it(q, &whole) && q->n_by == 0 && data_fit(q->gather);
    if (!*ret_done)
        return 0;
    s.named = by_names(q);
    r = numbers(&s, &made, ret, e);
    if (r == 0)
        hand_over(&s, &made, ret_s);
    else
        query_tree_deinit(&t);
    return r;
}

void query_numbers_deinit(struct query_numbers *u)
{
    query_tree_deinit(&u->merged);
}

/* ---- two sides ---------------------------------------------------------------------------------
 */

static bool asks_for_pair(const struct query *q)
{
    return !query_whole_trees && q->gather->listed && q->other && q->n_by == 0 &&
           q->filters.n + q->other->filters.n == 0 && q->detail == QUERY_OF_FUNCTIONS &&
           q->head.agg == QUERY_SUM && data_fit(q->gather);
}

/* What a side weighs, by node of the pair. */
static int sum_side(struct shown *s, struct query_both *p, uint32_t side, struct query_err *e)
{
    const struct query_gather *g = s->q->gather;

    QUERY_NEW(s->q, &p->own[side], p->n, e);
    QUERY_NEW(s->q, &p->sum[side], p->n, e);
    for (uint32_t i = 0; i < g->n_acc; i++) {
        if (g->acc[i]->side == side)
            scatter(p->own[side], g->acc[i]);
    }
    memcpy(p->sum[side], p->own[side], p->n * sizeof *p->sum[side]);
    TRY(scratch(s, p->n, e));
    (void)add_up(p->sum[side], p->parent, p->n, INT64_MAX, s->pick);
    QUERY_NEW(s->q, &s->t->w[side].total, 1, e);
    QUERY_NEW(s->q, &s->t->w[side].samples, 1, e);
    s->t->w[side].total[0] = p->sum[side][0].sum;
    s->t->w[side].samples[0] = p->sum[side][0].low >> NODE_BITS;
    return query_alive(s->q, e);
}

static int pair(struct shown *s, struct query_both *ret, struct query_err *e)
{
    const struct query_gather *g = s->q->gather;
    struct query_numbers u = {.epoch = g->n_acc ? g->acc[0]->trie.epoch : 0};
    struct layer l = {.n_acc = g->n_acc, .acc = g->acc};

    s->t->short_names = g->shortens;
    for (uint32_t i = 0; i < 2; i++)
        s->t->w[i].var_missing = true;
    QUERY_NEW(s->q, &s->stacks, 2, e);
    s->t->stacks = s->stacks;
    TRY(query_tree_init(s->q, s->t, 2, 0, e));
    TRY(merge_layer(s, &l, &ret->merged, e));
    u.n = l.n;
    u.merged = ret->merged;
    TRY(again_bits(s, &l, &u, e));
    ret->n = l.n;
    ret->parent = l.parent;
    ret->func = l.func;
    ret->named = l.named;
    ret->epoch = u.epoch;
    ret->again = u.again;
    for (uint32_t k = 0; k < 2; k++)
        TRY(sum_side(s, ret, k, e));
    return 0;
}

int query_tree_both(struct query *q, struct query_shape *ret_s, struct query_both *ret,
                    bool *ret_done, struct query_err *e)
{
    static const struct query_shown_ask whole = {.width = 1};
    struct query_shape made = {};
    struct query_tree t = {};
    struct shown s = {.q = q, .ask = &whole, .t = &t, .again = true, .floor = INT64_MAX};
    int r;

    *ret_done = asks_for_pair(q);
    if (!*ret_done)
        return 0;
    s.named = by_names(q);
    r = pair(&s, ret, e);
    if (r == 0)
        hand_over(&s, &made, ret_s);
    else
        query_tree_deinit(&t);
    return r;
}

void query_both_deinit(struct query_both *p)
{
    query_tree_deinit(&p->merged);
}
