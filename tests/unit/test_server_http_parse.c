// SPDX-License-Identifier: Apache-2.0
#include "server/http_parse.h"
#include "tests/lib/testing.h"

static struct str unescape(struct arena *a, const char *in, bool plus)
{
    struct str out = {NULL, 0};

    return http_unescape(a, str_c(in), plus, &out) ? out : STR("<refused>");
}

static void test_unescape(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, 4096);
    assert_str(unescape(&a, "/a%20b", false), STR("/a b"));
    assert_str(unescape(&a, "a+b%2B", true), STR("a b+"));
    assert_str(unescape(&a, "a+b", false), STR("a+b"));
    assert_str(unescape(&a, "x%00y", false), STR("x\0y"));
    assert_str(unescape(&a, "%e2%82%AC", false), STR("\xe2\x82\xac"));
    assert_str(unescape(&a, "", false), STR(""));
    assert_str(unescape(&a, "%4", false), STR("<refused>"));
    assert_str(unescape(&a, "%", false), STR("<refused>"));
    assert_str(unescape(&a, "a%g0", false), STR("<refused>"));
    assert_str(unescape(&a, "%41", false), STR("A"));
    arena_deinit(&a);
}

static void test_params(void **state)
{
    struct msg_param v[HTTP_PARAMS_MAX];
    struct arena a;
    uint32_t n = 0;
    char many[4 * HTTP_PARAMS_MAX + 8];
    size_t at = 0;

    (void)state;
    arena_init(&a, 65536);
    assert_int_equal(http_params_parse(&a, STR("q=cpu%7b%7D&from=now-1h&&flag&e=&q=2"), v, &n), 0);
    assert_int_equal(n, 5);
    assert_str(v[0].name, STR("q"));
    assert_str(v[0].value, STR("cpu{}"));
    assert_str(v[2].name, STR("flag"));
    assert_str(v[2].value, STR(""));
    assert_str(v[3].name, STR("e"));
    assert_str(v[4].value, STR("2"));
    assert_int_equal(http_params_parse(&a, STR("a=%zz"), v, &n), HTTP_PARAMS_BAD);

    n = 0;
    for (int i = 0; i <= HTTP_PARAMS_MAX; i++) {
        memcpy(many + at, "a=1&", 4);
        at += 4;
    }
    assert_int_equal(http_params_parse(&a, (struct str){many, at - 1}, v, &n), HTTP_PARAMS_MANY);
    n = 0;
    assert_int_equal(http_params_parse(&a, (struct str){many, at - 5}, v, &n), HTTP_PARAMS_OK);
    assert_int_equal(n, HTTP_PARAMS_MAX);
    arena_deinit(&a);
}

static void test_lists(void **state)
{
    (void)state;
    assert_str(http_media_type(STR(" application/json ; charset=utf-8")), STR("application/json"));
    assert_str(http_media_type(STR("")), STR(""));
    assert_true(http_list_has(STR("gzip, deflate"), STR("gzip")));
    assert_true(http_list_has(STR("br;q=1, GZIP;q=0.5"), STR("gzip")));
    assert_false(http_list_has(STR("gzip;q=0"), STR("gzip")));
    assert_false(http_list_has(STR("gzip; q=0.000, br"), STR("gzip")));
    assert_false(http_list_has(STR("*"), STR("gzip")));
    assert_false(http_list_has(STR("xgzip"), STR("gzip")));
    assert_true(http_list_has(STR("application/json;allow-utf8=true"), STR("application/json")));
}

static void test_host(void **state)
{
    (void)state;
    assert_str(http_host_name(STR("localhost:4040")), STR("localhost"));
    assert_str(http_host_name(STR("[::1]:4040")), STR("[::1]"));
    assert_str(http_host_name(STR("a.b")), STR("a.b"));
    assert_true(http_host_valid(STR("localhost")));
    assert_true(http_host_valid(STR("a.b:65535")));
    assert_true(http_host_valid(STR("[::1]:4040")));
    assert_true(http_host_valid(STR("[::1]")));
    assert_false(http_host_valid(STR("")));
    assert_false(http_host_valid(STR(":80")));
    assert_false(http_host_valid(STR("localhost:")));
    assert_false(http_host_valid(STR("localhost:65536")));
    assert_false(http_host_valid(STR("localhost:80:80")));
    assert_false(http_host_valid(STR("localhost:80x")));
    assert_false(http_host_valid(STR("localhost:evil.example")));
    assert_false(http_host_valid(STR("[::1]evil.example")));
    assert_false(http_host_valid(STR("localhost, evil.example")));
    assert_false(http_host_valid(STR("user@localhost")));
    assert_true(http_word_in(STR("LocalHost"), STR("x localhost 127.0.0.1")));
    assert_false(http_word_in(STR("localhost.evil"), STR("localhost")));
    assert_false(http_word_in(STR("local"), STR("localhost")));
    assert_false(http_word_in(STR(""), STR("localhost")));
}

static void test_etag(void **state)
{
    (void)state;
    assert_true(http_etag_match(STR("\"00000000000000ff\""), 255));
    assert_true(http_etag_match(STR("\"x\", W/\"00000000000000ff-gzip\""), 255));
    assert_true(http_etag_match(STR("*"), 1));
    assert_false(http_etag_match(STR("\"00000000000000fe\""), 255));
    assert_false(http_etag_match(STR(""), 255));
}

static void test_base64(void **state)
{
    struct arena a;
    struct str out = {NULL, 0};

    (void)state;
    arena_init(&a, 4096);
    assert_true(http_base64(&a, STR("dXNlcjp0b2tlbg=="), &out));
    assert_str(out, STR("user:token"));
    assert_true(http_base64(&a, STR("AP+/"), &out));
    assert_str(out, STR("\x00\xff\xbf"));
    assert_true(http_base64(&a, STR(""), &out));
    assert_int_equal(out.n, 0);
    assert_false(http_base64(&a, STR("abc"), &out));
    assert_false(http_base64(&a, STR("a=bc"), &out));
    assert_false(http_base64(&a, STR("ab c"), &out));
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unescape), cmocka_unit_test(test_params),
        cmocka_unit_test(test_lists),    cmocka_unit_test(test_host),
        cmocka_unit_test(test_etag),     cmocka_unit_test(test_base64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
