// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "query/query_private.h"

/*
 * The rows of a tree: what hangs below the view's root, cut to what can be seen.
 *
 * A child's size is at most its parent's, so any floor keeps whole paths. The floor of max_nodes
 * is found without sorting the tree: a histogram of sizes, eight bins to an octave, says for each
 * bin how many rows remain if all below it are dropped (a parent that loses children gets one row
 * for them); then the bin that fits only in part is sorted alone. The size is the total; of a
 * difference the larger of what a node is of either side.
 */

#define BINS (8 * 128 + 2) /* 0: below the floor, never kept */

struct view {
    struct query *q;
    const struct query_tree *t;
    const struct query_view_ask *ask;
    uint32_t root;
    unit_i128 floor;
    uint8_t *state; /* per node */
    uint32_t *size; /* nodes of the subtree, itself included */
    uint32_t *depth;
    unit_i128 *child_min;
    uint32_t *dropped; /* children that are not kept */
    uint32_t n_view, n_kept, rows;
};

enum {
    IN_VIEW = 1,
    KEPT = 2,
    HAS_CHILD = 4,
};

static uint32_t bin_of(unit_i128 v)
{
    uint64_t high = (uint64_t)(v >> 64), low = (uint64_t)v;
    uint32_t e;

    if (v <= 0)
        return 1;
    e = high ? 127 - (uint32_t)__builtin_clzll(high) : 63 - (uint32_t)__builtin_clzll(low);
    return 1 + 8 * e + (uint32_t)(e >= 3 ? (uint64_t)(v >> (e - 3)) & 7 : low << (3 - e) & 7);
}

static uint32_t node_bin(const struct view *w, uint32_t i)
{
    return w->ask->size[i] < w->floor ? 0 : bin_of(w->ask->size[i]);
}

uint32_t query_zoom(const struct query_tree *t, uint64_t want, bool *ret_found)
{
    *ret_found = true;
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->hash[i] == want)
            return i;
    }
    *ret_found = false;
    return 0;
}

int query_path(struct query *q, const struct query_tree *t, uint32_t node,
               struct query_fn_table *fns, uint32_t *ret_n, const struct query_step **ret,
               struct query_err *e)
{
    struct query_step *path;
    uint32_t n = 1;

    if (node == 0)
        return 0;
    for (uint32_t i = node; i; i = t->parent[i])
        n++;
    QUERY_NEW(q, &path, n, e);
    for (uint32_t i = node, k = n - 1; k > 0; i = t->parent[i], k--)
        path[k] = (struct query_step){t->func[i], t->hash[i]};
    for (uint32_t k = 1; k < n; k++) {
        if (!fns->at[path[k].func])
            fns->at[path[k].func] = fns->n++;
        path[k].func = fns->at[path[k].func];
    }
    *ret_n = n;
    *ret = path;
    return 0;
}

int query_fn_table(struct query *q, const struct query_tree *t, struct query_fn_table *ret,
                   struct query_err *e)
{
    QUERY_NEW(q, &ret->at, t->n_func, e);
    ret->n = 1;
    return 0;
}

int query_fn_list(struct query *q, const struct query_tree *t, const struct query_fn_table *tb,
                  const struct query_func **ret, struct query_err *e)
{
    struct query_func *fn;

    QUERY_NEW(q, &fn, tb->n, e);
    fn[0] = t->fn[0];
    for (uint32_t f = 1; f < t->n_func; f++) {
        if (tb->at[f])
            fn[tb->at[f]] = t->fn[f];
    }
    *ret = fn;
    return 0;
}

/* ---- trimming ----------------------------------------------------------------------------------
 */

