// SPDX-License-Identifier: Apache-2.0
/* The allow-list of variables, label texts, and the labels of a process. */
#include <errno.h>

#include "agent/proc/who.h"
#include "tests/lib/testing.h"

static struct arena a;

static int set_up(void **state)
{
    (void)state;
    arena_init(&a, 1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_deinit(&a);
    return 0;
}

static void allow_list(void **state)
{
    static const char block[] = "PATH=/bin\0SECRET=x\0RANK=3\0RANK=4\0TEAM=blue\0HOSTNAME=h\0NOEQ\0"
                                "STRATA_SERVICE=s\0WORLD_SIZE=";
    struct environ_var v[ENVIRON_MAX];
    struct environ_want w;
    struct err err = {};
    uint32_t n;

    (void)state;
    environ_init(&w);
    assert_ok(environ_allow(&w, STR("RANK, WORLD_SIZE,RANK"), &err), &err);
    assert_ok(environ_look(&w, STR("TEAM"), &err), &err);
    assert_ok(environ_look(&w, STR("RANK"), &err), &err); /* still leaves the host */
    n = environ_pick(&w, (struct str){block, sizeof block - 1}, &a, v);
    assert_int_equal(n, 5);
    assert_str(environ_get(v, n, STR("RANK")), STR("3")); /* as getenv: the first */
    assert_str(environ_get(v, n, STR("SECRET")), STR(""));
    assert_str(environ_get(v, n, STR("WORLD_SIZE")), STR(""));
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(v[i].local,
                         str_eq(v[i].name, STR("TEAM")) || str_eq(v[i].name, STR("HOSTNAME")));
    assert_int_equal(environ_allow(&w, STR("A=B"), &err), -EINVAL);
    assert_int_equal(environ_allow(&w, STR("A,,B"), &err), -EINVAL);
    for (unsigned i = 0; i < ENVIRON_MAX; i++) {
        char name[16];
        int r;

        snprintf(name, sizeof name, "V%u", i);
        r = environ_look(&w, str_c(name), NULL);
        assert_true(r == 0 || r == -E2BIG);
    }
    assert_int_equal(w.n, ENVIRON_MAX);
}

/* An environment that is no environment. */
static void hostile_block(void **state)
{
    static char big[ENVIRON_BYTES];
    struct environ_var v[ENVIRON_MAX];
    struct environ_want w;
    uint32_t n;

    (void)state;
    environ_init(&w);
    memset(big, 'x', sizeof big); /* no NUL at all */
    memcpy(big, "STRATA_LABELS=", 14);
    n = environ_pick(&w, (struct str){big, sizeof big}, &a, v);
    assert_int_equal(n, 1);
    assert_int_equal(v[0].value.n, ENVIRON_VALUE);
    memset(big, 0, sizeof big);
    assert_int_equal(environ_pick(&w, (struct str){big, sizeof big}, &a, v), 0);
    memset(big, '=', sizeof big);
    assert_int_equal(environ_pick(&w, (struct str){big, sizeof big}, &a, v), 0);
    assert_int_equal(environ_pick(&w, (struct str){NULL, 0}, &a, v), 0);
}

static void texts(void **state)
{
    static char long_name[LABELS_NAME + 1], value[LABELS_VALUE + 1], other[LABELS_VALUE + 1];
    struct labels_counts n = {};
    struct str s, t;

    (void)state;
    memset(long_name, 'a', sizeof long_name);
    assert_true(labels_name_ok((struct str){long_name, LABELS_NAME}));
    assert_false(labels_name_ok((struct str){long_name, LABELS_NAME + 1}));
    assert_true(labels_name_ok(STR("k8s.io/team-a_1")));
    for (size_t i = 0; i < 6; i++) {
        static const char *const bad[] = {"", "1a", "a b", "a\xff", "-a", "a=b"};

        assert_false(labels_name_ok(str_c(bad[i])));
    }
    memset(value, 'v', sizeof value);
    memcpy(other, value, sizeof value);
    other[LABELS_VALUE] = 'w';
    assert_str(labels_value((struct str){value, LABELS_VALUE}, &a, &n),
               ((struct str){value, LABELS_VALUE}));
    assert_int_equal(n.cut + n.bad_text, 0);
    s = labels_value((struct str){value, sizeof value}, &a, &n);
    t = labels_value((struct str){other, sizeof other}, &a, &n);
    assert_int_equal(n.cut, 2);
    assert_int_equal(s.n, LABELS_VALUE);
    assert_int_equal(s.p[LABELS_VALUE - 9], '~');
    assert_false(str_eq(s, t)); /* what differs stays different */
    assert_str(labels_value(STR("a\tb\x7f\xed\xa0\x80"), &a, &n),
               STR("a\\x09b\\x7f\\xed\\xa0\\x80"));
    assert_int_equal(n.bad_text, 1);
    for (size_t i = 0; i < sizeof value; i++) /* cut between characters, never in one */
        value[i] = i % 2 ? '\xa9' : '\xc3';
    s = labels_value((struct str){value, sizeof value - 1}, &a, &n);
    assert_true(str_utf8_ok(s));
}

static struct str get(const struct label *l, uint32_t n, struct str name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (str_eq(l[i].name, name))
            return l[i].value;
    }
    return (struct str){NULL, 0};
}

