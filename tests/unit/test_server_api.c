// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "tests/lib/api_test.h"

/*
 * The JSON API, from parameters to bytes. The golden answers are compared byte for byte;
 * UPDATE_GOLDEN=1 writes them anew.
 */

/* ---- the example of ten rows -------------------------------------------------------------------
 */

#define T0 (1764417600 * S)

static void sample(const char *stack, int64_t value)
{
    fake_store_row(store, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = "service=demo,host=h1",
                                             .t = T0 + 10 * S,
                                             .stack = stack,
                                             .count = (uint64_t)value / 10,
                                             .value = value,
                                             .pid = 42,
                                             .tid = 43});
}

static void example(void)
{
    setup(fake_store_new());
    sample("n:main#/usr/bin/demo;p:train@train.py:7;p:forward@a.py:1", 300);
    sample("n:main#/usr/bin/demo;p:train@train.py:8;p:forward@b.py:1", 150);
    sample("n:main#/usr/bin/demo;p:train@train.py:9;p:step@train.py:30", 50);
    sample("n:main#/usr/bin/demo;n:read#/lib/libc.so.6", 300);
    sample("n:main#/usr/bin/demo;n:alloc#/usr/bin/demo", 20);
    sample("n:main#/usr/bin/demo;n:alloc#/usr/bin/demo;n:grow#/usr/bin/demo", 40);
    sample("n:main#/usr/bin/demo;n:release#/usr/bin/demo", 40);
    sample("o:[truncated];n:memcpy#/lib/libc.so.6", 100);
    fake_store_cover(store, &(struct fake_cover){.type = PTYPE_CPU,
                                                 .labels = "host=h1",
                                                 .t0 = T0,
                                                 .t1 = T0 + 60 * S,
                                                 .basis = BASIS_PERIODIC,
                                                 .period = 10,
                                                 .expected = 102,
                                                 .received = 100,
                                                 .lost_why = "ring_full",
                                                 .lost_n = 2,
                                                 .lost_weight = 20,
                                                 .skew_ns = -3});
}

#define RANGE "q=cpu&from=1764417600s&to=1764417720s"
/* nothing, covered, against all there is */
#define DIFF "a_q=cpu&a_from=1764417640s&a_to=1764417660s&b_from=1764417600s&b_to=1764417620s"

static void flame_example(void **state)
{
    (void)state;
    example();
    handle("/api/v1/flamegraph", RANGE "&width=10&match=forward&hash=1");
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply.content_type, "application/json");
    want("\"strings\":[\"\",\"all\",\"main\",\"demo\",\"train\",\"train.py\",\"forward\",\"a.py\","
         "\"b.py\",\"read\",\"libc.so.6\",\"[truncated]\",\"memcpy\"]");
    want("\"func\":{\"name\":[1,2,4,6,6,9,11,12],\"file\":[0,0,5,7,8,0,0,0],"
         "\"bin\":[0,3,0,0,0,10,0,10],\"kind\":[\"\",\"native\",\"python\",\"python\",\"python\","
         "\"native\",\"other\",\"native\"],\"key\":[\"0000000000000000\",\"48046b589efdba3f\","
         "\"0e0c6c68ea670ee4\",\"7945efdb258ff2cc\",\"ab84f3a85bca27b7\",\"b85400f7a3bbf68d\","
         "\"0f8cedfe789e490c\",\"387a3e92c11fd04d\"]}");
    want("\"n\":10,\"node\":{\"depth\":[0,1,2,3,3,3,2,2,1,2],\"func\":[0,1,2,3,4,-1,5,-1,6,7],"
         "\"self\":[0,0,0,300,150,50,300,100,0,100],"
         "\"total\":[1000,900,500,300,150,50,300,100,100,100],"
         "\"samples\":[100,90,50,30,15,5,30,10,10,10],\"hidden\":[0,0,0,0,0,1,0,3,0,0]");
    want("\"5787e0e66f178936\",\"639f4652fa8cc9fe\",\"143184d9ecd195e9\"");
    want("\"24b39400f5f3ca05\"");
    want("\"trim\":{\"floor\":\"100\",\"hidden_nodes\":4,\"hidden_total\":\"150\"}");
    want("\"matched\":{\"functions\":2,\"view\":\"450\",\"total\":\"450\",\"samples\":\"45\","
         "\"func\":[3,4]}");
    want("\"lost\":[{\"why\":\"ring_full\",\"n\":\"2\",\"weight\":\"20\"}]");
    want("\"se\":\"100\"");
    want("\"asked_ns\":\"120000000000\",\"covered_ns\":\"60000000000\"");
    want("\"gaps\":[[\"1764417660000000000\",\"1764417720000000000\",\"not_covered\"]]");
    want("\"empty\":null");
    golden("flamegraph.json");
    teardown();
}

