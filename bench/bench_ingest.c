// SPDX-License-Identifier: Apache-2.0
/*
 * What does a durable batch cost, and what does it gain that nobody waits inside the append?
 *
 *   1  1,000-row batches of 64 senders, one in flight each, until their 200: batches and samples
 *      per second and per CPU-second of the server, time of the answer; and beside it, in this
 *      process, inflating, decoding and counting the same rows, which is the floor.
 *   2  4 KiB batches of 256 senders against two servers with event pools of the same size, in
 * turns: one suspends a request until the store calls back, the other blocks its event thread, as a
 *      thread-per-request handler would. Wanted: the first takes 4 times as many batches, by the
 *      median of the turns; else the exit status is 1. The client's CPU time is beside the
 * server's: on two CPUs the first server has one of them.
 *
 * Servers are child processes (this program again, or stratad for 1 if it is given), so that their
 * CPU time is theirs alone. The data directory lies below --dir, on a disk, not on tmpfs.
 */
#include <argp.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/time.h"
#include "proto/wire.h"
#include "server/http.h"
#include "server/ingest.h"
#include "server/listen.h"
#include "server/pool.h"
#include "storage/store.h"

#define MAX_CONN 256
#define TURNS    11 /* of question 2; the median counts */
#define MIB      (UINT64_C(1) << 20)

static void die(const char *what)
{
    (void)fprintf(stderr, "bench_ingest: %s: %s\n", what, strerrordesc_np(errno));
    exit(1); // NOLINT(concurrency-mt-unsafe): one thread
}

static void die_err(const char *what, const struct err *err)
{
    (void)fprintf(stderr, "bench_ingest: %s: %s\n", what, err->msg);
    exit(1); // NOLINT(concurrency-mt-unsafe): one thread
}

/* ---- batches ------------------------------------------------------------------------------- */

enum {
    STACKS = 400, /* leaves of one service, 24 frames deep with shared callers */
    DEPTH = 24,
    FUNCTIONS = 600,
};

/* Sizes of one kind of batch. */
struct shape {
    uint32_t rows, stacks;
    bool values; /* of their own, so that a row is some ten bytes that do not compress */
};

/* A tree of stacks, the same for every sender: names and nodes are made once. */
struct model {
    struct arena arena;
    uint32_t n_str, n_fn, n_frame, n_node;
    struct str *str;
    struct batch_fn *fn;
    struct batch_frame *frame;
    struct batch_node *node;
    uint32_t leaf[STACKS];
};

static uint64_t rnd(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(*state);
}

enum {
    S_NONE = 0,
    S_SERVICE,
    S_NAME,
    S_BIN,
    S_THREAD,
    S_FIRST
};

static void model_make(struct model *m, uint32_t stacks)
{
    uint64_t seed = 7;
    char text[64];

    arena_init(&m->arena, 64 * MIB);
    m->str = arena_array(&m->arena, struct str, S_FIRST + FUNCTIONS);
    m->fn = arena_array(&m->arena, struct batch_fn, FUNCTIONS + 1);
    m->frame = arena_array(&m->arena, struct batch_frame, FUNCTIONS + 1);
    m->node = arena_array(&m->arena, struct batch_node, stacks * DEPTH + 1);
    m->str[S_SERVICE] = STR("service");
    m->str[S_NAME] = STR("bench");
    m->str[S_BIN] = STR("/usr/bin/bench");
    m->str[S_THREAD] = STR("worker");
    m->n_str = S_FIRST;
    m->n_fn = m->n_frame = m->n_node = 1;
    for (uint32_t i = 0; i < FUNCTIONS; i++) {
        (void)snprintf(text, sizeof text, "module_%u::function_with_a_name_%u", i % 23, i);
        m->str[m->n_str] = arena_str(&m->arena, str_c(text));
        m->fn[m->n_fn] = (struct batch_fn){.name = m->n_str++};
        m->frame[m->n_frame++] = (struct batch_frame){
            .kind = FRAME_NATIVE, .fn = m->n_fn++, .bin = 1, .addr = 0x1000 + 16 * (uint64_t)i};
    }
    for (uint32_t s = 0; s < stacks; s++) {
        /* half of each stack is that of the one before */
        uint32_t at = 0, from = 0;

        if (s) {
            at = m->leaf[s - 1];
            for (uint32_t up = 0; up < DEPTH / 2; up++)
                at = m->node[at].parent;
            from = DEPTH / 2;
        }
        for (uint32_t d = from; d < DEPTH; d++) {
            m->node[m->n_node] =
                (struct batch_node){.parent = at, .frame = 1 + (uint32_t)(rnd(&seed) % FUNCTIONS)};
            at = m->n_node++;
        }
        m->leaf[s] = at;
    }
}

