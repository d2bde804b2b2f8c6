// SPDX-License-Identifier: Apache-2.0
/*
 * Which source a capture is taken with: the one place that knows them all. Tried in this order,
 * the first that works is taken:
 *
 *     BPF     every tick of the machine's CPUs, exact accounts, kernel and user stacks
 *     perf    without rights: the kernel's ticks of the own processes, user stacks
 *     ptrace  without rights: the own processes are stopped for a moment, 49 times a second
 *
 * Where none works the reasons are printed row by row, each with what to do.
 */
#include <errno.h>
#include <stdio.h>

#include "agent/cmd/record_private.h"
#include "agent/source/source_user.h"

static struct check checked; /* what BPF lacks */

bool record_source_bpf(const char *state_dir)
{
    check_run("/proc", "/sys", state_dir, false, &checked);
    return checked.worst != BPF_PROBE_IMPOSSIBLE;
}

void record_source_refused(const char *why)
{
    (void)fprintf(stderr, "strata: nothing can sample here:\n\n");
    check_print(&checked, stderr);
    (void)fprintf(stderr,
                  "%s\nUsually: run it as root, or `sudo strata record ...`: the command itself "
                  "runs as you.\n",
                  why);
}

void record_take_get_stats(const struct record_taker *t, struct collector_stats *ret)
{
    if (t->user)
        record_user_get_stats(t->user, ret);
    else
        collector_get_stats(t->collector, ret);
}

struct proc_table *record_take_procs(struct record_taker *t)
{
    return t->user ? record_user_procs(t->user) : collector_procs(t->collector);
}

int record_take_run(struct record_taker *t, struct err *err)
{
    return t->user ? record_user_run(t->user, err) : collector_run(t->collector, err);
}

void record_take_close(struct record_taker *t)
{
    t->user = record_user_close(t->user);
    t->collector = collector_close(t->collector);
}
