// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "tests/lib/testing.h"

/* stderr goes into a file for the time of a test. */
static char path[] = "/tmp/strata_log_XXXXXX";
static int saved = -1, file = -1;
static struct buf lines;

static int setup(void **state)
{
    (void)state;
    (void)fflush(stderr);
    (void)snprintf(path, sizeof path, "/tmp/strata_log_XXXXXX");
    file = mkstemp(path);
    saved = dup(STDERR_FILENO);
    buf_init(&lines, 1 << 20);
    return file < 0 || saved < 0 || dup2(file, STDERR_FILENO) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)close(file);
    (void)unlink(path);
    buf_deinit(&lines);
    log_rate(10);
    log_set_level(LOG_INFO);
    return 0;
}

/* What was written since the start of the test; stderr is put back first, for cmocka's words. */
static struct str written(void)
{
    char bytes[4096];
    ssize_t n;

    buf_reset(&lines);
    (void)lseek(file, 0, SEEK_SET);
    while ((n = read(file, bytes, sizeof bytes)) > 0)
        buf_add(&lines, bytes, (size_t)n);
    (void)dup2(saved, STDERR_FILENO);
    return buf_view(&lines);
}

static size_t count(struct str s, char c)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += s.p[i] == c;
    return n;
}

static void one_line(void **state)
{
    struct str s;

    (void)state;
    log_event(LOG_WARN, "batch_late", LOG_S("agent", STR("a b=\"c\"\n\\\x01\xff\xc2\x9b")),
              LOG_I("late_ms", -12), LOG_U("u", UINT64_MAX), LOG_X("id", 0xab),
              LOG_C("plain", "x/y"), LOG_C("empty", ""));
    s = written();
    assert_int_equal(count(s, '\n'), 1);
    assert_true(str_starts(s, STR("ts=20")));
    assert_str(
        str_from(s, 27),
        STR(" level=warn event=batch_late agent=\"a b=\\\"c\\\"\\n\\\\\\x01\\xff\\xc2\\x9b\" "
            "late_ms=-12 u=18446744073709551615 id=00000000000000ab plain=x/y empty=\"\"\n"));
}

static void levels(void **state)
{
    (void)state;
    log_event(LOG_DEBUG, "no");
    log_set_level(LOG_ERROR);
    log_event(LOG_WARN, "no");
    log_event(LOG_ERROR, "yes");
    assert_int_equal(count(written(), '\n'), 1);
}

/* 25 lines of one site at a limit of 10: what is held back is said, exactly. */
static void rate_is_kept(void **state)
{
    uint64_t said = 0, suppressed = 0;
    struct str s;

    (void)state;
    for (int i = 0; i < 25; i++)
        log_event(LOG_INFO, "often", LOG_I("i", i));
    log_flush();
    log_flush(); /* nothing more to say */
    s = written();
    /* the second may have turned in between: then fewer were held back, and more was said */
    while (s.n > 0) {
        struct str line = str_to(s, str_find(s, '\n'));
        const char *at = memmem(line.p, line.n, "suppressed=", 11);

        said += memmem(line.p, line.n, "event=often", 11) != NULL;
        if (at) {
            struct str rest = str_from(line, (size_t)(at - line.p) + 11);
            uint64_t n = 0;

            assert_true(str_u64(
                str_to(rest, str_find(rest, ' ') < rest.n ? str_find(rest, ' ') : rest.n), &n));
            suppressed += n;
        }
        s = str_from(s, line.n + 1);
    }
    assert_int_equal(said + suppressed, 25);
    assert_true(said >= 10 && said <= 20);
}

static void huge_values_are_cut(void **state)
{
    static char big[20000];
    struct log_field f[12];
    struct log_site site = {};
    struct str s;

    (void)state;
    memset(big, 'x', sizeof big);
    for (int i = 0; i < 12; i++)
        f[i] = LOG_S("k", ((struct str){big, sizeof big}));
    log_write(&site, LOG_INFO, "big", 12, f);
    s = written();
    assert_int_equal(count(s, '\n'), 1);
    assert_true(s.n < 8300 && str_ends(s, STR(" cut=1\n")));
    assert_int_equal(count(s, '"') % 2, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_line),
        TEST(levels),
        TEST(rate_is_kept),
        TEST(huge_values_are_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
