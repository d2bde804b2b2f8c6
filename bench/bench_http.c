// SPDX-License-Identifier: Apache-2.0
/*
 * What does a sample cost from its bytes on a socket until it is sealed?
 *
 * stratad in a child, 32 senders on keep-alive connections, one batch in flight each: rows of 300
 * known stacks, 100, 300, 1,000 and 16,000 to a batch. CPU time is the child's, from its first
 * measured batch to its exit (which seals), less what an empty server costs to end. Beside it, in
 * this process: inflating, decoding and counting the same bytes, and the same rows as rows of
 * SQLite with an index over (svc, type, ts).
 *
 *   value,NAME,VALUE,UNIT,N       NAME ends in the rows per batch
 */
#include <argp.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench_data.h"
#include "bench/bench_stream.h"
#include "proto/wire.h"

enum {
    SENDERS = 32,
    SAMPLES = 2000000, /* per size */
};

struct options {
    const char *dir, *stratad;
    uint32_t rows; /* this size alone; 0: all, and SQLite */
    bool smoke;
};

static void value(const char *name, uint32_t rows, double v, const char *unit, uint64_t n)
{
    (void)printf("value,%s_%u,%.6g,%s,%" PRIu64 "\n", name, rows, v, unit, n);
    (void)fflush(stdout);
}

/* ---- the server ------------------------------------------------------------------------------ */

struct child {
    pid_t pid;
    uint16_t port;
    char *dir;
};

static struct child server_start(const struct options *o)
{
    struct child c = {};
    char line[256];
    uint64_t port = 0;
    struct str s;
    FILE *f;
    int p[2];

    if (asprintf(&c.dir, "%s/bench_http.XXXXXX", o->dir) < 0 || !mkdtemp(c.dir))
        data_die("%s: no data directory can be made (--dir)", o->dir);
    if (pipe2(p, O_CLOEXEC) < 0)
        data_die("pipe: %s", strerrordesc_np(errno));
    c.pid = fork();
    if (c.pid < 0)
        data_die("fork: %s", strerrordesc_np(errno));
    if (c.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_WRONLY);

        (void)dup2(p[1], STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO); /* what it logs of starting and stopping */
        (void)execl(o->stratad, o->stratad, "--listen", "127.0.0.1:0", "--data", c.dir, "-o",
                    "ingest.connections_per_address=1000", "-o", "ingest.rate=0B", (char *)NULL);
        _exit(127);
    }
    (void)close(p[1]);
    f = fdopen(p[0], "r");
    if (!f || !fgets(line, sizeof line, f))
        data_die("%s does not start", o->stratad);
    (void)fclose(f);
    s = str_c(line);
    s = str_to(s, str_rfind(s, '/'));
    if (!str_u64(str_from(s, str_rfind(s, ':') + 1), &port))
        data_die("the server's first line is not known: %s", line);
    c.port = (uint16_t)port;
    return c;
}

/* CPU of a running child. */
static double server_cpu_ns(const struct child *c)
{
    clockid_t clock;
    struct timespec t;

    if (clock_getcpuclockid(c->pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        data_die("the server's clock cannot be read");
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static bool sealed_any;

static int note_shard(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type == FTW_F && st->st_size > 0 && strstr(path, "/shard/"))
        sealed_any = true;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

/* Ends it; returns its CPU time in all. */
static double server_stop(struct child *c, bool *ret_sealed)
{
    struct rusage use;
    int status = 0;

    (void)kill(c->pid, SIGTERM);
    if (wait4(c->pid, &status, 0, &use) != c->pid || !WIFEXITED(status) || WEXITSTATUS(status))
        data_die("the server ended with status %d", status);
    sealed_any = false;
    (void)nftw(c->dir, note_shard, 16, FTW_PHYS);
    *ret_sealed = sealed_any;
    (void)nftw(c->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(c->dir);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e9 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e3;
}

/* ---- senders --------------------------------------------------------------------------------- */

struct sender {
    struct stream stream;
    int fd;
    uint32_t n;
    struct buf *body; /* 0: the definitions */
};

static int dial(uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
        data_die("connect: %s", strerrordesc_np(errno));
    return fd;
}

static void send_all(int fd, const char *p, size_t n, int flags)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL | flags);

        if (k < 0)
            data_die("send: %s", strerrordesc_np(errno));
        p += k;
        n -= (size_t)k;
    }
}

static void post(const struct sender *s, uint32_t i)
{
    char head[256];
    int n = snprintf(head, sizeof head,
                     "POST /api/v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n"
                     "Content-Encoding: zstd\r\nContent-Length: %zu\r\n\r\n",
                     WIRE_MEDIA_TYPE, s->body[i].n);

    send_all(s->fd, head, (size_t)n, MSG_MORE);
    send_all(s->fd, s->body[i].p, s->body[i].n, 0);
}

/* Waits for a whole answer, which must be a 200. */
static void answered(const struct sender *s)
{
    char in[4096];
    size_t got = 0;

    for (;;) {
        ssize_t k = recv(s->fd, in + got, sizeof in - 1 - got, 0);
        const char *body, *length;
        uint64_t n = 0;

        if (k <= 0)
            data_die("a connection was closed");
        got += (size_t)k;
        in[got] = '\0';
        body = strstr(in, "\r\n\r\n");
        if (!body)
            continue;
        length = strcasestr(in, "Content-Length: ");
        if (memcmp(in, "HTTP/1.1 200", 12) != 0)
            data_die("refused: %.60s", in);
        if (!length || !str_u64((struct str){length + 16, strcspn(length + 16, "\r")}, &n))
            data_die("an answer without a length");
        if (got >= (size_t)(body + 4 - in) + n)
            return;
    }
}

/* Bodies [first, last) of every sender. All are asked before the first answer is awaited. */
static void send_range(struct sender *s, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++) {
        for (uint32_t k = 0; k < SENDERS; k++)
            post(&s[k], i);
        for (uint32_t k = 0; k < SENDERS; k++)
            answered(&s[k]);
    }
}

