// SPDX-License-Identifier: Apache-2.0
/* produced = sent + dropped + spooled after every step of a long random walk; what is dropped is
 * told, once, whole. */
#include <stdlib.h>
#include <time.h>

#include "agent/send/spool.h"
#include "base/time.h"
#include "tests/lib/testing.h"

static void hold(struct batchmake_info *i, uint32_t type, uint64_t n, int64_t weight)
{
    batchmake_sum(&i->held, &(struct batchmake_dropped){.why = LOSS_SPOOL_DROP,
                                                        .first = 1,
                                                        .covers = i->covers,
                                                        .n = n,
                                                        .weight = weight,
                                                        .width = 2,
                                                        .type = type});
}

static struct batchmake_info info_of(uint64_t seq)
{
    struct batchmake_info i = {
        .covers = {{(int64_t)seq * NS_PER_S}, {(int64_t)(seq + 1) * NS_PER_S}}};

    hold(&i, PTYPE_CPU, 200, 2000);
    return i;
}

static void put(struct spool *s, uint64_t seq, size_t n)
{
    struct batchmake_info info = info_of(seq);
    char *body = calloc(1, n);

    assert_non_null(body);
    memcpy(body, &seq, n < sizeof seq ? n : sizeof seq);
    spool_put(s, &(struct spool_new_batch){.seq = seq, .body = {body, n}, .info = &info});
    free(body);
}

static struct spool *in_memory(uint64_t cap, int64_t max_age)
{
    return spool_new(&(struct spool_conf){.dir = "", .cap = cap, .max_age = max_age, .boot = {7}});
}

static void body_is(struct spool *s, const struct spool_batch *b, uint64_t seq)
{
    struct buf out;

    buf_init(&out, 1 << 20);
    assert_int_equal(spool_read(s, b, &out, NULL), 0);
    assert_int_equal(out.n, b->bytes);
    assert_memory_equal(out.p, &seq, sizeof seq);
    buf_deinit(&out);
}

static uint64_t dropped_sum(const struct spool_stats *st)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < SPOOL_DROP_N; i++)
        n += st->dropped[i];
    return n;
}

static void order(void **state)
{
    struct spool *s = in_memory(1 << 20, 3600 * NS_PER_S);
    const struct spool_batch *b;

    (void)state;
    assert_null(spool_front(s, 0));
    for (uint64_t i = 1; i <= 3; i++)
        put(s, i, 100);
    b = spool_front(s, 0);
    assert_int_equal(b->seq, 1);
    assert_int_equal(b->tries, 1);
    body_is(s, b, 1);
    spool_retry(s, b, mono_now().v + 50 * NS_PER_MS, false);
    assert_null(spool_front(s, 0)); /* in order: the next one waits too */
    b = spool_front(s, NS_PER_S);
    assert_int_equal(b->seq, 1);
    assert_int_equal(b->tries, 2);
    spool_done(s, b, false);
    b = spool_front(s, 0);
    assert_int_equal(b->seq, 2);
    spool_drop(s, b, SPOOL_DROP_BAD);
    b = spool_front(s, 0);
    assert_int_equal(b->seq, 3);
    spool_done(s, b, true);
    spool_free(s);
}

