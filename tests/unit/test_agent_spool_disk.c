// SPDX-License-Identifier: Apache-2.0
/* The spool's files: what one run leaves the next one sends, in order; what is torn or not ours is
 * set aside or left alone; what was given up is told once, whoever is killed when; modes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/send/spool.h"
#include "agent/send/spool_disk.h"
#include "agent/source/clock.h"
#include "base/time.h"
#include "tests/lib/testing.h"

static char dir[64];

static int fresh(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/strata-spool-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

/* How many names end so; with del they are removed. */
static unsigned files(const char *end, bool del)
{
    char path[400];
    DIR *d = opendir(dir);
    unsigned n = 0;

    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' || !str_ends(str_c(e->d_name), str_c(end)))
            continue;
        n++;
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (del)
            assert_int_equal(unlink(path), 0);
    }
    closedir(d);
    return n;
}

static int gone(void **state)
{
    (void)state;
    (void)files("", true);
    return rmdir(dir);
}

static struct spool *open_spool(uint8_t run, uint64_t cap)
{
    return spool_new(&(struct spool_conf){
        .dir = dir, .cap = cap, .memory_cap = 5000, .max_age = 3600 * NS_PER_S, .boot = {run}});
}

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
        .content = seq * 77,
        .covers = {{(int64_t)seq * NS_PER_S}, {(int64_t)(seq + 1) * NS_PER_S}}};

    hold(&i, PTYPE_CPU, 200, 2000);
    return i;
}

static void put_telling(struct spool *s, uint64_t seq, size_t n,
                        const struct batchmake_dropped *told, uint32_t n_told)
{
    struct batchmake_info info = info_of(seq);
    char *body = calloc(1, n);

    assert_non_null(body);
    for (size_t i = 0; i < n; i++)
        body[i] = (char)(seq * 31 + i);
    spool_put(s, &(struct spool_new_batch){
                     .seq = seq, .body = {body, n}, .info = &info, .told = told, .n_told = n_told});
    free(body);
}

static void put(struct spool *s, uint64_t seq, size_t n)
{
    put_telling(s, seq, n, NULL, 0);
}

static const struct spool_batch *expect(struct spool *s, uint8_t run, uint64_t seq)
{
    const struct spool_batch *b = spool_front(s, 0);
    struct buf out;

    assert_non_null(b);
    assert_int_equal(b->boot[0], run);
    assert_int_equal(b->seq, seq);
    buf_init(&out, 1 << 20);
    assert_int_equal(spool_read(s, b, &out, NULL), 0);
    assert_int_equal(out.n, b->bytes);
    for (size_t i = 0; i < out.n; i++)
        assert_int_equal(out.p[i], (char)(seq * 31 + i));
    buf_deinit(&out);
    return b;
}

static struct spool_stats stats(struct spool *s)
{
    struct spool_stats st;
    uint64_t dropped = 0;

    spool_get_stats(s, &st);
    for (unsigned i = 0; i < SPOOL_DROP_N; i++)
        dropped += st.dropped[i];
    assert_int_equal(st.produced + st.inherited, st.sent + dropped + st.spooled);
    return st;
}

static void restart(void **state)
{
    struct spool *s = open_spool(9, 1 << 20);

    (void)state;
    for (uint64_t i = 1; i <= 12; i++)
        put(s, i, 100 + i);
    spool_done(s, expect(s, 9, 1), false);
    s = spool_free(s); /* killed, as far as files can tell */
    clock_shift_add((struct clock_shift){NS_PER_S, NS_PER_S, NS_PER_S});
    s = open_spool(3, 1 << 20); /* a smaller id, yet younger */
    assert_int_equal(stats(s).inherited, 11);
    assert_string_equal(stats(s).state, "ok");
    assert_int_equal(stats(s).inherited_t.t0.v, 2 * NS_PER_S);
    assert_int_equal(stats(s).inherited_t.t1.v, 13 * NS_PER_S);
    put(s, 1, 50);
    put(s, 2, 50);
    for (uint64_t i = 2; i <= 6; i++)
        spool_done(s, expect(s, 9, i), false);
    spool_free(s);
    clock_shift_add((struct clock_shift){NS_PER_S, NS_PER_S, NS_PER_S});
    s = open_spool(5, 1 << 20);
    for (uint64_t i = 7; i <= 12; i++)
        spool_done(s, expect(s, 9, i), false);
    spool_done(s, expect(s, 3, 1), false);
    spool_done(s, expect(s, 3, 2), true);
    assert_null(spool_front(s, 0));
    assert_int_equal(files(".batch", false), 0);
    spool_free(s);
}

