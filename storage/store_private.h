// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/thread.h"
#include "storage/head_private.h"
#include "storage/identity_private.h"
#include "storage/journal_private.h"

/* What tests turn; set before store_open and left alone. 0 or NULL: as the store decides. */
struct store_tuning {
    uint64_t rotate_bytes;
    int64_t rotate_ns, probe_ns;
    bool rotate_waits; /* for the next file to be prepared, so that a test knows what is where */
    uint32_t trie_nodes;
    uint64_t scan_rows;  /* from so many per worker on another one helps */
    uint64_t cache_rows; /* of a part: from so many on its sums are kept */
    const char *vfs;     /* that journals are written through */
};
extern struct store_tuning store_tuning;

#define STORE_RETIRED    64u  /* journals that wait to be closed */
#define STORE_GROUP_ROWS 256u /* most of a commit */
#define STORE_MAGIC      0x73746f7265207631u

/* A batch between store_append and its done. */
struct append {
    struct append *next;
    struct append *waiters; /* the same identity, brought again meanwhile */
    const struct batch *b;
    struct str payload;
    store_done_fn *done;
    void *ctx;
    uint64_t lsn, reserved;
    uint8_t boot[16]; /* of the row: random for an import without identity */
};

struct source_list; /* view_private.h */
struct scan_cache;  /* scan_cache_private.h */

struct append_list {
    struct append *head, **tail;
    uint32_t n;
    uint64_t bytes;
};

struct store_lost {
    struct interval t;
    struct str what;
};

struct store {
    uint64_t magic;
    char *dir, *journal_dir;
    int dir_fd, journal_fd, lock_fd;
    int acked_fd;           /* journal thread */
    bool unsynced;          /* fixed after recover(): what was found may not be on disk */
    struct store_conf conf; /* dir, decode: only during store_open */
    uint64_t seed;

    struct names names; /* written by the apply thread, as the current head and its epoch */
    struct head_stats stats;
    _Atomic uint64_t mem_used; /* bytes of names, epochs in use, heads */
    struct mutex view;         /* the next one, for an instant */
    struct source_list *list;  /* what the next view sees */
    struct head *head;         /* the current one, the last of list; apply thread */

    struct mutex admit; /* identity, queue, budgets */
    struct cond queued; /* something to commit, or closing */
    struct cond idle;   /* the last append was settled */
    struct identity identity;
    struct append_list queue;
    uint64_t reserved, open_appends;
    uint32_t forget_at;
    bool closing;

    struct mutex apply_mu;
    struct cond applied;
    struct append_list to_apply;
    bool apply_stop, apply_failed; /* apply_failed: apply thread only */

    struct mutex upkeep; /* the prepared and the retired files */
    struct cond upkeep_cond;
    struct journal *next;
    struct journal *retired[STORE_RETIRED];
    uint32_t n_retired;
    bool upkeep_stop, prepared; /* prepared: next was made or could not be */

    struct journal *current; /* journal thread */
    bool current_dead;
    struct journal_row row[STORE_GROUP_ROWS];
    mono_ns current_since, last_failure;
    uint64_t next_lsn, acked_lsn, next_number; /* next_number: under upkeep */

    pthread_t journal_thread, apply_thread, upkeep_thread;
    uint32_t n_threads;

    _Atomic uint32_t state;
    _Atomic(const char *) state_why;
    _Atomic uint64_t journal_total, batches, duplicates, commits, commit_failures, dict_misses,
        replay_failed, disk_free;
    _Atomic uint64_t commit_bucket[STORE_COMMIT_BUCKETS + 1], commit_ns;
    _Atomic uint32_t scan_threads;
    _Atomic uint64_t damaged_blocks;
    _Atomic(struct scan_cache *) scan_cache; /* scan.c */
    uint32_t n_lost;                         /* damage found at start; fixed from then on */
    struct store_lost *lost;
};

real_ns store_now(const struct store *s);
void store_set_state(struct store *s, enum store_state state, const char *why);
/* During the start: read-only, and nothing is acknowledged, not even a duplicate. */
void store_unsynced(struct store *s);

/* commit.c */
[[nodiscard]] int commit_start(struct store *s, struct err *err);
void commit_stop(struct store *s);
/* Done for a and those that waited for it; frees them. Any thread, no lock held. */
void commit_settle(struct store *s, struct append *a, int r, const struct err *err);
void append_push(struct append_list *l, struct append *a);

/* view.c. Lists of sources: the counted items of a view. A list holds what it names. */
struct source_list *source_list_new(struct epoch *epoch, uint32_t n); /* NULL: memory is short */
void source_list_add_head(struct source_list *l, struct head *h);
void source_list_unref(struct source_list *l);                    /* NULL is a no-op */
struct source_list *source_list_get(struct store *s);             /* one reference, the caller's */
void source_list_publish(struct store *s, struct source_list *l); /* takes the reference */

/* recover.c: LOCK, damage, replay. Outcome STORE_PARTIAL: something is lost, err says what first.
 */
[[nodiscard]] int recover(struct store *s, struct err *err);
