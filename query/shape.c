// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/hash.h"
#include "base/short.h"
#include "query/query_private.h"

/*
 * From the union of all tries to the tree that is shown. Filters, short names and leaves-first are
 * one step: each node of the union goes where its frames that stay lead, under the names they have
 * then, and gives its weight there; nodes that hold none are left out. The union stays beside it:
 * searches are tried on its full names, and quality speaks of all that was selected.
 */

int query_short_func(struct query *q, const struct query_func *f, struct query_func *ret,
                     struct query_err *e)
{
    struct str name = func_short_name(&q->arena, f->name);

    if (name.n && !name.p)
        return query_no_memory(q, e);
    if (ret != f)
        *ret = *f;
    if (str_eq(name, f->name))
        return 0;
    ret->name = name;
    ret->key = query_func_key(q, ret);
    return 0;
}

struct reshape {
    struct query *q;
    const struct query_tree *from;
    struct query_tree *to;
    const struct query_fate *fate; /* arrays NULL: no filters */
    uint32_t *node, *func;
    uint8_t *need;
};

static bool stays(const struct reshape *rs, uint32_t i)
{
    return !rs->fate->dead || !rs->fate->dead[i];
}

static bool weighs(const struct query_tree *t, uint32_t i)
{
    bool any = false;

    for (uint32_t s = 0; s < t->n_side; s++)
        any |=
            t->w[s].self[i] || t->w[s].self_samples[i] || (t->flag[i] & (QUERY_SELF_UNKNOWN << s));
    return any;
}

/* Functions of the union under the names that are shown. Of several that become one the first that
 * the union met gives it its file and kind, whichever way stacks are walked. */
static int to_funcs(struct reshape *rs, struct query_err *e)
{
    const struct query_tree *t = rs->from;
    uint8_t *used;

    QUERY_NEW(rs->q, &used, t->n_func, e);
    for (uint32_t i = 1; i < t->n; i++) {
        if (rs->need[i] && !(t->flag[i] & QUERY_NODE_LEVEL))
            used[t->func[i]] |= !rs->fate->present || rs->fate->present[i];
    }
    for (uint32_t f = 1; f < t->n_func; f++) {
        struct query_func fn = t->fn[f];

        if (!used[f])
            continue;
        if (rs->q->gather->shortens)
            TRY(query_short_func(rs->q, &t->fn[f], &fn, e));
        TRY(query_tree_func(rs->q, rs->to, &fn, &rs->func[f], e));
        rs->to->fn_flag[rs->func[f]] |= QUERY_FN_FRAME;
    }
    return 0;
}

static int step_down(struct reshape *rs, uint32_t parent, uint32_t i, uint32_t *ret,
                     struct query_err *e)
{
    TRY(query_tree_child(rs->q, rs->to, parent, rs->func[rs->from->func[i]], ret, e));
    if (rs->to->group)
        rs->to->group[*ret] = rs->from->group[i];
    return 0;
}

/* A level of by= is no frame: it keeps its name and its place. */
static int level(struct reshape *rs, uint32_t i, struct query_err *e)
{
    const struct query_tree *t = rs->from;
    uint32_t f = 0;

    if (i) {
        TRY(query_tree_func(rs->q, rs->to, &t->fn[t->func[i]], &f, e));
        TRY(query_tree_child(rs->q, rs->to, rs->node[t->parent[i]], f, &rs->node[i], e));
    }
    rs->to->flag[rs->node[i]] |= t->flag[i] & (QUERY_NODE_LEVEL | QUERY_NODE_TOP);
    if (rs->to->group)
        rs->to->group[rs->node[i]] = t->group[i];
    return 0;
}

/* Marks what has weight that stays at or below it; returns how many. */
static uint32_t mark_needed(struct reshape *rs)
{
    const struct query_tree *t = rs->from;
    uint32_t n = 0;

    for (uint32_t i = t->n; i-- > 0;) {
        rs->need[i] |= weighs(t, i) && stays(rs, i);
        if (i && rs->need[i])
            rs->need[t->parent[i]] = 1;
        n += rs->need[i];
    }
    return n;
}

static int downward(struct reshape *rs, struct query_err *e)
{
    const struct query_tree *t = rs->from;

    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t p = rs->node[t->parent[i]];

        if (i % 65536 == 0)
            TRY(query_alive(rs->q, e));
        if (!rs->need[i])
            continue;
        if (t->flag[i] & QUERY_NODE_LEVEL)
            TRY(level(rs, i, e));
        else if (!rs->fate->present || rs->fate->present[i])
            TRY(step_down(rs, p, i, &rs->node[i], e));
        else
            rs->node[i] = p;
        if (stays(rs, i))
            query_tree_give(rs->to, rs->node[i], t, i);
    }
    return 0;
}

