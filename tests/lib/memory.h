// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

/*
 * Allocations that fail: those of our libraries (link options --wrap, see memory.c) and SQLite's.
 * Not those that may end the program when memory is short (xmalloc and its like), nor what libc and
 * zstd allocate inside.
 */

/* Before SQLite's first call. */
void memory_begin(void);
/* The n-th from now fails, and the next n_fail - 1; n 0: none. Any thread's. */
void memory_fail(uint64_t n, uint64_t n_fail);
/* Those that failed since. */
uint64_t memory_failures(void);
