// SPDX-License-Identifier: Apache-2.0
/*
 * The n-th write, sync or truncate of a journal fails, n = 1, 2, ... until a whole run passes: no
 * batch is acknowledged that a restart does not show, and the store goes on or says why not. Then
 * the same with memory.
 */
#include <sqlite3.h>

#include "tests/unit/test_storage_lib.h"

#define BATCHES 12u

/* ---- a VFS whose n-th call fails ----------------------------------------------------------- */

static sqlite3_vfs *real_vfs;
static _Atomic int64_t countdown; /* the call at which it gets to 0 fails */
static _Atomic uint32_t fail_for; /* and so many in a row; 0: off */
static _Atomic int fail_code;
static _Atomic uint32_t failures;

struct faulty {
    sqlite3_file base;
    sqlite3_file *real;
};

static bool must_fail(void)
{
    int64_t n = atomic_fetch_sub(&countdown, 1);

    if (n > 1 || n <= 1 - (int64_t)atomic_load(&fail_for))
        return false;
    atomic_fetch_add(&failures, 1);
    return true;
}

static sqlite3_file *real_of(sqlite3_file *f)
{
    return ((struct faulty *)f)->real;
}

static int f_close(sqlite3_file *f)
{
    sqlite3_file *r = real_of(f);
    int rc = r->pMethods ? r->pMethods->xClose(r) : SQLITE_OK;

    free(r);
    return rc;
}

static int f_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    return real_of(f)->pMethods->xRead(real_of(f), p, n, at);
}

static int f_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    if (must_fail()) { /* half of it arrives */
        (void)real_of(f)->pMethods->xWrite(real_of(f), p, n / 2, at);
        return atomic_load(&fail_code);
    }
    return real_of(f)->pMethods->xWrite(real_of(f), p, n, at);
}

static int f_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    return must_fail() ? SQLITE_IOERR_TRUNCATE : real_of(f)->pMethods->xTruncate(real_of(f), n);
}

static int f_sync(sqlite3_file *f, int flags)
{
    return must_fail() ? SQLITE_IOERR_FSYNC : real_of(f)->pMethods->xSync(real_of(f), flags);
}

static int f_size(sqlite3_file *f, sqlite3_int64 *ret)
{
    return real_of(f)->pMethods->xFileSize(real_of(f), ret);
}

static int f_lock(sqlite3_file *f, int l)
{
    return real_of(f)->pMethods->xLock(real_of(f), l);
}

static int f_unlock(sqlite3_file *f, int l)
{
    return real_of(f)->pMethods->xUnlock(real_of(f), l);
}

static int f_reserved(sqlite3_file *f, int *ret)
{
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), ret);
}

static int f_control(sqlite3_file *f, int op, void *p)
{
    return real_of(f)->pMethods->xFileControl(real_of(f), op, p);
}

static int f_sector(sqlite3_file *f)
{
    return real_of(f)->pMethods->xSectorSize(real_of(f));
}

static int f_device(sqlite3_file *f)
{
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}

/* Version 1: no shared memory, as with locking_mode=EXCLUSIVE. */
static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = f_close,
    .xRead = f_read,
    .xWrite = f_write,
    .xTruncate = f_truncate,
    .xSync = f_sync,
    .xFileSize = f_size,
    .xLock = f_lock,
    .xUnlock = f_unlock,
    .xCheckReservedLock = f_reserved,
    .xFileControl = f_control,
    .xSectorSize = f_sector,
    .xDeviceCharacteristics = f_device,
};

static int v_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out)
{
    struct faulty *x = (struct faulty *)f;
    int rc;

    (void)v;
    x->real = xcalloc(1, (size_t)real_vfs->szOsFile);
    rc = real_vfs->xOpen(real_vfs, name, x->real, flags, out);
    x->base.pMethods = &methods;
    if (rc != SQLITE_OK) {
        free(x->real);
        x->base.pMethods = NULL;
    }
    return rc;
}

static int v_delete(sqlite3_vfs *v, const char *name, int sync)
{
    (void)v;
    return real_vfs->xDelete(real_vfs, name, sync);
}

static sqlite3_vfs vfs;

