// SPDX-License-Identifier: Apache-2.0
/*
 * The n-th call that writes, syncs, opens or reads fails, n = 1, 2, ... until a whole life of a
 * store passes: made, filled, closed, opened again, filled, sealed, merged, asked, closed. Nothing
 * is acknowledged that is not there after a restart or a power cut; the next batch works, or the
 * store is read-only and says why. Then the same with the n-th allocation.
 *
 * Each 17th call, each 397th allocation; with STRATA_LONG=1 each call, each 7th allocation.
 * STRATA_ALLOC_STEP and STRATA_ALLOC_FROM say which else: several processes may share all of them.
 */
#include <stdatomic.h>
#include <sys/stat.h>

#include "storage/keep/compact_private.h"
#include "tests/lib/disk.h"
#include "tests/lib/memory.h"
#include "tests/unit/test_storage_lib.h"

#define HALF    6u
#define BATCHES (2 * HALF + 1) /* the last one behind the failures */
#define ROWS    12

/* Made beforehand: the generator itself does not look at what it allocates. */
static struct batch made[BATCHES];
static unit_i128 value[BATCHES]; /* of the CPU rows */

struct life {
    char top[64], dir[80];
    uint32_t image;
    struct store_conf conf;
    struct store *s;
    bool acked[BATCHES], merged;
};

static int decode_made(void *ctx, const struct store_entry *e, struct arena *arena,
                       struct batch *ret, struct err *err)
{
    uint64_t i = BATCHES;

    (void)ctx;
    if (!arena_alloc(arena, 1))
        return err_set(err, -ENOMEM, "decode: memory is short");
    if (e->payload.n == sizeof i)
        memcpy(&i, e->payload.p, sizeof i);
    if (i >= BATCHES)
        return err_set(err, -EINVAL, "payload of %zu bytes", e->payload.n);
    *ret = made[i];
    return 0;
}

static real_ns now_of(void *ctx)
{
    (void)ctx;
    return (real_ns){T_BASE + 2 * T_SPAN * MS};
}

static void set_dir(struct life *l, char image[80])
{
    (void)snprintf(image, 80, "%s/%u", l->top, l->image);
    (void)snprintf(l->dir, sizeof l->dir, "%s/%u/data", l->top, l->image);
    l->conf.dir = l->dir;
}

static void life_init(struct life *l)
{
    char image[80];

    *l = (struct life){
        .conf = {
            .decode = decode_made, .min_free = 1, .reserve = 65536, .workers = 2, .now = now_of}};
    (void)snprintf(l->top, sizeof l->top, "%s/strata_fault_XXXXXX", test_fast_dir());
    assert_non_null(mkdtemp(l->top));
    set_dir(l, image);
    assert_int_equal(mkdir(image, 0700), 0);
    disk_begin(image);
}

static void life_deinit(struct life *l)
{
    l->s = store_close(l->s);
    disk_end();
    assert_int_equal(test_remove_tree(l->top), 0);
}

/* ---- asking -------------------------------------------------------------------------------- */

static int ask(struct store *s, unit_i128 *ret, struct err *err)
{
    static struct sums sum;
    const struct store_sink sink = {.share = sums_share, .ctx = &sum};
    struct store_view *v = store_view_get(s);
    struct arena a;
    struct store_query q = {.n_side = 1,
                            .side = {{.sel = {.type = PTYPE_CPU}, .range = WHOLE}},
                            .want = STORE_TOTALS,
                            .arena = &a};
    struct store_answer answer;
    int r;

    memset(&sum, 0, sizeof sum);
    arena_init(&a, 1 << 20);
    r = store_scan(v, &q, &sink, &answer, err);
    arena_deinit(&a);
    v = store_view_put(v);
    *ret = sum.value[0][0][0];
    return r;
}

static int append(struct life *l, uint64_t i)
{
    return store_append_wait(l->s, &made[i], (struct str){(const char *)&i, sizeof i}, NULL, NULL);
}

/* ---- a life with failures ------------------------------------------------------------------ */

