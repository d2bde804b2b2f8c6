// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "base/hash.h"
#include "query/layer_private.h"

/*
 * The tree of stacks turned round, leaves first, without what nobody will see. A stack of depth d
 * has d nodes in it, and hardly two stacks share all of theirs: whole, such a tree is many times
 * larger than the one it is made of. So it is not made. The stacks that begin with the same frames,
 * seen from their leaves, are a stretch of an array; a stretch is dealt into one for each function
 * that comes next, in place. What weighs less than the floor has no place in the tree: its nodes
 * are counted, and one stack alone has as many as frames are left of it.
 */

struct stack {
    uint32_t leaf; /* node that weighs something by itself */
    uint32_t at;   /* what comes next of it; 0: nothing */
};

/* Stacks lo to hi - 1, which have the frames of a node in common. */
struct stretch {
    uint32_t lo, hi;
    uint32_t pick;  /* the node; if hidden the one above it that is shown */
    uint32_t depth; /* frames in common */
    uint64_t hash;  /* while the root is looked for */
    bool hidden;
};

struct inverted {
    struct query *q;
    const struct query_numbers *u;
    const struct query_tree *from; /* has the functions, unless they are ids */
    const uint32_t *func;          /* per node: functions as the answer tells them apart; 0: none */
    struct query_tree *to;
    bool named; /* func: of to; else of from, or ids + 1 */
    int64_t floor;

    struct query_slim *own;
    uint32_t *left;     /* per node: frames from it to the root */
    uint32_t *short_as; /* function of from -> of to; NULL: names are not shortened */
    uint32_t *shown_as; /* n_as: the same of those that are shown; NULL: functions are ids */
    uint32_t n_as;
    uint32_t n_stack, n_func;
    struct stack *stack, *spare;
    uint32_t *begin, *met;   /* per function: where its stacks begin; functions of a stretch */
    struct stretch *waiting; /* to be dealt */
    uint32_t n_waiting, n_pick, room;
    struct query_pick *pick; /* parents first; func: as above; nodes: hidden ones below it */
};

/* ---- dealing stacks ----------------------------------------------------------------------------
 */

/* Where the deal ends: the first function in v->met has the stretch's first stacks, and so on. */
static uint32_t deal(struct inverted *v, const struct stretch *s)
{
    uint32_t n = 0, at = s->lo;

    for (uint32_t i = s->lo; i < s->hi; i++) {
        uint32_t f = v->stack[i].at ? v->func[v->stack[i].at] : 0;

        if (v->begin[f]++ == 0)
            v->met[n++] = f;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t size = v->begin[v->met[k]];

        v->begin[v->met[k]] = at;
        at += size;
    }
    memcpy(v->spare, v->stack + s->lo, (s->hi - s->lo) * sizeof *v->spare);
    for (uint32_t i = 0; i < s->hi - s->lo; i++) {
        uint32_t f = v->spare[i].at ? v->func[v->spare[i].at] : 0;

        v->stack[v->begin[f]++] = v->spare[i];
    }
    return n;
}

static bool weighs(const struct inverted *v, uint32_t i)
{
    return (v->own[i].sum | (int64_t)v->own[i].low) != 0;
}

static struct query_slim weight(const struct inverted *v, uint32_t lo, uint32_t hi)
{
    struct query_slim w = {};

    for (uint32_t i = lo; i < hi; i++) {
        w.sum += v->own[v->stack[i].leaf].sum;
        w.low += v->own[v->stack[i].leaf].low;
    }
    return w;
}

static void step_up(struct inverted *v, uint32_t lo, uint32_t hi)
{
    for (uint32_t i = lo; i < hi; i++)
        v->stack[i].at = v->u->parent[v->stack[i].at];
}

/* ---- picks -------------------------------------------------------------------------------------
 */

