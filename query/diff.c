// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/diff_private.h"

/*
 * A before, B after: one scan with two sides, one tree of both. What was measured stays as it is;
 * a difference divides each side by its own denominator and by nothing else. Neither side is
 * scaled to the other, nor for what it lost: that is said in words beside it.
 *
 * A node stays in the answer if it can be seen on either side: its size is the larger of what it is
 * of each side's view.
 */

#define SIZE_ONE ((unit_i128)1 << 62) /* a side's whole view */

/* ---- the tree ----------------------------------------------------------------------------------
 */

static unit_i128 size_of(unit_i128 v, unit_i128 view)
{
    return view > 0 ? (unit_i128)((double)v / (double)view * (double)SIZE_ONE) : 0;
}

/* Larger of both sides, relative to each side's view. Above the view's root it may be beyond 1. */
static int sizes(struct query_differ *d, struct query_err *e)
{
    const struct query_tree *t = d->s.t;

    QUERY_NEW(d->q[0], &d->size, t->n, e);
    for (uint32_t i = 0; i < t->n; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            unit_i128 s = size_of(t->w[k].total[i], t->w[k].total[d->root]);

            if (s > d->size[i])
                d->size[i] = s;
        }
    }
    return 0;
}

static int churns(struct query_differ *d, struct query_err *e)
{
    const struct query_tree *t = d->s.t;

    QUERY_NEW(d->q[0], &d->churn, t->n, e);
    for (uint32_t i = t->n; i-- > 0;) {
        d->churn[i] +=
            fabs(query_diff_value(d, 1, t->w[1].self[i]) - query_diff_value(d, 0, t->w[0].self[i]));
        if (i)
            d->churn[t->parent[i]] += d->churn[i];
    }
    return 0;
}

/* ---- by numbers --------------------------------------------------------------------------------
 */

/* churns() of all nodes, in their order: sums of doubles. NULL: not comparable. */
static int pair_churns(struct query_differ *d, double **ret, struct query_err *e)
{
    const struct query_both *p = &d->p;
    double *churn;

    *ret = NULL;
    if (!d->ret->comparable)
        return 0;
    QUERY_NEW(d->q[0], &churn, p->n, e);
    for (uint32_t i = p->n; i-- > 0;) {
        churn[i] += fabs(query_diff_value(d, 1, p->own[1][i].sum) -
                         query_diff_value(d, 0, p->own[0][i].sum));
        if (i)
            churn[p->parent[i]] += churn[i];
    }
    *ret = churn;
    return 0;
}

static int pair_func(struct query_differ *d, struct query_ids *ids, uint32_t i, uint32_t *ret,
                     struct query_err *e)
{
    if (d->p.named) {
        *ret = d->p.func[i];
        return 0;
    }
    return query_tree_func_by_id(d->q[0], d->s.t, ids, d->p.func[i], ret, e);
}

static int pair_ids(struct query_differ *d, struct query_ids **ret, struct query_err *e)
{
    uint32_t last = 0;

    if (d->p.named)
        return 0;
    for (uint32_t i = 1; i < d->p.n; i++)
        last = d->p.func[i] > last ? d->p.func[i] : last;
    return query_tree_ids(d->q[0], d->s.t, d->p.epoch, last + 1, ret, e);
}

/* The smallest size that is shown: what view.c makes of the root's. */
static unit_i128 pair_floor(const struct query_differ *d)
{
    bool any = d->p.sum[0][0].sum > 0 || d->p.sum[1][0].sum > 0;
    unit_i128 size = any ? SIZE_ONE : 0, width = d->ask->width;
    unit_i128 floor = size / width + (size % width != 0);

    return floor > 0 ? floor : 1;
}

static bool pair_shown(const struct query_differ *d, uint32_t i, unit_i128 floor)
{
    const struct query_both *p = &d->p;

    return size_of(p->sum[0][i].sum, p->sum[0][0].sum) >= floor ||
           size_of(p->sum[1][i].sum, p->sum[1][0].sum) >= floor;
}

