// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/query_private.h"

/*
 * The picture of a tree: what hangs below the view's root, cut to what can be seen.
 *
 * A child's total is at most its parent's, so any floor keeps whole paths. The floor of max_nodes
 * is found without sorting the tree: a histogram of totals, eight bins to an octave, says for each
 * bin how many rows remain if all below it are dropped (a parent that loses children gets one row
 * for them); then the bin that fits only in part is sorted alone.
 */

#define BINS (8 * 128 + 2) /* 0: below the floor, never kept */

struct view {
    struct query *q;
    const struct query_tree *t;
    const struct query_flame_ask *ask;
    uint32_t root;
    unit_i128 floor;
    uint8_t *state; /* per node */
    uint32_t *size; /* nodes of the subtree, itself included */
    uint32_t *depth;
    unit_i128 *child_min;
    uint32_t *dropped; /* children that are not kept */
    uint32_t n_kept, rows;
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
    return w->t->total[i] < w->floor ? 0 : bin_of(w->t->total[i]);
}

/* ---- zooming -----------------------------------------------------------------------------------
 */

/*
 * The root of the view is not in the tree: a node of a trie that holds no weight here, perhaps. Its
 * nearest ancestor that does is shown.
 */
static int nearest(struct query *q, const struct query_tree *t, uint64_t want, uint32_t *ret,
                   struct query_err *e)
{
    const struct query_gather *g = q->gather;
    struct map by_hash;
    uint64_t found = 0;
    int r = 0;

    map_init(&by_hash, 0);
    for (uint32_t i = 0; r == 0 && i < t->n; i++) {
        if (map_put(&by_hash, t->hash[i], i) == MAP_FULL)
            r = query_no_memory(q, e);
    }
    for (uint32_t a = 0; r == 0 && found == 0 && a < g->n_acc; a++) {
        struct store_trie trie = {};
        struct err err = {};
        uint64_t *hash;

        r = store_trie(q->view, g->acc[a]->trie, &trie, &err);
        if (r < 0) {
            r = query_store_failed(q, r, &err, e);
            break;
        }
        hash = arena_calloc(&q->arena, trie.n_fnode, sizeof *hash);
        if (!hash) {
            r = query_no_memory(q, e);
            break;
        }
        for (uint32_t i = 1; i < trie.n_fnode; i++) {
            struct store_func f = {};

            if (store_func(q->view, g->acc[a]->trie.epoch, trie.func[i], &f, &err) < 0)
                continue; /* nothing to compare with; a tree without it was answered before */
            hash[i] = hash_zoom(hash[trie.fparent[i]], f.key);
            if (hash[i] != want)
                continue;
            while (i && !map_get(&by_hash, hash[i], &found))
                i = trie.fparent[i];
            break;
        }
    }
    map_deinit(&by_hash);
    if (r == 0)
        *ret = (uint32_t)found;
    return r;
}

static int find_root(struct query *q, const struct query_tree *t, uint64_t want, uint32_t *ret,
                     bool *ret_found, struct query_err *e)
{
    *ret_found = true;
    *ret = 0;
    if (want == 0)
        return 0;
    for (uint32_t i = 1; i < t->n; i++) {
        if (t->hash[i] == want) {
            *ret = i;
            return 0;
        }
    }
    *ret_found = false;
    if (t->inverted || q->n_by)
        return 0; /* hashes of such trees are not those of tries */
    return nearest(q, t, want, ret, e);
}

/* ---- trimming ----------------------------------------------------------------------------------
 */

