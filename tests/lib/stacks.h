// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "tests/lib/fake_query.h"

/*
 * Random stacks as plain lists of frames, and what filters make of such a list, done in the most
 * obvious way: an oracle for everything that query/ does with trees. One thread.
 */

#define STACK_MAX  24
#define STACKS_MAX 300

struct stack_frame {
    struct fake_frame f;
    const char *plain; /* the name without template arguments */
};

// clang-format off
static const struct stack_frame stack_frames[] = {
    {{FRAME_NATIVE, STR("f0"), {}, STR("/usr/lib/libx.so"), 1}, "f0"},
    {{FRAME_NATIVE, STR("f0"), {}, STR("/opt/libx.so"), 2}, "f0"}, /* the same function */
    {{FRAME_NATIVE, STR("f0"), {}, STR("/opt/liby.so"), 0}, "f0"},
    {{FRAME_NATIVE, STR("f1"), STR("one.c"), STR("/usr/lib/libx.so"), 0}, "f1"},
    {{FRAME_NATIVE, STR("f1"), STR("two.c"), STR("/usr/lib/libx.so"), 0}, "f1"}, /* the same */
    {{FRAME_JIT, STR("f1"), {}, STR("/opt/libx.so"), 4}, "f1"},                  /* and again */
    {{FRAME_NATIVE, STR("f2"), {}, STR("/usr/lib/libx.so"), 0}, "f2"},
    {{FRAME_NATIVE, STR("f2"), STR("a.py"), STR("/usr/lib/libx.so"), 0}, "f2"}, /* the same */
    {{FRAME_NATIVE, STR("vec<int>::push"), {}, STR("/usr/lib/libx.so"), 0}, "vec::push"},
    {{FRAME_NATIVE, STR("vec<char>::push"), {}, STR("/usr/lib/libx.so"), 0}, "vec::push"},
    {{FRAME_NATIVE, STR("F1"), {}, STR("/opt/liby.so"), 0}, "F1"},
    {{FRAME_PYTHON, STR("f0"), STR("a.py"), {}, 3}, "f0"},
    {{FRAME_PYTHON, STR("f0"), STR("b.py"), {}, 0}, "f0"},
    {{FRAME_PYTHON, STR("<module>"), STR("a.py"), {}, 0}, "<module>"},
    {{FRAME_PYTHON, STR("f3"), STR("a.py"), {}, 0}, "f3"},
    {{FRAME_KERNEL, STR("sys_read"), {}, STR("[kernel]"), 0}, "sys_read"},
    {{FRAME_OTHER, STR("[truncated: fp]"), {}, {}, 0}, "[truncated: fp]"},
};
static const char *const stack_labels[] = {"service=a,host=x", "service=b,host=x",
                                           "service=b,host=y", "service=b,host=z"};
/* What random filters are made of; with collapse: stands for any verb. */
static const char *const stack_patterns[] = {
    "f0", "f1", "fn=f2", "/^f[0-2]$/", "/F1/i", "bin=libx.so", "bin=/^lib/", "file=a.py",
    "file=/py$/", "kind=python", "kind=/^k/", "vec<int>::push", "/vec</", "nothing",
    "/^\\[truncated/", "<module>", "file=one.c", "file=two.c", "file=/o/", "kind=jit",
};
// clang-format on

struct stack {
    uint32_t n;
    uint8_t f[STACK_MAX]; /* index into stack_frames, root first */
    uint32_t label;
    int64_t t, value;
    uint64_t count;
};

struct stacks {
    uint32_t n;
    struct stack v[STACKS_MAX];
};

static uint64_t stack_seed;

static inline uint32_t stack_rnd(uint32_t n)
{
    stack_seed = stack_seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(stack_seed >> 33) % n;
}

#define N_OF(a) (sizeof(a) / sizeof *(a))

/* The same stacks in ret and in a store: cpu, each second of [0, 1000 s). */
static inline struct store *stacks_new(uint64_t seed, struct stacks *ret)
{
    struct store *s = fake_store_new();
    uint32_t variety;

    stack_seed = seed * 7919 + 1;
    variety = 2 + stack_rnd(N_OF(stack_frames) - 1);
    ret->n = 1 + stack_rnd(STACKS_MAX);
    for (uint32_t i = 0; i < ret->n; i++) {
        struct stack *k = &ret->v[i];
        struct fake_frame f[STACK_MAX];

        *k = (struct stack){.n = stack_rnd(stack_rnd(3) ? 8 : STACK_MAX),
                            .label = stack_rnd(N_OF(stack_labels)),
                            .t = (int64_t)stack_rnd(1000) * NS_PER_S,
                            .count = 1 + stack_rnd(5),
                            .value = stack_rnd(20) ? 1 + stack_rnd(1000)
                                                   : (INT64_C(1) << 61) + stack_rnd(1000)};
        for (uint32_t d = 0; d < k->n; d++) {
            k->f[d] = (uint8_t)(d && stack_rnd(4) == 0 ? k->f[d - 1]
                                                       : stack_rnd(variety) % N_OF(stack_frames));
            f[d] = stack_frames[k->f[d]].f;
        }
        fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = stack_labels[k->label],
                                             .t = k->t,
                                             .n_frame = k->n,
                                             .frame = f,
                                             .count = k->count,
                                             .value = k->value,
                                             .epoch = stack_rnd(2),
                                             .sub = stack_rnd(2)});
    }
    fake_store_cover(
        s, &(struct fake_cover){
               .type = PTYPE_CPU, .t1 = 1000 * NS_PER_S, .basis = BASIS_PERIODIC, .period = 10});
    return s;
}

