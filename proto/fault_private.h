// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/err.h"
#include "proto/wire.h"

/*
 * Fill *fault (NULL allowed) and *err, return code. setting NULL: malformed, else a limit was hit.
 * The place is printf-made. Thread: any; never allocates.
 */
struct wire_fault_why {
    const char *reason, *setting;
    uint64_t limit, actual;
    bool too_large;
};

[[nodiscard, gnu::format(printf, 5, 6)]] int wire_fault_set(struct wire_fault *fault,
                                                            struct err *err, int code,
                                                            const struct wire_fault_why *why,
                                                            const char *field, ...);

/* Malformed: -EINVAL with this reason at this place. */
#define WIRE_BAD(fault, err, why_reason, ...)                                                      \
    wire_fault_set((fault), (err), -EINVAL, &(struct wire_fault_why){.reason = (why_reason)},      \
                   __VA_ARGS__)
