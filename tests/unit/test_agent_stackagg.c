// SPDX-License-Identifier: Apache-2.0
/* No nanosecond is lost in the fold, whatever is full; equal stacks meet, others do not. */
#include <stdlib.h>

#include "agent/source/stackagg.h"
#include "base/time.h"
#include "tests/lib/testing.h"

#define T0 (INT64_C(1700000000) * NS_PER_S)

static const uint8_t host[16] = {1};

static struct sa_ev *record(uint32_t tid, const uint64_t *w, uint16_t nk, uint16_t nu)
{
    struct sa_ev *e = calloc(1, sizeof *e + ((size_t)nk + nu) * sizeof *w);

    assert_non_null(e);
    e->kind = 1;
    e->tgid = 50;
    e->tid = tid;
    e->nk = nk;
    e->nu = nu;
    e->weight_ns = 10;
    memcpy(e->comm, "thread", 6);
    if (nk + nu)
        memcpy(e->w, w, ((size_t)nk + nu) * sizeof *w);
    return e;
}

static struct label app_label[] = {{STR("service"), STR("app")}};
static struct proc app = {.tgid = 50,
                          .serial = 1,
                          .facts = 1,
                          .service = STR("app"),
                          .n_label = 1,
                          .label = app_label,
                          .key = {.pidns = 1, .pid = 50, .start = {5}}};

static void add(struct stackagg *a, struct sa_ev *e, int64_t t, const struct proc *p)
{
    stackagg_add(a, e, (real_ns){t}, p, host);
    free(e);
}

static struct stackagg_window *take(struct stackagg *a)
{
    const struct source_account acc = {.covers = {{T0}, {T0 + 2 * NS_PER_S}}, .period = 10};

    return stackagg_take(a, &acc);
}

static void keys(void **state)
{
    const uint64_t w[] = {0xffffffff81000001, 0x40001, 0x40002},
                   v[] = {0xffffffff81000001, 0x40001, 0x40003};
    struct stackagg *a = stackagg_new();
    struct stackagg_window *win;
    struct sa_ev *e;

    (void)state;
    add(a, record(1, w, 1, 2), T0 + 5, &app);
    add(a, record(1, w, 1, 2), T0 + 900 * NS_PER_MS, &app); /* the same */
    add(a, record(2, w, 1, 2), T0 + 5, &app);               /* another thread */
    add(a, record(1, v, 1, 2), T0 + 5, &app);               /* another stack */
    add(a, record(1, w, 2, 1), T0 + 5, &app);               /* the same words, another border */
    add(a, record(1, w, 1, 2), T0 + NS_PER_S, &app);        /* another second */
    e = record(1, w, 1, 2);
    e->stop = SA_S_NOINFO;
    add(a, e, T0 + 5, &app); /* another end */
    e = record(1, w, 1, 2);
    memcpy(e->comm, "other!", 6);
    add(a, e, T0 + 5, &app);                  /* another name */
    add(a, record(1, w, 1, 2), T0 + 5, NULL); /* nobody knows whose */
    app.facts = 2;
    add(a, record(1, w, 1, 2), T0 + 5, &app); /* it executed something */
    app.facts = 1;
    assert_int_equal(stackagg_rows(a), 9);
    win = take(a);
    assert_int_equal(win->n_row, 9);
    assert_int_equal(stackagg_weight(win), 100);
    assert_int_equal(win->row[0].count, 2);
    assert_int_equal(win->row[0].weight, 20);
    assert_int_equal(win->row[0].t.v, T0);
    assert_int_equal(win->n_who, 3);
    assert_str(win->who[0].label[0].name, STR("service"));
    assert_str(win->who[0].label[0].value, STR("app"));
    assert_true(win->who[1].flags & TARGET_UNSEEN);
    assert_int_equal(win->who[1].host_pid, 50);
    stackagg_window_free(win);
    assert_int_equal(stackagg_rows(a), 0);
    stackagg_free(a);
}

