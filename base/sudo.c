// SPDX-License-Identifier: Apache-2.0
#include "base/sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

static bool env_id(const char *name, uint64_t *ret)
{
    const char *v = getenv(name); // NOLINT(concurrency-mt-unsafe): one thread

    return v && str_u64(str_c(v), ret) && *ret < UINT32_MAX;
}

bool sudo_user(uid_t *ret_uid, gid_t *ret_gid)
{
    uint64_t uid, gid;

    if (geteuid() != 0 || !env_id("SUDO_UID", &uid) || !env_id("SUDO_GID", &gid) || uid == 0)
        return false;
    *ret_uid = (uid_t)uid;
    *ret_gid = (gid_t)gid;
    return true;
}

static int failed(struct err *err, const char *path)
{
    int e = errno;

    if (e == ELOOP)
        return err_set(err, -e, "%.110s is a link: under sudo none is followed", path);
    return err_set(err, -e, "%.110s: %s", path, strerrordesc_np(e));
}

int sudo_create(const char *path, struct err *err)
{
    const int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY;
    uid_t uid;
    gid_t gid;
    bool sudo = sudo_user(&uid, &gid);
    int fd = open(path, flags | O_CREAT | O_EXCL, 0600);

    if (fd < 0 && errno == EEXIST) { /* O_CREAT: a link to what is not there */
        fd = open(path, flags | (sudo ? O_NOFOLLOW : O_CREAT), 0600);
        return fd < 0 ? failed(err, path) : fd;
    }
    if (fd < 0)
        return failed(err, path);
    if (sudo && fchown(fd, uid, gid) < 0) {
        int r = failed(err, path);

        (void)close(fd);
        return r;
    }
    return fd;
}

int sudo_give_folder(const char *path, struct err *err)
{
    uid_t uid;
    gid_t gid;
    int fd, r = 0;

    if (!sudo_user(&uid, &gid))
        return 0;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchown(fd, uid, gid) < 0)
        r = failed(err, path);
    if (fd >= 0)
        (void)close(fd);
    return r;
}
