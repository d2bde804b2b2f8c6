// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/sample.h"

struct arena;

/*
 * The body of POST /api/v1/steps: JSON into a batch that holds steps and nothing else. No I/O, no
 * globals; any thread.
 */
enum {
    STEPS_MAX = 10000,        /* of one request */
    STEPS_BODY_MAX = 1 << 20, /* bytes, inflated */
};
#define STEPS_LONGEST_NS (INT64_C(86400) * NS_PER_S)

/* Why a body is refused as a whole. */
struct steps_fault {
    int status;
    const char *code;       /* static */
    char field[64];         /* "steps[3].t0_ns", "" if unknown */
    char text[160];         /* in words; may hold bytes of the body */
    const char *setting;    /* static: the limit that was hit; NULL none */
    uint64_t limit, actual; /* where setting is there */
};

struct steps_parsed {
    struct batch batch; /* passes batch_check(); id and received are the caller's to set */
    uint32_t steps;     /* in batch */
    /* refused alone: no name or number, end before its start, longer than a day; by age */
    uint32_t bad_step, too_old, in_future;
};

/*
 * ret lives in arena. Deterministic: the same bytes give the same batch.
 *   errors   -EINVAL, -E2BIG, -ENOMEM, with *fault filled
 */
[[nodiscard]] int steps_parse(struct str json, const struct batch_limits *limits, real_ns now,
                              struct arena *arena, struct steps_parsed *ret,
                              struct steps_fault *fault);
