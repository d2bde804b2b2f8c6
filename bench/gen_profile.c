// SPDX-License-Identifier: Apache-2.0
/*
 * Workloads for ./dev bench store, as plain binary columns that every engine can load.
 *
 *     gen_profile [--samples N] [--seed N] [--fold FILE] WORKLOAD DIR
 *
 * One hour each. The same arguments give the same bytes wherever pow, log, exp and cos round alike;
 * `checksum` in meta.txt tells. A folder whose meta.txt names the same arguments is left as it is.
 *
 *   r1    10 M samples of 200 services (Zipf 0.7) x 20,000 stacks (Zipf 1.0), 10 series each,
 *         depth 30-60; 80 % of constant weight, 20 % log-normal in three other types
 *   r1t   the same with 16 threads per series         r2   100 M samples
 *   z     Zipf 1.3 within a service
 *   a     r1t folded per second as the agent does, two types; counts, weights, jitter and loss are
 *         drawn from --fold FILE, numbers that a real agent reported (record_agent.py makes it)
 *   p     1 M samples of 8 services that descend recursively: 4 new nodes per sample
 *
 * Columns are bare little-endian arrays without a header. A row number joins those of a table.
 *
 *   samples, by rising time (arrival order)
 *     sample.ts       u32  ms since the start of the hour, < 3,600,000
 *     sample.svc      u16  service, 0 is the largest
 *     sample.series   u16  service * 10 + 0..9
 *     sample.type     u8   0 cpu ns (constant weight per observation), 1 to 3 others
 *     sample.stack    u32  node of the service's trie at which the stack ends
 *     sample.value    i64  weight in the unit of the type
 *     sample.thread   u8   only r1t and a: 0..15
 *     sample.count    u32  only a: observations in the row
 *   stacks: one trie per service, the tries of all services one after another. Node ids count from
 *   0 (root) within a service in order of first appearance, so a parent precedes its children and a
 *   stack that never occurred has no nodes: what an ingesting dictionary would hold.
 *     node.parent     u32  node id within the same service; the root is its own parent
 *     node.function   u32  row of the function table; the root has function 0, "[root]"
 *     node.pre        u32  position in a depth-first walk of the service's finished trie, from 0
 *     node.size       u32  nodes of its subtree with itself: [pre, pre + size) is the subtree.
 *                          These two are a gift to rivals that answer with intervals: an appending
 *                          store cannot know them before the hour is over
 *     service.first   u32  services + 1 entries: first row of each, then the number of rows
 *   functions
 *     function.name   bytes, names one after another, not terminated
 *     function.end    u32  end of each name in function.name
 *   stream, only a: what sources said of their stretches, to be repeated in turn
 *     stream.jitter   i64  ns        stream.lost     u32  observations
 *   meta.txt          lines `name value`: arguments, row counts and the calibration
 *
 * Services, stacks and series are drawn independently of each other: real samples come in bursts
 * and compress better.
 */
#include "bench/gen_profile.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    FORMAT = 1, /* raised when the same arguments give other bytes */
    ROWS_AT_ONCE = 65536,
    WALK_SERVICES = 8,
};

struct workload {
    const char *name;
    uint64_t samples;
    double zipf;
    uint32_t threads;
    bool fold, walk;
};

static const struct workload workloads[] = {
    {.name = "r1", .samples = 10000000, .zipf = 1.0},
    {.name = "r1t", .samples = 10000000, .zipf = 1.0, .threads = 16},
    {.name = "r2", .samples = 100000000, .zipf = 1.0},
    {.name = "z", .samples = 10000000, .zipf = 1.3},
    {.name = "a", .samples = 10000000, .zipf = 1.0, .threads = 16, .fold = true},
    {.name = "p", .samples = 1000000, .walk = true},
};

struct calibration {
    uint64_t rows, stacks; /* distinct (service, stack) */
    uint64_t after[3];     /* of those, seen after 1, 5, 15 minutes */
    uint64_t depth;        /* sum over distinct stacks */
    uint64_t by_type[GEN_TYPES];
    uint64_t largest; /* rows of service 0, cpu */
};

/* ---- columns -------------------------------------------------------------------------------- */

