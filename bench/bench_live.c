// SPDX-License-Identifier: Apache-2.0
/*
 * What does a store that takes samples cost in memory, and whom does it keep waiting?
 *
 *   head     bytes in memory per sample, by malloc's own count, of the whole workload (R1: 10 M
 *            samples, 200 services, 4.6 M nodes) in one head that nobody seals: rows, id maps and
 *            names. A tenth of it comes again an hour later, with stacks that are all known: that
 *            is what rows alone take; the rest is told by node. The first samples of a workload
 *            say less: they bring all functions and few rows
 *   query    flame graphs of single services, one after another, while 0, 200,000 and 1,000,000
 *            samples a second arrive in batches of 1,000 rows (200 senders); p50 and p99
 *   answer   20 MB/s as 600 batches of 32 KiB with 1,000 rows each, sealed every second: time until
 *            the answer, against the median of a lone commit of 64 KiB, both in turn
 *
 * Batches come through store_append of this process: decoding is not in it (bench_http has it).
 * Prints value and quantiles lines; bench_store.py drives it.
 *
 *   value,NAME,VALUE,UNIT,N        quantiles,NAME,P50_NS,P99_NS,N
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "bench/bench_store.h"
#include "bench/bench_stream.h"
#include "server/msg.h"
#include "storage/keep/store_private.h"

struct options {
    const char *dir, *data;
    uint32_t seconds;
    bool smoke;
};

enum {
    SENDERS = 200,
    ROWS = 1000,
    IN_FLIGHT = 64, /* beyond, the sender waits: what is offered is more than is taken */
    BIG = 32 << 10,
};

static void value(const char *name, double v, const char *unit, uint64_t n)
{
    (void)printf("value,%s,%.6g,%s,%" PRIu64 "\n", name, v, unit, n);
    (void)fflush(stdout);
}

