// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/*
 * System calls that the agent may make, as an allow-list: all others fail with EPERM, in every
 * thread and for good. Two filters. The first is loaded before anything is read or sent: files,
 * memory, threads, sockets as a client, BPF and perf events; never exec, a new process, ptrace,
 * mount, kill; without sends no socket either, but pairs. The second, when all is open, takes the
 * loading of programs away. Needs no_new_privs or CAP_SYS_ADMIN (privs.h). errors  -EINVAL, -ENOSYS
 * this kernel has no filters, -EACCES not allowed here; -ENOMEM
 */
[[nodiscard]] int sandbox_begin(bool sends, struct err *err);
[[nodiscard]] int sandbox_opened(struct err *err);

/*
 * The same for the agent's other processes (apart.h), which have no capability either. The starter:
 * what one of the others may, and to make, end and wait for a process. The reader: memory, reading
 * and answering on what it was given; it opens nothing. The sender: files to read, sockets as a
 * client.
 */
[[nodiscard]] int sandbox_starter(struct err *err);
[[nodiscard]] int sandbox_reader(struct err *err);
[[nodiscard]] int sandbox_sender(struct err *err);

/* A sanitizer's build: its run-time library makes calls of its own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANDBOX_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANDBOX_SANITIZED
#endif
#endif

/* Names of the calls that pass in one of the processes, some of them with certain arguments only;
 * NULL at the end. For tests, which compare them with the units in packaging/. Static. */
const char *sandbox_call(size_t i);
