// SPDX-License-Identifier: Apache-2.0
/*
 * What does a block cost, per row: written, its summary added, counted from columns, a sixth of its
 * time, decoded whole? Bytes per row beside it. 1 M rows of one service in an hour (20,000 stacks
 * by Zipf's law, 10 series), sorted; CPU time, the minimum of the rounds.
 *
 *     bench_block [--smoke] [--rounds N]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/str.h"
#include "tests/lib/gen_block.h"

#define STACKS 20000u
#define NODES  60000u
#define HOUR   3600000u

struct part_of {
    uint32_t n_block;
    struct buf summary[32], cols[32];
    struct block_meta meta[32];
};

static int64_t spent_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static struct block_rows rows_make(struct gen_block *g, uint32_t n, bool values)
{
    struct block_rows r = {.n = n,
                           .ms = GB_ARRAY(g, int64_t, n),
                           .series = GB_ARRAY(g, uint32_t, n),
                           .thread = GB_ARRAY(g, uint32_t, n),
                           .node = GB_ARRAY(g, uint32_t, n),
                           .period = 10101010};
    double *sum = GB_ARRAY(g, double, STACKS);
    struct err err = {};
    struct arena tmp;
    int64_t t;

    for (uint32_t k = 0; k < STACKS; k++)
        sum[k] = (k ? sum[k - 1] : 0) + 1.0 / (k + 1);
    if (values)
        r.value = GB_ARRAY(g, int64_t, n);
    for (uint32_t i = 0; i < n; i++) {
        double x = (double)gb_below(g, 1 << 30) / (1 << 30) * sum[STACKS - 1];
        uint32_t lo = 0, hi = STACKS - 1;

        while (lo < hi) {
            uint32_t mid = (lo + hi) / 2;

            if (sum[mid] < x)
                lo = mid + 1;
            else
                hi = mid;
        }
        r.node[i] = (uint32_t)(hash_mix(lo + 1) % NODES);
        r.ms[i] = INT64_C(1796000400000) + gb_below(g, HOUR);
        r.series[i] = 1 + gb_below(g, 10);
        if (values)
            r.value[i] = (int64_t)exp(8 + 6.0 * gb_below(g, 1000) / 1000);
    }
    arena_init(&tmp, SIZE_MAX);
    t = spent_ns();
    if (block_sort(&r, &tmp, &err) < 0)
        abort();
    (void)printf("sort,%.2f,ns/row,%u,,\n", (double)(spent_ns() - t) / n, n);
    arena_deinit(&tmp);
    return r;
}

static struct block_rows part_rows(const struct block_rows *r, uint32_t from, uint32_t n)
{
    struct block_rows s = *r;

    s.n = n;
    s.ms += from;
    s.series += from;
    s.thread += from;
    s.node += from;
    if (s.value)
        s.value += from;
    return s;
}

static void encode(struct block_coder *c, const struct block_rows *r, struct part_of *p)
{
    struct err err = {};

    p->n_block = 0;
    for (uint32_t at = 0; at < r->n; at += BLOCK_ROWS) {
        uint32_t k = p->n_block++;
        struct block_rows s = part_rows(r, at, r->n - at < BLOCK_ROWS ? r->n - at : BLOCK_ROWS);

        buf_reset(&p->summary[k]);
        buf_reset(&p->cols[k]);
        if (block_encode(c, &s, 1, &p->meta[k], &p->summary[k], &p->cols[k], &err) < 0)
            abort();
    }
}

static uint64_t sums(struct block_coder *c, const struct part_of *p, struct sum_at *at)
{
    struct summary s;

    memset(at, 0, NODES * sizeof *at);
    for (uint32_t k = 0; k < p->n_block; k++) {
        if (summary_open(c, buf_view(&p->summary[k]), NODES, &s, NULL) < 0)
            abort();
        summary_add(&s, at);
    }
    return at[1].count;
}

/* lo, hi: ms of the hour. */
static uint64_t columns(struct block_coder *c, const struct part_of *p, uint32_t *count,
                        struct sum_at *at, struct block *b, int64_t lo, int64_t hi)
{
    struct summary s;
    uint64_t rows = 0;