static void hash_keys(void **state)
{
    (void)state;
    assert_true(hash_zoom(hash_zoom(0, 1), 2) == 0xa1b6937b60dc0b54);
    assert_true(hash_zoom(0, 1) == 0x5692161d100b05e5);
}

static void flame_zoomed(void **state)
{
    (void)state;
    example();
    handle("/api/v1/flamegraph", RANGE "&root=639f4652fa8cc9fe&numbers=string&order=name");
    assert_int_equal(reply.status, 200);
    want("\"view\":{\"root\":\"639f4652fa8cc9fe\",\"asked\":\"639f4652fa8cc9fe\",\"found\":true,"
         "\"path\":[{\"func\":0,\"node\":\"0\"},{\"func\":1,\"node\":\"5787e0e66f178936\"},"
         "{\"func\":2,\"node\":\"639f4652fa8cc9fe\"}],\"total\":\"500\"}");
    want("\"total\":[\"500\",\"300\",\"150\",\"50\"]");
    golden("flamegraph_zoomed.json");
    handle("/api/v1/flamegraph", RANGE "&root=00000000000000ff");
    want("\"view\":{\"root\":\"0\",\"asked\":\"00000000000000ff\",\"found\":false,\"path\":[]");
    teardown();
}

static void other_answers(void **state)
{
    static const struct {
        const char *path, *query, *file;
    } ask[] = {
        {"/api/v1/top", RANGE "&match=/o/&any=libc&any=bin=libc&limit=4", "top.json"},
        {"/api/v1/top", RANGE "&by=host&limit=2&f=drop:release", "top_by.json"},
        {"/api/v1/top", RANGE "&key=line&sort=total&limit=6", "top_line.json"},
        {"/api/v1/sandwich", RANGE "&fn=main&bin=demo&width=10", "sandwich.json"},
        {"/api/v1/sandwich", RANGE "&fn=forward&f=merge:file=a.py", "sandwich_filtered.json"},
        {"/api/v1/flamegraph", RANGE "&f=start:train&f=merge:kind=native&max_nodes=0",
         "flamegraph_filtered.json"},
        {"/api/v1/flamegraph", RANGE "&f=keep:nothing", "filtered_out.json"},
        {"/api/v1/diff", DIFF "&width=10", "diff.json"},
        {"/api/v1/diff", DIFF "&view=top&norm=share&limit=3", "diff_top.json"},
        {"/api/v1/diff", DIFF "&b_q=cpu{host=\"none\"}", "diff_not_covered.json"},
        {"/api/v1/timeseries", RANGE "&bucket=20s&f=keep:/^f/", "timeseries_filtered.json"},
        {"/api/v1/timeseries", RANGE "&bucket=20s&by=host", "timeseries.json"},
        {"/api/v1/timeseries", RANGE "&bucket=20s&rate=1", "timeseries_rate.json"},
        {"/api/v1/types", "from=1764417600s&to=1764417720s", "types.json"},
        {"/api/v1/labels", "from=1764417600s&to=1764417720s", "labels.json"},
        {"/api/v1/labels/service/values", "from=1764417600s&to=1764417720s", "values.json"},
        {"/api/v1/targets", "from=1764417600s&to=1764417720s", "targets.json"},
        {"/api/v1/status", "", "status.json"},
        {"/api/v1/export", RANGE "&format=folded&lost=frame", "export.folded"},
        {"/api/v1/export", RANGE "&format=svg&lost=frame", "export.svg"},
        {"/api/v1/export", RANGE "&format=text", "export.txt"},
        {"/api/v1/export", RANGE "&format=text&f=keep:forward&f=merge:train",
         "export_filtered.txt"},
        {"/api/v1/export", RANGE "&format=speedscope&lost=frame", "export.speedscope.json"},
        {"/api/v1/export", RANGE "&format=pprof", "export.pb"},
        {"/api/v1/flamegraph", "q=cpu&from=1764417000s&to=1764417060s", "not_covered.json"},
        {"/api/v1/flamegraph", "q=cpu&from=1764417630s&to=1764417640s", "zero.json"},
    };

    (void)state;
    example();
    for (size_t i = 0; i < sizeof ask / sizeof ask[0]; i++) {
        handle(ask[i].path, ask[i].query);
        if (reply.status != 200)
            fail_msg("%s?%s: %.*s", ask[i].path, ask[i].query, STR_ARG(buf_view(&reply.body)));
        golden(ask[i].file);
    }
    teardown();
}