static int open_view(struct view *w, struct query_err *e)
{
    const struct query_tree *t = w->t;
    unit_i128 total = t->total[w->root];

    QUERY_NEW(w->q, &w->state, t->n, e);
    QUERY_NEW(w->q, &w->size, t->n, e);
    QUERY_NEW(w->q, &w->depth, t->n, e);
    QUERY_NEW(w->q, &w->child_min, t->n, e);
    QUERY_NEW(w->q, &w->dropped, t->n, e);
    w->floor = 0;
    if (w->ask->width) {
        w->floor = total / w->ask->width + (total % w->ask->width != 0);
        if (w->floor == 0)
            w->floor = 1;
    }
    w->state[w->root] = IN_VIEW | KEPT;
    for (uint32_t i = w->root + 1; i < t->n; i++) {
        uint32_t p = t->parent[i];

        if (!(w->state[p] & IN_VIEW))
            continue;
        w->state[i] = IN_VIEW;
        w->depth[i] = w->depth[p] + 1;
        if (!(w->state[p] & HAS_CHILD) || t->total[i] < w->child_min[p])
            w->child_min[p] = t->total[i];
        w->state[p] |= HAS_CHILD;
        w->dropped[p]++;
    }
    for (uint32_t i = t->n - 1; i > w->root; i--) {
        if (w->state[i] & IN_VIEW)
            w->size[t->parent[i]] += ++w->size[i];
    }
    w->size[w->root]++;
    return 0;
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
    const struct query_tree *t = w->t;
    uint32_t a = *(const uint32_t *)va, b = *(const uint32_t *)vb;

    if (t->total[a] != t->total[b])
        return t->total[a] > t->total[b] ? -1 : 1;
    if (w->depth[a] != w->depth[b])
        return w->depth[a] < w->depth[b] ? -1 : 1;
    return (t->hash[a] > t->hash[b]) - (t->hash[a] < t->hash[b]);
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

    if (w->ask->max_nodes) {
        count_rows(w, rows);
        while (bin < BINS - 1 && rows[bin] > w->ask->max_nodes)
            bin++;
        limited = bin > 1;
        w->rows = rows[bin];
    }
    for (uint32_t i = w->root + 1; i < t->n; i++) {
        if ((w->state[i] & IN_VIEW) && node_bin(w, i) >= bin)
            keep(w, i);
    }
    if (!limited)
        return 0;
    TRY(keep_part(w, bin - 1, e));
    w->floor = t->total[w->root];
    for (uint32_t i = w->root + 1; i < t->n; i++) {
        if ((w->state[i] & KEPT) && t->total[i] < w->floor)
            w->floor = t->total[i];
    }
    return 0;
}

/* ---- order and emission ------------------------------------------------------------------------
 */

static int by_value(const void *va, const void *vb, void *ctx)
{
    const struct query_tree *t = ((const struct view *)ctx)->t;
    uint32_t a = *(const uint32_t *)va, b = *(const uint32_t *)vb;
    uint64_t ka = t->fn[t->func[a]].key, kb = t->fn[t->func[b]].key;

    if (t->total[a] != t->total[b])
        return t->total[a] > t->total[b] ? -1 : 1;
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

struct columns {
    uint32_t n, *depth;
    int32_t *func;
    unit_i128 *self, *total;
    uint64_t *samples, *hidden, *hash;
};

static int new_columns(struct query *q, uint32_t n, struct columns *c, struct query_err *e)
{
    QUERY_NEW(q, &c->depth, n, e);
    QUERY_NEW(q, &c->func, n, e);
    QUERY_NEW(q, &c->self, n, e);
    QUERY_NEW(q, &c->total, n, e);
    QUERY_NEW(q, &c->samples, n, e);
    QUERY_NEW(q, &c->hidden, n, e);
    QUERY_NEW(q, &c->hash, n, e);
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
            qsort_r(child + first[i], n, sizeof *child, w->ask->by_name ? by_name : by_value, w);
    }
    *ret_first = first;
    *ret_child = child;
    return 0;
}

static uint64_t samples_of(const struct query_tree *t, uint32_t i)
{
    return t->flag[i] & QUERY_NODE_UNKNOWN ? BATCH_UNKNOWN : t->samples[i];
}

/* The row of what i's parent does not show: what the shown children leave of it. */
static void put_hidden(const struct view *w, uint32_t i, struct columns *c, const uint32_t *child,
                       uint32_t n_child)
{
    const struct query_tree *t = w->t;
    unit_i128 rest = t->total[i] - t->self[i];
    uint64_t samples = t->samples[i] - t->self_samples[i], nodes = w->size[i] - 1;
    uint32_t k = c->n++;

    for (uint32_t j = 0; j < n_child; j++) {
        rest -= t->total[child[j]];
        samples -= t->samples[child[j]];
        nodes -= w->size[child[j]];
    }
    assert(rest >= 0);
    c->func[k] = -1;
    c->self[k] = c->total[k] = rest;
    c->samples[k] = t->flag[i] & QUERY_NODE_UNKNOWN ? BATCH_UNKNOWN : samples;
    c->hidden[k] = nodes;
}

