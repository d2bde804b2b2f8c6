// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "server/listen.h"
#include "tests/lib/testing.h"

static void refused(const char *address, bool loopback, int code, const char *names)
{
    struct listen_at at = {};
    struct err err = {};

    assert_int_equal(listen_open(address, loopback, &at, &err), code);
    if (!strstr(err.msg, names))
        fail_msg("\"%s\" does not name %s", err.msg, names);
}

static void test_refused(void **state)
{
    (void)state;
    refused("", true, -EINVAL, "HOST:PORT");
    refused("127.0.0.1", true, -EINVAL, "HOST:PORT");
    refused(":80", true, -EINVAL, "no host");
    refused("127.0.0.1:65536", true, -EINVAL, "HOST:PORT");
    refused("127.0.0.1:-1", true, -EINVAL, "HOST:PORT");
    refused("0.0.0.0:0", true, -EPERM, "http.tokens");
    refused("[::]:0", true, -EPERM, "http.tokens");
    refused("192.0.2.1:0", false, -EADDRNOTAVAIL, "192.0.2.1:0");
}

static void test_bound(void **state)
{
    struct listen_at a = {}, b = {};
    struct err err = {};

    (void)state;
    assert_ok(listen_open("127.0.0.1:0", true, &a, &err), &err);
    assert_true(a.loopback);
    assert_int_equal(strncmp(a.text, "127.0.0.1:", 10), 0);
    refused(a.text, true, -EADDRINUSE, a.text);
    (void)close(a.fd);
    assert_ok(listen_open(a.text, true, &b, &err), &err); /* free again at once */
    assert_string_equal(a.text, b.text);
    (void)close(b.fd);
    assert_ok(listen_open("0.0.0.0:0", false, &a, &err), &err);
    assert_false(a.loopback);
    (void)close(a.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_bound)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