static int double_cmp(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts v. */
static void quantiles(const char *name, double *v, size_t n)
{
    if (n == 0)
        data_die("%s: nothing was measured", name);
    qsort(v, n, sizeof *v, double_cmp);
    (void)printf("quantiles,%s,%.0f,%.0f,%zu\n", name, v[n / 2], v[(n - 1) * 99 / 100], n);
    (void)fflush(stdout);
}

/* ---- a stream in the background -------------------------------------------------------------- */

struct pump {
    struct bench *b;
    struct stream *stream;
    uint32_t rate;      /* batches a second */
    struct str payload; /* p NULL: each stream's own */
    atomic_bool stop;
    sem_t slot;
    double *took;
    _Atomic uint64_t n;
    uint64_t room, late, failed;
    pthread_t thread;
};

struct flight {
    struct pump *p;
    double begun;
};

static void pump_done(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    struct flight *f = ctx;
    struct pump *p = f->p;
    uint64_t at = atomic_fetch_add(&p->n, 1);

    (void)lsn;
    if (r != 0) {
        (void)fprintf(stderr, "bench_live: outcome %d: %s\n", r, err ? err->msg : "");
        exit(EXIT_FAILURE); // NOLINT(concurrency-mt-unsafe): nothing to clean up
    }
    if (at < p->room)
        p->took[at] = data_wall_ns() - f->begun;
    free(f);
    (void)sem_post(&p->slot);
}

static void sleep_until(double ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1e9)};

    t.tv_nsec = (long)(ns - (double)t.tv_sec * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static void *pump_run(void *ctx)
{
    struct pump *p = ctx;
    double next = data_wall_ns();

    for (uint64_t i = 0; !atomic_load(&p->stop); i++) {
        struct stream *s = &p->stream[i % SENDERS];
        struct flight *f;

        next += 1e9 / p->rate;
        if (data_wall_ns() < next)
            sleep_until(next);
        else
            p->late++;
        while (sem_wait(&p->slot) < 0)
            ;
        /* a sender has one batch in flight at most: SENDERS > IN_FLIGHT, and they end in order */
        stream_next(s,
                    (real_ns){p->b->hour.v + (DATA_SPAN_MS + (int64_t)s->seq * 1000) * NS_PER_MS},
                    NS_PER_S, false);
        f = malloc(sizeof *f);
        if (!f)
            data_die("out of memory");
        *f = (struct flight){p, data_wall_ns()};
        store_append(p->b->store, &s->batch, p->payload.p ? p->payload : buf_view(&s->payload),
                     pump_done, f);
    }
    for (int i = 0; i < IN_FLIGHT; i++)
        while (sem_wait(&p->slot) < 0)
            ;
    return NULL;
}

static void pump_start(struct pump *p, struct bench *b, struct stream *s, uint32_t rate,
                       uint32_t seconds)
{
    *p = (struct pump){.b = b, .stream = s, .rate = rate, .room = (uint64_t)rate * (seconds + 2)};
    p->took = data_alloc(p->room, sizeof *p->took);
    (void)sem_init(&p->slot, 0, IN_FLIGHT);
}

static void pump_go(struct pump *p)
{
    if (pthread_create(&p->thread, NULL, pump_run, p) != 0)
        data_die("no thread");
}

static void pump_stop(struct pump *p)
{
    atomic_store(&p->stop, true);
    (void)pthread_join(p->thread, NULL);
    (void)sem_destroy(&p->slot);
}

/* Every sender's definitions, and one short payload to be sent again and again. */
static struct stream *streams_open(struct bench *b)
{
    struct stream *s = data_alloc(SENDERS, sizeof *s);
    struct err err = {};

    for (uint32_t i = 0; i < SENDERS; i++) {
        real_ns t = {b->hour.v + DATA_SPAN_MS * NS_PER_MS};

        stream_init(&s[i], i, ROWS);
        stream_next(&s[i], t, NS_PER_S, true);
        if (store_append_wait(b->store, &s[i].batch, buf_view(&s[i].payload), NULL, &err) != 0)
            bench_die("definitions", &err);
        t.v += NS_PER_S;
        stream_next(&s[i], t, NS_PER_S, true);
        if (store_append_wait(b->store, &s[i].batch, buf_view(&s[i].payload), NULL, &err) != 0)
            bench_die("second batch", &err);
    }
    return s;
}

static void streams_close(struct stream *s)
{
    for (uint32_t i = 0; i < SENDERS; i++)
        stream_deinit(&s[i]);
    free(s);
}

/* ---- head ------------------------------------------------------------------------------------ */

static uint64_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static void head(const struct options *o)
{
    struct load_ask ask = {.rows_per_batch = ROWS, .to = 1};
    struct store_stats s0, s1;
    struct loaded n;
    uint64_t before, all, nodes;
    double bytes, row;
    struct bench b;

    store_tuning.seal_asked = true;
    bench_open(&b, o->dir, o->data, 0);
    (void)bench_load(&b, &ask); /* what the loader itself holds is there before and after */
    store_stats(b.store, &s0);
    before = allocated();
    ask.to = o->smoke && b.d.rows > 100000 ? 100000 : b.d.rows;
    n = bench_load(&b, &ask);
    all = allocated();
    store_stats(b.store, &s1);
    nodes = s1.nodes - s0.nodes;
    bytes = (double)(all - before);
    value("head_apply", n.append_cpu_ns / (double)n.rows, "ns per sample", n.rows);
    bench_next_hour(&b);
    ask.to = ask.to / 10 + 1;
    row = (double)bench_load(&b, &ask).rows;
    row = (double)(allocated() - all) / row;
    value("head_row", row, "B per sample", ask.to);
    value("head_node", (bytes - row * (double)n.rows) / (double)nodes, "B per node", nodes);
    value("head_r1", bytes / (double)n.rows, "B per sample", n.rows);
    if (s1.sealed_lsn != s0.sealed_lsn)
        data_die("head: a seal came in between");
    bench_close(&b);
    store_tuning.seal_asked = false;
}

/* ---- query ----------------------------------------------------------------------------------- */

/* Questions back to back for so long; their times are sorted. */
static void ask_for(struct bench *b, const char *name, double seconds)
{
    size_t n = 0, room = 1 << 16;
    double *took = data_alloc(room, sizeof *took), until = data_wall_ns() + seconds * 1e9;

    while (data_wall_ns() < until && n < room) {
        struct msg_reply reply = {};
        double begun = data_wall_ns();

        bench_ask(b, Q_ONE, (uint32_t)(n % 20), NULL, &reply);
        took[n++] = data_wall_ns() - begun;
        msg_reply_deinit(&reply);
    }
    quantiles(name, took, n);
    free(took);
}

static void query(struct bench *b, struct stream *s, const struct options *o)
{
    static const uint32_t rates[] = {200, 1000};
    const uint32_t turns = o->smoke ? 1 : 3, seconds = o->smoke ? 1 : o->seconds;
    char name[64];

    ask_for(b, "warm", 0.5);
    for (uint32_t turn = 0; turn < turns; turn++) {
        ask_for(b, "query_idle", seconds);
        for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
            struct pump p;
            double begun;

            pump_start(&p, b, s, rates[i], seconds);
            begun = data_wall_ns();
            pump_go(&p);
            (void)snprintf(name, sizeof name, "query_%uk", rates[i]);
            ask_for(b, name, seconds);
            pump_stop(&p);
            (void)snprintf(name, sizeof name, "arrived_%uk", rates[i]);
            value(name, (double)atomic_load(&p.n) * ROWS * 1e9 / (data_wall_ns() - begun),
                  "samples per second", p.n);
            free(p.took);
            bench_seal(b);
        }
    }
}

