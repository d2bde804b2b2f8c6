// SPDX-License-Identifier: Apache-2.0
#include "base/short.h"
#include "query/query_private.h"
#include "tests/lib/stacks.h"

/*
 * Filters and short names against lists of frames: trees, tables, searches and series of random
 * stores are what the same filters leave of each stack by itself, to the last unit.
 */

#define S NS_PER_S

struct asked {
    struct store *store;
    struct stacks all, left;
    struct stack_filters f;
    uint32_t taken[STACKS_MAX];
    bool plain;
    struct query *q;
};

static void ask(struct asked *a, uint64_t seed, const char *by)
{
    memset(a, 0, sizeof *a);
    a->store = stacks_new(seed, &a->all);
    stack_filters_random(&a->f, stack_rnd(10) ? 4 : QUERY_FILTER_MAX);
    a->plain = stack_rnd(3) == 0;
    stacks_filter(&a->all, &a->f, &a->left, a->taken);
    a->q = stacks_ask(a->store, &a->f, a->plain, by);
}

static void done(struct asked *a)
{
    query_free(a->q);
    fake_store_free(a->store);
}

static unit_i128 total(const struct stacks *s)
{
    unit_i128 v = 0;

    for (uint32_t i = 0; i < s->n; i++)
        v += s->v[i].value;
    return v;
}

static uint64_t samples(const struct stacks *s)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < s->n; i++)
        n += s->v[i].count;
    return n;
}

/* Functions of the selection that have a frame which a filter's pattern matches. */
static uint64_t functions(const struct asked *a, const char *filter)
{
    const char *pattern = strchr(filter, ':') + 1;
    uint8_t found[N_OF(stack_frames)] = {};
    uint64_t n = 0;

    for (uint32_t i = 0; i < a->all.n && strcmp(filter, "collapse:recursion") != 0; i++) {
        for (uint32_t d = 0; d < a->all.v[i].n; d++)
            found[a->all.v[i].f[d]] |= stack_hit(pattern, a->all.v[i].f[d]);
    }
    for (uint8_t f = 0; f < N_OF(stack_frames); f++) {
        uint8_t before = 0;

        while (before < f && !(found[before] && stack_same(before, f)))
            before++;
        n += found[f] && before == f;
    }
    return n;
}

/* What is left and what each filter took are all there was. */
static void check_sums(const struct asked *a, const struct query_sums *s)
{
    unit_i128 dropped = 0;

    assert_true(s->whole.total == total(&a->all) && s->whole.samples == samples(&a->all));
    assert_true(s->total == total(&a->left) && s->samples == samples(&a->left));
    assert_int_equal(s->n_filtered, a->f.n);
    for (uint32_t k = 0; k < a->f.n; k++) {
        unit_i128 v = 0;
        uint64_t n = 0;

        for (uint32_t i = 0; i < a->all.n; i++) {
            v += a->taken[i] == k + 1 ? a->all.v[i].value : 0;
            n += a->taken[i] == k + 1 ? a->all.v[i].count : 0;
        }
        assert_str(s->filtered[k].text, str_c(a->f.text[k]));
        assert_true(s->filtered[k].dropped == v && s->filtered[k].samples == n);
        dropped += v;
    }
    assert_true(s->total + dropped == s->whole.total);
    for (uint32_t k = 0; k < a->f.n; k++)
        assert_int_equal(s->filtered[k].functions, functions(a, a->f.text[k]));
    assert_int_equal(s->empty.why, a->left.n ? QUERY_NOT_EMPTY : QUERY_FILTERED_OUT);
}

static void trees(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < stack_rounds(400); n++) {
        const struct query_flame_ask whole = {};
        struct path_sums have = {}, want = {};
        struct query_flame f = {};
        static struct asked a;

        ask(&a, n, NULL);
        assert_ok(query_flame(a.q, &whole, &f, &test_err), &test_err);
        check_sums(&a, &f.sum);
        path_of_rows(&f, f.func, &have);
        for (uint32_t i = 0; i < a.left.n; i++) {
            const struct stack *k = &a.left.v[i];
            char path[PATH_SIZE] = "";

            for (uint32_t d = 0; d < k->n; d++)
                path_frame(path, k->f[d], a.plain);
            path_at(&want, path)->v[0] += k->value;
        }
        path_same(&have, &want, "tree");
        path_free(&have);
        path_free(&want);
        done(&a);
    }
}

