// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "agent/collect/check.h"
#include "agent/collect/collector.h"
#include "agent/send/batcher.h"
#include "agent/source/stackagg.h"

/* Shared by record.c (options, life), record_child.c (the command), record_file.c (what is
 * written) and record_source.c (which source). Main thread, but for the tap. */
enum {
    RECORD_OURS = 125, /* rights, options, nothing written */
    RECORD_NOT_EXECUTABLE = 126,
    RECORD_NOT_FOUND = 127,
    RECORD_PIDS = 256,
    RECORD_LABELS = LABELS_MAX - 3, /* beside the capture's name */
};

struct record_opts {
    uint32_t pid[RECORD_PIDS], n_pid;
    char **cmd;          /* NULL: pids */
    int64_t duration_ns; /* 0: none */
    uint64_t rate;       /* Hz */
    bool rate_given;
    bool children, quiet;
    uint32_t types; /* as in struct collector_capture */
    struct label label[RECORD_LABELS + 1];
    uint32_t n_label;
    const char *name; /* of the capture: label capture; "" none */
    const char *file; /* of the capture; NULL: none */
    const char *token_file;
    char *url;   /* "" no server */
    int done_fd; /* gets a byte once the capture is whole; -1: none */
};

/* ---- record_source.c, record_user.c -------------------------------------------------------- */

/* How a capture is taken by a source without rights. */
struct record_take {
    const struct agent_conf *conf;
    const struct ids *ids;
    struct batcher *batcher;
    uint64_t rate;
    bool rate_given;
    const uint32_t *pid;
    uint32_t n_pid;
    bool on_exec;            /* pid[0] is our child, waiting */
    bool (*turn)(void *ctx); /* as in struct collector_capture */
    /* CPU ns of the command and of all that it waited for, by the kernel, once it has ended; else
     * -1. NULL: its time is not compared */
    int64_t (*used)(void *ctx);
    void *ctx;
};

/* The source that is used: one of them. */
struct record_taker {
    struct collector *collector; /* BPF */
    struct record_user *user;
};

/* Can BPF? What it lacks is remembered for record_source_refused(). */
bool record_source_bpf(const char *state_dir);
/* The table of refusals, on standard error. why: those of the sources without rights, a line each
 */
void record_source_refused(const char *why);

void record_take_get_stats(const struct record_taker *t, struct collector_stats *ret);
struct proc_table *record_take_procs(struct record_taker *t);
[[nodiscard]] int record_take_run(struct record_taker *t, struct err *err);
void record_take_close(struct record_taker *t);

/* perf, else stops. errors: as source_user_open(); why, of size bytes, gets a line for each */
[[nodiscard]] int record_user_open(struct record_user **ret, const struct record_take *take,
                                   char *why, size_t size, struct err *err);
struct record_user *record_user_close(struct record_user *u); /* NULL is a no-op; returns NULL */
[[nodiscard]] int record_user_run(struct record_user *u, struct err *err);
uint64_t record_user_rate(const struct record_user *u);   /* Hz */
const char *record_user_why(const struct record_user *u); /* what it cannot see. Static */
struct proc_table *record_user_procs(struct record_user *u);
void record_user_get_stats(const struct record_user *u, struct collector_stats *ret);

/* ---- record_child.c ------------------------------------------------------------------------ */

/* What the command gets back as it was before us. */
struct record_before {
    sigset_t mask;
    struct rlimit files;
};

struct record_child {
    pid_t pid;
    const char *name;
    int go, answer; /* pipes: to let it run; its errno where exec fails */
    bool ended;
    int status;          /* as wait4(2) */
    struct rusage usage; /* its own and that of children it waited for */
    int64_t clock_ns;    /* of the process alone */
};

/* Fork; the child drops to the user who called sudo, and waits. errors: errno of fork or pipe */
[[nodiscard]] int record_child_start(struct record_child *c, char **cmd,
                                     const struct record_before *before, struct err *err);
/* The file that a command's name stands for, as execvp(3) finds it; "" none. */
void record_child_file(const char *name, char ret[static 4096]);
/* Let it execute. 0; RECORD_NOT_FOUND or RECORD_NOT_EXECUTABLE, with the text. */
int record_child_go(struct record_child *c, struct err *err);
/* Has it ended? wait: until then. */
bool record_child_ended(struct record_child *c, bool wait);
/* As a shell has it. */
int record_child_status(const struct record_child *c);

/* ---- record_file.c ------------------------------------------------------------------------- */

/* What the capture came to: the last record, and the summary. -1: unknown. */
struct record_result {
    real_ns from, to; /* what the batches cover, or the run where they cover nothing */
    int64_t wall_ns;  /* how long the command ran, or the processes were watched */
    int64_t measured_ns;
    uint64_t batches, unsent;
    uint64_t watch_full;
    const char *source; /* at the end: of a Python stops follow perf; NULL: BPF */
    uint64_t rate;      /* at the end, Hz */
    const char *sender; /* what the upload says of itself; NULL: no server */
    struct collector_stats stats;
};

struct record_file {
    int fd;     /* -1: none */
    int failed; /* errno of the first write that failed */
    uint64_t batches;
    struct interval covers; /* what they cover; empty: nothing yet */
};

[[nodiscard]] int record_file_open(struct record_file *f, const struct record_opts *o,
                                   struct err *err);
/* The first record. why: what the source cannot see, NULL: it sees all */
[[nodiscard]] int record_file_about(struct record_file *f, const struct record_opts *o,
                                    const struct ids *ids, const char *why, struct err *err);
struct batcher_tap record_file_tap(struct record_file *f);
/* The last record. errors: errno of what failed */
[[nodiscard]] int record_file_end(struct record_file *f, const struct record_result *r,
                                  struct err *err);
void record_file_close(struct record_file *f);
/* Standard error, where nobody else sums up. */
void record_print(const struct record_result *r);
