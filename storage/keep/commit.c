// SPDX-License-Identifier: Apache-2.0
/*
 * From the queue to the disk to the head. Three threads:
 *   journal  takes all that waits (at most 1 MiB; a larger one alone), commits it as one
 *            transaction, passes it on, takes what gathered meanwhile. No timer: a lone batch does
 *            not wait, and under load groups grow by themselves.
 *   apply    adds committed batches to the head in order of LSN, shows them, calls done.
 *   upkeep   makes the next journal file before it is needed, closes those that are full, looks at
 *            the free space.
 * The journal thread alone writes the current file. One whose write or sync failed is left as it
 * is; the group is not acknowledged and the prepared file goes on. LSNs of a failed group are not
 * used again: its rows may yet be found in the file, and are told by after_lsn of the next one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "storage/keep/compact_private.h"
#include "storage/keep/seal_private.h"

#define GROUP_BYTES  (UINT64_C(1) << 20)
#define ROTATE_BYTES (UINT64_C(64) << 20)
#define ROTATE_NS    (600 * NS_PER_S)
#define PROBE_NS     (2 * NS_PER_S)
#define FAILURES_NS  (60 * NS_PER_S)
#define NEXT_WAIT_NS (5 * NS_PER_S)

const double store_commit_bucket_s[STORE_COMMIT_BUCKETS] = {0.0005, 0.001, 0.0025, 0.005, 0.01,
                                                            0.025,  0.05,  0.1,    0.5,   1};

void append_push(struct append_list *l, struct append *a)
{
    if (!l->head)
        l->tail = &l->head;
    a->next = NULL;
    *l->tail = a;
    l->tail = &a->next;
    l->n++;
    l->bytes += a->payload.n;
}

static struct append *append_pop(struct append_list *l)
{
    struct append *a = l->head;

    l->head = a->next;
    l->n--;
    l->bytes -= a->payload.n;
    return a;
}

void commit_settle(struct store *s, struct append *a, int r, const struct err *err)
{
    struct append *w;
    uint64_t content = a->b->id.content;

    mutex_lock(&s->admit);
    if (!identity_none(a->b->id.agent))
        identity_settle(&s->identity, &a->b->id, a, r == 0 ? a->lsn : 0);
    s->reserved -= a->reserved;
    w = a->waiters;
    mutex_unlock(&s->admit);

    if (r == 0)
        atomic_fetch_add(&s->batches, 1);
    a->done(a->ctx, r, r == 0 ? a->lsn : 0, r < 0 ? err : NULL);
    free(a);
    for (uint64_t n = 1;; n++) {
        struct append *next;
        int wr = r;

        if (!w) {
            mutex_lock(&s->admit);
            s->open_appends -= n;
            if (s->open_appends == 0)
                cond_broadcast(&s->idle);
            mutex_unlock(&s->admit);
            return;
        }
        next = w->next;
        if (r == 0) {
            wr = w->b->id.content == content ? STORE_DUPLICATE : STORE_SEQ_CONFLICT;
            atomic_fetch_add(&s->duplicates, wr == STORE_DUPLICATE);
        }
        w->done(w->ctx, wr, 0, wr < 0 ? err : NULL);
        free(w);
        w = next;
    }
}

/* ---- journal thread ------------------------------------------------------------------------ */

static bool too_full(const struct store *s)
{
    return atomic_load(&s->state) == STORE_FULL;
}

bool journal_retire(struct store *s, struct journal *j, uint64_t number, uint64_t last_lsn)
{
    struct store_journal *v;

    if (s->n_old == s->room_old) {
        uint32_t room = s->room_old ? 2 * s->room_old : 16;

        v = mem_fail_now() ? NULL : realloc(s->old, room * sizeof *v);
        if (!v)
            return false;
        s->old = v;
        s->room_old = room;
    }
    s->old[s->n_old++] = (struct store_journal){j, number, last_lsn};
    return true;
}

/* The prepared file becomes the current one. wait: until there is one, for a while. */
static bool take_next(struct store *s, bool wait)
{
    struct journal *next;

    mutex_lock(&s->upkeep);
    while (wait && !s->next && !s->prepared) {
        if (!cond_wait_for(&s->upkeep_cond, &s->upkeep, NEXT_WAIT_NS))
            break;
    }
    next = s->next;
    if (next && (!s->current ||
                 journal_retire(s, s->current, journal_number(s->current), s->next_lsn - 1))) {
        s->next = NULL;
        s->prepared = false;
        cond_broadcast(&s->upkeep_cond);
    } else {
        next = NULL;
    }
    mutex_unlock(&s->upkeep);
    if (!next)
        return false;
    s->current = next;
    s->current_dead = false;
    s->current_since = mono_now();
    return true;
}

