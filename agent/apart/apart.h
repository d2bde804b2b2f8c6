// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * The agent's other processes. A small one without any capability, the starter, is forked before
 * anything else exists; from then on the agent itself can make no process. It starts and ends the
 * others when it is asked to, and ends them and itself when the agent is gone, however it went.
 * Each gets the descriptors that it is to hold, and nothing else: see apart_role.
 *
 * One agent per process, so the state is this file's own.
 */
enum apart_role {
    APART_READER, /* parses strangers' files: reader.h */
    APART_SENDER, /* talks to the server: sender.h */
    APART_ROLES,
};
const char *apart_role_name(enum apart_role r); /* "reader", ... Static */

#define APART_FDS 4

/* What a role's process does until it ends: its exit status. */
typedef int apart_serve_fn(const int *fd, unsigned n);

/* Forks the starter. Once, after privs_drop(), before sandbox_begin() and any thread. errors: of
 * socketpair() and fork() */
[[nodiscard]] int apart_open(apart_serve_fn *const serve[static APART_ROLES], struct err *err);

/* Ends them all; returns when they are gone, or after two seconds. Without apart_open(): nothing */
void apart_close(void);

bool apart_is_on(void);

struct apart_started {
    pid_t pid;
    int before; /* how the one before ended, as wait() has it; -1: there was none */
};

/*
 * Starts a process of this role with these descriptors, which stay the caller's, too; one that
 * still runs is killed first. Waits for the starter, which does nothing else. Any thread.
 *   errors  -EPIPE the starter is gone; -EAGAIN, -ENOMEM no process could be made; -ETIMEDOUT
 */
[[nodiscard]] int apart_start(enum apart_role role, const int *fd, unsigned n,
                              struct apart_started *ret, struct err *err);

/* The starter's and the running ones' ids; 0: none. Any thread. */
pid_t apart_starter(void);
pid_t apart_pid(enum apart_role role);

/* Is the starter there? Without it nothing can be started again. errors: -EPIPE. Any thread */
[[nodiscard]] int apart_check(struct err *err);

/* What a process may do, as the kernel says it: "no capabilities, calls filtered". Any thread. */
#define APART_RIGHTS 160
void apart_rights(pid_t pid, char ret[static APART_RIGHTS]);

/* CPU time of all that were started, those that ended included. Any thread. */
uint64_t apart_cpu_ns(void);
