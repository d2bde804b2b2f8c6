// SPDX-License-Identifier: Apache-2.0
/* A filter never gives back what one before it has taken: the starter's holds for all whom it
 * starts, so its list is theirs and its own. */
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "agent/apart/sandbox.h"
#include "agent/apart/sandbox_private.h"

#define N(a) (sizeof(a) / sizeof(a)[0])

/* ---- all ----------------------------------------------------------------------------------- */

static const char *const plain[] = {
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

static const struct sandbox_rule rule[] = {
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

static const struct sandbox_list everyone = {plain, N(plain), rule, N(rule)};

/* ---- the sender ---------------------------------------------------------------------------- */

static const char *const sender_plain[] = {
    /* certificates, and what the C library wants to know of names */
    "open",
    "openat",
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
    "readv",
    "mmap", /* modules of the C library for names */
    "mprotect",
    "uname",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getresuid",
    "getresgid",
    "getrusage",
    /* a client's side of the network */
    "connect",
    "bind",
    "getsockname",
    "getpeername",
    "getsockopt",
    "setsockopt",
    "sendmmsg",
    "recvmmsg",
    "shutdown",
    "pipe2",
    "eventfd2",
    "select",
    "pselect6",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
};

static const struct sandbox_rule sender_rule[] = {
    {"clone", 0, CLONE_THREAD, CLONE_THREAD}, /* libcurl asks for names in a thread */
    {"socket", 0, UINT32_MAX, AF_INET},
    {"socket", 0, UINT32_MAX, AF_INET6},
    {"socket", 0, UINT32_MAX, AF_UNIX},
    {"socket", 0, UINT32_MAX, AF_NETLINK}, /* getaddrinfo() asks for our addresses */
    {"socketpair", 0, UINT32_MAX, AF_UNIX},
    {"ioctl", 1, UINT32_MAX, FIONBIO},
    {"ioctl", 1, UINT32_MAX, FIONREAD},
};

static const struct sandbox_list sender = {sender_plain, N(sender_plain), sender_rule,
                                           N(sender_rule)};

/* ---- the starter --------------------------------------------------------------------------- */

static const char *const starter_plain[] = {
    "clone",
    "fork",
    "vfork",
    "wait4",
    "waitid",
    "kill",
    "prlimit64",
    "setrlimit",
    "setpriority",
    "getpriority",
    "close_range",
    "prctl",
    "seccomp",
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
    "set_tid_address",
};

static const struct sandbox_list starter = {starter_plain, N(starter_plain), NULL, 0};

/* -------------------------------------------------------------------------------------------- */

const char *sandbox_apart_call(size_t i)
{
    const struct sandbox_list *const all[] = {&everyone, &sender, &starter};

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

int sandbox_starter(struct err *err)
{
    const struct sandbox_list all[] = {everyone, sender, starter};

    return sandbox_load(all, N(all), err);
}

int sandbox_reader(struct err *err)
{
    return sandbox_load(&everyone, 1, err);
}

int sandbox_sender(struct err *err)
{
    const struct sandbox_list all[] = {everyone, sender};

    return sandbox_load(all, N(all), err);
}