/* Leaf first: each stack is walked from its leaf to its root, and its weight stays there. */
static int upward(struct reshape *rs, struct query_err *e)
{
    const struct query_tree *t = rs->from;
    uint32_t *top;

    QUERY_NEW(rs->q, &top, t->n, e); /* what the stack hangs under */
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t node;

        if (i % 1024 == 0)
            TRY(query_alive(rs->q, e));
        if (!rs->need[i])
            continue;
        if (t->flag[i] & QUERY_NODE_LEVEL) {
            TRY(level(rs, i, e));
            top[i] = rs->node[i];
        } else {
            top[i] = top[t->parent[i]];
        }
        if (!stays(rs, i) || !weighs(t, i))
            continue;
        node = top[i];
        for (uint32_t k = i; !(t->flag[k] & QUERY_NODE_LEVEL); k = t->parent[k]) {
            if (!rs->fate->present || rs->fate->present[k])
                TRY(step_down(rs, node, k, &node, e));
        }
        rs->node[i] = node;
        query_tree_give(rs->to, node, t, i);
    }
    return 0;
}

static int reshape(struct query *q, bool invert, struct query_shape *s, struct query_err *e)
{
    struct reshape rs = {.q = q, .from = &s->all, .to = &s->own, .fate = &s->fate};
    uint32_t n;

    QUERY_NEW(q, &rs.node, s->all.n, e);
    QUERY_NEW(q, &rs.func, s->all.n_func, e);
    QUERY_NEW(q, &rs.need, s->all.n, e);
    for (uint32_t k = 0; k < s->all.n_side; k++)
        s->own.w[k].var_missing = s->all.w[k].var_missing;
    n = mark_needed(&rs);
    rs.need[0] = 1;
    s->own.apart = query_shown_apart(q);
    TRY(query_tree_init(q, &s->own, s->all.n_side, n + 1, e)); /* leaves first may take more */
    s->own.inverted = invert;
    TRY(to_funcs(&rs, e));
    if (invert)
        TRY(upward(&rs, e));
    else
        TRY(downward(&rs, e));
    TRY(query_tree_mark_again(q, &s->own, e));
    s->node = rs.node;
    s->func = rs.func;
    s->t = &s->own;
    return query_tree_sum(q, &s->own, e);
}

/* ---- filters -----------------------------------------------------------------------------------
 */

/* hit[k]: the functions of t that filter k's pattern matches. */
static int match_filters(struct query *q, const struct query_tree *t,
                         uint8_t *hit[QUERY_FILTER_MAX], struct query_err *e)
{
    for (uint32_t k = 0; k < q->filters.n; k++) {
        if (q->filters.v[k].verb == QUERY_COLLAPSE_RECURSION)
            continue;
        QUERY_NEW(q, &hit[k], t->n_func, e);
        TRY(query_tree_match(q, t, &q->filters.v[k].pattern, "f", hit[k], e));
    }
    return 0;
}

/* Functions that a filter finds: lines and addresses of one are one. seen: p->n_func zeroes */
static uint64_t count_hits(const struct query_paths *p, const uint8_t *hit, uint8_t *seen)
{
    uint64_t n = 0;

    for (uint32_t f = 1; hit && f < p->n_func; f++) {
        uint32_t is = p->same ? p->same[f] : f;

        n += hit[f] && !seen[is];
        seen[is] |= hit[f];
    }
    memset(seen, 0, p->n_func);
    return n;
}

/* What each filter took, from what it found: the dead of a filter are its own. */
static int account(struct query *q, struct query_shape *s, const struct query_paths *p,
                   uint8_t *const *hit, struct query_err *e)
{
    const struct query_tree *t = &s->all;
    uint32_t n = q->filters.n;
    uint8_t *seen;

    QUERY_NEW(q, &seen, p->n_func, e);

    for (uint32_t k = 0; k < t->n_side; k++) {
        struct query_filtered *f;

        QUERY_NEW(q, &f, n, e);
        for (uint32_t i = 0; i < n; i++) {
            f[i].text = q->filters.v[i].text;
            f[i].functions = count_hits(p, hit[i], seen);
        }
        for (uint32_t i = 0; i < t->n; i++) {
            struct query_filtered *by;

            if (!s->fate.dead[i])
                continue;
            by = &f[s->fate.dead[i] - 1];
            by->dropped += t->w[k].self[i];
            if ((t->flag[i] & (QUERY_SELF_UNKNOWN << k)) || by->samples == BATCH_UNKNOWN)
                by->samples = BATCH_UNKNOWN;
            else
                by->samples += t->w[k].self_samples[i];
        }
        s->filtered[k] = f;
    }
    s->n_filtered = n;
    return 0;
}

