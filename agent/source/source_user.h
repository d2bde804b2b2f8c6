// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/proc/proc.h"
#include "agent/python/py.h"
#include "agent/source/source.h"
#include "agent/unwind/tables.h"

/*
 * CPU time of chosen processes of the same user, without any capability and without BPF: user mode
 * only, no kernel frames. A peer of source_cpu.h: same records to the same sink, same account, same
 * tables and stops; it follows processes by itself, so there is no perfmap beside it.
 *
 *   perf   the kernel's own cpu-clock ticks of these processes, with registers and a copy of the
 *          stack; unwound here. perf_event_paranoid up to 2, no seccomp filter on the call.
 *   stops  every period the threads that run are stopped (ptrace), read and let go; at most 50 Hz;
 *          weights are CPU time by the threads' own clocks. Python's frames, too: they live on the
 *          heap, so only a thread that stands still has those of its stack.
 *
 *     every 50 ms   source_user_poll(s, &sink, &err);   also follows processes and publishes tables
 *     every window  source_user_account(s, t1, &account);  directly after a poll
 *
 * The stops take their samples in a poll, whose calls must then come every source_user_turn_ns().
 * Thread: one, which must be the one that opened it (ptrace(2) knows threads, not processes). Stops
 * block and take SIGCHLD.
 */
struct source_user;
struct user_sample;

enum source_user_kind {
    SOURCE_USER_PERF = 1,
    SOURCE_USER_STOPS,
};

struct source_user_opts {
    uint64_t period_ns; /* perf: 1 ms to 1 s, 10,101,010 is 99 Hz; stops: at least 20 ms */
    /* The processes: living ones; their children are followed. */
    const uint32_t *pid;
    uint32_t n_pid;
    bool on_exec; /* pid[0] is our own child that has not called exec yet: begin there */
    /* Borrowed until the close; this source feeds it (proc_event, proc_tick, proc_next_changed).
     * Not to be scanned: processes are read as they are met. */
    struct proc_table *procs;
    uint64_t table_budget; /* bytes of unwind rows; 0: 64 MiB */
    uint32_t stack_bytes;  /* copied with a tick; 0: 32 KiB; at most 65,024 */
    /* For tests: each sample with its registers and stack, and the chain made of it: the same for
     * another unwinder. */
    void (*tap)(void *ctx, const struct user_sample *u, const struct sa_ev *ev);
    void *tap_ctx;
};

/*
 * Opens the one asked for, nothing else.
 *   errors   the text names what refuses and what would help: -EACCES, -EPERM, -ENOSYS refused;
 *            -ESRCH no such process; -EMFILE, -ENOMEM limits; -EINVAL
 */
[[nodiscard]] int source_user_open(struct source_user **ret, enum source_user_kind kind,
                                   const struct source_user_opts *o, struct err *err);
struct source_user *source_user_close(struct source_user *s); /* NULL: a no-op; returns NULL */

/*
 * perf first, then stops. why, of size bytes: what each refused one said, one line each, "perf:
 * ..." and "ptrace: ..."; also where the second one serves. errors: as source_user_open(), of the
 * last one
 */
[[nodiscard]] int source_user_choose(struct source_user **ret, const struct source_user_opts *o,
                                     char *why, size_t size, struct err *err);

enum source_user_kind source_user_kind(const struct source_user *s);

/* "user: no kernel stacks, ..." for the stream's state_why. Static. */
const char *source_user_why(const struct source_user *s);

struct tables *source_user_tables(struct source_user *s); /* for their figures. Borrowed */

/* Which of the processes are Pythons, and their frames in a record that the sink is given (stops).
 * Borrowed. */
struct py *source_user_python(struct source_user *s);

/* How often source_user_poll() should be called: 50 ms, or the period of stops. */
int64_t source_user_turn_ns(const struct source_user *s);

/* Takes (stops) or reads (perf) samples and gives them to the sink, oldest first. A sample that
 * lacks a table is kept until the table is built. errors: negative errno; what was read was given
 */
[[nodiscard]] int source_user_poll(struct source_user *s, const struct source_sink *sink,
                                   struct err *err);

/* The last poll: waits for tables that samples are held for, and gives everything. */
[[nodiscard]] int source_user_finish(struct source_user *s, const struct source_sink *sink,
                                     struct err *err);

/* Between source_user_finish() and the last account: the CPU ns of the command and of all that it
 * waited for, by the kernel. Stops do not see a process that came and went between two looks for
 * children; its time becomes part of the counter, and is missed. Of perf, which inherits, nothing.
 */
void source_user_command(struct source_user *s, uint64_t used_ns);

/* Closes the window; a window has one period. As source_cpu_account(): of perf
 *     weight_ns + filtered_ns + ring_full + kernel_hidden = counter_ns
 * and of stops
 *     weight_ns + filtered_ns + missed = counter_ns
 * summed over the run, once the last account followed source_user_finish(). */
void source_user_account(struct source_user *s, real_ns t1, struct source_account *ret);

struct source_user_stats {
    uint64_t samples, lost; /* given to the sink, lost in rings */
    uint64_t counter_ns;    /* CPU time of the processes, user and kernel, by the kernel */
    uint64_t hidden_ns;     /* perf: counter - ticks; kernel mode. stops: in threads never read */
    /* stops */
    uint64_t stops;
    uint64_t pause_ns, pause_max_ns, asked_ns; /* threads stood still; of one stop; wall time */
    uint64_t halved;                           /* the rate, because pauses went above 1 % */
};
void source_user_get_stats(const struct source_user *s, struct source_user_stats *ret);

/* Is any of the processes, or of their children, alive? */
bool source_user_alive(const struct source_user *s);
