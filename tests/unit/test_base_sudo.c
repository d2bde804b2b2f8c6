// SPDX-License-Identifier: Apache-2.0
/* What root writes for whoever called sudo, in a folder of that user. Needs root; else skipped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sudo.h"
#include "tests/lib/testing.h"

#define USER 65534

static char base[32];

static const char *in(const char *name)
{
    static char path[2][96];
    static unsigned turn;
    char *p = path[turn++ % 2];

    (void)snprintf(p, sizeof path[0], "%s/%s", base, name);
    return p;
}

static void as_sudo(const char *uid)
{
    assert_int_equal(setenv("SUDO_UID", uid, 1), 0);
    assert_int_equal(setenv("SUDO_GID", uid, 1), 0);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(base, sizeof base, "/tmp/strata_sudo_XXXXXX");
    assert_non_null(mkdtemp(base));
    as_sudo("65534");
    return 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"new",  "roots",  "link", "dangling",
                                        "none", "folder", "there"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)remove(in(names[i]));
    assert_int_equal(remove(base), 0);
    (void)unsetenv("SUDO_UID");
    (void)unsetenv("SUDO_GID");
    return 0;
}

static uid_t owner(const char *name)
{
    struct stat st;

    assert_int_equal(lstat(in(name), &st), 0);
    return st.st_uid;
}

static void put(const char *name)
{
    int fd = open(in(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "kept", 4), 4);
    (void)close(fd);
}

static int64_t size(const char *name)
{
    struct stat st;

    assert_int_equal(stat(in(name), &st), 0);
    return st.st_size;
}

static void files(void **state)
{
    struct err err = {};
    int fd;

    (void)state;
    fd = sudo_create(in("new"), &err);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(owner("new"), USER);
    put("roots"); /* what was there keeps owner and content */
    fd = sudo_create(in("roots"), &err);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(owner("roots"), 0);
    assert_int_equal(size("roots"), 4);
}

/* One that leads to a file of root's, and one to where there is none. */
static void links(void **state)
{
    struct err err = {};

    (void)state;
    put("roots");
    assert_int_equal(symlink(in("roots"), in("link")), 0);
    assert_int_equal(sudo_create(in("link"), &err), -ELOOP);
    assert_non_null(strstr(err.msg, "is a link"));
    assert_int_equal(owner("roots"), 0);
    assert_int_equal(size("roots"), 4);
    assert_int_equal(symlink(in("none"), in("dangling")), 0);
    assert_true(sudo_create(in("dangling"), &err) < 0);
    assert_int_equal(access(in("none"), F_OK), -1);
    assert_int_equal(symlink(base, in("folder")), 0);
    assert_true(sudo_give_folder(in("folder"), &err) < 0);
    assert_int_equal(mkdir(in("there"), 0700), 0);
    assert_int_equal(sudo_give_folder(in("there"), &err), 0);
    assert_int_equal(owner("there"), USER);
}

/* By root itself: an ordinary output file, links followed. */
static void without(void **state)
{
    struct err err = {};
    uid_t uid;
    gid_t gid;
    int fd;

    (void)state;
    as_sudo("0");
    assert_false(sudo_user(&uid, &gid));
    as_sudo("x");
    assert_false(sudo_user(&uid, &gid));
    put("roots");
    assert_int_equal(symlink(in("roots"), in("link")), 0);
    fd = sudo_create(in("link"), &err);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(symlink(in("none"), in("dangling")), 0);
    fd = sudo_create(in("dangling"), &err);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(owner("none"), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {T(files), T(links), T(without)};

    if (geteuid() != 0) {
        printf("skip: needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