static void modes(void **state)
{
    struct spool *s = open_spool(1, 1 << 20), *other;
    char path[200];
    struct stat st;

    (void)state;
    put(s, 1, 10);
    (void)snprintf(path, sizeof path, "%s/01000000000000000000000000000000-0000000001.batch", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    other = open_spool(2, 1 << 20); /* two agents on one directory */
    assert_non_null(strstr(stats(other).state, "another agent"));
    put(other, 1, 10);
    assert_int_equal(stats(other).memory_batches, 1);
    spool_free(other);
    spool_free(s);
    assert_int_equal(chmod(dir, 0755), 0);
    s = open_spool(1, 1 << 20);
    assert_non_null(strstr(stats(s).state, "0700"));
    spool_free(s);
    assert_int_equal(chmod(dir, 0700), 0);
    /* one that is made */
    (void)snprintf(path, sizeof path, "%s/made", dir);
    s = spool_new(&(struct spool_conf){.dir = path, .cap = 1, .max_age = 1});
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    spool_free(s);
    (void)snprintf(path, sizeof path, "%s/made/lock", dir);
    unlink(path);
    (void)snprintf(path, sizeof path, "%s/made", dir);
    rmdir(path);
}

static void overwrite(const char *name, off_t at, const char *text, off_t length)
{
    char path[200];
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    if (text)
        assert_int_equal(pwrite(fd, text, strlen(text), at), strlen(text));
    else
        assert_int_equal(ftruncate(fd, length), 0);
    close(fd);
}

/* Torn: told from its head. Head damaged: counted. Body damaged: found when it is to be sent. */
static void damaged(void **state)
{
    struct batchmake_dropped d[8];
    struct spool *s = open_spool(1, 1 << 20);
    const struct spool_batch *b;
    struct buf out;

    (void)state;
    for (uint64_t i = 1; i <= 5; i++)
        put(s, i, 500);
    spool_free(s);
    overwrite("01000000000000000000000000000000-0000000002.batch", 0, NULL, 400);
    overwrite("01000000000000000000000000000000-0000000003.batch", 42, "x", 0);
    overwrite("01000000000000000000000000000000-0000000004.batch", 300, "x", 0);
    overwrite("01000000000000000000000000000000-0000000009.batch", 0, NULL, 0);
    overwrite("01000000000000000000000000000000-0000000007.batch.new", 0, "cut", 0);
    overwrite("somebody's.batch", 0, "else", 0);
    s = open_spool(2, 1 << 20);
    assert_int_equal(stats(s).damaged, 3);
    assert_int_equal(stats(s).foreign, 1);
    assert_int_equal(stats(s).inherited, 4); /* 1, 2, 4, 5 */
    assert_int_equal(stats(s).dropped[SPOOL_DROP_DAMAGED], 1);
    assert_int_equal(files(".bad", false), 3);
    assert_int_equal(files(".new", false), 0);
    assert_int_equal(files("somebody's.batch", false), 1);
    assert_int_equal(spool_take_dropped(s, d, 8), 1);
    assert_int_equal(d[0].n, 200);
    assert_int_equal(d[0].covers.t0.v, 2 * NS_PER_S);
    assert_int_equal(d[0].why, LOSS_SPOOL_DROP);
    assert_true(d[0].first > d[0].last); /* a number of another run */
    spool_done(s, expect(s, 1, 1), false);
    b = spool_front(s, 0);
    assert_int_equal(b->seq, 4);
    buf_init(&out, 1 << 20);
    assert_int_equal(spool_read(s, b, &out, NULL), -EBADMSG);
    buf_deinit(&out);
    spool_drop(s, b, SPOOL_DROP_DAMAGED);
    assert_int_equal(files(".bad", false), 4);
    spool_done(s, expect(s, 1, 5), false);
    assert_int_equal(stats(s).spooled, 0);
    spool_free(s);
}

static uint64_t sum(const struct batchmake_dropped *d, uint32_t n)
{
    uint64_t ret = 0;

    for (uint32_t i = 0; i < n; i++)
        ret += d[i].n;
    return ret;
}

/* Killed before, between and after the two writes by which a loss comes into a batch. */
static void told_once(void **state)
{
    struct batchmake_dropped d[8];
    struct spool *s = open_spool(1, 1500);
    char path[200], kept[200];
    uint32_t n;

    (void)state;
    for (uint64_t i = 1; i <= 4; i++)
        put(s, i, 400);
    assert_int_equal(stats(s).dropped[SPOOL_DROP_FULL], 2);
    spool_free(s); /* before any batch tells of it */
    s = open_spool(2, 1500);
    n = spool_take_dropped(s, d, 8);
    assert_int_equal(sum(d, n), 400);
    (void)snprintf(path, sizeof path, "%s/untold", dir);
    (void)snprintf(kept, sizeof kept, "%s/kept", dir);
    assert_int_equal(link(path, kept), 0);
    put_telling(s, 1, 10, d, n);
    assert_int_equal(spool_take_dropped(s, d, 8), 0);
    assert_int_equal(access(path, F_OK), -1);
    spool_free(s);
    assert_int_equal(rename(kept, path), 0); /* between the two */
    s = open_spool(3, 1500);
    assert_int_equal(spool_take_dropped(s, d, 8), 0);
    assert_int_equal(access(path, F_OK), -1);
    for (uint64_t seq = 3; seq <= 4; seq++)
        spool_done(s, expect(s, 1, seq), false);
    spool_drop(s, expect(s, 2, 1), SPOOL_DROP_BAD); /* who told is refused: told again */
    n = spool_take_dropped(s, d, 8);
    assert_int_equal(sum(d, n), 600);
    spool_free(s);
}

/* Another run gives the batch up: each type's sum is told, one whose time was not known as such. */
static void every_type(void **state)
{
    struct batchmake_info info = info_of(1);
    struct spool *s = open_spool(1, 1 << 20);
    struct batchmake_dropped d[8];

    (void)state;
    hold(&info, PTYPE_GIL_HELD, 3, 30);
    hold(&info, PTYPE_OFFCPU, 4, 40);
    hold(&info, PTYPE_RUNQ, 0, 0);
    hold(&info, PTYPE_GIL_WAIT, 2, BATCH_NO_WEIGHT);
    spool_put(s, &(struct spool_new_batch){.seq = 1, .body = STR("\x1f"), .info = &info});
    spool_free(s);
    s = open_spool(2, 1 << 20);
    spool_drop(s, expect(s, 1, 1), SPOOL_DROP_BAD);
    assert_int_equal(spool_take_dropped(s, d, 8), 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(d[i].type, info.held.v[i].type);
        assert_int_equal(d[i].n, info.held.v[i].n);
        assert_int_equal(d[i].weight, info.held.v[i].weight);
        assert_int_equal(d[i].why, LOSS_SEND_REJECTED);
        assert_int_equal(d[i].covers.t0.v, info.covers.t0.v);
        assert_int_equal(d[i].covers.t1.v, info.covers.t1.v);
    }
    spool_free(s);
}

static void older_than_max_age(void **state)
{
    struct spool *s = open_spool(1, 1 << 20);

    (void)state;
    put(s, 1, 10);
    spool_free(s);
    clock_shift_add((struct clock_shift){0, 2 * 3600 * NS_PER_S, 2 * 3600 * NS_PER_S});
    s = open_spool(2, 1 << 20);
    assert_int_equal(stats(s).dropped[SPOOL_DROP_AGE], 1);
    assert_int_equal(files(".batch", false), 0);
    spool_free(s);
    clock_shift_add((struct clock_shift){0, -2 * 3600 * NS_PER_S, -2 * 3600 * NS_PER_S});
}

/* A directory that goes away stands for a disk that is full: 5,000 bytes in memory, the oldest of
 * them go; what is on disk stays; when it can be written again, new ones go there. */
static void not_writable(void **state)
{
    struct spool *s = open_spool(1, 1 << 20);
    struct batchmake_dropped d[8];
    char away[80];

    (void)state;
    put(s, 1, 1000);
    (void)snprintf(away, sizeof away, "%s/untold.new", dir);
    assert_int_equal(mkdir(away, 0700), 0); /* and the list of the untold cannot be written */
    for (uint64_t i = 2; i <= 9; i++) {
        char name[200];

        (void)snprintf(name, sizeof name, "%s/01000000000000000000000000000000-%010llu.batch.new",
                       dir, (unsigned long long)i);
        assert_int_equal(mkdir(name, 0700), 0);
        put(s, i, 1000);
        assert_int_equal(rmdir(name), 0);
    }
    assert_int_equal(rmdir(away), 0);
    assert_int_equal(stats(s).write_failed, 8);
    assert_int_equal(stats(s).memory_batches, 5);
    assert_int_equal(stats(s).dropped[SPOOL_DROP_FULL], 3);
    assert_string_not_equal(stats(s).state, "ok");
    assert_int_equal(spool_level(s), 100);
    assert_int_equal(spool_take_dropped(s, d, 8), 1);
    assert_int_equal(d[0].first, 2);
    assert_int_equal(d[0].last, 4);
    put(s, 10, 1000);
    assert_string_equal(stats(s).state, "ok");
    spool_done(s, expect(s, 1, 1), false);
    for (uint64_t i = 5; i <= 10; i++)
        spool_done(s, expect(s, 1, i), false);
    assert_int_equal(stats(s).bytes, 0);
    assert_int_equal(stats(s).memory_bytes, 0);
    spool_free(s);
}

static void two_in_flight(void **state)
{
    struct spool *s = open_spool(1, 1 << 20);
    const struct spool_batch *a, *b;

    (void)state;
    for (uint64_t i = 1; i <= 3; i++)
        put(s, i, 10);
    a = expect(s, 1, 1);
    b = expect(s, 1, 2);
    spool_done(s, b, false);
    spool_retry(s, a, clock_mono().v + NS_PER_S, true);
    assert_null(spool_front(s, 0)); /* the third does not overtake */
    spool_wake(s, true);
    a = expect(s, 1, 1);
    assert_true(a->whole);
    spool_done(s, a, false);
    spool_done(s, expect(s, 1, 3), false);
    spool_free(s);
}

/* What a batch in memory tells of is still told by the next run, whatever else is written down. */
static void told_in_memory(void **state)
{
    static const struct batchmake_dropped old = {
        LOSS_SPOOL_DROP, 1, 0, {{NS_PER_S}, {2 * NS_PER_S}}, 70, 700, 2, PTYPE_GIL_HELD};
    struct batchmake_dropped d[8];
    struct spool *s = open_spool(1, 1 << 20);
    char name[200];
    uint32_t n;

    (void)state;
    put(s, 1, 400);
    (void)snprintf(name, sizeof name, "%s/01000000000000000000000000000000-0000000002.batch.new",
                   dir);
    assert_int_equal(mkdir(name, 0700), 0); /* it cannot be written */
    put_telling(s, 2, 400, &old, 1);
    assert_int_equal(rmdir(name), 0);
    assert_int_equal(stats(s).memory_batches, 1);
    spool_drop(s, expect(s, 1, 1), SPOOL_DROP_BAD); /* another one is given up meanwhile */
    spool_free(s);
    s = open_spool(2, 1 << 20);
    n = spool_take_dropped(s, d, 8);
    assert_int_equal(n, 2);
    for (uint32_t i = 0; i < n; i++)
        if (d[i].type == PTYPE_GIL_HELD)
            assert_int_equal(d[i].n, 70);
    assert_int_equal(sum(d, n) % 200, 70);
    spool_free(s);
}

/* Damaged files count against the cap, and have an eighth of it at most; one that cannot be read
 * stays and is counted. */
static void bad_files(void **state)
{
    struct spool *s = open_spool(1, 8000);
    char link[200];

    (void)state;
    for (uint64_t i = 1; i <= 5; i++)
        put(s, i, 500);
    spool_free(s);
    for (int i = 1; i <= 4; i++) {
        char name[80];

        (void)snprintf(name, sizeof name, "01000000000000000000000000000000-000000000%d.batch", i);
        overwrite(name, 42, "x", 0);
    }
    (void)snprintf(link, sizeof link, "%s/01000000000000000000000000000000-0000000008.batch", dir);
    assert_int_equal(symlink("/nowhere", link), 0);
    s = open_spool(2, 8000); /* each has about 700 bytes: one fits into 1,000 */
    assert_int_equal(stats(s).damaged, 4);
    assert_int_equal(stats(s).unreadable, 1);
    assert_int_equal(stats(s).inherited, 1);
    assert_int_equal(files("8.batch", false), 1);
    assert_int_equal(files(".bad", false), 1);
    assert_true(spool_level(s) * 80 >= stats(s).bytes + 500);
    spool_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(restart, fresh, gone),
        cmocka_unit_test_setup_teardown(modes, fresh, gone),
        cmocka_unit_test_setup_teardown(damaged, fresh, gone),
        cmocka_unit_test_setup_teardown(told_once, fresh, gone),
        cmocka_unit_test_setup_teardown(every_type, fresh, gone),
        cmocka_unit_test_setup_teardown(older_than_max_age, fresh, gone),
        cmocka_unit_test_setup_teardown(not_writable, fresh, gone),
        cmocka_unit_test_setup_teardown(two_in_flight, fresh, gone),
        cmocka_unit_test_setup_teardown(told_in_memory, fresh, gone),
        cmocka_unit_test_setup_teardown(bad_files, fresh, gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