static void register_vfs(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    vfs = *real_vfs;
    vfs.pNext = NULL;
    vfs.zName = "faulty";
    vfs.szOsFile = sizeof(struct faulty);
    vfs.xOpen = v_open;
    vfs.xDelete = v_delete;
    assert_int_equal(sqlite3_vfs_register(&vfs, 0), SQLITE_OK);
}

/* ---- loops --------------------------------------------------------------------------------- */

static unit_i128 total(struct store *s)
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
    struct err err = {};

    sum = (struct sums){};
    arena_init(&a, 1 << 20);
    assert_ok(store_scan(v, &q, &sink, &answer, &err), &err);
    arena_deinit(&a);
    v = store_view_put(v);
    return sum.value[0][0][0];
}

static unit_i128 want(const struct oracle *o)
{
    unit_i128 v = 0;

    for (uint32_t i = 0; i < o->n; i++)
        v += o->v[i].type == PTYPE_CPU ? o->v[i].value : 0;
    return v;
}

/* What was acknowledged is in acked; the store is closed and opened without faults. */
static void check_after(struct fixture *f, const bool acked[BATCHES + 1])
{
    fixture_reopen(f, 0);
    for (uint64_t i = 1; i <= BATCHES; i++) {
        int r = fixture_append(f, i, true, NULL);

        assert_true(r == 0 || r == STORE_DUPLICATE);
        if (acked[i])
            assert_int_equal(r, STORE_DUPLICATE);
    }
    assert_true(total(f->s) == want(&f->o));
}

/* Appends while faults are on. */
static void append_all(struct fixture *f, bool acked[BATCHES + 1])
{
    struct store_stats st;

    for (uint64_t i = 1; i <= BATCHES; i++) {
        int r = fixture_append(f, i, false, NULL);

        assert_true(r == 0 || r == -EIO || r == -ENOSPC || r == -EROFS || r == -ENOMEM);
        acked[i] = r == 0;
        store_stats(f->s, &st);
        if (r == -EROFS)
            assert_int_equal(st.state, STORE_READ_ONLY);
        if (r == -ENOSPC)
            assert_int_equal(st.state, STORE_FULL);
    }
}

static void fault_loop(int code, uint32_t in_a_row, int64_t step)
{
    store_tuning.vfs = "faulty";
    store_tuning.rotate_bytes = 8 * 5;
    store_tuning.rotate_waits = true;
    atomic_store(&fail_code, code);
    for (int64_t n = 1;; n += step) {
        bool acked[BATCHES + 1] = {};
        struct fixture f;
        uint32_t hit;

        fixture_init(&f);
        atomic_store(&failures, 0);
        fixture_open(&f, 0);
        atomic_store(&countdown, n);
        atomic_store(&fail_for, in_a_row);
        append_all(&f, acked);
        hit = atomic_load(&failures);
        atomic_store(&fail_for, 0);
        check_after(&f, acked);
        fixture_deinit(&f);
        if (hit == 0) {
            print_message("%lld calls, each n-th by %lld failed\n", (long long)n, (long long)step);
            break;
        }
    }
    store_tuning = (struct store_tuning){};
}

static void test_io_errors(void **state)
{
    (void)state;
    fault_loop(SQLITE_IOERR_WRITE, 1, 3);
}

/* Everything fails from then on, for a while: twice within a minute is the end of writing. */
static void test_io_errors_in_a_row(void **state)
{
    (void)state;
    fault_loop(SQLITE_IOERR_WRITE, 1000, 7);
}