/* Leaves first, and cut: the same sum, the same weights by path turned round. */
static void inverted_and_cut(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < stack_rounds(150); n++) {
        const struct query_flame_ask inv = {.invert = true};
        struct query_flame_ask cut = {.width = 50, .max_nodes = 2 + (uint32_t)n};
        struct path_sums have = {}, want = {};
        struct query_flame f = {}, g = {};
        static struct asked a;
        unit_i128 sum = 0;

        ask(&a, n, NULL);
        assert_ok(query_flame(a.q, &inv, &f, &test_err), &test_err);
        check_sums(&a, &f.sum);
        path_of_rows(&f, f.func, &have);
        for (uint32_t i = 0; i < a.left.n; i++) {
            const struct stack *k = &a.left.v[i];
            char path[PATH_SIZE] = "";

            for (uint32_t d = k->n; d > 0; d--)
                path_frame(path, k->f[d - 1], a.plain);
            path_at(&want, path)->v[0] += k->value;
        }
        path_same(&have, &want, "inverted");
        assert_ok(query_flame(a.q, &cut, &g, &test_err), &test_err);
        for (uint32_t i = 0; i < g.n; i++) {
            assert_true(g.func != NULL && g.n <= cut.max_nodes);
            sum += g.self[i];
        }
        assert_true(sum == total(&a.left) && g.total[0] == sum);
        path_free(&have);
        path_free(&want);
        done(&a);
    }
}

/* ---- tables and searches -----------------------------------------------------------------------
 */

static unit_i128 function_sum(const struct asked *a, const struct query_func *fn, bool leaf)
{
    unit_i128 v = 0;

    for (uint32_t i = 0; i < a->left.n; i++) {
        const struct stack *k = &a->left.v[i];
        bool in = false;

        for (uint32_t d = leaf && k->n ? k->n - 1 : 0; d < k->n; d++) {
            const struct stack_frame *f = &stack_frames[k->f[d]];

            in |= str_eq(stack_scope(k->f[d]), fn->scope) &&
                  str_eq(a->plain ? str_c(f->plain) : f->f.name, fn->name);
        }
        v += in ? k->value : 0;
    }
    return v;
}

/* Search patterns, written so that stack_hit() means the same: regular expressions find. */
static const char *const searches[] = {"/^f[0-2]$/", "/F1/i", "file=/o/", "file=/py$/", "/vec</"};

static unit_i128 search_sum(const struct asked *a, uint32_t bits)
{
    unit_i128 v = 0;

    for (uint32_t i = 0; i < a->left.n; i++) {
        bool in = false;

        for (uint32_t k = 0; k < N_OF(searches); k++)
            in |= (bits >> k & 1) && stack_matches(&a->left.v[i], searches[k]);
        v += in ? a->left.v[i].value : 0;
    }
    return v;
}

static void tables(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < stack_rounds(200); n++) {
        struct query_top_ask ta = {
            .limit = 2000, .n_any = N_OF(searches), .match = str_c(searches[n % 5])};
        const struct query_flame_ask fa = {.match = str_c(searches[n % 5])};
        struct query_flame f = {};
        struct query_top t = {};
        static struct asked a;
        unit_i128 self = 0;

        for (uint32_t k = 0; k < N_OF(searches); k++)
            ta.any[k] = str_c(searches[k]);
        ask(&a, n, NULL);
        assert_ok(query_top(a.q, &ta, &t, &test_err), &test_err);
        check_sums(&a, &t.sum);
        for (uint32_t k = 0; k < N_OF(searches); k++)
            assert_true(t.any[k].total == search_sum(&a, 1u << k));
        assert_true(t.any_union.total == search_sum(&a, 31));
        assert_true(t.matched.total == search_sum(&a, 1u << n % 5));
        assert_ok(query_flame(a.q, &fa, &f, &test_err), &test_err);
        assert_true(f.matched.total == t.matched.total && f.matched.view == t.matched.total);
        assert_true(f.matched.functions == t.matched.functions && f.matched.n_func == t.rows);
        assert_int_equal(t.any[n % 5].functions, t.rows);
        ta.match = (struct str){NULL, 0};
        assert_ok(query_top(a.q, &ta, &t, &test_err), &test_err);
        for (uint32_t i = 0; i < t.n; i++) {
            const struct query_func *fn = &t.func[t.row[i].func];

            assert_true(t.row[i].self == function_sum(&a, fn, true));
            assert_true(t.row[i].total == function_sum(&a, fn, false));
            self += t.row[i].self;
        }
        for (uint32_t i = 0; i < a.left.n; i++)
            self += a.left.v[i].n ? 0 : a.left.v[i].value; /* no frame is left: the root's own */
        assert_true(self == total(&a.left));
        done(&a);
    }
}

