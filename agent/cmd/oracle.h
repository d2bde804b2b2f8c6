// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "agent/bpf/cpu.h"
#include "base/err.h"

/*
 * Same sample, two unwinders. The tick's event writes the registers and the top of the stack of one
 * process to its own ring at the very tick that our BPF program unwinds. The copy is unwound with
 * libdw; both chains are compared, address by address. Thread: one, which waits.
 */
struct oracle_opts {
    pid_t child; /* our own child: the process */
    uint64_t period_ns;
    double seconds; /* compared for so long, or until the child ends */
    double warm;    /* before: at least so long, and until all tables are built that it asked for */
    bool no_loop;   /* as without bpf_loop() */
    uint32_t verbose; /* so many differences are printed */
    FILE *to;
};

struct oracle_result {
    uint64_t samples;   /* copied, of which: */
    uint64_t same;      /* equal, frame by frame */
    uint64_t dump;      /* libdw needed memory that was not copied, or has changed; equal so far */
    uint64_t theirs;    /* libdw stopped with an error, we went on; equal so far */
    uint64_t differ;    /* another frame at some place */
    uint64_t unmatched; /* no record of ours: ring, or noproc of a thread just made */
    uint64_t stop[SA_S_N]; /* we stopped with that reason, libdw went on; equal so far */
    uint64_t fp_used;
    bool ended; /* the child did, and was reaped */
};

extern const char *const oracle_stop_name[SA_S_N];

/* errors: as bpf_load_open(), tables_open(), perfmap_open() */
[[nodiscard]] int oracle_run(const struct oracle_opts *opts, struct oracle_result *ret,
                             struct err *err);