static bool is_due(const struct store *s)
{
    uint64_t bytes = store_tuning.rotate_bytes ? store_tuning.rotate_bytes : ROTATE_BYTES;
    int64_t ns = store_tuning.rotate_ns ? store_tuning.rotate_ns : ROTATE_NS;

    return journal_rows(s->current) > 0 &&
           (journal_bytes(s->current) >= bytes || mono_now().v - s->current_since.v >= ns);
}

static void on_failure(struct store *s, int r)
{
    mono_ns now = mono_now();

    atomic_fetch_add(&s->commit_failures, 1);
    if (r == -ENOSPC) {
        space_full(s, "no space left on the device");
        return;
    }
    s->current_dead = true;
    if (s->last_failure.v && now.v - s->last_failure.v < FAILURES_NS)
        store_set_state(s, STORE_READ_ONLY, "writing the journal failed twice within 60 s");
    s->last_failure = now;
}

static void count_commit(struct store *s, int64_t ns)
{
    uint32_t b = 0;

    while (b < STORE_COMMIT_BUCKETS && (double)ns / 1e9 > store_commit_bucket_s[b])
        b++;
    atomic_fetch_add(&s->commit_bucket[b], 1);
    atomic_fetch_add(&s->commit_ns, (uint64_t)ns);
    atomic_fetch_add(&s->commits, 1);
}

static int write_group(struct store *s, struct append *const *group, size_t n, struct err *err)
{
    struct journal_row *row = s->row;
    uint64_t bytes = 0;
    mono_ns begun;
    int r;

    if (atomic_load(&s->state) == STORE_READ_ONLY)
        return err_set(err, -EROFS, "read-only: %s", atomic_load(&s->state_why));
    if ((!s->current || s->current_dead) && !take_next(s, true)) {
        r = too_full(s) ? -ENOSPC : -EIO;
        on_failure(s, r);
        return err_set(err, r, "no journal file to write");
    }
    if (is_due(s))
        (void)take_next(s, store_tuning.rotate_waits);
    for (size_t i = 0; i < n; i++) {
        const struct batch_id *id = &group[i]->b->id;

        group[i]->lsn = s->next_lsn + i;
        row[i] = (struct journal_row){.lsn = group[i]->lsn,
                                      .seq = id->seq,
                                      .content = id->content,
                                      .received = group[i]->b->received,
                                      .payload = group[i]->payload};
        memcpy(row[i].agent, id->agent, 16);
        memcpy(row[i].boot, group[i]->boot, 16);
        bytes += group[i]->payload.n;
    }
    begun = mono_now();
    r = journal_commit(s->current, row, n, s->acked_lsn, err);
    s->next_lsn += n;
    if (r == 0 && !journal_there(s->current, s->journal_fd)) {
        r = err_set(err, -EIO, "journal: the file being written was removed");
        store_set_state(s, STORE_READ_ONLY, "files of the journal were removed while it ran");
    }
    if (r != 0) {
        on_failure(s, r);
        return r;
    }
    s->acked_lsn = s->next_lsn - 1;
    acked_write(s->acked_fd, s->acked_lsn);
    count_commit(s, mono_now().v - begun.v);
    atomic_fetch_add(&s->unsealed, bytes);
    return 0;
}

static void commit_group(struct store *s, struct append **group, size_t n)
{
    struct err err = {};
    int r = write_group(s, group, n, &err);

    if (r != 0) {
        for (size_t i = 0; i < n; i++)
            commit_settle(s, group[i], r, &err);
        return;
    }
    mutex_lock(&s->apply_mu);
    for (size_t i = 0; i < n; i++)
        append_push(&s->to_apply, group[i]);
    cond_signal(&s->applied);
    mutex_unlock(&s->apply_mu);
}

/* While full: does a commit pass, and is there room? A file of which all is in parts is given up,
 * where another one is prepared. */
static void probe(struct store *s)
{
    struct err err = {};
    bool sealed =
        s->current && journal_rows(s->current) > 0 && s->acked_lsn <= atomic_load(&s->sealed_lsn);

    if ((!s->current || s->current_dead || sealed) && !take_next(s, false) &&
        (!s->current || s->current_dead))
        return;
    if (journal_probe(s->current, &err) == 0 && atomic_load(&s->disk_free) >= s->conf.min_free)
        store_set_state(s, STORE_OK, "");
}

static size_t take_group(struct store *s, struct append **group) REQUIRES(&s->admit)
{
    uint64_t bytes = 0;
    size_t n = 0;

    while (s->queue.head && n < STORE_GROUP_ROWS) {
        if (n > 0 && bytes + s->queue.head->payload.n > GROUP_BYTES)
            break;
        bytes += s->queue.head->payload.n;
        group[n++] = append_pop(&s->queue);
    }
    return n;
}