static void pair_weigh(struct query_differ *d, uint32_t i, uint32_t k)
{
    for (uint32_t s = 0; s < 2; s++) {
        struct query_weigh *w = &d->s.t->w[s];
        const struct query_slim *own = &d->p.own[s][i], *sum = &d->p.sum[s][i];

        w->self[k] = own->sum;
        w->self_samples[k] = own->low >> QUERY_NODE_BITS;
        w->total[k] = sum->sum;
        w->samples[k] = sum->low >> QUERY_NODE_BITS;
    }
}

/* Columns of the tree for n nodes. */
static int pair_columns(struct query_differ *d, uint32_t n, struct query_err *e)
{
    struct query_tree *t = d->s.t;

    TRY(query_tree_room(d->q[0], t, n, e));
    QUERY_NEW(d->q[0], &t->hash, n, e);
    QUERY_NEW(d->q[0], &t->cut, n, e);
    for (uint32_t k = 0; k < 2; k++) {
        QUERY_NEW(d->q[0], &t->w[k].total, n, e);
        QUERY_NEW(d->q[0], &t->w[k].samples, n, e);
    }
    return 0;
}

/* What is shown of the pair becomes the tree; of the rest there is how many nodes it has. */
static int pair_place(struct query_differ *d, struct query_err *e)
{
    const struct query_both *p = &d->p;
    struct query_tree *t = d->s.t;
    struct query_ids *ids = NULL;
    unit_i128 floor = pair_floor(d);
    uint32_t *nodes, *place, n = 1;
    double *churn;

    TRY(pair_churns(d, &churn, e));
    TRY(pair_ids(d, &ids, e));
    QUERY_NEW(d->q[0], &nodes, p->n, e);
    QUERY_NEW(d->q[0], &place, p->n, e);
    for (uint32_t i = p->n; i-- > 1;) {
        nodes[p->parent[i]] += ++nodes[i];
        n += pair_shown(d, i, floor);
    }
    TRY(pair_columns(d, n, e));
    if (churn)
        QUERY_NEW(d->q[0], &d->churn, n, e);
    t->cut[0] = nodes[0];
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t func = 0, k = 0, up = place[p->parent[i]];

        if (i && !pair_shown(d, i, floor))
            continue;
        if (i) {
            TRY(pair_func(d, ids, i, &func, e));
            TRY(query_tree_add(d->q[0], t, up, func, &k, e));
            t->fn_flag[func] |= QUERY_FN_FRAME;
            t->hash[k] = hash_zoom(t->hash[up], t->fn[func].key);
            t->cut[k] = nodes[i] - 1;
            t->cut[up] -= nodes[i];
        }
        place[i] = k;
        pair_weigh(d, i, k);
        if (churn)
            d->churn[k] = churn[i];
    }
    return query_alive(d->q[0], e);
}

/* By what siblings fall. Churn is a fraction of all there is, so that it fits an integer. */
static int sort_values(struct query_differ *d, struct query_err *e)
{
    const struct query_tree *t = d->s.t;
    enum query_diff_order order = d->ask->order;

    if (order == QUERY_ORDER_A || order == QUERY_ORDER_B) {
        d->sort = t->w[order == QUERY_ORDER_B].total;
        return 0;
    }
    if (order != QUERY_ORDER_DELTA || !d->churn)
        return 0;
    QUERY_NEW(d->q[0], &d->sort, t->n, e);
    for (uint32_t i = 0; d->churn[0] > 0 && i < t->n; i++)
        d->sort[i] = (unit_i128)(d->churn[i] / d->churn[0] * (double)SIZE_ONE);
    return 0;
}

static int new_deltas(struct query_differ *d, uint32_t n, struct query_delta **ret,
                      uint8_t **ret_state, struct query_err *e)
{
    QUERY_NEW(d->q[0], ret_state, n, e);
    QUERY_NEW(d->q[0], ret, n, e);
    d->ret->state = *ret_state;
    d->ret->delta_row = *ret;
    return 0;
}

/*
 * Beside the rows of the tree: states and, if comparable, differences. The churn of a hidden row,
 * the last of its siblings, is what its parent's own and the shown siblings leave of the parent's.
 */
