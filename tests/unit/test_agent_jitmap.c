// SPDX-License-Identifier: Apache-2.0
/* Perf maps: the newest entry wins, limits, whose file it may be; then processes that write them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/file/jitmap.h"
#include "agent/file/rootfile.h"
#include "agent/name/jits.h"
#include "base/buf.h"
#include "base/time.h"
#include "tests/lib/testing.h"
#include "tests/lib/tmpdir.h"

static int file_of(const char *text, size_t n)
{
    int fd = memfd_create("map", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    return fd;
}

static struct jitmap read_text(const char *text, const struct jitmap_args *args)
{
    static const struct jitmap_args plain;
    struct jitmap m = {};
    struct err err = {};
    int fd = file_of(text, strlen(text));

    assert_ok(jitmap_read(fd, args ? args : &plain, &m, &err), &err);
    close(fd);
    return m;
}

static void expect(const struct jitmap *m, uint64_t addr, const char *name)
{
    struct str got = {NULL, 0};

    if (jitmap_find(m, addr, &got) != (name != NULL))
        fail_msg("%lx: %s", addr, name ? "not found" : "found");
    if (name)
        assert_str(got, str_c(name));
}

static void lines(void **state)
{
    struct jitmap m = read_text("1000 10 first\n"
                                "0x2000 0x20 a name with  blanks\r\n"
                                "\n"
                                "zz 10 no number\n"
                                "3000 0 no size\n"
                                "4000 10\n"
                                "4000 10 \n"
                                "ffffffffffffffff 10 over the end\n"
                                "5000 8 \xff\xfe;x\n"
                                "6000 10 still being wri",
                                NULL);

    (void)state;
    assert_int_equal(m.n, 3);
    assert_int_equal(m.bad, 5);
    assert_false(m.cut);
    expect(&m, 0xfff, NULL);
    expect(&m, 0x1000, "first");
    expect(&m, 0x100f, "first");
    expect(&m, 0x1010, NULL);
    expect(&m, 0x2010, "a name with  blanks");
    expect(&m, 0x5007, "\xff\xfe;x");
    expect(&m, 0x6000, NULL);
    jitmap_deinit(&m);
}

static void later_hides_earlier(void **state)
{
    /* the old one is gone wholly; one that was hidden itself had still replaced what it covered */
    struct jitmap m = read_text("1000 100 old\n"
                                "1080 10 new inside\n"
                                "2000 100 one\n"
                                "2070 10 two\n"
                                "2000 80 three\n"
                                "2010 8 four\n"
                                "3000 10 same\n"
                                "3000 10 same again\n"
                                "4000 10 beside\n"
                                "4010 10 touching\n",
                                NULL);

    (void)state;
    expect(&m, 0x1000, NULL);
    expect(&m, 0x1085, "new inside");
    expect(&m, 0x20f0, NULL);
    expect(&m, 0x2075, NULL);
    expect(&m, 0x2040, NULL);
    expect(&m, 0x2012, "four");
    expect(&m, 0x3004, "same again");
    expect(&m, 0x4004, "beside");
    expect(&m, 0x4014, "touching");
    assert_int_equal(m.hidden, 5);
    jitmap_deinit(&m);
}

/* Against the rule itself, entry by entry. */
static void random_overlaps(void **state)
{
    enum {
        N = 300,
        SPACE = 2000
    };
    unsigned seed = 20261130;

    (void)state;
    for (unsigned round = 0; round < 50; round++) {
        uint32_t start[N], end[N], hidden = 0;
        struct jitmap m;
        struct buf b;

        buf_init(&b, 1 << 20);
        for (unsigned i = 0; i < N; i++) {
            seed = seed * 1103515245 + 12345;
            start[i] = seed / 65536 % SPACE;
            seed = seed * 1103515245 + 12345;
            end[i] = start[i] + 1 + seed / 65536 % (1 + round);
            buf_printf(&b, "%x %x f%u\n", start[i], end[i] - start[i], i);
        }
        buf_chr(&b, '\0');
        m = read_text(b.p, NULL);
        for (unsigned i = 0; i < N; i++) {
            bool gone = false;
            char name[16];

            for (unsigned j = i + 1; j < N; j++)
                gone |= start[j] < end[i] && start[i] < end[j];
            hidden += gone;
            snprintf(name, sizeof name, "f%u", i);
            if (!gone) {
                expect(&m, start[i], name);
                expect(&m, end[i] - 1, name);
            }
        }
        assert_int_equal(m.hidden, hidden);
        assert_int_equal(m.n + m.hidden, N);
        jitmap_deinit(&m);
        buf_deinit(&b);
    }
}