struct payload {
    struct buf b;
    bool complete;
};

static bool known_all(void *ctx, uint64_t hash)
{
    (void)ctx, (void)hash;
    return true;
}

/* The seq-th batch of a sender; every one but the first speaks of nodes that the server holds. */
static void payload_make(struct model *m, const struct shape *shape, uint32_t sender, uint64_t seq,
                         real_ns now, struct payload *ret)
{
    static const uint32_t label[] = {S_SERVICE, S_NAME};
    static const struct batch_bin bins[] = {{}, {.path = S_BIN}};
    const int64_t second = NS_PER_S;
    struct arena a;
    struct batch b = {}, out;
    struct batch_stream *st;
    struct batch_target *target;
    struct batch_labels *labels;
    struct err err = {};
    struct buf plain;
    real_ns *t;
    uint32_t *node, *tid, *thread;
    int64_t *value;
    uint64_t *count, seed = sender * UINT64_C(1000003) + seq, sum = 0;

    arena_init(&a, 64 * MIB);
    st = arena_new(&a, struct batch_stream);
    target = arena_array(&a, struct batch_target, 2);
    labels = arena_array(&a, struct batch_labels, 1);
    t = arena_array(&a, real_ns, shape->rows);
    node = arena_array(&a, uint32_t, shape->rows);
    tid = arena_array(&a, uint32_t, shape->rows);
    thread = arena_array(&a, uint32_t, shape->rows);
    count = arena_array(&a, uint64_t, shape->rows);
    value = arena_array(&a, int64_t, shape->rows);
    /* ten seconds of samples, folded per second, the newest a minute old */
    st->covers.t0.v = now.v / second * second - 60 * second - (int64_t)(2000 - seq) * 10 * second;
    st->covers.t1.v = st->covers.t0.v + 10 * second;
    for (uint32_t i = 0; i < shape->rows; i++) {
        t[i].v = st->covers.t0.v + (int64_t)(i * 10 / shape->rows) * second;
        node[i] = m->leaf[rnd(&seed) % shape->stacks];
        tid[i] = 1000 + (uint32_t)(rnd(&seed) % 16);
        thread[i] = S_THREAD;
        count[i] = 1 + rnd(&seed) % 5;
        value[i] = (int64_t)(rnd(&seed) >> 28);
        sum += count[i];
    }
    *target = (struct batch_target){};
    target[1] = (struct batch_target){
        .key = {.pidns = 1, .pid = 100 + sender, .start = {1}}, .exe = S_BIN, .comm = S_NAME};
    memcpy(target[1].key.host, &sender, sizeof sender);
    st->type = PTYPE_CPU;
    st->kind = KIND_SUM;
    st->target = 1;
    st->width = 1;
    st->state = SOURCE_OK;
    st->basis = shape->values ? BASIS_EVERY : BASIS_PERIODIC;
    st->period = shape->values ? 1 : 10 * NS_PER_MS;
    st->expected = st->received = sum;
    st->rows = (struct batch_rows){
        .n = shape->rows, .t = t, .node = node, .tid = tid, .thread = thread, .count = count};
    if (shape->values)
        st->rows.value = value;
    b = (struct batch){.id = {.seq = seq},
                       .clock = {.sent = now},
                       .label = {1, label},
                       .n_str = m->n_str,
                       .str = m->str,
                       .n_bin = 2,
                       .bin = bins,
                       .n_fn = m->n_fn,
                       .fn = m->fn,
                       .n_frame = m->n_frame,
                       .frame = m->frame,
                       .n_node = m->n_node,
                       .node = m->node,
                       .n_target = 2,
                       .target = target,
                       .n_labels = 1,
                       .labels = labels,
                       .n_stream = 1,
                       .stream = st};
    memcpy(b.id.agent, "bench-agent-", 12);
    memcpy(b.id.agent + 12, &sender, sizeof sender);
    memcpy(b.id.boot, &now.v, sizeof now.v);
    b.id.boot[15] = 1;

    ret->complete = seq == 1;
    if (m->node[1].hash == 0)
        for (uint32_t i = 1; i < m->n_node; i++)
            m->node[i].hash =
                node_hash(m->node[m->node[i].parent].hash, batch_frame_hash(&b, m->node[i].frame));
    if (batch_check(&b, &err) < 0)
        die_err("the bench's own batch", &err);
    out = b;
    if (!ret->complete) {
        b.id.content = hash_mix(seed); /* the digest of the complete form, which is not sent */
        if (wire_shorten(&b, known_all, NULL, &a, &out, &err) < 0)
            die_err("shorten", &err);
    }
    buf_init(&plain, 64 * MIB);
    buf_init(&ret->b, 64 * MIB);
    if (wire_encode(&out, &plain, NULL, &err) < 0 ||
        wire_compress(buf_view(&plain), &ret->b, &err) < 0)
        die_err("encode", &err);
    buf_deinit(&plain);
    arena_deinit(&a);
}