/* A record beyond the window's edges, as after a pause of ours, stays inside. */
static void edges(void **state)
{
    struct stackagg *a = stackagg_new();
    struct stackagg_window *win;

    (void)state;
    add(a, record(1, NULL, 0, 0), T0 - 5 * NS_PER_S, &app);
    add(a, record(1, NULL, 0, 0), T0 + 9 * NS_PER_S, &app);
    win = take(a);
    assert_int_equal(win->n_row, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(interval_has(win->account.covers, win->row[i].t));
    stackagg_window_free(win);
    stackagg_free(a);
}

/* Raw addresses become those of the binary that is mapped there; what is unknown stays raw. */
static void raw_words(void **state)
{
    struct binary bin = {.id = 77};
    const struct proc_map maps[] = {
        {.start = 0x10000, .end = 0x20000, .bias = 0x8000, .bin = &bin},
        {.start = 0x30000, .end = 0x40000, .why = "anonymous"},
        {.start = 0x50000, .end = 0x60000, .why = "open: gone"},
    };
    const uint64_t w[] = {SA_W_RAW | 0x10500, SA_W_RAW | 0x30500, SA_W_RAW | 0x50500,
                          SA_W_RAW | 0x70500, SA_W_MARK | SA_M_SIGNAL};
    struct proc p = app;
    struct stackagg *a = stackagg_new();
    struct stackagg_window *win;

    (void)state;
    p.map = maps;
    p.n_map = 3;
    add(a, record(1, w, 0, 5), T0, &p);
    win = take(a);
    assert_int_equal(win->word[0], UINT64_C(77) << 40 | 0x8500);
    assert_int_equal(win->word[1], w[1] | STACKAGG_W_ANON);
    assert_int_equal(win->word[2], w[2]);
    assert_int_equal(win->word[3], w[3]);
    assert_int_equal(win->word[4], w[4]);
    stackagg_window_free(win);
    stackagg_free(a);
}

/* More stacks than there are rows: the rest hangs under [no stack: table_full] of its thread. */
static void full(void **state)
{
    struct stackagg *a = stackagg_new();
    struct stackagg_window *win;
    uint64_t kept = 0, over = 0;
    uint32_t n = STACKAGG_ROWS + 50000;

    (void)state;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t w[] = {i};

        add(a, record(i % 20000, w, 0, 1), T0, &app);
    }
    win = take(a);
    for (uint32_t i = 0; i < win->n_row; i++) {
        if (win->row[i].stop == STACKAGG_TABLE_FULL)
            over += win->row[i].count;
        else
            kept += win->row[i].count;
    }
    assert_int_equal(kept, STACKAGG_ROWS);
    assert_int_equal(over, 50000);
    assert_int_equal(win->table_full, 50000);
    assert_int_equal(stackagg_weight(win), (int64_t)n * 10);
    assert_true(win->n_row <= STACKAGG_ROWS + 8193);
    stackagg_window_free(win);
    stackagg_free(a);
}

/* Words run out before rows do. */
static void full_words(void **state)
{
    static uint64_t w[600];
    struct stackagg *a = stackagg_new();
    struct stackagg_window *win;
    uint32_t n = STACKAGG_WORDS / 600 + 1000;

    (void)state;
    for (uint32_t i = 0; i < n; i++) {
        w[0] = i;
        add(a, record(1, w, 88, 512), T0, &app);
    }
    assert_true(stackagg_words(a) <= STACKAGG_WORDS);
    win = take(a);
    assert_int_equal(stackagg_weight(win), (int64_t)n * 10);
    assert_true(win->table_full >= 1000);
    stackagg_window_free(win);
    stackagg_free(a);
}

/* A capture keeps each tick's own time; what has the same one still meets. */
static void own_times(void **state)
{
    const uint64_t w[] = {0x40001};
    struct stackagg *a = stackagg_new();
    struct stackagg_window *win;

    (void)state;
    stackagg_keep_times(a);
    add(a, record(1, w, 0, 1), T0 + 7, &app);
    add(a, record(1, w, 0, 1), T0 + 9, &app);
    add(a, record(1, w, 0, 1), T0 + 9, &app);
    win = take(a);
    assert_int_equal(win->n_row, 2);
    assert_int_equal(win->row[0].t.v, T0 + 7);
    assert_int_equal(win->row[1].t.v, T0 + 9);
    assert_int_equal(win->row[1].count, 2);
    assert_int_equal(stackagg_weight(win), 30);
    stackagg_window_free(win);
    stackagg_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(own_times), cmocka_unit_test(keys),
                                       cmocka_unit_test(edges),     cmocka_unit_test(raw_words),
                                       cmocka_unit_test(full),      cmocka_unit_test(full_words)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
