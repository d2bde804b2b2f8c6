// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "server/api_private.h"

/* /flamegraph: the tree as columns in preorder; or, for people, a report in plain text. */

#define WIDTH_DEFAULT     1920
#define WIDTH_MAX         7680
#define MAX_NODES_DEFAULT 20000

int api_tree_size(struct api_call *c, uint32_t *width, uint32_t *max_nodes, struct query_err *e)
{
    *width = WIDTH_DEFAULT;
    *max_nodes = MAX_NODES_DEFAULT;
    TRY(api_param_u32(c, "width", 0, WIDTH_MAX, width, e));
    TRY(api_param_u32(c, "max_nodes", 0, c->api->conf.max_nodes, max_nodes, e));
    if (*max_nodes == 0)
        *width = 0; /* the whole tree */
    return 0;
}

int api_root(struct api_call *c, uint64_t *root, struct query_err *e)
{
    struct str s = api_param(c, "root");

    if (s.n && !str_hex64(s, root))
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "root",
                          "root is a node's hash: 16 hex digits, or 0");
    return 0;
}

int api_flame_ask(struct api_call *c, struct query_flame_ask *ask, struct query_err *e)
{
    static const char *const orders[] = {"value", "name", NULL};
    uint32_t order = 0;

    *ask = (struct query_flame_ask){.match = api_param(c, "match")};
    TRY(api_tree_size(c, &ask->width, &ask->max_nodes, e));
    TRY(api_param_word(c, "order", orders, &order, e));
    TRY(api_param_flag(c, "invert", &ask->invert, e));
    ask->by_name = order == 1;
    return api_root(c, &ask->root, e);
}

void api_put_hash(struct json_out *j, uint64_t hash)
{
    if (hash)
        json_hex64(j, hash);
    else
        json_cstr(j, "0");
}

void api_put_path(struct json_out *j, uint64_t root, uint64_t asked, bool found,
                  const struct query_step *path, uint32_t n)
{
    json_key(j, "root");
    api_put_hash(j, root);
    json_key(j, "asked");
    api_put_hash(j, asked);
    json_key(j, "found");
    json_bool(j, found);
    json_key(j, "path");
    json_array_begin(j);
    for (uint32_t i = 0; i < n; i++) {
        json_object_begin(j);
        json_key(j, "func");
        json_u64(j, path[i].func);
        json_key(j, "node");
        api_put_hash(j, path[i].hash);
        json_object_end(j);
    }
    json_array_end(j);
}

void api_put_trim(struct json_out *j, const struct query_flame *f)
{
    json_key(j, "trim");
    json_object_begin(j);
    json_key(j, "floor");
    api_put_weight(j, f->floor);
    json_key(j, "hidden_nodes");
    json_u64(j, f->hidden_nodes);
    json_key(j, "hidden_total");
    api_put_weight(j, f->hidden_total);
    json_object_end(j);
}

static void put_view(struct json_out *j, const struct query_flame *f)
{
    json_key(j, "view");
    json_object_begin(j);
    api_put_path(j, f->view_root, f->view_asked, f->view_found, f->path, f->n_path);
    json_key(j, "total");
    api_put_weight(j, f->view_total);
    json_object_end(j);
    api_put_trim(j, f);
}

static void put_matched(struct json_out *j, const struct query_flame *f)
{
    if (!f->has_match)
        return;
    json_key(j, "matched");
    json_object_begin(j);
    json_key(j, "functions");
    json_u64(j, f->matched.functions);
    json_key(j, "view");
    api_put_weight(j, f->matched.view);
    json_key(j, "total");
    api_put_weight(j, f->matched.total);
    json_key(j, "samples");
    api_put_count(j, f->matched.samples);
    json_key(j, "func");
    json_array_begin(j);
    for (uint32_t i = 0; i < f->matched.n_func; i++)
        json_u64(j, f->matched.func[i]);
    json_array_end(j);
    json_object_end(j);
}

void api_put_nodes(struct api_call *c, const struct query_flame *f, bool hashes)
{
    struct json_out *j = &c->json;

    json_key(j, "n");
    json_u64(j, f->n);
    json_key(j, "node");
    json_object_begin(j);
    api_put_indices(j, "depth", f->depth, f->n);
    json_key(j, "func");
    json_array_begin(j);
    json_i32s(j, f->node_func, f->n);
    json_array_end(j);
    api_put_weights(c, "self", f->self, f->n);
    api_put_weights(c, "total", f->total, f->n);
    api_put_counts(c, "samples", f->samples, f->n);
    json_key(j, "hidden");
    json_array_begin(j);
    json_u64s(j, f->hidden, f->n);
    json_array_end(j);
    if (hashes) {
        json_key(j, "hash");
        json_array_begin(j);
        for (uint32_t i = 0; i < f->n; i++)
            json_hex64(j, f->hash[i]);
        json_array_end(j);
    }
    json_object_end(j);
}