static int open_view(struct view *w, struct query_err *e)
{
    const struct query_tree *t = w->t;
    const unit_i128 *size = w->ask->size;

    QUERY_NEW(w->q, &w->state, t->n, e);
    QUERY_NEW(w->q, &w->size, t->n, e);
    QUERY_NEW(w->q, &w->depth, t->n, e);
    QUERY_NEW(w->q, &w->child_min, t->n, e);
    QUERY_NEW(w->q, &w->dropped, t->n, e);
    w->floor = 0;
    if (w->ask->width) {
        w->floor = size[w->root] / w->ask->width + (size[w->root] % w->ask->width != 0);
        if (w->floor == 0)
            w->floor = 1;
    }
    w->state[w->root] = IN_VIEW | KEPT;
    w->n_view = 1;
    for (uint32_t i = w->root; t->cut && i < t->n; i++) {
        if (!t->cut[i])
            continue;
        w->state[i] |= HAS_CHILD; /* of no size that could be shown: child_min is 0 */
        w->dropped[i] = 1;
        w->size[i] = t->cut[i];
    }
    for (uint32_t i = w->root + 1; i < t->n; i++) {
        uint32_t p = t->parent[i];

        if (!(w->state[p] & IN_VIEW))
            continue;
        assert(size[i] <= size[p]);
        w->state[i] |= IN_VIEW;
        w->n_view++;
        w->depth[i] = w->depth[p] + 1;
        if (!(w->state[p] & HAS_CHILD) || size[i] < w->child_min[p])
            w->child_min[p] = size[i];
        w->state[p] |= HAS_CHILD;
        w->dropped[p]++;
    }
    for (uint32_t i = t->n - 1; i > w->root; i--) {
        if (w->state[i] & IN_VIEW)
            w->size[t->parent[i]] += ++w->size[i];
    }
    w->size[w->root]++;
    return query_alive(w->q, e);
}

/* rows[b]: how many rows there are if all nodes of bins below b are dropped. */
static void count_rows(const struct view *w, uint32_t *rows)
{
    const struct query_tree *t = w->t;
    int64_t change[BINS + 1] = {}, hidden = 0;
    uint32_t kept = 0;

    for (uint32_t i = w->root; i < t->n; i++) {
        uint32_t own = i == w->root ? BINS - 1 : node_bin(w, i);

        if (!(w->state[i] & IN_VIEW))
            continue;
        if (i != w->root)
            rows[own]++;
        if (w->state[i] & HAS_CHILD) {
            uint32_t low = w->child_min[i] < w->floor ? 0 : bin_of(w->child_min[i]);

            if (own > low) { /* a hidden row for floors in (low, own] */
                change[low + 1]++;
                change[own + 1]--;
            }
        }
    }
    for (uint32_t b = BINS - 1; b > 0; b--) {
        kept += rows[b];
        rows[b] = kept;
    }
    for (uint32_t b = 1; b < BINS; b++) {
        hidden += change[b];
        rows[b] += 1 + (uint32_t)hidden;
    }
}

static void keep(struct view *w, uint32_t i)
{
    w->state[i] |= KEPT;
    w->n_kept++;
    w->dropped[w->t->parent[i]]--;
}

/* Largest first; of equal ones parents before children; then by hash: content alone decides. */
static int larger(const void *va, const void *vb, void *ctx)
{
    const struct view *w = ctx;
    const unit_i128 *size = w->ask->size;
    uint32_t a = *(const uint32_t *)va, b = *(const uint32_t *)vb;

    if (size[a] != size[b])
        return size[a] > size[b] ? -1 : 1;
    if (w->depth[a] != w->depth[b])
        return w->depth[a] < w->depth[b] ? -1 : 1;
    return (w->t->hash[a] > w->t->hash[b]) - (w->t->hash[a] < w->t->hash[b]);
}

/* Nodes of the bin that fits only in part: one by one, while there is room. */
static int keep_part(struct view *w, uint32_t bin, struct query_err *e)
{
    const struct query_tree *t = w->t;
    uint32_t *pick, n = 0;

    for (uint32_t i = w->root + 1; i < t->n; i++)
        n += (w->state[i] & IN_VIEW) && node_bin(w, i) == bin;
    QUERY_NEW(w->q, &pick, n, e);
    n = 0;
    for (uint32_t i = w->root + 1; i < t->n; i++) {
        if ((w->state[i] & IN_VIEW) && node_bin(w, i) == bin)
            pick[n++] = i;
    }
    if (n > 1)
        qsort_r(pick, n, sizeof *pick, larger, w);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = pick[k], p = t->parent[i];
        uint32_t own = w->state[i] & HAS_CHILD ? 2 : 1, more = own - (w->dropped[p] == 1 ? 1 : 0);

        if (w->rows + more > w->ask->max_nodes)
            break;
        assert(w->state[p] & KEPT);
        keep(w, i);
        w->rows += more;
    }
    return 0;
}

