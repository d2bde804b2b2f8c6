// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "query/query_private.h"

/*
 * One trie's weights down to what will be shown, in the worker that has them, while they are in its
 * caches: of some 20,000 nodes a hundred reach the floor. What is below it stays as a number of
 * nodes.
 *
 * Where every value is its count times one weight (ticks are), counts are added up alone, in one
 * word a node with the number of nodes; else there is a sum beside them.
 */

#define NODE_BITS QUERY_NODE_BITS
#define NODES_MAX ((uint32_t)1 << NODE_BITS)
#define COUNT_MAX ((uint64_t)1 << (63 - NODE_BITS))
#define AHEAD     48                  /* entries */
#define PICKED    (UINT64_C(1) << 63) /* | place; counts stay below it */

/* What a share comes to. */
struct extent {
    uint64_t count;
    int64_t sum;
    int64_t each; /* every value is its count times this; 0: they are not */
};

void query_scratch_deinit(struct query_scratch *w)
{
    free(w->low);
    free(w->sum);
    free(w->at);
    free(w->pick);
    *w = (struct query_scratch){};
}

static bool scratch(struct query_scratch *w, uint32_t n)
{
    if (n <= w->room)
        return true;
    query_scratch_deinit(w);
    w->low = malloc(n * sizeof *w->low);
    w->sum = malloc(n * sizeof *w->sum);
    w->at = malloc(n * sizeof *w->at);
    w->pick = malloc(n * sizeof *w->pick);
    w->room = w->low && w->sum && w->at && w->pick ? n : 0;
    return w->room > 0;
}

/* False: not for 64 bits, or below 0. Halves of sums are added, since those cannot overflow. */
static bool measure(const struct store_share *s, struct extent *ret)
{
    uint64_t count = 0, most = 0, low = 0, high = 0, odd = 0;
    int64_t each = s->n && s->count[0] ? s->sum.v[0] / (int64_t)s->count[0] : 0;
    unit_i128 sum;

    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t v = (uint64_t)s->sum.v[i];

        most |= s->count[i];
        count += s->count[i];
        low += v & UINT32_MAX;
        high += v >> 32;
        odd |= v - s->count[i] * (uint64_t)each;
    }
    sum = ((unit_i128)high << 32) + low; /* one below 0 is at least 2^63 here */
    if (most > UINT32_MAX || sum > INT64_MAX || count >= COUNT_MAX)
        return false;
    if (odd || (count && each > INT64_MAX / (int64_t)count))
        each = 0;
    *ret = (struct extent){.count = count, .sum = (int64_t)sum, .each = each};
    return true;
}

/* ---- sums --------------------------------------------------------------------------------------
 */

/* at[i]: the function node of entry i. */
static void scatter(struct query_scratch *w, const struct store_trie *t,
                    const struct store_share *s)
{
    const uint32_t n = s->n, ahead = n > AHEAD ? n - AHEAD : 0;
    const uint32_t *fnode = t->fnode, *node = s->node;
    const uint64_t *count = s->count;
    uint64_t *low = w->low;
    uint32_t *at = w->at;

    memset(low, 0, t->n_fnode * sizeof *low);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t f = fnode[node[i]];

        if (i < ahead)
            __builtin_prefetch(&fnode[node[i + AHEAD]]);
        at[i] = f;
        low[f] += count[i] << NODE_BITS;
    }
}

static void scatter_sums(struct query_scratch *w, const struct store_trie *t,
                         const struct store_share *s)
{
    memset(w->sum, 0, t->n_fnode * sizeof *w->sum);
    for (uint32_t i = 0; i < s->n; i++)
        w->sum[w->at[i]] += s->sum.v[i];
}

/*
 * Picks what reaches the floor, last first. The nodes of the root are those below it.
 *
 * Most nodes are the only child of the one before them. What such a one hands up is carried in a
 * register, and the word it goes to was read before, since one that was just written is slow to
 * read again. Which nodes those are, and which are 0, is noise to a predictor: no branch.
 */
static uint32_t add_counts(uint64_t *low, const uint32_t *parent, uint32_t n, uint64_t floor,
                           uint32_t *pick)
{
    uint64_t own = low[n - 1], carry = 0;
    uint32_t picked = 0;

    for (uint32_t i = n - 1; i > 0; i--) {
        uint64_t one = own + carry;

        own = low[i - 1];
        one += one != 0;
        low[i] = one;
        low[parent[i]] += one; /* of the node before: written again in its turn */
        carry = parent[i] == i - 1 ? one : 0;
        if (__builtin_expect(one >= floor, 0))
            pick[picked++] = i;
    }
    return picked;
}

static uint32_t add_sums(struct query_scratch *w, const uint32_t *parent, uint32_t n, int64_t floor)
{
    uint32_t picked = 0;

    for (uint32_t i = n - 1; i > 0; i--) {
        uint64_t one = w->low[i];
        int64_t sum = w->sum[i];

        if ((one | (uint64_t)sum) == 0)
            continue;
        w->low[i] = ++one;
        w->low[parent[i]] += one;
        w->sum[parent[i]] += sum;
        if (sum >= floor)
            w->pick[picked++] = i;
    }
    return picked;
}

/* The smallest count whose sum reaches the floor, as add_counts() compares it. */
static uint64_t floor_of(int64_t floor, int64_t each)
{
    uint64_t count = (uint64_t)(floor / each + (floor % each != 0));

    return count < COUNT_MAX ? count << NODE_BITS : UINT64_MAX;
}

