// SPDX-License-Identifier: Apache-2.0
/* http.c with handlers of our own, spoken to over real sockets, byte by byte where it matters. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"
#include "server/http.h"
#include "server/listen.h"
#include "server/pool.h"
#include "server/work.h"
#include "tests/lib/testing.h"

enum {
    BODY_MAX = 64 << 10,
    URI_MAX = 1024,
};

static struct listen_at at;
static struct pool pool = {.max = 1 << 20};
static struct work *work;
static struct auth *auth;
static struct http *http;
static atomic_int canceled, started;
static atomic_bool hold;

/* ---- handlers ------------------------------------------------------------------------------ */

static void on_echo(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    struct str n = {NULL, 0};

    (void)ctx;
    r->status = 200;
    r->content_type = "text/plain";
    buf_init(&r->body, 1 << 20);
    for (uint32_t i = 0; i < q->n_param; i++)
        buf_printf(&r->body, "%.*s=%.*s\n", STR_ARG(q->param[i].name), STR_ARG(q->param[i].value));
    if (msg_param(q, "pad", &n))
        for (int i = 0; i < 8192; i++)
            buf_chr(&r->body, 'x');
    r->has_etag = true;
    r->etag = 0xabc;
    r->cache = MSG_NO_CACHE;
}

static void on_slow(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    (void)ctx;
    atomic_fetch_add(&started, 1);
    while (atomic_load(&hold) && !atomic_load(q->cancel))
        (void)usleep(1000);
    if (atomic_load(q->cancel))
        atomic_fetch_add(&canceled, 1);
    r->status = 200;
    r->content_type = "text/plain";
    r->fixed = STR("slow\n");
}

/* Holds its event thread up. */
static void on_nap(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    (void)ctx, (void)q;
    (void)usleep(300000);
    r->status = 200;
    r->content_type = "text/plain";
    r->fixed = STR("awake\n");
}

struct later {
    struct msg_reply *r;
    size_t n;
    http_done_fn *done;
    void *ctx;
};

static void *later_main(void *arg)
{
    struct later *l = arg;

    (void)usleep(20000);
    l->r->status = 200;
    l->r->content_type = "text/plain";
    buf_init(&l->r->body, 64);
    buf_printf(&l->r->body, "took %zu\n", l->n);
    l->done(l->ctx);
    free(l);
    return NULL;
}

/* Answers from another thread; at once where the body says so. */
static void on_take(void *ctx, const struct msg_request *q, struct msg_reply *r, http_done_fn *done,
                    void *done_ctx)
{
    struct later *l = malloc(sizeof *l);
    pthread_t t;

    (void)ctx;
    assert_non_null(l);
    *l = (struct later){r, q->body.n, done, done_ctx};
    if (str_starts(q->body, STR("now"))) {
        (void)later_main(l);
        return;
    }
    assert_int_equal(thread_start(&t, "later", 0, later_main, l), 0);
    (void)pthread_detach(t);
}

static const struct http_route routes[] = {
    {.path = "/echo", .allow = "GET, HEAD, POST", .body = HTTP_FORM, .handle = on_echo},
    {.path = "/slow", .allow = "GET, HEAD", .run = HTTP_WORKER, .handle = on_slow},
    {.path = "/take", .allow = "POST", .body = HTTP_INGEST, .run = HTTP_ASYNC, .start = on_take},
    {.path = "/store", .allow = "GET, HEAD", .needs_store = true, .handle = on_echo},
    {.path = "/alive", .allow = "GET, HEAD", .spare = true, .handle = on_echo},
    {.path = "/nap", .allow = "GET, HEAD", .handle = on_nap},
};

/* ---- a client ------------------------------------------------------------------------------ */

/* -1: it is turned away */
static int dial_maybe(const struct listen_at *where)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint64_t port = 0;

    assert_true(str_u64(str_c(strrchr(where->text, ':') + 1), &port));
    to.sin_port = htons((uint16_t)port);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static int dial_at(const struct listen_at *where)
{
    int fd = dial_maybe(where);

    assert_true(fd >= 0);
    return fd;
}

static int dial(void)
{
    return dial_at(&at);
}

static void say(int fd, const char *text)
{
    size_t n = strlen(text);

    assert_int_equal(send(fd, text, n, MSG_NOSIGNAL), n);
}