static void limits(void **state)
{
    struct jitmap_args args = {.max_entries = 2};
    struct jitmap m = read_text("1000 10 a\n2000 10 b\n3000 10 c\n", &args);
    size_t n = 300000;
    char *text = malloc(n + 64);
    struct err err = {};
    int fd;

    (void)state;
    assert_true(m.cut);
    assert_int_equal(m.n, 2);
    jitmap_deinit(&m);
    args = (struct jitmap_args){.drop_python = true};
    m = read_text("1000 10 py::f:/x.py\n2000 10 b\n", &args);
    assert_int_equal(m.dropped, 1);
    assert_int_equal(m.n, 1);
    jitmap_deinit(&m);
    /* one line that never ends, then a good one */
    assert_non_null(text);
    memset(text, 'x', n);
    memcpy(text, "1000 10 ", 8);
    memcpy(text + n, "\n2000 10 good\n", 15);
    m = read_text(text, NULL);
    assert_int_equal(m.bad, 1);
    expect(&m, 0x2000, "good");
    expect(&m, 0x1000, NULL);
    jitmap_deinit(&m);
    /* more bytes than are let in */
    fd = memfd_create("big", MFD_CLOEXEC);
    for (unsigned i = 0; i < 100; i++)
        dprintf(fd, "%x 10 %.1000s\n", 0x1000 * (i + 1), text + 8);
    args = (struct jitmap_args){.max_bytes = 50000};
    assert_ok(jitmap_read(fd, &args, &m, &err), &err);
    assert_true(m.cut);
    assert_true(m.n > 10 && m.n < 100);
    jitmap_deinit(&m);
    close(fd);
    free(text);
}

/* Two million entries, each over the one before: no time, and the newest remains. */
static void many(void **state)
{
    enum {
        N = 200000
    };
    struct jitmap m = {};
    struct jitmap_args args = {};
    struct err err = {};
    int fd = memfd_create("many", MFD_CLOEXEC);
    FILE *f = fdopen(dup(fd), "we");

    (void)state;
    for (unsigned i = 0; i < N; i++)
        fprintf(f, "%x %x n%u\n", N - i, 2 * i + 1, i);
    fclose(f);
    assert_ok(jitmap_read(fd, &args, &m, &err), &err);
    assert_int_equal(m.n, 1);
    assert_int_equal(m.hidden, N - 1);
    expect(&m, N, "n199999");
    jitmap_deinit(&m);
    close(fd);
}

