// SPDX-License-Identifier: Apache-2.0
/* From calls to steps: every rule, with what is dropped and counted. */
#include <stdlib.h>

#include "agent/source/steptrack.h"
#include "tests/lib/testing.h"

#define NEXT STEPTRACK_NEXT

static struct steptrack *t;
static struct done {
    uint64_t target, number;
    uint32_t tid;
    int64_t t0, t1;
    char name[64], labels[512];
} done[256];
static unsigned n_done;

static void on_step(void *ctx, const struct steptrack_step *s)
{
    struct done *d = &done[n_done++ % 256];

    (void)ctx;
    *d = (struct done){s->target, s->number, s->tid, s->t0, s->t1, "", ""};
    snprintf(d->name, sizeof d->name, "%.*s", STR_ARG(s->name));
    for (uint32_t i = 0; i < s->n_label; i++)
        snprintf(d->labels + strlen(d->labels), sizeof d->labels - strlen(d->labels), "%s%.*s=%.*s",
                 i ? "," : "", STR_ARG(s->label[i].name), STR_ARG(s->label[i].value));
}

static int set_up(void **state)
{
    (void)state;
    t = steptrack_new(on_step, NULL);
    n_done = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    steptrack_free(t);
    return 0;
}

static struct steptrack_call base = {.target = 1, .service = 7, .tid = 100, .comm = STR("main")};

static bool call(uint32_t what, const char *name, uint64_t number, int64_t at)
{
    struct steptrack_call c = base;

    c.what = what;
    c.name = str_c(name);
    c.number = number;
    c.t = at;
    c.real = at + base.real;
    return steptrack_call(t, &c);
}

static void step_is(unsigned i, const char *name, uint64_t number, int64_t t0, int64_t t1)
{
    assert_true(i < n_done);
    assert_string_equal(done[i].name, name);
    assert_int_equal(done[i].number, number);
    assert_int_equal(done[i].t0, t0);
    assert_int_equal(done[i].t1, t1);
}

static uint64_t dropped(enum steptrack_drop why)
{
    struct steptrack_stats s;

    steptrack_get_stats(t, &s);
    return s.dropped[why];
}

static void no_more_drops(const char *but)
{
    for (unsigned i = 0; i < STEPTRACK_N_DROP; i++) {
        if (strcmp(steptrack_drop_name(i), but) != 0)
            assert_int_equal(dropped(i), 0);
    }
}

static void marks(void **state)
{
    (void)state;
    call(STEPTRACK_MARK, "", NEXT, 10);
    assert_int_equal(n_done, 0); /* the first one ends nothing */
    call(STEPTRACK_MARK, "", NEXT, 30);
    call(STEPTRACK_MARK, "", 10, 35);
    call(STEPTRACK_MARK, "", NEXT, 35);
    assert_int_equal(n_done, 3);
    step_is(0, "step", 0, 10, 30);
    step_is(1, "step", 1, 30, 35);
    step_is(2, "step", 10, 35, 36); /* at one instant: never empty, never backwards */
    steptrack_gone(t, 1);           /* the last one stays open and is no step, and no loss */
    assert_int_equal(n_done, 3);
    no_more_drops("");
}

static void begin_end(void **state)
{
    (void)state;
    call(STEPTRACK_BEGIN, "epoch", 0, 5);
    call(STEPTRACK_BEGIN, "step", NEXT, 10);
    call(STEPTRACK_MARK, "mark", NEXT, 11);
    call(STEPTRACK_END, "step", NEXT, 20);
    call(STEPTRACK_BEGIN, "step", NEXT, 20);
    call(STEPTRACK_END, "epoch", 0, 25); /* overlap freely */
    call(STEPTRACK_END, "step", NEXT, 30);
    step_is(0, "step", 0, 10, 20);
    step_is(1, "epoch", 0, 5, 25);
    step_is(2, "step", 1, 20, 30);
    no_more_drops("");
}