static int pick_add(struct inverted *v, uint32_t parent, uint32_t func, struct query_slim w,
                    uint32_t *ret, struct query_err *e)
{
    struct query_pick *p = query_grow(v->q, v->pick, v->n_pick, &v->room, sizeof *v->pick, e);

    if (!p)
        return -ENOMEM;
    v->pick = p;
    p[v->n_pick] = (struct query_pick){
        .func = func, .parent = parent, .sum = w.sum, .count = w.low >> QUERY_NODE_BITS};
    *ret = v->n_pick++;
    return 0;
}

/* Stacks that end here are the node's own weight; the others go on below it. */
static int part(struct inverted *v, const struct stretch *s, struct query_err *e)
{
    uint32_t n = deal(v, s), lo = s->lo;

    for (uint32_t k = 0; k < n; k++) {
        uint32_t f = v->met[k], hi = v->begin[f];
        struct stretch to = {.lo = lo, .hi = hi, .pick = s->pick, .hidden = true};

        v->begin[f] = 0;
        lo = hi;
        if (s->hidden && f == 0)
            continue;
        if (!s->hidden) {
            struct query_slim w = weight(v, to.lo, to.hi);

            if (f == 0) {
                v->pick[s->pick].self = w.sum;
                v->pick[s->pick].self_count = w.low >> QUERY_NODE_BITS;
                continue;
            }
            to.hidden = w.sum < v->floor;
            if (!to.hidden)
                TRY(pick_add(v, s->pick, f, w, &to.pick, e));
        }
        if (to.hidden && to.hi - to.lo == 1) {
            v->pick[to.pick].nodes += v->left[v->stack[to.lo].at];
            continue;
        }
        v->pick[to.pick].nodes += to.hidden;
        step_up(v, to.lo, to.hi);
        v->waiting[v->n_waiting++] = to;
    }
    return 0;
}

/* All that hangs below the pick of the stretch. */
static int pick_below(struct inverted *v, struct stretch s, struct query_err *e)
{
    uint64_t n = 0;

    v->n_waiting = 0;
    v->waiting[v->n_waiting++] = s;
    while (v->n_waiting) {
        if (n++ % 4096 == 0)
            TRY(query_alive(v->q, e));
        s = v->waiting[--v->n_waiting];
        TRY(part(v, &s, e));
    }
    return 0;
}

/* ---- the view's root ---------------------------------------------------------------------------
 */

static bool are_ids(const struct inverted *v)
{
    return !v->named && !v->u->named && !v->u->name;
}

static int key_of(struct inverted *v, uint32_t f, uint64_t *ret, struct query_err *e)
{
    struct store_func sf = {};
    struct err err = {};
    int r;

    if (!are_ids(v)) {
        *ret = v->named ? v->to->fn[f].key : v->from->fn[f].key;
        return 0;
    }
    r = store_func(v->q->view, v->u->epoch, f - 1, &sf, &err);
    *ret = sf.key;
    return r < 0 ? query_store_failed(v->q, r, &err, e) : 0;
}

static void begin_again(struct inverted *v)
{
    for (uint32_t i = 0; i < v->n_stack; i++)
        v->stack[i].at = v->stack[i].leaf;
}

/* A leaf whose last *ret_depth frames are the path to the root; depth 0: there is none. */
static int find_root(struct inverted *v, uint64_t want, uint32_t *ret_leaf, uint32_t *ret_depth,
                     struct query_err *e)
{
    uint64_t *key, turn = 0;

