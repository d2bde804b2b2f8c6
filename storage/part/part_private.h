// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdatomic.h>

#include "base/thread.h"
#include "storage/dict/local_private.h"
#include "storage/part/block_private.h"

/*
 * A part: one file of blocks of one period, immutable from birth (docs/format-shard.md). Written
 * once in build/, fsynced, renamed into shard/raw/ or shard/minute/; read through handles that one
 * thread uses at a time.
 */

enum part_state {
    PART_SEALED = 2,
    PART_GONE = 3,        /* replaced or expired: unlinked after its last reader */
    PART_QUARANTINED = 4, /* moved to quarantine/ */
};

#define PART_NAME 64

/* What the catalog says of a part; meta of the file says the same, but for id, state, dirty. */
struct part_info {
    uint64_t id; /* in the catalog; 0: not in it yet */
    uint8_t uuid[16];
    uint8_t hash[16];     /* XXH3-128 of the file, big-endian */
    char name[PART_NAME]; /* below the store: "shard/raw/20261129T13-e12-g3.db" */
    enum store_tier tier;
    enum part_state state;
    bool dirty;
    uint32_t epoch, generation;
    struct interval period, data; /* data: of rows and of all that stands beside them */
    uint64_t rows, blocks, bytes;
    uint64_t sealed_lsn;
};

/* "shard/raw/20261129T13-e12-g3.db": hour, epoch, generation; minute parts by day. */
void part_name(char ret[static PART_NAME], enum store_tier tier, real_ns t0, uint32_t epoch,
               uint32_t generation);

/* ---- writing ------------------------------------------------------------------------------- */

struct part_conf {
    const char *dir; /* the store's */
    const char *vfs;
    enum store_tier tier;
    struct interval period;
    uint32_t epoch, generation;
    uint64_t sealed_lsn;
    const struct names *names; /* definitions of the catalog ids that the part repeats */
    uint32_t n_input;          /* uuids of the parts that this one replaces */
    const uint8_t (*input)[16];
};

struct part_writer;

/*
 * Begin a file in build/. Ids of the catalog and of the epoch are written as they are; ids of a
 * source (threads, targets, texts) are translated into the part's own.
 * Thread: one at a time. conf is borrowed until finish or abort. Failure: nothing is left.
 */
[[nodiscard]] int part_create(const struct part_conf *conf, struct part_writer **ret,
                              struct err *err);

/* What follows comes from that source, until the next call. */
[[nodiscard]] int part_source(struct part_writer *w, const struct local *src,
                              const struct local_snap *snap, struct err *err);
/* The part's thread of a thread of the source; UINT32_MAX: memory is short. */
uint32_t part_thread(struct part_writer *w, uint32_t thread);
/* The part's scope of a scope of the source, for rows of levels (block_rows.attr); its records must
 * come too, with part_put_local(). UINT32_MAX: memory is short. */
uint32_t part_scope(struct part_writer *w, uint32_t scope);

/*
 * One block: rows sorted as block_rows says, threads already the part's. All blocks of one (type,
 * svc, sub) come one after another, by time; n <= BLOCK_ROWS.
 */
[[nodiscard]] int part_put_block(struct part_writer *w, const struct block_rows *rows,
                                 ptype_id type, uint32_t svc, uint32_t sub, struct err *err);

/* Coverage, metrics, steps and events of the source whose time is in range: a record, a step and a
 * point belong where they begin. Once per source. */
[[nodiscard]] int part_put_local(struct part_writer *w, struct interval range, struct err *err);

/* Nothing was put. */
bool part_empty(const struct part_writer *w);

/* hsum, local tables, meta; fsync, rename, fsync of both directories. Frees w in every case. */
[[nodiscard]] int part_finish(struct part_writer *w, struct part_info *ret, struct err *err);
/* NULL is a no-op. Returns NULL. Nothing is left in build/. */
struct part_writer *part_abort(struct part_writer *w);

/* ---- reading ------------------------------------------------------------------------------- */

/* Handles of all parts of a store: at most max open at once, least recently used closed first. */
struct parts;
struct part_handle;
struct part_beside;

/* max: handles, 0: one in eight descriptors, 128 to 1,024, or what a lower limit of them leaves.
 * NULL: memory is short. */
[[nodiscard]] struct parts *parts_new(const char *dir, const char *vfs, uint32_t max, bool mmap);
struct parts *parts_free(struct parts *p); /* all parts are gone; NULL is a no-op; returns NULL */
/* Catalog ids that a part may hold are below these; before the first call: any. Any thread. */
void parts_know(struct parts *p, const struct names_snap *limits);

struct part_block {
    uint32_t id;
    struct block_meta m;
};

