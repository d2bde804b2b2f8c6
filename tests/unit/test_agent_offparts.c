// SPDX-License-Identifier: Apache-2.0
/* Intervals off the CPU come in parts that add up, whatever is lost or late between them. */
#include <stdlib.h>
#include <string.h>

#include "agent/source/source_offcpu.h"
#include "base/time.h"
#include "tests/lib/testing.h"

#define S      UINT64_C(1000000000)
#define MS     UINT64_C(1000000)
#define OFFSET 7 /* wall clock minus CLOCK_MONOTONIC */

static struct {
    struct source_offcpu_part p;
    uint32_t tid;
    uint16_t nu;
    uint64_t holder;
} got[16];
static unsigned n_got;

static void on_part(void *ctx, const struct source_offcpu_part *p)
{
    (void)ctx;
    assert_true(n_got < 16);
    got[n_got].p = *p;
    got[n_got].tid = p->ev->tid;
    got[n_got].nu = p->ev->nu;
    got[n_got].holder = p->ev->gil_holder;
    n_got++;
}

static const struct source_offcpu_sink sink = {.part = on_part};

static void left_with(struct offparts *o, uint32_t tid, uint64_t t0, uint64_t word)
{
    struct sa_ev *ev = calloc(1, sizeof *ev + 8);

    assert_non_null(ev);
    *ev = (struct sa_ev){.kind = SA_KIND_LEFT, .tgid = 1, .tid = tid, .t_ns = t0, .nu = 1};
    ev->w[0] = word;
    offparts_left(o, ev, 99);
    free(ev);
}

static void left(struct offparts *o, uint32_t tid, uint64_t t0)
{
    left_with(o, tid, t0, 42);
}

static void back(struct offparts *o, uint32_t tid, uint8_t why, uint64_t t0, uint64_t blocked,
                 uint64_t queued)
{
    const struct sa_back b = {.kind = SA_KIND_BACK,
                              .why = why,
                              .tgid = 1,
                              .tid = tid,
                              .n = 1,
                              .t0 = t0,
                              .t_ns = t0 + blocked + queued,
                              .blocked = blocked,
                              .queued = queued};

    n_got = 0;
    offparts_back(o, &b, &sink, OFFSET);
}

/* A window ends while the thread is off; wake 0: it is blocked. */
static void edge(struct offparts *o, uint32_t tid, uint8_t why, uint64_t t0, uint64_t wake,
                 uint64_t at)
{
    const struct sa_off off = {.tgid = 1, .tid = tid, .t0 = t0, .wake = wake, .why = why};

    n_got = 0;
    offparts_off(o, &off, at, false, &sink, OFFSET);
    offparts_pass(o);
}

static void expect(unsigned i, int64_t t, uint64_t blocked, uint64_t queued, uint8_t why)
{
    assert_true(i < n_got);
    assert_int_equal(got[i].p.t.v, t + OFFSET);
    assert_int_equal(got[i].p.blocked, blocked);
    assert_int_equal(got[i].p.queued, queued);
    assert_int_equal(got[i].p.why, why);
    assert_int_equal(got[i].p.n, 1);
    assert_int_equal(got[i].nu, why == SA_L_STACK ? 1 : 0);
}

static void within_a_window(void **state)
{
    struct offparts *o = offparts_new(1 << 20);

    (void)state;
    left(o, 5, S);
    back(o, 5, SA_L_STACK, S, 20 * MS, 3 * MS);
    assert_int_equal(n_got, 1);
    expect(0, (int64_t)S, 20 * MS, 3 * MS, SA_L_STACK);
    assert_int_equal(got[0].holder, 99);
    back(o, 5, SA_L_THROTTLED, 2 * S, 20 * MS, 0);
    assert_int_equal(n_got, 1);
    expect(0, (int64_t)(2 * S), 20 * MS, 0, SA_L_THROTTLED);
    offparts_free(o);
}

static void over_windows(void **state)
{
    struct offparts *o = offparts_new(1 << 20);
    uint64_t t0 = S / 2;

    (void)state;
    left(o, 5, t0);
    edge(o, 5, SA_L_STACK, t0, 0, S);
    expect(0, (int64_t)t0, S / 2, 0, SA_L_STACK);
    edge(o, 5, SA_L_STACK, t0, 0, 2 * S);
    expect(0, (int64_t)S, S, 0, SA_L_STACK);
    /* it could run since 2.25 s, and waits for a CPU */
    edge(o, 5, SA_L_STACK, t0, 2 * S + S / 4, 3 * S);
    expect(0, (int64_t)(2 * S), S / 4, 3 * (S / 4), SA_L_STACK);
    back(o, 5, SA_L_STACK, t0, 2 * S + S / 4 - t0, S);
    assert_int_equal(n_got, 1);
    expect(0, (int64_t)(3 * S), 0, S / 4, SA_L_STACK);
    /* the next one is its own */
    left(o, 5, 4 * S);
    back(o, 5, SA_L_STACK, 4 * S, MS, 0);
    expect(0, (int64_t)(4 * S), MS, 0, SA_L_STACK);
    offparts_free(o);
}

/* Without a stack it is seen at the edge, too. */
static void bare(void **state)
{
    struct offparts *o = offparts_new(1 << 20);

    (void)state;
    edge(o, 5, SA_L_THROTTLED, S / 2, 0, S);
    expect(0, (int64_t)(S / 2), S / 2, 0, SA_L_THROTTLED);
    back(o, 5, SA_L_THROTTLED, S / 2, S, 0);
    expect(0, (int64_t)S, S / 2, 0, SA_L_THROTTLED);
    edge(o, 6, SA_L_STACK, 2 * S, 0, S); /* began behind the edge */
    assert_int_equal(n_got, 0);
    offparts_free(o);
}