/* ---- answer ---------------------------------------------------------------------------------- */

static void lone_commits(struct bench *b, struct stream *s, const char *bytes, uint32_t n)
{
    double *took = data_alloc(n, sizeof *took);
    struct err err = {};

    for (uint32_t i = 0; i < n; i++) {
        double begun;

        stream_next(s, (real_ns){b->hour.v + (DATA_SPAN_MS + (int64_t)s->seq * 1000) * NS_PER_MS},
                    NS_PER_S, false);
        begun = data_wall_ns();
        if (store_append_wait(b->store, &s->batch, (struct str){bytes, 64 << 10}, NULL, &err) != 0)
            bench_die("lone commit", &err);
        took[i] = data_wall_ns() - begun;
    }
    quantiles("lone_64k", took, n);
    free(took);
}

/* Answers while the hour is sealed each second. */
static void answers(struct bench *b, struct stream *s, const char *bytes, uint32_t seconds)
{
    const uint32_t rate = 600;
    uint64_t seals = 0, n;
    double until, begun;
    struct pump p;

    pump_start(&p, b, s, rate, seconds);
    p.payload = (struct str){bytes, BIG};
    begun = data_wall_ns();
    pump_go(&p);
    until = begun;
    while (data_wall_ns() < begun + seconds * 1e9) {
        until += 1e9;
        sleep_until(until);
        bench_seal(b);
        seals++;
    }
    pump_stop(&p);
    n = p.n < p.room ? p.n : p.room;
    value("answer_rate", (double)p.n * BIG / 1e6 / ((data_wall_ns() - begun) / 1e9), "MB/s", p.n);
    value("answer_seals", (double)seals, "seals", p.late);
    quantiles("answer_sealing", p.took, n);
    free(p.took);
}

/* Both in turn, since the time of a lone commit is the disk's of the moment. */
static void answer(struct bench *b, struct stream *s, const struct options *o)
{
    const uint32_t turns = o->smoke ? 1 : 5, seconds = o->smoke ? 1 : 2;
    static char bytes[64 << 10];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        data_die("getrandom");
    for (uint32_t turn = 0; turn < turns; turn++) {
        lone_commits(b, &s[0], bytes, o->smoke ? 10 : 40);
        answers(b, s, bytes, seconds);
    }
}

/* ---- the run --------------------------------------------------------------------------------- */

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    uint64_t v = 0;

    switch (key) {
    case 'd':
        o->dir = arg;
        return 0;
    case 'w':
        o->data = arg;
        return 0;
    case 's':
        o->smoke = true;
        return 0;
    case 't':
        if (!str_u64(str_c(arg), &v) || !v || v > 600)
            argp_error(state, "--seconds is 1 to 600");
        o->seconds = (uint32_t)v;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"data", 'w', "DIR", 0, "a workload of gen_profile", 0},
        {"dir", 'd', "DIR", 0, "where the store is made; default /var/tmp", 0},
        {"seconds", 't', "N", 0, "per stretch; default 5", 0},
        {"smoke", 's', NULL, 0, "the least that shows it works", 0},
        {},
    };
    const struct argp argp = {.options = options, .parser = parse};
    struct options o = {.dir = "/var/tmp", .seconds = 5};
    struct load_ask rest = {.rows_per_batch = ROWS};
    struct stream *s;
    struct bench b;

    if (argp_parse(&argp, argc, argv, 0, NULL, &o) != 0 || !o.data)
        data_die("--data is missing: a folder of gen_profile");
    head(&o);
    bench_open(&b, o.dir, o.data, 0);
    s = streams_open(&b);
    rest.to = b.d.rows < 2000000 ? b.d.rows : 2000000;
    (void)bench_load(&b, &rest);
    bench_seal(&b);
    query(&b, s, &o);
    answer(&b, s, &o);
    bench_close(&b);
    streams_close(s);
    return 0;
}