struct row {
    uint32_t ts, stack, count;
    uint16_t svc, series;
    uint8_t type, thread;
    int64_t value;
};

enum {
    TS,
    SVC,
    SER,
    TYPE,
    STACK,
    VALUE,
    THREAD,
    COUNT,
    COLUMNS
};

struct out {
    struct {
        FILE *file;
        size_t width;
        unsigned char *rows;
    } col[COLUMNS];
    size_t n;
    struct calibration *cal;
};

static void out_column(struct out *o, int c, const char *dir, const char *name, size_t width)
{
    o->col[c].file = gen_open(dir, name);
    o->col[c].width = width;
    o->col[c].rows = gen_alloc(ROWS_AT_ONCE, width);
}

static void out_open(struct out *o, const char *dir, const struct workload *w)
{
    out_column(o, TS, dir, "sample.ts", 4);
    out_column(o, SVC, dir, "sample.svc", 2);
    out_column(o, SER, dir, "sample.series", 2);
    out_column(o, TYPE, dir, "sample.type", 1);
    out_column(o, STACK, dir, "sample.stack", 4);
    out_column(o, VALUE, dir, "sample.value", 8);
    if (w->threads)
        out_column(o, THREAD, dir, "sample.thread", 1);
    if (w->fold)
        out_column(o, COUNT, dir, "sample.count", 4);
}

static void out_flush(struct out *o)
{
    for (size_t c = 0; c < COLUMNS; c++)
        if (o->col[c].file)
            gen_put(o->col[c].file, o->col[c].rows, o->n * o->col[c].width);
    o->n = 0;
}

static void out_row(struct out *o, const struct row *r)
{
    const uint64_t v[COLUMNS] = {
        r->ts, r->svc, r->series, r->type, r->stack, (uint64_t)r->value, r->thread, r->count};

    for (size_t c = 0; c < COLUMNS; c++) /* little-endian hosts only */
        if (o->col[c].file)
            memcpy(o->col[c].rows + o->n * o->col[c].width, &v[c], o->col[c].width);
    o->cal->rows++;
    o->cal->by_type[r->type]++;
    o->cal->largest += r->svc == 0 && r->type == 0;
    if (++o->n == ROWS_AT_ONCE)
        out_flush(o);
}

static void out_close(struct out *o)
{
    out_flush(o);
    for (size_t c = 0; c < COLUMNS; c++)
        if (o->col[c].file) {
            gen_finish(o->col[c].file);
            free(o->col[c].rows);
        }
}

/* ---- what a real agent reported ------------------------------------------------------------- */

/* Lines: `count N`, `wait N NS`, `stream JITTER_NS LOST`; # begins a comment. */
struct fold {
    uint32_t n_count, n_wait, n_stream;
    uint32_t *count, *wait_n, *lost;
    int64_t *wait, *jitter;
};

static void *grown(void *p, uint32_t n, size_t size)
{
    if (n & (n - 1))
        return p;
    p = realloc(p, (n ? 2 * (size_t)n : 1) * size);
    if (!p)
        gen_die("out of memory");
    return p;
}

static struct fold fold_read(const char *path)
{
    struct fold f = {};
    char line[256], what[16];
    FILE *file = fopen(path, "re");

    if (!file)
        gen_die("--fold %s: %s", path, strerrordesc_np(errno));
    while (fgets(line, sizeof line, file)) {
        char *rest = line;
        long long a, b;

        if (line[0] == '#' || sscanf(line, "%15s", what) != 1)
            continue;
        rest += strlen(what);
        a = strtoll(rest, &rest, 10);
        b = strtoll(rest, &rest, 10);
        if (strcmp(what, "count") == 0) {
            f.count = grown(f.count, f.n_count, sizeof *f.count);
            f.count[f.n_count++] = (uint32_t)a;
        } else if (strcmp(what, "wait") == 0) {
            f.wait_n = grown(f.wait_n, f.n_wait, sizeof *f.wait_n);
            f.wait = grown(f.wait, f.n_wait, sizeof *f.wait);
            f.wait_n[f.n_wait] = (uint32_t)a;
            f.wait[f.n_wait++] = b;
        } else if (strcmp(what, "stream") == 0) {
            f.jitter = grown(f.jitter, f.n_stream, sizeof *f.jitter);
            f.lost = grown(f.lost, f.n_stream, sizeof *f.lost);
            f.jitter[f.n_stream] = a;
            f.lost[f.n_stream++] = (uint32_t)b;
        } else {
            gen_die("--fold %s: unknown line: %s", path, line);
        }
    }
    (void)fclose(file);
    if (!f.n_count || !f.n_wait || !f.n_stream)
        gen_die("--fold %s: needs lines count, wait and stream", path);
    return f;
}

