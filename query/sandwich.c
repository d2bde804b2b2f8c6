// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "query/query_private.h"

/*
 * One function in the middle. Each stack that holds it is split at the outermost occurrence: what
 * stands above becomes a tree of callers, the nearest first, what stands below a tree of callees.
 * So a sample is in each of the two once, however often the function recurs, and both weigh what
 * the function weighs in a table.
 */

struct sandwich {
    struct query *q;
    const struct query_shape *s;
    const struct query_numbers *by; /* in place of nodes; NULL: the tree is whole */
    uint32_t n;                     /* nodes of either */
    const uint32_t *parent;
    uint8_t *is;    /* per function: it is the one */
    uint32_t *at;   /* per node: 1 + its node among the callees; 0: not at or below an occurrence */
    uint8_t *outer; /* per node: an outermost occurrence */
    uint32_t n_hit, *hit; /* those functions */
    uint32_t one;         /* the function, if there is only one; else 0 */
    struct query_tree callers, callees;
};

static bool meant(const struct query_func *f, const struct query_sandwich_ask *ask)
{
    return str_eq(f->name, ask->fn) && (ask->bin.n == 0 || str_eq(f->bin, ask->bin)) &&
           (ask->file.n == 0 || str_eq(f->file, ask->file));
}

/* ---- nodes, of the tree or by numbers ----------------------------------------------------------
 */

static bool is_frame(const struct sandwich *w, uint32_t i)
{
    return w->by ? i && query_numbers_weighs(w->by, i) : !(w->s->t->flag[i] & QUERY_NODE_LEVEL);
}

/* Of a frame. */
static uint32_t func_of(const struct sandwich *w, uint32_t i)
{
    return w->by ? query_numbers_func(w->by, i) : w->s->t->func[i];
}

static unit_i128 total_of(const struct sandwich *w, uint32_t i)
{
    return w->by ? w->by->sum[i].sum : w->s->t->w[0].total[i];
}

static uint64_t samples_of(const struct sandwich *w, uint32_t i)
{
    return w->by ? w->by->sum[i].low >> QUERY_NODE_BITS : w->s->t->w[0].samples[i];
}

static bool is_unknown(const struct sandwich *w, uint32_t i)
{
    return !w->by && (w->s->t->flag[i] & QUERY_NODE_UNKNOWN);
}

/* ---- the two trees -----------------------------------------------------------------------------
 */

/* In the order in which stacks have them. One that filters took from all stacks is none. */
static int find(struct sandwich *w, const struct query_sandwich_ask *ask, struct query_err *e)
{
    const struct query_tree *t = w->s->t;
    uint8_t *asked;

    QUERY_NEW(w->q, &asked, t->n_func, e);
    for (uint32_t i = 1; i < w->n; i++) {
        uint32_t f = is_frame(w, i) ? func_of(w, i) : 0;

        if (!f || asked[f])
            continue;
        asked[f] = 1;
        w->is[f] = meant(&t->fn[f], ask);
        if (w->is[f])
            w->hit[w->n_hit++] = f;
    }
    w->one = w->n_hit == 1 ? w->hit[0] : 0;
    return 0;
}

/* Both trees use the functions of the shown one, under the same numbers. */
static int new_tree(struct sandwich *w, struct query_tree *t, struct query_err *e)
{
    const struct query_tree *from = w->s->t;

    t->w[0].var_missing = true;
    TRY(query_tree_init(w->q, t, 1, 0, e));
    t->fn = from->fn;
    t->fn_flag = from->fn_flag;
    t->n_func = from->n_func;
    t->cap_func = from->cap_func;
    t->func[0] = w->one;
    return 0;
}

static void split(struct sandwich *w, struct query_sandwich *ret)
{
    uint64_t samples = 0;

    for (uint32_t i = 1; i < w->n; i++) {
        bool hit = is_frame(w, i) && w->is[func_of(w, i)];

        if (hit && !w->by)
            ret->self += w->s->t->w[0].self[i];
        w->outer[i] = hit && !w->at[w->parent[i]];
        w->at[i] = hit || w->at[w->parent[i]];
        if (!w->outer[i])
            continue;
        ret->total += total_of(w, i);
        if (is_unknown(w, i) || samples == BATCH_UNKNOWN)
            samples = BATCH_UNKNOWN;
        else
            samples += samples_of(w, i);
    }
    ret->samples = samples;
}

/* What stacks that end at or below an occurrence weigh, by numbers. */
static void give_entries(struct sandwich *w, struct query_sandwich *ret)
{
    struct query_weigh *own = &w->callees.w[0];

    for (uint32_t k = 0; w->by && k < w->by->n_acc; k++) {
        const struct query_acc *a = w->by->acc[k];

        for (uint32_t i = 0; i < a->n_entry; i++) {
            const struct query_entry *x = &a->entry[i];

            if (!w->at[x->node])
                continue;
            own->self[w->at[x->node] - 1] += x->sum;
            own->self_samples[w->at[x->node] - 1] += x->count;
            if (w->is[func_of(w, x->node)])
                ret->self += x->sum;
        }
    }
}

