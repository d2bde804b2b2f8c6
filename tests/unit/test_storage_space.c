// SPDX-License-Identifier: Apache-2.0
/* A disk that fills up: a small one of its own, which needs the right to mount. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "tests/unit/test_storage_mixed.h"

#define KIB UINT64_C(1024)

struct disk {
    struct fixture f;
    char top[64], data[80], ballast[80];
    bool mounted;
};

static void disk_init(struct disk *d)
{
    *d = (struct disk){};
    (void)snprintf(d->top, sizeof d->top, "/tmp/strata_space_XXXXXX");
    assert_non_null(mkdtemp(d->top));
    (void)snprintf(d->data, sizeof d->data, "%s/data", d->top);
    (void)snprintf(d->ballast, sizeof d->ballast, "%s/ballast", d->top);
    d->mounted = mount("strata", d->top, "tmpfs", MS_NOSUID | MS_NODEV, "size=8m,mode=700") == 0;
    if (!d->mounted) {
        (void)rmdir(d->top);
        return;
    }
    arena_init(&d->f.a, (size_t)1 << 28);
    d->f.conf = (struct store_conf){.dir = d->data,
                                    .decode = decode,
                                    .min_free = 256 * KIB,
                                    .reserve = 512 * KIB,
                                    .workers = 1};
    store_tuning.probe_ns = 50 * MS;
    store_tuning.seal_ns = 3600 * NS_PER_S;
    fixture_open(&d->f, 0);
}

static void disk_deinit(struct disk *d)
{
    d->f.s = store_close(d->f.s);
    arena_deinit(&d->f.a);
    assert_int_equal(umount(d->top), 0);
    (void)rmdir(d->top);
    store_tuning = (struct store_tuning){};
}

/* All that is left, but for so many bytes; what was taken before stays taken. */
static void fill_disk(const struct disk *d, uint64_t but)
{
    static char b[4096];
    int fd = open(d->ballast, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    off_t n;

    assert_true(fd >= 0);
    while (write(fd, b, sizeof b) == (ssize_t)sizeof b)
        continue;
    assert_int_equal(errno, ENOSPC);
    n = lseek(fd, 0, SEEK_END);
    assert_int_equal(ftruncate(fd, n > (off_t)but ? n - (off_t)but : 0), 0);
    (void)close(fd);
}

static int try_append(struct fixture *f, uint64_t seed)
{
    struct arena a;
    struct batch b;
    int r;

    arena_init(&a, 1 << 22);
    make(seed, &a, &b);
    r = store_append_wait(f->s, &b, (struct str){(const char *)&seed, sizeof seed}, NULL, NULL);
    arena_deinit(&a);
    return r;
}

/* Until one is taken again: what is full is left by itself. */
static void wait_for_room(struct fixture *f, uint64_t seed)
{
    int r = -ENOSPC;

    for (int i = 0; i < 8000 && r == -ENOSPC; i++) {
        r = try_append(f, seed);
        if (r == -ENOSPC)
            (void)usleep(5000);
    }
    if (r != 0)
        fail_msg("no room for batch %" PRIu64 ": %d", seed, r);
}

static enum store_state state_of(struct fixture *f)
{
    struct store_stats st;

    store_stats(f->s, &st);
    return st.state;
}

static bool has_reserve(const struct disk *d)
{
    char path[96];
    struct stat st;

    (void)snprintf(path, sizeof path, "%s/reserve", d->data);
    return stat(path, &st) == 0 && (uint64_t)st.st_size == 512 * KIB;
}

/* Others take it all, also what the store gives up. The next batch that was not taken. */
static uint64_t fill_for_good(struct disk *d, uint64_t n)
{
    for (int i = 0, full = 0; full < 20; i++) {
        int r;

        assert_true(i < 2000);
        fill_disk(d, 0);
        (void)usleep(10000);
        r = try_append(&d->f, MIXED + n);
        assert_true(r == 0 || r == -ENOSPC);
        full = r == 0 ? 0 : full + 1;
        n += r == 0;
    }
    return n;
}

static void test_full(void **state)
{
    struct disk d;
    uint64_t n = 1;
    char *want;
    int r = 0;

    (void)state;
    disk_init(&d);
    if (!d.mounted)
        skip();
    for (int i = 0; i < 400 && !has_reserve(&d); i++)
        (void)usleep(5000);
    assert_true(has_reserve(&d));
    fill_disk(&d, 1024 * KIB);
    while (r == 0) /* the journal grows into what is left */
        r = try_append(&d.f, MIXED + n++);
    assert_int_equal(r, -ENOSPC);
    want = dump_store(&d.f);
    assert_same(want, dump_store(&d.f), "while full");
    free(want);
    n--;
    wait_for_room(&d.f, MIXED + n); /* the head went into reserve, journals were unlinked */
    n++;
    assert_int_equal(state_of(&d.f) == STORE_OK || state_of(&d.f) == STORE_TIGHT, true);

    n = fill_for_good(&d, n);
    assert_int_equal(state_of(&d.f), STORE_FULL);
    want = dump_store(&d.f);
    d.f.s = store_close(d.f.s);
    fixture_open(&d.f, 0);
    assert_same(want, dump_store(&d.f), "opened while full");
    free(want);
    n = fill_for_good(&d, n); /* closing had given up a journal */
    assert_int_equal(unlink(d.ballast), 0);
    wait_for_room(&d.f, MIXED + n);
    for (uint64_t i = 1; i <= n; i++)
        assert_int_equal(try_append(&d.f, MIXED + i), STORE_DUPLICATE);
    for (int i = 0; i < 400 && !has_reserve(&d); i++)
        (void)usleep(5000);
    assert_true(has_reserve(&d));
    print_message("%" PRIu64 " batches, none lost\n", n);
    disk_deinit(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_full)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