static int fold_cmp(const void *va, const void *vb)
{
    const struct row *a = va, *b = vb;

    if (a->series != b->series)
        return a->series < b->series ? -1 : 1;
    if (a->type != b->type)
        return a->type < b->type ? -1 : 1;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    return (a->stack > b->stack) - (a->stack < b->stack);
}

/* The rows of one second become one for each (series, type, thread, stack). */
static void fold_second(struct out *o, struct row *r, size_t n)
{
    if (n > 1)
        qsort(r, n, sizeof *r, fold_cmp);
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && fold_cmp(&r[i], &r[k]) == 0; k++) {
            r[i].count += r[k].count;
            r[i].value += r[k].value;
        }
        out_row(o, &r[i]);
    }
}

/* ---- samples -------------------------------------------------------------------------------- */

/* Log-normal, median 20 KB or 20 us, about 17 bits of information. */
static int64_t draw_value(struct rng *r)
{
    double normal = sqrt(-2 * log(rng_unit(r))) * cos(2 * M_PI * rng_unit(r));

    return 1 + (int64_t)exp(log(20e3) + 1.5 * normal);
}

struct draw {
    const struct workload *w;
    uint64_t samples;
    struct gen_trie *tries;
    struct alias services, stacks;
    struct rng shape, values, tids, fold;
    struct fold *recorded;
    unsigned char *known; /* a stack can end on a node that another made known */
};

static void first_seen(struct draw *d, struct calibration *cal, uint32_t ts, uint32_t svc,
                       uint32_t stack)
{
    static const uint32_t marks[3] = {60000, 300000, 900000};
    unsigned char *known = &d->known[(size_t)svc * GEN_STACKS + stack];

    if (*known)
        return;
    *known = 1;
    cal->stacks++;
    cal->depth += d->tries[svc].depth[d->tries[svc].leaf[stack]];
    for (size_t m = 0; m < 3; m++)
        cal->after[m] += ts < marks[m];
}

static struct row draw_row(struct draw *d, uint64_t i, struct calibration *cal)
{
    uint32_t ts = (uint32_t)((unsigned __int128)i * GEN_SPAN_MS / d->samples);
    uint32_t svc = alias_draw(&d->services, &d->shape), stack = alias_draw(&d->stacks, &d->shape);
    uint32_t series = svc * GEN_SERIES + rng_below(&d->shape, GEN_SERIES);
    uint32_t kind = rng_below(&d->shape, 15), type = kind < 12 ? 0 : kind - 11;
    struct gen_trie *t = &d->tries[svc];
    struct row r = {.ts = ts,
                    .stack = gen_trie_id(t, t->leaf[stack]),
                    .count = 1,
                    .svc = (uint16_t)svc,
                    .series = (uint16_t)series,
                    .type = (uint8_t)type};

    first_seen(d, cal, ts, svc, stack);
    r.value = type ? draw_value(&d->values) : GEN_CPU_NS;
    if (d->w->threads)
        r.thread = (uint8_t)rng_below(&d->tids, d->w->threads);
    if (d->recorded) {
        const struct fold *f = d->recorded;

        r.ts = ts / 1000 * 1000;
        if (type == 0) {
            r.count = f->count[rng_below(&d->fold, f->n_count)];
            r.value = (int64_t)r.count * GEN_CPU_NS;
        } else {
            uint32_t at = rng_below(&d->fold, f->n_wait);

            r.type = 1;
            r.count = f->wait_n[at];
            r.value = f->wait[at];
        }
    }
    return r;
}

