// SPDX-License-Identifier: Apache-2.0
#include "agent/apart/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What Debian 12's header does not have yet; the kernel's numbers. */
#define FS_V1           UINT64_C(0x1fff)
#define FS_REFER        (UINT64_C(1) << 13) /* ABI 2 */
#define FS_TRUNCATE     (UINT64_C(1) << 14) /* ABI 3 */
#define FS_IOCTL_DEV    (UINT64_C(1) << 15) /* ABI 5 */
#define NET_BIND_TCP    (UINT64_C(1) << 0)  /* ABI 4 */
#define NET_CONNECT_TCP (UINT64_C(1) << 1)
#define SCOPE_ABSTRACT  (UINT64_C(1) << 0) /* ABI 6 */
#define SCOPE_SIGNAL    (UINT64_C(1) << 1)

struct ruleset {
    uint64_t fs, net, scoped;
};

int landlock_abi(void)
{
    long r = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    return r < 0 ? 0 : (int)r;
}

static struct ruleset all_of(int abi, bool connect)
{
    struct ruleset r = {.fs = FS_V1};

    if (abi >= 2)
        r.fs |= FS_REFER;
    if (abi >= 3)
        r.fs |= FS_TRUNCATE;
    if (abi >= 5)
        r.fs |= FS_IOCTL_DEV;
    if (abi >= LANDLOCK_ABI_NET)
        r.net = connect ? NET_BIND_TCP : NET_BIND_TCP | NET_CONNECT_TCP;
    if (abi >= LANDLOCK_ABI_SCOPE)
        r.scoped = SCOPE_ABSTRACT | SCOPE_SIGNAL;
    return r;
}

static int allow(int set, const char *path, struct err *err)
{
    struct landlock_path_beneath_attr at = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE |
                                                              LANDLOCK_ACCESS_FS_EXECUTE};
    struct stat st;
    int r = 0;

    at.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (at.parent_fd < 0)
        return 0;
    if (fstat(at.parent_fd, &st) == 0 && S_ISDIR(st.st_mode))
        at.allowed_access |= LANDLOCK_ACCESS_FS_READ_DIR;
    if (syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &at, 0) < 0)
        r = err_set(err, -errno, "landlock: %.80s: %s", path, strerrordesc_np(errno));
    close(at.parent_fd);
    return r;
}

int landlock_restrict(const char *const *read, bool connect, struct err *err)
{
    int abi = landlock_abi(), set, r = 0;
    struct ruleset all = all_of(abi, connect);
    /* the kernel refuses fields that it does not know unless they are 0 */
    size_t n = abi >= LANDLOCK_ABI_SCOPE ? sizeof all
               : abi >= LANDLOCK_ABI_NET ? 2 * sizeof(uint64_t)
                                         : sizeof(uint64_t);

    if (abi == 0)
        return 1;
    set = (int)syscall(SYS_landlock_create_ruleset, &all, n, 0);
    if (set < 0)
        return err_set(err, -errno, "landlock: %s", strerrordesc_np(errno));
    for (size_t i = 0; read && read[i] && r == 0; i++)
        r = allow(set, read[i], err);
    if (r == 0 && syscall(SYS_landlock_restrict_self, set, 0) < 0)
        r = err_set(err, -errno, "landlock: %s", strerrordesc_np(errno));
    close(set);
    return r;
}
