// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/hash.h"
#include "query/query_private.h"

/* The flame graph: the shown tree from the view's root down, and what a search finds in it. */

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

static int find_root(struct query *q, const struct query_shape *s, uint64_t want, uint32_t *ret,
                     bool *ret_found, struct query_err *e)
{
    *ret = query_zoom(s->t, want, ret_found);
    /* hashes of other trees are not those of tries */
    if (*ret_found || s->t->inverted || q->gather->shortens || q->filters.n || q->n_by ||
        q->detail != QUERY_OF_FUNCTIONS)
        return 0;
    return nearest(q, s->t, want, ret, e);
}

/* ---- search ------------------------------------------------------------------------------------
 */

static int matched(struct query *q, const struct query_shape *s, struct str pattern,
                   const uint8_t *in_view, const struct query_fn_table *fns,
                   struct query_matched *ret, struct query_err *e)
{
    struct query_seen each[1] = {}, any = {};
    uint32_t *bit, *list;

    QUERY_NEW(q, &bit, s->t->n_func, e);
    QUERY_NEW(q, &list, fns->n, e);
    if (s->seen)
        any = *s->seen;
    if (s->hit) {
        memcpy(bit, s->hit, s->t->n_func * sizeof *bit);
    } else if (s->seen) {
        TRY(query_tree_match_all(q, s->t, &pattern, 1, "match", bit, e));
    } else {
        TRY(query_shape_find(q, s, &pattern, 1, "match", in_view, bit, each, &any, e));
    }
    for (uint32_t f = 1; f < s->t->n_func; f++) {
        if (bit[f] && fns->at[f])
            list[fns->at[f]] = 1;
    }
    for (uint32_t f = 0; f < fns->n; f++) {
        if (list[f])
            list[ret->n_func++] = f;
    }
    ret->func = list;
    ret->functions = any.functions;
    ret->total = any.total;
    ret->view = any.view;
    ret->samples = any.unknown ? BATCH_UNKNOWN : any.samples;
    return 0;
}

/* ---- the answer --------------------------------------------------------------------------------
 */

static void columns(const struct query_columns *c, unit_i128 floor, struct query_flame *ret)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->func[i] < 0) {
            ret->hidden_nodes += c->hidden[i];
            ret->hidden_total += c->total[0][i];
        }
    }
    ret->floor = floor;
    ret->view_total = c->total[0][0];
    ret->n = c->n;
    ret->depth = c->depth;
    ret->node_func = c->func;
    ret->self = c->self[0];
    ret->total = c->total[0];
    ret->samples = c->samples[0];
    ret->hidden = c->hidden;
    ret->hash = c->hash;
}

int query_flame_rows(struct query *q, const struct query_tree *t, uint32_t root,
                     const struct query_view_ask *ask, struct query_fn_table *fns,
                     struct query_flame *ret, const uint8_t **ret_in_view, struct query_err *e)
{
    struct query_columns c = {};
    unit_i128 floor = 0;

    TRY(query_view(q, t, root, ask, fns, &c, &floor, ret_in_view, e));
    columns(&c, floor, ret);
    return 0;
}

static struct query_shown_ask shown_ask(const struct query_flame_ask *ask)
{
    return (struct query_shown_ask){.width = ask->width, .root = ask->root, .match = ask->match};
}

static int gather(struct query *q, const struct query_flame_ask *ask, struct query_err *e)
{
    const struct query_shown_ask shown = shown_ask(ask);

    if (ask->width == 0)
        return query_gather(q, 0, e);
    return ask->invert ? query_gather_listed(q, e) : query_gather_shown(q, &shown, e);
}

static int shape(struct query *q, const struct query_flame_ask *ask, struct query_shape *s,
                 struct query_err *e)
{
    const struct query_shown_ask shown = shown_ask(ask);
    bool done = false;

    s->t = &s->all;
    if (ask->width && ask->invert)
        TRY(query_tree_inverted(q, &shown, s, &done, e));
    else if (ask->width)
        TRY(query_tree_shown(q, &shown, s, &done, e));
    if (done)
        return 0;
    TRY(query_gather_columns(q->gather, e));
    return query_shape(q, ask->invert, s, e);
}

static int flame(struct query *q, const struct query_flame_ask *ask, struct query_shape *s,
                 struct query_flame *ret, struct query_err *e)
{
    struct query_view_ask va = {.width = ask->width,
                                .max_nodes = ask->max_nodes,
                                .order = ask->by_name ? QUERY_SORT_NAME : QUERY_SORT_VALUE};
    struct query_fn_table fns = {};
    const uint8_t *in_view = NULL;
    uint32_t root = 0;

    TRY(shape(q, ask, s, e));
    TRY(find_root(q, s, ask->root, &root, &ret->view_found, e));
    TRY(query_fn_table(q, s->t, &fns, e));
    TRY(query_path(q, s->t, root, &fns, &ret->n_path, &ret->path, e));
    va.size = s->t->w[0].total;
    TRY(query_flame_rows(q, s->t, root, &va, &fns, ret, &in_view, e));
    ret->view_root = s->t->hash[root];
    if (ask->match.n) {
        ret->has_match = true;
        TRY(matched(q, s, ask->match, in_view, &fns, &ret->matched, e));
    }
    TRY(query_fn_list(q, s->t, &fns, &ret->func, e));
    ret->n_func = fns.n;
    TRY(query_shape_sums(q, s, &ret->sum, e));
    if (ret->sum.total == QUERY_UNKNOWN) {
        ret->n = 0;
        ret->view_total = QUERY_UNKNOWN;
    }
    return 0;
}

int query_max_nodes(uint32_t max_nodes, struct query_err *e)
{
    return max_nodes == 1 ? query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "max_nodes",
                                       "max_nodes is 0 (no limit) or at least 2: a root and what "
                                       "it hides")
                          : 0;
}

int query_flame(struct query *q, const struct query_flame_ask *ask, struct query_flame *ret,
                struct query_err *e)
{
    struct query_flame f = {.view_asked = ask->root};
    struct query_shape s = {};
    int r;

    TRY(query_max_nodes(ask->max_nodes, e));
    query_ask_detail(q, ask->detail, &ask->match, ask->match.n ? 1 : 0);
    TRY(gather(q, ask, e));
    r = flame(q, ask, &s, &f, e);
    query_shape_deinit(&s);
    if (r == 0)
        *ret = f;
    return r;
}
