// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/sample.h"

/*
 * What agents last said of their sources, for /metrics: does (agent, type) deliver? At most
 * INGEST_SOURCES are named, those that came first. Any thread.
 */
enum {
    INGEST_SOURCES = 2048
};

struct source_table;

struct source_table *source_table_new(void);
struct source_table *source_table_free(struct source_table *t);

/* The word of a batch that was stored: a source is ok where all its streams in the batch are. */
void source_table_set(struct source_table *t, const struct batch *b);

/* All of them; type: a built-in type's name, or "imported". */
typedef void source_table_fn(void *ctx, const uint8_t agent[16], const char *type, bool ok);
void source_table_each(struct source_table *t, source_table_fn *fn, void *ctx);