    *ret_depth = 0;
    QUERY_NEW(v->q, &key, v->n_func, e);
    v->n_waiting = 0;
    v->waiting[v->n_waiting++] = (struct stretch){.hi = v->n_stack};
    while (v->n_waiting) {
        const struct stretch s = v->waiting[--v->n_waiting];
        uint32_t n = deal(v, &s), lo = s.lo;
        struct stretch to;

        if (turn++ % 4096 == 0)
            TRY(query_alive(v->q, e));
        for (uint32_t k = 0; k < n; k++) {
            uint32_t f = v->met[k];

            to = (struct stretch){.lo = lo, .hi = v->begin[f], .depth = s.depth + 1};
            v->begin[f] = 0;
            lo = to.hi;
            if (f == 0 || *ret_depth)
                continue;
            if (!key[f])
                TRY(key_of(v, f, &key[f], e));
            to.hash = hash_zoom(s.hash, key[f]);
            if (to.hash == want) {
                *ret_leaf = v->stack[to.lo].leaf;
                *ret_depth = to.depth;
                continue; /* begin[] is left as it was found */
            }
            step_up(v, to.lo, to.hi);
            v->waiting[v->n_waiting++] = to;
        }
        if (*ret_depth)
            break;
    }
    begin_again(v);
    return 0;
}

/* Down the path: each of its nodes is a pick, with what it weighs; *s: of the last one. */
static int walk_path(struct inverted *v, uint32_t leaf, uint32_t depth, struct stretch *s,
                     struct query_err *e)
{
    for (uint32_t d = 0, i = leaf; d < depth; d++, i = v->u->parent[i]) {
        struct query_pick *p = &v->pick[s->pick];
        uint32_t n = deal(v, s), lo = s->lo, hi, at = s->lo, end = s->lo;

        for (uint32_t k = 0; k < n; k++, lo = hi) {
            uint32_t f = v->met[k];

            hi = v->begin[f];
            v->begin[f] = 0;
            if (f == 0) {
                p->self = weight(v, lo, hi).sum;
                p->self_count = weight(v, lo, hi).low >> QUERY_NODE_BITS;
            } else if (f == v->func[i]) {
                at = lo;
                end = hi;
            }
        }
        TRY(pick_add(v, s->pick, v->func[i], weight(v, at, end), &s->pick, e));
        step_up(v, at, end);
        s->lo = at;
        s->hi = end;
    }
    return 0;
}

/* ---- functions ---------------------------------------------------------------------------------
 */

/* Short names: several functions become one. It has the file of the one that was met first. */
static int shorten(struct inverted *v, struct query_err *e)
{
    const struct query_numbers *u = v->u;
    uint32_t *func, *as;
    uint8_t *seen;

    QUERY_NEW(v->q, &func, u->n, e);
    QUERY_NEW(v->q, &as, v->from->n_func, e);
    QUERY_NEW(v->q, &seen, u->n, e);
    for (uint32_t i = 1; i < u->n; i++) {
        for (uint32_t k = weighs(v, i) ? i : 0; k && !seen[k]; k = u->parent[k]) {
            seen[k] = 1;
            as[query_numbers_func(u, k)] = 1;
        }
    }
    for (uint32_t f = 1; f < v->from->n_func; f++) {
        struct query_func fn = {};

        if (!as[f])
            continue;
        TRY(query_short_func(v->q, &v->from->fn[f], &fn, e));
        TRY(query_tree_func(v->q, v->to, &fn, &as[f], e));
        v->to->fn_flag[as[f]] |= QUERY_FN_FRAME;
    }
    for (uint32_t k = 1; k < u->n; k++)
        func[k] = seen[k] ? as[query_numbers_func(u, k)] : 0;
    v->func = func;
    v->short_as = v->shown_as = as;
    v->n_as = v->from->n_func;
    v->n_func = v->to->n_func;
    v->named = true;
    return 0;
}

/* Functions as the answer tells them apart: ids + 1, or their numbers in a tree. */
static int number(struct inverted *v, struct query_err *e)
{
    const struct query_numbers *u = v->u;
    uint32_t *func;

    if (v->q->gather->shortens)
        return shorten(v, e);
    QUERY_NEW(v->q, &func, u->n, e);
    for (uint32_t i = 1; i < u->n; i++) {
        if (!query_numbers_weighs(u, i))
            continue;
        func[i] = are_ids(v) ? u->func[i] + 1 : query_numbers_func(u, i);
        v->n_func = func[i] >= v->n_func ? func[i] + 1 : v->n_func;
    }
    v->func = func;
    return 0;
}

