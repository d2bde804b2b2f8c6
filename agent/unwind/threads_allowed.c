// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/unwind/threads.h"
#include "base/buf.h"

/* A number after KEY in the text of /proc/PID/status. */
static bool status_number(const char *text, const char *key, uint64_t *ret)
{
    const char *at = strstr(text, key);

    return at && sscanf(at + strlen(key), "%" SCNu64, ret) == 1; // NOLINT(cert-err34-c)
}

static int refused(const char *proc, uint32_t pid, uint64_t uid, struct err *err)
{
    char dir[96];
    struct buf b;
    int scope = 0;

    if (uid != geteuid())
        return err_set(err, -EPERM,
                       "process %u belongs to user %" PRIu64
                       ", not to yours (%u): run as that user "
                       "or as root",
                       pid, uid, (unsigned)geteuid());
    (void)snprintf(dir, sizeof dir, "%.64s/sys/kernel/yama", proc);
    buf_init(&b, 64);
    if (procfile_read(dir, "ptrace_scope", &b, NULL) == 0 && b.n)
        scope = b.p[0] - '0';
    buf_deinit(&b);
    if (scope == 1)
        return err_set(err, -EPERM,
                       "process %u: kernel.yama.ptrace_scope is 1, so a program may read only what "
                       "it started itself: run as root, or set it to 0 (sysctl)",
                       pid);
    if (scope > 1)
        return err_set(err, -EPERM, "process %u: kernel.yama.ptrace_scope is %d, so %s", pid, scope,
                       scope == 2 ? "only CAP_SYS_PTRACE may read it: run as root"
                                  : "nobody may read it until the machine is started anew");
    return err_set(err, -EPERM,
                   "process %u may not be read: it is not dumpable, has more privileges than you, "
                   "or a seccomp filter or security module forbids it; run as root",
                   pid);
}

/* One byte of the process's memory, which takes the right that all the rest takes. */
static int try_memory(uint32_t pid, uint64_t at)
{
    char c;
    struct iovec l = {&c, 1}, r = {(void *)(uintptr_t)at, 1}; // NOLINT(performance-no-int-to-ptr)

    return process_vm_readv((pid_t)pid, &l, 1, &r, 1, 0) < 0 && errno != EFAULT ? -errno : 0;
}

static int check_status(const char *proc, uint32_t pid, const char *text, struct err *err)
{
    uint64_t uid = 0, tgid = pid;
    int r;

    (void)status_number(text, "\nUid:", &uid);
    if (strstr(text, "\nState:\tZ"))
        return err_set(err, -ESRCH, "process %u has ended (zombie)", pid);
    if (status_number(text, "\nTgid:", &tgid) && tgid != pid)
        return err_set(err, -ESRCH, "%u is a thread of process %" PRIu64 ": give that", pid, tgid);
    if (!strstr(text, "\nVmSize:"))
        return err_set(err, -ENOTSUP, "process %u is a kernel thread: it has no stack of a program",
                       pid);
    r = try_memory(pid, 0);
    if (r == -ESRCH)
        return err_set(err, r, "process %u ended", pid);
    return r < 0 ? refused(proc, pid, uid, err) : 0;
}

static int check_class(const char *proc, uint32_t pid, struct err *err)
{
    char path[128], h[5] = {};
    FILE *f;
    size_t n;

    (void)snprintf(path, sizeof path, "%.64s/%u/exe", proc, pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    n = fread(h, 1, sizeof h, f);
    (void)fclose(f);
    return n == 5 && h[4] == 1
               ? err_set(err, -ENOTSUP, "process %u is a 32-bit program: not supported", pid)
               : 0;
}

int threads_allowed(const char *proc, uint32_t pid, struct err *err)
{
    struct buf b;
    char dir[96];
    int r;

    (void)snprintf(dir, sizeof dir, "%.64s/%u", proc, pid);
    buf_init(&b, 65536);
    if (procfile_read(dir, "status", &b, NULL) < 0) {
        r = err_set(err, -ESRCH, "no process %u (or /proc hides it from you)", pid);
    } else {
        buf_chr(&b, '\0');
        r = check_status(proc, pid, b.p, err);
    }
    buf_deinit(&b);
    return r < 0 ? r : check_class(proc, pid, err);
}
