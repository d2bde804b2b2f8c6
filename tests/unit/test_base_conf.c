// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/conf.h"
#include "tests/lib/testing.h"

struct settings {
    char *name, *none;
    bool on;
    uint64_t n, percent, size;
    int64_t age;
};

static struct settings s;
static const struct conf_opt opts[] = {
    {"a", "name", CONF_STR, offsetof(struct settings, name), "x", 0, 0, "a name"},
    {"a", "none", CONF_STR, offsetof(struct settings, none), NULL, 0, 0, "no default"},
    {"a", "on", CONF_BOOL, offsetof(struct settings, on), "yes", 0, 0, "a switch"},
    {"b", "n", CONF_COUNT, offsetof(struct settings, n), "3", 1, 10, "a count"},
    {"b", "percent", CONF_PERCENT, offsetof(struct settings, percent), NULL, 0, 100, "a share"},
    {"b", "size", CONF_SIZE, offsetof(struct settings, size), "1MiB", 1024, 1 << 30, "a size"},
    {"b", "age", CONF_DURATION, offsetof(struct settings, age), "7d", 1000000000,
     INT64_C(864000000000000), "an age"},
};
static char seen[200];
static uint32_t lines[CONF_OPTS_MAX];

/* Sections that the table does not have. */
static int more(void *ctx, const char *where, const struct conf_pair *p, struct err *err)
{
    (void)ctx;
    if (!str_starts(p->section, STR("rule ")))
        return CONF_NOT_MINE;
    if (str_eq(p->value, STR("bad")))
        return err_set(err, -EINVAL, "no such colour");
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s%.*s|%.*s|%.*s;",
             where[0] ? "f " : "o ", STR_ARG(p->section), STR_ARG(p->key), STR_ARG(p->value));
    return 0;
}

static const struct conf conf = {.program = "test",
                                 .opt = opts,
                                 .n_opt = sizeof opts / sizeof opts[0],
                                 .target = &s,
                                 .more = more,
                                 .line = lines};

static int setup(void **state)
{
    (void)state;
    conf_defaults(&conf);
    memset(lines, 0, sizeof lines);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    conf_free(&conf);
    return 0;
}

static int read_bytes(const char *text, size_t n, struct err *err)
{
    char path[] = "/tmp/strata_conf_XXXXXX";
    int fd = mkstemp(path), r;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    (void)close(fd);
    r = conf_read(&conf, path, err);
    (void)unlink(path);
    return r;
}

static int read_text(const char *text, struct err *err)
{
    return read_bytes(text, strlen(text), err);
}

static void defaults(void **state)
{
    (void)state;
    assert_string_equal(s.name, "x");
    assert_string_equal(s.none, "");
    assert_true(s.on);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.percent, 0);
    assert_int_equal(s.size, 1 << 20);
    assert_int_equal(s.age, INT64_C(7) * 86400 * 1000000000);
}

static void other_sections(void **state)
{
    struct err err = {};

    (void)state;
    seen[0] = 0;
    assert_ok(read_text("[rule x]\na.b = 1 = 2\n[b]\nn=4\n[rule y]\nc = *\n", &err), &err);
    assert_ok(conf_set(&conf, STR("rule x.label.k=$1"), &err), &err);
    assert_string_equal(seen, "f rule x|a.b|1 = 2;f rule y|c|*;o rule x|label.k|$1;");
    assert_int_equal(s.n, 4);
    assert_int_equal(read_text("\n[rule x]\na = bad\n", &err), -EINVAL);
    assert_non_null(strstr(err.msg, ":3: [rule x] a: no such colour"));
    err = (struct err){};
    assert_int_equal(read_text("[nothing]\na = 1\n", &err), -EINVAL);
    assert_non_null(strstr(err.msg, ":2: unknown section [nothing]"));
    err = (struct err){};
    assert_int_equal(
        read_text("[rule 5678901234567890123456789012345678901234567890]\na=1\n", &err), -EINVAL);
    assert_non_null(strstr(err.msg, "at most 48 bytes"));
}

static void file_is_read(void **state)
{
    struct err err = {};

    (void)state;
    assert_ok(read_text("# comment\n[a]\nname = two words ; why\non=off\n\n[b]\nn = 10\n"
                        "size = 2KiB\nage=90s\npercent = 55\n",
                        &err),
              &err);
    assert_string_equal(s.name, "two words");
    assert_false(s.on);
    assert_int_equal(s.n, 10);
    assert_int_equal(s.size, 2048);
    assert_int_equal(s.age, INT64_C(90) * 1000000000);
    assert_int_equal(s.percent, 55);
}

