// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/proc/proc.h"
#include "agent/unwind/threads.h"

/*
 * libdw's chain of a sample that was copied (registers and stack), to compare with ours. Of one
 * process; opened again when its mappings changed. One thread.
 */
struct dwchain;

struct dwchain *dwchain_open(uint32_t pid); /* NULL: libdw refuses */
struct dwchain *dwchain_close(struct dwchain *d);

enum dwchain_verdict {
    DWCHAIN_SAME,
    DWCHAIN_DUMP,   /* libdw needed memory that was not copied; equal so far */
    DWCHAIN_THEIRS, /* libdw stopped, we went on; equal so far */
    DWCHAIN_OURS,   /* we stopped; equal so far */
    DWCHAIN_DIFFER,
    DWCHAIN_N
};

/* words: our user frames, leaf first, marks among them. stack.at is where the copy begins. */
enum dwchain_verdict dwchain_compare(struct dwchain *d, const struct proc *p,
                                     const struct unwind_regs *regs, const struct stack_copy *stack,
                                     const uint64_t *words, uint32_t n);

/* libdw's chain of the last comparison; *ret_same: frames that were equal. Borrowed. */
const uint64_t *dwchain_last(const struct dwchain *d, uint32_t *ret_n, uint32_t *ret_same);
