// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/buf.h"
#include "base/str.h"
#include "cli/cli.h"

/*
 * Captures of `strata record` that lie in a selection beside what agents saw, or beside each other:
 * series add up, which is said, as the page says it. One thread.
 */

/* Has the selector a condition on that label? q: any text */
bool selector_names(const char *q, struct str label);
/* The selector with one more condition, label="value". q: as the user gave it; NULL: cpu */
void selector_narrow(struct buf *b, const char *q, const char *label, struct str value);

/* To standard error, where there are some and q does not speak of them; what cannot be asked is not
 * said. side: before the words, "" or "A: "; from, to: NULL the server's default */
void cli_tell_captures(const struct cli_server *s, const char *side, const char *q,
                       const char *from, const char *to);