static int add_callees(struct sandwich *w, struct query_sandwich *ret, struct query_err *e)
{
    for (uint32_t i = 1; i < w->n; i++) {
        uint32_t node = 0;

        if (!w->at[i] || !is_frame(w, i)) {
            w->at[i] = 0;
            continue;
        }
        if (i % 4096 == 0)
            TRY(query_alive(w->q, e));
        if (!w->outer[i])
            TRY(query_tree_child(w->q, &w->callees, w->at[w->parent[i]] - 1, func_of(w, i), &node,
                                 e));
        w->at[i] = node + 1;
        if (!w->by)
            query_tree_give(&w->callees, node, w->s->t, i);
    }
    give_entries(w, ret);
    return 0;
}

/* All that an occurrence weighs stands at the far end of its callers. */
static int add_callers(struct sandwich *w, struct query_err *e)
{
    for (uint32_t i = 1; i < w->n; i++) {
        uint32_t node = 0;

        if (!w->outer[i])
            continue;
        TRY(query_alive(w->q, e));
        for (uint32_t k = w->parent[i]; is_frame(w, k); k = w->parent[k])
            TRY(query_tree_child(w->q, &w->callers, node, func_of(w, k), &node, e));
        w->callers.w[0].self[node] += total_of(w, i);
        w->callers.w[0].self_samples[node] += samples_of(w, i);
        if (is_unknown(w, i))
            w->callers.flag[node] |= QUERY_SELF_UNKNOWN;
    }
    return 0;
}

static int rows(struct sandwich *w, struct query_tree *t, const struct query_sandwich_ask *ask,
                struct query_fn_table *fns, struct query_flame *ret, struct query_err *e)
{
    struct query_view_ask va = {.width = ask->width,
                                .max_nodes = ask->max_nodes,
                                .order = ask->by_name ? QUERY_SORT_NAME : QUERY_SORT_VALUE};
    const uint8_t *in_view = NULL;

    TRY(query_tree_sum(w->q, t, e));
    va.size = t->w[0].total;
    return query_flame_rows(w->q, t, 0, &va, fns, ret, &in_view, e);
}

static int answer(struct sandwich *w, const struct query_sandwich_ask *ask,
                  struct query_sandwich *ret, struct query_err *e)
{
    const struct query_tree *t = w->s->t;
    struct query_fn_table fns = {};

    w->n = w->by ? w->by->n : t->n;
    w->parent = w->by ? w->by->parent : t->parent;
    QUERY_NEW(w->q, &w->is, t->n_func, e);
    QUERY_NEW(w->q, &w->hit, t->n_func, e);
    QUERY_NEW(w->q, &w->at, w->n, e);
    QUERY_NEW(w->q, &w->outer, w->n, e);
    TRY(find(w, ask, e));
    split(w, ret);
    TRY(new_tree(w, &w->callees, e));
    TRY(new_tree(w, &w->callers, e));
    TRY(add_callees(w, ret, e));
    TRY(add_callers(w, e));
    TRY(query_fn_table(w->q, t, &fns, e));
    for (uint32_t i = 0; i < w->n_hit; i++) {
        fns.at[w->hit[i]] = fns.n++;
        w->hit[i] = fns.at[w->hit[i]];
    }
    ret->n_hit = w->n_hit;
    ret->hit = w->hit;
    TRY(rows(w, &w->callers, ask, &fns, &ret->callers, e));
    TRY(rows(w, &w->callees, ask, &fns, &ret->callees, e));
    assert(ret->callers.total[0] == ret->total && ret->callees.total[0] == ret->total);
    TRY(query_fn_list(w->q, t, &fns, &ret->func, e));
    ret->n_func = fns.n;
    return query_shape_sums(w->q, w->s, &ret->sum, e);
}

/* Stacks by numbers, with the names of all functions in them; else the whole tree. */
static int shape(struct sandwich *w, struct query_shape *s, struct query_numbers *u,
                 struct query_err *e)
{
    bool done = false;

    TRY(query_gather_listed(w->q, e));
    TRY(query_tree_numbers(w->q, false, 0, NULL, s, u, &done, e));
    if (done) {
        w->by = u;
        return query_numbers_name(w->q, s->t, u, e);
    }
    TRY(query_gather_columns(w->q->gather, e));
    return query_shape(w->q, false, s, e);
}

int query_sandwich(struct query *q, const struct query_sandwich_ask *ask,
                   struct query_sandwich *ret, struct query_err *e)
{
    struct query_numbers u = {};
    struct query_shape s = {};
    struct sandwich w = {.q = q, .s = &s};
    struct query_sandwich out = {};
    int r;

    if (ask->fn.n == 0)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "fn", "fn is the name of a function");
    TRY(query_max_nodes(ask->max_nodes, e));
    query_ask_detail(q, QUERY_OF_FUNCTIONS, NULL, 0);
    r = shape(&w, &s, &u, e);
    if (r == 0)
        r = answer(&w, ask, &out, e);
    query_tree_deinit(&w.callers);
    query_tree_deinit(&w.callees);
    query_numbers_deinit(&u);
    query_shape_deinit(&s);
    if (r == 0)
        *ret = out;
    return r;
}