struct part_hsum { /* rows of table hsum, without data */
    ptype_id type;
    uint32_t svc, sub, span;
    real_ns t0;
    uint32_t n;
};

/* Counted; everything but info is filled by the first part_load(). */
struct part {
    struct part_info info;
    struct parts *parts;
    _Atomic uint32_t refs;
    _Atomic bool gone;
    _Atomic uint32_t bad; /* rows found damaged since start */
    struct mutex mu;
    _Atomic uint32_t loaded; /* 0 no, 1 yes, 2 its metadata is bad: err below */
    struct err err;
    uint32_t n_block, n_hsum;
    struct part_block *block;   /* by (type, svc, sub, t0) */
    struct part_hsum *hsum;     /* by (type, svc, sub, span, t0) */
    struct part_beside *beside; /* decoded local tables, under mu */
    _Atomic uint64_t beside_used;
    struct part_handle *idle; /* under parts->mu */
};

/* Opens nothing. NULL: memory is short. */
struct part *part_new(struct parts *parts, const struct part_info *info);
struct part *part_ref(struct part *p);
/* The last one closes its handles, unlinks a gone file, frees. Returns NULL; NULL is a no-op. */
struct part *part_unref(struct part *p);
/* Unlink after the last reader. */
void part_set_gone(struct part *p);

/*
 * Open the file and read all but blobs, once: format, meta against info, rows of block and hsum
 * against meta. Any thread.
 *   errors   -EBADMSG damaged, said again at each later call; -EPROTO; -EMFILE, -ENOMEM, -EIO
 */
[[nodiscard]] int part_load(struct part *p, struct err *err);

/* The blocks of (type, svc, sub); svc UINT32_MAX: of the type; type PTYPE_NONE: all. n of them from
 * *ret on. After part_load(). */
uint32_t part_blocks(const struct part *p, ptype_id type, uint32_t svc, uint32_t sub,
                     const struct part_block **ret);

/*
 * A handle for the calling thread, until given back. Waits for nobody: where all are out one more
 * is opened. Where the process is out of descriptors idle ones are closed first.
 */
[[nodiscard]] int part_enter(struct part *p, struct part_handle **ret, struct err *err);
void part_leave(struct part_handle *h);

/* A blob, its sum verified. Valid until the next call with this handle.
 *   errors   -EBADMSG damage, counted in part->bad */
[[nodiscard]] int part_summary(struct part_handle *h, uint32_t block, struct str *ret,
                               struct err *err);
[[nodiscard]] int part_cols(struct part_handle *h, uint32_t block, struct str *ret,
                            struct err *err);
[[nodiscard]] int part_hsum(struct part_handle *h, const struct part_hsum *key, struct str *ret,
                            struct err *err);

/* The local tables of the part in a struct local of its own, decoded at first use; lives as long as
 * the caller's reference to p. *ret_snap: all of it. */
[[nodiscard]] int part_local(struct part *p, const struct local **ret, struct local_snap *ret_snap,
                             struct err *err);
/* Forget decoded local tables, the longest unused first, of parts that only the store's list holds
 * (refs 1), until at most max bytes are left. */
void parts_trim(struct parts *ps, uint64_t max);
uint64_t parts_local_bytes(const struct parts *p);

/* Names that the part repeats, for rebuilding a catalog; ids rising within each kind, the order of
 * kinds is that of the members. Negative ends it. */
struct part_names {
    void *ctx;
    int (*svc)(void *ctx, uint32_t id, struct str name, struct err *err);
    int (*ptype)(void *ctx, ptype_id id, struct str name, struct str unit, enum ptype_kind kind,
                 struct err *err);
    int (*labelset)(void *ctx, uint32_t id, uint32_t n, const struct store_label *v,
                    struct err *err);
    int (*series)(void *ctx, uint32_t id, ptype_id type, uint32_t svc, uint32_t labelset,
                  struct err *err);
};
[[nodiscard]] int part_read_names(const char *dir, const char *name, const char *vfs,
                                  const struct part_names *fn, struct err *err);

/* Info of a file without a catalog row: from its meta, size and hash. Its inputs (uuids of the
 * parts that it replaced) go to *ret_inputs, malloced, if that is not NULL. */
[[nodiscard]] int part_read_info(const char *dir, const char *name, const char *vfs,
                                 struct part_info *ret, uint8_t (**ret_inputs)[16],
                                 uint32_t *ret_n_input, struct err *err);
/* XXH3-128 of a file below dir. */
[[nodiscard]] int part_hash_file(const char *dir, const char *name, uint8_t ret[static 16],
                                 uint64_t *ret_bytes, struct err *err);
