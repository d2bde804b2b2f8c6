// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks: rows -> bytes -> the same rows -> the same bytes, for every mode, width and column; sums,
 * cuts of the time and counts against plain loops; damaged bytes end in an error or in some rows,
 * never outside the buffers (the sanitizer builds watch).
 * STRATA_ROUNDS: rounds of each property, 1 in CI.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/str.h"
#include "base/time.h"
#include "storage/part/block_private.h"
#include "tests/lib/gen_block.h"
#include "tests/lib/testing.h"

#define NODES 200000u

static const struct gen_shape shapes[] = {{1, 1, 0, false},       {7, 1, 1, false},
                                          {256, 2, 3, true},      {257, 10, 100, false},
                                          {5000, 300, 878, true}, {NODES, 70000, 40000, false},
                                          {20000, 10, 0, true},   {90000, 5, 1, false}};

struct fix {
    struct block_coder *c;
    struct gen_block g;
    struct arena arena;
    struct buf summary, cols, summary2, cols2;
    struct err err;
};

static uint32_t rounds(void)
{
    const char *s = getenv("STRATA_ROUNDS");
    uint64_t n;

    return s && str_u64((struct str){s, strlen(s)}, &n) && n > 0 && n < 1000000 ? (uint32_t)n : 1;
}

static int setup(void **state)
{
    struct fix *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->c = block_coder_new();
    assert_non_null(f->c);
    arena_init(&f->arena, SIZE_MAX);
    f->g = (struct gen_block){.state = 20261130, .arena = &f->arena};
    buf_init(&f->summary, SIZE_MAX);
    buf_init(&f->cols, SIZE_MAX);
    buf_init(&f->summary2, SIZE_MAX);
    buf_init(&f->cols2, SIZE_MAX);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fix *f = *state;

    f->c = block_coder_free(f->c);
    arena_deinit(&f->arena);
    buf_deinit(&f->summary);
    buf_deinit(&f->cols);
    buf_deinit(&f->summary2);
    buf_deinit(&f->cols2);
    free(f);
    return 0;
}

static void encode(struct fix *f, const struct block_rows *r, uint32_t quantum,
                   struct block_meta *m)
{
    buf_reset(&f->summary);
    buf_reset(&f->cols);
    assert_ok(block_encode(f->c, r, quantum, m, &f->summary, &f->cols, &f->err), &f->err);
}

/* ---- round trip ---------------------------------------------------------------------------- */

static void check_meta(const struct block_rows *r, uint32_t quantum, const struct block_meta *m)
{
    int64_t end = r->ms[r->n - 1] + quantum;
    unit_i128 total = 0;
    uint64_t count = 0;
    bool unknown = false, var = false;

    assert_int_equal(m->n, r->n);
    for (uint32_t i = 0; i < r->n; i++) {
        unit_i128 v = gb_value_at(r, i);

        total += v * (r->held ? (unit_i128)r->held[i] : 1);
        count += r->count ? r->count[i] : 1;
        unknown |= r->count && r->count[i] == 0;
        var |= r->var && !isnan(r->var[i]);
        if (r->held && r->ms[i] + r->held[i] > end)
            end = r->ms[i] + r->held[i];
        assert_true(v <= INT64_MAX ? m->vmax >= v : m->vmax == INT64_MAX);
        assert_true(v >= INT64_MIN ? m->vmin <= v : m->vmin == INT64_MIN);
        assert_in_range(r->series[i], m->smin, m->smax);
    }
    assert_true(total == m->total);
    assert_true(count == m->count);
    assert_true(m->t0 == r->ms[0] * NS_PER_MS && m->t1 == end * NS_PER_MS);
    assert_int_equal(!!(m->flags & BLOCK_UNKNOWN), unknown);
    assert_int_equal(!!(m->flags & BLOCK_VARIANCES), var);
}

