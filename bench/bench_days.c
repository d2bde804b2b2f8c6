// SPDX-License-Identifier: Apache-2.0
/*
 * How much longer does a question over thirty days take than one over an hour?
 *
 * One hour of 20 senders on each of thirty days, the store's clock moved on so that hours are
 * closed, minutes made and old raw data removed as in a server that runs for a month. Then sums by
 * stack of one service: over its newest hour, and over all days. The files that an answer read are
 * what store_scan says.
 *
 *   value,NAME,VALUE,UNIT,N        time,NAME,CPU_NS,WALL_NS,ROWS
 */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/arena.h"
#include "bench/bench_store.h"
#include "bench/bench_stream.h"

/* Absent from a build whose storage does not seal yet: tested before it is called. */
[[gnu::weak]] int store_list_parts(struct store_view *v, store_part_fn *fn, void *ctx,
                                   struct err *err);

struct options {
    const char *dir;
    uint32_t days, wait_s;
    bool smoke;
};

enum {
    SENDERS = 20,
    ROWS = 1000,
    BATCHES = 12, /* of each sender and day, five minutes each */
};

#define HOUR_NS (3600 * NS_PER_S)
#define DAY_NS  (24 * HOUR_NS)

static void value(const char *name, double v, const char *unit, uint64_t n)
{
    (void)printf("value,%s,%.6g,%s,%" PRIu64 "\n", name, v, unit, n);
    (void)fflush(stdout);
}

/* ---- filling --------------------------------------------------------------------------------- */

static void append_day(struct bench *b, struct stream *s, real_ns hour)
{
    struct err err = {};

    for (uint32_t i = 0; i < BATCHES; i++) {
        real_ns t = {hour.v + (int64_t)i * 300 * NS_PER_S};

        atomic_store(&b->now, t.v + 300 * NS_PER_S);
        for (uint32_t k = 0; k < SENDERS; k++) {
            stream_next(&s[k], t, 300 * NS_PER_S, s[k].seq < 2);
            if (store_append_wait(b->store, &s[k].batch, buf_view(&s[k].payload), NULL, &err) != 0)
                bench_die("append", &err);
        }
    }
    bench_seal(b);
}

struct seen {
    real_ns day; /* is there a part of minutes for it? */
    bool minutes;
    uint32_t raw, minute;
};

static bool on_part(void *ctx, const struct store_part *p)
{
    struct seen *s = ctx;

    s->raw += p->tier == STORE_RAW;
    s->minute += p->tier == STORE_MINUTE;
    s->minutes |=
        p->tier == STORE_MINUTE && p->period.t0.v <= s->day.v && s->day.v < p->period.t1.v;
    return true;
}

static struct seen parts_of(struct bench *b, real_ns day)
{
    struct store_view *v = store_view_get(b->store);
    struct seen s = {.day = day};
    struct err err = {};

    if (store_list_parts(v, on_part, &s, &err) < 0)
        bench_die("parts", &err);
    (void)store_view_put(v);
    return s;
}

/* Until this day has its minutes. */
static bool await_minutes(struct bench *b, const struct options *o, real_ns hour)
{
    const struct timespec tick = {.tv_nsec = 20000000};

    atomic_store(&b->now, hour.v / DAY_NS * DAY_NS + DAY_NS + 3 * HOUR_NS);
    for (uint32_t i = 0; i < 50 * o->wait_s; i++) {
        if (parts_of(b, hour).minutes)
            return true;
        (void)nanosleep(&tick, NULL);
        atomic_fetch_add(&b->now, NS_PER_S); /* some things wait until it was quiet for so long */
    }
    return false;
}

/* ---- asking ---------------------------------------------------------------------------------- */

struct sum {
    int64_t v;
};

static bool on_share(void *ctx, uint32_t worker, const struct store_share *s)
{
    struct sum *sum = ctx;

    (void)worker;
    for (uint32_t i = 0; i < s->n; i++)
        sum->v += s->sum.v[i];
    return true;
}

static void ask(struct bench *b, const char *name, struct interval range, uint64_t rows)
{
    struct store_matcher m = {.name = STR("service"), .op = STORE_EQ, .value = STR("stream-0")};
    struct sum sum = {};
    struct store_sink sink = {.share = on_share, .ctx = &sum};
    struct store_query q = {.n_side = 1,
                            .side[0] = {.sel = {PTYPE_CPU, 1, &m}, .range = range},
                            .want = STORE_STACKS,
                            .mem_max = UINT64_C(1) << 30};
    struct store_answer answer = {};
    struct store_view *v;
    struct arena arena;
    struct err err = {};
    double cpu = data_cpu_ns(), wall = data_wall_ns();
    char text[64];

    v = store_view_get(b->store);
    arena_init(&arena, 64 << 20);
    q.arena = &arena;
    if (store_scan(v, &q, &sink, &answer, &err) != 0)
        bench_die("scan", &err);
    (void)printf("time,%s,%.0f,%.0f,%" PRIu64 "\n", name, data_cpu_ns() - cpu,
                 data_wall_ns() - wall, rows);
    (void)snprintf(text, sizeof text, "%s_files", name);
    value(text, answer.parts_read, "files", answer.parts_asked);
    if (sum.v != (int64_t)rows * 10 * NS_PER_MS)
        data_die("check: %s: %" PRId64 " ns instead of %" PRIu64 " rows of 10 ms", name, sum.v,
                 rows);
    arena_deinit(&arena);
    (void)store_view_put(v);
}

static void run(struct bench *b, const struct options *o)
{
    struct stream *s = data_alloc(SENDERS, sizeof *s);
    const real_ns first = b->hour;
    real_ns hour = first;
    struct seen seen;

    for (uint32_t k = 0; k < SENDERS; k++)
        stream_init(&s[k], k, ROWS);
    for (uint32_t day = 0; day < o->days; day++) {
        hour.v = first.v + (int64_t)day * DAY_NS;
        append_day(b, s, hour);
        if (!await_minutes(b, o, hour)) {
            (void)fprintf(stderr, "bench_days: no minutes of day %u after %u s\n", day, o->wait_s);
            break;
        }
    }
    seen = parts_of(b, hour);
    value("days_parts", seen.minute, "parts of minutes", seen.raw);
    for (int i = 0; seen.minute >= o->days && i < 7; i++) {
        ask(b, "days_hour", (struct interval){hour, {hour.v + HOUR_NS}}, (uint64_t)BATCHES * ROWS);
        ask(b, "days_all", (struct interval){first, {hour.v + HOUR_NS}},
            (uint64_t)BATCHES * ROWS * o->days);
    }
    for (uint32_t k = 0; k < SENDERS; k++)
        stream_deinit(&s[k]);
    free(s);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;

    (void)state;
    switch (key) {
    case 'd':
        o->dir = arg;
        return 0;
    case 's':
        o->days = 2;
        o->wait_s = 10;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"dir", 'd', "DIR", 0, "where the store is made; default /var/tmp", 0},
        {"smoke", 's', NULL, 0, "two days", 0},
        {},
    };
    const struct argp argp = {.options = options, .parser = parse};
    struct options o = {.dir = "/var/tmp", .days = 30, .wait_s = 60};
    struct bench b;

    if (argp_parse(&argp, argc, argv, 0, NULL, &o) != 0)
        return 2;
    bench_open(&b, o.dir, NULL, 1);
    value("can_seal", bench_can_seal(), "flag", 1);
    if (bench_can_seal() && store_list_parts)
        run(&b, &o);
    bench_close(&b);
    return 0;
}
