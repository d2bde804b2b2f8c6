// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Who may do what. Without a token file every local user has all roles, and the server listens on
 * loopback only. A token file holds one token a line, "NAME ROLE[,ROLE] SHA256" in hex, '#' begins
 * a comment: the tokens themselves are nowhere in the server. Read-only after auth_load(): any
 * thread.
 */
enum auth_role {
    AUTH_NONE = 0, /* open to everyone */
    AUTH_INGEST = 1,
    AUTH_READ = 2,
    AUTH_ADMIN = 4,
};

struct auth;

/*
 * Read the file. Mode 0600 or 0400 and our own uid are required.
 *   path     "" or NULL: no tokens
 *   errors   -ENOENT, -EACCES, -EPERM (mode or owner), -EINVAL with the line
 */
[[nodiscard]] int auth_load(const char *path, struct auth **ret, struct err *err);
struct auth *auth_free(struct auth *a);

/* Are there tokens, so that requests must carry one? */
bool auth_required(const struct auth *a);

enum auth_result {
    AUTH_OK = 0,
    AUTH_UNKNOWN, /* no token, or none of ours: 401 */
    AUTH_DENIED,  /* its roles are others: 403 */
};

/* Authorization: Bearer TOKEN, or Basic with the token as password. All hashes are compared, each
 * in constant time. */
enum auth_result auth_check(const struct auth *a, struct str authorization, enum auth_role role);
