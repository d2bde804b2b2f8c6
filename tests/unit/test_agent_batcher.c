// SPDX-License-Identifier: Apache-2.0
/* What no batch carries is told by the next one that is made, and again if that one is given up: of
 * each type, with its sums. */
#include <stdlib.h>
#include <time.h>

#include "agent/send/batcher.h"
#include "agent/send/spool.h"
#include "base/loss.h"
#include "base/time.h"
#include "proto/wire.h"
#include "tests/lib/testing.h"

#define T0 (INT64_C(1700000000) * NS_PER_S)
#define P  INT64_C(10101010)

static const uint8_t host[16] = {1};
static const struct proc python = {.tgid = 50,
                                   .serial = 1,
                                   .facts = 1,
                                   .service = STR("app"),
                                   .key = {.pidns = 1, .pid = 5, .start = {5}}};
static struct spool *spool;
static struct batcher *batcher;

/* A second in which n ticks met threads with a lock, mine of which held it. */
static struct stackagg_window *window(int64_t second, unsigned n, unsigned mine)
{
    struct stackagg *fold = stackagg_new();
    struct source_account a = {
        .covers = {{T0 + second * NS_PER_S}, {T0 + (second + 1) * NS_PER_S}},
        .width = 2,
        .period = P,
        .received = n,
        .weight_ns = n * (uint64_t)P,
        .identity_ok = true,
    };
    struct stackagg_window *w;

    for (unsigned i = 0; i < n; i++) {
        struct sa_ev e = {.kind = 1,
                          .tgid = 50,
                          .tid = 50 + i,
                          .gil = i < mine ? SA_G_MINE : SA_G_OTHER,
                          .weight_ns = (uint64_t)P};

        stackagg_add(fold, &e, a.covers.t0, &python, host);
    }
    for (unsigned i = 0; i < n; i++) { /* and as many waits, of which one was for the lock */
        struct sa_ev e = {.kind = 2, .tgid = 50, .tid = 50};

        stackagg_add_off(fold,
                         &(struct stackagg_off){.ev = &e,
                                                .t = a.covers.t0,
                                                .stop = STACKAGG_SHORT,
                                                .n = 1,
                                                .blocked = 300,
                                                .queued = i % 2 ? 7 : 0,
                                                .holder = i ? STR("") : STR("main/50")},
                         &python, host);
    }
    w = stackagg_take(fold, &a);
    w->gil.on = true;
    w->off.on = w->off.python = true;
    w->off.types = 1U << PTYPE_OFFCPU | 1U << PTYPE_RUNQ | 1U << PTYPE_GIL_WAIT;
    stackagg_free(fold);
    return w;
}

static void put(int64_t second, unsigned n, unsigned mine)
{
    struct batcher_job job = {.n_window = 1, .n_metric = 2, .n_event = 3};

    job.clock.sent.v = job.clock.real.v = T0 + second * NS_PER_S;
    job.window = xcalloc(1, sizeof(struct stackagg_window *));
    job.metric = xcalloc(2, sizeof *job.metric);
    job.event = xcalloc(3, sizeof *job.event);
    for (unsigned i = 0; i < 2; i++)
        job.metric[i] = (struct batchmake_metric){
            .name = "m", .unit = "count", .t = {T0 + second * NS_PER_S}, .v = i};
    for (unsigned i = 0; i < 3; i++)
        job.event[i] = (struct batchmake_event){.t = {T0 + second * NS_PER_S}, .kind = "k"};
    job.window[0] = window(second, n, mine);
    batcher_put(batcher, &job);
}

static struct batcher_stats until(uint64_t batches, uint64_t failed)
{
    const struct timespec t = {.tv_nsec = NS_PER_MS};
    struct batcher_stats st;

    for (unsigned i = 0; i < 60000; i++) {
        batcher_get_stats(batcher, &st);
        /* the events of a job that failed are counted after its windows */
        if (st.batches == batches && st.failed == failed && st.events_dropped == 3 * failed)
            return st;
        nanosleep(&t, NULL);
    }
    fail_msg("%llu batches, %llu failed", (unsigned long long)st.batches,
             (unsigned long long)st.failed);
    return st;
}