/* The window's look came before the record of the stack: nothing is told twice. */
static void stack_comes_late(void **state)
{
    struct offparts *o = offparts_new(1 << 20);

    (void)state;
    edge(o, 5, SA_L_STACK, S / 2, 0, S);
    assert_int_equal(got[0].p.blocked, S / 2);
    left(o, 5, S / 2);
    back(o, 5, SA_L_STACK, S / 2, 3 * (S / 4), 0);
    assert_int_equal(n_got, 1);
    expect(0, (int64_t)S, S / 4, 0, SA_L_STACK);
    offparts_free(o);
}

/* Slices of one wait: the same stack, hardly any time between. */
static void again(void **state)
{
    struct offparts *o = offparts_new(1 << 20);

    (void)state;
    left(o, 5, S);
    back(o, 5, SA_L_STACK, S, 5 * MS, 0);
    assert_false(got[0].p.again);
    left(o, 5, S + 5 * MS + MS / 2);
    back(o, 5, SA_L_STACK, S + 5 * MS + MS / 2, 5 * MS, MS);
    assert_true(got[0].p.again);
    assert_int_equal(got[0].p.n, 1); /* it is an interval all the same */
    left(o, 6, S + 12 * MS);         /* another thread */
    back(o, 6, SA_L_STACK, S + 12 * MS, MS, 0);
    assert_false(got[0].p.again);
    left(o, 5, S + 13 * MS); /* it ran for longer */
    back(o, 5, SA_L_STACK, S + 13 * MS, MS, 0);
    assert_false(got[0].p.again);
    left_with(o, 5, S + 14 * MS, 43); /* another stack */
    back(o, 5, SA_L_STACK, S + 14 * MS, MS, 0);
    assert_false(got[0].p.again);
    offparts_free(o);
}

/* Told as blocked, and then it turns out that it could run: what is told in all stays right. */
static void told_too_early(void **state)
{
    struct offparts *o = offparts_new(1 << 20);

    (void)state;
    left(o, 5, S);
    edge(o, 5, SA_L_STACK, S, 0, 2 * S);
    back(o, 5, SA_L_STACK, S, S - MS, 3 * MS);
    assert_int_equal(n_got, 1);
    expect(0, (int64_t)(2 * S), 0, 2 * MS, SA_L_STACK);
    offparts_free(o);
}

static void lost_and_gone(void **state)
{
    struct offparts *o = offparts_new(1 << 20);
    struct source_offcpu_stats st;

    (void)state;
    left(o, 5, S); /* its return is lost */
    left(o, 5, 2 * S);
    back(o, 5, SA_L_STACK, 2 * S, MS, 0);
    assert_int_equal(n_got, 1);
    expect(0, (int64_t)(2 * S), MS, 0, SA_L_STACK);
    left(o, 6, 3 * S); /* lost, and no other follows: no pass meets it */
    for (int i = 0; i < 3; i++)
        offparts_pass(o);
    offparts_get_stats(o, &st);
    assert_int_equal(st.open, 0);
    assert_int_equal(st.open_bytes, 0);
    assert_int_equal(st.swept, 1);
    back(o, 6, SA_L_STACK, 3 * S, MS, 0); /* and it was not */
    assert_int_equal(n_got, 1);
    assert_int_equal(got[0].p.why, SOURCE_OFFCPU_FULL);
    assert_int_equal(got[0].p.blocked, MS);
    offparts_free(o);
}

static void no_room(void **state)
{
    struct offparts *o = offparts_new(400);
    struct source_offcpu_stats st;
    uint64_t sum = 0;

    (void)state;
    for (uint32_t tid = 1; tid < 100; tid++)
        left(o, tid, S);
    offparts_get_stats(o, &st);
    assert_true(st.open_bytes <= 2 * 400);
    assert_true(st.full > 0);
    for (uint32_t tid = 1; tid < 100; tid++) {
        back(o, tid, SA_L_STACK, S, MS, 0);
        assert_int_equal(n_got, 1);
        sum += (uint64_t)got[0].p.blocked;
    }
    assert_int_equal(sum, 99 * MS);
    offparts_free(o);
}

static void short_ones(void **state)
{
    const struct sa_back b = {.kind = SA_KIND_BACK,
                              .why = SA_L_SHORT,
                              .tgid = 1,
                              .tid = 5,
                              .n = 40,
                              .t_ns = 3 * S,
                              .blocked = 8 * MS,
                              .queued = MS};
    const struct sa_off off = {
        .tgid = 1, .tid = 5, .short_n = 3, .short_blocked = MS, .short_queued = 2 * MS};
    struct offparts *o = offparts_new(1 << 20);

    (void)state;
    n_got = 0;
    offparts_back(o, &b, &sink, OFFSET);
    assert_int_equal(n_got, 1);
    assert_int_equal(got[0].p.n, 40);
    assert_int_equal(got[0].p.blocked, 8 * MS);
    offparts_off(o, &off, 4 * S, false, &sink, OFFSET);
    assert_int_equal(n_got, 1); /* they are told when there are more */
    offparts_off(o, &off, 4 * S, true, &sink, OFFSET);
    assert_int_equal(n_got, 2);
    assert_int_equal(got[1].p.n, 3);
    assert_int_equal(got[1].p.queued, 2 * MS);
    offparts_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(within_a_window),
                                       cmocka_unit_test(over_windows),
                                       cmocka_unit_test(bare),
                                       cmocka_unit_test(stack_comes_late),
                                       cmocka_unit_test(again),
                                       cmocka_unit_test(told_too_early),
                                       cmocka_unit_test(lost_and_gone),
                                       cmocka_unit_test(no_room),
                                       cmocka_unit_test(short_ones)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
