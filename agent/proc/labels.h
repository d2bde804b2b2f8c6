// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/str.h"

/*
 * Labels of a process and attributes of steps: names and values that come from strangers'
 * environments and command lines. Name: a letter or "_", then letters, digits, "_", ".", "-", "/",
 * at most 128 bytes; another one is dropped. Value: UTF-8 without control characters, at most 256
 * bytes; a byte that is neither becomes \xHH (so that two values stay two), a longer value is cut
 * and ends with "~" and 8 hex digits of the whole one's hash. All of it is counted. Pure, any
 * thread.
 */
#define LABELS_MAX   24 /* of one process; the batch adds host and source */
#define LABELS_NAME  128
#define LABELS_VALUE 256

struct label {
    struct str name, value;
};

struct labels_counts {
    uint64_t bad_name, bad_text, cut, too_many;
};

bool labels_name_ok(struct str name);

/* The value as it may leave, in the arena (or s itself where nothing is wrong with it). */
struct str labels_value(struct str s, struct arena *a, struct labels_counts *n);

/* Appends unless the name is there already: the first one counts. max: room of l. */
void labels_add(struct label *l, uint32_t *n_l, uint32_t max, struct label add, struct arena *a,
                struct labels_counts *n);

/* The next item of "k=v,k=v"; an item without "=" is given with an empty name. false at the end. */
bool labels_next(struct str *list, struct label *ret);