static void report(void **state)
{
    (void)state;
    example();
    accept = STR("text/html, text/plain;q=0.9");
    handle("/api/v1/flamegraph", RANGE);
    accept = (struct str){NULL, 0};
    assert_string_equal(reply.content_type, "text/plain; charset=utf-8");
    want("cpu nanoseconds, sum\nrange: 2025-11-29T12:00:00Z to 2025-11-29T12:02:00Z\n"
         "covered: 60.000 s of 120.000 s (50.0 %), sources: 1\n"
         "lost: ring_full, 20 nanoseconds, n = 2\n");
    want("forward  [a.py]");
    teardown();
}

/* ---- refusals ----------------------------------------------------------------------------------
 */

static void refusals(void **state)
{
    (void)state;
    example();
    handle("/api/v1/nothing", "");
    refused(404, "unknown_route", NULL);
    handle("/api/v1/labels//values", "");
    refused(404, "unknown_route", NULL);
    handle("/api/v1/flamegraph", "q=cpu&width=10&colour=red");
    refused(400, "unknown_parameter", "\"param\":\"colour\"");
    handle("/api/v1/flamegraph", "q=cpu&q=live");
    refused(400, "bad_parameter", "\"param\":\"q\"");
    handle("/api/v1/flamegraph", "");
    refused(400, "type_required", "\"param\":\"q\"");
    handle("/api/v1/flamegraph", "q=nothing");
    refused(404, "unknown_type", NULL);
    handle("/api/v1/flamegraph", "q=cpu{a");
    refused(400, "bad_selector", "position 6");
    handle("/api/v1/flamegraph", "q=cpu&from=1764417600");
    refused(400, "bad_time", "\"param\":\"from\"");
    handle("/api/v1/flamegraph", "q=cpu&from=now&to=now-1m");
    refused(400, "bad_range", NULL);
    handle("/api/v1/flamegraph", "q=cpu&width=many");
    refused(400, "bad_parameter", "\"param\":\"width\"");
    handle("/api/v1/flamegraph", "q=cpu&max_nodes=1");
    refused(400, "bad_parameter", "\"param\":\"max_nodes\"");
    handle("/api/v1/flamegraph", "q=cpu&max_nodes=2000000");
    refused(400, "bad_parameter", "\"param\":\"max_nodes\"");
    handle("/api/v1/flamegraph", "q=cpu&root=xyz");
    refused(400, "bad_parameter", "\"param\":\"root\"");
    handle("/api/v1/flamegraph", "q=cpu&timeout=5m");
    refused(400, "bad_parameter", "\"param\":\"timeout\"");
    handle("/api/v1/flamegraph", "q=cpu&by=a,b,c,d");
    refused(400, "bad_parameter", "\"param\":\"by\"");
    handle("/api/v1/flamegraph", "q=cpu&f=hide:main");
    refused(400, "bad_parameter", "\"param\":\"f\"");
    handle("/api/v1/timeseries", "q=cpu&f=keep:/(/");
    refused(400, "bad_pattern", "\"param\":\"f\"");
    handle("/api/v1/diff", "a_q=cpu&b_q=cpu{a");
    refused(400, "bad_selector", "\"param\":\"b_q\"");
    handle("/api/v1/diff", "b_q=cpu");
    refused(400, "type_required", "\"param\":\"a_q\"");
    handle("/api/v1/diff", "a_q=cpu&a_from=now&a_to=now-1m");
    refused(400, "bad_range", "\"param\":\"a_from\"");
    handle("/api/v1/diff", "a_q=cpu&b_q=offcpu");
    refused(422, "types_differ", "\"param\":\"b_q\"");
    handle("/api/v1/diff", "a_q=live&norm=second");
    refused(422, "norm_not_for_level", "\"param\":\"norm\"");
    handle("/api/v1/diff", "a_q=live&norm=step");
    refused(422, "norm_not_for_level", "\"param\":\"norm\"");
    handle("/api/v1/diff", "a_q=cpu&b_step=train:5-4");
    refused(400, "bad_parameter", "\"param\":\"b_step\"");
    handle("/api/v1/diff", "q=cpu");
    refused(400, "unknown_parameter", "\"param\":\"q\"");
    handle("/api/v1/sandwich", "q=cpu");
    refused(400, "bad_parameter", "\"param\":\"fn\"");
    handle("/api/v1/sandwich", "q=cpu&fn=main&by=host");
    refused(400, "unknown_parameter", "\"param\":\"by\"");
    handle("/api/v1/flamegraph", "q=cpu&step=train:5-4");
    refused(400, "bad_parameter", "\"param\":\"step\"");
    handle("/api/v1/flamegraph", "q=cpu&names=raw");
    refused(422, "not_supported", "\"param\":\"names\"");
    handle("/api/v1/flamegraph", "q=live&agg=peak");
    refused(422, "not_supported", "\"param\":\"agg\"");
    handle("/api/v1/top", "q=cpu&key=colour");
    refused(400, "bad_parameter", "\"param\":\"key\"");
    handle("/api/v1/top", "q=cpu&after=xyz");
    refused(400, "bad_parameter", "\"param\":\"after\"");
    handle("/api/v1/timeseries", "q=cpu&points=20000");
    refused(400, "bad_parameter", "\"limit\":11000,\"actual\":20000");
    handle("/api/v1/timeseries", "q=cpu&bucket=1us");
    refused(400, "bad_parameter", "\"param\":\"bucket\"");
    handle("/api/v1/timeseries", "q=live&rate=1");
    refused(400, "bad_parameter", "\"param\":\"rate\"");
    handle("/api/v1/export", "q=cpu");
    refused(400, "bad_parameter", "\"param\":\"format\"");
    handle("/api/v1/export", "q=cpu&format=pprof&root=1");
    refused(422, "not_supported", "\"param\":\"root\"");
    teardown();
}

