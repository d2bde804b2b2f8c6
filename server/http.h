// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/time.h"
#include "server/auth.h"
#include "server/msg.h"

/*
 * HTTP/1.1 on one listening socket: a few epoll threads serve all connections, and no request waits
 * in one of them. Queries run in a bounded pool of workers and batches until they are durable; both
 * have their connection suspended meanwhile.
 *
 * http.c is the only way in: it applies what protects the process (sizes, times, counts of
 * connections, Host, Origin, tokens, methods) in the order of growing cost, and hands what is left,
 * whole, to the route's handler as a struct msg_request.
 */
struct http;
struct pool;
struct work;

enum http_body {
    HTTP_NO_BODY = 0,
    HTTP_FORM,   /* application/x-www-form-urlencoded: appended to the parameters */
    HTTP_INGEST, /* collected into memory of the ingest pool */
};

enum http_run {
    HTTP_INLINE = 0, /* in the event thread: answers from memory only */
    HTTP_WORKER,     /* in a query worker; 503 busy when all are taken and the queue is full */
    HTTP_ASYNC, /* start() in the event thread, which later calls done(), once, from anywhere */
};

typedef void http_handle_fn(void *ctx, const struct msg_request *q, struct msg_reply *r);
typedef void http_done_fn(void *done_ctx);

struct http_route {
    const char *path;  /* exact; with a '*' at its end a prefix */
    const char *param; /* names of its parameters, for --dump-routes; NULL: none, or its own list */
    const char *allow; /* methods as in the Allow header; GET brings HEAD */
    enum auth_role role;
    enum http_body body;
    enum http_run run;
    bool page;        /* static files: the content security policy of the user interface */
    bool shares_path; /* other methods go to the next route that takes the path */
    bool needs_store; /* 503 starting until http_ready() */
    bool spare;       /* served beyond the limits of connections too: "is it alive?" */
    http_handle_fn *handle;
    void (*start)(void *ctx, const struct msg_request *q, struct msg_reply *r, http_done_fn *done,
                  void *done_ctx); /* q and r are borrowed until done */
    /* Refuse by headers alone, before the body is read: false, and the reply is filled. May be
     * NULL. */
    bool (*admit)(void *ctx, const struct msg_request *q, struct msg_reply *r);
    /* How this route words a refusal of http.c; NULL: msg_fail. */
    void (*fail)(void *ctx, struct msg_reply *r, const struct msg_request *q,
                 const struct msg_error *e);
};

/* All pointers are borrowed until http_stop(). */
struct http_conf {
    int listen_fd;
    uint32_t threads; /* of the event loop, at least: one for each 104 connections is needed */
    const struct http_route *route;
    uint32_t n_route;
    void *ctx; /* of every route's functions */
    const struct auth *auth;
    struct pool *ingest; /* memory of bodies */
    struct work *work;   /* for HTTP_WORKER */
    const char *base_path, *hosts, *ui_hash;
    bool base_only;                                   /* what is not below base_path is not there */
    uint64_t header_max, uri_max, body_max, form_max; /* bytes */
    /* per_address 0: no limit of its own. Beyond them 16 connections more, of a second each, are
     * taken for routes that are spare, and answered 503 on others */
    uint64_t connections, per_address;
    int64_t idle_ns, request_time_ns, deadline_ns; /* the last: of a worker's request */
    uint64_t min_rate;                             /* bytes per second */
};

/* Serve. errors: the event loop could not be started. */
[[nodiscard]] int http_start(const struct http_conf *conf, struct http **ret, struct err *err);

/* From now on routes that need the store are served. Any thread. */
void http_ready(struct http *h);
bool http_is_ready(const struct http *h);

/* Other tokens from now on; the old ones are borrowed until http_stop() all the same. Any thread.
 */
void http_set_auth(struct http *h, const struct auth *auth);

/*
 * Stop accepting, cancel running queries, let what was received whole be answered (at most
 * wait_ns), close all connections, free. NULL is a no-op. Returns NULL; h, with nothing freed, if
 * requests are still at work after wait_ns: then the process can only be ended. Owner only.
 */
struct http *http_stop(struct http *h, int64_t wait_ns);

/* ---- for /metrics -------------------------------------------------------------------------- */

#define HTTP_BUCKETS 12
extern const double http_bucket_s[HTTP_BUCKETS]; /* upper bounds, rising; one more is infinite */

struct http_route_stats {
    uint64_t
        bucket[HTTP_BUCKETS + 1]; /* requests by time from first byte to last, not cumulative */
    uint64_t n;
    int64_t sum_ns;
};

#define HTTP_REFUSALS(X)                                                                           \
    X(headers_too_large)                                                                           \
    X(uri_too_long)                                                                                \
    X(bad_uri)                                                                                     \
    X(bad_host)                                                                                    \
    X(bad_length)                                                                                  \
    X(bad_origin)                                                                                  \
    X(unauthorized)                                                                                \
    X(forbidden)                                                                                   \
    X(not_found)                                                                                   \
    X(method_not_allowed)                                                                          \
    X(unsupported_media_type)                                                                      \
    X(unsupported_coding)                                                                          \
    X(unexpected_body)                                                                             \
    X(body_too_large)                                                                              \
    X(overloaded)                                                                                  \
    X(starting)                                                                                    \
    X(stopping)                                                                                    \
    X(busy)                                                                                        \
    X(too_many_connections)                                                                        \
    X(too_slow)

struct http_stats {
    uint64_t connections, requests;
#define X(name) uint64_t name;
    HTTP_REFUSALS(X)
#undef X
};

/* Snapshots. Any thread. */
void http_stats(struct http *h, struct http_stats *ret);
void http_route_stats(struct http *h, uint32_t route, struct http_route_stats *ret);
