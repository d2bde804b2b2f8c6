// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/json_out.h"
#include "base/map.h"
#include "query/query.h"
#include "server/api.h"
#include "server/msg.h"

/* What the files of the JSON API share. */

struct api {
    struct api_conf conf;
    atomic_uint running;
};

/* One request on its way through. Lives on the stack of api_handle(). */
struct api_call {
    struct api *api;
    const struct msg_request *req;
    struct msg_reply *reply;
    const struct api_route *route;
    struct str path_name; /* of /labels/{name}/values */
    struct arena arena;   /* small things of the answer: tables of strings */
    struct query *query;
    struct json_out json;
    bool numbers_as_strings;
    int64_t timeout_ns;
};

/* Handlers return 0 with the body written, or a negative errno with *e filled. */
typedef int api_fn(struct api_call *c, struct query_err *e);

struct api_route {
    const char *path; /* below /api/v1; {name} stands for anything */
    api_fn *fn;
    const char *const *param; /* NULL-terminated */
};

/* ---- parameters --------------------------------------------------------------------------------
 */

/* The value of a parameter; {NULL, 0} where it is absent or empty. */
struct str api_param(const struct api_call *c, const char *name);
/* A whole number in [min, max]; absent: as it is. */
[[nodiscard]] int api_param_u32(const struct api_call *c, const char *name, uint32_t min,
                                uint32_t max, uint32_t *v, struct query_err *e);
/* 0 or 1; absent: as it is. */
[[nodiscard]] int api_param_flag(const struct api_call *c, const char *name, bool *v,
                                 struct query_err *e);
/* The position of the value in words (NULL-terminated); absent: as it is. */
[[nodiscard]] int api_param_word(const struct api_call *c, const char *name,
                                 const char *const *words, uint32_t *v, struct query_err *e);

/* Opens c->query from q, from, to, agg, at, step, by, groups, f, names. */
[[nodiscard]] int api_open(struct api_call *c, bool need_type, struct query_err *e);
/* The same from q, from, to: by and agg are then the route's own. */
[[nodiscard]] int api_open_plain(struct api_call *c, struct query_err *e);

/* The same from a_q, b_q and so on, for a difference. */
[[nodiscard]] int api_open_diff(struct api_call *c, struct query_err *e);
/* width, max_nodes, root with their limits. */
[[nodiscard]] int api_tree_size(struct api_call *c, uint32_t *width, uint32_t *max_nodes,
                                struct query_err *e);
[[nodiscard]] int api_root(struct api_call *c, uint64_t *root, struct query_err *e);

/* points or bucket; neither: 600 points. */
[[nodiscard]] int api_bucket_ask(const struct api_call *c, struct query_series_ask *ask,
                                 struct query_err *e);

/* The parameters of a flame graph, for /flamegraph and /export. */
[[nodiscard]] int api_flame_ask(struct api_call *c, struct query_flame_ask *ask,
                                struct query_err *e);

/* ---- parts of answers --------------------------------------------------------------------------
 */

/* Numbers each text once; 0 is "". Texts are borrowed. */
struct api_strings {
    struct arena *arena;
    uint32_t n, room;
    struct str *v;
    struct map index;
    bool failed;
};
void api_strings_init(struct api_strings *s, struct arena *a);
void api_strings_deinit(struct api_strings *s);
uint32_t api_string(struct api_strings *s, struct str text);

void api_put_type(struct json_out *j, const struct query_type *t);
void api_put_weight(struct json_out *j, unit_i128 v); /* "decimal string", null if unknown */
void api_put_count(struct json_out *j, uint64_t v);   /* likewise */
void api_put_instant(struct json_out *j, real_ns t);  /* "decimal string" */
void api_put_number(struct api_call *c, unit_i128 v); /* of a column */
void api_put_samples(struct api_call *c, uint64_t v); /* of a column */
void api_put_ns(struct json_out *j, const char *key, int64_t ns);
/* columns */
void api_put_weights(struct api_call *c, const char *key, const unit_i128 *v, uint32_t n);
void api_put_counts(struct api_call *c, const char *key, const uint64_t *v, uint32_t n);

void api_put_text(struct json_out *j, const char *key, struct str s);
/* "labels":{...} */
void api_put_labels(struct json_out *j, const struct query_labels *l);
/* "target":"16 hex digits", or null */
void api_put_owner(struct json_out *j, const struct query_owner *o);
/* "lost":[{why,n,weight}] */
void api_put_lost(struct json_out *j, const struct query_loss *l, uint32_t n);

/* v, kind, type, agg, range, step */
void api_put_head(struct api_call *c, const char *kind);
/* v, kind, type, agg */
void api_put_kind(struct api_call *c, const char *kind);
void api_put_range(struct json_out *j, const struct query_head *h);
/* Columns of a tree: depth func self total samples hidden; and the hashes */
void api_put_nodes(struct api_call *c, const struct query_flame *f, bool hashes);
void api_put_trim(struct json_out *j, const struct query_flame *f);
void api_put_indices(struct json_out *j, const char *key, const uint32_t *v, uint32_t n);
void api_put_hash(struct json_out *j, uint64_t hash); /* 0 is "0" */
/* view: root, asked, found, path */
void api_put_path(struct json_out *j, uint64_t root, uint64_t asked, bool found,
                  const struct query_step *path, uint32_t n);
/* total, samples, se, unfiltered, filtered, coverage, quality, empty */
void api_put_sums(struct api_call *c, const struct query_sums *s);
/* strings, raw, func: those of fn[0..n) that shown says (NULL: all), in this order */
[[nodiscard]] int api_put_funcs(struct api_call *c, const struct query_func *fn, uint32_t n,
                                struct query_err *e);

/* Plain text: one line per fact, the same words as on screen. */
void api_text_head(struct buf *b, const struct query_head *h, const struct query_sums *s);
void api_text_weight(struct buf *b, unit_i128 v, const struct query_type *t);
/* v of total in percent with one decimal; nothing where there is no total */
void api_text_share(struct buf *b, unit_i128 v, unit_i128 total);
/* Bytes as text: repaired UTF-8, control characters as \xHH. */
void api_text_name(struct buf *b, struct str s);

/* ---- handlers ----------------------------------------------------------------------------------
 */

api_fn api_flamegraph, api_top, api_timeseries, api_export, api_sandwich, api_diff;
api_fn api_types, api_labels, api_label_values, api_targets, api_status;
api_fn api_openapi;
api_fn api_sets, api_steps, api_events, api_coverage, api_metrics, api_metrics_query;

/* The JSON tree and the plain report, also for exports. */
[[nodiscard]] int api_write_tree(struct api_call *c, const struct query_flame *f,
                                 struct query_err *e);
[[nodiscard]] int api_write_report(struct api_call *c, struct query_err *e);

/* A whole tree as a file of another tool. lost: weight of a frame [lost] below the root, or 0. */
[[nodiscard]] int api_write_pprof(struct api_call *c, const struct query_flame *f, unit_i128 lost,
                                  struct query_err *e);
[[nodiscard]] int api_write_speedscope(struct api_call *c, const struct query_flame *f,
                                       unit_i128 lost, struct query_err *e);
/* A picture API_SVG_WIDTH wide. by_binary: colours, else by origin. */
#define API_SVG_WIDTH 1200
[[nodiscard]] int api_write_svg(struct api_call *c, const struct query_flame *f, unit_i128 lost,
                                bool by_binary, struct query_err *e);