static int trim(struct view *w, struct query_err *e)
{
    const struct query_tree *t = w->t;
    uint32_t rows[BINS] = {}, bin = 1;
    bool limited = false;

    /* each node is a row, and has at most one for what it does not show */
    if (w->ask->max_nodes && (uint64_t)w->n_view * 2 > w->ask->max_nodes) {
        count_rows(w, rows);
        while (bin < BINS - 1 && rows[bin] > w->ask->max_nodes)
            bin++;
        limited = bin > 1;
        w->rows = rows[bin];
    }
    for (uint32_t i = w->root + 1; i < t->n; i++) {
        if ((w->state[i] & IN_VIEW) && w->ask->size[i] >= w->floor &&
            (!limited || node_bin(w, i) >= bin))
            keep(w, i);
    }
    if (!limited)
        return 0;
    TRY(keep_part(w, bin - 1, e));
    w->floor = w->ask->size[w->root];
    for (uint32_t i = w->root + 1; i < t->n; i++) {
        if ((w->state[i] & KEPT) && w->ask->size[i] < w->floor)
            w->floor = w->ask->size[i];
    }
    return 0;
}

/* ---- order and emission ------------------------------------------------------------------------
 */

static int by_value(const void *va, const void *vb, void *ctx)
{
    const struct view *w = ctx;
    const struct query_tree *t = w->t;
    const unit_i128 *v = w->ask->sort_value ? w->ask->sort_value : w->ask->size;
    uint32_t a = *(const uint32_t *)va, b = *(const uint32_t *)vb;
    uint64_t ka, kb;

    if (v[a] != v[b])
        return v[a] > v[b] ? -1 : 1;
    ka = t->fn[t->func[a]].key;
    kb = t->fn[t->func[b]].key;
    return (ka > kb) - (ka < kb);
}

static int by_name(const void *va, const void *vb, void *ctx)
{
    const struct query_tree *t = ((const struct view *)ctx)->t;
    uint32_t a = *(const uint32_t *)va, b = *(const uint32_t *)vb;
    const struct query_func *fa = &t->fn[t->func[a]], *fb = &t->fn[t->func[b]];
    int r = str_cmp(fa->name, fb->name);

    return r ? r : (fa->key > fb->key) - (fa->key < fb->key);
}

/* Most nodes have few. Equal ones keep their order either way. */
static void sort_children(struct view *w, uint32_t *child, uint32_t n)
{
    int (*cmp)(const void *, const void *, void *) =
        w->ask->order == QUERY_SORT_NAME ? by_name : by_value;

    if (n > 12) {
        qsort_r(child, n, sizeof *child, cmp, w);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        uint32_t one = child[i], k = i;

        for (; k > 0 && cmp(&child[k - 1], &one, w) > 0; k--)
            child[k] = child[k - 1];
        child[k] = one;
    }
}

static int new_columns(struct query *q, uint32_t n, uint32_t n_side, struct query_columns *c,
                       struct query_err *e)
{
    QUERY_NEW(q, &c->depth, n, e);
    QUERY_NEW(q, &c->node, n, e);
    QUERY_NEW(q, &c->func, n, e);
    QUERY_NEW(q, &c->hidden, n, e);
    QUERY_NEW(q, &c->hash, n, e);
    for (uint32_t s = 0; s < n_side; s++) {
        QUERY_NEW(q, &c->self[s], n, e);
        QUERY_NEW(q, &c->total[s], n, e);
        QUERY_NEW(q, &c->samples[s], n, e);
    }
    return 0;
}

/* Kept children of each node, in order: those of i are child[first[i]] to child[first[i + 1]]. */
static int order_children(struct view *w, uint32_t **ret_first, uint32_t **ret_child,
                          struct query_err *e)
{
    const struct query_tree *t = w->t;
    uint32_t *first, *child;

    QUERY_NEW(w->q, &first, (size_t)t->n + 2, e);
    QUERY_NEW(w->q, &child, (size_t)w->n_kept + 1, e);
    for (uint32_t i = w->root + 1; i < t->n; i++) {
        if (w->state[i] & KEPT)
            first[t->parent[i] + 2]++;
    }
    for (uint32_t i = 2; i < t->n + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t i = w->root + 1; i < t->n; i++) {
        if (w->state[i] & KEPT)
            child[first[t->parent[i] + 1]++] = i;
    }
    for (uint32_t i = w->root; i < t->n; i++) {
        uint32_t n = first[i + 1] - first[i];

        if (n > 1)
            sort_children(w, child + first[i], n);
    }
    *ret_first = first;
    *ret_child = child;
    return 0;
}

