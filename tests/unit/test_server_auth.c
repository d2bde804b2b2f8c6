// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/auth.h"
#include "tests/lib/testing.h"

static char path[] = "/tmp/test_server_auth.XXXXXX";

static void put(const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void test_none(void **state)
{
    struct err err = {};
    struct auth *a = NULL;

    (void)state;
    assert_ok(auth_load("", &a, &err), &err);
    assert_false(auth_required(a));
    assert_int_equal(auth_check(a, STR(""), AUTH_ADMIN), AUTH_OK);
    auth_free(a);
}

/* sha256sum of "abc" (FIPS 180-2, B.1) and of "" (no token matches the empty one) */
#define ABC   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void test_roles(void **state)
{
    struct err err = {};
    struct auth *a = NULL;

    (void)state;
    put("# fleet\n\nfleet ingest,read " ABC "\nnobody read " EMPTY "\n", 0600);
    assert_ok(auth_load(path, &a, &err), &err);
    assert_true(auth_required(a));
    assert_int_equal(auth_check(a, STR("Bearer abc"), AUTH_INGEST), AUTH_OK);
    assert_int_equal(auth_check(a, STR("bearer  abc"), AUTH_READ), AUTH_OK);
    assert_int_equal(auth_check(a, STR("Bearer abc"), AUTH_ADMIN), AUTH_DENIED);
    assert_int_equal(auth_check(a, STR("Basic eDphYmM="), AUTH_READ), AUTH_OK);  /* x:abc */
    assert_int_equal(auth_check(a, STR("Basic YWJj"), AUTH_READ), AUTH_UNKNOWN); /* no colon */
    assert_int_equal(auth_check(a, STR("Bearer abd"), AUTH_READ), AUTH_UNKNOWN);
    assert_int_equal(auth_check(a, STR("Bearer "), AUTH_READ), AUTH_UNKNOWN);
    assert_int_equal(auth_check(a, STR("abc"), AUTH_READ), AUTH_UNKNOWN);
    assert_int_equal(auth_check(a, STR(""), AUTH_READ), AUTH_UNKNOWN);
    assert_int_equal(auth_check(a, STR(""), AUTH_NONE), AUTH_OK);
    auth_free(a);
}

static void refused(const char *text, mode_t mode, int code, const char *names)
{
    struct err err = {};
    struct auth *a = NULL;

    put(text, mode);
    assert_int_equal(auth_load(path, &a, &err), code);
    assert_null(a);
    if (!strstr(err.msg, names))
        fail_msg("\"%s\" does not name %s", err.msg, names);
}

static void test_refused(void **state)
{
    struct err err = {};
    struct auth *a = NULL;

    (void)state;
    refused("a read " ABC "\n", 0644, -EPERM, "0644");
    refused("a read " ABC "\nb reed " ABC "\n", 0600, -EINVAL, ":2: roles");
    refused("a read " ABC "0\n", 0600, -EINVAL, ":1: the third");
    refused("a read x" ABC " more\n", 0600, -EINVAL, ":1:");
    refused("# nothing\n", 0600, -EINVAL, "no token");
    assert_int_equal(auth_load("/nonexistent/tokens", &a, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_refused),
    };
    int fd = mkstemp(path), r;

    if (fd < 0)
        return 1;
    (void)close(fd);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return r;
}
