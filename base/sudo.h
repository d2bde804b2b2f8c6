// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * Files that root writes for whoever called sudo. They lie where that user, or others, may put
 * links, so root follows none there, and gives away only what it has just made itself.
 * One thread: they read the environment.
 */

/* Who called sudo; false: nobody, or we are not root. */
bool sudo_user(uid_t *ret_uid, gid_t *ret_gid);

/*
 * A file for output: a descriptor for writing. It is made where it is missing, 0600, the user's
 * then; what was there keeps owner and content. errors: of open(2); -ELOOP a link, under sudo
 */
[[nodiscard]] int sudo_create(const char *path, struct err *err);

/* A folder that was just made becomes the user's. Without sudo nothing is done. errors: of open(2),
 * fchown(2) */
[[nodiscard]] int sudo_give_folder(const char *path, struct err *err);
