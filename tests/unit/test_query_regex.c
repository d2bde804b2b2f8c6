// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/time.h"
#include "query/query_private.h"
#include "tests/lib/testing.h"

/* Regular expressions from strangers: they match as documented, and none of them hangs. */

static struct query_err e;

static struct query_regex *make(struct str pattern, bool whole, bool fold)
{
    struct query_regex *re = NULL;

    e = (struct query_err){};
    (void)!query_regex_new(pattern, whole, fold, "q", &re, &e);
    return re;
}

static void check(const char *pattern, bool whole, bool fold, struct str text, int want)
{
    struct query_regex *re = make(str_c(pattern), whole, fold);

    if (!re)
        fail_msg("%s: %s", pattern, e.msg);
    assert_int_equal(query_regex_match(re, text), want);
    query_regex_free(re);
}

static void matching(void **state)
{
    (void)state;
    check("a+", true, false, STR("aaa"), 1);
    check("a+", true, false, STR("baaa"), 0);
    check("a+", false, false, STR("baaa"), 1);
    check("a|ab", true, false, STR("ab"), 1); /* the end belongs to the pattern */
    check("A", false, false, STR("a"), 0);
    check("A", false, true, STR("a"), 1);
    check("", true, false, STR(""), 1);
    check("", true, false, STR("x"), 0);
    check(".*", true, false, STR("a\nb"), 1); /* names hold any bytes */
    check(".*", true, false, STR("\xff\xfe"), 1);
    check("a.b", true, false, STR("a\0b"), 1);
    check("caf\xc3\xa9", false, false, STR("un caf\xc3\xa9"), 1);
    check("[\xc3\xa9]$", false, false, STR("\xc3\xa9"), 1);
    check("\xc3\xa9", false, false, STR("\xff\xc3\xa9"), 1); /* beside bytes that are no UTF-8 */
    check("\xc3\x89", false, true, STR("\xc3\xa9"), 1);
}

static void too_expensive(struct str pattern)
{
    assert_null(make(pattern, true, false));
    assert_int_equal(e.code, QUERY_REGEX_TOO_EXPENSIVE);
    assert_int_equal(query_code_status(e.code), 422);
    assert_true(e.limit > 0);
}

static void limits(void **state)
{
    static char text[100001];

    (void)state;
    memset(text, '(', sizeof text - 1);
    too_expensive((struct str){text, sizeof text - 1});
    memset(text, '(', 40);
    memset(text + 40, ')', 40);
    too_expensive((struct str){text, 80});
    memset(text, '(', 32);
    memset(text + 32, ')', 32);
    check("", true, false, STR(""), 1);
    {
        struct query_regex *re = make((struct str){text, 64}, true, false);

        assert_non_null(re);
        query_regex_free(re);
    }
    too_expensive(STR("((((a{1,500}){1,500}){1,500}){1,500})"));
    memset(text, 'a', 1025);
    too_expensive((struct str){text, 1025});
    assert_null(make(STR("a("), true, false));
    assert_int_equal(e.code, QUERY_BAD_PATTERN);
    assert_non_null(strstr(e.msg, "position 3"));
    assert_null(make(STR("\\C"), true, false));
    assert_null(make(STR("(*UTF)a"), true, false));
    assert_null(make(STR("caf\xe9"), true, false)); /* no UTF-8 */
}

/* Each gives up within its limits instead of running for years. */
static void bombs(void **state)
{
    static const char *const pattern[] = {"(a+)+$",        "(a|a)*$",       "(a|aa)+$",
                                          "(.*)*x",        "(?:(?:a*)*)*b", "^(([a-z])+.)+[A-Z]$",
                                          "(x+x+)+y",      "(?R)?a(?R)?b",  "(a?){60}a{60}$",
                                          "(.*)\\1\\1\\1b"};
    static char text[65536];
    mono_ns start = mono_now();

    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '!';
    for (size_t i = 0; i < sizeof pattern / sizeof pattern[0]; i++) {
        struct query_regex *re = make(str_c(pattern[i]), false, false);
        mono_ns one = mono_now();
        int r;

        if (!re)
            continue; /* refused when it was read */
        r = query_regex_match(re, (struct str){text, sizeof text});
        assert_true(r == -E2BIG || r == 0 || r == 1);
        r = query_regex_match(re, (struct str){text + sizeof text - 61, 61});
        assert_true(r == -E2BIG || r == 0 || r == 1);
        if (mono_now().v - one.v > 2 * NS_PER_S)
            fail_msg("%s took %lld ms", pattern[i],
                     (long long)((mono_now().v - one.v) / NS_PER_MS));
        query_regex_free(re);
    }
    assert_true(mono_now().v - start.v < 10 * NS_PER_S);
    {
        struct query_regex *re = make(STR("(a+)+$"), false, false);

        assert_int_equal(query_regex_match(re, (struct str){text + sizeof text - 61, 61}), -E2BIG);
        query_regex_free(re);
    }
}

static bool finds(const char *pattern, const struct query_func *f)
{
    struct query_pattern p = {};
    struct arena a;
    int r;

    arena_init(&a, 4096);
    e = (struct query_err){};
    if (query_pattern_new(&a, str_c(pattern), "match", &p, &e) != 0)
        fail_msg("%s: %s", pattern, e.msg);
    r = query_pattern_match(&p, f);
    query_pattern_deinit(&p);
    arena_deinit(&a);
    assert_true(r >= 0);
    return r;
}

static void patterns(void **state)
{
    const struct query_func f = {.name = STR("Foo::operator/(int)"),
                                 .file = STR("/src/Foo.cc"),
                                 .bin = STR("libfoo.so"),
                                 .kind = FRAME_NATIVE};
    struct query_pattern p = {};
    struct arena a;

    (void)state;
    assert_true(finds("foo::OPER", &f));
    assert_true(finds("fn=operator", &f));
    assert_false(finds("libfoo", &f));
    assert_true(finds("bin=libFOO", &f));
    assert_true(finds("file=/src/", &f));
    assert_true(finds("/^Foo/", &f));
    assert_false(finds("/^foo/", &f));
    assert_true(finds("/^foo/i", &f));
    assert_true(finds("bin=/so$/", &f));
    assert_true(finds("/(", &f)); /* no second slash: a text */
    assert_false(finds("x=y", &f));
    arena_init(&a, 4096);
    e = (struct query_err){};
    assert_true(query_pattern_new(&a, STR("fn="), "match", &p, &e) < 0);
    assert_int_equal(e.code, QUERY_BAD_PATTERN);
    e = (struct query_err){};
    assert_true(query_pattern_new(&a, STR("/(/"), "match", &p, &e) < 0);
    assert_int_equal(e.code, QUERY_BAD_PATTERN);
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matching), cmocka_unit_test(limits),
                                       cmocka_unit_test(bombs), cmocka_unit_test(patterns)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
