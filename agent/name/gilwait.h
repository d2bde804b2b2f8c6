// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/name/names.h"

/*
 * Does a thread with this stack wait for Python's interpreter lock? By the names of its functions:
 * take_gil, or drop_gil, which gave the lock up on request and waits until another thread has taken
 * it; where these have no name (they are local), by who calls them. That the thread has not got the
 * lock is for the caller to know.
 *   word   user words as in struct sa_ev, leaf first; a Python frame is one word here
 *   name   room for names, overwritten
 * Owner of names.
 */
bool gilwait_by_stack(struct names *names, struct buf *name, const uint64_t *word, uint32_t n);
