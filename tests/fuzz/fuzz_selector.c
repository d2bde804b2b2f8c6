// SPDX-License-Identifier: Apache-2.0
/* What people type: selectors, instants, search patterns. The first byte says which. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str in = {(const char *)data, n};
    struct query_err e = {};
    struct arena a;

    if (n == 0)
        return 0;
    arena_init(&a, 1 << 20);
    switch (data[0] % 3) {
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