static void check_summary(struct fix *f, const struct block_rows *r)
{
    struct sum_wide *want = GB_ARRAY(&f->g, struct sum_wide, NODES);
    struct sum_wide *got = GB_ARRAY(&f->g, struct sum_wide, NODES);
    uint32_t *freq = GB_ARRAY(&f->g, uint32_t, NODES);
    struct summary s;

    for (uint32_t i = 0; i < r->n; i++) {
        freq[r->node[i]]++;
        want[r->node[i]].count += r->count ? r->count[i] : 1;
        want[r->node[i]].sum += gb_value_at(r, i) * (r->held ? (unit_i128)r->held[i] : 1);
    }
    assert_ok(summary_open(f->c, buf_view(&f->summary), NODES, &s, &f->err), &f->err);
    summary_add_wide(&s, got);
    for (uint32_t i = 0; i < NODES; i++)
        assert_true(want[i].count == got[i].count && want[i].sum == got[i].sum);
    for (uint32_t i = 0; i < s.n; i++) {
        assert_int_equal(s.freq[i], freq[s.node[i]]);
        assert_int_equal(i<s.many, s.freq[i]> 1);
        assert_true(i == 0 || s.freq[i] < s.freq[i - 1] ||
                    (s.freq[i] == s.freq[i - 1] && s.node[i] > s.node[i - 1]));
    }
}

static void round_trip(struct fix *f, uint32_t n, const struct gen_shape *sh,
                       const struct gen_form *form)
{
    struct block_rows r = gen_rows(&f->g, n, sh, form), back;
    struct block_meta m = {.type = 7, .svc = 8, .sub = 9}, m2 = m;
    uint32_t at;

    encode(f, &r, form->quantum, &m);
    assert_int_equal(m.type, 7);
    check_meta(&r, form->quantum, &m);
    check_summary(f, &r);
    assert_ok(block_decode(f->c, buf_view(&f->summary), buf_view(&f->cols), NODES, &f->arena, &back,
                           &f->err),
              &f->err);
    at = gb_differ(&r, &back);
    if (at != UINT32_MAX)
        fail_msg("row %u of %u differs: values %d bytes %u quantum %u", at, n, form->values,
                 form->bytes, form->quantum);
    buf_reset(&f->summary2);
    buf_reset(&f->cols2);
    assert_ok(block_encode(f->c, &back, form->quantum, &m2, &f->summary2, &f->cols2, &f->err),
              &f->err);
    assert_true(str_eq(buf_view(&f->summary), buf_view(&f->summary2)));
    assert_true(str_eq(buf_view(&f->cols), buf_view(&f->cols2)));
    assert_ok(
        block_check(f->c, &m, buf_view(&f->summary), buf_view(&f->cols), NODES, &f->arena, &f->err),
        &f->err);
    arena_reset(&f->arena);
}

static void test_round_trip(void **state)
{
    static const uint32_t sizes[] = {1, 2, 255, 257, 1000, 4096, 8193, 20000};
    struct fix *f = *state;

    for (uint32_t k = 0; k < rounds(); k++)
        for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++)
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
                struct gen_form form = gen_form(&f->g);

                round_trip(f, sizes[z], &shapes[i], &form);
            }
}

/* Each mode with each width and each optional column alone, and all of them. */
static void test_every_form(void **state)
{
    struct fix *f = *state;

    for (uint32_t values = 0; values < GEN_N_VALUES; values++)
        for (uint32_t bytes = 1; bytes <= 8; bytes++)
            for (uint32_t column = 0; column < 8; column++) {
                struct gen_form form = {.values = values,
                                        .bytes = values == GEN_WIDE ? bytes / 3 + 8 : bytes,
                                        .quantum = bytes % 2 ? BLOCK_RAW_MS : BLOCK_MINUTE_MS,
                                        .counts = column == 1 || column == 2 || column == 7,
                                        .unknown = column == 2 || column == 7,
                                        .cpu = column == 3 || column == 7,
                                        .attr = column == 4 || column == 7,
                                        .var = column == 5 || column == 7,
                                        .level = column == 6};

                round_trip(f, 1 + gb_below(&f->g, 600), &shapes[bytes % 4 + 1], &form);
            }
}

static void test_full_block(void **state)
{
    struct fix *f = *state;
    const struct gen_form form = {.values = GEN_VALUES, .bytes = 4, .quantum = 1, .counts = true};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i += 2)
        round_trip(f, BLOCK_ROWS, &shapes[i], &form);
}

/* ---- modes --------------------------------------------------------------------------------- */