static struct sender *senders_make(uint32_t rows, uint32_t batches)
{
    struct sender *s = data_alloc(SENDERS, sizeof *s);
    real_ns now = real_now();

    for (uint32_t k = 0; k < SENDERS; k++) {
        stream_init(&s[k].stream, k, rows);
        s[k].n = batches;
        s[k].body = data_alloc(batches, sizeof *s[k].body);
        for (uint32_t i = 0; i < batches; i++) {
            int64_t t0 = now.v / NS_PER_S * NS_PER_S - (int64_t)(batches + 10 - i) * NS_PER_S;

            stream_next(&s[k].stream, (real_ns){t0}, NS_PER_S, true);
            buf_init(&s[k].body[i], 64 << 20);
            buf_add(&s[k].body[i], s[k].stream.payload.p, s[k].stream.payload.n);
        }
    }
    return s;
}

static void senders_free(struct sender *s)
{
    for (uint32_t k = 0; k < SENDERS; k++) {
        for (uint32_t i = 0; i < s[k].n; i++)
            buf_deinit(&s[k].body[i]);
        free(s[k].body);
        stream_deinit(&s[k].stream);
    }
    free(s);
}

/* ---- what it is compared with ---------------------------------------------------------------- */

static double decode_ns(const struct sender *s, uint64_t *ret_rows)
{
    struct wire_limits l;
    struct arena a;
    struct buf plain;
    uint64_t rows = 0;
    double begun;

    wire_limits_default(&l);
    arena_init(&a, l.arena);
    buf_init(&plain, l.inflated);
    begun = data_thread_cpu_ns();
    for (uint32_t k = 0; k < SENDERS; k++)
        for (uint32_t i = 1; i < s[k].n; i++) {
            struct err err = {};
            struct batch b;

            buf_reset(&plain);
            arena_reset(&a);
            if (wire_inflate(buf_view(&s[k].body[i]), &l, &plain, NULL, &err) < 0 ||
                wire_decode(buf_view(&plain), &l, real_now(), &a, &b, NULL, NULL, &err) < 0)
                data_die("decode: %s", err.msg);
            for (uint32_t j = 0; j < b.n_stream; j++)
                rows += b.stream[j].rows.n;
        }
    begun = data_thread_cpu_ns() - begun;
    arena_deinit(&a);
    buf_deinit(&plain);
    *ret_rows = rows;
    return begun;
}

static void sql(sqlite3 *db, const char *text)
{
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
        data_die("SQLite: %s", sqlite3_errmsg(db));
}

