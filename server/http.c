// SPDX-License-Identifier: Apache-2.0
/*
 * A request's way, in the order of growing cost: connection counted (http_conn.c), sizes of URI and
 * headers, Host, Origin, token, route, method, state of the server, declared length, memory, body.
 * Whatever refuses it fills r->r; the rest of its body is then read and thrown away, for a bounded
 * time and length, since closing a socket with unread bytes resets it and destroys the answer on
 * its way.
 *
 * A request that waits (for the disk, or for a query worker) is suspended *before* it is handed
 * over: its end may come before the hand-over returns.
 */
#include "server/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "server/http_private.h"
#include "server/pool.h"

/*
 * libmicrohttpd asks epoll for 128 events. Where it gets as many it asks again, without a time
 * limit, before it serves the first of them: a thread whose connections are all busy then stops
 * until one more event comes, for ever if all its peers wait for their answers. So no thread may
 * have that many descriptors, of connections, the listening socket and its own wake-up.
 */
enum {
    WORKER_CONNECTIONS = 104,
    WORKER_SPARE = 16, /* taken only to be refused */
};
_Static_assert(WORKER_CONNECTIONS + WORKER_SPARE + 1 + 2 < 128, "fewer than the library's events");
_Static_assert(WORKER_SPARE >= (int)HTTP_SPARE, "one thread may get them all");

enum {
    CHARGE_STEP = 64 << 10, /* of the ingest pool, for bodies of unknown length */
    POOL_EXTRA = 16 << 10,  /* what the library needs of a connection's memory beside its headers */
};

const double http_bucket_s[HTTP_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                            0.1,   0.25,   0.5,   1,    5,     30};

/* ---- refusals ------------------------------------------------------------------------------ */

static void refuse(struct http_req *r, _Atomic uint64_t *count, const struct msg_error *e)
{
    atomic_fetch_add(count, 1);
    if (r->route && r->route->fail)
        r->route->fail(r->h->conf.ctx, &r->r, &r->q, e);
    else
        msg_fail(&r->r, &r->q, e);
    if (r->route && e->status == 405)
        r->r.allow = r->route->allow;
}

