// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/cmd/oracle.h"
#include "agent/cmd/record_private.h"
#include "base/buf.h"
#include "base/map.h"

/*
 * `strata validate`: works (controlled programs, demo/workload.c) run under the agent's own way
 * from tick to batch; what the batches say of each is held beside what the kernel and the program
 * say.
 *
 *     validate_run.c    starts the works, samples them, keeps the batches
 *     validate_seen.c   what the batches say of each work
 *     validate_judge.c  one function per claim: known, measured, allowed
 *     validate.c        the table of claims, options, output
 *
 * One more claim: a work (if it needs one), what is to be seen of it, a judge, a row in the table.
 * Thread: the main one; the batcher's only in the tap.
 */
enum validate_source {
    VALIDATE_BPF,  /* the collector */
    VALIDATE_RING, /* the same with a ring that is too small */
    VALIDATE_OFF,  /* the same with all types */
    VALIDATE_USER, /* without rights: perf, else stops */
    VALIDATE_ORACLE,
    VALIDATE_SOURCES
};

enum work_id {
    WORK_BURN_19,
    WORK_BURN_99,
    WORK_BURN_499,
    WORK_PHOTOS,
    WORK_SYSCALLS,
    WORK_CHILDREN,
    WORK_STEPS,
    WORK_RING,
    WORK_BLOCKED,
    WORK_GIL,
    WORK_USER,
    WORK_N
};

enum {
    PHOTO_FUNCTIONS = 3,
    SEEN_THREADS = 16,
    SEEN_SYMBOLS = 256,
    SEEN_LINES = 8,
    TEXT_N = 160,
    WHY_N = 512,
};

/* A function of the controlled programs as a stack had it. */
struct seen_symbol {
    uint64_t addr; /* as the file has it */
    char name[64];
};

struct seen_step {
    char name[24];
    uint64_t number;
    uint32_t tid;
    int64_t t0, t1; /* wall clock */
};

/* What the batches say of one work. Nanoseconds are CPU time. */
struct seen {
    uint64_t n;              /* samples */
    uint64_t settled, whole; /* behind the first half second; of these, with a whole stack */
    int64_t ns;
    int64_t missed, refused, hidden; /* told as lost while it ran: whoever it belongs to */
    int64_t kernel_ns;
    uint64_t kernel_n, in_read, below_loop;
    int64_t function_ns[PHOTO_FUNCTIONS], deep_n, deep_ok;
    struct {
        char name[16];
        int64_t ns, offcpu, runq, gil_held, gil_wait;
        int64_t bare; /* of offcpu, without a stack or with half of one */
        uint64_t n;   /* samples of CPU time */
    } thread[SEEN_THREADS];
    uint32_t n_thread;
    struct {
        uint32_t line; /* of Python's function shares() */
        int64_t ns;
    } line[SEEN_LINES];
    int64_t off_lost; /* time off the CPU told as lost */
};

struct work {
    struct record_child child;
    int out;         /* what it says goes there */
    struct str said; /* after its end; heap */
    uint64_t period_ns;
    bool begun, stopped; /* stopped: it took too long */
    real_ns from, to;
    int64_t looked, clock; /* of the last look: CLOCK_MONOTONIC, its CPU clock */
    int64_t stolen;        /* by the host, ns of all CPUs, while it ran; of WORK_USER alone */
    double variance;       /* ns^2 of a fair sampler's answer */
    struct seen seen;
};

/* What one source did. */
struct source_run {
    bool tried, ran;
    char why[WHY_N]; /* not */
    struct collector_stats stats;
    const char *note; /* static; what it cannot see */
    uint64_t batches;
    int64_t rows_ns; /* in the batches */
};

struct validate {
    bool quick, json, busy;
    struct agent_conf conf;
    struct ids ids;
    struct record_before before;
    char workload[4096], gil[4096]; /* gil: the Python program; "" */
    struct work work[WORK_N];
    struct source_run run[VALIDATE_SOURCES];
    struct oracle_result oracle;
    struct seen_symbol symbol[SEEN_SYMBOLS];
    uint32_t n_symbol;
    uint64_t child_processes, child_named; /* of WORK_CHILDREN with a sample; with their file */
    struct map child_pid;
    struct seen_step *step; /* heap */
    uint32_t n_step, cap_step;
    struct buf *body; /* heap: batches of the source that runs, compressed */
    uint32_t n_body, cap_body;
};

extern const char *const photo_function[PHOTO_FUNCTIONS];

/* ---- validate_run.c ------------------------------------------------------------------------ */

/* Where strata-workload is: beside the agent, where it is installed, in the build tree. */
bool validate_find_workload(char ret[static 4096]);
/* Likewise gil.py; "": it is not there, or no /usr/bin/python3. */
void validate_find_gil(char ret[static 4096]);

/* Each fills its row of v->run; what failed says why there. */
void validate_run_bpf(struct validate *v);
void validate_run_ring(struct validate *v);
void validate_run_off(struct validate *v);
void validate_run_user(struct validate *v);
void validate_run_oracle(struct validate *v);

/* ---- validate_seen.c ----------------------------------------------------------------------- */

/* One compressed batch of a source. errors: as wire_decode(); a bug of ours */
[[nodiscard]] int validate_seen(struct validate *v, enum validate_source source, struct str body,
                                struct err *err);

/* ---- validate_judge.c ---------------------------------------------------------------------- */

enum verdict {
    VERDICT_PASS,
    VERDICT_FAIL,
    VERDICT_SKIP,
    VERDICT_N
};

struct judgement {
    enum verdict verdict;
    char known[TEXT_N], measured[TEXT_N], allowed[TEXT_N], why[WHY_N];
};

/* Of a claim about a work. */
typedef void validate_judge(const struct validate *v, enum work_id work, struct judgement *ret);

validate_judge judge_cpu;      /* CPU time of a loop, or of several threads */
validate_judge judge_machine;  /* I1 to I4 */
validate_judge judge_shares;   /* 60 / 30 / 10 */
validate_judge judge_depth;    /* 64 frames of one function */
validate_judge judge_whole;    /* stacks to their end */
validate_judge judge_oracle;   /* libdw */
validate_judge judge_kernel;   /* frames of a system call */
validate_judge judge_split;    /* user and kernel mode */
validate_judge judge_threads;  /* names */
validate_judge judge_children; /* programs that live for 20 ms */
validate_judge judge_lost;     /* a ring that is too small */
validate_judge judge_steps;
validate_judge judge_symbols;
validate_judge judge_blocked;  /* threads that wait in seven ways */
validate_judge judge_lock;     /* two that fight for a lock */
validate_judge judge_life;     /* cpu + offcpu + runq */
validate_judge judge_gil_wait; /* Python's lock */
validate_judge judge_gil_held;
validate_judge judge_lines; /* of a Python function */
validate_judge judge_user;  /* without rights: user and kernel mode */
