// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/part/part_tables_private.h"

/* Parts being read: shared by part_read.c (handles, blobs), part_load.c (metadata) and
 * part_names.c.
 */
struct part_handle {
    struct part *part;
    struct db db;
    sqlite3_stmt *summary, *cols, *hsum;
    struct part_handle *sibling;       /* idle ones of the part */
    struct part_handle *newer, *older; /* idle ones of all parts */
};

struct part_beside {
    struct pool pool;
    struct local local;
    struct local_snap snap;
    uint64_t bytes;
};

struct parts {
    char *dir, *vfs;
    int64_t mmap;
    uint32_t max;
    struct mutex mu; /* "handles": idle lists, n_open, limits, with */
    uint32_t n_open;
    struct part_handle *newest, *oldest;
    struct names_snap limits;
    struct part **with; /* parts with decoded local tables */
    uint32_t n_with, room_with;
    _Atomic uint64_t local_bytes, clock;
};

/* Bounds, counts and generation of a part as its meta has them. */
[[nodiscard]] int part_read_meta(const struct db *db, struct part_info *ret, uint64_t *ret_hsums,
                                 struct err *err);
