// SPDX-License-Identifier: Apache-2.0
/* Globs and rules: a table of what matches and what is captured, hostile texts and patterns. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "agent/proc/glob.h"
#include "agent/proc/rules.h"
#include "tests/lib/testing.h"

static const struct {
    const char *pattern, *text;
    const char *capture; /* joined by "|"; NULL: no match */
} globs[] = {
    {"", "", ""},
    {"", "a", NULL},
    {"a", "a", ""},
    {"a", "A", NULL},
    {"a", "ab", NULL},
    {"*", "", ""},
    {"*", "any thing", "any thing"},
    {"?", "", NULL},
    {"?", "x", "x"},
    {"??", "xy", "xy"},
    {"??", "xyz", NULL},
    {"a*", "abc", "bc"},
    {"*c", "abc", "ab"},
    {"*c", "abcd", NULL},
    {"a*c", "ac", ""},
    {"a*c", "a", NULL},
    {"aa*aa", "aaa", NULL}, /* the ends must not overlap */
    {"aa*aa", "aaaa", ""},
    {"/opt/*/bin/*", "/opt/job-7/bin/train", "job-7|train"},
    {"*-job-*", "a-job-b-job-c", "a|b-job-c"}, /* the first run takes as little as it can */
    {"*a*b*", "xxaybz", "xx|y|z"},
    {"*ab*ab", "abab", "|"},
    {"*ab*ab", "ab", NULL},
    {"*ab*ab", "abxabyab", "|xaby"}, /* the last one takes the rest */
    {"v?.?", "v1.2", "1|2"},
    {"v?.?*", "v1.23", "1|23"},
    {"a?*b", "ab", NULL}, /* one byte at least */
    {"a?*b", "axb", "x"},
    {"a*?b", "axyb", "xy"},
    {"*****", "abc", "abc"}, /* one run, one capture */
    {"a**b*?*c", "a1b2c", "1|2"},
    {"*?x?*", "axb", "a|b"},
    {"*?x?*", "xb", NULL}, /* a byte before it */
    {"\\*", "*", ""},
    {"\\*", "a", NULL},
    {"\\?\\\\", "?\\", ""},
    {"a\\bc", "abc", ""},
    {"*[a-z]", "x[a-z]", "x"}, /* no classes */
    {"*;*", "a;b;c", "a|b;c"},
};

static void glob_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++) {
        struct str capture[GLOB_CAPTURES] = {};
        struct err err = {};
        char joined[256] = "";
        struct glob *g;
        bool match;

        assert_ok(glob_new(str_c(globs[i].pattern), &g, &err), &err);
        match = glob_match(g, str_c(globs[i].text), capture);
        for (uint32_t k = 0; k < glob_captures(g); k++)
            snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s%.*s",
                     k ? "|" : "", STR_ARG(capture[k]));
        if (match != (globs[i].capture != NULL) || (match && strcmp(joined, globs[i].capture) != 0))
            fail_msg("glob \"%s\" on \"%s\": %s \"%s\"", globs[i].pattern, globs[i].text,
                     match ? "match" : "none", joined);
        glob_free(g);
    }
}

/* The definition, by trying everything: only for short texts. */
static bool slow_match(const char *p, const char *t)
{
    if (!*p)
        return !*t;
    if (*p == '*')
        return slow_match(p + 1, t) || (*t && slow_match(p, t + 1));
    return *t && (*p == '?' || *p == *t) && slow_match(p + 1, t + 1);
}