/* Rows of files: each frame counts for the file that it has itself. */
static unit_i128 file_sum(const struct asked *a, struct str file, bool leaf)
{
    unit_i128 v = 0;

    for (uint32_t i = 0; i < a->left.n; i++) {
        const struct stack *k = &a->left.v[i];
        bool in = false;

        for (uint32_t d = leaf && k->n ? k->n - 1 : 0; d < k->n; d++)
            in |= str_eq(stack_frames[k->f[d]].f.file, file);
        v += in ? k->value : 0;
    }
    return v;
}

static void files(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < stack_rounds(150); n++) {
        const struct query_top_ask ta = {.limit = 2000, .key = QUERY_KEY_FILE};
        struct query_top t = {};
        static struct asked a;

        ask(&a, n, n % 4 ? NULL : "host");
        assert_ok(query_top(a.q, &ta, &t, &test_err), &test_err);
        check_sums(&a, &t.sum);
        for (uint32_t i = 0; i < t.n; i++) {
            struct str file = t.func[t.row[i].func].name;

            assert_true(t.row[i].self == file_sum(&a, file, true));
            assert_true(t.row[i].total == file_sum(&a, file, false));
        }
        done(&a);
    }
}

/* by=host: parts of each row, the largest two and the rest. */
static void grouped(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < stack_rounds(100); n++) {
        const struct query_top_ask ta = {.limit = 5, .sort = QUERY_BY_TOTAL};
        struct query_top t = {};
        static struct asked a;
        unit_i128 sum = 0;

        ask(&a, n, "host");
        assert_ok(query_top(a.q, &ta, &t, &test_err), &test_err);
        check_sums(&a, &t.sum);
        for (uint32_t g = 0; g < t.n_group; g++) {
            unit_i128 want = 0;

            sum += t.group[g].total;
            assert_false(t.group[g].rest);
            for (uint32_t i = 0; i < a.left.n; i++) {
                const char *host = strstr(stack_labels[a.left.v[i].label], "host=") + 5;

                want += str_eq(t.group[g].label[0], str_c(host)) ? a.left.v[i].value : 0;
            }
            assert_true(t.group[g].total == want);
            if (g)
                assert_true(t.group[g - 1].total >= t.group[g].total);
        }
        assert_true(sum == total(&a.left));
        for (uint32_t i = 0; i < t.n; i++) {
            unit_i128 self = 0, all = 0;

            for (uint32_t g = 0; g < t.n_group; g++) {
                self += t.group[g].self[i];
                all += t.group[g].sums[i];
            }
            assert_true(self == t.row[i].self && all == t.row[i].total);
            assert_true(!str_starts(t.func[t.row[i].func].name, STR("host=")));
        }
        done(&a);
    }
}

/* ---- series ------------------------------------------------------------------------------------
 */

static void series(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < stack_rounds(100); n++) {
        const struct query_series_ask sa = {.bucket_ns = (7 + (int64_t)(n % 90)) * S};
        struct query_series s = {};
        static struct asked a;

        ask(&a, n, n % 3 ? NULL : "host");
        assert_ok(query_series(a.q, &sa, &s, &test_err), &test_err);
        assert_true(s.sum.total == total(&a.left) && s.sum.whole.total == total(&a.all));
        assert_true(s.sum.samples == samples(&a.left));
        for (uint32_t b = 0; b < s.n; b++) {
            unit_i128 want = 0, have = 0;

            for (uint32_t i = 0; i < a.left.n; i++)
                want += (uint64_t)(a.left.v[i].t / sa.bucket_ns) == b ? a.left.v[i].value : 0;
            for (uint32_t l = 0; l < s.n_line; l++)
                have += s.line[l].value[b] == QUERY_UNKNOWN ? 0 : s.line[l].value[b];
            assert_true(have == want);
        }
        done(&a);
    }
}

