// SPDX-License-Identifier: Apache-2.0
#include "agent/apart/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/apart/sandbox_private.h"

#define PERF_IOCTLS 0x2400 /* '$' << 8 */
#define IOCTL_TYPE  0xff00

#define N(a) (sizeof(a) / sizeof(a)[0])

/* ---- every process of it -------------------------------------------------------------------- */

/* Calls that pass whatever their arguments are. A call that libseccomp does not know by name is
 * left out: it is of another architecture. */
static const char *const every_plain[] = {
    /* on what is open */
    "read",
    "pread64",
    "write",
    "writev",
    "lseek",
    "fstat",
    "fcntl",
    "close",
    "recvmsg",
    "sendmsg",
    "sendto",
    "recvfrom",
    "shutdown", /* how the starter is told that all ends, too */
    "memfd_create",
    /* memory */
    "munmap",
    "mremap",
    "madvise",
    "brk",
    /* time and waiting */
    "poll",
    "ppoll",
    "futex",
    "nanosleep",
    "clock_nanosleep",
    "clock_gettime",
    "clock_getres",
    "gettimeofday",
    "time",
    "getrandom",
    "restart_syscall",
    /* threads that are there */
    "set_robust_list",
    "rseq",
    "exit",
    "exit_group",
    "sched_yield",
    "sched_getaffinity",
    "getcpu",
    "membarrier",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "getpid",
    "getppid",
    "gettid",
    "sysinfo",           /* qsort() asks how much memory there is */
#ifdef SANDBOX_SANITIZED /* their checks at the end look at the process from another one */
    "mmap",
    "mprotect",
    "openat",
    "readlink",
    "readlinkat",
    "newfstatat",
    "clone",
    "ptrace",
    "wait4",
    "personality",
    "kill",
    "tgkill",
    "prctl",
    "getrusage",
    "prlimit64",
    "ioctl",
#endif
};

static const struct sandbox_rule every_rule[] = {
    /* no code that was not there */
    {"mmap", 2, PROT_EXEC, 0},
    {"mprotect", 2, PROT_EXEC, 0},
    /* fstat() */
    {"newfstatat", 3, AT_EMPTY_PATH, AT_EMPTY_PATH},
    {"prctl", 0, UINT32_MAX, PR_SET_NAME},
    {"prctl", 0, UINT32_MAX, PR_SET_VMA},
    {"prlimit64", 2, UINT64_MAX, 0},   /* to read a limit */
    {"setpriority", 0, UINT32_MAX, 0}, /* nice of a thread */
};

const struct sandbox_list sandbox_of_all = {every_plain, N(every_plain), every_rule, N(every_rule)};

/* ---- who talks to the server ---------------------------------------------------------------- */

static const char *const client_plain[] = {
    "connect",    "bind",       "getsockname", "getpeername",
    "getsockopt", "setsockopt", "sendmmsg",    "recvmmsg",
};

static const struct sandbox_rule client_rule[] = {
    {"socket", 0, UINT32_MAX, AF_INET},
    {"socket", 0, UINT32_MAX, AF_INET6},
    {"socket", 0, UINT32_MAX, AF_UNIX},
    {"socket", 0, UINT32_MAX, AF_NETLINK}, /* getaddrinfo() asks for our addresses */
};

const struct sandbox_list sandbox_of_client = {client_plain, N(client_plain), client_rule,
                                               N(client_rule)};

/* ---- the agent ------------------------------------------------------------------------------ */

static const char *const plain[] = {
    /* files */
    "readv",
    "preadv",
    "preadv2",
    "pwrite64",
    "pwritev",
    "open",
    "openat",
    "openat2",
    "close_range",
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "getdents64",
    "getcwd",
    "flock",
    "dup",
    "dup2",
    "dup3",
    "pipe2",
    "mkdir",
    "mkdirat",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "ftruncate",
    "fsync",
    "fdatasync",
    "statfs",
    "fstatfs",
    "fchmod",
    "umask",
    /* memory */
    "mmap",
    "mprotect",
    /* waiting */
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "select",
    "pselect6",
    "eventfd2",
    "timerfd_create",
    "timerfd_settime",
    "timerfd_gettime",
    "signalfd4",
    /* threads */
    "get_robust_list",
    "set_tid_address",
    "rt_sigtimedwait",
    /* who and where we are; capset can only give away */
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getresuid",
    "getresgid",
    "uname",
    "getrusage",
    "getrlimit",
    "capget",
    "capset",
    "times",
    /* the second filter */
    "seccomp",
    /* what it is for */
    "bpf",
    "perf_event_open",
    "process_vm_readv",
};

static const struct sandbox_rule with_argument[] = {
    {"clone", 0, CLONE_THREAD, CLONE_THREAD}, /* no process */
    {"socketpair", 0, UINT32_MAX, AF_UNIX},   {"ioctl", 1, IOCTL_TYPE, PERF_IOCTLS},
    {"ioctl", 1, UINT32_MAX, FIONBIO},        {"ioctl", 1, UINT32_MAX, FIONREAD},
    {"ioctl", 1, UINT32_MAX, TCGETS}, /* isatty() */
    {"prctl", 0, UINT32_MAX, PR_GET_NAME},    {"prctl", 0, UINT32_MAX, PR_GET_DUMPABLE},
};

