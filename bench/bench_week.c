// SPDX-License-Identifier: Apache-2.0
/*
 * How long does a page wait that asks for seven days?
 *
 * Loads a small workload of gen_profile again and again, an hour later each time, up to now, lets
 * compaction close the hours, then asks what the page asks when it opens with such a range: each
 * question of a store that has just been opened, with the files out of the page cache (cold), then
 * again (warm).
 *
 *   week_QUESTION_cold, _warm    wall time, ms
 *   week_parts, week_disk        what lies there
 *
 * --keep leaves the store for a server and a browser (bench/ui/week.mjs) and prints its folder.
 */
#include <argp.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench_store.h"
#include "server/msg.h"

#define ROUNDS_MAX 15U
#define HOUR_NS    (3600 * NS_PER_S)

struct options {
    const char *dir, *data;
    uint32_t hours, rounds, wait_s;
    bool keep, smoke;
};

/* What web/js asks when Explore opens: the picture first, the rest beside it. */
static const struct {
    const char *name, *path;
    struct bench_param p[6]; /* after from and to; q: the last, if any */
    uint32_t n;
} asked[] = {
    {"types", "/api/v1/types", {}, 0},
    {"services", "/api/v1/labels/service/values", {{"q", "cpu"}}, 1},
    {"labels", "/api/v1/labels", {{"q", "cpu"}}, 1},
    {"flamegraph", "/api/v1/flamegraph", {{"q", "cpu"}, {"names", "short"}, {"width", "1920"}}, 3},
    {"service",
     "/api/v1/flamegraph",
     {{"q", "cpu{service=\"svc000\"}"}, {"names", "short"}, {"width", "1920"}},
     3},
    {"timeseries", "/api/v1/timeseries", {{"q", "cpu"}, {"points", "300"}}, 2},
    {"top", "/api/v1/top", {{"q", "cpu"}, {"names", "short"}}, 2},
    {"coverage", "/api/v1/coverage", {{"q", "cpu"}}, 1},
    {"events", "/api/v1/events", {}, 0},
};
#define ASKED (sizeof asked / sizeof asked[0])

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Least, median and largest of the rounds. */
static void line(const char *name, const char *tail, double *v, uint32_t n, const char *unit)
{
    qsort(v, n, sizeof *v, by_value);
    (void)printf("week_%s%s,%.2f,%s,%" PRIu32 ",%.2f,%.2f\n", name, tail, v[0], unit, n, v[n / 2],
                 v[n - 1]);
    (void)fflush(stdout);
}

