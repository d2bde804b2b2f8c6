// SPDX-License-Identifier: Apache-2.0
/*
 * The store as a whole: opening, admission, closing, counting.
 *
 * Threads   callers of store_append (any)   admission: identity, budgets, queue
 *           st-journal                      commits (commit.c), owns the current journal file
 *           st-apply                        the head (apply.c), calls done
 *           st-writer                       seals; catalog, dictionary file, list of sources
 *           st-warm-N                       reads, for a moment after the start
 *           st-upkeep                       next journal file, sealed ones, free space
 *           readers (any)                   views; no lock but view's, for an instant
 *           st-scan-N                       extra workers of a store_scan, as long as it
 *
 * Locks     outermost first, none held across SQLite or file I/O:
 *           admit      identity, queue, budgets        (any, st-journal, st-apply)
 *           apply_mu   committed, not yet in the head; a fresh head (st-journal, st-apply,
 * st-writer) writer     what st-writer is asked for     (any) upkeep     prepared and retired files
 * (st-journal, st-upkeep, st-writer) epochs     older epochs at hand            (any) epoch.ids
 * rwlock: hashes of nodes         (any reads, st-apply writes) view       the list that the next
 * view gets (any) view.mu    what a view looked up           (readers) pool.mu    newest snapshot,
 * readers; of names, epochs, heads (any)
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/file/db_private.h"
#include "storage/keep/seal_private.h"
#include "storage/part/scan_cache_private.h"

#define PAYLOAD_MAX   ((size_t)16 << 20)
#define QUEUE_BATCHES 4096u
#define QUEUE_BYTES   (UINT64_C(64) << 20)
#define ROWS_MAX      1000000u
#define DAY_NS        (86400 * NS_PER_S)
#define MAX_UNSEALED  (UINT64_C(1) << 30)
#define SEAL_NS       (60 * NS_PER_S)
#define RESERVE       (UINT64_C(32) << 20)
#define MIN_FREE      (UINT64_C(1) << 30)
#define MEM_HEAD      (UINT64_C(1) << 30)
#define MEM_QUERY     (UINT64_C(256) << 20)
#define MEM_DICT      (UINT64_C(256) << 20)
#define MEM_CACHE     (UINT64_C(256) << 20)
#define SENDERS_STEP  4096u

struct store_tuning store_tuning;

real_ns store_now(const struct store *s)
{
    return s->conf.now ? s->conf.now(s->conf.now_ctx) : real_now();
}

void store_set_state(struct store *s, enum store_state state, const char *why)
{
    if (atomic_load(&s->state) == STORE_READ_ONLY)
        return; /* until restart */
    atomic_store(&s->state_why, why);
    atomic_store(&s->state, state);
}

void store_unsynced(struct store *s)
{
    s->unsynced = true;
    store_set_state(s, STORE_READ_ONLY, "what an earlier run wrote cannot be synced to the disk");
}

/* ---- opening and closing ------------------------------------------------------------------- */

static void set_defaults(struct store_conf *c)
{
    if (!c->max_unsealed)
        c->max_unsealed = MAX_UNSEALED;
    if (!c->min_free)
        c->min_free = MIN_FREE;
    if (!c->reserve)
        c->reserve = RESERVE;
    if (c->seal_ns <= 0)
        c->seal_ns = SEAL_NS;
    if (!c->mem_head)
        c->mem_head = MEM_HEAD;
    if (!c->mem_query)
        c->mem_query = MEM_QUERY;
    if (!c->mem_dict)
        c->mem_dict = MEM_DICT;
    if (!c->mem_cache)
        c->mem_cache = MEM_CACHE;
    if (c->keep_raw_ns <= 0)
        c->keep_raw_ns = 7 * DAY_NS;
    if (!c->workers) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);

        c->workers = n > 0 && n < 256 ? (uint32_t)n : 1;
    }
    if (!c->limits.samples)
        c->limits.samples = ROWS_MAX;
    if (!c->limits.series)
        c->limits.series = 100000;
    if (!c->limits.series_per_service)
        c->limits.series_per_service = 10000;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

/* Its name in the folder above is on disk: else a power cut may take all that is in it. A folder of
 * others that cannot be opened is theirs. */