static void refusals_name_the_place(void **state)
{
    char longest[400];
    const struct {
        const char *text, *says;
    } t[] = {
        {"[a]\nname=1\n[c]\nx=1\n", ":4: unknown section [c]"},
        {"[a]\nname=1\nfoo=1\n", ":3: unknown key \"foo\" in section [a]"},
        {"[b]\nage = 10\n", ":2: b.age: \"10\" is no duration: a suffix ns, us"},
        {"[b]\nage = 11d\n", ":2: b.age: \"11d\" is out of range: 1s to 10d"},
        {"[b]\nsize = 4096\n", ":2: b.size: \"4096\" is no size: a suffix B, KiB"},
        {"[b]\nsize = 1023B\n", ":2: b.size: \"1023B\" is out of range: 1KiB to 1GiB"},
        {"[b]\nsize = 99999999999TiB\n", ":2: b.size: \"99999999999TiB\" is too large"},
        {"[b]\nn = 5s\n", ":2: b.n: \"5s\" is no count"},
        {"[b]\nn = 0\n", ":2: b.n: \"0\" is out of range: 1 to 10"},
        {"[b]\nn = -1\n", ":2: b.n: \"-1\" is no count"},
        {"[b]\npercent = 101\n", ":2: b.percent: \"101\" is out of range: 0 to 100"},
        {"[a]\non = maybe\n", ":2: a.on: \"maybe\" is not on, off"},
        {"[a]\nname = a\n  more\n", ":3: a line must not begin with a blank"},
        {"[a]\nname = a\n[b]\nn = 1\n[a]\nname = b\n", ":6: a.name: given twice, first in line 2"},
        {"[a]\nwhat is this\n", ":2: neither [section], key = value"},
        {longest, ":2: the line is too long"},
    };

    (void)state;
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "[a]\nname=", 9);
    longest[sizeof longest - 1] = '\0';
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct err err = {};

        memset(lines, 0, sizeof lines);
        assert_true(read_text(t[i].text, &err) < 0);
        if (!strstr(err.msg, t[i].says) || !strstr(err.msg, "/tmp/strata_conf_"))
            fail_msg("case %zu: %s", i, err.msg);
    }
}

/* What is wrong with a value may be seen when all are known. */
static void late_refusals_name_the_place(void **state)
{
    const struct {
        const char *says, *placed;
    } t[] = {
        {"a.name: not there", "x.ini:2: a.name: not there"},
        {"b.size = 5: odd", "x.ini:4: b.size = 5: odd"},
        {"b.size \"5\" is odd", "x.ini:4: b.size \"5\" is odd"},
        {"b.size", "x.ini:4: b.size"},
        {"b.sized: no such thing", "b.sized: no such thing"},
        {"a.on: not from the file", "a.on: not from the file"},
        {"b.n: the command line wins", "b.n: the command line wins"},
    };
    struct err err = {};

    (void)state;
    assert_int_equal(read_text("[a]\nname = n\n[b]\nsize = 2KiB\nn = 5\n", &err), 0);
    assert_int_equal(conf_set(&conf, STR("b.n=6"), &err), 0);
    assert_int_equal(conf_set(&conf, STR("b.n=7"), &err), 0); /* the last wins there */
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        err = (struct err){};
        assert_int_equal(err_set(&err, -EINVAL, "%s", t[i].says), -EINVAL);
        conf_place(&conf, "x.ini", &err);
        assert_string_equal(err.msg, t[i].placed);
        assert_int_equal(err.code, -EINVAL);
    }
    conf_place(&conf, NULL, &err); /* no file was given */
}

static void no_file(void **state)
{
    struct err err = {};

    (void)state;
    assert_int_equal(conf_read(&conf, "/nonexistent/x.ini", &err), -ENOENT);
    assert_string_equal(err.msg, "/nonexistent/x.ini: No such file or directory");
    err = (struct err){};
    assert_int_equal(conf_read(&conf, "/tmp", &err), -EISDIR);
    assert_string_equal(err.msg, "/tmp: Is a directory");
}

static void nul_in_a_line(void **state)
{
    static const char text[] = "[a]\nname = x\0y", last[] = "[a]\nname = x\0";
    struct err err = {};

    (void)state;
    assert_true(read_bytes(text, sizeof text - 1, &err) < 0);
    assert_non_null(strstr(err.msg, ":2: a NUL byte in the line"));
    err = (struct err){};
    assert_true(read_bytes(last, sizeof last - 1, &err) < 0);
    assert_non_null(strstr(err.msg, ":2: a NUL byte in the line"));
}

static void assignments(void **state)
{
    struct err err = {};

    (void)state;
    assert_ok(conf_set(&conf, STR("b.age=1h"), &err), &err);
    assert_int_equal(s.age, INT64_C(3600) * 1000000000);
    assert_ok(conf_set(&conf, STR("a.name=x.y=z"), &err), &err);
    assert_string_equal(s.name, "x.y=z");
    assert_int_equal(conf_set(&conf, STR("a.name"), &err), -EINVAL);
    err = (struct err){};
    assert_int_equal(conf_set(&conf, STR("name=a.b"), &err), -EINVAL);
    err = (struct err){};
    assert_int_equal(conf_set(&conf, STR("b.n=11"), &err), -ERANGE);
    assert_string_equal(err.msg, "b.n: \"11\" is out of range: 1 to 10");
    assert_int_equal(s.n, 3);
}

static void help_and_table(void **state)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    (void)state;
    conf_print_help(&conf, f);
    conf_print_markdown(&conf, f);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "[b]\n; a count (count, 1 to 10)\nn = 3\n"));
    assert_non_null(strstr(text, "; an age (duration, 1s to 10d)\nage = 7d\n"));
    assert_non_null(strstr(text, "| `b` | `size` | size | `1MiB` | 1KiB | 1GiB | a size |\n"));
    free(text);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults),
        TEST(file_is_read),
        TEST(other_sections),
        TEST(refusals_name_the_place),
        TEST(no_file),
        TEST(nul_in_a_line),
        TEST(assignments),
        TEST(help_and_table),
        TEST(late_refusals_name_the_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
