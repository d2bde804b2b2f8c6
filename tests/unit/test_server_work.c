// SPDX-License-Identifier: Apache-2.0
#include <stdatomic.h>
#include <unistd.h>

#include "server/work.h"
#include "tests/lib/testing.h"

enum {
    N = 200
};

static atomic_bool hold;
static atomic_uint ran, order_broken;
static unsigned last;

static void run(struct work_job *job)
{
    (void)job;
    while (atomic_load(&hold))
        (void)usleep(500);
    atomic_fetch_add(&ran, 1);
}

static struct work_job jobs[N];

/* One thread: jobs run in the order in which they came. */
static void run_in_order(struct work_job *job)
{
    unsigned me = (unsigned)(job - jobs);

    if (atomic_load(&ran) && me != last + 1)
        atomic_fetch_add(&order_broken, 1);
    last = me;
    atomic_fetch_add(&ran, 1);
}

static void test_bounds(void **state)
{
    struct work *w = NULL;
    struct err err = {};
    uint32_t running = 0, waiting = 0, taken = 0;

    (void)state;
    atomic_store(&ran, 0);
    atomic_store(&hold, true);
    assert_ok(work_start(2, 3, &w, &err), &err);
    for (uint32_t i = 0; i < 20; i++) {
        jobs[i].run = run;
        taken += work_submit(w, &jobs[i]);
    }
    assert_int_equal(taken, 5);
    for (int ms = 0; ms < 2000 && running < 2; ms++) {
        (void)usleep(1000);
        work_load(w, &running, &waiting);
    }
    assert_int_equal(running, 2);
    assert_int_equal(waiting, 3);
    atomic_store(&hold, false);
    assert_null(work_stop(w)); /* what waits is finished first */
    assert_int_equal(atomic_load(&ran), 5);
}

static void test_order(void **state)
{
    struct work *w = NULL;
    struct err err = {};

    (void)state;
    atomic_store(&ran, 0);
    assert_ok(work_start(1, N, &w, &err), &err);
    for (uint32_t i = 0; i < N; i++) {
        jobs[i].run = run_in_order;
        assert_true(work_submit(w, &jobs[i]));
    }
    work_stop(w);
    assert_int_equal(atomic_load(&ran), N);
    assert_int_equal(atomic_load(&order_broken), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bounds), cmocka_unit_test(test_order)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
