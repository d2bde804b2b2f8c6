// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/sample.h"

/*
 * What agents said they lost, for /metrics: observations by (agent, type, reason). At most
 * INGEST_LOSSES combinations are named, so that a scrape stays small whatever sends; the others are
 * counted together. Any thread.
 */
enum {
    INGEST_LOSSES = 2048
};

struct loss_table;

struct loss_table *loss_table_new(void);
struct loss_table *loss_table_free(struct loss_table *t);

/* Count every loss of a batch that was stored. Losses without a number are left out. */
void loss_table_add(struct loss_table *t, const struct batch *b);

/* All of them; agent is NULL for what has no name of its own. type "" there, else a type's name. */
typedef void loss_table_fn(void *ctx, const uint8_t *agent, const char *type, const char *reason,
                           uint64_t n);
void loss_table_each(struct loss_table *t, loss_table_fn *fn, void *ctx);