static bool sync_parent(const struct store *s)
{
    int fd = openat(s->dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 ? fsync(fd) == 0 : errno == EACCES;

    close_fd(fd);
    return ok;
}

static int open_dir(struct store *s, struct err *err)
{
    if (asprintf(&s->journal_dir, "%s/journal", s->dir) < 0) {
        s->journal_dir = NULL;
        return err_set(err, -ENOMEM, "memory is short");
    }
    if (!s->conf.read_only && mkdir(s->dir, 0700) != 0 && errno != EEXIST)
        return err_set(err, -errno, "%s: cannot be made: %m", s->dir);
    s->dir_fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dir_fd < 0)
        return err_set(err, -errno, "%s: %m", s->dir);
    if (!sync_parent(s))
        store_unsynced(s);
    return 0;
}

static void init_locks(struct store *s)
{
    mutex_init(&s->admit);
    mutex_init(&s->view);
    mutex_init(&s->writer);
    mutex_init(&s->epochs);
    cond_init(&s->epoch_loaded);
    cond_init(&s->writer_wake);
    cond_init(&s->writer_done);
    cond_init(&s->froze);
    mutex_init(&s->apply_mu);
    mutex_init(&s->upkeep);
    cond_init(&s->queued);
    cond_init(&s->idle);
    cond_init(&s->applied);
    cond_init(&s->upkeep_cond);
}

/* All threads have ended, or never begun. */
static struct store *free_store(struct store *s)
{
    identity_deinit(&s->identity);
    source_list_unref(s->list);
    epochs_close(s);
    s->parts = parts_free(s->parts);
    s->catalog = catalog_close(s->catalog);
    names_deinit(&s->names);
    (void)scan_cache_free(atomic_load(&s->scan_cache));
    for (uint32_t i = 0; i < s->n_lost; i++)
        free((void *)(uintptr_t)s->lost[i].what.p); // NOLINT(performance-no-int-to-ptr)
    free(s->lost);
    cond_deinit(&s->queued);
    cond_deinit(&s->idle);
    cond_deinit(&s->applied);
    cond_deinit(&s->upkeep_cond);
    mutex_deinit(&s->admit);
    mutex_deinit(&s->view);
    mutex_deinit(&s->writer);
    mutex_deinit(&s->epochs);
    cond_deinit(&s->epoch_loaded);
    cond_deinit(&s->writer_wake);
    cond_deinit(&s->writer_done);
    cond_deinit(&s->froze);
    free(s->old);
    free(s->gone);
    free(s->doubt);
    free(s->closed);
    mutex_deinit(&s->apply_mu);
    mutex_deinit(&s->upkeep);
    close_fd(s->acked_fd);
    close_fd(s->journal_fd);
    close_fd(s->dir_fd);
    close_fd(s->lock_fd); /* last: gives up the directory */
    free(s->journal_dir);
    free(s->dir);
    free(s);
    return NULL;
}

static int start(struct store *s, struct err *err)
{
    int r;

    if (!names_init(&s->names, s->seed))
        return err_set(err, -ENOMEM, "names: memory is short");
    pool_count_in(&s->names.pool, &s->mem_used);
    TRY(open_dir(s, err));
    TRY_OUTCOME(r, recover(s, err));
    if (!s->conf.read_only)
        TRY(commit_start(s, r == 0 ? err : NULL));
    return r;
}

int store_open(const struct store_conf *conf, struct store **ret, struct err *err)
{
    struct store *s;
    int r;

    assert(conf->decode || conf->read_only);
    if (!conf->read_only)
        db_log_version();
    s = mem_fail_now() ? NULL : calloc(1, sizeof *s);
    if (!s)
        return err_set(err, -ENOMEM, "memory is short");
    s->magic = STORE_MAGIC;
    s->dir_fd = s->journal_fd = s->lock_fd = s->acked_fd = -1;
    s->conf = *conf;
    set_defaults(&s->conf);
    init_locks(s);
    atomic_store(&s->state, conf->read_only ? STORE_READ_ONLY : STORE_OK);
    atomic_store(&s->state_why, conf->read_only ? "opened for reading alone" : "");
    if (getrandom(&s->seed, sizeof s->seed, 0) != (ssize_t)sizeof s->seed)
        s->seed = (uint64_t)mono_now().v;
    identity_init(&s->identity, s->seed);
    s->forget_at = SENDERS_STEP;
    s->dir = mem_fail_now() ? NULL : strdup(conf->dir);
    r = s->dir ? start(s, err) : err_set(err, -ENOMEM, "memory is short");
    s->conf.decode = NULL;
    s->conf.dir = s->dir;
    if (r < 0) {
        if (!s->conf.read_only)
            commit_stop(s);
        (void)free_store(s);
        return r;
    }
    if (conf->warm)
        warm_start(s);
    *ret = s;
    return r;
}