static void method(void **state)
{
    struct msg_request q = {.method = STR("DELETE"), .path = STR("/api/v1/types")};

    (void)state;
    example();
    api_handle(api, &q, &reply);
    assert_int_equal(reply.status, 405);
    assert_string_equal(reply.allow, "GET, HEAD, POST");
    teardown();
}

static void bombs(void **state)
{
    static char name[2000];
    struct msg_param p[4] = {{STR("q"), STR("cpu{service=~\"(a+)+$\"}")},
                             {STR("from"), STR("1764417600s")},
                             {STR("to"), STR("1764417720s")}};
    struct fake_frame f = {.kind = FRAME_NATIVE};
    static char label[200] =
        "service=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";
    mono_ns start = mono_now();

    (void)state;
    example();
    fake_store_row(
        store,
        &(struct fake_row){
            .type = PTYPE_CPU, .labels = label, .t = T0, .stack = "n:x#x", .count = 1, .value = 1});
    handle_params("/api/v1/flamegraph", p, 3);
    refused(422, "regex_too_expensive", "\"param\":\"q\"");
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 2] = '!';
    f.name = str_c(name);
    fake_store_row(store, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = "service=demo",
                                             .t = T0,
                                             .frame = &f,
                                             .n_frame = 1,
                                             .count = 1,
                                             .value = 1});
    p[0].value = STR("cpu");
    p[3] = (struct msg_param){STR("match"), STR("/(a+)+$/")};
    handle_params("/api/v1/flamegraph", p, 4);
    refused(422, "regex_too_expensive", "\"param\":\"match\"");
    handle_params("/api/v1/top", p, 4);
    refused(422, "regex_too_expensive", "\"param\":\"match\"");
    p[3].name = STR("any");
    handle_params("/api/v1/top", p, 4);
    refused(422, "regex_too_expensive", "\"param\":\"any\"");
    memset(name, '(', sizeof name - 1);
    p[3].value = (struct str){name, 1999};
    p[3].value.n = 500;
    handle_params("/api/v1/top", p, 4); /* a text, however odd */
    assert_int_equal(reply.status, 200);
    assert_true(mono_now().v - start.v < 5 * S);
    teardown();
}