/* Of two open ones of a name the number decides, and without a number the latest of the thread. */
static void which_end(void **state)
{
    (void)state;
    call(STEPTRACK_BEGIN, "r", 5, 1);
    call(STEPTRACK_BEGIN, "r", 6, 2);
    base.tid = 101;
    call(STEPTRACK_BEGIN, "r", 7, 3);
    base.tid = 100;
    call(STEPTRACK_END, "r", NEXT, 10);
    step_is(0, "r", 6, 2, 10);
    base.tid = 102;
    call(STEPTRACK_END, "r", 5, 11); /* from another thread: the one that began it counts */
    step_is(1, "r", 5, 1, 11);
    assert_int_equal(done[1].tid, 100);
    call(STEPTRACK_END, "r", NEXT, 12); /* this thread began none */
    assert_int_equal(dropped(STEPTRACK_UNOPENED), 1);
    call(STEPTRACK_END, "r", 99, 13);
    call(STEPTRACK_END, "never", 1, 14);
    assert_int_equal(dropped(STEPTRACK_UNOPENED), 3);
    base.tid = 100;
    call(STEPTRACK_BEGIN, "r", 7, 20); /* begun twice, whoever began it */
    step_is(2, "r", 7, 3, 20);
    assert_int_equal(dropped(STEPTRACK_UNCLOSED), 1);
    assert_int_equal(n_done, 3);
}

static void threads(void **state)
{
    unsigned told = 0;

    (void)state;
    for (unsigned k = 0; k < 4; k++) {
        for (unsigned i = 0; i < 8; i++) {
            base.tid = 100 + i;
            told += call(STEPTRACK_MARK, "s", NEXT, 10 * k + i);
        }
    }
    assert_int_equal(told, 1); /* once, when there are two */
    assert_int_equal(n_done, 24);
    for (unsigned i = 0; i < 24; i++) { /* each its own sequence */
        assert_int_equal(done[i].tid, 100 + i % 8);
        assert_int_equal(done[i].number, i / 8);
        assert_int_equal(done[i].t0, 10 * (i / 8) + i % 8);
        assert_int_equal(done[i].t1, done[i].t0 + 10);
    }
    assert_string_equal(done[0].labels, "");
    assert_string_equal(done[1].labels, "thread=main/101");
    base.tid = 100;
}

static void attributes(void **state)
{
    struct steptrack_call c = base;

    (void)state;
    c.what = STEPTRACK_BEGIN;
    c.name = STR("a");
    c.attr = STR("phase=warm, b=\x01,1bad=x,,c=d,phase=cold,e=1,f=2,g=3,h=4,i=5,j=6");
    steptrack_call(t, &c);
    c.what = STEPTRACK_END;
    c.attr = STR("late=1"); /* those of the begin count */
    c.t = c.real = 5;
    steptrack_call(t, &c);
    assert_string_equal(done[0].labels, "phase=warm,b=\\x01,c=d,e=1,f=2,g=3,h=4,i=5");
}

static void limits(void **state)
{
    struct steptrack_stats s;
    char name[16];

    (void)state;
    for (unsigned i = 0; i < STEPTRACK_OPEN + 3; i++)
        call(STEPTRACK_BEGIN, "x", i, i);
    assert_int_equal(dropped(STEPTRACK_UNCLOSED), 3); /* the oldest ones */
    call(STEPTRACK_END, "x", 2, 100);
    assert_int_equal(dropped(STEPTRACK_UNOPENED), 1);
    call(STEPTRACK_END, "x", 3, 100);
    assert_int_equal(n_done, 1);
    steptrack_gone(t, 1);
    assert_int_equal(dropped(STEPTRACK_OPEN_AT_EXIT), STEPTRACK_OPEN - 1);
    for (unsigned i = 0; i < 80; i++) { /* "x" was the first name of this service */
        snprintf(name, sizeof name, "n%u", i);
        call(STEPTRACK_BEGIN, name, i, 2 * i);
        call(STEPTRACK_END, name, i, 2 * i + 1);
    }
    steptrack_get_stats(t, &s);
    assert_int_equal(s.names_folded, 80 - (STEPTRACK_NAMES - 1));
    assert_string_equal(done[1 + 62].name, "n62");
    assert_string_equal(done[1 + 63].name, "other");
    step_is(1 + 79, "other", 79, 158, 159);
    base.target = 2; /* another process of that service: the same names, no new ones */
    call(STEPTRACK_BEGIN, "n3", 0, 1);
    call(STEPTRACK_BEGIN, "new", 0, 1);
    steptrack_gone(t, 2);
    steptrack_get_stats(t, &s);
    assert_int_equal(s.names_folded, 80 - (STEPTRACK_NAMES - 1) + 1);
    assert_int_equal(s.open, 0);
    base.target = 1;
}