/* ---- a server of our own ------------------------------------------------------------------- */

static struct ingest *ingest;

static void on_async(void *ctx, const struct msg_request *q, struct msg_reply *r,
                     http_done_fn *done, void *done_ctx)
{
    (void)ctx;
    ingest_batch(ingest, q, r, done, done_ctx);
}

static void wake(void *sem)
{
    (void)sem_post(sem);
}

static void on_block(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    sem_t sem;

    (void)ctx;
    (void)sem_init(&sem, 0, 0);
    ingest_batch(ingest, q, r, wake, &sem);
    while (sem_wait(&sem) < 0)
        ;
    (void)sem_destroy(&sem);
}

static int serve(const char *mode, const char *dir, uint32_t threads)
{
    static struct pool pool = {.max = 384 * MIB};
    static const struct http_route async_route = {.path = "/api/v1/batch",
                                                  .allow = "POST",
                                                  .body = HTTP_INGEST,
                                                  .run = HTTP_ASYNC,
                                                  .start = on_async};
    static const struct http_route block_route = {
        .path = "/api/v1/batch", .allow = "POST", .body = HTTP_INGEST, .handle = on_block};
    struct ingest_conf ic = {.pool = &pool};
    struct store_conf sc = {.dir = dir,
                            .decode = ingest_replay,
                            .mem_head = 1024 * MIB,
                            .mem_dict = 256 * MIB,
                            .mem_cache = 64 * MIB,
                            .mem_query = 64 * MIB};
    struct http_conf hc = {.threads = threads,
                           .n_route = 1,
                           .ingest = &pool,
                           .base_path = "",
                           .hosts = "",
                           .ui_hash = "",
                           .header_max = 32 << 10,
                           .uri_max = 8 << 10,
                           .body_max = 16 * MIB,
                           .form_max = 1024,
                           .connections = MAX_CONN + 44, /* for which 4 threads are enough */
                           .idle_ns = 60 * NS_PER_S,
                           .request_time_ns = 60 * NS_PER_S,
                           .min_rate = 1};
    struct listen_at at = {};
    struct store *store = NULL;
    struct auth *auth = NULL;
    struct http *http = NULL;
    struct err err = {};
    sigset_t set;
    int sig;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    wire_limits_default(&ic.limits);
    ingest = ingest_new(&ic);
    sc.decode_ctx = ingest;
    sc.limits = ic.limits.batch;
    hc.route = strcmp(mode, "async") == 0 ? &async_route : &block_route;
    if (auth_load("", &auth, &err) < 0 || store_open(&sc, &store, &err) < 0 ||
        listen_open("127.0.0.1:0", true, &at, &err) < 0)
        die_err("serve", &err);
    ingest_set_store(ingest, store);
    hc.auth = auth;
    hc.listen_fd = at.fd;
    if (http_start(&hc, &http, &err) < 0)
        die_err("serve", &err);
    (void)printf("ready: http://%s/\n", at.text);
    (void)fflush(stdout);
    (void)sigwait(&set, &sig);
    (void)http_stop(http, 10 * NS_PER_S);
    store_close(store);
    ingest_free(ingest);
    auth_free(auth);
    return 0;
}

