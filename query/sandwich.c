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
    uint8_t *is;    /* per function: it is the one */
    uint32_t *at;   /* per node: 1 + its node among the callees; 0: not at or below an occurrence */
    uint8_t *outer; /* per node: an outermost occurrence */
    uint32_t one;   /* the function, if there is only one; else 0 */
    struct query_tree callers, callees;
};

static bool meant(const struct query_func *f, const struct query_sandwich_ask *ask)
{
    return str_eq(f->name, ask->fn) && (ask->bin.n == 0 || str_eq(f->bin, ask->bin)) &&
           (ask->file.n == 0 || str_eq(f->file, ask->file));
}

static void find(struct sandwich *w, const struct query_sandwich_ask *ask,
                 struct query_sandwich *ret)
{
    const struct query_tree *t = w->s->t;

    for (uint32_t f = 1; f < t->n_func; f++) {
        w->is[f] = (t->fn_flag[f] & QUERY_FN_FRAME) && meant(&t->fn[f], ask);
        if (w->is[f]) {
            w->one = ret->n_hit ? 0 : f;
            ret->n_hit++;
        }
    }
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
    const struct query_tree *t = w->s->t;
    uint64_t samples = 0;

    for (uint32_t i = 1; i < t->n; i++) {
        bool hit = w->is[t->func[i]] && !(t->flag[i] & QUERY_NODE_LEVEL);

        if (hit)
            ret->self += t->w[0].self[i];
        w->outer[i] = hit && !w->at[t->parent[i]];
        w->at[i] = hit || w->at[t->parent[i]];
        if (!w->outer[i])
            continue;
        ret->total += t->w[0].total[i];
        if (query_samples(t, 0, i) == BATCH_UNKNOWN || samples == BATCH_UNKNOWN)
            samples = BATCH_UNKNOWN;
        else
            samples += t->w[0].samples[i];
    }
    ret->samples = samples;
}

static int add_callees(struct sandwich *w, struct query_err *e)
{
    const struct query_tree *t = w->s->t;

    for (uint32_t i = 1; i < t->n; i++) {
        uint32_t node = 0;

        if (!w->at[i])
            continue;
        if (i % 4096 == 0)
            TRY(query_alive(w->q, e));
        if (!w->outer[i])
            TRY(query_tree_child(w->q, &w->callees, w->at[t->parent[i]] - 1, t->func[i], &node, e));
        w->at[i] = node + 1;
        query_tree_give(&w->callees, node, t, i);
    }
    return 0;
}

/* All that an occurrence weighs stands at the far end of its callers. */
static int add_callers(struct sandwich *w, struct query_err *e)
{
    const struct query_tree *t = w->s->t;

    for (uint32_t i = 1; i < t->n; i++) {
        uint32_t node = 0;

        if (!w->outer[i])
            continue;
        TRY(query_alive(w->q, e));
        for (uint32_t k = t->parent[i]; !(t->flag[k] & QUERY_NODE_LEVEL); k = t->parent[k])
            TRY(query_tree_child(w->q, &w->callers, node, t->func[k], &node, e));
        w->callers.w[0].self[node] += t->w[0].total[i];
        w->callers.w[0].self_samples[node] += t->w[0].samples[i];
        if (t->flag[i] & QUERY_NODE_UNKNOWN)
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
    uint32_t *hit, n = 0;

    QUERY_NEW(w->q, &w->is, t->n_func, e);
    QUERY_NEW(w->q, &w->at, t->n, e);
    QUERY_NEW(w->q, &w->outer, t->n, e);
    find(w, ask, ret);
    split(w, ret);
    TRY(new_tree(w, &w->callees, e));
    TRY(new_tree(w, &w->callers, e));
    TRY(add_callees(w, e));
    TRY(add_callers(w, e));
    TRY(query_fn_table(w->q, t, &fns, e));
    QUERY_NEW(w->q, &hit, ret->n_hit, e);
    for (uint32_t f = 1; f < t->n_func; f++) {
        if (w->is[f]) {
            fns.at[f] = fns.n++;
            hit[n++] = fns.at[f];
        }
    }
    ret->hit = hit;
    TRY(rows(w, &w->callers, ask, &fns, &ret->callers, e));
    TRY(rows(w, &w->callees, ask, &fns, &ret->callees, e));
    assert(ret->callers.total[0] == ret->total && ret->callees.total[0] == ret->total);
    TRY(query_fn_list(w->q, t, &fns, &ret->func, e));
    ret->n_func = fns.n;
    return query_shape_sums(w->q, w->s, &ret->sum, e);
}

int query_sandwich(struct query *q, const struct query_sandwich_ask *ask,
                   struct query_sandwich *ret, struct query_err *e)
{
    struct query_shape s = {};
    struct sandwich w = {.q = q, .s = &s};
    struct query_sandwich out = {};
    int r;

    if (ask->fn.n == 0)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "fn", "fn is the name of a function");
    TRY(query_max_nodes(ask->max_nodes, e));
    q->detail = QUERY_OF_FUNCTIONS;
    TRY(query_gather(q, 0, e));
    r = query_shape(q, false, &s, e);
    if (r == 0)
        r = answer(&w, ask, &out, e);
    query_tree_deinit(&w.callers);
    query_tree_deinit(&w.callees);
    query_shape_deinit(&s);
    if (r == 0)
        *ret = out;
    return r;
}