/* The oldest go, but not the one on its way: it may be stored already. */
static void cap(void **state)
{
    struct spool *s = in_memory(1000, 3600 * NS_PER_S);
    struct batchmake_dropped d[8];
    const struct spool_batch *b;
    struct spool_stats st;

    (void)state;
    put(s, 1, 300);
    b = spool_front(s, 0);
    for (uint64_t i = 2; i <= 7; i++)
        put(s, i, 300);
    spool_get_stats(s, &st);
    assert_int_equal(st.dropped[SPOOL_DROP_FULL], 4);
    assert_int_equal(st.spooled, 3);
    assert_true(st.bytes <= 1000);
    assert_int_equal(b->seq, 1);
    spool_done(s, b, false);
    assert_int_equal(spool_take_dropped(s, d, 8), 1);
    assert_int_equal(d[0].first, 2);
    assert_int_equal(d[0].last, 5);
    assert_int_equal(d[0].n, 800);
    assert_int_equal(d[0].weight, 8000);
    assert_int_equal(d[0].covers.t0.v, 2 * NS_PER_S);
    assert_int_equal(d[0].covers.t1.v, 6 * NS_PER_S);
    assert_int_equal(d[0].why, LOSS_SPOOL_DROP);
    assert_int_equal(spool_take_dropped(s, d, 8), 1); /* no batch carries it yet */
    put(s, 8, 1);
    assert_int_equal(spool_take_dropped(s, d, 8), 0);
    b = spool_front(s, 0);
    assert_int_equal(b->seq, 6);
    spool_drop(s, b, SPOOL_DROP_TOO_LARGE);
    assert_int_equal(spool_take_dropped(s, d, 8), 1);
    assert_int_equal(d[0].why, LOSS_SEND_REJECTED);
    spool_free(s);
}

/* A batch that tells of others and is given up too: they are told again, and as they were. */
static void told_again(void **state)
{
    const struct batchmake_dropped told[] = {
        {LOSS_SPOOL_DROP, 2, 3, {{2 * NS_PER_S}, {4 * NS_PER_S}}, 400, 4000, 2, PTYPE_CPU},
        {LOSS_SPOOL_DROP, 5, 5, {{5 * NS_PER_S}, {6 * NS_PER_S}}, 200, 2000, 2, PTYPE_CPU}};
    struct batchmake_info info = info_of(6);
    struct spool *s = in_memory(1 << 20, 3600 * NS_PER_S);
    struct batchmake_dropped d[8];

    (void)state;
    spool_put(s, &(struct spool_new_batch){
                     .seq = 6, .body = STR("x"), .info = &info, .told = told, .n_told = 2});
    spool_drop(s, spool_front(s, 0), SPOOL_DROP_AGE);
    assert_int_equal(spool_take_dropped(s, d, 8), 2);
    assert_int_equal(d[0].first, 2);
    assert_int_equal(d[0].last, 3);
    assert_int_equal(d[1].first, 5);
    assert_int_equal(d[1].last, 6);
    assert_int_equal(d[1].n, 400);
    assert_int_equal(d[1].covers.t1.v, 7 * NS_PER_S);
    spool_free(s);
}

/* For want of room entries become one; those of another type or reason never do. */
static void no_room(void **state)
{
    struct spool *s = in_memory(1 << 20, 3600 * NS_PER_S);
    struct batchmake_dropped d[96];
    uint64_t n[PTYPE_BUILTIN_END][2] = {}, seq = 0;
    int64_t weight[PTYPE_BUILTIN_END][2] = {};

    (void)state;
    for (unsigned i = 0; i < 400; i++) { /* every second one: no two are neighbours */
        struct batchmake_info info = info_of(++seq);

        if (i >= 200)
            hold(&info, PTYPE_GIL_HELD, 100, 700);
        if (i >= 300) {
            hold(&info, PTYPE_OFFCPU, 7, 90);
            hold(&info, PTYPE_RUNQ, 6, 80);
        }
        spool_put(s, &(struct spool_new_batch){.seq = seq, .body = STR("x"), .info = &info});
        spool_drop(s, spool_front(s, 0), i % 50 == 49 ? SPOOL_DROP_BAD : SPOOL_DROP_DAMAGED);
        put(s, ++seq, 1);
        spool_done(s, spool_front(s, 0), false);
    }
    for (uint32_t m; (m = spool_take_dropped(s, d, 96)) > 0;) {
        for (uint32_t i = 0; i < m; i++) {
            unsigned type = d[i].type, why = d[i].why == LOSS_SEND_REJECTED;

            n[type][why] += d[i].n;
            weight[type][why] += d[i].weight;
        }
        put(s, ++seq, 1);
        spool_done(s, spool_front(s, 0), false);
    }
    assert_int_equal(n[PTYPE_CPU][0], UINT64_C(392) * 200);
    assert_int_equal(weight[PTYPE_CPU][0], 392 * 2000);
    assert_int_equal(n[PTYPE_CPU][1], 8 * 200);
    assert_int_equal(weight[PTYPE_CPU][1], 8 * 2000);
    assert_int_equal(n[PTYPE_GIL_HELD][0], UINT64_C(196) * 100);
    assert_int_equal(weight[PTYPE_GIL_HELD][0], 196 * 700);
    assert_int_equal(n[PTYPE_GIL_HELD][1], 4 * 100);
    assert_int_equal(weight[PTYPE_GIL_HELD][1], 4 * 700);
    assert_int_equal(weight[PTYPE_OFFCPU][0] + weight[PTYPE_OFFCPU][1], 100 * 90);
    assert_int_equal(n[PTYPE_RUNQ][1], 2 * 6);
    spool_free(s);
}

