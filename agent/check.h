// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "agent/bpf_load.h"

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

/* 0 all well, 1 degraded, 77 no source can sample here. */
int check_status(const struct check *c);

/* The first row of the worst state as one line. */
void check_reason(const struct check *c, char ret[static 384]);