/* One line each: the counter has the name of the code. */
#define REFUSE(r, http_status, word, ...)                                                          \
    refuse((r), &(r)->h->refused.word,                                                             \
           &(struct msg_error){.status = (http_status), .code = #word, __VA_ARGS__})

struct header_sum {
    uint64_t bytes;
    uint32_t hosts, lengths, chunked;
};

static enum MHD_Result header_add(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_n,
                                  const char *value, size_t value_n)
{
    struct header_sum *s = cls;

    (void)kind, (void)value;
    s->hosts += http_str_eq((struct str){key, key_n}, STR("host"));
    s->lengths += http_str_eq((struct str){key, key_n}, STR("content-length"));
    s->chunked += http_str_eq((struct str){key, key_n}, STR("transfer-encoding"));
    s->bytes += key_n + value_n + 4; /* ": " and the line's end */
    return MHD_YES;
}

static struct str header(const struct http_req *r, const char *name)
{
    const char *p = NULL;
    size_t n = 0;

    if (MHD_lookup_connection_value_n(r->mhd, MHD_HEADER_KIND, name, strlen(name), &p, &n) !=
        MHD_YES)
        return (struct str){NULL, 0};
    return (struct str){p, n};
}

static bool sizes_ok(struct http_req *r)
{
    const struct http_conf *c = &r->h->conf;
    struct header_sum sum = {.bytes = r->uri.n};

    (void)MHD_get_connection_values_n(r->mhd, MHD_HEADER_KIND, header_add, &sum);
    if (r->uri.n > c->uri_max) {
        REFUSE(r, 414, uri_too_long, .message = "the address is longer than its limit",
               .setting = "ingest.uri", .limit = c->uri_max, .actual = r->uri.n);
        return false;
    }
    if (sum.bytes > c->header_max) {
        REFUSE(r, 431, headers_too_large, .message = "the headers are larger than their limit",
               .setting = "ingest.header", .limit = c->header_max, .actual = sum.bytes);
        return false;
    }
    r->hosts = sum.hosts;
    /* Where two readers of one connection may see different ends of a body, the second request of
     * one is the body of the other: RFC 9112, 6.3 and 11.2. */
    if (sum.lengths + sum.chunked > 1) {
        r->close = true;
        REFUSE(r, 400, bad_length, .message = "the length of the body is said more than once",
               .param = sum.lengths ? "Content-Length" : "Transfer-Encoding");
        return false;
    }
    return true;
}

/* Path and parameters, decoded with their lengths: "%00" is a byte like any other. */
static bool uri_ok(struct http_req *r)
{
    struct str base = str_c(r->h->conf.base_path), path = r->uri, query = {NULL, 0};
    size_t at = str_find(path, '?');
    enum http_params p;

    if (at != SIZE_MAX) {
        query = str_from(path, at + 1);
        path = str_to(path, at);
    }
    if (base.n && str_starts(path, base) && path.n > base.n && path.p[base.n] == '/') {
        path = str_from(path, base.n);
    } else if (base.n && r->h->conf.base_only) {
        REFUSE(r, 404, not_found, .message = "there is no such address here");
        return false;
    }
    if (!http_unescape(&r->arena, path, false, &r->q.path)) {
        REFUSE(r, 400, bad_uri, .message = "the path holds a '%' without two hex digits");
        return false;
    }
    r->q.param = r->param;
    p = http_params_parse(&r->arena, query, r->param, &r->q.n_param);
    if (p == HTTP_PARAMS_OK)
        return true;
    REFUSE(r, 400, bad_uri,
           .message = p == HTTP_PARAMS_MANY
                          ? "more than 128 parameters"
                          : "the query string holds a '%' without two hex digits");
    return false;
}

/* DNS rebinding: a foreign name that resolves to us must not make a browser our client. */
static bool host_ok(struct http_req *r)
{
    struct str host = header(r, MHD_HTTP_HEADER_HOST), name = http_host_name(host);
    struct str own = str_c(r->h->conf.hosts);
    bool tokens = auth_required(atomic_load(&r->h->auth));

    if (r->hosts > 1 || (host.n && !http_host_valid(host))) {
        REFUSE(r, 400, bad_host, .message = "the Host header is not one name with a port or none",
               .param = "Host");
        return false;
    }
    if (!host.n || (tokens && !own.n) || http_word_in(name, own))
        return true;
    if (!tokens && http_word_in(name, STR("localhost 127.0.0.1 [::1]")))
        return true;
    REFUSE(r, 421, bad_host, .message = "the Host header names another server", .param = "Host");
    r->r.status = 421;
    return false;
}

/* A page of another site must not make a browser change anything here. */
static bool origin_ok(struct http_req *r)
{
    struct str origin = header(r, "Origin"), site = header(r, "Sec-Fetch-Site");
    struct str host = header(r, MHD_HTTP_HEADER_HOST);
    size_t at;

    if (!str_eq(r->q.method, STR("POST")))
        return true;
    if (site.n && !str_eq(site, STR("same-origin")) && !str_eq(site, STR("none")))
        goto refused;
    at = str_find(origin, '/');
    if (!origin.n || (at != SIZE_MAX && str_eq(str_from(origin, at + 2), host)))
        return true;
refused:
    REFUSE(r, 403, bad_origin, .message = "the request comes from a page of another site",
           .param = "Origin");
    return false;
}

/* ---- routes -------------------------------------------------------------------------------- */

static bool method_allowed(const char *allow, struct str method)
{
    struct str rest = str_c(allow);

    while (rest.n) {
        size_t at = str_find(rest, ',');

        if (str_eq(str_to(rest, at), method))
            return true;
        rest = at == SIZE_MAX ? (struct str){NULL, 0} : str_from(rest, at + 2);
    }
    return false;
}

static const struct http_route *route_find(const struct http *h, struct str path, struct str method)
{
    const struct http_route *best = NULL;
    size_t best_n = 0;

    for (uint32_t i = 0; i < h->conf.n_route; i++) {
        struct str p = str_c(h->conf.route[i].path);

        if (h->conf.route[i].shares_path && !method_allowed(h->conf.route[i].allow, method))
            continue;
        if (p.n && p.p[p.n - 1] == '*') {
            p.n--;
            if (str_starts(path, p) && (!best || p.n >= best_n)) {
                best = &h->conf.route[i];
                best_n = p.n;
            }
        } else if (str_eq(path, p)) {
            return &h->conf.route[i];
        }
    }
    return best;
}

static bool access_ok(struct http_req *r)
{
    switch (auth_check(atomic_load(&r->h->auth), header(r, MHD_HTTP_HEADER_AUTHORIZATION),
                       r->route ? r->route->role : AUTH_NONE)) {
    case AUTH_OK:
        return true;
    case AUTH_UNKNOWN:
        REFUSE(r, 401, unauthorized, .message = "this needs a token", .param = "Authorization");
        return false;
    case AUTH_DENIED:
        REFUSE(r, 403, forbidden, .message = "this token does not have the role for it",
               .param = "Authorization");
        return false;
    }
    return false;
}

static bool spare_ok(struct http_req *r)
{
    if (!r->conn->spare)
        return true;
    r->close = true;
    if (r->route && r->route->spare)
        return true;
    REFUSE(r, 503, too_many_connections, .message = "there are more connections than may be",
           .setting =
               r->h->conf.per_address ? "ingest.connections_per_address" : "ingest.connections",
           .limit = r->h->conf.per_address ? r->h->conf.per_address : r->h->conf.connections,
           .retry_after_s = 5);
    return false;
}

static bool refuse_stopping(struct http_req *r)
{
    REFUSE(r, 503, stopping, .message = "the server is stopping", .retry_after_s = 5);
    return false;
}

static bool route_ok(struct http_req *r)
{
    if (!r->route) {
        REFUSE(r, 404, not_found, .message = "there is no such address here");
        return false;
    }
    if (!method_allowed(r->route->allow, r->head ? STR("GET") : r->q.method)) {
        REFUSE(r, 405, method_not_allowed, .message = "this address takes other methods");
        return false;
    }
    if (atomic_load(&r->h->stopping))
        return refuse_stopping(r);
    if (r->route->needs_store && !atomic_load(&r->h->ready)) {
        REFUSE(r, 503, starting, .message = "the server is reading its journal",
               .retry_after_s = 1);
        return false;
    }
    return true;
}

/* ---- the body ------------------------------------------------------------------------------ */

/* What headers say about the body; false: they do not. */
static bool declared_length(const struct http_req *r, uint64_t *ret)
{
    return str_u64(header(r, MHD_HTTP_HEADER_CONTENT_LENGTH), ret);
}

static bool has_body(const struct http_req *r)
{
    uint64_t n = 0;

    if (declared_length(r, &n))
        return n > 0;
    return header(r, MHD_HTTP_HEADER_TRANSFER_ENCODING).n > 0;
}

static void too_large(struct http_req *r, uint64_t actual)
{
    bool form = r->route->body == HTTP_FORM;

    REFUSE(r, 413, body_too_large, .message = "the body is larger than its limit",
           .setting = form ? "query.form" : "ingest.body", .limit = r->body_max, .actual = actual);
}

static bool charge(struct http_req *r, uint64_t bytes)
{
    if (r->route->body != HTTP_INGEST || bytes <= r->charged)
        return true;
    if (!pool_take(r->h->conf.ingest, bytes - r->charged)) {
        REFUSE(r, 503, overloaded, .message = "no memory for this body beside those in work",
               .setting = "ingest.memory", .limit = r->h->conf.ingest->max,
               .actual = pool_used(r->h->conf.ingest) + bytes - r->charged, .retry_after_s = 1);
        return false;
    }
    r->charged = bytes;
    return true;
}

static void body_free(struct http_req *r)
{
    buf_deinit(&r->body);
    if (r->charged)
        pool_give(r->h->conf.ingest, r->charged);
    r->charged = 0;
}

static bool body_ok(struct http_req *r)
{
    const struct http_conf *c = &r->h->conf;
    struct str type = http_media_type(r->q.content_type);
    bool post = str_eq(r->q.method, STR("POST"));
    uint64_t n = 0;

    r->body_max = !post ? 0 : r->route->body == HTTP_FORM ? c->form_max : c->body_max;
    buf_init(&r->body, r->body_max);
    if (!post && has_body(r)) {
        REFUSE(r, 400, unexpected_body, .message = "this request has no body");
        return false;
    }
    if (post && r->route->body == HTTP_FORM && has_body(r) &&
        !http_str_eq(type, STR("application/x-www-form-urlencoded"))) {
        REFUSE(r, 415, unsupported_media_type,
               .message = "the body must be application/x-www-form-urlencoded",
               .param = "Content-Type");
        return false;
    }
    if (post && r->route->body == HTTP_FORM && r->q.content_encoding.n &&
        !http_str_eq(http_media_type(r->q.content_encoding), STR("identity"))) {
        REFUSE(r, 415, unsupported_coding, .message = "a form may not be compressed",
               .param = "Content-Encoding");
        return false;
    }
    if (r->route->admit && !r->route->admit(c->ctx, &r->q, &r->r))
        return false;
    if (declared_length(r, &n)) {
        if (n > r->body_max) {
            too_large(r, n);
            return false;
        }
        if (!charge(r, n))
            return false;
        if (n && !buf_reserve(&r->body, n)) {
            REFUSE(r, 503, overloaded, .message = "memory is short", .retry_after_s = 5);
            return false;
        }
    }
    return true;
}

/* ---- a request ----------------------------------------------------------------------------- */

static void req_free(struct http_req *r)
{
    assert(r->magic == HTTP_REQ_MAGIC && r->state != HTTP_REQ_RUNNING);
    if (r->conn)
        http_conn_set(r->h, r->conn, HTTP_CONN_IDLE, NULL, 0);
    body_free(r);
    msg_reply_deinit(&r->r);
    arena_deinit(&r->arena);
    r->magic = 0;
    free(r);
}

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct http *h = cls;
    struct http_req *r = xcalloc(1, sizeof *r);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    r->magic = HTTP_REQ_MAGIC;
    r->h = h;
    r->mhd = mhd;
    r->conn = info ? info->socket_context : NULL;
    r->start = mono_now();
    r->q.id = hash_mix(atomic_fetch_add(&h->next_id, 1));
    r->q.cancel = &r->cancel;
    /* path, query and form are each copied once, decoding only shortens */
    arena_init(&r->arena, 4 * (h->conf.uri_max + h->conf.form_max) + 32768);
    r->uri = arena_str(&r->arena, str_c(uri));
    if (!r->uri.p)
        r->uri.n = h->conf.uri_max + strlen(uri);
    if (r->conn)
        http_conn_set(h, r->conn, HTTP_CONN_RECEIVING, r, strlen(uri));
    atomic_fetch_add(&h->requests, 1);
    return r;
}

static enum MHD_Result refused(struct http_req *r)
{
    body_free(r);
    r->state = HTTP_REQ_REFUSED;
    /* who waits for 100 Continue sends nothing until it is answered */
    if (has_body(r) && !header(r, MHD_HTTP_HEADER_EXPECT).n) {
        http_conn_set(r->h, r->conn, HTTP_CONN_DISCARDING, r, 0);
        return MHD_YES;
    }
    return http_reply_queue(r) ? MHD_YES : MHD_NO;
}

static enum MHD_Result req_begin(struct http_req *r, const char *method)
{
    r->head = strcmp(method, "HEAD") == 0;
    r->q.method = r->head ? STR("GET") : str_c(method);
    r->q.now = real_now();
    r->q.content_type = header(r, MHD_HTTP_HEADER_CONTENT_TYPE);
    r->q.content_encoding = header(r, MHD_HTTP_HEADER_CONTENT_ENCODING);
    r->q.accept = header(r, MHD_HTTP_HEADER_ACCEPT);
    r->q.accept_encoding = header(r, MHD_HTTP_HEADER_ACCEPT_ENCODING);
    r->q.if_none_match = header(r, MHD_HTTP_HEADER_IF_NONE_MATCH);
    r->q.batch_id = header(r, "Strata-Batch-Id");

    if (!sizes_ok(r) || !uri_ok(r))
        return refused(r);
    r->route = route_find(r->h, r->q.path, r->q.method);
    if (!host_ok(r) || !spare_ok(r) || !origin_ok(r) || !access_ok(r) || !route_ok(r) ||
        !body_ok(r))
        return refused(r);
    r->state = HTTP_REQ_BODY;
    return MHD_YES;
}

static enum MHD_Result req_discard(struct http_req *r, size_t n)
{
    uint64_t max = r->body_max > (64 << 10) ? r->body_max : 64 << 10;

    r->discarded += n;
    if (r->discarded <= HTTP_DISCARD_FACTOR * max &&
        mono_now().v - r->conn->since.v <= HTTP_DISCARD_NS)
        return MHD_YES;
    mutex_lock(&r->h->mu); /* beside the sweeper, which may be about to say the same */
    http_reply_raw(r);
    r->conn->state = HTTP_CONN_RECEIVING;
    mutex_unlock(&r->h->mu);
    return MHD_NO;
}

static enum MHD_Result req_receive(struct http_req *r, const char *p, size_t n)
{
    uint64_t want = (r->body.n + n + CHARGE_STEP - 1) / CHARGE_STEP * CHARGE_STEP;

    http_conn_received(r->h, r->conn, n);
    if (r->body.n + n > r->body_max)
        too_large(r, r->body.n + n);
    else if (r->body.n + n <= r->charged || charge(r, want)) {
        buf_add(&r->body, p, n);
        if (!r->body.failed)
            return MHD_YES;
        REFUSE(r, 503, overloaded, .message = "memory is short", .retry_after_s = 5);
    }
    body_free(r);
    r->state = HTTP_REQ_REFUSED;
    http_conn_set(r->h, r->conn, HTTP_CONN_DISCARDING, r, 0);
    return MHD_YES;
}

/* The handler is done: back to the event loop. Any thread. r may be gone after it. */
static void req_finished(void *ctx)
{
    struct http_req *r = ctx;

    assert(r->magic == HTTP_REQ_MAGIC && r->state == HTTP_REQ_RUNNING);
    body_free(r);
    r->state = HTTP_REQ_FINISHED;
    MHD_resume_connection(r->mhd);
}

static void req_work(struct work_job *job)
{
    struct http_req *r = (struct http_req *)(void *)((char *)job - offsetof(struct http_req, job));

    r->route->handle(r->h->conf.ctx, &r->q, &r->r);
    http_reply_pack(r);
    req_finished(r);
}

static bool form_ok(struct http_req *r)
{
    struct str body = buf_view(&r->body);
    enum http_params p = http_params_parse(&r->arena, body, r->param, &r->q.n_param);

    if (p == HTTP_PARAMS_OK)
        return true;
    REFUSE(r, 400, bad_uri,
           .message = p == HTTP_PARAMS_MANY ? "more than 128 parameters"
                                            : "the form holds a '%' without two hex digits");
    return false;
}

/* The request is here as a whole. */
static enum MHD_Result req_run(struct http_req *r)
{
    struct http *h = r->h;

    r->ready = mono_now();
    r->q.body = buf_view(&r->body);
    if (r->route->body == HTTP_FORM && !form_ok(r))
        return http_reply_queue(r) ? MHD_YES : MHD_NO;
    switch (r->route->run) {
    case HTTP_INLINE:
        r->route->handle(h->conf.ctx, &r->q, &r->r);
        http_reply_pack(r);
        body_free(r);
        return http_reply_queue(r) ? MHD_YES : MHD_NO;
    case HTTP_WORKER:
        if (!http_conn_hand_on(h, r->conn, HTTP_CONN_QUERY, r))
            break;
        r->q.deadline.v = r->ready.v + h->conf.deadline_ns;
        r->state = HTTP_REQ_RUNNING;
        r->job.run = req_work;
        MHD_suspend_connection(r->mhd);
        if (!work_submit(h->conf.work, &r->job)) {
            REFUSE(r, 503, busy, .message = "all query workers are busy and their queue is full",
                   .retry_after_s = 1);
            req_finished(r);
        }
        return MHD_YES;
    case HTTP_ASYNC:
        if (!http_conn_hand_on(h, r->conn, HTTP_CONN_WAITING, r))
            break;
        r->state = HTTP_REQ_RUNNING;
        MHD_suspend_connection(r->mhd);
        r->route->start(h->conf.ctx, &r->q, &r->r, req_finished, r);
        return MHD_YES;
    }
    (void)refuse_stopping(r);
    body_free(r);
    return http_reply_queue(r) ? MHD_YES : MHD_NO;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_n, void **req_cls)
{
    struct http_req *r = *req_cls;
    size_t n = *data_n;

    (void)cls, (void)mhd, (void)url, (void)version;
    if (!r || !r->conn)
        return MHD_NO;
    assert(r->magic == HTTP_REQ_MAGIC);
    *data_n = 0;
    switch (r->state) {
    case HTTP_REQ_NEW:
        return req_begin(r, method);
    case HTTP_REQ_BODY:
        return n ? req_receive(r, data, n) : req_run(r);
    case HTTP_REQ_REFUSED:
        if (n)
            return req_discard(r, n);
        return http_reply_queue(r) ? MHD_YES : MHD_NO;
    case HTTP_REQ_FINISHED:
        return http_reply_queue(r) ? MHD_YES : MHD_NO;
    case HTTP_REQ_RUNNING:
        break;
    }
    return MHD_NO;
}

static void stats_add(struct http *h, const struct http_req *r)
{
    struct http_route_stats *s;
    int64_t ns = mono_now().v - r->start.v;
    uint32_t b = 0;

    if (!r->route)
        return;
    while (b < HTTP_BUCKETS && (double)ns / 1e9 > http_bucket_s[b])
        b++;
    mutex_lock(&h->stats_mu);
    s = &h->route_stats[r->route - h->conf.route];
    s->bucket[b]++;
    s->n++;
    s->sum_ns += ns;
    mutex_unlock(&h->stats_mu);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **req_cls,
                         enum MHD_RequestTerminationCode how)
{
    struct http *h = cls;
    struct http_req *r = *req_cls;

    (void)mhd, (void)how;
    if (!r)
        return;
    assert(r->magic == HTTP_REQ_MAGIC);
    stats_add(h, r);
    req_free(r);
    *req_cls = NULL;
}

/* ---- the event loop ------------------------------------------------------------------------ */

static enum MHD_Result on_accept(void *cls, const struct sockaddr *addr, socklen_t n)
{
    struct http *h = cls;

    (void)n;
    return !atomic_load(&h->stopping) && http_conn_allowed(h, addr) ? MHD_YES : MHD_NO;
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *h = cls;
    struct http_conn *c = *socket_context;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        /* a request that ended inside its headers is completed without a word to on_completed() */
        if (c && c->req)
            req_free(c->req);
        if (c)
            http_conn_free(h, c);
        *socket_context = NULL;
        return;
    }
    *socket_context = http_conn_new(
        h, MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
}

/* Ours decode paths and parameters with their lengths. */
static size_t no_unescape(void *cls, struct MHD_Connection *mhd, char *s)
{
    (void)cls, (void)mhd;
    return strlen(s);
}

[[gnu::format(printf, 2, 0)]] static void on_library_log(void *cls, const char *fmt, va_list ap)
{
    char text[256];

    (void)cls;
    if (vsnprintf(text, sizeof text, fmt, ap) > 0)
        log_event(LOG_DEBUG, "microhttpd", LOG_C("text", text));
}

static unsigned workers(const struct http_conf *c)
{
    uint64_t least = (c->connections + WORKER_CONNECTIONS - 1) / WORKER_CONNECTIONS;

    return (unsigned)(least > c->threads ? least : c->threads);
}

static struct MHD_Daemon *daemon_start(struct http *h)
{
    const struct http_conf *c = &h->conf;
    unsigned n = workers(c);

    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG,
        0, on_accept, h, on_request, h,                                           //
        MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL,                         //
        MHD_OPTION_LISTEN_SOCKET, c->listen_fd,                                   //
        MHD_OPTION_THREAD_POOL_SIZE, n,                                           //
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)c->connections + n * WORKER_SPARE, //
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)c->header_max + POOL_EXTRA,   //
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)4096,                     //
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,                           //
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,                             //
        MHD_OPTION_URI_LOG_CALLBACK, on_uri, h,                                   //
        MHD_OPTION_UNESCAPE_CALLBACK, no_unescape, NULL,                          //
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,                                     //
        MHD_OPTION_END);
}