/* ---- caching -----------------------------------------------------------------------------------
 */

static void caching(void **state)
{
    char tag[24];
    uint64_t etag;

    (void)state;
    example();
    handle("/api/v1/flamegraph", RANGE);
    assert_true(reply.has_etag && reply.cache == MSG_NO_CACHE);
    etag = reply.etag;
    handle("/api/v1/flamegraph", "to=1764417720s&from=1764417600s&q=cpu");
    assert_true(reply.etag == etag); /* the order does not matter */
    handle("/api/v1/flamegraph", RANGE "&width=11");
    assert_true(reply.etag != etag);
    (void)snprintf(tag, sizeof tag, "W/\"%016llx\"", (unsigned long long)etag);
    if_none_match = str_c(tag);
    handle("/api/v1/flamegraph", RANGE);
    assert_int_equal(reply.status, 304);
    assert_int_equal(reply.body.n, 0);
    sample("n:main#/usr/bin/demo", 10); /* new data */
    handle("/api/v1/flamegraph", RANGE);
    assert_int_equal(reply.status, 200);
    assert_true(reply.etag != etag);
    if_none_match = (struct str){NULL, 0};
    handle("/api/v1/flamegraph", "q=cpu&from=now-10m");
    assert_true(!reply.has_etag && reply.cache == MSG_NO_STORE);
    handle("/api/v1/flamegraph", "q=cpu&from=1763000000s&to=1763100000s"); /* beyond the age */
    assert_int_equal(reply.cache, MSG_DAY);
    teardown();
}

/* ---- hostile names -----------------------------------------------------------------------------
 */

