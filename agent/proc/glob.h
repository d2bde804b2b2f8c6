// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Patterns over strangers' texts: "*" any bytes, "?" one byte, "\" makes the next one plain; the
 * whole text must match. Each run of "*" and "?" is a capture; a run with a "*" takes as little as
 * it can, the last one the rest. Time is linear in the text whatever both contain: the parts
 * between the stars are found from left to right, each byte of the text costs at most GLOB_MAX / 64
 * steps, and nothing is tried twice.
 */
#define GLOB_MAX      256 /* bytes of a pattern */
#define GLOB_CAPTURES 9

struct glob;

/* errors: -EINVAL a "\" at the end, -E2BIG longer than GLOB_MAX */
[[nodiscard]] int glob_new(struct str pattern, struct glob **ret, struct err *err);
struct glob *glob_free(struct glob *g); /* NULL is a no-op; returns NULL */

/* How many runs there are, at most GLOB_CAPTURES are kept. */
uint32_t glob_captures(const struct glob *g);

/* capture: the first glob_captures(g), parts of text; untouched unless it matches. May be NULL. */
bool glob_match(const struct glob *g, struct str text, struct str *capture);
