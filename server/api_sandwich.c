// SPDX-License-Identifier: Apache-2.0
#include "server/api_private.h"

/* /sandwich: who calls a function, and what it calls, as two trees with one list of functions. */

static void put_tree(struct api_call *c, const char *key, const struct query_flame *f)
{
    struct json_out *j = &c->json;

    json_key(j, key);
    json_object_begin(j);
    api_put_trim(j, f);
    api_put_nodes(c, f, false);
    json_object_end(j);
}

static void put_function(struct json_out *j, const struct query_sandwich *s)
{
    bool known = s->sum.total != QUERY_UNKNOWN;

    json_key(j, "function");
    json_object_begin(j);
    json_key(j, "functions");
    json_u64(j, s->n_hit);
    api_put_indices(j, "func", s->hit, s->n_hit);
    json_key(j, "self");
    api_put_weight(j, known ? s->self : QUERY_UNKNOWN);
    json_key(j, "total");
    api_put_weight(j, known ? s->total : QUERY_UNKNOWN);
    json_key(j, "samples");
    api_put_count(j, known ? s->samples : BATCH_UNKNOWN);
    json_object_end(j);
}

int api_sandwich(struct api_call *c, struct query_err *e)
{
    static const char *const orders[] = {"value", "name", NULL};
    struct query_sandwich_ask ask = {
        .fn = api_param(c, "fn"), .bin = api_param(c, "bin"), .file = api_param(c, "file")};
    struct query_sandwich s = {};
    uint32_t order = 0;

    TRY(api_open(c, true, e));
    TRY(api_tree_size(c, &ask.width, &ask.max_nodes, e));
    TRY(api_param_word(c, "order", orders, &order, e));
    ask.by_name = order == 1;
    TRY(query_sandwich(c->query, &ask, &s, e));
    json_object_begin(&c->json);
    api_put_head(c, "sandwich");
    api_put_sums(c, &s.sum);
    put_function(&c->json, &s);
    TRY(api_put_funcs(c, s.func, s.n_func, e));
    put_tree(c, "callers", &s.callers);
    put_tree(c, "callees", &s.callees);
    json_object_end(&c->json);
    return 0;
}