static void *journal_main(void *arg)
{
    struct store *s = arg;
    struct append *group[STORE_GROUP_ROWS];
    const int64_t wait = store_tuning.probe_ns ? store_tuning.probe_ns : PROBE_NS;
    bool stop = false;

    while (!stop) {
        size_t n;

        mutex_lock(&s->admit);
        if (!s->queue.head && !s->closing) {
            if (too_full(s))
                (void)cond_wait_for(&s->queued, &s->admit, wait);
            else
                cond_wait(&s->queued, &s->admit);
        }
        n = take_group(s, group);
        stop = n == 0 && s->closing;
        mutex_unlock(&s->admit);
        if (n > 0)
            commit_group(s, group, n);
        else if (!stop && too_full(s))
            probe(s);
    }
    return NULL;
}

/* ---- apply thread -------------------------------------------------------------------------- */

static void apply_one(struct store *s, struct append *a)
{
    struct err err = {};
    int r = s->apply_failed ? err_set(&err, -ENOMEM, "head: memory was short before") : 0;

    if (r == 0)
        r = head_apply(s->head, a->b, a->lsn, &s->conf.limits, &err);
    if (r == 0) {
        s->head->payload += a->payload.n;
        if (atomic_load(&s->unsealed_since) == 0)
            atomic_store(&s->unsealed_since, mono_now().v);
    }
    if (r != 0 && !s->apply_failed) {
        /* On disk, not visible, not acknowledged: the next start shows it, and a resend is a
         * duplicate then. Going on would show later batches without this one. */
        s->apply_failed = true;
        store_set_state(s, STORE_READ_ONLY, "memory was short while adding a batch to the head");
    }
    commit_settle(s, a, r, &err);
}

static void *apply_main(void *arg)
{
    struct store *s = arg;

    for (;;) {
        struct append *a;

        mutex_lock(&s->apply_mu);
        while (!s->to_apply.head && !s->apply_stop && !s->fresh)
            cond_wait(&s->applied, &s->apply_mu);
        if (s->fresh) {
            seal_put_fresh(s);
            cond_broadcast(&s->froze);
        }
        if (!s->to_apply.head && !s->apply_stop) {
            mutex_unlock(&s->apply_mu);
            continue;
        }
        if (!s->to_apply.head)
            s->apply_runs = false; /* what comes now is put in place by the writer itself */
        a = s->to_apply.head ? append_pop(&s->to_apply) : NULL;
        mutex_unlock(&s->apply_mu);
        if (!a)
            return NULL;
        apply_one(s, a);
    }
}

/* ---- upkeep thread ------------------------------------------------------------------------- */

static struct journal_new new_journal(const struct store *s)
{
    return (struct journal_new){.store = s->id, .limits = &s->conf.limits, .vfs = store_tuning.vfs};
}

static void prepare_next(struct store *s)
{
    struct journal_new what = new_journal(s);
    struct journal *j = NULL;
    struct err err = {};
    int r;

    mutex_lock(&s->upkeep);
    what.number = s->next_number++;
    mutex_unlock(&s->upkeep);
    r = journal_create(s->journal_dir, s->journal_fd, &what, &j, &err);
    mutex_lock(&s->upkeep);
    if (r == 0)
        s->next = j;
    s->prepared = true;
    cond_broadcast(&s->upkeep_cond);
    mutex_unlock(&s->upkeep);
}

/* Rows up to it are in parts, and the catalog that says so is on disk: one that was found and is
 * open for reading alone may be in the page cache only. */
static uint64_t sealed_for_good(const struct store *s)
{
    return s->unsynced || !s->catalog ? 0 : atomic_load(&s->sealed_lsn);
}

/* A file that is not needed any more, or one that is still open. */
static const struct store_journal *to_remove(const struct store *s) REQUIRES(&s->upkeep)
{
    uint64_t sealed = sealed_for_good(s);

    for (uint32_t i = 0; i < s->n_old; i++) {
        if (s->old[i].j || s->old[i].last_lsn <= sealed)
            return &s->old[i];
    }
    return NULL;
}

static void remove_file(const struct store *s, uint64_t number)
{
    char name[64];

    (void)snprintf(name, sizeof name, "%" PRIu64 ".db", number);
    (void)unlinkat(s->journal_fd, name, 0);
    (void)fsync(s->journal_fd); /* a file whose -wal alone is gone looks like a loss */
    (void)snprintf(name, sizeof name, "%" PRIu64 ".db-wal", number);
    (void)unlinkat(s->journal_fd, name, 0);
}

/* Close what is still open: an unlinked file frees nothing while a handle is open. Then unlink
 * those of which all is in parts. */
