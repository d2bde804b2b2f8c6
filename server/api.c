// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "server/api_private.h"

#define PREFIX STR("/api/v1")

/* ---- routes ------------------------------------------------------------------------------------
 */

#define SELECT "q", "from", "to", "timeout"
#define SHAPE  "agg", "at", "f", "step", "names", "numbers"
#define TREE                                                                                       \
    "width", "max_nodes", "root", "order", "invert", "by", "groups", "match", "hash", SELECT, SHAPE

#define PAGE "limit", "after", SELECT

static const char *const types_params[] = {SELECT, NULL};
static const char *const page_params[] = {PAGE, NULL};
static const char *const steps_params[] = {"name", "sort", "numbers", PAGE, NULL};
static const char *const metrics_params[] = {"name", PAGE, NULL};
static const char *const metric_params[] = {"name",  "agg",  "bucket",  "points",
                                            "limit", SELECT, "numbers", NULL};
static const char *const coverage_params[] = {"by", "limit", "numbers", SELECT, NULL};
static const char *const values_params[] = {"prefix", "limit", "after", SELECT, NULL};
static const char *const series_params[] = {"points", "bucket", "by",  "groups",
                                            "rate",   SELECT,   SHAPE, NULL};
static const char *const tree_params[] = {TREE, NULL};
static const char *const top_params[] = {"sort", "key",    "match", "any", "limit", "after",
                                         "by",   "groups", SELECT,  SHAPE, NULL};
static const char *const sandwich_params[] = {"fn",    "bin",  "file", "width", "max_nodes",
                                              "order", SELECT, SHAPE,  NULL};
static const char *const diff_params[] = {
    "a_q",    "a_from", "a_to",  "a_step",  "b_q",     "b_from", "b_to",
    "b_step", "norm",   "agg",   "f",       "width",   "names",  "max_nodes",
    "order",  "root",   "limit", "numbers", "timeout", "view",   NULL};
static const char *const export_params[] = {"format", "lost", "color", TREE, NULL};
static const char *const no_params[] = {NULL};

static const struct api_route routes[] = {
    {"/coverage", api_coverage, coverage_params},
    {"/events", api_events, page_params},
    {"/diff", api_diff, diff_params},
    {"/export", api_export, export_params},
    {"/flamegraph", api_flamegraph, tree_params},
    {"/labels", api_labels, types_params},
    {"/labels/{name}/values", api_label_values, values_params},
    {"/metrics", api_metrics, metrics_params},
    {"/metrics/query", api_metrics_query, metric_params},
    {"/openapi.json", api_openapi, no_params},
    {"/series", api_sets, page_params},
    {"/sandwich", api_sandwich, sandwich_params},
    {"/status", api_status, no_params},
    {"/steps", api_steps, steps_params},
    {"/targets", api_targets, page_params},
    {"/timeseries", api_timeseries, series_params},
    {"/top", api_top, top_params},
    {"/types", api_types, types_params},
};
#define N_ROUTES (sizeof routes / sizeof routes[0])

void api_dump_routes(struct buf *out)
{
    for (size_t i = 0; i < N_ROUTES; i++) {
        /* POST of steps is a sender's */
        buf_printf(out, "%s /api/v1%s", routes[i].fn == api_steps ? "GET" : "GET,POST",
                   routes[i].path);
        for (const char *const *p = routes[i].param; *p; p++)
            buf_printf(out, " %s", *p);
        buf_chr(out, '\n');
    }
}

/* path is below the prefix. {name} takes all between what stands before and behind it. */
static bool route_takes(const struct api_route *r, struct str path, struct str *ret_name)
{
    struct str pattern = str_c(r->path);
    size_t open = str_find(pattern, '{');
    struct str before, behind;

    if (open == SIZE_MAX)
        return str_eq(pattern, path);
    before = str_to(pattern, open);
    behind = str_from(pattern, str_find(pattern, '}') + 1);
    if (path.n <= before.n + behind.n || !str_starts(path, before) || !str_ends(path, behind))
        return false;
    *ret_name = str_to(str_from(path, before.n), path.n - before.n - behind.n);
    return true;
}