/* A transaction of 10,000 rows each, as a careful program would. */
static double sqlite_ns(const char *below, uint64_t rows)
{
    char path[4096];
    sqlite3_stmt *q = NULL;
    uint64_t seed = 1;
    sqlite3 *db;
    double begun;

    (void)snprintf(path, sizeof path, "%s/bench_http_rows.db", below);
    (void)unlink(path);
    if (sqlite3_open(path, &db) != SQLITE_OK)
        data_die("%s: %s", path, sqlite3_errmsg(db));
    begun = data_thread_cpu_ns();
    sql(db, "PRAGMA journal_mode=WAL");
    sql(db, "PRAGMA synchronous=FULL");
    sql(db, "CREATE TABLE sample(type INTEGER, svc INTEGER, series INTEGER, ts INTEGER,"
            " stack INTEGER, value INTEGER)");
    sql(db, "CREATE INDEX by_time ON sample(svc, type, ts)");
    if (sqlite3_prepare_v2(db, "INSERT INTO sample VALUES(1, ?, ?, ?, ?, 10000000)", -1, &q, NULL))
        data_die("SQLite: %s", sqlite3_errmsg(db));
    for (uint64_t i = 0; i < rows; i++) {
        if (i % 10000 == 0)
            sql(db, "BEGIN");
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        (void)sqlite3_bind_int64(q, 1, (sqlite3_int64)(i / 1000 % SENDERS));
        (void)sqlite3_bind_int64(q, 2, (sqlite3_int64)(i / 1000 % SENDERS));
        (void)sqlite3_bind_int64(q, 3, (sqlite3_int64)(i / SENDERS));
        (void)sqlite3_bind_int64(q, 4, (sqlite3_int64)(seed >> 33) % STREAM_STACKS);
        if (sqlite3_step(q) != SQLITE_DONE || sqlite3_reset(q) != SQLITE_OK)
            data_die("SQLite: %s", sqlite3_errmsg(db));
        if (i % 10000 == 9999 || i + 1 == rows)
            sql(db, "COMMIT");
    }
    begun = data_thread_cpu_ns() - begun;
    (void)sqlite3_finalize(q);
    (void)sqlite3_close(db);
    (void)unlink(path);
    return begun;
}

/* ---- the question ---------------------------------------------------------------------------- */

static void measure(const struct options *o, uint32_t rows, double *best)
{
    uint32_t batches = (o->smoke ? 100000 : SAMPLES) / rows / SENDERS;
    struct sender *s;
    struct child c;
    uint64_t n, bytes = 0;
    double end, begun, durable, all, decode, wall;
    bool sealed;

    batches = (batches > 3000 ? 3000 : batches ? batches : 1) + 1;
    s = senders_make(rows, batches);
    c = server_start(o);
    for (uint32_t k = 0; k < SENDERS; k++)
        s[k].fd = dial(c.port);
    send_range(s, 0, 1);
    end = server_cpu_ns(&c); /* definitions alone: what starting and they cost */
    end = server_stop(&c, &sealed) - end;
    c = server_start(o);
    for (uint32_t k = 0; k < SENDERS; k++) {
        (void)close(s[k].fd);
        s[k].fd = dial(c.port);
    }
    send_range(s, 0, 1);
    begun = server_cpu_ns(&c);
    wall = data_wall_ns();
    send_range(s, 1, batches);
    wall = data_wall_ns() - wall;
    durable = server_cpu_ns(&c) - begun;
    for (uint32_t k = 0; k < SENDERS; k++)
        (void)close(s[k].fd);
    all = server_stop(&c, &sealed) - begun - end;
    decode = decode_ns(s, &n);
    for (uint32_t k = 0; k < SENDERS; k++)
        for (uint32_t i = 1; i < batches; i++)
            bytes += s[k].body[i].n;
    value("http_bytes", rows, (double)bytes / (double)n, "B per sample", n);
    value("http_rate", rows, (double)n * 1e9 / wall, "samples per second", n);
    value("http_durable", rows, durable / (double)n, "ns per sample", n);
    if (sealed)
        value("http_sealed", rows, all / (double)n, "ns per sample", n);
    value("http_decode", rows, decode / (double)n, "ns per sample", n);
    if (rows == 1000)
        *best = (double)n;
    senders_free(s);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    uint64_t n;

    switch (key) {
    case 'd':
        o->dir = arg;
        return 0;
    case 'b':
        o->stratad = arg;
        return 0;
    case 's':
        o->smoke = true;
        return 0;
    case 'r':
        if (str_u64(str_c(arg), &n) && n > 0 && n <= SAMPLES / SENDERS) {
            o->rows = (uint32_t)n;
            return 0;
        }
        argp_error(state, "--rows %s: 1 to %d", arg, SAMPLES / SENDERS);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"stratad", 'b', "PROGRAM", 0, "the server", 0},
        {"dir", 'd', "DIR", 0, "where data directories are made, on a disk; default /var/tmp", 0},
        {"rows", 'r', "N", 0, "batches of N rows alone, without SQLite", 0},
        {"smoke", 's', NULL, 0, "the least that shows it works", 0},
        {},
    };
    static const uint32_t sizes[] = {1000, 100, 300, 16000};
    const struct argp argp = {.options = options, .parser = parse};
    struct options o = {.dir = "/var/tmp"};
    double n = 0;

    if (argp_parse(&argp, argc, argv, 0, NULL, &o) != 0 || !o.stratad)
        data_die("--stratad is missing: the server's program");
    for (int turn = 0; turn < (o.smoke ? 1 : 3); turn++) {
        if (o.rows) {
            measure(&o, o.rows, &n);
            continue;
        }
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            measure(&o, sizes[i], &n);
        value("sqlite_rows_index", 1000, sqlite_ns(o.dir, (uint64_t)n) / n, "ns per sample",
              (uint64_t)n);
    }
    return 0;
}