static void remove_sealed(struct store *s)
{
    for (;;) {
        struct store_journal at;
        uint32_t i;

        mutex_lock(&s->upkeep);
        if (!to_remove(s)) {
            mutex_unlock(&s->upkeep);
            return;
        }
        i = (uint32_t)(to_remove(s) - s->old);
        at = s->old[i];
        s->old[i].j = NULL;
        if (at.last_lsn <= sealed_for_good(s))
            s->old[i] = s->old[--s->n_old];
        mutex_unlock(&s->upkeep);
        (void)journal_close(at.j);
        if (at.last_lsn <= sealed_for_good(s))
            remove_file(s, at.number);
    }
}

static bool must_prepare(const struct store *s)
{
    return !s->next && !s->prepared && atomic_load(&s->state) != STORE_READ_ONLY;
}

static void *upkeep_main(void *arg)
{
    struct store *s = arg;
    const int64_t wait = store_tuning.probe_ns ? store_tuning.probe_ns : PROBE_NS;

    for (;;) {
        bool need, stop;

        space_look(s);
        mutex_lock(&s->upkeep);
        if (!s->upkeep_stop && !to_remove(s) && !must_prepare(s)) {
            if (!cond_wait_for(&s->upkeep_cond, &s->upkeep, wait) && !s->next)
                s->prepared = false; /* could not be made: try again */
        }
        stop = s->upkeep_stop;
        need = !stop && must_prepare(s);
        mutex_unlock(&s->upkeep);
        if (stop)
            return NULL;
        remove_sealed(s);
        if (need)
            prepare_next(s);
    }
}

/* ---- start and stop ------------------------------------------------------------------------ */

static int start_first(struct store *s, struct err *err)
{
    struct journal_new what = new_journal(s);
    int r;

    if (atomic_load(&s->state) == STORE_READ_ONLY)
        return 0;
    s->acked_fd = acked_open(s->journal_fd, s->acked_lsn);
    what.number = s->next_number++;
    r = journal_create(s->journal_dir, s->journal_fd, &what, &s->current, err);
    s->current_since = mono_now();
    if (r == -ENOMEM)
        return r;
    if (r == -ENOSPC)
        store_set_state(s, STORE_FULL, "no space left on the device");
    else if (r != 0)
        store_set_state(s, STORE_READ_ONLY, "the directory cannot be written");
    if (r != 0 && err)
        *err = (struct err){};
    return 0;
}

int commit_start(struct store *s, struct err *err)
{
    const struct {
        pthread_t *t;
        const char *name;
        void *(*fn)(void *);
    } all[] = {{&s->journal_thread, "st-journal", journal_main},
               {&s->apply_thread, "st-apply", apply_main},
               {&s->upkeep_thread, "st-upkeep", upkeep_main}};

    TRY(start_first(s, err));
    s->apply_runs = true;
    for (uint32_t i = 0; i < 3; i++) {
        int r = thread_start(all[i].t, all[i].name, 0, all[i].fn, s);

        if (r != 0)
            return err_set(err, r, "thread %s: cannot be started", all[i].name);
        s->n_threads++;
    }
    TRY(writer_start(s, err));
    return s->catalog && !store_tuning.compact_asked ? compactor_start(s, err) : 0;
}

static void join(pthread_t t)
{
    int r = pthread_join(t, NULL);

    assert(r == 0);
}

/* Damage at the end of the last file can be told from its end by a file behind it that says up to
 * where there were rows. Best effort: without it only less is noticed. */
static void mark_end(struct store *s)
{
    struct journal *j = s->current && journal_rows(s->current) == 0 ? s->current : s->next;

    if (j && !(j == s->current && s->current_dead) && atomic_load(&s->commits) > 0 &&
        atomic_load(&s->state) != STORE_READ_ONLY)
        (void)journal_mark(j, s->next_lsn, s->acked_lsn, NULL);
}

void commit_stop(struct store *s)
{
    compactor_stop(s);
    mutex_lock(&s->admit);
    s->closing = true;
    cond_broadcast(&s->queued);
    mutex_unlock(&s->admit);
    if (s->n_threads > 0)
        join(s->journal_thread);
    mutex_lock(&s->apply_mu);
    s->apply_stop = true;
    cond_broadcast(&s->applied);
    mutex_unlock(&s->apply_mu);
    if (s->n_threads > 1)
        join(s->apply_thread);
    s->apply_runs = false;
    writer_stop(s, s->n_threads == 3);
    mutex_lock(&s->upkeep);
    s->upkeep_stop = true;
    cond_broadcast(&s->upkeep_cond);
    mutex_unlock(&s->upkeep);
    if (s->n_threads > 2)
        join(s->upkeep_thread);
    mark_end(s);
    if (s->current && journal_retire(s, s->current, journal_number(s->current), s->next_lsn - 1))
        s->current = NULL;
    remove_sealed(s);
    for (uint32_t i = 0; i < s->n_old; i++)
        s->old[i].j = journal_close(s->old[i].j);
    s->next = journal_close(s->next);
    s->current = journal_close(s->current);
}
