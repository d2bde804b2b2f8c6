// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/thread.h"
#include "storage/catalog/catalog_private.h"
#include "storage/head/head_private.h"
#include "storage/head/identity_private.h"
#include "storage/journal/journal_private.h"

/* What tests turn; set before store_open and left alone. 0 or NULL: as the store decides. */
struct store_tuning {
    uint64_t rotate_bytes;
    int64_t rotate_ns, probe_ns;
    bool rotate_waits; /* for the next file to be prepared, so that a test knows what is where */
    uint32_t trie_nodes;
    uint64_t scan_rows;  /* from so many per worker on another one helps */
    uint64_t cache_rows; /* of a part: from so many on its sums are kept */
    const char *vfs;     /* that files are written through */
    uint64_t seal_bytes; /* of the head */
    bool seal_asked;     /* only by store_seal(), not by itself nor at the end */
    int64_t seal_ns;     /* since the first row that is not sealed */
    int64_t epoch_ns, epoch_keep_ns;
    bool compact_asked;      /* only by compact_all() */
    int64_t compact_ns;      /* since an hour's end, and since its newest part */
    int64_t compact_look_ns; /* between two looks */
};
extern struct store_tuning store_tuning;

#define STORE_TRIE_NODES (UINT32_C(1) << 22)
#define STORE_GROUP_ROWS 256u /* most of a commit */
#define STORE_MAGIC      0x73746f7265207631u

struct store_epoch {
    uint32_t id;
    uint64_t dict_id; /* catalog_epoch's */
    real_ns t0;
    mono_ns unused; /* since when no part is of it; 0: some is */
};

/* A journal file that is not written any more. */
struct store_journal {
    struct journal *j; /* open; NULL: closed */
    uint64_t number, last_lsn;
};

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

struct epoch_load;
struct source_list; /* view_private.h */
struct dictfile;
struct compactor;  /* compactor.c */
struct scan_cache; /* scan_cache_private.h */
struct writer_job;

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
    uint64_t id; /* in catalog and journals: which files are this store's; fixed after recover() */

    struct names names; /* written by the apply thread, as the current head and its epoch */
    struct head_stats stats;
    _Atomic uint64_t mem_used; /* bytes of names, epochs in use, heads */
    struct mutex view;         /* the next one, for an instant */
    struct source_list *list;  /* what the next view sees */
    struct head *head;         /* the current one, the last of list; apply thread */

    /* writer thread (seal_private.h) but for what is atomic */
    struct parts *parts;
    struct catalog *catalog;  /* NULL: nothing can be sealed */
    struct catalog_state cat; /* as it is on disk */
    struct names_snap cat_names;
    struct dictfile *dict, *next_dict;
    struct epoch *epoch, *next_epoch; /* counted; next_epoch: of a turn that is not sealed yet */
    real_ns epoch_t0;
    mono_ns turned;         /* when it became the current one */
    struct part_info *gone; /* rows of the catalog that go */
    uint32_t n_gone;
    struct part_info *doubt; /* files that a failed commit named */
    uint32_t n_doubt;
    bool unread;              /* a journal could not be read: nothing may be sealed */
    uint32_t lost_from;       /* of lost: those that the catalog has to learn */
    struct store_start start; /* fixed after recover() */
    struct head *frozen;      /* not sealed yet: the last but one of list; or NULL */
    _Atomic uint64_t next_part, sealed_lsn, unsealed, seals; /* unsealed: bytes of journal */
    _Atomic int64_t unsealed_since; /* mono_ns of the first row of the current head; 0 none */
    struct mutex writer;            /* the next ones */
    struct cond writer_wake, writer_done;
    struct writer_job *jobs;
    bool writer_runs, writer_stop;
    pthread_t writer_thread;
    struct mutex epochs;        /* the next ones; closed: the writer reads without */
    struct store_epoch *closed; /* epochs that are over and have a file */
    uint32_t n_closed;
    struct epoch **old_epoch; /* at hand, the longest unused first */
    uint32_t n_old_epoch;
    struct epoch_load *epoch_load; /* those being loaded (epochs.c) */
    struct cond epoch_loaded;
    _Atomic uint64_t epoch_loads; /* so far */

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
    bool apply_runs;
    struct head *fresh; /* to be put in place between two batches, with its list */
    struct source_list *fresh_list;
    struct cond froze;

    struct mutex upkeep; /* the prepared and the retired files */
    struct cond upkeep_cond;
    struct journal *next;
    struct store_journal *old; /* not written any more: unlinked when all in it is sealed */
    uint32_t n_old, room_old;
    bool upkeep_stop, prepared; /* prepared: next was made or could not be */

    struct journal *current; /* journal thread */
    bool current_dead;
    struct journal_row row[STORE_GROUP_ROWS];
    mono_ns current_since, last_failure;
    uint64_t next_lsn, acked_lsn, next_number; /* next_number: under upkeep */

    struct compactor *compactor; /* NULL: none runs */
    struct warm *warm;           /* warm.c; NULL: none was asked for */
    _Atomic uint64_t compactions, compaction_failures;

    pthread_t journal_thread, apply_thread, upkeep_thread;
    uint32_t n_threads;

    _Atomic uint32_t state;
    _Atomic(const char *) state_why;
    _Atomic uint64_t batches, duplicates, commits, commit_failures, dict_misses, replay_failed,
        disk_free;
    _Atomic uint64_t commit_bucket[STORE_COMMIT_BUCKETS + 1], commit_ns;
    _Atomic uint32_t scan_threads;
    _Atomic uint64_t damaged_blocks;
    _Atomic(struct scan_cache *) scan_cache; /* scan.c */
    uint32_t n_lost;                         /* damage found at start; fixed from then on */
    struct store_lost *lost;
};