/* Two letters, short: every shape of overlap comes up. */
static void glob_random(void **state)
{
    unsigned seed = 20261130, matched = 0;

    (void)state;
    for (unsigned i = 0; i < 200000; i++) {
        char p[10], t[14];
        unsigned np = (unsigned)rand_r(&seed) % 9, nt = (unsigned)rand_r(&seed) % 13;
        struct str capture[GLOB_CAPTURES];
        struct err err = {};
        struct glob *g;

        for (unsigned k = 0; k < np; k++)
            p[k] = "ab*?a*"[(unsigned)rand_r(&seed) % 6];
        for (unsigned k = 0; k < nt; k++)
            t[k] = "ab"[(unsigned)rand_r(&seed) % 2];
        p[np] = t[nt] = 0;
        assert_ok(glob_new(str_c(p), &g, &err), &err);
        if (glob_match(g, str_c(t), capture) != slow_match(p, t))
            fail_msg("glob \"%s\" on \"%s\"", p, t);
        matched += slow_match(p, t);
        glob_free(g);
    }
    assert_true(matched > 10000);
}

static double seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Patterns that make a backtracking matcher stand still for years end. The work is counted in the
 * text's bytes: the generous limit only tells "linear" from "for ever". */
static void glob_hostile(void **state)
{
    static const char *const part[] = {"a*", "*a?", "?*", "*aab", "a?*a*", "*"};
    size_t n = (size_t)64 << 10;
    char *text = malloc(n);
    double worst = 0;

    (void)state;
    assert_non_null(text);
    memset(text, 'a', n);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        char pattern[GLOB_MAX + 1] = "";
        struct str capture[GLOB_CAPTURES];
        struct err err = {};
        struct glob *g;
        double t;

        while (strlen(pattern) + strlen(part[i]) + 1 < GLOB_MAX)
            strcat(pattern, part[i]);   // NOLINT: a test's own constants
        pattern[strlen(pattern)] = 'b'; /* nowhere in the text */
        assert_ok(glob_new(str_c(pattern), &g, &err), &err);
        t = seconds();
        assert_false(glob_match(g, (struct str){text, n}, capture));
        t = seconds() - t;
        worst = t > worst ? t : worst;
        glob_free(g);
    }
    print_message("64 KiB, worst of %zu hostile patterns: %.2f ms\n", sizeof part / sizeof *part,
                  1e3 * worst);
    assert_true(worst < 5);
    free(text);
}

static void glob_bad(void **state)
{
    char longer[GLOB_MAX + 2];
    struct glob *g;

    (void)state;
    memset(longer, 'a', sizeof longer);
    assert_int_equal(glob_new((struct str){longer, GLOB_MAX + 1}, &g, NULL), -E2BIG);
    assert_int_equal(glob_new(STR("a\\"), &g, NULL), -EINVAL);
    assert_int_equal(glob_new(STR("a\\\\\\"), &g, NULL), -EINVAL);
    assert_int_equal(glob_new(STR("a\\\\"), &g, NULL), 0);
    glob_free(g);
    glob_free(NULL);
}

/* ---- rules --------------------------------------------------------------------------------- */

/* "rule.key=value" lines */
static int make(struct rules **ret, const char *lines, struct environ_want *w, struct err *err)
{
    struct rules *r = rules_new();
    struct str rest = str_c(lines);
    int e = 0;

    environ_init(w);
    while (rest.n && e == 0) {
        size_t nl = str_find(rest, '\n');
        struct str line = str_to(rest, nl);
        size_t dot = str_find(line, '.'), eq = str_find(line, '=');
        char section[64];
        struct conf_pair p;

        snprintf(section, sizeof section, "rule %.*s", STR_ARG(str_to(line, dot)));
        p = (struct conf_pair){str_c(section), str_to(str_from(line, dot + 1), eq - dot - 1),
                               str_from(line, eq + 1)};
        e = rules_set(r, "f:1: ", &p, err);
        rest = str_from(rest, nl == SIZE_MAX ? rest.n : nl + 1);
    }
    if (e == 0)
        e = rules_finish(r, w, err);
    if (e < 0)
        r = rules_free(r);
    *ret = r;
    return e;
}

static const struct environ_var env[] = {{STR("TEAM"), STR("vision"), true},
                                         {STR("JOB_NAME"), STR("train-9"), false}};
