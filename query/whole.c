// SPDX-License-Identifier: Apache-2.0
#include "query/layer_private.h"

/*
 * All nodes by numbers of functions, with what they weigh, and none by name: of one question, which
 * tables are made of, and of the two sides of a difference.
 */

/* Names that were shortened may have made one function of two. */
static int again_of_names(struct query_layers *s, struct query_numbers *u, struct query_err *e)
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

static int again_bits(struct query_layers *s, const struct query_layer *l, struct query_numbers *u,
                      struct query_err *e)
{
    struct store_trie t = {};
    uint64_t *bits;

    if (u->merged.n == 0) {
        TRY(query_layer_trie(s, l->acc[0], &t, e));
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

/* What was summed of a layer. */
static int hand_numbers(struct query_layers *s, const struct query_layer *l,
                        struct query_numbers *ret, struct query_err *e)
{
    ret->n = l->n;
    ret->parent = l->parent;
    ret->func = l->func;
    ret->named = l->named;
    ret->epoch = l->acc[0]->trie.epoch;
    ret->sum = s->sum;
    ret->n_acc = l->n_acc;
    ret->acc = l->acc;
    return s->again ? again_bits(s, l, ret, e) : 0;
}

static int numbers(struct query_layers *s, struct query_shape *made, struct query_numbers *ret,
                   struct query_err *e)
{
    struct query_layer *l = NULL;
    uint32_t n = 0, picked = 0;

    TRY(query_layers_start(s, &l, &n, e));
    if (query_layers_sifts(s->q))
        TRY(query_layers_sift(s, l, n, made, e));
    s->t->w[0].total = s->total;
    s->t->w[0].samples = s->samples;
    assert(n <= 1); /* there are no levels but the root */
    if (n == 0)
        return 0;
    TRY(query_layer_sum(s, l, INT64_MAX, &ret->merged, &picked, e));
    if (l->made)
        ret->merged = s->left;
    TRY(hand_numbers(s, l, ret, e));
    return query_alive(s->q, e);
}

int query_tree_numbers(struct query *q, bool stacks, uint32_t n_search, struct query_search *search,
                       struct query_shape *ret_s, struct query_numbers *ret, bool *ret_done,
                       struct query_err *e)
{
    struct query_shape made = {};
    struct query_tree t = {};
    struct query_layers s = {.q = q,
                             .t = &t,
                             .again = !stacks,
                             .full = stacks,
                             .n_search = q->own ? n_search : 0,
                             .search = search};
    int r;

    *ret_done = query_layers_asked(q, false, stacks) && q->n_by == 0 && query_layers_fit(q->gather);
    if (!*ret_done)
        return 0;
    s.named = query_layers_named(q, stacks);
    r = numbers(&s, &made, ret, e);
    if (r == 0)
        query_layers_hand_over(&s, &made, ret_s);
    else
        query_tree_deinit(&t);
    return r;
}

/* One layer after the other, in the same memory. */
static int numbers_each(struct query_layers *s, query_numbers_fn *fn, void *ctx,
                        struct query_err *e)
{
    struct query_layer *l = NULL;
    uint32_t n = 0;

    TRY(query_layers_start(s, &l, &n, e));
    s->t->w[0].total = s->total;
    s->t->w[0].samples = s->samples;
    for (uint32_t i = 0; i < n; i++) {
        struct query_numbers u = {};
        uint32_t picked = 0;
        int r = query_layer_sum(s, &l[i], INT64_MAX, &u.merged, &picked, e);

        if (r == 0)
            r = hand_numbers(s, &l[i], &u, e);
        if (r == 0)
            r = fn(ctx, s->t, &u, s->t->group[l[i].top], e);
        query_numbers_deinit(&u);
        TRY(r);
    }
    return query_alive(s->q, e);
}

int query_tree_numbers_by(struct query *q, query_numbers_fn *fn, void *ctx, struct query_shape *ret,
                          bool *ret_done, struct query_err *e)
{
    struct query_shape made = {};
    struct query_tree t = {};
    struct query_layers s = {.q = q, .t = &t, .again = true};
    int r;

    assert(q->n_by);
    *ret_done = query_layers_asked(q, false, false) && query_layers_fit(q->gather);
    if (!*ret_done)
        return 0;
    r = numbers_each(&s, fn, ctx, e);
    if (r == 0)
        query_layers_hand_over(&s, &made, ret);
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
           q->head.agg == QUERY_SUM && query_layers_fit(q->gather);
}

/* What a side weighs, by node of the pair. */
static int sum_side(struct query_layers *s, struct query_both *p, uint32_t side,
                    struct query_err *e)
{
    const struct query_gather *g = s->q->gather;

    QUERY_NEW(s->q, &p->own[side], p->n, e);
    QUERY_NEW(s->q, &p->sum[side], p->n, e);
    for (uint32_t i = 0; i < g->n_acc; i++) {
        if (g->acc[i]->side == side)
            query_slim_scatter(p->own[side], g->acc[i]);
    }
    memcpy(p->sum[side], p->own[side], p->n * sizeof *p->sum[side]);
    TRY(query_layers_scratch(s, p->n, e));
    (void)query_slim_add_up(p->sum[side], p->parent, p->n, INT64_MAX, s->pick);
    QUERY_NEW(s->q, &s->t->w[side].total, 1, e);
    QUERY_NEW(s->q, &s->t->w[side].samples, 1, e);
    s->t->w[side].total[0] = p->sum[side][0].sum;
    s->t->w[side].samples[0] = p->sum[side][0].low >> QUERY_NODE_BITS;
    return query_alive(s->q, e);
}

static int pair(struct query_layers *s, struct query_both *ret, struct query_err *e)
{
    const struct query_gather *g = s->q->gather;
    struct query_numbers u = {.epoch = g->n_acc ? g->acc[0]->trie.epoch : 0};
    struct query_layer l = {.n_acc = g->n_acc, .acc = g->acc};

    s->t->short_names = g->shortens;
    s->names = s->t;
    for (uint32_t i = 0; i < 2; i++)
        s->t->w[i].var_missing = true;
    QUERY_NEW(s->q, &s->stacks, 2, e);
    s->t->stacks = s->stacks;
    TRY(query_tree_init(s->q, s->t, 2, 0, e));
    TRY(query_layer_merge(s, &l, &ret->merged, e));
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
    struct query_shape made = {};
    struct query_tree t = {};
    struct query_layers s = {.q = q, .t = &t, .again = true};
    int r;

    *ret_done = asks_for_pair(q);
    if (!*ret_done)
        return 0;
    s.named = query_layers_named(q, false);
    r = pair(&s, ret, e);
    if (r == 0)
        query_layers_hand_over(&s, &made, ret_s);
    else
        query_tree_deinit(&t);
    return r;
}

void query_both_deinit(struct query_both *p)
{
    query_tree_deinit(&p->merged);
}
