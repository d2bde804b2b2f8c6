// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/unwind/unwind_native.h"
#include "base/err.h"

/*
 * Threads of another process, seen without any privilege (proc(5)) and, where they run, stopped for
 * a moment (ptrace(2)). A stop must be waited for and let go by the thread that asked for it. A
 * thread may be gone at any moment: -ESRCH, always.
 */
/*
 * May the process pid be read and stopped, and is there anything to read? 0: yes.
 *   errors   -ESRCH no such process, or it ended; -EPERM another user's, or the system's policy
 *            refuses: the text names it and what to do; -ENOTSUP kernel thread, 32-bit
 */
[[nodiscard]] int threads_allowed(const char *proc, uint32_t pid, struct err *err);

struct thread_sched {
    uint64_t exec_ns;      /* CPU time; exact while it does not run */
    uint64_t waits;        /* times that it got a CPU: two equal ones say that it stayed */
    uint64_t run_delay_ns; /* that it waited for one */
};

struct thread_look {
    char state; /* of /proc/PID/task/TID/stat: R S D T t Z X I */
    char comm[16];
    uint64_t start_ticks; /* since boot: with its number it names the thread for ever */
    struct thread_sched sched;
};

/* errors: -ESRCH, -ENOMEM */
[[nodiscard]] int thread_look(const char *proc, uint32_t pid, uint32_t tid,
                              struct thread_look *ret);

/* The last part alone; zeros where the kernel does not count (CONFIG_SCHED_INFO). */
struct thread_sched thread_sched(const char *proc, uint32_t pid, uint32_t tid);

/* Where a thread that does not run left user mode. */
struct thread_call {
    bool running; /* it does run: nothing is known */
    int64_t nr;   /* of the system call it waits in; -1: of none (page fault, stopped) */
    uint64_t sp, pc;
};

/* errors: -ESRCH; -EACCES, -EPERM refused; -ENOSYS a kernel without CONFIG_HAVE_ARCH_TRACEHOOK */
[[nodiscard]] int thread_call(const char *proc, uint32_t pid, uint32_t tid,
                              struct thread_call *ret);

/* "futex"; NULL: no name known. Static. */
const char *thread_call_name(int64_t nr);

/* All threads of a process into *ret (heap, the caller's); their number, or -ESRCH. */
[[nodiscard]] int threads_list(const char *proc, uint32_t pid, uint32_t **ret);

/* ---- stops ---------------------------------------------------------------------------------- */

/* Once, before any thread of ours is started: SIGCHLD, which tells of stops, waits to be taken. */
void thread_stop_prepare(void);

/* Until a thread that was asked may have stopped, at most ns. May come back early. */
void thread_stop_wait(int64_t ns);

/* Asks a thread to stop. It stops when it next runs. errors: -ESRCH, -EPERM refused or traced by
 * another */
[[nodiscard]] int thread_stop(uint32_t tid);

/*
 * Has it stopped? 1, with its registers (and *ret_32: it is in 32-bit mode), 0 not yet, -ESRCH it
 * has ended. own_child: its end is for someone else of this program to wait for.
 */
[[nodiscard]] int thread_stopped(uint32_t tid, bool own_child, struct unwind_regs *ret,
                                 bool *ret_32, int *ret_signal);

/* Lets it go, as if nothing had been; signal as thread_stopped() gave it. */
void thread_let_go(uint32_t tid, int signal);

/* ---- stacks --------------------------------------------------------------------------------- */

/*
 * A copy of the top of a stack, as memory for the unwinder. live: what lies beyond the copy is read
 * from the process (which must stand still), else it is unreadable.
 */
struct stack_copy {
    uint64_t at, n;
    const uint8_t *p; /* borrowed by the reader */
    uint32_t pid;
    bool live;
};

#define STACK_COPY_MAX ((size_t)256 << 10)

/* n bytes from sp on, or as far as memory is mapped, into room. n: at most STACK_COPY_MAX. One
 * call. */
void stack_copy_take(struct stack_copy *ret, uint32_t pid, uint64_t sp, size_t n, uint8_t *room);

struct unwind_memory stack_copy_memory(struct stack_copy *c);
