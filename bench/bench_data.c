// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void data_die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)fputs("bench: ", stderr);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    exit(EXIT_FAILURE); // NOLINT(concurrency-mt-unsafe): nothing to clean up
}

void *data_alloc(size_t n, size_t size)
{
    size_t bytes = (n * size + 127) / 64 * 64;
    void *p = aligned_alloc(64, bytes);

    if (!p)
        data_die("out of memory");
    return memset(p, 0, bytes);
}

static const void *column(const char *dir, const char *name, size_t width, size_t *ret_rows)
{
    char path[4096];
    struct stat st;
    void *p;
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        *ret_rows = 0;
        return NULL;
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        data_die("%s: %s", path, strerrordesc_np(errno));
    *ret_rows = (size_t)st.st_size / width;
    if (st.st_size == 0) {
        (void)close(fd);
        return NULL;
    }
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (p == MAP_FAILED)
        data_die("%s: %s", path, strerrordesc_np(errno));
    (void)close(fd);
    return p;
}

struct data data_open(const char *dir)
{
    struct data d = {};
    size_t n, bounds;

    d.ts = column(dir, "sample.ts", 4, &d.rows);
    d.svc = column(dir, "sample.svc", 2, &n);
    d.series = column(dir, "sample.series", 2, &n);
    d.type = column(dir, "sample.type", 1, &n);
    d.stack = column(dir, "sample.stack", 4, &n);
    d.value = column(dir, "sample.value", 8, &n);
    if (!d.rows || n != d.rows)
        data_die("%s: no workload: gen_profile makes one", dir);
    d.thread = column(dir, "sample.thread", 1, &n);
    d.count = column(dir, "sample.count", 4, &n);
    d.parent = column(dir, "node.parent", 4, &d.nodes);
    d.function = column(dir, "node.function", 4, &n);
    d.first = column(dir, "service.first", 4, &bounds);
    d.name = column(dir, "function.name", 1, &n);
    d.name_end = column(dir, "function.end", 4, &d.functions);
    d.jitter = column(dir, "stream.jitter", 8, &d.streams);
    d.lost = column(dir, "stream.lost", 4, &n);
    if (!d.first || !d.parent || !d.function || !d.name || !d.name_end)
        data_die("%s: tables are missing", dir);
    d.services = bounds - 1;
    return d;
}

const char *data_name(const struct data *d, uint32_t function, size_t *ret_n)
{
    uint32_t from = function ? d->name_end[function - 1] : 0;

    *ret_n = d->name_end[function] - from;
    return d->name + from;
}

/* ---- the oracle ----------------------------------------------------------------------------- */

struct data_sums data_sum(const struct data *d, uint32_t t0, uint32_t t1, uint32_t skip_series)
{
    struct data_sums s = {.value = data_alloc(d->nodes, sizeof *s.value),
                          .count = data_alloc(d->nodes, sizeof *s.count)};

    for (size_t i = 0; i < d->rows; i++) {
        size_t at = (size_t)d->first[d->svc[i]] + d->stack[i];

        if (d->type[i] != DATA_CPU || d->ts[i] < t0 || d->ts[i] >= t1 ||
            d->series[i] % DATA_SERIES == skip_series)
            continue;
        s.value[at] += d->value[i];
        s.count[at] += d->count ? d->count[i] : 1;
        s.total += d->value[i];
        s.rows++;
    }
    return s;
}

void data_sums_free(struct data_sums *s)
{
    free(s->value);
    free(s->count);
    *s = (struct data_sums){};
}

void data_totals(const struct data *d, int64_t *value)
{
    for (size_t s = 0; s < d->services; s++)
        for (uint32_t i = d->first[s + 1] - d->first[s] - 1; i > 0; i--)
            value[d->first[s] + d->parent[d->first[s] + i]] += value[d->first[s] + i];
}

int64_t *data_series(const struct data *d)
{
    const size_t buckets = DATA_SPAN_MS / DATA_BUCKET;
    int64_t *sum = data_alloc(DATA_SERIES * buckets, sizeof *sum);

    for (size_t i = 0; i < d->rows; i++)
        if (d->type[i] == DATA_CPU && d->svc[i] == 0)
            sum[d->series[i] * buckets + d->ts[i] / DATA_BUCKET] += d->value[i];
    return sum;
}

/* ---- clocks --------------------------------------------------------------------------------- */

static double now_ns(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double data_cpu_ns(void)
{
    return now_ns(CLOCK_PROCESS_CPUTIME_ID);
}

double data_thread_cpu_ns(void)
{
    return now_ns(CLOCK_THREAD_CPUTIME_ID);
}

double data_wall_ns(void)
{
    return now_ns(CLOCK_MONOTONIC);
}
