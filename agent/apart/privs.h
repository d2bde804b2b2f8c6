// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * What the agent may do, cut down to what it needs before it looks at anything of a stranger: the
 * user, the capability sets, no_new_privs, no core dump, nobody may trace it. Nothing is added: a
 * capability that we were started without stays away, and check says what that costs.
 */

/* The six of docs/privileges.md, as bits by number of capability. */
#define PRIVS_CAPS                                                                                 \
    (UINT64_C(1) << CAP_BPF | UINT64_C(1) << CAP_PERFMON | UINT64_C(1) << CAP_SYS_PTRACE |         \
     UINT64_C(1) << CAP_CHECKPOINT_RESTORE | UINT64_C(1) << CAP_DAC_READ_SEARCH |                  \
     UINT64_C(1) << CAP_SYSLOG)

/* Becomes this user where we are root and it exists: "" stays who we are. */
#define PRIVS_USER "strata-agent"

struct privs {
    char who[160];   /* who we are now and why, for people */
    bool hands_over; /* the state directory is root's and becomes the user's with the first run */
};

/*
 * As said above; in root's case the state directory, if it is one of root's agent or empty, is
 * handed over to the user first, itself last, or only looked at. Call once, before any other
 * thread. give    hand it over user    a name; PRIVS_USER may be missing, another may not errors
 * -ENOENT no such user; -EPERM and others: a step was refused, nothing may go on
 */
[[nodiscard]] int privs_drop(const char *user, const char *state_dir, bool give, struct privs *ret,
                             struct err *err);

/* This thread needs none of them: it talks to the network. Any thread. Never fails where
 * privs_drop() has succeeded; what it could not do changes nothing. */
void privs_drop_thread(void);

/* Descriptors, and pages that rings may lock: as many as we may have. Before privs_drop(). */
void privs_raise_limits(void);