/* ---- its parent ---------------------------------------------------------------------------- */

struct child {
    pid_t pid;
    uint16_t port;
};

/* Start argv and wait for its line "ready: http://HOST:PORT/". */
static struct child child_start(char *const argv[])
{
    struct child c = {};
    char line[256];
    uint64_t port = 0;
    struct str s;
    FILE *f;
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0)
        die("pipe");
    c.pid = fork();
    if (c.pid < 0)
        die("fork");
    if (c.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(p[1], STDOUT_FILENO);
        (void)execv(argv[0], argv);
        _exit(127);
    }
    (void)close(p[1]);
    f = fdopen(p[0], "r");
    if (!f || !fgets(line, sizeof line, f))
        die("the server does not start");
    (void)fclose(f);
    s = str_c(line);
    s = str_to(s, str_rfind(s, '/'));
    if (!str_u64(str_from(s, str_rfind(s, ':') + 1), &port))
        die("the server's first line is not known");
    c.port = (uint16_t)port;
    return c;
}

/* CPU seconds of a running child, user and system (proc(5), stat: fields 14 and 15). */
static double child_cpu(const struct child *c)
{
    char path[64], text[1024];
    struct str s, f;
    uint64_t sum = 0, v;
    size_t n;
    FILE *file;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)c->pid);
    file = fopen(path, "re");
    if (!file)
        die(path);
    n = fread(text, 1, sizeof text, file);
    (void)fclose(file);
    s = (struct str){text, n};
    s = str_from(s, str_rfind(s, ')') + 2);
    for (int field = 3; s.n && field <= 15; field++) {
        size_t at = str_find(s, ' ');

        f = str_to(s, at);
        s = str_from(s, at + 1);
        if (field >= 14 && str_u64(f, &v))
            sum += v;
    }
    return (double)sum / (double)sysconf(_SC_CLK_TCK);
}