static const struct rules_who train = {.exe = STR("/opt/job-42/bin/train"),
                                       .cmdline = STR("train --size 3 --lr 0.1"),
                                       .cgroup = STR("/kubepods/pod1/c2"),
                                       .comm = STR("train"),
                                       .service = STR("train"),
                                       .env = env,
                                       .n_env = 2};

static const struct {
    const char *lines;
    const char *want; /* "service|drop_by|k=v,..."; drop_by "-": kept */
} applied[] = {
    {"", "train|-|"},
    {"a.exe=/opt/job-*/bin/*\na.service=job-$1", "job-42|-|"},
    {"a.exe=/opt/job-*/bin/*\na.service=$2-$1-$$", "train-42-$|-|"},
    {"a.exe=/nope\na.service=x", "train|-|"},
    {"a.exe=*\na.comm=other\na.service=x", "train|-|"}, /* all must hold */
    {"a.comm=train\na.action=drop", "train|a|"},
    {"a.comm=train\na.action=keep\nb.exe=*\nb.action=drop", "train|-|"}, /* the first one wins */
    {"a.comm=train\na.label.x=1\nb.comm=*\nb.label.x=2\nb.label.y=$1", "train|-|x=1,y=train"},
    {"a.env.TEAM=*\na.label.team=$1", "train|-|team=vision"},
    {"a.env.NONE=*\na.label.team=$1", "train|-|"}, /* not set is not empty */
    {"a.cmdline=* --size ? *\na.label.size=$2", "train|-|size=3"},
    {"a.cgroup=/kubepods/pod*/*\na.label.pod=$1", "train|-|pod=1"},
    {"a.comm=*\na.service=new\nb.match.service=new\nb.label.seen=yes", "new|-|seen=yes"},
    {"a.match.exe=*\na.match.env.TEAM=v*\na.service=$2", "ision|-|"}, /* $ in the order written */
    {"a.comm=train*\na.service=$1\nb.comm=*\nb.service=b", "b|-|"},   /* an empty name is none */
    {"a.comm=train*\na.label.x=$1", "train|-|"},                      /* nor an empty label */
};

static void rules_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof applied / sizeof *applied; i++) {
        struct labels_counts counts = {};
        struct environ_want w;
        struct rules_result ret;
        struct err err = {};
        char got[512];
        struct arena a;
        struct rules *r;

        assert_ok(make(&r, applied[i].lines, &w, &err), &err);
        arena_init(&a, 1 << 16);
        rules_apply(r, &train, &a, &counts, &ret);
        snprintf(got, sizeof got, "%.*s|%s|", STR_ARG(ret.service), ret.drop ? ret.drop_by : "-");
        for (uint32_t k = 0; k < ret.n_label; k++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s=%.*s", k ? "," : "",
                     STR_ARG(ret.label[k].name), STR_ARG(ret.label[k].value));
        if (strcmp(got, applied[i].want) != 0)
            fail_msg("rules \"%s\": \"%s\", not \"%s\"", applied[i].lines, got, applied[i].want);
        arena_deinit(&a);
        rules_free(r);
    }
}

static const struct {
    const char *lines, *says;
} refused[] = {
    {"a.exe=*", "no effect"},
    {"a.action=drop", "no condition"},
    {"a.action=maybe", "is not keep or drop"},
    {"a.exe=*\na.exe=x\na.action=drop", "given twice"},
    {"a.exe=*\na.match.exe=x\na.action=drop", "given twice"},
    {"a.exe=*\na.service=$2", "$2, but its conditions have 1 runs"},
    {"a.exe=x\na.label.k=$1", "$1, but its conditions have 0 runs"},
    {"a.exe=*\na.service=$", "stands before"},
    {"a.exe=*\na.service=$0", "stands before"},
    {"a.exe=*\na.service=", "empty"},
    {"a.exe=*\na.label.=x", "no name of a label"},
    {"a.exe=*\na.label.a b=x", "no name of a label"},
    {"a.exe=*\na.label.service=x", "no name of a label"},
    {"a.colour=*", "unknown key"},
    {"a.env.=*", "unknown key"},
    {"a.env.A-B=*\na.action=drop", "no name of a variable"},
    {"a.exe=x\\\na.action=drop", "must not end"},
    {"a b.exe=x", "a rule is named"},
};