/* The functions of picks, as the tree numbers them: into pick[].func. */
static int name_picks(struct inverted *v, struct query_err *e)
{
    uint32_t *as, id[QUERY_FUNCS_MAX], func[QUERY_FUNCS_MAX], n = 0;
    bool ids = are_ids(v);

    if (v->named)
        return 0;
    QUERY_NEW(v->q, &as, v->n_func, e);
    v->shown_as = ids ? NULL : as;
    v->n_as = v->n_func;
    for (uint32_t k = 1; k <= v->n_pick; k++) {
        uint32_t f = k < v->n_pick ? v->pick[k].func : 0;

        if (f && !as[f] && !ids) {
            TRY(query_tree_func(v->q, v->to, &v->from->fn[f], &as[f], e));
        } else if (f && !as[f]) {
            as[f] = UINT32_MAX; /* until it has one */
            id[n++] = f - 1;
        }
        if (n == QUERY_FUNCS_MAX || (n && k == v->n_pick)) {
            TRY(query_tree_funcs(v->q, v->to, v->u->epoch, n, id, func, e));
            for (uint32_t i = 0; i < n; i++)
                as[id[i] + 1] = func[i];
            n = 0;
        }
    }
    for (uint32_t k = 1; k < v->n_pick; k++) {
        v->pick[k].func = as[v->pick[k].func];
        v->to->fn_flag[v->pick[k].func] |= QUERY_FN_FRAME;
    }
    return 0;
}

/* ---- all ---------------------------------------------------------------------------------------
 */

static int start(struct inverted *v, struct query_err *e)
{
    const struct query_numbers *u = v->u;

    QUERY_NEW(v->q, &v->own, u->n, e);
    QUERY_NEW(v->q, &v->left, u->n, e);
    for (uint32_t i = 0; i < u->n_acc; i++)
        query_slim_scatter(v->own, u->acc[i]);
    for (uint32_t i = 0; i < u->n; i++) {
        v->left[i] = i ? v->left[u->parent[i]] + 1 : 0;
        v->n_stack += weighs(v, i);
    }
    TRY(number(v, e));
    QUERY_NEW(v->q, &v->stack, v->n_stack, e);
    QUERY_NEW(v->q, &v->spare, v->n_stack, e);
    QUERY_NEW(v->q, &v->waiting, (size_t)v->n_stack + 1, e);
    QUERY_NEW(v->q, &v->begin, (size_t)v->n_func + 1, e);
    QUERY_NEW(v->q, &v->met, (size_t)v->n_func + 1, e);
    v->n_stack = 0;
    for (uint32_t i = 0; i < u->n; i++) {
        if (weighs(v, i))
            v->stack[v->n_stack++] = (struct stack){i, i};
    }
    return 0;
}

/* Picks into the tree. */
static int place(struct inverted *v, struct query_err *e)
{
    struct query_tree *t = v->to;
    struct query_weigh *w = &t->w[0];
    uint32_t at = 0;

    TRY(name_picks(v, e));
    TRY(query_tree_room(v->q, t, v->n_pick, e));
    QUERY_NEW(v->q, &w->total, v->n_pick, e);
    QUERY_NEW(v->q, &w->samples, v->n_pick, e);
    QUERY_NEW(v->q, &t->cut, v->n_pick, e);
    QUERY_NEW(v->q, &t->hash, v->n_pick, e);
    for (uint32_t k = 0; k < v->n_pick; k++) {
        const struct query_pick *x = &v->pick[k];

        if (k) {
            TRY(query_tree_add(v->q, t, x->parent, x->func, &at, e));
            t->hash[at] = hash_zoom(t->hash[x->parent], t->fn[x->func].key);
        }
        assert(at == k);
        w->total[k] = x->sum;
        w->samples[k] = x->count;
        w->self[k] = x->self;
        w->self_samples[k] = x->self_count;
        t->cut[k] = x->nodes;
    }
    return 0;
}

