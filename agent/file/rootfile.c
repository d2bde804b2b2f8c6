// SPDX-License-Identifier: Apache-2.0
#include "agent/file/rootfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int rootfile_root(const char *proc, uint32_t pid)
{
    char path[128] = "/";
    int fd;

    if (pid)
        (void)snprintf(path, sizeof path, "%.64s/%u/root", proc, pid);
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* What O_PATH found, looked at before it is opened: opening a device would do something to it. */
static int reopen(int at)
{
    char path[64];
    struct stat st;
    int fd;

    if (fstat(at, &st) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode))
        return -ELOOP;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", at);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

int rootfile_open(int root, struct str path, bool follow)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW),
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    char text[PATH_MAX];
    long at;
    int fd;

    if (path.n == 0 || path.n >= sizeof text || memchr(path.p, 0, path.n))
        return -ENAMETOOLONG;
    memcpy(text, path.p, path.n);
    text[path.n] = '\0';
    at = syscall(SYS_openat2, root, text, &how, sizeof how);
    if (at < 0)
        return -errno;
    fd = reopen((int)at);
    close((int)at);
    return fd;
}
