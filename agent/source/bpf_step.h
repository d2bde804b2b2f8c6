// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "agent/bpf/steps.h"
#include "base/err.h"

/*
 * The program at strata:step, its ring and its attachments. One owner, one thread. Closing (or
 * dying) takes it all away: nothing is pinned.
 */
struct bpf_step;

[[nodiscard]] int bpf_step_open(struct bpf_step **ret, struct err *err);
struct bpf_step *bpf_step_close(struct bpf_step *b); /* NULL is a no-op; returns NULL */

/* Listen at an offset of a file, in every process that maps it; the 16-bit word at sem_offset is
 * raised meanwhile. path may be a link of /proc/PID/map_files. errors: errno of perf_event_open,
 * where neither way works */
struct bpf_step_at {
    const char *path;
    uint64_t offset, sem_offset;
    uint64_t cookie; /* another one for each listener */
};
[[nodiscard]] int bpf_step_attach(struct bpf_step *b, const struct bpf_step_at *at, void **ret_link,
                                  struct err *err);
void bpf_step_detach(void *link); /* NULL is a no-op */

/* Calls since the last time, each borrowed; attr is there only if attr_len is not 0. Returns how
 * many, or negative errno. */
int bpf_step_drain(struct bpf_step *b, void (*fn)(void *ctx, const struct sa_step_call *c),
                   void *ctx);

/* For epoll, edge-triggered: more than a quarter of the ring waits. Valid until the close. */
int bpf_step_ring_fd(const struct bpf_step *b);

/* Calls that the program did not hand on, so far. */
struct sa_step_drops bpf_step_drops(const struct bpf_step *b);
