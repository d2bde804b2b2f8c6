// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * A bounded pool of threads: running at work, waiting in a queue, first come first served; what
 * does not fit is refused at once. Jobs are the caller's memory and belong to the pool from
 * work_submit() until their run() is called.
 */
struct work;

struct work_job {
    void (*run)(struct work_job *job); /* by a thread of the pool; may free the job */
    struct work_job *next;
};

/* running threads, at least 1. errors: those of pthread_create. */
[[nodiscard]] int work_start(uint32_t running, uint32_t waiting, struct work **ret,
                             struct err *err);

/* Finish what waits, stop the threads, free. NULL is a no-op. Returns NULL. Owner only. */
struct work *work_stop(struct work *w);

/* Any thread. false: all threads are busy and the queue is full. */
[[nodiscard]] bool work_submit(struct work *w, struct work_job *job);

/* Jobs at work, and waiting. Any thread. */
void work_load(struct work *w, uint32_t *ret_running, uint32_t *ret_waiting);
