// SPDX-License-Identifier: Apache-2.0
/*
 * Connections that take too long. libmicrohttpd's own timeout is one of inactivity, which a byte
 * every two seconds keeps away for ever, and a suspended connection is not watched at all. So every
 * connection is registered, and one thread looks at them: once a second for their deadlines, and
 * every 50 ms for hang-ups while a query is at work. It only ever shuts a socket down; the event
 * loop sees that and closes. The descriptor stays valid under h->mu, since the entry is removed
 * under h->mu before the library closes it.
 */
#include <errno.h>
#include <linux/tcp.h> /* glibc's struct tcp_info ends before tcpi_bytes_received */
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/log.h"
#include "server/http_private.h"

enum {
    WATCH_MS = 50,
    SWEEP_MS = 1000
};

static struct in6_addr addr_of(const struct sockaddr *sa)
{
    struct in6_addr a = IN6ADDR_ANY_INIT;

    if (sa->sa_family == AF_INET6) {
        a = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
    } else if (sa->sa_family == AF_INET) {
        a.s6_addr32[2] = htonl(0xffff);
        a.s6_addr32[3] = ((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr;
    }
    return a;
}

static bool is_busy(enum http_conn_state s)
{
    return s == HTTP_CONN_WAITING || s == HTTP_CONN_QUERY || s == HTTP_CONN_ANSWERING;
}

/* Has this address, or have all, as many connections as they may? */
static bool is_full_locked(const struct http *h, const struct in6_addr *a, uint64_t *ret_same)
{
    *ret_same = 0;
    if (h->n_conn >= h->conf.connections)
        return true;
    if (!h->conf.per_address)
        return false;
    for (const struct http_conn *c = h->conn; c; c = c->next)
        *ret_same += !c->spare && IN6_ARE_ADDR_EQUAL(&c->addr, a) ? 1 : 0;
    return *ret_same >= h->conf.per_address;
}

bool http_conn_allowed(struct http *h, const struct sockaddr *sa)
{
    struct in6_addr a = addr_of(sa);
    uint64_t same = 0;
    bool ok;

    mutex_lock(&h->mu);
    ok = !is_full_locked(h, &a, &same) || h->n_spare < HTTP_SPARE;
    mutex_unlock(&h->mu);
    if (!ok) {
        atomic_fetch_add(&h->refused.too_many_connections, 1);
        log_event(LOG_WARN, "too_many_connections", LOG_U("of_this_address", same),
                  LOG_U("per_address_max", h->conf.per_address), LOG_U("max", h->conf.connections));
    }
    return ok;
}

/* Bytes that the kernel has received on this connection; 0 where it does not say. */
static uint64_t bytes_received(int fd)
{
    struct tcp_info info = {};
    socklen_t n = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0)
        return 0;
    return info.tcpi_bytes_received;
}

struct http_conn *http_conn_new(struct http *h, int fd, const struct sockaddr *sa)
{
    struct http_conn *c = xcalloc(1, sizeof *c);
    uint64_t same;

    c->magic = HTTP_CONN_MAGIC;
    c->fd = fd;
    c->addr = addr_of(sa);
    c->accepted = c->since = mono_now();
    mutex_lock(&h->mu);
    c->spare = is_full_locked(h, &c->addr, &same);
    c->next = h->conn;
    if (c->next)
        c->next->prev = c;
    h->conn = c;
    h->n_conn += !c->spare;
    h->n_spare += c->spare;
    mutex_unlock(&h->mu);
    return c;
}

void http_conn_free(struct http *h, struct http_conn *c)
{
    assert(c->magic == HTTP_CONN_MAGIC);
    mutex_lock(&h->mu);
    if (c->prev)
        c->prev->next = c->next;
    else
        h->conn = c->next;
    if (c->next)
        c->next->prev = c->prev;
    h->n_conn -= !c->spare;
    h->n_spare -= c->spare;
    h->n_query -= c->state == HTTP_CONN_QUERY;
    h->n_busy -= is_busy(c->state);
    cond_broadcast(&h->drained);
    mutex_unlock(&h->mu);
    c->magic = 0;
    free(c);
}

static void set_locked(struct http *h, struct http_conn *c, enum http_conn_state state,
                       struct http_req *req, uint64_t bytes) REQUIRES(&h->mu)
{
    h->n_query -= c->state == HTTP_CONN_QUERY;
    h->n_busy -= is_busy(c->state);
    c->state = state;
    c->req = req;
    c->bytes = bytes;
    c->cut = false;
    c->since = mono_now();
    h->n_busy += is_busy(state);
    if (state == HTTP_CONN_QUERY && h->n_query++ == 0)
        cond_signal(&h->wake);
    if (state == HTTP_CONN_IDLE) {
        c->mark = bytes_received(c->fd);
        cond_broadcast(&h->drained);
    }
}

void http_conn_set(struct http *h, struct http_conn *c, enum http_conn_state state,
                   struct http_req *req, uint64_t bytes)
{
    mutex_lock(&h->mu);
    set_locked(h, c, state, req, bytes);
    mutex_unlock(&h->mu);
}

bool http_conn_hand_on(struct http *h, struct http_conn *c, enum http_conn_state state,
                       struct http_req *req)
{
    bool ok;

