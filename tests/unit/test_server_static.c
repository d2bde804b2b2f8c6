// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/msg.h"
#include "server/static.h"
#include "tests/lib/testing.h"

static char root[] = "/tmp/test_server_static.XXXXXX";

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

static void make(const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static struct msg_reply ask(const struct static_files *s, const char *path, const char *coding)
{
    const struct msg_request q = {.path = str_c(path), .accept_encoding = str_c(coding)};
    struct msg_reply r = {};

    static_handle(s, &q, &r);
    return r;
}

#define LINE                                                                                       \
    "/ui/0123456789abcdef/js/a.js\ttext/javascript\tjs/a.js\t5\t3\n"                               \
    "/\ttext/html; charset=utf-8\tindex.html\t13\t-\n"

static void test_packed(void **state)
{
    static const char *const foreign[] = {"/..",
                                          "/ui/0123456789abcdef/../manifest.tsv",
                                          "/ui/0123456789abcdef/js/a.js/",
                                          "/ui/0123456789abcdee/js/a.js",
                                          "/manifest.tsv",
                                          "//",
                                          ""};
    struct static_files *s = NULL;
    struct err err = {};
    struct msg_reply r;

    (void)state;
    put("manifest.tsv", LINE);
    assert_ok(static_load(root, "/base", &s, &err), &err);
    assert_string_equal(static_hash(s), "0123456789abcdef");
    r = ask(s, "/ui/0123456789abcdef/js/a.js", "br");
    assert_int_equal(r.status, 200);
    assert_str(r.fixed, STR("hello"));
    assert_int_equal(r.cache, MSG_IMMUTABLE);
    assert_string_equal(r.content_type, "text/javascript");
    r = ask(s, "/ui/0123456789abcdef/js/a.js", "gzip");
    assert_str(r.fixed, STR("GZ!"));
    assert_string_equal(r.encoding, "gzip");
    r = ask(s, "/", "gzip");
    assert_str(r.fixed, STR("<a>/base</a>"));
    assert_int_equal(r.cache, MSG_NO_CACHE);
    assert_true(r.has_etag);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        r = ask(s, foreign[i], "");
        assert_int_equal(r.status, 404);
        assert_string_equal(r.content_type, "text/plain");
    }
    static_free(s);
}

static void refused(const char *manifest, int code, const char *names)
{
    struct static_files *s = NULL;
    struct err err = {};

    put("manifest.tsv", manifest);
    assert_int_equal(static_load(root, "", &s, &err), code);
    assert_null(s);
    if (!strstr(err.msg, names))
        fail_msg("\"%s\" does not name %s", err.msg, names);
}

static void test_refused(void **state)
{
    (void)state;
    refused("", -EINVAL, "empty");
    refused("/a\ttext/plain\tjs/a.js\n", -EINVAL, "manifest.tsv:1");
    refused(LINE "/a\ttext/plain\tjs/a.js\t6\t-\n", -EINVAL, "manifest.tsv:3");
    refused("/a\ttext/plain\tjs/none.js\t6\t-\n", -ENOENT, "js/none.js");
    refused("a\ttext/plain\tjs/a.js\t5\t-\n", -EINVAL, "manifest.tsv:1");
}

static void test_dev(void **state)
{
    struct static_files *s = NULL;
    struct err err = {};
    struct msg_reply r;

    (void)state;
    assert_ok(static_load_dev(root, "", &s, &err), &err);
    assert_string_equal(static_hash(s), "dev");
    r = ask(s, "/ui/dev/js/a.js", "gzip");
    assert_int_equal(r.status, 200);
    assert_str(buf_view(&r.body), STR("hello"));
    assert_int_equal(r.cache, MSG_NO_STORE);
    msg_reply_deinit(&r);
    put("js/a.js", "again");
    r = ask(s, "/ui/dev/js/a.js", "");
    assert_str(buf_view(&r.body), STR("again"));
    msg_reply_deinit(&r);
    put("js/a.js", "hello");
    r = ask(s, "/explore", "");
    assert_str(buf_view(&r.body), STR("<a></a>"));
    msg_reply_deinit(&r);
    r = ask(s, "/ui/dev/manifest.tsv", "");
    assert_int_equal(r.status, 404);
    static_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_dev),
    };
    char cmd[128];
    int r;

    if (!mkdtemp(root))
        return 1;
    make("js");
    put("js/a.js", "hello");
    put("js/a.js.gz", "GZ!");
    put("index.html", "<a>@BASE@</a>");
    r = cmocka_run_group_tests(tests, NULL, NULL);
    (void)snprintf(cmd, sizeof cmd, "rm -r %s", root);
    return system(cmd) == 0 ? r : 1;
}
