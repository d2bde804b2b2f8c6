// SPDX-License-Identifier: Apache-2.0
#include "query/query_private.h"
#include "tests/lib/fake_store.h"
#include "tests/lib/testing.h"

/* Selectors and times: what is read, and where a mistake is said to be. */

static struct query_err e;

static int parse(struct arena *a, const char *text, struct query_select *ret)
{
    e = (struct query_err){};
    arena_init(a, 1 << 20);
    return query_select_parse(a, str_c(text), ret, &e);
}

static void reads(const char *text, const char *name, const char *unit, const char *kind,
                  uint32_t n)
{
    struct query_select s = {};
    struct arena a;

    if (parse(&a, text, &s) != 0)
        fail_msg("%s: %s", text, e.msg);
    assert_str(s.name, str_c(name));
    assert_str(s.unit, str_c(unit));
    assert_str(s.kind, str_c(kind));
    assert_int_equal(s.n, n);
    query_select_deinit(&s);
    arena_deinit(&a);
}

static void refuses(const char *text, enum query_code code, const char *says)
{
    struct query_select s = {};
    struct arena a;

    if (parse(&a, text, &s) == 0)
        fail_msg("%s was taken", text);
    assert_int_equal(e.code, code);
    assert_string_equal(e.param, "q");
    if (!strstr(e.msg, says))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, e.msg, says);
    arena_deinit(&a);
}

static void types(void **state)
{
    (void)state;
    reads("", "", "", "", 0);
    reads("  {} ", "", "", "", 0);
    reads("cpu", "cpu", "", "", 0);
    reads("cpu:nanoseconds", "cpu", "nanoseconds", "", 0);
    reads("live:bytes:level{}", "live", "bytes", "level", 0);
    reads("\"a b\":`c\\`:sum", "a b", "c\\", "sum", 0);
    reads("cpu {a=\"1\" , b!=`2`}", "cpu", "", "", 2);
    refuses("cpu:ns:mean", QUERY_BAD_SELECTOR, "a kind is sum or level");
    refuses("cpu:ns:sum:x", QUERY_BAD_SELECTOR, "position 11: a type has three parts at most");
    refuses("cpu x", QUERY_BAD_SELECTOR, "position 5: something follows");
    refuses("\"\"", QUERY_BAD_SELECTOR, "name is empty");
    refuses(":ns", QUERY_BAD_SELECTOR, "position 1");
}

static void conditions(void **state)
{
    struct query_select s = {};
    struct arena a;

    (void)state;
    assert_int_equal(parse(&a,
                           "cpu{ a = \"x\\\\\\\"\\n\\xff\\u00e9\\u20ac\", \"odd name\"!=`r\\aw`,"
                           "c=~\"1|2\",d!~`[a-c]+` }",
                           &s),
                     0);
    assert_int_equal(s.n, 4);
    assert_str(s.matcher[0].name, STR("a"));
    assert_str(s.matcher[0].value, STR("x\\\"\n\xff\xc3\xa9\xe2\x82\xac"));
    assert_int_equal(s.matcher[0].op, STORE_EQ);
    assert_str(s.matcher[1].name, STR("odd name"));
    assert_str(s.matcher[1].value, STR("r\\aw"));
    assert_int_equal(s.matcher[1].op, STORE_NE);
    assert_int_equal(s.matcher[2].op, STORE_LIKE);
    assert_int_equal(query_regex_match(s.regex[2], STR("2")), 1);
    assert_int_equal(query_regex_match(s.regex[2], STR("12")), 0); /* the whole text */
    assert_int_equal(s.matcher[3].op, STORE_UNLIKE);
    assert_null(s.regex[0]);
    assert_str(s.text[2], STR("c=~\"1|2\""));
    query_select_deinit(&s);
    arena_deinit(&a);
}