/* ---- parameters --------------------------------------------------------------------------------
 */

struct str api_param(const struct api_call *c, const char *name)
{
    struct str v = {NULL, 0};

    (void)msg_param(c->req, name, &v);
    return v;
}

static int bad_param(const struct api_call *c, const char *name, struct query_err *e,
                     const char *want)
{
    struct str v = api_param(c, name);

    return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, name, "%s=%.*s: %s", name,
                      STR_ARG(str_to(v, 80)), want);
}

int api_param_u32(const struct api_call *c, const char *name, uint32_t min, uint32_t max,
                  uint32_t *v, struct query_err *e)
{
    struct str s = api_param(c, name);
    uint64_t n;
    char want[80];

    if (s.n == 0)
        return 0;
    if (!str_u64(s, &n))
        return bad_param(c, name, e, "not a whole number");
    if (n < min || n > max) {
        (void)snprintf(want, sizeof want, "from %u to %u are allowed", min, max);
        return bad_param(c, name, e, want);
    }
    *v = (uint32_t)n;
    return 0;
}

int api_param_word(const struct api_call *c, const char *name, const char *const *words,
                   uint32_t *v, struct query_err *e)
{
    struct str s = api_param(c, name);
    char want[120] = "one of";
    size_t n = strlen(want);

    if (s.n == 0)
        return 0;
    for (uint32_t i = 0; words[i]; i++) {
        int k = snprintf(want + n, sizeof want - n, " %s", words[i]);

        if (str_eq(s, str_c(words[i]))) {
            *v = i;
            return 0;
        }
        n += k > 0 && (size_t)k < sizeof want - n ? (size_t)k : 0;
    }
    return bad_param(c, name, e, want);
}

int api_param_flag(const struct api_call *c, const char *name, bool *v, struct query_err *e)
{
    static const char *const words[] = {"0", "1", NULL};
    uint32_t n = *v;

    TRY(api_param_word(c, name, words, &n, e));
    *v = n == 1;
    return 0;
}

static bool repeatable(const struct api_call *c, struct str name)
{
    return str_eq(name, STR("by")) || str_eq(name, STR("any")) || str_eq(name, STR("f")) ||
           (str_eq(name, STR("name")) && c->route->param == metrics_params);
}

/* Every parameter is known to the route and, but for lists, given once. */
static bool check_params(struct api_call *c)
{
    char name[80], text[200];

    for (uint32_t i = 0; i < c->req->n_param; i++) {
        struct str n = c->req->param[i].name;
        const char *const *p = c->route->param;
        bool twice = false;

        while (*p && !str_eq(n, str_c(*p)))
            p++;
        for (uint32_t k = 0; k < i && !repeatable(c, n); k++)
            twice |= str_eq(c->req->param[k].name, n);
        if (*p && !twice)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", STR_ARG(str_to(n, sizeof name - 1)));
        (void)snprintf(text, sizeof text, "%s: %s", c->route->path,
                       *p ? "the parameter is given twice" : "there is no such parameter");
        msg_fail(c->reply, c->req,
                 &(struct msg_error){.status = 400,
                                     .code = *p ? "bad_parameter" : "unknown_parameter",
                                     .message = text,
                                     .param = name});
        return false;
    }
    return true;
}

/* by=a,b and by=a&by=b are the same. */
static int open_by(struct api_call *c, struct query_ask *ask, struct query_err *e)
{
    for (uint32_t i = 0; i < c->req->n_param; i++) {
        struct str v = c->req->param[i].value;

        if (!str_eq(c->req->param[i].name, STR("by")) || v.n == 0)
            continue;
        for (;;) {
            size_t comma = str_find(v, ',');

            if (ask->n_by == QUERY_BY_MAX)
                return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "by",
                                  "by has more than %d names", QUERY_BY_MAX);
            ask->by[ask->n_by++] = str_to(v, comma);
            if (comma == SIZE_MAX)
                break;
            v = str_from(v, comma + 1);
        }
    }
    return api_param_u32(c, "groups", 1, QUERY_GROUPS_MAX, &ask->groups, e);
}

