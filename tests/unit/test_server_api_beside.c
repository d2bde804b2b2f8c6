// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "tests/lib/api_test.h"

/* Answers about what stands beside weights: steps, events, metrics, coverage, label sets. The
 * golden answers are compared byte for byte; UPDATE_GOLDEN=1 writes them anew. */

#define T0    (1764417600 * S)
#define RANGE "from=1764417600s&to=1764417720s"

static void sample(uint64_t pid, int64_t t, int64_t value)
{
    fake_store_row(store, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = pid == 42 ? "service=demo,host=h1"
                                                                 : "service=other,host=h1",
                                             .t = T0 + t,
                                             .stack = "n:main#/usr/bin/demo",
                                             .count = (uint64_t)value / 10,
                                             .value = value,
                                             .pid = pid,
                                             .tid = 43});
}

static void step(uint64_t pid, uint64_t number, int64_t t0, int64_t dur)
{
    fake_store_step(store, &(struct fake_step){.pid = pid,
                                               .name = "train",
                                               .labels = number == 2 ? "phase=warm" : NULL,
                                               .number = number,
                                               .t0 = T0 + t0,
                                               .t1 = T0 + t0 + dur,
                                               .tid = 43,
                                               .n_part = number == 3 ? 0 : 2,
                                               .part = {"compute", "idle_host"},
                                               .part_ns = {dur - 5, number == 1 ? 5 : -1}});
}

static void metrics(void)
{
    fake_store_metric(store, &(struct fake_metric){.name = "process_rss",
                                                   .unit = "bytes",
                                                   .labels = "host=h1",
                                                   .pid = 42,
                                                   .is_int = true,
                                                   .n = 3,
                                                   .p = {{T0, 4096, METRIC_OK},
                                                         {T0 + 30 * S, 8192, METRIC_OK},
                                                         {T0 + 60 * S, 0, METRIC_DENIED}}});
    fake_store_metric(store, &(struct fake_metric){.name = "process_cpu",
                                                   .unit = "nanoseconds",
                                                   .kind = METRIC_COUNTER,
                                                   .labels = "host=h1",
                                                   .pid = 42,
                                                   .is_int = true,
                                                   .n = 4,
                                                   .p = {{T0, 0, METRIC_OK},
                                                         {T0 + 30 * S, 15e9, METRIC_OK},
                                                         {T0 + 60 * S, 1e9, METRIC_OK},
                                                         {T0 + 90 * S, 31e9, METRIC_OK}}});
}

static void example(void)
{
    setup(fake_store_new());
    sample(42, 10 * S, 300);
    sample(42, 20 * S, 500);
    sample(42, 70 * S, 40);
    sample(77, 20 * S, 7000);
    step(42, 1, -2 * S, 12 * S);
    step(42, 2, 15 * S, 10 * S);
    step(42, 3, 60 * S, 20 * S);
    step(77, 1, 15 * S, 10 * S);
    fake_store_event(store, &(struct fake_event){T0 + S, "restart", "dur=3s cause=\"<oom>\"", 42});
    fake_store_event(store, &(struct fake_event){T0 + 2 * S, "clock_step", "by=-5ms", 0});
    fake_store_event(store, &(struct fake_event){T0 + 3 * S, "state", "cpu paused", 77});
    metrics();
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
                                                 .lost_weight = 20});
    fake_store_cover(store, &(struct fake_cover){.type = PTYPE_CPU,
                                                 .labels = "host=h1",
                                                 .t0 = T0 + 60 * S,
                                                 .t1 = T0 + 90 * S,
                                                 .state = SOURCE_PAUSED,
                                                 .why = "budget"});
}

static void answers(void **state)
{
    static const struct {
        const char *path, *query, *file;
    } ask[] = {
        {"/api/v1/steps", RANGE "&name=train", "steps.json"},
        {"/api/v1/events", RANGE, "events.json"},
        {"/api/v1/series", RANGE, "series.json"},
        {"/api/v1/coverage", RANGE, "coverage.json"},
        {"/api/v1/coverage", RANGE "&q=cpu&by=host", "coverage_host.json"},
        {"/api/v1/metrics", RANGE, "metrics.json"},
        {"/api/v1/metrics", RANGE "&name=process_rss&name=process_cpu&name=none&name=process_rss",
         "metrics_named.json"},
        {"/api/v1/metrics/query", RANGE "&name=process_rss&bucket=30s&agg=last",
         "metrics_gauge.json"},
        {"/api/v1/metrics/query", RANGE "&name=process_cpu&bucket=30s", "metrics_counter.json"},
        {"/api/v1/timeseries", RANGE "&q=cpu&bucket=40s&step=train:2-3", "timeseries_step.json"},
        {"/api/v1/flamegraph", RANGE "&q=cpu&step=eval", "no_steps.json"},
    };

    (void)state;
    example();
    for (size_t i = 0; i < sizeof ask / sizeof ask[0]; i++) {
        handle(ask[i].path, ask[i].query);
        if (reply.status != 200)
            fail_msg("%s?%s: %.*s", ask[i].path, ask[i].query, STR_ARG(buf_view(&reply.body)));
        assert_string_equal(reply.content_type, "application/json");
        golden(ask[i].file);
    }
    teardown();
}