#define HIDDEN_ROW 0x80000000u /* on the stack: the row that stands for dropped children */

static int emit(struct view *w, uint32_t *answer_func, uint32_t *n_func, struct columns *c,
                struct query_err *e)
{
    const struct query_tree *t = w->t;
    uint32_t *first = NULL, *child = NULL, *stack, *level, top = 0;
    uint32_t room = w->n_kept * 2 + 4;

    TRY(order_children(w, &first, &child, e));
    TRY(new_columns(w->q, w->n_kept * 2 + 2, c, e));
    QUERY_NEW(w->q, &stack, room, e);
    QUERY_NEW(w->q, &level, room, e);
    stack[top++] = w->root;
    while (top) {
        uint32_t i = stack[--top] & ~HIDDEN_ROW, k = c->n, depth = level[top];

        c->depth[k] = depth;
        if (stack[top] & HIDDEN_ROW) {
            put_hidden(w, i, c, child + first[i], first[i + 1] - first[i]);
            continue;
        }
        c->n++;
        if (t->func[i] && !answer_func[t->func[i]])
            answer_func[t->func[i]] = (*n_func)++;
        c->func[k] = (int32_t)answer_func[t->func[i]];
        c->self[k] = t->self[i];
        c->total[k] = t->total[i];
        c->samples[k] = samples_of(t, i);
        c->hash[k] = t->hash[i];
        if (w->dropped[i]) {
            level[top] = depth + 1;
            stack[top++] = i | HIDDEN_ROW;
        }
        for (uint32_t j = first[i + 1]; j > first[i]; j--) {
            level[top] = depth + 1;
            stack[top++] = child[j - 1];
        }
    }
    return 0;
}

/* Every row against its children, in integers. Preorder: a row's children are what follows one
 * level deeper, up to the next row that is not deeper. */
static int conserved(struct query *q, const struct columns *c, struct query_err *e)
{
    unit_i128 *left;
    uint32_t *open, top = 0;

    QUERY_NEW(q, &left, c->n, e);
    QUERY_NEW(q, &open, c->n, e);
    for (uint32_t i = 0; i < c->n; i++) {
        while (top > c->depth[i])
            assert(left[open[--top]] == 0);
        left[i] = c->total[i] - c->self[i];
        if (i)
            left[open[top - 1]] -= c->total[i];
        assert(top == c->depth[i]);
        open[top++] = i;
    }
    while (top)
        assert(left[open[--top]] == 0);
    return 0;
}

/* ---- search ------------------------------------------------------------------------------------
 */

/*
 * Samples whose stack holds a match, each once: a node is in if its function matches or its parent
 * is in; the sum of self of those that are in. Whatever the view shows.
 */
static int matched(struct view *w, const uint32_t *answer_func, uint32_t n_func,
                   struct query_matched *ret, struct query_err *e)
{
    const struct query_tree *t = w->t;
    struct query_pattern p = {};
    uint8_t *hit, *in;
    uint32_t *list;
    int r;

    QUERY_NEW(w->q, &hit, t->n_func, e);
    QUERY_NEW(w->q, &in, t->n, e);
    QUERY_NEW(w->q, &list, n_func, e);
    TRY(query_pattern_new(&w->q->arena, w->ask->match, "match", &p, e));
    r = query_tree_match(w->q, t, &p, "match", hit, e);
    query_pattern_deinit(&p);
    if (r < 0)
        return r;
    for (uint32_t i = 1; i < t->n; i++) {
        in[i] = hit[t->func[i]] | in[t->parent[i]];
        if (!in[i])
            continue;
        ret->total += t->self[i];
        ret->samples += t->self_samples[i];
        if (w->state[i] & IN_VIEW)
            ret->view += t->self[i];
        if ((t->flag[i] & QUERY_NODE_UNKNOWN) && t->self[i])
            ret->samples = BATCH_UNKNOWN;
    }
    for (uint32_t f = 1; f < t->n_func; f++) {
        ret->functions += hit[f];
        if (hit[f] && answer_func[f])
            list[answer_func[f]] = 1;
    }
    for (uint32_t f = 0; f < n_func; f++) {
        if (list[f])
            list[ret->n_func++] = f;
    }
    ret->func = list;
    return 0;
}