static void exec_and_exit(void **state)
{
    (void)state;
    call(STEPTRACK_BEGIN, "s", NEXT, 1);
    call(STEPTRACK_MARK, "m", NEXT, 1);
    base.program = 1;
    call(STEPTRACK_END, "s", 0, 5);
    assert_int_equal(n_done, 0);
    assert_int_equal(dropped(STEPTRACK_OPEN_AT_EXIT), 1);
    assert_int_equal(dropped(STEPTRACK_UNOPENED), 1);
    call(STEPTRACK_BEGIN, "s", NEXT, 6); /* it counts anew */
    call(STEPTRACK_END, "s", NEXT, 7);
    step_is(0, "s", 0, 6, 7);
    base.program = 0;
    steptrack_gone(t, 12345); /* never called */
}

static void bad_texts(void **state)
{
    char longer[65];

    (void)state;
    memset(longer, 'n', sizeof longer);
    longer[64] = 0;
    call(STEPTRACK_MARK, longer, NEXT, 1);
    call(STEPTRACK_MARK, "\xff", NEXT, 1);
    call(3, "x", NEXT, 1);
    call(255, "x", NEXT, 1);
    assert_int_equal(dropped(STEPTRACK_BAD_TEXT), 4);
    longer[63] = 0;
    call(STEPTRACK_MARK, longer, NEXT, 1);
    call(STEPTRACK_MARK, longer, NEXT, 2);
    assert_int_equal(n_done, 1);
    steptrack_lost(t, STEPTRACK_RATE, 5);
    assert_int_equal(dropped(STEPTRACK_RATE), 5);
}

/* The wall clock is set while a step is open: it lasts as long as it did. */
static void clock_set(void **state)
{
    (void)state;
    call(STEPTRACK_BEGIN, "a", 1, 100);
    base.real = 700; /* a difference that is measured anew: the calls' own times count */
    call(STEPTRACK_END, "a", 1, 200);
    step_is(0, "a", 1, 100, 900);
    call(STEPTRACK_BEGIN, "a", 2, 1000);
    base.real = -INT64_C(3600000000000);
    call(STEPTRACK_END, "a", 2, 50000000);
    step_is(1, "a", 2, 1700, 1700 + 50000000 - 1000);
    base.real = 0;
}

/* Threads without end: memory is bounded, the newest go on counting. */
static void many_threads(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 5000; i++) {
        base.tid = i + 1;
        call(STEPTRACK_BEGIN, "s", NEXT, 3 * i);
        call(STEPTRACK_END, "s", NEXT, 3 * i + 1);
    }
    assert_int_equal(n_done, 5000);
    call(STEPTRACK_BEGIN, "s", NEXT, 20000);
    call(STEPTRACK_END, "s", NEXT, 20001);
    assert_int_equal(done[5000 % 256].number, 1);
    base.tid = 100;
    no_more_drops("");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(marks),  T(begin_end), T(which_end),     T(threads),   T(attributes),
        T(limits), T(clock_set), T(exec_and_exit), T(bad_texts), T(many_threads)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
