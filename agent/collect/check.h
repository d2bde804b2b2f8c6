// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "agent/source/bpf_load.h"

/*
 * What this machine allows, by name: each row ok, degraded (what is lost) or impossible, with the
 * reason and what to do. Main thread, before anything else runs.
 */
enum {
    CHECK_MAX = BPF_PROBE_MAX + 16
};

struct check {
    uint32_t n;
    enum bpf_probe_state worst;
    bool own; /* own processes can be recorded */
    struct bpf_probe_item item[CHECK_MAX];
};

/* Adds all rows but the self-test. proc, sys: "/proc", "/sys". */
void check_run(const char *proc, const char *sys, const char *state_dir, bool no_bpf_loop,
               struct check *ret);

/* 200 ms of a known spin under the real programs, once its unwind tables are built: whole stacks
 * with its four names (fewer than 95 %: degraded; none: impossible), and the identity exact. Added
 * as the row "self_test". Takes about a second. */
void check_self_test(struct check *c, bool no_bpf_loop);

/* A row of somebody else's: state with what is lost and what to do, else why alone. */
void check_add(struct check *c, const char *name, enum bpf_probe_state state, const char *remedy,
               const char *why);

/* The table; ends with the line "no BPF here: REASON" where BPF is impossible. */
void check_print(const struct check *c, FILE *to);

/* Where BPF is impossible: can processes of this user be sampled all the same (source_user.h)?
 * Tried on a child, so before privs_drop(). Added as the row "own_processes" by check_own_add(). */
struct check_own {
    bool works;
    char why[160];
};
void check_own(struct check_own *ret);
void check_own_add(struct check *c, const struct check_own *own);

/* 0 all well, 1 degraded, 2 no BPF here but own processes can be recorded, 77 nothing can sample.
 */
int check_status(const struct check *c);

/* The first row of the worst state as one line. */
void check_reason(const struct check *c, char ret[static 384]);