struct store *store_close(struct store *s)
{
    if (!s)
        return NULL;
    assert(s->magic == STORE_MAGIC);
    mutex_lock(&s->admit);
    s->closing = true;
    cond_broadcast(&s->queued);
    while (s->open_appends > 0)
        cond_wait(&s->idle, &s->admit);
    mutex_unlock(&s->admit);
    warm_stop(s);
    if (!s->conf.read_only)
        commit_stop(s);
    assert(s->names.pool.readers == 0);
    s->magic = 0;
    return free_store(s);
}

/* ---- appending ----------------------------------------------------------------------------- */

static uint64_t rows_of(const struct batch *b)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < b->n_stream; i++)
        n += b->stream[i].rows.n;
    return n;
}

/* What ends an append whose identity is new. */
static int room_for(struct store *s, const struct batch *b, size_t payload, uint64_t need,
                    bool known, struct err *err) REQUIRES(&s->admit)
{
    enum store_state state = atomic_load(&s->state);
    uint64_t used = atomic_load(&s->mem_used) + s->reserved;
    uint64_t journal = atomic_load(&s->unsealed) + s->queue.bytes;

    if (payload > PAYLOAD_MAX)
        return err_set(err, -E2BIG, "payload: %zu bytes, limit %zu", payload, PAYLOAD_MAX);
    if (rows_of(b) > s->conf.limits.samples)
        return err_set(err, -E2BIG, "samples: %" PRIu64 ", limit %" PRIu32, rows_of(b),
                       s->conf.limits.samples);
    if (state == STORE_READ_ONLY)
        return err_set(err, -EROFS, "read-only: %s", atomic_load(&s->state_why));
    if (state == STORE_FULL)
        return err_set(err, -ENOSPC, "disk full: %s", atomic_load(&s->state_why));
    if (!known)
        return STORE_DICT_MISS;
    if (s->queue.n >= QUEUE_BATCHES || s->queue.bytes + payload > QUEUE_BYTES)
        return err_set(err, -EAGAIN, "queue: %" PRIu32 " batches, %" PRIu64 " bytes", s->queue.n,
                       s->queue.bytes);
    if (journal + payload > s->conf.max_unsealed)
        return err_set(err, -ENOBUFS,
                       "storage.max_unsealed: %" PRIu64 " bytes of journal, limit "
                       "%" PRIu64,
                       journal, s->conf.max_unsealed);
    /* an eighth is kept for tables that double */
    if (used + need > s->conf.mem_head - s->conf.mem_head / 8)
        return err_set(err, -ENOBUFS,
                       "head: %" PRIu64 " bytes of memory, limit %" PRIu64 " less an eighth", used,
                       s->conf.mem_head);
    return 0;
}

