// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "base/str.h"

/* Names of functions without their template arguments. Thread: any. */

/* Has it any that close? Else the short name is the name. */
bool func_has_short(struct str name);

/* The name without template arguments; s itself where it has none, or where they do not close.
 * Else in the arena; {NULL, 0} with s.n > 0: no memory. */
struct str func_short_name(struct arena *a, struct str s);