static void expect_mode(struct fix *f, const struct block_rows *r, enum block_mode mode, int64_t v)
{
    struct block *b = arena_new(&f->arena, struct block);
    struct block_meta m = {};

    encode(f, r, 1, &m);
    assert_ok(block_open(buf_view(&f->cols), b, &f->err), &f->err);
    assert_int_equal(b->mode, mode);
    assert_true(b->v == v);
}

/* The same rows in another form are the same bytes. */
static void test_modes(void **state)
{
    struct fix *f = *state;
    int64_t ms[3] = {1000, 1001, 1002}, value[3] = {5, 5, 5};
    unit_i128 wide[3] = {5, 5, 5};
    uint32_t series[3] = {1, 1, 1}, thread[3] = {}, node[3] = {4, 5, 4};
    uint64_t count[3] = {1, 1, 1};
    struct block_rows r = {.n = 3, .ms = ms, .series = series, .thread = thread, .node = node};

    r.period = 5;
    expect_mode(f, &r, BLOCK_CONST, 5);
    buf_add(&f->cols2, f->cols.p, f->cols.n);
    r.count = count;
    r.value = value;
    r.period = 0;
    expect_mode(f, &r, BLOCK_CONST, 5);
    assert_true(str_eq(buf_view(&f->cols), buf_view(&f->cols2)));
    r.value = NULL;
    r.wide = wide;
    expect_mode(f, &r, BLOCK_CONST, 5);
    assert_true(str_eq(buf_view(&f->cols), buf_view(&f->cols2)));
    r.wide = NULL;
    r.value = value;
    count[1] = 3;
    expect_mode(f, &r, BLOCK_CONST, 5); /* all equal, counts are not */
    value[1] = 15;
    expect_mode(f, &r, BLOCK_PER_COUNT, 5);
    count[1] = 0;
    expect_mode(f, &r, BLOCK_VALUES, 0);
    value[1] = 0;
    expect_mode(f, &r, BLOCK_PER_COUNT, 5);
    r.value = NULL;
    r.wide = wide;
    wide[2] = (unit_i128)INT64_MAX + 1;
    expect_mode(f, &r, BLOCK_WIDE, 0);
    wide[0] = wide[1] = wide[2];
    count[1] = 1;
    expect_mode(f, &r, BLOCK_WIDE, 0); /* all equal, but no V could say so */
}

static void test_refused_rows(void **state)
{
    struct fix *f = *state;
    int64_t ms[2] = {1000, 1000};
    uint32_t series[2] = {2, 2}, thread[2] = {3, 3}, node[2] = {4, 5};
    struct block_rows r = {.n = 2, .ms = ms, .series = series, .thread = thread, .node = node};
    struct block_meta m = {};

#define REFUSED(quantum)                                                                           \
    do {                                                                                           \
        f->err = (struct err){};                                                                   \
        assert_int_equal(block_encode(f->c, &r, quantum, &m, &f->summary, &f->cols, &f->err),      \
                         -EINVAL);                                                                 \
        assert_true(f->err.msg[0]);                                                                \
    } while (0)
    REFUSED(60000); /* not on a minute */
    node[1] = 3;
    REFUSED(1);
    node[1] = 5;
    thread[1] = 2;
    REFUSED(1);
    thread[1] = 3;
    series[1] = 1;
    REFUSED(1);
    series[1] = 2;
    ms[1] = 999;
    REFUSED(1);
    ms[1] = INT64_MAX;
    REFUSED(1);
    ms[1] = INT64_C(1000) + UINT32_MAX + 1; /* more than 32 bits of ms */
    REFUSED(1);
    r.n = 0;
    REFUSED(1);
    r.n = BLOCK_ROWS + 1;
    REFUSED(1);
}

/* ---- cuts and counts ----------------------------------------------------------------------- */

