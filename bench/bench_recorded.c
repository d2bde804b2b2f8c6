// SPDX-License-Identifier: Apache-2.0
/*
 * How many bytes does a row of a real agent take?
 *
 *     bench_recorded [--dir DIR] [--repeat N] FOLDER
 *
 * Appends the batches that record_agent.py kept in FOLDER, then again N - 1 times, each time moved
 * on by the length of the recording (rows repeat, stacks do not grow), seals after every repeat,
 * and prints bytes per row. The weight of type cpu that comes back is compared with what was sent.
 *
 *   value,NAME,VALUE,UNIT,N
 */
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"
#include "bench/bench_store.h"
#include "proto/wire.h"

struct options {
    const char *dir, *folder;
    uint32_t repeat;
};

struct recording {
    uint32_t n;
    struct buf *body;
    struct arena arena; /* of all batches */
    struct batch *batch;
    int64_t span; /* whole minutes */
    uint64_t rows, cpu_rows, bytes;
    unit_i128 cpu;
};

static void value(const char *name, double v, const char *unit, uint64_t n)
{
    (void)printf("value,%s,%.6g,%s,%" PRIu64 "\n", name, v, unit, n);
    (void)fflush(stdout);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int is_batch(const struct dirent *e)
{
    return str_ends(str_c(e->d_name), STR(".batch"));
}

static void read_file(const char *folder, const char *name, struct buf *b)
{
    char path[4096];
    FILE *f;
    size_t n;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "rbe");
    if (!f)
        data_die("%s: %s", path, strerrordesc_np(errno));
    buf_init(b, 16 << 20);
    do {
        char *p = buf_reserve(b, 1 << 16);

        if (!p)
            data_die("%s: too long", path);
        n = fread(p, 1, 1 << 16, f);
        buf_commit(b, n);
    } while (n);
    (void)fclose(f);
}

static void decode(struct recording *r, uint32_t i, struct buf *plain)
{
    struct wire_limits l;
    struct err err = {};
    struct batch *b = &r->batch[i];

    wire_limits_default(&l);
    l.batch.age_ns = INT64_MAX / 4; /* it may lie there for long */
    buf_reset(plain);
    if (wire_inflate(buf_view(&r->body[i]), &l, plain, NULL, &err) < 0 ||
        wire_decode(buf_view(plain), &l, real_now(), &r->arena, b, NULL, NULL, &err) < 0)
        bench_die("a recorded batch", &err);
    for (uint32_t s = 0; s < b->n_stream; s++) {
        const struct batch_stream *st = &b->stream[s];

        r->rows += st->rows.n;
        if (st->type != PTYPE_CPU)
            continue;
        r->cpu_rows += st->rows.n;
        for (uint32_t k = 0; k < st->rows.n; k++)
            r->cpu += st->rows.value
                          ? st->rows.value[k]
                          : (int64_t)(st->rows.count ? st->rows.count[k] : 1) * st->period;
    }
}

static struct recording recording_read(const char *folder)
{
    struct recording r = {};
    struct dirent **entry;
    struct buf plain;
    real_ns t0 = {INT64_MAX}, t1 = {INT64_MIN};
    int n = scandir(folder, &entry, is_batch, alphasort);

    if (n <= 0)
        data_die("%s: no *.batch: record_agent.py makes them", folder);
    r.n = (uint32_t)n;
    r.body = data_alloc(r.n, sizeof *r.body);
    r.batch = data_alloc(r.n, sizeof *r.batch);
    arena_init(&r.arena, UINT64_C(4) << 30);
    buf_init(&plain, 256 << 20);
    for (uint32_t i = 0; i < r.n; i++) {
        read_file(folder, entry[i]->d_name, &r.body[i]);
        free(entry[i]);
        r.bytes += r.body[i].n;
        decode(&r, i, &plain);
        for (uint32_t s = 0; s < r.batch[i].n_stream; s++) {
            struct interval c = r.batch[i].stream[s].covers;

            t0.v = c.t0.v < t0.v ? c.t0.v : t0.v;
            t1.v = c.t1.v > t1.v ? c.t1.v : t1.v;
        }
    }
    free(entry);
    buf_deinit(&plain);
    r.span = ((t1.v - t0.v) / (60 * NS_PER_S) + 1) * 60 * NS_PER_S;
    return r;
}

/* ---- appending ------------------------------------------------------------------------------- */

/* A decoded batch lies in our arena: it may be written, though its users may not. */
static void move(const real_ns *t, uint32_t n, int64_t by)
{
    real_ns *v = (real_ns *)(uintptr_t)t;

    for (uint32_t i = 0; v && i < n; i++)
        v[i].v += by;
}