static int tree_deltas(struct query_differ *d, const struct query_columns *c, struct query_err *e)
{
    struct query_delta *out = NULL;
    uint8_t *state = NULL;
    uint32_t *open; /* row by depth */
    double *rest;

    TRY(new_deltas(d, c->n, &out, &state, e));
    QUERY_NEW(d->q[0], &open, (size_t)c->n + 1, e);
    QUERY_NEW(d->q[0], &rest, c->n, e);
    for (uint32_t i = 0; i < c->n; i++) {
        unit_i128 self[2] = {c->self[0][i], c->self[1][i]};
        unit_i128 total[2] = {c->total[0][i], c->total[1][i]};
        uint64_t samples[2] = {c->samples[0][i], c->samples[1][i]};
        bool hidden = c->func[i] < 0;
        double var[2] = {hidden ? -1 : query_diff_var(d, 0, c->node[i]),
                         hidden ? -1 : query_diff_var(d, 1, c->node[i])};
        double *above = i ? &rest[open[c->depth[i] - 1]] : NULL;

        state[i] = (uint8_t)query_diff_state(total, samples);
        open[c->depth[i]] = i;
        if (!d->ret->comparable)
            continue;
        out[i] = query_diff_delta(d, self, total, samples, var);
        out[i].churn = !hidden ? d->churn[c->node[i]] : above && *above > 0 ? *above : 0;
        rest[i] = out[i].churn - fabs(out[i].self);
        if (above)
            *above -= out[i].churn;
    }
    return 0;
}

static int tree(struct query_differ *d, struct query_err *e)
{
    const struct query_tree *t = d->s.t;
    struct query_view_ask va = {.width = d->ask->width,
                                .max_nodes = d->ask->max_nodes,
                                .order = d->ask->order == QUERY_ORDER_NAME ? QUERY_SORT_NAME
                                                                           : QUERY_SORT_VALUE};
    struct query_diff *r = d->ret;
    struct query_columns c = {};
    const uint8_t *in_view = NULL;
    unit_i128 floor = 0;

    if (d->by_numbers)
        TRY(pair_place(d, e));
    TRY(query_fn_table(d->q[0], t, &d->fns, e));
    TRY(query_path(d->q[0], t, d->root, &d->fns, &r->n_path, &r->path, e));
    TRY(sizes(d, e));
    if (r->comparable && !d->by_numbers)
        TRY(churns(d, e));
    TRY(sort_values(d, e));
    va.size = d->size;
    va.sort_value = d->sort;
    TRY(query_view(d->q[0], t, d->root, &va, &d->fns, &c, &floor, &in_view, e));
    TRY(tree_deltas(d, &c, e));
    r->view_root = t->hash[d->root];
    r->n = c.n;
    r->depth = c.depth;
    r->node_func = c.func;
    r->hidden = c.hidden;
    for (uint32_t i = 0; i < c.n; i++)
        r->hidden_nodes += c.hidden[i];
    for (uint32_t k = 0; k < 2; k++) {
        r->self[k] = c.self[k];
        r->total[k] = c.total[k];
        r->samples[k] = c.samples[k];
    }
    return 0;
}

/* ---- the table ---------------------------------------------------------------------------------
 */

struct row {
    uint32_t func;
    unit_i128 self[2], total[2];
    uint64_t samples[2];
    double var[2]; /* negative: unknown */
    struct query_delta delta;
};

static void add_node(const struct query_tree *t, uint32_t i, struct row *r)
{
    for (uint32_t k = 0; k < 2; k++) {
        uint64_t samples = query_samples(t, k, i);

        r->self[k] += t->w[k].self[i];
        if (t->flag[i] & QUERY_NODE_AGAIN)
            continue;
        r->total[k] += t->w[k].total[i];
        r->var[k] = t->w[k].var && r->var[k] >= 0 ? r->var[k] + t->w[k].var[i] : -1;
        if (samples == BATCH_UNKNOWN || r->samples[k] == BATCH_UNKNOWN)
            r->samples[k] = BATCH_UNKNOWN;
        else
            r->samples[k] += samples;
    }
}

