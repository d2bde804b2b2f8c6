// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Files under the root of another process: a container's, a chroot's. What a path means there its
 * owner decides, so it is followed inside that root alone (openat2(2), RESOLVE_IN_ROOT: absolute
 * links and ".." end at that root, links of /proc are not taken), and a device or pipe is never
 * opened. Any thread.
 */

/* The root of a process, or "/" with pid 0: a descriptor that opens nothing by itself; or negative
 * errno. */
int rootfile_root(const char *proc, uint32_t pid);

/* A regular file, for reading. follow: the last part may be a link.
 *   errors   negative errno; -ELOOP a link where none may be, -EINVAL no regular file */
int rootfile_open(int root, struct str path, bool follow);
