// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/proc/proc.h"
#include "agent/python/py.h"
#include "agent/unwind/unwind_native.h"
#include "base/arena.h"
#include "base/err.h"

/*
 * All threads of one process, now. Threads that run are stopped (ptrace), read and let go one by
 * one; blocked ones are read as they stand, because an interrupt makes some system calls fail with
 * EINTR (epoll_wait). Without any privilege, for processes of the same user. One thread, that of
 * the caller.
 */
enum dump_state {
    DUMP_RUNNING = 1, /* on a CPU */
    DUMP_RUNNABLE,    /* would run, waited for a CPU */
    DUMP_WAITING,     /* in a system call, or for a page */
    DUMP_STOPPED,     /* by a signal or by a debugger */
    DUMP_ENDED,
};

struct dump_thread {
    uint32_t tid;
    char comm[16];
    enum dump_state state;
    int64_t call;         /* number of the system call it waits in; -1: none */
    const char *no_stack; /* why there is none; else NULL. Static */
    uint8_t stop;         /* enum sa_stop */
    uint32_t n;
    uint64_t *word; /* leaf first, as in struct sa_ev; a Python frame is SA_W_PY | index in py */
    uint32_t n_py;
    struct pynames_frame *py; /* texts are the dump's */
    uint8_t gil;              /* enum sa_gil */
    bool gil_asked;           /* 3.15: it says itself that it waits for the GIL */
    uint32_t gil_holder; /* with SA_G_OTHER: the thread that has it, as its pid namespace numbers
                          * threads; 0: unknown */
    uint8_t pyerr;       /* enum sa_pyerr */
    bool unknown_thread; /* no Python frames: a blocked thread of an interpreter up to 3.10 */
    bool done;           /* private, as the next ones */
    bool asked, stood;
    uint64_t waits;
    int64_t not_yet; /* last seen not to be stopped, CLOCK_MONOTONIC */
};

struct dump {
    uint32_t pid;
    const struct proc *proc; /* of the table */
    uint32_t n_thread;
    struct dump_thread *thread; /* by tid */
    uint32_t n_stopped;         /* threads that were made to stand */
    int64_t stood_ns;           /* the longest of them, at most */
    int64_t stood_sum_ns;
    enum pylayout_result python; /* PYLAYOUT_N: it is none */
    struct proc_table *procs;    /* private, as the next ones */
    struct unwind_native *unwind;
    struct py *py;
    struct arena texts;
};

struct dump_opts {
    const char *proc; /* "/proc" */
    uint32_t pid;
    bool stop; /* blocked threads, too */
};

/*
 * Reads it. Free *d with dump_deinit() whatever comes.
 *   errors   -ESRCH no such process, or it ended; -EPERM another user's, or the system's policy
 *            refuses: the text names it and what to do; -ENOTSUP kernel thread, 32-bit
 */
[[nodiscard]] int dump_take(struct dump *d, const struct dump_opts *o, struct err *err);
void dump_deinit(struct dump *d);

/* Text or JSON (docs/dump.md). native: frames of compiled code. */
struct buf;
void dump_print(const struct dump *d, bool native, struct buf *out);
void dump_json(const struct dump *d, bool native, struct buf *out);
