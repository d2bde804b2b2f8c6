// SPDX-License-Identifier: Apache-2.0
/* Many parts, few handles, several threads. */
#include <pthread.h>
#include <sys/resource.h>

#include "base/thread.h"
#include "tests/unit/test_storage_part_lib.h"

/* Many parts through few handles. */
static void test_handles(void **state)
{
    enum {
        N = 12
    };
    struct here h;
    struct parts *ps;
    struct part *p[N];
    struct part_handle *held[3];
    struct err err = {};

    (void)state;
    here_init(&h);
    ps = parts_new(h.dir, NULL, 3, false);
    for (int i = 0; i < N; i++) {
        p[i] = part_new(ps, &h.info);
        assert_ok(part_load(p[i], &err), &err);
    }
    for (int i = 0; i < 3; i++)
        assert_ok(part_enter(p[i], &held[i], &err), &err);
    for (int i = 0; i < N; i++) { /* beyond the limit where all are held */
        struct part_handle *x;
        struct str s;

        assert_ok(part_enter(p[i], &x, &err), &err);
        assert_ok(part_summary(x, 1, &s, &err), &err);
        assert_int_equal(part_summary(x, 99, &s, NULL), -EBADMSG);
        part_leave(x);
    }
    for (int i = 0; i < 3; i++)
        part_leave(held[i]);
    for (int i = 0; i < N; i++)
        (void)part_unref(p[i]);
    (void)parts_free(ps);
    here_deinit(&h);
}

/* Few descriptors: many parts are read all the same, and one handle too many is an error like any
 * other. */
static void test_descriptors(void **state)
{
    enum {
        N = 90
    };
    struct here h;
    struct parts *ps;
    struct part *p[N];
    struct part_handle *held[N];
    struct rlimit was, few;
    struct err err = {};
    struct str s;
    int n = 0, r = 0;

    (void)state;
    here_init(&h);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = (struct rlimit){80, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    ps = parts_new(h.dir, NULL, 0, false); /* (80 - 32) / 2 handles */
    for (int i = 0; i < N; i++) {
        p[i] = part_new(ps, &h.info);
        assert_ok(part_load(p[i], &err), &err);
    }
    assert_true(folder_count("/proc/self", "fd") < 40);
    while (n < N && (r = part_enter(p[n], &held[n], &err)) == 0)
        n++;
    assert_true(r == -EMFILE && n > 40);
    assert_true(err.msg[0] != '\0');
    for (int i = 0; i < n; i++) {
        assert_ok(part_cols(held[i], 1, &s, &err), &(struct err){});
        part_leave(held[i]);
    }
    assert_ok(part_enter(p[N - 1], &held[0], &err), &err);
    part_leave(held[0]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    for (int i = 0; i < N; i++)
        (void)part_unref(p[i]);
    (void)parts_free(ps);
    here_deinit(&h);
}

/* Threads that read the same parts through few handles, while what was decoded is given up. */
enum {
    N_PART = 5,
    N_THREAD = 4,
    N_TURN = 150
};

struct turns {
    struct parts *ps;
    struct part *p[N_PART];
    uint64_t seed;
    _Atomic uint32_t *failed;
};

static void *take_turns(void *arg)
{
    struct turns *t = arg;
    const struct local *l;
    struct local_snap snap;
    struct str s;

    for (uint32_t i = 0; i < N_TURN; i++) {
        struct part *p = part_ref(t->p[hash_mix(t->seed + i) % N_PART]);
        struct part_handle *h;
        int r = part_load(p, NULL);

        if (r == 0)
            r = part_enter(p, &h, NULL);
        if (r == 0) {
            r = part_cols(h, p->block[i % p->n_block].id, &s, NULL);
            part_leave(h);
        }
        if (r == 0 && i % 3 == 0)
            r = part_local(p, &l, &snap, NULL);
        if (r == 0 && i % 3 == 0 && texts_n(&l->text) < 5)
            r = -1;
        atomic_fetch_add(t->failed, r != 0);
        (void)part_unref(p);
        if (i % 7 == 0)
            parts_trim(t->ps, 0);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct here h;
    struct parts *ps;
    struct turns t[N_THREAD];
    pthread_t thread[N_THREAD];
    _Atomic uint32_t failed = 0;

    (void)state;
    here_init(&h);
    ps = parts_new(h.dir, NULL, 3, true);
    for (uint32_t i = 0; i < N_THREAD; i++) {
        t[i] = (struct turns){.ps = ps, .seed = UINT64_C(1000) * i, .failed = &failed};
        for (int k = 0; k < N_PART; k++)
            t[i].p[k] = i == 0 ? part_new(ps, &h.info) : t[0].p[k];
    }
    for (int i = 0; i < N_THREAD; i++)
        assert_int_equal(thread_start(&thread[i], "part", 0, take_turns, &t[i]), 0);
    for (int i = 0; i < N_THREAD; i++)
        (void)pthread_join(thread[i], NULL);
    assert_int_equal(failed, 0);
    for (int k = 0; k < N_PART; k++)
        (void)part_unref(t[0].p[k]);
    (void)parts_free(ps);
    here_deinit(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handles),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