static void child_stop(const struct child *c)
{
    int status = 0;

    (void)kill(c->pid, SIGTERM);
    (void)waitpid(c->pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        (void)fprintf(stderr, "bench_ingest: the server ended with status %d\n", status);
}

/* ---- senders ------------------------------------------------------------------------------- */

struct sender {
    int fd;
    uint32_t next, n; /* of its payloads */
    struct payload *payload;
    char head[256], in[4096];
    size_t head_n, sent, got;
    mono_ns begun;
};

struct run {
    uint64_t batches;
    double seconds, cpu;
    uint32_t *us; /* of every answer, sorted at the end */
};

static void sender_send(struct sender *s)
{
    const struct buf *b = &s->payload[s->next].b;

    while (s->sent < s->head_n + b->n) {
        bool head = s->sent < s->head_n;
        const char *p = head ? s->head + s->sent : b->p + (s->sent - s->head_n);
        size_t left = head ? s->head_n - s->sent : b->n - (s->sent - s->head_n);
        ssize_t n = send(s->fd, p, left, MSG_NOSIGNAL | (head ? MSG_MORE : 0));

        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            die("send");
        s->sent += (size_t)n;
    }
}

static void sender_begin(struct sender *s)
{
    s->sent = s->got = 0;
    s->begun = mono_now();
    s->head_n = (size_t)snprintf(s->head, sizeof s->head,
                                 "POST /api/v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                                 "%s\r\nContent-Encoding: zstd\r\nContent-Length: %zu\r\n\r\n",
                                 WIRE_MEDIA_TYPE, s->payload[s->next].b.n);
    sender_send(s);
}

/* Is a whole answer there? It must be a 200. */
static bool sender_receive(struct sender *s)
{
    const char *body, *length;
    uint64_t n = 0;
    ssize_t got = recv(s->fd, s->in + s->got, sizeof s->in - 1 - s->got, 0);

    if (got < 0 && errno == EAGAIN)
        return false;
    if (got <= 0)
        die("a connection was closed");
    s->got += (size_t)got;
    s->in[s->got] = '\0';
    body = strstr(s->in, "\r\n\r\n");
    if (!body)
        return false;
    if (memcmp(s->in, "HTTP/1.1 200", 12) != 0) {
        (void)fprintf(stderr, "bench_ingest: refused: %s\n", s->in);
        exit(1); // NOLINT(concurrency-mt-unsafe): one thread
    }
    length = strcasestr(s->in, "Content-Length: ");
    if (!length || !str_u64((struct str){length + 16, strcspn(length + 16, "\r")}, &n))
        die("an answer without a length");
    return s->got >= (size_t)(body + 4 - s->in) + n;
}

static int dial(uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        die("socket");
    return fd;
}

static int u32_cmp(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static int double_cmp(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* All payloads [first, last) of every sender, one in flight each. */
static struct run senders_run(const struct child *c, struct sender *s, uint32_t n, uint32_t first,
                              uint32_t last)
{
    struct run r = {.us = calloc((size_t)n * (last - first), sizeof *r.us)};
    struct epoll_event ev[64];
    uint32_t open = n;
    int ep = epoll_create1(EPOLL_CLOEXEC);
    double cpu = child_cpu(c);
    mono_ns begun;

    if (ep < 0 || !r.us)
        die("epoll");
    for (uint32_t i = 0; i < n; i++) {
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = i};

        s[i].fd = dial(c->port);
        s[i].next = first;
        if (epoll_ctl(ep, EPOLL_CTL_ADD, s[i].fd, &e) < 0)
            die("epoll_ctl");
    }
    begun = mono_now();
    for (uint32_t i = 0; i < n; i++)
        sender_begin(&s[i]);
    while (open) {
        int k = epoll_wait(ep, ev, 64, 30000);

        if (k <= 0)
            die("no answer for 30 s");
        for (int i = 0; i < k; i++) {
            struct sender *one = &s[ev[i].data.u32];

            if (one->next == last)
                continue;
            sender_send(one);
            if (!sender_receive(one))
                continue;
            r.us[r.batches++] = (uint32_t)((mono_now().v - one->begun.v) / NS_PER_US);
            if (++one->next == last)
                open--;
            else
                sender_begin(one);
        }
    }
    r.seconds = (double)(mono_now().v - begun.v) / 1e9;
    r.cpu = child_cpu(c) - cpu;
    for (uint32_t i = 0; i < n; i++)
        (void)close(s[i].fd);
    (void)close(ep);
    qsort(r.us, r.batches, sizeof *r.us, u32_cmp);
    return r;
}

static struct sender *senders_make(struct model *m, const struct shape *shape, uint32_t n,
                                   uint32_t batches)
{
    struct sender *s = calloc(n, sizeof *s);
    real_ns now = real_now();

    if (!s)
        die("memory");
    for (uint32_t i = 0; i < n; i++) {
        s[i].n = batches;
        s[i].payload = calloc(batches, sizeof *s[i].payload);
        for (uint32_t k = 0; k < batches; k++)
            payload_make(m, shape, i, k + 1, now, &s[i].payload[k]);
    }
    return s;
}

static void senders_free(struct sender *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < s[i].n; k++)
            buf_deinit(&s[i].payload[k].b);
        free(s[i].payload);
    }
    free(s);
}

/* ---- figures ------------------------------------------------------------------------------- */

static double quantile_ms(const struct run *r, double q)
{
    return r->batches ? (double)r->us[(size_t)(q * (double)(r->batches - 1))] / 1e3 : 0;
}

static void print(const char *name, double value, const char *unit, uint64_t n)
{
    (void)printf("%s,%.3f,%s,%" PRIu64 ",,\n", name, value, unit, n);
    (void)fflush(stdout);
}

/* The floor: the same bytes inflated, decoded, and their rows counted; nothing is kept. */
static void print_decode(const struct sender *s, uint32_t n, uint32_t first, uint32_t last)
{
    struct wire_limits l;
    struct arena a;
    struct buf plain;
    struct timespec t0, t1;
    uint64_t batches = 0, rows = 0;
    double cpu;

    wire_limits_default(&l);
    arena_init(&a, l.arena);
    buf_init(&plain, l.inflated);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = first; k < last; k++) {
            struct err err = {};
            struct batch b;

            buf_reset(&plain);
            arena_reset(&a);
            if (wire_inflate(buf_view(&s[i].payload[k].b), &l, &plain, NULL, &err) < 0 ||
                wire_decode(buf_view(&plain), &l, real_now(), &a, &b, NULL, NULL, &err) < 0)
                die_err("decode", &err);
            batches++;
            for (uint32_t j = 0; j < b.n_stream; j++)
                rows += b.stream[j].rows.n;
        }
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
    cpu = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9;
    print("decode_count_batches_per_cpu_second", (double)batches / cpu, "1/s", batches);
    print("decode_count_samples_per_cpu_second", (double)rows / cpu, "1/s", rows);
    arena_deinit(&a);
    buf_deinit(&plain);
}