static void open_in_trouble(struct life *l)
{
    struct err err = {};
    int r;

    l->s = NULL;
    r = store_open(&l->conf, &l->s, &err);
    if (r != 0 && err.msg[0] == '\0')
        fail_msg("store_open = %d without a word", r);
    assert_true(r >= 0 || !l->s);
}

static void append_in_trouble(struct life *l, uint64_t from, uint64_t n)
{
    for (uint64_t i = from; l->s && i < from + n; i++) {
        struct store_stats st;
        int r = append(l, i);

        if (r != 0 && r != -EIO && r != -ENOSPC && r != -EROFS && r != -ENOMEM)
            fail_msg("batch %u: %d", (unsigned)i, r);
        l->acked[i] = r == 0;
        store_stats(l->s, &st);
        if (r == -EROFS && (st.state != STORE_READ_ONLY || st.state_why.n == 0))
            fail_msg("batch %u: read-only, but the state is %d", (unsigned)i, (int)st.state);
    }
}

static void ask_in_trouble(const struct life *l)
{
    struct err err = {};
    unit_i128 sum;
    int r = l->s ? ask(l->s, &sum, &err) : 0;

    assert_true(r >= 0 || err.msg[0] != '\0');
}

static void seal_in_trouble(const struct life *l)
{
    struct err err = {};
    int r = l->s ? store_seal(l->s, &err) : 0;

    assert_true(r == 0 || err.msg[0] != '\0');
}

static void compact_in_trouble(struct life *l)
{
    struct store_stats st;
    struct err err = {};
    int r = l->s ? compact_all(l->s, &err) : 0;

    assert_true(r == 0 || err.msg[0] != '\0');
    if (l->s) {
        store_stats(l->s, &st);
        l->merged = st.compactions > 0;
    }
}

/* Its first part is sealed at the close, the second when asked, both become one, the third stays in
 * the journal. */
static void live(struct life *l)
{
    open_in_trouble(l);
    append_in_trouble(l, 0, HALF);
    l->s = store_close(l->s);
    open_in_trouble(l);
    append_in_trouble(l, HALF, HALF / 2);
    seal_in_trouble(l);
    compact_in_trouble(l);
    append_in_trouble(l, HALF + HALF / 2, HALF - HALF / 2);
    ask_in_trouble(l);
}

/* Failures are over: the next batch works, or there is a reason. */
static void go_on(struct life *l)
{
    struct store_stats st = {};
    int r = -ENOSPC;

    if (!l->s)
        return;
    for (int i = 0; i < 500 && r == -ENOSPC; i++) { /* full: a probe must pass first */
        r = append(l, BATCHES - 1);
        if (r == -ENOSPC)
            (void)usleep(10000);
    }
    if (r == -EIO || r == -ENOMEM) /* the failure was found out by this one */
        r = append(l, BATCHES - 1);
    store_stats(l->s, &st);
    if (r != 0 && !(r == -EROFS && st.state == STORE_READ_ONLY && st.state_why.n > 0))
        fail_msg("afterwards: %d, state %d", r, (int)st.state);
    l->acked[BATCHES - 1] = r == 0;
}

/* What was acknowledged is there, and all of it once after it was sent again. */
static void check_after(struct life *l, uint64_t n)
{
    struct err err = {};
    unit_i128 sum, want = 0;
    char image[80];
    int r;

    l->s = store_close(l->s);
    if (n % 3) { /* and the power goes */
        l->image++;
        set_dir(l, image);
        disk_cut(image, n % 3 == 1 ? DISK_NONE : DISK_SUBSET, n);
    }
    r = store_open(&l->conf, &l->s, &err);
    if (r != 0)
        fail_msg("n = %u: store_open = %d: %s", (unsigned)n, r, err.msg);
    for (uint64_t i = 0; i < BATCHES; i++) {
        r = append(l, i);
        if (r != STORE_DUPLICATE && (r != 0 || l->acked[i]))
            fail_msg("n = %u: batch %u: %d, acknowledged: %d", (unsigned)n, (unsigned)i, r,
                     l->acked[i]);
        want += value[i];
    }
    assert_ok(ask(l->s, &sum, &err), &err);
    if (sum != want)
        fail_msg("n = %u: not what was sent", (unsigned)n);
}

