// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A workload of gen_profile, mapped, and the right answers by plain array arithmetic: the oracle.
 * Nothing of storage/ or query/ is used here. Errors end the program. Thread: any, read only.
 */
struct data {
    size_t rows, services, nodes, functions;
    const uint32_t *ts, *stack, *count; /* count NULL: 1 each */
    const uint16_t *svc, *series;
    const uint8_t *type, *thread; /* thread NULL: none */
    const int64_t *value;
    const uint32_t *parent, *function, *first; /* first[services] = nodes */
    const char *name;
    const uint32_t *name_end;
    size_t streams; /* what sources said, to be repeated in turn; 0: none */
    const int64_t *jitter;
    const uint32_t *lost;
};

enum {
    DATA_SPAN_MS = 3600000,
    DATA_CUT0 = 20 * 60000, /* ten minutes in the middle */
    DATA_CUT1 = 30 * 60000,
    DATA_BUCKET = 15000,
    DATA_SERIES = 10, /* per service */
    DATA_CPU = 0,     /* sample.type of constant weight */
    DATA_CPU_NS = 52631579,
};

[[gnu::noreturn, gnu::format(printf, 1, 2)]] void data_die(const char *fmt, ...);
void *data_alloc(size_t n, size_t size); /* zeroed, aligned to 64 */

struct data data_open(const char *dir);

/* Name of a function: pointer and length. */
const char *data_name(const struct data *d, uint32_t function, size_t *ret_n);

/* Weights and observations of cpu rows. value and count are indexed by row of the node table, and
 * added to. skip_series: rows whose series % 10 is this are left out; UINT32_MAX: none. */
struct data_sums {
    int64_t *value;
    uint64_t *count;
    uint64_t rows;
    int64_t total;
};

struct data_sums data_sum(const struct data *d, uint32_t t0, uint32_t t1, uint32_t skip_series);
void data_sums_free(struct data_sums *s);

/* Leaf sums -> totals of every node: parents come first, so one pass upward. In place. */
void data_totals(const struct data *d, int64_t *value);

/* Sums of service 0 by (series, bucket of 15 s): [series * buckets + bucket]. */
int64_t *data_series(const struct data *d);

double data_cpu_ns(void);        /* of this process */
double data_thread_cpu_ns(void); /* of this thread */
double data_wall_ns(void);
