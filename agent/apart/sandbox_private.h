// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Shared by sandbox.c (the agent itself) and sandbox_apart.c (its other processes). */

/* One condition: ARGUMENT & MASK == VALUE. Several of one call: any of them. */
struct sandbox_rule {
    const char *call;
    unsigned arg;
    uint64_t mask, value;
};

struct sandbox_list {
    const char *const *plain; /* pass whatever their arguments are */
    size_t n_plain;
    const struct sandbox_rule *rule;
    size_t n_rule;
};

/* Names in the lists of the other processes; NULL at the end. */
const char *sandbox_apart_call(size_t i);

/* Lists together are what passes, in all threads; abort() does, too. errors: as sandbox_begin() */
[[nodiscard]] int sandbox_load(const struct sandbox_list *list, size_t n, struct err *err);