static void cut(struct fix *f, const struct block_rows *r, const struct block *b,
                const struct summary *s, int64_t lo, int64_t hi)
{
    uint32_t *count = GB_ARRAY(&f->g, uint32_t, s->n + RANK_SLACK);
    uint32_t *got = GB_ARRAY(&f->g, uint32_t, NODES), *want = GB_ARRAY(&f->g, uint32_t, NODES);
    uint32_t at = 0;

    for (uint32_t k = 0; k < b->n_slice; k++) {
        uint32_t from, to;

        assert_ok(slice_range(f->c, b, k, lo, hi, &from, &to, &f->err), &f->err);
        assert_true(from <= to && to <= b->slice[k].n);
        for (uint32_t i = 0; i < b->slice[k].n; i++)
            assert_int_equal(r->ms[at + i] >= lo && r->ms[at + i] < hi, i >= from && i < to);
        assert_ok(slice_count(f->c, b, k, s->n, from, to, NULL, count, &f->err), &f->err);
        at += b->slice[k].n;
    }
    for (uint32_t i = 0; i < r->n; i++)
        want[r->node[i]] += r->ms[i] >= lo && r->ms[i] < hi;
    for (uint32_t i = 0; i < s->n; i++)
        got[s->node[i]] = count[i];
    assert_memory_equal(got, want, NODES * sizeof *got);
    for (uint32_t i = 0; i < RANK_SLACK; i++)
        assert_int_equal(count[s->n + i], 0);
}

/* Rows of every second series alone. */
static void chosen(struct fix *f, const struct block_rows *r, const struct block *b,
                   const struct summary *s, int64_t lo, int64_t hi)
{
    uint32_t *count = GB_ARRAY(&f->g, uint32_t, s->n + RANK_SLACK);
    uint32_t *got = GB_ARRAY(&f->g, uint32_t, NODES), *want = GB_ARRAY(&f->g, uint32_t, NODES);
    uint8_t *takes = GB_ARRAY(&f->g, uint8_t, BLOCK_ROWS);

    for (uint32_t k = 0; k < b->n_slice; k++) {
        struct slice_rows keys;
        uint32_t from, to;

        assert_ok(slice_range(f->c, b, k, lo, hi, &from, &to, &f->err), &f->err);
        assert_ok(slice_keys(f->c, b, k, &keys, &f->err), &f->err);
        assert_int_equal(keys.n_key, b->slice[k].keys);
        for (uint32_t i = 0; i < keys.n_key; i++)
            takes[i] = keys.key_series[i] & 1;
        assert_ok(slice_count(f->c, b, k, s->n, from, to, takes, count, &f->err), &f->err);
    }
    for (uint32_t i = 0; i < r->n; i++)
        want[r->node[i]] += (r->series[i] & 1) && r->ms[i] >= lo && r->ms[i] < hi;
    for (uint32_t i = 0; i < s->n; i++)
        got[s->node[i]] = count[i];
    assert_memory_equal(got, want, NODES * sizeof *got);
}

#define EDGES 9u

/* Rows by key in stretches of a slice whose edges lie off the quantum. */
static void stretches(struct fix *f, const struct block_rows *r, const struct block *b)
{
    uint32_t at = 0;

    for (uint32_t k = 0; k < b->n_slice; k++) {
        const struct block_slice *s = &b->slice[k];
        uint32_t edge[EDGES + 2] = {}, *got = GB_ARRAY(&f->g, uint32_t, (EDGES + 1) * s->keys),
                              *want = GB_ARRAY(&f->g, uint32_t, (EDGES + 1) * s->keys);
        int64_t from = slice_first_ms(b, s) * NS_PER_MS - 1,
                step = (slice_last_ms(b, s) * NS_PER_MS - from) / (EDGES - 2) + 1;
        struct slice_rows keys;

        edge[EDGES + 1] = s->n;
        assert_ok(slice_edges(f->c, b, k, from, step, EDGES, edge + 1, &f->err), &f->err);
        assert_ok(slice_count_keys(f->c, b, k, EDGES + 2, edge, got, &f->err), &f->err);
        assert_ok(slice_keys(f->c, b, k, &keys, &f->err), &f->err);
        for (uint32_t i = 0; i < s->n; i++) {
            uint32_t e = 0, key = 0;

            while (e < EDGES && r->ms[at + i] * NS_PER_MS >= from + e * step)
                e++;
            while (keys.key_series[key] != r->series[at + i] ||
                   keys.key_thread[key] != r->thread[at + i])
                key++;
            want[e * s->keys + key]++;
        }
        assert_memory_equal(got, want, (EDGES + 1) * s->keys * sizeof *got);
        at += s->n;
    }
}

