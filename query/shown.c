// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/hash.h"
#include "query/layer_private.h"

/*
 * The tree of a flame graph without what nobody will see. A view of so many pixels shows no node
 * below its floor, and most nodes are: so weights are added up by numbers alone, what reaches the
 * floor is found, and only that is given a name and a place. The rest stays as what it is to an
 * answer: how many nodes, how much weight.
 */

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
    struct query_layers lay;
    const struct query_shown_ask *ask;
    int64_t floor;
    struct search *search; /* NULL: nothing is searched for */
    struct map func;       /* epoch << 32 | id -> function of the tree */
};

/* ---- into the tree -----------------------------------------------------------------------------
 */

#define PENDING (UINT64_C(1) << 32) /* | place in the batch: a function that is being named */

/* The functions of n picked nodes, the last first, as they are placed: func[] of each. */
static int name_picked(struct shown *s, const struct query_layer *l, const uint32_t *pick,
                       uint32_t n, uint32_t *func, struct query_err *e)
{
    uint32_t epoch = l->acc[0]->trie.epoch, id[QUERY_FUNCS_MAX], new[QUERY_FUNCS_MAX], n_new = 0;
    uint64_t *slot, *slots[QUERY_FUNCS_MAX], known[QUERY_FUNCS_MAX];

    assert(n <= QUERY_FUNCS_MAX);
    if (!map_reserve(&s->func, s->func.n + n)) /* slots stay where they are */
        return query_no_memory(s->lay.q, e);
    for (uint32_t k = n; k-- > 0;) {
        switch (map_at(&s->func, (uint64_t)epoch << 32 | l->func[pick[k]], &slot)) {
        case MAP_FULL:
            return query_no_memory(s->lay.q, e);
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
        TRY(query_tree_funcs(s->lay.q, s->lay.t, epoch, n_new, id, new, e));
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

static int place_one(struct shown *s, const struct query_layer *l, uint32_t i, uint32_t func,
                     struct query_err *e)
{
    uint32_t p = place_of(&s->lay.sum[l->parent[i]]), k = 0;
    uint32_t nodes = (uint32_t)s->lay.sum[i].low & (QUERY_NODES_MAX - 1);

    TRY(query_tree_add(s->lay.q, s->lay.t, p, func, &k, e));
    s->lay.t->fn_flag[func] |= QUERY_FN_FRAME;
    if (s->lay.t->group)
        s->lay.t->group[k] = s->lay.t->group[l->top];
    s->lay.total[k] = s->lay.sum[i].sum;
    s->lay.samples[k] = s->lay.sum[i].low >> QUERY_NODE_BITS;
    s->lay.cut[k] = nodes - 1;
    s->lay.cut[p] -= nodes;
    set_place(&s->lay.sum[i], k);
    return 0;
}

static int place_picked(struct shown *s, const struct query_layer *l, uint32_t picked,
                        struct query_err *e)
{
    uint32_t func[QUERY_FUNCS_MAX];

    while (picked > 0) {
        uint32_t n = picked < QUERY_FUNCS_MAX ? picked : QUERY_FUNCS_MAX;
        const uint32_t *pick = s->lay.pick + picked - n;

        if (!l->named)
            TRY(name_picked(s, l, pick, n, func, e));
        for (uint32_t k = n; k-- > 0;)
            TRY(place_one(s, l, pick[k], l->named ? l->func[pick[k]] : func[k], e));
        picked -= n;
    }
    return 0;
}

/* The picked nodes of a layer, and what they and the level above weigh by themselves. */
static int place_layer(struct shown *s, const struct query_layer *l, uint32_t picked,
                       struct query_err *e)
{
    struct query_weigh *w = &s->lay.t->w[0];

    TRY(query_layers_room(&s->lay, picked, e));
    if (!l->named) /* most of what is shown are functions of their own */
        TRY(query_tree_func_room(s->lay.q, s->lay.t, picked, e));
    s->lay.cut[l->top] += (uint32_t)s->lay.sum[0].low & (QUERY_NODES_MAX - 1);
    set_place(&s->lay.sum[0], l->top);
    TRY(place_picked(s, l, picked, e));
    for (uint32_t i = 0; i < l->n_acc; i++) {
        const struct query_acc *a = l->acc[i];

        for (uint32_t k = 0; k < a->n_entry; k++) {
            const struct query_slim *v = &s->lay.sum[a->entry[k].node];

            if (v->sum >= 0)
                continue;
            w->self[place_of(v)] += a->entry[k].sum;
            w->self_samples[place_of(v)] += a->entry[k].count;
        }
    }
    return 0;
}

/* The functions of n picks. */
static int name_thin(struct shown *s, const struct query_layer *l, const struct query_pick *pick,
                     uint32_t n, uint32_t *func, struct query_err *e)
{
    uint32_t id[QUERY_FUNCS_MAX], at[QUERY_FUNCS_MAX];
    const struct query_layer named = {.acc = l->acc, .func = id};

    for (uint32_t k = 0; k < n; k++) {
        id[k] = pick[k].func;
        at[k] = k;
    }
    return name_picked(s, &named, at, n, func, e);
}

/* A layer of which only what is shown was kept. */
static int place_thin(struct shown *s, const struct query_layer *l, struct query_err *e)
{
    const struct query_thin *t = l->acc[0]->thin;
    struct query_weigh *w = &s->lay.t->w[0];
    uint32_t func[QUERY_FUNCS_MAX], *place;

    assert(l->n_acc == 1 && !s->lay.named);
    TRY(query_layers_room(&s->lay, t->n, e));
    TRY(query_tree_func_room(s->lay.q, s->lay.t, t->n, e));
    if (!map_reserve(&s->func, s->func.n + t->n))
        return query_no_memory(s->lay.q, e);
    QUERY_NEW(s->lay.q, &place, t->n, e);
    place[0] = l->top;
    s->lay.cut[l->top] += t->pick[0].nodes;
    w->self[l->top] += t->pick[0].self;
    w->self_samples[l->top] += t->pick[0].self_count;
    for (uint32_t k = 1; k < t->n; k++) {
        const struct query_pick *x = &t->pick[k];
        uint32_t batch = (k - 1) % QUERY_FUNCS_MAX, left = t->n - k;
        uint32_t i = 0;

        if (batch == 0)
            TRY(name_thin(s, l, x, left < QUERY_FUNCS_MAX ? left : QUERY_FUNCS_MAX, func, e));
        TRY(query_tree_add(s->lay.q, s->lay.t, place[x->parent], func[batch], &i, e));
        s->lay.t->fn_flag[func[batch]] |= QUERY_FN_FRAME;
        if (s->lay.t->group)
            s->lay.t->group[i] = s->lay.t->group[l->top];
        s->lay.total[i] = x->sum;
        s->lay.samples[i] = x->count;
        s->lay.cut[i] = x->nodes - 1;
        s->lay.cut[place[x->parent]] -= x->nodes;
        w->self[i] = x->self;
        w->self_samples[i] = x->self_count;
        place[k] = i;
    }
    s->lay.stacks->no_stack += t->stacks.no_stack;
    s->lay.stacks->truncated += t->stacks.truncated;
    s->lay.stacks->unsymbolised += t->stacks.unsymbolised;
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
    const struct query_tree *t = s->lay.t;
    uint32_t found = s->ask->root ? UINT32_MAX : 0;

    for (uint32_t i = 1; i < t->n; i++) {
        hash[i] = hash_zoom(hash[t->parent[i]], t->fn[t->func[i]].key);
        if (hash[i] == s->ask->root && found == UINT32_MAX)
            found = i;
    }
    return found;
}

static int key_of(struct shown *s, const struct query_layer *l, uint32_t i, struct map *keys,
                  uint64_t *ret, struct query_err *e)
{
    struct store_func f = {};
    struct err err = {};
    uint64_t *slot;
    int r;

    if (l->named) {
        *ret = s->lay.t->fn[l->func[i]].key;
        return 0;
    }
    r = map_at(keys, l->func[i], &slot);
    if (r == MAP_FULL)
        return query_no_memory(s->lay.q, e);
    if (r == MAP_ADDED) {
        r = store_func(s->lay.q->view, l->acc[0]->trie.epoch, l->func[i], &f, &err);
        if (r < 0)
            return query_store_failed(s->lay.q, r, &err, e);
        *slot = f.key;
    }
    *ret = *slot;
    return 0;
}

/* The node of a layer that is asked for, or 0; v: totals. */
static int find_root(struct shown *s, const struct query_layer *l, uint64_t top, uint32_t *ret,
                     struct query_err *e)
{
    uint64_t *hash, key = 0;
    struct map keys;
    int r = 0;

    QUERY_NEW(s->lay.q, &hash, l->n, e);
    map_init(&keys, 0);
    hash[0] = top;
    *ret = 0;
    for (uint32_t i = 1; r == 0 && i < l->n; i++) {
        if (!s->lay.sum[i].low)
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
static int pick_below(struct shown *s, const struct query_layer *l, uint32_t root, uint32_t *ret,
                      struct query_err *e)
{
    uint32_t n = 0, k = 0, depth = 0;
    uint64_t *in;

    QUERY_NEW(s->lay.q, &in, l->n / 64 + 1, e);
    query_bit_set(in, root);
    for (uint32_t i = root; i; i = l->parent[i])
        depth++;
    for (uint32_t i = root; i; i = l->parent[i]) /* rising, from its end */
        s->lay.pick[depth - ++n] = i;
    for (uint32_t i = root + 1; i < l->n; i++) {
        if (!query_bit(in, l->parent[i]))
            continue;
        query_bit_set(in, i);
        if (s->lay.sum[i].sum >= s->floor)
            s->lay.pick[n++] = i;
    }
    for (uint32_t end = n; k + 1 < end; k++) {
        uint32_t swap = s->lay.pick[k];

        s->lay.pick[k] = s->lay.pick[--end];
        s->lay.pick[end] = swap;
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
    return h->seen.functions % 256 == 0 ? query_alive(s->lay.q, e) : 0;
}

/* Ids of the epoch are looked up many at once. */
static int ask_some(struct shown *s, struct search *h, const struct query_layer *l,
                    const uint32_t *id, uint32_t n, struct query_err *e)
{
    struct store_func f[QUERY_FUNCS_MAX];
    struct err err = {};
    int r = store_funcs(s->lay.q->view, l->acc[0]->trie.epoch, n, id, f, &err);

    if (r < 0)
        return query_store_failed(s->lay.q, r, &err, e);
    for (uint32_t i = 0; i < n; i++) {
        const struct query_func fn = {
            .name = f[i].name, .file = f[i].file, .bin = str_basename(f[i].bin), .kind = f[i].kind};

        TRY(ask_one(s, h, id[i], &fn, e));
    }
    return 0;
}

/* Each function of the layer's stacks is asked once. */
static int ask_layer(struct shown *s, struct search *h, const struct query_layer *l,
                     struct query_err *e)
{
    uint32_t id[QUERY_FUNCS_MAX], n = 0;

    for (uint32_t i = 1; i < l->n; i++) {
        uint32_t f = l->func[i];

        if (!s->lay.sum[i].low || h->said[f] != NOT_ASKED)
            continue;
        if (l->named) {
            TRY(ask_one(s, h, f, &s->lay.t->fn[f], e));
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

static int said_room(struct shown *s, struct search *h, const struct query_layer *l, uint32_t n,
                     struct query_err *e)
{
    uint32_t last = 0;

    if (h->said)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < l[i].n_acc && !s->lay.named; k++) {
            struct store_trie t = {};

            TRY(query_layer_trie(&s->lay, l[i].acc[k], &t, e));
            for (uint32_t j = 1; j < t.n_fnode; j++)
                last = t.func[j] > last ? t.func[j] : last;
        }
    }
    QUERY_NEW(s->lay.q, &h->said, s->lay.named ? s->lay.t->n_func : last + 1, e);
    return 0;
}

/* Stacks of a layer that hold a match. root: of the view, in it; in_view: it is, or the layer. */
static int search_layer(struct shown *s, const struct query_layer *l, uint32_t root, bool in_view,
                        struct query_err *e)
{
    struct search *h = s->search;
    uint8_t *in; /* 1: a match is at or above it; 2: in view */

    TRY(ask_layer(s, h, l, e));
    QUERY_NEW(s->lay.q, &in, l->n, e);
    in[root] = in_view ? 2 : 0;
    for (uint32_t i = 1; i < l->n; i++) {
        if (s->lay.sum[i].low)
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

/* Is level i, or a level above it, the one? */
static bool is_below(const struct query_tree *t, uint32_t i, uint32_t level)
{
    while (i > level)
        i = t->parent[i];
    return i == level;
}

/* root: of the view, a level, or UINT32_MAX: it is looked for in the layers. *ret_found */
static int place_all(struct shown *s, struct query_layer *l, uint32_t n, const uint64_t *hash,
                     uint32_t root, bool *ret_found, struct query_err *e)
{
    bool look = root == UINT32_MAX;

    *ret_found = !look;
    if (look)
        s->floor = INT64_MAX;
    else
        set_floor(s, s->lay.total[root]);
    for (uint32_t i = 0; i < n; i++) {
        struct query_tree sk = {};
        uint32_t picked = 0, at = 0;
        int r;

        if (l[i].acc[0]->thin) {
            TRY(place_thin(s, &l[i], e));
            continue;
        }
        r = query_layer_sum(&s->lay, &l[i], s->floor, &sk, &picked, e);

        if (r == 0 && look && !*ret_found)
            r = find_root(s, &l[i], hash[l[i].top], &at, e);
        if (at) {
            *ret_found = true;
            set_floor(s, s->lay.sum[at].sum);
            r = pick_below(s, &l[i], at, &picked, e);
        } else if (look || !is_below(s->lay.t, l[i].top, root)) {
            picked = 0;
        }
        if (r == 0 && s->search)
            r = said_room(s, s->search, l, n, e);
        if (r == 0 && s->search)
            r = search_layer(s, &l[i], at, at || (!look && is_below(s->lay.t, l[i].top, root)), e);
        s->floor = look ? INT64_MAX : s->floor;
        if (r == 0)
            r = place_layer(s, &l[i], picked, e);
        query_tree_deinit(&sk);
        if (r < 0)
            return r;
    }
    return 0;
}

static int finish(struct shown *s, struct query_err *e)
{
    struct query_tree *t = s->lay.t;

    t->w[0].total = s->lay.total;
    t->w[0].samples = s->lay.samples;
    t->cut = s->lay.cut;
    QUERY_NEW(s->lay.q, &t->hash, t->n, e);
    for (uint32_t i = 1; i < t->n; i++)
        t->hash[i] = hash_zoom(t->hash[t->parent[i]], t->fn[t->func[i]].key);
    return query_alive(s->lay.q, e);
}

bool query_tree_shown_fits(const struct query *q, const struct query_shown_ask *ask)
{
    /* while frames are apart it is not known yet what is in view */
    return ask->width > 0 && !(q->own && ask->root && ask->match.n) &&
           query_layers_asked(q, ask->match.n > 0, false) && query_layers_fit(q->gather);
}

static int shown(struct shown *s, struct query_shape *ret, bool *ret_done, struct query_err *e)
{
    struct query_layer *l = NULL;
    uint64_t *hash;
    uint32_t n = 0;

    TRY(query_layers_start(&s->lay, &l, &n, e));
    if (query_layers_sifts(s->lay.q))
        TRY(query_layers_sift(&s->lay, l, n, ret, e));
    QUERY_NEW(s->lay.q, &hash, s->lay.t->n, e);
    TRY(place_all(s, l, n, hash, hash_levels(s, hash), ret_done, e));
    return *ret_done ? finish(s, e) : 0;
}

/* What was found while frames were apart. */
static int found(struct query *q, const struct query_search *x, struct query_shape *made,
                 struct query_err *e)
{
    struct query_seen *seen;

    QUERY_NEW(q, &seen, 1, e);
    *seen = x->any;
    made->seen = seen;
    made->hit = x->bit;
    return 0;
}

int query_tree_shown(struct query *q, const struct query_shown_ask *ask, struct query_shape *ret,
                     bool *ret_done, struct query_err *e)
{
    struct query_search own = {.pattern = &ask->match, .n = 1, .param = "match"};
    struct query_shape made = {};
    struct query_tree t = {};
    struct shown s = {.lay = {.q = q, .t = &t, .keep = ask->root != 0}, .ask = ask};
    int r = 0;

    *ret_done = false;
    if (!query_tree_shown_fits(q, ask))
        return 0;
    s.lay.named = query_layers_named(q, false);
    if (ask->match.n && q->own) {
        s.lay.n_search = 1;
        s.lay.search = &own;
    } else if (ask->match.n) {
        QUERY_NEW(q, &s.search, 1, e);
        r = query_pattern_new(&q->arena, ask->match, "match", &s.search->pattern, e);
        made.seen = &s.search->seen;
    }
    map_init(&s.func, 0);
    if (r == 0)
        r = shown(&s, &made, ret_done, e);
    if (r == 0 && own.done)
        r = found(q, &own, &made, e);
    map_deinit(&s.func);
    if (s.search)
        query_pattern_deinit(&s.search->pattern);
    if (r == 0 && *ret_done) {
        query_layers_hand_over(&s.lay, &made, ret);
    } else {
        query_tree_deinit(&t);
    }
    return r;
}
