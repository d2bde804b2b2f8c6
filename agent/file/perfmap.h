// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * What processes do, from the kernel: one dummy software event per CPU (perf_event_open(2): mmap2
 * with build ids, comm, task), no BPF, no tracefs. Records of all CPUs are handed on in the order
 * of their time, CLOCK_MONOTONIC, the clock of BPF records. Pids are those of the initial pid
 * namespace. Thread: owner only (the collector's main thread).
 */
struct perfmap;

enum perfmap_kind {
    PERFMAP_MMAP = 1, /* executable mappings only */
    PERFMAP_COMM,
    PERFMAP_EXEC, /* COMM with the exec bit */
    PERFMAP_FORK,
    PERFMAP_EXIT,
    PERFMAP_LOST, /* n records are missing: scan again */
};

struct perfmap_event {
    enum perfmap_kind kind;
    int64_t t; /* CLOCK_MONOTONIC, ns */
    uint32_t pid, tid;
    uint32_t ppid, ptid; /* FORK: who called it; EXIT: the parent */
    uint64_t start, end; /* MMAP: addresses */
    uint64_t offset;     /* in the file */
    uint8_t build_id[20];
    uint8_t build_id_len; /* 0: not told */
    struct str name;      /* MMAP: path as the target sees it; COMM, EXEC: the thread's name */
    uint64_t n;           /* LOST */
};

typedef void perfmap_fn(void *ctx, const struct perfmap_event *e);

/* Open the rings of all online CPUs. errors: errno of perf_event_open and mmap, with what to do */
[[nodiscard]] int perfmap_open(struct perfmap **ret, struct err *err);
struct perfmap *perfmap_close(struct perfmap *p); /* NULL is a no-op; returns NULL */

/* Hand on all records older than before_ns, by time. Texts are borrowed during the call. Returns
 * whether younger ones were left, for which perfmap_fd() will not wake. */
bool perfmap_drain(struct perfmap *p, int64_t before_ns, perfmap_fn *fn, void *ctx);

/* Readable when a record arrived since it was last asked: for epoll. Valid until the close. */
int perfmap_fd(const struct perfmap *p);

/* CPUs that came or went: once a second. Returns how many rings changed. */
uint32_t perfmap_poll_cpus(struct perfmap *p);

/*
 * One record as the ring has it (header, body, sample_id trailer) into *ret; names point into it.
 * 0; 1: a record that nobody wants; -EINVAL: it does not hold what its type promises. Pure.
 */
[[nodiscard]] int perfmap_parse(const void *record, uint64_t n, struct perfmap_event *ret);