static void test_cuts(void **state)
{
    struct fix *f = *state;

    for (uint32_t k = 0; k < rounds(); k++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            struct gen_form form = gen_form(&f->g);
            struct block_rows r;
            struct block_meta m = {};
            struct block *b;
            struct summary s;
            int64_t span;

            r = gen_rows(&f->g, 1 + gb_below(&f->g, 12000), &shapes[i], &form);
            b = GB_ARRAY(&f->g, struct block, 1);
            encode(f, &r, form.quantum, &m);
            assert_ok(summary_open(f->c, buf_view(&f->summary), NODES, &s, &f->err), &f->err);
            assert_ok(block_open(buf_view(&f->cols), b, &f->err), &f->err);
            span = r.ms[r.n - 1] - r.ms[0];
            for (uint32_t n = 0; n < 6; n++) {
                int64_t lo = r.ms[0] - 2 + gb_below(&f->g, (uint64_t)span + 4);
                int64_t hi = lo + gb_below(&f->g, (uint64_t)span + 4);

                cut(f, &r, b, &s, lo, hi);
                chosen(f, &r, b, &s, lo, hi);
            }
            chosen(f, &r, b, &s, INT64_MIN, INT64_MAX);
            stretches(f, &r, b);
            cut(f, &r, b, &s, INT64_MIN, INT64_MAX);
            cut(f, &r, b, &s, r.ms[r.n / 2], r.ms[r.n / 2]);
            arena_reset(&f->arena);
        }
}

/* ---- hsum ---------------------------------------------------------------------------------- */

static void test_sum_set(void **state)
{
    struct fix *f = *state;
    struct sum_wide *want = GB_ARRAY(&f->g, struct sum_wide, NODES);
    struct sum_wide *got = GB_ARRAY(&f->g, struct sum_wide, NODES);
    uint32_t *freq = GB_ARRAY(&f->g, uint32_t, NODES), flags;
    struct gen_form form = {.values = GEN_VALUES, .bytes = 8, .quantum = 1, .counts = true};
    struct block_meta m = {};
    struct sum_set set;
    struct summary s;
    struct buf out;

    sum_set_init(&set);
    buf_init(&out, SIZE_MAX);
    assert_int_equal(sum_set_encode(f->c, &set, &out, &flags, &f->err), -EINVAL);
    f->err = (struct err){};
    for (uint32_t k = 0; k < 12; k++) {
        struct block_rows r = gen_rows(&f->g, 2000, &shapes[4 + k % 3], &form);

        encode(f, &r, 1, &m);
        assert_ok(summary_open(f->c, buf_view(&f->summary), NODES, &s, &f->err), &f->err);
        assert_ok(sum_set_add(&set, &s, &f->err), &f->err);
        for (uint32_t i = 0; i < r.n; i++) {
            freq[r.node[i]]++;
            want[r.node[i]].count += r.count[i];
            want[r.node[i]].sum += r.value[i];
        }
    }
    assert_ok(sum_set_merge(&set, &f->err), &f->err);
    for (uint32_t i = 1; i < set.n; i++)
        assert_true(set.v[i].node > set.v[i - 1].node);
    assert_ok(sum_set_encode(f->c, &set, &out, &flags, &f->err), &f->err);
    assert_int_equal(flags, BLOCK_COUNTS | BLOCK_SUMS);
    assert_ok(summary_open(f->c, buf_view(&out), NODES, &s, &f->err), &f->err);
    summary_add_wide(&s, got);
    for (uint32_t i = 0; i < NODES; i++)
        assert_true(want[i].count == got[i].count && want[i].sum == got[i].sum);
    for (uint32_t i = 0; i < s.n; i++)
        assert_int_equal(s.freq[i], freq[s.node[i]]);
    sum_set_deinit(&set);
    buf_deinit(&out);
}

/* summary_add, where 64 bits are enough. */
static void test_narrow_sums(void **state)
{
    struct fix *f = *state;

    for (uint32_t k = 0; k < 8; k++) {
        struct gen_form form = {.values = k % 4, .bytes = 3, .quantum = 1, .counts = k & 4};
        struct block_rows r = gen_rows(&f->g, 3000, &shapes[k], &form);
        struct sum_at *narrow = GB_ARRAY(&f->g, struct sum_at, NODES);
        struct sum_wide *wide = GB_ARRAY(&f->g, struct sum_wide, NODES);
        struct block_meta m = {};
        struct summary s;

        encode(f, &r, 1, &m);
        assert_ok(summary_open(f->c, buf_view(&f->summary), NODES, &s, &f->err), &f->err);
        summary_add(&s, narrow);
        summary_add_wide(&s, wide);
        for (uint32_t i = 0; i < NODES; i++)
            assert_true(narrow[i].sum == wide[i].sum && narrow[i].count == wide[i].count);
        arena_reset(&f->arena);
    }
}