static void hostile(void **state)
{
    static const struct str name[] = {STR("\xff\xfe"),
                                      STR("\xc0\x80"),
                                      STR("a\0b"),
                                      STR("a;b"),
                                      STR("a\nb\r"),
                                      STR("a\\b"),
                                      STR("\xe2\x80\xae evil"),
                                      STR("</script><script>alert(1)</script>"),
                                      STR("<svg onload=\"x\" a='b'>&amp;"),
                                      STR("\x1b[31m"),
                                      STR("\xef\xbf\xbf"),
                                      STR("")};
    static const char folded[] = "\xff\xfe 1\n\xc0\x80 2\na\\x00b 4\na\\x3bb 8\n"
                                 "a\\x0ab\\x0d 16\na\\x5cb 32\n";

    (void)state;
    setup(fake_store_new());
    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
        struct fake_frame f = {.kind = FRAME_NATIVE, .name = name[i], .bin = STR("/x")};

        fake_store_row(store, &(struct fake_row){.type = PTYPE_CPU,
                                                 .labels = "service=s",
                                                 .t = T0,
                                                 .frame = &f,
                                                 .n_frame = 1,
                                                 .count = 1,
                                                 .value = INT64_C(1) << i});
    }
    handle("/api/v1/flamegraph", RANGE "&max_nodes=0");
    assert_int_equal(reply.status, 200);
    assert_true(str_utf8_ok(buf_view(&reply.body)));
    want("\"n\":13,");
    want("\"a\\u0000b\"");
    want("\\u003c/script>");
    assert_false(says("<"));
    want("\"raw\":{");
    want("\"//4=\""); /* FF FE */
    want("\"wIA=\""); /* C0 80 */
    handle("/api/v1/export", RANGE "&format=folded&order=value");
    for (size_t i = 0; i < sizeof folded - 1;) { /* in falling order there, in rising order here */
        struct str rest = {folded + i, sizeof folded - 1 - i};
        size_t n = str_find(rest, '\n') + 1;

        assert_non_null(memmem(reply.body.p, reply.body.n, rest.p, n));
        i += n;
    }
    assert_non_null(memmem(reply.body.p, reply.body.n, " 2048\n", 6));
    handle("/api/v1/export", RANGE "&format=svg");
    assert_true(str_utf8_ok(buf_view(&reply.body)));
    assert_false(says("<script"));
    assert_false(says("onload=\""));
    assert_false(says("\x1b"));
    assert_false(says("\xef\xbf\xbf"));
    want("&lt;/script&gt;");
    want("a\\x00b");
    handle("/api/v1/top", RANGE);
    assert_true(str_utf8_ok(buf_view(&reply.body)));
    handle("/api/v1/flamegraph", RANGE "&match=</script");
    want("\"matched\":{\"functions\":1,\"view\":\"128\"");
    teardown();
}

static void hostile_labels(void **state)
{
    struct msg_param p[3] = {{STR("q"), STR("cpu{service=\"'; DROP TABLE x;--\"}")},
                             {STR("from"), STR("1764417600s")},
                             {STR("to"), STR("1764417720s")}};
    static const char *const other[] = {
        "cpu{service=\"%\"}", "cpu{service=\"_'; DROP TABLE x;--\"}", "cpu{service=\"\\\\\"}"};

    (void)state;
    setup(fake_store_new());
    fake_store_row(store, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = "service='; DROP TABLE x;--",
                                             .t = T0,
                                             .stack = "n:f#x",
                                             .count = 1,
                                             .value = 5});
    handle_params("/api/v1/flamegraph", p, 3);
    want("\"total\":\"5\"");
    for (size_t i = 0; i < 3; i++) {
        p[0].value = str_c(other[i]);
        handle_params("/api/v1/flamegraph", p, 3);
        want("\"empty\":{\"why\":\"no_match\",\"matcher\":\"service=");
        want("\"total\":null");
    }
    teardown();
}

/* ---- size --------------------------------------------------------------------------------------
 */