static void print_durable(const struct run *r, uint32_t rows, uint64_t bytes)
{
    uint64_t samples = r->batches * rows;

    print("durable_batch_bytes", (double)bytes / (double)r->batches, "B", r->batches);
    print("durable_batches_per_second", (double)r->batches / r->seconds, "1/s", r->batches);
    print("durable_samples_per_second", (double)samples / r->seconds, "1/s", samples);
    print("durable_cpu_seconds", r->cpu, "s", r->batches);
    print("durable_batches_per_cpu_second", (double)r->batches / r->cpu, "1/s", r->batches);
    print("durable_samples_per_cpu_second", (double)samples / r->cpu, "1/s", samples);
    (void)printf("durable_answer,%.3f,ms,%" PRIu64 ",%.3f,%.3f\n", quantile_ms(r, 0.5), r->batches,
                 quantile_ms(r, 0.5), quantile_ms(r, 0.99));
}

/* ---- the two questions --------------------------------------------------------------------- */

struct options {
    const char *dir, *stratad;
    char *self;
    bool smoke;
    uint32_t threads;
    const char *serve;
};

static char *dir_make(const char *below)
{
    char *path = NULL;

    if (asprintf(&path, "%s/bench_ingest.XXXXXX", below) < 0 || !mkdtemp(path))
        die("cannot make a data directory (--dir)");
    return path;
}

static void dir_remove(char *path)
{
    pid_t pid = fork();

    if (pid == 0) {
        (void)execlp("rm", "rm", "-rf", path, (char *)NULL);
        _exit(127);
    }
    (void)waitpid(pid, NULL, 0);
    free(path);
}

/* argv of execv() is not const, and is not written either. */
static char *arg(const char *s)
{
    return (char *)(uintptr_t)s;
}

static struct child server_start(const struct options *o, const char *mode, char *dir)
{
    char threads[16];
    char *const own[] = {o->self, arg("--serve"),   arg(mode), arg("--dir"),
                         dir,     arg("--threads"), threads,   NULL};

    (void)snprintf(threads, sizeof threads, "%u", o->threads);
    return child_start(own);
}

static struct child stratad_start(const struct options *o, char *dir)
{
    char *const argv[] = {arg(o->stratad),
                          arg("--listen"),
                          arg("127.0.0.1:0"),
                          arg("--data"),
                          dir,
                          arg("-o"),
                          arg("ingest.connections_per_address=1000"),
                          NULL};

    return child_start(argv);
}

static void bench_durable(const struct options *o)
{
    const struct shape shape = {.rows = 1000, .stacks = STACKS};
    const uint32_t n = o->smoke ? 8 : 64, batches = o->smoke ? 4 : 60;
    struct model m = {};
    char *dir = dir_make(o->dir);
    struct sender *s;
    struct child c;
    struct run warm, r;
    uint64_t bytes = 0;

    model_make(&m, shape.stacks);
    s = senders_make(&m, &shape, n, batches);
    c = o->stratad ? stratad_start(o, dir) : server_start(o, "async", dir);
    warm = senders_run(&c, s, n, 0, 1); /* definitions: each sender's first batch */
    r = senders_run(&c, s, n, 1, batches);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 1; k < batches; k++)
            bytes += s[i].payload[k].b.n;
    print_durable(&r, shape.rows, bytes);
    print_decode(s, n, 1, batches);
    child_stop(&c);
    free(warm.us);
    free(r.us);
    senders_free(s, n);
    arena_deinit(&m.arena);
    dir_remove(dir);
}