static int set_up(void **state)
{
    static const struct batchmake_conf c = {
        .agent = {9},
        .boot = {8},
        .hostname = STR("box"),
        .version = STR("1.2"),
        .names = {.cache = 1 << 20, .debug_dirs = "", .proc = "/nowhere", .sys = "/nowhere"}};

    (void)state;
    spool = spool_new(
        &(struct spool_conf){.dir = "", .cap = 1 << 20, .max_age = 3600 * NS_PER_S, .boot = {8}});
    return batcher_start(&c, spool, &batcher, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    batcher_free(batcher);
    spool_free(spool);
    return 0;
}

/* What its streams without rows say was lost of a type, by a reason. */
static struct batch_loss lost(const struct batch *b, uint32_t type, enum loss_reason why)
{
    struct batch_loss sum = {};

    for (uint32_t i = 0; i < b->n_stream; i++) {
        const struct batch_stream *s = &b->stream[i];

        for (uint32_t k = 0; s->type == type && s->rows.n == 0 && k < s->n_lost; k++) {
            if (!str_eq(b->str[s->lost[k].why], loss_info(why)->name))
                continue;
            sum.n += s->lost[k].n;
            sum.weight += s->lost[k].weight;
        }
    }
    return sum;
}

static const struct batchmake_dropped *of(const struct batchmake_dropped *d, uint32_t n,
                                          uint32_t type, enum loss_reason why)
{
    const struct batchmake_dropped *found = NULL;

    for (uint32_t i = 0; i < n; i++) {
        if (d[i].type == type && d[i].why == why) {
            assert_null(found);
            found = &d[i];
        }
    }
    assert_non_null(found);
    return found;
}

static void given_up(void **state)
{
    struct batchmake_dropped d[16];
    const struct spool_batch *b;
    struct wire_limits limits;
    struct batcher_stats st;
    struct batch_loss l;
    struct batch made;
    struct arena arena;
    struct buf body, raw;
    struct err err = {};
    uint32_t n;

    (void)state;
    batcher_set_max_bytes(batcher, 1); /* none fits */
    put(0, 10, 4);
    st = until(0, 1);
    assert_int_equal(st.windows_dropped, 1);
    assert_int_equal(st.metrics_dropped, 2);
    assert_int_equal(st.events_dropped, 3);
    put(1, 20, 6); /* nor does this one: what the first lost is kept */
    (void)until(0, 2);
    batcher_set_max_bytes(batcher, 0);
    put(2, 5, 3);
    st = until(1, 2);
    assert_int_equal(st.events_dropped, 6);
    batcher_stop(batcher);

    b = spool_front(spool, 0);
    assert_non_null(b);
    buf_init(&body, 1 << 20);
    buf_init(&raw, 1 << 20);
    arena_init(&arena, 1 << 20);
    wire_limits_default(&limits);
    assert_ok(spool_read(spool, b, &body, &err), &err);
    assert_ok(wire_inflate(buf_view(&body), &limits, &raw, NULL, &err), &err);
    assert_ok(wire_decode(buf_view(&raw), &limits, (real_ns){T0 + 60 * NS_PER_S}, &arena, &made,
                          NULL, NULL, &err),
              &err);
    assert_int_equal(made.n_stream, 10);
    l = lost(&made, PTYPE_CPU, LOSS_SPOOL_DROP);
    assert_int_equal(l.n, 30);
    assert_int_equal(l.weight, 30 * P);
    l = lost(&made, PTYPE_GIL_HELD, LOSS_SPOOL_DROP);
    assert_int_equal(l.n, 30);
    assert_int_equal(l.weight, 10 * P);
    l = lost(&made, PTYPE_OFFCPU, LOSS_SPOOL_DROP);
    assert_int_equal(l.n, 30);
    assert_int_equal(l.weight, 30 * 300);
    l = lost(&made, PTYPE_RUNQ, LOSS_SPOOL_DROP);
    assert_int_equal(l.n, 15);
    assert_int_equal(l.weight, 15 * 7);
    l = lost(&made, PTYPE_GIL_WAIT, LOSS_SPOOL_DROP); /* at most two: which is not known */
    assert_int_equal(l.n, 2);
    assert_int_equal(l.weight, BATCH_NO_WEIGHT);

    /* the batch itself is refused: what it held, and what it told, each in its type */
    spool_drop(spool, b, SPOOL_DROP_BAD);
    n = spool_take_dropped(spool, d, 16);
    assert_int_equal(n, 10);
    assert_int_equal(of(d, n, PTYPE_OFFCPU, LOSS_SEND_REJECTED)->weight, 5 * 300);
    assert_int_equal(of(d, n, PTYPE_RUNQ, LOSS_SEND_REJECTED)->weight, 2 * 7);
    assert_int_equal(of(d, n, PTYPE_GIL_WAIT, LOSS_SEND_REJECTED)->weight, 0);
    assert_int_equal(of(d, n, PTYPE_GIL_WAIT, LOSS_SPOOL_DROP)->weight, BATCH_NO_WEIGHT);
    assert_int_equal(of(d, n, PTYPE_CPU, LOSS_SEND_REJECTED)->weight, 5 * P);
    assert_int_equal(of(d, n, PTYPE_CPU, LOSS_SEND_REJECTED)->first, 1);
    assert_int_equal(of(d, n, PTYPE_CPU, LOSS_SEND_REJECTED)->last, 1);
    assert_int_equal(of(d, n, PTYPE_GIL_HELD, LOSS_SEND_REJECTED)->weight, 3 * P);
    assert_int_equal(of(d, n, PTYPE_GIL_HELD, LOSS_SEND_REJECTED)->n, 5);
    assert_true(of(d, n, PTYPE_GIL_HELD, LOSS_SEND_REJECTED)->first >
                of(d, n, PTYPE_GIL_HELD, LOSS_SEND_REJECTED)->last);
    assert_int_equal(of(d, n, PTYPE_CPU, LOSS_SPOOL_DROP)->weight, 30 * P);
    assert_int_equal(of(d, n, PTYPE_GIL_HELD, LOSS_SPOOL_DROP)->weight, 10 * P);
    assert_int_equal(of(d, n, PTYPE_GIL_HELD, LOSS_SPOOL_DROP)->covers.t0.v, T0);
    assert_int_equal(of(d, n, PTYPE_GIL_HELD, LOSS_SPOOL_DROP)->covers.t1.v, T0 + 2 * NS_PER_S);
    arena_deinit(&arena);
    buf_deinit(&raw);
    buf_deinit(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(given_up, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