/* The row of what i's parent does not show: what the shown children leave of it. */
static void put_hidden(const struct view *w, uint32_t i, struct query_columns *c,
                       const uint32_t *child, uint32_t n_child)
{
    const struct query_tree *t = w->t;
    uint64_t nodes = w->size[i] - 1;
    uint32_t k = c->n++;

    for (uint32_t j = 0; j < n_child; j++)
        nodes -= w->size[child[j]];
    c->func[k] = -1;
    c->node[k] = i;
    c->hidden[k] = nodes;
    for (uint32_t s = 0; s < t->n_side; s++) {
        const struct query_weigh *v = &t->w[s];
        unit_i128 rest = v->total[i] - v->self[i];
        uint64_t samples = v->samples[i] - v->self_samples[i];

        for (uint32_t j = 0; j < n_child; j++) {
            rest -= v->total[child[j]];
            samples -= v->samples[child[j]];
        }
        assert(rest >= 0);
        c->self[s][k] = c->total[s][k] = rest;
        c->samples[s][k] = t->flag[i] & (QUERY_NODE_UNKNOWN << s) ? BATCH_UNKNOWN : samples;
    }
}

static void put_row(const struct view *w, uint32_t i, struct query_fn_table *fns,
                    struct query_columns *c)
{
    const struct query_tree *t = w->t;
    uint32_t k = c->n++;

    if (t->func[i] && !fns->at[t->func[i]])
        fns->at[t->func[i]] = fns->n++;
    c->func[k] = (int32_t)fns->at[t->func[i]];
    c->node[k] = i;
    c->hash[k] = t->hash[i];
    for (uint32_t s = 0; s < t->n_side; s++) {
        c->self[s][k] = t->w[s].self[i];
        c->total[s][k] = t->w[s].total[i];
        c->samples[s][k] = query_samples(t, s, i);
    }
}

#define HIDDEN_ROW 0x80000000u /* on the stack: the row that stands for dropped children */

/* Nodes that are shown, and one row for each that does not show all its children. */
static uint32_t rows_of(const struct view *w)
{
    uint32_t n = 1 + w->n_kept;

    for (uint32_t i = w->root; i < w->t->n; i++)
        n += (w->state[i] & KEPT) && w->dropped[i];
    return n;
}

static int emit(struct view *w, struct query_fn_table *fns, struct query_columns *c,
                struct query_err *e)
{
    uint32_t *first = NULL, *child = NULL, *stack, *level, top = 0, rows = rows_of(w);

    TRY(order_children(w, &first, &child, e));
    TRY(new_columns(w->q, rows, w->t->n_side, c, e));
    QUERY_NEW(w->q, &stack, rows, e);
    QUERY_NEW(w->q, &level, rows, e);
    stack[top++] = w->root;
    while (top) {
        uint32_t i = stack[--top] & ~HIDDEN_ROW, depth = level[top];

        c->depth[c->n] = depth;
        if (stack[top] & HIDDEN_ROW) {
            put_hidden(w, i, c, child + first[i], first[i + 1] - first[i]);
            continue;
        }
        put_row(w, i, fns, c);
        if (w->dropped[i]) {
            level[top] = depth + 1;
            stack[top++] = i | HIDDEN_ROW;
        }
        for (uint32_t j = first[i + 1]; j > first[i]; j--) {
            level[top] = depth + 1;
            stack[top++] = child[j - 1];
        }
    }
    assert(c->n == rows);
    return 0;
}

/* Every row against its children, in integers. Preorder: a row's children are what follows one
 * level deeper, up to the next row that is not deeper. */
static int conserved(struct query *q, const struct query_columns *c, uint32_t side,
                     struct query_err *e)
{
    unit_i128 *left;
    uint32_t *open, top = 0;

    QUERY_NEW(q, &left, c->n, e);
    QUERY_NEW(q, &open, c->n, e);
    for (uint32_t i = 0; i < c->n; i++) {
        while (top > c->depth[i])
            assert(left[open[--top]] == 0);
        left[i] = c->total[side][i] - c->self[side][i];
        if (i)
            left[open[top - 1]] -= c->total[side][i];
        assert(top == c->depth[i]);
        open[top++] = i;
    }
    while (top)
        assert(left[open[--top]] == 0);
    return 0;
}

int query_view(struct query *q, const struct query_tree *t, uint32_t root,
               const struct query_view_ask *ask, struct query_fn_table *fns,
               struct query_columns *ret, unit_i128 *ret_floor, const uint8_t **ret_in_view,
               struct query_err *e)
{
    struct view w = {.q = q, .t = t, .ask = ask, .root = root};
    struct query_columns c = {};

    TRY(open_view(&w, e));
    TRY(trim(&w, e));
    TRY(emit(&w, fns, &c, e));
    for (uint32_t s = 0; s < t->n_side; s++)
        TRY(conserved(q, &c, s, e));
    *ret = c;
    *ret_floor = w.floor;
    *ret_in_view = w.state; /* its lowest bit */
    return 0;
}
