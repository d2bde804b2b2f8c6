// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/proc/facts.h"
#include "agent/proc/proc.h"
#include "agent/source/stackagg.h"
#include "agent/source/steptrack.h"
#include "base/err.h"

/*
 * Steps that programs mark (sdk/, docs/steps.md): finds the probe strata:step in mapped files,
 * listens there, and turns calls into steps. Main thread. All of them take NULL: nothing is done.
 */
struct source_step;

#define SOURCE_STEP_NEWS   160
#define SOURCE_STEP_PROBES 256 /* files that are listened at */

/* facts: as struct py_conf has them. */
[[nodiscard]] int source_step_open(struct source_step **ret, struct facts *facts, struct err *err);
struct source_step *source_step_close(struct source_step *s); /* returns NULL */

/* The mappings of p are new or changed. */
void source_step_follow(struct source_step *s, const struct proc *p);

/* Every turn: calls since the last one. Finished steps go into the fold. */
void source_step_poll(struct source_step *s, struct proc_table *procs, struct stackagg *fold,
                      int64_t now, int64_t real_minus_mono);

/* The wall time of the last call of p up to a moment, when it is in the same second as that; else
 * the second's begin. A row that begins there belongs to the same steps as all that is folded into
 * it. */
real_ns source_step_since(const struct source_step *s, const struct proc *p, int64_t t, real_ns at);

/* As bpf_step_ring_fd(); -1 for NULL. */
int source_step_ring_fd(const struct source_step *s);

/* Something that is told once, as logfmt; false: nothing new. */
bool source_step_news(struct source_step *s, char ret[static SOURCE_STEP_NEWS]);

struct source_step_stats {
    struct steptrack_stats track;
    uint64_t probes;  /* files listened at */
    uint64_t refused; /* files that hold the probe, and the kernel refused to listen there */
};
void source_step_get_stats(const struct source_step *s, struct source_step_stats *ret);