/* Root may; else the files stay where they are, and cold means a store just opened. */
static bool drop_caches(void)
{
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    bool ok;

    sync();
    ok = fd >= 0 && write(fd, "1", 1) == 1;
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

static double ask(struct bench *b, size_t k, const char *from, const char *to)
{
    struct bench_param p[8] = {{"from", from}, {"to", to}};
    struct msg_reply reply = {};
    double begun = data_wall_ns();

    memcpy(p + 2, asked[k].p, asked[k].n * sizeof *p);
    bench_get(b, asked[k].path, p, 2 + asked[k].n, &reply);
    msg_reply_deinit(&reply);
    return (data_wall_ns() - begun) / 1e6;
}

static void ask_all(struct bench *b, const struct options *o, real_ns first)
{
    double cold[ROUNDS_MAX], warm[ROUNDS_MAX], start[ROUNDS_MAX];
    char from[40], to[40];
    bool dropped = true;

    (void)real_ns_format(first, from);
    (void)real_ns_format((real_ns){b->hour.v + DATA_SPAN_MS * NS_PER_MS}, to);
    for (size_t k = 0; k < ASKED; k++) {
        for (uint32_t i = 0; i < o->rounds; i++) {
            double begun;

            if (!o->smoke)
                dropped &= drop_caches();
            begun = data_wall_ns();
            bench_reopen(b);
            start[i] = (data_wall_ns() - begun) / 1e6;
            cold[i] = ask(b, k, from, to);
            warm[i] = ask(b, k, from, to);
        }
        line(asked[k].name, "_cold", cold, o->rounds, "ms");
        line(asked[k].name, "_warm", warm, o->rounds, "ms");
    }
    line("reopen", "", start, o->rounds, "ms");
    if (!dropped)
        (void)fprintf(stderr, "bench_week: the page cache could not be emptied\n");
}

static void await_hours(struct bench *b, const struct options *o)
{
    const struct timespec tick = {.tv_nsec = 100000000};

    atomic_store(&b->now, b->hour.v + DATA_SPAN_MS * NS_PER_MS + INT64_C(30) * 60 * NS_PER_S);
    for (uint32_t i = 0; i < 10 * o->wait_s && bench_parts(b) > o->hours; i++) {
        (void)nanosleep(&tick, NULL);
        atomic_fetch_add(&b->now, 10 * NS_PER_S);
    }
}

static void run(const struct options *o)
{
    struct load_ask ask = {.rows_per_batch = 1000};
    struct bench_bytes bytes;
    struct bench b;
    real_ns first;
    double v;

    first.v = real_now().v / HOUR_NS * HOUR_NS - o->hours * HOUR_NS;
    bench_open_at(&b, o->dir, o->data, 2, first);
    b.keep = o->keep;
    b.warm = true;
    ask.to = b.d.rows;
    for (uint32_t i = 0; i < o->hours; i++) {
        if (i > 0)
            bench_next_hour(&b);
        (void)bench_load(&b, &ask);
        atomic_store(&b.now, b.hour.v + DATA_SPAN_MS * NS_PER_MS);
        bench_seal(&b);
    }
    bench_loader_free(&b);
    await_hours(&b, o);
    v = bench_parts(&b);
    line("parts", "", &v, 1, "parts");
    bytes = bench_bytes(&b);
    v = (double)(bytes.shard + bytes.dict + bytes.catalog + bytes.journal) / 1e6;
    line("disk", "", &v, 1, "MB");
    ask_all(&b, o, first);
    if (o->keep)
        (void)fprintf(stderr, "kept: %s\n", b.dir);
    bench_close(&b);
}

enum {
    OPT_DIR = 256,
    OPT_DATA,
    OPT_HOURS,
    OPT_ROUNDS,
    OPT_KEEP,
    OPT_SMOKE
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    uint64_t v = 0;

    switch (key) {
    case OPT_DIR:
        o->dir = arg;
        return 0;
    case OPT_DATA:
        o->data = arg;
        return 0;
    case OPT_HOURS:
    case OPT_ROUNDS:
        if (!str_u64(str_c(arg), &v) || v == 0 || v > 10000)
            argp_error(state, "%s: not a number", arg);
        *(key == OPT_HOURS ? &o->hours : &o->rounds) = (uint32_t)v;
        return 0;
    case OPT_KEEP:
        o->keep = true;
        return 0;
    case OPT_SMOKE:
        o->smoke = true;
        o->hours = 3;
        o->rounds = 1;
        o->wait_s = 0;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"data", OPT_DATA, "DIR", 0, "a workload of gen_profile, of one hour", 0},
        {"dir", OPT_DIR, "DIR", 0, "where the store is made; default /var/tmp", 0},
        {"hours", OPT_HOURS, "N", 0, "default 168", 0},
        {"rounds", OPT_ROUNDS, "N", 0, "default 3", 0},
        {"keep", OPT_KEEP, NULL, 0, "leave the store, and say where", 0},
        {"smoke", OPT_SMOKE, NULL, 0, "the least that shows it works", 0},
        {},
    };
    const struct argp argp = {.options = options, .parser = parse};
    struct options o = {.dir = "/var/tmp", .hours = 168, .rounds = 3, .wait_s = 120};

    if (argp_parse(&argp, argc, argv, 0, NULL, &o) != 0 || !o.data)
        data_die("--data is missing: a folder of gen_profile");
    o.rounds = o.rounds > ROUNDS_MAX ? ROUNDS_MAX : o.rounds;
    run(&o);
    return 0;
}