static void rules_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct environ_want w;
        struct err err = {};
        struct rules *r;

        if (make(&r, refused[i].lines, &w, &err) >= 0 || !strstr(err.msg, refused[i].says))
            fail_msg("rules \"%s\": \"%s\"", refused[i].lines, err.msg);
    }
}

/* What a rule makes of hostile texts is a label that may leave, whatever the process calls itself.
 */
static void rules_hostile(void **state)
{
    static char big[(size_t)64 << 10];
    const struct str text[] = {STR("a\nb"),     STR("\xff\xfe"), STR("a\x1b[31m"),
                               STR("\xc3\xa9"), STR("*****"),    {big, sizeof big},
                               STR("\0\0"),     STR("$1$2"),     STR("a;b,c=d\"'")};
    const char *want[] = {"a\\x0ab", "\\xff\\xfe", "a\\x1b[31m", "\xc3\xa9",  "*****",
                          NULL,      "\\x00\\x00", "$1$2",       "a;b,c=d\"'"};
    struct environ_want w;
    struct err err = {};
    struct rules *r;

    (void)state;
    memset(big, 'x', sizeof big);
    assert_ok(make(&r, "a.comm=*\na.service=$1\na.label.l=$1", &w, &err), &err);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        struct labels_counts counts = {};
        struct rules_who who = train;
        struct rules_result ret;
        struct arena a;

        who.comm = text[i];
        arena_init(&a, 1 << 18);
        rules_apply(r, &who, &a, &counts, &ret);
        assert_true(ret.service.n <= LABELS_VALUE && str_utf8_ok(ret.service));
        assert_int_equal(ret.n_label, 1);
        assert_str(ret.label[0].value, ret.service);
        if (want[i])
            assert_str(ret.service, str_c(want[i]));
        else
            assert_int_equal(counts.cut, 2);
        arena_deinit(&a);
    }
    rules_free(r);
}

static void selected(void **state)
{
    static const struct {
        const char *include, *exclude, *rule;
        const char *by; /* "": profiled */
    } t[] = {{"", "", "", ""},
             {"train", "", "", ""},
             {"other", "", "", "select.include"},
             {"other,service=tr*", "", "", ""},
             {"exe=/opt/*", "", "", ""},
             {"", "cgroup=/kubepods/*", "", "select.exclude"},
             {"train", "train", "", "select.exclude"},
             {"job", "", "a.comm=*\na.service=job", ""}, /* of the service after the rules */
             {"other", "", "a.comm=*\na.action=keep", ""},
             {"", "*", "a.comm=*\na.action=keep", ""}};
    struct rules *r;
    struct err err = {};

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct labels_counts counts = {};
        struct rules_result ret;
        struct environ_want w;
        struct arena a;

        assert_ok(make(&r, t[i].rule, &w, &err), &err);
        assert_ok(rules_select(r, t[i].include, t[i].exclude, &err), &err);
        arena_init(&a, 1 << 16);
        rules_apply(r, &train, &a, &counts, &ret);
        assert_int_equal(ret.drop, t[i].by[0] != 0);
        if (t[i].by[0])
            assert_string_equal(ret.drop_by, t[i].by);
        arena_deinit(&a);
        rules_free(r);
    }
    r = rules_new();
    assert_int_equal(rules_select(r, "comm=x", "", &err), -EINVAL);
    rules_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(glob_table),    cmocka_unit_test(glob_random),
        cmocka_unit_test(glob_hostile),  cmocka_unit_test(glob_bad),
        cmocka_unit_test(rules_table),   cmocka_unit_test(rules_refused),
        cmocka_unit_test(rules_hostile), cmocka_unit_test(selected)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
