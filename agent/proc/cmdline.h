// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/buf.h"
#include "base/str.h"

/*
 * Command lines as /proc/PID/cmdline has them: arguments, each with a NUL. Pure, any thread.
 */
#define CMDLINE_MAX ((size_t)4096)

/*
 * For sending: arguments joined by blanks, at most CMDLINE_MAX bytes appended, secrets replaced by
 * "***": the value after --*W* (or in --*W*=value), of NAME=value with W in NAME, where W is token,
 * password, passwd, secret, key or auth in any case; the password of user:password@ in a URL.
 */
void cmdline_mask(struct str args, struct buf *out);

/* What a Python interpreter runs: "train" of "python3 -u train.py x", "pkg.mod" of "-m pkg.mod";
 * "" if exe is no Python, or of -c, of standard input. A part of args. */
struct str cmdline_python(struct str exe, struct str args);

/* The next argument; false at the end. */
bool cmdline_next(struct str *args, struct str *ret);
