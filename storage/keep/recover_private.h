// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/keep/seal_private.h"

/* Opening a store: recover.c (LOCK, folders, catalog, parts, epoch), replay.c (journals). */

struct replay_figures {
    uint64_t rows, bytes; /* batches that were not sealed; their payloads */
};

/* Needs the head. As recover(). */
[[nodiscard]] int replay(struct store *s, struct replay_figures *ret, struct err *err);

/* What cannot be answered for, from now on. what is copied. */
void store_lose(struct store *s, struct interval t, struct str what);
/* open_read.c: for read_only. *ret NULL: nothing was sealed yet. */
[[nodiscard]] int open_read_catalog(struct store *s, struct catalog **ret, struct err *err);
/* The current epoch, or where there is none an empty one with number `none`, as s->epoch. Outcome
 * STORE_PARTIAL: not all of it could be read. */
[[nodiscard]] int open_read_epoch(struct store *s, uint32_t id, uint32_t none, struct err *err);

/* Descriptor of quarantine/, made if it is not there; -1: errno says why. */
int store_quarantine(const struct store *s);