static void large_tree(void **state)
{
    struct fake_frame f[5];
    char name[5][24];
    mono_ns start;
    double ms;

    (void)state;
    setup(fake_store_new());
    for (uint32_t i = 0; i < 200000; i++) {
        uint32_t v[5] = {i / 40000, i / 2000, i / 200, i / 10, i};

        for (int k = 0; k < 5; k++) {
            (void)snprintf(name[k], sizeof name[k], "f%d_%u", k, v[k] % 5000);
            f[k] = (struct fake_frame){
                .kind = FRAME_NATIVE, .name = str_c(name[k]), .bin = STR("/usr/bin/demo")};
        }
        fake_store_row(store, &(struct fake_row){.type = PTYPE_CPU,
                                                 .labels = "service=demo",
                                                 .t = T0,
                                                 .frame = f,
                                                 .n_frame = 5,
                                                 .count = 1,
                                                 .value = 10000000 + i});
    }
    handle("/api/v1/flamegraph", RANGE); /* the double makes its arrays here */
    start = mono_now();
    handle("/api/v1/flamegraph", RANGE "&max_nodes=0");
    ms = (double)(mono_now().v - start.v) / 1e6;
    assert_int_equal(reply.status, 200);
    want("\"hidden_nodes\":0,");
    want("\"n\":221106,");
    print_message("221,106 nodes, whole: %.0f ms, %zu bytes, the double's scan included\n", ms,
                  reply.body.n);
    start = mono_now();
    handle("/api/v1/flamegraph", RANGE "&width=1920&max_nodes=20000");
    print_message("trimmed: %.0f ms, %zu bytes\n", (double)(mono_now().v - start.v) / 1e6,
                  reply.body.n);
    assert_int_equal(reply.status, 200);
    api = api_free(api);
    api = api_new(&(struct api_conf){.store = store, .answer_max = 100000});
    handle("/api/v1/flamegraph", RANGE "&max_nodes=0");
    refused(422, "query_too_expensive", "\"setting\":\"query.answer\",\"limit\":100000");
    api = api_free(api);
    api = api_new(&(struct api_conf){.store = store, .mem_max = 1 << 20});
    handle("/api/v1/flamegraph", RANGE "&max_nodes=0");
    refused(422, "query_too_expensive", "\"setting\":\"query.memory\"");
    teardown();
}

static void exact_beyond_doubles(void **state)
{
    (void)state;
    setup(fake_store_new());
    for (int i = 0; i < 9; i++)
        sample("n:main#x", (INT64_C(1) << 62) - 1);
    handle("/api/v1/flamegraph", RANGE);
    want("\"total\":\"41505174165846491127\"");
    handle("/api/v1/flamegraph", RANGE "&numbers=string");
    want("\"self\":[\"0\",\"41505174165846491127\"]");
    handle("/api/v1/timeseries", RANGE "&bucket=60s");
    want("\"total\":\"41505174165846491127\"");
    handle("/api/v1/top", RANGE "&numbers=string");
    want("\"self\":[\"41505174165846491127\"]");
    teardown();
}

static void busy(void **state)
{
    struct buf b;

    (void)state;
    example();
    assert_int_equal(api_running(api), 0);
    buf_init(&b, 10000);
    api_dump_routes(&b);
    assert_non_null(memmem(b.p, b.n, "GET,POST /api/v1/flamegraph width max_nodes", 43));
    buf_deinit(&b);
    fake_store_fail(store, -EIO);
    handle("/api/v1/flamegraph", RANGE);
    refused(500, "internal", "told to fail");
    fake_store_fail(store, -ETIMEDOUT);
    handle("/api/v1/flamegraph", RANGE);
    refused(422, "query_too_expensive", "\"setting\":\"query.timeout\"");
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flame_example),
        cmocka_unit_test(hash_keys),
        cmocka_unit_test(flame_zoomed),
        cmocka_unit_test(other_answers),
        cmocka_unit_test(report),
        cmocka_unit_test(refusals),
        cmocka_unit_test(method),
        cmocka_unit_test(bombs),
        cmocka_unit_test(caching),
        cmocka_unit_test(hostile),
        cmocka_unit_test(hostile_labels),
        cmocka_unit_test(large_tree),
        cmocka_unit_test(exact_beyond_doubles),
        cmocka_unit_test(busy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