/* Both servers at once, their turns interleaved, so that a slow minute of the machine hits both. */
static int bench_append(const struct options *o)
{
    static const char *const mode[] = {"async", "block"};
    /* about 4 KiB as agents fill them: most rows name a stack of their own */
    const struct shape shape = {.rows = 264, .stacks = STACKS, .values = true};
    const uint32_t n = o->smoke ? 16 : MAX_CONN, turns = o->smoke ? 1 : TURNS,
                   each = o->smoke ? 2 : 4;
    struct model m = {};
    struct sender *s;
    double batches[2] = {}, seconds[2] = {}, cpu[2] = {}, ratio[TURNS];
    char *dir[2];
    struct child c[2];

    model_make(&m, shape.stacks);
    s = senders_make(&m, &shape, n, 1 + turns * each);
    for (int k = 0; k < 2; k++) {
        struct run warm;

        dir[k] = dir_make(o->dir);
        c[k] = server_start(o, mode[k], dir[k]);
        warm = senders_run(&c[k], s, n, 0, 1);
        free(warm.us);
    }
    for (uint32_t turn = 0; turn < turns; turn++) {
        double rate[2];

        for (int k = 0; k < 2; k++) {
            struct run r = senders_run(&c[k], s, n, 1 + turn * each, 1 + (turn + 1) * each);

            batches[k] += (double)r.batches;
            seconds[k] += r.seconds;
            cpu[k] += r.cpu;
            rate[k] = (double)r.batches / r.seconds;
            (void)printf("append_%s_answer,%.3f,ms,%" PRIu64 ",%.3f,%.3f\n", mode[k],
                         quantile_ms(&r, 0.5), r.batches, quantile_ms(&r, 0.5),
                         quantile_ms(&r, 0.99));
            free(r.us);
        }
        ratio[turn] = rate[0] / rate[1];
    }
    print("append_batch_bytes", (double)s[0].payload[1].b.n, "B", 1);
    for (int k = 0; k < 2; k++) {
        char name[64];

        (void)snprintf(name, sizeof name, "append_%s_batches_per_second", mode[k]);
        print(name, batches[k] / seconds[k], "1/s", (uint64_t)batches[k]);
        (void)snprintf(name, sizeof name, "append_%s_batches_per_cpu_second", mode[k]);
        print(name, batches[k] / cpu[k], "1/s", (uint64_t)batches[k]);
        child_stop(&c[k]);
        dir_remove(dir[k]);
    }
    qsort(ratio, turns, sizeof *ratio, double_cmp);
    (void)printf("append_async_over_block,%.3f,ratio,%u,%.3f,%.3f\n", ratio[turns / 2], turns,
                 ratio[turns / 2], ratio[turns - 1]);
    senders_free(s, n);
    arena_deinit(&m.arena);
    if (o->smoke || ratio[turns / 2] >= 4)
        return 0;
    (void)fprintf(stderr, "bench_ingest: append_async_over_block is %.2f, wanted is 4 at least\n",
                  ratio[turns / 2]);
    return 1;
}

enum {
    OPT_SERVE = 256,
    OPT_DIR,
    OPT_THREADS,
    OPT_SMOKE,
    OPT_STRATAD
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    uint64_t v = 0;

    switch (key) {
    case OPT_SERVE:
        o->serve = arg;
        return 0;
    case OPT_DIR:
        o->dir = arg;
        return 0;
    case OPT_THREADS:
        if (!str_u64(str_c(arg), &v) || !v || v > 64)
            argp_error(state, "--threads is 1 to 64");
        o->threads = (uint32_t)v;
        return 0;
    case OPT_SMOKE:
        o->smoke = true;
        return 0;
    case OPT_STRATAD:
        o->stratad = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"smoke", OPT_SMOKE, NULL, 0, "the least that shows it works", 0},
        {"dir", OPT_DIR, "DIR", 0, "where data directories are made; default /var/tmp", 0},
        {"threads", OPT_THREADS, "N", 0, "event threads of both servers of question 2; default 4",
         0},
        {"stratad", OPT_STRATAD, "PROGRAM", 0, "the server of question 1", 0},
        {"serve", OPT_SERVE, "async|block", OPTION_HIDDEN, NULL, 0},
        {},
    };
    const struct argp argp = {.options = options, .parser = parse};
    struct options o = {.dir = "/var/tmp", .threads = 4};

    if (argp_parse(&argp, argc, argv, 0, NULL, &o) != 0)
        return 2;
    if (o.serve)
        return serve(o.serve, o.dir, o.threads);
    o.self = realpath("/proc/self/exe", NULL);
    if (!o.self)
        die("/proc/self/exe");
    (void)puts("name,value,unit,n,p50,p99");
    bench_durable(&o);
    return bench_append(&o);
}
