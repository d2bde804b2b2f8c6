// SPDX-License-Identifier: Apache-2.0
/*
 * What does an hour of profiles cost on disk, and how long do its answers take?
 *
 * Loads a workload of gen_profile through store_append, seals it minute by minute as a server does,
 * lets compaction close the hour, compares every answer with plain arrays, then waits for lines
 * "round" on stdin and times each question twice per round, floor and lean in between; "round NAME"
 * asks that question alone. bench_store.py drives it, with the rivals in the same rounds.
 *
 *   value,NAME,VALUE,UNIT,N          a figure that is there once
 *   time,NAME,CPU_NS,WALL_NS,ROWS    one timing; CPU of the whole process
 *   ready, end                       loaded and checked; a round is over
 */
#include "bench/bench_store.h"

#include <argp.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench/bench_lean.h"
#include "server/msg.h"

struct options {
    const char *dir, *data, *store;
    uint32_t batch, seal_ms, workers, wait_s;
    bool smoke, keep;
};

static void value(const char *name, double v, const char *unit, uint64_t n)
{
    (void)printf("value,%s,%.6g,%s,%" PRIu64 "\n", name, v, unit, n);
    (void)fflush(stdout);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void print_bytes(const struct bench *b, const char *when)
{
    struct bench_bytes s = bench_bytes(b);
    const struct {
        const char *what;
        uint64_t bytes;
    } row[] = {{"all", s.shard + s.dict}, {"shard", s.shard},     {"dict", s.dict},
               {"catalog", s.catalog},    {"journal", s.journal}, {"other", s.other}};
    char name[64];

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        (void)snprintf(name, sizeof name, "bytes_%s_%s", when, row[i].what);
        value(name, (double)row[i].bytes / (double)b->d.rows, "B per sample", b->d.rows);
    }
}

static bool on_size(void *ctx, const struct store_size *s)
{
    const struct bench *b = ctx;
    char name[96];

    (void)snprintf(name, sizeof name, "size %.*s", STR_ARG(s->what));
    value(name, (double)s->stored / (double)b->d.rows, "B per sample", s->n);
    return true;
}

struct parts {
    uint32_t n;
    uint64_t rows, blocks;
};

static bool on_part(void *ctx, const struct store_part *p)
{
    struct parts *n = ctx;

    n->n++;
    n->rows += p->rows;
    n->blocks += p->blocks;
    return true;
}

static struct parts parts_of(struct bench *b)
{
    struct store_view *v = store_view_get(b->store);
    struct parts n = {};
    struct err err = {};

    if (store_list_parts(v, on_part, &n, &err) < 0)
        bench_die("parts", &err);
    (void)store_view_put(v);
    return n;
}

static void print_parts(struct bench *b, const char *when)
{
    struct parts n = parts_of(b);
    char name[64];

    (void)snprintf(name, sizeof name, "parts_%s", when);
    value(name, n.n, "parts", n.n);
    (void)snprintf(name, sizeof name, "blocks_%s", when);
    value(name, (double)n.blocks, "blocks", n.rows);
}

/* The clock goes on, ten seconds a tick, since an hour must have been quiet for a while before
 * compaction makes one part of it. */
static bool await_one_part(struct bench *b, const struct options *o)
{
    const struct timespec tick = {.tv_nsec = 100000000};
    uint32_t n = 0;

    atomic_store(&b->now, b->hour.v + DATA_SPAN_MS * NS_PER_MS + INT64_C(30) * 60 * NS_PER_S);
    for (uint32_t i = 0; i < 10 * o->wait_s; i++) {
        n = bench_parts(b);
        if (n == 1)
            return true;
        (void)nanosleep(&tick, NULL);
        atomic_fetch_add(&b->now, 10 * NS_PER_S);
    }
    (void)fprintf(stderr, "bench_store: after %u s: %u parts\n", o->wait_s, n);
    return false;
}

/* ---- timing ---------------------------------------------------------------------------------- */

struct timing {
    double cpu, wall;
};

static struct timing begin(void)
{
    return (struct timing){data_cpu_ns(), data_wall_ns()};
}