/* ---- damage -------------------------------------------------------------------------------- */

/* Whatever the bytes are: no crash (sanitizers), a result or an error with a text. */
/* Whatever the answers are, they end within their arrays. */
static void count_any(struct fix *f, const struct block *b, const struct summary *s)
{
    uint32_t *count = GB_ARRAY(&f->g, uint32_t, BLOCK_ROWS + RANK_SLACK);
    uint8_t *takes = GB_ARRAY(&f->g, uint8_t, BLOCK_ROWS);

    for (uint32_t k = 0; k < b->n_slice; k++) {
        int64_t first = slice_first_ms(b, &b->slice[k]), last = slice_last_ms(b, &b->slice[k]);
        uint32_t from, to, edge[4] = {0, 0, 0, b->slice[k].n};
        struct slice_rows keys;

        if (slice_range(f->c, b, k, first + (last - first) / 3, last, &from, &to, NULL) == 0 &&
            slice_count(f->c, b, k, s->n, from, to, NULL, count, NULL) == 0)
            (void)!slice_count(f->c, b, k, s->n, from, to, takes, count, NULL);
        (void)!slice_keys(f->c, b, k, &keys, NULL);
        if (b->slice[k].keys <= BLOCK_ROWS / 3 &&
            slice_edges(f->c, b, k, first * NS_PER_MS, NS_PER_MS, 2, edge + 1, NULL) == 0)
            (void)!slice_count_keys(f->c, b, k, 4, edge, count, NULL);
    }
}

static bool read_any(struct fix *f, struct str summary, struct str cols)
{
    struct block *b = GB_ARRAY(&f->g, struct block, 1);
    struct block_rows rows;
    struct summary s;
    int r;

    f->err = (struct err){};
    r = block_decode(f->c, summary, cols, NODES, &f->arena, &rows, &f->err);
    assert_true(r == 0 || (r == -EBADMSG && f->err.code == r));
    if (summary_open(f->c, summary, NODES, &s, NULL) < 0 || block_open(cols, b, NULL) < 0)
        return r == 0;
    count_any(f, b, &s);
    return r == 0;
}

static void test_damage(void **state)
{
    struct fix *f = *state;
    uint32_t refused = 0, flips = 0;

    for (uint32_t k = 0; k < 24 * rounds(); k++) {
        const struct gen_shape *sh = &shapes[k % (sizeof shapes / sizeof shapes[0])];
        struct gen_form form = gen_form(&f->g);
        struct block_rows r = gen_rows(&f->g, 1 + gb_below(&f->g, 6000), sh, &form);
        struct block_meta m = {};

        encode(f, &r, form.quantum, &m);
        for (uint32_t n = 0; n < 40; n++, flips++) {
            struct buf *b = n % 2 ? &f->cols : &f->summary;
            size_t at = gb_below(&f->g, b->n);
            char was;

            if (gb_below(&f->g, 2) && at > 64)
                at %= 64; /* headers are where it hurts */
            was = b->p[at];
            b->p[at] = (char)(was ^ (char)(1 + gb_below(&f->g, 255)));
            refused += !read_any(f, buf_view(&f->summary), buf_view(&f->cols));
            b->p[at] = was;
        }
        for (uint32_t n = 0; n < 8; n++) { /* cut short, in memory of just that size */
            struct str part = buf_view(n % 2 ? &f->cols : &f->summary);
            char *p;

            part.n = gb_below(&f->g, part.n);
            p = malloc(part.n + 1);
            assert_non_null(p);
            memcpy(p, part.p, part.n);
            part.p = p;
            assert_false(read_any(f, n % 2 ? buf_view(&f->summary) : part,
                                  n % 2 ? part : buf_view(&f->cols)));
            free(p);
        }
        arena_reset(&f->arena);
    }
    /* most flips are seen without the checksum; that all were would be a decoder that is broken */
    assert_in_range(refused, flips / 2, flips - 1);
}