/* All that comes within wait_ms, to the end or until a whole answer is there; NUL-terminated. */
static char *hear(int fd, int wait_ms)
{
    static char p[1 << 18];
    size_t n = 0;

    p[0] = '\0';
    while (n < sizeof p - 1) {
        struct pollfd w = {.fd = fd, .events = POLLIN};
        const char *body, *length;
        ssize_t got;

        if (poll(&w, 1, wait_ms) <= 0)
            break;
        got = recv(fd, p + n, sizeof p - 1 - n, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
        p[n] = '\0';
        body = strstr(p, "\r\n\r\n");
        length = strcasestr(p, "Content-Length: ");
        if (body && length) {
            size_t line = strcspn(length + 16, "\r");
            uint64_t want = 0;

            assert_true(str_u64((struct str){length + 16, line}, &want));
            if (n >= (size_t)(body + 4 - p) + want)
                break;
        }
    }
    return p;
}

static char *ask(const char *text)
{
    int fd = dial();
    char *p;

    say(fd, text);
    p = hear(fd, 3000);
    (void)close(fd);
    return p;
}

static void expect(const char *answer, const char *part)
{
    if (!strstr(answer, part))
        fail_msg("no \"%s\" in:\n%s", part, answer);
}

#define H "Host: localhost\r\n"

/* ---- tests --------------------------------------------------------------------------------- */

static void test_get(void **state)
{
    char *p = ask("GET /echo?a=1&b=%7B%00%7D&c HTTP/1.1\r\n" H "\r\n");

    (void)state;
    expect(p, "HTTP/1.1 200 ");
    expect(p, "a=1\nb={");
    expect(p, "X-Content-Type-Options: nosniff");
    expect(p, "Content-Security-Policy: default-src 'none'");
    expect(p, "Cache-Control: private, no-cache");
    expect(p, "ETag: \"0000000000000abc\"");
    expect(p, "X-Request-Id: ");
    expect(p, "Server-Timing: total;dur=");
    expect(p, "Strata-UI: cafe");
    p = ask("GET /base/echo?x=y HTTP/1.1\r\n" H "\r\n");
    expect(p, "x=y");
}

static void test_head_304_gzip(void **state)
{
    char *p = ask("HEAD /echo?pad HTTP/1.1\r\n" H "Connection: close\r\n\r\n");

    (void)state;
    expect(p, "HTTP/1.1 200 ");
    assert_string_equal(strstr(p, "\r\n\r\n"), "\r\n\r\n");
    p = ask("GET /echo HTTP/1.1\r\n" H "If-None-Match: \"0000000000000abc\"\r\n\r\n");
    expect(p, "HTTP/1.1 304 ");
    p = ask("GET /echo?pad HTTP/1.1\r\n" H "Accept-Encoding: gzip\r\n\r\n");
    expect(p, "Content-Encoding: gzip");
    p = ask("GET /echo?pad HTTP/1.1\r\n" H "Accept-Encoding: gzip;q=0\r\n\r\n");
    assert_null(strstr(p, "Content-Encoding"));
    expect(p, "xxxxxxxxxxxxx");
}

static void test_form(void **state)
{
    char *p = ask("POST /echo?a=1 HTTP/1.1\r\n" H
                  "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\n"
                  "b=2+3&c=4");

    (void)state;
    expect(p, "a=1\nb=2 3\nc=4\n");
    p = ask("POST /echo HTTP/1.1\r\n" H "Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nx");
    expect(p, "HTTP/1.1 415 ");
    p = ask("POST /echo HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n");
    expect(p, "HTTP/1.1 200 ");
    p = ask("POST /echo HTTP/1.1\r\n" H
            "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\na=%");
    expect(p, "HTTP/1.1 400 ");
    p = ask("POST /echo HTTP/1.1\r\n" H "Content-Type: application/x-www-form-urlencoded\r\n"
            "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\na=1");
    expect(p, "HTTP/1.1 415 ");
    expect(p, "\"code\":\"unsupported_coding\"");
}

/* The second of two requests must not be read as the body of the first, nor the other way round. */
static void test_one_length(void **state)
{
    static const char *const lengths[] = {
        "Content-Length: 3\r\nContent-Length: 3\r\n", "Content-Length: 0\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"};

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char text[400];
        char *p;

        (void)snprintf(text, sizeof text,
                       "POST /echo HTTP/1.1\r\n" H
                       "Content-Type: application/x-www-form-urlencoded\r\n%s\r\n"
                       "3\r\na=1\r\n0\r\n\r\nGET /echo HTTP/1.1\r\n" H "\r\n",
                       lengths[i]);
        p = ask(text);
        expect(p, "HTTP/1.1 400 ");
        expect(p, "Connection: close\r\n");
        assert_null(strstr(p, "HTTP/1.1 200 "));
    }
}