/* A full disk: refused, and on again by itself when there is room. */
static void test_full(void **state)
{
    struct fixture f;
    struct store_stats st;
    bool acked[BATCHES + 1] = {};

    (void)state;
    store_tuning.vfs = "faulty";
    store_tuning.probe_ns = 20 * NS_PER_MS;
    fixture_init(&f);
    fixture_open(&f, 0);
    atomic_store(&fail_code, SQLITE_FULL);
    atomic_store(&countdown, 1);
    atomic_store(&fail_for, UINT32_MAX);
    assert_int_equal(fixture_append(&f, 1, false, NULL), -ENOSPC);
    store_stats(f.s, &st);
    assert_int_equal(st.state, STORE_FULL);
    assert_int_equal(st.commit_failures, 1);
    assert_int_equal(fixture_append(&f, 1, false, NULL), -ENOSPC);
    assert_true(total(f.s) == 0); /* reading goes on */
    atomic_store(&fail_for, 0);
    for (int i = 0; i < 200; i++) {
        store_stats(f.s, &st);
        if (st.state == STORE_OK)
            break;
        (void)usleep(20000);
    }
    assert_int_equal(st.state, STORE_OK);
    append_all(&f, acked);
    for (uint32_t i = 1; i <= BATCHES; i++)
        assert_true(acked[i]);
    check_after(&f, acked);
    fixture_deinit(&f);
    store_tuning = (struct store_tuning){};
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Batches made beforehand: the generator itself does not look at what it allocates. */
static struct batch made[BATCHES + 1];

static int decode_made(void *ctx, const struct store_entry *e, struct arena *arena,
                       struct batch *ret, struct err *err)
{
    uint64_t seed;

    (void)ctx;
    if (!arena_alloc(arena, 1))
        return err_set(err, -ENOMEM, "decode: memory is short");
    memcpy(&seed, e->payload.p, sizeof seed);
    *ret = made[seed];
    return 0;
}

static int append_made(struct fixture *f, uint64_t seed)
{
    return store_append_wait(f->s, &made[seed], (struct str){(const char *)&seed, 8},
                             &(uint64_t){0}, NULL);
}

static void make_all(struct fixture *f)
{
    for (uint64_t i = 1; i <= BATCHES; i++)
        gen_batch(i, GEN_ROWS, &f->a, &f->o, &made[i]);
    f->conf.decode = decode_made;
}

/* Opening with the n-th allocation failing: opened or refused with a reason; never damage. */
static void test_memory_open(void **state)
{
    struct fixture f;
    uint32_t passed = 0, refused = 0;

    (void)state;
    fixture_init(&f);
    make_all(&f);
    fixture_open(&f, 0);
    for (uint64_t i = 1; i <= BATCHES; i++)
        assert_int_equal(append_made(&f, i), 0);
    f.s = store_close(f.s);
    for (uint64_t n = 1; passed < 3; n += 7) { /* three in a row: n is beyond all of them */
        struct err err = {};
        int r;

        mem_fail_nth(n);
        r = store_open(&f.conf, &f.s, &err);
        mem_fail_nth(0);
        if (r != 0 && r != -ENOMEM)
            fail_msg("allocation %llu: %d %s", (unsigned long long)n, r, err.msg);
        assert_true(r == 0 || err.msg[0] != '\0');
        passed = r == 0 ? passed + 1 : 0;
        refused += r != 0;
        if (r == 0)
            assert_true(total(f.s) == want(&f.o));
        f.s = r == 0 ? store_close(f.s) : NULL;
    }
    print_message("%u openings refused\n", refused);
    assert_true(refused > 10);
    fixture_open(&f, 0);
    assert_true(total(f.s) == want(&f.o));
    fixture_deinit(&f);
}

/* Appending likewise: what was not acknowledged may be there, what was is, nothing twice. */
static void test_memory_append(void **state)
{
    uint32_t passed = 0, failed = 0;

    (void)state;
    for (uint64_t n = 1; passed < 3; n += 29) {
        bool acked[BATCHES + 1] = {}, all = true;
        struct fixture f;

        fixture_init(&f);
        make_all(&f);
        fixture_open(&f, 0);
        mem_fail_nth(n);
        for (uint64_t i = 1; i <= BATCHES; i++) {
            int r = append_made(&f, i);

            assert_true(r == 0 || r == -ENOMEM || r == -EROFS || r == -EIO);
            acked[i] = r == 0;
            all &= r == 0;
        }
        mem_fail_nth(0);
        passed = all ? passed + 1 : 0;
        failed += !all;
        fixture_reopen(&f, 0);
        for (uint64_t i = 1; i <= BATCHES; i++) {
            int r = append_made(&f, i);

            assert_true(r == STORE_DUPLICATE || (r == 0 && !acked[i]));
        }
        assert_true(total(f.s) == want(&f.o));
        fixture_deinit(&f);
    }
    print_message("%u runs with a refusal\n", failed);
    assert_true(failed > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_io_errors),     cmocka_unit_test(test_io_errors_in_a_row),
        cmocka_unit_test(test_full),          cmocka_unit_test(test_memory_open),
        cmocka_unit_test(test_memory_append),
    };

    register_vfs();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