static int64_t sum_of(const struct query_scratch *w, const struct extent *x, uint32_t i)
{
    return x->each ? (int64_t)(w->low[i] >> NODE_BITS) * x->each : w->sum[i];
}

/* ---- what is kept ------------------------------------------------------------------------------
 */

static void own(const struct query_scratch *w, const struct extent *x, const struct store_trie *t,
                struct query_stacks *ret)
{
    for (uint32_t i = 0; i < t->n_marked; i++) {
        if (t->marked[i].mark & FUNC_NO_STACK)
            ret->no_stack += sum_of(w, x, t->marked[i].fnode);
        if (t->marked[i].mark & FUNC_UNSYMBOLISED)
            ret->unsymbolised += sum_of(w, x, t->marked[i].fnode);
    }
}

static void totals(const struct query_scratch *w, const struct extent *x,
                   const struct store_trie *t, struct query_stacks *ret)
{
    for (uint32_t i = 0; i < t->n_marked; i++) {
        if ((t->marked[i].mark & FUNC_TRUNCATED) && !query_bit(t->again, t->marked[i].fnode))
            ret->truncated += sum_of(w, x, t->marked[i].fnode);
    }
}

/* Parents first; low[] of what is picked becomes its place. */
static void keep(struct query_scratch *w, const struct extent *x, const struct store_trie *t,
                 const struct store_share *s, struct query_thin *r)
{
    r->pick[0] = (struct query_pick){
        .sum = x->sum, .count = x->count, .nodes = (uint32_t)w->low[0] & (NODES_MAX - 1)};
    w->low[0] = PICKED;
    for (uint32_t k = 1; k < r->n; k++) {
        uint32_t i = w->pick[r->n - 1 - k];

        r->pick[k] = (struct query_pick){.func = t->func[i],
                                         .parent = (uint32_t)w->low[t->fparent[i]],
                                         .nodes = (uint32_t)w->low[i] & (NODES_MAX - 1),
                                         .sum = sum_of(w, x, i),
                                         .count = w->low[i] >> NODE_BITS};
        w->low[i] = PICKED | k;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t place = w->low[w->at[i]];

        if (!(place & PICKED))
            continue;
        r->pick[(uint32_t)place].self += s->sum.v[i];
        r->pick[(uint32_t)place].self_count += s->count[i];
    }
}

bool query_trie_shortens(const struct store_trie *t)
{
    for (uint32_t i = 0; i < t->n_marked; i++) {
        if (t->marked[i].mark & FUNC_TEMPLATE)
            return true;
    }
    return false;
}

/* The share is all there is: its own floor. */
static bool floor_of_only(const struct query_gather *g, const struct store_trie *t,
                          const struct store_share *s, int64_t *ret)
{
    unit_i128 total = 0;

    if (!s->only || !s->sum.v || (g->q->short_names && query_trie_shortens(t)))
        return false;
    for (uint32_t i = 0; i < s->n; i++)
        total += s->sum.v[i];
    if (total <= 0 || total > INT64_MAX)
        return false;
    *ret = query_floor(total, g->thinning->width);
    return true;
}

bool query_thin_floor(const struct query_gather *g, const struct store_trie *t,
                      const struct store_share *s, int64_t *ret)
{
    const struct query_thinning *k = g->thinning;

    if (!k->lone)
        return floor_of_only(g, t, s, ret);
    *ret = k->floor;
    return k->lone[s->group < g->q->groups ? s->group : g->q->groups];
}

bool query_thin_any(const struct query_gather *g)
{
    bool any = false;

    for (uint32_t i = 0; i < g->n_acc; i++)
        any |= g->acc[i]->thin != NULL;
    return any;
}

bool query_thin_answers(const struct query *q, const struct query_shown_ask *ask)
{
    const struct query_gather *g = q->gather;
    unit_i128 sum = 0;

    for (uint32_t i = 0; i < g->n_acc; i++) {
        if (g->acc[i]->sum)
            return false;
        sum += g->acc[i]->entry_sum;
    }
    return !atomic_load(&g->torn) && (!g->thinning->lone || sum == g->thinning->total) &&
           query_tree_shown_fits(q, ask);
}

int query_thin(struct query_scratch *w, const struct store_trie *t, const struct store_share *s,
               int64_t floor, struct query_thin **ret)
{
    struct query_stacks stacks = {};
    struct query_thin *r;
    struct extent x;
    uint32_t n;

    assert(floor > 0 && t->n_fnode > 0 && s->n <= t->n);
    if (!s->sum.v || s->var || s->count_unknown || t->n_fnode >= NODES_MAX || !measure(s, &x))
        return 0;
    if (!scratch(w, t->n_fnode > s->n ? t->n_fnode : s->n))
        return -ENOMEM;
    scatter(w, t, s);
    if (!x.each)
        scatter_sums(w, t, s);
    own(w, &x, t, &stacks);
    n = x.each ? add_counts(w->low, t->fparent, t->n_fnode, floor_of(floor, x.each), w->pick)
               : add_sums(w, t->fparent, t->n_fnode, floor);
    totals(w, &x, t, &stacks);
    r = mem_fail_now() ? NULL : malloc(sizeof *r + ((size_t)n + 1) * sizeof r->pick[0]);
    if (!r)
        return -ENOMEM;
    *r = (struct query_thin){.n = n + 1, .stacks = stacks};
    keep(w, &x, t, s, r);
    *ret = r;
    return 1;
}