static void test_refusals(void **state)
{
    static char long_uri[URI_MAX + 200], many[40000];
    char *p = ask("GET /nothing HTTP/1.1\r\n" H "\r\n");

    (void)state;
    expect(p, "HTTP/1.1 404 ");
    expect(p, "\"code\":\"not_found\"");
    p = ask("POST /slow HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n");
    expect(p, "HTTP/1.1 405 ");
    expect(p, "Allow: GET, HEAD\r\n");
    p = ask("ET /slow HTTP/1.1\r\n" H "\r\n");
    expect(p, "HTTP/1.1 405 ");
    p = ask("GET /echo HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    expect(p, "HTTP/1.1 421 ");
    expect(p, "bad_host");
    p = ask("GET /echo HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n");
    expect(p, "HTTP/1.1 400 ");
    expect(p, "\"code\":\"bad_host\"");
    p = ask("GET /echo HTTP/1.1\r\nHost: localhost:80x\r\n\r\n");
    expect(p, "HTTP/1.1 400 ");
    expect(p, "\"code\":\"bad_host\"");
    p = ask("GET /echo HTTP/1.1\r\nHost: own.example:80\r\n\r\n");
    expect(p, "HTTP/1.1 200 ");
    p = ask("POST /echo HTTP/1.1\r\n" H "Origin: http://evil.example\r\nContent-Length: 0\r\n\r\n");
    expect(p, "HTTP/1.1 403 ");
    p = ask("POST /echo HTTP/1.1\r\n" H "Origin: http://localhost\r\nContent-Length: 0\r\n\r\n");
    expect(p, "HTTP/1.1 200 ");
    p = ask("POST /echo HTTP/1.1\r\n" H "Sec-Fetch-Site: cross-site\r\nContent-Length: 0\r\n\r\n");
    expect(p, "HTTP/1.1 403 ");
    p = ask("GET /store HTTP/1.1\r\n" H "\r\n");
    expect(p, "HTTP/1.1 503 ");
    expect(p, "\"code\":\"starting\"");
    expect(p, "Retry-After: 1");
    p = ask("GET /a%2 HTTP/1.1\r\n" H "\r\n");
    expect(p, "HTTP/1.1 400 ");
    p = ask("GET /slow HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx");
    expect(p, "HTTP/1.1 400 ");

    memset(long_uri, 'a', sizeof long_uri - 1);
    long_uri[sizeof long_uri - 1] = '\0';
    (void)snprintf(many, sizeof many, "GET /%s HTTP/1.1\r\n" H "\r\n", long_uri);
    p = ask(many);
    expect(p, "HTTP/1.1 414 ");
    expect(p, "\"setting\":\"ingest.uri\",\"limit\":1024,\"actual\":1224");
    (void)snprintf(
        many, sizeof many,
        "GET /echo HTTP/1.1\r\n" H "X-A: %04000d\r\nX-B: %04000d\r\nX-C: %04000d\r\n\r\n", 0, 0, 0);
    p = ask(many);
    expect(p, "HTTP/1.1 431 ");
    expect(p, "headers_too_large");
}

static void test_async(void **state)
{
    char *p = ask("POST /take HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello");

    (void)state;
    expect(p, "took 5");
    p = ask("POST /take HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nnow");
    expect(p, "took 3");
    p = ask("POST /take HTTP/1.1\r\n" H
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
    expect(p, "took 11");
    assert_int_equal(pool_used(&pool), 0);
}

static void test_keep_alive(void **state)
{
    int fd = dial();

    (void)state;
    for (int i = 0; i < 50; i++) {
        say(fd, "POST /take HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nnow");
        expect(hear(fd, 3000), "took 3");
    }
    (void)close(fd);
}

/* The answer arrives although the body goes on: it is read and thrown away. */
static void test_too_large(void **state)
{
    static char body[3 * BODY_MAX];
    char head[200];
    int fd = dial();

    (void)state;
    (void)snprintf(head, sizeof head, "POST /take HTTP/1.1\r\n" H "Content-Length: %zu\r\n\r\n",
                   sizeof body);
    say(fd, head);
    for (size_t n = 0; n < sizeof body;) {
        ssize_t sent = send(fd, body + n, sizeof body - n, MSG_NOSIGNAL);

        assert_true(sent > 0);
        n += (size_t)sent;
    }
    expect(hear(fd, 3000), "HTTP/1.1 413 ");
    (void)close(fd);

    fd = dial(); /* chunked: found on the way */
    say(fd, "POST /take HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n18000\r\n");
    for (size_t n = 0; n < 0x18000;) {
        ssize_t sent = send(fd, body + n, 0x18000 - n, MSG_NOSIGNAL);

        assert_true(sent > 0);
        n += (size_t)sent;
    }
    say(fd, "\r\n0\r\n\r\n");
    expect(hear(fd, 3000), "HTTP/1.1 413 ");
    (void)close(fd);

    fd = dial(); /* said, and not sent: after two seconds the answer comes all the same */
    say(fd, "POST /take HTTP/1.1\r\n" H "Content-Length: 1000000\r\n\r\nabc");
    expect(hear(fd, 6000), "HTTP/1.1 413 ");
    (void)close(fd);

    fd = dial(); /* who asks first sends nothing */
    say(fd, "POST /take HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n");
    expect(hear(fd, 1000), "HTTP/1.1 413 ");
    (void)close(fd);
    assert_int_equal(pool_used(&pool), 0);
}

static void test_pool(void **state)
{
    char *p;

    (void)state;
    assert_true(pool_take(&pool, pool.max - 10));
    p = ask("POST /take HTTP/1.1\r\n" H "Content-Length: 11\r\n\r\nhello world");
    expect(p, "HTTP/1.1 503 ");
    expect(p, "overloaded");
    expect(p, "ingest.memory");
    pool_give(&pool, pool.max - 10);
    assert_int_equal(pool_used(&pool), 0);
}

/* 2 at work, 1 waits, the next is refused; a client that leaves frees its worker. */
static void test_workers(void **state)
{
    int fd[3];
    char *p;

    (void)state;
    atomic_store(&hold, true);
    for (int i = 0; i < 3; i++) {
        fd[i] = dial();
        say(fd[i], "GET /slow HTTP/1.1\r\n" H "\r\n");
        for (int ms = 0; ms < 2000; ms++) {
            uint32_t running = 0, waiting = 0;

            work_load(work, &running, &waiting);
            if (running + waiting == (uint32_t)i + 1)
                break;
            (void)usleep(1000);
        }
    }
    p = ask("GET /slow HTTP/1.1\r\n" H "\r\n");
    expect(p, "HTTP/1.1 503 ");
    expect(p, "\"code\":\"busy\"");
    (void)close(fd[0]);
    for (int ms = 0; ms < 1000 && atomic_load(&canceled) < 1; ms++)
        (void)usleep(1000);
    assert_int_equal(atomic_load(&canceled), 1);
    for (int ms = 0; ms < 1000 && atomic_load(&started) < 3; ms++)
        (void)usleep(1000);
    assert_int_equal(atomic_load(&started), 3);
    atomic_store(&hold, false);
    for (int i = 1; i < 3; i++) {
        expect(hear(fd[i], 3000), "slow");
        (void)close(fd[i]);
    }
    assert_int_equal(atomic_load(&canceled), 1);
}

/* A byte now and then does not keep a connection: 1 s here, and one more for the sweeper. */
static void test_slow_sender(void **state)
{
    static const char request[] = "GET /echo HTTP/1.1\r\nHost: localhost\r\n";
    int fd = dial();
    size_t i = 0;
    char c;
    bool closed = false;

    (void)state;
    for (; i < sizeof request - 1 && !closed; i++) {
        struct pollfd w = {.fd = fd, .events = POLLIN};

        if (send(fd, &request[i], 1, MSG_NOSIGNAL) < 0)
            closed = true;
        if (poll(&w, 1, 200) > 0 && recv(fd, &c, 1, 0) <= 0)
            closed = true;
    }
    assert_true(closed);
    (void)close(fd);
}

static void connections_are(uint64_t n)
{
    struct http_stats st;

    http_stats(http, &st);
    for (int ms = 0; ms < 5000 && st.connections != n; ms++) {
        (void)usleep(1000);
        http_stats(http, &st);
    }
    assert_int_equal(st.connections, n);
}

/* Six of one address; beyond them a request gets a word, and who asks for life an answer. */
static void test_per_address(void **state)
{
    int fd[8], refused = 0;
    struct http_stats before, after;
    const char *p;

    (void)state;
    http_stats(http, &before);
    for (int i = 0; i < 8; i++) {
        fd[i] = dial();
        say(fd[i], "GET /echo HTTP/1.1\r\n" H "\r\n");
        p = hear(fd[i], 1000);
        if (strncmp(p, "HTTP/1.1 503 ", 13) != 0)
            continue;
        refused++;
        expect(p, "\"code\":\"too_many_connections\"");
        expect(p, "Connection: close");
    }
    p = ask("GET /alive HTTP/1.1\r\n" H "\r\n");
    expect(p, "HTTP/1.1 200 ");
    expect(p, "Connection: close");
    for (int i = 0; i < 8; i++)
        (void)close(fd[i]);
    http_stats(http, &after);
    assert_int_equal(refused, 2);
    assert_int_equal(after.too_many_connections - before.too_many_connections, 2);
    connections_are(0);
}

/* Spare connections are few, and held for a second only. */
static void test_spare(void **state)
{
    int fd[6 + 16], last;

    (void)state;
    for (size_t i = 0; i < sizeof fd / sizeof fd[0]; i++)
        fd[i] = dial();
    connections_are(sizeof fd / sizeof fd[0]);
    last = dial();
    assert_string_equal(hear(last, 1000), "");
    (void)close(last);
    connections_are(6);
    expect(ask("GET /alive HTTP/1.1\r\n" H "\r\n"), "HTTP/1.1 200 ");
    for (size_t i = 0; i < sizeof fd / sizeof fd[0]; i++)
        (void)close(fd[i]);
    connections_are(0);
}

static struct http_conf conf_with(const struct listen_at *where)
{
    return (struct http_conf){.listen_fd = where->fd,
                              .threads = 2,
                              .route = routes,
                              .n_route = sizeof routes / sizeof routes[0],
                              .ingest = &pool,
                              .auth = auth,
                              .work = work,
                              .base_path = "/base",
                              .hosts = "own.example",
                              .ui_hash = "cafe",
                              .header_max = 8 << 10,
                              .uri_max = URI_MAX,
                              .body_max = BODY_MAX,
                              .form_max = 4096,
                              .connections = 64,
                              .per_address = 6,
                              .idle_ns = 30 * NS_PER_S,
                              .request_time_ns = NS_PER_S,
                              .deadline_ns = 30 * NS_PER_S,
                              .min_rate = 1 << 20};
}

/* While one thread naps 256 connections speak at once: twice as many events as the library asks
 * for. All wait for their answer, so no other event will come. */
static void test_all_at_once(void **state)
{
    struct listen_at where;
    struct http_conf c;
    struct http *many;
    struct err err = {};
    int fd[256], nap;

    (void)state;
    assert_ok(listen_open("127.0.0.1:0", true, &where, &err), &err);
    c = conf_with(&where);
    c.threads = 1;
    c.connections = 300;
    c.per_address = 0;
    c.request_time_ns = 30 * NS_PER_S;
    assert_ok(http_start(&c, &many, &err), &err);
    nap = dial_at(&where);
    for (size_t i = 0; i < 256; i++) { /* each is known to its thread */
        fd[i] = dial_at(&where);
        say(fd[i], "GET /echo?a=1 HTTP/1.1\r\n" H "\r\n");
        expect(hear(fd[i], 3000), "a=1");
    }
    say(nap, "GET /nap HTTP/1.1\r\n" H "\r\n");
    (void)usleep(50000);
    for (size_t i = 0; i < 256; i++)
        say(fd[i], "GET /echo?b=2 HTTP/1.1\r\n" H "\r\n");
    for (size_t i = 0; i < 256; i++)
        expect(hear(fd[i], 3000), "b=2");
    expect(hear(nap, 3000), "awake");
    for (size_t i = 0; i < 256; i++)
        (void)close(fd[i]);
    (void)close(nap);
    assert_null(http_stop(many, 5 * NS_PER_S));
}

/* A path that is a secret: beside it there is nothing. */
static void test_base_only(void **state)
{
    struct listen_at where;
    struct http_conf c;
    struct http *only;
    struct err err = {};
    int fd;

    (void)state;
    assert_ok(listen_open("127.0.0.1:0", true, &where, &err), &err);
    c = conf_with(&where);
    c.base_only = true;
    assert_ok(http_start(&c, &only, &err), &err);
    fd = dial_at(&where);
    say(fd, "GET /base/echo?a=1 HTTP/1.1\r\n" H "\r\n");
    expect(hear(fd, 3000), "a=1");
    say(fd, "GET /echo?a=1 HTTP/1.1\r\n" H "\r\n");
    expect(hear(fd, 3000), " 404 ");
    (void)close(fd);
    fd = dial_at(&where);
    say(fd, "GET /basex/echo HTTP/1.1\r\n" H "\r\n");
    expect(hear(fd, 3000), " 404 ");
    (void)close(fd);
    assert_null(http_stop(only, 5 * NS_PER_S));
}

/* The thread that stops a server takes its time over the library's epoll sets, so that the
 * library's own threads come in between. */
static _Thread_local bool dawdle;

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's are reserved
int epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
    if (dawdle)
        (void)usleep(3000);
    return (int)syscall(SYS_epoll_ctl, set, op, fd, event);
}

static atomic_bool come_and_go;

static void *visitor_main(void *arg)
{
    static const char ask[] = "GET /echo?a=1 HTTP/1.1\r\n" H "\r\n";

    while (atomic_load(&come_and_go)) {
        int fd = dial_maybe(arg);

        if (fd < 0)
            continue;
        (void)!send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL);
        (void)usleep(500);
        (void)close(fd);
    }
    return NULL;
}