    mutex_lock(&h->mu);
    ok = !h->closed;
    if (ok)
        set_locked(h, c, state, req, 0);
    mutex_unlock(&h->mu);
    return ok;
}

void http_conn_received(struct http *h, struct http_conn *c, uint64_t bytes)
{
    mutex_lock(&h->mu);
    c->bytes += bytes;
    mutex_unlock(&h->mu);
}

/* Is it beyond its time? A request's runs from its first byte; its bytes earn more of it. */
static bool is_late(const struct http *h, struct http_conn *c, mono_ns now)
{
    int64_t age = now.v - c->since.v;

    if (c->spare && now.v - c->accepted.v > HTTP_SPARE_NS)
        return true;
    switch (c->state) {
    case HTTP_CONN_IDLE:
        if (bytes_received(c->fd) > c->mark) { /* a request line is on its way */
            c->state = HTTP_CONN_RECEIVING;
            c->since = now;
            return false;
        }
        return age > h->conf.idle_ns;
    case HTTP_CONN_RECEIVING:
    case HTTP_CONN_ANSWERING:
        return age / NS_PER_S >
               h->conf.request_time_ns / NS_PER_S + (int64_t)(c->bytes / h->conf.min_rate);
    case HTTP_CONN_DISCARDING:
        return age > HTTP_DISCARD_NS;
    case HTTP_CONN_WAITING: /* their own deadlines end these */
    case HTTP_CONN_QUERY:
        return false;
    }
    return false;
}

/*
 * The peer ended its side inside a request, and all that it sent was read: the library, woken once
 * for the bytes and the end together, may wait for more. Seen twice, so that a request whose last
 * bytes are just being handled is not taken for one.
 */
static bool is_cut(struct http_conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    bool before = c->cut;
    int unread = 1;

    c->cut = c->state == HTTP_CONN_RECEIVING && poll(&p, 1, 0) > 0 &&
             p.revents & (POLLRDHUP | POLLHUP | POLLERR) && ioctl(c->fd, FIONREAD, &unread) == 0 &&
             unread == 0;
    return before && c->cut;
}

static void sweep(struct http *h)
{
    mono_ns now = mono_now();

    for (struct http_conn *c = h->conn; c; c = c->next) {
        if (is_cut(c)) {
            (void)shutdown(c->fd, SHUT_RDWR);
            continue;
        }
        if (!is_late(h, c, now))
            continue;
        if (c->state == HTTP_CONN_DISCARDING)
            http_reply_raw(c->req);
        else if (c->state != HTTP_CONN_IDLE)
            atomic_fetch_add(&h->refused.too_slow, 1);
        (void)shutdown(c->fd, SHUT_RDWR);
    }
}

/* A peer that sends nothing more than its request keeps the reading side open; one that closed it
 * is taken for gone. */
static void watch(struct http *h)
{
    for (struct http_conn *c = h->conn; c; c = c->next) {
        struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};

        if (c->state != HTTP_CONN_QUERY || atomic_load(&c->req->cancel))
            continue;
        if (poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR))
            atomic_store(&c->req->cancel, true);
    }
}

static void *sweeper_main(void *arg)
{
    struct http *h = arg;
    mono_ns next = mono_now();

    mutex_lock(&h->mu);
    while (!h->sweeper_stop) {
        if (h->n_query)
            watch(h);
        if (mono_now().v >= next.v) {
            next.v = mono_now().v + SWEEP_MS * NS_PER_MS;
            sweep(h);
        }
        (void)cond_wait_for(&h->wake, &h->mu, (h->n_query ? WATCH_MS : SWEEP_MS) * NS_PER_MS);
    }
    mutex_unlock(&h->mu);
    return NULL;
}

int http_conn_start(struct http *h, struct err *err)
{
    int r = thread_start(&h->sweeper, "sweeper", 0, sweeper_main, h);

    if (r < 0)
        return err_set(err, r, "cannot start the thread that closes slow connections");
    h->sweeper_runs = true;
    return 0;
}

void http_conn_stop(struct http *h)
{
    if (!h->sweeper_runs)
        return;
    mutex_lock(&h->mu);
    h->sweeper_stop = true;
    cond_signal(&h->wake);
    mutex_unlock(&h->mu);
    (void)pthread_join(h->sweeper, NULL);
    h->sweeper_runs = false;
}

bool http_conn_drain(struct http *h, int64_t wait_ns)
{
    mono_ns end = {mono_now().v + wait_ns};
    bool empty;

    mutex_lock(&h->mu);
    for (struct http_conn *c = h->conn; c; c = c->next)
        if (c->state == HTTP_CONN_QUERY)
            atomic_store(&c->req->cancel, true);
    while (h->n_busy) {
        int64_t left = end.v - mono_now().v;

        if (left <= 0 || !cond_wait_for(&h->drained, &h->mu, left))
            break;
    }
    empty = h->closed = !h->n_busy;
    mutex_unlock(&h->mu);
    return empty;
}
