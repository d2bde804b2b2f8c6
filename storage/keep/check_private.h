// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/map.h"
#include "storage/catalog/catalog_tables_private.h"
#include "storage/dict/dict_private.h"

/* Checking a store: check.c (what there is), check_part.c (one part), check_journal.c. */
struct check {
    const struct store_check_conf *conf;
    struct store_checked out;
    uint64_t all; /* bytes that will be read */
    const char *dir;

    /* of the catalog; beside a server unknown */
    bool catalog; /* it was read */
    struct catalog_state state;
    struct map svc, ptype, labelset, series; /* id -> hash of what it means */
    struct names_snap limits;
    struct part_info *part;
    uint32_t n_part, room_part;
    struct file_list gone; /* replaced or expired, and perhaps not unlinked yet */
    struct catalog_epoch *epoch;
    uint32_t n_epoch, room_epoch, current; /* current: 0 none */

    struct epoch *dict; /* of the parts being checked; NULL: not at hand */
    struct block_coder *coder;
};

/* Report. Negative: the caller of store_check() has had enough. */
[[nodiscard]] int check_note(struct check *c, const char *file, const char *table, int64_t id,
                             struct interval t, const struct err *what, struct err *err);
/* r of a step that may find damage: it is reported, and 0 comes back; what says nothing about the
 * file (memory, descriptors, a newer format) goes on. */
[[nodiscard]] int check_result(struct check *c, const char *file, const char *table, int64_t id,
                               struct interval t, int r, const struct err *why, struct err *err);
void check_progress(struct check *c, uint64_t bytes);

/* SQLite's own look at a file that was opened: -EBADMSG. */
[[nodiscard]] int check_integrity(const struct db *db, struct err *err);

/* A part of the catalog, or one that was found (its info was read from it). */
[[nodiscard]] int check_part(struct check *c, const struct part_info *info, struct err *err);
[[nodiscard]] int check_journals(struct check *c, struct err *err);