/* ---- what a frame is ---------------------------------------------------------------------------
 */

static inline struct str stack_scope(uint8_t f)
{
    const struct fake_frame *x = &stack_frames[f].f;

    return func_scope(x->kind, x->bin, x->file);
}

static inline bool stack_same(uint8_t a, uint8_t b)
{
    return str_eq(stack_scope(a), stack_scope(b)) &&
           str_eq(stack_frames[a].f.name, stack_frames[b].f.name);
}

/* The patterns of the table above, each as a person would read it. */
static inline bool stack_hit(const char *pattern, uint8_t f)
{
    const struct fake_frame *x = &stack_frames[f].f;
    struct str name = x->name, bin = str_basename(x->bin);
    bool f012 = str_eq(name, STR("f0")) || str_eq(name, STR("f1")) || str_eq(name, STR("f2"));

    if (strcmp(pattern, "fn=f2") == 0)
        return str_eq(name, STR("f2"));
    if (strcmp(pattern, "/^f[0-2]$/") == 0)
        return f012;
    if (strcmp(pattern, "/F1/i") == 0)
        return str_eq(name, STR("f1")) || str_eq(name, STR("F1"));
    if (strcmp(pattern, "bin=libx.so") == 0)
        return str_eq(bin, STR("libx.so"));
    if (strcmp(pattern, "bin=/^lib/") == 0)
        return str_starts(bin, STR("lib"));
    if (strcmp(pattern, "file=a.py") == 0)
        return str_eq(x->file, STR("a.py"));
    if (strcmp(pattern, "file=/py$/") == 0)
        return str_ends(x->file, STR("py"));
    if (strcmp(pattern, "kind=python") == 0)
        return x->kind == FRAME_PYTHON;
    if (strcmp(pattern, "kind=/^k/") == 0)
        return x->kind == FRAME_KERNEL;
    if (strcmp(pattern, "file=one.c") == 0 || strcmp(pattern, "file=two.c") == 0)
        return str_eq(x->file, str_c(pattern + strlen("file=")));
    if (strcmp(pattern, "file=/o/") == 0)
        return str_find(x->file, 'o') != SIZE_MAX;
    if (strcmp(pattern, "kind=jit") == 0)
        return x->kind == FRAME_JIT;
    if (strcmp(pattern, "/vec</") == 0)
        return str_starts(name, STR("vec<"));
    if (strcmp(pattern, "/^\\[truncated/") == 0)
        return str_starts(name, STR("[truncated"));
    return str_eq(name, str_c(pattern));
}

/* ---- filters on lists --------------------------------------------------------------------------
 */

static inline bool stack_matches(const struct stack *k, const char *pattern)
{
    for (uint32_t i = 0; i < k->n; i++) {
        if (stack_hit(pattern, k->f[i]))
            return true;
    }
    return false;
}

/* false: the sample goes. filter: "verb:pattern". */
static inline bool stack_filter(struct stack *k, const char *filter)
{
    const char *pattern = strchr(filter, ':') + 1;
    struct stack was = *k;
    bool match = stack_matches(k, pattern);
    uint32_t from = 0;

    if (strncmp(filter, "keep:", 5) == 0)
        return match;
    if (strncmp(filter, "drop:", 5) == 0)
        return !match;
    if (strncmp(filter, "start:", 6) == 0) {
        while (from < was.n && !stack_hit(pattern, was.f[from]))
            from++;
    }
    k->n = 0;
    for (uint32_t i = from; i < was.n; i++) {
        bool hit = stack_hit(pattern, was.f[i]), goes = false;

        if (strncmp(filter, "merge:", 6) == 0)
            goes = hit;
        else if (strcmp(filter, "collapse:recursion") == 0)
            goes = i && stack_same(was.f[i], was.f[i - 1]);
        else if (strncmp(filter, "collapse:", 9) == 0)
            goes = i && hit && stack_hit(pattern, was.f[i - 1]);
        if (!goes)
            k->f[k->n++] = was.f[i];
    }
    return strncmp(filter, "start:", 6) != 0 || match;
}

struct stack_filters {
    uint32_t n;
    char text[QUERY_FILTER_MAX][40];
};

