// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/*
 * System calls that the agent may make, as an allow-list: all others fail with EPERM, in every
 * thread and for good. Two filters. The first is loaded before anything is read or sent: files,
 * memory, threads, sockets as a client, BPF and perf events; never exec, a new process, ptrace,
 * mount, kill. The second, when all is open, takes the loading of programs away. Needs
 * no_new_privs or CAP_SYS_ADMIN (privs.h).
 *   errors  -EINVAL, -ENOSYS this kernel has no filters, -EACCES not allowed here; -ENOMEM
 */
[[nodiscard]] int sandbox_begin(struct err *err);
[[nodiscard]] int sandbox_opened(struct err *err);

/* Names of the calls that pass, some of them with certain arguments only; NULL at the end. For
 * tests, which compare them with the units in packaging/. Static. */
const char *sandbox_call(size_t i);
