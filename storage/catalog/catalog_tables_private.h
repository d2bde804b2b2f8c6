// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/catalog/catalog_private.h"
#include "storage/part/part_tables_private.h"

/* What catalog.c, catalog_load.c and catalog_rebuild.c share: the tables of catalog.db. */
#define CATALOG_PAGE     4096u
#define CATALOG_SEEN_MAX 1024u /* numbers that are known of a sender */

extern const struct db_kind catalog_kind;

enum catalog_table {
    CATALOG_STATE = 1,
    CATALOG_SVC,
    CATALOG_PTYPE,
    CATALOG_LABELSET,
    CATALOG_SERIES,
    CATALOG_EPOCH,
    CATALOG_PART,
    CATALOG_SENDER,
    CATALOG_SEEN,
    CATALOG_DAMAGE,
    CATALOG_TABLES
};

/* Keys of table state. On disk: append only. */
enum catalog_key {
    CATALOG_SEALED_LSN = 1,
    CATALOG_NEXT_JOURNAL = 2,
    CATALOG_NEXT_SEAL = 3,
    CATALOG_NEXT_PART = 4,
    CATALOG_EXPIRY_REF = 5,
    CATALOG_FOLD = 6, /* sum of the sums of all rows but those of state */
    CATALOG_KEYS,     /* a catalog has all of these, or none */
    CATALOG_DICT_ID = CATALOG_KEYS,
    CATALOG_DICT_N,
    CATALOG_STORE,
};
/* Further ones: this + the number of a closed epoch; which file its dictionary is. */
#define CATALOG_EPOCH_DICT (INT64_C(1) << 32)

enum {
    CATALOG_PART_INTS = 14,
    CATALOG_DAMAGE_INTS = 8
};

/* NULL: memory is short. */
struct catalog *catalog_new(void);
struct db *catalog_db(struct catalog *c);
/* After its db was opened for writing. */
[[nodiscard]] int catalog_begin(struct catalog *c, struct err *err);
void catalog_set_fold(struct catalog *c, uint64_t fold);

/* catalog_rebuild.c: names of the files in shard/raw and shard/minute, below the store; malloced,
 * as is each of them. */
struct file_list {
    char (*v)[PART_NAME];
    uint32_t n;
};
[[nodiscard]] int part_files(const char *dir, struct file_list *ret, struct err *err);
/* Fill a catalog just made from the parts that there are. */
[[nodiscard]] int catalog_rebuild(struct catalog *c, const char *dir, const char *vfs, real_ns now,
                                  const struct file_list *files, struct err *err);

/* What an id means, as a number: services by hash_str() of their name. */
uint64_t name_hash_ptype(struct str name, struct str unit, enum ptype_kind kind);
uint64_t name_hash_labels(uint32_t n, const struct store_label *v);
uint64_t name_hash_series(ptype_id type, uint32_t svc, uint32_t labelset);
