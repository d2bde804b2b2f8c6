// SPDX-License-Identifier: Apache-2.0
#include "query/query_private.h"

/* What is asked of all tries as one by numbers (shown.c makes them): names and searches. */

/* ---- names -------------------------------------------------------------------------------------
 */

#define PENDING UINT32_MAX

static int name_some(struct query *q, struct query_tree *t, struct query_ids *ids,
                     const uint32_t *id, uint32_t n, struct query_err *e)
{
    uint32_t func[QUERY_FUNCS_MAX];

    TRY(query_tree_funcs(q, t, ids->epoch, n, id, func, e));
    for (uint32_t i = 0; i < n; i++) {
        ids->func[id[i]] = func[i];
        t->fn_flag[func[i]] |= QUERY_FN_FRAME;
    }
    return 0;
}

int query_numbers_name(struct query *q, struct query_tree *t, struct query_numbers *u,
                       struct query_err *e)
{
    uint32_t id[QUERY_FUNCS_MAX], n = 0, last = 0;
    struct query_ids *ids = NULL;

    for (uint32_t i = 1; u->named && i < u->n; i++)
        t->fn_flag[u->func[i]] |= QUERY_FN_FRAME;
    if (u->n == 0 || u->named)
        return 0;
    for (uint32_t i = 1; i < u->n; i++)
        last = u->func[i] > last ? u->func[i] : last;
    TRY(query_tree_ids(q, t, u->epoch, last + 1, &ids, e));
    for (uint32_t i = 1; i < u->n; i++) {
        uint32_t f = u->func[i];

        if (!query_numbers_weighs(u, i) || ids->func[f])
            continue;
        ids->func[f] = PENDING;
        id[n++] = f;
        if (n == QUERY_FUNCS_MAX) {
            TRY(name_some(q, t, ids, id, n, e));
            n = 0;
        }
    }
    u->name = ids->func;
    return n ? name_some(q, t, ids, id, n, e) : 0;
}

/* ---- searching ---------------------------------------------------------------------------------
 */

/* Functions that no node has any more, since filters took them, match nothing. */
static int that_occur(struct query *q, const struct query_tree *t, const struct query_numbers *u,
                      uint32_t *bit, struct query_err *e)
{
    uint8_t *occurs;

    QUERY_NEW(q, &occurs, t->n_func, e);
    for (uint32_t i = 1; i < u->n; i++) {
        if (query_numbers_weighs(u, i))
            occurs[query_numbers_func(u, i)] = 1;
    }
    for (uint32_t f = 0; f < t->n_func; f++)
        bit[f] = occurs[f] ? bit[f] : 0;
    return 0;
}

int query_numbers_find(struct query *q, const struct query_tree *t, const struct query_numbers *u,
                       const struct str *pattern, uint32_t n, const char *param, uint32_t *bit,
                       struct query_seen *each, struct query_seen *any, struct query_err *e)
{
    uint32_t *in;

    TRY(query_tree_match_all(q, t, pattern, n, param, bit, e));
    TRY(that_occur(q, t, u, bit, e));
    for (uint32_t f = 1; f < t->n_func; f++) {
        for (uint32_t k = 0; k < n; k++)
            each[k].functions += bit[f] >> k & 1;
        any->functions += bit[f] != 0;
    }
    QUERY_NEW(q, &in, u->n, e);
    for (uint32_t i = 1; i < u->n; i++) {
        if (query_numbers_weighs(u, i))
            in[i] = in[u->parent[i]] | bit[query_numbers_func(u, i)];
    }
    for (uint32_t a = 0; a < u->n_acc; a++) {
        for (uint32_t i = 0; i < u->acc[a]->n_entry; i++) {
            const struct query_entry *x = &u->acc[a]->entry[i];

            for (uint32_t k = 0; k < n && in[x->node] >> k; k++) {
                if (in[x->node] >> k & 1)
                    query_seen_add(&each[k], x);
            }
            if (in[x->node])
                query_seen_add(any, x);
        }
    }
    return 0;
}