static void mistakes(void **state)
{
    static char many[2000] = "cpu{";
    static char deep[9000];

    (void)state;
    refuses("cpu{", QUERY_BAD_SELECTOR, "position 5: a label name");
    refuses("cpu{a", QUERY_BAD_SELECTOR, "position 6: an operator is");
    refuses("cpu{a>\"1\"}", QUERY_BAD_SELECTOR, "position 6: an operator is");
    refuses("cpu{a=1}", QUERY_BAD_SELECTOR, "position 7: a value stands in");
    refuses("cpu{a=\"1\"", QUERY_BAD_SELECTOR, "\"}\" is missing");
    refuses("cpu{a=\"1\" b=\"2\"}", QUERY_BAD_SELECTOR, "position 11");
    refuses("cpu{a=\"1\",}", QUERY_BAD_SELECTOR, "position 11: a label name");
    refuses("cpu{a=\"1}", QUERY_BAD_SELECTOR, "does not end");
    refuses("cpu{a=\"\\q\"}", QUERY_BAD_SELECTOR, "unknown escape");
    refuses("cpu{a=\"\\x1\"}", QUERY_BAD_SELECTOR, "two hex digits");
    refuses("cpu{a=\"\\ud800\"}", QUERY_BAD_SELECTOR, "surrogate");
    refuses("cpu{a=~\"(\"}", QUERY_BAD_PATTERN, "position");
    for (int i = 0; i < 40; i++)
        memcpy(many + 4 + 6 * i, "a=\"1\",", 6);
    refuses(many, QUERY_BAD_SELECTOR, "more than 32");
    memset(deep, 'a', sizeof deep - 1);
    refuses(deep, QUERY_BAD_SELECTOR, "at most 8192");
}

/* No input makes the parser read beyond its end or crash: every prefix and every changed byte. */
static void any_bytes(void **state)
{
    static const char text[] = "cpu:nanoseconds:sum{a=\"x\\xff\\u20ac\", \"b c\"=~`d+`, e!~\"f\"}";
    char copy[sizeof text];
    uint32_t seed = 1;

    (void)state;
    for (size_t n = 0; n < sizeof text; n++) {
        for (int i = 0; i < 60; i++) {
            struct query_select s = {};
            struct arena a;

            memcpy(copy, text, n);
            seed = seed * 1664525 + 1013904223;
            if (n && i)
                copy[seed % n] = (char)(seed >> 16);
            e = (struct query_err){};
            arena_init(&a, 1 << 20);
            if (query_select_parse(&a, (struct str){copy, n}, &s, &e) == 0)
                query_select_deinit(&s);
            else
                assert_true(e.code != QUERY_OK && e.msg[0]);
            arena_deinit(&a);
        }
    }
}

static struct query *ask(struct store *s, const char *q, const char *from, const char *to)
{
    struct query_conf conf = {.store = s, .now = {1000 * NS_PER_S}, .mem_max = 1 << 20};
    struct query_ask a = {.q = str_c(q), .from = str_c(from), .to = str_c(to), .need_type = true};
    struct query *ret = NULL;

    e = (struct query_err){};
    (void)!query_open(&conf, &a, &ret, &e);
    return ret;
}

static void resolution(void **state)
{
    struct store *s = fake_store_new();
    ptype_id other = fake_store_type(s, "cpu", "samples", KIND_SUM);
    struct query *q;

    (void)state;
    q = ask(s, "cpu", "now-1m", "now");
    assert_non_null(q); /* built in, even where there is no data */
    assert_int_equal(query_head(q)->type.id, PTYPE_CPU);
    query_free(q);
    fake_store_row(s, &(struct fake_row){.type = other, .labels = "service=a", .count = 1});
    q = ask(s, "cpu", "now-1m", "now"); /* the other one does not occur here */
    assert_non_null(q);
    query_free(q);
    assert_null(ask(s, "cpu", "0s", "now"));
    assert_int_equal(e.code, QUERY_AMBIGUOUS_TYPE);
    assert_non_null(strstr(e.msg, "cpu:nanoseconds:sum, cpu:samples:sum"));
    q = ask(s, "cpu:samples", "now-1m", "now");
    assert_non_null(q);
    assert_int_equal(query_head(q)->type.id, other);
    assert_str(query_head(q)->type.unit, STR("samples"));
    query_free(q);
    assert_null(ask(s, "{service=\"a\"}", "now-1m", "now"));
    assert_int_equal(e.code, QUERY_TYPE_REQUIRED);
    assert_null(ask(s, "nothing", "now-1m", "now"));
    assert_int_equal(e.code, QUERY_UNKNOWN_TYPE);
    assert_null(ask(s, "cpu:nanoseconds:level", "now-1m", "now"));
    assert_int_equal(e.code, QUERY_UNKNOWN_TYPE);
    fake_store_free(s);
}

