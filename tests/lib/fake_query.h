// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <inttypes.h>

#include "query/query.h"
#include "tests/lib/fake_store.h"
#include "tests/lib/testing.h"

/* Questions to the double of the store, for tests: times in ns, now is 10,000 s. One thread. */

static struct query_err test_err;

/* by: one label, or NULL. Fails the test if the question is refused. */
static inline struct query *test_ask(struct store *s, const char *q, int64_t from, int64_t to,
                                     const char *by)
{
    struct query_conf conf = {
        .store = s, .now = {10000 * NS_PER_S}, .mem_max = UINT64_C(1) << 30, .max_points = 11000};
    struct query_ask a = {.q = str_c(q), .need_type = true};
    struct query *ret = NULL;
    char t0[32], t1[32];

    (void)snprintf(t0, sizeof t0, "%" PRId64 "ns", from);
    (void)snprintf(t1, sizeof t1, "%" PRId64 "ns", to);
    a.from = str_c(t0);
    a.to = str_c(t1);
    if (by)
        a.by[a.n_by++] = str_c(by);
    test_err = (struct query_err){};
    if (query_open(&conf, &a, &ret, &test_err) != 0)
        fail_msg("%s: %s", q, test_err.msg);
    return ret;
}

/* A row of cpu of service a at 1 s; each observation weighs 10. */
static inline void test_row(struct store *s, const char *stack, int64_t value)
{
    fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                         .labels = "service=a",
                                         .t = NS_PER_S,
                                         .stack = stack,
                                         .count = (uint64_t)value / 10,
                                         .value = value});
}

/* Without a type. */
static inline struct query *test_ask_any(struct store *s, const char *q, int64_t from, int64_t to)
{
    struct query_conf conf = {
        .store = s, .now = {10000 * NS_PER_S}, .mem_max = UINT64_C(1) << 28, .max_points = 11000};
    struct query_ask a = {.q = str_c(q)};
    struct query *ret = NULL;
    char t0[32], t1[32];

    (void)snprintf(t0, sizeof t0, "%" PRId64 "ns", from);
    (void)snprintf(t1, sizeof t1, "%" PRId64 "ns", to);
    a.from = str_c(t0);
    a.to = str_c(t1);
    test_err = (struct query_err){};
    if (query_open(&conf, &a, &ret, &test_err) != 0)
        fail_msg("%s: %s", q, test_err.msg);
    return ret;
}

/* A row of cpu of this process and service, host h; each observation weighs 10. */
static inline void test_row_of(struct store *s, uint64_t pid, const char *service, int64_t t,
                               int64_t value)
{
    char labels[64];

    (void)snprintf(labels, sizeof labels, "service=%s,host=h", service);
    fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                         .labels = labels,
                                         .t = t,
                                         .stack = "n:main#x",
                                         .count = (uint64_t)value / 10,
                                         .value = value,
                                         .pid = pid});
}

/* Processes 1 and 2 of service a, 3 of b; a row each second, of weight 10^pid. */
static inline struct store *test_three(void)
{
    struct store *s = fake_store_new();

    for (int64_t t = 0; t < 100; t++) {
        test_row_of(s, 1, "a", t * NS_PER_S, 10);
        test_row_of(s, 2, "a", t * NS_PER_S, 100);
        test_row_of(s, 3, "b", t * NS_PER_S, 1000);
    }
    fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                             .labels = "host=h",
                                             .t1 = 100 * NS_PER_S,
                                             .basis = BASIS_PERIODIC,
                                             .period = 10});
    return s;
}