/* f=... in the order given. */
static int open_filters(const struct api_call *c, struct query_ask *ask, struct query_err *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->req->n_param; i++) {
        if (!str_eq(c->req->param[i].name, STR("f")))
            continue;
        if (n < QUERY_FILTER_MAX)
            ask->filter[n] = c->req->param[i].value;
        n++;
    }
    ask->n_filter = n;
    if (n <= QUERY_FILTER_MAX)
        return 0;
    e->limit = QUERY_FILTER_MAX;
    e->actual = n;
    return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "f", "%u filters, at most %d", n,
                      QUERY_FILTER_MAX);
}

static int open_names(const struct api_call *c, struct query_ask *ask, struct query_err *e)
{
    static const char *const words[] = {"full", "short", "raw", NULL};
    uint32_t names = 0;

    TRY(api_param_word(c, "names", words, &names, e));
    if (names == 2)
        return query_fail(e, -ENOTSUP, QUERY_NOT_SUPPORTED, "names",
                          "names=raw is not supported: names are kept as their sender wrote them, "
                          "which is names=full");
    ask->short_names = names == 1;
    return 0;
}

static int open_timeout(struct api_call *c, struct query_conf *conf, struct query_err *e)
{
    static const char *const numbers[] = {"double", "string", NULL};
    const struct api_conf *ac = &c->api->conf;
    struct str s = api_param(c, "timeout");
    int64_t timeout = ac->timeout_ns;
    uint32_t as = 0;
    mono_ns end = mono_now();

    TRY(api_param_word(c, "numbers", numbers, &as, e));
    c->numbers_as_strings = as == 1;
    if (s.n && (!query_duration_parse(s, &timeout) || timeout <= 0))
        return bad_param(c, "timeout", e, "a duration such as 30s");
    if (timeout > ac->timeout_max_ns)
        return bad_param(c, "timeout", e, "longer than query.timeout_max allows");
    end.v += timeout;
    conf->deadline = c->req->deadline;
    if (conf->deadline.v == 0 || mono_ns_cmp(end, conf->deadline) < 0)
        conf->deadline = end;
    return 0;
}

/* What all questions share; fills conf. */
static int open_common(struct api_call *c, struct query_conf *conf, struct query_ask *ask,
                       struct query_err *e)
{
    const struct api_conf *ac = &c->api->conf;

    *conf = (struct query_conf){.store = ac->store,
                                .now = c->req->now,
                                .cancel = c->req->cancel,
                                .mem_max = ac->mem_max,
                                .max_range_ns = ac->max_range_ns,
                                .max_points = ac->max_points};
    TRY(open_filters(c, ask, e));
    TRY(open_names(c, ask, e));
    return open_timeout(c, conf, e);
}

int api_open(struct api_call *c, bool need_type, struct query_err *e)
{
    struct query_conf conf;
    struct query_ask ask = {.q = api_param(c, "q"),
                            .from = api_param(c, "from"),
                            .to = api_param(c, "to"),
                            .agg = api_param(c, "agg"),
                            .at = api_param(c, "at"),
                            .step = api_param(c, "step"),
                            .need_type = need_type};

    TRY(open_common(c, &conf, &ask, e));
    TRY(open_by(c, &ask, e));
    return query_open(&conf, &ask, &c->query, e);
}

int api_open_plain(struct api_call *c, struct query_err *e)
{
    struct query_conf conf;
    struct query_ask ask = {
        .q = api_param(c, "q"), .from = api_param(c, "from"), .to = api_param(c, "to")};

    TRY(open_common(c, &conf, &ask, e));
    return query_open(&conf, &ask, &c->query, e);
}

/* The name of a side's parameter: an error of query/ knows the bare one. */
static const char *side_param(const char *param, uint32_t side)
{
    static const char *const names[][3] = {{"q", "a_q", "b_q"},
                                           {"from", "a_from", "b_from"},
                                           {"to", "a_to", "b_to"},
                                           {"step", "a_step", "b_step"}};

    for (size_t i = 0; param && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(param, names[i][0]) == 0)
            return names[i][1 + side];
    }
    return param;
}

