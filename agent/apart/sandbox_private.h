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

/* What every process of the agent may do; what a client of the network does besides (sandbox.c). */
extern const struct sandbox_list sandbox_of_all, sandbox_of_client;
/* What these two do besides (sandbox_apart.c). */
extern const struct sandbox_list sandbox_of_sender, sandbox_of_starter;

/* Lists together are what passes, in all threads; abort() does, too. errors: as sandbox_begin() */
[[nodiscard]] int sandbox_load(const struct sandbox_list *list, size_t n, struct err *err);