static void age(void **state)
{
    struct spool *s = in_memory(1000, 20 * NS_PER_MS);
    struct spool_stats st;

    (void)state;
    put(s, 1, 100);
    assert_non_null(spool_front(s, 0));
    put(s, 2, 100);
    do {
        struct timespec t = {.tv_nsec = 5 * NS_PER_MS};

        nanosleep(&t, NULL);
        put(s, 3, 1);
        spool_get_stats(s, &st);
    } while (st.dropped[SPOOL_DROP_AGE] == 0);
    spool_free(s);
}

static void walk(void **state)
{
    struct spool *s = in_memory(5000, 3600 * NS_PER_S);
    const struct spool_batch *flying = NULL;
    uint64_t seq = 0, told = 0, n_told = 0, sent = 0;
    struct spool_stats st;
    unsigned seed = 4;

    (void)state;
    for (unsigned i = 0; i < 100000; i++) {
        struct batchmake_dropped d[4];
        uint32_t n;

        seed = seed * 1103515245 + 12345;
        switch (seed >> 16 & 7) {
        case 0:
        case 1:
        case 2:
            put(s, ++seq, 1 + (seed >> 20) % 1500);
            break;
        case 3:
            if (!flying)
                flying = spool_front(s, 0);
            break;
        case 4:
            if (flying) {
                spool_done(s, flying, false);
                sent++;
            }
            flying = NULL;
            break;
        case 5:
            if (flying)
                spool_retry(s, flying, 0, false);
            flying = NULL;
            break;
        case 6:
            if (flying)
                spool_drop(s, flying, (enum spool_drop)(2 + (seed >> 20) % 5));
            flying = NULL;
            break;
        default:
            n = spool_take_dropped(s, d, 4);
            for (uint32_t k = 0; k < n; k++) {
                told += d[k].n / 200;
                n_told += (uint64_t)d[k].weight / 2000;
            }
            put(s, ++seq, 1);
        }
        spool_get_stats(s, &st);
        assert_int_equal(st.produced, st.sent + dropped_sum(&st) + st.spooled);
        assert_true(st.bytes <= 5000 + 1500);
    }
    for (;;) {
        struct batchmake_dropped d[4];
        uint32_t n = spool_take_dropped(s, d, 4);

        for (uint32_t k = 0; k < n; k++) {
            told += d[k].n / 200;
            n_told += (uint64_t)d[k].weight / 2000;
        }
        if (n == 0)
            break;
        put(s, ++seq, 1);
    }
    spool_get_stats(s, &st);
    assert_int_equal(st.produced, seq);
    assert_int_equal(st.sent, sent);
    assert_int_equal(told, dropped_sum(&st));
    assert_int_equal(n_told, told);
    assert_true(told > 1000 && sent > 1000);
    spool_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(order),   cmocka_unit_test(cap),
                                       cmocka_unit_test(age),     cmocka_unit_test(told_again),
                                       cmocka_unit_test(no_room), cmocka_unit_test(walk)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