static void labels(void **state)
{
    struct procread_facts f = {.container = STR("0123456789abcdef0123456789abcdef"
                                                "0123456789abcdef0123456789abcdef")};
    struct rules_result rules = {.n_label = 1, .label = {{STR("rank"), STR("rule")}}};
    struct labels_counts n = {};
    struct environ_want w;
    struct label l[LABELS_MAX];
    struct err err = {};
    uint32_t k;

    (void)state;
    environ_init(&w);
    assert_ok(environ_allow(&w, STR("RANK,GPU_POOL"), &err), &err);
    f.env[0] = (struct environ_var){STR("RANK"), STR("3"), false};
    f.env[1] = (struct environ_var){STR("GPU_POOL"), STR("a100"), false};
    f.env[2] = (struct environ_var){STR("STRATA_LABELS"),
                                    STR("team=x, service=evil,bad,b ad=1,rank=9,n=\x01"), false};
    f.env[3] = (struct environ_var){STR("HOSTNAME"), STR("0123456789ab"), true};
    f.n_env = 4;
    k = who_labels(&f, &w, STR("svc"), NULL, &a, &n, l);
    assert_str(l[0].name, STR("service"));
    assert_str(l[0].value, STR("svc")); /* not to be had by STRATA_LABELS */
    assert_str(get(l, k, STR("rank")), STR("3"));
    assert_str(get(l, k, STR("gpu_pool")), STR("a100"));
    assert_str(get(l, k, STR("team")), STR("x"));
    assert_str(get(l, k, STR("n")), STR("\\x01"));
    assert_str(get(l, k, STR("container_name")), STR("")); /* Docker's default: the id's begin */
    assert_str(get(l, k, STR("pod")), STR(""));
    assert_int_equal(n.bad_name, 2);
    assert_int_equal(n.bad_text, 1);
    f.env[3].value = STR("db-1");
    k = who_labels(&f, &w, STR("svc"), &rules, &a, &n, l);
    assert_str(get(l, k, STR("rank")), STR("rule")); /* rules come first */
    assert_str(get(l, k, STR("container_name")), STR("db-1"));
    f.pod = STR("0b5c0000-0000-0000-0000-000000000000");
    k = who_labels(&f, &w, STR(""), NULL, &a, &n, l);
    assert_str(get(l, k, STR("pod")), STR("db-1"));
    assert_str(get(l, k, STR("container_name")), STR(""));
    assert_str(l[0].value, STR("unknown"));
}

/* More than there is room for: the first ones stay, the rest is counted. */
static void many_labels(void **state)
{
    char list[ENVIRON_VALUE + 1] = "";
    struct procread_facts f = {.n_env = 1};
    struct labels_counts n = {};
    struct label l[LABELS_MAX];
    uint32_t k;

    (void)state;
    for (unsigned i = 0; i < 40; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "l%u=1,", i);
    f.env[0] = (struct environ_var){STR("STRATA_LABELS"), str_c(list), false};
    k = who_labels(&f, NULL, STR("svc"), NULL, &a, &n, l);
    assert_int_equal(k, 1 + 16);
    assert_true(n.too_many > 10);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {T(allow_list), T(hostile_block), T(texts), T(labels),
                                       T(many_labels)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