static const struct sandbox_list agent = {plain, N(plain), with_argument, N(with_argument)};

/* Commands of bpf() that nothing needs once all is open: new programs, and what others loaded. */
static const uint32_t loading[] = {
    BPF_PROG_LOAD,         BPF_BTF_LOAD,         BPF_OBJ_PIN,
    BPF_OBJ_GET,           BPF_PROG_ATTACH,      BPF_PROG_DETACH,
    BPF_PROG_TEST_RUN,     BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID,
    BPF_PROG_GET_FD_BY_ID, BPF_MAP_GET_FD_BY_ID, BPF_BTF_GET_FD_BY_ID,
    BPF_LINK_GET_FD_BY_ID, BPF_LINK_GET_NEXT_ID, BPF_RAW_TRACEPOINT_OPEN,
    BPF_TASK_FD_QUERY,     BPF_PROG_BIND_MAP,
};

const char *sandbox_call(size_t i)
{
    const struct sandbox_list *const all[] = {&sandbox_of_all, &sandbox_of_client, &agent,
                                              &sandbox_of_sender, &sandbox_of_starter};

    for (size_t l = 0; l < N(all); l++) {
        if (i < all[l]->n_plain)
            return all[l]->plain[i];
        i -= all[l]->n_plain;
        if (i < all[l]->n_rule)
            return all[l]->rule[i].call;
        i -= all[l]->n_rule;
    }
    return NULL;
}

static int refused(struct err *err, int r)
{
    return err_set(err, r == -ECANCELED ? -EACCES : r, "filter of system calls: %s",
                   strerrordesc_np(r == -ECANCELED ? EACCES : -r));
}

static int add(scmp_filter_ctx f, uint32_t action, const char *call, unsigned n,
               const struct scmp_arg_cmp *cmp)
{
    int nr = seccomp_syscall_resolve_name(call);

    return nr < 0 ? 0 : seccomp_rule_add_array(f, action, nr, n, cmp);
}

static int allow_list(scmp_filter_ctx f, const struct sandbox_list *l)
{
    int r = 0;

    for (size_t i = 0; i < l->n_plain && r == 0; i++)
        r = add(f, SCMP_ACT_ALLOW, l->plain[i], 0, NULL);
    for (size_t i = 0; i < l->n_rule && r == 0; i++) {
        const struct sandbox_rule *w = &l->rule[i];
        const struct scmp_arg_cmp cmp = {w->arg, SCMP_CMP_MASKED_EQ, w->mask, w->value};

        r = add(f, SCMP_ACT_ALLOW, w->call, 1, &cmp);
    }
    return r;
}

static int allow_all(scmp_filter_ctx f, const struct sandbox_list *list, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        r = allow_list(f, &list[i]);
    if (r == 0) { /* abort() and raise(): signals to ourselves */
        const struct scmp_arg_cmp own = {0, SCMP_CMP_EQ, (uint64_t)getpid(), 0};

        r = add(f, SCMP_ACT_ALLOW, "tgkill", 1, &own);
    }
    /* its flags lie in memory, where no filter looks: glibc takes clone() instead */
    if (r == 0)
        r = add(f, SCMP_ACT_ERRNO(ENOSYS), "clone3", 0, NULL);
    return r;
}

/* In all threads, without a signal where a call is of another architecture. */
static int load(scmp_filter_ctx f)
{
    int r = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);

    if (r == 0) /* privs.c has set it */
        r = seccomp_attr_set(f, SCMP_FLTATR_CTL_NNP, 0);
    if (r == 0)
        r = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM));
    if (r == 0)
        r = seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree, not a list */
    if (r == 0)
        r = seccomp_load(f);
    return r;
}

int sandbox_load(const struct sandbox_list *list, size_t n, struct err *err)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int r;

    if (!f)
        return err_set(err, -ENOMEM, "filter of system calls: no memory");
    r = allow_all(f, list, n);
    if (r == 0)
        r = load(f);
    seccomp_release(f);
    return r < 0 ? refused(err, r) : 0;
}

int sandbox_begin(bool sends, struct err *err)
{
    const struct sandbox_list all[] = {sandbox_of_all, agent, sandbox_of_client};

    return sandbox_load(all, sends ? 3 : 2, err);
}

int sandbox_opened(struct err *err)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    int r = 0;

    if (!f)
        return err_set(err, -ENOMEM, "filter of system calls: no memory");
    for (size_t i = 0; i < N(loading) && r == 0; i++) {
        const struct scmp_arg_cmp cmp = {0, SCMP_CMP_MASKED_EQ, UINT32_MAX, loading[i]};

        r = add(f, SCMP_ACT_ERRNO(EPERM), "bpf", 1, &cmp);
    }
    if (r == 0)
        r = add(f, SCMP_ACT_ERRNO(EPERM), "seccomp", 0, NULL);
    if (r == 0)
        r = load(f);
    seccomp_release(f);
    return r < 0 ? refused(err, r) : 0;
}
