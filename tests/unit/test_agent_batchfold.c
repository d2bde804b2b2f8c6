// SPDX-License-Identifier: Apache-2.0
/* Folding coarser: every sum stays, by whatever it is still told apart. */
#include "agent/send/batchfold.h"
#include "base/time.h"
#include "tests/lib/testing.h"

#define N  5000
#define T0 (INT64_C(1700000003) * NS_PER_S)

static real_ns t[N];
static uint32_t node[N], target[N], tid[N], thread[N], labels[N];
static uint64_t count[N];
static int64_t value[N];

static struct batchfold_columns make(unsigned seed)
{
    for (uint32_t i = 0; i < N; i++) {
        seed = seed * 1103515245 + 12345;
        t[i].v = T0 + (int64_t)(i / 200) * NS_PER_S;
        node[i] = (seed >> 16) % 7;
        target[i] = (seed >> 20) % 3;
        tid[i] = 100 + (seed >> 23) % 4;
        thread[i] = tid[i] % 2;
        labels[i] = target[i];
        count[i] = 1 + (seed >> 26) % 3;
        value[i] = (int64_t)count[i] * 10101010;
    }
    return (struct batchfold_columns){.t = t,
                                      .node = node,
                                      .target = target,
                                      .tid = tid,
                                      .thread = thread,
                                      .labels = labels,
                                      .count = count,
                                      .value = value,
                                      .n = N,
                                      .by_period = true};
}

struct sums {
    int64_t all, by_node[7], by_target[3], by_slot[4], by_tid[4];
    uint64_t count;
};

static struct sums sums(const struct batchfold_columns *c)
{
    struct sums s = {};

    for (uint32_t i = 0; i < c->n; i++) {
        assert_true(c->t[i].v >= T0);
        s.all += c->value[i];
        s.count += c->count[i];
        s.by_node[c->node[i]] += c->value[i];
        s.by_target[c->target[i]] += c->value[i];
        s.by_slot[c->t[i].v / BATCHFOLD_NS - T0 / BATCHFOLD_NS] += c->value[i];
        if (c->tid[i])
            s.by_tid[c->tid[i] - 100] += c->value[i];
        assert_int_equal(c->value[i], (int64_t)c->count[i] * 10101010);
        assert_int_equal(c->labels[i], c->target[i]);
    }
    return s;
}

static void folds(void **state)
{
    struct batchfold_columns c = make(3);
    struct sums before = sums(&c), after;
    uint32_t n;

    (void)state;
    batchfold(&c, (real_ns){T0}, BATCHFOLD_NONE);
    assert_int_equal(c.n, N);
    batchfold(&c, (real_ns){T0}, BATCHFOLD_TIME);
    after = sums(&c);
    assert_memory_equal(&before, &after, sizeof after);
    n = c.n;
    assert_int_equal(n, 3 * 7 * 3 * 4); /* slots 7 s, 10 s, 8 s */
    batchfold(&c, (real_ns){T0}, BATCHFOLD_THREADS);
    after = sums(&c);
    memset(before.by_tid, 0, sizeof before.by_tid);
    assert_memory_equal(&before, &after, sizeof after);
    assert_int_equal(c.n, n / 4);
    for (uint32_t i = 0; i < c.n; i++)
        assert_int_equal(c.tid[i] + c.thread[i], 0);
}

static void levels(void **state)
{
    (void)state;
    assert_int_equal(batchfold_level(0), BATCHFOLD_NONE);
    assert_int_equal(batchfold_level(49), BATCHFOLD_NONE);
    assert_int_equal(batchfold_level(50), BATCHFOLD_TIME);
    assert_int_equal(batchfold_level(89), BATCHFOLD_TIME);
    assert_int_equal(batchfold_level(90), BATCHFOLD_THREADS);
    assert_int_equal(batchfold_level(100), BATCHFOLD_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(folds), cmocka_unit_test(levels)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