/* Peers come, ask and go while the server ends: what runs is finished, what comes is turned away.
 */
static void test_stop(void **state)
{
    struct listen_at where;
    struct http_conf c;
    struct http *busy;
    struct err err = {};
    pthread_t visitor[4];
    int kept, slow;

    (void)state;
    for (int round = 0; round < 5; round++) {
        assert_ok(listen_open("127.0.0.1:0", true, &where, &err), &err);
        c = conf_with(&where);
        assert_ok(http_start(&c, &busy, &err), &err);
        kept = dial_at(&where);
        slow = dial_at(&where);
        say(kept, "GET /echo?a=1 HTTP/1.1\r\n" H "\r\n");
        expect(hear(kept, 3000), "a=1");
        atomic_store(&started, 0);
        atomic_store(&hold, true);
        say(slow, "GET /slow HTTP/1.1\r\n" H "\r\n");
        while (!atomic_load(&started))
            (void)usleep(1000);
        atomic_store(&come_and_go, true);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(thread_start(&visitor[i], "visitor", 0, visitor_main, &where), 0);
        (void)usleep(20000);
        dawdle = true;
        assert_null(http_stop(busy, 5 * NS_PER_S));
        dawdle = false;
        atomic_store(&come_and_go, false);
        for (size_t i = 0; i < 4; i++)
            (void)pthread_join(visitor[i], NULL);
        expect(hear(slow, 3000), "slow");
        (void)close(slow);
        (void)close(kept);
    }
}

static int setup(void **state)
{
    struct err err = {};
    struct http_conf c;

    (void)state;
    assert_ok(auth_load("", &auth, &err), &err);
    assert_ok(listen_open("127.0.0.1:0", true, &at, &err), &err);
    assert_ok(work_start(2, 1, &work, &err), &err);
    c = conf_with(&at);
    assert_ok(http_start(&c, &http, &err), &err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_null(http_stop(http, 5 * NS_PER_S));
    work_stop(work);
    auth_free(auth);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get),         cmocka_unit_test(test_head_304_gzip),
        cmocka_unit_test(test_form),        cmocka_unit_test(test_one_length),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_async),
        cmocka_unit_test(test_keep_alive),  cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_pool),        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_slow_sender), cmocka_unit_test(test_per_address),
        cmocka_unit_test(test_spare),       cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_base_only),   cmocka_unit_test(test_stop),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