static int row_cmp(const void *va, const void *vb, void *ctx)
{
    const struct row *a = va, *b = vb;
    const struct query_differ *d = ctx;
    const struct query_func *fn = d->s.t->fn;
    uint64_t ka = fn[a->func].key, kb = fn[b->func].key;
    enum query_diff_order o = d->ask->order;
    double da = fabs(a->delta.self), db = fabs(b->delta.self);
    int r = 0;

    if (o == QUERY_ORDER_NAME)
        r = str_cmp(fn[a->func].name, fn[b->func].name);
    else if (o == QUERY_ORDER_DELTA && da != db) /* all are 0 if they cannot be compared */
        return da > db ? -1 : 1;
    else if (o == QUERY_ORDER_A)
        r = (a->total[0] < b->total[0]) - (a->total[0] > b->total[0]);
    else
        r = (a->total[1] < b->total[1]) - (a->total[1] > b->total[1]);
    return r ? r : (ka > kb) - (ka < kb);
}

static int put_rows(struct query_differ *d, const struct row *row, uint32_t n, struct query_err *e)
{
    struct query_diff *r = d->ret;
    struct query_delta *out = NULL;
    uint8_t *state = NULL;
    unit_i128 *self[2], *total[2];
    uint64_t *samples[2];
    int32_t *func;

    TRY(new_deltas(d, n, &out, &state, e));
    QUERY_NEW(d->q[0], &func, n, e);
    for (uint32_t k = 0; k < 2; k++) {
        QUERY_NEW(d->q[0], &self[k], n, e);
        QUERY_NEW(d->q[0], &total[k], n, e);
        QUERY_NEW(d->q[0], &samples[k], n, e);
        for (uint32_t i = 0; i < n; i++) {
            self[k][i] = row[i].self[k];
            total[k][i] = row[i].total[k];
            samples[k][i] = row[i].samples[k];
        }
        r->self[k] = self[k];
        r->total[k] = total[k];
        r->samples[k] = samples[k];
    }
    for (uint32_t i = 0; i < n; i++) {
        d->fns.at[row[i].func] = d->fns.n++;
        func[i] = (int32_t)d->fns.at[row[i].func];
        state[i] = (uint8_t)query_diff_state(row[i].total, row[i].samples);
        out[i] = row[i].delta;
    }
    r->node_func = func;
    r->n = n;
    return 0;
}

static int tree_rows(struct query_differ *d, struct row **ret, struct query_err *e)
{
    const struct query_tree *t = d->s.t;
    struct row *row;

    QUERY_NEW(d->q[0], &row, t->n_func, e);
    for (uint32_t i = 1; i < t->n; i++) {
        row[t->func[i]].func = t->func[i];
        add_node(t, i, &row[t->func[i]]);
    }
    *ret = row;
    return 0;
}

static void add_pair_node(const struct query_both *p, uint32_t i, struct row *r)
{
    for (uint32_t k = 0; k < 2; k++) {
        r->self[k] += p->own[k][i].sum;
        if (query_bit(p->again, i))
            continue;
        r->total[k] += p->sum[k][i].sum;
        r->samples[k] += p->sum[k][i].low >> QUERY_NODE_BITS;
        r->var[k] = -1;
    }
}

static int pair_rows(struct query_differ *d, struct row **ret, struct query_err *e)
{
    struct query_ids *ids = NULL;
    struct row *row;
    uint32_t *func;

    TRY(pair_ids(d, &ids, e));
    QUERY_NEW(d->q[0], &func, d->p.n, e);
    for (uint32_t i = 1; i < d->p.n; i++)
        TRY(pair_func(d, ids, i, &func[i], e));
    QUERY_NEW(d->q[0], &row, d->s.t->n_func, e);
    for (uint32_t i = 1; i < d->p.n; i++) {
        row[func[i]].func = func[i];
        add_pair_node(&d->p, i, &row[func[i]]);
    }
    *ret = row;
    return 0;
}