static void end(const char *name, struct timing t, uint64_t rows)
{
    (void)printf("time,%s,%.0f,%.0f,%" PRIu64 "\n", name, data_cpu_ns() - t.cpu,
                 data_wall_ns() - t.wall, rows);
}

static void ask_timed(struct bench *b, enum question q, struct acc *a, const char *name)
{
    struct msg_reply reply = {};
    struct timing t = begin();

    bench_ask(b, q, 0, a, &reply);
    end(name, t, q <= Q_API_LAST ? reply.body.n : a->observations);
    msg_reply_deinit(&reply);
}

static void lean_timed(struct lean *l, size_t services, const char *tail)
{
    char name[32];
    size_t bytes = 0;
    struct timing t = begin();
    uint64_t rows = lean_count(l, services);

    (void)snprintf(name, sizeof name, "floor%s", tail);
    end(name, t, rows);
    t = begin();
    (void)lean_tree(l, services);
    (void)snprintf(name, sizeof name, "tree%s", tail);
    end(name, t, rows);
    t = begin();
    (void)lean_answer(l, services, &bytes);
    (void)snprintf(name, sizeof name, "lean%s", tail);
    end(name, t, bytes);
    t = begin();
    (void)lean_columns(l, services, &bytes);
    (void)snprintf(name, sizeof name, "columns%s", tail);
    end(name, t, bytes);
}

/* Twice each, so that none is punished for the caches that another emptied. only: the name of one
 * question, for a profiler; empty: all, with floor and lean. */
static void one_round(struct bench *b, struct lean *l, struct acc *a, const char *only)
{
    for (enum question q = 0; q < QUESTIONS; q++)
        for (int again = 0; again < 2; again++)
            if (!*only || strcmp(only, question_name[q]) == 0)
                ask_timed(b, q, a, question_name[q]);
    for (int again = 0; l && !*only && again < 2; again++) {
        lean_timed(l, b->d.services, "");
        lean_timed(l, 1, "_one");
    }
    (void)puts("end");
    (void)fflush(stdout);
}

/* ---- the run --------------------------------------------------------------------------------- */

static void print_load(const struct bench *b, const struct loaded *n)
{
    const double rows = (double)n->rows;

    value("load_batches", (double)n->batches, "batches", n->rows);
    value("load_wire", (double)n->payload_bytes / rows, "B per sample", n->rows);
    value("load_append", n->append_cpu_ns / rows, "ns per sample", n->rows);
    value("load_seal", n->seal_cpu_ns / rows, "ns per sample", n->seals);
    value("load_encode", n->encode_cpu_ns / rows, "ns per sample", n->rows);
    value("nodes_per_sample", (double)b->d.nodes / (double)b->d.rows, "nodes", b->d.nodes);
}

static void load(struct bench *b, const struct options *o)
{
    struct load_ask ask = {.rows_per_batch = o->batch, .seal_ms = o->seal_ms, .to = b->d.rows};
    struct store_stats s;
    struct loaded n = bench_load(b, &ask);
    double cpu = data_cpu_ns();

    atomic_store(&b->now, b->hour.v + DATA_SPAN_MS * NS_PER_MS);
    bench_seal(b);
    n.seal_cpu_ns += data_cpu_ns() - cpu;
    n.seals++;
    print_load(b, &n);
    store_stats(b->store, &s);
    value("store_nodes", (double)s.nodes, "nodes", s.series);
    if (n.rows != b->d.rows || s.stack_folded || s.series_overflow)
        data_die("load: %" PRIu64 " of %zu rows, %" PRIu64 " folded, %" PRIu64 " overflown", n.rows,
                 b->d.rows, s.stack_folded, s.series_overflow);
    bench_loader_free(b);
    (void)malloc_trim(0);
}

/* The hour as it lies there minute by minute: its bytes, its answers, their time. */
static void live_hour(struct bench *b, const struct options *o)
{
    struct acc a = {.in_turn = true};

    print_bytes(b, "live");
    print_parts(b, "live");
    value("checked_live", bench_check(b), "answers", b->d.rows);
    for (int i = 0; i < (o->smoke ? 1 : 7); i++) {
        ask_timed(b, Q_ONE, &a, "live_one");
        ask_timed(b, Q_ALL, &a, "live_all");
        ask_timed(b, Q_CUT, &a, "live_cut");
    }
    acc_free(&a);
}

