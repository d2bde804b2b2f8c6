// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/seal_private.h"

/* Opening a store: recover.c (LOCK, folders, catalog, parts, epoch), replay.c (journals). */

struct replay_figures {
    uint64_t rows, bytes; /* batches that were not sealed; their payloads */
};

/* Needs the head. As recover(). */
[[nodiscard]] int replay(struct store *s, struct replay_figures *ret, struct err *err);

/* What cannot be answered for, from now on. what is copied. */
void store_lose(struct store *s, struct interval t, struct str what);
/* Descriptor of quarantine/, made if it is not there; -1: errno says why. */
int store_quarantine(const struct store *s);