/* ---- whose file ---------------------------------------------------------------------------- */

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[2048];
    FILE *f;

    assert_true(strlen(dir) + strlen(name) < 1024);
    snprintf(path, sizeof path, "%.1024s/%.900s", dir, name);
    f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void whose(void **state)
{
    char dir[] = "/tmp/strata-jit-XXXXXX", path[512], other[1024];
    uint32_t me[2] = {getuid(), getuid()};
    int root, fd;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tmp", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(jitmap_open(root, 7, me), -ENOENT);
    write_file(path, "perf-7.map", "1000 10 f\n");
    fd = jitmap_open(root, 7, me);
    assert_true(fd >= 0);
    close(fd);
    snprintf(other, sizeof other, "%s/perf-8.map", path);
    assert_int_equal(symlink("perf-7.map", other), 0);
    assert_int_equal(jitmap_open(root, 8, me), -ELOOP);
    snprintf(other, sizeof other, "%s/perf-9.map", path);
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_int_equal(jitmap_open(root, 9, me), -EINVAL);
    if (getuid() == 0) {
        uint32_t them[2] = {1234, 5678};

        fd = jitmap_open(root, 7, them); /* root's: anybody's */
        assert_true(fd >= 0);
        close(fd);
        snprintf(other, sizeof other, "%s/perf-7.map", path);
        assert_int_equal(chown(other, 5678, 0), 0);
        fd = jitmap_open(root, 7, them);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(jitmap_open(root, 7, me), -EPERM);
    }
    close(root);
    /* an absolute link ends at that root */
    snprintf(other, sizeof other, "%s/etc", dir);
    assert_int_equal(mkdir(other, 0700), 0);
    write_file(other, "passwd", "inside");
    snprintf(other, sizeof other, "%s/out", dir);
    assert_int_equal(symlink("/etc/passwd", other), 0);
    root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    fd = rootfile_open(root, STR("out"), true);
    assert_true(fd >= 0);
    assert_int_equal(lseek(fd, 0, SEEK_END), 6);
    close(fd);
    fd = rootfile_open(root, STR("../../../../etc/passwd"), true);
    assert_true(fd >= 0);
    assert_int_equal(lseek(fd, 0, SEEK_END), 6);
    close(fd);
    assert_int_equal(rootfile_open(root, STR("out"), false), -ELOOP);
    assert_int_equal(rootfile_open(root, STR("tmp"), true), -EINVAL);
    close(root);
    assert_int_equal(test_remove_tree(dir), 0);
}

/* This process writes a map, in which it is known; later more of it. */
static void read_again(void **state)
{
    struct jits *j = jits_new("/proc", false);
    struct jits_target t = {.serial = 5, .host_pid = (uint32_t)getpid(), .pid = (uint64_t)getpid()};
    struct jits_stats st;
    struct str name;
    char path[64];
    int64_t now = 100 * NS_PER_S;
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    (void)remove(path);
    jits_see(j, &t, now);
    assert_false(jits_find(j, 5, 0x1005, now, &name));
    assert_false(jits_find(j, 6, 0x1005, now, &name)); /* nobody knows that one */
    f = fopen(path, "we");
    assert_non_null(f);
    fputs("1000 10 one\n", f);
    fflush(f);
    assert_false(jits_find(j, 5, 0x1005, now + NS_PER_S / 2, &name)); /* once a second */
    assert_true(jits_find(j, 5, 0x1005, now + NS_PER_S, &name));
    assert_str(name, STR("one"));
    fputs("1000 10 two\n2000 10 three\n", f);
    fclose(f);
    now += 10 * NS_PER_S;
    assert_true(jits_find(j, 5, 0x1005, now, &name)); /* no miss: not read */
    assert_str(name, STR("one"));
    assert_true(jits_find(j, 5, 0x2005, now, &name));
    assert_str(name, STR("three"));
    assert_true(jits_find(j, 5, 0x1005, now, &name));
    assert_str(name, STR("two"));
    jits_get_stats(j, &st);
    assert_int_equal(st.reads, 2);
    assert_int_equal(st.maps, 1);
    assert_int_equal(st.entries, 2);
    now += 5 * NS_PER_S;
    assert_false(jits_find(j, 5, 0x9000, now, &name)); /* a miss, but the file did not grow */
    jits_get_stats(j, &st);
    assert_int_equal(st.reads, 2);
    jits_tick(j, now + 61 * NS_PER_S);
    jits_get_stats(j, &st);
    assert_int_equal(st.maps, 0);
    assert_int_equal(st.bytes, 0);
    assert_int_equal(remove(path), 0);
    jits_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(later_hides_earlier),
        cmocka_unit_test(random_overlaps),
        cmocka_unit_test(limits),
        cmocka_unit_test(many),
        cmocka_unit_test(whose),
        cmocka_unit_test(read_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