/* Lines, addresses and files of one function are one to collapse:recursion. */
static int function_of(struct query *q, const struct query_tree *t, uint32_t *ret,
                       struct query_err *e)
{
    struct map by_key;
    uint64_t *slot;
    int r = 0;

    map_init(&by_key, 0);
    for (uint32_t f = 1; f < t->n_func; f++) {
        const struct query_func *fn = &t->fn[f];

        for (uint64_t key = func_key(fn->scope, fn->name);; key = hash_mix(key + 1)) {
            if (map_at(&by_key, key, &slot) == MAP_FULL) {
                r = query_no_memory(q, e);
                goto out;
            }
            if (*slot == 0)
                *slot = f;
            if (str_eq(t->fn[*slot].scope, fn->scope) && str_eq(t->fn[*slot].name, fn->name))
                break;
        }
        ret[f] = (uint32_t)*slot;
    }
out:
    map_deinit(&by_key);
    return r;
}

static int filter(struct query *q, struct query_shape *s, struct query_err *e)
{
    const struct query_tree *t = &s->all;
    uint8_t *hit[QUERY_FILTER_MAX] = {}, *level;
    uint32_t *scratch, *same;
    struct query_paths p = {.n = t->n, .n_func = t->n_func, .parent = t->parent, .func = t->func};

    if (q->filters.n == 0)
        return 0;
    QUERY_NEW(q, &s->fate.present, t->n, e);
    QUERY_NEW(q, &s->fate.dead, t->n, e);
    QUERY_NEW(q, &level, t->n, e);
    QUERY_NEW(q, &scratch, t->n, e);
    for (uint32_t i = 0; i < t->n; i++)
        level[i] = t->flag[i] & QUERY_NODE_LEVEL;
    p.level = level;
    if (query_by_frame(q)) {
        QUERY_NEW(q, &same, t->n_func, e);
        TRY(function_of(q, t, same, e));
        p.same = same;
    }
    TRY(match_filters(q, t, hit, e));
    TRY(query_filters_apply(q, &q->filters, &p, hit, scratch, &s->fate, e));
    return account(q, s, &p, hit, e);
}

/* ---- filters, by numbers -----------------------------------------------------------------------
 */

/* What is dead leaves the entries, into the filters' accounts. need: what stays weighs at it. */
static int take_dead(struct query *q, const struct query_fate *fate, uint32_t n_acc,
                     struct query_acc *const *acc, uint8_t *need, struct query_filtered *f,
                     struct query_err *e)
{
    for (uint32_t i = 0; i < n_acc; i++) {
        struct query_acc *a = acc[i];

        TRY(query_alive(q, e));
        for (uint32_t k = 0; k < a->n_entry; k++) {
            struct query_entry *x = &a->entry[k];
            uint32_t dead = fate->dead[x->node];

            if (dead) {
                f[dead - 1].dropped += x->sum;
                f[dead - 1].samples += x->count;
                a->entry_sum -= x->sum;
                a->entry_count -= x->count;
                *x = (struct query_entry){};
            }
            need[x->node] |= x->sum || x->count;
        }
    }
    return 0;
}

/* What was tried, as it goes down to what is shown. */
struct sift {
    struct query *q;
    const struct query_sift *s;
    struct query_paths paths;
    struct query_fate fate;
    uint8_t *need;
    uint32_t *as; /* function that was tried -> that is shown; 0: it is not */
};

/* The filters of the question. node: scratch */
static int sift_filter(struct sift *v, uint32_t *node, const struct query_filtered **ret,
                       struct query_err *e)
{
    const struct query_sift *s = v->s;
    uint8_t *hit[QUERY_FILTER_MAX] = {}, *seen;
    const struct query_filters *filters = &v->q->filters;
    struct query_filtered *f;