static int invert(struct inverted *v, const struct query_shown_ask *ask, struct query_err *e)
{
    struct stretch all = {};
    uint32_t leaf = 0, depth = 0;

    TRY(start(v, e));
    all.hi = v->n_stack;
    TRY(pick_add(v, 0, 0, weight(v, 0, all.hi), &all.pick, e));
    if (ask->root)
        TRY(find_root(v, ask->root, &leaf, &depth, e));
    TRY(walk_path(v, leaf, depth, &all, e));
    v->floor = query_floor(v->pick[all.pick].sum, ask->width);
    TRY(pick_below(v, all, e));
    return place(v, e);
}

/* What a search finds: under full names, all of it in view. bit: per function of s->t */
static int search(struct query *q, const struct query_shape *s, const struct query_numbers *u,
                  const struct query_search *own, uint32_t **bit, struct query_seen **ret,
                  struct query_err *e)
{
    struct query_seen each[1] = {};

    QUERY_NEW(q, ret, 1, e);
    if (own->done) {
        **ret = own->any;
        *bit = own->bit;
        return 0;
    }
    QUERY_NEW(q, bit, s->t->n_func, e);
    return query_numbers_find(q, s->t, u, own->pattern, 1, own->param, *bit, each, *ret, e);
}

/* The functions it finds, as they are shown. */
static int found(const struct inverted *v, const uint32_t *bit, struct query_seen *seen,
                 uint32_t **ret, struct query_err *e)
{
    QUERY_NEW(v->q, ret, v->to->n_func, e);
    for (uint32_t f = 1; v->shown_as && f < v->n_as; f++)
        (*ret)[v->shown_as[f]] |= bit[f];
    if (!v->short_as)
        return 0;
    seen->functions = 0;
    for (uint32_t f = 1; f < v->to->n_func; f++)
        seen->functions += (*ret)[f] != 0;
    return 0;
}

static int inverted(struct query *q, const struct query_shown_ask *ask, struct query_shape *s,
                    struct query_numbers *u, const struct query_search *own, struct query_tree *to,
                    struct query_err *e)
{
    struct inverted v = {.q = q, .u = u, .to = to};
    struct query_seen *seen = NULL;
    uint32_t *bit = NULL, *hit = NULL;

    if (ask->match.n || q->gather->shortens)
        TRY(query_numbers_name(q, s->t, u, e));
    if (ask->match.n)
        TRY(search(q, s, u, own, &bit, &seen, e));
    v.from = s->t;
    to->inverted = true;
    to->w[0].var_missing = to->w[1].var_missing = true;
    TRY(query_tree_init(q, to, 1, 0, e));
    TRY(invert(&v, ask, e));
    if (seen && (v.short_as || own->done))
        TRY(found(&v, bit, seen, &hit, e));
    s->seen = seen;
    s->hit = hit;
    return 0;
}

int query_tree_inverted(struct query *q, const struct query_shown_ask *ask, struct query_shape *ret,
                        bool *ret_done, struct query_err *e)
{
    struct query_search own = {.pattern = &ask->match, .n = 1, .param = "match"};
    struct query_numbers u = {};
    struct query_shape s = {};
    struct query_tree to = {};
    int r;

    *ret_done = false;
    if (ask->width == 0 || (ask->root && ask->match.n))
        return 0;
    r = query_tree_numbers(q, true, ask->match.n ? 1 : 0, &own, &s, &u, ret_done, e);
    if (r == 0 && *ret_done)
        r = inverted(q, ask, &s, &u, &own, &to, e);
    query_numbers_deinit(&u);
    if (r == 0 && *ret_done) {
        query_tree_deinit(&s.own);
        *ret = s;
        ret->own = to;
        ret->t = &ret->own;
    } else {
        query_tree_deinit(&to);
        query_shape_deinit(&s);
    }
    return r;
}
