// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/memory.h"
#include "tests/lib/testing.h"

static char root[] = "/tmp/test_server_memory.XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static uint64_t limit(void)
{
    char proc[256];

    (void)snprintf(proc, sizeof proc, "%s/cgroup", root);
    return memory_cgroup_limit(root, proc);
}

static void test_cgroup(void **state)
{
    char path[256];

    (void)state;
    assert_int_equal(limit(), 0); /* no such file */
    put("cgroup", "12:cpu:/x\n0::/a/b\n");
    (void)snprintf(path, sizeof path, "%s/a", root);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/a/b", root);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(limit(), 0);
    put("a/b/memory.max", "max\n");
    assert_int_equal(limit(), 0);
    put("a/memory.max", "1073741824\n");
    assert_int_equal(limit(), 1073741824); /* the parent's counts too */
    put("a/b/memory.max", "536870912\n");
    assert_int_equal(limit(), 536870912);
    put("cgroup", "0::/\n");
    put("memory.max", "99\n");
    assert_int_equal(limit(), 99);
}

static void test_plan(void **state)
{
    const uint64_t mib = UINT64_C(1) << 20;
    struct memory_plan p;
    struct err err = {};

    (void)state;
    assert_ok(memory_plan_make(1024 * mib, &p, &err), &err);
    assert_int_equal(p.ingest, 256 * mib);
    assert_int_equal(p.head, 256 * mib);
    assert_int_equal(p.query, 256 * mib);
    assert_int_equal(p.dict, 128 * mib);
    assert_int_equal(p.cache, 64 * mib);
    assert_true(p.ingest + p.head + p.query + p.dict + p.cache < p.total);
    assert_ok(memory_plan_make(16384 * mib, &p, &err), &err);
    assert_int_equal(p.ingest, 384 * mib);
    assert_int_equal(p.cache, 256 * mib);
    assert_int_equal(memory_plan_make(255 * mib, &p, &err), -ENOMEM);
    assert_non_null(strstr(err.msg, "limits.memory is 255 MiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cgroup), cmocka_unit_test(test_plan)};
    char cmd[128];
    int r;

    if (!mkdtemp(root))
        return 1;
    r = cmocka_run_group_tests(tests, NULL, NULL);
    (void)snprintf(cmd, sizeof cmd, "rm -r %s", root);
    return system(cmd) == 0 ? r : 1;
}
