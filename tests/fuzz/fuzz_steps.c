// SPDX-License-Identifier: Apache-2.0
/* Bodies of POST /api/v1/steps: what is taken passes batch_check(), what is not says why. */
#include "base/arena.h"
#include "base/err.h"
#include "proto/wire.h"
#include "server/ingest_steps_private.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct steps_parsed p = {};
    struct steps_fault fault = {};
    struct wire_limits limits;
    struct err err = {};
    struct arena a;
    uint64_t steps = 0;

    wire_limits_default(&limits);
    arena_init(&a, 64 << 20);
    if (steps_parse((struct str){(const char *)data, n}, &limits.batch,
                    (real_ns){1764417600 * NS_PER_S}, &a, &p, &fault) == 0) {
        FUZZ_CHECK(batch_check(&p.batch, &err) == 0);
        for (uint32_t i = 0; i < p.batch.n_steps; i++)
            steps += p.batch.steps[i].n;
        FUZZ_CHECK(steps == p.steps && steps <= STEPS_MAX);
    } else {
        FUZZ_CHECK(fault.code && fault.status >= 400 && fault.text[0]);
    }
    arena_deinit(&a);
    return 0;
}
