// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "server/api_private.h"

/* /diff: two ranges or two selectors, as a tree or as a table; what was measured beside what it
 * means. */

#define LIMIT_DEFAULT 200
#define LIMIT_MAX     2000

static int diff_ask(struct api_call *c, struct query_diff_ask *ask, struct query_err *e)
{
    static const char *const norms[] = {"second", "share", "none", "step", NULL};
    static const enum query_norm meant[] = {QUERY_NORM_SECOND, QUERY_NORM_SHARE, QUERY_NORM_NONE,
                                            QUERY_NORM_STEP};
    static const char *const orders[] = {"b", "a", "delta", "name", NULL};
    static const char *const views[] = {"tree", "top", NULL};
    uint32_t norm = UINT32_MAX, order, view = 0;

    TRY(api_param_word(c, "norm", norms, &norm, e));
    TRY(api_param_word(c, "view", views, &view, e));
    order = view ? QUERY_ORDER_DELTA : QUERY_ORDER_B;
    TRY(api_param_word(c, "order", orders, &order, e));
    *ask = (struct query_diff_ask){.norm = norm < 4 ? meant[norm] : QUERY_NORM_DEFAULT,
                                   .order = (enum query_diff_order)order,
                                   .table = view == 1,
                                   .limit = LIMIT_DEFAULT};
    TRY(api_param_u32(c, "limit", 0, LIMIT_MAX, &ask->limit, e));
    TRY(api_tree_size(c, &ask->width, &ask->max_nodes, e));
    return api_root(c, &ask->root, e);
}

/* A difference or denominator; where nobody knows it, null. */
static void put_double(struct json_out *j, const char *key, bool known, double v)
{
    json_key(j, key);
    if (known)
        json_double(j, v);
    else
        json_null_value(j);
}

static void put_side(struct api_call *c, const char *key, const struct query_diff_side *s)
{
    struct json_out *j = &c->json;

    json_key(j, key);
    json_object_begin(j);
    api_put_range(j, &s->head);
    api_put_sums(c, &s->sum);
    json_key(j, "view");
    api_put_weight(j, s->view);
    json_key(j, "denominators");
    json_object_begin(j);
    json_key(j, "step");
    if (s->steps == BATCH_UNKNOWN)
        json_null_value(j);
    else
        json_u64(j, s->steps);
    put_double(j, "second", s->seconds > 0, s->seconds);
    json_key(j, "share");
    api_put_weight(j, s->share);
    json_object_end(j);
    json_object_end(j);
}

static void put_verdict(struct json_out *j, const struct query_diff *d)
{
    static const char *const norms[] = {[QUERY_NORM_DEFAULT] = "none",
                                        [QUERY_NORM_STEP] = "step",
                                        [QUERY_NORM_SECOND] = "second",
                                        [QUERY_NORM_SHARE] = "share",
                                        [QUERY_NORM_NONE] = "none"};

    json_key(j, "norm");
    json_cstr(j, norms[d->norm]);
    json_key(j, "comparable");
    json_bool(j, d->comparable);
    json_key(j, "why_not");
    if (d->why_not)
        json_cstr(j, d->why_not);
    else
        json_null_value(j);
    json_key(j, "delta");
    json_object_begin(j);
    put_double(j, "value", d->comparable, d->delta);
    put_double(j, "se", d->comparable && d->delta_se >= 0, d->delta_se);
    json_object_end(j);
    json_key(j, "warnings");
    json_array_begin(j);
    for (uint32_t i = 0; i < d->n_warning; i++)
        json_str(j, d->warning[i]);
    json_array_end(j);
}

static void put_delta(struct json_out *j, const struct query_diff *d, const char *key,
                      double (*of)(const struct query_delta *), bool negative_is_unknown)
{
    json_key(j, key);
    json_array_begin(j);
    for (uint32_t i = 0; i < d->n; i++) {
        double v = of(&d->delta_row[i]);

        if (negative_is_unknown && v < 0)
            json_null_value(j);
        else
            json_double(j, v);
    }
    json_array_end(j);
}

static double self_of(const struct query_delta *r)
{
    return r->self;
}

static double total_of(const struct query_delta *r)
{
    return r->total;
}

static double se_of(const struct query_delta *r)
{
    return r->se;
}

static double churn_of(const struct query_delta *r)
{
    return r->churn;
}

static void put_deltas(struct json_out *j, const struct query_diff *d)
{
    if (!d->comparable)
        return;
    put_delta(j, d, "d_self", self_of, false);
    put_delta(j, d, "d_total", total_of, false);
    put_delta(j, d, "se", se_of, true);
    json_key(j, "sig");
    json_array_begin(j);
    for (uint32_t i = 0; i < d->n; i++)
        json_i64(j, d->delta_row[i].sig);
    json_array_end(j);
    if (d->depth)
        put_delta(j, d, "churn", churn_of, false);
}

static void put_columns(struct api_call *c, const struct query_diff *d)
{
    struct json_out *j = &c->json;

    json_key(j, "n");
    json_u64(j, d->n);
    json_key(j, d->depth ? "node" : "row");
    json_object_begin(j);
    if (d->depth)
        api_put_indices(j, "depth", d->depth, d->n);
    json_key(j, "func");
    json_array_begin(j);
    for (uint32_t i = 0; i < d->n; i++)
        json_i64(j, d->node_func[i]);
    json_array_end(j);
    api_put_weights(c, "self_a", d->self[0], d->n);
    api_put_weights(c, "total_a", d->total[0], d->n);
    api_put_weights(c, "self_b", d->self[1], d->n);
    api_put_weights(c, "total_b", d->total[1], d->n);
    api_put_counts(c, "samples_a", d->samples[0], d->n);
    api_put_counts(c, "samples_b", d->samples[1], d->n);
    put_deltas(j, d);
    json_key(j, "state");
    json_array_begin(j);
    for (uint32_t i = 0; i < d->n; i++)
        json_u64(j, d->state[i]);
    json_array_end(j);
    if (d->depth) {
        json_key(j, "hidden");
        json_array_begin(j);
        for (uint32_t i = 0; i < d->n; i++)
            json_u64(j, d->hidden[i]);
        json_array_end(j);
    }
    json_object_end(j);
}

int api_diff(struct api_call *c, struct query_err *e)
{
    struct json_out *j = &c->json;
    struct query_diff_ask ask;
    struct query_diff d = {};

    TRY(diff_ask(c, &ask, e));
    TRY(api_open_diff(c, e));
    TRY(query_diff(c->query, &ask, &d, e));
    json_object_begin(j);
    api_put_kind(c, ask.table ? "diff_top" : "diff");
    put_side(c, "a", &d.side[0]);
    put_side(c, "b", &d.side[1]);
    put_verdict(j, &d);
    if (!ask.table) {
        json_key(j, "view");
        json_object_begin(j);
        api_put_path(j, d.view_root, d.view_asked, d.view_found, d.path, d.n_path);
        json_object_end(j);
        json_key(j, "hidden_nodes");
        json_u64(j, d.hidden_nodes);
    } else {
        json_key(j, "rows");
        json_u64(j, d.rows);
    }
    TRY(api_put_funcs(c, d.func, d.n_func, e));
    put_columns(c, &d);
    json_object_end(j);
    return 0;
}
