// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/proc/procread.h"
#include "tests/lib/testing.h"

static void stat_line(void **state)
{
    struct procread_stat st;

    (void)state;
    assert_true(procread_stat_parse(
        STR("42 (a) b (c)) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 17 0 98765 1 2\n"), &st));
    assert_str(st.comm, STR("a) b (c)"));
    assert_int_equal(st.state, 'S');
    assert_int_equal(st.flags, 4194560);
    assert_int_equal(st.threads, 17);
    assert_int_equal(st.start_ticks, 98765);
    assert_false(procread_stat_parse(STR(""), &st));
    assert_false(procread_stat_parse(STR("42 (a"), &st));
    assert_false(procread_stat_parse(STR("42 )a( S"), &st));
    assert_false(procread_stat_parse(STR("42 (a) S 1 2 3"), &st));
    assert_false(
        procread_stat_parse(STR("42 (a) S 1 42 42 0 -1 x 1 2 3 4 5 6 7 8 20 0 17 0 98765\n"), &st));
}

static void nspid(void **state)
{
    uint64_t v;

    (void)state;
    assert_true(procread_nspid(STR("Name:\tx\nNSpid:\t5000\t17\t3\nNSpgid:\t9\n"), &v));
    assert_int_equal(v, 3);
    assert_true(procread_nspid(STR("NSpid:\t5000"), &v));
    assert_int_equal(v, 5000);
    assert_false(procread_nspid(STR("Name:\tNSpid\n"), &v));
}

static void maps(void **state)
{
    struct str text = STR(
        "55d0c0000000-55d0c0002000 r--p 00000000 fd:01 1234                       /usr/bin/x y\n"
        "nonsense\n"
        "55d0c0002000-55d0c0009000 r-xp 00002000 fd:01 1234                       "
        "/usr/bin/x y (deleted)\n"
        "7fff00000000-7fff00002000 rwxp 00000000 00:00 0 \n"
        "7fff00002000-7fff00001000 r-xp 00000000 00:00 0 \n"
        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]");
    struct procread_map m;

    (void)state;
    assert_true(procread_map_next(&text, &m));
    assert_false(m.exec);
    assert_str(m.path, STR("/usr/bin/x y"));
    assert_true(procread_map_next(&text, &m));
    assert_true(m.exec && m.deleted);
    assert_int_equal(m.start, 0x55d0c0002000);
    assert_int_equal(m.end, 0x55d0c0009000);
    assert_int_equal(m.offset, 0x2000);
    assert_int_equal(m.ino, 1234);
    assert_str(m.path, STR("/usr/bin/x y"));
    assert_true(procread_map_next(&text, &m));
    assert_int_equal(m.path.n, 0);
    assert_true(m.exec);
    assert_true(procread_map_next(&text, &m));
    assert_str(m.path, STR("[vsyscall]"));
    assert_false(procread_map_next(&text, &m));
}

static void services(void **state)
{
    static const struct {
        struct procread_who who;
        const char *service;
    } cases[] = {
        {{.strata_service = STR("pay"), .unit = STR("nginx"), .exe = STR("/a")}, "pay"},
        {{.unit = STR("nginx"), .exe = STR("/usr/bin/python3"), .args = STR("p\0x.py")}, "nginx"},
        {{.exe = STR("/usr/bin/python3.11"), .args = STR("python\0a/train.py\0-x")}, "train"},
        {{.exe = STR("/usr/bin/python3.11"), .args = STR("python\0-c\0x")}, "python3.11"},
        {{.exe = STR("/opt/burner"), .comm = STR("b")}, "burner"},
        {{.comm = STR("kworker/0:1"), .kthread = true}, "kernel"},
        {{.comm = STR("gone")}, "gone"},
        {{}, "unknown"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_str(procread_service(&cases[i].who), str_c(cases[i].service));
}

/* Ourselves, as the kernel tells it. */
static void own_facts(void **state)
{
    struct procread_identity id;
    struct environ_want want;
    const struct procread_opts o = {.cmdline = PROCREAD_CMDLINE_MASKED, .want = &want};
    struct procread_facts f;
    struct err err = {};
    struct arena a;

    (void)state;
    environ_init(&want);
    arena_init(&a, 1 << 20);
    assert_ok(procread_identity("/proc", (uint32_t)getpid(), &id, &err), &err);
    assert_true(id.pidns > 0 && id.start_ticks > 0 && id.pid > 0 && id.threads == 1);
    assert_false(id.kthread);
    assert_ok(procread_facts("/proc", (uint32_t)getpid(), &o, &a, &f, &err), &err);
    assert_str(str_basename(f.exe), STR("test_agent_procread"));
    assert_true(f.cmdline.n > 0 && f.service.n > 0);
    assert_int_equal(procread_facts("/proc", 0x7ffffff0, &o, &a, &f, NULL), -2);
    arena_deinit(&a);
}

/* The boot time is the one that was kept, whatever the clocks say now; another boot is another. */
static void boot_time(void **state)
{
    char dir[] = "/tmp/strata_boot_XXXXXX", path[64];
    struct err err = {};
    real_ns a, b;
    bool kept;
    struct buf id;

    (void)state;
    assert_non_null(mkdtemp(dir));
    a = procread_boot_time("/proc", dir, &kept);
    assert_true(kept);
    b = procread_boot_time("/proc", dir, &kept);
    assert_true(kept);
    assert_int_equal(a.v, b.v);
    buf_init(&id, 4096);
    assert_ok(procfile_read("/proc", "sys/kernel/random/boot_id", &id, &err), &err);
    id.n--; /* newline */
    buf_cstr(&id, " 12345\n");
    assert_ok(procfile_replace(dir, "boot", buf_view(&id), true, &err), &err);
    assert_int_equal(procread_boot_time("/proc", dir, &kept).v, 12345);
    assert_ok(procfile_replace(dir, "boot", STR("another-boot 12345\n"), true, &err), &err);
    b = procread_boot_time("/proc", dir, &kept);
    assert_true(b.v - a.v < 100 * NS_PER_MS && a.v - b.v < 100 * NS_PER_MS);
    (void)procread_boot_time("/proc", "/nowhere/at/all", &kept);
    assert_false(kept);
    snprintf(path, sizeof path, "%s/boot", dir);
    unlink(path);
    rmdir(dir);
    buf_deinit(&id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stat_line), cmocka_unit_test(nspid),
                                       cmocka_unit_test(maps),      cmocka_unit_test(services),
                                       cmocka_unit_test(own_facts), cmocka_unit_test(boot_time)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