static void step_narrows_every_answer(void **state)
{
    (void)state;
    example();
    handle("/api/v1/flamegraph", RANGE "&q=cpu{service=\"demo\"}&step=train");
    want("\"total\":\"540\""); /* 10 s lies in no step: the first ends there */
    want("\"step\":{\"name\":\"train\",\"first\":null,\"last\":null,\"n\":3,\"whole\":2}");
    handle("/api/v1/top", RANGE "&q=cpu&step=train:2");
    want("\"total\":\"500\"");
    want("\"first\":\"2\",\"last\":\"2\",\"n\":1,\"whole\":1");
    handle("/api/v1/timeseries", RANGE "&q=cpu&step=train&bucket=7s");
    want("\"total\":\"7540\"");
    handle("/api/v1/export", RANGE "&q=cpu&step=train&format=folded");
    want("main 7540\n");
    handle("/api/v1/flamegraph", RANGE "&q=cpu{service=\"demo\"}&step=eval");
    want("\"total\":null");
    want("\"empty\":{\"why\":\"no_steps\"");
    teardown();
}

static void cached_until_a_step_comes(void **state)
{
    uint64_t etag;

    (void)state;
    example();
    handle("/api/v1/flamegraph", RANGE "&q=cpu&step=train");
    assert_true(reply.has_etag);
    etag = reply.etag;
    handle("/api/v1/flamegraph", RANGE "&q=cpu&step=train");
    assert_true(reply.etag == etag);
    step(42, 4, 100 * S, S);
    handle("/api/v1/flamegraph", RANGE "&q=cpu&step=train");
    assert_true(reply.etag != etag);
    teardown();
}

static void pages(void **state)
{
    char query[300];
    const char *next;
    int n = 0;

    (void)state;
    example();
    handle("/api/v1/steps", RANGE "&limit=1&sort=duration&numbers=string");
    want("\"dur\":[\"20000000000\"]");
    want("\"n\":4,"); /* the summary is of all */
    for (;; n++) {
        next = memmem(reply.body.p, reply.body.n, "\"next\":", 7);
        assert_non_null(next);
        if (next[7] == 'n')
            break;
        next += 8;
        (void)snprintf(query, sizeof query, RANGE "&limit=1&sort=duration&after=%.*s",
                       (int)strcspn(next, "\""), next);
        handle("/api/v1/steps", query);
        assert_int_equal(reply.status, 200);
    }
    assert_int_equal(n, 3);
    teardown();
}

