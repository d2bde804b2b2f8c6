// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/capture.h"
#include "tests/lib/testing.h"

static char path[] = "/tmp/strata-capture-XXXXXX";

/* The file anew, of so many bytes. */
static void put_file(struct str s)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, s.p, s.n), (ssize_t)s.n);
    assert_int_equal(close(fd), 0);
}

static struct buf made(void)
{
    struct err err = {};
    struct buf b;
    int fd = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
    ssize_t n;
    char *p;

    assert_true(fd >= 0);
    assert_ok(capture_begin(fd, &err), &err);
    assert_ok(capture_put(fd, CAPTURE_ABOUT, STR("{}"), &err), &err);
    assert_ok(capture_put(fd, CAPTURE_BATCH, STR("one\0two"), &err), &err);
    assert_ok(capture_put(fd, (enum capture_kind)99, (struct str){NULL, 0}, &err), &err);
    assert_ok(capture_put(fd, CAPTURE_END, STR("{\"a\":1}"), &err), &err);
    buf_init(&b, 4096);
    p = buf_reserve(&b, 4096);
    n = pread(fd, p, 4096, 0);
    assert_int_equal(n, 16 + 4 * 16 + 2 + 7 + 7);
    buf_commit(&b, (size_t)n);
    (void)close(fd);
    return b;
}

static void round_trip(void **state)
{
    static const struct {
        uint32_t kind;
        struct str body;
    } want[] = {{CAPTURE_ABOUT, STR("{}")},
                {CAPTURE_BATCH, STR("one\0two")},
                {99, STR("")},
                {CAPTURE_END, STR("{\"a\":1}")}};
    struct err err = {};
    struct capture c;
    struct buf b = made();

    (void)state;
    assert_memory_equal(b.p, "\x93STRA\r\n\x1a\x01\0\0\0\0\0\0\0", 16);
    assert_ok(capture_open(&c, path, &err), &err);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_ok(capture_next(&c, &err), &err);
        assert_int_equal(c.kind, want[i].kind);
        assert_str(buf_view(&c.body), want[i].body);
    }
    assert_int_equal(capture_next(&c, &err), CAPTURE_EOF);
    capture_close(&c);
    buf_deinit(&b);
}

/* Whole records up to an outcome; 100 where the file is refused. */
static int records(int *ret_outcome)
{
    struct err err = {};
    struct capture c;
    int n = 0, r = capture_open(&c, path, &err);

    if (r < 0) {
        *ret_outcome = r;
        return 100;
    }
    while ((r = capture_next(&c, &err)) == 0)
        n++;
    *ret_outcome = r;
    capture_close(&c);
    return n;
}

/* At every length: whole records count, the rest is said to be cut, never an error. */
static void cut(void **state)
{
    static const size_t ends[] = {16, 34, 57, 73, 96};
    struct buf b = made();

    (void)state;
    for (size_t n = 0; n <= b.n; n++) {
        int whole = 0, outcome, got;
        bool edge = false;

        put_file(str_to(buf_view(&b), n));
        got = records(&outcome);
        if (n < 16) {
            assert_int_equal(got, 100);
            assert_int_equal(outcome, -EINVAL);
            continue;
        }
        for (size_t i = 0; i < 5; i++) {
            whole += i > 0 && ends[i] <= n;
            edge = edge || ends[i] == n;
        }
        assert_int_equal(got, whole);
        assert_int_equal(outcome, edge ? CAPTURE_EOF : CAPTURE_CUT);
    }
    buf_deinit(&b);
}

/* Every bit of every byte, one at a time: refused, cut, damaged or another kind, but never a body
 * that is not what was written. */
static void flipped(void **state)
{
    struct buf b = made();

    (void)state;
    for (size_t at = 0; at < b.n; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            struct err err = {};
            struct capture c;

            b.p[at] = (char)(b.p[at] ^ (1 << bit));
            put_file(buf_view(&b));
            if (capture_open(&c, path, &err) == 0) {
                while (capture_next(&c, &err) == 0) {
                    struct str s = buf_view(&c.body);

                    assert_true(str_eq(s, STR("{}")) || str_eq(s, STR("one\0two")) || s.n == 0 ||
                                str_eq(s, STR("{\"a\":1}")));
                }
                capture_close(&c);
            } else {
                assert_true(at < 16);
            }
            b.p[at] = (char)(b.p[at] ^ (1 << bit));
        }
    }
    buf_deinit(&b);
}

static void refused(void **state)
{
    struct err err = {};
    struct capture c;
    struct buf b = made();

    (void)state;
    assert_int_equal(capture_open(&c, "/nonexistent/x", &err), -ENOENT);
    b.p[8] = 2;
    put_file(buf_view(&b));
    err = (struct err){};
    assert_int_equal(capture_open(&c, path, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "version 2"));
    buf_deinit(&b);
    err = (struct err){};
    assert_int_equal(capture_put(-1, CAPTURE_BATCH, STR("x"), &err), -EBADF);
    err = (struct err){};
    assert_int_equal(
        capture_put(-1, CAPTURE_BATCH, (struct str){"", (size_t)CAPTURE_BODY_MAX + 1}, &err),
        -E2BIG);
}

static int setup(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd >= 0 && close(fd) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip), cmocka_unit_test(cut),
                                       cmocka_unit_test(flipped), cmocka_unit_test(refused)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