static void instant(const char *text, int64_t want, bool moves)
{
    real_ns t = {-1};
    bool relative = !moves;

    e = (struct query_err){};
    if (query_when(str_c(text), (real_ns){5000 * NS_PER_S}, "from", &t, &relative, &e) != 0)
        fail_msg("%s: %s", text, e.msg);
    assert_int_equal(t.v, want);
    assert_int_equal(relative, moves);
}

static void no_instant(const char *text, const char *says)
{
    real_ns t = {};
    bool relative;

    e = (struct query_err){};
    if (query_when(str_c(text), (real_ns){5000 * NS_PER_S}, "from", &t, &relative, &e) == 0)
        fail_msg("%s was taken", text);
    assert_int_equal(e.code, QUERY_BAD_TIME);
    assert_string_equal(e.param, "from");
    if (!strstr(e.msg, says))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, e.msg, says);
}

static void times(void **state)
{
    (void)state;
    instant("now", 5000 * NS_PER_S, true);
    instant("now-15m", 4100 * NS_PER_S, true);
    instant("now+2s", 5002 * NS_PER_S, true);
    instant("1764417600s", 1764417600 * NS_PER_S, false);
    instant("1764417600123ms", 1764417600123 * NS_PER_MS, false);
    instant("1764417600123456us", 1764417600123456 * NS_PER_US, false);
    instant("7ns", 7, false);
    instant("1764417600123456789", 1764417600123456789, false);
    instant("2026-11-29T13:00:00Z", 1795957200 * NS_PER_S, false);
    instant("2026-11-29T14:00:00.123456789+01:00", 1795957200123456789, false);
    assert_int_equal(query_now((real_ns){5000 * NS_PER_S + 999}).v, 5000 * NS_PER_S);
    assert_int_equal(query_now((real_ns){-1}).v, -NS_PER_S);
    no_instant("1764417600", "needs a unit");
    no_instant("99999999999999999999", "beyond the range");
    no_instant("9999999999999s", "neither");
    no_instant("now-", "after \"now\"");
    no_instant("now-15", "after \"now\"");
    no_instant("nowish", "after \"now\"");
    no_instant("15m", "neither");
    no_instant("yesterday", "neither");
    no_instant("2026-13-01T00:00:00Z", "neither");
}

static void ranges(void **state)
{
    struct store *s = fake_store_new();
    struct query *q = ask(s, "cpu", NULL, NULL);

    (void)state;
    assert_int_equal(query_head(q)->range.t0.v, (1000 - 3600) * NS_PER_S);
    assert_int_equal(query_head(q)->range.t1.v, 1000 * NS_PER_S);
    assert_true(query_head(q)->relative);
    query_free(q);
    q = ask(s, "cpu", NULL, "5000s"); /* an hour before to */
    assert_int_equal(query_head(q)->range.t0.v, 1400 * NS_PER_S);
    assert_false(query_head(q)->relative);
    query_free(q);
    assert_null(ask(s, "cpu", "10s", "10s"));
    assert_int_equal(e.code, QUERY_BAD_RANGE);
    assert_null(ask(s, "cpu", "now", "now-1s"));
    assert_int_equal(e.code, QUERY_BAD_RANGE);
    fake_store_free(s);
}

static void durations(void **state)
{
    int64_t d = 0;

    (void)state;
    assert_true(query_duration_parse(STR("250ms"), &d));
    assert_int_equal(d, 250 * NS_PER_MS);
    assert_true(query_duration_parse(STR("2w"), &d));
    assert_int_equal(d, 14 * 86400 * NS_PER_S);
    assert_false(query_duration_parse(STR("-1s"), &d));
    assert_false(query_duration_parse(STR("1"), &d));
    assert_false(query_duration_parse(STR("1.5s"), &d));
    assert_false(query_duration_parse(STR("s"), &d));
    assert_false(query_duration_parse(STR("999999999999d"), &d));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types),     cmocka_unit_test(conditions), cmocka_unit_test(mistakes),
        cmocka_unit_test(any_bytes), cmocka_unit_test(resolution), cmocka_unit_test(times),
        cmocka_unit_test(ranges),    cmocka_unit_test(durations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