    QUERY_NEW(v->q, &f, filters->n, e);
    QUERY_NEW(v->q, &seen, s->tried->n_func, e);
    TRY(match_filters(v->q, s->tried, hit, e));
    TRY(query_filters_apply(v->q, filters, &v->paths, hit, node, &v->fate, e));
    for (uint32_t k = 0; k < filters->n; k++) {
        f[k].text = filters->v[k].text;
        f[k].functions = count_hits(&v->paths, hit[k], seen);
    }
    *ret = f;
    return take_dead(v->q, &v->fate, s->n_acc, s->acc, v->need, f, e);
}

/* As to_funcs(): functions that are shown, as the first of theirs that was met. */
static int sift_funcs(struct sift *v, struct query_err *e)
{
    const struct query_sift *s = v->s;

    for (uint32_t i = 1; i < s->all->n; i++) {
        if (v->need[i] && v->fate.present[i])
            v->as[s->all->func[i]] = s->all->func[i];
    }
    for (uint32_t f = 1; s->tried != s->shown && f < s->tried->n_func; f++) {
        if (!v->as[f])
            continue;
        TRY(query_tree_func(v->q, s->shown, &s->tried->fn[f], &v->as[f], e));
        s->shown->fn_flag[v->as[f]] |= QUERY_FN_FRAME;
    }
    return 0;
}

static int sift_place(struct sift *v, uint32_t *node, struct query_err *e)
{
    const struct query_tree *all = v->s->all;

    for (uint32_t i = all->n - 1; i > 0; i--)
        v->need[all->parent[i]] |= v->need[i];
    TRY(sift_funcs(v, e));
    node[0] = 0;
    for (uint32_t i = 1; i < all->n; i++) {
        node[i] = node[all->parent[i]];
        if (v->need[i] && v->fate.present[i])
            TRY(query_tree_child(v->q, v->s->to, node[i], v->as[all->func[i]], &node[i], e));
    }
    return 0;
}

/* Samples below a match, each once; functions that hold one, as they are shown. */
static int sift_search(struct sift *v, struct query_search *x, struct query_err *e)
{
    const struct query_sift *s = v->s;
    const struct query_tree *all = s->all;
    uint32_t *hit, *in;

    QUERY_NEW(v->q, &hit, s->tried->n_func, e);
    QUERY_NEW(v->q, &in, all->n, e);
    QUERY_NEW(v->q, &x->bit, s->shown->n_func, e);
    QUERY_NEW(v->q, &x->each, x->n, e);
    TRY(query_tree_match_all(v->q, s->tried, x->pattern, x->n, x->param, hit, e));
    for (uint32_t f = 1; f < s->tried->n_func; f++) {
        if (v->as[f])
            x->bit[v->as[f]] |= hit[f];
    }
    for (uint32_t f = 1; f < s->shown->n_func; f++) {
        for (uint32_t k = 0; k < x->n; k++)
            x->each[k].functions += x->bit[f] >> k & 1;
        x->any.functions += x->bit[f] != 0;
    }
    for (uint32_t i = 1; i < all->n; i++)
        in[i] = in[all->parent[i]] | (v->fate.present[i] ? hit[all->func[i]] : 0);
    for (uint32_t a = 0; a < s->n_acc; a++) {
        for (uint32_t i = 0; i < s->acc[a]->n_entry; i++) {
            const struct query_entry *one = &s->acc[a]->entry[i];

            for (uint32_t k = 0; k < x->n; k++) {
                if (in[one->node] >> k & 1)
                    query_seen_add(&x->each[k], one);
            }
            if (in[one->node])
                query_seen_add(&x->any, one);
        }
    }
    x->done = true;
    return 0;
}

int query_shape_sift(struct query *q, const struct query_sift *s, const struct query_filtered **ret,
                     struct query_err *e)
{
    struct sift v = {.q = q,
                     .s = s,
                     .paths = {.n = s->all->n,
                               .n_func = s->tried->n_func,
                               .parent = s->all->parent,
                               .func = s->all->func}};
    uint32_t *node, *same;