static void sealed_hour(struct bench *b)
{
    struct store_view *v = store_view_get(b->store);
    struct err err = {};

    print_bytes(b, "sealed");
    print_parts(b, "sealed");
    if (store_list_sizes(v, on_size, b, &err) < 0)
        bench_die("sizes", &err);
    (void)store_view_put(v);
    value("checked_sealed", bench_check(b), "answers", b->d.rows);
}

static void run(const struct options *o)
{
    struct bench b;
    struct lean *l;
    struct acc a = {.in_turn = true};
    char line[64];
    bool compact;

    if (o->store) {
        bench_open_kept(&b, o->store, o->data, o->workers);
    } else {
        bench_open(&b, o->dir, o->data, o->workers);
        load(&b, o);
        live_hour(&b, o);
    }
    compact = await_one_part(&b, o);
    value("compacted", compact, "flag", 1);
    if (compact)
        sealed_hour(&b);
    b.keep = o->keep || o->store;
    if (o->keep)
        (void)fprintf(stderr, "kept: %s\n", b.dir);
    l = lean_new(&b.d);
    (void)puts("ready");
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "round", 5) == 0) {
        line[strcspn(line, "\n")] = '\0';
        one_round(&b, l, &a, line[5] ? line + 6 : "");
    }
    acc_free(&a);
    (void)lean_free(l);
    bench_close(&b);
}

enum {
    OPT_DIR = 256,
    OPT_DATA,
    OPT_BATCH,
    OPT_SEAL,
    OPT_WORKERS,
    OPT_WAIT,
    OPT_KEEP,
    OPT_STORE,
    OPT_SMOKE
};

static uint32_t number(const char *s, struct argp_state *state)
{
    uint64_t v = 0;

    if (!str_u64(str_c(s), &v) || v > UINT32_MAX)
        argp_error(state, "%s: not a number", s);
    return (uint32_t)v;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;

    switch (key) {
    case OPT_DIR:
        o->dir = arg;
        return 0;
    case OPT_DATA:
        o->data = arg;
        return 0;
    case OPT_BATCH:
        o->batch = number(arg, state);
        return 0;
    case OPT_SEAL:
        o->seal_ms = number(arg, state) * 1000;
        return 0;
    case OPT_WORKERS:
        o->workers = number(arg, state);
        return 0;
    case OPT_WAIT:
        o->wait_s = number(arg, state);
        return 0;
    case OPT_KEEP:
        o->keep = true;
        return 0;
    case OPT_STORE:
        o->store = arg;
        return 0;
    case OPT_SMOKE:
        o->smoke = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"data", OPT_DATA, "DIR", 0, "a workload of gen_profile", 0},
        {"dir", OPT_DIR, "DIR", 0, "where the store is made; default /var/tmp", 0},
        {"batch", OPT_BATCH, "ROWS", 0, "rows per batch; default 1000", 0},
        {"seal", OPT_SEAL, "S", 0, "seconds of the hour per seal; 0: one at its end. Default 60",
         0},
        {"workers", OPT_WORKERS, "N", 0, "threads of a scan; default 1", 0},
        {"wait", OPT_WAIT, "S", 0, "for compaction, at most; default 300", 0},
        {"keep", OPT_KEEP, NULL, 0, "leave the store, and say where", 0},
        {"store", OPT_STORE, "DIR", 0, "one that was kept: nothing is loaded, and it stays", 0},
        {"smoke", OPT_SMOKE, NULL, 0, "the least that shows it works", 0},
        {},
    };
    const struct argp argp = {.options = options, .parser = parse};
    struct options o = {
        .dir = "/var/tmp", .batch = 1000, .seal_ms = 60000, .workers = 1, .wait_s = 300};

    if (argp_parse(&argp, argc, argv, 0, NULL, &o) != 0 || !o.data)
        data_die("--data is missing: a folder of gen_profile");
    run(&o);
    return 0;
}