static void write_samples(struct out *o, struct draw *d)
{
    size_t room = (size_t)(d->samples / 3600 + 2), n = 0;
    struct row *second = d->recorded ? gen_alloc(room, sizeof *second) : NULL;

    for (uint64_t i = 0; i < d->samples; i++) {
        struct row r = draw_row(d, i, o->cal);

        if (!second) {
            out_row(o, &r);
            continue;
        }
        if (n && second[0].ts != r.ts) {
            fold_second(o, second, n);
            n = 0;
        }
        second[n++] = r;
    }
    if (second)
        fold_second(o, second, n);
    free(second);
}

static void write_streams(const char *dir, const struct fold *f)
{
    FILE *jitter = gen_open(dir, "stream.jitter"), *lost = gen_open(dir, "stream.lost");

    gen_put(jitter, f->jitter, f->n_stream * sizeof *f->jitter);
    gen_put(lost, f->lost, f->n_stream * sizeof *f->lost);
    gen_finish(jitter);
    gen_finish(lost);
}

/* Returns the number of nodes. */
static uint32_t usual(const char *dir, const struct workload *w, uint64_t samples, uint64_t seed,
                      struct fold *recorded, struct calibration *cal)
{
    struct out o = {.cal = cal};
    struct draw d = {.w = w,
                     .samples = samples,
                     .tries = gen_alloc(GEN_SERVICES, sizeof *d.tries),
                     .services = alias_zipf(GEN_SERVICES, 0.7),
                     .stacks = alias_zipf(GEN_STACKS, w->zipf),
                     .shape = rng_stream(seed, 2),
                     .values = rng_stream(seed, 3),
                     .tids = rng_stream(seed, 4),
                     .fold = rng_stream(seed, 5),
                     .recorded = recorded,
                     .known = gen_alloc((size_t)GEN_SERVICES * GEN_STACKS, 1)};

    (void)gen_tries(d.tries, seed);
    out_open(&o, dir, w);
    write_samples(&o, &d);
    out_close(&o);
    if (recorded)
        write_streams(dir, recorded);
    return gen_write_tries(dir, d.tries, GEN_SERVICES);
}

static uint32_t recursive(const char *dir, const struct workload *w, uint64_t samples,
                          uint64_t seed, struct calibration *cal)
{
    struct out o = {.cal = cal};
    struct gen_walk walk[WALK_SERVICES];
    struct gen_trie tries[WALK_SERVICES];
    struct rng r = rng_stream(seed, 6);

    out_open(&o, dir, w);
    for (uint32_t s = 0; s < WALK_SERVICES; s++)
        gen_walk_init(&walk[s], (uint32_t)(samples * 9 / WALK_SERVICES + 100000));
    for (uint64_t i = 0; i < samples; i++) {
        uint32_t svc = (uint32_t)(i % WALK_SERVICES), series = rng_below(&r, GEN_SERIES);
        struct row row = {.ts = (uint32_t)((unsigned __int128)i * GEN_SPAN_MS / samples),
                          .stack = gen_walk_step(&walk[svc], &r, svc),
                          .svc = (uint16_t)svc,
                          .series = (uint16_t)(svc * GEN_SERIES + series),
                          .value = GEN_CPU_NS};

        cal->stacks++; /* hardly one occurs twice */
        cal->depth += walk[svc].depth;
        out_row(&o, &row);
    }
    out_close(&o);
    for (uint32_t s = 0; s < WALK_SERVICES; s++)
        tries[s] = walk[s].trie;
    return gen_write_tries(dir, tries, WALK_SERVICES);
}

/* ---- meta.txt ------------------------------------------------------------------------------- */

static void arguments(char *text, size_t size, const struct workload *w, uint64_t samples,
                      uint64_t seed)
{
    (void)snprintf(text, size,
                   "format %d\nworkload %s\nsamples_drawn %" PRIu64 "\nseed %" PRIu64 "\n", FORMAT,
                   w->name, samples, seed);
}

static bool is_there(const char *dir, const char *want)
{
    char path[4096], have[512];
    size_t n = 0;
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/meta.txt", dir);
    f = fopen(path, "re");
    if (!f)
        return false;
    n = fread(have, 1, strlen(want), f);
    (void)fclose(f);
    return n == strlen(want) && memcmp(have, want, n) == 0;
}

