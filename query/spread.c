// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "query/query_private.h"

/*
 * How much a sum varies by itself. One scan for each of 20 equal stretches of the range, so that
 * there is never more than one of them in memory; what each node (or function) holds in a stretch
 * goes into a running sum and a running sum of squares.
 */

#define STRETCHES 20
#define NODES_MAX 200000 /* beyond: unknown, rather than a question that takes 40 times as long */

struct spread {
    struct query *q;
    struct query_shape *s;
    uint32_t n; /* entries of v: nodes of what is shown, or functions */
    bool by_func;
    unit_i128 *total; /* per node shown, of one stretch */
    double *v, *sum, *square;
    uint32_t known; /* nodes of the union before: a stretch of it holds no others */
};

/* Function nodes of a trie to the nodes shown; samples that filters took are left out. */
static int add(struct spread *sp, const struct query_acc *a, struct query_err *e)
{
    const struct query_fate *fate = &sp->s->fate;
    uint32_t *node = calloc(a->n, sizeof *node);
    int r;

    if (!node)
        return query_no_memory(sp->q, e);
    r = query_tree_place(sp->q, &sp->s->all, a, node, e);
    for (uint32_t i = 0; r == 0 && i < a->n; i++) {
        uint32_t k = node[i];

        if ((i && !k) || k >= sp->known || (fate->dead && fate->dead[k]))
            continue;
        sp->total[sp->s->node ? sp->s->node[k] : k] += a->sum[i];
    }
    free(node);
    return r;
}

static void fold(struct spread *sp)
{
    const struct query_tree *t = sp->s->t;

    memset(sp->v, 0, sp->n * sizeof *sp->v);
    for (uint32_t i = t->n; i-- > 0;) {
        if (i)
            sp->total[t->parent[i]] += sp->total[i];
        if (!sp->by_func || i == 0) /* function 0 is the root */
            sp->v[i] = (double)sp->total[i];
        else if (!(t->flag[i] & (QUERY_NODE_AGAIN | QUERY_NODE_LEVEL)))
            sp->v[t->func[i]] += (double)sp->total[i];
    }
    for (uint32_t i = 0; i < sp->n; i++) {
        sp->sum[i] += sp->v[i];
        sp->square[i] += sp->v[i] * sp->v[i];
    }
}

static int stretch(struct spread *sp, struct interval range, struct query_err *e)
{
    struct query_gather *g = NULL;
    int r;

    memset(sp->total, 0, sp->s->t->n * sizeof *sp->total);
    TRY(query_gather_part(sp->q, range, &g, e));
    r = 0;
    for (uint32_t i = 0; r == 0 && i < g->n_acc; i++)
        r = add(sp, g->acc[i], e);
    (void)query_gather_free(g);
    if (r == 0)
        fold(sp);
    return r;
}

int query_spread(struct query *q, struct query_shape *s, struct interval range, bool by_func,
                 const double **ret, struct query_err *e)
{
    struct spread sp = {.q = q,
                        .s = s,
                        .by_func = by_func,
                        .n = by_func ? s->t->n_func : s->t->n,
                        .known = s->all.n};
    uint32_t n_func = s->all.n_func;
    int64_t len = 0;
    double *var;

    if (s->all.n > NODES_MAX || !interval_len(range, &len) || len < STRETCHES)
        return 0;
    QUERY_NEW(q, &sp.total, s->t->n, e);
    QUERY_NEW(q, &sp.v, sp.n, e);
    QUERY_NEW(q, &sp.sum, sp.n, e);
    QUERY_NEW(q, &sp.square, sp.n, e);
    QUERY_NEW(q, &var, sp.n, e);
    for (int64_t k = 0; k < STRETCHES; k++) {
        struct interval part = {{range.t0.v + len / STRETCHES * k},
                                {range.t0.v + len / STRETCHES * (k + 1)}};

        if (k == STRETCHES - 1)
            part.t1 = range.t1;
        TRY(stretch(&sp, part, e));
    }
    for (uint32_t i = 0; i < sp.n; i++) {
        double d = sp.square[i] - sp.sum[i] * sp.sum[i] / STRETCHES;

        var[i] = d > 0 ? d / (STRETCHES - 1) * STRETCHES : 0;
    }
    s->all.n = sp.known; /* the columns of the others were never made */
    s->all.n_func = n_func;
    *ret = var;
    return 0;
}
