// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

#include "base/err.h"

/*
 * Landlock (Linux 5.13): what this thread and those it starts may do to files, TCP ports, and
 * processes outside, taken away for good. What the kernel does not know is left out, so older ones
 * take less away: landlock_abi() says what there is. Needs no_new_privs.
 */
#define LANDLOCK_ABI_NET   4 /* TCP ports */
#define LANDLOCK_ABI_SCOPE 6 /* signals and abstract sockets of others */

/* Version of the interface; 0: this kernel has none, or it is switched off. */
int landlock_abi(void);

/*
 * No file, but to read and execute below these folders (or these files); a missing one is left out.
 *   read     NULL at the end; may be NULL: none at all
 *   connect  TCP may be opened to others; else neither that nor a port to listen at
 *   returns  0, or 1: there is no Landlock here and nothing was done
 *   errors   errno of the calls: nothing was done
 */
[[nodiscard]] int landlock_restrict(const char *const *read, bool connect, struct err *err);