static void move_batch(struct batch *b, int64_t by)
{
    for (uint32_t s = 0; s < b->n_stream; s++) {
        struct batch_stream *st = (struct batch_stream *)(uintptr_t)&b->stream[s];

        st->covers.t0.v += by;
        st->covers.t1.v += by;
        st->at.v += st->at.v ? by : 0;
        move(st->rows.t, st->rows.n, by);
    }
    for (uint32_t i = 0; i < b->n_metric; i++)
        move(b->metric[i].t, b->metric[i].n, by);
    for (uint32_t i = 0; i < b->n_steps; i++)
        move(b->steps[i].start, b->steps[i].n, by);
    for (uint32_t i = 0; i < b->n_event; i++)
        move(&b->event[i].t, 1, by);
    b->clock.sent.v += by;
    b->received.v = b->clock.sent.v;
}

static void append_all(struct bench *b, struct recording *r, uint32_t turn)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct batch *one = &r->batch[i];
        struct err err = {};
        int k;

        move_batch(one, turn ? r->span : 0);
        one->id.seq = (uint64_t)turn * r->n + i + 1;
        if (one->received.v > atomic_load(&b->now))
            atomic_store(&b->now, one->received.v);
        k = store_append_wait(b->store, one, buf_view(&r->body[i]), NULL, &err);
        if (k)
            data_die("append: outcome %d %s", k, err.msg);
    }
    bench_seal(b);
}

struct sum {
    unit_i128 v;
    struct err err;
};

static bool on_share(void *ctx, uint32_t worker, const struct store_share *s)
{
    struct sum *sum = ctx;

    (void)worker;
    for (uint32_t i = 0; i < s->n; i++)
        sum->v += s->sum.v ? s->sum.v[i] : s->sum.wide[i];
    return true;
}

static void check(struct bench *b, const struct recording *r, uint32_t repeat)
{
    struct sum sum = {};
    struct store_sink sink = {.share = on_share, .ctx = &sum};
    struct store_view *v = store_view_get(b->store);
    struct store_query q = {.n_side = 1,
                            .side[0] = {.sel.type = PTYPE_CPU, .range = {{0}, {INT64_MAX / 2}}},
                            .want = STORE_TOTALS,
                            .mem_max = UINT64_C(1) << 30};
    struct store_answer answer = {};
    struct arena arena;

    arena_init(&arena, 64 << 20);
    q.arena = &arena;
    if (store_scan(v, &q, &sink, &answer, &sum.err) != 0)
        bench_die("scan", &sum.err);
    if (sum.v != r->cpu * repeat)
        data_die("check: the sums of cpu are not what was sent");
    arena_deinit(&arena);
    (void)store_view_put(v);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    uint64_t n = 0;

    switch (key) {
    case 'd':
        o->dir = arg;
        return 0;
    case 'n':
        if (!str_u64(str_c(arg), &n) || !n || n > 100000)
            argp_error(state, "--repeat is 1 to 100000");
        o->repeat = (uint32_t)n;
        return 0;
    case 's':
        o->repeat = 2;
        return 0;
    case ARGP_KEY_ARG:
        o->folder = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"dir", 'd', "DIR", 0, "where the store is made; default /var/tmp", 0},
        {"repeat", 'n', "N", 0, "times that the recording is appended; default 50", 0},
        {"smoke", 's', NULL, 0, "twice", 0},
        {},
    };
    const struct argp argp = {.options = options, .parser = parse, .args_doc = "FOLDER"};
    struct options o = {.dir = "/var/tmp", .repeat = 50};
    struct bench_bytes size;
    struct recording r;
    struct bench b;
    double cpu, rows;

    if (argp_parse(&argp, argc, argv, 0, NULL, &o) != 0 || !o.folder)
        data_die("a folder of recorded batches is missing");
    r = recording_read(o.folder);
    bench_open(&b, o.dir, NULL, 1);
    cpu = data_cpu_ns();
    for (uint32_t turn = 0; turn < o.repeat; turn++)
        append_all(&b, &r, turn);
    cpu = data_cpu_ns() - cpu;
    check(&b, &r, o.repeat);
    size = bench_bytes(&b);
    rows = (double)r.rows * o.repeat;
    value("recorded_rows", (double)r.rows, "rows", r.n);
    value("recorded_wire", (double)r.bytes / (double)r.rows, "B per row", r.rows);
    value("recorded_append", cpu / rows, "ns per row", (uint64_t)rows);
    value("recorded_shard", (double)size.shard / rows, "B per row", (uint64_t)rows);
    value("recorded_dict", (double)size.dict / (double)r.rows, "B per row of one repeat", r.rows);
    bench_close(&b);
    for (uint32_t i = 0; i < r.n; i++)
        buf_deinit(&r.body[i]);
    arena_deinit(&r.arena);
    return 0;
}