/* Bytes that decode, beside a meta or a summary that is not theirs. */
static void test_check(void **state)
{
    struct fix *f = *state;
    struct gen_form form = {.values = GEN_VALUES, .bytes = 2, .quantum = 1};
    struct block_rows r = gen_rows(&f->g, 500, &shapes[2], &form);
    struct block_meta m = {}, bad;

    encode(f, &r, 1, &m);
#define BAD(field, word)                                                                           \
    do {                                                                                           \
        bad = m;                                                                                   \
        bad.field++;                                                                               \
        f->err = (struct err){};                                                                   \
        assert_int_equal(block_check(f->c, &bad, buf_view(&f->summary), buf_view(&f->cols), NODES, \
                                     &f->arena, &f->err),                                          \
                         -EBADMSG);                                                                \
        assert_non_null(strstr(f->err.msg, word));                                                 \
    } while (0)
    BAD(n, "count");
    BAD(count, "count");
    BAD(t0, "interval");
    BAD(t1, "interval");
    BAD(total, "total");
    BAD(vmin, "values");
    BAD(vmax, "values");
    BAD(smin, "series");
    BAD(smax, "series");
    BAD(flags, "flags");
    r.value[3] += 1; /* the summary of other rows */
    buf_add(&f->cols2, f->cols.p, f->cols.n);
    encode(f, &r, 1, &bad);
    f->err = (struct err){};
    assert_int_equal(block_check(f->c, &m, buf_view(&f->summary), buf_view(&f->cols2), NODES,
                                 &f->arena, &f->err),
                     -EBADMSG);
}

/* A node that the trie lacks is damage. */
static void test_node_bound(void **state)
{
    struct fix *f = *state;
    int64_t ms[2] = {1, 2};
    uint32_t zero[2] = {}, node[2] = {1, 99};
    struct block_rows r = {.n = 2, .ms = ms, .series = zero, .thread = zero, .node = node};
    struct block_meta m = {};
    struct summary s;

    encode(f, &r, 1, &m);
    assert_ok(summary_open(f->c, buf_view(&f->summary), 100, &s, &f->err), &f->err);
    assert_int_equal(summary_open(f->c, buf_view(&f->summary), 99, &s, &f->err), -EBADMSG);
}

/* ---- order --------------------------------------------------------------------------------- */

static void test_sort(void **state)
{
    struct fix *f = *state;
    const struct gen_form form = {
        .values = GEN_VALUES, .bytes = 8, .quantum = 1, .counts = true, .cpu = true, .attr = true};
    struct block_rows r = gen_rows(&f->g, 5000, &shapes[4], &form);
    struct block_rows want = r;
    struct arena tmp;

    /* a copy, then shuffled: each column by the same swaps */
    arena_init(&tmp, SIZE_MAX);
#define COPY(column)                                                                               \
    want.column = gb_array(&f->g, r.n, sizeof *r.column);                                          \
    memcpy(want.column, r.column, r.n * sizeof *r.column)
    COPY(ms);
    COPY(series);
    COPY(thread);
    COPY(node);
    COPY(count);
    COPY(value);
    COPY(cpu);
    COPY(attr);
    for (uint32_t i = r.n - 1; i > 0; i--) {
        uint32_t k = gb_below(&f->g, i + 1);

#define SWAP(column)                                                                               \
    do {                                                                                           \
        typeof(*r.column) t_ = r.column[i];                                                        \
        r.column[i] = r.column[k];                                                                 \
        r.column[k] = t_;                                                                          \
    } while (0)
        SWAP(ms);
        SWAP(series);
        SWAP(thread);
        SWAP(node);
        SWAP(count);
        SWAP(value);
        SWAP(cpu);
        SWAP(attr);
    }
    assert_ok(block_sort(&r, &tmp, &f->err), &f->err);
    assert_int_equal(gb_differ(&r, &want), UINT32_MAX);
    arena_deinit(&tmp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
        TEST(test_round_trip), TEST(test_every_form),   TEST(test_full_block),
        TEST(test_modes),      TEST(test_refused_rows), TEST(test_cuts),
        TEST(test_sum_set),    TEST(test_narrow_sums),  TEST(test_damage),
        TEST(test_check),      TEST(test_node_bound),   TEST(test_sort),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
