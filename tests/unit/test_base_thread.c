// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include "base/thread.h"
#include "base/time.h"
#include "tests/lib/testing.h"

static struct mutex mu = MUTEX_INIT;
static struct cond changed;
static int turn, sum;

static void *worker(void *arg)
{
    sigset_t blocked;

    assert(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0);
    assert(sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGUSR1) == 1);
    for (int i = 0; i < 1000; i++) {
        mutex_lock(&mu);
        while (turn != *(int *)arg)
            cond_wait(&changed, &mu);
        sum++;
        turn = !turn;
        cond_broadcast(&changed);
        mutex_unlock(&mu);
    }
    return NULL;
}

/* Two threads that take turns; neither may miss a signal. */
static void ping_pong(void **state)
{
    static int id[2] = {0, 1};
    pthread_t t[2];

    (void)state;
    cond_init(&changed);
    for (int i = 0; i < 2; i++)
        assert_int_equal(thread_start(&t[i], "a name that is too long", 256 << 10, worker, &id[i]),
                         0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    assert_int_equal(sum, 2000);
    cond_deinit(&changed);
}

static void *sleeper(void *arg)
{
    char *ret = arg;

    mutex_lock(&mu); /* named while the starter holds it */
    assert(pthread_getname_np(pthread_self(), ret, 16) == 0);
    mutex_unlock(&mu);
    return NULL;
}

static void name_is_set(void **state)
{
    char name[16] = "";
    pthread_t t;

    (void)state;
    mutex_lock(&mu);
    assert_int_equal(thread_start(&t, "strata-x", 0, sleeper, name), 0);
    mutex_unlock(&mu);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_string_equal(name, "strata-x");
}

static void wait_ends(void **state)
{
    struct mutex m;
    struct cond c;
    mono_ns before = mono_now();

    (void)state;
    mutex_init(&m);
    cond_init(&c);
    mutex_lock(&m);
    while (cond_wait_for(&c, &m, 20 * NS_PER_MS)) /* spurious wake-ups are allowed */
        ;
    assert_true(mono_now().v - before.v >= 20 * NS_PER_MS);
    while (cond_wait_for(&c, &m, -5))
        ;
    mutex_unlock(&m);
    cond_deinit(&c);
    mutex_deinit(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ping_pong),
        cmocka_unit_test(name_is_set),
        cmocka_unit_test(wait_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
