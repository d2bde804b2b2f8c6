// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <zlib.h>

#include "server/http_private.h"

enum {
    GZIP_MIN = 1024, /* below it compression costs more than it saves */
    GZIP_LEVEL = 4,
    GZIP_WINDOW = 15 + 16, /* largest window, gzip format */
};

/* https://www.w3.org/TR/CSP3, https://www.w3.org/TR/trusted-types */
#define CSP_PAGE                                                                                   \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "                    \
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "            \
    "require-trusted-types-for 'script'; trusted-types lit-html"
#define CSP_DATA "default-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

static struct str body_of(const struct msg_reply *r)
{
    return r->fixed.p ? r->fixed : buf_view(&r->body);
}

static const char *cache_text(enum msg_cache c)
{
    switch (c) {
    case MSG_NO_STORE:
        return "no-store";
    case MSG_NO_CACHE:
        return "private, no-cache";
    case MSG_DAY:
        return "private, max-age=86400";
    case MSG_IMMUTABLE:
        return "public, max-age=31536000, immutable";
    }
    return "no-store";
}

static bool gzip(struct str in, struct buf *out)
{
    z_stream z = {};
    size_t bound;
    char *p;
    bool ok;

    if (in.n > UINT32_MAX ||
        deflateInit2(&z, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return false;
    bound = deflateBound(&z, in.n);
    buf_init(out, bound);
    p = buf_reserve(out, bound);
    if (p) {
        z.next_in = http_unconst(in.p);
        z.avail_in = (uInt)in.n;
        z.next_out = (Bytef *)p;
        z.avail_out = (uInt)bound;
    }
    ok = p && deflate(&z, Z_FINISH) == Z_STREAM_END;
    if (ok)
        buf_commit(out, z.total_out);
    else
        buf_deinit(out);
    (void)deflateEnd(&z);
    return ok;
}

void http_reply_pack(struct http_req *r)
{
    struct msg_reply *m = &r->r;
    struct str body;
    struct buf packed;

    if (m->body.failed) {
        /* half an answer is none */
        const struct msg_error e = {.status = 422,
                                    .code = "query_too_expensive",
                                    .message = "the answer is larger than its limit",
                                    .setting = "query.answer",
                                    .limit = m->body.cap,
                                    .actual = m->body.cap + 1};

        msg_fail(m, &r->q, &e);
    }
    if (m->status == 200 && m->has_etag && http_etag_match(r->q.if_none_match, m->etag)) {
        buf_deinit(&m->body);
        m->fixed = (struct str){};
        m->encoding = NULL;
        m->status = 304;
    }
    body = body_of(m);
    if (m->status != 200 || m->encoding)
        return;
    if (!m->gzip_file && (body.n <= GZIP_MIN || !http_list_has(r->q.accept_encoding, STR("gzip"))))
        return;
    if (!gzip(body, &packed))
        return;
    buf_deinit(&m->body);
    m->fixed = (struct str){};
    m->body = packed;
    m->encoding = m->gzip_file ? NULL : "gzip";
}

struct header {
    void (*add)(void *ctx, const char *name, const char *value);
    void *ctx;
};

/* All headers but those of framing, which whoever sends them knows. */
static void headers_each(const struct http_req *r, const struct header *out)
{
    const struct msg_reply *m = &r->r;
    char text[192];

    if (m->content_type && m->status != 304)
        out->add(out->ctx, "Content-Type", m->content_type);
    if (m->encoding)
        out->add(out->ctx, "Content-Encoding", m->encoding);
    out->add(out->ctx, "Cache-Control", cache_text(m->cache));
    out->add(out->ctx, "Vary",
             r->route && r->route->page ? "Accept-Encoding"
                                        : "Accept-Encoding, Authorization, Cookie");
    if (m->has_etag) {
        (void)snprintf(text, sizeof text, "\"%016" PRIx64 "%s\"", m->etag,
                       m->encoding ? "-gzip" : "");
        out->add(out->ctx, "ETag", text);
    }
    if (m->filename[0]) {
        (void)snprintf(text, sizeof text, "attachment; filename=\"%s\"", m->filename);
        out->add(out->ctx, "Content-Disposition", text);
    }
    if (m->allow)
        out->add(out->ctx, "Allow", m->allow);
    if (m->status == 401)
        out->add(out->ctx, "WWW-Authenticate", "Bearer");
    if (m->retry_after_s) {
        (void)snprintf(text, sizeof text, "%" PRIu32, m->retry_after_s);
        out->add(out->ctx, "Retry-After", text);
    }
    out->add(out->ctx, "Content-Security-Policy", r->route && r->route->page ? CSP_PAGE : CSP_DATA);
    out->add(out->ctx, "X-Content-Type-Options", "nosniff");
    out->add(out->ctx, "Referrer-Policy", "no-referrer");
    out->add(out->ctx, "Cross-Origin-Resource-Policy", "same-origin");
    (void)snprintf(text, sizeof text, "%016" PRIx64, r->q.id);
    out->add(out->ctx, "X-Request-Id", text);
    (void)snprintf(text, sizeof text, "total;dur=%.3f",
                   (double)(mono_now().v - r->start.v) / (double)NS_PER_MS);
    out->add(out->ctx, "Server-Timing", text);
    if (r->h->conf.ui_hash[0])
        out->add(out->ctx, "Strata-UI", r->h->conf.ui_hash);
}

static void add_mhd(void *ctx, const char *name, const char *value)
{
    (void)MHD_add_response_header(ctx, name, value);
}

static void add_text(void *ctx, const char *name, const char *value)
{
    buf_printf(ctx, "%s: %s\r\n", name, value);
}

static void free_body(void *p)
{
    struct buf *b = p;

    buf_deinit(b);
    free(b);
}

bool http_reply_queue(struct http_req *r)
{
    struct msg_reply *m = &r->r;
    struct str body = body_of(m);
    struct MHD_Response *res;
    enum MHD_Result ok;

    /* first, so that the sweeper no longer looks at the reply of a refused request */
    http_conn_set(r->h, r->conn, HTTP_CONN_ANSWERING, r, body.n);
    if (m->fixed.p || !body.n) {
        res = MHD_create_response_from_buffer(body.n, http_unconst(body.p), MHD_RESPMEM_PERSISTENT);
    } else {
        struct buf *own = xmalloc(sizeof *own);

        *own = m->body;
        m->body = (struct buf){};
        res =
            MHD_create_response_from_buffer_with_free_callback_cls(own->n, own->p, free_body, own);
        if (!res)
            free_body(own);
    }
    if (!res)
        return false;
    headers_each(r, &(struct header){add_mhd, res});
    if (r->close || atomic_load(&r->h->stopping))
        (void)MHD_add_response_header(res, "Connection", "close");
    ok = MHD_queue_response(r->mhd, (unsigned)m->status, res);
    MHD_destroy_response(res);
    return ok == MHD_YES;
}

void http_reply_raw(struct http_req *r)
{
    struct str body = body_of(&r->r);
    struct buf b;

    buf_init(&b, body.n + 4096);
    buf_printf(&b, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %zu\r\n", r->r.status,
               MHD_get_reason_phrase_for((unsigned)r->r.status), body.n);
    headers_each(r, &(struct header){add_text, &b});
    buf_cstr(&b, "\r\n");
    buf_str(&b, body);
    if (!b.failed) /* a peer that does not read has lost its claim to an answer */
        (void)send(r->conn->fd, b.p, b.n, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)shutdown(r->conn->fd, SHUT_WR);
    buf_deinit(&b);
}
