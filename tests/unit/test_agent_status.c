// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "agent/collect/status.h"
#include "base/time.h"
#include "tests/lib/testing.h"

static const char json[] =
    "{\"version\":\"0.1\",\"pid\":12,\"state\":\"running\",\"t_ns\":\"5000000000\","
    "\"upload\":\"no \\\"answer\\\": x\",\"period_ns\":\"20408163\",\"asked_period_ns\":"
    "\"10101010\",\"figures\":{\"agent_windows\":\"7\",\"agent_zero\":\"0\",\"agent_cost\":"
    "\"12300000\",\"agent_rss\":\"4096\"},\"units\":{\"agent_cost\":\"nanoseconds\","
    "\"agent_rss\":\"bytes\"}}\n";

static void values(void **state)
{
    struct str j = str_c(json);

    (void)state;
    assert_str(status_value(j, "version"), STR("0.1"));
    assert_str(status_value(j, "pid"), STR("12"));
    assert_str(status_value(j, "upload"), STR("no \\\"answer\\\": x"));
    assert_str(status_value(j, "agent_windows"), STR("7"));
    assert_str(status_value(j, "agent_cost"), STR("12300000"));
    assert_str(status_value(j, "answer"), STR(""));
    assert_str(status_value(j, "windows"), STR(""));
    assert_int_equal(status_silent_s(j, 9 * NS_PER_S), 4);
    assert_int_equal(status_silent_s(STR("{\"state\":\"stopped\",\"t_ns\":\"1\"}"), NS_PER_S), -1);
}

/* Whatever is cut off: nothing is read behind the end, nothing else is said. */
static void torn(void **state)
{
    FILE *null = fopen("/dev/null", "w");

    (void)state;
    assert_non_null(null);
    for (size_t n = 0; n < sizeof json; n++) {
        char *copy = malloc(n ? n : 1);
        struct str j = {copy, n};

        assert_non_null(copy);
        memcpy(copy, json, n);
        status_print(j, null);
        (void)status_value(j, "agent_cost");
        (void)status_silent_s(j, 0);
        free(copy);
    }
    (void)fclose(null);
}

static void text(void **state)
{
    char *out = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&out, &n);

    (void)state;
    assert_non_null(f);
    status_print(str_c(json), f);
    (void)fclose(f);
    assert_non_null(strstr(out, "rate               49.0 Hz (asked for 99.0)\n"));
    assert_non_null(strstr(out, "own CPU            1.23 % of one CPU"));
    assert_non_null(strstr(out, "as of              1970-01-01T00:00:05Z\n"));
    assert_non_null(strstr(out, "  agent_windows                    7\n"));
    assert_non_null(strstr(out, "  agent_cost                       12300000 ns\n"));
    assert_non_null(strstr(out, "  agent_rss                        4096 B\n"));
    assert_null(strstr(out, "agent_zero"));
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(torn),
                                       cmocka_unit_test(text)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