/* 0: queued or waiting, done comes later. Else the outcome. */
static int admit(struct store *s, struct append *a, bool known, uint64_t need, struct err *err)
    REQUIRES(&s->admit)
{
    const struct batch_id *id = &a->b->id;
    bool named = !identity_none(id->agent);
    struct append *flight = NULL;
    int r = IDENTITY_NEW;

    if (s->closing)
        return err_set(err, -ESHUTDOWN, "the store is closing");
    if (s->unsynced)
        return err_set(err, -EROFS, "read-only: %s", atomic_load(&s->state_why));
    if (named) {
        r = identity_claim(&s->identity, id, a->b->received, a, &flight);
        if (r < 0)
            return err_set(err, r, "memory is short");
    }
    if (r == IDENTITY_IN_FLIGHT) {
        a->next = flight->waiters;
        flight->waiters = a;
        s->open_appends++;
        return 0;
    }
    if (r != IDENTITY_NEW)
        return r == IDENTITY_DUPLICATE  ? STORE_DUPLICATE
               : r == IDENTITY_CONFLICT ? STORE_SEQ_CONFLICT
                                        : STORE_SEQ_TOO_OLD;
    r = room_for(s, a->b, a->payload.n, need, known, err);
    if (r != 0) {
        if (named)
            identity_settle(&s->identity, id, a, false);
        return r;
    }
    a->reserved = need;
    s->reserved += need;
    s->open_appends++;
    append_push(&s->queue, a);
    cond_signal(&s->queued);
    if (s->identity.n >= s->forget_at) {
        identity_forget(&s->identity, (real_ns){store_now(s).v - s->conf.keep_raw_ns - DAY_NS});
        s->forget_at = s->identity.n + SENDERS_STEP;
    }
    return 0;
}

/* Does the store hold every node that the batch only names? */
static bool knows(struct store *s, const struct batch *b)
{
    struct source_list *l;
    bool yes;

    if (b->n_known == 0)
        return true;
    l = source_list_get(s);
    yes = epoch_knows(l->epoch, b);
    source_list_unref(l);
    return yes;
}

void store_append(struct store *s, const struct batch *b, struct str payload, store_done_fn *done,
                  void *ctx)
{
    struct append *a = mem_fail_now() ? NULL : calloc(1, sizeof *a);
    struct err err = {};
    uint64_t need = head_estimate(b);
    bool known = knows(s, b);
    int r;

    assert(s->magic == STORE_MAGIC);
    if (!a) {
        done(ctx, -ENOMEM, 0, &(struct err){.code = -ENOMEM, .msg = "memory is short"});
        return;
    }
    *a = (struct append){.b = b, .payload = payload, .done = done, .ctx = ctx};
    memcpy(a->boot, b->id.boot, sizeof a->boot);
    if (identity_none(b->id.agent) &&
        getrandom(a->boot, sizeof a->boot, 0) != (ssize_t)sizeof a->boot)
        memcpy(a->boot, &(uint64_t){(uint64_t)mono_now().v}, sizeof(uint64_t));
    mutex_lock(&s->admit);
    r = admit(s, a, known, need, &err);
    mutex_unlock(&s->admit);
    if (r == 0) // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the queue has it
        return;
    atomic_fetch_add(&s->duplicates, r == STORE_DUPLICATE);
    atomic_fetch_add(&s->dict_misses, r == STORE_DICT_MISS);
    free(a);
    done(ctx, r, 0, r < 0 ? &err : NULL);
}

struct wait {
    struct mutex mu;
    struct cond cond;
    bool done;
    int r;
    uint64_t lsn;
    struct err err;
};

static void on_done(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    struct wait *w = ctx;

    mutex_lock(&w->mu);
    w->r = r;
    w->lsn = lsn;
    if (err)
        w->err = *err;
    w->done = true;
    cond_signal(&w->cond);
    mutex_unlock(&w->mu);
}

int store_append_wait(struct store *s, const struct batch *b, struct str payload, uint64_t *ret_lsn,
                      struct err *err)
{
    struct wait w = {};

    mutex_init(&w.mu);
    cond_init(&w.cond);
    store_append(s, b, payload, on_done, &w);
    mutex_lock(&w.mu);
    while (!w.done)
        cond_wait(&w.cond, &w.mu);
    mutex_unlock(&w.mu);
    cond_deinit(&w.cond);
    mutex_deinit(&w.mu);
    if (w.r == 0 && ret_lsn)
        *ret_lsn = w.lsn;
    if (w.r < 0 && err && err->code == 0)
        *err = w.err;
    return w.r;
}

/* ---- counting ------------------------------------------------------------------------------ */

