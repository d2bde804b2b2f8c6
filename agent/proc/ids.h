// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Who this agent is. The agent id is made once and kept in the state directory; the boot id is new
 * at every start. Main thread, at start.
 */
struct ids {
    uint8_t agent[16], boot[16], host[16];
    char hostname[256];
    bool kept;     /* the agent id is in the state directory */
    bool dir_ok;   /* the directory can be used: NULL for others otherwise */
    char why[160]; /* not kept: why */
};

/* etc: "/etc". Never fails: what cannot be kept is made anew, and why says so. */
void ids_load(const char *state_dir, const char *etc, struct ids *ret);

void ids_hex(const uint8_t id[static 16], char ret[static 33]);

/* A token from its file: one line, at most 4096 bytes, mode 0600 or 0400 and our own.
 *   errors -EACCES mode or owner, -EINVAL empty or not one line, errno of open */
[[nodiscard]] int ids_token(const char *path, struct buf *out, struct err *err);