    memset(at, 0, NODES * sizeof *at);
    for (uint32_t k = 0; k < p->n_block; k++) {
        if (p->meta[k].t0 >= hi * 1000000 || p->meta[k].t1 <= lo * 1000000)
            continue;
        if (summary_open(c, buf_view(&p->summary[k]), NODES, &s, NULL) < 0 ||
            block_open(buf_view(&p->cols[k]), b, NULL) < 0)
            abort();
        memset(count, 0, s.n * sizeof *count);
        for (uint32_t i = 0; i < b->n_slice; i++) {
            uint32_t from, to;

            if (slice_range(c, b, i, lo, hi, &from, &to, NULL) < 0 ||
                slice_count(c, b, i, s.n, from, to, NULL, count, NULL) < 0)
                abort();
            rows += to - from;
        }
        for (uint32_t i = 0; i < s.n; i++) {
            at[s.node[i]].count += count[i];
            at[s.node[i]].sum += b->v * (int64_t)count[i];
        }
    }
    return rows;
}

static uint64_t read_all(struct block_coder *c, const struct part_of *p, struct block *b)
{
    struct slice_rows rows;
    struct summary s;
    uint64_t n = 0;

    for (uint32_t k = 0; k < p->n_block; k++) {
        if (summary_open(c, buf_view(&p->summary[k]), NODES, &s, NULL) < 0 ||
            block_open(buf_view(&p->cols[k]), b, NULL) < 0)
            abort();
        for (uint32_t i = 0; i < b->n_slice; i++) {
            if (slice_read(c, b, &s, i, SLICE_ALL, &rows, NULL) < 0)
                abort();
            n += rows.n;
        }
    }
    return n;
}

static void measure(struct block_coder *c, struct gen_block *g, uint32_t n, uint32_t rounds,
                    bool values)
{
    struct block_rows r = rows_make(g, n, values);
    struct part_of *p = GB_ARRAY(g, struct part_of, 1);
    struct sum_at *at = GB_ARRAY(g, struct sum_at, NODES);
    uint32_t *count = GB_ARRAY(g, uint32_t, BLOCK_ROWS + RANK_SLACK);
    struct block *b = GB_ARRAY(g, struct block, 1);
    static const char *const name[] = {"encode", "sums", "columns", "slice", "read"};
    double best[5] = {1e18, 1e18, 1e18, 1e18, 1e18}, bytes[2] = {};
    const char *what = values ? "values" : "const";

    for (uint32_t k = 0; k < 32; k++) {
        buf_init(&p->summary[k], SIZE_MAX);
        buf_init(&p->cols[k], SIZE_MAX);
    }
    for (uint32_t k = 0; k < rounds; k++) {
        int64_t t[6];
        uint64_t of[5] = {n, n, n, n, n};
        const int64_t t0 = INT64_C(1796000400000);

        t[0] = spent_ns();
        encode(c, &r, p);
        t[1] = spent_ns();
        (void)sums(c, p, at);
        t[2] = spent_ns();
        (void)columns(c, p, count, at, b, t0, t0 + HOUR);
        t[3] = spent_ns();
        of[3] = columns(c, p, count, at, b, t0 + HOUR / 3, t0 + HOUR / 2);
        t[4] = spent_ns();
        (void)read_all(c, p, b);
        t[5] = spent_ns();
        for (uint32_t i = 0; i < 5; i++) {
            double ns = (double)(t[i + 1] - t[i]) / (double)of[i];

            best[i] = ns < best[i] ? ns : best[i];
        }
    }
    for (uint32_t k = 0; k < p->n_block; k++) {
        bytes[0] += (double)p->summary[k].n;
        bytes[1] += (double)p->cols[k].n;
    }
    for (uint32_t i = 0; i < 5; i++)
        (void)printf("%s_%s,%.2f,ns/row,%u,,\n", name[i], what, best[i], n);
    (void)printf("summary_%s,%.3f,B/row,%u,,\ncols_%s,%.3f,B/row,%u,,\n", what, bytes[0] / n, n,
                 what, bytes[1] / n, n);
    for (uint32_t k = 0; k < 32; k++) {
        buf_deinit(&p->summary[k]);
        buf_deinit(&p->cols[k]);
    }
}

int main(int argc, char **argv)
{
    struct block_coder *c = block_coder_new();
    struct arena arena;
    struct gen_block g = {.state = 1, .arena = &arena};
    bool smoke = argc > 1 && strcmp(argv[1], "--smoke") == 0;
    uint64_t rounds = smoke ? 1 : 7;

    if (argc > 2 && strcmp(argv[1], "--rounds") == 0 &&
        !str_u64((struct str){argv[2], strlen(argv[2])}, &rounds))
        return 2;
    if (!c)
        return 1;
    arena_init(&arena, SIZE_MAX);
    (void)printf("name,value,unit,n,p50,p99\n");
    for (uint32_t values = 0; values < 2; values++) {
        measure(c, &g, smoke ? 20000 : 1000000, (uint32_t)rounds, values);
        arena_reset(&arena);
    }
    arena_deinit(&arena);
    (void)block_coder_free(c);
    return 0;
}