int http_start(const struct http_conf *conf, struct http **ret, struct err *err)
{
    struct http *h = xcalloc(1, sizeof *h);
    uint64_t seed = 0;
    int r;

    h->conf = *conf;
    atomic_store(&h->auth, conf->auth);
    mutex_init(&h->mu);
    mutex_init(&h->stats_mu);
    cond_init(&h->wake);
    cond_init(&h->drained);
    h->route_stats = xcalloc(conf->n_route, sizeof *h->route_stats);
    if (getrandom(&seed, sizeof seed, 0) == sizeof seed)
        atomic_store(&h->next_id, seed);
    r = http_conn_start(h, err);
    if (r == 0) {
        h->daemon = daemon_start(h);
        if (!h->daemon)
            r = err_set(err, -EIO, "the event loop does not start: %s", strerrordesc_np(errno));
    }
    if (r < 0) {
        (void)http_stop(h, 0);
        return r;
    }
    *ret = h;
    return 0;
}

void http_ready(struct http *h)
{
    atomic_store(&h->ready, true);
}

void http_set_auth(struct http *h, const struct auth *auth)
{
    atomic_store(&h->auth, auth);
}

bool http_is_ready(const struct http *h)
{
    return atomic_load(&h->ready);
}

struct http *http_stop(struct http *h, int64_t wait_ns)
{
    if (!h)
        return NULL;
    atomic_store(&h->stopping, true);
    if (h->daemon) {
        /* Not MHD_quiesce_daemon(): of 0.9.75, with a pool of threads, it and a thread that wakes
         * just then both take the listening socket out of the thread's epoll set, and the second
         * one aborts the process. on_accept() turns peers away instead. */
        if (!http_conn_drain(h, wait_ns))
            return h;
        MHD_stop_daemon(h->daemon);
    }
    http_conn_stop(h);
    cond_deinit(&h->wake);
    cond_deinit(&h->drained);
    mutex_deinit(&h->mu);
    mutex_deinit(&h->stats_mu);
    free(h->route_stats);
    free(h);
    return NULL;
}

void http_stats(struct http *h, struct http_stats *ret)
{
    *ret = (struct http_stats){.requests = atomic_load(&h->requests)};
    mutex_lock(&h->mu);
    ret->connections = h->n_conn + h->n_spare;
    mutex_unlock(&h->mu);
#define X(name) ret->name = atomic_load(&h->refused.name);
    HTTP_REFUSALS(X)
#undef X
}

void http_route_stats(struct http *h, uint32_t route, struct http_route_stats *ret)
{
    mutex_lock(&h->stats_mu);
    *ret = h->route_stats[route];
    mutex_unlock(&h->stats_mu);
}
