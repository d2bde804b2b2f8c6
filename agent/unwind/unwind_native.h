// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/bpf/cpu.h"
#include "agent/unwind/tables.h"
#include "base/err.h"

/*
 * The unwinder of the BPF programs in user space: the same step (bpf/step.bpf.h), the same tables
 * (tables.h, in plain memory), the same reasons to stop. Memory comes from a callback: another
 * process, a stack that was copied with a sample, a recorded dump. Thread: its owner's, as
 * tables.h.
 */
struct unwind_native;

struct unwind_memory {
    /* n bytes at an address of the target; 0, or they cannot be read. */
    int (*read)(void *ctx, void *to, uint32_t n, uint64_t at);
    void *ctx;
};

struct unwind_regs {
    uint64_t pc;
    uint64_t reg[16]; /* DWARF numbering: 6 rbp, 7 rsp */
    uint64_t fsbase;  /* thread pointer; 0: unknown, then there are no Python frames */
    /* The others are unknown: rbp until a frame restores it, or its code tells (unwind_rbp.h). */
    bool only_pc_sp;
};

/* errors: as tables_open() */
[[nodiscard]] int unwind_native_open(struct unwind_native **ret, const struct tables_opts *opts,
                                     struct err *err);
struct unwind_native *unwind_native_close(struct unwind_native *u); /* NULL: no-op; returns NULL */

/* For publishing processes. Borrowed. */
struct tables *unwind_native_tables(struct unwind_native *u);

/*
 * One chain: words leaf first, stop, flags, tgid and map_gen of the record; nk is 0, the rest is
 * zero for the caller to fill. Borrowed until the next call. A process that was not published
 * stops with noproc and its raw pc.
 */
struct sa_ev *unwind_native(struct unwind_native *u, uint32_t tgid, const struct unwind_regs *regs,
                            const struct unwind_memory *mem);

/*
 * The same, and tables that the chain stops for are built: it waits for each, then begins again,
 * until wait_ns are spent. So the memory must stand still: a copy, or a stopped thread.
 */
struct sa_ev *unwind_native_whole(struct unwind_native *u, uint32_t tgid,
                                  const struct unwind_regs *regs, const struct unwind_memory *mem,
                                  int64_t wait_ns);

/* Until the queue of tables is empty, at most wait_ns; finished ones are taken in. false: late. */
bool unwind_native_settle(struct unwind_native *u, int64_t wait_ns);

/* An unwind_memory of a live process: process_vm_readv; pid must outlive it. */
struct unwind_memory unwind_memory_of_process(const uint32_t *pid);

/* The registers of ptrace(2) or of a core, in their numbering. */
struct user_regs_struct;
struct unwind_regs unwind_regs_of_user(const struct user_regs_struct *r);
