// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/part/part_private.h"

/*
 * catalog.db: which parts count, what catalog ids mean, who sent what, and the LSN up to which all
 * is sealed. Loaded whole at start; from then on only written, each change one FULL transaction of
 * the writer thread. Rows carry sums, and state.fold the sum of all sums, so that a lost or stale
 * page is noticed. What cannot be read is set aside and made again from the parts.
 */
struct catalog;

struct catalog_state {
    uint64_t sealed_lsn; /* all up to it is in parts */
    uint64_t next_journal, next_seal, next_part;
    real_ns expiry_ref;
    uint64_t dict_id, dict_n; /* the current dictionary, dictfile_mark(); 0: not known */
    uint64_t store;           /* random, of the store; 0: not known */
};

struct catalog_svc {
    uint32_t id;
    struct str name;
};

struct catalog_ptype {
    ptype_id id;
    struct str name, unit;
    enum ptype_kind kind;
};

struct catalog_labelset {
    uint32_t id, n;
    const struct store_label *v; /* by name, rising */
};

struct catalog_series {
    uint32_t id;
    ptype_id type;
    uint32_t svc, labelset;
    bool overflow;
};

enum catalog_epoch_state {
    CATALOG_EPOCH_CURRENT = 1,
    CATALOG_EPOCH_CLOSED = 2, /* its dictionary is at rest */
    CATALOG_EPOCH_GONE = 3,
};

struct catalog_epoch {
    uint32_t id;
    real_ns t0;
    uint32_t state;   /* enum catalog_epoch_state */
    uint64_t dict_id; /* of a closed one: dictfile_mark(); 0: not known */
};

struct catalog_seen {
    uint64_t seq, content;
};

struct catalog_sender {
    uint8_t agent[16], boot[16];
    uint64_t hi;
    real_ns last;
    uint32_t n_seen; /* numbers to add (when writing) or known (when loading) */
    const struct catalog_seen *seen;
};

struct catalog_damage {
    real_ns at;
    uint64_t part;
    ptype_id type;
    uint32_t svc;
    struct interval t;
    uint64_t n;
    struct str what;
};

/* What is loaded, in this order, ids rising within each. Negative ends the load with it. What is
 * handed out ends with the call. Any may be NULL. */
struct catalog_sink {
    void *ctx;
    int (*svc)(void *ctx, const struct catalog_svc *x, struct err *err);
    int (*ptype)(void *ctx, const struct catalog_ptype *x, struct err *err);
    int (*labelset)(void *ctx, const struct catalog_labelset *x, struct err *err);
    int (*series)(void *ctx, const struct catalog_series *x, struct err *err);
    int (*epoch)(void *ctx, const struct catalog_epoch *x, struct err *err);
    int (*part)(void *ctx, const struct part_info *x, struct err *err);
    int (*sender)(void *ctx, const struct catalog_sender *x, struct err *err);
    int (*damage)(void *ctx, const struct catalog_damage *x, struct err *err);
};

/* All of it in one transaction; what is NULL or 0 stays. */
struct catalog_change {
    uint32_t n_svc, n_ptype, n_labelset, n_series, n_epoch, n_part, n_gone, n_sender, n_forget,
        n_damage;
    const struct catalog_svc *svc; /* new ones */
    const struct catalog_ptype *ptype;
    const struct catalog_labelset *labelset;
    const struct catalog_series *series;
    const struct catalog_epoch *epoch;   /* new or changed */
    const struct part_info *part;        /* new or changed, by id (never 0) */
    const uint64_t *gone;                /* ids of parts whose rows go */
    const struct catalog_sender *sender; /* new or changed; numbers <= hi - 1,024 are forgotten */
    const struct catalog_sender *forget; /* by agent, boot */
    const struct catalog_damage *damage; /* new */
    const struct catalog_state *state;   /* the new values of all */
};

enum catalog_outcome {
    CATALOG_NEW = 1,     /* there was none, and no part: made */
    CATALOG_REBUILT = 2, /* it could not be read, or was missing beside parts: set aside and made
                            from the parts; senders are those of the journals, all epochs are
                            closed: begin a new one. err says why */
};

/*
 * Open dir/catalog.db for writing, after settling it (db_settle); load nothing yet. now: for names
 * in quarantine/.
 *   errors   -EPROTO: untouched
 */
[[nodiscard]] int catalog_open(const char *dir, const char *vfs, real_ns now, struct catalog **ret,
                               struct err *err);
/* Without writing: strata check, read_only. beside: a server may hold it; then -EBUSY. */
[[nodiscard]] int catalog_open_read(const char *dir, const char *vfs, struct catalog **ret,
                                    struct err *err);
struct catalog *catalog_close(struct catalog *c);

/* errors: -EBADMSG damage, -ENOMEM, and what a sink said */
[[nodiscard]] int catalog_load(struct catalog *c, const struct catalog_sink *sink,
                               struct catalog_state *ret, struct err *err);

/* On disk when it returns 0; otherwise rolled back, but if the process ends before the next one
 * succeeds, the next start may find it done: files that it names must stay until then. Owner only:
 * the writer thread. */
[[nodiscard]] int catalog_commit(struct catalog *c, const struct catalog_change *change,
                                 struct err *err);
/* Move what is in the -wal into the file; failure is harmless. After a seal. */
void catalog_checkpoint(struct catalog *c);

/* A copy at the new path below the same or another directory. By the thread that owns c. */
[[nodiscard]] int catalog_copy(struct catalog *c, const char *path, struct err *err);
