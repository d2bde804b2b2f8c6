// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/name/ksym.h"
#include "base/time.h"
#include "tests/lib/testing.h"

static char root[] = "/tmp/strata_ksym_XXXXXX";

static void put(const char *name, const char *text, size_t n)
{
    char path[128];
    int fd;

    snprintf(path, sizeof path, "%s/%s", root, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
}

static const char symbols[] = "ffffffff81000000 T _text\n"
                              "ffffffff81000000 T _stext\n"
                              "ffffffff81000100 t do_it\n"
                              "ffffffff81000180 D some_data\n"
                              "ffffffff81000200 W weak_one\n"
                              "nonsense\n"
                              "ffffffffc0100000 t mod_init\t[ext4]\n"
                              "ffffffffc0100040 t mod_work\t[ext4]\n"
                              "ffffffffc0200000 t bpf_prog_1234_on_tick\t[bpf]\n";

static void names(void **state)
{
    static const char notes[] = "\4\0\0\0\6\0\0\0\1\0\0\0Xen\0abcdef\0\0"
                                "\4\0\0\0\4\0\0\0\3\0\0\0GNU\0\xde\xad\xbe\xef";
    struct ksym_hit h;
    struct ksym *k;

    (void)state;
    put("kallsyms", symbols, sizeof symbols - 1);
    put("modules", "ext4 1\n", 7);
    put("kernel/notes", notes, sizeof notes - 1);
    k = ksym_new(root, root);
    assert_string_equal(ksym_state(k), "ok");
    assert_true(ksym_find(k, 0xffffffff81000123, &h));
    assert_str(h.name, STR("do_it"));
    assert_int_equal(h.module.n, 0);
    assert_int_equal(h.offset, 0x123);
    assert_true(ksym_find(k, 0xffffffff81000000, &h));
    assert_str(h.name, STR("_text"));
    assert_true(ksym_find(k, 0xffffffff81000190, &h)); /* data is no function */
    assert_str(h.name, STR("do_it"));
    assert_true(ksym_find(k, 0xffffffffc0100050, &h));
    assert_str(h.name, STR("mod_work"));
    assert_str(h.module, STR("ext4"));
    assert_int_equal(h.offset, 0x50);
    assert_true(ksym_find(k, 0xffffffffc0200010, &h));
    assert_str(h.module, STR("bpf"));
    assert_str(ksym_build_id(k), STR("\xde\xad\xbe\xef"));
    assert_false(ksym_find(k, 0xffffffff80000000, &h));
    assert_false(ksym_find(k, 0xffffffffc0000000, &h)); /* far beyond the last one before it */
    /* the miss asks for another reading, a minute after the last */
    put("kallsyms", "ffffffffbfffff00 t new_one\n", 27);
    assert_false(ksym_refresh(k, mono_now().v + 59 * NS_PER_S));
    assert_true(ksym_refresh(k, mono_now().v + 61 * NS_PER_S));
    assert_true(ksym_find(k, 0xffffffffc0000000, &h));
    assert_str(h.name, STR("new_one"));
    ksym_free(k);
}

static void withheld(void **state)
{
    struct ksym_hit h;
    struct ksym *k;

    (void)state;
    put("kallsyms", "0000000000000000 T _text\n0000000000000000 t do_it\n", 49);
    k = ksym_new(root, root);
    assert_memory_equal(ksym_state(k), "withheld", 8);
    assert_false(ksym_find(k, 0xffffffff81000123, &h));
    assert_false(ksym_find(k, 0, &h));
    ksym_free(k);
    k = ksym_new("/nowhere", "/nowhere");
    assert_memory_equal(ksym_state(k), "unreadable", 10);
    ksym_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(withheld)};
    char command[64];
    int r;

    if (!mkdtemp(root))
        return 1;
    snprintf(command, sizeof command, "%s/kernel", root);
    (void)mkdir(command, 0700);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command) ? 1 : r;
}
