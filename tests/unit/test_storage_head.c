// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "storage/dict/names_private.h"
#include "storage/head/head_private.h"
#include "tests/lib/testing.h"

#define ROWS   5000u
#define PERIOD 10000000

struct fixture {
    struct names names;
    struct head_stats stats;
    struct head *h;
    struct head_group *g;
};

static void begin(struct fixture *x)
{
    struct epoch *e = epoch_new(1, 99, 1000);

    *x = (struct fixture){};
    assert_true(names_init(&x->names, 99));
    assert_non_null(e);
    x->h = head_new(
        &(struct head_conf){.names = &x->names, .epoch = e, .stats = &x->stats, .lsn = 100});
    assert_non_null(x->h);
    epoch_unref(e);
    x->g = head_group_of(x->h, PTYPE_CPU, epoch_trie(x->h->epoch, 1));
    assert_non_null(x->g);
}

static void end(struct fixture *x)
{
    head_unref(x->h);
    names_deinit(&x->names);
}

static uint64_t mixed(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    return x ^ x >> 33;
}

/* Row i of a kind: 0 what most rows are, others with every column that there is, of any width. */
static struct head_row row_of(uint32_t kind, uint32_t i)
{
    uint64_t r = mixed(i * 7 + kind);
    struct head_row row = {.ms = 1764547200000 + i * 10,
                           .series = 3,
                           .node = i % 200,
                           .count = 1,
                           .value = PERIOD,
                           .var = (double)NAN};

    if (kind == 0)
        return row;
    row.ms += (int64_t)(r % 9) * (r % 5 == 0 ? -86400000 : 1000);
    row.series = (uint32_t)(r >> r % 32);
    row.node = (uint32_t)(r >> (8 + r % 30)) & 0x3fffff;
    row.thread = (uint32_t)(r >> 20) & 0xffff;
    row.cpu = i % 64;
    row.cover = kind == 2 ? i : 0;
    row.count = r % 3 == 0 ? 1 : r >> (2 + r % 61);
    row.value = (int64_t)(r >> (2 + r % 62));
    row.var = r % 2 ? (double)r : (double)NAN;
    return row;
}

static void assert_row(const struct head_rows *r, uint32_t i, const struct head_row *want)
{
    double var = head_var(r, i);

    assert_true(head_ms(r, i) == want->ms);
    assert_int_equal(head_u32(r, HEAD_SERIES, i), want->series);
    assert_int_equal(head_u32(r, HEAD_NODE, i), want->node);
    assert_int_equal(head_u32(r, HEAD_THREAD, i), want->thread);
    assert_int_equal(head_u32(r, HEAD_CPU, i), want->cpu);
    assert_int_equal(head_u32(r, HEAD_COVER, i), want->cover);
    assert_true(head_number(r, HEAD_COUNT, i) == want->count);
    assert_true(head_value(r, i) == want->value);
    assert_memory_equal(&var, &want->var, sizeof var);
}

/* Rows [from, from + n), in one call where there are no more than fit. */
static void add(struct fixture *x, uint32_t kind, uint32_t from, uint32_t n)
{
    static struct head_batch b;

    b.period = PERIOD;
    for (uint32_t i = from; i < from + n; i++) {
        const struct head_row row = row_of(kind, i);

        head_batch_put(&b, &row);
        if (b.n == HEAD_BATCH)
            assert_true(head_add_rows(x->h, x->g, &b));
    }
    assert_true(head_add_rows(x->h, x->g, &b));
}

/* The first n rows, by what readers of them are told. */
static void assert_rows(const struct fixture *x, uint32_t kind, uint64_t n)
{
    uint32_t at = 0;

    for (uint32_t ci = 0; at < n; ci++) {
        const struct head_chunk *c = *VEC(&x->g->chunk, struct head_chunk *, ci);
        uint32_t rows = head_chunk_rows(c, n);
        struct head_rows r;

        assert_true(c->first == at && rows > 0);
        head_rows_of(c, &r);
        for (uint32_t i = 0; i < rows; i++, at++) {
            const struct head_row want = row_of(kind, at);

            assert_row(&r, i, &want);
        }
    }
    assert_int_equal(at, n);
}

static void test_columns(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 3; kind++) {
        struct fixture x;

        begin(&x);
        for (uint32_t at = 0, n = 1; at < ROWS; at += n, n = n % 300 + 1) /* over ends of chunks */
            add(&x, kind, at, n < ROWS - at ? n : ROWS - at);
        assert_true(head_publish(x.h, 101));
        assert_rows(&x, kind, ROWS);
        end(&x);
    }
}

/* What most rows are takes a few bytes each; columns that say nothing take none. */
static void test_small(void **state)
{
    struct fixture x;
    uint64_t before;

    (void)state;
    begin(&x);
    before = atomic_load(&x.h->pool.used);
    add(&x, 0, 0, ROWS);
    assert_true(head_publish(x.h, 101));
    assert_in_range(atomic_load(&x.h->pool.used) - before, 1, 5 * ROWS);
    end(&x);
}

/* Each reader sees the rows that were there when it came, however many batches follow, and what
 * nobody can ask for any more is not kept. */
static void test_readers(void **state)
{
    struct head_reader reader[3];
    struct head_snap snap[3];
    struct fixture x;
    uint32_t rows = 0;

    (void)state;
    begin(&x);
    for (uint32_t b = 0; b < 1000; b++) {
        if (b % 300 == 100)
            head_enter(x.h, &reader[b / 300], &snap[b / 300]);
        add(&x, 1, rows, 1 + b % 4);
        rows += 1 + b % 4;
        assert_true(head_publish(x.h, 1000 + 3 * (uint64_t)b));
        for (uint32_t k = 0; k < 3 && b >= k * 300 + 100; k++)
            assert_true(head_group_rows(x.h, x.g, snap[k].lsn) == snap[k].rows);
        if (b == 750) /* the one between: nothing is freed for it */
            head_leave(x.h, &reader[1]);
    }
    assert_int_equal(snap[0].rows, 250);
    assert_true(head_group_rows(x.h, x.g, 99) == 0);
    assert_true(head_group_rows(x.h, x.g, UINT64_MAX) == rows);
    assert_rows(&x, 1, snap[0].rows);
    assert_in_range(atomic_load(&x.g->runs)->room, 900, 2000); /* since the first reader */
    head_leave(x.h, &reader[0]);
    head_leave(x.h, &reader[2]);
    assert_null(x.h->first_reader);
    assert_null(x.h->last_reader);
    for (uint64_t b = 0; b < 4000; b++) {
        add(&x, 1, rows++, 1);
        assert_true(head_publish(x.h, 5000 + b));
    }
    assert_in_range(atomic_load(&x.g->runs)->room, 1, 8);
    assert_true(head_group_rows(x.h, x.g, UINT64_MAX) == rows);
    end(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_readers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
