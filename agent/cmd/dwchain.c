// SPDX-License-Identifier: Apache-2.0
#include "agent/cmd/dwchain.h"

#include <elfutils/libdwfl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/arena.h"

enum {
    MAX_CHAIN = 520,
    STACK_REACH = 8 << 20,
};

struct dwchain {
    Dwfl *dwfl;
    uint32_t pid;
    const struct unwind_regs *regs;
    const struct stack_copy *stack;
    bool missing;
    uint32_t n, same;
    uint64_t pc[MAX_CHAIN];
};

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
    (void)dwfl;
    if (*thread_arg)
        return 0;
    *thread_arg = arg;
    return (pid_t)((struct dwchain *)arg)->pid;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread_arg)
{
    (void)dwfl;
    *thread_arg = arg;
    return tid == (pid_t)((struct dwchain *)arg)->pid;
}

/* The copy first; what is no stack from the process itself. */
static bool memory_read(Dwfl *dwfl, Dwarf_Addr at, Dwarf_Word *ret, void *arg)
{
    struct dwchain *d = arg;
    struct iovec to = {ret, sizeof *ret},
                 from = {(void *)(uintptr_t)at, sizeof *ret}; // NOLINT: an address of the target

    (void)dwfl;
    if (at >= d->stack->at && at - d->stack->at + sizeof *ret <= d->stack->n) {
        memcpy(ret, d->stack->p + (at - d->stack->at), sizeof *ret);
        return true;
    }
    if (at >= d->stack->at && at - d->stack->at < STACK_REACH) {
        d->missing = true;
        return false;
    }
    return process_vm_readv((pid_t)d->pid, &to, 1, &from, 1, 0) == (ssize_t)sizeof *ret;
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
    const struct dwchain *d = arg;
    Dwarf_Word reg[17];

    memcpy(reg, d->regs->reg, sizeof d->regs->reg);
    reg[16] = d->regs->pc;
    return dwfl_thread_state_registers(thread, 0, 17, reg);
}

static int on_frame(Dwfl_Frame *f, void *arg)
{
    struct dwchain *d = arg;
    Dwarf_Addr pc;
    bool exact;

    if (!dwfl_frame_pc(f, &pc, &exact) || !pc || d->n == MAX_CHAIN)
        return DWARF_CB_ABORT;
    d->pc[d->n++] = pc - (exact ? 0 : 1);
    return DWARF_CB_OK;
}

struct dwchain *dwchain_open(uint32_t pid)
{
    static const Dwfl_Callbacks cb = {.find_elf = dwfl_linux_proc_find_elf,
                                      .find_debuginfo = dwfl_standard_find_debuginfo};
    static const Dwfl_Thread_Callbacks tcb = {.next_thread = next_thread,
                                              .get_thread = get_thread,
                                              .memory_read = memory_read,
                                              .set_initial_registers = set_registers};
    struct dwchain *d = xcalloc(1, sizeof *d);

    d->pid = pid;
    d->dwfl = dwfl_begin(&cb);
    if (!d->dwfl || dwfl_linux_proc_report(d->dwfl, (pid_t)pid) ||
        dwfl_report_end(d->dwfl, NULL, NULL) ||
        !dwfl_attach_state(d->dwfl, NULL, (pid_t)pid, &tcb, d))
        return dwchain_close(d);
    return d;
}

struct dwchain *dwchain_close(struct dwchain *d)
{
    if (!d)
        return NULL;
    if (d->dwfl)
        dwfl_end(d->dwfl);
    free(d);
    return NULL;
}

/* Does the word stand for this address of the process? */
static bool word_is(const struct proc *p, uint64_t w, uint64_t pc)
{
    const struct proc_map *m;

    if ((w & SA_W_TAG) == SA_W_RAW)
        return (w & ~SA_W_TAG) == pc;
    m = proc_map_find(p, pc);
    return m && m->bin && m->bin->id == SA_W_BIN(w) && pc - m->bias == SA_W_ADDR(w);
}

enum dwchain_verdict dwchain_compare(struct dwchain *d, const struct proc *p,
                                     const struct unwind_regs *regs, const struct stack_copy *stack,
                                     const uint64_t *words, uint32_t n)
{
    uint32_t i = 0, k = 0;

    d->regs = regs;
    d->stack = stack;
    d->n = 0;
    d->missing = false;
    (void)dwfl_getthread_frames(d->dwfl, (pid_t)d->pid, on_frame, d);
    for (;; i++) {
        while (k < n && (words[k] & SA_W_TAG) == SA_W_MARK)
            k++;
        if (k == n || i == d->n || !word_is(p, words[k], d->pc[i]))
            break;
        k++;
    }
    d->same = i;
    if (k == n && i == d->n)
        return DWCHAIN_SAME;
    if (k < n && i < d->n)
        return DWCHAIN_DIFFER;
    if (i == d->n)
        return d->missing ? DWCHAIN_DUMP : DWCHAIN_THEIRS;
    return DWCHAIN_OURS;
}

const uint64_t *dwchain_last(const struct dwchain *d, uint32_t *ret_n, uint32_t *ret_same)
{
    *ret_n = d->n;
    *ret_same = d->same;
    return d->pc;
}