/* ---- single cases ------------------------------------------------------------------------------
 */

static void refused(const char *filter, enum query_code code)
{
    struct store *s = fake_store_new();
    struct query_conf conf = {.store = s, .now = {100 * S}, .mem_max = 1 << 24};
    struct query_ask a = {.q = STR("cpu"), .n_filter = 1, .filter = {str_c(filter)}};
    struct query *q = NULL;

    test_err = (struct query_err){};
    assert_true(query_open(&conf, &a, &q, &test_err) < 0);
    if (test_err.code != code || strcmp(test_err.param, "f") != 0)
        fail_msg("%s: %s", filter, test_err.msg);
    fake_store_free(s);
}

static void refusals(void **state)
{
    static char deep[100] = "keep:/";

    (void)state;
    refused("", QUERY_BAD_PARAMETER);
    refused("hide:x", QUERY_BAD_PARAMETER);
    refused("keep", QUERY_BAD_PARAMETER);
    refused("keep:", QUERY_BAD_PATTERN);
    refused("drop:bin=", QUERY_BAD_PATTERN);
    refused("start:/(/", QUERY_BAD_PATTERN);
    memset(deep + 6, '(', 40);
    memset(deep + 46, ')', 40);
    deep[86] = '/';
    refused(deep, QUERY_REGEX_TOO_EXPENSIVE);
}

/* A function called recursion can be collapsed too, under its scope. */
static void named_recursion(void **state)
{
    struct stack_filters f = {1, {"collapse:fn=recursion"}};
    const struct query_flame_ask whole = {};
    struct store *s = fake_store_new();
    struct query_flame r = {};
    struct query *q;

    (void)state;
    test_row(s, "n:recursion#x;n:recursion#x;n:a#x;n:a#x", 10);
    q = stacks_ask(s, &f, false, NULL);
    assert_ok(query_flame(q, &whole, &r, &test_err), &test_err);
    assert_int_equal(r.n, 4); /* all, recursion, a, a */
    query_free(q);
    (void)snprintf(f.text[0], sizeof f.text[0], "collapse:recursion");
    q = stacks_ask(s, &f, false, NULL);
    assert_ok(query_flame(q, &whole, &r, &test_err), &test_err);
    assert_int_equal(r.n, 3); /* all, recursion, a */
    query_free(q);
    fake_store_free(s);
}

/* Of levels the mean is rounded once per leaf, whatever hangs above it. */
static void levels(void **state)
{
    struct store *s = fake_store_new();
    struct query_conf conf = {.store = s, .now = {100 * S}, .mem_max = 1 << 24, .max_points = 100};
    struct query_ask a = {.q = STR("live"),
                          .from = STR("0s"),
                          .to = STR("3s"),
                          .need_type = true,
                          .n_filter = 1,
                          .filter = {STR("keep:f")}};
    const struct query_series_ask sa = {.bucket_ns = 3 * S};
    const struct query_flame_ask whole = {};
    struct query_series line = {};
    struct query_flame f = {};
    struct query *q = NULL;

    (void)state;
    for (int64_t i = 0; i < 3; i++) {
        static const char *const stack[] = {"n:main#x;n:f#x", "n:main#x;n:f#x;n:g#x", "n:main#x"};

        for (int k = 0; k < 3; k++)
            fake_store_row(s, &(struct fake_row){.type = PTYPE_LIVE,
                                                 .labels = "service=a",
                                                 .t = i * S,
                                                 .until = (i + 1) * S,
                                                 .stack = stack[k],
                                                 .count = 1,
                                                 .value = 10 + i * i + k});
    }
    fake_store_cover(s,
                     &(struct fake_cover){.type = PTYPE_LIVE, .t1 = 3 * S, .basis = BASIS_EVERY});
    assert_ok(query_open(&conf, &a, &q, &test_err), &test_err);
    assert_ok(query_flame(q, &whole, &f, &test_err), &test_err);
    assert_true(f.sum.total == 12 + 13); /* 35 / 3, 38 / 3, each rounded */
    assert_true(f.sum.whole.total == 12 + 13 + 14);
    assert_ok(query_series(q, &sa, &line, &test_err), &test_err);
    assert_true(line.sum.total == 24); /* 73 / 3: a series has no leaves */
    assert_true(line.line[0].value[0] == 24);
    query_free(q);
    fake_store_free(s);
}

