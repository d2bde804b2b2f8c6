// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/file/binary.h"

/*
 * rbp of a blocked thread, of which only pc and sp are known: computed from the code of the
 * function that needs it, and believed only if a call of that function stands before the return
 * address that is found by it. Nothing is searched on the stack, where old frames lie about. Any
 * thread.
 */

/* The function that holds ELF address va begins with `push rbp; mov rbp, rsp`: how far above sp its
 * rbp is, by the pushes and the subtraction that follow. ret_begin: its ELF address. */
bool unwind_rbp_frame(const struct binary *b, uint64_t va, uint64_t *ret_above,
                      uint64_t *ret_begin);

/* Does a call stand before ELF address va: of `begin` (0: in another binary), through a stub, or
 * through a pointer? */
bool unwind_rbp_called(const struct binary *b, uint64_t va, uint64_t begin);
