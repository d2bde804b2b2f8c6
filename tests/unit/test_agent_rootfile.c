// SPDX-License-Identifier: Apache-2.0
/* What a target's root folder may plant: links out of it, devices, pipes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/file/rootfile.h"
#include "tests/lib/testing.h"

static char base[] = "/tmp/strata_rootfile_XXXXXX";
static int root;

static const char *in(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof path, "%s/%s", base, name);
    return path;
}

static void put(const char *name, char text)
{
    int fd = open(in(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, &text, 1), 1);
    (void)close(fd);
}

static void folder(const char *name)
{
    assert_int_equal(mkdir(in(name), 0700), 0);
}

static void link_to(const char *to, const char *name)
{
    assert_int_equal(symlink(to, in(name)), 0);
}

/* Two files have one name: what is inside of the root says 'i', what is outside 'o'. */
static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(base));
    folder("proc");
    folder("proc/7");
    folder("c");
    folder("c/lib");
    link_to("../../c", "proc/7/root");
    put("secret", 'o');
    put("c/secret", 'i');
    put("c/lib/x", 'i');
    link_to("/secret", "c/absolute");
    link_to("../../../../secret", "c/lib/up");
    link_to("..", "c/lib/parent");
    link_to("/etc/passwd", "c/passwd"); /* there is none in the root */
    link_to("/proc/self/root", "c/magic");
    link_to("loop", "c/loop");
    assert_int_equal(mkfifo(in("c/pipe"), 0600), 0);
    root = rootfile_root(in("proc"), 7);
    assert_true(root >= 0);
    return 0;
}

static int tear_down(void **state)
{
    static const char *const made[] = {
        "proc/7/root", "proc/7",   "proc",       "c/lib/x",  "c/lib/up", "c/lib/parent",
        "c/lib",       "c/secret", "c/absolute", "c/passwd", "c/magic",  "c/loop",
        "c/pipe",      "c",        "secret",     ""};

    (void)state;
    (void)close(root);
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        assert_int_equal(remove(in(made[i])), 0);
    return 0;
}

/* The byte that a path leads to, or the error. */
static int at(const char *path, bool follow)
{
    int fd = rootfile_open(root, str_c(path), follow);
    char c = 0;

    if (fd < 0)
        return fd;
    assert_int_equal(read(fd, &c, 1), 1);
    (void)close(fd);
    return c;
}

static void inside(void **state)
{
    (void)state;
    assert_int_equal(at("/lib/x", true), 'i');
    assert_int_equal(at("lib/x", false), 'i');
    assert_int_equal(at("/absolute", true), 'i'); /* /secret of the root, not the host's */
    assert_int_equal(at("/lib/up", true), 'i');
    assert_int_equal(at("/lib/parent/secret", true), 'i');
    assert_int_equal(at("/../../../secret", true), 'i');
}

static void outside(void **state)
{
    static const char zero[] = "/lib\0x";

    (void)state;
    assert_int_equal(at("/passwd", true), -ENOENT);
    assert_int_equal(at("/../proc/7/root/secret", true), -ENOENT);
    assert_true(at("/magic/etc/passwd", true) < 0);
    assert_int_equal(at("/loop", true), -ELOOP);
    assert_int_equal(at("/absolute", false), -ELOOP);
    assert_int_equal(at("/lib/up", false), -ELOOP);
    assert_int_equal(at("/pipe", true), -EINVAL); /* and does not wait for a writer */
    assert_int_equal(at("/lib", true), -EINVAL);
    assert_int_equal(rootfile_open(root, (struct str){zero, sizeof zero - 1}, true), -ENAMETOOLONG);
    assert_int_equal(at("", true), -ENAMETOOLONG);
    assert_int_equal(rootfile_root(in("proc"), 8), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(inside), cmocka_unit_test(outside)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