static inline void stack_filters_random(struct stack_filters *f, uint32_t max)
{
    static const char *const verbs[] = {"keep", "drop", "start", "merge", "collapse"};

    f->n = stack_rnd(max + 1);
    for (uint32_t i = 0; i < f->n; i++)
        (void)snprintf(f->text[i], sizeof f->text[i], "%s:%s", verbs[stack_rnd(5)],
                       stack_rnd(8) ? stack_patterns[stack_rnd(N_OF(stack_patterns))]
                                    : "recursion");
    for (uint32_t i = 0; i < f->n; i++) { /* "recursion" means something to collapse alone */
        if (strcmp(strchr(f->text[i], ':') + 1, "recursion") == 0)
            (void)snprintf(f->text[i], sizeof f->text[i], "collapse:recursion");
    }
}

/* What is left of each; taken[i]: 0 it stays, else number + 1 of the filter that took it. */
static inline void stacks_filter(const struct stacks *from, const struct stack_filters *f,
                                 struct stacks *ret, uint32_t *taken)
{
    ret->n = 0;
    for (uint32_t i = 0; i < from->n; i++) {
        struct stack k = from->v[i];

        taken[i] = 0;
        for (uint32_t j = 0; j < f->n && !taken[i]; j++) {
            if (!stack_filter(&k, f->text[j]))
                taken[i] = j + 1;
        }
        if (!taken[i])
            ret->v[ret->n++] = k;
    }
}

/* ---- sums by path ------------------------------------------------------------------------------
 */

struct path_sum {
    char *path;
    unit_i128 v[2];
    uint64_t samples[2];
};

struct path_sums {
    uint32_t n;
    struct path_sum *v;
};

static inline struct path_sum *path_at(struct path_sums *p, const char *path)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (strcmp(p->v[i].path, path) == 0)
            return &p->v[i];
    }
    p->v = xrealloc(p->v, (p->n + 1) * sizeof *p->v);
    p->v[p->n] = (struct path_sum){.path = xstrdup(path)};
    return &p->v[p->n++];
}

static inline void path_free(struct path_sums *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        free(p->v[i].path);
    free(p->v);
    *p = (struct path_sums){};
}

#define PATH_SIZE 4096

static inline void path_step(char *path, struct str scope, struct str name)
{
    size_t n = strlen(path);

    (void)snprintf(path + n, PATH_SIZE - n, "%.*s|%.*s;", STR_ARG(scope), STR_ARG(name));
}

static inline void path_frame(char *path, uint8_t f, bool plain)
{
    path_step(path, stack_scope(f), plain ? str_c(stack_frames[f].plain) : stack_frames[f].f.name);
}

/* Self by path of a flame graph's rows. */
static inline void path_of_rows(const struct query_flame *f, const struct query_func *func,
                                struct path_sums *ret)
{
    char path[PATH_SIZE] = "";
    size_t *end = xcalloc(f->n + 1, sizeof *end); /* length of the path at a depth */

    for (uint32_t i = 0; i < f->n; i++) {
        struct path_sum *p;

        if (f->depth[i]) {
            const struct query_func *fn = &func[f->node_func[i]];

            path[end[f->depth[i] - 1]] = '\0';
            path_step(path, fn->scope, fn->name);
        }
        end[f->depth[i]] = strlen(path);
        if (f->self[i] == 0)
            continue;
        p = path_at(ret, path);
        p->v[0] += f->self[i];
    }
    free(end);
}

static inline void path_same(struct path_sums *have, struct path_sums *want, const char *what)
{
    for (uint32_t i = 0; i < want->n; i++) {
        if (path_at(have, want->v[i].path)->v[0] != want->v[i].v[0])
            fail_msg("%s: %s: %lld, not %lld", what, want->v[i].path,
                     (long long)path_at(have, want->v[i].path)->v[0], (long long)want->v[i].v[0]);
    }
    if (have->n != want->n)
        fail_msg("%s: %u paths, not %u", what, have->n, want->n);
}

/* ---- asking ------------------------------------------------------------------------------------
 */

/* cpu over [from, to) s with filters and names. by: NULL or a label. */
static inline struct query *stacks_ask(struct store *s, const struct stack_filters *f, bool plain,
                                       const char *by)
{
    struct query_conf conf = {
        .store = s, .now = {10000 * NS_PER_S}, .mem_max = UINT64_C(1) << 30, .max_points = 11000};
    struct query_ask a = {.q = STR("cpu"),
                          .from = STR("0s"),
                          .to = STR("1000s"),
                          .need_type = true,
                          .short_names = plain,
                          .n_filter = f->n};
    struct query *ret = NULL;

    for (uint32_t i = 0; i < f->n; i++)
        a.filter[i] = str_c(f->text[i]);
    if (by)
        a.by[a.n_by++] = str_c(by);
    test_err = (struct query_err){};
    if (query_open(&conf, &a, &ret, &test_err) != 0)
        fail_msg("%s", test_err.msg);
    return ret;
}

/* Rounds of a random test: STRATA_ROUNDS, else n. */
static inline uint64_t stack_rounds(uint64_t n)
{
    uint64_t v;

    return str_u64(str_c(getenv("STRATA_ROUNDS")), &v) ? v : n;
}