static void refusals(void **state)
{
    static const struct {
        const char *path, *query;
        int status;
        const char *code, *more;
    } ask[] = {
        {"/api/v1/steps", "colour=red", 400, "unknown_parameter", "\"param\":\"colour\""},
        {"/api/v1/steps", "limit=0", 400, "bad_parameter", "from 1 to 10000"},
        {"/api/v1/steps", "limit=10001", 400, "bad_parameter", "\"param\":\"limit\""},
        {"/api/v1/steps", "limit=x", 400, "bad_parameter", "limit=x: not a whole number"},
        {"/api/v1/steps", "sort=name", 400, "bad_parameter", "one of time duration"},
        {"/api/v1/steps", "after=zz", 400, "bad_parameter", "\"param\":\"after\""},
        {"/api/v1/steps", "from=now&to=now-1m", 400, "bad_range", "\"param\":\"from\""},
        {"/api/v1/steps", "q={", 400, "bad_selector", NULL},
        {"/api/v1/steps", "name=a&name=b", 400, "bad_parameter", "given twice"},
        {"/api/v1/events", "from=soon", 400, "bad_time", "\"param\":\"from\""},
        {"/api/v1/events", "after=1", 400, "bad_parameter", "\"param\":\"after\""},
        {"/api/v1/events", "name=x", 400, "unknown_parameter", "\"param\":\"name\""},
        {"/api/v1/events", "timeout=1d", 400, "bad_parameter", "\"param\":\"timeout\""},
        {"/api/v1/series", "after=xyz", 400, "bad_parameter", "\"param\":\"after\""},
        {"/api/v1/series", "after=12", 400, "bad_parameter", "begin again"},
        {"/api/v1/coverage", "by=rank", 400, "bad_parameter", "one of source host target"},
        {"/api/v1/coverage", "limit=2001", 400, "bad_parameter", "from 1 to 2000"},
        {"/api/v1/coverage", "agg=now", 400, "unknown_parameter", "\"param\":\"agg\""},
        {"/api/v1/metrics", "after=12", 400, "bad_parameter", "begin again"},
        {"/api/v1/metrics", "bucket=1s", 400, "unknown_parameter", NULL},
        {"/api/v1/metrics/query", "", 400, "bad_parameter", "\"param\":\"name\""},
        {"/api/v1/metrics/query", "name=a&bucket=soon", 400, "bad_parameter", "bucket=soon"},
        {"/api/v1/metrics/query", "name=a&bucket=1us", 400, "bad_parameter", "at least 1ms"},
        {"/api/v1/metrics/query", "name=a&bucket=1ms", 400, "bad_parameter",
         "\"setting\":\"query.max_points\",\"limit\":11000,\"actual\":3600000"},
        {"/api/v1/metrics/query", "name=a&points=20000", 400, "bad_parameter",
         "\"limit\":11000,\"actual\":20000"},
        {"/api/v1/metrics/query", "name=a&points=5&bucket=1s", 400, "bad_parameter", "exclude"},
        {"/api/v1/metrics/query", "name=a&agg=median", 400, "bad_parameter", "\"param\":\"agg\""},
        {"/api/v1/metrics/query", RANGE "&name=process_rss&agg=rate", 400, "bad_parameter",
         "process_rss is a gauge"},
        {"/api/v1/timeseries", "q=live&step=train", 422, "not_supported", "\"param\":\"step\""},
        {"/api/v1/timeseries", "q=cpu&step=a:9-2", 400, "bad_parameter", "above the last"},
    };

    (void)state;
    example();
    for (size_t i = 0; i < sizeof ask / sizeof ask[0]; i++) {
        handle(ask[i].path, ask[i].query);
        refused(ask[i].status, ask[i].code, ask[i].more);
    }
    teardown();
}

static void hostile(void **state)
{
    (void)state;
    setup(fake_store_new());
    sample(42, 0, 10);
    fake_store_step(
        store,
        &(struct fake_step){
            .pid = 42, .name = "</script>\xff", .labels = "x=\xfe<", .t0 = T0, .t1 = T0 + S});
    fake_store_event(store, &(struct fake_event){T0, "</script>", "\xff\x01<b>", 42});
    fake_store_metric(
        store, &(struct fake_metric){
                   .name = "<m>\xff", .unit = "<u>", .pid = 42, .n = 1, .p = {{T0, 1, METRIC_OK}}});
    for (int i = 0; i < 4; i++) {
        static const char *const path[] = {"/api/v1/steps", "/api/v1/events", "/api/v1/metrics",
                                           "/api/v1/metrics/query"};

        handle(path[i], i == 3 ? RANGE "&name=<m>\xff&points=1" : RANGE);
        assert_int_equal(reply.status, 200);
        assert_true(str_utf8_ok(buf_view(&reply.body)));
        assert_false(says("<"));
        want("\\xff");
    }
    handle("/api/v1/flamegraph", RANGE "&q=cpu&step=</script>\xff");
    want("\"total\":\"10\"");
    assert_false(says("<"));
    teardown();
}

static void failures(void **state)
{
    (void)state;
    example();
    api = api_free(api);
    api = api_new(&(struct api_conf){.store = store, .mem_max = 4096});
    for (uint64_t i = 0; i < 200; i++)
        step(42, i, 0, S);
    handle("/api/v1/steps", RANGE);
    refused(422, "query_too_expensive", "\"setting\":\"query.memory\",\"limit\":4096");
    api = api_free(api);
    api = api_new(&(struct api_conf){.store = store, .answer_max = 1000});
    handle("/api/v1/steps", RANGE);
    refused(422, "query_too_expensive", "\"setting\":\"query.answer\",\"limit\":1000");
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),  cmocka_unit_test(step_narrows_every_answer),
        cmocka_unit_test(pages),    cmocka_unit_test(cached_until_a_step_comes),
        cmocka_unit_test(refusals), cmocka_unit_test(hostile),
        cmocka_unit_test(failures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
