// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

/*
 * The variables that are looked at in strangers' environments: an allow-list. Those of it may leave
 * the host; those that only a rule's condition names are read for it and stay here. Nothing else of
 * an environment is kept.
 * Thread: set up at the start; environ_pick() any thread.
 */
#define ENVIRON_BYTES ((size_t)64 << 10) /* read of one process */
#define ENVIRON_VALUE 256
#define ENVIRON_MAX   48

/* STRATA_SERVICE, STRATA_VERSION, STRATA_LABELS and HOSTNAME are always read; HOSTNAME stays here.
 */
#define ENVIRON_DEFAULT                                                                            \
    "RANK,LOCAL_RANK,WORLD_SIZE,SLURM_JOB_ID,SLURM_PROCID,JOB_NAME,POD_NAME,CUDA_VISIBLE_DEVICES"

struct environ_var {
    struct str name, value;
    bool local; /* never sent */
};

struct environ_want {
    uint32_t n;
    struct environ_name {
        char name[64];
        bool local;
        bool label; /* listed by the user, beyond the default list: a label of its own */
    } name[ENVIRON_MAX];
};

/* The names that are always read. */
void environ_init(struct environ_want *w);

/* "A,B,C" as [labels] env has it. errors: -EINVAL no name of a variable, -E2BIG too many */
[[nodiscard]] int environ_allow(struct environ_want *w, struct str list, struct err *err);

/* One name that a rule looks at. errors as above */
[[nodiscard]] int environ_look(struct environ_want *w, struct str name, struct err *err);

/* Of a block as /proc/PID/environ has it; of two with one name the first, as getenv(3). Values are
 * cut at ENVIRON_VALUE bytes. Texts in the arena. Returns how many. */
uint32_t environ_pick(const struct environ_want *w, struct str block, struct arena *a,
                      struct environ_var ret[ENVIRON_MAX]);

/* The value, "" if it is not there. */
struct str environ_get(const struct environ_var *v, uint32_t n, struct str name);
