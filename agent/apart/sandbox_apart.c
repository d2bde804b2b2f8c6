// SPDX-License-Identifier: Apache-2.0
/* A filter never gives back what one before it has taken: the starter's holds for all whom it
 * starts, so its list is theirs and its own. */
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "agent/apart/sandbox.h"
#include "agent/apart/sandbox_private.h"

#define N(a) (sizeof(a) / sizeof(a)[0])

/* ---- the sender ---------------------------------------------------------------------------- */

static const char *const sender_plain[] = {
    /* certificates, and what the C library wants to know of names */
    "open",      "openat",        "stat",       "lstat",      "newfstatat",  "statx",
    "access",    "faccessat",     "faccessat2", "readlink",   "readlinkat",  "getdents64",
    "getcwd",    "readv",         "mmap", /* modules of the C library for names */
    "mprotect",  "uname",         "getuid",     "geteuid",    "getgid",      "getegid",
    "getresuid", "getresgid",     "getrusage",  "pipe2",      "eventfd2",    "select",
    "pselect6",  "epoll_create1", "epoll_ctl",  "epoll_wait", "epoll_pwait",
};

static const struct sandbox_rule sender_rule[] = {
    {"clone", 0, CLONE_THREAD, CLONE_THREAD}, /* libcurl asks for names in a thread */
    {"socketpair", 0, UINT32_MAX, AF_UNIX},
    {"ioctl", 1, UINT32_MAX, FIONBIO},
    {"ioctl", 1, UINT32_MAX, FIONREAD},
};

const struct sandbox_list sandbox_of_sender = {sender_plain, N(sender_plain), sender_rule,
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

const struct sandbox_list sandbox_of_starter = {starter_plain, N(starter_plain), NULL, 0};

/* -------------------------------------------------------------------------------------------- */

int sandbox_starter(struct err *err)
{
    const struct sandbox_list all[] = {sandbox_of_all, sandbox_of_client, sandbox_of_sender,
                                       sandbox_of_starter};

    return sandbox_load(all, N(all), err);
}

int sandbox_reader(struct err *err)
{
    return sandbox_load(&sandbox_of_all, 1, err);
}

int sandbox_sender(struct err *err)
{
    const struct sandbox_list all[] = {sandbox_of_all, sandbox_of_client, sandbox_of_sender};

    return sandbox_load(all, N(all), err);
}
