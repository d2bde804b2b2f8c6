// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/cmdline.h"
#include "tests/lib/testing.h"

#define ARGS(lit) ((struct str){lit, sizeof(lit)}) /* the last NUL belongs to it */

static const struct {
    struct str args;
    const char *masked;
} masks[] = {
    {ARGS("/usr/bin/app\0-v\0x y"), "/usr/bin/app -v x y"},
    {ARGS("app\0--token\0abc\0--next"), "app --token *** --next"},
    {ARGS("app\0--api-key=abc\0z"), "app --api-key=*** z"},
    {ARGS("app\0DB_PASSWORD=abc"), "app DB_PASSWORD=***"},
    {ARGS("app\0--Secret-File\0/x\0/y"), "app --Secret-File *** /y"},
    {ARGS("app\0--auth\0--other\0v"), "app --auth --other v"},
    {ARGS("app\0http://me:pw@host/p"), "app http://me:***@host/p"},
    {ARGS("app\0--url=ftp://u:p:q@h"), "app --url=ftp://u:***@h"},
    {ARGS("app\0http://host:80/a@b"), "app http://host:80/a@b"},
    {ARGS("app\0--tok\0abc"), "app --tok abc"},
};

static void mask(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        struct buf b;

        buf_init(&b, 65536);
        cmdline_mask(masks[i].args, &b);
        assert_str(buf_view(&b), str_c(masks[i].masked));
        buf_deinit(&b);
    }
}

static void limit(void **state)
{
    char args[3 * CMDLINE_MAX];
    struct buf b;

    (void)state;
    memset(args, 'a', sizeof args);
    for (size_t i = 99; i < sizeof args; i += 100)
        args[i] = '\0';
    buf_init(&b, 65536);
    buf_cstr(&b, "before:");
    cmdline_mask((struct str){args, sizeof args}, &b);
    assert_int_equal(b.n, 7 + CMDLINE_MAX);
    buf_deinit(&b);
}

static void python(void **state)
{
    static const struct {
        const char *exe;
        struct str args;
        const char *script;
    } cases[] = {
        {"/usr/bin/python3.11", ARGS("python3\0train.py\0x"), "train"},
        {"/usr/bin/python3", ARGS("python3\0-u\0-W\0ignore\0/opt/a/serve.py"), "serve"},
        {"/usr/bin/python3", ARGS("python3\0-m\0pkg.mod\0--x"), "pkg.mod"},
        {"/usr/bin/python3", ARGS("python3\0-mpkg"), "pkg"},
        {"/usr/bin/python3", ARGS("python3\0-c\0print(1)"), ""},
        {"/usr/bin/python3", ARGS("python3\0-"), ""},
        {"/usr/bin/python3", ARGS("python3"), ""},
        {"/opt/pypy3", ARGS("pypy3\0run"), "run"},
        {"/usr/bin/pythonista", ARGS("pythonista\0train.py"), ""},
        {"/usr/bin/perl", ARGS("perl\0x.py"), ""},
        {"", ARGS(""), ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_str(cmdline_python(str_c(cases[i].exe), cases[i].args), str_c(cases[i].script));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mask), cmocka_unit_test(limit),
                                       cmocka_unit_test(python)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