static int table(struct query_differ *d, struct query_err *e)
{
    const struct query_tree *t = d->s.t;
    struct row *row = NULL;
    uint32_t n = 0;

    if (d->by_numbers)
        TRY(pair_rows(d, &row, e));
    else
        TRY(tree_rows(d, &row, e));
    TRY(query_fn_table(d->q[0], t, &d->fns, e));
    for (uint32_t f = 1; f < t->n_func; f++) {
        if (row[f].func)
            row[n++] = row[f];
    }
    for (uint32_t i = 0; d->ret->comparable && i < n; i++) {
        for (uint32_t k = 0; k < 2; k++)
            row[i].var[k] = d->spread[k] ? d->spread[k][row[i].func] : row[i].var[k];
        row[i].delta = query_diff_delta(d, row[i].self, row[i].total, row[i].samples, row[i].var);
    }
    if (n > 1)
        qsort_r(row, n, sizeof *row, row_cmp, d);
    d->ret->rows = n;
    return put_rows(d, row, n < d->ask->limit ? n : d->ask->limit, e);
}

/* ---- the answer --------------------------------------------------------------------------------
 */

static void headline(struct query_differ *d)
{
    const struct query_tree *t = d->s.t;
    unit_i128 self[2] = {}, total[2] = {t->w[0].total[d->root], t->w[1].total[d->root]};
    uint64_t samples[2] = {query_samples(t, 0, d->root), query_samples(t, 1, d->root)};
    double var[2];
    struct query_delta r;

    if (!d->ret->comparable)
        return;
    for (uint32_t k = 0; k < 2; k++)
        var[k] = query_diff_var(d, k, d->root);
    r = query_diff_delta(d, self, total, samples, var);
    d->ret->delta = r.total;
    d->ret->delta_se = r.se;
}

/* The view's root is looked for by names, and all nodes are shown with them. */
static bool numbers_do(const struct query_diff_ask *ask)
{
    return ask->table || (ask->width > 0 && ask->root == 0);
}

static int shape_numbers(struct query_differ *d, struct query_err *e)
{
    if (!numbers_do(d->ask))
        return 0;
    TRY(query_gather_listed(d->q[0], e));
    TRY(query_tree_both(d->q[0], &d->s, &d->p, &d->by_numbers, e));
    return d->by_numbers ? 0 : query_gather_columns(d->q[0]->gather, e);
}

static int shape_whole(struct query_differ *d, struct query_err *e)
{
    bool gathered = numbers_do(d->ask) && !d->by_numbers; /* else numbers were made of it */

    d->by_numbers = false;
    query_shape_deinit(&d->s);
    d->s = (struct query_shape){};
    if (!gathered)
        TRY(query_gather(d->q[0], 0, e));
    return query_shape(d->q[0], false, &d->s, e);
}

static int diff(struct query_differ *d, struct query_err *e)
{
    struct query *q = d->q[0];

    query_ask_detail(q, QUERY_OF_FUNCTIONS, NULL, 0);
    TRY(shape_numbers(d, e));
    if (!d->by_numbers)
        TRY(shape_whole(d, e));
    d->ret->view_found = true;
    if (!d->by_numbers)
        d->root = query_zoom(d->s.t, d->ask->table ? 0 : d->ask->root, &d->ret->view_found);
    for (uint32_t k = 0; k < 2; k++)
        TRY(query_diff_side_sums(d, k, e));
    query_diff_compare(d);
    if (d->by_numbers && (query_diff_wants_spread(d, 0) || query_diff_wants_spread(d, 1)))
        TRY(shape_whole(d, e)); /* its root is node 0 as well */
    TRY(query_diff_warnings(d, e));
    TRY(query_diff_spreads(d, e));
    TRY(query_alive(q, e));
    headline(d);
    if (d->ask->table)
        TRY(table(d, e));
    else
        TRY(tree(d, e));
    TRY(query_fn_list(q, d->s.t, &d->fns, &d->ret->func, e));
    d->ret->n_func = d->fns.n;
    return 0;
}

int query_diff(struct query *q, const struct query_diff_ask *ask, struct query_diff *ret,
               struct query_err *e)
{
    struct query_diff out = {.view_asked = ask->root, .delta_se = -1};
    struct query_differ d = {.q = {q, q->other}, .ask = ask, .ret = &out};
    int r;

    assert(q->other);
    TRY(query_diff_check(q, ask, e));
    r = diff(&d, e);
    query_shape_deinit(&d.s);
    query_both_deinit(&d.p);
    if (r == 0)
        *ret = out;
    return r;
}
