// SPDX-License-Identifier: Apache-2.0
/* Which addresses are asked for, what comes back, and what it may cost. */
#include <fcntl.h>
#include <unistd.h>

#include "agent/bpf/cpu.h"
#include "agent/file/binary.h"
#include "agent/name/lines.h"
#include "base/time.h"
#include "tests/lib/testing.h"

[[gnu::noinline]] int lines_marker(int x);
[[gnu::noinline]] int lines_marker(int x)
{
    return x * 3 + 1;
}

static struct binary *self(void)
{
    struct err err = {};
    struct binary *b = NULL;

    assert_ok(binary_open(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), STR("/opt/self"), false, &b,
                          &err),
              &err);
    return b;
}

/* Where the marker stands in the file: by the distance to where the file is mapped. */
static uint64_t marker(void)
{
    extern char __executable_start[]; // NOLINT(bugprone-reserved-identifier): the linker's

    return (uint64_t)(uintptr_t)lines_marker - (uint64_t)(uintptr_t)__executable_start;
}

static struct lines *start(enum lines_mode mode)
{
    const struct lines_conf c = {.mode = mode, .debug_dirs = "", .cache = 1 << 20};
    struct lines *l = NULL;
    struct err err = {};

    assert_ok(lines_start(&c, &l, &err), &err);
    return l;
}

static uint64_t asked(struct lines *l)
{
    struct lines_stats st;

    lines_get_stats(l, &st);
    return st.asked;
}

static void hot_ones(void **state)
{
    struct binary *b = self();
    struct lines *l = start(LINES_HOT);
    uint64_t bin = (uint64_t)b->id << 40, now = 1;
    const uint64_t rare[] = {bin | 0x10}, twice[] = {bin | 0x20, bin | 0x20, SA_W_RAW | 1},
                   much[] = {bin | 0x30};

    (void)state;
    lines_count(l, 7, rare, 1, LINES_LEAST - 1);  /* too few, whatever share */
    lines_count(l, 7, twice, 3, LINES_LEAST / 2); /* a recursion counts once */
    lines_tick(l, (int64_t)now);
    assert_int_equal(asked(l), 0);
    lines_count(l, 7, much, 1, 10000); /* now 0x10 is below 0.1 % */
    lines_count(l, 7, rare, 1, 2);
    lines_tick(l, (int64_t)now);
    assert_int_equal(asked(l), 1);
    lines_count(l, 7, rare, 1, 10);
    lines_count(l, 8, twice, 3, LINES_LEAST); /* hot in another target */
    lines_tick(l, (int64_t)now);
    assert_int_equal(asked(l), 3);
    lines_tick(l, (int64_t)now);
    assert_int_equal(asked(l), 3);
    lines_stop(l);
    (void)binary_unref(b);
}

static void found(void **state)
{
    struct binary *b = self();
    struct lines *l = start(LINES_ALL);
    const uint64_t word = (uint64_t)b->id << 40 | marker();
    struct lines_frame *f = NULL;
    struct lines_stats st;
    struct arena a;

    (void)state;
    arena_init(&a, 1 << 20);
    assert_int_equal(lines_marker(1), 4);
    assert_int_equal(lines_get(l, word, &a, &f), 0);
    lines_count(l, 1, &word, 1, 1);
    lines_tick(l, 1);
    assert_true(lines_wait(l, 60 * NS_PER_S));
    assert_int_equal(lines_get(l, word, &a, &f), 1);
    assert_true(str_ends(f[0].file, STR("test_agent_lines.c")));
    assert_true(f[0].line >= 14 && f[0].line <= 17);
    assert_false(f[0].inlined);
    lines_get_stats(l, &st);
    assert_int_equal(st.found, 1);
    assert_int_equal(st.fail[DWARFLINE_OK], 1);
    assert_true(st.cpu_ns > 0);
    lines_stop(l);
    l = start(LINES_OFF);
    lines_count(l, 1, &word, 1, 100);
    lines_tick(l, 1);
    assert_int_equal(lines_get(l, word, &a, &f), 0);
    assert_int_equal(asked(l), 0);
    lines_stop(l);
    arena_deinit(&a);
    (void)binary_unref(b);
}

static void modes(void **state)
{
    enum lines_mode m;

    (void)state;
    assert_true(lines_mode_of("off", &m) && m == LINES_OFF);
    assert_true(lines_mode_of("hot", &m) && m == LINES_HOT);
    assert_true(lines_mode_of("all", &m) && m == LINES_ALL);
    assert_false(lines_mode_of("", &m));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(modes), cmocka_unit_test(hot_ones),
                                       cmocka_unit_test(found)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