/* ---- the answer --------------------------------------------------------------------------------
 */

static int path_to(struct view *w, uint32_t *answer_func, uint32_t *n_func, struct query_flame *ret,
                   struct query_err *e)
{
    const struct query_tree *t = w->t;
    struct query_step *path;
    uint32_t n = 1;

    if (w->root == 0)
        return 0;
    for (uint32_t i = w->root; i; i = t->parent[i])
        n++;
    QUERY_NEW(w->q, &path, n, e);
    for (uint32_t i = w->root, k = n - 1; k > 0; i = t->parent[i], k--)
        path[k] = (struct query_step){t->func[i], t->hash[i]};
    for (uint32_t k = 1; k < n; k++) {
        if (!answer_func[path[k].func])
            answer_func[path[k].func] = (*n_func)++;
        path[k].func = answer_func[path[k].func];
    }
    ret->n_path = n;
    ret->path = path;
    return 0;
}

static int answer(struct view *w, struct query_flame *ret, struct query_err *e)
{
    const struct query_tree *t = w->t;
    uint32_t *answer_func, n_func = 1;
    struct query_func *fn;
    struct columns c = {};

    TRY(open_view(w, e));
    TRY(trim(w, e));
    QUERY_NEW(w->q, &answer_func, t->n_func, e);
    TRY(path_to(w, answer_func, &n_func, ret, e));
    TRY(emit(w, answer_func, &n_func, &c, e));
    TRY(conserved(w->q, &c, e));
    if (w->ask->match.n) {
        ret->has_match = true;
        TRY(matched(w, answer_func, n_func, &ret->matched, e));
    }
    QUERY_NEW(w->q, &fn, n_func, e);
    fn[0] = t->fn[0];
    for (uint32_t f = 1; f < t->n_func; f++) {
        if (answer_func[f])
            fn[answer_func[f]] = t->fn[f];
    }
    ret->func = fn;
    ret->n_func = n_func;
    ret->view_root = t->hash[w->root];
    ret->view_total = t->total[w->root];
    ret->floor = w->floor;
    for (uint32_t i = 0; i < c.n; i++) {
        if (c.func[i] < 0) {
            ret->hidden_nodes += c.hidden[i];
            ret->hidden_total += c.total[i];
        }
    }
    ret->n = c.n;
    ret->depth = c.depth;
    ret->node_func = c.func;
    ret->self = c.self;
    ret->total = c.total;
    ret->samples = c.samples;
    ret->hidden = c.hidden;
    ret->hash = c.hash;
    return 0;
}

static int flame(struct query *q, const struct query_flame_ask *ask, struct query_tree *t,
                 struct query_flame *ret, struct query_err *e)
{
    struct view w = {.q = q, .t = t, .ask = ask};
    struct query_evidence ev = {};
    struct query_stacks stacks;

    TRY(query_tree_build(q, ask->invert, t, e));
    TRY(find_root(q, t, ask->root, &w.root, &ret->view_found, e));
    TRY(answer(&w, ret, e));
    stacks = query_tree_stacks(t);
    TRY(query_evidence(q, &ev, e));
    TRY(query_sums(q, &ev, t->total[0], samples_of(t, 0), &stacks, &ret->sum, e));
    if (ret->sum.total == QUERY_UNKNOWN) {
        ret->n = 0;
        ret->view_total = QUERY_UNKNOWN;
    }
    return 0;
}

int query_flame(struct query *q, const struct query_flame_ask *ask, struct query_flame *ret,
                struct query_err *e)
{
    struct query_flame f = {.view_asked = ask->root};
    struct query_tree t = {};
    int r;

    if (ask->max_nodes == 1)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "max_nodes",
                          "max_nodes is 0 (no limit) or at least 2: a root and what it hides");
    TRY(query_gather(q, 0, e));
    r = flame(q, ask, &t, &f, e);
    query_tree_deinit(&t);
    if (r == 0)
        *ret = f;
    return r;
}