real_ns store_now(const struct store *s);
static inline uint32_t store_trie_nodes(void)
{
    return store_tuning.trie_nodes ? store_tuning.trie_nodes : STORE_TRIE_NODES;
}
void store_set_state(struct store *s, enum store_state state, const char *why);
/* During the start: read-only, and nothing is acknowledged, not even a duplicate. */
void store_unsynced(struct store *s);

/* commit.c */
[[nodiscard]] int commit_start(struct store *s, struct err *err);
void commit_stop(struct store *s);
/* Done for a and those that waited for it; frees them. Any thread, no lock held. */
void commit_settle(struct store *s, struct append *a, int r, const struct err *err);
void append_push(struct append_list *l, struct append *a);
/* A file that is not written any more (j: still open, or NULL) with all its rows up to last_lsn is
 * unlinked once that is sealed. False: memory is short. Under upkeep. */
[[nodiscard]] bool journal_retire(struct store *s, struct journal *j, uint64_t number,
                                  uint64_t last_lsn);

/* view.c. Lists of sources: the counted items of a view. A list holds what it names. */
struct source_list *source_list_new(struct epoch *epoch, uint32_t n); /* NULL: memory is short */
struct source_item;
void source_list_add(struct source_list *l, const struct source_item *item);
void source_list_add_head(struct source_list *l, struct head *h);
void source_list_add_part(struct source_list *l, struct part *p);
void source_list_unref(struct source_list *l);                    /* NULL is a no-op */
struct source_list *source_list_get(struct store *s);             /* one reference, the caller's */
void source_list_publish(struct store *s, struct source_list *l); /* takes the reference */

/* warm.c, with conf.warm. Stop waits for what is in hand; nothing that was asked for is needed. */
void warm_start(struct store *s);
void warm_stop(struct store *s);

/* recover.c: LOCK, damage, replay. Outcome STORE_PARTIAL: something is lost, err says what first.
 */
[[nodiscard]] int recover(struct store *s, struct err *err);