int api_write_tree(struct api_call *c, const struct query_flame *f, struct query_err *e)
{
    struct json_out *j = &c->json;
    bool hashes = false;

    TRY(api_param_flag(c, "hash", &hashes, e));
    json_object_begin(j);
    api_put_head(c, "tree");
    api_put_sums(c, &f->sum);
    put_view(j, f);
    put_matched(j, f);
    TRY(api_put_funcs(c, f->func, f->n_func, e));
    api_put_nodes(c, f, hashes);
    json_object_end(j);
    return 0;
}

/* ---- the report --------------------------------------------------------------------------------
 */

#define REPORT_FUNCTIONS 30
#define REPORT_STACKS    10

/* "  [demo.c]"; "[kernel]" has its brackets already. */
static void text_place(struct buf *b, struct str place)
{
    bool bare = place.n && place.p[0] != '[';

    if (!place.n)
        return;
    buf_cstr(b, bare ? "  [" : "  ");
    api_text_name(b, place);
    buf_cstr(b, bare ? "]" : "");
}

static void text_functions(struct buf *b, const struct query_head *h, const struct query_top *t)
{
    buf_printf(b, "\nfunctions by self, %u of %llu\n", t->n, (unsigned long long)t->rows);
    for (uint32_t i = 0; i < t->n; i++) {
        const struct query_row *r = &t->row[i];
        const struct query_func *f = &t->func[r->func];

        buf_cstr(b, "  self ");
        api_text_weight(b, r->self, &h->type);
        buf_cstr(b, " (");
        api_text_share(b, r->self, t->sum.total);
        buf_cstr(b, "), total ");
        api_text_weight(b, r->total, &h->type);
        buf_cstr(b, "  ");
        api_text_name(b, f->name);
        text_place(b, f->file.n ? f->file : f->bin);
        buf_chr(b, '\n');
    }
}

/* The rows with the most of their own, found by keeping the best ten. */
static uint32_t hottest(const struct query_flame *f, uint32_t best[REPORT_STACKS])
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t at = n;

        if (f->self[i] <= 0)
            continue;
        while (at > 0 && f->self[best[at - 1]] < f->self[i])
            at--;
        if (at == REPORT_STACKS)
            continue;
        if (n < REPORT_STACKS)
            n++;
        memmove(&best[at + 1], &best[at], (n - 1 - at) * sizeof best[0]);
        best[at] = i;
    }
    return n;
}

static void text_stack(struct buf *b, const struct query_flame *f, uint32_t i)
{
    for (;; i--) { /* towards the root: the nearest row before with a smaller depth */
        uint32_t depth = f->depth[i];

        buf_cstr(b, "      ");
        api_text_name(b, f->func[f->node_func[i]].name);
        buf_chr(b, '\n');
        if (depth <= 1)
            break;
        while (f->depth[i - 1] >= depth)
            i--;
    }
}

static void text_stacks(struct buf *b, const struct query_head *h, const struct query_flame *f)
{
    uint32_t best[REPORT_STACKS], n = hottest(f, best);

    buf_printf(b, "\nhottest stacks, leaf first, %u\n", n);
    for (uint32_t i = 0; i < n; i++) {
        buf_cstr(b, "  ");
        api_text_weight(b, f->self[best[i]], &h->type);
        buf_cstr(b, " (");
        api_text_share(b, f->self[best[i]], f->sum.total);
        buf_cstr(b, ")\n");
        text_stack(b, f, best[i]);
    }
}

int api_write_report(struct api_call *c, struct query_err *e)
{
    const struct query_head *h = query_head(c->query);
    struct query_top_ask top_ask = {.sort = QUERY_BY_SELF, .limit = REPORT_FUNCTIONS};
    struct query_flame_ask ask = {};
    struct query_flame f = {};
    struct query_top t = {};
    struct buf *b = &c->reply->body;

    TRY(query_top(c->query, &top_ask, &t, e));
    TRY(query_flame(c->query, &ask, &f, e));
    c->reply->content_type = "text/plain; charset=utf-8";
    api_text_head(b, h, &f.sum);
    if (f.sum.total == QUERY_UNKNOWN)
        return 0;
    text_functions(b, h, &t);
    text_stacks(b, h, &f);
    return 0;
}

/* The first type of Accept that this route has decides. */
static bool wants_text(struct str accept)
{
    while (accept.n) {
        size_t comma = str_find(accept, ',');
        struct str one = str_to(accept, comma);

        while (one.n && one.p[0] == ' ')
            one = str_from(one, 1);
        if (str_starts(one, STR("text/plain")))
            return true;
        if (str_starts(one, STR("application/json")) || str_starts(one, STR("*/*")))
            return false;
        accept = comma == SIZE_MAX ? (struct str){NULL, 0} : str_from(accept, comma + 1);
    }
    return false;
}

int api_flamegraph(struct api_call *c, struct query_err *e)
{
    struct query_flame_ask ask;
    struct query_flame f = {};

    TRY(api_open(c, true, e));
    TRY(api_flame_ask(c, &ask, e));
    if (wants_text(c->req->accept))
        return api_write_report(c, e);
    TRY(query_flame(c->query, &ask, &f, e));
    return api_write_tree(c, &f, e);
}