int api_open_diff(struct api_call *c, struct query_err *e)
{
    struct query_conf conf;
    struct query_ask a = {.q = api_param(c, "a_q"),
                          .from = api_param(c, "a_from"),
                          .to = api_param(c, "a_to"),
                          .agg = api_param(c, "agg"),
                          .step = api_param(c, "a_step"),
                          .need_type = true};
    struct query_ask b = {.q = api_param(c, "b_q"),
                          .from = api_param(c, "b_from"),
                          .to = api_param(c, "b_to"),
                          .agg = api_param(c, "agg"),
                          .step = api_param(c, "b_step"),
                          .need_type = true};
    uint32_t side = 0;
    int r;

    TRY(open_common(c, &conf, &a, e));
    if (!b.q.n)
        b.q = a.q;
    r = query_open_diff(&conf, &a, &b, &c->query, &side, e);
    if (r < 0)
        e->param = side_param(e->param, side);
    return r;
}

/* ---- replies -----------------------------------------------------------------------------------
 */

static void fail(struct api_call *c, const struct query_err *e)
{
    struct msg_error m = {.status = query_code_status(e->code),
                          .code = query_code_word(e->code),
                          .message = e->msg,
                          .param = e->param,
                          .setting = e->setting,
                          .limit = e->limit,
                          .actual = e->actual};

    msg_fail(c->reply, c->req, &m);
}

static int param_cmp(const void *va, const void *vb)
{
    const struct msg_param *a = *(const struct msg_param *const *)va;
    const struct msg_param *b = *(const struct msg_param *const *)vb;
    int r = str_cmp(a->name, b->name);

    return r ? r : str_cmp(a->value, b->value);
}

/* Route, version and parameters in an order that does not matter, and the data that were read. */
static uint64_t etag(struct api_call *c, uint64_t data)
{
    const struct msg_param **p = arena_calloc(&c->arena, c->req->n_param, sizeof(void *));
    uint64_t h = hash_str(str_c(c->api->conf.version));

    h = hash_mix(h ^ hash_str(c->req->path));
    h = hash_mix(h ^ hash_str(c->req->accept));
    for (uint32_t i = 0; p && i < c->req->n_param; i++)
        p[i] = &c->req->param[i];
    if (p && c->req->n_param > 1)
        qsort(p, c->req->n_param, sizeof(void *), param_cmp);
    for (uint32_t i = 0; p && i < c->req->n_param; i++) {
        h = hash_mix(h ^ hash_str(p[i]->name));
        h = hash_mix(h ^ hash_str(p[i]->value));
    }
    return hash_mix(h ^ data);
}

static bool etag_known(struct str if_none_match, uint64_t tag)
{
    char text[20];

    (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)tag);
    for (size_t i = 0; i + 16 <= if_none_match.n; i++) {
        if (memcmp(if_none_match.p + i, text, 16) == 0)
            return true;
    }
    return false;
}

/*
 * A range that moves with the clock must not be kept. One that does not is asked again with its
 * ETag, until data so old are no longer taken: from then on it cannot change.
 */
static void set_cache(struct api_call *c)
{
    const struct query_head *h = c->query ? query_head(c->query) : NULL;
    struct msg_reply *r = c->reply;

    r->cache = MSG_NO_STORE;
    if (!h || h->relative || h->etag == 0)
        return;
    r->cache = h->until.v < c->req->now.v - c->api->conf.age_ns ? MSG_DAY : MSG_NO_CACHE;
    r->has_etag = true;
    r->etag = etag(c, h->etag);
    if (etag_known(c->req->if_none_match, r->etag)) {
        r->status = 304;
        buf_deinit(&r->body);
        buf_init(&r->body, 0);
    }
}

static void too_large(struct api_call *c)
{
    struct msg_error m = {.status = 422,
                          .code = "query_too_expensive",
                          .message = "the answer is too large: ask for fewer nodes or rows",
                          .setting = "query.answer",
                          .limit = c->reply->body.cap,
                          .actual = c->reply->body.cap + 1};

    msg_fail(c->reply, c->req, &m);
}

