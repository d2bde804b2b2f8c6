// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/thread.h"
#include "server/http.h"
#include "server/http_parse.h"
#include "server/work.h"

/*
 * What http.c, http_conn.c and http_reply.c share.
 *
 * A request belongs to the event thread of its connection, except between suspend and resume, when
 * it belongs to whoever answers it. What the sweeper looks at (struct http_conn) is under http.mu.
 */
struct MHD_Connection;
struct MHD_Daemon;

enum {
    HTTP_CONN_MAGIC = 0x636f6e6e,
    HTTP_REQ_MAGIC = 0x72657175,
    HTTP_DISCARD_FACTOR = 4, /* of its limit: so much of a refused body is read and thrown away */
    HTTP_SPARE = 16,         /* connections beyond the limits, for routes that are spare */
};
#define HTTP_DISCARD_NS (2 * NS_PER_S)
#define HTTP_SPARE_NS   NS_PER_S /* a spare connection's whole life */

enum http_conn_state {
    HTTP_CONN_IDLE = 0,  /* between requests, or in the first bytes of one */
    HTTP_CONN_RECEIVING, /* a request began */
    HTTP_CONN_DISCARDING,
    HTTP_CONN_WAITING, /* suspended: a batch on its way to the disk */
    HTTP_CONN_QUERY,   /* suspended: a query at work or waiting; watched for hang-up */
    HTTP_CONN_ANSWERING,
};

struct http_conn {
    uint32_t magic;
    int fd;
    struct in6_addr addr; /* IPv4 mapped */
    enum http_conn_state state;
    mono_ns since;        /* of the state; of ANSWERING and RECEIVING: start of counting time */
    uint64_t bytes;       /* received or to send, in this state */
    bool spare;           /* beyond a limit: short, and for few routes */
    mono_ns accepted;     /* set of a spare one */
    bool cut;             /* when last looked at: inside a request, and nothing more will come */
    uint64_t mark;        /* bytes the kernel had received when the connection became idle */
    struct http_req *req; /* of it, NULL while idle */
    struct http_conn *prev, *next;
};

enum http_req_state {
    HTTP_REQ_NEW = 0,
    HTTP_REQ_BODY,
    HTTP_REQ_REFUSED, /* reply is made, the body is being discarded */
    HTTP_REQ_RUNNING,
    HTTP_REQ_FINISHED,
};

struct http_req {
    uint32_t magic;
    enum http_req_state state;
    struct http *h;
    struct http_conn *conn;
    struct MHD_Connection *mhd;
    const struct http_route *route; /* NULL until found */
    struct work_job job;
    struct arena arena; /* uri, parameters */
    struct str uri;
    uint32_t hosts; /* Host headers */
    struct msg_param param[HTTP_PARAMS_MAX];
    struct msg_request q;
    struct msg_reply r;
    struct buf body;
    uint64_t charged; /* of the ingest pool */
    uint64_t body_max, discarded;
    mono_ns start, ready; /* first byte seen; whole */
    bool head, close;
    atomic_bool cancel;
};

struct http {
    struct http_conf conf;
    struct MHD_Daemon *daemon;
    const struct auth *_Atomic auth;
    atomic_bool ready, stopping;
    _Atomic uint64_t next_id;
    struct mutex mu;
    struct cond wake, drained; /* sweeper: something to watch; stop: nothing suspended any more */
    struct http_conn *conn;
    /* connections without spare ones; spare ones; QUERY; QUERY, WAITING or ANSWERING */
    uint64_t n_conn, n_spare, n_query, n_busy;
    bool closed; /* drained for good: nothing may be suspended any more */
    bool sweeper_stop;
    pthread_t sweeper;
    bool sweeper_runs;
    _Atomic uint64_t requests;
    struct {
#define X(name) _Atomic uint64_t name;
        HTTP_REFUSALS(X)
#undef X
    } refused;
    struct mutex stats_mu;
    struct http_route_stats *route_stats;
};

/* ---- http_conn.c --------------------------------------------------------------------------- */

/* May this peer connect, if only with a spare connection? Counts refusals. */
bool http_conn_allowed(struct http *h, const struct sockaddr *sa);
struct http_conn *http_conn_new(struct http *h, int fd, const struct sockaddr *sa);
void http_conn_free(struct http *h, struct http_conn *c);
void http_conn_set(struct http *h, struct http_conn *c, enum http_conn_state state,
                   struct http_req *req, uint64_t bytes);
/* The request is whole: QUERY or WAITING from here. false: the server ends, and waits for no more
 * of them. */
[[nodiscard]] bool http_conn_hand_on(struct http *h, struct http_conn *c,
                                     enum http_conn_state state, struct http_req *req);
void http_conn_received(struct http *h, struct http_conn *c, uint64_t bytes);
[[nodiscard]] int http_conn_start(struct http *h, struct err *err);
void http_conn_stop(struct http *h);
/* Set cancel of every query; wait until no request that was received whole is left: true, and none
 * is handed on from then. */
bool http_conn_drain(struct http *h, int64_t wait_ns);

/* What libraries only read, though their prototypes do not say so. */
static inline void *http_unconst(const void *p)
{
    const union {
        const void *in;
        void *out;
    } u = {.in = p};

    return u.out;
}

/* ---- http_reply.c -------------------------------------------------------------------------- */

/* Compress the body where that was offered and pays; answer 304. In the thread that made it. */
void http_reply_pack(struct http_req *r);
/* Queue the reply. false: the connection must be closed. */
bool http_reply_queue(struct http_req *r);
/* Write the reply straight to the socket, as far as it goes without waiting, and end our side. */
void http_reply_raw(struct http_req *r);