void store_stats(struct store *s, struct store_stats *ret)
{
    struct store_view *v = store_view_get(s);
    const struct head_stats *n = &s->stats;
    const char *why = atomic_load(&s->state_why);
    int64_t t0 = INT64_MAX, t1 = INT64_MIN;
    uint64_t head_rows = 0, parts = 0, bytes = 0;

    for (uint32_t i = 0; i < v->n_source; i++) {
        const struct source *src = &v->source[i];
        const struct head_snap *snap = &src->snap;
        struct interval t = src->t;

        bytes += src->part ? src->part->info.bytes : 0;
        parts += src->part != NULL;
        head_rows += snap->rows;
        if (src->head && snap->oldest_ms > snap->newest_ms)
            continue;
        if (src->head)
            t = (struct interval){{snap->oldest_ms * NS_PER_MS}, {snap->newest_ms * NS_PER_MS + 1}};
        t0 = t.t0.v < t0 ? t.t0.v : t0;
        t1 = t.t1.v - 1 > t1 ? t.t1.v - 1 : t1;
    }
    *ret = (struct store_stats){
        .state = atomic_load(&s->state),
        .state_why = str_c(why),
        .disk_free = atomic_load(&s->disk_free),
        .disk_used = bytes + atomic_load(&s->unsealed),
        .parts = parts,
        .sealed_lsn = atomic_load(&s->sealed_lsn),
        .start = s->start,
        .seals = atomic_load(&s->seals),
        .compactions = atomic_load(&s->compactions),
        .compaction_failures = atomic_load(&s->compaction_failures),
        .head_rows = head_rows,
        .head_bytes = atomic_load(&s->mem_used),
        .journal_bytes = atomic_load(&s->unsealed),
        .dict_bytes = atomic_load(&v->epoch->pool.used) + epochs_bytes(s),
        .series = v->snap.series - 1,
        .lsn = v->lsn,
        .batches = atomic_load(&s->batches),
        .rows = atomic_load(&n->rows),
        .duplicates = atomic_load(&s->duplicates),
        .commits = atomic_load(&s->commits),
        .commit_failures = atomic_load(&s->commit_failures),
        .dict_misses = atomic_load(&s->dict_misses),
        .hash_clashes = atomic_load(&n->hash_clashes),
        .stack_folded = atomic_load(&n->stack_folded),
        .series_overflow = atomic_load(&n->series_overflow),
        .service_missing = atomic_load(&n->service_missing),
        .attr_overflow = atomic_load(&n->attr_overflow),
        .replay_failed = atomic_load(&s->replay_failed),
        .commit_ns = atomic_load(&s->commit_ns),
        .damaged_blocks = atomic_load(&s->damaged_blocks),
        .cache_bytes = parts_local_bytes(s->parts) + scan_cache_bytes(atomic_load(&s->scan_cache)),
    };
    for (uint32_t i = 0; i <= STORE_COMMIT_BUCKETS; i++)
        ret->commit_bucket[i] = atomic_load(&s->commit_bucket[i]);
    for (uint32_t i = 0; i < atomic_load_explicit(&v->epoch->n_trie, memory_order_acquire); i++)
        ret->nodes += atomic_load_explicit(&epoch_trie_at(v->epoch, i)->n, memory_order_acquire);
    if (t0 <= t1) {
        ret->oldest = (real_ns){t0};
        ret->newest = (real_ns){t1};
        ret->raw_from = ret->oldest;
    }
    (void)store_view_put(v);
}

static int by_last(const void *a, const void *b)
{
    return real_ns_cmp(((const struct store_sender *)b)->last,
                       ((const struct store_sender *)a)->last);
}

int store_list_senders(struct store *s, store_sender_fn *fn, void *ctx, struct err *err)
{
    struct store_sender *v;
    uint32_t n;
    int r = 0;

    mutex_lock(&s->admit);
    n = s->identity.n;
    v = calloc(n ? n : 1, sizeof *v);
    for (uint32_t i = 0; v && i < n; i++) {
        struct identity_view id = identity_at(&s->identity, i);

        memcpy(v[i].agent, id.agent, 16);
        memcpy(v[i].boot, id.boot, 16);
        v[i].seq = id.seq;
        v[i].last = id.last;
    }
    mutex_unlock(&s->admit);
    if (!v)
        return err_set(err, -ENOMEM, "memory is short");
    qsort(v, n, sizeof *v, by_last);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        if (!fn(ctx, &v[i]))
            r = err_set(err, -ECANCELED, "ended by the caller");
    }
    free(v);
    return r;
}