    QUERY_NEW(q, &v.fate.present, s->all->n, e);
    QUERY_NEW(q, &v.fate.dead, s->all->n, e);
    QUERY_NEW(q, &v.need, s->all->n, e);
    QUERY_NEW(q, &node, s->all->n, e);
    QUERY_NEW(q, &v.as, s->tried->n_func, e);
    for (uint32_t i = 1; i < s->all->n; i++)
        s->tried->fn_flag[s->all->func[i]] |= QUERY_FN_FRAME;
    if (query_by_frame(q)) {
        QUERY_NEW(q, &same, s->tried->n_func, e);
        TRY(function_of(q, s->tried, same, e));
        v.paths.same = same;
    }
    TRY(sift_filter(&v, node, ret, e));
    TRY(sift_place(&v, node, e));
    for (uint32_t i = 0; i < s->n_search; i++) {
        if (s->search[i].n)
            TRY(sift_search(&v, &s->search[i], e));
    }
    for (uint32_t i = 0; i < s->n_acc; i++) {
        for (uint32_t k = 0; k < s->acc[i]->n_entry; k++)
            s->acc[i]->entry[k].node = node[s->acc[i]->entry[k].node];
    }
    return 0;
}

int query_shape(struct query *q, bool invert, struct query_shape *ret, struct query_err *e)
{
    ret->t = &ret->all;
    TRY(query_tree_union(q, &ret->all, e));
    TRY(filter(q, ret, e));
    if (q->filters.n == 0 && !q->gather->shortens && !invert &&
        query_tried_apart(q) == query_shown_apart(q))
        return 0;
    return reshape(q, invert, ret, e);
}

void query_shape_deinit(struct query_shape *s)
{
    query_tree_deinit(&s->all);
    query_tree_deinit(&s->own);
}

/* ---- searching ---------------------------------------------------------------------------------
 */

static void see(struct query_seen *seen, const struct query_tree *t, uint32_t i, bool in_view)
{
    seen->total += t->w[0].self[i];
    if (in_view)
        seen->view += t->w[0].self[i];
    seen->samples += t->w[0].self_samples[i];
    seen->unknown |= (t->flag[i] & QUERY_SELF_UNKNOWN) != 0;
}

/* One pass down hands each node its parent's bits, one per pattern. hit: per function of all. */
static int pass_down(struct query *q, const struct query_shape *s, const uint32_t *hit, uint32_t n,
                     const uint8_t *in_view, struct query_seen *each, struct query_seen *any,
                     struct query_err *e)
{
    const struct query_tree *t = &s->all;
    uint32_t *in;

    QUERY_NEW(q, &in, t->n, e);
    for (uint32_t i = 1; i < t->n; i++) {
        uint32_t at = s->node ? s->node[i] : i;
        bool shown = !in_view || in_view[at] & 1;

        in[i] = in[t->parent[i]];
        if (!(t->flag[i] & QUERY_NODE_LEVEL) && (!s->fate.present || s->fate.present[i]))
            in[i] |= hit[t->func[i]];
        if (!in[i] || (s->fate.dead && s->fate.dead[i]))
            continue;
        for (uint32_t k = 0; k < n; k++) {
            if (in[i] >> k & 1)
                see(&each[k], t, i, shown);
        }
        see(any, t, i, shown);
    }
    return 0;
}

int query_shape_find(struct query *q, const struct query_shape *s, const struct str *pattern,
                     uint32_t n, const char *param, const uint8_t *in_view, uint32_t *bit,
                     struct query_seen *each, struct query_seen *any, struct query_err *e)
{
    uint32_t *all;

    QUERY_NEW(q, &all, s->all.n_func, e);
    TRY(query_tree_match_all(q, &s->all, pattern, n, param, all, e));
    for (uint32_t f = 1; f < s->all.n_func; f++) {
        uint32_t to = s->func ? s->func[f] : f;

        if (to)
            bit[to] |= all[f];
    }
    for (uint32_t f = 1; f < s->t->n_func; f++) {
        for (uint32_t k = 0; k < n; k++)
            each[k].functions += bit[f] >> k & 1;
        any->functions += bit[f] != 0;
    }
    return pass_down(q, s, all, n, in_view, each, any, e);
}

int query_shape_sums(struct query *q, const struct query_shape *s, struct query_sums *ret,
                     struct query_err *e)
{
    struct query_stacks stacks = query_tree_stacks(&s->all, q->side);
    const struct query_weigh *w = &s->t->w[q->side];
    struct query_totals t = {.total = w->total[0],
                             .samples = query_samples(s->t, q->side, 0),
                             .whole = s->all.w[q->side].total[0],
                             .whole_samples = query_samples(&s->all, q->side, 0),
                             .var = w->var ? w->var[0] : -1,
                             .stacks = &stacks,
                             .n_filtered = s->n_filtered,
                             .filtered = s->filtered[q->side]};
    struct query_evidence ev = {};

    TRY(query_evidence(q, &ev, e));
    return query_sums(q, &ev, &t, ret, e);
}