static uint64_t step(void)
{
    return getenv("STRATA_LONG") ? 1 : 17; // NOLINT(concurrency-mt-unsafe)
}

static void tune(void)
{
    store_tuning.rotate_bytes = 8 * 4;
    store_tuning.rotate_waits = true;
    store_tuning.probe_ns = 10 * NS_PER_MS;
    store_tuning.compact_asked = true;
}

static void io_loop(const char *what, uint32_t mask, uint64_t in_a_row, int code)
{
    uint64_t n = 1, hit;

    tune();
    for (;; n += step()) {
        struct life l;

        life_init(&l);
        disk_fail(mask, n, in_a_row, code);
        live(&l);
        hit = disk_failures();
        disk_fail(0, 0, 0, 0);
        if (hit > 0)
            go_on(&l);
        check_after(&l, n);
        if (hit == 0)
            assert_true(l.merged);
        life_deinit(&l);
        if (hit == 0)
            break;
    }
    print_message("%s: %u calls, each %u-th failed\n", what, (unsigned)n, (unsigned)step());
    assert_true(n > 3 * step());
    store_tuning = (struct store_tuning){};
}

static void test_io(void **state)
{
    (void)state;
    io_loop("EIO", DISK_CHANGE, 1, EIO);
    io_loop("ENOSPC", DISK_CHANGE, 1, ENOSPC);
    io_loop("fsync", DISK_SYNC, 1, EIO);
    io_loop("open", DISK_OPEN, 1, EIO);
    io_loop("open: descriptors", DISK_OPEN, 1, EMFILE);
    io_loop("read", DISK_READ, 1, EIO);
}

static void test_io_in_a_row(void **state)
{
    (void)state;
    io_loop("EIO from then on", DISK_CHANGE | DISK_SYNC, UINT64_MAX, EIO);
    io_loop("ENOSPC from then on", DISK_CHANGE | DISK_OPEN, UINT64_MAX, ENOSPC);
    io_loop("EROFS from then on", DISK_CHANGE, UINT64_MAX, EROFS);
}

/* ---- memory -------------------------------------------------------------------------------- */

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name); // NOLINT(concurrency-mt-unsafe)

    if (text)
        assert_true(str_u64(str_c(text), &otherwise) && otherwise > 0);
    return otherwise;
}

/* Most are alike: those of SQLite in one statement. */
static uint64_t memory_step(void)
{
    return number_of("STRATA_ALLOC_STEP", step() == 1 ? 7 : 397);
}

static void memory_loop(const char *what, uint64_t in_a_row)
{
    uint64_t n = number_of("STRATA_ALLOC_FROM", 1), hit;

    tune();
    for (;; n += memory_step()) {
        struct life l;

        life_init(&l);
        memory_fail(n, in_a_row);
        live(&l);
        hit = memory_failures();
        memory_fail(0, 0);
        if (hit > 0)
            go_on(&l);
        check_after(&l, n);
        if (hit == 0)
            assert_true(l.merged);
        life_deinit(&l);
        if (hit == 0)
            break;
    }
    print_message("%s: %u allocations, each %u-th failed\n", what, (unsigned)n,
                  (unsigned)memory_step());
    store_tuning = (struct store_tuning){};
}

static void test_memory(void **state)
{
    (void)state;
    memory_loop("once", 1);
    memory_loop("five in a row", 5);
    memory_loop("from then on", INT64_MAX);
}

/* ---- each append is answered once ---------------------------------------------------------- */

#define SENDERS  4u
#define PER      200u
#define IN_ROUND (SENDERS * PER)

struct answer {
    struct life *l;
    struct batch b;
    uint64_t payload;
    _Atomic uint32_t answers;
    _Atomic int r;
};

static struct answer answer[IN_ROUND];

static void on_answer(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    struct answer *a = ctx;

    assert_true((lsn != 0) == (r == 0) && (err != NULL) == (r < 0));
    atomic_store(&a->r, r);
    atomic_fetch_add(&a->answers, 1);
}