static int all_answers(struct query *q, struct str match)
{
    const struct query_flame_ask fa = {.match = match, .invert = true};
    const struct query_flame_ask wa = {.match = match, .width = 100};
    const struct query_top_ask ta = {.limit = 10, .match = match};
    const struct query_series_ask sa = {.bucket_ns = 100 * S};
    struct query_series s = {};
    struct query_flame f = {};
    struct query_top t = {};
    int r = query_flame(q, &fa, &f, &test_err);

    r = r ? r : query_flame(q, &wa, &f, &test_err);
    r = r ? r : query_top(q, &ta, &t, &test_err);
    return r ? r : query_series(q, &sa, &s, &test_err);
}

/* Every allocation fails once: an error or an answer, nothing leaks or crashes. own: frames are
 * apart until patterns are tried. */
static void short_of_memory(struct store *s, const struct stack_filters *f, bool own)
{
    bool ended = false;

    for (uint64_t n = 1; !ended; n++) {
        struct query_conf conf = {
            .store = s, .now = {10000 * S}, .mem_max = 1 << 24, .max_points = 100};
        struct query_ask a = {.q = STR("cpu"),
                              .from = STR("0s"),
                              .to = STR("1000s"),
                              .n_by = own ? 0 : 1,
                              .by = {STR("host")},
                              .short_names = !own,
                              .n_filter = f->n};
        struct query *q = NULL;
        int r;

        for (uint32_t i = 0; i < f->n; i++)
            a.filter[i] = str_c(f->text[i]);
        test_err = (struct query_err){};
        mem_fail_nth(n);
        r = query_open(&conf, &a, &q, &test_err);
        if (r == 0)
            r = all_answers(q, own ? STR("file=o") : STR("f"));
        mem_fail_nth(0);
        assert_true(r == 0 || test_err.code != QUERY_OK);
        ended = r == 0;
        query_free(q);
        assert_true(n < 20000);
    }
}

static void no_memory(void **state)
{
    const struct stack_filters f[] = {{3, {"keep:/f/", "merge:bin=/^lib/", "collapse:recursion"}},
                                      {3, {"keep:/f/", "merge:file=/o/", "collapse:recursion"}}};
    static struct stacks all;
    struct store *s = stacks_new(11, &all);

    (void)state;
    for (size_t i = 0; i < N_OF(f); i++)
        short_of_memory(s, &f[i], i == 1);
    fake_store_free(s);
}

/* Time, memory and a client that left end the work of filters as they end a scan. */
static void limits(void **state)
{
    static struct stacks all;
    struct store *s = stacks_new(7, &all);
    struct query_conf conf = {.store = s, .now = {10000 * S}, .mem_max = 60000, .max_points = 100};
    struct query_ask a = {.q = STR("cpu"),
                          .from = STR("0s"),
                          .to = STR("1000s"),
                          .n_filter = 1,
                          .filter = {STR("keep:/f/")}};
    atomic_bool cancel = true;
    struct query *q = NULL;

    (void)state;
    for (int k = 0; k < 3; k++) {
        test_err = (struct query_err){};
        if (k == 1)
            conf.mem_max = 1 << 24;
        conf.deadline.v = k == 1;
        conf.cancel = k == 2 ? &cancel : NULL;
        assert_ok(query_open(&conf, &a, &q, &test_err), &test_err);
        assert_true(all_answers(q, STR("f")) < 0);
        assert_int_equal(test_err.code, k == 2 ? QUERY_CANCELED : QUERY_TOO_EXPENSIVE);
        if (k == 0) {
            assert_string_equal(test_err.setting, "query.memory");
            assert_true(test_err.limit == 60000 && test_err.actual > 60000);
        }
        query_free(q);
    }
    fake_store_free(s);
}

