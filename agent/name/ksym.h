// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Kernel functions by address, from /proc/kallsyms: the kernel, its modules, BPF programs. If the
 * kernel withholds the addresses (kptr_restrict, no CAP_SYSLOG) nothing has a name, and ksym_state
 * says why: an address is never matched to a symbol at 0. Thread: owner only (the batch thread).
 */
struct ksym;

struct ksym_hit {
    struct str name;   /* borrowed until the next ksym_refresh() */
    struct str module; /* "" in the kernel itself, else "ext4", "bpf" */
    uint64_t offset;   /* of the address, from _text, or from the module's start */
};

/* proc: "/proc"; sys: "/sys". Never fails: without symbols it is empty, with a reason. */
struct ksym *ksym_new(const char *proc, const char *sys);
struct ksym *ksym_free(struct ksym *k); /* NULL is a no-op; returns NULL */

/* The function that covers addr; false: unknown. A miss makes the next refresh read again. */
bool ksym_find(struct ksym *k, uint64_t addr, struct ksym_hit *ret);

/* Between two batches: reads again if /proc/modules changed, or something was missed and the last
 * reading is a minute old. now: CLOCK_MONOTONIC. true: it was read, what was found before is
 * void. */
bool ksym_refresh(struct ksym *k, int64_t now_ns);

/* "ok", "withheld: REASON" or "unreadable: REASON". Borrowed until the next refresh. */
const char *ksym_state(const struct ksym *k);

struct str ksym_build_id(const struct ksym *k); /* of the running kernel; "" if unknown */
uint32_t ksym_count(const struct ksym *k);
uint64_t ksym_bytes(const struct ksym *k);
