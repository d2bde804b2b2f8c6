// SPDX-License-Identifier: Apache-2.0
/*
 * A writer is killed in the middle of its work, again and again, while it seals all the time. It
 * notes in a side file what was acknowledged. Opened again, the store holds all of that, and after
 * everything was sent once more each batch counts exactly once.
 *
 * SIGKILL leaves the page cache alone: this tests the order of steps, not the syncing.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/unit/test_storage_lib.h"

#define SEED  20261130u
#define BATCH 200u /* most of a round */

struct writer {
    int side;
    struct mutex mu;
    struct cond cond;
    uint32_t settled;
};

static void on_done(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    struct writer *w = ctx;

    (void)lsn;
    (void)err;
    mutex_lock(&w->mu);
    w->settled++;
    cond_signal(&w->cond);
    mutex_unlock(&w->mu);
    if (r != 0 && r != STORE_DUPLICATE)
        _exit(3);
}

struct one {
    struct writer *w;
    uint64_t seq;
};

static void on_acknowledged(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    const struct one *o = ctx;

    if (r == 0 && write(o->w->side, &o->seq, sizeof o->seq) != (ssize_t)sizeof o->seq)
        _exit(4);
    on_done(o->w, r, lsn, err);
}

/* The child: batches first .. first + BATCH - 1, many at once. */
static _Noreturn void write_until_killed(struct fixture *f, uint64_t first, int side)
{
    static struct batch b[BATCH];
    static struct one one[BATCH];
    static uint64_t payload[BATCH];
    struct writer w = {.side = side};

    mutex_init(&w.mu);
    cond_init(&w.cond);
    if (store_open(&f->conf, &f->s, NULL) != 0)
        _exit(2);
    for (uint32_t i = 0; i < BATCH; i++) {
        payload[i] = first + i;
        one[i] = (struct one){&w, first + i};
        gen_batch(first + i, GEN_ROWS, &f->a, NULL, &b[i]);
        store_append(f->s, &b[i], (struct str){(const char *)&payload[i], 8}, on_acknowledged,
                     &one[i]);
        if (i % 16 == 15) {
            mutex_lock(&w.mu);
            while (w.settled + 8 < i)
                cond_wait(&w.cond, &w.mu);
            mutex_unlock(&w.mu);
        }
    }
    for (;;)
        (void)pause();
}

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

static uint32_t check_acknowledged(struct fixture *f, int side, uint64_t first)
{
    uint64_t seq;
    uint32_t n = 0, stored = 0;
    unit_i128 want = 0;

    assert_int_equal(lseek(side, 0, SEEK_SET), 0);
    while (read(side, &seq, sizeof seq) == (ssize_t)sizeof seq) {
        assert_int_equal(fixture_append(f, seq, false, NULL), STORE_DUPLICATE);
        n++;
    }
    for (uint32_t i = 0; i < BATCH; i++) {
        int r = fixture_append(f, first + i, true, NULL); /* the oracle has each once */

        assert_true(r == 0 || r == STORE_DUPLICATE);
        stored += r == 0;
    }
    assert_true(n + stored <= BATCH);
    for (uint32_t i = 0; i < f->o.n; i++)
        want += f->o.v[i].type == PTYPE_CPU ? f->o.v[i].value : 0;
    assert_true(total(f->s) == want);
    arena_reset(&f->a);
    return n;
}

static void wait_for_size(int fd)
{
    struct stat st = {};

    for (int i = 0; st.st_size == 0; i++) {
        assert_true(i < 6000);
        (void)usleep(5000);
        assert_int_equal(fstat(fd, &st), 0);
    }
}

/* STRATA_ROUNDS: more of them. */
static uint64_t rounds(void)
{
    const char *text = getenv("STRATA_ROUNDS"); // NOLINT(concurrency-mt-unsafe)
    uint64_t n = 12;

    if (text)
        assert_true(str_u64(str_c(text), &n));
    return n;
}

static void test_kills(void **state)
{
    const uint64_t n = rounds();
    struct fixture f;
    struct rnd r = {SEED};
    uint64_t acknowledged = 0;
    char path[128];

    (void)state;
    print_message("seed %u\n", SEED);
    store_tuning.rotate_bytes = 8 * 50;
    store_tuning.seal_bytes = 100000; /* in a round several times */
    store_tuning.compact_ns = 1;
    store_tuning.compact_look_ns = 20 * NS_PER_MS;
    fixture_init(&f);
    store_tuning.seal_asked = false;
    store_tuning.seal_ns = 8 * MS;
    (void)snprintf(path, sizeof path, "%s/side", f.dir);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t first = 1 + i * BATCH;
        int side = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600), status;
        pid_t pid;

        assert_true(side >= 0);
        pid = fork(); /* no thread of ours is running */
        assert_true(pid >= 0);
        if (pid == 0)
            write_until_killed(&f, first, side);
        if (i % 4 != 3) /* every fourth one may die before its first answer */
            wait_for_size(side);
        (void)usleep(rnd_below(&r, 150000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        fixture_open(&f, 0);
        acknowledged += check_acknowledged(&f, side, first);
        f.s = store_close(f.s);
        (void)close(side);
    }
    print_message("%llu acknowledged before %llu kills, 0 lost, 0 doubled\n",
                  (unsigned long long)acknowledged, (unsigned long long)n);
    assert_true(acknowledged > 0);
    fixture_deinit(&f);
    store_tuning = (struct store_tuning){};
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kills)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