/* A pattern that runs away is refused in a series as well, where the scan's workers try it. */
static void runaway(void **state)
{
    static char name[400];
    struct fake_frame f = {.kind = FRAME_NATIVE, .bin = STR("/x")};
    struct stack_filters flt = {1, {"drop:/(a+)+$/"}};
    const struct query_series_ask sa = {.bucket_ns = S};
    const struct query_flame_ask fa = {};
    struct store *s = fake_store_new();
    struct query_series out = {};
    struct query_flame fl = {};
    struct query *q;

    (void)state;
    memset(name, 'a', sizeof name - 2);
    name[sizeof name - 2] = '!';
    f.name = str_c(name);
    fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                         .labels = "service=a",
                                         .t = S,
                                         .frame = &f,
                                         .n_frame = 1,
                                         .count = 1,
                                         .value = 1});
    q = stacks_ask(s, &flt, false, NULL);
    assert_true(query_series(q, &sa, &out, &test_err) < 0);
    assert_int_equal(test_err.code, QUERY_REGEX_TOO_EXPENSIVE);
    assert_string_equal(test_err.param, "f");
    test_err = (struct query_err){};
    assert_true(query_flame(q, &fa, &fl, &test_err) < 0);
    assert_int_equal(test_err.code, QUERY_REGEX_TOO_EXPENSIVE);
    query_free(q);
    fake_store_free(s);
}

static void short_names(void **state)
{
    static const struct {
        const char *name, *plain;
    } cases[] = {
        {"main", "main"},
        {"std::vector<int, std::allocator<int> >::push_back(int const&)",
         "std::vector::push_back(int const&)"},
        {"f<(A)1>(int)", "f(int)"},
        {"f<(1>2), B<3>>::g", "f::g"},
        {"f<decltype(a->b)>", "f"},
        {"f<a->b>", "f"},
        {"operator<", "operator<"},
        {"bool operator< <int>(A<int>)", "bool operator<(A)"},
        {"std::ostream& std::operator<< <std::char_traits<char> >(char)",
         "std::ostream& std::operator<<(char)"},
        {"A::operator<=>(A const&) const", "A::operator<=>(A const&) const"},
        {"A::operator->() const", "A::operator->() const"},
        {"P<A>::operator->() const", "P::operator->() const"},
        {"my_operator<int>", "my_operator"},
        {"operator_x<int>()", "operator_x()"},
        {"<module>", "<module>"},
        {"<lambda>", "<lambda>"},
        {"foo.<locals>.bar", "foo.<locals>.bar"},
        {"<T as core::Trait<U>>::f", "<T as core::Trait>::f"},
        {"core::iter::Map<I,F>::next", "core::iter::Map::next"},
        {"(anonymous namespace)::f<int>", "(anonymous namespace)::f"},
        {"f<int", "f<int"},
        {"a < b", "a < b"},
        {"f>x<", "f>x<"},
        {"x<y>z<w>", "xz"},
        {"main::{lambda(int)#1}::operator()<int>(int) const",
         "main::{lambda(int)#1}::operator()(int) const"},
        {"V operator+<V, W>(V, W)", "V operator+(V, W)"},
        {"A::operator B<int>() const", "A::operator B() const"},
        {"", ""},
    };
    struct arena a;

    (void)state;
    arena_init(&a, 1 << 16);
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct str s = func_short_name(&a, str_c(cases[i].name));

        if (!str_eq(s, str_c(cases[i].plain)))
            fail_msg("%s: %.*s", cases[i].name, STR_ARG(s));
    }
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees),     cmocka_unit_test(inverted_and_cut),
        cmocka_unit_test(tables),    cmocka_unit_test(grouped),
        cmocka_unit_test(series),    cmocka_unit_test(refusals),
        cmocka_unit_test(levels),    cmocka_unit_test(named_recursion),
        cmocka_unit_test(no_memory), cmocka_unit_test(limits),
        cmocka_unit_test(runaway),   cmocka_unit_test(short_names),
        cmocka_unit_test(files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