static void write_meta(const char *dir, const char *head, const struct workload *w,
                       const struct calibration *cal, uint32_t nodes, double name)
{
    const uint32_t services = w->walk ? WALK_SERVICES : GEN_SERVICES;
    char from[4096], to[4096];
    FILE *f = gen_open(dir, "meta.part");

    (void)fprintf(f, "%ssamples %" PRIu64 "\nzipf %g\nthreads %u\n", head, cal->rows, w->zipf,
                  w->threads);
    (void)fprintf(f, "services %u\nseries %u\ntypes %d\nspan_ms %d\ncpu_ns %d\n", services,
                  services * GEN_SERIES, GEN_TYPES, GEN_SPAN_MS, GEN_CPU_NS);
    (void)fprintf(f, "nodes %u\nfunctions %d\nname_bytes_mean %.1f\n", nodes, GEN_FUNCTIONS, name);
    (void)fprintf(f, "stacks %" PRIu64 "\nnodes_per_stack %.2f\nnodes_per_sample %.3f\n",
                  cal->stacks, (double)nodes / (double)cal->stacks,
                  (double)nodes / (double)cal->rows);
    (void)fprintf(f, "depth_mean %.1f\n", (double)cal->depth / (double)cal->stacks);
    (void)fprintf(f, "stacks_1min %" PRIu64 "\nstacks_5min %" PRIu64 "\nstacks_15min %" PRIu64 "\n",
                  cal->after[0], cal->after[1], cal->after[2]);
    (void)fprintf(f, "samples_cpu %" PRIu64 "\nsamples_cpu_largest %" PRIu64 "\n", cal->by_type[0],
                  cal->largest);
    (void)fprintf(f, "checksum %016" PRIx64 "\n", gen_checksum);
    gen_finish(f);
    (void)snprintf(from, sizeof from, "%s/meta.part", dir);
    (void)snprintf(to, sizeof to, "%s/meta.txt", dir);
    if (rename(from, to) < 0)
        gen_die("%s: %s", to, strerrordesc_np(errno));
}

[[gnu::noreturn]] static void usage(void)
{
    gen_die("usage: gen_profile [--samples N] [--seed N] [--fold FILE] r1|r1t|r2|z|a|p DIR");
}

static uint64_t number(const char *text, uint64_t min, uint64_t max)
{
    char *end;
    unsigned long long v = strtoull(text, &end, 10);

    if (end == text || *end || v < min || v > max)
        gen_die("%s: not a number from %" PRIu64 " to %" PRIu64, text, min, max);
    return v;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"samples", required_argument, NULL, 'n'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"fold", required_argument, NULL, 'f'},
                                            {}};
    const struct workload *w = NULL;
    const char *fold = NULL, *dir;
    uint64_t samples = 0, seed = 1;
    struct calibration cal = {};
    struct fold recorded = {};
    char head[512];
    uint32_t nodes;

    // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'n')
            samples = number(optarg, 1, UINT64_C(4000000000));
        else if (o == 's')
            seed = number(optarg, 0, UINT64_C(1) << 62);
        else if (o == 'f')
            fold = optarg;
        else
            usage();
    }
    if (optind + 2 != argc)
        usage();
    for (size_t i = 0; i < sizeof workloads / sizeof workloads[0]; i++)
        if (strcmp(workloads[i].name, argv[optind]) == 0)
            w = &workloads[i];
    if (!w)
        usage();
    dir = argv[optind + 1];
    samples = samples ? samples : w->samples;
    if (w->walk && samples > 20000000)
        gen_die("workload p has 20 M samples at most: each brings 4 nodes");
    arguments(head, sizeof head, w, samples, seed);
    if (is_there(dir, head))
        return EXIT_SUCCESS;
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        gen_die("%s: %s", dir, strerrordesc_np(errno));
    if (w->fold) {
        if (!fold)
            gen_die("workload a needs --fold FILE");
        recorded = fold_read(fold);
    }
    nodes = w->walk ? recursive(dir, w, samples, seed, &cal)
                    : usual(dir, w, samples, seed, w->fold ? &recorded : NULL, &cal);
    write_meta(dir, head, w, &cal, nodes, gen_write_functions(dir, seed));
    return EXIT_SUCCESS;
}
