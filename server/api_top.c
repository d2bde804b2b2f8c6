// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "server/api_private.h"

/* /top: functions with self and total, and what patterns find. */

#define LIMIT_DEFAULT 200
#define LIMIT_MAX     2000

static int top_ask(struct api_call *c, struct query_top_ask *ask, struct query_err *e)
{
    static const char *const sorts[] = {"self", "total", "samples", NULL};
    static const char *const keys[] = {"fn", "file", "bin", "line", "addr", NULL};
    uint32_t sort = 0, key = 0;

    *ask = (struct query_top_ask){
        .match = api_param(c, "match"), .after = api_param(c, "after"), .limit = LIMIT_DEFAULT};
    TRY(api_param_word(c, "sort", sorts, &sort, e));
    TRY(api_param_word(c, "key", keys, &key, e));
    TRY(api_param_u32(c, "limit", 0, LIMIT_MAX, &ask->limit, e));
    ask->sort = (enum query_sort)sort;
    ask->key = (enum query_key)key;
    for (uint32_t i = 0; i < c->req->n_param; i++) {
        if (!str_eq(c->req->param[i].name, STR("any")))
            continue;
        if (ask->n_any == QUERY_ANY_MAX)
            return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "any", "more than %d patterns",
                              QUERY_ANY_MAX);
        ask->any[ask->n_any++] = c->req->param[i].value;
    }
    return 0;
}

static void put_any_row(struct json_out *j, const struct query_any *a, bool pattern)
{
    json_object_begin(j);
    if (pattern) {
        json_key(j, "pattern");
        json_str(j, a->pattern);
    }
    json_key(j, "functions");
    json_u64(j, a->functions);
    json_key(j, "total");
    api_put_weight(j, a->total);
    json_key(j, "samples");
    api_put_count(j, a->samples);
    json_object_end(j);
}

static void put_found(struct json_out *j, const struct query_top *t)
{
    if (t->has_match) {
        json_key(j, "matched");
        json_object_begin(j);
        json_key(j, "functions");
        json_u64(j, t->matched.functions);
        json_key(j, "total");
        api_put_weight(j, t->matched.total);
        json_key(j, "samples");
        api_put_count(j, t->matched.samples);
        json_object_end(j);
    }
    if (t->n_any == 0)
        return;
    json_key(j, "any");
    json_object_begin(j);
    json_key(j, "each");
    json_array_begin(j);
    for (uint32_t i = 0; i < t->n_any; i++)
        put_any_row(j, &t->any[i], true);
    json_array_end(j);
    json_key(j, "union");
    put_any_row(j, &t->any_union, false);
    json_object_end(j);
}

/* of_files: rows are files or binaries, so that a row may hold functions without a name. */
static int put_rows(struct api_call *c, const struct query_top *t, bool of_files,
                    struct query_err *e)
{
    unit_i128 *self = arena_calloc(&c->arena, t->n, sizeof *self);
    unit_i128 *total = arena_calloc(&c->arena, t->n, sizeof *total);
    unit_i128 *nameless = arena_calloc(&c->arena, t->n, sizeof *nameless);
    uint64_t *samples = arena_calloc(&c->arena, t->n, sizeof *samples);
    struct json_out *j = &c->json;

    if (!self || !total || !nameless || !samples)
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL, "out of memory");
    for (uint32_t i = 0; i < t->n; i++) {
        self[i] = t->row[i].self;
        total[i] = t->row[i].total;
        nameless[i] = t->row[i].unsymbolised;
        samples[i] = t->row[i].samples;
    }
    json_key(j, "row");
    json_object_begin(j);
    json_key(j, "func");
    json_array_begin(j);
    for (uint32_t i = 0; i < t->n; i++)
        json_u64(j, i);
    json_array_end(j);
    api_put_weights(c, "self", self, t->n);
    api_put_weights(c, "total", total, t->n);
    if (of_files)
        api_put_weights(c, "unsymbolised", nameless, t->n);
    api_put_counts(c, "samples", samples, t->n);
    json_key(j, "places");
    json_array_begin(j);
    for (uint32_t i = 0; i < t->n; i++)
        json_u64(j, t->row[i].places);
    json_array_end(j);
    json_object_end(j);
    return 0;
}

/* Per group of by= its labels, its total, and what the page's rows have of it. */
static void put_groups(struct api_call *c, const struct query_top *t)
{
    struct json_out *j = &c->json;

    if (t->n_by == 0)
        return;
    json_key(j, "groups");
    json_array_begin(j);
    for (uint32_t i = 0; i < t->n_group; i++) {
        const struct query_top_group *g = &t->group[i];

        json_object_begin(j);
        json_key(j, "labels");
        json_object_begin(j);
        for (uint32_t k = 0; k < t->n_by && !g->rest; k++) {
            json_key_str(j, t->by[k]);
            json_str(j, g->label[k]);
        }
        json_object_end(j);
        json_key(j, "rest");
        json_bool(j, g->rest);
        json_key(j, "total");
        api_put_weight(j, g->total);
        json_key(j, "samples");
        api_put_count(j, g->samples);
        json_key(j, "row");
        json_object_begin(j);
        api_put_weights(c, "self", g->self, t->n);
        api_put_weights(c, "total", g->sums, t->n);
        json_object_end(j);
        json_object_end(j);
    }
    json_array_end(j);
}

/* func holds the page's rows alone, in their order. */
static int put_page(struct api_call *c, const struct query_top *t, bool of_files,
                    struct query_err *e)
{
    struct query_func *fn = arena_calloc(&c->arena, t->n, sizeof *fn);
    struct json_out *j = &c->json;

    if (!fn)
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL, "out of memory");
    for (uint32_t i = 0; i < t->n; i++)
        fn[i] = t->func[t->row[i].func];
    TRY(api_put_funcs(c, fn, t->n, e));
    json_key(j, "rows");
    json_u64(j, t->rows);
    json_key(j, "n");
    json_u64(j, t->n);
    TRY(put_rows(c, t, of_files, e));
    put_groups(c, t);
    json_key(j, "next");
    if (t->next.n)
        json_str(j, t->next);
    else
        json_null_value(j);
    return 0;
}

int api_top(struct api_call *c, struct query_err *e)
{
    struct query_top_ask ask;
    struct query_top t = {};

    TRY(api_open(c, true, e));
    TRY(top_ask(c, &ask, e));
    TRY(query_top(c->query, &ask, &t, e));
    json_object_begin(&c->json);
    api_put_head(c, "top");
    api_put_sums(c, &t.sum);
    put_found(&c->json, &t);
    TRY(put_page(c, &t, ask.key == QUERY_KEY_FILE || ask.key == QUERY_KEY_BIN, e));
    json_object_end(&c->json);
    return 0;
}
