// SPDX-License-Identifier: Apache-2.0
/* What people type: selectors, instants, search patterns, filters; and names that are shortened.
 * The first byte says which. */
#include "base/short.h"
#include "query/query_private.h"
#include "tests/fuzz/fuzz.h"

static void selector(struct arena *a, struct str in, struct query_err *e)
{
    struct query_select s = {};

    if (query_select_parse(a, in, &s, e) < 0) {
        FUZZ_CHECK(e->code != QUERY_OK && e->msg[0]);
        return;
    }
    FUZZ_CHECK(s.n <= QUERY_MATCHERS_MAX && s.has_type == (s.name.n > 0));
    for (uint32_t i = 0; i < s.n; i++) {
        bool regex = s.matcher[i].op == STORE_LIKE || s.matcher[i].op == STORE_UNLIKE;

        FUZZ_CHECK((s.regex[i] != NULL) == regex);
        if (regex)
            (void)query_regex_match(s.regex[i], in);
    }
    query_select_deinit(&s);
}

static void instant(struct str in, struct query_err *e)
{
    real_ns t = {};
    bool relative = false;
    int64_t d = -1;

    if (query_when(in, (real_ns){1764417600 * NS_PER_S}, "from", &t, &relative, e) < 0)
        FUZZ_CHECK(e->code == QUERY_BAD_TIME);
    if (query_duration_parse(in, &d))
        FUZZ_CHECK(d >= 0);
}

static void pattern(struct arena *a, struct str in, struct query_err *e)
{
    struct query_func f = {.name = in, .file = STR("/src/a.c"), .bin = STR("a")};
    struct query_pattern p = {};

    if (query_pattern_new(a, in, "match", &p, e) < 0) {
        FUZZ_CHECK(e->code != QUERY_OK);
        return;
    }
    (void)query_pattern_match(&p, &f);
    query_pattern_deinit(&p);
}

static void filter(struct arena *a, struct str in, struct query_err *e)
{
    struct query_func f = {.name = in, .file = in, .bin = in, .kind = FRAME_PYTHON};
    struct query_filters filters = {}, copy = {};

    if (query_filters_parse(a, &in, 1, &filters, e) < 0) {
        FUZZ_CHECK(e->code != QUERY_OK && e->msg[0] && strcmp(e->param, "f") == 0);
        return;
    }
    FUZZ_CHECK(filters.n == 1 && filters.drops == (filters.v[0].verb <= QUERY_START));
    if (query_filters_clone(&filters, &copy, e) == 0 &&
        filters.v[0].verb != QUERY_COLLAPSE_RECURSION)
        FUZZ_CHECK(query_pattern_match(&filters.v[0].pattern, &f) ==
                   query_pattern_match(&copy.v[0].pattern, &f));
    query_filters_deinit(&copy);
    query_filters_deinit(&filters);
}

/* Shortening takes bytes out and keeps the order of the others. */
static void short_name(struct arena *a, struct str in)
{
    struct str s = func_short_name(a, in);
    size_t at = 0;

    FUZZ_CHECK(s.n <= in.n && (!s.n || s.p));
    for (size_t i = 0; i < in.n && at < s.n; i++)
        at += in.p[i] == s.p[at];
    FUZZ_CHECK(at == s.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str in = {(const char *)data, n};
    struct query_err e = {};
    struct arena a;

    if (n == 0)
        return 0;
    arena_init(&a, 1 << 20);
    switch (data[0] == 'f' || data[0] == 's' ? data[0] : data[0] % 3) {
    case 'f':
        filter(&a, str_from(in, 1), &e);
        break;
    case 's':
        short_name(&a, str_from(in, 1));
        break;
    case 0:
        selector(&a, str_from(in, 1), &e);
        break;
    case 1:
        instant(str_from(in, 1), &e);
        break;
    default:
        pattern(&a, str_from(in, 1), &e);
    }
    arena_deinit(&a);
    return 0;
}