static void *send_all(void *arg)
{
    struct answer *a = arg;

    for (uint32_t i = 0; i < PER; i++)
        store_append(a->l->s, &a[i].b, (struct str){(const char *)&a[i].payload, 8}, on_answer,
                     &a[i]);
    return NULL;
}

/* Many senders at once while calls fail and the store is closed behind the last of them. */
static void answers_of(struct life *l, uint64_t n, uint32_t *ret_refused)
{
    pthread_t t[SENDERS];

    open_in_trouble(l);
    for (uint32_t i = 0; i < IN_ROUND; i++) {
        answer[i].l = l;
        answer[i].payload = i % BATCHES;
        answer[i].b = made[i % BATCHES];
        answer[i].b.id.seq = 1 + i % PER; /* a window of 1,024 */
        answer[i].b.id.boot[0] = (uint8_t)(i / PER);
        answer[i].b.id.content = i + 1;
        atomic_store(&answer[i].answers, 0);
    }
    disk_fail(DISK_CHANGE | DISK_SYNC, n, 1 + n % 3, n % 2 ? EIO : ENOSPC);
    for (uint32_t i = 0; i < SENDERS; i++)
        assert_int_equal(thread_start(&t[i], "sender", 0, send_all, &answer[(size_t)i * PER]), 0);
    for (uint32_t i = 0; i < SENDERS; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    l->s = store_close(l->s);
    disk_fail(0, 0, 0, 0);
    *ret_refused = 0;
    for (uint32_t i = 0; i < IN_ROUND; i++) {
        assert_int_equal(answer[i].answers, 1);
        *ret_refused += answer[i].r < 0;
    }
}

static void test_answered_once(void **state)
{
    uint32_t refused = 0;

    (void)state;
    tune();
    store_tuning.rotate_bytes = 8 * 100;
    for (uint64_t n = 5; n < 200; n += 13) {
        struct life l;
        uint32_t k;

        life_init(&l);
        answers_of(&l, n, &k);
        refused += k;
        open_in_trouble(&l);
        for (uint32_t i = 0; i < IN_ROUND; i++) {
            int r = store_append_wait(
                l.s, &answer[i].b, (struct str){(const char *)&answer[i].payload, 8}, NULL, NULL);

            assert_true(r == STORE_DUPLICATE || (r == 0 && answer[i].r != 0));
        }
        life_deinit(&l);
    }
    print_message("%u refused\n", refused);
    assert_true(refused > 0);
    store_tuning = (struct store_tuning){};
}

/* ---- the head's and the arenas' own limits (base/arena.h) ------------------------------------ */

static void test_memory_hooks(void **state)
{
    uint64_t n = 1;
    uint32_t passed = 0;

    (void)state;
    tune();
    for (; passed < 3; n += step()) { /* three in a row: n is beyond all of them */
        struct life l;
        bool all = true;

        life_init(&l);
        mem_fail_nth(n);
        live(&l);
        mem_fail_nth(0);
        for (uint64_t i = 0; i < 2 * HALF; i++)
            all &= l.acked[i];
        passed = all ? passed + 1 : 0;
        go_on(&l);
        check_after(&l, n);
        life_deinit(&l);
    }
    print_message("%u allocations, each %u-th failed\n", (unsigned)n, (unsigned)step());
    store_tuning = (struct store_tuning){};
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_io),           cmocka_unit_test(test_io_in_a_row),
        cmocka_unit_test(test_memory),       cmocka_unit_test(test_answered_once),
        cmocka_unit_test(test_memory_hooks),
    };
    struct arena a;

    memory_begin();
    arena_init(&a, (size_t)1 << 28);
    for (uint64_t i = 0; i < BATCHES; i++) {
        struct oracle o = {};

        gen_batch(i + 1, ROWS, &a, &o, &made[i]);
        for (uint32_t k = 0; k < o.n; k++)
            value[i] += o.v[k].type == PTYPE_CPU ? o.v[k].value : 0;
        free(o.v);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