static void answer(struct api_call *c)
{
    bool export = c->route->fn == api_export;
    struct query_err e = {};
    int r;

    c->reply->status = 200;
    c->reply->content_type = "application/json";
    buf_init(&c->reply->body, export ? c->api->conf.export_max : c->api->conf.answer_max);
    arena_init(&c->arena, c->api->conf.mem_max);
    json_init(&c->json, &c->reply->body);
    r = c->route->fn(c, &e);
    if (r < 0)
        fail(c, &e);
    else if (c->reply->body.failed)
        too_large(c);
    else
        set_cache(c);
    c->query = query_free(c->query);
    arena_deinit(&c->arena);
}

static bool admit(struct api_call *c)
{
    uint32_t max = c->api->conf.running_max;

    if (atomic_fetch_add(&c->api->running, 1) < max || max == 0)
        return true;
    atomic_fetch_sub(&c->api->running, 1);
    msg_fail(c->reply, c->req,
             &(struct msg_error){.status = 503,
                                 .code = "busy",
                                 .message = "too many queries are running",
                                 .setting = "query.running",
                                 .limit = max,
                                 .actual = max + 1,
                                 .retry_after_s = 1});
    return false;
}

void api_handle(struct api *a, const struct msg_request *q, struct msg_reply *reply)
{
    struct api_call c = {.api = a, .req = q, .reply = reply};
    struct str path = q->path;

    if (str_starts(path, PREFIX))
        path = str_from(path, PREFIX.n);
    for (size_t i = 0; i < N_ROUTES && !c.route; i++) {
        if (route_takes(&routes[i], path, &c.path_name))
            c.route = &routes[i];
    }
    if (!c.route) {
        msg_fail(reply, q,
                 &(struct msg_error){
                     .status = 404, .code = "unknown_route", .message = "there is no such route"});
        return;
    }
    if (!str_eq(q->method, STR("GET")) && !str_eq(q->method, STR("HEAD")) &&
        !str_eq(q->method, STR("POST"))) {
        msg_fail(reply, q,
                 &(struct msg_error){.status = 405,
                                     .code = "bad_method",
                                     .message = "this route takes GET and POST"});
        reply->allow = "GET, HEAD, POST";
        return;
    }
    if (!check_params(&c) || !admit(&c))
        return;
    answer(&c);
    atomic_fetch_sub(&a->running, 1);
}

/* ---- life --------------------------------------------------------------------------------------
 */

struct api *api_new(const struct api_conf *conf)
{
    struct api *a = xcalloc(1, sizeof *a);
    struct api_conf *k = &a->conf;

    *k = *conf;
    k->version = k->version ? k->version : "";
    k->ui_hash = k->ui_hash ? k->ui_hash : "";
    k->age_ns = k->age_ns ? k->age_ns : INT64_C(7) * 86400 * NS_PER_S;
    k->timeout_ns = k->timeout_ns ? k->timeout_ns : 30 * NS_PER_S;
    k->timeout_max_ns = k->timeout_max_ns ? k->timeout_max_ns : 120 * NS_PER_S;
    k->mem_max = k->mem_max ? k->mem_max : UINT64_C(256) << 20;
    k->answer_max = k->answer_max ? k->answer_max : UINT64_C(64) << 20;
    k->export_max = k->export_max ? k->export_max : UINT64_C(256) << 20;
    k->max_range_ns = k->max_range_ns ? k->max_range_ns : INT64_C(400) * 86400 * NS_PER_S;
    k->max_points = k->max_points ? k->max_points : 11000;
    k->max_nodes = k->max_nodes ? k->max_nodes : 1048576;
    return a;
}

struct api *api_free(struct api *a)
{
    if (a) {
        assert(atomic_load(&a->running) == 0);
        free(a);
    }
    return NULL;
}

uint32_t api_running(const struct api *a)
{
    return atomic_load(&a->running);
}
