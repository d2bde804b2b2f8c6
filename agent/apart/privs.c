// SPDX-License-Identifier: Apache-2.0
#include "agent/apart/privs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_CAP 63

/* ---- capability sets ----------------------------------------------------------------------- */

/* glibc has no wrapper; the sets are this thread's. */
static int cap_get(uint64_t *ret_permitted, uint64_t *ret_effective)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {};

    if (syscall(SYS_capget, &h, d) < 0)
        return -errno;
    *ret_permitted = d[0].permitted | (uint64_t)d[1].permitted << 32;
    *ret_effective = d[0].effective | (uint64_t)d[1].effective << 32;
    return 0;
}

/* Permitted and effective; nothing is inheritable, so nothing is ambient either. */
static int cap_set(uint64_t caps)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct d[2] = {
        {.permitted = (uint32_t)caps, .effective = (uint32_t)caps},
        {.permitted = (uint32_t)(caps >> 32), .effective = (uint32_t)(caps >> 32)}};

    return syscall(SYS_capset, &h, d) < 0 ? -errno : 0;
}

/* Without CAP_SETPCAP it cannot be cut; with no_new_privs nothing comes out of it then. */
static int cut_bounding(uint64_t effective, struct err *err)
{
    if (!(effective >> CAP_SETPCAP & 1))
        return 0;
    for (unsigned long cap = 0; cap <= MAX_CAP; cap++) {
        if (PRIVS_CAPS >> cap & 1 || prctl(PR_CAPBSET_READ, cap, 0, 0, 0) <= 0)
            continue;
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return err_set(err, -errno, "capability %lu stays in the bounding set: %s", cap,
                           strerrordesc_np(errno));
    }
    return 0;
}

/* ---- the state directory of an agent that ran as root --------------------------------------- */

/* Is it an agent's, or empty? "/etc", given by mistake, is neither. */
static bool is_ours(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct dirent *e;
    bool empty = true;
    struct stat st;
    DIR *d;

    if (fstatat(dir, "agent-id", &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (fd >= 0)
            (void)close(fd);
        return S_ISREG(st.st_mode);
    }
    d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    while (empty && (e = readdir(d))) // NOLINT(concurrency-mt-unsafe): own stream
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    closedir(d);
    return empty;
}

/* Files of root in it, by no other name, and those of its spool, then itself: while it is root's
 * nobody else puts anything into it. Takes over dir. */
static void give_files(int dir, const struct passwd *to, bool spool)
{
    DIR *d = fdopendir(dir);
    const struct dirent *e;
    struct stat st;

    if (!d) {
        (void)close(dir);
        return;
    }
    while ((e = readdir(d))) { // NOLINT(concurrency-mt-unsafe): own stream
        if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_uid != 0)
            continue;
        if (S_ISREG(st.st_mode) && st.st_nlink == 1) {
            (void)fchownat(dir, e->d_name, to->pw_uid, to->pw_gid, AT_SYMLINK_NOFOLLOW);
        } else if (spool && S_ISDIR(st.st_mode) && strcmp(e->d_name, "spool") == 0) {
            int sub = openat(dir, "spool", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

            if (sub >= 0)
                give_files(sub, to, false);
        }
    }
    (void)fchown(dir, to->pw_uid, to->pw_gid);
    closedir(d);
}

/* Only root's, and while nobody else could have put anything into it. What fails here is said by
 * ids_load() and the spool, which find a directory that is not theirs. */
static bool hand_over(const char *state_dir, const struct passwd *to, bool give)
{
    struct stat st;
    int dir;

    if (give)
        (void)mkdir(state_dir, 0700);
    dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return errno == ENOENT;
    if (fstat(dir, &st) < 0 || st.st_uid != 0 || st.st_mode & 022 || !is_ours(dir)) {
        (void)close(dir);
        return false;
    }
    if (give)
        give_files(dir, to, true);
    else
        (void)close(dir);
    return true;
}

/* ---- the user ------------------------------------------------------------------------------ */

static int become(const struct passwd *to, struct err *err)
{
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(to->pw_gid, to->pw_gid, to->pw_gid) < 0 ||
        setresuid(to->pw_uid, to->pw_uid, to->pw_uid) < 0)
        return err_set(err, -errno, "privileges.user = %.40s: %s", to->pw_name,
                       strerrordesc_np(errno));
    return 0;
}

/* Root, where we must not stay it. */
static int change_user(const char *user, const char *state_dir, bool give, struct privs *ret,
                       struct err *err)
{
    const struct passwd *to;

    if (geteuid() != 0 || !user[0] || strcmp(user, "root") == 0) {
        (void)snprintf(ret->who, sizeof ret->who, "user id %u", (unsigned)geteuid());
        return 0;
    }
    errno = 0;
    to = getpwnam(user); // NOLINT(concurrency-mt-unsafe): no other thread yet
    if (!to && strcmp(user, PRIVS_USER) == 0) {
        (void)snprintf(ret->who, sizeof ret->who, "root: there is no user %s", user);
        return 0;
    }
    if (!to)
        return err_set(err, -ENOENT, "privileges.user = %.40s: no such user", user);
    ret->hands_over = hand_over(state_dir, to, give);
    TRY(become(to, err));
    (void)snprintf(ret->who, sizeof ret->who, "user %.40s", user);
    return 0;
}

int privs_drop(const char *user, const char *state_dir, bool give, struct privs *ret,
               struct err *err)
{
    uint64_t permitted = 0, effective = 0;
    int r = cap_get(&permitted, &effective);

    if (r < 0)
        return err_set(err, r, "capget: %s", strerrordesc_np(-r));
    TRY(cut_bounding(effective, err));
    ret->hands_over = false;
    TRY(change_user(user, state_dir, give, ret, err));
    r = cap_set(permitted & PRIVS_CAPS);
    if (r < 0)
        return err_set(err, r, "capset: %s", strerrordesc_np(-r));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_set(err, -errno, "no_new_privs, dumpable: %s", strerrordesc_np(errno));
    return 0;
}

void privs_drop_thread(void)
{
    (void)cap_set(0);
}

void privs_raise_limits(void)
{
    static const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max < 65536 ? l.rlim_max : 65536;
        (void)setrlimit(RLIMIT_NOFILE, &l);
    }
    /* rings of perf events are locked memory; root may lift it, others go to their limit */
    if (setrlimit(RLIMIT_MEMLOCK, &none) < 0 && getrlimit(RLIMIT_MEMLOCK, &l) == 0) {
        l.rlim_cur = l.rlim_max;
        (void)setrlimit(RLIMIT_MEMLOCK, &l);
    }
}
